//! The framing of streams: HTTP chunks, one for each event.

use std::io::Write;

/// One HTTP chunk of the given pieces.
pub(super) fn chunk(to: &mut Vec<u8>, pieces: &[&str]) {
    let length: usize = pieces.iter().map(|piece| piece.len()).sum();
    // Writing to a vector cannot fail.
    let _ = write!(to, "{length:x}\r\n");
    pieces.iter().for_each(|piece| to.extend_from_slice(piece.as_bytes()));
    to.extend_from_slice(b"\r\n");
}

/// A comment of an event stream, which clients have to skip.
pub(super) fn comment(to: &mut Vec<u8>) {
    chunk(to, &[": keep-alive\n\n"]);
}

/// The end of the HTTP body.
pub(super) fn last_chunk(to: &mut Vec<u8>) {
    to.extend_from_slice(b"0\r\n\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chunk_is_its_length_in_hex_and_its_bytes() {
        let mut bytes = Vec::new();
        chunk(&mut bytes, &["data: ", "[DONE]", "\n\n"]);
        last_chunk(&mut bytes);
        assert_eq!(bytes, b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n");
    }
}
