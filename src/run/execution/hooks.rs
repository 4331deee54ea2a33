//! Hooks: actions around the rounds, beside the load, and after the last load of a server.

mod busy;

use crate::run::api_keys::request_headers;
use crate::run::context::Context;
use crate::run::error::RunError;
use crate::run::event::{Event, Preparing};
use crate::run::execution::hooks::busy::{Busy, is_busy, is_cache_reset};
use crate::run::process::{POLL, Unfinished, describe_status, wait_for};
use crate::run::round::RoundInput;
use crate::run::stop::{Level, Stop};
use crate::store::{HOOKS_LOG, RunDir, THEN_LOG};
use llmscen_core::hooks::{Action, CommandResult, Method, Repeated, Step};
use llmscen_core::plan::{Case, Plan};
use llmscen_core::redact::Redactor;
use llmscen_core::target::Target;
use llmscen_telemetry::prometheus::{CallReply, Fetch, FetchError};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{JoinHandle, sleep};
use std::time::{Duration, Instant};

/// Bytes of a line that are redacted together.
const MAX_LINE: u64 = 1 << 20;
/// Bytes of a log; what follows is left out.
const MAX_LOG: u64 = 16 << 20;

/// The failure of a command that a signal ended.
pub(crate) const INTERRUPTED_COMMAND: &str = "interrupted";

/// The point of the actions beside a load.
const BESIDE: &str = "beside";

/// Why an action failed.
#[derive(Debug)]
enum Failure {
    Failed(String),
    Interrupted,
}

/// The state of the hooks of a run.
#[derive(Default)]
pub(crate) struct HookState {
    has_begun: bool,
    /// The latest start of a managed server that `before_variant` has run for.
    last_start: Option<u32>,
    /// Variants and targets without a managed server that `before_variant` has run for.
    seen: BTreeSet<String>,
}

impl HookState {
    /// Runs `before_run` before the first round.
    ///
    /// # Errors
    /// An action failed, or a signal came.
    pub fn before_run(
        &mut self,
        input: &RoundInput<'_>,
        context: &Context,
    ) -> Result<(), RunError> {
        if std::mem::replace(&mut self.has_begun, true) {
            return Ok(());
        }
        let actions = &input.case.hooks.before_run;
        RoundHooks { input, context }
            .run_all("before_run", actions)
            .map_err(|error| match error {
                RunError::Hook { why, .. } => RunError::BeforeRun(why),
                error => error,
            })
    }

    /// Runs `before_variant`, where the server is new, and `before_case`. `start`: the number of the managed server's
    /// start.
    ///
    /// # Errors
    /// An action failed, or a signal came.
    pub fn before_round(
        &mut self,
        input: &RoundInput<'_>,
        start: Option<u32>,
        context: &Context,
    ) -> Result<(), RunError> {
        let is_new = match start {
            Some(_) => std::mem::replace(&mut self.last_start, start) != start,
            None => self.seen.insert(target_key(input.case)),
        };
        let hooks = RoundHooks { input, context };
        if is_new {
            hooks.run_all("before_variant", &input.case.hooks.before_variant)?;
        }
        hooks.run_all("before_case", &input.case.hooks.before_case)
    }
}

/// What tells variants and targets without a managed server apart.
fn target_key(case: &Case) -> String {
    let variant = case.labels.get(llmscen_core::label::VARIANT);
    format!("{variant:?} {}", joined_urls(&case.target))
}

/// The URLs of a target, separated by spaces.
fn joined_urls(target: &Target) -> String {
    target.urls().collect::<Vec<_>>().join(" ")
}

/// Whether two cases have the same server: variants with equal servers do not.
fn has_same_server(one: &Case, other: &Case) -> bool {
    one.target.server == other.target.server && target_key(one) == target_key(other)
}

/// The cases with `on_fail` on the server of `last`, by index; None: those of every server.
pub(crate) fn cases_to_judge(plan: &Plan, last: Option<&Case>) -> Vec<usize> {
    let is_wanted = |case: &Case| {
        case.hooks.on_fail.is_some() && last.is_none_or(|last| has_same_server(last, case))
    };
    let cases = plan.cases.iter().enumerate();
    let wanted = cases.filter(|(_, case)| is_wanted(case));
    wanted.map(|(index, _)| index).collect()
}

/// Whether no later round of the plan uses the server of this one.
pub(crate) fn is_last_on_server(plan: &Plan, case: usize, round: u32) -> bool {
    let is_same = |other: usize| match (plan.cases.get(case), plan.cases.get(other)) {
        (Some(case), Some(other)) => has_same_server(case, other),
        _ => false,
    };
    let rounds = plan.rounds_in_order();
    let last = rounds.iter().rev().find(|planned| is_same(planned.case));
    last.is_some_and(|last| (last.case, last.round) == (case, round))
}

