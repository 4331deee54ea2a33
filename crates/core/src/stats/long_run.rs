//! Standard errors of means and rates over correlated requests, relative to the long-run value.
//!
//! Batch means (Law, "Simulation Modeling and Analysis", 5th edition, section 9.5.3) with Student's t, and at least
//! the variance of Geyer's initial sequence (see [`effective`]).

use crate::stats::design::{Unit, by_round, effective, ratio, squares};
use crate::stats::distributions::t_quantile;

/// Minimum number of values of a mean, and of requests of a rate.
pub const LEAST: usize = 20;
/// Number of rounds from which on the variation between them is used too.
pub const ROUNDS: usize = 5;
/// Number of equal time bins in which the arrivals of a round are counted.
pub const BINS: usize = 240;
/// Possible numbers of slices, each of several bins.
const SLICES: [usize; 8] = [5, 6, 8, 10, 12, 15, 16, 20];
/// Numbers of batches: many batches detect short correlations, few batches long ones. Fewer than [`MANY`] values use
/// the last two.
const BATCHES: [usize; 3] = [20, 10, 5];
const MANY: usize = 200;

/// A standard error and its degrees of freedom.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StandardError {
    /// The standard error, in the unit of the estimate.
    pub size: f64,
    /// Degrees of freedom.
    pub freedom: f64,
}

impl StandardError {
    fn half_width(&self, level: f64) -> f64 {
        self.size * t_quantile(level, self.freedom)
    }
}

/// An estimate of a long-run mean or rate.
#[derive(Clone, Debug, PartialEq)]
pub struct LongRun {
    /// The estimate.
    pub value: f64,
    /// Standard errors by batches, and by rounds if there are at least [`ROUNDS`].
    pub errors: Vec<StandardError>,
    /// Design effect: its variance relative to that of as many independent values; 1 for a rate.
    pub effect: f64,
}

/// The arrivals of one round.
#[derive(Clone, Debug, PartialEq)]
pub struct Arrivals {
    /// Length of the round in seconds.
    pub seconds: f64,
    /// The amount in each of [`BINS`] equal time bins.
    pub bins: Vec<f64>,
}

impl LongRun {
    /// The standard error with the widest bound at this confidence.
    pub fn deciding(&self, level: f64) -> StandardError {
        self.errors
            .iter()
            .copied()
            .max_by(|a, b| a.half_width(level).total_cmp(&b.half_width(level)))
            .unwrap_or_default()
    }

    /// The one-sided bounds `(lower, upper)`, each at confidence `level`; on the logarithm if the estimate is above
    /// 0, because latencies are skewed and never negative.
    pub fn ends(&self, level: f64) -> (f64, f64) {
        let (value, arm) = (self.value, self.deciding(level).half_width(level));
        if value > 0.0 {
            (value * (-arm / value).exp(), value * (arm / value).exp())
        } else {
            (value - arm, value + arm)
        }
    }

    /// The same estimate in another unit.
    pub fn scaled(self, factor: f64) -> LongRun {
        let error = |error: StandardError| StandardError {
            size: error.size * factor,
            ..error
        };
        LongRun {
            value: self.value * factor,
            errors: self.errors.into_iter().map(error).collect(),
            ..self
        }
    }
}

/// The ratio of sums Σ amount ÷ Σ weight over units in time order; `rounds` has the round of each. None for fewer
/// than [`LEAST`] units.
pub fn mean(units: &[Unit], rounds: &[u32]) -> Option<LongRun> {
    let (n, weight) = (
        units.len(),
        units.iter().map(|unit| unit.weight).sum::<f64>(),
    );
    if n < LEAST || weight <= 0.0 {
        return None;
    }
    let value = ratio(units);
    let residuals: Vec<f64> = units
        .iter()
        .map(|unit| unit.amount - value * unit.weight)
        .collect();
    let series: Vec<Vec<f64>> = by_round(&residuals, rounds)
        .into_iter()
        .map(<[f64]>::to_vec)
        .collect();
    let counts = if n < MANY {
        BATCHES.get(1..).unwrap_or_default()
    } else {
        &BATCHES[..]
    };
    let sums = |count: &usize| {
        series
            .iter()
            .flat_map(|own| batches(own, count.div_ceil(series.len())))
            .collect::<Vec<f64>>()
    };
    let error = |squares: f64, groups: usize| StandardError {
        size: squares.sqrt() / weight,
        freedom: groups as f64 - 1.0,
    };
    let independent = squares(&residuals);
    // Geyer's sequence has the degrees of freedom of the most batches.
    let least = independent * n as f64 / effective(&series);
    let mut batched = counts.iter().map(sums).filter(|sums| sums.len() > 1);
    let first = batched.next()?;
    let most = squares(&first).max(least);
    let mut errors: Vec<StandardError> = std::iter::once(error(most, first.len()))
        .chain(batched.map(|sums| error(squares(&sums), sums.len())))
        .collect();
    errors.extend(between(
        &series
            .iter()
            .map(|own| own.iter().sum())
            .collect::<Vec<f64>>(),
        weight,
    ));
    let effect = if independent > 0.0 {
        most / independent
    } else {
        1.0
    };
    Some(LongRun {
        value,
        errors,
        effect,
    })
}

