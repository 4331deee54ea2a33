//! The rows of a run, one per request.

use crate::columns::Columns;
use crate::error::FrameError;
use crate::request_row::derived_column;
use crate::schema as s;
use llmscen_core::outcome::{Outcome, Phase};
use llmscen_core::telemetry::Recorded;
use polars::prelude::*;
use std::ops::Range;

/// Rows that are made into a frame at the same time.
const BATCH: usize = 1 << 15;

/// An outcome and where it belongs.
#[derive(Clone, Copy, Debug)]
pub struct Tagged<'a> {
    /// Case id.
    pub case: &'a str,
    /// Round of the case, from 0.
    pub round: u32,
    /// Shard that sent it, from 0.
    pub shard: u32,
    /// What happened.
    pub outcome: &'a Outcome,
}

/// The request table: the raw facts of every request of a run, warm-up requests included and marked. The rows of a case are
/// contiguous, in the order of round, number and turn.
#[derive(Clone, Debug, Default)]
pub struct Table {
    pub(super) columns: Columns,
    /// The rows of each case, by the code of its id.
    cases: Vec<Range<usize>>,
    recorded: Vec<Recorded>,
}

/// A table that is being made, a request after another.
#[derive(Debug, Default)]
pub struct Builder(Columns);

impl Builder {
    /// Begins a table with cases in this order; cases that are not named follow as they first appear.
    pub fn of_cases<'a>(ids: impl IntoIterator<Item = &'a str>) -> Builder {
        let mut columns = Columns::default();
        ids.into_iter().for_each(|id| _ = columns.case.code(id));
        Builder(columns)
    }

    /// Adds a request.
    pub fn push(&mut self, row: &Tagged<'_>) {
        self.0.push(row);
    }

    /// A table of the requests so far whose numbers are lower than this.
    pub fn before(&self, seq: u64) -> Table {
        let own = |row: &u32| self.0.seq.get(*row as usize).is_some_and(|own| own < seq);
        Builder(self.0.pick(&(0..self.0.len() as u32).filter(own).collect::<Vec<_>>())).finish()
    }

    /// The table, its rows in the order of case, round, number and turn.
    pub fn finish(self) -> Table {
        Table::from_columns(self.0)
    }
}

impl Table {
    /// A table of these outcomes, sorted by case in order of first appearance, round and number.
    pub fn build<'a>(rows: impl IntoIterator<Item = Tagged<'a>>) -> Table {
        let mut builder = Builder::default();
        rows.into_iter().for_each(|row| builder.push(&row));
        builder.finish()
    }

    /// A table of these rows, without recorded telemetry. Sorts the rows and partitions them by case.
    pub(super) fn from_columns(mut columns: Columns) -> Table {
        let key = |row: &u32| {
            let row = *row as usize;
            (columns.case.code_at(row), columns.round.get(row), columns.seq.get(row), columns.turn.get(row))
        };
        let mut order: Vec<u32> = (0..columns.len() as u32).collect();
        if !order.is_sorted_by_key(key) {
            order.sort_by_key(key);
            columns.arrange(&order);
        }
        let mut cases: Vec<Range<usize>> = Vec::new();
        for row in 0..columns.len() {
            let Some(code) = columns.case.code_at(row) else { continue };
            cases.resize(cases.len().max(code as usize + 1), row..row);
            if let Some(rows) = cases.get_mut(code as usize) {
                rows.end = row + 1;
            }
        }
        Table { columns, cases, recorded: Vec::new() }
    }

    /// Where the rows of a case are.
    pub(super) fn case_range(&self, id: &str) -> Range<usize> {
        let code = self.columns.case.place(id);
        code.and_then(|code| self.cases.get(code as usize)).cloned().unwrap_or_default()
    }

    /// The same, and what was read beside its requests.
    pub fn beside(self, recorded: Vec<Recorded>) -> Table {
        Table { recorded, ..self }
    }

    /// What was read beside its requests, round by round.
    pub fn recorded(&self) -> &[Recorded] {
        &self.recorded
    }

    /// Number of rows, warm-up included.
    pub fn len(&self) -> usize {
        self.columns.len()
    }

    /// Whether there is no row.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Ranges of rows that are small enough to be made into a frame.
    pub fn batches(&self) -> impl Iterator<Item = Range<usize>> + use<> {
        let rows = self.len();
        (0..rows).step_by(BATCH).map(move |from| from..rows.min(from + BATCH))
    }

    /// A range of a column of the schema.
    pub(super) fn column(&self, name: &str, rows: Range<usize>) -> Result<Column, FrameError> {
        let missing = || FrameError::Missing { column: name.into() };
        match self.columns.column(name, rows.clone()) {
            Some(column) => Ok(column),
            None => derived_column(&self.rows(rows), name).ok_or_else(missing),
        }
    }

    /// A range of the rows with every column of the schema.
    pub(super) fn frame(&self, rows: Range<usize>) -> Result<DataFrame, FrameError> {
        let columns: Vec<Column> = s::columns().map(|(name, _)| self.column(name, rows.clone())).collect::<Result<_, _>>()?;
        Ok(DataFrame::new(rows.len(), columns)?)
    }
}

