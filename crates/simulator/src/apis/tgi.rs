//! Text Generation Inference's native generation. It knows no reasoning; its last event carries the whole text.

use super::{Piece, Protocol, Reply, Said, Times};
use crate::ask::{Ask, Call, Finish};
use crate::fields::Refusal;
use crate::frame::chunk;
use serde_json::json;
use std::fmt::Write;

#[derive(Debug)]
pub(super) struct Tgi;

impl Protocol for Tgi {
    fn paths(&self) -> &'static [&'static str] {
        &["/generate_stream", "/generate"]
    }

    fn id(&self, number: u64) -> String {
        format!("tgi-sim-{number}")
    }

    fn read(&self, call: &Call<'_>) -> Result<(Ask, Box<dyn Reply>), Refusal> {
        // What it cannot process it refuses with a status of its own.
        read(call).map_err(|refusal| Refusal { status: 422, ..refusal })
    }

    fn error(&self, refusal: &Refusal, _id: Option<&str>) -> String {
        error(refusal)
    }
}

fn read(call: &Call<'_>) -> Result<(Ask, Box<dyn Reply>), Refusal> {
    let parameters = call.body.object("parameters")?;
    let mut prompt = call.prompt();
    prompt.text(call.body.text("inputs")?.ok_or_else(|| call.body.wrong("inputs", "is missing"))?);
    let ask = call.ask(prompt, parameters.limit("max_new_tokens")?)?;
    let ask = Ask { stream: call.path == "/generate_stream", reasoning: 0, ..ask };
    let reply = Answer { details: parameters.flag("details", false)?, text: String::new(), digits: String::new() };
    Ok((ask, Box::new(reply)))
}

fn error(refusal: &Refusal) -> String {
    let kind = match refusal.status {
        429 => "overloaded",
        500.. => "generation",
        _ => "validation",
    };
    json!({ "error": refusal.message, "error_type": kind }).to_string()
}

#[derive(Debug)]
struct Answer {
    /// A whole answer carries its details.
    details: bool,
    /// All text so far.
    text: String,
    /// The number of the event's last token.
    digits: String,
}

impl Reply for Answer {
    fn content_type(&self) -> &'static str {
        "text/event-stream"
    }

    fn text(&mut self, to: &mut Vec<u8>, ask: &Ask, piece: &Piece<'_>) {
        self.text.push_str(piece.text);
        self.digits.clear();
        // Writing to a string cannot fail.
        let _ = write!(self.digits, "{}", piece.made);
        let token = ",\"token\":{\"id\":0,\"text\":\"";
        let end = match piece.last {
            true => format!("\"{}\",\"details\":{}", self.text, details(ask, "")),
            false => String::new(),
        };
        let rest = if piece.last { end.as_str() } else { "null,\"details\":null" };
        let close = "\",\"logprob\":0.0,\"special\":false},\"generated_text\":";
        chunk(to, &["data:{\"index\":", &self.digits, token, piece.text, close, rest, "}\n\n"]);
    }

    fn fail(&mut self, to: &mut Vec<u8>, ask: &Ask) {
        chunk(to, &["data:", &self.broken(ask), "\n\n"]);
    }

    fn whole(&self, ask: &Ask, said: &[Said], _times: Times) -> String {
        let text: String = said.iter().map(|said| said.text.as_str()).collect();
        let details = match self.details {
            true => format!(",\"details\":{}", details(ask, ",\"prefill\":[],\"tokens\":[]")),
            false => String::new(),
        };
        format!("{{\"generated_text\":\"{text}\"{details}}}")
    }

    fn broken(&self, _ask: &Ask) -> String {
        error(&Refusal::broken())
    }
}

/// How the answer ended and what it counts; `more` goes into it.
fn details(ask: &Ask, more: &str) -> String {
    let reason = match ask.finish {
        Finish::Stop => "eos_token",
        Finish::Length => "length",
    };
    let counts = match ask.usage {
        true => format!(",\"generated_tokens\":{},\"input_length\":{}", ask.output, ask.prompt.tokens()),
        false => String::new(),
    };
    format!("{{\"finish_reason\":\"{reason}\"{counts},\"seed\":null{more}}}")
}
