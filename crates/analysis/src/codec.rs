//! Writes and reads the request table as requests.parquet.

use crate::error::TableError;
use crate::request_row::check_words;
use crate::schema::{self, Kind};
use crate::table::{Builder, Table};
use llmscen_parquet::{FrameReader, decode};
use polars::prelude::{Column, ParquetWriter};
use std::io::{Read, Seek, Write};

impl Table {
    /// Writes the table as Parquet, compressed with zstd, one batch of rows at a time.
    ///
    /// # Errors
    /// `out` cannot be written to.
    pub fn write_parquet(&self, out: impl Write) -> Result<(), TableError> {
        let mut writer = ParquetWriter::new(out).batched(&Table::schema())?;
        for rows in self.batches() {
            writer.write_batch(&self.with_derived(rows)?)?;
        }
        writer.finish()?;
        Ok(())
    }

    /// Reads a table that [`Table::write_parquet`] wrote, one row group at a time. Derived and unknown columns are
    /// skipped.
    ///
    /// # Errors
    /// `input` cannot be read, is not a Parquet file, lacks a column, or has one of another type.
    pub fn read_parquet(input: impl Read + Seek) -> Result<Table, TableError> {
        let mut builder = Builder::default();
        builder.append_parquet(input)?;
        builder.finish()
    }
}

impl Builder {
    /// Appends the rows of a table that [`Table::write_parquet`] wrote. After an error, the builder has a part of them.
    ///
    /// # Errors
    /// As [`Table::read_parquet`].
    pub fn append_parquet(&mut self, input: impl Read + Seek) -> Result<(), TableError> {
        decode(|| self.decode_parquet(input))
    }

    fn decode_parquet(&mut self, input: impl Read + Seek) -> Result<(), TableError> {
        let mut file = FrameReader::open(input)?;
        let is_optional = |name| schema::optional_columns().any(|optional| optional == name);
        for (name, kind) in schema::columns() {
            if file.has(name) || !is_optional(name) {
                file.check(name, &kind.dtype())?;
            }
        }
        self.rows_mut()
            .events
            .expect(file.expected_values(schema::TOKEN_EVENTS));
        let mut before = 0;
        for (group, rows) in file.row_groups().into_iter().enumerate() {
            let column = |name: &'static str, kind: Kind| -> Result<Column, TableError> {
                if !file.has(name) {
                    return Ok(Column::full_null(name.into(), rows, &kind.dtype()));
                }
                let column = file.column(group, name)?;
                check_words(&column, before)?;
                Ok(column)
            };
            self.rows_mut().append(column)?;
            before += rows;
        }
        Ok(())
    }
}

/// The size of a stored table, from the footer of its file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoredSize {
    /// Rows.
    pub rows: u64,
    /// Token events; a row without any counts as one.
    pub token_events: u64,
}

impl StoredSize {
    /// Reads the size of a table that [`Table::write_parquet`] wrote.
    ///
    /// # Errors
    /// `input` cannot be read, or is not a Parquet file.
    pub fn read(input: impl Read + Seek) -> Result<StoredSize, TableError> {
        decode(|| {
            let file = FrameReader::open(input)?;
            Ok(StoredSize {
                rows: file.rows() as u64,
                token_events: file.values(schema::TOKEN_EVENTS),
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{case, facts, failed, frame, outcome, sample_case, stream, table, warmup};
    use llmscen_core::load::Shape;
    use llmscen_core::outcome::FailureKind;
    use polars::prelude::*;
    use std::io::Cursor;

    fn written(table: &Table) -> Vec<u8> {
        let mut bytes = Vec::new();
        table.write_parquet(&mut bytes).unwrap();
        bytes
    }

    fn file(mut frame: DataFrame) -> Vec<u8> {
        let mut bytes = Vec::new();
        ParquetWriter::new(&mut bytes).finish(&mut frame).unwrap();
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
        let read = Table::read_parquet(Cursor::new(written(&table))).unwrap();
        assert!(frame(&read).equals_missing(&frame(&table)));
        assert_eq!(
            format!("{:?}", sample_case(&read, &facts(&case))),
            format!("{:?}", sample_case(&table, &facts(&case)))
        );
    }

    #[test]
    fn a_file_of_an_earlier_version_is_read_with_the_metrics_that_came_later() {
        let table = table(
            "a",
            &[stream(0, 0, &[50, 80]), failed(1, FailureKind::Dropped)],
        );
        let earlier = file(
            schema::optional_columns().fold(frame(&table), |frame, name| frame.drop(name).unwrap()),
        );
        let read = Table::read_parquet(Cursor::new(earlier)).unwrap();
        let comparable = |table: &Table| {
            frame(table).drop_many([
                "reasoning_events",
                "first_turn",
                "reasoning_received",
                "characters",
                "replacement_characters",
                "replacement_share",
                "token_weights_counted",
            ])
        };
        assert!(comparable(&read).equals_missing(&comparable(&table)));
        assert_eq!(
            frame(&read)
                .column("output_tps_per_request")
                .unwrap()
                .f64()
                .unwrap()
                .get(0),
            Some(25.0)
        );
    }

    #[test]
    fn an_empty_table_has_every_column() {
        let empty = table("a", &[]);
        assert_eq!(frame(&empty).width(), schema::columns().count());
        let read = Table::read_parquet(Cursor::new(written(&empty))).unwrap();
        assert!(read.is_empty());
    }

    #[test]
    fn a_file_of_another_shape_is_an_error_that_names_the_column() {
        let mut strange = frame(&table("a", &[outcome(0)]));
        strange
            .with_column(Float64Chunked::from_slice("seq".into(), &[1.0]).into_column())
            .unwrap();
        let error = Table::read_parquet(Cursor::new(file(strange)))
            .unwrap_err()
            .to_string();
        assert!(
            error.starts_with("column `seq` has type f64 instead of u64"),
            "{error}"
        );
        let short = file(
            frame(&table("a", &[outcome(0)]))
                .drop("intended_ns")
                .unwrap(),
        );
        let error = Table::read_parquet(Cursor::new(short))
            .unwrap_err()
            .to_string();
        assert!(
            error.starts_with("the table has no column `intended_ns`"),
            "{error}"
        );
        assert!(Table::read_parquet(Cursor::new(b"not a table")).is_err());
    }
}
