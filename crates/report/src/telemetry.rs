//! What was sampled beside the requests, in every form but pictures.

use crate::format::{ABSENT, value};
use crate::table::{Cell, Column, Row, Table};
use llmscen_core::metric::{Metric, Stat};
use llmscen_core::report::{CaseReport, Report};
use llmscen_core::signal::Signal;
use llmscen_core::telemetry::{Other, Seen, SignalStat};
use llmscen_core::units::Unit;
use serde_json::{Map, Value, json};

/// The statistics of the table, but for the count.
const STATS: [Stat; 6] = [Stat::Mean, Stat::Quantile(0.50), Stat::Quantile(0.95), Stat::Quantile(0.99), Stat::Min, Stat::Max];

/// The quantiles of results.json.
const QUANTILES: [(&str, f64); 3] = [("p50", 0.50), ("p95", 0.95), ("p99", 0.99)];

/// The telemetry of a case as results.json has it: every signal, null where it does not exist.
pub fn json(case: &CaseReport) -> Value {
    let telemetry = &case.telemetry;
    let signal = |signal: &Signal| {
        let told = telemetry.signals.get(signal).map(|own| {
            let unit = if signal.unit() == Unit::Share { "share" } else { signal.unit().symbol() };
            let mut all = json!({ "unit": unit, "n": own.n, "mean": own.mean, "sd": own.sd, "min": own.min, "max": own.max });
            let mut bounds = Map::new();
            for (name, share) in QUANTILES {
                let seen = own.at(Stat::Quantile(share));
                all[name] = json!(seen.and_then(Seen::value));
                bounds.extend(seen.and_then(bound).map(|bound| (name.to_owned(), bound)));
            }
            all["bounds"] = Value::Object(bounds);
            all
        });
        (signal.name().to_owned(), json!(told))
    };
    let other = |(name, own): (&String, &Other)| {
        let told = match own {
            Other::Level { n, mean, min, max } => json!({ "n": n, "mean": mean, "min": min, "max": max }),
            Other::Growth(growth) => json!({ "per_second": growth }),
        };
        (name.clone(), told)
    };
    let mut all: Map<String, Value> = Signal::ALL.iter().map(signal).collect();
    all.insert("other".to_owned(), Value::Object(telemetry.others.iter().map(other).collect()));
    all.insert("notes".to_owned(), json!(telemetry.notes));
    Value::Object(all)
}

/// What is known of a figure that is not known itself.
fn bound(seen: Seen) -> Option<Value> {
    match seen {
        Seen::Value(_) => None,
        Seen::AtMost(most) => Some(json!({ "at_most": most })),
        Seen::AtLeast(least) => Some(json!({ "at_least": least })),
    }
}

/// The signals of a case; no rows where there are none.
pub(crate) fn signals(case: &CaseReport) -> Table {
    let statistics = STATS.iter().map(|stat| Column::number().documents(&stat.to_string()));
    let columns = [Column::text().documents("Signal"), Column::number().documents("n")].into_iter().chain(statistics).collect();
    let row = |(signal, own): (&Signal, &SignalStat)| {
        let figure = |stat: &Stat| {
            Cell::figure(statistic(*signal, own, *stat), own.at(*stat).and_then(Seen::value)).of("", &stat.to_string())
        };
        let first = [Cell::code(signal.name()), Cell::count(own.n).of("", "n")];
        Row::new(first.into_iter().chain(STATS.iter().map(figure)).collect()).metric(signal.name())
    };
    Table::new(columns, case.telemetry.signals.iter().map(row).collect())
}

/// A statistic of a signal in its unit.
fn statistic(signal: Signal, own: &SignalStat, stat: Stat) -> String {
    own.at(stat).map_or_else(|| ABSENT.to_owned(), |seen| known(seen, signal.unit()))
}

/// What is known of a figure, in its unit: `≤ 300 ms`.
fn known(seen: Seen, unit: Unit) -> String {
    format!("{}{}", seen.sign(), value(seen.number(), unit))
}

/// The client's TTFT and the server's own, of the cases that have both.
pub(crate) fn server_ttft<'a>(cases: impl Iterator<Item = (usize, &'a CaseReport)>) -> Table {
    let columns = vec![
        Column::text().documents("Case"),
        Column::text().documents("Time to first token"),
        Column::number().documents("mean"),
        Column::number().documents("p50"),
        Column::number().documents("p95"),
        Column::number().documents("p99"),
    ];
    let rows = cases.flat_map(|(index, case)| {
        ttft_parts(case).into_iter().map(move |part| {
            let figure = |seen: Option<Seen>| {
                Cell::figure(seen.map_or_else(String::new, |seen| known(seen, Unit::Millis)), seen.and_then(Seen::value))
            };
            let first = [Cell::case(index, &case.id), Cell::prose(part.name)];
            Row::new(first.into_iter().chain(part.figures.map(figure)).collect())
        })
    });
    Table::new(columns, rows.collect())
}

