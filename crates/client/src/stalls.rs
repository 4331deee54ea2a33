//! Event-loop stalls of a worker, and timeouts that do not count them.
//!
//! A timeout that fires after a stall is no evidence about the server: its bytes may be in the kernel, and a request
//! that was sent late had less time than its limit. So stalls extend the limit.

use llmscen_core::outcome::{Failure, FailureKind};
use std::collections::VecDeque;
use std::pin::pin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::time::sleep;

/// A tick that is late by at least this much off-CPU time is a stall.
const MIN_STALL: Duration = Duration::from_millis(5);
/// Stalls that are kept: those of the last seconds if a worker only stalls.
const MAX_STALLS: usize = 4096;
/// Extensions of one wait. Each one is the stall time within the previous one, so a worker that stalls less than half
/// of the time needs far fewer.
const MAX_EXTENSIONS: u32 = 8;

/// An instant on a worker thread.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    /// The instant.
    pub at: Instant,
    /// CPU time of the thread until then.
    pub cpu: Duration,
}

impl Moment {
    /// The current instant on this thread.
    pub fn now() -> Moment {
        Moment {
            at: Instant::now(),
            cpu: thread_cpu(),
        }
    }
}

/// CPU time of this thread.
pub fn thread_cpu() -> Duration {
    let spent = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(spent.tv_sec as u64, spent.tv_nsec as u32)
}

/// The stalls of one worker. Its ticker writes them; timeouts read them when a limit is reached.
///
/// Only off-CPU time counts. A worker that is late because it processes responses does not stall: it keeps reading,
/// and a server must not extend its own limits by flooding the worker.
#[derive(Debug, Default)]
pub struct Stalls(Mutex<Log>);

#[derive(Debug, Default)]
struct Log {
    /// When the next tick is due, and the CPU time at the last tick; `None` before the first.
    due: Option<Moment>,
    /// Begin and end of each stall, in order.
    spans: VecDeque<(Instant, Instant)>,
}

impl Stalls {
    /// Records a tick at `now` that was due at `due`; the next one is due after `period`.
    pub fn tick(&self, due: Instant, now: Moment, period: Duration) {
        let mut log = self.log();
        // Missed ticks run one after the other after a stall, which counts once.
        let from = log.spans.back().map_or(due, |last| due.max(last.1));
        let before = log.due.map_or(now.cpu, |due| due.cpu);
        if let Some(stall) = stall_since(
            Moment {
                at: from,
                cpu: before,
            },
            now,
        ) {
            log.spans.push_back(stall);
            if log.spans.len() > MAX_STALLS {
                log.spans.pop_front();
            }
        }
        log.due = Some(Moment {
            at: due.max(now.at) + period,
            cpu: now.cpu,
        });
    }

    /// Stall time between `from` and `now`.
    pub fn within(&self, from: Instant, now: Moment) -> Duration {
        let log = self.log();
        // A stall that has just ended, before the ticker runs again.
        let latest = log.due.and_then(|due| stall_since(due, now));
        let spans = log.spans.iter().copied().chain(latest);
        spans
            .map(|(begin, end)| end.min(now.at).saturating_duration_since(begin.max(from)))
            .sum()
    }

    fn log(&self) -> MutexGuard<'_, Log> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Off-CPU time since a tick was due, as a span that ends now; `None` if it is short.
fn stall_since(due: Moment, now: Moment) -> Option<(Instant, Instant)> {
    let delay = now.at.saturating_duration_since(due.at);
    let off_cpu = delay
        .checked_sub(now.cpu.saturating_sub(due.cpu))
        .filter(|off_cpu| *off_cpu >= MIN_STALL)?;
    Some((now.at.checked_sub(off_cpu)?, now.at))
}

/// Who used up a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overrun {
    /// The server had the full limit.
    Server,
    /// The worker stalled repeatedly, so nothing is known about the server.
    Tool,
}

/// A time limit that stalls extend.
#[derive(Debug)]
pub struct StallAwareLimit {
    limit: Duration,
    since: Option<Instant>,
    extended: u32,
}

