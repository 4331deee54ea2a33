//! `llmscen import`: another tool's command line as a scenario.

use crate::cli::exit::Exit;
use crate::cli::terminal::Terminal;
use clap::{Args, ValueEnum};
use llmscen_scenario::Input;
use llmscen_scenario::import::{Imported, Tool, import as translate};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Which command line, and where its scenario goes.
#[derive(Debug, Args)]
pub struct ImportArgs {
    /// Whose command line it is
    #[arg(value_enum)]
    pub tool: Known,
    /// The file to write, instead of stdout
    #[arg(long, value_name = "FILE")]
    pub to: Option<PathBuf>,
    /// The command line, after `--`
    #[arg(last = true, required = true, value_name = "COMMAND LINE")]
    pub line: Vec<String>,
}

/// A tool whose command lines are understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Known {
    /// evalscope perf
    Evalscope,
    /// vllm bench serve
    Vllm,
    /// aiperf profile
    Aiperf,
    /// guidellm run, or guidellm benchmark
    Guidellm,
    /// python -m sglang.bench_serving
    Sglang,
    /// profile_generation.py, profile_throughput.py or profile_restful_api.py
    Lmdeploy,
}

impl Known {
    fn tool(self) -> Tool {
        match self {
            Known::Evalscope => Tool::Evalscope,
            Known::Vllm => Tool::Vllm,
            Known::Aiperf => Tool::Aiperf,
            Known::Guidellm => Tool::Guidellm,
            Known::Sglang => Tool::Sglang,
            Known::Lmdeploy => Tool::Lmdeploy,
        }
    }
}

/// Writes the scenario, and says what became of the flags. A scenario that needs a hand is written all the same.
pub fn import(args: &ImportArgs, terminal: &mut Terminal) -> Exit {
    let imported = match translate(args.tool.tool(), &args.line) {
        Ok(imported) => imported,
        Err(error) => {
            terminal.error(&error.to_string());
            return Exit::Scenario;
        }
    };
    if let Err(why) = write(args.to.as_deref(), &imported, terminal) {
        terminal.error(&why);
        return Exit::Scenario;
    }
    terminal.say(&summary(&imported));
    let path = args.to.as_deref().unwrap_or(Path::new("scenario.yaml"));
    // Keys that are not set here, and files that lie elsewhere, are no mistakes of the command line.
    let input = Input { path, text: Some(imported.yaml), env: &BTreeMap::new(), set: &[] };
    match llmscen_scenario::reload(&input) {
        Ok(loaded) => {
            loaded.warnings.iter().for_each(|warning| terminal.remark(warning));
            Exit::Pass
        }
        Err(faults) => {
            terminal.complain(&faults.render(terminal.err_color, terminal.width));
            Exit::Scenario
        }
    }
}

fn write(to: Option<&Path>, imported: &Imported, terminal: &mut Terminal) -> Result<(), String> {
    let Some(path) = to else {
        terminal.foreign(&imported.yaml);
        return Ok(());
    };
    if path.exists() {
        return Err(format!("{} exists already", path.display()));
    }
    std::fs::write(path, &imported.yaml).map_err(|error| format!("cannot write {}: {error}", path.display()))
}

fn summary(imported: &Imported) -> String {
    let all = imported.accounts.len();
    let left: Vec<&str> =
        imported.accounts.iter().filter(|account| account.keys.is_empty()).map(|account| account.flag.as_str()).collect();
    match left.len() {
        0 => format!("{all} flags, all carried over"),
        _ => format!("{} of {all} flags carried over; the head of the file says why not: {}", all - left.len(), left.join(", ")),
    }
}
