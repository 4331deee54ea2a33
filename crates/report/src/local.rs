//! Local models: what was loaded, the measured batches, and the table of a `speed_benchmark`; as tables and in
//! results.json.

use crate::format::{ABSENT, bytes, millis, number, plain};
use crate::table::{Cell, Column, Row, Screen, Table};
use llmscen_analysis::batch_metrics;
use llmscen_core::local::LocalRound;
use llmscen_core::report::{CaseReport, Report, SpeedRow};
use llmscen_core::sample::SummaryStatistics;
use llmscen_core::units::Nanos;
use serde_json::{Value, json};

/// Bytes of a gigabyte, in which model cards state memory.
const GB: f64 = 1e9;

/// A case with a local model, and its index in the report.
type LocalCase<'a> = (usize, &'a CaseReport, &'a LocalRound);

fn local_cases(report: &Report) -> impl Iterator<Item = LocalCase<'_>> {
    report
        .cases
        .iter()
        .enumerate()
        .filter_map(|(index, case)| Some((index, case, case.local.first()?)))
}

/// The models, one row per case.
pub(super) fn models(report: &Report) -> Table {
    let columns = vec![
        Column::text().documents("Case"),
        Column::text().documents("Model"),
        Column::text().documents("Architecture"),
        Column::number().documents("Parameters"),
        Column::text().documents("Compute dtype"),
        Column::text().documents("Device"),
        Column::text().documents("Attention"),
        Column::number().documents("Weights"),
        Column::number().documents("Read files"),
        Column::number().documents("Convert dtype"),
        Column::number().documents("Copy to device"),
    ];
    let row = |(index, case, part): LocalCase<'_>| {
        let loaded = &part.loaded;
        let duration = |duration: Nanos| Cell::figure(millis(duration.millis()), None::<f64>);
        let cells = vec![
            Cell::case(index, &case.id),
            Cell::code(&loaded.model),
            Cell::prose(&loaded.architecture),
            Cell::figure(parameters(loaded.parameters), None::<f64>),
            Cell::prose(&loaded.dtype),
            Cell::prose(&loaded.device),
            Cell::prose(&loaded.attention),
            Cell::figure(bytes(loaded.weight_bytes as f64), None::<f64>),
            duration(loaded.read),
            duration(loaded.convert),
            duration(loaded.place),
        ];
        Row::new(cells).case(&case.id)
    };
    Table::new(columns, local_cases(report).map(row).collect())
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

/// The measured batches, one row per case with any.
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
    let columns = std::iter::once(Column::text().documents("Case"))
        .chain(numbers)
        .collect();
    Table::new(
        columns,
        local_cases(report)
            .filter_map(|(index, case, _)| batch_row(index, case))
            .collect(),
    )
}

fn batch_row(index: usize, case: &CaseReport) -> Option<Row> {
    let measured = batch_metrics(&case.local)?;
    let quantile = |values: &Option<SummaryStatistics>, share| {
        Cell::number(values.as_ref().and_then(|it| it.quantile(share)))
    };
    let memory = |last: Option<u64>, peak: Option<u64>| match last.zip(peak) {
        Some((last, peak)) => Cell::figure(
            format!("{} / {}", bytes(last as f64), bytes(peak as f64)),
            peak as f64,
        ),
        None => Cell::number(None),
    };
    let cells = vec![
        Cell::case(index, &case.id),
        Cell::count(measured.batches),
        Cell::count(measured.rows),
        Cell::count(measured.prompt_tokens),
        Cell::count(measured.output_tokens),
        quantile(&measured.prefill_ms, 0.50),
        quantile(&measured.prefill_ms, 0.99),
        quantile(&measured.step_ms, 0.50),
        quantile(&measured.step_ms, 0.90),
        quantile(&measured.step_ms, 0.99),
        Cell::number(measured.step_ms.as_ref().map(|step| step.max)),
        Cell::number(measured.prefill_tps.0),
        Cell::number(measured.decode_tps.0),
        memory(Some(measured.memory.0), Some(measured.memory.1)),
        memory(measured.memory_reserved.0, measured.memory_reserved.1),
        memory(measured.device_memory.0, measured.device_memory.1),
    ];
    Some(Row::new(cells).case(&case.id))
}

