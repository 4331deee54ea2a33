//! From a plan to its report, as a list of steps.

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
use crate::run::prepare::{DatasetCache, PreparedCase, describe_targets, list_models, reach_all};
use crate::run::requests::row_usage::RowUsage;
use crate::run::requests::traffic_class::RowStride;
use crate::run::round::telemetry::{Observer, TelemetryCheckpoint};
use crate::run::round::{PreparedRound, ProbeSize, RoundResult, Turn, prepare_round, run_round};
use crate::run::search;
use crate::run::worker::target_health::FailFast;
use crate::store::journal::{self, Writer};
use crate::store::{RunDir, Where, bodies, manifest};
use llmscen_analysis::Table;
use llmscen_client::counters::Absurd;
use llmscen_client::route::Route;
use llmscen_core::early_stop::Ending;
use llmscen_core::load::Shape;
use llmscen_core::manifest::{FailedCase, Manifest, Part};
use llmscen_core::plan::{Case, Plan};
use llmscen_core::redact::Redactor;
use llmscen_core::report::Report;
use llmscen_core::seed::Seed;
use llmscen_core::target::Place;
use llmscen_core::telemetry::Recorded;
use llmscen_core::units::Nanos;
use llmscen_datasets::CacheDir;
use llmscen_report::{Inconclusive, prose};
use llmscen_telemetry::machine::machine;
use llmscen_telemetry::process::allow_open_files;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// Open files besides connections.
const SPARE_FILES: u64 = 128;
/// Asked for where nobody knows how many connections there will be: as many as Linux gives a process unless told otherwise.
const MANY_FILES: u64 = 1 << 20;

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
    let folder = open_folder(plan, &manifest, context)?;
    let (table, fault) = execute_rounds(plan, ready, &folder, &mut manifest, context)?;
    manifest.elapsed_s = Some(context.origin.elapsed().as_secs_f64());
    manifest.error = fault.as_ref().map(RunError::brief);
    let manifest = redactor(plan).clean_all(manifest);
    match (publish(plan, &table, &manifest, &folder, context.inconclusive), fault) {
        (Ok(report), fault) => Ok(CompletedRun { report, folder: folder.path().to_owned(), fault }),
        // A full disk also stops the report: what came first is the reason.
        (Err(_), Some(fault)) | (Err(fault), None) => Err(fault),
    }
}

fn raise_open_file_limit(plan: &Plan) -> Result<(), RunError> {
    let (wanted, connections) = plan.cases.iter().map(open_files).max().unwrap_or_default();
    let allowed = allow_open_files(if plan.cases.iter().any(boundless) { wanted.max(MANY_FILES) } else { wanted });
    if allowed >= wanted { Ok(()) } else { Err(RunError::OpenFiles { connections, wanted, allowed }) }
}

/// Whether its connections are as many as are in flight, and nothing bounds those.
fn boundless(case: &Case) -> bool {
    !case.load.shape.closed() && case.load.max_in_flight.is_none()
}

