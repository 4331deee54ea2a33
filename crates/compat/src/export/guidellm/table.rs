//! benchmarks.csv: three header lines and a line per benchmark. It has every column that any benchmark has.

use crate::export::guidellm::distribution::Dist;
use crate::export::guidellm::metrics::{Clock, NamedMetric, STATUSES, totals};
use crate::export::measured::SortedValues;
use crate::export::{ExportError, Measured, csv};
use llmscen_core::metric::Metric;
use llmscen_core::units::Nanos;
use serde_json::Value;
use std::collections::BTreeMap;

/// The head of a column: group, name, unit or statistic.
type Head = [String; 3];

/// The benchmarks so far.
#[derive(Debug, Default)]
pub(super) struct Table {
    heads: Vec<Head>,
    lines: Vec<BTreeMap<Head, String>>,
}

/// The line of a benchmark while it is filled.
struct Line(Vec<(Head, String)>);

impl Line {
    fn put(&mut self, group: &str, name: &str, unit: &str, value: impl ToString) {
        self.0
            .push(([group, name, unit].map(str::to_owned), value.to_string()));
    }

    /// Adds mean, median, standard deviation and percentiles.
    fn put_distribution(&mut self, group: &str, name: &str, dist: &Dist) {
        let [p001, p01, p05, p10, p25, _, p75, p90, p95, p99, _] = dist.quantiles;
        let points = [
            dist.min, p001, p01, p05, p10, p25, p75, p90, p95, p99, dist.max,
        ];
        let points: Vec<String> = points.iter().map(|point| format!("{point:?}")).collect();
        self.put(group, name, "Mean", python_float(dist.mean));
        self.put(group, name, "Median", python_float(dist.median()));
        self.put(group, name, "Std Dev", python_float(dist.sd()));
        self.put(
            group,
            name,
            "Percentiles",
            format!("[{}]", points.join(", ")),
        );
    }
}

/// A number as Python prints a float.
fn python_float(value: f64) -> String {
    format!("{value:?}")
}

impl Table {
    /// Adds a benchmark.
    pub(super) fn add(
        &mut self,
        case: &Measured<'_>,
        metrics: &[NamedMetric],
        clock: &Clock,
        config: &Value,
        metadata: &Value,
        scenario: &Value,
    ) {
        let mut line = Line(Vec::new());
        put_run_info(&mut line, config);
        put_times_and_counts(&mut line, case, clock);
        for (_, group, unit, split) in metrics {
            for (status, dist) in STATUSES
                .iter()
                .zip(&split.0)
                .filter(|(_, dist)| dist.sum != 0.0)
            {
                line.put_distribution(group, &format!("{} {unit}", capitalize(status)), dist);
            }
        }
        put_scheduler(&mut line, case);
        line.put("Runtime Info", "Metadata", "", metadata);
        line.put("Runtime Info", "Arguments", "", scenario);
        line.put("Measurement Uncertainty", "Confidence Level", "", "");
        let new: Vec<Head> = line
            .0
            .iter()
            .map(|(head, _)| head)
            .filter(|head| !self.heads.contains(head))
            .cloned()
            .collect();
        self.heads.extend(new);
        self.lines.push(line.0.into_iter().collect());
    }

    /// The CSV file.
    pub(super) fn bytes(&self) -> Result<Vec<u8>, ExportError> {
        let head = |row: usize| {
            self.heads
                .iter()
                .map(|head| head.get(row).cloned().unwrap_or_default())
                .collect()
        };
        let line = |line: &BTreeMap<Head, String>| {
            self.heads
                .iter()
                .map(|head| line.get(head).cloned().unwrap_or_default())
                .collect()
        };
        let lines: Vec<Vec<String>> = [0, 1, 2]
            .map(head)
            .into_iter()
            .chain(self.lines.iter().map(line))
            .collect();
        csv(&lines)
    }
}

/// A status with a capital letter: `Successful`.
fn capitalize(status: &str) -> String {
    let mut letters = status.chars();
    letters
        .next()
        .map(|first| first.to_uppercase().chain(letters).collect())
        .unwrap_or_default()
}

