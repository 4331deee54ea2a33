//! The source of a text: opened, decompressed, and stored where rows can be read by their offset.

use super::command::Process;
use super::format_detection::extension;
use super::open_file;
use super::row_splitter::Span;
use crate::error::PromptError;
use flate2::read::MultiGzDecoder;
use llmscen_core::bounds;
use llmscen_parquet::{ParquetError, Records};
use memchr::memchr_iter;
use serde_json::{Map, Value};
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Cursor, Read, Seek, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The bytes of a text in order.
pub type Stream = Box<dyn Read + Send>;

/// Where a text is read from.
pub enum Origin {
    /// Data of the binary.
    Fixed(&'static [u8]),
    Disk(File),
    /// Files that are read one after another, as one.
    Files(Vec<PathBuf>),
    /// Lines of JSON that a command prints.
    Printed(Arc<Process>, Stream),
    /// A text that arrives in pieces.
    #[cfg(test)]
    Slow(Stream),
}

/// A text whose rows are read by their offset.
pub enum Text {
    /// Data of the binary.
    Fixed(&'static [u8]),
    /// The file itself, or the temporary one it was decompressed into.
    Disk(File),
}

impl Text {
    /// The bytes of a row.
    pub fn read(&self, span: Span) -> io::Result<Vec<u8>> {
        let len = span.len as usize;
        match self {
            Text::Fixed(bytes) => {
                let row = usize::try_from(span.start)
                    .ok()
                    .and_then(|start| bytes.get(start..start.checked_add(len)?));
                row.map(<[u8]>::to_vec)
                    .ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
            }
            Text::Disk(file) => {
                let mut row = vec![0; len];
                file.read_exact_at(&mut row, span.start)?;
                Ok(row)
            }
        }
    }

    /// Number of line ends between two offsets.
    pub fn count_line_ends(&self, start: u64, end: u64) -> io::Result<usize> {
        let mut count = 0;
        let mut start = start;
        while start < end {
            let len = (end - start).min(1 << 20) as u32;
            count += memchr_iter(b'\n', &self.read(Span { start, len })?).count();
            start += u64::from(len);
        }
        Ok(count)
    }
}

/// The number of line ends before an offset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LineMark {
    pub offset: u64,
    pub line_ends: usize,
}

/// Marks along a text, so that the line of an error is found without counting from the beginning.
#[derive(Default)]
pub struct LineMarks {
    marks: Vec<LineMark>,
    line_ends: usize,
}

/// Least distance of two marks.
const MARK_DISTANCE: u64 = 256 << 10;

impl LineMarks {
    /// Counts the next piece of the text, which begins at `offset`.
    pub fn add(&mut self, offset: u64, piece: &[u8]) {
        if offset >= self.marks.last().map_or(0, |mark| mark.offset) + MARK_DISTANCE {
            self.marks.push(LineMark {
                offset,
                line_ends: self.line_ends,
            });
        }
        self.line_ends += memchr_iter(b'\n', piece).count();
    }

