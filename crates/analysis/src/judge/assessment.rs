//! A ruling with what it rests on: a verdict before its check and the self-audit are put to it.

use llmscen_core::check::Ruling;
use llmscen_core::stats::quantile_bound::Decision;

/// What one kind of evidence says.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Opinion {
    pub ruling: Ruling,
    pub observed: Option<f64>,
    pub bound: Option<f64>,
    pub n: u64,
    pub effective_n: Option<f64>,
    pub need: Option<u64>,
    pub note: Option<String>,
}

impl Opinion {
    /// Of a point estimate alone.
    pub(super) fn point(holds: bool, observed: f64, n: u64) -> Opinion {
        let ruling = if holds { Ruling::Pass } else { Ruling::Fail };
        Opinion { ruling, observed: Some(observed), bound: None, n, effective_n: None, need: None, note: None }
    }

    /// The same with a note, where there is one.
    pub(super) fn noted(self, note: Option<impl Into<String>>) -> Opinion {
        Opinion { note: note.map(Into::into).or(self.note), ..self }
    }
}

/// A statistical decision as a ruling.
pub(super) fn ruling(decision: Decision) -> Ruling {
    match decision {
        Decision::Holds => Ruling::Pass,
        Decision::Broken => Ruling::Fail,
        Decision::Open => Ruling::Inconclusive,
    }
}
