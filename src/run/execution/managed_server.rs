//! The server under management: started before its first round, shared by all rounds of one description, stopped at the end.

use crate::run::error::RunError;
use crate::run::event::{Event, Preparing};
use crate::run::execution::Context;
use crate::run::execution::stop::{Level, Stop};
use crate::run::prepare::{PreparedCase, reach_started};
use crate::store::RunDir;
use llmscen_client::server::{self, Ended, NotReady, Order, ReadinessProbe, ReadyTimes, Server, ServerError, tail};
use llmscen_core::manifest::Part;
use llmscen_core::plan::Case;
use llmscen_core::redact::Redactor;
use llmscen_core::server::{ManagedServer, ServerEnd, Startup};
use llmscen_core::target::{Place, Target};
use llmscen_core::units::Nanos;
use llmscen_scenario::behind_flags;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::Future;
use std::time::{Duration, Instant};
use tokio::task::LocalSet;

/// A server that was started for a case.
pub struct ManagedProcess {
    spec: ManagedServer,
    server: Server,
    redactor: Redactor,
    /// How it came up, until a part has told it.
    startup: RefCell<Option<Startup>>,
    /// After how long it was ready.
    ready: Cell<Nanos>,
    /// The round that it was started for.
    round: u32,
    /// Its number among the starts of the run, from 1.
    number: u32,
}

impl ManagedProcess {
    /// The process below which all of its own are.
    pub fn guard(&self) -> u32 {
        self.server.supervisor_pid()
    }

    /// Has this switch pressed when the server ends: what is sent then would only be refused.
    pub fn stops(&self, switch: &Stop) {
        let switch = switch.clone();
        self.server.on_end(move || switch.press());
    }

    /// Writes into a part that has just been played how the server came up for it, and how it ended if it did: then that is what
    /// the run ends by.
    pub fn note(&self, part: &mut Part, origin: Instant, first_answer: Option<Nanos>) -> Option<RunError> {
        self.server.on_end(|| {});
        part.served_ready = Some(self.ready.get());
        part.server_start = Some(self.number);
        if let Some(startup) = self.startup.borrow_mut().take() {
            let first_token = first_answer.map(|own| Nanos(startup.ready.0.saturating_add(own.0)));
            part.startup = Some(Startup { first_token, ..startup });
        }
        let Ended { how, at } = self.server.ended()?;
        let log = self.last_words();
        part.server_end = Some(ServerEnd { at_ns: signed(at, origin), how: how.clone(), log: log.clone() });
        Some(ServerError::Exited { case: part.case.clone(), how, log, file: self.server.log().to_owned() }.into())
    }

    /// How it has ended, as what ends the case.
    fn lost(&self, case: &Case) -> Option<RunError> {
        let Ended { how, .. } = self.server.ended()?;
        let (log, file) = (self.last_words(), self.server.log().to_owned());
        Some(ServerError::Exited { case: case.id.clone(), how, log, file }.into())
    }

    fn last_words(&self) -> Vec<String> {
        tail(self.server.log()).iter().map(|line| self.redactor.clean(line)).collect()
    }

    fn stop(self, stop: &Stop) {
        let log = self.server.log().to_owned();
        self.server.stop(&|| stop.level() == Level::Now);
        // A log that cannot be written again keeps its mode: its owner alone can read it.
        let _ = server::redact_log(&log, &|line| self.redactor.strike(line));
    }
}

/// The servers of a run: one at a time, for they share machine and port.
#[derive(Default)]
pub struct ManagedServers {
    running: Option<ManagedProcess>,
    /// Starts by the name of their log.
    starts: BTreeMap<String, usize>,
    /// Whether a round needs a start of its own.
    restart: bool,
}

impl ManagedServers {
    /// None runs yet. `restart`: each round has a start of its own.
    pub fn new(restart: bool) -> ManagedServers {
        ManagedServers { restart, ..ManagedServers::default() }
    }

    /// The one that runs, where this round of the case is measured on it.
    pub fn current(&self, case: &Case, round: u32) -> Option<&ManagedProcess> {
        let wanted = case.target.server.as_ref();
        let same =
            |own: &&ManagedProcess| wanted == Some(&own.spec) && !own.spec.per_case && (!self.restart || own.round == round);
        self.running.as_ref().filter(same)
    }

    /// How the one on which this round of the case is measured has ended.
    pub fn lost(&self, case: &Case, round: u32) -> Option<RunError> {
        self.current(case, round)?.lost(case)
    }

