//! Goes through a text once, from its beginning to its end, and finds where its rows lie.

use super::format_detection::{Format, HEAD, extension, sniff};
use super::reader::Shared;
use super::reading::record;
use super::row_splitter::{Finder, Flaw, Lines, List, Records, Span};
use super::source::{Origin, Scanned};
use crate::error::PromptError;
use llmscen_core::bounds;
use llmscen_core::dataset::Order;
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;
use std::collections::HashSet;
use std::io::{ErrorKind, Read, Write};

/// Bytes read at once.
const CHUNK: usize = 256 << 10;
const MARK: &[u8] = b"\xef\xbb\xbf";

/// Scans a text and tells `shared` of its rows as they are found. A flaw counts where it lies: the rows before it stand.
pub fn scan(origin: Origin, shared: &Shared) -> Result<(), PromptError> {
    let Scanned { stream, text, spool, json } = origin.scanned(&shared.reading.path)?;
    shared.readable(text);
    let mut scan = Scan { shared, stream, spool, at: 0 };
    let (format, head) = scan.head(json)?;
    let begin = match &format {
        Format::List(at, _) => *at,
        Format::Plain | Format::Lines | Format::Csv(_) => 0,
    };
    let begin = begin + if head.starts_with(MARK) { MARK.len() } else { 0 };
    let mut rows = Rows { shared, header: matches!(format, Format::Csv(_)), finder: finder(&format), format };
    rows.push(&head[begin..], begin as u64)?;
    let mut chunk = vec![0; CHUNK];
    loop {
        let at = scan.at;
        match scan.next(&mut chunk)? {
            0 => break rows.end(at)?,
            count => rows.push(&chunk[..count], at)?,
        }
    }
    if shared.reading.spec.order == Order::Shuffle {
        shared.shuffle(|order| order.shuffle(&mut ChaCha8Rng::seed_from_u64(shared.order_seed)));
    }
    Ok(())
}

fn finder(format: &Format) -> Box<dyn Finder> {
    match format {
        Format::Plain | Format::Lines => Box::new(Lines::default()),
        Format::List(_, key) => Box::new(List::new(key.is_some())),
        Format::Csv(delimiter) => Box::new(Records::new(*delimiter)),
    }
}

/// What streams by.
struct Scan<'a> {
    shared: &'a Shared,
    stream: Box<dyn Read + Send>,
    spool: Option<std::fs::File>,
    /// Bytes that went by.
    at: u64,
}

impl Scan<'_> {
    /// Reads on: bytes are where rows are read from before anybody hears of them. No bytes: the end.
    fn next(&mut self, chunk: &mut [u8]) -> Result<usize, PromptError> {
        let path = || self.shared.reading.path.clone();
        self.shared.wait_for_demand();
        let count = loop {
            match self.stream.read(chunk) {
                _ if self.shared.closed() => return Ok(0),
                Ok(count) => break count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // What a command says of its own end is an error already.
                Err(source) => {
                    return Err(source.downcast().unwrap_or_else(|source| PromptError::Read { path: path(), source }));
                }
            }
        };
        if let Some(spool) = &mut self.spool {
            spool.write_all(&chunk[..count]).map_err(|source| PromptError::Spool { path: path(), source })?;
        }
        self.shared.count_lines(&chunk[..count], self.at);
        self.at += count as u64;
        Ok(count)
    }

    /// Reads until the format is known; returns it with all that was read.
    fn head(&mut self, json: bool) -> Result<(Format, Vec<u8>), PromptError> {
        let reading = &self.shared.reading;
        let extension = extension(&reading.path);
        let (mut head, mut chunk) = (Vec::new(), vec![0; HEAD]);
        loop {
            let count = self.next(&mut chunk)?;
            head.extend_from_slice(&chunk[..count]);
            let text = head.strip_prefix(MARK).unwrap_or(&head);
            if text.starts_with(b"PAR1") {
                let (format, instead) = ("a compressed parquet file", "a parquet file as it is");
                return Err(PromptError::Format { path: reading.path.clone(), format, instead });
            }
            if text.len() as u64 > bounds::ROW {
                let problem = format!("no row ends within {}", bounds::size(bounds::ROW));
                return Err(self.shared.row_error(0, 0, problem));
            }
            let known = if json { Some(Format::Lines) } else { sniff(reading.kind.taste, &extension, text, count == 0) };
            if let Some(format) = known {
                return Ok((format, head));
            }
        }
    }
}

/// What is found.
struct Rows<'a> {
    shared: &'a Shared,
    finder: Box<dyn Finder>,
    format: Format,
    /// The next row is the header.
    header: bool,
}

impl Rows<'_> {
    fn push(&mut self, piece: &[u8], at: u64) -> Result<(), PromptError> {
        let mut rows = Vec::new();
        let found = self.finder.push(piece, at, &mut rows);
        self.tell(rows, found)
    }

    fn end(&mut self, at: u64) -> Result<(), PromptError> {
        let mut rows = Vec::new();
        let found = self.finder.end(at, &mut rows);
        self.tell(rows, found)
    }

    fn tell(&mut self, mut rows: Vec<Span>, found: Result<(), Flaw>) -> Result<(), PromptError> {
        if !rows.is_empty() {
            let header = if self.header { self.read_header(rows.remove(0))? } else { Vec::new() };
            self.header = false;
            // Set once; every later call finds it set.
            let _ = self.shared.reading.format.set((self.format.clone(), header));
            self.shared.found(&rows)?;
        }
        found.map_err(|flaw| self.shared.row_error(flaw.at, 0, flaw.problem))
    }

    fn read_header(&self, row: Span) -> Result<Vec<String>, PromptError> {
        let wrong = |problem| self.shared.row_error(row.start, 0, problem);
        let bytes = self.shared.read(row)?;
        let Format::Csv(delimiter) = self.format else { return Ok(Vec::new()) };
        let text = std::str::from_utf8(&bytes).map_err(|_| wrong("the header is not UTF-8".into()))?;
        let header: Vec<String> = record(text, delimiter).map_err(wrong)?.iter().map(|name| name.trim().to_owned()).collect();
        let mut seen = HashSet::new();
        match header.iter().find(|name| !seen.insert(name.as_str())) {
            Some(twice) => Err(wrong(format!("the header names the column `{twice}` twice"))),
            None => Ok(header),
        }
    }
}
