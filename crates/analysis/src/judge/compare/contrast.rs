//! Compares one measure of one case on two sides.

use crate::judge::compare::side::Side;
use llmscen_core::compare::{Contrast, Effect, Finding, Measure, Reading, Span};
use llmscen_core::stats::comparison::{Difference, Group, cliffs_delta, cohens_h, difference};
use llmscen_core::stats::interval::{self, Interval, Scale};
use llmscen_core::stats::quantile::sort;
use llmscen_core::stats::share;

/// The contrast without its finding; None where neither side has the measure. Bounds are at confidence `level`.
pub(super) fn contrast_of_pair(
    (base, other): (&Side, &Side),
    (index, measure): (usize, Measure),
    run: usize,
    level: f64,
) -> Option<Contrast> {
    let reading = |side: &Side| side.readings.get(index).copied().unwrap_or_default();
    let (a, b) = (reading(base), reading(other));
    if a.value.is_none() && b.value.is_none() {
        return None;
    }
    let effect = effect_of_pair((base, other), measure);
    let mut contrast = Contrast {
        effect,
        ..untested(base.case.clone(), measure, run, (a, b))
    };
    let shares = |side: &Side| side.shares.get(index).copied().flatten();
    match shares(base).zip(shares(other)) {
        Some((base, other)) => compare_shares(&mut contrast, base, other),
        None => {
            let freedom =
                [other, base].map(|side| side.freedom.get(index).copied().unwrap_or(f64::INFINITY));
            compare_values(&mut contrast, Scale { level, freedom });
        }
    }
    Some(contrast)
}

fn untested(
    case: String,
    measure: Measure,
    run: usize,
    (base, other): (Reading, Reading),
) -> Contrast {
    Contrast {
        case,
        measure,
        run,
        base,
        other,
        ratio: None,
        difference: None,
        p: None,
        p_adjusted: None,
        effect: None,
        finding: Finding::Unknown,
        note: None,
    }
}

fn compare_values(contrast: &mut Contrast, scale: Scale) {
    let (a, b) = (&contrast.base, &contrast.other);
    match interval(a).zip(interval(b)) {
        Some((base, other)) => {
            let change = interval::change(other, base, scale);
            contrast.ratio = change.map(|(ratio, _)| Span {
                value: ratio.value,
                low: ratio.low,
                high: ratio.high,
            });
            // A decrease from a value significantly above 0 to 0: the ratio has no interval, but the difference has.
            let to_zero = (other.value == 0.0 && base.low > 0.0)
                .then(|| interval::difference_p_value(other, base, scale));
            contrast.p = change.map(|(_, p)| p).or(to_zero);
            contrast.note = contrast
                .p
                .is_none()
                .then(|| "not tested: a value or bound of 0 has no ratio".to_owned());
        }
        None => contrast.note = Some(missing_bounds_note(a, b)),
    }
}

/// The note of a throughput that is over whole runs on one side.
const OF_WHOLE_RUN: &str = "not tested: sending was not steady for long enough, so that a \
    throughput is over the whole run, start and drain included";

fn missing_bounds_note(a: &Reading, b: &Reading) -> String {
    match (a.value, b.value) {
        (None, _) => "not measured in the base run".to_owned(),
        (_, None) => "not measured in the candidate run".to_owned(),
        _ if a.is_of_whole_run || b.is_of_whole_run => OF_WHOLE_RUN.to_owned(),
        _ => {
            let effective =
                |reading: &Reading| (reading.n as f64 / reading.design.max(1.0)).floor();
            format!(
                "not tested: too few independent samples ({} in base, {} in candidate)",
                effective(a),
                effective(b)
            )
        }
    }
}

/// The difference of shares after Newcombe, "Interval estimation for the difference between independent proportions",
/// Statistics in Medicine 17, 1998, with exact bounds of each share; and Fisher's exact test.
fn compare_shares(contrast: &mut Contrast, base: (u64, u64), other: (u64, u64)) {
    contrast.p = Some(share::fisher_exact(base, other));
    let Some((a, b)) = interval(&contrast.base).zip(interval(&contrast.other)) else {
        return;
    };
    let value = b.value - a.value;
    let low = value - (b.value - b.low).hypot(a.high - a.value);
    let high = value + (b.high - b.value).hypot(a.value - a.low);
    contrast.difference = Some(Span { value, low, high });
    contrast.effect = Some(Effect::CohensH(cohens_h(a.value, b.value)));
}

fn interval(reading: &Reading) -> Option<Interval> {
    let (value, (low, high)) = reading.value.zip(reading.bounds)?;
    Some(Interval { value, low, high })
}

fn effect_of_pair((base, other): (&Side, &Side), measure: Measure) -> Option<Effect> {
    measure.stat?;
    cliffs_delta(
        base.values.get(&measure.metric)?,
        other.values.get(&measure.metric)?,
    )
    .map(Effect::CliffsDelta)
}

// Sides with several runs: each run, or each round on a restarted server, is one value.