/// A row of the table of the client's TTFT and the server's own.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Part {
    name: &'static str,
    /// Mean, p50, p95 and p99 in milliseconds; of a difference the mean alone, since quantiles do not subtract.
    figures: [Option<Seen>; 4],
}

/// The two, and the parts of the client's mean: lag, queue, work and the rest add up to it. Empty where one is not known.
fn ttft_parts(case: &CaseReport) -> Vec<Part> {
    let client = |metric: Metric| case.distributions.get(&metric);
    let server = |signal: Signal| case.telemetry.signals.get(&signal).filter(|own| own.mean.is_some());
    let (Some(due), Some(sent), Some(own)) = (client(Metric::Ttft), client(Metric::TtftService), server(Signal::ServerTtft))
    else {
        return Vec::new();
    };
    let queue = server(Signal::ServerQueueTime);
    let mean = |mean: Option<f64>| [mean.map(Seen::Value), None, None, None];
    let shares = [0.50, 0.95, 0.99];
    let told = |signal: Signal| {
        server(signal).map(|own| {
            let [a, b, c] = shares.map(|share| own.at(Stat::Quantile(share)));
            [own.mean.map(Seen::Value), a, b, c]
        })
    };
    let [a, b, c] = shares.map(|share| due.quantile(share).map(Seen::Value));
    let parts = [
        ("client, from when it was due", Some([Some(Seen::Value(due.mean)), a, b, c])),
        ("server, by its own histogram", told(Signal::ServerTtft)),
        ("apart: schedule lag of the client", Some(mean(Some(due.mean - sent.mean)))),
        ("apart: queue in the server", told(Signal::ServerQueueTime)),
        ("apart: the server's work after it", queue.map(|queue| mean(own.mean.zip(queue.mean).map(|(all, queue)| all - queue)))),
        ("apart: the server's queue and work", if queue.is_none() { Some(mean(own.mean)) } else { None }),
        ("apart: network, HTTP, and what the server does before it counts", Some(mean(own.mean.map(|own| sent.mean - own)))),
    ];
    parts.into_iter().filter_map(|(name, figures)| Some(Part { name, figures: figures? })).collect()
}

/// Whether the server counted other requests than the client measured.
pub(crate) fn remarks(case: &CaseReport) -> Vec<String> {
    if ttft_parts(case).is_empty() {
        return Vec::new();
    }
    let client = case.distributions.get(&Metric::Ttft).map_or(0, |own| own.n);
    let counted = case.telemetry.signals.get(&Signal::ServerTtft).map_or(0, |own| own.n);
    let differs = format!(
        "server.ttft: the server counted {counted} first tokens between its readings around the window, {client} measured requests \
         had one: warm-up, requests at the edges or those of others are among the server's."
    );
    if counted == client { Vec::new() } else { vec![differs] }
}

/// What a terminal is told of the server and its hardware, a word for each signal; this tool and the machine stand in the report.
const TOLD: [(&str, &[(Signal, &str)]); 3] = [
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
            (Signal::GpuUtilization, "utilisation"),
            (Signal::GpuMemory, "memory"),
            (Signal::GpuPower, "power"),
            (Signal::GpuTemperature, "temperature"),
            (Signal::GpuThrottled, "throttled"),
        ],
    ),
    ("process", &[(Signal::ProcessCpu, "CPU"), (Signal::ProcessMemory, "memory")]),
];

/// One line for each scope that was told of: means and maxima of a single case, the greatest maxima of several.
pub fn lines(report: &Report) -> String {
    let cases: Vec<&CaseReport> = report.cases.iter().filter(|case| !case.is_stage()).collect();
    let figure = |(signal, word): &(Signal, &str)| {
        let seen: Vec<&SignalStat> = cases.iter().filter_map(|case| case.telemetry.signals.get(signal)).collect();
        let most = seen.iter().filter_map(|own| own.max).reduce(f64::max)?;
        let unit = if signal.unit() == Unit::Count && *word == "CPU" { " cores" } else { "" };
        let most = value(most, signal.unit());
        Some(match seen.as_slice() {
            [only] if cases.len() == 1 => format!("{word} {}{unit} (max {most})", statistic(*signal, only, Stat::Mean)),
            _ => format!("{word} max {most}{unit}"),
        })
    };
    let line = |(scope, signals): &(&str, &[(Signal, &str)])| {
        let told: Vec<String> = signals.iter().filter_map(figure).collect();
        (!told.is_empty()).then(|| format!("{scope:<8} {}\n", told.join(", ")))
    };
    TOLD.iter().filter_map(line).collect()
}

