//! The workers of a target with several metrics pages, and their roles.

use super::others::totals_over;
use super::{RoundTelemetry, Workers, energy, signals};
use crate::CaseFacts;
use crate::round::{Round, measured_share};
use llmscen_core::report::{RoleReport, WorkerReport};
use llmscen_core::signal::Signal;
use llmscen_core::stats::moments;
use llmscen_core::telemetry::{SignalStat, Source, TelemetrySample, WorkerLabels};
use std::collections::{BTreeMap, BTreeSet};

/// Labels that name an engine of a server with several.
const ENGINE_LABELS: [&str; 3] = ["engine", "dp_rank", "worker_id"];
/// The end of the names of the counters of generated tokens.
const GENERATED: &str = "generation_tokens_total";

/// The tokens that one engine generated from the start of the measured windows on: an engine of a server, or a worker
/// whose page does not distinguish engines.
#[derive(Clone, Debug, PartialEq)]
pub struct EngineTokens {
    /// Its role.
    pub role: Option<String>,
    /// Its worker; None where the target has a single metrics page.
    pub worker: Option<String>,
    /// Its label (`engine=0`); None for a worker.
    pub engine: Option<String>,
    /// Its tokens.
    pub tokens: f64,
}

impl EngineTokens {
    /// `engine=0`, `10.0.0.1:8000`, or `engine=0 of 10.0.0.1:8000`.
    pub fn name(&self) -> String {
        match (&self.engine, &self.worker) {
            (Some(engine), Some(worker)) => format!("{engine} of {worker}"),
            (one, other) => one.iter().chain(other).cloned().collect(),
        }
    }
}

/// Role, worker and engine.
type EngineKey<'a> = (Option<&'a str>, Option<&'a str>, Option<String>);

/// The engines of the target whose tokens are known; empty if it has a single one.
pub(crate) fn engine_tokens(rounds: &[RoundTelemetry<'_>]) -> Vec<EngineTokens> {
    let key = |reading: &'_ TelemetrySample| {
        let engine = engine(&reading.labels).filter(|_| reading.name.ends_with(GENERATED));
        let is_signal = *reading.name == *Signal::ServerOutputTps.name();
        (engine.is_some() || is_signal).then_some(engine)
    };
    let tokens: BTreeMap<EngineKey<'_>, Option<f64>> = increases(rounds, |reading| {
        let (worker, _) = WorkerLabels::split(&reading.labels);
        let role = worker.and_then(|worker| worker.role);
        Some((role, worker.map(|worker| worker.worker), key(reading)?))
    });
    // The total of a worker with several engines, and that of a single page, are no engines.
    let with_engines: BTreeSet<_> = tokens
        .keys()
        .filter(|(.., engine)| engine.is_some())
        .map(|(role, worker, _)| (*role, *worker))
        .collect();
    let is_engine = |(role, worker, engine): &EngineKey<'_>| {
        engine.is_some() || (worker.is_some() && !with_engines.contains(&(*role, *worker)))
    };
    let engines = tokens.into_iter().filter(|(key, _)| is_engine(key));
    engines
        .filter_map(|((role, worker, engine), tokens)| {
            Some(EngineTokens {
                role: role.map(str::to_owned),
                worker: worker.map(str::to_owned),
                engine,
                tokens: tokens?,
            })
        })
        .collect()
}

fn engine(labels: &str) -> Option<String> {
    let is_engine = |pair: &&str| {
        pair.split_once('=')
            .is_some_and(|(name, _)| ENGINE_LABELS.contains(&name))
    };
    let pair = labels.split(',').map(str::trim).find(is_engine)?;
    Some(pair.replace('"', ""))
}

