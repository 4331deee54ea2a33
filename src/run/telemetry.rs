//! The sources of telemetry of a run, and the file of their samples.

use crate::run::context::Context;
use crate::run::error::RunError;
use crate::store::{READINGS, RunDir};
use llmscen_analysis::telemetry;
use llmscen_core::check::{Check, Subject};
use llmscen_core::manifest::Machine;
use llmscen_core::metric::Requires;
use llmscen_core::plan::{Case, Plan};
use llmscen_core::target::{Target, TargetLocation};
use llmscen_core::telemetry::{MetricsKind, Scrape, TelemetryRecord, TelemetrySpec};
use llmscen_core::units::Nanos;
use llmscen_core::url_secrets::redact_url;
use llmscen_telemetry::TelemetrySource;
use llmscen_telemetry::dcgm::Dcgm;
use llmscen_telemetry::gpu::VisibleGpus;
use llmscen_telemetry::gpu::amd::Amd;
use llmscen_telemetry::gpu::nvml::Nvidia;
use llmscen_telemetry::host::Host;
use llmscen_telemetry::process::SelfProcess;
use llmscen_telemetry::prometheus::address::{Resolver, addresses, authority, system_resolver};
use llmscen_telemetry::prometheus::query::PrometheusQuery;
use llmscen_telemetry::prometheus::{PageLocation, Prometheus};
use llmscen_telemetry::sampler::Sampler;
use llmscen_telemetry::tree::ProcessTree;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// The telemetry sources of a run. GPUs are detected once.
pub struct Observer {
    spec: TelemetrySpec,
    nvidia: Option<Nvidia>,
    amd: Option<Amd>,
    /// Why no GPU is sampled, if telemetry asks for it.
    pub note: Option<String>,
    /// Whether this process samples GPUs and the target: of several shards, only shard 0 does.
    samples_target: bool,
    /// Looks up the workers behind a host name.
    resolve: Resolver,
}

/// Whether a metric of the case is missing without GPU telemetry.
fn needs_gpus(case: &Case) -> bool {
    let subject = |check: &Check| match &check.subject {
        Subject::Signal { signal, .. } => signal.scope() == "gpu",
        Subject::Metric { metric, .. } => metric.needs() == Requires::Power,
        Subject::Goodput(_) | Subject::Finish { .. } | Subject::PageMetric(_) => false,
    };
    case.target.gpus.is_some() || case.checks.iter().any(subject)
}

impl Observer {
    /// Detects GPUs, unless GPU telemetry is off, all targets are simulators, which use none, or another shard
    /// samples them.
    pub fn new(plan: &Plan, context: &Context) -> Observer {
        let spec = plan.telemetry.clone();
        let local_gpus = spec.gpu && spec.dcgm.is_none();
        let mut observer = Observer {
            spec,
            nvidia: None,
            amd: None,
            note: None,
            samples_target: context.shard.is_first(),
            resolve: system_resolver,
        };
        if !local_gpus
            || !observer.samples_target
            || observer.spec.interval == Nanos::ZERO
            || plan.cases.iter().all(is_simulated)
        {
            return observer;
        }
        match Nvidia::find(&VisibleGpus::from_env(
            &context.env,
            &["CUDA_VISIBLE_DEVICES"],
        )) {
            Ok(found) => observer.nvidia = Some(found),
            Err(why) => {
                observer.amd = Amd::find(&context.env);
                let note = format!(
                    "GPU telemetry is off: no NVIDIA or AMD driver on this machine ({why}; \
                     neither `amd-smi` nor `rocm-smi` is on PATH). Set `telemetry.gpu: false` to \
                     hide this note, or `telemetry.dcgm` to read a remote GPU node."
                );
                let is_asked = plan.cases.iter().any(needs_gpus);
                observer.note = (observer.amd.is_none() && is_asked).then_some(note);
            }
        }
        observer
    }

