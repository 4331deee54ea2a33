//! OpenAI responses.

use crate::accumulator::{MessageText, ToolCallText, finish};
use crate::decoder::{Assembly, decoder_for};
use crate::error::error_text;
use crate::framing::Event;
use crate::raw_json::{Raw, decode_failure, decode_string, parse_count};
use crate::usage::{merge_latest, parse_timings, parse_usage};
use crate::{Decoder, Events, Protocol, Reply};
use llmscen_core::outcome::{Failure, FailureKind, Finish, ServerTimes, Usage};
use llmscen_core::request::Framing;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

/// `POST /v1/responses`.
pub struct Responses;

impl Protocol for Responses {
    /// The final event has token counts without a request field.
    fn body(&self, stream: bool) -> Value {
        json!({ "model": "{{ model }}", "input": "{{ messages }}", "stream": stream })
    }

    fn decoder(&self, shape: Framing, keep_text: bool) -> Box<dyn Decoder> {
        decoder_for(shape, Steps::new(keep_text))
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
    keep_text: bool,
    id: Option<String>,
    text: MessageText,
    content: bool,
    /// The finish reason, once the final event was received.
    pub end: Option<String>,
    usage: Usage,
    server: ServerTimes,
}

impl Steps {
    /// A response before its first event. `keep_text`: collect the generated text.
    pub fn new(keep_text: bool) -> Steps {
        Steps {
            keep_text,
            ..Steps::default()
        }
    }

    /// Records content that is no text.
    pub fn receive_content(&mut self) {
        self.content = true;
    }

    fn step(&mut self, step: &Step, json: &[u8], events: &mut Events) -> Result<(), Failure> {
        let kind = step.kind.map(decode_string).unwrap_or_default();
        if step.error.is_some() || kind == "error" {
            return Err(Failure::new(FailureKind::StreamError, error_text(json)));
        }
        if let Some(raw) = step.timings {
            self.server = parse_timings(raw);
        }
        match kind.strip_prefix("response.").unwrap_or(&kind) {
            word @ ("completed" | "incomplete" | "failed" | "cancelled") => {
                events.done = true;
                self.conclude(word, step.response, json)
            }
            "output_item.added" | "output_item.done" if self.keep_text => {
                self.open(parse_count(step.output_index), step.item);
                Ok(())
            }
            // The events before the first delta contain the response so far.
            word => {
                let piece = step
                    .delta
                    .filter(|_| word.ends_with(".delta"))
                    .or(step.partial_image_b64);
                if let Some(raw) = piece.filter(|raw| is_full(raw)) {
                    self.content = true;
                    match word.starts_with("reasoning") {
                        true => events.reasoning_token(0),
                        false => events.token(0),
                    }
                    self.keep(word, parse_count(step.output_index), raw);
                } else if let (None, Some(raw)) = (&self.id, step.response) {
                    self.id = read::<Response>(raw.get(), json)?
                        .id
                        .map(|id| decode_string(id).into_owned());
                }
                Ok(())
            }
        }
    }

