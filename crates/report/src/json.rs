//! results.json: the report for programs. Its keys are stable and documented by `results.schema.json`.
//!
//! Every key is always present. A missing value is null, and the `notes` of the case give the reason. Shares are 0..=1.

use crate::objectives::slo_json;
use crate::{ReportError, cases, local, notes, repeats, search, server, telemetry};
use llmscen_core::check::VERDICT_RULES;
use llmscen_core::metric::{Metric, Scope, Stat};
use llmscen_core::report::{CaseReport, GroupReport, Report};
use llmscen_core::sample::SummaryStatistics;
use serde_json::{Map, Value, json};

/// The format's name and version, the value of `schema`.
pub const SCHEMA_NAME: &str = "llmscen/results/1";

/// The value of `throughput_definition`. Older files without this key included the drain in throughputs.
const THROUGHPUT_DEFINITION: &str = "without_drain";

/// The JSON Schema (draft 2020-12) of results.json.
pub fn results_schema() -> &'static str {
    include_str!("results.schema.json")
}

/// results.json of a report, indented, with a final newline.
///
/// # Errors
/// [`ReportError::Json`] if a value cannot be serialized.
pub fn json(report: &Report) -> Result<String, ReportError> {
    let manifest = &report.manifest;
    let cases: Vec<Value> = report
        .cases
        .iter()
        .map(case_json)
        .collect::<Result<_, _>>()?;
    let document = json!({
        "schema": SCHEMA_NAME,
        "name": manifest.name,
        "description": report.description,
        "run_id": manifest.run_id,
        "tool_version": manifest.tool_version,
        "labels": manifest.labels,
        "plan_id": manifest.plan_id,
        "seed": manifest.seed,
        "verdict": report.verdict,
        "verdict_rules": VERDICT_RULES,
        "exit_code": report.exit_code,
        "started_at": manifest.started_at,
        "elapsed_s": manifest.elapsed_s,
        "interrupted": manifest.interrupted,
        "machine": manifest.machine,
        "targets": manifest.targets,
        "notes": manifest.notes,
        "then": manifest.then,
        "profiled": manifest.profiled,
        "throughput_definition": THROUGHPUT_DEFINITION,
        "cases": cases,
        "search": search::json(report)?,
    });
    Ok(serde_json::to_string_pretty(&document)? + "\n")
}

fn case_json(case: &CaseReport) -> Result<Value, ReportError> {
    let labels: Map<String, Value> = case
        .labels
        .0
        .iter()
        .map(|(path, value)| Ok((path.clone(), serde_json::to_value(value)?)))
        .collect::<Result<_, ReportError>>()?;
    let mut document = json!({
        "id": case.id,
        "labels": labels,
        "load": case.load,
        "rounds": case.rounds,
        "restarted": case.restarted,
        "aborted": case.aborted,
        "saturated": case.saturated,
        "steady_from_s": case.timelines.steady.map(|steady| steady.0),
        "steady_until_s": case.timelines.steady.map(|steady| steady.1),
        "token_source": case.token_source,
        "replies": case.account,
        "prompt_lengths": case.prompt_lengths,
        "output_lengths": case.output_lengths,
        "finish_reasons": case.finish_reasons,
        "dataset_end": case.dataset_end,
        "discarded": case.discarded,
        "throughput_span": if case.throughput_is_whole { "whole" } else { "window" },
        "counts": case.counts,
        "metrics": metrics_json(case),
        "telemetry": telemetry::json(case),
        "repeats": repeats::json(case),
        "local": local::json(case, |values| json!(distribution_json(values))),
        "speed": local::speed_json(case),
        "groups": case.groups.iter().map(group_json).collect::<Vec<_>>(),
        "headers": case.headers.iter().map(|header| endpoint_json(case, header)).collect::<Vec<_>>(),
        "endpoints": case.endpoints.iter().map(|endpoint| endpoint_json(case, endpoint)).collect::<Vec<_>>(),
        "audit": case.audit,
        "slo": case.verdicts.iter().map(slo_json).collect::<Vec<_>>(),
        "failures": case.failures,
        "startups": case.startups.iter().map(server::startup_json).collect::<Vec<_>>(),
        "server_ends": case.server_ends.iter().map(server::exit_json).collect::<Vec<_>>(),
        "notes": notes::notes(case),
    });
    // Absent where no answer was checked.
    if let Some(answers) = &case.answers {
        document["answers"] = json!(answers);
    }
    // Absent for a run of one process.
    if !case.shards.is_empty() {
        document["shards"] = json!(case.shards);
    }
    Ok(document)
}

fn metrics_json(case: &CaseReport) -> Map<String, Value> {
    let value = |metric: &Metric| match metric.per() {
        Scope::Case => json!(case.scalars.get(metric)),
        Scope::Request | Scope::Gap => json!(case.distributions.get(metric).map(distribution_json)),
    };
    Metric::ALL
        .iter()
        .map(|metric| (metric.column().to_owned(), value(metric)))
        .collect()
}

fn distributions_json(group: &GroupReport) -> Map<String, Value> {
    group
        .distributions
        .iter()
        .map(|(metric, values)| (metric.column().to_owned(), json!(distribution_json(values))))
        .collect()
}

fn endpoint_json(case: &CaseReport, endpoint: &GroupReport) -> Value {
    let scalar = |metric: Metric| endpoint.scalars.get(&metric);
    json!({
        "name": endpoint.name,
        "requests": endpoint.scheduled,
        "ok": endpoint.ok,
        "share": cases::endpoint_share(case, endpoint),
        "error_rate": scalar(Metric::ErrorRate),
        "request_throughput": scalar(Metric::RequestThroughput),
        "output_tps": scalar(Metric::OutputTps),
        "output_tps_per_user": scalar(Metric::OutputTpsPerUser),
        "metrics": distributions_json(endpoint),
    })
}

fn group_json(group: &GroupReport) -> Value {
    let scalar = |metric: Metric| group.scalars.get(&metric);
    json!({
        "name": group.name,
        "entry": group.entry,
        "scheduled": group.scheduled,
        "ok": group.ok,
        "error_rate": scalar(Metric::ErrorRate),
        "request_throughput": scalar(Metric::RequestThroughput),
        "output_tps": scalar(Metric::OutputTps),
        "output_tps_per_user": scalar(Metric::OutputTpsPerUser),
        "rate_offered": scalar(Metric::RateOffered),
        "rate_achieved": scalar(Metric::RateAchieved),
        "metrics": distributions_json(group),
    })
}

fn distribution_json(distribution: &SummaryStatistics) -> Map<String, Value> {
    let mut out = Map::new();
    out.insert("n".to_owned(), json!(distribution.n));
    out.insert("mean".to_owned(), json!(distribution.mean));
    out.insert("sd".to_owned(), json!(distribution.sd));
    out.insert("min".to_owned(), json!(distribution.min));
    for share in SummaryStatistics::SHARES {
        out.insert(
            Stat::Quantile(share).to_string(),
            json!(distribution.quantile(share)),
        );
    }
    out.insert("max".to_owned(), json!(distribution.max));
    out
}

#[cfg(test)]
mod tests;
