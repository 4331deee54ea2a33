//! Checks and requests for tests.

use crate::Sample;
use crate::fixture::{TestRequest, sample_of};
use crate::judge::rule::Conditions;
use llmscen_core::check::{Check, Confidence, NoData, Op, RequestLimit, RequestSet, Subject};
use llmscen_core::label::Labels;
use llmscen_core::metric::{Metric, Stat};

/// A check at 95 %.
pub(crate) fn check(metric: Metric, stat: Option<Stat>, op: Op, limit: f64) -> Check {
    of_subject(
        Subject::Metric {
            metric,
            stat,
            tags: Vec::new(),
        },
        op,
        limit,
    )
}

/// A goodput check at 95 %.
pub(crate) fn goodput(limits: Vec<RequestLimit>, op: Op, share: f64) -> Check {
    of_subject(Subject::Goodput(limits), op, share)
}

fn of_subject(subject: Subject, op: Op, limit: f64) -> Check {
    Check {
        expr: "x".into(),
        subject,
        op,
        limit,
        confidence: Confidence::Level(0.95),
        when: Labels::default(),
        of: RequestSet::Ok,
        no_data: NoData::Fail,
        relative: None,
        abort: None,
        is_default: false,
    }
}

/// An unknown load.
pub(crate) fn conditions(valid: bool) -> Conditions {
    Conditions {
        valid,
        ..Conditions::default()
    }
}

/// A request that succeeded, with one value.
pub(crate) fn ok(metric: Metric, value: f64) -> TestRequest {
    TestRequest {
        ok: true,
        values: vec![(metric, value)],
        ..TestRequest::default()
    }
}

/// A request that failed.
pub(crate) fn failed() -> TestRequest {
    TestRequest::default()
}

/// A sample of these requests alone.
pub(crate) fn sample(requests: Vec<TestRequest>) -> Sample {
    sample_of(requests)
}
