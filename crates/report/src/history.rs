//! The history of many runs: terminal table, JSON, and one HTML page.

mod trend;

use crate::compare::differs;
use crate::compare::labels::{percentage_points, probability, relative, with_direction};
use crate::format::{ABSENT, code, counted, percent, value};
use crate::html::lead::Tile;
use crate::html::{BASE_SCRIPT, STYLE, render};
use crate::table::{Cell, Column, Columns, Emphasis, Screen, Table, case_anchor};
use crate::{ReportError, environment};
use llmscen_core::baseline::MIN_RUNS_FOR_SPREAD;
use llmscen_core::compare::Difference;
use llmscen_core::history::{Change, History, HistoryRun, Series};
use llmscen_core::units::Unit;
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The format's name and version, the value of `schema`.
pub const HISTORY_SCHEMA: &str = "llmscen/history/1";

const TEMPLATE: &str = include_str!("history/page.html");
const TREND_STYLE: &str = include_str!("history/trend.css");

/// With more rows, the terminal shows only series with a change.
const MAX_ROWS: usize = 40;
/// With more cases, those without a regression are folded.
const MAX_UNFOLDED_CASES: usize = 4;
/// A change names at most this many differences between the runs before and after it.
const MAX_DIFFERENCES: usize = 6;

/// The differences between the plans of two runs, by their indices.
pub type PlanDifferences = BTreeMap<(usize, usize), Vec<Difference>>;

/// The verdict on the latest runs.
fn verdict(history: &History) -> (&'static str, Emphasis) {
    match () {
        () if history.is_regression() => ("REGRESSION", Emphasis::Fail),
        () if !history.tests_latest() => ("INCONCLUSIVE", Emphasis::Inconclusive),
        () => ("NO REGRESSION", Emphasis::Pass),
    }
}

/// `3 runs, 2 cases, 12 series: 1 change, 1 regression in the latest 5 runs`.
fn summary(history: &History) -> String {
    let regressions = history
        .series
        .iter()
        .filter(|it| it.is_regression())
        .count();
    let changes: usize = history.series.iter().map(|it| it.changes.len()).sum();
    let runs = MIN_RUNS_FOR_SPREAD + 1;
    let short = match history.series.len() - history.tested {
        0 => String::new(),
        _ if history.tested == 0 => format!(". A test needs {runs} valid runs of the same work"),
        untested => format!(
            ". {untested} of the series are not tested: a test needs {runs} valid runs of the same work"
        ),
    };
    format!(
        "{}, {}: {}, {} in the latest {}{short}",
        counted(history.runs.len(), "run"),
        plural(history.series.len(), "series", "series"),
        counted(changes, "change"),
        counted(regressions, "regression"),
        counted(history.options.latest, "run"),
    )
}

fn plural(count: usize, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

/// The tests, and what they can find.
fn explanation(history: &History) -> String {
    let options = &history.options;
    format!(
        "Change points: binary segmentation with the maximally selected rank statistic and \
         permutation p-values. The latest runs: Student's t for the mean of the last 1 to {} runs \
         against the runs since the last change point, on logarithms (shares: on the plain \
         scale). A page of runs without a change has an alarm with a probability of at most {}: \
         each of {} is tested at {} (Bonferroni). A change of at most {} is shown and is no \
         regression. Levels are geometric means (shares: arithmetic). Invalid cases are shown as \
         rings and do not count.",
        options.latest,
        percent(options.alpha),
        plural(history.tested, "series", "series"),
        percent(options.alpha / 2.0 / history.tested.max(1) as f64),
        percent(options.max_regression),
    )
}

fn date_at(history: &History, index: usize) -> String {
    history
        .runs
        .get(index)
        .map(HistoryRun::date)
        .unwrap_or_default()
}

/// `+12.3%`, or `+1.20 pp` for a share.
fn size(series: &Series, change: &Change) -> String {
    match (series.measure.metric.unit(), change.ratio()) {
        (Unit::Share, _) => percentage_points(change.after - change.before),
        (_, Some(ratio)) => relative(ratio),
        (_, None) => ABSENT.to_owned(),
    }
}

fn finding(series: &Series, change: &Change) -> (&'static str, Emphasis) {
    match change.worsening(series.measure.metric) {
        _ if change.is_regression => ("REGRESSION", Emphasis::Fail),
        worse if worse > 0.0 => ("worse", Emphasis::Inconclusive),
        _ => ("better", Emphasis::Pass),
    }
}

/// The finding on a series without a change.
fn unchanged(series: &Series) -> &'static str {
    match series.is_tested() {
        true => "no change",
        false => "not tested",
    }
}

