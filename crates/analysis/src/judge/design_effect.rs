//! How the values behind a check depend on one another: gaps of one request, and requests that shared a batch or a queue.

use crate::judge::evidence::{Evidence, own, tagged};
use crate::judge::quantile::at;
use llmscen_core::check::{Check, Of, RequestLimit, Subject};
use llmscen_core::sample::{Row, Sample};
use llmscen_core::stats::design::Unit;
use llmscen_core::stats::design::{self, Dependence};
use llmscen_core::stats::quantile::rank;

/// The dependence behind the estimate `value` of a check: of a quantile by the share of values beyond it.
pub(super) fn dependence(check: &Check, sample: &Sample, evidence: &Evidence, value: f64) -> Dependence {
    let unit: &dyn Fn(&Row) -> Option<Unit> = match evidence {
        // The bounds of a ratio have it in them.
        Evidence::Ratio(_) | Evidence::Figure(..) => return Dependence::NONE,
        Evidence::Values(..) => &|row| beyond(check, row, value),
        Evidence::Share { .. } => &|row| counted(check, row),
    };
    if let (Evidence::Share { .. }, Subject::Goodput(limits)) = (evidence, &check.subject)
        && !check.op.is_ceiling()
        && 0.0 < check.limit
        && check.limit < 1.0
    {
        return of_goodput(check, sample, limits);
    }
    let (rounds, units): (Vec<u32>, Vec<Unit>) =
        rows(check, sample).into_iter().filter_map(|row| Some((row.round, unit(row)?))).unzip();
    design::dependence(&units, &rounds)
}

/// A goodput asks for a quantile of how near each request is to its limits: where few requests break them, those that come
/// nearest show the dependence. So does each limit alone: requests that break an independent one hide the bursts of another.
fn of_goodput(check: &Check, sample: &Sample, limits: &[RequestLimit]) -> Dependence {
    let rows: Vec<&Row> = rows(check, sample).into_iter().filter(|row| !row.left).collect();
    let rounds: Vec<u32> = rows.iter().map(|row| row.round).collect();
    let of = |limits: &[RequestLimit]| {
        let own: Vec<f64> = rows.iter().map(|row| severity(row, limits)).collect();
        let mut sorted = own.clone();
        let place = rank(sorted.len(), check.limit);
        let seen = at(&mut sorted, place)?;
        let over = |severity: f64| if seen.is_infinite() { severity == seen } else { severity > seen };
        let unit = |severity: &f64| Unit { amount: f64::from(u8::from(over(*severity))), weight: 1.0 };
        Some(design::dependence(&own.iter().map(unit).collect::<Vec<Unit>>(), &rounds))
    };
    let each = limits.iter().filter(|_| limits.len() > 1).filter_map(|limit| of(std::slice::from_ref(limit)));
    of(limits).into_iter().chain(each).reduce(Dependence::or_greater).unwrap_or(Dependence::NONE)
}

/// The greatest share that a request takes of its limits; infinite where it failed or has not what a limit is about.
fn severity(row: &Row, limits: &[RequestLimit]) -> f64 {
    let of = |limit: &RequestLimit| match own(row, limit.metric) {
        [] if row.meets(std::slice::from_ref(limit)) => 0.0,
        [] => f64::INFINITY,
        values => {
            let ratio = |value: &f64| if limit.op.is_ceiling() { value / limit.limit } else { limit.limit / value };
            values.iter().map(ratio).fold(0.0, f64::max)
        }
    };
    if row.ok { limits.iter().map(of).fold(0.0, f64::max) } else { f64::INFINITY }
}

/// The rows that a check is about, by round and in the order of their scheduled send.
fn rows<'a>(check: &Check, sample: &'a Sample) -> Vec<&'a Row> {
    let tags: &[(String, String)] = match &check.subject {
        Subject::Metric { tags, .. } => tags,
        Subject::Goodput(_) | Subject::Signal { .. } => &[],
    };
    let mut rows: Vec<&Row> = sample.rows.iter().filter(|row| tagged(row, tags)).collect();
    rows.sort_by(|a, b| a.round.cmp(&b.round).then(a.scheduled_s.total_cmp(&b.scheduled_s)));
    rows
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
    use crate::judge::fixture::{check, conditions, failed, goodput, ok, sample};
    use crate::judge::{figure, rule};
    use llmscen_core::baseline::{Against, Known, Relative};
    use llmscen_core::check::{Op, Ruling};
    use llmscen_core::metric::{Metric, Stat};
    use rand::SeedableRng;
    use rand_chacha::ChaCha8Rng;
    use rand_distr::{Distribution, StandardNormal};

    fn of(check: &Check, rows: Vec<Row>, value: f64) -> f64 {
        let sample = sample(rows);
        dependence(check, &sample, &Evidence::of(check, &sample), value).times()
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
        assert!((39.9..80.0).contains(&of(&p50, (0..100).map(row).collect(), 50.0)));
        let bursts = || (0..1000).map(|k| if k % 200 < 10 { failed() } else { ok(Metric::Ttft, 1.0) }).collect::<Vec<_>>();
        let (errors, good) = (check(Metric::ErrorRate, None, Op::Less, 0.1), goodput(Vec::new(), Op::AtLeast, 0.9));
        assert!(of(&errors, bursts(), 0.05) > 4.0 && of(&good, bursts(), 0.95) > 4.0);
        let all = Check { of: Of::Scheduled, ..check(Metric::Ttft, Some(Stat::Quantile(0.97)), Op::Less, 5.0) };
        assert!(of(&all, bursts(), f64::INFINITY) > 4.0, "among the failed, they are what is counted");
    }

    #[test]
    fn a_goodput_without_a_bad_moment_depends_as_its_latencies_do() {
        let rows = || queue(&mut ChaCha8Rng::seed_from_u64(3), 1000, 0.9);
        let limit = RequestLimit { metric: Metric::Ttft, op: Op::Less, limit: 1e6 };
        let good = goodput(vec![limit], Op::AtLeast, 0.9);
        let p90 = check(Metric::Ttft, Some(Stat::Quantile(0.9)), Op::Less, 1e6);
        let observed = crate::judge::rule(&p90, &sample(rows()), &conditions(true)).observed.unwrap();
        assert_eq!(of(&good, rows(), 1.0), of(&p90, rows(), observed));
        assert!(of(&good, rows(), 1.0) > 3.0);
    }

    #[test]
    fn the_bounds_of_alike_requests_are_farther_off() {
        for stat in [Stat::Quantile(0.5), Stat::Mean] {
            let width = |rho: f64| {
                let rows = sample(queue(&mut ChaCha8Rng::seed_from_u64(3), 2000, rho));
                let seen = figure(&check(Metric::Ttft, Some(stat), Op::Less, 0.0), &rows, &[0.95]).unwrap();
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
                let base = figure(&wanted, &sample(queue(&mut rng, 400, rho)), &[0.95]).unwrap();
                let known = Known { value: base.value, low: base.low[0], high: base.high[0], n: Some(base.n), spread: None };
                let relative = Relative { to: Against::Baseline, factor: 1.0, known: Some(known) };
                let wanted = Check { limit: relative.limit(), relative: Some(relative), ..wanted };
                let seen = rule(&wanted, &sample(queue(&mut rng, 400, rho)), &conditions(true)).ruling;
                failed += u32::from(seen == Ruling::Fail);
                passed += u32::from(seen == Ruling::Pass);
            }
            // Nominally 15 each; chance makes it 21.
            assert!((2..=21).contains(&failed) && (2..=21).contains(&passed), "{p}: {failed} {passed} of 300");
        }
    }
}