/// The increases of counters of metrics pages from the start of the measured windows on, added by key; `key` is None
/// for readings that do not count. The increase is None if a page was not read until the end of a window: a page that
/// does not answer is no idle worker.
fn increases<'a, K: Ord>(
    rounds: &[RoundTelemetry<'a>],
    key: impl Fn(&'a TelemetrySample) -> Option<K>,
) -> BTreeMap<K, Option<f64>> {
    let mut series: BTreeMap<(&str, &str), (K, Vec<Values>)> = BTreeMap::new();
    for (index, round) in rounds.iter().enumerate() {
        for reading in page_readings(round).filter(|reading| reading.value.is_finite()) {
            let Some(key) = key(reading) else {
                continue;
            };
            let new = || (key, vec![Values::new(); rounds.len()]);
            let (_, of_rounds) = series
                .entry((&reading.name, &reading.labels))
                .or_insert_with(new);
            if let Some(values) = of_rounds.get_mut(index) {
                values.push((reading.at_ns, reading.value));
            }
        }
    }
    let pages: Vec<PagesOfRound<'_>> = rounds.iter().map(PagesOfRound::new).collect();
    let mut all = BTreeMap::new();
    for ((name, labels), (key, of_rounds)) in series {
        let (worker, _) = WorkerLabels::split(labels);
        let sum = all.entry(key).or_insert(Some(0.0));
        for ((mut values, round), pages) in of_rounds.into_iter().zip(rounds).zip(&pages) {
            values.sort_by_key(|(at, _)| *at);
            let last = values.last().map(|(at, _)| *at);
            // A signal is recorded at every scrape, all other values only when they change.
            let is_signal = Signal::parse(name).is_some();
            let known_until = match last {
                Some(last) if is_signal => Some(last),
                _ => pages.read_until(worker),
            };
            let needed = round.window.until.min(pages.last_scrape);
            if known_until.is_some_and(|until| until < needed) {
                *sum = None;
            }
            let span = (round.window.from, last.unwrap_or(0).max(round.window.until));
            let increase = totals_over(&values, span, true).map_or(0.0, |totals| totals.increase);
            *sum = sum.map(|sum| sum + increase);
        }
    }
    all
}

/// Times in nanoseconds with their values.
type Values = Vec<(i64, f64)>;

fn page_readings<'a>(round: &RoundTelemetry<'a>) -> impl Iterator<Item = &'a TelemetrySample> {
    let readings = round.recorded.readings.iter();
    readings.filter(|reading| reading.source == Source::Prometheus)
}

/// When the metrics pages were read in a round.
struct PagesOfRound<'a> {
    last_scrape: i64,
    pages: BTreeMap<Option<WorkerLabels<'a>>, PageReads>,
}

#[derive(Default)]
struct PageReads {
    /// The last value that was read; None without one.
    last: Option<i64>,
    /// When `up` last changed, and whether the page was read from then on.
    up: Option<(i64, bool)>,
}

impl<'a> PagesOfRound<'a> {
    fn new(round: &RoundTelemetry<'a>) -> PagesOfRound<'a> {
        let mut pages: BTreeMap<_, PageReads> = BTreeMap::new();
        let mut last_scrape = i64::MIN;
        for reading in page_readings(round) {
            last_scrape = last_scrape.max(reading.at_ns);
            let page = pages
                .entry(WorkerLabels::split(&reading.labels).0)
                .or_default();
            let is_read = &*reading.name != "up" || reading.value == 1.0;
            if is_read {
                page.last = page.last.max(Some(reading.at_ns));
            }
            if &*reading.name == "up" {
                page.up = page.up.max(Some((reading.at_ns, is_read)));
            }
        }
        PagesOfRound { last_scrape, pages }
    }

    /// The last time at which the page of a worker is known to have been read; None if the round has no such page.
    fn read_until(&self, worker: Option<WorkerLabels<'_>>) -> Option<i64> {
        let page = self.pages.get(&worker)?;
        match page.up {
            Some((_, true)) => Some(self.last_scrape),
            _ => page.last.or(Some(i64::MIN)),
        }
    }
}

/// The roles of the workers, of those that the target has: series may have labels with the names of a worker's.
pub(crate) fn roles<'a>(
    rounds: &[RoundTelemetry<'a>],
    of_target: &BTreeSet<&str>,
) -> BTreeSet<&'a str> {
    let readings = rounds.iter().flat_map(|round| &round.recorded.readings);
    readings
        .filter_map(|reading| WorkerLabels::split(&reading.labels).0?.role)
        .filter(|role| of_target.contains(role))
        .collect()
}

/// A row per worker with a page of a server, and per worker whose page was never read.
pub(super) fn summarize_workers(rounds: &[RoundTelemetry<'_>]) -> Vec<WorkerReport> {
    let counter = |signal: Signal| {
        increases(rounds, move |reading| {
            let (worker, _) = WorkerLabels::split(&reading.labels);
            worker.filter(|_| *reading.name == *signal.name())
        })
    };
    let prompt = counter(Signal::ServerPromptTps);
    let generated = counter(Signal::ServerOutputTps);
    let report = |worker: WorkerLabels<'_>| {
        let signals = signals(rounds, Workers::One(worker));
        let stat = |signal| signals.get(&signal);
        let max = |stat: &SignalStat| stat.max;
        WorkerReport {
            worker: worker.worker.to_owned(),
            role: worker.role.map(str::to_owned),
            prompt_tokens: prompt.get(&worker).copied().flatten(),
            generated_tokens: generated.get(&worker).copied().flatten(),
            running_mean: stat(Signal::ServerRunning).and_then(|stat| stat.mean),
            waiting_max: stat(Signal::ServerWaiting).and_then(max),
            kv_cache_max: stat(Signal::ServerKvCacheUsage).and_then(max),
        }
    };
    let mut workers: Vec<_> = servers(rounds).into_iter().map(report).collect();
    workers.sort_by(|a, b| (&a.role, &a.worker).cmp(&(&b.role, &b.worker)));
    workers
}

