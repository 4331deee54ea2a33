//! Floor 1. A sample and a check give a verdict.
//!
//! Three kinds of evidence, each with its own test (see `docs/metrics.md`): quantiles and shares by the exact binomial rule,
//! means and throughputs by the bootstrap, all else as a point.

mod alike;
mod bounded;
mod chance;
pub mod compare;
mod evidence;
mod figure;
mod given_up;
mod need;
mod not_measured;
mod opinion;
mod overall;
mod point;
mod quantile;
mod ratio;
mod relative;
mod rule;
mod share;
mod units;
mod watch;
mod worth;

pub use chance::{chance, hopeless};
pub use evidence::goodput_flags;
pub use figure::figure;
pub use given_up::given_up;
pub use need::needed;
pub use not_measured::not_measured;
pub use overall::{exit_code, found, overall};
pub use relative::never;
pub use rule::{REJECTED, rule};
pub use watch::Watch;

#[cfg(test)]
mod fixture;
