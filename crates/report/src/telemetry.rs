//! Telemetry of server, GPUs and host in tables, notes and results.json.

use crate::format::{ABSENT, value};
use crate::table::{Cell, Column, Row, Table};
use llmscen_core::metric::{Metric, Stat};
use llmscen_core::report::{CaseReport, Report};
use llmscen_core::signal::Signal;
use llmscen_core::telemetry::{OtherStat, SignalStat, StatValue};
use llmscen_core::units::Unit;
use serde_json::{Map, Value, json};

/// The statistics of the table, besides the count.
const STATS: [Stat; 6] = [
    Stat::Mean,
    Stat::Quantile(0.50),
    Stat::Quantile(0.95),
    Stat::Quantile(0.99),
    Stat::Min,
    Stat::Max,
];

/// The quantiles of results.json.
const QUANTILES: [(&str, f64); 3] = [("p50", 0.50), ("p95", 0.95), ("p99", 0.99)];

/// The telemetry of a case in results.json: every signal, null if it was not sampled.
pub fn json(case: &CaseReport) -> Value {
    let telemetry = &case.telemetry;
    let signal = |signal: &Signal| {
        let statistics = telemetry.signals.get(signal).map(|stat| {
            let unit = if signal.unit() == Unit::Share { "share" } else { signal.unit().symbol() };
            let mut object =
                json!({ "unit": unit, "n": stat.n, "mean": stat.mean, "sd": stat.sd, "min": stat.min,
                    "max": stat.max });
            let mut bounds = Map::new();
            for (name, share) in QUANTILES {
                let quantile = stat.at(Stat::Quantile(share));
                object[name] = json!(quantile.and_then(StatValue::value));
                bounds.extend(quantile.and_then(bound_json).map(|bound| (name.to_owned(), bound)));
            }
            object["bounds"] = Value::Object(bounds);
            object
        });
        (signal.name().to_owned(), json!(statistics))
    };
    let other = |(name, series): (&String, &OtherStat)| {
        let statistics = match series {
            OtherStat::Level { n, mean, min, max } => {
                json!({ "n": n, "mean": mean, "min": min, "max": max })
            }
            OtherStat::Growth(growth) => json!({ "per_second": growth }),
        };
        (name.clone(), statistics)
    };
    let mut all: Map<String, Value> = Signal::ALL.iter().map(signal).collect();
    all.insert(
        "other".to_owned(),
        Value::Object(telemetry.others.iter().map(other).collect()),
    );
    // Absent for a target with a single metrics page.
    if !telemetry.roles.is_empty() {
        all.insert("workers".to_owned(), json!(telemetry.workers));
        all.insert("roles".to_owned(), json!(telemetry.roles));
    }
    all.insert("notes".to_owned(), json!(telemetry.notes));
    Value::Object(all)
}

/// The bound of a quantile in the first or last bucket of a histogram; None if its value is known.
fn bound_json(quantile: StatValue) -> Option<Value> {
    match quantile {
        StatValue::Value(_) => None,
        StatValue::AtMost(most) => Some(json!({ "at_most": most })),
        StatValue::AtLeast(least) => Some(json!({ "at_least": least })),
    }
}

/// The table of the signals of a case; no rows without telemetry.
pub(crate) fn signals(case: &CaseReport) -> Table {
    let statistics = STATS
        .iter()
        .map(|stat| Column::number().documents(&stat.to_string()));
    let columns = [
        Column::text().documents("Signal"),
        Column::number().documents("n"),
    ]
    .into_iter()
    .chain(statistics)
    .collect();
    let row = |(signal, values): (&Signal, &SignalStat)| {
        let figure = |stat: &Stat| {
            Cell::figure(
                statistic(*signal, values, *stat),
                values.at(*stat).and_then(StatValue::value),
            )
            .with_stat("", &stat.to_string())
        };
        let first = [
            Cell::code(signal.name()),
            Cell::count(values.n).with_stat("", "n"),
        ];
        Row::new(first.into_iter().chain(STATS.iter().map(figure)).collect()).metric(signal.name())
    };
    Table::new(columns, case.telemetry.signals.iter().map(row).collect())
}

