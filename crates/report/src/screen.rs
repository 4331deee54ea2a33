//! The result of a run on one screen of a terminal: verdict, open objectives, main metrics, what to do.

use crate::cases::mark;
use crate::dimensions::{Dimension, dimensions};
use crate::findings::{distance, factor, limit_ratio};
use crate::format::{against, check_title, counted, number, optional, plain, value};
use crate::headline::{paragraphs, validity, verdict_name};
use crate::notes::silent_endpoints;
use crate::objectives::{multiple, severity, subject_mark, worst_ruling};
use crate::search::{by_group, label_prefix, short_result};
use crate::server::server_lines;
use crate::shards::shard_line;
use crate::table::{Cell, Column, Emphasis, Row, Screen, Table};
use crate::telemetry::terminal_lines;
use crate::workers::terminal_line;
use crate::{capacity, cases, local, search};
use llmscen_core::check::{Ruling, Verdict};
use llmscen_core::label::describe;
use llmscen_core::metric::Metric;
use llmscen_core::report::{CaseReport, Report};
use llmscen_core::units::Unit;
use std::collections::{BTreeMap, BTreeSet};

/// Objectives that are listed.
const MAX_OBJECTIVES: usize = 8;
/// Cases that are listed.
const MAX_CASES: usize = 12;
/// With more endpoints, their table is in the report only.
const MAX_ENDPOINTS: usize = 16;
/// Left margin of everything below the title.
const INDENT: &str = "  ";

/// The rest of a screen: what a report does not hold.
#[derive(Clone, Copy, Debug, Default)]
pub struct ScreenOptions<'a> {
    /// Width of the terminal in characters; None: not a terminal.
    pub width: Option<usize>,
    /// Whether colors are shown.
    pub color: bool,
    /// How the main metrics differ from those of the last run.
    pub change: Option<&'a str>,
    /// Where the report is.
    pub location: &'a str,
}

/// The result of a run on one screen.
pub fn screen(report: &Report, options: &ScreenOptions<'_>) -> String {
    let inner = Screen {
        width: options
            .width
            .map(|width| width.saturating_sub(INDENT.len())),
        color: options.color,
    };
    let table = |table: Table| table.terminal(inner);
    let mut closing: Vec<String> = paragraphs(report);
    closing.extend(validity(report).map(|(_, sentence)| sentence));
    closing.extend(shard_line(report).map(|line| format!("Shards: {line}.")));
    closing.extend(options.change.map(str::to_owned));
    let closing: Vec<String> = closing.iter().map(|text| wrap(text, inner)).collect();
    let blocks = [
        table(objectives(report)),
        [
            server_lines(report),
            terminal_lines(report),
            terminal_line(report),
        ]
        .concat(),
        local::terminal_lines(report).join("\n"),
        local::speed_table(report, inner.width, inner.color),
        metrics(report, inner),
        endpoints(report, inner),
        capacity::table(report).terminal(inner),
        closing.join("\n"),
    ];
    let indented = blocks
        .iter()
        .map(|block| block.trim_end())
        .filter(|block| !block.is_empty())
        .map(|block| {
            let lines = block.lines().map(|line| match line {
                "" => "\n".to_owned(),
                line => format!("{INDENT}{line}\n"),
            });
            lines.collect::<String>()
        });
    let body = indented.collect::<Vec<_>>().join("\n");
    let separator = if body.is_empty() { "" } else { "\n" };
    format!(
        "{}\n{separator}{body}{INDENT}Report: {}\n",
        title(report, options),
        options.location
    )
}

