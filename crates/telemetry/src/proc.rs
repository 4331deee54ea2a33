//! Files in which Linux tells of itself.

use std::borrow::Cow;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

/// Reads files of `/proc`, one after another into the same memory.
pub(super) struct Proc {
    folder: PathBuf,
    bytes: Vec<u8>,
}

/// What `/proc/PID/stat` says of a process.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Stat {
    /// The process that it is a child of.
    pub parent: u32,
    /// Processor time in ticks of 10 ms: its own, and that of its children that have ended and were waited for.
    pub ticks: u64,
    /// When it started, in ticks after the machine: a number that comes again is another process.
    pub started: u64,
}

impl Proc {
    /// `/proc` under that root.
    pub fn under(root: &Path) -> Proc {
        Proc { folder: root.join("proc"), bytes: Vec::new() }
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The text of a file.
    ///
    /// # Errors
    /// It cannot be read; in words, with its name.
    pub fn read(&mut self, name: &str) -> Result<Cow<'_, str>, String> {
        let path = self.folder.join(name);
        self.bytes.clear();
        let read = File::open(&path).and_then(|mut file| file.read_to_end(&mut self.bytes));
        read.map_err(|error| format!("cannot read {}: {error}", path.display()))?;
        // The name of a process is any bytes.
        Ok(String::from_utf8_lossy(&self.bytes))
    }
}

/// The first error of several attempts, all of which were made.
pub(super) fn first<const N: usize>(answers: [Result<(), String>; N]) -> Result<(), String> {
    answers.into_iter().find(Result::is_err).unwrap_or(Ok(()))
}

/// Reads `/proc/PID/stat`. The name stands in brackets and may hold anything, brackets too.
pub(super) fn stat(text: &str) -> Option<Stat> {
    let rest = text.rsplit_once(')')?.1;
    let fields: Vec<&str> = rest.split_whitespace().take(20).collect();
    let number = |place: usize| fields.get(place)?.parse::<u64>().ok();
    // `man 5 proc` counts from 1, and the state that follows the name is its third.
    let ticks = (11..15).map(number).sum::<Option<u64>>()?;
    Some(Stat { parent: u32::try_from(number(1)?).ok()?, ticks, started: number(19)? })
}

/// The `VmRSS` line of `/proc/PID/status`, in bytes; None for a process that has no memory any more.
pub(super) fn resident(status: &str) -> Option<f64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<f64>().ok().map(|kib| kib * 1024.0)
}

/// What `/proc/PID/io` says was read from and written to disk, in bytes: by the process, and by its children that have ended
/// and were waited for.
pub(super) fn disk(io: &str) -> Option<(u64, u64)> {
    let count = |name: &str| io.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<u64>().ok());
    Some((count("read_bytes:")?, count("write_bytes:")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_read_whatever_its_name() {
        let text = "6471 (a) b (c) S 17 6459 32048 0 -1 4194304 100 0 0 0 3 4 50 60 20 0 1 0 4695229 3133440 410 1844\n";
        assert_eq!(stat(text), Some(Stat { parent: 17, ticks: 117, started: 4_695_229 }));
        assert_eq!((stat(""), stat("1 (x) S 1 2")), (None, None));
        assert_eq!(resident("Name:\tx\nVmRSS:\t   2048 kB\n"), Some(2_097_152.0));
        assert_eq!(resident("Name:\tx\n"), None);
        let io = "rchar: 6976\nwchar: 0\nread_bytes: 4096\nwrite_bytes: 512\ncancelled_write_bytes: 100\n";
        assert_eq!((disk(io), disk("rchar: 1\n")), (Some((4096, 512)), None));
    }
}
