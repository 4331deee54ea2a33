//! A run folder back to rows and manifest: whole, or as far as the journal of a killed run goes.

use crate::frame::{Table, telemetry};
use crate::model::manifest::Manifest;
use crate::model::plan::Plan;
use crate::model::telemetry::Recorded;
use crate::run::error::RunError;
use crate::run::rows::{Replayed, replay};
use crate::store::{READINGS, ROWS, RunDir, StoreError, journal, manifest};
use std::fs::File;
use std::io::BufReader;

const KILLED: &str = "the run was killed; rows up to its last second are here";
const LIVE: &str = "the run has not ended yet; its requests so far are included";

/// The rows and the manifest of a stored run; the plan is left with the cases that were chosen for it. The journal counts
/// where the run did not come to its end.
pub fn recover(plan: &mut Plan, folder: &RunDir) -> Result<(Table, Manifest), RunError> {
    let mut manifest = manifest::read(folder)?;
    let file = folder.file(journal::FILE);
    plan.only(&manifest.only);
    if folder.is_complete()? {
        let path = folder.file(ROWS);
        let rows = File::open(&path).map_err(|source| StoreError::Read { path: path.clone(), source })?;
        let table = Table::read_parquet(BufReader::new(rows)).map_err(|source| RunError::Rows { path, source })?;
        return Ok((table.beside(readings(folder)?), manifest));
    }
    let why = if folder.is_live() { LIVE } else { KILLED };
    let Replayed { table, parts, damage, left_out: torn } = replay(plan, &file, &[], why)?;
    manifest.parts = parts;
    manifest.interrupted = true;
    manifest.notes.push(why.into());
    manifest.notes.extend(damage.note());
    if torn > 0 {
        manifest.notes.push(format!("{} ends with an incomplete request ({torn} bytes), which is left out", journal::FILE));
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

/// What could not be read of the journal, as the notes of the run say it.
pub fn damage(manifest: &Manifest) -> impl Iterator<Item = &String> {
    manifest.notes.iter().filter(|note| note.starts_with(journal::FILE))
}
