//! Compares runs with a base run, case by case and measure by measure.

use crate::judge::compare::contrast::{contrast_of_pair, contrast_of_runs};
use llmscen_core::compare::{Contrast, Correction, Finding, Measure, Run};
use llmscen_core::metric::{Metric, Stat};
use llmscen_core::stats::comparison::{benjamini_hochberg, holm};
use llmscen_core::stats::moments::mean;

mod contrast;
#[cfg(test)]
mod restarts;
mod side;
#[cfg(test)]
mod simulated;

pub use side::{Side, is_comparable, summarize_side};

/// The measures that are compared by default.
pub fn default_measures() -> Vec<Measure> {
    let quantiles: [(Metric, &[f64]); 4] = [
        (Metric::Ttft, &[0.5, 0.95, 0.99]),
        (Metric::Itl, &[0.5, 0.99]),
        (Metric::Tpot, &[0.5, 0.95]),
        (Metric::E2e, &[0.5, 0.95, 0.99]),
    ];
    let measures = |(metric, shares): (Metric, &'static [f64])| {
        shares.iter().map(move |&share| Measure {
            metric,
            stat: Some(Stat::Quantile(share)),
        })
    };
    let of_case = [
        Metric::OutputTps,
        Metric::RequestThroughput,
        Metric::ErrorRate,
    ];
    quantiles
        .into_iter()
        .flat_map(measures)
        .chain(of_case.map(|metric| Measure { metric, stat: None }))
        .collect()
}

/// Compares every other side with the first one, for every measure of every case that both have; [`decide_findings`]
/// follows. A case that a side has several times comes from several runs, or from rounds on restarted servers: then
/// each is one value. `level`: the one-sided confidence of the sides' bounds.
pub fn compare_sides(runs: &[Vec<Side>], measures: &[Measure], level: f64) -> Vec<Contrast> {
    let Some((base, others)) = runs.split_first() else {
        return Vec::new();
    };
    let mut contrasts = Vec::new();
    for (at, side) in base.iter().enumerate() {
        if base.iter().take(at).any(|before| before.case == side.case) {
            continue;
        }
        let of_base = replicates(base, &side.case);
        let of_others: Vec<Vec<&Side>> = others
            .iter()
            .map(|sides| replicates(sides, &side.case))
            .collect();
        for (index, measure) in measures.iter().enumerate() {
            let measure = (index, *measure);
            contrasts.extend(of_others.iter().enumerate().filter_map(|(run, of_other)| {
                match (&of_base[..], &of_other[..]) {
                    (_, []) => None,
                    ([base], [other]) => contrast_of_pair((base, other), measure, run + 1, level),
                    (base, other) => contrast_of_runs([base, other], measure, run + 1, level),
                }
            }));
        }
    }
    contrasts
}

/// The evidence of a case from every run of a side, or from every round on a restarted server.
fn replicates<'a>(sides: &'a [Side], case: &str) -> Vec<&'a Side> {
    sides.iter().filter(|side| side.case == case).collect()
}

/// Cases that only one of the base and another run has: the index of that run, and the case id.
pub fn unmatched_cases(runs: &[Vec<Side>]) -> Vec<(usize, String)> {
    let Some((base, others)) = runs.split_first() else {
        return Vec::new();
    };
    let missing = |(run, from, to): (usize, &[Side], &[Side])| {
        let unmatched = from
            .iter()
            .filter(|side| to.iter().all(|other| other.case != side.case));
        unmatched
            .map(|side| (run, side.case.clone()))
            .collect::<Vec<_>>()
    };
    let directions = others
        .iter()
        .enumerate()
        .flat_map(|(run, other)| [(0, &base[..], &other[..]), (run + 1, &other[..], &base[..])]);
    let mut cases: Vec<(usize, String)> = Vec::new();
    for case in directions.flat_map(missing) {
        if !cases.contains(&case) {
            cases.push(case);
        }
    }
    cases
}

/// Adjusts the p-values for multiple testing and decides the findings: a change where the adjusted p-value is below
/// `alpha` and the difference exceeds `allowed`, a share of the base. A contrast with a note is not tested. Returns
/// the number of tests.
pub fn decide_findings(
    contrasts: &mut [Contrast],
    correction: Correction,
    alpha: f64,
    allowed: f64,
) -> usize {
    let p: Vec<f64> = contrasts.iter().filter_map(|contrast| contrast.p).collect();
    let adjusted = match correction {
        Correction::Holm => holm(&p),
        Correction::Bh => benjamini_hochberg(&p),
        Correction::None => p,
    };
    for (contrast, adjusted) in contrasts
        .iter_mut()
        .filter(|contrast| contrast.p.is_some())
        .zip(&adjusted)
    {
        contrast.p_adjusted = Some(*adjusted);
        contrast.finding = match contrast.worsening().filter(|_| *adjusted < alpha) {
            _ if contrast.note.is_some() => Finding::Unknown,
            Some(worse) if worse > allowed => Finding::Regression,
            Some(worse) if worse < -allowed => Finding::Better,
            Some(worse) if worse != 0.0 => Finding::Within,
            _ => Finding::Noise,
        };
    }
    adjusted.len()
}

/// Withdraws the test of every contrast whose cases differ in the cached share of prompt tokens, the mean over the
/// runs of a side, by more than the self-audit accepts. Call it before [`decide_findings`]. Error rates do not depend
/// on the cache.
pub fn withdraw_cached(contrasts: &mut [Contrast], runs: &[Run]) {
    let cached = |side: usize, id: &str| {
        let share = |run: &Run| {
            run.report
                .cases
                .iter()
                .find(|case| case.id == id)?
                .audit
                .cached
        };
        mean(
            &runs
                .iter()
                .filter(|run| run.side == side)
                .filter_map(share)
                .collect::<Vec<_>>(),
        )
    };
    let labels = |side: usize| {
        let labels: Vec<&str> = runs
            .iter()
            .filter(|run| run.side == side)
            .map(|run| run.label.as_str())
            .collect();
        labels.join(", ")
    };
    let accepted = runs
        .iter()
        .map(|run| run.report.audit.cache)
        .fold(0.0, f64::max);
    for contrast in contrasts
        .iter_mut()
        .filter(|contrast| !contrast.measure.metric.is_request_share())
    {
        // Servers omit the count where it is 0.
        let (base, other) = match (
            cached(0, &contrast.case),
            cached(contrast.run, &contrast.case),
        ) {
            (None, None) => continue,
            (base, other) => (base.unwrap_or(0.0), other.unwrap_or(0.0)),
        };
        if (base - other).abs() > accepted {
            contrast.p = None;
            contrast.finding = Finding::Unknown;
            contrast.note = Some(format!(
                "not tested: cached prompt tokens were {:.1} % in {}, {:.1} % in {} (`audit.cache` {:.1} %); \
                 `--allow-different` tests it",
                base * 100.0,
                labels(0),
                other * 100.0,
                labels(contrast.run),
                accepted * 100.0
            ));
        }
    }
}

#[cfg(test)]
mod tests;
