//! Detects that the target of a round can no longer be reached, or that all first requests of a case fail with the
//! same status.
//!
//! ```text
//! response ── response ── connect failed ── connect failed ── connect failed ──► one more connection by that worker
//!                        since ├──────── LOST_AFTER ───────────────┤             failed: target lost, stop sending
//! ```
//! At the end of a round the last worker opens connections until that time is over.
//!
//! A response in between resets the time, so that a server restart does not end a case. A target with several URLs is
//! lost once none of them can be reached: as long as one responds, the failures of the others are results.

use crate::run::event::Event;
use crate::run::fail_fast::FailFast;
use crate::run::stop::{Level, Stop};
use llmscen_core::early_stop::{EarlyStop, TargetLost};
use llmscen_core::outcome::{Failure, FailureKind, Outcome};
use llmscen_core::units::Nanos;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError, mpsc};

/// How long every connection must have failed before the target may be lost.
const LOST_AFTER: Nanos = Nanos(3_000_000_000);
/// Value of `failing_since` after a response.
const NOT_FAILING: u64 = u64::MAX;

/// The state of the target, shared by all workers of a round. Every outcome is recorded here, so only the first
/// requests take a lock.
pub struct TargetHealth {
    failing_since: AtomicU64,
    /// Whether a worker opens the last connection.
    checking: AtomicBool,
    /// Number of workers that have not ended.
    workers: AtomicUsize,
    /// Checks the first requests. The collector cannot, since it may lag behind the workers.
    fail_fast: Mutex<Option<FailFast>>,
    /// Whether `fail_fast` still needs outcomes.
    fail_fast_active: AtomicBool,
    ending: OnceLock<EarlyStop>,
    /// Pressed to end the round: requests in flight may finish within the drain time.
    stop: Stop,
    events: mpsc::Sender<Event>,
}

/// The failure of a request that did not reach the target. Running out of open files or local ports is not a failure
/// of the target.
pub fn connect_failure(outcome: &Outcome) -> Option<&Failure> {
    let connect = |failure: &&Failure| {
        matches!(
            failure.kind,
            FailureKind::Connect | FailureKind::TimeoutConnect
        )
    };
    outcome
        .end
        .as_ref()
        .err()
        .filter(connect)
        .filter(|failure| !failure.is_own_shortage())
}

/// Whether the target responded. A truncated response does not count: the server may have crashed while it sent it.
fn has_response(outcome: &Outcome) -> bool {
    let truncated = |failure: &Failure| failure.kind == FailureKind::Truncated;
    outcome.status.is_some() && !outcome.end.as_ref().is_err_and(truncated)
}

impl TargetHealth {
    /// The state at the start of a round, which `stop` ends. `fail_fast`: None if the first requests must not end the
    /// round.
    pub fn new(
        stop: Stop,
        events: mpsc::Sender<Event>,
        fail_fast: Option<FailFast>,
    ) -> TargetHealth {
        TargetHealth {
            failing_since: AtomicU64::new(NOT_FAILING),
            checking: AtomicBool::new(false),
            workers: AtomicUsize::new(0),
            fail_fast_active: AtomicBool::new(fail_fast.is_some()),
            fail_fast: Mutex::new(fail_fast),
            ending: OnceLock::new(),
            stop,
            events,
        }
    }

    /// Records a finished request.
    pub fn record(&self, outcome: &Outcome) {
        if self.fail_fast_active.load(Ordering::Relaxed) {
            self.record_first(outcome);
        }
        if connect_failure(outcome).is_some() {
            // `NOT_FAILING` is greater than any time.
            self.failing_since
                .fetch_min(outcome.timeline.end.0, Ordering::Relaxed);
        } else if has_response(outcome) && self.failing_since.load(Ordering::Relaxed) != NOT_FAILING
        {
            self.failing_since.store(NOT_FAILING, Ordering::Relaxed);
        }
    }

    /// Whether the caller, whose connection failed at `at`, must open one more: every connection has failed for
    /// [`LOST_AFTER`], and no other worker does it. [`TargetHealth::conclude_check`] must follow.
    pub fn must_check(&self, at: Nanos) -> bool {
        let since = self.failing_since.load(Ordering::Relaxed);
        let is_long = since != NOT_FAILING && at.since(Nanos(since)) >= LOST_AFTER;
        is_long && self.stop.level() == Level::Run && !self.checking.swap(true, Ordering::Relaxed)
    }

