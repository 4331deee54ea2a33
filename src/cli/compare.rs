//! `llmscen compare`: compares runs case by case.

use crate::cli::exit::Exit;
use crate::cli::load_scenarios::{load_stored_quietly, note_unchecked, open_run};
use crate::cli::output::{Format, Inconclusive};
use crate::cli::terminal::Terminal;
use crate::run::compare::{ComparisonSpec, load_run};
use crate::run::error::RunError;
use crate::run::outputs::recover::damage_notes;
use crate::store::manifest::read;
use crate::store::{RunDir, RunLocation};
use clap::{Args, ValueEnum};
use llmscen_analysis::judge::compare::{
    Side, compare_sides, decide_findings, default_measures, is_comparable, unmatched_cases,
    withdraw_cached,
};
use llmscen_core::compare::{Comparison, Correction, Difference, Finding, Measure, Run};
use llmscen_core::metric::{Metric, Scope, Stat};
use llmscen_core::plan::Plan;
use llmscen_report::chart::{COMPARISON_CHARTS, comparison_charts};
use llmscen_report::compare::{differs, html, json, markdown, notes, separated, table};
use llmscen_scenario::diff::differences;
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

#[derive(Debug, Args)]
pub struct CompareArgs {
    /// Run folders; the first one is the base
    #[arg(required_unless_present = "base", conflicts_with_all = ["base", "candidate"], num_args = 2..=8,
        value_name = "RUN_DIR")]
    pub folders: Vec<PathBuf>,
    /// Several runs of the base; each run counts as one value, which includes run-to-run variance
    #[arg(long, requires = "candidate", num_args = 1..=20, value_name = "RUN_DIR")]
    pub base: Vec<PathBuf>,
    /// Several runs of the candidate
    #[arg(long, requires = "base", num_args = 1..=20, value_name = "RUN_DIR")]
    pub candidate: Vec<PathBuf>,
    /// Metrics to compare: ttft.p99, e2e.mean, output_tps; `default` means the default metrics (repeatable)
    #[arg(long = "metric", value_name = "METRIC[.STAT]", value_parser = parse_measures)]
    pub metrics: Vec<Measures>,
    /// Allowed regression, in percent of the base
    #[arg(long, value_name = "PCT", default_value = "5", value_parser = parse_percent)]
    pub max_regression: f64,
    /// Correction of p-values for multiple comparisons
    #[arg(long, value_enum, default_value = "holm", value_name = "HOW")]
    pub correction: CorrectionArg,
    /// Two-sided confidence level of intervals; significance level is 1 - LEVEL
    #[arg(long, value_name = "LEVEL", default_value = "0.95", value_parser = parse_confidence)]
    pub confidence: f64,
    /// Compare runs of different workloads
    #[arg(long)]
    pub allow_different: bool,
    /// Exit status when cases are missing or nothing can be tested
    #[arg(long, value_enum, default_value = "fail", value_name = "HOW")]
    pub inconclusive: Inconclusive,
    /// Output format
    #[arg(long, value_enum, default_value = "table", value_name = "FORMAT")]
    pub format: Format,
    /// Write compare.html, compare.md, compare.json and charts/*.png into this folder
    #[arg(long, short, value_name = "DIR")]
    pub output: Option<PathBuf>,
}

/// Corrections for multiple comparisons.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum CorrectionArg {
    /// Holm: limits the probability of any false alarm
    Holm,
    /// Benjamini-Hochberg: limits the share of false alarms
    Bh,
    /// No correction
    None,
}

/// The measures that one `--metric` selects.
#[derive(Clone, Debug, PartialEq)]
pub struct Measures(Vec<Measure>);

pub fn compare(
    args: &CompareArgs,
    env: &BTreeMap<String, String>,
    terminal: &mut Terminal,
) -> Exit {
    let Some(mut runs) = open_runs(args, env, terminal) else {
        return Exit::Scenario;
    };
    let Some(differences) = check_workloads(&runs, args, terminal) else {
        return Exit::Scenario;
    };
    let comparison = match compare_runs(&mut runs, differences, args) {
        Ok(comparison) => comparison,
        Err(error) => {
            terminal.error(&error.to_string());
            return if error.is_of_stored_file() {
                Exit::Scenario
            } else {
                Exit::Error
            };
        }
    };
    if let Err(error) = print_comparison(&comparison, args, terminal) {
        terminal.error(&error.to_string());
        return Exit::Error;
    }
    match () {
        () if comparison.has_invalid_run() => Exit::Invalid,
        () if comparison.count(Finding::Regression) > 0 => Exit::Fail,
        () if comparison.is_incomplete() && args.inconclusive == Inconclusive::Fail => {
            Exit::Inconclusive
        }
        () => Exit::Pass,
    }
}

