//! An estimate with its bounds at several confidences: what a baseline keeps, and what a relative limit is decided by.

use crate::judge::evidence::Evidence;
use crate::judge::{alike, point};
use crate::model::baseline::Figure;
use crate::model::check::Check;
use crate::model::metric::Stat;
use crate::model::sample::Sample;
use crate::model::seed::Seed;
use crate::stats::bootstrap::ends_at;
use crate::stats::interval::Interval;
use crate::stats::quantile::sort;
use crate::stats::relative::quantile_ends;
use crate::stats::share::{lower, upper};

/// A lower and an upper bound.
pub(super) type Ends = (Option<f64>, Option<f64>);

/// The figure that a check is about, with its bounds at each of `levels`; None without data, and where it is beyond all
/// numbers. Only the subject of the check and its rows count. Equal seeds give equal bounds.
pub fn figure(check: &Check, sample: &Sample, levels: &[f64], seed: Seed) -> Option<Figure> {
    let mut evidence = Evidence::of(check, sample);
    let (value, n) = point::estimate(&mut evidence);
    let value = value.filter(|value| value.is_finite())?;
    let effect = alike::effect(check, sample, &evidence, value);
    let ends = ends(evidence, (value, effect), levels, seed).unwrap_or_default();
    let finite = |bound: Option<f64>| bound.filter(|bound| bound.is_finite());
    let low = ends.iter().map(|(low, _)| finite(*low)).collect();
    Some(Figure { value, n, low, high: ends.into_iter().map(|(_, high)| finite(high)).collect() })
}

/// The bounds of the estimate `value` at each of `levels`, from samples of which `effect` say as much as an independent one; None
/// where no number of samples gives any.
pub(super) fn ends(evidence: Evidence, (value, effect): (f64, f64), levels: &[f64], seed: Seed) -> Option<Vec<Ends>> {
    match evidence {
        Evidence::Values(mut values, Stat::Quantile(p)) if 0.0 < p && p < 1.0 => {
            sort(&mut values);
            let worth = ((values.len() as f64 / effect) as u64).max(1);
            Some(levels.iter().map(|level| quantile_ends(&values, p, *level, worth)).collect())
        }
        Evidence::Share { hits, n } => {
            let (hits, n) = ((hits as f64 / effect).round() as u64, (n as f64 / effect).round().max(1.0) as u64);
            Some(levels.iter().map(|level| (Some(lower(hits, n, *level)), Some(upper(hits, n, *level)))).collect())
        }
        Evidence::Ratio(units) => {
            let wider = |(low, high)| {
                let own = Interval { value, low, high }.widened(effect.sqrt());
                (own.low, own.high)
            };
            Some(ends_at(&units.drawn, levels, seed).into_iter().map(|ends| ends.map(wider).unzip()).collect())
        }
        Evidence::Values(..) | Evidence::Figure(..) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::fixture::{check, failed, goodput, ok, sample};
    use crate::model::check::Op;
    use crate::model::metric::Metric;
    use crate::model::sample::Row;

    fn of(check: &Check, rows: Vec<Row>) -> Option<Figure> {
        figure(check, &sample(rows), &[0.9, 0.95], Seed(1))
    }

    fn waits() -> Vec<Row> {
        // 1 to 100, neighbours unlike.
        (0..100).map(|index| ok(Metric::Ttft, f64::from(index * 37 % 100 + 1))).collect()
    }

    #[test]
    fn a_quantile_lies_between_order_statistics() {
        let seen = of(&check(Metric::Ttft, Some(Stat::Quantile(0.5)), Op::Less, 0.0), waits()).unwrap();
        assert_eq!((seen.value, seen.n, seen.low[1], seen.high[1]), (50.0, 100, Some(42.0), Some(59.0)));
        let tail = of(&check(Metric::Ttft, Some(Stat::Quantile(0.99)), Op::Less, 0.0), waits()).unwrap();
        assert_eq!((tail.value, tail.high), (99.0, vec![None, None]), "299 would be needed at 95 %");
    }

    #[test]
    fn shares_are_exact_and_means_are_drawn() {
        let rows = || (0..20).map(|i| if i < 2 { failed() } else { ok(Metric::Ttft, f64::from(i)) }).collect::<Vec<_>>();
        let share = of(&goodput(Vec::new(), Op::AtLeast, 0.0), rows()).unwrap();
        assert_eq!((share.value, share.n), (0.9, 20));
        assert!((share.low[1].unwrap() - lower(18, 20, 0.95)).abs() < 1e-12);
        let mean = of(&check(Metric::Ttft, Some(Stat::Mean), Op::Less, 0.0), rows()).unwrap();
        assert!(mean.value == 10.5 && mean.low[1] < mean.low[0] && mean.high[1] > mean.high[0], "{mean:?}");
    }

    #[test]
    fn extremes_have_no_bounds_and_nothing_has_no_figure() {
        let most = check(Metric::Ttft, Some(Stat::Max), Op::Less, 0.0);
        assert_eq!(of(&most, waits()).map(|seen| (seen.value, seen.bounded())), Some((100.0, false)));
        assert_eq!(of(&most, Vec::new()), None);
    }
}
