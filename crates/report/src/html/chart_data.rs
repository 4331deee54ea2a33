//! The data of the charts in report.html: the sweep over load, the searches, and the series of each case.

use crate::chart::heat::has_enough;
use crate::chart::sweep::{Group, Sweep};
use crate::chart::telemetry::MIN_SAMPLES;
use crate::chart::verdict::{Limit, limits, quantile_of};
use crate::findings::saturated_from;
use crate::format::check_title;
use crate::html::MAX_DETAILED_CASES;
use crate::search::{found_load, label_prefix, probe_verdict, varied_key};
use crate::table::Emphasis;
use llmscen_core::check::{Ruling, Verdict};
use llmscen_core::metric::{Metric, Scope, Stat};
use llmscen_core::report::{CaseReport, HeatMap, QuantileBand, Report, Series, TimelineBar};
use llmscen_core::search::SearchReport;
use llmscen_core::signal::Signal;
use llmscen_core::units::Unit;
use serde_json::{Map, Value, json};

/// The latencies drawn over load, and their percentiles.
const LATENCIES: [Metric; 4] = [Metric::Ttft, Metric::Itl, Metric::Tpot, Metric::E2e];
const SHARES: [f64; 4] = [0.50, 0.90, 0.95, 0.99];
/// The rates drawn over load.
const RATES: [Metric; 4] = [
    Metric::OutputTps,
    Metric::RequestThroughput,
    Metric::GoodputRate,
    Metric::OutputTpsPerUser,
];

/// The ids of the cases, the sweep over load if there is one, and the searches.
pub fn overview(report: &Report) -> Value {
    // The cases of a search are probes, some of them stopped early, so they form no curve over load.
    let found = report
        .searches
        .is_empty()
        .then(|| Sweep::from_report(report))
        .flatten();
    json!({
        "cases": report.cases.iter().map(|case| case.id.as_str()).collect::<Vec<_>>(),
        // Without a sweep or a search, the main chart is the time of the first case.
        "times": (found.is_none() && report.searches.is_empty()).then_some(0),
        "sweep": found.map(|found| sweep(report, &found)),
        "searches": report.searches.iter().map(|found| search(report, found)).collect::<Vec<_>>(),
    })
}

fn sweep(report: &Report, sweep: &Sweep<'_>) -> Value {
    let title = if sweep.axis == "rate" {
        "offered rate, req/s"
    } else {
        "concurrency, requests in flight"
    };
    let description = |metric: Metric| {
        json!({ "key": metric.column(), "name": metric.name(),
        "unit": metric.unit().symbol() })
    };
    let exists = |metric: &&Metric| {
        sweep.cases().any(|case| match metric.per() {
            Scope::Case => case.scalars.contains_key(*metric),
            Scope::Request | Scope::Gap => case.distributions.contains_key(*metric),
        })
    };
    let limited: Vec<(Metric, Vec<Limit>)> = LATENCIES
        .into_iter()
        .filter(|metric| exists(&metric))
        .map(|metric| (metric, limits(report, metric)))
        .collect();
    let mut shares = SHARES.to_vec();
    shares.extend(
        limited
            .iter()
            .flat_map(|(_, limits)| limits.iter().map(|limit| limit.share)),
    );
    shares.sort_by(f64::total_cmp);
    shares.dedup();
    let limits = limited.iter().map(|(metric, limits)| {
        let limit = |limit: &Limit| json!({ "share": name(limit.share), "value": limit.value, "label": limit.label });
        (metric.column().to_owned(), json!(limits.iter().map(limit).collect::<Vec<_>>()))
    });
    json!({
        "axis": title,
        "remark": sweep.remark,
        "shares": shares.iter().map(|share| name(*share)).collect::<Vec<_>>(),
        "first": first_limit(sweep, &limited),
        "latencies": LATENCIES.iter().filter(exists).map(|metric| description(*metric)).collect::<Vec<_>>(),
        "rates": RATES.iter().filter(exists).map(|metric| description(*metric)).collect::<Vec<_>>(),
        "limits": Value::Object(limits.collect()),
        "groups": sweep.groups.iter().map(|it| group(report, it, &shares)).collect::<Vec<_>>(),
    })
}

fn name(share: f64) -> String {
    Stat::Quantile(share).to_string()
}

