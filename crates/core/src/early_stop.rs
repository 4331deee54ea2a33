//! Early stops: why a round was stopped before its planned end.

use crate::units::Nanos;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The reason for an early stop.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EarlyStop {
    /// An objective with `abort` failed.
    Aborted(Aborted),
    /// The server fell behind the arrival rate, with `stop_when_saturated` set.
    Saturated(Saturated),
    /// The target became unreachable.
    TargetLost(TargetLost),
    /// Every request failed with the same HTTP status.
    AllFailed(AllFailed),
}

impl EarlyStop {
    /// Whether the case ends, so that no further round runs.
    pub fn ends_case(&self) -> bool {
        !matches!(self, EarlyStop::Saturated(_))
    }

    /// The early stop as it applies to a stage that lasts until `until`: None if the stage was over before. A failed
    /// objective is one of the case, not of the stage.
    pub fn within(&self, until: Nanos) -> Option<EarlyStop> {
        let over = |at_s: f64| until.secs() <= at_s;
        match self {
            EarlyStop::Aborted(lost) if !over(lost.at_s) => Some(EarlyStop::Aborted(Aborted {
                check: u32::MAX,
                ..lost.clone()
            })),
            EarlyStop::Saturated(seen) if !over(seen.at_s) => {
                Some(EarlyStop::Saturated(seen.clone()))
            }
            EarlyStop::TargetLost(lost) if !over(lost.at_s) => Some(self.clone()),
            EarlyStop::AllFailed(failed) if !over(failed.at_s) => Some(self.clone()),
            EarlyStop::Aborted(_)
            | EarlyStop::Saturated(_)
            | EarlyStop::TargetLost(_)
            | EarlyStop::AllFailed(_) => None,
        }
    }
}

/// An objective that failed before the end.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Aborted {
    /// Index among the checks of the case.
    pub check: u32,
    /// The objective's expression.
    pub expr: String,
    /// Time of the decision, seconds since the start of the round.
    pub at_s: f64,
    /// Measured requests that had ended by then.
    pub after: u64,
    /// Planned measured requests, if known.
    pub planned: Option<u64>,
    /// Requests that the objective was evaluated on.
    pub n: u64,
    /// Those of them that exceeded the limit.
    pub breaking: u64,
    /// The share of them that may exceed it.
    pub allowed: f64,
    /// Maximum probability of aborting although the limit is met.
    pub alpha: f64,
}

/// A server that fell behind the arrival rate.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Saturated {
    /// Start of the growth, seconds since the start of the round.
    pub from_s: f64,
    /// Time of the decision, seconds since the start of the round.
    pub at_s: f64,
    /// Growth of the requests in flight, per second.
    pub in_flight_slope: f64,
    /// Growth of TTFT, milliseconds per second.
    pub ttft_slope: f64,
}

/// A target that no longer accepted connections.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TargetLost {
    /// Time of the first failed connection, seconds since the start of the round.
    pub since_s: f64,
    /// Time of the last failed attempt, seconds since the start of the round.
    pub at_s: f64,
    /// The connection error.
    pub why: String,
}

/// Requests that all failed with the same HTTP status.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AllFailed {
    /// End of the last of them, seconds since the start of the round.
    pub at_s: f64,
    /// Requests that had ended by then.
    pub after: u64,
    /// Planned requests, if known.
    pub planned: Option<u64>,
    /// The HTTP status code.
    pub status: u16,
    /// The standard reason phrase: `Unauthorized`; empty for an unknown status.
    pub reason: String,
    /// The server's error message.
    pub message: String,
}

impl fmt::Display for TargetLost {
    /// `target lost after 3.1 s: 127.0.0.1:8000: connection refused (for 3.0 s, then a last attempt failed too)`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TargetLost { since_s, at_s, why } = self;
        let span = at_s - since_s;
        write!(
            f,
            "target lost after {since_s:.1} s: {why} (for {span:.1} s, then a last attempt failed too)"
        )
    }
}

