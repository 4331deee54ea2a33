//! The handle of a managed server in the process that runs the scenario.

use super::{KILL_WAIT, ServerCommand, ServerError, SupervisorEvent, instant, log};
use crate::server::supervisor::{descendants, is_running, signal};
use rustix::process::{Pid, Signal, kill_process_group};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// Time limit for the supervisor to report that it started the server.
const START_TIMEOUT: Duration = Duration::from_secs(30);
/// Interval between checks while a server stops.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Time that the supervisor may take in addition to the server.
const SUPERVISOR_SLACK: Duration = Duration::from_secs(2);

/// How and when a server exited.
#[derive(Clone, Debug, PartialEq)]
pub struct ServerExit {
    /// `exit status 1`, `signal 9`.
    pub how: String,
    /// When the supervisor noticed it.
    pub at: Instant,
}

/// Runs when the server exits.
type ExitHook = Box<dyn FnOnce() + Send>;

/// What the supervisor has reported so far.
#[derive(Default)]
struct State {
    /// Process id, and the times before and after the process was started.
    spawned: Option<(u32, Instant, Instant)>,
    failed: Option<String>,
    /// The supervisor has exited.
    finished: bool,
    exit_hook: Option<ExitHook>,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    ended: watch::Sender<Option<ServerExit>>,
    grace: Duration,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until `done`, up to a limit; returns whether it is done.
    fn wait(&self, limit: Duration, done: impl Fn(&State) -> bool) -> bool {
        let (state, _) = self
            .changed
            .wait_timeout_while(self.lock(), limit, |state| !done(state))
            .unwrap_or_else(PoisonError::into_inner);
        done(&state)
    }

    fn update(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.lock());
        self.changed.notify_all();
    }

    /// Records the exit of the server, once, and runs the hook.
    fn record_exit(&self, ended: ServerExit) {
        let first = self
            .ended
            .send_if_modified(|known| known.is_none() && known.replace(ended).is_none());
        if let Some(hook) = self.lock().exit_hook.take().filter(|_| first) {
            hook();
        }
    }
}

/// A managed server; dropping it stops the server.
pub struct Server {
    supervisor: Child,
    orders: Option<ChildStdin>,
    shared: Arc<Shared>,
    log: PathBuf,
    /// Process id.
    pub pid: u32,
    /// When the process was requested from the system.
    pub asked: Instant,
    /// How long the system took to create it.
    pub spawned: Duration,
}

impl Server {
    /// Starts a server under a supervisor, which is the program `tool` with the argument `guard`. The log is emptied.
    ///
    /// # Errors
    /// The log, the supervisor or the server cannot be created.
    pub fn start(tool: &Path, order: &ServerCommand) -> Result<Server, ServerError> {
        log::create(&order.log).map_err(|source| ServerError::Log {
            path: order.log.clone(),
            source,
        })?;
        let mut command = Command::new(tool);
        command
            .arg0("llmscen")
            .arg("guard")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .process_group(0);
        let mut supervisor = command.spawn().map_err(ServerError::Supervisor)?;
        let orders = supervisor.stdin.take();
        let events = supervisor.stdout.take();
        let shared = Arc::new(Shared {
            state: Mutex::default(),
            changed: Condvar::new(),
            ended: watch::Sender::new(None),
            grace: Duration::from_nanos(order.grace_ns),
        });
        let now = Instant::now();
        let log = order.log.clone();
        let mut server = Server {
            supervisor,
            orders,
            shared,
            log,
            pid: 0,
            asked: now,
            spawned: Duration::ZERO,
        };
        let line =
            serde_json::to_string(order).map_err(|error| ServerError::Supervisor(error.into()))?;
        server.send_order(&line).map_err(ServerError::Supervisor)?;
        let shared = server.shared.clone();
        let events =
            events.ok_or_else(|| ServerError::Supervisor(std::io::ErrorKind::Other.into()))?;
        let listen = move || receive_events(events, &shared);
        std::thread::Builder::new()
            .name("server".into())
            .spawn(listen)
            .map_err(ServerError::Supervisor)?;
        let started =
            |state: &State| state.spawned.is_some() || state.failed.is_some() || state.finished;
        server.shared.wait(START_TIMEOUT, started);
        let (spawned, failed) = {
            let mut state = server.shared.lock();
            (state.spawned, state.failed.take())
        };
        let Some((pid, asked, at)) = spawned else {
            let program = order.command.first().cloned().unwrap_or_default();
            return Err(ServerError::Start {
                program,
                why: failed.unwrap_or_else(|| "its supervisor did not respond".to_owned()),
            });
        };
        server.pid = pid;
        server.asked = asked;
        server.spawned = at.saturating_duration_since(asked);
        Ok(server)
    }

    fn send_order(&mut self, line: &str) -> std::io::Result<()> {
        match &mut self.orders {
            Some(orders) => writeln!(orders, "{line}").and_then(|()| orders.flush()),
            None => Ok(()),
        }
    }

