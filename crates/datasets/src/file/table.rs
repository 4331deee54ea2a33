//! Sessions that are the rows of a file, by number.

use super::command::Process;
use super::reader::Shared;
use super::reading::{Reading, Verdict};
use super::row_index::State;
use super::scan::scan;
use super::source::Origin;
use crate::error::PromptError;
use crate::{Progress, Prompts};
use llmscen_core::dataset::OnExhausted;
use llmscen_core::prompt::Session;
use std::sync::Arc;
use std::sync::MutexGuard;
use std::time::{Duration, Instant};

/// Threads that judge rows, at the most.
const JUDGES: usize = 4;
/// Between two looks at how far it is.
const LOOK: Duration = Duration::from_millis(50);
/// How long a wait lasts that nothing ends but the data.
const LONG: Duration = Duration::from_secs(3600);

/// The rows of a file.
pub struct Table {
    shared: Arc<Shared>,
    first: u64,
    cycle: bool,
}

/// Where a session is to be found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// Under this number.
    Known(u64),
    /// Under this number, once the rows before it are known.
    Coming(u64),
    /// Nowhere.
    Nowhere,
}

impl Table {
    /// Starts to read. Nothing is known yet.
    pub fn start(reading: Reading, origin: Origin, first: u64, order_seed: u64) -> Result<Table, PromptError> {
        let judges = std::thread::available_parallelism().map_or(1, usize::from).min(JUDGES);
        Table::with(reading, origin, (first, order_seed), judges)
    }

    /// As [`Table::start`], with so many threads.
    pub(super) fn with(
        reading: Reading,
        origin: Origin,
        (first, order_seed): (u64, u64),
        judges: usize,
    ) -> Result<Table, PromptError> {
        let cycle = reading.spec.on_exhausted == OnExhausted::Cycle;
        let table = Table { shared: Arc::new(Shared::new(reading, order_seed)), first, cycle };
        let shared = table.shared.clone();
        spawn("scan", move || {
            let guard = Guard(&shared);
            guard.0.scanned(scan(origin, guard.0));
        })?;
        for _ in 0..judges {
            let shared = table.shared.clone();
            spawn("rows", move || Guard(&shared).0.work())?;
        }
        Ok(table)
    }

    /// Ends this process with the table.
    pub fn ending(self, process: Arc<Process>) -> Table {
        self.shared.ends(process);
        self
    }

    /// Waits until so much was looked at that most mistakes would have shown: a thousand rows, or a mebibyte, or the end. Of a
    /// command one row is enough, for which it has some time.
    pub fn open(self, progress: &dyn Fn(Progress)) -> Result<Table, PromptError> {
        let began = Instant::now();
        let mut state = self.shared.state();
        loop {
            if state.looked {
                drop(state);
                return Ok(self);
            }
            if let Some(fault) = state.fault.take() {
                drop(state);
                return Err(Arc::try_unwrap(fault).unwrap_or_else(PromptError::Shared));
            }
            let (done, total) = (state.judged().0 as u64, state.scanned.is_some().then_some(state.rows() as u64));
            drop(state);
            let late = self.shared.reading.command().filter(|command| began.elapsed() > Duration::from(command.timeout));
            if let Some(command) = late {
                return Err(PromptError::Silent { command: command.shown(), seconds: command.timeout.secs() });
            }
            progress(Progress::Rows { done, total });
            state = self.shared.wait(self.shared.state(), LOOK);
        }
    }

    /// The key of the list that holds the rows, where they are the member of a mapping.
    pub fn member(&self) -> Option<&str> {
        match self.shared.reading.format.get() {
            Some((super::format_detection::Format::List(_, key), _)) => key.as_deref(),
            _ => None,
        }
    }

    /// Sessions that are held, and rows whose places are known.
    #[cfg(test)]
    pub(super) fn held(&self) -> (usize, usize) {
        self.shared.state().held()
    }

    fn place(&self, state: &State, seq: u64) -> Place {
        let (number, known) = (self.first.saturating_add(seq), state.known());
        if state.ended {
            let beyond = known == 0 || (!self.cycle && seq >= known);
            return if beyond { Place::Nowhere } else { Place::Known((self.first % known + seq % known) % known) };
        }
        match number < known {
            true => Place::Known(number),
            false if state.fault.is_some() => Place::Nowhere,
            false => Place::Coming(number),
        }
    }

    /// Waits for the place of a session, for so long at the most.
    fn settled(&self, seq: u64, most: Duration) -> (MutexGuard<'_, State>, Place) {
        let until = Instant::now() + most;
        let mut state = self.shared.state();
        loop {
            let place = self.place(&state, seq);
            let left = until.saturating_duration_since(Instant::now());
            match place {
                Place::Coming(number) if !left.is_zero() => {
                    state.want(number);
                    self.shared.wake();
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
            match self.settled(seq, LONG) {
                (state, Place::Known(number)) => break (state, number),
                (mut state, Place::Nowhere) => {
                    state.see_all();
                    return None;
                }
                (_, Place::Coming(_)) => {}
            }
        };
        if self.first.saturating_add(seq) != number {
            state.see_all();
        }
        let ready = state.take(number);
        let row = state.usable(number)?;
        let span = state.span(row.position as usize)?;
        let hungry = state.hungry();
        drop(state);
        if hungry {
            self.shared.wake();
        }
        if ready.is_some() {
            return ready;
        }
        match self.shared.read(span).map(|bytes| self.shared.reading.judge(&bytes, row.tokens())) {
            Ok(Verdict::Usable(session)) => Some(session),
            Ok(_) => {
                self.shared.fail(self.shared.row_error(span.start, 0, "the row was another one before".into()));
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
        self.shared.state().left_out().0
    }

    fn ready(&self, seq: u64, most: Duration) -> bool {
        !matches!(self.settled(seq, most).1, Place::Coming(_))
    }

    fn fault(&self) -> Option<Arc<PromptError>> {
        self.shared.state().fault.clone()
    }

    fn problems(&self) -> Vec<String> {
        let state = self.shared.state();
        let ((left_out, misfits), (_, seen)) = (state.left_out(), state.judged());
        let mut problems: Vec<String> = state.told().cloned().collect();
        if misfits > problems.len() as u64 {
            let path = self.shared.reading.path.display();
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
        self.shared.close();
    }
}

/// A thread that ends in a panic must not leave anybody waiting.
struct Guard<'a>(&'a Shared);

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.fail(PromptError::Panicked { path: self.0.reading.path.clone() });
        }
    }
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> Result<(), PromptError> {
    std::thread::Builder::new().name(name.into()).spawn(work).map_err(PromptError::Thread)?;
    Ok(())
}