impl StallAwareLimit {
    /// A limit of this duration.
    pub fn new(limit: Duration) -> StallAwareLimit {
        StallAwareLimit {
            limit,
            since: None,
            extended: 0,
        }
    }

    /// The remaining time at `now` of a wait that began at `since`.
    ///
    /// # Errors
    /// The limit is used up.
    pub fn remaining(
        &mut self,
        stalls: &Stalls,
        since: Instant,
        now: Moment,
    ) -> Result<Duration, Overrun> {
        if self.since.replace(since) != Some(since) {
            self.extended = 0;
        }
        let spent = now.at.saturating_duration_since(since);
        if let Some(remaining) = self
            .limit
            .checked_sub(spent)
            .filter(|remaining| !remaining.is_zero())
        {
            return Ok(remaining);
        }
        let remaining = self
            .limit
            .saturating_add(stalls.within(since, now))
            .saturating_sub(spent);
        if remaining.is_zero() {
            return Err(Overrun::Server);
        }
        self.extended += 1;
        if self.extended > MAX_EXTENSIONS {
            Err(Overrun::Tool)
        } else {
            Ok(remaining)
        }
    }
}

/// The failure of a wait that exceeded its limit: `kind`, unless the worker itself stalled.
pub(super) fn timeout_failure(overrun: Overrun, kind: FailureKind, why: &str) -> Failure {
    match overrun {
        Overrun::Server => Failure::new(kind, why),
        Overrun::Tool => Failure::new(
            FailureKind::ToolStall,
            format!("{why}, while the load generator stalled repeatedly"),
        ),
    }
}

/// Resolves when `limit` has passed since `since`, which may move, not counting stalls of the worker.
pub async fn overrun(stalls: &Stalls, limit: Duration, since: impl Fn() -> Instant) -> Overrun {
    let mut stall_aware = StallAwareLimit::new(limit);
    let mut timer = pin!(sleep(limit));
    loop {
        fired(timer.as_mut()).await;
        let now = Moment::now();
        match stall_aware.remaining(stalls, since(), now) {
            Ok(remaining) => timer.as_mut().reset((now.at + remaining).into()),
            Err(overrun) => return overrun,
        }
    }
}

/// Resolves when the timer fires, after other tasks had a chance to read the bytes that wait in the kernel. It is not
/// subject to the coop budget, so an endless stream of bytes cannot keep it from firing.
pub async fn fired(timer: impl Future<Output = ()>) {
    tokio::task::coop::unconstrained(timer).await;
    tokio::task::yield_now().await;
}

#[cfg(test)]
mod tests {
    use super::*;

    const TICK: Duration = Duration::from_millis(10);

    fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    /// An instant of a worker and its CPU time until then, in milliseconds.
    fn at(start: Instant, millis: u64, cpu: u64) -> Moment {
        Moment {
            at: start + ms(millis),
            cpu: ms(cpu),
        }
    }

    /// The stalls of a worker that ticked at these instants (ms); the ticks were due every 10 ms from 0.
    fn stalls_of_ticks(start: Instant, ticks: &[u64]) -> Stalls {
        let stalls = Stalls::default();
        for (index, millis) in ticks.iter().enumerate() {
            stalls.tick(start + ms(10 * index as u64), at(start, *millis, 0), TICK);
        }
        stalls
    }

    #[test]
    fn one_stall_counts_once_however_many_ticks_it_delayed() {
        let start = Instant::now() + ms(1000);
        // Ticks at 0 and 10, then nothing until 55, when those of 20 to 50 run one after the other.
        let stalls = stalls_of_ticks(start, &[0, 10, 55, 55, 55, 55, 60]);
        let within = |from: u64, to: u64| {
            stalls
                .within(start + ms(from), at(start, to, 0))
                .as_millis()
        };
        assert_eq!(within(0, 60), 35);
        assert_eq!(within(30, 60), 25, "only the part within the interval");
        assert_eq!([within(55, 60), within(0, 20)], [0, 0]);
    }