/// The differences between the last run before a change and the first one after it.
fn differences(history: &History, change: &Change, plans: &PlanDifferences) -> Vec<String> {
    let (Some(last), Some(first)) = (
        history.runs.get(change.last),
        history.runs.get(change.first),
    ) else {
        return Vec::new();
    };
    let found = environment::changes(&(&last.results).into(), &(&first.results).into());
    let found = found
        .iter()
        .map(|it| format!("{}{}: {} → {}", it.what, it.at, it.before, it.after));
    let plan = plans.get(&(change.last, change.first));
    let plan = plan.into_iter().flatten().map(differs);
    let mut all: Vec<String> = found.chain(plan).collect();
    let more = all.len().saturating_sub(MAX_DIFFERENCES);
    all.truncate(MAX_DIFFERENCES);
    all.extend((more > 0).then(|| format!("and {more} more")));
    all
}

/// Every change with its series: regressions first, then the newest.
fn changes(history: &History) -> Vec<(&Series, &Change)> {
    let mut all: Vec<(&Series, &Change)> = history
        .series
        .iter()
        .flat_map(|series| series.changes.iter().map(move |change| (series, change)))
        .collect();
    all.sort_by_key(|(_, change)| (!change.is_regression, std::cmp::Reverse(change.first)));
    all
}

fn has_several_scenarios(history: &History) -> bool {
    let mut names = history.series.iter().map(|series| &series.scenario);
    let first = names.next();
    names.any(|name| Some(name) != first)
}

/// The table of the series, the verdict, and the runs that are left out. `width`: of the terminal; None: not a
/// terminal.
pub fn table(history: &History, width: Option<usize>, color: bool) -> String {
    let screen = Screen { width, color };
    let shows = |series: &&Series| history.series.len() <= MAX_ROWS || !series.changes.is_empty();
    let shown: Vec<&Series> = history.series.iter().filter(shows).collect();
    let hidden = match history.series.len() - shown.len() {
        0 => String::new(),
        hidden => format!("{hidden} series without a change are not listed.\n"),
    };
    let (verdict, emphasis) = verdict(history);
    let verdict = if color {
        emphasis.paint(verdict)
    } else {
        verdict.to_owned()
    };
    format!(
        "{}{hidden}\n{verdict}: {}.\n",
        series_table(history, &shown).terminal(screen),
        summary(history)
    )
}

fn series_table(history: &History, shown: &[&Series]) -> Table {
    let finding = |series: &Series| match series.changes.last() {
        Some(change) => finding(series, change),
        None => (unchanged(series), Emphasis::Muted),
    };
    let figure = |series: &Series, number: Option<f64>| {
        let unit = series.measure.metric.unit();
        let text = number.map_or_else(|| ABSENT.to_owned(), |it| value(it, unit));
        Cell::figure(text, number)
    };
    let text = |head: &str, rank| Column::text().terminal(head, rank);
    let number = |head: &str, rank| Column::number().terminal(head, rank);
    Columns::new()
        .add(text("FINDING", 0), |series: &&&Series| {
            let (words, emphasis) = finding(series);
            Cell::prose(words).emphasized(emphasis)
        })
        .add_if(
            has_several_scenarios(history),
            text("SCENARIO", 0),
            |series| Cell::prose(&series.scenario),
        )
        .add(text("CASE", 0), |series| Cell::code(&series.title))
        .add(text("METRIC", 0).at_least(14), |series| {
            Cell::code(&with_direction(series.measure))
        })
        .add(number("RUNS", 2), |series| {
            Cell::count(series.points.len() as u64)
        })
        .add(number("LATEST", 0), |series| {
            figure(series, series.points.last().map(|point| point.value))
        })
        .add(number("LEVEL", 1), |series| {
            figure(series, series.levels().last().map(|level| level.2))
        })
        .add(number("CHANGE", 0), |series| {
            let change = series.changes.last();
            let text = change.map_or_else(String::new, |it| size(series, it));
            Cell::figure(text, None::<f64>).emphasized(finding(series).1)
        })
        .add(text("SINCE", 1), |series| {
            let change = series.changes.last();
            Cell::prose(&change.map_or_else(String::new, |it| date_at(history, it.first)))
        })
        .table(shown)
}

