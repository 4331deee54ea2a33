//! Who watches a run, and how: everything that is said goes to one display, and to the metrics endpoint where there is one.

use crate::cli::json_events::JsonEvents;
use crate::cli::live::Live;
use crate::cli::metrics::MetricRegistry;
use crate::cli::terminal::Terminal;
use crate::run::event::{Event, Preparing, Progress};
use crate::run::execution::redactor;
use crate::run::execution::stop::{Level, Stop};
use clap::{Args, ValueEnum};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use llmscen_core::early_stop::Ending;
use llmscen_core::plan::Plan;
use llmscen_core::redact::Redactor;
use llmscen_report::format::{plain, shorten};
use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

/// Between two looks at the keyboard and the window.
const TICK: Duration = Duration::from_millis(50);

/// How a run is watched.
#[derive(Debug, Args)]
pub struct WatchArgs {
    /// A full-screen view of the run; q or Ctrl-C stops it gracefully, again at once
    #[arg(long, conflicts_with = "progress")]
    pub live: bool,
    /// How progress is told on stderr
    #[arg(long, value_enum, default_value = "auto", value_name = "HOW")]
    pub progress: ProgressMode,
    /// Serve OpenMetrics at http://ADDR/metrics during the run, for Prometheus; port 0 takes a free one
    #[arg(long, value_name = "ADDR")]
    pub metrics_addr: Option<SocketAddr>,
    /// Keep the endpoint up for so many seconds after the run, until it has been scraped once more
    #[arg(long, value_name = "SECONDS", default_value_t = 0, requires = "metrics_addr")]
    pub metrics_linger: u64,
}

/// How progress is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ProgressMode {
    /// A bar on a terminal, plain lines elsewhere
    Auto,
    /// Notes and warnings alone
    None,
    /// A line every five seconds and at the end of each round
    Plain,
    /// A bar
    Bar,
    /// JSON lines, one object per event (docs/live.md)
    Json,
}

/// Something that shows a run.
pub trait Show {
    /// Shows what was said.
    fn see(&mut self, event: &Event);
    /// Time has passed.
    fn tick(&mut self) {}
    /// The run is over.
    fn end(&mut self) {}
}

/// A run that is watched.
pub struct WatchedRun<'a> {
    /// What runs.
    pub plan: &'a Plan,
    /// When the command began.
    pub began: Instant,
    /// The switch.
    pub stop: &'a Stop,
    /// The line to the display.
    pub events: &'a Sender<Event>,
    /// The metrics endpoint's figures.
    pub board: Option<&'a MetricRegistry>,
}

/// Shows everything that is said until the run is done.
pub fn follow(args: &WatchArgs, watched: &WatchedRun<'_>, inbox: &Receiver<Event>, terminal: &mut Terminal) {
    let redactor = redactor(watched.plan);
    let mut show = chosen(args, watched, terminal);
    loop {
        match inbox.recv_timeout(TICK) {
            Ok(Event::Done) | Err(RecvTimeoutError::Disconnected) => break,
            Ok(event) => {
                let event = redact_event(event, &redactor);
                watched.board.iter().for_each(|board| board.see(&event));
                show.see(&event);
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
        show.tick();
    }
    show.end();
}

/// An event without secrets in its texts.
fn redact_event(event: Event, redactor: &Redactor) -> Event {
    match event {
        Event::Note(note) => Event::Note(redactor.strike(note)),
        Event::Ending(ending) => Event::Ending(redactor.clean_all(ending)),
        event => event,
    }
}

fn chosen<'a>(args: &WatchArgs, watched: &WatchedRun<'a>, terminal: &'a mut Terminal<'_>) -> Box<dyn Show + 'a> {
    let wanted = if args.live { "--live needs" } else { "--progress bar needs" };
    if (args.live || args.progress == ProgressMode::Bar) && !terminal.live && !terminal.quiet {
        terminal.say(&format!("note: {wanted} a terminal on stderr; progress is told in plain lines instead"));
    }
    match args.progress {
        ProgressMode::Json => Box::new(JsonEvents::new(terminal, watched.began)),
        ProgressMode::None => Box::new(Silent(terminal)),
        ProgressMode::Plain => {
            terminal.live = false;
            Box::new(Display::new(terminal))
        }
        ProgressMode::Auto | ProgressMode::Bar if args.live && terminal.live => match Live::enter(watched) {
            Ok(screen) => Box::new(screen.on(terminal)),
            Err(error) => {
                terminal.say(&format!("note: the terminal cannot show a full screen ({error}); a bar is shown instead"));
                Box::new(Display::new(terminal))
            }
        },
        ProgressMode::Auto | ProgressMode::Bar => Box::new(Display::new(terminal)),
    }
}

