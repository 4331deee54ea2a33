//! Comparisons made up for the tests of this room: of any number of cases and runs, with everything that can be odd about them.

use crate::fixture::sweep;
use llmscen_core::check::Ruling;
use llmscen_core::compare::Effect;
use llmscen_core::compare::{Comparison, Contrast, Correction, Difference, Finding, Measure, Reading, Run, Span};
use llmscen_core::metric::{Metric, Stat};
use llmscen_core::report::{CaseReport, Report};

const SHARES: [(Metric, f64); 9] = [
    (Metric::Ttft, 0.5),
    (Metric::Ttft, 0.95),
    (Metric::Ttft, 0.99),
    (Metric::Itl, 0.5),
    (Metric::Itl, 0.99),
    (Metric::Tpot, 0.95),
    (Metric::E2e, 0.5),
    (Metric::E2e, 0.95),
    (Metric::E2e, 0.99),
];

/// A sweep of so many cases in so many runs, each run slower than the one before by 12 %.
pub fn comparison(cases: usize, runs: usize) -> Comparison {
    let runs: Vec<Run> = (0..runs).map(|index| run(cases, index)).collect();
    let mut contrasts = Vec::new();
    for (at, base) in runs[0].report.cases.iter().enumerate() {
        for &(metric, share) in &SHARES {
            contrasts.extend((1..runs.len()).map(|run| quantile(base, &runs[run].report.cases[at], (metric, share), run)));
        }
        contrasts.extend((1..runs.len()).flat_map(|run| [throughput(base, run), errors(base, run)]));
    }
    Comparison {
        differences: vec![Vec::new(); runs.len() - 1],
        sides: runs.iter().map(|run| run.label.clone()).collect(),
        tests: contrasts.iter().filter(|own| own.p.is_some()).count(),
        contrasts,
        runs,
        alone: Vec::new(),
        notes: Vec::new(),
        correction: Correction::Holm,
        confidence: 0.95,
        max_regression: 0.05,
    }
}

/// The same with everything that needs a word: plans, cases and machines that differ, and a run that is not sound.
pub fn doubtful() -> Comparison {
    let mut own = comparison(2, 2);
    let text = |text: &str| Some(text.to_owned());
    own.differences[0] = vec![
        Difference { path: "load.concurrency".into(), base: text("4"), other: text("8"), harmless: false },
        Difference { path: "target.url".into(), base: text("http://a"), other: None, harmless: true },
    ];
    own.alone = vec![("A".into(), "old|one".into()), ("B".into(), "new".into())];
    let manifest = &mut own.runs[1].report.manifest;
    (manifest.seed, manifest.machine.host, manifest.interrupted) = (7, "other".into(), true);
    own.runs[1].report.cases[0].audit.valid = false;
    own.runs[1].report.cases[0].audit.reasons = vec!["a worker thread was busy".into()];
    own.runs[1].report.cases[0].verdicts.iter_mut().for_each(|verdict| verdict.ruling = Ruling::Invalid);
    own
}

fn run(cases: usize, index: usize) -> Run {
    let mut report: Report = sweep(cases as u32);
    let slower = 1.12f64.powi(index as i32);
    for case in &mut report.cases {
        case.distributions.values_mut().for_each(|own| own.quantiles.iter_mut().for_each(|value| *value *= slower));
        case.cdfs.values_mut().for_each(|points| points.iter_mut().for_each(|(value, _)| *value *= slower));
        case.scalars.values_mut().for_each(|value| *value /= slower);
    }
    report.manifest.run_id = format!("run-{index}");
    let (label, folder) = (char::from(b'A' + index as u8).to_string(), format!("reports/chat/2026010{index}T000000Z"));
    Run { label, side: index, folder, report }
}

fn reading(value: Option<f64>) -> Reading {
    Reading { value, bounds: value.map(|value| (value * 0.95, value * 1.06)), n: 240, design: 1.2, replicates: 0 }
}

fn quantile(base: &CaseReport, other: &CaseReport, (metric, share): (Metric, f64), run: usize) -> Contrast {
    let value = |case: &CaseReport| case.distributions.get(&metric).and_then(|own| own.quantile(share));
    let (a, b) = (value(base), value(other));
    let ratio = a.zip(b).map(|(a, b)| b / a);
    let few = share >= 0.99 && metric == Metric::Ttft;
    Contrast {
        case: base.id.clone(),
        measure: Measure { metric, stat: Some(Stat::Quantile(share)) },
        run,
        base: reading(a),
        other: reading(b),
        ratio: ratio.filter(|_| !few).map(|value| Span { value, low: value * 0.93, high: value * 1.08 }),
        difference: None,
        p: (!few).then_some(0.0004),
        p_adjusted: (!few).then_some(0.012),
        effect: Some(Effect::CliffsDelta(0.21)),
        finding: if few { Finding::Unknown } else { Finding::Regression },
        note: few.then(|| "not tested: too few independent samples (200 in base, 180 in candidate)".to_owned()),
    }
}

fn throughput(base: &CaseReport, run: usize) -> Contrast {
    let a = base.scalars.get(&Metric::OutputTps).copied();
    Contrast {
        measure: Measure { metric: Metric::OutputTps, stat: None },
        other: reading(a.map(|value| value * 1.04)),
        base: reading(a),
        ratio: Some(Span { value: 1.04, low: 1.01, high: 1.07 }),
        effect: None,
        finding: Finding::Better,
        ..quantile(base, base, (Metric::E2e, 0.5), run)
    }
}

fn errors(base: &CaseReport, run: usize) -> Contrast {
    Contrast {
        measure: Measure { metric: Metric::ErrorRate, stat: None },
        base: reading(Some(0.0)),
        other: reading(Some(0.0125)),
        ratio: None,
        difference: Some(Span { value: 0.0125, low: -0.004, high: 0.036 }),
        p_adjusted: Some(0.31),
        effect: Some(Effect::CohensH(0.224)),
        finding: Finding::Noise,
        ..quantile(base, base, (Metric::E2e, 0.5), run)
    }
}
