//! Token count of a prompt by the simulator's rule, and the hashes of its blocks for the prefix cache.

use serde_json::Value;
use std::hash::{DefaultHasher, Hasher};

/// Bytes of text per token.
const BYTES: usize = 4;
/// Tokens per image, audio or other non-text part.
pub(super) const MEDIA_TOKENS: usize = 256;

/// The types of non-text parts in all APIs.
const MEDIA: [&str; 10] = [
    "image",
    "image_url",
    "input_image",
    "audio",
    "audio_url",
    "input_audio",
    "video_url",
    "video",
    "file",
    "input_file",
];

/// A prompt as bytes: text, 4 per token id, 4 × 256 per image or audio.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Prompt {
    bytes: usize,
    /// The bytes, if block hashes or the last message are needed.
    kept: Option<Vec<u8>>,
    /// Where the last message begins in them.
    last_message: usize,
}

impl Prompt {
    /// An empty prompt; `keep` stores the bytes for [`Prompt::blocks`] and [`Prompt::last_message`].
    pub(super) fn new(keep: bool) -> Prompt {
        Prompt {
            bytes: 0,
            kept: keep.then(Vec::new),
            last_message: 0,
        }
    }

    /// Number of tokens: bytes / 4, rounded up, at least 1.
    pub(super) fn tokens(&self) -> u64 {
        self.bytes.div_ceil(BYTES).max(1) as u64
    }

    /// Its size in memory, in bytes.
    pub(super) fn memory(&self) -> usize {
        size_of::<Prompt>() + self.kept.as_ref().map_or(0, Vec::capacity)
    }

    /// Adds text.
    pub(super) fn text(&mut self, text: &str) {
        self.raw(text.as_bytes());
    }

    /// Adds token ids. None if the list is empty or has other elements.
    pub(super) fn ids(&mut self, ids: &[Value]) -> Option<()> {
        let ids: Option<Vec<u64>> = ids.iter().map(Value::as_u64).collect();
        let ids = ids.filter(|ids| !ids.is_empty())?;
        ids.iter()
            .for_each(|id| self.raw(&(*id as u32).to_le_bytes()));
        Some(())
    }

    /// Adds the tokens of a separate prompt that shares no blocks.
    pub(super) fn add(&mut self, tokens: u64) {
        self.bytes += BYTES * tokens as usize;
    }

    /// Adds an image, audio or similar.
    pub(super) fn media(&mut self, content: &Value) {
        self.bytes += BYTES * MEDIA_TOKENS;
        if let Some(kept) = &mut self.kept {
            let mut hasher = DefaultHasher::new();
            hasher.write(content.to_string().as_bytes());
            let hash = hasher.finish().to_le_bytes();
            kept.extend(hash.iter().cycle().take(BYTES * MEDIA_TOKENS));
        }
    }

    /// Adds a message of any API: content, images and tool call arguments. None if it is not a message.
    pub(super) fn message(&mut self, message: &Value) -> Option<()> {
        message.get("role")?.as_str()?;
        self.last_message = self.kept.as_ref().map_or(0, Vec::len);
        if let Some(content) = message.get("content") {
            self.content(content)?;
        }
        let list = |name: &str| {
            message
                .get(name)
                .and_then(Value::as_array)
                .into_iter()
                .flatten()
        };
        list("images").for_each(|image| self.media(image));
        let calls = list("tool_calls").filter_map(|call| call.get("function")?.get("arguments"));
        calls.for_each(|arguments| self.loose(arguments));
        Some(())
    }

    /// Adds content: text, or a list of parts. None for anything else.
    pub(super) fn content(&mut self, content: &Value) -> Option<()> {
        match content {
            Value::Null => {}
            Value::String(text) => self.text(text),
            Value::Array(parts) => parts.iter().for_each(|part| self.part(part)),
            _ => return None,
        }
        Some(())
    }

    fn part(&mut self, part: &Value) {
        let kind = part.get("type").and_then(Value::as_str);
        let untyped = || {
            ["image", "audio", "video"]
                .iter()
                .any(|name| part.get(name).is_some())
        };
        if kind.map_or_else(untyped, |kind| MEDIA.contains(&kind)) {
            return self.media(part);
        }
        ["text", "thinking", "input", "arguments", "output"]
            .iter()
            .filter_map(|name| part.get(name))
            .for_each(|v| self.loose(v));
        // A tool result has nested content; other kinds are not counted.
        let _ = part
            .get("content")
            .and_then(|content| self.content(content));
        if let Value::String(text) = part {
            self.text(text);
        }
    }

