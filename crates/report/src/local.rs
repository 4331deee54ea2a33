//! What a model in this process told of itself and did, and the table of a `speed_benchmark`: as text cells and as JSON.

use crate::escape::{code, prose};
use crate::format::{ABSENT, bytes, millis, number, plain};
use crate::sheet::Sheet;
use crate::table::{Column, Screen, Tint, render};
use llmscen_analysis::{Worked, worked};
use llmscen_core::local::{Loaded, LocalPart};
use llmscen_core::report::{CaseReport, Report, SpeedRow};
use llmscen_core::sample::Distribution;
use serde::Serialize;
use serde_json::{Value, json};

/// Heads of the table of models.
pub const MODELS: [&str; 11] = [
    "Case",
    "Model",
    "Architecture",
    ">Parameters",
    "Numbers",
    "Device",
    "Attention",
    ">Weights",
    ">Read",
    ">Converted",
    ">Placed",
];
/// Heads of the table of batches.
pub const BATCHES: [&str; 16] = [
    "Case",
    ">Batches",
    ">Requests",
    ">Prompt tokens",
    ">Output tokens",
    ">Prefill p50, ms",
    ">Prefill p99, ms",
    ">Step p50, ms",
    ">Step p90, ms",
    ">Step p99, ms",
    ">Step max, ms",
    ">Prefill tok/s",
    ">Decode tok/s",
    ">Memory, last / peak",
    ">Reserved memory, last / peak",
    ">Device memory, last / peak",
];
/// Heads of the table of speeds.
pub const SPEEDS: [&str; 5] = ["Case", ">Input length", ">Speed (tokens/s)", ">Memory (GB)", ">Requests"];
/// Bytes of a gigabyte, in which model cards state memory.
const GB: f64 = 1e9;

/// A case with its model.
type Own<'a> = (usize, &'a CaseReport, &'a LocalPart);

/// The cases whose model is in this process, with their places in the report.
fn own(report: &Report) -> impl Iterator<Item = Own<'_>> {
    report.cases.iter().enumerate().filter_map(|(index, case)| Some((index, case, case.local.first()?)))
}

/// The cells of a model, but for its case.
pub fn model_cells(loaded: &Loaded) -> Vec<String> {
    let span = |span: llmscen_core::units::Nanos| millis(span.millis());
    vec![
        loaded.model.clone(),
        loaded.architecture.clone(),
        parameters(loaded.parameters),
        loaded.dtype.clone(),
        loaded.device.clone(),
        loaded.attention.clone(),
        bytes(loaded.weight_bytes as f64),
        span(loaded.read),
        span(loaded.convert),
        span(loaded.place),
    ]
}

/// `7.62 B`, `494 M`, `1.2 M`.
fn parameters(count: u64) -> String {
    let count = count as f64;
    match count {
        1e9.. => format!("{} B", number(count / 1e9)),
        1e6.. => format!("{} M", number(count / 1e6)),
        _ => number(count),
    }
}

/// The figures of the batches, but for the case: what is shown, and its raw value.
pub fn batch_cells(worked: &Worked) -> Vec<(String, Option<f64>)> {
    let at = |of: &Option<Distribution>, share| of.as_ref().and_then(|of| of.quantile(share));
    let shown = |raw: Option<f64>| (raw.map_or_else(|| ABSENT.to_owned(), number), raw);
    let count = |count: u64| (count.to_string(), Some(count as f64));
    let memory = |last: Option<u64>, peak: Option<u64>| match last.zip(peak) {
        Some((last, peak)) => (format!("{} / {}", bytes(last as f64), bytes(peak as f64)), Some(peak as f64)),
        None => (ABSENT.to_owned(), None),
    };
    vec![
        count(worked.batches),
        count(worked.rows),
        count(worked.prompt_tokens),
        count(worked.output_tokens),
        shown(at(&worked.prefill_ms, 0.50)),
        shown(at(&worked.prefill_ms, 0.99)),
        shown(at(&worked.step_ms, 0.50)),
        shown(at(&worked.step_ms, 0.90)),
        shown(at(&worked.step_ms, 0.99)),
        shown(worked.step_ms.as_ref().map(|step| step.max)),
        shown(worked.prefill_tps.0),
        shown(worked.decode_tps.0),
        memory(Some(worked.memory.0), Some(worked.memory.1)),
        memory(worked.memory_reserved.0, worked.memory_reserved.1),
        memory(worked.device_memory.0, worked.device_memory.1),
    ]
}

/// The figures of one length, but for the case: what is shown, and its raw value.
pub fn speed_cells(row: &SpeedRow) -> Vec<(String, Option<f64>)> {
    let memory = row.memory.map(|memory| memory as f64 / GB);
    let shown = |raw: Option<f64>| (raw.map_or_else(|| ABSENT.to_owned(), |raw| format!("{raw:.2}")), raw);
    vec![
        (row.prompt_tokens.to_string(), Some(row.prompt_tokens as f64)),
        shown(row.tokens_per_second),
        shown(memory),
        (row.ok.to_string(), Some(row.ok as f64)),
    ]
}

/// The tables of a report.
#[derive(Serialize)]
pub struct Sheets {
    models: Sheet,
    batches: Sheet,
    speeds: Sheet,
}

/// The tables of a report.
pub fn sheets(report: &Report) -> Sheets {
    Sheets { models: models(report), batches: batches(report), speeds: speeds(report) }
}

