//! `llmscen compare`: runs side by side, case by case.

use crate::cli::args::Inconclusive;
use crate::cli::exit::Exit;
use crate::cli::load_scenarios::{load_compared, note_unchecked};
use crate::cli::terminal::Terminal;
use crate::run::compare::{ComparisonSpec, load_run};
use crate::run::error::RunError;
use crate::run::outputs::recover::damage_notes;
use crate::store::manifest::read;
use crate::store::{RunDir, RunLocation};
use clap::{Args, ValueEnum};
use llmscen_analysis::judge::compare::{
    Side, compare_sides, decide_findings, default_measures, is_comparable, unmatched_cases, withdraw_cached,
};
use llmscen_core::compare::{Comparison, Correction, Difference, Finding, Measure, Run};
use llmscen_core::metric::{Metric, Scope, Stat};
use llmscen_core::plan::Plan;
use llmscen_report::chart::{COMPARISON_CHARTS, comparison_charts};
use llmscen_report::compare::{differs, html, json, markdown, notes, separated, table};
use llmscen_scenario::diff::differences;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Arguments of `compare`.
#[derive(Debug, Args)]
pub struct CompareArgs {
    /// Run folders; the first one is the base
    #[arg(required_unless_present = "base", conflicts_with_all = ["base", "candidate"], num_args = 2..=8, value_name = "RUN_DIR")]
    pub folders: Vec<PathBuf>,
    /// Several runs of the base. Each run is one value, so that what differs from run to run is not called a change
    #[arg(long, requires = "candidate", num_args = 1..=20, value_name = "RUN_DIR")]
    pub base: Vec<PathBuf>,
    /// Several runs of the candidate
    #[arg(long, requires = "base", num_args = 1..=20, value_name = "RUN_DIR")]
    pub candidate: Vec<PathBuf>,
    /// Compare these instead of the usual ones: ttft.p99, e2e.mean, output_tps; `default` stands for the usual ones
    #[arg(long = "metric", value_name = "METRIC[.STAT]", value_parser = measures)]
    pub metrics: Vec<Measures>,
    /// Least difference that is called a change, in percent of the base
    #[arg(long, value_name = "PCT", default_value = "5", value_parser = percent)]
    pub max_regression: f64,
    /// How probabilities are adjusted for many comparisons
    #[arg(long, value_enum, default_value = "holm", value_name = "HOW")]
    pub correction: Adjusted,
    /// Confidence of the intervals, two-sided; a difference is more than noise below one minus it
    #[arg(long, value_name = "LEVEL", default_value = "0.95", value_parser = confidence)]
    pub confidence: f64,
    /// Compare runs that were asked different things
    #[arg(long)]
    pub allow_different: bool,
    /// What too little to compare exits with: a case that is missing, nothing that could be tested
    #[arg(long, value_enum, default_value = "fail", value_name = "HOW")]
    pub inconclusive: Inconclusive,
    /// What goes to stdout
    #[arg(long, value_enum, default_value = "table", value_name = "FORMAT")]
    pub format: Form,
    /// Write compare.html, compare.md, compare.json and charts/*.png into this folder
    #[arg(long, short, value_name = "DIR")]
    pub output: Option<PathBuf>,
}

/// The corrections by their names on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Adjusted {
    /// Holm's: the chance of even one false alarm
    Holm,
    /// Benjamini and Hochberg's: the share of false alarms among the alarms
    Bh,
    /// None
    None,
}

/// Forms of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Form {
    /// For the eye
    Table,
    /// Markdown
    Md,
    /// JSON
    Json,
    /// Comma-separated values
    Csv,
    /// Tab-separated values
    Tsv,
}

/// What one `--metric` stands for.
#[derive(Clone, Debug, PartialEq)]
pub struct Measures(Vec<Measure>);

pub fn compare(args: &CompareArgs, env: &BTreeMap<String, String>, terminal: &mut Terminal) -> Exit {
    let Some(mut runs) = opened(args, env, terminal) else { return Exit::Scenario };
    let Some(differences) = alike(&runs, args, terminal) else { return Exit::Scenario };
    let comparison = match compared(&mut runs, differences, args) {
        Ok(comparison) => comparison,
        Err(error) => {
            terminal.error(&error.to_string());
            return if error.is_of_stored_file() { Exit::Scenario } else { Exit::Error };
        }
    };
    if let Err(error) = shown(&comparison, args, terminal) {
        terminal.error(&error.to_string());
        return Exit::Error;
    }
    match () {
        () if comparison.invalid() => Exit::Invalid,
        () if comparison.count(Finding::Regression) > 0 => Exit::Fail,
        () if comparison.open() && args.inconclusive == Inconclusive::Fail => Exit::Inconclusive,
        () => Exit::Pass,
    }
}

/// A run folder with its plan, and what it is called.
struct Opened {
    folder: RunDir,
    plan: Plan,
    /// `A`; `A1`, `A2` where a side has several.
    label: String,
    side: usize,
}

