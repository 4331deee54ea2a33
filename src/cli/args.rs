//! The arguments. Whatever a scenario can say is not repeated here: flags select and override.

use crate::cli::baseline::BaselineArgs;
use crate::cli::bodies::BodiesArgs;
use crate::cli::compare::CompareArgs;
use crate::cli::import::ImportArgs;
use crate::cli::output::ShowArgs;
use crate::cli::progress::WatchArgs;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::error::{ContextKind, ErrorKind};
use clap::{Args, CommandFactory, Parser, Subcommand, ValueEnum};
use llmscen_core::export_format::Peer;
use llmscen_core::plan::Plan;
use llmscen_scenario::setting_named;
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

/// Which tools.
#[derive(Debug, Default, Args)]
pub struct Compat {
    /// Write the results in the form of these tools too, under compat/: evalscope,vllm
    #[arg(long = "compat", value_name = "TOOL", value_delimiter = ',', value_parser = tools())]
    pub tools: Vec<Peer>,
}

impl Compat {
    /// Adds them to those that the scenario names.
    pub fn add_to(&self, plan: &mut Plan) {
        let compat = &mut plan.report.compat;
        *compat = Peer::ALL.into_iter().filter(|peer| compat.contains(peer) || self.tools.contains(peer)).collect();
    }
}

fn tools() -> impl TypedValueParser<Value = Peer> {
    let named = |name: String| Peer::parse(&name).ok_or("no such tool");
    PossibleValuesParser::new(Peer::ALL.map(Peer::name)).try_map(named)
}

/// The words for an unknown option that is the name of a scenario's field: the command with `--set` instead.
pub fn suggest(error: &clap::Error, args: &[String]) -> Option<String> {
    let unknown = match (error.kind(), error.get(ContextKind::InvalidArg)) {
        (ErrorKind::UnknownArgument, Some(unknown)) => unknown.to_string(),
        _ => return None,
    };
    let cli = Cli::command();
    let command = args.iter().skip(1).find_map(|arg| cli.find_subcommand(arg))?;
    command.get_arguments().find(|arg| arg.get_id() == "set")?;
    let fuzzy = error.get(ContextKind::SuggestedArg).is_none();
    let is_meant = |flag: &str| setting_named(flag, fuzzy).filter(|_| !is_known(command, &cli, flag));
    is_meant(unknown.strip_prefix("--").filter(|flag| !is_of_another(&cli, flag))?)?;
    let mut words = vec!["llmscen".to_owned()];
    let mut args = args.iter().skip(1).peekable();
    while let Some(arg) = args.next() {
        let (flag, value) = arg.split_once('=').map_or((arg.as_str(), None), |(flag, value)| (flag, Some(value.to_owned())));
        let Some(setting) = flag.strip_prefix("--").and_then(is_meant) else {
            words.push(quoted(arg));
            continue;
        };
        let value = value.or_else(|| args.next_if(|next| !next.starts_with("--")).cloned());
        // A secret on a command line is readable by every user of the machine.
        let value = if setting.secret { "${API_KEY}".to_owned() } else { value.unwrap_or_else(|| "VALUE".to_owned()) };
        words.extend(["--set".to_owned(), quoted(&format!("{}={value}", setting.path))]);
    }
    Some(format!("unknown option {unknown}\n  help: override scenario fields with --set: {}", words.join(" ")))
}

fn is_known(command: &clap::Command, cli: &clap::Command, flag: &str) -> bool {
    command.get_arguments().chain(cli.get_arguments()).any(|arg| arg.get_long() == Some(flag))
        || ["help", "version"].contains(&flag)
}

/// Whether another command has this option: `--output`.
fn is_of_another(cli: &clap::Command, flag: &str) -> bool {
    cli.get_subcommands().flat_map(clap::Command::get_arguments).any(|arg| arg.get_long() == Some(flag))
}

/// A word as a shell takes it.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "-_./:=,@%+".contains(c);
    if !word.is_empty() && word.chars().all(plain) { word.to_owned() } else { format!("'{}'", word.replace('\'', "'\\''")) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{CommandFactory, Parser};

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

    fn said(line: &str) -> Option<String> {
        let args: Vec<String> = line.split(' ').map(str::to_owned).collect();
        suggest(&Cli::try_parse_from(&args).unwrap_err(), &args)
    }

    #[test]
    fn an_unknown_option_becomes_a_setting_with_its_value() {
        for (line, command) in [
            ("llmscen run x.yaml --concurrency 4", "llmscen run x.yaml --set load.concurrency=4"),
            ("llmscen run x.yaml --rate=8/s --quiet", "llmscen run x.yaml --set load.rate=8/s --quiet"),
            ("llmscen --quiet plan --requests 9 x.yaml", "llmscen --quiet plan --set load.requests=9 x.yaml"),
            ("llmscen run x.yaml --model m --max-tokens 8", "llmscen run x.yaml --set target.model=m --set request.max_tokens=8"),
            ("llmscen run x.yaml --url http://h:8/v1?a", "llmscen run x.yaml --set 'target.url=http://h:8/v1?a'"),
            ("llmscen run x.yaml --duration", "llmscen run x.yaml --set load.duration=VALUE"),
        ] {
            assert!(said(line).is_some_and(|said| said.ends_with(&format!("--set: {command}"))), "{:?}", said(line));
        }
    }

    #[test]
    fn a_secret_is_not_repeated() {
        let said = said("llmscen run x.yaml --api-key sk-hush").unwrap();
        assert!(said.contains("--set 'target.api_key=${API_KEY}'") && !said.contains("sk-hush"), "{said}");
    }

    #[test]
    fn other_errors_stay_as_they_are() {
        for line in [
            "llmscen run x.yaml --frobnicate",
            "llmscen run",
            "llmscen report x --concurrency 4",
            "llmscen run x --outptu y",
            "llmscen try x --output y",
        ] {
            assert_eq!(said(line), None, "{line}");
        }
    }
}
