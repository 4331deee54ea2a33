//! Do two series that are observed together both grow, however they wobble? So a queue that only fills is told from a busy one.
//!
//! Observations are averaged into bins of equally many, and two bins become one whenever there are [`BINS`] of them. Each time
//! the younger half of the bins is looked at: windows from N/2 to N observations, N doubling, none of which overlap. Over a
//! window the slope against time is that of least squares, its standard error that of Newey and West ("A simple, positive
//! semi-definite, heteroskedasticity and autocorrelation consistent covariance matrix", Econometrica 55, 1987), since what
//! stands in a queue now stood there a moment ago. Both slopes must be above 0 by [`SURE`] standard errors, by so much that
//! what is sure of each series' growth in the window is [`LEAST_GROWTH`] of its level, in two windows one after the other.
//!
//! Why so: with N doubling there are at most about 20 looks, for which Bonferroni asks 3.3 standard errors at 1 % in all; a
//! quarter of the window as lag is known to give a standard error that is too small, hence 4. A busy stable queue forgets
//! within 1/(1 − √ρ)² requests (90 at a load of ρ = 80 %), so it may climb through a whole window of a few hundred, and does so
//! in about one run of twelve; but hardly through the next one too, which is twice as long. One that only fills does so in all.

/// Bins at which there is a look.
const BINS: usize = 64;
/// Observations in a bin in the beginning.
const FIRST: u64 = 4;
/// Standard errors.
const SURE: f64 = 4.0;
/// What is sure of the growth over a window, as a share of the mean level in it.
const LEAST_GROWTH: f64 = 0.1;

/// Sums over the observations of a bin: time, and the two series.
#[derive(Clone, Copy, Debug, Default)]
struct Bin {
    n: u64,
    sums: [f64; 3],
}

impl Bin {
    fn and(self, other: Bin) -> Bin {
        let [a, b] = [self.sums, other.sums];
        Bin { n: self.n + other.n, sums: [a[0] + b[0], a[1] + b[1], a[2] + b[2]] }
    }

    fn mean(&self, which: usize) -> f64 {
        self.sums.get(which).copied().unwrap_or_default() / self.n.max(1) as f64
    }
}

/// Growth of both series.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Growth {
    /// The first instant of the two windows in which it was seen.
    pub from: f64,
    /// Slopes of both series per unit of time, over the last window.
    pub slopes: [f64; 2],
}

/// A watch over two series.
#[derive(Clone, Debug)]
pub struct Drift {
    full: Vec<Bin>,
    open: Bin,
    size: u64,
    /// Where the window before began, if both grew in it.
    grew_from: Option<f64>,
}

impl Default for Drift {
    fn default() -> Drift {
        Drift { full: Vec::with_capacity(BINS), open: Bin::default(), size: FIRST, grew_from: None }
    }
}

impl Drift {
    /// Takes in an observation of both series at an instant; their growth, once it is sure.
    pub fn take(&mut self, at: f64, series: [f64; 2]) -> Option<Growth> {
        self.open = self.open.and(Bin { n: 1, sums: [at, series[0], series[1]] });
        if self.open.n < self.size {
            return None;
        }
        self.full.push(std::mem::take(&mut self.open));
        if self.full.len() < BINS {
            return None;
        }
        let slopes = self.full.get(BINS / 2..).and_then(|window| Some([growing(window, 1)?, growing(window, 2)?]));
        let began = self.full.get(BINS / 2).map(|bin| bin.mean(0));
        let seen = self.grew_from.zip(slopes).map(|(from, slopes)| Growth { from, slopes });
        self.grew_from = began.filter(|_| slopes.is_some());
        self.full = self.full.chunks(2).filter_map(|pair| pair.iter().copied().reduce(Bin::and)).collect();
        self.size *= 2;
        seen
    }
}

