//! Command-line arguments. Flags select and override; they do not repeat scenario fields.

use crate::cli::baseline::BaselineArgs;
use crate::cli::bodies::BodiesArgs;
use crate::cli::compare::CompareArgs;
use crate::cli::doctor::DoctorArgs;
use crate::cli::history::HistoryArgs;
use crate::cli::import::ImportArgs;
use crate::cli::init::InitArgs;
use crate::cli::load_scenarios::{Sources, parse_override};
use crate::cli::output::ResultArgs;
use crate::cli::progress::ProgressArgs;
use crate::cli::shard::ShardArgs;
use crate::cli::terminal::OutputArgs;
use clap::error::{ContextKind, ErrorKind};
use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand};
use llmscen_scenario::setting_named;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Declarative performance tests for LLM inference servers
#[derive(Debug, Parser)]
#[command(name = "llmscen", version, max_term_width = 100, after_help = EXIT_CODES)]
pub struct Cli {
    #[command(flatten)]
    pub output: OutputArgs,
    #[command(subcommand)]
    pub command: Command,
}

const EXIT_CODES: &str = "Exit codes: 0 pass, 1 an SLO failed, 2 wrong scenario or command line, 3 the run failed, \
    4 invalid measurement, 5 inconclusive, 130 interrupted.";

/// The commands by group, each with an example.
const GROUPS: [(&str, &[(&str, &str)]); 3] = [
    (
        "Run",
        &[
            ("init", "llmscen init --url http://127.0.0.1:8000"),
            ("validate", "llmscen validate scenarios/"),
            ("plan", "llmscen plan scenarios/chat.yaml"),
            ("try", "llmscen try scenarios/chat.yaml"),
            (
                "run",
                "llmscen run scenarios/chat.yaml --set load.concurrency=32",
            ),
            (
                "import",
                "llmscen import vllm -- bench serve --model qwen2.5 --request-rate 4",
            ),
        ],
    ),
    (
        "Results",
        &[
            (
                "report",
                "llmscen report reports/chat/latest --slo limits.yaml",
            ),
            (
                "compare",
                "llmscen compare reports/chat/before reports/chat/after",
            ),
            ("history", "llmscen history reports/"),
            (
                "baseline",
                "llmscen baseline update reports/chat/latest --to baselines/chat.json",
            ),
            ("bodies", "llmscen bodies reports/chat/latest"),
            ("merge", "llmscen merge file:///shared/runs/nightly-17"),
            ("explain", "llmscen explain INVALID"),
        ],
    ),
    (
        "Tools",
        &[
            ("doctor", "llmscen doctor http://127.0.0.1:8000"),
            ("simulate", "llmscen simulate --listen 127.0.0.1:8000"),
            ("schema", "llmscen schema > scenario.schema.json"),
            (
                "completions",
                "llmscen completions bash > /etc/bash_completion.d/llmscen",
            ),
        ],
    ),
];

/// The command line with its commands in groups, and an example for each.
pub fn command() -> clap::Command {
    let mut command = Cli::command();
    let mut groups = String::new();
    for (title, members) in GROUPS {
        groups += &format!("\n{title}:\n");
        for (name, example) in members {
            let about = command
                .find_subcommand(name)
                .and_then(clap::Command::get_about)
                .map(ToString::to_string)
                .unwrap_or_default();
            groups += &format!("  {name:<12} {about}\n");
            let example = format!("Example:\n  {example}");
            command = command.mut_subcommand(name, |sub| sub.after_help(example));
        }
    }
    command
        .before_help(groups.trim_start().to_owned())
        .help_template("{about-with-newline}\n{usage-heading} {usage}\n\n{before-help}Options:\n{options}{after-help}")
}

