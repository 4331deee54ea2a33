//! What has no common name: values that were written where they changed.

use super::Watched;
use crate::model::signal::Signal;
use crate::model::telemetry::{Reading, SignalStat};
use std::collections::BTreeMap;

/// What a value was over the windows.
#[derive(Clone, Copy, Debug)]
struct Held {
    /// Values that it had.
    n: u64,
    min: f64,
    max: f64,
    /// Each value times the seconds for which it stood.
    area: f64,
    seconds: f64,
}

/// Each by its name with its labels. A value stands until the next one is written, so the mean is weighted with time; a
/// deviation or a quantile of values that are only written where they change would be of no one's.
pub(super) fn others(rounds: &[Watched<'_>]) -> BTreeMap<String, SignalStat> {
    let mut held: BTreeMap<String, Held> = BTreeMap::new();
    for own in rounds {
        let mut by_name: BTreeMap<String, Vec<(i64, f64)>> = BTreeMap::new();
        let unknown = own.recorded.readings.iter().filter(|reading| Signal::parse(&reading.name).is_none());
        for reading in unknown.filter(|reading| reading.value.is_finite()) {
            by_name.entry(name(reading)).or_default().push((reading.at_ns, reading.value));
        }
        for (name, mut values) in by_name {
            values.sort_by_key(|(at, _)| *at);
            let Some(new) = over(&values, (own.window.from, own.window.until)) else { continue };
            held.entry(name).and_modify(|old| *old = joined(*old, new)).or_insert(new);
        }
    }
    held.into_iter().map(|(name, held)| (name, stat(held))).collect()
}

fn name(reading: &Reading) -> String {
    let device = reading.device.map(|device| format!("gpu={device}"));
    let labels: Vec<&str> = [&*reading.labels].into_iter().filter(|own| !own.is_empty()).chain(device.as_deref()).collect();
    if labels.is_empty() { reading.name.to_string() } else { format!("{}{{{}}}", reading.name, labels.join(",")) }
}

/// The value over a window, from where it is first known; None where that is after it.
fn over(values: &[(i64, f64)], (from, until): (i64, i64)) -> Option<Held> {
    let ends = values.iter().skip(1).map(|(at, _)| *at).chain([i64::MAX]);
    let stood = values.iter().zip(ends).filter(|((at, _), end)| *at <= until && *end > from);
    let pieces = stood.map(|((at, value), end)| {
        let seconds = (end.min(until) - (*at).max(from)).max(0) as f64 / 1e9;
        Held { n: 1, min: *value, max: *value, area: value * seconds, seconds }
    });
    pieces.reduce(joined)
}

fn joined(a: Held, b: Held) -> Held {
    Held { n: a.n + b.n, min: a.min.min(b.min), max: a.max.max(b.max), area: a.area + b.area, seconds: a.seconds + b.seconds }
}

fn stat(held: Held) -> SignalStat {
    let mean = if held.seconds > 0.0 { Some(held.area / held.seconds) } else { Some(held.min).filter(|min| *min == held.max) };
    SignalStat { n: held.n, mean, min: Some(held.min), max: Some(held.max), ..SignalStat::default() }
}
