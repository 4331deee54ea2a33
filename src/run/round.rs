//! One round of one case: warm up, drive, drain, collect.

mod preconnect;
pub mod telemetry;

use crate::run::audit::many;
use crate::run::collector::body_recorder::BodyRecorder;
use crate::run::collector::early_stop::EarlyStop;
use crate::run::collector::futility_stop::FutilityStop;
use crate::run::collector::live_metrics::{LiveMetrics, Spans};
use crate::run::collector::tally::Tally;
use crate::run::collector::{Collected, Collector, CollectorState};
use crate::run::error::RunError;
use crate::run::execution::Context;
use crate::run::execution::local_model::{LogitsWriter, describe_local, local_session, open_engine};
use crate::run::execution::managed_server::ManagedProcess;
use crate::run::execution::panics::{self, Sending};
use crate::run::execution::stop::{Level, Stop};
use crate::run::outputs::recover::measured_from;
use crate::run::prepare::PreparedCase;
use crate::run::requests::row_usage::{self, SentRows};
use crate::run::requests::traffic_class::{MixAssignment, RowStride, strided_prompts, tokenizers};
use crate::run::requests::turn_renderer::{TurnRenderer, TurnRequest, TurnSource};
use crate::run::requests::{RequestGenerator, RequestQueue};
use crate::run::round::preconnect::{connections_needed, connections_needed_in_all, lead_time};
use crate::run::round::telemetry::Observer;
use crate::run::worker::concurrency_limit::{BatchBarrier, ConcurrencyLimit};
use crate::run::worker::handle::{WorkerHandle, WorkerReport, total_counters, worker_count};
use crate::run::worker::session_runner::SessionRunner;
use crate::run::worker::target_health::{FailFast, TargetHealth};
use crate::run::worker::timer::Timer;
use crate::run::worker::{InFlightLimit, Worker};
use crate::store::journal::Writer;
use crate::store::{Record, RunDir};
use async_channel::{Receiver, Sender, bounded};
use llmscen_analysis::{Builder, Table};
use llmscen_client::clock::Clock;
use llmscen_client::counters::{Absurd, Gauges};
use llmscen_client::http::{Finished, Setting};
use llmscen_client::retry::Manners;
use llmscen_client::route::Route;
use llmscen_core::artifacts::Bodies;
use llmscen_core::call::Call;
use llmscen_core::load::Shape;
use llmscen_core::manifest::{Part, Vitals};
use llmscen_core::outcome::Outcome;
use llmscen_core::plan::Case;
use llmscen_core::redact::Redactor;
use llmscen_core::schedule::quota::Quota;
use llmscen_core::schedule::users;
use llmscen_core::search::Part as Probe;
use llmscen_core::seed::Seed;
use llmscen_core::target::Place;
use llmscen_core::telemetry::{Reading, Recorded};
use llmscen_core::units::Nanos;
use llmscen_datasets::Prompts;
use llmscen_local::host::Host;
use llmscen_local::session::Session;
use llmscen_simulator::Truth;
use llmscen_telemetry::process::memory_peak;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Instant;

/// Finished calls that may wait for the collector.
const RESULTS: usize = 4096;

/// What a round begins with; none of it takes the server.
pub struct PreparedRound {
    prompts: Vec<Arc<dyn Prompts>>,
    feed: RequestQueue,
    /// The run's switch, as far as this round goes.
    stop: Stop,
}

/// Makes the first requests of a round ready, until its switch `stop` is pressed.
///
/// # Errors
/// They cannot be made; or the switch came first: [`RunError::Interrupted`].
pub fn prepare_round(
    case: &Case,
    bench: &PreparedCase,
    (walks, seed): (&[RowStride], Seed),
    stop: Stop,
) -> Result<PreparedRound, RunError> {
    let prompts = strided_prompts(&bench.lines, walks);
    let feed = RequestQueue::start(RequestGenerator::new(case, bench, &prompts, seed), worker_count(case), &stop)?;
    Ok(PreparedRound { prompts, feed, stop })
}