/// The rate Σ amount ÷ Σ seconds over rounds, each cut into 5 to 20 slices that are, if possible, no shorter than a
/// request takes (`request`, seconds). None without time.
///
/// The position of the window's ends adds to the variance: if requests run in waves, slices of whole waves are all
/// equal. The variation of the running count within the slices estimates this part.
pub fn rate(rounds: &[Arrivals], request: f64) -> Option<LongRun> {
    let rounds: Vec<&Arrivals> = rounds
        .iter()
        .filter(|round| round.seconds > 0.0 && round.bins.len() == BINS)
        .collect();
    let seconds: f64 = rounds.iter().map(|round| round.seconds).sum();
    let amount: f64 = rounds.iter().flat_map(|round| &round.bins).sum();
    let value = Some(amount / seconds).filter(|value| value.is_finite())?;
    let (mut series, mut edges) = (Vec::new(), 0.0);
    for round in &rounds {
        let slices = slices(round.seconds, request);
        let parts = || round.bins.chunks_exact(BINS / slices);
        let even = value * round.seconds / slices as f64;
        series.push(
            parts()
                .map(|part| part.iter().sum::<f64>() - even)
                .collect::<Vec<f64>>(),
        );
        edges += 2.0 * parts().map(variance_within).sum::<f64>() / slices as f64;
    }
    let residuals = series.concat();
    let count = residuals.len() as f64;
    let sliced = squares(&residuals) * count / effective(&series) + edges;
    let mut errors = vec![StandardError {
        size: sliced.sqrt() / seconds,
        freedom: count - 1.0,
    }];
    errors.extend(between(
        &series
            .iter()
            .map(|own| own.iter().sum())
            .collect::<Vec<f64>>(),
        seconds,
    ));
    Some(LongRun {
        value,
        errors,
        effect: 1.0,
    })
}

fn slices(seconds: f64, request: f64) -> usize {
    let fits = |slices: &&usize| request <= 0.0 || **slices as f64 * request <= seconds;
    SLICES.iter().rev().find(fits).copied().unwrap_or(SLICES[0])
}

/// Variance of the running count within a slice around a straight line from its beginning to its end.
fn variance_within(part: &[f64]) -> f64 {
    let (n, total) = (part.len() as f64, part.iter().sum::<f64>());
    let mut reached = 0.0;
    let off: Vec<f64> = part
        .iter()
        .enumerate()
        .map(|(index, amount)| {
            let deviation = reached - total * index as f64 / n;
            reached += amount;
            deviation
        })
        .collect();
    let mean = off.iter().sum::<f64>() / n;
    off.iter().map(|own| (own - mean).powi(2)).sum::<f64>() / n
}

/// Sums over `count` consecutive batches of nearly equal size.
fn batches(values: &[f64], count: usize) -> Vec<f64> {
    let (n, count) = (values.len(), count.min(values.len()));
    (0..count)
        .filter_map(|at| {
            Some(
                values
                    .get(at * n / count..(at + 1) * n / count)?
                    .iter()
                    .sum(),
            )
        })
        .collect()
}

