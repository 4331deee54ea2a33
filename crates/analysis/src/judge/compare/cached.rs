//! Runs whose prompts came from the server's cache to different shares did not ask for the same work.

use llmscen_core::compare::{Contrast, Finding, Run};
use llmscen_core::metric::Metric;
use llmscen_core::stats::moments::mean;

/// Takes the test from every contrast of two cases whose cached shares of the prompt tokens, the mean of the runs of a side, differ by
/// more than the audit accepts: before the findings are settled. Errors do not depend on the cache.
pub fn withdraw_cached(contrasts: &mut [Contrast], runs: &[Run]) {
    let cached = |side: usize, id: &str| {
        let of = |run: &Run| run.report.cases.iter().find(|case| case.id == id)?.audit.cached;
        mean(&runs.iter().filter(|run| run.side == side).filter_map(of).collect::<Vec<_>>())
    };
    let side = |side: usize| {
        let labels: Vec<&str> = runs.iter().filter(|run| run.side == side).map(|run| run.label.as_str()).collect();
        labels.join(", ")
    };
    let accepted = runs.iter().map(|run| run.report.audit.cache).fold(0.0, f64::max);
    for own in contrasts.iter_mut().filter(|own| own.measure.metric != Metric::ErrorRate) {
        // Servers leave the count out where it is 0.
        let (a, b) = match (cached(0, &own.case), cached(own.run, &own.case)) {
            (None, None) => continue,
            (a, b) => (a.unwrap_or(0.0), b.unwrap_or(0.0)),
        };
        if (a - b).abs() > accepted {
            (own.p, own.finding) = (None, Finding::Unknown);
            own.note = Some(format!(
                "not tested: cached prompt tokens were {:.1} % in {}, {:.1} % in {} (`audit.cache` {:.1} %); \
                 `--allow-different` tests it",
                a * 100.0,
                side(0),
                b * 100.0,
                side(own.run),
                accepted * 100.0
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::compare::{contrasts, settle, side};
    use crate::judge::fixture::{ok, sample};
    use llmscen_core::compare::{Correction, Measure};
    use llmscen_core::metric::Stat;
    use llmscen_core::report::{Audit, CaseReport, Report};
    use llmscen_core::seed::Seed;

    /// What a comparison comes to in which the second run is ten times as fast, with these cached shares.
    fn found(cached: [Option<f64>; 2]) -> Contrast {
        let measure = Measure { metric: Metric::E2e, stat: Some(Stat::Quantile(0.5)) };
        let values = |scale: f64| (0..400).map(|index| ok(Metric::E2e, f64::from(index * 7919 % 400 + 1) * scale)).collect();
        let sides = [10.0, 1.0].map(|scale| vec![side("a", &sample(values(scale)), &[measure], 0.975, Seed(1))]);
        let of = |(place, cached): (usize, Option<f64>)| {
            let case = CaseReport { id: "a".into(), audit: Audit { cached, ..Audit::default() }, ..CaseReport::default() };
            let report = Report { cases: vec![case], ..Report::default() };
            Run { label: ["A", "B"][place].into(), side: place, report, ..Run::default() }
        };
        let runs: Vec<Run> = (0..).zip(cached).map(of).collect();
        let mut all = contrasts(&sides, &[measure], 0.975);
        withdraw_cached(&mut all, &runs);
        settle(&mut all, Correction::Holm, 0.05, 0.05);
        all.remove(0)
    }

    #[test]
    fn a_difference_that_a_cache_may_have_made_is_not_called_real() {
        let seen = found([Some(0.0), Some(0.93)]);
        assert_eq!((seen.finding, seen.p, seen.p_adjusted), (Finding::Unknown, None, None));
        let known =
            "not tested: cached prompt tokens were 0.0 % in A, 93.0 % in B (`audit.cache` 1.0 %); `--allow-different` tests it";
        assert_eq!(seen.note.as_deref(), Some(known));
        assert_eq!(found([None, Some(0.93)]).finding, Finding::Unknown, "servers report no cached tokens where there are none");
        for like in [[Some(0.93), Some(0.925)], [None, Some(0.005)], [None, None]] {
            assert_eq!(found(like).finding, Finding::Better, "{like:?}");
        }
    }
}
