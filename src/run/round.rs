//! One round of one case: warm up, measure, drain, collect.

mod preconnect;
#[cfg(test)]
mod tests;

use crate::run::audit::decisive_late_count;
use crate::run::collector::answer_judge::AnswerJudge;
use crate::run::collector::body_recorder::BodyRecorder;
use crate::run::collector::early_stop::EarlyStopMonitor;
use crate::run::collector::futility_stop::FutilityStop;
use crate::run::collector::live_metrics::LiveMetrics;
use crate::run::collector::tally::Tally;
use crate::run::collector::{Collector, CollectorState, SharedCounts, total_counters};
use crate::run::context::Context;
use crate::run::error::RunError;
use crate::run::event::Event;
use crate::run::fail_fast::FailFast;
use crate::run::outputs::recover::measured_from;
use crate::run::panics::{self, Sending};
use crate::run::progress::Spans;
use crate::run::requests::prepared_case::PreparedCase;
use crate::run::requests::row_usage::{self, SentRows};
use crate::run::requests::tool_results::ToolResults;
use crate::run::requests::traffic_class::{
    ClassSource, MixAssignment, RowStride, strided_prompts, tokenizers,
};
use crate::run::requests::turn_renderer::{TurnRenderer, TurnRequest};
use crate::run::requests::{RequestGenerator, RequestQueue};
use crate::run::resources::local_model::{LogitsWriter, ModelSession};
use crate::run::resources::managed_server::ManagedProcess;
use crate::run::round::preconnect::{
    UrlConnections, connections_needed, connections_of_all_workers, lead_time,
};
use crate::run::stop::{Level, Stop};
use crate::run::telemetry::Observer;
use crate::run::worker::concurrency_limit::ConcurrencyLimit;
use crate::run::worker::cooldown::Cooldown;
use crate::run::worker::engine::Engine;
use crate::run::worker::handle::{WorkerHandle, WorkerReport, worker_count};
use crate::run::worker::idle_limit::IdleLimit;
use crate::run::worker::session_runner::SessionRunner;
use crate::run::worker::target_health::TargetHealth;
use crate::run::worker::timer::Timer;
use crate::run::worker::{SharedState, Worker};
use crate::store::journal::Writer;
use crate::store::{Record, RunDir};
use async_channel::{Receiver, Sender, bounded};
use llmscen_analysis::{Builder, Table};
use llmscen_client::clock::Clock;
use llmscen_client::counters::LiveCounters;
use llmscen_client::http::{CompletedCall, HttpOptions};
use llmscen_client::retry::RequestPolicy;
use llmscen_client::route::Route;
use llmscen_core::artifacts::Bodies;
use llmscen_core::endpoint::EndpointSelector;
use llmscen_core::load::Warmup;
use llmscen_core::manifest::{Part, Vitals};
use llmscen_core::outcome::Outcome;
use llmscen_core::plan::Case;
use llmscen_core::redact::Redactor;
use llmscen_core::request::PreparedRequest;
use llmscen_core::schedule::shard::{Shard, Split};
use llmscen_core::schedule::{Schedule, users};
use llmscen_core::search::Part as ProbePart;
use llmscen_core::seed::Seed;
use llmscen_core::target::TargetLocation;
use llmscen_core::telemetry::{TelemetryRecord, TelemetrySample};
use llmscen_core::units::Nanos;
use llmscen_datasets::Prompts;
use llmscen_local::host::Host;
use llmscen_protocols::DecodeOptions;
use llmscen_simulator::Truth;
use llmscen_telemetry::process::memory_peak;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Capacity of the channel from the workers to the collector, in requests.
const RESULTS_CAPACITY: usize = 4096;

/// The facts of one round of one case.
#[derive(Clone)]
pub struct RoundInput<'a> {
    /// Index of the case in the plan.
    pub index: usize,
    /// The case.
    pub case: &'a Case,
    /// Its datasets, renderers and route.
    pub prepared: &'a PreparedCase,
    /// Round, from 0.
    pub round: u32,
    /// Size of the probe; None outside a capacity search.
    pub probe: Option<ProbeSize>,
    /// Which requests this process sends.
    pub shard: Shard,
    /// Seed of the round.
    pub seed: Seed,
    /// Number of sessions of all shards, if the plan fixes it.
    pub planned: Option<u64>,
    /// Dataset rows per traffic class.
    pub strides: Vec<RowStride>,
    /// Stops the case if its first requests all fail with the same status; None under `--keep-going`.
    pub fail_fast: Option<FailFast>,
    /// State of that check after the earlier rounds of the case.
    pub earlier: FailFast,
    /// Run folder.
    pub folder: &'a RunDir,
    /// Which bodies are stored.
    pub bodies: Bodies,
    /// Telemetry sources.
    pub observer: Arc<Observer>,
    /// Managed server of the case.
    pub server: Option<&'a ManagedProcess>,
    /// Process whose descendants are sampled as the managed server.
    pub server_process: Option<u32>,
    /// Local model of the case.
    pub model: Option<Arc<Host>>,
}

