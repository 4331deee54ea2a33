//! The rule on counts: at most a share of the samples may break a limit, and samples are correlated.

use crate::judge::rule::{Opinion, ruling};
use llmscen_core::check::{Check, Op, Ruling};
use llmscen_core::stats::design::Dependence;
use llmscen_core::stats::quantile::{order_statistic, select_quantile};
use llmscen_core::stats::quantile_bound::{Decision, allowed, decide, needed_to_decide};
use llmscen_core::stats::share::{lower, upper};

/// Effective samples below which an effective sample size is too uncertain for a verdict.
const LEAST: f64 = 20.0;
/// By how much fewer effective samples a failure is judged where there are too few of them: an overload must not go unseen.
const CAUTION: f64 = 2.0;
/// By how much a limit must be kept where samples are taken as independent, since users bound the queue that correlates them, or it forgets
/// quickly; and where the effective samples are fewer than [`LEAST`].
const MARGIN: (f64, f64) = (1.5, 3.0);

/// Samples, and how they depend on one another.
#[derive(Clone, Copy, Debug)]
pub(super) struct Samples {
    /// Samples.
    pub n: u64,
    /// Samples that carry the information of an independent one, at least 1.
    pub effect: f64,
    /// Users bound the queue that correlates them, or it forgets quickly.
    pub bounded: bool,
    /// An open loop whose memory is longer than the run shows.
    pub too_short: bool,
}

/// A claim about the share that breaks a limit.
#[derive(Clone, Copy, Debug)]
pub(super) struct Claim {
    /// Share that may break it, 0 < tail < 1.
    pub tail: f64,
    /// Confidence.
    pub level: f64,
}

impl Samples {
    /// Samples of a load of which nothing is known.
    pub(super) fn new(n: u64, dependence: Dependence, level: f64) -> Samples {
        Samples { n, effect: dependence.effect(level), bounded: false, too_short: false }
    }

    /// The effective sample size.
    pub(super) fn effective(&self) -> f64 {
        self.n as f64 / self.effect
    }

    /// Whether they are too dependent for a pass. Independent samples may be few.
    pub(super) fn too_few(&self) -> bool {
        self.too_short || self.effective() < LEAST && self.effect > 2.0
    }

    /// By how much a limit must be kept so that it is judged as by independent samples; None where no margin is enough.
    pub(super) fn margin(&self) -> Option<f64> {
        self.bounded.then_some(if self.effective() >= LEAST { MARGIN.0 } else { MARGIN.1 })
    }

    /// Judges by how many samples break a limit, and by how many break the one that the margin makes of it.
    pub(super) fn judge(&self, breaking: u64, strict: Option<u64>, claim: Claim) -> Opinion {
        let passes = |breaking: u64| decide(self.n as f64, breaking as f64, claim.tail, claim.level) == Decision::Holds;
        let ruling = if strict.is_some_and(passes) { Ruling::Pass } else { self.decide(breaking, claim) };
        let open = ruling == Ruling::Inconclusive;
        // A limit that is not kept by the margin decides nothing, however many samples show it.
        let kept = strict.filter(|over| (*over as f64) < claim.tail * self.n as f64);
        let needs = [self.needed(breaking, self.effect, claim), kept.and_then(|over| self.needed(over, 1.0, claim))];
        let need = needs.into_iter().flatten().min().filter(|_| open);
        let note = open.then(|| self.note()).flatten();
        Opinion { ruling, observed: None, bound: None, n: self.n, effective_n: Some(self.effective()), need, note }
    }

    fn decide(&self, breaking: u64, claim: Claim) -> Ruling {
        let effect = self.effect * if self.too_few() { CAUTION } else { 1.0 };
        match decide(self.n as f64 / effect, breaking as f64 / effect, claim.tail, claim.level) {
            Decision::Holds if self.too_few() => Ruling::Inconclusive,
            decision => ruling(decision),
        }
    }

