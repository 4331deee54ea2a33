//! Whether the target of a round can still be reached, and whether not all of its first requests fail, as its workers see it.
//!
//! ```text
//! answer ── answer ── connect failed ── connect failed ── connect failed ──► one more connection, by the worker that sees it
//!                         since ├────────── PATIENCE ──────────┤                    failed: lost, nothing more is sent
//! ```
//! An answer in between sets the clock back: a server that restarts ends no case.

use crate::run::event::Event;
use crate::run::execution::stop::{Level, Stop};
use http::StatusCode;
use llmscen_core::early_stop::{AllFailed, Ending, TargetLost};
use llmscen_core::outcome::{Failure, FailureKind, Outcome};
use llmscen_core::units::Nanos;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError, mpsc};

/// How long every connection must have failed before the target may be lost.
const PATIENCE: Nanos = Nanos(3_000_000_000);
/// The target answered last.
const ANSWERS: u64 = u64::MAX;

/// What the workers of a round know of their target; without a lock but for the first requests, for every outcome passes here.
pub struct TargetHealth {
    failing_since: AtomicU64,
    probing: AtomicBool,
    /// Watches the first requests, until they are decided. The workers do, not the collector: it may lag behind them, and what
    /// they send meanwhile would fail as well.
    first: Mutex<Option<FailFast>>,
    undecided: AtomicBool,
    ending: OnceLock<Ending>,
    /// Pressed where the round is to end: requests in flight get their grace.
    stop: Stop,
    events: mpsc::Sender<Event>,
}

/// The failure of a request that did not reach the target. One for which this side had no file says nothing of the target.
pub fn connect_failure(outcome: &Outcome) -> Option<&Failure> {
    let connect = |failure: &&Failure| matches!(failure.kind, FailureKind::Connect | FailureKind::TimeoutConnect);
    outcome.end.as_ref().err().filter(connect).filter(|failure| !failure.message.contains(Failure::NO_FILES))
}

/// Whether the target answered: a response that broke off may be its last sign.
fn answered(outcome: &Outcome) -> bool {
    let broken = |failure: &Failure| failure.kind == FailureKind::Truncated;
    outcome.status.is_some() && !outcome.end.as_ref().is_err_and(broken)
}

impl TargetHealth {
    /// The target health of a round that `stop` ends; whoever shows the run hears of that at once. `first`: the watch over the first
    /// requests; None where they end nothing.
    pub fn new(stop: Stop, events: mpsc::Sender<Event>, first: Option<FailFast>) -> TargetHealth {
        let (failing_since, probing) = (AtomicU64::new(ANSWERS), AtomicBool::new(false));
        let (undecided, first) = (AtomicBool::new(first.is_some()), Mutex::new(first));
        TargetHealth { failing_since, probing, first, undecided, ending: OnceLock::new(), stop, events }
    }

    /// Takes in a request that is over.
    pub fn see(&self, outcome: &Outcome) {
        if self.undecided.load(Ordering::Relaxed) {
            self.see_first(outcome);
        }
        if connect_failure(outcome).is_some() {
            // The least of all: `ANSWERS` is greater than any instant.
            self.failing_since.fetch_min(outcome.timeline.end.0, Ordering::Relaxed);
        } else if answered(outcome) && self.failing_since.load(Ordering::Relaxed) != ANSWERS {
            self.failing_since.store(ANSWERS, Ordering::Relaxed);
        }
    }

    /// Whether the caller, whose connection failed at `at`, is to try one more: every connection has failed for long enough, and
    /// no other worker tries. [`TargetHealth::conclude`] must follow.
    pub fn suspects(&self, at: Nanos) -> bool {
        let since = self.failing_since.load(Ordering::Relaxed);
        let long = since != ANSWERS && at.since(Nanos(since)) >= PATIENCE;
        long && self.stop.level() == Level::Run && !self.probing.swap(true, Ordering::Relaxed)
    }

    /// Records the result of that connection at `at`: why it failed, or None where it was opened.
    pub fn conclude(&self, at: Nanos, why: Option<&str>) {
        let since = self.failing_since.load(Ordering::Relaxed);
        match why.filter(|_| since != ANSWERS && self.stop.level() == Level::Run) {
            Some(why) => {
                let lost = TargetLost { since_s: Nanos(since).secs(), at_s: at.secs(), why: why.to_owned() };
                self.end(Ending::TargetLost(lost));
            }
            None => self.failing_since.store(ANSWERS, Ordering::Relaxed),
        }
        self.probing.store(false, Ordering::Relaxed);
    }

    fn see_first(&self, outcome: &Outcome) {
        let mut first = self.first.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(watch) = first.as_mut() else { return };
        let all_failed = watch.see(outcome);
        if watch.is_over() {
            self.undecided.store(false, Ordering::Relaxed);
        }
        if let Some(all_failed) = all_failed.filter(|_| self.stop.level() == Level::Run) {
            self.end(Ending::AllFailed(all_failed));
        }
    }

    fn end(&self, ending: Ending) {
        let _ = self.events.send(Event::Ending(ending.clone()));
        let _ = self.ending.set(ending);
        self.stop.press();
    }

