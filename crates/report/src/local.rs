//! Local models: what was loaded, the measured batches, and the table of a `speed_benchmark`; as tables and in
//! results.json.

use crate::format::{ABSENT, bytes, millis, number, plain};
use crate::table::{Cell, Column, Columns, Screen, Table};
use llmscen_analysis::{BatchMetrics, batch_metrics};
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
    let text = |head: &str| Column::text().documents(head);
    let number = |head: &str| Column::number().documents(head);
    let duration = |duration: Nanos| Cell::figure(millis(duration.millis()), None::<f64>);
    Columns::<LocalCase<'_>>::new()
        .add_case(text("Case"))
        .add(text("Model"), |(.., part)| Cell::code(&part.loaded.model))
        .add(text("Architecture"), |(.., part)| {
            Cell::prose(&part.loaded.architecture)
        })
        .add(number("Parameters"), |(.., part)| {
            Cell::figure(parameters(part.loaded.parameters), None::<f64>)
        })
        .add(text("Compute dtype"), |(.., part)| {
            Cell::prose(&part.loaded.dtype)
        })
        .add(text("Device"), |(.., part)| {
            Cell::prose(&part.loaded.device)
        })
        .add(text("Attention"), |(.., part)| {
            Cell::prose(&part.loaded.attention)
        })
        .add(number("Weights"), |(.., part)| {
            Cell::figure(bytes(part.loaded.weight_bytes as f64), None::<f64>)
        })
        .add(number("Read files"), |(.., part)| {
            duration(part.loaded.read)
        })
        .add(number("Convert dtype"), |(.., part)| {
            duration(part.loaded.convert)
        })
        .add(number("Copy to device"), |(.., part)| {
            duration(part.loaded.place)
        })
        .table_by_case(local_cases(report))
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
    type Batches<'a> = (usize, &'a CaseReport, BatchMetrics);
    let measured = local_cases(report)
        .filter_map(|(index, case, _)| Some((index, case, batch_metrics(&case.local)?)));
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
    let shown = |head: &str| Column::number().documents(head);
    Columns::<Batches<'_>>::new()
        .add_case(Column::text().documents("Case"))
        .add(shown("Batches"), |(.., all)| Cell::count(all.batches))
        .add(shown("Requests"), |(.., all)| Cell::count(all.rows))
        .add(shown("Prompt tokens"), |(.., all)| {
            Cell::count(all.prompt_tokens)
        })
        .add(shown("Output tokens"), |(.., all)| {
            Cell::count(all.output_tokens)
        })
        .add(shown("Prefill p50, ms"), |(.., all)| {
            quantile(&all.prefill_ms, 0.50)
        })
        .add(shown("Prefill p99, ms"), |(.., all)| {
            quantile(&all.prefill_ms, 0.99)
        })
        .add(shown("Step p50, ms"), |(.., all)| {
            quantile(&all.step_ms, 0.50)
        })
        .add(shown("Step p90, ms"), |(.., all)| {
            quantile(&all.step_ms, 0.90)
        })
        .add(shown("Step p99, ms"), |(.., all)| {
            quantile(&all.step_ms, 0.99)
        })
        .add(shown("Step max, ms"), |(.., all)| {
            Cell::number(all.step_ms.as_ref().map(|step| step.max))
        })
        .add(shown("Prefill tok/s"), |(.., all)| {
            Cell::number(all.prefill_tps.0)
        })
        .add(shown("Decode tok/s"), |(.., all)| {
            Cell::number(all.decode_tps.0)
        })
        .add(shown("Memory, last / peak"), |(.., all)| {
            memory(Some(all.memory.0), Some(all.memory.1))
        })
        .add(shown("Reserved memory, last / peak"), |(.., all)| {
            memory(all.memory_reserved.0, all.memory_reserved.1)
        })
        .add(shown("Device memory, last / peak"), |(.., all)| {
            memory(all.device_memory.0, all.device_memory.1)
        })
        .table_by_case(measured)
}

/// The speeds of a `speed_benchmark`, one row per case and prompt length.
pub(super) fn speeds(report: &Report) -> Table {
    type Speed<'a> = (usize, &'a CaseReport, &'a SpeedRow);
    let speeds = report.cases.iter().enumerate().flat_map(|(index, case)| {
        let rows = case.speed.iter();
        rows.map(move |row| (index, case, row))
    });
    let decimals = |value: Option<f64>| {
        let text = value.map_or_else(|| ABSENT.to_owned(), |value| format!("{value:.2}"));
        Cell::figure(text, value)
    };
    let shown = |head: &str, rank| {
        Column::number()
            .documents(head)
            .terminal(&head.to_uppercase(), rank)
    };
    Columns::<Speed<'_>>::new()
        .add_case(Column::text().documents("Case").terminal("CASE", 0))
        .add(shown("Input length", 0), |(.., speed)| {
            Cell::count(speed.prompt_tokens)
        })
        .add(shown("Speed (tokens/s)", 0), |(.., speed)| {
            decimals(speed.tokens_per_second)
        })
        .add(shown("Memory (GB)", 0), |(.., speed)| {
            decimals(speed.memory.map(|memory| memory as f64 / GB))
        })
        .add(shown("Requests", 1), |(.., speed)| Cell::count(speed.ok))
        .table_by_case(speeds)
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
