//! Writes Parquet files for tests.

use polars_arrow::array::Array;
use polars_arrow::datatypes::{ArrowSchema, Field};
use polars_arrow::record_batch::RecordBatchT;
use polars_parquet::write::{
    CompressionOptions, Encoding, FileWriter, RowGroupIterator, StatisticsOptions, Version,
    WriteOptions,
};
use std::sync::Arc;

/// Writes a Parquet file with one row group per set of columns, in plain encoding.
pub fn write_parquet(names: &[&str], groups: Vec<Vec<Box<dyn Array>>>) -> Vec<u8> {
    let fields = names
        .iter()
        .zip(&groups[0])
        .map(|(name, array)| Field::new((*name).into(), array.dtype().clone(), true));
    let schema: ArrowSchema = fields.map(|field| (field.name.clone(), field)).collect();
    let options = WriteOptions {
        statistics: StatisticsOptions::empty(),
        version: Version::V2,
        compression: CompressionOptions::Snappy,
        data_page_size: None,
    };
    let leaves =
        |array: &dyn Array| vec![Encoding::Plain; polars_parquet::read::n_columns(array.dtype())];
    let encodings: Vec<Vec<Encoding>> = groups[0]
        .iter()
        .map(|array| leaves(array.as_ref()))
        .collect();
    let sizes: Vec<u64> = groups
        .iter()
        .map(|columns| columns[0].len() as u64)
        .collect();
    let batches = groups.into_iter().map(|columns| {
        Ok(RecordBatchT::try_new(columns[0].len(), Arc::new(schema.clone()), columns).unwrap())
    });
    let mut writer = FileWriter::try_new(Vec::new(), schema.clone(), options).unwrap();
    for (rows, group) in sizes
        .iter()
        .zip(RowGroupIterator::try_new(batches, &schema, options, encodings.into()).unwrap())
    {
        writer.write(*rows, group.unwrap()).unwrap();
    }
    writer.end(None).unwrap();
    writer.into_inner()
}
