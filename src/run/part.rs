//! One round of one case: warm up, drive, drain, collect.

use crate::run::audit::many;
use crate::run::bench::Bench;
use crate::run::collect::{Collected, Collector, Desk};
use crate::run::contact::Contact;
use crate::run::context::Context;
use crate::run::drive::{Drive, Room};
use crate::run::error::RunError;
use crate::run::feed::{Feed, Recipe};
use crate::run::gate::Gate;
use crate::run::host::{route, simulator};
use crate::run::keep::Keeper;
use crate::run::lanes::{Lane, LaneReport, lane_count, reading};
use crate::run::lead::{lead, needed, needed_in_all};
use crate::run::ledger;
use crate::run::line::{Dealt, Walk, shifted, tokenizers};
use crate::run::lookout::Lookout;
use crate::run::meter::{Meter, Spans};
use crate::run::model::{Sheets, engine, session, told};
use crate::run::panics::{self, Sending};
use crate::run::rounds::Rounds;
use crate::run::rows::measured_from;
use crate::run::scribe::{Ask, Scribe, Style};
use crate::run::stop::{Level, Stop};
use crate::run::tally::Tally;
use crate::run::timer::Timer;
use crate::run::turn::{Played, Probing, Turn};
use crate::run::visit::Visits;
use crate::run::watch::Watcher;
use crate::store::Record;
use crate::store::journal::Writer;
use async_channel::{Receiver, Sender, bounded};
use llmscen_analysis::Builder;
use llmscen_client::clock::Clock;
use llmscen_client::counters::{Absurd, Gauges};
use llmscen_client::http::{Finished, Setting};
use llmscen_client::retry::Manners;
use llmscen_client::route::Route;
use llmscen_core::artifacts::Bodies;
use llmscen_core::call::Call;
use llmscen_core::load::Shape;
use llmscen_core::manifest::{Part, Vitals};
use llmscen_core::plan::Case;
use llmscen_core::redact::Redactor;
use llmscen_core::schedule::quota::Quota;
use llmscen_core::schedule::users;
use llmscen_core::search::Part as Probe;
use llmscen_core::seed::Seed;
use llmscen_core::telemetry::{Reading, Recorded};
use llmscen_core::units::Nanos;
use llmscen_datasets::Prompts;
use llmscen_local::host::Host;
use llmscen_local::session::Session;
use llmscen_telemetry::process::memory_peak;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Instant;

/// Finished calls that may wait for the collector.
const RESULTS: usize = 4096;

/// What a round begins with; none of it takes the server.
pub struct Prepared {
    prompts: Vec<Arc<dyn Prompts>>,
    feed: Feed,
    /// The run's switch, as far as this round goes.
    stop: Stop,
}

/// Makes the first requests of a round ready, until its switch `stop` is pressed.
///
/// # Errors
/// They cannot be made; or the switch came first: [`RunError::Interrupted`].
pub fn prepare(case: &Case, bench: &Bench, (walks, seed): (&[Walk], Seed), stop: Stop) -> Result<Prepared, RunError> {
    let prompts = shifted(&bench.lines, walks);
    let feed = Feed::start(Recipe::new(case, bench, &prompts, seed), lane_count(case), &stop)?;
    Ok(Prepared { prompts, feed, stop })
}

/// Plays one round. An error means that nothing of it was measured.
pub fn play(turn: &Turn, bench: &Bench, ready: Prepared, mut journal: Writer, context: &Context) -> Result<Played, RunError> {
    let Prepared { prompts, feed, stop } = ready;
    let sending = Sending::begin();
    turn.server.iter().for_each(|own| own.stops(&stop));
    let server = simulator(turn.case, turn.seed)?;
    let address = server.as_ref().map(|server| server.addr());
    let sampler = turn.observer.start(turn.case, turn.guard, address)?;
    let origin = Instant::now() + lead(turn.case, needed_in_all(turn.case, &feed));
    sampler.count_from(origin);
    let route = route(bench.route.as_ref(), server.as_ref(), turn.case)?;
    let mut part = Part { case: turn.case.id.clone(), round: turn.round, ..Part::default() };
    part.origin_ns = (origin - context.origin).as_nanos() as u64;
    journal.append(&Record::Started { case: turn.index, round: turn.round, origin_ns: part.origin_ns })?;
    let (sender, results) = bounded(RESULTS);
    let stage = Stage::new(turn, bench, (route, stop), Clock::starting(origin), context);
    let desk = Desk { keeper: Keeper::of(turn, stage.route.as_ref())?, ..stage.desk(journal) };
    let collector = Collector::start(desk, results)?;
    let own = bench.lines.iter().zip(&prompts);
    let styles = || own.map(|(line, own)| Style::new(line.clone(), own.clone(), turn.seed)).collect();
    let scribe = bench.conversations.then(|| Scribe::start(styles(), stage.halt.clone())).transpose()?;
    let running = stage.start_lanes(&feed, scribe.as_ref(), sender);
    let lanes: Vec<Result<LaneReport, RunError>> = running.into_iter().map(|lane| lane.and_then(Lane::finish)).collect();
    let (mut readings, untold) = sampler.finish();
    let redactor = Redactor::of(&turn.case.target);
    redact_readings(&redactor, &mut readings);
    let (data_ended, fed) = match feed.finish() {
        Ok(ended) => (ended, None),
        Err(fault) => (None, Some(fault)),
    };
    let written = scribe.map_or(Ok(()), Scribe::finish);
    let Collected { mut tally, rows, mut journal, fault, unwritten, ending, hopeless } = collector.finish()?;
    (part.ending, part.untold) = (ending.or(stage.contact.ending()), untold);
    part.probe = turn.probe.map(|Probing { share, .. }| Probe { share, hopeless });
    drop((server, sending));
    let (reports, faults): (Vec<_>, Vec<_>) = lanes.into_iter().partition(Result::is_ok);
    let places = Dealt::new(turn.case, turn.seed, bench.arrivals.as_ref());
    let begun = tally.begun();
    let sent = ledger::sent(bench, turn.walks, places, &begun);
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
    tally.replies.unstreamed = reading(&stage.gauges).unstreamed;
    let absurd = stage.gauges.iter().map(|gauges| gauges.absurd()).fold(None, Absurd::joined);
    let (rows, fault) = (rows.map(Builder::finish), fault.or(closed.err().map(RunError::from)));
    Ok(Played { part, tally, absurd, rows, unwritten, sent, recorded, journal, fault })
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
struct Stage<'a> {
    turn: &'a Turn<'a>,
    bench: &'a Bench,
    route: Option<Route>,
    /// The round as a model in this process sees it.
    session: Option<(Arc<Host>, Arc<Session>)>,
    /// Keeps logits.
    sheets: Arc<Sheets>,
    clock: Clock,
    context: &'a Context,
    gauges: Vec<Arc<Gauges>>,
    quota: Arc<Quota>,
    room: Option<Arc<Room>>,
    rounds: Option<Arc<Rounds>>,
    spent: Stop,
    halt: Stop,
    contact: Arc<Contact>,
    /// The run's switch, as far as this round goes.
    stop: Stop,
}

