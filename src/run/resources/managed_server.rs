//! Managed servers: started before their first round, shared by all rounds with the same specification, stopped at
//! the end.

use crate::run::context::Context;
use crate::run::error::RunError;
use crate::run::event::{Event, Preparing};
use crate::run::prepare::reach_started;
use crate::run::requests::prepared_case::PreparedCase;
use crate::run::stop::{Level, Stop};
use crate::store::RunDir;
use llmscen_client::server::{
    self, NotReady, ReadinessProbe, ReadyTimes, Server, ServerCommand, ServerError, ServerExit,
    log_tail,
};
use llmscen_core::manifest::Part;
use llmscen_core::plan::Case;
use llmscen_core::redact::Redactor;
use llmscen_core::target::{ManagedServer, Restart, ServerEnd, Startup, Target};
use llmscen_core::units::Nanos;
use llmscen_scenario::behind_flags;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::Future;
use std::time::{Duration, Instant};
use tokio::task::LocalSet;

/// A running managed server.
pub struct ManagedProcess {
    spec: ManagedServer,
    server: Server,
    redactor: Redactor,
    /// Its startup times, until a part records them.
    startup: RefCell<Option<Startup>>,
    /// Startup time until it was ready.
    ready: Cell<Nanos>,
    /// The round that it was started for.
    round: u32,
    /// Number of the start within the run, from 1.
    number: u32,
}

impl ManagedProcess {
    /// Number of the start within the run, from 1.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// The supervisor process, whose descendants are the processes of the server.
    pub fn supervisor(&self) -> u32 {
        self.server.supervisor_pid()
    }

    /// Presses this switch when the server exits.
    pub fn press_on_exit(&self, switch: &Stop) {
        let switch = switch.clone();
        self.server.on_end(move || switch.press());
    }

    /// Adds to the part of a finished round how the server started, and how it exited if it did. An exit is the fault
    /// that ends the case.
    pub fn describe(
        &self,
        part: &mut Part,
        origin: Instant,
        first_answer: Option<Nanos>,
    ) -> Option<RunError> {
        self.server.on_end(|| {});
        part.served_ready = Some(self.ready.get());
        part.server_start = Some(self.number);
        if let Some(startup) = self.startup.borrow_mut().take() {
            let first_token =
                first_answer.map(|answer| Nanos(startup.ready.0.saturating_add(answer.0)));
            part.startup = Some(Startup {
                first_token,
                ..startup
            });
        }
        let ServerExit { how, at } = self.server.ended()?;
        part.server_end = Some(ServerEnd {
            at_ns: signed_nanos(at, origin),
            how,
            log: self.log_tail(),
        });
        self.exit_error(&part.case)
    }

    /// The error of the case if the server has exited.
    fn exit_error(&self, case: &str) -> Option<RunError> {
        let ServerExit { how, .. } = self.server.ended()?;
        let file = self.server.log().to_owned();
        Some(
            ServerError::Exited {
                case: case.to_owned(),
                how,
                log: self.log_tail(),
                file,
            }
            .into(),
        )
    }

    /// The last lines of the log, without secrets.
    fn log_tail(&self) -> Vec<String> {
        log_tail(self.server.log())
            .iter()
            .map(|line| self.redactor.redact_truncated(line))
            .collect()
    }

    fn stop(self, stop: &Stop) {
        let log = self.server.log().to_owned();
        self.server.stop(&|| stop.level() == Level::Now);
        // A log that cannot be rewritten keeps its file mode: only its owner can read it.
        let _ = server::redact_log(&log, &|line| self.redactor.redact(line));
    }
}

/// The managed servers of a run. One runs at a time, since they share host and port.
#[derive(Default)]
pub struct ManagedServers {
    running: Option<ManagedProcess>,
    /// Number of starts per log name.
    starts: BTreeMap<String, usize>,
    /// Number of starts.
    started: u32,
}

impl ManagedServers {
    /// Counts the starts of an earlier process.
    pub fn continue_after(&mut self, parts: &[Part]) {
        let numbers = parts.iter().filter_map(|part| part.server_start);
        self.started = numbers.max().unwrap_or(0);
    }

    /// The running server, if this round of the case can use it.
    pub fn current(&self, case: &Case, round: u32) -> Option<&ManagedProcess> {
        let spec = case.target.server.as_ref();
        let is_usable = |process: &&ManagedProcess| {
            let can_serve = match process.spec.restart {
                Restart::Never | Restart::Variant => true,
                Restart::Round => process.round == round,
                Restart::Case => false,
            };
            spec == Some(&process.spec) && can_serve
        };
        self.running.as_ref().filter(is_usable)
    }

    /// The error of the case if the server of this round has exited.
    pub fn exit_error(&self, case: &Case, round: u32) -> Option<RunError> {
        self.current(case, round)?.exit_error(&case.id)
    }

