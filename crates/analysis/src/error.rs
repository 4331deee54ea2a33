//! What can be wrong with a table.

use llmscen_parquet::{DecoderPanic, ParquetError};
use polars::prelude::PolarsError;
use thiserror::Error;

/// A table that could not be made, read or written.
#[derive(Debug, Error)]
pub enum FrameError {
    /// A column is not there.
    #[error("the table has no column `{column}`: it is not the requests.parquet of a run, or of another version of llmscen")]
    Missing {
        /// The column.
        column: String,
    },
    /// A column holds something else.
    #[error("column `{column}` holds {found} where {expected} was expected: it is not the requests.parquet of a run")]
    Shape {
        /// The column.
        column: String,
        /// The type it should have.
        expected: String,
        /// The type it has.
        found: String,
    },
    /// A cell holds a word that means nothing.
    #[error("row {row} of column `{column}` holds `{found}`, which is not one of its words")]
    Word {
        /// The column.
        column: &'static str,
        /// The row, from 0.
        row: usize,
        /// What stands there.
        found: String,
    },
    /// The file could not be read or written.
    #[error(transparent)]
    Parquet(#[from] ParquetError),
}

impl From<DecoderPanic> for FrameError {
    fn from(panic: DecoderPanic) -> FrameError {
        ParquetError::from(panic).into()
    }
}

impl From<PolarsError> for FrameError {
    fn from(error: PolarsError) -> FrameError {
        ParquetError::from(error).into()
    }
}
