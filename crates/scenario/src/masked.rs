//! The source text of an error without the secrets in it.

use crate::secrets::looks_secret;
use llmscen_core::url_secrets::{is_secret_name, secret_ranges};
use regex::{Captures, Regex};
use std::ops::Range;
use std::sync::LazyLock;

/// A name and what is between it and its value: in YAML or JSON, in an assignment, and behind a flag of a command. A
/// match ends before the value, which may itself have a name and a secret within, so that a text is searched once.
static NAME: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let colon = r#"(?:["'][ \t]*:[ \t]*(?:\r?\n)?|[ \t]*:[ \t]*\r?\n|[ \t]*:[ \t]+)"#;
    let equals = r#"(?<equals>=["']?)"#;
    let space = r#"["']?(?:[ \t]*,[ \t]*|[ \t]+|[ \t]*\r?\n[ \t]*-[ \t]+)["']?"#;
    Regex::new(&format!(
        "(?<name>[\\w-]+)(?:{colon}|{equals})|(?<flag>--?[\\w-]+){space}"
    ))
    .ok()
});
/// The header of a YAML block scalar.
static BLOCK: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"^[>|][-+\d]*[ \t]*(?:#[^\n]*)?\r?\n").ok());
/// A URL in a text.
static URL: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r#"\w+://[^\s"'<>]*"#).ok());

/// The text with an asterisk for each byte of a literal secret, so that places in it stay the same.
pub(crate) fn masked(text: &str) -> String {
    let mut hidden = NAME
        .as_ref()
        .map_or_else(Vec::new, |name| named(text, name));
    for url in URL.iter().flat_map(|url| url.find_iter(text)) {
        let ranges = secret_ranges(url.as_str()).into_iter();
        let literal = ranges.filter(|range| !url.as_str()[range.clone()].starts_with("${"));
        hidden.extend(literal.map(|range| url.start() + range.start..url.start() + range.end));
    }
    let mut shown = text.to_owned();
    for range in hidden {
        let stars = "*".repeat(range.len());
        shown.replace_range(range, &stars);
    }
    shown
}

/// The values with a secret name, without those that are no literal secret.
fn named(text: &str, name: &Regex) -> Vec<Range<usize>> {
    let mut hidden = Vec::new();
    let mut line = Line::default();
    let mut at = 0;
    while let Some(found) = name.captures_at(text, at) {
        let whole = found.get_match();
        at = whole.end();
        let name = found.name("name").or_else(|| found.name("flag"));
        let Some(name) = name.filter(|name| is_secret_name(name.as_str())) else {
            continue;
        };
        line.advance(text, name.start());
        let value = value_range(text, &found, &line);
        if !is_literal(text[value.clone()].trim()) {
            continue;
        }
        at = value.end;
        let mut start = value.start;
        for line in text[value].split_inclusive('\n') {
            let from = start + (line.len() - line.trim_start().len());
            hidden.push(from..from + line.trim().len());
            start += line.len();
        }
    }
    hidden
}

/// The line of a position that only moves on.
#[derive(Default)]
struct Line {
    start: usize,
    at: usize,
    /// Whether a brace or a bracket is open in the line, so that a plain value ends with its item.
    is_flow: bool,
}

impl Line {
    fn advance(&mut self, text: &str, to: usize) {
        let passed = &text[self.at..to];
        if let Some(end) = passed.rfind('\n') {
            self.start = self.at + end + 1;
            self.is_flow = false;
        }
        self.is_flow |= text[self.start.max(self.at)..to].contains(['{', '[']);
        self.at = to;
    }
}

/// The bytes of the value behind a name.
fn value_range(text: &str, found: &Captures, line: &Line) -> Range<usize> {
    let start = found.get_match().end();
    let rest = &text[start..];
    let until = |ends: &[char]| rest.find(ends).unwrap_or(rest.len());
    if found.name("flag").is_some() {
        return start..start + until(&[' ', '\t', '\r', '\n', '"', '\'', ',', ']', '}']);
    }
    if found.name("equals").is_some() {
        return start..start + until(&[' ', '\t', '\r', '\n', '"', '\'', ',', '&', ']', '}']);
    }
    let indent = |line: &str| line.len() - line.trim_start_matches([' ', '\t', '-']).len();
    let header = BLOCK.as_ref().and_then(|block| block.find(rest));
    let header = header.map_or(0, |header| header.end());
    if header > 0 || text[..start].ends_with('\n') {
        let first = rest[header..].lines().find(|line| !line.trim().is_empty());
        let is_nested = |line: &str| {
            let line = line.trim();
            line.starts_with('{') || line.contains(": ") || line.ends_with(':')
        };
        if header == 0 && first.is_some_and(is_nested) {
            return start..start;
        }
        let own = indent(&text[line.start..]);
        let length = rest[header..]
            .split_inclusive('\n')
            .take_while(|line| line.trim().is_empty() || indent(line) > own)
            .map(str::len)
            .sum::<usize>();
        return start + header..start + header + length;
    }
    let (open, length) = match rest.as_bytes().first() {
        Some(b'"') => (1, quoted(rest, '"')),
        Some(b'\'') => (1, quoted(rest, '\'')),
        Some(b'[') => (1, rest[1..].find([']', '\n']).unwrap_or(rest.len() - 1)),
        Some(b'{') => (0, 0),
        _ => {
            let plain = &rest[..until(&['\n'])];
            let end = match line.is_flow {
                true => plain.find([',', '}', ']']),
                false => plain.find(" #"),
            };
            (0, end.unwrap_or(plain.len()))
        }
    };
    start + open..start + open + length
}

