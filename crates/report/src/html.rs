//! report.html: one file that loads nothing from the network. The content is plain HTML; scripts add charts and
//! sorting.
//!
//! The template escapes every text. The data of the charts is JSON whose `<` is escaped, so that no text can end its
//! element.

mod chart_data;
pub(super) mod lead;
pub(super) mod matrix;
mod sparkline;
#[cfg(test)]
mod tests;

use crate::cases::{case_metrics, endpoints, failures, groups};
use crate::format::{capitalize, optional};
use crate::objectives::{objectives, objectives_of_case};
use crate::table::{Table, case_anchor, prose_html};
use crate::{
    ReportError, answers, audit, capacity, cases, commands, findings, headline, local, markdown,
    notes, percentiles, repeats, replies, search, server, shards, telemetry, workers,
};
use lead::Tile;
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
/// The head and the title, shared by report.html and compare.html.
const HEAD: &str = include_str!("html/head.html");
/// The style sheet of both pages.
pub(super) const STYLE: &str = include_str!("html/page.css");
/// The script of both pages: theme, sorting, printing.
pub(super) const BASE_SCRIPT: &str = include_str!("html/base.js");
const SCRIPTS: [&str; 4] = [
    BASE_SCRIPT,
    include_str!("html/draw.js"),
    include_str!("html/charts.js"),
    include_str!("html/page.js"),
];
const UPLOT: &str = include_str!("html/vendor/uPlot.iife.min.js");
const UPLOT_STYLE: &str = include_str!("html/vendor/uPlot.min.css");
const UPLOT_LICENSE: &str = include_str!("html/vendor/LICENSE.uPlot");

/// Macros of both pages: tiles and matrices.
const PARTS: &str = include_str!("html/parts.html");

/// With more cases, the page has only the main percentiles of each; results.json has all.
pub(super) const MAX_DETAILED_CASES: usize = 24;
/// With more rows, the table of failures is folded.
const MAX_UNFOLDED_FAILURES: usize = 20;

/// The variables of the template. Tables and texts with code spans are HTML; tables are empty without rows.
#[derive(Serialize)]
struct Page<'a> {
    page_class: &'static str,
    name: &'a str,
    verdict: &'static str,
    tone: String,
    subject: Vec<String>,
    reason: String,
    /// Tone, symbol and sentence.
    validity: Option<(&'static str, &'static str, String)>,
    tiles: Vec<Tile>,
    interruption: Option<String>,
    description: Option<&'a str>,
    searches: Vec<Search>,
    candidates: Option<&'static str>,
    capacities: String,
    slo_total: usize,
    /// The objectives of a single case; the matrix has those of several.
    slo: String,
    slo_counts: String,
    matrix: matrix::Matrix,
    /// A search has its own charts.
    has_main: bool,
    has_sweep: bool,
    findings: Vec<Finding>,
    unmeasured: Option<String>,
    cases: String,
    /// The index of the case that is shown first.
    first_case: usize,
    speeds: String,
    models: String,
    batches: String,
    sections: Vec<Section>,
    failures: String,
    failures_folded: bool,
    reply_accounts: String,
    answers: Vec<String>,
    output_lengths: String,
    finish_reasons: String,
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
    notes: Vec<Note>,
    rerun: String,
    plan: &'a str,
    /// JSON for the charts of the run and of each case, safe within a script element.
    overview: String,
    series: Vec<String>,
    styles: [&'static str; 2],
    license: &'static str,
    scripts: Vec<&'static str>,
}

