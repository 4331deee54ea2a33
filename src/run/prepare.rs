//! Everything a case needs, made ready and checked before anything is sent.

use crate::run::error::RunError;
use crate::run::event::{Event, Preparing};
use crate::run::execution::Context;
use crate::run::execution::stop::Level;
use crate::run::requests::traffic_class::{TrafficClass, datasets};
use http::Uri;
use llmscen_client::clock::Clock;
use llmscen_client::counters::Gauges;
use llmscen_client::http::{Http, Setting};
use llmscen_client::route::Route;
use llmscen_client::route::proxy_for;
use llmscen_core::dataset::{DatasetSpec, OnExhausted};
use llmscen_core::load::Shape;
use llmscen_core::mix::Entry;
use llmscen_core::outcome::{Failure, FailureKind};
use llmscen_core::plan::{Case, Plan, TraceFile};
use llmscen_core::redact::Redactor;
use llmscen_core::schedule::due::Schedule;
use llmscen_core::seed::Seed;
use llmscen_core::target::{Place, Target};
use llmscen_core::units::Nanos;
use llmscen_core::url_secrets::shown;
use llmscen_datasets::token::Tokenizer;
use llmscen_datasets::{Log, Progress, Prompts};
use llmscen_protocols::{Protocol, protocol};
use llmscen_scenario::render::Renderer;
use llmscen_telemetry::process::allow_open_files;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};
use tokio::task::LocalSet;

/// Attempts to reach a target before the run is given up, and the rest between them.
const ATTEMPTS: u32 = 3;
const REST: Duration = Duration::from_millis(500);
/// While a dataset is opened, the switch is looked at this often.
const LOOK: Duration = Duration::from_millis(50);

/// Open files besides connections.
const SPARE_FILES: u64 = 128;
/// Asked for where nobody knows how many connections there will be: as many as Linux gives a process unless told otherwise.
const MANY_FILES: u64 = 1 << 20;

/// One case, ready to run.
pub struct PreparedCase {
    /// The kinds of its requests, in the order of its mix; one without a mix.
    pub classes: Vec<Arc<TrafficClass>>,
    /// What it speaks.
    pub protocol: Arc<dyn Protocol>,
    /// What a reader must know of its data.
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

impl PreparedCase {
    /// Readies every case of a plan. Datasets, templates and certificates are read here, so that their faults come first.
    pub fn of_plan(plan: &Plan, context: &Context) -> Result<Vec<PreparedCase>, RunError> {
        let mut store = DatasetCache::default();
        plan.cases.iter().enumerate().map(|numbered| store.prepared(numbered, plan, context)).collect()
    }

    fn new(case: &Case, datasets: Vec<Dataset>, log: Option<Log>, context: &Context) -> Result<PreparedCase, RunError> {
        let route = match &case.target.place {
            Place::Url(url) => Some(Route::new(url, &case.target.tls, &context.env)?),
            Place::Simulator { .. } | Place::Local(_) => None,
        };
        let protocol = protocol(case.target.api, case.request.extract.as_ref()).map_err(RunError::Protocol)?;
        let mut notes: Vec<String> = datasets.iter().flat_map(|dataset| dataset.notes.iter().cloned()).collect();
        notes.extend(log.iter().flat_map(|log| log.notes.clone()));
        let own = datasets.first().and_then(|dataset| dataset.prompts.arrivals());
        let arrivals = arrivals(case, own, log.as_ref())?;
        let mut conversations = case.talks();
        for dataset in &datasets {
            conversations = conversations || begins_with_turns(dataset.prompts.as_ref(), context)?;
        }
        let lines = case.lines().into_iter().zip(datasets).enumerate();
        let classes: Result<Vec<Arc<TrafficClass>>, RunError> = lines
            .map(|(index, (own, dataset))| Ok(Arc::new(line(case.mix.get(index), own, dataset, protocol.as_ref())?)))
            .collect();
        Ok(PreparedCase { classes: classes?, protocol, notes, arrivals, conversations, route, stem: String::new() })
    }

