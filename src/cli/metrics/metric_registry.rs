//! The values of the metrics endpoint: current totals of each case over its rounds.

use crate::run::event::Event;
use crate::run::execution::redactor;
use crate::run::progress::{Buckets, LiveTotals, Progress};
use llmscen_core::outcome::Phase;
use llmscen_core::plan::{Case, Plan};
use llmscen_core::redact::Redactor;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};
use std::collections::BTreeMap;
use std::fmt::Error;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The metrics, shared between the display and the endpoint.
#[derive(Debug, Default)]
pub struct MetricRegistry(Mutex<RegistryState>);

/// All exposed values.
#[derive(Clone, Debug, Default)]
pub struct RegistryState {
    /// Runs so far, in order.
    pub runs: Vec<RunEntry>,
    /// Started cases, in order.
    pub cases: Vec<CaseTotals>,
    current: Option<usize>,
    /// Removes the secrets of all runs.
    pub redactor: Redactor,
}

/// The run of one scenario.
#[derive(Clone, Debug)]
pub struct RunEntry {
    /// Number in the command, from 1: several scenarios may have the same name.
    pub number: String,
    /// Scenario name.
    pub scenario: String,
    /// Hex digest of the plan.
    pub plan_id: String,
    /// Facts of its cases, by id.
    case_info: BTreeMap<String, CaseInfo>,
    /// Rounds of all cases; `None` for a search, whose probes are not known in advance.
    pub parts: Option<u64>,
    /// Finished rounds.
    pub parts_done: u64,
}

/// Facts of a case that are known before it starts.
#[derive(Clone, Debug, Default)]
pub struct CaseInfo {
    load: String,
    api: String,
    model: String,
}

/// One case.
#[derive(Clone, Debug)]
pub struct CaseTotals {
    /// Number of its run.
    pub run: String,
    /// Scenario name.
    pub scenario: String,
    /// Case id.
    pub case: String,
    info: CaseInfo,
    /// Totals of finished rounds.
    finished: LiveTotals,
    /// The running round; empty between rounds.
    pub now: Progress,
    /// Whether a round is running.
    pub running: bool,
}

impl CaseTotals {
    /// Totals of all rounds so far.
    pub fn totals(&self) -> LiveTotals {
        let mut sum = self.finished.clone();
        sum.add(&self.now.totals);
        sum
    }

    /// Completed requests by phase and outcome; `measured`, `ok` is always present.
    pub fn outcomes(&self) -> Vec<((&'static str, &'static str), u64)> {
        let mut outcomes = self.totals().outcomes;
        outcomes.entry((Phase::Measured, "ok")).or_default();
        outcomes
            .into_iter()
            .map(|((phase, outcome), count)| ((phase.name(), outcome), count))
            .collect()
    }
}

impl MetricRegistry {
    /// The current values.
    pub fn snapshot(&self) -> RegistryState {
        self.lock().clone()
    }

    /// Adds a run of this plan.
    pub fn start_run(&self, plan: &Plan) {
        let mut state = self.lock();
        state.redactor = std::mem::take(&mut state.redactor).merge(redactor(plan));
        let number = (state.runs.len() + 1).to_string();
        state.runs.push(RunEntry {
            number,
            scenario: plan.name.clone(),
            plan_id: plan.id.clone(),
            case_info: plan
                .cases
                .iter()
                .map(|case| (case.id.clone(), CaseInfo::new(case)))
                .collect(),
            parts: plan
                .searches
                .is_empty()
                .then_some(plan.cases.len() as u64 * u64::from(plan.rounds)),
            parts_done: 0,
        });
    }

    /// Updates the values.
    pub fn record(&self, event: &Event) {
        let mut state = self.lock();
        match event {
            Event::CaseStarted { case, .. } => state.start_case(case),
            Event::Progress(progress) => {
                if let Some(case) = state.current_case() {
                    case.now = progress.clone();
                }
            }
            Event::CaseEnded(last) => {
                if let Some(case) = state.current_case() {
                    case.finished.add(&last.totals);
                    case.now = Progress::default();
                    case.running = false;
                }
                state.current = None;
                if let Some(run) = state.runs.last_mut() {
                    run.parts_done += 1;
                }
            }
            _ => {}
        }
    }

