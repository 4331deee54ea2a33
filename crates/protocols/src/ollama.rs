//! Ollama's native chat and generation: NDJSON with times of the server.

use crate::accumulator::Accumulator;
use crate::content_kind::ContentKind;
use crate::decoder::{Assembly, decoder_for};
use crate::error::error_text;
use crate::framing::Event;
use crate::raw_json::{Raw, decode_failure, is_error, parse_count, reason_text};
use crate::{DecodeOptions, Decoder, Events, Protocol, Reply};
use llmscen_core::outcome::{Failure, FailureKind, Finish, ServerTimes, Usage};
use llmscen_core::request::Framing;
use llmscen_core::units::Nanos;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

/// `POST /api/chat`; replies of `POST /api/generate` are decoded too.
pub struct Ollama;

impl Protocol for Ollama {
    fn body(&self, stream: bool) -> Value {
        json!({ "model": "{{ model }}", "messages": "{{ messages }}", "stream": stream })
    }

    fn streams_lines(&self) -> bool {
        true
    }

    fn decoder(&self, shape: Framing, options: &DecodeOptions) -> Box<dyn Decoder> {
        let messages = OllamaMessages {
            accumulator: Accumulator::new(options),
            calls: Vec::new(),
            done: false,
        };
        decoder_for(shape, messages)
    }
}

/// One line of a stream, or a reply.
#[derive(Deserialize)]
struct Line<'a> {
    #[serde(borrow)]
    message: Option<Message<'a>>,
    #[serde(borrow)]
    response: Raw<'a>,
    #[serde(borrow)]
    thinking: Raw<'a>,
    #[serde(borrow)]
    done: Raw<'a>,
    #[serde(borrow)]
    done_reason: Raw<'a>,
    #[serde(borrow)]
    error: Raw<'a>,
    #[serde(borrow)]
    prompt_eval_count: Raw<'a>,
    #[serde(borrow)]
    eval_count: Raw<'a>,
    #[serde(borrow)]
    load_duration: Raw<'a>,
    #[serde(borrow)]
    prompt_eval_duration: Raw<'a>,
    #[serde(borrow)]
    eval_duration: Raw<'a>,
    #[serde(borrow)]
    total_duration: Raw<'a>,
}

#[derive(Deserialize)]
struct Message<'a> {
    #[serde(borrow)]
    content: Raw<'a>,
    #[serde(borrow)]
    thinking: Raw<'a>,
    #[serde(borrow)]
    tool_calls: Raw<'a>,
}

/// The state of one response.
struct OllamaMessages {
    accumulator: Accumulator,
    /// Tool calls so far, if text is collected; each arrives complete.
    calls: Vec<Value>,
    done: bool,
}

impl OllamaMessages {
    fn add(&mut self, json: &[u8]) -> Result<(), Failure> {
        let text = String::from_utf8_lossy(json);
        let line: Line =
            serde_json::from_str(&text).map_err(|error| decode_failure(&error, json))?;
        if is_error(line.error) {
            return Err(Failure::new(FailureKind::StreamError, error_text(json)));
        }
        self.accumulator
            .add_text(0, ContentKind::Reasoning, line.thinking)?;
        self.accumulator
            .add_text(0, ContentKind::Answer, line.response)?;
        if let Some(message) = &line.message {
            self.accumulator
                .add_text(0, ContentKind::Reasoning, message.thinking)?;
            self.accumulator
                .add_text(0, ContentKind::Answer, message.content)?;
            self.add_calls(message.tool_calls)?;
        }
        self.done |= line.done.is_some_and(|done| done.get() == "true");
        if self.done {
            let reason = reason_text(line.done_reason);
            // `load` and `unload` are not finish reasons of a generation.
            if !["load", "unload"].contains(&&*reason) {
                self.accumulator.choice(0)?.set_finish_reason(&reason);
            }
            self.accumulator.add_usage(Some(0), usage(&line))?;
            self.accumulator.server_times = times(&line);
        }
        Ok(())
    }

