//! The tables at the end of a run for programs: raw numbers under heads that name their unit, in CSV, TSV, JSON or Markdown.

#[cfg(test)]
mod tests;

use crate::format::{plain, title, unit_of};
use crate::search::verdict as probe_verdict;
use crate::sheet::{self, Sheet, remark};
use crate::{ViewError, escape, headline, probes};
use llmscen_core::check::Verdict;
use llmscen_core::foreign::cell;
use llmscen_core::metric::Metric;
use llmscen_core::report::{CaseReport, Report};
use llmscen_core::sample::Distribution;
use llmscen_core::search::{ProbeReport, SearchReport};
use llmscen_core::units::Unit;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// A table of raw values; null where there is none.
#[derive(Clone, Debug, PartialEq)]
pub struct Grid {
    /// What its rows are.
    pub name: &'static str,
    /// Column heads, each with the unit of its numbers.
    pub heads: Vec<&'static str>,
    /// Rows.
    pub rows: Vec<Vec<Value>>,
}

/// The cases, the limits, and of a search its probes.
pub fn grids(report: &Report) -> Vec<Grid> {
    let probes = (!report.searches.is_empty()).then(|| probed(report));
    [cases(report), limits(report)].into_iter().chain(probes).collect()
}

/// Every table one after another, with a line of heads each and an empty line between two. `delimiter`: `,` or a tab.
///
/// # Errors
/// [`ViewError::Csv`] where a row cannot be written.
pub fn separated(report: &Report, delimiter: u8) -> Result<String, ViewError> {
    let tables: Result<Vec<String>, ViewError> = grids(report).iter().map(|grid| one(grid, delimiter)).collect();
    Ok(tables?.join("\n"))
}

fn one(grid: &Grid, delimiter: u8) -> Result<String, ViewError> {
    let mut writer = csv::WriterBuilder::new().delimiter(delimiter).from_writer(Vec::new());
    writer.write_record(&grid.heads)?;
    for row in &grid.rows {
        writer.write_record(row.iter().map(text))?;
    }
    let bytes = writer.into_inner().map_err(|error| ViewError::Csv(error.into_error().into()))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn text(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => cell(&plain(text)).into_owned(),
        other => other.to_string(),
    }
}

/// One object: the verdict, and each table as a list of objects.
///
/// # Errors
/// [`ViewError::Json`] where a value cannot be written.
pub fn objects(report: &Report) -> Result<String, ViewError> {
    let mut whole = Map::new();
    whole.insert("scenario".to_owned(), json!(report.manifest.name));
    whole.insert("verdict".to_owned(), serde_json::to_value(report.verdict)?);
    whole.insert("exit_code".to_owned(), json!(report.exit_code));
    whole.insert("reason".to_owned(), json!(headline::reason(report)));
    for grid in grids(report) {
        let row =
            |row: &Vec<Value>| grid.heads.iter().map(|head| (*head).to_owned()).zip(row.iter().cloned()).collect::<Map<_, _>>();
        whole.insert(grid.name.to_owned(), Value::Array(grid.rows.iter().map(row).map(Value::Object).collect()));
    }
    Ok(serde_json::to_string_pretty(&whole)? + "\n")
}

/// The verdict and the same tables as `report.md` has them, in its words.
pub fn markdown(report: &Report) -> String {
    let verdict = format!("**{}**: {}", headline::word(report.verdict), escape::prose(&headline::reason(report)));
    let limits = if report.searches.is_empty() { vec![sheet::slo(report, |_| true)] } else { probes::sheets(report) };
    let tables = std::iter::once(sheet::cases(report)).chain(limits).filter(|sheet| !sheet.rows.is_empty());
    tables.map(|sheet| table(&sheet)).chain([verdict + "\n"]).collect::<Vec<_>>().join("\n")
}

/// A Markdown table.
pub fn table(sheet: &Sheet) -> String {
    let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
    let rule: Vec<String> = sheet.rule.iter().map(|rule| (*rule).to_owned()).collect();
    let rows = sheet.rows.iter().map(|row| line(row));
    [line(&sheet.head), line(&rule)].into_iter().chain(rows).collect()
}

/// A number as it is; infinite ones as words, since JSON has none.
fn number(value: Option<f64>) -> Value {
    match value {
        Some(value) if value.is_infinite() => json!(if value > 0.0 { "inf" } else { "-inf" }),
        value => json!(value),
    }
}

