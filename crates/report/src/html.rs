//! report.html: one file that asks nothing of any network. What it says is plain HTML; a script adds charts and order.
//!
//! The template escapes every text. The numbers for the charts stand in JSON whose `<` is escaped, so that no text ends it.

mod chart_data;
#[cfg(test)]
mod tests;

use crate::cases::{failures, parts, single_figures};
use crate::format::optional;
use crate::objectives::{objectives, worst_objectives};
use crate::table::{case_anchor, rich_html};
use crate::{ViewError, audit, cases, headline, local, markdown, notes, percentiles, repeats, search, server, telemetry};
use llmscen_core::check::Ruling;
use llmscen_core::report::{CaseReport, Report, TokenSource};
use llmscen_core::search::SearchReport;
use llmscen_core::units::Unit;
use minijinja::Environment;
use minijinja::syntax::SyntaxConfig;
use minijinja::value::Serde;
use serde::Serialize;
use serde_json::Value;

const TEMPLATE: &str = include_str!("html/page.html");
/// The head and the title of every page.
const HEAD: &str = include_str!("html/head.html");
/// The look of every page.
pub(super) const STYLE: &str = include_str!("html/page.css");
/// What the script of every page does: theme, sorting, printing.
pub(super) const BASE_SCRIPT: &str = include_str!("html/base.js");
const SCRIPTS: [&str; 4] =
    [BASE_SCRIPT, include_str!("html/draw.js"), include_str!("html/charts.js"), include_str!("html/page.js")];
const UPLOT: &str = include_str!("html/vendor/uPlot.iife.min.js");
const UPLOT_STYLE: &str = include_str!("html/vendor/uPlot.min.css");
const UPLOT_LICENSE: &str = include_str!("html/vendor/LICENSE.uPlot");

/// Rulings up to which those that hold are shown unfolded.
const OPEN_RULINGS: usize = 30;

/// What the template gets. Tables and texts with code spans are HTML, tables empty without rows.
#[derive(Serialize)]
struct Page<'a> {
    name: &'a str,
    verdict: &'static str,
    tone: String,
    reason: String,
    interruption: Option<String>,
    description: Option<&'a str>,
    searches: Vec<Search>,
    slo_total: usize,
    slo: String,
    slo_open_total: usize,
    slo_held: String,
    slo_held_total: usize,
    cases: String,
    speeds: String,
    models: String,
    batches: String,
    sections: Vec<Section>,
    failures: String,
    retries: String,
    servers: String,
    server_ends: Vec<ServerEnd>,
    audit: String,
    audit_limits: String,
    doubtful: String,
    judged_three_times: Option<String>,
    environment: String,
    notes: Vec<Note>,
    plan: &'a str,
    /// JSON for the charts of the whole and of each case, safe within a script.
    overview: String,
    series: Vec<String>,
    styles: [&'static str; 2],
    license: &'static str,
    scripts: Vec<&'static str>,
}

#[derive(Serialize)]
struct Search {
    sentence: String,
    probes: String,
}

#[derive(Serialize)]
struct ServerEnd {
    sentence: String,
    log: Vec<String>,
}

/// A note, and the cases it is about where it is not about all.
#[derive(Serialize)]
struct Note {
    cases: Vec<String>,
    more: usize,
    text: String,
}

/// Cases that a note names before it only counts them.
const NAMED_CASES: usize = 4;

/// report.html of a report; `plan`: the resolved scenario as YAML, without its secrets.
///
/// # Errors
/// [`ViewError::Template`] where the template cannot be rendered.
pub fn html(report: &Report, plan: &str) -> Result<String, ViewError> {
    render(TEMPLATE, page(report, plan))
}

/// A page by its template.
///
/// # Errors
/// [`ViewError::Template`] where the template cannot be rendered.
pub(super) fn render(template: &'static str, page: impl Serialize) -> Result<String, ViewError> {
    let mut environment = Environment::new();
    environment.set_syntax(SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build()?);
    environment.add_template("head.html", HEAD)?;
    environment.add_template("page.html", template)?;
    Ok(environment.get_template("page.html")?.render(Serde(page))? + "\n")
}

