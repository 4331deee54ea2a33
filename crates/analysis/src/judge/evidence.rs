//! What a check is judged by, taken from the rows of a sample.

use crate::judge::ratio::{self, Units};
use crate::measured_requests::{MeasuredRequest, MeasuredRequests};
use crate::sample::{Sample, values};
use llmscen_core::check::{Check, Of, RequestLimit, Subject};
use llmscen_core::metric::{Metric, Stat};
use llmscen_core::telemetry::{Seen, SignalStat};

/// The evidence for one check.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Evidence {
    /// Values whose quantile or extreme is limited, in no order.
    Values(Vec<f64>, Stat),
    /// A share of requests.
    Share {
        /// Requests that count towards it.
        hits: u64,
        /// Requests.
        n: u64,
    },
    /// A ratio of sums.
    Ratio(Units),
    /// A figure of the whole case, and the requests behind it; None where it does not exist.
    Figure(Option<f64>, u64),
}

impl Evidence {
    /// The evidence for a check in a sample.
    pub(super) fn of(check: &Check, sample: &Sample) -> Evidence {
        match &check.subject {
            Subject::Signal { signal, stat } => of_signal(sample.signals.get(signal), *stat),
            Subject::Goodput(limits) => share(goodput_flags(&sample.requests, limits).into_iter()),
            Subject::Metric { metric, stat, tags } => {
                let requests: Vec<MeasuredRequest<'_>> =
                    sample.requests.iter().filter(|request| request.tags().match_all(tags)).collect();
                match (metric, stat) {
                    // One request without an end has no finite mean with any others, and nothing is there to draw from.
                    (_, Some(Stat::Mean))
                        if check.of == Of::Ok || requests.iter().all(|request| request.ok() || request.left()) =>
                    {
                        Evidence::Ratio(ratio::mean_units(&requests, *metric))
                    }
                    (_, Some(stat)) => Evidence::Values(limited_values(&requests, *metric, check), *stat),
                    (Metric::ErrorRate, None) => share(kept(requests.iter().copied()).map(|request| !request.ok())),
                    (metric, None) => figure(&requests, *metric, sample, tags),
                }
            }
        }
    }
}

/// A statistic of a signal: neighbouring samples are alike, and no number of them bounds it.
fn of_signal(seen: Option<&SignalStat>, stat: Stat) -> Evidence {
    let Some(seen) = seen else { return Evidence::Figure(None, 0) };
    Evidence::Figure(seen.at(stat).and_then(Seen::value), seen.n)
}

/// What a histogram knows of a statistic where it knows a bound of it alone, and how much it counted.
pub(super) fn bounded(check: &Check, sample: &Sample) -> Option<(Seen, u64)> {
    let Subject::Signal { signal, stat } = &check.subject else { return None };
    let own = sample.signals.get(signal)?;
    let seen = own.at(*stat)?;
    seen.value().is_none().then_some((seen, own.n))
}

/// Whether each request is ok and meets every limit, in the order of the requests, without those that the client cancelled.
pub fn goodput_flags(requests: &MeasuredRequests, limits: &[RequestLimit]) -> Vec<bool> {
    kept(requests.iter()).map(|request| request.meets(limits)).collect()
}

/// The requests that the client did not cancel.
fn kept<'a>(requests: impl Iterator<Item = MeasuredRequest<'a>>) -> impl Iterator<Item = MeasuredRequest<'a>> {
    requests.filter(|request| !request.left())
}

fn share(flags: impl Iterator<Item = bool>) -> Evidence {
    let (hits, n) = flags.fold((0, 0), |(hits, n), flag| (hits + u64::from(flag), n + 1));
    Evidence::Share { hits, n }
}

