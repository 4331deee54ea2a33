//! Sequential tests for stopping early: is the share of requests that exceed a limit larger than allowed?
//!
//! For a share q over the allowed q₀, the likelihood ratio ∏ (q/q₀)^x ((1−q)/(1−q₀))^(1−x) of requests x (1: it
//! exceeded the limit) has an expectation of at most 1 at each step if the true share θ ≤ q₀: θ q/q₀ +
//! (1−θ)(1−q)/(1−q₀) increases with θ and is 1 at θ = q₀. Every mixture of such ratios over q > q₀ is then a
//! non-negative supermartingale that starts at 1, and by Ville's inequality ("Étude critique de la notion de
//! collectif", 1939) the probability that it ever reaches 1/α is at most α, however often it is evaluated. Such
//! mixtures go back to Robbins ("Statistical methods related to the law of the iterated logarithm", Annals of
//! Mathematical Statistics 41, 1970); see Ramdas, Grünwald, Vovk and Shafer ("Game-theoretic statistics and safe
//! anytime-valid inference", Statistical Science 38, 2023).
//!
//! Here q has the density of Beta(1, b) truncated to q₀ < q ≤ 1. The truncation makes the test one-sided; without it,
//! few requests over the limit would be evidence too. b is chosen so that the untruncated mean is q₀, which puts mass
//! on multiples of q₀. After k of n, with B the beta function and U the mass above q₀,
//!
//! ```text
//! ln E = ln B(1 + k, b + n − k) − ln B(1, b) + ln U(1 + k, b + n − k) − ln U(1, b) − k ln q₀ − (n − k) ln(1 − q₀)
//! ```
//!
//! This is for independent requests. If d correlated ones carry the information of one, the logarithm of the evidence
//! is d times too large, and E^(1/d) is compared with 1/α, where d is the design effect of the requests so far
//! ([`design`]).
//!
//! Requests of several processes arrive as sums of batches; see [`Sequential::observe_batch`].
//!
//! [`AlphaSpending`] tests at doubling sample sizes instead (alpha spending).

use crate::stats::design::{self, Unit};
use crate::stats::share::{at_least, at_most};
use statrs::function::gamma::ln_gamma;

/// A sequential test of one limit, updated with every request.
#[derive(Clone, Debug, PartialEq)]
pub struct Sequential {
    allowed: f64,
    least: u64,
    /// ln(1/α).
    enough: f64,
    n: u64,
    breaking: u64,
    /// Which requests exceeded the limit.
    flags: Vec<bool>,
    /// The batches, where only sums are known.
    batches: Vec<Unit>,
    /// Their design effect, and the number of requests when it was estimated.
    effect: (f64, u64),
}

/// Number of requests from which on the estimated design effect is used as is, and its minimum before.
const KNOWN: u64 = 200;
const UNKNOWN: f64 = 3.0;
/// Least number of batches for a decision, and of their groups: both bound how long a bad spell of the server may last.
const LEAST_BATCHES: usize = 10;
const GROUPS: usize = 5;
/// The effect is estimated again after every increase of the requests by 1/`RENEW`.
const RENEW: u64 = 20;

impl Sequential {
    /// A test of the claim that at most a share `allowed`, 0 ≤ allowed < 1, exceeds the limit. It refutes a true
    /// claim with a probability of at most `alpha`, and decides nothing before `least` requests.
    pub fn new(allowed: f64, alpha: f64, least: u64) -> Sequential {
        Sequential {
            allowed,
            least: least.max(1),
            enough: -alpha.ln(),
            n: 0,
            breaking: 0,
            flags: Vec::new(),
            batches: Vec::new(),
            effect: (1.0, 0),
        }
    }

    /// Adds one request; returns whether the claim is refuted.
    pub fn observe(&mut self, breaks: bool) -> bool {
        self.n += 1;
        self.breaking += u64::from(breaks);
        self.flags.push(breaks);
        // A request within the limit only reduces the evidence, and there is none while the allowed share is not
        // exceeded.
        let may_turn = self.n >= self.least && (breaks || self.n == self.least);
        if !may_turn || self.breaking as f64 <= self.allowed * self.n as f64 {
            return false;
        }
        let evidence = self.evidence();
        evidence >= self.enough && evidence >= self.enough * self.effect()
    }

