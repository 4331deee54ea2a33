//! A run folder back to rows and manifest: whole, or as far as the journal of a killed run goes.

use crate::run::error::RunError;
use crate::run::rows::{Replayed, replay, settled};
use crate::store::{READINGS, ROWS, RunDir, StoreError, journal, manifest};
use llmscen_analysis::{Table, telemetry};
use llmscen_core::manifest::{Manifest, Part};
use llmscen_core::plan::Plan;
use llmscen_core::telemetry::Recorded;
use std::fs::File;
use std::io::BufReader;

const KILLED: &str = "the run was killed; rows up to its last second are here";
const FAILED: &str = "the run ended with an error before its report; its requests come from the journal";
const LIVE: &str = "the run has not ended yet; its requests so far are included";

/// The rows and the manifest of a stored run; the plan is left with the cases that were chosen for it. The journal counts
/// where the run did not end.
pub fn recover(plan: &mut Plan, folder: &RunDir) -> Result<(Table, Manifest), RunError> {
    let mut manifest = manifest::read(folder)?;
    let file = folder.file(journal::FILE);
    plan.only(&manifest.only);
    if folder.is_complete()? {
        let path = folder.file(ROWS);
        let rows = File::open(&path).map_err(|source| StoreError::Read { path: path.clone(), source })?;
        let table = Table::read_parquet(BufReader::new(rows)).map_err(|source| RunError::Rows { path, source })?;
        return Ok((settled(table, plan).beside(readings(folder)?), manifest));
    }
    let why = match () {
        () if folder.is_live() => LIVE,
        () if manifest.error.is_some() => FAILED,
        () => KILLED,
    };
    let Replayed { table, parts, damage, left_out: torn } = replay(plan, &file, &[], why)?;
    // A round whose end the journal could not take (a full disk) is in the manifest.
    let known = std::mem::take(&mut manifest.parts);
    let ended = |part: Part| {
        let own = known.iter().find(|own| (&own.case, own.round) == (&part.case, part.round));
        own.filter(|_| part.sending_until_ns.is_none()).cloned().unwrap_or(part)
    };
    manifest.parts = parts.into_iter().map(ended).collect();
    manifest.interrupted = true;
    let torn = (torn > 0).then(|| format!("{} ends with an incomplete request ({torn} bytes), which is left out", journal::FILE));
    // A report that was killed may have stored the same notes.
    for note in [Some(why.to_owned()), damage.note(), torn].into_iter().flatten() {
        if !manifest.notes.contains(&note) {
            manifest.notes.push(note);
        }
    }
    Ok((settled(table, plan).beside(readings(folder)?), manifest))
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
