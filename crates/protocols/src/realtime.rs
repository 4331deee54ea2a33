//! OpenAI Realtime: the events of a WebSocket on which the server keeps the conversation.

use crate::decoder::{Assembly, decoder_for};
use crate::error::error_text;
use crate::framing::Event;
use crate::raw_json::{Raw, decode_failure, decode_string, is_error};
use crate::responses::Steps;
use crate::{DecodeOptions, Decoder, Events, Protocol, Reply};
use llmscen_core::api::SPEECH_RATE;
use llmscen_core::outcome::{Failure, FailureKind, Finish};
use llmscen_core::request::Framing;
use serde::Deserialize;
use serde_json::{Value, json};

/// `GET /v1/realtime`.
pub struct Realtime;

impl Protocol for Realtime {
    /// The contents of the client events: one `session.update`, a `conversation.item.create` per item, one
    /// `response.create`.
    fn body(&self, _stream: bool) -> Value {
        json!({
            "session": {
                "type": "realtime",
                "instructions": "{{ system }}",
                "output_modalities": ["text"],
            },
            "items": "{{ dialog }}",
            "response": {},
        })
    }

    fn decoder(&self, shape: Framing, options: &DecodeOptions) -> Box<dyn Decoder> {
        let steps = Steps::new(options);
        decoder_for(shape, ServerEvents { steps })
    }
}

#[derive(Deserialize)]
struct ServerEvent<'a> {
    #[serde(borrow, rename = "type")]
    kind: Raw<'a>,
    #[serde(borrow)]
    response: Raw<'a>,
    #[serde(borrow)]
    delta: Raw<'a>,
}

#[derive(Deserialize)]
struct Ended<'a> {
    #[serde(borrow)]
    status_details: Option<StatusDetails<'a>>,
}

#[derive(Deserialize)]
struct StatusDetails<'a> {
    #[serde(borrow)]
    reason: Raw<'a>,
    #[serde(borrow)]
    error: Raw<'a>,
}

/// The server events of one response. Those of content are the same as of the responses API.
struct ServerEvents {
    steps: Steps,
}

impl ServerEvents {
    /// Counts a piece of audio, in base64 (RFC 4648, section 4).
    fn hear(&mut self, delta: Raw, events: &mut Events) {
        let text = delta.map(decode_string).unwrap_or_default();
        let digits = text.trim_end_matches('=').len() as u64;
        if digits == 0 {
            return;
        }
        self.steps.receive_content();
        let audio = events.audio.get_or_insert_default();
        audio.bytes += digits * 3 / 4;
        audio.bytes_per_second = Some(SPEECH_RATE * 2);
    }

    /// Reads `response.done`.
    fn end(&mut self, raw: Raw, json: &[u8], events: &mut Events) -> Result<(), Failure> {
        events.done = true;
        let details = raw
            .map(|raw| serde_json::from_str::<Ended>(raw.get()))
            .transpose()
            .map_err(|error| decode_failure(&error, json))?
            .and_then(|ended| ended.status_details);
        let concluded = self.steps.conclude("done", raw, json);
        let Some(details) = details else {
            return concluded;
        };
        if let Some(error) = details.error.filter(|error| is_error(Some(error))) {
            let text = error_text(error.get().as_bytes());
            return Err(Failure::new(FailureKind::StreamError, text));
        }
        concluded?;
        if let Some(reason) = details.reason {
            self.steps.end = Some(decode_string(reason).into_owned());
        }
        Ok(())
    }
}

impl Assembly for ServerEvents {
    fn event(&mut self, event: Event<'_>, events: &mut Events) -> Result<(), Failure> {
        let text = String::from_utf8_lossy(event.data);
        let parsed: ServerEvent =
            serde_json::from_str(&text).map_err(|error| decode_failure(&error, event.data))?;
        let kind = parsed.kind.map(decode_string).unwrap_or_default();
        match &*kind {
            "response.done" => self.end(parsed.response, event.data, events),
            "response.output_audio.delta" | "response.audio.delta" => {
                self.hear(parsed.delta, events);
                Ok(())
            }
            "error" => self.steps.event(event, events),
            // The other events are of the session, or of what the client sent.
            kind if kind.starts_with("response.") => self.steps.event(event, events),
            _ => Ok(()),
        }
    }

    fn document(&mut self, _body: &[u8]) -> Result<(), Failure> {
        Err(Failure::new(FailureKind::Decode, "not an event"))
    }