    /// Counts a worker that begins.
    pub fn enter(&self) {
        self.workers.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a worker that ends. The time until which the last one must open connections, because every connection
    /// has failed since the last response. [`TargetHealth::conclude_check`] must follow.
    pub fn leave(&self) -> Option<Nanos> {
        let is_last = self.workers.fetch_sub(1, Ordering::AcqRel) == 1;
        let since = self.failing_since.load(Ordering::Relaxed);
        let must_check = is_last && since != NOT_FAILING && self.stop.level() == Level::Run;
        must_check.then(|| Nanos(since) + LOST_AFTER)
    }

    /// Records the result of that connection at `at`: why it failed, or None if it succeeded.
    pub fn conclude_check(&self, at: Nanos, why: Option<&str>) {
        let since = self.failing_since.load(Ordering::Relaxed);
        match why.filter(|_| since != NOT_FAILING && self.stop.level() == Level::Run) {
            Some(why) => {
                let lost = TargetLost {
                    since_s: Nanos(since).secs(),
                    at_s: at.secs(),
                    why: why.to_owned(),
                };
                self.end(EarlyStop::TargetLost(lost));
            }
            None => self.failing_since.store(NOT_FAILING, Ordering::Relaxed),
        }
        self.checking.store(false, Ordering::Relaxed);
    }

    fn record_first(&self, outcome: &Outcome) {
        let mut fail_fast = self
            .fail_fast
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let Some(fail_fast) = fail_fast.as_mut() else {
            return;
        };
        let all_failed = fail_fast.record(outcome);
        if fail_fast.is_over() {
            self.fail_fast_active.store(false, Ordering::Relaxed);
        }
        if let Some(all_failed) = all_failed.filter(|_| self.stop.level() == Level::Run) {
            self.end(EarlyStop::AllFailed(all_failed));
        }
    }

    fn end(&self, ending: EarlyStop) {
        let _ = self.events.send(Event::Ending(ending.clone()));
        let _ = self.ending.set(ending);
        self.stop.press();
    }

    /// Why the target ended the round, if it did.
    pub fn ending(&self) -> Option<EarlyStop> {
        self.ending.get().cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use llmscen_client::http::dropped_outcome;
    use llmscen_core::outcome::{Failure, Finish, Phase};
    use llmscen_core::request::PreparedRequest;
    use llmscen_core::units::Nanos;

    fn at(millis: u64) -> Nanos {
        Nanos::from_millis(millis)
    }

    fn ended(millis: u64, status: Option<u16>, kind: Option<FailureKind>) -> Outcome {
        let mut outcome =
            dropped_outcome(&PreparedRequest::default(), Phase::Measured, at(millis), "");
        outcome.status = status;
        outcome.end = kind.map_or(Ok(Finish::default()), |kind| {
            Err(Failure::new(kind, "refused"))
        });
        outcome
    }

    fn refused(millis: u64) -> Outcome {
        ended(millis, None, Some(FailureKind::Connect))
    }

    fn target_health() -> (TargetHealth, mpsc::Receiver<Event>) {
        let (events, inbox) = mpsc::channel();
        (
            TargetHealth::new(
                Stop::default(),
                events,
                Some(FailFast::default().with_planned(Some(5000))),
            ),
            inbox,
        )
    }

    #[test]
    fn a_target_is_lost_once_every_connection_failed_for_three_seconds_and_one_more_fails() {
        let (target_health, inbox) = target_health();
        target_health.record(&ended(900, Some(200), None));
        target_health.record(&refused(1000));
        target_health.record(&ended(1500, None, Some(FailureKind::TimeoutConnect)));
        assert!(!target_health.must_check(at(3999)));
        assert!(
            target_health.must_check(at(4000)) && !target_health.must_check(at(4000)),
            "one worker checks, no other"
        );
        target_health.conclude_check(at(4100), Some("refused"));
        let known = TargetLost {
            since_s: 1.0,
            at_s: 4.1,
            why: "refused".into(),
        };
        assert_eq!(
            target_health.ending(),
            Some(EarlyStop::TargetLost(known.clone()))
        );
        assert_eq!(
            inbox.try_recv(),
            Ok(Event::Ending(EarlyStop::TargetLost(known)))
        );
        assert_eq!(
            (
                target_health.stop.level(),
                target_health.must_check(at(9000))
            ),
            (Level::Drain, false)
        );
    }

    #[test]
    fn any_response_and_a_successful_connection_reset_the_time() {
        let (target_health, inbox) = target_health();
        target_health.record(&refused(1000));
        target_health.record(&ended(2000, Some(503), Some(FailureKind::Http5xx)));
        target_health.record(&refused(3000));
        assert!(!target_health.must_check(at(5000)) && target_health.must_check(at(6000)));
        target_health.conclude_check(at(6001), None);
        target_health.record(&refused(6002));
        assert!(!target_health.must_check(at(9000)) && target_health.must_check(at(9002)));
        assert!(target_health.ending().is_none() && inbox.try_recv().is_err());
    }

    #[test]
    fn the_round_ends_at_the_twentieth_of_equal_client_errors_before_it_is_collected() {
        let (target_health, inbox) = target_health();
        (0..19).for_each(|number| {
            target_health.record(&ended(number, Some(401), Some(FailureKind::Http4xx)))
        });
        assert_eq!(
            (target_health.stop.level(), target_health.ending()),
            (Level::Run, None)
        );
        target_health.record(&ended(20, Some(401), Some(FailureKind::Http4xx)));
        assert_eq!(target_health.stop.level(), Level::Drain);
        let ending = target_health.ending().unwrap();
        assert!(
            matches!(&ending, EarlyStop::AllFailed(failed) if (failed.after, failed.status) == (20, 401)),
            "{ending:?}"
        );
        target_health.record(&ended(21, Some(401), Some(FailureKind::Http4xx)));
        assert_eq!(
            (inbox.try_recv(), inbox.try_recv().is_err()),
            (Ok(Event::Ending(ending)), true)
        );
    }

    #[test]
    fn failures_that_are_not_connect_failures_of_the_target_change_nothing() {
        let (target_health, _inbox) = target_health();
        let mut no_file = refused(0);
        no_file.end = Err(Failure::new(FailureKind::Connect, Failure::NO_FILES));
        target_health.record(&no_file);
        assert!(!target_health.must_check(at(5000)));
        target_health.record(&refused(5000));
        target_health.record(&ended(6000, Some(200), Some(FailureKind::Truncated)));
        target_health.record(&ended(6000, None, Some(FailureKind::TimeoutRead)));
        target_health.record(&ended(6000, None, Some(FailureKind::Dropped)));
        assert!(target_health.must_check(at(8000)));
    }
}
