//! report.md, rendered from `templates/report.md`.

use crate::chart::Chart;
use crate::findings::Finding;
use crate::format::{bytes, code, plain, prose, value};
use crate::objectives::objectives;
use crate::table::{Cell, Column, Row, Table};
use crate::{
    ReportError, answers, audit, capacity, cases, commands, findings, headline, local, notes,
    percentiles, repeats, replies, search, server, shards, telemetry, workers,
};
use llmscen_core::check::Ruling;
use llmscen_core::report::{CaseReport, Report};
use llmscen_core::search::SearchReport;
use llmscen_core::units::Unit;
use minijinja::Environment;
use minijinja::value::Serde;
use serde::Serialize;

const TEMPLATE: &str = include_str!("../report.md");

/// With more objectives, only those that did not pass are shown unfolded.
const MAX_UNFOLDED_OBJECTIVES: usize = 30;
/// With more cases, their percentiles are folded.
const MAX_UNFOLDED_CASES: usize = 3;

/// The variables of the template. Tables are Markdown, empty without rows.
#[derive(Serialize)]
struct Page {
    name: String,
    verdict: &'static str,
    reason: String,
    interruption: Option<String>,
    description: Option<String>,
    searches: Vec<Search>,
    /// How the candidates of a search were ranked; None without `over`.
    candidates: Option<&'static str>,
    capacities: String,
    slo: String,
    slo_open: String,
    slo_open_total: usize,
    slo_total: usize,
    slo_folded: bool,
    findings: Vec<String>,
    cases: String,
    case_count: usize,
    steady: String,
    reply_accounts: String,
    prompt_lengths: String,
    output_lengths: String,
    finish_reasons: String,
    repeats: String,
    restarts: Option<String>,
    endpoints: String,
    groups: String,
    speeds: String,
    models: String,
    batches: String,
    charts: Vec<ChartLink>,
    percentiles: Vec<CaseTables>,
    signals: Vec<CaseTables>,
    server_ttft: String,
    workers: String,
    roles: String,
    folded: bool,
    failures: String,
    answers: Vec<String>,
    retries: String,
    servers: String,
    commands: String,
    server_ends: Vec<ServerEnd>,
    audit: String,
    audit_limits: String,
    doubtful: String,
    judged_three_times: Option<String>,
    shards: String,
    shard_line: Option<String>,
    omitted_shards: Option<String>,
    environment: String,
    notes: Vec<String>,
}

#[derive(Serialize)]
struct ChartLink {
    file: String,
    title: String,
}

#[derive(Serialize)]
struct Search {
    sentence: String,
    probes: String,
    pareto: String,
}

/// The tables of one case, and a sentence below them.
#[derive(Serialize)]
struct CaseTables {
    /// Markdown heading.
    title: String,
    /// HTML summary of a folded section.
    summary: String,
    tables: Vec<String>,
    others: String,
}

#[derive(Serialize)]
struct ServerEnd {
    sentence: String,
    log: Vec<String>,
}

/// report.md with links to the charts, `charts/<name>.png` or `.svg`.
///
/// # Errors
/// [`ReportError::Template`] if the template cannot be rendered.
pub fn markdown(report: &Report, charts: &[Chart]) -> Result<String, ReportError> {
    let mut environment = Environment::new();
    environment.add_template("report", TEMPLATE)?;
    let text = environment
        .get_template("report")?
        .render(Serde(page(report, charts)))?;
    Ok(text.trim_end().to_owned() + "\n")
}

