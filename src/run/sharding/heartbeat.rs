//! Heartbeats: one thread writes that this shard works, and reads what the others wrote. It is the only thread that
//! uses the store while requests are sent. Each of its calls is one attempt with the time limit of the store; what
//! fails is left until the next heartbeat.

use crate::run::sharding::Decide;
use crate::run::sharding::access::StoreAccess;
use crate::run::sharding::error::ShardingError;
use crate::run::sharding::messages::{Heartbeat, RoundCounts, StopReason};
use crate::run::stop::{Level, Stop};
use llmscen_core::units::Nanos;
use llmscen_telemetry::process::lower_thread_priority;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Intervals without a heartbeat after which a shard is lost.
const LOST_AFTER: u32 = 5;
/// Intervals after which its records are not awaited.
const GIVEN_UP_AFTER: u32 = 10;
/// How often the thread checks the switch of the run.
const SWITCH_INTERVAL: Duration = Duration::from_millis(100);

/// The state of the other shards, shared by the thread and the group.
pub(super) struct Monitor {
    pub access: StoreAccess,
    interval: Duration,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Hosts of all shards; empty until all have joined.
    hosts: Vec<String>,
    /// The round that runs, or is prepared.
    number: u32,
    /// Its time zero, once known.
    zero: Option<Nanos>,
    watch: Option<Watch>,
    /// Why the round was drained, unless by an early stop.
    interruption: Option<String>,
    observed: BTreeMap<u32, Observed>,
    /// Objects below `stop/`, by key.
    stops: BTreeMap<String, StopReason>,
    /// Objects below `stop/` that this shard has still to write.
    unwritten: BTreeMap<String, StopReason>,
    /// A shard that was lost, as a reason to end the run.
    lost: BTreeMap<u32, Loss>,
    heartbeats: u64,
    leaving: bool,
    left: bool,
}

/// The round that runs.
struct Watch {
    stop: Stop,
    counts: Arc<Mutex<RoundCounts>>,
    decide: Option<Decide>,
}

/// The heartbeats of one shard.
#[derive(Default)]
struct Observed {
    last: Heartbeat,
    /// When it last changed.
    at: Nanos,
    /// How often it was read since then.
    unchanged: u32,
    /// When the shard last ran a round.
    in_round: Nanos,
}

/// How a shard was lost.
#[derive(Clone, Copy)]
pub(super) struct Loss {
    /// Its last heartbeat, as read here.
    pub at: Nanos,
    /// Time zero of the round in which it was lost, if one ran.
    pub zero: Option<Nanos>,
}

