//! The words and figures that all forms of a comparison share.

use crate::format::{ABSENT, against, number, percent};
use llmscen_core::compare::{Comparison, Contrast, Effect, Finding, Run, Span};
use llmscen_core::report::RunVerdict;

/// Characters of a folder in a legend.
const ROOM: usize = 36;

/// `ttft.p95 ↓`: the arrow says which way is better.
pub(super) fn measure(contrast: &Contrast) -> String {
    format!("{} {}", contrast.measure, if contrast.measure.metric.higher_is_better() { "↑" } else { "↓" })
}

/// The two values, in as many digits as tell them apart.
pub(super) fn values(contrast: &Contrast) -> [String; 2] {
    let (base, other, unit) = (contrast.base.value, contrast.other.value, contrast.measure.metric.unit());
    let beside = |value: Option<f64>, it: Option<f64>| against(value, it.or(value).unwrap_or(0.0), unit);
    [beside(base, other), beside(other, base)]
}

/// `+12.3%`, or `+1.20 pp` for a share.
pub(super) fn change(contrast: &Contrast) -> String {
    match (contrast.difference, contrast.ratio, contrast.base.value.zip(contrast.other.value)) {
        (Some(span), _, _) => points(span.value),
        (_, Some(span), _) => relative(span.value),
        (_, _, Some((base, other))) if base != 0.0 => relative(other / base),
        _ => ABSENT.to_owned(),
    }
}

/// The interval of the change.
pub(super) fn interval(contrast: &Contrast) -> String {
    let told = |span: Span, form: fn(f64) -> String| format!("{} … {}", form(span.low), form(span.high));
    match (contrast.difference, contrast.ratio) {
        (Some(span), _) => told(span, points),
        (_, Some(span)) => told(span, relative),
        _ => ABSENT.to_owned(),
    }
}

/// A ratio as a change: `+12.3%`; from ten times on as it is: `×12.3`.
pub(super) fn relative(ratio: f64) -> String {
    let change = (ratio - 1.0) * 100.0;
    match () {
        () if ratio >= 10.0 => format!("×{}", number(ratio)),
        () if change.abs() < 0.05 => "0.0%".to_owned(),
        () => format!("{change:+.1}%"),
    }
}

fn points(difference: f64) -> String {
    if difference == 0.0 { "0 pp".to_owned() } else { format!("{:+.2} pp", difference * 100.0) }
}

/// `0.034`, `<0.001`.
pub(super) fn probability(p: Option<f64>) -> String {
    match p {
        None => ABSENT.to_owned(),
        Some(p) if p < 0.001 => "<0.001".to_owned(),
        Some(p) => format!("{p:.3}"),
    }
}

/// `medium (δ +0.41)`.
pub(super) fn effect(effect: Option<Effect>) -> String {
    let Some(own) = effect else { return ABSENT.to_owned() };
    let sign = if matches!(own, Effect::CliffsDelta(_)) { 'δ' } else { 'h' };
    format!("{} ({sign} {:+.2})", own.magnitude().name(), own.value() + 0.0)
}

/// `1 regression, 2 within tolerance, 0 better, 9 no more than noise, 1 unknown`.
pub(super) fn counts(comparison: &Comparison) -> String {
    let count = |finding| comparison.count(finding);
    let regressions = count(Finding::Regression);
    let unknown = count(Finding::Unknown);
    let unknown = if unknown > 0 { format!(", {unknown} unknown") } else { String::new() };
    format!(
        "{regressions} regression{}, {} within tolerance, {} better, {} no more than noise{unknown}",
        if regressions == 1 { "" } else { "s" },
        count(Finding::Within),
        count(Finding::Better),
        count(Finding::Noise)
    )
}

/// By what it was decided.
pub(super) fn rule(comparison: &Comparison) -> String {
    let level = percent(comparison.confidence);
    let how = match comparison.tests {
        1 => "one test, which needs no correction".to_owned(),
        tests => format!("p adjusted for {tests} tests: {}", comparison.correction.name()),
    };
    let alpha = ((1.0 - comparison.confidence) * 1e6).round() / 1e6;
    let least = percent(comparison.max_regression);
    let replicated = replicated(comparison).map(|words| format!("; {words}")).unwrap_or_default();
    format!(
        "{how}; more than noise is p < {alpha}, a change is that and more than {least}; intervals at {level}, each by itself{replicated}"
    )
}

/// By what sides of several runs are compared: `Welch's test on one value per run: A 3, B 3`. None where each has one.
fn replicated(comparison: &Comparison) -> Option<String> {
    let all: Vec<u32> = (0..comparison.sides.len()).map(|side| comparison.replicates(side)).collect();
    if all.iter().all(|count| *count == 0) {
        return None;
    }
    let restarted = comparison.runs.iter().any(|run| run.report.cases.iter().any(|case| case.restarted));
    let unit = if restarted { "run or round on a restarted server" } else { "run" };
    let test = if all.iter().all(|count| *count > 1) { "Welch's test" } else { "prediction interval of one more run" };
    let each: Vec<String> =
        comparison.sides.iter().zip(&all).map(|(label, count)| format!("{label} {}", (*count).max(1))).collect();
    Some(format!("{test} on the logarithm of one value per {unit}: {}", each.join(", ")))
}

/// What sides of one run each cannot show.
pub(super) fn single(comparison: &Comparison) -> Option<String> {
    let one = |own: &Contrast| own.base.replicates == 0 && own.other.replicates == 0;
    let single = !comparison.contrasts.is_empty() && comparison.contrasts.iter().all(one);
    single.then(|| {
        "one run per side: differences under about 5 % may be the restart of the server, not the change; \
         compare several runs with --base and --candidate"
            .to_owned()
    })
}

/// `REGRESSION`, `INVALID`, `INCONCLUSIVE` or `NO REGRESSION`.
pub(super) fn verdict(comparison: &Comparison) -> &'static str {
    match () {
        () if comparison.invalid() => "INVALID",
        () if comparison.count(Finding::Regression) > 0 => "REGRESSION",
        () if comparison.open() => "INCONCLUSIVE",
        () => "NO REGRESSION",
    }
}

/// The verdict that a run had.
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

/// The label of the side that a contrast is of.
pub(super) fn label(comparison: &Comparison, side: usize) -> &str {
    comparison.sides.get(side).map_or("", String::as_str)
}

/// The end of a folder's path, which tells runs apart and fits into a legend.
pub fn ended(folder: &str) -> String {
    let parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    let last = parts.get(parts.len().saturating_sub(2)..).unwrap_or_default().join("/");
    let long = last.chars().count().saturating_sub(ROOM);
    if long > 0 { format!("…{}", last.chars().skip(long + 1).collect::<String>()) } else { last }
}
