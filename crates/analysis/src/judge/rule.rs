//! One check of one case, ruled.

use crate::judge::assessment::Opinion;
use crate::judge::conditions::{Conditions, LoadKind};
use crate::judge::counted::{Samples, stricter};
use crate::judge::evidence::{self, Evidence, goodput_flags};
use crate::judge::not_measured::is_of_startup;
use crate::judge::{bounded as histogram, design_effect, point, quantile, ratio, relative, share};
use llmscen_core::check::{Check, Confidence, NoData, Of, RequestLimit, Ruling, Subject, Verdict};
use llmscen_core::metric::{Metric, Scope, Stat};
use llmscen_core::sample::Sample;
use llmscen_core::stats::quantile::rank;

/// The note of a verdict that the self-audit invalidates.
pub const REJECTED: &str = "not judged: the self-audit failed";

/// A quantile of a rarer tail than this rests on few samples, and how many are usual for one.
const RARE: (f64, u64) = (0.0100001, 1000);

/// Effective samples of the median from which on the memory of an open loop is short beside its run.
const FORGETS: f64 = 100.0;

/// Rules on a check by a sample. Where the self-audit failed every ruling is invalid, the numbers stay.
pub fn rule(check: &Check, sample: &Sample, conditions: &Conditions) -> Verdict {
    let opinion = opinion(check, sample, conditions);
    let valid = conditions.valid;
    let ran = !sample.rows.is_empty() || sample.counts.warmup > 0;
    let why = if ran { REJECTED } else { "did not run" };
    let valid = valid || is_of_startup(check) && opinion.observed.is_some();
    let audit = (!valid).then_some(why);
    let Opinion { ruling, observed, bound, n, effective_n, need, note } = opinion.noted(audit);
    let (ruling, need) = if valid { (ruling, need) } else { (Ruling::Invalid, None) };
    Verdict { check: check.clone(), ruling, observed, bound, n, effective_n, need, note }
}

fn opinion(check: &Check, sample: &Sample, conditions: &Conditions) -> Opinion {
    if let Some((seen, n)) = evidence::bounded(check, sample) {
        return histogram::judge(check, seen, n);
    }
    let mut evidence = Evidence::of(check, sample);
    let (Some(observed), n) = point::estimate(&mut evidence) else { return without_data(check, sample) };
    let lost = observed.is_infinite().then_some("the value lies among the failed requests, which break any limit");
    if let Some(own) = &check.relative {
        let dependence = design_effect::dependence(check, sample, &evidence, observed);
        return relative::judge(check, own, evidence, (observed, n, dependence)).noted(lost);
    }
    let samples = |evidence: &Evidence, level| {
        let dependence = design_effect::dependence(check, sample, evidence, observed);
        // Gaps may be millions, and the median is looked for last.
        let bounded = match conditions.load {
            LoadKind::FixedUsers => bounded(check, sample),
            LoadKind::Arrivals => !dependence.long && bounded(check, sample) && forgets(check, sample, evidence, level),
            LoadKind::Other => false,
        };
        let too_short = conditions.load == LoadKind::Arrivals && dependence.long;
        Samples { bounded, too_short, ..Samples::new(n, dependence, level) }
    };
    let compared = Opinion::point(check.op.holds(observed, check.limit), observed, n);
    let judged = match (check.confidence, point::reason(check, &evidence)) {
        (Confidence::Point, _) => compared,
        // Nothing holds for a limit that is not a number.
        _ if check.limit.is_nan() => compared,
        (Confidence::Level(_), Some(reason)) => compared.noted(Some(reason)),
        (Confidence::Level(level), None) => match evidence {
            Evidence::Values(_, Stat::Quantile(p)) => {
                let samples = samples(&evidence, level);
                let Evidence::Values(values, _) = evidence else { return compared };
                quantile::judge(check, values, p, (samples, level))
            }
            Evidence::Share { hits, .. } => {
                let samples = samples(&evidence, level);
                let strict = samples.margin().and_then(|margin| strict_hits(check, sample, margin));
                share::judge(check, hits, strict, (samples, level))
            }
            Evidence::Ratio(units) => ratio::judge(check, &units, observed, level),
            Evidence::Values(..) | Evidence::Figure(..) => compared,
        },
    };
    let few = few(check, &judged);
    judged.noted(lost.map(str::to_owned).or(few))
}