/// A statistic of a signal in its unit.
fn statistic(signal: Signal, values: &SignalStat, stat: Stat) -> String {
    values.at(stat).map_or_else(
        || ABSENT.to_owned(),
        |value| format_seen(value, signal.unit()),
    )
}

/// A value or its bound in its unit: `≤ 300 ms`.
fn format_seen(seen: StatValue, unit: Unit) -> String {
    format!("{}{}", seen.sign(), value(seen.number(), unit))
}

/// TTFT as measured by client and server, of the cases with both.
pub(crate) fn server_ttft<'a>(cases: impl Iterator<Item = (usize, &'a CaseReport)>) -> Table {
    let columns = vec![
        Column::text().documents("Case"),
        Column::text().documents("TTFT"),
        Column::number().documents("mean"),
        Column::number().documents("p50"),
        Column::number().documents("p95"),
        Column::number().documents("p99"),
    ];
    let rows = cases.flat_map(|(index, case)| {
        ttft_breakdown(case).into_iter().map(move |row| {
            let figure = |value: Option<StatValue>| {
                Cell::figure(
                    value.map_or_else(String::new, |it| format_seen(it, Unit::Millis)),
                    value.and_then(StatValue::value),
                )
            };
            let first = [Cell::case(index, &case.id), Cell::prose(row.name)];
            Row::new(first.into_iter().chain(row.figures.map(figure)).collect())
        })
    });
    Table::new(columns, rows.collect())
}

/// A row of the TTFT breakdown.
#[derive(Clone, Copy, Debug, PartialEq)]
struct TtftRow {
    name: &'static str,
    /// Mean, p50, p95 and p99 in milliseconds. A difference has only a mean, since quantiles cannot be subtracted.
    figures: [Option<StatValue>; 4],
}

/// TTFT of client and server, and the components that add up to the client's mean: send delay, queue, work and the
/// rest. Empty if either TTFT is missing.
fn ttft_breakdown(case: &CaseReport) -> Vec<TtftRow> {
    let client = |metric: Metric| case.distributions.get(&metric);
    let server = |signal: Signal| {
        case.telemetry
            .signals
            .get(&signal)
            .filter(|values| values.mean.is_some())
    };
    let (Some(scheduled), Some(sent), Some(reported)) = (
        client(Metric::Ttft),
        client(Metric::TtftService),
        server(Signal::ServerTtft),
    ) else {
        return Vec::new();
    };
    let queue = server(Signal::ServerQueueTime);
    let mean = |mean: Option<f64>| [mean.map(StatValue::Value), None, None, None];
    let shares = [0.50, 0.95, 0.99];
    let measured = |signal: Signal| {
        server(signal).map(|values| {
            let [p50, p95, p99] = shares.map(|share| values.at(Stat::Quantile(share)));
            [values.mean.map(StatValue::Value), p50, p95, p99]
        })
    };
    let [p50, p95, p99] = shares.map(|share| scheduled.quantile(share).map(StatValue::Value));
    let after_queue = queue.map(|queue| {
        mean(
            reported
                .mean
                .zip(queue.mean)
                .map(|(all, queue)| all - queue),
        )
    });
    let rows = [
        (
            "client, from the scheduled send time",
            Some([Some(StatValue::Value(scheduled.mean)), p50, p95, p99]),
        ),
        ("server histogram", measured(Signal::ServerTtft)),
        (
            "component: send delay of the client",
            Some(mean(Some(scheduled.mean - sent.mean))),
        ),
        (
            "component: queue in the server",
            measured(Signal::ServerQueueTime),
        ),
        ("component: server after the queue", after_queue),
        (
            "component: server, queue included",
            if queue.is_none() {
                Some(mean(reported.mean))
            } else {
                None
            },
        ),
        (
            "component: network, HTTP, and server before its clock starts",
            Some(mean(reported.mean.map(|server| sent.mean - server))),
        ),
    ];
    rows.into_iter()
        .filter_map(|(name, figures)| {
            Some(TtftRow {
                name,
                figures: figures?,
            })
        })
        .collect()
}

