//! OpenAI embeddings.

use crate::decoder::{Assembly, Unary, require_json};
use crate::error::error_text;
use crate::framing::Event;
use crate::raw_json::{OneOrMany, Raw, decode_failure, decode_string, is_error};
use crate::usage::parse_usage;
use crate::{DecodeOptions, Decoder, Events, Protocol, Reply};
use llmscen_core::outcome::{Failure, FailureKind, Finish, Usage};
use llmscen_core::request::Framing;
use serde::Deserialize;
use serde_json::{Value, json};

/// Maximum size of a buffered document, bytes: enough for the largest batch of OpenAI, 2048 vectors of 3072 numbers.
const MAX_BODY_BYTES: usize = 256 << 20;

/// `POST /v1/embeddings`.
pub struct Embeddings;

impl Protocol for Embeddings {
    /// The input is one text or a list of texts, by the dataset item.
    fn body(&self, _stream: bool) -> Value {
        json!({ "model": "{{ model }}", "input": "{{ item.input }}" })
    }

    fn framing(&self, content_type: Option<&str>, _asked_stream: bool) -> Result<Framing, Failure> {
        require_json(content_type)
    }

    fn has_fixed_framing(&self) -> bool {
        true
    }

    fn decoder(&self, _shape: Framing, _options: &DecodeOptions) -> Box<dyn Decoder> {
        Box::new(Unary::with_limit(MAX_BODY_BYTES, Vectors::default()))
    }
}

/// A reply. The numbers of its vectors are not parsed.
#[derive(Deserialize)]
struct Body<'a> {
    #[serde(borrow)]
    id: Raw<'a>,
    #[serde(borrow)]
    data: Option<OneOrMany<Vector<'a>>>,
    #[serde(borrow)]
    usage: Raw<'a>,
    #[serde(borrow)]
    error: Raw<'a>,
}

#[derive(Deserialize)]
struct Vector<'a> {
    /// A list of numbers, a list of such lists, or numbers in base64.
    #[serde(borrow)]
    embedding: Raw<'a>,
}

/// The state of one response.
#[derive(Debug, Default)]
struct Vectors {
    id: Option<String>,
    usage: Usage,
    items: Option<u64>,
    /// The index of the first empty vector.
    empty_vector: Option<usize>,
}

impl Assembly for Vectors {
    /// This API never streams.
    fn event(&mut self, _event: Event<'_>, _events: &mut Events) -> Result<(), Failure> {
        Err(Failure::new(
            FailureKind::Decode,
            "embeddings are never streamed",
        ))
    }

    fn document(&mut self, body: &[u8]) -> Result<(), Failure> {
        let text = String::from_utf8_lossy(body);
        let reply: Body =
            serde_json::from_str(&text).map_err(|error| decode_failure(&error, body))?;
        if is_error(reply.error) {
            return Err(Failure::new(FailureKind::StreamError, error_text(body)));
        }
        let Some(data) = reply.data else {
            return Err(Failure::new(FailureKind::Decode, "the reply has no data"));
        };
        if data.iter().any(|vector| vector.embedding.is_none()) {
            return Err(Failure::new(
                FailureKind::Decode,
                "the data of the reply has an entry without an embedding",
            ));
        }
        self.id = reply.id.map(|id| decode_string(id).into_owned());
        self.items = Some(data.iter().count() as u64);
        self.empty_vector = data
            .iter()
            .position(|vector| !vector.embedding.is_some_and(|raw| has_numbers(raw.get())));
        // No tokens are generated.
        self.usage = Usage {
            output: Some(0),
            ..reply.usage.map(parse_usage).unwrap_or_default()
        };
        Ok(())
    }

    fn ending(&self, _streamed: bool) -> Result<Finish, Failure> {
        match (self.items, self.empty_vector) {
            (Some(1..), None) => Ok(Finish::default()),
            (_, Some(place)) => Err(Failure::new(
                FailureKind::Empty,
                format!("embedding {place} is empty"),
            )),
            _ => Err(Failure::new(
                FailureKind::Empty,
                "the response is complete, but has no embedding",
            )),
        }
    }

