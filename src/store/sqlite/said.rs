//! What is said about the run: the tables `runs`, `cases`, `parts`, `figures`, `distributions` and `slo`.

use super::{Content, Trouble, schema, whole};
use llmscen_core::report::{CaseReport, Report};
use rusqlite::types::Value;
use rusqlite::{Connection, ToSql, params, params_from_iter};

/// Writes the run and its parts.
pub(super) fn run(own: &Connection, content: &Content<'_>) -> Result<(), Trouble> {
    let (report, manifest) = (content.report, &content.report.manifest);
    let verdict = serde_json::to_value(report.verdict)?;
    let values = params![
        manifest.run_id,
        manifest.name,
        report.description,
        manifest.tool_version,
        manifest.plan_id,
        manifest.seed.to_string(),
        manifest.started_at,
        whole(manifest.started_unix_ns),
        manifest.elapsed_s,
        manifest.interrupted,
        manifest.error,
        verdict.as_str(),
        report.exit_code,
        serde_json::to_string(manifest)?,
        content.plan.resolved,
    ];
    own.prepare(&schema::insert("runs", values.len()))?.execute(values)?;
    let mut parts = own.prepare(&schema::insert("parts", 6))?;
    for part in &manifest.parts {
        let (from, until) = (whole(part.measured_from_ns), part.sending_until_ns.and_then(whole));
        parts.execute(params![part.case, part.round, whole(part.origin_ns), from, until, part.cut_short])?;
    }
    Ok(())
}

/// Writes the cases.
pub(super) fn cases(own: &Connection, report: &Report) -> Result<(), Trouble> {
    for (position, case) in report.cases.iter().enumerate() {
        self::case(own, position, case)?;
        figures(own, case)?;
        verdicts(own, case)?;
    }
    Ok(())
}

fn case(own: &Connection, position: usize, case: &CaseReport) -> Result<(), Trouble> {
    let counts = &case.counts;
    let labels: serde_json::Map<_, _> = case
        .labels
        .0
        .iter()
        .map(|(path, value)| Ok((path.clone(), serde_json::to_value(value)?)))
        .collect::<Result<_, Trouble>>()?;
    let values: &[&dyn ToSql] = params![
        case.id,
        position as i64,
        case.is_stage(),
        serde_json::to_string(&labels)?,
        case.load,
        case.load_value,
        case.load_axis,
        case.rounds,
        whole(counts.scheduled),
        whole(counts.ok),
        whole(counts.failed),
        whole(counts.abandoned),
        whole(counts.dropped),
        whole(counts.warmup),
        case.audit.valid,
        serde_json::to_string(&case.audit)?,
        serde_json::to_string(&case.notes)?,
    ];
    own.prepare_cached(&schema::insert("cases", values.len()))?.execute(values)?;
    Ok(())
}

fn figures(own: &Connection, case: &CaseReport) -> Result<(), Trouble> {
    let mut figures = own.prepare_cached(&schema::insert("figures", 3))?;
    for (metric, value) in &case.scalars {
        figures.execute(params![case.id, metric.column(), value])?;
    }
    for (metric, own_figures) in &case.distributions {
        let head: [Value; 3] = [case.id.clone().into(), metric.column().to_owned().into(), whole(own_figures.n).into()];
        let spread: [Value; 3] = [own_figures.mean.into(), own_figures.sd.into(), own_figures.min.into()];
        let quantiles = own_figures.quantiles.iter().map(|value| Value::from(*value));
        let values: Vec<Value> = head.into_iter().chain(spread).chain(quantiles).chain([own_figures.max.into()]).collect();
        own.prepare_cached(&schema::insert("distributions", values.len()))?.execute(params_from_iter(values))?;
    }
    Ok(())
}

fn verdicts(own: &Connection, case: &CaseReport) -> Result<(), Trouble> {
    let mut slo = own.prepare_cached(&schema::insert("slo", 10))?;
    for (position, verdict) in case.verdicts.iter().enumerate() {
        slo.execute(params![
            case.id,
            position as i64,
            verdict.check.expr,
            verdict.ruling.name(),
            verdict.check.limit,
            verdict.observed,
            verdict.bound,
            whole(verdict.n),
            verdict.need.and_then(whole),
            verdict.note,
        ])?;
    }
    Ok(())
}
