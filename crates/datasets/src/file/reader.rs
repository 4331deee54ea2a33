//! Sessions that are the rows of a file, by number.
//!
//! One thread per dataset reads the file, only as far as rows are needed: it finds where rows begin and end ([`Scan`]),
//! parses, counts and filters them in batches on several threads, and records the results in the order of the rows, so that
//! no result depends on the number of threads. Memory holds the [`RowIndex`]; a session that is no longer prepared is read
//! again by its offset.

use super::command::Process;
use super::format_detection::Format;
use super::row::{ParsedRow, RowParser};
use super::row_index::{AHEAD, FoundRow, OPEN_BYTES, RowIndex};
use super::row_splitter::Span;
use super::scan::Scan;
use super::source::{Origin, Text};
use crate::error::PromptError;
use crate::{Progress, Prompts};
use llmscen_core::dataset::Session;
use llmscen_core::dataset::{OnExhausted, Order};
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::Builder;
use std::time::{Duration, Instant};

/// Limit of the threads that parse a batch of rows.
const MAX_THREADS: usize = 4;
/// Number of invalid rows that are described; all are counted.
const DESCRIBED: usize = 3;
const PROGRESS_INTERVAL: Duration = Duration::from_millis(50);
/// A wait that only the data ends.
const UNLIMITED: Duration = Duration::from_secs(3600);

/// What the reader thread and the callers share.
pub struct Reader {
    pub parser: RowParser,
    text: OnceLock<Text>,
    index: Mutex<RowIndex>,
    changed: Condvar,
    /// The command that prints the rows.
    process: Option<Arc<Process>>,
}

