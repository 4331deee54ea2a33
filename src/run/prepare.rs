//! Opens and checks everything that a case needs, before the first request.

use crate::run::context::Context;
use crate::run::error::RunError;
use crate::run::event::Event;
use crate::run::readiness::{check_queries, wait_for_targets};
use crate::run::requests::prepared_case::PreparedCase;
use crate::run::requests::traffic_class::TrafficClass;
use crate::run::stop::Level;
use http::Uri;
use llmscen_client::clock::Clock;
use llmscen_client::counters::LiveCounters;
use llmscen_client::http::{HttpClient, HttpOptions, ServerIdentity};
use llmscen_client::route::{Route, proxy_for};
use llmscen_core::dataset::{DatasetSpec, OnExhausted};
use llmscen_core::load::Shape;
use llmscen_core::mix::MixEntry;
use llmscen_core::outcome::{Failure, FailureKind};
use llmscen_core::plan::{Case, Plan, TraceFile};
use llmscen_core::schedule::shard::{Shard, Split};
use llmscen_core::target::{Target, TargetLocation};
use llmscen_core::units::Nanos;
use llmscen_core::url_secrets::redact_url;
use llmscen_datasets::token::Tokenizer;
use llmscen_datasets::{Log, Prompts};
use llmscen_protocols::{DecodeOptions, Markers, Protocol, protocol};
use llmscen_requests::answers::AnswerChecker;
use llmscen_requests::render::Renderer;
use llmscen_telemetry::process::allow_open_files;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};
use tokio::task::LocalSet;

/// Attempts to connect to a target, and the pause between them.
const CONNECT_ATTEMPTS: u32 = 3;
const CONNECT_PAUSE: Duration = Duration::from_millis(500);
/// A server that takes longer to describe itself remains undescribed.
const IDENTIFY_TIMEOUT: Duration = Duration::from_secs(2);
/// How often the switch is checked while a dataset is opened.
const STOP_POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Open files besides connections.
const SPARE_FILES: u64 = 128;
/// Open files to ask for if the number of connections is unknown: the default maximum of Linux.
const MANY_FILES: u64 = 1 << 20;

/// Prepares every case of a plan. Datasets, templates and certificates are read here, so that their errors are
/// reported before the first request.
///
/// # Errors
/// An input is unusable, or a signal came: [`RunError::Interrupted`].
pub fn prepare_cases(plan: &Plan, context: &Context) -> Result<Vec<PreparedCase>, RunError> {
    let mut datasets = DatasetCache::default();
    plan.cases
        .iter()
        .enumerate()
        .map(|(index, case)| datasets.prepare_case(index, case, plan, context))
        .collect()
}

/// The datasets and traces opened so far. Cases with the same dataset share it.
#[derive(Default)]
pub struct DatasetCache {
    datasets: Vec<(DatasetSpec, Dataset)>,
    traces: TraceCache,
}

impl DatasetCache {
    /// Prepares the case with this index in the plan.
    ///
    /// # Errors
    /// As of [`prepare_cases`].
    pub fn prepare_case(
        &mut self,
        index: usize,
        case: &Case,
        plan: &Plan,
        context: &Context,
    ) -> Result<PreparedCase, RunError> {
        let class_cases = case.traffic_classes();
        let datasets = class_cases
            .iter()
            .map(|class_case| self.dataset(&class_case.dataset, plan, context));
        let datasets: Vec<Dataset> = datasets.collect::<Result<_, _>>()?;
        let trace = self.traces.open(case)?;
        let routes = Route::to_target(&case.target, &context.env)?;
        let protocol =
            protocol(case.target.api, Some(&case.request)).map_err(RunError::Protocol)?;
        let mut notes: Vec<String> = datasets
            .iter()
            .flat_map(|dataset| dataset.notes.iter().cloned())
            .collect();
        notes.extend(trace.iter().flat_map(|trace| trace.notes.clone()));
        let arrivals = replayed_arrivals(case, &datasets, trace)?;
        let mut conversations = case.has_conversations();
        for dataset in &datasets {
            conversations =
                conversations || starts_with_conversation(dataset.prompts.as_ref(), context)?;
        }
        let mut classes = Vec::new();
        for (entry, (class_case, dataset)) in class_cases.into_iter().zip(datasets).enumerate() {
            let class = traffic_class(case.mix.get(entry), class_case, dataset, protocol.as_ref())?;
            classes.push(Arc::new(class));
        }
        let stem = format!("{}-{index}", plan.id.get(..8).unwrap_or(&plan.id));
        Ok(PreparedCase {
            classes,
            protocol,
            markers: Markers::new(&case.request.markers),
            notes,
            arrivals,
            conversations,
            routes,
            stem,
        })
    }

