//! The command line. Data goes to stdout, everything else to stderr.

mod args;
mod baseline;
mod bodies;
mod compare;
mod display;
mod doctor;
mod exit;
mod explain;
mod extras;
mod history;
mod import;
mod init;
mod inspect;
mod json_events;
mod last_run;
mod live;
mod load_scenarios;
mod merge;
mod metrics;
mod output;
mod progress;
mod report;
mod run;
mod shard;
mod signals;
pub use signals::survive_large_files;
mod simulate;
mod terminal;
mod try_request;

use crate::cli::args::Command;
pub use crate::cli::exit::Exit;
use crate::cli::terminal::Terminal;
use llmscen_client::server::supervisor;
use llmscen_core::escape::escape_controls;
use std::collections::BTreeMap;
use std::io::{BufReader, Write};

/// The inputs and outputs of the process.
pub struct World<'a> {
    /// The command line, beginning with the program name.
    pub args: Vec<String>,
    /// Environment variables.
    pub env: BTreeMap<String, String>,
    /// stdout, for data.
    pub out: &'a mut (dyn Write + Send),
    /// stderr, for everything else.
    pub err: &'a mut (dyn Write + Send),
    /// Whether `out` and `err` are terminals.
    pub terminals: (bool, bool),
}

/// Runs the program.
pub fn main(world: World) -> Exit {
    // One TLS provider for the whole process; a second call, in tests, finds it installed.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let cli = match args::parse(&world.args) {
        Ok(cli) => cli,
        Err(error) => return print_parse_result(world, &error),
    };
    let mut terminal = Terminal::new(
        world.out,
        world.err,
        world.terminals,
        &world.env,
        &cli.output,
    );
    match cli.command {
        Command::Run(args) => run::run(&args, &world.env, &mut terminal),
        Command::Try(args) => try_request::try_request(&args, &world.env, &mut terminal),
        Command::Bodies(args) => bodies::bodies(&args, &world.env, &mut terminal),
        Command::Validate(args) => inspect::validate(&args, &world.env, &mut terminal),
        Command::Plan(args) => inspect::plan(&args, &world.env, &mut terminal),
        Command::Schema { results, markdown } => inspect::schema(results, markdown, &mut terminal),
        Command::Report(args) => report::report(&args, &world.env, &mut terminal),
        Command::Merge(args) => merge::merge(&args, &world.env, &mut terminal),
        Command::Baseline(args) => baseline::baseline(&args, &world.env, &mut terminal),
        Command::Import(args) => import::import(&args, &mut terminal),
        Command::Compare(args) => compare::compare(&args, &world.env, &mut terminal),
        Command::History(args) => history::history(&args, &mut terminal),
        Command::Simulate(args) => simulate::simulate(&args, &world.env, &mut terminal),
        Command::Guard => supervise_server(&mut terminal),
        Command::Init(args) => init::init(&args, &world.env, &mut terminal),
        Command::Doctor(args) => doctor::doctor(&args, &world.env, &mut terminal),
        Command::Explain { topic } => explain::explain(&topic.join(" "), &mut terminal),
        Command::Extras { prefix } => extras::extras(&prefix, &mut terminal),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut args::command(), "llmscen", &mut script);
            terminal.print_raw(&String::from_utf8_lossy(&script));
            Exit::Pass
        }
    }
}

/// Prints help and version to stdout, exit code 0; an invalid command line to stderr, exit code 2.
fn print_parse_result(world: World, error: &clap::Error) -> Exit {
    let is_error = error.use_stderr();
    let color = if is_error {
        world.terminals.1
    } else {
        world.terminals.0
    };
    let text = match args::suggest_override(error, &world.args) {
        Some(text) => format!(
            "{}: {text}\n",
            if color {
                "\u{1b}[1;31merror\u{1b}[0m"
            } else {
                "error"
            }
        ),
        None if color => error.render().ansi().to_string(),
        None => error.render().to_string(),
    };
    let stream = if is_error { world.err } else { world.out };
    // A closed pipe is not an error.
    let _ = stream.write_all(escape_controls(&text, color).as_bytes());
    if is_error { Exit::Scenario } else { Exit::Pass }
}

/// `llmscen guard`: the process that a run starts to supervise a managed server.
fn supervise_server(terminal: &mut Terminal) -> Exit {
    match supervisor::guard(BufReader::new(std::io::stdin()), std::io::stdout()) {
        Ok(()) => Exit::Pass,
        Err(error) => {
            terminal.error(&format!(
                "cannot supervise a server: {error}; this command is for \
            internal use by `llmscen run`"
            ));
            Exit::Error
        }
    }
}
