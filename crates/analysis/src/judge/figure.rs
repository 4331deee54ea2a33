//! An estimate with its bounds at several confidences: what a baseline keeps, and what a relative limit is decided by.

use crate::judge::evidence::Evidence;
use crate::judge::{design_effect, point};
use llmscen_core::baseline::Figure;
use llmscen_core::check::Check;
use llmscen_core::metric::Stat;
use llmscen_core::sample::Sample;
use llmscen_core::stats::design::Dependence;
use llmscen_core::stats::quantile::sort;
use llmscen_core::stats::interval::quantile_ends;
use llmscen_core::stats::share::{lower, upper};

/// A lower and an upper bound.
pub(super) type Ends = (Option<f64>, Option<f64>);

/// The figure that a check is about, with its bounds at each of `levels`; None without data, and where it is beyond all
/// numbers. Only the subject of the check and its rows count.
pub fn figure(check: &Check, sample: &Sample, levels: &[f64]) -> Option<Figure> {
    let mut evidence = Evidence::of(check, sample);
    let (value, n) = point::estimate(&mut evidence);
    let value = value.filter(|value| value.is_finite())?;
    let dependence = design_effect::dependence(check, sample, &evidence, value);
    let ends = ends(evidence, dependence, levels).unwrap_or_default();
    let finite = |bound: Option<f64>| bound.filter(|bound| bound.is_finite());
    let low = ends.iter().map(|(low, _)| finite(*low)).collect();
    let high = ends.into_iter().map(|(_, high)| finite(high)).collect();
    Some(Figure { value, n, low, high, runs: Vec::new() })
}

/// The bounds of an estimate at each of `levels`, from samples that depend on one another; None where no number of samples gives any.
pub(super) fn ends(evidence: Evidence, dependence: Dependence, levels: &[f64]) -> Option<Vec<Ends>> {
    match evidence {
        Evidence::Values(mut values, Stat::Quantile(p)) if 0.0 < p && p < 1.0 => {
            sort(&mut values);
            Some(levels.iter().map(|level| quantile_ends(&values, p, *level, dependence.effect(*level))).collect())
        }
        Evidence::Share { hits, n } => {
            let of = |level: &f64| {
                let effect = dependence.effect(*level);
                let (hits, n) = (hits as f64 / effect, n as f64 / effect);
                (Some(lower(hits, n, *level)), Some(upper(hits, n, *level)))
            };
            Some(levels.iter().map(of).collect())
        }
        Evidence::Ratio(units) => {
            Some(levels.iter().map(|level| units.long_run.as_ref().map(|own| own.ends(*level)).unzip()).collect())
        }
        Evidence::Values(..) | Evidence::Figure(..) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::fixture::{check, failed, goodput, ok, sample};
    use llmscen_core::check::Op;
    use llmscen_core::metric::Metric;
    use llmscen_core::sample::Row;

    fn of(check: &Check, rows: Vec<Row>) -> Option<Figure> {
        figure(check, &sample(rows), &[0.9, 0.95])
    }

    fn waits() -> Vec<Row> {
        // 1 to 100, neighbours unlike.
        (0..100).map(|index| ok(Metric::Ttft, f64::from(index * 37 % 100 + 1))).collect()
    }

    #[test]
    fn a_quantile_lies_between_order_statistics() {
        let seen = of(&check(Metric::Ttft, Some(Stat::Quantile(0.5)), Op::Less, 0.0), waits()).unwrap();
        assert_eq!(
            (seen.value, seen.n, seen.low[1], seen.high[1]),
            (50.0, 100, Some(40.0), Some(61.0)),
            "42 and 59 but for Student's factor of ten batches"
        );
        let tail = of(&check(Metric::Ttft, Some(Stat::Quantile(0.99)), Op::Less, 0.0), waits()).unwrap();
        assert_eq!((tail.value, tail.high), (99.0, vec![None, None]), "299 would be needed at 95 %");
    }

    #[test]
    fn shares_are_exact_and_means_have_an_end_on_either_side() {
        let rows = || (0..19).map(|i| if i < 2 { failed() } else { ok(Metric::Ttft, f64::from(i)) }).collect::<Vec<_>>();
        let share = of(&goodput(Vec::new(), Op::AtLeast, 0.0), rows()).unwrap();
        assert_eq!((share.value, share.n), (17.0 / 19.0, 19));
        assert!((share.low[1].unwrap() - lower(17.0, 19.0, 0.95)).abs() < 1e-12);
        let mean = of(&check(Metric::Ttft, Some(Stat::Mean), Op::Less, 0.0), waits()).unwrap();
        assert!(mean.value == 50.5 && mean.low[1] < mean.low[0] && mean.high[1] > mean.high[0], "{mean:?}");
    }

    #[test]
    fn extremes_have_no_bounds_and_nothing_has_no_figure() {
        let most = check(Metric::Ttft, Some(Stat::Max), Op::Less, 0.0);
        assert_eq!(of(&most, waits()).map(|seen| (seen.value, seen.bounded())), Some((100.0, false)));
        assert_eq!(of(&most, Vec::new()), None);
    }
}