impl Reader {
    fn index(&self) -> MutexGuard<'_, RowIndex> {
        self.index.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'g>(&self, index: MutexGuard<'g, RowIndex>, timeout: Duration) -> MutexGuard<'g, RowIndex> {
        self.changed.wait_timeout(index, timeout).unwrap_or_else(PoisonError::into_inner).0
    }

    fn fail(&self, fault: PromptError) {
        self.index().fault.get_or_insert_with(|| Arc::new(fault));
        self.changed.notify_all();
    }

    fn closed(&self) -> bool {
        self.index().closed
    }

    /// From now on rows can be read by their offset.
    pub fn set_text(&self, text: Text) {
        // There is one scan, so it is set once.
        let _ = self.text.set(text);
    }

    /// The bytes of a row.
    pub fn read(&self, span: Span) -> Result<Vec<u8>, PromptError> {
        let bytes = self.text.get().map_or_else(|| Err(std::io::ErrorKind::NotFound.into()), |text| text.read(span));
        bytes.map_err(|source| PromptError::Read { path: self.parser.path.clone(), source })
    }

    /// Counts the lines of the next piece of the text, for errors.
    pub fn count_lines(&self, offset: u64, piece: &[u8]) {
        self.index().line_marks.add(offset, piece);
    }

    /// The line of the byte at an offset, from 1.
    fn line(&self, offset: u64) -> usize {
        let mark = self.index().line_marks.before(offset);
        let line_ends = self.text.get().and_then(|text| text.count_line_ends(mark.offset, offset).ok());
        // A text that can no longer be read causes another error.
        1 + mark.line_ends + line_ends.unwrap_or_default()
    }

    /// The error of the row at an offset. `lines_below` is where in the row the problem is.
    pub fn row_error(&self, offset: u64, lines_below: usize, problem: String) -> PromptError {
        let path = self.parser.path.clone();
        PromptError::Row { path, line: self.line(offset) + lines_below, problem, expected: self.parser.kind.expected }
    }

    /// Adds rows that the scan found.
    pub fn add_rows(&self, rows: &[Span]) -> Result<(), PromptError> {
        let mut index = self.index();
        if index.rows.len() + rows.len() > u32::MAX as usize {
            drop(index);
            return Err(self.row_error(rows.first().map_or(0, |row| row.start), 0, "more than 4294967295 rows".into()));
        }
        index.add_rows(rows);
        Ok(())
    }

    /// The work of the reader thread.
    fn read_rows(&self, origin: Origin, order_seed: u64, threads: usize) -> Result<(), PromptError> {
        let mut scan = Scan::start(origin, self)?;
        if self.parser.spec.order == Order::Shuffle {
            // A permutation needs all rows, so an error anywhere in the file precedes the first row.
            while scan.advance()? {
                if self.closed() {
                    return Ok(());
                }
            }
            let mut index = self.index();
            index.rows.shuffle(&mut ChaCha8Rng::seed_from_u64(order_seed));
            index.scanned = true;
        }
        let mut scanned = Ok(());
        while let Some(batch) = self.wait_for_demand() {
            if !batch.is_empty() {
                self.parse(&batch, threads)?;
            } else if self.index().scanned {
                scanned?;
                return self.finish();
            } else {
                // The rows before an error are sent first.
                let more = scan.advance().unwrap_or_else(|error| {
                    scanned = Err(error);
                    false
                });
                self.index().scanned = !more;
            }
        }
        Ok(())
    }

    /// Waits until rows are needed; returns those that were found and not yet parsed, or None when reading is over.
    fn wait_for_demand(&self) -> Option<Vec<FoundRow>> {
        let mut index = self.index();
        loop {
            if index.closed || index.fault.is_some() {
                return None;
            }
            if index.needs_rows(AHEAD) {
                return Some(index.next_batch());
            }
            index = self.wait(index, UNLIMITED);
        }
    }

    fn parse(&self, rows: &[FoundRow], threads: usize) -> Result<(), PromptError> {
        let mut results: Vec<Result<ParsedRow, PromptError>> = rows.iter().map(|_| Ok(ParsedRow::Excluded)).collect();
        let share = rows.len().div_ceil(threads);
        let parts = rows.chunks(share).zip(results.chunks_mut(share));
        process_in_threads(parts, threads, &Builder::new, &|(rows, results)| {
            for (row, result) in rows.iter().zip(results) {
                *result = self.read(row.span()).map(|bytes| self.parser.parse(&bytes, None));
            }
        });
        let open_bytes = if self.process.is_some() { 0 } else { OPEN_BYTES };
        let mut described = self.index().notes.len();
        for (row, result) in rows.iter().zip(results) {
            let parsed = result?;
            let note = self.check(*row, &parsed, described < DESCRIBED)?;
            described += usize::from(note.is_some());
            self.index().commit(parsed, note, open_bytes);
        }
        self.changed.notify_all();
        Ok(())
    }

    /// The description of an invalid row, where one is needed.
    ///
    /// # Errors
    /// The row makes the dataset unusable.
    fn check(&self, row: FoundRow, parsed: &ParsedRow, describe: bool) -> Result<Option<String>, PromptError> {
        let start = row.span().start;
        match parsed {
            ParsedRow::NotUtf8(byte) => {
                let byte = start + *byte as u64;
                Err(PromptError::Utf8 { path: self.parser.path.clone(), line: self.line(byte), byte: byte as usize })
            }
            ParsedRow::Invalid { lines_below, problem } if self.parser.spec.strict => {
                Err(self.row_error(start, *lines_below, problem.clone()))
            }
            ParsedRow::Invalid { lines_below, problem } if describe => {
                let line = self.line(start) + lines_below;
                Ok(Some(format!("{}:{line}: {problem}; the row was left out", self.parser.path.display())))
            }
            ParsedRow::Usable(_) | ParsedRow::Excluded | ParsedRow::Invalid { .. } => Ok(None),
        }
    }

    /// Every row was parsed.
    fn finish(&self) -> Result<(), PromptError> {
        let mut index = self.index();
        if index.usable.is_empty() {
            return Err(self.no_usable_row(&index));
        }
        index.complete = true;
        index.open();
        self.changed.notify_all();
        Ok(())
    }

    fn no_usable_row(&self, index: &RowIndex) -> PromptError {
        let path = self.parser.path.clone();
        let rows = index.rows.len();
        let invalid = index.invalid.len();
        if rows == 0 {
            return PromptError::Empty { path };
        }
        let mut reasons = Vec::new();
        if invalid < rows {
            reasons.push(format!("{} of {rows} are blank or outside `prompt_tokens`", rows - invalid));
        }
        if let Some(first) = index.notes.first() {
            reasons.push(format!("{invalid} of {rows} are invalid\n  {first}; expected {}", self.parser.kind.expected));
        }
        PromptError::NoRows { path, dropped: rows as u64, why: reasons.join(", ") }
    }
}

