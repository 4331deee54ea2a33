//! Floor 1. A sample and a check give a verdict.
//!
//! Three kinds of evidence, each with its own test (see `docs/metrics.md`): quantiles and shares by the exact binomial rule at
//! their effective sample size, means and throughputs by batches with Student's t, all else as a point.

mod chance;
pub mod compare;
mod counted;
mod design_effect;
mod evidence;
mod figure;
mod overall;
mod point;
mod ratio;
mod relative;
mod restarted;
mod rule;
mod watch;

pub use chance::{chance, hopeless, needed, usual_effect};
pub use evidence::goodput_flags;
pub use figure::{figure, noise};
pub use overall::{exit_code, found, overall};
pub use relative::never;
pub use restarted::by_rounds;
pub use rule::{Conditions, LoadKind, REJECTED, given_up, not_measured, rule};
pub use watch::Watch;

#[cfg(test)]
mod fixture;
