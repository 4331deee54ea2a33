//! By how much less the values behind a check say than as many independent ones would: gaps of one request are alike, and so are
//! requests that stood in one queue.

use crate::judge::evidence::{Evidence, own, tagged};
use crate::model::check::{Check, Of, Subject};
use crate::model::sample::{Row, Sample};
use crate::stats::bootstrap::Unit;
use crate::stats::design;

/// How many values say as much as one that is independent of all others, at least 1, for the estimate `value` of a check: by the
/// share of values beyond it for a quantile, as [`design::effect`] and [`design::clumping`] have it.
pub(super) fn effect(check: &Check, sample: &Sample, evidence: &Evidence, value: f64) -> f64 {
    let (rounds, units): (Vec<u32>, Vec<Unit>) = match evidence {
        // Whole rounds have in them what their requests have in common.
        Evidence::Ratio(units) if units.by_round => return 1.0,
        Evidence::Ratio(units) => return design::clumping(&units.drawn, &[]),
        Evidence::Figure(..) => return 1.0,
        Evidence::Values(..) => rows(check, sample).filter_map(|row| Some((row.round, beyond(check, row, value)?))).unzip(),
        Evidence::Share { .. } => rows(check, sample).filter_map(|row| Some((row.round, counted(check, row)?))).unzip(),
    };
    // What one request more or less would explain is no sign of dependence.
    let n = units.len() as f64;
    Some(design::effect(&units, &rounds)).filter(|effect| *effect > n / (n - 1.5).max(1.0)).unwrap_or(1.0)
}

fn rows<'a>(check: &'a Check, sample: &'a Sample) -> impl Iterator<Item = &'a Row> {
    let tags: &[(String, String)] = match &check.subject {
        Subject::Metric { tags, .. } => tags,
        Subject::Goodput(_) | Subject::Signal { .. } => &[],
    };
    sample.rows.iter().filter(move |row| tagged(row, tags))
}

/// How many of a request's values lie beyond the estimate; None where it has none.
fn beyond(check: &Check, row: &Row, value: f64) -> Option<Unit> {
    let Subject::Metric { metric, .. } = &check.subject else { return None };
    let worst = [if check.op.is_ceiling() { f64::INFINITY } else { f64::NEG_INFINITY }];
    let lost = check.of == Of::Scheduled && !row.ok && !row.left;
    let own: &[f64] = if lost { &worst } else { own(row, *metric) };
    // Nothing is beyond an estimate that lies among the failed; they themselves are what counts.
    let over = own.iter().filter(|one| if value.is_infinite() { **one == value } else { **one > value }).count();
    (!own.is_empty()).then_some(Unit { amount: over as f64, weight: own.len() as f64 })
}

fn counted(check: &Check, row: &Row) -> Option<Unit> {
    let hit = match &check.subject {
        Subject::Goodput(limits) => row.meets(limits),
        Subject::Metric { .. } => !row.ok,
        Subject::Signal { .. } => return None,
    };
    (!row.left).then_some(Unit { amount: f64::from(u8::from(hit)), weight: 1.0 })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::fixture::{check, failed, goodput, ok, sample};
    use crate::judge::{figure, rule};
    use crate::model::baseline::{Against, Known, Relative};
    use crate::model::check::{Op, Ruling};
    use crate::model::metric::{Metric, Stat};
    use crate::model::seed::Seed;
    use rand::SeedableRng;
    use rand_chacha::ChaCha8Rng;
    use rand_distr::{Distribution, StandardNormal};

    fn of(check: &Check, rows: Vec<Row>, value: f64) -> f64 {
        let sample = sample(rows);
        effect(check, &sample, &Evidence::of(check, &sample), value)
    }

    /// Log-normal waits around 200 ms, neighbours correlated by `rho`.
    fn queue(rng: &mut ChaCha8Rng, n: usize, rho: f64) -> Vec<Row> {
        let mut at: f64 = StandardNormal.sample(rng);
        let mut step = || {
            let fresh: f64 = StandardNormal.sample(rng);
            at = rho * at + (1.0 - rho * rho).sqrt() * fresh;
            ok(Metric::Ttft, 200.0 * (0.4 * at).exp())
        };
        (0..n).map(|_| step()).collect()
    }

    #[test]
    fn gaps_of_one_request_and_failures_in_a_burst_say_less() {
        let row = |index: u32| Row { gaps: vec![f64::from(index * 7919 % 100); 40], ..ok(Metric::Ttft, 1.0) };
        let p50 = check(Metric::Itl, Some(Stat::Quantile(0.5)), Op::Less, 0.0);
        assert!((of(&p50, (0..100).map(row).collect(), 50.0) - 40.0).abs() < 1.0);
        let bursts = || (0..1000).map(|k| if k % 200 < 10 { failed() } else { ok(Metric::Ttft, 1.0) }).collect::<Vec<_>>();
        let (errors, good) = (check(Metric::ErrorRate, None, Op::Less, 0.1), goodput(Vec::new(), Op::AtLeast, 0.9));
        assert!(of(&errors, bursts(), 0.05) > 4.0 && of(&good, bursts(), 0.95) > 4.0);
        let all = Check { of: Of::Scheduled, ..check(Metric::Ttft, Some(Stat::Quantile(0.97)), Op::Less, 5.0) };
        assert!(of(&all, bursts(), f64::INFINITY) > 4.0, "among the failed, they are what is counted");
    }

    #[test]
    fn the_bounds_of_alike_requests_are_farther_off() {
        for stat in [Stat::Quantile(0.5), Stat::Mean] {
            let width = |rho: f64| {
                let rows = sample(queue(&mut ChaCha8Rng::seed_from_u64(3), 2000, rho));
                let seen = figure(&check(Metric::Ttft, Some(stat), Op::Less, 0.0), &rows, &[0.95], Seed(1)).unwrap();
                (seen.high[0].unwrap() / seen.low[0].unwrap()).ln()
            };
            // At 0.8 nine requests say as much as one, for the mean of their logarithms.
            assert!((1.8..4.5).contains(&(width(0.8) / width(0.0))), "{stat}: {} {}", width(0.8), width(0.0));
        }
    }

    #[test]
    fn a_relative_limit_at_the_truth_is_decided_no_more_often_than_it_may() {
        let mut rng = ChaCha8Rng::seed_from_u64(29);
        for (p, rho) in [(0.5, 0.6), (0.95, 0.6)] {
            let (mut failed, mut passed) = (0, 0);
            for _ in 0..300 {
                let wanted = check(Metric::Ttft, Some(Stat::Quantile(p)), Op::AtMost, 0.0);
                let base = figure(&wanted, &sample(queue(&mut rng, 400, rho)), &[0.95], Seed(1)).unwrap();
                let known = Known { value: base.value, low: base.low[0], high: base.high[0], n: Some(base.n) };
                let relative = Relative { to: Against::Baseline, factor: 1.0, known: Some(known) };
                let wanted = Check { limit: relative.limit(), relative: Some(relative), ..wanted };
                let seen = rule(&wanted, &sample(queue(&mut rng, 400, rho)), true, Seed(1)).ruling;
                failed += u32::from(seen == Ruling::Fail);
                passed += u32::from(seen == Ruling::Pass);
            }
            // Nominally 15 each; chance makes it 21.
            assert!((2..=21).contains(&failed) && (2..=21).contains(&passed), "{p}: {failed} {passed} of 300");
        }
    }
}
