//! The figures behind the metrics endpoint: totals of every case over its rounds, as they stand.

use crate::run::collector::live_metrics::{Buckets, LiveTotals};
use crate::run::event::{Event, Progress};
use crate::run::execution::redactor;
use llmscen_core::outcome::Phase;
use llmscen_core::plan::{Case, Plan};
use llmscen_core::redact::Redactor;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};
use std::fmt::Error;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The figures, shared between whoever hears of the run and whoever is asked for them.
#[derive(Debug, Default)]
pub struct MetricRegistry(Mutex<RegistryState>);

/// Everything that is exposed.
#[derive(Clone, Debug, Default)]
pub struct RegistryState {
    /// Runs so far, in order.
    pub runs: Vec<RunEntry>,
    /// Cases that have begun, in order.
    pub cases: Vec<CaseTotals>,
    current: Option<usize>,
    /// Strikes the secrets of all runs.
    pub redactor: Redactor,
}

/// The run of one scenario.
#[derive(Clone, Debug)]
pub struct RunEntry {
    /// Its number in the command, from 1: two scenarios may have one name.
    pub number: String,
    /// The scenario's name.
    pub scenario: String,
    /// Hex digest of its plan.
    pub plan_id: String,
    /// What is known of its cases before they begin: id, load, API, model.
    outlines: Vec<Outline>,
    /// Rounds of all cases that are played; None for a search, which decides as it goes.
    pub parts: Option<u64>,
    /// Those that are over.
    pub parts_done: u64,
}

#[derive(Clone, Debug)]
struct Outline {
    id: String,
    about: [String; 3],
}

/// One case.
#[derive(Clone, Debug)]
pub struct CaseTotals {
    /// The number of its run.
    pub run: String,
    /// Its scenario's name.
    pub scenario: String,
    /// Its id.
    pub case: String,
    /// Its load in words, its API and its model.
    pub about: [String; 3],
    /// Of the rounds that are over.
    past: LiveTotals,
    /// The round that runs; an empty one between rounds.
    pub now: Progress,
    /// Whether a round of it runs.
    pub running: bool,
}

impl CaseTotals {
    /// Over all rounds so far.
    pub fn totals(&self) -> LiveTotals {
        let mut sum = self.past.clone();
        sum.add(&self.now.totals);
        sum
    }

    /// The requests by phase and ending, every phase named even where nothing ended in it yet.
    pub fn outcomes(&self) -> Vec<((&'static str, &'static str), u64)> {
        let mut outcomes = self.totals().outcomes;
        outcomes.entry((Phase::Measured, "ok")).or_default();
        let word = |phase| if phase == Phase::Warmup { "warmup" } else { "measured" };
        outcomes.into_iter().map(|((phase, outcome), count)| ((word(phase), outcome), count)).collect()
    }
}

impl MetricRegistry {
    /// What stands there now.
    pub fn read(&self) -> RegistryState {
        self.lock().clone()
    }

    /// A run of this plan begins.
    pub fn begin(&self, plan: &Plan) {
        let parts = plan.quests.is_empty().then_some(plan.cases.len() as u64 * u64::from(plan.rounds));
        let outlines = plan.cases.iter().map(outline).collect();
        let (scenario, plan_id) = (plan.name.clone(), plan.id.clone());
        let mut state = self.lock();
        state.redactor = std::mem::take(&mut state.redactor).joined(redactor(plan));
        let number = (state.runs.len() + 1).to_string();
        state.runs.push(RunEntry { number, scenario, plan_id, outlines, parts, parts_done: 0 });
    }

    /// Something happened.
    pub fn see(&self, event: &Event) {
        let mut state = self.lock();
        match event {
            Event::CaseStarted { case, .. } => state.start(case),
            Event::Progress(progress) => {
                state.current().into_iter().for_each(|own| own.now = progress.clone());
            }
            Event::CaseEnded(last) => {
                state.current().into_iter().for_each(|own| {
                    own.past.add(&last.totals);
                    (own.now, own.running) = (Progress::default(), false);
                });
                state.current = None;
                state.runs.last_mut().into_iter().for_each(|run| run.parts_done += 1);
            }
            _ => {}
        }
    }

    fn lock(&self) -> MutexGuard<'_, RegistryState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RegistryState {
    fn start(&mut self, case: &str) {
        let Some(run) = self.runs.last() else { return };
        let (number, scenario) = (run.number.clone(), run.scenario.clone());
        let known = self.cases.iter().position(|own| own.run == number && own.case == case);
        let place = known.unwrap_or_else(|| {
            let about = run.outlines.iter().find(|own| own.id == case).map(|own| own.about.clone()).unwrap_or_default();
            let (past, now) = (LiveTotals::default(), Progress::default());
            self.cases.push(CaseTotals { run: number, scenario, case: case.to_owned(), about, past, now, running: false });
            self.cases.len() - 1
        });
        self.current = Some(place);
        self.current().into_iter().for_each(|own| own.running = true);
    }

    fn current(&mut self) -> Option<&mut CaseTotals> {
        self.cases.get_mut(self.current?)
    }
}

fn outline(case: &Case) -> Outline {
    let model = case.target.models.iter().map(|model| model.name.as_str()).collect::<Vec<_>>().join(",");
    Outline { id: case.id.clone(), about: [case.load.shape.to_string(), case.target.api.name().to_owned(), model] }
}

