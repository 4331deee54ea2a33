//! A shard's part of a distributed run: which rounds it runs, when they begin, and where its rows go.

use crate::run::collector::SharedCounts;
use crate::run::collector::early_stop::GroupDecide;
use crate::run::context::{Context, SharedRun};
use crate::run::error::RunError;
use crate::run::execution::plan_digest::digest_plan;
use crate::run::execution::round_facts::RoundFacts;
use crate::run::execution::{PreparedRun, redactor};
use crate::run::merge::{MergedRounds, ShardedRound, merge_rounds, merge_tables, reserve_memory};
use crate::run::round::{RoundGroup, RoundInput, RoundResult, RoundStart};
use crate::run::sharding::messages::{BASELINE, MANIFEST, PLAN};
use crate::run::sharding::{
    Decide, GroupRound, GroupSettings, HostFacts, NextRound, PlanDigest, RoundCounts, RoundOutput,
    RunEnd, ShardGroup, SystemClock,
};
use crate::run::stop::{Level, Stop};
use crate::store::bodies::{Spool, spool};
use crate::store::{RunDir, StoreError, manifest};
use llmscen_analysis::telemetry;
use llmscen_core::manifest::Manifest;
use llmscen_core::plan::Plan;
use llmscen_core::redact::Redactor;
use llmscen_core::schedule::shard::Shard;
use llmscen_telemetry::host::machine;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Folder in the run folder of the rows that shards deliver.
const SHARDS: &str = "shards";

/// The command line that makes the report from the store.
pub fn merge_command(shared: &SharedRun) -> String {
    format!("llmscen merge {}", shared.store.url())
}

/// This process as a member of its group.
pub struct GroupRun {
    /// None once this process has left.
    group: Option<ShardGroup>,
    /// Removes the secrets of the plan from what is stored.
    redactor: Redactor,
    shard: Shard,
    shared: SharedRun,
    /// Rounds so far, on shard 0.
    gathered: Vec<ShardedRound>,
    /// Number of the latest round over all cases.
    number: u32,
}

impl GroupRun {
    /// Meets the other shards. If this one could not be prepared, the others are informed.
    ///
    /// # Errors
    /// `prepared` is an error, a shard is missing, or the shards do not run the same plan.
    pub(crate) fn join(
        plan: &Plan,
        prepared: Result<PreparedRun, RunError>,
        shared: &SharedRun,
        context: &Context,
    ) -> Result<(PreparedRun, GroupRun), RunError> {
        let settings = |plan: PlanDigest| GroupSettings {
            shard: context.shard,
            store: shared.store.clone(),
            wait: shared.wait,
            nonce: shared.nonce.clone(),
            clock: Arc::new(SystemClock::new(context.origin)),
            stop: context.stop.clone(),
            hello: HostFacts::read(&machine()),
            plan,
        };
        let digested = prepared.and_then(|prepared| {
            let digest = digest_plan(plan, prepared.cases(plan), context)?;
            Ok((prepared, digest))
        });
        let (prepared, digest) = match digested {
            Ok(digested) => digested,
            Err(fault) => {
                let settings = settings(PlanDigest::new(&plan.id, env!("CARGO_PKG_VERSION")));
                ShardGroup::report_failure(&settings, &redactor(plan).redact(fault.brief()));
                return Err(fault);
            }
        };
        let group = ShardGroup::join(settings(digest))?;
        if group.spans_hosts() {
            check_servers(plan, &prepared)?;
        }
        let group = GroupRun {
            group: Some(group),
            redactor: redactor(plan),
            shard: context.shard,
            shared: shared.clone(),
            gathered: Vec::new(),
            number: 0,
        };
        Ok((prepared, group))
    }

    /// Whether this is shard 0, which chooses the rounds and makes the report.
    pub fn leads(&self) -> bool {
        self.shard.is_first()
    }

    /// Whether this process makes the report of the run.
    pub fn reports(&self) -> bool {
        self.shared.reports(self.shard)
    }

    fn group(&mut self) -> Result<&mut ShardGroup, RunError> {
        self.group.as_mut().ok_or(RunError::Interrupted)
    }

    /// Stores the plan and the facts of the run, from which `llmscen merge` makes a report.
    ///
    /// # Errors
    /// The store cannot be written.
    pub fn store_plan(&self, plan: &Plan, manifest: &Manifest) -> Result<(), RunError> {
        let manifest = manifest::encode(&self.redactor.redact_value(manifest.clone()))?;
        let baseline = plan.baseline.as_ref();
        let objects = [
            (PLAN, Some(plan.resolved.as_bytes())),
            (MANIFEST, Some(manifest.as_slice())),
            (
                BASELINE,
                baseline.and_then(|baseline| Some(baseline.text.as_ref()?.as_bytes())),
            ),
        ];
        for (key, bytes) in objects {
            if let Some(bytes) = bytes {
                self.shared
                    .store
                    .put(key, bytes)
                    .map_err(|error| RunError::Sharding(error.into()))?;
            }
        }
        Ok(())
    }

