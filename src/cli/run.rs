//! `llmscen run`: every scenario in turn, the worst exit code.

use crate::cli::args::{Inconclusive, RunArgs};
use crate::cli::exit::Exit;
use crate::cli::load_scenarios::{self, Source};
use crate::cli::metrics::Endpoint;
use crate::cli::output::{Summary, show};
use crate::cli::progress::{ProgressMode, WatchedRun, follow};
use crate::cli::report::track_run;
use crate::cli::terminal::Terminal;
use crate::cli::{json_events, signals};
use crate::run::error::RunError;
use crate::run::event::Event;
use crate::run::execution::stop::{Level, Stop};
use crate::run::execution::{CompletedRun, Context, run_plan};
use crate::run::forecast::{describe_logits, undecidable};
use llmscen_core::plan::Plan;
use llmscen_core::report::{Report, RunVerdict};
use llmscen_datasets::{CacheDir, DEFAULT_HUB, HUB_VARIABLE};
use llmscen_report::format::plain;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::panic::AssertUnwindSafe;
use std::path::PathBuf;
use std::sync::mpsc;
use std::time::{Duration, Instant, SystemTime};

pub fn run(args: &RunArgs, env: &BTreeMap<String, String>, terminal: &mut Terminal) -> Exit {
    let began = Instant::now();
    terminal.json = args.watch.progress == ProgressMode::Json;
    let Ended { exit, verdict } = run_all(args, env, began, terminal).unwrap_or_else(Ended::early);
    if terminal.json {
        terminal.line(&json_events::timed(json_events::done(verdict, exit.code()), began).to_string());
    }
    exit
}

/// How a run ended, or the worst of several.
#[derive(Clone, Copy)]
struct Ended {
    exit: Exit,
    /// None where it came to none.
    verdict: Option<RunVerdict>,
}

impl Ended {
    fn early(exit: Exit) -> Ended {
        Ended { exit, verdict: None }
    }

    fn worst(self, other: Ended) -> Ended {
        if self.exit.worst(other.exit) == self.exit && self.verdict.is_some() { self } else { other }
    }
}

fn run_all(args: &RunArgs, env: &BTreeMap<String, String>, began: Instant, terminal: &mut Terminal) -> Result<Ended, Exit> {
    let mut plans = load_scenarios::load(&args.sources, env, terminal).ok_or(Exit::Scenario)?;
    plans.iter_mut().for_each(|source| args.compat.add_to(&mut source.plan));
    if args.output.is_some() && plans.len() > 1 {
        terminal.error("--output names the folder of one run, but several scenarios were given");
        return Err(Exit::Scenario);
    }
    let summary = Summary::open(args.show.summary.as_deref(), env, terminal)?;
    let endpoint = args.watch.metrics_addr.map(|addr| endpoint(addr, terminal)).transpose()?;
    let watch = Watch::new(began, endpoint, summary);
    if let Err(error) = signals::listen(watch.stop.clone(), watch.events.clone()) {
        terminal.error(&format!("cannot listen for signals: {error}"));
        return Err(Exit::Error);
    }
    let mut worst = Ended::early(Exit::Pass);
    for source in &plans {
        worst = worst.worst(run_one(source, args, env, &watch, terminal));
        if watch.stop.level() > Level::Run {
            break;
        }
    }
    let linger = Duration::from_secs(args.watch.metrics_linger);
    watch.endpoint.iter().for_each(|endpoint| endpoint.linger(linger, &watch.stop));
    Ok(worst)
}

fn endpoint(addr: SocketAddr, terminal: &mut Terminal) -> Result<Endpoint, Exit> {
    match Endpoint::start(addr) {
        Ok(endpoint) => {
            terminal.say(&format!("metrics: http://{}/metrics", endpoint.addr));
            Ok(endpoint)
        }
        Err(error) => {
            terminal.error(&format!("cannot serve metrics at {addr} (--metrics-addr): {error}; nothing was sent"));
            Err(Exit::Error)
        }
    }
}

