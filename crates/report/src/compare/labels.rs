//! Texts shared by all output formats of a comparison.

use crate::format::{ABSENT, against, counted, number, percent};
use llmscen_core::compare::{Comparison, Contrast, Effect, Finding, Measure, Run, Span};
use llmscen_core::report::RunVerdict;

/// `ttft.p95 ↓`: the arrow is the direction of better values.
pub(super) fn measure(contrast: &Contrast) -> String {
    with_direction(contrast.measure)
}

/// A measure with its arrow.
pub(crate) fn with_direction(measure: Measure) -> String {
    format!(
        "{measure} {}",
        if measure.metric.higher_is_better() {
            "↑"
        } else {
            "↓"
        }
    )
}

/// The values of base and candidate, with as many digits as they need to differ.
pub(super) fn values(contrast: &Contrast) -> [String; 2] {
    let unit = contrast.measure.metric.unit();
    let base = contrast.base.value;
    let candidate = contrast.other.value;
    let format = |value: Option<f64>, other: Option<f64>| {
        against(value, other.or(value).unwrap_or(0.0), unit)
    };
    [format(base, candidate), format(candidate, base)]
}

/// `+12.3%`, or `+1.20 pp` for a share.
pub(super) fn change(contrast: &Contrast) -> String {
    match (
        contrast.difference,
        contrast.ratio,
        contrast.base.value.zip(contrast.other.value),
    ) {
        (Some(span), _, _) => percentage_points(span.value),
        (_, Some(span), _) => relative(span.value),
        (_, _, Some((base, other))) if base != 0.0 => relative(other / base),
        _ => ABSENT.to_owned(),
    }
}

/// The interval of the change.
pub(super) fn interval(contrast: &Contrast) -> String {
    let format = |span: Span, bound: fn(f64) -> String| {
        format!("{} … {}", bound(span.low), bound(span.high))
    };
    match (contrast.difference, contrast.ratio) {
        (Some(span), _) => format(span, percentage_points),
        (_, Some(span)) => format(span, relative),
        _ => ABSENT.to_owned(),
    }
}

/// A ratio as a change: `+12.3%`; from 10 on as a factor: `×12.3`.
pub(crate) fn relative(ratio: f64) -> String {
    let change = (ratio - 1.0) * 100.0;
    match () {
        () if ratio >= 10.0 => format!("×{}", number(ratio)),
        () if change.abs() < 0.05 => "0.0%".to_owned(),
        () => format!("{change:+.1}%"),
    }
}

pub(crate) fn percentage_points(difference: f64) -> String {
    if difference == 0.0 {
        "0 pp".to_owned()
    } else {
        format!("{:+.2} pp", difference * 100.0)
    }
}

/// `0.034`, `<0.001`.
pub(crate) fn probability(p: Option<f64>) -> String {
    match p {
        None => ABSENT.to_owned(),
        Some(p) if p < 0.001 => "<0.001".to_owned(),
        Some(p) => format!("{p:.3}"),
    }
}

/// `medium (δ +0.41)`.
pub(super) fn effect(effect: Option<Effect>) -> String {
    let Some(effect) = effect else {
        return ABSENT.to_owned();
    };
    let sign = if matches!(effect, Effect::CliffsDelta(_)) {
        'δ'
    } else {
        'h'
    };
    format!(
        "{} ({sign} {:+.2})",
        effect.magnitude().name(),
        effect.value() + 0.0
    )
}

/// `1 regression, 2 worse within tolerance, 0 improved, 9 not significant, 1 not tested`.
pub(super) fn counts(comparison: &Comparison) -> String {
    let count = |finding| comparison.count(finding);
    let untested = match count(Finding::Unknown) {
        0 => String::new(),
        untested => format!(", {untested} not tested"),
    };
    format!(
        "{}, {} worse within tolerance, {} improved, {} not significant{untested}",
        counted(count(Finding::Regression), "regression"),
        count(Finding::Within),
        count(Finding::Better),
        count(Finding::Noise)
    )
}

/// The tests and thresholds of the comparison.
pub(super) fn rule(comparison: &Comparison) -> String {
    let level = percent(comparison.confidence);
    let how = match comparison.tests {
        1 => "one test, no correction needed".to_owned(),
        tests => format!(
            "p adjusted for {tests} tests: {}",
            comparison.correction.name()
        ),
    };
    let alpha = ((1.0 - comparison.confidence) * 1e6).round() / 1e6;
    let least = percent(comparison.max_regression);
    let replicated = replicated_test(comparison)
        .map(|text| format!(". {text}"))
        .unwrap_or_default();
    format!(
        "{how}. Significant: p < {alpha}. Regression: significant and worse by more than {least}. \
        Intervals: {level}, unadjusted{replicated}"
    )
}

/// The test for sides of several runs: `Welch's test on the logarithm of one value per run: A 3, B 3`. None if each
/// side has one run.
fn replicated_test(comparison: &Comparison) -> Option<String> {
    let all: Vec<u32> = (0..comparison.sides.len())
        .map(|side| comparison.replicates(side))
        .collect();
    if all.iter().all(|count| *count == 0) {
        return None;
    }
    let restarted = comparison
        .runs
        .iter()
        .any(|run| run.report.cases.iter().any(|case| case.restarted));
    let unit = if restarted {
        "run or round on a restarted server"
    } else {
        "run"
    };
    let test = if all.iter().all(|count| *count > 1) {
        "Welch's test"
    } else {
        "Prediction interval of one more run"
    };
    let each: Vec<String> = comparison
        .sides
        .iter()
        .zip(&all)
        .map(|(label, count)| format!("{label} {}", (*count).max(1)))
        .collect();
    Some(format!(
        "{test} on the logarithm of one value per {unit}: {}",
        each.join(", ")
    ))
}

/// A warning if every side has a single run.
pub(super) fn single_run_warning(comparison: &Comparison) -> Option<String> {
    let is_single =
        |contrast: &Contrast| contrast.base.replicates == 0 && contrast.other.replicates == 0;
    let all_single = !comparison.contrasts.is_empty() && comparison.contrasts.iter().all(is_single);
    all_single.then(|| {
        "one run per side: differences below about 5 % may come from restarting the server; \
         compare several runs with --base and --candidate"
            .to_owned()
    })
}

/// `REGRESSION`, `INVALID`, `INCONCLUSIVE` or `NO REGRESSION`.
pub(super) fn verdict(comparison: &Comparison) -> &'static str {
    match () {
        () if comparison.has_invalid_run() => "INVALID",
        () if comparison.count(Finding::Regression) > 0 => "REGRESSION",
        () if comparison.is_incomplete() => "INCONCLUSIVE",
        () => "NO REGRESSION",
    }
}

/// The verdict of a run.
pub(super) fn run_verdict(run: &Run) -> &'static str {
    match run.report.verdict {
        _ if run.report.manifest.interrupted => "interrupted",
        RunVerdict::Pass => "pass",
        RunVerdict::Fail => "fail",
        RunVerdict::Inconclusive => "inconclusive",
        RunVerdict::Invalid => "invalid",
        RunVerdict::Error => "error",
    }
}

/// The label of a side.
pub(super) fn label(comparison: &Comparison, side: usize) -> &str {
    comparison.sides.get(side).map_or("", String::as_str)
}