/// The hooks of one round.
pub(crate) struct RoundHooks<'a> {
    pub input: &'a RoundInput<'a>,
    pub context: &'a Context,
}

impl RoundHooks<'_> {
    /// Runs actions in order, up to the first that fails.
    pub fn run_all(&self, point: &'static str, actions: &[Action]) -> Result<(), RunError> {
        for action in actions {
            self.announce();
            let run = Runner::new(self.input, self.context).run(point, action, HOOKS_LOG);
            run.map_err(|failure| match failure {
                Failure::Interrupted => RunError::Interrupted,
                Failure::Failed(why) => RunError::Hook {
                    point,
                    case: self.input.case.id.clone(),
                    why: self.redactor().redact(why),
                },
            })?;
        }
        Ok(())
    }

    fn announce(&self) {
        let _ = self.context.events.send(Event::Preparing(Preparing {
            what: "running the hooks of",
            unit: "s",
            done: 0,
            total: None,
        }));
    }

    fn redactor(&self) -> Redactor {
        self.input.case.target.redactor()
    }

    /// Runs `after_case`. Returns a note for each action that failed.
    pub fn after_case(&self) -> Vec<String> {
        let actions = &self.input.case.hooks.after_case;
        let failure = |action| {
            let run = Runner::new(self.input, self.context).run("after_case", action, HOOKS_LOG);
            match run {
                Ok(()) | Err(Failure::Interrupted) => None,
                Err(Failure::Failed(why)) => Some(format!(
                    "`after_case` of `{}` failed: {}",
                    self.input.case.id,
                    self.redactor().redact(why)
                )),
            }
        };
        actions.iter().filter_map(failure).collect()
    }

    /// Starts the actions beside the load.
    pub fn start_beside(&self) -> Beside {
        let over = Arc::new(AtomicBool::new(false));
        let start = |repeated: &Repeated| {
            let (repeated, over) = (repeated.clone(), over.clone());
            let runner = Runner::new(self.input, self.context);
            let count = Arc::new(Mutex::new(Count::default()));
            let counted = count.clone();
            let name = repeated.action.step.describe();
            let thread = std::thread::Builder::new()
                .name("hook".to_owned())
                .spawn(move || runner.repeat(&repeated, &over, &counted));
            BesideAction {
                name: self.redactor().redact(name),
                count,
                thread: thread.ok(),
            }
        };
        let actions = self.input.case.hooks.beside.iter().map(start).collect();
        Beside {
            case: self.input.case.id.clone(),
            round: self.input.round + 1,
            over,
            actions,
        }
    }

    /// Runs the commands of `then`.
    pub fn then(&self) -> Vec<CommandResult> {
        let commands = &self.input.case.hooks.then;
        let result = |command: &llmscen_core::hooks::Command| {
            self.announce();
            let started = Instant::now();
            let runner = Runner::new(self.input, self.context);
            let run = runner.command("then", &command.command, command.timeout.into(), THEN_LOG);
            let (exit_code, failure) = match run {
                Ok((status, _)) if status.success() => (Some(0), None),
                Ok((status, _)) => (status.code(), Some(describe_status(status))),
                Err(Failure::Failed(why)) => (None, Some(self.redactor().redact(why))),
                Err(Failure::Interrupted) => (None, Some(INTERRUPTED_COMMAND.to_owned())),
            };
            CommandResult {
                name: command.name.clone(),
                case: self.input.case.id.clone(),
                exit_code,
                failure,
                seconds: started.elapsed().as_secs_f64(),
                log: THEN_LOG.to_owned(),
            }
        };
        commands.iter().map(result).collect()
    }
}

/// The actions beside a load.
pub(crate) struct Beside {
    case: String,
    round: u32,
    over: Arc<AtomicBool>,
    actions: Vec<BesideAction>,
}

struct BesideAction {
    name: String,
    count: Arc<Mutex<Count>>,
    thread: Option<JoinHandle<()>>,
}

/// How often an action ran.
#[derive(Default)]
struct Count {
    total: u64,
    failed: u64,
    last_failure: Option<String>,
}

impl Beside {
    /// Ends the actions. Returns a note on each.
    pub fn stop(self) -> Vec<String> {
        let Beside {
            case,
            round,
            over,
            actions,
        } = self;
        over.store(true, Ordering::Relaxed);
        let note = |action: BesideAction| {
            if let Some(thread) = action.thread {
                let _ = thread.join();
            }
            let count = action.count.lock().unwrap_or_else(PoisonError::into_inner);
            let Count {
                total,
                failed,
                last_failure,
            } = &*count;
            let why = last_failure
                .as_ref()
                .map(|why| format!(", the last one: {why}"))
                .unwrap_or_default();
            format!(
                "`{}` ran {total} times beside round {round} of `{case}`, {failed} failed{why}.",
                action.name
            )
        };
        actions.into_iter().map(note).collect()
    }
}

