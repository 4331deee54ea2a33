//! An estimate held against a multiple of another one, both uncertain.
//!
//! Where everything is above 0 the ratio of the two is bounded on the logarithms ([`interval::ratio`]). Shares, and whatever
//! may be 0, are bounded by their difference a − f·b instead, by the same method on the plain scale: with zeros a ratio has no
//! bound, but the difference has one (Zou and Donner, Statistics in Medicine 27, 2008; for shares, Newcombe, "Interval
//! estimation for the difference between independent proportions", Statistics in Medicine 17, 1998).

use crate::stats::interval::{Interval, ratio};
use crate::stats::quantile_bound::allowed;

/// What is known of `a` when it is held against `limit`, the multiple of the other estimate: bounds that hold the uncertainty
/// of both.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Compared {
    /// `a` between bounds that may be held against `limit` as if that were exact.
    pub seen: Interval,
    /// The multiple.
    pub limit: f64,
    /// How far `a` is from `limit`, and how far each side's uncertainty reaches towards it, on one scale: own, other.
    towards: (f64, f64, f64),
}

/// Holds `a` against `factor` times `b`; the bounds of both are one-sided, at one confidence. `share`: both are shares.
pub fn against(a: Interval, b: Interval, factor: f64, share: bool) -> Compared {
    let limit = factor * b.value;
    let under = a.value <= limit;
    if let Some(found) = ratio(a, b).filter(|_| !share) {
        let seen = Interval { value: a.value, low: found.low * b.value, high: found.high * b.value };
        let (own, other) = if under { (a.high / a.value, b.value / b.low) } else { (a.value / a.low, b.high / b.value) };
        return Compared { seen, limit, towards: ((a.value / limit).ln().abs(), own.ln(), other.ln()) };
    }
    if a.value.is_infinite() {
        return Compared { seen: among_failed(a, b), limit, towards: (0.0, 0.0, 0.0) };
    }
    let down = (a.value - a.low).hypot(factor * (b.high - b.value));
    let up = (a.high - a.value).hypot(factor * (b.value - b.low));
    let seen = Interval { value: a.value, low: a.value - down, high: a.value + up };
    let (own, other) = if under { (a.high - a.value, b.value - b.low) } else { (a.value - a.low, b.high - b.value) };
    Compared { seen, limit, towards: ((a.value - limit).abs(), own, factor * other) }
}

/// Holds `a`, one more value, against `factor` times `b`, the mean of several that vary: `reach` is how far one more of these may lie
/// from their mean on the logarithms. Both are above 0.
pub fn predicted(a: f64, b: f64, reach: f64, factor: f64) -> Compared {
    let limit = factor * b;
    let seen = Interval { value: a, low: a * (-reach).exp(), high: a * reach.exp() };
    Compared { seen, limit, towards: ((a / limit).ln().abs(), 0.0, reach) }
}

/// Where the estimate lies among failed requests: it can only be said how far off it is at least, and that only as far as the
/// other side has a bound. Own arm and other arm add up, since one of them has no length.
fn among_failed(a: Interval, b: Interval) -> Interval {
    let known = b.value > 0.0 && b.value.is_finite();
    if a.value > 0.0 {
        let low = if known && b.high.is_finite() { a.low.max(0.0) * b.value / b.high } else { 0.0 };
        return Interval { value: a.value, low, high: a.value };
    }
    let high = if known && b.low > 0.0 { a.high * b.value / b.low } else { f64::INFINITY };
    Interval { value: a.value, low: a.value, high }
}

impl Compared {
    /// With bounds at least so far away, on the plain scale.
    pub fn reaching(self, reach: f64) -> Compared {
        let Interval { value, low, high } = self.seen;
        let (away, own, other) = self.towards;
        let seen = Interval { value, low: low.min(value - reach), high: high.max(value + reach) };
        Compared { seen, towards: (away, own, other.max(reach)), ..self }
    }

    /// Samples that `a` would have needed in all, where it had `n`, for its bound to stay on its own side of the limit: its
    /// uncertainty shrinks with the root of n, the other one's stays. None where no number would do.
    pub fn needed(&self, n: u64) -> Option<u64> {
        let (away, own, other) = self.towards;
        let room = away * away - other * other;
        let times = own * own / room;
        (room > 0.0 && times.is_finite()).then(|| ((n as f64 * times).ceil() as u64).max(n + 1))
    }

    /// Whether the other side alone is too uncertain for a decision.
    pub fn hopeless(&self) -> bool {
        let (away, _, other) = self.towards;
        other >= away
    }
}

