//! What is written for other programs: the database, the histograms.

use crate::run::error::RunError;
use crate::run::publish::Results;
use crate::store::bodies::spool;
use crate::store::sqlite::{self, Content};
use crate::store::{StoreError, hlog};
use llmscen_core::artifacts::Store;

/// requests.db. What lies in the spool goes into it, and then the spool goes. One that the plan does not ask for is removed,
/// unless it holds bodies: those are nowhere else.
pub fn database(results: &Results<'_>) -> Result<(), RunError> {
    let folder = results.folder;
    if results.plan.report.store.contains(&Store::Sqlite) {
        sqlite::write(folder, &Content { plan: results.plan, table: results.table, report: results.report })?;
    } else if folder.file(sqlite::FILE).exists() && !sqlite::holds_bodies(folder)? {
        sqlite::remove(folder)?;
    }
    Ok(folder.remove(spool::FILE)?)
}

/// histograms.hlog; one that the plan does not ask for is removed.
pub fn histograms(results: &Results<'_>) -> Result<(), RunError> {
    if !results.plan.report.store.contains(&Store::Hlog) {
        return Ok(results.folder.remove(hlog::FILE)?);
    }
    let mut log = Vec::new();
    hlog::write(results.table, &results.report.manifest, &mut log)
        .map_err(|error| StoreError::Write { path: results.folder.file(hlog::FILE), source: std::io::Error::other(error) })?;
    Ok(results.folder.write(hlog::FILE, &log)?)
}