/// Name, verdict, counts, and the duration at the right edge.
fn title(report: &Report, options: &ScreenOptions<'_>) -> String {
    let name = plain(&report.manifest.name);
    let verdict = verdict_name(report.verdict);
    let duration = report
        .manifest
        .elapsed_s
        .map(|elapsed| value(elapsed * 1000.0, Unit::Millis))
        .unwrap_or_default();
    let others = [&name, verdict, &duration].map(|text| text.chars().count() + 2);
    let columns = options.width.map_or(usize::MAX, |width| {
        width.saturating_sub(others.iter().sum())
    });
    let counts = counts(report, columns);
    let length = [&name, verdict, &counts, &duration]
        .iter()
        .map(|text| text.chars().count() + 2)
        .sum::<usize>()
        .saturating_sub(2);
    let gap = " ".repeat(options.width.unwrap_or(0).saturating_sub(length) + 2);
    let shown = match options.color {
        true => Emphasis::from(report.verdict).paint(verdict),
        false => verdict.to_owned(),
    };
    format!("{name}  {shown}  {counts}{gap}{duration}")
        .trim_end()
        .to_owned()
}

/// `2 of 48 objectives failed · 9 inconclusive · 37 passed`, with the requests if they fit or if some failed.
fn counts(report: &Report, columns: usize) -> String {
    if let [only] = report.searches.as_slice() {
        return short_result(report, only);
    }
    if report.searches.iter().any(|one| one.candidacy.is_some()) {
        let groups = by_group(report);
        let best: Vec<_> = report
            .searches
            .iter()
            .filter(|one| one.is_result())
            .collect();
        return match (groups.len(), best.as_slice()) {
            (1, [best]) => {
                let (name, result) = (label_prefix(best), short_result(report, best));
                format!("best of {}: {name}{result}", report.searches.len())
            }
            (1, _) => format!("{} candidates, none the best", report.searches.len()),
            (many, best) => format!("{} of {many} groups have a best candidate", best.len()),
        };
    }
    if !report.searches.is_empty() {
        return format!("{} searches", report.searches.len());
    }
    let verdicts = || report.cases.iter().flat_map(|case| &case.verdicts);
    let total = verdicts().count();
    let words = [
        (Ruling::Invalid, "invalid"),
        (Ruling::Fail, "failed"),
        (Ruling::Inconclusive, "inconclusive"),
        (Ruling::Pass, "passed"),
    ];
    let objectives = |has_total: bool| {
        let mut parts: Vec<String> = Vec::new();
        for (ruling, word) in words {
            let count = verdicts()
                .filter(|verdict| verdict.ruling == ruling)
                .count();
            if count > 0 {
                let of_total = match has_total && parts.is_empty() {
                    true => format!(" of {}", counted(total, "objective")),
                    false => String::new(),
                };
                parts.push(format!("{count}{of_total} {word}"));
            }
        }
        if total == 0 {
            parts.push("no objective was set".to_owned());
        }
        parts.join(" · ")
    };
    // The requests of a stage are also those of its case.
    let cases = || report.cases.iter().filter(|case| !case.is_stage());
    let ok: u64 = cases().map(|case| case.counts.ok).sum();
    let scheduled: u64 = cases().map(|case| case.counts.scheduled).sum();
    let requests = match report.cases.is_empty() {
        true => String::new(),
        false => format!(" · {ok} of {scheduled} requests ok"),
    };
    let variants = [
        objectives(true) + &requests,
        objectives(true),
        objectives(false),
    ];
    let fits = |text: &&String| text.chars().count() <= columns;
    variants.iter().find(fits).unwrap_or(&variants[2]).clone()
}

/// A verdict with its case.
type Judged<'a> = (&'a CaseReport, &'a Verdict);

