"""Which level of a planned load that changes a request belongs to: docs/explanation/verdicts.md."""

import bisect
import math
import re

import numpy

from again.figures import span_of

LEVELS, INSTANTS, LEAST, MOST = 4, 256, 20, 8


def number(text):
    """A rate or a number of users of a plan."""
    found = re.fullmatch(r"([\d.]+)(?:/(s|m|h))?", str(text).strip())
    return float(found[1]) / {None: 1, "s": 1, "m": 60, "h": 3600}[found[2]]


def nanos(text):
    return round(span_of(text) * 1e6)


def profile(stage):
    """The rate of a stage after so many seconds."""
    level = stage.get("rate", stage.get("concurrency"))
    length = nanos(stage["for"]) / 1e9
    if isinstance(level, dict):
        sine = level["sine"]
        mean, amplitude, period = number(sine["mean"]), number(sine["amplitude"]), nanos(sine["period"]) / 1e9
        return lambda within: mean + amplitude * math.sin(math.tau * within / period)
    if "->" not in str(level) and "rate" in stage:
        return lambda _, level=number(level): level
    begin, *end = map(number, str(level).split("->"))
    end = end[0] if end else begin
    return lambda within: begin + (end - begin) * within / length


class Stages:
    """The stages of one class: begin, length and rate of each."""

    def __init__(self, stages, rate=None):
        self.begins, self.spans, self.rates = [], [], []
        at = 0
        for stage in stages or []:
            self.begins.append(at)
            self.spans.append(nanos(stage["for"]))
            self.rates.append(profile(stage))
            at += self.spans[-1]
        self.end = at or None
        if rate is not None:
            self.begins, self.spans, self.rates = [0], [math.inf], [lambda _: rate]

    def rate(self, at):
        place = bisect.bisect_right(self.begins, at) - 1
        if place < 0 or at - self.begins[place] >= self.spans[place]:
            return 0.0
        return self.rates[place]((at - self.begins[place]) / 1e9)


class PlannedLoad:
    """The levels of the load of a case; `stage`: the number of the stage that is a case of its own."""

    def __init__(self, load, mix, stage):
        self.names = [entry["name"] for entry in mix]
        arrivals = [entry for entry in mix if "rate" in entry or "stages" in entry]
        if arrivals:
            self.classes = [Stages(entry.get("stages"), number(entry["rate"]) if "rate" in entry else None) for entry in arrivals]
        else:
            stages = load.get("stages", [])
            self.classes = [Stages([stages[stage - 1]] if stage else stages)]
        ends = [own.end for own in self.classes if own.end]
        rates = [self.rate(max(ends) * place // INSTANTS) for place in range(INSTANTS)] if ends else [0.0]
        self.least, self.most = min(rates), max(rates)

    def rate(self, at):
        return sum(own.rate(at) for own in self.classes)

    def level(self, row, first):
        if self.least == self.most:
            return 0
        name = (row["group"] or "").split("/")[0]
        place = self.names.index(name) if name in self.names else 0
        alone = len(self.classes) == 1 and len(self.classes[0].begins) == 1
        at = row["intended_ns"] - first if alone else row["intended_ns"]
        share = (self.rate(at) - self.least) / (self.most - self.least) * LEVELS
        return place * LEVELS + int(min(max(share, 0), LEVELS - 1))


def without_plan(amounts, weights, levels):
    """The amounts with the ratio of each level moved to that of all."""
    known = {}
    for one in set(levels.tolist()):
        own = levels == one
        if own.sum() >= LEAST and weights[own].sum() > 0:
            known[one] = amounts[own].sum() / weights[own].sum()
    if len(set(levels.tolist())) < 2 or not 2 <= len(known) <= MOST:
        return amounts
    moved = numpy.isin(levels, list(known))
    common = amounts[moved].sum() / weights[moved].sum()
    ratios = numpy.array([known.get(one, 0.0) for one in levels.tolist()])
    wider = math.sqrt(9 / (10 - len(known)))
    return numpy.where(moved, common * weights + wider * (amounts - ratios * weights), amounts)
