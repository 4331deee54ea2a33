//! The thread of a worker: a single-threaded runtime with its connections, its timer and its share of the load.

use crate::run::collector::live_metrics::Spans;
use crate::run::error::RunError;
use crate::run::execution::panics::Alarm;
use crate::run::execution::stop::Stop;
use crate::run::worker::Worker;
use llmscen_client::clock::Clock;
use llmscen_client::counters::{Gauges, Reading};
use llmscen_client::stalls::{Moment, thread_cpu};
use llmscen_core::manifest::{Stall, WorkerStalls};
use llmscen_core::plan::Case;
use llmscen_core::target::Place;
use llmscen_core::units::Nanos;
use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::rc::Rc;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::runtime;
use tokio::task::LocalSet;
use tokio::time::{Instant, MissedTickBehavior};

/// The tick by which a worker notices that its runtime was late. Each is a wake-up, and with one paced stream they would be most
/// of the work; a stall is found with the probability of its length over this, and those of several ticks always.
const TICK: Duration = Duration::from_millis(10);
/// The runtime's timers fire on whole milliseconds.
const WHEEL: Duration = Duration::from_millis(1);

/// What a worker saw of itself.
#[derive(Default)]
pub struct WorkerReport {
    /// When it stopped sending.
    pub sending_until: Nanos,
    /// Lateness of its ticker.
    pub stall: Spans,
    /// Its stalls.
    pub stalls: WorkerStalls,
    /// CPU time of its thread over wall time, 0..=1.
    pub cpu_share: f64,
}

/// A running worker.
pub struct WorkerHandle(JoinHandle<Result<WorkerReport, RunError>>);

impl WorkerHandle {
    /// Starts a worker; `build` makes its part of the case on the worker's own thread. Where that fails `halt` is pressed, so
    /// that no other worker goes on alone.
    pub fn start(
        index: usize,
        clock: Clock,
        gauges: Arc<Gauges>,
        halt: Stop,
        build: impl FnOnce() -> Result<Worker, RunError> + Send + 'static,
    ) -> Result<WorkerHandle, RunError> {
        let alarm = halt.clone();
        let thread = std::thread::Builder::new().name(format!("worker-{index}")).spawn(move || {
            let alarm = Alarm(halt);
            run_worker(clock, gauges, build).inspect_err(|_| alarm.0.press())
        });
        let thread = thread.inspect_err(|_| alarm.press()).map_err(RunError::Thread)?;
        Ok(WorkerHandle(thread))
    }

    /// Waits for its end.
    pub fn finish(self) -> Result<WorkerReport, RunError> {
        self.0.join().map_err(|_| RunError::Panicked("worker"))?
    }
}

/// A worker per core, but never a worker without a user; one for a model in this process, which is to have the cores.
pub fn worker_count(case: &Case) -> usize {
    if let Place::Local(_) = case.target.place {
        return 1;
    }
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    case.load.shape.users().map_or(cores, |users| cores.min(users as usize).max(1))
}

/// The totals of all workers.
pub fn total_counters(gauges: &[Arc<Gauges>]) -> Reading {
    gauges.iter().fold(Reading::default(), |sum, worker| worker.add_to(sum))
}

fn run_worker(
    clock: Clock,
    gauges: Arc<Gauges>,
    build: impl FnOnce() -> Result<Worker, RunError>,
) -> Result<WorkerReport, RunError> {
    let runtime = runtime::Builder::new_current_thread().enable_all().build().map_err(RunError::Thread)?;
    let seen = Rc::new(RefCell::new(TickLog::default()));
    let began = (std::time::Instant::now(), thread_cpu());
    let sending_until = LocalSet::new().block_on(&runtime, async {
        // Timers and sockets belong to the runtime, so the worker is made inside it.
        let worker = Rc::new(build()?);
        let ticker = tokio::task::spawn_local(tick(clock, gauges, seen.clone()));
        let ended = worker.run().await;
        ticker.abort();
        Ok::<_, RunError>(ended)
    });
    // A name that is still being resolved for a request that was given up must not be waited for.
    runtime.shutdown_background();
    let wall = began.0.elapsed().as_secs_f64();
    let cpu_share = (thread_cpu() - began.1).as_secs_f64() / wall.max(1e-9);
    let TickLog { lateness: stall, stalls } = seen.take();
    Ok(WorkerReport { sending_until: sending_until?, stall, stalls: stalls.finish(), cpu_share })
}

