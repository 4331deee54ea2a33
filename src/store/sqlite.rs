//! requests.db: the rows of a run, what is said about them, and the bodies where they are kept, as an SQLite database.
//!
//! It is made beside its place in one transaction and then renamed there, so that it is whole or not there at all. The same
//! input gives the same bytes. This is the only door to SQLite.

mod bodies;
mod rows;
mod said;
pub mod schema;
mod stored;

#[cfg(test)]
mod tests;

pub use stored::{StoredBodies, StoredBody, Wanted, stored_bodies};

use super::atomic::replace_by;
use super::bodies::spool;
use super::error::StoreError;
use super::rundir::RunDir;
use llmscen_analysis::{FrameError, Table};
use llmscen_core::artifacts::Bodies;
use llmscen_core::plan::Plan;
use llmscen_core::report::Report;
use rusqlite::{Connection, OpenFlags};
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
    said::run(&all, content)?;
    said::cases(&all, content.report)?;
    rows::write(&all, content.table)?;
    bodies::write(&all, run)?;
    all.execute_batch(schema::INDICES)?;
    all.commit()?;
    own.close().map_err(|(_, error)| error)?;
    Ok(run.enlist(FILE, false)?)
}

/// A number as SQLite has them; None for one that is greater than any server means.
fn whole(number: u64) -> Option<i64> {
    i64::try_from(number).ok()
}