/// The latency and the percentile that are shown first: those of a failed objective, else of any, else the p95 of the
/// TTFT.
fn first_limit(sweep: &Sweep<'_>, limited: &[(Metric, Vec<Limit>)]) -> Value {
    let all = || {
        limited
            .iter()
            .flat_map(|(metric, limits)| limits.iter().map(|limit| (*metric, limit.share)))
    };
    let fails = |(metric, share): &(Metric, f64)| {
        let mut verdicts = sweep.cases().flat_map(|case| &case.verdicts);
        verdicts.any(|it| {
            it.ruling == Ruling::Fail && quantile_of(&it.check.subject, *metric) == Some(*share)
        })
    };
    let (metric, share) = all()
        .find(fails)
        .or_else(|| all().next())
        .unwrap_or((Metric::Ttft, 0.95));
    json!({ "key": metric.column(), "share": name(share) })
}

fn group(report: &Report, group: &Group<'_>, shares: &[f64]) -> Value {
    let index = |case: &&CaseReport| report.cases.iter().position(|other| other.id == case.id);
    let column = |figure: &dyn Fn(&CaseReport) -> Option<f64>| {
        let finite = |case: &&CaseReport| figure(case).filter(|value| value.is_finite());
        group.cases.iter().map(finite).collect::<Vec<Option<f64>>>()
    };
    let by_metric = |of: &dyn Fn(Metric, f64) -> Vec<Option<f64>>| {
        let latency = |metric: Metric| {
            let quantile = |share: &f64| (name(*share), json!(of(metric, *share)));
            let all: Map<String, Value> = shares.iter().map(quantile).collect();
            (metric.column().to_owned(), Value::Object(all))
        };
        LATENCIES.into_iter().map(latency).collect::<Map<_, _>>()
    };
    let quantile = |metric: Metric, share: f64| {
        column(&|case| case.distributions.get(&metric)?.quantile(share))
    };
    let bound = |metric: Metric, share: f64| {
        column(&|case| {
            let mut verdicts = case.verdicts.iter();
            verdicts
                .find(|it| quantile_of(&it.check.subject, metric) == Some(share))?
                .bound
        })
    };
    let own_verdicts = |metric: Metric| {
        let of = |share: &f64| {
            let ruling = |case: &&CaseReport| {
                let mut verdicts = case.verdicts.iter();
                let verdict =
                    verdicts.find(|it| quantile_of(&it.check.subject, metric) == Some(*share))?;
                Some(verdict.ruling.name())
            };
            let all: Vec<Option<&str>> = group.cases.iter().map(ruling).collect();
            all.iter()
                .any(Option::is_some)
                .then(|| (name(*share), json!(all)))
        };
        let all: Map<String, Value> = shares.iter().filter_map(of).collect();
        (metric.column().to_owned(), Value::Object(all))
    };
    let rate = |metric: Metric| {
        (
            metric.column().to_owned(),
            json!(column(&|case| case.scalars.get(&metric).copied())),
        )
    };
    let verdict = |case: &&CaseReport| {
        let has = |ruling| case.verdicts.iter().any(|it| it.ruling == ruling);
        let all = [
            Ruling::Invalid,
            Ruling::Fail,
            Ruling::Inconclusive,
            Ruling::Pass,
        ];
        all.into_iter()
            .find(|ruling| has(*ruling))
            .map(Ruling::name)
    };
    let knee = saturated_from(&group.cases)
        .and_then(|(first, _)| group.cases.iter().position(|case| case.id == first.id));
    json!({
        "label": group.label,
        "cases": group.cases.iter().map(index).collect::<Vec<_>>(),
        "load": column(&|case| case.load_value),
        "verdicts": group.cases.iter().map(verdict).collect::<Vec<_>>(),
        "own_verdicts": LATENCIES.into_iter().map(own_verdicts).collect::<Map<_, _>>(),
        "knee": knee,
        "max": group.max_load(),
        "latencies": by_metric(&quantile),
        "bounds": by_metric(&bound),
        "rates": RATES.into_iter().map(rate).collect::<Map<_, _>>(),
    })
}