    fn ending(&self, streamed: bool) -> Result<Finish, Failure> {
        self.steps.ending(streamed)
    }

    fn close(&self, events: &mut Events) {
        self.steps.close(events);
    }

    fn reply(self, end: Result<Finish, Failure>) -> Reply {
        self.steps.reply(end)
    }
}

#[cfg(test)]
mod tests {
    use crate::replay::decode;
    use crate::{Events, Reply};
    use llmscen_core::api::Api;
    use llmscen_core::outcome::Usage;
    use llmscen_core::request::Framing;

    const BEFORE: &str = r#"{"type":"session.created","session":{"id":"s"}}
{"type":"conversation.item.added","item":{"type":"message","role":"user","content":[{"type":"input_text","text":"q"}]}}
{"type":"conversation.item.input_audio_transcription.delta","delta":"what was heard"}
{"type":"response.created","response":{"id":"r1","status":"in_progress","output":[]}}
"#;

    fn read(rest: &str) -> (Events, Reply) {
        let body = format!("{BEFORE}{rest}\n");
        decode(
            Api::OpenaiRealtime,
            Framing::Ndjson,
            [body.as_bytes()],
            None,
        )
    }

    #[test]
    fn text_events_of_both_versions_count_and_the_final_event_has_usage() {
        let (events, reply) = read(
            r#"{"type":"response.output_text.delta","delta":"a","output_index":0}
{"type":"response.text.delta","delta":"b","output_index":0}
{"type":"response.done","response":{"id":"r1","status":"completed","output":[],"usage":{"total_tokens":9,"input_tokens":7,"output_tokens":2,"input_token_details":{"cached_tokens":4}}}}
{"type":"rate_limits.updated"}"#,
        );
        assert_eq!((events.content, events.done), (2, true));
        assert_eq!(reply.text.as_deref(), Some("ab"));
        assert_eq!(
            (reply.id.as_deref(), reply.end.unwrap().reason.as_str()),
            (Some("r1"), "completed")
        );
        let usage = Usage {
            prompt: Some(7),
            output: Some(2),
            reasoning: None,
            cached: Some(4),
        };
        assert_eq!(reply.usage, usage);
    }

    #[test]
    fn audio_has_a_duration_and_its_transcript_has_the_tokens() {
        let (events, reply) = read(
            r#"{"type":"response.output_audio_transcript.delta","delta":"hi","output_index":0}
{"type":"response.output_audio.delta","delta":"AAAAAAAA","output_index":0}
{"type":"response.audio.delta","delta":"AAA=","output_index":0}
{"type":"response.done","response":{"id":"r1","status":"completed"}}"#,
        );
        let audio = events.audio.unwrap();
        assert_eq!((audio.bytes, audio.bytes_per_second), (8, Some(48_000)));
        assert_eq!((events.content, reply.text.as_deref()), (1, Some("hi")));
        let (_, silent) = read(
            r#"{"type":"response.output_audio.delta","delta":"AAAA"}
{"type":"response.done","response":{"id":"r1","status":"completed"}}"#,
        );
        assert_eq!(
            (silent.silent, silent.end.unwrap().reason.as_str()),
            (false, "completed")
        );
    }

    #[test]
    fn the_reason_of_an_incomplete_or_failed_response_is_read() {
        let end = |details: &str, status: &str| {
            let (_, reply) = read(&format!(
                r#"{{"type":"response.done","response":{{"id":"r1","status":"{status}","status_details":{details}}}}}"#
            ));
            match reply.end {
                Ok(finish) => finish.reason,
                Err(failure) => format!("{}: {}", failure.kind, failure.message),
            }
        };
        assert_eq!(
            end(
                r#"{"type":"incomplete","reason":"max_output_tokens"}"#,
                "incomplete"
            ),
            "max_output_tokens"
        );
        assert_eq!(
            end(
                r#"{"type":"failed","error":{"code":"x","message":"no audio"}}"#,
                "failed"
            ),
            "stream_error: no audio"
        );
        assert_eq!(
            end(
                r#"{"type":"cancelled","reason":"turn_detected"}"#,
                "cancelled"
            ),
            "stream_error: the server finished with `cancelled`"
        );
        let (_, reply) = read(r#"{"type":"error","error":{"message":"no such voice"}}"#);
        assert_eq!(reply.end.unwrap_err().message, "no such voice");
    }
}
