//! DashScope's native generation. Its streams end with the finish reason in the last event, without an end marker.

use super::{ChoiceText, Part, Piece, Protocol, Reply, Times};
use crate::generation::{Call, Generation, Refusal};
use crate::http::{Request, chunk};
use serde_json::json;
use std::fmt::Write;

#[derive(Debug)]
pub(super) struct Dashscope;

impl Protocol for Dashscope {
    fn paths(&self) -> &'static [&'static str] {
        &["/api/v1/services/aigc/text-generation/generation"]
    }

    fn id(&self, number: u64) -> String {
        format!("req-sim-{number}")
    }

    fn read(&self, call: &Call<'_>) -> Result<(Generation, Box<dyn Reply>), Refusal> {
        let (input, parameters) = (call.body.object("input")?, call.body.object("parameters")?);
        let mut prompt = call.prompt();
        match input.text("prompt")? {
            Some(text) => prompt.text(text),
            None => call.messages(&mut prompt, input)?,
        }
        if parameters.count("n")?.is_some_and(|n| n != 1) {
            return Err(parameters.wrong("n", "must be 1: the simulator gives one choice here"));
        }
        let bare = match parameters.text("result_format")? {
            None | Some("message") => false,
            Some("text") => true,
            Some(_) => return Err(parameters.wrong("result_format", "must be `message` or `text`")),
        };
        let incremental = parameters.flag("incremental_output", false)?;
        let generation = call.generation(prompt, parameters.limit("max_tokens")?)?;
        let generation = Generation {
            stream: streams(call.request),
            ..generation
        };
        let event = String::new();
        Ok((
            generation,
            Box::new(Answer {
                id: call.id.to_owned(),
                bare,
                incremental,
                choice: ChoiceText::default(),
                events: 0,
                event,
            }),
        ))
    }

    fn error(&self, refusal: &Refusal, id: Option<&str>) -> String {
        error(refusal, id)
    }
}

/// Whether to stream: by `X-DashScope-SSE`, or if the client only accepts event streams.
fn streams(request: &Request) -> bool {
    let is = |header: &str, value: &str| header.eq_ignore_ascii_case(value);
    match request.header("x-dashscope-sse") {
        Some(header) => is(header, "enable"),
        None => request
            .header("accept")
            .is_some_and(|header| is(header, "text/event-stream")),
    }
}

fn error(refusal: &Refusal, id: Option<&str>) -> String {
    let code = match refusal.status {
        401 => "InvalidApiKey",
        403 => "AccessDenied",
        404 => "NotFound",
        429 => "Throttling",
        500.. => "InternalError",
        _ => "InvalidParameter",
    };
    json!({ "code": code, "message": refusal.message, "request_id": id }).to_string()
}

#[derive(Debug)]
struct Answer {
    id: String,
    /// The output is a text, not a list of choices.
    bare: bool,
    /// Events have the new text only, not all text so far.
    incremental: bool,
    choice: ChoiceText,
    /// Number of events.
    events: u64,
    /// The current event.
    event: String,
}

impl Answer {
    /// Appends an output of these texts.
    fn output(
        &self,
        to: &mut String,
        (thoughts, text): (&str, &str),
        reason: &str,
        generation: &Generation,
    ) {
        let [lead, thoughts, close] = if generation.reasoning > 0 {
            [",\"reasoning_content\":\"", thoughts, "\""]
        } else {
            [""; 3]
        };
        // Writing to a string cannot fail.
        let _ = match self.bare {
            true => write!(
                to,
                "\"output\":{{\"text\":\"{text}\",\"finish_reason\":\"{reason}\"}}"
            ),
            false => write!(
                to,
                "\"output\":{{\"choices\":[{{\"message\":{{\"role\":\"assistant\",\"content\":\"{text}\"{lead}{thoughts}{close}}},\"finish_reason\":\"{reason}\"}}]}}"
            ),
        };
    }

    /// Appends the usage after `made` tokens, and the id.
    fn tail(&self, to: &mut String, generation: &Generation, made: u64) {
        if generation.usage {
            let input = generation.prompt.tokens();
            let total = input.saturating_add(made);
            let _ = write!(
                to,
                ",\"usage\":{{\"total_tokens\":{total},\"input_tokens\":{input},\"output_tokens\":{made}"
            );
            if generation.reasoning > 0 {
                let thoughts = made.min(generation.reasoning);
                let _ = write!(
                    to,
                    ",\"output_tokens_details\":{{\"reasoning_tokens\":{thoughts}}}"
                );
            }
            if let Some(cached) = generation.cached {
                let _ = write!(
                    to,
                    ",\"prompt_tokens_details\":{{\"cached_tokens\":{cached}}}"
                );
            }
            to.push('}');
        }
        let _ = write!(to, ",\"request_id\":\"{}\"", self.id);
    }

    /// Stores the text of an event, appended to the previous text if events are cumulative.
    fn hear(&mut self, piece: &Piece<'_>) {
        if self.incremental {
            self.choice = ChoiceText::default();
        }
        match piece.part {
            Part::Reasoning => self.choice.thoughts.push_str(piece.text),
            Part::Content => self.choice.text.push_str(piece.text),
        }
    }
}