    /// The next round: shard 0 passes it, the others receive it. None: the run is over.
    ///
    /// # Errors
    /// Shard 0 was lost, or the store cannot be used.
    pub fn agree_on_next(
        &mut self,
        wanted: Option<NextRound>,
    ) -> Result<Option<NextRound>, RunError> {
        let wanted = wanted.filter(|_| self.leads());
        Ok(self.group()?.agree_on_next(wanted)?)
    }

    /// Delivers the rows of this shard. On shard 0, `result` then covers all shards.
    ///
    /// # Errors
    /// The store cannot be used for as long as `--wait`; the rows remain in the run folder.
    pub fn exchange_results(
        &mut self,
        plan: &Plan,
        input: &RoundInput<'_>,
        result: &mut RoundResult,
        context: &Context,
    ) -> Result<(), RunError> {
        let (leads, reports) = (self.leads(), self.reports());
        let folder = input.folder.file(SHARDS).join(self.number.to_string());
        if result.part.cut_short.is_none() {
            result.part.cut_short = self.group()?.interruption();
        }
        let mut output = self.write_output(&folder, result)?;
        let bodies = input.folder.file(spool::FILE);
        if !reports && bodies.exists() {
            output.files.push(("bodies".into(), bodies.clone()));
        }
        let group = self.group()?;
        group
            .finish_round(&output)
            // `llmscen merge --rows` takes the run folder.
            .map_err(|error| error.in_folder(input.folder.path()))?;
        if !reports {
            // The next round delivers its own bodies.
            let _ = fs::remove_file(&bodies);
        }
        if !leads {
            return Ok(());
        }
        let Some(round) = group.gather_round(&folder)? else {
            return Ok(());
        };
        // A signal to one shard interrupts the run.
        if round.stops.iter().any(|stop| stop.interrupted) && context.stop.level() == Level::Run {
            context.stop.press();
        }
        if input.probe.is_some() {
            let ids = plan.cases.iter().map(|case| case.id.as_str());
            result.rows = Some(merge_tables(ids, &round.rows())?);
        }
        result.part = round.part();
        // A shard that lost the target ends the run as a process alone would.
        if result.fault.is_none() {
            result.fault = (result.part.ending.as_ref()).and_then(RunError::from_ending);
        }
        for facts in read_facts(&round)? {
            facts.add_to(result);
        }
        if reports {
            let others = round.done.iter().filter(|done| done.index != 0);
            for path in others.filter_map(|done| done.file("bodies")) {
                Spool::append(&bodies)?.add_all(path)?;
            }
            self.gathered.push(ShardedRound {
                case: input.case.id.clone(),
                round: input.round,
                group: round,
            });
        }
        Ok(())
    }

    /// Writes what this shard delivers of a round.
    fn write_output(
        &self,
        folder: &Path,
        result: &mut RoundResult,
    ) -> Result<RoundOutput, RunError> {
        let failed = |path: &Path, source| StoreError::Write {
            path: path.to_owned(),
            source,
        };
        fs::create_dir_all(folder).map_err(|source| failed(folder, source))?;
        let write = |name: &str, write: &dyn Fn(&mut dyn Write) -> io::Result<()>| {
            let path = folder.join(name);
            let written = File::create(&path).and_then(|file| {
                let mut out = BufWriter::new(file);
                write(&mut out)?;
                out.flush()
            });
            written
                .map(|()| path.clone())
                .map_err(|source| failed(&path, source))
        };
        let rows = result.rows.take().unwrap_or_default();
        let index = self.shard.index;
        let rows_file = write(&format!("own-rows-{index}.parquet"), &|out| {
            rows.write_parquet(out).map_err(io::Error::other)
        })?;
        let facts = RoundFacts::new(result);
        let facts_file = write(&format!("own-facts-{index}.json"), &|out| {
            serde_json::to_writer(out, &facts).map_err(io::Error::from)
        })?;
        let telemetry = telemetry::write(std::slice::from_ref(&result.recorded))?;
        let telemetry_file = write(&format!("own-telemetry-{index}.parquet"), &|out| {
            out.write_all(&telemetry)
        })?;
        Ok(RoundOutput {
            files: vec![
                ("rows".into(), rows_file),
                ("facts".into(), facts_file),
                ("telemetry".into(), telemetry_file),
            ],
            row_count: rows.len() as u64,
            part: result.part.clone(),
        })
    }

