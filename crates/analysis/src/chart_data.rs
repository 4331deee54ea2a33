//! The data of the charts.

use crate::CaseFacts;
use crate::in_flight::{InFlight, steady_extent};
use crate::measured_requests::MeasuredRequest;
use crate::request_row::RequestRow;
use crate::round::{Round, rounds};
use crate::sample::{Sample, values};
use crate::sending::sending_end;
use crate::table::Table;
use llmscen_core::metric::Metric;
use llmscen_core::report::{ChartData, HeatMap, QuantileBand, Series, TimelineBar, Timelines};
use llmscen_core::stats::quantile::{self, rank};
use std::collections::BTreeMap;

/// Maximum number of requests in the waterfall.
const MAX_BARS: usize = 200;
/// Maximum number of requests in the chart by prompt length.
const MAX_PROMPTS: usize = 2000;
/// Per-request metrics with a percentile plot; ITL has one, too.
const SPECTRA: [Metric; 4] = [Metric::Ttft, Metric::Tpot, Metric::Ntpot, Metric::E2e];

/// The chart data of a case: of its first round for charts over time, of all rows for the others.
pub fn chart_data(table: &Table, facts: &CaseFacts<'_>) -> ChartData {
    let all = table.rows_of_case(&facts.case.id);
    let first: Vec<&RequestRow<'_>> = rounds(&all, facts)
        .first()
        .map(|round| round.measured().collect())
        .unwrap_or_default();
    let ok: Vec<&RequestRow<'_>> = all
        .iter()
        .filter(|row| row.measured() && row.ok())
        .collect();
    let latencies = first
        .iter()
        .filter_map(|row| Some((secs(row.intended()), row.metric(Metric::E2e)?)));
    let heat = heat_map(&latencies.collect::<Vec<_>>());
    let mut gaps = Gaps::collect(ok.iter().copied());
    let by_token = gaps.bands();
    ChartData {
        spectra: spectra(&ok, gaps),
        heat,
        by_token,
        prefill: prefill(&ok),
        waterfall: waterfall(first),
    }
}