impl<'a> Stage<'a> {
    fn new(
        turn: &'a Turn,
        bench: &'a Bench,
        (route, stop): (Option<Route>, Stop),
        clock: Clock,
        context: &'a Context,
    ) -> Stage<'a> {
        let load = &turn.case.load;
        let room = load.max_in_flight.map(|most| Arc::new(Room { taken: AtomicU64::new(0), most: u64::from(most) }));
        let rounds = if let Shape::Static { batch } = load.shape { Some(Arc::new(Rounds::new(batch))) } else { None };
        let (spent, halt) = (Stop::default(), Stop::default());
        let sheets = Arc::new(Sheets::new(turn, halt.clone()));
        let contact = Arc::new(Contact::new(stop.clone(), context.events.clone(), turn.fail_fast.clone()));
        let over = [&spent, &halt, &stop].map(Clone::clone);
        let session = turn.model.clone().map(|host| (host, Arc::new(session(turn.case, clock, Some(&sheets), over))));
        Stage {
            turn,
            bench,
            route,
            session,
            sheets,
            clock,
            context,
            gauges: (0..lane_count(turn.case)).map(|_| Arc::default()).collect(),
            quota: Arc::new(Quota::new(load)),
            room,
            rounds,
            spent,
            halt,
            contact,
            stop,
        }
    }

    fn desk(&self, journal: Writer) -> Desk {
        let load = &self.turn.case.load;
        Desk {
            case: self.turn.index,
            id: self.turn.case.id.clone(),
            round: self.turn.round,
            journal,
            keeper: None,
            tokenizers: tokenizers(&self.bench.lines),
            tally: Tally::after(self.turn.seen.clone()),
            rows: self.turn.probe.map(|_| Builder::default()),
            meter: Meter::new(self.turn.planned, load.lasts().map(Nanos::secs)),
            gauges: self.gauges.clone(),
            events: self.context.events.clone(),
            halt: self.halt.clone(),
            watcher: Watcher::over(self.turn.case, self.turn.round, self.turn.planned),
            stop: self.stop.clone(),
            lookout: self.turn.probe.filter(|probe| probe.may_stop).map(|_| Lookout::new(self.turn.case)),
        }
    }

    fn start_lanes(&self, feed: &Feed, scribe: Option<&Scribe>, results: Sender<Finished>) -> Vec<Result<Lane, RunError>> {
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
        (queue, asks): (Receiver<Call>, Option<Sender<Ask>>),
        results: Sender<Finished>,
    ) -> Result<Lane, RunError> {
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
        let ahead = needed(&load, &changes, queue.len());
        Lane::start(index, clock, gauges, halt.clone(), move || {
            Ok(Drive {
                engine: engine(&target, (route.as_ref(), own), setting)?,
                gate: Gate::new(changes),
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
                visits: asks.map(Visits::new).transpose().map_err(RunError::Thread)?,
            })
        })
    }

    /// Fills in what is known only when the round is over.
    fn describe(&self, part: &mut Part, first_measured: Option<Nanos>, lanes: Vec<LaneReport>) {
        part.local = self.session.as_ref().map(|(host, session)| told(host, session));
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

    fn vitals(&self, lanes: Vec<LaneReport>) -> Vitals {
        let wall = self.clock.now().secs().max(1e-9);
        let mut stall = Spans::default();
        lanes.iter().for_each(|lane| stall.merge(&lane.stall));
        let totals = reading(&self.gauges);
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