/// A run folder with its plan.
struct OpenedRun {
    folder: RunDir,
    plan: Plan,
    /// `A`; `A1`, `A2` if a side has several runs.
    label: String,
    side: usize,
}

/// `A (reports/chat/latest)`.
impl fmt::Display for OpenedRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.label, self.folder.path().display())
    }
}

/// The folders per side: one each, or those of `--base` and `--candidate`.
fn sides(args: &CompareArgs) -> Vec<&[PathBuf]> {
    if args.base.is_empty() {
        args.folders.chunks(1).collect()
    } else {
        vec![&args.base, &args.candidate]
    }
}

/// Opens the runs with their plans; `None` after printing an error.
fn open_runs(
    args: &CompareArgs,
    env: &BTreeMap<String, String>,
    terminal: &mut Terminal,
) -> Option<Vec<OpenedRun>> {
    let mut runs: Vec<OpenedRun> = Vec::new();
    for (side, folders) in sides(args).into_iter().enumerate() {
        for (number, path) in folders.iter().enumerate() {
            let label = if folders.len() == 1 {
                side_label(side)
            } else {
                format!("{}{}", side_label(side), number + 1)
            };
            let folder = open_run(path, terminal)?;
            note_unchecked(&folder, terminal);
            let plan = load_stored_quietly(&folder.file("plan.yaml"), env, terminal)?;
            runs.push(OpenedRun {
                folder,
                plan,
                label,
                side,
            });
        }
    }
    if let Some((first, second)) = find_same_run(&runs).filter(|_| !args.base.is_empty()) {
        terminal.error(&format!("{first} and {second} are the same run"));
        terminal.diagnostic("  help: pass each run folder once, or run the scenario again");
        return None;
    }
    Some(runs)
}

/// The first two run folders of the same run.
fn find_same_run(runs: &[OpenedRun]) -> Option<(&OpenedRun, &OpenedRun)> {
    let run_id = |run: &OpenedRun| {
        read(&run.folder)
            .ok()
            .map(|manifest| manifest.run_id)
            .filter(|id| !id.is_empty())
    };
    let path = |run: &OpenedRun| run.folder.path().canonicalize().ok();
    let identities: Vec<_> = runs.iter().map(|run| (path(run), run_id(run))).collect();
    for (later, (path, run_id)) in identities.iter().enumerate() {
        let is_same = |(other_path, other_id): &(Option<PathBuf>, Option<String>)| {
            path.is_some() && path == other_path || run_id.is_some() && run_id == other_id
        };
        if let Some(earlier) = identities[..later].iter().position(is_same) {
            return Some((&runs[earlier], &runs[later]));
        }
    }
    None
}

fn side_label(index: usize) -> String {
    char::from(b'A' + u8::try_from(index).unwrap_or(25).min(25)).to_string()
}

/// How each plan differs from the first; `None` after an error about different workloads.
fn check_workloads(
    runs: &[OpenedRun],
    args: &CompareArgs,
    terminal: &mut Terminal,
) -> Option<Vec<Vec<Difference>>> {
    let (base, others) = runs.split_first()?;
    let mut all = Vec::new();
    let mut comparable = true;
    for other in others {
        let found = match differences(&base.plan.resolved, &other.plan.resolved) {
            Ok(found) => found,
            Err(why) => {
                terminal.error(&format!(
                    "{}: plan.yaml cannot be compare_runs: {why}",
                    other.folder.path().display()
                ));
                return None;
            }
        };
        let relevant = found.iter().filter(|difference| !difference.harmless);
        let relevant: Vec<String> = relevant
            .map(|difference| format!("  {}", differs(difference)))
            .collect();
        if !relevant.is_empty() && !args.allow_different {
            terminal.error(&format!(
                "runs {base} and {other} ran different workloads:\n{}",
                relevant.join("\n")
            ));
            comparable = false;
        }
        all.push(found);
    }
    if !comparable {
        terminal.diagnostic("  help: pass --allow-different to compare anyway, or rerun both with the same scenario");
    }
    comparable.then_some(all)
}

