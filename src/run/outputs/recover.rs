//! Reads rows and manifest of a run folder, or of its journal if the run did not finish.

use crate::run::error::RunError;
use crate::store::journal::{self, Damage};
use crate::store::{EARLIER, READINGS, ROWS, Record, RunDir, StoreError, manifest};
use llmscen_analysis::{Builder, Table, TaggedOutcome, telemetry};
use llmscen_core::load::Warmup;
use llmscen_core::manifest::{Manifest, Part};
use llmscen_core::outcome::{Outcome, Phase};
use llmscen_core::plan::{Case, Plan};
use llmscen_core::telemetry::TelemetryRecord;
use llmscen_core::units::Nanos;
use std::collections::{BTreeMap, HashSet};
use std::fs::File;
use std::io::BufReader;

const KILLED: &str = "the run was killed; requests up to its last second are included";
const FAILED: &str =
    "the run ended with an error before its report; requests up to then are included";
const LIVE: &str = "the run has not ended yet; requests so far are included";

/// The rows and the manifest of a stored run. They come from the journal if the run did not finish. Cases that
/// `--only` or `--skip` excluded are removed from the plan.
pub fn recover(plan: &mut Plan, folder: &RunDir) -> Result<(Table, Manifest), RunError> {
    let mut manifest = manifest::read(folder)?;
    plan.select_cases(&manifest.filter);
    if folder.is_complete()? {
        let path = folder.file(ROWS);
        let rows = File::open(&path).map_err(|source| StoreError::Read {
            path: path.clone(),
            source,
        })?;
        let table = Table::read_parquet(BufReader::new(rows))
            .map_err(|source| RunError::Rows { path, source })?;
        return Ok((
            table
                .mark_starts(plan)?
                .with_telemetry(stored_telemetry(folder)?),
            manifest,
        ));
    }
    let why = if folder.is_live() {
        LIVE
    } else if manifest.error.is_some() {
        FAILED
    } else {
        KILLED
    };
    let Replayed {
        table,
        parts,
        damage,
        incomplete_bytes,
    } = replay(
        plan,
        folder,
        &[],
        manifest.shard.map_or(0, |shard| shard.index),
        why,
    )?;
    // With a full disk, the end of a round may be in the manifest but not in the journal.
    let manifest_parts = std::mem::take(&mut manifest.parts);
    let is_replayed = |part: &&Part| {
        let is = |known: &Part| (&known.case, known.round) == (&part.case, part.round);
        parts.iter().any(is)
    };
    // Rounds from before a run went on are not in its journal.
    let earlier: Vec<Part> = manifest_parts
        .iter()
        .filter(|part| folder.file(EARLIER).exists() && !is_replayed(part))
        .cloned()
        .collect();
    let complete = |part: Part| {
        let same = manifest_parts
            .iter()
            .find(|known| (&known.case, known.round) == (&part.case, part.round));
        same.filter(|_| part.sending_until_ns.is_none())
            .cloned()
            .unwrap_or(part)
    };
    manifest.parts = earlier
        .into_iter()
        .chain(parts.into_iter().map(complete))
        .collect();
    manifest.interrupted = true;
    let incomplete = (incomplete_bytes > 0).then(|| {
        format!(
            "{} ends with an incomplete request ({incomplete_bytes} bytes), which is left out",
            journal::FILE
        )
    });
    // An earlier `report` may have stored the same notes.
    for note in [Some(why.to_owned()), damage.note(journal::FILE), incomplete]
        .into_iter()
        .flatten()
    {
        if !manifest.notes.contains(&note) {
            manifest.notes.push(note);
        }
    }
    Ok((
        table
            .mark_starts(plan)?
            .with_telemetry(stored_telemetry(folder)?),
        manifest,
    ))
}

/// The stored telemetry; empty if there is none.
fn stored_telemetry(folder: &RunDir) -> Result<Vec<TelemetryRecord>, RunError> {
    let path = folder.file(READINGS);
    if !path.exists() {
        return Ok(Vec::new());
    }
    telemetry::read(folder.read(READINGS)?).map_err(|source| RunError::Rows { path, source })
}

