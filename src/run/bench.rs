//! Everything a case needs, made ready and checked before anything is sent.

use crate::engine::clock::Clock;
use crate::engine::gauges::Gauges;
use crate::engine::http::{Http, Setting};
use crate::engine::redact::Redactor;
use crate::engine::route::Route;
use crate::model::dataset::{DatasetSpec, OnExhausted};
use crate::model::load::Shape;
use crate::model::outcome::{Failure, FailureKind};
use crate::model::plan::{Case, Plan, TraceFile};
use crate::model::prompt::Session;
use crate::model::seed::Seed;
use crate::model::target::{Place, Target};
use crate::model::units::Nanos;
use crate::pace::schedule::Schedule;
use crate::prompts::{self, Log, Progress, PromptError, Prompts};
use crate::run::context::Context;
use crate::run::error::RunError;
use crate::run::event::{Event, Preparing};
use crate::run::stop::Level;
use crate::scenario::render::Renderer;
use crate::token::Tokenizer;
use crate::wire::{Protocol, protocol};
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};
use tokio::task::LocalSet;

/// Attempts to reach a target before the run is given up, and the rest between them.
const ATTEMPTS: u32 = 3;
const REST: Duration = Duration::from_millis(500);
/// While a dataset is opened, the switch is looked at this often.
const LOOK: Duration = Duration::from_millis(50);

/// One case, ready to run.
pub struct Bench {
    /// Its prompts.
    pub prompts: Arc<dyn Prompts>,
    /// Counts generated text, where the scenario names a tokenizer.
    pub tokenizer: Option<Arc<Tokenizer>>,
    /// Renders its bodies.
    pub renderer: Arc<Renderer>,
    /// What it speaks.
    pub protocol: Arc<dyn Protocol>,
    /// What a reader must know of its dataset.
    pub notes: Vec<String>,
    /// The arrivals that a replay follows.
    pub arrivals: Option<Arc<[Nanos]>>,
    /// Its sessions may have several turns, so that the text of replies is kept.
    pub conversations: bool,
    /// The way to its target; None for the simulator, which is started with each round.
    pub route: Option<Route>,
    /// What the ids of its requests begin with: the plan's and its own.
    pub stem: String,
}

impl Bench {
    /// Readies every case of a plan. Datasets, templates and certificates are read here, so that their faults come first.
    pub fn of_plan(plan: &Plan, context: &Context) -> Result<Vec<Bench>, RunError> {
        let mut store = Store::default();
        let named = |(index, case)| {
            let stem = format!("{}-{index}", plan.id.get(..8).unwrap_or(&plan.id));
            Ok(Bench { stem, ..store.bench(case, plan, context)? })
        };
        plan.cases.iter().enumerate().map(named).collect()
    }

    fn new(case: &Case, dataset: Dataset, log: Option<Log>, context: &Context) -> Result<Bench, RunError> {
        let route = match &case.target.place {
            Place::Url(url) => Some(Route::new(url, &case.target.tls, &context.env)?),
            Place::Simulator { .. } => None,
        };
        let protocol = protocol(case.target.api, case.request.extract.as_ref()).map_err(RunError::Protocol)?;
        let renderer = Arc::new(Renderer::new(case, |stream| protocol.body(stream))?);
        let tokenizer = dataset.tokenizer.filter(|_| case.dataset.tokenizer.is_some());
        let notes = dataset.notes.into_iter().chain(log.iter().flat_map(|log| log.notes.clone())).collect();
        let arrivals = arrivals(case, dataset.prompts.as_ref(), log.as_ref())?;
        let conversations = case.dataset.turns.is_some() || begins_with_turns(dataset.prompts.as_ref(), context)?;
        let prompts = dataset.prompts;
        Ok(Bench { prompts, tokenizer, renderer, protocol, notes, arrivals, conversations, route, stem: String::new() })
    }

    /// How many sessions one round of this case will have, and when the last one is due, as far as the plan or the log
    /// fixes that; exact where it is an open loop.
    pub fn extent(&self, case: &Case, seed: Seed) -> (Option<u64>, Option<Nanos>) {
        extent(case, seed, self.arrivals.as_ref())
    }
}