    fn dataset(
        &mut self,
        spec: &DatasetSpec,
        plan: &Plan,
        context: &Context,
    ) -> Result<Dataset, RunError> {
        if let Some((_, dataset)) = self.datasets.iter().find(|(known, _)| known == spec) {
            return Ok(dataset.clone());
        }
        let dataset = open_dataset(spec, plan, context)?;
        self.datasets.push((spec.clone(), dataset.clone()));
        Ok(dataset)
    }
}

fn traffic_class(
    entry: Option<&MixEntry>,
    case: Case,
    dataset: Dataset,
    protocol: &dyn Protocol,
) -> Result<TrafficClass, RunError> {
    let renderer = Arc::new(Renderer::new(&case, |stream| protocol.body(stream))?);
    let tokenizer = dataset
        .tokenizer
        .filter(|_| case.dataset.tokenizer.is_some());
    let answers = case.request.expect.as_ref().map(AnswerChecker::new);
    let answers = answers.transpose()?.map(Arc::new);
    Ok(TrafficClass {
        entry: entry.cloned(),
        case,
        prompts: dataset.prompts,
        tokenizer,
        renderer,
        answers,
    })
}

/// The arrivals that a case replays: those of a trace, or those of its dataset. None if it replays none.
fn replayed_arrivals(
    case: &Case,
    datasets: &[Dataset],
    trace: Option<Log>,
) -> Result<Option<Arc<[Nanos]>>, RunError> {
    if !matches!(case.load.shape, Shape::Replay { .. }) {
        return Ok(None);
    }
    let of_dataset = || {
        datasets
            .first()
            .and_then(|dataset| dataset.prompts.arrivals())
    };
    trace
        .map(|trace| trace.arrivals)
        .or_else(of_dataset)
        .map(Some)
        .ok_or(RunError::NoArrivals)
}

/// Whether the first session of a dataset has several turns.
fn starts_with_conversation(prompts: &dyn Prompts, context: &Context) -> Result<bool, RunError> {
    while !prompts.ready(0, STOP_POLL_INTERVAL) {
        if context.stop.level() > Level::Run {
            return Err(RunError::Interrupted);
        }
    }
    Ok(prompts.session(0).is_some_and(|first| first.count() > 1))
}

/// The traces of arrivals opened so far. Cases with the same trace share it.
#[derive(Default)]
pub struct TraceCache(Vec<OpenedTrace>);

struct OpenedTrace {
    file: TraceFile,
    strict: bool,
    trace: Log,
}

impl TraceCache {
    /// The trace that a case replays; None if it replays none, or the arrivals of its dataset.
    ///
    /// # Errors
    /// The file cannot be read, or has no arrivals.
    pub fn open(&mut self, case: &Case) -> Result<Option<Log>, RunError> {
        let replays = matches!(case.load.shape, Shape::Replay { .. });
        let Some(file) = case.trace.as_ref().filter(|_| replays) else {
            return Ok(None);
        };
        let strict = case.dataset.strict;
        if let Some(opened) = self
            .0
            .iter()
            .find(|opened| opened.file == *file && opened.strict == strict)
        {
            return Ok(Some(opened.trace.clone()));
        }
        let trace = llmscen_datasets::trace_log(file.path.as_ref(), &file.spec, strict)?;
        self.0.push(OpenedTrace {
            file: file.clone(),
            strict,
            trace: trace.clone(),
        });
        Ok(Some(trace))
    }
}

/// An opened dataset, shared by the cases that name it.
#[derive(Clone)]
struct Dataset {
    prompts: Arc<dyn Prompts>,
    tokenizer: Option<Arc<Tokenizer>>,
    notes: Vec<String>,
}

