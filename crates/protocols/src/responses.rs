//! OpenAI responses.

use crate::accumulator::{MessageText, ToolCallText, finish};
use crate::decoder::Assembly;
use crate::error::words_of;
use crate::framing::Event;
use crate::raw_json::{Raw, number, text_of, unreadable};
use crate::usage::{latest, timings_of, usage_of};
use crate::{Decoder, Events, Protocol, Reply, Shape};
use llmscen_core::outcome::{Failure, FailureKind, Finish, ServerTimes, Usage};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

/// `POST /v1/responses`.
pub struct Responses;

impl Protocol for Responses {
    /// The final event holds the token counts unasked.
    fn body(&self, stream: bool) -> Value {
        json!({ "model": "{{ model }}", "input": "{{ messages }}", "stream": stream })
    }

    fn decoder(&self, shape: Shape, keep_text: bool) -> Box<dyn Decoder> {
        let steps = Steps { keep_text, ..Steps::default() };
        shape.decoder(steps)
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

/// A response: of the first events little more than the id, of the final event and of a whole reply all of it.
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

/// What the events of one response add up to.
#[derive(Debug, Default)]
struct Steps {
    keep_text: bool,
    id: Option<String>,
    text: MessageText,
    content: bool,
    /// Why it ended, once its final event is here.
    end: Option<String>,
    usage: Usage,
    server: ServerTimes,
}

impl Steps {
    fn step(&mut self, step: &Step, json: &[u8], events: &mut Events) -> Result<(), Failure> {
        let kind = step.kind.map(text_of).unwrap_or_default();
        if step.error.is_some() || kind == "error" {
            return Err(Failure::new(FailureKind::StreamError, words_of(json)));
        }
        if let Some(raw) = step.timings {
            self.server = timings_of(raw);
        }
        match kind.strip_prefix("response.").unwrap_or(&kind) {
            word @ ("completed" | "incomplete" | "failed" | "cancelled") => {
                events.done = true;
                self.conclude(word, step.response, json)
            }
            "output_item.added" | "output_item.done" if self.keep_text => {
                self.open(number(step.output_index), step.item);
                Ok(())
            }
            // The events that come before the first delta hold the response as it is then.
            word => {
                let piece = step.delta.filter(|_| word.ends_with(".delta")).or(step.partial_image_b64);
                if let Some(raw) = piece.filter(|raw| is_full(raw)) {
                    self.content = true;
                    match word.starts_with("reasoning") {
                        true => events.reasoning_token(0),
                        false => events.token(0),
                    }
                    self.keep(word, number(step.output_index), raw);
                } else if let (None, Some(raw)) = (&self.id, step.response) {
                    self.id = read::<Response>(raw.get(), json)?.id.map(|id| text_of(id).into_owned());
                }
                Ok(())
            }
        }
    }

    /// Takes the response of the final event or of a whole reply; `word` is what the event is called.
    fn conclude(&mut self, word: &str, raw: Raw, json: &[u8]) -> Result<(), Failure> {
        let raw = raw.map_or("{}", RawValue::get);
        let response: Response = read(raw, json)?;
        if let Some(id) = response.id {
            self.id = Some(text_of(id).into_owned());
        }
        self.usage = latest(self.usage, response.usage.map(usage_of).unwrap_or_default());
        if let Some(raw) = response.timings {
            self.server = timings_of(raw);
        }
        if let (false, Some(output)) = (self.content, response.output) {
            self.take_output(&serde_json::from_str(output.get()).unwrap_or_default());
        }
        // vLLM sends `response.completed` for a response that it calls incomplete inside.
        let status = response.status.map(text_of).unwrap_or_default();
        let status = match &*status {
            "" | "queued" | "in_progress" if !word.is_empty() => word,
            status => status,
        };
        match status {
            "failed" | "cancelled" => {
                let words = response.error.map(|error| words_of(error.get().as_bytes()));
                let words = words.unwrap_or_else(|| format!("the server finished with `{status}`"));
                Err(Failure::new(FailureKind::StreamError, words))
            }
            "queued" | "in_progress" => {
                Err(Failure::new(FailureKind::Truncated, format!("the response is not complete, but `{status}`")))
            }
            _ => {
                let reason = response.incomplete_details.and_then(|details| details.reason).map(text_of);
                self.end = Some(reason.map_or_else(|| status.to_owned(), |reason| reason.into_owned()));
                Ok(())
            }
        }
    }

    /// Keeps one piece of text, under what its event is called.
    fn keep(&mut self, word: &str, index: Option<u64>, raw: &RawValue) {
        if !self.keep_text {
            return;
        }
        let text = text_of(raw);
        match word {
            "output_text.delta" | "audio.transcript.delta" | "output_audio_transcript.delta" => self.text.content.push_str(&text),
            "refusal.delta" => self.text.refusal.push_str(&text),
            "audio.delta" | "output_audio.delta" => {}
            _ if word.starts_with("reasoning") => self.text.reasoning.push_str(&text),
            _ if word.ends_with(".delta") => {
                self.call(index, false).input.push_str(if text.is_empty() { raw.get() } else { &text })
            }
            _ => {}
        }
    }

    /// Keeps what an item says of a call besides the deltas: its name, and its arguments where no delta brought them.
    fn open(&mut self, index: Option<u64>, item: Raw) {
        let item: Value = item.and_then(|raw| serde_json::from_str(raw.get()).ok()).unwrap_or_default();
        let Some(told) = call_of(&item) else {
            return;
        };
        let known = self.text.calls.values().any(|call| !call.id.is_empty() && call.id == told.id);
        let call = self.call(index, !known);
        let input = if call.input.is_empty() { told.input } else { std::mem::take(&mut call.input) };
        *call = ToolCallText { input, ..told };
    }

    /// The call of this number; without one, the latest or a new one.
    fn call(&mut self, index: Option<u64>, new: bool) -> &mut ToolCallText {
        let latest = self.text.latest_call().map(|(latest, _)| latest);
        let next = latest.map_or(0, |latest| if new { latest.saturating_add(1) } else { latest });
        let index = index.and_then(|index| u32::try_from(index).ok()).unwrap_or(next);
        self.text.calls.entry(index).or_default()
    }

    /// Takes the output of a whole reply, or of a final event that no delta came before.
    fn take_output(&mut self, output: &Value) {
        let mut message = MessageText::default();
        let mut picture = false;
        for (index, item) in (0..).zip(output.as_array().into_iter().flatten()) {
            let reasons = item["type"] == "reasoning";
            let pieces = [&item["summary"], &item["content"]].into_iter().filter_map(Value::as_array).flatten();
            for piece in pieces {
                let text = piece["text"].as_str().or(piece["transcript"].as_str()).unwrap_or_default();
                if reasons { &mut message.reasoning } else { &mut message.content }.push_str(text);
                message.refusal.push_str(piece["refusal"].as_str().unwrap_or_default());
            }
            picture |= item["result"].as_str().is_some_and(|data| !data.is_empty());
            message.calls.extend(call_of(item).map(|call| (index, call)));
        }
        self.content = picture || !message.is_empty();
        if self.keep_text {
            self.text = message;
        }
    }
}

/// What an item says if it is a call.
fn call_of(item: &Value) -> Option<ToolCallText> {
    let kind = item["type"].as_str().filter(|kind| kind.ends_with("_call"))?;
    let text = |key: &str| item[key].as_str().unwrap_or_default().to_owned();
    let action = Some(&item["action"]).filter(|action| action.is_object()).map(Value::to_string);
    let written = ["arguments", "input", "code"].into_iter().map(text).find(|text| !text.is_empty());
    let input = written.or(action).unwrap_or_default();
    Some(ToolCallText { kind: kind.to_owned(), id: text("call_id"), name: text("name"), input })
}

/// A call as the next turn's input holds it; calls that the server itself carried out are not sent back.
fn call_json(call: ToolCallText) -> Option<Value> {
    let input = match call.kind.as_str() {
        "function_call" => "arguments",
        "custom_tool_call" => "input",
        _ => return None,
    };
    Some(json!({ "type": call.kind, "call_id": call.id, "name": call.name, input: call.input }))
}

/// A text, a list or an object that is not empty.
fn is_full(raw: &RawValue) -> bool {
    raw.get().len() > 2 && raw.get().starts_with(['"', '[', '{'])
}

fn read<'a, T: Deserialize<'a>>(text: &'a str, json: &[u8]) -> Result<T, Failure> {
    serde_json::from_str(text).map_err(|error| unreadable(&error, json))
}

impl Assembly for Steps {
    /// The final event is the end marker, and a stream without it is not complete. No recorded server sends `[DONE]`.
    fn event(&mut self, event: Event<'_>, events: &mut Events) -> Result<(), Failure> {
        if event.data == b"[DONE]" {
            events.done = true;
            return Ok(());
        }
        let text = String::from_utf8_lossy(event.data);
        self.step(&read(&text, event.data)?, event.data, events)
    }

    fn whole(&mut self, body: &[u8]) -> Result<(), Failure> {
        let text = String::from_utf8_lossy(body);
        let raw: &RawValue = read(&text, body)?;
        let response: Response = read(raw.get(), body)?;
        match (response.error, response.output) {
            (Some(_), _) => Err(Failure::new(FailureKind::StreamError, words_of(body))),
            (None, None) => Err(Failure::new(FailureKind::Decode, "the reply has no output")),
            (None, Some(_)) => self.conclude("", Some(raw), body),
        }
    }

    fn ending(&self, _streamed: bool) -> Result<Finish, Failure> {
        match &self.end {
            None => Err(Failure::new(FailureKind::Truncated, "the stream ended before its final event")),
            Some(reason) => finish(Some(reason), self.content),
        }
    }

    fn reply(self, end: Result<Finish, Failure>) -> Reply {
        let (text, message) = self.text.into_kept(self.keep_text, call_json);
        Reply { end, usage: self.usage, id: self.id, text, message, server: self.server, items: None, silent: !self.content }
    }
}

#[cfg(test)]
mod tests;
