//! `llmscen history`: the trend of each case and metric over the runs in a folder.

use crate::cli::baseline::Format;
use crate::cli::compare::{
    Measures, parse_confidence, parse_measures, parse_percent, select_measures,
};
use crate::cli::exit::Exit;
use crate::cli::terminal::Terminal;
use crate::store::{find_runs, replace};
use clap::Args;
use llmscen_core::compare::Difference;
use llmscen_core::history::{DEFAULT_MEASURES, History, HistoryOptions, HistoryRun, Results};
use llmscen_report::SCHEMA_NAME;
use llmscen_report::history::{PlanDifferences, html, json, left_out, table};
use llmscen_scenario::diff::differences;
use serde_json::Value;
use std::fs;
use std::io::{self, Write};
use std::path::{Component, Path, PathBuf};

/// Fields of a plan that say nothing about a change, or that are shown otherwise.
const IGNORED: [&str; 6] = [
    "name",
    "description",
    "labels",
    "report",
    "seed",
    "cache_seed",
];

#[derive(Debug, Args)]
pub struct HistoryArgs {
    /// Folders with run folders, at any depth
    #[arg(required = true, value_name = "DIR")]
    pub folders: Vec<PathBuf>,
    /// Page to write [default: DIR/history.html]
    #[arg(long, value_name = "FILE")]
    pub to: Option<PathBuf>,
    /// Metrics to show [default: ttft.p50, ttft.p95, tpot.p50, e2e.p95, output_tps, error_rate] (repeatable)
    #[arg(long = "metric", value_name = "METRIC[.STAT]", value_parser = parse_measures)]
    pub metrics: Vec<Measures>,
    /// Allowed regression, in percent of the level before
    #[arg(long, value_name = "PCT", default_value = "5", value_parser = parse_percent)]
    pub max_regression: f64,
    /// Confidence that a page without a change has no alarm
    #[arg(long, value_name = "LEVEL", default_value = "0.95", value_parser = parse_confidence)]
    pub confidence: f64,
    /// Number of runs that count as the latest: a regression that began in them is exit code 1
    #[arg(long, value_name = "RUNS", default_value = "5", value_parser = clap::value_parser!(u8).range(1..))]
    pub latest: u8,
    /// Output format
    #[arg(long, value_enum, default_value = "table", value_name = "FORMAT")]
    pub format: Format,
}

pub fn history(args: &HistoryArgs, terminal: &mut Terminal) -> Exit {
    match show(args, terminal) {
        Ok(history) if history.is_regression() => Exit::Fail,
        Ok(_) => Exit::Pass,
        Err((exit, why)) => {
            terminal.error(&why);
            exit
        }
    }
}

fn show(args: &HistoryArgs, terminal: &mut Terminal) -> Result<History, (Exit, String)> {
    let unreadable = |path: &Path, error: &io::Error| {
        (
            Exit::Scenario,
            format!("cannot read {}: {error}", path.display()),
        )
    };
    let mut folders = Vec::new();
    for folder in &args.folders {
        folders.extend(find_runs(folder).map_err(|error| unreadable(folder, &error))?);
    }
    let to = match (&args.to, args.folders.first()) {
        (Some(file), _) => file.clone(),
        (None, first) => first
            .map(PathBuf::as_path)
            .unwrap_or(Path::new("."))
            .join("history.html"),
    };
    let parent = to.parent().filter(|it| !it.as_os_str().is_empty());
    let parent = parent.unwrap_or(Path::new("."));
    let page_folder = fs::create_dir_all(parent)
        .and_then(|()| parent.canonicalize())
        .map_err(|error| {
            let why = format!("cannot create {}: {error}", parent.display());
            (Exit::Error, why)
        })?;
    let history = build(args, &folders, &page_folder);
    if history.runs.is_empty() {
        left_out(&history)
            .iter()
            .for_each(|line| terminal.status(&format!("note: {line}")));
        let names: Vec<String> = args
            .folders
            .iter()
            .map(|it| it.display().to_string())
            .collect();
        let why = format!(
            "no complete run in {}\n  help: pass the folder that `report.dir` names, such as reports/",
            names.join(", ")
        );
        return Err((Exit::Scenario, why));
    }
    let plans = plan_differences(&history);
    let view_error = |error: llmscen_report::ReportError| (Exit::Error, error.to_string());
    let page = html(&history, &plans).map_err(view_error)?;
    match args.format {
        Format::Table => terminal.print(&table(&history, terminal.out_width(), terminal.out_color)),
        Format::Json => terminal.print_raw(&json(&history, &plans).map_err(view_error)?),
    }
    replace(&to, |file| file.write_all(page.as_bytes())).map_err(|error| {
        (
            Exit::Error,
            format!("cannot write {}: {error}", to.display()),
        )
    })?;
    left_out(&history)
        .iter()
        .for_each(|line| terminal.status(&format!("note: {line}")));
    terminal.status(&format!("history: {}", to.display()));
    Ok(history)
}