    fn add_calls(&mut self, raw: Raw<'_>) -> Result<(), Failure> {
        let Some(raw) = raw.filter(|raw| is_list(raw)) else {
            return Ok(());
        };
        let calls: Vec<Value> = serde_json::from_str(raw.get())
            .map_err(|error| decode_failure(&error, raw.get().as_bytes()))?;
        for call in &calls {
            let function = &call["function"];
            let mut text = function["name"].as_str().unwrap_or_default().to_owned();
            if let Some(arguments) = function.get("arguments") {
                text.push_str(&arguments.to_string());
            }
            self.accumulator.mark_call(0, &text)?;
            self.accumulator.keep(0, ContentKind::ToolCall, &text)?;
        }
        if self.accumulator.keeps_text() {
            self.calls.extend(calls);
        }
        Ok(())
    }
}

/// Whether it is a non-empty list.
fn is_list(raw: &RawValue) -> bool {
    raw.get()
        .strip_prefix('[')
        .is_some_and(|rest| !rest.trim_start().starts_with(']'))
}

fn usage(line: &Line<'_>) -> Usage {
    Usage {
        prompt: parse_count(line.prompt_eval_count),
        output: parse_count(line.eval_count),
        ..Usage::default()
    }
}

/// Ollama reports nanoseconds.
fn times(line: &Line<'_>) -> ServerTimes {
    let span = |raw| parse_count(raw).map(Nanos);
    ServerTimes {
        queue: None,
        load: span(line.load_duration),
        prefill: span(line.prompt_eval_duration),
        decode: span(line.eval_duration),
        total: span(line.total_duration),
    }
}

impl Assembly for OllamaMessages {
    fn event(&mut self, event: Event<'_>, events: &mut Events) -> Result<(), Failure> {
        let added = self.add(event.data);
        self.accumulator.emit_pending(events);
        events.done = self.done;
        added
    }

    fn document(&mut self, body: &[u8]) -> Result<(), Failure> {
        self.add(body)
    }

    /// A stream ends with a line with `done`. Older servers send no reason in it.
    fn ending(&self, streamed: bool) -> Result<Finish, Failure> {
        match streamed && !self.done {
            true => Err(Failure::new(
                FailureKind::Truncated,
                "the stream ended without a line with `\"done\": true`",
            )),
            false => self.accumulator.ending(),
        }
    }

    fn close(&self, events: &mut Events) {
        self.accumulator.close(events);
    }

