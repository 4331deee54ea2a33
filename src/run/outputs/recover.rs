//! A run folder back to rows and manifest: whole, or as far as the journal of a killed run goes.

use crate::run::error::RunError;
use crate::store::journal::{self, Damage};
use crate::store::{READINGS, ROWS, Record, RunDir, StoreError, manifest};
use llmscen_analysis::{Builder, Table, Tagged, telemetry};
use llmscen_core::load::Warmup;
use llmscen_core::manifest::{Manifest, Part};
use llmscen_core::outcome::{Outcome, Phase};
use llmscen_core::plan::{Case, Plan};
use llmscen_core::telemetry::Recorded;
use llmscen_core::units::Nanos;
use std::collections::{BTreeMap, HashSet};
use std::fs::File;
use std::io::BufReader;
use std::path::Path;

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
        return Ok((settle_table(table, plan).with_telemetry(readings(folder)?), manifest));
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
    Ok((settle_table(table, plan).with_telemetry(readings(folder)?), manifest))
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

/// The outcome of a request, by the index of its case in the plan and its round.
pub type Placed = (u32, u32, Outcome);

/// What a journal holds.
pub struct Replayed {
    /// Its rows, in plan order.
    pub table: Table,
    /// Its rounds; those that did not come to their end are cut short by `why`.
    pub parts: Vec<Part>,
    /// What of it cannot be read, before its end.
    pub damage: Damage,
    /// Bytes at its end that hold no whole record.
    pub left_out: u64,
}

/// The rows of a run with the starts of its open loops marked. A search discards the starts of its probes itself.
pub fn settle_table(table: Table, plan: &Plan) -> Table {
    if plan.quests.is_empty() { table.mark_starts(&plan.cases) } else { table }
}

/// Reads the journal of a run. `unwritten`: outcomes that may be missing in it. `why`: what rounds without an end are cut short by.
///
/// # Errors
/// It cannot be read.
pub fn replay(plan: &Plan, journal: &Path, unwritten: &[Placed], why: &str) -> Result<Replayed, RunError> {
    let mut rows =
        Replay { plan, builder: Builder::with_cases(plan.cases.iter().map(|case| case.id.as_str())), first: BTreeMap::new() };
    let mut parts: Vec<Part> = Vec::new();
    let mut written = HashSet::new();
    let mut reader = journal::Reader::open(journal)?;
    for record in reader.by_ref() {
        match record? {
            Record::Started { case, round, origin_ns } => {
                let case = plan.cases.get(case as usize).map_or_else(String::new, |case| case.id.clone());
                parts.push(Part { case, round, origin_ns, cut_short: Some(why.into()), ..Part::default() });
            }
            Record::Outcome { case, round, outcome } => {
                if !unwritten.is_empty() {
                    written.insert((case, round, outcome.seq, outcome.turn));
                }
                rows.add(case, round, &outcome);
            }
            Record::Ended { part } => {
                parts.retain(|begun| (&begun.case, begun.round) != (&part.case, part.round));
                parts.push(part);
            }
        }
    }
    let missing = unwritten.iter().filter(|(case, round, own)| !written.contains(&(*case, *round, own.seq, own.turn)));
    missing.for_each(|(case, round, outcome)| rows.add(*case, *round, outcome));
    for part in parts.iter_mut().filter(|part| part.sending_until_ns.is_none()) {
        let Some(index) = plan.cases.iter().position(|case| case.id == part.case) else { continue };
        let first = rows.first.get(&(index as u32, part.round)).copied();
        part.measured_from_ns = measured_from(&plan.cases[index], first).0;
    }
    Ok(Replayed { table: rows.builder.finish(), parts, damage: reader.damage(), left_out: reader.left_out() })
}

/// What has been read so far.
struct Replay<'a> {
    plan: &'a Plan,
    builder: Builder,
    /// When the first measured request of each round was due.
    first: BTreeMap<(u32, u32), Nanos>,
}

impl Replay<'_> {
    fn add(&mut self, index: u32, round: u32, outcome: &Outcome) {
        let case = self.plan.cases.get(index as usize).map_or("", |case| case.id.as_str());
        self.builder.push(&Tagged { case, round, shard: 0, outcome });
        if outcome.phase == Phase::Measured {
            let first = self.first.entry((index, round)).or_insert(outcome.timeline.intended);
            *first = outcome.timeline.intended.min(*first);
        }
    }
}

/// The first instant of measuring in one round: the end of a warm-up by time, else that at which the first measured request was
/// due.
pub fn measured_from(case: &Case, first: Option<Nanos>) -> Nanos {
    match case.load.warmup {
        Warmup::Span(span) => span,
        Warmup::Requests(_) => first.unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::journal::Writer;
    use llmscen_core::call::Call;
    use llmscen_scenario::{Input, load};

    #[test]
    fn rows_come_back_in_plan_order_and_those_that_were_not_written_are_added_once() {
        let text = "version: 1\nname: x\ntarget: { url: simulator }\ndataset: { kind: prompt, text: x }\n\
                    load: { concurrency: 1, requests: 9 }\nmatrix: { load.concurrency: [1, 2] }\n";
        let input = Input { path: Path::new("x.yaml"), text: Some(text.into()), env: &BTreeMap::new(), set: &[] };
        let plan = load(&input).unwrap().plan;
        let outcome = |seq: u64, due: u64| {
            let mut own = Call { seq, model: "m".into(), ..Call::default() }.outcome(Phase::Measured);
            own.timeline.intended = Nanos(due);
            own
        };
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(journal::FILE);
        let mut writer = Writer::create(&path).unwrap();
        // The second case ran first, and its requests ended out of order.
        for (case, seq, due) in [(1, 2, 70), (1, 0, 50), (0, 1, 20), (0, 0, 10)] {
            if matches!(seq, 1 | 2) {
                writer.append(&Record::Started { case, round: 0, origin_ns: 7 }).unwrap();
            }
            writer.append(&Record::Outcome { case, round: 0, outcome: outcome(seq, due) }).unwrap();
        }
        writer.finish().unwrap();
        let unwritten = [(1, 0, outcome(0, 50)), (1, 0, outcome(1, 60))];
        let replayed = replay(&plan, &path, &unwritten, "cut").unwrap();
        let cells = |name: &str| {
            let values = replayed.table.values(name, 0..replayed.table.len()).unwrap();
            (0..5).map(|row| format!("{:?}", values.get(row))).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(replayed.table.len(), 5);
        assert_eq!(cells("seq"), "Whole(0) Whole(1) Whole(0) Whole(1) Whole(2)");
        assert_eq!(cells("intended_ns"), "Whole(10) Whole(20) Whole(50) Whole(60) Whole(70)");
        let parts: Vec<_> = replayed.parts.iter().map(|part| (part.case == plan.cases[1].id, part.measured_from_ns)).collect();
        assert_eq!((parts, replayed.left_out), (vec![(true, 50), (false, 10)], 0));
        assert_eq!(replayed.parts[0].cut_short.as_deref(), Some("cut"));
    }
}
