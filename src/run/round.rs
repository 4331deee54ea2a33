//! One round of one case: warm up, measure, drain, collect.

mod preconnect;
pub mod telemetry;

use crate::run::audit::many;
use crate::run::collector::body_recorder::BodyRecorder;
use crate::run::collector::early_stop::EarlyStop;
use crate::run::collector::futility_stop::FutilityStop;
use crate::run::collector::live_metrics::{LiveMetrics, Spans};
use crate::run::collector::tally::Tally;
use crate::run::collector::{Collector, CollectorState};
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
use llmscen_local::host::{Host, Session};
use llmscen_simulator::Truth;
use llmscen_telemetry::process::memory_peak;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Instant;

/// Finished calls that may wait for the collector.
const RESULTS: usize = 4096;

/// The facts of one round of one case.
#[derive(Clone)]
pub struct RoundInput<'a> {
    /// Index of the case in the plan.
    pub index: usize,
    /// The case.
    pub case: &'a Case,
    /// What was made ready for it.
    pub prepared: &'a PreparedCase,
    /// The round, from 0.
    pub round: u32,
    /// How it is a probe of a search.
    pub probe: Option<ProbeSize>,
    /// Its seed.
    pub seed: Seed,
    /// Its number of sessions, where that is known.
    pub planned: Option<u64>,
    /// The rows that each traffic class takes.
    pub strides: Vec<RowStride>,
    /// Stops the case if its first requests all fail with the same status; None under `--keep-going`.
    pub fail_fast: Option<FailFast>,
    /// What is known of the case's earlier requests.
    pub earlier: FailFast,
    /// The folder of the run.
    pub folder: &'a RunDir,
    /// Whose bodies are kept.
    pub bodies: Bodies,
    /// What is sampled meanwhile.
    pub observer: Arc<Observer>,
    /// The server that was started for it.
    pub server: Option<&'a ManagedProcess>,
    /// The process all of whose descendants are sampled as its managed server.
    pub server_process: Option<u32>,
    /// The model, where it is in this process.
    pub model: Option<Arc<Host>>,
}

/// What a round begins with; none of it takes the server.
pub struct PreparedRound {
    prompts: Vec<Arc<dyn Prompts>>,
    request_queue: RequestQueue,
    /// The run's switch, as far as this round goes.
    stop: Stop,
}

/// Makes the first requests of a round ready, until its switch `stop` is pressed.
///
/// # Errors
/// They cannot be made; or the switch came first: [`RunError::Interrupted`].
pub fn prepare_round(input: &RoundInput<'_>, stop: Stop) -> Result<PreparedRound, RunError> {
    let prompts = strided_prompts(&input.prepared.classes, &input.strides);
    let generator = RequestGenerator::new(input.case, input.prepared, &prompts, input.seed);
    let request_queue = RequestQueue::start(generator, worker_count(input.case), &stop)?;
    Ok(PreparedRound { prompts, request_queue, stop })
}

