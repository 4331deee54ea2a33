//! Secrets, and their removal from text before it is stored or shown.

use crate::api_key::ObtainedKeys;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt::{self, Write};

/// A secret text that must not reach a log, a report or a file. Its debug output is `[redacted]`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Secret(String);

impl Secret {
    /// Wraps a secret.
    pub fn new(text: impl Into<String>) -> Secret {
        Secret(text.into())
    }

    /// The secret, only for sending it and for redacting it from responses.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[redacted]")
    }
}

/// Replacement for a secret.
pub const REDACTED: &str = "[redacted]";
/// Minimum length of a value that is secret only by its origin, bytes.
pub const DISTINCT: usize = 8;
/// Maximum length of a lower-case word that is not treated as a secret.
const LONGEST_WORD: usize = 15;

/// Whether a value is unlikely to occur in other text: `8`, `true`, `thinking` and `qwen2.5` are not distinct.
pub fn is_distinct(text: &str) -> bool {
    let word = text.len() <= LONGEST_WORD && text.chars().all(|c| c.is_ascii_lowercase());
    text.len() >= DISTINCT && !word
}

/// Minimum length of a secret, bytes: shorter ones would match other text.
pub const SHORTEST: usize = 4;

/// A set of secrets in all their encodings, which removes them from text.
#[derive(Clone, Debug, Default)]
pub struct Redactor {
    pub(crate) secrets: Vec<Hidden>,
    /// Keys that are obtained during the run.
    obtained: Vec<ObtainedKeys>,
    /// Encodings of the obtained keys besides the usual ones.
    encodings: Vec<fn(&str) -> String>,
}

/// One encoding of a secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Hidden {
    secret: Secret,
    /// Minimum length of a prefix that counts as the secret at the end of a truncated text.
    shortest: usize,
}

impl Redactor {
    /// Adds the header values of one request.
    pub fn with_headers(&self, own: &[(String, String)]) -> Redactor {
        if own.is_empty() {
            return self.clone();
        }
        self.clone().with(
            own.iter().flat_map(|(_, value)| whole_and_last(value)),
            DISTINCT,
        )
    }

    /// Adds the values of command-line flags.
    pub fn with_flags(&self, flags: &[(String, String)]) -> Redactor {
        self.clone().with(
            flags.iter().flat_map(|(_, value)| whole_and_last(value)),
            SHORTEST,
        )
    }

