//! Limits on means and throughputs, by the bootstrap.

use crate::judge::opinion::Opinion;
use crate::judge::units::Units;
use crate::model::check::{Check, Ruling};
use crate::model::seed::Seed;
use crate::stats::bootstrap::{self, ends};

/// Judges a ratio with the point estimate `observed`, at confidence `level`.
pub(super) fn judge(check: &Check, units: &Units, observed: f64, level: f64, seed: Seed) -> Opinion {
    let open = Opinion { ruling: Ruling::Inconclusive, ..Opinion::point(false, observed, units.n) };
    let Some((low, high)) = ends(&units.drawn, level, seed) else {
        return few(units, level, open);
    };
    let (worst, best) = if check.op.is_ceiling() { (high, low) } else { (low, high) };
    let ruling = match () {
        () if check.op.holds(worst, check.limit) => Ruling::Pass,
        () if !check.op.holds(best, check.limit) => Ruling::Fail,
        () => Ruling::Inconclusive,
    };
    let end = if check.op.holds(observed, check.limit) { worst } else { best };
    let need = (ruling == Ruling::Inconclusive).then(|| needed(units.n, observed, end, check.limit)).flatten();
    let more = if ruling == Ruling::Inconclusive { ", so it takes more rounds" } else { "" };
    let note = units.by_round.then(|| format!("{} rounds drawn as a whole{more}", units.drawn.len()));
    Opinion { ruling, bound: Some(worst), need, ..open }.noted(note)
}

/// Nothing is drawn from so few: no draw leaves their range.
fn few(units: &Units, level: f64, open: Opinion) -> Opinion {
    let (drawn, least) = (units.drawn.len() as u64, bootstrap::needed(level));
    let what = if units.by_round { "rounds drawn as a whole" } else { "samples" };
    // Rounds bring their requests with them.
    let need = if units.by_round { units.n.div_ceil(drawn.max(1)) * least } else { least };
    let note = format!("{drawn} {what} are too few for a bound at this confidence: it takes {least}");
    Opinion { need: Some(need), ..open }.noted(Some(note))
}

/// The bound comes closer with the root of n: the n at which it would have reached the limit.
fn needed(n: u64, observed: f64, end: f64, limit: f64) -> Option<u64> {
    let times = ((end - observed) / (limit - observed)).powi(2);
    times.is_finite().then(|| ((n as f64 * times).ceil() as u64).max(n + 1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::fixture::check;
    use crate::model::check::Op;
    use crate::model::metric::{Metric, Stat};
    use crate::stats::bootstrap::{Unit, ratio};

    fn judged(op: Op, limit: f64, values: impl IntoIterator<Item = f64>) -> Opinion {
        let drawn: Vec<Unit> = values.into_iter().map(|amount| Unit { amount, weight: 1.0 }).collect();
        let units = Units { n: drawn.len() as u64, observed: Some(ratio(&drawn)), drawn, by_round: false };
        judge(&check(Metric::Ttft, Some(Stat::Mean), op, limit), &units, units.observed.unwrap(), 0.95, Seed(1))
    }

    fn spread() -> impl Iterator<Item = f64> {
        (0..100).map(f64::from)
    }

    #[test]
    fn far_limits_are_decided_and_near_ones_are_not() {
        // Mean 49.5, standard error 2.9.
        assert_eq!(judged(Op::Less, 60.0, spread()).ruling, Ruling::Pass);
        assert_eq!(judged(Op::Less, 40.0, spread()).ruling, Ruling::Fail);
        assert_eq!(judged(Op::AtLeast, 40.0, spread()).ruling, Ruling::Pass);
        assert_eq!(judged(Op::AtLeast, 60.0, spread()).ruling, Ruling::Fail);
        let near = judged(Op::Less, 50.5, spread());
        assert_eq!((near.ruling, near.observed, near.n), (Ruling::Inconclusive, Some(49.5), 100));
        // The bound stands 4.8 off, the limit 1.0: about 23 times the samples.
        assert!((1800..2900).contains(&near.need.unwrap()), "{near:?}");
    }

    #[test]
    fn the_bound_is_the_end_that_the_ruling_rests_on() {
        let (under, over) = (judged(Op::Less, 60.0, spread()), judged(Op::More, 40.0, spread()));
        assert!((under.bound.unwrap() - 54.3).abs() < 0.6 && (over.bound.unwrap() - 44.7).abs() < 0.6, "{under:?} {over:?}");
    }

    #[test]
    fn too_few_samples_decide_nothing() {
        let seen = judged(Op::Less, 60.0, [1.0; 4]);
        assert_eq!((seen.ruling, seen.bound, seen.need), (Ruling::Inconclusive, None, Some(5)));
        assert_eq!(seen.note.unwrap(), "4 samples are too few for a bound at this confidence: it takes 5");
        assert_eq!(judged(Op::Less, 60.0, [1.0; 5]).ruling, Ruling::Pass);
        let drawn = vec![Unit { amount: 100.0, weight: 100.0 }; 5];
        let rounds = Units { n: 500, observed: Some(1.0), drawn, by_round: true };
        let mean = check(Metric::Ttft, Some(Stat::Mean), Op::Less, 60.0);
        let seen = judge(&mean, &rounds, 1.0, 0.99, Seed(1));
        assert_eq!((seen.ruling, seen.need), (Ruling::Inconclusive, Some(700)), "seven rounds, of a hundred each");
        assert!(seen.note.unwrap().starts_with("5 rounds drawn as a whole are too few"));
        assert_eq!(judged(Op::Less, f64::NAN, spread()).ruling, Ruling::Fail);
    }
}
