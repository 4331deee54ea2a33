#!/usr/bin/env python3
"""Computes the statistics of fifty random sets once more, with numpy and scipy, and compares to the last printed digit.

    pip install numpy scipy
    LLMSCEN_SETS=/tmp/sets.json cargo test --test it writes_random_sets -- --ignored
    python3 tests/check_sets.py /tmp/sets.json

A line for each figure that differs, and exit code 1. `check_numbers.py` does the same for the figures of a whole run.
"""

import json
import math
import sys
from pathlib import Path

import numpy
from again.figures import SHARES
from again.tally import compared, faults, same
from scipy import stats

def order_statistics(ordered, p, level):
    """The interval of a quantile by the binomial distribution; None where the values are too few."""
    n = len(ordered)

    def allowed(tail):
        most = int(stats.binom.ppf(1 - level, n, tail)) + 2
        good = [t for t in range(max(most - 5, 0), most) if stats.binom.cdf(t, n, tail) <= 1 - level]
        return max(good, default=None)

    over, under = allowed(1 - p), allowed(p)
    if over is None or under is None:
        return None
    value = numpy.quantile(ordered, p, method="inverted_cdf")
    return [value, ordered[under], ordered[n - over - 1]]


def ratio(a, b, level):
    """The method of variance estimates recovery on logarithms, and the two-sided probability of a ratio of 1."""
    if a is None or b is None or min(a + b) <= 0:
        return None, None
    a, b = numpy.log(a), numpy.log(b)
    centre = a[0] - b[0]
    down, up = math.hypot(a[0] - a[1], b[2] - b[0]), math.hypot(a[2] - a[0], b[0] - b[1])
    arm = up if centre <= 0 else down
    p = 1.0 if centre == 0 else 2 * stats.norm.sf(abs(centre) / arm * stats.norm.ppf(level)) if arm else 0.0
    return [math.exp(centre), math.exp(centre - down), math.exp(centre + up)], p


def around(value, arm):
    return [value * math.exp(-arm / value), value * math.exp(arm / value)] if value > 0 else [value - arm, value + arm]


def batched(sums):
    return float((numpy.array(sums) ** 2).sum() * len(sums) / (len(sums) - 1))