/// The changes as a table of the page.
fn change_table(history: &History, anchors: &[Key<'_>]) -> Table {
    let figure =
        |series: &Series, number| Cell::figure(value(number, series.measure.metric.unit()), number);
    let text = |head: &str| Column::text().html(head);
    let number = |head: &str| Column::number().html(head);
    Columns::new()
        .add(text("Finding"), |(series, change): &(&Series, &Change)| {
            let (finding, emphasis) = finding(series, change);
            mark(finding, emphasis)
        })
        .add_if(
            has_several_scenarios(history),
            text("Scenario"),
            |(series, _)| Cell::prose(&series.scenario),
        )
        .add(text("Case"), |(series, _)| {
            match anchors.iter().position(|it| *it == key(series)) {
                Some(place) => Cell::case(place, &series.title),
                None => Cell::code(&series.title),
            }
        })
        .add(text("Metric"), |(series, _)| {
            Cell::code(&with_direction(series.measure))
        })
        .add(text("First run"), |(_, change)| {
            Cell::prose(&date_at(history, change.first))
        })
        .add(number("Before"), |(series, change)| {
            figure(series, change.before)
        })
        .add(number("Since"), |(series, change)| {
            figure(series, change.after)
        })
        .add(number("Change"), |(series, change)| {
            let emphasis = finding(series, change).1;
            Cell::figure(size(series, change), change.ratio()).emphasized(emphasis)
        })
        .add(number("p"), |(_, change)| {
            Cell::figure(probability(Some(change.p)), change.p)
        })
        .table_with(changes(history), |(series, _), row| {
            row.case(&series.case).metric(&series.measure.to_string())
        })
        .sortable()
}

/// A finding; only those that need a look, or are welcome, have a symbol.
fn mark(finding: &str, emphasis: Emphasis) -> Cell {
    match emphasis {
        Emphasis::Inconclusive => Cell::prose(finding).emphasized(emphasis),
        _ => Cell::verdict(finding, emphasis),
    }
}

/// Where levels changed, newest first, and what differs there.
fn places(history: &History, plans: &PlanDifferences) -> Vec<Place> {
    let mut counts: BTreeMap<(usize, usize), (usize, &Change)> = BTreeMap::new();
    for (_, change) in changes(history) {
        let (count, _) = counts
            .entry((change.first, change.last))
            .or_insert((0, change));
        *count += 1;
    }
    let run = |index: usize| history.runs.get(index).map(RunLine::new);
    let place = |((first, last), (count, change)): (&(usize, usize), &(usize, &Change))| Place {
        last: run(*last),
        first: run(*first),
        changes: counted(*count, "change"),
        differences: differences(history, change, plans).join("; "),
    };
    counts.iter().rev().map(place).collect()
}

/// Scenario, case and work, with the title of the case.
type Key<'a> = (&'a str, &'a str, usize);

fn key(series: &Series) -> Key<'_> {
    (&series.scenario, &series.title, series.work)
}

