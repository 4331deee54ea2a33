//! The values of a sample that a check is judged by, and their point estimate.

use crate::judge::ratio::{self, Units};
use crate::measured_requests::{MeasuredRequest, MeasuredRequests};
use crate::sample::{Sample, values};
use llmscen_core::check::{Check, Op, RequestLimit, RequestSet, Subject};
use llmscen_core::metric::{Metric, Sensitivity, Stat};
use llmscen_core::stats::{moments, quantile};
use llmscen_core::telemetry::{SignalStat, StatValue};

/// The evidence for a check.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Evidence {
    /// Unordered values with the statistic that the check limits.
    Values(Vec<f64>, Stat),
    /// A share of requests.
    Share {
        /// Requests that count towards the share.
        hits: u64,
        /// Requests.
        n: u64,
    },
    /// A ratio of sums.
    Ratio(Units),
    /// A value of the whole case, None where it does not exist, and the number of requests.
    Figure(Option<f64>, u64),
}

impl Evidence {
    pub(super) fn collect(check: &Check, sample: &Sample) -> Evidence {
        match &check.subject {
            Subject::Signal { signal, stat, role } => {
                signal_evidence(sample.signal(*signal, role.as_deref()), *stat)
            }
            Subject::PageMetric(metric) => {
                let (value, n) = sample.page.get(metric).copied().unzip();
                Evidence::Figure(value, n.unwrap_or_default())
            }
            subject if subject.is_share() => share_evidence(subject, sample),
            Subject::Goodput(_) | Subject::Finish { .. } => Evidence::Figure(None, 0),
            Subject::Metric { metric, stat, tags } => {
                let requests: Vec<MeasuredRequest<'_>> = sample
                    .requests
                    .iter()
                    .filter(|request| request.tags().match_all(tags))
                    .collect();
                match (metric, stat) {
                    // With a failed request, which counts as infinite, there is no finite mean.
                    (_, Some(Stat::Mean))
                        if check.of == RequestSet::Ok
                            || requests
                                .iter()
                                .all(|request| request.ok() || request.left()) =>
                    {
                        Evidence::Ratio(ratio::mean_units(&requests, *metric))
                    }
                    (_, Some(stat)) => {
                        Evidence::Values(limited_values(&requests, *metric, check), *stat)
                    }
                    (metric, None) => figure(&requests, *metric, sample, tags),
                }
            }
        }
    }
}

/// A statistic of a signal. It has no bound: samples of a signal are correlated.
fn signal_evidence(seen: Option<&SignalStat>, stat: Stat) -> Evidence {
    let Some(seen) = seen else {
        return Evidence::Figure(None, 0);
    };
    Evidence::Figure(seen.at(stat).and_then(StatValue::value), seen.n)
}

/// The bound that a histogram gives of a statistic where it does not give its value, and the histogram's count.
pub(super) fn histogram_bound(check: &Check, sample: &Sample) -> Option<(StatValue, u64)> {
    let Subject::Signal { signal, stat, role } = &check.subject else {
        return None;
    };
    let signal = sample.signal(*signal, role.as_deref())?;
    let seen = signal.at(*stat)?;
    seen.value().is_none().then_some((seen, signal.n))
}

/// Whether each request is ok and meets every limit, in the order of the requests, without those that the client
/// cancelled and those for which it is not measured.
pub fn goodput_flags(requests: &MeasuredRequests, limits: &[RequestLimit]) -> Vec<bool> {
    kept(requests.iter())
        .filter_map(|request| request.meets(limits))
        .collect()
}

/// The requests that the client did not cancel.
fn kept<'a>(
    requests: impl Iterator<Item = MeasuredRequest<'a>>,
) -> impl Iterator<Item = MeasuredRequest<'a>> {
    requests.filter(|request| !request.left())
}

/// The share of the requests that a check selects. A server that sends no finish reason at all has no shares of them.
fn share_evidence(subject: &Subject, sample: &Sample) -> Evidence {
    let selected = || {
        let requests = sample.requests.iter();
        requests.filter(|request| request.tags().match_all(subject.tags()))
    };
    let is_known = !matches!(subject, Subject::Finish { .. })
        || selected().any(|request| request.finish_reason().is_some());
    let flags = selected().filter_map(|request| request.is_hit_of(subject).filter(|_| is_known));
    let (hits, n) = flags.fold((0, 0), |(hits, n), flag| (hits + u64::from(flag), n + 1));
    Evidence::Share { hits, n }
}

