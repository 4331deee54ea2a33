//! One measure of one case on two sides of which one has several runs: each run, or each round on a restarted server, is one value.

use crate::judge::compare::contrast::blank;
use crate::judge::compare::side::Side;
use llmscen_core::compare::{Contrast, Measure, Reading, Span};
use llmscen_core::compare::Effect;
use llmscen_core::stats::comparison::{cliffs_delta, cohens_h};
use llmscen_core::stats::quantile::sort;
use llmscen_core::stats::comparison::{Group, difference};

/// The contrast, its finding open; None where neither side has the measure. Bounds are at confidence `level` each.
pub(super) fn of(sides: [&[&Side]; 2], (index, measure): (usize, Measure), run: usize, level: f64) -> Option<Contrast> {
    let readings = sides.map(|own| readings(own, index));
    let values = readings.each_ref().map(|own| own.iter().filter_map(|reading| reading.value).collect::<Vec<f64>>());
    let [base, other] = values.each_ref().map(Vec::as_slice);
    if base.is_empty() && other.is_empty() {
        return None;
    }
    let case = sides.iter().find_map(|own| own.first()).map(|side| side.case.clone()).unwrap_or_default();
    let share = sides.iter().flat_map(|own| own.iter()).any(|side| side.shares.get(index).copied().flatten().is_some());
    let logs = !share && base.iter().chain(other).all(|value| *value > 0.0);
    let scale = Scale { logs, level };
    let [a, b] = [0, 1].map(|at| scale.joined(&readings[at], &values[at]));
    let mut contrast = Contrast { effect: effect(sides, measure), ..blank(case, measure, run, (a, b)) };
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
struct Scale {
    logs: bool,
    level: f64,
}

impl Scale {
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

fn effect(sides: [&[&Side]; 2], measure: Measure) -> Option<Effect> {
    measure.stat?;
    let [own, its] = sides.map(|own| {
        let mut all: Vec<f64> = own.iter().filter_map(|side| side.values.get(&measure.metric)).flatten().copied().collect();
        sort(&mut all);
        all
    });
    cliffs_delta(&own, &its).map(Effect::CliffsDelta)
}