    /// Why the round was ended here, if it was.
    pub fn ending(&self) -> Option<Ending> {
        self.ending.get().cloned()
    }
}

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

    fn at(millis: u64) -> Nanos {
        Nanos::from_millis(millis)
    }

    fn ended(millis: u64, status: Option<u16>, kind: Option<FailureKind>) -> Outcome {
        let mut outcome = dropped(&Call::default(), Phase::Measured, at(millis), "");
        outcome.status = status;
        outcome.end = kind.map_or(Ok(Finish::default()), |kind| Err(Failure::new(kind, "refused")));
        outcome
    }

    fn refused(millis: u64) -> Outcome {
        ended(millis, None, Some(FailureKind::Connect))
    }

    fn target_health() -> (TargetHealth, mpsc::Receiver<Event>) {
        let (events, inbox) = mpsc::channel();
        (TargetHealth::new(Stop::default(), events, Some(FailFast::default().over(Some(5000)))), inbox)
    }

    #[test]
    fn a_target_is_lost_once_every_connection_failed_for_three_seconds_and_one_more_fails() {
        let (target_health, inbox) = target_health();
        target_health.see(&ended(900, Some(200), None));
        target_health.see(&refused(1000));
        target_health.see(&ended(1500, None, Some(FailureKind::TimeoutConnect)));
        assert!(!target_health.suspects(at(3999)));
        assert!(target_health.suspects(at(4000)) && !target_health.suspects(at(4000)), "one worker tries, no other");
        target_health.conclude(at(4100), Some("refused"));
        let known = TargetLost { since_s: 1.0, at_s: 4.1, why: "refused".into() };
        assert_eq!(target_health.ending(), Some(Ending::TargetLost(known.clone())));
        assert_eq!(inbox.try_recv(), Ok(Event::Ending(Ending::TargetLost(known))));
        assert_eq!((target_health.stop.level(), target_health.suspects(at(9000))), (Level::Drain, false));
    }

    #[test]
    fn any_answer_and_a_connection_that_opens_set_the_clock_back() {
        let (target_health, inbox) = target_health();
        target_health.see(&refused(1000));
        target_health.see(&ended(2000, Some(503), Some(FailureKind::Http5xx)));
        target_health.see(&refused(3000));
        assert!(!target_health.suspects(at(5000)) && target_health.suspects(at(6000)));
        target_health.conclude(at(6001), None);
        target_health.see(&refused(6002));
        assert!(!target_health.suspects(at(9000)) && target_health.suspects(at(9002)));
        assert!(target_health.ending().is_none() && inbox.try_recv().is_err());
    }

    #[test]
    fn the_round_ends_at_the_twentieth_of_equal_client_errors_before_it_is_collected() {
        let (target_health, inbox) = target_health();
        (0..19).for_each(|number| target_health.see(&ended(number, Some(401), Some(FailureKind::Http4xx))));
        assert_eq!((target_health.stop.level(), target_health.ending()), (Level::Run, None));
        target_health.see(&ended(20, Some(401), Some(FailureKind::Http4xx)));
        assert_eq!(target_health.stop.level(), Level::Drain);
        let ending = target_health.ending().unwrap();
        assert!(matches!(&ending, Ending::AllFailed(failed) if (failed.after, failed.status) == (20, 401)), "{ending:?}");
        target_health.see(&ended(21, Some(401), Some(FailureKind::Http4xx)));
        assert_eq!((inbox.try_recv(), inbox.try_recv().is_err()), (Ok(Event::Ending(ending)), true));
    }

    #[test]
    fn what_says_nothing_of_the_target_changes_nothing() {
        let (target_health, _inbox) = target_health();
        let mut no_file = refused(0);
        no_file.end = Err(Failure::new(FailureKind::Connect, Failure::NO_FILES));
        target_health.see(&no_file);
        assert!(!target_health.suspects(at(5000)));
        target_health.see(&refused(5000));
        target_health.see(&ended(6000, Some(200), Some(FailureKind::Truncated)));
        target_health.see(&ended(6000, None, Some(FailureKind::TimeoutRead)));
        target_health.see(&ended(6000, None, Some(FailureKind::Dropped)));
        assert!(target_health.suspects(at(8000)));
    }

    fn answered_with(status: u16) -> Outcome {
        let mut outcome = dropped(&Call::default(), Phase::Measured, Nanos::from_millis(1500), "");
        outcome.status = Some(status);
        let failure = || Failure::new(FailureKind::of_status(status), format!("{status}: wrong key"));
        outcome.end = if status == 200 { Ok(Finish::default()) } else { Err(failure()) };
        outcome
    }

    /// After how many of these it stops.
    fn stops(statuses: impl IntoIterator<Item = u16>) -> Option<usize> {
        let mut watch = FailFast::default();
        statuses.into_iter().position(|status| watch.see(&answered_with(status)).is_some()).map(|place| place + 1)
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
        let earlier = [answered_with(401), unsent, answered_with(401)];
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
        let mut stops = (3..60).filter_map(|number| Some((number, watch.see(&answered_with(401))?)));
        assert_eq!((stops.next(), stops.next()), (Some((20, known)), None));
    }
}
