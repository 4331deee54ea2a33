//! JSON values as raw slices of the body, so that events are decoded without allocation.

use llmscen_core::outcome::{Failure, FailureKind};
use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

/// A raw JSON value; `null` is None.
pub type Raw<'a> = Option<&'a RawValue>;

/// A `decode` failure that quotes the beginning of the JSON.
pub fn decode_failure(error: &serde_json::Error, json: &[u8]) -> Failure {
    let start: String = String::from_utf8_lossy(json).chars().take(200).collect();
    Failure::new(
        FailureKind::Decode,
        format!("the JSON cannot be read ({error}): {start}"),
    )
}

/// Whether it is a non-empty string.
pub fn is_text(raw: &RawValue) -> bool {
    raw.get().starts_with('"') && is_filled(raw)
}

/// Whether a string, list or object is not empty.
pub fn is_filled(raw: &RawValue) -> bool {
    raw.get().len() > 2
}

/// The arguments of a tool call: a text, or the object itself, which some servers send.
pub fn arguments_text(raw: &RawValue) -> Cow<'_, str> {
    match raw.get().starts_with(['{', '[']) {
        true => Cow::Borrowed(raw.get()),
        false => decode_string(raw),
    }
}

/// The text of a JSON string; empty for other values. Invalid escapes are kept verbatim.
pub fn decode_string(raw: &RawValue) -> Cow<'_, str> {
    let Some(inner) = raw
        .get()
        .strip_prefix('"')
        .and_then(|json| json.strip_suffix('"'))
    else {
        return Cow::Borrowed("");
    };
    match inner.contains('\\') {
        true => serde_json::from_str(raw.get()).map_or(Cow::Borrowed(inner), Cow::Owned),
        false => Cow::Borrowed(inner),
    }
}

/// A finish reason: a text, or a number, which some servers send; 0 is that of an unspecified one.
pub fn reason_text(raw: Raw<'_>) -> Cow<'_, str> {
    match raw {
        Some(raw) if raw.get().starts_with('"') => decode_string(raw),
        Some(raw) if raw.get().parse().is_ok_and(|number: f64| number != 0.0) => {
            Cow::Borrowed(raw.get())
        }
        _ => Cow::Borrowed(""),
    }
}

/// A count, if it is a non-negative whole number: `25`, and `25.0` of servers whose numbers are floats.
pub fn parse_count(raw: Raw) -> Option<u64> {
    let number = raw?.get();
    // Above 2^53 a float is not exact.
    let whole = |number: &f64| *number >= 0.0 && *number < 9e15 && number.fract() == 0.0;
    let float = || number.parse::<f64>().ok().filter(whole);
    number
        .parse()
        .ok()
        .or_else(|| float().map(|number| number as u64))
}

/// Whether a field holds an error, by [`is_error_json`].
pub fn is_error(raw: Raw) -> bool {
    raw.is_some_and(|raw| is_error_json(raw.get()))
}

/// Whether this JSON of an error field is an error: servers may set the field to null, false, 0, or an empty text,
/// list or object.
pub fn is_error_json(json: &str) -> bool {
    !matches!(json, "null" | "false" | "0" | "\"\"" | "[]" | "{}")
}

/// Maximum number of elements of a [`OneOrMany`]: more than any batch of documents or vectors that a server accepts.
const MAX_ELEMENTS: usize = 1 << 16;

/// A list that allocates nothing for at most one element, the usual case here. More than [`MAX_ELEMENTS`] elements
/// are an error, because each takes many times the memory of its text.
pub struct OneOrMany<T> {
    first: Option<T>,
    rest: Vec<T>,
}

impl<T> OneOrMany<T> {
    /// The elements in order.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.first.iter().chain(&self.rest)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for OneOrMany<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<OneOrMany<T>, D::Error> {
        deserializer.deserialize_seq(OneOrManyVisitor(PhantomData))
    }
}

struct OneOrManyVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for OneOrManyVisitor<T> {
    type Value = OneOrMany<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<OneOrMany<T>, A::Error> {
        let mut list = OneOrMany {
            first: elements.next_element()?,
            rest: Vec::new(),
        };
        if list.first.is_some() {
            while let Some(element) = elements.next_element()? {
                if list.rest.len() + 1 == MAX_ELEMENTS {
                    return Err(A::Error::custom(format_args!(
                        "a list of more than {MAX_ELEMENTS} elements"
                    )));
                }
                list.rest.push(element);
            }
        }
        Ok(list)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_error_field_is_no_error() {
        let set = |json: &str| is_error(serde_json::from_str(json).unwrap());
        for empty in ["null", "false", "0", "\"\"", "[]", "{}"] {
            assert!(!set(empty), "{empty}");
        }
        for full in ["true", "7", "\"no\"", "[1]", "{\"code\":7}"] {
            assert!(set(full), "{full}");
        }
    }

    #[test]
    fn a_list_without_end_is_refused() {
        let list = |length: usize| {
            serde_json::from_str::<OneOrMany<u8>>(&format!("[{}0]", "0,".repeat(length - 1)))
        };
        assert_eq!(
            list(MAX_ELEMENTS).map(|list| list.iter().count()).ok(),
            Some(MAX_ELEMENTS)
        );
        let error = list(MAX_ELEMENTS + 1)
            .err()
            .map(|error| error.to_string())
            .unwrap_or_default();
        assert!(
            error.starts_with("a list of more than 65536 elements"),
            "{error}"
        );
    }
}