impl Monitor {
    pub fn new(access: StoreAccess) -> Monitor {
        let interval = Duration::from_millis(10) * access.count();
        Monitor {
            interval: interval.max(Duration::from_secs(2)),
            access,
            state: Mutex::default(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All shards have joined: from now on each one must have heartbeats.
    pub fn begin(&self, hosts: Vec<String>) {
        self.state().hosts = hosts;
    }

    pub fn begin_round(&self, number: u32) {
        let mut state = self.state();
        state.number = number;
        state.zero = None;
        state.interruption = None;
    }

    /// Why this shard drained the round before its end, unless by an early stop.
    pub fn interruption(&self) -> Option<String> {
        self.state().interruption.clone()
    }

    pub fn set_zero(&self, zero: Nanos) {
        self.state().zero = Some(zero);
    }

    pub fn watch(&self, stop: Stop, counts: Arc<Mutex<RoundCounts>>, decide: Option<Decide>) {
        let mut state = self.state();
        state.watch = Some(Watch {
            stop,
            counts,
            decide,
        });
        state.press();
    }

    pub fn end_watch(&self) {
        self.state().watch = None;
    }

    /// Why the run ends early, if it does.
    pub fn run_stop(&self) -> Option<StopReason> {
        self.state().run_stop()
    }

    /// The reasons that end a round early, or the run.
    pub fn stops_of(&self, round: u32) -> Vec<StopReason> {
        let prefix = format!("stop/{round}/");
        let state = self.state();
        let concerns_round = |(key, stop): &(&String, &StopReason)| {
            stop.early_stop.is_none() || key.starts_with(&prefix)
        };
        let stops = state.stops.iter().filter(concerns_round);
        stops.map(|(_, stop)| stop.clone()).collect()
    }

    /// Every reason so far.
    pub fn stops(&self) -> Vec<StopReason> {
        self.state().stops.values().cloned().collect()
    }

    pub fn loss(&self, index: u32) -> Option<Loss> {
        self.state().lost.get(&index).copied()
    }

    /// The newest counts of the round, by shard.
    pub fn counts(&self) -> BTreeMap<u32, RoundCounts> {
        let state = self.state();
        let mut counts = state.counts();
        if let Some(watch) = &state.watch {
            counts.insert(self.access.index(), watch.current());
        }
        counts
    }

    /// Whether the shard has had no heartbeat for so long that its records are not awaited.
    pub fn is_given_up(&self, index: u32) -> bool {
        let state = self.state();
        let observed = state.observed.get(&index);
        observed.is_some_and(|observed| observed.unchanged >= GIVEN_UP_AFTER)
    }

    /// When the shard last ran a round, as far as known.
    pub fn last_in_round(&self, index: u32) -> Nanos {
        let state = self.state();
        let observed = state.observed.get(&index);
        observed.map_or(Nanos::ZERO, |observed| observed.in_round)
    }

    /// The error if shard 0 is lost: without it no round starts.
    pub fn check_first(&self) -> Result<(), ShardingError> {
        match self.loss(0) {
            Some(_) => Err(self.lost_error(0)),
            None => Ok(()),
        }
    }

    /// The error if the run was stopped, here or elsewhere. A signal on this shard is reported to the others.
    pub fn check_stop(&self) -> Result<(), ShardingError> {
        if self.access.settings.stop.level() >= Level::Drain {
            self.report_interruption();
            self.write_stops();
            return Err(ShardingError::Interrupted);
        }
        self.check_first()?;
        match self.run_stop() {
            None => Ok(()),
            Some(stop) => Err(match stop.lost {
                Some(lost) => self.lost_error(lost),
                None => ShardingError::Stopped {
                    index: stop.index,
                    host: stop.host,
                    reason: stop.reason,
                },
            }),
        }
    }

    fn lost_error(&self, index: u32) -> ShardingError {
        ShardingError::Lost {
            index,
            host: self.host(index),
            silence: self.interval * LOST_AFTER,
            url: self.access.settings.store.url(),
        }
    }

    pub fn host(&self, index: u32) -> String {
        let hosts = &self.state().hosts;
        hosts.get(index as usize).cloned().unwrap_or_default()
    }

    /// Ends the run for all shards, for this reason.
    pub fn stop_run(&self, reason: &str) {
        self.add_own_stop(StopReason {
            reason: reason.to_owned(),
            ..StopReason::default()
        });
        self.write_stops();
    }

    fn report_interruption(&self) {
        let interrupted = |stop: &StopReason| stop.interrupted && stop.index == self.access.index();
        if !self.state().stops.values().any(interrupted) {
            self.add_own_stop(StopReason {
                reason: "interrupted".into(),
                interrupted: true,
                ..StopReason::default()
            });
        }
    }

    /// The first reason of each shard and round is the one that counts.
    fn add_own_stop(&self, stop: StopReason) {
        let index = self.access.index();
        let stop = StopReason {
            index,
            host: self.access.settings.hello.host.clone(),
            ..stop
        };
        let mut state = self.state();
        // A reason that ends the run does not wait for the end of an early stop.
        let key = if stop.early_stop.is_some() {
            format!("stop/{}/{index}", state.number)
        } else {
            format!("stop/{}/{index}-run", state.number)
        };
        if !state.stops.contains_key(&key) {
            state.stops.insert(key.clone(), stop.clone());
            state.unwritten.insert(key, stop);
            state.press();
        }
    }

    /// Writes the own reasons that are not yet written.
    fn write_stops(&self) {
        let unwritten = self.state().unwritten.clone();
        for (key, stop) in unwritten {
            let Ok(bytes) = self.access.render(&key, &stop) else {
                continue;
            };
            if self.access.settings.store.put(&key, &bytes).is_ok() {
                self.state().unwritten.remove(&key);
            }
        }
    }

    /// Runs the thread until [`Monitor::leave`].
    pub fn run(&self) {
        lower_thread_priority();
        let clock = &self.access.settings.clock;
        let mut due = clock.now();
        while !self.state().leaving {
            if self.access.settings.stop.level() >= Level::Drain {
                self.report_interruption();
                self.write_stops();
            }
            if clock.now() >= due {
                self.beat();
                due = clock.now() + self.interval.into();
            }
            let rest = Duration::from(due.since(clock.now()));
            clock.sleep(rest.min(SWITCH_INTERVAL));
        }
        self.write_stops();
        self.state().left = true;
    }

    /// Ends the thread. False if a call to the store keeps it.
    pub fn leave(&self) -> bool {
        self.state().leaving = true;
        let clock = &self.access.settings.clock;
        let end = clock.now() + (self.interval * LOST_AFTER).into();
        while !self.state().left && clock.now() < end {
            clock.sleep(Duration::from_millis(20));
        }
        self.state().left
    }

    fn beat(&self) {
        let written = self.write_heartbeat();
        self.write_stops();
        if self.state().hosts.is_empty() {
            // Others may not have started. A signal on one of them ends the wait for all.
            let _ = self.read_stops();
            return;
        }
        // A store that takes no heartbeat of this shard takes none of the others: their silence says nothing.
        if written && self.read_heartbeats().is_ok() {
            self.find_losses();
        }
        let _ = self.read_stops();
        self.decide();
        self.write_stops();
    }

    /// Whether the store took it.
    fn write_heartbeat(&self) -> bool {
        let heartbeat = {
            let mut state = self.state();
            state.heartbeats += 1;
            Heartbeat {
                nonce: self.access.settings.nonce.clone(),
                number: state.heartbeats,
                round: state.watch.as_ref().map(|_| state.number),
                counts: state.watch.as_ref().map(Watch::current).unwrap_or_default(),
            }
        };
        let key = format!("heartbeat/{}", self.access.index());
        match self.access.render(&key, &heartbeat) {
            Ok(bytes) => self.access.settings.store.put(&key, &bytes).is_ok(),
            Err(_) => false,
        }
    }

    /// Reads the heartbeats of the shards that this one watches: shard 0 watches all, the others watch shard 0.
    fn read_heartbeats(&self) -> Result<(), ShardingError> {
        let watched = if self.access.index() == 0 {
            1..self.access.count()
        } else {
            0..1
        };
        let keys: Vec<String> = (watched.clone())
            .map(|index| format!("heartbeat/{index}"))
            .collect();
        let read = self.access.for_each(&keys, |key| {
            let found = self.access.settings.store.get(key)?;
            let parse = |bytes: Vec<u8>| self.access.parse(key, &bytes).unwrap_or_default();
            Ok(found.map_or_else(Heartbeat::default, parse))
        });
        let read: Result<Vec<Heartbeat>, ShardingError> = read.into_iter().collect();
        let read = read?;
        let now = self.access.now();
        let mut state = self.state();
        for (index, heartbeat) in watched.zip(read) {
            let observed = state.observed.entry(index).or_insert_with(|| Observed {
                at: now,
                ..Observed::default()
            });
            // Intervals are counted only where the store could be read, so that an outage is no loss.
            let last = (&observed.last.nonce, observed.last.number);
            if (&heartbeat.nonce, heartbeat.number) == last {
                observed.unchanged += 1;
                continue;
            }
            if heartbeat.round.is_some() {
                observed.in_round = now;
            }
            // A shard that has ended the round keeps its counts in the sums.
            let heartbeat = match heartbeat.round {
                Some(_) => heartbeat,
                None => Heartbeat {
                    round: observed.last.round,
                    counts: observed.last.counts.clone(),
                    ..heartbeat
                },
            };
            (observed.last, observed.at, observed.unchanged) = (heartbeat, now, 0);
        }
        Ok(())
    }

    fn find_losses(&self) {
        let mut state = self.state();
        let zero = state.zero.filter(|_| state.watch.is_some());
        let silent: Vec<(u32, Nanos)> = state
            .observed
            .iter()
            .filter(|(index, observed)| {
                observed.unchanged >= LOST_AFTER && !state.lost.contains_key(index)
            })
            .map(|(index, observed)| (*index, observed.at))
            .collect();
        for (index, at) in &silent {
            state.lost.insert(*index, Loss { at: *at, zero });
        }
        state.press();
        drop(state);
        // Once the run ends, a shard that has delivered its records may leave.
        if self.access.index() != 0 || self.run_stop().is_some() {
            return;
        }
        for (index, _) in silent {
            let host = self.host(index);
            self.add_own_stop(StopReason {
                reason: format!("shard {index} ({host}) was lost"),
                lost: Some(index),
                ..StopReason::default()
            });
        }
    }

    fn read_stops(&self) -> Result<(), ShardingError> {
        let store = &self.access.settings.store;
        for key in store.list("stop")? {
            if self.state().stops.contains_key(&key) {
                continue;
            }
            let Some(bytes) = store.get(&key)? else {
                continue;
            };
            // A reason that cannot be read is one nevertheless.
            let stop = self
                .access
                .parse(&key, &bytes)
                .unwrap_or_else(|error| StopReason {
                    reason: error.to_string(),
                    ..StopReason::default()
                });
            self.state().stops.insert(key, stop);
        }
        self.state().press();
        Ok(())
    }

    fn decide(&self) {
        let counts = self.counts();
        // The callback runs without the lock, so that it may use the group.
        let decide = self
            .state()
            .watch
            .as_mut()
            .and_then(|watch| watch.decide.take());
        let Some(mut decide) = decide else { return };
        let early_stop = decide(&counts);
        if let Some(watch) = &mut self.state().watch {
            watch.decide = Some(decide);
        }
        if let Some(early_stop) = early_stop {
            self.add_own_stop(StopReason {
                reason: "early stop".into(),
                early_stop: Some(early_stop),
                ..StopReason::default()
            });
        }
    }
}

impl State {
    fn run_stop(&self) -> Option<StopReason> {
        let ends_run = |stop: &&StopReason| stop.early_stop.is_none();
        self.stops.values().find(ends_run).cloned()
    }

    /// Presses the switch of the round if it, or the run, was stopped. A second press would cancel requests.
    fn press(&mut self) {
        let Some(watch) = self
            .watch
            .as_ref()
            .filter(|watch| watch.stop.level() == Level::Run)
        else {
            return;
        };
        let of_round = format!("stop/{}/", self.number);
        let run_stop = self.stops.values().find(|stop| stop.early_stop.is_none());
        if self.lost.contains_key(&0) {
            self.interruption = Some("shard 0 was lost".to_owned());
        } else if let Some(stop) = run_stop {
            let StopReason {
                index,
                host,
                reason,
                ..
            } = stop;
            self.interruption = Some(format!("shard {index} ({host}) ended the run: {reason}"));
        } else if !self.stops.keys().any(|key| key.starts_with(&of_round)) {
            return;
        }
        watch.stop.press();
    }

    /// The newest counts of the other shards in this round.
    fn counts(&self) -> BTreeMap<u32, RoundCounts> {
        let of_round = |observed: &&Observed| observed.last.round == Some(self.number);
        self.observed
            .iter()
            .filter(|(_, observed)| of_round(observed))
            .map(|(index, observed)| (*index, observed.last.counts.clone()))
            .collect()
    }
}

impl Watch {
    fn current(&self) -> RoundCounts {
        let counts = self.counts.lock();
        counts.unwrap_or_else(PoisonError::into_inner).clone()
    }
}
