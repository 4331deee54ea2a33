//! Trends over time: the test of Mann and Kendall over one series or several ([`mann_kendall`]), a robust line
//! through points ([`fit_line`]), joint growth of two series ([`JointTrend`]), and the knee of a curve ([`knee()`]).
//!
//! Mann, "Nonparametric tests against trend", Econometrica 13 (1945); Kendall, "Rank correlation methods" (1975).
//! Several series, compared only within themselves: Hirsch, Slack and Smith, "Techniques of trend analysis for
//! monthly water quality data", Water Resources Research 18 (1982). Slope: Sen, Journal of the American Statistical
//! Association 63 (1968).

use crate::stats::distributions::probability;
use crate::stats::quantile::{Method, quantile, sort};

/// Number of pairs up to which the exact distribution of the statistic is used; above, the normal approximation.
const EXACT_PAIRS: usize = 500;

/// The trend of one or several series.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Trend {
    /// Rising pairs minus falling pairs.
    pub score: i64,
    /// Two-sided p-value of the score if the order of the values is random.
    pub p_value: f64,
    /// The median slope over all pairs within a series, per step.
    pub slope: f64,
}

/// The common trend of series of independent values in time order. None if no series has two values.
pub fn mann_kendall(series: &[Vec<f64>]) -> Option<Trend> {
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
    let p_value = if slopes.len() <= EXACT_PAIRS && !tied {
        exact(series, score)
    } else {
        normal(series, score)
    };
    sort(&mut slopes);
    Some(Trend {
        score,
        p_value,
        slope: quantile(&slopes, 0.5, Method::Averaged)?,
    })
}

/// The exact p-value. The number of falling pairs in a random order has the generating function ∏ (1 + x + … + xᵏ⁻¹)
/// ÷ k, over k = 2..n, for each series.
fn exact(series: &[Vec<f64>], score: i64) -> f64 {
    let mut chances = vec![1.0];
    for k in series.iter().flat_map(|own| 2..=own.len()) {
        let mut sum = 0.0;
        let grown = (0..chances.len() + k - 1).map(|place| {
            sum += chances.get(place).copied().unwrap_or(0.0);
            sum -= place
                .checked_sub(k)
                .and_then(|gone| chances.get(gone))
                .copied()
                .unwrap_or(0.0);
            sum / k as f64
        });
        chances = grown.collect();
    }
    let pairs = chances.len() as i64 - 1;
    let far = |falling: i64| (pairs - 2 * falling).abs() >= score.abs();
    let tails = (0..)
        .zip(&chances)
        .filter(|(falling, _)| far(*falling))
        .map(|(_, chance)| chance);
    tails.sum::<f64>().clamp(0.0, 1.0)
}

/// The normal approximation, with Kendall's variance for ties and continuity correction.
fn normal(series: &[Vec<f64>], score: i64) -> f64 {
    let variance: f64 = series.iter().map(|own| variance(own)).sum();
    let off = (score.abs() - 1).max(0) as f64;
    if variance > 0.0 {
        (2.0 * probability(-off / variance.sqrt())).min(1.0)
    } else {
        1.0
    }
}

fn variance(own: &[f64]) -> f64 {
    let term = |n: usize| (n * n.saturating_sub(1) * (2 * n + 5)) as f64;
    let mut sorted = own.to_vec();
    sort(&mut sorted);
    let ties: f64 = sorted
        .chunk_by(|a, b| a == b)
        .map(|tied| term(tied.len()))
        .sum();
    (term(own.len()) - ties) / 18.0
}

/// The increase of the mean wait (milliseconds) from the second to the last third of an open loop, in units of its
/// random variation; None for fewer than three waits. If `rate` exceeds the server's capacity, each request waits
/// `1/capacity − 1/rate` longer than the previous one. In a stable queue, random arrivals change the wait by at most
/// about `√k / rate` over `k` requests.
pub fn wait_growth(waits: &[f64], rate: f64) -> Option<f64> {
    let third = waits.len() / 3;
    let mean = |waits: &[f64]| waits.iter().sum::<f64>() / 1e3 / waits.len() as f64;
    let (middle, last) = (
        waits.get(third..2 * third)?,
        waits.get(2 * third..3 * third)?,
    );
    (third > 0).then(|| (mean(last) - mean(middle)) * rate / (third as f64).sqrt())
}

