//! How many requests a closed loop may still send, and when sending ends. Shared by all workers without a lock.

use crate::load::{Load, Warmup};
use crate::outcome::Phase;
use crate::schedule::shard::{Shard, Split};
use crate::units::Nanos;
use std::sync::atomic::{AtomicU64, Ordering};

const UNSET: u64 = u64::MAX;

/// The remaining requests and time of a case.
pub struct Quota {
    load: Load,
    /// Maximum number of measured requests of this shard.
    requests: Option<u64>,
    measured: AtomicU64,
    /// Maximum number of measured requests of the sessions of this shard, and those that were sent.
    turn_limit: Option<u64>,
    turns: AtomicU64,
    cooldown: AtomicU64,
    measured_from: AtomicU64,
}

/// Whether a request of a session may be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TurnQuota {
    /// It may, and further ones.
    More,
    /// It may, and no other.
    Last,
    /// It may not.
    Exhausted,
}

impl Quota {
    /// The full quota of a shard of a load: its own numbers among the measured ones.
    pub fn new(load: &Load, shard: Shard) -> Quota {
        let split = Split::new(shard, &load.shape);
        let own = |requests: u64| match load.warmup {
            Warmup::Requests(warm) => {
                split.local_index(requests.saturating_add(warm)) - split.local_index(warm)
            }
            // How many requests a warm-up by time takes is unknown, and so is the first measured number.
            Warmup::Span(_) => split.local_index(requests),
        };
        Quota {
            load: load.clone(),
            // Without a measured request, sessions would have no end.
            requests: load.most_measured().map(own),
            measured: AtomicU64::new(0),
            // Which turns are the first depends on the server.
            turn_limit: load.turn_limit.map(|limit| split.local_index(limit)),
            turns: AtomicU64::new(0),
            cooldown: AtomicU64::new(0),
            measured_from: AtomicU64::new(UNSET),
        }
    }

    /// The phase of request `seq` if a user becomes free at `now`; None when the case is over.
    pub fn admit(&self, seq: u64, now: Nanos) -> Option<Phase> {
        if self.load.shape.end().is_some_and(|end| now >= end) {
            return None;
        }
        let warm = match self.load.warmup {
            Warmup::Requests(n) => seq < n,
            Warmup::Span(span) => now < span,
        };
        if warm {
            return Some(Phase::Warmup);
        }
        self.begin(now);
        if self.deadline().is_some_and(|end| now >= end) {
            return None;
        }
        // Which request is measured must not depend on which worker is faster.
        if let (Warmup::Requests(warm), Some(requests)) =
            (self.load.warmup, self.load.most_measured())
            && seq >= warm.saturating_add(requests)
        {
            return None;
        }
        let earlier = self.measured.fetch_add(1, Ordering::Relaxed);
        self.requests
            .is_none_or(|maximum| earlier < maximum)
            .then_some(Phase::Measured)
    }

    /// Whether one more measured request of a session may be sent, and whether it is the last one.
    pub fn admit_turn(&self) -> TurnQuota {
        let Some(limit) = self.turn_limit else {
            return TurnQuota::More;
        };
        match self.turns.fetch_add(1, Ordering::Relaxed) + 1 {
            sent if sent < limit => TurnQuota::More,
            sent if sent == limit => TurnQuota::Last,
            _ => TurnQuota::Exhausted,
        }
    }

    /// Whether one more request may follow the measured ones: at most as many as there are of these.
    pub fn admit_cooldown(&self) -> bool {
        let earlier = self.cooldown.fetch_add(1, Ordering::Relaxed);
        self.requests.is_some_and(|measured| earlier < measured)
    }

    /// Records that measuring has begun at `at` or earlier.
    pub fn begin(&self, at: Nanos) {
        self.measured_from.fetch_min(at.0, Ordering::Relaxed);
    }

    /// The end of sending, if known: the end of the stages, or `duration` after the first measured request.
    pub fn deadline(&self) -> Option<Nanos> {
        self.load.sending_end(self.began())
    }

    /// Whether the deadline is final.
    pub fn is_final(&self) -> bool {
        self.load.duration.is_none() || self.began().is_some()
    }

