//! DashScope's native generation.

mod cumulative_text;
mod message;

use crate::accumulator::{Accumulator, MAX_CHOICES};
use crate::content_kind::ContentKind;
use crate::decoder::{Assembly, decoder_for};
use crate::error::error_text;
use crate::framing::Event;
use crate::raw_json::{Raw, decode_failure, decode_string, is_text, reason_text};
use crate::usage::parse_usage;
use crate::{DecodeOptions, Decoder, Events, Protocol, Reply};
use cumulative_text::CumulativeTexts;
use llmscen_core::outcome::{Failure, FailureKind, Finish};
use llmscen_core::request::Framing;
use message::{Call, Choice, Function, Message, Output, Packet};
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

    /// Streaming is requested by a header, not in the body.
    fn headers(&self, key: Option<&str>, stream: bool) -> Vec<(&'static str, String)> {
        let key = key.map(|key| ("authorization", format!("Bearer {key}")));
        key.into_iter()
            .chain(stream.then(|| ("x-dashscope-sse", "enable".to_owned())))
            .collect()
    }

    fn decoder(&self, shape: Framing, options: &DecodeOptions) -> Box<dyn Decoder> {
        let results = Results::new(options);
        decoder_for(shape, results)
    }
}

/// The position of a text in a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TextPosition {
    Text { choice: u32, part: ContentKind },
    Arguments { call: usize },
}

/// One tool call; its arguments are in `texts`.
#[derive(Debug)]
struct ToolCallState {
    choice: u32,
    index: u32,
    id: String,
    name: String,
}

/// The state of one response.
struct Results {
    accumulator: Accumulator,
    texts: CumulativeTexts<TextPosition>,
    calls: Vec<ToolCallState>,
    /// The output token count of the latest event.
    output: Option<u64>,
}

/// The context of the texts of one event.
struct EventContext {
    choice: u32,
    /// The token count increased since the previous event, and this is not the last event.
    more: bool,
}

impl Results {
    fn new(options: &DecodeOptions) -> Results {
        Results {
            accumulator: Accumulator::new(options),
            texts: CumulativeTexts::new(options.keep_text),
            calls: Vec::new(),
            output: None,
        }
    }

    fn add(&mut self, json: &[u8]) -> Result<(), Failure> {
        let text = String::from_utf8_lossy(json);
        let packet: Packet =
            serde_json::from_str(&text).map_err(|error| decode_failure(&error, json))?;
        if packet.code.is_some_and(is_text) {
            return Err(Failure::new(FailureKind::StreamError, error_text(json)));
        }
        self.accumulator.set_id(packet.request_id);
        let usage = packet.usage.map(parse_usage).unwrap_or_default();
        let more = usage.output > self.output;
        self.output = usage.output.or(self.output);
        let choice = match &packet.output {
            Some(output) => self.add_output(output, more)?,
            None => None,
        };
        self.accumulator.add_usage(choice, usage)
    }

