//! `llmscen run`: runs all scenarios and returns the worst exit code.

use crate::cli::args::RunArgs;
use crate::cli::display::WatchedRun;
use crate::cli::exit::Exit;
use crate::cli::last_run::change_since_last_run;
use crate::cli::load_scenarios::{Hub, Source, Sources, load_all, open_run};
use crate::cli::metrics::Endpoint;
use crate::cli::output::{Summary, annotate, exit_of, print_report};
use crate::cli::progress::{ProgressMode, show_progress};
use crate::cli::report::upload_to_trackers;
use crate::cli::terminal::Terminal;
use crate::cli::{json_events, signals};
use crate::run::context::{Context, SharedRun};
use crate::run::error::RunError;
use crate::run::event::Event;
use crate::run::execution::group::merge_command;
use crate::run::execution::{CompletedRun, run_plan, run_shard};
use crate::run::forecast::{describe_logits, undecidable};
use crate::run::stop::{Level, Stop};
use crate::store::{RunDir, StoreError, manifest};
use llmscen_core::model_hub::HuggingFace;
use llmscen_core::plan::{CaseFilter, Plan};
use llmscen_core::report::RunVerdict;
use llmscen_core::schedule::shard::Shard;
use llmscen_datasets::{CacheDir, DEFAULT_HUB, HUB_VARIABLE};
use llmscen_report::format::plain;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::{Duration, Instant, SystemTime};

pub fn run(args: &RunArgs, env: &BTreeMap<String, String>, terminal: &mut Terminal) -> Exit {
    let began = Instant::now();
    terminal.json = args.progress.mode == ProgressMode::Json;
    let RunResult { exit, verdict } =
        run_all(args, env, began, terminal).unwrap_or_else(RunResult::without_verdict);
    if terminal.json {
        json_events::write_event(json_events::done(verdict, exit.code()), began, terminal);
    }
    exit
}

/// The result of a run, or the worst of several.
#[derive(Clone, Copy)]
struct RunResult {
    exit: Exit,
    /// `None` if the run has no report.
    verdict: Option<RunVerdict>,
}

impl RunResult {
    fn without_verdict(exit: Exit) -> RunResult {
        RunResult {
            exit,
            verdict: None,
        }
    }

    fn worst(self, other: RunResult) -> RunResult {
        if self.exit.worst(other.exit) == self.exit && self.verdict.is_some() {
            self
        } else {
            other
        }
    }
}

fn run_all(
    args: &RunArgs,
    env: &BTreeMap<String, String>,
    began: Instant,
    terminal: &mut Terminal,
) -> Result<RunResult, Exit> {
    let sources = match args.continued {
        true => &stored_sources(&args.sources, terminal).ok_or(Exit::Scenario)?,
        false => &args.sources,
    };
    let mut plans = load_all(sources, env, Hub::Pin, terminal).ok_or(Exit::Scenario)?;
    plans
        .iter_mut()
        .for_each(|source| args.results.compat.add_to(&mut source.plan));
    if args.output.is_some() && plans.len() > 1 {
        terminal.error("--output is the folder of one run, but several scenarios were given");
        return Err(Exit::Scenario);
    }
    let (shard, shared) = args.shard.find(&plans, env, terminal)?;
    let summary = Summary::open(args.results.summary.as_deref(), env, terminal)?;
    let endpoint = args
        .progress
        .metrics_addr
        .filter(|_| shard.is_first())
        .map(|addr| start_endpoint(addr, terminal))
        .transpose()?;
    let (events, inbox) = mpsc::channel();
    let session = Session {
        began,
        stop: Stop::default(),
        events,
        inbox,
        endpoint,
        summary,
        shard,
        shared,
    };
    if let Err(error) = signals::listen(session.stop.clone(), session.events.clone()) {
        terminal.error(&format!("cannot listen for signals: {error}"));
        return Err(Exit::Error);
    }
    let mut worst = RunResult::without_verdict(Exit::Pass);
    for source in &plans {
        worst = worst.worst(run_one(source, args, env, &session, terminal));
        if session.stop.level() > Level::Run {
            break;
        }
    }
    let linger = Duration::from_secs(args.progress.metrics_linger);
    session
        .endpoint
        .iter()
        .for_each(|endpoint| endpoint.wait_for_scrape(linger, &session.stop));
    Ok(worst)
}