    /// The last mark at or before an offset.
    pub fn before(&self, offset: u64) -> LineMark {
        let count = self.marks.partition_point(|mark| mark.offset <= offset);
        count
            .checked_sub(1)
            .and_then(|last| self.marks.get(last).copied())
            .unwrap_or_default()
    }
}

/// A text that is ready to be scanned.
pub struct Opened {
    pub stream: Stream,
    pub text: Text,
    /// The temporary file of `text`, into which the scan writes the stream.
    pub spool: Option<File>,
    /// The rows are JSON lines, whatever the name of the file.
    pub json: bool,
}

impl Origin {
    /// Opens and decompresses. Compression is recognized by the first bytes, whatever the name of the file.
    pub fn open(self, path: &Path) -> Result<Opened, PromptError> {
        let plain = |stream, text| {
            Ok(Opened {
                stream,
                text,
                spool: None,
                json: false,
            })
        };
        let file = match self {
            Origin::Fixed(bytes) => return plain(Box::new(bytes), Text::Fixed(bytes)),
            Origin::Printed(_, stream) => return spooled(stream, true, path),
            #[cfg(test)]
            Origin::Slow(stream) => return spooled(stream, false, path),
            Origin::Disk(file) => file,
            Origin::Files(paths) => match paths.as_slice() {
                [only] => open_file(only)?,
                paths => return open_files(paths, path),
            },
        };
        let read_error = |source| PromptError::Read {
            path: path.to_owned(),
            source,
        };
        let regular = file.metadata().map_err(read_error)?.is_file();
        let copy = file.try_clone().map_err(read_error)?;
        let (magic, stream) = decompress(Box::new(file), path)?;
        match magic {
            Magic::Parquet if regular => spooled(parquet_lines(copy, path)?, true, path),
            Magic::Parquet => {
                let format = "a parquet file from a pipe";
                Err(PromptError::Format {
                    path: path.to_owned(),
                    format,
                    instead: "a file on disk",
                })
            }
            Magic::None if regular => plain(stream, Text::Disk(copy)),
            Magic::None | Magic::Compressed => spooled(stream, false, path),
        }
    }
}

/// The rows of a Parquet file as lines of JSON.
fn parquet_lines(mut file: File, path: &Path) -> Result<Stream, PromptError> {
    file.rewind().map_err(|source| PromptError::Read {
        path: path.to_owned(),
        source,
    })?;
    let rows = Records::open(file).map_err(|source| PromptError::Parquet {
        path: path.to_owned(),
        source,
    })?;
    Ok(Box::new(JsonLines {
        rows,
        line: Cursor::default(),
    }))
}

/// Opens files of one format as one text: the header of CSV is that of the first file. `name`: the first file, for
/// errors.
fn open_files(paths: &[PathBuf], name: &Path) -> Result<Opened, PromptError> {
    let table = ["csv", "tsv"].contains(&extension(name).as_str());
    let mut header: Option<Vec<u8>> = None;
    let mut json = false;
    let mut parts = VecDeque::new();
    for path in paths {
        let read_error = |source| PromptError::Read {
            path: path.clone(),
            source,
        };
        let file = open_file(path)?;
        let copy = file.try_clone().map_err(read_error)?;
        let (magic, stream) = decompress(Box::new(file), path)?;
        if magic == Magic::Parquet {
            json = true;
            parts.push_back(parquet_lines(copy, path)?);
            continue;
        }
        let mut stream = BufReader::new(stream);
        if !table && stream.fill_buf().map_err(read_error)?.starts_with(b"[") {
            return Err(PromptError::Format {
                path: name.to_owned(),
                format: "a JSON list in several files",
                instead: "JSON lines or Parquet, or name one of its files",
            });
        }
        if table && let Some(first) = &header {
            let mut line = Vec::new();
            stream.read_until(b'\n', &mut line).map_err(read_error)?;
            if line.trim_ascii_end() != first.as_slice() {
                return Err(PromptError::Header {
                    path: path.clone(),
                    first: name.to_owned(),
                });
            }
        } else if table {
            let mut line = Vec::new();
            stream.read_until(b'\n', &mut line).map_err(read_error)?;
            header = Some(line.trim_ascii_end().to_vec());
            parts.push_back(Box::new(Cursor::new(line)));
        }
        parts.push_back(Box::new(stream));
    }
    spooled(
        Box::new(Joined {
            parts,
            in_line: false,
        }),
        json,
        name,
    )
}

/// Texts one after another; each begins on a new line.
struct Joined {
    parts: VecDeque<Stream>,
    /// The last byte was not the end of a line.
    in_line: bool,
}

impl Read for Joined {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while let (Some(part), false) = (self.parts.front_mut(), buffer.is_empty()) {
            let count = part.read(buffer)?;
            if let Some(last) = buffer[..count].last() {
                self.in_line = *last != b'\n';
                return Ok(count);
            }
            self.parts.pop_front();
            if self.in_line && !self.parts.is_empty() {
                self.in_line = false;
                buffer[0] = b'\n';
                return Ok(1);
            }
        }
        Ok(0)
    }
}

fn spooled(stream: Stream, json: bool, path: &Path) -> Result<Opened, PromptError> {
    let spool_error = |source| PromptError::Spool {
        path: path.to_owned(),
        source,
    };
    let spool = tempfile::tempfile().map_err(spool_error)?;
    let text = Text::Disk(spool.try_clone().map_err(spool_error)?);
    Ok(Opened {
        stream,
        text,
        spool: Some(spool),
        json,
    })
}

/// The kind of a file, by its first bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Magic {
    /// Anything else, which is taken as text.
    None,
    /// gzip or zstd.
    Compressed,
    Parquet,
}

