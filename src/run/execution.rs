//! Runs a plan from its preparation to its report: the order of cases and rounds, and their results.

pub(crate) mod local_model;
pub(crate) mod managed_server;
pub mod panics;
pub mod stop;
pub(crate) mod timestamps;

use crate::run::collector::tally::{Replies, note_absurd_counts};
use crate::run::error::RunError;
use crate::run::event::Event;
use crate::run::execution::local_model::{LocalModels, note_cut, note_model};
use crate::run::execution::managed_server::{ManagedProcess, ManagedServers};
use crate::run::execution::stop::{Level, Stop};
use crate::run::outputs::publish;
use crate::run::outputs::recover::{CaseOutcome, replay, settle_table};
use crate::run::prepare::{PreparedCase, describe_targets, list_models, prepare_cases, raise_open_file_limit, reach_all};
use crate::run::requests::row_usage::RowUsage;
use crate::run::round::telemetry::{Observer, TelemetryCheckpoint};
use crate::run::round::{PreparedRound, ProbeSize, RoundInput, RoundResult, prepare_round, run_round};
use crate::run::search::{PreparedSearch, run_search};
use crate::run::worker::target_health::FailFast;
use crate::store::journal::{self, Writer};
use crate::store::{RunDir, RunLocation, manifest};
use llmscen_analysis::Table;
use llmscen_client::counters::ImplausibleCounts;
use llmscen_client::route::Route;
use llmscen_core::early_stop::EarlyStop;
use llmscen_core::manifest::{FailedCase, Manifest, Part};
use llmscen_core::plan::{Case, Plan};
use llmscen_core::redact::Redactor;
use llmscen_core::report::Report;
use llmscen_core::telemetry::TelemetryRecord;
use llmscen_core::units::Nanos;
use llmscen_datasets::CacheDir;
use llmscen_report::{Inconclusive, prose};
use llmscen_telemetry::host::machine;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

/// A finished run, whatever its verdict.
pub struct CompletedRun {
    /// The report.
    pub report: Report,
    /// Run folder.
    pub folder: PathBuf,
    /// Why the run could not go on; the report covers the measurements up to then.
    pub fault: Option<RunError>,
}

/// What a run is given from outside: no code below reads the environment or the wall clock.
pub struct Context {
    /// Environment variables, for proxies.
    pub env: BTreeMap<String, String>,
    /// Source and cache of datasets.
    pub cache: CacheDir,
    /// This program, which also runs as the supervisor of managed servers.
    pub tool: PathBuf,
    /// `--output`: the run folder.
    pub output: Option<PathBuf>,
    /// `--only`, for the manifest: the plan already holds only these cases.
    pub only: Vec<String>,
    /// Overwrite a folder that contains another run.
    pub force: bool,
    /// `--keep-going`: continue a case even if its first requests all fail with the same HTTP status.
    pub keep_going: bool,
    /// How junit.xml shows an inconclusive verdict.
    pub inconclusive: Inconclusive,
    /// Start of the run on the monotonic clock.
    pub origin: Instant,
    /// The same time on the wall clock, in nanoseconds since the Unix epoch.
    pub wall_ns: u64,
    /// Ends the run.
    pub stop: Stop,
    /// Receives the events of the run.
    pub events: mpsc::Sender<Event>,
}

/// Runs a plan.
///
/// # Errors
/// The run could not start, or its results cannot be written. A later fault is part of the result.
pub fn run_plan(plan: &Plan, context: &Context) -> Result<CompletedRun, RunError> {
    let prepared = PreparedRun::new(plan, context)?;
    raise_open_file_limit(plan)?;
    let mut manifest = new_manifest(plan, prepared.notes(), context);
    let redactor = redactor(plan);
    let folder = create_folder(plan, &manifest, redactor.clone(), context)?;
    let (table, fault) = execute_rounds(plan, prepared, &folder, &mut manifest, context)?;
    manifest.elapsed_s = Some(context.origin.elapsed().as_secs_f64());
    manifest.error = fault.as_ref().map(RunError::brief);
    let manifest = redactor.redact_value(manifest);
    match (publish(plan, &table, &manifest, &folder, context.inconclusive), fault) {
        (Ok(report), fault) => Ok(CompletedRun { report, folder: folder.path().to_owned(), fault }),
        // The first fault is the cause: a full disk, for example, also prevents the report.
        (Err(_), Some(fault)) | (Err(fault), None) => Err(fault),
    }
}