const CASES: [&str; 17] = [
    "scenario",
    "case",
    "entry",
    "load",
    "ok",
    "scheduled",
    "error_rate_share",
    "requests_per_s",
    "output_tokens_per_s",
    "token_source",
    "ttft_p50_ms",
    "ttft_p99_ms",
    "itl_p50_ms",
    "itl_p99_ms",
    "tpot_p50_ms",
    "e2e_p50_ms",
    "e2e_p99_ms",
];

/// Every case, and below it the entries of its mix.
fn cases(report: &Report) -> Grid {
    let rows = report.cases.iter().flat_map(|case| {
        let whole =
            case_row(report, case, (Value::Null, case.counts.ok, case.counts.scheduled), (&case.scalars, &case.distributions));
        let entries = case.groups.iter().filter(|group| group.entry);
        let entries = entries
            .map(|own| case_row(report, case, (json!(own.name), own.ok, own.scheduled), (&own.scalars, &own.distributions)));
        std::iter::once(whole).chain(entries).collect::<Vec<_>>()
    });
    Grid { name: "cases", heads: CASES.to_vec(), rows: rows.collect() }
}

type Figures<'a> = (&'a BTreeMap<Metric, f64>, &'a BTreeMap<Metric, Distribution>);

fn case_row(
    report: &Report,
    case: &CaseReport,
    (entry, ok, scheduled): (Value, u64, u64),
    (scalars, spread): Figures<'_>,
) -> Vec<Value> {
    let scalar = |metric: Metric| number(scalars.get(&metric).copied());
    let quantile = |metric: Metric, share: f64| number(spread.get(&metric).and_then(|own| own.quantile(share)));
    vec![
        json!(report.manifest.name),
        json!(case.id),
        entry,
        json!(case.load),
        json!(ok),
        json!(scheduled),
        scalar(Metric::ErrorRate),
        scalar(Metric::RequestThroughput),
        scalar(Metric::OutputTps),
        json!(case.token_source),
        quantile(Metric::Ttft, 0.50),
        quantile(Metric::Ttft, 0.99),
        quantile(Metric::Itl, 0.50),
        quantile(Metric::Itl, 0.99),
        quantile(Metric::Tpot, 0.50),
        quantile(Metric::E2e, 0.50),
        quantile(Metric::E2e, 0.99),
    ]
}

const LIMITS: [&str; 11] = ["scenario", "case", "slo", "verdict", "observed", "bound", "limit", "unit", "n", "need", "note"];

fn limits(report: &Report) -> Grid {
    let all = report.cases.iter().flat_map(|case| case.verdicts.iter().map(move |verdict| (case, verdict)));
    Grid { name: "limits", heads: LIMITS.to_vec(), rows: all.map(|(case, verdict)| limit_row(report, case, verdict)).collect() }
}

fn limit_row(report: &Report, case: &CaseReport, verdict: &Verdict) -> Vec<Value> {
    vec![
        json!(report.manifest.name),
        json!(case.id),
        json!(title(&verdict.check)),
        json!(verdict.ruling.name()),
        number(verdict.observed),
        number(verdict.bound),
        number(Some(verdict.check.limit)),
        json!(if unit_of(verdict) == Unit::Share { "share" } else { unit_of(verdict).symbol() }),
        json!(verdict.n),
        json!(verdict.need),
        json!(remark(verdict)),
    ]
}

const PROBES: [&str; 12] = [
    "scenario",
    "search",
    "vary",
    "probe",
    "case",
    "load",
    "purpose",
    "n",
    "verdict",
    "holds_share",
    "output_tokens_per_s",
    "goodput_requests_per_s",
];

fn probed(report: &Report) -> Grid {
    let of = |(number, search): (usize, &SearchReport)| {
        let rows = search.probes.iter().enumerate();
        rows.map(|(place, probe)| probe_row(report, (number, search), (place, probe))).collect::<Vec<_>>()
    };
    Grid { name: "probes", heads: PROBES.to_vec(), rows: report.searches.iter().enumerate().flat_map(of).collect() }
}

fn probe_row(report: &Report, (search, own): (usize, &SearchReport), (place, probe): (usize, &ProbeReport)) -> Vec<Value> {
    vec![
        json!(report.manifest.name),
        json!(search + 1),
        json!(own.spec.vary),
        json!(place + 1),
        json!(probe.case),
        number(Some(probe.load)),
        json!(probe.purpose.name()),
        json!(probe.requests),
        json!(probe_verdict(probe)),
        number(probe.holds),
        number(probe.total_tps),
        number(probe.goodput),
    ]
}