/// Only what must be known.
struct Silent<'a, 'b>(&'a mut Terminal<'b>);

impl Show for Silent<'_, '_> {
    fn see(&mut self, event: &Event) {
        if matches!(event, Event::Note(_) | Event::Ending(_) | Event::Stopping(_)) {
            said(event, "").iter().for_each(|text| self.0.say(text));
        }
    }
}

/// Between two lines where there is no terminal.
const PLAIN_BEAT: Duration = Duration::from_secs(5);

/// What stands on the screen.
pub struct Display<'a, 'b> {
    terminal: &'a mut Terminal<'b>,
    bar: Option<ProgressBar>,
    title: String,
    seconds: Option<f64>,
    last_line: Instant,
}

impl<'a, 'b> Display<'a, 'b> {
    /// A display on this terminal.
    pub fn new(terminal: &'a mut Terminal<'b>) -> Display<'a, 'b> {
        Display { terminal, bar: None, title: String::new(), seconds: None, last_line: Instant::now() }
    }

    fn begin(&mut self, title: String, total: u64, seconds: Option<f64>) {
        self.clear();
        self.title = title;
        self.seconds = seconds.filter(|_| total == 0);
        self.last_line = Instant::now();
        if self.terminal.live {
            self.bar =
                Some(bar(self.terminal.width, if total > 0 { total } else { self.seconds.map_or(0, |s| (s * 10.0) as u64) }));
        } else {
            let amount = if total > 0 { format!("{total} requests") } else { String::from("bounded by time") };
            self.line(&format!("{}  {amount}", self.title));
        }
    }

    fn progress(&mut self, progress: &Progress) {
        match &self.bar {
            Some(bar) => {
                let room = room(self.terminal.width, &self.title);
                let position = if self.seconds.is_some() { (progress.elapsed_s * 10.0) as u64 } else { progress.done };
                bar.set_position(position);
                bar.set_prefix(shorten(&self.title, self.terminal.width.saturating_sub(BAR + 1 + SPARE)));
                bar.set_message(words(progress, room));
            }
            None if self.last_line.elapsed() >= PLAIN_BEAT => {
                self.last_line = Instant::now();
                self.line(&format!("{}  {}", self.title, words(progress, usize::MAX)));
            }
            None => {}
        }
    }

    fn prepare(&mut self, step: &Preparing) {
        let amount = match step.unit {
            "bytes" => format!("{:.1} MiB", step.done as f64 / 1_048_576.0),
            unit => format!("{} {unit}", step.done),
        };
        if self.terminal.live {
            let width = self.terminal.width;
            let bar = self.bar.get_or_insert_with(|| bar(width, 0));
            bar.set_length(step.total.unwrap_or(0));
            bar.set_prefix(step.words());
            bar.set_position(step.done);
            bar.set_message(amount);
        } else if step.total == Some(step.done) && step.unit == "bytes" {
            self.line(&format!("downloaded the dataset ({amount})"));
        } else if step.unit == "s" && step.total.is_none() && (step.done == 0 || self.last_line.elapsed() >= PLAIN_BEAT) {
            self.last_line = Instant::now();
            let so_far = if step.done == 0 { String::new() } else { format!(", {amount}") };
            self.line(&(step.words() + &so_far));
        }
        if step.total == Some(step.done) {
            self.clear();
        }
    }

