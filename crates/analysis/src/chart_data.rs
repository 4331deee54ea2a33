//! What the charts draw.

use crate::CaseFacts;
use crate::in_flight::{Flight, extent};
use crate::measured_requests::MeasuredRequest;
use crate::request_row::RequestRow;
use crate::round::{Round, rounds};
use crate::sample::{Sample, values};
use crate::table::Table;
use llmscen_core::chart_data::{Band, Bar, Heat, Pictures};
use llmscen_core::load::Shape;
use llmscen_core::metric::Metric;
use llmscen_core::report::{Series, Timelines};
use llmscen_core::stats::quantile::{self, rank};
use std::collections::BTreeMap;

/// Requests in the waterfall at the most.
const BARS: usize = 200;
/// Requests among those by prompt length at the most.
const PROMPTS: usize = 2000;
/// Per-request metrics with a spectrum; ITL has one, too.
const SPECTRA: [Metric; 4] = [Metric::Ttft, Metric::Tpot, Metric::Ntpot, Metric::E2e];

/// The pictures of a case: of its first round where they are over time, of all rows where they are not.
pub fn pictures(table: &Table, facts: &CaseFacts<'_>) -> Pictures {
    let all = table.rows_of_case(&facts.case.id);
    let first: Vec<&RequestRow<'_>> = rounds(&all, facts).first().map(|round| round.measured().collect()).unwrap_or_default();
    let ok: Vec<&RequestRow<'_>> = all.iter().filter(|row| row.measured() && row.ok()).collect();
    let waits = first.iter().filter_map(|row| Some((secs(row.intended()), row.metric(Metric::E2e)?)));
    let heat = heat_map(&waits.collect::<Vec<_>>());
    let mut gaps = Gaps::of(ok.iter().copied());
    let by_token = gaps.bands();
    Pictures { spectra: spectra(&ok, gaps), heat, by_token, prefill: prefill(&ok), waterfall: waterfall(first) }
}