/// A verdict on a p99 from few samples says so: it is right, and yet no figure to publish.
fn few(check: &Check, opinion: &Opinion) -> Option<String> {
    let Subject::Metric { stat: Some(Stat::Quantile(p)), .. } = check.subject else { return None };
    let (tail, usual) = RARE;
    let decided = matches!(opinion.ruling, Ruling::Pass | Ruling::Fail) && opinion.bound.is_some();
    (decided && opinion.note.is_none() && opinion.n < usual && p.min(1.0 - p) <= tail && 0.0 < p && p < 1.0).then(|| {
        format!("decided by {} samples; draft-gaikwad-llm-benchmarking-methodology asks for at least {usual}", opinion.n)
    })
}

/// Whether users bound what correlates the samples of a check: not the steps of a batch, from which gaps come, and not failures.
fn bounded(check: &Check, sample: &Sample) -> bool {
    let gaps = matches!(&check.subject, Subject::Metric { metric, .. } if metric.per() == Scope::Gap);
    let with_failed = matches!(&check.subject, Subject::Goodput(_)) || check.of == Of::Scheduled;
    !gaps && (!with_failed || sample.rows.iter().all(|row| row.ok || row.left))
}

/// Whether the queue of an open loop forgets within a small part of the run. The requests above the median show that better than the
/// few above a high quantile.
fn forgets(check: &Check, sample: &Sample, evidence: &Evidence, level: f64) -> bool {
    let Evidence::Values(values, _) = evidence else { return false };
    let middle = quantile::at(&mut values.clone(), rank(values.len(), 0.5));
    middle.is_some_and(|middle| {
        let dependence = design_effect::dependence(check, sample, evidence, middle);
        !dependence.long && values.len() as f64 / dependence.effect(level) >= FORGETS
    })
}

/// Requests that meet every limit of a goodput by a margin too; None for a limit that has no such.
fn strict_hits(check: &Check, sample: &Sample, margin: f64) -> Option<u64> {
    let Subject::Goodput(limits) = &check.subject else { return None };
    let limits: Vec<RequestLimit> =
        limits.iter().map(|one| RequestLimit { limit: stricter(one.op, one.limit, margin), ..*one }).collect();
    let hits = || goodput_flags(&sample.rows, &limits).into_iter().filter(|good| *good).count() as u64;
    (!check.op.is_ceiling()).then(hits)
}

fn without_data(check: &Check, sample: &Sample) -> Opinion {
    const NO_WINDOW: &str =
        "sending stopped before any request had succeeded, so there is no throughput: send more requests, or measure for longer";
    let (ruling, note) = match check.no_data {
        NoData::Fail if has_no_window(check, sample) => (Ruling::Inconclusive, NO_WINDOW),
        NoData::Fail => (Ruling::Fail, "no data"),
        NoData::Inconclusive => (Ruling::Inconclusive, "no data"),
        NoData::Pass => (Ruling::Pass, "no data: passes only because of `no_data: pass`"),
    };
    Opinion { ruling, observed: None, bound: None, n: 0, effective_n: None, need: None, note: Some(note.into()) }
}

