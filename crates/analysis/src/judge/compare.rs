//! Runs against a base, case by case and measure by measure.

use crate::judge::compare::contrast::{contrast_of_pair, contrast_of_runs};
use llmscen_core::compare::{Contrast, Correction, Finding, Measure, Run};
use llmscen_core::metric::{Metric, Stat};
use llmscen_core::stats::comparison::{benjamini_hochberg, holm};
use llmscen_core::stats::moments::mean;

mod contrast;
mod side;

pub use side::{Side, comparable, side};

/// The measures that are compared where nobody asks for others.
pub fn usual() -> Vec<Measure> {
    let quantiles: [(Metric, &[f64]); 4] = [
        (Metric::Ttft, &[0.5, 0.95, 0.99]),
        (Metric::Itl, &[0.5, 0.99]),
        (Metric::Tpot, &[0.5, 0.95]),
        (Metric::E2e, &[0.5, 0.95, 0.99]),
    ];
    let of = |(metric, shares): (Metric, &'static [f64])| {
        shares.iter().map(move |&share| Measure { metric, stat: Some(Stat::Quantile(share)) })
    };
    let whole = [Metric::OutputTps, Metric::RequestThroughput, Metric::ErrorRate];
    quantiles.into_iter().flat_map(of).chain(whole.map(|metric| Measure { metric, stat: None })).collect()
}

/// Every measure of every case that two sides share, each side against the first; the findings are still to be settled. A side
/// that has a case several times has it of several runs, or of rounds on restarted servers: each is one value then. `level`: the
/// one-sided confidence that the sides' bounds were taken at.
pub fn contrasts(runs: &[Vec<Side>], measures: &[Measure], level: f64) -> Vec<Contrast> {
    let Some((base, others)) = runs.split_first() else { return Vec::new() };
    let mut all = Vec::new();
    for (at, own) in base.iter().enumerate() {
        if base.iter().take(at).any(|before| before.case == own.case) {
            continue;
        }
        let own = replicates(base, own);
        let twins: Vec<Vec<&Side>> =
            others.iter().map(|sides| own.first().map_or(Vec::new(), |own| replicates(sides, own))).collect();
        for (index, measure) in measures.iter().enumerate() {
            all.extend(twins.iter().enumerate().filter_map(|(run, its)| match (own.as_slice(), its.as_slice()) {
                (_, []) => None,
                ([own], [its]) => contrast_of_pair((own, its), (index, *measure), run + 1, level),
                (own, its) => contrast_of_runs([own, its], (index, *measure), run + 1, level),
            }));
        }
    }
    all
}

/// The evidence of a case from every run, or round on a restarted server, of a side.
fn replicates<'a>(sides: &'a [Side], own: &Side) -> Vec<&'a Side> {
    sides.iter().filter(|side| side.case == own.case).collect()
}

fn twin<'a>(sides: &'a [Side], own: &Side) -> Option<&'a Side> {
    sides.iter().find(|side| side.case == own.case)
}

/// Cases that the base or another run has alone: the index of the run that has it, and its id.
pub fn alone(runs: &[Vec<Side>]) -> Vec<(usize, String)> {
    let Some((base, others)) = runs.split_first() else { return Vec::new() };
    let missing = |(run, from, to): (usize, &[Side], &[Side])| {
        from.iter().filter(|own| twin(to, own).is_none()).map(|own| (run, own.case.clone())).collect::<Vec<_>>()
    };
    let both = others.iter().enumerate().flat_map(|(run, other)| [(0, &base[..], &other[..]), (run + 1, &other[..], &base[..])]);
    let mut all: Vec<(usize, String)> = Vec::new();
    both.flat_map(missing).for_each(|one| {
        if !all.contains(&one) {
            all.push(one)
        }
    });
    all
}

/// Adjusts the probabilities over all of them and says what each comes to: a change where the adjusted probability is below `alpha`
/// and the difference is more than `allowed`, a share of the base. A contrast with a note stays unknown, whatever its
/// probability. Returns the number of tests.
pub fn settle(all: &mut [Contrast], correction: Correction, alpha: f64, allowed: f64) -> usize {
    let p: Vec<f64> = all.iter().filter_map(|own| own.p).collect();
    let adjusted = match correction {
        Correction::Holm => holm(&p),
        Correction::Bh => benjamini_hochberg(&p),
        Correction::None => p,
    };
    for (own, adjusted) in all.iter_mut().filter(|own| own.p.is_some()).zip(&adjusted) {
        own.p_adjusted = Some(*adjusted);
        own.finding = match own.worsening().filter(|_| *adjusted < alpha) {
            _ if own.note.is_some() => Finding::Unknown,
            Some(worse) if worse > allowed => Finding::Regression,
            Some(worse) if worse < -allowed => Finding::Better,
            Some(worse) if worse != 0.0 => Finding::Within,
            _ => Finding::Noise,
        };
    }
    adjusted.len()
}

#[cfg(test)]
mod restarts;
#[cfg(test)]
mod simulated;

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
mod tests;
