//! The requests in benchmarks.json.

use crate::export::Measured;
use crate::export::guidellm::metrics::{STATUSES, inter_token_time, status, time_per_token};
use llmscen_analysis::TimedRequest;
use llmscen_core::metric::Metric;
use llmscen_core::units::Nanos;
use serde::Serialize;
use serde_json::{Value, json};

/// The requests of a case by status.
#[derive(Serialize)]
pub(super) struct Requests<'a> {
    successful: Vec<Request<'a>>,
    errored: Vec<Request<'a>>,
    incomplete: Vec<Request<'a>>,
    total: Option<()>,
}

/// A request. Unknown values are null.
#[derive(Serialize)]
struct Request<'a> {
    type_: &'static str,
    request_id: String,
    response_id: Option<&'a str>,
    request_args: Option<&'a str>,
    output: Option<&'a str>,
    info: Info<'a>,
    input_metrics: Usage,
    output_metrics: Usage,
    request_start_time: Option<f64>,
    request_end_time: f64,
    request_latency: Option<f64>,
    request_dispatch_delay: Option<f64>,
    request_scheduled_latency: Option<f64>,
    prompt_tokens: Option<u64>,
    cached_tokens: Option<u64>,
    output_tokens: Option<u64>,
    total_tokens: Option<u64>,
    time_to_first_token_ms: Option<f64>,
    time_per_output_token_ms: Option<f64>,
    inter_token_latency_ms: Option<f64>,
    tokens_per_second: Option<f64>,
    output_tokens_per_second: Option<f64>,
}

#[derive(Serialize)]
struct Info<'a> {
    request_id: String,
    conversation_id: String,
    turn_index: u32,
    status: &'static str,
    timings: Timings,
    error: Option<&'a str>,
}

#[derive(Serialize)]
struct Timings {
    targeted_start: f64,
    resolve_start: f64,
    request_start: Option<f64>,
    first_token_iteration: Option<f64>,
    last_token_iteration: Option<f64>,
    request_iterations: u64,
    token_iterations: u64,
    request_end: f64,
    resolve_end: f64,
}

#[derive(Serialize)]
struct Usage {
    text_tokens: Option<u64>,
    cached_tokens: Option<u64>,
}

/// All requests of a case.
pub(super) fn requests<'a>(case: &'a Measured<'_>) -> Requests<'a> {
    let [successful, incomplete, errored] = [0, 1, 2].map(|selected| {
        case.rows
            .iter()
            .filter(|row| status(row) == selected)
            .map(|row| request(case, row))
            .collect()
    });
    Requests {
        successful,
        errored,
        incomplete,
        total: None,
    }
}

fn request<'a>(case: &'a Measured<'_>, row: &'a TimedRequest<'_>) -> Request<'a> {
    let id = format!(
        "{}-{}-{}-{}",
        case.case.id,
        row.round(),
        row.seq(),
        row.turn()
    );
    let count = |tokens: Option<f64>| tokens.map(|tokens| tokens as u64);
    let secs = |metric: Metric| row.get(metric).map(|millis| millis / 1e3);
    let prompt = row.prompt_tokens();
    let output = row.output_tokens();
    let cached = row.get(Metric::CachedTokens);
    let total = (prompt.is_some() || output.is_some())
        .then(|| prompt.unwrap_or(0.0) + output.unwrap_or(0.0));
    let latency = secs(Metric::E2eService);
    let per_s = |tokens: Option<f64>| {
        tokens
            .zip(latency.filter(|&latency| latency > 0.0))
            .map(|(tokens, time)| tokens / time)
    };
    Request {
        type_: "generative_request_stats",
        response_id: None,
        request_args: None,
        output: None,
        input_metrics: Usage {
            text_tokens: count(prompt),
            cached_tokens: count(cached),
        },
        output_metrics: Usage {
            text_tokens: count(output),
            cached_tokens: None,
        },
        request_start_time: row.sent().map(|sent| case.unix_s(sent)),
        request_end_time: case.unix_s(row.end()),
        request_latency: latency,
        request_dispatch_delay: secs(Metric::ScheduleLag),
        request_scheduled_latency: secs(Metric::E2e),
        prompt_tokens: count(prompt),
        cached_tokens: count(cached),
        output_tokens: count(output),
        total_tokens: count(total),
        time_to_first_token_ms: row.get(Metric::TtftService),
        time_per_output_token_ms: time_per_token(row),
        inter_token_latency_ms: inter_token_time(row),
        tokens_per_second: per_s(total),
        output_tokens_per_second: per_s(output),
        info: info(case, row, &id),
        request_id: id,
    }
}

fn info<'a>(case: &'a Measured<'_>, row: &'a TimedRequest<'_>, id: &str) -> Info<'a> {
    const STATUS_NAMES: [&str; 3] = ["completed", "cancelled", "errored"];
    let at = |instant: Nanos| case.unix_s(instant);
    let start = at(row.sent().unwrap_or(row.intended()));
    Info {
        request_id: id.to_owned(),
        conversation_id: format!("{}-{}", row.round(), row.seq()),
        turn_index: row.turn(),
        status: STATUS_NAMES
            .get(status(row))
            .copied()
            .unwrap_or(STATUSES[2]),
        timings: Timings {
            targeted_start: at(row.intended()),
            resolve_start: start,
            request_start: row.sent().map(at),
            first_token_iteration: row.first_token().map(at),
            last_token_iteration: row.last_token().map(at),
            request_iterations: row.events(),
            token_iterations: row.events(),
            request_end: at(row.end()),
            resolve_end: at(row.end()),
        },
        error: row.failure().map(|kind| {
            if row.message().is_empty() {
                kind.name()
            } else {
                row.message()
            }
        }),
    }
}

/// The counters of GuideLLM's scheduler.
pub(super) fn scheduler_state(case: &Measured<'_>, totals: [usize; 3]) -> Value {
    let [successful, incomplete, errored] = totals;
    let (from, to) = case.bounds().unwrap_or_default();
    json!({
        "node_id": 0,
        "num_processes": 1,
        "start_time": case.unix_s(from),
        "end_time": case.unix_s(to),
        "start_requests_time": case.unix_s(from),
        "end_requests_time": case.unix_s(to),
        "created_requests": case.rows.len(),
        "queued_requests": 0,
        "pending_requests": 0,
        "processing_requests": 0,
        "processed_requests": case.rows.len(),
        "successful_requests": successful,
        "errored_requests": errored,
        "cancelled_requests": incomplete,
    })
}
