//! The server's error message, from the error body formats that servers use.

use llmscen_core::outcome::Failure;
use serde_json::Value;

/// The server's message in an error response, at most [`Failure::MAX_MESSAGE`] characters.
///
/// Supports OpenAI's `error` object, FastAPI's `detail` (text, or a list of errors), a plain `message`, the title of
/// an HTML page, and plain text.
pub fn error_message(status: u16, body: &[u8]) -> String {
    let words = error_text(body);
    match words.is_empty() {
        true => format!("status {status} with an empty body"),
        false => words,
    }
}

/// The message in an error body or an error event; empty for an empty body.
pub fn error_text(body: &[u8]) -> String {
    let words = match serde_json::from_slice::<Value>(body) {
        Ok(value) => find_message(&value).unwrap_or_else(|| value.to_string()),
        Err(_) => text_or_title(&String::from_utf8_lossy(body)),
    };
    words.trim().chars().take(Failure::MAX_MESSAGE).collect()
}

/// The message in a JSON error, searched in the fields that servers use, outermost first.
fn find_message(value: &Value) -> Option<String> {
    match value {
        Value::String(text) if !text.trim().is_empty() => Some(text.clone()),
        Value::Object(fields) => ["error", "message", "detail", "msg"]
            .into_iter()
            .filter_map(|key| fields.get(key))
            .find_map(|inner| find_message(inner).map(|words| prefix_location(value, words))),
        Value::Array(faults) => {
            let all: Vec<String> = faults.iter().filter_map(find_message).collect();
            (!all.is_empty()).then(|| all.join("; "))
        }
        _ => None,
    }
}

/// FastAPI has the path of the invalid field beside the message: `loc: ["body", "max_tokens"]`.
fn prefix_location(fault: &Value, words: String) -> String {
    let Some(Value::Array(path)) = fault.get("loc") else {
        return words;
    };
    let path: Vec<String> = path
        .iter()
        .map(|part| {
            part.as_str()
                .map_or_else(|| part.to_string(), str::to_owned)
        })
        .collect();
    format!("{}: {words}", path.join("."))
}

/// The title of an HTML page, or the text itself.
fn text_or_title(text: &str) -> String {
    // ASCII lowercase preserves byte positions.
    let lower = text.to_ascii_lowercase();
    let title = lower.find("<title").and_then(|start| {
        let start = start + lower.get(start..)?.find('>')? + 1;
        let end = start + lower.get(start..)?.find("</title")?;
        text.get(start..end)
    });
    match title.filter(|title| !title.trim().is_empty()) {
        Some(title) => title.split_whitespace().collect::<Vec<_>>().join(" "),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_message_of_the_server_is_found() {
        for (body, expected) in [
            (
                r#"{"error":{"message":"no such model","type":"x","code":404}}"#,
                "no such model",
            ),
            (
                r#"{"error":"queue is full","error_type":"overloaded"}"#,
                "queue is full",
            ),
            (
                r#"{"object":"error","message":"too long","code":400}"#,
                "too long",
            ),
            (
                r#"{"error":{"error":{"message":"wrapped by a proxy"}}}"#,
                "wrapped by a proxy",
            ),
            (r#"{"error":{"message":"","detail":"deeper"}}"#, "deeper"),
            (r#"{"detail":"Not Found"}"#, "Not Found"),
            (
                r#"{"detail":[{"loc":["body",3],"msg":"bad"},{"loc":["query"],"msg":"missing"}]}"#,
                "body.3: bad; query: missing",
            ),
            (r#""just text""#, "just text"),
            (r#"{"error":{"code":7}}"#, r#"{"error":{"code":7}}"#),
            ("  Internal Server Error\n", "Internal Server Error"),
            (
                "<html><HEAD><Title lang=en>\n 502 Bad\n Gateway</TITLE></head><body>nginx</body></html>",
                "502 Bad Gateway",
            ),
            (
                "<html><body>no title</body></html>",
                "<html><body>no title</body></html>",
            ),
            ("<title>never closed", "<title>never closed"),
            ("", "status 502 with an empty body"),
            (" \r\n", "status 502 with an empty body"),
        ] {
            assert_eq!(error_message(502, body.as_bytes()), expected, "{body}");
        }
    }

    #[test]
    fn words_are_cut_by_characters_and_bad_bytes_replaced() {
        assert_eq!(
            error_message(500, "é".repeat(9000).as_bytes())
                .chars()
                .count(),
            500
        );
        assert_eq!(error_message(500, b"caf\xE9"), "caf\u{FFFD}");
    }
}
