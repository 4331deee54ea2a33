//! The check that stops a case whose requests all fail alike.

use http::StatusCode;
use llmscen_core::early_stop::AllFailed;
use llmscen_core::outcome::{FailureKind, Outcome};

/// Number of first requests that are checked.
const FIRST_REQUESTS: u64 = 20;

/// Stops a case whose first requests all fail with the same client error. Requests count in the order of their ends,
/// warm-up included.
#[derive(Clone, Debug, Default)]
pub struct FailFast {
    status: Option<u16>,
    failed: u64,
    planned: Option<u64>,
    over: bool,
}

impl FailFast {
    /// The same check with the number of planned requests of the case, if known.
    pub fn with_planned(&self, planned: Option<u64>) -> FailFast {
        FailFast {
            planned,
            ..self.clone()
        }
    }

    /// Whether further outcomes change nothing.
    pub fn is_over(&self) -> bool {
        self.over
    }

    /// Records a finished request. Returns the reason to stop, once.
    pub fn record(&mut self, outcome: &Outcome) -> Option<AllFailed> {
        let failure = outcome.end.as_ref().err();
        let unfinished = [
            FailureKind::Dropped,
            FailureKind::Cancelled,
            FailureKind::Abandoned,
        ];
        if self.over || failure.is_some_and(|failure| unfinished.contains(&failure.kind)) {
            return None;
        }
        let same_client_error = |status: &u16| {
            (300..=499).contains(status)
                && *status != 429
                && self.status.is_none_or(|first| first == *status)
        };
        let Some((status, failure)) = outcome.status.filter(same_client_error).zip(failure) else {
            self.over = true;
            return None;
        };
        self.status = Some(status);
        self.failed += 1;
        self.over = self.failed == FIRST_REQUESTS;
        self.over.then(|| AllFailed {
            at_s: outcome.timeline.end.secs(),
            after: self.failed,
            planned: self.planned,
            status,
            reason: StatusCode::from_u16(status)
                .ok()
                .and_then(|code| code.canonical_reason())
                .unwrap_or_default()
                .to_owned(),
            message: failure
                .message
                .strip_prefix(&format!("{status}: "))
                .unwrap_or(&failure.message)
                .to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use llmscen_client::http::dropped_outcome;
    use llmscen_core::outcome::{Failure, Finish, Phase};
    use llmscen_core::request::PreparedRequest;
    use llmscen_core::units::Nanos;

    fn answered_with(status: u16) -> Outcome {
        let mut outcome = dropped_outcome(
            &PreparedRequest::default(),
            Phase::Measured,
            Nanos::from_millis(1500),
            "",
        );
        outcome.status = Some(status);
        let failure = || {
            Failure::new(
                FailureKind::from_status(status),
                format!("{status}: wrong key"),
            )
        };
        outcome.end = if status == 200 {
            Ok(Finish::default())
        } else {
            Err(failure())
        };
        outcome
    }

    /// Number of these requests after which it stops.
    fn stops(statuses: impl IntoIterator<Item = u16>) -> Option<usize> {
        let mut watch = FailFast::default();
        statuses
            .into_iter()
            .position(|status| watch.record(&answered_with(status)).is_some())
            .map(|index| index + 1)
    }

    #[test]
    fn twenty_equal_client_errors_stop_and_nothing_else_does() {
        for status in [301, 400, 401, 403, 404, 422] {
            assert_eq!(stops([status; 50]), Some(20), "{status}");
        }
        for status in [200, 429, 500, 503] {
            assert_eq!(stops([status; 50]), None, "{status}");
        }
        assert_eq!(
            stops([401; 19].into_iter().chain([403]).chain([401; 50])),
            None
        );
        assert_eq!(stops([200].into_iter().chain([401; 50])), None);
    }

    #[test]
    fn requests_ended_by_the_load_generator_do_not_count_and_earlier_rounds_do() {
        let unsent = dropped_outcome(
            &PreparedRequest::default(),
            Phase::Measured,
            Nanos::ZERO,
            "",
        );
        let earlier = [answered_with(401), unsent, answered_with(401)];
        let mut watch = FailFast::default();
        earlier.iter().for_each(|outcome| _ = watch.record(outcome));
        let mut watch = watch.with_planned(Some(5000));
        let known = AllFailed {
            at_s: 1.5,
            after: 20,
            planned: Some(5000),
            status: 401,
            reason: "Unauthorized".into(),
            message: "wrong key".into(),
        };
        let mut stops =
            (3..60).filter_map(|number| Some((number, watch.record(&answered_with(401))?)));
        assert_eq!((stops.next(), stops.next()), (Some((20, known)), None));
    }
}
