//! histograms.hlog: an HdrHistogram log (version 1.3, V2 compressed histograms) of the latencies over time.
//!
//! A line is one metric of one case in one interval, with the tag `CASE/METRIC`. Values are in nanoseconds; the
//! column of the maximum is in milliseconds, as the tools of HdrHistogram expect.

use hdrhistogram::Histogram;
use hdrhistogram::serialization::V2DeflateSerializer;
use hdrhistogram::serialization::interval_log::{IntervalLogWriterBuilder, Tag};
use llmscen_analysis::{Table, TableError};
use llmscen_core::manifest::Manifest;
use polars::prelude::{AnyValue, Column, PolarsError, PolarsResult};
use std::collections::HashMap;
use std::fmt::{Display, Write as _};
use std::io::Write;
use std::time::{Duration, SystemTime};

/// Name of the file in a run folder.
pub const FILE: &str = "histograms.hlog";

/// The metrics of the log: name in the tag, and column.
const METRICS: [(&str, &str); 4] = [
    ("ttft", "ttft_ms"),
    ("itl", "itl_ms"),
    ("e2e", "e2e_ms"),
    ("tpot", "tpot_ms"),
];
/// Interval length, and that of rounds longer than [`LONG_ROUND`], nanoseconds.
const INTERVALS: [u64; 2] = [1_000_000_000, 10_000_000_000];
const LONG_ROUND: u64 = 600_000_000_000;
/// Maximum value in nanoseconds: one hour. Greater values count as this one.
const MAX_VALUE: u64 = 3_600_000_000_000;
const DIGITS: u8 = 3;

/// Why a log cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// A column cannot be read.
    #[error(transparent)]
    Frame(#[from] TableError),
    /// The log cannot be encoded.
    #[error("the histograms cannot be encoded: {0}")]
    Log(String),
}

impl From<PolarsError> for LogError {
    fn from(error: PolarsError) -> LogError {
        TableError::from(error).into()
    }
}

impl LogError {
    fn new(error: impl Display) -> LogError {
        LogError::Log(error.to_string())
    }
}

/// A successful measured request.
struct LoggedRow<'a> {
    /// Start of its round, in nanoseconds after the start of the run.
    origin: u64,
    case: &'a str,
    /// End, in nanoseconds after the start of its round.
    end: u64,
    /// Index of the row in the table.
    index: usize,
}

/// Writes the log of the measured requests. A request belongs to the interval of its round in which it ended.
///
/// # Errors
/// `out` cannot be written, or the log cannot be encoded.
pub fn write(table: &Table, manifest: &Manifest, out: &mut impl Write) -> Result<(), LogError> {
    let values = |column: &str| table.column(column, 0..table.len());
    let columns: Vec<Column> = METRICS
        .iter()
        .map(|(_, column)| values(column))
        .collect::<Result<_, _>>()?;
    let cases = values("case_id")?;
    let rows = logged_rows(table, &cases, manifest)?;
    let is_long = rows.iter().any(|row| row.end > LONG_ROUND);
    let interval_ns = INTERVALS[usize::from(is_long)];
    let start = SystemTime::UNIX_EPOCH + Duration::from_nanos(manifest.started_unix_ns);
    let mut serializer = V2DeflateSerializer::new();
    let mut log = IntervalLogWriterBuilder::new()
        .add_comment("[Histogram log format version 1.3]")
        .add_comment("[llmscen: values in nanoseconds, Interval_Max in milliseconds]")
        .with_start_time(start)
        .with_base_time(start)
        .with_max_value_divisor(1e6)
        .begin_log_with(out, &mut serializer)
        .map_err(LogError::new)?;
    let mut histogram =
        Histogram::<u64>::new_with_bounds(1, MAX_VALUE, DIGITS).map_err(LogError::new)?;
    let interval_of = |row: &LoggedRow<'_>| row.end / interval_ns;
    for group in rows
        .chunk_by(|a, b| (a.origin, a.case, interval_of(a)) == (b.origin, b.case, interval_of(b)))
    {
        let Some(first) = group.first() else { continue };
        let from = Duration::from_nanos(first.origin + interval_of(first) * interval_ns);
        for ((metric, _), values) in METRICS.iter().zip(&columns) {
            histogram.reset();
            for row in group {
                record(&mut histogram, values.get(row.index)?)?;
            }
            if !histogram.is_empty() {
                let tag = tag(first.case, metric);
                let length = Duration::from_nanos(interval_ns);
                log.write_histogram(&histogram, from, length, Tag::new(&tag))
                    .map_err(LogError::new)?;
            }
        }
    }
    Ok(())
}

/// The successful measured rows by round, case, end and index.
fn logged_rows<'a>(
    table: &Table,
    cases: &'a Column,
    manifest: &Manifest,
) -> Result<Vec<LoggedRow<'a>>, LogError> {
    let values = |column: &str| table.column(column, 0..table.len());
    let (rounds, phases) = (values("round")?, values("phase")?);
    let (outcomes, ends) = (values("outcome")?, values("end_ns")?);
    let origins: HashMap<(&str, u32), u64> = manifest
        .parts
        .iter()
        .map(|part| ((part.case.as_str(), part.round), part.origin_ns))
        .collect();
    let kinds = phases.str()?.iter().zip(outcomes.str()?.iter());
    let keys = cases.str()?.iter().zip(rounds.u32()?.iter());
    let all = keys.zip(kinds).zip(ends.u64()?.iter()).enumerate();
    // A failed request may have gaps too, but they are not part of any metric.
    let successful = all.filter(|(_, ((_, kind), _))| *kind == (Some("measured"), Some("ok")));
    let row = |(index, (((case, round), _), end))| {
        let case: &str = case?;
        Some(LoggedRow {
            origin: *origins.get(&(case, round?))?,
            case,
            end: end?,
            index,
        })
    };
    let mut rows: Vec<LoggedRow<'_>> = successful.filter_map(row).collect();
    rows.sort_by_key(|row| (row.origin, row.case, row.end, row.index));
    Ok(rows)
}

fn record(histogram: &mut Histogram<u64>, value: AnyValue<'_>) -> PolarsResult<()> {
    let mut record = |millis: f64| histogram.saturating_record((millis * 1e6).round() as u64);
    match value {
        AnyValue::Float64(millis) => record(millis),
        AnyValue::List(all) => all.f64()?.into_no_null_iter().for_each(record),
        _ => {}
    }
    Ok(())
}

/// `CASE/METRIC`: a comma becomes `;`, and other characters that a tag cannot have are percent-encoded.
fn tag(case: &str, metric: &str) -> String {
    let mut tag = String::new();
    for letter in case.chars() {
        match letter {
            ',' => tag.push(';'),
            ';' | '%' => _ = write!(tag, "%{:02X}", letter as u32),
            letter if letter.is_whitespace() || letter.is_control() => {
                _ = write!(tag, "%{:02X}", letter as u32)
            }
            letter => tag.push(letter),
        }
    }
    tag + "/" + metric
}

#[cfg(test)]
mod tests;