    /// The rows and the facts of all rounds. `folder`: that of the run. `note` is called with what the user should
    /// know before.
    ///
    /// # Errors
    /// The rows do not fit into memory, or do not belong together.
    pub fn merge(
        &self,
        plan: &Plan,
        folder: &Path,
        note: impl FnOnce(String),
    ) -> Result<MergedRounds, RunError> {
        let reserved = reserve_memory(&self.gathered, folder, None, &merge_command(&self.shared))?;
        if let Some(text) = reserved {
            note(text);
        }
        Ok(merge_rounds(plan, &self.gathered, self.shard.count)?)
    }

    /// Notes for the report.
    pub fn notes(&self) -> Vec<String> {
        self.group
            .as_ref()
            .map(ShardGroup::notes)
            .unwrap_or_default()
    }

    /// Leaves the group because of an error of this shard, which ends the run for all.
    pub fn fail(&mut self, fault: &RunError) {
        self.leave(RunEnd {
            success: false,
            reason: self.redactor.redact(fault.brief()),
        });
    }

    /// Leaves the group; on shard 0, the others end too.
    pub fn leave(&mut self, end: RunEnd) {
        if let Some(group) = self.group.take() {
            group.leave(end);
        }
    }
}

impl RoundGroup for GroupRun {
    fn start_round(
        &mut self,
        lead_time: Duration,
        context: &Context,
    ) -> Result<RoundStart, RunError> {
        let start = self.group()?.start_round(lead_time)?;
        self.number = start.number;
        Ok(RoundStart {
            zero: context.origin + Duration::from(start.zero),
            late: start.late,
        })
    }

    fn watch_round(&self, input: &RoundInput<'_>, stop: Stop) -> SharedCounts {
        let own = Arc::new(Mutex::new(RoundCounts::default()));
        // A search runs its probes at full length.
        let decides = self.leads() && input.probe.is_none();
        let decide = decides
            .then(|| GroupDecide::new(input.case, input.planned))
            .flatten()
            .map(|mut decide| -> Decide { Box::new(move |counts| decide.decide(counts)) });
        if let Some(group) = &self.group {
            group.watch_round(stop, own.clone(), decide);
        }
        SharedCounts {
            own,
            view: self
                .group
                .as_ref()
                .filter(|_| self.leads())
                .map(ShardGroup::viewer),
            planned: input.planned,
        }
    }
}

/// Removes the delivered files that the outputs of the run contain: all but the telemetry of the other shards.
///
/// # Errors
/// A file cannot be removed.
pub(crate) fn remove_merged_files(folder: &RunDir) -> Result<(), RunError> {
    let path = folder.file(SHARDS);
    let failed = |source| StoreError::Write {
        path: path.clone(),
        source,
    };
    if !path.exists() {
        return Ok(());
    }
    for round in fs::read_dir(&path).map_err(failed)? {
        for file in fs::read_dir(round.map_err(failed)?.path()).map_err(failed)? {
            let file = file.map_err(failed)?;
            let name = file.file_name();
            let name = name.to_string_lossy();
            if !name.starts_with("telemetry-") || name == "telemetry-0.parquet" {
                fs::remove_file(file.path()).map_err(failed)?;
            }
        }
    }
    Ok(())
}

/// Checks that the shards of all hosts can reach the managed servers.
fn check_servers(plan: &Plan, prepared: &PreparedRun) -> Result<(), RunError> {
    for (case, prepared) in prepared.cases(plan) {
        let mut routes = prepared.routes.iter();
        if let Some(route) = routes.find(|route| route.is_loopback())
            && case.target.server.is_some()
        {
            return Err(RunError::LoopbackServer {
                case: case.id.clone(),
                address: route.host_and_port(),
            });
        }
    }
    Ok(())
}

/// The facts that the other shards delivered.
fn read_facts(round: &GroupRound) -> Result<Vec<RoundFacts>, RunError> {
    let others = round.done.iter().filter(|done| done.index != 0);
    let read = |path: &Path| {
        let failed = |source| StoreError::Read {
            path: path.to_owned(),
            source,
        };
        let bytes = fs::read(path).map_err(failed)?;
        serde_json::from_slice(&bytes).map_err(|error| failed(io::Error::other(error)).into())
    };
    others
        .filter_map(|done| done.file("facts"))
        .map(read)
        .collect()
}
