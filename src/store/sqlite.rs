//! requests.db: the rows, results and stored bodies of a run as an SQLite database.
//!
//! A temporary file is filled in one transaction and then renamed, so that the database is complete or absent. The
//! same input gives the same bytes. No other module uses SQLite.

pub mod schema;
pub mod stored_bodies;
#[cfg(test)]
mod tests;

use crate::store::atomic::replace_by;
use crate::store::bodies::{Extent, SpooledBodies, spool};
use crate::store::error::StoreError;
use crate::store::rundir::{DATABASE, RunDir};
use llmscen_analysis::{Table, TableError};
use llmscen_core::artifacts::Bodies;
use llmscen_core::plan::Plan;
use llmscen_core::report::{CaseReport, Report};
use polars::prelude::{AnyValue, Column, DataType, PolarsResult, Series};
use rusqlite::types::Value;
use rusqlite::{Connection, OpenFlags, Row, Statement, ToSql, params, params_from_iter};
use std::fmt::{Display, Write};
use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// `PRAGMA application_id`: `LLMS`.
const APPLICATION_ID: i32 = 0x4C4C_4D53;

/// The content of the database.
pub struct Content<'a> {
    /// The plan.
    pub plan: &'a Plan,
    /// The rows.
    pub table: &'a Table,
    /// The report.
    pub report: &'a Report,
}