impl Reply for Answer {
    fn content_type(&self) -> &'static str {
        "text/event-stream;charset=UTF-8"
    }

    fn text(&mut self, to: &mut Vec<u8>, generation: &Generation, piece: &Piece<'_>) {
        self.hear(piece);
        self.events += 1;
        let mut event = std::mem::take(&mut self.event);
        event.clear();
        let _ = write!(
            event,
            "id:{}\nevent:result\n:HTTP_STATUS/200\ndata:{{",
            self.events
        );
        let reason = if piece.last {
            generation.finish.word()
        } else {
            "null"
        };
        self.output(
            &mut event,
            (&self.choice.thoughts, &self.choice.text),
            reason,
            generation,
        );
        self.tail(&mut event, generation, piece.made);
        chunk(to, &[&event, "}\n\n"]);
        self.event = event;
    }

    fn fail(&mut self, to: &mut Vec<u8>, generation: &Generation) {
        let lead = format!(
            "id:{}\nevent:error\n:HTTP_STATUS/500\ndata:",
            self.events + 1
        );
        chunk(to, &[&lead, &self.broken(generation), "\n\n"]);
    }

    fn full_answer(
        &self,
        generation: &Generation,
        choices: &[ChoiceText],
        _times: Times,
    ) -> String {
        let mut to = "{".to_owned();
        for choice in choices {
            self.output(
                &mut to,
                (&choice.thoughts, &choice.text),
                generation.finish.word(),
                generation,
            );
        }
        self.tail(&mut to, generation, generation.output);
        to + "}"
    }

    fn broken(&self, _generation: &Generation) -> String {
        error(&Refusal::broken(), Some(&self.id))
    }
}

#[cfg(test)]
mod tests {
    use crate::tests::client::{Client, simulator};
    use llmscen_core::simulator::Faults;
    use serde_json::{Value, json};

    const PATH: &str = "/api/v1/services/aigc/text-generation/generation";
    const SSE: &str = "X-DashScope-SSE: enable\r\n";

    fn body(parameters: &str) -> String {
        let input = r#"{"messages":[{"role":"user","content":"123456789"}]}"#;
        format!(r#"{{"model":"m","input":{input},"parameters":{{"max_tokens":2{parameters}}}}}"#)
    }

    fn event(text: &str, reason: &str, output: u64) -> Value {
        json!({
            "output": { "choices": [{ "message": { "role": "assistant", "content": text }, "finish_reason": reason }] },
            "usage": { "total_tokens": 3 + output, "input_tokens": 3, "output_tokens": output },
                "request_id": "req-sim-0",
        })
    }

    #[test]
    fn streams_repeat_the_text_or_carry_what_is_new() {
        let server = simulator(Faults::default());
        let answer = Client::connect(&server).post_with(PATH, SSE, &body(""));
        assert!(
            answer
                .head
                .contains("content-type: text/event-stream;charset=UTF-8\r\n"),
            "{}",
            answer.head
        );
        assert_eq!(
            answer.events(),
            [event(" is", "null", 1), event(" is by", "length", 2)]
        );
        assert!(
            answer.chunks[1].starts_with("id:2\nevent:result\n:HTTP_STATUS/200\ndata:{\"output\":"),
            "{}",
            answer.chunks[1]
        );
        let server = simulator(Faults::default());
        let answer =
            Client::connect(&server).post_with(PATH, SSE, &body(r#","incremental_output":true"#));
        assert_eq!(
            answer.events(),
            [event(" is", "null", 1), event(" by", "length", 2)]
        );
    }

    #[test]
    fn whole_answers_come_in_either_format() {
        let server = simulator(Faults::default());
        let mut client = Client::connect(&server);
        assert_eq!(
            client.post(PATH, &body("")).json(),
            event(" is by", "length", 2)
        );
        let bare = client
            .post(PATH, &body(r#","result_format":"text""#))
            .json();
        assert_eq!(bare["output"]["finish_reason"], "length");
        assert_eq!(
            bare["output"]["text"]
                .as_str()
                .unwrap()
                .matches(' ')
                .count(),
            2
        );
        assert_eq!(bare["request_id"], "req-sim-1");
    }

    #[test]
    fn reasoning_is_a_separate_field() {
        let server = simulator(Faults {
            reasoning_tokens: 1,
            ..Faults::default()
        });
        let events = Client::connect(&server)
            .post_with(PATH, SSE, &body(r#","incremental_output":true"#))
            .events();
        let messages: Vec<&Value> = events
            .iter()
            .map(|event| &event["output"]["choices"][0]["message"])
            .collect();
        let message = |thoughts: &str, text: &str| {
            json!({ "role": "assistant", "content": text,
            "reasoning_content": thoughts })
        };
        assert_eq!(messages, [&message(" is", ""), &message("", " by")]);
        assert_eq!(
            events[1]["usage"]["output_tokens_details"],
            json!({ "reasoning_tokens": 1 })
        );
        let silent = simulator(Faults {
            no_usage: true,
            ..Faults::default()
        });
        assert!(
            !Client::connect(&silent)
                .post_with(PATH, SSE, &body(""))
                .body()
                .contains("usage")
        );
    }

    #[test]
    fn refusals_have_dashscopes_shape() {
        let server = simulator(Faults::default());
        let answer =
            Client::connect(&server).post(PATH, r#"{"input":{"prompt":"x"},"parameters":{"n":2}}"#);
        let message = "`parameters.n` must be 1: the simulator gives one choice here";
        assert_eq!(answer.status, 400);
        assert_eq!(
            answer.json(),
            json!({ "code": "InvalidParameter", "message": message, "request_id": "req-sim-0" })
        );
    }
}
