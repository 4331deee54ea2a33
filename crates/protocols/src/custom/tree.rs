//! JSON as a tree that paths can walk, within bounds: an event costs no more memory than its size explains.

use crate::raw_json::unreadable;
use llmscen_core::outcome::{Failure, FailureKind};
use serde_json::Value;
use std::borrow::Cow;

/// The most values in one event and in one whole reply.
pub const IN_EVENT: usize = 1 << 18;
/// See [`IN_EVENT`].
pub const IN_WHOLE: usize = 1 << 22;

/// The longest way to a value, in bytes of the keys on it: each value that a path selects costs as much.
const WAY: usize = 1 << 10;

/// Reads JSON of at most `most` values.
///
/// # Errors
/// `decode`: it is no JSON, or past the bounds.
pub fn tree(json: &[u8], most: usize) -> Result<Value, Failure> {
    let openings = json.iter().filter(|byte| matches!(byte, b',' | b'[' | b'{')).count();
    if openings > most {
        return Err(Failure::new(FailureKind::Decode, format!("more than {most} values in one JSON document")));
    }
    let text = String::from_utf8_lossy(json);
    // Half a surrogate pair is half a character, and no reason to lose the rest.
    let value = serde_json::from_str(&text).or_else(|error| match whole_pairs(&text) {
        Cow::Owned(mended) => serde_json::from_str(&mended),
        Cow::Borrowed(_) => Err(error),
    });
    let value = value.map_err(|error| unreadable(&error, json))?;
    match near(&value, WAY) {
        true => Ok(value),
        false => Err(Failure::new(FailureKind::Decode, format!("a value lies behind more than {WAY} bytes of keys"))),
    }
}

/// Whether no way to a value is longer than `left`. The JSON reader bounds the depth.
fn near(value: &Value, left: usize) -> bool {
    match value {
        Value::Array(values) => left.checked_sub(1).is_some_and(|left| values.iter().all(|value| near(value, left))),
        Value::Object(fields) => {
            fields.iter().all(|(key, value)| left.checked_sub(key.len() + 1).is_some_and(|left| near(value, left)))
        }
        _ => true,
    }
}

/// The text with U+FFFD for each escape that is half a surrogate pair; borrowed where there is none.
fn whole_pairs(json: &str) -> Cow<'_, str> {
    let (mut out, mut rest) = (String::new(), json);
    while let Some(at) = rest.find('\\') {
        let (head, escape) = rest.split_at(at);
        let taken = match (half(escape), escape.get(6..).and_then(half)) {
            (Some(0xD800..0xDC00), Some(0xDC00..0xE000)) => 12,
            (Some(0xD800..0xE000), _) => {
                out.push_str(head);
                out.push_str("\\ufffd");
                rest = &escape[6..];
                continue;
            }
            _ => 1 + escape[1..].chars().next().map_or(0, char::len_utf8),
        };
        let (kept, after) = rest.split_at(at + taken);
        out.push_str(kept);
        rest = after;
    }
    match out.len() + rest.len() == json.len() && out.as_bytes() == &json.as_bytes()[..out.len()] {
        true => Cow::Borrowed(json),
        false => Cow::Owned(out + rest),
    }
}

/// The code of a `\uXXXX` at the beginning.
fn half(escape: &str) -> Option<u32> {
    let digits = escape.strip_prefix("\\u")?.get(..4)?;
    u32::from_str_radix(digits, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn message(json: &str, most: usize) -> String {
        tree(json.as_bytes(), most).unwrap_err().message
    }

    #[test]
    fn half_a_pair_is_replaced_and_nothing_else() {
        for (text, expected) in [
            (r#""\ud83d\ude00\u00e9\\ud83d""#, "\u{1F600}é\\ud83d"),
            (r#""a\ud83db""#, "a\u{FFFD}b"),
            (r#""\ude00\ud83d""#, "\u{FFFD}\u{FFFD}"),
            (r#""\ud83d\ud83d\ude00\n""#, "\u{FFFD}\u{1F600}\n"),
            (r#""\ud83d\\ude00""#, "\u{FFFD}\\ude00"),
        ] {
            assert_eq!(tree(text.as_bytes(), 9), Ok(json!(expected)), "{text}");
        }
        assert_eq!(tree(b"\"a\xFFb\"", 9), Ok(json!("a\u{FFFD}b")));
        assert!(message(r#"["\ud83d", \"#, 9).starts_with("the JSON cannot be read"));
        assert!(message("\"\\", 9).starts_with("the JSON cannot be read"));
        assert!(message("oops\\é", 9).ends_with("oops\\é"));
    }

    #[test]
    fn values_and_the_way_to_them_are_bounded() {
        assert!(tree(b"[1,2,3]", 3).is_ok());
        assert_eq!(message("[1,2,3]", 2), "more than 2 values in one JSON document");
        let nested = |length: usize| format!(r#"{{"a":{{"{}":[0]}}}}"#, "k".repeat(length));
        assert!(tree(nested(1020).as_bytes(), 9).is_ok());
        assert_eq!(message(&nested(1021), 9), "a value lies behind more than 1024 bytes of keys");
        assert!(message(&"[".repeat(9000), 9000).contains("recursion limit exceeded"));
    }
}