    /// Reads the response of the final event or of a reply; `word` is the event type.
    pub fn conclude(&mut self, word: &str, raw: Raw, json: &[u8]) -> Result<(), Failure> {
        let raw = raw.map_or("{}", RawValue::get);
        let response: Response = read(raw, json)?;
        if let Some(id) = response.id {
            self.id = Some(decode_string(id).into_owned());
        }
        self.usage = merge_latest(
            self.usage,
            response.usage.map(parse_usage).unwrap_or_default(),
        );
        if let Some(raw) = response.timings {
            self.server = parse_timings(raw);
        }
        if let (false, Some(output)) = (self.content, response.output) {
            self.take_output(&serde_json::from_str(output.get()).unwrap_or_default());
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

    /// Collects one piece of text, by its event type.
    fn keep(&mut self, word: &str, index: Option<u64>, raw: &RawValue) {
        if !self.keep_text {
            return;
        }
        let text = decode_string(raw);
        match word {
            "output_text.delta" | "audio.transcript.delta" | "output_audio_transcript.delta" => {
                self.text.content.push_str(&text)
            }
            "refusal.delta" => self.text.refusal.push_str(&text),
            "audio.delta" | "output_audio.delta" => {}
            _ if word.starts_with("reasoning") => self.text.reasoning.push_str(&text),
            _ if word.ends_with(".delta") => self
                .call(index, false)
                .input
                .push_str(if text.is_empty() { raw.get() } else { &text }),
            _ => {}
        }
    }

    /// Collects the fields of a call that deltas do not have: its name, and its arguments if there were no deltas.
    fn open(&mut self, index: Option<u64>, item: Raw) {
        let item: Value = item
            .and_then(|raw| serde_json::from_str(raw.get()).ok())
            .unwrap_or_default();
        let Some(item) = parse_call(&item) else {
            return;
        };
        let known = self
            .text
            .calls
            .values()
            .any(|call| !call.id.is_empty() && call.id == item.id);
        let call = self.call(index, !known);
        let input = if call.input.is_empty() {
            item.input
        } else {
            std::mem::take(&mut call.input)
        };
        *call = ToolCallText { input, ..item };
    }

    /// The call with this index; without an index, the latest or a new one.
    fn call(&mut self, index: Option<u64>, new: bool) -> &mut ToolCallText {
        let latest = self.text.latest_call().map(|(latest, _)| latest);
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
        self.text.calls.entry(index).or_default()
    }

    /// Reads the output of a reply, or of a final event without preceding deltas.
    fn take_output(&mut self, output: &Value) {
        let mut message = MessageText::default();
        let mut image = false;
        for (index, item) in (0..).zip(output.as_array().into_iter().flatten()) {
            let reasons = item["type"] == "reasoning";
            let pieces = [&item["summary"], &item["content"]]
                .into_iter()
                .filter_map(Value::as_array)
                .flatten();
            for piece in pieces {
                let text = piece["text"]
                    .as_str()
                    .or(piece["transcript"].as_str())
                    .unwrap_or_default();
                if reasons {
                    &mut message.reasoning
                } else {
                    &mut message.content
                }
                .push_str(text);
                message
                    .refusal
                    .push_str(piece["refusal"].as_str().unwrap_or_default());
            }
            image |= item["result"].as_str().is_some_and(|data| !data.is_empty());
            message
                .calls
                .extend(parse_call(item).map(|call| (index, call)));
        }
        self.content = image || !message.is_empty();
        if self.keep_text {
            self.text = message;
        }
    }
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
    raw.get().len() > 2 && raw.get().starts_with(['"', '[', '{'])
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
        self.step(&read(&text, event.data)?, event.data, events)
    }

    fn document(&mut self, body: &[u8]) -> Result<(), Failure> {
        let text = String::from_utf8_lossy(body);
        let raw: &RawValue = read(&text, body)?;
        let response: Response = read(raw.get(), body)?;
        match (response.error, response.output) {
            (Some(_), _) => Err(Failure::new(FailureKind::StreamError, error_text(body))),
            (None, None) => Err(Failure::new(FailureKind::Decode, "the reply has no output")),
            (None, Some(_)) => self.conclude("", Some(raw), body),
        }
    }

    fn ending(&self, _streamed: bool) -> Result<Finish, Failure> {
        match &self.end {
            None => Err(Failure::new(
                FailureKind::Truncated,
                "the stream ended before its final event",
            )),
            Some(reason) => finish(Some(reason), self.content),
        }
    }

    fn reply(self, end: Result<Finish, Failure>) -> Reply {
        let (text, message) = self.text.into_kept(self.keep_text, call_json);
        Reply {
            end,
            usage: self.usage,
            id: self.id,
            text,
            message,
            server: self.server,
            items: None,
            silent: !self.content,
        }
    }
}

#[cfg(test)]
mod tests;
