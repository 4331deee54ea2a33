//! Sessions that are the rows of a file, by number.
//!
//! One thread per dataset goes through the file, only as far as rows are needed: it finds where rows begin and end
//! ([`Scan`]), parses, counts and filters them in batches on several threads, and files the results in the order of the
//! rows, so that no result depends on the number of threads. Memory holds 16 bytes per row and a limited number of sessions
//! ahead of the last request; any other row is read again by its offset.

use super::command::Process;
use super::format_detection::Format;
use super::row::{RowParser, Verdict};
use super::row_splitter::Span;
use super::scan::Scan;
use super::source::{Origin, Text};
use crate::error::PromptError;
use crate::{Progress, Prompts};
use llmscen_core::dataset::{OnExhausted, Order};
use llmscen_core::prompt::Session;
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// Threads that parse a batch of rows, at most.
const THREADS: usize = 4;
/// Rows of a batch, and bytes of all but its last row, at most.
const BATCH_ROWS: usize = 256;
const BATCH_BYTES: usize = 1 << 20;
/// Sessions that are prepared beyond the last requested one.
const AHEAD: u64 = 1024;
/// Bytes of rows whose sessions are prepared, at most, besides the requested one.
const READY_BYTES: usize = 32 << 20;
/// A dataset is open after so many rows or bytes, because most mistakes show by then.
const OPEN_ROWS: usize = 1000;
const OPEN_BYTES: usize = 1 << 20;
/// Misfits that are described; all are counted.
const DESCRIBED: usize = 3;
/// Interval of progress reports.
const PROGRESS: Duration = Duration::from_millis(50);
/// A wait that only the data ends.
const LONG: Duration = Duration::from_secs(3600);

/// The rows of a file.
pub struct Table {
    shared: Arc<Shared>,
    first: u64,
    cycle: bool,
}

/// What the reader thread and the callers share.
pub(super) struct Shared {
    /// Makes sessions of rows.
    pub(super) parser: RowParser,
    text: OnceLock<Text>,
    state: Mutex<State>,
    changed: Condvar,
    /// The command that prints the rows.
    process: Option<Arc<Process>>,
}

/// A row that was found.
#[derive(Clone, Copy)]
struct FoundRow {
    start: u64,
    len: u32,
    /// Its tokens, where they were counted; otherwise `NOT_COUNTED`.
    tokens: u32,
}

const NOT_COUNTED: u32 = u32::MAX;

impl FoundRow {
    fn span(self) -> Span {
        Span { start: self.start, len: self.len }
    }
}

/// Where a session is.
#[derive(Clone, Copy)]
enum Place {
    /// It has this number.
    Known(u64),
    /// It will have this number if the rows suffice.
    Unread(u64),
    /// There is none.
    Missing,
}

#[derive(Default)]
struct State {
    /// The rows found so far, in the order in which they are sent.
    rows: Vec<FoundRow>,
    /// The end of the file was reached.
    scanned: bool,
    /// How many of `rows` were parsed, and their bytes.
    parsed: usize,
    parsed_bytes: usize,
    /// Indices of the rows that can be sent: the row of session n is `rows[usable[n]]`.
    usable: Vec<u32>,
    /// Indices of the rows that do not fit, and the descriptions of the first of them.
    misfits: Vec<u32>,
    notes: Vec<String>,
    /// Sessions by number, with the bytes of their rows.
    ready: BTreeMap<u64, (usize, Session)>,
    ready_bytes: usize,
    /// The session that was requested last, and the highest one that was taken in order.
    wanted: u64,
    taken: u64,
    /// Rows up to the last requested session: problems behind it are not reported.
    seen: usize,
    /// Enough rows were parsed for the dataset to count as open.
    opened: bool,
    /// Why there are no more sessions.
    fault: Option<Arc<PromptError>>,
    /// Every row is known.
    ended: bool,
    /// The table was dropped.
    closed: bool,
}

impl State {
    /// Number of sessions known so far.
    fn known(&self) -> u64 {
        self.usable.len() as u64
    }

    fn row(&self, number: u64) -> Option<(usize, FoundRow)> {
        let index = *self.usable.get(usize::try_from(number).ok()?)? as usize;
        Some((index, *self.rows.get(index)?))
    }

