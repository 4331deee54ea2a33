//! Switches that end a run or a round early.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use tokio::sync::watch;

/// How urgently to end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Continue.
    #[default]
    Run,
    /// Send nothing more, let requests in flight finish within the drain time, save, report.
    Drain,
    /// Cancel requests in flight, save, report.
    Now,
}

/// A switch that any thread may press and all workers watch.
#[derive(Clone, Debug)]
pub struct Stop(Arc<Switch>);

#[derive(Debug)]
struct Switch {
    level: watch::Sender<Level>,
    /// The run is reading its datasets, and may not check the level.
    is_preparing: AtomicBool,
    /// Switches whose level is at least that of this one.
    children: Mutex<Vec<Weak<Switch>>>,
    /// Keeps the parent alive as long as its children.
    _parent: Option<Arc<Switch>>,
}

impl Switch {
    fn new(level: Level, parent: Option<Arc<Switch>>) -> Arc<Switch> {
        Arc::new(Switch {
            level: watch::Sender::new(level),
            is_preparing: AtomicBool::new(false),
            children: Mutex::default(),
            _parent: parent,
        })
    }

    fn raise(&self, to: Level) {
        self.level.send_modify(|level| *level = to.max(*level));
        let children = self
            .children
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        children
            .iter()
            .filter_map(Weak::upgrade)
            .for_each(|switch| switch.raise(to));
    }
}

impl Default for Stop {
    fn default() -> Stop {
        Stop(Switch::new(Level::Run, None))
    }
}

impl Stop {
    /// A switch for a part of the work: pressing this one presses the child too, but not vice versa.
    pub fn child(&self) -> Stop {
        let mut children = self
            .0
            .children
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        children.retain(|switch| switch.strong_count() > 0);
        let child = Switch::new(self.level(), Some(self.0.clone()));
        children.push(Arc::downgrade(&child));
        Stop(child)
    }

    /// The first press drains, the second one stops at once.
    pub fn press(&self) {
        self.0.raise(if self.level() == Level::Run {
            Level::Drain
        } else {
            Level::Now
        });
    }

    /// The level of the switch.
    pub fn level(&self) -> Level {
        *self.0.level.borrow()
    }

    /// Says whether datasets are being read: nothing is in flight yet, so a stop may end the process.
    pub fn set_preparing(&self, is_preparing: bool) {
        self.0.is_preparing.store(is_preparing, Ordering::Release);
    }

    /// The latest value of [`Stop::set_preparing`], at first false.
    pub fn is_preparing(&self) -> bool {
        self.0.is_preparing.load(Ordering::Acquire)
    }

    /// Resolves when the switch is at `level` or above.
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
        let first = run.child().child();
        let second = run.child();
        first.press();
        first.reached(Level::Drain).await;
        assert_eq!(
            [run.level(), first.level(), second.level()],
            [Level::Run, Level::Drain, Level::Run]
        );
        run.press();
        second.reached(Level::Drain).await;
        run.press();
        first.reached(Level::Now).await;
        assert_eq!([first.level(), second.level()], [Level::Now; 2]);
    }
}
