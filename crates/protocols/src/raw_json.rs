//! JSON values as the raw text of a body, so that an event is read without allocation.

use llmscen_core::outcome::{Failure, FailureKind};
use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

/// A value as the body has it. `null` counts as absent.
pub type Raw<'a> = Option<&'a RawValue>;

/// A `decode` failure that shows the beginning of what cannot be read.
pub fn unreadable(error: &serde_json::Error, json: &[u8]) -> Failure {
    let start: String = String::from_utf8_lossy(json).chars().take(200).collect();
    Failure::new(FailureKind::Decode, format!("the JSON cannot be read ({error}): {start}"))
}

/// A string that is not empty.
pub fn is_text(raw: &RawValue) -> bool {
    raw.get().starts_with('"') && raw.get().len() > 2
}

/// A string or a list of content parts that is not empty.
pub fn has_text(raw: &RawValue) -> bool {
    let json = raw.get();
    json.len() > 2 && (json.starts_with('"') || json.starts_with('['))
}

/// The text of a JSON string. Broken escapes stay as they are written; anything but a string is empty.
pub fn text_of(raw: &RawValue) -> Cow<'_, str> {
    let Some(inner) = raw.get().strip_prefix('"').and_then(|json| json.strip_suffix('"')) else {
        return Cow::Borrowed("");
    };
    match inner.contains('\\') {
        true => serde_json::from_str(raw.get()).map_or(Cow::Borrowed(inner), Cow::Owned),
        false => Cow::Borrowed(inner),
    }
}

/// A count, if it is a whole number from 0.
pub fn number(raw: Raw) -> Option<u64> {
    raw?.get().parse().ok()
}

/// The most elements of a [`OneOrMany`]: above any batch of documents or vectors that a server takes.
const MAX_ELEMENTS: usize = 1 << 16;

/// A list that allocates nothing while it has at most one element, as nearly all have here. One of more than
/// [`MAX_ELEMENTS`] elements is refused, for each takes many times the memory of its text.
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
        let mut list = OneOrMany { first: elements.next_element()?, rest: Vec::new() };
        if list.first.is_some() {
            while let Some(element) = elements.next_element()? {
                if list.rest.len() + 1 == MAX_ELEMENTS {
                    return Err(A::Error::custom(format_args!("a list of more than {MAX_ELEMENTS} elements")));
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
    fn a_list_without_end_is_refused() {
        let list = |length: usize| serde_json::from_str::<OneOrMany<u8>>(&format!("[{}0]", "0,".repeat(length - 1)));
        assert_eq!(list(MAX_ELEMENTS).map(|list| list.iter().count()).ok(), Some(MAX_ELEMENTS));
        let error = list(MAX_ELEMENTS + 1).err().map(|error| error.to_string()).unwrap_or_default();
        assert!(error.starts_with("a list of more than 65536 elements"), "{error}");
    }
}
