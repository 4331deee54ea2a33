//! What the threads of one dataset share: the scanner, the judges, and whoever asks for sessions.

use super::command::Process;
use super::reading::{Reading, Told, Verdict};
use super::row_index::{Job, State, TOLD};
use super::row_splitter::Span;
use super::source::Text;
use crate::error::PromptError;
use llmscen_core::dataset::Order;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

/// Line ends are counted up to every so many bytes, so that the line of any byte is found without reading all before it.
const STRIDE: u64 = 256 << 10;

/// A dataset and what is known of it.
pub struct Shared {
    /// How its rows are read.
    pub reading: Reading,
    /// The seed of its order.
    pub order_seed: u64,
    text: OnceLock<Text>,
    /// Line ends before each stride.
    lines: Mutex<(Vec<u64>, u64)>,
    state: Mutex<State>,
    moved: Condvar,
    closed: AtomicBool,
    /// The process that prints the rows.
    process: OnceLock<Arc<Process>>,
}

impl Shared {
    /// A dataset of which nothing is known yet.
    pub fn new(reading: Reading, order_seed: u64) -> Shared {
        let mut state = State::default();
        state.eager = reading.command().is_some();
        Shared {
            reading,
            order_seed,
            text: OnceLock::new(),
            lines: Mutex::default(),
            state: Mutex::new(state),
            process: OnceLock::new(),
            moved: Condvar::new(),
            closed: AtomicBool::new(false),
        }
    }

