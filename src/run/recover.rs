//! A run folder back to rows and manifest: whole, or as far as the journal of a killed run goes.

use crate::frame::{Table, telemetry};
use crate::model::manifest::{Manifest, Part};
use crate::model::plan::Plan;
use crate::model::telemetry::Recorded;
use crate::run::error::RunError;
use crate::run::rows::{Rows, measured_from, table};
use crate::store::{READINGS, ROWS, Record, RunDir, journal, manifest};

const KILLED: &str = "the run was killed; rows up to its last second are here";
const LIVE: &str = "the run has not ended yet; its requests so far are included";

/// The rows and the manifest of a stored run; the plan is left with the cases that were chosen for it. The journal counts
/// where the run did not come to its end.
pub fn recover(plan: &mut Plan, folder: &RunDir) -> Result<(Table, Manifest), RunError> {
    let mut manifest = manifest::read(folder)?;
    let file = folder.file(journal::FILE);
    plan.only(&manifest.only);
    if folder.is_complete()? {
        let rows = folder.read(ROWS)?;
        let unread = |source| RunError::Rows { path: folder.file(ROWS), source };
        return Ok((Table::read_parquet(rows).map_err(unread)?.beside(readings(folder)?), manifest));
    }
    let mut reader = journal::Reader::open(&file)?;
    let records = reader.by_ref().collect::<Result<Vec<_>, _>>()?;
    let why = if folder.is_live() { LIVE } else { KILLED };
    let (parts, rows) = replay(plan, records, why);
    manifest.parts = parts;
    manifest.interrupted = true;
    manifest.notes.push(why.into());
    let damage = reader.damage();
    if damage.gaps > 0 {
        let places = if damage.gaps == 1 { "1 place".to_owned() } else { format!("{} places", damage.gaps) };
        manifest.notes.push(format!(
            "{} is damaged in {places}: {} bytes cannot be read, the first at byte {}; the requests stored there are missing, those \
             after them are included",
            journal::FILE, damage.bytes, damage.first
        ));
    }
    let torn = reader.left_out();
    if torn > 0 {
        manifest.notes.push(format!("{} ends with an incomplete request ({torn} bytes), which is left out", journal::FILE));
    }
    Ok((table(plan, &rows)?.beside(readings(folder)?), manifest))
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

/// `why`: why a round that did not end is cut short.
fn replay(plan: &Plan, records: Vec<Record>, why: &str) -> (Vec<Part>, Rows) {
    let mut parts: Vec<Part> = Vec::new();
    let mut rows = Rows::new();
    for record in records {
        match record {
            Record::Started { case, round, origin_ns } => {
                let case = plan.cases.get(case as usize).map_or_else(String::new, |case| case.id.clone());
                parts.push(Part { case, round, origin_ns, cut_short: Some(why.into()), ..Part::default() });
            }
            Record::Outcome { case, round, outcome } => rows.entry((case, round)).or_default().push(outcome),
            Record::Ended { part } => {
                parts.retain(|begun| (&begun.case, begun.round) != (&part.case, part.round));
                parts.push(part);
            }
        }
    }
    for part in parts.iter_mut().filter(|part| part.sending_until_ns.is_none()) {
        let Some(index) = plan.cases.iter().position(|case| case.id == part.case) else { continue };
        let own = rows.get(&(index as u32, part.round)).map_or(&[][..], Vec::as_slice);
        part.measured_from_ns = measured_from(&plan.cases[index], own).0;
    }
    rows.values_mut().for_each(|outcomes| outcomes.sort_by_key(|outcome| (outcome.seq, outcome.turn)));
    (parts, rows)
}
