//! Where a text comes from: opened, unpacked, and kept where rows can be read by their offset.

use super::command::Process;
use super::row_splitter::Span;
use crate::error::PromptError;
use flate2::read::MultiGzDecoder;
use llmscen_core::bounds;
use llmscen_parquet::{ParquetError, Records};
use serde_json::{Map, Value};
use std::fs::File;
use std::io::{self, BufReader, Cursor, Read, Seek, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

/// A text that streams by.
pub type Stream = Box<dyn Read + Send>;

/// What is opened.
pub enum Origin {
    /// Data of this program.
    Fixed(&'static [u8]),
    /// A file.
    Disk(File),
    /// Lines of JSON that a command prints.
    Printed(Arc<Process>, Stream),
    /// A text that comes bit by bit.
    #[cfg(test)]
    Slow(Stream),
}

/// A text whose rows are read by their offset.
pub enum Text {
    /// Data of this program.
    Fixed(&'static [u8]),
    /// The file itself, or the temporary one that it was unpacked into.
    Disk(File),
}

impl Text {
    /// The bytes of a row.
    pub fn read(&self, span: Span) -> io::Result<Vec<u8>> {
        let len = span.len as usize;
        match self {
            Text::Fixed(bytes) => {
                let row = usize::try_from(span.start).ok().and_then(|start| bytes.get(start..start.checked_add(len)?));
                row.map(<[u8]>::to_vec).ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
            }
            Text::Disk(file) => {
                let mut row = vec![0; len];
                file.read_exact_at(&mut row, span.start)?;
                Ok(row)
            }
        }
    }

    /// Line ends before an offset.
    pub fn line_ends_before(&self, at: u64) -> io::Result<usize> {
        let mut lines = 0;
        let mut start = 0;
        while start < at {
            let len = (at - start).min(1 << 20) as u32;
            lines += memchr::memchr_iter(b'\n', &self.read(Span { start, len })?).count();
            start += u64::from(len);
        }
        Ok(lines)
    }
}

/// A text that is about to be scanned.
pub struct Opened {
    /// Its bytes in order.
    pub stream: Stream,
    /// Where its rows are read.
    pub text: Text,
    /// The temporary file that the stream is written to, where it is stored nowhere else.
    pub spool: Option<File>,
    /// Its rows are JSON lines, whatever the file is called.
    pub json: bool,
}

impl Origin {
    /// Decompresses. Formats are recognized by their first bytes, whatever the name of the file.
    pub fn open(self, path: &Path) -> Result<Opened, PromptError> {
        let plain = |stream, text| Ok(Opened { stream, text, spool: None, json: false });
        let file = match self {
            Origin::Fixed(bytes) => return plain(Box::new(bytes), Text::Fixed(bytes)),
            Origin::Printed(_, stream) => return spooled(stream, true, path),
            #[cfg(test)]
            Origin::Slow(stream) => return spooled(stream, false, path),
            Origin::Disk(file) => file,
        };
        let wrong = |source| PromptError::Read { path: path.to_owned(), source };
        let regular = file.metadata().map_err(wrong)?.is_file();
        let copy = file.try_clone().map_err(wrong)?;
        let (magic, stream) = unpacked(Box::new(file), path)?;
        match magic {
            Magic::Parquet if regular => {
                let mut file = copy;
                file.rewind().map_err(wrong)?;
                let rows = Records::open(file).map_err(|source| PromptError::Parquet { path: path.to_owned(), source })?;
                spooled(Box::new(Unrolled { rows, line: Cursor::default() }), true, path)
            }
            Magic::Parquet => Err(format(path, "a parquet file that comes through a pipe", "a file on disk")),
            Magic::None if regular => plain(stream, Text::Disk(copy)),
            Magic::None | Magic::Packed => spooled(stream, false, path),
        }
    }
}

fn format(path: &Path, format: &'static str, instead: &'static str) -> PromptError {
    PromptError::Format { path: path.to_owned(), format, instead }
}

fn spooled(stream: Stream, json: bool, path: &Path) -> Result<Opened, PromptError> {
    let wrong = |source| PromptError::Spool { path: path.to_owned(), source };
    let spool = tempfile::tempfile().map_err(wrong)?;
    let text = Text::Disk(spool.try_clone().map_err(wrong)?);
    Ok(Opened { stream, text, spool: Some(spool), json })
}

/// What the first bytes of a file say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Magic {
    /// Anything else, which is taken as text.
    None,
    /// gzip or zstd.
    Packed,
    /// A Parquet file.
    Parquet,
}

/// The text of a file, gzip or zstd undone.
fn unpacked(mut file: Stream, path: &Path) -> Result<(Magic, Stream), PromptError> {
    let wrong = |source| PromptError::Read { path: path.to_owned(), source };
    let first = first(&mut file).map_err(wrong)?;
    let magic = magic(&first);
    let again = BufReader::new(Cursor::new(first.clone()).chain(file));
    let stream: Stream = match first.as_slice() {
        [0x1f, 0x8b, ..] => Box::new(MultiGzDecoder::new(again)),
        [0x28, 0xb5, 0x2f, 0xfd] => Box::new(zstd::Decoder::with_buffer(again).map_err(wrong)?),
        _ => return Ok((magic, Box::new(again))),
    };
    Ok((magic, stream))
}

fn magic(first: &[u8]) -> Magic {
    match first {
        [0x1f, 0x8b, ..] | [0x28, 0xb5, 0x2f, 0xfd] => Magic::Packed,
        b"PAR1" => Magic::Parquet,
        _ => Magic::None,
    }
}

/// The first four bytes, fewer where there are no more.
fn first(stream: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut first = Vec::with_capacity(4);
    stream.take(4).read_to_end(&mut first)?;
    Ok(first)
}

/// The rows of a table as lines of JSON.
struct Unrolled<I> {
    rows: I,
    line: Cursor<Vec<u8>>,
}

impl<I: Iterator<Item = Result<Map<String, Value>, ParquetError>>> Read for Unrolled<I> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let count = self.line.read(buffer)?;
            if count > 0 || buffer.is_empty() {
                return Ok(count);
            }
            let Some(row) = self.rows.next() else { return Ok(0) };
            let mut line = serde_json::to_vec(&row.map_err(io::Error::other)?)?;
            line.write_all(b"\n")?;
            self.line = Cursor::new(line);
        }
    }
}

