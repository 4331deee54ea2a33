//! Reads a text once, from beginning to end, and finds its rows.

use super::format_detection::{Format, HEAD, detect, extension};
use super::reader::Reader;
use super::row::parse_record;
use super::row_splitter::{CsvRecords, Flaw, JsonList, Lines, RowSplitter, Span};
use super::source::{Opened, Origin};
use crate::error::PromptError;
use llmscen_core::bounds;
use std::collections::HashSet;
use std::fs::File;
use std::io::{ErrorKind, Read, Write};

/// Bytes read at once.
const CHUNK: usize = 256 << 10;
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// A text that is being read.
pub struct Scan<'a> {
    reader: &'a Reader,
    stream: Box<dyn Read + Send>,
    spool: Option<File>,
    chunk: Vec<u8>,
    /// Number of bytes read so far.
    offset: u64,
    splitter: Box<dyn RowSplitter>,
    format: Format,
    /// The next row is the header of a CSV text.
    header: bool,
    /// An error behind the rows of the beginning, which are sent first.
    pending: Option<PromptError>,
}

impl<'a> Scan<'a> {
    /// Opens a text, and reads until its format is known.
    pub fn start(origin: Origin, reader: &'a Reader) -> Result<Scan<'a>, PromptError> {
        let Opened {
            stream,
            text,
            spool,
            json,
        } = origin.open(&reader.parser.path)?;
        reader.set_text(text);
        let mut scan = Scan {
            reader,
            stream,
            spool,
            chunk: vec![0; CHUNK],
            offset: 0,
            splitter: Box::new(Lines::default()),
            format: Format::Lines,
            header: false,
            pending: None,
        };
        let head = scan.read_head(json)?;
        let list_offset = if let Format::List(offset, _) = scan.format {
            offset
        } else {
            0
        };
        let begin = list_offset
            + if head.starts_with(BYTE_ORDER_MARK) {
                BYTE_ORDER_MARK.len()
            } else {
                0
            };
        scan.splitter = match &scan.format {
            Format::Plain | Format::Lines => Box::new(Lines::default()),
            Format::List(_, key) => Box::new(JsonList::new(key.is_some())),
            Format::Csv(delimiter) => Box::new(CsvRecords::new(*delimiter)),
        };
        scan.header = matches!(scan.format, Format::Csv(_));
        let mut rows = Vec::new();
        let pushed = scan.splitter.push(&head[begin..], begin as u64, &mut rows);
        scan.pending = scan.add(rows, pushed).err();
        Ok(scan)
    }

    /// Reads the next chunk and adds the rows that end in it; false at the end of the text. The rows before an error
    /// are added.
    pub fn advance(&mut self) -> Result<bool, PromptError> {
        if let Some(error) = self.pending.take() {
            return Err(error);
        }
        let offset = self.offset;
        let count = self.read(CHUNK)?;
        let mut rows = Vec::new();
        let pushed = match count {
            0 => self.splitter.end(offset, &mut rows),
            count => self.splitter.push(&self.chunk[..count], offset, &mut rows),
        };
        self.add(rows, pushed)?;
        Ok(count > 0)
    }

    /// Reads into the chunk, and stores it where rows are read by their offset. 0 bytes: the end of the text.
    fn read(&mut self, limit: usize) -> Result<usize, PromptError> {
        let path = || self.reader.parser.path.clone();
        let count = loop {
            match self.stream.read(&mut self.chunk[..limit]) {
                Ok(count) => break count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // The stream of a command that failed carries a `PromptError`.
                Err(source) => {
                    return Err(source
                        .downcast()
                        .unwrap_or_else(|source| PromptError::Read {
                            path: path(),
                            source,
                        }));
                }
            }
        };
        if let Some(spool) = &mut self.spool {
            spool
                .write_all(&self.chunk[..count])
                .map_err(|source| PromptError::Spool {
                    path: path(),
                    source,
                })?;
        }
        self.reader.count_lines(self.offset, &self.chunk[..count]);
        self.offset += count as u64;
        Ok(count)
    }

    /// Reads until the format is known; returns the bytes that were read.
    fn read_head(&mut self, json: bool) -> Result<Vec<u8>, PromptError> {
        let parser = &self.reader.parser;
        let extension = extension(&parser.path);
        let mut head = Vec::new();
        loop {
            let count = self.read(HEAD)?;
            head.extend_from_slice(&self.chunk[..count]);
            let text = head.strip_prefix(BYTE_ORDER_MARK).unwrap_or(&head);
            if text.starts_with(b"PAR1") {
                let format = "a compressed parquet file";
                return Err(PromptError::Format {
                    path: parser.path.clone(),
                    format,
                    instead: "an uncompressed parquet file",
                });
            }
            if text.len() as u64 > bounds::ROW {
                let problem = format!("no row ends within {}", bounds::size(bounds::ROW));
                return Err(self.reader.row_error(0, 0, problem));
            }
            let known = if json {
                Some(Format::Lines)
            } else {
                detect(parser.kind.formats, &extension, text, count == 0)
            };
            if let Some(format) = known {
                self.format = format;
                return Ok(head);
            }
        }
    }

    fn add(&mut self, mut rows: Vec<Span>, pushed: Result<(), Flaw>) -> Result<(), PromptError> {
        if !rows.is_empty() {
            let header = if self.header {
                self.read_header(rows.remove(0))?
            } else {
                Vec::new()
            };
            self.header = false;
            // Later calls leave the first value.
            let _ = self.reader.parser.format.set((self.format.clone(), header));
            self.reader.add_rows(&rows)?;
        }
        pushed.map_err(|flaw| self.reader.row_error(flaw.at, 0, flaw.problem))
    }

    fn read_header(&self, row: Span) -> Result<Vec<String>, PromptError> {
        let error = |problem| self.reader.row_error(row.start, 0, problem);
        let bytes = self.reader.read(row)?;
        let Format::Csv(delimiter) = self.format else {
            return Ok(Vec::new());
        };
        let text =
            std::str::from_utf8(&bytes).map_err(|_| error("the header is not UTF-8".into()))?;
        let header: Vec<String> = parse_record(text, delimiter)
            .map_err(error)?
            .iter()
            .map(|name| name.trim().to_owned())
            .collect();
        let mut names = HashSet::new();
        match header.iter().find(|name| !names.insert(name.as_str())) {
            Some(name) => Err(error(format!("duplicate column `{name}` in the header"))),
            None => Ok(header),
        }
    }
}