/// Whether a throughput is missing although requests succeeded.
fn has_no_window(check: &Check, sample: &Sample) -> bool {
    let windowed = matches!(&check.subject, Subject::Metric { metric, .. } if Metric::WINDOWED.contains(metric));
    windowed && sample.rows.iter().any(|row| row.ok) && !sample.sending.is_empty() && sample.sending.iter().all(|own| *own <= 0.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::fixture::{check, conditions, failed, goodput, ok, sample};
    use llmscen_core::check::Op;
    use llmscen_core::sample::Row;
    use llmscen_core::signal::Signal;
    use llmscen_core::telemetry::SignalStat;
    use proptest::prelude::*;
    use rand::{RngExt, SeedableRng};

    const P99: Option<Stat> = Some(Stat::Quantile(0.99));

    #[test]
    fn a_throughput_without_a_window_is_not_decided() {
        let mut seen = sample(latencies([9.0; 20]));
        seen.sending = vec![0.0];
        let of = |metric, seen: &Sample| rule(&check(metric, None, Op::AtLeast, 1.0), seen, &conditions(true));
        let verdict = of(Metric::OutputTps, &seen);
        assert_eq!((verdict.ruling, verdict.observed), (Ruling::Inconclusive, None));
        assert!(verdict.note.unwrap().starts_with("sending stopped before any request had succeeded"));
        assert_eq!(of(Metric::OutputTps, &sample(vec![failed()])).ruling, Ruling::Fail, "no request succeeded");
        assert_eq!(of(Metric::Mfu, &seen).ruling, Ruling::Fail, "a figure that has no window");
    }

    #[test]
    fn a_p99_of_fewer_than_a_thousand_samples_says_so() {
        let note = |p: f64, n: u32| {
            let wanted = check(Metric::Ttft, Some(Stat::Quantile(p)), Op::Less, 1e9);
            ruled(&wanted, latencies((0..n).map(f64::from).map(|value| (value * 617.0) % 1009.0))).note
        };
        let known = "decided by 999 samples; draft-gaikwad-llm-benchmarking-methodology asks for at least 1000";
        assert_eq!(note(0.99, 999).as_deref(), Some(known));
        assert_eq!([note(0.99, 1000), note(0.95, 999), note(0.99, 298)], [None, None, None]);
    }

    fn ruled(check: &Check, rows: Vec<Row>) -> Verdict {
        rule(check, &sample(rows), &conditions(true))
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
        let verdict = rule(&wanted, &seen, &conditions(true));
        assert_eq!((verdict.ruling, verdict.observed, verdict.bound, verdict.n), (Ruling::Fail, Some(12.0), None, 3));
        assert_eq!(verdict.note.as_deref(), Some("compared as a point: samples of a signal follow each other"));
    }

    #[test]
    fn the_gaps_of_one_request_prove_nothing() {
        let rows = vec![Row { gaps: vec![1.0; 1000], ..ok(Metric::Ttft, 1.0) }];
        let seen = ruled(&check(Metric::Itl, P99, Op::Less, 10.0), rows);
        let note = "1000 correlated samples carry the information of about 1; a verdict needs 20";
        assert_eq!((seen.ruling, seen.n, seen.note.as_deref()), (Ruling::Inconclusive, 1000, Some(note)));
    }

    #[test]
    fn a_failed_audit_invalidates_but_keeps_the_numbers() {
        let wanted = check(Metric::ErrorRate, None, Op::Less, 0.5);
        let seen = rule(&wanted, &sample(latencies([1.0; 40])), &conditions(false));
        assert_eq!((seen.ruling, seen.observed, seen.n), (Ruling::Invalid, Some(0.0), 40));
        assert_eq!(seen.note.as_deref(), Some(REJECTED));
        let mut none = sample(Vec::new());
        let note = |none: &Sample| rule(&wanted, none, &conditions(false)).note.unwrap();
        assert_eq!(note(&none), "did not run");
        none.counts.warmup = 1;
        assert_eq!(note(&none), REJECTED);
    }

    #[test]
    fn the_start_of_the_server_is_judged_whatever_the_load_generator_did() {
        let mut seen = sample(latencies([1.0; 40]));
        let wanted = check(Metric::Startup, None, Op::Less, 5.0);
        assert_eq!(rule(&wanted, &seen, &conditions(false)).ruling, Ruling::Invalid, "no start was measured");
        seen.scalars.insert(Metric::Startup, 7.0);
        let verdict = rule(&wanted, &seen, &conditions(false));
        assert_eq!((verdict.ruling, verdict.observed), (Ruling::Fail, Some(7.0)));
    }

    #[test]
    fn no_check_passes_without_data_unless_it_was_told_to() {
        for &metric in Metric::ALL {
            let stats: &[Option<Stat>] = match metric.per() {
                Scope::Case => &[None],
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
        let seen = ruled(&wanted, (0..100).map(|k| if k % 10 == 3 { failed() } else { ok(Metric::Ttft, 1.0) }).collect());
        assert_eq!((seen.ruling, seen.observed), (Ruling::Fail, Some(f64::INFINITY)));
        assert!(seen.note.unwrap().contains("failed requests"));
    }

    #[test]
    fn the_case_figures_are_points() {
        let mut sample = sample(latencies([1.0]));
        sample.scalars.insert(Metric::ConcurrencyMean, 7.0);
        let seen = rule(&check(Metric::ConcurrencyMean, None, Op::More, 6.0), &sample, &conditions(true));
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
        assert!(wrong.iter().all(|&count| (5..=129).contains(&count)), "{wrong:?} of 2000");
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
            let verdicts = [by_quantile, by_goodput].map(|check| rule(&check, &rows, &conditions(true)));
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
