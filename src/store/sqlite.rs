//! requests.db: the rows of a run, what is said about them, and the bodies where they are kept, as an SQLite database.
//!
//! It is made beside its place in one transaction and then renamed there, so that it is whole or not there at all. The same
//! input gives the same bytes. This is the only door to SQLite.

pub mod schema;
mod stored_bodies;
#[cfg(test)]
mod tests;

use crate::store::atomic::replace_by;
use crate::store::bodies::{Extent, Kept, spool};
use crate::store::error::StoreError;
use crate::store::rundir::RunDir;
pub use crate::store::sqlite::stored_bodies::{BodyFilter, StoredBodies, StoredBody, stored_bodies};
use llmscen_analysis::cells::{Cell, Values};
use llmscen_analysis::{FrameError, Table};
use llmscen_core::artifacts::Bodies;
use llmscen_core::plan::Plan;
use llmscen_core::report::{CaseReport, Report};
use rusqlite::types::Value;
use rusqlite::{Connection, OpenFlags, Row, Statement, ToSql, params, params_from_iter};
use std::fmt::{Display, Write};
use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Name of the file in a run folder.
pub const FILE: &str = "requests.db";

/// Marks the file as this program's (`PRAGMA application_id`): `LLMS`.
const APPLICATION: i32 = 0x4C4C_4D53;

/// What the database is made of.
pub struct Content<'a> {
    /// The plan.
    pub plan: &'a Plan,
    /// The rows.
    pub table: &'a Table,
    /// What is said of them.
    pub report: &'a Report,
}

