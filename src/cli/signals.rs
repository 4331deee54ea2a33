//! Ctrl-C and SIGTERM press the run's switch.

use crate::cli::exit::Exit;
use crate::run::event::Event;
use crate::run::panics;
use crate::run::stop::{Level, Stop};
use std::sync::mpsc;
use tokio::signal::unix::{SignalKind, signal};

/// Listens on a thread of its own until the process ends. The first signal drains, the second one stops at once, and the third
/// one ends the process, whatever it waits for.
pub fn listen(stop: Stop, events: mpsc::Sender<Event>) -> std::io::Result<()> {
    panics::presses(&stop);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
    let guard = runtime.enter();
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    drop(guard);
    let wait = async move {
        loop {
            let heard = tokio::select! {
                heard = interrupt.recv() => heard,
                heard = terminate.recv() => heard,
                words = panics::stuck() => {
                    eprintln!("error: {words}, and the run does not end; `llmscen report` reports what was measured so far");
                    std::process::exit(Exit::Error.code().into());
                }
            };
            if heard.is_none() {
                return;
            }
            if stop.level() == Level::Now {
                eprintln!("ended at once; `llmscen report` reports what was measured so far");
                std::process::exit(Exit::Interrupted.code().into());
            }
            stop.press();
            let _ = events.send(Event::Stopping(stop.level()));
        }
    };
    std::thread::Builder::new().name("signals".into()).spawn(move || runtime.block_on(wait))?;
    Ok(())
}
