//! Anthropic messages. Reasoning is a thinking block before the text block.

use super::{ChoiceText, Part, Piece, Protocol, Reply, Times};
use crate::generation::{Call, Finish, Generation, Refusal};
use crate::http::chunk;
use serde_json::json;

/// The dummy signature of a thinking block.
const SIGNATURE: &str = "c2ltdWxhdGVk";

#[derive(Debug)]
pub(super) struct Messages;

impl Protocol for Messages {
    fn paths(&self) -> &'static [&'static str] {
        &["/v1/messages"]
    }

    fn id(&self, number: u64) -> String {
        format!("msg-sim-{number}")
    }

    fn read(&self, call: &Call<'_>) -> Result<(Generation, Box<dyn Reply>), Refusal> {
        let body = call.body;
        body.need("max_tokens")?;
        let mut prompt = call.prompt();
        if let Some(system) = body.get("system") {
            prompt
                .content(system)
                .ok_or_else(|| body.wrong("system", "must be text or a list of blocks"))?;
        }
        call.messages(&mut prompt, body)?;
        let generation = call.generation(prompt, body.limit("max_tokens")?)?;
        Ok((
            generation,
            Box::new(Answer {
                id: call.id.to_owned(),
                block: 0,
            }),
        ))
    }

    fn error(&self, refusal: &Refusal, id: Option<&str>) -> String {
        error(refusal, id)
    }
}

fn error(refusal: &Refusal, id: Option<&str>) -> String {
    let kind = match refusal.status {
        401 => "authentication_error",
        403 => "permission_error",
        404 => "not_found_error",
        413 => "request_too_large",
        429 => "rate_limit_error",
        529 => "overloaded_error",
        500.. => "api_error",
        _ => "invalid_request_error",
    };
    json!({ "type": "error", "error": { "type": kind, "message": refusal.message }, "request_id": id }).to_string()
}

#[derive(Debug)]
struct Answer {
    id: String,
    /// Index of the open block, or of the next one.
    block: usize,
}

impl Answer {
    /// The beginning of a message, around its content.
    fn message(&self, generation: &Generation, content: &str, reason: &str, output: u64) -> String {
        let usage = usage(generation, output)
            .map(|usage| format!(",\"usage\":{usage}"))
            .unwrap_or_default();
        format!(
            "{{\"id\":\"{}\",\"type\":\"message\",\"role\":\"assistant\",\"model\":{},\"content\":[{content}],\
             \"stop_reason\":{reason},\"stop_sequence\":null{usage}}}",
            self.id, generation.model
        )
    }
}

impl Reply for Answer {
    fn open(&mut self, to: &mut Vec<u8>, generation: &Generation) {
        let message = self.message(generation, "", "null", 0);
        chunk(
            to,
            &[
                "event: message_start\ndata: {\"type\":\"message_start\",\"message\":",
                &message,
                "}\n\n",
            ],
        );
        chunk(to, &["event: ping\ndata: {\"type\":\"ping\"}\n\n"]);
    }

    fn text(&mut self, to: &mut Vec<u8>, _generation: &Generation, piece: &Piece<'_>) {
        let index = if self.block == 0 { "0" } else { "1" };
        let (block, delta) = match piece.part {
            Part::Reasoning => (
                "\"thinking\",\"thinking\":\"\",\"signature\":\"\"",
                "\"thinking_delta\",\"thinking\":\"",
            ),
            Part::Content => ("\"text\",\"text\":\"\"", "\"text_delta\",\"text\":\""),
        };
        let start =
            "event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":";
        let middle =
            "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":";
        let stop = "event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":";
        if piece.opens {
            chunk(
                to,
                &[
                    start,
                    index,
                    ",\"content_block\":{\"type\":",
                    block,
                    "}}\n\n",
                ],
            );
        }
        chunk(
            to,
            &[
                middle,
                index,
                ",\"delta\":{\"type\":",
                delta,
                piece.text,
                "\"}}\n\n",
            ],
        );
        if piece.closes {
            if piece.part == Part::Reasoning {
                let delta = ",\"delta\":{\"type\":\"signature_delta\",\"signature\":\"";
                chunk(to, &[middle, index, delta, SIGNATURE, "\"}}\n\n"]);
            }
            chunk(to, &[stop, index, "}\n\n"]);
            self.block += 1;
        }
    }

    fn finish(&mut self, to: &mut Vec<u8>, generation: &Generation, _times: Times) {
        let usage = usage(generation, generation.output)
            .map(|usage| format!(",\"usage\":{usage}"))
            .unwrap_or_default();
        let delta =
            "event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":";
        chunk(
            to,
            &[
                delta,
                reason(generation),
                ",\"stop_sequence\":null}",
                &usage,
                "}\n\n",
            ],
        );
        chunk(
            to,
            &["event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n"],
        );
    }

    fn fail(&mut self, to: &mut Vec<u8>, generation: &Generation) {
        chunk(
            to,
            &["event: error\ndata: ", &self.broken(generation), "\n\n"],
        );
    }