fn search(report: &Report, search: &SearchReport) -> Value {
    let (name, unit) = varied_key(&search.spec);
    let probes = &search.probes;
    let finite = |value: Option<f64>| value.filter(|value| value.is_finite());
    let checks = probes
        .first()
        .map(|probe| probe.verdicts.as_slice())
        .unwrap_or_default()
        .iter()
        .enumerate();
    let topic = |(index, verdict): (usize, &Verdict)| {
        let observed: Vec<Option<f64>> = probes
            .iter()
            .map(|probe| finite(probe.verdicts.get(index)?.observed))
            .collect();
        json!({ "label": check_title(&verdict.check), "unit": verdict.check.subject.unit().symbol(),
            "limit": verdict.check.limit, "observed": observed })
    };
    let goodput: Vec<Option<f64>> = probes
        .iter()
        .map(|probe| finite(probe.goodput.filter(|_| !probe.futile)))
        .collect();
    let (low, high) = search.finding.interval;
    json!({
        "label": label_prefix(search),
        "axis": if unit.is_empty() { name } else { format!("{name}, {unit}") },
        "load": probes.iter().map(|probe| probe.load).collect::<Vec<_>>(),
        "outcome": probes.iter().map(|probe| Emphasis::from(probe_verdict(probe)).class()).collect::<Vec<_>>(),
        "result": found_load(report, search),
        "interval": found_load(report, search).map(|_| json!([low.unwrap_or(search.spec.low), high])),
        "topics": checks.map(topic).collect::<Vec<_>>(),
        "goodput": goodput.iter().any(Option::is_some).then_some(goodput),
    })
}

/// Points of one series, summed over all cases: the page stays small with many cases.
const POINTS_OF_ALL_CASES: usize = 6_000;
/// Least and most points of one series.
const MIN_POINTS: usize = 40;
const MAX_POINTS: usize = 2000;
/// The most time bins of a round, for percentiles over time and failure counts.
const TIME_BINS: usize = 48;
/// The least requests of a time bin, on average: percentiles of fewer are all the same value.
const MIN_PER_BIN: usize = 20;
/// Significant digits of a number.
const DIGITS: i32 = 5;

/// The series of a case; `cases`: the number of cases on the page. An empty series is null.
pub fn series(case: &CaseReport, cases: usize) -> Value {
    let max_points = (POINTS_OF_ALL_CASES / cases.max(1)).clamp(MIN_POINTS, MAX_POINTS);
    let pictures = &case.chart_data;
    let is_detailed = cases <= MAX_DETAILED_CASES;
    // The percentile plot shows the same distribution as the cumulative one.
    let cdfs = case
        .cdfs
        .iter()
        .filter(|(metric, _)| is_detailed || !pictures.spectra.contains_key(*metric));
    let is_main = |metric: Metric| matches!(metric, Metric::Ttft | Metric::Tpot | Metric::E2e);
    let is_judged = |metric: Metric| {
        case.verdicts
            .iter()
            .any(|it| quantile_of(&it.check.subject, metric).is_some())
    };
    let spectra = pictures
        .spectra
        .iter()
        .filter(|(metric, _)| is_detailed || is_main(**metric) || is_judged(**metric));
    let heat = pictures
        .heat
        .as_ref()
        .filter(|heat| is_detailed && has_enough(heat));
    json!({
        "time": time(case, max_points),
        "telemetry": telemetry_lines(case, max_points / 2),
        "cdfs": curves(cdfs, case, max_points),
        "spectra": curves(spectra, case, max_points),
        "heat": heat.map(heat_map),
        "by_token": non_empty(&pictures.by_token).filter(|_| is_detailed).map(by_token),
        "prefill": non_empty(&pictures.prefill).filter(|_| is_detailed)
            .map(|points| columns(&evenly(points, max_points))),
        "waterfall": non_empty(&pictures.waterfall).map(|bars| waterfall(&evenly(bars, max_points / 2))),
    })
}

fn non_empty<T>(items: &[T]) -> Option<&[T]> {
    (!items.is_empty()).then_some(items)
}

