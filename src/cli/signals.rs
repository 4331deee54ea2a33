//! Ctrl-C and SIGTERM press the run's switch.

use crate::run::event::Event;
use crate::run::stop::Stop;
use std::sync::mpsc;
use tokio::signal::unix::{SignalKind, signal};

/// Listens on a thread of its own until the process ends. The first signal drains, the second one stops at once.
pub fn listen(stop: Stop, events: mpsc::Sender<Event>) -> std::io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    let guard = runtime.enter();
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    drop(guard);
    let wait = async move {
        loop {
            let heard = tokio::select! {
                heard = interrupt.recv() => heard,
                heard = terminate.recv() => heard,
            };
            if heard.is_none() {
                return;
            }
            stop.press();
            let _ = events.send(Event::Stopping(stop.level()));
        }
    };
    std::thread::Builder::new().name("signals".into()).spawn(move || runtime.block_on(wait))?;
    Ok(())
}
