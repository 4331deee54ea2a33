//! Who watches a run, and how: everything that is said goes to one display, and to the metrics endpoint where there is one.

use crate::cli::lines::Lines;
use crate::cli::live::Live;
use crate::cli::metrics::Board;
use crate::cli::progress::{Display, said};
use crate::cli::terminal::Terminal;
use crate::run::event::Event;
use crate::run::execution::redactor;
use crate::run::execution::stop::Stop;
use clap::{Args, ValueEnum};
use llmscen_core::plan::Plan;
use llmscen_core::redact::Redactor;
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
    pub progress: Progress,
    /// Serve OpenMetrics at http://ADDR/metrics during the run, for Prometheus; port 0 takes a free one
    #[arg(long, value_name = "ADDR")]
    pub metrics_addr: Option<SocketAddr>,
    /// Keep the endpoint up for so many seconds after the run, until it has been scraped once more
    #[arg(long, value_name = "SECONDS", default_value_t = 0, requires = "metrics_addr")]
    pub metrics_linger: u64,
}

/// How progress is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Progress {
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
pub struct Watched<'a> {
    /// What runs.
    pub plan: &'a Plan,
    /// When the command began.
    pub began: Instant,
    /// The switch.
    pub stop: &'a Stop,
    /// The line to the display.
    pub events: &'a Sender<Event>,
    /// The metrics endpoint's figures.
    pub board: Option<&'a Board>,
}

/// Shows everything that is said until the run is done.
pub fn follow(args: &WatchArgs, watched: &Watched<'_>, inbox: &Receiver<Event>, terminal: &mut Terminal) {
    let redactor = redactor(watched.plan);
    let mut show = chosen(args, watched, terminal);
    loop {
        match inbox.recv_timeout(TICK) {
            Ok(Event::Done) | Err(RecvTimeoutError::Disconnected) => break,
            Ok(event) => {
                let event = cleaned(event, &redactor);
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
fn cleaned(event: Event, redactor: &Redactor) -> Event {
    match event {
        Event::Note(note) => Event::Note(redactor.strike(note)),
        Event::Ending(ending) => Event::Ending(redactor.clean_all(ending)),
        event => event,
    }
}

fn chosen<'a>(args: &WatchArgs, watched: &Watched<'a>, terminal: &'a mut Terminal<'_>) -> Box<dyn Show + 'a> {
    let wanted = if args.live { "--live needs" } else { "--progress bar needs" };
    if (args.live || args.progress == Progress::Bar) && !terminal.live && !terminal.quiet {
        terminal.say(&format!("note: {wanted} a terminal on stderr; progress is told in plain lines instead"));
    }
    match args.progress {
        Progress::Json => Box::new(Lines::new(terminal, watched.began)),
        Progress::None => Box::new(Silent(terminal)),
        Progress::Plain => {
            terminal.live = false;
            Box::new(Display::new(terminal))
        }
        Progress::Auto | Progress::Bar if args.live && terminal.live => match Live::enter(watched) {
            Ok(screen) => Box::new(screen.on(terminal)),
            Err(error) => {
                terminal.say(&format!("note: the terminal cannot show a full screen ({error}); a bar is shown instead"));
                Box::new(Display::new(terminal))
            }
        },
        Progress::Auto | Progress::Bar => Box::new(Display::new(terminal)),
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