/// What is prepared before the first request.
enum PreparedRun {
    /// Every case.
    Cases(Vec<PreparedCase>),
    /// The first probe of a capacity search.
    Search(Box<PreparedSearch>),
}

impl PreparedRun {
    fn new(plan: &Plan, context: &Context) -> Result<PreparedRun, RunError> {
        if !plan.searches.is_empty() {
            return PreparedSearch::new(plan, context).map(Box::new).map(PreparedRun::Search);
        }
        let prepared_cases = prepare_cases(plan, context)?;
        reach_all(&plan.cases, &prepared_cases, context)?;
        Ok(PreparedRun::Cases(prepared_cases))
    }

    fn notes(&self) -> Vec<String> {
        let prepared_cases = match self {
            PreparedRun::Cases(prepared_cases) => prepared_cases.as_slice(),
            PreparedRun::Search(search) => std::slice::from_ref(&search.first_case),
        };
        let mut notes = Vec::new();
        prepared_cases.iter().for_each(|prepared| prepared.add_notes(&mut notes));
        notes
    }
}

fn new_manifest(plan: &Plan, notes: Vec<String>, context: &Context) -> Manifest {
    for note in &notes {
        let _ = context.events.send(Event::Note(note.clone()));
    }
    Manifest {
        run_id: timestamps::run_id(&plan.id, context.wall_ns),
        tool_version: env!("CARGO_PKG_VERSION").into(),
        name: plan.name.clone(),
        plan_id: plan.id.clone(),
        seed: plan.seed.0,
        started_at: timestamps::rfc3339(context.wall_ns),
        started_unix_ns: context.wall_ns,
        machine: machine(),
        targets: describe_targets(plan, &context.env),
        only: context.only.clone(),
        notes: note_insecure_tls(plan).into_iter().chain(notes).collect(),
        ..Manifest::default()
    }
}

fn note_insecure_tls(plan: &Plan) -> Option<String> {
    let insecure = plan.cases.iter().any(|case| case.target.tls.insecure);
    insecure.then(|| "TLS certificates of the target are not verified (`target.tls.insecure: true`)".to_owned())
}

/// Creates the run folder and writes what is known at the start.
fn create_folder(plan: &Plan, manifest: &Manifest, redactor: Redactor, context: &Context) -> Result<RunDir, RunError> {
    let folder = RunDir::create(&RunLocation {
        explicit: context.output.as_deref(),
        dir: Path::new(&plan.report.dir),
        name: &plan.name,
        started: &timestamps::folder_name(context.wall_ns),
        force: context.force,
    })?;
    let folder = folder.with_redactor(redactor);
    folder.write("plan.yaml", plan.resolved.as_bytes())?;
    // A later report compares with the same baseline, even if the original file has changed.
    if let Some(text) = plan.baseline.as_ref().and_then(|baseline| baseline.text.as_ref()) {
        folder.write("baseline.json", text.as_bytes())?;
    }
    folder.seal()?;
    manifest::write(&folder, manifest)?;
    let _ = context.events.send(Event::Folder(folder.path().to_owned()));
    Ok(folder)
}