fn compare_runs(
    runs: &mut [OpenedRun],
    differences: Vec<Vec<Difference>>,
    args: &CompareArgs,
) -> Result<Comparison, RunError> {
    let measures = select_measures(&args.metrics);
    let level = (1.0 + args.confidence) / 2.0;
    let count = sides(args).len();
    let mut loaded: Vec<Run> = Vec::new();
    let mut evidence: Vec<Vec<Side>> = vec![Vec::new(); count];
    for opened in runs.iter_mut() {
        let spec = ComparisonSpec {
            measures: &measures,
            level,
        };
        let (run, sides) = load_run(
            &mut opened.plan,
            &opened.folder,
            opened.label.clone(),
            opened.side,
            spec,
        )?;
        loaded.push(run);
        evidence
            .get_mut(opened.side)
            .into_iter()
            .for_each(|side| side.extend(sides.iter().cloned()));
    }
    let correction = match args.correction {
        CorrectionArg::Holm => Correction::Holm,
        CorrectionArg::Bh => Correction::Bh,
        CorrectionArg::None => Correction::None,
    };
    let mut contrasts = compare_sides(&evidence, &measures, level);
    if !args.allow_different {
        withdraw_cached(&mut contrasts, &loaded);
    }
    let tests = decide_findings(
        &mut contrasts,
        correction,
        1.0 - args.confidence,
        args.max_regression,
    );
    let notes = loaded.iter().flat_map(|run| {
        damage_notes(&run.report.manifest).map(move |note| format!("{}: {note}", run.label))
    });
    let notes = notes.collect();
    Ok(Comparison {
        unmatched_cases: unmatched_cases(&evidence)
            .into_iter()
            .map(|(side, case)| (side_label(side), case))
            .collect(),
        sides: (0..count).map(side_label).collect(),
        runs: loaded,
        contrasts,
        differences,
        notes,
        correction,
        tests,
        confidence: args.confidence,
        max_regression: args.max_regression,
    })
}

/// The selected measures, or the default ones, in the order of the metrics and without duplicates.
pub fn select_measures(args: &[Measures]) -> Vec<Measure> {
    let selected = if args.is_empty() {
        default_measures()
    } else {
        args.iter().flat_map(|arg| arg.0.iter().copied()).collect()
    };
    let mut unique: Vec<Measure> = Vec::new();
    for measure in selected {
        if !unique.contains(&measure) {
            unique.push(measure);
        }
    }
    unique.sort_by_key(|measure| measure.metric);
    unique
}

/// A terminal shows at most this many notes.
const MAX_NOTES: usize = 10;

fn print_comparison(
    comparison: &Comparison,
    args: &CompareArgs,
    terminal: &mut Terminal,
) -> Result<(), RunError> {
    // Created first, so that an error about the folder comes before any output.
    let create = |path| {
        RunDir::create(&RunLocation {
            explicit: Some(path),
            dir: path,
            name: "",
            started: "",
            force: false,
        })
    };
    let folder = args.output.as_deref().map(create).transpose()?;
    let text = match args.format {
        Format::Table => table(comparison, terminal.out_width(), terminal.out_color),
        Format::Md => markdown(comparison, &[]),
        Format::Json => json(comparison)?,
        Format::Csv => separated(comparison, b','),
        Format::Tsv => separated(comparison, b'\t'),
    };
    match args.format {
        Format::Table => terminal.print(&text),
        _ => terminal.print_raw(&text),
    }
    if matches!(args.format, Format::Table | Format::Csv | Format::Tsv) {
        let notes = notes(comparison);
        let (shown, more) = notes.split_at(notes.len().min(MAX_NOTES));
        for note in shown {
            terminal.status(&format!("note: {note}"));
        }
        if !more.is_empty() {
            let more = more.len();
            terminal.status(&format!("note: and {more} more; `--format md` has all"));
        }
    }
    let Some(folder) = folder else { return Ok(()) };
    let charts = comparison_charts(comparison)?;
    for name in COMPARISON_CHARTS {
        folder.remove(&format!("charts/{name}.png"))?;
    }
    for chart in &charts {
        folder.write(&format!("charts/{}.png", chart.name), &chart.png)?;
    }
    folder.write("compare.json", json(comparison)?.as_bytes())?;
    folder.write("compare.md", markdown(comparison, &charts).as_bytes())?;
    folder.write("compare.html", html(comparison, &charts)?.as_bytes())?;
    terminal.status(&format!(
        "comparison: {}",
        folder.file("compare.html").display()
    ));
    Ok(())
}