/// What the ticker of a worker saw.
#[derive(Default)]
struct TickLog {
    lateness: Spans,
    stalls: StallLog,
}

/// Records by how much each tick came late, from the start of the case. A tick is due on an absolute instant, and one that
/// was missed is recorded too: a worker that hangs cannot hide it by ticking less. What the timer wheel's own millisecond
/// adds is taken off.
async fn tick(clock: Clock, gauges: Arc<Gauges>, seen: Rc<RefCell<TickLog>>) {
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

/// Lateness from which on a tick is a stall, nanoseconds.
const LEAST: u64 = 1_000_000;

/// Takes in ticks that are due at equal distances. A tick finds a stall with the probability of its length over that distance, so
/// the sums are taken over ticks: their mean lateness, and the share of late ones, are those of a random instant.
#[derive(Debug, Default)]
pub struct StallLog {
    ticks: u64,
    late: u64,
    lateness: u128,
    /// When the latest tick ran, and the thread's processor time then.
    last: (u64, u64),
    count: u64,
    /// The longest, the shortest of them first.
    longest: BinaryHeap<Reverse<(u64, [u64; 4])>>,
    /// The latest, until a tick is on time again.
    latest: Option<Stall>,
}

impl StallLog {
    /// The tick that was due at `due` runs `late` after it, at `now`, when the thread has used `cpu`. All in nanoseconds.
    pub fn tick(&mut self, due: u64, late: u64, now: u64, cpu: u64) {
        let (before, used) = std::mem::replace(&mut self.last, (now, cpu));
        self.ticks += 1;
        self.lateness += u128::from(late);
        self.late += u64::from(late >= LEAST);
        // Ticks that were missed follow one another at once: one stall is one stall.
        let missed = due < before && self.ticks > 1;
        if let Some(latest) = &mut self.latest {
            latest.after += cpu.saturating_sub(used);
        }
        if missed {
            return;
        }
        self.keep();
        if late < LEAST {
            return;
        }
        // The tick lies anywhere within the stall, which is as long before it as behind it on average; but at the tick before
        // the thread ran.
        let from = due.saturating_sub(late).max(before);
        let busy = cpu.saturating_sub(used).min(now.saturating_sub(from));
        self.latest = Some(Stall { from, to: now, busy, after: 0 });
        self.count += 1;
    }

    fn keep(&mut self) {
        let Some(stall) = self.latest.take() else { return };
        self.longest.push(Reverse((stall.to.saturating_sub(stall.from), stall.into())));
        if self.longest.len() > WorkerStalls::KEPT {
            self.longest.pop();
        }
    }

    /// What the stalls come to.
    pub fn finish(mut self) -> WorkerStalls {
        self.keep();
        let mut longest: Vec<Stall> = self.longest.into_iter().map(|Reverse((_, stall))| stall.into()).collect();
        longest.sort_by_key(|stall| stall.to);
        let all = self.ticks.max(1) as f64;
        let (frozen_ms, shut) = (self.lateness as f64 / 1e6 / all, self.late as f64 / all);
        WorkerStalls { frozen_ms, shut, ticks: self.ticks, count: self.count, longest }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::execution::stop::Level;

    /// What the ticker of a worker saw that was blocked for so long, and ran for 60 ms else.
    fn stall_of(blocked: Duration) -> TickLog {
        let runtime = runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let seen = Rc::new(RefCell::new(TickLog::default()));
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
        let workers = [BLOCKED, Duration::ZERO].map(|blocked| std::thread::spawn(move || stall_of(blocked)));
        let mut all = Spans::default();
        let [blocked, free] = workers.map(|worker| worker.join().unwrap());
        [&blocked, &free].iter().for_each(|worker| all.merge(&worker.lateness));
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
        let worker = WorkerHandle::start(0, clock, Arc::default(), halt.clone(), || Err(RunError::NothingToSend)).unwrap();
        assert!(matches!(worker.finish(), Err(RunError::NothingToSend)));
        assert_eq!(halt.level(), Level::Drain);
    }

    #[test]
    fn a_lane_that_panics_halts_the_others() {
        let (halt, clock) = (Stop::default(), Clock::starting(std::time::Instant::now()));
        let worker = WorkerHandle::start(0, clock, Arc::default(), halt.clone(), || panic!("no memory for a task")).unwrap();
        assert!(matches!(worker.finish(), Err(RunError::Panicked("worker"))));
        assert_eq!(halt.level(), Level::Drain);
    }

    const MS: u64 = 1_000_000;

    /// The stalls of ticks due every 10 ms that ran at these instants, ms; half of the time between two of them was work.
    fn of(ran: &[u64]) -> WorkerStalls {
        let mut log = StallLog::default();
        for (place, now) in ran.iter().enumerate() {
            let due = 10 * place as u64;
            log.tick(due * MS, (now - due) * MS, now * MS, 0);
        }
        log.finish()
    }

    fn spans(own: &WorkerStalls) -> Vec<(u64, u64)> {
        own.longest.iter().map(|stall| (stall.from / MS, stall.to / MS)).collect()
    }

    #[test]
    fn a_silence_is_one_stall_however_many_ticks_it_delayed() {
        // Nothing from 10 to 75: the ticks of 20 to 70 run one after the other.
        let seen = of(&[0, 10, 75, 75, 75, 75, 75, 75, 80, 90]);
        assert_eq!((seen.count, spans(&seen)), (1, vec![(10, 75)]));
        assert_eq!(seen.shut, 0.6, "six of ten ticks");
        assert_eq!(seen.frozen_ms, (55 + 45 + 35 + 25 + 15 + 5) as f64 / 10.0);
    }

    #[test]
    fn a_late_tick_lies_in_the_middle_of_its_stall_at_most_back_to_the_tick_before() {
        let seen = of(&[0, 13, 20, 39, 40]);
        assert_eq!((seen.count, spans(&seen)), (2, vec![(7, 13), (21, 39)]));
        assert_eq!(spans(&of(&[8, 18, 20])), [(0, 8), (8, 18)]);
        assert_eq!(of(&[0, 10, 20]), WorkerStalls { ticks: 3, ..WorkerStalls::default() });
    }

    #[test]
    fn work_before_the_tick_is_known_and_short_stalls_are_dropped_first() {
        let mut log = StallLog::default();
        log.tick(0, 0, 0, 5 * MS);
        log.tick(10 * MS, 20 * MS, 30 * MS, 7 * MS);
        // The missed ticks of 20 and 30, and the first one that is on time.
        log.tick(20 * MS, 10 * MS, 31 * MS, 8 * MS);
        log.tick(30 * MS, MS, 31 * MS, 8 * MS);
        log.tick(40 * MS, 0, 40 * MS, 10 * MS);
        log.tick(50 * MS, 0, 50 * MS, 19 * MS);
        let seen = log.finish();
        assert_eq!(seen.longest, [Stall { from: 0, to: 30 * MS, busy: 2 * MS, after: 3 * MS }]);
        let mut log = StallLog::default();
        for place in 0..3000u64 {
            let late = if place % 3 == 0 { 4 * MS } else { 2 * MS };
            log.tick(place * 10 * MS, late, place * 10 * MS + late, 0);
        }
        let seen = log.finish();
        assert_eq!((seen.count, seen.longest.len(), seen.shut), (3000, WorkerStalls::KEPT, 1.0));
        assert_eq!(seen.longest.iter().filter(|stall| stall.to - stall.from == 8 * MS).count(), 999, "the longest are kept");
        assert!(seen.longest.is_sorted_by_key(|stall| stall.to));
    }
}
