//! `llmscen baseline`: the file that later runs are held against.

use crate::bounds;
use crate::cli::exit::Exit;
use crate::cli::sources::{load_stored, note_unchecked};
use crate::cli::terminal::Terminal;
use crate::model::baseline::Baseline;
use crate::run::figures::of_run;
use crate::store::{RunDir, replace};
use crate::view;
use clap::{Args, Subcommand};
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
    /// Write the figures of a run into the baseline file, for `ttft.p95 <= 1.10 * baseline` in later runs
    Update(UpdateArgs),
    /// Show what a baseline file says
    Show {
        /// The file
        file: PathBuf,
    },
}

#[derive(Debug, Args)]
struct UpdateArgs {
    /// The run folder
    #[arg(value_name = "RUN_DIR")]
    folder: PathBuf,
    /// The file to write; without it, the one that `baseline:` of the run's scenario names
    #[arg(long, value_name = "FILE")]
    to: Option<PathBuf>,
    /// Take a run that is interrupted, not sound or not carried out all the same
    #[arg(long)]
    force: bool,
}

pub fn baseline(args: &BaselineArgs, env: &BTreeMap<String, String>, terminal: &mut Terminal) -> Exit {
    let done = match &args.command {
        Command::Update(args) => update(args, env, terminal),
        Command::Show { file } => show(file, terminal),
    };
    match done {
        Ok(()) => Exit::Pass,
        Err(why) => {
            if !why.is_empty() {
                terminal.error(&why);
            }
            Exit::Scenario
        }
    }
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
    let (baseline, objection) = of_run(&mut plan, &folder).map_err(|error| error.to_string())?;
    match objection {
        Some(why) if !args.force => return Err(format!("{why}; such a run is no baseline (--force takes it all the same)")),
        Some(why) => terminal.warn(&why),
        None => {}
    }
    let before = if to.exists() { Some(read(&to).map_err(|why| format!("{why}; name a file with --to FILE"))?) } else { None };
    let text = view::baseline(&baseline).map_err(|error| error.to_string())?;
    replace(&to, |out| out.write_all(text.as_bytes())).map_err(|error| format!("cannot write {}: {error}", to.display()))?;
    for gone in before.iter().flat_map(|before| &before.cases).filter(|old| baseline.cases.iter().all(|own| own.id != old.id)) {
        terminal.warn(&format!("case `{}` was in the file and is not in this run: it is gone", gone.id));
    }
    let figures: usize = baseline.cases.iter().map(|case| case.metrics.len()).sum();
    let cases = if baseline.cases.len() == 1 { "1 case".to_owned() } else { format!("{} cases", baseline.cases.len()) };
    terminal.say(&format!("wrote {}: {cases}, {figures} figures of run {}", to.display(), baseline.run_id));
    Ok(())
}

fn read(path: &Path) -> Result<Baseline, String> {
    let text = bounds::read_text(path, bounds::TEXT).map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    serde_json::from_str(&text).map_err(|error| format!("{} is not a baseline: {error}", path.display()))
}

fn show(file: &Path, terminal: &mut Terminal) -> Result<(), String> {
    let baseline = read(file)?;
    let (run, at, machine) = (&baseline.run_id, &baseline.started_at, &baseline.machine);
    terminal.data(&format!("{}: run {run} of {at} on {machine}, llmscen {}\n\n", baseline.name, baseline.tool_version));
    terminal.data(&view::baseline_table(&baseline, terminal.out_width(), terminal.out_color));
    Ok(())
}