/// The word of the `phase` column.
pub(super) fn phase_word(phase: Phase) -> &'static str {
    match phase {
        Phase::Warmup => "warmup",
        Phase::Measured => "measured",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{failed, outcome};
    use llmscen_core::outcome::FailureKind;
    use llmscen_core::units::Nanos;

    fn tagged<'a>(case: &'a str, round: u32, outcome: &'a Outcome) -> Tagged<'a> {
        Tagged { case, round, shard: 0, outcome }
    }

    #[test]
    fn rows_stand_in_the_order_of_case_round_and_number() {
        let [a, b] = [outcome(1), outcome(0)];
        let rows = [tagged("z", 1, &a), tagged("a", 0, &a), tagged("z", 0, &a), tagged("z", 0, &b)];
        let table = Table::build(rows);
        let order: Vec<_> = table.rows(0..4).iter().map(|fact| (fact.round(), fact.seq())).collect();
        assert_eq!(order, [(0, 0), (0, 1), (1, 1), (0, 1)]);
        assert_eq!(table.columns.case.get(3).map(|case| &**case), Some("a"));
    }

    #[test]
    fn cases_stand_in_the_order_that_is_asked_for() {
        let [a, b] = [outcome(1), outcome(0)];
        let mut builder = Builder::of_cases(["a", "z"]);
        for row in [tagged("z", 0, &a), tagged("a", 1, &a), tagged("z", 0, &b), tagged("a", 0, &a)] {
            builder.push(&row);
        }
        let table = builder.finish();
        let order = (0..4).map(|row| (table.columns.case.get(row).unwrap().to_string(), table.columns.round.get(row).unwrap()));
        assert_eq!(order.collect::<Vec<_>>(), [("a", 0), ("a", 1), ("z", 0), ("z", 0)].map(|(case, round)| (case.into(), round)));
        assert_eq!((table.columns.seq.get(2), table.columns.seq.get(3)), (Some(0), Some(1)));
    }

    #[test]
    fn a_failure_keeps_its_words() {
        let bad = failed(0, FailureKind::Http5xx);
        let frame = Table::build([tagged("a", 0, &bad)]).frame(0..1).unwrap();
        let cell = |name: &str| frame.column(name).unwrap().str().unwrap().get(0).map(str::to_owned);
        assert_eq!((cell(s::OUTCOME).as_deref(), cell(s::ERROR).as_deref()), (Some("http_5xx"), Some("no luck")));
        assert_eq!((cell(s::ERROR_AT).as_deref(), cell(s::FINISH_REASON)), (Some("after headers"), None));
    }

    #[test]
    fn an_empty_table_is_one() {
        let table = Table::build([]);
        assert!(table.is_empty() && table.batches().next().is_none());
        assert_eq!(table.frame(0..0).unwrap().width(), s::columns().count());
    }

    #[test]
    fn columns_come_back_whatever_is_absent_and_in_whatever_order_the_rows_came() {
        // Each fact is there in some rows only, or changes late: every form that a column can have is passed through.
        let odd = |seq: u64| {
            let mut one = outcome(seq);
            one.usage.prompt = seq.is_multiple_of(3).then_some(seq);
            one.usage.cached = (seq > 70).then_some(9);
            one.items = (seq < 65).then_some(2);
            one.group = (seq == 99).then(|| "g".to_owned());
            one.request_id = (seq % 2 == 1).then(|| format!("id {seq}"));
            one.timeline.tokens = (0..seq % 4).map(Nanos).collect();
            one
        };
        let rows: Vec<Outcome> = (0..150).map(|k| odd(k * 7 % 150)).collect();
        let table = Table::build(rows.iter().map(|row| tagged("a", 0, row)));
        let held = &table.columns;
        for seq in 0..150 {
            let (row, known) = (seq as usize, odd(seq));
            assert_eq!((held.seq.get(row), held.usage_prompt.get(row)), (Some(seq), known.usage.prompt));
            assert_eq!((held.usage_cached.get(row), held.items.get(row)), (known.usage.cached, known.items));
            assert_eq!((held.group.get(row).map(|group| &**group), held.status.get(row)), (known.group.as_deref(), Some(200)));
            assert_eq!(held.events.get(row), (0..seq % 4).collect::<Vec<_>>());
        }
        let ids = table
            .frame(0..150)
            .unwrap()
            .column(s::REQUEST_ID)
            .unwrap()
            .str()
            .unwrap()
            .iter()
            .map(|id| id.map(str::to_owned))
            .collect::<Vec<_>>();
        assert_eq!(ids, (0..150).map(|seq| odd(seq).request_id).collect::<Vec<_>>());
    }
}