/// Why a database cannot be written or read.
#[derive(Debug, thiserror::Error)]
enum Trouble {
    #[error(transparent)]
    Sqlite(#[from] rusqlite::Error),
    #[error(transparent)]
    Frame(#[from] FrameError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("it is of version {0}, and this llmscen reads version {version}; move it away, or use the llmscen that wrote it", version = schema::VERSION)]
    Version(i32),
}

impl Trouble {
    fn at(self, path: &Path) -> StoreError {
        let path = path.to_owned();
        match self {
            Trouble::Store(error) => error,
            Trouble::Io(source) => StoreError::Write { path, source },
            other => StoreError::Database { path, reason: other.to_string() },
        }
    }
}

/// Writes the database of a run. Bodies are taken from the spool, or from the database that is there.
///
/// # Errors
/// It cannot be written, or the bodies cannot be read.
pub fn write(run: &RunDir, content: &Content<'_>) -> Result<(), StoreError> {
    let path = run.file(FILE);
    replace_by(&path, |part| make(part, run, content)).map_err(|trouble| trouble.at(&path))?;
    run.enlist(FILE, true)
}

/// Removes the database of a run, if there is one.
///
/// # Errors
/// It cannot be removed.
pub fn remove(run: &RunDir) -> Result<(), StoreError> {
    run.enlist(FILE, false)?;
    run.remove(FILE)
}

/// Whether the run has a database with bodies in it.
///
/// # Errors
/// It cannot be read.
pub fn holds_bodies(run: &RunDir) -> Result<bool, StoreError> {
    let path = run.file(FILE);
    run.check_file(FILE)?;
    let count = || -> Result<i64, Trouble> { Ok(open(&path)?.query_row("SELECT count(*) FROM bodies", [], |row| row.get(0))?) };
    count().map(|count| count > 0).map_err(|trouble| trouble.at(&path))
}

/// An earlier database, to be read.
fn open(path: &Path) -> Result<Connection, Trouble> {
    let own = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
    match own.pragma_query_value(None, "user_version", |row| row.get(0))? {
        schema::VERSION => Ok(own),
        other => Err(Trouble::Version(other)),
    }
}

fn make(part: &Path, run: &RunDir, content: &Content<'_>) -> Result<(), Trouble> {
    if content.plan.report.bodies != Bodies::None || run.file(spool::FILE).exists() {
        // Prompts and replies are for the user alone.
        OpenOptions::new().write(true).create_new(true).mode(0o600).open(part)?;
    }
    let mut own = Connection::open(part)?;
    // It is synced and renamed when it is whole: until then nobody reads it, and a crash leaves nothing to repair.
    own.execute_batch("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; PRAGMA locking_mode = EXCLUSIVE;")?;
    let all = own.transaction()?;
    all.pragma_update(None, "user_version", schema::VERSION)?;
    all.pragma_update(None, "application_id", APPLICATION)?;
    all.execute_batch(&schema::tables())?;
    write_run(&all, content)?;
    write_cases(&all, content.report)?;
    write_rows(&all, content.table)?;
    write_bodies(&all, run)?;
    all.execute_batch(schema::INDICES)?;
    all.commit()?;
    own.close().map_err(|(_, error)| error)?;
    Ok(run.enlist(FILE, false)?)
}

/// A number as SQLite has them; None for one that is greater than any server means.
fn whole(number: u64) -> Option<i64> {
    i64::try_from(number).ok()
}

/// Writes the run and its parts.
fn write_run(own: &Connection, content: &Content<'_>) -> Result<(), Trouble> {
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
        whole(manifest.started_unix_ns),
        manifest.elapsed_s,
        manifest.interrupted,
        manifest.error,
        verdict.as_str(),
        report.exit_code,
        serde_json::to_string(manifest)?,
        content.plan.resolved,
    ];
    own.prepare(&schema::insert("runs", values.len()))?.execute(values)?;
    let mut parts = own.prepare(&schema::insert("parts", 6))?;
    for part in &manifest.parts {
        let (from, until) = (whole(part.measured_from_ns), part.sending_until_ns.and_then(whole));
        parts.execute(params![part.case, part.round, whole(part.origin_ns), from, until, part.cut_short])?;
    }
    Ok(())
}

/// Writes the cases.
fn write_cases(own: &Connection, report: &Report) -> Result<(), Trouble> {
    for (position, case) in report.cases.iter().enumerate() {
        self::write_case(own, position, case)?;
        write_figures(own, case)?;
        write_verdicts(own, case)?;
    }
    Ok(())
}

fn write_case(own: &Connection, position: usize, case: &CaseReport) -> Result<(), Trouble> {
    let counts = &case.counts;
    let labels: serde_json::Map<_, _> = case
        .labels
        .0
        .iter()
        .map(|(path, value)| Ok((path.clone(), serde_json::to_value(value)?)))
        .collect::<Result<_, Trouble>>()?;
    let values: &[&dyn ToSql] = params![
        case.id,
        position as i64,
        case.is_stage(),
        serde_json::to_string(&labels)?,
        case.load,
        case.load_value,
        case.load_axis,
        case.rounds,
        whole(counts.scheduled),
        whole(counts.ok),
        whole(counts.failed),
        whole(counts.abandoned),
        whole(counts.dropped),
        whole(counts.warmup),
        case.audit.valid,
        serde_json::to_string(&case.audit)?,
        serde_json::to_string(&case.notes)?,
    ];
    own.prepare_cached(&schema::insert("cases", values.len()))?.execute(values)?;
    Ok(())
}

fn write_figures(own: &Connection, case: &CaseReport) -> Result<(), Trouble> {
    let mut figures = own.prepare_cached(&schema::insert("figures", 3))?;
    for (metric, value) in &case.scalars {
        figures.execute(params![case.id, metric.column(), value])?;
    }
    for (metric, own_figures) in &case.distributions {
        let head: [Value; 3] = [case.id.clone().into(), metric.column().to_owned().into(), whole(own_figures.n).into()];
        let spread: [Value; 3] = [own_figures.mean.into(), own_figures.sd.into(), own_figures.min.into()];
        let quantiles = own_figures.quantiles.iter().map(|value| Value::from(*value));
        let values: Vec<Value> = head.into_iter().chain(spread).chain(quantiles).chain([own_figures.max.into()]).collect();
        own.prepare_cached(&schema::insert("distributions", values.len()))?.execute(params_from_iter(values))?;
    }
    Ok(())
}

fn write_verdicts(own: &Connection, case: &CaseReport) -> Result<(), Trouble> {
    let mut slo = own.prepare_cached(&schema::insert("slo", 10))?;
    for (position, verdict) in case.verdicts.iter().enumerate() {
        slo.execute(params![
            case.id,
            position as i64,
            verdict.check.expr,
            verdict.ruling.name(),
            verdict.check.limit,
            verdict.observed,
            verdict.bound,
            whole(verdict.n),
            verdict.need.and_then(whole),
            verdict.note,
        ])?;
    }
    Ok(())
}

/// Writes all rows.
fn write_rows(own: &Connection, table: &Table) -> Result<(), Trouble> {
    let columns = schema::requests();
    let mut statement = own.prepare(&schema::insert("requests", columns.len()))?;
    let mut text = String::new();
    for rows in table.batches() {
        let values: Vec<(Values, bool)> = columns
            .iter()
            .map(|column| Ok((table.values(column.source, rows.clone())?, column.source == schema::STAMPS)))
            .collect::<Result<_, Trouble>>()?;
        for row in 0..rows.len() {
            for (place, (values, stamps)) in values.iter().enumerate() {
                bind(&mut statement, place + 1, values.get(row), *stamps, &mut text)?;
            }
            statement.raw_execute()?;
        }
    }
    Ok(())
}

/// Binds a cell; `stamps` become gaps. Lists are JSON text, and absent where they are empty.
fn bind(statement: &mut Statement<'_>, place: usize, cell: Cell<'_>, stamps: bool, text: &mut String) -> rusqlite::Result<()> {
    match cell {
        Cell::Null | Cell::Few([]) | Cell::Wholes([]) | Cell::Reals([]) => statement.raw_bind_parameter(place, None::<i64>),
        Cell::Text(word) => statement.raw_bind_parameter(place, word),
        Cell::Flag(flag) => statement.raw_bind_parameter(place, flag),
        Cell::Whole(number) => statement.raw_bind_parameter(place, whole(number)),
        Cell::Real(number) => statement.raw_bind_parameter(place, number),
        Cell::Few(list) => statement.raw_bind_parameter(place, json(text, list.iter())),
        Cell::Wholes(list) if stamps => statement.raw_bind_parameter(place, json(text, gaps(list))),
        Cell::Wholes(list) => statement.raw_bind_parameter(place, json(text, list.iter())),
        Cell::Reals(list) => statement.raw_bind_parameter(place, json(text, list.iter())),
    }
}

fn gaps(stamps: &[u64]) -> impl Iterator<Item = i128> {
    stamps.windows(2).filter_map(|pair| Some(i128::from(*pair.last()?) - i128::from(*pair.first()?)))
}

/// A list of finite numbers as JSON.
fn json(text: &mut String, list: impl Iterator<Item = impl Display>) -> &str {
    text.clear();
    for number in list {
        text.push(if text.is_empty() { '[' } else { ',' });
        // A string takes everything.
        let _ = write!(text, "{number}");
    }
    text.push_str(if text.is_empty() { "[]" } else { "]" });
    text
}

/// Bodies without a row, whose row a crash took, are left out.
const INSERT: &str = "INSERT INTO bodies SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10
    WHERE EXISTS (SELECT 1 FROM requests WHERE case_id = ?1 AND round = ?2 AND seq = ?3 AND turn = ?4)";
const COLUMNS: usize = 10;

/// Writes the bodies that there are.
fn write_bodies(own: &Connection, run: &RunDir) -> Result<(), Trouble> {
    let mut insert = own.prepare(INSERT)?;
    let spool = run.file(spool::FILE);
    if spool.exists() {
        return from_spool(&mut insert, Kept::open(&spool)?);
    }
    let earlier = run.file(FILE);
    if earlier.exists() {
        run.check_file(FILE)?;
        let earlier = open(&earlier)?;
        let mut all = earlier.prepare("SELECT * FROM bodies ORDER BY rowid")?;
        let mut rows = all.query([])?;
        while let Some(row) = rows.next()? {
            insert.execute(params_from_iter(body_columns(row)?))?;
        }
    }
    Ok(())
}

fn from_spool(insert: &mut Statement<'_>, kept: Kept) -> Result<(), Trouble> {
    kept.each(|head, packed| {
        let response = head.response.map(|_| &packed.response);
        let size = |extent: Extent| whole(extent.whole);
        insert.execute(params![
            head.case,
            head.round,
            whole(head.seq),
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
    (0..COLUMNS).map(|column| row.get(column)).collect()
}
