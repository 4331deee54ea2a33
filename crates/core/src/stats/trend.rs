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
mod tests;