/// Values of ok requests; with `of: scheduled` also of failed ones, which exceed any limit.
fn limited_values(requests: &[MeasuredRequest<'_>], metric: Metric, check: &Check) -> Vec<f64> {
    let mut values = values(requests, metric);
    if check.of == Of::Scheduled {
        let worst = if check.op.is_ceiling() { f64::INFINITY } else { f64::NEG_INFINITY };
        values.extend(kept(requests.iter().copied()).filter(|request| !request.ok()).map(|_| worst));
    }
    values
}

fn figure(requests: &[MeasuredRequest<'_>], metric: Metric, sample: &Sample, tags: &[(String, String)]) -> Evidence {
    let known = sample.scalars.get(&metric).copied();
    match ratio::throughput_units(requests, metric, sample, tags) {
        Some(units) => Evidence::Ratio(units),
        // Other figures are of the case as a whole and not of some of its rows.
        None => Evidence::Figure(known.filter(|_| tags.is_empty()), requests.len() as u64),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::TestRequest;
    use crate::judge::fixture::{check, failed, ok, sample};
    use llmscen_core::check::Op;

    fn of(check: &Check, rows: Vec<TestRequest>) -> Evidence {
        Evidence::of(check, &sample(rows))
    }

    #[test]
    fn failed_rows_break_any_limit_where_all_scheduled_count() {
        let mut wanted = check(Metric::Ttft, Some(Stat::Max), Op::Less, 5.0);
        let rows = || vec![ok(Metric::Ttft, 4.0), failed()];
        assert_eq!(of(&wanted, rows()), Evidence::Values(vec![4.0], Stat::Max));
        wanted.of = Of::Scheduled;
        assert_eq!(of(&wanted, rows()), Evidence::Values(vec![4.0, f64::INFINITY], Stat::Max));
        wanted.op = Op::More;
        assert_eq!(of(&wanted, rows()), Evidence::Values(vec![4.0, f64::NEG_INFINITY], Stat::Max));
    }

    #[test]
    fn a_mean_over_all_scheduled_knows_of_the_failed_ones() {
        let wanted = Check { of: Of::Scheduled, ..check(Metric::Ttft, Some(Stat::Mean), Op::Less, 5.0) };
        assert_eq!(of(&wanted, vec![ok(Metric::Ttft, 4.0), failed()]), Evidence::Values(vec![4.0, f64::INFINITY], Stat::Mean));
        assert!(matches!(of(&wanted, vec![ok(Metric::Ttft, 4.0)]), Evidence::Ratio(_)));
    }

    #[test]
    fn users_who_left_are_no_errors_and_count_for_what_they_saw() {
        let left = TestRequest { left: true, ok: false, ..ok(Metric::Ttft, 9.0) };
        let rows = || vec![ok(Metric::Ttft, 4.0), left.clone(), failed()];
        let errors = check(Metric::ErrorRate, None, Op::Less, 0.1);
        assert_eq!(of(&errors, rows()), Evidence::Share { hits: 1, n: 2 });
        let limits = [RequestLimit { metric: Metric::Ttft, op: Op::Less, limit: 99.0 }];
        assert_eq!(goodput_flags(&sample(rows()).requests, &limits), [true, false]);
        let scheduled = |metric, stat| Check { of: Of::Scheduled, ..check(metric, Some(stat), Op::Less, 5.0) };
        let worst = f64::INFINITY;
        assert_eq!(of(&scheduled(Metric::Ttft, Stat::Max), rows()), Evidence::Values(vec![4.0, 9.0, worst], Stat::Max));
        assert_eq!(of(&scheduled(Metric::E2e, Stat::Max), vec![left.clone()]), Evidence::Values(vec![], Stat::Max));
        let Evidence::Ratio(mean) = of(&scheduled(Metric::Ttft, Stat::Mean), rows()[..2].to_vec()) else { panic!("a mean") };
        assert_eq!((mean.n, mean.observed), (2, Some(6.5)));
    }

    #[test]
    fn tags_leave_out_the_other_rows() {
        let mut wanted = check(Metric::ErrorRate, None, Op::Less, 0.1);
        let rows = || {
            vec![
                TestRequest { model: "a".into(), ..failed() },
                TestRequest { round: 1, model: "b".into(), ..ok(Metric::Ttft, 1.0) },
            ]
        };
        let mut with = |tag: &str, value: &str| {
            let Subject::Metric { tags, .. } = &mut wanted.subject else { unreachable!() };
            *tags = vec![(tag.into(), value.into())];
            of(&wanted, rows())
        };
        assert_eq!(with("model", "a"), Evidence::Share { hits: 1, n: 1 });
        assert_eq!(with("round", "1"), Evidence::Share { hits: 0, n: 1 });
        assert_eq!(with("colour", "red"), Evidence::Share { hits: 0, n: 0 });
    }

    #[test]
    fn gaps_pool_over_requests() {
        let row = |gaps: &[f64]| TestRequest { gaps: gaps.to_vec(), ..ok(Metric::Ttft, 1.0) };
        let wanted = check(Metric::Itl, Some(Stat::Quantile(0.5)), Op::Less, 5.0);
        let seen = of(&wanted, vec![row(&[1.0, 2.0]), row(&[]), row(&[3.0])]);
        assert_eq!(seen, Evidence::Values(vec![1.0, 2.0, 3.0], Stat::Quantile(0.5)));
    }
}
