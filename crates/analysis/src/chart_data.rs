//! What is drawn of a case beside its course over time. One pass over the token events serves all that is drawn of them.

mod by_token;
mod heat;
mod spectrum;

use crate::CaseFacts;
use crate::request_row::RequestRow;
use crate::round::rounds;
use crate::table::Table;
use by_token::Gaps;
use llmscen_core::chart_data::{Bar, Pictures};
use llmscen_core::metric::Metric;
use llmscen_core::report::Series;
use spectrum::spectrum;
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
    let ok: Vec<&RequestRow<'_>> = all.iter().filter(|fact| fact.measured() && fact.ok()).collect();
    let waits = first.iter().filter_map(|fact| Some((secs(fact.intended()), fact.metric(Metric::E2e)?)));
    let heat = heat::heat(&waits.collect::<Vec<_>>());
    let mut gaps = Gaps::of(ok.iter().copied());
    let by_token = gaps.bands();
    Pictures { spectra: spectra(&ok, gaps), heat, by_token, prefill: prefill(&ok), waterfall: waterfall(first) }
}

/// Of the metrics that exist.
fn spectra(ok: &[&RequestRow<'_>], gaps: Gaps) -> BTreeMap<Metric, Series> {
    let of = |metric| (metric, spectrum(&mut ok.iter().filter_map(|fact| fact.metric(metric)).collect::<Vec<_>>()));
    let all = SPECTRA.into_iter().map(of).chain([(Metric::Itl, spectrum(&mut gaps.pooled()))]);
    all.filter(|(_, points)| !points.is_empty()).collect()
}

/// Evenly picked requests of which both are known.
fn prefill(ok: &[&RequestRow<'_>]) -> Series {
    let known = |fact: &&RequestRow<'_>| Some((fact.metric(Metric::PromptTokens)?, fact.metric(Metric::TtftService)?));
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
    due.sort_by_key(|fact| (fact.intended(), fact.seq(), fact.turn()));
    evenly(due, BARS).into_iter().map(bar).collect()
}

fn bar(fact: &RequestRow<'_>) -> Bar {
    Bar {
        seq: fact.seq(),
        turn: fact.turn(),
        intended: secs(fact.intended()),
        sent: fact.sent().map(secs),
        first_token: fact.answered().map(secs),
        end: secs(fact.end()),
        failure: fact.failure(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{case, facts, failed, outcome, stream, table, warmup};
    use llmscen_core::load::Shape;
    use llmscen_core::outcome::{FailureKind, Outcome};

    fn drawn(rows: &[Outcome]) -> Pictures {
        super::pictures(&table("a", rows), &facts(&case(Shape::Closed { users: 1 })))
    }

    #[test]
    fn measured_requests_stand_in_the_waterfall_in_the_order_in_which_they_were_due() {
        let seen =
            drawn(&[warmup(outcome(0)), stream(2, 200, &[350]), stream(1, 50, &[150, 400]), failed(3, FailureKind::Decode)]);
        assert_eq!(seen.waterfall.iter().map(|bar| bar.seq).collect::<Vec<_>>(), [1, 2, 3]);
        let bar = seen.waterfall[0];
        assert_eq!((bar.intended, bar.first_token, bar.end, bar.failure), (0.05, Some(0.15), 0.4, None));
        assert_eq!(seen.waterfall[2].failure, Some(FailureKind::Decode));
    }

    #[test]
    fn of_many_requests_some_are_picked_evenly() {
        let rows: Vec<Outcome> = (0..1000).map(|k| stream(k, k * 10, &[k * 10 + 5])).collect();
        let seqs: Vec<u64> = drawn(&rows).waterfall.iter().map(|bar| bar.seq).collect();
        assert_eq!(seqs, (0..200).map(|k| k * 5).collect::<Vec<u64>>());
    }

    #[test]
    fn only_what_succeeded_has_a_place_in_the_other_pictures() {
        let broken = Outcome { end: failed(3, FailureKind::Truncated).end, ..stream(3, 300, &[999, 1999]) };
        let seen = drawn(&[warmup(stream(0, 0, &[50, 900])), stream(1, 100, &[150, 400]), stream(2, 200, &[230, 240]), broken]);
        let ends = |metric| seen.spectra.get(&metric).map(|points| (points[0].1, points[points.len() - 1]));
        assert_eq!(ends(Metric::Ttft), Some((30.0, (0.5, 50.0))));
        assert_eq!(ends(Metric::Itl), Some((10.0, (0.5, 250.0))));
        assert_eq!(ends(Metric::E2e), Some((40.0, (0.5, 300.0))));
        assert_eq!(seen.prefill, [(10.0, 50.0), (10.0, 30.0)]);
        assert_eq!(seen.by_token.iter().map(|band| (band.from, band.n)).collect::<Vec<_>>(), [(2.0, 2)]);
        let heat = seen.heat.unwrap();
        assert_eq!((heat.times[0], heat.times[heat.times.len() - 1]), (0.1, 0.2));
        assert_eq!(heat.counts.iter().flatten().sum::<u32>(), 2);
    }

    #[test]
    fn nothing_gives_nothing() {
        assert_eq!(drawn(&[]), Pictures::default());
    }
}
