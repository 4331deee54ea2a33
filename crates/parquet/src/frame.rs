//! Reads the columns of a file as those of a frame. Call its functions within [`crate::decode`]: the file may be
//! damaged.

use crate::{ParquetError, read_column};
use polars::prelude::{ArrowDataType, ArrowSchema, Column, CompatLevel, DataType, Series};
use polars_parquet::read::{FileMetadata, RowGroupMetadata, infer_schema, read_metadata};
use std::io::{Read, Seek, SeekFrom};

/// A Parquet file, of which one column of a row group is read at a time.
pub struct FrameReader<R> {
    input: R,
    /// Length in bytes.
    length: u64,
    file: FileMetadata,
    schema: ArrowSchema,
}

impl<R: Read + Seek> FrameReader<R> {
    /// Reads the footer.
    ///
    /// # Errors
    /// `input` cannot be read, or is not a Parquet file.
    pub fn open(mut input: R) -> Result<FrameReader<R>, ParquetError> {
        let file = read_metadata(&mut input)?;
        let schema = infer_schema(&file)?;
        Ok(FrameReader {
            length: input.seek(SeekFrom::End(0))?,
            input,
            file,
            schema,
        })
    }

    /// Whether the file has this column, of any type.
    pub fn has(&self, name: &str) -> bool {
        self.schema.contains(name)
    }

    /// Checks that the file has a column of this type.
    ///
    /// # Errors
    /// The column is missing or has another type.
    pub fn check(&self, name: &str, expected: &DataType) -> Result<(), ParquetError> {
        let Some(field) = self.schema.get(name) else {
            return Err(ParquetError::missing(name));
        };
        let found = type_name(&field.dtype);
        let expected = type_name(&expected.to_arrow(CompatLevel::newest()));
        if found == expected {
            return Ok(());
        }
        Err(ParquetError::Type {
            column: name.into(),
            expected,
            found,
        })
    }

    /// Number of rows in the file.
    pub fn rows(&self) -> usize {
        self.file.num_rows
    }

    /// Number of values of a column in the file, from its footer: an empty or null list counts as one.
    pub fn values(&self, name: &str) -> u64 {
        let groups = self.file.row_groups.iter();
        let columns = groups.flat_map(|group| group.columns_under_root_iter(name));
        columns
            .flatten()
            .map(|column| column.num_values().max(0) as u64)
            .sum()
    }

    /// The values of a column that memory can be allocated for: at most one per byte of the file, which may be damaged.
    pub fn expected_values(&self, name: &str) -> usize {
        self.values(name).min(self.length) as usize
    }

    /// Number of rows of each row group.
    pub fn row_groups(&self) -> Vec<usize> {
        let groups = self.file.row_groups.iter();
        groups.map(RowGroupMetadata::num_rows).collect()
    }

    /// Reads a column of a row group.
    ///
    /// # Errors
    /// The column is missing or cannot be read.
    pub fn column(&mut self, group: usize, name: &str) -> Result<Column, ParquetError> {
        let group = self.file.row_groups.get(group);
        let field = self.schema.get(name);
        let (Some(group), Some(field)) = (group, field) else {
            return Err(ParquetError::missing(name));
        };
        let array = read_column(&mut self.input, group, field)?;
        Ok(Series::from_arrow(name.into(), array)?.into())
    }
}

/// The name of a type of the tables that this program writes, or the decoder's name of another one.
fn type_name(dtype: &ArrowDataType) -> String {
    match dtype {
        ArrowDataType::Utf8View => "text".into(),
        ArrowDataType::Boolean => "boolean".into(),
        ArrowDataType::UInt32 => "u32".into(),
        ArrowDataType::UInt64 => "u64".into(),
        ArrowDataType::Int64 => "i64".into(),
        ArrowDataType::Float64 => "f64".into(),
        ArrowDataType::LargeList(items) => format!("list of {}", type_name(&items.dtype)),
        other => format!("{other:?}"),
    }
}
