//! An estimate with its bounds at several confidences: what a baseline keeps, and what a relative limit is decided by.

use crate::judge::design_effect;
use crate::judge::evidence::Evidence;
use crate::judge::point::estimate;
use crate::sample::Sample;
use llmscen_core::baseline::{Baseline, Figure};
use llmscen_core::baseline::{Noise, USUAL};
use llmscen_core::check::Check;
use llmscen_core::metric::{Metric, Stat};
use llmscen_core::stats::comparison::{Group, detectable, detectable_by_one};
use llmscen_core::stats::design::Dependence;
use llmscen_core::stats::interval::quantile_ends;
use llmscen_core::stats::quantile::sort;
use llmscen_core::stats::share::{lower, upper};

/// A lower and an upper bound.
pub(super) type Ends = (Option<f64>, Option<f64>);

/// The figure that a check is about, with its bounds at each of `levels`; None without data, and where it is beyond all
/// numbers. Only the subject of the check and its rows count.
pub fn figure(check: &Check, sample: &Sample, levels: &[f64]) -> Option<Figure> {
    let mut evidence = Evidence::of(check, sample);
    let (value, n) = estimate(&mut evidence);
    let value = value.filter(|value| value.is_finite())?;
    let dependence = design_effect::dependence(check, sample, &evidence, value);
    let ends = ends(evidence, dependence, levels).unwrap_or_default();
    let finite = |bound: Option<f64>| bound.filter(|bound| bound.is_finite());
    let low = ends.iter().map(|(low, _)| finite(*low)).collect();
    let high = ends.into_iter().map(|(_, high)| finite(high)).collect();
    Some(Figure { value, n, low, high, runs: Vec::new() })
}

/// The bounds of an estimate at each of `levels`, from samples that depend on one another; None where no number of samples gives any.
pub(super) fn ends(evidence: Evidence, dependence: Dependence, levels: &[f64]) -> Option<Vec<Ends>> {
    match evidence {
        Evidence::Values(mut values, Stat::Quantile(p)) if 0.0 < p && p < 1.0 => {
            sort(&mut values);
            Some(levels.iter().map(|level| quantile_ends(&values, p, *level, dependence.effect(*level))).collect())
        }
        Evidence::Share { hits, n } => {
            let of = |level: &f64| {
                let effect = dependence.effect(*level);
                let (hits, n) = (hits as f64 / effect, n as f64 / effect);
                (Some(lower(hits, n, *level)), Some(upper(hits, n, *level)))
            };
            Some(levels.iter().map(of).collect())
        }
        Evidence::Ratio(units) => {
            Some(levels.iter().map(|level| units.long_run.as_ref().map(|own| own.ends(*level)).unzip()).collect())
        }
        Evidence::Values(..) | Evidence::Figure(..) => None,
    }
}

// What the runs of a baseline show about its figures: how they vary, and which change that lets one see.

/// One-sided confidence of the test, which is two-sided at 5 %.
const LEVEL: f64 = 0.975;
/// The probability with which a change of the least size is found.
const POWER: f64 = 0.80;
/// The change that is asked for, as a share.
const WANTED: f64 = 0.05;
/// Runs a side that are tried for it.
const MOST: usize = 100;
/// Runs from which on a spread is an estimate and not a guess.
const FEW: usize = 3;

/// How each of the usual figures, and of those that objectives are about, varies from run to run. A figure of fewer than three runs is
/// left out, and so is a share that is the same in all of them.
pub fn noise(baseline: &Baseline) -> Vec<Noise> {
    let mut all = Vec::new();
    for case in &baseline.cases {
        let usual = USUAL.iter().filter_map(|name| Some((*name, case.figure(name)?)));
        let own = case.metrics.iter().filter(|(name, _)| name.contains(['(', '{', ' ']));
        let figures = usual.chain(own.map(|(name, figure)| (name.as_str(), figure)));
        all.extend(figures.filter_map(|(name, figure)| noise_of_figure(&case.id, name, figure)));
    }
    all
}

fn noise_of_figure(case: &str, name: &str, figure: &Figure) -> Option<Noise> {
    let share = name.split(['.', '{', ' ', '(']).next().and_then(Metric::parse).is_none_or(|metric| metric == Metric::ErrorRate);
    let values: Vec<f64> = figure.runs.iter().copied().flatten().filter(|value| share || *value > 0.0).collect();
    let group = Group::of(&values.iter().map(|value| if share { *value } else { value.ln() }).collect::<Vec<_>>())?;
    // Shares that are equal in all runs show that the event is rare, not that runs do not vary.
    let same = share && values.iter().all(|own| Some(own) == values.first());
    let sd = group.variance.filter(|_| group.n >= FEW && !same)?.sqrt();
    // A change is a share of the base, or of all requests.
    let back = |size: f64| if share { size } else { size.exp_m1() };
    let wanted = if share { WANTED } else { WANTED.ln_1p() };
    let least = |runs: usize| detectable(sd, runs, LEVEL, POWER);
    Some(Noise {
        case: case.to_owned(),
        figure: name.to_owned(),
        share,
        runs: group.n,
        mean: if share { group.mean } else { group.mean.exp() },
        sd: back(sd),
        one: detectable_by_one(sd, group.n, LEVEL, POWER).map(back),
        three: least(3).map(back),
        five: least(5).map(back),
        needed: (2..=MOST).find(|runs| least(*runs).is_some_and(|least| least <= wanted)),
    })
}

#[cfg(test)]
mod tests;
