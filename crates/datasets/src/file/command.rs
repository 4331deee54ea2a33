//! Rows that a command prints: its process, and its output as a stream.

use super::source::Origin;
use crate::error::PromptError;
use llmscen_core::dataset::CommandSpec;
use rustix::process::{Pid, Signal, kill_process_group};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Bytes at the end of its stderr that an error shows.
const SHOWN: u64 = 2000;
/// From SIGTERM to SIGKILL.
const GRACE: Duration = Duration::from_millis(300);
const LOOK: Duration = Duration::from_millis(5);

/// The process of a command, and all that it started in its group.
#[derive(Debug)]
pub struct Process {
    group: Pid,
    over: AtomicBool,
}

impl Process {
    /// Ends it, where it has not ended.
    pub fn end(&self) {
        let mut waited = Duration::ZERO;
        while !self.over.load(Ordering::Acquire) && waited < GRACE {
            if waited.is_zero() {
                let _ = kill_process_group(self.group, Signal::TERM);
            }
            std::thread::sleep(LOOK);
            waited += LOOK;
        }
        if !self.over.load(Ordering::Acquire) {
            let _ = kill_process_group(self.group, Signal::KILL);
        }
    }
}

/// Starts a command, whose name in errors is `name`.
///
/// # Errors
/// It cannot be started, or there is no temporary file for its stderr.
pub fn start(spec: &CommandSpec, name: &str) -> Result<Origin, PromptError> {
    let wrong = |source: io::Error| PromptError::NoCommand { command: name.to_owned(), cwd: spec.cwd.clone(), source };
    let (program, arguments) = spec.words.split_first().ok_or_else(|| wrong(io::ErrorKind::InvalidInput.into()))?;
    let errors = tempfile::tempfile().map_err(wrong)?;
    let mut command = Command::new(program);
    command.args(arguments).current_dir(&spec.cwd).envs(spec.env.iter().map(|(name, value)| (name, value)));
    // A group of its own, so that what it starts ends with it, and Ctrl-C in the terminal is for this program to act on.
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(errors.try_clone().map_err(wrong)?).process_group(0);
    let mut child = command.spawn().map_err(wrong)?;
    let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let (Some(group), Some(stdout)) = (group, child.stdout.take()) else { return Err(wrong(io::ErrorKind::Other.into())) };
    let process = Arc::new(Process { group, over: AtomicBool::new(false) });
    let output = Output { child, stdout, errors, process: process.clone(), spec: spec.clone(), name: name.to_owned() };
    Ok(Origin::Printed(process, Box::new(output)))
}

/// What the command prints. Its end is an error where the command failed.
struct Output {
    child: Child,
    stdout: ChildStdout,
    errors: File,
    process: Arc<Process>,
    spec: CommandSpec,
    name: String,
}

impl Output {
    fn finish(&mut self) -> io::Result<()> {
        if self.process.over.load(Ordering::Acquire) {
            return Ok(());
        }
        let status = self.child.wait()?;
        let _ = kill_process_group(self.process.group, Signal::KILL);
        self.process.over.store(true, Ordering::Release);
        if status.success() {
            return Ok(());
        }
        let stderr = self.last_errors().unwrap_or_default();
        Err(io::Error::other(PromptError::Command { command: self.name.clone(), how: in_words(status), stderr }))
    }

    fn last_errors(&mut self) -> io::Result<String> {
        let length = self.errors.seek(SeekFrom::End(0))?;
        self.errors.seek(SeekFrom::Start(length.saturating_sub(SHOWN)))?;
        let mut bytes = Vec::new();
        (&self.errors).take(SHOWN).read_to_end(&mut bytes)?;
        let text = String::from_utf8_lossy(&bytes);
        // A line that is cut may begin inside a secret.
        let whole = text.split_once('\n').filter(|_| length > SHOWN).map_or(text.as_ref(), |(_, rest)| rest);
        Ok(self.spec.clean(whole).trim().lines().map(|line| format!("\n  {line}")).collect())
    }
}

impl Read for Output {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.stdout.read(buffer)? {
            0 if !buffer.is_empty() => self.finish().map(|()| 0),
            count => Ok(count),
        }
    }
}

impl Drop for Output {
    /// Reading may end before the command does.
    fn drop(&mut self) {
        if !self.process.over.load(Ordering::Acquire) {
            let _ = kill_process_group(self.process.group, Signal::KILL);
            let _ = self.child.wait();
            self.process.over.store(true, Ordering::Release);
        }
    }
}

fn in_words(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit status {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => "an unknown reason".to_owned(),
    }
}