/// Processes parts in up to this many threads, the calling one included. Where the system starts no more threads, the others
/// do the work.
fn process_in_threads<T>(
    parts: impl Iterator<Item = T> + Send,
    threads: usize,
    builder: &dyn Fn() -> Builder,
    process: &(impl Fn(T) + Sync),
) {
    let parts = Mutex::new(parts);
    let process_parts = || {
        let next = || parts.lock().unwrap_or_else(PoisonError::into_inner).next();
        while let Some(part) = next() {
            process(part);
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads {
            if builder().spawn_scoped(scope, process_parts).is_err() {
                break;
            }
        }
        process_parts();
    });
}

/// Prompts that are the rows of a file.
pub struct FilePrompts {
    reader: Arc<Reader>,
    first: u64,
    cycle: bool,
}

/// Whether a session can be had.
#[derive(Clone, Copy)]
enum Availability {
    /// It has this number.
    Found(u64),
    /// It will have this number if the rows suffice.
    Unread(u64),
    /// The data is exhausted, or cannot be read.
    Missing,
}

impl FilePrompts {
    /// Starts to read.
    pub fn start(parser: RowParser, origin: Origin, first: u64, order_seed: u64) -> Result<FilePrompts, PromptError> {
        let threads = std::thread::available_parallelism().map_or(1, usize::from).min(MAX_THREADS);
        FilePrompts::start_with_threads(parser, origin, first, order_seed, threads)
    }

    fn start_with_threads(
        parser: RowParser,
        origin: Origin,
        first: u64,
        order_seed: u64,
        threads: usize,
    ) -> Result<FilePrompts, PromptError> {
        let cycle = parser.spec.on_exhausted == OnExhausted::Cycle;
        let process = if let Origin::Printed(process, _) = &origin { Some(process.clone()) } else { None };
        let reader =
            Arc::new(Reader { parser, text: OnceLock::new(), index: Mutex::default(), changed: Condvar::new(), process });
        let shared = reader.clone();
        let work = move || {
            let read = catch_unwind(AssertUnwindSafe(|| shared.read_rows(origin, order_seed, threads)));
            // A thread that panics must not leave a caller waiting.
            let read = read.unwrap_or_else(|_| Err(PromptError::Panicked { path: shared.parser.path.clone() }));
            read.unwrap_or_else(|fault| shared.fail(fault));
        };
        Builder::new().name("rows".into()).spawn(work).map_err(PromptError::Thread)?;
        Ok(FilePrompts { reader, first, cycle })
    }

    /// Waits until enough rows were parsed that most errors would have shown: 1000 rows, 1 MiB, or all. Of a command one
    /// row is enough, within its timeout.
    pub fn open(self, progress: &dyn Fn(Progress)) -> Result<FilePrompts, PromptError> {
        let began = Instant::now();
        let mut index = self.reader.index();
        loop {
            if index.opened {
                drop(index);
                return Ok(self);
            }
            if let Some(fault) = index.fault.take() {
                drop(index);
                return Err(Arc::try_unwrap(fault).unwrap_or_else(PromptError::Shared));
            }
            let done = index.parsed as u64;
            let total = index.scanned.then_some(index.rows.len() as u64);
            drop(index);
            let late = self.reader.parser.command().filter(|command| began.elapsed() > Duration::from(command.timeout));
            if let Some(command) = late {
                return Err(PromptError::Silent { command: command.display(), seconds: command.timeout.secs() });
            }
            progress(Progress::Rows { done, total });
            index = self.reader.wait(self.reader.index(), PROGRESS_INTERVAL);
        }
    }