/// Opens a dataset on a separate thread, so that a signal can interrupt a long download.
fn open_dataset(spec: &DatasetSpec, plan: &Plan, context: &Context) -> Result<Dataset, RunError> {
    // The rounds apply `on_exhausted` themselves: each starts after the rows of the one before.
    let spec = DatasetSpec {
        on_exhausted: OnExhausted::Cycle,
        ..spec.clone()
    };
    let seed = plan.seed;
    let cache = context.cache.clone();
    let events = context.events.clone();
    let (sender, receiver) = mpsc::channel();
    let work = move || {
        let opened = llmscen_datasets::open(&spec, seed, 0, &cache, &|progress| {
            let _ = events.send(Event::Preparing(progress.into()));
        });
        let _ = sender.send(opened);
    };
    std::thread::Builder::new()
        .name("dataset".into())
        .spawn(work)
        .map_err(RunError::Thread)?;
    let opened = loop {
        match receiver.recv_timeout(STOP_POLL_INTERVAL) {
            Ok(opened) => break opened?,
            Err(RecvTimeoutError::Disconnected) => return Err(RunError::Panicked("dataset")),
            Err(RecvTimeoutError::Timeout) if context.stop.level() > Level::Run => {
                return Err(RunError::Interrupted);
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
    };
    Ok(Dataset {
        prompts: opened.prompts.into(),
        tokenizer: opened.tokenizer,
        notes: opened.notes,
    })
}

/// Opens and closes one connection to every distinct target, except managed servers, which do not run yet. No request
/// is sent.
///
/// # Errors
/// A target cannot be reached, or a signal came.
pub fn reach_all(cases: Vec<(&Case, &PreparedCase)>, context: &Context) -> Result<(), RunError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(RunError::Thread)?;
    let targets = cases.iter().map(|(case, _)| &case.target);
    check_queries(targets, context.shard, &context.stop)?;
    let running = cases
        .into_iter()
        .filter(|(case, _)| case.target.server.is_none());
    let running: Vec<_> = running.collect();
    wait_for_targets(running.iter().map(|(case, _)| &case.target), context)?;
    let reached = LocalSet::new().block_on(&runtime, reach_targets(running.into_iter(), context));
    // A host name may still be resolving; do not wait for it.
    runtime.shutdown_background();
    reached
}

/// What the server at the first URL of a plan's first case says about itself; None for a target without a URL.
///
/// # Errors
/// The server cannot be reached, or a signal came.
pub fn identify_server(plan: &Plan, context: &Context) -> Result<Option<ServerIdentity>, RunError> {
    let case = plan.cases.first().ok_or(RunError::NothingToSend)?;
    let Some(url) = case.target.urls().next() else {
        return Ok(None);
    };
    let prepared = DatasetCache::default().prepare_case(0, case, plan, context)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(RunError::Thread)?;
    let found = LocalSet::new().block_on(&runtime, async {
        let Some(route) = prepared.routes.first() else {
            return Ok(None);
        };
        reach_target(&case.target, url, route, &prepared, context).await?;
        let client = http_client(&case.target, route, &prepared, Instant::now())?;
        Ok(Some(client.identify().await))
    });
    runtime.shutdown_background();
    found
}

/// As [`reach_all`] for the managed server of one case, which has just been started.
///
/// # Errors
/// As of [`reach_all`].
pub async fn reach_started(
    case: &Case,
    prepared: &PreparedCase,
    context: &Context,
) -> Result<(), RunError> {
    reach_targets(std::iter::once((case, prepared)), context).await
}

async fn reach_targets<'a>(
    cases: impl Iterator<Item = (&'a Case, &'a PreparedCase)>,
    context: &Context,
) -> Result<(), RunError> {
    let mut reached: Vec<&str> = Vec::new();
    for (case, prepared) in cases {
        for (url, route) in case.target.urls().zip(&prepared.routes) {
            if !reached.contains(&url) {
                reach_target(&case.target, url, route, prepared, context).await?;
                reached.push(url);
            }
        }
    }
    Ok(())
}

async fn reach_target(
    target: &Target,
    url: &str,
    route: &Route,
    prepared: &PreparedCase,
    context: &Context,
) -> Result<(), RunError> {
    let start = Instant::now();
    let client = http_client(target, route, prepared, start)?;
    let connected = tokio::select! {
        biased;
        () = context.stop.reached(Level::Drain) => return Err(RunError::Interrupted),
        connected = connect(&client) => connected,
    };
    connected.map_err(|(attempts, failure)| RunError::Unreachable {
        url: target.redactor().redact_truncated(url),
        failure,
        attempts,
        seconds: start.elapsed().as_secs_f64(),
    })
}