impl fmt::Display for AllFailed {
    /// `stopped after 20 of 5000 requests: every one failed with HTTP 401 (Unauthorized)`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let AllFailed {
            after,
            status,
            reason,
            ..
        } = self;
        let of = self
            .planned
            .map(|planned| format!(" of {planned}"))
            .unwrap_or_default();
        write!(
            f,
            "stopped after {after}{of} requests: every one failed with HTTP {status}"
        )?;
        if reason.is_empty() {
            Ok(())
        } else {
            write!(f, " ({reason})")
        }
    }
}

impl fmt::Display for Aborted {
    /// `aborted after 412 of 2000 requests: 61 of 412 exceeded the limit (5 % allowed)`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Aborted {
            after, n, breaking, ..
        } = self;
        let of = self
            .planned
            .map(|planned| format!(" of {planned}"))
            .unwrap_or_default();
        // Rounded, because 0.07 × 100 is not 7 in binary.
        let percent = (self.allowed * 1e8).round() / 1e6;
        write!(
            f,
            "aborted after {after}{of} requests: {breaking} of {n} exceeded the limit ({percent} % allowed)"
        )
    }
}

impl fmt::Display for Saturated {
    /// `saturated at 12.0 s: in-flight requests grew by 3.100/s and TTFT by 41.0 ms/s; sending stopped at 25.1 s`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Saturated {
            from_s,
            at_s,
            in_flight_slope,
            ttft_slope,
        } = self;
        write!(
            f,
            "saturated at {from_s:.1} s: in-flight requests grew by {in_flight_slope:.3}/s and \
             TTFT by {ttft_slope:.1} ms/s; sending stopped at {at_s:.1} s"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stage_that_was_over_has_no_early_stop() {
        let lost = Aborted {
            check: 1,
            at_s: 2.0,
            ..Aborted::default()
        };
        let early = |ending: EarlyStop| {
            [1000, 2000, 3000].map(|until| ending.within(Nanos::from_millis(until)))
        };
        let known = Some(EarlyStop::Aborted(Aborted {
            check: u32::MAX,
            ..lost.clone()
        }));
        assert_eq!(early(EarlyStop::Aborted(lost)), [None, None, known]);
        let seen = EarlyStop::Saturated(Saturated {
            at_s: 2.0,
            ..Saturated::default()
        });
        assert_eq!(early(seen.clone()), [None, None, Some(seen)]);
    }

    #[test]
    fn a_lost_target_and_equal_failures_are_named_with_their_numbers() {
        let why = "127.0.0.1:8000: connection refused".to_owned();
        let lost = TargetLost {
            since_s: 3.06,
            at_s: 6.14,
            why,
        };
        let known = "target lost after 3.1 s: 127.0.0.1:8000: connection refused (for 3.1 s, then \
        a last attempt failed too)";
        assert_eq!(lost.to_string(), known);
        assert_eq!(
            EarlyStop::TargetLost(lost.clone()).within(Nanos::from_millis(6000)),
            None
        );
        assert!(
            EarlyStop::TargetLost(lost)
                .within(Nanos::from_millis(7000))
                .is_some()
        );
        let mut all = AllFailed {
            after: 20,
            planned: Some(5000),
            status: 401,
            reason: "Unauthorized".into(),
            ..AllFailed::default()
        };
        assert_eq!(
            all.to_string(),
            "stopped after 20 of 5000 requests: every one failed with HTTP 401 (Unauthorized)"
        );
        (all.planned, all.reason) = (None, String::new());
        assert_eq!(
            all.to_string(),
            "stopped after 20 requests: every one failed with HTTP 401"
        );
    }

    #[test]
    fn an_abort_states_how_many_requests_exceeded_the_limit() {
        let mut lost = Aborted {
            after: 420,
            planned: Some(2000),
            n: 412,
            breaking: 61,
            allowed: 0.07,
            ..Aborted::default()
        };
        assert_eq!(
            lost.to_string(),
            "aborted after 420 of 2000 requests: 61 of 412 exceeded the limit (7 % allowed)"
        );
        (lost.planned, lost.allowed) = (None, 0.0);
        assert_eq!(
            lost.to_string(),
            "aborted after 420 requests: 61 of 412 exceeded the limit (0 % allowed)"
        );
    }
}
