//! `llmscen compare`: runs side by side, case by case.

use crate::cli::args::Inconclusive;
use crate::cli::exit::Exit;
use crate::cli::sources::{load_compared, note_unchecked};
use crate::cli::terminal::Terminal;
use crate::judge::compare::{Side, alone, comparable, contrasts, settle, usual};
use crate::model::compare::{Comparison, Correction, Difference, Finding, Measure, Run};
use crate::model::metric::{Metric, Per, Stat};
use crate::model::plan::Plan;
use crate::run::compare::{Wanted, take};
use crate::run::error::RunError;
use crate::run::recover::damage;
use crate::scenario::differ::differences;
use crate::store::{RunDir, Where};
use crate::view::chart::{COMPARISON_CHARTS, comparison_charts};
use crate::view::compare::{differs, html, json, markdown, notes, separated, table};
use clap::{Args, ValueEnum};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Arguments of `compare`.
#[derive(Debug, Args)]
pub struct CompareArgs {
    /// Run folders; the first one is the base
    #[arg(required = true, num_args = 2..=8, value_name = "RUN_DIR")]
    pub folders: Vec<PathBuf>,
    /// Compare these instead of the usual ones: ttft.p99, e2e.mean, output_tps; `default` stands for the usual ones
    #[arg(long = "metric", value_name = "METRIC[.STAT]", value_parser = measures)]
    pub metrics: Vec<Measures>,
    /// Worsening that is allowed, in percent of the base
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

/// The folders with their plans; None: something is wrong with one, and it has been said.
fn opened(args: &CompareArgs, env: &BTreeMap<String, String>, terminal: &mut Terminal) -> Option<Vec<(RunDir, Plan)>> {
    let mut runs = Vec::new();
    for path in &args.folders {
        match RunDir::open(path) {
            Ok(folder) => {
                note_unchecked(&folder, terminal);
                let plan = load_compared(&folder.path().join("plan.yaml"), env, terminal)?;
                runs.push((folder, plan));
            }
            Err(error) => {
                terminal.error(&error.to_string());
                return None;
            }
        }
    }
    Some(runs)
}

fn label(index: usize) -> String {
    char::from(b'A' + u8::try_from(index).unwrap_or(25).min(25)).to_string()
}

/// How each plan differs from the first; None: they ask different things, and that was not allowed.
fn alike(runs: &[(RunDir, Plan)], args: &CompareArgs, terminal: &mut Terminal) -> Option<Vec<Vec<Difference>>> {
    let ((folder, base), others) = runs.split_first()?;
    let mut all = Vec::new();
    let mut good = true;
    for (index, (other, plan)) in others.iter().enumerate() {
        let found = match differences(&base.resolved, &plan.resolved) {
            Ok(found) => found,
            Err(why) => {
                terminal.error(&format!("{}: plan.yaml cannot be compared: {why}", other.path().display()));
                return None;
            }
        };
        let told: Vec<String> = found.iter().filter(|own| !own.harmless).map(|own| format!("  {}", differs(own))).collect();
        if !told.is_empty() && !args.allow_different {
            let (a, b) = (folder.path().display(), other.path().display());
            terminal.error(&format!("A ({a}) and {} ({b}) were asked different things:\n{}", label(index + 1), told.join("\n")));
            good = false;
        }
        all.push(found);
    }
    if !good {
        terminal.complain("compare them all the same with --allow-different, or run both from one scenario");
    }
    good.then_some(all)
}

fn compared(runs: &mut [(RunDir, Plan)], differences: Vec<Vec<Difference>>, args: &CompareArgs) -> Result<Comparison, RunError> {
    let measures = wanted(&args.metrics);
    let level = (1.0 + args.confidence) / 2.0;
    let (mut taken, mut sides): (Vec<Run>, Vec<Vec<Side>>) = (Vec::new(), Vec::new());
    for (index, (folder, plan)) in runs.iter_mut().enumerate() {
        let (run, side) = take(plan, folder, label(index), Wanted { measures: &measures, level })?;
        taken.push(run);
        sides.push(side);
    }
    let correction = match args.correction {
        Adjusted::Holm => Correction::Holm,
        Adjusted::Bh => Correction::Bh,
        Adjusted::None => Correction::None,
    };
    let mut contrasts = contrasts(&sides, &measures, level);
    let tests = settle(&mut contrasts, correction, 1.0 - args.confidence, args.max_regression);
    let damaged = taken.iter().flat_map(|run| damage(&run.report.manifest).map(move |note| format!("{}: {note}", run.label)));
    let notes = damaged.collect();
    Ok(Comparison {
        alone: alone(&sides).into_iter().map(|(run, case)| (label(run), case)).collect(),
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
    let all: Vec<Measure> = if asked.is_empty() { usual() } else { asked.iter().flat_map(|own| own.0.iter().copied()).collect() };
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
    let place = |path| RunDir::create(&Where { explicit: Some(path), dir: path, name: "", started: "", force: false });
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
        return Ok(Measures(usual()));
    }
    let (name, stat) = text.split_once('.').map_or((text, None), |(name, stat)| (name, Some(stat)));
    let metric = Metric::parse(name).ok_or_else(|| format!("`{name}` is no metric; such as ttft.p99, e2e.mean, output_tps"))?;
    let stat = match stat {
        Some(stat) => Some(Stat::parse(stat).ok_or_else(|| format!("`{stat}` is no statistic; p50, p99.9 or mean"))?),
        None => None,
    };
    if stat.is_none() && metric.per() != Per::Case {
        return Err(format!("`{name}` has a distribution; name a statistic of it, such as {name}.p95 or {name}.mean"));
    }
    let measure = Measure { metric, stat };
    match comparable(measure) {
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
        assert_eq!((measures("output_tps"), measures("default")), (one(Metric::OutputTps, None), Ok(Measures(usual()))));
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
        assert_eq!((names.len(), names[0].as_str()), (usual().len(), "ttft.p50"));
        assert_eq!(wanted(&[]).len(), usual().len());
    }

    #[test]
    fn percentages_and_levels_are_checked() {
        assert_eq!((percent("5"), percent("2.5%")), (Ok(0.05), Ok(0.025)));
        assert!(percent("-1").is_err() && percent("x").is_err() && confidence("95").is_err() && confidence("0.99") == Ok(0.99));
    }
}
