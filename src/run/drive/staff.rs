//! Who may send in a closed loop, and from when on.

use crate::run::drive::Drive;
use std::rc::Rc;
use tokio::task::{JoinHandle, spawn_local};

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
}
