//! Ctrl-C, SIGTERM and SIGHUP (closed terminal) stop the run.

use crate::cli::exit::Exit;
use crate::cli::live::leave;
use crate::run::event::Event;
use crate::run::panics;
use crate::run::stop::{Level, Stop};
use rustix::process::Signal as Signals;
use std::io::{Write, stderr};
use std::sync::mpsc;
use std::time::Duration;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::sleep;

/// Makes a write beyond `ulimit -f` an error, as on a full disk; by default a signal ends the process.
pub fn survive_large_files() -> std::io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()?;
    let _guard = runtime.enter();
    // The handler stays for the rest of the process.
    signal(SignalKind::from_raw(Signals::XFSZ.as_raw())).map(drop)
}

/// Time for a preparation to end by itself after a signal, as a command does that writes a dataset.
const PREPARATION: Duration = Duration::from_secs(2);

/// Listens on a separate thread until the process ends. The first signal drains, the second one stops at once, and
/// the third one ends the process; the first one does if datasets are still read after [`PREPARATION`]. A closed
/// terminal sends SIGHUP twice (from the system and the shell), so SIGHUP only drains.
pub fn listen(stop: Stop, events: mpsc::Sender<Event>) -> std::io::Result<()> {
    panics::set_switch(&stop);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build()?;
    let guard = runtime.enter();
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut hangup = if ignores_hangup() {
        None
    } else {
        Some(signal(SignalKind::hangup())?)
    };
    drop(guard);
    let wait = async move {
        loop {
            let signal = tokio::select! {
                signal = interrupt.recv() => signal,
                signal = terminate.recv() => signal,
                signal = receive(&mut hangup) => match stop.level() {
                    Level::Run => signal,
                    _ => continue,
                },
                () = sleep(PREPARATION), if stop.level() != Level::Run && stop.is_preparing() => {
                    if !stop.is_preparing() {
                        continue;
                    }
                    leave();
                    let _ = writeln!(stderr(), "stopped before the first request");
                    std::process::exit(Exit::Interrupted.code().into());
                }
                panic = panics::stuck() => {
                    leave();
                    // `eprintln!` would panic where stderr is gone.
                    let _ = writeln!(stderr(), "error: {panic}, and the run does not end; results \
                    so far are saved: llmscen report RUN_DIR");
                    std::process::exit(Exit::Error.code().into());
                }
            };
            if signal.is_none() {
                return;
            }
            if stop.level() == Level::Now {
                leave();
                let _ = writeln!(
                    stderr(),
                    "stopped; results so far are saved: llmscen report RUN_DIR"
                );
                std::process::exit(Exit::Interrupted.code().into());
            }
            stop.press();
            let _ = events.send(Event::Stopping(stop.level()));
        }
    };
    std::thread::Builder::new()
        .name("signals".into())
        .spawn(move || runtime.block_on(wait))?;
    Ok(())
}

async fn receive(signal: &mut Option<Signal>) -> Option<()> {
    match signal {
        Some(signal) => signal.recv().await,
        None => std::future::pending().await,
    }
}

/// Whether SIGHUP is ignored, as `nohup` does (Linux only).
fn ignores_hangup() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status
        .lines()
        .find_map(|line| u64::from_str_radix(line.strip_prefix("SigIgn:")?.trim(), 16).ok());
    ignored.is_some_and(|signals| signals & 1 == 1)
}