impl RoundInput<'_> {
    /// The shard's own numbers.
    fn split(&self) -> Split {
        Split::new(self.shard, &self.case.load.shape)
    }

    /// The shard's part of a number of sessions.
    pub fn own(&self, sessions: Option<u64>) -> Option<u64> {
        sessions.map(|sessions| self.split().local_index(sessions))
    }
}

/// The first requests of a round, rendered before its server is needed.
pub struct PreparedRound {
    prompts: Vec<Arc<dyn Prompts>>,
    request_queue: RequestQueue,
    /// Ends this round; a child of the run's switch.
    stop: Stop,
}

/// When a round starts.
pub struct RoundStart {
    /// Time zero.
    pub zero: Instant,
    /// Whether time zero was known too late to open the connections of this process.
    pub late: bool,
}

impl RoundStart {
    /// A start in which `lead_time` remains to open connections.
    fn after(lead_time: Duration) -> RoundStart {
        RoundStart {
            zero: Instant::now() + lead_time,
            late: false,
        }
    }
}

/// The other shards of a distributed run, as a round sees them.
pub trait RoundGroup {
    /// Waits until every shard has prepared the round. `lead_time`: what this shard needs to open connections.
    ///
    /// # Errors
    /// A shard is missing or the run was stopped.
    fn start_round(
        &mut self,
        lead_time: Duration,
        context: &Context,
    ) -> Result<RoundStart, RunError>;

