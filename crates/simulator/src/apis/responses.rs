//! OpenAI responses: one reasoning item, if any, and one message, each with its events.

use super::{CREATED, ChoiceText, Part, Piece, Protocol, Reply, Times, openai};
use crate::generation::{Call, Finish, Generation, Refusal};
use crate::prompt::Prompt;
use crate::{http, websocket};
use serde_json::Value;
use std::fmt::Write;

#[derive(Debug)]
pub(super) struct Responses;

impl Protocol for Responses {
    fn paths(&self) -> &'static [&'static str] {
        &["/v1/responses"]
    }

    fn id(&self, number: u64) -> String {
        format!("resp-sim-{number}")
    }

    fn read(&self, call: &Call<'_>) -> Result<(Generation, Box<dyn Reply>), Refusal> {
        if call.request.websocket && call.body.text("type")? != Some("response.create") {
            return Err(call.body.wrong("type", "must be response.create"));
        }
        let mut prompt = match call.body.text("previous_response_id")? {
            Some(id) => call.stored.get(id).ok_or_else(|| Refusal {
                code: Some("previous_response_not_found"),
                message: format!("Previous response with id '{id}' not found."),
                ..call.body.wrong("previous_response_id", "")
            })?,
            None => call.prompt(),
        };
        call.body
            .text("instructions")?
            .into_iter()
            .for_each(|text| prompt.text(text));
        let wrong = || {
            call.body.wrong(
                "input",
                "must be text, or a list of at least one message or item",
            )
        };
        input(&mut prompt, call.body.need("input")?).ok_or_else(wrong)?;
        let mut generation = call.generation(prompt, call.body.limit("max_output_tokens")?)?;
        generation.stored = call.body.flag("store", true)?;
        let websocket = generation.websocket;
        let number = call.id.trim_start_matches("resp-").to_owned();
        Ok((
            generation,
            Box::new(Answer {
                id: call.id.to_owned(),
                number,
                websocket,
                ..Answer::default()
            }),
        ))
    }

    fn has_websocket(&self) -> bool {
        true
    }

    fn error(&self, refusal: &Refusal, _id: Option<&str>) -> String {
        openai::error(refusal)
    }
}

pub(super) fn input(prompt: &mut Prompt, input: &Value) -> Option<()> {
    match input {
        Value::String(text) => prompt.text(text),
        // Other items are tool calls and their outputs.
        Value::Array(items) if !items.is_empty() => {
            items.iter().try_for_each(|item| match item.get("role") {
                Some(_) => prompt.message(item),
                None => item
                    .is_object()
                    .then(|| prompt.content(&Value::Array(vec![item.clone()])))?,
            })?
        }
        _ => return None,
    }
    Some(())
}

#[derive(Debug, Default)]
struct Answer {
    id: String,
    /// The id without its prefix, also used for the ids of items.
    number: String,
    /// Events are messages on a WebSocket.
    websocket: bool,
    /// Number of the next event.
    sequence: u64,
    /// Closed items as JSON.
    items: Vec<String>,
    /// Text of the open part so far.
    text: String,
    /// The type and the beginning of the delta events of the open part.
    delta: (String, String),
    /// The number of the current event.
    digits: String,
}

impl Answer {
    /// An event other than a delta; `fields` follow its number.
    fn event(&mut self, to: &mut Vec<u8>, kind: &str, fields: &str) {
        let lead = format!(
            "{{\"type\":\"{kind}\",\"sequence_number\":{},",
            self.sequence
        );
        self.sequence += 1;
        self.put(to, kind, &[&lead, fields, "}"]);
    }

    /// Appends an event; `json` are the pieces of its data.
    fn put(&self, to: &mut Vec<u8>, kind: &str, json: &[&str]) {
        if self.websocket {
            return websocket::message(to, json);
        }
        let lead = ["event: ", kind, "\ndata: "];
        http::chunk(to, &[&lead[..], json, &["\n\n"]].concat());
    }