    fn needs_rows(&self, ahead: u64) -> bool {
        let known = self.known();
        known <= self.wanted || (known < self.wanted.saturating_add(ahead) && self.ready_bytes < READY_BYTES)
    }

    fn next_batch(&self) -> Vec<FoundRow> {
        let mut bytes = 0;
        let fits = |row: &&FoundRow| {
            let fits = bytes < BATCH_BYTES;
            bytes += row.len as usize;
            fits
        };
        self.rows.iter().skip(self.parsed).take(BATCH_ROWS).take_while(fits).copied().collect()
    }

    /// Files what became of the next row. `open_bytes` is how many bytes of rows make an open dataset.
    fn commit(&mut self, verdict: Verdict, note: Option<String>, open_bytes: usize) {
        let (index, known) = (self.parsed, self.known());
        let Some(row) = self.rows.get_mut(index) else { return };
        let size = row.len as usize;
        self.notes.extend(note);
        match verdict {
            Verdict::Usable(session) => {
                let tokens = session.turns.first().and_then(|prompt| prompt.tokens);
                row.tokens = tokens.and_then(|tokens| u32::try_from(tokens).ok()).unwrap_or(NOT_COUNTED);
                self.usable.push(index as u32);
                // Sessions far before the requested one are read again when they are requested.
                let near = known >= self.taken && known.saturating_add(AHEAD) > self.wanted;
                if near && (known >= self.wanted || self.ready_bytes < READY_BYTES) {
                    self.ready_bytes += size;
                    self.ready.insert(known, (size, session));
                }
            }
            Verdict::Misfit { .. } => self.misfits.push(index as u32),
            Verdict::Outside | Verdict::NotUtf8(_) => {}
        }
        self.parsed += 1;
        self.parsed_bytes += size;
        if !self.usable.is_empty() && (self.parsed >= OPEN_ROWS || self.parsed_bytes >= open_bytes) {
            self.open();
        }
    }

    fn open(&mut self) {
        if !self.opened {
            self.opened = true;
            self.seen = self.seen.max(self.parsed);
        }
    }

    /// Removes a prepared session and those before it, which are not expected to be requested again.
    fn take(&mut self, number: u64) -> Option<Session> {
        if number < self.taken {
            return None;
        }
        self.wanted = number;
        self.taken = number;
        if let Some((index, _)) = self.row(number) {
            self.seen = self.seen.max(index + 1);
        }
        while let Some(first) = self.ready.first_entry().filter(|entry| *entry.key() <= number) {
            let (found, (size, session)) = first.remove_entry();
            self.ready_bytes -= size;
            if found == number {
                return Some(session);
            }
        }
        None
    }