/// Parses a command line.
///
/// # Errors
/// It is not valid, or asks for help or the version.
pub fn parse(args: &[String]) -> Result<Cli, clap::Error> {
    let matches = command().try_get_matches_from(args)?;
    Cli::from_arg_matches(&matches)
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run scenarios and judge them against their SLOs
    Run(RunArgs),
    /// Send one request of a scenario and show the complete exchange
    Try(TryArgs),
    /// Check scenario files without sending requests
    Validate(Sources),
    /// Preview a run: cases, request counts, duration, first request, undecidable SLOs
    Plan(Sources),
    /// Rebuild the reports of a finished or interrupted run
    Report(ReportArgs),
    /// Make the report of a distributed run from the records that its shards stored
    Merge(MergeArgs),
    /// List the stored request and response bodies of a run, or print those of one request
    Bodies(BodiesArgs),
    /// Create or show a baseline file for regression SLOs
    Baseline(BaselineArgs),
    /// Convert the command line of another tool, such as vllm or aiperf, to a scenario
    Import(ImportArgs),
    /// Compare runs case by case and flag significant regressions
    Compare(CompareArgs),
    /// Show the trend of each case over many runs, and whether the latest are worse
    History(HistoryArgs),
    /// Start the built-in simulated server
    Simulate(SimulateArgs),
    /// Supervise a managed server (started by `run`)
    #[command(hide = true)]
    Guard,
    /// Print the JSON Schema of scenario files, for editors
    Schema {
        /// Print the schema of results.json instead
        #[arg(long)]
        results: bool,
        /// Print a reference page in Markdown instead, with an example per field
        #[arg(long, conflicts_with = "results")]
        markdown: bool,
    },
    /// Write a first scenario, for a server or from the shipped examples
    Init(InitArgs),
    /// Describe this machine, and a server with one timed request
    Doctor(DoctorArgs),
    /// Explain a metric, a verdict, an exit code, a statistic or a field, and what to do
    Explain {
        /// What to explain: ttft, INVALID, p95, load.concurrency
        #[arg(required = true)]
        topic: Vec<String>,
    },
    /// Print a shell completion script
    Completions {
        /// Shell
        shell: clap_complete::Shell,
    },
    /// Write man pages and shell completions (bash, zsh, fish) to PREFIX/share, as packages do
    #[command(hide = true)]
    Extras {
        /// Folder such as ~/.local or /usr/local
        prefix: PathBuf,
    },
}

#[derive(Debug, Args)]
pub struct TryArgs {
    #[command(flatten)]
    pub sources: Sources,
    /// Case to use [default: the first one]
    #[arg(long, value_name = "ID")]
    pub case: Option<String>,
}

#[derive(Debug, Args)]
pub struct RunArgs {
    #[command(flatten)]
    pub sources: Sources,
    /// Run folder to write [default: reports/NAME/TIME]
    #[arg(long, short, value_name = "DIR")]
    pub output: Option<PathBuf>,
    /// Write into an output folder that contains another run
    #[arg(long)]
    pub force: bool,
    /// Go on with a run that was killed, interrupted or failed: the argument is its folder, and only the missing
    /// rounds run
    #[arg(long = "continue", conflicts_with_all = ["set", "seed", "only", "skip", "output", "force", "shard"])]
    pub continued: bool,
    /// Continue even if the first 20 requests all fail with the same HTTP status
    #[arg(long)]
    pub keep_going: bool,
    #[command(flatten)]
    pub shard: ShardArgs,
    #[command(flatten)]
    pub progress: ProgressArgs,
    #[command(flatten)]
    pub results: ResultArgs,
}

#[derive(Debug, Args)]
pub struct ReportArgs {
    /// Run folder
    pub folder: PathBuf,
    /// Judge against the SLOs in FILE instead: a list of SLOs, or a scenario
    #[arg(long, value_name = "FILE")]
    pub slo: Option<PathBuf>,
    #[command(flatten)]
    pub results: ResultArgs,
    /// Upload again to the trackers in `report.track`
    #[arg(long)]
    pub track: bool,
}