    /// A line above the bar.
    fn line(&mut self, text: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| self.terminal.say(text)),
            None => self.terminal.say(text),
        }
    }

    fn clear(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }
}

impl Show for Display<'_, '_> {
    fn see(&mut self, event: &Event) {
        match event {
            Event::Preparing(step) => self.prepare(step),
            Event::CaseStarted { total, seconds, .. } => self.begin(title(event), total.unwrap_or(0), *seconds),
            Event::Progress(progress) => self.progress(progress),
            Event::CaseEnded(_) => self.clear(),
            _ => {}
        }
        said(event, &self.title).iter().for_each(|text| self.line(text));
    }

    fn end(&mut self) {
        self.clear();
    }
}

/// `[2/12] CASE` of a round that begins; empty for every other event.
pub fn title(event: &Event) -> String {
    match event {
        Event::CaseStarted { case, part, parts, .. } => format!("[{}/{parts}] {}", part + 1, plain(case)),
        _ => String::new(),
    }
}

/// What stays said of an event when the display has moved on; None where nothing does. `title`: of the round that runs.
pub fn said(event: &Event, title: &str) -> Option<String> {
    match event {
        Event::Folder(path) => Some(format!("run folder: {}", path.display())),
        // A round that was cut short has nothing left to wait for.
        Event::CaseEnded(last) => Some(format!("{title}  {}", words(&Progress { left_s: None, ..last.clone() }, usize::MAX))),
        Event::Note(note) => Some(format!("note: {}", plain(note))),
        Event::Ending(Ending::Aborted(lost)) => Some(plain(&format!("`{}`: {lost}", lost.expr))),
        Event::Ending(Ending::Saturated(seen)) => Some(plain(&seen.to_string())),
        Event::Ending(Ending::TargetLost(lost)) => Some(plain(&lost.to_string())),
        Event::Ending(Ending::AllFailed(failed)) => Some(plain(&failed.to_string())),
        Event::Stopping(Level::Now) => {
            Some("stopping at once: requests in flight are given up, what there is gets saved".to_owned())
        }
        Event::Stopping(_) => {
            Some("stopping: no new requests; those in flight get their grace (again to stop at once)".to_owned())
        }
        Event::Preparing(_) | Event::CaseStarted { .. } | Event::Progress(_) | Event::Probed { .. } | Event::Done => None,
    }
}

/// Columns of the bar itself.
const BAR: usize = 24;
/// Columns left free at the end of a line: some terminals begin a new one when the last is written.
const SPARE: usize = 1;

fn bar(width: usize, length: u64) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(length), ProgressDrawTarget::stderr_with_hz(8));
    let template = match width {
        150.. => "{prefix} {bar:24.cyan/dim} {msg}",
        NARROW.. => "{prefix}\n{bar:24.cyan/dim} {msg}",
        _ => "{bar:24.cyan/dim} {prefix}\n{msg}",
    };
    // The template is a constant that indicatif accepts; were it not, its own default would do.
    bar.with_style(ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar()).progress_chars("━━─"))
}

/// Below so many columns the figures have a line to themselves.
const NARROW: usize = 112;

/// Columns for the figures beside what else stands in their line.
fn room(width: usize, title: &str) -> usize {
    let taken = match width {
        150.. => BAR + 2 + title.chars().count(),
        NARROW.. => BAR + 1,
        _ => 0,
    };
    width.saturating_sub(taken + SPARE)
}