/// Tries to open a connection. The error is the number of attempts and the failure of the last one. A connect timeout
/// is not tried again: that would only take as long once more.
async fn connect(client: &HttpClient) -> Result<(), (u32, Failure)> {
    let mut attempt = 1;
    loop {
        match client.reach().await {
            Ok(()) => return Ok(()),
            Err(failure)
                if attempt == CONNECT_ATTEMPTS || failure.kind == FailureKind::TimeoutConnect =>
            {
                return Err((attempt, failure));
            }
            Err(_) => tokio::time::sleep(CONNECT_PAUSE).await,
        }
        attempt += 1;
    }
}

/// A client for requests outside of rounds.
fn http_client(
    target: &Target,
    route: &Route,
    prepared: &PreparedCase,
    start: Instant,
) -> Result<HttpClient, RunError> {
    let setting = HttpOptions {
        clock: Clock::new(start),
        counters: Arc::new(LiveCounters::default()),
        protocol: prepared.protocol.clone(),
        decode_options: DecodeOptions::default(),
        keep_bodies: false,
        policy: Default::default(),
    };
    Ok(HttpClient::new(target, route, setting)?)
}

/// Every URL of a plan without its secrets, and its proxy in words; `env`: the proxy variables.
pub fn describe_targets(plan: &Plan, env: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let mut targets = BTreeMap::new();
    let urls = plan
        .cases
        .iter()
        .flat_map(|case| case.target.urls().map(move |url| (case, url)));
    for (case, url) in urls {
        let proxy = url.parse::<Uri>().ok().and_then(|uri| proxy_for(&uri, env));
        let proxy = proxy
            .map(|proxy| format!("through the proxy {proxy}"))
            .unwrap_or_default();
        targets.insert(target_name(case, url), proxy);
    }
    targets
}

/// Lists the models that the target of a case serves in `served`, by its URL, if a request failed with 404
/// (`not_found`) and the target is not in the list yet.
pub fn list_models(
    case: &Case,
    prepared: &PreparedCase,
    not_found: bool,
    served: &mut BTreeMap<String, Vec<String>>,
) {
    let redactor = case.target.redactor();
    for (url, route) in case.target.urls().zip(&prepared.routes) {
        let url = redactor.redact_truncated(url);
        if not_found && !served.contains_key(&url) {
            let names = ask_server(case, prepared, route, async |client| {
                client.served_models().await
            });
            // An empty list is stored too, so that the request is sent once.
            served.insert(url, names.unwrap_or_default());
        }
    }
}

/// Adds the engine and its version to the entry of a URL in `targets`, if its server reports a version.
pub fn record_engine(
    case: &Case,
    prepared: &PreparedCase,
    (url, route): (&str, &Route),
    targets: &mut BTreeMap<String, String>,
) {
    let found = ask_server(case, prepared, route, async |client| {
        let identity = tokio::time::timeout(IDENTIFY_TIMEOUT, client.identify());
        identity.await.ok()
    });
    let Some((version, owner)) = found.and_then(|found| Some((found.version?, found.owner))) else {
        return;
    };
    let engine = owner.into_iter().chain([version]).collect::<Vec<_>>();
    let known = targets.entry(target_name(case, url)).or_default();
    let parts = [engine.join(" "), std::mem::take(known)];
    let parts = parts.iter().map(String::as_str).filter(|it| !it.is_empty());
    *known = parts.collect::<Vec<_>>().join(", ");
}

/// Asks a server of a case outside of rounds.
fn ask_server<T>(
    case: &Case,
    prepared: &PreparedCase,
    route: &Route,
    ask: impl AsyncFnOnce(HttpClient) -> Option<T>,
) -> Option<T> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .ok()?;
    let answer = LocalSet::new().block_on(&runtime, async {
        ask(http_client(&case.target, route, prepared, Instant::now()).ok()?).await
    });
    runtime.shutdown_background();
    answer
}

/// The URL of a target without its secrets.
fn target_name(case: &Case, url: &str) -> String {
    case.target.redactor().redact_truncated(&redact_url(url))
}