    fn lock(&self) -> MutexGuard<'_, RegistryState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RegistryState {
    fn start_case(&mut self, id: &str) {
        let Some(run) = self.runs.last() else { return };
        let known = self
            .cases
            .iter()
            .position(|case| case.run == run.number && case.case == id);
        let index = known.unwrap_or_else(|| {
            self.cases.push(CaseTotals {
                run: run.number.clone(),
                scenario: run.scenario.clone(),
                case: id.to_owned(),
                info: run.case_info.get(id).cloned().unwrap_or_default(),
                finished: LiveTotals::default(),
                now: Progress::default(),
                running: false,
            });
            self.cases.len() - 1
        });
        self.current = Some(index);
        if let Some(case) = self.current_case() {
            case.running = true;
        }
    }

    fn current_case(&mut self) -> Option<&mut CaseTotals> {
        self.cases.get_mut(self.current?)
    }
}

impl CaseInfo {
    fn new(case: &Case) -> CaseInfo {
        let models: Vec<&str> = case
            .target
            .models
            .iter()
            .map(|model| model.name.as_str())
            .collect();
        CaseInfo {
            load: case.load.shape.to_string(),
            api: case.target.api.name().to_owned(),
            model: models.join(","),
        }
    }
}

/// Content type of the exposition format.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The text of the exposition format.
///
/// # Errors
/// The encoder rejects a value.
pub fn render_exposition(mut state: RegistryState) -> Result<String, Error> {
    let redactor = std::mem::take(&mut state.redactor);
    let names = state.runs.iter_mut().map(|run| &mut run.scenario);
    let cases = state.cases.iter_mut().flat_map(|case| {
        [
            &mut case.scenario,
            &mut case.case,
            &mut case.info.load,
            &mut case.info.api,
            &mut case.info.model,
        ]
    });
    names
        .chain(cases)
        .for_each(|text| *text = escape_label(&redactor.redact(std::mem::take(text))));
    let mut registry = Registry::with_prefix("llmscen");
    registry.register_collector(Box::new(Exposition(state)));
    let mut text = String::new();
    encode(&mut text, &registry)?;
    Ok(text)
}

/// Escapes a label value, which the encoder does not do.
fn escape_label(text: &str) -> String {
    text.replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

#[derive(Debug)]
struct Exposition(RegistryState);

type Labels<'a, const N: usize> = [(&'static str, &'a str); N];

impl Collector for Exposition {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), Error> {
        let encoder = &mut encoder;
        self.encode_info(encoder)?;
        self.encode_counters(encoder)?;
        self.encode_per_case(
            encoder,
            "in_flight",
            "Requests in flight",
            MetricType::Gauge,
            |case, mut metric| metric.encode_gauge(&(case.now.in_flight as i64)),
        )?;
        let help = "1 while a round of the case runs";
        self.encode_per_case(
            encoder,
            "case_running",
            help,
            MetricType::Gauge,
            |case, mut metric| metric.encode_gauge(&i64::from(case.running)),
        )?;
        let help = "TTFT of measured requests, from their scheduled time";
        self.encode_histogram(encoder, "time_to_first_token", help, |totals| totals.ttft)?;
        let help = "Gaps between token events of measured ok streams";
        self.encode_histogram(encoder, "inter_token_latency", help, |totals| totals.itl)?;
        let help = "End-encoder-end latency of measured ok requests, from their scheduled time";
        self.encode_histogram(encoder, "request_latency", help, |totals| totals.e2e)
    }
}