/// The percentile plots of the metrics that exist.
fn spectra(ok: &[&RequestRow<'_>], gaps: Gaps) -> BTreeMap<Metric, Series> {
    let of_metric = |metric| {
        (
            metric,
            spectrum(
                &mut ok
                    .iter()
                    .filter_map(|row| row.metric(metric))
                    .collect::<Vec<_>>(),
            ),
        )
    };
    let all = SPECTRA
        .into_iter()
        .map(of_metric)
        .chain([(Metric::Itl, spectrum(&mut gaps.pooled()))]);
    all.filter(|(_, points)| !points.is_empty()).collect()
}

/// Prompt length and service TTFT of evenly picked requests.
fn prefill(ok: &[&RequestRow<'_>]) -> Series {
    let known = |row: &&RequestRow<'_>| {
        Some((
            row.metric(Metric::PromptTokens)?,
            row.metric(Metric::TtftService)?,
        ))
    };
    thin_evenly(ok.iter().filter_map(known).collect(), MAX_PROMPTS)
}

fn thin_evenly<T>(values: Vec<T>, max: usize) -> Vec<T> {
    let step = values.len().div_ceil(max).max(1);
    values.into_iter().step_by(step).collect()
}

fn secs(nanos: u64) -> f64 {
    nanos as f64 / 1e9
}

/// Evenly picked requests of a round, ordered by scheduled send.
fn waterfall(mut scheduled: Vec<&RequestRow<'_>>) -> Vec<TimelineBar> {
    scheduled.sort_by_key(|row| (row.intended(), row.seq(), row.turn()));
    thin_evenly(scheduled, MAX_BARS)
        .into_iter()
        .map(bar)
        .collect()
}

fn bar(row: &RequestRow<'_>) -> TimelineBar {
    TimelineBar {
        seq: row.seq(),
        turn: row.turn(),
        intended: secs(row.intended()),
        sent: row.sent().map(secs),
        first_token: row.first_token().map(secs),
        end: secs(row.end()),
        failure: row.failure(),
    }
}

// Over time.

/// Maximum number of bins of tokens over time, and their minimum width in seconds.
const MAX_BINS: usize = 120;
const MIN_BIN_S: f64 = 0.1;
/// Maximum number of steps of requests in flight.
const MAX_STEPS: usize = 2000;

/// The first round of a case over time; empty without rows.
pub fn timelines(table: &Table, facts: &CaseFacts<'_>) -> Timelines {
    let all = table.rows_of_case(&facts.case.id);
    rounds(&all, facts)
        .first()
        .map(|round| timelines_of_round(round, facts))
        .unwrap_or_default()
}

fn timelines_of_round(round: &Round<'_, '_>, facts: &CaseFacts<'_>) -> Timelines {
    let (from, to) = round.window.unwrap_or_default();
    let in_flight = InFlight::count(round.rows);
    Timelines {
        in_flight: thin_steps(&in_flight),
        output_tps: token_bins(round.rows),
        ttft_ms: sorted_by_time(
            round
                .rows
                .iter()
                .filter_map(|row| Some((secs(row.intended()), row.metric(Metric::Ttft)?))),
        ),
        failures: sorted_by_time(
            round
                .rows
                .iter()
                .filter(|row| !row.ok() && !row.left())
                .map(|row| (secs(row.end()), 1.0)),
        ),
        measured: (secs(from), secs(to)),
        steady: steady_extent(round, &in_flight, facts, sending_end(round, facts))
            .map(|(from, to)| (secs(from), secs(to))),
    }
}

fn sorted_by_time(points: impl Iterator<Item = (f64, f64)>) -> Series {
    let mut points: Series = points.collect();
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    points
}

/// The steps; of too many, the highest of each group of consecutive ones, and the last.
fn thin_steps(in_flight: &InFlight) -> Series {
    let group = in_flight.0.len().div_ceil(MAX_STEPS).max(1);
    let highest = in_flight
        .0
        .chunks(group)
        .filter_map(|steps| steps.iter().max_by_key(|step| step.1));
    let last = in_flight.0.last().filter(|_| group > 1);
    highest
        .chain(last)
        .map(|&(at, level)| (secs(at), f64::from(level)))
        .collect()
}

/// Tokens of ok requests by arrival, over bins of equal width; a point is in the middle of its bin.
fn token_bins(rows: &[RequestRow<'_>]) -> Series {
    let streams = || {
        rows.iter()
            .filter(|row| row.ok() && !row.events().is_empty())
    };
    let Some(end) = streams()
        .map(|row| row.end())
        .max()
        .map(secs)
        .filter(|&end| end > 0.0)
    else {
        return Series::new();
    };
    let bins = ((end / MIN_BIN_S).ceil() as usize).clamp(1, MAX_BINS);
    let width = end / bins as f64;
    let mut tokens = vec![0.0; bins];
    for row in streams() {
        let event_tokens = row.event_tokens();
        for (index, &event) in row.events().iter().enumerate() {
            let bin = ((secs(event) / width) as usize).min(bins - 1);
            if let Some(tokens) = tokens.get_mut(bin) {
                *tokens += event_tokens.sum(index..index + 1);
            }
        }
    }
    tokens
        .iter()
        .enumerate()
        .map(|(bin, tokens)| ((bin as f64 + 0.5) * width, tokens / width))
        .collect()
}

// The heat map: requests by scheduled send and end-to-end latency.

const MAX_HEAT_COLUMNS: usize = 80;
const MAX_HEAT_ROWS: usize = 40;
/// Minimum latency in milliseconds, for the logarithm, and minimum ratio of the highest edge to the lowest.
const MIN_LATENCY: f64 = 1e-3;
const MIN_SPREAD: f64 = 1.1;
/// Requests scheduled within this time, in seconds, have one column of this width.
const INSTANT_S: f64 = 1e-3;

/// The heat map of points `(seconds, milliseconds)`, with as many cells as the points can fill. None with fewer than
/// two points.
fn heat_map(points: &[(f64, f64)]) -> Option<HeatMap> {
    if points.len() < 2 {
        return None;
    }
    let n = points.len() as f64;
    let min_and_max = |value: fn(&(f64, f64)) -> f64| {
        points
            .iter()
            .map(value)
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), v| {
                (low.min(v), high.max(v))
            })
    };
    let (from, to) = min_and_max(|point| point.0);
    let (low, high) = min_and_max(|point| point.1.max(MIN_LATENCY));
    let at_once = to - from < INSTANT_S;
    let to = if at_once { from + INSTANT_S } else { to };
    let (low, high) = if high / low < MIN_SPREAD {
        (low / MIN_SPREAD, high * MIN_SPREAD)
    } else {
        (low, high)
    };
    let columns = if at_once {
        1
    } else {
        ((2.0 * n.sqrt()) as usize).clamp(1, MAX_HEAT_COLUMNS)
    };
    let rows = (n.sqrt() as usize).clamp(1, MAX_HEAT_ROWS);
    let mut counts = vec![vec![0; rows]; columns];
    for (time, latency) in points {
        let column = step_of_share((time - from) / (to - from), columns);
        let row = step_of_share(
            (latency.max(MIN_LATENCY) / low).ln() / (high / low).ln(),
            rows,
        );
        if let Some(count) = counts
            .get_mut(column)
            .and_then(|column| column.get_mut(row))
        {
            *count += 1;
        }
    }
    let edge = |k: usize, steps: usize| k as f64 / steps as f64;
    let times = (0..=columns)
        .map(|k| from + edge(k, columns) * (to - from))
        .collect();
    let levels = (0..=rows)
        .map(|k| low * (high / low).powf(edge(k, rows)))
        .collect();
    Some(HeatMap {
        times,
        levels,
        counts,
    })
}

