//! Between rounds: the shards agree on the next round, prepare it, and start it at a common time zero.

use crate::run::sharding::clock::{ClockOffset, ClockReading, OffsetInterval, OffsetSource};
use crate::run::sharding::error::ShardingError;
use crate::run::sharding::exchange::{Exchanged, Responder, exchange};
use crate::run::sharding::messages::{Go, Next, NextRound, Ready, RunEnd};
use crate::run::sharding::{GroupStart, RunningRound, ShardGroup};
use crate::run::stop::Level;
use llmscen_core::units::Nanos;
use std::collections::BTreeMap;
use std::time::Duration;

/// Time zero is at least this far ahead when it is announced, besides the time to open connections.
const LEAST_MARGIN: Duration = Duration::from_secs(1);
/// The margin is at least this many polls.
const MARGIN_POLLS: u32 = 4;
/// The margin doubles with each round in which a shard was late, up to this many times.
const MOST_DOUBLINGS: u32 = 6;
/// A first barrier on a folder that takes longer than this is one with a slow cache.
const SLOW_STORE: Duration = Duration::from_secs(5);

/// Bound on the offset of a clock that lost its synchronization during the run, nanoseconds.
const UNSYNCHRONIZED: u64 = 1_000_000_000;

impl ShardGroup {
    pub(super) fn announce_next(
        &mut self,
        next: Option<NextRound>,
    ) -> Result<Option<NextRound>, ShardingError> {
        let stopped = self.monitor.check_stop().err();
        let round = next.filter(|_| stopped.is_none());
        let reason = stopped.as_ref().map(ShardingError::to_string);
        let announced = Next {
            nonce: self.access.settings.nonce.clone(),
            end: round.is_none().then_some(RunEnd {
                success: stopped.is_none() || self.is_stop_recorded,
                reason: reason.unwrap_or_default(),
            }),
            round: round.clone(),
        };
        // The end must reach the others after a signal too.
        self.access
            .create(Level::Now, &self.next_key(), &announced)?;
        self.announced = round.is_some();
        self.ended = round.is_none();
        match stopped.filter(|_| !self.is_stop_recorded) {
            None => Ok(round),
            Some(_) if self.monitor.stops().iter().any(|stop| stop.interrupted) => {
                Err(ShardingError::Interrupted)
            }
            Some(error) => Err(error),
        }
    }

    pub(super) fn await_next(&mut self) -> Result<Option<NextRound>, ShardingError> {
        let key = self.next_key();
        loop {
            // After a signal on this shard, shard 0 ends the run for all, so that this one waits for it no longer.
            if self.access.settings.stop.level() >= Level::Drain {
                let _ = self.monitor.check_stop();
                self.ended = true;
                return Ok(None);
            }
            if let Some(next) = self.access.read::<Next>(Level::Drain, &key)? {
                self.announced = next.round.is_some();
                self.ended = next.round.is_none();
                return match next.end {
                    Some(end) if !end.success => Err(ShardingError::EndedByFirst(end.reason)),
                    _ => Ok(next.round),
                };
            }
            self.monitor.check_first()?;
            self.access.settings.clock.sleep(self.access.poll);
        }
    }

    /// Ends the run for the shards that wait for shard 0.
    pub(super) fn announce_end(&mut self, end: &RunEnd) {
        if self.ended {
            return;
        }
        let nonce = self.access.settings.nonce.clone();
        // One attempt: without a store, the missing heartbeats end the others.
        let (key, bytes) = if self.announced {
            let key = self.go_key();
            let go = Go {
                nonce,
                end: Some(end.clone()),
                ..Go::default()
            };
            (key, serde_json::to_vec(&go))
        } else {
            let next = Next {
                nonce,
                end: Some(end.clone()),
                round: None,
            };
            (self.next_key(), serde_json::to_vec(&next))
        };
        if let Ok(bytes) = bytes {
            let _ = self.access.settings.store.create(&key, &bytes);
        }
    }

