//! Asks every source at its interval, on a thread of its own, and keeps what they tell.

mod log;
#[cfg(test)]
mod tests;

use crate::process::stand_behind;
use crate::source::Source;
use llmscen_core::telemetry::Reading;
use log::Log;
use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

/// The sampler of one round. It samples every source when it starts, then each at its interval, and all once more when it ends.
pub struct Sampler {
    running: Option<Running>,
}

struct Running {
    origin: Sender<Instant>,
    thread: JoinHandle<Log>,
}

impl Sampler {
    /// Starts with the first sample of every source, and returns when they have told it. Without sources there is no thread.
    ///
    /// Sources that are due at once are asked in this order: those that take long belong to the end.
    ///
    /// # Errors
    /// The system gives no thread.
    pub fn start(sources: Vec<Box<dyn Source>>) -> io::Result<Sampler> {
        if sources.is_empty() {
            return Ok(Sampler { running: None });
        }
        let ((origin, orders), (ready, begun)) = (channel(), channel());
        let thread = Builder::new().name("telemetry".into()).spawn(move || {
            stand_behind();
            attend(sources, &ready, &orders)
        })?;
        // A sender that is dropped is an answer, too: then the thread is over, and `finish` says why.
        let _ = begun.recv();
        Ok(Sampler { running: Some(Running { origin, thread }) })
    }

    /// Says when the case's time zero is: from there the intervals count, and the instants of all readings.
    pub fn count_from(&self, origin: Instant) {
        if let Some(running) = &self.running {
            let _ = running.origin.send(origin);
        }
    }

    /// Samples everything for the last time. The readings, in the order in which they were made, and what a reader must know of
    /// them.
    pub fn finish(self) -> (Vec<Reading>, Vec<String>) {
        let Some(Running { origin, thread }) = self.running else { return Default::default() };
        drop(origin);
        let broken = |_| (Vec::new(), vec!["the telemetry thread ended unexpectedly; this is a defect of llmscen".into()]);
        thread.join().map_or_else(broken, Log::into_parts)
    }
}

/// One source, and when it is due.
struct Seat {
    source: Box<dyn Source>,
    interval: Duration,
    due: Instant,
}

fn attend(sources: Vec<Box<dyn Source>>, ready: &Sender<()>, orders: &Receiver<Instant>) -> Log {
    let begin = Instant::now();
    let mut log = Log::starting(begin, sources.len());
    let mut seats: Vec<Seat> = sources.into_iter().map(|source| Seat::of(source, begin)).collect();
    ask(&mut seats, &mut log, begin, |_| true);
    let _ = ready.send(());
    // Whoever started a round that does not come to be drops the other end.
    let Ok(origin) = orders.recv() else { return log };
    log.count_from(origin);
    let now = Instant::now();
    seats.iter_mut().for_each(|seat| seat.due = next(origin, seat.interval, now));
    while let Some(due) = seats.iter().map(|seat| seat.due).min() {
        let Err(RecvTimeoutError::Timeout) = orders.recv_timeout(due.saturating_duration_since(Instant::now())) else { break };
        let now = Instant::now();
        ask(&mut seats, &mut log, origin, |seat| seat.due <= now);
    }
    ask(&mut seats, &mut log, origin, |_| true);
    seats.iter_mut().for_each(|seat| log.note(seat.source.notes()));
    log
}

impl Seat {
    fn of(source: Box<dyn Source>, due: Instant) -> Seat {
        let interval = Duration::from(source.interval());
        Seat { source, interval, due }
    }
}

/// Asks those that are chosen, and says when they are due again.
fn ask(seats: &mut [Seat], log: &mut Log, origin: Instant, chosen: impl Fn(&Seat) -> bool) {
    for (place, seat) in seats.iter_mut().enumerate().filter(|(_, seat)| chosen(seat)) {
        log.sample(place, seat.source.as_mut(), Instant::now());
        seat.due = next(origin, seat.interval, Instant::now());
    }
}

/// The first of the instants `origin`, `origin + interval` … after `now`. An instant that was missed is not made up for.
fn next(origin: Instant, interval: Duration, now: Instant) -> Instant {
    let passed = now.saturating_duration_since(origin).as_nanos();
    let each = interval.as_nanos().max(1);
    let after = (passed / each + 1) * each;
    origin + Duration::from_nanos(u64::try_from(after).unwrap_or(u64::MAX))
}