    /// Adds a batch of which only the sums are known: its requests that have ended, and those of them that exceeded
    /// the limit. `pending`: all requests that were sent but are not part of any batch yet, in the sums of all
    /// sources. Returns whether the claim is refuted. A test gets either requests or batches.
    ///
    /// The error bound α holds for every sequence of batches:
    ///
    /// 1. The evidence depends on k and n alone, so the order within a batch is irrelevant. Checking at the ends of
    ///    batches means checking at some of the steps, and Ville's inequality bounds the probability for all of them.
    /// 2. For that, whether a request belongs to the first n must not depend on its result. It does for those that
    ///    have ended: with several sources, fast failures would be counted first. It does not for those that were
    ///    sent: a source sends its next request before that one has a result. So the steps are the requests in the
    ///    order in which they were sent; the next source may depend on earlier results (an optional increasing path;
    ///    Walsh, "Optional increasing paths", 1981), since each factor has an expectation of at most 1 given the
    ///    earlier ones.
    /// 3. A pending request counts as one within the limit. As q > q₀, each such request reduces every ratio of the
    ///    mixture, and a request over the limit increases it: the evidence is at most that with the pending results,
    ///    whatever these will be, and also at most that without those that turn out not to count.
    ///
    /// This is for independent requests. The design effect is that of the batches as clusters
    /// ([`design::dependence`]), and of groups of them: the results of one server at one moment are correlated across
    /// all sources, which the order within each source does not show. Nothing is refuted before the tenth batch,
    /// since few batches cannot show how long a bad spell lasts.
    pub fn observe_batch(&mut self, samples: u64, breaking: u64, pending: u64) -> bool {
        self.n += samples;
        self.breaking += breaking.min(samples);
        if samples > 0 {
            self.batches.push(Unit {
                amount: breaking.min(samples) as f64,
                weight: samples as f64,
            });
        }
        let n = self.n + pending;
        let known = self.n >= self.least && self.batches.len() >= LEAST_BATCHES;
        if !known || self.breaking as f64 <= self.allowed * n as f64 {
            return false;
        }
        let evidence = self.evidence_at(n);
        evidence >= self.enough && evidence >= self.enough * self.effect_of_batches()
    }

    fn effect_of_batches(&self) -> f64 {
        if self.allowed <= 0.0 {
            return 1.0;
        }
        let level = 1.0 - (-self.enough).exp();
        // A few groups of batches show correlations that last for several batches.
        let grouped: Vec<Unit> = self
            .batches
            .chunks((self.batches.len() / GROUPS).max(1))
            .map(|group| Unit {
                amount: group.iter().map(|batch| batch.amount).sum(),
                weight: group.iter().map(|batch| batch.weight).sum(),
            })
            .collect();
        let seen = design::dependence(&self.batches, &[])
            .effect(level)
            .max(design::dependence(&grouped, &[]).effect(level));
        if self.n < KNOWN {
            seen.max(UNKNOWN)
        } else {
            seen
        }
    }

    /// The design effect, at least 1: the factor by which the logarithm of the evidence is too large.
    fn effect(&mut self) -> f64 {
        if self.allowed <= 0.0 {
            return 1.0;
        }
        if self.n >= self.effect.1 + self.effect.1 / RENEW {
            let seen = design::flag_dependence(&self.flags).effect(1.0 - (-self.enough).exp());
            self.effect = (
                if self.n < KNOWN {
                    seen.max(UNKNOWN)
                } else {
                    seen
                },
                self.n,
            );
        }
        self.effect.0
    }

    /// Number of requests, and of those that exceeded the limit.
    pub fn counts(&self) -> (u64, u64) {
        (self.n, self.breaking)
    }

    /// The logarithm of the evidence against the claim. Infinite if a request exceeded a limit that none may.
    pub fn evidence(&self) -> f64 {
        self.evidence_at(self.n)
    }

    /// The same for `n` requests.
    fn evidence_at(&self, n: u64) -> f64 {
        let (q, k, n) = (self.allowed, self.breaking as f64, n as f64);
        if q <= 0.0 {
            return if self.breaking > 0 {
                f64::INFINITY
            } else {
                0.0
            };
        }
        let b = ((1.0 - q) / q).max(1.0);
        let beta = ln_gamma(1.0 + k) + ln_gamma(b + n - k) - ln_gamma(1.0 + b + n);
        // P[Beta(1 + k, b + n − k) > q] = P[Binomial(b + n, q) ≤ k]; B(1, b) = 1/b, and its mass above q is (1 − q)^b.
        let above = at_most(b + n, q, k).ln();
        beta + b.ln() + above - b * (-q).ln_1p() - k * q.ln() - (n - k) * (-q).ln_1p()
    }
}

/// Sample size of the first look.
const FIRST: u64 = 16;

/// Tests at doubling sample sizes (alpha spending), for refuting a claim early.
///
/// The k-th look, at 16 · 2ᵏ samples, is the exact binomial test of [`super::quantile_bound`] at error probability α
/// / 2ᵏ⁺¹. By Boole's inequality, the error of all looks together is at most α: Σ α / 2ᵏ⁺¹ ≤ α. (Bonferroni's
/// spending with geometric shares; Jennison and Turnbull, "Group Sequential Methods", 2000, chapter 7.)
#[derive(Clone, Debug)]
pub struct AlphaSpending {
    alpha: f64,
    next: u64,
}

impl AlphaSpending {
    /// Looks with a total error probability of at most `alpha`, 0 < alpha < 1.
    pub fn new(alpha: f64) -> AlphaSpending {
        AlphaSpending {
            alpha: alpha / 2.0,
            next: FIRST,
        }
    }

    /// Whether `breaking` of `n` samples refute the claim that at most a share `tail` exceeds the limit. Always false
    /// between two looks.
    pub fn is_refuted(&mut self, n: u64, breaking: u64, tail: f64) -> bool {
        if n < self.next {
            return false;
        }
        let refuted = at_least(n as f64, tail, breaking as f64) <= self.alpha;
        while self.next <= n {
            self.next *= 2;
            self.alpha /= 2.0;
        }
        refuted
    }
}

#[cfg(test)]
mod tests;
