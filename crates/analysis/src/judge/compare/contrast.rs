//! One measure of one case in two runs.

use crate::judge::compare::side::Side;
use llmscen_core::compare::{Contrast, Finding, Measure, Reading, Span};
use llmscen_core::compare::Effect;
use llmscen_core::stats::comparison::{cliffs_delta, cohens_h};
use llmscen_core::stats::share;
use llmscen_core::stats::interval::{self, Interval, Scale};

/// The contrast, its finding open; None where neither run has the measure. Bounds are at confidence `level` each.
pub(super) fn of((base, other): (&Side, &Side), (index, measure): (usize, Measure), run: usize, level: f64) -> Option<Contrast> {
    let reading = |side: &Side| side.readings.get(index).copied().unwrap_or_default();
    let (a, b) = (reading(base), reading(other));
    if a.value.is_none() && b.value.is_none() {
        return None;
    }
    let effect = effect((base, other), measure);
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

fn effect((base, other): (&Side, &Side), measure: Measure) -> Option<Effect> {
    measure.stat?;
    let (own, its) = (base.values.get(&measure.metric)?, other.values.get(&measure.metric)?);
    cliffs_delta(own, its).map(Effect::CliffsDelta)
}