/// Runs actions, on any thread.
struct Runner {
    target: Target,
    case: String,
    round: u32,
    folder: RunDir,
    stop: Stop,
}

impl Runner {
    fn new(input: &RoundInput<'_>, context: &Context) -> Runner {
        Runner {
            target: input.case.target.clone(),
            case: input.case.id.clone(),
            round: input.round,
            folder: input.folder.clone(),
            stop: context.stop.clone(),
        }
    }

    fn run(&self, point: &str, action: &Action, log: &str) -> Result<(), Failure> {
        let timeout: Duration = action.timeout.into();
        let name = action.step.describe();
        let failed = |why| Failure::Failed(format!("{name}: {why}"));
        match &action.step {
            Step::Run(command) => {
                let (status, last) = self.command(point, command, timeout, log)?;
                if status.success() {
                    return Ok(());
                }
                let last = last.map(|line| format!(": {line}")).unwrap_or_default();
                Err(failed(format!("{}{last}", describe_status(status))))
            }
            Step::Call { method, url, body } => {
                // An action beside the load is repeated anyway.
                let may_wait = point != BESIDE;
                let called = self.call(*method, url, body.as_ref(), timeout, may_wait);
                called.map_err(|failure| match failure {
                    Failure::Failed(why) => failed(why),
                    Failure::Interrupted => failure,
                })
            }
        }
    }

    /// Sends an HTTP request, again and again while the server is busy, until the time limit.
    fn call(
        &self,
        method: Method,
        url: &str,
        body: Option<&Value>,
        timeout: Duration,
        may_wait: bool,
    ) -> Result<(), Failure> {
        let failed = |error: FetchError| Failure::Failed(error.to_string());
        let is_reset = body.is_none() && is_cache_reset(url);
        let started = Instant::now();
        let mut busy = Busy::default();
        loop {
            let remaining = timeout.saturating_sub(started.elapsed());
            let reply = match self.send(method, url, body, remaining) {
                Err(FetchError::Late(_)) if busy.attempts > 0 => break,
                reply => reply.map_err(failed)?,
            };
            if !is_busy(&reply, is_reset) {
                return reply.require_success().map_err(failed);
            }
            let pause = busy.record(&reply);
            if !may_wait || started.elapsed() + pause >= timeout {
                break;
            }
            self.pause(pause)?;
        }
        Err(Failure::Failed(busy.describe(started.elapsed())))
    }

    /// Waits before the next attempt.
    fn pause(&self, pause: Duration) -> Result<(), Failure> {
        let until = Instant::now() + pause;
        while Instant::now() < until {
            if self.stop.level() > Level::Run {
                return Err(Failure::Interrupted);
            }
            sleep(POLL.min(until.saturating_duration_since(Instant::now())));
        }
        Ok(())
    }

    fn send(
        &self,
        method: Method,
        url: &str,
        body: Option<&Value>,
        timeout: Duration,
    ) -> Result<CallReply, FetchError> {
        let (method, body) = match method {
            Method::Get => ("GET", None),
            Method::Post => (
                "POST",
                Some(body.map(ToString::to_string).unwrap_or_default()),
            ),
        };
        let signed = body.as_deref().unwrap_or_default();
        let headers = request_headers(&self.target, method, url, signed)?;
        Fetch::new(url, &headers, &self.target.tls, timeout)?.call(body)
    }

    /// Runs a command until it ends, and appends its output to a log of the run folder. Returns its status and the
    /// last line.
    fn command(
        &self,
        point: &str,
        command: &str,
        timeout: Duration,
        log: &str,
    ) -> Result<(ExitStatus, Option<String>), Failure> {
        let failed = |error: io::Error| Failure::Failed(format!("{command}: {error}"));
        let output = tempfile::tempfile_in(self.folder.path()).map_err(failed)?;
        let model = self.target.models.first();
        let mut child = Command::new("/bin/sh")
            .args(["-c", command])
            .env("LLMSCEN_URL", joined_urls(&self.target))
            .env(
                "LLMSCEN_MODEL",
                model.map_or("", |model| model.name.as_str()),
            )
            .env("LLMSCEN_CASE", &self.case)
            .env("LLMSCEN_ROUND", (self.round + 1).to_string())
            .env("LLMSCEN_RUN_DIR", self.folder.path())
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(output.try_clone().map_err(failed)?)
            .stderr(output.try_clone().map_err(failed)?)
            .spawn()
            .map_err(failed)?;
        let is_stopped = || self.stop.level() > Level::Run;
        let ended =
            wait_for(&mut child, timeout, is_stopped).map_err(|unfinished| match unfinished {
                Unfinished::Interrupted => Failure::Interrupted,
                Unfinished::Late => {
                    let limit = timeout.as_secs_f64();
                    Failure::Failed(format!("{command}: no end within {limit} s"))
                }
                Unfinished::Lost(error) => failed(error),
            });
        let heading = format!(
            "## {point} of {}, round {}: {command}\n",
            self.case,
            self.round + 1
        );
        let last = self.append(&heading, output, log).map_err(failed)?;
        Ok((ended?, last))
    }