    /// The start of measuring, if known.
    fn began(&self) -> Option<Nanos> {
        match self.load.warmup {
            Warmup::Span(span) => Some(span),
            Warmup::Requests(0) => Some(Nanos::ZERO),
            Warmup::Requests(_) => Some(self.measured_from.load(Ordering::Relaxed))
                .filter(|&from| from != UNSET)
                .map(Nanos),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::Shape;
    use crate::stage::UserStage;

    fn quota(requests: Option<u64>, millis: Option<u64>, warmup: Warmup) -> Quota {
        let shape = Shape::Closed { users: 1 };
        let duration = millis.map(Nanos::from_millis);
        let load = Load {
            requests,
            duration,
            warmup,
            ..Load::new(shape)
        };
        Quota::new(&load, Shard::default())
    }

    #[test]
    fn warmup_requests_come_on_top_of_the_measured_ones() {
        let quota = quota(Some(3), None, Warmup::Requests(2));
        let phases: Vec<_> = (0..6).map(|seq| quota.admit(seq, Nanos(seq))).collect();
        let (warm, measured) = (Some(Phase::Warmup), Some(Phase::Measured));
        assert_eq!(phases, [warm, warm, measured, measured, measured, None]);
    }

    #[test]
    fn the_turns_of_all_sessions_share_one_limit() {
        let load = Load {
            turn_limit: Some(3),
            ..Load::new(Shape::Closed { users: 2 })
        };
        let quota = Quota::new(&load, Shard::default());
        let admitted = [(); 5].map(|()| quota.admit_turn());
        use TurnQuota::{Exhausted, Last, More};
        assert_eq!(admitted, [More, More, Last, Exhausted, Exhausted]);
        let endless = Quota::new(&Load::new(Shape::Closed { users: 2 }), Shard::default());
        assert_eq!(endless.admit_turn(), More);
    }

    #[test]
    fn a_duration_counts_from_the_first_measured_request() {
        let quota = quota(None, Some(10), Warmup::Requests(1));
        assert_eq!(quota.deadline(), None);
        assert_eq!(quota.admit(0, Nanos::from_millis(0)), Some(Phase::Warmup));
        assert_eq!(quota.admit(1, Nanos::from_millis(5)), Some(Phase::Measured));
        assert_eq!(quota.deadline(), Some(Nanos::from_millis(15)));
        assert_eq!(
            quota.admit(2, Nanos::from_millis(14)),
            Some(Phase::Measured)
        );
        assert_eq!(quota.admit(3, Nanos::from_millis(15)), None);
    }

    #[test]
    fn a_warmup_span_ends_by_time() {
        let quota = quota(Some(1), None, Warmup::Span(Nanos::from_millis(10)));
        assert_eq!(quota.admit(0, Nanos::from_millis(9)), Some(Phase::Warmup));
        assert_eq!(
            quota.admit(1, Nanos::from_millis(10)),
            Some(Phase::Measured)
        );
        assert_eq!(quota.admit(2, Nanos::from_millis(11)), None);
    }

    #[test]
    fn stages_end_a_load_whatever_its_phase() {
        let stage = UserStage {
            from: 1,
            to: 1,
            span: Nanos(100),
        };
        let shape = Shape::Users {
            stages: [stage].into(),
        };
        let quota = |duration| {
            let load = super::tests::quota(None, None, Warmup::Requests(3)).load;
            let load = Load {
                shape: shape.clone(),
                duration,
                ..load
            };
            Quota::new(&load, Shard::default())
        };
        let plain = quota(None);
        assert_eq!(
            (plain.deadline(), plain.is_final()),
            (Some(Nanos(100)), true)
        );
        assert_eq!(
            (plain.admit(0, Nanos(99)), plain.admit(1, Nanos(100))),
            (Some(Phase::Warmup), None)
        );
        let cut = quota(Some(Nanos(20)));
        assert_eq!((cut.deadline(), cut.is_final()), (Some(Nanos(100)), false));
        assert_eq!(cut.admit(3, Nanos(50)), Some(Phase::Measured));
        assert_eq!((cut.deadline(), cut.is_final()), (Some(Nanos(70)), true));
    }

    #[test]
    fn a_shard_admits_its_own_measured_numbers() {
        let load = Load {
            requests: Some(11),
            warmup: Warmup::Requests(6),
            ..Load::new(Shape::Closed { users: 5 })
        };
        let admitted = |index| {
            let shard = Shard { index, count: 2 };
            let (split, quota) = (Split::new(shard, &load.shape), Quota::new(&load, shard));
            let own = (0..40).filter(move |&seq| split.owns(seq));
            own.filter_map(move |seq| Some((seq, quota.admit(seq, Nanos(seq))?)))
                .collect::<Vec<_>>()
        };
        let numbers = |index, phase| {
            let own = admitted(index).into_iter().filter(|own| own.1 == phase);
            own.map(|own| own.0).collect::<Vec<_>>()
        };
        // Users 0, 2 and 4 are on shard 0.
        assert_eq!(numbers(0, Phase::Warmup), [0, 2, 4, 5]);
        assert_eq!(numbers(1, Phase::Warmup), [1, 3]);
        assert_eq!(numbers(0, Phase::Measured), [7, 9, 10, 12, 14, 15]);
        assert_eq!(numbers(1, Phase::Measured), [6, 8, 11, 13, 16]);
    }

    #[test]
    fn workers_share_one_quota() {
        let quota = quota(Some(1000), None, Warmup::Requests(0));
        let admitted: usize = std::thread::scope(|scope| {
            let lanes: Vec<_> = (0..4u64)
                .map(|lane| {
                    let quota = &quota;
                    scope.spawn(move || {
                        (0..500)
                            .filter(|i| quota.admit(lane * 500 + i, Nanos(1)).is_some())
                            .count()
                    })
                })
                .collect();
            lanes.into_iter().map(|lane| lane.join().unwrap()).sum()
        });
        assert_eq!(admitted, 1000);
    }
}