/// What was opened for the cases so far.
#[derive(Default)]
pub struct Store {
    opened: Vec<(DatasetSpec, Dataset)>,
    logs: Logs,
}

impl Store {
    /// Readies a case. Cases that share a dataset share its rows in memory.
    ///
    /// # Errors
    /// As of [`Bench::of_plan`].
    pub fn bench(&mut self, case: &Case, plan: &Plan, context: &Context) -> Result<Bench, RunError> {
        let known = self.opened.iter().find(|(spec, _)| *spec == case.dataset).map(|(_, dataset)| dataset.clone());
        let dataset = match known {
            Some(dataset) => dataset,
            None => {
                let dataset = open(&case.dataset, plan, context)?;
                self.opened.push((case.dataset.clone(), dataset.clone()));
                dataset
            }
        };
        Bench::new(case, dataset, self.logs.of(case)?, context)
    }
}

/// Whether the data begins with a session of several turns; the switch is looked at while its first row is being found.
fn begins_with_turns(prompts: &dyn Prompts, context: &Context) -> Result<bool, RunError> {
    while !prompts.ready(0, LOOK) {
        if context.stop.level() > Level::Run {
            return Err(RunError::Interrupted);
        }
    }
    Ok(prompts.session(0).is_some_and(|first| first.turns.len() > 1))
}

/// As [`Bench::extent`], of a case whose arrivals to replay are these.
pub fn extent(case: &Case, seed: Seed, arrivals: Option<&Arc<[Nanos]>>) -> (Option<u64>, Option<Nanos>) {
    match Schedule::new(&case.load, seed, arrivals) {
        Some(schedule) => schedule.extent().unzip(),
        None => (case.load.planned(), None),
    }
}

/// The arrivals that a case replays; None where it replays none.
pub fn arrivals(case: &Case, prompts: &dyn Prompts, log: Option<&Log>) -> Result<Option<Arc<[Nanos]>>, RunError> {
    if !matches!(case.load.shape, Shape::Replay { .. }) {
        return Ok(None);
    }
    let own = || prompts.arrivals();
    log.map(|log| log.arrivals.clone()).or_else(own).map(Some).ok_or(RunError::NoArrivals)
}

/// Logs of arrivals that were opened; the cases that name one share it.
#[derive(Default)]
pub struct Logs(Vec<(TraceFile, bool, Log)>);

impl Logs {
    /// The log that a case replays from a file of its own.
    ///
    /// # Errors
    /// A file that cannot be read, or that holds no arrival.
    pub fn of(&mut self, case: &Case) -> Result<Option<Log>, RunError> {
        let replays = matches!(case.load.shape, Shape::Replay { .. });
        let Some(file) = case.trace.as_ref().filter(|_| replays) else { return Ok(None) };
        let strict = case.dataset.strict;
        if let Some((.., log)) = self.0.iter().find(|(known, how, _)| known == file && *how == strict) {
            return Ok(Some(log.clone()));
        }
        let log = prompts::trace_log(file.path.as_ref(), &file.spec, strict)?;
        self.0.push((file.clone(), strict, log.clone()));
        Ok(Some(log))
    }
}

/// An opened dataset, shared by the cases that name it.
#[derive(Clone)]
struct Dataset {
    prompts: Arc<dyn Prompts>,
    tokenizer: Option<Arc<Tokenizer>>,
    notes: Vec<String>,
}

/// Opens a dataset on a thread of its own: a download can take long, and the switch must not wait for it.
fn open(spec: &DatasetSpec, plan: &Plan, context: &Context) -> Result<Dataset, RunError> {
    // Where the data of a case ends is for its rounds to say: each begins behind the rows of the one before.
    let spec = DatasetSpec { on_exhausted: OnExhausted::Cycle, ..spec.clone() };
    let (seed, cache, events) = (plan.seed, context.cache.clone(), context.events.clone());
    let (sender, receiver) = mpsc::channel();
    let work = move || {
        let opened = prompts::open(&spec, seed, 0, &cache, &|progress| {
            let _ = events.send(Event::Preparing(match progress {
                Progress::Download { bytes, total } => Preparing { what: "downloading", unit: "bytes", done: bytes, total },
                Progress::Rows { done, total } => Preparing { what: "counting", unit: "rows", done, total },
            }));
        });
        let _ = sender.send(opened);
    };
    std::thread::Builder::new().name("dataset".into()).spawn(work).map_err(RunError::Thread)?;
    let opened = loop {
        match receiver.recv_timeout(LOOK) {
            Ok(opened) => break opened?,
            Err(RecvTimeoutError::Disconnected) => return Err(RunError::Panicked("dataset")),
            Err(RecvTimeoutError::Timeout) if context.stop.level() > Level::Run => return Err(RunError::Interrupted),
            Err(RecvTimeoutError::Timeout) => {}
        }
    };
    Ok(Dataset { prompts: opened.prompts.into(), tokenizer: opened.tokenizer, notes: opened.notes })
}