/// Tokens are content events here, a lower bound: `120/200  8 in flight  41.2 req/s  ~1.3k tok/s  TTFT p50 12 ms p99 40 ms  0 errors  3 s left`; what matters least is left
/// out where `room` is short.
fn words(progress: &Progress, room: usize) -> String {
    let total = progress.total.filter(|total| progress.done <= *total).map_or(String::new(), |total| format!("/{total}"));
    let ttft = |(p50, p99)| format!("TTFT p50 {p50:.0} ms p99 {p99:.0} ms");
    let tokens = match progress.tokens_per_s {
        rate if rate >= 10_000.0 => format!("{:.1}k", rate / 1000.0),
        rate => format!("{rate:.0}"),
    };
    let errors = if progress.errors == 1 { "error" } else { "errors" };
    let left = progress.left_s.filter(|left| *left >= 0.5).map(|left| format!("{left:.0} s left"));
    let pieces = [
        (0, Some(format!("{}{total}", progress.done))),
        (4, Some(format!("{} in flight", progress.in_flight))),
        (5, Some(format!("{:.1} req/s", progress.rate))),
        (3, Some(format!("~{tokens} tok/s"))),
        (2, progress.ttft_ms_p50.zip(progress.ttft_ms_p99).map(ttft)),
        (0, Some(format!("{} {errors}", progress.errors))),
        (1, left),
    ];
    let mut pieces: Vec<(u8, String)> = pieces.into_iter().filter_map(|(rank, text)| Some((rank, text?))).collect();
    let line = |pieces: &[(u8, String)]| pieces.iter().map(|(_, text)| text.as_str()).collect::<Vec<_>>().join("  ");
    while line(&pieces).chars().count() > room {
        let Some(last) = pieces.iter().map(|(rank, _)| *rank).max().filter(|rank| *rank > 0) else { break };
        pieces.retain(|(rank, _)| *rank != last);
    }
    line(&pieces)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_case_of_any_name_moves_no_cursor() {
        let case = "a\u{1b}[2J\nb\u{7}".to_owned();
        let begun = Event::CaseStarted { case: case.clone(), round: 0, part: 0, parts: 2, total: None, seconds: None };
        assert_eq!(title(&begun), "[1/2] a [2J b");
        assert_eq!(said(&Event::Note(format!("`{case}` drifts")), "").unwrap(), "note: `a [2J b ` drifts");
    }

    #[test]
    fn a_line_of_progress_says_all_that_is_known() {
        let mut progress = Progress {
            done: 120,
            total: Some(200),
            in_flight: 8,
            errors: 1,
            rate: 41.23,
            tokens_per_s: 12_345.0,
            ..Progress::default()
        };
        assert_eq!(words(&progress, usize::MAX), "120/200  8 in flight  41.2 req/s  ~12.3k tok/s  1 error");
        progress.ttft_ms_p50 = Some(12.2);
        progress.ttft_ms_p99 = Some(40.0);
        progress.left_s = Some(3.0);
        progress.total = None;
        let all = "120  8 in flight  41.2 req/s  ~12.3k tok/s  TTFT p50 12 ms p99 40 ms  1 error  3 s left";
        assert_eq!(words(&progress, all.len()), all);
        progress.total = Some(100);
        assert_eq!(words(&progress, all.len()), all, "a warm-up by time sends more than was counted");
    }

    #[test]
    fn a_short_line_keeps_what_matters_most() {
        let progress = Progress {
            done: 12_345,
            total: Some(20_000),
            in_flight: 256,
            errors: 17,
            rate: 1234.5,
            tokens_per_s: 12_345.0,
            ttft_ms_p50: Some(1234.0),
            ttft_ms_p99: Some(5678.0),
            left_s: Some(123.0),
            ..Progress::default()
        };
        let at = |width: usize| words(&progress, room(width, "[1/1] base"));
        assert_eq!(at(76), "12345/20000  TTFT p50 1234 ms p99 5678 ms  17 errors  123 s left");
        assert_eq!(at(81), "12345/20000  ~12.3k tok/s  TTFT p50 1234 ms p99 5678 ms  17 errors  123 s left");
        assert_eq!(at(50), "12345/20000  17 errors  123 s left");
        assert_eq!(at(10), "12345/20000  17 errors");
        for width in 40..200 {
            let taken = width - room(width, "[1/1] base") - SPARE;
            assert!(taken + at(width).chars().count() < width, "{width}: {}", at(width));
        }
    }
}
