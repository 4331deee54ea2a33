//! Reads the columns of a file as those of a frame. Call its functions within [`crate::decode`]: the file may be damaged.

use crate::{ParquetError, read_column};
use polars::prelude::{ArrowSchema, Column, DataType, Series};
use polars_parquet::read::{FileMetadata, RowGroupMetadata, infer_schema, read_metadata};
use std::io::{Read, Seek};

/// A Parquet file, of which one column of a row group is read at a time.
pub struct FrameReader<R> {
    input: R,
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
        let found = DataType::from_arrow_field(field);
        if found == *expected {
            return Ok(());
        }
        Err(ParquetError::Type {
            column: name.into(),
            expected: expected.to_string(),
            found: found.to_string(),
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
