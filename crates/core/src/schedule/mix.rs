//! Which entry of a mix a request belongs to: drawn by weight, or given by the arrival plans of the entries.

use crate::load::Arrival;
use crate::mix::Entry;
use crate::schedule::arrival::Arrivals;
use crate::seed::Seed;
use crate::units::Nanos;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::iter::Peekable;

/// The seed of what an entry draws for its requests, whatever the other entries do.
pub fn own(seed: Seed, name: &str) -> Seed {
    seed.child("mix").child(name)
}

/// Deals the requests of a round out to the entries, in the order of their numbers.
#[derive(Clone, Debug)]
pub struct Deal {
    sizes: Vec<f64>,
    seed: Seed,
    counts: Vec<u64>,
    seq: u64,
}

impl Deal {
    /// The deal of a round with this seed; without entries there is one hand that takes all.
    pub fn new(mix: &[Entry], seed: Seed) -> Deal {
        let sizes: Vec<f64> = mix.iter().map(|entry| entry.pull.size()).collect();
        Deal { counts: vec![0; sizes.len().max(1)], sizes, seed: seed.child("mix"), seq: 0 }
    }

    /// The next request's entry, and its number among the requests of that entry, both from 0. `planned` is the entry where
    /// an arrival plan says it; otherwise one is drawn by weight, from the seed and the request's number alone.
    pub fn next(&mut self, planned: Option<usize>) -> (usize, u64) {
        let entry = planned.unwrap_or_else(|| drawn(&self.sizes, self.seed.child(self.seq)));
        self.seq += 1;
        let Some(count) = self.counts.get_mut(entry) else { return (entry, 0) };
        *count += 1;
        (entry, *count - 1)
    }
}

/// An index, each as likely as its weight; the last one with any weight where rounding leaves none, 0 without weights.
fn drawn(weights: &[f64], seed: Seed) -> usize {
    let mut left = ChaCha8Rng::seed_from_u64(seed.0).random::<f64>() * weights.iter().sum::<f64>();
    for (index, weight) in weights.iter().enumerate() {
        left -= weight;
        if left < 0.0 {
            return index;
        }
    }
    weights.iter().rposition(|&weight| weight > 0.0).unwrap_or(0)
}

/// The arrivals of several open loops at once, in the order of their instants, and of the entries where those are equal.
pub struct Merged(Vec<Peekable<Arrivals>>);

impl Merged {
    /// Open loops by name and rate. Each draws from a seed of its own, so that its arrivals are the same whatever the others
    /// do.
    pub fn new(rates: &[(&str, f64)], arrival: Arrival, seed: Seed) -> Merged {
        Merged(rates.iter().map(|(name, rate)| Arrivals::new(*rate, arrival, seed.child(*name)).peekable()).collect())
    }
}

impl Iterator for Merged {
    type Item = (Nanos, Option<usize>);

    fn next(&mut self) -> Option<(Nanos, Option<usize>)> {
        let dues = self.0.iter_mut().enumerate().filter_map(|(index, own)| Some((*own.peek()?, index)));
        let (_, index) = dues.min()?;
        Some((self.0.get_mut(index)?.next()?, Some(index)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dataset::{DatasetSpec, Source};
    use crate::mix::Pull;
    use crate::request::RequestSpec;

    fn mix(weights: &[(&str, f64)]) -> Vec<Entry> {
        let dataset = || DatasetSpec::of(Source::Prompt("x".into()));
        let entry = |(name, weight): &(&str, f64)| Entry {
            name: (*name).into(),
            pull: Pull::Weight(*weight),
            request: RequestSpec::default(),
            dataset: dataset(),
        };
        weights.iter().map(entry).collect()
    }

    fn dealt(weights: &[(&str, f64)], seed: u64, n: usize) -> Vec<(usize, u64)> {
        let mut deal = Deal::new(&mix(weights), Seed(seed));
        (0..n).map(|_| deal.next(None)).collect()
    }

    #[test]
    fn a_seed_deals_one_sequence_and_another_seed_another() {
        let entries = [("chat", 3.0), ("sum", 1.0)];
        let first: Vec<usize> = dealt(&entries, 42, 24).into_iter().map(|(entry, _)| entry).collect();
        assert_eq!(first, [0, 1, 0, 1, 0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 1, 0, 1, 1, 0, 1, 1, 0, 0, 0]);
        assert_eq!(dealt(&entries, 42, 1000), dealt(&entries, 42, 1000));
        assert_ne!(dealt(&entries, 42, 1000), dealt(&entries, 43, 1000));
    }

    #[test]
    fn shares_are_those_of_the_weights() {
        // Four standard deviations of a binomial count.
        for (weights, share) in [([3.0, 1.0], 0.75), ([1.0, 1.0], 0.5), ([0.0, 7.0], 0.0), ([0.02, 0.98], 0.02)] {
            let n = 20_000;
            let hits = dealt(&[("a", weights[0]), ("b", weights[1])], 5, n).iter().filter(|(entry, _)| *entry == 0).count();
            let bound = 4.0 * (n as f64 * share * (1.0 - share)).sqrt();
            assert!((hits as f64 - n as f64 * share).abs() <= bound, "{weights:?}: {hits}");
        }
    }

    #[test]
    fn numbers_count_each_entry_by_itself_and_one_hand_takes_all() {
        for entry in 0..2 {
            let own: Vec<u64> =
                dealt(&[("a", 1.0), ("b", 2.0)], 9, 500).iter().filter(|own| own.0 == entry).map(|own| own.1).collect();
            assert!(own.len() > 100 && own.iter().copied().eq(0..own.len() as u64));
        }
        assert_eq!(dealt(&[], 1, 3), [(0, 0), (0, 1), (0, 2)]);
    }

    #[test]
    fn a_plan_says_whose_request_it_is() {
        let mut deal = Deal::new(&mix(&[("a", 1.0), ("b", 1.0)]), Seed(1));
        assert_eq!([1, 1, 0, 1].map(|entry| deal.next(Some(entry))), [(1, 0), (1, 1), (0, 0), (1, 2)]);
    }

    #[test]
    fn open_loops_merge_in_due_order_and_ties_by_entry() {
        let seen: Vec<(u64, Option<usize>)> = Merged::new(&[("a", 10.0), ("b", 5.0)], Arrival::Constant, Seed(1))
            .take(6)
            .map(|(at, entry)| (at.0 / 1_000_000, entry))
            .collect();
        assert_eq!(seen, [(0, Some(0)), (0, Some(1)), (100, Some(0)), (200, Some(0)), (200, Some(1)), (300, Some(0))]);
    }

    #[test]
    fn the_arrivals_of_an_entry_do_not_depend_on_the_others() {
        let own = |rates: &[(&str, f64)], name: &str| {
            let index = rates.iter().position(|own| own.0 == name);
            let all: Vec<(Nanos, Option<usize>)> = Merged::new(rates, Arrival::Poisson, Seed(3)).take(2000).collect();
            assert!(all.is_sorted_by_key(|(at, _)| *at));
            all.into_iter().filter(|own| own.1 == index).map(|own| own.0).take(100).collect::<Vec<_>>()
        };
        let alone = own(&[("b", 5.0)], "b");
        assert_eq!((own(&[("a", 20.0), ("b", 5.0)], "b"), own(&[("b", 5.0), ("c", 1.0)], "b")), (alone.clone(), alone));
    }
}
