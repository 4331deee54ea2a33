//! Files of typed columns: what a run writes and reads again.

use crate::{ParquetError, read_column};
use polars_arrow::array::{
    Array, ListArray, MutableListArray, MutablePrimitiveArray, TryPush, new_null_array,
};
use polars_arrow::datatypes::{ArrowDataType, ArrowSchema, Field};
use polars_arrow::types::NativeType;
use polars_error::PolarsError;
use polars_parquet::read::{FileMetadata, ParquetError as PageError, infer_schema, read_metadata};
use polars_parquet::write::{
    CompressionOptions, Compressor, DynIter, DynStreamingIterator, Encoding,
    FallibleStreamingIterator, FileWriter, StatisticsOptions, Version, WriteOptions,
    array_to_columns, get_dtype_encoding,
};
use rayon::prelude::*;
use std::fmt;
use std::io::{Read, Seek, Write};

/// The type of a column; every value may be null.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// UTF-8 text: a `Utf8ViewArray`.
    Text,
    /// True or false: a `BooleanArray`.
    Flag,
    /// A `PrimitiveArray<u32>`.
    U32,
    /// A `PrimitiveArray<u64>`.
    U64,
    /// A `PrimitiveArray<i64>`.
    I64,
    /// A `PrimitiveArray<f64>`.
    F64,
    /// A `ListArray<i64>` of `u32`.
    U32List,
    /// A `ListArray<i64>` of `u64`.
    U64List,
    /// A `ListArray<i64>` of `f64`.
    F64List,
}

impl Kind {
    fn dtype(self) -> ArrowDataType {
        let list = ListArray::<i64>::default_datatype;
        match self {
            Kind::Text => ArrowDataType::Utf8View,
            Kind::Flag => ArrowDataType::Boolean,
            Kind::U32 => ArrowDataType::UInt32,
            Kind::U64 => ArrowDataType::UInt64,
            Kind::I64 => ArrowDataType::Int64,
            Kind::F64 => ArrowDataType::Float64,
            Kind::U32List => list(ArrowDataType::UInt32),
            Kind::U64List => list(ArrowDataType::UInt64),
            Kind::F64List => list(ArrowDataType::Float64),
        }
    }

    /// The kind of a column that this or another program wrote; None for other types.
    fn of(dtype: &ArrowDataType) -> Option<Kind> {
        match dtype {
            ArrowDataType::Utf8 | ArrowDataType::LargeUtf8 | ArrowDataType::Utf8View => {
                Some(Kind::Text)
            }
            ArrowDataType::Boolean => Some(Kind::Flag),
            ArrowDataType::UInt32 => Some(Kind::U32),
            ArrowDataType::UInt64 => Some(Kind::U64),
            ArrowDataType::Int64 => Some(Kind::I64),
            ArrowDataType::Float64 => Some(Kind::F64),
            ArrowDataType::List(item) | ArrowDataType::LargeList(item) => {
                match Kind::of(&item.dtype)? {
                    Kind::U32 => Some(Kind::U32List),
                    Kind::U64 => Some(Kind::U64List),
                    Kind::F64 => Some(Kind::F64List),
                    _ => None,
                }
            }
            _ => None,
        }
    }

    /// A column of nulls.
    pub fn nulls(self, rows: usize) -> Box<dyn Array> {
        new_null_array(self.dtype(), rows)
    }

    fn field(self, name: &str) -> Field {
        Field::new(name.into(), self.dtype(), true)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Kind::Text => "text",
            Kind::Flag => "boolean",
            Kind::U32 => "u32",
            Kind::U64 => "u64",
            Kind::I64 => "i64",
            Kind::F64 => "f64",
            Kind::U32List => "list of u32",
            Kind::U64List => "list of u64",
            Kind::F64List => "list of f64",
        })
    }
}

/// A column of lists in memory. A row of None is null.
pub fn list_array<T: NativeType>(
    rows: usize,
    lists: impl IntoIterator<Item = Option<impl IntoIterator<Item = T>>>,
) -> Result<Box<dyn Array>, ParquetError> {
    let mut array = MutableListArray::<i64, MutablePrimitiveArray<T>>::with_capacity(rows);
    for list in lists {
        array.try_push(list.map(|list| list.into_iter().map(Some)))?;
    }
    Ok(ListArray::from(array).boxed())
}

/// Writes a file, one row group at a time, compressed with zstd.
pub struct ColumnWriter<W: Write> {
    file: FileWriter<W>,
    encodings: Vec<Vec<Encoding>>,
}

