//! Everything a case needs, made ready and checked before anything is sent.

use crate::engine::clock::Clock;
use crate::engine::gauges::Gauges;
use crate::engine::http::{Http, Setting};
use crate::engine::route::Route;
use crate::model::dataset::DatasetSpec;
use crate::model::outcome::Failure;
use crate::model::plan::{Case, Plan};
use crate::model::prompt::Session;
use crate::model::target::{Place, Target};
use crate::prompts::{self, Progress, Prompts};
use crate::run::conduct::Context;
use crate::run::error::RunError;
use crate::run::event::{Event, Preparing};
use crate::scenario::render::Renderer;
use crate::token::Tokenizer;
use crate::wire::protocol;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::task::LocalSet;

/// Attempts to reach a target before the run is given up, and the rest between them.
const ATTEMPTS: u32 = 3;
const REST: Duration = Duration::from_millis(500);

/// One case, ready to run.
pub struct Bench {
    /// Its prompts.
    pub prompts: Arc<dyn Prompts>,
    /// Rows of its dataset that were left out.
    pub rows_dropped: u64,
    /// Counts generated text, where the scenario names a tokenizer.
    pub tokenizer: Option<Arc<Tokenizer>>,
    /// Renders its bodies.
    pub renderer: Arc<Renderer>,
    /// The way to its target; None for the simulator, which is started with each round.
    pub route: Option<Route>,
}

impl Bench {
    /// Readies every case of a plan. Datasets, templates and certificates are read here, so that their faults come first.
    pub fn of_plan(plan: &Plan, context: &Context) -> Result<Vec<Bench>, RunError> {
        let mut opened: Vec<(&DatasetSpec, Dataset)> = Vec::new();
        let mut benches = Vec::with_capacity(plan.cases.len());
        for case in &plan.cases {
            // Cases of a sweep that share a dataset share its rows in memory.
            let known = opened.iter().find(|(spec, _)| **spec == case.dataset).map(|(_, dataset)| dataset.clone());
            let dataset = match known {
                Some(dataset) => dataset,
                None => {
                    let dataset = open(&case.dataset, plan, context)?;
                    opened.push((&case.dataset, dataset.clone()));
                    dataset
                }
            };
            benches.push(Bench::new(case, dataset, context)?);
        }
        Ok(benches)
    }

    fn new(case: &Case, dataset: Dataset, context: &Context) -> Result<Bench, RunError> {
        let route = match &case.target.place {
            Place::Url(url) => Some(Route::new(url, &case.target.tls, &context.env)?),
            Place::Simulator(_) => None,
        };
        let renderer = Arc::new(Renderer::new(case, &protocol(case.target.api).body(case.request.stream))?);
        let tokenizer = dataset.tokenizer.filter(|_| case.dataset.tokenizer.is_some());
        Ok(Bench { rows_dropped: dataset.prompts.dropped(), prompts: dataset.prompts, tokenizer, renderer, route })
    }
}

/// An opened dataset, shared by the cases that name it.
#[derive(Clone)]
struct Dataset {
    prompts: Arc<dyn Prompts>,
    tokenizer: Option<Arc<Tokenizer>>,
}

fn open(spec: &DatasetSpec, plan: &Plan, context: &Context) -> Result<Dataset, RunError> {
    let opened = prompts::open(spec, plan.seed, 0, &context.cache, &|progress| {
        let _ = context.events.send(Event::Preparing(match progress {
            Progress::Download { bytes, total } => Preparing { what: "downloading", unit: "bytes", done: bytes, total },
            Progress::Rows { done, total } => Preparing { what: "counting", unit: "rows", done, total: Some(total) },
        }));
    })?;
    for note in opened.notes {
        let _ = context.events.send(Event::Note(note));
    }
    Ok(Dataset { prompts: opened.prompts.into(), tokenizer: opened.tokenizer })
}

/// Prompts from another first row on, so that the cases of a sweep do not repeat each other's.
pub struct Shifted {
    /// The whole dataset.
    pub prompts: Arc<dyn Prompts>,
    /// The index of this part's first row.
    pub first: u64,
}

impl Prompts for Shifted {
    fn session(&self, seq: u64) -> Option<Session> {
        self.prompts.session(self.first + seq)
    }

    fn len(&self) -> Option<u64> {
        self.prompts.len()
    }

    fn dropped(&self) -> u64 {
        self.prompts.dropped()
    }
}

/// Opens a connection to every distinct target and closes it again. Nothing is posted.
pub fn reach_all(plan: &Plan, benches: &[Bench], context: &Context) -> Result<(), RunError> {
    let mut reached: Vec<&str> = Vec::new();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(RunError::Thread)?;
    for (case, bench) in plan.cases.iter().zip(benches) {
        let (Place::Url(url), Some(route)) = (&case.target.place, &bench.route) else { continue };
        if !reached.contains(&url.as_str()) {
            LocalSet::new().block_on(&runtime, reach(&case.target, url, route, context))?;
            reached.push(url);
        }
    }
    Ok(())
}

async fn reach(target: &Target, url: &str, route: &Route, context: &Context) -> Result<(), RunError> {
    let began = Instant::now();
    let setting = Setting { clock: Clock::starting(began), gauges: Arc::new(Gauges::default()), keep_text: false };
    let engine = Http::new(target, route, setting)?;
    let mut last = None;
    for attempt in 1..=ATTEMPTS {
        match engine.reach().await {
            Ok(()) => return Ok(()),
            Err(failure) => last = Some((attempt, failure)),
        }
        if attempt < ATTEMPTS && context.stop.level() == Default::default() {
            tokio::time::sleep(REST).await;
        }
    }
    let (attempts, failure) = last.unwrap_or((0, Failure::new(crate::model::outcome::FailureKind::Connect, "not tried")));
    Err(RunError::Unreachable { url: url.to_owned(), failure, attempts, seconds: began.elapsed().as_secs_f64() })
}
