//! Floor 1. A sample and a check give a verdict.
//!
//! Three kinds of evidence, each with its own test (see `docs/metrics.md`): quantiles and shares by the exact binomial rule at
//! their effective sample size, means and throughputs by batches with Student's t, all else as a point.

mod alike;
mod bounded;
mod chance;
pub mod compare;
mod conditions;
mod counted;
mod evidence;
mod figure;
mod given_up;
mod need;
mod noise;
mod not_measured;
mod opinion;
mod overall;
mod point;
mod prediction;
mod quantile;
mod ratio;
mod relative;
mod restarted;
mod rule;
mod share;
mod units;
mod watch;

pub use chance::{chance, hopeless};
pub use conditions::{Conditions, LoadKind};
pub use evidence::goodput_flags;
pub use figure::figure;
pub use given_up::given_up;
pub use need::{needed, usual_effect};
pub use noise::noise;
pub use not_measured::not_measured;
pub use overall::{exit_code, found, overall};
pub use relative::never;
pub use restarted::by_rounds;
pub use rule::{REJECTED, rule};
pub use watch::Watch;

#[cfg(test)]
mod correlated;
#[cfg(test)]
mod fixture;
