//! The rounds of a run in progress, and their results.

use crate::run::context::Context;
use crate::run::error::RunError;
use crate::run::event::Event;
use crate::run::execution::continuation::{FinishedRound, FinishedRounds, append_facts, has_round};
use crate::run::execution::failures::Failures;
use crate::run::execution::group::GroupRun;
use crate::run::execution::hooks::{
    Beside, HookState, RoundHooks, cases_to_judge, is_last_on_server,
};
use crate::run::execution::round_facts::{RoundFacts, RunFacts};
use crate::run::execution::targets::Targets;
use crate::run::fail_fast::FailFast;
use crate::run::outputs::recover::{CaseOutcome, replay};
use crate::run::outputs::summarize::summarize;
use crate::run::panics;
use crate::run::prepare::{list_models, record_engine};
use crate::run::requests::prepared_case::PreparedCase;
use crate::run::resources::local_model::{LocalModels, note_cut, note_model};
use crate::run::resources::managed_server::{ManagedProcess, ManagedServers};
use crate::run::round::{
    PreparedRound, ProbeSize, RoundGroup, RoundInput, RoundResult, prepare_round, run_round,
};
use crate::run::sharding::{NextRound, RunEnd};
use crate::run::stop::{Level, Stop};
use crate::run::telemetry::{Observer, TelemetryCheckpoint};
use crate::store::journal::{self, Writer};
use crate::store::{ROWS, RunDir, StoreError, manifest};
use llmscen_analysis::Table;
use llmscen_core::api::Api;
use llmscen_core::artifacts::Bodies;
use llmscen_core::check::Ruling;
use llmscen_core::hooks::{ProfiledCase, ProfiledRerun};
use llmscen_core::manifest::{Manifest, Part};
use llmscen_core::plan::{Case, Plan};
use llmscen_core::report::CaseReport;
use llmscen_core::schedule::shard::Split;
use llmscen_core::seed::Seed;
use llmscen_core::target::Target;
use llmscen_core::telemetry::TelemetryRecord;
use llmscen_core::units::Nanos;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A run in progress, and its results so far.
pub struct Execution<'a> {
    plan: &'a Plan,
    folder: &'a RunDir,
    context: &'a Context,
    /// The manifest, with the parts so far.
    pub manifest: &'a mut Manifest,
    pub(super) rows: RunRows,
    /// What a search reads of the last round.
    pub last_probe: LastProbe,
    facts: RunFacts,
    /// Notes that were sent as events already.
    sent_notes: Vec<String>,
    pub(super) failures: Failures,
    targets: Targets,
    observer: Arc<Observer>,
    servers: ManagedServers,
    hooks: HookState,
    models: LocalModels,
    /// The cases that were judged for `hooks.on_fail`, by index.
    judged: BTreeSet<usize>,
    /// Pause between two rounds.
    pause: Duration,
    /// Whether a round has run.
    has_run: bool,
    /// The other shards; None for a run of one process.
    group: Option<GroupRun>,
}

/// The rows and the telemetry of the rounds so far.
pub(super) struct RunRows {
    /// None while a round writes to it, and after an error of that round.
    journal: Option<Writer>,
    /// Outcomes that may be missing in the journal.
    unwritten: Vec<CaseOutcome>,
    /// Telemetry per round, in the order in which they ran.
    pub(super) recorded: Vec<TelemetryRecord>,
    telemetry_checkpoint: TelemetryCheckpoint,
}

/// The last round, as a search reads it.
#[derive(Default)]
pub struct LastProbe {
    /// Its rows, if it was a probe.
    pub rows: Option<Table>,
    /// Why none of its requests got a response, if so.
    pub unanswered: Option<String>,
}

