//! Keys that commands print, and credentials of AWS: obtained before the first request, and renewed beside the load.

use crate::run::aws_credentials::{self, AwsSource, Loaded};
use crate::run::context::Context;
use crate::run::error::RunError;
use crate::run::process::{Unfinished, describe_status, wait_for};
use crate::run::stop::{Level, Stop};
use llmscen_client::aws::AwsSigner;
use llmscen_core::api_key::{ApiKey, KeyValue, ObtainedKeys};
use llmscen_core::plan::Plan;
use llmscen_core::redact::{Redactor, SHORTEST, Secret};
use llmscen_core::target::Target;
use llmscen_scenario::behind_flags;
use llmscen_telemetry::process::lower_thread_priority;
use llmscen_telemetry::prometheus::FetchError;
use reqwest::Url;
use rustix::io::ioctl_fionbio;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{JoinHandle, sleep};
use std::time::{Duration, Instant, SystemTime};

/// Interval at which refused keys and the end of the run are noticed.
const IDLE_POLL: Duration = Duration::from_millis(100);
/// Maximum time of a call.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Maximum number of bytes of a key.
const MAX_KEY: usize = 16 * 1024;
/// Bytes of stderr that are kept.
const MAX_STDERR: usize = 64 * 1024;
/// Maximum number of bytes that are read at once: more than a pipe holds.
const MAX_READ: usize = 256 * 1024;
/// Minimum time between two calls after refused keys: every request in flight may be refused.
const REFUSED_PAUSE: Duration = Duration::from_secs(5);
/// Time until a failed call is repeated: at first, and at most.
const RETRY: Duration = Duration::from_secs(5);
const MAX_RETRY: Duration = Duration::from_secs(300);

/// Obtains the key of one target, unless it is fixed.
///
/// # Errors
/// There is no key, or a signal came.
pub(crate) fn obtain_key(target: &Target, context: &Context) -> Result<(), RunError> {
    let caller = target
        .api_key
        .as_ref()
        .and_then(|key| KeyCaller::new(key, target.redactor(), context));
    caller.map_or(Ok(()), |caller| caller.call_first(&context.stop).map(drop))
}

/// The headers of a request other than those of the load: headers and key of the target, or its signature if the
/// request goes to the target's server.
pub(crate) fn request_headers(
    target: &Target,
    method: &str,
    url: &str,
    body: &str,
) -> Result<Vec<(String, Secret)>, FetchError> {
    let mut headers = target.request_headers();
    let latest = target.obtained_keys().and_then(ObtainedKeys::latest);
    let credentials = latest.as_ref().and_then(|key| key.aws());
    if let Some((signing, credentials)) = target.aws().zip(credentials)
        && target.urls().any(|own_url| is_same_origin(url, own_url))
    {
        let signer = AwsSigner::new(&signing.service, credentials);
        let signed = signer.sign_text(method, url, body.as_bytes(), SystemTime::now());
        headers.extend(signed.map_err(|error| FetchError::Settings(error.to_string()))?);
    }
    Ok(headers)
}

fn is_same_origin(url: &str, other: &str) -> bool {
    let (url, other) = (Url::parse(url), Url::parse(other));
    url.is_ok_and(|url| other.is_ok_and(|other| url.origin() == other.origin()))
}

/// Renews the keys of a plan until it is dropped.
#[derive(Default)]
pub(crate) struct KeyRenewal {
    over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Option<String>>>,
}

impl KeyRenewal {
    /// Obtains the first keys, and starts a thread for each source of keys.
    ///
    /// # Errors
    /// There is no key, or a signal came.
    pub fn start(plan: &Plan, context: &Context) -> Result<KeyRenewal, RunError> {
        let mut renewal = KeyRenewal::default();
        let obtained = plan.obtained_keys().into_iter();
        for caller in obtained.filter_map(|key| KeyCaller::new(key, plan.redactor(), context)) {
            let every = caller.call_first(&context.stop)?;
            let over = renewal.over.clone();
            let thread = std::thread::Builder::new()
                .name("api key".to_owned())
                .spawn(move || {
                    lower_thread_priority();
                    caller.renew(every, &over)
                });
            renewal.threads.push(thread.map_err(RunError::Thread)?);
        }
        Ok(renewal)
    }

    /// Ends the threads. Returns a note on each source that failed, or whose key was refused.
    pub fn stop(mut self) -> Vec<String> {
        self.over.store(true, Ordering::Relaxed);
        let threads = std::mem::take(&mut self.threads).into_iter();
        threads.filter_map(|thread| thread.join().ok()?).collect()
    }
}