    /// Adds text verbatim, and anything else as JSON.
    pub(super) fn loose(&mut self, value: &Value) {
        match value {
            Value::String(text) => self.text(text),
            other => self.text(&other.to_string()),
        }
    }

    /// The text of the last message, or the whole prompt of an API without messages. Empty if bytes are not stored.
    pub(super) fn last_message(&self) -> String {
        let kept = self.kept.as_deref().unwrap_or_default();
        String::from_utf8_lossy(kept.get(self.last_message..).unwrap_or_default()).into_owned()
    }

    /// A hash of each full block of `block_tokens` tokens including all previous blocks. Empty if bytes are not stored.
    pub(super) fn blocks(&self, block_tokens: u32) -> Vec<u64> {
        let mut hasher = DefaultHasher::new();
        let mut hash = |block: &[u8]| {
            hasher.write(block);
            hasher.finish()
        };
        self.kept
            .iter()
            .flat_map(|kept| kept.chunks_exact(block_tokens.max(1) as usize * BYTES))
            .map(&mut hash)
            .collect()
    }

    fn raw(&mut self, bytes: &[u8]) {
        self.bytes += bytes.len();
        if let Some(kept) = &mut self.kept {
            kept.extend_from_slice(bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn tokens(messages: &[Value]) -> u64 {
        let mut prompt = Prompt::new(false);
        messages
            .iter()
            .for_each(|message| prompt.message(message).unwrap());
        prompt.tokens()
    }

    #[test]
    fn messages_count_by_their_bytes_and_media_by_the_piece() {
        assert_eq!(tokens(&[json!({ "role": "user", "content": "12345" })]), 2);
        assert_eq!(tokens(&[json!({ "role": "user", "content": "" })]), 1);
        let parts = json!([{ "type": "text", "text": "1234" }, { "type": "image_url",
            "image_url": { "url": "data:x" } }]);
        assert_eq!(tokens(&[json!({ "role": "user", "content": parts })]), 257);
        assert_eq!(
            tokens(&[json!({ "role": "user", "content": "1234", "images": ["x", "y"] })]),
            513
        );
        assert_eq!(
            tokens(&[json!({ "role": "user", "content": [{ "image": "x" }, { "text": "1234" }] })]),
            257
        );
        let call = json!({ "role": "assistant", "content": null,
            "tool_calls": [{ "function": { "arguments": "{\"a\":1}" } }] });
        assert_eq!(
            tokens(&[
                call,
                json!({ "role": "tool", "content": "1", "tool_call_id": "c" })
            ]),
            2
        );
        let result =
            json!([{ "type": "tool_result", "content": [{ "type": "text", "text": "12345678" }] }]);
        assert_eq!(tokens(&[json!({ "role": "user", "content": result })]), 2);
        for wrong in [
            json!("hi"),
            json!({ "content": "x" }),
            json!({ "role": "user", "content": 7 }),
        ] {
            assert_eq!(Prompt::new(false).message(&wrong), None);
        }
    }

    #[test]
    fn equal_beginnings_have_equal_blocks() {
        let blocks = |text: &str| {
            let mut prompt = Prompt::new(true);
            prompt.text(text);
            prompt.blocks(2)
        };
        let (one, two) = (
            blocks("aaaaaaaabbbbbbbbccc"),
            blocks("aaaaaaaabbbbbbbbdddddddd"),
        );
        assert_eq!(
            (one.len(), two.len(), &one[..], &two[..2]),
            (2, 3, &two[..2], &one[..])
        );
        assert_ne!(
            blocks("bbbbbbbb")[0],
            one[1],
            "a block stands for all before it too"
        );
        let mut ids = Prompt::new(true);
        assert_eq!(ids.ids(&[json!(1), json!(2), json!(3)]), Some(()));
        assert_eq!((ids.tokens(), ids.blocks(2).len()), (3, 1));
        assert_eq!((ids.ids(&[]), ids.ids(&[json!("x")])), (None, None));
        let image = |name: &str| {
            let mut prompt = Prompt::new(true);
            prompt.media(&json!(name));
            prompt.blocks(256)
        };
        assert_eq!((image("x"), image("x").len()), (image("x"), 1));
        assert_ne!(image("x"), image("y"));
    }
}
