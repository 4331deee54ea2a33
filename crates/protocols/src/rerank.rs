//! Rerank, as Cohere, Jina, vLLM and Text Embeddings Inference serve it.

use crate::decoder::{Assembly, decoder_for, require_json};
use crate::error::error_text;
use crate::framing::Event;
use crate::raw_json::{OneOrMany, Raw, decode_failure, decode_string, is_error, parse_count};
use crate::{DecodeOptions, Decoder, Events, Protocol, Reply};
use llmscen_core::outcome::{Failure, FailureKind, Finish, Usage};
use llmscen_core::request::Framing;
use serde::Deserialize;
use serde_json::{Value, json};

/// `POST /v1/rerank`.
pub struct Rerank;

impl Protocol for Rerank {
    fn body(&self, _stream: bool) -> Value {
        json!({ "model": "{{ model }}", "query": "{{ item.query }}", "documents": "{{ item.documents }}" })
    }

    fn framing(&self, content_type: Option<&str>, _asked_stream: bool) -> Result<Framing, Failure> {
        require_json(content_type)
    }

    fn has_fixed_framing(&self) -> bool {
        true
    }

    fn decoder(&self, _shape: Framing, _options: &DecodeOptions) -> Box<dyn Decoder> {
        decoder_for(Framing::Json, Ranking::default())
    }
}

/// A reply; TEI returns only the list of results.
#[derive(Default, Deserialize)]
struct Body<'a> {
    #[serde(borrow)]
    id: Raw<'a>,
    #[serde(borrow)]
    results: Option<OneOrMany<Ranked<'a>>>,
    /// Voyage's name of the results.
    #[serde(borrow)]
    data: Option<OneOrMany<Ranked<'a>>>,
    #[serde(borrow)]
    usage: Option<Tokens<'a>>,
    #[serde(borrow)]
    meta: Option<Meta<'a>>,
    #[serde(borrow)]
    error: Raw<'a>,
}

/// One document; its text, if any, is ignored.
#[derive(Deserialize)]
struct Ranked<'a> {
    #[serde(borrow)]
    relevance_score: Raw<'a>,
    #[serde(borrow)]
    score: Raw<'a>,
}

/// Cohere's token counts: processed and billed.
#[derive(Deserialize)]
struct Meta<'a> {
    #[serde(borrow)]
    tokens: Option<Tokens<'a>>,
    #[serde(borrow)]
    billed_units: Option<Tokens<'a>>,
}

#[derive(Clone, Copy, Deserialize)]
struct Tokens<'a> {
    #[serde(borrow)]
    prompt_tokens: Raw<'a>,
    #[serde(borrow)]
    input_tokens: Raw<'a>,
    #[serde(borrow)]
    total_tokens: Raw<'a>,
}

impl Tokens<'_> {
    /// No tokens are generated, so the total is the prompt.
    fn prompt(self) -> Option<u64> {
        parse_count(self.prompt_tokens)
            .or(parse_count(self.input_tokens))
            .or(parse_count(self.total_tokens))
    }
}

/// The state of one response.
#[derive(Debug, Default)]
struct Ranking {
    id: Option<String>,
    usage: Usage,
    items: Option<u64>,
}

impl Assembly for Ranking {
    /// This API never streams.
    fn event(&mut self, _event: Event<'_>, _events: &mut Events) -> Result<(), Failure> {
        Err(Failure::new(
            FailureKind::Decode,
            "a ranking is never streamed",
        ))
    }

    fn document(&mut self, body: &[u8]) -> Result<(), Failure> {
        let text = String::from_utf8_lossy(body);
        let bare = text.trim_start().starts_with('[');
        let reply = match bare {
            true => serde_json::from_str(&text).map(|results| Body {
                results: Some(results),
                ..Body::default()
            }),
            false => serde_json::from_str(&text),
        };
        let reply: Body = reply.map_err(|error| decode_failure(&error, body))?;
        if is_error(reply.error) {
            return Err(Failure::new(FailureKind::StreamError, error_text(body)));
        }
        let Some(results) = reply.results.or(reply.data) else {
            return Err(Failure::new(
                FailureKind::Decode,
                "the reply has no results",
            ));
        };
        let scored = |ranked: &Ranked| ranked.relevance_score.or(ranked.score).is_some();
        if let Some(place) = results.iter().position(|ranked| !scored(ranked)) {
            return Err(Failure::new(
                FailureKind::Decode,
                format!("result {place} has no score"),
            ));
        }
        self.id = reply.id.map(|id| decode_string(id).into_owned());
        self.items = Some(results.iter().count() as u64);
        let meta = reply.meta.and_then(|meta| {
            meta.tokens
                .and_then(Tokens::prompt)
                .or(meta.billed_units.and_then(Tokens::prompt))
        });
        let prompt = reply.usage.and_then(Tokens::prompt).or(meta);
        self.usage = Usage {
            prompt,
            output: Some(0),
            reasoning: None,
            cached: None,
        };
        Ok(())
    }