/// Where the series without a common name are; empty where there are none.
pub fn others(case: &CaseReport) -> String {
    match case.telemetry.others.len() {
        0 => String::new(),
        1 => "1 more series, by its own name, is in results.json and telemetry.parquet.".to_owned(),
        more => format!("{more} more series, by their own names, are in results.json and telemetry.parquet."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{case, observed, report_of, sweep};

    #[test]
    fn every_signal_has_its_key_and_what_is_missing_is_null() {
        let told = json(&observed());
        let keys: Vec<&str> = told.as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(keys[..keys.len() - 2], Signal::ALL.iter().map(|signal| signal.name()).collect::<Vec<_>>());
        assert_eq!(told["server.kv_cache_usage"]["unit"], "share");
        assert_eq!((&told["server.ttft"]["max"], &told["server.ttft"]["n"]), (&Value::Null, &json!(240)));
        assert_eq!(told["server.preemptions"], Value::Null);
        let queue = &told["server.queue_time"];
        assert_eq!(
            (&queue["p50"], &queue["bounds"]),
            (&Value::Null, &json!({ "p50": { "at_most": 300.0 }, "p99": { "at_least": 480.0 } }))
        );
        assert_eq!((&told["server.ttft"]["bounds"], &told["gpu.power"]["bounds"]), (&json!({}), &json!({})));
        assert_eq!(told["other"]["vllm:lora{a=b}"], json!({ "n": 2, "mean": 1.5, "min": 1.0, "max": 2.0 }));
        assert_eq!(told["other"]["vllm:corrupted_total"], json!({ "per_second": 0.25 }));
        assert!(json(&case(4)).as_object().unwrap().values().all(|own| own.is_null() || own == &json!({}) || own == &json!([])));
    }

    #[test]
    fn a_terminal_has_a_line_for_each_scope() {
        let one = lines(&report_of(vec![observed()], Default::default(), 0));
        insta::assert_snapshot!(one, @r"
        server   running 7.00 (max 8.00), waiting 0.803 (max 1.60), KV cache 42.1% (max 62%)
        gpu      utilisation 90% (max 98%), memory 61.0 GiB (max 62.0 GiB), power 540 W (max 600 W), temperature 66.0 °C (max 70.0 °C)
        process  CPU 1.40 cores (max 1.70), memory 6.50 GiB (max 6.60 GiB)
        ");
        let two = lines(&report_of(vec![observed(), observed()], Default::default(), 0));
        assert!(two.starts_with("server   running max 8.00, waiting max "), "{two}");
        assert_eq!(lines(&sweep(3)), "");
    }

    #[test]
    fn tables_hold_what_there_is() {
        let report = report_of(vec![observed(), case(4)], Default::default(), 0);
        let both = || report.cases.iter().enumerate();
        for table in [signals(&observed()), server_ttft(both())] {
            assert!(!table.rows.is_empty() && table.rows.iter().all(|row| row.cells.len() == table.columns.len()));
        }
        assert_eq!((signals(&observed()).rows.len(), server_ttft(both()).rows.len()), (16, 6));
        let queue = signals(&observed()).markdown_rows().into_iter().find(|row| row[0] == "`server.queue_time`").unwrap();
        assert_eq!(queue[1..], ["240", "22 ms", "≤ 300 ms", "435 ms", "≥ 480 ms", "n/a", "n/a"]);
        assert_eq!(others(&observed()), "2 more series, by their own names, are in results.json and telemetry.parquet.");
        assert_eq!(others(&case(4)), "");
        assert!(signals(&case(4)).rows.is_empty() && server_ttft(sweep(2).cases.iter().enumerate()).rows.is_empty());
    }

    #[test]
    fn the_parts_of_the_clients_mean_add_up_to_it() {
        let own = observed();
        let parts = ttft_parts(&own);
        let sum: f64 =
            parts.iter().filter(|part| part.name.starts_with("apart")).filter_map(|part| part.figures[0]?.value()).sum();
        assert!((sum - own.distributions[&Metric::Ttft].mean).abs() < 1e-9, "{parts:?}");
        assert_eq!(parts.len(), 6);
        assert_eq!(parts[3].figures[1], Some(Seen::AtMost(300.0)), "the queue's p50 lies in its first bucket");
        let mut blind = own;
        blind.telemetry.signals.remove(&Signal::ServerQueueTime);
        let parts = ttft_parts(&blind);
        assert_eq!((parts.len(), parts[3].name), (5, "apart: the server's queue and work"));
        assert!(ttft_parts(&case(4)).is_empty() && remarks(&case(4)).is_empty());
    }

    #[test]
    fn what_else_the_server_counted_is_said() {
        let mut own = observed();
        assert_eq!(remarks(&own), [""; 0]);
        own.telemetry.signals.get_mut(&Signal::ServerTtft).unwrap().n = 260;
        assert!(remarks(&own)[0].starts_with("server.ttft: the server counted 260 first tokens"), "{:?}", remarks(&own));
    }
}
