//! What the thread that reads a file and the callers of its rows share: the text, the index, and the rows parsed so
//! far.

use super::command::Process;
use super::row::{ParsedRow, RowParser};
use super::row_index::{AHEAD, FoundRow, OPEN_BYTES, RowIndex};
use super::row_splitter::Span;
use super::source::Text;
use crate::error::PromptError;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::Builder;
use std::time::Duration;

/// Number of invalid rows that are described; all are counted.
const DESCRIBED: usize = 3;
/// A wait that only the data ends.
pub const UNLIMITED: Duration = Duration::from_secs(3600);

/// What the reader thread and the callers share.
pub struct Reader {
    pub parser: RowParser,
    text: OnceLock<Text>,
    index: Mutex<RowIndex>,
    pub changed: Condvar,
    /// The command that prints the rows.
    pub process: Option<Arc<Process>>,
}

impl Reader {
    /// A reader of no rows yet.
    pub fn new(parser: RowParser, process: Option<Arc<Process>>) -> Reader {
        Reader {
            parser,
            text: OnceLock::new(),
            index: Mutex::default(),
            changed: Condvar::new(),
            process,
        }
    }

    /// The rows found and parsed so far.
    pub fn index(&self) -> MutexGuard<'_, RowIndex> {
        self.index.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the index changes, or the timeout is over.
    pub fn wait<'g>(
        &self,
        index: MutexGuard<'g, RowIndex>,
        timeout: Duration,
    ) -> MutexGuard<'g, RowIndex> {
        self.changed
            .wait_timeout(index, timeout)
            .unwrap_or_else(PoisonError::into_inner)
            .0
    }

    /// Records the error that ends the reading; later ones are ignored.
    pub fn fail(&self, fault: PromptError) {
        self.index().fault.get_or_insert_with(|| Arc::new(fault));
        self.changed.notify_all();
    }

    /// Whether the prompts were dropped.
    pub fn closed(&self) -> bool {
        self.index().closed
    }

    /// From now on rows can be read by their offset.
    pub fn set_text(&self, text: Text) {
        // There is one scan, so it is set once.
        let _ = self.text.set(text);
    }

    /// The bytes of a row.
    pub fn read(&self, span: Span) -> Result<Vec<u8>, PromptError> {
        let bytes = self.text.get().map_or_else(
            || Err(std::io::ErrorKind::NotFound.into()),
            |text| text.read(span),
        );
        bytes.map_err(|source| PromptError::Read {
            path: self.parser.path.clone(),
            source,
        })
    }

    /// Counts the lines of the next piece of the text, for errors.
    pub fn count_lines(&self, offset: u64, piece: &[u8]) {
        self.index().line_marks.add(offset, piece);
    }

    /// The line of the byte at an offset, from 1.
    fn line(&self, offset: u64) -> usize {
        let mark = self.index().line_marks.before(offset);
        let line_ends = self
            .text
            .get()
            .and_then(|text| text.count_line_ends(mark.offset, offset).ok());
        // A text that can no longer be read causes another error.
        1 + mark.line_ends + line_ends.unwrap_or_default()
    }

    /// The error of the row at an offset. `lines_below` is where in the row the problem is.
    pub fn row_error(&self, offset: u64, lines_below: usize, problem: String) -> PromptError {
        let path = self.parser.path.clone();
        PromptError::Row {
            path,
            line: self.line(offset) + lines_below,
            problem,
            expected: self.parser.kind.expected,
        }
    }

    /// Adds rows that the scan found.
    pub fn add_rows(&self, rows: &[Span]) -> Result<(), PromptError> {
        let mut index = self.index();
        if index.rows.len() + rows.len() > u32::MAX as usize {
            drop(index);
            return Err(self.row_error(
                rows.first().map_or(0, |row| row.start),
                0,
                "more than 4294967295 rows".into(),
            ));
        }
        index.add_rows(rows);
        Ok(())
    }

    /// Waits until rows are needed; returns those that were found and not yet parsed, or None when reading is over.
    pub fn wait_for_demand(&self) -> Option<Vec<FoundRow>> {
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

    /// Parses rows in threads and records the results in the order of the rows.
    pub fn parse(&self, rows: &[FoundRow], threads: usize) -> Result<(), PromptError> {
        let mut results: Vec<Result<ParsedRow, PromptError>> =
            rows.iter().map(|_| Ok(ParsedRow::Excluded)).collect();
        let share = rows.len().div_ceil(threads);
        let parts = rows.chunks(share).zip(results.chunks_mut(share));
        process_in_threads(parts, threads, &Builder::new, &|(rows, results)| {
            for (row, result) in rows.iter().zip(results) {
                *result = self
                    .read(row.span())
                    .map(|bytes| self.parser.parse(&bytes, None));
            }
        });
        let open_bytes = if self.process.is_some() {
            0
        } else {
            OPEN_BYTES
        };
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
    fn check(
        &self,
        row: FoundRow,
        parsed: &ParsedRow,
        describe: bool,
    ) -> Result<Option<String>, PromptError> {
        let start = row.span().start;
        match parsed {
            ParsedRow::NotUtf8(byte) => {
                let byte = start + *byte as u64;
                Err(PromptError::Utf8 {
                    path: self.parser.path.clone(),
                    line: self.line(byte),
                    byte: byte as usize,
                })
            }
            ParsedRow::Invalid {
                lines_below,
                problem,
            } if self.parser.spec.strict => {
                Err(self.row_error(start, *lines_below, problem.clone()))
            }
            ParsedRow::Invalid {
                lines_below,
                problem,
            } if describe => {
                let line = self.line(start) + lines_below;
                Ok(Some(format!(
                    "{}:{line}: {problem}; the row was left out",
                    self.parser.path.display()
                )))
            }
            ParsedRow::Usable(_) | ParsedRow::Excluded | ParsedRow::Invalid { .. } => Ok(None),
        }
    }

    /// Every row was parsed.
    pub fn finish(&self) -> Result<(), PromptError> {
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
            reasons.push(format!(
                "{} of {rows} are blank or outside `prompt_tokens`",
                rows - invalid
            ));
        }
        if let Some(first) = index.notes.first() {
            reasons.push(format!(
                "{invalid} of {rows} are invalid\n  {first}; expected {}",
                self.parser.kind.expected
            ));
        }
        PromptError::NoRows {
            path,
            dropped: rows as u64,
            why: reasons.join(", "),
        }
    }
}

/// Processes parts in up to this many threads, the calling one included. Where the system starts no more threads, the
/// others do the work.
pub fn process_in_threads<T>(
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
