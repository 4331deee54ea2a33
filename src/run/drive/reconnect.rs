//! After a connection that failed: its user waits, and a target that stays away is lost.

use crate::run::contact::unreached;
use crate::run::drive::Drive;
use crate::run::stop::Level;
use llmscen_client::http::Finished;
use llmscen_core::schedule::backoff::after_failed_connects;
use std::time::Duration;

/// The last connection to a target that may be lost takes so long at most.
const LAST: Duration = Duration::from_secs(3);

impl Drive {
    /// Hands over the last rows of a request or session, and makes room for the next one. In a closed loop a user whose
    /// connection failed waits before that; `failed` counts its failures in a row before this one. An open loop keeps its
    /// schedule.
    pub(super) async fn conclude(&self, left: Vec<Finished>, failed: u32) {
        let failure = left.first().map(|finished| &finished.outcome).and_then(|own| {
            let why = unreached(own)?.message.clone();
            Some((own.seq, own.turn, own.timeline.end, own.attempts, why))
        });
        let Some((seq, turn, at, attempts, why)) = failure else {
            self.release(0);
            return self.deliver_all(left).await;
        };
        let failed = failed.saturating_add(attempts.max(1));
        if !self.closed {
            self.release(0);
        }
        self.deliver_all(left).await;
        if self.contact.suspects(at) {
            let reached = tokio::time::timeout(LAST, self.engine.reach()).await;
            let gone = !matches!(reached, Ok(Ok(())));
            self.contact.conclude(self.clock.now(), gone.then_some(why.as_str()));
        }
        if self.closed {
            let seed = self.seed.child("reconnect").child(seq).child(u64::from(turn));
            tokio::select! {
                () = tokio::time::sleep(after_failed_connects(failed, seed).into()) => {}
                () = self.spent.reached(Level::Drain) => {}
            }
            self.release(failed);
        }
    }
}
