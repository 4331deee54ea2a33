//! Reads and parses files of `/proc`, and computes rates of their counters.
//!
//! The `procfs` crate is not used: it parses every field and takes three times as long per process.

use std::borrow::Cow;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Reads files of `/proc` into one buffer.
pub(crate) struct Proc {
    folder: PathBuf,
    bytes: Vec<u8>,
}

/// Fields of `/proc/PID/stat`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Stat {
    pub parent: u32,
    /// CPU time in ticks of 10 ms, with that of its children that have ended and were waited for.
    pub ticks: u64,
    /// Start time in ticks since boot, which distinguishes processes that reuse a number.
    pub started: u64,
}

impl Proc {
    pub fn new(root: &Path) -> Proc {
        Proc {
            folder: root.join("proc"),
            bytes: Vec::new(),
        }
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    pub fn read(&mut self, name: &str) -> Result<Cow<'_, str>, String> {
        let path = self.folder.join(name);
        self.bytes.clear();
        let read = File::open(&path).and_then(|mut file| file.read_to_end(&mut self.bytes));
        read.map_err(|error| format!("cannot read {}: {error}", path.display()))?;
        // The name of a process may contain any bytes.
        Ok(String::from_utf8_lossy(&self.bytes))
    }
}

pub(crate) fn first_error<const N: usize>(results: [Result<(), String>; N]) -> Result<(), String> {
    results.into_iter().find(Result::is_err).unwrap_or(Ok(()))
}

/// Parses `/proc/PID/stat`. The name is in parentheses and may contain parentheses.
pub(crate) fn parse_stat(text: &str) -> Option<Stat> {
    let rest = text.rsplit_once(')')?.1;
    let fields: Vec<&str> = rest.split_whitespace().take(20).collect();
    let number = |index: usize| fields.get(index)?.parse::<u64>().ok();
    // Index 0 is field 3 of proc(5), the state, which follows the name.
    let ticks = (11..15).map(number).sum::<Option<u64>>()?;
    Some(Stat {
        parent: u32::try_from(number(1)?).ok()?,
        ticks,
        started: number(19)?,
    })
}

/// The bytes in the line `name` of `/proc/PID/status` or `/proc/meminfo`, whose unit is kB. A zombie process has no
/// such line.
pub(crate) fn parse_kib(text: &str, name: &str) -> Option<u64> {
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    line.trim()
        .strip_suffix("kB")?
        .trim()
        .parse::<u64>()
        .ok()
        .map(|kib| kib * 1024)
}

/// Bytes read from and written to disk in `/proc/PID/io`, with those of children that have ended and were waited for.
pub(crate) fn parse_io(io: &str) -> Option<(u64, u64)> {
    let count = |name: &str| {
        io.lines()
            .find_map(|line| line.strip_prefix(name)?.trim().parse::<u64>().ok())
    };
    Some((count("read_bytes:")?, count("write_bytes:")?))
}

/// The shortest interval of a rate, because the system counts CPU time in steps of 10 ms.
pub(crate) const MIN_INTERVAL: Duration = Duration::from_millis(50);

/// The rate of a counter between two readings.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct GrowthRate {
    before: Option<(Instant, f64)>,
}

impl GrowthRate {
    /// Growth per second since the last reading; None for the first reading, and where the last one is too recent.
    pub fn update(&mut self, at: Instant, count: f64) -> Option<f64> {
        let Some((from, before)) = self.before else {
            self.before = Some((at, count));
            return None;
        };
        let span = at
            .checked_duration_since(from)
            .filter(|span| *span >= MIN_INTERVAL)?;
        self.before = Some((at, count));
        Some((count - before).max(0.0) / span.as_secs_f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_read_whatever_its_name() {
        let text = "6471 (a) b (c) S 17 6459 32048 0 -1 4194304 100 0 0 0 3 4 50 60 20 0 1 0 \
        4695229 3133440 410 1844\n";
        assert_eq!(
            parse_stat(text),
            Some(Stat {
                parent: 17,
                ticks: 117,
                started: 4_695_229
            })
        );
        assert_eq!((parse_stat(""), parse_stat("1 (x) S 1 2")), (None, None));
        assert_eq!(
            parse_kib("Name:\tx\nVmHWM:\t   2048 kB\nVmRSS:\t 1 kB\n", "VmHWM"),
            Some(2 << 20)
        );
        assert_eq!(parse_kib("Name:\tx\n", "VmRSS"), None);
        let io = "rchar: 6976\nwchar: 0\nread_bytes: 4096\nwrite_bytes: 512\ncancelled_write_bytes: 100\n";
        assert_eq!(
            (parse_io(io), parse_io("rchar: 1\n")),
            (Some((4096, 512)), None)
        );
    }

    #[test]
    fn growth_needs_two_readings_that_are_apart() {
        let begin = Instant::now();
        let mut rate = GrowthRate::default();
        let at = |millis| begin + Duration::from_millis(millis);
        let rates = [
            (0, 1.0),
            (49, 9.0),
            (100, 1.5),
            (140, 9.0),
            (200, 1.5),
            (300, 1.0),
        ]
        .map(|(ms, n)| rate.update(at(ms), n));
        assert_eq!(
            rates,
            [None, None, Some(5.0), None, Some(0.0), Some(0.0)],
            "a count that falls has not grown"
        );
    }
}
