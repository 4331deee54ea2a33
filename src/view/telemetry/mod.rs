//! What was sampled beside the requests, in every form but pictures.

mod ttft;

pub use ttft::{apart, remarks};

use crate::model::metric::Stat;
use crate::model::report::{CaseReport, Report};
use crate::model::signal::Signal;
use crate::model::telemetry::SignalStat;
use crate::model::units::Unit;
use crate::view::escape::code;
use crate::view::format::{ABSENT, optional, plain, value};
use crate::view::sheet::Sheet;
use serde::Serialize;
use serde_json::{Map, Value, json};

/// The statistics of every table, with the signs of a table of numbers.
pub const HEADS: [&str; 8] = ["Signal", ">n", ">mean", ">p50", ">p95", ">p99", ">min", ">max"];

/// The statistics behind those heads, but for the count.
pub const STATS: [Stat; 6] = [Stat::Mean, Stat::Quantile(0.50), Stat::Quantile(0.95), Stat::Quantile(0.99), Stat::Min, Stat::Max];

/// The tables of a case.
#[derive(Serialize)]
pub struct Told {
    /// As a heading.
    title: String,
    /// As HTML.
    summary: String,
    sheet: Sheet,
    others: Sheet,
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
            json!({
                "unit": unit, "n": own.n, "mean": own.mean, "sd": own.sd, "min": own.min, "max": own.max,
                "p50": own.at(Stat::Quantile(0.50)), "p95": own.at(Stat::Quantile(0.95)), "p99": own.at(Stat::Quantile(0.99)),
            })
        });
        (signal.name().to_owned(), json!(told))
    };
    let other = |(name, own): (&String, &SignalStat)| {
        (name.clone(), json!({ "n": own.n, "mean": own.mean, "min": own.min, "max": own.max }))
    };
    let mut all: Map<String, Value> = Signal::ALL.iter().map(signal).collect();
    all.insert("other".to_owned(), Value::Object(telemetry.others.iter().map(other).collect()));
    all.insert("notes".to_owned(), json!(telemetry.notes));
    Value::Object(all)
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
    optional(own.at(stat), signal.unit())
}

/// The client's TTFT beside the server's own, of every case that has both.
pub fn beside(report: &Report) -> Sheet {
    let heads = ["Case", "Time to first token", ">mean", ">p50", ">p95", ">p99"];
    let rows = report.cases.iter().flat_map(|case| {
        apart(case).into_iter().map(move |part| {
            let figures = part.figures.map(|figure| figure.map_or_else(String::new, |figure| value(figure, Unit::Millis)));
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

/// The other series of a case, for a reader who looks for them.
pub fn others(case: &CaseReport) -> Sheet {
    let row = |(name, own): (&String, &SignalStat)| {
        let figures =
            [own.mean, own.min, own.max].map(|figure| figure.map_or_else(|| ABSENT.to_owned(), |own| value(own, Unit::Count)));
        [code(name), own.n.to_string()].into_iter().chain(figures).collect()
    };
    Sheet::new(&["Name", ">values", ">mean", ">min", ">max"], case.telemetry.others.iter().map(row).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::fixture::{case, observed, report_of, sweep};

    #[test]
    fn every_signal_has_its_key_and_what_is_missing_is_null() {
        let told = json(&observed());
        let keys: Vec<&str> = told.as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(keys[..keys.len() - 2], Signal::ALL.iter().map(|signal| signal.name()).collect::<Vec<_>>());
        assert_eq!(told["server.kv_cache_usage"]["unit"], "share");
        assert_eq!((&told["server.ttft"]["max"], &told["server.ttft"]["n"]), (&Value::Null, &json!(240)));
        assert_eq!(told["server.preemptions"], Value::Null);
        assert_eq!(told["other"]["vllm:lora{a=b}"], json!({ "n": 2, "mean": 1.5, "min": 1.0, "max": 2.0 }));
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
        for sheet in [sheet(&observed()), others(&observed()), beside(&report)] {
            assert!(!sheet.rows.is_empty() && sheet.rows.iter().all(|row| row.len() == sheet.head.len()), "{:?}", sheet.head);
        }
        assert!(sheet(&case(4)).rows.is_empty() && beside(&sweep(2)).rows.is_empty());
    }
}