/// A note if the server's TTFT histogram has more or fewer requests than the client measured.
pub(crate) fn remarks(case: &CaseReport) -> Vec<String> {
    if ttft_breakdown(case).is_empty() {
        return Vec::new();
    }
    let client = case
        .distributions
        .get(&Metric::Ttft)
        .map_or(0, |values| values.n);
    let counted = case
        .telemetry
        .signals
        .get(&Signal::ServerTtft)
        .map_or(0, |values| values.n);
    if counted == client {
        return Vec::new();
    }
    vec![format!(
        "server.ttft: the server counted {counted} first tokens between its samples around the \
         window, the client measured {client}. The server also counts warm-up, cool-down, \
         requests at the edges of the window and requests of other clients."
    )]
}

/// The signals of server and GPUs in a terminal, with their labels. The report has all signals.
const TERMINAL_SIGNALS: [(&str, &[(Signal, &str)]); 3] = [
    (
        "server",
        &[
            (Signal::ServerRunning, "running"),
            (Signal::ServerWaiting, "waiting"),
            (Signal::ServerKvCacheUsage, "KV cache"),
            (Signal::ServerPreemptions, "preemptions"),
        ],
    ),
    (
        "gpu",
        &[
            (Signal::GpuUtilization, "utilization"),
            (Signal::GpuMemory, "memory"),
            (Signal::GpuPower, "power"),
            (Signal::GpuTemperature, "temperature"),
            (Signal::GpuThrottled, "throttled"),
        ],
    ),
    (
        "process",
        &[
            (Signal::ProcessCpu, "CPU"),
            (Signal::ProcessMemory, "memory"),
        ],
    ),
];

/// One line for each scope with data: means and maxima of a single case, or the greatest maxima of several.
pub fn terminal_lines(report: &Report) -> String {
    let cases: Vec<&CaseReport> = report
        .cases
        .iter()
        .filter(|case| !case.is_stage())
        .collect();
    let figure = |(signal, label): &(Signal, &str)| {
        let found: Vec<&SignalStat> = cases
            .iter()
            .filter_map(|case| case.telemetry.signals.get(signal))
            .collect();
        let max = found
            .iter()
            .filter_map(|values| values.max)
            .reduce(f64::max)?;
        let unit = if signal.unit() == Unit::Count && *label == "CPU" {
            " cores"
        } else {
            ""
        };
        let max = value(max, signal.unit());
        Some(match found.as_slice() {
            [only] if cases.len() == 1 => format!(
                "{label} {}{unit} (max {max})",
                statistic(*signal, only, Stat::Mean)
            ),
            _ => format!("{label} max {max}{unit}"),
        })
    };
    let line = |(scope, signals): &(&str, &[(Signal, &str)])| {
        let figures: Vec<String> = signals.iter().filter_map(figure).collect();
        (!figures.is_empty()).then(|| format!("{scope:<8} {}\n", figures.join(", ")))
    };
    TERMINAL_SIGNALS.iter().filter_map(line).collect()
}

