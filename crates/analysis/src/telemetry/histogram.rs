//! Histograms of a server: their increase over the measured windows.

use super::{Scrape, SignalSeries, Window};
use llmscen_core::telemetry::SignalStat;

/// The increase of a histogram between two scrapes.
#[derive(Clone, Debug, Default, PartialEq)]
struct Increase {
    /// Upper bounds with cumulative counts.
    buckets: Vec<(f64, f64)>,
    /// None where the server reports no sum.
    sum: Option<f64>,
    count: f64,
    /// Whether the scrapes enclose the window.
    encloses_window: bool,
}

/// The increase over all windows, with a note where it does not cover them; or why it is unknown.
pub(super) fn stat(
    lines: &[(SignalSeries<'_>, Window)],
) -> Result<(SignalStat, Option<String>), &'static str> {
    let increases = lines
        .iter()
        .map(|(line, window)| increase_of_workers(line, *window))
        .collect::<Result<Vec<_>, _>>()?;
    let is_covered = increases.iter().all(|increase| increase.encloses_window);
    let total = increases
        .into_iter()
        .map(Ok)
        .reduce(|sum, increase| {
            let (sum, increase) = (sum?, increase?);
            if !have_equal_bounds(&sum.buckets, &increase.buckets) {
                return Err("its buckets differ between rounds");
            }
            Ok(add(sum, increase))
        })
        .ok_or("no sample was read")??;
    let note = "covers only the span between the first and the last sample: there is none before, \
    or none after, the measured window";
    let mean = total
        .sum
        .filter(|_| total.count > 0.0)
        .map(|sum| sum / total.count);
    let stat = SignalStat {
        n: total.count.round() as u64,
        mean,
        buckets: total.buckets,
        ..SignalStat::default()
    };
    Ok((stat, (!is_covered).then(|| note.to_owned())))
}

/// The increase of all workers together, at the bounds that all of them have.
fn increase_of_workers(line: &SignalSeries<'_>, window: Window) -> Result<Increase, &'static str> {
    let mut all = line
        .by_worker()
        .iter()
        .map(|line| increase(line, window))
        .collect::<Result<Vec<_>, _>>()?;
    let bounds = |increase: &Increase| {
        increase
            .buckets
            .iter()
            .map(|bucket| bucket.0)
            .collect::<Vec<_>>()
    };
    let bounds: Vec<Vec<f64>> = all.iter().map(bounds).collect();
    for increase in &mut all {
        increase
            .buckets
            .retain(|(bound, _)| bounds.iter().all(|known| known.contains(bound)));
    }
    all.into_iter().reduce(add).ok_or("no sample was read")
}

/// From the last scrape at or before the window to the first one at or after it, else from and to the outermost ones.
fn increase(line: &SignalSeries<'_>, window: Window) -> Result<Increase, &'static str> {
    let scrapes: Vec<&Scrape<'_>> = line
        .0
        .iter()
        .filter(|scrape| count(scrape).is_some())
        .collect();
    let before = scrapes.iter().rposition(|scrape| scrape.at <= window.from);
    let after = scrapes.iter().position(|scrape| scrape.at >= window.until);
    let span = scrapes
        .get(before.unwrap_or(0)..=after.unwrap_or(scrapes.len().saturating_sub(1)))
        .unwrap_or_default();
    let (Some(first), Some(last)) = (span.first(), span.last().filter(|_| span.len() > 1)) else {
        return Err("fewer than two samples around a measured window");
    };
    let counts: Vec<f64> = span.iter().filter_map(|scrape| count(scrape)).collect();
    const RESET: &str = "a counter of the server was reset during a measured window";
    if counts.windows(2).any(|pair| pair.first() > pair.last()) {
        return Err(RESET);
    }
    let from = buckets(first);
    let to = buckets(last);
    if !have_equal_bounds(&from, &to) {
        return Err("its buckets changed during a measured window");
    }
    let buckets: Vec<(f64, f64)> = from
        .iter()
        .zip(&to)
        .map(|(from, to)| (to.0, to.1 - from.1))
        .collect();
    if buckets.iter().any(|(_, below)| *below < 0.0) {
        return Err(RESET);
    }
    let sum = last
        .value_with_label("sum")
        .zip(first.value_with_label("sum"))
        .map(|(last, first)| last - first);
    let count = count(last)
        .zip(count(first))
        .map_or(0.0, |(last, first)| last - first);
    Ok(Increase {
        buckets,
        sum,
        count,
        encloses_window: before.is_some() && after.is_some(),
    })
}

/// The count; the last bucket has the same value.
fn count(scrape: &Scrape<'_>) -> Option<f64> {
    scrape
        .value_with_label("count")
        .or_else(|| scrape.value_with_label("le=+Inf"))
}

/// The cumulative buckets by ascending bound.
fn buckets(scrape: &Scrape<'_>) -> Vec<(f64, f64)> {
    let bound = |label: &str| match label.strip_prefix("le=")? {
        "+Inf" => Some(f64::INFINITY),
        text => text.parse::<f64>().ok().filter(|bound| !bound.is_nan()),
    };
    let mut buckets: Vec<(f64, f64)> = scrape
        .values
        .iter()
        .filter_map(|((_, label, _), value)| Some((bound(label)?, *value)))
        .collect();
    buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
    buckets
}

fn have_equal_bounds(a: &[(f64, f64)], b: &[(f64, f64)]) -> bool {
    a.iter()
        .map(|bucket| bucket.0)
        .eq(b.iter().map(|bucket| bucket.0))
}

/// The sum of two increases with equal bounds.
fn add(a: Increase, b: Increase) -> Increase {
    let buckets = a
        .buckets
        .iter()
        .zip(&b.buckets)
        .map(|(a, b)| (a.0, a.1 + b.1))
        .collect();
    let sum = a.sum.zip(b.sum).map(|(a, b)| a + b);
    Increase {
        buckets,
        sum,
        count: a.count + b.count,
        encloses_window: a.encloses_window && b.encloses_window,
    }
}