fn build(args: &HistoryArgs, folders: &[PathBuf], page_folder: &Path) -> History {
    let mut runs: Vec<HistoryRun> = Vec::new();
    let mut left_out = Vec::new();
    for folder in folders {
        let name = folder.display().to_string();
        let same = |results: &Results| {
            let same = runs.iter().find(|run| run.results.run_id == results.run_id);
            same.map(|run| format!("it is the same run as {}", run.folder))
        };
        match read_results(folder).and_then(|it| same(&it).map_or(Ok(it), Err)) {
            Ok(results) => runs.push(HistoryRun {
                folder: name,
                link: link(page_folder, &folder.join("report.html")),
                results,
                plan: fs::read_to_string(folder.join("plan.yaml")).unwrap_or_default(),
                work: 0,
            }),
            Err(why) => left_out.push((name, why)),
        }
    }
    number_works(&mut runs);
    let measures = match args.metrics.as_slice() {
        [] => DEFAULT_MEASURES.to_vec(),
        selected => select_measures(selected),
    };
    let options = HistoryOptions {
        measures,
        alpha: 1.0 - args.confidence,
        latest: usize::from(args.latest),
        max_regression: args.max_regression,
    };
    History::new(runs, left_out, options)
}

/// Fields of the target that name another system, although a comparison of two runs may differ in them.
const SYSTEM: [&str; 2] = ["target.url", "target.local"];

/// Numbers the work of each run: that of an earlier run if their plans differ in nothing that changes the work or the
/// target.
fn number_works(runs: &mut [HistoryRun]) {
    let mut works: Vec<String> = Vec::new();
    for run in runs {
        let is_same = |plan: &String| {
            let changes = |found: &Difference| {
                !found.harmless || SYSTEM.iter().any(|field| found.is_within(field))
            };
            *plan == run.plan
                || differences(plan, &run.plan).is_ok_and(|found| !found.iter().any(changes))
        };
        run.work = works.iter().position(is_same).unwrap_or(works.len());
        if run.work == works.len() {
            works.push(run.plan.clone());
        }
    }
}

/// The results of a run, or why it is left out.
fn read_results(folder: &Path) -> Result<Results, String> {
    let path = folder.join("results.json");
    let bytes = fs::read(&path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => {
            "it has no results.json, because the run is in progress or was killed (`llmscen \
            report` writes it)"
                .to_owned()
        }
        _ => format!("results.json cannot be read: {error}"),
    })?;
    let invalid = |error: serde_json::Error| format!("results.json is not valid: {error}");
    let document: Value = serde_json::from_slice(&bytes).map_err(invalid)?;
    match document.get("schema").and_then(Value::as_str) {
        Some(SCHEMA_NAME) => {}
        other => {
            let other = other.unwrap_or("none");
            return Err(format!(
                "the schema of results.json is {other}, not {SCHEMA_NAME}"
            ));
        }
    }
    let results: Results = serde_json::from_value(document).map_err(invalid)?;
    match results.verdict.as_str() {
        _ if results.interrupted => Err("the run was interrupted".to_owned()),
        "error" => Err("the run failed".to_owned()),
        _ => Ok(results),
    }
}

