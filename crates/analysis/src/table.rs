//! The request table of a run: a polars frame with one row per request.

use crate::columns::{
    Columns, OutcomeRow, RowBuilder, STORED, TaggedOutcome, Text, U32, U64, View, column_of,
};
use crate::error::TableError;
use crate::request_row::{RequestRow, derived_column};
use crate::schema::{self, Kind, OUTSIDE_STAGE};
use llmscen_core::outcome::Phase;
use llmscen_core::plan::StageSlice;
use llmscen_core::telemetry::TelemetryRecord;
use llmscen_parquet::ParquetError;
use polars::error::PolarsError;
use polars::prelude::{
    BooleanChunked, Column, DataFrame, PolarsResult, Schema, SortMultipleOptions,
};
use rayon::prelude::*;
use std::collections::HashMap;
use std::ops::Range;
use std::{fmt, mem};

/// Rows of a row group of requests.parquet. Their columns are in memory twice while they are written.
const BATCH: usize = 1 << 14;

/// The request table: the raw values of every request of a run, warm-up included. The rows of a case are contiguous,
/// ordered by round, seq and turn.
#[derive(Clone, Debug)]
pub struct Table {
    frame: DataFrame,
    /// The values of `frame` by row.
    pub(super) columns: Columns,
    /// Row range of each case.
    cases: HashMap<String, Range<usize>>,
    recorded: Vec<TelemetryRecord>,
}

impl Default for Table {
    fn default() -> Table {
        Table {
            frame: DataFrame::empty_with_schema(&schema_of(STORED.iter().copied())),
            columns: Columns::default(),
            cases: HashMap::new(),
            recorded: Vec::new(),
        }
    }
}

/// Builds a table, one request at a time.
pub struct Builder {
    /// Cases whose order is fixed.
    cases: Vec<String>,
    rows: RowBuilder,
    /// Why rows were lost.
    fault: Option<PolarsError>,
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder").finish_non_exhaustive()
    }
}

impl Default for Builder {
    fn default() -> Builder {
        Builder::with_cases([])
    }
}

