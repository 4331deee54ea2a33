//! Rows that a command prints: its process and its output.

use crate::error::PromptError;
use llmscen_core::dataset::CommandSpec;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process_group};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Bytes at the end of stderr that an error shows.
const SHOWN_STDERR: u64 = 2000;
/// From SIGTERM to SIGKILL.
const GRACE: Duration = Duration::from_millis(300);
const POLL_INTERVAL: Duration = Duration::from_millis(5);
/// How often it is checked whether a silent command has ended.
const END_POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Silence after the end of a command after which its children are ended.
const LAST_OUTPUT: Duration = Duration::from_secs(5);

/// The process group of a command.
#[derive(Debug)]
pub struct Process {
    group: Pid,
    ended: AtomicBool,
}

impl Process {
    /// Stops the processes that still run.
    pub fn stop(&self) {
        let mut waited = Duration::ZERO;
        while !self.ended.load(Ordering::Acquire) && waited < GRACE {
            if waited.is_zero() {
                let _ = kill_process_group(self.group, Signal::TERM);
            }
            std::thread::sleep(POLL_INTERVAL);
            waited += POLL_INTERVAL;
        }
        if !self.ended.load(Ordering::Acquire) {
            let _ = kill_process_group(self.group, Signal::KILL);
        }
    }
}

/// Starts a command; returns its process and its output. `name` is its name in errors.
pub fn start(spec: &CommandSpec, name: &str) -> Result<(Arc<Process>, Output), PromptError> {
    let start_error = |source: io::Error| PromptError::NoCommand {
        command: name.to_owned(),
        cwd: spec.cwd.clone(),
        source,
    };
    let (program, arguments) = spec
        .argv
        .split_first()
        .ok_or_else(|| start_error(io::ErrorKind::InvalidInput.into()))?;
    let errors = tempfile::tempfile().map_err(start_error)?;
    let mut command = Command::new(program);
    command
        .args(arguments)
        .current_dir(&spec.cwd)
        .envs(spec.env.iter().map(|(name, value)| (name, value)));
    // In a separate process group, so that its children can be stopped with it, and Ctrl-C in the terminal does not
    // reach it.
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(errors.try_clone().map_err(start_error)?)
        .process_group(0);
    let mut child = command.spawn().map_err(start_error)?;
    let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let (Some(group), Some(stdout)) = (group, child.stdout.take()) else {
        return Err(start_error(io::ErrorKind::Other.into()));
    };
    let process = Arc::new(Process {
        group,
        ended: AtomicBool::new(false),
    });
    let output = Output {
        child,
        stdout,
        errors,
        process: process.clone(),
        spec: spec.clone(),
        name: name.to_owned(),
    };
    Ok((process, output))
}

/// The output of a command. The end of the stream is an error if the command failed.
pub struct Output {
    child: Child,
    stdout: ChildStdout,
    errors: File,
    process: Arc<Process>,
    spec: CommandSpec,
    name: String,
}

impl Output {
    /// Waits for output; false where the command has ended and its children have printed nothing since. A child that
    /// keeps the output of the command must not hold up the rows.
    fn wait_for_output(&mut self) -> io::Result<bool> {
        let mut silence = Duration::ZERO;
        loop {
            let limit = Timespec::try_from(END_POLL_INTERVAL).unwrap_or_default();
            let mut polled = [PollFd::new(&self.stdout, PollFlags::IN)];
            match rustix::event::poll(&mut polled, Some(&limit)) {
                Ok(0) | Err(Errno::INTR) => {}
                Ok(_) => return Ok(true),
                Err(error) => return Err(error.into()),
            }
            if self.child.try_wait()?.is_some() {
                silence += END_POLL_INTERVAL;
                if silence >= LAST_OUTPUT {
                    return Ok(false);
                }
            }
        }
    }

    fn finish(&mut self) -> io::Result<()> {
        if self.process.ended.load(Ordering::Acquire) {
            return Ok(());
        }
        let status = self.child.wait()?;
        let _ = kill_process_group(self.process.group, Signal::KILL);
        self.process.ended.store(true, Ordering::Release);
        if status.success() {
            return Ok(());
        }
        let stderr = self.read_stderr().unwrap_or_default();
        Err(io::Error::other(PromptError::Command {
            command: self.name.clone(),
            how: describe(status),
            stderr,
        }))
    }

