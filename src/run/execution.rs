//! Runs a plan from its preparation to its report: the order of cases and rounds, and what they leave.

pub(crate) mod local_model;
pub(crate) mod managed_server;
pub mod panics;
pub mod stop;
pub(crate) mod timestamps;

use crate::run::collector::tally::{self, Replies};
use crate::run::error::RunError;
use crate::run::event::Event;
use crate::run::execution::local_model::{LocalModels, note_cut, note_model};
use crate::run::execution::managed_server::{ManagedProcess, ManagedServers};
use crate::run::execution::stop::{Level, Stop};
use crate::run::outputs::publish;
use crate::run::outputs::recover::{Placed, replay, settle_table};
use crate::run::prepare::{DatasetCache, PreparedCase, describe_targets, list_models, raise_open_file_limit, reach_all};
use crate::run::requests::row_usage::RowUsage;
use crate::run::round::telemetry::{Observer, TelemetryCheckpoint};
use crate::run::round::{PreparedRound, ProbeSize, RoundInput, RoundResult, prepare_round, run_round};
use crate::run::search;
use crate::run::worker::target_health::FailFast;
use crate::store::journal::{self, Writer};
use crate::store::{RunDir, Where, manifest};
use llmscen_analysis::Table;
use llmscen_client::counters::Absurd;
use llmscen_client::route::Route;
use llmscen_core::early_stop::Ending;
use llmscen_core::manifest::{FailedCase, Manifest, Part};
use llmscen_core::plan::{Case, Plan};
use llmscen_core::redact::Redactor;
use llmscen_core::report::Report;
use llmscen_core::telemetry::Recorded;
use llmscen_core::units::Nanos;
use llmscen_datasets::CacheDir;
use llmscen_report::{Inconclusive, prose};
use llmscen_telemetry::host::machine;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

/// A run that came to its end, whatever the verdict.
pub struct CompletedRun {
    /// The report.
    pub report: Report,
    /// The run folder.
    pub folder: PathBuf,
    /// Why the run could not go on; the report holds what was measured by then.
    pub fault: Option<RunError>,
}

/// Runs a plan.
pub fn run_plan(plan: &Plan, context: &Context) -> Result<CompletedRun, RunError> {
    let ready = Ready::of(plan, context)?;
    raise_open_file_limit(plan)?;
    let mut manifest = begin(plan, ready.notes(), context);
    let redactor = redactor(plan);
    let folder = open_folder(plan, &manifest, redactor.clone(), context)?;
    let (table, fault) = execute_rounds(plan, ready, &folder, &mut manifest, context)?;
    manifest.elapsed_s = Some(context.origin.elapsed().as_secs_f64());
    manifest.error = fault.as_ref().map(RunError::brief);
    let manifest = redactor.clean_all(manifest);
    match (publish(plan, &table, &manifest, &folder, context.inconclusive), fault) {
        (Ok(report), fault) => Ok(CompletedRun { report, folder: folder.path().to_owned(), fault }),
        // A full disk also stops the report: what came first is the reason.
        (Err(_), Some(fault)) | (Err(fault), None) => Err(fault),
    }
}

fn begin(plan: &Plan, notes: Vec<String>, context: &Context) -> Manifest {
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
        notes: unchecked(plan).into_iter().chain(notes).collect(),
        ..Manifest::default()
    }
}

/// Says that the certificates of the target prove nothing, where the scenario wants it so.
fn unchecked(plan: &Plan) -> Option<String> {
    let insecure = plan.cases.iter().any(|case| case.target.tls.insecure);
    insecure.then(|| "TLS certificates of the target are not verified (`target.tls.insecure: true`)".to_owned())
}

fn open_folder(plan: &Plan, manifest: &Manifest, redactor: Redactor, context: &Context) -> Result<RunDir, RunError> {
    let folder = RunDir::create(&Where {
        explicit: context.output.as_deref(),
        dir: Path::new(&plan.report.dir),
        name: &plan.name,
        started: &timestamps::folder_name(context.wall_ns),
        force: context.force,
    })?;
    let folder = folder.hiding(redactor);
    folder.write("plan.yaml", plan.resolved.as_bytes())?;
    // The report of this run is to be judged by the same baseline again, whatever becomes of the file.
    if let Some(text) = plan.baseline.as_ref().and_then(|baseline| baseline.text.as_ref()) {
        folder.write("baseline.json", text.as_bytes())?;
    }
    folder.seal()?;
    manifest::write(&folder, manifest)?;
    let _ = context.events.send(Event::Folder(folder.path().to_owned()));
    Ok(folder)
}