    /// Begins to exchange the counts of the round. A reason of any shard to end it presses `stop`.
    fn watch_round(&self, input: &RoundInput<'_>, stop: Stop) -> SharedCounts;
}

/// Renders the first requests of a round, unless `stop` is pressed.
///
/// # Errors
/// A request cannot be rendered, or `stop` was pressed: [`RunError::Interrupted`].
pub fn prepare_round(
    input: &RoundInput<'_>,
    stop: Stop,
    context: &Context,
) -> Result<PreparedRound, RunError> {
    let prompts = strided_prompts(&input.prepared.classes, &input.strides);
    let generator = RequestGenerator::new(
        input.case,
        input.prepared,
        &prompts,
        input.seed,
        input.shard,
    );
    let workers = worker_count(input.case, &input.split());
    let request_queue = RequestQueue::start(generator, workers, &stop, |step| {
        let _ = context.events.send(Event::Preparing(step));
    })?;
    Ok(PreparedRound {
        prompts,
        request_queue,
        stop,
    })
}

/// Runs one round: warm up, measure, drain, collect.
///
/// # Errors
/// The round could not start, or its results are lost. Any other fault is part of the result.
pub fn run_round(
    input: &RoundInput<'_>,
    prepared_round: PreparedRound,
    mut journal: Writer,
    mut group: Option<&mut dyn RoundGroup>,
    context: &Context,
) -> Result<RoundResult, RunError> {
    let PreparedRound {
        prompts,
        request_queue,
        stop,
    } = prepared_round;
    let RoundInput {
        case, round, seed, ..
    } = *input;
    let sending = Sending::begin();
    if let Some(server) = input.server {
        server.press_on_exit(&stop);
    }
    let simulator = start_simulator(case, seed)?;
    let simulator_address = simulator.as_ref().map(|simulator| simulator.addr());
    let (sampler, mut missing_telemetry) =
        input
            .observer
            .start(case, input.server_process, simulator_address)?;
    let connections = connections_of_all_workers(case, &input.split(), &request_queue);
    let lead_time = lead_time(case, connections);
    let start = match &mut group {
        None => RoundStart::after(lead_time),
        Some(group) => group.start_round(lead_time, context)?,
    };
    let origin = start.zero;
    sampler.count_from(origin);
    let routes = routes_of_round(&input.prepared.routes, simulator.as_ref(), case)?;
    let origin_ns = (origin - context.origin).as_nanos() as u64;
    journal.append(&Record::Started {
        case: input.index as u32,
        round,
        origin_ns,
    })?;

    let (sender, results) = bounded(RESULTS_CAPACITY);
    let counts = group
        .as_ref()
        .map(|group| group.watch_round(input, stop.clone()));
    let state = RoundState::new(input, routes, stop, Clock::new(origin), context);
    if start.late {
        // Without open connections the first requests would be late; the round is invalid in any case.
        state.shared.halt.press();
    }
    let collector = Collector::start(state.collector(journal, counts)?, results)?;
    let turn_renderer = state.start_turn_renderer(&prompts)?;
    let workers = state.run_workers(&request_queue, turn_renderer.as_ref(), sender);
    let (mut readings, notes) = sampler.finish();
    missing_telemetry.extend(notes);
    let queue_end = request_queue.finish();
    let (tool_results, renderer_fault) = match turn_renderer.map(TurnRenderer::finish) {
        Some(Err(fault)) => (ToolResults::default(), Some(fault)),
        Some(Ok(tool_results)) => (tool_results, None),
        None => (ToolResults::default(), None),
    };
    let mut collected = collector.finish()?;
    drop((simulator, sending));

    let sent = state.count_sent_rows(&collected.tally);
    let mut part = Part {
        case: case.id.clone(),
        round,
        origin_ns,
        missing_telemetry,
        ..Part::default()
    };
    state.describe_result(
        &mut part,
        &collected,
        &sent,
        queue_end.as_ref().ok().copied().flatten(),
    );
    state.describe_workers(&mut part, &workers.reports);
    let server_fault = input
        .server
        .and_then(|server| server.describe(&mut part, origin, collected.tally.first_answer()));
    let faults = [
        collected.fault.take().map(RunError::from),
        workers.fault,
        queue_end.err(),
        renderer_fault,
        state.logits_writer.take_fault(),
        server_fault,
        panics::first().map(RunError::Defect),
    ];
    let mut fault = faults.into_iter().flatten().next();
    if let Some(fault) = &fault {
        part.cut_short = Some(fault.brief());
    }
    fault = fault.or_else(|| part.ending.as_ref().and_then(RunError::from_ending));

    let redactor = case.target.redactor();
    redact_readings(&redactor, &mut readings);
    // Case ids hold no secrets, and the rows are found by them.
    let part = Part {
        case: case.id.clone(),
        ..redactor.redact_value(part)
    };
    let CollectorState {
        mut tally,
        rows,
        mut journal,
        unwritten,
        ..
    } = collected;
    let closed = journal
        .append(&Record::Ended { part: part.clone() })
        .and_then(|()| journal.flush());
    tally.replies.unstreamed = total_counters(&state.gauges).unstreamed;
    Ok(RoundResult {
        part,
        tally,
        tool_results,
        skipped_idle: (state.shared.idle_limit.as_deref())
            .map(IdleLimit::skipped)
            .unwrap_or_default(),
        rows: rows.map(Builder::finish).transpose()?,
        unwritten,
        sent,
        recorded: TelemetryRecord {
            case: case.id.clone(),
            round,
            readings,
        },
        journal,
        fault: fault.or(closed.err().map(RunError::from)),
    })
}

/// Removes secrets from names and labels, which come from the server's /metrics page.
fn redact_readings(redactor: &Redactor, readings: &mut [TelemetrySample]) {
    for reading in readings {
        for text in [&mut reading.name, &mut reading.labels] {
            let clean = redactor.redact(text.to_string());
            if *clean != **text {
                *text = clean.into();
            }
        }
    }
}

/// The running state of one round.
struct RoundState<'a> {
    input: &'a RoundInput<'a>,
    context: &'a Context,
    routes: Vec<Route>,
    local: Option<ModelSession>,
    logits_writer: Arc<LogitsWriter>,
    /// Counters per worker.
    gauges: Vec<Arc<LiveCounters>>,
    shared: SharedState,
}

/// When the measurement of an open loop begins after warm-up requests: it may be the arrival of another shard. None
/// for a plain run.
fn first_measured_arrival(input: &RoundInput<'_>) -> Option<Nanos> {
    let Warmup::Requests(warm) = input.case.load.warmup else {
        return None;
    };
    let arrivals = input.prepared.arrivals.as_ref();
    let mut schedule = (!input.shard.is_whole())
        .then(|| Schedule::for_case(input.case, input.seed, arrivals))??;
    Some(schedule.nth(warm as usize)?.at)
}

