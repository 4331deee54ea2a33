//! OpenAI responses: one item of reasoning where there is any, and one message, each with its own events.

use super::{CREATED, Part, Piece, Protocol, Reply, Said, Times, openai};
use crate::ask::{Ask, Call, Finish};
use crate::fields::Refusal;
use crate::frame::chunk;
use crate::prompt::Prompt;
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

    fn read(&self, call: &Call<'_>) -> Result<(Ask, Box<dyn Reply>), Refusal> {
        let mut prompt = call.prompt();
        call.body.text("instructions")?.into_iter().for_each(|text| prompt.text(text));
        let wrong = || call.body.wrong("input", "must be text, or a list of at least one message or item");
        input(&mut prompt, call.body.need("input")?).ok_or_else(wrong)?;
        let ask = call.ask(prompt, call.body.limit("max_output_tokens")?)?;
        let number = call.id.trim_start_matches("resp-").to_owned();
        Ok((ask, Box::new(Answer { id: call.id.to_owned(), number, ..Answer::default() })))
    }

    fn error(&self, refusal: &Refusal, _id: Option<&str>) -> String {
        openai::error(refusal)
    }
}

fn input(prompt: &mut Prompt, input: &Value) -> Option<()> {
    match input {
        Value::String(text) => prompt.text(text),
        // What is no message is an item: a call of a tool, or its output.
        Value::Array(items) if !items.is_empty() => items.iter().try_for_each(|item| match item.get("role") {
            Some(_) => prompt.message(item),
            None => item.is_object().then(|| prompt.content(&Value::Array(vec![item.clone()])))?,
        })?,
        _ => return None,
    }
    Some(())
}

#[derive(Debug, Default)]
struct Answer {
    id: String,
    /// The id without its prefix; those of the items have it too.
    number: String,
    /// Number of the next event.
    sequence: u64,
    /// Items that are closed, as JSON.
    items: Vec<String>,
    /// Text of the open part so far.
    text: String,
    /// What the delta events of the open part begin with.
    delta: String,
    /// The number of the event that is being formed.
    digits: String,
}

impl Answer {
    /// An event that is not one of many; `fields` stand behind its number.
    fn event(&mut self, to: &mut Vec<u8>, kind: &str, fields: &str) {
        let lead = format!("event: {kind}\ndata: {{\"type\":\"{kind}\",\"sequence_number\":{},", self.sequence);
        self.sequence += 1;
        chunk(to, &[&lead, fields, "}\n\n"]);
    }

    /// A part of an item: its place, and what it is called.
    fn place(&self, part: Part) -> (String, &'static str) {
        let (prefix, kind) = match part {
            Part::Reasoning => ("rs", "reasoning_text"),
            Part::Content => ("msg", "output_text"),
        };
        let output = self.items.len();
        (format!("\"item_id\":\"{prefix}-{}\",\"output_index\":{output},\"content_index\":0", self.number), kind)
    }

    fn begin(&mut self, to: &mut Vec<u8>, part: Part) {
        let (place, kind) = self.place(part);
        let item = item(part, &self.number, "in_progress", None);
        let output = self.items.len();
        self.event(to, "response.output_item.added", &format!("\"output_index\":{output},\"item\":{item}"));
        self.event(to, "response.content_part.added", &format!("{place},\"part\":{}", content(part, "")));
        let logprobs = if part == Part::Content { ",\"logprobs\":[]" } else { "" };
        self.delta = format!(
            "event: response.{kind}.delta\ndata: {{\"type\":\"response.{kind}.delta\",{place}{logprobs},\"sequence_number\":"
        );
        self.text.clear();
    }

    fn end(&mut self, to: &mut Vec<u8>, part: Part, ask: &Ask) {
        let (place, kind) = self.place(part);
        let text = std::mem::take(&mut self.text);
        let logprobs = if part == Part::Content { ",\"logprobs\":[]" } else { "" };
        self.event(to, &format!("response.{kind}.done"), &format!("{place}{logprobs},\"text\":\"{text}\""));
        self.event(to, "response.content_part.done", &format!("{place},\"part\":{}", content(part, &text)));
        let item = item(part, &self.number, item_status(part, ask), Some(&text));
        let output = self.items.len();
        self.event(to, "response.output_item.done", &format!("\"output_index\":{output},\"item\":{item}"));
        self.items.push(item);
    }

