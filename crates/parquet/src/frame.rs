//! Reads the row groups of a file as frames. Call its functions within [`crate::decode`]: the file may be damaged.

use crate::ParquetError;
use polars::io::mmap::MmapBytesReader;
use polars::io::parquet::metadata::FileMetadataRef;
use polars::prelude::{
    ArrowSchema, DataFrame, DataType, ParallelStrategy, ParquetReader, SerReader,
};
use std::sync::Arc;

/// A Parquet file of which a row group is read at a time.
pub struct FrameReader<R> {
    input: R,
    metadata: FileMetadataRef,
    schema: Arc<ArrowSchema>,
}

impl<R: MmapBytesReader> FrameReader<R> {
    /// Reads the footer.
    ///
    /// # Errors
    /// `input` cannot be read, or is not a Parquet file.
    pub fn open(mut input: R) -> Result<FrameReader<R>, ParquetError> {
        let mut reader = ParquetReader::new(&mut input);
        let metadata = reader.get_metadata()?.clone();
        let schema = reader.schema()?;
        Ok(FrameReader {
            input,
            metadata,
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
        self.metadata.num_rows
    }

    /// Number of values of a column in the file, from its footer: an empty or null list counts as one.
    pub fn values(&self, name: &str) -> u64 {
        let groups = self.metadata.row_groups.iter();
        let columns = groups.flat_map(|group| group.columns_under_root_iter(name));
        columns
            .flatten()
            .map(|column| column.num_values().max(0) as u64)
            .sum()
    }

    /// Reads these columns of every row group, in this thread.
    ///
    /// # Errors
    /// A column is missing or cannot be read, or `take` fails.
    pub fn read<E: From<ParquetError>>(
        &mut self,
        names: &[&str],
        mut take: impl FnMut(DataFrame) -> Result<(), E>,
    ) -> Result<(), E> {
        let metadata = self.metadata.clone();
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut from = 0;
        for group in &metadata.row_groups {
            let rows = group.num_rows();
            let mut reader = ParquetReader::new(&mut self.input)
                .with_columns(Some(names.clone()))
                .with_slice(Some((from, rows)))
                .read_parallel(ParallelStrategy::None);
            reader.set_metadata(metadata.clone());
            let frame = reader.finish().map_err(ParquetError::from)?;
            // A damaged file has columns of several lengths.
            let frame = DataFrame::new(rows, frame.into_columns()).map_err(ParquetError::from)?;
            take(frame)?;
            from += rows;
        }
        Ok(())
    }
}