    /// The server of a round of a case, ready to be measured: the one that runs where it is the same and no new one is wanted. None
    /// where the case has none.
    ///
    /// # Errors
    /// It cannot be had: [`RunError::Server`]; or a signal came meanwhile: [`RunError::Interrupted`].
    pub fn of(
        &mut self,
        (case, round): (&Case, u32),
        prepared: &PreparedCase,
        folder: &RunDir,
        context: &Context,
    ) -> Result<Option<&ManagedProcess>, RunError> {
        if let Some(lost) = self.lost(case, round) {
            return Err(lost);
        }
        if self.current(case, round).is_none() {
            self.stop(&context.stop);
            if let (Some(spec), Place::Url(url)) = (&case.target.server, &case.target.place) {
                let log = self.name(&spec.log);
                let number = self.starts.values().sum::<usize>() as u32;
                let start = Start { spec, url, log, case, prepared, context, round, number };
                self.running = Some(start.run(folder)?);
            }
        }
        Ok(self.running.as_ref())
    }

    /// Stops the one that runs, with all that it started.
    pub fn stop(&mut self, stop: &Stop) {
        if let Some(own) = self.running.take() {
            own.stop(stop);
        }
    }

    /// The log of one more start: `server.log`, `server-2.log`, ….
    fn name(&mut self, log: &str) -> String {
        let number = self.starts.entry(log.to_owned()).and_modify(|number| *number += 1).or_insert(1);
        match (*number, log.rsplit_once('.')) {
            (1, _) => log.to_owned(),
            (number, Some((stem, end))) => format!("{stem}-{number}.{end}"),
            (number, None) => format!("{log}-{number}"),
        }
    }
}

/// One start.
struct Start<'a> {
    spec: &'a ManagedServer,
    url: &'a str,
    log: String,
    case: &'a Case,
    prepared: &'a PreparedCase,
    context: &'a Context,
    round: u32,
    number: u32,
}

impl Start<'_> {
    fn run(&self, folder: &RunDir) -> Result<ManagedProcess, RunError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(RunError::Thread)?;
        let managed = LocalSet::new().block_on(&runtime, self.start(folder));
        // A name that is still being resolved must not be waited for.
        runtime.shutdown_background();
        managed
    }

    async fn start(&self, folder: &RunDir) -> Result<ManagedProcess, RunError> {
        let (spec, target) = (self.spec, &self.case.target);
        let wanted = ReadinessProbe {
            readiness: &spec.ready,
            url: self.url,
            tls: &target.tls,
            interval: spec.interval.into(),
            timeout: spec.timeout.into(),
        };
        if let Some(address) = self.unless_stopped(server::answers(&wanted)).await?? {
            return Err(ServerError::AddressInUse { address }.into());
        }
        let order = Order {
            command: self.command(),
            env: spec.env.iter().map(|(name, value)| (name.clone(), value.expose().to_owned())).collect(),
            cwd: spec.cwd.clone(),
            log: folder.file(&self.log),
            grace_ns: spec.grace.0,
        };
        let server = Server::start(&self.context.tool, &order)?;
        let redactor = redactor(target, spec);
        let startup = Startup {
            pid: server.pid,
            command: shown(&spec.command, &redactor),
            log: self.log.clone(),
            spawned: nanos(server.spawned),
            ..Startup::default()
        };
        let managed = ManagedProcess {
            spec: spec.clone(),
            server,
            redactor,
            startup: RefCell::default(),
            ready: Cell::default(),
            round: self.round,
            number: self.number,
        };
        let told = Cell::new(u64::MAX);
        let beat = || self.beat(managed.server.asked, &told);
        let ready = self.unless_stopped(server::ready(&managed.server, &wanted, &beat)).await;
        let ready = match ready {
            Ok(ready) => ready.map_err(RunError::from).and_then(|came| came.map_err(|not| failed(&managed, not, wanted.timeout))),
            Err(interrupted) => Err(interrupted),
        };
        let ReadyTimes { port_open, ready } = match ready {
            Ok(came) => came,
            // A second signal must find somebody who listens while it ends.
            Err(fault) => {
                managed.stop(&self.context.stop);
                return Err(fault);
            }
        };
        self.say(ready.as_secs(), Some(ready.as_secs()));
        managed.ready.set(nanos(ready));
        managed.startup.replace(Some(Startup { port_open: port_open.map(nanos), ready: nanos(ready), ..startup }));
        let reached = tokio::select! {
            reached = reach_started(self.case, self.prepared, self.context) => reached,
            _ = managed.server.exited() => Ok(()),
        };
        if let Err(fault) = managed.lost(self.case).map_or(reached, Err) {
            managed.stop(&self.context.stop);
            return Err(fault);
        }
        Ok(managed)
    }

    /// The words of its command; `llmscen` is this program, which need not be in the PATH.
    fn command(&self) -> Vec<String> {
        let mut command = self.spec.command.clone();
        if let Some(program) = command.first_mut().filter(|program| *program == "llmscen") {
            *program = self.context.tool.display().to_string();
        }
        command
    }

    /// What `work` comes to, unless a signal comes first.
    async fn unless_stopped<T>(&self, work: impl Future<Output = T>) -> Result<T, RunError> {
        tokio::select! {
            biased;
            () = self.context.stop.reached(Level::Drain) => Err(RunError::Interrupted),
            done = work => Ok(done),
        }
    }

    /// Says once a second how long it has taken.
    fn beat(&self, asked: Instant, told: &Cell<u64>) {
        let seconds = asked.elapsed().as_secs();
        if told.replace(seconds) != seconds {
            self.say(seconds, None);
        }
    }

    fn say(&self, done: u64, total: Option<u64>) {
        let _ = self.context.events.send(Event::Preparing(Preparing { what: "starting", unit: "s", done, total }));
    }
}