def long_run(own):
    """A mean by batches, or by Geyer's sequence where that is farther off."""
    amounts = numpy.array(own["values"])
    weights, n = numpy.abs(own["other"])[: len(amounts)], len(amounts)
    if n < 20:
        return None
    value = float(amounts.sum() / weights.sum())
    off, count = amounts - value * weights, 10 if n < 200 else 20
    edges = [at * n // count for at in range(count + 1)]
    sums = [off[a:b].sum() for a, b in zip(edges, edges[1:])]
    variance = max(batched(sums), batched(off) * n / effective([off]))
    return around(value, math.sqrt(variance) / weights.sum() * stats.t.ppf(own["level"], count - 1))


def rate(own):
    """Ten seconds in 240 parts and, by requests of 0.7 s, twelve slices."""
    bins = numpy.resize(numpy.abs(own["values"]), 240)
    value, parts = bins.sum() / 10, bins.reshape(12, 20)
    off = parts.sum(1) - value * 10 / 12
    strays = numpy.cumsum(parts, 1) - parts - parts.sum(1, keepdims=True) * numpy.arange(20) / 20
    variance = batched(off) * 12 / effective([off]) + 2 * strays.var(1).mean()
    return around(float(value), math.sqrt(variance) / 10 * stats.t.ppf(own["level"], 11))


def kendall(series):
    """Score, two-sided probability and slope of Mann and Kendall, each series compared with itself."""
    series = [numpy.array(own) for own in series]
    pairs = [(own[None, :] - own[:, None], numpy.subtract.outer(range(len(own)), range(len(own)))) for own in series]
    differences = numpy.concatenate([off[gap.T > 0] for off, gap in pairs])
    slopes = numpy.concatenate([off[gap.T > 0] / gap.T[gap.T > 0] for off, gap in pairs])
    score = int((differences > 0).sum() - (differences < 0).sum())
    exact = len(differences) <= 500 and not (differences == 0).any()
    if exact and len(series) == 1:
        p = stats.kendalltau(range(len(series[0])), series[0], method="exact").pvalue
    elif exact:
        chances = numpy.ones(1)
        for k in (k for own in series for k in range(2, len(own) + 1)):
            chances = numpy.convolve(chances, numpy.ones(k) / k)
        scores = len(differences) - 2 * numpy.arange(len(chances))
        p = float(chances[abs(scores) >= abs(score)].sum())
    else:
        term = lambda n: n * (n - 1) * (2 * n + 5)
        ties = lambda own: sum(term(int(count)) for count in numpy.unique(own, return_counts=True)[1])
        variance = sum(term(len(own)) - ties(own) for own in series) / 18
        p = min(2 * stats.norm.sf(max(abs(score) - 1, 0) / math.sqrt(variance)), 1.0)
    return [score, float(p), float(numpy.median(slopes))]


def effective(series):
    """Geyer's initial monotone sequence from autocovariances by numpy's correlate."""
    series = [numpy.array(own) for own in series]
    n = sum(map(len, series))
    off = [own - own.mean() for own in series]
    variance = sum((own**2).sum() for own in off) / (n - len(off))
    longest = max(map(len, off))
    covariance = numpy.zeros(longest + 1)
    for own in off:
        covariance[: len(own)] += numpy.correlate(own, own, "full")[len(own) - 1 :] / n
    total, before = 0.0, math.inf
    for lag in range(0, longest // 2, 2):
        pair = covariance[lag] + covariance[lag + 1]
        if pair <= 0:
            break
        before = min(pair, before)
        total += before
    long_run = 2 * total - covariance[0]
    return float(min(max(n * variance / long_run, 1), n)) if variance > 0 and long_run > 0 else n


def layout(groups):
    """The components from scipy's one-way F test."""
    sizes = numpy.array([len(own) for own in groups])
    n, k = sizes.sum(), len(groups)
    if k < 2 or n <= k:
        return None
    within = sum(((numpy.array(own) - numpy.mean(own)) ** 2).sum() for own in groups) / (n - k)
    among = stats.f_oneway(*groups).statistic * within
    size = (n - (sizes**2).sum() / n) / (k - 1)
    return [math.sqrt(max((among - within) / size, 0)), math.sqrt(within)]


def chunks(values):
    size = math.ceil(len(values) / 3)
    return [values[at : at + size] for at in range(0, len(values), size)]


def check(number, own):
    where, values, n = f"set {number}", own["values"], len(own["values"])
    ordered, second, level = sorted(values), sorted(own["other"]), own["level"]
    known = {
        "quantiles": numpy.quantile(ordered, SHARES, method="inverted_cdf").tolist(),
        "mean": float(numpy.mean(values)),
        "sd": float(numpy.std(values, ddof=1)),
        "interval": order_statistics(ordered, own["p"], level),
        "needed": next(m for m in range(1, 10**6) if stats.binom.cdf(number % 4, m, 1 - own["p"]) <= 1 - level),
        "trend": kendall([values[:600]]),
        "trend_apart": kendall(chunks(values[:600])),
        "worth": effective([values]),
        "worth_apart": effective(chunks(values)),
        "components": layout(chunks(values)),
        "long_run": long_run(own),
        "rate": rate(own),
        "ks": float(stats.kstest(values, "expon", args=(0, 100)).statistic),
    }
    known["ratio"], known["ratio_p"] = ratio(*(order_statistics(own, 0.5, level) for own in (ordered, second)), level)
    hits = own["hits"]
    known["share"] = [
        float(stats.beta.ppf(1 - level, hits, n - hits + 1)) if hits else 0.0,
        float(stats.beta.ppf(level, hits + 1, n - hits)) if hits < n else 1.0,
    ]
    tail = 1 - own["p"]
    holds, broken = stats.binom.cdf(hits, n, tail) <= 1 - level, stats.binom.sf(hits - 1, n, tail) <= 1 - level
    known["decision"] = "Holds" if holds else "Broken" if broken else "Open"
    for name, figure in known.items():
        same(f"{where} {name}", own[name], figure, 1e-9 if name != "share" else 1e-7)


def main(file):
    sets = json.loads(file.read_text())
    for number, own in enumerate(sets):
        check(number, own)
    print("\n".join(faults[:50]) or f"{len(sets)} sets, {compared[0]} figures agree")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