impl Builder {
    /// Fixes the order of these cases; others follow in the order of their first request.
    pub fn with_cases<'a>(ids: impl IntoIterator<Item = &'a str>) -> Builder {
        Builder {
            cases: ids.into_iter().map(str::to_owned).collect(),
            rows: RowBuilder::default(),
            fault: None,
        }
    }

    /// Adds a request.
    pub fn push(&mut self, row: &TaggedOutcome<'_>) {
        self.rows.push(&OutcomeRow::from(row));
    }

    pub(super) fn rows_mut(&mut self) -> &mut RowBuilder {
        &mut self.rows
    }

    /// A table of the requests so far whose `seq` is below the given one.
    ///
    /// # Errors
    /// A frame could not be built.
    pub fn before(&mut self, seq: u64) -> Result<Table, TableError> {
        let frame = self.rebuild();
        let frame = frame.inspect_err(|error| self.fault = Some(error.clone()))?;
        let known: View<U64> = View::of(frame.column(schema::SEQ)?)?;
        let is_before = |row| known.get(row).is_some_and(|known| known < seq);
        let mask: BooleanChunked = (0..frame.height()).map(is_before).collect();
        Ok(Table::sorted(frame.filter_seq(&mask)?, &self.cases)?)
    }

    /// The rows so far, which are kept.
    fn rebuild(&mut self) -> PolarsResult<DataFrame> {
        let frame = mem::take(&mut self.rows).finish()?;
        self.rows.append(|name, _| frame.column(name).cloned())?;
        Ok(frame)
    }

    /// Sorts the rows by case, round, seq and turn.
    ///
    /// # Errors
    /// A frame could not be built.
    pub fn finish(self) -> Result<Table, TableError> {
        if let Some(fault) = self.fault {
            return Err(fault.into());
        }
        Ok(Table::sorted(self.rows.finish()?, &self.cases)?)
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
    ///
    /// # Errors
    /// A frame could not be built.
    pub fn build<'a>(
        rows: impl IntoIterator<Item = TaggedOutcome<'a>>,
    ) -> Result<Table, TableError> {
        let mut builder = Builder::default();
        rows.into_iter().for_each(|row| builder.push(&row));
        builder.finish()
    }

    /// Sorts the rows and partitions them by case.
    fn sorted(mut frame: DataFrame, cases: &[String]) -> PolarsResult<Table> {
        let mut cases = cases.to_vec();
        let mut rank = ranks(&frame, &mut cases)?;
        if !is_sorted(&frame, &rank)? {
            (frame, rank) = sort(frame, rank)?;
        }
        let mut ranges = vec![0..0; cases.len()];
        for (row, rank) in rank.u32()?.iter().enumerate() {
            let range = rank.and_then(|rank| ranges.get_mut(rank as usize));
            range.into_iter().for_each(|range| match range.end {
                0 => *range = row..row + 1,
                _ => range.end = row + 1,
            });
        }
        Ok(Table {
            columns: Columns::of(&frame)?,
            frame,
            cases: cases.into_iter().zip(ranges).collect(),
            recorded: Vec::new(),
        })
    }

    /// The row range of a case.
    pub(super) fn case_range(&self, id: &str) -> Range<usize> {
        self.cases.get(id).cloned().unwrap_or_default()
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
        (0..self.len()).map(move |row| RowKey {
            case: self.columns.case.get(row).unwrap_or_default(),
            round: self.columns.round.get(row).unwrap_or_default(),
            seq: self.columns.seq.get(row).unwrap_or_default(),
            turn: self.columns.turn.get(row).unwrap_or_default(),
            shard: self.columns.shard.get(row).unwrap_or_default(),
            cools_down: self.columns.phase.get(row) == Some(Phase::Cooldown.name()),
        })
    }

    /// The rows with these keys, without telemetry.
    ///
    /// # Errors
    /// A frame could not be built.
    pub fn keep(&self, is_kept: impl Fn(&RowKey<'_>) -> bool) -> Result<Table, TableError> {
        let kept: BooleanChunked = self.row_keys().map(|key| is_kept(&key)).collect();
        Ok(Table::sorted(self.frame.filter(&kept)?, &[])?)
    }

    /// Number of rows, warm-up included.
    pub fn len(&self) -> usize {
        self.frame.height()
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

    /// Names and types of all columns, in the order of requests.parquet.
    pub fn schema() -> Schema {
        schema_of(schema::columns())
    }

    /// A range of a column of [`Table::schema`].
    ///
    /// # Errors
    /// There is no such column.
    pub fn column(&self, name: &str, rows: Range<usize>) -> Result<Column, TableError> {
        match self.frame.column(name) {
            Ok(column) => Ok(column.slice(rows.start as i64, rows.len())),
            Err(_) => {
                let derived = derived_column(&self.rows(rows), name);
                Ok(derived.ok_or_else(|| ParquetError::missing(name))?)
            }
        }
    }

    /// A range of rows with the derived columns, in the order of the schema. Several threads compute the columns.
    pub(super) fn with_derived(&self, rows: Range<usize>) -> Result<DataFrame, TableError> {
        let names: Vec<&str> = schema::columns().map(|(name, _)| name).collect();
        let columns = names
            .par_iter()
            .map(|name| self.column(name, rows.clone()))
            .collect::<Result<_, _>>()?;
        Ok(DataFrame::new(rows.len(), columns)?)
    }

    /// Replaces a column of the frame.
    pub(super) fn set_column(&mut self, column: Column) -> Result<(), TableError> {
        self.frame.with_column(column)?;
        self.columns = Columns::of(&self.frame)?;
        Ok(())
    }
}

/// The place of each row's case in the order of cases, to which new cases are added.
fn ranks(frame: &DataFrame, cases: &mut Vec<String>) -> PolarsResult<Column> {
    let ids: View<Text> = View::of(frame.column(schema::CASE_ID)?)?;
    let known = cases.iter().cloned().zip(0..);
    let mut ranks: HashMap<String, u32> = known.collect();
    let mut last = ("", 0);
    let of_row = (0..frame.height()).map(|row| {
        let id = ids.get(row).unwrap_or_default();
        if row == 0 || id != last.0 {
            let rank = ranks.get(id).copied().unwrap_or_else(|| {
                let new = cases.len() as u32;
                cases.push(id.to_owned());
                ranks.insert(id.to_owned(), new);
                new
            });
            last = (id, rank);
        }
        Some(last.1)
    });
    Ok(column_of::<U32>("rank", of_row))
}

/// Whether the rows are ordered by case, round, seq and turn. Those of a file and of a stage are.
fn is_sorted(frame: &DataFrame, rank: &Column) -> PolarsResult<bool> {
    let (rank, round) = (
        View::<U32>::of(rank)?,
        View::<U32>::of(frame.column(schema::ROUND)?)?,
    );
    let seq: View<U64> = View::of(frame.column(schema::SEQ)?)?;
    let turn: View<U32> = View::of(frame.column(schema::TURN)?)?;
    let key = |row: usize| (rank.get(row), round.get(row), seq.get(row), turn.get(row));
    Ok((0..frame.height()).is_sorted_by_key(key))
}

/// The rows and their ranks in order.
fn sort(frame: DataFrame, rank: Column) -> PolarsResult<(DataFrame, Column)> {
    let keys = frame.select_to_vec([schema::ROUND, schema::SEQ, schema::TURN])?;
    let stable = SortMultipleOptions::default()
        .with_maintain_order(true)
        // An interim look at a probe sorts while requests are sent.
        .with_multithreaded(false)
        .with_order_descending_multi([false; 4])
        .with_nulls_last_multi([false; 4]);
    let order = rank.arg_sort_multiple(&keys, &stable)?;
    // One column after the other, so that only one of them is in memory twice.
    drop(keys);
    let rows = frame.height();
    let columns = frame.into_columns().into_iter();
    let columns = columns.map(|column| column.take(&order));
    let frame = DataFrame::new(rows, columns.collect::<PolarsResult<_>>()?)?;
    Ok((frame, rank.take(&order)?))
}

fn schema_of(columns: impl Iterator<Item = (&'static str, Kind)>) -> Schema {
    columns
        .map(|(name, kind)| (name.into(), kind.dtype()))
        .collect()
}

// Stages.

impl Table {
    /// The rows of a case as rows of one of its stages; those scheduled outside of the stage only count as in flight.
    ///
    /// # Errors
    /// A frame could not be built.
    pub fn stage_rows(&self, case: &str, stage: &StageSlice) -> Result<Table, TableError> {
        let rows = self.case_range(case);
        let mut frame = self.frame.slice(rows.start as i64, rows.len());
        let within = |row: usize| {
            self.columns
                .intended
                .get(row)
                .is_some_and(|at| (stage.from.0..stage.until.0).contains(&at))
        };
        let phase = |row: usize| {
            let phase = self.columns.phase.get(row).filter(|_| within(row));
            Some(phase.unwrap_or(OUTSIDE_STAGE))
        };
        let id = |_| Some(stage.case.id.as_str());
        for column in [
            column_of::<Text>(schema::PHASE, rows.clone().map(phase)),
            column_of::<Text>(schema::CASE_ID, rows.clone().map(id)),
        ] {
            frame.with_column(column)?;
        }
        let of_case = self
            .recorded()
            .iter()
            .filter(|recorded| recorded.case == case);
        let recorded = of_case.map(|recorded| TelemetryRecord {
            case: stage.case.id.clone(),
            ..recorded.clone()
        });
        Ok(Table::sorted(frame, &[])?.with_telemetry(recorded.collect()))
    }
}

#[cfg(test)]
mod tests;
