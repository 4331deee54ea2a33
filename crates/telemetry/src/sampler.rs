//! Samples every source at its interval, on a separate thread.

use crate::process::lower_thread_priority;
use crate::{SampledValue, TelemetrySource};
use llmscen_core::signal::Signal;
use llmscen_core::telemetry::{Source, TelemetrySample};
use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

/// The sampler of one round. It samples all sources at its start, each source at its interval, and all sources at its
/// end.
pub struct Sampler {
    running: Option<Running>,
}

struct Running {
    origin: Sender<Instant>,
    thread: JoinHandle<Log>,
}

impl Sampler {
    /// Returns after the first sample of every source. Without sources it starts no thread.
    ///
    /// Sources that are due at the same time are sampled in this order, so slow ones belong at the end.
    ///
    /// # Errors
    /// The system cannot start a thread.
    pub fn start(sources: Vec<Box<dyn TelemetrySource>>) -> io::Result<Sampler> {
        if sources.is_empty() {
            return Ok(Sampler { running: None });
        }
        let (origin, orders) = channel();
        let (ready, started) = channel();
        let thread = Builder::new().name("telemetry".into()).spawn(move || {
            lower_thread_priority();
            run(sources, &ready, &orders)
        })?;
        // A thread that panicked drops the sender, which ends this wait too; `finish` reports it.
        let _ = started.recv();
        Ok(Sampler {
            running: Some(Running { origin, thread }),
        })
    }

    /// Sets the time zero of the case, from which intervals and the times of all readings count.
    pub fn count_from(&self, origin: Instant) {
        if let Some(running) = &self.running {
            let _ = running.origin.send(origin);
        }
    }

    /// Samples all sources for the last time. Returns the readings in order of time, and notes on them.
    pub fn finish(self) -> (Vec<TelemetrySample>, Vec<String>) {
        let Some(Running { origin, thread }) = self.running else {
            return Default::default();
        };
        drop(origin);
        let panicked = |_| {
            (
                Vec::new(),
                vec!["the telemetry thread stopped unexpectedly; this is a bug in llmscen".into()],
            )
        };
        thread.join().map_or_else(panicked, Log::into_parts)
    }
}

struct ScheduledSource {
    source: Box<dyn TelemetrySource>,
    interval: Duration,
    due: Instant,
}

fn run(
    sources: Vec<Box<dyn TelemetrySource>>,
    ready: &Sender<()>,
    orders: &Receiver<Instant>,
) -> Log {
    let begin = Instant::now();
    let mut log = Log::new(begin, sources.len());
    let mut scheduled: Vec<ScheduledSource> = sources
        .into_iter()
        .map(|source| ScheduledSource::new(source, begin))
        .collect();
    sample_due(&mut scheduled, &mut log, begin, None);
    let _ = ready.send(());
    // The sender is dropped where the round does not start.
    let Ok(origin) = orders.recv() else {
        return log;
    };
    log.count_from(origin);
    let now = Instant::now();
    scheduled
        .iter_mut()
        .for_each(|source| source.due = next_due(origin, source.interval, now));
    while let Some(due) = scheduled.iter().map(|source| source.due).min() {
        let Err(RecvTimeoutError::Timeout) =
            orders.recv_timeout(due.saturating_duration_since(Instant::now()))
        else {
            break;
        };
        sample_due(&mut scheduled, &mut log, origin, Some(Instant::now()));
    }
    sample_due(&mut scheduled, &mut log, origin, None);
    for ScheduledSource { source, .. } in &mut scheduled {
        let kind = source.kind();
        source.past_samples(origin, &mut |at, value| {
            log.record(kind, nanos_between(origin, at), value);
        });
        log.notes.extend(source.notes());
    }
    log.readings.sort_by_key(|reading| reading.at_ns);
    log
}

impl ScheduledSource {
    fn new(source: Box<dyn TelemetrySource>, due: Instant) -> ScheduledSource {
        let interval = Duration::from(source.interval());
        ScheduledSource {
            source,
            interval,
            due,
        }
    }
}

/// Samples the sources that are due at `now`, or all of them.
fn sample_due(
    scheduled: &mut [ScheduledSource],
    log: &mut Log,
    origin: Instant,
    now: Option<Instant>,
) {
    let is_due = |source: &ScheduledSource| now.is_none_or(|now| source.due <= now);
    for (index, source) in scheduled
        .iter_mut()
        .enumerate()
        .filter(|(_, source)| is_due(source))
    {
        log.sample(index, source.source.as_mut(), Instant::now());
        source.due = next_due(origin, source.interval, Instant::now());
    }
}

