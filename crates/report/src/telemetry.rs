//! What was sampled beside the requests, in every form but pictures.

mod ttft;

pub use ttft::{apart, remarks};

use crate::escape::code;
use crate::format::{ABSENT, plain, value};
use crate::sheet::Sheet;
use llmscen_core::metric::Stat;
use llmscen_core::report::{CaseReport, Report};
use llmscen_core::signal::Signal;
use llmscen_core::telemetry::{Other, Seen, SignalStat};
use llmscen_core::units::Unit;
use serde::Serialize;
use serde_json::{Map, Value, json};

/// The statistics of every table, with the signs of a table of numbers.
pub const HEADS: [&str; 8] = ["Signal", ">n", ">mean", ">p50", ">p95", ">p99", ">min", ">max"];

/// The statistics behind those heads, but for the count.
pub const STATS: [Stat; 6] = [Stat::Mean, Stat::Quantile(0.50), Stat::Quantile(0.95), Stat::Quantile(0.99), Stat::Min, Stat::Max];

/// The quantiles of results.json.
const QUANTILES: [(&str, f64); 3] = [("p50", 0.50), ("p95", 0.95), ("p99", 0.99)];

/// The tables of a case.
#[derive(Serialize)]
pub struct Told {
    /// As a heading.
    title: String,
    /// As HTML.
    summary: String,
    sheet: Sheet,
    /// Where the rest is.
    others: String,
}

/// The tables of every case of which anything was sampled.
pub fn told(report: &Report) -> Vec<Told> {
    let some = |case: &&CaseReport| !(case.telemetry.signals.is_empty() && case.telemetry.others.is_empty());
    let tables = |case: &CaseReport| {
        let html = case.id.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
        let summary = format!("<code>{}</code>", plain(&html));
        Told { title: code(&case.id), summary, sheet: sheet(case), others: others(case) }
    };
    report.cases.iter().filter(some).map(tables).collect()
}

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
pub fn sheet(case: &CaseReport) -> Sheet {
    let row = |(signal, own): (&Signal, &SignalStat)| {
        let figures = STATS.iter().map(|stat| shown(*signal, own, *stat));
        [code(signal.name()), own.n.to_string()].into_iter().chain(figures).collect()
    };
    Sheet::new(&HEADS, case.telemetry.signals.iter().map(row).collect())
}

/// A statistic of a signal in its unit.
pub fn shown(signal: Signal, own: &SignalStat, stat: Stat) -> String {
    own.at(stat).map_or_else(|| ABSENT.to_owned(), |seen| known(seen, signal.unit()))
}

/// What is known of a figure, in its unit: `≤ 300 ms`.
pub fn known(seen: Seen, unit: Unit) -> String {
    format!("{}{}", seen.sign(), value(seen.number(), unit))
}

/// The client's TTFT beside the server's own, of every case that has both.
pub fn beside(report: &Report) -> Sheet {
    let heads = ["Case", "Time to first token", ">mean", ">p50", ">p95", ">p99"];
    let rows = report.cases.iter().flat_map(|case| {
        apart(case).into_iter().map(move |part| {
            let figures = part.figures.map(|figure| figure.map_or_else(String::new, |figure| known(figure, Unit::Millis)));
            [code(&case.id), part.name.to_owned()].into_iter().chain(figures).collect()
        })
    });
    Sheet::new(&heads, rows.collect())
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
            [only] if cases.len() == 1 => format!("{word} {}{unit} (max {most})", shown(*signal, only, Stat::Mean)),
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
    fn tables_are_as_wide_as_their_heads() {
        let report = report_of(vec![observed(), case(4)], Default::default(), 0);
        for sheet in [sheet(&observed()), beside(&report)] {
            assert!(!sheet.rows.is_empty() && sheet.rows.iter().all(|row| row.len() == sheet.head.len()), "{:?}", sheet.head);
        }
        let queue = sheet(&observed()).rows.into_iter().find(|row| row[0] == "`server.queue_time`").unwrap();
        assert_eq!(queue[1..], ["240", "22 ms", "≤ 300 ms", "435 ms", "≥ 480 ms", "n/a", "n/a"]);
        assert_eq!(others(&observed()), "2 more series, by their own names, are in results.json and telemetry.parquet.");
        assert_eq!(others(&case(4)), "");
        assert!(sheet(&case(4)).rows.is_empty() && beside(&sweep(2)).rows.is_empty());
    }
}
