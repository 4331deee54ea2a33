//! Text Generation Inference's native generation: one event per token.

use crate::accumulator::Accumulator;
use crate::content_kind::ContentKind;
use crate::decoder::{Assembly, decoder_for};
use crate::error::error_text;
use crate::framing::Event;
use crate::raw_json::{OneOrMany, Raw, decode_failure, is_error, parse_count, reason_text};
use crate::{DecodeOptions, Decoder, Events, Protocol, Reply};
use llmscen_core::outcome::{Failure, FailureKind, Finish, Usage};
use llmscen_core::request::Framing;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Value, json};

/// `POST /generate_stream` and `POST /generate`.
pub struct Tgi;

impl Protocol for Tgi {
    /// The path determines streaming; on `/`, the field does.
    fn body(&self, stream: bool) -> Value {
        json!({ "inputs": "{{ prompt }}", "parameters": { "details": true }, "stream": stream })
    }

    fn decoder(&self, shape: Framing, options: &DecodeOptions) -> Box<dyn Decoder> {
        let steps = Steps {
            accumulator: Accumulator::new(options),
            tokens: 0,
            done: false,
        };
        decoder_for(shape, steps)
    }
}

/// One event, or one generation.
#[derive(Deserialize)]
struct Step<'a> {
    #[serde(borrow)]
    token: Option<Token<'a>>,
    #[serde(borrow)]
    generated_text: Raw<'a>,
    #[serde(borrow)]
    details: Option<Details<'a>>,
    #[serde(borrow)]
    error: Raw<'a>,
}

#[derive(Deserialize)]
struct Token<'a> {
    #[serde(borrow)]
    text: Raw<'a>,
    #[serde(borrow)]
    special: Raw<'a>,
}

#[derive(Deserialize)]
struct Details<'a> {
    #[serde(borrow)]
    finish_reason: Raw<'a>,
    #[serde(borrow)]
    generated_tokens: Raw<'a>,
    #[serde(borrow)]
    input_length: Raw<'a>,
    /// The prompt tokens, if requested.
    prefill: Option<Vec<IgnoredAny>>,
}

/// The state of one response.
struct Steps {
    accumulator: Accumulator,
    /// Token events so far, including special tokens.
    tokens: u64,
    done: bool,
}

impl Steps {
    fn step(&mut self, json: &[u8]) -> Result<(), Failure> {
        let text = String::from_utf8_lossy(json);
        let step: Step =
            serde_json::from_str(&text).map_err(|error| decode_failure(&error, json))?;
        self.check_error(&step, json)?;
        if let Some(token) = &step.token {
            self.tokens = self.tokens.saturating_add(1);
            self.accumulator.set_output_tokens(0, self.tokens)?;
            if token.special.is_none_or(|special| special.get() != "true") {
                self.accumulator
                    .add_text(0, ContentKind::Answer, token.text)?;
            }
        }
        self.close(0, &step)?;
        self.done |= step.generated_text.is_some();
        Ok(())
    }

    fn check_error(&self, step: &Step<'_>, json: &[u8]) -> Result<(), Failure> {
        match is_error(step.error) {
            true => Err(Failure::new(FailureKind::StreamError, error_text(json))),
            false => Ok(()),
        }
    }

    /// Reads the finish reason and the counts of a generation.
    fn close(&mut self, choice: u32, step: &Step<'_>) -> Result<(), Failure> {
        let Some(details) = &step.details else {
            return Ok(());
        };
        let prefill = details
            .prefill
            .as_ref()
            .map(|tokens| tokens.len() as u64)
            .filter(|tokens| *tokens > 0);
        let prompt = parse_count(details.input_length).or(prefill);
        self.accumulator
            .choice(choice)?
            .set_finish_reason(&reason_text(details.finish_reason));
        self.accumulator.add_usage(
            Some(choice),
            Usage {
                prompt,
                output: parse_count(details.generated_tokens),
                ..Usage::default()
            },
        )
    }

    fn generation(&mut self, choice: u32, step: &Step<'_>, json: &[u8]) -> Result<(), Failure> {
        self.check_error(step, json)?;
        self.accumulator.choice(choice)?;
        self.accumulator
            .add_text(choice, ContentKind::Answer, step.generated_text)?;
        self.close(choice, step)
    }
}

