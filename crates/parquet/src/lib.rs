//! Reading of Parquet files that may be damaged: a column of a row group at a time, or the rows as JSON.
#![cfg_attr(not(any(test, feature = "testing")), deny(clippy::unwrap_used, clippy::expect_used, clippy::panic))]
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod decoder;
mod json;
#[cfg(test)]
mod tests;
#[cfg(any(test, feature = "testing"))]
pub mod written;

pub use decoder::{DecoderPanic, ParquetError, decode};

use polars::prelude::PlSmallStr;
use polars_arrow::array::Array;
use polars_arrow::datatypes::{ArrowSchema, Field};
use polars_buffer::Buffer;
use polars_parquet::read::{
    BasicDecompressor, ColumnChunkMetadata, FileMetadata, PageReader, RowGroupMetadata, column_iter_to_arrays, infer_schema,
    read_metadata,
};
use serde_json::{Map, Value};
use std::io::{Cursor, Read, Seek, SeekFrom};

/// The largest page header that is believed, in bytes.
const PAGE_HEADER: usize = 1 << 24;

/// A column's name and the values of one row group.
type Column = (PlSmallStr, Box<dyn Array>);

/// The rows of a Parquet file in order; one row group is in memory. Lists and structs become JSON lists and mappings,
/// bytes base64, dates, times and decimals text.
pub struct Records<R> {
    input: R,
    file: FileMetadata,
    schema: ArrowSchema,
    /// The row group that comes next.
    group: usize,
    columns: Vec<Column>,
    /// The row that comes next, and the number of rows, of the current group.
    row: usize,
    rows: usize,
}

impl<R: Read + Seek> Records<R> {
    /// Reads the footer.
    ///
    /// # Errors
    /// Where `input` cannot be read, or is no Parquet file.
    pub fn open(mut input: R) -> Result<Records<R>, ParquetError> {
        let (file, schema) = decode(|| {
            let file = read_metadata(&mut input)?;
            let schema = infer_schema(&file)?;
            Ok::<_, ParquetError>((file, schema))
        })?;
        Ok(Records { input, file, schema, group: 0, columns: Vec::new(), row: 0, rows: 0 })
    }

    /// The next row by column; None after the last one.
    fn record(&mut self) -> Result<Option<Map<String, Value>>, ParquetError> {
        while self.row >= self.rows {
            let Some(group) = self.file.row_groups.get(self.group) else { return Ok(None) };
            self.rows = group.num_rows();
            self.columns = columns(&mut self.input, group, &self.schema)?;
            (self.group, self.row) = (self.group + 1, 0);
        }
        let row = self.row;
        self.row += 1;
        let cells = self.columns.iter().map(|(name, column)| Ok((name.to_string(), json::value(column.as_ref(), row)?)));
        cells.collect::<Result<_, ParquetError>>().map(Some)
    }
}

impl<R: Read + Seek> Iterator for Records<R> {
    type Item = Result<Map<String, Value>, ParquetError>;

    fn next(&mut self) -> Option<Self::Item> {
        decode(|| self.record()).transpose()
    }
}

fn columns<R: Read + Seek>(input: &mut R, group: &RowGroupMetadata, schema: &ArrowSchema) -> Result<Vec<Column>, ParquetError> {
    schema.iter_values().map(|field| Ok((field.name.clone(), column(input, group, field)?))).collect()
}

/// A column of a row group.
///
/// # Errors
/// It cannot be read, or is not as long as the row group.
pub fn column<R: Read + Seek>(input: &mut R, group: &RowGroupMetadata, field: &Field) -> Result<Box<dyn Array>, ParquetError> {
    let parts: Vec<&ColumnChunkMetadata> = group.columns_under_root_iter(&field.name).into_iter().flatten().collect();
    let mut pages = Vec::with_capacity(parts.len());
    for part in &parts {
        let range = part.byte_range();
        let mut bytes = Vec::new();
        input.seek(SeekFrom::Start(range.start))?;
        input.by_ref().take(range.end - range.start).read_to_end(&mut bytes)?;
        let reader = PageReader::new(Cursor::new(Buffer::from(bytes)), part, Vec::new(), PAGE_HEADER);
        pages.push(BasicDecompressor::new(reader, Vec::new()));
    }
    let types = parts.iter().map(|part| &part.descriptor().descriptor.primitive_type).collect();
    let (mut arrays, _) = column_iter_to_arrays(pages, types, field.clone(), None)?;
    match (arrays.len(), arrays.pop()) {
        // A column that is too short would lack a row.
        (1, Some(array)) if array.len() != group.num_rows() => {
            let found = format!("{} values in {} rows", array.len(), group.num_rows());
            Err(ParquetError::Decoder(format!("column `{}` has {found}", field.name)))
        }
        (1, Some(array)) => Ok(array),
        (pieces, _) => Err(ParquetError::Decoder(format!("column `{}` came in {pieces} pieces", field.name))),
    }
}