/// The notes on damage of the journal.
pub fn damage_notes(manifest: &Manifest) -> impl Iterator<Item = &String> {
    manifest
        .notes
        .iter()
        .filter(|note| note.starts_with(journal::FILE))
}

/// The outcome of a request, with its case and round.
pub struct CaseOutcome {
    /// Index of the case in the plan.
    pub case: u32,
    /// Round, from 0.
    pub round: u32,
    /// The outcome.
    pub outcome: Outcome,
}

/// The content of a journal.
pub struct Replayed {
    /// Rows, in plan order.
    pub table: Table,
    /// Rounds; unfinished ones have `why` as the reason.
    pub parts: Vec<Part>,
    /// Damage before the last complete record.
    pub damage: Damage,
    /// Bytes after the last complete record.
    pub incomplete_bytes: u64,
}

/// Reads the journal of a shard, and the rows of the rounds before a run went on. `unwritten`: outcomes that may be
/// missing in it; `why`: why rounds did not finish.
///
/// # Errors
/// The journal cannot be read.
pub fn replay(
    plan: &Plan,
    folder: &RunDir,
    unwritten: &[CaseOutcome],
    shard: u32,
    why: &str,
) -> Result<Replayed, RunError> {
    let mut builder = Builder::with_cases(plan.cases.iter().map(|case| case.id.as_str()));
    let earlier = folder.file(EARLIER);
    let mut kept: HashSet<(u32, u32)> = HashSet::new();
    if earlier.exists() {
        let failed = |source| RunError::Rows {
            path: earlier.clone(),
            source,
        };
        let open = || {
            File::open(&earlier)
                .map(BufReader::new)
                .map_err(|source| StoreError::Read {
                    path: earlier.clone(),
                    source,
                })
        };
        let table = Table::read_parquet(open()?).map_err(failed)?;
        let index = |case: &str| plan.cases.iter().position(|known| known.id == case);
        kept.extend(
            table
                .row_keys()
                .filter_map(|key| Some((index(key.case)? as u32, key.round))),
        );
        builder.append_parquet(open()?).map_err(failed)?;
    }
    let mut rows = ReplayedRows {
        plan,
        shard,
        builder,
        first_measured: BTreeMap::new(),
    };
    let mut parts: Vec<Part> = Vec::new();
    let mut written = HashSet::new();
    let mut reader = journal::Reader::open(&folder.file(journal::FILE))?;
    for record in reader.by_ref() {
        match record? {
            // A process that was killed while it went on left both.
            Record::Started { case, round, .. } | Record::Outcome { case, round, .. }
                if kept.contains(&(case, round)) => {}
            Record::Started {
                case,
                round,
                origin_ns,
            } => {
                let case = plan
                    .cases
                    .get(case as usize)
                    .map_or_else(String::new, |case| case.id.clone());
                parts.push(Part {
                    case,
                    round,
                    origin_ns,
                    cut_short: Some(why.into()),
                    ..Part::default()
                });
            }
            Record::Outcome {
                case,
                round,
                outcome,
            } => {
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
    for CaseOutcome {
        case,
        round,
        outcome,
    } in unwritten
    {
        if !written.contains(&(*case, *round, outcome.seq, outcome.turn)) {
            rows.add(*case, *round, outcome);
        }
    }
    for part in parts
        .iter_mut()
        .filter(|part| part.sending_until_ns.is_none())
    {
        let Some(index) = plan.cases.iter().position(|case| case.id == part.case) else {
            continue;
        };
        let first = rows
            .first_measured
            .get(&(index as u32, part.round))
            .copied();
        part.measured_from_ns = measured_from(&plan.cases[index], first).0;
    }
    Ok(Replayed {
        table: rows.builder.finish()?,
        parts,
        damage: reader.damage(),
        incomplete_bytes: reader.left_out(),
    })
}

/// The rows read so far.
struct ReplayedRows<'a> {
    plan: &'a Plan,
    shard: u32,
    builder: Builder,
    /// Scheduled send time of the first measured request, by case index and round.
    first_measured: BTreeMap<(u32, u32), Nanos>,
}

impl ReplayedRows<'_> {
    fn add(&mut self, index: u32, round: u32, outcome: &Outcome) {
        let case = self
            .plan
            .cases
            .get(index as usize)
            .map_or("", |case| case.id.as_str());
        self.builder.push(&TaggedOutcome {
            case,
            round,
            shard: self.shard,
            outcome,
        });
        if outcome.phase == Phase::Measured {
            let first = self
                .first_measured
                .entry((index, round))
                .or_insert(outcome.timeline.intended);
            *first = outcome.timeline.intended.min(*first);
        }
    }
}

/// Start of the measurement in a round: the end of a warm-up by time, else the scheduled send time of the first
/// measured request.
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
    use llmscen_core::request::PreparedRequest;
    use llmscen_scenario::{Input, load};

    #[test]
    fn rows_are_read_in_plan_order_and_unwritten_ones_are_added_once() {
        let text = "version: 1\nname: x\ntarget: { url: simulator }\ndataset: { kind: prompt, text: x }\n\
                    load: { concurrency: 1, requests: 9 }\nmatrix: { load.concurrency: [1, 2] }\n";
        let input = Input {
            path: std::path::Path::new("x.yaml"),
            text: Some(text.into()),
            env: &BTreeMap::new(),
            set: &[],
        };
        let plan = load(&input).unwrap().plan;
        let outcome = |seq: u64, due: u64| {
            let mut outcome = PreparedRequest {
                seq,
                model: "m".into(),
                ..PreparedRequest::default()
            }
            .outcome(Phase::Measured);
            outcome.timeline.intended = Nanos(due);
            outcome
        };
        let folder = tempfile::tempdir().unwrap();
        let run = RunDir::create(&crate::store::RunLocation {
            explicit: Some(&folder.path().join("run")),
            dir: folder.path(),
            name: "x",
            started: "now",
            force: false,
        })
        .unwrap();
        let path = run.file(journal::FILE);
        let mut writer = Writer::create(&path).unwrap();
        // The second case ran first, and its requests ended out of order.
        for (case, seq, due) in [(1, 2, 70), (1, 0, 50), (0, 1, 20), (0, 0, 10)] {
            if matches!(seq, 1 | 2) {
                writer
                    .append(&Record::Started {
                        case,
                        round: 0,
                        origin_ns: 7,
                    })
                    .unwrap();
            }
            writer
                .append(&Record::Outcome {
                    case,
                    round: 0,
                    outcome: outcome(seq, due),
                })
                .unwrap();
        }
        writer.finish().unwrap();
        let unwritten = [outcome(0, 50), outcome(1, 60)].map(|outcome| CaseOutcome {
            case: 1,
            round: 0,
            outcome,
        });
        let replayed = replay(&plan, &run, &unwritten, 0, "cut").unwrap();
        let numbers = |name: &str| {
            let table = &replayed.table;
            let column = table.column(name, 0..table.len()).unwrap();
            let numbers = column.u64().unwrap().iter().map(Option::unwrap);
            numbers.collect::<Vec<u64>>()
        };
        assert_eq!(replayed.table.len(), 5);
        assert_eq!(numbers("seq"), [0, 1, 0, 1, 2]);
        assert_eq!(numbers("intended_ns"), [10, 20, 50, 60, 70]);
        let parts: Vec<_> = replayed
            .parts
            .iter()
            .map(|part| (part.case == plan.cases[1].id, part.measured_from_ns))
            .collect();
        assert_eq!(
            (parts, replayed.incomplete_bytes),
            (vec![(true, 50), (false, 10)], 0)
        );
        assert_eq!(replayed.parts[0].cut_short.as_deref(), Some("cut"));
    }
}
