#!/usr/bin/env python3
"""Computes every figure of a run folder once more, from the raw stamps in requests.parquet, and compares.

    pip install pyarrow numpy scipy pyyaml
    python3 tests/check_numbers.py RUN_DIR...

It follows docs/reference/metrics.md and shares no code with llmscen. A line for each figure that differs, and exit code 1. Stages of a case are left
out, and so are the rates and the steady state of loads other than a plain rate or a plain concurrency, what does not come from
requests (startup, energy, MFU and MBU, signals of the server) and limits relative to a baseline. The last line counts what was left out.
"""

import csv
import json
import re
import sys
from pathlib import Path

import pyarrow.parquet
import yaml
from again import limits
from again.figures import Round, derived, distribution, ended_itself, nearest_rank, request_limits, scalars, settle, values
from again.planned import PlannedLoad
from again.tally import compared, faults, same


# Figures that depend on how a load changes, which this script does not know.
UNKNOWN = ["rate_offered", "rate_achieved", "output_tps_steady"]
# Figures of the server's start, of its power, of its hardware and of its replicas: requests.parquet does not have what they come from.
ELSEWHERE = ["startup_s", "energy_per_token_j", "mfu", "mbu", "replica_imbalance"]
left_out = []


def share_of(text):
    return float(text[:-1]) / 100 if isinstance(text, str) else text


def swept(case, section):
    """The values of the matrix for a section."""
    return {path.split(".")[1]: value for path, value in case["labels"].items() if path.startswith(section + ".")}


def patches(plan, case, section):
    """What the variant and the workload of a case change in a section."""
    changed = {}
    for axis, names in (("variant", "variants"), ("workload", "workloads")):
        changed.update((plan.get(names, {}).get(case["labels"].get(axis)) or {}).get(section, {}))
    return changed


def asks_for_length(request, dataset):
    """Whether a request asks for exactly `max_tokens`."""
    fields = {**request, **request.get("extra", {})}
    if (fields.get("n") or 1) > 1:
        return False
    if str(dataset.get("kind", "")).startswith("speed_benchmark") or dataset.get("trace", {}).get("match_output_length"):
        return True
    return fields.get("ignore_eos") is True or fields.get("min_tokens") not in (None, 0) and fields["min_tokens"] == fields.get("max_tokens")


class Case:
    """A case of results.json with its rows, and its figures computed again."""

    def __init__(self, case, rows, plan, parts):
        self.id, self.open_loop = case["id"], "/s" in case["load"]
        self.target = dict(plan["target"])
        for axis, section in (("variant", "variants"), ("workload", "workloads")):
            patch = plan.get(section, {}).get(case["labels"].get(axis)) or {}
            self.target.update({key: patch["target"][key] for key in ("gpus", "cost") if key in patch.get("target", {})})
        self.gpus = self.target.get("gpus")
        load = dict(plan["load"])
        for path, value in case["labels"].items():
            if path.startswith("load.static."):
                load["static"] = {**load["static"], path.split(".")[2]: value}
            elif path.startswith("load."):
                load[path.split(".")[1]] = value
        shape = {key for key in ("concurrency", "rate", "static", "stages", "trace", "batch", "users") if key in load}
        self.closed, self.plain_rate = shape == {"concurrency"}, shape == {"rate"} and load["rate"] != "inf"
        part = {own["round"]: own for own in parts if own["case"] == self.id}
        left = lambda row: row["outcome"] == "cancelled" and ended_itself(part.get(row["round"], {}))
        rows = [row for row in rows if not left(row)]
        self.rows, self.measured = rows, [row for row in rows if row["phase"] == "measured"]
        stage = case["labels"].get("load.stage")
        planned = PlannedLoad(load, plan.get("mix", []), stage if isinstance(stage, int) else None)
        firsts = {}
        for row in self.measured:
            firsts[row["round"]] = min(firsts.get(row["round"], row["intended_ns"]), row["intended_ns"])
        for row in self.measured:
            row["level"] = planned.level(row, firsts[row["round"]])
        # Limits on the whole of a staged load say `all`.
        labels = {**case["labels"], **({"load.stage": "all"} if "stages" in plan["load"] else {})}
        about = lambda slo: all(labels.get(path) == value for path, value in slo.get("when", {}).items())
        self.limits = [slo for slo in plan.get("slo", []) if about(slo)]
        # Where no objective limits failures, a default does.
        defaults = [slo for slo in case["slo"] if slo["default"]]
        for slo in defaults:
            same(f"{self.id} default", slo["limit"], share_of(plan["slo_defaults"]["error_rate"]))
            self.limits.append({"expr": slo["expr"], "confidence": "point", "of": "ok", "no_data": "pass"})
        # Without a check of the answers, the length is exact where the request asks for it.
        request, dataset = plan.get("request", {}), plan.get("dataset", {})
        entries = {entry["name"]: entry for entry in plan.get("mix", [])}
        for row in self.measured:
            entry = entries.get((row["group"] or "").split("/")[0], {})
            own = {**request, **patches(plan, case, "request"), **entry.get("request", {}), **swept(case, "request")}
            data = {**dataset, **patches(plan, case, "dataset"), **entry.get("dataset", {}), **swept(case, "dataset")}
            counted = None if row["counted_approximate"] else row["counted_output"]
            tokens = row["usage_output"] if row["usage_output"] is not None else counted
            if row["outcome"] == "ok" and row["length_exact"] is None and None not in (tokens, row["max_tokens"]) and asks_for_length(own, data):
                row["length_exact"] = tokens == row["max_tokens"]
        self.rounds = [
            Round([row for row in rows if row["round"] == number], part.get(number), load, case["load"])
            for number in sorted({row["round"] for row in rows})
        ]
        settle(self.rounds, list(entries))
        good = (re.search(r"goodput\((.*)\)", slo["expr"]) for slo in self.limits)
        self.unknown = [] if {"concurrency", "rate"} & set(load) else UNKNOWN
        self.queue = limits.Queue(self)
        self.known = scalars(self.rounds, self.target, next((request_limits(found[1]) for found in good if found), None))


