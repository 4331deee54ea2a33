//! Discards the start of an open loop, where the server is still empty and requests wait less than later ones.
//!
//! MSER-5 (White, "An effective truncation heuristic for bias reduction in simulation output", Simulation 69, 1997)
//! cuts the start so that the mean of the rest has the smallest standard error. That would also discard a first burst
//! of slow requests, which is behavior of the server; so the start is discarded only where it is significantly faster
//! than the rest.

use crate::columns::{Text, column_of};
use crate::error::TableError;
use crate::in_flight::InFlight;
use crate::request_row::RequestRow;
use crate::schema::{PHASE, SETTLING};
use crate::table::Table;
use llmscen_core::load::{Load, Warmup};
use llmscen_core::outcome::Phase;
use llmscen_core::plan::{Case, Plan};
use llmscen_core::report::Discarded;
use llmscen_core::stats::design::inflation;
use llmscen_core::stats::moments::{mean, sd};
use std::collections::HashSet;
use std::ops::Range;

/// Requests per batch.
const BATCH: usize = 5;
/// With fewer batches nothing is discarded.
const MIN_BATCHES: usize = 10;
/// Standard errors by which the start must be faster than the rest, or have fewer requests in flight.
const MIN_STANDARD_ERRORS: f64 = 3.0;
/// Requests by which it must have fewer in flight: a server with hardly one does not fill.
const MIN_REQUESTS: f64 = 1.0;

impl Table {
    /// Marks the start of every open loop with one rate and without warm-up. It depends on the rows alone, so a table
    /// that is read from a file gets the same marks. A capacity search discards that of its probes itself.
    ///
    /// # Errors
    /// A frame could not be built.
    pub fn mark_starts(self, plan: &Plan) -> Result<Table, TableError> {
        if plan.searches.is_empty() {
            self.mark_starts_of(&plan.cases)
        } else {
            Ok(self)
        }
    }

    fn mark_starts_of<'a>(
        mut self,
        cases: impl IntoIterator<Item = &'a Case>,
    ) -> Result<Table, TableError> {
        let starts: Vec<u32> = cases
            .into_iter()
            .filter(|case| starts_empty(&case.load))
            .flat_map(|case| self.start_rows(&case.id))
            .collect();
        let all = 0..self.len();
        let is_marked = all
            .clone()
            .any(|row| self.columns.phase.get(row) == Some(SETTLING));
        if !starts.is_empty() || is_marked {
            let marked: HashSet<u32> = starts.into_iter().collect();
            let phase = |row: usize| match self.columns.phase.get(row) {
                _ if marked.contains(&(row as u32)) => Some(SETTLING),
                // A part of the rows had another start.
                Some(SETTLING) => Some(Phase::Measured.name()),
                other => other,
            };
            self.set_column(column_of::<Text>(PHASE, all.map(phase)))?;
        }
        Ok(self)
    }

    /// Row indexes of the start of each round of a case.
    fn start_rows(&self, case: &str) -> Vec<u32> {
        let all = self.rows_of_case(case);
        all.chunk_by(|a, b| a.round() == b.round())
            .flat_map(start_of_round)
            .collect()
    }
}

/// Whether the load starts with an empty server and is measured from its first request.
fn starts_empty(load: &Load) -> bool {
    load.shape.constant_rate().is_some() && load.warmup == Warmup::Requests(0)
}

/// Row indexes of a round's start, from TTFT ordered by scheduled send, or from the end-to-end latency where nothing
/// was streamed; and from the requests in flight at each scheduled send. The later of both ends counts.
fn start_of_round(round: &[RequestRow<'_>]) -> Vec<u32> {
    let mut ok: Vec<&RequestRow<'_>> = round
        .iter()
        .filter(|row| row.measured_or_settling() && row.ok())
        .collect();
    ok.sort_by_key(|row| (row.intended(), row.seq(), row.turn()));
    let streamed = ok.iter().any(|row| row.first_token().is_some());
    let latency = |row: &&RequestRow<'_>| {
        if streamed {
            row.first_token()
        } else {
            Some(row.end())
        }
        .map(|at| (row.intended(), at))
    };
    let spans: Vec<(u64, u64)> = ok.iter().filter_map(latency).collect();
    let latencies: Vec<f64> = spans
        .iter()
        .map(|(from, to)| to.saturating_sub(*from) as f64 / 1e6)
        .collect();
    // A server that fills up slows down later than the requests in it increase, and TTFT may not show it at all.
    let in_flight = InFlight::count(round);
    let levels: Vec<f64> = spans
        .iter()
        .map(|(from, _)| f64::from(in_flight.level(*from)))
        .collect();
    let cut = truncation(&latencies).max(emptier_start(&levels));
    let Some((first, _)) = cut.and_then(|cut| spans.get(cut)) else {
        return Vec::new();
    };
    round
        .iter()
        .filter(|row| row.measured_or_settling() && row.intended() < *first)
        .map(RequestRow::row_index)
        .collect()
}