/// The contrast, its finding open; None where neither side has the measure. Bounds are at confidence `level` each.
pub(super) fn contrast_of_runs(
    sides: [&[&Side]; 2],
    (index, measure): (usize, Measure),
    run: usize,
    level: f64,
) -> Option<Contrast> {
    let readings = sides.map(|runs| readings(runs, index));
    let values = readings.each_ref().map(|runs| {
        runs.iter()
            .filter_map(|reading| reading.value)
            .collect::<Vec<f64>>()
    });
    let [base, other] = values.each_ref().map(Vec::as_slice);
    if base.is_empty() && other.is_empty() {
        return None;
    }
    let case = sides
        .iter()
        .find_map(|runs| runs.first())
        .map(|side| side.case.clone())
        .unwrap_or_default();
    let share = sides
        .iter()
        .flat_map(|runs| runs.iter())
        .any(|side| side.shares.get(index).copied().flatten().is_some());
    let logs = !share && base.iter().chain(other).all(|value| *value > 0.0);
    let scale = Averaging { logs, level };
    let [a, b] = [0, 1].map(|at| scale.join(&readings[at], &values[at]));
    let mut contrast = Contrast {
        effect: effect_of_runs(sides, measure),
        ..untested(case, measure, run, (a, b))
    };
    match (
        Group::from_values(&scale.to_scale(base)),
        Group::from_values(&scale.to_scale(other)),
    ) {
        _ if readings
            .iter()
            .flatten()
            .any(|reading| reading.is_of_whole_run) =>
        {
            contrast.note = Some(OF_WHOLE_RUN.to_owned());
        }
        (Some(base), Some(other)) => {
            let min_error = if share { min_error(sides, index) } else { 0.0 };
            let change = difference(other, base, level, min_error);
            contrast.p = change.map(|change| change.p);
            let span = |change: Difference, back: fn(f64) -> f64| Span {
                value: back(change.value),
                low: back(change.low),
                high: back(change.high),
            };
            if logs {
                contrast.ratio = change.map(|change| span(change, f64::exp));
            } else if share {
                contrast.difference = change.map(|change| span(change, |value| value));
                contrast.effect = a
                    .value
                    .zip(b.value)
                    .map(|(a, b)| Effect::CohensH(cohens_h(a, b)));
            } else if base.mean == 0.0 {
                contrast.p = None;
                contrast.note = Some("not tested: a base value of 0 has no ratio".to_owned());
            }
            if change.is_none() {
                contrast.note =
                    Some("not tested: measured in only one run of each side".to_owned());
            }
        }
        (None, _) => contrast.note = Some("not measured in the base run".to_owned()),
        (_, None) => contrast.note = Some("not measured in the candidate run".to_owned()),
    }
    Some(contrast)
}

fn readings(sides: &[&Side], index: usize) -> Vec<Reading> {
    sides
        .iter()
        .filter_map(|side| side.readings.get(index).copied())
        .collect()
}

/// The scale that values are averaged on: logarithms, where all values are positive and no shares.
#[derive(Clone, Copy)]
struct Averaging {
    logs: bool,
    level: f64,
}

impl Averaging {
    fn to_scale(self, values: &[f64]) -> Vec<f64> {
        values
            .iter()
            .map(|value| if self.logs { value.ln() } else { *value })
            .collect()
    }

    /// The mean of a side over its runs, with bounds.
    fn join(self, readings: &[Reading], values: &[f64]) -> Reading {
        let back = |value: f64| if self.logs { value.exp() } else { value };
        let n = readings.iter().map(|reading| reading.n).sum();
        let replicates = values.len() as u32;
        match (Group::from_values(&self.to_scale(values)), readings) {
            (Some(group), _) if group.n > 1 => {
                let bounds = group
                    .ends(self.level)
                    .map(|(low, high)| (back(low), back(high)));
                Reading {
                    value: Some(back(group.mean)),
                    bounds,
                    is_of_whole_run: readings.iter().any(|reading| reading.is_of_whole_run),
                    n,
                    design: 1.0,
                    replicates,
                }
            }
            (Some(_), _) => readings
                .iter()
                .find(|reading| reading.value.is_some())
                .copied()
                .unwrap_or_default(),
            (None, _) => Reading {
                n,
                ..Reading::default()
            },
        }
    }
}

/// The minimum standard error of a difference of shares, by their effective requests: runs without any failure show
/// nothing of the variance between runs.
fn min_error(sides: [&[&Side]; 2], index: usize) -> f64 {
    let sum = |runs: &[&Side]| {
        let shares = runs
            .iter()
            .filter_map(|side| side.shares.get(index).copied().flatten());
        shares.fold((0.0, 0.0), |(hits, n), share| {
            (hits + share.0 as f64, n + share.1 as f64)
        })
    };
    let [(base_hits, base_n), (other_hits, other_n)] = sides.map(sum);
    let pooled = (base_hits + other_hits) / (base_n + other_n).max(1.0);
    (pooled * (1.0 - pooled) * (1.0 / base_n.max(1.0) + 1.0 / other_n.max(1.0))).sqrt()
}

fn effect_of_runs(sides: [&[&Side]; 2], measure: Measure) -> Option<Effect> {
    measure.stat?;
    let [base, other] = sides.map(|runs| {
        let mut all: Vec<f64> = runs
            .iter()
            .filter_map(|side| side.values.get(&measure.metric))
            .flatten()
            .copied()
            .collect();
        sort(&mut all);
        all
    });
    cliffs_delta(&base, &other).map(Effect::CliffsDelta)
}