/// The models, one row for each case.
fn models(report: &Report) -> Sheet {
    let rows = own(report).map(|(_, case, part)| {
        let cells = model_cells(&part.loaded);
        let model = cells.first().map(|model| code(model));
        let rest = cells.iter().skip(1).map(|cell| prose(cell));
        [code(&case.id)].into_iter().chain(model).chain(rest).collect()
    });
    Sheet::new(&MODELS, rows.collect())
}

/// What they did, one row for each case of which something was measured.
fn batches(report: &Report) -> Sheet {
    let rows = own(report).filter_map(|(_, case, _)| {
        let cells = batch_cells(&worked(&case.local)?).into_iter().map(|(shown, _)| shown);
        Some([code(&case.id)].into_iter().chain(cells).collect())
    });
    Sheet::new(&BATCHES, rows.collect())
}

/// The speeds of a `speed_benchmark`, one row for each case and length.
fn speeds(report: &Report) -> Sheet {
    let all = report.cases.iter().flat_map(|case| case.speed.iter().map(move |row| (case, row)));
    let rows = all.map(|(case, row)| {
        let cells = speed_cells(row).into_iter().map(|(shown, _)| shown);
        [code(&case.id)].into_iter().chain(cells).collect()
    });
    Sheet::new(&SPEEDS, rows.collect())
}

/// What is said in the terminal: a line for each case whose model is in this process, then the speeds.
pub fn lines(report: &Report) -> Vec<String> {
    let figure = |raw: Option<f64>, unit: &str| raw.map_or_else(|| ABSENT.to_owned(), |raw| format!("{} {unit}", number(raw)));
    let line = |(_, case, part): Own<'_>| {
        let (loaded, did) = (&part.loaded, worked(&case.local)?);
        let step = did.step_ms.as_ref().and_then(|step| step.quantile(0.50));
        let device = did.device_memory.1.map(|peak| format!(", {} on the device", bytes(peak as f64))).unwrap_or_default();
        let (prefill, decode) = (figure(did.prefill_tps.0, "tok/s"), figure(did.decode_tps.0, "tok/s"));
        Some(plain(&format!(
            "{}: {} ({}, {}): prefill {prefill}, decode {decode}, step p50 {}; memory {} at its peak{device}",
            case.id,
            loaded.model,
            loaded.dtype,
            loaded.device,
            step.map_or_else(|| ABSENT.to_owned(), millis),
            bytes(did.memory.1 as f64),
        )))
    };
    own(report).filter_map(line).collect()
}

/// The speeds of a `speed_benchmark` in the terminal; empty of other data. `width`: its columns, None where there is none.
pub fn speed_table(report: &Report, width: Option<usize>, color: bool) -> String {
    const COLUMNS: [Column; 5] = [
        Column::words("CASE", 0),
        Column::numbers("INPUT LENGTH", 0),
        Column::numbers("SPEED (TOKENS/S)", 0),
        Column::numbers("MEMORY (GB)", 0),
        Column::numbers("REQUESTS", 1),
    ];
    let all = report.cases.iter().flat_map(|case| case.speed.iter().map(move |row| (case, row)));
    let rows = all.map(|(case, row)| {
        let cells = speed_cells(row).into_iter().map(|(shown, _)| shown);
        [case.id.clone()].into_iter().chain(cells).map(|text| (text, Tint::None)).collect()
    });
    render(&COLUMNS, &rows.collect::<Vec<_>>(), Screen { width, color })
}

/// A case's model in results.json; null where it is a server.
pub fn json(case: &CaseReport, distribution: impl Fn(&Distribution) -> Value) -> Value {
    let Some(part) = case.local.first() else { return Value::Null };
    let loaded = &part.loaded;
    let of = |own: &Option<Distribution>| own.as_ref().map(&distribution);
    let batches = worked(&case.local).map(|own| {
        json!({
            "batches": own.batches,
            "requests": own.rows,
            "prompt_tokens": own.prompt_tokens,
            "padded_to": own.padded_to,
            "output_tokens": own.output_tokens,
            "prefill_ms": of(&own.prefill_ms),
            "step_ms": of(&own.step_ms),
            "prefill_tps": own.prefill_tps.0,
            "prefill_tps_by_batch": of(&own.prefill_tps.1),
            "decode_tps": own.decode_tps.0,
            "decode_tps_by_batch": of(&own.decode_tps.1),
            "memory": own.memory.0,
            "memory_peak": own.memory.1,
            "memory_reserved": own.memory_reserved.0,
            "memory_reserved_peak": own.memory_reserved.1,
            "device_memory": own.device_memory.0,
            "device_memory_peak": own.device_memory.1,
        })
    });
    json!({
        "model": loaded.model,
        "architecture": loaded.architecture,
        "parameters": loaded.parameters,
        "dtype": loaded.dtype,
        "device": loaded.device,
        "attention": loaded.attention,
        "weight_bytes": loaded.weight_bytes,
        "read_ms": loaded.read.millis(),
        "convert_ms": loaded.convert.millis(),
        "place_ms": loaded.place.millis(),
        "measured": batches,
    })
}

/// The speeds of a `speed_benchmark` in results.json.
pub fn speed_json(case: &CaseReport) -> Vec<Value> {
    let row = |row: &SpeedRow| {
        let of = row.memory.map(|_| if row.of_device { "device" } else { "process" });
        json!({ "prompt_tokens": row.prompt_tokens, "ok": row.ok, "output_tps": row.tokens_per_second, "memory": row.memory, "memory_of": of })
    };
    case.speed.iter().map(row).collect()
}

#[cfg(test)]
mod tests;