/// The speeds of a `speed_benchmark`, one row per case and prompt length.
pub(super) fn speeds(report: &Report) -> Table {
    let columns = vec![
        Column::text().documents("Case").terminal("CASE", 0),
        Column::number()
            .documents("Input length")
            .terminal("INPUT LENGTH", 0),
        Column::number()
            .documents("Speed (tokens/s)")
            .terminal("SPEED (TOKENS/S)", 0),
        Column::number()
            .documents("Memory (GB)")
            .terminal("MEMORY (GB)", 0),
        Column::number()
            .documents("Requests")
            .terminal("REQUESTS", 1),
    ];
    let all = report
        .cases
        .iter()
        .enumerate()
        .flat_map(|(index, case)| case.speed.iter().map(move |row| (index, case, row)));
    let row = |(index, case, speed): (usize, &CaseReport, &SpeedRow)| {
        let decimals = |value: Option<f64>| {
            Cell::figure(
                value.map_or_else(|| ABSENT.to_owned(), |value| format!("{value:.2}")),
                value,
            )
        };
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

/// A line for each case with a local model, for a terminal.
pub fn terminal_lines(report: &Report) -> Vec<String> {
    let figure = |value: Option<f64>, unit: &str| {
        value.map_or_else(|| ABSENT.to_owned(), |it| format!("{} {unit}", number(it)))
    };
    let line = |(_, case, part): LocalCase<'_>| {
        let loaded = &part.loaded;
        let measured = batch_metrics(&case.local)?;
        let step = measured
            .step_ms
            .as_ref()
            .and_then(|step| step.quantile(0.50));
        let device = measured
            .device_memory
            .1
            .map(|peak| format!(", {} on the device", bytes(peak as f64)))
            .unwrap_or_default();
        let prefill = figure(measured.prefill_tps.0, "tok/s");
        let decode = figure(measured.decode_tps.0, "tok/s");
        Some(plain(&format!(
            "{}: {} ({}, {}): prefill {prefill}, decode {decode}, step p50 {}; peak memory {}{device}",
            case.id,
            loaded.model,
            loaded.dtype,
            loaded.device,
            step.map_or_else(|| ABSENT.to_owned(), millis),
            bytes(measured.memory.1 as f64),
        )))
    };
    local_cases(report).filter_map(line).collect()
}

/// The speeds of a `speed_benchmark` for a terminal; empty for other workloads. `width`: of the terminal in
/// characters; None: not a terminal.
pub fn speed_table(report: &Report, width: Option<usize>, color: bool) -> String {
    speeds(report).terminal(Screen { width, color })
}

/// The local model of a case in results.json; null for a server.
pub(crate) fn json(case: &CaseReport, distribution: impl Fn(&SummaryStatistics) -> Value) -> Value {
    let Some(part) = case.local.first() else {
        return Value::Null;
    };
    let loaded = &part.loaded;
    let values = |values: &Option<SummaryStatistics>| values.as_ref().map(&distribution);
    let batches = batch_metrics(&case.local).map(|measured| {
        json!({
            "batches": measured.batches,
            "requests": measured.rows,
            "prompt_tokens": measured.prompt_tokens,
            "padded_to": measured.padded_to,
            "output_tokens": measured.output_tokens,
            "prefill_ms": values(&measured.prefill_ms),
            "step_ms": values(&measured.step_ms),
            "prefill_tps": measured.prefill_tps.0,
            "prefill_tps_by_batch": values(&measured.prefill_tps.1),
            "decode_tps": measured.decode_tps.0,
            "decode_tps_by_batch": values(&measured.decode_tps.1),
            "memory": measured.memory.0,
            "memory_peak": measured.memory.1,
            "memory_reserved": measured.memory_reserved.0,
            "memory_reserved_peak": measured.memory_reserved.1,
            "device_memory": measured.device_memory.0,
            "device_memory_peak": measured.device_memory.1,
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
pub(crate) fn speed_json(case: &CaseReport) -> Vec<Value> {
    let row = |row: &SpeedRow| {
        let memory_of = row.memory.map(|_| {
            if row.device_memory {
                "device"
            } else {
                "process"
            }
        });
        json!({ "prompt_tokens": row.prompt_tokens, "ok": row.ok, "output_tps": row.tokens_per_second,
            "memory": row.memory, "memory_of": memory_of })
    };
    case.speed.iter().map(row).collect()
}

#[cfg(test)]
mod tests;