/// Plays one round. An error means that nothing of it was measured.
pub fn run_round(
    turn: &Turn,
    bench: &PreparedCase,
    ready: PreparedRound,
    mut journal: Writer,
    context: &Context,
) -> Result<RoundResult, RunError> {
    let PreparedRound { prompts, feed, stop } = ready;
    let sending = Sending::begin();
    turn.server.iter().for_each(|own| own.stops(&stop));
    let server = start_simulator(turn.case, turn.seed)?;
    let address = server.as_ref().map(|server| server.addr());
    let sampler = turn.observer.start(turn.case, turn.guard, address)?;
    let origin = Instant::now() + lead_time(turn.case, connections_needed_in_all(turn.case, &feed));
    sampler.count_from(origin);
    let route = route_of_round(bench.route.as_ref(), server.as_ref(), turn.case)?;
    let mut part = Part { case: turn.case.id.clone(), round: turn.round, ..Part::default() };
    part.origin_ns = (origin - context.origin).as_nanos() as u64;
    journal.append(&Record::Started { case: turn.index, round: turn.round, origin_ns: part.origin_ns })?;
    let (sender, results) = bounded(RESULTS);
    let stage = RoundState::new(turn, bench, (route, stop), Clock::starting(origin), context);
    let desk = CollectorState { keeper: BodyRecorder::of(turn, stage.route.as_ref())?, ..stage.desk(journal) };
    let collector = Collector::start(desk, results)?;
    let own = bench.lines.iter().zip(&prompts);
    let styles = || own.map(|(line, own)| TurnSource::new(line.clone(), own.clone(), turn.seed)).collect();
    let scribe = bench.conversations.then(|| TurnRenderer::start(styles(), stage.halt.clone())).transpose()?;
    let running = stage.start_lanes(&feed, scribe.as_ref(), sender);
    let lanes: Vec<Result<WorkerReport, RunError>> =
        running.into_iter().map(|lane| lane.and_then(WorkerHandle::finish)).collect();
    let (mut readings, untold) = sampler.finish();
    let redactor = Redactor::of(&turn.case.target);
    redact_readings(&redactor, &mut readings);
    let (data_ended, fed) = match feed.finish() {
        Ok(ended) => (ended, None),
        Err(fault) => (None, Some(fault)),
    };
    let written = scribe.map_or(Ok(()), TurnRenderer::finish);
    let Collected { mut tally, rows, mut journal, fault, unwritten, ending, hopeless } = collector.finish()?;
    (part.ending, part.untold) = (ending.or(stage.contact.ending()), untold);
    part.probe = turn.probe.map(|ProbeSize { share, .. }| Probe { share, hopeless });
    drop((server, sending));
    let (reports, faults): (Vec<_>, Vec<_>) = lanes.into_iter().partition(Result::is_ok);
    let places = MixAssignment::new(turn.case, turn.seed, bench.arrivals.as_ref());
    let begun = tally.begun();
    let sent = row_usage::count_sent_rows(bench, turn.walks, places, &begun);
    part.dataset_ended = data_ended.is_some_and(|sessions| begun.len() as u64 >= sessions);
    part.rows_repeated = sent.iter().map(|line| line.repeated).sum();
    stage.describe(&mut part, tally.measured_from, reports.into_iter().flatten().collect());
    let lost = turn.server.and_then(|own| own.note(&mut part, origin, tally.first_answer()));
    let behind = fed.or(written.err()).or(stage.sheets.fault()).or(lost);
    let fault = fault.map(RunError::from).or_else(|| faults.into_iter().find_map(Result::err)).or(behind);
    let fault = fault.or_else(|| panics::first().map(RunError::Defect));
    if let Some(fault) = &fault {
        part.cut_short = Some(fault.brief());
    }
    let fault = fault.or_else(|| part.ending.as_ref().and_then(RunError::of_ending));
    // Case ids hold no secrets, and the rows are found by them.
    let case = part.case.clone();
    let part = Part { case, ..redactor.clean_all(part) };
    let closed = journal.append(&Record::Ended { part: part.clone() }).and_then(|()| journal.flush());
    let recorded = Recorded { case: turn.case.id.clone(), round: turn.round, readings };
    tally.replies.unstreamed = total_counters(&stage.gauges).unstreamed;
    let absurd = stage.gauges.iter().map(|gauges| gauges.absurd()).fold(None, Absurd::joined);
    let (rows, fault) = (rows.map(Builder::finish), fault.or(closed.err().map(RunError::from)));
    Ok(RoundResult { part, tally, absurd, rows, unwritten, sent, recorded, journal, fault })
}