pub fn parse_measures(text: &str) -> Result<Measures, String> {
    if text == "default" {
        return Ok(Measures(default_measures()));
    }
    let (name, stat) = text
        .split_once('.')
        .map_or((text, None), |(name, stat)| (name, Some(stat)));
    let metric = Metric::parse(name).ok_or_else(|| {
        format!("`{name}` is not a metric; examples: ttft.p99, e2e.mean, output_tps")
    })?;
    let stat = match stat {
        Some(stat) => Some(Stat::parse(stat).ok_or_else(|| {
            format!("`{stat}` is not a statistic; use a percentile such as p50 or p99.9, or mean")
        })?),
        None => None,
    };
    if stat.is_none() && metric.per() != Scope::Case {
        return Err(format!(
            "`{name}` needs a statistic, such as {name}.p95 or {name}.mean"
        ));
    }
    let measure = Measure { metric, stat };
    match is_comparable(measure) {
        true => Ok(Measures(vec![measure])),
        false => Err(format!(
            "`{text}` cannot be tested for significance; use a percentile, a mean, a throughput \
            or a share of requests such as error_rate"
        )),
    }
}

pub fn parse_percent(text: &str) -> Result<f64, String> {
    let value: Option<f64> = text
        .trim_end_matches('%')
        .trim()
        .parse()
        .ok()
        .filter(|value: &f64| *value >= 0.0 && value.is_finite());
    value
        .map(|value| value / 100.0)
        .ok_or_else(|| "expected a percentage of 0 or more, such as 5".to_owned())
}

pub fn parse_confidence(text: &str) -> Result<f64, String> {
    let value = text
        .parse()
        .ok()
        .filter(|value: &f64| *value > 0.5 && *value < 1.0);
    value.ok_or_else(|| "expected a level between 0.5 and 1, such as 0.95".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_measure_is_a_metric_with_the_statistic_it_needs() {
        let one = |metric, stat| Ok(Measures(vec![Measure { metric, stat }]));
        assert_eq!(
            parse_measures("ttft.p99.9"),
            one(Metric::Ttft, Some(Stat::Quantile(0.999)))
        );
        assert_eq!(
            (parse_measures("output_tps"), parse_measures("default")),
            (
                one(Metric::OutputTps, None),
                Ok(Measures(default_measures()))
            )
        );
        for (wrong, message) in [
            ("ttft", "needs a statistic, such as ttft.p95"),
            ("tfft.p9", "`tfft` is not a metric"),
            ("ttft.median", "`median` is not a statistic"),
            ("ttft.max", "cannot be tested"),
            ("window", "cannot be tested"),
        ] {
            assert!(
                parse_measures(wrong).unwrap_err().contains(message),
                "{wrong}: {:?}",
                parse_measures(wrong)
            );
        }
    }

    #[test]
    fn measures_are_unique_and_in_metric_order() {
        let args: Vec<Measures> = ["e2e.p95", "ttft.p50", "default"]
            .iter()
            .map(|text| parse_measures(text).unwrap())
            .collect();
        let names: Vec<String> = select_measures(&args)
            .iter()
            .map(Measure::to_string)
            .collect();
        assert_eq!(
            (names.len(), names[0].as_str()),
            (default_measures().len(), "ttft.p50")
        );
        assert_eq!(select_measures(&[]).len(), default_measures().len());
    }

    #[test]
    fn percentages_and_levels_are_checked() {
        assert_eq!(
            (parse_percent("5"), parse_percent("2.5%")),
            (Ok(0.05), Ok(0.025))
        );
        assert!(
            parse_percent("-1").is_err()
                && parse_percent("x").is_err()
                && parse_confidence("95").is_err()
                && parse_confidence("0.99") == Ok(0.99)
        );
    }
}
