//! The layout `otel`: JSON lines of OpenTelemetry spans, of the OTLP file exporter or one span per line.
//!
//! A span with input tokens is a request, unless it is that of an agent or workflow, which has the sums of its
//! requests. Names of attributes: OpenTelemetry semantic conventions for generative AI.

use super::layout::{
    Entry, LoggedRequest, SessionFields, check_tokens, invalid_time, parse_date, text_of,
};
use super::sessions::{self, LogTime};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use std::ops::Range;

/// Operations of one request; a span without operation may be one.
const REQUESTS: [&str; 3] = ["chat", "text_completion", "generate_content"];

/// A line of the OTLP file exporter.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Export<'a> {
    #[serde(borrow)]
    resource_spans: Vec<ResourceSpans<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ResourceSpans<'a> {
    #[serde(borrow, default)]
    scope_spans: Vec<ScopeSpans<'a>>,
}

#[derive(Deserialize)]
struct ScopeSpans<'a> {
    #[serde(borrow, default)]
    spans: Vec<&'a RawValue>,
}

/// A span, with the names of OTLP or of the console exporters.
#[derive(Deserialize)]
struct Span {
    #[serde(alias = "traceId")]
    trace_id: Option<String>,
    #[serde(alias = "spanId")]
    span_id: Option<String>,
    context: Option<Context>,
    #[serde(alias = "parentSpanId", alias = "parent_span_id")]
    parent_id: Option<String>,
    #[serde(alias = "startTimeUnixNano", alias = "start_time_unix_nano")]
    start_time: Value,
    #[serde(alias = "endTimeUnixNano", alias = "end_time_unix_nano")]
    end_time: Value,
    #[serde(default)]
    attributes: Value,
}

#[derive(Deserialize)]
struct Context {
    trace_id: String,
    span_id: String,
}

/// The spans of a line.
///
/// # Errors
/// The line is no JSON, or not a line of the exporter.
pub fn spans(line: &str) -> Result<Vec<&str>, String> {
    if !line.contains("\"resourceSpans\"") {
        return Ok(vec![line]);
    }
    let export: Export<'_> = serde_json::from_str(line).map_err(|error| error.to_string())?;
    let scopes = export
        .resource_spans
        .into_iter()
        .flat_map(|r| r.scope_spans);
    Ok(scopes
        .flat_map(|scope| scope.spans)
        .map(RawValue::get)
        .collect())
}

/// Parses the request of a span. None: the span is no request.
///
/// # Errors
/// The span or its lengths are invalid.
pub fn parse_request(text: &str) -> Result<Option<Entry<'_>>, String> {
    parse(text)?.entry()
}

/// Parses a span at this place of the log. A request with invalid lengths is none; the result has the problem.
///
/// # Errors
/// The span is invalid.
pub fn parse_span(
    text: &str,
    place: Range<usize>,
) -> Result<(sessions::Span, Option<String>), String> {
    let span = parse(text)?;
    let (trace, id) = match (&span.context, &span.trace_id, &span.span_id) {
        (Some(context), ..) => (context.trace_id.clone(), context.span_id.clone()),
        (None, Some(trace), Some(id)) => (trace.clone(), id.clone()),
        _ => return Err("the span has no `traceId` and `spanId`".into()),
    };
    let (request, problem) = match span.entry() {
        Ok(entry) => (entry, None),
        Err(problem) => (None, Some(problem)),
    };
    let request = request.and_then(|entry| {
        Some(sessions::TimedRequest {
            span: place.clone(),
            start: entry.at?,
            end: entry.place.end,
        })
    });
    let conversation = span.attribute(&["gen_ai.conversation.id"]);
    let span = sessions::Span {
        span: place,
        id,
        parent: span.parent_id.clone().filter(|parent| !parent.is_empty()),
        trace,
        conversation: conversation.map(|value| text_of(&value)),
        request,
    };
    Ok((span, problem))
}

fn parse(text: &str) -> Result<Span, String> {
    serde_json::from_str(text).map_err(|error| error.to_string())
}

impl Span {
    /// The first of these attributes that the span has.
    fn attribute(&self, names: &[&str]) -> Option<Value> {
        let find = |name: &&str| match &self.attributes {
            Value::Object(attributes) => attributes.get(*name).cloned(),
            Value::Array(attributes) => {
                let pair = attributes
                    .iter()
                    .find(|pair| pair.get("key").and_then(Value::as_str) == Some(name))?;
                // A value of OTLP is an object with its type as key.
                pair.get("value")?.as_object()?.values().next().cloned()
            }
            _ => None,
        };
        names.iter().find_map(find)
    }

    fn entry<'a>(&self) -> Result<Option<Entry<'a>>, String> {
        let operation = self.attribute(&["gen_ai.operation.name"]);
        let is_request = operation.is_none_or(|name| REQUESTS.contains(&text_of(&name).as_str()));
        let input = self.attribute(&["gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens"]);
        let Some(input) = input.filter(|_| is_request) else {
            return Ok(None);
        };
        let output = self
            .attribute(&[
                "gen_ai.usage.output_tokens",
                "gen_ai.usage.completion_tokens",
            ])
            .ok_or("the span has no `gen_ai.usage.output_tokens`")?;
        let start = time(&self.start_time)?;
        let end = time(&self.end_time)?;
        if end < start {
            return Err("the span ends before it starts".into());
        }
        let count = |value: &Value| value.as_u64().or_else(|| text_of(value).parse().ok());
        let model = self.attribute(&["gen_ai.request.model", "gen_ai.response.model"]);
        Ok(Some(Entry {
            at: Some(start),
            model: model.map(|model| text_of(&model)),
            request: LoggedRequest::Lengths {
                input: check_tokens(count(&input), "prompt", &input)?,
                output: check_tokens(count(&output), "output", &output)?,
                blocks: Vec::new(),
            },
            place: SessionFields {
                end: Some(end),
                ..SessionFields::default()
            },
        }))
    }
}

/// A time in nanoseconds since 1970 or as a date.
fn time(value: &Value) -> Result<LogTime, String> {
    let text = text_of(value);
    text.parse()
        .ok()
        .or_else(|| parse_date(&text))
        .ok_or_else(|| invalid_time(&text))
}