/// The index of the one of `steps` equal steps that contains a share 0..=1.
fn step_of_share(share: f64, steps: usize) -> usize {
    ((share * steps as f64) as usize).min(steps - 1)
}

// Percentile plots: quantiles that get denser towards the maximum.

/// Approximate number of points of a percentile plot.
const SPECTRUM_POINTS: f64 = 110.0;
/// Maximum points per decade of the tail: more cannot be distinguished.
const MAX_POINTS_PER_DECADE: f64 = 40.0;

/// Points `(share, quantile by nearest rank)` for shares `1 - 10^(-k/m)`, which include 90 %, 99 %, 99.9 % …, and the
/// maximum at `1 - 1/n`. Empty without values. Reorders the values.
fn spectrum(values: &mut [f64]) -> Series {
    let n = values.len();
    if n == 0 {
        return Series::new();
    }
    let last = 1.0 - 1.0 / n as f64;
    let steps = (SPECTRUM_POINTS / (n as f64).log10().max(1.0))
        .floor()
        .min(MAX_POINTS_PER_DECADE);
    let shares = (0..)
        .map(|step| 1.0 - 10f64.powf(-f64::from(step) / steps))
        .take_while(|&share| share < last);
    let mut points: Vec<(f64, usize)> = shares.map(|share| (share, rank(n, share) - 1)).collect();
    points.push((last, n - 1));
    let mut indexes: Vec<usize> = points.iter().map(|point| point.1).collect();
    indexes.dedup();
    select_indexes(values, &indexes, 0);
    points
        .into_iter()
        .filter_map(|(share, index)| Some((share, *values.get(index)?)))
        .collect()
}

/// Moves the values of these ascending indexes to where a sort would move them, much faster than the sort. `first`:
/// index of the first value.
fn select_indexes(values: &mut [f64], indexes: &[usize], first: usize) {
    let (below, rest) = indexes.split_at(indexes.len() / 2);
    let Some((&middle, above)) = rest.split_first() else {
        return;
    };
    let index = middle - first;
    if index < values.len() {
        let (low, _, high) = values.select_nth_unstable_by(index, f64::total_cmp);
        select_indexes(low, below, first);
        select_indexes(high, above, middle + 1);
    }
}

// Gaps between tokens by output position.

/// Maximum number of steps of the axis.
const MAX_POSITION_STEPS: usize = 64;
/// The quantiles of a band.
const BAND_SHARES: [f64; 3] = [0.50, 0.90, 0.99];

/// Gaps in milliseconds by step of the output position of their later token, counted from 1 in each choice.
struct Gaps {
    /// First position of each step, and the end of the last.
    edges: Vec<usize>,
    steps: Vec<Vec<f64>>,
}

