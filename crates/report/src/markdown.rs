//! report.md: the verdict first, then everything it rests on. The words and their order are `templates/report.md`.

use crate::chart::Chart;
use crate::escape::{code, prose};
use crate::format::{bytes, millis, percent, plain, value};
use crate::sheet::{self, Sheet};
use crate::{ViewError, doubt, groups, headline, local, missing_values, percentiles, probes, repeats, retry, server, telemetry};
use llmscen_core::check::Ruling;
use llmscen_core::report::{CaseReport, Report};
use llmscen_core::units::Unit;
use minijinja::Environment;
use minijinja::value::Serde;
use serde::Serialize;

const TEMPLATE: &str = include_str!("../../../templates/report.md");

/// Rulings up to which all of them are shown unfolded.
const OPEN_RULINGS: usize = 30;
/// Cases up to which their percentiles are shown unfolded.
const OPEN_CASES: usize = 3;

#[derive(Serialize)]
struct Page {
    name: String,
    verdict: &'static str,
    reason: String,
    interruption: Option<String>,
    description: Option<String>,
    searches: Vec<probes::Told>,
    slo: Sheet,
    slo_open: Sheet,
    slo_total: usize,
    slo_folded: bool,
    cases: Sheet,
    steady: Sheet,
    prompt_lengths: Sheet,
    repeats: Sheet,
    restarts: Option<String>,
    groups: Sheet,
    local: local::Sheets,
    charts: Vec<Picture>,
    percentiles: Vec<Percentiles>,
    signals: Vec<telemetry::Told>,
    beside: Sheet,
    folded: bool,
    failures: Sheet,
    manners: Sheet,
    servers: Sheet,
    server_ends: Vec<server::End>,
    audit: Sheet,
    audit_limits: String,
    doubts: Sheet,
    doubts_of: Option<String>,
    environment: Vec<(String, String)>,
    notes: Vec<String>,
}

#[derive(Serialize)]
struct Picture {
    file: String,
    title: String,
}

#[derive(Serialize)]
struct Percentiles {
    /// As a heading.
    title: String,
    /// As HTML.
    summary: String,
    low: Option<Sheet>,
    high: Option<Sheet>,
    /// A row per percentile.
    table: Option<Sheet>,
}

/// report.md, with links to these charts, `charts/<name>.png` or `.svg`.
///
/// # Errors
/// [`ViewError::Template`] where the template cannot be rendered.
pub fn markdown(report: &Report, charts: &[Chart]) -> Result<String, ViewError> {
    let mut environment = Environment::new();
    environment.add_template("report", TEMPLATE)?;
    let text = environment.get_template("report")?.render(Serde(page(report, charts)))?;
    Ok(text.trim_end().to_owned() + "\n")
}

fn page(report: &Report, charts: &[Chart]) -> Page {
    let slo = sheet::slo(report, |_| true);
    let slo_total = slo.rows.len();
    Page {
        name: prose(&report.manifest.name),
        verdict: headline::word(report.verdict),
        reason: prose(&headline::reason(report)),
        interruption: headline::interruption(report).as_deref().map(prose),
        description: report.description.as_deref().map(prose),
        searches: probes::told(report),
        slo,
        slo_open: sheet::slo(report, |verdict| verdict.ruling != Ruling::Pass),
        slo_total,
        slo_folded: slo_total > OPEN_RULINGS,
        cases: sheet::cases(report),
        steady: sheet::steady(report),
        prompt_lengths: sheet::prompt_lengths(report),
        repeats: repeats::sheet(report),
        restarts: repeats::restarts(report),
        groups: groups::groups(report),
        local: local::sheets(report),
        charts: charts.iter().map(|chart| Picture { file: chart.file(), title: prose(&chart.title) }).collect(),
        percentiles: report.cases.iter().map(tails).filter(|case| case.low.is_some() || case.high.is_some()).collect(),
        signals: telemetry::told(report),
        beside: telemetry::beside(report),
        folded: report.cases.len() > OPEN_CASES,
        failures: sheet::failures(report),
        manners: retry::manners(report),
        servers: server::sheet(report),
        server_ends: server::ends(report).into_iter().map(|end| server::End { said: prose(&end.said), ..end }).collect(),
        audit: sheet::audit(report),
        audit_limits: audit_limits(report),
        doubts: sheet::doubts(report),
        doubts_of: doubt::extent(report).as_deref().map(prose),
        environment: environment(report),
        notes: missing_values::told(report),
    }
}

fn tails(case: &CaseReport) -> Percentiles {
    let html = case.id.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    Percentiles {
        title: code(&case.id),
        summary: format!("<code>{}</code>", plain(&html)),
        low: sheet::low_is_better(case),
        high: sheet::high_is_better(case),
        table: percentiles::sheet(case),
    }
}

/// What the self-audits accept, in words.
pub(super) fn audit_limits(report: &Report) -> String {
    let limits = &report.audit;
    format!(
        "at least {} of the offered rate sent, users idle for at most {} of their time, workers stalled for at most {} of the time, \
         at most {} of a core, at most {} of unique prompts cached. Send delays up to {} at p99 and stalls up to {} do not count",
        percent(limits.achieved),
        percent(limits.idle),
        percent(limits.stalled),
        percent(limits.cpu),
        percent(limits.cache),
        millis(limits.lag_p99.millis()),
        millis(limits.stall_p99.millis())
    )
}

fn environment(report: &Report) -> Vec<(String, String)> {
    let (manifest, machine) = (&report.manifest, &report.manifest.machine);
    let elapsed = manifest.elapsed_s.map(|secs| value(secs, Unit::Seconds)).unwrap_or_default();
    let mut pairs = vec![
        ("Run", code(&manifest.run_id)),
        ("Started", prose(&manifest.started_at)),
        ("Took", elapsed),
        ("Seed", code(&manifest.seed.to_string())),
        ("Plan hash", code(&manifest.plan_id)),
        ("llmscen", prose(&manifest.tool_version)),
        ("Host", prose(&machine.host)),
        ("System", prose(&machine.os)),
        ("Kernel", prose(&machine.kernel)),
        ("CPU", prose(&machine.cpu)),
    ];
    if machine.cores > 0 {
        pairs.push(("Size", format!("{} cores, {}", machine.cores, bytes(machine.memory as f64))));
    }
    let told = |(url, what): (&String, &String)| ("Target", [code(url), prose(what)].join(" ").trim_end().to_owned());
    pairs.extend(manifest.targets.iter().map(told));
    pairs.into_iter().filter(|(_, text)| !text.is_empty()).map(|(name, text)| (name.to_owned(), text)).collect()
}

#[cfg(test)]
mod tests;
