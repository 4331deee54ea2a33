//! Assignment of requests to the traffic classes of a mix: random by weight, or by the arrivals of each class.

use crate::load::Shape;
use crate::mix::MixEntry;
use crate::schedule::of_rates;
use crate::seed::Seed;
use crate::units::Nanos;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::iter::Peekable;

/// The seed of one traffic class, independent of the other classes.
pub fn entry_seed(seed: Seed, name: &str) -> Seed {
    seed.child("mix").child(name)
}

/// Assigns the requests of a round to traffic classes, in the order of request numbers.
#[derive(Clone, Debug)]
pub struct MixAssigner {
    sizes: Vec<f64>,
    seed: Seed,
    counts: Vec<u64>,
    seq: u64,
}

impl MixAssigner {
    /// The assignment for a round; without a mix, all requests are of class 0.
    pub fn new(mix: &[MixEntry], seed: Seed) -> MixAssigner {
        let sizes: Vec<f64> = mix.iter().map(|entry| entry.load.size()).collect();
        MixAssigner {
            counts: vec![0; sizes.len().max(1)],
            sizes,
            seed: seed.child("mix"),
            seq: 0,
        }
    }

    /// The traffic class of the next request, and its number within the class, both from 0. `planned` is the class if
    /// an arrival determines it; otherwise it is sampled by weight from the seed and the request number.
    pub fn next(&mut self, planned: Option<usize>) -> (usize, u64) {
        let entry = match planned {
            Some(entry) => entry,
            None if self.sizes.len() < 2 => 0,
            None => sample_index(&self.sizes, self.seed.child(self.seq)),
        };
        self.seq += 1;
        let Some(count) = self.counts.get_mut(entry) else {
            return (entry, 0);
        };
        *count += 1;
        (entry, *count - 1)
    }
}

/// Samples an index in proportion to the weights; if rounding leaves none, the last one with a positive weight.
fn sample_index(weights: &[f64], seed: Seed) -> usize {
    let mut left = ChaCha8Rng::seed_from_u64(seed.0).random::<f64>() * weights.iter().sum::<f64>();
    for (index, weight) in weights.iter().enumerate() {
        left -= weight;
        if left < 0.0 {
            return index;
        }
    }
    weights
        .iter()
        .rposition(|&weight| weight > 0.0)
        .unwrap_or(0)
}

/// The merged arrivals of several open loops, ordered by time, then by traffic class.
pub struct MergedArrivals(Vec<Peekable<Box<dyn Iterator<Item = Nanos> + Send>>>);

impl MergedArrivals {
    /// Open loops by name and shape. Each has a separate seed, so that its arrivals do not depend on the others.
    pub fn new(classes: &[(&str, &Shape)], seed: Seed) -> MergedArrivals {
        let arrivals = |(name, shape): &(&str, &Shape)| {
            let own: Box<dyn Iterator<Item = Nanos> + Send> =
                of_rates(shape, seed.child(*name)).unwrap_or_else(|| Box::new(std::iter::empty()));
            own.peekable()
        };
        MergedArrivals(classes.iter().map(arrivals).collect())
    }
}

impl Iterator for MergedArrivals {
    type Item = (Nanos, Option<usize>);

