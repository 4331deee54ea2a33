//! The rows of a table as facts: what every figure is computed from.

use crate::columns::Columns;
use crate::error::FrameError;
use crate::schema as s;
use crate::settle::SETTLING;
use crate::stage_slice::BESIDE;
use crate::table::{Table, phase_word};
use llmscen_core::outcome::{FailureKind, Phase};
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

/// The raw facts of one request, read where they lie: a copy of all of them would be far larger. Stamps are nanoseconds since the
/// start of the case.
#[derive(Clone, Copy)]
pub(super) struct Fact<'a> {
    columns: &'a Columns,
    row: u32,
}

impl fmt::Debug for Fact<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "row {} (request {}, turn {}, round {})", self.row, self.seq(), self.turn(), self.round())
    }
}

/// Facts that every row has, or those that may be absent.
macro_rules! facts {
    ($($(#[$doc:meta])* $name:ident: $kind:ty;)*) => {
        impl Fact<'_> {
            $($(#[$doc])* pub(super) fn $name(&self) -> $kind { self.columns.$name.get(self.row as usize).into_fact() })*
        }
    };
}

trait IntoFact<T> {
    fn into_fact(self) -> T;
}

impl<T: Default> IntoFact<T> for Option<T> {
    fn into_fact(self) -> T {
        self.unwrap_or_default()
    }
}

impl<T> IntoFact<Option<T>> for Option<T> {
    fn into_fact(self) -> Option<T> {
        self
    }
}

facts! {
    seq: u64;
    turn: u32;
    turns: u32;
    round: u32;
    intended: u64;
    sent: Option<u64>;
    first_chunk: Option<u64>;
    reasoning: Option<u32>;
    end: u64;
    items: Option<u64>;
    reconnects: u32;
    attempts: u32;
    usage_prompt: Option<u64>;
    usage_output: Option<u64>;
    usage_reasoning: Option<u64>;
    usage_cached: Option<u64>;
    counted_prompt: Option<u64>;
    counted_output: Option<u64>;
    approximate: bool;
    server_queue: Option<u64>;
    server_load: Option<u64>;
    server_prefill: Option<u64>;
    server_decode: Option<u64>;
    server_total: Option<u64>;
    status: Option<u32>;
}

impl<'a> Fact<'a> {
    /// A row of these columns.
    pub(super) fn at(columns: &'a Columns, row: usize) -> Fact<'a> {
        Fact { columns, row: row as u32 }
    }

    fn place(&self) -> usize {
        self.row as usize
    }

    pub(super) fn group(&self) -> Option<&'a Arc<str>> {
        self.columns.group.get(self.place())
    }

    pub(super) fn model(&self) -> Arc<str> {
        self.columns.model.get(self.place()).cloned().unwrap_or_default()
    }

    fn phase(&self) -> &'a str {
        self.columns.phase.get(self.place()).map_or("", |word| word)
    }

    pub(super) fn measured(&self) -> bool {
        self.phase() == phase_word(Phase::Measured)
    }

    /// Whether it is of the start of an open loop, which is not measured.
    pub(super) fn settling(&self) -> bool {
        self.phase() == SETTLING
    }

    /// Whether it is measured, or would be if it were not of the start.
    pub(super) fn counted(&self) -> bool {
        self.measured() || self.settling()
    }

    /// Its place in the table.
    pub(super) fn row_index(&self) -> u32 {
        self.row
    }

    /// Whether it belongs to the case. Others are kept to count what was in flight.
    pub(super) fn own(&self) -> bool {
        self.phase() != BESIDE
    }

    fn streamed(&self) -> bool {
        self.columns.streamed.get(self.place()).unwrap_or_default()
    }

    /// Token events; none for a response that was not streamed, whatever it was stamped with.
    pub(super) fn events(&self) -> &'a [u64] {
        if self.streamed() { self.columns.events.get(self.place()) } else { &[] }
    }

    /// The choice of each of them; empty where all belong to the first.
    pub(super) fn choices(&self) -> &'a [u32] {
        if self.streamed() { self.columns.choices.get(self.place()) } else { &[] }
    }

    /// The tokens in each of them; empty where the server did not tell.
    pub(super) fn weights(&self) -> &'a [u32] {
        if self.streamed() { self.columns.weights.get(self.place()) } else { &[] }
    }

    /// The first stamp that a token event left, and the last, whether the response was streamed or not.
    pub(super) fn first_and_last_stamp(&self) -> [Option<u64>; 2] {
        let stamps = self.columns.events.get(self.place());
        [stamps.first().copied(), stamps.last().copied()]
    }

    /// None: it succeeded.
    pub(super) fn failure(&self) -> Option<FailureKind> {
        self.columns.outcome.get(self.place()).and_then(|word| FailureKind::parse(word))
    }

    pub(super) fn ok(&self) -> bool {
        self.columns.outcome.get(self.place()).is_some_and(|word| &**word == OK)
    }

    /// Whether its user left, as the scenario says.
    pub(super) fn left(&self) -> bool {
        self.failure() == Some(FailureKind::Abandoned)
    }

    pub(super) fn message(&self) -> &'a str {
        self.columns.message.get(self.place()).map_or("", |word| word)
    }

    pub(super) fn at_place(&self) -> &'a str {
        self.columns.at.get(self.place()).map_or("", |word| word)
    }
}

