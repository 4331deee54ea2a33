//! What can be wrong with a Parquet file of a dataset.

use crate::decoder::DecoderPanic;
use polars::prelude::PolarsError;
use thiserror::Error;

/// A Parquet file that could not be read.
#[derive(Debug, Error)]
pub enum ParquetError {
    /// The input could not be read.
    #[error("the table could not be read: {0}")]
    Read(#[from] std::io::Error),
    /// The decoder failed on what the file holds.
    #[error("the file is damaged: the Parquet decoder failed ({0})")]
    Damaged(String),
    /// The decoder refused.
    #[error("the table could not be processed: {0}")]
    Decoder(String),
}

impl From<DecoderPanic> for ParquetError {
    fn from(panic: DecoderPanic) -> ParquetError {
        ParquetError::Damaged(panic.0)
    }
}

impl From<PolarsError> for ParquetError {
    fn from(error: PolarsError) -> ParquetError {
        ParquetError::Decoder(error.to_string())
    }
}