/// The folders by side: each its own, unless there are several a side.
fn sides(args: &CompareArgs) -> Vec<&[PathBuf]> {
    if args.base.is_empty() { args.folders.chunks(1).collect() } else { vec![&args.base, &args.candidate] }
}

/// The runs with their plans; None: something is wrong with one, and it has been said.
fn opened(args: &CompareArgs, env: &BTreeMap<String, String>, terminal: &mut Terminal) -> Option<Vec<Opened>> {
    let mut runs: Vec<Opened> = Vec::new();
    for (side, folders) in sides(args).into_iter().enumerate() {
        for (number, path) in folders.iter().enumerate() {
            let label = if folders.len() == 1 { label(side) } else { format!("{}{}", label(side), number + 1) };
            match RunDir::open(path) {
                Ok(folder) => {
                    note_unchecked(&folder, terminal);
                    let plan = load_compared(&folder.path().join("plan.yaml"), env, terminal)?;
                    runs.push(Opened { folder, plan, label, side });
                }
                Err(error) => {
                    terminal.error(&error.to_string());
                    return None;
                }
            }
        }
    }
    if let Some((one, again)) = twice(&runs).filter(|_| !args.base.is_empty()) {
        let (a, b) = (one.folder.path().display(), again.folder.path().display());
        terminal.error(&format!("{} ({a}) and {} ({b}) are the same run: each run counts once", one.label, again.label));
        terminal.complain("help: name each run folder once, or make one more run of the same scenario");
        return None;
    }
    Some(runs)
}

/// The first two that are one run.
fn twice(runs: &[Opened]) -> Option<(&Opened, &Opened)> {
    let id = |own: &Opened| read(&own.folder).ok().map(|manifest| manifest.run_id).filter(|id| !id.is_empty());
    let place = |own: &Opened| own.folder.path().canonicalize().ok();
    let known: Vec<_> = runs.iter().map(|own| (place(own), id(own))).collect();
    let same = |(a, b): (usize, usize)| {
        let (one, other) = (known.get(a)?, known.get(b)?);
        let twin = one.0.is_some() && one.0 == other.0 || one.1.is_some() && one.1 == other.1;
        runs.get(a).zip(runs.get(b)).filter(|_| twin)
    };
    (0..runs.len()).flat_map(|b| (0..b).map(move |a| (a, b))).find_map(same)
}

fn label(index: usize) -> String {
    char::from(b'A' + u8::try_from(index).unwrap_or(25).min(25)).to_string()
}

/// How each plan differs from the first; None: they ask different things, and that was not allowed.
fn alike(runs: &[Opened], args: &CompareArgs, terminal: &mut Terminal) -> Option<Vec<Vec<Difference>>> {
    let (base, others) = runs.split_first()?;
    let mut all = Vec::new();
    let mut good = true;
    for other in others {
        let found = match differences(&base.plan.resolved, &other.plan.resolved) {
            Ok(found) => found,
            Err(why) => {
                terminal.error(&format!("{}: plan.yaml cannot be compared: {why}", other.folder.path().display()));
                return None;
            }
        };
        let told: Vec<String> = found.iter().filter(|own| !own.harmless).map(|own| format!("  {}", differs(own))).collect();
        if !told.is_empty() && !args.allow_different {
            let (a, b) = (base.folder.path().display(), other.folder.path().display());
            let (first, second, told) = (&base.label, &other.label, told.join("\n"));
            terminal.error(&format!("{first} ({a}) and {second} ({b}) were asked different things:\n{told}"));
            good = false;
        }
        all.push(found);
    }
    if !good {
        terminal.complain("compare them all the same with --allow-different, or run both from one scenario");
    }
    good.then_some(all)
}

fn compared(runs: &mut [Opened], differences: Vec<Vec<Difference>>, args: &CompareArgs) -> Result<Comparison, RunError> {
    let measures = wanted(&args.metrics);
    let level = (1.0 + args.confidence) / 2.0;
    let count = sides(args).len();
    let (mut taken, mut evidence): (Vec<Run>, Vec<Vec<Side>>) = (Vec::new(), vec![Vec::new(); count]);
    for own in runs.iter_mut() {
        let (run, sides) =
            load_run(&mut own.plan, &own.folder, own.label.clone(), own.side, ComparisonSpec { measures: &measures, level })?;
        taken.push(run);
        evidence.get_mut(own.side).into_iter().for_each(|side| side.extend(sides.iter().cloned()));
    }
    let correction = match args.correction {
        Adjusted::Holm => Correction::Holm,
        Adjusted::Bh => Correction::Bh,
        Adjusted::None => Correction::None,
    };
    let mut contrasts = compare_sides(&evidence, &measures, level);
    if !args.allow_different {
        withdraw_cached(&mut contrasts, &taken);
    }
    let tests = decide_findings(&mut contrasts, correction, 1.0 - args.confidence, args.max_regression);
    let damaged =
        taken.iter().flat_map(|run| damage_notes(&run.report.manifest).map(move |note| format!("{}: {note}", run.label)));
    let notes = damaged.collect();
    Ok(Comparison {
        alone: unmatched_cases(&evidence).into_iter().map(|(side, case)| (label(side), case)).collect(),
        sides: (0..count).map(label).collect(),
        runs: taken,
        contrasts,
        differences,
        notes,
        correction,
        tests,
        confidence: args.confidence,
        max_regression: args.max_regression,
    })
}

