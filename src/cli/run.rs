//! `llmscen run`: every scenario in turn, the worst exit code.

use crate::cli::args::{Inconclusive, RunArgs};
use crate::cli::exit::Exit;
use crate::cli::progress::Display;
use crate::cli::signals;
use crate::cli::sources::{self, Source};
use crate::cli::terminal::Terminal;
use crate::model::plan::Plan;
use crate::model::report::Report;
use crate::prompts::{CacheDir, DEFAULT_HUB, HUB_VARIABLE};
use crate::run::conduct::{Conducted, conduct};
use crate::run::context::Context;
use crate::run::error::RunError;
use crate::run::event::Event;
use crate::run::forecast::undecidable;
use crate::run::stop::{Level, Stop};
use crate::track::{Parcel, tell};
use crate::view;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::{Instant, SystemTime};

pub fn run(args: &RunArgs, env: &BTreeMap<String, String>, terminal: &mut Terminal) -> Exit {
    let Some(mut plans) = sources::load(&args.sources, env, terminal) else { return Exit::Scenario };
    plans.iter_mut().for_each(|source| args.compat.add_to(&mut source.plan));
    if args.output.is_some() && plans.len() > 1 {
        terminal.error("--output names the folder of one run, but several scenarios were given");
        return Exit::Scenario;
    }
    let watch = Watch::new();
    if let Err(error) = signals::listen(watch.stop.clone(), watch.events.clone()) {
        terminal.error(&format!("cannot listen for signals: {error}"));
        return Exit::Error;
    }
    let mut worst = Exit::Pass;
    for source in &plans {
        worst = worst.worst(run_one(source, args, env, &watch, terminal));
        if watch.stop.level() > Level::Run {
            break;
        }
    }
    worst
}

/// What all runs of one command share: the switch, and the line to the display.
struct Watch {
    stop: Stop,
    events: mpsc::Sender<Event>,
    inbox: mpsc::Receiver<Event>,
}

impl Watch {
    fn new() -> Watch {
        let (events, inbox) = mpsc::channel();
        Watch { stop: Stop::default(), events, inbox }
    }
}

fn run_one(source: &Source, args: &RunArgs, env: &BTreeMap<String, String>, watch: &Watch, terminal: &mut Terminal) -> Exit {
    let wall = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let context = Context {
        env: env.clone(),
        cache: cache(env),
        output: args.output.clone(),
        only: args.sources.only.clone(),
        force: args.force,
        inconclusive: args.inconclusive.in_junit(),
        origin: Instant::now(),
        wall_ns: wall.as_nanos() as u64,
        stop: watch.stop.clone(),
        events: watch.events.clone(),
    };
    terminal.say(&view::plan_table(&source.plan, terminal.err_width(), terminal.err_color));
    foretell(&source.plan, terminal);
    let result = std::thread::scope(|scope| {
        let work = scope.spawn(|| {
            let result = conduct(&source.plan, &context);
            // The display ends when nobody can say anything more; the signal thread never lets go of its end.
            let _ = context.events.send(Event::Done);
            result
        });
        Display::new(terminal).follow(&watch.inbox);
        work.join()
    });
    match result {
        Ok(Ok(conducted)) => conclude(&source.plan, &conducted, args.inconclusive, terminal),
        Ok(Err(error)) => {
            terminal.error(&error.to_string());
            if matches!(error, RunError::Interrupted) { Exit::Interrupted } else { Exit::Error }
        }
        Err(_) => {
            terminal.error("the run ended unexpectedly; this is a defect of llmscen");
            Exit::Error
        }
    }
}

/// Says before the traffic what so few requests can never decide.
fn foretell(plan: &Plan, terminal: &mut Terminal) {
    let warnings = undecidable(plan);
    warnings.iter().take(FORETOLD).for_each(|warning| terminal.warn(warning));
    if let Some(more) = warnings.len().checked_sub(FORETOLD).filter(|more| *more > 0) {
        terminal.warn(&format!("{more} more limits can never pass; `llmscen plan` lists them"));
    }
}

/// A sweep may have hundreds of them.
const FORETOLD: usize = 5;

fn conclude(plan: &Plan, conducted: &Conducted, inconclusive: Inconclusive, terminal: &mut Terminal) -> Exit {
    show(&conducted.report, terminal);
    if let Some(fault) = &conducted.fault {
        terminal.error(&fault.to_string());
    }
    track(plan, &conducted.report, &conducted.folder, terminal);
    terminal.say(&format!("report: {}", conducted.folder.join("report.md").display()));
    exit_of(&conducted.report, inconclusive)
}

/// Tells the trackers of the plan. One that does not listen is said, and changes nothing else.
pub fn track(plan: &Plan, report: &Report, folder: &Path, terminal: &mut Terminal) {
    for told in tell(&plan.report.track, &Parcel::of(plan, report), folder) {
        match told {
            Ok(place) => terminal.say(&format!("tracked: {place}")),
            Err(error) => terminal.warn(&error.to_string()),
        }
    }
}

/// The tables at the end of a run, and the verdict in one line.
pub fn show(report: &Report, terminal: &mut Terminal) {
    let (width, color) = (terminal.out_width(), terminal.out_color);
    terminal.data(&view::case_table(report, width, color));
    // That some loads break their limits is what a search is for, and each probe says which.
    let limits = if report.searches.is_empty() { view::slo_table } else { view::probe_table };
    terminal.data(&limits(report, width, color));
    terminal.data(&view::verdict_line(report, color));
}

/// The exit code of a report, `--inconclusive` applied.
pub fn exit_of(report: &Report, inconclusive: Inconclusive) -> Exit {
    match Exit::of_code(report.exit_code) {
        Exit::Inconclusive if inconclusive == Inconclusive::Pass => Exit::Pass,
        exit => exit,
    }
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
    use crate::model::report::RunVerdict;

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
