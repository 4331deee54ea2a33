//! A server's histograms: what grew over the measured windows.

use super::Window;
use super::{Line, Moment};
use llmscen_core::telemetry::SignalStat;

/// What was added to a histogram between two readings.
#[derive(Clone, Debug, Default, PartialEq)]
struct Grown {
    /// Bounds, and what fell below each.
    buckets: Vec<(f64, f64)>,
    /// None where the server tells no sum.
    sum: Option<f64>,
    count: f64,
    /// Whether the readings enclose the window.
    encloses: bool,
}

/// The growth over all windows together, and a note where it is not of all of their time; or why it is not known.
pub(super) fn stat(lines: &[(Line<'_>, Window)]) -> Result<(SignalStat, Option<String>), &'static str> {
    let grown = lines.iter().map(|(line, window)| growth(line, *window)).collect::<Result<Vec<_>, _>>()?;
    let whole = grown.iter().all(|own| own.encloses);
    let total = grown.into_iter().map(Ok).reduce(|sum, own| added(sum?, own?)).ok_or("no sample was read")??;
    let note =
        "covers only the span between the first and the last sample: there is none before, or none after, the measured window";
    let mean = total.sum.filter(|_| total.count > 0.0).map(|sum| sum / total.count);
    let stat = SignalStat { n: total.count.round() as u64, mean, buckets: total.buckets, ..SignalStat::default() };
    Ok((stat, (!whole).then(|| note.to_owned())))
}

/// Between the last reading at or before the window and the first at or after it; the outermost ones, where there are none.
fn growth(line: &Line<'_>, window: Window) -> Result<Grown, &'static str> {
    let read: Vec<&Moment<'_>> = line.0.iter().filter(|own| count(own).is_some()).collect();
    let before = read.iter().rposition(|own| own.at <= window.from);
    let after = read.iter().position(|own| own.at >= window.until);
    let span = read.get(before.unwrap_or(0)..=after.unwrap_or(read.len().saturating_sub(1))).unwrap_or_default();
    let (Some(first), Some(last)) = (span.first(), span.last().filter(|_| span.len() > 1)) else {
        return Err("fewer than two samples around a measured window");
    };
    let counts: Vec<f64> = span.iter().filter_map(|own| count(own)).collect();
    const ANEW: &str = "a counter of the server was reset during a measured window";
    if counts.windows(2).any(|pair| pair.first() > pair.last()) {
        return Err(ANEW);
    }
    let (from, to) = (buckets(first), buckets(last));
    if from.iter().map(|own| own.0).ne(to.iter().map(|own| own.0)) {
        return Err("its buckets changed during a measured window");
    }
    let grown: Vec<(f64, f64)> = from.iter().zip(&to).map(|(from, to)| (to.0, to.1 - from.1)).collect();
    if grown.iter().any(|(_, below)| *below < 0.0) {
        return Err(ANEW);
    }
    let sum = last.labelled("sum").zip(first.labelled("sum")).map(|(last, first)| last - first);
    let count = count(last).zip(count(first)).map_or(0.0, |(last, first)| last - first);
    Ok(Grown { buckets: grown, sum, count, encloses: before.is_some() && after.is_some() })
}

/// What it counted; its last bucket holds all, too.
fn count(own: &Moment<'_>) -> Option<f64> {
    own.labelled("count").or_else(|| own.labelled("le=+Inf"))
}

/// The cumulated buckets by rising bound.
fn buckets(own: &Moment<'_>) -> Vec<(f64, f64)> {
    let bound = |label: &str| match label.strip_prefix("le=")? {
        "+Inf" => Some(f64::INFINITY),
        text => text.parse::<f64>().ok().filter(|bound| !bound.is_nan()),
    };
    let mut found: Vec<(f64, f64)> = own.values.iter().filter_map(|((label, _), value)| Some((bound(label)?, *value))).collect();
    found.sort_by(|a, b| a.0.total_cmp(&b.0));
    found
}

/// Two growths as one.
fn added(a: Grown, b: Grown) -> Result<Grown, &'static str> {
    if a.buckets.iter().map(|own| own.0).ne(b.buckets.iter().map(|own| own.0)) {
        return Err("its buckets differ between rounds");
    }
    let buckets = a.buckets.iter().zip(&b.buckets).map(|(a, b)| (a.0, a.1 + b.1)).collect();
    let sum = a.sum.zip(b.sum).map(|(a, b)| a + b);
    Ok(Grown { buckets, sum, count: a.count + b.count, encloses: a.encloses && b.encloses })
}
