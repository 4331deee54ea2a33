//! OpenAI chat completions.

use crate::stream::Stream;
use crate::tally::Tally;
use crate::unary::Whole;
use crate::{Decoder, Protocol, Shape};
use serde_json::{Value, json};

/// `POST /v1/chat/completions`.
pub struct Chat;

impl Protocol for Chat {
    fn body(&self, stream: bool) -> Value {
        match stream {
            true => json!({
                "model": "{{ model }}",
                "messages": "{{ messages }}",
                "stream": true,
                "stream_options": { "include_usage": true },
            }),
            false => json!({ "model": "{{ model }}", "messages": "{{ messages }}", "stream": false }),
        }
    }

    fn decoder(&self, shape: Shape, keep_text: bool) -> Box<dyn Decoder> {
        match shape {
            Shape::Stream => Box::new(Stream::sse(Tally::new(keep_text))),
            Shape::Lines => Box::new(Stream::lines(Tally::new(keep_text))),
            Shape::Whole => Box::new(Whole::new(Tally::new(keep_text))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_asks_for_the_token_counts() {
        let body = Chat.body(true);
        assert_eq!(
            body.to_string(),
            r#"{"model":"{{ model }}","messages":"{{ messages }}","stream":true,"stream_options":{"include_usage":true}}"#
        );
        assert_eq!(Chat.body(false).to_string(), r#"{"model":"{{ model }}","messages":"{{ messages }}","stream":false}"#);
    }
}