/// The text of a file, decompressed where it is gzip or zstd.
fn decompress(mut file: Stream, path: &Path) -> Result<(Magic, Stream), PromptError> {
    let read_error = |source| PromptError::Read {
        path: path.to_owned(),
        source,
    };
    let mut first = Vec::with_capacity(4);
    (&mut file)
        .take(4)
        .read_to_end(&mut first)
        .map_err(read_error)?;
    let stream = BufReader::new(Cursor::new(first.clone()).chain(file));
    Ok(match first.as_slice() {
        [0x1f, 0x8b, ..] => (Magic::Compressed, Box::new(MultiGzDecoder::new(stream))),
        [0x28, 0xb5, 0x2f, 0xfd] => (
            Magic::Compressed,
            Box::new(zstd::Decoder::with_buffer(stream).map_err(read_error)?),
        ),
        b"PAR1" => (Magic::Parquet, Box::new(stream)),
        _ => (Magic::None, Box::new(stream)),
    })
}

/// Records as lines of JSON.
struct JsonLines<I> {
    rows: I,
    line: Cursor<Vec<u8>>,
}

impl<I: Iterator<Item = Result<Map<String, Value>, ParquetError>>> Read for JsonLines<I> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let count = self.line.read(buffer)?;
            if count > 0 || buffer.is_empty() {
                return Ok(count);
            }
            let Some(row) = self.rows.next() else {
                return Ok(0);
            };
            let mut line = serde_json::to_vec(&row.map_err(io::Error::other)?)?;
            line.write_all(b"\n")?;
            self.line = Cursor::new(line);
        }
    }
}

/// Reads a small text file at once: decompressed, in UTF-8, without a byte order mark.
pub fn read_text(path: &Path) -> Result<String, PromptError> {
    let read_error = |source| PromptError::Read {
        path: path.to_owned(),
        source,
    };
    let (magic, stream) = decompress(
        Box::new(bounds::open_stream(path).map_err(read_error)?),
        path,
    )?;
    if magic == Magic::Parquet {
        return Err(PromptError::Format {
            path: path.to_owned(),
            format: "a parquet file",
            instead: "plain text",
        });
    }
    let bytes = bounds::read_stream(stream, bounds::DATA).map_err(read_error)?;
    let mut text = String::from_utf8(bytes).map_err(|error| {
        let byte = error.utf8_error().valid_up_to();
        let line = error.as_bytes()[..byte]
            .iter()
            .filter(|byte| **byte == b'\n')
            .count()
            + 1;
        PromptError::Utf8 {
            path: path.to_owned(),
            line,
            byte,
        }
    })?;
    if text.starts_with('\u{feff}') {
        text.drain(..'\u{feff}'.len_utf8());
    }
    if text.trim_ascii().is_empty() {
        return Err(PromptError::Empty {
            path: path.to_owned(),
        });
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
        assert_eq!(
            written(&zstd::encode_all("grüße".as_bytes(), 1).unwrap()).unwrap(),
            "grüße"
        );
        assert_eq!(written("\u{feff}a".as_bytes()).unwrap(), "a");
        assert!(
            written(&packed[..packed.len() - 9])
                .unwrap_err()
                .starts_with("cannot read the dataset d.txt: ")
        );
    }

    #[test]
    fn lines_are_counted_from_a_mark_nearby() {
        let text: &'static [u8] = b"x\n".repeat(1 << 20).leak();
        let mut marks = LineMarks::default();
        for (index, piece) in text.chunks(1000).enumerate() {
            marks.add(index as u64 * 1000, piece);
        }
        for offset in [0, 1, 999, MARK_DISTANCE, 1_234_567, 2 << 20] {
            let mark = marks.before(offset);
            assert!(
                mark.offset <= offset && offset - mark.offset < MARK_DISTANCE + 1000,
                "{mark:?} for {offset}"
            );
            let between = Text::Fixed(text)
                .count_line_ends(mark.offset, offset)
                .unwrap();
            assert_eq!(
                (mark.line_ends + between) as u64,
                offset / 2,
                "before {offset}"
            );
        }
    }

    #[test]
    fn a_bad_byte_is_found_by_line_and_offset() {
        let error = written(b"one\ntwo\nth\xff").unwrap_err();
        assert!(
            error.starts_with("the dataset d.txt is not UTF-8: line 3, byte 10 of the file"),
            "{error}"
        );
    }

    #[test]
    fn unreadable_files_are_errors() {
        assert_eq!(written(b"").unwrap_err(), "the dataset d.txt is empty");
        assert_eq!(
            written(b" \r\n\n").unwrap_err(),
            "the dataset d.txt is empty"
        );
        assert!(
            written(b"PAR1")
                .unwrap_err()
                .ends_with("convert it to plain text")
        );
        let gone = read_text(Path::new("/nowhere/d.txt"))
            .unwrap_err()
            .to_string();
        assert!(
            gone.starts_with("cannot read the dataset /nowhere/d.txt: No such file"),
            "{gone}"
        );
    }
}
