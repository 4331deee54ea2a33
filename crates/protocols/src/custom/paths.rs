//! The JSONPaths (RFC 9535) of a scenario's `extract`, and the JSON trees that they select from.

use crate::content_kind::ContentKind;
use crate::raw_json::decode_failure;
use jsonpath_rust::parser::model::JpQuery;
use jsonpath_rust::parser::parse_json_path;
use jsonpath_rust::query::{QueryRef, js_path_process};
use llmscen_core::outcome::{Failure, FailureKind};
use llmscen_core::request::{Done, Extract};
use serde_json::Value;
use std::borrow::Cow;

/// One compiled JSONPath.
#[derive(Debug)]
pub struct Path(JpQuery);

impl Path {
    /// Compiles a path.
    ///
    /// # Errors The path is invalid: the reason and the position.
    pub fn new(path: &str) -> Result<Path, String> {
        parse_json_path(path).map(Path).map_err(|error| {
            format!(
                "`{path}` is no JSONPath: {}",
                join_error_lines(&error.to_string())
            )
        })
    }

    /// The selected values, each with its path.
    pub fn select<'a>(&self, value: &'a Value) -> Vec<QueryRef<'a, Value>> {
        // The error case, a path that selects no node, is excluded by the grammar.
        js_path_process(&self.0, value).unwrap_or_default()
    }

    /// The first selected value.
    pub fn first<'a>(&self, value: &'a Value) -> Option<&'a Value> {
        self.select(value).into_iter().next().map(|node| node.val)
    }
}

/// Joins the multi-line error of the parser into one line.
fn join_error_lines(drawn: &str) -> String {
    let place = drawn
        .lines()
        .find_map(|line| line.split_once("--> 1:"))
        .map(|(_, place)| place);
    let words = drawn
        .lines()
        .find_map(|line| line.trim_start().strip_prefix("= "));
    match (place, words) {
        (Some(place), Some(words)) => format!("at character {}, {words}", place.trim()),
        _ => drawn.split_whitespace().collect::<Vec<_>>().join(" "),
    }
}

/// The end marker of a stream.
#[derive(Debug)]
pub enum End {
    /// An event with this data.
    Data(Vec<u8>),
    /// An event of this name.
    Event(Vec<u8>),
    /// An event in which the path selects this value; without one, anything except null and false.
    Value(Path, Option<Value>),
}

/// The compiled paths of `extract`.
#[derive(Debug)]
pub struct Paths {
    /// Generated texts, each with its kind.
    pub text: Vec<(Path, ContentKind)>,
    /// Choice indices.
    pub choice: Option<Path>,
    /// Token counts: prompt, output, reasoning, cached.
    pub usage: [Option<Path>; 4],
    /// Finish reasons.
    pub finish: Option<Path>,
    /// Response id.
    pub id: Option<Path>,
    /// An error.
    pub error: Option<Path>,
    /// The end marker.
    pub done: Option<End>,
}

/// The kind of the texts at this path: reasoning, if one of its names says so.
fn kind_of(path: &str) -> ContentKind {
    match path.contains("reason") || path.contains("think") {
        true => ContentKind::Reasoning,
        false => ContentKind::Answer,
    }
}

impl Paths {
    /// Compiles all paths.
    ///
    /// # Errors The key of the first invalid path, the path, and the reason.
    pub fn new(extract: &Extract) -> Result<Paths, String> {
        let one = |key: &str, path: &str| {
            Path::new(path).map_err(|error| format!("`request.extract.{key}`: {error}"))
        };
        let maybe = |key: &str, path: &Option<String>| {
            path.as_deref().map(|path| one(key, path)).transpose()
        };
        if extract.text.is_empty() {
            return Err(
                "`request.extract.text` names no path, so that no token could be seen".into(),
            );
        }
        let usage = &extract.usage;
        Ok(Paths {
            text: extract
                .text
                .iter()
                .map(|path| Ok((one("text", path)?, kind_of(path))))
                .collect::<Result<_, String>>()?,
            choice: maybe("choice", &extract.choice)?,
            usage: [
                maybe("usage.prompt", &usage.prompt)?,
                maybe("usage.output", &usage.output)?,
                maybe("usage.reasoning", &usage.reasoning)?,
                maybe("usage.cached", &usage.cached)?,
            ],
            finish: maybe("finish", &extract.finish)?,
            id: maybe("id", &extract.id)?,
            error: maybe("error", &extract.error)?,
            done: match &extract.done {
                None => None,
                Some(Done::Data(data)) => Some(End::Data(data.trim_ascii().as_bytes().to_vec())),
                Some(Done::Event(name)) => Some(End::Event(name.as_bytes().to_vec())),
                Some(Done::Value { path, equals }) => {
                    Some(End::Value(one("done", path)?, equals.clone()))
                }
            },
        })
    }
}