/// The plan of a run folder, with its case filter.
fn stored_sources(sources: &Sources, terminal: &mut Terminal) -> Option<Sources> {
    let [path] = sources.paths.as_slice() else {
        terminal.error("--continue takes one run folder");
        return None;
    };
    let folder = open_run(path, terminal)?;
    let manifest = manifest::read(&folder)
        .map_err(|error| terminal.error(&error.to_string()))
        .ok()?;
    Some(Sources {
        paths: vec![folder.file("plan.yaml")],
        set: Vec::new(),
        seed: None,
        only: manifest.filter.only,
        skip: manifest.filter.skip,
    })
}

fn start_endpoint(addr: SocketAddr, terminal: &mut Terminal) -> Result<Endpoint, Exit> {
    match Endpoint::start(addr) {
        Ok(endpoint) => {
            terminal.status(&format!("metrics: http://{}/metrics", endpoint.addr));
            Ok(endpoint)
        }
        Err(error) => {
            terminal.error(&format!(
                "cannot serve metrics at {addr} (--metrics-addr): {error}; no request was sent"
            ));
            Err(Exit::Error)
        }
    }
}

/// What all runs of one command share.
struct Session {
    began: Instant,
    stop: Stop,
    events: mpsc::Sender<Event>,
    inbox: mpsc::Receiver<Event>,
    endpoint: Option<Endpoint>,
    summary: Summary,
    /// Which requests this process sends.
    shard: Shard,
    /// Where the shards meet; None for a run of one process.
    shared: Option<SharedRun>,
}

fn run_one(
    source: &Source,
    args: &RunArgs,
    env: &BTreeMap<String, String>,
    session: &Session,
    terminal: &mut Terminal,
) -> RunResult {
    let context = Context {
        output: args.output.clone(),
        force: args.force,
        keep_going: args.keep_going,
        inconclusive: args.results.inconclusive.junit_result(),
        shard: session.shard,
        shared: session.shared.clone(),
        ..new_context(
            env,
            source.filter.clone(),
            session.stop.clone(),
            session.events.clone(),
        )
    };
    let folder = source.path.parent().filter(|_| args.continued);
    let context = match folder {
        None => Ok(context),
        Some(folder) => continued_context(folder, context),
    };
    let context = match context {
        Ok(context) => context,
        Err(error) => {
            terminal.error(&error.to_string());
            return RunResult::without_verdict(Exit::Error);
        }
    };
    if let Some(shared) = &session.shared
        && !shared.reports(session.shard)
    {
        return deliver(source, context, shared, terminal);
    }
    announce(source, session, terminal);
    let registry = session
        .endpoint
        .as_ref()
        .map(|endpoint| &*endpoint.registry);
    let watched = WatchedRun {
        plan: &source.plan,
        began: session.began,
        stop: &session.stop,
        events: &session.events,
        registry,
    };
    let result = run_with_display(
        &context.events,
        || run_plan(&source.plan, &context),
        || show_progress(&args.progress, &watched, &session.inbox, terminal),
    );
    if let Some(endpoint) = &session.endpoint {
        endpoint.note_run_ended();
    }
    match result {
        Ok(Ok(completed)) => print_result(&source.plan, &completed, args, env, session, terminal),
        Ok(Err(error)) => {
            terminal.error(&error.to_string());
            RunResult::without_verdict(exit_of_error(&error))
        }
        Err(error) => {
            terminal.error(&error.to_string());
            RunResult::without_verdict(Exit::Error)
        }
    }
}

/// Runs one shard, whose rows another process reports.
fn deliver(
    source: &Source,
    context: Context,
    shared: &SharedRun,
    terminal: &mut Terminal,
) -> RunResult {
    let shard = context.shard;
    terminal.status(&format!("shard {shard}: run {}", shared.store.url()));
    let exit = match run_as_shard(&source.plan, context) {
        Ok(()) => {
            terminal.status(&format!("shard {shard}: rows delivered"));
            if shard.is_first() {
                terminal.status(&format!("report: {}", merge_command(shared)));
            }
            Exit::Pass
        }
        Err(error) => {
            terminal.error(&format!("shard {shard}: {error}"));
            exit_of_error(&error)
        }
    };
    RunResult::without_verdict(exit)
}