    /// A part of an item: its position and type.
    fn place(&self, part: Part) -> (String, &'static str) {
        let (prefix, kind) = match part {
            Part::Reasoning => ("rs", "reasoning_text"),
            Part::Content => ("msg", "output_text"),
        };
        let output = self.items.len();
        (
            format!(
                "\"item_id\":\"{prefix}-{}\",\"output_index\":{output},\"content_index\":0",
                self.number
            ),
            kind,
        )
    }

    fn begin(&mut self, to: &mut Vec<u8>, part: Part) {
        let (place, kind) = self.place(part);
        let item = item(part, &self.number, "in_progress", None);
        let output = self.items.len();
        self.event(
            to,
            "response.output_item.added",
            &format!("\"output_index\":{output},\"item\":{item}"),
        );
        self.event(
            to,
            "response.content_part.added",
            &format!("{place},\"part\":{}", content(part, "")),
        );
        let logprobs = if part == Part::Content {
            ",\"logprobs\":[]"
        } else {
            ""
        };
        let kind = format!("response.{kind}.delta");
        let lead = format!("{{\"type\":\"{kind}\",{place}{logprobs},\"sequence_number\":");
        self.delta = (kind, lead);
        self.text.clear();
    }

    fn end(&mut self, to: &mut Vec<u8>, part: Part, generation: &Generation) {
        let (place, kind) = self.place(part);
        let text = std::mem::take(&mut self.text);
        let logprobs = if part == Part::Content {
            ",\"logprobs\":[]"
        } else {
            ""
        };
        self.event(
            to,
            &format!("response.{kind}.done"),
            &format!("{place}{logprobs},\"text\":\"{text}\""),
        );
        self.event(
            to,
            "response.content_part.done",
            &format!("{place},\"part\":{}", content(part, &text)),
        );
        let item = item(
            part,
            &self.number,
            item_status(part, generation),
            Some(&text),
        );
        let output = self.items.len();
        self.event(
            to,
            "response.output_item.done",
            &format!("\"output_index\":{output},\"item\":{item}"),
        );
        self.items.push(item);
    }

    /// The current response object; `usage`: report usage; `error` is JSON.
    fn response(
        &self,
        generation: &Generation,
        status: &str,
        items: &[String],
        (usage, error): (bool, &str),
    ) -> String {
        let details = match status {
            "incomplete" => "{\"reason\":\"max_output_tokens\"}",
            _ => "null",
        };
        let usage = if usage && generation.usage {
            self::usage(generation)
        } else {
            "null".to_owned()
        };
        let limit = match generation.finish {
            Finish::Stop => "null".to_owned(),
            Finish::Length => generation.output.to_string(),
        };
        format!(
            "{{\"id\":\"{}\",\"object\":\"response\",\"created_at\":{CREATED},\"status\":\"{status}\",\"error\":{error},\"incomplete_details\":{details},\"max_output_tokens\":{limit},\"model\":{},\"output\":[{}],\"usage\":{usage}}}",
            self.id,
            generation.model,
            items.join(",")
        )
    }
}

impl Reply for Answer {
    fn open(&mut self, to: &mut Vec<u8>, generation: &Generation) {
        let response = format!(
            "\"response\":{}",
            self.response(generation, "in_progress", &[], (false, "null"))
        );
        self.event(to, "response.created", &response);
        self.event(to, "response.in_progress", &response);
    }

    fn text(&mut self, to: &mut Vec<u8>, generation: &Generation, piece: &Piece<'_>) {
        if piece.opens {
            self.begin(to, piece.part);
        }
        self.digits.clear();
        // Writing to a string cannot fail.
        let _ = write!(self.digits, "{}", self.sequence);
        self.sequence += 1;
        self.text.push_str(piece.text);
        let (kind, lead) = &self.delta;
        let json = [
            lead,
            self.digits.as_str(),
            ",\"delta\":\"",
            piece.text,
            "\"}",
        ];
        self.put(to, kind, &json);
        if piece.closes {
            self.end(to, piece.part, generation);
        }
    }

