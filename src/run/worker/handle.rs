//! The thread of a worker, and the measurement of its event-loop stalls.

use crate::run::error::RunError;
use crate::run::panics::PressOnPanic;
use crate::run::progress::Spans;
use crate::run::stop::Stop;
use crate::run::worker::Worker;
use llmscen_client::clock::Clock;
use llmscen_client::counters::LiveCounters;
use llmscen_client::stalls::{Moment, thread_cpu};
use llmscen_core::manifest::{Stall, WorkerStalls};
use llmscen_core::plan::Case;
use llmscen_core::schedule::shard::Split;
use llmscen_core::target::TargetLocation;
use llmscen_core::units::Nanos;
use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::rc::Rc;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::runtime;
use tokio::time::{Instant, MissedTickBehavior};

/// Interval of the ticks that detect stalls. Shorter ticks would cost more wake-ups than a slow stream does. A stall
/// shorter than this is detected with probability length / interval, a longer one always.
const TICK: Duration = Duration::from_millis(10);
/// Resolution of the runtime's timers.
const TIMER_RESOLUTION: Duration = Duration::from_millis(1);

/// The self-measurement of a worker.
#[derive(Default)]
pub struct WorkerReport {
    /// When it stopped sending.
    pub sending_until: Nanos,
    /// Delays of its ticks.
    pub stall: Spans,
    /// Its stalls.
    pub stalls: WorkerStalls,
    /// CPU time of its thread over wall time, 0..=1.
    pub cpu_share: f64,
}

/// A running worker.
pub struct WorkerHandle(JoinHandle<Result<WorkerReport, RunError>>);

impl WorkerHandle {
    /// Starts a worker, which `build` creates on the new thread. A failure presses `halt`, so that the other workers
    /// stop too.
    pub fn start(
        index: usize,
        clock: Clock,
        gauges: Arc<LiveCounters>,
        halt: Stop,
        build: impl FnOnce() -> Result<Worker, RunError> + Send + 'static,
    ) -> Result<WorkerHandle, RunError> {
        let on_error = halt.clone();
        let thread = std::thread::Builder::new()
            .name(format!("worker-{index}"))
            .spawn(move || {
                let on_panic = PressOnPanic(halt);
                run_worker(clock, gauges, build).inspect_err(|_| on_panic.0.press())
            });
        let thread = thread
            .inspect_err(|_| on_error.press())
            .map_err(RunError::Thread)?;
        Ok(WorkerHandle(thread))
    }

    /// Waits until the worker ends.
    pub fn finish(self) -> Result<WorkerReport, RunError> {
        self.0.join().map_err(|_| RunError::Panicked("worker"))?
    }
}

/// One worker per core, but not more than the shard has users; one for a local model, which needs the cores itself.
pub fn worker_count(case: &Case, split: &Split) -> usize {
    if let TargetLocation::Local(_) = case.target.location {
        return 1;
    }
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    case.load
        .shape
        .users()
        .map_or(cores, |users| cores.min(split.users(users) as usize).max(1))
}

fn run_worker(
    clock: Clock,
    gauges: Arc<LiveCounters>,
    build: impl FnOnce() -> Result<Worker, RunError>,
) -> Result<WorkerReport, RunError> {
    let runtime = runtime::Builder::new_current_thread()
        .enable_all()
        .build_local(Default::default())
        .map_err(RunError::Thread)?;
    let ticks = Rc::new(RefCell::new(TickLog::default()));
    let start = std::time::Instant::now();
    let cpu_at_start = thread_cpu();
    let sending_until = runtime.block_on(async {
        // Timers and sockets belong to the runtime, so the worker is created inside it.
        let worker = Rc::new(build()?);
        let ticker = tokio::task::spawn_local(tick(clock, gauges, ticks.clone()));
        let ended = worker.run().await;
        ticker.abort();
        Ok::<_, RunError>(ended)
    });
    // A cancelled request may still resolve a host name; do not wait for it.
    runtime.shutdown_background();
    let elapsed_s = start.elapsed().as_secs_f64();
    let cpu_share = (thread_cpu() - cpu_at_start).as_secs_f64() / elapsed_s.max(1e-9);
    let TickLog {
        lateness: stall,
        stalls,
    } = ticks.take();
    Ok(WorkerReport {
        sending_until: sending_until?,
        stall,
        stalls: stalls.finish(),
        cpu_share,
    })
}

/// The delays that the ticks of a worker have measured.
#[derive(Default)]
struct TickLog {
    lateness: Spans,
    stalls: StallLog,
}

