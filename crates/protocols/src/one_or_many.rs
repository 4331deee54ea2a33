//! Lists that are short.

use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use std::fmt;
use std::marker::PhantomData;

/// The most elements of a [`Few`]: above any batch of documents or vectors that a server takes.
const MOST: usize = 1 << 16;

/// A list that allocates nothing while it has at most one element, as nearly all have here. One of more than
/// [`MOST`] elements is refused, for each takes many times the memory of its text.
pub struct Few<T> {
    first: Option<T>,
    rest: Vec<T>,
}

impl<T> Few<T> {
    /// The elements in order.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.first.iter().chain(&self.rest)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Few<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Few<T>, D::Error> {
        deserializer.deserialize_seq(FewVisitor(PhantomData))
    }
}

struct FewVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for FewVisitor<T> {
    type Value = Few<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Few<T>, A::Error> {
        let mut few = Few { first: list.next_element()?, rest: Vec::new() };
        if few.first.is_some() {
            while let Some(element) = list.next_element()? {
                if few.rest.len() + 1 == MOST {
                    return Err(A::Error::custom(format_args!("a list of more than {MOST} elements")));
                }
                few.rest.push(element);
            }
        }
        Ok(few)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_without_end_is_refused() {
        let list = |length: usize| serde_json::from_str::<Few<u8>>(&format!("[{}0]", "0,".repeat(length - 1)));
        assert_eq!(list(MOST).map(|list| list.iter().count()).ok(), Some(MOST));
        let error = list(MOST + 1).err().map(|error| error.to_string()).unwrap_or_default();
        assert!(error.starts_with("a list of more than 65536 elements"), "{error}");
    }
}