/// Whether a request without a value exceeds any limit of this check.
pub(super) fn exceeds_any_limit(
    request: MeasuredRequest<'_>,
    metric: Metric,
    check: &Check,
) -> bool {
    // Only a quantile does not depend on how long they would have waited.
    let is_quantile = matches!(
        check.subject,
        Subject::Metric {
            stat: Some(Stat::Quantile(_)),
            ..
        }
    );
    let never_answered = metric == Metric::TimeToFirstAnswer && request.reasoning_alone();
    never_answered
        || !request.ok()
            && !request.left()
            && (check.of == RequestSet::Scheduled
                || is_quantile
                    && metric.sensitivity() == Sensitivity::Latency
                    && request.was_held_to_the_end())
}

/// Values of ok requests; with `of: scheduled` also of failed ones, which exceed any limit. So do arrivals that were
/// held until sending ended: they waited longer than those that were sent.
fn limited_values(requests: &[MeasuredRequest<'_>], metric: Metric, check: &Check) -> Vec<f64> {
    let mut values = values(requests, metric);
    let worst = if check.op.is_ceiling() {
        f64::INFINITY
    } else {
        f64::NEG_INFINITY
    };
    values.extend(
        requests
            .iter()
            .filter(|request| exceeds_any_limit(**request, metric, check))
            .map(|_| worst),
    );
    values
}

fn figure(
    requests: &[MeasuredRequest<'_>],
    metric: Metric,
    sample: &Sample,
    tags: &[(String, String)],
) -> Evidence {
    let known = sample.scalars.get(&metric).copied();
    match ratio::throughput_units(requests, metric, sample, tags) {
        Some(units) => Evidence::Ratio(units),
        // Other values belong to the case as a whole and not to selected requests.
        None => Evidence::Figure(known.filter(|_| tags.is_empty()), requests.len() as u64),
    }
}

/// The point estimate, None without data, and the number of samples. Reorders the values.
pub(super) fn estimate(evidence: &mut Evidence) -> (Option<f64>, u64) {
    match evidence {
        Evidence::Values(values, stat) => (statistic(values, *stat), values.len() as u64),
        Evidence::Share { hits, n } => ((*n > 0).then(|| *hits as f64 / *n as f64), *n),
        Evidence::Ratio(units) => (units.observed, units.n),
        Evidence::Figure(figure, n) => (*figure, *n),
    }
}

fn statistic(values: &mut [f64], stat: Stat) -> Option<f64> {
    match stat {
        _ if values.is_empty() => None,
        Stat::Quantile(p) => quantile::select_quantile(values, p),
        Stat::Mean => moments::mean(values),
        Stat::Min => values.iter().copied().reduce(f64::min),
        Stat::Max => values.iter().copied().reduce(f64::max),
        Stat::Count => Some(values.len() as f64),
        // Failed requests count as infinite.
        Stat::Sd => values
            .iter()
            .copied()
            .find(|value| value.is_infinite())
            .or_else(|| moments::sd(values)),
    }
}

/// Why a check with a confidence level is only compared as a point estimate; None where it has a test.
pub(super) fn point_only_reason(check: &Check, evidence: &Evidence) -> Option<&'static str> {
    let is_inner = |share: f64| 0.0 < share && share < 1.0;
    match evidence {
        _ if matches!(check.op, Op::Equal | Op::Unequal) => {
            Some("point estimate only: equality cannot be tested at a confidence level")
        }
        _ if matches!(
            check.subject,
            Subject::Signal { .. } | Subject::PageMetric(_)
        ) =>
        {
            Some(
                "point estimate only: telemetry samples are correlated, so no confidence bound is given",
            )
        }
        Evidence::Values(_, Stat::Quantile(p)) if is_inner(*p) => None,
        Evidence::Values(_, Stat::Quantile(_) | Stat::Min | Stat::Max) => {
            Some("point estimate only: a minimum or maximum has no confidence bound")
        }
        Evidence::Values(..) => Some("point estimate only: this statistic has no confidence bound"),
        Evidence::Share { .. } if is_inner(check.limit) => None,
        Evidence::Share { .. } => {
            Some("point estimate only: no number of samples proves a share of 0 % or 100 %")
        }
        Evidence::Ratio(_) => None,
        Evidence::Figure(..) => Some("point estimate only: a case has one such value"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::TestRequest;
    use crate::judge::fixture::{check, failed, ok, sample};

    fn of(check: &Check, rows: Vec<TestRequest>) -> Evidence {
        Evidence::collect(check, &sample(rows))
    }

    #[test]
    fn failed_rows_break_any_limit_where_all_scheduled_count() {
        let mut wanted = check(Metric::Ttft, Some(Stat::Max), Op::Less, 5.0);
        let rows = || vec![ok(Metric::Ttft, 4.0), failed()];
        assert_eq!(of(&wanted, rows()), Evidence::Values(vec![4.0], Stat::Max));
        wanted.of = RequestSet::Scheduled;
        assert_eq!(
            of(&wanted, rows()),
            Evidence::Values(vec![4.0, f64::INFINITY], Stat::Max)
        );
        wanted.op = Op::More;
        assert_eq!(
            of(&wanted, rows()),
            Evidence::Values(vec![4.0, f64::NEG_INFINITY], Stat::Max)
        );
    }

    #[test]
    fn an_arrival_that_was_held_to_the_end_exceeds_any_quantile() {
        let held = TestRequest {
            values: vec![(Metric::HeldTime, 900.0)],
            ..failed()
        };
        let rows = || vec![ok(Metric::E2e, 4.0), failed(), held.clone()];
        let quantile = Stat::Quantile(0.5);
        assert_eq!(
            of(&check(Metric::E2e, Some(quantile), Op::Less, 5.0), rows()),
            Evidence::Values(vec![4.0, f64::INFINITY], quantile)
        );
        for (metric, stat) in [(Metric::E2e, Stat::Max), (Metric::E2eService, quantile)] {
            let rows = vec![ok(metric, 4.0), held.clone()];
            assert_eq!(
                of(&check(metric, Some(stat), Op::Less, 5.0), rows),
                Evidence::Values(vec![4.0], stat)
            );
        }
    }

    #[test]
    fn a_mean_over_all_scheduled_knows_of_the_failed_ones() {
        let wanted = Check {
            of: RequestSet::Scheduled,
            ..check(Metric::Ttft, Some(Stat::Mean), Op::Less, 5.0)
        };
        assert_eq!(
            of(&wanted, vec![ok(Metric::Ttft, 4.0), failed()]),
            Evidence::Values(vec![4.0, f64::INFINITY], Stat::Mean)
        );
        assert!(matches!(
            of(&wanted, vec![ok(Metric::Ttft, 4.0)]),
            Evidence::Ratio(_)
        ));
    }

    #[test]
    fn only_checked_answers_count_towards_their_share() {
        let valid = |flag: f64| ok(Metric::ValidRate, flag);
        let rows = || {
            vec![
                valid(1.0),
                valid(0.0),
                valid(1.0),
                ok(Metric::Ttft, 4.0),
                failed(),
            ]
        };
        let wanted = check(Metric::ValidRate, None, Op::AtLeast, 0.5);
        assert_eq!(of(&wanted, rows()), Evidence::Share { hits: 2, n: 3 });
        let wanted = check(Metric::MatchRate, None, Op::AtLeast, 0.5);
        assert_eq!(of(&wanted, rows()), Evidence::Share { hits: 0, n: 0 });
    }

    #[test]
    fn a_finish_reason_is_a_share_of_ok_requests() {
        let ended = |reason: &str| TestRequest {
            finish_reason: Some(reason.into()).filter(|reason: &String| !reason.is_empty()),
            ..ok(Metric::Ttft, 1.0)
        };
        let left = TestRequest {
            ok: false,
            left: true,
            ..ended("length")
        };
        let rows = || {
            let in_group = TestRequest {
                group: Some("chat".into()),
                ..ended("max_tokens")
            };
            let others = [ended("length"), ended("stop"), ended(""), failed()];
            [vec![in_group, left.clone()], others.to_vec()].concat()
        };
        let finish = |reason: &str, tags: &[(&str, &str)]| {
            let tags = tags
                .iter()
                .map(|(tag, value)| ((*tag).into(), (*value).into()));
            Check {
                subject: Subject::Finish {
                    reason: reason.into(),
                    tags: tags.collect(),
                },
                ..check(Metric::ErrorRate, None, Op::AtMost, 0.05)
            }
        };
        let share = |hits, n| Evidence::Share { hits, n };
        assert_eq!(of(&finish("length", &[]), rows()), share(2, 4));
        assert_eq!(of(&finish("max_tokens", &[]), rows()), share(1, 4));
        assert_eq!(of(&finish("tool_calls", &[]), rows()), share(0, 4));
        let of_chat = finish("length", &[("group", "chat")]);
        assert_eq!(of(&of_chat, rows()), share(1, 1));
        // A server that sends no reason has no share of one.
        assert_eq!(of(&finish("stop", &[]), vec![ended("")]), share(0, 0));
    }

    #[test]
    fn users_who_left_are_no_errors_and_count_for_what_they_saw() {
        let left = TestRequest {
            left: true,
            ok: false,
            ..ok(Metric::Ttft, 9.0)
        };
        let rows = || vec![ok(Metric::Ttft, 4.0), left.clone(), failed()];
        let errors = check(Metric::ErrorRate, None, Op::Less, 0.1);
        assert_eq!(of(&errors, rows()), Evidence::Share { hits: 1, n: 2 });
        let limits = [RequestLimit {
            metric: Metric::Ttft,
            op: Op::Less,
            limit: 99.0,
        }];
        assert_eq!(
            goodput_flags(&sample(rows()).requests, &limits),
            [true, false]
        );
        let scheduled = |metric, stat| Check {
            of: RequestSet::Scheduled,
            ..check(metric, Some(stat), Op::Less, 5.0)
        };
        let worst = f64::INFINITY;
        assert_eq!(
            of(&scheduled(Metric::Ttft, Stat::Max), rows()),
            Evidence::Values(vec![4.0, 9.0, worst], Stat::Max)
        );
        assert_eq!(
            of(&scheduled(Metric::E2e, Stat::Max), vec![left.clone()]),
            Evidence::Values(vec![], Stat::Max)
        );
        let Evidence::Ratio(mean) = of(&scheduled(Metric::Ttft, Stat::Mean), rows()[..2].to_vec())
        else {
            panic!("a mean")
        };
        assert_eq!((mean.n, mean.observed), (2, Some(6.5)));
    }

    #[test]
    fn tags_leave_out_the_other_rows() {
        let mut wanted = check(Metric::ErrorRate, None, Op::Less, 0.1);
        let rows = || {
            vec![
                TestRequest {
                    model: "a".into(),
                    ..failed()
                },
                TestRequest {
                    round: 1,
                    model: "b".into(),
                    ..ok(Metric::Ttft, 1.0)
                },
            ]
        };
        let mut with = |tag: &str, value: &str| {
            let Subject::Metric { tags, .. } = &mut wanted.subject else {
                unreachable!()
            };
            *tags = vec![(tag.into(), value.into())];
            of(&wanted, rows())
        };
        assert_eq!(with("model", "a"), Evidence::Share { hits: 1, n: 1 });
        assert_eq!(with("round", "1"), Evidence::Share { hits: 0, n: 1 });
        assert_eq!(with("colour", "red"), Evidence::Share { hits: 0, n: 0 });
    }

    #[test]
    fn gaps_pool_over_requests() {
        let row = |gaps: &[f64]| TestRequest {
            gaps: gaps.to_vec(),
            ..ok(Metric::Ttft, 1.0)
        };
        let wanted = check(Metric::Itl, Some(Stat::Quantile(0.5)), Op::Less, 5.0);
        let seen = of(&wanted, vec![row(&[1.0, 2.0]), row(&[]), row(&[3.0])]);
        assert_eq!(
            seen,
            Evidence::Values(vec![1.0, 2.0, 3.0], Stat::Quantile(0.5))
        );
    }

    #[test]
    fn every_statistic_of_a_few_values() {
        let of = |stat| statistic(&mut [3.0, 1.0, 2.0, 6.0], stat);
        let stats = [
            Stat::Quantile(0.5),
            Stat::Quantile(1.0),
            Stat::Mean,
            Stat::Min,
            Stat::Max,
            Stat::Count,
        ];
        assert_eq!(stats.map(of), [2.0, 6.0, 3.0, 1.0, 6.0, 4.0].map(Some));
        let lost = [Stat::Mean, Stat::Sd, Stat::Max]
            .map(|stat| statistic(&mut [1.0, f64::INFINITY], stat));
        assert_eq!(lost, [Some(f64::INFINITY); 3]);
        assert_eq!(
            (
                statistic(&mut [1.0], Stat::Sd),
                statistic(&mut [], Stat::Count)
            ),
            (None, None)
        );
    }

    #[test]
    fn only_evidence_with_a_bound_has_a_test() {
        let judged = |op, limit, evidence: &Evidence| {
            point_only_reason(&check(Metric::ErrorRate, None, op, limit), evidence).is_none()
        };
        let (share, quantile) = (
            Evidence::Share { hits: 0, n: 9 },
            Evidence::Values(vec![1.0], Stat::Quantile(0.9)),
        );
        assert!(judged(Op::Less, 0.01, &share) && judged(Op::Less, 5.0, &quantile));
        assert!(
            !judged(Op::AtMost, 0.0, &share)
                && !judged(Op::AtLeast, 1.0, &share)
                && !judged(Op::Equal, 5.0, &quantile)
        );
        assert!(!judged(
            Op::Less,
            5.0,
            &Evidence::Values(vec![1.0], Stat::Max)
        ));
        assert!(!judged(Op::Less, 5.0, &Evidence::Figure(Some(1.0), 1)));
    }
}