    /// Of the rows up to the last requested session, those left out, and those among them that do not fit.
    fn left_out(&self) -> (usize, usize) {
        let before = |index: &u32| (*index as usize) < self.seen;
        (self.seen - self.usable.partition_point(before), self.misfits.partition_point(before))
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'g>(&self, state: MutexGuard<'g, State>, most: Duration) -> MutexGuard<'g, State> {
        self.changed.wait_timeout(state, most).unwrap_or_else(PoisonError::into_inner).0
    }

    fn fail(&self, fault: PromptError) {
        self.state().fault.get_or_insert_with(|| Arc::new(fault));
        self.changed.notify_all();
    }

    /// Whether the table was dropped.
    pub(super) fn closed(&self) -> bool {
        self.state().closed
    }

    /// Rows can be read by their offset from now on.
    pub(super) fn set_text(&self, text: Text) {
        // There is one scan, so it is set once.
        let _ = self.text.set(text);
    }

    /// The bytes of a row.
    pub(super) fn read(&self, span: Span) -> Result<Vec<u8>, PromptError> {
        let bytes = self.text.get().map_or_else(|| Err(std::io::ErrorKind::NotFound.into()), |text| text.read(span));
        bytes.map_err(|source| PromptError::Read { path: self.parser.path.clone(), source })
    }

    /// The line of the byte at an offset, from 1. Only errors need it, so the text is read again instead of being indexed.
    fn line(&self, at: u64) -> usize {
        // A text that can no longer be read has an error of its own.
        1 + self.text.get().and_then(|text| text.line_ends_before(at).ok()).unwrap_or_default()
    }

    /// The error of the row at an offset, so many lines below its first one.
    pub(super) fn row_error(&self, at: u64, below: usize, problem: String) -> PromptError {
        let expected = self.parser.kind.expected;
        PromptError::Row { path: self.parser.path.clone(), line: self.line(at) + below, problem, expected }
    }

    /// Adds rows that the scan found.
    pub(super) fn add_rows(&self, rows: &[Span]) -> Result<(), PromptError> {
        let mut state = self.state();
        if state.rows.len() + rows.len() > u32::MAX as usize {
            drop(state);
            return Err(self.row_error(rows.first().map_or(0, |row| row.start), 0, "more than 4294967295 rows".into()));
        }
        state.rows.extend(rows.iter().map(|row| FoundRow { start: row.start, len: row.len, tokens: NOT_COUNTED }));
        Ok(())
    }

    /// The reader thread.
    fn read_rows(&self, origin: Origin, order_seed: u64, threads: usize) -> Result<(), PromptError> {
        let mut scan = Scan::start(origin, self)?;
        if self.parser.spec.order == Order::Shuffle {
            // A permutation needs all rows: an error anywhere in the file comes first.
            while scan.advance()? {
                if self.closed() {
                    return Ok(());
                }
            }
            let mut state = self.state();
            state.rows.shuffle(&mut ChaCha8Rng::seed_from_u64(order_seed));
            state.scanned = true;
        }
        let mut flaw = Ok(());
        while let Some(batch) = self.wait_for_demand() {
            if !batch.is_empty() {
                self.parse(&batch, threads)?;
            } else if self.state().scanned {
                flaw?;
                return self.finish();
            } else {
                // The rows before a flaw are sent first.
                let more = scan.advance().unwrap_or_else(|error| {
                    flaw = Err(error);
                    false
                });
                self.state().scanned = !more;
            }
        }
        Ok(())
    }

    /// Waits until rows are needed; returns those that were found and not yet parsed, or None when reading is over.
    fn wait_for_demand(&self) -> Option<Vec<FoundRow>> {
        let mut state = self.state();
        loop {
            if state.closed || state.fault.is_some() {
                return None;
            }
            if state.needs_rows(AHEAD) {
                return Some(state.next_batch());
            }
            state = self.wait(state, LONG);
        }
    }

    fn parse(&self, rows: &[FoundRow], threads: usize) -> Result<(), PromptError> {
        let mut verdicts: Vec<Result<Verdict, PromptError>> = rows.iter().map(|_| Ok(Verdict::Outside)).collect();
        let parse = |rows: &[FoundRow], verdicts: &mut [Result<Verdict, PromptError>]| {
            for (row, verdict) in rows.iter().zip(verdicts) {
                *verdict = self.read(row.span()).map(|bytes| self.parser.parse(&bytes, None));
            }
        };
        let share = rows.len().div_ceil(threads);
        std::thread::scope(|scope| {
            let mut parts = rows.chunks(share).zip(verdicts.chunks_mut(share));
            let own = parts.next();
            for (rows, verdicts) in parts {
                scope.spawn(move || parse(rows, verdicts));
            }
            if let Some((rows, verdicts)) = own {
                parse(rows, verdicts);
            }
        });
        let open_bytes = if self.process.is_some() { 0 } else { OPEN_BYTES };
        let mut described = self.state().notes.len();
        for (row, verdict) in rows.iter().zip(verdicts) {
            let verdict = verdict?;
            let note = self.check(*row, &verdict, described < DESCRIBED)?;
            described += usize::from(note.is_some());
            self.state().commit(verdict, note, open_bytes);
        }
        self.changed.notify_all();
        Ok(())
    }

    /// The description of a row that does not fit, where one is needed.
    ///
    /// # Errors
    /// The row makes the dataset unusable.
    fn check(&self, row: FoundRow, verdict: &Verdict, describe: bool) -> Result<Option<String>, PromptError> {
        match verdict {
            Verdict::NotUtf8(byte) => {
                let byte = row.start + *byte as u64;
                Err(PromptError::Utf8 { path: self.parser.path.clone(), line: self.line(byte), byte: byte as usize })
            }
            Verdict::Misfit { below, problem } if self.parser.spec.strict => {
                Err(self.row_error(row.start, *below, problem.clone()))
            }
            Verdict::Misfit { below, problem } if describe => {
                let line = self.line(row.start) + below;
                Ok(Some(format!("{}:{line}: {problem}; the row was left out", self.parser.path.display())))
            }
            Verdict::Usable(_) | Verdict::Outside | Verdict::Misfit { .. } => Ok(None),
        }
    }

    /// Every row was parsed.
    fn finish(&self) -> Result<(), PromptError> {
        let mut state = self.state();
        if state.usable.is_empty() {
            return Err(self.no_rows(&state));
        }
        state.ended = true;
        state.open();
        self.changed.notify_all();
        Ok(())
    }

    fn no_rows(&self, state: &State) -> PromptError {
        let path = self.parser.path.clone();
        let rows = state.rows.len();
        let misfits = state.misfits.len();
        if rows == 0 {
            return PromptError::Empty { path };
        }
        let mut reasons = Vec::new();
        if misfits < rows {
            reasons.push(format!("{} of {rows} are blank or outside `prompt_tokens`", rows - misfits));
        }
        if let Some(first) = state.notes.first() {
            reasons.push(format!("{misfits} of {rows} do not fit\n  {first}; expected {}", self.parser.kind.expected));
        }
        PromptError::NoRows { path, dropped: rows as u64, why: reasons.join(", ") }
    }
}