/// The order statistics that bound the quantile `p` of ascending values at confidence `level` each, where `effect` of them carry
/// the information of one independent value. None for a side that they are too few for.
pub fn quantile_ends(sorted: &[f64], p: f64, level: f64, effect: f64) -> (Option<f64>, Option<f64>) {
    let n = sorted.len();
    let low = allowed(n as u64, effect, p, level).and_then(|under| sorted.get(under as usize).copied());
    let above = allowed(n as u64, effect, 1.0 - p, level);
    (low, above.and_then(|over| sorted.get(n.checked_sub(over as usize + 1)?).copied()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::share::{lower, upper};
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    fn of(value: f64, low: f64, high: f64) -> Interval {
        Interval { value, low, high }
    }

    fn share(hits: u64, n: u64) -> Interval {
        of(hits as f64 / n as f64, lower(hits as f64, n as f64, 0.95), upper(hits as f64, n as f64, 0.95))
    }

    #[test]
    fn positive_figures_are_compared_by_their_ratio() {
        let seen = against(of(110.0, 100.0, 121.0), Interval::exact(100.0), 1.1, false);
        assert!(
            (seen.seen.low - 100.0).abs() < 1e-9 && (seen.seen.high - 121.0).abs() < 1e-9 && seen.limit == 110.00000000000001
        );
        let both = against(of(100.0, 90.0, 110.0), of(100.0, 90.0, 110.0), 1.5, false);
        // ln(1.1) and ln(100/90), square and add.
        let up = (1.1f64.ln().hypot((100.0f64 / 90.0).ln())).exp() * 100.0;
        assert!((both.seen.high - up).abs() < 1e-9, "{both:?}");
    }

    #[test]
    fn zeros_have_a_difference_where_they_have_no_ratio() {
        let none = against(share(0, 1000), share(0, 1000), 1.1, true);
        assert!(none.limit == 0.0 && none.seen.high > 0.0 && none.seen.low <= 0.0, "no errors in both prove no ratio");
        let perfect = against(share(640, 640), share(640, 640), 0.98, true);
        assert!(perfect.seen.low > perfect.limit, "{perfect:?}");
        let broken = against(share(60, 640), share(0, 640), 1.1, true);
        assert!(broken.seen.low > broken.limit);
    }

    #[test]
    fn missing_bounds_decide_nothing_on_their_side() {
        let few = against(of(5.0, 0.0, f64::INFINITY), of(100.0, 0.0, f64::INFINITY), 1.1, false);
        assert_eq!((few.seen.low, few.seen.high), (f64::NEG_INFINITY, f64::INFINITY));
        let lost = against(of(f64::INFINITY, f64::INFINITY, f64::INFINITY), Interval::exact(5.0), 1.1, false);
        assert!(lost.seen.low > lost.limit);
        let open = against(of(f64::INFINITY, 4.0, f64::INFINITY), Interval::exact(5.0), 1.1, false);
        assert!(open.seen.low < open.limit);
    }

    #[test]
    fn a_value_among_the_failed_is_held_against_what_is_known_of_the_other_side() {
        let lost = |low| of(f64::INFINITY, low, f64::INFINITY);
        let low = |b| against(lost(120.0), b, 1.1, false).seen.low;
        assert_eq!(low(Interval::exact(100.0)), 120.0, "above 110");
        assert_eq!(
            (low(of(100.0, 80.0, 125.0)), low(of(100.0, 80.0, f64::INFINITY))),
            (96.0, 0.0),
            "the base may be 125, or more"
        );
        assert_eq!(against(lost(f64::INFINITY), of(100.0, 0.0, f64::INFINITY), 1.1, false).seen.low, 0.0);
        let floor = |b| against(of(f64::NEG_INFINITY, f64::NEG_INFINITY, 80.0), b, 0.9, false).seen.high;
        assert_eq!((floor(of(100.0, 80.0, 125.0)), floor(of(100.0, 0.0, 125.0))), (100.0, f64::INFINITY));
    }

    #[test]
    fn what_is_needed_shrinks_only_the_own_side() {
        // Exact base: the own arm of 20 % must come under ln(1.1): (ln 1.2 / ln 1.1)² = 3.66 times the samples.
        let alone = against(of(100.0, 80.0, 120.0), Interval::exact(100.0), 1.1, false);
        assert_eq!((alone.needed(100), alone.hopeless()), (Some(366), false));
        let vague = against(of(100.0, 80.0, 120.0), of(100.0, 80.0, 120.0), 1.1, false);
        assert_eq!((vague.needed(100), vague.hopeless()), (None, true));
    }

    #[test]
    fn an_equal_pair_is_called_worse_no_more_often_than_allowed() {
        // Shares of 3 % against shares of 3 %: `<= 1 * baseline` stands exactly at the truth, the worst case for both errors.
        let mut rng = ChaCha8Rng::seed_from_u64(5);
        let mut draw = |n: u64| share((0..n).filter(|_| rng.random::<f64>() < 0.03).count() as u64, n);
        let (mut over, mut under) = (0, 0);
        for _ in 0..400 {
            let seen = against(draw(500), draw(400), 1.0, true);
            over += u32::from(seen.seen.low > seen.limit);
            under += u32::from(seen.seen.high < seen.limit);
        }
        // Nominally 20 each of 400; exact bounds are on the safe side.
        assert!((1..=30).contains(&over) && (1..=30).contains(&under), "{over} {under}");
    }

    #[test]
    fn a_quantile_has_the_ends_that_its_values_reach() {
        let values: Vec<f64> = (1..=100).map(f64::from).collect();
        assert_eq!(quantile_ends(&values, 0.5, 0.95, 1.0), (Some(42.0), Some(59.0)));
        assert_eq!(quantile_ends(&values, 0.99, 0.95, 1.0).1, None, "299 are needed");
        assert!(quantile_ends(&values, 0.99, 0.95, 1.0).0.is_some_and(|low| low > 90.0));
        // P[Binomial(20, 0.5) <= 5] = 0.021, <= 5.8 = 0.048, <= 6 = 0.058: 29 values at either end.
        assert_eq!(quantile_ends(&values, 0.5, 0.95, 5.0), (Some(30.0), Some(71.0)));
        assert_eq!(quantile_ends(&values, 0.5, 0.95, 25.0), (None, None));
    }
}