/// Reads a small text file at once: decompressed, checked to be UTF-8, without its byte order mark.
pub fn read_text(path: &Path) -> Result<String, PromptError> {
    let wrong = |source| PromptError::Read { path: path.to_owned(), source };
    let (magic, stream) = unpacked(Box::new(bounds::open_stream(path).map_err(wrong)?), path)?;
    if magic == Magic::Parquet {
        return Err(PromptError::Format { path: path.to_owned(), format: "a parquet file", instead: "plain text" });
    }
    let bytes = bounds::read_stream(stream, bounds::DATA).map_err(wrong)?;
    let mut text = String::from_utf8(bytes).map_err(|error| {
        let byte = error.utf8_error().valid_up_to();
        let line = error.as_bytes()[..byte].iter().filter(|byte| **byte == b'\n').count() + 1;
        PromptError::Utf8 { path: path.to_owned(), line, byte }
    })?;
    if text.starts_with('\u{feff}') {
        text.drain(..'\u{feff}'.len_utf8());
    }
    if text.trim_ascii().is_empty() {
        return Err(PromptError::Empty { path: path.to_owned() });
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn written(bytes: &[u8]) -> Result<String, String> {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(bytes).unwrap();
        let path = file.path().display().to_string();
        read_text(file.path()).map_err(|error| error.to_string().replace(&path, "d.txt"))
    }

    #[test]
    fn compression_and_byte_order_marks_are_undone() {
        let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        packer.write_all("\u{feff}grüße\n".as_bytes()).unwrap();
        let packed = packer.finish().unwrap();
        assert_eq!(written(&packed).unwrap(), "grüße\n");
        assert_eq!(written(&zstd::encode_all("grüße".as_bytes(), 1).unwrap()).unwrap(), "grüße");
        assert_eq!(written("\u{feff}a".as_bytes()).unwrap(), "a");
        assert!(written(&packed[..packed.len() - 9]).unwrap_err().starts_with("cannot read the dataset d.txt: "));
    }

    #[test]
    fn a_bad_byte_is_found_by_line_and_offset() {
        let error = written(b"one\ntwo\nth\xff").unwrap_err();
        assert!(error.starts_with("the dataset d.txt is not UTF-8: line 3, byte 10 of the file"), "{error}");
    }

    #[test]
    fn what_is_not_read_is_named() {
        assert_eq!(written(b"").unwrap_err(), "the dataset d.txt is empty");
        assert_eq!(written(b" \r\n\n").unwrap_err(), "the dataset d.txt is empty");
        assert!(written(b"PAR1").unwrap_err().ends_with("convert it to plain text"));
        let gone = read_text(Path::new("/nowhere/d.txt")).unwrap_err().to_string();
        assert!(gone.starts_with("cannot read the dataset /nowhere/d.txt: No such file"), "{gone}");
    }
}
