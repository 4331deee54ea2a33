//! The test on counts: at most a share of the correlated samples may break a limit.

use crate::judge::assessment::{Assessment, ruling};
use llmscen_core::check::{Check, Op, Ruling};
use llmscen_core::stats::design::Dependence;
use llmscen_core::stats::quantile::{order_statistic, select_quantile};
use llmscen_core::stats::quantile_bound::{Decision, allowed, decide, needed_to_decide};
use llmscen_core::stats::share::{lower, upper};

/// Effective samples below which the effective sample size is too uncertain for a verdict.
const MIN_EFFECTIVE: f64 = 20.0;
/// Divisor of too few effective samples for a FAIL, which stays possible so that an overload is reported.
const FAIL_CAUTION: f64 = 2.0;
/// The factor by which a limit must be kept so that samples count as independent, where the queue that correlates
/// them is bounded or has a short memory; and the same with fewer than [`MIN_EFFECTIVE`] effective samples.
const MARGIN: f64 = 1.5;
const MARGIN_OF_FEW: f64 = 3.0;

/// The note where correlation is longer than the run can show.
pub(super) const TOO_SHORT: &str =
    "the run is too short for the server's memory: measure for longer";

/// Samples with their correlation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Samples {
    /// Number of samples.
    pub n: u64,
    /// Design effect: samples that carry the information of one independent sample, at least 1.
    pub effect: f64,
    /// The queue that correlates them is bounded by the users, or has a short memory.
    pub queue_is_bounded: bool,
    /// The correlation time of an open loop is longer than the run can show.
    pub too_short: bool,
}

/// A claim about the share of samples that break a limit.
#[derive(Clone, Copy, Debug)]
pub(super) struct Claim {
    /// Share that may break the limit, 0 < tail < 1.
    pub tail: f64,
    /// Confidence level.
    pub level: f64,
}

impl Samples {
    /// Samples of an unknown load.
    pub(super) fn new(n: u64, dependence: Dependence, level: f64) -> Samples {
        Samples {
            n,
            effect: dependence.effect(level),
            queue_is_bounded: false,
            too_short: false,
        }
    }

    /// The effective sample size.
    pub(super) fn effective(&self) -> f64 {
        self.n as f64 / self.effect
    }

    /// Whether they are too correlated for a pass. Independent samples may be few.
    pub(super) fn too_few(&self) -> bool {
        self.too_short || self.effective() < MIN_EFFECTIVE && self.effect > 2.0
    }

    /// The factor by which a limit must be kept so that samples count as independent; None where none is enough.
    pub(super) fn margin(&self) -> Option<f64> {
        self.queue_is_bounded
            .then_some(if self.effective() >= MIN_EFFECTIVE {
                MARGIN
            } else {
                MARGIN_OF_FEW
            })
    }

    /// Judges by the samples that break the limit, and by those that break the stricter limit with the margin.
    pub(super) fn judge(&self, breaking: u64, strict: Option<u64>, claim: Claim) -> Assessment {
        let passes = |breaking: u64| {
            decide(self.n as f64, breaking as f64, claim.tail, claim.level) == Decision::Holds
        };
        let ruling = if strict.is_some_and(passes) {
            Ruling::Pass
        } else {
            self.decide(breaking, claim)
        };
        let is_open = ruling == Ruling::Inconclusive;
        // More samples do not help where the stricter limit is broken.
        let kept = strict.filter(|breaking| (*breaking as f64) < claim.tail * self.n as f64);
        let needs = [
            self.required(breaking, self.effect, claim),
            kept.and_then(|breaking| self.required(breaking, 1.0, claim)),
        ];
        let need = needs.into_iter().flatten().min().filter(|_| is_open);
        let note = is_open.then(|| self.note()).flatten();
        Assessment {
            ruling,
            observed: None,
            bound: None,
            n: self.n,
            effective_n: Some(self.effective()),
            need,
            note,
        }
    }

    fn decide(&self, breaking: u64, claim: Claim) -> Ruling {
        let effect = self.effect * if self.too_few() { FAIL_CAUTION } else { 1.0 };
        match decide(
            self.n as f64 / effect,
            breaking as f64 / effect,
            claim.tail,
            claim.level,
        ) {
            Decision::Holds if self.too_few() => Ruling::Inconclusive,
            decision => ruling(decision),
        }
    }