    /// A redactor for these secrets, except those shorter than `shortest`.
    pub fn from_texts<'a>(texts: impl Iterator<Item = &'a str>, shortest: usize) -> Redactor {
        Redactor::default().with(texts, shortest)
    }

    /// Adds secrets. Longer ones are replaced first, so that no part of one remains.
    pub fn with<'a>(self, texts: impl Iterator<Item = &'a str>, shortest: usize) -> Redactor {
        let spelled: BTreeSet<String> = texts
            .filter(|text| text.len() >= shortest)
            .flat_map(spellings)
            .collect();
        self.and_spelled(spelled.into_iter().map(|text| (text, shortest)))
    }

    /// Adds the keys that a command has printed so far, and those that it prints later.
    pub fn with_obtained(mut self, keys: &ObtainedKeys) -> Redactor {
        if !self.obtained.iter().any(|own| own.is_shared_with(keys)) {
            self.obtained.push(keys.clone());
        }
        self
    }

    /// Adds the secrets of another redactor.
    pub fn merge(mut self, other: Redactor) -> Redactor {
        self.secrets.extend(other.secrets);
        self.encodings.extend(other.encodings);
        let all = other.obtained.iter();
        all.fold(self, Redactor::with_obtained)
            .and_spelled(std::iter::empty())
    }

    /// Adds every secret in the encoding `spell`.
    pub fn with_encoding(mut self, spell: fn(&str) -> String) -> Redactor {
        self.encodings.push(spell);
        let more: Vec<_> = self
            .secrets
            .iter()
            .map(|own| (spell(own.secret.expose()), own.shortest))
            .collect();
        self.and_spelled(more.into_iter())
    }

    fn and_spelled(mut self, words: impl Iterator<Item = (String, usize)>) -> Redactor {
        let words = words.filter(|(word, shortest)| word.len() >= *shortest);
        self.secrets.extend(words.map(|(word, shortest)| Hidden {
            secret: Secret::new(word),
            shortest,
        }));
        self.secrets.sort_by(|a, b| {
            let (one, other) = (a.secret.expose(), b.secret.expose());
            other
                .len()
                .cmp(&one.len())
                .then_with(|| one.cmp(other))
                .then(a.shortest.cmp(&b.shortest))
        });
        self.secrets
            .dedup_by(|later, first| later.secret == first.secret);
        self
    }

    /// Whether there is nothing to remove.
    fn is_empty(&self) -> bool {
        self.secrets.is_empty()
            && self
                .obtained
                .iter()
                .all(|keys| keys.hidden().next().is_none())
    }

    /// The secrets to remove, longest first; of the obtained keys only those that match. Nothing is allocated without
    /// one: the keys of a long run are many, and each response is checked.
    fn current(&self, matches: impl Fn(&Hidden) -> bool) -> Cow<'_, [Hidden]> {
        let obtained = self.obtained.iter().flat_map(ObtainedKeys::hidden);
        let encoded = |hidden: &Hidden| {
            let spell = |spell: &fn(&str) -> String| Hidden {
                secret: Secret::new(spell(hidden.secret.expose())),
                shortest: hidden.shortest,
            };
            self.encodings.iter().map(spell).collect::<Vec<_>>()
        };
        let encodings = obtained.clone().flat_map(encoded).filter(&matches);
        let obtained = obtained.filter(|hidden| matches(hidden)).cloned();
        let obtained: Vec<Hidden> = obtained.chain(encodings).collect();
        if obtained.is_empty() {
            return Cow::Borrowed(&self.secrets);
        }
        let mut all = [obtained, self.secrets.clone()].concat();
        all.sort_by_key(|hidden| std::cmp::Reverse(hidden.secret.expose().len()));
        Cow::Owned(all)
    }

    /// Removes the secrets, and a secret's prefix at the end of a truncated text.
    pub fn redact_truncated(&self, text: &str) -> String {
        let secrets =
            self.current(|hidden| hidden.is_in(text) || hidden.cut_at_the_end(text).is_some());
        let clean = secrets
            .iter()
            .fold(text.to_owned(), |text, hidden| hidden.strike(text));
        match secrets
            .iter()
            .filter_map(|hidden| hidden.cut_at_the_end(&clean))
            .min()
        {
            Some(start) => clean[..start].to_owned() + REDACTED,
            None => clean,
        }
    }

    /// Removes the secrets from a text that is not truncated.
    pub fn redact(&self, text: String) -> String {
        strike_each(&self.current(|hidden| hidden.is_in(&text)), text)
    }

    /// Removes the secrets from every string of a value.
    pub fn redact_value<T: Serialize + DeserializeOwned>(&self, data: T) -> T {
        let Some(text) = serde_json::to_string(&data)
            .ok()
            .filter(|_| !self.is_empty())
        else {
            return data;
        };
        let clean = self.redact_json(&text);
        match serde_json::from_str(&clean) {
            _ if clean == text => data,
            Ok(clean) => clean,
            // A secret that equals an enum value of the data, such as a verdict, cannot be removed; all others are.
            Err(_) => self
                .current(|hidden| hidden.is_in(&text))
                .iter()
                .fold(data, |data, hidden| hidden.strike_all(data)),
        }
    }

    /// Removes the secrets from the string values of a JSON text. Numbers, keys and punctuation are unchanged, so
    /// that it still parses.
    pub fn redact_json(&self, text: &str) -> String {
        if self.is_empty() {
            return text.to_owned();
        }
        let secrets = self.current(|hidden| hidden.is_in(text));
        let (mut out, mut rest) = (String::with_capacity(text.len()), text);
        while let Some(open) = rest.find('"') {
            let (before, string) = rest.split_at(open + 1);
            let (inside, after) = string.split_at(end_of_string(string));
            let key = after
                .strip_prefix('"')
                .unwrap_or_default()
                .trim_start()
                .starts_with(':');
            out += before;
            out += &if key {
                inside.to_owned()
            } else {
                strike_each(&secrets, inside.to_owned())
            };
            let quote = after.len().min(1);
            out += &after[..quote];
            rest = &after[quote..];
        }
        out + rest
    }

    /// Removes the secrets from a file, by its extension; None if it contains none, or is not text.
    pub fn redact_file(&self, name: &str, bytes: &[u8]) -> Option<String> {
        let end = name.rsplit('.').next().unwrap_or_default();
        let text = std::str::from_utf8(bytes)
            .ok()
            .filter(|_| !self.is_empty())?;
        let clean = match end {
            "json" | "jsonl" => self.redact_json(text),
            "md" | "html" | "csv" | "tsv" | "xml" | "svg" | "txt" | "log" | "hlog" => {
                self.redact(text.to_owned())
            }
            _ => return None,
        };
        (clean != text).then_some(clean)
    }
}

