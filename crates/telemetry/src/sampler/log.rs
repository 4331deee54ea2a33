//! What the sources told.

use crate::source::{Source, Told};
use llmscen_core::signal::Signal;
use llmscen_core::telemetry::{Reading, Teller};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

/// What tells a series of values under a source's own name from the others.
type Own = (Teller, Arc<str>, Arc<str>, Option<u32>);

/// The readings of a round so far.
pub(super) struct Log {
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
