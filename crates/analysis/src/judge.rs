//! Floor 1. A sample and a check give a verdict.
//!
//! Three kinds of evidence, each with its own test (see `docs/metrics.md`): quantiles and shares by the exact binomial rule at
//! their effective sample size, means and throughputs by batches with Student's t, all else as a point.

mod aborted;
mod assessment;
mod bounded;
mod chance;
pub mod compare;
mod conditions;
mod counted;
mod design_effect;
mod evidence;
mod figure;
mod noise;
mod not_measured;
mod overall;
mod point;
mod prediction;
mod quantile;
mod ratio;
mod relative;
mod required_samples;
mod resampling_units;
mod restarted;
mod rule;
mod share;
mod watch;

pub use aborted::given_up;
pub use chance::{chance, hopeless};
pub use conditions::{Conditions, LoadKind};
pub use evidence::goodput_flags;
pub use figure::figure;
pub use noise::noise;
pub use not_measured::not_measured;
pub use overall::{exit_code, found, overall};
pub use relative::never;
pub use required_samples::{needed, usual_effect};
pub use restarted::by_rounds;
pub use rule::{REJECTED, rule};
pub use watch::Watch;

#[cfg(test)]
mod correlated;
#[cfg(test)]
mod fixture;
