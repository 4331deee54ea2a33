//! OpenAI text completions.

use crate::chat::Chat;
use crate::{Decoder, Protocol, Shape};
use serde_json::{Value, json};

/// `POST /v1/completions`.
pub struct Completions;

impl Protocol for Completions {
    fn body(&self, stream: bool) -> Value {
        match stream {
            true => json!({
                "model": "{{ model }}",
                "prompt": "{{ prompt }}",
                "stream": true,
                "stream_options": { "include_usage": true },
            }),
            false => json!({ "model": "{{ model }}", "prompt": "{{ prompt }}", "stream": false }),
        }
    }

    /// The messages differ from chat's by one field, `text`, which the chat decoder knows.
    fn decoder(&self, shape: Shape, keep_text: bool) -> Box<dyn Decoder> {
        Chat.decoder(shape, keep_text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_prompt_is_placed_as_text() {
        assert_eq!(
            Completions.body(true).to_string(),
            r#"{"model":"{{ model }}","prompt":"{{ prompt }}","stream":true,"stream_options":{"include_usage":true}}"#
        );
        assert_eq!(Completions.body(false).to_string(), r#"{"model":"{{ model }}","prompt":"{{ prompt }}","stream":false}"#);
    }
}