fn strike_each(secrets: &[Hidden], text: String) -> String {
    secrets
        .iter()
        .fold(text, |text, hidden| hidden.strike(text))
}

/// The spellings of a secret, as parts of a redactor.
pub(crate) fn hidden_spellings(secret: &str, shortest: usize) -> Vec<Hidden> {
    let texts = Redactor::default().with([secret].into_iter(), shortest);
    texts.secrets
}

/// Length up to the closing quote of the JSON string that `text` is inside of.
fn end_of_string(text: &str) -> usize {
    let mut escaped = false;
    let closes = |(_, byte): &(usize, u8)| {
        let closes = *byte == b'"' && !escaped;
        escaped = *byte == b'\\' && !escaped;
        closes
    };
    text.bytes()
        .enumerate()
        .find(closes)
        .map_or(text.len(), |(at, _)| at)
}

/// A secret verbatim and as encoded in JSON, HTML, XML and URLs.
fn spellings(secret: &str) -> Vec<String> {
    let json = serde_json::Value::from(secret).to_string();
    let json = json.get(1..json.len() - 1).unwrap_or_default().to_owned();
    let markup = |marks: &[(char, &str)]| {
        let spell = |c: char| {
            marks
                .iter()
                .find(|(mark, _)| *mark == c)
                .map_or_else(|| c.to_string(), |(_, by)| (*by).to_owned())
        };
        secret.chars().map(spell).collect::<String>()
    };
    let html = [
        ('&', "&amp;"),
        ('<', "&lt;"),
        ('>', "&gt;"),
        ('"', "&quot;"),
        ('\'', "&#x27;"),
        ('/', "&#x2f;"),
    ];
    let xml = [
        ('&', "&amp;"),
        ('<', "&lt;"),
        ('>', "&gt;"),
        ('"', "&quot;"),
        ('\'', "&apos;"),
    ];
    let upper = percent_encoded(secret);
    let slashes = json.replace('/', "\\/");
    let all = [
        secret.to_owned(),
        json,
        slashes,
        markup(&html),
        markup(&xml),
        upper.to_lowercase_hex(),
        upper.0,
    ];
    let mut all: Vec<String> = all.into_iter().chain(percent_decoded(secret)).collect();
    all.sort();
    all.dedup();
    all
}

/// A percent-encoded text with upper-case hexadecimal digits.
struct Encoded(String);

impl Encoded {
    fn to_lowercase_hex(&self) -> String {
        let mut pieces = self.0.split('%');
        let first = pieces.next().unwrap_or_default().to_owned();
        pieces.fold(first, |text, piece| {
            let (hex, rest) = piece.split_at(piece.len().min(2));
            format!("{text}%{}{rest}", hex.to_lowercase())
        })
    }
}

fn percent_encoded(text: &str) -> Encoded {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            true => out.push(char::from(byte)),
            // Writing to a string cannot fail.
            false => _ = write!(out, "%{byte:02X}"),
        }
    }
    Encoded(out)
}

/// Decodes percent-encoding; None if nothing is encoded.
pub(crate) fn percent_decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        let hex = after
            .get(..2)
            .filter(|_| byte == b'%')
            .and_then(|hex| std::str::from_utf8(hex).ok());
        match hex.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(decoded) => {
                bytes.push(decoded);
                rest = &after[2..];
            }
            None => {
                bytes.push(byte);
                rest = after;
            }
        }
    }
    String::from_utf8(bytes)
        .ok()
        .filter(|decoded| decoded != text)
}

/// Whether the number between two parts of a JSON text is the value of a key, so that its replacement needs quotes.
fn is_json_value(before: &str, after: &str) -> bool {
    let key = before
        .trim_end()
        .strip_suffix(':')
        .map(str::trim_end)
        .unwrap_or_default();
    let ends = after.starts_with(|c: char| ",}]".contains(c) || c.is_whitespace());
    ends && key.ends_with('"') && !key.ends_with("\\\"")
}

impl Hidden {
    fn is_in(&self, text: &str) -> bool {
        text.contains(self.secret.expose())
    }