    #[test]
    fn a_stall_is_known_before_the_ticker_runs_again() {
        let start = Instant::now() + ms(1000);
        let stalls = stalls_of_ticks(start, &[0, 10]);
        assert_eq!(
            stalls.within(start, at(start, 22, 0)),
            Duration::ZERO,
            "a little late is not a stall"
        );
        assert_eq!(stalls.within(start, at(start, 1220, 0)), ms(1200));
        assert_eq!(
            Stalls::default().within(start, at(start, 1220, 0)),
            Duration::ZERO,
            "no ticker, no stall"
        );
    }

    #[test]
    fn a_busy_worker_does_not_stall() {
        let start = Instant::now() + ms(1000);
        let stalls = stalls_of_ticks(start, &[0, 10]);
        assert_eq!(stalls.within(start, at(start, 1220, 1197)), Duration::ZERO);
        assert_eq!(stalls.within(start, at(start, 1220, 200)), ms(1000));
        stalls.tick(start + ms(20), at(start, 1220, 200), TICK);
        assert_eq!(stalls.within(start, at(start, 1221, 200)), ms(1000));
    }

    #[test]
    fn a_limit_is_extended_by_the_stall_and_no_more() {
        let start = Instant::now() + ms(1000);
        let stalls = stalls_of_ticks(start, &[0, 10]);
        let mut limit = StallAwareLimit::new(ms(700));
        let mut left = |now: u64| limit.remaining(&stalls, start, at(start, now, 0));
        assert_eq!(left(100), Ok(ms(600)));
        // Stopped from 20 to 1220: the timer of 700 fires at 1220, and the server has had 20 ms.
        assert_eq!(left(1220), Ok(ms(680)));
        (2..=190).for_each(|tick: u64| {
            stalls.tick(
                start + ms(10 * tick),
                at(start, (10 * tick).max(1220), 0),
                TICK,
            )
        });
        assert_eq!(left(1899), Ok(ms(1)));
        assert_eq!(left(1901), Err(Overrun::Server));
    }

    #[test]
    fn repeated_stalls_end_the_wait_without_blaming_the_server() {
        let start = Instant::now() + ms(1000);
        let stalls = Stalls::default();
        let mut limit = StallAwareLimit::new(ms(50));
        let mut results = Vec::new();
        // The worker runs for a moment every second.
        for second in 0..30 {
            let now = at(start, 1000 * (second + 1), 0);
            stalls.tick(start + ms(1000 * second), now, TICK);
            results.push(limit.remaining(&stalls, start, now));
        }
        assert!(
            results[..MAX_EXTENSIONS as usize].iter().all(Result::is_ok),
            "{results:?}"
        );
        assert_eq!(results[MAX_EXTENSIONS as usize], Err(Overrun::Tool));
    }

    #[tokio::test]
    async fn bytes_that_arrived_during_a_stall_are_read_before_the_limit_is_checked() {
        use tokio::io::AsyncReadExt;
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let mut near = tokio::net::TcpStream::connect(listener.local_addr().unwrap())
            .await
            .unwrap();
        let (mut far, _) = listener.accept().unwrap();
        let stalls = Stalls::default();
        stalls.tick(Instant::now(), Moment::now(), TICK);
        let began = Instant::now();
        let mut byte = [0];
        let waited = async {
            tokio::select! {
                biased;
                read = near.read(&mut byte) => Ok(read.unwrap()),
                overrun = overrun(&stalls, ms(50), || began) => Err(overrun),
            }
        };
        let stalled = async {
            tokio::task::yield_now().await;
            std::thread::sleep(ms(300));
            std::io::Write::write_all(&mut far, b"x").unwrap();
        };
        assert_eq!(tokio::join!(waited, stalled).0, Ok(1));
        // Without a stall the wait ends with its limit.
        let began = Instant::now();
        assert_eq!(
            overrun(&Stalls::default(), ms(30), || began).await,
            Overrun::Server
        );
    }
}