    /// Total samples that would decide if further ones are like these; None where no number would.
    fn required(&self, breaking: u64, effect: f64, claim: Claim) -> Option<u64> {
        if self.too_short {
            return None;
        }
        let (n, share) = (
            self.n as f64 / effect,
            breaking as f64 / self.n.max(1) as f64,
        );
        let enough = needed_to_decide(n, share, claim.tail, claim.level)? as f64;
        let least = if self.too_few() {
            enough.max(MIN_EFFECTIVE)
        } else {
            enough
        };
        Some(((least * effect).ceil() as u64).max(self.n + 1))
    }

    /// Why there is no verdict, where the correlation is the reason.
    fn note(&self) -> Option<String> {
        let (n, effective) = (self.n, self.effective());
        match () {
            () if self.too_short => Some(TOO_SHORT.into()),
            () if self.too_few() => Some(format!(
                "{n} correlated samples carry the information of about {effective:.0}; a verdict \
                needs {MIN_EFFECTIVE:.0}"
            )),
            () => None,
        }
    }
}

/// The limit tightened by a factor.
pub(super) fn stricter(op: Op, limit: f64, margin: f64) -> f64 {
    if op.is_ceiling() {
        limit / margin
    } else {
        limit * margin
    }
}

/// Of two bounds, the one that meets more limits.
pub(super) fn nearer_bound(op: Op, a: Option<f64>, b: Option<f64>) -> Option<f64> {
    let best = |a: f64, b: f64| if op.is_ceiling() { a.min(b) } else { a.max(b) };
    a.into_iter().chain(b).reduce(best)
}

// Quantiles, by order statistics.

/// Judges the quantile `p`, 0 < p < 1, of a non-empty set of values at confidence `level`.
pub(super) fn judge_quantile(
    check: &Check,
    mut values: Vec<f64>,
    p: f64,
    (samples, level): (Samples, f64),
) -> Assessment {
    let op = check.op;
    let ceiling = op.is_ceiling();
    let claim = Claim {
        tail: if ceiling { 1.0 - p } else { p },
        level,
    };
    let breaking = |limit: f64| {
        values
            .iter()
            .filter(|&&value| !op.holds(value, limit))
            .count() as u64
    };
    let strict = samples
        .margin()
        .map(|margin| breaking(stricter(op, check.limit, margin)));
    let judged = samples.judge(breaking(check.limit), strict, claim);
    let observed = select_quantile(&mut values, p);
    let mut bound_at = |effect: f64| {
        let spare = allowed(samples.n, effect, claim.tail, level)?;
        order_statistic(
            &mut values,
            if ceiling {
                samples.n - spare
            } else {
                spare + 1
            } as usize,
        )
    };
    let by_effect = if samples.too_few() {
        None
    } else {
        bound_at(samples.effect)
    };
    let by_margin = samples.margin().and_then(|margin| {
        Some(if ceiling {
            bound_at(1.0)? * margin
        } else {
            bound_at(1.0)? / margin
        })
    });
    Assessment {
        observed,
        bound: nearer_bound(op, by_effect, by_margin),
        ..judged
    }
}

// Shares of requests, by the exact binomial test. It is the test of quantiles, so that `goodput(ttft < 500ms) >= 99%`
// and `ttft.p99 < 500ms` over all scheduled requests always agree.

/// Judges `hits` with a limit between 0 and 1 at confidence `level`. `strict`: hits with the stricter limits on
/// requests.
pub(super) fn judge_share(
    check: &Check,
    hits: u64,
    strict: Option<u64>,
    (samples, level): (Samples, f64),
) -> Assessment {
    let n = samples.n;
    let ceiling = check.op.is_ceiling();
    let breaking = |hits: u64| if ceiling { hits } else { n - hits };
    let claim = Claim {
        tail: if ceiling {
            check.limit
        } else {
            1.0 - check.limit
        },
        level,
    };
    let judged = samples.judge(breaking(hits), strict.map(breaking), claim);
    let bound_at = |hits: u64, effect: f64| {
        let (hits, n) = (hits as f64 / effect, n as f64 / effect);
        if ceiling {
            upper(hits, n, level)
        } else {
            lower(hits, n, level)
        }
    };
    let by_effect = (!samples.too_few()).then(|| bound_at(hits, samples.effect));
    let bound = nearer_bound(
        check.op,
        by_effect,
        strict.map(|strict| bound_at(strict, 1.0)),
    );
    Assessment {
        observed: Some(hits as f64 / n as f64),
        bound,
        ..judged
    }
}

#[cfg(test)]
mod tests;
