//! Two shares over the same items: which items only one side has.

use crate::stats::distributions::probability;
use crate::stats::share::{at_least, at_most};

/// Items below which the score test of a factor above 1 is not used.
const FEW: u64 = 30;

/// Items by which side has them. Two runs of one set of prompts have the items "the answer is right".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pairs {
    /// On both sides.
    pub both: u64,
    /// On the first side only.
    pub lost: u64,
    /// On the second side only.
    pub gained: u64,
    /// On no side.
    pub neither: u64,
}

impl Pairs {
    /// Adds an item.
    pub fn add(&mut self, first: bool, second: bool) {
        *match (first, second) {
            (true, true) => &mut self.both,
            (true, false) => &mut self.lost,
            (false, true) => &mut self.gained,
            (false, false) => &mut self.neither,
        } += 1;
    }

    /// Their number.
    pub fn len(&self) -> u64 {
        self.both + self.lost + self.gained + self.neither
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The one-sided p-value for "the second share is at least `factor` × the first one": small where it is below.
    /// For a factor of 1 it is exact: the binomial test of the items of one side only (McNemar, "Note on the sampling
    /// error of the difference between correlated proportions or percentages", Psychometrika 12, 1947). For others it
    /// is that of the score test with the estimates under the null hypothesis (Nam and Blackwelder, "Analysis of the
    /// ratio of marginal probabilities in a matched-pair setting", Statistics in Medicine 21, 2002).
    pub fn p_below(self, factor: f64) -> f64 {
        match factor == 1.0 {
            true => at_most((self.lost + self.gained) as f64, 0.5, self.gained as f64),
            false => {
                let score = self.score(factor).map_or(1.0, probability);
                score.max(self.p_of_changed(factor, at_least))
            }
        }
    }

    /// The same for "at most": small where the second share is above.
    pub fn p_above(self, factor: f64) -> f64 {
        match factor == 1.0 {
            true => at_most((self.lost + self.gained) as f64, 0.5, self.lost as f64),
            false => {
                let score = self.score(factor).map_or(1.0, |score| probability(-score));
                score.max(self.p_of_changed(factor, at_most))
            }
        }
    }

    /// The binomial test of the net loss among the items of the first side, each of which is lost with 1 − `factor`.
    /// It is exact where nothing is gained, and the score test is not where few items change. 0 for a factor above 1,
    /// and 1 for one with few items.
    fn p_of_changed(self, factor: f64, tail: fn(f64, f64, f64) -> f64) -> f64 {
        if factor > 1.0 {
            return f64::from(u8::from(self.len() < FEW));
        }
        let net = self.lost.saturating_sub(self.gained) as f64;
        tail((self.both + self.lost) as f64, 1.0 - factor, net)
    }

    /// Standard errors by which the second share is above `factor` × the first one. None without an item on either
    /// side.
    fn score(self, factor: f64) -> Option<f64> {
        let [both, lost, gained] = [self.both, self.lost, self.gained].map(|count| count as f64);
        let n = self.len() as f64;
        if both + lost + gained == 0.0 {
            return None;
        }
        let kept = 1.0 - factor;
        // The likelihood has its maximum under the null hypothesis at both ÷ (n + λ kept), lost ÷ (n − λ factor),
        // gained ÷ (n + λ), where λ is such that the shares are apart by the factor. The difference falls in λ.
        let share = |count: f64, weight: f64| if count == 0.0 { 0.0 } else { count / weight };
        let estimates = |lambda: f64| {
            [
                share(both, n + lambda * kept),
                share(lost, n - lambda * factor),
                share(gained, n + lambda),
            ]
        };
        let (mut low, mut high) = (-n, n / factor);
        if kept < 0.0 {
            high = high.min(n / -kept);
        }
        for _ in 0..200 {
            let lambda = (low + high) / 2.0;
            let [both, lost, gained] = estimates(lambda);
            match kept * both + gained - factor * lost > 0.0 {
                true => low = lambda,
                false => high = lambda,
            }
        }
        let [on_both, mut only_first, on_second] = estimates((low + high) / 2.0);
        if lost == 0.0 {
            only_first = ((kept * on_both + on_second) / factor).max(0.0);
        }
        let only_second = (factor * only_first - kept * on_both).max(0.0);
        let difference = (kept * both + gained - factor * lost) / n;
        let error = (factor * (only_first + only_second) / n).sqrt();
        (error > 0.0).then_some(difference / error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    fn pairs(both: u64, lost: u64, gained: u64, neither: u64) -> Pairs {
        Pairs {
            both,
            lost,
            gained,
            neither,
        }
    }

    #[test]
    fn the_exact_test_is_that_of_a_fair_coin() {
        // P[Binomial(5, 1/2) ≤ 0] = 1/32, P[Binomial(10, 1/2) ≤ 2] = 56/1024.
        assert!((pairs(90, 5, 0, 5).p_below(1.0) - 1.0 / 32.0).abs() < 1e-12);
        assert!((pairs(90, 2, 8, 5).p_above(1.0) - 56.0 / 1024.0).abs() < 1e-12);
        assert_eq!(pairs(90, 0, 0, 10).p_below(1.0), 1.0);
        assert_eq!(pairs(0, 0, 0, 10).p_below(0.9), 1.0);
        // Equal answers: 0.9 to the power of 25 is above 5 %, of 29 below.
        assert!((pairs(25, 0, 0, 5).p_above(0.9) - 0.9f64.powi(25)).abs() < 1e-9);
        assert!(pairs(28, 0, 0, 5).p_above(0.9) > 0.05 && pairs(29, 0, 0, 5).p_above(0.9) < 0.05);
    }

    #[test]
    fn the_score_test_approaches_mcnemars() {
        // At a factor of 1 the score is (gained − lost) ÷ √(gained + lost).
        let score = pairs(200, 30, 12, 58).score(1.0 - 1e-9).unwrap();
        assert!((score + 18.0 / 42f64.sqrt()).abs() < 1e-6, "{score}");
        // Shares that are apart by the factor exactly have the score 0: 0.9 × (70 + 20) = 70 + 11.
        assert!(pairs(70, 20, 11, 9).score(0.9).unwrap().abs() < 1e-9);
        // Nothing is lost, and 5 of 10 expected ones are gained: λ is −142.9, so that the error is 0.0108.
        let few = pairs(100, 0, 5, 195);
        assert!(
            (few.score(1.1).unwrap() + 1.54).abs() < 0.01,
            "{:?}",
            few.score(1.1)
        );
        let many = pairs(270, 0, 5, 25).score(1.1).unwrap();
        assert!(many.is_finite() && many < -1.0, "{many}");
    }

    /// How often the hypothesis at its edge is rejected at 5 %, and how often one of a further loss of `loss` points,
    /// of 4,000 pairs of runs: 90 % right at first, of which `change` more are lost and gained.
    fn rejected(n: u64, factor: f64, change: f64, loss: f64) -> [f64; 3] {
        let mut rng = ChaCha8Rng::seed_from_u64(n);
        let first = 0.9;
        let mut drawn = |loss: f64| {
            let gained = change;
            let lost = gained + first * (1.0 - factor) + loss;
            let mut pairs = Pairs::default();
            for _ in 0..n {
                let draw: f64 = rng.random();
                let (a, b) = match () {
                    () if draw < lost => (true, false),
                    () if draw < first => (true, true),
                    () if draw < first + gained => (false, true),
                    () => (false, false),
                };
                pairs.add(a, b);
            }
            pairs
        };
        let mut counts = [0.0; 3];
        for _ in 0..4000 {
            let edge = drawn(0.0);
            counts[0] += f64::from(u8::from(edge.p_below(factor) < 0.05));
            counts[1] += f64::from(u8::from(edge.p_above(factor) < 0.05));
            counts[2] += f64::from(u8::from(drawn(loss).p_below(factor) < 0.05));
        }
        counts.map(|count| count / 40.0)
    }

    #[test]
    fn a_true_hypothesis_is_rejected_as_often_as_stated_and_a_loss_is_seen() {
        for (n, factor) in [
            (100, 1.0),
            (300, 1.0),
            (300, 0.97),
            (1000, 0.97),
            (300, 0.9),
        ] {
            let [below, above, _] = rejected(n, factor, 0.02, 0.05);
            assert!(
                below <= 7.0 && above <= 7.0,
                "{n} {factor}: {below} {above}"
            );
        }
        // 300 prompts see a loss of 5 points: at once if few answers change, and in most runs if a tenth does.
        let seen = |factor, change| rejected(300, factor, change, 0.05)[2];
        assert!(seen(1.0, 0.01) > 95.0 && seen(1.0, 0.03) > 75.0 && seen(0.97, 0.01) > 75.0);
    }
}