/// The exit code of a run without a report.
fn exit_of_error(error: &RunError) -> Exit {
    match error {
        RunError::Interrupted => Exit::Interrupted,
        RunError::LoopbackServer { .. } | RunError::CannotContinue { .. } => Exit::Scenario,
        _ => Exit::Error,
    }
}

/// Runs a shard. Without `--output` its folder is temporary, and is removed once the rows are delivered.
fn run_as_shard(plan: &Plan, context: Context) -> Result<(), RunError> {
    if context.output.is_some() {
        return run_shard(plan, &context);
    }
    let folder = tempfile::Builder::new()
        .prefix("llmscen-shard-")
        .tempdir()
        .map_err(RunError::ShardFolder)?;
    let context = Context {
        output: Some(folder.path().to_owned()),
        ..context
    };
    let result = run_shard(plan, &context);
    if result.is_err() {
        let _ = folder.keep();
    }
    result
}

/// The context of a run that goes on in its folder: times count from its start.
fn continued_context(folder: &Path, context: Context) -> Result<Context, StoreError> {
    let started = manifest::read(&RunDir::open(folder)?)?.started_unix_ns;
    let since = Duration::from_nanos(context.wall_ns.saturating_sub(started));
    Ok(Context {
        continued: Some(folder.to_owned()),
        origin: context.origin.checked_sub(since).unwrap_or(context.origin),
        wall_ns: started,
        ..context
    })
}

/// The defaults of one request or run, now.
pub fn new_context(
    env: &BTreeMap<String, String>,
    filter: CaseFilter,
    stop: Stop,
    events: mpsc::Sender<Event>,
) -> Context {
    let wall = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    Context {
        env: env.clone(),
        cache: cache_dir(env),
        tool: own_program(),
        output: None,
        filter,
        continued: None,
        shard: Shard::default(),
        force: false,
        keep_going: true,
        inconclusive: llmscen_report::Inconclusive::Failure,
        shared: None,
        origin: Instant::now(),
        wall_ns: wall.as_nanos() as u64,
        stop,
        events,
    }
}

/// Sends the end marker when the run ends or panics. The display waits for it, since the signal thread keeps its
/// sender.
struct EndMarker<'a>(&'a mpsc::Sender<Event>);

impl Drop for EndMarker<'_> {
    fn drop(&mut self) {
        let _ = self.0.send(Event::Done);
    }
}

/// Runs `work` on another thread while `display` shows its events.
fn run_with_display<T: Send>(
    events: &mpsc::Sender<Event>,
    work: impl FnOnce() -> T + Send,
    display: impl FnOnce(),
) -> Result<T, RunError> {
    let sender = events.clone();
    std::thread::scope(|scope| {
        let work = std::thread::Builder::new()
            .name("run".into())
            .spawn_scoped(scope, move || {
                let _end_marker = EndMarker(&sender);
                work()
            });
        let work = work.map_err(RunError::Thread)?;
        // A display that panics has printed a message, and must not lose the result.
        let _ = std::panic::catch_unwind(AssertUnwindSafe(display));
        work.join().map_err(|_| RunError::Panicked("run"))
    })
}

/// Prints the plan and its warnings.
fn announce(source: &Source, session: &Session, terminal: &mut Terminal) {
    let plan = &source.plan;
    session
        .endpoint
        .iter()
        .for_each(|endpoint| endpoint.registry.start_run(plan));
    match terminal.json {
        true => json_events::write_event(
            json_events::run_started(plan, &source.path),
            session.began,
            terminal,
        ),
        false => terminal.status(&llmscen_report::plan_table(
            plan,
            terminal.err_width(),
            terminal.err_color,
        )),
    }
    describe_logits(plan)
        .iter()
        .for_each(|warning| terminal.warn(&plain(warning)));
    let warnings = undecidable(plan);
    warnings
        .iter()
        .take(MAX_WARNINGS)
        .for_each(|warning| terminal.warn(&plain(warning)));
    if let Some(more) = warnings
        .len()
        .checked_sub(MAX_WARNINGS)
        .filter(|more| *more > 0)
    {
        terminal.warn(&format!("{more} more warnings; `llmscen plan` lists them"));
    }
}

