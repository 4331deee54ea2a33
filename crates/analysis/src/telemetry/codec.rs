//! Writes and reads telemetry.parquet.

use crate::columns::{F64, Text, U32, View, column_of};
use crate::error::TableError;
use llmscen_core::telemetry::{Source, TelemetryRecord, TelemetrySample};
use llmscen_parquet::{FrameReader, decode};
use polars::prelude::{Column, DataFrame, DataType, ParquetWriter};
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

/// Writes the readings of a run as Parquet, compressed with zstd: a frame in long form, one row per reading.
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
    let at: Vec<i64> = rows().map(|(_, reading)| reading.at_ns).collect();
    let mut frame = DataFrame::new(
        at.len(),
        vec![
            column_of::<Text>(
                CASE_ID,
                rows().map(|(recorded, _)| Some(recorded.case.as_str())),
            ),
            column_of::<U32>(ROUND, rows().map(|(recorded, _)| Some(recorded.round))),
            Column::new(AT.into(), at),
            column_of::<Text>(
                SOURCE,
                rows().map(|(_, reading)| Some(reading.source.name())),
            ),
            column_of::<Text>(NAME, rows().map(|(_, reading)| Some(&*reading.name))),
            column_of::<Text>(LABELS, rows().map(|(_, reading)| Some(&*reading.labels))),
            column_of::<U32>(DEVICE, rows().map(|(_, reading)| reading.device)),
            column_of::<F64>(VALUE, rows().map(|(_, reading)| Some(reading.value))),
        ],
    )?;
    let mut bytes = Vec::new();
    ParquetWriter::new(&mut bytes).finish(&mut frame)?;
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
    let mut file = FrameReader::open(Cursor::new(bytes))?;
    let source_name = match file.has(SOURCE) {
        true => SOURCE,
        false => EARLIER_SOURCE,
    };
    let columns = [
        (CASE_ID, DataType::String),
        (ROUND, DataType::UInt32),
        (AT, DataType::Int64),
        (source_name, DataType::String),
        (NAME, DataType::String),
        (LABELS, DataType::String),
        (DEVICE, DataType::UInt32),
        (VALUE, DataType::Float64),
    ];
    for (name, dtype) in &columns {
        file.check(name, dtype)?;
    }
    let (mut rounds, mut texts) = (Rounds::default(), SharedTexts::default());
    let mut before = 0;
    for (group, rows) in file.row_groups().into_iter().enumerate() {
        let mut column = |name| file.column(group, name);
        let case: View<Text> = View::of(&column(CASE_ID)?)?;
        let source: View<Text> = View::of(&column(source_name)?)?;
        let name: View<Text> = View::of(&column(NAME)?)?;
        let labels: View<Text> = View::of(&column(LABELS)?)?;
        let round: View<U32> = View::of(&column(ROUND)?)?;
        let device: View<U32> = View::of(&column(DEVICE)?)?;
        let value: View<F64> = View::of(&column(VALUE)?)?;
        let at = column(AT)?;
        let at = at.i64()?;
        for row in 0..rows {
            let readings = rounds.readings(
                case.get(row).unwrap_or_default(),
                round.get(row).unwrap_or_default(),
            );
            let word = source.get(row).unwrap_or_default();
            let Some(source) = Source::ALL.into_iter().find(|source| source.name() == word) else {
                return Err(TableError::Word {
                    column: source_name.to_owned(),
                    row: before + row,
                    found: word.to_owned(),
                });
            };
            let (Some(at_ns), Some(value)) = (at.get(row), value.get(row)) else {
                continue;
            };
            readings.push(TelemetrySample {
                at_ns,
                source,
                name: texts.share(name.get(row)),
                labels: texts.share(labels.get(row)),
                device: device.get(row),
                value,
            });
        }
        before += rows;
    }
    Ok(rounds.all)
}

/// The readings by case and round, in the order of their first row.
#[derive(Default)]
struct Rounds {
    all: Vec<TelemetryRecord>,
    indexes: BTreeMap<(String, u32), usize>,
}

impl Rounds {
    fn readings(&mut self, case: &str, round: u32) -> &mut Vec<TelemetrySample> {
        // The rows of a round are nearly always consecutive.
        let is_last = self
            .all
            .last()
            .is_some_and(|last| last.case == case && last.round == round);
        let index = if is_last {
            self.all.len() - 1
        } else {
            let next = self.all.len();
            *self.indexes.entry((case.to_owned(), round)).or_insert(next)
        };
        if index == self.all.len() {
            self.all.push(TelemetryRecord {
                case: case.to_owned(),
                round,
                readings: Vec::new(),
            });
        }
        &mut self.all[index].readings
    }
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