    fn reply(self, end: Result<Finish, Failure>) -> Reply {
        self.accumulator.into_reply_with_calls(end, self.calls)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replay::decode;
    use crate::spec::{Spec, end};
    use crate::{DecodeOptions, Message, protocol};
    use llmscen_core::api::Api;

    #[test]
    fn a_chat_is_read_with_its_reasoning_its_counts_and_the_servers_times() {
        let (events, reply) = Spec::of("ollama.chat.ndjson").read();
        assert_eq!(
            events,
            Events {
                total: 6,
                content: 5,
                reasoning: 2,
                done: true,
                ..Events::default()
            }
        );
        assert_eq!(end(&reply), "stop");
        assert_eq!(reply.text.as_deref(), Some("Hm…The sky is \"blue\"\n"));
        let message = Message {
            content: "The sky is \"blue\"\n".into(),
            reasoning: "Hm…".into(),
            tool_calls: Value::Null,
        };
        assert_eq!(reply.message, Some(message));
        assert_eq!(
            reply.usage,
            Usage {
                prompt: Some(26),
                output: Some(7),
                ..Usage::default()
            }
        );
        let times = ServerTimes {
            queue: None,
            load: Some(Nanos(1_334_875)),
            prefill: Some(Nanos(342_546_000)),
            decode: Some(Nanos(4_535_599_000)),
            total: Some(Nanos(4_883_583_458)),
        };
        assert_eq!(reply.server, times);
    }

    #[test]
    fn replies_of_chat_and_generate_are_decoded() {
        let (events, reply) = Spec::of("ollama.whole.json").read();
        assert_eq!(
            (events, end(&reply).as_str(), reply.text.as_deref()),
            (Events::default(), "stop", Some("HmThe sky is blue."))
        );
        assert_eq!(
            (reply.usage.output, reply.server.load),
            (Some(7), Some(Nanos(1_334_875)))
        );
        let (events, reply) = Spec::of("ollama.generate.ndjson").read();
        assert_eq!(
            (events.total, events.content, end(&reply).as_str()),
            (3, 2, "length")
        );
        assert_eq!(
            (reply.text.as_deref(), reply.usage.output),
            (Some("The sky"), Some(2))
        );
    }

    #[test]
    fn tool_calls_arrive_whole() {
        let (events, reply) = Spec::of("ollama.tools.ndjson").read();
        assert_eq!((events.total, events.content), (3, 2));
        assert_eq!(
            reply.text.as_deref(),
            Some(r#"get_weather{"city":"Tokyo","days":2}now{"zone":"JST"}"#)
        );
        assert_eq!(reply.facts.characters, 53);
        let calls = json!([
            { "function": { "name": "get_weather", "arguments": { "city": "Tokyo", "days": 2 } } },
            { "function": { "name": "now", "arguments": { "zone": "JST" } } },
        ]);
        assert_eq!(reply.message.unwrap().tool_calls, calls);
    }

    #[test]
    fn an_error_line_is_the_reason_and_a_stream_ends_with_done() {
        let run = |body: &str| decode(Api::Ollama, Framing::Ndjson, [body.as_bytes()], None);
        let (events, reply) = Spec::of("ollama.error.ndjson").read();
        let words = "an error was encountered while running the model: CUDA error";
        assert_eq!(
            (events.content, end(&reply)),
            (1, format!("stream_error (event 2): {words}"))
        );
        let hi = r#"{"message":{"content":"hi"},"done":false}"#;
        assert_eq!(
            end(&run(hi).1),
            "truncated (after 1 events): the stream ended without a line with `\"done\": true`"
        );
        let late = format!("{hi}\n{{\"done\":true}}\n{hi}\noops");
        assert_eq!((run(&late).0.total, end(&run(&late).1)), (2, String::new()));
        assert_eq!(
            run(r#"{"message":{"content":""},"done":true,"done_reason":"load"}"#)
                .1
                .end
                .unwrap_err()
                .kind,
            FailureKind::Empty
        );
        assert_eq!(
            run(
                "{\"message\":{\"tool_calls\":[{\"function\":{\"name\":\"f\",\"arguments\":{}}}]}}"
            )
            .1
            .text
            .as_deref(),
            Some("f{}")
        );
        assert_eq!(
            run("{\"message\":{\"tool_calls\":[ ]},\"done\":true}")
                .0
                .content,
            0
        );
        assert_eq!(run("[]").1.end.unwrap_err().kind, FailureKind::Truncated);
    }

    #[test]
    fn the_body_sets_stream_and_text_is_collected_on_request() {
        assert_eq!(
            Ollama.body(true).to_string(),
            r#"{"model":"{{ model }}","messages":"{{ messages }}","stream":true}"#
        );
        assert_eq!(Ollama.body(false)["stream"], false);
        let spec = Spec::of("ollama.tools.ndjson");
        let mut decoder = protocol(Api::Ollama, None)
            .unwrap()
            .decoder(spec.shape, &DecodeOptions::default());
        let mut events = Events::default();
        decoder.push(&spec.body, &mut events);
        let reply = decoder.finish(&mut events, None);
        assert_eq!(
            (events, reply.text, reply.message),
            (spec.read().0, None, None)
        );
    }
}
