//! Verdicts: a check applied to a sample.
//!
//! There are three kinds of tests (see `docs/explanation/verdicts.md`): quantiles and shares by the exact binomial
//! rule at their effective sample size, means and throughputs by batch means with Student's t, and everything else as
//! a point estimate.

mod assessment;
mod between_cases;
mod chance;
pub mod compare;
mod cost;
mod counted;
mod design_effect;
mod ends;
mod evidence;
mod figure;
mod heavy_tail;
mod overall;
mod overload;
mod paired;
mod ratio;
mod relative;
mod requirement;
mod restarted;
mod rule;
mod watch;

pub use between_cases::{CaseSamples, RoundDesign, value_of_other_case};
pub use chance::{is_futile, pass_probability};
pub use evidence::goodput_flags;
pub use figure::{baseline_noise, figure};
pub use overall::{exit_code, run_verdict, search_verdict};
pub use paired::answers;
pub use requirement::{never_passes, required_samples, usual_design_effect};
pub use restarted::confirm_by_rounds;
pub use rule::{Conditions, LoadKind, REJECTED, aborted_verdicts, rule, unmeasured_verdicts};
pub use watch::Watch;

#[cfg(test)]
pub(crate) mod fixture;