/// Maximum number of points; all pairs yield 20 000 slopes.
const PAIRED: usize = 200;

/// A straight line through points with outliers (Sen, "Estimates of the regression coefficient based on Kendall's
/// tau", Journal of the American Statistical Association 63, 1968).
///
/// `(slope, value at 0)`: the median slope over all pairs of at most 200 evenly selected points, and the median
/// intercept. None if no two points differ in their first coordinate.
pub fn fit_line(points: &[(f64, f64)]) -> Option<(f64, f64)> {
    let step = points.len().div_ceil(PAIRED).max(1);
    let some: Vec<(f64, f64)> = points.iter().copied().step_by(step).collect();
    let pairs = some
        .iter()
        .enumerate()
        .flat_map(|(at, a)| some.iter().skip(at + 1).map(move |b| (a, b)));
    let slope = lower_median(
        pairs
            .filter(|(a, b)| a.0 != b.0)
            .map(|(a, b)| (b.1 - a.1) / (b.0 - a.0)),
    )?;
    Some((
        slope,
        lower_median(some.iter().map(|point| point.1 - slope * point.0))?,
    ))
}

fn lower_median(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.collect();
    sort(&mut values);
    quantile(&values, 0.5, Method::NearestRank)
}

// Joint growth of two noisy series, which distinguishes a growing queue from a busy stable one.
//
// Observations are averaged in bins of equal size, and bins are merged in pairs whenever there are [`BINS`] of them.
// Each time, the second half of the bins is tested: windows from N/2 to N observations, N doubling, without overlap.
// Over a window the slope against time is that of least squares, its standard error that of Newey and West ("A
// simple, positive semi-definite, heteroskedasticity and autocorrelation consistent covariance matrix", Econometrica
// 55, 1987), because queue lengths are autocorrelated. In two consecutive windows, both slopes must exceed 0 by
// [`SURE`] standard errors, and the lower bound of each growth over the window must be at least [`LEAST_GROWTH`] of
// the series' level.
//
// With N doubling there are at most about 20 tests, for which Bonferroni requires 3.3 standard errors at 1 % in
// total; a lag of a quarter of the window underestimates the standard error, hence 4. The correlation time of a
// stable queue is 1/(1 − √ρ)² requests (90 at a load of ρ = 80 %), so it may grow over one window of a few hundred
// requests, in about one run of twelve, but rarely over the next window too, which is twice as long. An unstable
// queue grows in all windows.

/// Number of bins at which a window is tested.
const BINS: usize = 64;
/// Initial number of observations per bin.
const FIRST: u64 = 4;
/// Standard errors.
const SURE: f64 = 4.0;
/// Minimum of the lower bound of the growth over a window, relative to the mean level.
const LEAST_GROWTH: f64 = 0.1;

/// Sums over the observations of a bin: time, first series, second series.
#[derive(Clone, Copy, Debug, Default)]
struct Bin {
    n: u64,
    sums: [f64; 3],
}

impl Bin {
    fn merge(self, other: Bin) -> Bin {
        let [a, b] = [self.sums, other.sums];
        Bin {
            n: self.n + other.n,
            sums: [a[0] + b[0], a[1] + b[1], a[2] + b[2]],
        }
    }

    fn mean(&self, which: usize) -> f64 {
        self.sums.get(which).copied().unwrap_or_default() / self.n.max(1) as f64
    }
}

/// Growth of both series.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Growth {
    /// Start of the two windows in which it was detected.
    pub from: f64,
    /// Slopes of both series per unit of time, over the last window.
    pub slopes: [f64; 2],
}

/// A detector of joint growth of two series.
#[derive(Clone, Debug)]
pub struct JointTrend {
    full: Vec<Bin>,
    open: Bin,
    size: u64,
    /// Start of the previous window, if both series grew in it.
    grew_from: Option<f64>,
}

impl Default for JointTrend {
    fn default() -> JointTrend {
        JointTrend {
            full: Vec::with_capacity(BINS),
            open: Bin::default(),
            size: FIRST,
            grew_from: None,
        }
    }
}