#[derive(Serialize)]
struct Finding {
    text: String,
    tone: &'static str,
    symbol: &'static str,
    anchor: Option<String>,
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

/// A note, and its cases if it is not about all.
#[derive(Serialize)]
struct Note {
    cases: Vec<String>,
    more: usize,
    text: String,
}

/// A note names at most this many cases and counts the others.
const NAMED_CASES: usize = 4;

/// report.html of a report; `plan`: the resolved scenario as YAML, without its secrets.
///
/// # Errors
/// [`ReportError::Template`] if the template cannot be rendered.
pub fn html(report: &Report, plan: &str) -> Result<String, ReportError> {
    render(TEMPLATE, page(report, plan))
}

/// Renders a page from its template.
///
/// # Errors
/// [`ReportError::Template`] if the template cannot be rendered.
pub(super) fn render(template: &'static str, page: impl Serialize) -> Result<String, ReportError> {
    let mut environment = Environment::new();
    environment.set_syntax(
        SyntaxConfig::builder()
            .trim_blocks(true)
            .lstrip_blocks(true)
            .build()?,
    );
    environment.add_template("head.html", HEAD)?;
    environment.add_template("parts.html", PARTS)?;
    environment.add_template("page.html", template)?;
    Ok(environment.get_template("page.html")?.render(Serde(page))? + "\n")
}

fn page<'a>(report: &'a Report, plan: &'a str) -> Page<'a> {
    let all = || cases::indexed(report);
    let verdicts = report.cases.iter().flat_map(|case| &case.verdicts);
    let is_single = report.cases.len() == 1;
    let overview = chart_data::overview(report);
    let has_sweep = !overview["sweep"].is_null();
    let failures = cases::failures(all());
    let series = |case| escape_json(&chart_data::series(case, report.cases.len()));
    let search = |(index, search): (usize, &SearchReport)| Search {
        sentence: prose_html(&search::sentence(report, search)),
        probes: search::probes(report, &[(index, search)]).html("Probes"),
    };
    Page {
        page_class: "report",
        name: &report.manifest.name,
        verdict: headline::verdict_name(report.verdict),
        tone: headline::verdict_name(report.verdict).to_lowercase(),
        subject: lead::subject(report, plan),
        reason: prose_html(&capitalize(&headline::reason(report))),
        validity: headline::validity(report)
            .map(|(tone, sentence)| (tone.class(), tone.symbol(), sentence)),
        tiles: lead::tiles(report),
        interruption: headline::interruption(report),
        description: report.description.as_deref(),
        searches: report.searches.iter().enumerate().map(search).collect(),
        candidates: capacity::method(report),
        capacities: capacity::table(report).html("Capacity of each configuration"),
        slo_total: verdicts.clone().count(),
        slo: if is_single {
            objectives(report, |_| true)
                .without("Case")
                .html("Objectives")
        } else {
            String::new()
        },
        slo_counts: matrix::count_rulings(verdicts),
        matrix: if is_single {
            matrix::Matrix::default()
        } else {
            matrix::matrix(report)
        },
        has_main: report.searches.is_empty(),
        has_sweep,
        findings: findings::findings(report)
            .into_iter()
            .map(|finding| Finding {
                text: prose_html(&finding.text),
                tone: finding.tone.class(),
                symbol: finding.tone.symbol(),
                anchor: finding.case.map(case_anchor),
            })
            .collect(),
        unmeasured: findings::unmeasured(report).map(|text| prose_html(&text)),
        cases: cases::cases_by_key(report).html("Cases"),
        first_case: first_case(report),
        speeds: local::speeds(report).html("Speed by prompt length"),
        models: local::models(report).html("Local models"),
        batches: local::batches(report).html("Batches of local models"),
        sections: all()
            .map(|(index, case)| section(report, index, case))
            .collect(),
        failures_folded: failures.rows.len() > MAX_UNFOLDED_FAILURES,
        failures: failures.html("Failures"),
        reply_accounts: replies::reply_accounts(all()).html("Replies"),
        answers: [
            (answers::shares(all()), "Checked answers"),
            (answers::failed_checks(all()), "Failed checks"),
            (answers::failed_answers(all()), "Failed answers"),
        ]
        .into_iter()
        .filter(|(table, _)| !table.rows.is_empty())
        .map(|(table, label)| table.html(label))
        .collect(),
        output_lengths: replies::output_lengths(all()).html("Output lengths"),
        finish_reasons: replies::finish_reasons(all()).html("Finish reasons"),
        retries: cases::retries(report).html("Retries and client cancellations"),
        servers: server::starts_table(report).html("Server starts"),
        commands: commands::table(report).html("Commands after the load"),
        server_ends: server::server_exits(report)
            .into_iter()
            .map(|end| ServerEnd {
                sentence: prose_html(&end.sentence),
                log: end.log,
            })
            .collect(),
        audit: audit::audit_table(all()).html("Self-audit"),
        audit_limits: audit::audit_limits(report),
        doubtful: audit::doubtful_objectives(report)
            .html("Objectives that the load generator may have changed"),
        judged_three_times: audit::judged_three_times(report),
        shards: shards::shards_table(report).html("Shards"),
        shard_line: shards::shard_line(report),
        omitted_shards: shards::omitted_shards(report),
        environment: markdown::environment(report).html("Environment"),
        notes: notes(report),
        rerun: rerun(report),
        plan,
        overview: escape_json(&overview),
        series: report.cases.iter().map(series).collect(),
        styles: [UPLOT_STYLE, STYLE],
        license: UPLOT_LICENSE,
        scripts: [UPLOT].into_iter().chain(SCRIPTS).collect(),
    }
}

/// The case with the most severe verdict; the first one if all passed.
fn first_case(report: &Report) -> usize {
    let has = |ruling| {
        let is = |case: &CaseReport| case.verdicts.iter().any(|it| it.ruling == ruling);
        report.cases.iter().position(is)
    };
    [Ruling::Fail, Ruling::Invalid, Ruling::Inconclusive]
        .into_iter()
        .find_map(has)
        .unwrap_or(0)
}

/// The command that repeats the run.
fn rerun(report: &Report) -> String {
    let options = report.manifest.filter.options();
    let words = ["llmscen run plan.yaml".to_owned()]
        .into_iter()
        .chain(options);
    words.collect::<Vec<_>>().join(" ")
}

/// The notes of the run, then those of the cases, each once.
fn notes(report: &Report) -> Vec<Note> {
    let of_run = report.manifest.notes.iter().map(|note| Note {
        cases: Vec::new(),
        more: 0,
        text: prose_html(note),
    });
    let of_cases = notes::grouped_notes(report)
        .into_iter()
        .map(|(note, cases)| {
            let named = if cases.len() == report.cases.len() {
                0
            } else {
                NAMED_CASES.min(cases.len())
            };
            let more = if named == 0 { 0 } else { cases.len() - named };
            Note {
                cases: cases
                    .iter()
                    .take(named)
                    .map(|id| (*id).to_owned())
                    .collect(),
                more,
                text: prose_html(&note),
            }
        });
    of_run.chain(of_cases).collect()
}

/// JSON that is safe within an HTML element: without `<`, `>`, `&` and the line separators of Unicode.
fn escape_json(value: &Value) -> String {
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

/// The section of a case; tables are HTML, empty without rows.
#[derive(Serialize)]
pub(super) struct Section {
    anchor: String,
    id: String,
    /// Load, rounds, source of token counts, steady state.
    facts: Vec<String>,
    valid: bool,
    slo: String,
    metrics: String,
    /// The main latencies.
    percentiles: String,
    /// The other metrics, and the table with a row per percentile.
    more: Vec<String>,
    endpoints: String,
    groups: String,
    signals: String,
    others: String,
    server_ttft: String,
    workers: String,
    roles: String,
    failures: String,
}

/// The section of the case at this index of the report. A single case has its objectives and failures at the top of
/// the page.
fn section(report: &Report, index: usize, case: &CaseReport) -> Section {
    let only = || std::iter::once((index, case));
    let is_single = report.cases.len() == 1;
    let of_several = |table: Table, label: &str| {
        if is_single {
            String::new()
        } else {
            table.html(label)
        }
    };
    let (main, rest) =
        percentiles::low_is_better(case).partition(|metric| percentiles::is_main(case, metric));
    let more = [
        (rest, "Percentiles of other metrics"),
        (
            percentiles::high_is_better(case),
            "Percentiles, higher is better",
        ),
        (percentiles::percentile_table(case), "Percentile table"),
    ];
    let is_detailed = report.cases.len() <= MAX_DETAILED_CASES;
    Section {
        anchor: case_anchor(index),
        id: case.id.clone(),
        facts: facts(case),
        valid: !case.is_invalid(),
        slo: of_several(
            objectives_of_case(report, index).without("Case"),
            "Objectives of the case",
        ),
        metrics: if is_detailed {
            case_metrics(case).html("Metrics of the case")
        } else {
            String::new()
        },
        percentiles: main.html("Percentiles"),
        more: more
            .into_iter()
            .filter(|(table, _)| is_detailed && !table.rows.is_empty())
            .map(|(table, label)| table.html(label))
            .collect(),
        endpoints: endpoints(only())
            .without_first_column()
            .html("Endpoints of the case"),
        groups: groups(only())
            .without_first_column()
            .html("Groups of the case"),
        signals: telemetry::signals(case).html("Telemetry"),
        others: telemetry::others(case),
        server_ttft: telemetry::server_ttft(only())
            .without_first_column()
            .html("TTFT: server histogram and client"),
        workers: workers::workers(only())
            .without_first_column()
            .html("Workers"),
        roles: workers::roles(only())
            .without_first_column()
            .html("Roles of the workers"),
        failures: of_several(failures(only()).without("Case"), "Failures of the case"),
    }
}

fn facts(case: &CaseReport) -> Vec<String> {
    let rounds = repeats::describe_rounds(case);
    let tokens = case.token_source.map(|source| match source {
        TokenSource::Usage => "token counts: server usage",
        TokenSource::Tokenizer => "token counts: local tokenizer",
        TokenSource::Events => "~ token counts: streamed events (lower bound)",
    });
    let steady = case.timelines.steady.map(|(from, until)| {
        format!(
            "steady state: {} to {}",
            optional(Some(from), Unit::Seconds),
            optional(Some(until), Unit::Seconds)
        )
    });
    [case.load.clone(), rounds]
        .into_iter()
        .chain(tokens.map(str::to_owned))
        .chain(steady)
        .collect()
}