    fn full_answer(
        &self,
        generation: &Generation,
        choices: &[ChoiceText],
        _times: Times,
    ) -> String {
        let block = |choice: &ChoiceText| {
            let (thinking, text) = (&choice.thoughts, &choice.text);
            let thinking = format!(
                "{{\"type\":\"thinking\",\"thinking\":\"{thinking}\",\"signature\":\"{SIGNATURE}\"}}"
            );
            let text = format!("{{\"type\":\"text\",\"text\":\"{text}\"}}");
            let blocks = [
                (thinking, generation.reasoning > 0),
                (text, generation.reasoning < generation.output),
            ];
            blocks
                .into_iter()
                .filter(|(_, there)| *there)
                .map(|(block, _)| block)
                .collect::<Vec<_>>()
                .join(",")
        };
        let content: String = choices.iter().map(block).collect();
        self.message(generation, &content, reason(generation), generation.output)
    }

    fn broken(&self, _generation: &Generation) -> String {
        error(&Refusal::broken(), Some(&self.id))
    }
}

fn reason(generation: &Generation) -> &'static str {
    match generation.finish {
        Finish::Stop => "\"end_turn\"",
        Finish::Length => "\"max_tokens\"",
    }
}

/// In this API, input tokens exclude cached tokens.
fn usage(generation: &Generation, output: u64) -> Option<String> {
    let (input, cached) = (generation.prompt.tokens(), generation.cached);
    let usage = match cached {
        None => json!({ "input_tokens": input, "output_tokens": output }),
        Some(cached) => json!({
            "input_tokens": input.saturating_sub(cached), "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": cached, "output_tokens": output,
        }),
    };
    generation.usage.then(|| usage.to_string())
}

#[cfg(test)]
mod tests {
    use crate::tests::client::{Client, simulator};
    use llmscen_core::simulator::Faults;
    use serde_json::{Value, json};

    const PATH: &str = "/v1/messages";

    fn body(fields: &str) -> String {
        format!(
            r#"{{"model":"m","max_tokens":2,"messages":[{{"role":"user","content":"123456789"}}]{fields}}}"#
        )
    }

    fn message(content: Value, reason: Value, output: u64) -> Value {
        json!({
            "id": "msg-sim-0", "type": "message", "role": "assistant", "model": "m", "content": content,
                "stop_reason": reason,
            "stop_sequence": null, "usage": { "input_tokens": 3, "output_tokens": output },
        })
    }

    #[test]
    fn a_stream_is_these_events() {
        let server = simulator(Faults {
            reasoning_tokens: 1,
            ..Faults::default()
        });
        let answer = Client::connect(&server).post_with(
            PATH,
            "x-api-key: k\r\nanthropic-version: 2023-06-01\r\n",
            &body(r#","stream":true"#),
        );
        let delta = |index: u64, delta: Value| json!({ "type": "content_block_delta", "index": index, "delta": delta });
        let thinking = json!({ "type": "thinking", "thinking": "", "signature": "" });
        let expected = [
            json!({ "type": "message_start", "message": message(json!([]), Value::Null, 0) }),
            json!({ "type": "ping" }),
            json!({ "type": "content_block_start", "index": 0, "content_block": thinking }),
            delta(0, json!({ "type": "thinking_delta", "thinking": " is" })),
            delta(
                0,
                json!({ "type": "signature_delta", "signature": "c2ltdWxhdGVk" }),
            ),
            json!({ "type": "content_block_stop", "index": 0 }),
            json!({ "type": "content_block_start", "index": 1, "content_block": { "type": "text", "text": "" } }),
            delta(1, json!({ "type": "text_delta", "text": " by" })),
            json!({ "type": "content_block_stop", "index": 1 }),
            json!({
                "type": "message_delta", "delta": { "stop_reason": "max_tokens", "stop_sequence": null },
                "usage": { "input_tokens": 3, "output_tokens": 2 },
            }),
            json!({ "type": "message_stop" }),
        ];
        assert_eq!(answer.events(), expected);
        assert_eq!(
            answer.names(),
            expected.map(|event| event["type"].as_str().unwrap().to_owned())
        );
    }

    #[test]
    fn a_reply_has_blocks_and_usage() {
        let server = simulator(Faults {
            reasoning_tokens: 1,
            ..Faults::default()
        });
        let mut client = Client::connect(&server);
        let whole = client
            .post(
                PATH,
                &body(r#","system":"12345678","tools":[{"name":"t"}]"#),
            )
            .json();
        let content = json!([{ "type": "thinking", "thinking": " is", "signature": "c2ltdWxhdGVk" },
            { "type": "text", "text": " by" }]);
        let mut expected = message(content, json!("max_tokens"), 2);
        expected["usage"]["input_tokens"] = 5.into();
        assert_eq!(whole, expected);
        let silent = simulator(Faults {
            no_usage: true,
            ..Faults::default()
        });
        let answer = Client::connect(&silent).post(PATH, &body(r#","stream":true"#));
        assert!(!answer.body().contains("usage") && answer.body().contains("message_stop"));
    }

    #[test]
    fn refusals_have_anthropics_shape() {
        let server = simulator(Faults::default());
        let answer = Client::connect(&server).post(PATH, r#"{"messages":[]}"#);
        let error =
            json!({ "type": "invalid_request_error", "message": "`max_tokens` is missing" });
        assert_eq!(answer.status, 400);
        assert_eq!(
            answer.json(),
            json!({ "type": "error", "error": error, "request_id": "msg-sim-0" })
        );
        let answer = Client::connect(&server).post(PATH, "{");
        assert!(
            answer.json()["error"]["message"]
                .as_str()
                .unwrap()
                .starts_with("the body is not JSON: EOF")
        );
    }
}