    /// The response as it stands; `usage` says that it is to be reported now, and `error` is JSON.
    fn response(&self, ask: &Ask, status: &str, items: &[String], (usage, error): (bool, &str)) -> String {
        let details = match status {
            "incomplete" => "{\"reason\":\"max_output_tokens\"}",
            _ => "null",
        };
        let usage = if usage && ask.usage { self::usage(ask) } else { "null".to_owned() };
        let limit = match ask.finish {
            Finish::Stop => "null".to_owned(),
            Finish::Length => ask.output.to_string(),
        };
        format!(
            "{{\"id\":\"{}\",\"object\":\"response\",\"created_at\":{CREATED},\"status\":\"{status}\",\"error\":{error},\
             \"incomplete_details\":{details},\"max_output_tokens\":{limit},\"model\":{},\"output\":[{}],\"usage\":{usage}}}",
            self.id,
            ask.model,
            items.join(",")
        )
    }
}

impl Reply for Answer {
    fn open(&mut self, to: &mut Vec<u8>, ask: &Ask) {
        let response = format!("\"response\":{}", self.response(ask, "in_progress", &[], (false, "null")));
        self.event(to, "response.created", &response);
        self.event(to, "response.in_progress", &response);
    }

    fn text(&mut self, to: &mut Vec<u8>, ask: &Ask, piece: &Piece<'_>) {
        if piece.opens {
            self.begin(to, piece.part);
        }
        self.digits.clear();
        // Writing to a string cannot fail.
        let _ = write!(self.digits, "{}", self.sequence);
        self.sequence += 1;
        self.text.push_str(piece.text);
        chunk(to, &[&self.delta, &self.digits, ",\"delta\":\"", piece.text, "\"}\n\n"]);
        if piece.closes {
            self.end(to, piece.part, ask);
        }
    }

    fn finish(&mut self, to: &mut Vec<u8>, ask: &Ask, _times: Times) {
        let status = status(ask);
        let response = self.response(ask, status, &self.items, (true, "null"));
        self.event(to, &format!("response.{status}"), &format!("\"response\":{response}"));
    }

    fn fail(&mut self, to: &mut Vec<u8>, ask: &Ask) {
        let Refusal { message, .. } = Refusal::broken();
        self.event(to, "error", &format!("\"code\":\"server_error\",\"message\":\"{message}\",\"param\":null"));
        let response = self.broken(ask);
        self.event(to, "response.failed", &format!("\"response\":{response}"));
    }

    fn whole(&self, ask: &Ask, said: &[Said], _times: Times) -> String {
        let items = said.iter().flat_map(|said| [(Part::Reasoning, &said.thoughts), (Part::Content, &said.text)]);
        let there = |(part, _): &(Part, &String)| match part {
            Part::Reasoning => ask.reasoning > 0,
            Part::Content => ask.reasoning < ask.output,
        };
        let items = items.filter(there).map(|(part, text)| item(part, &self.number, item_status(part, ask), Some(text)));
        self.response(ask, status(ask), &items.collect::<Vec<_>>(), (true, "null"))
    }

    fn broken(&self, ask: &Ask) -> String {
        let error = format!("{{\"code\":\"server_error\",\"message\":\"{}\"}}", Refusal::broken().message);
        self.response(ask, "failed", &self.items, (false, &error))
    }
}

fn status(ask: &Ask) -> &'static str {
    match ask.finish {
        Finish::Stop => "completed",
        Finish::Length => "incomplete",
    }
}

/// The item in which the limit was hit is incomplete.
fn item_status(part: Part, ask: &Ask) -> &'static str {
    match part {
        Part::Reasoning if ask.reasoning < ask.output => "completed",
        _ => status(ask),
    }
}

/// An item; None for its text while it has no content.
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
        Part::Content => format!("{{\"type\":\"output_text\",\"text\":\"{text}\",\"annotations\":[],\"logprobs\":[]}}"),
    }
}

fn usage(ask: &Ask) -> String {
    let (input, output, cached) = (ask.prompt.tokens(), ask.output, ask.cached.unwrap_or(0));
    format!(
        "{{\"input_tokens\":{input},\"input_tokens_details\":{{\"cached_tokens\":{cached}}},\"output_tokens\":{output},\
         \"output_tokens_details\":{{\"reasoning_tokens\":{}}},\"total_tokens\":{}}}",
        ask.reasoning,
        input.saturating_add(output)
    )
}