    /// Process id of the supervisor, which is the parent of orphaned descendants of the server.
    pub fn supervisor_pid(&self) -> u32 {
        self.supervisor.id()
    }

    /// The log file.
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// How the server exited, if it did.
    pub fn ended(&self) -> Option<ServerExit> {
        self.shared.ended.borrow().clone()
    }

    /// Resolves when the server has exited.
    pub async fn exited(&self) -> ServerExit {
        // The sender lives in self, so the wait cannot fail.
        let mut ended = self.shared.ended.subscribe();
        match ended
            .wait_for(Option::is_some)
            .await
            .map(|ended| ended.clone())
        {
            Ok(Some(ended)) => ended,
            _ => std::future::pending().await,
        }
    }

    /// Runs `hook` when the server exits, or at once if it has. It replaces the previous hook.
    pub fn on_end(&self, hook: impl FnOnce() + Send + 'static) {
        let mut state = self.shared.lock();
        if self.shared.ended.borrow().is_none() {
            state.exit_hook = Some(Box::new(hook));
            return;
        }
        drop(state);
        hook();
    }

    /// Stops the server and its descendants: SIGTERM first, SIGKILL after the grace time or once `hurry` returns
    /// true. Returns the processes that survived SIGKILL.
    pub fn stop(mut self, hurry: &dyn Fn() -> bool) -> Vec<u32> {
        self.finish(hurry)
    }

    fn finish(&mut self, hurry: &dyn Fn() -> bool) -> Vec<u32> {
        // If the supervisor is gone, `receive_events` stops the server instead.
        let _ = self.send_order("stop");
        let began = Instant::now();
        let limit = self.shared.grace + KILL_WAIT + SUPERVISOR_SLACK;
        let mut hurried = false;
        while !self.shared.wait(POLL_INTERVAL, |state| state.finished) && began.elapsed() < limit {
            if !hurried && hurry() {
                hurried = true;
                let _ = self.send_order("kill");
            }
        }
        self.orders = None;
        let mut left = Vec::new();
        if !self.shared.lock().finished {
            // The supervisor hangs.
            let _ = self.supervisor.kill();
            left = stop_without_supervisor(self.pid, Duration::ZERO);
        }
        let _ = self.supervisor.wait();
        left.retain(|pid| is_running(*pid));
        left
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if self.orders.is_some() {
            self.finish(&|| false);
        }
    }
}

/// Processes the events of the supervisor until it exits.
fn receive_events(events: ChildStdout, shared: &Shared) {
    let mut stopped = false;
    for line in BufReader::new(events).lines().map_while(Result::ok) {
        match serde_json::from_str(&line) {
            Ok(SupervisorEvent::Spawned {
                pid,
                asked_ns,
                at_ns,
            }) => {
                shared
                    .update(|state| state.spawned = Some((pid, instant(asked_ns), instant(at_ns))));
            }
            Ok(SupervisorEvent::Failed { why }) => {
                stopped = true;
                shared.update(|state| state.failed = Some(why));
            }
            Ok(SupervisorEvent::Exited { how, at_ns }) => shared.record_exit(ServerExit {
                how,
                at: instant(at_ns),
            }),
            Ok(SupervisorEvent::Left { .. }) => stopped = true,
            Err(_) => {}
        }
    }
    let spawned = shared.lock().spawned;
    if let Some((pid, ..)) = spawned.filter(|_| !stopped) {
        // The supervisor was killed, so the server is stopped here.
        shared.record_exit(ServerExit {
            how: "its supervisor process was killed".to_owned(),
            at: Instant::now(),
        });
        stop_without_supervisor(pid, shared.grace);
    }
    shared.update(|state| state.finished = true);
}

/// Stops a server and its descendants without the supervisor; orphaned descendants are not found. Returns the
/// processes that are left.
fn stop_without_supervisor(pid: u32, grace: Duration) -> Vec<u32> {
    let Some(group) = i32::try_from(pid).ok().and_then(Pid::from_raw) else {
        return Vec::new();
    };
    let mut pids = descendants(pid);
    pids.insert(pid);
    let began = Instant::now();
    let mut terminated = false;
    loop {
        pids.extend(
            pids.iter()
                .flat_map(|pid| descendants(*pid))
                .collect::<Vec<_>>(),
        );
        pids.retain(|pid| is_running(*pid));
        if pids.is_empty() || began.elapsed() >= grace + KILL_WAIT {
            return pids.into_iter().collect();
        }
        let stop_signal = if began.elapsed() >= grace {
            Signal::KILL
        } else {
            Signal::TERM
        };
        if stop_signal == Signal::KILL || !std::mem::replace(&mut terminated, true) {
            let _ = kill_process_group(group, stop_signal);
            signal(pids.iter().copied(), stop_signal);
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}