/// The objectives that did not pass, by verdict and by distance from the limit; with none, those that passed. An
/// objective that has the same verdict in several cases has one row with its worst case, unless every row fits.
fn objectives(report: &Report) -> Table {
    let names = CaseNames::new(report);
    let case = match report.cases.len() {
        1 => Column::text(),
        _ => Column::text().terminal("CASE", 1),
    };
    let has_notes = report
        .cases
        .iter()
        .flat_map(|case| &case.verdicts)
        .any(|verdict| !remark(verdict).is_empty());
    let note = match has_notes {
        true => Column::text().terminal("NOTE", 5),
        false => Column::text(),
    };
    let columns = vec![
        Column::text().terminal("VERDICT", 0),
        Column::text().terminal("OBJECTIVE", 0).at_least(20),
        case,
        Column::number().terminal("OBSERVED", 0),
        Column::number().terminal("BOUND", 4),
        Column::number().terminal("OF LIMIT", 2),
        Column::number().terminal("N", 3),
        note,
    ];
    // The probes of a search are expected to fail some objectives.
    let judged: Vec<Judged<'_>> = report
        .cases
        .iter()
        .filter(|_| report.searches.is_empty())
        .flat_map(|case| case.verdicts.iter().map(move |verdict| (case, verdict)))
        .collect();
    let has_open = judged
        .iter()
        .any(|(_, verdict)| verdict.ruling != Ruling::Pass);
    let shown = judged
        .into_iter()
        .filter(|(_, verdict)| (verdict.ruling != Ruling::Pass) == has_open);
    let mut groups: Vec<Vec<Judged<'_>>> = shown.map(|judged| vec![judged]).collect();
    // The worst first; of objectives that passed, the order of the plan is kept.
    groups.sort_by(|a, b| {
        let ((_, a), (_, b)) = (a[0], b[0]);
        let distance = || match a.ruling {
            Ruling::Fail => distance(b).total_cmp(&distance(a)),
            _ => std::cmp::Ordering::Equal,
        };
        severity(a.ruling)
            .cmp(&severity(b.ruling))
            .then_with(distance)
    });
    let mergeable = |verdict: &Verdict| {
        groups.len() > MAX_OBJECTIVES || matches!(verdict.ruling, Ruling::Inconclusive)
    };
    let mut merged: Vec<Vec<Judged<'_>>> = Vec::new();
    for group in &groups {
        let (_, verdict) = group[0];
        let same = merged.iter_mut().find(|other| {
            let (_, other) = other[0];
            other.ruling == verdict.ruling
                && check_title(&other.check) == check_title(&verdict.check)
        });
        match same.filter(|_| mergeable(verdict)) {
            Some(same) => same.extend(group),
            None => merged.push(group.clone()),
        }
    }
    let hidden = merged.len().saturating_sub(MAX_OBJECTIVES);
    merged.truncate(MAX_OBJECTIVES);
    let mut rows: Vec<Row> = merged
        .iter()
        .map(|group| objective_row(group, &names))
        .collect();
    if hidden > 0 {
        let more = format!("{} in the report", counted(hidden, "more objective"));
        rows.push(Row::new(vec![
            Cell::prose("…"),
            Cell::prose(&more),
            Cell::prose(""),
            Cell::figure("", None::<f64>),
            Cell::figure("", None::<f64>),
            Cell::figure("", None::<f64>),
            Cell::figure("", None::<f64>),
            Cell::prose(""),
        ]));
    }
    Table::new(columns, rows)
}

