//! The readings as a file: telemetry.parquet.

use crate::error::FrameError;
use llmscen_core::telemetry::{Reading, Recorded, Source};
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

/// The readings of a run as Parquet, compressed with zstd; its few words are stored once, as a dictionary.
///
/// # Errors
/// Only where the table engine refuses, out of memory for one.
pub fn write(recorded: &[Recorded]) -> Result<Vec<u8>, FrameError> {
    let rows = || recorded.iter().flat_map(|own| own.readings.iter().map(move |reading| (own, reading)));
    let words = |name: &str, get: fn((&Recorded, &Reading)) -> String| {
        StringChunked::from_iter_values(name.into(), rows().map(get)).into_column()
    };
    let columns = vec![
        words(CASE_ID, |(own, _)| own.case.clone()),
        UInt32Chunked::from_iter_values(ROUND.into(), rows().map(|(own, _)| own.round)).into_column(),
        Int64Chunked::from_iter_values(AT.into(), rows().map(|(_, reading)| reading.at_ns)).into_column(),
        words(SOURCE, |(_, reading)| reading.source.name().to_owned()),
        words(NAME, |(_, reading)| reading.name.to_string()),
        words(LABELS, |(_, reading)| reading.labels.to_string()),
        UInt32Chunked::from_iter_options(DEVICE.into(), rows().map(|(_, reading)| reading.device)).into_column(),
        Float64Chunked::from_iter_values(VALUE.into(), rows().map(|(_, reading)| reading.value)).into_column(),
    ];
    let mut frame = DataFrame::new(rows().count(), columns)?;
    let mut bytes = Vec::new();
    ParquetWriter::new(&mut bytes).with_compression(ParquetCompression::Zstd(None)).finish(&mut frame)?;
    Ok(bytes)
}

/// The readings of a file that [`write()`] wrote, round by round in the order of its rows. Further columns are left out.
///
/// # Errors
/// Where `bytes` are no Parquet file, or it lacks a column, has one of another type, or an unknown source.
pub fn read(bytes: impl Into<Vec<u8>>) -> Result<Vec<Recorded>, FrameError> {
    decode(|| decoded(bytes.into()))
}

fn decoded(bytes: Vec<u8>) -> Result<Vec<Recorded>, FrameError> {
    let mut frame = ParquetReader::new(Cursor::new(bytes)).set_rechunk(true).finish()?;
    frame.rechunk_mut();
    let (case, round, at) = (frame.column(CASE_ID)?.str()?, frame.column(ROUND)?.u32()?, frame.column(AT)?.i64()?);
    let source = frame.column(SOURCE).or_else(|error| frame.column(EARLIER_SOURCE).map_err(|_| error))?.str()?;
    let (name, labels) = (frame.column(NAME)?.str()?, frame.column(LABELS)?.str()?);
    let (device, value) = (frame.column(DEVICE)?.u32()?, frame.column(VALUE)?.f64()?);
    let mut words = Words::default();
    let mut places: BTreeMap<(String, u32), usize> = BTreeMap::new();
    let mut all: Vec<Recorded> = Vec::new();
    for row in 0..frame.height() {
        let own = (case.get(row).unwrap_or_default(), round.get(row).unwrap_or_default());
        // Rows of one round stand together, so the last one is nearly always the one.
        let last = all.last().is_some_and(|last| (last.case.as_str(), last.round) == own);
        let place = if last { all.len() - 1 } else { *places.entry((own.0.to_owned(), own.1)).or_insert(all.len()) };
        if place == all.len() {
            all.push(Recorded { case: own.0.to_owned(), round: own.1, readings: Vec::new() });
        }
        let word = source.get(row).unwrap_or_default();
        let Some(source) = Source::ALL.into_iter().find(|source| source.name() == word) else {
            return Err(FrameError::Word { column: SOURCE, row, found: word.to_owned() });
        };
        let (Some(at_ns), Some(value)) = (at.get(row), value.get(row)) else { continue };
        let (name, labels) = (words.once(name.get(row)), words.once(labels.get(row)));
        if let Some(round) = all.get_mut(place) {
            round.readings.push(Reading { at_ns, source, name, labels, device: device.get(row), value });
        }
    }
    Ok(all)
}

/// Every word once, however often it is read.
#[derive(Default)]
struct Words(HashSet<Arc<str>>);

impl Words {
    fn once(&mut self, word: Option<&str>) -> Arc<str> {
        let word = word.unwrap_or_default();
        if let Some(known) = self.0.get(word) {
            return known.clone();
        }
        let new: Arc<str> = word.into();
        self.0.insert(new.clone());
        new
    }
}
