//! How a run is told to end before its plan does.

use std::sync::{Arc, Mutex, PoisonError, Weak};
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

/// A switch that any thread may press and every worker watches.
#[derive(Clone, Debug)]
pub struct Stop(Arc<Switch>);

#[derive(Debug)]
struct Switch {
    level: watch::Sender<Level>,
    /// Switches that stand at least where this one stands.
    below: Mutex<Vec<Weak<Switch>>>,
    /// Lives as long as whatever stands below it.
    _above: Option<Arc<Switch>>,
}

impl Switch {
    fn at(level: Level, above: Option<Arc<Switch>>) -> Arc<Switch> {
        Arc::new(Switch { level: watch::Sender::new(level), below: Mutex::default(), _above: above })
    }

    fn raise(&self, to: Level) {
        self.level.send_modify(|level| *level = to.max(*level));
        let below = self.below.lock().unwrap_or_else(PoisonError::into_inner).clone();
        below.iter().filter_map(Weak::upgrade).for_each(|switch| switch.raise(to));
    }
}

impl Default for Stop {
    fn default() -> Stop {
        Stop(Switch::at(Level::Run, None))
    }
}

impl Stop {
    /// A switch for a part of the work: what is pressed here is pressed there too, and not the other way round.
    pub fn below(&self) -> Stop {
        let mut below = self.0.below.lock().unwrap_or_else(PoisonError::into_inner);
        below.retain(|switch| switch.strong_count() > 0);
        let part = Switch::at(self.level(), Some(self.0.clone()));
        below.push(Arc::downgrade(&part));
        Stop(part)
    }

    /// The first press drains, the second one stops at once.
    pub fn press(&self) {
        self.0.raise(if self.level() == Level::Run { Level::Drain } else { Level::Now });
    }

    /// Where the switch stands.
    pub fn level(&self) -> Level {
        *self.0.level.borrow()
    }

    /// Resolves when the switch stands at `level` or beyond.
    pub async fn reached(&self, level: Level) {
        // The sender lives in self, so the wait cannot fail.
        let _ = self.0.level.subscribe().wait_for(|now| *now >= level).await;
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

    #[tokio::test]
    async fn a_round_is_stopped_by_itself_and_by_the_run() {
        let run = Stop::default();
        let (first, second) = (run.below().below(), run.below());
        first.press();
        first.reached(Level::Drain).await;
        assert_eq!([run.level(), first.level(), second.level()], [Level::Run, Level::Drain, Level::Run]);
        run.press();
        second.reached(Level::Drain).await;
        run.press();
        first.reached(Level::Now).await;
        assert_eq!([first.level(), second.level()], [Level::Now; 2]);
    }
}
