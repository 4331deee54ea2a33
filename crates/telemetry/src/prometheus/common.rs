//! The common signals of a page, by the table of names.

use super::names::{FAMILIES, Family, How, millis};
use super::text::{Page, Sample, pairs};
use crate::source::Told;
use llmscen_core::signal::Signal;
use llmscen_core::units::Unit;
use std::collections::{BTreeSet, HashSet};

/// Labels of the parts of one engine, each of which tells the same of all of it.
const RANKS: [&str; 3] = ["tp_rank", "pp_rank", "moe_ep_rank"];

/// What a page tells under common names.
#[derive(Debug, Default)]
pub struct Common {
    /// The servers whose names are on it, by their place among [`FAMILIES`].
    pub families: BTreeSet<usize>,
    /// The signals that it tells.
    pub told: BTreeSet<Signal>,
    /// The samples that nothing is lost of, because each stands for a signal by itself.
    pub whole: HashSet<usize>,
    /// Names whose series belong to several models, of which none is asked for.
    pub unclear: BTreeSet<&'static str>,
}

/// Tells the common signals of a page. `asked` are the models that requests name.
pub fn common(page: &Page<'_>, asked: &[String], tell: &mut dyn FnMut(Told<'_>)) -> Common {
    let mut common = Common::default();
    for (place, family) in FAMILIES.iter().enumerate().filter(|(_, family)| page.has_prefix(family.prefix)) {
        common.families.insert(place);
        let mut look = Look { page, family, asked, found: Vec::new(), merged: false, unclear: BTreeSet::new() };
        for (signal, how) in family.ways {
            if common.told.contains(signal) {
                continue;
            }
            look.found.clear();
            look.merged = false;
            if look.tell(*signal, how, tell) {
                common.told.insert(*signal);
                common.whole.extend(look.found.iter().filter(|_| !look.merged).copied());
            }
        }
        common.unclear.extend(look.unclear);
    }
    common
}

/// One look at the page for one signal.
struct Look<'l, 'p> {
    page: &'l Page<'p>,
    family: &'static Family,
    asked: &'l [String],
    /// The samples that it was found in.
    found: Vec<usize>,
    /// Several series were made one.
    merged: bool,
    unclear: BTreeSet<&'static str>,
}

impl<'l, 'p> Look<'l, 'p> {
    fn tell(&mut self, signal: Signal, how: &How, tell: &mut dyn FnMut(Told<'_>)) -> bool {
        let mut say = |labels: &str, value: f64| tell(Told { name: signal.name(), labels, device: None, value });
        let value = match *how {
            How::Gauge(name) if signal.unit() == Unit::Share => self.mean(name),
            How::Gauge(name) | How::Count(name) => self.sum(name),
            How::Over(part, whole) => {
                let (part, whole) = (self.sum(part), self.sum(whole));
                part.zip(whole).filter(|(_, whole)| *whole > 0.0).map(|(part, whole)| part / whole)
            }
            How::Told(name) => {
                let value = self.mean(name);
                value.into_iter().for_each(|value| say("value", value));
                return value.is_some();
            }
            How::Counts(part, whole) => {
                let mut sums = |names: &[&'static str]| names.iter().map(|name| self.sum(name)).sum::<Option<f64>>();
                let both = sums(part).zip(sums(whole));
                both.into_iter().for_each(|(part, whole)| {
                    say("part", part);
                    say("whole", whole);
                });
                return both.is_some();
            }
            How::Mean(sum, count) => {
                let both = self.sum(sum).zip(self.sum(count));
                both.into_iter().for_each(|(total, count)| {
                    say("sum", total * millis(sum));
                    say("count", count);
                });
                return both.is_some();
            }
            How::Histogram(name) => return self.histogram(name, &mut say),
        };
        value.into_iter().for_each(|value| say("", value));
        value.is_some()
    }

    fn sum(&mut self, name: &'static str) -> Option<f64> {
        let found = self.series(name, name);
        self.merged |= found.len() > 1;
        (!found.is_empty()).then(|| found.iter().map(|sample| sample.value).sum())
    }

    fn mean(&mut self, name: &'static str) -> Option<f64> {
        let sum = self.sum(name)?;
        Some(sum / self.series(name, name).len() as f64)
    }

    /// Buckets of several series are added, at the bounds that all of them have.
    fn histogram(&mut self, name: &'static str, say: &mut dyn FnMut(&str, f64)) -> bool {
        let scale = millis(name);
        let mut buckets: Vec<(f64, f64, usize)> = Vec::new();
        for sample in self.series(name, &format!("{name}_bucket")) {
            let Some(bound) = sample.label("le").and_then(|bound| bound.parse::<f64>().ok()) else { continue };
            buckets.push((bound * scale, sample.value, 1));
        }
        let series = buckets.iter().filter(|(bound, ..)| *bound == f64::INFINITY).count();
        buckets.sort_by(|one, other| one.0.total_cmp(&other.0));
        buckets.dedup_by(|next, kept| {
            let same = next.0 == kept.0;
            if same {
                *kept = (kept.0, kept.1 + next.1, kept.2 + 1);
            }
            same
        });
        if series == 0 {
            return false;
        }
        for (bound, count, _) in buckets.iter().filter(|(.., times)| *times == series) {
            // To the nanosecond: 0.07 s are 70 ms, not 70.00000000000001.
            let bound = (bound * 1e6).round() / 1e6;
            say(&if bound.is_finite() { format!("le={bound}") } else { "le=+Inf".to_owned() }, *count);
        }
        self.merged |= series > 1;
        for (part, scale) in [("sum", scale), ("count", 1.0)] {
            let found = self.series(name, &format!("{name}_{part}"));
            if !found.is_empty() {
                say(part, found.iter().map(|sample| sample.value).sum::<f64>() * scale);
            }
        }
        true
    }

    /// The series of a name, with or without `_total`, that have a value and are not another's copy.
    fn series(&mut self, known: &'static str, name: &str) -> Vec<&'l Sample<'p>> {
        let (name, only) = name.split_once('{').map_or((name, ""), |(name, only)| (name, only.trim_end_matches('}')));
        let places = match self.page.places(name) {
            [] => self.page.places(&format!("{name}_total")),
            places => places,
        };
        let only: Vec<_> = pairs(only).collect();
        let wanted = |sample: &Sample<'_>| {
            sample.value.is_finite() && only.iter().all(|(label, value)| sample.label(label).as_deref() == Some(value))
        };
        let samples = places.iter().filter_map(|&place| Some((place, self.page.samples.get(place)?)));
        let mut samples: Vec<_> = samples.filter(|(_, sample)| wanted(sample)).collect();
        if samples.len() > 1 && samples.iter().any(|(_, sample)| sample.labels.contains("_rank")) {
            let mut seen = HashSet::new();
            samples.retain(|(_, sample)| {
                let labels = pairs(sample.labels).filter(|(label, _)| !RANKS.contains(label));
                seen.insert(labels.collect::<Vec<_>>())
            });
        }
        if let Some(apart) = self.family.apart
            && samples.iter().map(|(_, sample)| sample.label(apart)).collect::<HashSet<_>>().len() > 1
        {
            samples.retain(|(_, sample)| sample.label(apart).is_some_and(|model| self.asked.iter().any(|own| *own == *model)));
            if samples.is_empty() {
                self.unclear.insert(known);
            }
        }
        self.found.extend(samples.iter().map(|(place, _)| *place));
        samples.into_iter().map(|(_, sample)| sample).collect()
    }
}

#[cfg(test)]
mod tests;
