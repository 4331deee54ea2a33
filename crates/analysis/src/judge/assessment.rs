//! What a test makes of a check: the fields of a verdict.

use llmscen_core::check::Ruling;
use llmscen_core::stats::quantile_bound::Decision;

/// What a test makes of a check; the fields of [`Verdict`].
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Assessment {
    pub ruling: Ruling,
    pub observed: Option<f64>,
    pub bound: Option<f64>,
    pub n: u64,
    pub effective_n: Option<f64>,
    pub need: Option<u64>,
    pub note: Option<String>,
}

impl Assessment {
    /// The comparison of a point estimate.
    pub(super) fn point(holds: bool, observed: f64, n: u64) -> Assessment {
        let ruling = if holds { Ruling::Pass } else { Ruling::Fail };
        Assessment {
            ruling,
            observed: Some(observed),
            bound: None,
            n,
            effective_n: None,
            need: None,
            note: None,
        }
    }

    /// Without a pass, a bound that would give one, and a number of requests that would.
    pub(super) fn without_pass(self, note: impl Into<String>) -> Assessment {
        if self.ruling == Ruling::Fail || self.observed.is_none() {
            return self;
        }
        self.undecided(note)
    }

    /// Without a ruling, and without a number of requests that would give one.
    pub(super) fn undecided(self, note: impl Into<String>) -> Assessment {
        Assessment {
            ruling: Ruling::Inconclusive,
            bound: None,
            need: None,
            note: Some(note.into()),
            ..self
        }
    }

    /// Replaces the note, where one is given.
    pub(super) fn with_note(self, note: Option<impl Into<String>>) -> Assessment {
        Assessment {
            note: note.map(Into::into).or(self.note),
            ..self
        }
    }
}

pub(super) fn ruling(decision: Decision) -> Ruling {
    match decision {
        Decision::Holds => Ruling::Pass,
        Decision::Broken => Ruling::Fail,
        Decision::Open => Ruling::Inconclusive,
    }
}
