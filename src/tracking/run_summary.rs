//! What a tracker is told of a run.

use llmscen_core::plan::{Case, Plan};
use llmscen_core::redact::Redactor;
use llmscen_core::report::{CaseReport, Report, RunVerdict};
use llmscen_core::sample::Distribution;
use std::collections::BTreeSet;

/// A name, parameters and metrics: of the run as a whole, or of one of its cases.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CaseSummary {
    /// Its name.
    pub name: String,
    /// Parameters.
    pub params: Vec<(String, String)>,
    /// Metrics by the names of cases.csv, units in them.
    pub metrics: Vec<(String, f64)>,
}

/// A run as a tracker is told of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RunSummary {
    /// Unique id of the run.
    pub run_id: String,
    /// Start, milliseconds since the Unix epoch.
    pub started_ms: u64,
    /// End, likewise.
    pub ended_ms: u64,
    /// `pass`, `fail`, `inconclusive`, `invalid` or `error`.
    pub verdict: &'static str,
    /// Whether it went to its end.
    pub finished: bool,
    /// The run as a whole; with a single case, that case's metrics too.
    pub whole: CaseSummary,
    /// The cases, where there are several.
    pub cases: Vec<CaseSummary>,
}

impl RunSummary {
    /// What is said of a run.
    pub fn of(plan: &Plan, report: &Report) -> RunSummary {
        let facts = &report.manifest;
        let started_ms = facts.started_unix_ns / 1_000_000;
        let elapsed_ms = (facts.elapsed_s.unwrap_or(0.0) * 1e3) as u64;
        let mut whole = CaseSummary { name: format!("{} {}", facts.name, facts.started_at), ..CaseSummary::default() };
        let param = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        whole.params = vec![
            param("scenario", &facts.name),
            param("plan_id", &facts.plan_id),
            param("seed", &facts.seed.to_string()),
            param("tool_version", &facts.tool_version),
            param("host", &facts.machine.host),
        ];
        let mut cases: Vec<CaseSummary> = report.cases.iter().map(|case| entry(plan, case)).collect();
        if let [only] = cases.as_mut_slice() {
            whole.params.append(&mut only.params);
            whole.metrics.append(&mut only.metrics);
            cases.clear();
        }
        let held = |case: &CaseReport| case.verdicts.iter().filter(|verdict| verdict.ruling.name() == "pass").count() as f64;
        whole.metrics.push(("limits".into(), report.cases.iter().map(|case| case.verdicts.len() as f64).sum()));
        whole.metrics.push(("limits_held".into(), report.cases.iter().map(held).sum()));
        whole.metrics.push(("exit_code".into(), f64::from(report.exit_code)));
        RunSummary {
            run_id: facts.run_id.clone(),
            started_ms,
            ended_ms: started_ms + elapsed_ms,
            verdict: word(report.verdict),
            finished: !facts.interrupted && facts.error.is_none(),
            whole,
            cases,
        }
    }
}

impl RunSummary {
    /// The same without secrets in names and parameters.
    pub fn hiding(mut self, redactor: &Redactor) -> RunSummary {
        for entry in self.cases.iter_mut().chain([&mut self.whole]) {
            entry.name = redactor.strike(std::mem::take(&mut entry.name));
            entry.params.iter_mut().for_each(|(_, value)| *value = redactor.strike(std::mem::take(value)));
        }
        self
    }
}

fn word(verdict: RunVerdict) -> &'static str {
    match verdict {
        RunVerdict::Pass => "pass",
        RunVerdict::Fail => "fail",
        RunVerdict::Inconclusive => "inconclusive",
        RunVerdict::Invalid => "invalid",
        RunVerdict::Error => "error",
    }
}

fn entry(plan: &Plan, case: &CaseReport) -> CaseSummary {
    let mut params = vec![("case".to_owned(), case.id.clone()), ("load".to_owned(), case.load.clone())];
    if let Some(own) = plan.cases.iter().find(|own| own.id == case.id) {
        params.extend(of_target(own));
    }
    params.extend(case.labels.0.iter().map(|(path, value)| (path.clone(), value.to_string())));
    let mut metrics: Vec<(String, f64)> =
        case.scalars.iter().map(|(metric, &value)| (metric.column().to_owned(), value)).collect();
    for (metric, distribution) in &case.distributions {
        metrics.extend(statistics(metric.column(), distribution));
    }
    let counts = &case.counts;
    for (name, count) in
        [("scheduled", counts.scheduled), ("ok", counts.ok), ("failed", counts.failed), ("dropped", counts.dropped)]
    {
        metrics.push((format!("requests_{name}"), count as f64));
    }
    metrics.push(("audit_valid".into(), f64::from(u8::from(case.audit.valid))));
    metrics.retain(|(_, value)| value.is_finite());
    let mut known = BTreeSet::new();
    // A swept model is a label and the target's own: trackers take a name once.
    params.retain(|(name, _)| known.insert(name.clone()));
    CaseSummary { name: case.id.clone(), params, metrics }
}

fn of_target(case: &Case) -> Vec<(String, String)> {
    let models: Vec<&str> = case.target.models.iter().map(|share| share.name.as_str()).collect();
    vec![("target.api".to_owned(), case.target.api.name().to_owned()), ("target.model".to_owned(), models.join(", "))]
}

fn statistics<'a>(column: &'a str, distribution: &'a Distribution) -> impl Iterator<Item = (String, f64)> + 'a {
    let of = move |stat: &str, value: f64| (format!("{column}_{stat}"), value);
    let quantiles = Distribution::SHARES.iter().zip(&distribution.quantiles);
    let quantiles = quantiles.map(move |(share, &value)| (format!("{column}_p{}", (share * 1e5).round() / 1e3), value));
    [of("mean", distribution.mean), of("min", distribution.min), of("max", distribution.max)].into_iter().chain(quantiles)
}
