//! Limits on shares of requests, by the exact binomial test: the same rule as for quantiles, so that
//! `goodput(ttft < 500ms) >= 99%` and `ttft.p99 < 500ms` over all scheduled requests always agree.

use crate::judge::assessment::Opinion;
use crate::judge::counted::{Claim, Samples, nearer};
use llmscen_core::check::Check;
use llmscen_core::stats::share::{lower, upper};

/// Judges `hits` against a limit between 0 and 1, at confidence `level`. `strict`: hits by stricter limits on the requests.
pub(super) fn judge(check: &Check, hits: u64, strict: Option<u64>, (samples, level): (Samples, f64)) -> Opinion {
    let (n, ceiling) = (samples.n, check.op.is_ceiling());
    let breaking = |hits: u64| if ceiling { hits } else { n - hits };
    let claim = Claim { tail: if ceiling { check.limit } else { 1.0 - check.limit }, level };
    let judged = samples.judge(breaking(hits), strict.map(breaking), claim);
    let end = |hits: u64, effect: f64| {
        let (hits, n) = (hits as f64 / effect, n as f64 / effect);
        if ceiling { upper(hits, n, level) } else { lower(hits, n, level) }
    };
    let own = (!samples.too_few()).then(|| end(hits, samples.effect));
    let bound = nearer(check.op, own, strict.map(|strict| end(strict, 1.0)));
    Opinion { observed: Some(hits as f64 / n as f64), bound, ..judged }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::fixture::check;
    use llmscen_core::check::{Op, Ruling};
    use llmscen_core::metric::Metric;
    use llmscen_core::stats::design::Dependence;

    fn errors(op: Op, limit: f64, hits: u64, n: u64) -> Opinion {
        judge(&check(Metric::ErrorRate, None, op, limit), hits, None, (Samples::new(n, Dependence::NONE, 0.95), 0.95))
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