    fn ending(&self, _streamed: bool) -> Result<Finish, Failure> {
        match self.items {
            Some(1..) => Ok(Finish::default()),
            _ => Err(Failure::new(
                FailureKind::Empty,
                "the response is complete, but ranks nothing",
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replay::decode;
    use llmscen_core::api::Api;

    fn run(body: &str) -> Reply {
        let (events, reply) = decode(Api::Rerank, Framing::Json, [body.as_bytes()], None);
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
    fn query_and_documents_are_the_items() {
        let body = json!({ "model": "{{ model }}", "query": "{{ item.query }}", "documents": "{{ item.documents }}" });
        assert_eq!(
            (Rerank.body(true), Rerank.body(false)),
            (body.clone(), body)
        );
        assert_eq!(Rerank.framing(None, true), Ok(Framing::Json));
        assert_eq!(
            Rerank
                .framing(Some("application/x-ndjson"), false)
                .unwrap_err()
                .kind,
            FailureKind::Decode
        );
    }

    #[test]
    fn prompt_tokens_are_read_in_the_format_of_each_server() {
        for (usage, prompt) in [
            (r#""usage":{"total_tokens":38}"#, Some(38)),
            (
                r#""usage":{"prompt_tokens":37,"total_tokens":38}"#,
                Some(37),
            ),
            (r#""meta":{"billed_units":{"search_units":1}}"#, None),
            (
                r#""meta":{"billed_units":{"input_tokens":30},"tokens":{"input_tokens":31}}"#,
                Some(31),
            ),
            (r#""meta":{"billed_units":{"input_tokens":30}}"#, Some(30)),
            (r#""usage":null"#, None),
        ] {
            let reply = run(&format!(
                "{{\"results\":[{{\"index\":1,\"relevance_score\":0.5}}],{usage}}}"
            ));
            assert_eq!(
                (reply.end, reply.items),
                (Ok(Finish::default()), Some(1)),
                "{usage}"
            );
            assert_eq!(
                reply.usage,
                Usage {
                    prompt,
                    output: Some(0),
                    reasoning: None,
                    cached: None
                },
                "{usage}"
            );
        }
    }

    #[test]
    fn a_bare_list_and_voyages_data_are_results_too() {
        assert_eq!(
            run(r#" [{"index":1,"score":0.9},{"index":0,"score":0.1,"text":"x"}]"#).items,
            Some(2)
        );
        assert_eq!(
            run(r#"{"object":"list","data":[{"index":0,"relevance_score":0.4}]}"#).items,
            Some(1)
        );
    }

    #[test]
    fn no_results_are_empty_and_another_kind_of_reply_is_not_read() {
        assert_eq!(
            end(r#"{"results":[]}"#),
            "empty: the response is complete, but ranks nothing"
        );
        assert_eq!(
            end("[]"),
            "empty: the response is complete, but ranks nothing"
        );
        assert_eq!(
            end(r#"{"results":[{"index":0,"score":1},{"index":1}]}"#),
            "decode: result 1 has no score"
        );
        assert_eq!(
            end(r#"{"object":"list","data":[{"id":"m"}]}"#),
            "decode: result 0 has no score"
        );
        assert_eq!(
            end(r#"{"status":"ok"}"#),
            "decode: the reply has no results"
        );
        assert_eq!(
            end(r#"{"error":"overloaded","error_type":"Overloaded"}"#),
            "stream_error: overloaded"
        );
        assert_eq!(
            end(r#"{"message":"bad key"}"#),
            "decode: the reply has no results"
        );
        assert!(end("[1]").starts_with("decode: the JSON cannot be read"));
    }
}
