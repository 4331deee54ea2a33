//! Text Generation Inference's native generation. No reasoning; the last event has the complete text.

use super::{ChoiceText, Piece, Protocol, Reply, Times};
use crate::generation::{Call, Finish, Generation, Refusal};
use crate::http::chunk;
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

    fn read(&self, call: &Call<'_>) -> Result<(Generation, Box<dyn Reply>), Refusal> {
        // TGI rejects invalid input with a specific status.
        read(call).map_err(|refusal| Refusal {
            status: 422,
            ..refusal
        })
    }

    fn error(&self, refusal: &Refusal, _id: Option<&str>) -> String {
        error(refusal)
    }
}

fn read(call: &Call<'_>) -> Result<(Generation, Box<dyn Reply>), Refusal> {
    let parameters = call.body.object("parameters")?;
    let mut prompt = call.prompt();
    prompt.text(
        call.body
            .text("inputs")?
            .ok_or_else(|| call.body.wrong("inputs", "is missing"))?,
    );
    let generation = call.generation(prompt, parameters.limit("max_new_tokens")?)?;
    let generation = Generation {
        stream: call.path == "/generate_stream",
        reasoning: 0,
        ..generation
    };
    let reply = Answer {
        details: parameters.flag("details", false)?,
        text: String::new(),
        digits: String::new(),
    };
    Ok((generation, Box::new(reply)))
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
    /// Include details in a response without streaming.
    details: bool,
    /// All text so far.
    text: String,
    /// Index of the event's last token.
    digits: String,
}

impl Reply for Answer {
    fn content_type(&self) -> &'static str {
        "text/event-stream"
    }

    fn text(&mut self, to: &mut Vec<u8>, generation: &Generation, piece: &Piece<'_>) {
        self.text.push_str(piece.text);
        self.digits.clear();
        // Writing to a string cannot fail.
        let _ = write!(self.digits, "{}", piece.made);
        let token = ",\"token\":{\"id\":0,\"text\":\"";
        let end = match piece.last {
            true => format!("\"{}\",\"details\":{}", self.text, details(generation, "")),
            false => String::new(),
        };
        let rest = if piece.last {
            end.as_str()
        } else {
            "null,\"details\":null"
        };
        let close = "\",\"logprob\":0.0,\"special\":false},\"generated_text\":";
        chunk(
            to,
            &[
                "data:{\"index\":",
                &self.digits,
                token,
                piece.text,
                close,
                rest,
                "}\n\n",
            ],
        );
    }

    fn fail(&mut self, to: &mut Vec<u8>, generation: &Generation) {
        chunk(to, &["data:", &self.broken(generation), "\n\n"]);
    }

    fn full_answer(
        &self,
        generation: &Generation,
        choices: &[ChoiceText],
        _times: Times,
    ) -> String {
        let text: String = choices.iter().map(|choice| choice.text.as_str()).collect();
        let details = match self.details {
            true => format!(
                ",\"details\":{}",
                details(generation, ",\"prefill\":[],\"tokens\":[]")
            ),
            false => String::new(),
        };
        format!("{{\"generated_text\":\"{text}\"{details}}}")
    }

    fn broken(&self, _generation: &Generation) -> String {
        error(&Refusal::broken())
    }
}

/// Finish reason and counts of a response; `more` is inserted.
fn details(generation: &Generation, more: &str) -> String {
    let reason = match generation.finish {
        Finish::Stop => "eos_token",
        Finish::Length => "length",
    };
    let counts = match generation.usage {
        true => format!(
            ",\"generated_tokens\":{},\"input_length\":{}",
            generation.output,
            generation.prompt.tokens()
        ),
        false => String::new(),
    };
    format!("{{\"finish_reason\":\"{reason}\"{counts},\"seed\":null{more}}}")
}

#[cfg(test)]
mod tests {
    use crate::tests::client::{Client, simulator};
    use llmscen_core::simulator::Faults;
    use serde_json::{Value, json};

    fn event(index: u64, text: &str, generated: Value, details: Value) -> Value {
        let token = json!({ "id": 0, "text": text, "logprob": 0.0, "special": false });
        json!({ "index": index, "token": token, "generated_text": generated, "details": details })
    }

    #[test]
    fn a_stream_ends_with_the_complete_text() {
        let server = simulator(Faults::default());
        let answer = Client::connect(&server).post(
            "/generate_stream",
            r#"{"inputs":"123456789","parameters":{"max_new_tokens":2}}"#,
        );
        let details = json!({ "finish_reason": "length", "generated_tokens": 2, "input_length": 3, "seed": null });
        assert_eq!(
            answer.events(),
            [
                event(1, " is", Value::Null, Value::Null),
                event(2, " by", json!(" is by"), details)
            ]
        );
        assert!(
            answer
                .chunks
                .iter()
                .all(|chunk| chunk.starts_with("data:{") && chunk.ends_with("}\n\n"))
        );
    }

    #[test]
    fn a_reply_has_details_on_request() {
        let server = simulator(Faults::default());
        let mut client = Client::connect(&server);
        let plain = client
            .post(
                "/generate",
                r#"{"inputs":"x","parameters":{"max_new_tokens":2}}"#,
            )
            .json();
        assert_eq!(plain, json!({ "generated_text": " is by" }));
        let detailed = client
            .post(
                "/generate",
                r#"{"inputs":"x","parameters":{"details":true}}"#,
            )
            .json();
        let details = json!({
            "finish_reason": "eos_token", "generated_tokens": 64, "input_length": 1, "seed": null,
                "prefill": [], "tokens": [],
        });
        assert_eq!(detailed["details"], details);
        let refused = client.post("/generate", r#"{"inputs":7}"#);
        assert_eq!(refused.status, 422);
        assert_eq!(
            refused.json(),
            json!({ "error": "`inputs` must be text, not 7", "error_type": "validation" })
        );
        let silent = simulator(Faults {
            no_usage: true,
            ..Faults::default()
        });
        let answer = Client::connect(&silent).post("/generate_stream", r#"{"inputs":"x"}"#);
        assert_eq!(
            answer.events()[63]["details"],
            json!({ "finish_reason": "eos_token", "seed": null })
        );
    }
}
