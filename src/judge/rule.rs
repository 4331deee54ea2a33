//! One check of one case, ruled.

use crate::judge::evidence::{self, Evidence};
use crate::judge::not_measured::is_of_startup;
use crate::judge::opinion::Opinion;
use crate::judge::{alike, bounded, point, quantile, ratio, relative, share, worth};
use crate::model::check::{Check, Confidence, NoData, Ruling, Subject, Verdict};
use crate::model::metric::{Per, Stat};
use crate::model::sample::Sample;
use crate::model::seed::Seed;

/// The note of a verdict that the self-audit invalidates.
pub const REJECTED: &str = "not judged: the self-audit failed";

/// Rules on a check by a sample. `valid` is the self-audit's word: without it every ruling is invalid, the numbers stay.
/// Equal seeds give equal verdicts.
pub fn rule(check: &Check, sample: &Sample, valid: bool, seed: Seed) -> Verdict {
    let opinion = opinion(check, sample, seed.child(check.expr.as_str()));
    let opinion = opinion.with(worth::remark(check, sample, &opinion));
    let ran = !sample.rows.is_empty() || sample.counts.warmup > 0;
    let why = if ran { REJECTED } else { "did not run" };
    let valid = valid || is_of_startup(check) && opinion.observed.is_some();
    let audit = (!valid).then_some(why);
    let Opinion { ruling, observed, bound, n, need, note } = opinion.noted(audit);
    let (ruling, need) = if valid { (ruling, need) } else { (Ruling::Invalid, None) };
    Verdict { check: check.clone(), ruling, observed, bound, n, need, note }
}

fn opinion(check: &Check, sample: &Sample, seed: Seed) -> Opinion {
    if let Some((seen, n)) = evidence::bounded(check, sample) {
        return bounded::judge(check, seen, n);
    }
    let mut evidence = Evidence::of(check, sample);
    let (Some(observed), n) = point::estimate(&mut evidence) else { return without_data(check) };
    let lost = observed.is_infinite().then_some("the value lies among the failed requests, which break any limit");
    if let Some(own) = &check.relative {
        let effect = alike::effect(check, sample, &evidence, observed);
        return relative::judge(check, own, evidence, (observed, n, effect), seed).noted(lost);
    }
    let compared = Opinion::point(check.op.holds(observed, check.limit), observed, n);
    let judged = match (check.confidence, point::reason(check, &evidence)) {
        (Confidence::Point, _) => compared,
        (Confidence::Level(_), Some(reason)) => compared.noted(Some(reason)),
        (Confidence::Level(level), None) => match evidence {
            Evidence::Values(values, Stat::Quantile(p)) => quantile::judge(check, values, p, level).noted(pooled(check)),
            Evidence::Share { hits, n } => share::judge(check, hits, n, level),
            Evidence::Ratio(units) => ratio::judge(check, &units, observed, level, seed),
            Evidence::Values(..) | Evidence::Figure(..) => compared,
        },
    };
    judged.noted(lost)
}

/// What a reader must know of a limit on gaps.
fn pooled(check: &Check) -> Option<&'static str> {
    let gaps = matches!(&check.subject, Subject::Metric { metric, .. } if metric.per() == Per::Gap);
    gaps.then_some("n counts gaps, and those of one request are alike: surer of itself than it should be")
}

