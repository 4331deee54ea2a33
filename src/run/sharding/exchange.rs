//! The exchange of messages that bounds the difference of two clocks, where the kernels do not synchronize them.

use crate::run::sharding::access::StoreAccess;
use crate::run::sharding::clock::{ClockReading, OffsetInterval};
use crate::run::sharding::error::ShardingError;
use crate::run::sharding::heartbeat::Monitor;
use crate::run::sharding::messages::ClockMessage;
use crate::run::stop::Level;
use llmscen_core::units::Nanos;
use std::collections::BTreeSet;
use std::time::Duration;

/// Messages in each direction. The nearest ones give the bound.
const MESSAGES: u32 = 16;
/// While messages are expected, the store is read at this interval: the bound is about half of it.
const FOLDER_POLL: Duration = Duration::from_millis(1);
const BUCKET_POLL: Duration = Duration::from_millis(20);
/// After this time without a message, it is read at the usual interval.
const ACTIVE_FOR: Duration = Duration::from_millis(200);

/// Result of an exchange, on the clocks that count from the start of each process' run.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Exchanged {
    pub interval: OffsetInterval,
    /// The clocks of shard 0 at its last answer.
    pub first: ClockReading,
    /// The clocks of this shard then.
    pub own: ClockReading,
}

fn fast_poll(access: &StoreAccess) -> Duration {
    if access.settings.store.is_folder() {
        FOLDER_POLL
    } else {
        BUCKET_POLL
    }
}

/// Sends messages to shard 0 and reads its answers. `exchange` names the exchange, as `3` or `3-end`. `limit`: until
/// when answers are awaited.
///
/// # Errors
/// The run was stopped, shard 0 is silent, or the store cannot be used. No answer within the limit is no error: the
/// interval is open.
pub(super) fn exchange(
    access: &StoreAccess,
    monitor: &Monitor,
    exchange: &str,
    limit: Option<Nanos>,
) -> Result<Exchanged, ShardingError> {
    let clock = &access.settings.clock;
    let index = access.index();
    let mut result = Exchanged::default();
    for number in 0..MESSAGES {
        let mut message = ClockMessage {
            sent: clock.now(),
            clock: clock.read(),
            received: Nanos::ZERO,
        };
        // Time that a retry takes would only widen the interval, so that the first attempt's time is kept.
        access.create(
            Level::Drain,
            &format!("clock/{exchange}/{index}/{number}"),
            &message,
        )?;
        let key = format!("clock/answer/{exchange}/{index}/{number}");
        let begin = clock.now();
        let answer = loop {
            if let Some(answer) = access.read::<ClockMessage>(Level::Drain, &key)? {
                break answer;
            }
            monitor.check_stop()?;
            if limit.is_some_and(|limit| clock.now() >= limit) {
                return Ok(result);
            }
            clock.sleep(poll_since(access, begin));
        };
        message.received = clock.now();
        let as_signed = |time: Nanos| time.0 as i64;
        let interval = &mut result.interval;
        interval.add_sent(as_signed(message.sent), as_signed(answer.received));
        interval.add_received(as_signed(answer.sent), as_signed(message.received));
        (result.first, result.own) = (answer.clock, clock.read());
    }
    Ok(result)
}

/// Short while the exchange is active, the usual interval afterwards.
fn poll_since(access: &StoreAccess, active: Nanos) -> Duration {
    if Duration::from(access.now().since(active)) < ACTIVE_FOR {
        fast_poll(access).min(access.poll)
    } else {
        access.poll
    }
}

/// The answers of shard 0.
pub(super) struct Responder {
    exchange: String,
    answered: BTreeSet<String>,
    /// Answers that end the exchange.
    expected: usize,
    active: Nanos,
}

impl Responder {
    /// Answers the messages of `shards` shards.
    pub fn new(exchange: String, shards: usize, now: Nanos) -> Responder {
        Responder {
            exchange,
            answered: BTreeSet::new(),
            expected: shards * MESSAGES as usize,
            active: now,
        }
    }

    /// Answers new messages. Returns the pause until it should be called again.
    pub fn answer(
        &mut self,
        access: &StoreAccess,
        level: Level,
    ) -> Result<Duration, ShardingError> {
        if self.answered.len() >= self.expected {
            return Ok(access.poll);
        }
        let clock = &access.settings.clock;
        let prefix = format!("clock/{}", self.exchange);
        let messages = access.retry(level, || access.settings.store.list(&prefix))?;
        // A listed message was written before this time; its content is for its sender only.
        let received = clock.now();
        for message in messages {
            if self.answered.contains(&message) {
                continue;
            }
            let answer = ClockMessage {
                received,
                sent: clock.now(),
                clock: clock.read(),
            };
            let key = message.replacen("clock/", "clock/answer/", 1);
            access.create(level, &key, &answer)?;
            self.answered.insert(message);
            self.active = clock.now();
        }
        Ok(poll_since(access, self.active))
    }
}
