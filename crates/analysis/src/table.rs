//! The request table: one row per request of a run.

use crate::columns::{Columns, TaggedOutcome};
use crate::request_row::{RequestRow, derived_column};
use crate::schema::OUTSIDE_STAGE;
use llmscen_core::outcome::Phase;
use llmscen_core::plan::StageSlice;
use llmscen_core::telemetry::TelemetryRecord;
use llmscen_parquet::ParquetError;
use polars_arrow::array::Array;
use std::ops::Range;

/// Rows of a row group of requests.parquet.
const BATCH: usize = 1 << 15;

/// The request table: the raw values of every request of a run, warm-up included. The rows of a case are contiguous, ordered
/// by round, seq and turn.
#[derive(Clone, Debug, Default)]
pub struct Table {
    pub(super) columns: Columns,
    /// Row range of each case, by the code of its id.
    cases: Vec<Range<usize>>,
    recorded: Vec<TelemetryRecord>,
}

/// Builds a table, one request at a time.
#[derive(Debug, Default)]
pub struct Builder(Columns);

impl Builder {
    /// Fixes the order of these cases; others follow in the order of their first request.
    pub fn with_cases<'a>(ids: impl IntoIterator<Item = &'a str>) -> Builder {
        let mut columns = Columns::default();
        ids.into_iter().for_each(|id| _ = columns.case.code(id));
        Builder(columns)
    }

    /// Adds a request.
    pub fn push(&mut self, row: &TaggedOutcome<'_>) {
        self.0.push(row);
    }

    /// A table of the requests so far whose `seq` is below the given one.
    pub fn before(&self, seq: u64) -> Table {
        let is_before = |row: &u32| {
            self.0
                .seq
                .get(*row as usize)
                .is_some_and(|known| known < seq)
        };
        Builder(
            self.0.pick(
                &(0..self.0.len() as u32)
                    .filter(is_before)
                    .collect::<Vec<_>>(),
            ),
        )
        .finish()
    }

    pub(super) fn columns_mut(&mut self) -> &mut Columns {
        &mut self.0
    }

    /// Sorts the rows by case, round, seq and turn.
    pub fn finish(self) -> Table {
        Table::from_columns(self.0)
    }
}

/// What identifies a row, and the shard that sent it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RowKey<'a> {
    /// Case id.
    pub case: &'a str,
    /// Round of the case, from 0.
    pub round: u32,
    /// Request number.
    pub seq: u64,
    /// Turn in the session, from 0.
    pub turn: u32,
    /// Shard, from 0.
    pub shard: u32,
    /// Whether it followed the measured requests.
    pub cools_down: bool,
}