/// Raises the limit on open files to what the shard needs.
pub(crate) fn raise_open_file_limit(plan: &Plan, shard: Shard) -> Result<(), RunError> {
    let needed = plan
        .cases
        .iter()
        .map(|case| open_files(case, shard))
        .max()
        .unwrap_or_default();
    let unbounded = plan.cases.iter().any(has_unbounded_connections);
    let wanted = if unbounded {
        needed.files.max(MANY_FILES)
    } else {
        needed.files
    };
    let allowed = allow_open_files(wanted);
    if allowed >= needed.files {
        return Ok(());
    }
    Err(RunError::OpenFiles {
        connections: needed.connections,
        wanted: needed.files,
        allowed,
    })
}

/// Whether nothing bounds the number of requests in flight, and so of connections.
fn has_unbounded_connections(case: &Case) -> bool {
    !case.load.shape.is_closed_loop() && case.load.max_in_flight.is_none()
}

/// Maximum number of open files of a shard of a case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct OpenFiles {
    files: u64,
    connections: u64,
}

/// A connection is one open file per URL, or two with the simulator, which holds the other end in this process.
fn open_files(case: &Case, shard: Shard) -> OpenFiles {
    let split = Split::new(shard, &case.load.shape);
    let connections = match (&case.load.shape, case.load.max_in_flight) {
        (Shape::Burst, None) => {
            let planned = case.load.planned().or(case.load.turn_limit);
            split.local_index(planned.unwrap_or(0))
        }
        (shape, limit) => match shape.users() {
            Some(users) => u64::from(split.users(users)),
            None => shard.share(limit.map_or(0, |limit| u64::from(limit.of))),
        },
    };
    let files_per_connection = match &case.target.location {
        // A user may need a connection to each URL.
        TargetLocation::Urls(endpoints) => endpoints.urls().count() as u64,
        TargetLocation::Local(_) => 0,
        TargetLocation::Simulator { .. } => 2,
    };
    OpenFiles {
        files: connections * files_per_connection + SPARE_FILES,
        connections,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use llmscen_scenario::Input;
    use std::collections::BTreeMap;
    use std::path::Path;

    fn plan(target: &str, load: &str) -> Plan {
        let text = format!(
            "version: 1\nname: t\ntarget: {target}\ndataset: {{ kind: prompt, text: x }}\nload: {load}\n"
        );
        let input = Input {
            path: Path::new("t.yaml"),
            text: Some(text),
            env: &BTreeMap::new(),
            set: &[],
        };
        llmscen_scenario::load(&input)
            .unwrap_or_else(|faults| panic!("{}", faults.render(false, 120)))
            .plan
    }

    #[test]
    fn only_an_unbounded_load_needs_the_maximum_of_files() {
        let url = "{ url: \"http://h/v1/chat/completions\", model: m }";
        let is_unbounded = |load| has_unbounded_connections(&plan(url, load).cases[0]);
        assert!(is_unbounded("{ rate: 5/s, duration: 9s }"));
        assert!(
            !is_unbounded("{ rate: 5/s, duration: 9s, max_in_flight: 7 }")
                && !is_unbounded("{ concurrency: 8, requests: 9 }")
        );
    }

    #[test]
    fn a_connection_is_one_open_file_and_two_with_the_simulator() {
        let url = "{ url: \"http://h/v1/chat/completions\", model: m }";
        for (target, load, files) in [
            (url, "{ concurrency: 1000, requests: 5000 }", 1000),
            (
                "{ api: simulator }",
                "{ concurrency: 1000, requests: 5000 }",
                2000,
            ),
            (url, "{ rate: burst, requests: 300, warmup: 20 }", 320),
            (url, "{ rate: 5/s, duration: 9s, max_in_flight: 7 }", 7),
        ] {
            assert_eq!(
                open_files(&plan(target, load).cases[0], Shard::default()).files - SPARE_FILES,
                files,
                "{load}"
            );
            let shards = (0..3)
                .map(|index| open_files(&plan(target, load).cases[0], Shard { index, count: 3 }));
            assert_eq!(
                shards.map(|shard| shard.files - SPARE_FILES).sum::<u64>(),
                files,
                "{load}"
            );
        }
    }
}