    /// Adds the choices of an event; returns the choice if there is only one.
    fn add_output(&mut self, output: &Output<'_>, more: bool) -> Result<Option<u32>, Failure> {
        if output.text.is_some() {
            let context = EventContext {
                choice: 0,
                more: more && finish_reason_text(output.finish_reason).is_empty(),
            };
            self.accumulator
                .choice(0)?
                .set_finish_reason(&finish_reason_text(output.finish_reason));
            self.take_text(
                &context,
                TextPosition::Text {
                    choice: 0,
                    part: ContentKind::Answer,
                },
                output.text,
            )?;
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
        let reason = finish_reason_text(choice.finish_reason);
        self.accumulator.choice(number)?.set_finish_reason(&reason);
        let context = EventContext {
            choice: number,
            more: more && reason.is_empty(),
        };
        match &choice.message {
            Some(message) => self.add_message(&context, message),
            None => Ok(()),
        }
    }

    fn add_message(
        &mut self,
        context: &EventContext,
        message: &Message<'_>,
    ) -> Result<(), Failure> {
        let place = |part| TextPosition::Text {
            choice: context.choice,
            part,
        };
        self.take_text(
            context,
            place(ContentKind::Reasoning),
            message.reasoning_content,
        )?;
        match message.parts()? {
            None => self.take_text(context, place(ContentKind::Answer), message.content)?,
            Some(parts) => {
                let text: String = parts
                    .iter()
                    .filter_map(|part| part.text)
                    .map(decode_string)
                    .collect();
                self.take_str(context, place(ContentKind::Answer), &text)?;
                // A part without text is an image or audio.
                if parts.iter().any(|part| part.text.is_none()) {
                    self.accumulator.mark(context.choice, ContentKind::Media)?;
                }
            }
        }
        let mut calls = message.tool_calls.iter().flat_map(|calls| calls.iter());
        calls.try_for_each(|call| self.add_call(context, call))
    }

    /// Adds the text of one position.
    fn take_text(
        &mut self,
        context: &EventContext,
        place: TextPosition,
        raw: Raw<'_>,
    ) -> Result<(), Failure> {
        match raw.filter(|raw| is_text(raw)) {
            Some(raw) => self.take_str(context, place, &decode_string(raw)),
            None => Ok(()),
        }
    }

    fn take_str(
        &mut self,
        context: &EventContext,
        place: TextPosition,
        text: &str,
    ) -> Result<(), Failure> {
        let kind = match place {
            TextPosition::Text { part, .. } => part,
            TextPosition::Arguments { .. } => ContentKind::ToolCall,
        };
        match self.texts.take(place, text, context.more) {
            Some(new) => self
                .accumulator
                .receive_text(context.choice, kind, new)
                .map(drop),
            None => Ok(()),
        }
    }

    fn add_call(&mut self, context: &EventContext, call: &Call<'_>) -> Result<(), Failure> {
        let index = call
            .index
            .unwrap_or_else(|| self.number_call(context.choice, call));
        let found = self
            .calls
            .iter()
            .position(|known| known.choice == context.choice && known.index == index);
        let place = match found {
            Some(place) => place,
            None if self.calls.len() == MAX_CHOICES => {
                return Err(Failure::new(
                    FailureKind::Decode,
                    format!("more than {MAX_CHOICES} tool calls in one response"),
                ));
            }
            None => {
                self.calls.push(ToolCallState {
                    choice: context.choice,
                    index,
                    id: String::new(),
                    name: String::new(),
                });
                self.calls.len() - 1
            }
        };
        let Function { name, arguments } = call.function.as_ref().copied().unwrap_or_default();
        let known = &mut self.calls[place];
        set_once(&mut known.id, call.id);
        if set_once(&mut known.name, name) {
            self.accumulator
                .mark(context.choice, ContentKind::ToolCall)?;
        }
        self.take_text(context, TextPosition::Arguments { call: place }, arguments)
    }

    /// The index of a call without one: that of its id, of a new call for a new id, or of the latest call without an
    /// id.
    fn number_call(&self, choice: u32, call: &Call<'_>) -> u32 {
        let id = call.id.map(decode_string).unwrap_or_default();
        let known = || self.calls.iter().filter(|known| known.choice == choice);
        let latest = known().map(|known| known.index).max();
        let same = known().find(|known| !id.is_empty() && known.id == id);
        match (same, latest) {
            (Some(same), _) => same.index,
            (None, Some(latest)) if !id.is_empty() => latest.saturating_add(1),
            (None, latest) => latest.unwrap_or(0),
        }
    }

    /// Moves the texts to their choices, and returns the tool calls of choice 0.
    fn collect_texts(&mut self) -> Result<Vec<Value>, Failure> {
        for (place, text) in self.texts.texts() {
            if let TextPosition::Text { choice, part } = place {
                self.accumulator.keep(choice, part, text)?;
            }
        }
        let mut first = Vec::new();
        for (number, call) in self.calls.iter().enumerate() {
            let mut arguments = self
                .texts
                .texts()
                .filter(|(place, _)| *place == TextPosition::Arguments { call: number });
            let arguments = arguments.next().map(|(_, text)| text).unwrap_or_default();
            self.accumulator
                .keep(call.choice, ContentKind::ToolCall, &call.name)?;
            self.accumulator
                .keep(call.choice, ContentKind::ToolCall, arguments)?;
            if call.choice == 0 {
                let function = json!({ "name": call.name, "arguments": arguments });
                first.push(json!({ "index": call.index, "id": call.id, "type": "function", "function": function }));
            }
        }
        Ok(first)
    }
}

/// Sets a text that later events repeat; returns whether it was set now.
fn set_once(known: &mut String, raw: Raw<'_>) -> bool {
    match raw.filter(|raw| known.is_empty() && is_text(raw)) {
        Some(raw) => known.push_str(&decode_string(raw)),
        None => return false,
    }
    true
}

/// The finish reason; `"null"` before the end.
fn finish_reason_text(raw: Raw<'_>) -> std::borrow::Cow<'_, str> {
    match reason_text(raw) {
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

    fn document(&mut self, body: &[u8]) -> Result<(), Failure> {
        self.add(body)
    }

    /// Without an end marker, a stream is complete with a finish reason for every choice.
    fn ending(&self, streamed: bool) -> Result<Finish, Failure> {
        match streamed {
            true => self.accumulator.ending_with_reasons(),
            false if self.accumulator.is_empty() => Err(Failure::new(
                FailureKind::Decode,
                "the reply has no `output`",
            )),
            false => self.accumulator.ending(),
        }
    }

    fn counted_tokens(&self) -> u64 {
        self.accumulator.counted_tokens()
    }

    fn close(&self, events: &mut Events) {
        self.accumulator.close(events);
    }

    fn reply(mut self, end: Result<Finish, Failure>) -> Reply {
        match self.collect_texts() {
            Ok(calls) => self.accumulator.into_reply_with_calls(end, calls),
            Err(failure) => self.accumulator.into_reply(Err(failure), |_| None),
        }
    }
}

#[cfg(test)]
mod tests;