/// Names and labels come from pages of servers.
fn redact_readings(redactor: &Redactor, readings: &mut [Reading]) {
    for reading in readings {
        for text in [&mut reading.name, &mut reading.labels] {
            let clean = redactor.strike(text.to_string());
            if *clean != **text {
                *text = clean.into();
            }
        }
    }
}

/// What the lanes of one round share.
struct RoundState<'a> {
    turn: &'a Turn<'a>,
    bench: &'a PreparedCase,
    route: Option<Route>,
    /// The round as a model in this process sees it.
    session: Option<(Arc<Host>, Arc<Session>)>,
    /// Keeps logits.
    sheets: Arc<LogitsWriter>,
    clock: Clock,
    context: &'a Context,
    gauges: Vec<Arc<Gauges>>,
    quota: Arc<Quota>,
    room: Option<Arc<InFlightLimit>>,
    rounds: Option<Arc<BatchBarrier>>,
    spent: Stop,
    halt: Stop,
    contact: Arc<TargetHealth>,
    /// The run's switch, as far as this round goes.
    stop: Stop,
}

impl<'a> RoundState<'a> {
    fn new(
        turn: &'a Turn,
        bench: &'a PreparedCase,
        (route, stop): (Option<Route>, Stop),
        clock: Clock,
        context: &'a Context,
    ) -> RoundState<'a> {
        let load = &turn.case.load;
        let room = load.max_in_flight.map(|most| Arc::new(InFlightLimit { taken: AtomicU64::new(0), most: u64::from(most) }));
        let rounds = if let Shape::Static { batch } = load.shape { Some(Arc::new(BatchBarrier::new(batch))) } else { None };
        let (spent, halt) = (Stop::default(), Stop::default());
        let sheets = Arc::new(LogitsWriter::new(turn, halt.clone()));
        let contact = Arc::new(TargetHealth::new(stop.clone(), context.events.clone(), turn.fail_fast.clone()));
        let over = [&spent, &halt, &stop].map(Clone::clone);
        let session = turn.model.clone().map(|host| (host, Arc::new(local_session(turn.case, clock, Some(&sheets), over))));
        RoundState {
            turn,
            bench,
            route,
            session,
            sheets,
            clock,
            context,
            gauges: (0..worker_count(turn.case)).map(|_| Arc::default()).collect(),
            quota: Arc::new(Quota::new(load)),
            room,
            rounds,
            spent,
            halt,
            contact,
            stop,
        }
    }

    fn desk(&self, journal: Writer) -> CollectorState {
        let load = &self.turn.case.load;
        CollectorState {
            case: self.turn.index,
            id: self.turn.case.id.clone(),
            round: self.turn.round,
            journal,
            keeper: None,
            tokenizers: tokenizers(&self.bench.lines),
            tally: Tally::after(self.turn.seen.clone()),
            rows: self.turn.probe.map(|_| Builder::default()),
            meter: LiveMetrics::new(self.turn.planned, load.lasts().map(Nanos::secs)),
            gauges: self.gauges.clone(),
            events: self.context.events.clone(),
            halt: self.halt.clone(),
            watcher: EarlyStop::over(self.turn.case, self.turn.round, self.turn.planned),
            stop: self.stop.clone(),
            lookout: self.turn.probe.filter(|probe| probe.may_stop).map(|_| FutilityStop::new(self.turn.case)),
        }
    }

    fn start_lanes(
        &self,
        feed: &RequestQueue,
        scribe: Option<&TurnRenderer>,
        results: Sender<Finished>,
    ) -> Vec<Result<WorkerHandle, RunError>> {
        let asks = || scribe.map(|scribe| scribe.asks.clone());
        let pairs = self.gauges.iter().zip(&feed.queues).enumerate();
        pairs
            .map(|(index, (gauges, queue))| self.start_lane(index, gauges.clone(), (queue.clone(), asks()), results.clone()))
            .collect()
    }

    fn start_lane(
        &self,
        index: usize,
        gauges: Arc<Gauges>,
        (queue, asks): (Receiver<Call>, Option<Sender<TurnRequest>>),
        results: Sender<Finished>,
    ) -> Result<WorkerHandle, RunError> {
        let (target, load) = (self.turn.case.target.clone(), self.turn.case.load.clone());
        let (route, own, clock, stop) = (self.route.clone(), self.session.clone(), self.clock, self.stop.clone());
        let (quota, room) = (self.quota.clone(), self.room.clone());
        let halt = self.halt.clone();
        let counted = self.bench.lines.iter().any(|line| line.tokenizer.is_some());
        let (protocol, keep_text) = (self.bench.protocol.clone(), counted || self.bench.conversations);
        let retry = self.bench.lines.iter().map(|line| line.case.request.retry.clone()).collect();
        let stem = format!("{}-{}", self.bench.stem, self.turn.round);
        let manners = Manners { retry, seed: self.turn.seed, stem };
        let keep_bodies = self.turn.bodies.0 != Bodies::None;
        let setting = Setting { clock, gauges: gauges.clone(), protocol, keep_text, keep_bodies, manners };
        let changes = users::changes(&load, index as u32, self.gauges.len() as u32);
        let (rounds, spent) = (self.rounds.clone(), self.spent.clone());
        let (contact, seed) = (self.contact.clone(), self.turn.seed);
        let ahead = connections_needed(&load, &changes, queue.len());
        WorkerHandle::start(index, clock, gauges, halt.clone(), move || {
            Ok(Worker {
                engine: open_engine(&target, (route.as_ref(), own), setting)?,
                gate: ConcurrencyLimit::new(changes),
                rounds,
                spent,
                queue,
                quota,
                closed: load.shape.closed(),
                contact,
                seed,
                room,
                results,
                stop,
                halt,
                clock,
                timer: Timer::new().map_err(RunError::Thread)?,
                changes: Timer::new().map_err(RunError::Thread)?,
                grace: load.graceful_stop,
                timed: load.lasts().is_some(),
                cancel: tokio::sync::watch::Sender::new(false),
                ahead,
                visits: asks.map(SessionRunner::new).transpose().map_err(RunError::Thread)?,
            })
        })
    }

    /// Fills in what is known only when the round is over.
    fn describe(&self, part: &mut Part, first_measured: Option<Nanos>, lanes: Vec<WorkerReport>) {
        part.local = self.session.as_ref().map(|(host, session)| describe_local(host, session));
        part.rows_dropped = self.bench.dropped();
        part.measured_from_ns = measured_from(self.turn.case, first_measured).0;
        part.sending_until_ns = lanes.iter().map(|lane| lane.sending_until.0).max();
        if self.context.stop.level() > Level::Run {
            part.cut_short = Some("interrupted".into());
        }
        let own = part.local.as_ref().map_or(0, |local| local.memory_peak);
        let vitals = self.vitals(lanes);
        part.vitals = Some(Vitals { memory_peak: vitals.memory_peak.max(own), ..vitals });
    }

    fn vitals(&self, lanes: Vec<WorkerReport>) -> Vitals {
        let wall = self.clock.now().secs().max(1e-9);
        let mut stall = Spans::default();
        lanes.iter().for_each(|lane| stall.merge(&lane.stall));
        let totals = total_counters(&self.gauges);
        Vitals {
            stall_ms_p99: stall.millis_at(0.99).unwrap_or(0.0),
            stall_ms_sure: many(stall.count()).and_then(|many| stall.millis_from_top(many)),
            stall_ms_max: stall.millis_at(1.0).unwrap_or(0.0),
            stalls: Some(lanes.iter().map(|lane| lane.stalls.clone()).collect()),
            cpu_shares: lanes.iter().map(|lane| lane.cpu_share).collect(),
            memory_peak: memory_peak(),
            events_per_s: totals.events as f64 / wall,
            bytes_in_per_s: totals.bytes_in as f64 / wall,
            bytes_out_per_s: totals.bytes_out as f64 / wall,
        }
    }
}

