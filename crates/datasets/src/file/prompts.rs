//! Sessions that are the rows of a file, by number.
//!
//! One thread per dataset reads the file, only as far as rows are needed: it finds where rows begin and end ([`Scan`]),
//! parses, counts and filters them in batches on several threads, and records the results in the order of the rows,
//! so that no result depends on the number of threads. Memory holds the [`RowIndex`]; a session that is no longer
//! prepared is read again by its offset.

use super::format_detection::Format;
use super::reader::{Reader, UNLIMITED};
use super::row::{ParsedRow, RowParser};
use super::row_index::{AHEAD, RowIndex};
use super::scan::Scan;
use super::source::Origin;
use crate::error::PromptError;
use crate::{Progress, Prompts};
use llmscen_core::dataset::{OnExhausted, Order, Session};
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, MutexGuard};
use std::thread::Builder;
use std::time::{Duration, Instant};

/// Limit of the threads that parse a batch of rows.
const MAX_THREADS: usize = 4;
const PROGRESS_INTERVAL: Duration = Duration::from_millis(50);

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
    pub fn start(
        parser: RowParser,
        origin: Origin,
        first: u64,
        order_seed: u64,
    ) -> Result<FilePrompts, PromptError> {
        let threads = std::thread::available_parallelism()
            .map_or(1, usize::from)
            .min(MAX_THREADS);
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
        let process = if let Origin::Printed(process, _) = &origin {
            Some(process.clone())
        } else {
            None
        };
        let reader = Arc::new(Reader::new(parser, process));
        let shared = reader.clone();
        let work = move || {
            let read = catch_unwind(AssertUnwindSafe(|| {
                read_rows(&shared, origin, order_seed, threads)
            }));
            // A thread that panics must not leave a caller waiting.
            let read = read.unwrap_or_else(|_| {
                Err(PromptError::Panicked {
                    path: shared.parser.path.clone(),
                })
            });
            read.unwrap_or_else(|fault| shared.fail(fault));
        };
        Builder::new()
            .name("rows".into())
            .spawn(work)
            .map_err(PromptError::Thread)?;
        Ok(FilePrompts {
            reader,
            first,
            cycle,
        })
    }

    /// Waits until enough rows were parsed that most errors would have shown: 1000 rows, 1 MiB, or all. Of a command
    /// one row is enough, within its timeout.
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
            let late = self
                .reader
                .parser
                .command()
                .filter(|command| began.elapsed() > Duration::from(command.timeout));
            if let Some(command) = late {
                return Err(PromptError::Silent {
                    command: command.display(),
                    seconds: command.timeout.secs(),
                });
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
            let Availability::Unread(number) = availability else {
                return (index, availability);
            };
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

/// The work of the reader thread.
fn read_rows(
    reader: &Reader,
    origin: Origin,
    order_seed: u64,
    threads: usize,
) -> Result<(), PromptError> {
    let mut scan = Scan::start(origin, reader)?;
    if reader.parser.spec.order == Order::Shuffle {
        // A permutation needs all rows, so an error anywhere in the file precedes the first row.
        while scan.advance()? {
            if reader.closed() {
                return Ok(());
            }
        }
        let mut index = reader.index();
        index
            .rows
            .shuffle(&mut ChaCha8Rng::seed_from_u64(order_seed));
        index.scanned = true;
    }
    let mut scanned = Ok(());
    while let Some(batch) = reader.wait_for_demand() {
        if !batch.is_empty() {
            reader.parse(&batch, threads)?;
        } else if reader.index().scanned {
            scanned?;
            return reader.finish();
        } else {
            // The rows before an error are sent first.
            let more = scan.advance().unwrap_or_else(|error| {
                scanned = Err(error);
                false
            });
            reader.index().scanned = !more;
        }
    }
    Ok(())
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
        match self
            .reader
            .read(span)
            .map(|bytes| self.reader.parser.parse(&bytes, row.tokens()))
        {
            Ok(ParsedRow::Usable(session)) => Some(session),
            Ok(_) => {
                self.reader.fail(self.reader.row_error(
                    span.start,
                    0,
                    "the row changed during the run".into(),
                ));
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
            problems.push(format!(
                "{path}: {invalid} of {rows} dataset rows are invalid and were left out"
            ));
        }
        let excluded = index.left_out() - invalid;
        if excluded > 0 {
            problems.push(format!(
                "{excluded} of {rows} dataset rows are blank or outside \
            `prompt_tokens` and were left out"
            ));
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