impl Table {
    /// Starts to read. Nothing is known yet.
    pub fn start(parser: RowParser, origin: Origin, first: u64, order_seed: u64) -> Result<Table, PromptError> {
        let threads = std::thread::available_parallelism().map_or(1, usize::from).min(THREADS);
        Table::start_with_threads(parser, origin, first, order_seed, threads)
    }

    /// As [`Table::start`], with so many threads.
    pub(super) fn start_with_threads(
        parser: RowParser,
        origin: Origin,
        first: u64,
        order_seed: u64,
        threads: usize,
    ) -> Result<Table, PromptError> {
        let cycle = parser.spec.on_exhausted == OnExhausted::Cycle;
        let process = if let Origin::Printed(process, _) = &origin { Some(process.clone()) } else { None };
        let shared =
            Arc::new(Shared { parser, text: OnceLock::new(), state: Mutex::default(), changed: Condvar::new(), process });
        let reader = shared.clone();
        let work = move || {
            let read = catch_unwind(AssertUnwindSafe(|| reader.read_rows(origin, order_seed, threads)));
            // A thread that panics must not leave a caller waiting.
            let read = read.unwrap_or_else(|_| Err(PromptError::Panicked { path: reader.parser.path.clone() }));
            read.unwrap_or_else(|fault| reader.fail(fault));
        };
        std::thread::Builder::new().name("rows".into()).spawn(work).map_err(PromptError::Thread)?;
        Ok(Table { shared, first, cycle })
    }

    /// Waits until enough rows were parsed that most mistakes would have shown: a thousand rows, a mebibyte, or all. Of a
    /// command one row is enough, within its timeout.
    pub fn open(self, progress: &dyn Fn(Progress)) -> Result<Table, PromptError> {
        let began = Instant::now();
        let mut state = self.shared.state();
        loop {
            if state.opened {
                drop(state);
                return Ok(self);
            }
            if let Some(fault) = state.fault.take() {
                drop(state);
                return Err(Arc::try_unwrap(fault).unwrap_or_else(PromptError::Shared));
            }
            let done = state.parsed as u64;
            let total = state.scanned.then_some(state.rows.len() as u64);
            drop(state);
            let late = self.shared.parser.command().filter(|command| began.elapsed() > Duration::from(command.timeout));
            if let Some(command) = late {
                return Err(PromptError::Silent { command: command.shown(), seconds: command.timeout.secs() });
            }
            progress(Progress::Rows { done, total });
            state = self.shared.wait(self.shared.state(), PROGRESS);
        }
    }

