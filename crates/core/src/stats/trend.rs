//! Does a series rise or fall with time? The test of Mann and Kendall, over one series or over several that are told apart.
//!
//! Mann, "Nonparametric tests against trend", Econometrica 13 (1945); Kendall, "Rank correlation methods" (1975). Several series,
//! each of which is only compared with itself: Hirsch, Slack and Smith, "Techniques of trend analysis for monthly water quality
//! data", Water Resources Research 18 (1982). Slope: Sen, Journal of the American Statistical Association 63 (1968).

use crate::stats::normal::probability;
use crate::stats::quantile::sort;

/// Pairs of values up to which the distribution of the statistic is counted out; of more it is normal.
const EXACT_PAIRS: usize = 500;

/// What a series does with time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Trend {
    /// Rising pairs minus falling pairs.
    pub score: i64,
    /// Two-sided probability of a score at least so far from 0 where the order of the values is mere chance.
    pub p_value: f64,
    /// The median of the slopes between all pairs of a series, per step.
    pub slope: f64,
}

/// The trend that is common to these series, whose values are independent and stand in the order of their time. None where no
/// series has two values.
pub fn test(series: &[Vec<f64>]) -> Option<Trend> {
    let (mut score, mut slopes) = (0i64, Vec::new());
    for own in series {
        for (place, early) in own.iter().enumerate() {
            for (step, late) in own.iter().skip(place + 1).enumerate() {
                score += i64::from(late > early) - i64::from(late < early);
                slopes.push((late - early) / (step + 1) as f64);
            }
        }
    }
    let tied = slopes.contains(&0.0);
    let p_value = if slopes.len() <= EXACT_PAIRS && !tied { exact(series, score) } else { normal(series, score) };
    sort(&mut slopes);
    Some(Trend { score, p_value, slope: median(&slopes)? })
}

/// The middle of ascending values, or the mean of the two in the middle.
fn median(sorted: &[f64]) -> Option<f64> {
    let at = |place: usize| sorted.get(place).copied();
    Some((at(sorted.len().checked_sub(1)? / 2)? + at(sorted.len() / 2)?) / 2.0)
}

/// By the number of orders with so many falling pairs: the product over k = 2..n of (1 + x + … + xᵏ⁻¹) ÷ k, for each series.
fn exact(series: &[Vec<f64>], score: i64) -> f64 {
    let mut chances = vec![1.0];
    for k in series.iter().flat_map(|own| 2..=own.len()) {
        let mut sum = 0.0;
        let grown = (0..chances.len() + k - 1).map(|place| {
            sum += chances.get(place).copied().unwrap_or(0.0);
            sum -= place.checked_sub(k).and_then(|gone| chances.get(gone)).copied().unwrap_or(0.0);
            sum / k as f64
        });
        chances = grown.collect();
    }
    let pairs = chances.len() as i64 - 1;
    let far = |falling: i64| (pairs - 2 * falling).abs() >= score.abs();
    let tails = (0..).zip(&chances).filter(|(falling, _)| far(*falling)).map(|(_, chance)| chance);
    tails.sum::<f64>().clamp(0.0, 1.0)
}

/// By the normal law, with the variance of Kendall for ties and half a pair of continuity.
fn normal(series: &[Vec<f64>], score: i64) -> f64 {
    let variance: f64 = series.iter().map(|own| variance(own)).sum();
    let off = (score.abs() - 1).max(0) as f64;
    if variance > 0.0 { (2.0 * probability(-off / variance.sqrt())).min(1.0) } else { 1.0 }
}

fn variance(own: &[f64]) -> f64 {
    let term = |n: usize| (n * n.saturating_sub(1) * (2 * n + 5)) as f64;
    let mut sorted = own.to_vec();
    sort(&mut sorted);
    let ties: f64 = sorted.chunk_by(|a, b| a == b).map(|tied| term(tied.len())).sum();
    (term(own.len()) - ties) / 18.0
}

/// By how many scores the waits of an open loop, in milliseconds, got slower from its second third to its last; None of fewer than
/// three. Where `rate` arrivals per second outrun a server, each request waits `1/capacity − 1/rate` longer than the one before it,
/// while the arrivals alone let the wait of a stable queue wander by `√k / rate` at the most over `k` of them.
pub fn slower(waits: &[f64], rate: f64) -> Option<f64> {
    let third = waits.len() / 3;
    let mean = |waits: &[f64]| waits.iter().sum::<f64>() / 1e3 / waits.len() as f64;
    let (middle, last) = (waits.get(third..2 * third)?, waits.get(2 * third..3 * third)?);
    (third > 0).then(|| (mean(last) - mean(middle)) * rate / (third as f64).sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    fn of(values: &[f64]) -> Trend {
        test(&[values.to_vec()]).unwrap()
    }

    fn close(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-12
    }

    /// Beside scipy.stats.kendalltau(range(n), values, method="exact") and scipy.stats.theilslopes.
    #[test]
    fn few_values_have_the_exact_probability() {
        let rising = of(&[1.0, 2.0, 3.0, 4.0, 5.0]);
        assert!(rising.score == 10 && close(rising.p_value, 2.0 / 120.0) && rising.slope == 1.0, "{rising:?}");
        assert!(close(of(&[3.0, 2.0, 1.0]).p_value, 1.0 / 3.0));
        let mixed = of(&[3.0, 1.0, 4.0, 1.5, 5.0, 9.0, 2.6, 5.3]);
        assert!(mixed.score == 12 && close(mixed.p_value, 0.178_869_047_619_047_62), "{mixed:?}");
        assert!(close(mixed.slope, 0.433_333_333_333_333_33));
        assert_eq!((test(&[]), test(&[vec![1.0]])), (None, None));
    }

    /// Beside a count by hand of the variance: 10 values, two tied pairs and a triple.
    #[test]
    fn ties_take_the_normal_law_with_less_variance() {
        let tied = of(&[1.0, 1.0, 2.0, 3.0, 3.0, 3.0, 4.0, 5.0, 6.0, 6.0]);
        assert!(close(variance(&[1.0, 1.0, 2.0, 3.0, 3.0, 3.0, 4.0, 5.0, 6.0, 6.0]), (2250.0 - 18.0 - 66.0 - 18.0) / 18.0));
        assert_eq!(tied.score, 40);
        assert!((tied.p_value - 2.0 * probability(-39.0 / (2148.0f64 / 18.0).sqrt())).abs() < 1e-12);
        assert_eq!(of(&[7.0; 6]).p_value, 1.0);
    }

    #[test]
    fn series_are_compared_with_themselves_alone() {
        let both = test(&[vec![10.0, 11.0, 12.0], vec![1.0, 2.0, 3.0]]).unwrap();
        assert!(both.score == 6 && close(both.p_value, 2.0 / 36.0) && both.slope == 1.0, "{both:?}");
    }

    #[test]
    fn chance_is_taken_for_a_trend_as_often_as_it_says() {
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        let mut alarms = |n: usize, series: usize, level: f64| {
            let mut one = || (0..n).map(|_| rng.random::<f64>()).collect::<Vec<f64>>();
            let mut draw = || test(&(0..series).map(|_| one()).collect::<Vec<_>>()).unwrap().p_value <= level + 1e-12;
            (0..2000).filter(|_| draw()).count()
        };
        // 1.67 % of 5 values, 5 % of 3 series of 40.
        let seen = [alarms(5, 1, 1.0 / 60.0), alarms(40, 3, 0.05)];
        assert!((20..=50).contains(&seen[0]) && (75..=130).contains(&seen[1]), "{seen:?} of 2000");
    }
}
