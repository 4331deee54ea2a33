//! OpenAI Realtime: a WebSocket on which the server keeps the conversation. Answers are text, or speech with its
//! transcript.

use super::responses::input;
use super::{ChoiceText, Piece, Protocol, Reply, Times, openai};
use crate::generation::{Call, Finish, Generation, Refusal};
use crate::http::Conversation;
use crate::websocket;
use serde_json::{Map, Value, json};

/// Bytes of speech per token: 200 ms of 24 kHz, 16 bit, one channel.
const SPEECH_BYTES: usize = 9600;

#[derive(Debug)]
pub(super) struct Realtime;

impl Protocol for Realtime {
    fn paths(&self) -> &'static [&'static str] {
        &["/v1/realtime"]
    }

    fn id(&self, number: u64) -> String {
        format!("resp-sim-{number}")
    }

    fn read(&self, call: &Call<'_>) -> Result<(Generation, Box<dyn Reply>), Refusal> {
        if !call.request.websocket {
            return Err(Refusal::new(400, "Realtime needs a WebSocket"));
        }
        let mut prompt = call.prompt();
        call.body
            .text("instructions")?
            .into_iter()
            .for_each(|text| prompt.text(text));
        let items = Value::Array(call.request.conversation.borrow().clone());
        let wrong = || Refusal::new(400, "the conversation has no item");
        input(&mut prompt, &items).ok_or_else(wrong)?;
        let limit = match call.body.get("max_output_tokens") {
            Some(Value::String(word)) if word == "inf" => None,
            _ => call.body.limit("max_output_tokens")?,
        };
        let generation = call.generation(prompt, limit)?;
        let modalities = call.body.get("output_modalities");
        let speaks = modalities.is_none_or(|modalities| *modalities == json!(["audio"]));
        Ok((
            generation,
            Box::new(Answer {
                id: call.id.to_owned(),
                item_id: call.id.replace("resp-", "item-"),
                speaks,
                text: String::new(),
                conversation: call.request.conversation.clone(),
            }),
        ))
    }

    fn has_websocket(&self) -> bool {
        true
    }

    fn session(&self) -> Option<Session> {
        Some(Session::default())
    }

    fn error(&self, refusal: &Refusal, _id: Option<&str>) -> String {
        openai::error(refusal)
    }
}

/// The state of a connection.
#[derive(Debug, Default)]
pub(crate) struct Session {
    /// The fields of `session.update`.
    settings: Map<String, Value>,
    pub(crate) conversation: Conversation,
    /// Bytes of audio that are not committed yet.
    audio: usize,
}

/// What follows from an event of the client.
pub(crate) enum Step {
    /// These events.
    Events(Vec<Value>),
    /// A response to a request with this body.
    Respond(Vec<u8>),
}

impl Session {
    /// The event of a new connection.
    pub(crate) fn created(&self) -> Value {
        json!({ "type": "session.created", "session": { "type": "realtime", "output_modalities": ["audio"] } })
    }

    /// Takes an event of the client.
    pub(crate) fn take(&mut self, message: &[u8]) -> Step {
        let event: Value = match serde_json::from_slice(message) {
            Ok(event) => event,
            Err(error) => return invalid(&format!("the event is not JSON: {error}")),
        };
        match event["type"].as_str().unwrap_or_default() {
            "session.update" => {
                let session = event["session"].as_object().cloned().unwrap_or_default();
                self.settings.extend(session);
                Step::Events(vec![
                    json!({ "type": "session.updated", "session": self.settings }),
                ])
            }
            "conversation.item.create" if event["item"].is_object() => {
                self.add(event["item"].clone())
            }
            "input_audio_buffer.append" => {
                self.audio += event["audio"].as_str().map_or(0, str::len) / 4 * 3;
                Step::Events(Vec::new())
            }
            "input_audio_buffer.commit" if self.audio == 0 => invalid("the audio buffer is empty"),
            "input_audio_buffer.commit" => {
                self.audio = 0;
                let content = json!([{ "type": "input_audio" }]);
                self.add(json!({ "type": "message", "role": "user", "content": content }))
            }
            "response.create" => {
                let mut body = self.settings.clone();
                body.extend(event["response"].as_object().cloned().unwrap_or_default());
                Step::Respond(Value::Object(body).to_string().into_bytes())
            }
            other => invalid(&format!("unknown event `{other}`")),
        }
    }

    fn add(&mut self, item: Value) -> Step {
        let added = json!({ "type": "conversation.item.added", "item": item });
        self.conversation.borrow_mut().push(item);
        Step::Events(vec![added])
    }
}