    fn reply(self, end: Result<Finish, Failure>) -> Reply {
        Reply {
            id: self.id,
            items: self.items,
            ..Reply::without_text(end, self.usage)
        }
    }
}

/// Whether a text or a list, possibly nested, is not empty.
fn has_numbers(json: &str) -> bool {
    json.starts_with(['"', '[']) && json.bytes().any(|byte| !b"[]\", \t\r\n".contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replay::decode;
    use llmscen_core::api::Api;

    fn run(body: &str) -> Reply {
        let (events, reply) = decode(
            Api::OpenaiEmbeddings,
            Framing::Json,
            [body.as_bytes()],
            None,
        );
        assert_eq!(events, Events::default());
        reply
    }

    fn end(body: &str) -> String {
        match run(body).end {
            Ok(finish) => format!("ok {}", finish.reason),
            Err(failure) => format!("{}: {}", failure.kind, failure.message),
        }
    }

    #[test]
    fn the_input_is_the_items_and_no_stream_is_asked_for() {
        assert_eq!(
            Embeddings.body(true),
            json!({ "model": "{{ model }}", "input": "{{ item.input }}" })
        );
        assert_eq!(Embeddings.body(true), Embeddings.body(false));
        assert_eq!(Embeddings.framing(None, true), Ok(Framing::Json));
        assert_eq!(
            Embeddings
                .framing(Some("text/event-stream"), false)
                .unwrap_err()
                .kind,
            FailureKind::Decode
        );
    }

    #[test]
    fn vectors_are_counted_in_every_encoding() {
        let batch = r#"{"object":"list","data":[{"object":"embedding","index":0,"embedding":[0.25,-1e-3]},
            {"object":"embedding","index":1,"embedding":[1,2]},{"index":2,"embedding":"AACAPwAAAEA="}],
            "model":"m","usage":{"prompt_tokens":9,"total_tokens":9}}"#;
        let reply = run(batch);
        assert_eq!((reply.end, reply.items), (Ok(Finish::default()), Some(3)));
        assert_eq!(
            reply.usage,
            Usage {
                prompt: Some(9),
                output: Some(0),
                reasoning: None,
                cached: None
            }
        );
        let reply = run(r#"{"data":[{"embedding":[[0.1],[0.2]]}]}"#);
        assert_eq!(
            (reply.items, reply.usage.prompt, reply.usage.output),
            (Some(1), None, Some(0))
        );
    }

    #[test]
    fn a_reply_without_numbers_is_empty_and_one_of_another_kind_is_not_read() {
        assert_eq!(
            end(r#"{"data":[]}"#),
            "empty: the response is complete, but has no embedding"
        );
        assert_eq!(
            end(r#"{"data":[{"embedding":[1]},{"embedding":[ ]}]}"#),
            "empty: embedding 1 is empty"
        );
        assert_eq!(
            end(r#"{"data":[{"embedding":""}]}"#),
            "empty: embedding 0 is empty"
        );
        assert_eq!(
            end(r#"{"data":[{"embedding":[[]]}]}"#),
            "empty: embedding 0 is empty"
        );
        assert_eq!(
            end(r#"{"data":[{"id":"m"}]}"#),
            "decode: the data of the reply has an entry without an embedding"
        );
        assert_eq!(end(r#"{"status":"ok"}"#), "decode: the reply has no data");
        assert_eq!(end(r#"{"error":{"message":"no"}}"#), "stream_error: no");
        assert!(
            end(r#"{"data":[{"embedding":[1,2"#)
                .starts_with("decode: the JSON cannot be read (EOF")
        );
        assert_eq!(run(r#"{"data":[{"embedding":[]}]}"#).items, Some(1));
    }

    #[test]
    fn a_body_beyond_the_bound_of_other_replies_is_read() {
        let reply = run(&format!(
            "{}{{\"data\":[{{\"embedding\":[1]}}]}}",
            " ".repeat(65 << 20)
        ));
        assert_eq!((reply.end.is_ok(), reply.items), (true, Some(1)));
    }
}
