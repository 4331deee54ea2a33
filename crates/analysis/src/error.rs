//! Errors of the request table.

use llmscen_parquet::{DecoderPanic, ParquetError};
use polars::error::PolarsError;
use thiserror::Error;

/// A table could not be built, read or written.
#[derive(Debug, Error)]
pub enum TableError {
    /// A text column has an unknown value.
    #[error(
        "row {row} of column `{column}` has the value `{found}`, which is not a valid value of this column"
    )]
    Word {
        /// The column.
        column: String,
        /// The row, from 0.
        row: usize,
        /// The value.
        found: String,
    },
    /// The file could not be read or written, or its columns are not those of a run.
    #[error(transparent)]
    Parquet(#[from] ParquetError),
    /// cases.csv could not be written.
    #[error("cannot write the table of cases: {0}")]
    Csv(#[from] csv::Error),
}

impl From<PolarsError> for TableError {
    fn from(error: PolarsError) -> TableError {
        ParquetError::from(error).into()
    }
}

impl From<DecoderPanic> for TableError {
    fn from(panic: DecoderPanic) -> TableError {
        ParquetError::from(panic).into()
    }
}