/// Runs every round of every case, interleaved, and keeps the rows, up to the fault that ends the run before its plan.
fn execute_rounds(
    plan: &Plan,
    ready: Ready,
    folder: &RunDir,
    manifest: &mut Manifest,
    context: &Context,
) -> Result<(Table, Option<RunError>), RunError> {
    let mut execution = Execution::begin(plan, folder, manifest, context)?;
    match ready {
        Ready::Search(first) => {
            if let Err(fault) = search::run_search(&mut execution, *first, plan, context) {
                execution.fail(fault);
            }
        }
        Ready::Cases(prepared_cases) => {
            let parts = plan.cases.len() * plan.rounds as usize;
            for (number, (round, index)) in order(plan).enumerate() {
                if given_up(&plan.cases[index], execution.manifest()) {
                    continue;
                }
                let input = execution.round_input(index, &plan.cases[index], &prepared_cases[index], round, None);
                if !execution.run_round(&input, number, parts) {
                    break;
                }
            }
        }
    }
    execution.finish()
}

/// What must be ready before anything is sent.
enum Ready {
    /// Every case.
    Cases(Vec<PreparedCase>),
    /// The first probe of a search, and what was opened for it.
    Search(Box<(DatasetCache, PreparedCase)>),
}

impl Ready {
    fn of(plan: &Plan, context: &Context) -> Result<Ready, RunError> {
        if !plan.quests.is_empty() {
            return search::prepare_search(plan, context).map(Box::new).map(Ready::Search);
        }
        let prepared_cases = PreparedCase::of_plan(plan, context)?;
        reach_all(&plan.cases, &prepared_cases, context)?;
        Ok(Ready::Cases(prepared_cases))
    }

    fn notes(&self) -> Vec<String> {
        let prepared_cases = match self {
            Ready::Cases(prepared_cases) => prepared_cases.as_slice(),
            Ready::Search(first) => std::slice::from_ref(&first.1),
        };
        let mut notes = Vec::new();
        prepared_cases.iter().for_each(|prepared| prepared.tell(&mut notes));
        notes
    }
}

/// Whether a limit of the case was lost in an earlier round: more of them decide nothing.
fn given_up(case: &Case, manifest: &Manifest) -> bool {
    let lost = |part: &Part| part.case == case.id && matches!(part.ending, Some(Ending::Aborted(_)));
    manifest.parts.iter().any(lost)
}

/// Rounds outside, cases inside: drift of the server strikes all cases alike.
fn order(plan: &Plan) -> impl Iterator<Item = (u32, usize)> + use<> {
    let cases = plan.cases.len();
    (0..plan.rounds).flat_map(move |round| (0..cases).map(move |index| (round, index)))
}

/// What a run is given from outside: nothing below reads the environment or the wall clock.
pub struct Context {
    /// Environment variables, for proxies.
    pub env: BTreeMap<String, String>,
    /// Where datasets are downloaded from and kept.
    pub cache: CacheDir,
    /// This program, which watches over servers under management as a process of its own.
    pub tool: PathBuf,
    /// `--output`: the run folder itself.
    pub output: Option<PathBuf>,
    /// `--only`, for the record: the plan holds the chosen cases alone.
    pub only: Vec<String>,
    /// Write into a folder that holds another run.
    pub force: bool,
    /// `--keep-going`: a case goes on though its first requests all fail with the same HTTP status.
    pub keep_going: bool,
    /// What an inconclusive ruling is in junit.xml.
    pub inconclusive: Inconclusive,
    /// The run's start on the monotonic clock.
    pub origin: Instant,
    /// The same instant on the wall clock, nanoseconds since the Unix epoch.
    pub wall_ns: u64,
    /// The switch.
    pub stop: Stop,
    /// Who watches.
    pub events: mpsc::Sender<Event>,
}

/// A run that is under way, and what it has left so far.
pub struct Execution<'a> {
    plan: &'a Plan,
    folder: &'a RunDir,
    context: &'a Context,
    manifest: &'a mut Manifest,
    journal: Option<Writer>,
    /// The rows of the last round, where it was a probe.
    pub probed: Option<Table>,
    /// Why not one request of the last round got any answer, where that is so.
    pub unanswered: Option<String>,
    /// Outcomes that may be missing in the journal.
    unwritten: Vec<Placed>,
    /// By case, what is known of its earlier requests.
    earlier: BTreeMap<usize, FailFast>,
    /// What was sampled, round by round as they ran.
    pub recorded: Vec<Recorded>,
    telemetry_checkpoint: TelemetryCheckpoint,
    observer: Arc<Observer>,
    row_usage: RowUsage,
    replies: Replies,
    /// Replies whose counts cannot be true, by case.
    absurd: BTreeMap<String, Absurd>,
    told: Vec<String>,
    fault: Option<RunError>,
    servers: ManagedServers,
    /// Cases that cannot go on while the others can: their server could not be had, or every request failed alike.
    lost: Vec<(String, RunError)>,
    /// Host and port of targets that went away: nothing is sent to them again.
    gone: Vec<String>,
    models: LocalModels,
    /// Rests of this length stand between two rounds.
    pause: Duration,
    begun: bool,
}

