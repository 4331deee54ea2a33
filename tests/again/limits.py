"""The verdicts of docs/metrics.md, section 6: scipy's beta and binomial, and a bootstrap from other random numbers."""

import math
import re

import numpy
from scipy import stats

from again.figures import COLUMNS, HOLDS, distribution, limit_of, meets, nearest_rank, request_limits, span, values
from again.tally import faults, same


class Limit:
    """One entry of a plan's `slo` list and what results.json says of it."""

    def __init__(self, case, slo, plan):
        self.where, self.slo = f"{case} `{slo['expr']}`", slo
        self.level = None if plan["confidence"] == "point" else float(plan["confidence"])
        self.scheduled = plan["of"] == "scheduled"
        good = re.fullmatch(r"\s*goodput\((.*)\)\s*([<>=!]+)(.*)", slo["expr"])
        plain = re.fullmatch(r"\s*(\w+)(\{.*\})?(?:\.([\w.]+))?\s*([<>=!]+)(.*)", slo["expr"])
        self.goodput = request_limits(good[1]) if good else None
        self.name, tags, self.stat, self.op, limit = ("goodput", None, None, *good.groups()[1:]) if good else plain.groups()
        self.column, self.limit = COLUMNS.get(self.name, self.name), limit_of(limit)
        self.tags = re.findall(r"(\w+)=([^,}]+)", tags or "")
        self.ceiling = self.op in ("<", "<=")

    def holds(self, value):
        return HOLDS[self.op](value, self.limit)

    def point(self, value):
        return "pass" if self.holds(value) else "fail"

    def same(self, what, known, tolerance=1e-12):
        finite = None if known is not None and math.isinf(known) else known
        same(f"{self.where} {what}", self.slo[what], finite, tolerance)

    def is_point(self, inner):
        return self.level is None or not inner or self.op in ("==", "!=")

    def decided(self, n, breaking, tail):
        if stats.binom.cdf(breaking, n, tail) <= 1 - self.level:
            return "pass"
        return "fail" if stats.binom.sf(breaking - 1, n, tail) <= 1 - self.level else "inconclusive"

    def by_share(self, hits, n):
        """Clopper and Pearson by the beta distribution."""
        self.same("observed", hits / n)
        if self.is_point(0 < self.limit < 1):
            return self.point(hits / n)
        upper = 1.0 if hits == n else stats.beta.ppf(self.level, hits + 1, n - hits)
        lower = 0.0 if hits == 0 else stats.beta.ppf(1 - self.level, hits, n - hits + 1)
        self.same("bound", float(upper if self.ceiling else lower), 1e-7)
        return self.decided(n, *((hits, self.limit) if self.ceiling else (n - hits, 1 - self.limit)))

    def by_quantile(self, found, p):
        """Order statistics by the binomial distribution."""
        ordered, n = sorted(found), len(found)
        seen = nearest_rank(ordered, p)
        self.same("observed", seen)
        if self.is_point(0 < p < 1):
            return self.point(seen)
        tail = 1 - p if self.ceiling else p
        spare = int(stats.binom.ppf(1 - self.level, n, tail)) - 1
        spare += stats.binom.cdf(spare + 1, n, tail) <= 1 - self.level
        self.same("bound", (ordered[n - 1 - spare] if self.ceiling else ordered[spare]) if spare >= 0 else None)
        return self.decided(n, sum(not self.holds(value) for value in found), tail)

    def by_bootstrap(self, units):
        """The same statistic from other random numbers: close, not equal."""
        amounts, weights, rounds = (numpy.array(column, dtype=float) for column in zip(*units))
        if len(set(rounds)) >= 5:
            sums = [(amounts[rounds == own].sum(), weights[rounds == own].sum()) for own in sorted(set(rounds))]
            amounts, weights = map(numpy.array, zip(*sums))
        observed, n = float(amounts.sum() / weights.sum()), len(amounts)
        self.same("observed", observed, 1e-9)
        if self.is_point(True):
            return self.point(observed)
        if 0.5**n > 1 - self.level:
            self.same("bound", None)
            return "inconclusive"
        picks = numpy.random.default_rng(1).integers(0, n, (4000, n))
        drawn = numpy.sort(amounts[picks].sum(1) / weights[picks].sum(1))
        tail = stats.norm.cdf(-math.sqrt(n / (n - 1)) * stats.t.ppf(self.level, n - 1))
        low, high = (float(nearest_rank(drawn, share)) for share in (tail, 1 - tail))
        worst, best = (high, low) if self.ceiling else (low, high)
        room = 0.15 * (high - low) + 1e-9 * abs(observed)
        if abs(self.slo["bound"] - worst) > room:
            faults.append(f"{self.where} bound: printed {self.slo['bound']}, a bootstrap gives {worst} (room {room})")
        if min(abs(worst - self.limit), abs(best - self.limit)) < room:
            return self.slo["verdict"]
        return "pass" if self.holds(worst) else "inconclusive" if self.holds(best) else "fail"


