//! DashScope's native generation.

mod cumulative_text;
mod message;

use crate::accumulator::{Accumulator, ContentKind, MAX_CHOICES};
use crate::decoder::Assembly;
use crate::error::words_of;
use crate::framing::Event;
use crate::raw_json::{Raw, is_text, text_of, unreadable};
use crate::{Decoder, Events, Protocol, Reply, Shape};
use cumulative_text::Growth;
use llmscen_core::outcome::{Failure, FailureKind, Finish};
use message::{Call, Choice, Function, Message, Output, Packet, usage_of};
use serde_json::{Value, json};

/// `POST /api/v1/services/aigc/text-generation/generation`, and `multimodal-generation`, whose contents are lists.
pub struct Dashscope;

impl Protocol for Dashscope {
    fn body(&self, stream: bool) -> Value {
        let parameters = match stream {
            true => json!({ "result_format": "message", "incremental_output": true }),
            false => json!({ "result_format": "message" }),
        };
        json!({ "model": "{{ model }}", "input": { "messages": "{{ messages }}" }, "parameters": parameters })
    }

    /// The header, not the body, asks for a stream.
    fn headers(&self, key: Option<&str>, stream: bool) -> Vec<(&'static str, String)> {
        let key = key.map(|key| ("authorization", format!("Bearer {key}")));
        key.into_iter().chain(stream.then(|| ("x-dashscope-sse", "enable".to_owned()))).collect()
    }

    fn decoder(&self, shape: Shape, keep_text: bool) -> Box<dyn Decoder> {
        let results = Results::new(keep_text);
        shape.decoder(results)
    }
}

/// Where in a response a text stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Text { choice: u32, part: ContentKind },
    Arguments { call: usize },
}

/// One tool call; its arguments stand among the texts.
#[derive(Debug)]
struct Named {
    choice: u32,
    index: u32,
    id: String,
    name: String,
}

/// What the events of one response add up to.
struct Results {
    accumulator: Accumulator,
    growth: Growth<Place>,
    calls: Vec<Named>,
    /// The server's count of output tokens in the latest event.
    output: Option<u64>,
}

/// What one event says beside its texts.
struct Beside {
    choice: u32,
    /// More tokens are counted than in the event before, and this is not the last one.
    more: bool,
}

impl Results {
    fn new(keep_text: bool) -> Results {
        Results { accumulator: Accumulator::new(keep_text), growth: Growth::new(keep_text), calls: Vec::new(), output: None }
    }

    fn add(&mut self, json: &[u8]) -> Result<(), Failure> {
        let text = String::from_utf8_lossy(json);
        let packet: Packet = serde_json::from_str(&text).map_err(|error| unreadable(&error, json))?;
        if packet.code.is_some_and(is_text) {
            return Err(Failure::new(FailureKind::StreamError, words_of(json)));
        }
        self.accumulator.set_id(packet.request_id);
        let usage = packet.usage.map(usage_of).unwrap_or_default();
        let more = usage.output > self.output;
        self.output = usage.output.or(self.output);
        let choice = match &packet.output {
            Some(output) => self.add_output(output, more)?,
            None => None,
        };
        self.accumulator.add_usage(choice, usage)
    }

    /// Adds the choices of an event, and gives the one that it is about where it is about one.
    fn add_output(&mut self, output: &Output<'_>, more: bool) -> Result<Option<u32>, Failure> {
        if output.text.is_some() {
            let beside = Beside { choice: 0, more: more && reason_of(output.finish_reason).is_empty() };
            self.accumulator.choice(0)?.set_finish_reason(&reason_of(output.finish_reason));
            self.hear(&beside, Place::Text { choice: 0, part: ContentKind::Answer }, output.text)?;
        }
        let mut only = output.text.is_some().then_some(0);
        for (place, choice) in (0..).zip(output.choices.iter().flat_map(|choices| choices.iter())) {
            let number = choice.index.unwrap_or(place);
            self.add_choice(number, choice, more)?;
            only = (place == 0).then_some(number);
        }
        Ok(only)
    }

    fn add_choice(&mut self, number: u32, choice: &Choice<'_>, more: bool) -> Result<(), Failure> {
        let reason = reason_of(choice.finish_reason);
        self.accumulator.choice(number)?.set_finish_reason(&reason);
        let beside = Beside { choice: number, more: more && reason.is_empty() };
        match &choice.message {
            Some(message) => self.add_message(&beside, message),
            None => Ok(()),
        }
    }

