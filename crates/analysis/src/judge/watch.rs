//! A check that is tested while its case runs, so that a failed one can abort it.

use crate::measured_requests::MeasuredRequest;
use llmscen_core::check::{Check, RequestSet, Subject};
use llmscen_core::metric::Scope;
use llmscen_core::stats::sequential::Sequential;

/// A sequential test of one check.
#[derive(Clone, Debug)]
pub struct Watch {
    check: Check,
    test: Sequential,
}

impl Watch {
    /// None where the check has no `abort`, or cannot fail early.
    pub fn new(check: &Check) -> Option<Watch> {
        let (abort, allowed) = (check.abort?, check.allowed()?);
        Some(Watch {
            check: check.clone(),
            test: Sequential::new(allowed, abort.alpha, abort.min_samples),
        })
    }

    /// Whether a request breaks the limit; None where the check does not apply to it.
    pub fn breaks(&self, request: MeasuredRequest<'_>) -> Option<bool> {
        let check = &self.check;
        match &check.subject {
            Subject::Signal { .. } | Subject::PageMetric(_) => None,
            subject if !request.tags().match_all(subject.tags()) => None,
            subject if subject.is_share() => request
                .is_hit_of(subject)
                .map(|hit| hit == check.op.is_ceiling()),
            // A request that its client cancelled is neither a success nor an error.
            Subject::Metric { metric, .. } if request.left() && !request.counts(*metric) => None,
            Subject::Goodput(_) | Subject::Finish { .. } => None,
            Subject::Metric { .. } if !request.ok() && !request.left() => {
                (check.of == RequestSet::Scheduled).then_some(true)
            }
            Subject::Metric { metric, .. } if metric.per() == Scope::Gap => {
                (!request.gaps().is_empty()).then(|| {
                    request
                        .gaps()
                        .iter()
                        .any(|&gap| !check.op.holds(gap, check.limit))
                })
            }
            Subject::Metric { metric, .. } => request
                .value(*metric)
                .map(|value| !check.op.holds(value, check.limit)),
        }
    }

    /// Adds the result of [`Watch::breaks`] for the next request; whether the check has failed now.
    pub fn add(&mut self, breaks: bool) -> bool {
        self.test.observe(breaks)
    }

    /// Adds sums of requests from several processes; see [`Sequential::observe_batch`].
    pub fn add_batch(&mut self, samples: u64, breaking: u64, pending: u64) -> bool {
        self.test.observe_batch(samples, breaking, pending)
    }

    /// Number of tested requests, and of those that broke the limit.
    pub fn counts(&self) -> (u64, u64) {
        self.test.counts()
    }

    /// The check.
    pub fn check(&self) -> &Check {
        &self.check
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::TestRequest;
    use crate::judge::fixture::{check, failed, goodput, ok, sample};
    use llmscen_core::check::{Abort, Op, RequestLimit};
    use llmscen_core::metric::{Metric, Stat};

    fn breaks(watch: &Watch, requests: impl IntoIterator<Item = TestRequest>) -> Vec<Option<bool>> {
        sample(requests.into_iter().collect())
            .requests
            .iter()
            .map(|request| watch.breaks(request))
            .collect()
    }

    fn quantile(metric: Metric, p: f64, op: Op) -> Check {
        check(metric, Some(Stat::Quantile(p)), op, 5.0)
    }

    fn watch(check: Check) -> Watch {
        Watch::new(&Check {
            abort: Some(Abort {
                min_samples: 1,
                alpha: 0.01,
            }),
            ..check
        })
        .unwrap()
    }

    #[test]
    fn a_request_breaks_a_limit_as_the_verdict_counts_it() {
        let slow = ok(Metric::Ttft, 9.0);
        let p95 = watch(quantile(Metric::Ttft, 0.95, Op::Less));
        assert_eq!(
            breaks(&p95, [ok(Metric::Ttft, 1.0), slow.clone(), failed()]),
            [Some(false), Some(true), None]
        );
        assert_eq!(
            breaks(&p95, [ok(Metric::E2e, 1.0)]),
            [None],
            "a value that does not exist is not judged"
        );
        let all = watch(Check {
            of: RequestSet::Scheduled,
            ..quantile(Metric::Ttft, 0.95, Op::Less)
        });
        assert_eq!(breaks(&all, [failed()]), [Some(true)]);
        let errors = watch(check(Metric::ErrorRate, None, Op::Less, 0.01));
        assert_eq!(
            breaks(&errors, [slow.clone(), failed()]),
            [Some(false), Some(true)]
        );
        let left = TestRequest {
            ok: false,
            left: true,
            ..slow.clone()
        };
        let both = [breaks(&p95, [left.clone()]), breaks(&errors, [left])].concat();
        assert_eq!(
            both,
            [Some(true), None],
            "it saw its first token, and did not fail"
        );
        let limit = RequestLimit {
            metric: Metric::Ttft,
            op: Op::Less,
            limit: 5.0,
        };
        let good = watch(goodput(vec![limit], Op::AtLeast, 0.9));
        assert_eq!(
            breaks(&good, [ok(Metric::Ttft, 1.0), slow.clone(), failed()]),
            [false, true, true].map(Some)
        );
        let finish = watch(Check {
            subject: Subject::Finish {
                reason: "length".into(),
                tags: Vec::new(),
            },
            ..check(Metric::ErrorRate, None, Op::AtMost, 0.05)
        });
        let cut = TestRequest {
            finish_reason: Some("max_tokens".into()),
            ..slow.clone()
        };
        assert_eq!(
            breaks(&finish, [cut, slow.clone(), failed()]),
            [Some(true), Some(false), None]
        );
        let gaps = watch(check(Metric::Itl, Some(Stat::Max), Op::Less, 5.0));
        let paced = |gaps: &[f64]| TestRequest {
            gaps: gaps.to_vec(),
            ..slow.clone()
        };
        assert_eq!(
            breaks(&gaps, [paced(&[1.0, 6.0]), paced(&[1.0]), paced(&[])]),
            [Some(true), Some(false), None]
        );
        let mut tagged = quantile(Metric::Ttft, 0.95, Op::Less);
        let Subject::Metric { tags, .. } = &mut tagged.subject else {
            unreachable!()
        };
        tags.push(("model".into(), "a".into()));
        assert_eq!(breaks(&watch(tagged), [slow]), [None]);
    }

    #[test]
    fn a_lost_limit_is_lost_at_the_request_that_proves_it() {
        let mut p95 = watch(quantile(Metric::Ttft, 0.95, Op::Less));
        let lost = (1..=100).find(|_| p95.add(true)).unwrap();
        assert_eq!((p95.counts(), p95.check().op), ((lost, lost), Op::Less));
        assert!(
            (8..=12).contains(&lost),
            "{lost}: each may share its luck with two more"
        );
    }
}
