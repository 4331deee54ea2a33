//! What the charts over all cases draw: the sweep over load, and the probes of the searches.

use crate::chart::sweep::{Group, Sweep};
use crate::format::{title, unit_of};
use crate::search::{answer, axis, outcome, place};
use crate::table::Emphasis;
use llmscen_core::metric::{Metric, Scope};
use llmscen_core::report::{CaseReport, Report};
use llmscen_core::search::SearchReport;
use serde_json::{Map, Value, json};

/// Latencies over the load, and the percentiles that are drawn of each.
const LATENCIES: [Metric; 4] = [Metric::Ttft, Metric::Itl, Metric::Tpot, Metric::E2e];
const SHARES: [(&str, f64); 4] = [("p50", 0.50), ("p90", 0.90), ("p95", 0.95), ("p99", 0.99)];
/// Rates over the load.
const RATES: [Metric; 4] = [Metric::OutputTps, Metric::RequestThroughput, Metric::GoodputRate, Metric::OutputTpsPerUser];

/// Names of the cases, the sweep where there is one, and the searches.
pub fn overview(report: &Report) -> Value {
    // Of a search the cases are probes, some of them cut short: no curve goes through those.
    let swept = report.searches.is_empty().then(|| Sweep::of(report)).flatten();
    json!({
        "cases": report.cases.iter().map(|case| case.id.as_str()).collect::<Vec<_>>(),
        "sweep": swept.map(|swept| sweep(report, &swept)),
        "searches": report.searches.iter().map(|own| search(report, own)).collect::<Vec<_>>(),
    })
}

fn sweep(report: &Report, sweep: &Sweep<'_>) -> Value {
    let title = if sweep.axis == "rate" { "offered rate, req/s" } else { "concurrency, requests in flight" };
    let named = |metric: Metric| json!({ "key": metric.column(), "name": metric.name(), "unit": metric.unit().symbol() });
    let exists = |metric: &&Metric| {
        sweep.cases().any(|case| match metric.per() {
            Scope::Case => case.scalars.contains_key(*metric),
            Scope::Request | Scope::Gap => case.distributions.contains_key(*metric),
        })
    };
    let limits = LATENCIES.iter().filter(exists).map(|metric| (metric.column().to_owned(), json!(limits(report, *metric))));
    json!({
        "axis": title,
        "remark": sweep.remark,
        "latencies": LATENCIES.iter().filter(exists).map(|metric| named(*metric)).collect::<Vec<_>>(),
        "rates": RATES.iter().filter(exists).map(|metric| named(*metric)).collect::<Vec<_>>(),
        "limits": Value::Object(limits.collect()),
        "groups": sweep.groups.iter().map(|own| group(report, own)).collect::<Vec<_>>(),
    })
}

fn limits(report: &Report, metric: Metric) -> Vec<Value> {
    let found = crate::chart::limit::limits(report, metric);
    found.iter().map(|limit| json!({ "share": limit.share, "value": limit.value, "label": limit.label })).collect()
}

fn group(report: &Report, group: &Group<'_>) -> Value {
    let place = |case: &&CaseReport| report.cases.iter().position(|own| own.id == case.id);
    let column = |figure: &dyn Fn(&CaseReport) -> Option<f64>| {
        let finite = |case: &&CaseReport| figure(case).filter(|value| value.is_finite());
        group.cases.iter().map(finite).collect::<Vec<Option<f64>>>()
    };
    let latency = |metric: Metric| {
        let of = |(name, share): (&str, f64)| {
            (name.to_owned(), json!(column(&|case| case.distributions.get(&metric)?.quantile(share))))
        };
        (metric.column().to_owned(), Value::Object(SHARES.into_iter().map(of).collect()))
    };
    let rate = |metric: Metric| (metric.column().to_owned(), json!(column(&|case| case.scalars.get(&metric).copied())));
    json!({
        "label": group.label,
        "cases": group.cases.iter().map(place).collect::<Vec<_>>(),
        "load": column(&|case| case.load_value),
        "latencies": LATENCIES.into_iter().map(latency).collect::<Map<_, _>>(),
        "rates": RATES.into_iter().map(rate).collect::<Map<_, _>>(),
    })
}

fn search(report: &Report, search: &SearchReport) -> Value {
    let (name, unit) = axis(&search.spec);
    let probes = &search.probes;
    let finite = |value: Option<f64>| value.filter(|value| value.is_finite());
    let checks = probes.first().map(|probe| probe.verdicts.as_slice()).unwrap_or_default().iter().enumerate();
    let topic = |(index, verdict): (usize, &llmscen_core::check::Verdict)| {
        let seen: Vec<Option<f64>> = probes.iter().map(|probe| finite(probe.verdicts.get(index)?.observed)).collect();
        json!({ "label": title(&verdict.check), "unit": unit_of(verdict).symbol(), "limit": verdict.check.limit, "seen": seen })
    };
    let goodput: Vec<Option<f64>> = probes.iter().map(|probe| finite(probe.goodput.filter(|_| !probe.hopeless))).collect();
    let (low, high) = search.finding.interval;
    json!({
        "label": place(search),
        "axis": if unit.is_empty() { name } else { format!("{name}, {unit}") },
        "load": probes.iter().map(|probe| probe.load).collect::<Vec<_>>(),
        "outcome": probes.iter().map(|probe| Emphasis::from(outcome(probe)).class()).collect::<Vec<_>>(),
        "answer": answer(report, search),
        "interval": answer(report, search).map(|_| json!([low.unwrap_or(search.spec.low), high])),
        "topics": checks.map(topic).collect::<Vec<_>>(),
        "goodput": goodput.iter().any(Option::is_some).then_some(goodput),
    })
}
