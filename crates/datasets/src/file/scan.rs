//! Goes through a text once, from its beginning to its end, and finds where its rows are.

use super::format_detection::{Format, HEAD, detect, extension};
use super::row::record;
use super::row_splitter::{CsvRecords, Flaw, JsonList, Lines, RowSplitter, Span};
use super::source::{Opened, Origin};
use super::table::Shared;
use crate::error::PromptError;
use llmscen_core::bounds;
use std::collections::HashSet;
use std::fs::File;
use std::io::{ErrorKind, Read, Write};

/// Bytes read at once.
const CHUNK: usize = 256 << 10;
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// A text that is being read.
pub(super) struct Scan<'a> {
    shared: &'a Shared,
    stream: Box<dyn Read + Send>,
    spool: Option<File>,
    chunk: Vec<u8>,
    /// Bytes read so far.
    at: u64,
    splitter: Box<dyn RowSplitter>,
    format: Format,
    /// The next row is the header of a CSV text.
    header: bool,
}

impl<'a> Scan<'a> {
    /// Opens a text, and reads until its format is known.
    pub(super) fn start(origin: Origin, shared: &'a Shared) -> Result<Scan<'a>, PromptError> {
        let Opened { stream, text, spool, json } = origin.open(&shared.parser.path)?;
        shared.set_text(text);
        let chunk = vec![0; CHUNK];
        let splitter = Box::new(Lines::default());
        let mut scan = Scan { shared, stream, spool, chunk, at: 0, splitter, format: Format::Lines, header: false };
        let head = scan.read_head(json)?;
        let begin = if let Format::List(at, _) = scan.format { at } else { 0 };
        let begin = begin + if head.starts_with(BYTE_ORDER_MARK) { BYTE_ORDER_MARK.len() } else { 0 };
        scan.splitter = match &scan.format {
            Format::Plain | Format::Lines => Box::new(Lines::default()),
            Format::List(_, key) => Box::new(JsonList::new(key.is_some())),
            Format::Csv(delimiter) => Box::new(CsvRecords::new(*delimiter)),
        };
        scan.header = matches!(scan.format, Format::Csv(_));
        let mut rows = Vec::new();
        let pushed = scan.splitter.push(&head[begin..], begin as u64, &mut rows);
        scan.add(rows, pushed)?;
        Ok(scan)
    }

    /// Reads on and adds the rows that end there; false at the end of the text. A flaw counts where it is: the rows before
    /// it are added.
    pub(super) fn advance(&mut self) -> Result<bool, PromptError> {
        let at = self.at;
        let count = self.read(CHUNK)?;
        let mut rows = Vec::new();
        let pushed = match count {
            0 => self.splitter.end(at, &mut rows),
            count => self.splitter.push(&self.chunk[..count], at, &mut rows),
        };
        self.add(rows, pushed)?;
        Ok(count > 0)
    }

    /// Reads into the chunk, and writes it to the file that rows are read from, before they are added. No bytes: the end.
    fn read(&mut self, most: usize) -> Result<usize, PromptError> {
        let path = || self.shared.parser.path.clone();
        let count = loop {
            match self.stream.read(&mut self.chunk[..most]) {
                Ok(count) => break count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // A command that failed is such an error already.
                Err(source) => {
                    return Err(source.downcast().unwrap_or_else(|source| PromptError::Read { path: path(), source }));
                }
            }
        };
        if let Some(spool) = &mut self.spool {
            spool.write_all(&self.chunk[..count]).map_err(|source| PromptError::Spool { path: path(), source })?;
        }
        self.at += count as u64;
        Ok(count)
    }

    /// Reads until the format is known; returns all that was read.
    fn read_head(&mut self, json: bool) -> Result<Vec<u8>, PromptError> {
        let parser = &self.shared.parser;
        let extension = extension(&parser.path);
        let mut head = Vec::new();
        loop {
            let count = self.read(HEAD)?;
            head.extend_from_slice(&self.chunk[..count]);
            let text = head.strip_prefix(BYTE_ORDER_MARK).unwrap_or(&head);
            if text.starts_with(b"PAR1") {
                let format = "a compressed parquet file";
                return Err(PromptError::Format { path: parser.path.clone(), format, instead: "a parquet file as it is" });
            }
            if text.len() as u64 > bounds::ROW {
                let problem = format!("no row ends within {}", bounds::size(bounds::ROW));
                return Err(self.shared.row_error(0, 0, problem));
            }
            let known = if json { Some(Format::Lines) } else { detect(parser.kind.formats, &extension, text, count == 0) };
            if let Some(format) = known {
                self.format = format;
                return Ok(head);
            }
        }
    }

    fn add(&mut self, mut rows: Vec<Span>, pushed: Result<(), Flaw>) -> Result<(), PromptError> {
        if !rows.is_empty() {
            let header = if self.header { self.read_header(rows.remove(0))? } else { Vec::new() };
            self.header = false;
            // Set once; every later call finds it set.
            let _ = self.shared.parser.format.set((self.format.clone(), header));
            self.shared.add_rows(&rows)?;
        }
        pushed.map_err(|flaw| self.shared.row_error(flaw.at, 0, flaw.problem))
    }

    fn read_header(&self, row: Span) -> Result<Vec<String>, PromptError> {
        let wrong = |problem| self.shared.row_error(row.start, 0, problem);
        let bytes = self.shared.read(row)?;
        let Format::Csv(delimiter) = self.format else { return Ok(Vec::new()) };
        let text = std::str::from_utf8(&bytes).map_err(|_| wrong("the header is not UTF-8".into()))?;
        let header: Vec<String> = record(text, delimiter).map_err(wrong)?.iter().map(|name| name.trim().to_owned()).collect();
        let mut names = HashSet::new();
        match header.iter().find(|name| !names.insert(name.as_str())) {
            Some(twice) => Err(wrong(format!("the header names the column `{twice}` twice"))),
            None => Ok(header),
        }
    }
}