fn without_data(check: &Check) -> Opinion {
    let (ruling, note) = match check.no_data {
        NoData::Fail => (Ruling::Fail, "no data"),
        NoData::Inconclusive => (Ruling::Inconclusive, "no data"),
        NoData::Pass => (Ruling::Pass, "no data: passes only because of `no_data: pass`"),
    };
    Opinion { ruling, observed: None, bound: None, n: 0, need: None, note: Some(note.into()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::fixture::{check, failed, goodput, ok, sample};
    use crate::model::check::{Of, Op, RequestLimit};
    use crate::model::metric::Metric;
    use crate::model::sample::Row;
    use crate::model::signal::Signal;
    use crate::model::telemetry::SignalStat;
    use proptest::prelude::*;
    use rand::{RngExt, SeedableRng};

    const P99: Option<Stat> = Some(Stat::Quantile(0.99));

    fn ruled(check: &Check, rows: Vec<Row>) -> Verdict {
        rule(check, &sample(rows), true, Seed(1))
    }

    fn latencies(values: impl IntoIterator<Item = f64>) -> Vec<Row> {
        values.into_iter().map(|value| ok(Metric::Ttft, value)).collect()
    }

    #[test]
    fn the_point_is_compared_where_the_check_says_so() {
        let wanted = Check { confidence: Confidence::Point, ..check(Metric::Ttft, P99, Op::Less, 10.0) };
        let seen = ruled(&wanted, latencies([9.0]));
        assert_eq!((seen.ruling, seen.observed, seen.bound, seen.note), (Ruling::Pass, Some(9.0), None, None));
        let sure = ruled(&check(Metric::Ttft, P99, Op::Less, 10.0), latencies([9.0]));
        assert_eq!((sure.ruling, sure.need), (Ruling::Inconclusive, Some(299)));
    }

    #[test]
    fn extremes_and_equalities_say_that_they_are_points() {
        let seen = ruled(&check(Metric::Ttft, Some(Stat::Max), Op::Less, 10.0), latencies([9.0]));
        assert_eq!(seen.note.as_deref(), Some("compared as a point: no number of samples bounds an extreme"));
        let seen = ruled(&check(Metric::ErrorRate, None, Op::Equal, 0.0), latencies([9.0]));
        assert_eq!((seen.ruling, seen.observed), (Ruling::Pass, Some(0.0)));
    }

    #[test]
    fn a_signal_is_compared_as_a_point_whatever_the_confidence() {
        let subject = Subject::Signal { signal: Signal::ServerWaiting, stat: Stat::Quantile(0.99) };
        let wanted = Check { subject, ..check(Metric::Ttft, P99, Op::Less, 10.0) };
        assert_eq!(ruled(&wanted, latencies([9.0])).note.as_deref(), Some("no data"));
        let mut seen = sample(latencies([9.0]));
        let told = SignalStat { n: 3, mean: Some(5.0), values: vec![1.0, 12.0, 2.0], ..SignalStat::default() };
        seen.signals.insert(Signal::ServerWaiting, told);
        let verdict = rule(&wanted, &seen, true, Seed(1));
        assert_eq!((verdict.ruling, verdict.observed, verdict.bound, verdict.n), (Ruling::Fail, Some(12.0), None, 3));
        assert_eq!(verdict.note.as_deref(), Some("compared as a point: samples of a signal follow each other"));
    }

    #[test]
    fn pooled_gaps_say_that_they_are_not_independent() {
        let rows = vec![Row { gaps: vec![1.0; 300], ..ok(Metric::Ttft, 1.0) }];
        let seen = ruled(&check(Metric::Itl, P99, Op::Less, 10.0), rows);
        assert_eq!((seen.ruling, seen.n), (Ruling::Pass, 300));
        assert!(seen.note.unwrap().starts_with("n counts gaps"));
    }

    #[test]
    fn a_failed_audit_invalidates_but_keeps_the_numbers() {
        let wanted = check(Metric::ErrorRate, None, Op::Less, 0.5);
        let seen = rule(&wanted, &sample(latencies([1.0; 40])), false, Seed(1));
        assert_eq!((seen.ruling, seen.observed, seen.n), (Ruling::Invalid, Some(0.0), 40));
        assert_eq!(seen.note.as_deref(), Some(REJECTED));
        let mut none = sample(Vec::new());
        let note = |none: &Sample| rule(&wanted, none, false, Seed(1)).note.unwrap();
        assert_eq!(note(&none), "did not run");
        none.counts.warmup = 1;
        assert_eq!(note(&none), REJECTED);
    }

    #[test]
    fn the_start_of_the_server_is_judged_whatever_the_load_generator_did() {
        let mut seen = sample(latencies([1.0; 40]));
        let wanted = check(Metric::Startup, None, Op::Less, 5.0);
        assert_eq!(rule(&wanted, &seen, false, Seed(1)).ruling, Ruling::Invalid, "no start was measured");
        seen.scalars.insert(Metric::Startup, 7.0);
        let verdict = rule(&wanted, &seen, false, Seed(1));
        assert_eq!((verdict.ruling, verdict.observed), (Ruling::Fail, Some(7.0)));
    }

    #[test]
    fn no_check_passes_without_data_unless_it_was_told_to() {
        for &metric in Metric::ALL {
            let stats: &[Option<Stat>] = match metric.per() {
                Per::Case => &[None],
                _ => &[P99, Some(Stat::Mean), Some(Stat::Min), Some(Stat::Max), Some(Stat::Count), Some(Stat::Sd)],
            };
            for (&stat, op) in stats.iter().flat_map(|stat| [Op::Less, Op::AtLeast, Op::Unequal].map(|op| (stat, op))) {
                for confidence in [Confidence::Point, Confidence::Level(0.95)] {
                    let wanted = Check { confidence, ..check(metric, stat, op, 0.5) };
                    assert_eq!(ruled(&wanted, Vec::new()).ruling, Ruling::Fail, "{metric} {stat:?} {op}");
                    let lax = Check { no_data: NoData::Inconclusive, ..wanted };
                    assert_eq!(ruled(&lax, Vec::new()).ruling, Ruling::Inconclusive);
                }
            }
        }
        let told = Check { no_data: NoData::Pass, ..check(Metric::Ttft, P99, Op::Less, 1.0) };
        assert_eq!(ruled(&told, vec![failed()]).note.as_deref(), Some("no data: passes only because of `no_data: pass`"));
    }

    #[test]
    fn nothing_passes_a_limit_that_is_no_number() {
        for op in [Op::Less, Op::AtMost, Op::More, Op::AtLeast, Op::Equal, Op::Unequal] {
            for (metric, stat) in [(Metric::Ttft, P99), (Metric::Ttft, Some(Stat::Mean)), (Metric::ErrorRate, None)] {
                let seen = ruled(&check(metric, stat, op, f64::NAN), latencies((0..500).map(f64::from)));
                assert_eq!(seen.ruling, Ruling::Fail, "{metric} {op}");
            }
        }
    }

    #[test]
    fn the_quantile_among_the_failed_is_beyond_any_limit() {
        let wanted = Check { of: Of::Scheduled, ..check(Metric::Ttft, P99, Op::Less, 10.0) };
        let seen = ruled(&wanted, latencies([1.0; 90]).into_iter().chain(vec![failed(); 10]).collect());
        assert_eq!((seen.ruling, seen.observed), (Ruling::Fail, Some(f64::INFINITY)));
        assert!(seen.note.unwrap().contains("failed requests"));
    }

    #[test]
    fn the_case_figures_are_points() {
        let mut sample = sample(latencies([1.0]));
        sample.scalars.insert(Metric::ConcurrencyMean, 7.0);
        let seen = rule(&check(Metric::ConcurrencyMean, None, Op::More, 6.0), &sample, true, Seed(1));
        assert_eq!((seen.ruling, seen.observed, seen.n), (Ruling::Pass, Some(7.0), 1));
    }

    #[test]
    fn a_limit_at_the_true_quantile_passes_no_more_often_than_allowed() {
        // Exponential values: the true p95 is −ln 0.05. Standing exactly there, a limit is wrongly passed or failed.
        let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(3);
        let wanted = check(Metric::Ttft, Some(Stat::Quantile(0.95)), Op::Less, -(0.05f64.ln()));
        let mut wrong = [0; 2];
        for _ in 0..2000 {
            let draw = latencies((0..120).map(|_| -(1.0 - rng.random_range(0.0..1.0f64)).ln()));
            let ruling = ruled(&wanted, draw).ruling;
            wrong[0] += u32::from(ruling == Ruling::Pass);
            wrong[1] += u32::from(ruling == Ruling::Fail);
        }
        assert!(wrong.iter().all(|&count| (20..=129).contains(&count)), "{wrong:?} of 2000");
    }

    proptest! {
        #[test]
        fn goodput_and_the_quantile_over_all_scheduled_agree(
            values in prop::collection::vec(prop::option::weighted(0.97, 0.0..100.0f64), 1..600), limit in 50.0..120.0f64,
            percent in prop::sample::select(vec![50.0, 90.0, 95.0, 99.0, 99.9, 100.0]),
        ) {
            let share = percent / 100.0;
            let rows = sample(values.into_iter().map(|value| value.map_or_else(failed, |value| ok(Metric::Ttft, value))).collect());
            let by_quantile = Check { of: Of::Scheduled, ..check(Metric::Ttft, Some(Stat::Quantile(share)), Op::Less, limit) };
            let by_goodput = goodput(vec![RequestLimit { metric: Metric::Ttft, op: Op::Less, limit }], Op::AtLeast, share);
            let verdicts = [by_quantile, by_goodput].map(|check| rule(&check, &rows, true, Seed(1)));
            prop_assert_eq!(verdicts[0].ruling, verdicts[1].ruling);
            prop_assert_eq!(verdicts[0].need, verdicts[1].need);
        }

        #[test]
        fn a_verdict_repeats(values in prop::collection::vec(0.0..100.0f64, 2..40), limit in 0.0..100.0f64) {
            let wanted = check(Metric::Ttft, Some(Stat::Mean), Op::Less, limit);
            prop_assert_eq!(ruled(&wanted, latencies(values.clone())), ruled(&wanted, latencies(values)));
        }
    }
}
