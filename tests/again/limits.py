"""The verdicts of docs/explanation/verdicts.md: scipy's beta, binomial and Student's t."""

import math
import re

import numpy
from scipy import stats

from again.figures import COLUMNS, HOLDS, distribution, limit_of, meets, nearest_rank, request_limits, span, values
from again.planned import without_plan
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


def cut(series, times, requests, wanted):
    """The sums over about this many batches, which rounds share by their requests: batches of equal time where requests come in bursts."""
    sums = []
    for own, at in zip(series, times):
        count = max(1, math.floor(wanted * len(own) / requests + 0.5))
        if comes_in_bursts(at):
            sums += [own[slices(at, count) == one].sum() for one in range(count)]
        else:
            sums += [own[one * len(own) // count : (one + 1) * len(own) // count].sum() for one in range(count)]
    return sums


def slices(at, count):
    """The slice of each instant, of so many equal ones."""
    return numpy.minimum(((at - at.min()) / (at.max() - at.min()) * count).astype(int), count - 1)


def comes_in_bursts(at):
    if len(at) < 20 or at[0] == at[-1]:
        return False
    counts, mean = numpy.bincount(slices(at, 20), minlength=20), len(at) / 20
    return ((counts - mean) ** 2).sum() / 19 > 2 * mean


class Samples:
    """How many independent samples (amount, weight, round, instant, level of the plan) in the order of their schedule are like."""

    def __init__(self, units, level, closed, open_loop, median=None):
        amounts, weights = (numpy.array([unit[index] for unit in units], dtype=float) for index in (0, 1))
        amounts = without_plan(amounts, weights, numpy.array([unit[4] for unit in units]))
        self.n, self.effect, self.closed, self.too_short = int(weights.sum()), 1.0, closed, False
        share, requests = amounts.sum() / weights.sum(), len(units)
        if requests == 1:
            self.effect = max(1.0, float(weights.sum()))
        if not 0 < share < 1 or requests < 20 and (weights == 1).all() or requests == 1:
            return
        residuals, numbers = amounts - share * weights, [unit[2] for unit in units]
        by_round = lambda found: [found[[number == own for number in numbers]] for own in sorted(set(numbers))]
        series, at = by_round(residuals), by_round(numpy.array([unit[3] / 1e9 for unit in units]))
        some = lambda wanted: cut(series, at, requests, wanted)
        whole, times, lag = [own.sum() for own in series], *inflation(series)
        if len(series) >= 10:
            groups = [whole]
        elif requests >= 20 and any(map(comes_in_bursts, at)):
            groups = [some(10), some(5)]
        elif requests >= 200:
            groups = [some(20), some(10)]
        else:
            groups = [some(10 if requests >= 20 else requests)]
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


# Metrics that contain the wait in the queue of the server.
WAITS = "ttft(_service|_first_turn|_later_turns|_per_prompt_token)?|time_to_first_answer|ttfc|ntpot|e2e(_service)?|held_time|session_duration|rtf|ttfa"
PACES_WITH_WAITS = "prefill_tps|(output|total)_tps_per_request|rtfx_per_request|output_tps_per_user"


class Queue:
    """What the requests of an open loop at one rate show of the queue of the server."""

    def __init__(self, case):
        rows = sorted(case.measured, key=lambda row: (row["round"], row["intended_ns"]))
        rounds = [[row for row in rows if row["round"] == number] for number in sorted({row["round"] for row in rows})]
        self.has_long_memory, self.growth = False, None
        if not case.plain_rate or not rows:
            return
        wait = "ttft_ms" if any(row["ttft_ms"] is not None for row in rows) else "e2e_ms"
        series = [[row[wait] for row in own if row[wait] is not None] for own in rounds]
        if any(series):
            self.has_long_memory = inflation(series)[1] >= max(max(map(len, series)) // 12, 10)
        if not any(row["turn"] for row in rows):
            self.growth = self.measure_growth(case, rounds)

    def measure_growth(self, case, rounds):
        """Ends minus arrivals per second with its standard errors, from when the server is full to the last arrival."""
        spans, amounts, ended = [], [], 0
        for own in rounds:
            took = [row["e2e_ms"] / 1e3 if row["e2e_ms"] is not None else busy(row) / 1e3 for row in own]
            at = [row["intended_ns"] / 1e9 for row in own]
            early = sorted(took[: max(20, len(own) // 10)])
            begins, until = at[0] + nearest_rank(early, 0.95), at[-1]
            if until <= begins:
                continue
            bins = [0.0] * 240
            for instant, amount in [(a + b, 1.0) for a, b in zip(at, took)] + [(a, -1.0) for a in at]:
                if begins < instant <= until:
                    bins[max(math.ceil((instant - begins) / (until - begins) * 240), 1) - 1] += amount
                    ended += amount > 0
            spans.append(until - begins)
            amounts.append(bins)
        if not spans:
            return None
        return rate(spans, amounts, ended, case, 1.0)

    def grows(self, level):
        if not self.growth or not self.growth[1]:
            return False
        value, errors = self.growth
        arm = max(error * stats.t.ppf(level, freedom) for error, freedom in errors)
        return (value * math.exp(arm / value) if value > 0 else value + arm) < 0


def busy(row):
    """Milliseconds from the send of a request to its end."""
    return span(row["sent_ns"], row["end_ns"]) or 0.0


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
        # Waits contain the queue of the server: a limit on them cannot pass where the queue of an open loop grows.
        known = WAITS if self.ceiling else PACES_WITH_WAITS
        inner = any(re.fullmatch(f"{WAITS}|{PACES_WITH_WAITS}", name.replace("_ms", "")) for name, _, _ in self.goodput or [])
        self.limits_waits = inner and not self.ceiling if self.goodput else bool(re.fullmatch(known, self.name))
        self.is_ratio, self.bound, self.is_silent = False, None, False

    def holds(self, value):
        return HOLDS[self.op](value, self.limit)

    def point(self, value):
        return "pass" if self.holds(value) else "fail"

    def same(self, what, known, tolerance=1e-12):
        if self.is_silent:
            self.seen = known if what == "observed" else self.seen
            return
        finite = None if known is not None and math.isinf(known) else known
        same(f"{self.where} {what}", self.slo[what], finite, tolerance)

    def bounded(self, known, tolerance=1e-12):
        self.bound = known, tolerance

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

    def forgets_late(self, case):
        return self.limits_waits and case.queue.has_long_memory

    def by_share(self, flags, near, strict, case, unmeasured=0):
        """Clopper and Pearson by the beta distribution; `flags` by request, round and instant, `near`: how much each takes of its limits."""
        hits, n = sum(own[0] for own in flags), len(flags)
        self.same("observed", hits / n)
        if self.is_point(0 < self.limit < 1):
            return self.point(hits / n)
        series = [[(flag, 1, *when) for flag, *when in flags]]
        if near:
            series = []
            for share in [1 - times * (1 - self.limit) for times in (1, 2)[: len(self.goodput)]]:
                if share <= 0:
                    continue
                seen = nearest_rank(sorted(near), share)
                over = (lambda one: math.isinf(one)) if math.isinf(seen) else lambda one, seen=seen: one > seen
                series.append([(over(one), 1, *when) for one, (_, *when) in zip(near, flags)])
        failed = any(map(math.isinf, near)) if near else False
        all_samples = [Samples(units, self.level, case.closed and not failed, case.plain_rate) for units in series]
        samples = max(all_samples, key=lambda own: own.effect)
        samples.too_short = any(own.too_short for own in all_samples) or self.forgets_late(case)
        samples.closed = samples.closed and not self.forgets_late(case)

        def ruling(hits, n):
            """Those that are not measured may be good or not."""
            samples.n = n
            kept = strict(samples.margin) if strict and samples.margin else None
            breaking = lambda hits: hits if self.ceiling else n - hits
            tail = self.limit if self.ceiling else 1 - self.limit
            return self.decided(samples, breaking(hits), tail, None if kept is None else breaking(kept))

        more = [(hits, n + unmeasured), (hits + unmeasured, n + unmeasured)] if unmeasured else []
        possible = {ruling(*shares) for shares in more + [(hits, n)]}
        if len(possible) > 1 and ruling(hits, n) != "inconclusive":
            return "inconclusive"
        kept = strict(samples.margin) if strict and samples.margin else None

        def end(hits, effect):
            t, m = hits / effect, n / effect
            upper = 1.0 if t >= m else stats.beta.ppf(self.level, t + 1, m - t)
            lower = 0.0 if t <= 0 else stats.beta.ppf(1 - self.level, t, m - t + 1)
            return float(upper if self.ceiling else lower)

        own = None if samples.too_few else end(hits, samples.effect)
        self.bounded(self.nearer([own, None if kept is None else end(kept, 1.0)]), 1e-7)
        self.same("effective_n", n / samples.effect, 1e-7)
        return ruling(hits, n)

    def by_quantile(self, lists, p, case):
        """Order statistics by the binomial distribution; `lists`: the values of each request, its round and its instant."""
        found = [value for own, *_ in lists for value in own]
        ordered, n = sorted(found), len(found)
        seen = nearest_rank(ordered, p)
        self.same("observed", seen)
        if self.is_point(0 < p < 1):
            return self.point(seen)
        tail = 1 - p if self.ceiling else p
        over = lambda value: value == seen if math.isinf(seen) else value > seen
        units = [(sum(map(over, own)), len(own), *when) for own, *when in lists if own]
        bounded, middle = self.column != "itl_ms" and not any(map(math.isinf, found)), nearest_rank(ordered, 0.5)
        median = [(sum(value > middle for value in own), len(own), *when) for own, *when in lists if own] if bounded else None
        samples = Samples(units, self.level, case.closed and bounded, case.plain_rate, median)
        samples.too_short = samples.too_short or self.forgets_late(case)
        samples.closed = samples.closed and not self.forgets_late(case)

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
        self.bounded(self.nearer([None if samples.too_few else end(samples.effect), by_margin]))
        self.same("effective_n", n / samples.effect, 1e-7)
        strict = lambda: self.limit / samples.margin if self.ceiling else self.limit * samples.margin
        beyond = sum(not HOLDS[self.op](value, strict()) for value in found) if samples.margin else None
        return self.decided(samples, sum(not self.holds(value) for value in found), tail, beyond)

    def by_long_run(self, value, errors):
        """Student's t, the farthest of some (standard error, degrees of freedom), on the logarithm; None: too few for any."""
        self.same("observed", value, 1e-9)
        if self.is_point(True):
            return self.point(value)
        self.is_ratio = True
        if errors is None:
            return "inconclusive"
        arm = max(error * stats.t.ppf(self.level, freedom) for error, freedom in errors)
        low, high = (value * math.exp(-arm / value), value * math.exp(arm / value)) if value > 0 else (value - arm, value + arm)
        worst, best = (high, low) if self.ceiling else (low, high)
        self.bounded(float(worst), 1e-7)
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


def rate_errors(spans, amounts, ended, request):
    """Slices of the throughput windows, and what strays within them."""
    seconds, value = sum(spans), sum(map(sum, amounts)) / sum(spans)
    if ended < 20:
        return None
    series, edges = [], 0.0
    for length, bins in zip(spans, amounts):
        slices = next((many for many in (20, 16, 15, 12, 10, 8, 6, 5) if many * request <= length), 5)
        parts = numpy.array(bins).reshape(slices, 240 // slices)
        series.append(list(parts.sum(1) - value * length / slices))
        strays = numpy.cumsum(parts, 1) - parts - parts.sum(1, keepdims=True) * numpy.arange(parts.shape[1]) / parts.shape[1]
        edges += 2 * float(strays.var(1).mean())
    flat = [one for own in series for one in own]
    variance = batched(flat) * len(flat) / effective(series) + edges
    return [(math.sqrt(variance) / seconds, len(flat) - 1)] + between(series, seconds)


def throughput(rows, case, name, tags):
    """The rate and its standard errors."""
    kinds = {"request": ["requests"], "input": ["input"], "total": ["input", "output"], "item": ["items"], "rtfx": ["audio"]}
    what = kinds.get(name.split("_")[0], ["output"])
    scale = 1 / case.gpus if name.endswith("gpu") else 1.0
    if name.startswith("session"):
        return session_throughput(case, scale * (3600 if "hour" in name else 1))
    rounds = [own for own in case.rounds if own.sending]
    amounts, ended = [], 0
    for own in rounds:
        bins = [0.0] * 240
        for at, kind, amount, row in own.arrived:
            if all(bears(str(row[tag]), tag, wanted) for tag, wanted in tags):
                ended += kind == "ended"
                bins[own.bin(at)] += amount if kind in what else 0
        amounts.append(bins)
    spans = [own.sending for own in rounds]
    return rate(spans, amounts, None if rounds[0].whole else ended, case, scale)


def session_throughput(case, scale):
    """The rate of complete sessions and its standard errors."""
    rounds = [own for own in case.rounds if own.session_sending]
    amounts = []
    for own in rounds:
        bins = [0.0] * 240
        for at in own.session_ends:
            bins[own.session_bin(at)] += 1
        amounts.append(bins)
    ended = None if rounds[0].session_whole else sum(map(sum, amounts))
    return rate([own.session_sending for own in rounds], amounts, ended, case, scale)


def rate(spans, amounts, ended, case, scale):
    """Of whole rounds, whose `ended` is None, no long-run value is known."""
    took = sorted(span(row["sent_ns"], row["end_ns"]) / 1e3 for row in case.measured if row["outcome"] == "ok")
    errors = rate_errors(spans, amounts, ended, nearest_rank(took, 0.5) if took else 0.0) if ended is not None else None
    return sum(map(sum, amounts)) / sum(spans) * scale, errors and [(error * scale, freedom) for error, freedom in errors]


def mean_units(limit, rows):
    """The values of a mean as (amount, weight, round), without the plan; None for what is judged in another way."""
    ok = [row for row in rows if row["outcome"] == "ok"]
    if limit.stat == "mean" and limit.column == "itl_ms":
        found = [(sum(row["itl_ms"]), len(row["itl_ms"]), row) for row in ok if row["itl_ms"]]
    elif limit.stat == "mean":
        found = [(row[limit.column], 1, row) for row in ok if row[limit.column] is not None]
    elif limit.name == "output_tps_per_user":
        found = [(row["output_tokens"] / row["e2e_ms"] * 1e3, 1, row) for row in ok]
    elif limit.name == "cached_share":
        found = [(row["cached_tokens"] or 0, row["prompt_tokens"], row) for row in ok if row["prompt_tokens"] is not None]
    else:
        return None
    amounts, weights = (numpy.array([own[index] for own in found], dtype=float) for index in (0, 1))
    amounts = without_plan(amounts, weights, numpy.array([row["level"] for _, _, row in found]))
    return [(amount, weight, row["round"]) for amount, weight, (_, _, row) in zip(amounts.tolist(), weights.tolist(), found)]


def severity(row, limits):
    """The greatest share that a request takes of its limits."""
    if row["outcome"] != "ok":
        return math.inf
    worst = 0.0
    for column, op, limit in limits:
        own = row[column] if column == "itl_ms" else [row[column]] if row[column] is not None else []
        if not own:
            worst = max(worst, 0.0 if meets(row, [(column, op, limit)]) is None else math.inf)
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
        scheduled = [row for row in scheduled if row["outcome"] != "abandoned"]
        unmeasured = sum(good(row) is None for row in scheduled)
        scheduled = [row for row in scheduled if good(row) is not None]
        flags = [(bool(good(row)), row["round"], row["intended_ns"], row["level"]) for row in scheduled]
        floor = limit.goodput and not limit.ceiling
        # Errors have no margin: users do not bound how often a server fails.
        strict = (lambda margin: sum(bool(meets(row, stricter(limit.goodput, margin))) for row in rows)) if floor else None
        near = [severity(row, limit.goodput) for row in scheduled] if floor else None
        return limit.by_share(flags, near, strict, case, unmeasured), len(flags)
    if limit.reason or limit.name in ANSWERS:
        ok = [row for row in scheduled if row["outcome"] == "ok"]
        hit = lambda row: ended_with(limit.reason, row["finish_reason"]) if limit.reason else row[ANSWERS[limit.name]]
        flags = [(bool(hit(row)), row["round"], row["intended_ns"], row["level"]) for row in ok if hit(row) is not None]
        return limit.by_share(flags, None, None, case), len(flags)
    found = values(rows, limit.column) if limit.stat else []
    if limit.stat and limit.scheduled:
        found += [math.inf if limit.ceiling else -math.inf] * failed
    lost = any(map(math.isinf, found))
    if re.fullmatch("request_throughput|(input|output|total)_tps(_per_gpu)?|item_throughput|rtfx|session_throughput|sessions_per_hour(_per_gpu)?", limit.name):
        return limit.by_long_run(*throughput(rows, case, limit.name, limit.tags)), len(rows)
    units = None if lost else mean_units(limit, scheduled)
    if units is not None:
        return limit.by_long_run(sum(own[0] for own in units) / sum(own[1] for own in units), mean_errors(units)), len(units)
    if limit.stat and limit.stat[0] == "p":
        worst = [math.inf if limit.ceiling else -math.inf] if limit.scheduled else []
        own = lambda row: values([row], limit.column) if row["outcome"] == "ok" else worst
        lists = [(own(row), row["round"], row["intended_ns"], row["level"]) for row in scheduled]
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


def differing_start(found):
    """How many values of the start, by MSER-5, differ from the others by three standard errors; 0 for none."""
    means = numpy.array(found[: len(found) // 5 * 5]).reshape(-1, 5).mean(1)
    if len(means) < 10:
        return 0
    errors = [((means[cut:] ** 2).sum() - means[cut:].sum() ** 2 / (len(means) - cut)) / (len(means) - cut) ** 2 for cut in range(len(means) // 2 + 1)]
    cut = int(numpy.argmin(errors))
    early, late = means[:cut], means[cut:]
    if not cut:
        return 0
    error = late.std(ddof=1) * math.sqrt(inflation([late])[0] / cut)
    return cut * 5 if abs(early.mean() - late.mean()) > 3 * error else 0


def between_differing_ends(found):
    """From where to where values do not differ from their start and their end."""
    start, end = 0, len(found)
    while True:
        cut = differing_start(found[start:end])
        start += cut
        if cut:
            continue
        cut = differing_start(found[start:end][::-1])
        end -= cut
        if not cut:
            return start, end


def depends_on_ends(limit, rows, case, verdict):
    """Whether a verdict does not hold without the start and the end of each round, where those differ."""
    tail = None
    if limit.goodput:
        tail = limit.limit if limit.ceiling else 1 - limit.limit
    elif limit.stat and limit.stat[0] == "p":
        tail = 1 - float(limit.stat[1:]) / 100 if limit.ceiling else float(limit.stat[1:]) / 100
    if not (case.closed or case.plain_rate) or limit.is_point(tail is None and limit.stat == "mean" or tail is not None and 0 < tail < 1):
        return False

    def value(row):
        if limit.goodput:
            return None if row["outcome"] == "abandoned" or meets(row, limit.goodput) is None else float(meets(row, limit.goodput))
        own = values([row], limit.column)
        return sum(own) / len(own) if own else None

    rest, outer, inner = [], [], []
    for number in sorted({row["round"] for row in rows}):
        own = sorted((row for row in rows if row["round"] == number), key=lambda row: row["intended_ns"])
        with_value = [row for row in own if value(row) is not None]
        start, end = between_differing_ends([value(row) for row in with_value])
        after = with_value[start - 1]["intended_ns"] if start else -math.inf
        before = with_value[end]["intended_ns"] if end < len(with_value) else math.inf
        keeps = lambda row: after < row["intended_ns"] < before
        rest += [row for row in own if keeps(row)]
        outer += [value(row) for row in with_value if not keeps(row)]
        inner += [value(row) for row in with_value if keeps(row)]
    if not outer or not inner or ((sum(outer) / len(outer) > sum(inner) / len(inner)) == limit.ceiling) != (verdict == "fail"):
        return False
    bound, limit.is_silent, limit.seen = limit.bound, True, None
    again, n = judged(limit, rest, case)
    limit.bound, limit.is_silent = bound, False
    is_small = tail is not None and limit.column != "itl_ms" and n < math.ceil(math.log(1 - limit.level) / math.log(1 - tail))
    if verdict == "pass" and again == "inconclusive" and not is_small and limit.holds(limit.seen):
        # It stands if as many requests like these would pass; this script does not know how many would.
        return limit.slo["verdict"] == "inconclusive"
    return again != verdict and not (verdict == "pass" and is_small and limit.holds(limit.seen))


# Figures that requests.parquet does not have, costs, whose limits are those of throughputs, and limits relative to another value.
ELSEWHERE = re.compile(r"\s*(cost_per_\w+|goodput_rate|billed_\w+|startup|energy_per_token|mfu|mbu|replica_imbalance|(server|gpu|host)\.)|.*\*\s*(baseline|reference|\w+\{)|.*[<>=]\s*\w+\{")


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
        if verdict in ("pass", "fail") and depends_on_ends(limit, rows, case, verdict):
            verdict, limit.bound = "inconclusive", None
        grows = limit.level is not None and limit.limits_waits and case.queue.grows(limit.level)
        if verdict != "fail" and (grows or limit.is_ratio and limit.forgets_late(case)):
            verdict, limit.bound = "inconclusive", None
        known, tolerance = limit.bound or (None, 0)
        limit.same("bound", known, tolerance)
        limit.same("n", n)
    same(limit.where + " verdict", slo["verdict"], slo["verdict"] if slo["verdict"] == "invalid" else verdict)
    return True