    /// The server of a round, ready for requests: the running one if the round can use it, else a new one. None if
    /// the case has no managed server.
    ///
    /// # Errors
    /// It does not start: [`RunError::Server`]; or a signal came meanwhile: [`RunError::Interrupted`].
    pub fn start_for_round(
        &mut self,
        case: &Case,
        round: u32,
        prepared: &PreparedCase,
        folder: &RunDir,
        context: &Context,
    ) -> Result<Option<&ManagedProcess>, RunError> {
        if let Some(error) = self.exit_error(case, round) {
            return Err(error);
        }
        if self.current(case, round).is_none() {
            self.stop(&context.stop);
            if let (Some(spec), Some(url)) = (&case.target.server, case.target.urls().next()) {
                let mut log = self.next_log_name(&spec.log);
                // A run that goes on keeps its logs.
                while folder.file(&log).exists() {
                    log = self.next_log_name(&spec.log);
                }
                self.started += 1;
                let number = self.started;
                let start = Start {
                    spec,
                    url,
                    log,
                    case,
                    prepared,
                    folder,
                    context,
                    round,
                    number,
                };
                self.running = Some(start.run()?);
            }
        }
        Ok(self.running.as_ref())
    }

    /// Stops the running server and its descendants.
    pub fn stop(&mut self, stop: &Stop) {
        if let Some(process) = self.running.take() {
            process.stop(stop);
        }
    }

    /// The log name of another start: `server.log`, `server-2.log`, ….
    fn next_log_name(&mut self, log: &str) -> String {
        let number = self
            .starts
            .entry(log.to_owned())
            .and_modify(|number| *number += 1)
            .or_insert(1);
        match (*number, log.rsplit_once('.')) {
            (1, _) => log.to_owned(),
            (number, Some((stem, end))) => format!("{stem}-{number}.{end}"),
            (number, None) => format!("{log}-{number}"),
        }
    }
}

/// One start of a managed server.
struct Start<'a> {
    spec: &'a ManagedServer,
    url: &'a str,
    log: String,
    case: &'a Case,
    prepared: &'a PreparedCase,
    folder: &'a RunDir,
    context: &'a Context,
    round: u32,
    number: u32,
}

impl Start<'_> {
    fn run(&self) -> Result<ManagedProcess, RunError> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(RunError::Thread)?;
        let process = LocalSet::new().block_on(&runtime, self.start());
        // A host name may still be resolving; do not wait for it.
        runtime.shutdown_background();
        process
    }

    async fn start(&self) -> Result<ManagedProcess, RunError> {
        let probe = ReadinessProbe {
            readiness: &self.spec.ready,
            url: self.url,
            tls: &self.case.target.tls,
            interval: self.spec.interval.into(),
            timeout: self.spec.timeout.into(),
        };
        if let Some(address) = self.unless_stopped(server::find_listener(&probe)).await?? {
            return Err(ServerError::AddressInUse { address }.into());
        }
        let process = self.spawn()?;
        match self.wait_until_ready(&process, &probe).await {
            Ok(()) => Ok(process),
            Err(fault) => {
                process.stop(&self.context.stop);
                Err(fault)
            }
        }
    }

    fn spawn(&self) -> Result<ManagedProcess, RunError> {
        let spec = self.spec;
        let order = ServerCommand {
            command: self.command(),
            env: spec
                .env
                .iter()
                .map(|(name, value)| (name.clone(), value.expose().to_owned()))
                .collect(),
            cwd: spec.cwd.clone(),
            log: self.folder.file(&self.log),
            grace_ns: spec.grace.0,
        };
        let server = Server::start(&self.context.tool, &order)?;
        let redactor = redactor(&self.case.target, spec);
        let startup = Startup {
            pid: server.pid,
            command: quote_command(&spec.command, &redactor),
            log: self.log.clone(),
            spawned: nanos(server.spawned),
            ..Startup::default()
        };
        Ok(ManagedProcess {
            spec: spec.clone(),
            server,
            redactor,
            startup: RefCell::new(Some(startup)),
            ready: Cell::default(),
            round: self.round,
            number: self.number,
        })
    }

    /// Waits until the server is ready and its target can be reached, and records its startup times.
    async fn wait_until_ready(
        &self,
        process: &ManagedProcess,
        probe: &ReadinessProbe<'_>,
    ) -> Result<(), RunError> {
        let last_reported = Cell::new(u64::MAX);
        let report = || self.report_wait(process.server.asked, &last_reported);
        let ready = self
            .unless_stopped(server::wait_until_ready(&process.server, probe, &report))
            .await??;
        let ReadyTimes { port_open, ready } =
            ready.map_err(|error| startup_error(process, error, probe.timeout))?;
        self.send_progress(ready.as_secs(), Some(ready.as_secs()));
        process.ready.set(nanos(ready));
        if let Some(startup) = process.startup.borrow_mut().as_mut() {
            startup.port_open = port_open.map(nanos);
            startup.ready = nanos(ready);
        }
        let reached = tokio::select! {
            reached = reach_started(self.case, self.prepared, self.context) => reached,
            _ = process.server.exited() => Ok(()),
        };
        process.exit_error(&self.case.id).map_or(reached, Err)
    }

    /// The command; `llmscen` is this program, which need not be in the PATH.
    fn command(&self) -> Vec<String> {
        let mut command = self.spec.command.clone();
        if let Some(program) = command.first_mut().filter(|program| *program == "llmscen") {
            *program = self.context.tool.display().to_string();
        }
        command
    }

    /// The result of `work`, unless a signal comes first.
    async fn unless_stopped<T>(&self, work: impl Future<Output = T>) -> Result<T, RunError> {
        tokio::select! {
            biased;
            () = self.context.stop.reached(Level::Drain) => Err(RunError::Interrupted),
            done = work => Ok(done),
        }
    }

    /// Sends the elapsed time once a second.
    fn report_wait(&self, start: Instant, last_reported: &Cell<u64>) {
        let seconds = start.elapsed().as_secs();
        if last_reported.replace(seconds) != seconds {
            self.send_progress(seconds, None);
        }
    }

    fn send_progress(&self, done: u64, total: Option<u64>) {
        let _ = self.context.events.send(Event::Preparing(Preparing {
            what: "starting",
            unit: "s",
            done,
            total,
        }));
    }
}