def throughput_units(rows, case, name):
    """Each request's tokens, and its part of its round's window."""
    took = lambda row: 1.0 if case.open_loop else span(row["sent_ns"], row["end_ns"]) or 0.0
    sums, units = {}, []
    for row in rows:
        sums[row["round"]] = sums.get(row["round"], 0.0) + took(row)
    windows = {own.measured[0]["round"]: own.seconds for own in case.rounds if own.measured}
    for row in rows:
        amount = {"request_throughput": 1, "total_tps": (row["prompt_tokens"] or 0) + (row["output_tokens"] or 0)}
        amount = amount.get(name, row["output_tokens"] or 0) / (case.gpus if name.endswith("gpu") else 1)
        weight = windows[row["round"]] * took(row) / sums[row["round"]]
        units.append((amount if row["outcome"] == "ok" else 0, weight, row["round"]))
    return units


def bootstrap_units(limit, rows, case):
    """What the bootstrap draws as (amount, weight, round); None for what is judged in another way."""
    ok = [row for row in rows if row["outcome"] == "ok"]
    if limit.stat == "mean" and limit.column == "itl_ms":
        return [(sum(row["itl_ms"]), len(row["itl_ms"]), row["round"]) for row in ok if row["itl_ms"]]
    if limit.stat == "mean":
        return [(row[limit.column], 1, row["round"]) for row in ok if row[limit.column] is not None]
    if limit.name == "output_tps_per_user":
        return [(row["output_tokens"] / row["e2e_ms"] * 1e3, 1, row["round"]) for row in ok]
    if limit.name in ("request_throughput", "output_tps", "total_tps", "output_tps_per_gpu"):
        return throughput_units(rows, case, limit.name)
    return None


def judged(limit, rows, case):
    """The ruling, and the samples behind it."""
    failed = sum(row["outcome"] != "ok" for row in rows)
    if limit.goodput or limit.name == "error_rate":
        hits = sum(meets(row, limit.goodput) for row in rows) if limit.goodput else failed
        return limit.by_share(hits, len(rows)), len(rows)
    found = values(rows, limit.column) if limit.stat else []
    if limit.stat and limit.scheduled:
        found += [math.inf if limit.ceiling else -math.inf] * failed
    lost = any(map(math.isinf, found))
    units = None if lost else bootstrap_units(limit, rows, case)
    if units is not None:
        return limit.by_bootstrap(units), len(units)
    if limit.stat and limit.stat[0] == "p":
        return limit.by_quantile(found, float(limit.stat[1:]) / 100), len(found)
    if lost and limit.stat in ("mean", "sd"):
        figure = math.inf if limit.ceiling else -math.inf
    else:
        figure = {"count": len(found), **distribution(found)}[limit.stat] if limit.stat else case.known[limit.column]
    limit.same("observed", figure, 1e-9)
    return limit.point(figure), len(found) if limit.stat else len(rows)


def bears(own, tag, value):
    """Whether a row has a tag; a group has those of the groups that it is a part of."""
    return own == value or tag == "group" and own.startswith(value + "/")


def check(slo, plan, case):
    """Holds one verdict of results.json against the rows."""
    limit = Limit(case.id, slo, plan)
    rows = [row for row in case.measured if all(bears(str(row[tag]), tag, value) for tag, value in limit.tags)]
    if slo["n"] == 0:
        ruling = {"fail": "fail", "inconclusive": "inconclusive", "pass": "pass"}[plan["no_data"]]
        limit.same("observed", None)
        return same(limit.where + " verdict", slo["verdict"], slo["verdict"] if slo["verdict"] == "invalid" else ruling)
    ruling, n = judged(limit, rows, case)
    limit.same("n", n)
    same(limit.where + " verdict", slo["verdict"], slo["verdict"] if slo["verdict"] == "invalid" else ruling)