    /// Removes the secret. A secret of digits is not removed from inside a longer number.
    fn strike(&self, text: String) -> String {
        let secret = self.secret.expose();
        if !self.is_in(&text) {
            return text;
        }
        if !secret.bytes().all(|byte| byte.is_ascii_digit()) {
            return text.replace(secret, REDACTED);
        }
        let numeric = |c: char| c.is_ascii_digit() || c == '.';
        let (mut out, mut done) = (String::with_capacity(text.len()), 0);
        for (at, _) in text.match_indices(secret) {
            let end = at + secret.len();
            let within = text[..at].ends_with(numeric)
                || text[end..].starts_with(|c: char| c.is_ascii_digit());
            if !within {
                out += &text[done..at];
                out += &if is_json_value(&text[..at], &text[end..]) {
                    format!("\"{REDACTED}\"")
                } else {
                    REDACTED.to_owned()
                };
                done = end;
            }
        }
        out + &text[done..]
    }

    /// Removes the secret from every string of a value, unless the result would no longer deserialize.
    fn strike_all<T: Serialize + DeserializeOwned>(&self, data: T) -> T {
        let only = Redactor {
            secrets: vec![self.clone()],
            ..Redactor::default()
        };
        let clean = serde_json::to_string(&data)
            .ok()
            .and_then(|text| serde_json::from_str(&only.redact_json(&text)).ok());
        clean.unwrap_or(data)
    }

    /// Start of a prefix of the secret at the end of `text`.
    fn cut_at_the_end(&self, text: &str) -> Option<usize> {
        let secret = self.secret.expose();
        let beginnings = secret
            .char_indices()
            .map(|(end, _)| &secret[..end])
            .filter(|beginning| beginning.len() >= self.shortest);
        beginnings
            .rev()
            .find(|beginning| text.ends_with(beginning))
            .map(|beginning| text.len() - beginning.len())
    }
}

