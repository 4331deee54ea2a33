//! OpenAI image generation.

use crate::decoder::{Assembly, Unary, require_json};
use crate::error::error_text;
use crate::framing::Event;
use crate::raw_json::{OneOrMany, Raw, decode_failure, decode_string, is_error, is_text};
use crate::usage::parse_usage;
use crate::{DecodeOptions, Decoder, Events, Protocol, Reply};
use llmscen_core::outcome::{Failure, FailureKind, Finish, Usage};
use llmscen_core::request::Framing;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

/// Maximum size of a buffered document, bytes: ten images of 16 million pixels in base64.
const MAX_BODY_BYTES: usize = 512 << 20;

/// `POST /v1/images/generations`.
pub struct Images;

impl Protocol for Images {
    fn body(&self, _stream: bool) -> Value {
        json!({ "model": "{{ model }}", "prompt": "{{ prompt }}" })
    }

    fn framing(&self, content_type: Option<&str>, _asked_stream: bool) -> Result<Framing, Failure> {
        require_json(content_type)
    }

    fn has_fixed_framing(&self) -> bool {
        true
    }

    fn decoder(&self, _shape: Framing, _options: &DecodeOptions) -> Box<dyn Decoder> {
        Box::new(Unary::with_limit(MAX_BODY_BYTES, Generated::default()))
    }
}

/// A reply. Images are not decoded.
#[derive(Deserialize)]
struct Body<'a> {
    #[serde(borrow)]
    data: Option<OneOrMany<Image<'a>>>,
    #[serde(borrow)]
    usage: Raw<'a>,
    #[serde(borrow)]
    error: Raw<'a>,
}

#[derive(Deserialize)]
struct Image<'a> {
    #[serde(borrow)]
    b64_json: Raw<'a>,
    #[serde(borrow)]
    url: Raw<'a>,
}

/// Whether it is a non-empty text of the letters of Base64, with its padding and line breaks.
fn is_base64(raw: &RawValue) -> bool {
    let text = decode_string(raw);
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || b"+/-_=\r\n".contains(&byte);
    // Some servers send the URL of the data.
    let data = text.split_once("base64,").map_or(&*text, |(_, data)| data);
    !data.is_empty() && data.bytes().all(is_letter)
}

/// The state of one response.
#[derive(Debug, Default)]
struct Generated {
    usage: Usage,
    items: Option<u64>,
}

impl Assembly for Generated {
    /// This API is never streamed here.
    fn event(&mut self, _event: Event<'_>, _events: &mut Events) -> Result<(), Failure> {
        Err(Failure::new(
            FailureKind::Decode,
            "generated images are never streamed",
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
        let is_image =
            |image: &Image| image.b64_json.is_some_and(is_base64) || image.url.is_some_and(is_text);
        if let Some(index) = data.iter().position(|image| !is_image(image)) {
            return Err(Failure::new(
                FailureKind::Decode,
                format!("entry {index} of the reply has neither `b64_json` nor `url`"),
            ));
        }
        self.items = Some(data.iter().count() as u64);
        self.usage = reply.usage.map(parse_usage).unwrap_or_default();
        Ok(())
    }

    fn ending(&self, _streamed: bool) -> Result<Finish, Failure> {
        match self.items {
            Some(1..) => Ok(Finish::default()),
            _ => Err(Failure::new(
                FailureKind::Empty,
                "the response is complete, but has no image",
            )),
        }
    }

    fn reply(self, end: Result<Finish, Failure>) -> Reply {
        Reply {
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
        let bytes = body.as_bytes().chunks(1);
        let (events, reply) = decode(Api::OpenaiImages, Framing::Json, bytes, None);
        assert_eq!(events, Events::default());
        reply
    }

    #[test]
    fn images_are_counted_and_tokens_are_those_of_the_server() {
        let reply = run(
            r#"{"created":1,"data":[{"b64_json":"iVBO"},{"url":"http://h/1.png","revised_prompt":"x"}]}"#,
        );
        assert_eq!((reply.items, reply.usage), (Some(2), Usage::default()));
        let reply = run(
            r#"{"data":[{"b64_json":"iVBO","url":null}],"usage":{"input_tokens":7,"output_tokens":272,"total_tokens":279}}"#,
        );
        assert_eq!(
            (reply.items, reply.usage.prompt, reply.usage.output),
            (Some(1), Some(7), Some(272))
        );
    }

    #[test]
    fn a_reply_without_an_image_is_a_failure() {
        for (body, end) in [
            (
                r#"{"data":[{"b64_json":"!!"}]}"#,
                "decode: entry 0 of the reply has neither `b64_json` nor `url`",
            ),
            (
                r#"{"data":[]}"#,
                "empty: the response is complete, but has no image",
            ),
            (
                r#"{"data":[{"b64_json":"iVBO"},{"b64_json":""}]}"#,
                "decode: entry 1 of the reply has neither `b64_json` nor `url`",
            ),
            (r#"{"created":1}"#, "decode: the reply has no data"),
            (r#"{"error":{"message":"no"}}"#, "stream_error: no"),
        ] {
            let failure = run(body).end.unwrap_err();
            assert_eq!(format!("{}: {}", failure.kind, failure.message), end);
        }
    }
}
