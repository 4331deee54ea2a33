//! Requests and responses as they were on the wire, copied when the run keeps bodies.

use bytes::Bytes;
use http::{HeaderMap, StatusCode, Version};
use llmscen_core::units::Nanos;

/// At most this many bytes of one body are kept.
pub const MAX_BODY_BYTES: usize = 1 << 20;

/// The exchange of one call. It contains secrets, so a [`Redactor`] must clean everything before it is stored.
///
/// [`Redactor`]: llmscen_core::redact::Redactor
#[derive(Debug, Default)]
pub struct CapturedExchange {
    /// The request body.
    pub request: Bytes,
    /// Headers that the dataset row or the scenario set for this call; their values are secrets.
    pub call_headers: Vec<(String, String)>,
    /// The heads of the last attempt; `None` for a local model.
    pub heads: Option<Box<CapturedHeads>>,
    /// The response body of the last attempt.
    pub response: CapturedBody,
}

/// Request and response heads of an exchange, secrets included.
#[derive(Debug)]
pub struct CapturedHeads {
    /// The request headers.
    pub sent: HeaderMap,
    /// The response head, if one arrived.
    pub reply: Option<(Version, StatusCode, HeaderMap)>,
}

/// The beginning of a response body after its content codings were removed.
#[derive(Debug, Default)]
pub struct CapturedBody {
    /// At most [`MAX_BODY_BYTES`] bytes.
    pub bytes: Vec<u8>,
    /// Bytes of the complete body.
    pub total_bytes: u64,
    /// The timestamp of each read, and the length of `bytes` after it.
    pub reads: Vec<(Nanos, usize)>,
}

impl CapturedBody {
    /// Sets the timestamp of the bytes added since the previous call.
    pub fn mark(&mut self, at: Nanos) {
        let bytes = self.bytes.len();
        if self.reads.last().map_or(0, |(_, before)| *before) < bytes {
            self.reads.push((at, bytes));
        }
    }

    /// Adds received bytes; those beyond the limit are only counted.
    pub fn add(&mut self, bytes: &[u8]) {
        self.total_bytes += bytes.len() as u64;
        let kept = MAX_BODY_BYTES
            .saturating_sub(self.bytes.len())
            .min(bytes.len());
        self.bytes
            .extend_from_slice(bytes.get(..kept).unwrap_or_default());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_beyond_the_limit_are_counted_but_not_kept() {
        let mut copied = CapturedBody::default();
        copied.add(&vec![1; MAX_BODY_BYTES - 3]);
        copied.add(b"abcd");
        copied.add(b"e");
        assert_eq!(
            (copied.bytes.len(), copied.total_bytes),
            (MAX_BODY_BYTES, MAX_BODY_BYTES as u64 + 2)
        );
        assert!(copied.bytes.ends_with(b"\x01abc"));
    }

    #[test]
    fn a_read_that_added_bytes_gets_a_timestamp() {
        let mut copied = CapturedBody::default();
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
