//! A case with its measured requests, and the statistics that several exports need.

use llmscen_analysis::TimedRequest;
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

/// A case with all its measured requests.
#[derive(Clone, Debug)]
pub struct Measured<'a> {
    /// The manifest of the run.
    pub manifest: &'a Manifest,
    /// The planned case.
    pub case: &'a Case,
    /// Its report.
    pub report: &'a CaseReport,
    /// Its measured requests, ordered by round, sequence number and turn.
    pub rows: Vec<TimedRequest<'a>>,
}

impl Measured<'_> {
    /// The requests that succeeded.
    pub(super) fn ok(&self) -> impl Iterator<Item = &TimedRequest<'_>> {
        self.rows.iter().filter(|row| row.ok())
    }

    /// The number of requests that succeeded.
    pub(super) fn completed(&self) -> usize {
        self.ok().count()
    }

    /// The number of other requests: failed, cancelled or never sent.
    pub(super) fn failed(&self) -> usize {
        self.rows.len() - self.completed()
    }

    /// The values of a metric for requests that succeeded.
    pub(super) fn values(&self, metric: Metric) -> Vec<f64> {
        self.ok().filter_map(|row| row.get(metric)).collect()
    }

    /// The gaps between token events of requests that succeeded, in milliseconds.
    pub(super) fn gaps(&self) -> Vec<f64> {
        self.ok().flat_map(|row| row.gaps().into_iter()).collect()
    }

    /// The sum of a metric over requests that succeeded; None without values.
    pub(super) fn total(&self, metric: Metric) -> Option<f64> {
        let values = self.values(metric);
        (!values.is_empty()).then(|| values.iter().sum())
    }

    /// The number of requests that meet the limits of the first goodput objective; None without one.
    pub(super) fn good_requests(&self) -> Option<usize> {
        let limits = self
            .case
            .checks
            .iter()
            .find_map(|check| check.subject.goodput_limits())?;
        Some(
            self.rows
                .iter()
                .filter(|row| row.exceeds_none(limits))
                .count(),
        )
    }

    /// The measured window of all rounds in seconds: from the first scheduled send time to the last end, including
    /// the drain as in other tools.
    pub(super) fn window(&self) -> Option<f64> {
        self.report.scalars.get(&Metric::Window).copied()
    }

    /// The seconds from the first send time to the last `end` of the selected requests, summed over rounds.
    pub(super) fn duration(
        &self,
        is_selected: fn(&&TimedRequest<'_>) -> bool,
        end: fn(&TimedRequest<'_>) -> Nanos,
    ) -> Option<f64> {
        let mut rounds: BTreeMap<u32, (Nanos, Nanos)> = BTreeMap::new();
        for (row, sent) in self
            .rows
            .iter()
            .filter(is_selected)
            .filter_map(|row| Some((row, row.sent()?)))
        {
            let (from, to) = rounds.entry(row.round()).or_insert((sent, sent));
            (*from, *to) = ((*from).min(sent), (*to).max(end(row)));
        }
        let seconds: f64 = rounds
            .values()
            .map(|(from, to)| to.since(*from).secs())
            .sum();
        (seconds > 0.0).then_some(seconds)
    }

    /// The first model of the case.
    pub(super) fn model(&self) -> &str {
        self.case
            .target
            .models
            .first()
            .map_or("", |model| model.name.as_str())
    }

    /// The largest number of requests in flight, if the load limits it.
    pub(super) fn concurrency(&self) -> Option<u32> {
        self.case
            .load
            .shape
            .users()
            .or(self.case.load.max_in_flight.map(|limit| limit.of))
    }

    /// The arrival rate per second, if the load has a single one.
    pub(super) fn rate(&self) -> Option<f64> {
        let open = !self.case.load.shape.is_closed_loop()
            && !matches!(self.case.load.shape, Shape::Replay { .. });
        self.case.load.shape.size().0.filter(|_| open)
    }

    /// The arrival process of an open loop.
    pub(super) fn arrival(&self) -> Option<Arrival> {
        match self.case.load.shape {
            Shape::Open { arrival, .. } | Shape::Rates { arrival, .. } => Some(arrival),
            _ => None,
        }
    }

    /// An instant of the run in seconds since the Unix epoch.
    pub(super) fn unix_s(&self, at: Nanos) -> f64 {
        self.unix_ns(at) as f64 / 1e9
    }

    /// An instant of the run in nanoseconds since the Unix epoch.
    pub(super) fn unix_ns(&self, at: Nanos) -> u64 {
        self.manifest.started_unix_ns + at.0
    }

    /// An instant of the run as wall-clock time in UTC.
    pub(super) fn date(&self, at: Nanos) -> OffsetDateTime {
        let nanos = i128::from(self.unix_ns(at));
        OffsetDateTime::from_unix_timestamp_nanos(nanos).unwrap_or(OffsetDateTime::UNIX_EPOCH)
    }

    /// An instant of the run in ISO 8601, UTC without a zone.
    pub(super) fn timestamp(&self, at: Nanos) -> String {
        let date = self.date(at);
        let (hour, minute, second, micro) = date.to_hms_micro();
        format!(
            "{}T{hour:02}:{minute:02}:{second:02}.{micro:06}",
            date.date()
        )
    }

    /// The first send time and the last end.
    pub(super) fn bounds(&self) -> Option<(Nanos, Nanos)> {
        let from = self.rows.iter().filter_map(|row| row.sent()).min()?;
        Some((from, self.rows.iter().map(|row| row.end()).max()?))
    }
}

/// Values in ascending order, with the statistics of numpy: linear quantiles and the standard deviation of a
/// population.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct SortedValues(Vec<f64>);

impl SortedValues {
    /// Sorts the values; None without any.
    pub(super) fn new(mut values: Vec<f64>) -> Option<SortedValues> {
        sort(&mut values);
        (!values.is_empty()).then_some(SortedValues(values))
    }

    pub(super) fn n(&self) -> usize {
        self.0.len()
    }

    pub(super) fn sum(&self) -> f64 {
        self.0.iter().sum()
    }

    pub(super) fn mean(&self) -> f64 {
        moments::mean(&self.0).unwrap_or_default()
    }

    /// The standard deviation of a population (divided by n).
    pub(super) fn sd(&self) -> f64 {
        moments::population_sd(&self.0).unwrap_or_default()
    }

    pub(super) fn min(&self) -> f64 {
        self.0.first().copied().unwrap_or_default()
    }

    pub(super) fn max(&self) -> f64 {
        self.0.last().copied().unwrap_or_default()
    }

    /// The percentile with linear interpolation.
    pub(super) fn linear(&self, percent: f64) -> f64 {
        quantile(&self.0, percent / 100.0, Method::Linear).unwrap_or_default()
    }

    /// The percentile by nearest rank.
    pub(super) fn nearest(&self, percent: f64) -> f64 {
        quantile(&self.0, percent / 100.0, Method::NearestRank).unwrap_or_default()
    }
}

/// Rounds to a number of decimals.
pub(super) fn rounded(value: f64, decimals: usize) -> f64 {
    format!("{value:.decimals$}").parse().unwrap_or(value)
}

/// Milliseconds as seconds, rounded to nanoseconds.
pub(super) fn secs(millis: f64) -> f64 {
    (millis * 1e6).round() / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_kinds_of_quantiles() {
        let values = SortedValues::new(vec![4.0, 1.0, 3.0, 2.0]).unwrap();
        assert_eq!(
            (
                values.linear(50.0),
                values.nearest(50.0),
                values.linear(99.0)
            ),
            (2.5, 2.0, 3.9699999999999998)
        );
        assert_eq!(
            (
                values.n(),
                values.sum(),
                values.mean(),
                values.min(),
                values.max()
            ),
            (4, 10.0, 2.5, 1.0, 4.0)
        );
        assert_eq!(SortedValues::new(Vec::new()), None);
    }

    #[test]
    fn numbers_are_rounded_as_they_print() {
        assert_eq!(
            (rounded(1.00005, 4), rounded(-0.5, 4), rounded(2.675, 2)),
            (1.0001, -0.5, 2.67)
        );
        assert_eq!((secs(12.345678), secs(0.1)), (0.012345678, 0.0001));
    }
}