impl Drop for KeyRenewal {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// Why a call yielded no key.
enum CallError {
    Interrupted,
    Failed(String),
}

/// Where keys come from.
enum KeySource {
    Command { argv: Vec<String>, every: Duration },
    Aws(AwsSource),
}

/// Obtains keys from one source.
struct KeyCaller {
    source: KeySource,
    keys: ObtainedKeys,
    /// The source without secrets.
    name: String,
    redactor: Redactor,
}

/// What happened after the first call.
#[derive(Default)]
struct Renewals {
    failed: u64,
    /// Calls because the server refused the key.
    refused: u64,
    last_failure: Option<String>,
}

impl KeyCaller {
    /// None for a fixed key.
    fn new(key: &ApiKey, redactor: Redactor, context: &Context) -> Option<KeyCaller> {
        Some(match key {
            ApiKey::Fixed(_) => return None,
            ApiKey::Command(command) => {
                let redactor = redactor.with_flags(&behind_flags(&command.argv));
                KeyCaller {
                    name: format!("`{}`", redactor.redact(shell_words::join(&command.argv))),
                    source: KeySource::Command {
                        argv: command.argv.clone(),
                        every: command.every.into(),
                    },
                    keys: command.keys.clone(),
                    redactor,
                }
            }
            ApiKey::Aws(signing) => KeyCaller {
                name: "the source of AWS credentials".to_owned(),
                source: KeySource::Aws(AwsSource::new(signing, context)),
                keys: signing.keys.clone(),
                redactor,
            },
        })
    }

    fn call_first(&self, stop: &Stop) -> Result<Duration, RunError> {
        let called = self.call(&|| stop.level() > Level::Run);
        called.map_err(|error| match (error, &self.source) {
            (CallError::Interrupted, _) => RunError::Interrupted,
            (CallError::Failed(why), KeySource::Aws(_)) => RunError::NoAwsCredentials(why),
            (CallError::Failed(why), KeySource::Command { .. }) => RunError::NoKey {
                command: self.name.clone(),
                why,
            },
        })
    }

    /// Obtains keys again and again until the run is over. Returns a note if something was unusual. `every`: time to
    /// the first renewal.
    fn renew(&self, mut every: Duration, over: &AtomicBool) -> Option<String> {
        let is_over = || over.load(Ordering::Relaxed);
        let mut renewals = Renewals::default();
        let mut retry = RETRY;
        let mut next = Instant::now() + every;
        let mut last_refused: Option<Instant> = None;
        while !is_over() {
            let is_refused = self.keys.is_refused()
                && last_refused.is_none_or(|last| last.elapsed() >= REFUSED_PAUSE);
            if Instant::now() < next && !is_refused {
                sleep(IDLE_POLL.min(next.saturating_duration_since(Instant::now())));
                continue;
            }
            if is_refused {
                renewals.refused += 1;
                last_refused = Some(Instant::now());
            }
            match self.call(&is_over) {
                Ok(renewal) => {
                    retry = RETRY;
                    every = renewal;
                    next = Instant::now() + every;
                }
                Err(CallError::Interrupted) => break,
                Err(CallError::Failed(why)) => {
                    renewals.failed += 1;
                    renewals.last_failure = Some(why);
                    next = Instant::now() + retry.min(every);
                    retry = (retry * 2).min(MAX_RETRY);
                }
            }
        }
        renewals.note(&self.source, &self.name)
    }

    /// Obtains a key once and adds it. Returns the time to the next call.
    fn call(&self, is_over: &dyn Fn() -> bool) -> Result<Duration, CallError> {
        let (key, every) = match &self.source {
            KeySource::Command { argv, every } => {
                let printed = self.run(argv, is_over)?;
                check_key(&printed).map_err(CallError::Failed)?;
                (KeyValue::from(printed.as_str()), *every)
            }
            KeySource::Aws(source) => {
                let (credentials, every) = match source.load().map_err(CallError::Failed)? {
                    Loaded::Keys(credentials) => (credentials, aws_credentials::REREAD),
                    Loaded::Process { argv, region } => {
                        let named = |error| match error {
                            CallError::Failed(why) => CallError::Failed(format!(
                                "credential_process `{}`: {why}",
                                self.redactor.redact(shell_words::join(&argv))
                            )),
                            CallError::Interrupted => CallError::Interrupted,
                        };
                        let printed = self.run(&argv, is_over).map_err(named)?;
                        source
                            .parse_process(&printed, region)
                            .map_err(|why| named(CallError::Failed(why)))?
                    }
                };
                (KeyValue::Aws(credentials), every)
            }
        };
        self.keys.add(key);
        Ok(every)
    }

