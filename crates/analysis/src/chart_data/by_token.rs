//! Gaps between tokens by the place of the token in its reply.

use super::spectrum::settle;
use crate::request_row::RequestRow;
use llmscen_core::chart_data::Band;
use llmscen_core::stats::quantile::rank;
use std::collections::BTreeMap;

/// Steps of the axis at the most.
const STEPS: usize = 64;
/// The shares of a band.
const SHARES: [f64; 3] = [0.50, 0.90, 0.99];

/// Gaps in milliseconds, by step of the place of the token they end at; tokens are counted from 1 in each choice.
pub(super) struct Gaps {
    /// First place of each step, and the end of the last.
    edges: Vec<usize>,
    steps: Vec<Vec<f64>>,
}

impl Gaps {
    /// Of these requests.
    pub(super) fn of<'a>(facts: impl Iterator<Item = &'a RequestRow<'a>> + Clone) -> Gaps {
        let longest = facts.clone().map(|fact| fact.events().len()).max().unwrap_or(0);
        let edges = edges(longest);
        let mut steps = vec![Vec::new(); edges.len().saturating_sub(1)];
        let step_of: Vec<usize> = (0..=longest).map(|place| edges.partition_point(|&edge| edge <= place)).collect();
        let mut put = |place: usize, gap: f64| {
            let step = step_of.get(place).and_then(|step| step.checked_sub(1)).and_then(|step| steps.get_mut(step));
            if let Some(step) = step {
                step.push(gap);
            }
        };
        facts.for_each(|fact| gaps(fact, &mut put));
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
fn edges(longest: usize) -> Vec<usize> {
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
    [128, 64, 32, 16, 8, 4].map(cut).into_iter().find(|edges| edges.len() <= STEPS + 1).unwrap_or_else(|| cut(2))
}

fn gaps(fact: &RequestRow<'_>, put: &mut impl FnMut(usize, f64)) {
    let ms = |earlier: u64, later: u64| later.saturating_sub(earlier) as f64 / 1e6;
    if fact.choices().is_empty() {
        let pairs = fact.events().iter().zip(fact.events().iter().skip(1));
        pairs.zip(2..).for_each(|((&earlier, &later), place)| put(place, ms(earlier, later)));
        return;
    }
    let mut latest: BTreeMap<u32, (usize, u64)> = BTreeMap::new();
    for (place, &event) in fact.events().iter().enumerate() {
        let own = latest.entry(fact.choices().get(place).copied().unwrap_or(0)).or_insert((0, event));
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
    let places = SHARES.map(|share| rank(gaps.len(), share) - 1);
    let mut distinct = places.to_vec();
    distinct.dedup();
    settle(gaps, &distinct, 0);
    let [p50, p90, p99] = places.map(|place| gaps.get(place).copied().unwrap_or_default());
    Some(Band { from: from as f64, to: to as f64, n: gaps.len() as u64, p50, p90, p99 })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{stream, table};
    use llmscen_core::outcome::Outcome;

    fn bands(rows: &[Outcome]) -> Vec<Band> {
        let table = table("a", rows);
        let facts = table.rows_of_case("a");
        Gaps::of(facts.iter()).bands()
    }

    #[test]
    fn the_first_gap_is_that_before_the_second_token() {
        let seen = bands(&[stream(0, 0, &[10, 40, 50]), stream(1, 0, &[10, 30]), stream(2, 0, &[9])]);
        let known = [
            Band { from: 2.0, to: 2.0, n: 2, p50: 20.0, p90: 30.0, p99: 30.0 },
            Band { from: 3.0, to: 3.0, n: 1, p50: 10.0, p90: 10.0, p99: 10.0 },
        ];
        assert_eq!(seen, known);
        assert_eq!(bands(&[stream(0, 0, &[10])]), []);
    }

    #[test]
    fn each_choice_counts_its_own_tokens() {
        let mut reply = stream(0, 0, &[50, 60, 70, 80, 90, 120]);
        reply.timeline.choices = vec![0, 1, 0, 1, 0, 1];
        let seen: Vec<_> = bands(&[reply]).iter().map(|band| (band.from, band.n, band.p50, band.p99)).collect();
        assert_eq!(seen, [(2.0, 2, 20.0, 20.0), (3.0, 2, 20.0, 40.0)]);
    }

    #[test]
    fn long_replies_are_cut_finely_at_their_start() {
        for longest in [0, 1, 2, 65, 66, 1000, 8192, 1_000_000] {
            let edges = edges(longest);
            assert!(edges.len() <= STEPS + 1, "{longest}: {}", edges.len());
            assert!(edges.windows(2).all(|pair| pair[0] < pair[1]));
            assert_eq!((edges[0], *edges.last().unwrap()), (2, longest.max(1) + 1));
        }
        assert_eq!(edges(1000)[..4], [2, 3, 4, 5]);
    }

    #[test]
    fn nothing_is_lost_when_they_are_pooled() {
        let table = table("a", &[stream(0, 0, &[10, 40, 50]), stream(1, 0, &[10, 30])]);
        let facts = table.rows_of_case("a");
        let mut all = Gaps::of(facts.iter()).pooled();
        all.sort_by(f64::total_cmp);
        assert_eq!(all, [10.0, 20.0, 30.0]);
    }
}
