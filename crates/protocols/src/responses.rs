//! OpenAI responses.

use crate::accumulator::{Accumulator, ToolCallText, finish};
use crate::content_kind::ContentKind;
use crate::decoder::{Assembly, decoder_for};
use crate::error::error_text;
use crate::framing::Event;
use crate::raw_json::{
    Raw, arguments_text, decode_failure, decode_string, is_error, is_filled, parse_count,
};
use crate::usage::parse_timings;
use crate::{DecodeOptions, Decoder, Events, Protocol, Reply};
use llmscen_core::outcome::{Failure, FailureKind, Finish};
use llmscen_core::request::Framing;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use std::borrow::Cow;

/// `POST /v1/responses`.
pub struct Responses;

impl Protocol for Responses {
    /// The final event has token counts without a request field.
    fn body(&self, stream: bool) -> Value {
        json!({ "model": "{{ model }}", "input": "{{ messages }}", "stream": stream })
    }

    fn decoder(&self, shape: Framing, options: &DecodeOptions) -> Box<dyn Decoder> {
        decoder_for(shape, Steps::new(options))
    }
}

/// One event.
#[derive(Deserialize)]
struct Step<'a> {
    #[serde(borrow, rename = "type")]
    kind: Raw<'a>,
    #[serde(borrow)]
    delta: Raw<'a>,
    #[serde(borrow)]
    partial_image_b64: Raw<'a>,
    #[serde(borrow)]
    output_index: Raw<'a>,
    #[serde(borrow)]
    item: Raw<'a>,
    #[serde(borrow)]
    response: Raw<'a>,
    #[serde(borrow)]
    error: Raw<'a>,
    #[serde(borrow)]
    timings: Raw<'a>,
}

/// A response: in the first events little more than the id; complete in the final event and in a reply.
#[derive(Deserialize)]
struct Response<'a> {
    #[serde(borrow)]
    id: Raw<'a>,
    #[serde(borrow)]
    status: Raw<'a>,
    #[serde(borrow)]
    incomplete_details: Option<Incomplete<'a>>,
    #[serde(borrow)]
    output: Raw<'a>,
    #[serde(borrow)]
    usage: Raw<'a>,
    #[serde(borrow)]
    error: Raw<'a>,
    #[serde(borrow)]
    timings: Raw<'a>,
}

#[derive(Deserialize)]
struct Incomplete<'a> {
    #[serde(borrow)]
    reason: Raw<'a>,
}

/// The state of one response.
#[derive(Debug, Default)]
pub(crate) struct Steps {
    accumulator: Accumulator,
    /// The characters of the names of calls are counted.
    has_names: bool,
    /// The finish reason, once the final event was received.
    pub end: Option<String>,
}

impl Steps {
    /// A response before its first event.
    pub fn new(options: &DecodeOptions) -> Steps {
        Steps {
            accumulator: Accumulator::new(options),
            ..Steps::default()
        }
    }

    /// Records content that is no text.
    pub fn receive_content(&mut self) {
        self.accumulator.receive_content();
    }

    /// `name`: that of the event, for servers whose messages have no `type`.
    fn step(
        &mut self,
        step: &Step,
        name: &str,
        json: &[u8],
        events: &mut Events,
    ) -> Result<(), Failure> {
        let kind = step.kind.map_or(Cow::Borrowed(name), decode_string);
        if is_error(step.error) || kind == "error" {
            return Err(Failure::new(FailureKind::StreamError, error_text(json)));
        }
        if let Some(raw) = step.timings {
            self.accumulator.server_times = parse_timings(raw);
        }
        match kind.strip_prefix("response.").unwrap_or(&kind) {
            word @ ("completed" | "incomplete" | "failed" | "cancelled") => {
                events.done = true;
                self.conclude(word, step.response, json)
            }
            "output_item.added" | "output_item.done" => {
                let item = step
                    .item
                    .and_then(|raw| serde_json::from_str(raw.get()).ok());
                let Some(call) = item.as_ref().and_then(parse_call) else {
                    return Ok(());
                };
                if kind.ends_with("added") {
                    self.accumulator.count_characters(&call.name);
                    self.has_names = true;
                }
                match self.accumulator.keeps_text() {
                    true => self.open(parse_count(step.output_index), call),
                    false => Ok(()),
                }
            }
            // The events before the first delta contain the response so far.
            word => {
                let piece = step
                    .delta
                    .filter(|_| word.ends_with(".delta"))
                    .or(step.partial_image_b64);
                if let Some(raw) = piece.filter(|raw| is_full(raw)) {
                    self.add_piece(word, parse_count(step.output_index), raw)?;
                    // Usage so far, of servers that report it with every event.
                    let usage = step.response.and_then(response_usage);
                    self.accumulator.add_usage_json(Some(0), usage)
                } else if let Some(raw) = step.response {
                    let id = read::<Response>(raw.get(), json)?.id;
                    self.accumulator.set_id(id);
                    Ok(())
                } else {
                    Ok(())
                }
            }
        }
    }

