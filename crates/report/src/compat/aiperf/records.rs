//! profile_export.jsonl: a line per request that was sent.

use crate::ViewError;
use crate::compat::Measured;
use crate::compat::aiperf::metrics::PER_REQUEST;
use llmscen_analysis::TimedRequest;
use llmscen_core::outcome::FailureKind;
use serde_json::{Map, Value, json};

/// Who sent and who reckoned, which a record must name.
const WORKER: &str = "llmscen";

/// The lines. A request that was never sent has no instants, and no line.
pub(super) fn lines(case: &Measured<'_>) -> Result<Vec<u8>, ViewError> {
    let mut out = Vec::new();
    for (row, sent) in case.rows.iter().filter_map(|row| Some((row, row.sent()?))) {
        serde_json::to_writer(&mut out, &record(case, row, case.unix_ns(sent)))?;
        out.push(b'\n');
    }
    Ok(out)
}

fn record(case: &Measured<'_>, row: &TimedRequest<'_>, start: u64) -> Value {
    let mut metrics = Map::new();
    if row.ok() {
        for (tag, _, unit, get) in PER_REQUEST {
            metrics.extend(get(row).map(|value| (tag.to_owned(), json!({ "value": value, "unit": unit }))));
        }
        let gaps = row.gaps();
        if !gaps.is_empty() {
            metrics.insert("inter_chunk_latency".into(), json!({ "value": gaps, "unit": "ms" }));
        }
    }
    let cancelled = matches!(row.failure(), Some(FailureKind::Cancelled | FailureKind::Abandoned));
    let mut record = json!({
        "metadata": {
            "session_num": row.seq(),
            "conversation_id": format!("{}-{}", row.round(), row.seq()),
            "turn_index": row.turn(),
            "credit_issued_ns": case.unix_ns(row.intended()),
            "request_start_ns": start,
            "request_end_ns": case.unix_ns(row.end()),
            "worker_id": WORKER,
            "record_processor_id": WORKER,
            "benchmark_phase": "profiling",
            "was_cancelled": cancelled,
        },
        "metrics": metrics,
    });
    if let (Some(kind), Some(record)) = (row.failure(), record.as_object_mut()) {
        record.insert("error".into(), json!({ "type": kind.name(), "message": row.message() }));
    }
    record
}
