//! Writes and reads telemetry.parquet.

use crate::error::TableError;
use llmscen_core::telemetry::{Source, TelemetryRecord, TelemetrySample};
use llmscen_parquet::decode;
use polars::prelude::*;
use std::collections::{BTreeMap, HashSet};
use std::io::Cursor;
use std::sync::Arc;

const CASE_ID: &str = "case_id";
const ROUND: &str = "round";
const AT: &str = "at_ns";
const SOURCE: &str = "source";
/// The name of the column `source` in files of earlier versions.
const EARLIER_SOURCE: &str = "teller";
const NAME: &str = "name";
const LABELS: &str = "labels";
const DEVICE: &str = "device";
const VALUE: &str = "value";

/// Writes the readings of a run as Parquet, compressed with zstd.
///
/// # Errors
/// Only those of the Parquet encoder, such as out of memory.
pub fn write(recorded: &[TelemetryRecord]) -> Result<Vec<u8>, TableError> {
    let rows = || {
        recorded.iter().flat_map(|recorded| {
            recorded
                .readings
                .iter()
                .map(move |reading| (recorded, reading))
        })
    };
    let texts = |name: &str, get: fn((&TelemetryRecord, &TelemetrySample)) -> String| {
        StringChunked::from_iter_values(name.into(), rows().map(get)).into_column()
    };
    let columns = vec![
        texts(CASE_ID, |(recorded, _)| recorded.case.clone()),
        UInt32Chunked::from_iter_values(ROUND.into(), rows().map(|(recorded, _)| recorded.round))
            .into_column(),
        Int64Chunked::from_iter_values(AT.into(), rows().map(|(_, reading)| reading.at_ns))
            .into_column(),
        texts(SOURCE, |(_, reading)| reading.source.name().to_owned()),
        texts(NAME, |(_, reading)| reading.name.to_string()),
        texts(LABELS, |(_, reading)| reading.labels.to_string()),
        UInt32Chunked::from_iter_options(DEVICE.into(), rows().map(|(_, reading)| reading.device))
            .into_column(),
        Float64Chunked::from_iter_values(VALUE.into(), rows().map(|(_, reading)| reading.value))
            .into_column(),
    ];
    let mut frame = DataFrame::new(rows().count(), columns)?;
    let mut bytes = Vec::new();
    ParquetWriter::new(&mut bytes)
        .with_compression(ParquetCompression::Zstd(None))
        .finish(&mut frame)?;
    Ok(bytes)
}

/// Reads a file that [`write()`] wrote, by round in the order of its rows. Unknown columns are skipped.
///
/// # Errors
/// `bytes` are not a Parquet file, lack a column, or have one of another type or an unknown source.
pub fn read(bytes: impl Into<Vec<u8>>) -> Result<Vec<TelemetryRecord>, TableError> {
    decode(|| decode_parquet(bytes.into()))
}

fn decode_parquet(bytes: Vec<u8>) -> Result<Vec<TelemetryRecord>, TableError> {
    let mut frame = ParquetReader::new(Cursor::new(bytes))
        .set_rechunk(true)
        .finish()?;
    frame.rechunk_mut();
    let case = frame.column(CASE_ID)?.str()?;
    let round = frame.column(ROUND)?.u32()?;
    let at = frame.column(AT)?.i64()?;
    let source = frame
        .column(SOURCE)
        .or_else(|error| frame.column(EARLIER_SOURCE).map_err(|_| error))?
        .str()?;
    let name = frame.column(NAME)?.str()?;
    let labels = frame.column(LABELS)?.str()?;
    let device = frame.column(DEVICE)?.u32()?;
    let value = frame.column(VALUE)?.f64()?;
    let mut texts = SharedTexts::default();
    let mut indexes: BTreeMap<(String, u32), usize> = BTreeMap::new();
    let mut all: Vec<TelemetryRecord> = Vec::new();
    for row in 0..frame.height() {
        let key = (
            case.get(row).unwrap_or_default(),
            round.get(row).unwrap_or_default(),
        );
        // The rows of a round are nearly always consecutive.
        let is_last = all
            .last()
            .is_some_and(|last| (last.case.as_str(), last.round) == key);
        let index = if is_last {
            all.len() - 1
        } else {
            *indexes
                .entry((key.0.to_owned(), key.1))
                .or_insert(all.len())
        };
        if index == all.len() {
            all.push(TelemetryRecord {
                case: key.0.to_owned(),
                round: key.1,
                readings: Vec::new(),
            });
        }
        let word = source.get(row).unwrap_or_default();
        let Some(source) = Source::ALL.into_iter().find(|source| source.name() == word) else {
            return Err(TableError::Word {
                column: SOURCE,
                row,
                found: word.to_owned(),
            });
        };
        let (Some(at_ns), Some(value)) = (at.get(row), value.get(row)) else {
            continue;
        };
        let (name, labels) = (texts.share(name.get(row)), texts.share(labels.get(row)));
        if let Some(round) = all.get_mut(index) {
            round.readings.push(TelemetrySample {
                at_ns,
                source,
                name,
                labels,
                device: device.get(row),
                value,
            });
        }
    }
    Ok(all)
}

/// Stores each text once.
#[derive(Default)]
struct SharedTexts(HashSet<Arc<str>>);

impl SharedTexts {
    fn share(&mut self, text: Option<&str>) -> Arc<str> {
        let text = text.unwrap_or_default();
        if let Some(known) = self.0.get(text) {
            return known.clone();
        }
        let new: Arc<str> = text.into();
        self.0.insert(new.clone());
        new
    }
}
