//! Bodies of `multipart/form-data`.

use crate::http::Request;
use serde_json::{Map, Value};

/// The parts of a form.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Form<'b> {
    /// Fields; `true`, `false` and whole numbers are parsed, except in texts.
    pub(super) fields: Map<String, Value>,
    /// The content of the field `file`.
    pub(super) file: Option<&'b [u8]>,
}

/// Fields that are always text.
const TEXTS: [&str; 4] = ["model", "prompt", "language", "response_format"];

/// The boundary of a request that is a form.
pub(super) fn boundary(request: &Request) -> Option<&str> {
    let parameters = request
        .header("content-type")?
        .strip_prefix("multipart/form-data")?;
    let (_, boundary) = parameters.split_once("boundary=")?;
    Some(boundary.trim_matches('"'))
}

/// Parses a form; None if it is malformed.
pub(super) fn parse<'b>(body: &'b [u8], boundary: &str) -> Option<Form<'b>> {
    let mark = format!("--{boundary}");
    let end = format!("\r\n{mark}");
    let mut form = Form::default();
    let mut rest = body.strip_prefix(mark.as_bytes())?;
    while !rest.starts_with(b"--") {
        let part = rest.strip_prefix(b"\r\n")?;
        let length = find(part, end.as_bytes())?;
        let (part, next) = (&part[..length], &part[length + end.len()..]);
        let head = find(part, b"\r\n\r\n")?;
        let name = name(std::str::from_utf8(&part[..head]).ok()?)?;
        let content = &part[head + 4..];
        if name == "file" {
            form.file = Some(content);
        } else {
            let text = std::str::from_utf8(content).ok()?;
            form.fields.insert(name.to_owned(), value(name, text));
        }
        rest = next;
    }
    Some(form)
}

/// The `name` in the headers of a part.
fn name(headers: &str) -> Option<&str> {
    let (_, after) = headers.split_once(" name=\"")?;
    Some(after.split_once('"')?.0)
}

fn value(name: &str, text: &str) -> Value {
    let parsed = match text {
        "true" => Some(Value::Bool(true)),
        "false" => Some(Value::Bool(false)),
        number => number.parse::<u64>().ok().map(Value::from),
    };
    parsed
        .filter(|_| !TEXTS.contains(&name))
        .unwrap_or_else(|| text.into())
}

fn find(bytes: &[u8], text: &[u8]) -> Option<usize> {
    bytes.windows(text.len()).position(|window| window == text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn fields_and_the_file_are_read() {
        let part = |name: &str, value: &str| {
            format!("--b\r\ncontent-disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n")
        };
        let text = [part("model", "7"), part("stream", "true"), part("n", "2")].concat();
        let file = "--b\r\nContent-Disposition: form-data; name=\"file\"; \
        filename=\"a.wav\"\r\n\r\nRI\r\nFF\r\n--b--\r\n";
        let body = text + file;
        let form = parse(body.as_bytes(), "b").unwrap();
        assert_eq!(
            Value::Object(form.fields),
            json!({ "model": "7", "stream": true, "n": 2 })
        );
        assert_eq!(form.file, Some(&b"RI\r\nFF"[..]));
        for cut in 0..body.len() - 4 {
            assert_eq!(parse(&body.as_bytes()[..cut], "b"), None, "{cut}");
        }
    }
}