fn time(case: &CaseReport, max_points: usize) -> Value {
    let lines = &case.timelines;
    if lines.in_flight.is_empty() && lines.ttft_ms.is_empty() {
        return Value::Null;
    }
    let limits: Vec<Value> = case
        .verdicts
        .iter()
        .filter_map(|verdict| quantile_limit(verdict, Metric::Ttft))
        .collect();
    let last = |points: &Series| points.last().map_or(0.0, |point| point.0);
    let end = [
        &lines.in_flight,
        &lines.output_tps,
        &lines.ttft_ms,
        &lines.failures,
    ]
    .map(last)
    .into_iter()
    .fold(0.0, f64::max);
    let (from, until) = lines.measured;
    json!({
        "end": rounded(end),
        "measured": numbers([from, until].into_iter()),
        "steady": lines.steady.map(|(from, until)| numbers([from, until].into_iter())),
        "in_flight": non_empty(&lines.in_flight).map(|points| columns(&highest(points, max_points))),
        "output_tps": non_empty(&lines.output_tps).map(|points| columns(&highest(points, max_points))),
        "limits": limits,
        "ttft": non_empty(&lines.ttft_ms).map(|points| columns(&highest(points, max_points))),
        "ttft_n": lines.ttft_ms.len(),
        "ttft_quantiles": non_empty(&lines.ttft_ms).map(|points| quantiles_over_time(points, end)),
        "failures": non_empty(&lines.failures).map(|points| counts_over_time(points, end)),
    })
}

/// The x and the y column of points.
pub(super) fn columns(points: &[(f64, f64)]) -> Value {
    json!([
        numbers(points.iter().map(|point| point.0)),
        numbers(points.iter().map(|point| point.1))
    ])
}

fn numbers(values: impl Iterator<Item = f64>) -> Vec<Value> {
    values.map(rounded).collect()
}

/// Rounds to five significant digits; whole numbers have no fraction, infinities and NaN become null.
fn rounded(value: f64) -> Value {
    if !value.is_finite() {
        return Value::Null;
    }
    let places = if value == 0.0 {
        0
    } else {
        (DIGITS - 1 - value.abs().log10().floor() as i32).clamp(0, 15)
    };
    let scale = 10f64.powi(places);
    let short = (value * scale).round() / scale;
    if short.fract() == 0.0 && short.abs() < 1e15 {
        json!(short as i64)
    } else {
        json!(short)
    }
}

/// Every n-th item, so that at most `max_points` remain.
fn evenly<T: Clone>(items: &[T], max_points: usize) -> Vec<T> {
    items
        .iter()
        .step_by(items.len().div_ceil(max_points.max(1)).max(1))
        .cloned()
        .collect()
}

/// The highest point of each group of consecutive points, and the first and last point, so that peaks stay visible.
pub(super) fn highest(points: &[(f64, f64)], max_points: usize) -> Series {
    let group = points.len().div_ceil(max_points.max(1)).max(1);
    let peaks = points
        .chunks(group)
        .filter_map(|chunk| chunk.iter().copied().max_by(|a, b| a.1.total_cmp(&b.1)));
    let ends = (group > 1).then(|| [points.first().copied(), points.last().copied()]);
    let mut kept: Series = peaks.chain(ends.into_iter().flatten().flatten()).collect();
    kept.sort_by(|a, b| a.0.total_cmp(&b.0));
    kept
}

fn time_bin(at: f64, end: f64, bins: usize) -> usize {
    ((at / end * bins as f64) as usize).min(bins - 1)
}

/// The middles of the time bins, and percentiles of the requests scheduled in each, by nearest rank; null for too few
/// requests.
fn quantiles_over_time(points: &[(f64, f64)], end: f64) -> Value {
    let count = (points.len() / MIN_PER_BIN).min(TIME_BINS);
    if count < 2 {
        return Value::Null;
    }
    let mut bins: Vec<Vec<f64>> = vec![Vec::new(); count];
    for &(at, value) in points {
        if let Some(bin) = bins.get_mut(time_bin(at, end, count)) {
            bin.push(value);
        }
    }
    bins.iter_mut().for_each(|bin| bin.sort_by(f64::total_cmp));
    let quantile = |share: f64| {
        let rank = |bin: &Vec<f64>| {
            bin.get(((share * bin.len() as f64).ceil() as usize).saturating_sub(1))
                .copied()
        };
        bins.iter()
            .map(|bin| rank(bin).map_or(Value::Null, rounded))
            .collect::<Vec<_>>()
    };
    json!({ "at": middles(end, count), "p50": quantile(0.50), "p90": quantile(0.90),
        "p95": quantile(0.95), "p99": quantile(0.99) })
}

