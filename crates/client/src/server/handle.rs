//! A server under management, as the tool holds it.

use super::{HARD, Order, ServerError, Word, instant, log};
use crate::server::supervisor::{descendants, lives, signal};
use rustix::process::{Pid, Signal, kill_process_group};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// A guard that says nothing for so long once it was asked to start a server is broken.
const PATIENCE: Duration = Duration::from_secs(30);
/// The switch is looked at this often while a server ends.
const LOOK: Duration = Duration::from_millis(20);
/// What a guard may take beyond what the server may.
const SLACK: Duration = Duration::from_secs(2);

/// How a server ended, and when.
#[derive(Clone, Debug, PartialEq)]
pub struct Ended {
    /// `exit status 1`, `signal 9`.
    pub how: String,
    /// When the system told of it.
    pub at: Instant,
}

/// What has to be done when the server ends.
type Act = Box<dyn FnOnce() + Send>;

/// What the guard has said so far.
#[derive(Default)]
struct State {
    /// The server's process id, when the system was asked for it, and when it was there.
    spawned: Option<(u32, Instant, Instant)>,
    failed: Option<String>,
    /// Nothing more comes.
    over: bool,
    act: Option<Act>,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    ended: watch::Sender<Option<Ended>>,
    grace: Duration,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until `done`, but no longer than that; whether it came to it.
    fn wait(&self, longest: Duration, done: impl Fn(&State) -> bool) -> bool {
        let (state, _) =
            self.changed.wait_timeout_while(self.lock(), longest, |state| !done(state)).unwrap_or_else(PoisonError::into_inner);
        done(&state)
    }

    fn change(&self, act: impl FnOnce(&mut State)) {
        act(&mut self.lock());
        self.changed.notify_all();
    }

    /// Notes how the server ended, the first time.
    fn end(&self, ended: Ended) {
        let first = self.ended.send_if_modified(|known| known.is_none() && known.replace(ended).is_none());
        if let Some(act) = self.lock().act.take().filter(|_| first) {
            act();
        }
    }
}

/// A server that runs, or has run; it is stopped when this is dropped.
pub struct Server {
    guard: Child,
    orders: Option<ChildStdin>,
    shared: Arc<Shared>,
    log: PathBuf,
    /// Its process id.
    pub pid: u32,
    /// When the system was asked for its process.
    pub asked: Instant,
    /// How long that took.
    pub spawned: Duration,
}

impl Server {
    /// Starts it under a guard, which is the program `tool` with the argument `guard`. Its log begins empty.
    ///
    /// # Errors
    /// Neither guard nor server, or no log.
    pub fn start(tool: &Path, order: &Order) -> Result<Server, ServerError> {
        log::begin(&order.log).map_err(|source| ServerError::Log { path: order.log.clone(), source })?;
        let mut command = Command::new(tool);
        command.arg0("llmscen").arg("guard").stdin(Stdio::piped()).stdout(Stdio::piped()).process_group(0);
        let mut guard = command.spawn().map_err(ServerError::Guard)?;
        let (orders, words) = (guard.stdin.take(), guard.stdout.take());
        let shared = Arc::new(Shared {
            state: Mutex::default(),
            changed: Condvar::new(),
            ended: watch::Sender::new(None),
            grace: Duration::from_nanos(order.grace_ns),
        });
        let now = Instant::now();
        let log = order.log.clone();
        let mut server = Server { guard, orders, shared, log, pid: 0, asked: now, spawned: Duration::ZERO };
        let line = serde_json::to_string(order).map_err(|error| ServerError::Guard(error.into()))?;
        server.order(&line).map_err(ServerError::Guard)?;
        let (shared, words) = (server.shared.clone(), words.ok_or_else(|| ServerError::Guard(std::io::ErrorKind::Other.into()))?);
        let listen = move || listen(words, &shared);
        std::thread::Builder::new().name("server".into()).spawn(listen).map_err(ServerError::Guard)?;
        let told = |state: &State| state.spawned.is_some() || state.failed.is_some() || state.over;
        server.shared.wait(PATIENCE, told);
        let (spawned, failed) = {
            let mut state = server.shared.lock();
            (state.spawned, state.failed.take())
        };
        let Some((pid, asked, at)) = spawned else {
            let program = order.command.first().cloned().unwrap_or_default();
            return Err(ServerError::Start { program, why: failed.unwrap_or_else(|| "its guard did not answer".to_owned()) });
        };
        (server.pid, server.asked, server.spawned) = (pid, asked, at.saturating_duration_since(asked));
        Ok(server)
    }

