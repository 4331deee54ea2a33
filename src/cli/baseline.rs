//! `llmscen baseline`: baseline files for regression objectives.

use crate::cli::exit::Exit;
use crate::cli::load_scenarios::{Hub, load_one, load_stored, note_unchecked, open_run};
use crate::cli::output::plural;
use crate::cli::terminal::Terminal;
use crate::run::outputs::baseline::baseline_of_run;
use crate::store::replace;
use clap::{Args, Subcommand, ValueEnum};
use llmscen_analysis::judge::baseline_noise;
use llmscen_core::baseline::{Baseline, BaselineCase, MIN_RUNS_FOR_SPREAD};
use llmscen_core::bounds;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};

#[derive(Debug, Args)]
pub struct BaselineArgs {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Add runs to the baseline file, for `ttft.p95 <= 1.10 * baseline` in later runs; the newest 20 runs are kept
    Update(UpdateArgs),
    /// Show the contents of a baseline file
    Show {
        /// Baseline file
        file: PathBuf,
    },
    /// Show the run-to-run variance of a baseline: detectable change, and runs needed to detect 5 %
    Doctor(DoctorArgs),
}

#[derive(Debug, Args)]
struct UpdateArgs {
    /// Run folders, such as those of ten nights
    #[arg(value_name = "RUN_DIR", required = true)]
    folders: Vec<PathBuf>,
    /// File to write [default: `baseline:` of the run's scenario]
    #[arg(long, value_name = "FILE")]
    to: Option<PathBuf>,
    /// Replace all runs in the file with these runs
    #[arg(long)]
    replace: bool,
    /// Save the run even if it is interrupted, invalid or failed
    #[arg(long)]
    force: bool,
}

#[derive(Debug, Args)]
struct DoctorArgs {
    /// Baseline file, or a scenario whose `baseline:` names it
    #[arg(value_name = "BASELINE")]
    file: PathBuf,
    /// Output format
    #[arg(long, value_enum, default_value = "table", value_name = "FORMAT")]
    format: Format,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// A table
    Table,
    /// JSON
    Json,
}

/// Runs needed to estimate their variance.
const MIN_RUNS: usize = 3;

/// Why a command failed.
enum Failure {
    Message(String),
    /// The error is already printed.
    Printed,
}

impl<T: Into<String>> From<T> for Failure {
    fn from(message: T) -> Failure {
        Failure::Message(message.into())
    }
}

pub fn baseline(
    args: &BaselineArgs,
    env: &BTreeMap<String, String>,
    terminal: &mut Terminal,
) -> Exit {
    let result = match &args.command {
        Command::Update(args) => update(args, env, terminal).map(|()| Exit::Pass),
        Command::Show { file } => show(file, terminal).map(|()| Exit::Pass),
        Command::Doctor(args) => doctor(args, env, terminal),
    };
    result.unwrap_or_else(|failure| {
        if let Failure::Message(why) = failure {
            terminal.error(&why);
        }
        Exit::Scenario
    })
}

/// Adds all runs, or none of them if one is refused.
fn update(
    args: &UpdateArgs,
    env: &BTreeMap<String, String>,
    terminal: &mut Terminal,
) -> Result<(), Failure> {
    let mut runs = Vec::new();
    let mut named = args.to.clone();
    for path in &args.folders {
        let run = read_run(path, args.force, env, terminal)?;
        named = named.or(run.baseline_path);
        runs.push(run.baseline);
    }
    let to = named.ok_or("the run's scenario has no `baseline:`; pass --to FILE")?;
    if to.is_dir() {
        return Err(format!("{} is a folder; pass --to FILE", to.display()).into());
    }
    let mut before = match to.exists() && !args.replace {
        true => Some(read(&to).map_err(|why| {
            format!("{why}; pass another file with --to FILE, or replace this one with --replace")
        })?),
        false => None,
    };
    let added: Vec<String> = runs
        .iter()
        .filter_map(|run| Some(run.newest()?.run_id.clone()))
        .collect();
    for run in runs {
        before = Some(add_run(before, run, &to, terminal)?);
    }
    let baseline = before.unwrap_or_default();
    let text = llmscen_report::baseline(&baseline).map_err(|error| error.to_string())?;
    replace(&to, |out| out.write_all(text.as_bytes()))
        .map_err(|error| format!("cannot write {}: {error}", to.display()))?;
    let values = plural(
        baseline.cases.iter().map(|case| case.metrics.len()).sum(),
        "value",
    );
    let cases = plural(baseline.cases.len(), "case");
    let added = match added.as_slice() {
        [id] => format!("run {id}"),
        ids => plural(ids.len(), "run"),
    };
    terminal.status(&format!(
        "wrote {}: {cases}, {values} of {added}; {}",
        to.display(),
        describe_runs(&baseline)
    ));
    Ok(())
}

/// A run as a baseline of its own.
struct RunBaseline {
    baseline: Baseline,
    /// The file that its scenario names.
    baseline_path: Option<PathBuf>,
}