/// The first of the instants `origin`, `origin + interval` … after `now`. Missed instants are skipped.
fn next_due(origin: Instant, interval: Duration, now: Instant) -> Instant {
    let passed = now.saturating_duration_since(origin).as_nanos();
    let interval = interval.as_nanos().max(1);
    let after = (passed / interval + 1) * interval;
    origin + Duration::from_nanos(u64::try_from(after).unwrap_or(u64::MAX))
}

/// Source, name, labels and device of a series.
type Series = (Source, Arc<str>, Arc<str>, Option<u32>);

/// The readings of a round so far.
struct Log {
    zero: Instant,
    readings: Vec<TelemetrySample>,
    notes: Vec<String>,
    /// Interned names and labels.
    texts: HashMap<Box<str>, Arc<str>>,
    /// The last value of each series that is not a signal.
    last: HashMap<Series, f64>,
    sources: Vec<SourceLog>,
}

#[derive(Default)]
struct SourceLog {
    source: Option<Source>,
    samples: u64,
    failed: u64,
    first_error: String,
}

impl Log {
    /// Times count from `zero` until [`Log::count_from`].
    fn new(zero: Instant, source_count: usize) -> Log {
        let sources = (0..source_count).map(|_| SourceLog::default()).collect();
        Log {
            zero,
            readings: Vec::new(),
            notes: Vec::new(),
            texts: HashMap::new(),
            last: HashMap::new(),
            sources,
        }
    }

    /// Sets the time zero, also of the readings so far.
    fn count_from(&mut self, zero: Instant) {
        let shift = nanos_between(zero, self.zero);
        self.readings
            .iter_mut()
            .for_each(|reading| reading.at_ns += shift);
        self.zero = zero;
    }

    /// Samples a source at `at`. `index` is its index in the list of sources.
    fn sample(&mut self, index: usize, source: &mut dyn TelemetrySource, at: Instant) {
        let kind = source.kind();
        let at_ns = nanos_between(self.zero, at);
        let result = source.sample(at, &mut |value| self.record(kind, at_ns, value));
        let Some(log) = self.sources.get_mut(index) else {
            return;
        };
        log.source = Some(kind);
        log.samples += 1;
        if let Err(error) = result {
            log.failed += 1;
            if log.first_error.is_empty() {
                log.first_error = error;
            }
        }
    }

    fn record(&mut self, source: Source, at_ns: i64, value: SampledValue<'_>) {
        if !value.value.is_finite() {
            return;
        }
        let name = self.intern(value.name);
        let labels = self.intern(value.labels);
        if Signal::parse(&name).is_none() {
            let series = (source, name.clone(), labels.clone(), value.device);
            if self.last.insert(series, value.value) == Some(value.value) {
                return;
            }
        }
        self.readings.push(TelemetrySample {
            at_ns,
            source,
            name,
            labels,
            device: value.device,
            value: value.value,
        });
    }

    fn intern(&mut self, text: &str) -> Arc<str> {
        if let Some(interned) = self.texts.get(text) {
            return interned.clone();
        }
        let interned: Arc<str> = text.into();
        self.texts.insert(text.into(), interned.clone());
        interned
    }

    /// The readings, and the notes: first those on failed samples.
    fn into_parts(self) -> (Vec<TelemetrySample>, Vec<String>) {
        let mut notes: Vec<String> = self.sources.iter().filter_map(SourceLog::note).collect();
        notes.extend(self.notes);
        (self.readings, notes)
    }
}

impl SourceLog {
    fn note(&self) -> Option<String> {
        failed_samples_note(self.source?, self.failed, self.samples, &self.first_error)
    }
}

/// A note on failed samples of a source; None if none failed.
pub(crate) fn failed_samples_note(
    source: Source,
    failed: u64,
    samples: u64,
    first_error: &str,
) -> Option<String> {
    let name = source.name();
    (failed > 0).then(|| {
        format!(
            "telemetry of {name}: {failed} of {samples} samples failed, first error: {first_error}"
        )
    })
}

/// Nanoseconds from `zero` to `at`; negative where `at` is the earlier one.
fn nanos_between(zero: Instant, at: Instant) -> i64 {
    let nanos = |span: Duration| i64::try_from(span.as_nanos()).unwrap_or(i64::MAX);
    match at.checked_duration_since(zero) {
        Some(after) => nanos(after),
        None => -nanos(zero.saturating_duration_since(at)),
    }
}

#[cfg(test)]
mod tests;