/// Open files that a case needs at the most, and the connections among them: one file each, two where the simulator in
/// this process holds the other end.
fn open_files(case: &Case) -> (u64, u64) {
    let connections = match (&case.load.shape, case.load.max_in_flight) {
        (Shape::Burst, None) => case.load.planned().unwrap_or(0),
        (shape, most) => u64::from(shape.users().or(most).unwrap_or(0)),
    };
    let ends = match case.target.place {
        Place::Url(_) => 1,
        Place::Local(_) => 0,
        Place::Simulator { .. } => 2,
    };
    (connections * ends + SPARE_FILES, connections)
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

fn open_folder(plan: &Plan, manifest: &Manifest, context: &Context) -> Result<RunDir, RunError> {
    let folder = RunDir::create(&Where {
        explicit: context.output.as_deref(),
        dir: Path::new(&plan.report.dir),
        name: &plan.name,
        started: &timestamps::folder_name(context.wall_ns),
        force: context.force,
    })?;
    let folder = folder.hiding(redactor(plan));
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

/// Plays every round of every case, interleaved, and keeps the rows, up to the fault that ends the run before its plan.
fn execute_rounds(
    plan: &Plan,
    ready: Ready,
    folder: &RunDir,
    manifest: &mut Manifest,
    context: &Context,
) -> Result<(Table, Option<RunError>), RunError> {
    let mut course = Execution::begin(plan, folder, manifest, context)?;
    match ready {
        Ready::Search(first) => {
            if let Err(fault) = search::run_search(&mut course, *first, plan, context) {
                course.fail(fault);
            }
        }
        Ready::Cases(benches) => {
            let parts = plan.cases.len() * plan.rounds as usize;
            for (number, (round, index)) in order(plan).enumerate() {
                if given_up(&plan.cases[index], course.manifest()) {
                    continue;
                }
                let (case, bench, place) = (&plan.cases[index], &benches[index], (number, parts));
                if !course.play(&Leg { index, case, bench, round, probe: None, place }) {
                    break;
                }
            }
        }
    }
    course.finish()
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
        let benches = PreparedCase::of_plan(plan, context)?;
        reach_all(&plan.cases, &benches, context)?;
        Ok(Ready::Cases(benches))
    }

    fn notes(&self) -> Vec<String> {
        let benches = match self {
            Ready::Cases(benches) => benches.as_slice(),
            Ready::Search(first) => std::slice::from_ref(&first.1),
        };
        let mut notes = Vec::new();
        benches.iter().for_each(|bench| bench.tell(&mut notes));
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

/// One round to play.
pub struct Leg<'a> {
    /// Index of its case in the plan.
    pub index: usize,
    /// Its case.
    pub case: &'a Case,
    /// Its bench.
    pub bench: &'a PreparedCase,
    /// Round of the case, from 0.
    pub round: u32,
    /// How it is a probe.
    pub probe: Option<ProbeSize>,
    /// Its place among the parts of the run, and how many there are.
    pub place: (usize, usize),
}

/// What a run has left so far.
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
    /// By case, what its requests so far say of those that come.
    seen: BTreeMap<usize, FailFast>,
    /// What was sampled, round by round as they ran.
    pub recorded: Vec<Recorded>,
    keeper: TelemetryCheckpoint,
    observer: Observer,
    ledger: RowUsage,
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
        let observer = Observer::of(plan, context);
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
            seen: BTreeMap::new(),
            recorded: Vec::new(),
            keeper: TelemetryCheckpoint::default(),
            observer,
            ledger: RowUsage::default(),
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

    /// Rests, and plays a round. False where the run is over: interrupted, or unable to go on.
    pub fn play(&mut self, leg: &Leg<'_>) -> bool {
        if self.lost.iter().any(|(case, _)| *case == leg.case.id) {
            return true;
        }
        if address(leg).is_some_and(|address| self.gone.contains(&address)) {
            self.lost.push((leg.case.id.clone(), RunError::NotRun { round: leg.round }));
            return true;
        }
        if std::mem::replace(&mut self.begun, true) {
            rest(self.pause, &self.context.stop);
        }
        if self.context.stop.level() > Level::Run {
            return false;
        }
        let mut servers = std::mem::take(&mut self.servers);
        let played = self.prepared(leg, &servers).and_then(|ready| {
            let server = servers.of((leg.case, leg.round), leg.bench, self.folder, self.context)?;
            self.round(leg, server, ready)
        });
        let stopped = matches!(played, Err(RunError::Interrupted));
        if let Err(fault) = played {
            self.give_up(leg, fault);
        }
        self.servers = servers;
        // A search needs every probe.
        let ended = leg.probe.is_some() && self.lost.iter().any(|(case, _)| *case == leg.case.id);
        self.fault.is_none() && !stopped && !ended
    }

    /// Notes what a case failed by. Other cases go on where they can.
    fn give_up(&mut self, leg: &Leg<'_>, fault: RunError) {
        let per_case = leg.case.target.server.as_ref().is_some_and(|server| server.per_case);
        if matches!(fault, RunError::TargetLost(_)) && !per_case {
            self.gone.extend(address(leg));
        }
        match fault {
            RunError::Interrupted => {}
            fault if fault.is_of_one_case(per_case) => self.lost.push((leg.case.id.clone(), fault)),
            fault => self.fault = Some(fault),
        }
    }

    /// The watch over the first requests of the case, of which some may have been sent in earlier rounds.
    fn fail_fast(&self, leg: &Leg<'_>, planned: Option<u64>) -> Option<FailFast> {
        let rounds = if leg.probe.is_some() { 1 } else { u64::from(self.plan.rounds) };
        // Sessions are planned, and requests are counted.
        let planned = planned.filter(|_| !leg.bench.conversations).map(|planned| planned * rounds);
        (!self.context.keep_going).then(|| self.seen(leg).over(planned))
    }

    fn seen(&self, leg: &Leg<'_>) -> FailFast {
        self.seen.get(&leg.index).cloned().unwrap_or_default()
    }

    fn seed(&self, leg: &Leg<'_>) -> Seed {
        self.plan.seed.child(leg.case.id.as_str()).child(u64::from(leg.round))
    }

    /// What the round begins with. It is made before its server is started, or beside the one that runs, whose end ends it.
    fn prepared(&mut self, leg: &Leg<'_>, servers: &ManagedServers) -> Result<PreparedRound, RunError> {
        let stop = self.context.stop.below();
        if let Some(server) = servers.current(leg.case, leg.round) {
            server.stops(&stop);
        }
        let walks = self.ledger.walks(leg.case, leg.bench);
        let ready = prepare_round(leg.case, leg.bench, (&walks, self.seed(leg)), stop);
        ready.map_err(|fault| match fault {
            RunError::Interrupted => servers.lost(leg.case, leg.round).unwrap_or(fault),
            fault => fault,
        })
    }

    fn round(&mut self, leg: &Leg<'_>, server: Option<&ManagedProcess>, ready: PreparedRound) -> Result<(), RunError> {
        let Leg { case, bench, round, .. } = *leg;
        let model = self.models.ready(&case.target, self.plan.seed, self.context)?;
        let Some(journal) = self.journal.take() else { return Ok(()) };
        let seed = self.seed(leg);
        let (walks, planned) = (self.ledger.walks(case, bench), bench.extent(case, seed).0);
        self.announce(leg, planned);
        let spool = self.folder.file(bodies::spool::FILE);
        let kept = (self.plan.report.bodies, spool.as_path());
        let (index, probe, folder, observer) = (leg.index as u32, leg.probe, self.folder, &self.observer);
        let turn = Turn {
            case,
            index,
            round,
            walks: &walks,
            planned,
            seed,
            probe,
            bodies: kept,
            model,
            folder,
            observer,
            server,
            guard: server.map(ManagedProcess::guard),
            fail_fast: self.fail_fast(leg, planned),
            seen: self.seen(leg),
        };
        let played = run_round(&turn, bench, ready, journal, self.context);
        self.keep(leg, (&walks, planned), played);
        Ok(())
    }

    fn keep(&mut self, leg: &Leg<'_>, (walks, planned): (&[RowStride], Option<u64>), played: Result<RoundResult, RunError>) {
        let done = match played {
            Ok(done) => done,
            Err(error) => {
                self.fault = Some(error);
                return;
            }
        };
        self.ledger.book(leg.bench, walks, planned, &done.sent);
        self.replies.add(&done.tally.replies);
        if let Some(absurd) = Absurd::joined(self.absurd.remove(&leg.case.id), done.absurd) {
            self.absurd.insert(leg.case.id.clone(), absurd);
        }
        self.journal = Some(done.journal);
        self.manifest.parts.push(done.part);
        leg.bench.tell(&mut self.manifest.notes);
        note_model(self.manifest.parts.last(), &mut self.manifest.notes);
        note_cut(&self.manifest.parts, &leg.case.id, &mut self.manifest.notes);
        list_models(leg.case, leg.bench, done.tally.not_found, &mut self.manifest.served);
        self.unwritten.extend(done.unwritten.into_iter().map(|own| (leg.index as u32, leg.round, own)));
        (self.probed, self.unanswered) = (done.rows, done.tally.unanswered());
        self.seen.insert(leg.index, done.tally.fail_fast);
        self.recorded.push(done.recorded);
        let noted = manifest::write(self.folder, self.manifest).map_err(RunError::from);
        let kept = noted.and_then(|()| self.keeper.keep(self.folder, &self.recorded, Instant::now()));
        if let Some(fault) = done.fault.or(kept.err()) {
            self.give_up(leg, fault);
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
        self.manifest.notes.extend(self.ledger.notes());
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
        Ok((settle_table(rows.table, self.plan).beside(self.recorded), fault))
    }

    fn announce(&self, leg: &Leg<'_>, planned: Option<u64>) {
        let load = &leg.case.load;
        let ((part, parts), total) = (leg.place, planned.or(load.requests));
        let seconds = load.lasts().map(Nanos::secs);
        let (case, round) = (leg.case.id.clone(), leg.round);
        let _ = self.context.events.send(Event::CaseStarted { case, round, part, parts, total, seconds });
    }
}

/// Host and port of the target of a round; None for the simulator and for a model in this process.
fn address(leg: &Leg<'_>) -> Option<String> {
    leg.bench.route.as_ref().map(Route::host_and_port)
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

#[cfg(test)]
mod tests {
    use super::*;
    use llmscen_scenario::Input;
    use std::collections::BTreeMap;

    fn plan(target: &str, load: &str) -> Plan {
        let text = format!("version: 1\nname: t\ntarget: {target}\ndataset: {{ kind: prompt, text: x }}\nload: {load}\n");
        let input = Input { path: Path::new("t.yaml"), text: Some(text), env: &BTreeMap::new(), set: &[] };
        llmscen_scenario::load(&input).unwrap_or_else(|faults| panic!("{}", faults.render(false, 120))).plan
    }

    #[test]
    fn only_a_load_that_nothing_bounds_asks_for_every_file() {
        let url = "{ url: \"http://h/v1/chat/completions\", model: m }";
        let of = |load| boundless(&plan(url, load).cases[0]);
        assert!(of("{ rate: 5/s, duration: 9s }"));
        assert!(!of("{ rate: 5/s, duration: 9s, max_in_flight: 7 }") && !of("{ concurrency: 8, requests: 9 }"));
    }

    #[test]
    fn a_connection_is_one_open_file_and_two_where_the_simulator_is_in_this_process() {
        let url = "{ url: \"http://h/v1/chat/completions\", model: m }";
        for (target, load, files) in [
            (url, "{ concurrency: 1000, requests: 5000 }", 1000),
            ("{ api: simulator }", "{ concurrency: 1000, requests: 5000 }", 2000),
            (url, "{ rate: burst, requests: 300, warmup: 20 }", 320),
            (url, "{ rate: 5/s, duration: 9s, max_in_flight: 7 }", 7),
        ] {
            assert_eq!(open_files(&plan(target, load).cases[0]).0 - SPARE_FILES, files, "{load}");
        }
    }
}
