//! Going on with a run that was killed, interrupted or that failed: the rounds that have finished are kept, the
//! others run.

use crate::run::error::RunError;
use crate::run::execution::hooks::{INTERRUPTED_COMMAND, is_last_on_server};
use crate::run::execution::round_facts::RoundFacts;
use crate::run::outputs::recover::recover;
use crate::store::{EARLIER, FACTS, RunDir, StoreError};
use llmscen_core::artifacts::Bodies;
use llmscen_core::early_stop::EarlyStop;
use llmscen_core::hooks::CommandResult;
use llmscen_core::manifest::{Manifest, Part};
use llmscen_core::plan::{Plan, PlannedRound};
use llmscen_core::telemetry::TelemetryRecord;
use serde::{Deserialize, Serialize};
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::Path;

/// The finished part of a run that goes on.
pub(crate) struct Continuation {
    /// The run folder, locked for writing.
    pub folder: RunDir,
    /// The manifest as it was, with the parts of the rounds that are kept.
    pub manifest: Manifest,
    /// The rounds that are kept.
    pub finished: FinishedRounds,
}

/// The rounds of an earlier process that are kept.
#[derive(Default)]
pub(crate) struct FinishedRounds {
    /// Their facts, in the order in which they ran.
    pub rounds: Vec<FinishedRound>,
    /// Their telemetry.
    pub recorded: Vec<TelemetryRecord>,
}

impl FinishedRounds {
    /// The note on a run that goes on.
    pub fn note(&self, plan: &Plan) -> String {
        let all = plan.cases.len() * plan.rounds as usize;
        let kept = self.rounds.len();
        format!(
            "the run was continued after an interruption: {kept} of its {all} rounds are from \
            before it; elapsed time includes the pause"
        )
    }
}

/// One line of the file of round facts.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct FinishedRound {
    /// Case id.
    pub case: String,
    /// Round, from 0.
    pub round: u32,
    pub facts: RoundFacts,
}

impl Continuation {
    /// Reads the run in a folder, and stores the rows of its finished rounds for the report.
    ///
    /// # Errors
    /// The folder cannot be read or written, the run is complete, or it is of a kind that cannot go on.
    pub fn open(plan: &Plan, path: &Path) -> Result<Continuation, RunError> {
        let refuse = |why: String| RunError::CannotContinue {
            folder: path.to_owned(),
            why,
        };
        let folder = RunDir::open(path)?.claim()?;
        let (table, mut manifest) = recover(&mut plan.clone(), &folder)?;
        if !plan.searches.is_empty() {
            return Err(refuse(
                "it is a capacity search, whose probes depend on each other; run \
            the scenario again"
                    .to_owned(),
            ));
        }
        if plan.report.bodies != Bodies::None {
            return Err(refuse(
                "it stores bodies, which are written at its end; run the scenario again".to_owned(),
            ));
        }
        if manifest.shard.is_some() || manifest.parts.iter().any(|part| !part.shards.is_empty()) {
            return Err(refuse(
                "several shards sent its load; run the scenario again".to_owned(),
            ));
        }
        if manifest.plan_id != plan.id {
            return Err(refuse(format!(
                "its plan.yaml now gives another plan ({}, not {}); use the llmscen and the files of the run",
                plan.id, manifest.plan_id
            )));
        }
        manifest.parts.retain(is_finished);
        // An interrupted command runs again, which needs its server and so its round.
        let interrupted = |part: &Part| {
            let is = |command: &CommandResult| {
                command.case == part.case && command.failure.as_deref() == Some(INTERRUPTED_COMMAND)
            };
            manifest.then.iter().any(is) && ends_server(plan, part)
        };
        manifest.parts.retain(|part| !interrupted(part));
        // An incomplete profile is made again, as an incomplete round is.
        manifest
            .profiled
            .retain(|profiled| profiled.failure.is_none());
        let is_missing = |next: &PlannedRound| {
            let case = &plan.cases[next.case].id;
            !has_round(&manifest, case, next.round) && !is_aborted(case, &manifest)
        };
        if !plan.rounds_in_order().iter().any(is_missing) {
            return Err(refuse(format!(
                "all its rounds have finished; write its report again with: llmscen report {}",
                path.display()
            )));
        }
        let mut facts = read_facts(&folder)?;
        manifest.parts.retain(|part| {
            facts
                .iter()
                .any(|known| (&known.case, known.round) == (&part.case, part.round))
        });
        facts.retain(|known| has_round(&manifest, &known.case, known.round));
        let Manifest { parts, then, .. } = &mut manifest;
        then.retain(|command| {
            let is = |part: &Part| part.case == command.case && ends_server(plan, part);
            parts.iter().any(is)
        });
        let is_kept = |case: &str, round: u32| has_round(&manifest, case, round);
        let kept = table.keep(|key| is_kept(key.case, key.round))?;
        folder.write_with(EARLIER, |out| {
            kept.write_parquet(out).map_err(io::Error::other)
        })?;
        let recorded = table.recorded().iter();
        Ok(Continuation {
            finished: FinishedRounds {
                recorded: recorded
                    .filter(|recorded| is_kept(&recorded.case, recorded.round))
                    .cloned()
                    .collect(),
                rounds: facts,
            },
            folder,
            manifest,
        })
    }
}

/// Whether a manifest has a round.
pub(crate) fn has_round(manifest: &Manifest, case: &str, round: u32) -> bool {
    let is = |part: &Part| part.case == case && part.round == round;
    manifest.parts.iter().any(is)
}

/// Whether the commands of `then` followed a round.
fn ends_server(plan: &Plan, part: &Part) -> bool {
    let mut cases = plan.cases.iter();
    let case = cases.position(|case| case.id == part.case);
    case.is_some_and(|case| is_last_on_server(plan, case, part.round))
}

/// Whether nothing cut a round short.
fn is_finished(part: &Part) -> bool {
    let is_lost = matches!(
        part.ending,
        Some(EarlyStop::TargetLost(_) | EarlyStop::AllFailed(_))
    );
    part.cut_short.is_none()
        && part.sending_until_ns.is_some()
        && part.server_end.is_none()
        && !is_lost
}

/// Whether an earlier round of a case was aborted, so that further rounds cannot change the verdict.
pub(crate) fn is_aborted(case: &str, manifest: &Manifest) -> bool {
    let aborted =
        |part: &Part| part.case == case && matches!(part.ending, Some(EarlyStop::Aborted(_)));
    manifest.parts.iter().any(aborted)
}

/// Appends the facts of a round to the run folder.
///
/// # Errors
/// The file cannot be written.
pub(crate) fn append_facts(folder: &RunDir, round: &FinishedRound) -> Result<(), StoreError> {
    let path = folder.file(FACTS);
    let append = || {
        let mut line = serde_json::to_vec(round).map_err(io::Error::other)?;
        line.push(b'\n');
        let mut file = OpenOptions::new().create(true).append(true).open(&path)?;
        file.write_all(&line)
    };
    append().map_err(|source| StoreError::Write { path, source })
}

/// The stored facts; an incomplete last line belongs to a round that is not finished.
fn read_facts(folder: &RunDir) -> Result<Vec<FinishedRound>, StoreError> {
    if !folder.file(FACTS).exists() {
        return Ok(Vec::new());
    }
    let lines = folder.read(FACTS)?;
    let lines = lines.split(|byte| *byte == b'\n');
    Ok(lines
        .filter_map(|line| serde_json::from_slice(line).ok())
        .collect())
}