/// The URL of a file relative to a folder, which is canonical; None if the file does not exist.
fn link(folder: &Path, file: &Path) -> Option<String> {
    let file = file.canonicalize().ok()?;
    let mut from = folder.components().peekable();
    let mut to = file.components().peekable();
    while from.peek().is_some() && from.peek() == to.peek() {
        from.next();
        to.next();
    }
    let up = from.map(|_| "..".to_owned());
    let down = to.filter_map(|part| match part {
        Component::Normal(name) => Some(escape_segment(name.as_encoded_bytes())),
        _ => None,
    });
    Some(up.chain(down).collect::<Vec<_>>().join("/"))
}

/// A path segment of a URL (RFC 3986, section 2.1).
fn escape_segment(name: &[u8]) -> String {
    let escape = |byte: &u8| match byte {
        b'-' | b'_' | b'.' | b'~' | b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' => {
            char::from(*byte).to_string()
        }
        byte => format!("%{byte:02X}"),
    };
    name.iter().map(escape).collect()
}

/// How the plans around each change differ.
fn plan_differences(history: &History) -> PlanDifferences {
    let mut all = PlanDifferences::new();
    for change in history.series.iter().flat_map(|series| &series.changes) {
        all.entry((change.last, change.first)).or_insert_with(|| {
            let plan = |index: usize| history.runs.get(index).map_or("", |run| run.plan.as_str());
            let is_shown = |difference: &Difference| {
                let root = difference.path.split(['.', '[']).next().unwrap_or_default();
                !IGNORED.contains(&root)
            };
            let found = differences(plan(change.last), plan(change.first)).unwrap_or_default();
            found.into_iter().filter(is_shown).collect()
        });
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run_of(plan: &str) -> HistoryRun {
        let results = serde_json::json!({
            "name": "chat", "run_id": "r", "tool_version": "1", "started_at": "2026-01-01T00:00:00Z", "verdict": "pass",
            "interrupted": false, "machine": llmscen_core::manifest::Machine::default(), "targets": {}, "cases": [],
        });
        HistoryRun {
            folder: String::new(),
            link: None,
            results: serde_json::from_value(results).unwrap(),
            plan: plan.to_owned(),
            work: 0,
        }
    }

    #[test]
    fn runs_have_one_work_if_neither_their_work_nor_their_target_differs() {
        let plan = |url: &str, model: &str, seed: u32, limit: &str, users: u32| {
            format!(
                "name: chat\ntarget: {{ url: {url}, model: {model} }}\nseed: {seed}\nslo: [ \
                {limit} ]\nload: {{ concurrency: {users} }}\n"
            )
        };
        let plans = [
            plan("a", "m", 1, "ttft.p95 < 1s", 4),
            plan("a", "m", 2, "ttft.p95 < 2s", 4),
            plan("b", "m", 1, "ttft.p95 < 1s", 4),
            plan("a", "n", 1, "ttft.p95 < 1s", 4),
            plan("a", "m", 1, "ttft.p95 < 1s", 8),
            String::new(),
            plan("b", "m", 3, "ttft.p95 < 1s", 4),
            "not: [a plan".to_owned(),
        ];
        let mut runs: Vec<HistoryRun> = plans.iter().map(|plan| run_of(plan)).collect();
        number_works(&mut runs);
        let works: Vec<usize> = runs.iter().map(|run| run.work).collect();
        assert_eq!(works, [0, 0, 1, 2, 3, 4, 1, 5]);
    }

    #[test]
    fn a_link_is_relative_and_escaped() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path().canonicalize().unwrap();
        for folder in ["a/night #1", "pages"] {
            fs::create_dir_all(root.join(folder)).unwrap();
        }
        let report = root.join("a/night #1/report.html");
        assert_eq!(link(&root, &report), None);
        fs::write(&report, "").unwrap();
        assert_eq!(link(&root, &report).unwrap(), "a/night%20%231/report.html");
        assert_eq!(
            link(&root.join("pages"), &report).unwrap(),
            "../a/night%20%231/report.html"
        );
    }
}
