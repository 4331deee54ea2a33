//! When a lane's event loop stood still, and the limits in time that must not run meanwhile.
//!
//! A timer that fires after a stall says nothing of the server: its bytes may wait in the kernel, and a request that this
//! side was late to send has had less time than its limit. So a limit is extended by the stalls within it.

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::time::sleep;

/// Time off the processor from which on a late tick is a stall.
const LEAST: Duration = Duration::from_millis(5);
/// Stalls that are remembered: those of the last seconds of a lane that does nothing else.
const KEPT: usize = 4096;
/// Times that one wait is extended. Each extension is what the lane stalled in the one before it, so that a lane which stands
/// still for less than half of the time gets to the end of far fewer.
const EXTENSIONS: u32 = 8;

/// An instant on a lane.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    /// The instant.
    pub at: Instant,
    /// What its thread has used of the processor by then.
    pub cpu: Duration,
}

impl Moment {
    /// The present, on this thread.
    pub fn now() -> Moment {
        Moment { at: Instant::now(), cpu: thread_cpu() }
    }
}

/// The processor time of this thread.
pub fn thread_cpu() -> Duration {
    let spent = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(spent.tv_sec as u64, spent.tv_nsec as u32)
}

/// The stalls of one lane. Its ticker writes them; whoever waits on the lane reads them when a limit is reached.
///
/// A lane that is late because it works on what servers send does not stall: it reads as it goes, and a server that floods
/// it must not extend its own limits.
#[derive(Debug, Default)]
pub struct Stalls(Mutex<Log>);

#[derive(Debug, Default)]
struct Log {
    /// When the ticker is due next, and the processor time at its last tick; None before the first.
    due: Option<Moment>,
    /// Begin and end of each, in order.
    seen: VecDeque<(Instant, Instant)>,
}

impl Stalls {
    /// The ticker, which was due at `due`, runs `now`, and will again after `period`.
    pub fn tick(&self, due: Instant, now: Moment, period: Duration) {
        let mut log = self.log();
        // Ticks that were missed follow one another at once: one stall is one stall.
        let from = log.seen.back().map_or(due, |last| due.max(last.1));
        let before = log.due.map_or(now.cpu, |due| due.cpu);
        if let Some(stall) = stall(Moment { at: from, cpu: before }, now) {
            log.seen.push_back(stall);
            if log.seen.len() > KEPT {
                log.seen.pop_front();
            }
        }
        log.due = Some(Moment { at: due.max(now.at) + period, cpu: now.cpu });
    }

    /// How long the lane stood still between two instants, the latter being the present.
    pub fn within(&self, from: Instant, now: Moment) -> Duration {
        let log = self.log();
        // A stall that has just ended: the ticker has not run yet.
        let latest = log.due.and_then(|due| stall(due, now));
        let spans = log.seen.iter().copied().chain(latest);
        spans.map(|(begin, end)| end.min(now.at).saturating_duration_since(begin.max(from))).sum()
    }

    fn log(&self) -> MutexGuard<'_, Log> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The time off the processor since a tick was due, as the end of that span; None where it is short.
fn stall(due: Moment, now: Moment) -> Option<(Instant, Instant)> {
    let late = now.at.saturating_duration_since(due.at);
    let off = late.checked_sub(now.cpu.saturating_sub(due.cpu)).filter(|off| *off >= LEAST)?;
    Some((now.at.checked_sub(off)?, now.at))
}

/// Whose time ran out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overrun {
    /// The server had all of the limit.
    Server,
    /// The lane stood still again and again: what the server did meanwhile is not known.
    Tool,
}

/// A limit in time that stalls extend.
#[derive(Debug)]
pub struct Allowance {
    limit: Duration,
    since: Option<Instant>,
    extended: u32,
}

impl Allowance {
    /// An allowance of so much time.
    pub fn new(limit: Duration) -> Allowance {
        Allowance { limit, since: None, extended: 0 }
    }

    /// What is left of it `now` for a wait that began at `since`.
    ///
    /// # Errors
    /// It is used up, and by whom.
    pub fn left(&mut self, stalls: &Stalls, since: Instant, now: Moment) -> Result<Duration, Overrun> {
        if self.since.replace(since) != Some(since) {
            self.extended = 0;
        }
        let spent = now.at.saturating_duration_since(since);
        if let Some(left) = self.limit.checked_sub(spent).filter(|left| !left.is_zero()) {
            return Ok(left);
        }
        let left = self.limit.saturating_add(stalls.within(since, now)).saturating_sub(spent);
        if left.is_zero() {
            return Err(Overrun::Server);
        }
        self.extended += 1;
        if self.extended > EXTENSIONS { Err(Overrun::Tool) } else { Ok(left) }
    }
}