/// Maximum number of values in one event.
pub const MAX_EVENT_VALUES: usize = 1 << 18;
/// Maximum number of values in one reply.
pub const MAX_DOCUMENT_VALUES: usize = 1 << 22;

/// Maximum total length of the keys to a value, bytes: each selected value stores its path.
const MAX_KEY_BYTES: usize = 1 << 10;

/// Parses JSON of at most `limit` values.
///
/// # Errors `decode`: not JSON, or above the limits.
pub fn parse_tree(json: &[u8], limit: usize) -> Result<Value, Failure> {
    let openings = json
        .iter()
        .filter(|byte| matches!(byte, b',' | b'[' | b'{'))
        .count();
    if openings > limit {
        return Err(Failure::new(
            FailureKind::Decode,
            format!("more than {limit} values in one JSON document"),
        ));
    }
    let text = String::from_utf8_lossy(json);
    // A lone surrogate must not make the event unreadable.
    let value = serde_json::from_str(&text).or_else(|error| match replace_lone_surrogates(&text) {
        Cow::Owned(mended) => serde_json::from_str(&mended),
        Cow::Borrowed(_) => Err(error),
    });
    let value = value.map_err(|error| decode_failure(&error, json))?;
    match keys_fit(&value, MAX_KEY_BYTES) {
        true => Ok(value),
        false => Err(Failure::new(
            FailureKind::Decode,
            format!("a value lies behind more than {MAX_KEY_BYTES} bytes of keys"),
        )),
    }
}

/// Whether the keys to every value fit into `left` bytes. The JSON parser limits the depth.
fn keys_fit(value: &Value, left: usize) -> bool {
    match value {
        Value::Array(values) => left
            .checked_sub(1)
            .is_some_and(|left| values.iter().all(|value| keys_fit(value, left))),
        Value::Object(fields) => fields.iter().all(|(key, value)| {
            left.checked_sub(key.len() + 1)
                .is_some_and(|left| keys_fit(value, left))
        }),
        _ => true,
    }
}

/// Replaces each escape of a lone surrogate by U+FFFD; borrowed if there is none.
fn replace_lone_surrogates(json: &str) -> Cow<'_, str> {
    let (mut out, mut rest) = (String::new(), json);
    while let Some(at) = rest.find('\\') {
        let (head, escape) = rest.split_at(at);
        let taken = match (
            surrogate_code(escape),
            escape.get(6..).and_then(surrogate_code),
        ) {
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

/// The code of a leading `\uXXXX`.
fn surrogate_code(escape: &str) -> Option<u32> {
    let digits = escape.strip_prefix("\\u")?.get(..4)?;
    u32::from_str_radix(digits, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn message(json: &str, most: usize) -> String {
        parse_tree(json.as_bytes(), most).unwrap_err().message
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
            assert_eq!(
                parse_tree(text.as_bytes(), 9),
                Ok(json!(expected)),
                "{text}"
            );
        }
        assert_eq!(parse_tree(b"\"a\xFFb\"", 9), Ok(json!("a\u{FFFD}b")));
        assert!(message(r#"["\ud83d", \"#, 9).starts_with("the JSON cannot be read"));
        assert!(message("\"\\", 9).starts_with("the JSON cannot be read"));
        assert!(message("oops\\é", 9).ends_with("oops\\é"));
    }

    #[test]
    fn values_and_the_way_to_them_are_bounded() {
        assert!(parse_tree(b"[1,2,3]", 3).is_ok());
        assert_eq!(
            message("[1,2,3]", 2),
            "more than 2 values in one JSON document"
        );
        let nested = |length: usize| format!(r#"{{"a":{{"{}":[0]}}}}"#, "k".repeat(length));
        assert!(parse_tree(nested(1020).as_bytes(), 9).is_ok());
        assert_eq!(
            message(&nested(1021), 9),
            "a value lies behind more than 1024 bytes of keys"
        );
        assert!(message(&"[".repeat(9000), 9000).contains("recursion limit exceeded"));
    }
}