    /// Adds what a reader must know of the data, as far as it is known by now, in order. Cases that share data share its notes.
    pub fn tell(&self, notes: &mut Vec<String>) {
        notes.extend(self.notes.iter().cloned().chain(self.problems()));
        notes.sort();
        notes.dedup();
    }

    /// What a reader must know of rows that were left out, as far as they are known.
    pub fn problems(&self) -> Vec<String> {
        datasets(&self.classes).iter().flat_map(|line| line.prompts.problems()).collect()
    }

    /// Rows left out so far.
    pub fn dropped(&self) -> u64 {
        datasets(&self.classes).iter().map(|line| line.prompts.dropped()).sum()
    }

    /// How many sessions one round of this case will have, and when the last one is due, as far as the plan or the log
    /// fixes that; exact where it is an open loop.
    pub fn extent(&self, case: &Case, seed: Seed) -> (Option<u64>, Option<Nanos>) {
        extent(case, seed, self.arrivals.as_ref())
    }
}

fn line(entry: Option<&Entry>, case: Case, dataset: Dataset, protocol: &dyn Protocol) -> Result<TrafficClass, RunError> {
    let renderer = Arc::new(Renderer::new(&case, |stream| protocol.body(stream))?);
    let tokenizer = dataset.tokenizer.filter(|_| case.dataset.tokenizer.is_some());
    Ok(TrafficClass { entry: entry.cloned(), case, prompts: dataset.prompts, tokenizer, renderer })
}

/// What was opened for the cases so far.
#[derive(Default)]
pub struct DatasetCache {
    opened: Vec<(DatasetSpec, Dataset)>,
    logs: Logs,
}

impl DatasetCache {
    /// Readies a case, which has this index in the plan. Cases that share a dataset share its rows in memory.
    ///
    /// # Errors
    /// As of [`PreparedCase::of_plan`].
    pub fn prepared(&mut self, (index, case): (usize, &Case), plan: &Plan, context: &Context) -> Result<PreparedCase, RunError> {
        let lines = case.lines();
        let datasets: Result<Vec<Dataset>, RunError> =
            lines.iter().map(|line| self.dataset(&line.dataset, plan, context)).collect();
        let stem = format!("{}-{index}", plan.id.get(..8).unwrap_or(&plan.id));
        Ok(PreparedCase { stem, ..PreparedCase::new(case, datasets?, self.logs.of(case)?, context)? })
    }