fn put_run_info(line: &mut Line, config: &Value) {
    let text = |key: &str| {
        config.get(key).map(|value| {
            value
                .as_str()
                .map_or_else(|| value.to_string(), str::to_owned)
        })
    };
    let mut put = |group: &str, name: &str, key: &str| {
        line.put(group, name, "", text(key).unwrap_or_default())
    };
    put("Run Info", "Run ID", "run_id");
    put("Run Info", "Run Index", "run_index");
    put("Run Info", "Profile", "profile");
    put("Run Info", "Requests", "requests");
    put("Run Info", "Backend", "backend");
    put("Run Info", "Environment", "environment");
    line.put("Benchmark", "Type", "", "generative_benchmark");
    line.put("Benchmark", "ID", "", text("id_").unwrap_or_default());
    line.put(
        "Benchmark",
        "Strategy",
        "",
        config
            .pointer("/strategy/type_")
            .and_then(Value::as_str)
            .unwrap_or_default(),
    );
    line.put(
        "Benchmark",
        "Constraints",
        "",
        text("constraints").unwrap_or_default(),
    );
}

fn put_times_and_counts(line: &mut Line, case: &Measured<'_>, clock: &Clock) {
    let (from, to) = case.bounds().unwrap_or_default();
    let until = from + Nanos::from_secs_f64(clock.length);
    let date = |at: Nanos| {
        let date = case.date(at);
        let (hour, minute, second) = date.to_hms();
        format!("{} {hour:02}:{minute:02}:{second:02}", date.date())
    };
    for (name, at) in [
        ("Start Time", from),
        ("Request Start Time", from),
        ("Measure Start Time", from),
        ("Measure End Time", until),
        ("Request End Time", until),
        ("End Time", to),
    ] {
        line.put("Timings", name, "", date(at));
    }
    for (name, seconds) in [
        ("Duration", clock.length),
        ("Warmup", 0.0),
        ("Cooldown", 0.0),
    ] {
        line.put("Timings", name, "Sec", python_float(seconds));
    }
    for (status, count) in STATUSES.iter().zip(totals(case)) {
        line.put("Request Counts", &capitalize(status), "", count);
    }
    line.put("Request Counts", "Total", "", case.rows.len());
}

fn put_scheduler(line: &mut Line, case: &Measured<'_>) {
    let [successful, incomplete, errored] = totals(case);
    let all = case.rows.len();
    for (name, count) in [
        ("Node ID", 0),
        ("Num Processes", 1),
        ("Created Requests", all),
        ("Processed Requests", all),
        ("Successful Requests", successful),
        ("Errored Requests", errored),
        ("Cancelled Requests", incomplete),
    ] {
        line.put("Scheduler State", name, "", count);
    }
    for (name, count) in [
        ("Successful", successful),
        ("Incomplete", incomplete),
        ("Errored", errored),
        ("Total", all),
    ] {
        line.put(
            "Scheduler Metrics",
            &format!("Requests Made {name}"),
            "",
            count,
        );
    }
    let mean = |metric: Metric| {
        SortedValues::new(case.values(metric)).map_or(-1.0, |spread| spread.mean() / 1e3)
    };
    for (name, seconds) in [
        ("Queued Time Avg", -1.0),
        ("Resolve Start Delay Avg", -1.0),
        ("Resolve Targeted Start Delay Avg", -1.0),
        ("Request Start Delay Avg", -1.0),
        (
            "Request Targeted Start Delay Avg",
            mean(Metric::ScheduleLag),
        ),
        ("Request Time Avg", mean(Metric::E2eService)),
        ("Resolve End Delay Avg", -1.0),
        ("Resolve Time Avg", -1.0),
        ("Finalized Delay Avg", -1.0),
        ("Processed Delay Avg", -1.0),
    ] {
        line.put("Scheduler Metrics", name, "Sec", python_float(seconds));
    }
}