fn page(report: &Report, charts: &[Chart]) -> Page {
    let slo = objectives(report, |_| true);
    let slo_open = objectives(report, |verdict| verdict.ruling != Ruling::Pass);
    let all = || cases::indexed(report);
    Page {
        name: prose(&report.manifest.name),
        verdict: headline::verdict_name(report.verdict),
        reason: prose(&headline::reason(report)),
        interruption: headline::interruption(report).as_deref().map(prose),
        description: report.description.as_deref().map(prose),
        searches: searches(report),
        candidates: capacity::method(report),
        capacities: capacity::table(report).markdown(),
        slo: slo.markdown(),
        slo_open: slo_open.markdown(),
        slo_open_total: slo_open.rows.len(),
        slo_total: slo.rows.len(),
        slo_folded: slo.rows.len() > MAX_UNFOLDED_OBJECTIVES,
        findings: findings(report),
        cases: cases::cases_without_groups(report).markdown(),
        case_count: report.cases.len(),
        steady: cases::steady_states(report).markdown(),
        reply_accounts: replies::reply_accounts(all()).markdown(),
        prompt_lengths: cases::prompt_lengths(report).markdown(),
        output_lengths: replies::output_lengths(all()).markdown(),
        finish_reasons: replies::finish_reasons(all()).markdown(),
        repeats: repeats::rounds_table(report).markdown(),
        restarts: repeats::restarts(report),
        endpoints: cases::endpoints(all()).markdown(),
        groups: cases::groups(all()).markdown(),
        speeds: local::speeds(report).markdown(),
        models: local::models(report).markdown(),
        batches: local::batches(report).markdown(),
        charts: charts
            .iter()
            .map(|chart| ChartLink {
                file: chart.file(),
                title: prose(&chart.title),
            })
            .collect(),
        percentiles: report.cases.iter().filter_map(percentile_tables).collect(),
        signals: report.cases.iter().filter_map(signal_tables).collect(),
        server_ttft: telemetry::server_ttft(all()).markdown(),
        workers: workers::workers(all()).markdown(),
        roles: workers::roles(all()).markdown(),
        folded: report.cases.len() > MAX_UNFOLDED_CASES,
        failures: cases::failures(all()).markdown(),
        answers: [
            answers::shares(all()),
            answers::failed_checks(all()),
            answers::failed_answers(all()),
        ]
        .iter()
        .filter(|table| !table.rows.is_empty())
        .map(Table::markdown)
        .collect(),
        retries: cases::retries(report).markdown(),
        servers: server::starts_table(report).markdown(),
        commands: commands::table(report).markdown(),
        server_ends: server::server_exits(report)
            .into_iter()
            .map(|end| ServerEnd {
                sentence: prose(&end.sentence),
                log: end.log,
            })
            .collect(),
        audit: audit::audit_table(all()).markdown(),
        audit_limits: audit::audit_limits(report),
        doubtful: audit::doubtful_objectives(report).markdown(),
        judged_three_times: audit::judged_three_times(report).as_deref().map(prose),
        shards: shards::shards_table(report).markdown(),
        shard_line: shards::shard_line(report).as_deref().map(prose),
        omitted_shards: shards::omitted_shards(report),
        environment: environment(report).markdown(),
        notes: notes::markdown_notes(report),
    }
}

/// The findings, and what was not measured.
fn findings(report: &Report) -> Vec<String> {
    let symbol = |finding: &Finding| match finding.tone.symbol() {
        "" => String::new(),
        symbol => format!("{symbol} "),
    };
    let line = |finding: Finding| format!("{}{}", symbol(&finding), prose(&finding.text));
    let found = findings::findings(report).into_iter().map(line);
    found
        .chain(findings::unmeasured(report).as_deref().map(prose))
        .collect()
}

fn searches(report: &Report) -> Vec<Search> {
    let section = |(index, search): (usize, &SearchReport)| Search {
        sentence: prose(&search::sentence(report, search)),
        probes: search::probes(report, &[(index, search)]).markdown(),
        pareto: search::pareto(search).markdown(),
    };
    report.searches.iter().enumerate().map(section).collect()
}

fn case_tables(case: &CaseReport, tables: Vec<String>, others: String) -> CaseTables {
    let html = case
        .id
        .replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;");
    CaseTables {
        title: code(&case.id),
        summary: format!("<code>{}</code>", plain(&html)),
        tables,
        others,
    }
}