/// The standard error by the variation between rounds.
fn between(sums: &[f64], weight: f64) -> Option<StandardError> {
    let error = || StandardError {
        size: squares(sums).sqrt() / weight,
        freedom: sums.len() as f64 - 1.0,
    };
    (sums.len() >= ROUNDS).then(error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    fn units(values: impl IntoIterator<Item = f64>) -> Vec<Unit> {
        values
            .into_iter()
            .map(|amount| Unit {
                amount,
                weight: 1.0,
            })
            .collect()
    }

    #[test]
    fn a_mean_of_ten_batches_by_hand() {
        // Pairs of alike values, 0 0 2 2 0 0 2 2 …: 20 values, ten batches of two, residual sums ∓2.
        let values = units((0..20).map(|place| f64::from(place / 2 % 2 * 2)));
        let seen = mean(&values, &[0; 20]).unwrap();
        let error = seen.errors[0];
        assert_eq!((seen.value, error.freedom), (1.0, 9.0));
        // Ten squares of 4, times 10 / 9, the root over the 20 values.
        assert!(
            (error.size - (40.0f64 * 10.0 / 9.0).sqrt() / 20.0).abs() < 1e-12,
            "{error:?}"
        );
        assert!(
            (seen.effect - (400.0 / 9.0) / (20.0 * 20.0 / 19.0)).abs() < 1e-12,
            "{}",
            seen.effect
        );
        let arm = 1.833_112_9 * error.size;
        let (low, high) = seen.ends(0.95);
        assert!(
            (low - (-arm).exp()).abs() < 1e-6 && (high - arm.exp()).abs() < 1e-6,
            "{low} {high}"
        );
        assert_eq!(mean(&values[..19], &[0; 19]), None, "19 are too few");
    }

    #[test]
    fn batches_do_not_cross_rounds_and_five_rounds_have_a_spread_of_their_own() {
        let values = units((0..50).map(|place| f64::from(place / 10)));
        let rounds: Vec<u32> = (0..50).map(|place| place / 10).collect();
        let seen = mean(&values, &rounds).unwrap();
        // Rounds of ten: sums −20, −10, 0, 10, 20; two batches of each, and one.
        let by_round = StandardError {
            size: 1250.0f64.sqrt() / 50.0,
            freedom: 4.0,
        };
        assert_eq!(
            (
                seen.errors[0].freedom,
                &seen.errors[1..],
                seen.deciding(0.95)
            ),
            (9.0, &[by_round; 2][..], by_round)
        );
        assert_eq!(
            mean(&values[..40], &rounds[..40]).unwrap().errors.len(),
            2,
            "four rounds are too few"
        );
    }

    #[test]
    fn a_rate_in_slices_by_hand() {
        // 240 s, requests of 40 s: six slices of 40 s, of 40 and 80 in turn, evenly within.
        let bins = (0..240).map(|at| f64::from(1 + at / 40 % 2)).collect();
        let seen = rate(
            &[Arrivals {
                seconds: 240.0,
                bins,
            }],
            40.0,
        )
        .unwrap();
        assert_eq!((seen.value, seen.errors[0].freedom), (1.5, 5.0));
        // Six squares of 20, times 6 / 5, the root over 240 s; nothing strays within the slices.
        assert!(
            (seen.errors[0].size - 2880f64.sqrt() / 240.0).abs() < 1e-12,
            "{seen:?}"
        );
        assert_eq!(
            rate(
                &[Arrivals {
                    seconds: 0.0,
                    bins: vec![0.0; BINS]
                }],
                1.0
            ),
            None
        );
        let none = rate(
            &[Arrivals {
                seconds: 9.0,
                bins: vec![0.0; BINS],
            }],
            1.0,
        )
        .unwrap();
        assert_eq!(none.ends(0.95), (0.0, 0.0));
    }

    #[test]
    fn waves_that_fill_slices_leave_the_variance_of_the_window_ends() {
        // Five waves of 16, each all at once.
        let bins = (0..240)
            .map(|at| if at % 48 == 47 { 16.0 } else { 0.0 })
            .collect();
        let seen = rate(&[Arrivals { seconds: 5.0, bins }], 1.0).unwrap();
        // The count strays evenly over 16 / 48 · (0 … 47): a variance of (48² − 1) / 12 / 9.
        let known = (2.0 * 5.0 / 5.0 * (48.0f64.powi(2) - 1.0) / 12.0 / 9.0).sqrt() / 5.0;
        assert!(
            (seen.value - 16.0).abs() < 1e-12 && (seen.errors[0].size - known).abs() < 1e-12,
            "{seen:?} {known}"
        );
    }

    #[test]
    fn slices_are_no_shorter_than_a_request() {
        assert_eq!(
            [0.0, 1.0, 5.0, 7.0, 11.0, 30.0, 1e9].map(|request| slices(100.0, request)),
            [20, 20, 20, 12, 8, 5, 5]
        );
    }

    #[test]
    fn bounds_have_the_claimed_coverage_for_correlated_values() {
        // An autoregression of 0.8: 400 values say as much as 44 independent ones.
        let mut rng = ChaCha8Rng::seed_from_u64(3);
        let mut normal = || (0..12).map(|_| rng.random_range(0.0..1.0)).sum::<f64>() - 6.0;
        let (mut low, mut high) = (0, 0);
        for _ in 0..400 {
            let mut last: f64 = normal();
            let values = units((0..400).map(|_| {
                last = 0.8 * last + 0.6 * normal();
                100.0 + last
            }));
            let ends = mean(&values, &[0; 400]).unwrap().ends(0.95);
            low += u32::from(ends.0 > 100.0);
            high += u32::from(ends.1 < 100.0);
        }
        // Nominally 20 each; three standard errors make it 33.
        assert!(
            (4..=33).contains(&low) && (4..=33).contains(&high),
            "{low} {high} of 400"
        );
    }
}
