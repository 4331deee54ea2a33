//! Escaping of untrusted text (from servers, files and scenarios) for terminals, JSON and spreadsheets.

use std::borrow::Cow;
use std::fmt::Write;

/// Whether a terminal interprets the character: control characters except line feed and tab, and bidirectional
/// controls.
pub fn is_terminal_control(c: char) -> bool {
    is_bidi_control(c) || c.is_control() && !matches!(c, '\n' | '\t')
}

/// Whether the character is a bidirectional control, which reorders the surrounding text.
pub fn is_bidi_control(c: char) -> bool {
    matches!(c, '\u{200e}' | '\u{200f}' | '\u{061c}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Escapes every character that a terminal interprets, as `\u{1b}`. `colors` keeps color sequences.
pub fn escape_controls(text: &str, colors: bool) -> Cow<'_, str> {
    replaced(text, colors, |c, out| out.extend(c.escape_unicode()))
}

/// Escapes the same characters in a JSON text as `\u001b`, so that the parsed value is unchanged.
pub fn escape_controls_in_json(text: &str) -> Cow<'_, str> {
    let mut units = [0; 2];
    // Writing to a string cannot fail.
    replaced(text, false, |c, out| {
        c.encode_utf16(&mut units)
            .iter()
            .for_each(|unit| _ = write!(out, "\\u{unit:04x}"))
    })
}

fn replaced(text: &str, colors: bool, mut replace: impl FnMut(char, &mut String)) -> Cow<'_, str> {
    if !text.chars().any(is_terminal_control) {
        return Cow::Borrowed(text);
    }
    let (mut out, mut rest) = (String::with_capacity(text.len() + 16), text);
    while let Some(c) = rest.chars().next() {
        let length = match color(rest).filter(|_| colors) {
            Some(length) => {
                out.push_str(&rest[..length]);
                length
            }
            None if is_terminal_control(c) => {
                replace(c, &mut out);
                c.len_utf8()
            }
            None => {
                out.push(c);
                c.len_utf8()
            }
        };
        rest = &rest[length..];
    }
    Cow::Owned(out)
}

/// The length of a leading escape sequence that sets color or weight. Sequences that hide text do not count.
fn color(text: &str) -> Option<usize> {
    let body = text.strip_prefix("\u{1b}[")?;
    let end = body
        .find(|c: char| !c.is_ascii_digit() && c != ';')
        .filter(|end| body[*end..].starts_with('m'))?;
    let mut codes = body[..end]
        .split(';')
        .map(|code| code.parse::<u8>().unwrap_or(0));
    let first = codes.next()?;
    let wide = matches!(first, 38 | 48);
    let shows = |code: u8| matches!(code, 0..=4 | 22..=24 | 30..=37 | 39 | 90..=97);
    (wide || shows(first) && codes.all(shows)).then_some(2 + end + 1)
}

/// Escapes a CSV cell that a spreadsheet would evaluate as a formula, with a leading `'`. Numbers are unchanged.
pub fn escape_csv_cell(text: &str) -> Cow<'_, str> {
    let formula = text.starts_with(['=', '+', '-', '@', '\t', '\r'])
        && text != "-"
        && text.parse::<f64>().is_err();
    if formula {
        Cow::Owned(format!("'{text}"))
    } else {
        Cow::Borrowed(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terminal_controls_are_escaped_and_line_breaks_kept() {
        assert_eq!(escape_controls("a\n\tb é", false), "a\n\tb é");
        assert_eq!(
            escape_controls("\u{1b}[2J\r\u{7f}\u{9b}1m\u{202e}x", false),
            r"\u{1b}[2J\u{d}\u{7f}\u{9b}1m\u{202e}x"
        );
        assert_eq!(escape_controls("\u{1b}[31mx", false), r"\u{1b}[31mx");
    }

    #[test]
    fn color_sequences_are_kept_and_others_escaped() {
        let shown = "\u{1b}[1;31merror\u{1b}[0m \u{1b}[38;2;1;2;3mx";
        assert_eq!(escape_controls(shown, true), shown);
        assert_eq!(
            escape_controls("\u{1b}[8mx\u{1b}[1;5m\u{1b}[2J\u{1b}]0;t\u{7}", true),
            r"\u{1b}[8mx\u{1b}[1;5m\u{1b}[2J\u{1b}]0;t\u{7}"
        );
    }

    #[test]
    fn escaped_json_parses_to_the_same_value() {
        let json = serde_json::json!({ "a": "\u{202e}\u{7f}\u{9b}\u{1b}b" }).to_string();
        let shown = escape_controls_in_json(&json);
        assert_eq!(shown, r#"{"a":"\u202e\u007f\u009b\u001bb"}"#);
        assert_eq!(
            serde_json::from_str::<serde_json::Value>(&shown).unwrap()["a"],
            "\u{202e}\u{7f}\u{9b}\u{1b}b"
        );
    }

    #[test]
    fn no_cell_is_a_formula() {
        for (text, written) in [
            ("=1+1", "'=1+1"),
            ("+cmd", "'+cmd"),
            ("-x", "'-x"),
            ("@SUM(A1)", "'@SUM(A1)"),
            ("\t=1", "'\t=1"),
            ("\r=1", "'\r=1"),
            ("-1.5", "-1.5"),
            ("+3", "+3"),
            ("-inf", "-inf"),
            ("-", "-"),
            ("a=1", "a=1"),
            ("", ""),
        ] {
            assert_eq!(escape_csv_cell(text), written);
        }
    }
}