/// Why a database cannot be written or read.
#[derive(Debug, thiserror::Error)]
enum DatabaseError {
    #[error(transparent)]
    Sqlite(#[from] rusqlite::Error),
    #[error(transparent)]
    Frame(#[from] TableError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("it has version {0}, this llmscen reads version {version}; move it away, or use the \
    llmscen that wrote it", version = schema::VERSION)]
    Version(i32),
}

impl DatabaseError {
    fn with_path(self, path: &Path) -> StoreError {
        let path = path.to_owned();
        match self {
            DatabaseError::Store(error) => error,
            DatabaseError::Io(source) => StoreError::Write { path, source },
            other => StoreError::Database {
                path,
                reason: other.to_string(),
            },
        }
    }
}

/// Writes the database of a run. Bodies come from the spool, or from the existing database.
///
/// # Errors
/// It cannot be written, or the bodies cannot be read.
pub fn write(run: &RunDir, content: &Content<'_>) -> Result<(), StoreError> {
    let path = run.file(DATABASE);
    replace_by(&path, |temporary| fill(temporary, run, content))
        .map_err(|error| error.with_path(&path))?;
    run.list_file(DATABASE)
}

/// Removes the database of a run, if there is one.
///
/// # Errors
/// It cannot be removed.
pub fn remove(run: &RunDir) -> Result<(), StoreError> {
    run.unlist_file(DATABASE)?;
    run.remove(DATABASE)
}

/// Whether the run has a database with bodies.
///
/// # Errors
/// It cannot be read.
pub fn holds_bodies(run: &RunDir) -> Result<bool, StoreError> {
    let path = run.file(DATABASE);
    run.check_file(DATABASE)?;
    let count = || -> Result<i64, DatabaseError> {
        Ok(open(&path)?.query_row("SELECT count(*) FROM bodies", [], |row| row.get(0))?)
    };
    count()
        .map(|count| count > 0)
        .map_err(|error| error.with_path(&path))
}

/// Opens an existing database for reading.
fn open(path: &Path) -> Result<Connection, DatabaseError> {
    let connection = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
    match connection.pragma_query_value(None, "user_version", |row| row.get(0))? {
        1..=schema::VERSION => Ok(connection),
        found => Err(DatabaseError::Version(found)),
    }
}

fn fill(path: &Path, run: &RunDir, content: &Content<'_>) -> Result<(), DatabaseError> {
    if content.plan.report.bodies != Bodies::None || run.file(spool::FILE).exists() {
        // Only the user may read prompts and replies.
        OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(path)?;
    }
    let mut connection = Connection::open(path)?;
    // The complete file is synced and renamed. It is not read before that, and after a crash it is not used.
    connection.execute_batch(
        "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; PRAGMA locking_mode = EXCLUSIVE;",
    )?;
    let transaction = connection.transaction()?;
    transaction.pragma_update(None, "user_version", schema::VERSION)?;
    transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
    transaction.execute_batch(&schema::tables())?;
    write_run(&transaction, content)?;
    write_cases(&transaction, content.report)?;
    write_rows(&transaction, content.table)?;
    write_bodies(&transaction, run)?;
    transaction.execute_batch(schema::INDICES)?;
    transaction.commit()?;
    connection.close().map_err(|(_, error)| error)?;
    Ok(run.unlist_file(DATABASE)?)
}

/// A number as SQLite stores it; None for numbers beyond its range.
fn to_integer(number: u64) -> Option<i64> {
    i64::try_from(number).ok()
}

fn write_run(connection: &Connection, content: &Content<'_>) -> Result<(), DatabaseError> {
    let (report, manifest) = (content.report, &content.report.manifest);
    let verdict = serde_json::to_value(report.verdict)?;
    let values = params![
        manifest.run_id,
        manifest.name,
        report.description,
        manifest.tool_version,
        manifest.plan_id,
        manifest.seed.to_string(),
        manifest.started_at,
        to_integer(manifest.started_unix_ns),
        manifest.elapsed_s,
        manifest.interrupted,
        manifest.error,
        verdict.as_str(),
        report.exit_code,
        serde_json::to_string(manifest)?,
        content.plan.resolved,
    ];
    connection
        .prepare(&schema::insert("runs", values.len()))?
        .execute(values)?;
    let mut parts = connection.prepare(&schema::insert("parts", 6))?;
    for part in &manifest.parts {
        let (from, until) = (
            to_integer(part.measured_from_ns),
            part.sending_until_ns.and_then(to_integer),
        );
        parts.execute(params![
            part.case,
            part.round,
            to_integer(part.origin_ns),
            from,
            until,
            part.cut_short
        ])?;
    }
    Ok(())
}

fn write_cases(connection: &Connection, report: &Report) -> Result<(), DatabaseError> {
    for (position, case) in report.cases.iter().enumerate() {
        write_case(connection, position, case)?;
        write_figures(connection, case)?;
        write_verdicts(connection, case)?;
    }
    Ok(())
}

fn write_case(
    connection: &Connection,
    position: usize,
    case: &CaseReport,
) -> Result<(), DatabaseError> {
    let counts = &case.counts;
    let labels: serde_json::Map<_, _> = case
        .labels
        .0
        .iter()
        .map(|(path, value)| Ok((path.clone(), serde_json::to_value(value)?)))
        .collect::<Result<_, DatabaseError>>()?;
    let values: &[&dyn ToSql] = params![
        case.id,
        position as i64,
        case.is_stage(),
        serde_json::to_string(&labels)?,
        case.load,
        case.load_value,
        case.load_axis,
        case.rounds,
        to_integer(counts.scheduled),
        to_integer(counts.ok),
        to_integer(counts.failed),
        to_integer(counts.abandoned),
        to_integer(counts.dropped),
        to_integer(counts.warmup),
        to_integer(counts.cooldown),
        case.audit.valid,
        serde_json::to_string(&case.audit)?,
        serde_json::to_string(&case.notes)?,
    ];
    connection
        .prepare_cached(&schema::insert("cases", values.len()))?
        .execute(values)?;
    Ok(())
}

fn write_figures(connection: &Connection, case: &CaseReport) -> Result<(), DatabaseError> {
    let mut figures = connection.prepare_cached(&schema::insert("figures", 3))?;
    for (metric, value) in &case.scalars {
        figures.execute(params![case.id, metric.column(), value])?;
    }
    for (metric, distribution) in &case.distributions {
        let head: [Value; 3] = [
            case.id.clone().into(),
            metric.column().to_owned().into(),
            to_integer(distribution.n).into(),
        ];
        let spread: [Value; 3] = [
            distribution.mean.into(),
            distribution.sd.into(),
            distribution.min.into(),
        ];
        let quantiles = distribution
            .quantiles
            .iter()
            .map(|value| Value::from(*value));
        let values: Vec<Value> = head
            .into_iter()
            .chain(spread)
            .chain(quantiles)
            .chain([distribution.max.into()])
            .collect();
        connection
            .prepare_cached(&schema::insert("distributions", values.len()))?
            .execute(params_from_iter(values))?;
    }
    Ok(())
}

fn write_verdicts(connection: &Connection, case: &CaseReport) -> Result<(), DatabaseError> {
    let mut slo = connection.prepare_cached(&schema::insert("slo", 10))?;
    for (position, verdict) in case.verdicts.iter().enumerate() {
        slo.execute(params![
            case.id,
            position as i64,
            verdict.check.expr,
            verdict.ruling.name(),
            verdict.check.limit,
            verdict.observed,
            verdict.bound,
            to_integer(verdict.n),
            verdict.need.and_then(to_integer),
            verdict.note,
        ])?;
    }
    Ok(())
}

fn write_rows(connection: &Connection, table: &Table) -> Result<(), DatabaseError> {
    let columns = schema::requests();
    let mut statement = connection.prepare(&schema::insert("requests", columns.len()))?;
    let mut text = String::new();
    for rows in table.batches() {
        let values = columns
            .iter()
            .map(|column| table.column(&column.source, rows.clone()));
        let values: Vec<Column> = values.collect::<Result<_, _>>()?;
        for row in 0..rows.len() {
            for (index, (column, values)) in columns.iter().zip(&values).enumerate() {
                let value = values.get(row).map_err(TableError::from)?;
                bind(&mut statement, index + 1, value, column.is_gaps, &mut text)?;
            }
            statement.raw_execute()?;
        }
    }
    Ok(())
}

/// Binds a value. Lists become JSON text, or null if empty; timestamps become gaps where `is_gaps`.
fn bind(
    statement: &mut Statement<'_>,
    index: usize,
    value: AnyValue<'_>,
    is_gaps: bool,
    text: &mut String,
) -> Result<(), DatabaseError> {
    match value {
        AnyValue::String(word) => statement.raw_bind_parameter(index, word)?,
        AnyValue::StringOwned(word) => statement.raw_bind_parameter(index, word.as_str())?,
        AnyValue::Boolean(flag) => statement.raw_bind_parameter(index, flag)?,
        AnyValue::UInt32(number) => statement.raw_bind_parameter(index, number)?,
        AnyValue::UInt64(number) => statement.raw_bind_parameter(index, to_integer(number))?,
        AnyValue::Float64(number) => statement.raw_bind_parameter(index, number)?,
        AnyValue::List(list) if !list.is_empty() => {
            let json = list_to_json(&list, is_gaps, text).map_err(TableError::from)?;
            statement.raw_bind_parameter(index, json)?;
        }
        _ => statement.raw_bind_parameter(index, None::<i64>)?,
    }
    Ok(())
}

fn list_to_json<'t>(list: &Series, is_gaps: bool, text: &'t mut String) -> PolarsResult<&'t str> {
    Ok(match list.dtype() {
        DataType::UInt32 => json(text, list.u32()?.into_no_null_iter()),
        DataType::UInt64 if is_gaps => json(text, gaps(list.u64()?.cont_slice()?)),
        DataType::UInt64 => json(text, list.u64()?.into_no_null_iter()),
        _ => json(text, list.f64()?.into_no_null_iter()),
    })
}