/// A sentence about the series that have no name in llmscen; empty if there are none.
pub fn others(case: &CaseReport) -> String {
    match case.telemetry.others.len() {
        0 => String::new(),
        1 => "1 more series is in results.json and telemetry.parquet under the name that the \
        server gives it."
            .to_owned(),
        more => {
            format!(
                "{more} more series are in results.json and telemetry.parquet under the names \
            that the server gives them."
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{case, observed, report_of, sweep};

    #[test]
    fn every_signal_has_its_key_and_missing_values_are_null() {
        let all = json(&observed());
        let keys: Vec<&str> = all
            .as_object()
            .unwrap()
            .keys()
            .map(String::as_str)
            .collect();
        assert_eq!(
            keys[..keys.len() - 2],
            Signal::ALL
                .iter()
                .map(|signal| signal.name())
                .collect::<Vec<_>>()
        );
        assert_eq!(all["server.kv_cache_usage"]["unit"], "share");
        assert_eq!(
            (&all["server.ttft"]["max"], &all["server.ttft"]["n"]),
            (&Value::Null, &json!(240))
        );
        assert_eq!(all["server.preemptions"], Value::Null);
        let queue = &all["server.queue_time"];
        assert_eq!(
            (&queue["p50"], &queue["bounds"]),
            (
                &Value::Null,
                &json!({ "p50": { "at_most": 300.0 }, "p99": { "at_least": 480.0 } })
            )
        );
        assert_eq!(
            (&all["server.ttft"]["bounds"], &all["gpu.power"]["bounds"]),
            (&json!({}), &json!({}))
        );
        assert_eq!(
            all["other"]["vllm:lora{a=b}"],
            json!({ "n": 2, "mean": 1.5, "min": 1.0, "max": 2.0 })
        );
        assert_eq!(
            all["other"]["vllm:corrupted_total"],
            json!({ "per_second": 0.25 })
        );
        assert!(
            json(&case(4))
                .as_object()
                .unwrap()
                .values()
                .all(|value| value.is_null() || value == &json!({}) || value == &json!([]))
        );
    }

    #[test]
    fn a_terminal_has_a_line_for_each_scope() {
        let one = terminal_lines(&report_of(vec![observed()], Default::default(), 0));
        insta::assert_snapshot!(one, @r"
        server   running 7.00 (max 8.00), waiting 0.803 (max 1.60), KV cache 42.1% (max 62%)
        gpu      utilization 90% (max 98%), memory 61.0 GiB (max 62.0 GiB), power 540 W (max 600 W), temperature 66.0 °C (max 70.0 °C)
        process  CPU 1.40 cores (max 1.70), memory 6.50 GiB (max 6.60 GiB)
        ");
        let two = terminal_lines(&report_of(
            vec![observed(), observed()],
            Default::default(),
            0,
        ));
        assert!(
            two.starts_with("server   running max 8.00, waiting max "),
            "{two}"
        );
        assert_eq!(terminal_lines(&sweep(3)), "");
    }

    #[test]
    fn tables_have_a_row_per_signal_and_ttft_component() {
        let report = report_of(vec![observed(), case(4)], Default::default(), 0);
        let both = || report.cases.iter().enumerate();
        for table in [signals(&observed()), server_ttft(both())] {
            assert!(
                !table.rows.is_empty()
                    && table
                        .rows
                        .iter()
                        .all(|row| row.cells.len() == table.columns.len())
            );
        }
        assert_eq!(
            (
                signals(&observed()).rows.len(),
                server_ttft(both()).rows.len()
            ),
            (16, 6)
        );
        let queue = signals(&observed())
            .markdown_rows()
            .into_iter()
            .find(|row| row[0] == "`server.queue_time`")
            .unwrap();
        assert_eq!(
            queue[1..],
            [
                "240",
                "22 ms",
                "≤ 300 ms",
                "435 ms",
                "≥ 480 ms",
                "n/a",
                "n/a"
            ]
        );
        assert_eq!(
            others(&observed()),
            "2 more series are in results.json and telemetry.parquet under the names that the server gives them."
        );
        assert_eq!(others(&case(4)), "");
        assert!(
            signals(&case(4)).rows.is_empty()
                && server_ttft(sweep(2).cases.iter().enumerate())
                    .rows
                    .is_empty()
        );
    }

    #[test]
    fn the_components_add_up_to_the_clients_mean() {
        let mut case = observed();
        let rows = ttft_breakdown(&case);
        let sum: f64 = rows
            .iter()
            .filter(|row| row.name.starts_with("component"))
            .filter_map(|row| row.figures[0]?.value())
            .sum();
        assert!(
            (sum - case.distributions[&Metric::Ttft].mean).abs() < 1e-9,
            "{rows:?}"
        );
        assert_eq!(rows.len(), 6);
        assert_eq!(
            rows[3].figures[1],
            Some(StatValue::AtMost(300.0)),
            "the queue's p50 is in its first bucket"
        );
        case.telemetry.signals.remove(&Signal::ServerQueueTime);
        let rows = ttft_breakdown(&case);
        assert_eq!(
            (rows.len(), rows[3].name),
            (5, "component: server, queue included")
        );
        let without_telemetry = crate::fixture::case(4);
        assert!(
            ttft_breakdown(&without_telemetry).is_empty() && remarks(&without_telemetry).is_empty()
        );
    }

    #[test]
    fn a_different_request_count_of_the_server_is_noted() {
        let mut case = observed();
        assert_eq!(remarks(&case), [""; 0]);
        case.telemetry
            .signals
            .get_mut(&Signal::ServerTtft)
            .unwrap()
            .n = 260;
        assert!(
            remarks(&case)[0].starts_with("server.ttft: the server counted 260 first tokens"),
            "{:?}",
            remarks(&case)
        );
    }
}