impl Table {
    /// A table of these outcomes, with cases in the order of their first request.
    pub fn build<'a>(rows: impl IntoIterator<Item = TaggedOutcome<'a>>) -> Table {
        let mut builder = Builder::default();
        rows.into_iter().for_each(|row| builder.push(&row));
        builder.finish()
    }

    /// Sorts the rows and partitions them by case.
    pub(super) fn from_columns(mut columns: Columns) -> Table {
        let key = |row: &u32| {
            let row = *row as usize;
            (
                columns.case.code_at(row),
                columns.round.get(row),
                columns.seq.get(row),
                columns.turn.get(row),
            )
        };
        let mut order: Vec<u32> = (0..columns.len() as u32).collect();
        if !order.is_sorted_by_key(key) {
            order.sort_by_key(key);
            columns.reorder(&order);
        }
        let mut cases: Vec<Range<usize>> = Vec::new();
        for row in 0..columns.len() {
            let Some(code) = columns.case.code_at(row) else {
                continue;
            };
            cases.resize(cases.len().max(code as usize + 1), row..row);
            if let Some(rows) = cases.get_mut(code as usize) {
                rows.end = row + 1;
            }
        }
        Table {
            columns,
            cases,
            recorded: Vec::new(),
        }
    }

    /// The row range of a case.
    pub(super) fn case_range(&self, id: &str) -> Range<usize> {
        let code = self.columns.case.find_code(id);
        code.and_then(|code| self.cases.get(code as usize))
            .cloned()
            .unwrap_or_default()
    }

    /// The rows in a range of indexes.
    pub(super) fn rows(&self, range: Range<usize>) -> Vec<RequestRow<'_>> {
        range
            .map(|row| RequestRow::new(&self.columns, row))
            .collect()
    }

    /// The rows of one case, ordered by (round, seq, turn).
    pub(super) fn rows_of_case(&self, id: &str) -> Vec<RequestRow<'_>> {
        self.rows(self.case_range(id))
    }

    /// Adds the telemetry of the run.
    pub fn with_telemetry(self, recorded: Vec<TelemetryRecord>) -> Table {
        Table { recorded, ..self }
    }

    /// The recorded telemetry, by round.
    pub fn recorded(&self) -> &[TelemetryRecord] {
        &self.recorded
    }

    /// The keys of all rows, in order.
    pub fn row_keys(&self) -> impl Iterator<Item = RowKey<'_>> {
        let cools_down = |row: usize| {
            let phase = self.columns.phase.get(row);
            phase.is_some_and(|phase| &**phase == Phase::Cooldown.name())
        };
        (0..self.len()).map(move |row| RowKey {
            case: self.columns.case.get(row).map_or("", |case| case),
            round: self.columns.round.get(row).unwrap_or_default(),
            seq: self.columns.seq.get(row).unwrap_or_default(),
            turn: self.columns.turn.get(row).unwrap_or_default(),
            shard: self.columns.shard.get(row).unwrap_or_default(),
            cools_down: cools_down(row),
        })
    }

    /// The rows with these keys, without telemetry.
    pub fn keep(&self, is_kept: impl Fn(&RowKey<'_>) -> bool) -> Table {
        let rows = self.row_keys().enumerate();
        let kept: Vec<u32> = rows
            .filter(|(_, key)| is_kept(key))
            .map(|(row, _)| row as u32)
            .collect();
        Table::from_columns(self.columns.pick(&kept))
    }

    /// Number of rows, warm-up included.
    pub fn len(&self) -> usize {
        self.columns.len()
    }

    /// Whether there is no row.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Row ranges whose columns fit in memory once more.
    pub fn batches(&self) -> impl Iterator<Item = Range<usize>> + use<> {
        let rows = self.len();
        (0..rows)
            .step_by(BATCH)
            .map(move |from| from..rows.min(from + BATCH))
    }

    /// A range of a column of the schema, stored or derived, as an array of the column's kind.
    pub(super) fn column(
        &self,
        name: &str,
        rows: Range<usize>,
    ) -> Result<Box<dyn Array>, ParquetError> {
        match self.columns.column(name, rows.clone())? {
            Some(column) => Ok(column),
            None => {
                derived_column(&self.rows(rows), name)?.ok_or_else(|| ParquetError::missing(name))
            }
        }
    }
}

// Stages.

impl Table {
    /// The rows of a case as rows of one of its stages; those scheduled outside of the stage only count as in flight.
    pub fn stage_rows(&self, case: &str, stage: &StageSlice) -> Table {
        let rows: Vec<u32> = self.case_range(case).map(|row| row as u32).collect();
        let mut columns = self.columns.pick(&rows);
        let within = |row: usize| {
            columns
                .intended
                .get(row)
                .is_some_and(|at| (stage.from.0..stage.until.0).contains(&at))
        };
        let phase = |row: usize| {
            columns
                .phase
                .get(row)
                .filter(|_| within(row))
                .map_or(OUTSIDE_STAGE, |phase| phase)
        };
        columns.phase = (0..rows.len()).map(|row| Some(phase(row))).collect();
        columns.case = rows.iter().map(|_| Some(stage.case.id.as_str())).collect();
        let of_case = self
            .recorded()
            .iter()
            .filter(|recorded| recorded.case == case);
        let recorded = of_case.map(|recorded| TelemetryRecord {
            case: stage.case.id.clone(),
            ..recorded.clone()
        });
        Table::from_columns(columns).with_telemetry(recorded.collect())
    }
}

#[cfg(test)]
mod tests;
