//! What a row of a session means: a whole prompt, or what is new since the reply before it.
//!
//! Logs of both kinds have the same columns. Two signs tell them apart, per row after the first of its session:
//!
//! | sign | a whole prompt | a delta |
//! |---|---|---|
//! | its block ids begin like an earlier row of the session | yes | no: its blocks are new |
//! | its first block is new, after a row with a full block | no | yes |
//! | without ids: it is not longer than the prompt before it | no | yes |
//!
//! A prompt that is longer than the one before it may be either; chat templates leave reasoning out of a history, so
//! it may be shorter than prompt and reply together. A history that was shortened looks like a delta, so single rows
//! decide nothing.

use super::layout::{Entry, LoggedRequest};
use llmscen_core::dataset::TraceRows;
use std::collections::{HashMap, HashSet};

/// A quarter of the later rows decides.
const DECISIVE: u64 = 4;

/// Signs of the meaning of rows.
#[derive(Debug, Default)]
pub struct Signs {
    /// Rows after the first of their session.
    later: u64,
    /// Rows that begin like an earlier row.
    repeating: Counted,
    /// Rows that cannot have the prompt before them.
    new: Counted,
    /// Rows that can have the prompt before them, but not its reply.
    short: Counted,
    sessions: HashMap<String, SessionSigns>,
}

/// Rows with a sign.
#[derive(Debug, Default)]
struct Counted {
    count: u64,
    /// The first one: its offset in the log, and the sign in words.
    first: Option<(usize, String)>,
}

impl Counted {
    fn add(&mut self, offset: usize, sign: impl FnOnce() -> String) {
        self.count += 1;
        self.first.get_or_insert_with(|| (offset, sign()));
    }

    fn is_decisive(&self, later: u64) -> bool {
        self.count > 0 && self.count * DECISIVE >= later
    }

    fn offset(&self) -> usize {
        self.first.as_ref().map_or(0, |(offset, _)| *offset)
    }

    /// The first row as `line 7: its sign`.
    fn describe(&self, line: &dyn Fn(usize) -> usize) -> String {
        let described = self.first.as_ref();
        described.map_or_else(String::new, |(offset, sign)| {
            format!("line {}: {sign}", line(*offset))
        })
    }
}

/// What the rows of a session had so far.
#[derive(Debug)]
struct SessionSigns {
    input: u64,
    output: u64,
    /// Ids of first blocks that are full, so that a whole prompt repeats them.
    starts: HashSet<u64>,
}

/// The meaning of the rows of a log.
#[derive(Debug, PartialEq)]
pub struct Meaning {
    pub rows: TraceRows,
    /// The meaning and its reason; None where no session has a second row.
    pub statement: Option<String>,
}

/// Rows that contradict each other, or the scenario: the offset of one, and the problem.
pub type Contradiction = (usize, String);

impl Signs {
    /// Adds a row, in the order of the rows of its session.
    pub fn add(&mut self, entry: &Entry<'_>, offset: usize, block_tokens: u64) {
        let (
            Some(name),
            LoggedRequest::Lengths {
                input,
                output,
                blocks,
            },
        ) = (&entry.place.session, &entry.request)
        else {
            return;
        };
        let (input, output) = (*input, *output);
        if let Some(before) = self.sessions.get(name) {
            self.later += 1;
            let start = blocks.first().filter(|_| !before.starts.is_empty());
            let after = format!("{input} tokens after a prompt of {}", before.input);
            if start.is_some_and(|first| before.starts.contains(first)) {
                let sign = || "its block ids begin like an earlier row of its session".to_owned();
                self.repeating.add(offset, sign);
            } else if start.is_some() {
                let sign = || "its first block id is not that of an earlier row".to_owned();
                self.new.add(offset, sign);
            } else if input <= before.input {
                self.new.add(offset, || after);
            } else if input < before.input + before.output {
                let output = before.output;
                self.short
                    .add(offset, || format!("{after} and a reply of {output}"));
            }
        }
        let session = self.sessions.entry(name.clone()).or_insert(SessionSigns {
            input,
            output,
            starts: HashSet::new(),
        });
        (session.input, session.output) = (input, output);
        session
            .starts
            .extend(blocks.first().filter(|_| input >= block_tokens));
    }

    /// The meaning of the rows. `stated`: by the scenario; `line`: the number of the line at an offset.
    ///
    /// # Errors
    /// The rows contradict each other, or what the scenario states.
    pub fn judge(
        &self,
        stated: Option<TraceRows>,
        line: &dyn Fn(usize) -> usize,
    ) -> Result<Meaning, Contradiction> {
        let later = self.later;
        let is_whole = self.repeating.is_decisive(later);
        let is_delta = self.new.is_decisive(later);
        let [repeating, new] = [&self.repeating, &self.new].map(|rows| {
            format!(
                "{} of {later} later rows ({})",
                rows.count,
                rows.describe(line)
            )
        });
        let (rows, reason) = match stated {
            Some(TraceRows::Whole) if is_delta && !is_whole => {
                let problem = format!(
                    "`dataset.trace.rows: whole` does not fit {new}; set `rows: delta` if each \
                    row adds to the history"
                );
                return Err((self.new.offset(), problem));
            }
            Some(TraceRows::Delta) if is_whole && !is_delta => {
                let problem = format!(
                    "`dataset.trace.rows: delta` does not fit {repeating}; set `rows: whole` if \
                    each row is a whole prompt"
                );
                return Err((self.repeating.offset(), problem));
            }
            None if is_whole && is_delta => {
                let problem = format!(
                    "the rows of sessions have two meanings: whole prompts in {repeating}, what is new in {new}; set \
                     `dataset.trace.rows: whole` or `delta`, or split the log"
                );
                return Err((self.new.offset(), problem));
            }
            Some(rows) => (rows, "`dataset.trace.rows`".to_owned()),
            None if is_delta => (TraceRows::Delta, new.clone()),
            None if self.repeating.count > 0 => (TraceRows::Whole, repeating),
            None if self.short.count > 0 => {
                let short = self.short.describe(line);
                let why = format!(
                    "assumed, since each is longer than the one before it. Some cannot have the \
                     reply too ({short}), as if reasoning was left out. Set `dataset.trace.rows: \
                     delta` if each adds to the history"
                );
                (TraceRows::Whole, why)
            }
            None => (
                TraceRows::Whole,
                "each later row is long enough for the prompt and the reply before it".to_owned(),
            ),
        };
        let meaning = match rows {
            TraceRows::Whole => "are whole prompts, history included",
            TraceRows::Delta => "add to the history of their session, which is sent with them",
        };
        let mut statement = format!("the rows of the log {meaning}: {reason}");
        if rows == TraceRows::Whole && self.new.count > 0 {
            statement.push_str(&format!(". The history seems to be shortened in {new}"));
        }
        Ok(Meaning {
            rows,
            statement: (later > 0).then_some(statement),
        })
    }
}