    fn comment(&self, to: &mut Vec<u8>) {
        if self.websocket {
            websocket::ping(to);
        } else {
            http::comment(to);
        }
    }

    fn finish(&mut self, to: &mut Vec<u8>, generation: &Generation, _times: Times) {
        let status = status(generation);
        let response = self.response(generation, status, &self.items, (true, "null"));
        self.event(
            to,
            &format!("response.{status}"),
            &format!("\"response\":{response}"),
        );
    }

    fn fail(&mut self, to: &mut Vec<u8>, generation: &Generation) {
        let Refusal { message, .. } = Refusal::broken();
        self.event(
            to,
            "error",
            &format!("\"code\":\"server_error\",\"message\":\"{message}\",\"param\":null"),
        );
        let response = self.broken(generation);
        self.event(to, "response.failed", &format!("\"response\":{response}"));
    }

    fn full_answer(
        &self,
        generation: &Generation,
        choices: &[ChoiceText],
        _times: Times,
    ) -> String {
        let items = choices.iter().flat_map(|choice| {
            [
                (Part::Reasoning, &choice.thoughts),
                (Part::Content, &choice.text),
            ]
        });
        let there = |(part, _): &(Part, &String)| match part {
            Part::Reasoning => generation.reasoning > 0,
            Part::Content => generation.reasoning < generation.output,
        };
        let items = items.filter(there).map(|(part, text)| {
            item(
                part,
                &self.number,
                item_status(part, generation),
                Some(text),
            )
        });
        self.response(
            generation,
            status(generation),
            &items.collect::<Vec<_>>(),
            (true, "null"),
        )
    }

    fn broken(&self, generation: &Generation) -> String {
        let error = format!(
            "{{\"code\":\"server_error\",\"message\":\"{}\"}}",
            Refusal::broken().message
        );
        self.response(generation, "failed", &self.items, (false, &error))
    }
}

fn status(generation: &Generation) -> &'static str {
    match generation.finish {
        Finish::Stop => "completed",
        Finish::Length => "incomplete",
    }
}

/// The item in which the limit was reached is incomplete.
fn item_status(part: Part, generation: &Generation) -> &'static str {
    match part {
        Part::Reasoning if generation.reasoning < generation.output => "completed",
        _ => status(generation),
    }
}

/// An item; its text is None while it has no content.
fn item(part: Part, number: &str, status: &str, text: Option<&str>) -> String {
    let content = text.map(|text| content(part, text)).unwrap_or_default();
    match part {
        Part::Reasoning => format!(
            "{{\"id\":\"rs-{number}\",\"type\":\"reasoning\",\"status\":\"{status}\",\"summary\":[],\"content\":[{content}]}}"
        ),
        Part::Content => format!(
            "{{\"id\":\"msg-{number}\",\"type\":\"message\",\"status\":\"{status}\",\"role\":\"assistant\",\
             \"content\":[{content}]}}"
        ),
    }
}

fn content(part: Part, text: &str) -> String {
    match part {
        Part::Reasoning => format!("{{\"type\":\"reasoning_text\",\"text\":\"{text}\"}}"),
        Part::Content => format!(
            "{{\"type\":\"output_text\",\"text\":\"{text}\",\"annotations\":[],\"logprobs\":[]}}"
        ),
    }
}

fn usage(generation: &Generation) -> String {
    let (input, output, cached) = (
        generation.prompt.tokens(),
        generation.output,
        generation.cached.unwrap_or(0),
    );
    format!(
        "{{\"input_tokens\":{input},\"input_tokens_details\":{{\"cached_tokens\":{cached}}},\"output_tokens\":{output},\"output_tokens_details\":{{\"reasoning_tokens\":{}}},\"total_tokens\":{}}}",
        generation.reasoning,
        input.saturating_add(output)
    )
}

#[cfg(test)]
mod tests;