    /// Reads the response of the final event or of a reply; `word` is the event type.
    pub fn conclude(&mut self, word: &str, raw: Raw, json: &[u8]) -> Result<(), Failure> {
        let raw = raw.map_or("{}", RawValue::get);
        let response: Response = read(raw, json)?;
        self.accumulator.set_id(response.id);
        self.accumulator.add_usage_json(None, response.usage)?;
        if let Some(raw) = response.timings {
            self.accumulator.server_times = parse_timings(raw);
        }
        if let (false, Some(output)) = (self.accumulator.has_content(), response.output) {
            self.take_output(&serde_json::from_str(output.get()).unwrap_or_default())?;
        }
        // vLLM sends `response.completed` for a response with status `incomplete`.
        let status = response.status.map(decode_string).unwrap_or_default();
        let status = match &*status {
            "" | "queued" | "in_progress" if !word.is_empty() => word,
            status => status,
        };
        match status {
            "failed" | "cancelled" => {
                let words = response
                    .error
                    .map(|error| error_text(error.get().as_bytes()));
                let words = words.unwrap_or_else(|| format!("the server finished with `{status}`"));
                Err(Failure::new(FailureKind::StreamError, words))
            }
            "queued" | "in_progress" => Err(Failure::new(
                FailureKind::Truncated,
                format!("the response is not complete, but `{status}`"),
            )),
            _ => {
                let reason = response
                    .incomplete_details
                    .and_then(|details| details.reason)
                    .map(decode_string);
                self.end =
                    Some(reason.map_or_else(|| status.to_owned(), |reason| reason.into_owned()));
                Ok(())
            }
        }
    }

    /// Adds one piece of content, by its event type.
    fn add_piece(&mut self, word: &str, index: Option<u64>, raw: &RawValue) -> Result<(), Failure> {
        let account = &mut self.accumulator;
        match word {
            "output_text.delta"
            | "text.delta"
            | "audio.transcript.delta"
            | "output_audio_transcript.delta" => {
                account.add_text(0, ContentKind::Answer, Some(raw))
            }
            "refusal.delta" => account.add_text(0, ContentKind::Refusal, Some(raw)),
            _ if word.starts_with("reasoning_summary") => {
                account.add_text(0, ContentKind::Summary, Some(raw))
            }
            _ if word.starts_with("reasoning") => {
                account.add_text(0, ContentKind::Reasoning, Some(raw))
            }
            "audio.delta" | "output_audio.delta" => account.mark(0, ContentKind::Media),
            _ if word.ends_with(".delta") => {
                let text = arguments_text(raw);
                account.mark_call(0, &text)?;
                if account.keeps_text() {
                    self.call(index, false)?.input.push_str(&text);
                }
                Ok(())
            }
            _ => account.mark(0, ContentKind::Media),
        }
    }

    /// Collects the fields of a call that deltas do not have: its name, and its arguments if there were no deltas.
    fn open(&mut self, index: Option<u64>, item: ToolCallText) -> Result<(), Failure> {
        let calls = &self.accumulator.choice(0)?.text.calls;
        let known = calls
            .values()
            .any(|call| !call.id.is_empty() && call.id == item.id);
        let call = self.call(index, !known)?;
        let input = if call.input.is_empty() {
            item.input
        } else {
            std::mem::take(&mut call.input)
        };
        *call = ToolCallText { input, ..item };
        Ok(())
    }

    /// The call with this index; without an index, the latest or a new one.
    fn call(&mut self, index: Option<u64>, new: bool) -> Result<&mut ToolCallText, Failure> {
        let text = &mut self.accumulator.choice(0)?.text;
        let latest = text.latest_call().map(|(latest, _)| latest);
        let next = latest.map_or(0, |latest| {
            if new {
                latest.saturating_add(1)
            } else {
                latest
            }
        });
        let index = index
            .and_then(|index| u32::try_from(index).ok())
            .unwrap_or(next);
        Ok(text.calls.entry(index).or_default())
    }

