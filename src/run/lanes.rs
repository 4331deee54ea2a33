//! A lane is one thread with a runtime of its own: its connections, its timer, its share of the load.

use crate::run::drive::Drive;
use crate::run::error::RunError;
use crate::run::meter::Spans;
use crate::run::panics::Alarm;
use crate::run::stall_log::StallLog;
use crate::run::stop::Stop;
use llmscen_client::clock::Clock;
use llmscen_client::counters::{Gauges, Reading};
use llmscen_client::stalls::{Moment, thread_cpu};
use llmscen_core::manifest::WorkerStalls;
use llmscen_core::plan::Case;
use llmscen_core::target::Place;
use llmscen_core::units::Nanos;
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::runtime;
use tokio::task::LocalSet;
use tokio::time::{Instant, MissedTickBehavior};

/// The tick by which a lane notices that its runtime was late. Each is a wake-up, and with one paced stream they would be most
/// of the work; a stall is found with the probability of its length over this, and those of several ticks always.
const TICK: Duration = Duration::from_millis(10);
/// The runtime's timers fire on whole milliseconds.
const WHEEL: Duration = Duration::from_millis(1);

/// What a lane saw of itself.
#[derive(Default)]
pub struct LaneReport {
    /// When it stopped sending.
    pub sending_until: Nanos,
    /// Lateness of its ticker.
    pub stall: Spans,
    /// Its stalls.
    pub stalls: WorkerStalls,
    /// CPU time of its thread over wall time, 0..=1.
    pub cpu_share: f64,
}

/// A running lane.
pub struct Lane {
    thread: JoinHandle<Result<LaneReport, RunError>>,
    /// Its running totals.
    pub gauges: Arc<Gauges>,
}

impl Lane {
    /// Starts a lane; `build` makes its part of the case on the lane's own thread. Where that fails `halt` is pressed, so
    /// that no other lane goes on alone.
    pub fn start(
        index: usize,
        clock: Clock,
        gauges: Arc<Gauges>,
        halt: Stop,
        build: impl FnOnce() -> Result<Drive, RunError> + Send + 'static,
    ) -> Result<Lane, RunError> {
        let (alarm, own) = (halt.clone(), gauges.clone());
        let thread = std::thread::Builder::new().name(format!("lane-{index}")).spawn(move || {
            let alarm = Alarm(halt);
            live(clock, own, build).inspect_err(|_| alarm.0.press())
        });
        let thread = thread.inspect_err(|_| alarm.press()).map_err(RunError::Thread)?;
        Ok(Lane { thread, gauges })
    }

    /// Waits for its end.
    pub fn finish(self) -> Result<LaneReport, RunError> {
        self.thread.join().map_err(|_| RunError::Panicked("lane"))?
    }
}

/// A lane per core, but never a lane without a user; one for a model in this process, which is to have the cores.
pub fn lane_count(case: &Case) -> usize {
    if let Place::Local(_) = case.target.place {
        return 1;
    }
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    case.load.shape.users().map_or(cores, |users| cores.min(users as usize).max(1))
}

/// The totals of all lanes.
pub fn reading(gauges: &[Arc<Gauges>]) -> Reading {
    gauges.iter().fold(Reading::default(), |sum, lane| lane.add_to(sum))
}

fn live(clock: Clock, gauges: Arc<Gauges>, build: impl FnOnce() -> Result<Drive, RunError>) -> Result<LaneReport, RunError> {
    let runtime = runtime::Builder::new_current_thread().enable_all().build().map_err(RunError::Thread)?;
    let seen = Rc::new(RefCell::new(Seen::default()));
    let began = (std::time::Instant::now(), thread_cpu());
    let sending_until = LocalSet::new().block_on(&runtime, async {
        // Timers and sockets belong to the runtime, so the drive is made inside it.
        let drive = Rc::new(build()?);
        let ticker = tokio::task::spawn_local(tick(clock, gauges, seen.clone()));
        let ended = drive.run().await;
        ticker.abort();
        Ok::<_, RunError>(ended)
    });
    // A name that is still being resolved for a request that was given up must not be waited for.
    runtime.shutdown_background();
    let wall = began.0.elapsed().as_secs_f64();
    let cpu_share = (thread_cpu() - began.1).as_secs_f64() / wall.max(1e-9);
    let Seen { lateness: stall, stalls } = seen.take();
    Ok(LaneReport { sending_until: sending_until?, stall, stalls: stalls.finish(), cpu_share })
}