    /// Appends the output of a command to a log, without secrets. Returns its last line.
    fn append(&self, heading: &str, mut output: File, log: &str) -> io::Result<Option<String>> {
        // Actions beside the load end at any time.
        static LOG: Mutex<()> = Mutex::new(());
        let _guard = LOG.lock().unwrap_or_else(PoisonError::into_inner);
        let redactor = self.target.redactor();
        let mut file = OpenOptions::new()
            .append(true)
            .create(true)
            .mode(0o600)
            .open(self.folder.file(log))?;
        let mut left = MAX_LOG.saturating_sub(file.metadata()?.len());
        if left > 0 {
            file.write_all(redactor.redact(heading.to_owned()).as_bytes())?;
        }
        output.seek(SeekFrom::Start(0))?;
        let mut output = BufReader::new(output);
        let mut last = None;
        let mut line = Vec::new();
        while output
            .by_ref()
            .take(MAX_LINE)
            .read_until(b'\n', &mut line)?
            > 0
        {
            let text = redactor.redact(String::from_utf8_lossy(&line).into_owned());
            if left > 0 {
                writeln!(file, "{}", text.trim_end())?;
                left = left.saturating_sub(text.len() as u64);
                if left == 0 {
                    writeln!(file, "… the log ends here: it is larger than 16 MiB")?;
                }
            }
            if !text.trim().is_empty() {
                last = Some(text.trim().to_owned());
            }
            line.clear();
        }
        Ok(last)
    }

    fn repeat(&self, repeated: &Repeated, over: &AtomicBool, count: &Mutex<Count>) {
        let every: Duration = repeated.every.into();
        let mut next = Instant::now();
        while !over.load(Ordering::Relaxed) {
            let now = Instant::now();
            if now < next {
                sleep(POLL.min(next - now));
                continue;
            }
            next = now + every;
            let result = self.run(BESIDE, &repeated.action, HOOKS_LOG);
            let mut count = count.lock().unwrap_or_else(PoisonError::into_inner);
            count.total += 1;
            if let Err(Failure::Failed(why)) = result {
                count.failed += 1;
                count.last_failure = Some(self.target.redactor().redact(why));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use llmscen_scenario::Input;
    use std::collections::BTreeMap;
    use std::path::Path;

    #[test]
    fn cases_of_a_later_variant_on_an_equal_server_are_not_judged_before_they_run() {
        let text = "version: 1\nname: t\ntarget: { url: 'http://127.0.0.1:1', model: m, server: { \
                    preset: simulator } }\ndataset: { kind: prompt, text: x }\nload: { \
                    concurrency: 1, requests: 1 }\nslo: [ 'ttft.p50 < 1s' ]\nvariants: { a: {}, \
                    b: { request.max_tokens: 9 } }\nmatrix: { request.temperature: [0, 1] \
                    }\nhooks: { on_fail: rerun_with_profile }\n";
        let env = BTreeMap::new();
        let input = Input {
            path: Path::new("t.yaml"),
            text: Some(text.to_owned()),
            env: &env,
            set: &[],
        };
        let plan = llmscen_scenario::load(&input)
            .unwrap_or_else(|faults| panic!("{}", faults.render(false, 120)))
            .plan;
        let ids: Vec<&str> = plan.cases.iter().map(|case| case.id.as_str()).collect();
        assert_eq!(
            ids,
            [
                "a,temperature=0",
                "a,temperature=1",
                "b,temperature=0",
                "b,temperature=1"
            ]
        );
        let last: Vec<bool> = (0..4)
            .map(|case| is_last_on_server(&plan, case, 0))
            .collect();
        assert_eq!(last, [false, true, false, true]);
        assert_eq!(cases_to_judge(&plan, Some(&plan.cases[1])), [0, 1]);
        assert_eq!(cases_to_judge(&plan, Some(&plan.cases[3])), [2, 3]);
        assert_eq!(cases_to_judge(&plan, None), [0, 1, 2, 3]);
    }
}