    /// Adds the detected GPUs to the description of the machine.
    pub fn describe_gpus(&self, machine: &mut Machine) {
        if let Some(gpus) = &self.nvidia {
            machine.gpu = gpus.describe();
            machine.gpu_driver = gpus.driver_version();
            machine.cuda = gpus.cuda_version();
            machine.gpu_clock = gpus.application_clock();
        } else if let Some(gpus) = &self.amd {
            machine.gpu = gpus.describe();
        }
    }

    /// Starts to sample a round of `case`, and returns notes on what cannot be sampled. `server`: the supervisor
    /// process of its managed server; `simulator`: the address of its simulator.
    ///
    /// # Errors
    /// The system provides no thread.
    pub fn start(
        &self,
        case: &Case,
        server: Option<u32>,
        simulator: Option<SocketAddr>,
    ) -> Result<(Sampler, Vec<String>), RunError> {
        let (sources, notes) = self.sources(case, server, simulator);
        Ok((Sampler::start(sources).map_err(RunError::Thread)?, notes))
    }

    /// The sources of a round, slow ones last, and notes on those that do not exist.
    fn sources(
        &self,
        case: &Case,
        server: Option<u32>,
        simulator: Option<SocketAddr>,
    ) -> (Vec<Box<dyn TelemetrySource>>, Vec<String>) {
        let mut notes = Vec::new();
        let mut sources: Vec<Box<dyn TelemetrySource>> = Vec::new();
        let interval = self.spec.interval;
        if interval > Nanos::ZERO {
            self.add_local_sources(case, server, &mut sources);
            if let Some(url) = self.spec.dcgm.clone().filter(|_| self.samples_target) {
                sources.push(Box::new(Dcgm::new(&Scrape {
                    url,
                    interval,
                    headers: Vec::new(),
                })));
            }
        }
        if self.samples_target {
            let (pages, unknown) = page_locations(&case.target, simulator, self.resolve);
            notes = unknown;
            if !pages.is_empty() {
                sources.push(Box::new(page_source(case, &pages)));
            }
            let queries = queries(&case.target);
            sources.extend(queries.map(|(query, _)| Box::new(query) as Box<dyn TelemetrySource>));
        }
        (sources, notes)
    }

    /// Adds the sources on this machine: llmscen, the host, the managed server and the GPUs.
    fn add_local_sources(
        &self,
        case: &Case,
        server: Option<u32>,
        sources: &mut Vec<Box<dyn TelemetrySource>>,
    ) {
        let interval = self.spec.interval;
        let mut server_processes = None;
        if self.spec.host {
            sources.push(Box::new(SelfProcess::new(interval)));
            sources.push(Box::new(Host::new(interval)));
            if let Some(supervisor) = server {
                let tree = ProcessTree::new(supervisor, interval);
                server_processes = Some(tree.members());
                sources.push(Box::new(tree));
            }
        }
        if !is_simulated(case) {
            sources.extend(
                self.nvidia
                    .as_ref()
                    .map(|gpus| gpus.source(interval, server_processes)),
            );
            sources.extend(self.amd.as_ref().map(|gpus| gpus.source(interval)));
        }
    }
}

fn page_source(case: &Case, pages: &[PageLocation]) -> Prometheus {
    let models = case.target.models.iter().map(|model| model.name.clone());
    let series = |check: &Check| match &check.subject {
        Subject::PageMetric(series) => Some(series.clone()),
        _ => None,
    };
    let checks = case.checks.iter().chain(&case.stage_checks);
    let limited = checks.filter_map(series).collect();
    Prometheus::new(pages, &case.target.tls, models.collect(), limited)
}

