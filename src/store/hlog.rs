//! histograms.hlog: an HdrHistogram log (version 1.3, V2 compressed histograms) of what the rows say over time.
//!
//! A line is one metric of one case over one interval, tagged `CASE/METRIC`. Values are whole nanoseconds; the column of the
//! greatest value is in milliseconds, as the tools of HdrHistogram print it.

use hdrhistogram::Histogram;
use hdrhistogram::serialization::V2DeflateSerializer;
use hdrhistogram::serialization::interval_log::{IntervalLogWriterBuilder, Tag};
use llmscen_analysis::cells::{Cell, Values};
use llmscen_analysis::{FrameError, Table};
use llmscen_core::manifest::Manifest;
use std::collections::HashMap;
use std::fmt::{Display, Write as _};
use std::io::Write;
use std::time::{Duration, SystemTime};

/// Name of the file in a run folder.
pub const FILE: &str = "histograms.hlog";

/// The metrics of the log: the name in its tags, and the column.
const METRICS: [(&str, &str); 4] = [("ttft", "ttft_ms"), ("itl", "itl_ms"), ("e2e", "e2e_ms"), ("tpot", "tpot_ms")];
/// An interval, and one where a round lasts longer than [`LONG`]; nanoseconds.
const INTERVALS: [u64; 2] = [1_000_000_000, 10_000_000_000];
const LONG: u64 = 600_000_000_000;
/// The greatest value, nanoseconds: an hour. Greater ones count as this one.
const GREATEST: u64 = 3_600_000_000_000;
const DIGITS: u8 = 3;

/// Why a log cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The table lacks a column.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// Something of the log's own.
    #[error("the histograms cannot be encoded: {0}")]
    Log(String),
}

impl LogError {
    fn of(error: impl Display) -> LogError {
        LogError::Log(error.to_string())
    }
}

/// A row of the log's interest: it was measured.
struct Ended<'a> {
    /// Start of its round, in nanoseconds after the run's.
    origin: u64,
    case: &'a str,
    /// The interval in which it ended, from 0.
    interval: u64,
    row: usize,
}

/// Writes the log of the measured requests, each in the interval of its round in which it ended.
///
/// # Errors
/// `out` cannot be written, or memory ends.
pub fn write(table: &Table, manifest: &Manifest, out: &mut impl Write) -> Result<(), LogError> {
    let values = |column: &str| table.values(column, 0..table.len());
    let columns: Vec<Values> = METRICS.iter().map(|(_, column)| values(column)).collect::<Result<_, _>>()?;
    let cases = values("case_id")?;
    let (ended, interval) = ended(table, &cases, manifest)?;
    let start = SystemTime::UNIX_EPOCH + Duration::from_nanos(manifest.started_unix_ns);
    let mut serializer = V2DeflateSerializer::new();
    let mut log = IntervalLogWriterBuilder::new()
        .add_comment("[Histogram log format version 1.3]")
        .add_comment("[llmscen: values in nanoseconds, Interval_Max in milliseconds]")
        .with_start_time(start)
        .with_base_time(start)
        .with_max_value_divisor(1e6)
        .begin_log_with(out, &mut serializer)
        .map_err(LogError::of)?;
    let mut histogram = Histogram::<u64>::new_with_bounds(1, GREATEST, DIGITS).map_err(LogError::of)?;
    for together in ended.chunk_by(|a, b| (a.origin, a.case, a.interval) == (b.origin, b.case, b.interval)) {
        let Some(first) = together.first() else { continue };
        let from = Duration::from_nanos(first.origin + first.interval * interval);
        for ((metric, _), values) in METRICS.iter().zip(&columns) {
            histogram.reset();
            together.iter().for_each(|one| record(&mut histogram, values.get(one.row)));
            if !histogram.is_empty() {
                let tag = tag(first.case, metric);
                log.write_histogram(&histogram, from, Duration::from_nanos(interval), Tag::new(&tag)).map_err(LogError::of)?;
            }
        }
    }
    Ok(())
}

/// The measured rows, by round, case and interval, and how long an interval is.
fn ended<'a>(table: &Table, cases: &'a Values, manifest: &Manifest) -> Result<(Vec<Ended<'a>>, u64), LogError> {
    let [rounds, phases, outcomes, ends] =
        ["round", "phase", "outcome", "end_ns"].map(|column| table.values(column, 0..table.len()));
    let (rounds, phases, outcomes, ends) = (rounds?, phases?, outcomes?, ends?);
    let origins: HashMap<(&str, u64), u64> =
        manifest.parts.iter().map(|part| ((part.case.as_str(), part.round.into()), part.origin_ns)).collect();
    let row = |row: usize| match (cases.get(row), rounds.get(row), phases.get(row), outcomes.get(row), ends.get(row)) {
        // A request that failed has gaps between its tokens, too; they are no part of any figure.
        (Cell::Text(case), Cell::Whole(round), Cell::Text("measured"), Cell::Text("ok"), Cell::Whole(end)) => {
            Some(Ended { origin: *origins.get(&(case, round))?, case, interval: end, row })
        }
        _ => None,
    };
    let mut ended: Vec<Ended<'_>> = (0..table.len()).filter_map(row).collect();
    let long = ended.iter().any(|one| one.interval > LONG);
    let interval = INTERVALS[usize::from(long)];
    ended.iter_mut().for_each(|one| one.interval /= interval);
    ended.sort_by_key(|one| (one.origin, one.case, one.interval, one.row));
    Ok((ended, interval))
}

fn record(histogram: &mut Histogram<u64>, cell: Cell<'_>) {
    let nanos = |millis: f64| (millis * 1e6).round() as u64;
    match cell {
        Cell::Real(millis) => histogram.saturating_record(nanos(millis)),
        Cell::Reals(all) => all.iter().for_each(|millis| histogram.saturating_record(nanos(*millis))),
        _ => {}
    }
}

/// `CASE/METRIC`, where a comma of the case is `;`, and what else a tag must not hold, or would be mistaken, is `%` and hex.
fn tag(case: &str, metric: &str) -> String {
    let mut tag = String::new();
    for letter in case.chars() {
        match letter {
            ',' => tag.push(';'),
            ';' | '%' => _ = write!(tag, "%{:02X}", letter as u32),
            letter if letter.is_whitespace() || letter.is_control() => _ = write!(tag, "%{:02X}", letter as u32),
            letter => tag.push(letter),
        }
    }
    tag + "/" + metric
}

#[cfg(test)]
mod tests;
