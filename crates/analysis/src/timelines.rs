//! What the charts over time draw.

use crate::CaseFacts;
use crate::in_flight::Flight;
use crate::request_row::RequestRow;
use crate::round::{Round, rounds};
use crate::steady::extent;
use crate::table::Table;
use llmscen_core::load::Shape;
use llmscen_core::metric::Metric;
use llmscen_core::report::{Series, Timelines};

/// Bins of tokens over time at the most, and their least width in seconds.
const BINS: usize = 120;
const LEAST_BIN: f64 = 0.1;
/// Steps in flight at the most.
const STEPS: usize = 2000;

/// The first round of the case over time; empty without rows.
pub fn timelines(table: &Table, facts: &CaseFacts<'_>) -> Timelines {
    let all = table.rows_of_case(&facts.case.id);
    rounds(&all, facts).first().map(|round| of_round(round, &facts.case.load.shape)).unwrap_or_default()
}

fn of_round(round: &Round<'_, '_>, shape: &Shape) -> Timelines {
    let (from, to) = round.window.unwrap_or_default();
    let flight = Flight::of(round.rows);
    Timelines {
        in_flight: thinned(&flight),
        output_tps: token_bins(round.rows),
        ttft_ms: sorted(round.rows.iter().filter_map(|fact| Some((secs(fact.intended()), fact.metric(Metric::Ttft)?)))),
        failures: sorted(round.rows.iter().filter(|fact| !fact.ok() && !fact.left()).map(|fact| (secs(fact.end()), 1.0))),
        measured: (secs(from), secs(to)),
        steady: extent(round, &flight, shape).map(|(from, to)| (secs(from), secs(to))),
    }
}

fn secs(stamp: u64) -> f64 {
    stamp as f64 / 1e9
}

fn sorted(points: impl Iterator<Item = (f64, f64)>) -> Series {
    let mut points: Series = points.collect();
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    points
}

/// All steps where they are few; of many, the highest of each of equally many in a row, and the last.
fn thinned(flight: &Flight) -> Series {
    let group = flight.0.len().div_ceil(STEPS).max(1);
    let highest = flight.0.chunks(group).filter_map(|steps| steps.iter().max_by_key(|step| step.1));
    let last = flight.0.last().filter(|_| group > 1);
    highest.chain(last).map(|&(at, level)| (secs(at), f64::from(level))).collect()
}

/// Tokens of ok requests by arrival, over bins of equal width; a point stands in the middle of its bin.
fn token_bins(rows: &[RequestRow<'_>]) -> Series {
    let streams = || rows.iter().filter(|fact| fact.ok() && !fact.events().is_empty());
    let Some(end) = streams().map(|fact| fact.end()).max().map(secs).filter(|&end| end > 0.0) else { return Series::new() };
    let bins = ((end / LEAST_BIN).ceil() as usize).clamp(1, BINS);
    let width = end / bins as f64;
    let mut tokens = vec![0.0; bins];
    for fact in streams() {
        for (place, &event) in fact.events().iter().enumerate() {
            let bin = ((secs(event) / width) as usize).min(bins - 1);
            if let Some(tokens) = tokens.get_mut(bin) {
                *tokens += fact.event_weight(place);
            }
        }
    }
    tokens.iter().enumerate().map(|(bin, tokens)| ((bin as f64 + 0.5) * width, tokens / width)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{case, facts, failed, stream, table, warmup};
    use llmscen_core::load::Shape;
    use llmscen_core::outcome::{FailureKind, Outcome};

    fn drawn(rows: &[Outcome]) -> Timelines {
        timelines(&table("a", rows), &facts(&case(Shape::Closed { users: 1 })))
    }

    #[test]
    fn a_short_round_is_drawn_whole() {
        let seen = drawn(&[warmup(stream(0, 0, &[50])), stream(1, 50, &[150, 400]), failed(3, FailureKind::Decode)]);
        assert_eq!(seen.in_flight, [(0.0, 1.0), (0.302, 2.0), (0.382, 1.0), (0.4, 0.0)]);
        assert_eq!(seen.output_tps, [(0.05, 10.0), (0.15000000000000002, 10.0), (0.25, 0.0), (0.35000000000000003, 10.0)]);
        assert_eq!(seen.ttft_ms, [(0.0, 50.0), (0.05, 100.0)]);
        assert_eq!((seen.failures, seen.measured), (vec![(0.382, 1.0)], (0.05, 0.4)));
    }

    #[test]
    fn the_area_under_the_bins_is_the_tokens() {
        let rows: Vec<_> = (0..300).map(|k| stream(k, k * 100, &[k * 100 + 30, k * 100 + 90])).collect();
        let seen = drawn(&rows).output_tps;
        let width = seen[1].0 - seen[0].0;
        assert_eq!(seen.len(), BINS);
        assert!((seen.iter().map(|point| point.1 * width).sum::<f64>() - 600.0).abs() < 1e-6);
    }

    #[test]
    fn many_steps_keep_their_peak_and_their_end() {
        let mut steps: Vec<(u64, u32)> = (0..10_000).map(|k| (k, u32::from(k % 2 == 0))).collect();
        steps[7777].1 = 9;
        let thin = thinned(&Flight(steps));
        assert!(thin.len() <= STEPS + 1 && thin.iter().any(|step| step.1 == 9.0));
        assert_eq!(thin.last(), Some(&(secs(9999), 0.0)));
    }

    #[test]
    fn nothing_gives_nothing() {
        assert_eq!(drawn(&[]), Timelines::default());
    }
}