/// A header value, and its last word: the key after a scheme such as `Bearer`.
pub(crate) fn whole_and_last(value: &str) -> impl Iterator<Item = &str> {
    std::iter::once(value).chain(value.rsplit(' ').next())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_words(words: &[&str]) -> Redactor {
        Redactor::from_texts(words.iter().copied(), SHORTEST)
    }

    #[test]
    fn long_header_values_of_a_request_are_removed() {
        let own = [
            ("authorization", "Bearer recorded-key"),
            ("x-a", "1234567"),
            ("x-b", "12345678"),
            ("x-c", "some other word"),
        ];
        let own = own.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let redactor = of_words(&["sk-123"]).with_headers(&own);
        let said =
            "recorded-key (Bearer recorded-key), 1234567, 12345678, word, some other word, sk-123";
        assert_eq!(
            redactor.redact_truncated(said),
            "[redacted] ([redacted]), 1234567, [redacted], word, [redacted], [redacted]"
        );
        assert_eq!(redactor.redact_truncated("cut recorded"), "cut [redacted]");
        assert_eq!(redactor.redact_truncated("cut recorde"), "cut recorde");
        assert_eq!(
            of_words(&["sk-123"]).with_headers(&[]).secrets,
            of_words(&["sk-123"]).secrets
        );
    }

    fn of(words: &[&str]) -> Redactor {
        Redactor::from_texts(words.iter().copied(), 4)
    }

    #[test]
    fn a_key_that_was_cut_is_removed_too() {
        let redactor = of(&["sk-12345678"]);
        assert_eq!(
            redactor.redact_truncated("bad key sk-12345"),
            "bad key [redacted]"
        );
        assert_eq!(redactor.redact_truncated("bad key sk-"), "bad key sk-");
        assert_eq!(
            redactor.redact_truncated("sk-12345 is bad"),
            "sk-12345 is bad"
        );
    }

    #[test]
    fn an_echoed_key_is_removed() {
        let redactor = of(&["sk-123", "Bearer sk-123"]);
        assert_eq!(
            redactor.redact_truncated("Incorrect API key: sk-123 (Bearer sk-123)"),
            "Incorrect API key: [redacted] ([redacted])"
        );
    }

    #[test]
    fn every_spelling_of_a_secret_is_removed() {
        let redactor = of(&["a/b\"c<d&e'f g"]);
        for spelled in [
            "a/b\"c<d&e'f g",
            r#"a/b\"c<d&e'f g"#,
            r#"a\/b\"c<d&e'f g"#,
            "a&#x2f;b&quot;c&lt;d&amp;e&#x27;f g",
            "a/b&quot;c&lt;d&amp;e&apos;f g",
            "a%2Fb%22c%3Cd%26e%27f%20g",
            "a%2fb%22c%3cd%26e%27f%20g",
        ] {
            assert_eq!(
                redactor.redact_truncated(&format!("x {spelled} y")),
                "x [redacted] y"
            );
        }
        assert_eq!(
            of(&["open%20sesame"]).redact_truncated("open sesame"),
            "[redacted]"
        );
        assert_eq!(
            of(&["a_b_cd"])
                .with_encoding(|text| text.replace('_', "\\_"))
                .redact_truncated("a\\_b\\_cd a_b_cd"),
            "[redacted] [redacted]"
        );
    }

    #[test]
    fn json_stays_json() {
        let redactor = of(&["12345678", "key-of-mine"]);
        let text =
            r#"{"key-of-mine": 12345678, "a": "12345678", "b\"": ["say \"key-of-mine\"", "x"]}"#;
        let clean = redactor.redact_json(text);
        assert_eq!(
            clean,
            r#"{"key-of-mine": 12345678, "a": "[redacted]", "b\"": ["say \"[redacted]\"", "x"]}"#
        );
        serde_json::from_str::<serde_json::Value>(&clean).unwrap();
        assert_eq!(redactor.redact_file("a.json", text.as_bytes()), Some(clean));
        assert_eq!(redactor.redact_file("a.png", b"key-of-mine"), None);
        assert_eq!(
            redactor.redact_truncated("0.12345678 912345678 12345678, 12345678"),
            "0.12345678 912345678 [redacted], [redacted]"
        );
    }

    #[test]
    fn only_texts_that_may_be_cut_lose_the_beginning_of_a_secret() {
        let redactor = of(&["gpt-4o-mini bench"]);
        let text = r#"{"case": "model=gpt-4o-mini", "said": "gpt-4o-mini bench"}"#;
        assert_eq!(
            redactor.redact_json(text),
            r#"{"case": "model=gpt-4o-mini", "said": "[redacted]"}"#
        );
        assert_eq!(redactor.redact_file("a.md", b"model=gpt-4o-mini"), None);
    }

    #[test]
    fn a_secret_that_is_a_word_of_the_data_keeps_no_other_secret() {
        #[derive(Debug, PartialEq, Serialize, serde::Deserialize)]
        enum Word {
            Inconclusive,
        }
        let redactor = of(&["Inconclusive", "key-of-mine"]);
        let data = (Word::Inconclusive, "key-of-mine".to_owned());
        assert_eq!(
            redactor.redact_value(data),
            (Word::Inconclusive, "[redacted]".to_owned())
        );
    }

    #[test]
    fn a_number_in_a_body_is_replaced_by_a_text() {
        let redactor = of(&["12345678"]);
        for (body, clean) in [
            (r#"{"a":12345678,"b":1}"#, r#"{"a":"[redacted]","b":1}"#),
            (r#"{"a" : 12345678 }"#, r#"{"a" : "[redacted]" }"#),
            (r#"{"a":"12345678"}"#, r#"{"a":"[redacted]"}"#),
        ] {
            assert_eq!(redactor.redact_truncated(body), clean);
        }
        assert_eq!(
            redactor.redact_truncated(r#"{"a":"\"b\":12345678,"}"#),
            r#"{"a":"\"b\":[redacted],"}"#
        );
        assert_eq!(
            redactor.redact_truncated("it is: 12345678, no"),
            "it is: [redacted], no"
        );
    }

    #[test]
    fn obtained_keys_are_copied_only_where_a_text_contains_them() {
        let keys = ObtainedKeys::default();
        let redactor = of_words(&["sk-fixed"]).with_obtained(&keys);
        for number in 0..100 {
            keys.add(format!("key-{number:03}").as_str());
        }
        let current = |text: &str| redactor.current(|hidden| hidden.is_in(text));
        assert!(matches!(current("stop"), Cow::Borrowed(_)));
        assert_eq!(current("key-007 key-042").len(), 3);
        let clean = redactor.redact("stop".to_owned());
        assert_eq!(clean, "stop");
        let clean = redactor.redact("key-007 sk-fixed key-100".to_owned());
        assert_eq!(clean, "[redacted] [redacted] key-100");
        assert_eq!(
            redactor.redact_truncated("key-099 key-1 key-0"),
            "[redacted] key-1 [redacted]"
        );
    }

    #[test]
    fn words_and_small_numbers_are_not_distinct() {
        for innocent in ["8", "true", "thinking", "qwen2.5", "1.5"] {
            assert!(!is_distinct(innocent), "{innocent}");
        }
        for distinct in ["12345678", "s3cret-1", "ABCDEFGH", "open sesame"] {
            assert!(is_distinct(distinct), "{distinct}");
        }
    }
}
