//! Limits on means and throughputs, by batches with Student's t.

use crate::judge::assessment::Opinion;
use crate::judge::resampling_units::Units;
use llmscen_core::check::{Check, Ruling};
use llmscen_core::stats::long_run::LEAST;

/// Judges a ratio with the point estimate `observed`, at confidence `level`.
pub(super) fn judge(check: &Check, units: &Units, observed: f64, level: f64) -> Opinion {
    let open = Opinion { ruling: Ruling::Inconclusive, ..Opinion::point(false, observed, units.n) };
    let Some(seen) = &units.long_run else {
        return few(units, open);
    };
    let (low, high) = seen.ends(level);
    let (worst, best) = if check.op.is_ceiling() { (high, low) } else { (low, high) };
    let ruling = match () {
        () if check.op.holds(worst, check.limit) => Ruling::Pass,
        () if !check.op.holds(best, check.limit) => Ruling::Fail,
        () => Ruling::Inconclusive,
    };
    let end = if check.op.holds(observed, check.limit) { worst } else { best };
    let need = (ruling == Ruling::Inconclusive).then(|| needed(units.n, observed, end, check.limit)).flatten();
    let more = if ruling == Ruling::Inconclusive { ", so more rounds are needed" } else { "" };
    let by_rounds = units.by_round && seen.errors.last() == Some(&seen.deciding(level));
    let note = by_rounds.then(|| format!("the bound is by the spread between rounds{more}"));
    Opinion { ruling, bound: Some(worst), need, ..open }.noted(note)
}

/// So few have no spread of their own.
fn few(units: &Units, open: Opinion) -> Opinion {
    let missing = (LEAST as u64).saturating_sub(units.counted);
    let what = match (units.counted == units.n, units.counted == 1) {
        (true, true) => "request is",
        (true, false) => "requests are",
        (false, true) => "request that ended before sending stopped is",
        (false, false) => "requests that ended before sending stopped are",
    };
    let note = format!("{} {what} too few for a bound: {LEAST} are needed", units.counted);
    Opinion { need: Some(units.n + missing), ..open }.noted(Some(note))
}

/// The bound comes closer with the root of n: the n at which it would have reached the limit.
fn needed(n: u64, observed: f64, end: f64, limit: f64) -> Option<u64> {
    let times = ((end - observed) / (limit - observed)).powi(2);
    times.is_finite().then(|| ((n as f64 * times).ceil() as u64).max(n + 1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::fixture::{check, ok};
    use crate::judge::resampling_units::mean;
    use llmscen_core::check::Op;
    use llmscen_core::metric::{Metric, Stat};
    use llmscen_core::sample::Row;

    fn judged(op: Op, limit: f64, values: impl IntoIterator<Item = (u32, f64)>) -> Opinion {
        let row = |(round, value)| Row { round, ..ok(Metric::Ttft, value) };
        let rows: Vec<Row> = values.into_iter().map(row).collect();
        let units = mean(&rows.iter().collect::<Vec<_>>(), Metric::Ttft);
        judge(&check(Metric::Ttft, Some(Stat::Mean), op, limit), &units, units.observed.unwrap(), 0.95)
    }

    /// 0 to 99, neighbours unlike.
    fn spread() -> impl Iterator<Item = (u32, f64)> {
        (0..100).map(|place| (0, f64::from(place * 37 % 100)))
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
        // The bound is 5.6 off, the limit 1.0: about 31 times the samples.
        assert!((2500..3800).contains(&near.need.unwrap()), "{near:?}");
    }

    /// Of ten batches of ten: sums of their offsets from the mean, 10 / 9 of their squares, the root over 100; or of single values.
    fn seen_error() -> f64 {
        let values: Vec<f64> = spread().map(|own| own.1 - 49.5).collect();
        let squares = |sums: Vec<f64>| {
            let n = sums.len() as f64;
            sums.iter().map(|sum| sum * sum).sum::<f64>() * n / (n - 1.0)
        };
        squares(values.chunks(10).map(|own| own.iter().sum()).collect()).max(squares(values.clone())).sqrt() / 100.0
    }

    #[test]
    fn the_bound_is_the_end_that_the_verdict_rests_on() {
        // Student's t of 9 degrees of freedom, 1.8331, times 29.011 / 10, on the logarithm.
        let arm: f64 = seen_error() * 1.833_112_9 / 49.5;
        let (under, over) = (judged(Op::Less, 60.0, spread()), judged(Op::More, 40.0, spread()));
        let near = |bound: Option<f64>, known: f64| (bound.unwrap() - known).abs() < 1e-4;
        assert!(near(under.bound, 49.5 * arm.exp()) && near(over.bound, 49.5 * (-arm).exp()), "{under:?} {over:?}");
    }

    #[test]
    fn neighbours_that_are_alike_decide_less() {
        let sorted = |limit| judged(Op::Less, limit, (0..100).map(|place| (0, f64::from(place))));
        assert_eq!((judged(Op::Less, 60.0, spread()).ruling, sorted(60.0).ruling), (Ruling::Pass, Ruling::Inconclusive));
    }

    #[test]
    fn too_few_samples_decide_nothing() {
        let seen = judged(Op::Less, 60.0, [(0, 1.0); 19]);
        assert_eq!((seen.ruling, seen.bound, seen.need), (Ruling::Inconclusive, None, Some(20)));
        assert_eq!(seen.note.unwrap(), "19 requests are too few for a bound: 20 are needed");
        assert_eq!(judged(Op::Less, 60.0, [(0, 1.0); 20]).ruling, Ruling::Pass);
        assert_eq!(judged(Op::Less, f64::NAN, spread()).ruling, Ruling::Fail);
    }

    #[test]
    fn rounds_that_differ_are_what_decides() {
        let seen = judged(Op::Less, 60.0, (0..100).map(|place| (place / 20, f64::from(place / 20 * 20))));
        assert_eq!(seen.note.unwrap(), "the bound is by the spread between rounds, so more rounds are needed");
    }
}