/// Records the delay of each tick, from time zero on. Ticks are due at absolute times, and missed ticks are recorded
/// too, so that a worker that hangs does not record fewer delays. The timer resolution is subtracted.
async fn tick(clock: Clock, gauges: Arc<LiveCounters>, log: Rc<RefCell<TickLog>>) {
    let start = Instant::from_std(clock.instant(Nanos::ZERO));
    let mut ticks = tokio::time::interval_at(start, TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    loop {
        let due = ticks.tick().await;
        let now = Moment::now();
        gauges.stalls.tick(due.into_std(), now, TICK);
        let late = now
            .at
            .saturating_duration_since(due.into_std())
            .saturating_sub(TIMER_RESOLUTION);
        let mut log = log.borrow_mut();
        log.lateness.record(late.into());
        let since = |at: Instant| Nanos::from(at.saturating_duration_since(start)).0;
        log.stalls.tick(
            since(due),
            Nanos::from(late).0,
            since(now.at.into()),
            Nanos::from(now.cpu).0,
        );
    }
}

/// Smallest delay of a tick that counts as a stall, nanoseconds.
const MIN_STALL: u64 = 1_000_000;

/// Records ticks that are due at equal intervals. The mean delay of the ticks, and the share of late ones, estimate
/// those of a request that is due at a random time.
#[derive(Debug, Default)]
struct StallLog {
    ticks: u64,
    late: u64,
    lateness: u128,
    /// When the latest tick ran.
    last_tick: u64,
    /// CPU time of the thread at the latest tick.
    last_cpu: u64,
    count: u64,
    /// The longest stalls by length, shortest first.
    longest: BinaryHeap<Reverse<(u64, [u64; 4])>>,
    /// The latest stall, until a tick is on time again.
    latest: Option<Stall>,
}

impl StallLog {
    /// Records the tick due at `due`, which ran `late` after that, at `now`; `cpu`: CPU time of the thread. All in
    /// nanoseconds.
    fn tick(&mut self, due: u64, late: u64, now: u64, cpu: u64) {
        let before = std::mem::replace(&mut self.last_tick, now);
        let used = cpu.saturating_sub(std::mem::replace(&mut self.last_cpu, cpu));
        self.ticks += 1;
        self.lateness += u128::from(late);
        self.late += u64::from(late >= MIN_STALL);
        // Missed ticks run directly after each other: together they are one stall.
        let missed = due < before && self.ticks > 1;
        if let Some(latest) = &mut self.latest {
            latest.after += used;
        }
        if missed {
            return;
        }
        self.close_latest();
        if late < MIN_STALL {
            return;
        }
        // The tick is due at a random time within the stall, so on average the stall is as long before it as after
        // it. But the thread did run at the previous tick.
        let from = due.saturating_sub(late).max(before);
        let busy = used.min(now.saturating_sub(from));
        self.latest = Some(Stall {
            from,
            to: now,
            busy,
            after: 0,
        });
        self.count += 1;
    }

    /// Adds the latest stall to the longest ones.
    fn close_latest(&mut self) {
        let Some(stall) = self.latest.take() else {
            return;
        };
        self.longest
            .push(Reverse((stall.to.saturating_sub(stall.from), stall.into())));
        if self.longest.len() > WorkerStalls::KEPT {
            self.longest.pop();
        }
    }

    fn finish(mut self) -> WorkerStalls {
        self.close_latest();
        let mut longest: Vec<Stall> = self
            .longest
            .into_iter()
            .map(|Reverse((_, stall))| stall.into())
            .collect();
        longest.sort_by_key(|stall| stall.to);
        let ticks = self.ticks.max(1) as f64;
        WorkerStalls {
            frozen_ms: self.lateness as f64 / 1e6 / ticks,
            shut: self.late as f64 / ticks,
            ticks: self.ticks,
            count: self.count,
            longest,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::stop::Level;

    /// The ticks of a worker that was blocked for this long and ran for 60 ms besides.
    fn ticks_of_blocked_worker(blocked: Duration) -> TickLog {
        let runtime = runtime::Builder::new_current_thread()
            .enable_all()
            .build_local(Default::default())
            .unwrap();
        let ticks = Rc::new(RefCell::new(TickLog::default()));
        let clock = Clock::new(std::time::Instant::now());
        runtime.block_on(async {
            let ticker = tokio::task::spawn_local(tick(clock, Arc::default(), ticks.clone()));
            tokio::time::sleep(Duration::from_millis(30)).await;
            std::thread::sleep(blocked);
            tokio::time::sleep(Duration::from_millis(30)).await;
            ticker.abort();
        });
        ticks.take()
    }

    #[test]
    fn a_blocked_worker_is_detected_beside_a_free_one() {
        const BLOCKED: Duration = Duration::from_millis(300);
        let workers = [BLOCKED, Duration::ZERO]
            .map(|blocked| std::thread::spawn(move || ticks_of_blocked_worker(blocked)));
        let mut all = Spans::default();
        let [blocked, free] = workers.map(|worker| worker.join().unwrap());
        [&blocked, &free]
            .iter()
            .for_each(|worker| all.merge(&worker.lateness));
        // Every tick due meanwhile is late by the rest of the block: the first by all of it but one tick.
        assert!(all.count() >= 30, "{}", all.count());
        assert!(all.millis_at(1.0).unwrap() >= 285.0 && all.millis_from_top(25).unwrap() >= 40.0);
        // The stall is listed once, with its full length.
        let stalls = blocked.stalls.finish();
        let long: Vec<u64> = stalls
            .longest
            .iter()
            .map(|stall| (stall.to - stall.from) / 1_000_000)
            .filter(|ms| *ms >= 200)
            .collect();
        assert!(
            matches!(long.as_slice(), [ms] if *ms >= 285) && stalls.shut > 0.5,
            "{stalls:?}"
        );
    }

    #[test]
    fn a_worker_that_cannot_be_built_halts_the_others() {
        let (halt, clock) = (Stop::default(), Clock::new(std::time::Instant::now()));
        let worker = WorkerHandle::start(0, clock, Arc::default(), halt.clone(), || {
            Err(RunError::NothingToSend)
        })
        .unwrap();
        assert!(matches!(worker.finish(), Err(RunError::NothingToSend)));
        assert_eq!(halt.level(), Level::Drain);
    }

    #[test]
    fn a_worker_that_panics_halts_the_others() {
        let (halt, clock) = (Stop::default(), Clock::new(std::time::Instant::now()));
        let worker = WorkerHandle::start(0, clock, Arc::default(), halt.clone(), || {
            panic!("no memory for a task")
        })
        .unwrap();
        assert!(matches!(worker.finish(), Err(RunError::Panicked("worker"))));
        assert_eq!(halt.level(), Level::Drain);
    }

    const MS: u64 = 1_000_000;

    /// The stalls of ticks due every 10 ms that ran at these times, ms.
    fn stalls(ran: &[u64]) -> WorkerStalls {
        let mut log = StallLog::default();
        for (index, now) in ran.iter().enumerate() {
            let due = 10 * index as u64;
            log.tick(due * MS, (now - due) * MS, now * MS, 0);
        }
        log.finish()
    }

    fn spans(stalls: &WorkerStalls) -> Vec<(u64, u64)> {
        stalls
            .longest
            .iter()
            .map(|stall| (stall.from / MS, stall.to / MS))
            .collect()
    }

    #[test]
    fn missed_ticks_are_one_stall() {
        // Nothing from 10 to 75: the ticks of 20 to 70 run one after the other.
        let found = stalls(&[0, 10, 75, 75, 75, 75, 75, 75, 80, 90]);
        assert_eq!((found.count, spans(&found)), (1, vec![(10, 75)]));
        assert_eq!(found.shut, 0.6, "six of ten ticks");
        assert_eq!(found.frozen_ms, (55 + 45 + 35 + 25 + 15 + 5) as f64 / 10.0);
    }

    #[test]
    fn a_late_tick_is_the_middle_of_a_stall_that_starts_after_the_previous_tick() {
        let found = stalls(&[0, 13, 20, 39, 40]);
        assert_eq!((found.count, spans(&found)), (2, vec![(7, 13), (21, 39)]));
        assert_eq!(spans(&stalls(&[8, 18, 20])), [(0, 8), (8, 18)]);
        assert_eq!(
            stalls(&[0, 10, 20]),
            WorkerStalls {
                ticks: 3,
                ..WorkerStalls::default()
            }
        );
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
        let found = log.finish();
        assert_eq!(
            found.longest,
            [Stall {
                from: 0,
                to: 30 * MS,
                busy: 2 * MS,
                after: 3 * MS
            }]
        );
        let mut log = StallLog::default();
        for index in 0..3000u64 {
            let late = if index % 3 == 0 { 4 * MS } else { 2 * MS };
            log.tick(index * 10 * MS, late, index * 10 * MS + late, 0);
        }
        let found = log.finish();
        assert_eq!(
            (found.count, found.longest.len(), found.shut),
            (3000, WorkerStalls::KEPT, 1.0)
        );
        assert_eq!(
            found
                .longest
                .iter()
                .filter(|stall| stall.to - stall.from == 8 * MS)
                .count(),
            999,
            "the longest are kept"
        );
        assert!(found.longest.is_sorted_by_key(|stall| stall.to));
    }
}