#[derive(Debug, Args)]
pub struct MergeArgs {
    /// The store and the key of the run: file:///shared/runs/nightly-17, s3://bench/runs/nightly-17
    #[arg(value_name = "URL/KEY")]
    pub run: String,
    /// Run folder to write [default: reports/NAME/TIME]
    #[arg(long, short, value_name = "DIR")]
    pub output: Option<PathBuf>,
    /// Local folder of a shard that could not store its records (repeatable)
    #[arg(long, value_name = "DIR")]
    pub rows: Vec<PathBuf>,
    /// Merge as if this much memory were available, such as 4GB; the rest goes to a scratch file in the run folder
    /// [default: all memory]
    #[arg(long, value_name = "SIZE", value_parser = parse_memory)]
    pub memory: Option<u64>,
    /// Write into an output folder that contains another run
    #[arg(long)]
    pub force: bool,
    #[command(flatten)]
    pub results: ResultArgs,
}

#[derive(Debug, Args)]
pub struct SimulateArgs {
    /// Scenario whose `target.simulator` to use
    pub scenario: Option<PathBuf>,
    /// Override a field: --set target.simulator.alpha=5ms
    #[arg(long = "set", value_name = "PATH=VALUE", value_parser = parse_override)]
    pub set: Vec<(String, String)>,
    /// Address and port to listen on; port 0 selects a free port
    #[arg(long, default_value = "127.0.0.1:8000", value_name = "ADDR")]
    pub listen: SocketAddr,
    /// On exit, write the timestamp of every response write to FILE (JSON lines)
    #[arg(long, value_name = "FILE")]
    pub truth: Option<PathBuf>,
}

fn parse_memory(text: &str) -> Result<u64, String> {
    llmscen_scenario::parse_size(text)
        .ok_or_else(|| "expected a size such as 4GB or 500MiB".to_owned())
}

/// A message for an unknown option that is the name of a scenario field: the command with `--set` instead.
pub fn suggest_override(error: &clap::Error, args: &[String]) -> Option<String> {
    let unknown = match (error.kind(), error.get(ContextKind::InvalidArg)) {
        (ErrorKind::UnknownArgument, Some(unknown)) => unknown.to_string(),
        _ => return None,
    };
    let cli = Cli::command();
    let command = args
        .iter()
        .skip(1)
        .find_map(|arg| cli.find_subcommand(arg))?;
    command.get_arguments().find(|arg| arg.get_id() == "set")?;
    let fuzzy = error.get(ContextKind::SuggestedArg).is_none();
    let matching_field =
        |flag: &str| setting_named(flag, fuzzy).filter(|_| !is_option(command, &cli, flag));
    matching_field(
        unknown
            .strip_prefix("--")
            .filter(|flag| !is_option_elsewhere(&cli, flag))?,
    )?;
    let mut suggestion = vec!["llmscen".to_owned()];
    let mut args = args.iter().skip(1).peekable();
    while let Some(arg) = args.next() {
        let (flag, value) = arg
            .split_once('=')
            .map_or((arg.as_str(), None), |(flag, value)| {
                (flag, Some(value.to_owned()))
            });
        let Some(setting) = flag.strip_prefix("--").and_then(matching_field) else {
            suggestion.push(shell_quoted(arg));
            continue;
        };
        let value = value.or_else(|| args.next_if(|next| !next.starts_with("--")).cloned());
        // A secret on a command line is readable by every user of the machine.
        let value = if setting.secret {
            "${API_KEY}".to_owned()
        } else {
            value.unwrap_or_else(|| "VALUE".to_owned())
        };
        suggestion.extend([
            "--set".to_owned(),
            shell_quoted(&format!("{}={value}", setting.path)),
        ]);
    }
    Some(format!(
        "unknown option {unknown}\n  help: override scenario fields with --set: {}",
        suggestion.join(" ")
    ))
}