/// Of the metrics that exist.
fn spectra(ok: &[&RequestRow<'_>], gaps: Gaps) -> BTreeMap<Metric, Series> {
    let of = |metric| (metric, spectrum(&mut ok.iter().filter_map(|row| row.metric(metric)).collect::<Vec<_>>()));
    let all = SPECTRA.into_iter().map(of).chain([(Metric::Itl, spectrum(&mut gaps.pooled()))]);
    all.filter(|(_, points)| !points.is_empty()).collect()
}

/// Evenly picked requests of which both are known.
fn prefill(ok: &[&RequestRow<'_>]) -> Series {
    let known = |row: &&RequestRow<'_>| Some((row.metric(Metric::PromptTokens)?, row.metric(Metric::TtftService)?));
    evenly(ok.iter().filter_map(known).collect(), PROMPTS)
}

fn evenly<T>(all: Vec<T>, most: usize) -> Vec<T> {
    let step = all.len().div_ceil(most).max(1);
    all.into_iter().step_by(step).collect()
}

fn secs(stamp: u64) -> f64 {
    stamp as f64 / 1e9
}

/// Evenly picked requests of a round, in the order in which they were due.
fn waterfall(mut due: Vec<&RequestRow<'_>>) -> Vec<Bar> {
    due.sort_by_key(|row| (row.intended(), row.seq(), row.turn()));
    evenly(due, BARS).into_iter().map(bar).collect()
}

fn bar(row: &RequestRow<'_>) -> Bar {
    Bar {
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

/// Bins of tokens over time at the most, and their least width in seconds.
const MOST_BINS: usize = 120;
const LEAST_BIN: f64 = 0.1;
/// Steps in flight at the most.
const MOST_STEPS: usize = 2000;

/// The first round of the case over time; empty without rows.
pub fn timelines(table: &Table, facts: &CaseFacts<'_>) -> Timelines {
    let all = table.rows_of_case(&facts.case.id);
    rounds(&all, facts).first().map(|round| timelines_of_round(round, &facts.case.load.shape)).unwrap_or_default()
}

fn timelines_of_round(round: &Round<'_, '_>, shape: &Shape) -> Timelines {
    let (from, to) = round.window.unwrap_or_default();
    let flight = Flight::of(round.rows);
    Timelines {
        in_flight: thinned_steps(&flight),
        output_tps: token_bins(round.rows),
        ttft_ms: sorted_by_time(round.rows.iter().filter_map(|row| Some((secs(row.intended()), row.metric(Metric::Ttft)?)))),
        failures: sorted_by_time(round.rows.iter().filter(|row| !row.ok() && !row.left()).map(|row| (secs(row.end()), 1.0))),
        measured: (secs(from), secs(to)),
        steady: extent(round, &flight, shape).map(|(from, to)| (secs(from), secs(to))),
    }
}

fn sorted_by_time(points: impl Iterator<Item = (f64, f64)>) -> Series {
    let mut points: Series = points.collect();
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    points
}

/// All steps where they are few; of many, the highest of each of equally many in a row, and the last.
fn thinned_steps(flight: &Flight) -> Series {
    let group = flight.0.len().div_ceil(MOST_STEPS).max(1);
    let highest = flight.0.chunks(group).filter_map(|steps| steps.iter().max_by_key(|step| step.1));
    let last = flight.0.last().filter(|_| group > 1);
    highest.chain(last).map(|&(at, level)| (secs(at), f64::from(level))).collect()
}

/// Tokens of ok requests by arrival, over bins of equal width; a point stands in the middle of its bin.
fn token_bins(rows: &[RequestRow<'_>]) -> Series {
    let streams = || rows.iter().filter(|row| row.ok() && !row.events().is_empty());
    let Some(end) = streams().map(|row| row.end()).max().map(secs).filter(|&end| end > 0.0) else { return Series::new() };
    let bins = ((end / LEAST_BIN).ceil() as usize).clamp(1, MOST_BINS);
    let width = end / bins as f64;
    let mut tokens = vec![0.0; bins];
    for row in streams() {
        for (place, &event) in row.events().iter().enumerate() {
            let bin = ((secs(event) / width) as usize).min(bins - 1);
            if let Some(tokens) = tokens.get_mut(bin) {
                *tokens += row.tokens_of_event(place);
            }
        }
    }
    tokens.iter().enumerate().map(|(bin, tokens)| ((bin as f64 + 0.5) * width, tokens / width)).collect()
}

// The heat map: how many requests had which end-to-end latency when.

/// Columns and rows at the most.
const HEAT_COLUMNS: usize = 80;
const HEAT_ROWS: usize = 40;
/// The least latency that a logarithm is taken of, and the least ratio of the highest edge to the lowest.
const LEAST_LATENCY: f64 = 1e-3;
const SPREAD: f64 = 1.1;
/// Requests due within so many seconds are due at one instant: they have one column, of that width.
const INSTANT: f64 = 1e-3;

/// Of `(seconds, milliseconds)`: as many cells as the points can fill. None with fewer than two points.
pub(super) fn heat_map(points: &[(f64, f64)]) -> Option<Heat> {
    let (n, ends) = (points.len() as f64, |values: &dyn Fn(&(f64, f64)) -> f64| {
        points.iter().map(values).fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), v| (low.min(v), high.max(v)))
    });
    let (from, to) = ends(&|point| point.0);
    let (low, high) = ends(&|point| point.1.max(LEAST_LATENCY));
    if points.len() < 2 {
        return None;
    }
    let at_once = to - from < INSTANT;
    let to = if at_once { from + INSTANT } else { to };
    let (low, high) = if high / low < SPREAD { (low / SPREAD, high * SPREAD) } else { (low, high) };
    let columns = if at_once { 1 } else { ((2.0 * n.sqrt()) as usize).clamp(1, HEAT_COLUMNS) };
    let rows = (n.sqrt() as usize).clamp(1, HEAT_ROWS);
    let mut counts = vec![vec![0; rows]; columns];
    for (time, latency) in points {
        let column = step_of_share((time - from) / (to - from), columns);
        let row = step_of_share((latency.max(LEAST_LATENCY) / low).ln() / (high / low).ln(), rows);
        if let Some(count) = counts.get_mut(column).and_then(|column| column.get_mut(row)) {
            *count += 1;
        }
    }
    let edge = |k: usize, of: usize| k as f64 / of as f64;
    let times = (0..=columns).map(|k| from + edge(k, columns) * (to - from)).collect();
    let levels = (0..=rows).map(|k| low * (high / low).powf(edge(k, rows))).collect();
    Some(Heat { times, levels, counts })
}

/// The step of `steps` equal ones that a share 0..=1 lies in.
fn step_of_share(share: f64, steps: usize) -> usize {
    ((share * steps as f64) as usize).min(steps - 1)
}

// Percentile spectra: quantiles that lie ever denser towards the greatest value.

/// Points of a spectrum, about.
const SPECTRUM_POINTS: f64 = 110.0;
/// Points to a tenth of the values above at the most: more are not told apart.
const DENSEST: f64 = 40.0;

/// `(share, quantile by nearest rank)` for shares `1 - 10^(-k/m)`, so that 90 %, 99 %, 99.9 % … are among them, and at the
/// end the maximum at `1 - 1/n`. Empty without values, whose order is changed.
pub(super) fn spectrum(values: &mut [f64]) -> Series {
    let n = values.len();
    if n == 0 {
        return Series::new();
    }
    let last = 1.0 - 1.0 / n as f64;
    let steps = (SPECTRUM_POINTS / (n as f64).log10().max(1.0)).floor().min(DENSEST);
    let shares = (0..).map(|step| 1.0 - 10f64.powf(-f64::from(step) / steps)).take_while(|&share| share < last);
    let mut wanted: Vec<(f64, usize)> = shares.map(|share| (share, rank(n, share) - 1)).collect();
    wanted.push((last, n - 1));
    let mut ranks: Vec<usize> = wanted.iter().map(|point| point.1).collect();
    ranks.dedup();
    select_places(values, &ranks, 0);
    wanted.into_iter().filter_map(|(share, place)| Some((share, *values.get(place)?))).collect()
}

/// Brings the values of these places, ascending, to where a sort would put them: much cheaper than the sort.
/// `first`: place of the first value.
pub(super) fn select_places(values: &mut [f64], places: &[usize], first: usize) {
    let (below, rest) = places.split_at(places.len() / 2);
    let Some((&middle, above)) = rest.split_first() else { return };
    let place = middle - first;
    if place < values.len() {
        let (low, _, high) = values.select_nth_unstable_by(place, f64::total_cmp);
        select_places(low, below, first);
        select_places(high, above, middle + 1);
    }
}

// Gaps between tokens by the place of the token in its reply.

/// Steps of the axis at the most.
const PLACE_STEPS: usize = 64;
/// The shares of a band.
const BAND_SHARES: [f64; 3] = [0.50, 0.90, 0.99];

/// Gaps in milliseconds, by step of the place of the token they end at; tokens are counted from 1 in each choice.
pub(super) struct Gaps {
    /// First place of each step, and the end of the last.
    edges: Vec<usize>,
    steps: Vec<Vec<f64>>,
}

impl Gaps {
    /// Of these requests.
    pub(super) fn of<'a>(facts: impl Iterator<Item = &'a RequestRow<'a>> + Clone) -> Gaps {
        let longest = facts.clone().map(|row| row.events().len()).max().unwrap_or(0);
        let edges = place_edges(longest);
        let mut steps = vec![Vec::new(); edges.len().saturating_sub(1)];
        let step_of: Vec<usize> = (0..=longest).map(|place| edges.partition_point(|&edge| edge <= place)).collect();
        let mut put = |place: usize, gap: f64| {
            let step = step_of.get(place).and_then(|step| step.checked_sub(1)).and_then(|step| steps.get_mut(step));
            if let Some(step) = step {
                step.push(gap);
            }
        };
        facts.for_each(|row| visit_gaps(row, &mut put));
        Gaps { edges, steps }
    }

    /// The quantiles of each step that has gaps.
    pub(super) fn bands(&mut self) -> Vec<Band> {
        let sides = self.edges.windows(2).filter_map(|pair| Some((*pair.first()?, *pair.last()?)));
        sides.zip(&mut self.steps).filter_map(|((from, until), gaps)| band(from, until - 1, gaps)).collect()
    }

    /// All gaps, in no order.
    pub(super) fn pooled(self) -> Vec<f64> {
        let mut all = Vec::with_capacity(self.steps.iter().map(Vec::len).sum());
        // One by one, so that each step's memory goes before the next is copied.
        self.steps.into_iter().for_each(|step| all.extend_from_slice(&step));
        all
    }
}

/// Steps of one place each while they last; where replies are long, ever longer ones: the start of a reply is told finely.
fn place_edges(longest: usize) -> Vec<usize> {
    let cut = |share: usize| {
        let mut edges = vec![2];
        let mut from = 2;
        while from <= longest {
            from += (from / share).max(1);
            edges.push(from.min(longest + 1));
        }
        edges
    };
    // A step is 1/128 of its place, or 1/64 …
    [128, 64, 32, 16, 8, 4].map(cut).into_iter().find(|edges| edges.len() <= PLACE_STEPS + 1).unwrap_or_else(|| cut(2))
}

fn visit_gaps(row: &RequestRow<'_>, put: &mut impl FnMut(usize, f64)) {
    let ms = |earlier: u64, later: u64| later.saturating_sub(earlier) as f64 / 1e6;
    if row.choices().is_empty() {
        let pairs = row.events().iter().zip(row.events().iter().skip(1));
        pairs.zip(2..).for_each(|((&earlier, &later), place)| put(place, ms(earlier, later)));
        return;
    }
    let mut latest: BTreeMap<u32, (usize, u64)> = BTreeMap::new();
    for (place, &event) in row.events().iter().enumerate() {
        let own = latest.entry(row.choices().get(place).copied().unwrap_or(0)).or_insert((0, event));
        if own.0 > 0 {
            put(own.0 + 1, ms(own.1, event));
        }
        *own = (own.0 + 1, event);
    }
}

fn band(from: usize, to: usize, gaps: &mut [f64]) -> Option<Band> {
    if gaps.is_empty() {
        return None;
    }
    let places = BAND_SHARES.map(|share| rank(gaps.len(), share) - 1);
    let mut distinct = places.to_vec();
    distinct.dedup();
    select_places(gaps, &distinct, 0);
    let [p50, p90, p99] = places.map(|place| gaps.get(place).copied().unwrap_or_default());
    Some(Band { from: from as f64, to: to as f64, n: gaps.len() as u64, p50, p90, p99 })
}

// Cumulative distributions.

/// Points of a curve: more than a chart can show.
const CURVE_POINTS: usize = 400;

/// `(value, share of values at or under it)` of TTFT, ITL and E2E over ok rows, where they exist: at most 400 points each,
/// the least and the greatest value among them.
pub fn cdfs(sample: &Sample) -> BTreeMap<Metric, Series> {
    let requests: Vec<MeasuredRequest<'_>> = sample.requests.iter().collect();
    let curves = [Metric::Ttft, Metric::Itl, Metric::E2e].map(|metric| (metric, cdf(values(&requests, metric))));
    curves.into_iter().filter(|(_, curve)| !curve.is_empty()).collect()
}

fn cdf(mut values: Vec<f64>) -> Series {
    quantile::sort(&mut values);
    let (n, points) = (values.len(), values.len().min(CURVE_POINTS));
    let place = |k: usize| k * n.saturating_sub(1) / points.saturating_sub(1).max(1);
    (0..points).map(place).filter_map(|at| values.get(at).map(|&value| (value, (at + 1) as f64 / n as f64))).collect()
}

#[cfg(test)]
mod tests;