fn gaps(timestamps: &[u64]) -> impl Iterator<Item = i128> {
    timestamps
        .windows(2)
        .filter_map(|pair| Some(i128::from(*pair.last()?) - i128::from(*pair.first()?)))
}

/// A list of finite numbers as JSON.
fn json(text: &mut String, list: impl Iterator<Item = impl Display>) -> &str {
    text.clear();
    for number in list {
        text.push(if text.is_empty() { '[' } else { ',' });
        // Writing to a string cannot fail.
        let _ = write!(text, "{number}");
    }
    text.push_str(if text.is_empty() { "[]" } else { "]" });
    text
}

/// Bodies whose row was lost in a crash are left out.
const INSERT_BODIES: &str = "INSERT INTO bodies SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10
    WHERE EXISTS (SELECT 1 FROM requests WHERE case_id = ?1 AND round = ?2 AND seq = ?3 AND turn = ?4)";
const BODY_COLUMNS: usize = 10;

fn write_bodies(connection: &Connection, run: &RunDir) -> Result<(), DatabaseError> {
    let mut insert = connection.prepare(INSERT_BODIES)?;
    let spool = run.file(spool::FILE);
    if spool.exists() {
        return write_spooled_bodies(&mut insert, SpooledBodies::open(&spool)?);
    }
    let earlier = run.file(DATABASE);
    if earlier.exists() {
        run.check_file(DATABASE)?;
        let earlier = open(&earlier)?;
        let mut bodies = earlier.prepare("SELECT * FROM bodies ORDER BY rowid")?;
        let mut rows = bodies.query([])?;
        while let Some(row) = rows.next()? {
            insert.execute(params_from_iter(body_columns(row)?))?;
        }
    }
    Ok(())
}

fn write_spooled_bodies(
    insert: &mut Statement<'_>,
    bodies: SpooledBodies,
) -> Result<(), DatabaseError> {
    bodies.for_each(|head, packed| {
        let response = head.response.map(|_| &packed.response);
        let size = |extent: Extent| to_integer(extent.length);
        insert.execute(params![
            head.case,
            head.round,
            to_integer(head.seq),
            head.turn,
            packed.request,
            size(head.request),
            head.request.cut,
            response,
            head.response.and_then(size),
            head.response.map(|extent| extent.cut),
        ])?;
        Ok(())
    })
}

fn body_columns(row: &Row<'_>) -> rusqlite::Result<Vec<Value>> {
    (0..BODY_COLUMNS).map(|column| row.get(column)).collect()
}