/// How the workers of a round ended.
struct WorkerResults {
    reports: Vec<WorkerReport>,
    fault: Option<RunError>,
}

impl<'a> RoundState<'a> {
    fn new(
        input: &'a RoundInput<'a>,
        routes: Vec<Route>,
        stop: Stop,
        clock: Clock,
        context: &'a Context,
    ) -> RoundState<'a> {
        let target_health = TargetHealth::new(
            stop.clone(),
            context.events.clone(),
            input.fail_fast.clone(),
        );
        let workers = worker_count(input.case, &input.split());
        let load = &input.case.load;
        let senders = match load.shape.is_closed_loop() {
            true => 0,
            false => workers as u64,
        };
        let cooldown = Cooldown::new(load.cools_down(input.prepared.conversations), senders);
        let shared = SharedState::new(
            load,
            cooldown,
            input.shard,
            input.seed,
            clock,
            stop,
            target_health,
        );
        if let Some(at) = first_measured_arrival(input) {
            shared.quota.begin(at);
        }
        let logits_writer = Arc::new(LogitsWriter::new(
            input.folder,
            input.index,
            input.case,
            input.round,
            shared.halt.clone(),
        ));
        let local = input.model.clone().map(|host| {
            let switches = [&shared.exhausted, &shared.halt, &shared.stop].map(Clone::clone);
            ModelSession::new(host, input.case, clock, Some(&logits_writer), switches)
        });
        let gauges = (0..workers).map(|_| Arc::default()).collect();
        RoundState {
            input,
            context,
            routes,
            local,
            logits_writer,
            gauges,
            shared,
        }
    }

    fn collector(
        &self,
        journal: Writer,
        shared_counts: Option<SharedCounts>,
    ) -> Result<CollectorState, RunError> {
        let RoundInput {
            case,
            round,
            shard,
            planned,
            probe,
            seed,
            bodies,
            folder,
            ..
        } = *self.input;
        Ok(CollectorState {
            case: self.input.index as u32,
            id: case.id.clone(),
            round,
            shard: shard.index,
            journal,
            body_recorder: BodyRecorder::new(case, round, seed, bodies, folder, &self.routes)?,
            tokenizers: tokenizers(&self.input.prepared.classes),
            answer_judge: AnswerJudge::new(&self.input.prepared.classes, case, &self.routes),
            tally: Tally::new(self.input.earlier.clone()),
            rows: (probe.is_some() || shared_counts.is_some()).then(Builder::default),
            live_metrics: LiveMetrics::new(
                self.input.own(planned),
                case.load.sending_duration().map(Nanos::secs),
            ),
            gauges: self.gauges.clone(),
            events: self.context.events.clone(),
            halt: self.shared.halt.clone(),
            early_stop: EarlyStopMonitor::over(case, round, planned, shard),
            stop: self.shared.stop.clone(),
            futility_stop: probe
                .filter(|probe| probe.may_stop && shard.is_whole())
                .map(|_| FutilityStop::new(case)),
            unwritten: Vec::new(),
            fault: None,
            ending: None,
            shared_counts,
        })
    }

    /// Starts the thread that renders later turns; None if no session has several.
    fn start_turn_renderer(
        &self,
        prompts: &[Arc<dyn Prompts>],
    ) -> Result<Option<TurnRenderer>, RunError> {
        let RoundInput { prepared, seed, .. } = *self.input;
        if !prepared.conversations {
            return Ok(None);
        }
        let sources = ClassSource::new_all(&prepared.classes, prompts, seed);
        TurnRenderer::start(sources, self.shared.halt.clone()).map(Some)
    }

    /// Starts every worker and waits until all have ended.
    fn run_workers(
        &self,
        request_queue: &RequestQueue,
        turn_renderer: Option<&TurnRenderer>,
        results: Sender<CompletedCall>,
    ) -> WorkerResults {
        let start = |(index, queue): (usize, &Receiver<PreparedRequest>)| {
            let turn_requests =
                turn_renderer.map(|turn_renderer| turn_renderer.turn_requests.clone());
            self.start_worker(index, queue.clone(), turn_requests, results.clone())
        };
        let running: Vec<Result<WorkerHandle, RunError>> =
            request_queue.queues.iter().enumerate().map(start).collect();
        // The collector ends when the last sender is dropped.
        drop(results);
        let mut reports = Vec::new();
        let mut fault = None;
        for worker in running {
            match worker.and_then(WorkerHandle::finish) {
                Ok(report) => reports.push(report),
                Err(error) => fault = fault.or(Some(error)),
            }
        }
        WorkerResults { reports, fault }
    }

    fn start_worker(
        &self,
        index: usize,
        queue: Receiver<PreparedRequest>,
        turn_requests: Option<Sender<TurnRequest>>,
        results: Sender<CompletedCall>,
    ) -> Result<WorkerHandle, RunError> {
        let case = self.input.case;
        let gauges = self.gauges.get(index).cloned().unwrap_or_default();
        let setting = self.engine_setting(gauges.clone());
        let target = case.target.clone();
        let routes = self.routes.clone();
        let local = self.local.clone();
        let shared = self.shared.clone();
        let workers = self.gauges.len() as u32;
        let changes = users::changes(&case.load, self.input.shard, index as u32, workers);
        let split = self.input.split();
        let connections = connections_needed(&case.load, &split, &changes, queue.len());
        let endpoints = case.target.location.endpoints();
        let preconnect = UrlConnections {
            load: &case.load,
            split,
            selector: EndpointSelector::new(endpoints, self.input.seed),
            workers: self.gauges.len(),
        }
        .of_worker(index, connections);
        WorkerHandle::start(
            index,
            shared.clock,
            gauges,
            shared.halt.clone(),
            move || {
                Ok(Worker {
                    shared,
                    engine: Engine::open(&target, &routes, local, setting)?,
                    concurrency_limit: ConcurrencyLimit::new(changes),
                    queue,
                    results,
                    timer: Timer::new().map_err(RunError::Thread)?,
                    ramp_timer: Timer::new().map_err(RunError::Thread)?,
                    cancel: tokio::sync::watch::Sender::new(false),
                    preconnect,
                    session_runner: turn_requests
                        .map(SessionRunner::new)
                        .transpose()
                        .map_err(RunError::Thread)?,
                    beginning: Default::default(),
                    measured_until: Default::default(),
                })
            },
        )
    }

    fn engine_setting(&self, gauges: Arc<LiveCounters>) -> HttpOptions {
        let RoundInput {
            prepared,
            round,
            seed,
            bodies,
            ..
        } = *self.input;
        HttpOptions {
            clock: self.shared.clock,
            counters: gauges,
            protocol: prepared.protocol.clone(),
            decode_options: DecodeOptions {
                keep_text: prepared.conversations
                    || prepared.classes.iter().any(|class| {
                        let answers = class.answers.as_ref();
                        class.tokenizer.is_some()
                            || answers.is_some_and(|answers| answers.reads_text())
                    }),
                markers: prepared.markers.clone(),
            },
            keep_bodies: bodies != Bodies::None,
            policy: RequestPolicy {
                retry: prepared
                    .classes
                    .iter()
                    .map(|class| class.case.request.retry.clone())
                    .collect(),
                seed,
                id_prefix: format!("{}-{round}", prepared.stem),
            },
        }
    }

    /// The dataset rows that each traffic class has sent.
    fn count_sent_rows(&self, tally: &Tally) -> Vec<SentRows> {
        let RoundInput {
            case,
            prepared,
            seed,
            ..
        } = *self.input;
        let assignment = MixAssignment::new(case, seed, prepared.arrivals.as_ref());
        row_usage::count_sent_rows(
            prepared,
            &self.input.strides,
            assignment,
            &tally.begun(),
            tally.last_cooldown,
        )
    }

    /// Adds to `part` what was sent and why the round ended. `data_ended`: sessions before the dataset ended, if it
    /// did.
    fn describe_result(
        &self,
        part: &mut Part,
        collected: &CollectorState,
        sent: &[SentRows],
        data_ended: Option<u64>,
    ) {
        let RoundInput {
            case,
            prepared,
            probe,
            ..
        } = *self.input;
        let hopeless = collected
            .futility_stop
            .as_ref()
            .is_some_and(FutilityStop::is_hopeless);
        part.probe = probe.map(|ProbeSize { share, .. }| ProbePart { share, hopeless });
        part.ending = collected
            .ending
            .clone()
            .or(self.shared.target_health.ending());
        part.dataset_ended =
            data_ended.is_some_and(|sessions| collected.tally.begun().len() as u64 >= sessions);
        part.rows_repeated = sent.iter().map(|class| class.repeated).sum();
        part.rows_dropped = prepared.dropped_rows();
        part.measured_from_ns = measured_from(case, collected.tally.measured_from).0;
        if self.context.stop.level() > Level::Run {
            part.cut_short = Some("interrupted".into());
        }
    }

    /// Adds to `part` when the workers stopped sending, their self-measurements and those of a local model.
    fn describe_workers(&self, part: &mut Part, workers: &[WorkerReport]) {
        part.sending_until_ns = workers.iter().map(|worker| worker.sending_until.0).max();
        part.local = self.local.as_ref().map(ModelSession::describe);
        let model_memory = part.local.as_ref().map_or(0, |local| local.memory_peak);
        let vitals = self.vitals(workers);
        part.vitals = Some(Vitals {
            memory_peak: vitals.memory_peak.max(model_memory),
            ..vitals
        });
    }

    fn vitals(&self, workers: &[WorkerReport]) -> Vitals {
        let elapsed_s = self.shared.clock.now().secs().max(1e-9);
        let mut stall = Spans::default();
        workers.iter().for_each(|worker| stall.merge(&worker.stall));
        let totals = total_counters(&self.gauges);
        Vitals {
            stall_ms_p99: stall.millis_at(0.99).unwrap_or(0.0),
            stall_ms_sure: decisive_late_count(stall.count())
                .and_then(|count| stall.millis_from_top(count)),
            stall_ms_max: stall.millis_at(1.0).unwrap_or(0.0),
            stalls: Some(workers.iter().map(|worker| worker.stalls.clone()).collect()),
            cpu_shares: workers.iter().map(|worker| worker.cpu_share).collect(),
            memory_peak: memory_peak(),
            events_per_s: totals.events as f64 / elapsed_s,
            bytes_in_per_s: totals.bytes_in as f64 / elapsed_s,
            bytes_out_per_s: totals.bytes_out as f64 / elapsed_s,
        }
    }
}