    /// Samples in all that would decide if the rest of them is as these are; None where no number would do.
    fn needed(&self, breaking: u64, effect: f64, claim: Claim) -> Option<u64> {
        if self.too_short {
            return None;
        }
        let (n, share) = (self.n as f64 / effect, breaking as f64 / self.n.max(1) as f64);
        let enough = needed_to_decide(n, share, claim.tail, claim.level)? as f64;
        let least = if self.too_few() { enough.max(LEAST) } else { enough };
        Some(((least * effect).ceil() as u64).max(self.n + 1))
    }

    /// Why there is no verdict, where that is the dependence alone.
    fn note(&self) -> Option<String> {
        let (n, effective) = (self.n, self.effective());
        match () {
            () if self.too_short => Some("the run is too short for the server's memory: measure for longer".into()),
            () if self.too_few() => {
                Some(format!("{n} correlated samples carry the information of about {effective:.0}; a verdict needs {LEAST:.0}"))
            }
            () => None,
        }
    }
}

/// The limit by a margin.
pub(super) fn stricter(op: Op, limit: f64, margin: f64) -> f64 {
    if op.is_ceiling() { limit / margin } else { limit * margin }
}

/// Of two bounds the one that passes more limits.
pub(super) fn nearer(op: Op, a: Option<f64>, b: Option<f64>) -> Option<f64> {
    let best = |a: f64, b: f64| if op.is_ceiling() { a.min(b) } else { a.max(b) };
    a.into_iter().chain(b).reduce(best)
}

// Quantiles, by order statistics.

/// Judges the quantile `p`, 0 < p < 1, of at least one value, at confidence `level`.
pub(super) fn judge_quantile(check: &Check, mut values: Vec<f64>, p: f64, (samples, level): (Samples, f64)) -> Opinion {
    let (op, n, ceiling) = (check.op, samples.n, check.op.is_ceiling());
    let claim = Claim { tail: if ceiling { 1.0 - p } else { p }, level };
    let breaking = |limit: f64| values.iter().filter(|&&value| !op.holds(value, limit)).count() as u64;
    let strict = samples.margin().map(|margin| breaking(stricter(op, check.limit, margin)));
    let judged = samples.judge(breaking(check.limit), strict, claim);
    let observed = select_quantile(&mut values, p);
    let mut end = |effect: f64| {
        let spare = allowed(n, effect, claim.tail, level)?;
        order_statistic(&mut values, if ceiling { n - spare } else { spare + 1 } as usize)
    };
    let own = if samples.too_few() { None } else { end(samples.effect) };
    let by_margin = samples.margin().and_then(|margin| Some(if ceiling { end(1.0)? * margin } else { end(1.0)? / margin }));
    Opinion { observed, bound: nearer(op, own, by_margin), ..judged }
}

// Shares of requests, by the exact binomial test: the same rule as for quantiles, so that `goodput(ttft < 500ms) >= 99%` and
// `ttft.p99 < 500ms` over all scheduled requests always agree.

/// Judges `hits` against a limit between 0 and 1, at confidence `level`. `strict`: hits by stricter limits on the requests.
pub(super) fn judge_share(check: &Check, hits: u64, strict: Option<u64>, (samples, level): (Samples, f64)) -> Opinion {
    let (n, ceiling) = (samples.n, check.op.is_ceiling());
    let breaking = |hits: u64| if ceiling { hits } else { n - hits };
    let claim = Claim { tail: if ceiling { check.limit } else { 1.0 - check.limit }, level };
    let judged = samples.judge(breaking(hits), strict.map(breaking), claim);
    let end = |hits: u64, effect: f64| {
        let (hits, n) = (hits as f64 / effect, n as f64 / effect);
        if ceiling { upper(hits, n, level) } else { lower(hits, n, level) }
    };
    let own = (!samples.too_few()).then(|| end(hits, samples.effect));
    let bound = nearer(check.op, own, strict.map(|strict| end(strict, 1.0)));
    Opinion { observed: Some(hits as f64 / n as f64), bound, ..judged }
}

#[cfg(test)]
mod tests;