    fn read_stderr(&mut self) -> io::Result<String> {
        let length = self.errors.seek(SeekFrom::End(0))?;
        self.errors
            .seek(SeekFrom::Start(length.saturating_sub(SHOWN_STDERR)))?;
        let mut bytes = Vec::new();
        (&self.errors).take(SHOWN_STDERR).read_to_end(&mut bytes)?;
        let text = String::from_utf8_lossy(&bytes);
        // An incomplete line may begin inside a secret.
        let lines = text
            .split_once('\n')
            .filter(|_| length > SHOWN_STDERR)
            .map_or(text.as_ref(), |(_, rest)| rest);
        Ok(self
            .spec
            .redact(lines)
            .trim()
            .lines()
            .map(|line| format!("\n  {line}"))
            .collect())
    }
}

impl Read for Output {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if !self.wait_for_output()? {
            return self.finish().map(|()| 0);
        }
        match self.stdout.read(buffer)? {
            0 if !buffer.is_empty() => self.finish().map(|()| 0),
            count => Ok(count),
        }
    }
}

impl Drop for Output {
    /// The stream may be dropped before the command ends.
    fn drop(&mut self) {
        if !self.process.ended.load(Ordering::Acquire) {
            let _ = kill_process_group(self.process.group, Signal::KILL);
            let _ = self.child.wait();
            self.process.ended.store(true, Ordering::Release);
        }
    }
}