/// Runs every round of every case, up to the fault that ends the run early. Returns the rows.
fn execute_rounds(
    plan: &Plan,
    prepared: PreparedRun,
    folder: &RunDir,
    manifest: &mut Manifest,
    context: &Context,
) -> Result<(Table, Option<RunError>), RunError> {
    let mut execution = Execution::new(plan, folder, manifest, context)?;
    match prepared {
        PreparedRun::Search(search) => {
            if let Err(fault) = run_search(&mut execution, *search, plan, context) {
                execution.fault = Some(fault);
            }
        }
        PreparedRun::Cases(prepared_cases) => {
            let parts = plan.cases.len() * plan.rounds as usize;
            for (number, (round, index)) in round_order(plan).enumerate() {
                let case = &plan.cases[index];
                if is_aborted(case, execution.manifest) {
                    continue;
                }
                let input = execution.round_input(index, case, &prepared_cases[index], round, None);
                if !execution.run_round(&input, number, parts) {
                    break;
                }
            }
        }
    }
    execution.finish()
}

/// The round and the case index of each part of a run. Cases alternate within a round, so that drift of the server affects all cases
/// alike.
fn round_order(plan: &Plan) -> impl Iterator<Item = (u32, usize)> + use<> {
    let cases = plan.cases.len();
    (0..plan.rounds).flat_map(move |round| (0..cases).map(move |index| (round, index)))
}

/// Whether an earlier round of the case was aborted, so that further rounds cannot change the verdict.
fn is_aborted(case: &Case, manifest: &Manifest) -> bool {
    let aborted = |part: &Part| part.case == case.id && matches!(part.ending, Some(EarlyStop::Aborted(_)));
    manifest.parts.iter().any(aborted)
}

/// A run in progress, and its results so far.
pub struct Execution<'a> {
    plan: &'a Plan,
    folder: &'a RunDir,
    context: &'a Context,
    /// The manifest, with the parts so far.
    pub manifest: &'a mut Manifest,
    /// None while a round writes to it, and after an error of that round.
    journal: Option<Writer>,
    /// Rows of the last round, if it was a probe.
    pub probe_rows: Option<Table>,
    /// Why no request of the last round got a response, if so.
    pub unanswered: Option<String>,
    /// Outcomes that may be missing in the journal.
    unwritten: Vec<CaseOutcome>,
    /// State of the fail-fast check after the earlier rounds, by case index.
    fail_fast: BTreeMap<usize, FailFast>,
    /// Telemetry per round, in the order in which they ran.
    pub recorded: Vec<TelemetryRecord>,
    telemetry_checkpoint: TelemetryCheckpoint,
    observer: Arc<Observer>,
    row_usage: RowUsage,
    replies: Replies,
    /// Replies with impossible counts, by case.
    absurd: BTreeMap<String, ImplausibleCounts>,
    /// Notes that were sent as events already.
    sent_notes: Vec<String>,
    /// Why the run cannot go on.
    fault: Option<RunError>,
    /// Cases that cannot go on while others can: their server did not start, or every request failed alike.
    failed_cases: Vec<(String, RunError)>,
    /// Host and port of targets that were lost: nothing more is sent to them.
    lost_targets: Vec<String>,
    servers: ManagedServers,
    models: LocalModels,
    /// Pause between two rounds.
    pause: Duration,
    /// Whether a round has run.
    has_run: bool,
}