impl JointTrend {
    /// Adds an observation of both series; returns their growth once it is detected.
    pub fn observe(&mut self, at: f64, series: [f64; 2]) -> Option<Growth> {
        self.open = self.open.merge(Bin {
            n: 1,
            sums: [at, series[0], series[1]],
        });
        if self.open.n < self.size {
            return None;
        }
        self.full.push(std::mem::take(&mut self.open));
        if self.full.len() < BINS {
            return None;
        }
        let slopes = self
            .full
            .get(BINS / 2..)
            .and_then(|window| Some([growing(window, 1)?, growing(window, 2)?]));
        let began = self.full.get(BINS / 2).map(|bin| bin.mean(0));
        let seen = self
            .grew_from
            .zip(slopes)
            .map(|(from, slopes)| Growth { from, slopes });
        self.grew_from = began.filter(|_| slopes.is_some());
        self.full = self
            .full
            .chunks(2)
            .filter_map(|pair| pair.iter().copied().reduce(Bin::merge))
            .collect();
        self.size *= 2;
        seen
    }
}

/// The slope of a series over these bins, if it is significantly above 0.
fn growing(bins: &[Bin], which: usize) -> Option<f64> {
    let n = bins.len() as f64;
    let middle = |of: usize| bins.iter().map(|bin| bin.mean(of)).sum::<f64>() / n;
    let (time, level) = (middle(0), middle(which));
    let spread: f64 = bins.iter().map(|bin| (bin.mean(0) - time).powi(2)).sum();
    let slope = bins
        .iter()
        .map(|bin| (bin.mean(0) - time) * (bin.mean(which) - level))
        .sum::<f64>()
        / spread;
    let score =
        |bin: &Bin| (bin.mean(0) - time) * (bin.mean(which) - level - slope * (bin.mean(0) - time));
    let scores: Vec<f64> = bins.iter().map(score).collect();
    let lags = bins.len() / 4;
    let at = |lag: usize| {
        scores
            .iter()
            .zip(scores.iter().skip(lag))
            .map(|(a, b)| a * b)
            .sum::<f64>()
    };
    let weighed = |lag: usize| 2.0 * (1.0 - lag as f64 / (lags + 1) as f64) * at(lag);
    let variance = at(0) + (1..=lags).map(weighed).sum::<f64>();
    let error = (variance.max(0.0) * n / (n - 2.0)).sqrt() / spread;
    let length = bins.last()?.mean(0) - bins.first()?.mean(0);
    // False for NaN.
    ((slope - SURE * error) * length > LEAST_GROWTH * level.abs()).then_some(slope)
}

/// Minimum number of points that can show a knee.
const FEWEST: usize = 4;

