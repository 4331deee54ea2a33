//! What is known about the rows of a file while it is being read: their offsets, which of them can be sent, and the
//! sessions that are prepared for the next requests. 16 bytes are kept per row.

use super::row::ParsedRow;
use super::row_splitter::Span;
use super::source::LineMarks;
use crate::error::PromptError;
use llmscen_core::dataset::Session;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Limits of a batch. The last row may exceed the bytes.
const BATCH_ROWS: usize = 256;
const BATCH_BYTES: usize = 1 << 20;
/// Sessions that are prepared beyond the last requested one.
pub const AHEAD: u64 = 1024;
/// Limit of the bytes of rows whose sessions are prepared, besides the requested one.
const READY_BYTES: usize = 32 << 20;
/// A dataset is open after this many rows or bytes, because most errors show by then.
const OPEN_ROWS: usize = 1000;
pub const OPEN_BYTES: usize = 1 << 20;

/// A row that the scan found.
#[derive(Clone, Copy)]
pub struct FoundRow {
    start: u64,
    len: u32,
    /// `NOT_COUNTED` until its tokens are counted.
    tokens: u32,
}

const NOT_COUNTED: u32 = u32::MAX;

impl FoundRow {
    pub fn span(self) -> Span {
        Span {
            start: self.start,
            len: self.len,
        }
    }

    /// Tokens of its prompt, where they were counted.
    pub fn tokens(self) -> Option<u64> {
        (self.tokens != NOT_COUNTED).then_some(self.tokens.into())
    }
}

#[derive(Default)]
pub struct RowIndex {
    /// The rows found so far, in the order in which they are sent.
    pub rows: Vec<FoundRow>,
    pub line_marks: LineMarks,
    /// `rows` is complete.
    pub scanned: bool,
    /// How many of `rows` were parsed, and their bytes.
    pub parsed: usize,
    parsed_bytes: usize,
    /// Indices of the rows that can be sent: session n is the row `rows[usable[n]]`.
    pub usable: Vec<u32>,
    /// Indices of the invalid rows.
    pub invalid: Vec<u32>,
    /// Descriptions of the first invalid rows.
    pub notes: Vec<String>,
    /// Prepared sessions by number, with the bytes of their rows.
    pub ready: BTreeMap<u64, (usize, Session)>,
    ready_bytes: usize,
    /// The highest session that was requested. It never decreases: a caller that waits for a session relies on it.
    pub requested: u64,
    /// The highest session that was taken.
    taken: u64,
    /// Number of rows up to the last requested session. Only their problems are reported.
    pub reported_rows: usize,
    /// Enough rows were parsed for the dataset to count as open.
    pub opened: bool,
    /// Why there are no more sessions.
    pub fault: Option<Arc<PromptError>>,
    /// Every row was parsed.
    pub complete: bool,
    /// The dataset was dropped.
    pub closed: bool,
}

impl RowIndex {
    pub fn add_rows(&mut self, rows: &[Span]) {
        self.rows.extend(rows.iter().map(|row| FoundRow {
            start: row.start,
            len: row.len,
            tokens: NOT_COUNTED,
        }));
    }

    /// Number of sessions found so far.
    pub fn session_count(&self) -> u64 {
        self.usable.len() as u64
    }

    /// The row of a session, and its index.
    pub fn row(&self, session: u64) -> Option<(usize, FoundRow)> {
        let index = *self.usable.get(usize::try_from(session).ok()?)? as usize;
        Some((index, *self.rows.get(index)?))
    }

    /// Records that a session is needed; whether no later one was needed before.
    pub fn request(&mut self, session: u64) -> bool {
        let raised = session > self.requested;
        self.requested = self.requested.max(session);
        raised
    }

    /// Whether fewer than `ahead` sessions are prepared beyond the last requested one.
    pub fn needs_rows(&self, ahead: u64) -> bool {
        let count = self.session_count();
        count <= self.requested
            || (count < self.requested.saturating_add(ahead) && self.ready_bytes < READY_BYTES)
    }

    /// The rows to parse next; empty where all found rows were parsed.
    pub fn next_batch(&self) -> Vec<FoundRow> {
        let mut bytes = 0;
        let mut batch = Vec::new();
        for row in self.rows.iter().skip(self.parsed).take(BATCH_ROWS) {
            if bytes >= BATCH_BYTES {
                break;
            }
            bytes += row.len as usize;
            batch.push(*row);
        }
        batch
    }

    /// Records the result of the next row. The dataset is open after `open_bytes` of rows.
    pub fn commit(&mut self, parsed: ParsedRow, note: Option<String>, open_bytes: usize) {
        let index = self.parsed;
        let session_number = self.session_count();
        let Some(row) = self.rows.get_mut(index) else {
            return;
        };
        let size = row.len as usize;
        self.notes.extend(note);
        match parsed {
            ParsedRow::Usable(session) => {
                let tokens = session.turns.first().and_then(|prompt| prompt.tokens);
                row.tokens = tokens
                    .and_then(|tokens| u32::try_from(tokens).ok())
                    .unwrap_or(NOT_COUNTED);
                self.usable.push(index as u32);
                // Sessions far before the requested one are read again if they are requested.
                let near = session_number >= self.taken
                    && session_number.saturating_add(AHEAD) > self.requested;
                if near && (session_number >= self.requested || self.ready_bytes < READY_BYTES) {
                    self.ready_bytes += size;
                    self.ready.insert(session_number, (size, session));
                }
            }
            ParsedRow::Invalid { .. } => self.invalid.push(index as u32),
            ParsedRow::Excluded | ParsedRow::NotUtf8(_) => {}
        }
        self.parsed += 1;
        self.parsed_bytes += size;
        if !self.usable.is_empty() && (self.parsed >= OPEN_ROWS || self.parsed_bytes >= open_bytes)
        {
            self.open();
        }
    }

    pub fn open(&mut self) {
        if !self.opened {
            self.opened = true;
            self.reported_rows = self.reported_rows.max(self.parsed);
        }
    }

    /// Removes a prepared session, and those before it, which are not expected to be requested again.
    pub fn take(&mut self, number: u64) -> Option<Session> {
        if number < self.taken {
            return None;
        }
        self.request(number);
        self.taken = number;
        if let Some((index, _)) = self.row(number) {
            self.reported_rows = self.reported_rows.max(index + 1);
        }
        while let Some(first) = self
            .ready
            .first_entry()
            .filter(|entry| *entry.key() <= number)
        {
            let (found, (size, session)) = first.remove_entry();
            self.ready_bytes -= size;
            if found == number {
                return Some(session);
            }
        }
        None
    }

    /// Number of reported rows that are not sent.
    pub fn left_out(&self) -> usize {
        self.reported_rows
            - self
                .usable
                .partition_point(|index| (*index as usize) < self.reported_rows)
    }

    /// Number of reported rows that are invalid.
    pub fn reported_invalid(&self) -> usize {
        self.invalid
            .partition_point(|index| (*index as usize) < self.reported_rows)
    }
}
