//! report.html: one file that asks nothing of any network. What it says is plain HTML; a script adds charts and order.
//!
//! The template escapes every text. The numbers for the charts stand in JSON whose `<` is escaped, so that no text ends it.

mod case;
pub(super) mod cells;
mod local;
mod overview;
mod search;
mod series;
pub(super) mod tables;
mod telemetry;
#[cfg(test)]
mod tests;

use crate::{ViewError, doubt, headline, markdown, missing_values, server};
use case::Section;
use cells::{Piece, Table, rich};
use llmscen_core::check::Ruling;
use llmscen_core::report::Report;
use minijinja::Environment;
use minijinja::syntax::SyntaxConfig;
use minijinja::value::Serde;
use serde::Serialize;
use serde_json::Value;

const TEMPLATE: &str = concat!(include_str!("html/macros.html"), include_str!("html/page.html"));
/// The look of every page.
pub(super) const STYLE: &str = include_str!("html/page.css");
/// What the script of every page does: theme, sorting, printing.
pub(super) const BASE_SCRIPT: &str = include_str!("html/base.js");
const SCRIPTS: [&str; 4] =
    [BASE_SCRIPT, include_str!("html/draw.js"), include_str!("html/charts.js"), include_str!("html/page.js")];
const UPLOT: &str = include_str!("html/vendor/uPlot.iife.min.js");
const UPLOT_STYLE: &str = include_str!("html/vendor/uPlot.min.css");
const UPLOT_LICENCE: &str = include_str!("html/vendor/LICENSE.uPlot");

/// Rulings up to which those that hold are shown unfolded.
const OPEN_RULINGS: usize = 30;

#[derive(Serialize)]
struct Page<'a> {
    name: &'a str,
    verdict: &'static str,
    tone: String,
    reason: Vec<Piece>,
    interruption: Option<String>,
    description: Option<&'a str>,
    searches: Vec<search::Told>,
    slo_total: usize,
    slo: Table,
    slo_held: Table,
    cases: Table,
    local: local::Tables,
    sections: Vec<Section>,
    failures: Table,
    manners: Table,
    servers: Table,
    /// What is said of each, and the last lines of its log.
    server_ends: Vec<(Vec<Piece>, Vec<String>)>,
    audit: Table,
    audit_limits: String,
    doubts: Table,
    doubts_of: Option<String>,
    environment: Table,
    notes: Vec<Note>,
    plan: &'a str,
    /// JSON for the charts of the whole and of each case, safe within a script.
    overview: String,
    series: Vec<String>,
    style: [&'static str; 2],
    licence: &'static str,
    scripts: Vec<&'static str>,
}

/// A note, and the cases it is about where it is not about all.
#[derive(Serialize)]
struct Note {
    cases: Vec<String>,
    more: usize,
    text: Vec<Piece>,
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
    environment.add_template("page.html", template)?;
    Ok(environment.get_template("page.html")?.render(Serde(page))? + "\n")
}

fn page<'a>(report: &'a Report, plan: &'a str) -> Page<'a> {
    let cases = || report.cases.iter().enumerate();
    let slo_total = report.cases.iter().map(|case| case.verdicts.len()).sum();
    let fold = slo_total > OPEN_RULINGS;
    let series = |case| inert(&series::series(case, report.cases.len()));
    Page {
        name: &report.manifest.name,
        verdict: headline::word(report.verdict),
        tone: headline::word(report.verdict).to_lowercase(),
        reason: rich(&headline::reason(report)),
        interruption: headline::interruption(report),
        description: report.description.as_deref(),
        searches: search::told(report),
        slo_total,
        slo: tables::slo(report, fold, |verdict| !fold || verdict.ruling != Ruling::Pass),
        slo_held: tables::slo(report, false, |verdict| fold && verdict.ruling == Ruling::Pass),
        cases: tables::cases(report),
        local: local::tables(report),
        sections: cases().map(|(index, own)| case::section(index, own)).collect(),
        failures: tables::failures(cases()),
        manners: tables::manners(report),
        servers: tables::servers(report),
        server_ends: server::ends(report).into_iter().map(|end| (rich(&end.said), end.log)).collect(),
        audit: tables::audit(cases()),
        audit_limits: markdown::audit_limits(report),
        doubts: tables::doubts(report),
        doubts_of: doubt::extent(report),
        environment: tables::environment(report),
        notes: notes(report),
        plan,
        overview: inert(&overview::overview(report)),
        series: report.cases.iter().map(series).collect(),
        style: [UPLOT_STYLE, STYLE],
        licence: UPLOT_LICENCE,
        scripts: [UPLOT].into_iter().chain(SCRIPTS).collect(),
    }
}

/// The run's notes, then the cases', each once.
fn notes(report: &Report) -> Vec<Note> {
    let whole = report.cases.len();
    let of_run = report.manifest.notes.iter().map(|note| Note { cases: Vec::new(), more: 0, text: rich(note) });
    let of_cases = missing_values::grouped(report).into_iter().map(|(note, about)| {
        let named = if about.len() == whole { 0 } else { NAMED_CASES.min(about.len()) };
        let more = if named == 0 { 0 } else { about.len() - named };
        Note { cases: about.iter().take(named).map(|id| (*id).to_owned()).collect(), more, text: rich(&note) }
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