/// What the ticker of a lane saw.
#[derive(Default)]
struct Seen {
    lateness: Spans,
    stalls: StallLog,
}

/// Records by how much each tick came late, from the start of the case. A tick is due on an absolute instant, and one that
/// was missed is recorded too: a lane that hangs cannot hide it by ticking less. What the timer wheel's own millisecond
/// adds is taken off.
async fn tick(clock: Clock, gauges: Arc<Gauges>, seen: Rc<RefCell<Seen>>) {
    let start = Instant::from_std(clock.instant(Nanos::ZERO));
    let mut ticks = tokio::time::interval_at(start, TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    loop {
        let due = ticks.tick().await;
        let now = Moment::now();
        gauges.stalls.tick(due.into_std(), now, TICK);
        let late = now.at.saturating_duration_since(due.into_std()).saturating_sub(WHEEL);
        let mut seen = seen.borrow_mut();
        seen.lateness.record(late.into());
        let since = |at: Instant| Nanos::from(at.saturating_duration_since(start)).0;
        seen.stalls.tick(since(due), Nanos::from(late).0, since(now.at.into()), Nanos::from(now.cpu).0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::stop::Level;

    /// What the ticker of a lane saw that was blocked for so long, and ran for 60 ms else.
    fn stall_of(blocked: Duration) -> Seen {
        let runtime = runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let seen = Rc::new(RefCell::new(Seen::default()));
        let clock = Clock::starting(std::time::Instant::now());
        LocalSet::new().block_on(&runtime, async {
            let ticker = tokio::task::spawn_local(tick(clock, Arc::default(), seen.clone()));
            tokio::time::sleep(Duration::from_millis(30)).await;
            std::thread::sleep(blocked);
            tokio::time::sleep(Duration::from_millis(30)).await;
            ticker.abort();
        });
        seen.take()
    }

    #[test]
    fn one_blocked_lane_is_seen_beside_others_that_go_on() {
        const BLOCKED: Duration = Duration::from_millis(300);
        let lanes = [BLOCKED, Duration::ZERO].map(|blocked| std::thread::spawn(move || stall_of(blocked)));
        let mut all = Spans::default();
        let [blocked, free] = lanes.map(|lane| lane.join().unwrap());
        [&blocked, &free].iter().for_each(|lane| all.merge(&lane.lateness));
        // Every tick that was due meanwhile is late, by what was left of the block: the first by all of it but a tick.
        assert!(all.count() >= 30, "{}", all.count());
        assert!(all.millis_at(1.0).unwrap() >= 285.0 && all.millis_from_top(25).unwrap() >= 40.0);
        // The list of stalls has it once, with all of its length.
        let stalls = blocked.stalls.finish();
        let long: Vec<u64> =
            stalls.longest.iter().map(|stall| (stall.to - stall.from) / 1_000_000).filter(|ms| *ms >= 200).collect();
        assert!(matches!(long.as_slice(), [ms] if *ms >= 285) && stalls.shut > 0.5, "{stalls:?}");
    }

    #[test]
    fn a_lane_that_cannot_be_built_halts_the_others() {
        let (halt, clock) = (Stop::default(), Clock::starting(std::time::Instant::now()));
        let lane = Lane::start(0, clock, Arc::default(), halt.clone(), || Err(RunError::NothingToSend)).unwrap();
        assert!(matches!(lane.finish(), Err(RunError::NothingToSend)));
        assert_eq!(halt.level(), Level::Drain);
    }

    #[test]
    fn a_lane_that_panics_halts_the_others() {
        let (halt, clock) = (Stop::default(), Clock::starting(std::time::Instant::now()));
        let lane = Lane::start(0, clock, Arc::default(), halt.clone(), || panic!("no memory for a task")).unwrap();
        assert!(matches!(lane.finish(), Err(RunError::Panicked("lane"))));
        assert_eq!(halt.level(), Level::Drain);
    }
}