/// The measures in the order of the metrics, each once.
fn wanted(asked: &[Measures]) -> Vec<Measure> {
    let all: Vec<Measure> =
        if asked.is_empty() { default_measures() } else { asked.iter().flat_map(|own| own.0.iter().copied()).collect() };
    let mut unique: Vec<Measure> = Vec::new();
    all.into_iter().for_each(|own| {
        if !unique.contains(&own) {
            unique.push(own)
        }
    });
    unique.sort_by_key(|own| own.metric);
    unique
}

fn shown(comparison: &Comparison, args: &CompareArgs, terminal: &mut Terminal) -> Result<(), RunError> {
    // A folder that cannot be written is said before anything else is.
    let place = |path| RunDir::create(&RunLocation { explicit: Some(path), dir: path, name: "", started: "", force: false });
    let folder = args.output.as_deref().map(place).transpose()?;
    let text = match args.format {
        Form::Table => table(comparison, terminal.out_width(), terminal.out_color),
        Form::Md => markdown(comparison, &[]),
        Form::Json => json(comparison)?,
        Form::Csv => separated(comparison, b','),
        Form::Tsv => separated(comparison, b'\t'),
    };
    match args.format {
        Form::Table => terminal.data(&text),
        _ => terminal.foreign(&text),
    }
    if matches!(args.format, Form::Table | Form::Csv | Form::Tsv) {
        notes(comparison).iter().for_each(|note| terminal.say(&format!("note: {note}")));
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
    terminal.say(&format!("comparison: {}", folder.file("compare.html").display()));
    Ok(())
}

fn measures(text: &str) -> Result<Measures, String> {
    if text == "default" {
        return Ok(Measures(default_measures()));
    }
    let (name, stat) = text.split_once('.').map_or((text, None), |(name, stat)| (name, Some(stat)));
    let metric = Metric::parse(name).ok_or_else(|| format!("`{name}` is no metric; such as ttft.p99, e2e.mean, output_tps"))?;
    let stat = match stat {
        Some(stat) => Some(Stat::parse(stat).ok_or_else(|| format!("`{stat}` is no statistic; p50, p99.9 or mean"))?),
        None => None,
    };
    if stat.is_none() && metric.per() != Scope::Case {
        return Err(format!("`{name}` has a distribution; name a statistic of it, such as {name}.p95 or {name}.mean"));
    }
    let measure = Measure { metric, stat };
    match is_comparable(measure) {
        true => Ok(Measures(vec![measure])),
        false => Err(format!(
            "`{text}` has no interval that could tell a difference from noise; quantiles, means, throughputs and error_rate have"
        )),
    }
}

fn percent(text: &str) -> Result<f64, String> {
    let value: Option<f64> =
        text.trim_end_matches('%').trim().parse().ok().filter(|value: &f64| *value >= 0.0 && value.is_finite());
    value.map(|value| value / 100.0).ok_or_else(|| "expected a percentage of 0 or more, such as 5".to_owned())
}

fn confidence(text: &str) -> Result<f64, String> {
    let value = text.parse().ok().filter(|value: &f64| *value > 0.5 && *value < 1.0);
    value.ok_or_else(|| "expected a level between 0.5 and 1, such as 0.95".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_measure_is_a_metric_with_the_statistic_it_needs() {
        let one = |metric, stat| Ok(Measures(vec![Measure { metric, stat }]));
        assert_eq!(measures("ttft.p99.9"), one(Metric::Ttft, Some(Stat::Quantile(0.999))));
        assert_eq!(
            (measures("output_tps"), measures("default")),
            (one(Metric::OutputTps, None), Ok(Measures(default_measures())))
        );
        for (wrong, said) in [
            ("ttft", "name a statistic of it, such as ttft.p95"),
            ("tfft.p9", "`tfft` is no metric"),
            ("ttft.median", "`median` is no statistic"),
            ("ttft.max", "has no interval"),
            ("window", "has no interval"),
        ] {
            assert!(measures(wrong).unwrap_err().contains(said), "{wrong}: {:?}", measures(wrong));
        }
    }

    #[test]
    fn measures_come_once_and_by_metric() {
        let asked: Vec<Measures> = ["e2e.p95", "ttft.p50", "default"].iter().map(|text| measures(text).unwrap()).collect();
        let names: Vec<String> = wanted(&asked).iter().map(Measure::to_string).collect();
        assert_eq!((names.len(), names[0].as_str()), (default_measures().len(), "ttft.p50"));
        assert_eq!(wanted(&[]).len(), default_measures().len());
    }

    #[test]
    fn percentages_and_levels_are_checked() {
        assert_eq!((percent("5"), percent("2.5%")), (Ok(0.05), Ok(0.025)));
        assert!(percent("-1").is_err() && percent("x").is_err() && confidence("95").is_err() && confidence("0.99") == Ok(0.99));
    }
}