/// A row for an objective with one verdict in one or more cases, the worst case first.
fn objective_row(group: &[Judged<'_>], names: &CaseNames<'_>) -> Row {
    let by_distance = |a: &&Judged<'_>, b: &&Judged<'_>| match a.1.ruling {
        // Of passed objectives, the one that is nearest to its limit.
        Ruling::Pass => distance(a.1).total_cmp(&distance(b.1)),
        _ => distance(b.1).total_cmp(&distance(a.1)),
    };
    let Some(&(case, verdict)) = group.iter().min_by(by_distance) else {
        return Row::default();
    };
    let (check, unit) = (&verdict.check, verdict.check.subject.unit());
    let figure = |observed: Option<f64>| {
        let text = observed.map_or(String::new(), |_| {
            let mark = subject_mark(case, verdict);
            format!("{mark}{}", against(observed, check.limit, unit))
        });
        Cell::figure(text, observed)
    };
    let cases = match group.len() {
        1 => names.of(case).to_owned(),
        count if names.of(case).is_empty() => counted(count, "case"),
        count => format!("{} and {} more", names.of(case), count - 1),
    };
    let need = group.iter().filter_map(|(_, verdict)| verdict.need).max();
    let n = match need.filter(|_| verdict.ruling == Ruling::Inconclusive) {
        Some(need) => format!("{} of {need}", verdict.n),
        None => verdict.n.to_string(),
    };
    let observed = match verdict.observed {
        None => Cell::figure("no data", None::<f64>),
        observed => figure(observed),
    };
    Row::new(vec![
        Cell::ruling(verdict.ruling),
        Cell::code(&check_title(check)),
        Cell::prose(&cases),
        observed.emphasized(verdict.ruling.into()),
        figure(verdict.bound),
        Cell::figure(of_limit(verdict), None::<f64>),
        Cell::figure(n, None::<f64>),
        Cell::prose(&remark(verdict)),
    ])
}

/// A line for each objective that did not pass, the worst first, at most ten: as many as GitHub shows per job step.
/// The flag says whether the objective failed or is invalid; otherwise it is inconclusive.
pub fn annotations(report: &Report) -> Vec<(bool, String)> {
    const MAX: usize = 10;
    if !report.searches.is_empty() {
        return Vec::new();
    }
    let cases = report.cases.iter();
    let mut open: Vec<Judged<'_>> = cases
        .flat_map(|case| case.verdicts.iter().map(move |verdict| (case, verdict)))
        .filter(|(_, verdict)| verdict.ruling != Ruling::Pass)
        .collect();
    open.sort_by(|(_, a), (_, b)| {
        let distance = distance(b).total_cmp(&distance(a));
        severity(a.ruling).cmp(&severity(b.ruling)).then(distance)
    });
    let line = |(case, verdict): Judged<'_>| {
        let observed = match verdict.observed {
            None => "no data".to_owned(),
            observed => against(observed, verdict.check.limit, verdict.check.subject.unit()),
        };
        let factor = match of_limit(verdict) {
            factor if factor.is_empty() => factor,
            factor => format!(" ({factor} of the limit)"),
        };
        let word = verdict.ruling.name().to_uppercase();
        let title = check_title(&verdict.check);
        let text = format!("{word}: {title} in {}: {observed}{factor}", case.id);
        (verdict.ruling != Ruling::Inconclusive, plain(&text))
    };
    open.into_iter().take(MAX).map(line).collect()
}

/// The limit of a relative objective, and the note of the verdict. The reason of an invalid verdict is a paragraph
/// instead.
fn remark(verdict: &Verdict) -> String {
    let note = verdict
        .note
        .clone()
        .filter(|_| verdict.ruling != Ruling::Invalid);
    let parts: Vec<String> = multiple(&verdict.check).into_iter().chain(note).collect();
    parts.join("; ")
}

/// The observed value divided by the limit, or the difference if that rounds to 1; empty where neither says anything.
fn of_limit(verdict: &Verdict) -> String {
    let Some(ratio) = limit_ratio(verdict) else {
        return String::new();
    };
    let quotient = match verdict.check.op.is_ceiling() {
        true => ratio,
        false => 1.0 / ratio,
    };
    match factor(quotient) {
        None if quotient.is_finite() => format!("{:+.1}%", 100.0 * (quotient - 1.0)),
        factor => factor.unwrap_or_default(),
    }
}

/// Short names of cases by id: the values that differ between them, `concurrency=96 max_num_seqs=8`, or the id where
/// those do not tell the cases apart. Empty names if the report has one case.
struct CaseNames<'a>(BTreeMap<&'a str, String>);

