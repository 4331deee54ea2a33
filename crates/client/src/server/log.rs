//! The log of a managed server: searched while it grows, and its last lines.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, BufRead, BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

/// Last lines that are shown.
const TAIL_LINES: usize = 20;
/// Bytes of a shown line.
const MAX_SHOWN_LINE: usize = 400;
/// Bytes of a line that are redacted together.
const MAX_LINE: u64 = 1 << 20;
/// Bytes at the end of a log that are searched for its last lines.
const TAIL_BYTES: u64 = 32 * 1024;
/// Bytes per read.
const CHUNK: usize = 64 * 1024;
/// Chunks per search: a server that writes faster than it is read must not block the check of the timeout.
const MAX_CHUNKS: usize = 16;

/// Creates an empty log that only its owner may read: servers log prompts and environment variables.
pub(super) fn create(path: &Path) -> io::Result<()> {
    let log = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(path)?;
    log.set_permissions(Permissions::from_mode(0o600))
}

/// Rewrites a finished log, line by line through `clean`.
///
/// # Errors
/// The log cannot be read or written; it is unchanged then.
pub fn redact(path: &Path, clean: &dyn Fn(String) -> String) -> io::Result<()> {
    let part = path.with_extension("part");
    create(&part)?;
    let written = rewrite(path, &part, clean).and_then(|()| fs::rename(&part, path));
    if written.is_err() {
        let _ = fs::remove_file(&part);
    }
    written
}

fn rewrite(from: &Path, to: &Path, clean: &dyn Fn(String) -> String) -> io::Result<()> {
    let mut log = BufReader::new(File::open(from)?);
    let mut out = BufWriter::new(File::options().append(true).open(to)?);
    let mut line = Vec::new();
    while log.by_ref().take(MAX_LINE).read_until(b'\n', &mut line)? > 0 {
        let text = String::from_utf8_lossy(&line);
        let shown = clean(text.to_string());
        // A line without secrets keeps its bytes, even if they are not UTF-8.
        out.write_all(if shown == text {
            &line
        } else {
            shown.as_bytes()
        })?;
        line.clear();
    }
    out.flush()
}

/// The last lines of a log, without control characters; empty if it cannot be read.
pub fn log_tail(path: &Path) -> Vec<String> {
    let Ok(mut file) = File::open(path) else {
        return Vec::new();
    };
    let length = file.seek(SeekFrom::End(0)).unwrap_or(0);
    let from = length.saturating_sub(TAIL_BYTES);
    let mut bytes = Vec::new();
    if file
        .seek(SeekFrom::Start(from))
        .and_then(|_| file.take(TAIL_BYTES).read_to_end(&mut bytes))
        .is_err()
    {
        return Vec::new();
    }
    let text = String::from_utf8_lossy(&bytes);
    // If the beginning is cut off, the first line is incomplete.
    let lines: Vec<&str> = text
        .lines()
        .skip(usize::from(from > 0))
        .filter(|line| !line.trim().is_empty())
        .collect();
    lines
        .iter()
        .skip(lines.len().saturating_sub(TAIL_LINES))
        .map(|line| printable(line))
        .collect()
}

/// The last state of a progress bar, without control characters.
fn printable(line: &str) -> String {
    let last = line.trim_end().rsplit('\r').next().unwrap_or_default();
    let mut text: String = last
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect();
    if text.len() > MAX_SHOWN_LINE {
        let end = (0..=MAX_SHOWN_LINE)
            .rev()
            .find(|end| text.is_char_boundary(*end))
            .unwrap_or(0);
        text.truncate(end);
        text.push('…');
    }
    text
}

/// Searches a growing log for a text.
pub(super) struct LogSearch {
    file: Option<File>,
    text: Vec<u8>,
    /// The end of the bytes read so far, which may be the beginning of the text.
    rest: Vec<u8>,
}

impl LogSearch {
    /// Searches from the beginning of the file.
    pub fn new(path: &Path, text: &str) -> LogSearch {
        LogSearch {
            file: File::open(path).ok(),
            text: text.as_bytes().to_vec(),
            rest: Vec::new(),
        }
    }

    /// Whether the text is in the bytes written since the last call, which reads up to 1 MiB.
    pub fn found(&mut self) -> bool {
        let Some(file) = &mut self.file else {
            return false;
        };
        let mut chunk = vec![0; CHUNK];
        for _ in 0..MAX_CHUNKS {
            let Ok(count @ 1..) = file.read(&mut chunk) else {
                break;
            };
            self.rest
                .extend_from_slice(chunk.get(..count).unwrap_or_default());
            if memchr::memmem::find(&self.rest, &self.text).is_some() {
                return true;
            }
            let keep = self.rest.len().min(self.text.len().saturating_sub(1));
            self.rest.drain(..self.rest.len() - keep);
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn a_text_is_found_across_writes() {
        let mut log = tempfile::NamedTempFile::new().unwrap();
        let mut search = LogSearch::new(log.path(), "startup complete");
        for (piece, found) in [("x startup comp", false), ("let", false), ("e.\n", true)] {
            log.write_all(piece.as_bytes()).unwrap();
            assert_eq!(search.found(), found, "{piece}");
        }
        assert!(!LogSearch::new(Path::new("/nowhere"), "x").found());
    }

    #[test]
    fn a_log_is_private_and_is_redacted_at_the_end() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("server.log");
        fs::write(&path, "old").unwrap();
        create(&path).unwrap();
        let mode = || fs::metadata(&path).unwrap().permissions().mode() & 0o777;
        assert_eq!((fs::read(&path).unwrap().len(), mode()), (0, 0o600));
        fs::write(&path, b"key sk-1\n\xff raw\nkey sk-1 again").unwrap();
        redact(&path, &|line| line.replace("sk-1", "[redacted]")).unwrap();
        assert_eq!(
            fs::read(&path).unwrap(),
            b"key [redacted]\n\xff raw\nkey [redacted] again"
        );
        assert_eq!(
            (mode(), fs::read_dir(folder.path()).unwrap().count()),
            (0o600, 1)
        );
        assert!(redact(&folder.path().join("none"), &|line| line).is_err());
    }

    #[test]
    fn a_search_of_an_endless_log_returns() {
        let mut endless = LogSearch::new(Path::new("/dev/zero"), "startup complete");
        assert_eq!([endless.found(), endless.found()], [false, false]);
        let mut log = tempfile::NamedTempFile::new().unwrap();
        log.write_all(&vec![b'y'; CHUNK * MAX_CHUNKS - 3]).unwrap();
        log.write_all(b"startup complete").unwrap();
        let mut search = LogSearch::new(log.path(), "startup complete");
        assert_eq!(
            [search.found(), search.found()],
            [false, true],
            "the second search continues within the text"
        );
    }

    #[test]
    fn the_last_lines_are_printable() {
        let mut log = tempfile::NamedTempFile::new().unwrap();
        assert_eq!(log_tail(log.path()), Vec::<String>::new());
        (0..30).for_each(|n| writeln!(log, "line {n}").unwrap());
        write!(
            log,
            "load 1%\rload 100%\n\n\x1b[31mred\n{}\n",
            "é".repeat(300)
        )
        .unwrap();
        let lines = log_tail(log.path());
        assert_eq!(
            (lines.len(), lines[0].as_str(), lines[17].as_str()),
            (20, "line 13", "load 100%")
        );
        assert_eq!(
            (lines[18].as_str(), lines[19].chars().count()),
            (" [31mred", 201)
        );
        (0..5000).for_each(|n| writeln!(log, "line {n}").unwrap());
        assert_eq!(log_tail(log.path())[19], "line 4999");
    }
}