fn percentile_tables(case: &CaseReport) -> Option<CaseTables> {
    let (main, rest) =
        percentiles::low_is_better(case).partition(|metric| percentiles::is_main(case, metric));
    let high = percentiles::high_is_better(case);
    let has_rows = [&main, &rest, &high]
        .iter()
        .any(|table| !table.rows.is_empty());
    let more: Vec<String> = [rest, high]
        .iter()
        .filter(|table| !table.rows.is_empty())
        .map(Table::markdown)
        .collect();
    let more = (!more.is_empty()).then(|| {
        format!(
            "<details><summary>More metrics and percentiles</summary>\n\n{}\n\n</details>",
            more.join("\n\n")
        )
    });
    let tables = [main.markdown()]
        .into_iter()
        .chain(more)
        .chain([percentiles::percentile_table(case).markdown()]);
    has_rows.then(|| case_tables(case, tables.collect(), String::new()))
}

fn signal_tables(case: &CaseReport) -> Option<CaseTables> {
    let has_telemetry = !(case.telemetry.signals.is_empty() && case.telemetry.others.is_empty());
    has_telemetry.then(|| {
        case_tables(
            case,
            vec![telemetry::signals(case).markdown()],
            telemetry::others(case),
        )
    })
}

/// The table of the run, its host and its targets.
pub(super) fn environment(report: &Report) -> Table {
    let (manifest, machine) = (&report.manifest, &report.manifest.machine);
    let elapsed = manifest
        .elapsed_s
        .map(|secs| value(secs, Unit::Seconds))
        .unwrap_or_default();
    let size = if machine.cores > 0 {
        format!("{} cores, {}", machine.cores, bytes(machine.memory as f64))
    } else {
        String::new()
    };
    let optional = |text: &Option<String>| Cell::prose(text.as_deref().unwrap_or_default());
    let rows = [
        ("Run", Cell::code(&manifest.run_id)),
        ("Started", Cell::prose(&manifest.started_at)),
        ("Duration", Cell::prose(&elapsed)),
        ("Seed", Cell::code(&manifest.seed.to_string())),
        ("Plan hash", Cell::code(&manifest.plan_id)),
        ("llmscen", Cell::prose(&manifest.tool_version)),
        ("Host", Cell::prose(&machine.host)),
        ("OS", Cell::prose(&machine.os)),
        ("Kernel", Cell::prose(&machine.kernel)),
        ("CPU", Cell::prose(&machine.cpu)),
        ("Cores, memory", Cell::prose(&size)),
        ("GPU", optional(&machine.gpu)),
        ("GPU driver", optional(&machine.gpu_driver)),
        ("CUDA", optional(&machine.cuda)),
        ("GPU application clock", optional(&machine.gpu_clock)),
    ];
    let label =
        |(name, value): (&String, &String)| Row::new(vec![Cell::code(name), Cell::prose(value)]);
    let target = |(url, server): (&String, &String)| {
        let text = [code(url), prose(server)].join(" ").trim_end().to_owned();
        (
            "Target",
            Cell::code(format!("{url} {server}").trim_end()).in_markdown(text),
        )
    };
    let filters = manifest
        .filter
        .options()
        .into_iter()
        .map(|option| ("Case filter", Cell::code(&option)));
    let rows = rows
        .into_iter()
        .chain(manifest.targets.iter().map(target))
        .chain(filters);
    let rows = rows
        .filter(|(_, cell)| !cell.text.is_empty())
        .map(|(name, cell)| Row::new(vec![Cell::prose(name), cell]));
    Table::new(
        vec![
            Column::text().markdown("").html("Property"),
            Column::text().markdown("").html("Value"),
        ],
        manifest.labels.iter().map(label).chain(rows).collect(),
    )
}

#[cfg(test)]
mod tests;
