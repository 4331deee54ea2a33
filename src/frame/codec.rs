//! The table as a file: requests.parquet.

use crate::frame::decode::decode;
use crate::frame::error::FrameError;
use crate::frame::table::Table;
use crate::frame::{derive, facts, schema};
use crate::model::metric::Metric;
use polars::prelude::*;
use std::io::{Cursor, Write};

/// The column of the gaps between tokens.
const GAPS: &str = "itl_ms";

impl Table {
    /// Writes the table as Parquet, compressed with zstd.
    ///
    /// # Errors
    /// Where `out` cannot be written to.
    pub fn write_parquet(&self, out: impl Write) -> Result<(), FrameError> {
        let mut whole = self.with_gaps()?.0;
        ParquetWriter::new(out).with_compression(ParquetCompression::Zstd(None)).finish(&mut whole)?;
        Ok(())
    }

    /// The same rows with the gaps between tokens, which a table that was read has not.
    ///
    /// # Errors
    /// Where the table holds a word that is not one of its column's.
    pub fn with_gaps(&self) -> Result<Table, FrameError> {
        let mut whole = self.0.clone();
        if whole.column(GAPS).is_err() {
            whole.with_column(derive::gap_column(&facts::all(&self.0)?, GAPS.into()))?;
            whole = schema::checked(&whole)?;
        }
        Ok(Table::of(whole))
    }

    /// Reads a table that [`Table::write_parquet`] wrote. Further columns are left out, and so are the gaps between tokens: they
    /// are as large as the stamps that they follow from, and no figure is taken from them.
    ///
    /// # Errors
    /// Where `input` cannot be read, is no Parquet file, or lacks a column or has it with another type.
    pub fn read_parquet(input: impl Into<Vec<u8>>) -> Result<Table, FrameError> {
        decode(|| Table::decoded(input.into()))
    }

    fn decoded(input: Vec<u8>) -> Result<Table, FrameError> {
        let mut reader = ParquetReader::new(Cursor::new(input)).set_rechunk(true);
        let file = reader.schema()?;
        let lacks = |metric: &Metric| !file.contains(metric.column());
        let later: Vec<Metric> = schema::LATER.into_iter().filter(lacks).collect();
        let mut types = Schema::from_arrow_schema(&file);
        let kinds = later.iter().filter_map(|&metric| Some((metric.column(), schema::of_metric(metric)?)));
        types.extend(kinds.map(|(name, kind)| Field::new(name.into(), kind.dtype())));
        // Of no rows, since only the names and the types are looked at.
        schema::checked(&DataFrame::empty_with_schema(&types))?;
        let wanted = || schema::columns().map(|(name, _)| name).filter(|name| *name != GAPS);
        let stored = wanted().filter(|name| later.iter().all(|metric| metric.column() != *name)).map(str::to_owned);
        let mut frame = reader.with_columns(Some(stored.collect())).finish()?;
        frame.rechunk_mut();
        if !later.is_empty() {
            frame = derive::with_metrics(&frame, &later)?.select(wanted())?;
        }
        Ok(Table::of(frame))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::fixture::{case, facts, failed, outcome, stream, table, warmup};
    use crate::frame::sample::sample;
    use crate::model::load::Shape;
    use crate::model::outcome::FailureKind;

    fn written(table: &Table) -> Vec<u8> {
        let mut bytes = Vec::new();
        table.write_parquet(&mut bytes).unwrap();
        bytes
    }

    #[test]
    fn a_table_read_back_gives_the_same_figures() {
        let rows = [
            warmup(outcome(0)),
            stream(1, 100, &[150, 150, 190]),
            failed(2, FailureKind::Dropped),
            failed(3, FailureKind::StreamError),
            outcome(4),
        ];
        let (table, case) = (table("a", &rows), case(Shape::Closed { users: 2 }));
        let read = Table::read_parquet(written(&table).as_slice()).unwrap();
        assert!(read.0.equals_missing(&table.0.drop(GAPS).unwrap()));
        let again = ParquetReader::new(Cursor::new(written(&read))).finish().unwrap();
        assert!(again.equals_missing(&table.0), "what is written has the gaps again");
        assert_eq!(sample(&read, &facts(&case)).unwrap(), sample(&table, &facts(&case)).unwrap());
    }

    #[test]
    fn a_file_of_an_earlier_version_is_read_with_the_metrics_that_came_later() {
        let table = table("a", &[stream(0, 0, &[50, 80]), failed(1, FailureKind::Dropped)]);
        let columns = schema::LATER.map(Metric::column);
        let earlier = Table::of(columns.iter().fold(table.0.clone(), |frame, name| frame.drop(name).unwrap()));
        let read = Table::read_parquet(written(&earlier)).unwrap();
        assert!(read.0.equals_missing(&table.0.drop(GAPS).unwrap()));
        assert_eq!(read.0.column("output_tps_per_request").unwrap().f64().unwrap().get(0), Some(25.0));
    }

    #[test]
    fn an_empty_table_survives() {
        assert!(Table::read_parquet(written(&table("a", &[])).as_slice()).unwrap().is_empty());
    }

    #[test]
    fn a_file_of_another_shape_is_an_error_that_names_the_column() {
        let mut strange = table("a", &[outcome(0)]);
        strange.0.with_column(Float64Chunked::from_slice("seq".into(), &[1.0]).into_column()).unwrap();
        let error = Table::read_parquet(written(&strange).as_slice()).unwrap_err().to_string();
        assert!(error.starts_with("column `seq` holds f64 where u64 was expected"), "{error}");
        let short = Table::of(table("a", &[outcome(0)]).0.drop("ttft_ms").unwrap());
        let error = Table::read_parquet(written(&short).as_slice()).unwrap_err().to_string();
        assert!(error.starts_with("the table has no column `ttft_ms`"), "{error}");
        assert!(Table::read_parquet(&b"not a table"[..]).is_err());
    }
}