fn page<'a>(report: &'a Report, plan: &'a str) -> Page<'a> {
    let all = || cases::indexed(report);
    let slo_total = report.cases.iter().map(|case| case.verdicts.len()).sum();
    let fold = slo_total > OPEN_RULINGS;
    let slo = if fold { worst_objectives(report) } else { objectives(report, |_| true) };
    let slo_held = objectives(report, |verdict| fold && verdict.ruling == Ruling::Pass);
    let series = |case| inert(&chart_data::series(case, report.cases.len()));
    let search = |(index, search): (usize, &SearchReport)| Search {
        sentence: rich_html(&search::sentence(report, search)),
        probes: search::probes(report, &[(index, search)]).html("Probes"),
    };
    Page {
        name: &report.manifest.name,
        verdict: headline::word(report.verdict),
        tone: headline::word(report.verdict).to_lowercase(),
        reason: rich_html(&headline::reason(report)),
        interruption: headline::interruption(report),
        description: report.description.as_deref(),
        searches: report.searches.iter().enumerate().map(search).collect(),
        slo_total,
        slo_open_total: slo.rows.len(),
        slo_held_total: slo_held.rows.len(),
        slo: slo.html(if slo_held.rows.is_empty() { "Limits" } else { "Limits not met or not decided" }),
        slo_held: slo_held.html("Limits that hold"),
        cases: cases::cases_without_parts(report).html("Cases"),
        speeds: local::speeds(report).html("Speed by prompt length"),
        models: local::models(report).html("Models in this process"),
        batches: local::batches(report).html("Batches of models in this process"),
        sections: all().map(|(index, case)| section(index, case)).collect(),
        failures: cases::failures(all()).html("Failures"),
        retries: cases::retries(report).html("Retries and users who left"),
        servers: server::starts_table(report).html("Starts of the server"),
        server_ends: server::ends(report)
            .into_iter()
            .map(|end| ServerEnd { sentence: rich_html(&end.sentence), log: end.log })
            .collect(),
        audit: audit::audit(all()).html("Self-audit"),
        audit_limits: audit::accepted_limits(report),
        doubtful: audit::doubtful_objectives(report).html("Objectives in doubt"),
        judged_three_times: audit::judged_three_times(report),
        environment: markdown::environment(report).html("Environment"),
        notes: notes(report),
        plan,
        overview: inert(&chart_data::overview(report)),
        series: report.cases.iter().map(series).collect(),
        styles: [UPLOT_STYLE, STYLE],
        license: UPLOT_LICENSE,
        scripts: [UPLOT].into_iter().chain(SCRIPTS).collect(),
    }
}

/// The run's notes, then the cases', each once.
fn notes(report: &Report) -> Vec<Note> {
    let whole = report.cases.len();
    let of_run = report.manifest.notes.iter().map(|note| Note { cases: Vec::new(), more: 0, text: rich_html(note) });
    let of_cases = notes::grouped(report).into_iter().map(|(note, about)| {
        let named = if about.len() == whole { 0 } else { NAMED_CASES.min(about.len()) };
        let more = if named == 0 { 0 } else { about.len() - named };
        Note { cases: about.iter().take(named).map(|id| (*id).to_owned()).collect(), more, text: rich_html(&note) }
    });
    of_run.chain(of_cases).collect()
}

/// JSON that no HTML parser takes for anything else: it holds no `<`, `>` and `&`, and no line end that a script does not know.
fn inert(value: &Value) -> String {
    let text = value.to_string();
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '<' => out.push_str("\\u003c"),
            '>' => out.push_str("\\u003e"),
            '&' => out.push_str("\\u0026"),
            '\u{2028}' => out.push_str("\\u2028"),
            '\u{2029}' => out.push_str("\\u2029"),
            c => out.push(c),
        }
    }
    out
}

/// Everything about one case that needs no script; tables are HTML, empty without rows.
#[derive(Serialize)]
pub(super) struct Section {
    anchor: String,
    id: String,
    /// Load, rounds, source of the token counts.
    facts: Vec<String>,
    valid: bool,
    figures: String,
    low: String,
    high: String,
    percentiles: String,
    parts: String,
    signals: String,
    others: String,
    server_ttft: String,
    failures: String,
    audit: String,
    notes: Vec<String>,
}

/// The section of the case at this index of the report.
pub(super) fn section(index: usize, case: &CaseReport) -> Section {
    let alone = || std::iter::once((index, case));
    Section {
        anchor: case_anchor(index),
        id: case.id.clone(),
        facts: facts(case),
        valid: !case.is_invalid(),
        figures: single_figures(case).html("Figures of the case"),
        low: percentiles::low_is_better(case).html("Percentiles"),
        high: percentiles::high_is_better(case).html("Percentiles of what should be high"),
        percentiles: percentiles::percentile_table(case).html("Percentile table"),
        parts: parts(alone()).without_first_column().html("Parts of the case"),
        signals: telemetry::signals(case).html("Telemetry"),
        others: telemetry::others(case),
        server_ttft: telemetry::server_ttft(alone()).without_first_column().html("TTFT by the server and by the client"),
        failures: failures(alone()).without_first_column().html("Failures of the case"),
        audit: audit::audit(alone()).without_first_column().html("Self-audit of the case"),
        notes: notes::notes(case).iter().map(|note| rich_html(note)).collect(),
    }
}

fn facts(case: &CaseReport) -> Vec<String> {
    let rounds = repeats::rounds(case);
    let tokens = case.token_source.map(|source| match source {
        TokenSource::Usage => "tokens by the server's usage",
        TokenSource::Tokenizer => "tokens by a local tokenizer",
        TokenSource::Events => "~ tokens counted from events, a lower bound",
    });
    let steady = case.timelines.steady.map(|(from, until)| {
        format!("steady from {} to {}", optional(Some(from), Unit::Seconds), optional(Some(until), Unit::Seconds))
    });
    [case.load.clone(), rounds].into_iter().chain(tokens.map(str::to_owned)).chain(steady).collect()
}
