//! Writes and reads telemetry.parquet.

use crate::columns::text_array;
use crate::error::TableError;
use llmscen_core::telemetry::{Source, TelemetryRecord, TelemetrySample};
use llmscen_parquet::{ColumnReader, ColumnWriter, Kind, ParquetError, decode};
use polars_arrow::array::{Array, PrimitiveArray, StaticArray, Utf8ViewArray};
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

const COLUMNS: [(&str, Kind); 8] = [
    (CASE_ID, Kind::Text),
    (ROUND, Kind::U32),
    (AT, Kind::I64),
    (SOURCE, Kind::Text),
    (NAME, Kind::Text),
    (LABELS, Kind::Text),
    (DEVICE, Kind::U32),
    (VALUE, Kind::F64),
];

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
    let column = |index: usize| -> Result<Box<dyn Array>, TableError> {
        Ok(match index {
            0 => text_array(rows().map(|(recorded, _)| Some(recorded.case.as_str()))),
            1 => PrimitiveArray::from_values(rows().map(|(recorded, _)| recorded.round)).boxed(),
            2 => PrimitiveArray::from_values(rows().map(|(_, reading)| reading.at_ns)).boxed(),
            3 => text_array(rows().map(|(_, reading)| Some(reading.source.name()))),
            4 => text_array(rows().map(|(_, reading)| Some(&*reading.name))),
            5 => text_array(rows().map(|(_, reading)| Some(&*reading.labels))),
            6 => rows()
                .map(|(_, reading)| reading.device)
                .collect::<PrimitiveArray<u32>>()
                .boxed(),
            _ => PrimitiveArray::from_values(rows().map(|(_, reading)| reading.value)).boxed(),
        })
    };
    let mut writer = ColumnWriter::new(Vec::new(), COLUMNS)?;
    writer.write(rows().count(), column)?;
    Ok(writer.finish()?)
}

/// Reads a file that [`write()`] wrote, by round in the order of its rows. Unknown columns are skipped.
///
/// # Errors
/// `bytes` are not a Parquet file, lack a column, or have one of another type or an unknown source.
pub fn read(bytes: impl Into<Vec<u8>>) -> Result<Vec<TelemetryRecord>, TableError> {
    decode(|| decode_parquet(bytes.into()))
}

fn decode_parquet(bytes: Vec<u8>) -> Result<Vec<TelemetryRecord>, TableError> {
    let mut file = ColumnReader::open(Cursor::new(bytes))?;
    let source_name = if file.has(SOURCE) {
        SOURCE
    } else {
        EARLIER_SOURCE
    };
    let (mut rounds, mut texts) = (Rounds::default(), SharedTexts::default());
    for (name, kind) in COLUMNS {
        if name != SOURCE {
            file.check(name, kind)?;
        }
    }
    for (group, rows) in file.row_groups().into_iter().enumerate() {
        let mut text = |name: &str| -> Result<Utf8ViewArray, TableError> {
            typed(file.column(group, name, Kind::Text)?)
        };
        let (case, source) = (text(CASE_ID)?, text(source_name)?);
        let (name, labels) = (text(NAME)?, text(LABELS)?);
        let round: PrimitiveArray<u32> = typed(file.column(group, ROUND, Kind::U32)?)?;
        let at: PrimitiveArray<i64> = typed(file.column(group, AT, Kind::I64)?)?;
        let device: PrimitiveArray<u32> = typed(file.column(group, DEVICE, Kind::U32)?)?;
        let value: PrimitiveArray<f64> = typed(file.column(group, VALUE, Kind::F64)?)?;
        for row in 0..rows {
            let readings = rounds.readings(
                case.get(row).unwrap_or_default(),
                round.get(row).unwrap_or_default(),
            );
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
            readings.push(TelemetrySample {
                at_ns,
                source,
                name: texts.share(name.get(row)),
                labels: texts.share(labels.get(row)),
                device: device.get(row),
                value,
            });
        }
    }
    Ok(rounds.all)
}

fn typed<A: Clone + 'static>(column: Box<dyn Array>) -> Result<A, TableError> {
    let array = column.as_any().downcast_ref::<A>().cloned();
    Ok(array.ok_or_else(|| ParquetError::Decoder("a column changed its type".into()))?)
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