impl<'a> Execution<'a> {
    /// Starts with an empty journal.
    pub fn new(
        plan: &'a Plan,
        folder: &'a RunDir,
        manifest: &'a mut Manifest,
        context: &'a Context,
    ) -> Result<Execution<'a>, RunError> {
        let journal = Writer::create(&folder.file(journal::FILE))?;
        let observer = Arc::new(Observer::new(plan, context));
        if let Some(note) = &observer.note {
            manifest.notes.push(note.clone());
            let _ = context.events.send(Event::Note(note.clone()));
        }
        let drain = plan.searches.first().map(|quest| quest.spec.drain);
        Ok(Execution {
            plan,
            folder,
            context,
            journal: Some(journal),
            probe_rows: None,
            unanswered: None,
            unwritten: Vec::new(),
            fail_fast: BTreeMap::new(),
            recorded: Vec::new(),
            telemetry_checkpoint: TelemetryCheckpoint::default(),
            observer,
            row_usage: RowUsage::default(),
            replies: Replies::default(),
            absurd: BTreeMap::new(),
            sent_notes: manifest.notes.clone(),
            manifest,
            fault: None,
            failed_cases: Vec::new(),
            lost_targets: Vec::new(),
            servers: ManagedServers::new(plan.restart),
            models: LocalModels::default(),
            pause: drain.unwrap_or(plan.pause).into(),
            has_run: false,
        })
    }

    /// The facts of the next round of a case, before its server is started. `probe`: its size, if the round is a probe of a capacity
    /// search.
    pub fn round_input<'b>(
        &mut self,
        index: usize,
        case: &'b Case,
        prepared: &'b PreparedCase,
        round: u32,
        probe: Option<ProbeSize>,
    ) -> RoundInput<'b>
    where
        'a: 'b,
    {
        let seed = self.plan.seed.child(case.id.as_str()).child(u64::from(round));
        let planned = prepared.extent(case, seed).sessions;
        let earlier = self.fail_fast.get(&index).cloned().unwrap_or_default();
        let rounds = if probe.is_some() { 1 } else { u64::from(self.plan.rounds) };
        // The plan fixes the number of sessions, but the check counts requests.
        let requests = planned.filter(|_| !prepared.conversations).map(|planned| planned * rounds);
        RoundInput {
            index,
            case,
            prepared,
            round,
            probe,
            seed,
            planned,
            strides: self.row_usage.strides(case, prepared),
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
        if self.has_failed(input.case) {
            return true;
        }
        if target_address(input).is_some_and(|address| self.lost_targets.contains(&address)) {
            self.failed_cases.push((input.case.id.clone(), RunError::NotRun { round: input.round }));
            return true;
        }
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
        let interrupted = matches!(result, Err(RunError::Interrupted));
        if let Err(fault) = result {
            self.record_fault(input, fault);
        }
        // A capacity search needs every probe.
        let search_ended = input.probe.is_some() && self.has_failed(input.case);
        self.fault.is_none() && !interrupted && !search_ended
    }

    /// Prepares a round, starts its server or loads its model, runs it, and records the result.
    fn run_on_server(
        &mut self,
        input: &RoundInput<'_>,
        servers: &mut ManagedServers,
        number: usize,
        parts: usize,
    ) -> Result<(), RunError> {
        let prepared_round = self.prepare_round(input, servers)?;
        let server = servers.start_for_round(input.case, input.round, input.prepared, self.folder, self.context)?;
        let model = self.models.load(&input.case.target, self.plan.seed, self.context)?;
        let server_process = server.map(ManagedProcess::supervisor);
        let input = RoundInput { server, server_process, model, ..input.clone() };
        let Some(journal) = self.journal.take() else { return Ok(()) };
        self.announce(&input, number, parts);
        match run_round(&input, prepared_round, journal, self.context) {
            Ok(result) => self.record_result(&input, result),
            Err(fault) => self.fault = Some(fault),
        }
        Ok(())
    }

    /// Renders the first requests of a round, before its server is started, or while a running one is watched.
    fn prepare_round(&self, input: &RoundInput<'_>, servers: &ManagedServers) -> Result<PreparedRound, RunError> {
        let stop = self.context.stop.child();
        if let Some(server) = servers.current(input.case, input.round) {
            server.press_on_exit(&stop);
        }
        prepare_round(input, stop).map_err(|fault| match fault {
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
            total: input.planned.or(load.requests),
            seconds: load.sending_duration().map(Nanos::secs),
        });
    }

    fn has_failed(&self, case: &Case) -> bool {
        self.failed_cases.iter().any(|(failed, _)| *failed == case.id)
    }

    /// Records why a round failed. Other cases continue if they can.
    fn record_fault(&mut self, input: &RoundInput<'_>, fault: RunError) {
        let per_case = input.case.target.server.as_ref().is_some_and(|server| server.per_case);
        if matches!(fault, RunError::TargetLost(_)) && !per_case {
            self.lost_targets.extend(target_address(input));
        }
        match fault {
            RunError::Interrupted => {}
            fault if fault.affects_one_case(per_case) => self.failed_cases.push((input.case.id.clone(), fault)),
            fault => self.fault = Some(fault),
        }
    }

    /// Adds the result of a round to those of the run, and stores manifest and telemetry.
    fn record_result(&mut self, input: &RoundInput<'_>, result: RoundResult) {
        self.row_usage.add_round(input.prepared, &input.strides, input.planned, &result.sent);
        self.replies.add(&result.tally.replies);
        if let Some(absurd) = ImplausibleCounts::joined(self.absurd.remove(&input.case.id), result.absurd) {
            self.absurd.insert(input.case.id.clone(), absurd);
        }
        self.journal = Some(result.journal);
        self.manifest.parts.push(result.part);
        input.prepared.add_notes(&mut self.manifest.notes);
        note_model(self.manifest.parts.last(), &mut self.manifest.notes);
        note_cut(&self.manifest.parts, &input.case.id, &mut self.manifest.notes);
        list_models(input.case, input.prepared, result.tally.not_found, &mut self.manifest.served);
        let (case, round) = (input.index as u32, input.round);
        self.unwritten.extend(result.unwritten.into_iter().map(|outcome| CaseOutcome { case, round, outcome }));
        self.probe_rows = result.rows;
        self.unanswered = result.tally.unanswered();
        self.fail_fast.insert(input.index, result.tally.fail_fast);
        self.recorded.push(result.recorded);
        let stored = manifest::write(self.folder, self.manifest).map_err(RunError::from);
        let stored = stored.and_then(|()| self.telemetry_checkpoint.write(self.folder, &self.recorded, Instant::now()));
        if let Some(fault) = result.fault.or(stored.err()) {
            self.record_fault(input, fault);
        }
    }

    /// The rows of the run as a table, and the fault that ended it early.
    fn finish(mut self) -> Result<(Table, Option<RunError>), RunError> {
        self.servers.stop(&self.context.stop);
        let failed = self.failed_cases.iter().map(|(case, fault)| FailedCase { case: case.clone(), why: fault.brief() });
        self.manifest.failed = failed.collect();
        let first_failed = self.failed_cases.into_iter().next().map(|(_, fault)| fault);
        let fault = self.fault.or(first_failed);
        let why = fault.as_ref().map_or_else(String::new, RunError::brief);
        let replayed = replay(self.plan, &self.folder.file(journal::FILE), &self.unwritten, &why)?;
        let notes = &mut self.manifest.notes;
        notes.extend(self.row_usage.notes());
        notes.extend(self.replies.notes());
        notes.extend(replayed.damage.note(journal::FILE));
        notes.extend(note_absurd_counts(&self.absurd));
        for note in notes.iter().filter(|note| !self.sent_notes.contains(note)) {
            let _ = self.context.events.send(Event::Note(note.clone()));
        }
        // A panic presses the switch too.
        self.manifest.interrupted = self.context.stop.level() > Level::Run && panics::first().is_none();
        // A round that failed returned no part, but its rows are in the journal.
        let is_known =
            |part: &Part| self.manifest.parts.iter().any(|known| (&known.case, known.round) == (&part.case, part.round));
        let unfinished: Vec<Part> = replayed.parts.into_iter().filter(|part| !is_known(part)).collect();
        self.manifest.parts.extend(unfinished);
        Ok((settle_table(replayed.table, self.plan).with_telemetry(self.recorded), fault))
    }
}

/// Host and port of the target of a round; None for the simulator and a local model.
fn target_address(input: &RoundInput<'_>) -> Option<String> {
    input.prepared.route.as_ref().map(Route::host_and_port)
}

/// The pause between rounds; a signal ends it.
fn pause(length: Duration, stop: &Stop) {
    let end = Instant::now() + length;
    while stop.level() == Level::Run && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(50).min(end.saturating_duration_since(Instant::now())));
    }
}

/// Removes the secrets of a plan, also in their Markdown-escaped form.
pub fn redactor(plan: &Plan) -> Redactor {
    plan.redactor().with_encoding(prose)
}