/// Length of a quoted text after its first quote; without a second one, to the end of the line.
fn quoted(text: &str, quote: char) -> usize {
    let text = &text[1..];
    let mut chars = text.char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' if quote == '"' => drop(chars.next()),
            c if c == quote => match chars.peek() {
                Some((_, next)) if quote == '\'' && *next == quote => drop(chars.next()),
                _ => return at,
            },
            _ => {}
        }
    }
    text.find('\n').unwrap_or(text.len())
}

/// Whether a value may be a secret in plain text: one that a scenario may not have, unlike a variable.
fn is_literal(value: &str) -> bool {
    looks_secret(value.trim_start_matches(['-', '$'])) && !value.contains("${")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literal_secrets_are_asterisks_and_the_rest_stays() {
        for (text, expected) in [
            ("  api_key: sk-12345 # x", "  api_key: ******** # x"),
            (
                "{ api_key: \"sk-12345\", model: m }",
                "{ api_key: \"********\", model: m }",
            ),
            (
                "{ api_key: sk-12345, model: m }",
                "{ api_key: ********, model: m }",
            ),
            (
                "Authorization: Bearer abcdef",
                "Authorization: *************",
            ),
            (
                "url: http://al:hunter22@h/v1?key=Kq8w7e6r&v=1",
                "url: http://al:********@h/v1?key=********&v=1",
            ),
            ("  - https://t0k3n-abc@h/v1", "  - https://*********@h/v1"),
            (
                "command: serve --api-key sk-123 --port 80",
                "command: serve --api-key ****** --port 80",
            ),
            (
                "[serve, \"--hf-token\", \"hf_abcd\"]",
                "[serve, \"--hf-token\", \"*******\"]",
            ),
            ("env: HF_TOKEN=hf_abcd serve", "env: HF_TOKEN=******* serve"),
            ("password: päss-wörd", "password: ***********"),
            (
                "serve --eager --api-key sk-12345 m",
                "serve --eager --api-key ******** m",
            ),
            (
                "[\"--eager\",\"--api-key\",\"sk-12345\"]",
                "[\"--eager\",\"--api-key\",\"********\"]",
            ),
            ("- --api-key\n- sk-12345\n", "- --api-key\n- ********\n"),
            (
                "command: \"curl -H 'Authorization: Bearer abcdef' u\"",
                "command: \"curl -H 'Authorization: *****************",
            ),
            (
                "docker run --env=HF_TOKEN=hf_abcd",
                "docker run --env=HF_TOKEN=*******",
            ),
            (
                "{\"target\":{\"api_key\":\"sk-12345\"}}",
                "{\"target\":{\"api_key\":\"********\"}}",
            ),
            (
                "target.api_key: [sk-1, sk-22]",
                "target.api_key: [***********]",
            ),
            ("password: >-\n  ab,cdef\n", "password: >-\n  *******\n"),
            (
                "tokens: [a]\npassword: |\n  first line\n\n  second\nmodel: m\n",
                "tokens: [a]\npassword: |\n  **********\n\n  ******\nmodel: m\n",
            ),
            (
                "x:\n  - password:\n      plain-text\n    model: m\n",
                "x:\n  - password:\n      **********\n    model: m\n",
            ),
            (
                "password: \"two\n  lines\"\nkey: 'it''s us'",
                "password: \"***\n  *****\"\nkey: '********'",
            ),
            ("password: $ecret-1,2", "password: **********"),
            ("u: http://al:hun,ter22@h", "u: http://al:*********@h"),
        ] {
            assert_eq!(masked(text), expected);
            assert_eq!(masked(text).len(), text.len());
        }
        for text in [
            "api_key: ${KEY}",
            "tokenizer: meta/llama",
            "max_tokens: 20000000",
            "url: http://h:8000/v1",
            "key: 12",
            "auth:\n  kind: oauth2\n  scope: all\n",
            "\"auth\": {\n  \"kind\": \"oauth2\"}",
            "url: http://${USER}:${PASSWORD}@h",
        ] {
            assert_eq!(masked(text), text);
        }
    }
}