/// The size of a probe of a capacity search.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ProbeSize {
    /// Its requests, or its duration, as a share of the scenario's.
    pub share: f64,
    /// Whether it may end early once its objectives cannot be met.
    pub may_stop: bool,
}

/// The results of a round.
pub struct RoundResult {
    /// Facts of the round and self-measurements of the load generator.
    pub part: Part,
    /// Counts over its requests.
    pub tally: Tally,
    /// The rows of a probe or of a shard; None otherwise.
    pub rows: Option<Table>,
    /// Outcomes that may be missing in the journal.
    pub unwritten: Vec<Outcome>,
    /// Tool results of the turns that were sent.
    pub tool_results: ToolResults,
    /// Think time that `load.max_idle` left out.
    pub skipped_idle: Nanos,
    /// Dataset rows sent, per traffic class.
    pub sent: Vec<SentRows>,
    /// Telemetry.
    pub recorded: TelemetryRecord,
    /// The journal, for the next round.
    pub journal: Writer,
    /// Why the run cannot go on; the results up to the fault are valid.
    pub fault: Option<RunError>,
}

/// Starts the simulator of a round; None if the case has another target.
///
/// # Errors
/// It cannot listen.
pub fn start_simulator(
    case: &Case,
    seed: Seed,
) -> Result<Option<llmscen_simulator::Running>, RunError> {
    match &case.target.location {
        TargetLocation::Urls(_) | TargetLocation::Local(_) => Ok(None),
        TargetLocation::Simulator { server, .. } => {
            let loopback = (std::net::Ipv4Addr::LOCALHOST, 0).into();
            Ok(Some(llmscen_simulator::start(
                server,
                seed.child("simulator"),
                loopback,
                Truth::off(),
            )?))
        }
    }
}

/// The routes of a round: the case's, or one to its simulator; none for a local model.
///
/// # Errors
/// The simulator's path is invalid.
pub fn routes_of_round(
    case_routes: &[Route],
    simulator: Option<&llmscen_simulator::Running>,
    case: &Case,
) -> Result<Vec<Route>, RunError> {
    Ok(match simulator {
        Some(server) if case_routes.is_empty() => vec![Route::new(
            &simulator_url(server.addr(), case),
            &Default::default(),
            &Default::default(),
        )?],
        _ => case_routes.to_vec(),
    })
}

/// The URL of the case's API on a simulator.
fn simulator_url(address: SocketAddr, case: &Case) -> String {
    let path = match &case.target.location {
        TargetLocation::Simulator {
            path: Some(path), ..
        } => path.as_str(),
        _ => case.target.api.path(case.request.stream),
    };
    format!("http://{address}{path}")
}