    fn add_message(&mut self, beside: &Beside, message: &Message<'_>) -> Result<(), Failure> {
        let place = |part| Place::Text { choice: beside.choice, part };
        self.hear(beside, place(ContentKind::Reasoning), message.reasoning_content)?;
        match message.parts()? {
            None => self.hear(beside, place(ContentKind::Answer), message.content)?,
            Some(parts) => {
                let text: String = parts.iter().filter_map(|part| part.text).map(text_of).collect();
                // A part without text is a picture or a sound.
                if self.growth.take(place(ContentKind::Answer), &text, beside.more)
                    || parts.iter().any(|part| part.text.is_none())
                {
                    self.accumulator.mark(beside.choice, ContentKind::Answer)?;
                }
            }
        }
        let mut calls = message.tool_calls.iter().flat_map(|calls| calls.iter());
        calls.try_for_each(|call| self.add_call(beside, call))
    }

    /// Takes the text of one place. A text that nobody needs is not decoded.
    fn hear(&mut self, beside: &Beside, place: Place, raw: Raw<'_>) -> Result<(), Failure> {
        match raw.filter(|raw| is_text(raw)) {
            Some(raw) if self.growth.is_blind() || self.growth.take(place, &text_of(raw), beside.more) => {
                let part = match place {
                    Place::Text { part, .. } => part,
                    Place::Arguments { .. } => ContentKind::ToolCall,
                };
                self.accumulator.mark(beside.choice, part)
            }
            _ => Ok(()),
        }
    }

    fn add_call(&mut self, beside: &Beside, call: &Call<'_>) -> Result<(), Failure> {
        let index = call.index.unwrap_or(0);
        let found = self.calls.iter().position(|known| known.choice == beside.choice && known.index == index);
        let place = match found {
            Some(place) => place,
            None if self.calls.len() == MAX_CHOICES => {
                return Err(Failure::new(FailureKind::Decode, format!("more than {MAX_CHOICES} tool calls in one response")));
            }
            None => {
                self.calls.push(Named { choice: beside.choice, index, id: String::new(), name: String::new() });
                self.calls.len() - 1
            }
        };
        let Function { name, arguments } = call.function.as_ref().copied().unwrap_or_default();
        let known = &mut self.calls[place];
        fill(&mut known.id, call.id);
        if fill(&mut known.name, name) {
            self.accumulator.mark(beside.choice, ContentKind::ToolCall)?;
        }
        self.hear(beside, Place::Arguments { call: place }, arguments)
    }

    /// Hands the texts to the choices they belong to, and gives the tool calls of choice 0.
    fn hand_over(&mut self) -> Result<Vec<Value>, Failure> {
        for (place, text) in self.growth.texts() {
            if let Place::Text { choice, part } = place {
                self.accumulator.keep(choice, part, text)?;
            }
        }
        let mut first = Vec::new();
        for (number, call) in self.calls.iter().enumerate() {
            let mut arguments = self.growth.texts().filter(|(place, _)| *place == Place::Arguments { call: number });
            let arguments = arguments.next().map(|(_, text)| text).unwrap_or_default();
            self.accumulator.keep(call.choice, ContentKind::ToolCall, &call.name)?;
            self.accumulator.keep(call.choice, ContentKind::ToolCall, arguments)?;
            if call.choice == 0 {
                let function = json!({ "name": call.name, "arguments": arguments });
                first.push(json!({ "index": call.index, "id": call.id, "type": "function", "function": function }));
            }
        }
        Ok(first)
    }
}

/// Sets a text that is known once and then repeated; says whether it was set now.
fn fill(known: &mut String, raw: Raw<'_>) -> bool {
    match raw.filter(|raw| known.is_empty() && is_text(raw)) {
        Some(raw) => known.push_str(&text_of(raw)),
        None => return false,
    }
    true
}

/// A finish reason. The server writes `"null"` before the end.
fn reason_of(raw: Raw<'_>) -> std::borrow::Cow<'_, str> {
    match raw.map(text_of).unwrap_or_default() {
        reason if reason == "null" => std::borrow::Cow::Borrowed(""),
        reason => reason,
    }
}

impl Assembly for Results {
    fn event(&mut self, event: Event<'_>, events: &mut Events) -> Result<(), Failure> {
        let added = self.add(event.data);
        self.accumulator.emit_pending(events);
        added
    }

    fn whole(&mut self, body: &[u8]) -> Result<(), Failure> {
        self.add(body)
    }

    /// There is no end marker: a stream is complete with a finish reason for every choice.
    fn ending(&self, streamed: bool) -> Result<Finish, Failure> {
        match streamed {
            true => self.accumulator.ending_with_reasons(),
            false if self.accumulator.is_empty() => Err(Failure::new(FailureKind::Decode, "the reply has no `output`")),
            false => self.accumulator.ending(),
        }
    }

    fn weights(&self) -> Vec<u32> {
        self.accumulator.weights()
    }

    fn reply(mut self, end: Result<Finish, Failure>) -> Reply {
        match self.hand_over() {
            Ok(calls) => self.accumulator.into_reply_with_calls(end, calls),
            Err(failure) => self.accumulator.into_reply(Err(failure), |_| None),
        }
    }
}

#[cfg(test)]
mod tests;
