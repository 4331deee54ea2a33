//! Errors of the request table.

use llmscen_parquet::{DecoderPanic, ParquetError};
use polars::prelude::PolarsError;
use thiserror::Error;

/// A table could not be built, read or written.
#[derive(Debug, Error)]
pub enum TableError {
    /// A column is missing.
    #[error(
        "the table has no column `{column}`: the file is not the requests.parquet of a run, or another version of llmscen wrote it"
    )]
    Missing {
        /// The column.
        column: String,
    },
    /// A column has another type.
    #[error(
        "column `{column}` has type {found} instead of {expected}: the file is not the requests.parquet of a run"
    )]
    Shape {
        /// The column.
        column: String,
        /// Expected type.
        expected: String,
        /// Actual type.
        found: String,
    },
    /// A text column has an unknown value.
    #[error(
        "row {row} of column `{column}` has the value `{found}`, which is not a valid value of this column"
    )]
    Word {
        /// The column.
        column: &'static str,
        /// The row, from 0.
        row: usize,
        /// The value.
        found: String,
    },
    /// The file could not be read or written.
    #[error(transparent)]
    Parquet(#[from] ParquetError),
}

impl From<DecoderPanic> for TableError {
    fn from(panic: DecoderPanic) -> TableError {
        ParquetError::from(panic).into()
    }
}

impl From<PolarsError> for TableError {
    fn from(error: PolarsError) -> TableError {
        ParquetError::from(error).into()
    }
}