/// Warnings about undecidable objectives that are shown: a sweep may have hundreds.
const MAX_WARNINGS: usize = 5;

/// Prints the tables, uploads to trackers, and appends the summary of a completed run.
fn print_result(
    plan: &Plan,
    completed: &CompletedRun,
    args: &RunArgs,
    env: &BTreeMap<String, String>,
    session: &Session,
    terminal: &mut Terminal,
) -> RunResult {
    let report = &completed.report;
    let exit = exit_of(report, args.results.inconclusive);
    let since = match &args.output {
        None => change_since_last_run(report, &completed.folder),
        Some(_) => None,
    };
    print_report(
        report,
        &completed.folder,
        since.as_deref(),
        &args.results,
        terminal,
    );
    annotate(report, env, terminal);
    if let Some(fault) = &completed.fault {
        terminal.error(&fault.to_string());
    }
    upload_to_trackers(plan, report, &completed.folder, terminal);
    if terminal.json {
        let ended = json_events::run_ended(report, exit.code(), &completed.folder);
        json_events::write_event(ended, session.began, terminal);
    }
    session.summary.append(report, &completed.folder, terminal);
    RunResult {
        exit,
        verdict: Some(report.verdict),
    }
}

/// The path of this program, even if its file was replaced since it started.
fn own_program() -> PathBuf {
    let link = PathBuf::from("/proc/self/exe");
    if link.exists() {
        link
    } else {
        std::env::current_exe().unwrap_or_else(|_| "llmscen".into())
    }
}

/// The hubs (`LLMSCEN_HUB`, `HF_ENDPOINT`) and cache folder (`LLMSCEN_CACHE`, else `$XDG_CACHE_HOME/llmscen`, else
/// `~/.cache/llmscen`).
pub fn cache_dir(env: &BTreeMap<String, String>) -> CacheDir {
    let variable = |name: &str| env.get(name).filter(|value| !value.is_empty());
    let explicit = variable("LLMSCEN_CACHE").map(PathBuf::from);
    let xdg = || variable("XDG_CACHE_HOME").map(|base| PathBuf::from(base).join("llmscen"));
    let home = || variable("HOME").map(|home| PathBuf::from(home).join(".cache/llmscen"));
    let dir = explicit
        .or_else(xdg)
        .or_else(home)
        .unwrap_or_else(|| PathBuf::from(".llmscen-cache"));
    CacheDir {
        dir,
        hub: variable(HUB_VARIABLE)
            .cloned()
            .unwrap_or_else(|| DEFAULT_HUB.into()),
        hugging_face: HuggingFace::from_env(env),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_of_the_run_or_the_display_does_not_lose_the_other() {
        let (events, inbox) = mpsc::channel();
        let until_done = || {
            while !matches!(
                inbox.recv_timeout(Duration::from_secs(60)),
                Ok(Event::Done) | Err(_)
            ) {}
        };
        let began = Instant::now();
        let panicked = run_with_display(&events, || -> u8 { panic!("no memory") }, until_done);
        assert!(
            matches!(panicked, Err(RunError::Panicked("run")))
                && began.elapsed() < Duration::from_secs(50)
        );
        assert_eq!(
            run_with_display(&events, || 7, || panic!("no screen")).unwrap(),
            7
        );
    }

    #[test]
    fn the_cache_folder_follows_the_environment() {
        let dir = |pairs: &[(&str, &str)]| {
            cache_dir(
                &pairs
                    .iter()
                    .map(|(key, value)| (key.to_string(), value.to_string()))
                    .collect(),
            )
            .dir
        };
        assert_eq!(
            dir(&[("LLMSCEN_CACHE", "/c"), ("HOME", "/h")]),
            PathBuf::from("/c")
        );
        assert_eq!(
            dir(&[("XDG_CACHE_HOME", "/x"), ("HOME", "/h")]),
            PathBuf::from("/x/llmscen")
        );
        assert_eq!(dir(&[("HOME", "/h")]), PathBuf::from("/h/.cache/llmscen"));
    }
}