const OPTIONS: WriteOptions = WriteOptions {
    statistics: StatisticsOptions {
        min_value: true,
        max_value: true,
        distinct_count: false,
        null_count: true,
        binary_statistics_truncate_length: None,
    },
    version: Version::V1,
    compression: CompressionOptions::Zstd(None),
    data_page_size: None,
};

impl<W: Write> ColumnWriter<W> {
    /// Writes the head of a file with these columns.
    ///
    /// # Errors
    /// Two columns have one name.
    pub fn new<'a>(
        out: W,
        columns: impl IntoIterator<Item = (&'a str, Kind)>,
    ) -> Result<ColumnWriter<W>, ParquetError> {
        let fields = columns.into_iter().map(|(name, kind)| kind.field(name));
        let schema: ArrowSchema = fields.map(|field| (field.name.clone(), field)).collect();
        let types = schema.iter_values().map(|field| &field.dtype);
        Ok(ColumnWriter {
            encodings: types.map(get_dtype_encoding).collect(),
            file: FileWriter::try_new(out, schema, OPTIONS)?,
        })
    }

    /// Writes a row group. Several threads make and encode the columns, each given by its index.
    ///
    /// # Errors
    /// `column` fails, or the output cannot be written to.
    pub fn write<E: From<ParquetError> + Send>(
        &mut self,
        rows: usize,
        column: impl Fn(usize) -> Result<Box<dyn Array>, E> + Sync,
    ) -> Result<(), E> {
        if rows == 0 {
            return Ok(());
        }
        let types = self.file.parquet_schema().fields();
        let encode = |(index, encodings): (usize, &Vec<Encoding>)| {
            let Some(leaves) = types.get(index) else {
                return Ok(Vec::new());
            };
            let array = column(index)?;
            array_to_columns(array, leaves.clone(), OPTIONS, encodings)
                .map_err(|error| ParquetError::from(error).into())
        };
        let encoded: Vec<_> = self
            .encodings
            .par_iter()
            .enumerate()
            .map(encode)
            .collect::<Result<_, E>>()?;
        let compressed = encoded.into_iter().flatten().map(|pages| {
            let pages = pages.map(|page| {
                page.map_err(|error| PageError::FeatureNotSupported(error.to_string()))
            });
            let compressor = Compressor::new_from_vec(pages, OPTIONS.compression, Vec::new());
            Ok(DynStreamingIterator::new(
                compressor.map_err(PolarsError::from),
            ))
        });
        let group = DynIter::new(compressed);
        self.file
            .write(rows as u64, group)
            .map_err(|error| ParquetError::from(error).into())
    }

    /// Writes the footer.
    ///
    /// # Errors
    /// The output cannot be written to.
    pub fn finish(mut self) -> Result<W, ParquetError> {
        self.file.end(None)?;
        Ok(self.file.into_inner())
    }
}

/// Reads a file that a [`ColumnWriter`] or another program wrote.
pub struct ColumnReader<R> {
    input: R,
    file: FileMetadata,
    schema: ArrowSchema,
}

impl<R: Read + Seek> ColumnReader<R> {
    /// Reads the footer. Call it within [`crate::decode`], as all that reads.
    ///
    /// # Errors
    /// `input` cannot be read, or is not a Parquet file.
    pub fn open(mut input: R) -> Result<ColumnReader<R>, ParquetError> {
        let file = read_metadata(&mut input)?;
        let schema = infer_schema(&file)?;
        Ok(ColumnReader {
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
    pub fn check(&self, name: &str, kind: Kind) -> Result<(), ParquetError> {
        let Some(field) = self.schema.get(name) else {
            return Err(ParquetError::missing(name));
        };
        let found = Kind::of(&field.dtype);
        if found == Some(kind) {
            return Ok(());
        }
        Err(ParquetError::Type {
            column: name.into(),
            expected: kind,
            found: found.map_or_else(|| "another one".into(), |found| found.to_string()),
        })
    }

    /// Number of rows in the file.
    pub fn rows(&self) -> usize {
        self.file.num_rows
    }

    /// Number of rows of each row group.
    pub fn row_groups(&self) -> Vec<usize> {
        let groups = self.file.row_groups.iter();
        groups.map(|group| group.num_rows()).collect()
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

    /// Reads a column of a row group.
    ///
    /// # Errors
    /// The column is missing, has another type, or cannot be read.
    pub fn column(
        &mut self,
        group: usize,
        name: &str,
        kind: Kind,
    ) -> Result<Box<dyn Array>, ParquetError> {
        self.check(name, kind)?;
        let group = self.file.row_groups.get(group);
        let group = group.ok_or_else(|| ParquetError::missing(name))?;
        read_column(&mut self.input, group, &kind.field(name))
    }
}
