//! Why a round ended before its plan did, where that was its own decision.

use crate::units::Nanos;
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
    /// The target could not be reached any more.
    TargetLost(TargetLost),
    /// Every request failed with the same HTTP status.
    AllFailed(AllFailed),
}

impl Ending {
    /// Whether no further round of the case is needed or possible.
    pub fn ends_case(&self) -> bool {
        !matches!(self, Ending::Saturated(_))
    }

    /// What it means for a stage of the round that lasts until this instant: nothing where the stage was over by then. A limit
    /// that was lost is one of the whole case, none of the stage's own.
    pub fn within(&self, until: Nanos) -> Option<Ending> {
        let over = |at_s: f64| until.secs() <= at_s;
        match self {
            Ending::Aborted(lost) if !over(lost.at_s) => Some(Ending::Aborted(Aborted { check: u32::MAX, ..lost.clone() })),
            Ending::Saturated(seen) if !over(seen.at_s) => Some(Ending::Saturated(seen.clone())),
            Ending::TargetLost(lost) if !over(lost.at_s) => Some(self.clone()),
            Ending::AllFailed(failed) if !over(failed.at_s) => Some(self.clone()),
            Ending::Aborted(_) | Ending::Saturated(_) | Ending::TargetLost(_) | Ending::AllFailed(_) => None,
        }
    }
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
    /// The greatest chance of giving up though the limit holds.
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

/// A target to which no connection could be opened any more.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TargetLost {
    /// When the first of the failed connections failed, in seconds after the start of the round.
    pub since_s: f64,
    /// When a last connection failed too, in seconds after the start of the round.
    pub at_s: f64,
    /// Why connections failed.
    pub why: String,
}

/// Requests that all failed with the same HTTP status.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AllFailed {
    /// When the last of them ended, in seconds after the start of the round.
    pub at_s: f64,
    /// Requests that were over by then.
    pub after: u64,
    /// Requests that the plan had, where that is known.
    pub planned: Option<u64>,
    /// The status.
    pub status: u16,
    /// The status in words, empty where it has none: `Unauthorized`.
    pub reason: String,
    /// The server's own words.
    pub message: String,
}

impl fmt::Display for TargetLost {
    /// `target lost after 3.1 s: 127.0.0.1:8000: connection refused (for 3.0 s, then a last attempt failed too)`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TargetLost { since_s, at_s, why } = self;
        let span = at_s - since_s;
        write!(f, "target lost after {since_s:.1} s: {why} (for {span:.1} s, then a last attempt failed too)")
    }
}

impl fmt::Display for AllFailed {
    /// `stopped after 20 of 5000 requests: every one failed with HTTP 401 (Unauthorized)`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let AllFailed { after, status, reason, .. } = self;
        let of = self.planned.map(|planned| format!(" of {planned}")).unwrap_or_default();
        write!(f, "stopped after {after}{of} requests: every one failed with HTTP {status}")?;
        if reason.is_empty() { Ok(()) } else { write!(f, " ({reason})") }
    }
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
    fn a_stage_that_was_over_knows_of_no_end() {
        let lost = Aborted { check: 1, at_s: 2.0, ..Aborted::default() };
        let early = |ending: Ending| [1000, 2000, 3000].map(|until| ending.within(Nanos::from_millis(until)));
        let known = Some(Ending::Aborted(Aborted { check: u32::MAX, ..lost.clone() }));
        assert_eq!(early(Ending::Aborted(lost)), [None, None, known]);
        let seen = Ending::Saturated(Saturated { at_s: 2.0, ..Saturated::default() });
        assert_eq!(early(seen.clone()), [None, None, Some(seen)]);
    }

    #[test]
    fn a_lost_target_and_equal_failures_are_named_with_their_numbers() {
        let why = "127.0.0.1:8000: connection refused".to_owned();
        let lost = TargetLost { since_s: 3.06, at_s: 6.14, why };
        let known = "target lost after 3.1 s: 127.0.0.1:8000: connection refused (for 3.1 s, then a last attempt failed too)";
        assert_eq!(lost.to_string(), known);
        assert_eq!(Ending::TargetLost(lost.clone()).within(Nanos::from_millis(6000)), None);
        assert!(Ending::TargetLost(lost).within(Nanos::from_millis(7000)).is_some());
        let mut all =
            AllFailed { after: 20, planned: Some(5000), status: 401, reason: "Unauthorized".into(), ..AllFailed::default() };
        assert_eq!(all.to_string(), "stopped after 20 of 5000 requests: every one failed with HTTP 401 (Unauthorized)");
        (all.planned, all.reason) = (None, String::new());
        assert_eq!(all.to_string(), "stopped after 20 requests: every one failed with HTTP 401");
    }

    #[test]
    fn an_abort_says_how_much_broke_the_limit() {
        let mut lost = Aborted { after: 420, planned: Some(2000), n: 412, breaking: 61, allowed: 0.07, ..Aborted::default() };
        assert_eq!(lost.to_string(), "aborted after 420 of 2000 requests: 61 of 412 broke the limit, where 7 % may");
        (lost.planned, lost.allowed) = (None, 0.0);
        assert_eq!(lost.to_string(), "aborted after 420 requests: 61 of 412 broke the limit, where 0 % may");
    }
}
