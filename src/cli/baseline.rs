//! `llmscen baseline`: the file that later runs are compared with.

use crate::cli::exit::Exit;
use crate::cli::load_scenarios::{load_one, load_stored, note_unchecked};
use crate::cli::terminal::Terminal;
use crate::run::outputs::baseline::baseline_of_run;
use crate::store::{RunDir, replace};
use clap::{Args, Subcommand, ValueEnum};
use llmscen_analysis::judge::baseline_noise;
use llmscen_core::baseline::{Baseline, SPREAD};
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
    /// Add a run to the baseline file, for `ttft.p95 <= 1.10 * baseline` in later runs; the newest 20 runs are kept
    Update(UpdateArgs),
    /// Show what a baseline file says
    Show {
        /// The file
        file: PathBuf,
    },
    /// Show how the runs of a baseline vary: the least change that can be seen, and how many runs show 5 %
    Doctor(DoctorArgs),
}

#[derive(Debug, Args)]
struct UpdateArgs {
    /// The run folder
    #[arg(value_name = "RUN_DIR")]
    folder: PathBuf,
    /// The file to write; without it, the one that `baseline:` of the run's scenario names
    #[arg(long, value_name = "FILE")]
    to: Option<PathBuf>,
    /// Start anew with this run: the runs in the file are dropped
    #[arg(long)]
    replace: bool,
    /// Take a run that is interrupted, not sound or not carried out all the same
    #[arg(long)]
    force: bool,
}

#[derive(Debug, Args)]
struct DoctorArgs {
    /// The baseline file, or a scenario whose `baseline:` names it
    #[arg(value_name = "BASELINE")]
    file: PathBuf,
    /// What goes to stdout
    #[arg(long, value_enum, default_value = "table", value_name = "FORMAT")]
    format: Form,
}

/// Forms of what a doctor says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Form {
    /// A table
    Table,
    /// JSON
    Json,
}

/// Runs from which on their spread is known at all.
const FEW: usize = 3;

pub fn baseline(args: &BaselineArgs, env: &BTreeMap<String, String>, terminal: &mut Terminal) -> Exit {
    let done = match &args.command {
        Command::Update(args) => update(args, env, terminal).map(|()| Exit::Pass),
        Command::Show { file } => show(file, terminal).map(|()| Exit::Pass),
        Command::Doctor(args) => doctor(args, env, terminal),
    };
    done.unwrap_or_else(|why| {
        if !why.is_empty() {
            terminal.error(&why);
        }
        Exit::Scenario
    })
}

fn update(args: &UpdateArgs, env: &BTreeMap<String, String>, terminal: &mut Terminal) -> Result<(), String> {
    let folder = RunDir::open(&args.folder).map_err(|error| error.to_string())?;
    note_unchecked(&folder, terminal);
    // What is wrong with the stored plan has been said then.
    let mut plan = load_stored(&folder.file("plan.yaml"), env, terminal).ok_or_else(String::new)?;
    let named = plan.baseline.as_ref().map(|baseline| PathBuf::from(&baseline.path));
    let to = args.to.clone().or(named).ok_or("the run's scenario names no baseline file: name one with --to FILE")?;
    if to.is_dir() {
        return Err(format!("{} is a folder: name a file with --to FILE", to.display()));
    }
    let (run, objection) = baseline_of_run(&mut plan, &folder).map_err(|error| error.to_string())?;
    match objection {
        Some(why) if !args.force => return Err(format!("{why}; such a run is no baseline (--force takes it all the same)")),
        Some(why) => terminal.warn(&why),
        None => {}
    }
    let id = run.newest().map(|run| run.run_id.clone()).unwrap_or_default();
    let before = match to.exists() && !args.replace {
        true => Some(read(&to).map_err(|why| format!("{why}; name a file with --to FILE, or start anew with --replace"))?),
        false => None,
    };
    if let Some(what) = before.as_ref().and_then(|before| before.other_plan(&run.plan)) {
        let why = "runs of different plans are not comparable";
        return Err(format!("{} was made from another plan: {what}; {why}: start anew with --replace", to.display()));
    }
    let gone = before.iter().flat_map(|before| &before.cases).filter(|old| run.cases.iter().all(|own| own.labels != old.labels));
    for gone in gone {
        terminal.warn(&format!("case `{}` was in the file and is not in this run: it is gone", gone.id));
    }
    let baseline = before.as_ref().map_or(run.clone(), |before| before.with(run));
    let text = llmscen_report::baseline(&baseline).map_err(|error| error.to_string())?;
    replace(&to, |out| out.write_all(text.as_bytes())).map_err(|error| format!("cannot write {}: {error}", to.display()))?;
    let figures: usize = baseline.cases.iter().map(|case| case.metrics.len()).sum();
    let cases = if baseline.cases.len() == 1 { "1 case".to_owned() } else { format!("{} cases", baseline.cases.len()) };
    terminal.say(&format!("wrote {}: {cases}, {figures} figures of run {id}; {}", to.display(), held(&baseline)));
    Ok(())
}