impl<'a> CaseNames<'a> {
    fn new(report: &'a Report) -> CaseNames<'a> {
        let keys = distinct_keys(report);
        let name = |(index, case): (usize, &'a CaseReport)| {
            let values = keys.iter().map(|key| describe(&key.name, key.value(index)));
            let name = match keys.as_slice() {
                _ if report.cases.len() == 1 => String::new(),
                [] => case.id.clone(),
                _ => values.collect::<Vec<_>>().join(" "),
            };
            (case.id.as_str(), name)
        };
        CaseNames(report.cases.iter().enumerate().map(name).collect())
    }

    fn of(&self, case: &CaseReport) -> &str {
        self.0.get(case.id.as_str()).map_or("", String::as_str)
    }
}

/// The keys whose values differ between the cases; none if they do not tell all cases apart.
fn distinct_keys(report: &Report) -> Vec<Dimension> {
    let keys = dimensions(report);
    let places: BTreeSet<Vec<_>> = (0..report.cases.len())
        .map(|case| keys.iter().map(|key| key.of_case[case]).collect())
        .collect();
    match places.len() == report.cases.len() {
        true => keys,
        false => Vec::new(),
    }
}

/// The main metrics: a line for one case, a table for several, the probes of a search.
fn metrics(report: &Report, inner: Screen) -> String {
    if !report.searches.is_empty() {
        return search::probe_table(report, inner.width, inner.color);
    }
    match report.cases.as_slice() {
        [] => String::new(),
        [only] if only.groups.iter().all(|group| !group.entry) => metrics_line(only),
        _ => case_table(report, inner),
    }
}

/// The URLs of the only case; of several cases, those that answered nothing.
fn endpoints(report: &Report, inner: Screen) -> String {
    let table = match report.cases.as_slice() {
        [only] if only.endpoints.len() <= MAX_ENDPOINTS => {
            cases::endpoints(cases::indexed(report)).terminal(inner)
        }
        _ => String::new(),
    };
    let cases = report.cases.iter().filter(|case| !case.is_stage());
    let silent: BTreeSet<String> = cases.flat_map(silent_endpoints).collect();
    let lines = silent.iter().map(|line| wrap(&plain(line), inner) + "\n");
    table + &lines.collect::<String>()
}

/// `52.8 req/s · 1691 tok/s · TTFT p50 11.8 ms · TPOT p50 4.4 ms · E2E p50 149 ms`; metrics without a value are
/// omitted.
fn metrics_line(case: &CaseReport) -> String {
    let scalar = |metric: Metric, unit: &str| {
        let rate = case.scalars.get(&metric)?;
        Some(format!("{}{} {unit}", mark(case, metric), number(*rate)))
    };
    let median = |metric: Metric, name: &str| {
        let median = case.distributions.get(&metric)?.quantile(0.5);
        let text = optional(Some(median?), metric.unit());
        Some(format!("{name} p50 {}{text}", mark(case, metric)))
    };
    let items = [
        scalar(Metric::RequestThroughput, "req/s"),
        scalar(Metric::OutputTps, "tok/s"),
        median(Metric::Ttft, "TTFT"),
        median(Metric::Tpot, "TPOT"),
        median(Metric::E2e, "E2E"),
    ];
    items.into_iter().flatten().collect::<Vec<_>>().join(" · ")
}

/// The main metrics of each case, with its varying values as columns; the cases with the worst verdicts first where
/// not all fit.
fn case_table(report: &Report, inner: Screen) -> String {
    let rank = |case: &CaseReport| worst_ruling(case).map_or(u8::MAX, severity);
    let mut shown: Vec<usize> = (0..report.cases.len()).collect();
    shown.sort_by_key(|index| rank(&report.cases[*index]));
    let hidden = shown.len().saturating_sub(MAX_CASES);
    shown.truncate(MAX_CASES);
    if hidden == 0 {
        shown.sort();
    }
    let table = cases::short_table(
        report,
        &shown,
        &distinct_keys(report),
        |case| match worst_ruling(case) {
            Some(ruling) => Cell::ruling(ruling),
            None => Cell::prose(""),
        },
    );
    let more = match hidden {
        0 => String::new(),
        _ => format!("… {} in the report\n", counted(hidden, "more case")),
    };
    table.terminal(inner) + &more
}

/// A paragraph broken at the width of the screen.
fn wrap(text: &str, screen: Screen) -> String {
    match screen.width {
        Some(width) => textwrap::fill(text, width.max(20)),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests;
