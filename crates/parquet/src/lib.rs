//! Reads Parquet files that may be damaged: one column of a row group at a time, or the rows as JSON.
#![cfg_attr(
    not(any(test, feature = "testing")),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::panic)
)]
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod json;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;

use polars::prelude::{PlSmallStr, PolarsError};
use polars_arrow::array::Array;
use polars_arrow::datatypes::{ArrowSchema, Field};
use polars_buffer::Buffer;
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
use std::sync::atomic::{AtomicUsize, Ordering};
use thiserror::Error;

/// The largest page header that is accepted, in bytes: a damaged length must not allocate more.
const MAX_PAGE_HEADER: usize = 1 << 24;

/// A column's name and the values of one row group.
type Column = (PlSmallStr, Box<dyn Array>);

/// The rows of a Parquet file in order, with one row group in memory at a time. Lists and structs become JSON arrays and
/// objects, bytes become base64, and dates, times and decimals become text.
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

/// Reads one column of a row group.
///
/// # Errors
/// The column cannot be read, or its length differs from that of the row group.
pub fn read_column<R: Read + Seek>(
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
        let reader = PageReader::new(
            Cursor::new(Buffer::from(bytes)),
            part,
            Vec::new(),
            MAX_PAGE_HEADER,
        );
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
/// Number of threads that are decoding. Polars decodes on threads of its own, too.
static DECODING_THREADS: AtomicUsize = AtomicUsize::new(0);
const POLARS_THREAD: &str = "polars";

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
            if !on_decoder_thread() {
                default_hook(info);
            }
        }));
    });
    let outer = IS_DECODING.replace(true);
    DECODING_THREADS.fetch_add(1, Ordering::SeqCst);
    let decoded = panic::catch_unwind(AssertUnwindSafe(decoder));
    DECODING_THREADS.fetch_sub(1, Ordering::SeqCst);
    IS_DECODING.set(outer);
    decoded.unwrap_or_else(|panic| Err(DecoderPanic(panic_message(&*panic)).into()))
}

fn on_decoder_thread() -> bool {
    let is_helper = || {
        std::thread::current()
            .name()
            .is_some_and(|name| name.starts_with(POLARS_THREAD))
    };
    IS_DECODING.try_with(Cell::get).unwrap_or(false)
        || DECODING_THREADS.load(Ordering::SeqCst) > 0 && is_helper()
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
    /// The decoder returned an error.
    #[error("cannot process the table: {0}")]
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