/// Which round of which case.
pub struct Turn<'a> {
    /// The case.
    pub case: &'a Case,
    /// Its index in the plan.
    pub index: u32,
    /// Its round, from 0.
    pub round: u32,
    /// The rows that each line takes.
    pub walks: &'a [RowStride],
    /// Its number of sessions, where that is known.
    pub planned: Option<u64>,
    /// Its seed.
    pub seed: Seed,
    /// The server that was started for it.
    pub server: Option<&'a ManagedProcess>,
    /// How it is a probe of a search.
    pub probe: Option<ProbeSize>,
    /// The model, where it is in this process.
    pub model: Option<Arc<Host>>,
    /// The folder of the run.
    pub folder: &'a RunDir,
    /// Whose bodies are kept, and the spool that they go to.
    pub bodies: (Bodies, &'a Path),
    /// What is sampled meanwhile.
    pub observer: &'a Observer,
    /// Stops the case if its first requests all fail with the same status; None under `--keep-going`.
    pub fail_fast: Option<FailFast>,
    /// What is known of the case's earlier requests.
    pub seen: FailFast,
    /// The process all of whose descendants are sampled as its managed server.
    pub guard: Option<u32>,
}

/// How a round is a probe of a search.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ProbeSize {
    /// Its requests, or its time, over those of the scenario.
    pub share: f64,
    /// It ends early where it is hopeless.
    pub may_stop: bool,
}