/// The slope of a series over these bins, where it is surely above 0.
fn growing(bins: &[Bin], which: usize) -> Option<f64> {
    let n = bins.len() as f64;
    let middle = |of: usize| bins.iter().map(|bin| bin.mean(of)).sum::<f64>() / n;
    let (time, level) = (middle(0), middle(which));
    let spread: f64 = bins.iter().map(|bin| (bin.mean(0) - time).powi(2)).sum();
    let slope = bins.iter().map(|bin| (bin.mean(0) - time) * (bin.mean(which) - level)).sum::<f64>() / spread;
    let score = |bin: &Bin| (bin.mean(0) - time) * (bin.mean(which) - level - slope * (bin.mean(0) - time));
    let scores: Vec<f64> = bins.iter().map(score).collect();
    let lags = bins.len() / 4;
    let at = |lag: usize| scores.iter().zip(scores.iter().skip(lag)).map(|(a, b)| a * b).sum::<f64>();
    let weighed = |lag: usize| 2.0 * (1.0 - lag as f64 / (lags + 1) as f64) * at(lag);
    let variance = at(0) + (1..=lags).map(weighed).sum::<f64>();
    let error = (variance.max(0.0) * n / (n - 2.0)).sqrt() / spread;
    let length = bins.last()?.mean(0) - bins.first()?.mean(0);
    // A comparison with what is no number is false.
    ((slope - SURE * error) * length > LEAST_GROWTH * level.abs()).then_some(slope)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;
    use std::cmp::Reverse;
    use std::collections::BinaryHeap;

    /// A queue with Poisson arrivals and so many servers of exponential service times of mean 1, empty at first, up to its
    /// `most`-th reply: after how many replies, and when, it was found to only fill.
    fn stop(servers: u32, load: f64, most: u64, seed: u64) -> Option<(u64, Growth)> {
        let (mut rng, mut drift) = (ChaCha8Rng::seed_from_u64(seed), Drift::default());
        let mut wait = |mean: f64| -mean * (1.0 - rng.random::<f64>()).ln();
        let whole = |time: f64| (time * 1e9) as u64;
        let mut free: BinaryHeap<Reverse<u64>> = (0..servers).map(|_| Reverse(0)).collect();
        let (mut ends, mut arrival): (BinaryHeap<Reverse<(u64, u64)>>, f64) = (BinaryHeap::new(), 0.0);
        for reply in 1..=most {
            while ends.peek().is_none_or(|Reverse((end, _))| *end > whole(arrival)) {
                let start = free.pop().unwrap().0.max(whole(arrival));
                let end = start + whole(wait(1.0));
                free.push(Reverse(end));
                ends.push(Reverse((end, start - whole(arrival))));
                arrival += wait(1.0 / (load * f64::from(servers)));
            }
            let Reverse((end, waited)) = ends.pop().unwrap();
            if let Some(growth) = drift.take(end as f64 / 1e9, [ends.len() as f64, waited as f64 / 1e9]) {
                return Some((reply, growth));
            }
        }
        None
    }

    #[test]
    fn a_busy_server_is_hardly_ever_taken_for_one_that_falls_behind() {
        let stops: Vec<usize> =
            [1, 8, 32].map(|servers| (0..300).filter_map(|seed| stop(servers, 0.8, 2048, seed)).count()).into();
        assert!(stops.iter().sum::<usize>() <= 9, "at a load of 80 %, of 300 runs each: {stops:?}");
    }

    #[test]
    fn one_that_falls_behind_is_found_within_a_bounded_number_of_replies() {
        for servers in [1, 8, 32] {
            let mut replies: Vec<u64> = (0..50).filter_map(|seed| Some(stop(servers, 1.2, 8192, seed)?.0)).collect();
            replies.sort_unstable();
            assert_eq!(replies.len(), 50, "every overloaded run is stopped");
            assert!(replies[25] <= 1024 && replies[44] <= 2048, "{replies:?}");
        }
    }

    #[test]
    fn growth_says_since_when_and_how_fast() {
        let (mut drift, noise) = (Drift::default(), |at: u64| (at * 7 % 5) as f64 / 100.0);
        let grown = (1..=512).find_map(|at| drift.take(at as f64, [10.0 + at as f64 + noise(at), 2.0 * at as f64 - noise(at)]));
        let Growth { from, slopes } = grown.unwrap();
        // The window before the last began with the 33rd of 64 bins of 4.
        assert_eq!(from, 130.5);
        assert!((slopes[0] - 1.0).abs() < 1e-3 && (slopes[1] - 2.0).abs() < 1e-3, "{slopes:?}");
    }

    #[test]
    fn one_series_that_grows_is_not_enough_and_a_flat_one_never_is() {
        let run = |second: fn(u64) -> f64| {
            let mut drift = Drift::default();
            (1..=4096).find_map(|at| drift.take(at as f64, [at as f64, second(at)]))
        };
        assert_eq!((run(|_| 5.0), run(|_| 0.0), run(|at| -(at as f64)), run(|_| f64::NAN)), (None, None, None, None));
        assert!(run(|at| at as f64).is_some());
    }
}
