"""The verdicts of docs/explanation/verdicts.md: scipy's beta, binomial and Student's t."""

import math
import re

import numpy
from scipy import stats

from again.figures import COLUMNS, HOLDS, distribution, limit_of, meets, nearest_rank, request_limits, span, values
from again.tally import faults, same


def inflation(series):
    """Geyer's initial monotone sequence, pooled over rounds: the inflation of a variance, and the last lag that counts."""
    series = [numpy.array(own, dtype=float) for own in series if len(own)]
    n = sum(map(len, series))
    variance = sum(((own - own.mean()) ** 2).sum() for own in series) / max(n - len(series), 1)
    size = max(1, -(-n // 8192))
    means = [own[: len(own) // size * size].reshape(-1, size).mean(1) for own in series]
    off = [own - own.mean() for own in means if len(own)]
    count = sum(map(len, off))
    at = lambda lag: sum(float(own[: len(own) - lag] @ own[lag:]) for own in off if lag < len(own)) / count
    total, before, last = 0.0, math.inf, 0
    for lag in range(0, max(map(len, off)) // 2, 2):
        pair = at(lag) + at(lag + 1)
        if pair <= 0:
            break
        before = min(pair, before)
        total, last = total + before, lag + 1
    # What the means of the series took out of each autocovariance is put back.
    long_run = (2 * total - at(0)) * size / max(0.5, 1 - (2 * last + 1) * len(off) / count)
    known = variance > 0 and long_run > 0
    return (min(max(long_run / variance, 1.0), n) if known else 1.0), last * size


def cut(series, requests, wanted):
    """The sums over about this many batches, which rounds share by their requests."""
    count = lambda own: max(1, math.floor(wanted * len(own) / requests + 0.5))
    return [own[i * len(own) // count(own) : (i + 1) * len(own) // count(own)].sum() for own in series for i in range(count(own))]


class Samples:
    """How many independent samples (amount, weight, round) in the order of their schedule are like."""

    def __init__(self, units, level, closed, open_loop, median=None):
        amounts, weights = (numpy.array([unit[index] for unit in units], dtype=float) for index in (0, 1))
        self.n, self.effect, self.closed, self.too_short = int(weights.sum()), 1.0, closed, False
        share, requests = amounts.sum() / weights.sum(), len(units)
        if requests == 1:
            self.effect = max(1.0, float(weights.sum()))
        if not 0 < share < 1 or requests < 20 and (weights == 1).all() or requests == 1:
            return
        residuals, numbers = amounts - share * weights, [unit[2] for unit in units]
        series = [residuals[[number == own for number in numbers]] for own in sorted(set(numbers))]
        whole, times, lag = [own.sum() for own in series], *inflation(series)
        if len(series) >= 10:
            groups = [whole]
        elif requests >= 200:
            groups = [cut(series, requests, 20), cut(series, requests, 10)]
        else:
            groups = [cut(series, requests, 10 if requests >= 20 else requests)]
        squares = [batched(own) for own in groups]
        independent = share * (1 - share) * weights.sum()
        squares[0] = max((residuals**2).sum() * times, squares[0], independent)
        if len(series) >= 5:
            groups, squares = groups + [whole], squares + [batched(whole)]
        factor = lambda k: (stats.t.ppf(level, k - 1) / stats.norm.ppf(level)) ** 2 if k > 1 else 1.0
        self.effect = float(max(own / independent * factor(len(sums)) for sums, own in zip(groups, squares)))
        self.too_short = open_loop and lag >= max(max(map(len, series)) // 10, 10)

        if open_loop and not self.too_short and median:
            middle = Samples(median, level, False, True)
            self.closed = not middle.too_short and middle.n / middle.effect >= 100

    @property
    def margin(self):
        return (1.5 if self.n / self.effect >= 20 else 3.0) if self.closed else None

    @property
    def too_few(self):
        return self.too_short or self.n / self.effect < 20 and self.effect > 2


class Limit:
    """One entry of a plan's `slo` list and what results.json says of it."""

    def __init__(self, case, slo, plan):
        self.where, self.slo = f"{case} `{slo['expr']}`", slo
        self.level = None if plan["confidence"] == "point" else float(plan["confidence"])
        self.scheduled = plan["of"] == "scheduled"
        good = re.fullmatch(r"\s*goodput\((.*)\)\s*([<>=!]+)(.*)", slo["expr"])
        plain = re.fullmatch(r"\s*(\w+)(\{.*\})?(?:\.([\w.]+))?\s*([<>=!]+)(.*)", slo["expr"])
        reasons = [part.strip() for part in (plain[2] or "{}")[1:-1].split(",") if "=" not in part] if plain and plain[1] == "finish" else []
        self.reason = reasons[0] if reasons else None
        self.goodput = request_limits(good[1]) if good else None
        self.name, tags, self.stat, self.op, limit = ("goodput", None, None, *good.groups()[1:]) if good else plain.groups()
        self.column, self.limit = COLUMNS.get(self.name, self.name), limit_of(limit)
        self.tags = re.findall(r"([\w-]+)=([^,}]+)", tags or "")
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

    def at_most(self, n, tail, breaking):
        return 1.0 if breaking >= n else stats.beta.sf(tail, breaking + 1, n - breaking)

    def decided(self, samples, breaking, tail, strict):
        """The exact rule with real arguments; `strict`: how many break the limit by the margin."""
        if strict is not None and self.at_most(samples.n, tail, strict) <= 1 - self.level:
            return "pass"
        effect = samples.effect * (2 if samples.too_few else 1)
        n, t = samples.n / effect, breaking / effect
        if self.at_most(n, tail, t) <= 1 - self.level:
            return "inconclusive" if samples.too_few else "pass"
        at_least = 1.0 if t <= 0 else stats.beta.cdf(tail, t, n - t + 1)
        return "fail" if at_least <= 1 - self.level else "inconclusive"

    def nearer(self, ends):
        known = [end for end in ends if end is not None]
        return (min if self.ceiling else max)(known) if known else None

    def by_share(self, flags, near, strict, case):
        """Clopper and Pearson by the beta distribution; `flags` by request and round, `near`: how much each takes of all limits, and of
        each one."""
        hits, n = sum(flag for flag, _ in flags), len(flags)
        self.same("observed", hits / n)
        if self.is_point(0 < self.limit < 1):
            return self.point(hits / n)
        series = [[(flag, 1, number) for flag, number in flags]]
        if near:
            series = []
            for own in near:
                seen = nearest_rank(sorted(own), self.limit)
                over = (lambda one: math.isinf(one)) if math.isinf(seen) else lambda one: one > seen
                series.append([(over(one), 1, number) for one, (_, number) in zip(own, flags)])
        failed = any(math.isinf(one) for one in near[0]) if near else False
        all_samples = [Samples(units, self.level, case.closed and not failed, case.plain_rate) for units in series]
        samples = max(all_samples, key=lambda own: own.effect)
        samples.too_short = any(own.too_short for own in all_samples)
        strict = strict(samples.margin) if strict and samples.margin else None

        def end(hits, effect):
            t, m = hits / effect, n / effect
            upper = 1.0 if t >= m else stats.beta.ppf(self.level, t + 1, m - t)
            lower = 0.0 if t <= 0 else stats.beta.ppf(1 - self.level, t, m - t + 1)
            return float(upper if self.ceiling else lower)

        own = None if samples.too_few else end(hits, samples.effect)
        self.same("bound", self.nearer([own, None if strict is None else end(strict, 1.0)]), 1e-7)
        self.same("effective_n", n / samples.effect, 1e-7)
        breaking = lambda hits: hits if self.ceiling else n - hits
        tail = self.limit if self.ceiling else 1 - self.limit
        return self.decided(samples, breaking(hits), tail, None if strict is None else breaking(strict))

    def by_quantile(self, lists, p, case):
        """Order statistics by the binomial distribution; `lists`: the values of each request, and its round."""
        found = [value for own, _ in lists for value in own]
        ordered, n = sorted(found), len(found)
        seen = nearest_rank(ordered, p)
        self.same("observed", seen)
        if self.is_point(0 < p < 1):
            return self.point(seen)
        tail = 1 - p if self.ceiling else p
        over = lambda value: value == seen if math.isinf(seen) else value > seen
        units = [(sum(map(over, own)), len(own), number) for own, number in lists if own]
        bounded, middle = self.column != "itl_ms" and not any(map(math.isinf, found)), nearest_rank(ordered, 0.5)
        median = [(sum(value > middle for value in own), len(own), number) for own, number in lists if own] if bounded else None
        samples = Samples(units, self.level, case.closed and bounded, case.plain_rate, median)

        def end(effect):
            holds = lambda t: self.at_most(n / effect, tail, t / effect) <= 1 - self.level
            if not holds(0):
                return None
            good, bad = 0, n
            while bad - good > 1:
                middle = (good + bad) // 2
                good, bad = (middle, bad) if holds(middle) else (good, middle)
            return ordered[n - 1 - good] if self.ceiling else ordered[good]

        by_margin = end(1.0) if samples.margin else None
        if by_margin is not None:
            by_margin = by_margin * samples.margin if self.ceiling else by_margin / samples.margin
        self.same("bound", self.nearer([None if samples.too_few else end(samples.effect), by_margin]))
        self.same("effective_n", n / samples.effect, 1e-7)
        strict = lambda: self.limit / samples.margin if self.ceiling else self.limit * samples.margin
        beyond = sum(not HOLDS[self.op](value, strict()) for value in found) if samples.margin else None
        return self.decided(samples, sum(not self.holds(value) for value in found), tail, beyond)

    def by_long_run(self, value, errors):
        """Student's t, the farthest of some (standard error, degrees of freedom), on the logarithm; None: too few for any."""
        self.same("observed", value, 1e-9)
        if self.is_point(True):
            return self.point(value)
        if errors is None:
            self.same("bound", None)
            return "inconclusive"
        arm = max(error * stats.t.ppf(self.level, freedom) for error, freedom in errors)
        low, high = (value * math.exp(-arm / value), value * math.exp(arm / value)) if value > 0 else (value - arm, value + arm)
        worst, best = (high, low) if self.ceiling else (low, high)
        self.same("bound", float(worst), 1e-7)
        return "pass" if self.holds(worst) else "inconclusive" if self.holds(best) else "fail"


def batched(sums):
    """The variance of a sum of these around 0."""
    return float((numpy.array(sums) ** 2).sum() * len(sums) / (len(sums) - 1)) if len(sums) > 1 else 0.0


def effective(series):
    """How many independent values the mean of these is like."""
    n = sum(map(len, series))
    return n / inflation(series)[0]


def between(series, weight):
    """The standard error by whole rounds, from five on."""
    sums = [sum(own) for own in series]
    return [(math.sqrt(batched(sums)) / weight, len(sums) - 1)] if len(sums) >= 5 else []


def by_round(units):
    rounds = sorted({own for _, _, own in units})
    return [[(amount, weight) for amount, weight, own in units if own == one] for one in rounds]


def mean_errors(units):
    """Batch means: by ten and by five batches, and by twenty of 200 values, which do not cross rounds."""
    n, weight = len(units), sum(own[1] for own in units)
    if n < 20:
        return None
    value = sum(own[0] for own in units) / weight
    series = [[amount - value * own for amount, own in one] for one in by_round(units)]
    flat = [one for own in series for one in own]
    errors = []
    for batches in ([] if n < 200 else [20]) + [10, 5]:
        sums = []
        for own in series:
            count = min(-(-batches // len(series)), len(own))
            edges = [at * len(own) // count for at in range(count + 1)]
            sums += [sum(own[a:b]) for a, b in zip(edges, edges[1:])]
        if len(sums) > 1:
            least = 0.0 if errors else batched(flat) * n / effective(series)
            errors.append((math.sqrt(max(batched(sums), least)) / weight, len(sums) - 1))
    return errors + between(series, weight) if errors else None


def rate_errors(rounds, amounts, ended, request):
    """Slices of the throughput windows, and what strays within them."""
    seconds, value = sum(own.sending for own in rounds), sum(map(sum, amounts)) / sum(own.sending for own in rounds)
    if ended < 20:
        return None
    series, edges = [], 0.0
    for own, bins in zip(rounds, amounts):
        slices = next((many for many in (20, 16, 15, 12, 10, 8, 6, 5) if many * request <= own.sending), 5)
        parts = numpy.array(bins).reshape(slices, 240 // slices)
        series.append(list(parts.sum(1) - value * own.sending / slices))
        strays = numpy.cumsum(parts, 1) - parts - parts.sum(1, keepdims=True) * numpy.arange(parts.shape[1]) / parts.shape[1]
        edges += 2 * float(strays.var(1).mean())
    flat = [one for own in series for one in own]
    variance = batched(flat) * len(flat) / effective(series) + edges
    return [(math.sqrt(variance) / seconds, len(flat) - 1)] + between(series, seconds)


def throughput(rows, case, name, tags):
    """The rate and its standard errors."""
    what = {"request": "requests", "input": "input", "total": "total"}.get(name.split("_")[0], "output")
    scale = 1 / case.gpus if name.endswith("gpu") else 1.0
    rounds = [own for own in case.rounds if own.sending]
    amounts, ended = [], 0
    for own in rounds:
        bins = [0.0] * 240
        for at, kind, amount, row in own.arrived:
            if all(bears(str(row[tag]), tag, wanted) for tag, wanted in tags):
                ended += kind == "ended"
                bins[own.bin(at)] += amount if kind == what else 0
        amounts.append(bins)
    took = sorted(span(row["sent_ns"], row["end_ns"]) / 1e3 for row in case.measured if row["outcome"] == "ok")
    errors = rate_errors(rounds, amounts, ended, nearest_rank(took, 0.5) if took else 0.0)
    value = sum(map(sum, amounts)) / sum(own.sending for own in rounds)
    return value * scale, errors and [(error * scale, freedom) for error, freedom in errors]


def mean_units(limit, rows):
    """The values of a mean as (amount, weight, round); None for what is judged in another way."""
    ok = [row for row in rows if row["outcome"] == "ok"]
    if limit.stat == "mean" and limit.column == "itl_ms":
        return [(sum(row["itl_ms"]), len(row["itl_ms"]), row["round"]) for row in ok if row["itl_ms"]]
    if limit.stat == "mean":
        return [(row[limit.column], 1, row["round"]) for row in ok if row[limit.column] is not None]
    if limit.name == "output_tps_per_user":
        return [(row["output_tokens"] / row["e2e_ms"] * 1e3, 1, row["round"]) for row in ok]
    return None


def severity(row, limits):
    """The greatest share that a request takes of its limits."""
    if row["outcome"] != "ok":
        return math.inf
    worst = 0.0
    for column, op, limit in limits:
        own = row[column] if column == "itl_ms" else [row[column]] if row[column] is not None else []
        if not own:
            worst = max(worst, 0.0 if meets(row, [(column, op, limit)]) else math.inf)
        for value in own or []:
            worst = max(worst, value / limit if op in ("<", "<=") else limit / value)
    return worst


def stricter(limits, margin):
    """Limits on a request by this margin."""
    return [(name, op, value / margin if op in ("<", "<=") else value * margin) for name, op, value in limits]


# Shares of the answers, by column.
ANSWERS = {"valid_rate": "valid", "match_rate": "match", "length_exact": "length_exact"}
# Words of some servers for a reason of OpenAI.
SAME_REASON = {"length": ("max_tokens", "max_output_tokens"), "stop": ("end_turn", "stop_sequence", "eos_token", "completed")}


def ended_with(selector, reason):
    return reason == selector or (reason or "").lower() in SAME_REASON.get(selector, ())


def judged(limit, rows, case):
    """The ruling, and the samples behind it."""
    failed = sum(row["outcome"] != "ok" for row in rows)
    scheduled = sorted(rows, key=lambda row: (row["round"], row["intended_ns"]))
    if limit.goodput or limit.name == "error_rate":
        good = lambda row: meets(row, limit.goodput) if limit.goodput else row["outcome"] != "ok"
        flags = [(bool(good(row)), row["round"]) for row in scheduled]
        floor = limit.goodput and not limit.ceiling
        # Errors have no margin: users do not bound how often a server fails.
        strict = (lambda margin: sum(bool(meets(row, stricter(limit.goodput, margin))) for row in rows)) if floor else None
        each = [limit.goodput] + [[one] for one in limit.goodput or [] if len(limit.goodput) > 1]
        near = [[severity(row, own) for row in scheduled] for own in each] if floor else None
        return limit.by_share(flags, near, strict, case), len(rows)
    if limit.reason or limit.name in ANSWERS:
        ok = [row for row in scheduled if row["outcome"] == "ok"]
        hit = lambda row: ended_with(limit.reason, row["finish_reason"]) if limit.reason else row[ANSWERS[limit.name]]
        flags = [(bool(hit(row)), row["round"]) for row in ok if hit(row) is not None]
        return limit.by_share(flags, None, None, case), len(flags)
    found = values(rows, limit.column) if limit.stat else []
    if limit.stat and limit.scheduled:
        found += [math.inf if limit.ceiling else -math.inf] * failed
    lost = any(map(math.isinf, found))
    if re.fullmatch("request_throughput|(input|output|total)_tps(_per_gpu)?", limit.name):
        return limit.by_long_run(*throughput(rows, case, limit.name, limit.tags)), len(rows)
    units = None if lost else mean_units(limit, scheduled)
    if units is not None:
        return limit.by_long_run(sum(own[0] for own in units) / sum(own[1] for own in units), mean_errors(units)), len(units)
    if limit.stat and limit.stat[0] == "p":
        worst = [math.inf if limit.ceiling else -math.inf] if limit.scheduled else []
        own = lambda row: values([row], limit.column) if row["outcome"] == "ok" else worst
        lists = [(own(row), row["round"]) for row in scheduled]
        return limit.by_quantile(lists, float(limit.stat[1:]) / 100, case), len(found)
    if lost and limit.stat in ("mean", "sd"):
        figure = math.inf if limit.ceiling else -math.inf
    else:
        figure = {"count": len(found), **distribution(found)}[limit.stat] if limit.stat else case.known[limit.column]
    limit.same("observed", figure, 1e-9)
    return limit.point(figure), len(found) if limit.stat else len(rows)


def bears(row, tag, value):
    """Whether a row has a tag; a group has those of the groups that it is a part of, and turns count from 1."""
    if "-" in tag:
        return f"{tag}: {value}" in (row["kept_headers"] or "").splitlines()
    if tag == "turn":
        low, dots, high = {"first": "1", "later": "2.."}.get(value, value).partition("..")
        return int(low) <= row["turn"] + 1 <= int(high or (2**32 if dots else low))
    return str(row[tag]) == value or tag == "group" and str(row[tag]).startswith(value + "/")


# Figures that requests.parquet does not have, costs, whose limits are those of throughputs, and limits relative to another value.
ELSEWHERE = re.compile(r"\s*(cost_per_\w+|startup|energy_per_token|mfu|mbu|replica_imbalance|(server|gpu|host)\.)|.*\*\s*(baseline|reference|\w+\{)|.*[<>=]\s*\w+\{")


def check(slo, plan, case):
    """Compares one verdict of results.json with the rows; False where they do not tell."""
    if ELSEWHERE.match(slo["expr"]):
        return False
    limit = Limit(case.id, slo, plan)
    rows = [row for row in case.measured if all(bears(row, tag, value) for tag, value in limit.tags)]
    if slo["n"] == 0:
        verdict = {"fail": "fail", "inconclusive": "inconclusive", "pass": "pass"}[plan["no_data"]]
        limit.same("observed", None)
    else:
        verdict, n = judged(limit, rows, case)
        limit.same("n", n)
    same(limit.where + " verdict", slo["verdict"], slo["verdict"] if slo["verdict"] == "invalid" else verdict)
    return True
