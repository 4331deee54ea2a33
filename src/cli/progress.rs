//! Progress of a run: its events go to one display, and to the metrics endpoint if there is one.

use crate::cli::display::{Display, LineDisplay, NotesOnly, TICK, WatchedRun};
use crate::cli::json_events::JsonEvents;
use crate::cli::live::LiveScreen;
use crate::cli::terminal::Terminal;
use crate::run::event::Event;
use crate::run::execution::redactor;
use clap::{Args, ValueEnum};
use llmscen_core::redact::Redactor;
use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, RecvTimeoutError};

/// Options of the progress display.
#[derive(Debug, Args)]
pub struct ProgressArgs {
    /// Show a full-screen view; q or Ctrl-C stops gracefully, a second time at once
    #[arg(long, conflicts_with = "progress")]
    pub live: bool,
    /// Progress display on stderr
    #[arg(
        long = "progress",
        id = "progress",
        value_enum,
        default_value = "auto",
        value_name = "HOW"
    )]
    pub mode: ProgressMode,
    /// Serve OpenMetrics at http://ADDR/metrics during the run; port 0 selects a free port
    #[arg(long, value_name = "ADDR")]
    pub metrics_addr: Option<SocketAddr>,
    /// Keep the endpoint for up to SECONDS after the run, until a scrape has the last figures
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 0,
        requires = "metrics_addr"
    )]
    pub metrics_linger: u64,
}

/// Forms of progress output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ProgressMode {
    /// A bar on a terminal, plain lines otherwise
    Auto,
    /// Notes and warnings only
    None,
    /// A line every five seconds and at the end of each round
    Plain,
    /// A bar
    Bar,
    /// JSON lines, one object per event (docs/reference/progress.md)
    Json,
}

/// Shows all events until the run is done.
pub fn show_progress(
    args: &ProgressArgs,
    watched: &WatchedRun<'_>,
    inbox: &Receiver<Event>,
    terminal: &mut Terminal,
) {
    let redactor = redactor(watched.plan);
    let mut display = choose_display(args, watched, terminal);
    loop {
        match inbox.recv_timeout(TICK) {
            Ok(Event::Done) | Err(RecvTimeoutError::Disconnected) => break,
            Ok(event) => {
                let event = redact_event(event, &redactor);
                watched
                    .registry
                    .iter()
                    .for_each(|registry| registry.record(&event));
                display.show(&event);
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
        display.tick();
    }
    display.finish();
}

/// Removes secrets from the texts of an event.
fn redact_event(event: Event, redactor: &Redactor) -> Event {
    match event {
        Event::Note(note) => Event::Note(redactor.redact(note)),
        Event::Ending(ending) => Event::Ending(redactor.redact_value(ending)),
        event => event,
    }
}

fn choose_display<'a>(
    args: &ProgressArgs,
    watched: &WatchedRun<'a>,
    terminal: &'a mut Terminal<'_>,
) -> Box<dyn Display + 'a> {
    let option = if args.live {
        "--live"
    } else {
        "--progress bar"
    };
    if (args.live || args.mode == ProgressMode::Bar) && !terminal.live && !terminal.quiet {
        terminal.status(&format!(
            "note: {option} requires a terminal on stderr; using plain progress lines"
        ));
    }
    match args.mode {
        ProgressMode::Json => Box::new(JsonEvents::new(terminal, watched.began)),
        ProgressMode::None => Box::new(NotesOnly(terminal)),
        ProgressMode::Plain => {
            terminal.live = false;
            Box::new(LineDisplay::new(terminal))
        }
        ProgressMode::Auto | ProgressMode::Bar if args.live && terminal.live => {
            match LiveScreen::enter(watched) {
                Ok(screen) => Box::new(screen.on(terminal)),
                Err(error) => {
                    terminal.status(&format!(
                        "note: the terminal does not support --live ({error}); using a progress bar"
                    ));
                    Box::new(LineDisplay::new(terminal))
                }
            }
        }
        ProgressMode::Auto | ProgressMode::Bar => Box::new(LineDisplay::new(terminal)),
    }
}