    /// Reads the output of a reply, or of a final event without preceding deltas.
    fn take_output(&mut self, output: &Value) -> Result<(), Failure> {
        let account = &mut self.accumulator;
        for (index, item) in (0..).zip(output.as_array().into_iter().flatten()) {
            let kind = match item["type"] == "reasoning" {
                true => ContentKind::Reasoning,
                false => ContentKind::Answer,
            };
            let pieces = [&item["summary"], &item["content"]]
                .into_iter()
                .filter_map(Value::as_array)
                .flatten();
            for piece in pieces {
                let text = piece["text"].as_str().or(piece["transcript"].as_str());
                account.add_str(0, kind, text.unwrap_or_default())?;
                let refusal = piece["refusal"].as_str().unwrap_or_default();
                account.add_str(0, ContentKind::Refusal, refusal)?;
            }
            if item["result"].as_str().is_some_and(|data| !data.is_empty()) {
                account.mark(0, ContentKind::Media)?;
            }
            if let Some(call) = parse_call(item) {
                if !call.name.is_empty() || !call.input.is_empty() {
                    if !self.has_names {
                        account.count_characters(&call.name);
                    }
                    account.mark_call(0, &call.input)?;
                }
                if account.keeps_text() {
                    account.choice(0)?.text.calls.insert(index, call);
                }
            }
        }
        Ok(())
    }
}

/// The token counts in the response of an event before the final one.
fn response_usage(raw: &RawValue) -> Raw<'_> {
    serde_json::from_str::<Response>(raw.get()).ok()?.usage
}

/// Reads an item that is a call.
fn parse_call(item: &Value) -> Option<ToolCallText> {
    let kind = item["type"]
        .as_str()
        .filter(|kind| kind.ends_with("_call"))?;
    let text = |key: &str| item[key].as_str().unwrap_or_default().to_owned();
    let action = Some(&item["action"])
        .filter(|action| action.is_object())
        .map(Value::to_string);
    let written = ["arguments", "input", "code"]
        .into_iter()
        .map(text)
        .find(|text| !text.is_empty());
    let input = written.or(action).unwrap_or_default();
    Some(ToolCallText {
        kind: kind.to_owned(),
        id: text("call_id"),
        name: text("name"),
        input,
    })
}

/// A call in the input format of the next turn; calls that the server executed are not sent back.
fn call_json(call: ToolCallText) -> Option<Value> {
    let input = match call.kind.as_str() {
        "function_call" => "arguments",
        "custom_tool_call" => "input",
        _ => return None,
    };
    Some(json!({ "type": call.kind, "call_id": call.id, "name": call.name, input: call.input }))
}

/// Whether it is a non-empty text, list or object.
fn is_full(raw: &RawValue) -> bool {
    is_filled(raw) && raw.get().starts_with(['"', '[', '{'])
}

fn read<'a, T: Deserialize<'a>>(text: &'a str, json: &[u8]) -> Result<T, Failure> {
    serde_json::from_str(text).map_err(|error| decode_failure(&error, json))
}

impl Assembly for Steps {
    /// The final event is the end marker, which a complete stream needs. No recorded server sends `[DONE]`.
    fn event(&mut self, event: Event<'_>, events: &mut Events) -> Result<(), Failure> {
        if event.data == b"[DONE]" {
            events.done = true;
            return Ok(());
        }
        let text = String::from_utf8_lossy(event.data);
        let name = String::from_utf8_lossy(event.name);
        let step: Step = read(&text, event.data)?;
        let added = self.step(&step, &name, event.data, events);
        self.accumulator.emit_pending(events);
        added
    }

    fn document(&mut self, body: &[u8]) -> Result<(), Failure> {
        let text = String::from_utf8_lossy(body);
        let raw: &RawValue = read(&text, body)?;
        let response: Response = read(raw.get(), body)?;
        match response.output {
            _ if is_error(response.error) => {
                Err(Failure::new(FailureKind::StreamError, error_text(body)))
            }
            None => Err(Failure::new(FailureKind::Decode, "the reply has no output")),
            Some(_) => self.conclude("", Some(raw), body),
        }
    }

    fn ending(&self, _streamed: bool) -> Result<Finish, Failure> {
        match &self.end {
            None => Err(Failure::new(
                FailureKind::Truncated,
                "the stream ended before its final event",
            )),
            Some(reason) => finish(Some(reason), self.accumulator.has_content()),
        }
    }

    fn close(&self, events: &mut Events) {
        self.accumulator.close(events);
    }

    fn reply(self, end: Result<Finish, Failure>) -> Reply {
        self.accumulator.into_reply(end, call_json)
    }
}

#[cfg(test)]
mod tests;
