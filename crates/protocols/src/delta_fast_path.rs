//! Events that differ from an earlier one in their text alone: nearly all of a stream, and nothing else of them need be read.

use crate::answers::is_text;
use serde_json::value::RawValue;

/// The bytes of an event around its text. A JSON document in which one string stands in the place of another has the same
/// meaning but for that string.
#[derive(Debug, Default)]
pub struct Alike {
    before: Vec<u8>,
    after: Vec<u8>,
}

impl Alike {
    /// Takes an event as the pattern of what follows; `text` is the string in it that changes, with its quotes.
    pub fn learn(&mut self, json: &[u8], text: &RawValue) {
        self.forget();
        let text = text.get();
        // Where the text stands: it is a part of the document, unless that was copied to be read.
        let place = (text.as_ptr() as usize).checked_sub(json.as_ptr() as usize);
        let parts = place
            .and_then(|place| Some((json.get(..place)?, json.get(place..place + text.len())?, json.get(place + text.len()..)?)));
        if let Some((before, inside, after)) = parts
            && inside == text.as_bytes()
        {
            self.before.extend_from_slice(before);
            self.after.extend_from_slice(after);
        }
    }

    /// Follows no pattern.
    pub fn forget(&mut self) {
        self.before.clear();
        self.after.clear();
    }

    /// What stands in the place of the text, where all around it is the pattern's. It may be anything.
    pub fn inside<'a>(&self, json: &'a [u8]) -> Option<&'a [u8]> {
        if self.before.is_empty() {
            return None;
        }
        json.strip_prefix(&self.before[..])?.strip_suffix(&self.after[..])
    }
}

/// The JSON string that this is, where it is one and not empty.
pub fn string(json: &[u8]) -> Option<&RawValue> {
    let raw: &RawValue = serde_json::from_slice(json).ok()?;
    (is_text(raw) && raw.get().len() == json.len()).then_some(raw)
}

/// Whether this is a JSON string that is not empty and needs no second look: letters without escapes, all of them ASCII.
pub fn is_plain(json: &[u8]) -> bool {
    let inner = json.strip_prefix(b"\"").and_then(|json| json.strip_suffix(b"\""));
    inner.is_some_and(|inner| !inner.is_empty() && inner.iter().fold(true, |plain, &byte| plain & is_letter(byte)))
}

/// A character that stands for itself in a JSON string (RFC 8259, section 7).
fn is_letter(byte: u8) -> bool {
    (0x20..0x7f).contains(&byte) && byte != b'"' && byte != b'\\'
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_equal_around_the_text_is_alike() {
        let mut alike = Alike::default();
        assert_eq!(alike.inside(b""), None);
        let json = br#"{"a":"x","b":1}"#;
        let fields: std::collections::HashMap<&str, &RawValue> = serde_json::from_slice(json).unwrap();
        alike.learn(json, fields["a"]);
        assert_eq!(alike.inside(br#"{"a":"other","b":1}"#), Some(&b"\"other\""[..]));
        assert_eq!(alike.inside(br#"{"a":"x","b":2}"#), None);
        assert_eq!(alike.inside(br#"{"a":,"b":1}"#), Some(&b""[..]));
        assert_eq!(alike.inside(br#"{"a":"b":1}"#), None, "the two ends never overlap");
        let elsewhere = json.to_vec();
        alike.learn(&elsewhere, fields["a"]);
        assert_eq!(alike.inside(json), None, "a text from elsewhere");
    }

    #[test]
    fn a_plain_string_is_one_in_json_too() {
        for (json, plain) in
            [("\" a~\"", true), ("\"\"", false), ("\"", false), ("\"\\n\"", false), ("\"é\"", false), ("7", false)]
        {
            assert_eq!(is_plain(json.as_bytes()), plain, "{json}");
        }
        assert!(!is_plain(b"\"a\x7f\"") && !is_plain(b"\"a\n\"") && !is_plain(b"\"a\",\"b\""));
    }
}