/// How many values of the start to discard, at most half; None for nothing.
pub fn truncation(values: &[f64]) -> Option<usize> {
    let (cut, batches) = truncate(values)?;
    let (early, late) = batches.split_at(cut);
    let error = sd(late)? / (early.len() as f64).sqrt();
    let is_lower = mean(early)? < mean(late)? - MIN_STANDARD_ERRORS * error;
    is_lower.then_some(cut * BATCH)
}

/// How many requests of the start to discard by the numbers in flight at each; None for nothing.
fn emptier_start(levels: &[f64]) -> Option<usize> {
    let cut = differing_start(levels)?;
    let (early, late) = levels.split_at(cut);
    (mean(early)? <= mean(late)? - MIN_REQUESTS).then_some(cut)
}

/// The values between a start and an end that differ from them, in either direction. A start that changes for long is
/// cut several times.
pub(super) fn between_differing_ends(values: &[f64]) -> Range<usize> {
    let mut kept = 0..values.len();
    loop {
        let own = values.get(kept.clone()).unwrap_or_default();
        if let Some(start) = differing_start(own) {
            kept.start += start;
            continue;
        }
        let reversed: Vec<f64> = own.iter().rev().copied().collect();
        match differing_start(&reversed) {
            Some(end) => kept.end -= end,
            None => return kept,
        }
    }
}

/// How many values of the start, at most half, differ from the others; None for none. Correlation of the others counts.
fn differing_start(values: &[f64]) -> Option<usize> {
    let (cut, batches) = truncate(values).filter(|(cut, _)| *cut > 0)?;
    let (early, late) = batches.split_at(cut);
    let effect = inflation(&[late.to_vec()]).times;
    let error = sd(late)? * (effect / early.len() as f64).sqrt();
    let difference = (mean(early)? - mean(late)?).abs();
    (difference > MIN_STANDARD_ERRORS * error).then_some(cut * BATCH)
}

/// The means of batches, and the number of them whose removal gives the mean of the others the smallest standard error.
fn truncate(values: &[f64]) -> Option<(usize, Vec<f64>)> {
    let batches: Vec<f64> = values.chunks_exact(BATCH).filter_map(mean).collect();
    if batches.len() < MIN_BATCHES {
        return None;
    }
    let mut sum = 0.0;
    let mut squares = 0.0;
    // The smallest squared standard error, and its cut.
    let mut best = (f64::INFINITY, 0);
    for (cut, value) in batches.iter().enumerate().rev() {
        sum += value;
        squares += value * value;
        let n = (batches.len() - cut) as f64;
        let error = (squares - sum * sum / n).max(0.0) / (n * n);
        if cut <= batches.len() / 2 && error <= best.0 {
            best = (error, cut);
        }
    }
    Some((best.1, batches))
}

