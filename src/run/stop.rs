//! How a run is told to end before its plan does.

use tokio::sync::watch;

/// How urgently.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Go on.
    #[default]
    Run,
    /// Send nothing more, give requests in flight their grace, save, report.
    Drain,
    /// Give up requests in flight, save, report.
    Now,
}

/// A switch that any thread may press and every lane watches.
#[derive(Clone, Debug)]
pub struct Stop(watch::Sender<Level>);

impl Default for Stop {
    fn default() -> Stop {
        Stop(watch::Sender::new(Level::Run))
    }
}

impl Stop {
    /// The first press drains, the second one stops at once.
    pub fn press(&self) {
        self.0.send_modify(|level| *level = if *level == Level::Run { Level::Drain } else { Level::Now });
    }

    /// Where the switch stands.
    pub fn level(&self) -> Level {
        *self.0.borrow()
    }

    /// Resolves when the switch stands at `level` or beyond.
    pub async fn reached(&self, level: Level) {
        // The sender lives in self, so the wait cannot fail.
        let _ = self.0.subscribe().wait_for(|now| *now >= level).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn two_presses_go_from_run_to_drain_to_now() {
        let stop = Stop::default();
        assert_eq!(stop.level(), Level::Run);
        stop.clone().press();
        stop.reached(Level::Drain).await;
        assert_eq!(stop.level(), Level::Drain);
        stop.press();
        stop.press();
        stop.reached(Level::Now).await;
        assert_eq!(stop.level(), Level::Now);
    }
}
