"""The figures of docs/metrics.md, sections 2 to 4, computed from the raw stamps of requests.parquet."""

import math
import re

import numpy

SHARES = [0.01, 0.05, 0.10, 0.25, 0.50, 0.66, 0.75, 0.80, 0.90, 0.95, 0.98, 0.99, 0.999]
UNITS = {"ns": 1e-6, "us": 1e-3, "ms": 1, "s": 1e3, "m": 6e4, "h": 3.6e6, "%": 0.01}
HOLDS = {
    "<": lambda value, limit: value < limit,
    "<=": lambda value, limit: value <= limit,
    ">": lambda value, limit: value > limit,
    ">=": lambda value, limit: value >= limit,
    "==": lambda value, limit: value == limit,
    "!=": lambda value, limit: value != limit,
}
COLUMNS = {"ttft_per_prompt_token": "ttft_ms_per_prompt_token", "window": "window_s"}
TIMES = ["ttft", "ttft_service", "ttfc", "itl", "tpot", "ntpot", "e2e", "e2e_service", "schedule_lag"]
COLUMNS.update({name: name + "_ms" for name in TIMES})


def ratio(above, below):
    return above / below if above is not None and below else None


def per_second(tokens, milliseconds):
    per_ms = ratio(tokens, milliseconds)
    return per_ms and per_ms * 1e3


def span(start, end):
    return (end - start) / 1e6 if start is not None and end is not None else None


def derived(row):
    """Section 2 of docs/metrics.md: the metrics of one request from its stamps and counts."""
    events = row["token_events_ns"] if row["streamed"] else []
    ok = row["outcome"] == "ok"
    first, last = (events[0], events[-1]) if events else (None, None)
    answered, end = (first, row["end_ns"]) if ok else (None, None)
    counts = [("usage", row["usage_output"]), ("tokenizer", row["counted_output"]), ("events", len(events) or None)]
    source, output = next(((name, count) for name, count in counts if count is not None), (None, None))
    prompt = row["usage_prompt"] if row["usage_prompt"] is not None else row["counted_prompt"]
    paced = bool(events) and last > first and (output or 0) > 1
    ttft, e2e = span(row["intended_ns"], answered), span(row["intended_ns"], end)
    service = span(row["sent_ns"], answered)
    tpot = span(first, last) / (output - 1) if paced else None
    per_ms = ratio(prompt, service)
    return {
        "token_source": source,
        "ttft_ms": ttft,
        "ttft_service_ms": service,
        "ttfc_ms": span(row["sent_ns"], row["first_chunk_ns"]),
        "itl_ms": [span(a, b) for a, b in zip(events, events[1:])] if len(events) > 1 else None,
        "tokens_per_event": ratio(output, len(events)),
        "events_per_reply": len(events) or None if ok else None,
        "tpot_ms": tpot,
        "ntpot_ms": ratio(e2e, output),
        "e2e_ms": e2e,
        "e2e_service_ms": span(row["sent_ns"], end),
        "schedule_lag_ms": span(row["intended_ns"], row["sent_ns"]),
        "prompt_tokens": prompt,
        "output_tokens": output,
        "reasoning_tokens": row["usage_reasoning"],
        "cached_tokens": row["usage_cached"],
        "prefill_tps": per_ms and per_ms * 1e3,
        "decode_tps": ratio(1e3, tpot),
        "output_tps_per_request": per_second(output, e2e),
        "total_tps_per_request": per_second(prompt + output if prompt is not None and output is not None else None, e2e),
        "ttft_ms_per_prompt_token": ratio(ttft, prompt),
    }


def steps(rows, window):
    """Requests in flight within a window as (from, to, level)."""
    edges = {}
    for row in rows:
        if row["sent_ns"] is not None and row["sent_ns"] < row["end_ns"]:
            edges[row["sent_ns"]] = edges.get(row["sent_ns"], 0) + 1
            edges[row["end_ns"]] = edges.get(row["end_ns"], 0) - 1
    times = sorted(edges)
    levels = numpy.cumsum([edges[time] for time in times])
    begun = [(0, times[0] if times else 2**63, 0)]
    found = begun + list(zip(times, times[1:] + [2**63], levels))
    clipped = ((max(a, window[0]), min(b, window[1]), int(level)) for a, b, level in found)
    return [step for step in clipped if step[0] < step[1]]


def plateau(levels, users):
    if users is not None:
        return min(users, max((level for _, _, level in levels), default=0))
    half, passed = sum(b - a for a, b, _ in levels) / 2, 0
    for a, b, level in sorted(levels, key=lambda step: step[2]):
        passed += b - a
        if passed >= half:
            return level
    return 0


