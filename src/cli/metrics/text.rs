//! The figures as OpenMetrics text. Names and meanings are a promise; `docs/live.md` states it.

use crate::cli::metrics::board::{Run, State, Tally};
use crate::run::collector::live_metrics::Buckets;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};
use std::fmt::Error;

/// The content type of what [`exposition`] gives.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Everything, `# EOF` included.
///
/// # Errors
/// Where the encoder refuses a value.
pub fn exposition(mut state: State) -> Result<String, Error> {
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
struct Page(State);

/// A histogram: its name, its help, and where its values are.
type Spans = (&'static str, &'static str, fn(&Tally) -> Buckets);
type Labels<'a, const N: usize> = [(&'static str, &'a str); N];

impl Collector for Page {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), Error> {
        let to = &mut encoder;
        self.infos(to)?;
        self.counts(to)?;
        let gauge = |value: fn(&Tally) -> i64| move |own: &Tally, mut metric: MetricEncoder| metric.encode_gauge(&value(own));
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
        value: impl Fn(&Tally, MetricEncoder) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut family = to.encode_descriptor(name, help, None, kind)?;
        self.0.cases.iter().try_for_each(|own| value(own, family.encode_family(&case_labels(own))?))
    }
}

fn run_labels(own: &Run) -> Labels<'_, 2> {
    [("run", &own.number), ("scenario", &own.scenario)]
}

fn case_labels(own: &Tally) -> Labels<'_, 3> {
    [("run", &own.run), ("scenario", &own.scenario), ("case", &own.case)]
}