    fn next(&mut self) -> Option<(Nanos, Option<usize>)> {
        let dues = self
            .0
            .iter_mut()
            .enumerate()
            .filter_map(|(index, own)| Some((*own.peek()?, index)));
        let (_, index) = dues.min()?;
        Some((self.0.get_mut(index)?.next()?, Some(index)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dataset::{DatasetSpec, Source};
    use crate::load::Arrival;
    use crate::mix::EntryLoad;
    use crate::request::RequestSpec;
    use crate::stage::{RateProfile, RateStage};

    fn mix(weights: &[(&str, f64)]) -> Vec<MixEntry> {
        let dataset = || DatasetSpec::new(Source::Prompt("x".into()));
        let entry = |(name, weight): &(&str, f64)| MixEntry {
            name: (*name).into(),
            load: EntryLoad::Weight(*weight),
            headers: Vec::new(),
            request: RequestSpec::default(),
            dataset: dataset(),
        };
        weights.iter().map(entry).collect()
    }

    fn assign_all(weights: &[(&str, f64)], seed: u64, n: usize) -> Vec<(usize, u64)> {
        let mut deal = MixAssigner::new(&mix(weights), Seed(seed));
        (0..n).map(|_| deal.next(None)).collect()
    }

    #[test]
    fn the_seed_determines_the_assignment() {
        let entries = [("chat", 3.0), ("sum", 1.0)];
        let first: Vec<usize> = assign_all(&entries, 42, 24)
            .into_iter()
            .map(|(entry, _)| entry)
            .collect();
        assert_eq!(
            first,
            [
                0, 1, 0, 1, 0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 1, 0, 1, 1, 0, 1, 1, 0, 0, 0
            ]
        );
        assert_eq!(
            assign_all(&entries, 42, 1000),
            assign_all(&entries, 42, 1000)
        );
        assert_ne!(
            assign_all(&entries, 42, 1000),
            assign_all(&entries, 43, 1000)
        );
    }

    #[test]
    fn shares_are_those_of_the_weights() {
        // Four standard deviations of a binomial count.
        for (weights, share) in [
            ([3.0, 1.0], 0.75),
            ([1.0, 1.0], 0.5),
            ([0.0, 7.0], 0.0),
            ([0.02, 0.98], 0.02),
        ] {
            let n = 20_000;
            let hits = assign_all(&[("a", weights[0]), ("b", weights[1])], 5, n)
                .iter()
                .filter(|(entry, _)| *entry == 0)
                .count();
            let bound = 4.0 * (n as f64 * share * (1.0 - share)).sqrt();
            assert!(
                (hits as f64 - n as f64 * share).abs() <= bound,
                "{weights:?}: {hits}"
            );
        }
    }

    #[test]
    fn numbers_count_within_each_class() {
        for entry in 0..2 {
            let own: Vec<u64> = assign_all(&[("a", 1.0), ("b", 2.0)], 9, 500)
                .iter()
                .filter(|own| own.0 == entry)
                .map(|own| own.1)
                .collect();
            assert!(own.len() > 100 && own.iter().copied().eq(0..own.len() as u64));
        }
        assert_eq!(assign_all(&[], 1, 3), [(0, 0), (0, 1), (0, 2)]);
    }

    #[test]
    fn a_planned_class_is_kept() {
        let mut deal = MixAssigner::new(&mix(&[("a", 1.0), ("b", 1.0)]), Seed(1));
        assert_eq!(
            [1, 1, 0, 1].map(|entry| deal.next(Some(entry))),
            [(1, 0), (1, 1), (0, 0), (1, 2)]
        );
    }

    fn merged(rates: &[(&str, f64)], arrival: Arrival, seed: Seed) -> MergedArrivals {
        let shapes: Vec<(&str, Shape)> = rates
            .iter()
            .map(|(name, rate)| {
                (
                    *name,
                    Shape::Open {
                        rate: *rate,
                        arrival,
                    },
                )
            })
            .collect();
        let classes: Vec<(&str, &Shape)> =
            shapes.iter().map(|(name, shape)| (*name, shape)).collect();
        MergedArrivals::new(&classes, seed)
    }

    #[test]
    fn classes_with_separate_arrival_processes_merge_in_due_order() {
        let constant = Shape::Open {
            rate: 10.0,
            arrival: Arrival::Constant,
        };
        let ramp = Shape::Rates {
            stages: [
                RateStage {
                    rate: RateProfile::Flat(0.0),
                    span: Nanos::from_millis(150),
                },
                RateStage {
                    rate: RateProfile::Flat(20.0),
                    span: Nanos::from_millis(100),
                },
            ]
            .into(),
            arrival: Arrival::Constant,
        };
        let seen: Vec<(u64, Option<usize>)> =
            MergedArrivals::new(&[("a", &constant), ("b", &ramp)], Seed(1))
                .take(6)
                .map(|(at, entry)| (at.0 / 1_000_000, entry))
                .collect();
        // b starts after its pause, and ends with its stages.
        let (a, b) = (Some(0), Some(1));
        assert_eq!(
            seen,
            [(0, a), (100, a), (150, b), (200, a), (200, b), (300, a)]
        );
    }

    #[test]
    fn open_loops_merge_in_due_order_and_ties_by_entry() {
        let seen: Vec<(u64, Option<usize>)> =
            merged(&[("a", 10.0), ("b", 5.0)], Arrival::Constant, Seed(1))
                .take(6)
                .map(|(at, entry)| (at.0 / 1_000_000, entry))
                .collect();
        assert_eq!(
            seen,
            [
                (0, Some(0)),
                (0, Some(1)),
                (100, Some(0)),
                (200, Some(0)),
                (200, Some(1)),
                (300, Some(0))
            ]
        );
    }

    #[test]
    fn the_arrivals_of_an_entry_do_not_depend_on_the_others() {
        let own = |rates: &[(&str, f64)], name: &str| {
            let index = rates.iter().position(|own| own.0 == name);
            let all: Vec<(Nanos, Option<usize>)> = merged(rates, Arrival::Poisson, Seed(3))
                .take(2000)
                .collect();
            assert!(all.is_sorted_by_key(|(at, _)| *at));
            all.into_iter()
                .filter(|own| own.1 == index)
                .map(|own| own.0)
                .take(100)
                .collect::<Vec<_>>()
        };
        let alone = own(&[("b", 5.0)], "b");
        assert_eq!(
            (
                own(&[("a", 20.0), ("b", 5.0)], "b"),
                own(&[("b", 5.0), ("c", 1.0)], "b")
            ),
            (alone.clone(), alone)
        );
    }
}
