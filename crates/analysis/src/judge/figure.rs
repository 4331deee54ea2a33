//! An estimate with its bounds at several confidence levels, for baselines and relative limits.

use crate::judge::cost::CostLimit;
use crate::judge::design_effect;
use crate::judge::evidence::{Evidence, estimate};

use crate::sample::Sample;
use llmscen_core::baseline::{Baseline, DEFAULT_STATISTICS, Figure, RunVariation};
use llmscen_core::check::Check;
use llmscen_core::metric::{Metric, Stat};
use llmscen_core::stats::comparison::{Group, detectable, detectable_by_one};
use llmscen_core::stats::design::Dependence;
use llmscen_core::stats::interval::quantile_ends;
use llmscen_core::stats::quantile::sort;
use llmscen_core::stats::share::{lower, upper};

/// A lower and an upper bound.
pub(super) type Ends = (Option<f64>, Option<f64>);

/// The estimate that a check is about, with its bounds at each of `levels`; None without data, or where it is
/// infinite. Only the subject of the check and its requests matter.
pub fn figure(check: &Check, sample: &Sample, levels: &[f64]) -> Option<Figure> {
    if let Some(limit) = CostLimit::of(check, sample) {
        return Some(limit.to_cost_figure(figure(&limit.check, sample, levels)?));
    }
    let mut evidence = Evidence::collect(check, sample);
    let (value, n) = estimate(&mut evidence);
    let value = value.filter(|value| value.is_finite())?;
    let dependence = design_effect::dependence(check, sample, &evidence, value);
    let ends = ends(evidence, dependence, levels).unwrap_or_default();
    let finite = |bound: Option<f64>| bound.filter(|bound| bound.is_finite());
    let low = ends.iter().map(|(low, _)| finite(*low)).collect();
    let high = ends.into_iter().map(|(_, high)| finite(high)).collect();
    Some(Figure {
        value,
        n,
        low,
        high,
        runs: Vec::new(),
    })
}

/// The bounds of an estimate of correlated samples at each of `levels`; None where the statistic has no bounds.
pub(super) fn ends(
    evidence: Evidence,
    dependence: Dependence,
    levels: &[f64],
) -> Option<Vec<Ends>> {
    match evidence {
        Evidence::Values(mut values, Stat::Quantile(p)) if 0.0 < p && p < 1.0 => {
            sort(&mut values);
            Some(
                levels
                    .iter()
                    .map(|level| quantile_ends(&values, p, *level, dependence.effect(*level)))
                    .collect(),
            )
        }
        Evidence::Share { hits, n } => {
            let bounds = |level: &f64| {
                let effect = dependence.effect(*level);
                let (hits, n) = (hits as f64 / effect, n as f64 / effect);
                (Some(lower(hits, n, *level)), Some(upper(hits, n, *level)))
            };
            Some(levels.iter().map(bounds).collect())
        }
        Evidence::Ratio(units) => Some(
            levels
                .iter()
                .map(|level| units.long_run.as_ref().map(|run| run.ends(*level)).unzip())
                .collect(),
        ),
        Evidence::Values(..) | Evidence::Figure(..) => None,
    }
}

// The variance between the runs of a baseline, and the changes that it lets one detect.

/// One-sided confidence of the test, which is two-sided at 5 %.
const LEVEL: f64 = 0.975;
/// Power: the probability of detecting the smallest detectable change.
const POWER: f64 = 0.80;
/// The change that should be detectable, as a share.
const TARGET_CHANGE: f64 = 0.05;
/// Runs per side up to which the required number is searched.
const MAX_RUNS: usize = 100;
/// Runs from which a standard deviation is estimated.
const MIN_RUNS: usize = 3;

/// How each of the usual metrics, and of those with an objective, varies from run to run. A metric of fewer than
/// three runs is left out, and so is a share that is equal in all runs.
pub fn baseline_noise(baseline: &Baseline) -> Vec<RunVariation> {
    let mut all = Vec::new();
    for case in &baseline.cases {
        let usual = DEFAULT_STATISTICS
            .iter()
            .filter_map(|name| Some((*name, case.figure(name)?)));
        let of_objectives = case
            .metrics
            .iter()
            .filter(|(name, _)| name.contains(['(', '{', ' ']));
        let figures = usual.chain(of_objectives.map(|(name, figure)| (name.as_str(), figure)));
        all.extend(figures.filter_map(|(name, figure)| noise_of_figure(&case.id, name, figure)));
    }
    all
}

fn noise_of_figure(case: &str, name: &str, figure: &Figure) -> Option<RunVariation> {
    let share = name
        .split(['.', '{', ' ', '('])
        .next()
        .and_then(Metric::parse)
        .is_none_or(Metric::is_request_share);
    let values: Vec<f64> = figure
        .runs
        .iter()
        .copied()
        .flatten()
        .filter(|value| share || *value > 0.0)
        .collect();
    let group = Group::from_values(
        &values
            .iter()
            .map(|value| if share { *value } else { value.ln() })
            .collect::<Vec<_>>(),
    )?;
    // Shares that are equal in all runs show that the event is rare, not that runs do not vary.
    let is_constant = share && values.iter().all(|value| Some(value) == values.first());
    let sd = group
        .variance
        .filter(|_| group.n >= MIN_RUNS && !is_constant)?
        .sqrt();
    let back = |size: f64| if share { size } else { size.exp_m1() };
    let target = if share {
        TARGET_CHANGE
    } else {
        TARGET_CHANGE.ln_1p()
    };
    let least = |runs: usize| detectable(sd, runs, LEVEL, POWER);
    Some(RunVariation {
        case: case.to_owned(),
        figure: name.to_owned(),
        share,
        runs: group.n,
        mean: if share { group.mean } else { group.mean.exp() },
        sd: back(sd),
        one: detectable_by_one(sd, group.n, LEVEL, POWER).map(back),
        three: least(3).map(back),
        five: least(5).map(back),
        needed: (2..=MAX_RUNS).find(|runs| least(*runs).is_some_and(|least| least <= target)),
    })
}

#[cfg(test)]
mod tests;