fn read_run(
    path: &Path,
    force: bool,
    env: &BTreeMap<String, String>,
    terminal: &mut Terminal,
) -> Result<RunBaseline, Failure> {
    let folder = open_run(path, terminal).ok_or(Failure::Printed)?;
    note_unchecked(&folder, terminal);
    let mut plan = load_stored(&folder.file("plan.yaml"), env, terminal).ok_or(Failure::Printed)?;
    let baseline_path = plan
        .baseline
        .as_ref()
        .map(|baseline| PathBuf::from(&baseline.path));
    let (baseline, objection) =
        baseline_of_run(&mut plan, &folder).map_err(|error| error.to_string())?;
    match objection {
        Some(why) if !force => {
            return Err(format!(
                "{}: {why}; refusing to save it as a baseline (pass --force to override)",
                path.display()
            )
            .into());
        }
        Some(why) => terminal.warn(&why),
        None => {}
    }
    Ok(RunBaseline {
        baseline,
        baseline_path,
    })
}

fn add_run(
    before: Option<Baseline>,
    run: Baseline,
    to: &Path,
    terminal: &mut Terminal,
) -> Result<Baseline, Failure> {
    let Some(before) = before else {
        return Ok(run);
    };
    if let Some(what) = before.describe_plan_differences(&run.plan) {
        return Err(format!(
            "{} contains runs of a different plan ({what}); replace them with --replace",
            to.display()
        )
        .into());
    }
    let is_removed = |old: &&BaselineCase| run.cases.iter().all(|case| case.labels != old.labels);
    for removed in before.cases.iter().filter(is_removed) {
        terminal.warn(&format!(
            "removed case `{}`: it is in the old baseline but not in this run",
            removed.id
        ));
    }
    Ok(before.with(run))
}

/// The number of runs in a baseline, and how objectives use them.
fn describe_runs(baseline: &Baseline) -> String {
    let runs = plural(baseline.runs.len(), "run");
    match baseline.runs.len() >= MIN_RUNS_FOR_SPREAD {
        true => format!("{runs} in the file, objectives use their variance"),
        false => format!(
            "{runs} in the file, objectives use the newest until there are {MIN_RUNS_FOR_SPREAD}"
        ),
    }
}

fn read(path: &Path) -> Result<Baseline, String> {
    let text = bounds::read_text(path, bounds::TEXT)
        .map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    let baseline: Baseline = serde_json::from_str(&text)
        .map_err(|error| format!("{} is not a baseline: {error}", path.display()))?;
    match baseline.find_inconsistency() {
        Some(why) => Err(format!("{} is not a baseline: {why}", path.display())),
        None => Ok(baseline),
    }
}

fn show(file: &Path, terminal: &mut Terminal) -> Result<(), Failure> {
    let baseline = read(file)?;
    let run = baseline.newest().cloned().unwrap_or_default();
    terminal.print(&format!(
        "{}: run {} of {} on {}, llmscen {}\n",
        baseline.name, run.run_id, run.started_at, run.machine, run.tool_version
    ));
    terminal.print(&format!("{}\n\n", describe_runs(&baseline)));
    terminal.print(&llmscen_report::baseline_table(
        &baseline,
        terminal.out_width(),
        terminal.out_color,
    ));
    Ok(())
}

fn doctor(
    args: &DoctorArgs,
    env: &BTreeMap<String, String>,
    terminal: &mut Terminal,
) -> Result<Exit, Failure> {
    let is_scenario = args
        .file
        .extension()
        .is_some_and(|end| end == "yaml" || end == "yml");
    let file = match is_scenario {
        true => {
            let plan =
                load_one(&args.file, &[], env, Hub::Skip, terminal).ok_or(Failure::Printed)?;
            let named = plan.baseline.map(|baseline| PathBuf::from(baseline.path));
            named.ok_or_else(|| {
                format!(
                    "{} has no `baseline:`; add `baseline: FILE`",
                    args.file.display()
                )
            })?
        }
        false => args.file.clone(),
    };
    let baseline = read(&file)?;
    let variances = baseline_noise(&baseline);
    let runs = baseline.runs.len();
    match args.format {
        Format::Json => terminal.print_raw(
            &llmscen_report::noise_json(&baseline, &variances)
                .map_err(|error| error.to_string())?,
        ),
        Format::Table if runs >= MIN_RUNS => {
            terminal.print(&format!(
                "{}: {runs} runs in {}\n\n",
                baseline.name,
                file.display()
            ));
            terminal.print(&llmscen_report::noise_table(
                &variances,
                terminal.out_width(),
                terminal.out_color,
            ));
            terminal.status(llmscen_report::NOISE_KEY);
        }
        Format::Table => {}
    }
    if runs >= MIN_RUNS {
        return Ok(Exit::Pass);
    }
    let file = file.display();
    terminal.status(&format!(
        "{file} has {}; their variance needs at least {MIN_RUNS}: add {} with `llmscen baseline \
        update RUN_DIR --to {file}`",
        plural(runs, "run"),
        plural(MIN_RUNS - runs, "more run"),
    ));
    Ok(Exit::Inconclusive)
}