impl<'a> Execution<'a> {
    /// Begins with an empty journal.
    pub fn begin(
        plan: &'a Plan,
        folder: &'a RunDir,
        manifest: &'a mut Manifest,
        context: &'a Context,
    ) -> Result<Execution<'a>, RunError> {
        let journal = Some(Writer::create(&folder.file(journal::FILE))?);
        let observer = Arc::new(Observer::of(plan, context));
        if let Some(note) = &observer.note {
            manifest.notes.push(note.clone());
            let _ = context.events.send(Event::Note(note.clone()));
        }
        let (told, drain) = (manifest.notes.clone(), plan.quests.first().map(|quest| quest.spec.drain));
        let pause = drain.unwrap_or(plan.pause).into();
        let (servers, lost, gone) = (ManagedServers::new(plan.restart), Vec::new(), Vec::new());
        Ok(Execution {
            plan,
            folder,
            context,
            manifest,
            journal,
            probed: None,
            unanswered: None,
            unwritten: Vec::new(),
            earlier: BTreeMap::new(),
            recorded: Vec::new(),
            telemetry_checkpoint: TelemetryCheckpoint::default(),
            observer,
            row_usage: RowUsage::default(),
            replies: Replies::default(),
            absurd: BTreeMap::new(),
            told,
            fault: None,
            servers,
            lost,
            gone,
            models: LocalModels::default(),
            pause,
            begun: false,
        })
    }

    /// The facts of the next round of a case, before its server is started. `probe`: where the round is a probe of a search.
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
        let planned = prepared.extent(case, seed).0;
        let earlier = self.earlier.get(&index).cloned().unwrap_or_default();
        let rounds = if probe.is_some() { 1 } else { u64::from(self.plan.rounds) };
        // Sessions are planned, and requests are counted.
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
            fail_fast: (!self.context.keep_going).then(|| earlier.clone().over(requests)),
            earlier,
            folder: self.folder,
            bodies: self.plan.report.bodies,
            observer: self.observer.clone(),
            server: None,
            server_process: None,
            model: None,
        }
    }

    /// Pauses, and runs a round, the `number`-th of `rounds`. False where the run is over: interrupted, or unable to go on.
    pub fn run_round(&mut self, input: &RoundInput<'_>, number: usize, rounds: usize) -> bool {
        if self.lost.iter().any(|(case, _)| *case == input.case.id) {
            return true;
        }
        if address(input).is_some_and(|address| self.gone.contains(&address)) {
            self.lost.push((input.case.id.clone(), RunError::NotRun { round: input.round }));
            return true;
        }
        if std::mem::replace(&mut self.begun, true) {
            rest(self.pause, &self.context.stop);
        }
        if self.context.stop.level() > Level::Run {
            return false;
        }
        let mut servers = std::mem::take(&mut self.servers);
        let result = self.prepare(input, &servers).and_then(|ready| {
            let server = servers.of((input.case, input.round), input.prepared, self.folder, self.context)?;
            let model = self.models.ready(&input.case.target, self.plan.seed, self.context)?;
            let server_process = server.map(ManagedProcess::guard);
            let input = RoundInput { server, server_process, model, ..input.clone() };
            let Some(journal) = self.journal.take() else { return Ok(()) };
            self.announce(&input, number, rounds);
            match run_round(&input, ready, journal, self.context) {
                Ok(result) => self.keep(&input, result),
                Err(fault) => self.fault = Some(fault),
            }
            Ok(())
        });
        let stopped = matches!(result, Err(RunError::Interrupted));
        if let Err(fault) = result {
            self.give_up(input, fault);
        }
        self.servers = servers;
        // A search needs every probe.
        let ended = input.probe.is_some() && self.lost.iter().any(|(case, _)| *case == input.case.id);
        self.fault.is_none() && !stopped && !ended
    }

    /// Notes what a case failed by. Other cases go on where they can.
    fn give_up(&mut self, input: &RoundInput<'_>, fault: RunError) {
        let per_case = input.case.target.server.as_ref().is_some_and(|server| server.per_case);
        if matches!(fault, RunError::TargetLost(_)) && !per_case {
            self.gone.extend(address(input));
        }
        match fault {
            RunError::Interrupted => {}
            fault if fault.is_of_one_case(per_case) => self.lost.push((input.case.id.clone(), fault)),
            fault => self.fault = Some(fault),
        }
    }

    /// Renders the first requests of a round before its server is started, or while the one that runs already is watched.
    fn prepare(&self, input: &RoundInput<'_>, servers: &ManagedServers) -> Result<PreparedRound, RunError> {
        let stop = self.context.stop.below();
        if let Some(server) = servers.current(input.case, input.round) {
            server.stops(&stop);
        }
        prepare_round(input, stop).map_err(|fault| match fault {
            RunError::Interrupted => servers.lost(input.case, input.round).unwrap_or(fault),
            fault => fault,
        })
    }

    fn keep(&mut self, input: &RoundInput<'_>, result: RoundResult) {
        self.row_usage.book(input.prepared, &input.strides, input.planned, &result.sent);
        self.replies.add(&result.tally.replies);
        if let Some(absurd) = Absurd::joined(self.absurd.remove(&input.case.id), result.absurd) {
            self.absurd.insert(input.case.id.clone(), absurd);
        }
        self.journal = Some(result.journal);
        self.manifest.parts.push(result.part);
        input.prepared.tell(&mut self.manifest.notes);
        note_model(self.manifest.parts.last(), &mut self.manifest.notes);
        note_cut(&self.manifest.parts, &input.case.id, &mut self.manifest.notes);
        list_models(input.case, input.prepared, result.tally.not_found, &mut self.manifest.served);
        self.unwritten.extend(result.unwritten.into_iter().map(|own| (input.index as u32, input.round, own)));
        self.probed = result.rows;
        self.unanswered = result.tally.unanswered();
        self.earlier.insert(input.index, result.tally.fail_fast);
        self.recorded.push(result.recorded);
        let noted = manifest::write(self.folder, self.manifest).map_err(RunError::from);
        let kept = noted.and_then(|()| self.telemetry_checkpoint.keep(self.folder, &self.recorded, Instant::now()));
        if let Some(fault) = result.fault.or(kept.err()) {
            self.give_up(input, fault);
        }
    }

    /// The parts so far.
    pub fn manifest(&self) -> &Manifest {
        self.manifest
    }

    /// Gives up what comes; the reason ends up in the report.
    pub fn fail(&mut self, fault: RunError) {
        self.fault = Some(fault);
    }

    /// The rows of the whole run as a table, and the fault that ended it before its plan.
    pub fn finish(mut self) -> Result<(Table, Option<RunError>), RunError> {
        self.servers.stop(&self.context.stop);
        let failed = self.lost.iter().map(|(case, fault)| FailedCase { case: case.clone(), why: fault.brief() });
        self.manifest.failed = failed.collect();
        let fault = self.fault.or_else(|| self.lost.into_iter().next().map(|(_, fault)| fault));
        self.manifest.notes.extend(self.row_usage.notes());
        self.manifest.notes.extend(self.replies.notes());
        let why = fault.as_ref().map_or_else(String::new, RunError::brief);
        let rows = replay(self.plan, &self.folder.file(journal::FILE), &self.unwritten, &why)?;
        self.manifest.notes.extend(rows.damage.note());
        self.manifest.notes.extend(tally::absurd(&self.absurd));
        for note in self.manifest.notes.iter().filter(|note| !self.told.contains(note)) {
            let _ = self.context.events.send(Event::Note(note.clone()));
        }
        // A panic presses the switch too.
        self.manifest.interrupted = self.context.stop.level() > Level::Run && panics::first().is_none();
        // A round that broke off reported nothing, and its rows are in the journal.
        let known = |part: &Part| self.manifest.parts.iter().any(|own| (&own.case, own.round) == (&part.case, part.round));
        let lost: Vec<Part> = rows.parts.into_iter().filter(|part| !known(part)).collect();
        self.manifest.parts.extend(lost);
        Ok((settle_table(rows.table, self.plan).with_telemetry(self.recorded), fault))
    }

    fn announce(&self, input: &RoundInput<'_>, number: usize, rounds: usize) {
        let load = &input.case.load;
        let _ = self.context.events.send(Event::CaseStarted {
            case: input.case.id.clone(),
            round: input.round,
            part: number,
            parts: rounds,
            total: input.planned.or(load.requests),
            seconds: load.lasts().map(Nanos::secs),
        });
    }
}

/// Host and port of the target of a round; None for the simulator and for a model in this process.
fn address(input: &RoundInput<'_>) -> Option<String> {
    input.prepared.route.as_ref().map(Route::host_and_port)
}

/// The pause between rounds; a signal ends it.
fn rest(pause: Duration, stop: &Stop) {
    let until = Instant::now() + pause;
    while stop.level() == Level::Run && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(50).min(until.saturating_duration_since(Instant::now())));
    }
}

/// Knows the secrets of a plan, also as reports in Markdown spell them.
pub fn redactor(plan: &Plan) -> Redactor {
    plan.redactor().spelled(prose)
}
