//! What a model in this process told of itself and did, and the table of a `speed_benchmark`: as text cells and as JSON.

use crate::format::{ABSENT, bytes, millis, number, plain};
use crate::table::{Cell, Column, Row, Screen, Table};
use llmscen_analysis::batch_metrics;
use llmscen_core::local::LocalPart;
use llmscen_core::report::{CaseReport, Report, SpeedRow};
use llmscen_core::sample::Distribution;
use llmscen_core::units::Nanos;
use serde_json::{Value, json};

/// Bytes of a gigabyte, in which model cards state memory.
const GB: f64 = 1e9;

/// A case with its model.
type Own<'a> = (usize, &'a CaseReport, &'a LocalPart);

/// The cases whose model is in this process, with their places in the report.
fn own(report: &Report) -> impl Iterator<Item = Own<'_>> {
    report.cases.iter().enumerate().filter_map(|(index, case)| Some((index, case, case.local.first()?)))
}

/// The models, one row for each case.
pub(super) fn models(report: &Report) -> Table {
    let columns = vec![
        Column::text().documents("Case"),
        Column::text().documents("Model"),
        Column::text().documents("Architecture"),
        Column::number().documents("Parameters"),
        Column::text().documents("Numbers"),
        Column::text().documents("Device"),
        Column::text().documents("Attention"),
        Column::number().documents("Weights"),
        Column::number().documents("Read"),
        Column::number().documents("Converted"),
        Column::number().documents("Placed"),
    ];
    let row = |(index, case, part): Own<'_>| {
        let loaded = &part.loaded;
        let span = |span: Nanos| Cell::figure(millis(span.millis()), None::<f64>);
        let cells = vec![
            Cell::case(index, &case.id),
            Cell::code(&loaded.model),
            Cell::prose(&loaded.architecture),
            Cell::figure(parameters(loaded.parameters), None::<f64>),
            Cell::prose(&loaded.dtype),
            Cell::prose(&loaded.device),
            Cell::prose(&loaded.attention),
            Cell::figure(bytes(loaded.weight_bytes as f64), None::<f64>),
            span(loaded.read),
            span(loaded.convert),
            span(loaded.place),
        ];
        Row::new(cells).case(&case.id)
    };
    Table::new(columns, own(report).map(row).collect())
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

/// The measured batches, one row for each case that has any.
pub(super) fn batches(report: &Report) -> Table {
    let heads = [
        "Batches",
        "Requests",
        "Prompt tokens",
        "Output tokens",
        "Prefill p50, ms",
        "Prefill p99, ms",
        "Step p50, ms",
        "Step p90, ms",
        "Step p99, ms",
        "Step max, ms",
        "Prefill tok/s",
        "Decode tok/s",
        "Memory, last / peak",
        "Reserved memory, last / peak",
        "Device memory, last / peak",
    ];
    let numbers = heads.map(|head| Column::number().documents(head));
    let columns = std::iter::once(Column::text().documents("Case")).chain(numbers).collect();
    Table::new(columns, own(report).filter_map(|(index, case, _)| batch_row(index, case)).collect())
}

fn batch_row(index: usize, case: &CaseReport) -> Option<Row> {
    let worked = batch_metrics(&case.local)?;
    let quantile = |of: &Option<Distribution>, share| Cell::number(of.as_ref().and_then(|of| of.quantile(share)));
    let memory = |last: Option<u64>, peak: Option<u64>| match last.zip(peak) {
        Some((last, peak)) => Cell::figure(format!("{} / {}", bytes(last as f64), bytes(peak as f64)), peak as f64),
        None => Cell::number(None),
    };
    let cells = vec![
        Cell::case(index, &case.id),
        Cell::count(worked.batches),
        Cell::count(worked.rows),
        Cell::count(worked.prompt_tokens),
        Cell::count(worked.output_tokens),
        quantile(&worked.prefill_ms, 0.50),
        quantile(&worked.prefill_ms, 0.99),
        quantile(&worked.step_ms, 0.50),
        quantile(&worked.step_ms, 0.90),
        quantile(&worked.step_ms, 0.99),
        Cell::number(worked.step_ms.as_ref().map(|step| step.max)),
        Cell::number(worked.prefill_tps.0),
        Cell::number(worked.decode_tps.0),
        memory(Some(worked.memory.0), Some(worked.memory.1)),
        memory(worked.memory_reserved.0, worked.memory_reserved.1),
        memory(worked.device_memory.0, worked.device_memory.1),
    ];
    Some(Row::new(cells).case(&case.id))
}

/// The speeds of a `speed_benchmark`, one row for each case and length.
pub(super) fn speeds(report: &Report) -> Table {
    let columns = vec![
        Column::text().documents("Case").terminal("CASE", 0),
        Column::number().documents("Input length").terminal("INPUT LENGTH", 0),
        Column::number().documents("Speed (tokens/s)").terminal("SPEED (TOKENS/S)", 0),
        Column::number().documents("Memory (GB)").terminal("MEMORY (GB)", 0),
        Column::number().documents("Requests").terminal("REQUESTS", 1),
    ];
    let all = report.cases.iter().enumerate().flat_map(|(index, case)| case.speed.iter().map(move |row| (index, case, row)));
    let row = |(index, case, speed): (usize, &CaseReport, &SpeedRow)| {
        let decimals =
            |value: Option<f64>| Cell::figure(value.map_or_else(|| ABSENT.to_owned(), |value| format!("{value:.2}")), value);
        let cells = vec![
            Cell::case(index, &case.id),
            Cell::count(speed.prompt_tokens),
            decimals(speed.tokens_per_second),
            decimals(speed.memory.map(|memory| memory as f64 / GB)),
            Cell::count(speed.ok),
        ];
        Row::new(cells).case(&case.id)
    };
    Table::new(columns, all.map(row).collect())
}

/// What is said in the terminal: a line for each case whose model is in this process, then the speeds.
pub fn lines(report: &Report) -> Vec<String> {
    let figure = |raw: Option<f64>, unit: &str| raw.map_or_else(|| ABSENT.to_owned(), |raw| format!("{} {unit}", number(raw)));
    let line = |(_, case, part): Own<'_>| {
        let (loaded, did) = (&part.loaded, batch_metrics(&case.local)?);
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
    speeds(report).terminal(Screen { width, color })
}

/// A case's model in results.json; null where it is a server.
pub fn json(case: &CaseReport, distribution: impl Fn(&Distribution) -> Value) -> Value {
    let Some(part) = case.local.first() else { return Value::Null };
    let loaded = &part.loaded;
    let of = |own: &Option<Distribution>| own.as_ref().map(&distribution);
    let batches = batch_metrics(&case.local).map(|own| {
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