/// What a round leaves.
pub struct RoundResult {
    /// When it ran and what the tool saw of itself.
    pub part: Part,
    /// What its requests came to.
    pub tally: Tally,
    /// The rows of a probe.
    pub rows: Option<Table>,
    /// Outcomes that may be missing in the journal.
    pub unwritten: Vec<Outcome>,
    /// Replies whose counts cannot be true.
    pub absurd: Option<Absurd>,
    /// What each line sent.
    pub sent: Vec<SentRows>,
    /// What was sampled meanwhile.
    pub recorded: Recorded,
    /// The journal, for the next round.
    pub journal: Writer,
    /// Why the run cannot go on; what was measured by then is here all the same.
    pub fault: Option<RunError>,
}

/// Starts the simulator of a round with this seed; None where the case's target is elsewhere.
///
/// # Errors
/// It cannot listen.
pub fn start_simulator(case: &Case, seed: Seed) -> Result<Option<llmscen_simulator::Running>, RunError> {
    match &case.target.place {
        Place::Url(_) | Place::Local(_) => Ok(None),
        Place::Simulator { server, .. } => {
            let loopback = (std::net::Ipv4Addr::LOCALHOST, 0).into();
            Ok(Some(llmscen_simulator::start(server, seed.child("simulator"), loopback, Truth::off())?))
        }
    }
}

/// The way to the case's target: its own, or to its simulator. None for a model in this process.
///
/// # Errors
/// The simulator's path is not one.
pub fn route_of_round(
    own: Option<&Route>,
    simulator: Option<&llmscen_simulator::Running>,
    case: &Case,
) -> Result<Option<Route>, RunError> {
    Ok(match (own, simulator) {
        (Some(route), _) => Some(route.clone()),
        (None, Some(server)) => Some(Route::new(&simulator_url(server.addr(), case), &Default::default(), &Default::default())?),
        (None, None) => None,
    })
}

/// Where the case's requests reach a simulator.
fn simulator_url(address: SocketAddr, case: &Case) -> String {
    let path = match &case.target.place {
        Place::Simulator { path: Some(path), .. } => path.as_str(),
        _ => case.target.api.path(case.request.stream),
    };
    format!("http://{address}{path}")
}

/// Where a metrics page is: at the simulator's address, if it is the simulator's.
pub fn metrics_url(url: &str, simulator: Option<SocketAddr>) -> String {
    match simulator {
        Some(address) if url == "simulator" => format!("http://{address}/metrics"),
        _ => url.to_owned(),
    }
}