/// Runs one round: warm up, measure, drain, collect. An error means that nothing of it was measured.
pub fn run_round(
    input: &RoundInput<'_>,
    ready: PreparedRound,
    mut journal: Writer,
    context: &Context,
) -> Result<RoundResult, RunError> {
    let PreparedRound { prompts, request_queue, stop } = ready;
    let RoundInput { case, prepared, round, seed, .. } = *input;
    let sending = Sending::begin();
    if let Some(server) = input.server {
        server.stops(&stop);
    }
    let simulator = start_simulator(case, seed)?;
    let address = simulator.as_ref().map(|simulator| simulator.addr());
    let sampler = input.observer.start(case, input.server_process, address)?;
    let origin = Instant::now() + lead_time(case, connections_needed_in_all(case, &request_queue));
    sampler.count_from(origin);
    let route = route_of_round(prepared.route.as_ref(), simulator.as_ref(), case)?;
    let mut part = Part { case: case.id.clone(), round, ..Part::default() };
    part.origin_ns = (origin - context.origin).as_nanos() as u64;
    journal.append(&Record::Started { case: input.index as u32, round, origin_ns: part.origin_ns })?;
    let (sender, results) = bounded(RESULTS);
    let state = RoundState::new(input, route, stop, Clock::starting(origin), context);
    let collector = Collector::start(state.collector(journal)?, results)?;
    let turn_renderer = if prepared.conversations {
        let classes = prepared.classes.iter().zip(&prompts);
        let sources = classes.map(|(class, prompts)| TurnSource::new(class.clone(), prompts.clone(), seed)).collect();
        Some(TurnRenderer::start(sources, state.halt.clone())?)
    } else {
        None
    };
    let running = state.start_workers(&request_queue, turn_renderer.as_ref(), sender);
    let workers = running.into_iter().map(|worker| worker.and_then(WorkerHandle::finish));
    let (reports, worker_faults): (Vec<_>, Vec<_>) = workers.partition(Result::is_ok);
    let (mut readings, untold) = sampler.finish();
    let redactor = Redactor::of(&case.target);
    redact_readings(&redactor, &mut readings);
    let (data_ended, queue_fault) = match request_queue.finish() {
        Ok(ended) => (ended, None),
        Err(fault) => (None, Some(fault)),
    };
    let renderer_fault = turn_renderer.and_then(|turn_renderer| turn_renderer.finish().err());
    let CollectorState { mut tally, rows, mut journal, fault: journal_fault, unwritten, ending, futility_stop, .. } =
        collector.finish()?;
    part.ending = ending.or(state.target_health.ending());
    part.untold = untold;
    let hopeless = futility_stop.is_some_and(|futility_stop| futility_stop.hopeless());
    part.probe = input.probe.map(|ProbeSize { share, .. }| Probe { share, hopeless });
    drop((simulator, sending));
    let begun = tally.begun();
    let assignment = MixAssignment::new(case, seed, prepared.arrivals.as_ref());
    let sent = row_usage::count_sent_rows(prepared, &input.strides, assignment, &begun);
    part.dataset_ended = data_ended.is_some_and(|sessions| begun.len() as u64 >= sessions);
    part.rows_repeated = sent.iter().map(|class| class.repeated).sum();
    state.describe(&mut part, tally.measured_from, reports.into_iter().flatten().collect());
    let server_fault = input.server.and_then(|server| server.note(&mut part, origin, tally.first_answer()));
    let fault = journal_fault
        .map(RunError::from)
        .or_else(|| worker_faults.into_iter().find_map(Result::err))
        .or(queue_fault)
        .or(renderer_fault)
        .or(state.logits_writer.fault())
        .or(server_fault)
        .or_else(|| panics::first().map(RunError::Defect));
    if let Some(fault) = &fault {
        part.cut_short = Some(fault.brief());
    }
    let fault = fault.or_else(|| part.ending.as_ref().and_then(RunError::of_ending));
    // Case ids hold no secrets, and the rows are found by them.
    let part = Part { case: case.id.clone(), ..redactor.clean_all(part) };
    let closed = journal.append(&Record::Ended { part: part.clone() }).and_then(|()| journal.flush());
    let fault = fault.or(closed.err().map(RunError::from));
    let recorded = Recorded { case: case.id.clone(), round, readings };
    tally.replies.unstreamed = total_counters(&state.gauges).unstreamed;
    let absurd = state.gauges.iter().map(|gauges| gauges.absurd()).fold(None, Absurd::joined);
    Ok(RoundResult { part, tally, absurd, rows: rows.map(Builder::finish), unwritten, sent, recorded, journal, fault })
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

/// The running state of one round, which its workers share.
struct RoundState<'a> {
    input: &'a RoundInput<'a>,
    route: Option<Route>,
    /// The round as a model in this process sees it.
    session: Option<(Arc<Host>, Arc<Session>)>,
    logits_writer: Arc<LogitsWriter>,
    clock: Clock,
    context: &'a Context,
    gauges: Vec<Arc<Gauges>>,
    quota: Arc<Quota>,
    in_flight_limit: Option<Arc<InFlightLimit>>,
    barrier: Option<Arc<BatchBarrier>>,
    spent: Stop,
    halt: Stop,
    target_health: Arc<TargetHealth>,
    /// The run's switch, as far as this round goes.
    stop: Stop,
}