class Round:
    """What one round of a case adds to the sums of its case."""

    def __init__(self, rows, part, load, shape):
        self.rows, self.measured = rows, [row for row in rows if row["phase"] == "measured"]
        self.seconds = self.area = self.most = self.steady_tokens = self.steady_seconds = 0
        self.planned = self.length = self.sent = self.took = 0
        if self.measured:
            first = min(row["intended_ns"] for row in self.measured)
            self.window = (first, max(row["end_ns"] for row in self.measured))
            self.seconds = (self.window[1] - first) / 1e9
            self.in_flight(shape)
            self.rates(first, part, load, shape)

    def in_flight(self, shape):
        levels = steps(self.rows, self.window)
        self.area = sum(level * (b - a) for a, b, level in levels) / 1e9
        self.most = max((level for _, _, level in levels), default=0)
        users = int(shape.split()[1]) if shape.startswith("concurrency") else None
        high = [(a, b) for a, b, level in levels if level >= 0.9 * plateau(levels, users)]
        self.steady_seconds = sum(b - a for a, b in high) / 1e9
        for row in self.rows:
            if row["outcome"] == "ok" and row["streamed"] and row["token_events_ns"]:
                inside = sum(any(a < event <= b for a, b in high) for event in row["token_events_ns"])
                self.steady_tokens += inside * row["tokens_per_event"]

    def rates(self, first, part, load, shape):
        self.sent = sum(row["sent_ns"] is not None for row in self.measured)
        self.took = self.seconds
        if "/s" not in shape:
            return
        due, n = [row["intended_ns"] for row in self.measured], len(self.measured)
        start, length = first, (max(due) - first) / max(n - 1, 1) * n
        if "duration" in load and not (load.get("requests") is not None and n >= load["requests"]):
            start = min(part["measured_from_ns"], first)
            length = span_of(load["duration"]) * 1e6
            if part["cut_short"] and part["sending_until_ns"] is not None:
                length = min(length, part["sending_until_ns"] - start)
        self.planned, self.length = sum(at <= start + length for at in due), length / 1e9
        left = max((row["sent_ns"] for row in self.measured if row["sent_ns"] is not None), default=start)
        self.took = max(length, left - start) / 1e9


def span_of(text):
    """A duration of a plan in milliseconds."""
    pieces = re.findall(r"([\d.]+)(ns|us|ms|s|m|h)", str(text))
    return sum(float(number) * UNITS[unit] for number, unit in pieces)


def scalars(rounds, gpus, goodput):
    """Section 3 of docs/metrics.md: the figures that a case has one of."""
    rows = [row for own in rounds for row in own.measured]
    ok = [row for row in rows if row["outcome"] == "ok"]
    total = lambda name: sum(getattr(own, name) for own in rounds)
    seconds = total("seconds")
    tokens = [row["output_tokens"] for row in ok if row["output_tokens"] is not None]
    both = [row for row in ok if row["output_tokens"] is not None and row["prompt_tokens"] is not None]
    items = [row["items"] for row in ok if row["items"] is not None]
    users = [row["output_tokens"] / row["e2e_ms"] * 1e3 for row in ok if row["output_tokens"] is not None]
    output = ratio(sum(tokens), seconds) if tokens else None
    streamed = any(row["streamed"] and row["token_events_ns"] for own in rounds for row in own.rows if row["outcome"] == "ok")
    return {
        "request_throughput": ratio(len(ok), seconds),
        "output_tps": output,
        "total_tps": ratio(sum(row["output_tokens"] + row["prompt_tokens"] for row in both), seconds) if both else None,
        "output_tps_per_user": float(numpy.mean(users)) if users else None,
        "output_tps_per_gpu": ratio(output, gpus) if gpus else None,
        "output_tps_steady": ratio(total("steady_tokens"), total("steady_seconds")) if streamed else None,
        "concurrency_mean": ratio(total("area"), seconds),
        "concurrency_max": max((own.most for own in rounds), default=None) if seconds else None,
        "rate_offered": ratio(total("planned"), total("length")),
        "rate_achieved": ratio(total("sent"), total("took")),
        "error_rate": ratio(len(rows) - len(ok), len(rows)),
        "item_throughput": ratio(sum(items), seconds) if items else None,
        "session_throughput": ratio(whole_sessions(rows), seconds) if any(row["turns"] > 1 for row in rows) else None,
        "goodput_rate": ratio(sum(meets(row, goodput) for row in rows), seconds) if goodput else None,
        "window_s": seconds or None,
    }


def whole_sessions(rows):
    """Conversations of which every turn is ok."""
    done = {}
    for row in rows:
        if row["turns"] > 1 and row["outcome"] == "ok":
            done[row["round"], row["seq"]] = done.get((row["round"], row["seq"]), 0) + 1
    firsts = (row for row in rows if row["turns"] > 1 and row["turn"] == 0)
    return sum(done.get((row["round"], row["seq"])) == row["turns"] for row in firsts)


def nearest_rank(ordered, share):
    return ordered[max(math.ceil(round(share * len(ordered), 9)), 1) - 1]


def values(rows, column):
    found = [row[column] for row in rows if row["outcome"] == "ok" and row[column] is not None]
    return [gap for gaps in found for gap in gaps] if column == "itl_ms" else found


def distribution(found):
    if not found:
        return None
    ordered = sorted(found)
    known = {"n": len(found), "mean": float(numpy.mean(ordered)), "min": ordered[0], "max": ordered[-1]}
    known["sd"] = float(numpy.std(ordered, ddof=1)) if len(found) > 1 else None
    known.update({f"p{round(share * 100, 1):g}": nearest_rank(ordered, share) for share in SHARES})
    return known


def limit_of(text):
    number, unit = re.fullmatch(r"\s*([\d.]+)\s*(ns|us|ms|s|m|h|%|tok/s|req/s|tok)?\s*", text).groups()
    return float(number) * UNITS[unit] if unit in UNITS and unit != "%" else float(number) / (100 if unit == "%" else 1)


def request_limits(text):
    parts = [re.fullmatch(r"\s*(\w+)\s*([<>=!]+)(.*)", part).groups() for part in text.split(",")]
    return [(COLUMNS.get(name, name), op, limit_of(limit)) for name, op, limit in parts]


def meets(row, limits):
    """Whether a request is good: ok, with every limit met; a stream without a pace breaks no limit on it."""
    if row["outcome"] != "ok":
        return False
    for column, op, limit in limits:
        seen = row[column] if column == "itl_ms" else [row[column]]
        if column in ("itl_ms", "tpot_ms", "decode_tps") and seen in (None, [None]):
            if row["ttft_ms"] is None:
                return False
        elif any(value is None or not HOLDS[op](value, limit) for value in seen):
            return False
    return True
