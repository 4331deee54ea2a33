//! Limits on shares of requests, by the exact binomial test: the same rule as for quantiles, so that
//! `goodput(ttft < 500ms) >= 99%` and `ttft.p99 < 500ms` over all scheduled requests always agree.

use crate::judge::opinion::{Opinion, ruling};
use crate::model::check::{Check, Ruling};
use crate::stats::claim::{decide, needed_to_decide};
use crate::stats::share::{lower, upper};

/// Judges `hits` of `n`, n > 0, against a limit between 0 and 1, at confidence `level`.
pub(super) fn judge(check: &Check, hits: u64, n: u64, level: f64) -> Opinion {
    let (breaking, tail, bound) = if check.op.is_ceiling() {
        (hits, check.limit, upper(hits, n, level))
    } else {
        (n - hits, 1.0 - check.limit, lower(hits, n, level))
    };
    let ruling = ruling(decide(n, breaking, tail, level));
    let need = (ruling == Ruling::Inconclusive).then(|| needed_to_decide(n, breaking, tail, level)).flatten();
    Opinion { ruling, observed: Some(hits as f64 / n as f64), bound: Some(bound), n, need, note: None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::fixture::check;
    use crate::model::check::Op;
    use crate::model::metric::Metric;

    fn errors(op: Op, limit: f64, hits: u64, n: u64) -> Opinion {
        judge(&check(Metric::ErrorRate, None, op, limit), hits, n, 0.95)
    }

    #[test]
    fn zero_errors_in_a_few_requests_prove_nothing() {
        let seen = errors(Op::Less, 0.01, 0, 100);
        assert_eq!((seen.ruling, seen.observed, seen.need), (Ruling::Inconclusive, Some(0.0), Some(299)));
        assert!((seen.bound.unwrap() - 0.02951).abs() < 1e-4);
        assert_eq!(errors(Op::Less, 0.01, 0, 299).ruling, Ruling::Pass);
    }

    #[test]
    fn many_errors_are_a_failure() {
        assert_eq!(errors(Op::Less, 0.01, 5, 100).ruling, Ruling::Fail);
        assert_eq!(errors(Op::More, 0.5, 100, 100).ruling, Ruling::Pass);
        assert_eq!(errors(Op::More, 0.5, 0, 100).ruling, Ruling::Fail);
    }
}
