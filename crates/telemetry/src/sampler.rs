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
mod tests {
    use super::*;
    use llmscen_core::units::Nanos;

    /// Emits these samples, then nothing.
    struct Fake {
        interval: Nanos,
        samples: Vec<Result<Vec<(&'static str, f64)>, String>>,
        taken: usize,
    }

    impl Fake {
        fn new(samples: Vec<Result<Vec<(&'static str, f64)>, String>>) -> Fake {
            Fake {
                interval: Nanos::from_millis(5),
                samples,
                taken: 0,
            }
        }
    }

    impl TelemetrySource for Fake {
        fn kind(&self) -> Source {
            Source::Prometheus
        }

        fn interval(&self) -> Nanos {
            self.interval
        }

        fn sample(
            &mut self,
            _at: Instant,
            emit: &mut dyn FnMut(SampledValue<'_>),
        ) -> Result<(), String> {
            let sample = self
                .samples
                .get(self.taken)
                .cloned()
                .unwrap_or_else(|| Ok(Vec::new()));
            self.taken += 1;
            sample?.into_iter().for_each(|(name, value)| {
                emit(SampledValue {
                    name,
                    labels: "",
                    device: None,
                    value,
                })
            });
            Ok(())
        }

        fn notes(&mut self) -> Vec<String> {
            vec!["by the way".into()]
        }
    }

    #[test]
    fn readings_count_from_time_zero_and_those_before_it_are_negative() {
        let begin = Instant::now();
        let at = |millis| begin + Duration::from_millis(millis);
        let samples = [1.0, 2.0, 3.0].map(|value| Ok(vec![("server.waiting", value)]));
        let (mut log, mut source) = (Log::new(begin, 1), Fake::new(samples.to_vec()));
        log.sample(0, &mut source, at(0));
        log.count_from(at(7));
        log.sample(0, &mut source, at(7));
        log.sample(0, &mut source, at(20));
        let (readings, notes) = log.into_parts();
        let values: Vec<(i64, f64)> = readings
            .iter()
            .map(|reading| (reading.at_ns, reading.value))
            .collect();
        assert_eq!(values, [(-7_000_000, 1.0), (0, 2.0), (13_000_000, 3.0)]);
        assert_eq!(notes, Vec::<String>::new());
    }

    #[test]
    fn a_common_name_is_kept_every_time_and_an_own_name_where_it_changed() {
        let begin = Instant::now();
        let sample = |own| {
            Ok(vec![
                ("gpu.power", 7.0),
                ("vllm:x", own),
                ("vllm:nan", f64::NAN),
            ])
        };
        let (mut log, mut source) = (
            Log::new(begin, 1),
            Fake::new(vec![sample(1.0), sample(1.0), sample(2.0), sample(1.0)]),
        );
        (0..4).for_each(|_| log.sample(0, &mut source, begin));
        let (readings, _) = log.into_parts();
        let named = |name: &str| {
            readings
                .iter()
                .filter(|reading| &*reading.name == name)
                .map(|reading| reading.value)
                .collect::<Vec<_>>()
        };
        assert_eq!(
            (named("gpu.power"), named("vllm:x"), named("vllm:nan")),
            (vec![7.0; 4], vec![1.0, 2.0, 1.0], vec![])
        );
    }

    #[test]
    fn a_source_that_fails_is_noted_once_and_sampled_again() {
        let (value, lost) = (
            || Ok(vec![("gpu.power", 1.0)]),
            |why: &str| Err(why.to_owned()),
        );
        let (mut log, mut source) = (
            Log::new(Instant::now(), 2),
            Fake::new(vec![value(), lost("gone"), lost("still"), value()]),
        );
        (0..4).for_each(|_| log.sample(1, &mut source, Instant::now()));
        let (readings, notes) = log.into_parts();
        assert_eq!(readings.len(), 2);
        assert_eq!(
            notes,
            ["telemetry of prometheus: 2 of 4 samples failed, first error: gone"]
        );
    }

    #[test]
    fn deadlines_are_absolute_and_missed_ones_are_skipped() {
        let origin = Instant::now() + Duration::from_secs(1);
        let at = |millis| origin + Duration::from_millis(millis);
        let each = Duration::from_millis(100);
        let due = [0, 99, 100, 101, 930].map(|now| next_due(origin, each, at(now)));
        assert_eq!(due, [100, 100, 200, 200, 1000].map(at));
        assert_eq!(
            next_due(origin, each, origin - each),
            at(100),
            "time zero itself comes right after the first sample"
        );
    }

    #[test]
    fn every_source_is_sampled_before_and_after_and_at_its_own_interval_between() {
        let endless = || {
            Fake::new(
                (0..1000)
                    .map(|n| Ok(vec![("gpu.power", f64::from(n))]))
                    .collect(),
            )
        };
        let slow = Fake {
            interval: Nanos::from_millis(3_600_000),
            ..Fake::new(vec![
                Ok(vec![("gpu.clock", 1.0)]),
                Ok(vec![("gpu.clock", 2.0)]),
            ])
        };
        let sampler = Sampler::start(vec![Box::new(endless()), Box::new(slow)]).unwrap();
        let origin = Instant::now();
        sampler.count_from(origin);
        std::thread::sleep(Duration::from_millis(60));
        let ended = origin.elapsed().as_nanos() as i64;
        let (readings, notes) = sampler.finish();
        let named = |name: &str| {
            readings
                .iter()
                .filter(|reading| &*reading.name == name)
                .collect::<Vec<_>>()
        };
        let (fast, slow) = (named("gpu.power"), named("gpu.clock"));
        assert!(
            fast.len() >= 3 && fast.windows(2).all(|pair| pair[0].at_ns < pair[1].at_ns),
            "{fast:?}"
        );
        let values: Vec<f64> = fast.iter().map(|reading| reading.value).collect();
        assert_eq!(
            values,
            (0..values.len()).map(|n| n as f64).collect::<Vec<_>>(),
            "in the order in which they were emitted"
        );
        assert_eq!(
            slow.iter().map(|reading| reading.value).collect::<Vec<_>>(),
            [1.0, 2.0],
            "first and last, no more"
        );
        for both in [&fast, &slow] {
            assert!(
                both[0].at_ns < 0 && both[both.len() - 1].at_ns >= ended,
                "{both:?}"
            );
        }
        assert_eq!(notes, ["by the way", "by the way"]);
    }

    #[test]
    fn no_sources_need_no_thread_and_a_round_that_does_not_come_to_be_leaves_none() {
        assert_eq!(
            Sampler::start(Vec::new()).unwrap().finish(),
            (Vec::new(), Vec::new())
        );
        let sampler = Sampler::start(vec![Box::new(Fake::new(vec![Ok(vec![(
            "gpu.power",
            1.0,
        )])]))])
        .unwrap();
        let (readings, _) = sampler.finish();
        assert_eq!(
            readings.len(),
            1,
            "before time zero nothing but the first sample"
        );
    }
}