impl<'a> Execution<'a> {
    /// Starts with an empty journal.
    pub fn new(
        plan: &'a Plan,
        folder: &'a RunDir,
        manifest: &'a mut Manifest,
        group: Option<GroupRun>,
        context: &'a Context,
    ) -> Result<Execution<'a>, RunError> {
        let journal = Writer::create(&folder.file(journal::FILE))?;
        if context.continued.is_some() {
            // The rows of the finished rounds are in another file; these would mark the run as complete.
            folder.remove_listed(ROWS)?;
            manifest::write(folder, manifest)?;
        }
        let observer = Arc::new(Observer::new(plan, context));
        observer.describe_gpus(&mut manifest.machine);
        if let Some(note) = &observer.note {
            manifest.notes.push(note.clone());
            let _ = context.events.send(Event::Note(note.clone()));
        }
        let drain = plan.searches.first().map(|search| search.spec.drain);
        Ok(Execution {
            plan,
            folder,
            context,
            rows: RunRows {
                journal: Some(journal),
                unwritten: Vec::new(),
                recorded: Vec::new(),
                telemetry_checkpoint: TelemetryCheckpoint::default(),
            },
            last_probe: LastProbe::default(),
            facts: RunFacts::default(),
            sent_notes: manifest.notes.clone(),
            manifest,
            failures: Failures::default(),
            targets: Targets::default(),
            observer,
            servers: ManagedServers::default(),
            hooks: HookState::default(),
            models: LocalModels::default(),
            judged: BTreeSet::new(),
            pause: drain.unwrap_or(plan.pause).into(),
            has_run: false,
            group,
        })
    }

    /// Restores the state after the rounds of an earlier process.
    pub fn restore(&mut self, cases: &[(&Case, &PreparedCase)], finished: FinishedRounds) {
        for FinishedRound { case, round, facts } in &finished.rounds {
            let Some((case, prepared)) = cases.iter().find(|(known, _)| known.id == *case) else {
                continue;
            };
            let planned = prepared
                .extent(case, self.round_seed(case, *round))
                .sessions;
            let strides = self.facts.row_usage.strides(case, prepared);
            self.facts
                .row_usage
                .add_round(prepared, &strides, planned, &facts.sent);
            self.facts.add(&case.id, facts);
            prepared.add_notes(&mut self.manifest.notes);
        }
        let is_profiled = |case: &Case| {
            let mut profiled = self.manifest.profiled.iter();
            profiled.any(|profiled| profiled.case == case.id)
        };
        let profiled = self.plan.cases.iter().enumerate();
        let profiled = profiled.filter(|(_, case)| is_profiled(case));
        self.judged.extend(profiled.map(|(index, _)| index));
        self.rows.recorded = finished.recorded;
        self.servers.continue_after(&self.manifest.parts);
    }

    fn round_seed(&self, case: &Case, round: u32) -> Seed {
        self.plan
            .seed
            .child(case.id.as_str())
            .child(u64::from(round))
    }

    /// Whether a round of an earlier process is kept.
    pub fn has_finished(&self, case: &Case, round: u32) -> bool {
        has_round(self.manifest, &case.id, round)
    }

    /// Whether this process chooses the rounds: it runs alone, or is shard 0.
    pub fn leads(&self) -> bool {
        self.group.as_ref().is_none_or(GroupRun::leads)
    }

    /// Whether other processes send parts of the load.
    pub fn is_sharded(&self) -> bool {
        self.group.is_some()
    }

    /// Whether a round cannot run, since its case failed or its target was lost before.
    pub fn must_skip(&mut self, case: &Case, round: u32, prepared: &PreparedCase) -> bool {
        if self.failures.has_failed(case) {
            return true;
        }
        let why = self.targets.why_lost(case, prepared);
        let is_lost = why.is_some();
        if let Some(why) = why {
            self.failures
                .fail_case(case, round, RunError::NotRun { round, why });
        }
        is_lost
    }

    /// Whether no further round can run.
    pub fn is_over(&self) -> bool {
        self.is_sharded() || self.failures.has_ended_run() || self.context.stop.level() > Level::Run
    }

    /// A round that this process would run next, with the first dataset row of each traffic class.
    pub fn want_round(
        &mut self,
        case: usize,
        round: u32,
        probe_share: Option<f64>,
        prepared: &PreparedCase,
    ) -> NextRound {
        NextRound {
            case,
            round,
            probe_share,
            row_marks: self.facts.row_usage.marks(prepared),
        }
    }

    /// The next round: the wanted one, or that of shard 0. None: the run is over.
    pub fn agree_on_next(
        &mut self,
        wanted: Option<NextRound>,
    ) -> Result<Option<NextRound>, RunError> {
        match &mut self.group {
            None => Ok(wanted),
            Some(group) => group.agree_on_next(wanted),
        }
    }

    /// The facts of a round of `case`, before its server is started. `probe`: its size, if the round is a probe of a
    /// capacity search.
    pub fn round_input<'b>(
        &mut self,
        next: &NextRound,
        case: &'b Case,
        prepared: &'b PreparedCase,
        probe: Option<ProbeSize>,
    ) -> RoundInput<'b>
    where
        'a: 'b,
    {
        let (index, round) = (next.case, next.round);
        self.facts.row_usage.advance(prepared, &next.row_marks);
        let seed = self.round_seed(case, round);
        let planned = prepared.extent(case, seed).sessions;
        let split = Split::new(self.context.shard, &case.load.shape);
        let earlier = self
            .targets
            .fail_fast
            .get(&index)
            .cloned()
            .unwrap_or_default();
        let rounds = if probe.is_some() {
            1
        } else {
            u64::from(self.plan.rounds)
        };
        // The plan fixes the number of sessions, but the check counts requests.
        let requests = planned
            .filter(|_| !prepared.conversations)
            .map(|planned| split.local_index(planned) * rounds);
        RoundInput {
            index,
            case,
            prepared,
            round,
            probe,
            shard: self.context.shard,
            seed,
            planned,
            strides: self.facts.row_usage.strides(case, prepared),
            fail_fast: (!self.context.keep_going).then(|| earlier.with_planned(requests)),
            earlier,
            folder: self.folder,
            bodies: self.plan.report.bodies,
            observer: self.observer.clone(),
            server: None,
            server_process: None,
            model: None,
        }
    }

    /// Pauses and runs a round: part `number` of `parts`. False if the run is over: interrupted, or unable to go on.
    pub fn run_round(&mut self, input: &RoundInput<'_>, number: usize, parts: usize) -> bool {
        if std::mem::replace(&mut self.has_run, true) {
            pause(self.pause, &self.context.stop);
        }
        if self.context.stop.level() > Level::Run {
            return false;
        }
        // Taken out, so that the round can borrow its server while it changes the rest.
        let mut servers = std::mem::take(&mut self.servers);
        let result = self.run_on_server(input, &mut servers, number, parts);
        self.servers = servers;
        let has_result = result.is_ok();
        let interrupted = matches!(result, Err(RunError::Interrupted));
        if let Err(fault) = result {
            self.record_fault(input, fault);
        }
        // The other shards wait for an announced round.
        if self.is_sharded() && !has_result {
            return false;
        }
        // A capacity search needs every probe.
        let search_ended = input.probe.is_some() && self.failures.has_failed(input.case);
        let goes_on = !self.failures.has_ended_run();
        goes_on && !interrupted && !search_ended
    }

    /// Prepares a round, starts its server or loads its model, runs it, and records the result.
    fn run_on_server(
        &mut self,
        input: &RoundInput<'_>,
        servers: &mut ManagedServers,
        number: usize,
        parts: usize,
    ) -> Result<(), RunError> {
        if self.leads() {
            self.hooks.before_run(input, self.context)?;
        }
        let prepared_round = self.prepare_round(input, servers, self.context)?;
        // Shard 0 starts a managed server; the others wait at the barrier.
        let server = if self.leads() {
            servers.start_for_round(
                input.case,
                input.round,
                input.prepared,
                self.folder,
                self.context,
            )?
        } else {
            None
        };
        if self.leads() {
            let start = server.map(ManagedProcess::number);
            self.hooks.before_round(input, start, self.context)?;
        }
        let model = self
            .models
            .load(&input.case.target, self.plan.seed, self.context)?;
        let server_process = server.map(ManagedProcess::supervisor);
        let input = RoundInput {
            server,
            server_process,
            model,
            ..input.clone()
        };
        let Some(journal) = self.rows.journal.take() else {
            return Ok(());
        };
        self.announce(&input, number, parts);
        let hooks = RoundHooks {
            input: &input,
            context: self.context,
        };
        let beside = self.leads().then(|| hooks.start_beside());
        let group = self.group.as_mut();
        let group = group.map(|group| group as &mut dyn RoundGroup);
        let result = run_round(&input, prepared_round, journal, group, self.context);
        self.manifest
            .notes
            .extend(beside.map(Beside::stop).unwrap_or_default());
        if self.leads() && self.context.stop.level() == Level::Run {
            self.manifest.notes.extend(hooks.after_case());
            if is_last_on_server(self.plan, input.index, input.round) {
                self.manifest.then.extend(hooks.then());
            }
        }
        match result {
            Ok(result) => self.record_result(&input, result),
            Err(RunError::Interrupted) => return Err(RunError::Interrupted),
            Err(fault) => self.failures.fault = Some(fault),
        }
        Ok(())
    }

    /// Sends the cases that failed so far once more with the profiler, as `hooks.on_fail` demands: those on the
    /// server of `last`, or all that are left.
    pub fn profile_failed_cases(&mut self, prepared_cases: &[PreparedCase], last: Option<&Case>) {
        let plan = self.plan;
        let mut wanted = cases_to_judge(plan, last);
        wanted.retain(|index| !self.judged.contains(index));
        if wanted.is_empty() {
            return;
        }
        self.judged.extend(&wanted);
        if self.is_sharded() {
            let note = "`hooks.on_fail` is not run: several shards send the load.";
            return self.manifest.notes.push(note.to_owned());
        }
        if self.is_over() {
            return;
        }
        let failed = match self.failed_case_ids() {
            Ok(failed) => failed,
            Err(fault) => {
                let why = fault.brief();
                let note = format!("`hooks.on_fail` could not judge the cases: {why}.");
                return self.manifest.notes.push(note);
            }
        };
        for index in wanted {
            let case = &plan.cases[index];
            let Some(on_fail) = case.hooks.on_fail.as_ref() else {
                continue;
            };
            if !failed.contains(&case.id) || self.context.stop.level() > Level::Run {
                continue;
            }
            if self.manifest.profiled.len() >= on_fail.max as usize {
                self.manifest.notes.push(format!(
                    "`{}` failed, but was not sent again with the profiler: `hooks.on_fail.max` is {}.",
                    case.id, on_fail.max
                ));
                continue;
            }
            let profiled = self.profile_case(index, &prepared_cases[index], on_fail);
            self.manifest.notes.push(describe_profiled(&profiled));
            self.manifest.profiled.push(profiled);
        }
    }

    /// The cases with a verdict FAIL, by the requests so far.
    fn failed_case_ids(&self) -> Result<BTreeSet<String>, RunError> {
        let shard = self.context.shard.index;
        let replayed = replay(self.plan, self.folder, &self.rows.unwritten, shard, "")?;
        let table = replayed
            .table
            .mark_starts(self.plan)?
            .with_telemetry(self.rows.recorded.clone());
        let report = summarize(self.plan, &table, self.manifest)?;
        let has_failed = |case: &&CaseReport| {
            let verdicts = &case.verdicts;
            verdicts
                .iter()
                .any(|verdict| verdict.ruling == Ruling::Fail)
        };
        let failed = report.cases.iter().filter(has_failed);
        // A stage has the id of its case and a suffix.
        let ids = failed.map(|case| {
            let of_stage = |known: &&Case| {
                let rest = case.id.strip_prefix(&known.id);
                rest.is_some_and(|rest| rest.starts_with("/stage="))
            };
            let owner = self.plan.cases.iter().find(of_stage);
            owner.map_or(&case.id, |owner| &owner.id).clone()
        });
        Ok(ids.collect())
    }

    fn profile_case(
        &mut self,
        index: usize,
        prepared: &PreparedCase,
        on_fail: &ProfiledRerun,
    ) -> ProfiledCase {
        let case = &self.plan.cases[index];
        let text = format!("`{}` failed: sending it again with the profiler", case.id);
        let _ = self.context.events.send(Event::Note(text));
        let mut servers = std::mem::take(&mut self.servers);
        let result = self.run_profiled_round(index, prepared, on_fail, &mut servers);
        self.servers = servers;
        let (requests, failure) = match result {
            Ok((requests, failure)) => (Some(requests), failure),
            Err(fault) => (None, Some(fault)),
        };
        ProfiledCase {
            case: case.id.clone(),
            requests,
            folder: profile_folder(&case.target, &self.context.env),
            failure: failure.map(|fault| fault.brief_with_log()),
        }
    }

    /// Runs an extra round between the actions of `on_fail`. Its records are discarded. Returns the number of its
    /// requests, and why the profile may be incomplete.
    fn run_profiled_round(
        &mut self,
        index: usize,
        prepared: &PreparedCase,
        on_fail: &ProfiledRerun,
        servers: &mut ManagedServers,
    ) -> Result<(u64, Option<RunError>), RunError> {
        let context = self.context.without_events();
        let (plan, case) = (self.plan, &self.plan.cases[index]);
        let next = self.want_round(index, plan.rounds, None, prepared);
        let input = RoundInput {
            bodies: Bodies::None,
            fail_fast: None,
            earlier: FailFast::default(),
            ..self.round_input(&next, case, prepared, None)
        };
        pause(self.pause, &self.context.stop);
        let prepared_round = self.prepare_round(&input, servers, &context)?;
        // The server of the last round, if it is still running.
        let last_round = plan.rounds.saturating_sub(1);
        let server = servers.start_for_round(case, last_round, prepared, self.folder, &context)?;
        let start = server.map(ManagedProcess::number);
        self.hooks.before_round(&input, start, &context)?;
        let input = RoundInput {
            server,
            server_process: server.map(ManagedProcess::supervisor),
            ..input
        };
        let hooks = RoundHooks {
            input: &input,
            context: &context,
        };
        hooks.run_all("on_fail.before", &on_fail.before)?;
        let journal = tempfile::NamedTempFile::new_in(self.folder.path());
        let journal = journal.map_err(|source| StoreError::Write {
            path: self.folder.path().to_owned(),
            source,
        })?;
        let writer = Writer::create(journal.path())?;
        let beside = hooks.start_beside();
        let result = run_round(&input, prepared_round, writer, None, &context);
        beside.stop();
        // The profiler is stopped in any case.
        let stopped = hooks.run_all("on_fail.after", &on_fail.after);
        self.manifest.notes.extend(hooks.after_case());
        let result = result?;
        Ok((result.tally.sent(), result.fault.or(stopped.err())))
    }

    /// Renders the first requests of a round, before its server is started, or while a running one is watched.
    fn prepare_round(
        &self,
        input: &RoundInput<'_>,
        servers: &ManagedServers,
        context: &Context,
    ) -> Result<PreparedRound, RunError> {
        let stop = self.context.stop.child();
        if let Some(server) = servers.current(input.case, input.round) {
            server.press_on_exit(&stop);
        }
        prepare_round(input, stop, context).map_err(|fault| match fault {
            RunError::Interrupted => servers.exit_error(input.case, input.round).unwrap_or(fault),
            fault => fault,
        })
    }

    fn announce(&self, input: &RoundInput<'_>, number: usize, parts: usize) {
        let load = &input.case.load;
        let _ = self.context.events.send(Event::CaseStarted {
            case: input.case.id.clone(),
            round: input.round,
            part: number,
            parts,
            // Shard 0 shows the progress of all, in sessions, whose number requests of all sessions do not determine.
            total: input
                .planned
                .or(load.requests)
                .filter(|_| load.turn_limit.is_none()),
            seconds: load.sending_duration().map(Nanos::secs),
        });
    }

    /// Records why a round failed. Other cases continue if they can.
    fn record_fault(&mut self, input: &RoundInput<'_>, fault: RunError) {
        self.targets.record_loss(input.case, input.prepared, &fault);
        self.failures.record(input.case, input.round, fault);
    }

    /// Adds the result of a round to those of the run, and stores manifest and telemetry.
    fn record_result(&mut self, input: &RoundInput<'_>, mut result: RoundResult) {
        if let Some(group) = &mut self.group
            && let Err(fault) = group.exchange_results(self.plan, input, &mut result, self.context)
        {
            group.fail(&fault);
            self.failures.undelivered = Some(fault);
        }
        self.facts
            .row_usage
            .add_round(input.prepared, &input.strides, input.planned, &result.sent);
        let finished = FinishedRound {
            case: input.case.id.clone(),
            round: input.round,
            facts: RoundFacts::new(&result),
        };
        self.facts.add(&input.case.id, &finished.facts);
        self.rows.journal = Some(result.journal);
        self.manifest.parts.push(result.part);
        input.prepared.add_notes(&mut self.manifest.notes);
        note_model(self.manifest.parts.last(), &mut self.manifest.notes);
        note_cut(
            &self.manifest.parts,
            &input.case.id,
            &mut self.manifest.notes,
        );
        list_models(
            input.case,
            input.prepared,
            result.tally.not_found,
            &mut self.manifest.served,
        );
        // After the measurement, once per address, and only of a server that answered with tokens.
        if result.tally.first_answer().is_some()
            && self.context.shard.is_first()
            && self.context.stop.level() == Level::Run
            && input.case.target.api != Api::Custom
        {
            let targets = &mut self.manifest.targets;
            for (url, route) in input.case.target.urls().zip(&input.prepared.routes) {
                if self.targets.identified.insert(url.to_owned()) {
                    record_engine(input.case, input.prepared, (url, route), targets);
                }
            }
        }
        let (case, round) = (input.index as u32, input.round);
        self.rows
            .unwritten
            .extend(result.unwritten.into_iter().map(|outcome| CaseOutcome {
                case,
                round,
                outcome,
            }));
        self.last_probe.rows = result.rows;
        self.last_probe.unanswered = result.tally.unanswered();
        self.targets
            .fail_fast
            .insert(input.index, result.tally.fail_fast);
        self.rows.recorded.push(result.recorded);
        let stored = manifest::write(self.folder, self.manifest).map_err(RunError::from);
        let stored = stored.and_then(|()| {
            self.rows
                .telemetry_checkpoint
                .write(self.folder, &self.rows.recorded, Instant::now())
        });
        let stored = stored.and_then(|()| match &self.group {
            None => Ok(append_facts(self.folder, &finished)?),
            Some(_) => Ok(()),
        });
        if let Some(fault) = result.fault.or(stored.err()) {
            self.record_fault(input, fault);
        }
    }

    /// The rows of the run as a table, and the fault that ended it early.
    pub fn finish(mut self) -> Result<(Table, Option<RunError>), RunError> {
        self.servers.stop(&self.context.stop);
        if let Some(fault) = self.failures.undelivered {
            // The journal keeps the rows for `llmscen merge --rows`.
            return Err(fault);
        }
        let merged = self.leave_group()?;
        self.manifest.failed = self.failures.failed_cases();
        let fault = self.failures.into_fault();
        let why = fault.as_ref().map_or_else(String::new, RunError::brief);
        let replayed = replay(
            self.plan,
            self.folder,
            &self.rows.unwritten,
            self.context.shard.index,
            &why,
        )?;
        let notes = &mut self.manifest.notes;
        notes.extend(self.facts.notes());
        notes.extend(replayed.damage.note(journal::FILE));
        for note in notes.iter().filter(|note| !self.sent_notes.contains(note)) {
            let _ = self.context.events.send(Event::Note(note.clone()));
        }
        // A panic presses the switch too.
        self.manifest.interrupted =
            self.context.stop.level() > Level::Run && panics::first().is_none();
        // A round that failed returned no part, but its rows are in the journal.
        let is_known = |part: &Part| {
            self.manifest
                .parts
                .iter()
                .any(|known| (&known.case, known.round) == (&part.case, part.round))
        };
        let unfinished: Vec<Part> = replayed
            .parts
            .into_iter()
            .filter(|part| !is_known(part))
            .collect();
        self.manifest.parts.extend(unfinished);
        let table = merged.unwrap_or(replayed.table);
        Ok((
            table
                .mark_starts(self.plan)?
                .with_telemetry(self.rows.recorded),
            fault,
        ))
    }

    /// Ends the part of this process in a distributed run. Returns the rows of all shards where this process makes
    /// the report.
    fn leave_group(&mut self) -> Result<Option<Table>, RunError> {
        let Some(mut group) = self.group.take() else {
            return Ok(None);
        };
        self.manifest.notes.extend(group.notes());
        match &self.failures.fault {
            Some(fault) => group.fail(fault),
            None => group.leave(RunEnd {
                success: true,
                reason: String::new(),
            }),
        }
        if !group.reports() {
            return Ok(None);
        }
        let merged = group.merge(self.plan, self.folder.path(), |text| {
            let _ = self.context.events.send(Event::Note(text));
        })?;
        self.manifest.parts = merged.parts;
        // The folder has the rows of all shards from now on.
        self.manifest.shard = None;
        self.manifest.attempt = None;
        Ok(Some(merged.table))
    }
}