impl Exposition {
    fn encode_info(&self, encoder: &mut DescriptorEncoder) -> Result<(), Error> {
        let mut family =
            encoder.encode_descriptor("run", "Scenario of a run", None, MetricType::Info)?;
        for run in &self.0.runs {
            let [number, scenario] = run_labels(run);
            let labels: Labels<'_, 4> = [
                number,
                scenario,
                ("plan_id", &run.plan_id),
                ("version", env!("CARGO_PKG_VERSION")),
            ];
            family.encode_info(&labels)?;
        }
        let mut family = encoder.encode_descriptor(
            "case",
            "Load, API and model of a case",
            None,
            MetricType::Info,
        )?;
        for case in &self.0.cases {
            let CaseInfo { load, api, model } = &case.info;
            let [run, scenario, case] = case_labels(case);
            let labels: Labels<'_, 6> = [
                run,
                scenario,
                case,
                ("load", load),
                ("api", api),
                ("model", model),
            ];
            family.encode_info(&labels)?;
        }
        let mut family = encoder.encode_descriptor(
            "parts",
            "Planned rounds of all cases; absent for a search",
            None,
            MetricType::Gauge,
        )?;
        for run in &self.0.runs {
            let labels = run_labels(run);
            if let Some(parts) = run.parts {
                family
                    .encode_family(&labels)?
                    .encode_gauge(&(parts as i64))?;
            }
        }
        let mut family = encoder.encode_descriptor(
            "parts_ended",
            "Finished rounds of all cases",
            None,
            MetricType::Counter,
        )?;
        for run in &self.0.runs {
            let labels = run_labels(run);
            family
                .encode_family(&labels)?
                .encode_counter::<NoLabelSet, _, u64>(&run.parts_done, None)?;
        }
        Ok(())
    }

    fn encode_counters(&self, encoder: &mut DescriptorEncoder) -> Result<(), Error> {
        let mut family = encoder.encode_descriptor(
            "requests",
            "Completed requests",
            None,
            MetricType::Counter,
        )?;
        for totals in &self.0.cases {
            for ((phase, outcome), count) in totals.outcomes() {
                let [run, scenario, case] = case_labels(totals);
                let labels: Labels<'_, 5> =
                    [run, scenario, case, ("phase", phase), ("outcome", outcome)];
                family
                    .encode_family(&labels)?
                    .encode_counter::<NoLabelSet, _, u64>(&count, None)?;
            }
        }
        let mut family = encoder.encode_descriptor(
            "tokens",
            "Tokens of measured ok requests",
            None,
            MetricType::Counter,
        )?;
        for totals in &self.0.cases {
            let sum = totals.totals();
            for (kind, count) in [("prompt", sum.prompt_tokens), ("output", sum.output_tokens)] {
                let [run, scenario, case] = case_labels(totals);
                let labels: Labels<'_, 4> = [run, scenario, case, ("kind", kind)];
                family
                    .encode_family(&labels)?
                    .encode_counter::<NoLabelSet, _, u64>(&count, None)?;
            }
        }
        let help = "Content events received by all requests, a lower bound of tokens";
        self.encode_per_case(
            encoder,
            "token_events",
            help,
            MetricType::Counter,
            |case, mut metric| {
                metric.encode_counter::<NoLabelSet, _, u64>(&case.totals().events, None)
            },
        )
    }

    fn encode_per_case(
        &self,
        encoder: &mut DescriptorEncoder,
        name: &str,
        help: &str,
        kind: MetricType,
        value: impl Fn(&CaseTotals, MetricEncoder) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut family = encoder.encode_descriptor(name, help, None, kind)?;
        self.0
            .cases
            .iter()
            .try_for_each(|case| value(case, family.encode_family(&case_labels(case))?))
    }

    fn encode_histogram(
        &self,
        encoder: &mut DescriptorEncoder,
        name: &str,
        help: &str,
        values: fn(LiveTotals) -> Buckets,
    ) -> Result<(), Error> {
        let mut family =
            encoder.encode_descriptor(name, help, Some(&Unit::Seconds), MetricType::Histogram)?;
        for case in &self.0.cases {
            let values = values(case.totals());
            let buckets = values.buckets();
            let labels = case_labels(case);
            let mut metric = family.encode_family(&labels)?;
            metric.encode_histogram::<NoLabelSet>(values.sum_s, values.count, &buckets, None)?;
        }
        Ok(())
    }
}

fn run_labels(run: &RunEntry) -> Labels<'_, 2> {
    [("run", &run.number), ("scenario", &run.scenario)]
}

fn case_labels(case: &CaseTotals) -> Labels<'_, 3> {
    [
        ("run", &case.run),
        ("scenario", &case.scenario),
        ("case", &case.case),
    ]
}