impl<'a> RoundState<'a> {
    fn new(input: &'a RoundInput<'a>, route: Option<Route>, stop: Stop, clock: Clock, context: &'a Context) -> RoundState<'a> {
        let load = &input.case.load;
        let spent = Stop::default();
        let halt = Stop::default();
        let logits_writer = Arc::new(LogitsWriter::new(input, halt.clone()));
        let over = [&spent, &halt, &stop].map(Clone::clone);
        let session =
            input.model.clone().map(|host| (host, Arc::new(local_session(input.case, clock, Some(&logits_writer), over))));
        RoundState {
            input,
            route,
            session,
            logits_writer,
            clock,
            context,
            gauges: (0..worker_count(input.case)).map(|_| Arc::default()).collect(),
            quota: Arc::new(Quota::new(load)),
            in_flight_limit: load
                .max_in_flight
                .map(|most| Arc::new(InFlightLimit { taken: AtomicU64::new(0), most: u64::from(most) })),
            barrier: if let Shape::Static { batch } = load.shape { Some(Arc::new(BatchBarrier::new(batch))) } else { None },
            spent,
            halt,
            target_health: Arc::new(TargetHealth::new(stop.clone(), context.events.clone(), input.fail_fast.clone())),
            stop,
        }
    }

    fn collector(&self, journal: Writer) -> Result<CollectorState, RunError> {
        let RoundInput { case, round, planned, probe, .. } = *self.input;
        Ok(CollectorState {
            case: self.input.index as u32,
            id: case.id.clone(),
            round,
            journal,
            body_recorder: BodyRecorder::of(self.input, self.route.as_ref())?,
            tokenizers: tokenizers(&self.input.prepared.classes),
            tally: Tally::after(self.input.earlier.clone()),
            rows: probe.map(|_| Builder::default()),
            live_metrics: LiveMetrics::new(planned, case.load.lasts().map(Nanos::secs)),
            gauges: self.gauges.clone(),
            events: self.context.events.clone(),
            halt: self.halt.clone(),
            early_stop: EarlyStop::over(case, round, planned),
            stop: self.stop.clone(),
            futility_stop: probe.filter(|probe| probe.may_stop).map(|_| FutilityStop::new(case)),
            unwritten: Vec::new(),
            fault: None,
            ending: None,
        })
    }

    fn start_workers(
        &self,
        request_queue: &RequestQueue,
        turn_renderer: Option<&TurnRenderer>,
        results: Sender<Finished>,
    ) -> Vec<Result<WorkerHandle, RunError>> {
        let queues = request_queue.queues.iter().enumerate();
        let start = |(index, queue): (usize, &Receiver<Call>)| {
            let turn_requests = turn_renderer.map(|turn_renderer| turn_renderer.turn_requests.clone());
            self.start_worker(index, queue.clone(), turn_requests, results.clone())
        };
        queues.map(start).collect()
    }

    fn start_worker(
        &self,
        index: usize,
        queue: Receiver<Call>,
        turn_requests: Option<Sender<TurnRequest>>,
        results: Sender<Finished>,
    ) -> Result<WorkerHandle, RunError> {
        let RoundInput { case, prepared, round, seed, .. } = *self.input;
        let gauges = self.gauges.get(index).cloned().unwrap_or_default();
        let setting = Setting {
            clock: self.clock,
            gauges: gauges.clone(),
            protocol: prepared.protocol.clone(),
            keep_text: prepared.conversations || prepared.classes.iter().any(|class| class.tokenizer.is_some()),
            keep_bodies: self.input.bodies != Bodies::None,
            manners: Manners {
                retry: prepared.classes.iter().map(|class| class.case.request.retry.clone()).collect(),
                seed,
                stem: format!("{}-{round}", prepared.stem),
            },
        };
        let target = case.target.clone();
        let load = case.load.clone();
        let route = self.route.clone();
        let session = self.session.clone();
        let barrier = self.barrier.clone();
        let spent = self.spent.clone();
        let quota = self.quota.clone();
        let target_health = self.target_health.clone();
        let in_flight_limit = self.in_flight_limit.clone();
        let stop = self.stop.clone();
        let halt = self.halt.clone();
        let clock = self.clock;
        let changes = users::changes(&load, index as u32, self.gauges.len() as u32);
        let ahead = connections_needed(&load, &changes, queue.len());
        WorkerHandle::start(index, clock, gauges, halt.clone(), move || {
            Ok(Worker {
                engine: open_engine(&target, (route.as_ref(), session), setting)?,
                concurrency_limit: ConcurrencyLimit::new(changes),
                barrier,
                spent,
                queue,
                quota,
                closed: load.shape.closed(),
                target_health,
                seed,
                in_flight_limit,
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
                session_runner: turn_requests.map(SessionRunner::new).transpose().map_err(RunError::Thread)?,
            })
        })
    }

    /// Fills in what is known only when the round is over.
    fn describe(&self, part: &mut Part, first_measured: Option<Nanos>, workers: Vec<WorkerReport>) {
        part.local = self.session.as_ref().map(|(host, session)| describe_local(host, session));
        part.rows_dropped = self.input.prepared.dropped();
        part.measured_from_ns = measured_from(self.input.case, first_measured).0;
        part.sending_until_ns = workers.iter().map(|worker| worker.sending_until.0).max();
        if self.context.stop.level() > Level::Run {
            part.cut_short = Some("interrupted".into());
        }
        let own = part.local.as_ref().map_or(0, |local| local.memory_peak);
        let vitals = self.vitals(workers);
        part.vitals = Some(Vitals { memory_peak: vitals.memory_peak.max(own), ..vitals });
    }

    fn vitals(&self, workers: Vec<WorkerReport>) -> Vitals {
        let wall = self.clock.now().secs().max(1e-9);
        let mut stall = Spans::default();
        workers.iter().for_each(|worker| stall.merge(&worker.stall));
        let totals = total_counters(&self.gauges);
        Vitals {
            stall_ms_p99: stall.millis_at(0.99).unwrap_or(0.0),
            stall_ms_sure: many(stall.count()).and_then(|many| stall.millis_from_top(many)),
            stall_ms_max: stall.millis_at(1.0).unwrap_or(0.0),
            stalls: Some(workers.iter().map(|worker| worker.stalls.clone()).collect()),
            cpu_shares: workers.iter().map(|worker| worker.cpu_share).collect(),
            memory_peak: memory_peak(),
            events_per_s: totals.events as f64 / wall,
            bytes_in_per_s: totals.bytes_in as f64 / wall,
            bytes_out_per_s: totals.bytes_out as f64 / wall,
        }
    }
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