/// The folder in which the engine writes profiles, if its environment has it.
fn profile_folder(target: &Target, env: &BTreeMap<String, String>) -> Option<String> {
    let names = ["VLLM_TORCH_PROFILER_DIR", "SGLANG_TORCH_PROFILER_DIR"];
    let server = target.server.as_ref()?;
    let own = server
        .env
        .iter()
        .find(|(name, _)| names.contains(&name.as_str()));
    own.map(|(_, folder)| folder.expose().to_owned())
        .or_else(|| names.iter().find_map(|name| env.get(*name).cloned()))
}

/// The note on a case that was sent once more.
pub(crate) fn describe_profiled(profiled: &ProfiledCase) -> String {
    let case = &profiled.case;
    let Some(requests) = profiled.requests else {
        let why = profiled.failure.as_deref().unwrap_or("unknown");
        return format!("`{case}` failed, but could not be sent again with the profiler: {why}.");
    };
    let requests = match requests {
        1 => "1 request".to_owned(),
        count => format!("{count} requests"),
    };
    let folder = match &profiled.folder {
        Some(folder) => format!("the profile is in {folder}"),
        None => "the profile is where the engine writes it".to_owned(),
    };
    let failure = match &profiled.failure {
        Some(why) => format!(" The profile may be incomplete: {why}."),
        None => String::new(),
    };
    format!(
        "`{case}` failed and was sent again with the profiler ({requests}): {folder}. \
         This extra round is no part of any figure or verdict.{failure}"
    )
}

/// The pause between rounds; a signal ends it.
fn pause(length: Duration, stop: &Stop) {
    let end = Instant::now() + length;
    while stop.level() == Level::Run && Instant::now() < end {
        std::thread::sleep(
            Duration::from_millis(50).min(end.saturating_duration_since(Instant::now())),
        );
    }
}