fn counts_over_time(points: &[(f64, f64)], end: f64) -> Value {
    let mut bins = vec![0u64; TIME_BINS];
    for &(at, _) in points {
        if let Some(bin) = bins.get_mut(time_bin(at, end, TIME_BINS)) {
            *bin += 1;
        }
    }
    json!([middles(end, TIME_BINS), bins])
}

fn middles(end: f64, bins: usize) -> Vec<Value> {
    numbers((0..bins).map(|index| (index as f64 + 0.5) * end / bins as f64))
}

/// Distribution curves by column name, with the limits on their quantiles.
fn curves<'a>(
    curves: impl IntoIterator<Item = (&'a Metric, &'a Series)>,
    case: &CaseReport,
    max_points: usize,
) -> Value {
    let curve = |(metric, points): (&Metric, &Series)| {
        let limits: Vec<Value> = case
            .verdicts
            .iter()
            .filter_map(|verdict| quantile_limit(verdict, *metric))
            .collect();
        let object = json!({
            "name": metric.name(), "unit": metric.unit().symbol(), "points": columns(&thin(points,
                max_points)), "limits": limits,
            "high": metric.higher_is_better(),
        });
        (metric.column().to_owned(), object)
    };
    Value::Object(
        curves
            .into_iter()
            .filter(|(_, points)| !points.is_empty())
            .map(curve)
            .collect::<Map<_, _>>(),
    )
}

/// Evenly spaced points of a curve, including the last one.
fn thin(points: &[(f64, f64)], max_points: usize) -> Series {
    let mut kept = evenly(points, max_points);
    if let Some(last) = points.last().filter(|last| kept.last() != Some(last)) {
        kept.push(*last);
    }
    kept
}

fn quantile_limit(verdict: &Verdict, limited: Metric) -> Option<Value> {
    let share = quantile_of(&verdict.check.subject, limited)?;
    Some(
        json!({ "share": share, "value": rounded(verdict.check.limit), "label": check_title(&verdict.check) }),
    )
}

fn heat_map(heat: &HeatMap) -> Value {
    json!({ "times": numbers(heat.times.iter().copied()), "levels": numbers(heat.levels.iter().copied()),
        "counts": heat.counts })
}

fn by_token(bands: &[QuantileBand]) -> Value {
    let column = |value: fn(&QuantileBand) -> f64| numbers(bands.iter().map(value));
    json!({
        "from": column(|band| band.from), "to": column(|band| band.to),
            "n": bands.iter().map(|band| band.n).collect::<Vec<_>>(),
        "p50": column(|band| band.p50), "p90": column(|band| band.p90), "p99": column(|band| band.p99),
    })
}

/// Columns: sequence number, turn, scheduled send time, sent, first token, end, failure.
fn waterfall(bars: &[TimelineBar]) -> Value {
    let optional = |value: fn(&TimelineBar) -> Option<f64>| {
        bars.iter()
            .map(|bar| value(bar).map(rounded))
            .collect::<Vec<_>>()
    };
    json!([
        bars.iter().map(|bar| bar.seq).collect::<Vec<_>>(),
        bars.iter().map(|bar| bar.turn).collect::<Vec<_>>(),
        numbers(bars.iter().map(|bar| bar.intended)),
        optional(|bar| bar.sent),
        optional(|bar| bar.first_token),
        numbers(bars.iter().map(|bar| bar.end)),
        bars.iter()
            .map(|bar| bar.failure.map(|kind| kind.name()))
            .collect::<Vec<_>>(),
    ])
}

/// A telemetry chart: its title, its unit, and its signals with their labels.
type TelemetryChart = (
    &'static str,
    &'static str,
    &'static [(Signal, &'static str)],
);

const TELEMETRY_CHARTS: [TelemetryChart; 7] = [
    (
        "Requests in the server",
        "requests",
        &[
            (Signal::ServerRunning, "running"),
            (Signal::ServerWaiting, "waiting"),
        ],
    ),
    (
        "KV cache usage",
        "%",
        &[(Signal::ServerKvCacheUsage, "KV cache")],
    ),
    (
        "GPU utilization",
        "%",
        &[
            (Signal::GpuUtilization, "compute"),
            (Signal::GpuMemoryUtilization, "memory interface"),
        ],
    ),
    (
        "GPU memory",
        "GiB",
        &[
            (Signal::GpuMemory, "total"),
            (Signal::GpuMemoryServer, "server"),
        ],
    ),
    ("GPU power", "W", &[(Signal::GpuPower, "power")]),
    (
        "CPU",
        "cores",
        &[
            (Signal::ProcessCpu, "server"),
            (Signal::ToolCpu, "load generator"),
        ],
    ),
    ("Host CPU", "%", &[(Signal::HostCpu, "host")]),
];

