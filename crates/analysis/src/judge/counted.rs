//! The rule on counts: at most a share of the samples may break a limit, and samples are correlated.

use crate::judge::assessment::{Opinion, ruling};
use llmscen_core::check::{Op, Ruling};
use llmscen_core::stats::design::Dependence;
use llmscen_core::stats::quantile_bound::{Decision, decide, needed_to_decide};

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
