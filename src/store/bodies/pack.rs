//! Bodies as JSON text, compressed as zlib does (RFC 1950): `zlib.decompress` of Python, and most others, read it.

use flate2::Compression;
use flate2::write::ZlibEncoder;
use serde::Serialize;
use serde_json::value::RawValue;
use std::io::{self, Write};

/// A body in JSON text: a JSON document as it is, anything else as a string.
#[derive(Serialize)]
#[serde(untagged)]
enum Said<'a> {
    Document(&'a RawValue),
    Text(&'a str),
}

impl Said<'_> {
    fn of(body: &str) -> Said<'_> {
        serde_json::from_str(body).map_or(Said::Text(body), Said::Document)
    }
}

#[derive(Serialize)]
struct Response<'a> {
    status: Option<u16>,
    body: Said<'a>,
}

/// A request's body.
///
/// # Errors
/// Only where memory ends.
pub fn request(body: &str) -> io::Result<Vec<u8>> {
    packed(&Said::of(body))
}

/// A response's status and body: `{"status": 200, "body": …}`.
///
/// # Errors
/// Only where memory ends.
pub fn response(status: Option<u16>, body: &str) -> io::Result<Vec<u8>> {
    packed(&Response { status, body: Said::of(body) })
}

fn packed(text: &impl Serialize) -> io::Result<Vec<u8>> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(&serde_json::to_vec(text)?)?;
    encoder.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    fn text(packed: &[u8]) -> String {
        let mut text = String::new();
        flate2::read::ZlibDecoder::new(packed).read_to_string(&mut text).unwrap();
        text
    }

    #[test]
    fn documents_stay_as_they_were_sent_and_all_else_is_a_string() {
        assert_eq!(text(&request(r#"{"b": 1.0, "a":[1e3]}"#).unwrap()), r#"{"b": 1.0, "a":[1e3]}"#);
        assert_eq!(text(&request("{\"cut").unwrap()), r#""{\"cut""#);
        assert_eq!(text(&response(Some(200), "data: {}\n\n").unwrap()), r#"{"status":200,"body":"data: {}\n\n"}"#);
        assert_eq!(text(&response(Some(500), r#"{"error": "é"}"#).unwrap()), r#"{"status":500,"body":{"error": "é"}}"#);
    }
}