    /// The key of the list that holds the rows, where they are the member of a mapping.
    pub fn member(&self) -> Option<&str> {
        match self.reader.parser.format.get() {
            Some((Format::List(_, key), _)) => key.as_deref(),
            _ => None,
        }
    }

    fn availability(&self, index: &RowIndex, seq: u64) -> Availability {
        let number = self.first.saturating_add(seq);
        let count = index.session_count();
        if index.complete {
            let exhausted = count == 0 || (!self.cycle && seq >= count);
            return if exhausted {
                Availability::Missing
            } else {
                Availability::Found((self.first % count + seq % count) % count)
            };
        }
        match number < count {
            true => Availability::Found(number),
            false if index.fault.is_some() => Availability::Missing,
            false => Availability::Unread(number),
        }
    }

    /// Waits until a session is found or missing, or the timeout is over.
    fn wait_for(&self, seq: u64, timeout: Duration) -> (MutexGuard<'_, RowIndex>, Availability) {
        let until = Instant::now() + timeout;
        let mut index = self.reader.index();
        loop {
            let availability = self.availability(&index, seq);
            let left = until.saturating_duration_since(Instant::now());
            let Availability::Unread(number) = availability else { return (index, availability) };
            if left.is_zero() {
                return (index, availability);
            }
            // Callers that wait for different sessions must not wake each other in a loop.
            if index.request(number) {
                self.reader.changed.notify_all();
            }
            index = self.reader.wait(index, left);
        }
    }
}

impl Prompts for FilePrompts {
    fn session(&self, seq: u64) -> Option<Session> {
        let (mut index, number) = loop {
            match self.wait_for(seq, UNLIMITED) {
                (index, Availability::Found(number)) => break (index, number),
                (mut index, Availability::Missing) => {
                    index.reported_rows = index.parsed;
                    return None;
                }
                (_, Availability::Unread(_)) => {}
            }
        };
        if self.first.saturating_add(seq) != number {
            index.reported_rows = index.parsed;
        }
        let ready = index.take(number);
        let (_, row) = index.row(number)?;
        // Woken only when half of the prepared sessions are taken, the reader works on full batches.
        let wake = !index.complete && index.needs_rows(AHEAD / 2);
        drop(index);
        if wake {
            self.reader.changed.notify_all();
        }
        if ready.is_some() {
            return ready;
        }
        let span = row.span();
        match self.reader.read(span).map(|bytes| self.reader.parser.parse(&bytes, row.tokens())) {
            Ok(ParsedRow::Usable(session)) => Some(session),
            Ok(_) => {
                self.reader.fail(self.reader.row_error(span.start, 0, "the row changed during the run".into()));
                None
            }
            Err(fault) => {
                self.reader.fail(fault);
                None
            }
        }
    }

    fn len(&self) -> Option<u64> {
        let index = self.reader.index();
        index.complete.then(|| index.session_count())
    }

    fn dropped(&self) -> u64 {
        self.reader.index().left_out() as u64
    }

    fn ready(&self, seq: u64, timeout: Duration) -> bool {
        !matches!(self.wait_for(seq, timeout).1, Availability::Unread(_))
    }

    fn fault(&self) -> Option<Arc<PromptError>> {
        self.reader.index().fault.clone()
    }

    fn problems(&self) -> Vec<String> {
        let index = self.reader.index();
        let rows = index.reported_rows;
        let invalid = index.reported_invalid();
        let mut problems: Vec<String> = index.notes.iter().take(invalid).cloned().collect();
        if invalid > problems.len() {
            let path = self.reader.parser.path.display();
            problems.push(format!("{path}: {invalid} of {rows} dataset rows are invalid and were left out"));
        }
        let excluded = index.left_out() - invalid;
        if excluded > 0 {
            problems.push(format!("{excluded} of {rows} dataset rows are blank or outside `prompt_tokens` and were left out"));
        }
        problems
    }
}

impl Drop for FilePrompts {
    fn drop(&mut self) {
        self.reader.index().closed = true;
        self.reader.changed.notify_all();
        if let Some(process) = &self.reader.process {
            process.stop();
        }
    }
}

#[cfg(test)]
mod tests;