fn invalid(why: &str) -> Step {
    let error = json!({ "type": "invalid_request_error", "message": why });
    Step::Events(vec![json!({ "type": "error", "error": error })])
}

#[derive(Debug)]
struct Answer {
    id: String,
    item_id: String,
    /// Speech with a transcript, not text.
    speaks: bool,
    /// All text so far.
    text: String,
    conversation: Conversation,
}

impl Answer {
    fn put(to: &mut Vec<u8>, event: &Value) {
        websocket::message(to, &[&event.to_string()]);
    }

    /// An event of the only part of the answer.
    fn part(&self, to: &mut Vec<u8>, kind: &str, field: &str, value: &str) {
        let event = json!({
            "type": kind, "response_id": self.id, "item_id": self.item_id, "output_index": 0, "content_index": 0,
            field: value,
        });
        Answer::put(to, &event);
    }

    fn content(&self) -> Value {
        match self.speaks {
            true => json!({ "type": "output_audio", "transcript": self.text }),
            false => json!({ "type": "output_text", "text": self.text }),
        }
    }

    fn item(&self, status: &str, content: &[Value]) -> Value {
        json!({
            "id": self.item_id, "type": "message", "status": status, "role": "assistant", "content": content,
        })
    }

    fn response(&self, status: &str, details: Value, usage: Value) -> Value {
        let output = match status {
            "in_progress" => json!([]),
            _ => json!([self.item(status, &[self.content()])]),
        };
        json!({
            "id": self.id, "object": "realtime.response", "status": status, "status_details": details,
            "output": output, "usage": usage,
        })
    }
}

impl Reply for Answer {
    fn open(&mut self, to: &mut Vec<u8>, _generation: &Generation) {
        let response = self.response("in_progress", Value::Null, Value::Null);
        Answer::put(
            to,
            &json!({ "type": "response.created", "response": response }),
        );
    }

    fn text(&mut self, to: &mut Vec<u8>, _generation: &Generation, piece: &Piece<'_>) {
        if piece.first {
            let item = self.item("in_progress", &[]);
            let event = json!({
                "type": "response.output_item.added", "response_id": self.id, "output_index": 0, "item": item,
            });
            Answer::put(to, &event);
        }
        let escaped = format!("\"{}\"", piece.text);
        let text: String = serde_json::from_str(&escaped).unwrap_or_default();
        self.text.push_str(&text);
        if self.speaks {
            self.part(to, "response.output_audio_transcript.delta", "delta", &text);
            let tokens = text.split_whitespace().count().max(1);
            // Silence: in base64, 4 letters are 3 bytes.
            let silence = "A".repeat(tokens * SPEECH_BYTES / 3 * 4);
            self.part(to, "response.output_audio.delta", "delta", &silence);
        } else {
            self.part(to, "response.output_text.delta", "delta", &text);
        }
    }

    fn comment(&self, to: &mut Vec<u8>) {
        websocket::ping(to);
    }

    fn finish(&mut self, to: &mut Vec<u8>, generation: &Generation, _times: Times) {
        let (status, details) = match generation.finish {
            Finish::Stop => ("completed", Value::Null),
            Finish::Length => (
                "incomplete",
                json!({ "type": "incomplete", "reason": "max_output_tokens" }),
            ),
        };
        let item = self.item(status, &[self.content()]);
        let event = json!({
            "type": "response.output_item.done", "response_id": self.id, "output_index": 0, "item": item,
        });
        Answer::put(to, &event);
        self.conversation.borrow_mut().push(item);
        let response = self.response(status, details, usage(generation));
        Answer::put(
            to,
            &json!({ "type": "response.done", "response": response }),
        );
    }

    fn fail(&mut self, to: &mut Vec<u8>, _generation: &Generation) {
        let error = json!({ "type": "server_error", "message": Refusal::broken().message });
        let details = json!({ "type": "failed", "error": error });
        let response = self.response("failed", details, Value::Null);
        Answer::put(
            to,
            &json!({ "type": "response.done", "response": response }),
        );
    }

    fn full_answer(&self, _: &Generation, _: &[ChoiceText], _: Times) -> String {
        // Every answer is a stream.
        String::new()
    }

    fn broken(&self, _: &Generation) -> String {
        String::new()
    }
}

fn usage(generation: &Generation) -> Value {
    if !generation.usage {
        return Value::Null;
    }
    let (input, output) = (generation.prompt.tokens(), generation.output);
    json!({
        "total_tokens": input + output, "input_tokens": input, "output_tokens": output,
        "input_token_details": { "cached_tokens": generation.cached.unwrap_or(0) },
    })
}
