//! One case with all its measured requests, and the statistics that the exports take of them.

use llmscen_analysis::TimedRequest;
use llmscen_core::check::Subject;
use llmscen_core::load::{Arrival, Shape};
use llmscen_core::manifest::Manifest;
use llmscen_core::metric::Metric;
use llmscen_core::plan::Case;
use llmscen_core::report::CaseReport;
use llmscen_core::stats::moments;
use llmscen_core::stats::quantile::{Method, quantile, sort};
use llmscen_core::units::Nanos;
use std::collections::BTreeMap;
use time::OffsetDateTime;

/// One case with all its measured requests.
#[derive(Clone, Debug)]
pub struct Measured<'a> {
    /// What is known of the run.
    pub manifest: &'a Manifest,
    /// The case.
    pub case: &'a Case,
    /// What is said of it.
    pub report: &'a CaseReport,
    /// Its measured requests, in the order of (round, seq, turn).
    pub rows: Vec<TimedRequest<'a>>,
}

impl Measured<'_> {
    /// The requests that succeeded.
    pub(super) fn ok(&self) -> impl Iterator<Item = &TimedRequest<'_>> {
        self.rows.iter().filter(|row| row.ok())
    }

    /// How many succeeded.
    pub(super) fn completed(&self) -> usize {
        self.ok().count()
    }

    /// How many did not: failed, left or never sent.
    pub(super) fn failed(&self) -> usize {
        self.rows.len() - self.completed()
    }

    /// The values of a metric over ok requests.
    pub(super) fn values(&self, metric: Metric) -> Vec<f64> {
        self.ok().filter_map(|row| row.get(metric)).collect()
    }

    /// The gaps between token events of ok requests, milliseconds.
    pub(super) fn gaps(&self) -> Vec<f64> {
        self.ok().flat_map(|row| row.gaps().into_iter()).collect()
    }

    /// The sum of a metric over ok requests; None where no request has it.
    pub(super) fn total(&self, metric: Metric) -> Option<f64> {
        let values = self.values(metric);
        (!values.is_empty()).then(|| values.iter().sum())
    }

    /// How many requests meet the first goodput limits of the case; None where it has none.
    pub(super) fn good(&self) -> Option<usize> {
        let limits = self.case.checks.iter().find_map(|check| match &check.subject {
            Subject::Goodput(limits) => Some(limits),
            Subject::Metric { .. } | Subject::Signal { .. } => None,
        })?;
        Some(self.rows.iter().filter(|row| row.meets(limits)).count())
    }

    /// The measured window in seconds, over all rounds: from the first intended to the last end, the drain included as other
    /// tools have it.
    pub(super) fn window(&self) -> Option<f64> {
        self.report.scalars.get(&Metric::Window).copied()
    }

    /// The seconds from the first sending to the last instant that `until` gives, over those rows, summed over rounds.
    pub(super) fn span(&self, rows: fn(&&TimedRequest<'_>) -> bool, until: fn(&TimedRequest<'_>) -> Nanos) -> Option<f64> {
        let mut rounds: BTreeMap<u32, (Nanos, Nanos)> = BTreeMap::new();
        for (row, sent) in self.rows.iter().filter(rows).filter_map(|row| Some((row, row.sent()?))) {
            let (from, to) = rounds.entry(row.round()).or_insert((sent, sent));
            (*from, *to) = ((*from).min(sent), (*to).max(until(row)));
        }
        let seconds: f64 = rounds.values().map(|(from, to)| to.since(*from).secs()).sum();
        (seconds > 0.0).then_some(seconds)
    }

    /// The model that is asked; of several, the first.
    pub(super) fn model(&self) -> &str {
        self.case.target.models.first().map_or("", |model| model.name.as_str())
    }

    /// Requests in flight at once at the most, where the load says so.
    pub(super) fn concurrency(&self) -> Option<u32> {
        self.case.load.shape.users().or(self.case.load.max_in_flight)
    }

    /// Arrivals per second, where the load has one rate.
    pub(super) fn rate(&self) -> Option<f64> {
        let open = !self.case.load.shape.closed() && !matches!(self.case.load.shape, Shape::Replay { .. });
        self.case.load.shape.size().0.filter(|_| open)
    }

    /// How arrivals are spaced, where the load is open and a law says.
    pub(super) fn arrival(&self) -> Option<Arrival> {
        match self.case.load.shape {
            Shape::Open { arrival, .. } | Shape::Rates { arrival, .. } => Some(arrival),
            _ => None,
        }
    }

    /// Seconds since the Unix epoch at that instant of the run.
    pub(super) fn unix_s(&self, at: Nanos) -> f64 {
        self.unix_ns(at) as f64 / 1e9
    }

    /// The same in nanoseconds.
    pub(super) fn unix_ns(&self, at: Nanos) -> u64 {
        self.manifest.started_unix_ns + at.0
    }

    /// That instant of the run on the wall clock, UTC, as `year, month, day, hour, minute, second, microsecond`.
    pub(super) fn date(&self, at: Nanos) -> [u32; 7] {
        let nanos = i128::from(self.unix_ns(at));
        let date = OffsetDateTime::from_unix_timestamp_nanos(nanos).unwrap_or(OffsetDateTime::UNIX_EPOCH);
        let (hour, minute, second, micro) = date.to_hms_micro();
        let day = [date.year().unsigned_abs(), u32::from(u8::from(date.month())), u32::from(date.day())];
        [day[0], day[1], day[2], u32::from(hour), u32::from(minute), u32::from(second), micro]
    }

    /// When the first request was sent, and when the last one ended.
    pub(super) fn bounds(&self) -> Option<(Nanos, Nanos)> {
        let from = self.rows.iter().filter_map(|row| row.sent()).min()?;
        Some((from, self.rows.iter().map(|row| row.end()).max()?))
    }
}

