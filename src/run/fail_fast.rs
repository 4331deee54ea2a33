//! Stops a case whose first requests all fail with the same HTTP status: a wrong key or path fails every other one too.

use http::StatusCode;
use llmscen_core::early_stop::AllFailed;
use llmscen_core::outcome::{FailureKind, Outcome};

/// Requests that decide.
const FIRST: u64 = 20;

/// The watch over the first requests of a case, in the order of their ends, warm-up included.
#[derive(Clone, Debug, Default)]
pub struct FailFast {
    status: Option<u16>,
    seen: u64,
    planned: Option<u64>,
    over: bool,
}

impl FailFast {
    /// The same watch over a round of a case with this many requests, where that is known.
    pub fn over(&self, planned: Option<u64>) -> FailFast {
        FailFast { planned, ..self.clone() }
    }

    /// Whether what comes changes nothing any more.
    pub fn is_over(&self) -> bool {
        self.over
    }

    /// Takes in a request that is over. The reason to stop, once.
    pub fn see(&mut self, outcome: &Outcome) -> Option<AllFailed> {
        let failure = outcome.end.as_ref().err();
        let unfinished = [FailureKind::Dropped, FailureKind::Cancelled, FailureKind::Abandoned];
        if self.over || failure.is_some_and(|failure| unfinished.contains(&failure.kind)) {
            return None;
        }
        let same =
            |status: &u16| (300..=499).contains(status) && *status != 429 && self.status.is_none_or(|first| first == *status);
        let Some((status, failure)) = outcome.status.filter(same).zip(failure) else {
            self.over = true;
            return None;
        };
        (self.status, self.seen) = (Some(status), self.seen + 1);
        self.over = self.seen == FIRST;
        let reason = StatusCode::from_u16(status).ok().and_then(|own| own.canonical_reason()).unwrap_or_default().to_owned();
        let words = failure.message.strip_prefix(&format!("{status}: ")).unwrap_or(&failure.message);
        let (at_s, after, planned) = (outcome.timeline.end.secs(), self.seen, self.planned);
        self.over.then(|| AllFailed { at_s, after, planned, status, reason, message: words.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use llmscen_client::http::dropped;
    use llmscen_core::call::Call;
    use llmscen_core::outcome::{Failure, Finish, Phase};
    use llmscen_core::units::Nanos;

    fn ended(status: u16) -> Outcome {
        let mut outcome = dropped(&Call::default(), Phase::Measured, Nanos::from_millis(1500), "");
        outcome.status = Some(status);
        let failure = || Failure::new(FailureKind::of_status(status), format!("{status}: wrong key"));
        outcome.end = if status == 200 { Ok(Finish::default()) } else { Err(failure()) };
        outcome
    }

    /// After how many of these it stops.
    fn stops(statuses: impl IntoIterator<Item = u16>) -> Option<usize> {
        let mut watch = FailFast::default();
        statuses.into_iter().position(|status| watch.see(&ended(status)).is_some()).map(|place| place + 1)
    }

    #[test]
    fn twenty_equal_client_errors_stop_and_nothing_else_does() {
        for status in [301, 400, 401, 403, 404, 422] {
            assert_eq!(stops([status; 50]), Some(20), "{status}");
        }
        for status in [200, 429, 500, 503] {
            assert_eq!(stops([status; 50]), None, "{status}");
        }
        assert_eq!(stops([401; 19].into_iter().chain([403]).chain([401; 50])), None);
        assert_eq!(stops([200].into_iter().chain([401; 50])), None);
    }

    #[test]
    fn requests_that_this_side_ended_do_not_count_and_earlier_rounds_do() {
        let unsent = dropped(&Call::default(), Phase::Measured, Nanos::ZERO, "");
        let earlier = [ended(401), unsent, ended(401)];
        let mut watch = FailFast::default();
        earlier.iter().for_each(|outcome| _ = watch.see(outcome));
        let mut watch = watch.over(Some(5000));
        let known = AllFailed {
            at_s: 1.5,
            after: 20,
            planned: Some(5000),
            status: 401,
            reason: "Unauthorized".into(),
            message: "wrong key".into(),
        };
        let mut stops = (3..60).filter_map(|number| Some((number, watch.see(&ended(401))?)));
        assert_eq!((stops.next(), stops.next()), (Some((20, known)), None));
    }
}
