//! One measure of one case on two sides.

use crate::judge::compare::side::Side;
use llmscen_core::compare::Effect;
use llmscen_core::compare::{Contrast, Finding, Measure, Reading, Span};
use llmscen_core::stats::comparison::{Group, difference};
use llmscen_core::stats::comparison::{cliffs_delta, cohens_h};
use llmscen_core::stats::interval::{self, Interval, Scale};
use llmscen_core::stats::quantile::sort;
use llmscen_core::stats::share;

/// The contrast, its finding open; None where neither run has the measure. Bounds are at confidence `level` each.
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
    let mut contrast = Contrast { effect, ..blank(base.case.clone(), measure, run, (a, b)) };
    let shares = |side: &Side| side.shares.get(index).copied().flatten();
    match shares(base).zip(shares(other)) {
        Some((own, its)) => of_shares(&mut contrast, own, its),
        None => {
            let freedom = [other, base].map(|side| side.freedom.get(index).copied().unwrap_or(f64::INFINITY));
            of_values(&mut contrast, Scale { level, freedom });
        }
    }
    Some(contrast)
}

/// A contrast of which nothing is known but the two readings.
pub(super) fn blank(case: String, measure: Measure, run: usize, (base, other): (Reading, Reading)) -> Contrast {
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

fn of_values(contrast: &mut Contrast, scale: Scale) {
    let (a, b) = (&contrast.base, &contrast.other);
    match interval(a).zip(interval(b)) {
        Some((base, other)) => {
            let seen = interval::change(other, base, scale);
            contrast.ratio = seen.map(|(own, _)| Span { value: own.value, low: own.low, high: own.high });
            // Nothing is left of what surely was there: less by all of it, though no ratio has an interval there.
            let gone = (other.value == 0.0 && base.low > 0.0).then(|| interval::p_of_difference(other, base, scale));
            contrast.p = seen.map(|(_, p)| p).or(gone);
            contrast.note = contrast.p.is_none().then(|| "a value or a bound of 0 has no ratio".to_owned());
        }
        None => contrast.note = Some(missing(a, b)),
    }
}

fn missing(a: &Reading, b: &Reading) -> String {
    match (a.value, b.value) {
        (None, _) => "the base has no such values".to_owned(),
        (_, None) => "this run has no such values".to_owned(),
        _ => {
            let worth = |own: &Reading| (own.n as f64 / own.design.max(1.0)).floor();
            format!("too few values for bounds: they are worth {} and {} independent ones", worth(a), worth(b))
        }
    }
}

/// The difference of shares (Newcombe, "Interval estimation for the difference between independent proportions", Statistics
/// in Medicine 17, 1998, with the exact bounds of each), and Fisher's exact test.
fn of_shares(contrast: &mut Contrast, base: (u64, u64), other: (u64, u64)) {
    contrast.p = Some(share::fisher_exact(base, other));
    let Some((a, b)) = interval(&contrast.base).zip(interval(&contrast.other)) else { return };
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
    let (own, its) = (base.values.get(&measure.metric)?, other.values.get(&measure.metric)?);
    cliffs_delta(own, its).map(Effect::CliffsDelta)
}

// Two sides of which one has several runs: each run, or each round on a restarted server, is one value.

/// The contrast, its finding open; None where neither side has the measure. Bounds are at confidence `level` each.
pub(super) fn contrast_of_runs(
    sides: [&[&Side]; 2],
    (index, measure): (usize, Measure),
    run: usize,
    level: f64,
) -> Option<Contrast> {
    let readings = sides.map(|own| readings(own, index));
    let values = readings.each_ref().map(|own| own.iter().filter_map(|reading| reading.value).collect::<Vec<f64>>());
    let [base, other] = values.each_ref().map(Vec::as_slice);
    if base.is_empty() && other.is_empty() {
        return None;
    }
    let case = sides.iter().find_map(|own| own.first()).map(|side| side.case.clone()).unwrap_or_default();
    let share = sides.iter().flat_map(|own| own.iter()).any(|side| side.shares.get(index).copied().flatten().is_some());
    let logs = !share && base.iter().chain(other).all(|value| *value > 0.0);
    let scale = Averaging { logs, level };
    let [a, b] = [0, 1].map(|at| scale.joined(&readings[at], &values[at]));
    let mut contrast = Contrast { effect: effect_of_runs(sides, measure), ..blank(case, measure, run, (a, b)) };
    match (Group::of(&scale.all(base)), Group::of(&scale.all(other))) {
        (Some(own), Some(its)) => {
            let least = if share { least_error(sides, index) } else { 0.0 };
            let seen = difference(its, own, level, least);
            contrast.p = seen.map(|seen| seen.p);
            let span = |seen: llmscen_core::stats::comparison::Difference, at: fn(f64) -> f64| Span {
                value: at(seen.value),
                low: at(seen.low),
                high: at(seen.high),
            };
            if logs {
                contrast.ratio = seen.map(|seen| span(seen, f64::exp));
            } else if share {
                contrast.difference = seen.map(|seen| span(seen, |own| own));
                contrast.effect = a.value.zip(b.value).map(|(a, b)| Effect::CohensH(cohens_h(a, b)));
            } else if own.mean == 0.0 {
                // From nothing there is no share of it.
                contrast.p = None;
                contrast.note = Some("a value of 0 has no ratio".to_owned());
            }
            if seen.is_none() {
                contrast.note = Some("only one run of each side has such values".to_owned());
            }
        }
        (None, _) => contrast.note = Some("the base has no such values".to_owned()),
        (_, None) => contrast.note = Some("the candidate has no such values".to_owned()),
    }
    Some(contrast)
}

fn readings(sides: &[&Side], index: usize) -> Vec<Reading> {
    sides.iter().filter_map(|side| side.readings.get(index).copied()).collect()
}

/// On what scale values are averaged: on that of their logarithms, where all are above 0 and no shares.
#[derive(Clone, Copy)]
struct Averaging {
    logs: bool,
    level: f64,
}

impl Averaging {
    fn all(self, values: &[f64]) -> Vec<f64> {
        values.iter().map(|value| if self.logs { value.ln() } else { *value }).collect()
    }

    /// What a side measured in all its runs.
    fn joined(self, readings: &[Reading], values: &[f64]) -> Reading {
        let back = |value: f64| if self.logs { value.exp() } else { value };
        let n = readings.iter().map(|own| own.n).sum();
        let replicates = values.len() as u32;
        match (Group::of(&self.all(values)), readings) {
            (Some(group), _) if group.n > 1 => {
                let bounds = group.ends(self.level).map(|(low, high)| (back(low), back(high)));
                Reading { value: Some(back(group.mean)), bounds, n, design: 1.0, replicates }
            }
            (Some(_), _) => readings.iter().find(|own| own.value.is_some()).copied().unwrap_or_default(),
            (None, _) => Reading { n, ..Reading::default() },
        }
    }
}

/// The error that a difference of shares has at least, by as many requests as they are worth: runs without one failure say
/// nothing of how runs differ.
fn least_error(sides: [&[&Side]; 2], index: usize) -> f64 {
    let sum = |own: &[&Side]| {
        let all = own.iter().filter_map(|side| side.shares.get(index).copied().flatten());
        all.fold((0.0, 0.0), |(hits, n), own| (hits + own.0 as f64, n + own.1 as f64))
    };
    let [(hits, n), (others, m)] = sides.map(sum);
    let pooled = (hits + others) / (n + m).max(1.0);
    (pooled * (1.0 - pooled) * (1.0 / n.max(1.0) + 1.0 / m.max(1.0))).sqrt()
}

fn effect_of_runs(sides: [&[&Side]; 2], measure: Measure) -> Option<Effect> {
    measure.stat?;
    let [own, its] = sides.map(|own| {
        let mut all: Vec<f64> = own.iter().filter_map(|side| side.values.get(&measure.metric)).flatten().copied().collect();
        sort(&mut all);
        all
    });
    cliffs_delta(&own, &its).map(Effect::CliffsDelta)
}
