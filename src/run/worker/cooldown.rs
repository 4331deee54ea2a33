//! The cool-down: unmeasured requests keep the server loaded until the last measured request has ended.

use crate::run::stop::{Level, Stop};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Whether the workers of a round still send unmeasured requests.
#[derive(Debug)]
pub struct Cooldown {
    enabled: bool,
    /// Measured requests or sessions in flight, and workers of an open loop that have measured requests to send.
    pending: AtomicU64,
    /// Whether no further measured request will be sent, except by the workers in `pending`.
    all_sent: AtomicBool,
    over: Stop,
}

impl Cooldown {
    /// That of a round. `senders`: workers of an open loop, each of which has its own measured requests; 0 in a
    /// closed loop.
    pub fn new(enabled: bool, senders: u64) -> Cooldown {
        Cooldown {
            enabled,
            pending: AtomicU64::new(senders),
            all_sent: AtomicBool::new(senders > 0),
            over: Stop::default(),
        }
    }

    /// A measured request or session begins.
    pub fn begin(&self) {
        if self.enabled {
            self.pending.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// A measured request or session has ended, or a worker has sent its last one.
    pub fn end(&self) {
        let is_last = || self.pending.fetch_sub(1, Ordering::AcqRel) == 1;
        if self.enabled && is_last() && self.all_sent.load(Ordering::Acquire) {
            self.over.press();
        }
    }

    /// No further measured request will be sent. Returns whether unmeasured ones follow.
    pub fn starts(&self) -> bool {
        self.all_sent.store(true, Ordering::Release);
        self.enabled && self.over.level() == Level::Run && self.pending.load(Ordering::Acquire) > 0
    }

    /// Resolves when the last measured request has ended; never without a cool-down.
    pub async fn is_over(&self) {
        self.over.reached(Level::Drain).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_over(cooldown: &Cooldown) -> bool {
        cooldown.over.level() > Level::Run
    }

    #[test]
    fn that_of_a_closed_loop_starts_with_the_last_request_and_ends_with_the_last_reply() {
        let cooldown = Cooldown::new(true, 0);
        cooldown.begin();
        cooldown.end();
        assert!(!is_over(&cooldown), "more will be sent");
        cooldown.begin();
        cooldown.begin();
        assert!(cooldown.starts());
        cooldown.end();
        assert!(!is_over(&cooldown) && cooldown.starts());
        cooldown.end();
        assert!(is_over(&cooldown) && !cooldown.starts());
    }

    #[test]
    fn that_of_an_open_loop_waits_for_every_worker() {
        let cooldown = Cooldown::new(true, 2);
        cooldown.begin();
        cooldown.end();
        cooldown.end();
        assert!(!is_over(&cooldown), "one worker still sends");
        cooldown.begin();
        cooldown.end();
        cooldown.end();
        assert!(is_over(&cooldown));
    }

    #[test]
    fn without_one_nothing_follows() {
        let cooldown = Cooldown::new(false, 0);
        cooldown.begin();
        assert!(!cooldown.starts());
        cooldown.end();
        assert!(!is_over(&cooldown));
    }
}