impl Gaps {
    fn collect<'a>(rows: impl Iterator<Item = &'a RequestRow<'a>> + Clone) -> Gaps {
        let longest = rows
            .clone()
            .map(|row| row.events().len())
            .max()
            .unwrap_or(0);
        let edges = position_edges(longest);
        let mut steps = vec![Vec::new(); edges.len().saturating_sub(1)];
        let step_of: Vec<usize> = (0..=longest)
            .map(|position| edges.partition_point(|&edge| edge <= position))
            .collect();
        let mut add = |position: usize, gap: f64| {
            let step = step_of
                .get(position)
                .and_then(|step| step.checked_sub(1))
                .and_then(|step| steps.get_mut(step));
            if let Some(step) = step {
                step.push(gap);
            }
        };
        rows.for_each(|row| visit_gaps(row, &mut add));
        Gaps { edges, steps }
    }

    /// The quantiles of each step that has gaps.
    fn bands(&mut self) -> Vec<QuantileBand> {
        let sides = self
            .edges
            .windows(2)
            .filter_map(|pair| Some((*pair.first()?, *pair.last()?)));
        sides
            .zip(&mut self.steps)
            .filter_map(|((from, until), gaps)| band(from, until - 1, gaps))
            .collect()
    }

    /// All gaps, unordered.
    fn pooled(self) -> Vec<f64> {
        let mut all = Vec::with_capacity(self.steps.iter().map(Vec::len).sum());
        // Each step is freed before the next one is copied.
        self.steps
            .into_iter()
            .for_each(|step| all.extend_from_slice(&step));
        all
    }
}

/// Steps of one position each for short replies; for long ones their width grows with the position.
fn position_edges(longest: usize) -> Vec<usize> {
    let edges_by = |divisor: usize| {
        let mut edges = vec![2];
        let mut from = 2;
        while from <= longest {
            from += (from / divisor).max(1);
            edges.push(from.min(longest + 1));
        }
        edges
    };
    // A step is 1/128 of its position, or 1/64 …
    let candidates = [128, 64, 32, 16, 8, 4].map(edges_by);
    candidates
        .into_iter()
        .find(|edges| edges.len() <= MAX_POSITION_STEPS + 1)
        .unwrap_or_else(|| edges_by(2))
}

fn visit_gaps(row: &RequestRow<'_>, visit: &mut impl FnMut(usize, f64)) {
    let ms = |earlier: u64, later: u64| later.saturating_sub(earlier) as f64 / 1e6;
    if row.choices().is_empty() {
        let pairs = row.events().iter().zip(row.events().iter().skip(1));
        pairs
            .zip(2..)
            .for_each(|((&earlier, &later), position)| visit(position, ms(earlier, later)));
        return;
    }
    // Position and time of the latest token of each choice.
    let mut latest: BTreeMap<u32, (usize, u64)> = BTreeMap::new();
    for (index, &event) in row.events().iter().enumerate() {
        let (position, time) = latest
            .entry(row.choices().get(index).copied().unwrap_or(0))
            .or_insert((0, event));
        if *position > 0 {
            visit(*position + 1, ms(*time, event));
        }
        *position += 1;
        *time = event;
    }
}

fn band(from: usize, to: usize, gaps: &mut [f64]) -> Option<QuantileBand> {
    if gaps.is_empty() {
        return None;
    }
    let indexes = BAND_SHARES.map(|share| rank(gaps.len(), share) - 1);
    let mut distinct = indexes.to_vec();
    distinct.dedup();
    select_indexes(gaps, &distinct, 0);
    let [p50, p90, p99] = indexes.map(|index| gaps.get(index).copied().unwrap_or_default());
    Some(QuantileBand {
        from: from as f64,
        to: to as f64,
        n: gaps.len() as u64,
        p50,
        p90,
        p99,
    })
}

// Cumulative distributions.

/// Maximum number of points of a curve.
const MAX_CURVE_POINTS: usize = 400;

/// Points `(value, cumulative share)` of TTFT, ITL and end-to-end latency over ok requests, where they exist: at most
/// 400 each, including minimum and maximum.
pub fn cdfs(sample: &Sample) -> BTreeMap<Metric, Series> {
    let requests: Vec<MeasuredRequest<'_>> = sample.requests.iter().collect();
    let curves = [Metric::Ttft, Metric::Itl, Metric::E2e]
        .map(|metric| (metric, cdf(values(&requests, metric))));
    curves
        .into_iter()
        .filter(|(_, curve)| !curve.is_empty())
        .collect()
}

fn cdf(mut values: Vec<f64>) -> Series {
    quantile::sort(&mut values);
    let n = values.len();
    let points = n.min(MAX_CURVE_POINTS);
    let index = |k: usize| k * n.saturating_sub(1) / points.saturating_sub(1).max(1);
    (0..points)
        .map(index)
        .filter_map(|index| {
            values
                .get(index)
                .map(|&value| (value, (index + 1) as f64 / n as f64))
        })
        .collect()
}

#[cfg(test)]
mod tests;
