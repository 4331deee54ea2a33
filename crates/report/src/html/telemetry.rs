//! The lines of the charts of what was sampled during a case.

use crate::html::series::{columns, highest};
use llmscen_core::report::CaseReport;
use llmscen_core::signal::Signal;
use llmscen_core::units::Unit;
use serde_json::{Value, json};

/// A picture: its title, its unit, and the signals that are its lines with a word for each.
type Drawn = (&'static str, &'static str, &'static [(Signal, &'static str)]);

/// The lines of the charts over time: signals of one picture and one unit together.
const PICTURES: [Drawn; 7] = [
    ("Requests in the server", "requests", &[(Signal::ServerRunning, "running"), (Signal::ServerWaiting, "waiting")]),
    ("KV cache in use", "%", &[(Signal::ServerKvCacheUsage, "KV cache")]),
    ("GPU busy", "%", &[(Signal::GpuUtilization, "processors"), (Signal::GpuMemoryUtilization, "memory interface")]),
    ("GPU memory", "GiB", &[(Signal::GpuMemory, "all"), (Signal::GpuMemoryServer, "of the server")]),
    ("GPU power", "W", &[(Signal::GpuPower, "power")]),
    ("CPU", "cores", &[(Signal::ProcessCpu, "the server"), (Signal::ToolCpu, "this tool")]),
    ("CPU of the machine", "%", &[(Signal::HostCpu, "the machine")]),
];

/// Those of them that were told, in numbers of their unit; shares as shares.
pub fn pictures(case: &CaseReport, room: usize) -> Value {
    let line = |(signal, word): &(Signal, &str)| {
        let points = case.telemetry.series.get(signal).filter(|points| !points.is_empty())?;
        let factor = match signal.unit() {
            Unit::Bytes => 1.0 / 1_073_741_824.0,
            _ => 1.0,
        };
        let points: Vec<(f64, f64)> = points.iter().map(|(at, value)| (*at, value * factor)).collect();
        Some(json!({ "label": word, "points": columns(&highest(&points, room)) }))
    };
    let picture = |(title, unit, signals): &Drawn| {
        let lines: Vec<Value> = signals.iter().filter_map(line).collect();
        (!lines.is_empty()).then(|| json!({ "title": title, "unit": unit, "lines": lines }))
    };
    json!(PICTURES.iter().filter_map(picture).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{case, observed};

    #[test]
    fn lines_are_in_the_unit_of_their_picture() {
        let told = pictures(&observed(), 200);
        assert_eq!(told.as_array().unwrap().len(), 7);
        let (memory, power) = (&told[3], &told[4]);
        assert_eq!((&memory["unit"], &memory["lines"][0]["points"][1][0]), (&json!("GiB"), &json!(61)));
        assert_eq!((&power["title"], &power["lines"][0]["points"][1][0]), (&json!("GPU power"), &json!(540)));
        assert_eq!(pictures(&case(4), 200), json!([]));
    }
}