    /// Runs a command, and returns what it prints.
    fn run(&self, argv: &[String], is_over: &dyn Fn() -> bool) -> Result<String, CallError> {
        let cannot_run = |error: io::Error| CallError::Failed(format!("cannot run it: {error}"));
        let (program, arguments) = argv
            .split_first()
            .ok_or_else(|| cannot_run(io::ErrorKind::InvalidInput.into()))?;
        // In a separate process group, so that its children are killed with it.
        let mut child = Command::new(program)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()
            .map_err(cannot_run)?;
        let mut stdout = Output::new(child.stdout.take(), MAX_KEY + 1);
        let mut stderr = Output::new(child.stderr.take(), MAX_STDERR);
        let ended = wait_for(&mut child, TIMEOUT, || {
            stdout.read_available();
            stderr.read_available();
            stdout.is_full() || is_over()
        });
        stdout.read_available();
        stderr.read_available();
        if stdout.is_full() {
            return Err(CallError::Failed(format!(
                "it printed more than {MAX_KEY} bytes; its output must be the key alone"
            )));
        }
        let status = match ended {
            Ok(status) => status,
            Err(Unfinished::Interrupted) => return Err(CallError::Interrupted),
            Err(Unfinished::Late) => {
                let limit = TIMEOUT.as_secs();
                return Err(CallError::Failed(format!(
                    "it did not end within {limit} s"
                )));
            }
            Err(Unfinished::Lost(error)) => return Err(cannot_run(error)),
        };
        let printed = stdout.text();
        let printed = printed.trim();
        if !status.success() {
            let errors = stderr.text();
            let last = errors.lines().rev().find(|line| !line.trim().is_empty());
            // A command that fails may still have printed a key.
            let redactor = self.redactor.clone().with(printed.lines(), SHORTEST);
            let last = last.map(|line| format!(": {}", redactor.redact(printable(line))));
            return Err(CallError::Failed(format!(
                "{}{}",
                describe_status(status),
                last.unwrap_or_default()
            )));
        }
        Ok(printed.to_owned())
    }
}

impl Renewals {
    fn note(&self, source: &KeySource, name: &str) -> Option<String> {
        let (again, failed, keys) = match source {
            KeySource::Command { .. } => (
                format!("{name} was called again"),
                format!("{name} failed"),
                "key",
            ),
            KeySource::Aws(_) => (
                "The credentials of AWS were read again".to_owned(),
                "Reading the credentials of AWS failed".to_owned(),
                "credentials",
            ),
        };
        let refusal = match source {
            KeySource::Command { .. } => "its key (HTTP 401)",
            KeySource::Aws(_) => "a signature (HTTP 401 or 403)",
        };
        let times = |count: u64| match count {
            1 => "1 time".to_owned(),
            count => format!("{count} times"),
        };
        let refused = (self.refused > 0).then(|| {
            format!(
                "{again} {} because the server refused {refusal}.",
                times(self.refused)
            )
        });
        let last_failure = self.last_failure.as_ref().map(|why| {
            format!(
                "{failed} {} during the run, and requests had the last {keys}. Last failure: {why}.",
                times(self.failed)
            )
        });
        let notes: Vec<String> = refused.into_iter().chain(last_failure).collect();
        (!notes.is_empty()).then(|| notes.join(" "))
    }
}

/// What a command has printed to a pipe. It is read without waiting for the end of the pipe: a process that the
/// command leaves behind, such as an agent, may keep it open.
struct Output<P> {
    pipe: Option<P>,
    bytes: Vec<u8>,
    /// Bytes that are kept.
    limit: usize,
}

impl<P: Read + AsFd> Output<P> {
    fn new(pipe: Option<P>, limit: usize) -> Output<P> {
        Output {
            pipe: pipe.filter(|pipe| ioctl_fionbio(pipe, true).is_ok()),
            bytes: Vec::new(),
            limit,
        }
    }

