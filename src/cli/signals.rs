//! Ctrl-C, SIGTERM and the end of the terminal (SIGHUP) press the run's switch.

use crate::cli::exit::Exit;
use crate::cli::live::leave;
use crate::run::event::Event;
use crate::run::execution::panics;
use crate::run::execution::stop::{Level, Stop};
use std::io::{Write, stderr};
use std::sync::mpsc;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Listens on a thread of its own until the process ends. The first signal drains, the second one stops at once, and the third
/// one ends the process, whatever it waits for. A closed terminal sends SIGHUP twice (the system and the shell), so that one
/// only drains.
pub fn listen(stop: Stop, events: mpsc::Sender<Event>) -> std::io::Result<()> {
    panics::set_switch(&stop);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
    let guard = runtime.enter();
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    let mut hangup = if ignores_hangup() { None } else { Some(signal(SignalKind::hangup())?) };
    drop(guard);
    let wait = async move {
        loop {
            let heard = tokio::select! {
                heard = interrupt.recv() => heard,
                heard = terminate.recv() => heard,
                heard = recv(&mut hangup) => match stop.level() {
                    Level::Run => heard,
                    _ => continue,
                },
                words = panics::stuck() => {
                    leave();
                    // `eprintln!` would panic where stderr is gone.
                    let _ = writeln!(stderr(), "error: {words}, and the run does not end; `llmscen report` reports what was measured so far");
                    std::process::exit(Exit::Error.code().into());
                }
            };
            if heard.is_none() {
                return;
            }
            if stop.level() == Level::Now {
                leave();
                let _ = writeln!(stderr(), "ended at once; `llmscen report` reports what was measured so far");
                std::process::exit(Exit::Interrupted.code().into());
            }
            stop.press();
            let _ = events.send(Event::Stopping(stop.level()));
        }
    };
    std::thread::Builder::new().name("signals".into()).spawn(move || runtime.block_on(wait))?;
    Ok(())
}

async fn recv(signal: &mut Option<Signal>) -> Option<()> {
    match signal {
        Some(signal) => signal.recv().await,
        None => std::future::pending().await,
    }
}

/// Whether the process was started so that it outlives its terminal, as `nohup` does. Known on Linux only.
fn ignores_hangup() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| u64::from_str_radix(line.strip_prefix("SigIgn:")?.trim(), 16).ok());
    ignored.is_some_and(|signals| signals & 1 == 1)
}