/// The history as JSON, indented, with a final newline. Shares are 0..=1.
///
/// # Errors
/// [`ReportError::Json`] if a value cannot be serialized.
pub fn json(history: &History, plans: &PlanDifferences) -> Result<String, ReportError> {
    let run = |run: &HistoryRun| {
        let results = &run.results;
        json!({
            "folder": run.folder, "run_id": results.run_id, "name": results.name, "started_at": results.started_at,
            "verdict": results.verdict, "labels": results.labels, "tool_version": results.tool_version,
        })
    };
    let change = |series: &Series, change: &Change| {
        json!({
            "last": change.last, "first": change.first,
                "started_at": history.runs.get(change.first).map(|it| &it.results.started_at),
            "before": change.before, "since": change.after, "ratio": change.ratio(), "p": change.p,
            "test": if change.by_latest { "latest" } else { "change_point" },
            "finding": finding(series, change).0.to_lowercase(),
            "differences": differences(history, change, plans),
        })
    };
    let series = |series: &Series| {
        json!({
            "name": series.scenario, "case": series.case, "title": series.title,
                "tested": series.is_tested(), "metric": series.measure.to_string(),
                "unit": series.measure.metric.unit(),
            "better": if series.measure.metric.higher_is_better() { "higher" } else { "lower" },
            "points": series.points.iter().map(|it| json!({ "run": it.run, "value": it.value,
                "bound": it.bound, "valid": it.valid }))
                .collect::<Vec<_>>(),
            "changes": series.changes.iter().map(|it| change(series, it)).collect::<Vec<_>>(),
        })
    };
    let document = json!({
        "schema": HISTORY_SCHEMA,
        "verdict": verdict(history).0.to_lowercase().replace(' ', "_"),
        "confidence": 1.0 - history.options.alpha,
        "max_regression": history.options.max_regression,
        "latest": history.options.latest,
        "series_tested": history.tested,
        "runs": history.runs.iter().map(run).collect::<Vec<_>>(),
        "left_out": history.left_out.iter().map(|(folder, why)| json!({ "folder": folder,
            "reason": why })).collect::<Vec<_>>(),
        "series": history.series.iter().map(series).collect::<Vec<Value>>(),
    });
    Ok(serde_json::to_string_pretty(&document)? + "\n")
}