/// The metrics pages of a target, and notes on host names without an address.
fn page_locations(
    target: &Target,
    simulator: Option<SocketAddr>,
    resolve: Resolver,
) -> (Vec<PageLocation>, Vec<String>) {
    let (mut pages, mut notes) = (Vec::new(), Vec::new());
    let mut names = BTreeSet::new();
    for page in target.pages() {
        let scrape = Scrape {
            url: metrics_url(&page.scrape.url, simulator),
            ..page.scrape.clone()
        };
        let mut add = |address: Option<SocketAddr>| {
            let host = || authority(&scrape.url).unwrap_or_else(|| "unknown".to_owned());
            let worker = address.map_or_else(host, |address| address.to_string());
            pages.push(PageLocation {
                scrape: scrape.clone(),
                address,
                worker: target
                    .has_workers()
                    .then(|| unique_name(worker, &mut names)),
                role: page.role.clone(),
            });
        };
        if page.kind
            != (MetricsKind::Page {
                all_addresses: true,
            })
        {
            add(None);
            continue;
        }
        match addresses(&scrape.url, resolve) {
            Ok(all) => all.into_iter().map(Some).for_each(add),
            Err(why) => notes.push(format!("{}: {why}", redact_url(&scrape.url))),
        }
    }
    (pages, notes)
}

/// The name; with a number if another page of this host and port has it.
fn unique_name(name: String, names: &mut BTreeSet<String>) -> String {
    let numbered = (2..).map(|number| format!("{name}#{number}"));
    let mut all = std::iter::once(name.clone()).chain(numbered);
    let unique = all.find(|name| names.insert(name.clone()));
    unique.unwrap_or(name)
}

/// The queries of Prometheus servers, each with its place in the scenario.
pub(crate) fn queries(target: &Target) -> impl Iterator<Item = (PrometheusQuery, &str)> {
    target.metrics.iter().filter_map(|source| {
        let MetricsKind::Query {
            name,
            promql,
            place,
        } = &source.kind
        else {
            return None;
        };
        let query = (name.as_str(), promql.as_str());
        let role = source.role.as_deref();
        let query = PrometheusQuery::new(&source.scrape, &target.tls, query, role);
        Some((query, place.as_str()))
    })
}

/// The URL of a metrics endpoint; `simulator` stands for the simulator's address.
fn metrics_url(url: &str, simulator: Option<SocketAddr>) -> String {
    match simulator {
        Some(address) if url == "simulator" => format!("http://{address}/metrics"),
        _ => url.to_owned(),
    }
}

fn is_simulated(case: &Case) -> bool {
    matches!(case.target.location, TargetLocation::Simulator { .. })
}

/// Pause between two writes as a multiple of the duration of a write: the file contains all rounds, and is rewritten
/// each time. So writing takes less than 5 % of the time. A run that is killed lacks the samples since the last
/// write.
const PAUSE_FACTOR: u32 = 20;

/// Writes the telemetry file during the run.
#[derive(Debug, Default)]
pub struct TelemetryCheckpoint {
    /// Earliest time of the next write; None: at once.
    due: Option<Instant>,
}

impl TelemetryCheckpoint {
    /// Writes the rounds so far, in the order in which they ran, unless the last write was a moment ago. At the end
    /// of the run,
    /// [`write_telemetry`] writes all of them.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write(
        &mut self,
        folder: &RunDir,
        recorded: &[TelemetryRecord],
        now: Instant,
    ) -> Result<(), RunError> {
        if self.due.is_some_and(|due| now < due) {
            return Ok(());
        }
        let start = Instant::now();
        write_telemetry(folder, recorded)?;
        self.set_due(now, start.elapsed());
        Ok(())
    }

    /// Sets the time of the next write, after one that started at `now`.
    fn set_due(&mut self, now: Instant, write_time: Duration) {
        self.due = now.checked_add(write_time.saturating_mul(PAUSE_FACTOR + 1));
    }
}

/// Writes the samples of the rounds into the run folder, atomically. Without samples, no file is written.
///
/// # Errors
/// The file cannot be written.
pub fn write_telemetry(folder: &RunDir, recorded: &[TelemetryRecord]) -> Result<(), RunError> {
    if recorded.iter().all(|round| round.readings.is_empty()) {
        return Ok(());
    }
    Ok(folder.write_listed(READINGS, &telemetry::write(recorded)?)?)
}

#[cfg(test)]
mod tests;