def check_metrics(case, printed, line):
    """Every figure of results.json, and its cell in cases.csv."""

    def both(name, value, known, tolerance):
        same(f"{case.id} {name}", value, known, tolerance)
        cell = line and line[name.replace(" ", "_")]
        same(f"{case.id} {name} (csv)", float(cell) if cell else None, known if line else None, tolerance)

    for name, value in printed.items():
        if name in case.unknown + ELSEWHERE:
            if value is not None:
                left_out.append(name)
        elif name in case.known:
            both(name, value, case.known[name], 1e-9)
        if name in case.unknown + ELSEWHERE or name in case.known:
            continue
        figures = distribution(values(case.measured, name))
        same(f"{case.id} {name}", value is None, figures is None)
        for stat, known in (figures or {}).items():
            both(f"{name} {stat}", value[stat], known, 1e-12)


def check_case(case, printed, line):
    check_metrics(case, printed["metrics"], line)
    ok = sum(row["outcome"] == "ok" for row in case.measured)
    dropped = sum(row["outcome"] == "dropped" for row in case.measured)
    cooldown = sum(row["phase"] == "cooldown" for row in case.rows)
    warmup = len(case.rows) - len(case.measured) - cooldown
    counts = {"scheduled": len(case.measured), "ok": ok, "dropped": dropped, "warmup": warmup, "cooldown": cooldown}
    for name, count in {**counts, "failed": len(case.measured) - ok - dropped}.items():
        same(f"{case.id} {name}", printed["counts"][name], count)
    lags = sorted(row["schedule_lag_ms"] for row in case.measured if row["schedule_lag_ms"] is not None)
    for stat, share in [("p50", 0.5), ("p99", 0.99), ("max", 1.0)]:
        same(f"{case.id} lag {stat}", printed["audit"][f"schedule_lag_ms_{stat}"], nearest_rank(lags, share) if lags else None)
    same(f"{case.id} limits", ", ".join(slo["expr"] for slo in printed["slo"]), ", ".join(slo["expr"] for slo in case.limits))
    for slo, plan in zip(printed["slo"], case.limits):
        if printed["aborted"] or not limits.check(slo, plan, case):
            left_out.append(slo["expr"])


def main(folder):
    results = json.loads((folder / "results.json").read_text())
    plan = yaml.safe_load((folder / "plan.yaml").read_text())
    parts = json.loads((folder / "manifest.json").read_text())["parts"]
    rows = pyarrow.parquet.read_table(folder / "requests.parquet").to_pylist()
    table = folder / "cases.csv"
    lines = {line["case"]: line for line in csv.DictReader(table.open())} if table.exists() else {}
    for row in rows:
        for column, value in derived(row).items():
            same(f"{row['case_id']} round {row['round']} seq {row['seq']} {column}", row[column], value)
    for printed in results["cases"]:
        if "load.stage" in printed["labels"]:
            left_out.append(printed["id"])
            continue
        own = [row for row in rows if row["case_id"] == printed["id"]]
        check_case(Case(printed, own, plan, parts), printed, lines.get(printed["id"]))


if __name__ == "__main__":
    for folder in map(Path, sys.argv[1:]):
        before = len(faults)
        main(folder)
        faults[before:] = [f"{folder}: {fault}" for fault in faults[before:]]
    print("\n".join(faults[:50]) or f"{compared[0]} figures agree, {len(left_out)} left out")
    sys.exit(1 if faults or not compared[0] else 0)
