//! Reads every source at its interval, on a thread of its own, and keeps the values.

use crate::process::stand_behind;
use crate::source::{SampledValue, TelemetrySource};
use llmscen_core::signal::Signal;
use llmscen_core::telemetry::{Reading, Source};
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
    /// Starts with the first sample of every source, and returns when it is done. Without sources there is no thread.
    ///
    /// Sources that are due at once are read in this order: slow ones belong at the end.
    ///
    /// # Errors
    /// The system gives no thread.
    pub fn start(sources: Vec<Box<dyn TelemetrySource>>) -> io::Result<Sampler> {
        if sources.is_empty() {
            return Ok(Sampler { running: None });
        }
        let ((origin, orders), (ready, begun)) = (channel(), channel());
        let thread = Builder::new().name("telemetry".into()).spawn(move || {
            stand_behind();
            run(sources, &ready, &orders)
        })?;
        // A dropped sender also ends the wait: the thread is over, and `finish` reports why.
        let _ = begun.recv();
        Ok(Sampler { running: Some(Running { origin, thread }) })
    }

    /// Sets the case's time zero, from which the intervals and the times of all readings count.
    pub fn count_from(&self, origin: Instant) {
        if let Some(running) = &self.running {
            let _ = running.origin.send(origin);
        }
    }

    /// Samples everything for the last time. Gives the readings, in the order in which they were made, and notes on them.
    pub fn finish(self) -> (Vec<Reading>, Vec<String>) {
        let Some(Running { origin, thread }) = self.running else { return Default::default() };
        drop(origin);
        let broken = |_| (Vec::new(), vec!["the telemetry thread ended unexpectedly; this is a defect of llmscen".into()]);
        thread.join().map_or_else(broken, Log::into_parts)
    }
}

/// One source, and when it is due.
struct ScheduledSource {
    source: Box<dyn TelemetrySource>,
    interval: Duration,
    due: Instant,
}

fn run(sources: Vec<Box<dyn TelemetrySource>>, ready: &Sender<()>, orders: &Receiver<Instant>) -> Log {
    let begin = Instant::now();
    let mut log = Log::new(begin, sources.len());
    let mut scheduled: Vec<ScheduledSource> = sources.into_iter().map(|source| ScheduledSource::new(source, begin)).collect();
    sample_chosen(&mut scheduled, &mut log, begin, |_| true);
    let _ = ready.send(());
    // The other end is dropped where the round does not start.
    let Ok(origin) = orders.recv() else { return log };
    log.count_from(origin);
    let now = Instant::now();
    scheduled.iter_mut().for_each(|own| own.due = next(origin, own.interval, now));
    while let Some(due) = scheduled.iter().map(|own| own.due).min() {
        let Err(RecvTimeoutError::Timeout) = orders.recv_timeout(due.saturating_duration_since(Instant::now())) else { break };
        let now = Instant::now();
        sample_chosen(&mut scheduled, &mut log, origin, |own| own.due <= now);
    }
    sample_chosen(&mut scheduled, &mut log, origin, |_| true);
    scheduled.iter_mut().for_each(|own| log.note(own.source.notes()));
    log
}

impl ScheduledSource {
    fn new(source: Box<dyn TelemetrySource>, due: Instant) -> ScheduledSource {
        let interval = Duration::from(source.interval());
        ScheduledSource { source, interval, due }
    }
}

/// Samples those that are chosen, and sets when they are due again.
fn sample_chosen(scheduled: &mut [ScheduledSource], log: &mut Log, origin: Instant, chosen: impl Fn(&ScheduledSource) -> bool) {
    for (place, own) in scheduled.iter_mut().enumerate().filter(|(_, own)| chosen(own)) {
        log.sample(place, own.source.as_mut(), Instant::now());
        own.due = next(origin, own.interval, Instant::now());
    }
}

/// The first of the instants `origin`, `origin + interval` … after `now`. An instant that was missed is not made up for.
fn next(origin: Instant, interval: Duration, now: Instant) -> Instant {
    let passed = now.saturating_duration_since(origin).as_nanos();
    let each = interval.as_nanos().max(1);
    let after = (passed / each + 1) * each;
    origin + Duration::from_nanos(u64::try_from(after).unwrap_or(u64::MAX))
}

/// Identifies a series of values under a source's own name.
type Series = (Source, Arc<str>, Arc<str>, Option<u32>);

/// The readings of a round so far.
pub(crate) struct Log {
    zero: Instant,
    readings: Vec<Reading>,
    notes: Vec<String>,
    words: HashMap<Box<str>, Arc<str>>,
    /// The last value of each series without a common name.
    last: HashMap<Series, f64>,
    sources: Vec<SourceLog>,
}

/// The samples of one source.
#[derive(Default)]
struct SourceLog {
    source: Option<Source>,
    times: u64,
    failed: u64,
    first: String,
}

impl Log {
    /// An empty log of this many sources, which counts from `zero` until [`Log::count_from`].
    fn new(zero: Instant, sources: usize) -> Log {
        let sources = (0..sources).map(|_| SourceLog::default()).collect();
        Log { zero, readings: Vec::new(), notes: Vec::new(), words: HashMap::new(), last: HashMap::new(), sources }
    }

    /// Counts from `zero`, what is already there included.
    pub fn count_from(&mut self, zero: Instant) {
        let later = signed(self.zero, zero);
        self.readings.iter_mut().for_each(|reading| reading.at_ns += later);
        self.zero = zero;
    }

    /// Samples the source at that place, at `at`.
    pub fn sample(&mut self, place: usize, source: &mut dyn TelemetrySource, at: Instant) {
        let kind = source.kind();
        let at_ns = signed(at, self.zero);
        let answer = source.sample(at, &mut |value| self.keep(kind, at_ns, value));
        let Some(log) = self.sources.get_mut(place) else { return };
        log.source = Some(kind);
        log.times += 1;
        if let Err(error) = answer {
            log.failed += 1;
            if log.first.is_empty() {
                log.first = error;
            }
        }
    }

    fn keep(&mut self, source: Source, at_ns: i64, value: SampledValue<'_>) {
        // A value that is no number is no reading.
        if !value.value.is_finite() {
            return;
        }
        let (name, labels) = (self.word(value.name), self.word(value.labels));
        if Signal::parse(&name).is_none() {
            let series = (source, name.clone(), labels.clone(), value.device);
            if self.last.insert(series, value.value) == Some(value.value) {
                return;
            }
        }
        self.readings.push(Reading { at_ns, source, name, labels, device: value.device, value: value.value });
    }

    fn word(&mut self, text: &str) -> Arc<str> {
        if let Some(word) = self.words.get(text) {
            return word.clone();
        }
        let word: Arc<str> = text.into();
        self.words.insert(text.into(), word.clone());
        word
    }

    /// Keeps the findings of a source.
    pub fn note(&mut self, notes: Vec<String>) {
        self.notes.extend(notes);
    }

    /// The readings, and the notes: first those of sources that failed.
    pub fn into_parts(self) -> (Vec<Reading>, Vec<String>) {
        let mut notes: Vec<String> = self.sources.iter().filter_map(SourceLog::note).collect();
        notes.extend(self.notes);
        (self.readings, notes)
    }
}

impl SourceLog {
    fn note(&self) -> Option<String> {
        let source = self.source.filter(|_| self.failed > 0)?.name();
        Some(format!("telemetry of {source}: {} of {} samples failed, at first: {}", self.failed, self.times, self.first))
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