    /// What is known. A thread that ended in a panic has told so in the state itself.
    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until something moved, or for so long.
    pub fn wait<'g>(&self, state: MutexGuard<'g, State>, most: Duration) -> MutexGuard<'g, State> {
        self.moved.wait_timeout(state, most).unwrap_or_else(PoisonError::into_inner).0
    }

    /// Wakes whoever waits.
    pub fn wake(&self) {
        self.moved.notify_all();
    }

    /// Nobody will ask again: every thread ends.
    pub fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
        self.state().closed = true;
        self.wake();
        if let Some(process) = self.process.get() {
            process.end();
        }
    }

    /// Ends this process with the dataset.
    pub fn ends(&self, process: Arc<Process>) {
        // One command prints the rows of a dataset.
        let _ = self.process.set(process);
    }

    /// Waits until more rows of a command are needed: one that never ends must not fill the disk.
    pub fn wait_for_demand(&self) {
        if self.reading.command().is_none() {
            return;
        }
        let mut state = self.state();
        while !state.closed && state.sated() {
            state = self.moved.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Whether nobody will ask again.
    pub fn closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }

    /// Nothing more can be had, for this reason; what was found before stands.
    pub fn fail(&self, fault: PromptError) {
        self.state().fault.get_or_insert_with(|| Arc::new(fault));
        self.wake();
    }

    /// Rows can be read from now on.
    pub fn readable(&self, text: Text) {
        // There is one scan, so it is set once.
        let _ = self.text.set(text);
    }

    /// The bytes of a row.
    pub fn read(&self, span: Span) -> Result<Vec<u8>, PromptError> {
        let bytes = self.text.get().map_or_else(|| Err(std::io::ErrorKind::NotFound.into()), |text| text.read(span));
        bytes.map_err(|source| PromptError::Read { path: self.reading.path.clone(), source })
    }

    /// Takes in rows that were found.
    pub fn found(&self, rows: &[Span]) -> Result<(), PromptError> {
        let mut state = self.state();
        if state.rows() + rows.len() > u32::MAX as usize {
            let at = rows.first().map_or(0, |row| row.start);
            drop(state);
            return Err(self.row_error(at, 0, "more than 4294967295 rows".into()));
        }
        state.found(rows);
        drop(state);
        self.wake();
        Ok(())
    }

    /// Puts all rows into another order.
    pub fn shuffle(&self, shuffle: impl FnOnce(&mut Vec<u32>)) {
        let rows = self.state().rows() as u32;
        let mut order: Vec<u32> = (0..rows).collect();
        shuffle(&mut order);
        self.state().order = Some(order);
    }

    /// The scan is over.
    pub fn scanned(&self, how: Result<(), PromptError>) {
        let mut state = self.state();
        match how {
            // Without all rows there is no permutation of them.
            Err(fault) if self.reading.spec.order == Order::Shuffle => {
                state.fault.get_or_insert(Arc::new(fault));
            }
            how => state.scanned = Some(how),
        }
        self.settle(&mut state);
        drop(state);
        self.wake();
    }

    /// Judges rows until nobody asks any more.
    pub fn work(&self) {
        let shuffled = self.reading.spec.order == Order::Shuffle;
        let mut state = self.state();
        while !state.closed && !state.ended && state.fault.is_none() {
            let Some(job) = state.claim(shuffled) else {
                state = self.moved.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            drop(state);
            let verdicts = self.judge(&job);
            state = self.state();
            match verdicts {
                Ok(verdicts) => state.commit(&job, verdicts, &|state, position, verdict| self.tell(state, position, verdict)),
                Err(fault) => _ = state.fault.get_or_insert(Arc::new(fault)),
            }
            self.settle(&mut state);
            self.wake();
        }
    }

    fn judge(&self, job: &Job) -> Result<Vec<Verdict>, PromptError> {
        let verdict = |row: &Span| {
            let verdict = self.reading.judge(&self.read(*row)?, None);
            Ok(match verdict {
                // What will not be asked for soon is only counted.
                Verdict::Usable(mut session) if !job.keep => {
                    session.turns.truncate(1);
                    session.turns.iter_mut().for_each(|prompt| {
                        let tokens = prompt.tokens;
                        *prompt = llmscen_core::prompt::Prompt { tokens, ..Default::default() };
                    });
                    Verdict::Usable(session)
                }
                verdict => verdict,
            })
        };
        job.rows.iter().map(verdict).collect()
    }

    /// What is said of a row that is left out.
    fn tell(&self, state: &State, position: usize, verdict: &Verdict) -> Told {
        let start = state.span(position).map_or(0, |span| span.start);
        match verdict {
            Verdict::Usable(_) | Verdict::Outside => Told::Nothing,
            Verdict::Garbled(byte) => {
                let byte = start + *byte as u64;
                Told::Fault(PromptError::Utf8 { path: self.reading.path.clone(), line: self.line(byte), byte: byte as usize })
            }
            Verdict::Misfit(below, problem) if self.reading.spec.strict => {
                Told::Fault(self.row_error(start, *below, problem.clone()))
            }
            Verdict::Misfit(below, problem) if state.misfits() < TOLD => {
                let line = self.line(start) + below;
                Told::Note(format!("{}:{line}: {problem}; the row was left out", self.reading.path.display()))
            }
            Verdict::Misfit(..) => Told::Nothing,
        }
    }

    fn settle(&self, state: &mut State) {
        let path = || self.reading.path.clone();
        state.settle(|state| match state.rows() {
            0 => PromptError::Empty { path: path() },
            rows => PromptError::NoRows { path: path(), dropped: rows as u64, why: self.why(state) },
        });
    }

    fn why(&self, state: &State) -> String {
        let (rows, misfits) = (state.rows(), state.misfits());
        let mut parts = Vec::new();
        if misfits < rows {
            parts.push(format!("{} of {rows} are blank or outside `prompt_tokens`", rows - misfits));
        }
        if let Some(first) = state.first_told() {
            parts.push(format!("{misfits} of {rows} do not fit\n  {first}; expected {}", self.reading.kind.expected));
        }
        parts.join(", ")
    }

    /// The error of the row at an offset, or of so many lines below.
    pub fn row_error(&self, at: u64, below: usize, problem: String) -> PromptError {
        let (path, expected) = (self.reading.path.clone(), self.reading.kind.expected);
        PromptError::Row { path, line: self.line(at) + below, problem, expected }
    }

    /// Counts the line ends of bytes that lie at an offset; all bytes come by here once and in order.
    pub fn count_lines(&self, bytes: &[u8], at: u64) {
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut rest, mut at) = (bytes, at);
        while !rest.is_empty() {
            if at.is_multiple_of(STRIDE) {
                let before = lines.1;
                lines.0.push(before);
            }
            let (part, after) = rest.split_at(rest.len().min((STRIDE - at % STRIDE) as usize));
            lines.1 += memchr::memchr_iter(b'\n', part).count() as u64;
            (rest, at) = (after, at + part.len() as u64);
        }
    }

    /// The line of the byte at an offset, from 1.
    fn line(&self, at: u64) -> usize {
        let before = {
            let lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
            let stride = (at / STRIDE) as usize;
            lines.0.get(stride).copied().unwrap_or(lines.1)
        };
        let begun = at - at % STRIDE;
        // A text that can no longer be read has an error of its own.
        let between = self.read(Span { start: begun, len: (at - begun) as u32 }).unwrap_or_default();
        (before as usize) + memchr::memchr_iter(b'\n', &between).count() + 1
    }
}