    fn order(&mut self, line: &str) -> std::io::Result<()> {
        match &mut self.orders {
            Some(orders) => writeln!(orders, "{line}").and_then(|()| orders.flush()),
            None => Ok(()),
        }
    }

    /// The process that watches over it: parent of whatever has lost its own below it.
    pub fn guard(&self) -> u32 {
        self.guard.id()
    }

    /// Its log.
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// How it ended, if it did.
    pub fn ended(&self) -> Option<Ended> {
        self.shared.ended.borrow().clone()
    }

    /// Resolves when it has ended.
    pub async fn over(&self) -> Ended {
        // The sender lives in self, so the wait cannot fail.
        let mut ended = self.shared.ended.subscribe();
        match ended.wait_for(Option::is_some).await.map(|own| own.clone()) {
            Ok(Some(ended)) => ended,
            _ => std::future::pending().await,
        }
    }

    /// Has something done when it ends, at once where it has; in place of what was to be done before.
    pub fn on_end(&self, act: impl FnOnce() + Send + 'static) {
        let mut state = self.shared.lock();
        if self.shared.ended.borrow().is_none() {
            state.act = Some(Box::new(act));
            return;
        }
        drop(state);
        act();
    }

    /// Stops it with all that it started: asked to end, killed after its grace, or when there is a `hurry`. No process is left,
    /// but for what not even SIGKILL ends within seconds: the ids of those.
    pub fn stop(mut self, hurry: &dyn Fn() -> bool) -> Vec<u32> {
        self.finish(hurry)
    }

    fn finish(&mut self, hurry: &dyn Fn() -> bool) -> Vec<u32> {
        // A guard that is gone hears nothing, and whoever listens to it knows.
        let _ = self.order("stop");
        let (began, longest, mut hurried) = (Instant::now(), self.shared.grace + HARD + SLACK, false);
        while !self.shared.wait(LOOK, |state| state.over) && began.elapsed() < longest {
            if !hurried && hurry() {
                hurried = true;
                let _ = self.order("kill");
            }
        }
        self.orders = None;
        let mut left = Vec::new();
        if !self.shared.lock().over {
            // Whatever holds the guard: its own kind of end is the one that works.
            let _ = self.guard.kill();
            left = end_by_hand(self.pid, Duration::ZERO);
        }
        let _ = self.guard.wait();
        left.retain(|pid| lives(*pid));
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

/// Hears what the guard says, until it says no more.
fn listen(words: ChildStdout, shared: &Shared) {
    let mut left = None;
    for line in BufReader::new(words).lines().map_while(Result::ok) {
        match serde_json::from_str(&line) {
            Ok(Word::Spawned { pid, asked_ns, at_ns }) => {
                shared.change(|state| state.spawned = Some((pid, instant(asked_ns), instant(at_ns))));
            }
            Ok(Word::Failed { why }) => {
                left = Some(());
                shared.change(|state| state.failed = Some(why));
            }
            Ok(Word::Exited { how, at_ns }) => shared.end(Ended { how, at: instant(at_ns) }),
            Ok(Word::Left { .. }) => left = Some(()),
            Err(_) => {}
        }
    }
    let spawned = shared.lock().spawned;
    if let Some((pid, ..)) = spawned.filter(|_| left.is_none()) {
        // The guard was killed: what it would have done is done from here.
        shared.end(Ended { how: "the process that watched over it was killed".to_owned(), at: Instant::now() });
        end_by_hand(pid, shared.grace);
    }
    shared.change(|state| state.over = true);
}

/// Ends a server and what stands below it without its guard; what has no parent there any more is beyond reach. The ids of those
/// that are left.
fn end_by_hand(pid: u32, grace: Duration) -> Vec<u32> {
    let Some(group) = i32::try_from(pid).ok().and_then(Pid::from_raw) else { return Vec::new() };
    let mut all = descendants(pid);
    all.insert(pid);
    let began = Instant::now();
    let mut asked = false;
    loop {
        all.extend(all.iter().flat_map(|pid| descendants(*pid)).collect::<Vec<_>>());
        all.retain(|pid| lives(*pid));
        if all.is_empty() || began.elapsed() >= grace + HARD {
            return all.into_iter().collect();
        }
        let which = if began.elapsed() >= grace { Signal::KILL } else { Signal::TERM };
        if which == Signal::KILL || !std::mem::replace(&mut asked, true) {
            let _ = kill_process_group(group, which);
            signal(all.iter().copied(), which);
        }
        std::thread::sleep(LOOK);
    }
}