/// What all runs of one command share: the switch, and the line to the display.
struct Watch {
    began: Instant,
    stop: Stop,
    events: mpsc::Sender<Event>,
    inbox: mpsc::Receiver<Event>,
    endpoint: Option<Endpoint>,
    summary: Summary,
}

impl Watch {
    fn new(began: Instant, endpoint: Option<Endpoint>, summary: Summary) -> Watch {
        let (events, inbox) = mpsc::channel();
        Watch { began, stop: Stop::default(), events, inbox, endpoint, summary }
    }
}

fn run_one(source: &Source, args: &RunArgs, env: &BTreeMap<String, String>, watch: &Watch, terminal: &mut Terminal) -> Ended {
    let wall = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let context = Context {
        env: env.clone(),
        cache: cache(env),
        tool: tool(),
        output: args.output.clone(),
        only: args.sources.only.clone(),
        force: args.force,
        keep_going: args.keep_going,
        inconclusive: args.inconclusive.in_junit(),
        origin: Instant::now(),
        wall_ns: wall.as_nanos() as u64,
        stop: watch.stop.clone(),
        events: watch.events.clone(),
    };
    announce(source, watch, terminal);
    let board = watch.endpoint.as_ref().map(|endpoint| &*endpoint.board);
    let watched = WatchedRun { plan: &source.plan, began: watch.began, stop: &watch.stop, events: &watch.events, board };
    let result = beside(
        &context.events,
        || run_plan(&source.plan, &context),
        || {
            follow(&args.watch, &watched, &watch.inbox, terminal);
        },
    );
    match result {
        Ok(Ok(conducted)) => conclude(&source.plan, &conducted, args, watch, terminal),
        Ok(Err(error)) => {
            terminal.error(&error.to_string());
            Ended::early(if matches!(error, RunError::Interrupted) { Exit::Interrupted } else { Exit::Error })
        }
        Err(error) => {
            terminal.error(&error.to_string());
            Ended::early(Exit::Error)
        }
    }
}

/// Says that nothing more will be said, when its thread is done or panics: the display waits for that, since the signal thread
/// never lets go of its end of the line.
struct LastWord<'a>(&'a mpsc::Sender<Event>);

impl Drop for LastWord<'_> {
    fn drop(&mut self) {
        let _ = self.0.send(Event::Done);
    }
}

/// Does the work beside the display, which ends with it.
fn beside<T: Send>(events: &mpsc::Sender<Event>, work: impl FnOnce() -> T + Send, display: impl FnOnce()) -> Result<T, RunError> {
    let last = events.clone();
    std::thread::scope(|scope| {
        let work = std::thread::Builder::new().name("run".into()).spawn_scoped(scope, move || {
            let _last = LastWord(&last);
            work()
        });
        let work = work.map_err(RunError::Thread)?;
        // A display that panics has said so, and takes no result with it.
        let _ = std::panic::catch_unwind(AssertUnwindSafe(display));
        work.join().map_err(|_| RunError::Panicked("run"))
    })
}

/// Says what will run.
fn announce(source: &Source, watch: &Watch, terminal: &mut Terminal) {
    let plan = &source.plan;
    watch.endpoint.iter().for_each(|endpoint| endpoint.board.begin(plan));
    match terminal.json {
        true => terminal.line(&json_events::timed(json_events::run_started(plan, &source.path), watch.began).to_string()),
        false => terminal.say(&llmscen_report::plan_table(plan, terminal.err_width(), terminal.err_color)),
    }
    foretell(plan, terminal);
}

/// Says before the traffic what so few requests can never decide.
fn foretell(plan: &Plan, terminal: &mut Terminal) {
    describe_logits(plan).iter().for_each(|warning| terminal.warn(&plain(warning)));
    let warnings = undecidable(plan);
    warnings.iter().take(FORETOLD).for_each(|warning| terminal.warn(&plain(warning)));
    if let Some(more) = warnings.len().checked_sub(FORETOLD).filter(|more| *more > 0) {
        terminal.warn(&format!("{more} more warnings; `llmscen plan` lists them"));
    }
}

/// A sweep may have hundreds of them.
const FORETOLD: usize = 5;