/// How many runs a baseline has, and what they decide.
fn held(baseline: &Baseline) -> String {
    let runs = baseline.runs.len();
    let count = if runs == 1 { "1 run".to_owned() } else { format!("{runs} runs") };
    match runs >= SPREAD {
        true => format!("{count} in the file, objectives are decided by how they vary"),
        false => format!("{count} in the file, objectives are decided by the newest until there are {SPREAD}"),
    }
}

fn read(path: &Path) -> Result<Baseline, String> {
    let text = bounds::read_text(path, bounds::TEXT).map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    let baseline: Baseline =
        serde_json::from_str(&text).map_err(|error| format!("{} is not a baseline: {error}", path.display()))?;
    match baseline.flaw() {
        Some(why) => Err(format!("{} is not a baseline: {why}", path.display())),
        None => Ok(baseline),
    }
}

fn show(file: &Path, terminal: &mut Terminal) -> Result<(), String> {
    let baseline = read(file)?;
    let run = baseline.newest().cloned().unwrap_or_default();
    let (id, at, machine) = (&run.run_id, &run.started_at, &run.machine);
    terminal.data(&format!("{}: run {id} of {at} on {machine}, llmscen {}\n", baseline.name, run.tool_version));
    terminal.data(&format!("{}\n\n", held(&baseline)));
    terminal.data(&llmscen_report::baseline_table(&baseline, terminal.out_width(), terminal.out_color));
    Ok(())
}

fn doctor(args: &DoctorArgs, env: &BTreeMap<String, String>, terminal: &mut Terminal) -> Result<Exit, String> {
    let scenario = args.file.extension().is_some_and(|end| end == "yaml" || end == "yml");
    let file = match scenario {
        true => {
            // What is wrong with the scenario has been said then.
            let plan = load_one(&args.file, &[], env, terminal).ok_or_else(String::new)?;
            let named = plan.baseline.map(|baseline| PathBuf::from(baseline.path));
            named.ok_or_else(|| format!("{} names no baseline file: add `baseline: FILE`", args.file.display()))?
        }
        false => args.file.clone(),
    };
    let baseline = read(&file)?;
    let all = baseline_noise(&baseline);
    let runs = baseline.runs.len();
    match args.format {
        Form::Json => terminal.foreign(&llmscen_report::noise_json(&baseline, &all).map_err(|error| error.to_string())?),
        Form::Table if runs >= FEW => {
            terminal.data(&format!("{}: {runs} runs in {}\n\n", baseline.name, file.display()));
            terminal.data(&llmscen_report::noise_table(&all, terminal.out_width(), terminal.out_color));
            terminal.say(llmscen_report::NOISE_KEY);
        }
        Form::Table => {}
    }
    if runs >= FEW {
        return Ok(Exit::Pass);
    }
    let (count, more) = (if runs == 1 { "1 run".to_owned() } else { format!("{runs} runs") }, FEW - runs);
    let more = if more == 1 { "1 more run".to_owned() } else { format!("{more} more runs") };
    terminal.say(&format!(
        "{} has {count}; how they vary takes at least {FEW}: add {more} with `llmscen baseline update RUN_DIR --to {}`",
        file.display(),
        file.display()
    ));
    Ok(Exit::Inconclusive)
}