/// The workers, without pages that were read and have no signal of a server, such as that of a DCGM exporter.
fn servers<'a>(rounds: &[RoundTelemetry<'a>]) -> BTreeSet<WorkerLabels<'a>> {
    let mut all: BTreeMap<WorkerLabels<'a>, (bool, bool)> = BTreeMap::new();
    for reading in rounds.iter().flat_map(|round| &round.recorded.readings) {
        if let Some(worker) = WorkerLabels::split(&reading.labels).0 {
            let (has_signals, was_read) = all.entry(worker).or_default();
            *has_signals |= reading.name.starts_with("server.");
            *was_read |= &*reading.name != "up" || reading.value == 1.0;
        }
    }
    let is_server = |(_, (has_signals, was_read)): &(_, (bool, bool))| *has_signals || !was_read;
    let servers = all.into_iter().filter(is_server);
    servers.map(|(worker, _)| worker).collect()
}

/// A row per role; workers without a role are one. Tokens and power are those that the pages of the role report.
pub(super) fn summarize_roles(
    workers: &[WorkerReport],
    of_rounds: &[RoundTelemetry<'_>],
    rounds: &[Round<'_, '_>],
    facts: &CaseFacts<'_>,
) -> Vec<RoleReport> {
    let seconds: f64 = rounds.iter().map(Round::length).sum();
    let windows = rounds.iter().filter(|round| round.window.is_some()).count();
    let ok = rounds
        .iter()
        .flat_map(Round::measured)
        .filter(|row| row.ok())
        .count() as f64;
    let share = measured_share(rounds);
    let without_role = workers
        .iter()
        .any(|worker| worker.role.is_none())
        .then_some(None);
    let roles = roles(of_rounds, &facts.case.target.roles());
    let names = without_role.into_iter().chain(roles.into_iter().map(Some));
    let report = |role: Option<&str>| {
        let selected = Workers::WithRole(role);
        let signals = signals(of_rounds, selected);
        let mean = |signal: Signal| signals.get(&signal)?.mean;
        let gpus = facts.case.target.gpus_of_role(role);
        let per_gpu = |tps: Option<f64>| Some(tps? / f64::from(gpus?));
        let joules = energy(of_rounds, windows, selected);
        let watts = joules
            .filter(|_| seconds > 0.0)
            .map(|joules| joules / seconds);
        let positive = |rate: Option<f64>| rate.filter(|rate| *rate > 0.0);
        let per_token = |tps: Option<f64>| Some(watts? / positive(tps)?);
        let of_role = || {
            workers
                .iter()
                .filter(|worker| worker.role.as_deref() == role)
        };
        let (prompt_tps, output_tps) =
            (mean(Signal::ServerPromptTps), mean(Signal::ServerOutputTps));
        RoleReport {
            role: role.map(str::to_owned),
            workers: of_role().count() as u64,
            gpus,
            prompt_tps,
            output_tps,
            input_tps_per_gpu: per_gpu(prompt_tps),
            output_tps_per_gpu: per_gpu(output_tps),
            prompt_imbalance: imbalance(of_role().map(|worker| worker.prompt_tokens)),
            output_imbalance: imbalance(of_role().map(|worker| worker.generated_tokens)),
            energy_per_request: joules
                .filter(|_| ok > 0.0)
                .map(|joules| joules * share / ok),
            energy_per_prompt_token: per_token(prompt_tps),
            energy_per_output_token: per_token(output_tps),
        }
    };
    names.map(report).collect()
}

/// Maximum ÷ mean of the tokens of workers or endpoints. None for a single one, if the tokens of one are unknown, or
/// if none has any.
pub(crate) fn imbalance(tokens: impl Iterator<Item = Option<f64>>) -> Option<f64> {
    let tokens: Vec<f64> = tokens.collect::<Option<_>>()?;
    let mean = moments::mean(&tokens).filter(|mean| tokens.len() > 1 && *mean > 0.0)?;
    Some(tokens.into_iter().fold(0.0, f64::max) / mean)
}

#[cfg(test)]
mod tests;