fn describe(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit status {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => "an unknown reason".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::opened;
    use crate::{Opened, PromptError};
    use llmscen_core::dataset::{CommandSpec, DatasetSpec, OnExhausted, Source};
    use llmscen_core::units::Nanos;
    use std::path::Path;
    use std::time::{Duration, Instant};

    fn spec(script: &str, cwd: &Path) -> DatasetSpec {
        let command = CommandSpec {
            argv: ["sh", "-c", script].map(str::to_owned).to_vec(),
            cwd: cwd.display().to_string(),
            env: vec![
                ("LLMSCEN_SEED".to_owned(), "7".to_owned()),
                ("LLMSCEN_MODEL".to_owned(), "m".to_owned()),
            ],
            timeout: Nanos::from_millis(20_000),
            secrets: Vec::new(),
        };
        let (path, strict, on_exhausted) = (Some("gen".to_owned()), true, OnExhausted::Stop);
        DatasetSpec {
            path,
            strict,
            on_exhausted,
            ..DatasetSpec::new(Source::Command(command))
        }
    }

    fn open(script: &str) -> Result<Opened, PromptError> {
        opened(&spec(script, &std::env::temp_dir()))
    }

    fn texts(opened: &Opened) -> Vec<String> {
        (0..)
            .map_while(|seq| opened.prompts.session(seq))
            .map(|mut session| session.turns.remove(0).text)
            .collect()
    }

    #[test]
    fn rows_are_in_order_with_the_environment_and_the_folder() {
        let folder = tempfile::tempdir().unwrap();
        let script = r#"pwd > seen; printf '{"q": "s%s %s"}\n{"q": "two"}\n' "$LLMSCEN_SEED" "$LLMSCEN_MODEL""#;
        let columns = [("prompt".to_owned(), "q".to_owned())].into();
        let spec = DatasetSpec {
            columns,
            ..spec(script, folder.path())
        };
        let rows = opened(&spec).unwrap();
        assert_eq!(texts(&rows), ["s7 m", "two"]);
        let seen = std::fs::read_to_string(folder.path().join("seen")).unwrap();
        assert_eq!(
            Path::new(seen.trim()).canonicalize().unwrap(),
            folder.path().canonicalize().unwrap()
        );
        let again = opened(&DatasetSpec {
            on_exhausted: OnExhausted::Cycle,
            ..spec
        })
        .unwrap();
        assert_eq!(
            again.prompts.session(3).unwrap().turns[0].text,
            "two",
            "the printed rows come again"
        );
    }

    #[test]
    fn a_command_that_never_ends_is_read_as_far_as_needed_and_ended_with_its_group() {
        let folder = tempfile::tempdir().unwrap();
        let script = r#"(while :; do sleep 0.05; touch alive; done) & i=0; while :; do echo "{\"prompt\": \"p$i\"}"; i=$((i+1)); echo $i > count; done"#;
        let rows = opened(&spec(script, folder.path())).unwrap();
        let text = |seq| rows.prompts.session(seq).unwrap().turns[0].text.clone();
        assert_eq!([text(0), text(1), text(300)], ["p0", "p1", "p300"]);
        assert_eq!(rows.prompts.len(), None);
        // A pipe and one read are filled ahead, and no more: rows are about 16 bytes.
        std::thread::sleep(Duration::from_millis(300));
        let count = || {
            std::fs::read_to_string(folder.path().join("count"))
                .unwrap()
                .trim()
                .parse::<u64>()
                .unwrap_or(0)
        };
        let waits = (0..120).any(|_| {
            let held = count();
            std::thread::sleep(Duration::from_secs(1));
            held > 300 && count() == held
        });
        assert!(waits, "the command waits while no row is needed");
        drop(rows);
        let alive = folder.path().join("alive");
        std::thread::sleep(Duration::from_millis(100));
        let _ = std::fs::remove_file(&alive);
        std::thread::sleep(Duration::from_millis(300));
        assert!(
            !alive.exists(),
            "what it started in the background has ended too"
        );
    }

    #[test]
    fn a_child_that_keeps_the_output_does_not_hold_up_the_rows() {
        let begun = Instant::now();
        let rows = open("echo '{\"prompt\": \"a\"}'; setsid sleep 60 & exit 0").unwrap();
        assert_eq!(texts(&rows), ["a"]);
        assert!(rows.prompts.fault().is_none());
        assert!(begun.elapsed() < Duration::from_secs(30));
    }

    #[test]
    fn failures_are_reported_with_line_or_stderr() {
        let error = |script: &str| open(script).unwrap_err().to_string();
        assert_eq!(
            error("echo no model >&2; exit 3"),
            "the command of the dataset failed with exit status 3 (`dataset.command: gen`)\n  no model"
        );
        assert!(
            error("true").contains("`gen` is empty"),
            "{}",
            error("true")
        );
        let fault = |script: &str| {
            let rows = open(script).unwrap();
            let sent = texts(&rows);
            (sent, rows.prompts.fault().expect("a fault").to_string())
        };
        let (sent, bad) = fault("echo '{\"prompt\": \"a\"}'; echo; echo loading; sleep 0.2");
        assert!(
            sent == ["a"] && bad.starts_with("`gen`:3: not JSON"),
            "{sent:?} {bad}"
        );
        let (sent, broken) =
            fault("echo '{\"prompt\": \"a\"}'; sleep 0.1; echo late >&2; kill -9 $$");
        assert!(
            sent == ["a"]
                && broken.contains("failed with signal 9")
                && broken.ends_with("\n  late"),
            "{sent:?} {broken}"
        );
    }

    #[test]
    fn a_command_that_prints_nothing_or_does_not_exist_is_an_error_in_time() {
        let began = Instant::now();
        let mut silent = spec("sleep 60", &std::env::temp_dir());
        if let Source::Command(command) = &mut silent.source {
            command.timeout = Nanos::from_millis(200);
        }
        let error = opened(&silent).unwrap_err().to_string();
        assert!(
            error.starts_with(
                "the command of the dataset printed no row within 0.2 s; raise `dataset.timeout`"
            ),
            "{error}"
        );
        assert!(began.elapsed() < Duration::from_secs(30));
        if let Source::Command(command) = &mut silent.source {
            command.argv = vec!["no-such-program".to_owned()];
        }
        let error = opened(&silent).unwrap_err().to_string();
        assert!(
            error.starts_with("cannot start the command of the dataset in "),
            "{error}"
        );
    }
}