    /// Reads what the pipe holds. Bytes after the limit are discarded, so that the command is not blocked.
    fn read_available(&mut self) {
        let mut buffer = [0; 8 * 1024];
        let mut total = 0;
        while let Some(pipe) = self.pipe.as_mut().filter(|_| total < MAX_READ) {
            match pipe.read(&mut buffer) {
                Ok(count @ 1..) => {
                    let kept = count.min(self.limit - self.bytes.len());
                    self.bytes.extend(buffer.iter().take(kept));
                    total += count;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                _ => return,
            }
        }
    }

    fn is_full(&self) -> bool {
        self.bytes.len() == self.limit
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes).into_owned()
    }
}

/// A line without control characters.
fn printable(line: &str) -> String {
    let clean = |c: char| if c.is_control() { ' ' } else { c };
    line.trim().chars().map(clean).collect()
}

/// Checks that a text can be sent as a key. The error does not contain it.
fn check_key(text: &str) -> Result<(), String> {
    let lines = text.lines().count();
    if text.is_empty() {
        return Err("it printed nothing; its output must be the key".to_owned());
    }
    if lines > 1 {
        return Err(format!(
            "it printed {lines} lines; its output must be the key alone"
        ));
    }
    if !text.bytes().all(|byte| (0x20..0x7f).contains(&byte)) {
        return Err(
            "it printed control characters or characters outside of ASCII; its output must be the key alone"
                .to_owned(),
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn caller(script: &str) -> KeyCaller {
        let keys = ObtainedKeys::default();
        KeyCaller {
            source: KeySource::Command {
                argv: ["sh", "-c", script].map(str::to_owned).to_vec(),
                every: Duration::from_millis(1),
            },
            name: "`c`".to_owned(),
            redactor: Redactor::default().with_obtained(&keys),
            keys,
        }
    }

    fn called(script: &str) -> Result<String, String> {
        let caller = caller(script);
        match caller.call(&|| false) {
            Ok(_) => {
                let latest = caller.keys.latest().unwrap();
                Ok(latest.key().unwrap().expose().to_owned())
            }
            Err(CallError::Interrupted) => Err("interrupted".to_owned()),
            Err(CallError::Failed(why)) => Err(why),
        }
    }

    #[test]
    fn the_output_of_the_command_is_the_key() {
        assert_eq!(called("echo; echo ' sk-1 2 '").as_deref(), Ok("sk-1 2"));
        let error = |script: &str| called(script).unwrap_err();
        assert_eq!(
            error("true"),
            "it printed nothing; its output must be the key"
        );
        assert_eq!(
            error("echo a; echo b; echo c"),
            "it printed 3 lines; its output must be the key alone"
        );
        for script in [
            "printf 'a\\033b'",
            "printf 'a\\tb'",
            "printf 'k\\303\\251y'",
        ] {
            assert!(
                error(script).starts_with("it printed control characters"),
                "{script}"
            );
        }
        for script in ["head -c 20000 /dev/zero | tr '\\0' k", "yes"] {
            assert_eq!(
                error(script),
                "it printed more than 16384 bytes; its output must be the key alone",
                "{script}"
            );
        }
    }

    #[test]
    fn a_process_that_the_command_leaves_behind_does_not_delay_the_key() {
        let folder = tempfile::tempdir().unwrap();
        let left = folder.path().join("left");
        let script = format!(
            "(sleep 30; touch '{}') & head -c 300000 /dev/zero >&2; echo key-1234",
            left.display()
        );
        assert_eq!(called(&script).as_deref(), Ok("key-1234"));
        assert!(!left.exists(), "the process was waited for");
    }

    #[test]
    fn a_failed_command_is_explained_without_the_key_that_it_printed() {
        let script =
            "echo sk-secret; echo first >&2; echo 'no scope for sk-secret' >&2; echo >&2; exit 3";
        assert_eq!(
            called(script).unwrap_err(),
            "exit status 3: no scope for [redacted]"
        );
        assert_eq!(called("exit 1").unwrap_err(), "exit status 1");
    }

    #[test]
    fn a_command_ends_with_the_run() {
        let started = Instant::now();
        let ended = caller("sleep 60 & wait").call(&|| true);
        assert!(matches!(ended, Err(CallError::Interrupted)));
        assert!(started.elapsed() < Duration::from_secs(30));
    }

    #[test]
    fn failures_and_refused_keys_are_one_note() {
        let mut renewals = Renewals::default();
        let source = caller("").source;
        assert_eq!(renewals.note(&source, "`c`"), None);
        renewals.refused = 1;
        assert_eq!(
            renewals.note(&source, "`c`").unwrap(),
            "`c` was called again 1 time because the server refused its key (HTTP 401)."
        );
        renewals.failed = 2;
        renewals.last_failure = Some("exit status 1: no".to_owned());
        assert_eq!(
            renewals.note(&source, "`c`").unwrap(),
            "`c` was called again 1 time because the server refused its key (HTTP 401). \
             `c` failed 2 times during the run, and requests had the last key. Last failure: exit status 1: no."
        );
    }
}