impl Assembly for Steps {
    fn event(&mut self, event: Event<'_>, events: &mut Events) -> Result<(), Failure> {
        let added = self.step(event.data);
        self.accumulator.emit_pending(events);
        events.done = self.done;
        added
    }

    /// `/generate` returns an object, `/` a list with one object.
    fn document(&mut self, body: &[u8]) -> Result<(), Failure> {
        let text = String::from_utf8_lossy(body);
        let read = |error| decode_failure(&error, body);
        if !text.trim_start().starts_with('[') {
            return self.generation(0, &serde_json::from_str(&text).map_err(read)?, body);
        }
        let generations: OneOrMany<Step> = serde_json::from_str(&text).map_err(read)?;
        (0..)
            .zip(generations.iter())
            .try_for_each(|(choice, step)| self.generation(choice, step, body))
    }

    /// A stream ends with the event that has the complete text.
    fn ending(&self, streamed: bool) -> Result<Finish, Failure> {
        match streamed && !self.done {
            true => Err(Failure::new(
                FailureKind::Truncated,
                "the stream ended without an event with `generated_text`",
            )),
            false => self.accumulator.ending(),
        }
    }

    fn close(&self, events: &mut Events) {
        self.accumulator.close(events);
    }

    fn reply(self, end: Result<Finish, Failure>) -> Reply {
        self.accumulator.into_reply(end, |_| None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replay::decode;
    use crate::spec::{Spec, end};
    use llmscen_core::api::Api;

    #[test]
    fn a_token_with_text_is_content_and_special_ones_are_none() {
        let (events, reply) = Spec::of("tgi.stream.sse").read();
        // The third token has no text yet: the fourth event brings the text of two.
        assert_eq!(
            events,
            Events {
                total: 6,
                content: 4,
                weights: vec![1, 1, 2, 1],
                done: true,
                ..Events::default()
            }
        );
        assert_eq!(
            (end(&reply).as_str(), reply.text.as_deref()),
            ("eos_token", Some(" Deep learning—é."))
        );
        assert_eq!(reply.message.unwrap().content, " Deep learning—é.");
        assert_eq!(
            reply.usage,
            Usage {
                prompt: Some(17),
                output: Some(6),
                ..Usage::default()
            }
        );
    }

    #[test]
    fn a_reply_is_an_object_or_a_list() {
        for name in ["tgi.whole.json", "tgi.list.json"] {
            let (events, reply) = Spec::of(name).read();
            assert_eq!(
                (events, end(&reply).as_str(), reply.text.as_deref()),
                (Events::default(), "length", Some(" Deep learning."))
            );
            assert_eq!(
                reply.usage,
                Usage {
                    prompt: Some(2),
                    output: Some(4),
                    ..Usage::default()
                },
                "{name}"
            );
        }
        let end_of = |body: &str| end(&decode(Api::Tgi, Framing::Json, [body.as_bytes()], None).1);
        assert_eq!(end_of(r#"{"generated_text":"a"}"#), "");
        assert_eq!(
            end_of(r#"[]"#),
            "empty (): the response is complete, but has neither content nor a finish reason"
        );
        assert_eq!(
            end_of(r#"{"error":"Input validation error","error_type":"validation"}"#),
            "stream_error (): Input validation error"
        );
    }

    #[test]
    fn an_error_event_is_the_failure_and_a_stream_ends_with_its_complete_text() {
        let (events, reply) = Spec::of("tgi.error.sse").read();
        let words = "Request failed during generation: Server error: CUDA out of memory";
        assert_eq!((events.content, reply.text.as_deref()), (1, Some(" Deep")));
        assert_eq!(end(&reply), format!("stream_error (event 2): {words}"));
        let cut = "data: {\"index\":1,\"token\":{\"id\":1,\"text\":\"a\",\"special\":false},\"generated_text\":null}\n\n";
        let (_, reply) = decode(Api::Tgi, Framing::Sse, [cut.as_bytes()], None);
        assert_eq!(
            end(&reply),
            "truncated (after 1 events): the stream ended without an event with `generated_text`"
        );
        assert_eq!(
            reply.usage,
            Usage::default(),
            "events are not the server's count"
        );
    }

    #[test]
    fn details_are_asked_for() {
        assert_eq!(
            Tgi.body(true).to_string(),
            r#"{"inputs":"{{ prompt }}","parameters":{"details":true},"stream":true}"#
        );
        assert_eq!(Tgi.body(false)["stream"], false);
    }
}