/// The index of the knee of a convex rising curve, with ascending first coordinates: the point with the largest
/// distance below the chord from the first to the last point, both axes scaled to 0..1. None with fewer than four
/// points, if the last is not higher than the first, or if the distance is at most the mean step of the first
/// coordinate, which is nearly a straight line. Satopää, Albrecht, Irwin and Raghavan, "Finding a 'Kneedle' in a
/// Haystack", ICDCS Workshops (2011), without smoothing, sensitivity S = 1.
pub fn knee(points: &[(f64, f64)]) -> Option<usize> {
    let (first, last) = (points.first()?, points.last()?);
    let (width, height) = (last.0 - first.0, last.1 - first.1);
    let finite = points
        .iter()
        .all(|point| point.0.is_finite() && point.1.is_finite());
    if points.len() < FEWEST || !finite || width <= 0.0 || height <= 0.0 {
        return None;
    }
    let depth = |point: &(f64, f64)| (point.0 - first.0) / width - (point.1 - first.1) / height;
    let deepest = points
        .iter()
        .map(depth)
        .enumerate()
        .max_by(|a, b| a.1.total_cmp(&b.1))?;
    (deepest.1 > 1.0 / (points.len() - 1) as f64).then_some(deepest.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;
    use std::cmp::Reverse;
    use std::collections::BinaryHeap;

    fn of(values: &[f64]) -> Trend {
        mann_kendall(&[values.to_vec()]).unwrap()
    }

    fn close(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-12
    }

    /// Beside scipy.stats.kendalltau(range(n), values, method="exact") and scipy.stats.theilslopes.
    #[test]
    fn few_values_have_the_exact_probability() {
        let rising = of(&[1.0, 2.0, 3.0, 4.0, 5.0]);
        assert!(
            rising.score == 10 && close(rising.p_value, 2.0 / 120.0) && rising.slope == 1.0,
            "{rising:?}"
        );
        assert!(close(of(&[3.0, 2.0, 1.0]).p_value, 1.0 / 3.0));
        let mixed = of(&[3.0, 1.0, 4.0, 1.5, 5.0, 9.0, 2.6, 5.3]);
        assert!(
            mixed.score == 12 && close(mixed.p_value, 0.178_869_047_619_047_62),
            "{mixed:?}"
        );
        assert!(close(mixed.slope, 0.433_333_333_333_333_33));
        assert_eq!(
            (mann_kendall(&[]), mann_kendall(&[vec![1.0]])),
            (None, None)
        );
    }

    /// Beside a count by hand of the variance: 10 values, two tied pairs and a triple.
    #[test]
    fn ties_take_the_normal_law_with_less_variance() {
        let tied = of(&[1.0, 1.0, 2.0, 3.0, 3.0, 3.0, 4.0, 5.0, 6.0, 6.0]);
        assert!(close(
            variance(&[1.0, 1.0, 2.0, 3.0, 3.0, 3.0, 4.0, 5.0, 6.0, 6.0]),
            (2250.0 - 18.0 - 66.0 - 18.0) / 18.0
        ));
        assert_eq!(tied.score, 40);
        assert!(
            (tied.p_value - 2.0 * probability(-39.0 / (2148.0f64 / 18.0).sqrt())).abs() < 1e-12
        );
        assert_eq!(of(&[7.0; 6]).p_value, 1.0);
    }

    #[test]
    fn series_are_compared_with_themselves_alone() {
        let both = mann_kendall(&[vec![10.0, 11.0, 12.0], vec![1.0, 2.0, 3.0]]).unwrap();
        assert!(
            both.score == 6 && close(both.p_value, 2.0 / 36.0) && both.slope == 1.0,
            "{both:?}"
        );
    }

    #[test]
    fn chance_is_taken_for_a_trend_as_often_as_it_says() {
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        let mut alarms = |n: usize, series: usize, level: f64| {
            let mut one = || (0..n).map(|_| rng.random::<f64>()).collect::<Vec<f64>>();
            let mut draw = || {
                mann_kendall(&(0..series).map(|_| one()).collect::<Vec<_>>())
                    .unwrap()
                    .p_value
                    <= level + 1e-12
            };
            (0..2000).filter(|_| draw()).count()
        };
        // 1.67 % of 5 values, 5 % of 3 series of 40.
        let seen = [alarms(5, 1, 1.0 / 60.0), alarms(40, 3, 0.05)];
        assert!(
            (20..=50).contains(&seen[0]) && (75..=130).contains(&seen[1]),
            "{seen:?} of 2000"
        );
    }

    #[test]
    fn a_few_wild_points_do_not_bend_the_line() {
        let mut points: Vec<(f64, f64)> = (0..1000)
            .map(|k| (f64::from(k), 5.0 + 0.5 * f64::from(k)))
            .collect();
        points
            .iter_mut()
            .step_by(10)
            .for_each(|point| point.1 += 1e6);
        points.rotate_left(7);
        let (slope, start) = fit_line(&points).unwrap();
        assert!(
            (slope - 0.5).abs() < 1e-9 && (start - 5.0).abs() < 1e-9,
            "{slope} {start}"
        );
    }

    #[test]
    fn equal_places_have_no_slope() {
        assert_eq!(fit_line(&[(512.0, 1.0), (512.0, 9.0)]), None);
        assert_eq!((fit_line(&[]), fit_line(&[(1.0, 1.0)])), (None, None));
    }

    /// A queue with Poisson arrivals and several servers with exponential service times of mean 1, empty at first, up
    /// to its `most`-th reply: after how many replies, and when, it was found to only fill.
    fn stop(servers: u32, load: f64, most: u64, seed: u64) -> Option<(u64, Growth)> {
        let (mut rng, mut drift) = (ChaCha8Rng::seed_from_u64(seed), JointTrend::default());
        let mut wait = |mean: f64| -mean * (1.0 - rng.random::<f64>()).ln();
        let whole = |time: f64| (time * 1e9) as u64;
        let mut free: BinaryHeap<Reverse<u64>> = (0..servers).map(|_| Reverse(0)).collect();
        let (mut ends, mut arrival): (BinaryHeap<Reverse<(u64, u64)>>, f64) =
            (BinaryHeap::new(), 0.0);
        for reply in 1..=most {
            while ends
                .peek()
                .is_none_or(|Reverse((end, _))| *end > whole(arrival))
            {
                let start = free.pop().unwrap().0.max(whole(arrival));
                let end = start + whole(wait(1.0));
                free.push(Reverse(end));
                ends.push(Reverse((end, start - whole(arrival))));
                arrival += wait(1.0 / (load * f64::from(servers)));
            }
            let Reverse((end, waited)) = ends.pop().unwrap();
            if let Some(growth) =
                drift.observe(end as f64 / 1e9, [ends.len() as f64, waited as f64 / 1e9])
            {
                return Some((reply, growth));
            }
        }
        None
    }

    #[test]
    fn a_busy_server_is_hardly_ever_taken_for_one_that_falls_behind() {
        let stops: Vec<usize> = [1, 8, 32]
            .map(|servers| {
                (0..300)
                    .filter_map(|seed| stop(servers, 0.8, 2048, seed))
                    .count()
            })
            .into();
        assert!(
            stops.iter().sum::<usize>() <= 9,
            "at a load of 80 %, of 300 runs each: {stops:?}"
        );
    }

    #[test]
    fn one_that_falls_behind_is_found_within_a_bounded_number_of_replies() {
        for servers in [1, 8, 32] {
            let mut replies: Vec<u64> = (0..50)
                .filter_map(|seed| Some(stop(servers, 1.2, 8192, seed)?.0))
                .collect();
            replies.sort_unstable();
            assert_eq!(replies.len(), 50, "every overloaded run is stopped");
            assert!(replies[25] <= 1024 && replies[44] <= 2048, "{replies:?}");
        }
    }

    #[test]
    fn growth_has_a_start_and_slopes() {
        let (mut drift, noise) = (JointTrend::default(), |at: u64| (at * 7 % 5) as f64 / 100.0);
        let grown = (1..=512).find_map(|at| {
            drift.observe(
                at as f64,
                [10.0 + at as f64 + noise(at), 2.0 * at as f64 - noise(at)],
            )
        });
        let Growth { from, slopes } = grown.unwrap();
        // The window before the last began with the 33rd of 64 bins of 4.
        assert_eq!(from, 130.5);
        assert!(
            (slopes[0] - 1.0).abs() < 1e-3 && (slopes[1] - 2.0).abs() < 1e-3,
            "{slopes:?}"
        );
    }

    #[test]
    fn one_series_that_grows_is_not_enough_and_a_flat_one_never_is() {
        let run = |second: fn(u64) -> f64| {
            let mut drift = JointTrend::default();
            (1..=4096).find_map(|at| drift.observe(at as f64, [at as f64, second(at)]))
        };
        assert_eq!(
            (
                run(|_| 5.0),
                run(|_| 0.0),
                run(|at| -(at as f64)),
                run(|_| f64::NAN)
            ),
            (None, None, None, None)
        );
        assert!(run(|at| at as f64).is_some());
    }

    #[test]
    fn the_knee_is_where_the_curve_turns_up() {
        assert_eq!(
            knee(&[(0.0, 1.0), (1.0, 1.0), (2.0, 1.0), (3.0, 1.2), (4.0, 9.0)]),
            Some(3)
        );
        // The queue of a single server at 10 to 90 % of its capacity: deepest where the slope is that of the chord.
        let queue: Vec<(f64, f64)> = (1..=9)
            .map(|k| f64::from(k) / 10.0)
            .map(|busy| (busy, 1.0 / (1.0 - busy)))
            .collect();
        assert_eq!(knee(&queue), Some(6));
    }

    #[test]
    fn other_curves_have_no_knee() {
        assert_eq!(
            knee(&[(0.0, 0.0), (1.0, 1.0), (2.0, 2.0), (3.0, 3.0), (4.0, 4.0)]),
            None
        );
        assert_eq!(
            knee(&[(0.0, 0.0), (1.0, 3.0), (2.0, 3.9), (3.0, 4.0)]),
            None,
            "it bends downwards"
        );
        assert_eq!(
            knee(&[(0.0, 1.0), (1.0, 1.0), (2.0, 9.0)]),
            None,
            "three points"
        );
        assert_eq!(
            knee(&[(0.0, 2.0), (1.0, 1.0), (2.0, 1.0), (3.0, 1.0)]),
            None,
            "it falls"
        );
        assert_eq!(
            knee(&[(0.0, 1.0), (1.0, f64::NAN), (2.0, 1.0), (3.0, 9.0)]),
            None
        );
        assert_eq!(knee(&[]), None);
    }
}