fn conclude(plan: &Plan, conducted: &CompletedRun, args: &RunArgs, watch: &Watch, terminal: &mut Terminal) -> Ended {
    let (report, exit) = (&conducted.report, exit_of(&conducted.report, args.inconclusive));
    show(report, args.show.format, terminal);
    if let Some(fault) = &conducted.fault {
        terminal.error(&fault.to_string());
    }
    track_run(plan, report, &conducted.folder, terminal);
    match terminal.json {
        true => {
            let ended = json_events::run_ended(report, exit.code(), &conducted.folder);
            terminal.line(&json_events::timed(ended, watch.began).to_string());
        }
        false => terminal.say(&format!("report: {}", conducted.folder.join("report.md").display())),
    }
    watch.summary.add(report, &conducted.folder, terminal);
    Ended { exit, verdict: Some(report.verdict) }
}

/// The exit code of a report, `--inconclusive` applied.
pub fn exit_of(report: &Report, inconclusive: Inconclusive) -> Exit {
    match Exit::of_code(report.exit_code) {
        Exit::Inconclusive if inconclusive == Inconclusive::Pass => Exit::Pass,
        exit => exit,
    }
}

/// This program, even where its file was replaced since it began.
pub fn tool() -> PathBuf {
    let own = PathBuf::from("/proc/self/exe");
    if own.exists() { own } else { std::env::current_exe().unwrap_or_else(|_| "llmscen".into()) }
}

/// Where datasets come from (`LLMSCEN_HUB`) and are kept (`LLMSCEN_CACHE`, else `$XDG_CACHE_HOME/llmscen`, else
/// `~/.cache/llmscen`).
pub fn cache(env: &BTreeMap<String, String>) -> CacheDir {
    let set = |name: &str| env.get(name).filter(|value| !value.is_empty());
    let cache = set("LLMSCEN_CACHE").map(PathBuf::from);
    let xdg = || set("XDG_CACHE_HOME").map(|base| PathBuf::from(base).join("llmscen"));
    let home = || set("HOME").map(|home| PathBuf::from(home).join(".cache/llmscen"));
    let cache = cache.or_else(xdg).or_else(home).unwrap_or_else(|| PathBuf::from(".llmscen-cache"));
    CacheDir { dir: cache, hub: set(HUB_VARIABLE).cloned().unwrap_or_else(|| DEFAULT_HUB.into()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_and_display_that_panic_end_and_keep_the_other() {
        let (events, inbox) = mpsc::channel();
        let until_done = || while !matches!(inbox.recv_timeout(Duration::from_secs(60)), Ok(Event::Done) | Err(_)) {};
        let began = Instant::now();
        let lost = beside(&events, || -> u8 { panic!("no memory") }, until_done);
        assert!(matches!(lost, Err(RunError::Panicked("run"))) && began.elapsed() < Duration::from_secs(50));
        assert_eq!(beside(&events, || 7, || panic!("no screen")).unwrap(), 7);
    }

    #[test]
    fn inconclusive_may_be_mapped_to_pass_and_nothing_else_may() {
        let report = |code| Report { exit_code: code, verdict: RunVerdict::Inconclusive, ..Report::default() };
        assert_eq!(exit_of(&report(5), Inconclusive::Fail), Exit::Inconclusive);
        assert_eq!(exit_of(&report(5), Inconclusive::Pass), Exit::Pass);
        assert_eq!(exit_of(&report(4), Inconclusive::Pass), Exit::Invalid);
    }

    #[test]
    fn the_cache_follows_the_environment() {
        let of =
            |pairs: &[(&str, &str)]| cache(&pairs.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect()).dir;
        assert_eq!(of(&[("LLMSCEN_CACHE", "/c"), ("HOME", "/h")]), PathBuf::from("/c"));
        assert_eq!(of(&[("XDG_CACHE_HOME", "/x"), ("HOME", "/h")]), PathBuf::from("/x/llmscen"));
        assert_eq!(of(&[("HOME", "/h")]), PathBuf::from("/h/.cache/llmscen"));
    }
}