    fn dataset(&mut self, spec: &DatasetSpec, plan: &Plan, context: &Context) -> Result<Dataset, RunError> {
        if let Some((_, dataset)) = self.opened.iter().find(|(known, _)| known == spec) {
            return Ok(dataset.clone());
        }
        let dataset = open(spec, plan, context)?;
        self.opened.push((spec.clone(), dataset.clone()));
        Ok(dataset)
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

/// As [`PreparedCase::extent`], of a case whose arrivals to replay are these.
pub fn extent(case: &Case, seed: Seed, arrivals: Option<&Arc<[Nanos]>>) -> (Option<u64>, Option<Nanos>) {
    match Schedule::of(case, seed, arrivals) {
        Some(schedule) => schedule.extent().unzip(),
        None => (case.load.planned(), None),
    }
}

/// The arrivals that a case replays: those of a log, or the data's `own`. None where it replays none.
pub fn arrivals(case: &Case, own: Option<Arc<[Nanos]>>, log: Option<&Log>) -> Result<Option<Arc<[Nanos]>>, RunError> {
    if !matches!(case.load.shape, Shape::Replay { .. }) {
        return Ok(None);
    }
    log.map(|log| log.arrivals.clone()).or(own).map(Some).ok_or(RunError::NoArrivals)
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
        let log = llmscen_datasets::trace_log(file.path.as_ref(), &file.spec, strict)?;
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
        let opened = llmscen_datasets::open(&spec, seed, 0, &cache, &|progress| {
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

/// Opens a connection to every distinct target that runs already, and closes it again. Nothing is posted. The prepared cases are those of
/// the cases.
pub fn reach_all(cases: &[Case], prepared_cases: &[PreparedCase], context: &Context) -> Result<(), RunError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(RunError::Thread)?;
    let running = cases.iter().zip(prepared_cases).filter(|(case, _)| case.target.server.is_none());
    let reached = LocalSet::new().block_on(&runtime, reach_each(running, context));
    // A name that is still being resolved must not be waited for.
    runtime.shutdown_background();
    reached
}

async fn reach_each<'a>(cases: impl Iterator<Item = (&'a Case, &'a PreparedCase)>, context: &Context) -> Result<(), RunError> {
    let mut reached: Vec<&str> = Vec::new();
    for (case, prepared) in cases {
        let (Place::Url(url), Some(route)) = (&case.target.place, &prepared.route) else { continue };
        if !reached.contains(&url.as_str()) {
            reach(&case.target, prepared, (url, route), context).await?;
            reached.push(url);
        }
    }
    Ok(())
}

/// Likewise the target of one case, which has just been started.
pub async fn reach_started(case: &Case, prepared: &PreparedCase, context: &Context) -> Result<(), RunError> {
    reach_each(std::iter::once((case, prepared)), context).await
}

/// An engine for what is asked besides the requests of a round.
pub(crate) fn engine(target: &Target, prepared: &PreparedCase, route: &Route, began: Instant) -> Result<Http, RunError> {
    let setting = Setting {
        clock: Clock::starting(began),
        gauges: Arc::new(Gauges::default()),
        protocol: prepared.protocol.clone(),
        keep_text: false,
        keep_bodies: false,
        manners: Default::default(),
    };
    Ok(Http::new(target, route, setting)?)
}

async fn reach(
    target: &Target,
    prepared: &PreparedCase,
    (url, route): (&str, &Route),
    context: &Context,
) -> Result<(), RunError> {
    let began = Instant::now();
    let engine = engine(target, prepared, route, began)?;
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

/// Every URL of a plan without its secrets, and the proxy in front of it in words; `env` holds the proxy variables.
pub fn describe_targets(plan: &Plan, env: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let urls = plan.cases.iter().filter_map(|case| match &case.target.place {
        Place::Url(url) => Some((&case.target, url)),
        Place::Simulator { .. } | Place::Local(_) => None,
    });
    let proxy = |url: &str| proxy_for(&url.parse::<Uri>().ok()?, env).map(|proxy| format!("through the proxy {proxy}"));
    urls.map(|(target, url)| (Redactor::of(target).clean(&shown(url)), proxy(url).unwrap_or_default())).collect()
}

/// Notes which models the target of a case serves, where one of its requests was answered with 404 and it was not asked before.
pub fn list_models(case: &Case, prepared: &PreparedCase, not_found: bool, served: &mut BTreeMap<String, Vec<String>>) {
    let (Place::Url(url), Some(route)) = (&case.target.place, &prepared.route) else { return };
    let url = Redactor::of(&case.target).clean(url);
    if served.contains_key(&url) || !not_found {
        return;
    }
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else { return };
    let asked = async { engine(&case.target, prepared, route, Instant::now()).ok()?.served_models().await };
    let names = LocalSet::new().block_on(&runtime, asked);
    runtime.shutdown_background();
    // An empty list is kept too: the target is asked once.
    served.insert(url, names.unwrap_or_default());
}

/// Raises the limit on open files to what the plan needs.
pub(crate) fn raise_open_file_limit(plan: &Plan) -> Result<(), RunError> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use llmscen_scenario::Input;
    use std::collections::BTreeMap;
    use std::path::Path;

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
