//! Who may send in a closed loop, and from when on.

use crate::engine::http::Finished;
use crate::model::outcome::FailureKind;
use crate::run::drive::Drive;
use std::rc::Rc;
use std::time::Duration;
use tokio::task::{JoinHandle, spawn_local};

/// A user whose connection is refused by a server under management waits so long before its slot is free again: the port of one
/// that has ended refuses faster than its end can be heard of.
const REFUSED: Duration = Duration::from_millis(10);

impl Drive {
    /// Starts what lets users come and go, or opens the rounds of a static load, beside the loop that sends.
    pub(super) fn staff(self: &Rc<Self>) -> Option<JoinHandle<()>> {
        let this = self.clone();
        if let Some(rounds) = &self.rounds {
            let mut openings = rounds.openings();
            return Some(spawn_local(async move {
                while openings.changed().await.is_ok() {
                    let opened = *openings.borrow_and_update();
                    this.gate.refill(opened);
                }
            }));
        }
        self.gate.next_change()?;
        Some(spawn_local(async move {
            while let Some(at) = this.gate.next_change() {
                this.changes.until(this.clock.instant(at)).await;
                this.gate.pass(at);
            }
        }))
    }

    /// Waits where a server under management refused the connection.
    pub(super) async fn rest(&self, last: Option<&Finished>) {
        let refused = |last: &Finished| matches!(&last.outcome.end, Err(failure) if failure.kind == FailureKind::Connect);
        if self.managed && self.closed && last.is_some_and(refused) {
            tokio::time::sleep(REFUSED).await;
        }
    }
}