/// The word of a request that succeeded.
const OK: &str = "ok";

/// A range of the rows of a table.
///
/// # Errors
/// Where the table holds a word that is not one of its column's.
pub(super) fn all(table: &Table, rows: Range<usize>) -> Result<Vec<Fact<'_>>, FrameError> {
    check_words(&table.columns)?;
    Ok(rows.map(|row| Fact::at(&table.columns, row)).collect())
}

/// The rows of one case, in the order of (round, seq, turn).
///
/// # Errors
/// As of [`all`].
pub(super) fn of<'a>(table: &'a Table, case: &str) -> Result<Vec<Fact<'a>>, FrameError> {
    all(table, table.case_rows(case))
}

fn check_words(columns: &Columns) -> Result<(), FrameError> {
    let known = [phase_word(Phase::Measured), phase_word(Phase::Warmup), BESIDE, SETTLING];
    let phase = columns.phase.misfit(|word| known.contains(&word)).map(|row| (s::PHASE, row, columns.phase.get(row)));
    let outcome = || columns.outcome.misfit(|word| word == OK || FailureKind::parse(word).is_some());
    let misfit = phase.or_else(|| outcome().map(|row| (s::OUTCOME, row, columns.outcome.get(row))));
    match misfit {
        None => Ok(()),
        Some((column, row, found)) => Err(FrameError::Word { column, row, found: found.map_or("", |word| word).into() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{failed, outcome, stream, table};
    use polars::prelude::{NamedFrom, Series};

    #[test]
    fn facts_are_what_was_put_in() {
        let rows = [outcome(0), stream(1, 100, &[150, 150, 170]), failed(2, FailureKind::Truncated)];
        let table = table("a", &rows);
        let facts = of(&table, "a").unwrap();
        assert_eq!(facts[1].events(), [150_000_000, 150_000_000, 170_000_000]);
        assert_eq!((facts[0].events(), facts[0].ok()), (&[] as &[u64], true));
        let failed = (facts[2].failure(), facts[2].message(), facts[2].at_place());
        assert_eq!(failed, (Some(FailureKind::Truncated), "no luck", "after headers"));
        assert!(of(&table, "b").unwrap().is_empty());
    }

    #[test]
    fn an_unknown_word_is_named_with_its_row() {
        let mut columns = table("a", &[outcome(0), outcome(1)]).columns;
        columns.outcome = Default::default();
        columns.extend(s::OUTCOME, &Series::new(s::OUTCOME.into(), ["ok", "fine"])).unwrap();
        let table = Table::from_columns(columns);
        let error = of(&table, "a").unwrap_err().to_string();
        assert_eq!(error, "row 1 of column `outcome` holds `fine`, which is not one of its words");
    }
}