    fn next_key(&self) -> String {
        format!("next/{}", self.next)
    }

    fn go_key(&self) -> String {
        format!("go/{}", self.next)
    }

    pub(super) fn pass_barrier(&mut self, lead: Duration) -> Result<GroupStart, ShardingError> {
        self.monitor.begin_round(self.next);
        self.check_identity()?;
        let lead = Nanos::from(lead);
        let (zero, mut round) = if self.access.settings.shard.is_first() {
            self.announce_zero(lead)?
        } else {
            self.await_zero(lead)?
        };
        round.late = self.access.now() + lead > zero;
        self.monitor.set_zero(zero);
        self.round = Some(round);
        self.announced = false;
        self.next += 1;
        Ok(GroupStart {
            number: round.number,
            zero,
            late: round.late,
        })
    }

    fn write_ready(&self, lead_time: Nanos, sent: Nanos) -> Result<(), ShardingError> {
        let ready = Ready {
            nonce: self.access.settings.nonce.clone(),
            lead_time,
            sent,
        };
        let key = format!("ready/{}/{}", self.next, self.access.index());
        self.access.create(Level::Drain, &key, &ready)
    }

    /// On shard 0: chooses time zero when all shards are ready.
    fn announce_zero(&mut self, lead: Nanos) -> Result<(Nanos, RunningRound), ShardingError> {
        self.write_ready(lead, self.access.now())?;
        let (longest, delay) = self.await_ready()?;
        if self.next == 0 {
            self.note_slow_store(delay);
        }
        let access = &self.access;
        let doublings = 1 << self.late_rounds.min(MOST_DOUBLINGS);
        let margin = LEAST_MARGIN.max(access.poll * MARGIN_POLLS) * doublings;
        let clock = access.settings.clock.read();
        let zero = access.now() + longest + margin.into();
        let go = Go {
            nonce: access.settings.nonce.clone(),
            zero,
            clock,
            end: None,
        };
        access.create(Level::Drain, &self.go_key(), &go)?;
        let by_wall_clock = |source| source == OffsetSource::Kernel;
        let source = if (self.members.iter()).any(|member| by_wall_clock(self.source_of(member))) {
            OffsetSource::Kernel
        } else {
            OffsetSource::BootId
        };
        let round = RunningRound {
            number: self.next,
            late: false,
            offset: ClockOffset {
                source,
                ..ClockOffset::default()
            },
            interval: OffsetInterval::default(),
            clock,
        };
        Ok((zero, round))
    }

    /// Waits until all shards are ready. Returns the longest time to open connections, and the longest delay of an
    /// object.
    fn await_ready(&self) -> Result<(Nanos, Nanos), ShardingError> {
        let access = &self.access;
        let prefix = format!("ready/{}", self.next);
        let begin = access.now();
        let mut responder = Responder::new(self.next.to_string(), self.exchanging_shards(), begin);
        let mut ready = BTreeMap::new();
        let mut delay = Nanos::ZERO;
        loop {
            let pause = responder.answer(access, Level::Drain)?;
            let listed = access.list_shards(Level::Drain, &prefix)?;
            let new = listed
                .into_iter()
                .filter(|index| !ready.contains_key(index));
            for (index, found) in access.read_shards::<Ready>(Level::Drain, &prefix, new)? {
                delay = delay.max(access.now().since(found.sent.max(begin)));
                ready.insert(index, found.lead_time);
            }
            if ready.len() == access.count() as usize {
                let longest = ready.into_values().max().unwrap_or_default();
                return Ok((longest, delay));
            }
            self.monitor.check_stop()?;
            if self.waited_too_long(begin) {
                let present: Vec<u32> = ready.keys().copied().collect();
                let what = format!("were ready for round {}", self.next + 1);
                return Err(self.missing_error(what, &present));
            }
            access.settings.clock.sleep(pause);
        }
    }

