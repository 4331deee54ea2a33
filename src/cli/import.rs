//! `llmscen import`: converts the command line of another tool to a scenario.

use crate::cli::exit::Exit;
use crate::cli::terminal::Terminal;
use clap::{Args, ValueEnum};
use llmscen_scenario::Input;
use llmscen_scenario::import::{Imported, Tool, import as translate};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

#[derive(Debug, Args)]
pub struct ImportArgs {
    /// Tool of the command line
    #[arg(value_enum)]
    pub tool: ImportTool,
    /// File to write, instead of stdout
    #[arg(long, value_name = "FILE")]
    pub to: Option<PathBuf>,
    /// Command line, after `--`
    #[arg(last = true, required = true, value_name = "COMMAND LINE")]
    pub line: Vec<String>,
}

/// Supported tools.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ImportTool {
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

impl ImportTool {
    fn tool(self) -> Tool {
        match self {
            ImportTool::Evalscope => Tool::Evalscope,
            ImportTool::Vllm => Tool::Vllm,
            ImportTool::Aiperf => Tool::Aiperf,
            ImportTool::Guidellm => Tool::Guidellm,
            ImportTool::Sglang => Tool::Sglang,
            ImportTool::Lmdeploy => Tool::Lmdeploy,
        }
    }
}

/// Writes the scenario and reports the flags that were dropped. An incomplete scenario is written, too.
pub fn import(args: &ImportArgs, terminal: &mut Terminal) -> Exit {
    let imported = match translate(args.tool.tool(), &args.line) {
        Ok(imported) => imported,
        Err(error) => {
            terminal.error(&error.to_string());
            return Exit::Scenario;
        }
    };
    if let Err(why) = write_scenario(args.to.as_deref(), &imported, terminal) {
        terminal.error(&why);
        return Exit::Scenario;
    }
    terminal.status(&summary(&imported));
    let path = args.to.as_deref().unwrap_or(Path::new("scenario.yaml"));
    // `reload`: variables and files that are missing here are not errors of the command line.
    let input = Input {
        path,
        text: Some(imported.yaml),
        env: &BTreeMap::new(),
        set: &[],
    };
    match llmscen_scenario::reload(&input) {
        Ok(loaded) => {
            loaded
                .warnings
                .iter()
                .for_each(|warning| terminal.scenario_warning(warning));
            Exit::Pass
        }
        Err(faults) => {
            terminal.diagnostic(&faults.render(terminal.err_color, terminal.width));
            Exit::Scenario
        }
    }
}

fn write_scenario(
    to: Option<&Path>,
    imported: &Imported,
    terminal: &mut Terminal,
) -> Result<(), String> {
    let Some(path) = to else {
        terminal.print_raw(&imported.yaml);
        return Ok(());
    };
    if path.exists() {
        return Err(format!(
            "{} already exists; choose another file or delete it first",
            path.display()
        ));
    }
    std::fs::write(path, &imported.yaml)
        .map_err(|error| format!("cannot write {}: {error}", path.display()))
}

fn summary(imported: &Imported) -> String {
    let total = imported.accounts.len();
    let dropped = imported
        .accounts
        .iter()
        .filter(|account| account.keys.is_empty());
    let dropped: Vec<&str> = dropped.map(|account| account.flag.as_str()).collect();
    match dropped.len() {
        0 => format!("converted all {total} flags"),
        count => {
            format!(
                "converted {} of {total} flags; reasons are at the top of the file: {}",
                total - count,
                dropped.join(", ")
            )
        }
    }
}