/// The discarded start of a case; None where nothing was discarded.
pub fn discarded_start(table: &Table, case: &str) -> Option<Discarded> {
    let all = table.rows_of_case(case);
    let of_round = |round: &[RequestRow<'_>]| {
        let settling = || round.iter().filter(|row| row.settling());
        let from = settling().map(|row| row.intended()).min()?;
        let until = round
            .iter()
            .filter(|row| row.measured())
            .map(|row| row.intended())
            .min()?;
        Some((
            settling().count() as u64,
            until.saturating_sub(from) as f64 / 1e9,
        ))
    };
    let rounds: Vec<(u64, f64)> = all
        .chunk_by(|a, b| a.round() == b.round())
        .filter_map(of_round)
        .collect();
    let requests = rounds.iter().map(|round| round.0).sum();
    let seconds = rounds.iter().map(|round| round.1).sum();
    (requests > 0).then_some(Discarded { requests, seconds })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::CaseFacts;
    use crate::fixture::{case, sample_case, stream, table, warmup};
    use llmscen_core::load::{Arrival, Shape};
    use llmscen_core::metric::Metric;
    use llmscen_core::outcome::Outcome;

    /// A request every 10 ms; the first `start` ones wait less.
    fn rows(n: u64, start: u64) -> Vec<Outcome> {
        let wait = |k: u64| if k < start { 20 } else { 100 } + k * 7 % 5;
        (0..n)
            .map(|k| stream(k, k * 10, &[k * 10 + wait(k), k * 10 + 300]))
            .collect()
    }

    fn open() -> Case {
        case(Shape::Open {
            rate: 100.0,
            arrival: Arrival::Constant,
        })
    }

    fn start_of(table: Table, case: &Case) -> Option<(u64, f64)> {
        let table = table
            .mark_starts_of([case])
            .unwrap()
            .mark_starts_of([case])
            .unwrap();
        discarded_start(&table, "a").map(|own| (own.requests, own.seconds))
    }

    #[test]
    fn the_fast_start_of_an_open_loop_counts_like_warm_up() {
        let own = open();
        let table = table("a", &rows(200, 30)).mark_starts_of([&own]).unwrap();
        let seen = sample_case(
            &table,
            &CaseFacts {
                case: &own,
                parts: &[],
                until: None,
            },
        );
        assert_eq!(
            (
                seen.counts.scheduled,
                seen.counts.warmup,
                seen.requests.len()
            ),
            (170, 30, 170)
        );
        assert!(
            seen.distributions[&Metric::Ttft].min >= 100.0
                && (seen.scalars[&Metric::RateOffered] - 100.0).abs() < 1e-9
        );
        assert_eq!(
            discarded_start(&table, "a"),
            Some(Discarded {
                requests: 30,
                seconds: 0.3
            })
        );
    }

    #[test]
    fn a_start_that_only_the_requests_in_flight_show_is_discarded() {
        // A request every 10 ms, of 500 ms each and an equal TTFT: 50 are in flight from the 50th on.
        let rows: Vec<Outcome> = (0..400)
            .map(|k| stream(k, k * 10, &[k * 10 + 20 + k * 7 % 5, k * 10 + 505]))
            .collect();
        assert_eq!(start_of(table("a", &rows), &open()), Some((50, 0.5)));
    }

    #[test]
    fn marking_twice_marks_no_more_and_at_most_half_goes() {
        assert_eq!(
            start_of(table("a", &rows(200, 30)), &open()),
            Some((30, 0.3))
        );
        assert_eq!(
            start_of(table("a", &rows(200, 150)), &open()),
            Some((30, 0.3)),
            "by TTFT what is left would be as slow as what goes; the requests of 300 ms fill the server"
        );
    }

    #[test]
    fn a_slow_start_noise_and_loads_with_warmup_lose_nothing() {
        let slow: Vec<Outcome> = (0..200)
            .map(|k| {
                stream(
                    k,
                    k * 10,
                    &[k * 10 + if k < 30 { 100 } else { 20 } + k * 7 % 5],
                )
            })
            .collect();
        assert_eq!(start_of(table("a", &slow), &open()), None);
        let noise: Vec<Outcome> = (0..200)
            .map(|k| stream(k, k * 10, &[k * 10 + 2, k * 10 + 5 + k * 7 % 5]))
            .collect();
        assert_eq!(start_of(table("a", &noise), &open()), None);
        assert_eq!(
            start_of(table("a", &rows(49, 10)), &open()),
            None,
            "fewer than ten batches"
        );
        assert_eq!(
            start_of(
                table("a", &rows(200, 30)),
                &case(Shape::Closed { users: 4 })
            ),
            None
        );
        let mut stated = open();
        stated.load.warmup = Warmup::Requests(1);
        let mut all = rows(200, 30);
        all[0] = warmup(all[0].clone());
        assert_eq!(start_of(table("a", &all), &stated), None);
    }

    #[test]
    fn the_truncation_of_a_known_series() {
        // Ten batches of 1, thirty of 9 and 11 in turn: the least error is at the step.
        let values: Vec<f64> = (0..200)
            .map(|k| {
                if k < 50 {
                    1.0
                } else {
                    10.0 + if k / 5 % 2 == 0 { 1.0 } else { -1.0 }
                }
            })
            .collect();
        assert_eq!(truncation(&values), Some(50));
    }
}