    fn note_slow_store(&mut self, delay: Nanos) {
        if self.access.settings.store.is_folder() && Duration::from(delay) > SLOW_STORE {
            self.notes.push(format!(
                "an object at {} became visible after {:.0} s; mount the folder with `lookupcache=positive`",
                self.access.settings.store.url(),
                delay.secs()
            ));
        }
    }

    /// On another shard: waits for time zero. Shard 0 may start a server before, so that only its heartbeats limit
    /// the wait.
    fn await_zero(&self, lead: Nanos) -> Result<(Nanos, RunningRound), ShardingError> {
        let relation = self.relate_clocks()?;
        let access = &self.access;
        let own = access.settings.clock.read();
        let sent = i128::from(own.now.0) - i128::from(relation.ahead(&own, &relation.first));
        self.write_ready(lead, Nanos(u64::try_from(sent).unwrap_or(0)))?;
        let key = self.go_key();
        let go = loop {
            if let Some(go) = access.read::<Go>(Level::Drain, &key)? {
                break go;
            }
            self.monitor.check_stop()?;
            access.settings.clock.sleep(access.poll);
        };
        if let Some(end) = go.end {
            return Err(ShardingError::EndedByFirst(end.reason));
        }
        // The wall clock is read again: it may have stepped since the run started.
        let clock = access.settings.clock.read();
        let ahead = relation.ahead(&clock, &go.clock);
        let zero = i128::from(go.zero.0) + i128::from(ahead);
        let offset = match relation.offset.source {
            OffsetSource::Kernel => ClockOffset {
                bound_ns: match (clock.error_ns, go.clock.error_ns) {
                    (Some(own), Some(first)) => own + first,
                    // A kernel is not synchronized any more.
                    _ => UNSYNCHRONIZED.max(relation.offset.bound_ns),
                },
                ..relation.offset
            },
            OffsetSource::BootId | OffsetSource::Exchange => relation.offset,
        };
        let round = RunningRound {
            number: self.next,
            late: false,
            offset,
            interval: relation.interval,
            clock,
        };
        Ok((Nanos(u64::try_from(zero).unwrap_or(0)), round))
    }

    /// How the clock of this shard relates to that of shard 0, from the best source.
    fn relate_clocks(&self) -> Result<Relation, ShardingError> {
        let own = self.members.get(self.access.index() as usize);
        let first = self.members.first().map(|first| first.clock);
        let first = first.unwrap_or_default();
        let source = own.map_or(OffsetSource::Exchange, |own| self.source_of(own));
        if source != OffsetSource::Exchange {
            return Ok(Relation {
                offset: ClockOffset {
                    source,
                    ..ClockOffset::default()
                },
                interval: OffsetInterval::default(),
                first,
                ahead: None,
            });
        }
        let name = self.next.to_string();
        let exchanged = exchange(&self.access, &self.monitor, &name, None)?;
        Ok(Relation::from_exchange(&exchanged))
    }
}

/// The relation of two clocks.
struct Relation {
    offset: ClockOffset,
    interval: OffsetInterval,
    first: ClockReading,
    /// By how much the clock of this shard is ahead of that of shard 0, from an exchange.
    ahead: Option<i64>,
}

impl Relation {
    fn from_exchange(exchanged: &Exchanged) -> Relation {
        let Exchanged {
            interval,
            first,
            own,
        } = *exchanged;
        // The wall clocks are taken as equal unless the messages exclude it.
        let equal = first.unix_origin() - own.unix_origin();
        let offset = interval.shifted(-equal).offset();
        Relation {
            ahead: Some(equal + offset.offset_ns),
            offset,
            interval,
            first,
        }
    }

    /// By how much the clock of this shard is ahead of that of shard 0. Both count from the start of their process.
    fn ahead(&self, own: &ClockReading, first: &ClockReading) -> i64 {
        match (self.ahead, self.offset.source) {
            (Some(ahead), _) => ahead,
            (None, OffsetSource::BootId) => first.monotonic_origin() - own.monotonic_origin(),
            (None, _) => first.unix_origin() - own.unix_origin(),
        }
    }
}
