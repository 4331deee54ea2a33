//! A run folder back to rows and manifest: whole, or as far as the journal of a killed run goes.

use crate::frame::{Table, telemetry};
use crate::model::manifest::Manifest;
use crate::model::plan::Plan;
use crate::model::telemetry::Recorded;
use crate::run::error::RunError;
use crate::run::rows::{Replayed, replay};
use crate::store::{RunDir, StoreError, journal, manifest};
use std::fs::File;
use std::io::BufReader;

/// The file of the rows.
const ROWS: &str = "requests.parquet";
/// The file of what was read beside the requests.
pub(super) const READINGS: &str = "telemetry.parquet";
const KILLED: &str = "the run was killed; rows up to its last second are here";

/// The rows and the manifest of a stored run; the plan is left with the cases that were chosen for it. A journal is there
/// exactly where the run did not come to its end.
pub fn recover(plan: &mut Plan, folder: &RunDir) -> Result<(Table, Manifest), RunError> {
    let mut manifest = manifest::read(folder)?;
    let file = folder.file(journal::FILE);
    plan.only(&manifest.only);
    if !file.exists() {
        let path = folder.file(ROWS);
        let rows = File::open(&path).map_err(|source| StoreError::Read { path: path.clone(), source })?;
        let table = Table::read_parquet(BufReader::new(rows)).map_err(|source| RunError::Rows { path, source })?;
        return Ok((table.beside(readings(folder)?), manifest));
    }
    let Replayed { table, parts, left_out: torn } = replay(plan, &file, &[], KILLED)?;
    manifest.parts = parts;
    manifest.interrupted = true;
    manifest.notes.push(KILLED.into());
    if torn > 0 {
        manifest.notes.push(format!("{torn} bytes at the end of the journal were torn and are left out"));
    }
    Ok((table.beside(readings(folder)?), manifest))
}

/// What was read beside the requests; nothing, where nothing was.
fn readings(folder: &RunDir) -> Result<Vec<Recorded>, RunError> {
    let path = folder.file(READINGS);
    if !path.exists() {
        return Ok(Vec::new());
    }
    telemetry::read(folder.read(READINGS)?).map_err(|source| RunError::Rows { path, source })
}
