//! Why a round ended before its plan did, where that was its own decision.

use serde::{Deserialize, Serialize};
use std::fmt;

/// The decision.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    /// A limit with `abort` was lost.
    Aborted(Aborted),
    /// The server fell behind its arrivals, and `stop_when_saturated` was set.
    Saturated(Saturated),
}

/// A limit that was lost before the end.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Aborted {
    /// Its place among the checks of the case.
    pub check: u32,
    /// As the scenario wrote it.
    pub expr: String,
    /// When, in seconds after the start of the round.
    pub at_s: f64,
    /// Measured requests that were over by then.
    pub after: u64,
    /// Measured requests that the plan had, where that is known.
    pub planned: Option<u64>,
    /// Requests that the limit was judged by.
    pub n: u64,
    /// Those among them that broke it.
    pub breaking: u64,
    /// The share of them that may.
    pub allowed: f64,
    /// The chance at the most of giving up though the limit holds.
    pub alpha: f64,
}

/// Arrivals that a server did not keep up with.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Saturated {
    /// From when on it fell behind, in seconds after the start of the round.
    pub from_s: f64,
    /// When that was sure, likewise.
    pub at_s: f64,
    /// Requests in flight per second: by how much they grew.
    pub in_flight_slope: f64,
    /// TTFT in milliseconds per second: by how much it grew.
    pub ttft_slope: f64,
}

impl fmt::Display for Aborted {
    /// `aborted after 412 of 2000 requests: 61 of 412 broke the limit, where 5 % may`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Aborted { after, n, breaking, .. } = self;
        let of = self.planned.map(|planned| format!(" of {planned}")).unwrap_or_default();
        // The decimal point is moved by rounding: 0.07 × 100 is not 7.
        let percent = (self.allowed * 1e8).round() / 1e6;
        write!(f, "aborted after {after}{of} requests: {breaking} of {n} broke the limit, where {percent} % may")
    }
}

impl fmt::Display for Saturated {
    /// `SATURATED from 12.0 s on: requests in flight grew by 3.1 and TTFT by 41 ms a second; no more was sent from 25.1 s on`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Saturated { from_s, at_s, in_flight_slope, ttft_slope } = self;
        write!(
            f,
            "SATURATED from {from_s:.1} s on: requests in flight grew by {in_flight_slope:.3} and TTFT by {ttft_slope:.1} ms a \
             second; no more was sent from {at_s:.1} s on"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_abort_says_how_much_broke_the_limit() {
        let mut lost = Aborted { after: 420, planned: Some(2000), n: 412, breaking: 61, allowed: 0.07, ..Aborted::default() };
        assert_eq!(lost.to_string(), "aborted after 420 of 2000 requests: 61 of 412 broke the limit, where 7 % may");
        (lost.planned, lost.allowed) = (None, 0.0);
        assert_eq!(lost.to_string(), "aborted after 420 requests: 61 of 412 broke the limit, where 0 % may");
    }
}