fn startup_error(process: &ManagedProcess, error: NotReady, timeout: Duration) -> RunError {
    let log = process.log_tail();
    let file = process.server.log().to_owned();
    RunError::from(match error {
        NotReady::Ended(ServerExit { how, at }) => {
            let after_s = at
                .saturating_duration_since(process.server.asked)
                .as_secs_f64();
            ServerError::ExitedEarly {
                how,
                after_s,
                log,
                file,
            }
        }
        NotReady::Timeout(what) => {
            let what = process.redactor.redact_truncated(&what);
            ServerError::NotReady {
                what,
                timeout_s: timeout.as_secs_f64(),
                log,
                file,
            }
        }
    })
}

/// Removes the secrets of the target, and the values of flags of the command whose name marks them as secret.
fn redactor(target: &Target, spec: &ManagedServer) -> Redactor {
    target.redactor().with_flags(&behind_flags(&spec.command))
}

/// The command, quoted for a shell and without secrets.
fn quote_command(command: &[String], redactor: &Redactor) -> String {
    let word = |word: &String| {
        let clean = redactor.redact_truncated(word);
        if clean == *word {
            shell_words::quote(word).into_owned()
        } else {
            clean
        }
    };
    command.iter().map(word).collect::<Vec<_>>().join(" ")
}

fn nanos(span: Duration) -> Nanos {
    Nanos(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX))
}

/// Nanoseconds from the origin to `at`; negative if `at` is earlier.
fn signed_nanos(at: Instant, origin: Instant) -> i64 {
    let to_nanos = |span: Duration| i64::try_from(span.as_nanos()).unwrap_or(i64::MAX);
    at.checked_duration_since(origin)
        .map_or_else(|| -to_nanos(origin.duration_since(at)), to_nanos)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::collector::tally::Tally;
    use llmscen_core::outcome::{Outcome, Phase, Timeline};
    use llmscen_core::request::PreparedRequest;

    #[test]
    fn every_start_has_its_own_log() {
        let mut servers = ManagedServers::default();
        let names = ["server.log", "server.log", "other", "server.log", "other"]
            .map(|log| servers.next_log_name(log));
        assert_eq!(
            names,
            [
                "server.log",
                "server-2.log",
                "other",
                "server-3.log",
                "other-2"
            ]
        );
    }

    #[test]
    fn the_first_token_counts_from_the_send_time_of_its_request() {
        let outcome = |sent: Option<u64>, tokens: &[u64]| {
            let tokens = tokens.iter().map(|at| Nanos::from_millis(*at)).collect();
            Outcome {
                timeline: Timeline {
                    sent: sent.map(Nanos::from_millis),
                    tokens,
                    ..Timeline::default()
                },
                ..PreparedRequest::default().outcome(Phase::Measured)
            }
        };
        let outcomes = [
            outcome(Some(17_000), &[17_900]),
            outcome(Some(17_005), &[17_045, 17_060]),
            outcome(None, &[]),
            outcome(Some(1), &[]),
        ];
        let first_answer = |outcomes: &[Outcome]| {
            let mut tally = Tally::default();
            outcomes.iter().for_each(|outcome| tally.count(outcome));
            tally.first_answer()
        };
        assert_eq!(first_answer(&outcomes), Some(Nanos::from_millis(40)));
        assert_eq!(first_answer(&outcomes[2..]), None);
    }

    #[test]
    fn an_exit_before_time_zero_is_negative() {
        let origin = Instant::now() + Duration::from_secs(1);
        assert_eq!(
            signed_nanos(origin - Duration::from_millis(3), origin),
            -3_000_000
        );
        assert_eq!(
            signed_nanos(origin + Duration::from_millis(3), origin),
            3_000_000
        );
    }
}