#[derive(Serialize)]
struct Page {
    page_class: &'static str,
    name: String,
    subject: Vec<String>,
    verdict: &'static str,
    tone: &'static str,
    summary: String,
    tiles: Vec<Tile>,
    changes: String,
    places: Vec<Place>,
    cases: Vec<Section>,
    runs: Vec<RunLine>,
    left_out: Vec<(String, String)>,
    explanation: String,
    styles: [&'static str; 2],
    script: &'static str,
}

#[derive(Serialize)]
struct Section {
    anchor: String,
    /// Scenario, if there are several.
    scenario: Option<String>,
    id: String,
    regressions: usize,
    is_open: bool,
    trends: Vec<Trend>,
}

#[derive(Serialize)]
struct Trend {
    measure: String,
    latest: String,
    /// The last change.
    change: String,
    unchanged: &'static str,
    tone: &'static str,
    symbol: &'static str,
    svg: String,
}

/// Two consecutive runs with different levels.
#[derive(Serialize)]
struct Place {
    last: Option<RunLine>,
    first: Option<RunLine>,
    changes: String,
    differences: String,
}

#[derive(Serialize)]
struct RunLine {
    date: String,
    folder: String,
    link: Option<String>,
    verdict: String,
    labels: Vec<String>,
    version: String,
}

impl RunLine {
    fn new(run: &HistoryRun) -> RunLine {
        let labels = run.results.labels.iter();
        RunLine {
            date: run.date(),
            folder: run.folder.clone(),
            link: run.link.clone(),
            verdict: run.results.verdict.clone(),
            labels: labels
                .map(|(name, value)| format!("{name} {value}"))
                .collect(),
            version: run.results.tool_version.clone(),
        }
    }
}

/// The page.
///
/// # Errors
/// [`ReportError::Template`] if the template cannot be rendered.
pub fn html(history: &History, plans: &PlanDifferences) -> Result<String, ReportError> {
    let mut cases: Vec<Key<'_>> = Vec::new();
    for series in &history.series {
        if !cases.contains(&key(series)) {
            cases.push(key(series));
        }
    }
    let has_links = trend::fits(history);
    let several = has_several_scenarios(history);
    let section = |(index, case): (usize, &Key<'_>)| {
        let own: Vec<&Series> = history
            .series
            .iter()
            .filter(|it| key(it) == *case)
            .collect();
        let regressions = own.iter().filter(|it| it.is_regression()).count();
        Section {
            anchor: case_anchor(index),
            scenario: several.then(|| case.0.to_owned()),
            id: case.1.to_owned(),
            regressions,
            is_open: cases.len() <= MAX_UNFOLDED_CASES || regressions > 0,
            trends: own
                .iter()
                .map(|series| trend(history, series, has_links))
                .collect(),
        }
    };
    let sections = cases.iter().enumerate().map(section).collect();
    let mut names: Vec<&str> = history
        .runs
        .iter()
        .map(|it| it.results.name.as_str())
        .collect();
    names.sort_unstable();
    names.dedup();
    let (verdict, emphasis) = verdict(history);
    let page = Page {
        page_class: "report",
        name: format!("History of {}", names.join(", ")),
        subject: subject(history),
        verdict,
        tone: emphasis.class(),
        summary: summary(history) + ".",
        tiles: tiles(history, &cases),
        changes: change_table(history, &cases).html("Changes"),
        places: places(history, plans),
        cases: sections,
        runs: history.runs.iter().rev().map(RunLine::new).collect(),
        left_out: history.left_out.clone(),
        explanation: explanation(history),
        styles: [STYLE, TREND_STYLE],
        script: BASE_SCRIPT,
    };
    render(TEMPLATE, page)
}

/// The span of the runs, and the newest labels.
fn subject(history: &History) -> Vec<String> {
    let (Some(first), Some(last)) = (history.runs.first(), history.runs.last()) else {
        return Vec::new();
    };
    let labels = last.results.labels.iter();
    let labels = labels.map(|(name, value)| format!("latest {name} {value}"));
    [
        counted(history.runs.len(), "run"),
        format!("{} to {} UTC", first.date(), last.date()),
    ]
    .into_iter()
    .chain(labels)
    .collect()
}

/// For each series with a change among the latest runs, up to six: the change.
fn tiles(history: &History, cases: &[Key<'_>]) -> Vec<Tile> {
    const MAX_TILES: usize = 6;
    let mut newest: Vec<(&Series, &Change)> = changes(history);
    newest.retain(|(series, change)| {
        let since = series.points.iter().filter(|it| it.run >= change.first);
        since.count() <= history.options.latest
    });
    let tile = |(series, change): &(&Series, &Change)| {
        let (_, emphasis) = finding(series, change);
        let unit = series.measure.metric.unit();
        let id = if cases.len() > 1 {
            format!("{}, ", series.title)
        } else {
            String::new()
        };
        Tile {
            label: with_direction(series.measure),
            value: size(series, change),
            detail: format!(
                "{id}{} → {}",
                value(change.before, unit),
                value(change.after, unit)
            ),
            tone: emphasis.class(),
            symbol: emphasis.symbol(),
            anchor: cases
                .iter()
                .position(|it| *it == key(series))
                .map(case_anchor),
            sparkline: String::new(),
        }
    };
    newest.iter().take(MAX_TILES).map(tile).collect()
}

fn trend(history: &History, series: &Series, has_links: bool) -> Trend {
    let unit = series.measure.metric.unit();
    let change = series.changes.last();
    let emphasis = change.map_or(Emphasis::None, |it| finding(series, it).1);
    Trend {
        measure: with_direction(series.measure),
        latest: series
            .points
            .last()
            .map_or_else(String::new, |it| value(it.value, unit)),
        change: change.map_or_else(String::new, |it| {
            format!("{} since {}", size(series, it), date_at(history, it.first))
        }),
        unchanged: unchanged(series),
        tone: emphasis.class(),
        symbol: match emphasis {
            Emphasis::Inconclusive => "",
            emphasis => emphasis.symbol(),
        },
        svg: trend::svg(history, series, has_links),
    }
}

/// The runs that are left out, one line each.
pub fn left_out(history: &History) -> Vec<String> {
    let line = |(folder, why): &(String, String)| format!("{} is left out: {why}", code(folder));
    history.left_out.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use llmscen_core::history::{DEFAULT_MEASURES, HistoryOptions};

    /// Runs of two cases, whose TTFT is `ttft` and half of it.
    fn history(ttft: &[f64], commit: impl Fn(usize) -> String) -> History {
        let case = |id: &str, ttft: f64| {
            json!({
                "id": id, "labels": { "load.concurrency": id }, "audit": { "valid": true },
                    "counts": { "scheduled": 100 },
                "slo": [], "metrics": { "ttft_ms": { "p50": ttft, "p95": ttft * 1.5 }, "error_rate": 0.0 },
            })
        };
        let run = |(index, ttft): (usize, &f64)| {
            let results = json!({
                "name": "chat", "run_id": format!("r{index}"), "tool_version": "0.1.0",
                    "labels": { "commit": commit(index) },
                "started_at": format!("2026-01-{:02}T02:00:00Z", index + 1), "verdict": "pass", "interrupted": false,
                "machine": llmscen_core::manifest::Machine::default(), "targets": {},
                    "cases": [case("c=1", *ttft), case("c=2", ttft / 2.0)],
            });
            HistoryRun {
                folder: format!("chat/{index}"),
                link: Some(format!("chat/{index}/report.html")),
                results: serde_json::from_value(results).unwrap(),
                plan: String::new(),
                work: 0,
            }
        };
        let options = HistoryOptions {
            measures: DEFAULT_MEASURES.to_vec(),
            alpha: 0.05,
            latest: 5,
            max_regression: 0.05,
        };
        let left_out = vec![(
            "chat/killed".to_owned(),
            "the run was interrupted".to_owned(),
        )];
        History::new(
            ttft.iter().enumerate().map(run).collect(),
            left_out,
            options,
        )
    }

    /// 20 runs around 100 ms, the last one of 150 ms.
    fn regression(commit: impl Fn(usize) -> String) -> History {
        let mut ttft: Vec<f64> = (0..20)
            .map(|index| 100.0 + f64::from(index * 7 % 5))
            .collect();
        ttft.push(150.0);
        history(&ttft, commit)
    }

    #[test]
    fn the_page_has_verdict_changes_labels_and_links() {
        let history = regression(|index| format!("c{index}"));
        let html = html(&history, &PlanDifferences::new()).unwrap();
        let html = html.replace("&#x2f;", "/");
        assert!(html.contains("<span class=\"badge fail\">REGRESSION</span>"));
        assert_eq!(html.matches("<svg class=\"trend\"").count(), 6);
        assert_eq!(html.matches("REGRESSION</td>").count(), 4);
        for part in [
            "commit: c19 → c20",
            "<a href=\"chat/20/report.html\"",
            "<code>chat/killed</code>: the run was interrupted",
            "+47.",
        ] {
            assert!(html.contains(part), "{part}");
        }
        assert_eq!(
            html.matches("<li><a href=").count(),
            1,
            "one line for the changes of one run"
        );
    }

    #[test]
    fn the_page_loads_nothing_and_text_never_becomes_script() {
        let attack = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\"";
        let mut history = regression(|_| attack.to_owned());
        for run in &mut history.runs {
            run.folder = attack.to_owned();
            run.results.verdict = attack.to_owned();
        }
        for series in &mut history.series {
            series.title = attack.to_owned();
        }
        let html = html(&history, &PlanDifferences::new()).unwrap();
        assert!(html.contains("default-src 'none'") && html.contains("&lt;script&gt;alert(1)"));
        for foreign in [
            "<script>alert",
            "<img",
            "<link",
            "@import",
            "url(",
            "fetch(",
        ] {
            assert!(!html.contains(foreign), "{foreign}");
        }
    }

    #[test]
    fn the_table_lists_every_series_and_the_verdict() {
        let history = regression(|_| String::new());
        let text = table(&history, None, false);
        assert!(
            text.contains("REGRESSION  c=1   ttft.p50 ↓      21  150 ms")
                && text.contains("no change   c=1   error_rate ↓    21      0%")
                && text.ends_with("REGRESSION: 21 runs, 6 series: 4 changes, 4 regressions in the latest 5 runs.\n"),
            "{text}"
        );
        let few = table(&self::history(&[100.0; 3], |_| String::new()), None, false);
        assert!(
            few.contains("INCONCLUSIVE: 3 runs")
                && few.contains("A test needs 6 valid runs of the same work"),
            "{few}"
        );
    }

    #[test]
    fn json_has_the_points_and_the_changes_of_each_series() {
        let history = regression(|index| format!("c{index}"));
        let document: Value =
            serde_json::from_str(&json(&history, &PlanDifferences::new()).unwrap()).unwrap();
        assert_eq!(document["verdict"], "regression");
        let series = &document["series"][0];
        assert_eq!(
            (&series["case"], &series["metric"]),
            (&json!("c=1"), &json!("ttft.p50"))
        );
        assert_eq!(series["points"].as_array().unwrap().len(), 21);
        let change = &series["changes"][0];
        assert_eq!(
            (&change["first"], &change["test"], &change["differences"]),
            (&json!(20), &json!("latest"), &json!(["commit: c19 → c20"]))
        );
    }
}
