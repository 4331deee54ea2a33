//! Reads Parquet files that may be damaged: a column of a row group at a time, or the rows as JSON.
#![cfg_attr(
    not(any(test, feature = "testing")),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::panic)
)]
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod frame;
mod json;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;

pub use frame::FrameReader;
use polars::error::PolarsError;
use polars::prelude::PlSmallStr;
use polars_arrow::array::Array;
use polars_arrow::datatypes::{ArrowSchema, Field};
use polars_parquet::read::{
    BasicDecompressor, ColumnChunkMetadata, FileMetadata, PageReader, RowGroupMetadata,
    column_iter_to_arrays, infer_schema, read_metadata,
};
use serde_json::{Map, Value};
use std::any::Any;
use std::cell::Cell;
use std::io::{Cursor, Read, Seek, SeekFrom};
use std::panic::{self, AssertUnwindSafe};
use std::sync::Once;
use thiserror::Error;

/// The largest page header that is accepted, in bytes: a damaged length must not allocate more.
const MAX_PAGE_HEADER: usize = 1 << 24;

/// A column's name and the values of one row group.
type Column = (PlSmallStr, Box<dyn Array>);

/// The rows of a Parquet file in order, with one row group in memory at a time. Lists and structs become JSON arrays
/// and objects, bytes become base64, and dates, times and decimals become text.
pub struct Records<R> {
    input: R,
    file: FileMetadata,
    schema: ArrowSchema,
    /// The next row group.
    group: usize,
    columns: Vec<Column>,
    /// The next row of the current group.
    row: usize,
    /// Number of rows of the current group.
    rows: usize,
}

impl<R: Read + Seek> Records<R> {
    /// Reads the footer.
    ///
    /// # Errors
    /// `input` cannot be read, or is not a Parquet file.
    pub fn open(mut input: R) -> Result<Records<R>, ParquetError> {
        let (file, schema) = decode(|| {
            let file = read_metadata(&mut input)?;
            let schema = infer_schema(&file)?;
            Ok::<_, ParquetError>((file, schema))
        })?;
        Ok(Records {
            input,
            file,
            schema,
            group: 0,
            columns: Vec::new(),
            row: 0,
            rows: 0,
        })
    }

    /// The next row; None after the last one.
    fn record(&mut self) -> Result<Option<Map<String, Value>>, ParquetError> {
        while self.row >= self.rows {
            let Some(group) = self.file.row_groups.get(self.group) else {
                return Ok(None);
            };
            self.rows = group.num_rows();
            self.columns = read_columns(&mut self.input, group, &self.schema)?;
            self.group += 1;
            self.row = 0;
        }
        let row = self.row;
        self.row += 1;
        let cells = self.columns.iter().map(|(name, column)| {
            Ok((name.to_string(), json::cell_to_json(column.as_ref(), row)?))
        });
        cells.collect::<Result<_, ParquetError>>().map(Some)
    }
}

impl<R: Read + Seek> Iterator for Records<R> {
    type Item = Result<Map<String, Value>, ParquetError>;

    fn next(&mut self) -> Option<Self::Item> {
        decode(|| self.record()).transpose()
    }
}

fn read_columns<R: Read + Seek>(
    input: &mut R,
    group: &RowGroupMetadata,
    schema: &ArrowSchema,
) -> Result<Vec<Column>, ParquetError> {
    schema
        .iter_values()
        .map(|field| Ok((field.name.clone(), read_column(input, group, field)?)))
        .collect()
}

fn read_column<R: Read + Seek>(
    input: &mut R,
    group: &RowGroupMetadata,
    field: &Field,
) -> Result<Box<dyn Array>, ParquetError> {
    let parts: Vec<&ColumnChunkMetadata> = group
        .columns_under_root_iter(&field.name)
        .into_iter()
        .flatten()
        .collect();
    let mut pages = Vec::with_capacity(parts.len());
    for part in &parts {
        let range = part.byte_range();
        let mut bytes = Vec::new();
        input.seek(SeekFrom::Start(range.start))?;
        input
            .by_ref()
            .take(range.end - range.start)
            .read_to_end(&mut bytes)?;
        let reader = PageReader::new(Cursor::new(bytes.into()), part, Vec::new(), MAX_PAGE_HEADER);
        pages.push(BasicDecompressor::new(reader, Vec::new()));
    }
    let types = parts
        .iter()
        .map(|part| &part.descriptor().descriptor.primitive_type)
        .collect();
    let (mut arrays, _) = column_iter_to_arrays(pages, types, field.clone(), None)?;
    match (arrays.len(), arrays.pop()) {
        (1, Some(array)) if array.len() != group.num_rows() => {
            let lengths = format!("{} values in {} rows", array.len(), group.num_rows());
            Err(ParquetError::Decoder(format!(
                "column `{}` has {lengths}",
                field.name
            )))
        }
        (1, Some(array)) => Ok(array),
        (pieces, _) => Err(ParquetError::Decoder(format!(
            "column `{}` came in {pieces} pieces",
            field.name
        ))),
    }
}

// Damaged files: the decoder panics on some of them, and those panics are errors here.

thread_local! {
    /// Whether this thread is decoding.
    static IS_DECODING: Cell<bool> = const { Cell::new(false) };
}

/// The message of a decoder that panicked: the input is damaged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecoderPanic(pub String);

/// Runs a decoder whose input may be damaged.
///
/// # Errors
/// Those of the decoder, and its panic, which is not printed.
pub fn decode<T, E: From<DecoderPanic>>(decoder: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let default_hook = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if !IS_DECODING.try_with(Cell::get).unwrap_or(false) {
                default_hook(info);
            }
        }));
    });
    let outer = IS_DECODING.replace(true);
    let decoded = panic::catch_unwind(AssertUnwindSafe(decoder));
    IS_DECODING.set(outer);
    decoded.unwrap_or_else(|panic| Err(DecoderPanic(panic_message(&*panic)).into()))
}

/// The first line of a panic's message.
fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied());
    text.and_then(|text| text.lines().next())
        .unwrap_or("no reason given")
        .to_owned()
}

/// Why a Parquet file could not be read.
#[derive(Debug, Error)]
pub enum ParquetError {
    /// The input could not be read.
    #[error("cannot read the table: {0}")]
    Read(#[from] std::io::Error),
    /// The decoder panicked.
    #[error("the file is damaged: the Parquet decoder failed ({0})")]
    Damaged(String),
    /// A column is missing.
    #[error(
        "the table has no column `{column}`: the file is not of a run, or another version of llmscen wrote it"
    )]
    Missing {
        /// The column.
        column: String,
    },
    /// A column has another type.
    #[error(
        "column `{column}` has type {found} instead of {expected}: the file is not of a run, or \
        another program changed it"
    )]
    Type {
        /// The column.
        column: String,
        /// Expected type.
        expected: String,
        /// Actual type.
        found: String,
    },
    /// The decoder returned an error.
    #[error("cannot process the table: {0}")]
    Decoder(String),
}

impl ParquetError {
    /// The error for a missing column.
    pub fn missing(column: &str) -> ParquetError {
        ParquetError::Missing {
            column: column.into(),
        }
    }
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
