//! What has no common name: values that were written where they changed.

use super::Watched;
use llmscen_core::signal::Signal;
use llmscen_core::telemetry::{Other, Reading, Source};
use std::collections::{BTreeMap, BTreeSet};

/// Between two instants, in nanoseconds after time zero.
type Span = (i64, i64);

/// What a value was over the windows.
#[derive(Clone, Copy, Debug)]
struct Held {
    /// A count, of which only the growth says anything.
    count: bool,
    /// Values that it had.
    n: u64,
    min: f64,
    max: f64,
    /// Each value times the seconds for which it stood.
    area: f64,
    /// What it rose by.
    grown: f64,
    seconds: f64,
}

/// The first reading of a name, and all instants and values of it.
type Written<'a> = (&'a Reading, Vec<(i64, f64)>);

/// Each by its name with its labels: levels, and counts that grew. A value stands until the next one is written, so the mean is
/// weighted with time; a deviation or a quantile of values that are only written where they change would be of no one's. Left
/// out is what is no figure: buckets of histograms, what `_info` labels, and when something was `_created`.
pub(super) fn others(rounds: &[Watched<'_>]) -> BTreeMap<String, Other> {
    let mut held: BTreeMap<String, Held> = BTreeMap::new();
    for own in rounds {
        let readings = || own.recorded.readings.iter().filter(|own| own.value.is_finite());
        let names: BTreeSet<&str> = readings().map(|reading| &*reading.name).collect();
        let mut spans: BTreeMap<Source, Option<Span>> = BTreeMap::new();
        let mut by_name: BTreeMap<String, Written<'_>> = BTreeMap::new();
        for reading in readings().filter(|reading| Signal::parse(&reading.name).is_none() && figure(reading)) {
            by_name.entry(name(reading)).or_insert((reading, Vec::new())).1.push((reading.at_ns, reading.value));
        }
        for (name, (reading, mut values)) in by_name {
            let Some(span) = *spans.entry(reading.source).or_insert_with(|| read(own, reading.source)) else { continue };
            values.sort_by_key(|(at, _)| *at);
            let Some(new) = over(&values, span, counts(&reading.name, &names)) else { continue };
            held.entry(name).and_modify(|old| *old = joined(*old, new)).or_insert(new);
        }
    }
    held.into_iter().filter_map(|(name, held)| Some((name, told(held)?))).collect()
}

fn name(reading: &Reading) -> String {
    let device = reading.device.map(|device| format!("gpu={device}"));
    let labels: Vec<&str> = [&*reading.labels].into_iter().filter(|own| !own.is_empty()).chain(device.as_deref()).collect();
    if labels.is_empty() { reading.name.to_string() } else { format!("{}{{{}}}", reading.name, labels.join(",")) }
}

/// Whether it is more than a part of a histogram, a date or a list of labels.
fn figure(reading: &Reading) -> bool {
    let (name, labels) = (&*reading.name, &*reading.labels);
    let bucket = labels.split(',').any(|label| label.trim_start().starts_with("le="));
    !bucket && !["_bucket", "_info", "_created"].iter().any(|end| name.ends_with(end))
}

/// Whether it counts: by its ending, or as the sum or the count of one histogram or summary, which has both.
fn counts(name: &str, names: &BTreeSet<&str>) -> bool {
    let both = |base: &str| ["_sum", "_count"].iter().all(|end| names.contains(format!("{base}{end}").as_str()));
    name.ends_with("_total") || name.strip_suffix("_sum").or_else(|| name.strip_suffix("_count")).is_some_and(both)
}

/// From the first to the last reading of this source within the window, as its signals have them, so that both exist where
/// either does; the window where it tells no signal, since nothing else is written at every reading. None where none is in it.
fn read(own: &Watched<'_>, source: Source) -> Option<Span> {
    let told = own.recorded.readings.iter().filter(|own| own.source == source && Signal::parse(&own.name).is_some());
    let all: BTreeSet<i64> = told.map(|own| own.at_ns).collect();
    if all.is_empty() {
        return Some((own.window.from, own.window.until));
    }
    let mut within = all.range(own.window.from..=own.window.until.max(own.window.from));
    let first = *within.next()?;
    Some((first, within.next_back().copied().unwrap_or(first)))
}

/// The value over a span, from where it is first known; None where that is after it.
fn over(values: &[(i64, f64)], (from, until): Span, count: bool) -> Option<Held> {
    let ends = values.iter().skip(1).map(|(at, _)| *at).chain([i64::MAX]);
    let stood = values.iter().zip(ends).filter(|((at, _), end)| *at <= until && *end > from);
    let known: Vec<((i64, f64), i64)> = stood.map(|(value, end)| (*value, end)).collect();
    let pieces = known.iter().map(|((at, value), end)| {
        let seconds = ((*end).min(until) - (*at).max(from)).max(0) as f64 / 1e9;
        Held { count, n: 1, min: *value, max: *value, area: value * seconds, grown: 0.0, seconds }
    });
    // A count that fell began anew: what it grew by there is not known.
    let steps = known.windows(2).filter_map(|pair| Some(pair.last()?.0.1 - pair.first()?.0.1));
    let grown = steps.filter(|step| *step > 0.0).sum();
    pieces.reduce(joined).map(|held| Held { grown, ..held })
}

fn joined(a: Held, b: Held) -> Held {
    Held {
        count: a.count,
        n: a.n + b.n,
        min: a.min.min(b.min),
        max: a.max.max(b.max),
        area: a.area + b.area,
        grown: a.grown + b.grown,
        seconds: a.seconds + b.seconds,
    }
}

/// None of a count that stood still.
fn told(held: Held) -> Option<Other> {
    let per = |part: f64| (held.seconds > 0.0).then(|| part / held.seconds);
    if held.count {
        return per(held.grown).filter(|growth| *growth > 0.0).map(Other::Growth);
    }
    let mean = per(held.area).or(Some(held.min).filter(|min| *min == held.max));
    Some(Other::Level { n: held.n, mean, min: held.min, max: held.max })
}

#[cfg(test)]
mod tests {
    use super::super::Window;
    use super::*;
    use llmscen_core::telemetry::Recorded;

    const SECOND: i64 = 1_000_000_000;

    /// Readings at so many seconds, over a window of these.
    fn over(readings: &[(i64, &str, &str, f64)], (from, until): Span) -> BTreeMap<String, Other> {
        let told = |&(at, name, labels, value): &(i64, &str, &str, f64)| Reading {
            at_ns: at * SECOND,
            source: Source::Prometheus,
            name: name.into(),
            labels: labels.into(),
            device: None,
            value,
        };
        let recorded = Recorded { case: "a".into(), round: 0, readings: readings.iter().map(told).collect() };
        others(&[Watched { recorded: &recorded, window: Window { from: from * SECOND, until: until * SECOND } }])
    }

    fn level(n: u64, mean: f64, min: f64, max: f64) -> Other {
        Other::Level { n, mean: Some(mean), min, max }
    }

    #[test]
    fn a_value_stands_until_the_next_is_written() {
        let seen = over(&[(0, "x:y", "a=b", 2.0), (3, "x:y", "a=b", 8.0), (5, "x:y", "a=b", 99.0), (6, "z", "", 1.0)], (1, 4));
        // 2 for 2 s, 8 for 1 s.
        assert_eq!(seen, BTreeMap::from([("x:y{a=b}".to_owned(), level(2, 4.0, 2.0, 8.0))]));
        assert_eq!(over(&[(3, "x", "", 6.0)], (1, 4))["x"], level(1, 6.0, 6.0, 6.0), "from where it is known");
    }

    #[test]
    fn a_count_is_what_it_grew_by_and_nothing_where_it_stood_still() {
        let seen = over(
            &[
                (0, "grows_total", "", 10.0),
                (2, "grows_total", "", 14.0),
                (3, "grows_total", "", 1.0),
                (4, "grows_total", "", 3.0),
                (0, "still_total", "", 7.0),
                (0, "own_sum", "", 1.0),
                (2, "own_sum", "", 7.0),
                (0, "own_count", "", 1.0),
                (0, "queue_count", "", 5.0),
            ],
            (0, 4),
        );
        let growth = |per_second| Other::Growth(per_second);
        let expected = [("grows_total", growth(1.5)), ("own_sum", growth(1.5)), ("queue_count", level(1, 5.0, 5.0, 5.0))];
        assert_eq!(seen, expected.map(|(name, own)| (name.to_owned(), own)).into());
    }

    #[test]
    fn buckets_dates_and_labels_are_no_figures() {
        let names = [("x_bucket", "le=1"), ("y", "a=b,le=+Inf"), ("x_created", ""), ("build_info", "version=1")];
        assert_eq!(over(&names.map(|(name, labels)| (0, name, labels, 1.0)), (0, 4)), BTreeMap::new());
    }

    #[test]
    fn what_was_not_read_within_the_window_is_not_known_as_with_signals() {
        let readings =
            [(0, "server.running", "", 1.0), (0, "x", "", 4.0), (0, "y_total", "", 0.0), (9, "server.running", "", 1.0)];
        assert_eq!(over(&readings, (1, 4)), BTreeMap::new());
        let more = |at: &[i64]| -> Vec<_> {
            let read = at.iter().map(|at| (*at, "server.running", "", 1.0));
            readings.into_iter().chain(read).chain([(3, "y_total", "", 6.0)]).collect()
        };
        let names = |at: &[i64]| over(&more(at), (1, 4)).into_iter().collect::<Vec<_>>();
        assert_eq!(names(&[3]), [("x".to_owned(), level(1, 4.0, 4.0, 4.0))], "one reading makes no rate");
        // From the reading at 1 s to the one at 3 s.
        assert_eq!(names(&[1, 3])[1], ("y_total".to_owned(), Other::Growth(3.0)));
    }

    #[test]
    fn rounds_add_up() {
        let recorded = [6.0, 10.0].map(|end| {
            let told = |at, value| Reading {
                at_ns: at * SECOND,
                source: Source::Prometheus,
                name: "x_total".into(),
                labels: "".into(),
                device: None,
                value,
            };
            Recorded { case: "a".into(), round: 0, readings: vec![told(0, 2.0), told(1, end)] }
        });
        let window = Window { from: 0, until: 2 * SECOND };
        let seen = others(&recorded.each_ref().map(|recorded| Watched { recorded, window }));
        assert_eq!(seen["x_total"], Other::Growth(3.0), "12 in 4 s");
    }
}
