//! The log of a server: read while it grows, and its last lines.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, BufRead, BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

/// Lines of a log that are shown.
const LINES: usize = 20;
/// Bytes of one of them at the most.
const WIDTH: usize = 400;
/// Bytes of a line that are looked at together.
const LONGEST: u64 = 1 << 20;
/// As far back lines are looked for, in bytes.
const BACK: u64 = 32 * 1024;
/// Bytes that are read at once.
const CHUNK: usize = 64 * 1024;
/// Chunks of one look at the most: a server that writes faster than it is read must not keep whoever waits from looking at the clock.
const CHUNKS: usize = 16;

/// Begins an empty log that only its owner may read: servers log prompts, and what their variables hold.
pub(super) fn begin(path: &Path) -> io::Result<()> {
    let log = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
    log.set_permissions(Permissions::from_mode(0o600))
}

/// Writes a log of which nothing is written any more again, line by line as `clean` leaves them.
///
/// # Errors
/// It cannot be read or written; then it is as it was.
pub fn redact(path: &Path, clean: &dyn Fn(String) -> String) -> io::Result<()> {
    let part = path.with_extension("part");
    begin(&part)?;
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
    while log.by_ref().take(LONGEST).read_until(b'\n', &mut line)? > 0 {
        let text = String::from_utf8_lossy(&line);
        let shown = clean(text.to_string());
        // Bytes that are not text stay where nothing is struck.
        out.write_all(if shown == text { &line } else { shown.as_bytes() })?;
        line.clear();
    }
    out.flush()
}

/// The last lines of a log, without marks that would move a terminal's cursor; none where it cannot be read.
pub fn tail(path: &Path) -> Vec<String> {
    let Ok(mut file) = File::open(path) else { return Vec::new() };
    let length = file.seek(SeekFrom::End(0)).unwrap_or(0);
    let from = length.saturating_sub(BACK);
    let mut bytes = Vec::new();
    if file.seek(SeekFrom::Start(from)).and_then(|_| file.take(BACK).read_to_end(&mut bytes)).is_err() {
        return Vec::new();
    }
    let text = String::from_utf8_lossy(&bytes);
    // Where the beginning is cut off, the first line is a part of one.
    let lines: Vec<&str> = text.lines().skip(usize::from(from > 0)).filter(|line| !line.trim().is_empty()).collect();
    lines.iter().skip(lines.len().saturating_sub(LINES)).map(|line| shown(line)).collect()
}

/// What a progress bar last wrote over itself, and no control characters.
fn shown(line: &str) -> String {
    let last = line.trim_end().rsplit('\r').next().unwrap_or_default();
    let mut text: String = last.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    if text.len() > WIDTH {
        let end = (0..=WIDTH).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
        text.truncate(end);
        text.push('…');
    }
    text
}

/// Looks for a text in a log that grows.
pub(super) struct Watch {
    file: Option<File>,
    wanted: Vec<u8>,
    /// The end of what was read, which may be the beginning of the text.
    rest: Vec<u8>,
}

impl Watch {
    /// Looks from the beginning of the file on.
    pub fn new(path: &Path, wanted: &str) -> Watch {
        Watch { file: File::open(path).ok(), wanted: wanted.as_bytes().to_vec(), rest: Vec::new() }
    }

    /// Whether the text stands in what has been written since the last look, of which a look reads 1 MiB at the most.
    pub fn found(&mut self) -> bool {
        let Some(file) = &mut self.file else { return false };
        let mut chunk = vec![0; CHUNK];
        for _ in 0..CHUNKS {
            let Ok(count @ 1..) = file.read(&mut chunk) else { break };
            self.rest.extend_from_slice(chunk.get(..count).unwrap_or_default());
            if memchr::memmem::find(&self.rest, &self.wanted).is_some() {
                return true;
            }
            let keep = self.rest.len().min(self.wanted.len().saturating_sub(1));
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
    fn a_text_is_found_wherever_the_writes_cut_it() {
        let mut log = tempfile::NamedTempFile::new().unwrap();
        let mut watch = Watch::new(log.path(), "startup complete");
        for (piece, found) in [("x startup comp", false), ("let", false), ("e.\n", true)] {
            log.write_all(piece.as_bytes()).unwrap();
            assert_eq!(watch.found(), found, "{piece}");
        }
        assert!(!Watch::new(Path::new("/nowhere"), "x").found());
    }

    #[test]
    fn a_log_is_its_owners_and_loses_secrets_at_the_end() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("server.log");
        fs::write(&path, "old").unwrap();
        begin(&path).unwrap();
        let mode = || fs::metadata(&path).unwrap().permissions().mode() & 0o777;
        assert_eq!((fs::read(&path).unwrap().len(), mode()), (0, 0o600));
        fs::write(&path, b"key sk-1\n\xff raw\nkey sk-1 again").unwrap();
        redact(&path, &|line| line.replace("sk-1", "[redacted]")).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"key [redacted]\n\xff raw\nkey [redacted] again");
        assert_eq!((mode(), fs::read_dir(folder.path()).unwrap().count()), (0o600, 1));
        assert!(redact(&folder.path().join("none"), &|line| line).is_err());
    }

    #[test]
    fn a_look_ends_where_the_log_does_not() {
        let mut endless = Watch::new(Path::new("/dev/zero"), "startup complete");
        assert_eq!([endless.found(), endless.found()], [false, false]);
        let mut log = tempfile::NamedTempFile::new().unwrap();
        log.write_all(&vec![b'y'; CHUNK * CHUNKS - 3]).unwrap();
        log.write_all(b"startup complete").unwrap();
        let mut watch = Watch::new(log.path(), "startup complete");
        assert_eq!([watch.found(), watch.found()], [false, true], "the second look goes on in the middle of the text");
    }

    #[test]
    fn the_last_lines_are_shown_as_a_terminal_can_bear_them() {
        let mut log = tempfile::NamedTempFile::new().unwrap();
        assert_eq!(tail(log.path()), Vec::<String>::new());
        (0..30).for_each(|n| writeln!(log, "line {n}").unwrap());
        write!(log, "load 1%\rload 100%\n\n\x1b[31mred\n{}\n", "é".repeat(300)).unwrap();
        let lines = tail(log.path());
        assert_eq!((lines.len(), lines[0].as_str(), lines[17].as_str()), (20, "line 13", "load 100%"));
        assert_eq!((lines[18].as_str(), lines[19].chars().count()), (" [31mred", 201));
        (0..5000).for_each(|n| writeln!(log, "line {n}").unwrap());
        assert_eq!(tail(log.path())[19], "line 4999");
    }
}