    /// The key of the list that holds the rows, where they are the member of a mapping.
    pub fn member(&self) -> Option<&str> {
        match self.shared.parser.format.get() {
            Some((Format::List(_, key), _)) => key.as_deref(),
            _ => None,
        }
    }

    /// Prepared sessions, and rows found.
    #[cfg(test)]
    pub(super) fn held(&self) -> (usize, usize) {
        let state = self.shared.state();
        (state.ready.len(), state.rows.len())
    }

    fn place(&self, state: &State, seq: u64) -> Place {
        let number = self.first.saturating_add(seq);
        let known = state.known();
        if state.ended {
            let beyond = known == 0 || (!self.cycle && seq >= known);
            return if beyond { Place::Missing } else { Place::Known((self.first % known + seq % known) % known) };
        }
        match number < known {
            true => Place::Known(number),
            false if state.fault.is_some() => Place::Missing,
            false => Place::Unread(number),
        }
    }

    /// Waits until the place of a session is known, for so long at most.
    fn wait_for(&self, seq: u64, most: Duration) -> (MutexGuard<'_, State>, Place) {
        let until = Instant::now() + most;
        let mut state = self.shared.state();
        loop {
            let place = self.place(&state, seq);
            let left = until.saturating_duration_since(Instant::now());
            match place {
                Place::Unread(number) if !left.is_zero() => {
                    state.wanted = number;
                    self.shared.changed.notify_all();
                    state = self.shared.wait(state, left);
                }
                place => return (state, place),
            }
        }
    }
}

impl Prompts for Table {
    fn session(&self, seq: u64) -> Option<Session> {
        let (mut state, number) = loop {
            match self.wait_for(seq, LONG) {
                (state, Place::Known(number)) => break (state, number),
                (mut state, Place::Missing) => {
                    state.seen = state.parsed;
                    return None;
                }
                (_, Place::Unread(_)) => {}
            }
        };
        if self.first.saturating_add(seq) != number {
            state.seen = state.parsed;
        }
        let ready = state.take(number);
        let (_, row) = state.row(number)?;
        // Woken for half of what it prepares, the reader works on whole batches.
        let wake = !state.ended && state.needs_rows(AHEAD / 2);
        drop(state);
        if wake {
            self.shared.changed.notify_all();
        }
        if ready.is_some() {
            return ready;
        }
        let tokens = (row.tokens != NOT_COUNTED).then_some(row.tokens.into());
        match self.shared.read(row.span()).map(|bytes| self.shared.parser.parse(&bytes, tokens)) {
            Ok(Verdict::Usable(session)) => Some(session),
            Ok(_) => {
                self.shared.fail(self.shared.row_error(row.start, 0, "the row was another one before".into()));
                None
            }
            Err(fault) => {
                self.shared.fail(fault);
                None
            }
        }
    }

    fn len(&self) -> Option<u64> {
        let state = self.shared.state();
        state.ended.then(|| state.known())
    }

    fn dropped(&self) -> u64 {
        self.shared.state().left_out().0 as u64
    }

    fn ready(&self, seq: u64, most: Duration) -> bool {
        !matches!(self.wait_for(seq, most).1, Place::Unread(_))
    }

    fn fault(&self) -> Option<Arc<PromptError>> {
        self.shared.state().fault.clone()
    }

    fn problems(&self) -> Vec<String> {
        let state = self.shared.state();
        let (left_out, misfits) = state.left_out();
        let seen = state.seen;
        let mut problems: Vec<String> = state.notes.iter().take(misfits).cloned().collect();
        if misfits > problems.len() {
            let path = self.shared.parser.path.display();
            problems.push(format!("{path}: {misfits} of {seen} dataset rows do not fit and were left out"));
        }
        if left_out > misfits {
            let outside = left_out - misfits;
            problems.push(format!("{outside} of {seen} dataset rows are blank or outside `prompt_tokens` and were left out"));
        }
        problems
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        self.shared.state().closed = true;
        self.shared.changed.notify_all();
        if let Some(process) = &self.shared.process {
            process.end();
        }
    }
}
