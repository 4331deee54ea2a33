//! Asks every source at its interval, on a thread of its own, and keeps what they tell.

use crate::process::stand_behind;
use crate::source::{Source, Told};
use llmscen_core::signal::Signal;
use llmscen_core::telemetry::{Reading, Teller};
use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

#[cfg(test)]
mod tests;

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

/// What tells a series of values under a source's own name from the others.
type Own = (Teller, Arc<str>, Arc<str>, Option<u32>);

/// The readings of a round so far.
pub(crate) struct Log {
    zero: Instant,
    readings: Vec<Reading>,
    notes: Vec<String>,
    words: HashMap<Box<str>, Arc<str>>,
    /// The last value of what has no common name.
    last: HashMap<Own, f64>,
    asked: Vec<Asked>,
}

/// How a source answered.
#[derive(Default)]
struct Asked {
    teller: Option<Teller>,
    times: u64,
    failed: u64,
    first: String,
}

impl Log {
    /// An empty one, which counts from `zero` until it is told another, for so many sources.
    pub fn starting(zero: Instant, sources: usize) -> Log {
        let asked = (0..sources).map(|_| Asked::default()).collect();
        Log { zero, readings: Vec::new(), notes: Vec::new(), words: HashMap::new(), last: HashMap::new(), asked }
    }

    /// Counts from `zero`, what is already there included.
    pub fn count_from(&mut self, zero: Instant) {
        let later = signed(self.zero, zero);
        self.readings.iter_mut().for_each(|reading| reading.at_ns += later);
        self.zero = zero;
    }

    /// Asks the source at that place, at `at`.
    pub fn sample(&mut self, place: usize, source: &mut dyn Source, at: Instant) {
        let (teller, at_ns) = (source.teller(), signed(at, self.zero));
        let answer = source.sample(at, &mut |told| self.keep(teller, at_ns, told));
        let Some(asked) = self.asked.get_mut(place) else { return };
        asked.teller = Some(teller);
        asked.times += 1;
        if let Err(error) = answer {
            asked.failed += 1;
            if asked.first.is_empty() {
                asked.first = error;
            }
        }
    }

    fn keep(&mut self, teller: Teller, at_ns: i64, told: Told<'_>) {
        // A name without a number behind it is no reading.
        if !told.value.is_finite() {
            return;
        }
        let (name, labels) = (self.word(told.name), self.word(told.labels));
        if Signal::parse(&name).is_none() {
            let own = (teller, name.clone(), labels.clone(), told.device);
            if self.last.insert(own, told.value) == Some(told.value) {
                return;
            }
        }
        self.readings.push(Reading { at_ns, teller, name, labels, device: told.device, value: told.value });
    }

    fn word(&mut self, text: &str) -> Arc<str> {
        if let Some(word) = self.words.get(text) {
            return word.clone();
        }
        let word: Arc<str> = text.into();
        self.words.insert(text.into(), word.clone());
        word
    }

    /// What a source found out.
    pub fn note(&mut self, notes: Vec<String>) {
        self.notes.extend(notes);
    }

    /// The readings, and the notes: first those of sources that failed.
    pub fn into_parts(self) -> (Vec<Reading>, Vec<String>) {
        let mut notes: Vec<String> = self.asked.iter().filter_map(Asked::note).collect();
        notes.extend(self.notes);
        (self.readings, notes)
    }
}

impl Asked {
    fn note(&self) -> Option<String> {
        let teller = self.teller.filter(|_| self.failed > 0)?.name();
        Some(format!("telemetry of {teller}: {} of {} samples failed, at first: {}", self.failed, self.times, self.first))
    }
}

/// From `zero` to `at` in nanoseconds; negative where `at` is the earlier one.
fn signed(at: Instant, zero: Instant) -> i64 {
    let span = |span: std::time::Duration| i64::try_from(span.as_nanos()).unwrap_or(i64::MAX);
    match at.checked_duration_since(zero) {
        Some(after) => span(after),
        None => -span(zero.saturating_duration_since(at)),
    }
}
