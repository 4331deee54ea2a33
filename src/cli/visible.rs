//! Texts of servers and files on a terminal: nothing in them may act on it.

use std::borrow::Cow;
use std::fmt::Write;

/// The text with its control characters, and those that reorder text, as `\u{1b}`; line feeds and tabs stay.
pub fn escaped(text: &str) -> Cow<'_, str> {
    if !text.chars().any(acts) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match acts(c) {
            // A string takes everything.
            true => _ = write!(out, "{}", c.escape_unicode()),
            false => out.push(c),
        }
    }
    Cow::Owned(out)
}

fn acts(c: char) -> bool {
    let reorders = matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    reorders || c.is_control() && !matches!(c, '\n' | '\t')
}

/// A JSON document indented, and any other text unchanged.
pub fn indented(text: &str) -> String {
    let document = serde_json::from_str::<serde_json::Value>(text).ok().filter(|value| value.is_object() || value.is_array());
    document.map_or_else(|| text.to_owned(), |value| format!("{value:#}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_escaped_and_lines_stay() {
        assert_eq!(escaped("a\n\tb é"), "a\n\tb é");
        assert_eq!(escaped("\u{1b}[2J\r\u{7f}\u{9b}1m\u{202e}x"), r"\u{1b}[2J\u{d}\u{7f}\u{9b}1m\u{202e}x");
    }

    #[test]
    fn documents_are_indented_and_texts_are_not() {
        assert_eq!(indented(r#"{"b":1.0,"a":[]}"#), "{\n  \"b\": 1.0,\n  \"a\": []\n}");
        assert_eq!(indented("data: {}\n\n"), "data: {}\n\n");
        assert_eq!(indented("12"), "12");
    }
}