/// The telemetry charts with data, in their units; shares are 0..=1.
fn telemetry_lines(case: &CaseReport, max_points: usize) -> Value {
    let line = |(signal, label): &(Signal, &str)| {
        let points = case
            .telemetry
            .series
            .get(signal)
            .filter(|points| points.len() >= MIN_SAMPLES)?;
        let factor = match signal.unit() {
            Unit::Bytes => 1.0 / 1_073_741_824.0,
            _ => 1.0,
        };
        let points: Vec<(f64, f64)> = points
            .iter()
            .map(|(at, value)| (*at, value * factor))
            .collect();
        Some(json!({ "label": label, "points": columns(&highest(&points, max_points)) }))
    };
    let chart = |(title, unit, signals): &TelemetryChart| {
        let lines: Vec<Value> = signals.iter().filter_map(line).collect();
        (!lines.is_empty()).then(|| json!({ "title": title, "unit": unit, "lines": lines }))
    };
    json!(
        TELEMETRY_CHARTS
            .iter()
            .filter_map(chart)
            .collect::<Vec<_>>()
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;
    use crate::fixture::{case, observed};

    #[test]
    fn numbers_keep_five_digits_and_non_numbers_are_null() {
        let short = [
            0.0,
            3.0,
            1234567.8,
            0.123456789,
            1.5e-7,
            f64::NAN,
            f64::INFINITY,
        ]
        .map(rounded);
        assert_eq!(
            json!(short),
            json!([0, 3, 1234568, 0.12346, 1.5e-7, null, null])
        );
    }

    #[test]
    fn thinning_keeps_peaks_and_ends() {
        let mut points: Series = (0..10_000).map(|k| (f64::from(k), 1.0)).collect();
        points[7777].1 = 9.0;
        let thin = highest(&points, 100);
        assert!(
            thin.len() <= 102 && thin.contains(&(7777.0, 9.0)) && thin[0].0 == 0.0,
            "{thin:?}"
        );
        assert_eq!(
            (thin.last(), highest(&points[..3], 100).len()),
            (Some(&(9999.0, 1.0)), 3)
        );
    }

    #[test]
    fn percentiles_over_time_are_those_of_their_bin() {
        let points: Series = (0..96).map(|k| (f64::from(k), f64::from(k))).collect();
        let binned = quantiles_over_time(&points, 96.0);
        assert_eq!(
            (&binned["at"][1], &binned["p50"][1], &binned["p99"][1]),
            (&json!(36), &json!(35), &json!(47))
        );
        assert_eq!(quantiles_over_time(&points[..39], 96.0), Value::Null);
    }

    #[test]
    fn empty_series_are_null_and_limits_belong_to_their_metric() {
        let none = series(&fixture::no_data(), 1);
        assert_eq!(
            none,
            json!({ "time": null, "telemetry": [], "cdfs": {}, "spectra": {}, "heat": null,
                "by_token": null, "prefill": null, "waterfall": null })
        );
        let some = series(&fixture::case(4), 1);
        assert_eq!(
            some["cdfs"]["ttft_ms"]["limits"],
            json!([{ "share": 0.99, "value": 500, "label": "ttft.p99 < 500ms" }])
        );
        assert_eq!(some["cdfs"]["itl_ms"]["limits"], json!([]));
    }

    #[test]
    fn lines_are_in_the_unit_of_their_chart() {
        let charts = telemetry_lines(&observed(), 200);
        assert_eq!(charts.as_array().unwrap().len(), 7);
        let (memory, power) = (&charts[3], &charts[4]);
        assert_eq!(
            (&memory["unit"], &memory["lines"][0]["points"][1][0]),
            (&json!("GiB"), &json!(61))
        );
        assert_eq!(
            (&power["title"], &power["lines"][0]["points"][1][0]),
            (&json!("GPU power"), &json!(540))
        );
        assert_eq!(telemetry_lines(&case(4), 200), json!([]));
    }
}