/// Prompts from another first row on, so that the cases of a sweep do not repeat each other's.
pub struct Shifted {
    /// The whole dataset.
    pub prompts: Arc<dyn Prompts>,
    /// The index of this part's first row.
    pub first: u64,
    /// Every row once at the most: the part ends there instead of starting again.
    pub once: bool,
}

impl Prompts for Shifted {
    fn session(&self, seq: u64) -> Option<Session> {
        let session = self.prompts.session(self.first.wrapping_add(seq))?;
        // Only now: the end of a long file is known when it has been reached. A log without an end to its words has an end
        // to its arrivals.
        let rows = || self.prompts.len().or_else(|| Some(self.prompts.arrivals()?.len() as u64));
        let over = self.once && rows().is_some_and(|rows| seq >= rows);
        (!over).then_some(session)
    }

    fn len(&self) -> Option<u64> {
        self.prompts.len()
    }

    fn dropped(&self) -> u64 {
        self.prompts.dropped()
    }

    fn ready(&self, seq: u64, most: Duration) -> bool {
        self.prompts.ready(self.first.wrapping_add(seq), most)
    }

    fn fault(&self) -> Option<Arc<PromptError>> {
        self.prompts.fault()
    }

    fn problems(&self) -> Vec<String> {
        self.prompts.problems()
    }
}

/// Opens a connection to every distinct target and closes it again. Nothing is posted. The benches are those of the cases.
pub fn reach_all(cases: &[Case], benches: &[Bench], context: &Context) -> Result<(), RunError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(RunError::Thread)?;
    let reached = LocalSet::new().block_on(&runtime, reach_each(cases, benches, context));
    // A name that is still being resolved must not be waited for.
    runtime.shutdown_background();
    reached
}

async fn reach_each(cases: &[Case], benches: &[Bench], context: &Context) -> Result<(), RunError> {
    let mut reached: Vec<&str> = Vec::new();
    for (case, bench) in cases.iter().zip(benches) {
        let (Place::Url(url), Some(route)) = (&case.target.place, &bench.route) else { continue };
        if !reached.contains(&url.as_str()) {
            reach(&case.target, bench, (url, route), context).await?;
            reached.push(url);
        }
    }
    Ok(())
}

async fn reach(target: &Target, bench: &Bench, (url, route): (&str, &Route), context: &Context) -> Result<(), RunError> {
    let began = Instant::now();
    let setting = Setting {
        clock: Clock::starting(began),
        gauges: Arc::new(Gauges::default()),
        protocol: bench.protocol.clone(),
        keep_text: false,
        manners: Default::default(),
    };
    let engine = Http::new(target, route, setting)?;
    let tried = tokio::select! {
        biased;
        () = context.stop.reached(Level::Drain) => return Err(RunError::Interrupted),
        tried = attempt(&engine) => tried,
    };
    tried.map_err(|(attempts, failure)| RunError::Unreachable {
        url: Redactor::of(target).clean(url),
        failure,
        attempts,
        seconds: began.elapsed().as_secs_f64(),
    })
}

/// Tries to open a connection; the error is the last attempt's, with its number. Where nobody answers within the
/// connect timeout, another attempt would only take as long again.
async fn attempt(engine: &Http) -> Result<(), (u32, Failure)> {
    let mut number = 1;
    loop {
        match engine.reach().await {
            Ok(()) => return Ok(()),
            Err(failure) if number == ATTEMPTS || failure.kind == FailureKind::TimeoutConnect => return Err((number, failure)),
            Err(_) => tokio::time::sleep(REST).await,
        }
        number += 1;
    }
}