fn is_option(command: &clap::Command, cli: &clap::Command, flag: &str) -> bool {
    command
        .get_arguments()
        .chain(cli.get_arguments())
        .any(|arg| arg.get_long() == Some(flag))
        || ["help", "version"].contains(&flag)
}

/// Whether another command has this option: `--output`.
fn is_option_elsewhere(cli: &clap::Command, flag: &str) -> bool {
    // Two commands take fields of the target as options.
    let commands = cli
        .get_subcommands()
        .filter(|command| !["init", "doctor"].contains(&command.get_name()));
    commands
        .flat_map(clap::Command::get_arguments)
        .any(|arg| arg.get_long() == Some(flag))
}

/// A word quoted for a shell.
fn shell_quoted(word: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "-_./:=,@%+".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[test]
    fn the_command_line_is_consistent() {
        command().debug_assert();
    }

    #[test]
    fn every_command_is_in_a_group_and_its_example_is_valid() {
        let grouped: Vec<&str> = GROUPS
            .iter()
            .flat_map(|(_, members)| members.iter().map(|(name, _)| *name))
            .collect();
        let mut all: Vec<String> = command()
            .get_subcommands()
            .filter(|sub| !sub.is_hide_set())
            .map(|sub| sub.get_name().to_owned())
            .collect();
        all.sort();
        let mut sorted = grouped.clone();
        sorted.sort();
        assert_eq!(all, sorted);
        for (name, example) in GROUPS.iter().flat_map(|(_, members)| members.iter()) {
            let words = example.split(" > ").next().unwrap();
            let args: Vec<String> = words.split(' ').map(str::to_owned).collect();
            assert_eq!(args[1], *name);
            parse(&args).unwrap();
        }
        let help = command().render_help().to_string();
        assert!(
            help.contains("Run:\n  init ") && help.contains("Tools:\n  doctor "),
            "{help}"
        );
    }

    fn suggestion(line: &str) -> Option<String> {
        let args: Vec<String> = line.split(' ').map(str::to_owned).collect();
        suggest_override(&Cli::try_parse_from(&args).unwrap_err(), &args)
    }

    #[test]
    fn an_unknown_option_becomes_a_setting_with_its_value() {
        for (line, command) in [
            (
                "llmscen run x.yaml --concurrency 4",
                "llmscen run x.yaml --set load.concurrency=4",
            ),
            (
                "llmscen run x.yaml --rate=8/s --quiet",
                "llmscen run x.yaml --set load.rate=8/s --quiet",
            ),
            (
                "llmscen --quiet plan --requests 9 x.yaml",
                "llmscen --quiet plan --set load.requests=9 x.yaml",
            ),
            (
                "llmscen run x.yaml --model m --max-tokens 8",
                "llmscen run x.yaml --set target.model=m --set request.max_tokens=8",
            ),
            (
                "llmscen run x.yaml --url http://h:8/v1?a",
                "llmscen run x.yaml --set 'target.url=http://h:8/v1?a'",
            ),
            (
                "llmscen run x.yaml --duration",
                "llmscen run x.yaml --set load.duration=VALUE",
            ),
        ] {
            let suggested = suggestion(line).unwrap();
            assert!(
                suggested.ends_with(&format!("--set: {command}")),
                "{suggested}"
            );
        }
    }

    #[test]
    fn a_secret_is_not_repeated() {
        let suggested = suggestion("llmscen run x.yaml --api-key sk-hush").unwrap();
        assert!(
            suggested.contains("--set 'target.api_key=${API_KEY}'")
                && !suggested.contains("sk-hush"),
            "{suggested}"
        );
    }

    #[test]
    fn other_errors_have_no_suggestion() {
        for line in [
            "llmscen run x.yaml --frobnicate",
            "llmscen run",
            "llmscen report x --concurrency 4",
            "llmscen run x --outptu y",
            "llmscen try x --output y",
        ] {
            assert_eq!(suggestion(line), None, "{line}");
        }
    }
}
