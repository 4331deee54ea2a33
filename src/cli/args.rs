//! The arguments. Whatever a scenario can say is not repeated here: flags select and override.

use crate::cli::baseline::BaselineArgs;
use crate::cli::bodies::BodiesArgs;
use crate::cli::compare::CompareArgs;
use crate::cli::compat::Compat;
use crate::cli::follow::WatchArgs;
use crate::cli::import::ImportArgs;
use crate::cli::shown::ShowArgs;
use clap::{Args, Parser, Subcommand, ValueEnum};
use std::net::SocketAddr;
use std::path::PathBuf;

/// Declarative scenario runner for the performance of LLM inference.
#[derive(Debug, Parser)]
#[command(name = "llmscen", version, max_term_width = 100, after_help = EXIT_CODES)]
pub struct Cli {
    #[command(flatten)]
    pub look: Look,
    #[command(subcommand)]
    pub command: Command,
}

const EXIT_CODES: &str = "Exit codes: 0 pass, 1 an SLO failed, 2 the scenario or command line is wrong, 3 the run could not be \
carried out, 4 invalid measurement, 5 inconclusive, 130 interrupted.";

/// How much is said, and how.
#[derive(Debug, Args)]
pub struct Look {
    /// Say nothing but errors; results still go to stdout
    #[arg(long, short, global = true)]
    pub quiet: bool,
    /// No colours, even on a terminal (NO_COLOR does the same)
    #[arg(long, global = true)]
    pub no_color: bool,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run scenarios: send the traffic, measure, judge, report
    Run(RunArgs),
    /// Send one request of a scenario and show it with everything that came back
    Try(TryArgs),
    /// Check scenario files and report every mistake in them
    Validate(Sources),
    /// Show what would run: cases, counts, time, the first request, SLOs that can never be decided
    Plan(Sources),
    /// Report a finished or killed run again from its stored rows
    Report(ReportArgs),
    /// List the request and reply bodies that a run kept, or print those of one request
    Bodies(BodiesArgs),
    /// Make or show the file that later runs are compared with, and how its runs vary
    Baseline(BaselineArgs),
    /// Turn another tool's command line into a scenario: import vllm -- bench serve --model …
    Import(ImportArgs),
    /// Compare runs, case by case: what is more than noise, and what has got worse
    Compare(CompareArgs),
    /// Serve the built-in simulator on a port
    Simulate(SimulateArgs),
    /// Watch over a server that a run started
    #[command(hide = true)]
    Guard,
    /// Print the JSON Schema of the scenario file, for editors
    Schema {
        /// The schema of results.json instead
        #[arg(long)]
        results: bool,
        /// A reference page in Markdown instead, with an example for every field
        #[arg(long, conflicts_with = "results")]
        markdown: bool,
    },
    /// Write a small scenario to start from
    Init {
        /// The file to write
        #[arg(default_value = "scenario.yaml")]
        path: PathBuf,
    },
    /// Print a completion script
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
}

/// Which scenarios, and what is changed in them.
#[derive(Debug, Args)]
pub struct Sources {
    /// Scenario files, folders (all *.yaml and *.yml files, sorted by name), or `-` for standard input
    #[arg(required = true, value_name = "FILE|DIR")]
    pub paths: Vec<PathBuf>,
    /// Override a field: --set load.concurrency=4
    #[arg(long = "set", value_name = "PATH=VALUE", value_parser = pair)]
    pub set: Vec<(String, String)>,
    /// The seed, as --set seed=N; repeats a run of a scenario with `seed: run`
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(..=i64::MAX as u64))]
    pub seed: Option<u64>,
    /// Only the cases whose id holds this text; may be given more than once
    #[arg(long, value_name = "CASE")]
    pub only: Vec<String>,
}

#[derive(Debug, Args)]
pub struct TryArgs {
    #[command(flatten)]
    pub sources: Sources,
    /// The case with this id, instead of the first one
    #[arg(long, value_name = "ID")]
    pub case: Option<String>,
}

#[derive(Debug, Args)]
pub struct RunArgs {
    #[command(flatten)]
    pub sources: Sources,
    /// The run folder itself, instead of reports/NAME/TIME
    #[arg(long, short, value_name = "DIR")]
    pub output: Option<PathBuf>,
    /// Write into an output folder that holds another run
    #[arg(long)]
    pub force: bool,
    /// Send every request, even if the first 20 all fail with the same HTTP status
    #[arg(long)]
    pub keep_going: bool,
    #[command(flatten)]
    pub watch: WatchArgs,
    #[command(flatten)]
    pub show: ShowArgs,
    /// What an inconclusive verdict exits with
    #[arg(long, value_enum, default_value = "fail", value_name = "HOW")]
    pub inconclusive: Inconclusive,
    #[command(flatten)]
    pub compat: Compat,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Inconclusive {
    /// Exit code 5, a failure in junit.xml
    Fail,
    /// Exit code 0, skipped in junit.xml
    Pass,
}

impl Inconclusive {
    /// The same word to junit.xml: what the exit code forgives is skipped there, not failed.
    pub fn in_junit(self) -> llmscen_report::Inconclusive {
        match self {
            Inconclusive::Fail => llmscen_report::Inconclusive::Failure,
            Inconclusive::Pass => llmscen_report::Inconclusive::Skipped,
        }
    }
}

#[derive(Debug, Args)]
pub struct ReportArgs {
    /// The run folder
    pub folder: PathBuf,
    /// Judge by the SLOs of FILE instead: a list of SLOs, or a scenario
    #[arg(long, value_name = "FILE")]
    pub slo: Option<PathBuf>,
    #[command(flatten)]
    pub show: ShowArgs,
    /// What an inconclusive verdict exits with
    #[arg(long, value_enum, default_value = "fail", value_name = "HOW")]
    pub inconclusive: Inconclusive,
    #[command(flatten)]
    pub compat: Compat,
    /// Tell the trackers of `report.track` again
    #[arg(long)]
    pub track: bool,
}

#[derive(Debug, Args)]
pub struct SimulateArgs {
    /// Take `target.simulator` from this scenario
    pub scenario: Option<PathBuf>,
    /// Override a field: --set target.simulator.alpha=5ms
    #[arg(long = "set", value_name = "PATH=VALUE", value_parser = pair)]
    pub set: Vec<(String, String)>,
    /// Address and port; port 0 takes a free one
    #[arg(long, default_value = "127.0.0.1:8000", value_name = "ADDR")]
    pub listen: SocketAddr,
    /// Write the time of each of its own writes to this file when it ends (JSON lines)
    #[arg(long, value_name = "FILE")]
    pub truth: Option<PathBuf>,
}

fn pair(text: &str) -> Result<(String, String), String> {
    let (path, value) = text.split_once('=').ok_or("expected PATH=VALUE, such as load.concurrency=4")?;
    Ok((path.trim().to_owned(), value.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn an_override_is_a_path_and_a_value() {
        assert_eq!(pair("load.rate=8/s"), Ok(("load.rate".into(), "8/s".into())));
        assert_eq!(pair("vars.url=http://a/?b=c"), Ok(("vars.url".into(), "http://a/?b=c".into())));
        assert!(pair("load.rate").is_err());
    }
}