/// The content type of what [`exposition`] gives.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Everything, `# EOF` included.
///
/// # Errors
/// Where the encoder refuses a value.
pub fn render_exposition(mut state: RegistryState) -> Result<String, Error> {
    let redactor = std::mem::take(&mut state.redactor);
    let names = state.runs.iter_mut().map(|run| &mut run.scenario);
    let cases = state.cases.iter_mut().flat_map(|own| [&mut own.scenario, &mut own.case].into_iter().chain(&mut own.about));
    names.chain(cases).for_each(|text| *text = escaped(&redactor.strike(std::mem::take(text))));
    let mut registry = Registry::with_prefix("llmscen");
    registry.register_collector(Box::new(Page(state)));
    let mut text = String::new();
    encode(&mut text, &registry)?;
    Ok(text)
}

/// A label's value as the format wants it; the encoder writes values as they are.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[derive(Debug)]
struct Page(RegistryState);

/// A histogram: its name, its help, and where its values are.
type Spans = (&'static str, &'static str, fn(&CaseTotals) -> Buckets);
type Labels<'a, const N: usize> = [(&'static str, &'a str); N];

impl Collector for Page {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), Error> {
        let to = &mut encoder;
        self.infos(to)?;
        self.counts(to)?;
        let gauge =
            |value: fn(&CaseTotals) -> i64| move |own: &CaseTotals, mut metric: MetricEncoder| metric.encode_gauge(&value(own));
        self.each(to, "in_flight", "Requests in flight", MetricType::Gauge, gauge(|own| own.now.in_flight as i64))?;
        self.each(
            to,
            "case_running",
            "1 while a round of the case runs",
            MetricType::Gauge,
            gauge(|own| i64::from(own.running)),
        )?;
        let spans: [Spans; 3] = [
            ("time_to_first_token", "TTFT of measured requests, from when they were due", |own| own.totals().ttft),
            ("inter_token_latency", "Gaps between token events of measured ok streams", |own| own.totals().itl),
            ("request_latency", "End-to-end latency of measured ok requests, from when they were due", |own| own.totals().e2e),
        ];
        for (name, help, of) in spans {
            let mut family = to.encode_descriptor(name, help, Some(&Unit::Seconds), MetricType::Histogram)?;
            for own in &self.0.cases {
                let (labels, seen) = (case_labels(own), of(own));
                let buckets = seen.buckets();
                family.encode_family(&labels)?.encode_histogram::<NoLabelSet>(seen.sum_s, seen.count, &buckets, None)?;
            }
        }
        Ok(())
    }
}

impl Page {
    fn infos(&self, to: &mut DescriptorEncoder) -> Result<(), Error> {
        let mut family = to.encode_descriptor("run", "What runs", None, MetricType::Info)?;
        for run in &self.0.runs {
            let [number, scenario] = run_labels(run);
            let labels: Labels<'_, 4> = [number, scenario, ("plan_id", &run.plan_id), ("version", env!("CARGO_PKG_VERSION"))];
            family.encode_info(&labels)?;
        }
        let mut family = to.encode_descriptor("case", "What a case is", None, MetricType::Info)?;
        for own in &self.0.cases {
            let [load, api, model] = &own.about;
            let [run, scenario, case] = case_labels(own);
            let labels: Labels<'_, 6> = [run, scenario, case, ("load", load), ("api", api), ("model", model)];
            family.encode_info(&labels)?;
        }
        let mut family =
            to.encode_descriptor("parts", "Rounds of all cases that the plan has; absent for a search", None, MetricType::Gauge)?;
        for run in &self.0.runs {
            let labels = run_labels(run);
            if let Some(parts) = run.parts {
                family.encode_family(&labels)?.encode_gauge(&(parts as i64))?;
            }
        }
        let mut family = to.encode_descriptor("parts_ended", "Rounds of all cases that are over", None, MetricType::Counter)?;
        for run in &self.0.runs {
            let labels = run_labels(run);
            family.encode_family(&labels)?.encode_counter::<NoLabelSet, _, u64>(&run.parts_done, None)?;
        }
        Ok(())
    }

    fn counts(&self, to: &mut DescriptorEncoder) -> Result<(), Error> {
        let mut family = to.encode_descriptor("requests", "Requests that are over", None, MetricType::Counter)?;
        for own in &self.0.cases {
            for ((phase, outcome), count) in own.outcomes() {
                let [run, scenario, case] = case_labels(own);
                let labels: Labels<'_, 5> = [run, scenario, case, ("phase", phase), ("outcome", outcome)];
                family.encode_family(&labels)?.encode_counter::<NoLabelSet, _, u64>(&count, None)?;
            }
        }
        let mut family = to.encode_descriptor("tokens", "Tokens of measured ok requests", None, MetricType::Counter)?;
        for own in &self.0.cases {
            let totals = own.totals();
            for (kind, count) in [("prompt", totals.prompt_tokens), ("output", totals.output_tokens)] {
                let [run, scenario, case] = case_labels(own);
                let labels: Labels<'_, 4> = [run, scenario, case, ("kind", kind)];
                family.encode_family(&labels)?.encode_counter::<NoLabelSet, _, u64>(&count, None)?;
            }
        }
        let help = "Content events of all requests as they arrive, a lower bound of the tokens";
        self.each(to, "token_events", help, MetricType::Counter, |own, mut metric| {
            metric.encode_counter::<NoLabelSet, _, u64>(&own.totals().events, None)
        })
    }

    fn each(
        &self,
        to: &mut DescriptorEncoder,
        name: &str,
        help: &str,
        kind: MetricType,
        value: impl Fn(&CaseTotals, MetricEncoder) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut family = to.encode_descriptor(name, help, None, kind)?;
        self.0.cases.iter().try_for_each(|own| value(own, family.encode_family(&case_labels(own))?))
    }
}

fn run_labels(own: &RunEntry) -> Labels<'_, 2> {
    [("run", &own.number), ("scenario", &own.scenario)]
}

fn case_labels(own: &CaseTotals) -> Labels<'_, 3> {
    [("run", &own.run), ("scenario", &own.scenario), ("case", &own.case)]
}
