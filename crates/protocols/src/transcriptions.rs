//! OpenAI transcriptions and translations of audio. vLLM streams them as chat completions.

use crate::accumulator::Accumulator;
use crate::chat::ChatMessages;
use crate::content_kind::ContentKind;
use crate::decoder::{Assembly, decoder_for};
use crate::error::error_text;
use crate::framing::Event;
use crate::raw_json::{Raw, decode_failure, decode_string, is_error};
use crate::{DecodeOptions, Decoder, Events, Protocol, Reply};
use llmscen_core::outcome::{Failure, FailureKind, Finish};
use llmscen_core::request::Framing;
use serde::Deserialize;
use serde_json::{Value, json};

/// `POST /v1/audio/transcriptions` and `POST /v1/audio/translations`.
pub struct Transcriptions;

impl Protocol for Transcriptions {
    /// The fields of the form; the audio file is added to them.
    fn body(&self, stream: bool) -> Value {
        json!({ "model": "{{ model }}", "response_format": "json", "stream": stream })
    }

    fn decoder(&self, shape: Framing, options: &DecodeOptions) -> Box<dyn Decoder> {
        let transcript = Transcript {
            accumulator: Accumulator::new(options),
            chat: ChatMessages::new(options),
            ..Transcript::default()
        };
        decoder_for(shape, transcript)
    }
}

/// An event of a stream, or a reply.
#[derive(Deserialize)]
struct Message<'a> {
    #[serde(borrow, rename = "type")]
    kind: Raw<'a>,
    #[serde(borrow)]
    delta: Raw<'a>,
    #[serde(borrow)]
    text: Raw<'a>,
    #[serde(borrow)]
    usage: Raw<'a>,
    #[serde(borrow)]
    choices: Raw<'a>,
    #[serde(borrow)]
    error: Raw<'a>,
}

/// The state of one response.
#[derive(Debug, Default)]
struct Transcript {
    accumulator: Accumulator,
    /// The final event, or the reply, was received.
    complete: bool,
    /// The state of a stream of chat completions, which has choices.
    chat: ChatMessages,
    is_chat: bool,
}

impl Transcript {
    /// Sets the complete text and the token counts.
    fn conclude(&mut self, message: &Message<'_>) -> Result<(), Failure> {
        self.complete = true;
        self.accumulator.add_usage_json(None, message.usage)?;
        match self.accumulator.has_content() {
            true => Ok(()),
            false => self
                .accumulator
                .add_text(0, ContentKind::Answer, message.text),
        }
    }
}

impl Assembly for Transcript {
    fn event(&mut self, event: Event<'_>, events: &mut Events) -> Result<(), Failure> {
        if self.is_chat {
            return self.chat.event(event, events);
        }
        if event.data == b"[DONE]" {
            events.done = true;
            return Ok(());
        }
        let text = String::from_utf8_lossy(event.data);
        let message: Message =
            serde_json::from_str(&text).map_err(|error| decode_failure(&error, event.data))?;
        if message.choices.is_some() {
            self.is_chat = true;
            return self.chat.event(event, events);
        }
        let name = String::from_utf8_lossy(event.name);
        let kind = message.kind.map_or(name, decode_string);
        if is_error(message.error) || kind == "error" {
            return Err(Failure::new(
                FailureKind::StreamError,
                error_text(event.data),
            ));
        }
        match &*kind {
            "transcript.text.delta" => {
                self.accumulator
                    .add_text(0, ContentKind::Answer, message.delta)?;
                self.accumulator.emit_pending(events);
            }
            "transcript.text.done" => {
                self.conclude(&message)?;
                events.done = true;
            }
            // Segments with speakers repeat the text of deltas.
            _ => {}
        }
        Ok(())
    }

    fn document(&mut self, body: &[u8]) -> Result<(), Failure> {
        let text = String::from_utf8_lossy(body);
        let message: Message =
            serde_json::from_str(&text).map_err(|error| decode_failure(&error, body))?;
        if is_error(message.error) {
            return Err(Failure::new(FailureKind::StreamError, error_text(body)));
        }
        match message.text {
            None => Err(Failure::new(FailureKind::Decode, "the reply has no text")),
            Some(_) => self.conclude(&message),
        }
    }

    /// The text of silence is empty, so a complete response needs no content.
    fn ending(&self, streamed: bool) -> Result<Finish, Failure> {
        match (self.is_chat, self.complete) {
            (true, _) => self.chat.ending(streamed),
            (false, true) => Ok(Finish::default()),
            (false, false) => Err(Failure::new(
                FailureKind::Truncated,
                "the stream ended before its final event",
            )),
        }
    }

    fn close(&self, events: &mut Events) {
        match self.is_chat {
            true => self.chat.close(events),
            false => self.accumulator.close(events),
        }
    }