fn failed(managed: &ManagedProcess, not: NotReady, timeout: Duration) -> RunError {
    let (log, file) = (managed.last_words(), managed.server.log().to_owned());
    let clean = |text: String| managed.redactor.clean(&text);
    RunError::from(match not {
        NotReady::Ended(Ended { how, at }) => {
            let after_s = at.saturating_duration_since(managed.server.asked).as_secs_f64();
            ServerError::ExitedEarly { how, after_s, log, file }
        }
        NotReady::Timeout(what) => ServerError::NotReady { what: clean(what), timeout_s: timeout.as_secs_f64(), log, file },
    })
}

/// Knows the target's secrets, and what stands behind a flag of the command that is called one.
fn redactor(target: &Target, spec: &ManagedServer) -> Redactor {
    Redactor::of(target).behind(&behind_flags(&spec.command))
}

/// A command as a shell reads it, secrets removed.
fn shown(command: &[String], redactor: &Redactor) -> String {
    let word = |word: &String| {
        let clean = redactor.clean(word);
        if clean == *word { shell_words::quote(word).into_owned() } else { clean }
    };
    command.iter().map(word).collect::<Vec<_>>().join(" ")
}

fn nanos(span: Duration) -> Nanos {
    Nanos(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX))
}

/// Nanoseconds from the origin to an instant; negative where it was before.
fn signed(at: Instant, origin: Instant) -> i64 {
    let whole = |span: Duration| i64::try_from(span.as_nanos()).unwrap_or(i64::MAX);
    at.checked_duration_since(origin).map_or_else(|| -whole(origin.duration_since(at)), whole)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::collector::tally::Tally;
    use llmscen_core::call::Call;
    use llmscen_core::outcome::{Outcome, Phase, Timeline};

    #[test]
    fn every_start_has_a_log_of_its_own() {
        let mut servers = ManagedServers::default();
        let names = ["server.log", "server.log", "other", "server.log", "other"].map(|log| servers.name(log));
        assert_eq!(names, ["server.log", "server-2.log", "other", "server-3.log", "other-2"]);
    }

    #[test]
    fn the_first_token_is_that_of_the_first_answer_without_what_went_before_its_sending() {
        let outcome = |sent: Option<u64>, tokens: &[u64]| {
            let tokens = tokens.iter().map(|at| Nanos::from_millis(*at)).collect();
            Outcome {
                timeline: Timeline { sent: sent.map(Nanos::from_millis), tokens, ..Timeline::default() },
                ..Call::default().outcome(Phase::Measured)
            }
        };
        let all = [
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
        assert_eq!(first_answer(&all), Some(Nanos::from_millis(40)));
        assert_eq!(first_answer(&all[2..]), None);
    }

    #[test]
    fn an_end_before_time_zero_is_negative() {
        let origin = Instant::now() + Duration::from_secs(1);
        assert_eq!(signed(origin - Duration::from_millis(3), origin), -3_000_000);
        assert_eq!(signed(origin + Duration::from_millis(3), origin), 3_000_000);
    }
}