/// Resolves when a wait since `since`, which may move, has taken `limit` without the stalls of the lane.
pub async fn overrun(stalls: &Stalls, limit: Duration, since: impl Fn() -> Instant) -> Overrun {
    let mut allowance = Allowance::new(limit);
    let mut timer = pin!(sleep(limit));
    loop {
        fired(timer.as_mut()).await;
        let now = Moment::now();
        match allowance.left(stalls, since(), now) {
            Ok(left) => timer.as_mut().reset((now.at + left).into()),
            Err(overrun) => return overrun,
        }
    }
}

/// Resolves when the timer fires, once what the kernel holds for this lane has been offered to those who read it; bytes that
/// never end must not keep it from firing.
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

    /// An instant of a lane and the CPU time it had used by then, in milliseconds.
    fn at(start: Instant, millis: u64, cpu: u64) -> Moment {
        Moment { at: start + ms(millis), cpu: ms(cpu) }
    }

    /// Stalls of a lane that ticked at these instants, in milliseconds, each due at its multiple of ten.
    fn ticked(start: Instant, ticks: &[u64]) -> Stalls {
        let stalls = Stalls::default();
        for (place, millis) in ticks.iter().enumerate() {
            stalls.tick(start + ms(10 * place as u64), at(start, *millis, 0), TICK);
        }
        stalls
    }

    #[test]
    fn one_stall_counts_once_however_many_ticks_it_delayed() {
        let start = Instant::now() + ms(1000);
        // Ticks at 0 and 10, then nothing until 55, when those of 20 to 50 run one after the other.
        let stalls = ticked(start, &[0, 10, 55, 55, 55, 55, 60]);
        let within = |from: u64, to: u64| stalls.within(start + ms(from), at(start, to, 0)).as_millis();
        assert_eq!(within(0, 60), 35);
        assert_eq!(within(30, 60), 25, "only what lies between");
        assert_eq!([within(55, 60), within(0, 20)], [0, 0]);
    }

    #[test]
    fn a_stall_is_known_before_the_ticker_runs_again() {
        let start = Instant::now() + ms(1000);
        let stalls = ticked(start, &[0, 10]);
        assert_eq!(stalls.within(start, at(start, 22, 0)), Duration::ZERO, "a little late is not a stall");
        assert_eq!(stalls.within(start, at(start, 1220, 0)), ms(1200));
        assert_eq!(Stalls::default().within(start, at(start, 1220, 0)), Duration::ZERO, "no ticker, no stall");
    }

    #[test]
    fn a_lane_that_works_does_not_stall() {
        let start = Instant::now() + ms(1000);
        let stalls = ticked(start, &[0, 10]);
        assert_eq!(stalls.within(start, at(start, 1220, 1197)), Duration::ZERO);
        assert_eq!(stalls.within(start, at(start, 1220, 200)), ms(1000));
        stalls.tick(start + ms(20), at(start, 1220, 200), TICK);
        assert_eq!(stalls.within(start, at(start, 1221, 200)), ms(1000));
    }

    #[test]
    fn a_limit_is_extended_by_the_stall_and_no_more() {
        let start = Instant::now() + ms(1000);
        let stalls = ticked(start, &[0, 10]);
        let mut allowance = Allowance::new(ms(700));
        let mut left = |now: u64| allowance.left(&stalls, start, at(start, now, 0));
        assert_eq!(left(100), Ok(ms(600)));
        // Stopped from 20 to 1220: the timer of 700 fires at 1220, and the server has had 20 ms.
        assert_eq!(left(1220), Ok(ms(680)));
        (2..=190).for_each(|tick: u64| stalls.tick(start + ms(10 * tick), at(start, (10 * tick).max(1220), 0), TICK));
        assert_eq!(left(1899), Ok(ms(1)));
        assert_eq!(left(1901), Err(Overrun::Server));
    }

    #[test]
    fn a_wait_that_cannot_be_judged_is_the_tools() {
        let start = Instant::now() + ms(1000);
        let stalls = Stalls::default();
        let mut allowance = Allowance::new(ms(50));
        let mut seen = Vec::new();
        // The lane runs for a moment every second.
        for second in 0..30 {
            let now = at(start, 1000 * (second + 1), 0);
            stalls.tick(start + ms(1000 * second), now, TICK);
            seen.push(allowance.left(&stalls, start, now));
        }
        assert!(seen[..EXTENSIONS as usize].iter().all(Result::is_ok), "{seen:?}");
        assert_eq!(seen[EXTENSIONS as usize], Err(Overrun::Tool));
    }

    #[tokio::test]
    async fn what_arrived_while_the_lane_stood_still_is_read_before_its_limit_is_judged() {
        use tokio::io::AsyncReadExt;
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let mut near = tokio::net::TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
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
        // Without a stall it ends with its limit.
        let began = Instant::now();
        assert_eq!(overrun(&Stalls::default(), ms(30), || began).await, Overrun::Server);
    }
}