    fn reply(self, end: Result<Finish, Failure>) -> Reply {
        if self.is_chat {
            return self.chat.reply(end);
        }
        self.accumulator.into_reply(end, |_| None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replay::decode;
    use llmscen_core::api::Api;
    use llmscen_core::outcome::Usage;

    fn run(framing: Framing, body: &str) -> (Events, Reply) {
        let api = Api::OpenaiTranscriptions;
        let decoded = decode(api, framing, [body.as_bytes()], None);
        let bytes = body.as_bytes().chunks(1);
        assert_eq!(decode(api, framing, bytes, None), decoded, "byte by byte");
        decoded
    }

    fn end(framing: Framing, body: &str) -> String {
        match run(framing, body).1.end {
            Ok(finish) => format!("ok {}", finish.reason),
            Err(failure) => format!("{}: {}", failure.kind, failure.message),
        }
    }

    const DELTA: &str = "data: {\"type\":\"transcript.text.delta\",\"delta\":\" Hé\"}\n\n";
    const TEXT_DONE: &str = "data: {\"type\":\"transcript.text.done\",\"text\":\" Hé Hé\",\
        \"usage\":{\"type\":\"tokens\",\"input_tokens\":14,\"output_tokens\":4,\"total_tokens\":18}}\n\n";
    const CHUNK: &str = "data: {\"id\":\"trsc-1\",\"object\":\"transcription.chunk\",\
        \"choices\":[{\"index\":0,\"delta\":{\"content\":\" ho\"},\"finish_reason\":null}]}\n\n";
    const CHUNK_END: &str = "data: {\"id\":\"trsc-1\",\"choices\":[{\"delta\":{\"content\":\"\"},\"finish_reason\":\"stop\"}]}\n\ndata: {\"id\":\"trsc-1\",\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":2}}\n\ndata: [DONE]\n\n";

    #[test]
    fn the_streams_of_openai_and_vllm_are_read() {
        let (events, reply) = run(Framing::Sse, &[DELTA, DELTA, TEXT_DONE].concat());
        assert_eq!((events.total, events.content, events.done), (3, 2, true));
        assert_eq!(reply.text.as_deref(), Some(" Hé Hé"));
        assert_eq!(
            (reply.end, reply.usage.prompt, reply.usage.output),
            (Ok(Finish::default()), Some(14), Some(4))
        );
        let (events, reply) = run(Framing::Sse, &[CHUNK, CHUNK, CHUNK_END].concat());
        assert_eq!((events.content, events.done), (2, true));
        assert_eq!(
            (reply.text.as_deref(), reply.id.as_deref()),
            (Some(" ho ho"), Some("trsc-1"))
        );
        assert_eq!((reply.usage.prompt, reply.usage.output), (Some(9), Some(2)));
        assert_eq!(reply.end.unwrap().reason, "stop");
    }

    #[test]
    fn the_type_may_be_in_the_event_line_alone() {
        let stream = "event: transcript.text.delta\ndata: {\"delta\":\"Hi\"}\n\n\
                      event: transcript.text.done\ndata: {\"text\":\"Hi\"}\n\n";
        let (events, reply) = run(Framing::Sse, stream);
        assert_eq!((events.content, events.done), (1, true));
        assert_eq!(
            (reply.text.as_deref(), reply.end),
            (Some("Hi"), Ok(Finish::default()))
        );
    }

    #[test]
    fn an_error_field_without_an_error_is_none() {
        for empty in ["null", "false", "0", "\"\"", "[]", "{}"] {
            let body = format!("{{\"text\":\"Hi.\",\"error\":{empty}}}");
            assert_eq!(end(Framing::Json, &body), "ok ", "{empty}");
        }
        assert_eq!(
            end(Framing::Json, r#"{"text":"","error":"no"}"#),
            "stream_error: no"
        );
    }

    #[test]
    fn a_stream_without_its_end_is_truncated() {
        for events in [&[DELTA][..], &[]] {
            assert_eq!(
                end(Framing::Sse, &events.concat()),
                "truncated: the stream ended before its final event"
            );
        }
        assert_eq!(
            end(Framing::Sse, CHUNK),
            "truncated: the stream ended without a finish reason for choice 0"
        );
        let error = "data: {\"error\":{\"message\":\"no\"}}\n\n";
        assert_eq!(
            end(Framing::Sse, &[DELTA, error].concat()),
            "stream_error: no"
        );
    }

    #[test]
    fn a_reply_has_a_text_which_may_be_empty() {
        let reply = run(
            Framing::Json,
            r#"{"text":"Hi.","duration":2.5,"usage":{"type":"duration","seconds":3}}"#,
        )
        .1;
        assert_eq!((reply.text.as_deref(), reply.silent), (Some("Hi."), false));
        assert_eq!(reply.usage, Usage::default());
        let reply = run(Framing::Json, r#"{"text":""}"#).1;
        assert_eq!((reply.end, reply.silent), (Ok(Finish::default()), true));
        assert_eq!(
            end(Framing::Json, r#"{"task":"transcribe"}"#),
            "decode: the reply has no text"
        );
        assert_eq!(
            end(Framing::Json, r#"{"error":{"message":"no"}}"#),
            "stream_error: no"
        );
    }
}