/// Values, ascending.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Spread(Vec<f64>);

impl Spread {
    /// Of these values; None without any.
    pub(super) fn of(mut values: Vec<f64>) -> Option<Spread> {
        sort(&mut values);
        (!values.is_empty()).then_some(Spread(values))
    }

    /// Their number.
    pub(super) fn n(&self) -> usize {
        self.0.len()
    }

    /// Their sum.
    pub(super) fn sum(&self) -> f64 {
        self.0.iter().sum()
    }

    /// Their mean.
    pub(super) fn mean(&self) -> f64 {
        moments::mean(&self.0).unwrap_or_default()
    }

    /// Their deviation, with n below the line.
    pub(super) fn sd(&self) -> f64 {
        moments::population_sd(&self.0).unwrap_or_default()
    }

    /// The least.
    pub(super) fn min(&self) -> f64 {
        self.0.first().copied().unwrap_or_default()
    }

    /// The greatest.
    pub(super) fn max(&self) -> f64 {
        self.0.last().copied().unwrap_or_default()
    }

    /// The quantile of that percent, between its neighbors.
    pub(super) fn linear(&self, percent: f64) -> f64 {
        quantile(&self.0, percent / 100.0, Method::Linear).unwrap_or_default()
    }

    /// The quantile of that percent by nearest rank.
    pub(super) fn nearest(&self, percent: f64) -> f64 {
        quantile(&self.0, percent / 100.0, Method::NearestRank).unwrap_or_default()
    }
}

/// A number with so many decimals at the most.
pub(super) fn rounded(value: f64, decimals: usize) -> f64 {
    format!("{value:.decimals$}").parse().unwrap_or(value)
}

/// Milliseconds as seconds, whole nanoseconds.
pub(super) fn secs(millis: f64) -> f64 {
    (millis * 1e6).round() / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_kinds_of_quantiles() {
        let spread = Spread::of(vec![4.0, 1.0, 3.0, 2.0]).unwrap();
        assert_eq!((spread.linear(50.0), spread.nearest(50.0), spread.linear(99.0)), (2.5, 2.0, 3.9699999999999998));
        assert_eq!((spread.n(), spread.sum(), spread.mean(), spread.min(), spread.max()), (4, 10.0, 2.5, 1.0, 4.0));
        assert_eq!(Spread::of(Vec::new()), None);
    }

    #[test]
    fn numbers_are_rounded_as_they_print() {
        assert_eq!((rounded(1.00005, 4), rounded(-0.5, 4), rounded(2.675, 2)), (1.0001, -0.5, 2.67));
        assert_eq!((secs(12.345678), secs(0.1)), (0.012345678, 0.0001));
    }
}
