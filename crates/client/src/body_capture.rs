//! Bodies as they went over the wire, copied where they are to be kept.

use bytes::Bytes;
use http::{HeaderMap, StatusCode, Version};
use llmscen_core::units::Nanos;

/// Bytes of one body that are kept at the most.
pub const MOST: usize = 1 << 20;

/// The bodies of one call, secrets among them: nothing of it may be stored before a [`Redactor`] has seen it.
///
/// [`Redactor`]: llmscen_core::redact::Redactor
#[derive(Debug, Default)]
pub struct Copies {
    /// The body that was sent.
    pub request: Bytes,
    /// The call's own headers, whose values are secrets.
    pub own: Vec<(String, String)>,
    /// The heads of the last attempt; None for a model in this process.
    pub heads: Option<Heads>,
    /// The body that came, of the last attempt.
    pub response: Copied,
}

/// The heads of an exchange, secrets among them.
#[derive(Debug)]
pub struct Heads {
    /// The headers that were sent.
    pub sent: HeaderMap,
    /// The head that came, if one did.
    pub reply: Option<(Version, StatusCode, HeaderMap)>,
}

/// The beginning of a response's body, its content codings undone.
#[derive(Debug, Default)]
pub struct Copied {
    /// At most [`MOST`] bytes.
    pub bytes: Vec<u8>,
    /// Bytes that came in all.
    pub whole: u64,
    /// The timestamp of each read, and how many of the bytes were here after it.
    pub reads: Vec<(Nanos, usize)>,
}

impl Copied {
    /// Notes when what was added since the read before arrived.
    pub fn mark(&mut self, at: Nanos) {
        let bytes = self.bytes.len();
        if self.reads.last().map_or(0, |(_, before)| *before) < bytes {
            self.reads.push((at, bytes));
        }
    }

    /// Adds what came.
    pub fn add(&mut self, bytes: &[u8]) {
        self.whole += bytes.len() as u64;
        let room = MOST.saturating_sub(self.bytes.len()).min(bytes.len());
        self.bytes.extend_from_slice(bytes.get(..room).unwrap_or_default());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_than_the_most_is_kept_and_all_is_counted() {
        let mut copied = Copied::default();
        copied.add(&vec![1; MOST - 3]);
        copied.add(b"abcd");
        copied.add(b"e");
        assert_eq!((copied.bytes.len(), copied.whole), (MOST, MOST as u64 + 2));
        assert!(copied.bytes.ends_with(b"\x01abc"));
    }

    #[test]
    fn reads_are_marked_by_what_they_added() {
        let mut copied = Copied::default();
        copied.mark(Nanos(1));
        copied.add(b"ab");
        copied.mark(Nanos(2));
        copied.mark(Nanos(3));
        copied.add(b"c");
        copied.add(b"d");
        copied.mark(Nanos(4));
        assert_eq!(copied.reads, [(Nanos(2), 2), (Nanos(4), 4)]);
    }
}
