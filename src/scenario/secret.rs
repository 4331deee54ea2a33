//! What must not be written down, and what is written in its place.

use crate::model::redact::{is_distinct, percent_decoded};
use crate::scenario::tree::{Data, Node, Part};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use std::ops::Range;

/// What a text is, besides text.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Place {
    /// A text of the scenario: braces are references.
    Text,
    /// A text of a request body: braces are the renderer's.
    Body,
}

/// Byte ranges of a URL that must not be shown: a password, or a token in its place, a user name and values of parameters unless
/// they are short or plain words. `api-version`, which services want spelled out, is no secret.
pub(crate) fn hidden(url: &str) -> Vec<Range<usize>> {
    let start = url.find("://").map_or(0, |at| at + 3);
    let end = url[start..].find(['/', '?', '#']).map_or(url.len(), |at| start + at);
    let mut ranges = Vec::new();
    if let Some(at) = url[start..end].rfind('@').map(|at| start + at) {
        let colon = url[start..at].find(':').map_or(at, |colon| start + colon);
        // A user without a password is a token.
        if colon + 1 >= at || is_veiled(&url[start..colon]) {
            ranges.push(start..colon);
        }
        ranges.push((colon + 1).min(at)..at);
    }
    let query = url[end..].find('?').map_or(url.len(), |at| end + at + 1);
    let close = url[query..].find('#').map_or(url.len(), |at| query + at);
    let mut at = query;
    for pair in url[query..close].split('&') {
        let secret = |(name, value): &(&str, &str)| is_secret_name(name) || (*name != "api-version" && is_veiled(value));
        if let Some((name, value)) = pair.split_once('=').filter(secret) {
            ranges.push(at + name.len() + 1..at + name.len() + 1 + value.len());
        }
        at += pair.len() + 1;
    }
    ranges.retain(|range| !range.is_empty());
    ranges
}

/// What a URL hides, as it is spelled there and as basic authentication sends it.
pub(crate) fn in_url(url: &str) -> Vec<String> {
    let mut found: Vec<String> = hidden(url).into_iter().map(|range| url[range].to_owned()).collect();
    let start = url.find("://").map_or(0, |at| at + 3);
    let end = url[start..].find(['/', '?', '#']).map_or(url.len(), |at| start + at);
    if let Some((user, _)) = url[start..end].rsplit_once('@') {
        let plain = percent_decoded(user).unwrap_or_else(|| user.to_owned());
        found.push(STANDARD.encode(plain));
    }
    found
}

/// Whether a text is a URL and nothing else.
pub(crate) fn is_url(text: &str) -> bool {
    let scheme = text.split_once("://").map(|(scheme, _)| scheme).filter(|scheme| !scheme.is_empty());
    scheme.is_some_and(|scheme| scheme.chars().all(|c| c.is_ascii_alphanumeric() || c == '+'))
        && !text.contains(char::is_whitespace)
}

/// A URL with `[redacted]` in place of what must not be shown, however short that is.
pub(crate) fn shown(url: &str) -> String {
    hidden(url).into_iter().rev().fold(url.to_owned(), |mut shown, range| {
        shown.replace_range(range, "[redacted]");
        shown
    })
}

/// Whether the value of a variable is called by name where it is sent: it is distinct, or stands for one that a stored plan lacks.
pub(crate) fn is_veiled(value: &str) -> bool {
    is_distinct(value) || value.contains("${")
}

/// A part by its variable's name instead of its value.
pub(crate) fn by_name(part: &Part) -> String {
    match part {
        Part::Literal(text) => escaped(text, Place::Text),
        Part::Env { name, .. } => format!("${{{name}}}"),
        Part::Ref(path) => format!("{{{{ {path} }}}}"),
    }
}

/// A text by its variables, where nothing but a scheme such as `Bearer` stands beside them.
pub(crate) fn named(parts: &[Part]) -> Option<String> {
    let scheme = |text: &str| ["", "bearer", "basic", "token", "apikey", "digest"].contains(&text.trim().to_lowercase().as_str());
    let bare = parts.iter().all(|part| !matches!(part, Part::Literal(text) if !scheme(text)));
    (bare && parts.iter().any(|part| matches!(part, Part::Env { .. } | Part::Ref(_))))
        .then(|| parts.iter().map(by_name).collect())
}

/// Whether a variable of the environment is in it.
pub(crate) fn from_env(node: &Node) -> bool {
    node.parts.iter().any(|parts| parts.iter().any(|part| matches!(part, Part::Env { .. })))
}

/// Whether a number in it came from a variable that is called a secret, or is long and part of a request body, so that its
/// name is written and not its value.
pub(crate) fn keeps_name(node: &Node, place: Place) -> bool {
    let keeps = |part: &Part| match part {
        Part::Env { name, value } => is_secret_name(name) || place == Place::Body && is_veiled(value),
        _ => false,
    };
    node.parts.iter().any(|parts| parts.iter().any(keeps))
}

/// A value as text that is read back as it stands, secrets by name.
pub(crate) fn written(node: &Node, place: Place) -> String {
    match (&node.parts, &node.data) {
        (Some(parts), _) => parts.iter().map(|part| written_part(part, place)).collect(),
        (None, Data::Text(text)) => text.clone(),
        (None, _) => node.json().to_string(),
    }
}

/// One part of such a text.
pub(crate) fn written_part(part: &Part, place: Place) -> String {
    match part {
        Part::Literal(text) => escaped(text, place),
        Part::Env { name, value } if is_secret_name(name) || place == Place::Body && is_veiled(value) => by_name(part),
        Part::Env { value, .. } => escaped(value, place),
        Part::Ref(_) => by_name(part),
    }
}

/// A text that is read back as it stands.
pub(crate) fn escaped(text: &str, place: Place) -> String {
    let text = text.replace("${", "$${");
    if place == Place::Text { text.replace("{{", "{{ \"{{\" }}") } else { text }
}

/// Whether a name is that of a secret: `X-Api-Key` and `HF_TOKEN` are, `MAX_TOKENS` is not.
pub(crate) fn is_secret_name(name: &str) -> bool {
    const ENDS: [&str; 10] =
        ["authorization", "auth", "key", "token", "secret", "password", "passwd", "cookie", "credentials", "signature"];
    let name = name.to_lowercase();
    name.split(|c: char| !c.is_ascii_alphanumeric()).any(|segment| ENDS.iter().any(|end| segment.ends_with(end)))
}

/// What stands in a command behind flags and variables that are called secrets, by those: `--api-key X`, `--hf-token=X`,
/// `HF_TOKEN=X`; also in a word that is a command itself, as that of `sh -c`.
pub(crate) fn behind_flags(words: &[String]) -> Vec<(String, String)> {
    let split = |word: &String| shell_words::split(word).ok().filter(|_| word.contains(char::is_whitespace));
    let mut found = Vec::new();
    for (at, word) in words.iter().enumerate() {
        let next = words.get(at + 1).filter(|_| word.starts_with('-') && is_secret_name(word) && !word.contains('='));
        found.extend(next.map(|value| (word.clone(), value.clone())));
        let single = word.starts_with('-') || !word.contains(char::is_whitespace);
        let within = word.split_once('=').filter(|(name, _)| single && is_secret_name(name));
        found.extend(within.map(|(name, value)| (name.to_owned(), value.to_owned())));
        found.extend(split(word).map(|own| behind_flags(&own)).unwrap_or_default());
    }
    found.retain(|(_, value)| looks_secret(value));
    found
}

/// Whether a text may be a secret: no further flag, no variable of a shell, no number that is a size.
pub(crate) fn looks_secret(value: &str) -> bool {
    let size = value.len() < 8 && value.parse::<f64>().is_ok();
    value.len() >= 4 && !value.starts_with(['-', '$']) && !size
}

/// Whether a value of a request body is a secret by its key; `max_tokens` is none.
pub(crate) fn is_hidden(key: &str, value: &Node) -> bool {
    let key = key.to_lowercase().replace('-', "_");
    let secret =
        ["api_key", "apikey", "access_token", "auth_token", "secret", "password", "authorization"].contains(&key.as_str());
    secret && matches!(value.data, Data::Text(_) | Data::Int(_))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_tokens_and_secret_parameters_of_a_url_are_hidden() {
        for (url, secrets) in [
            ("http://h/v1/chat/completions", vec![]),
            ("http://user:pw@h/v1", vec!["pw"]),
            ("http://t0k@h", vec!["t0k"]),
            ("https://h/v1?api-version=1&key=abc&x=@", vec!["abc"]),
            ("https://h/a@b", vec![]),
            ("http://user:@h", vec!["user"]),
            ("http://long-user-1:pw@h", vec!["long-user-1", "pw"]),
            ("https://h/v1?session=a1b2c3d4&alt=sse&stream=true&api-version=2024-05-01#key=x", vec!["a1b2c3d4"]),
        ] {
            let found: Vec<&str> = hidden(url).into_iter().map(|range| &url[range]).collect();
            assert_eq!(found, secrets, "{url}");
        }
    }

    #[test]
    fn what_a_url_hides_is_known_as_basic_authentication_sends_it_too() {
        assert_eq!(in_url("http://Aladdin:open%20sesame@h/v1"), ["open%20sesame", "QWxhZGRpbjpvcGVuIHNlc2FtZQ=="]);
        assert!(in_url("http://h/v1?v=1").is_empty());
    }

    #[test]
    fn names_of_secrets_end_like_one() {
        for name in [
            "Authorization",
            "X-Custom-Auth",
            "X-Api-Key",
            "OPENAI_API_KEY",
            "HF_TOKEN",
            "accessToken",
            "Set-Cookie",
            "apikey",
            "db_password",
        ] {
            assert!(is_secret_name(name), "{name}");
        }
        for name in ["MAX_TOKENS", "TOKENIZER", "X-Team", "KEYS_DIR", "LLM_URL"] {
            assert!(!is_secret_name(name), "{name}");
        }
    }

    #[test]
    fn escaped_text_holds_no_variable() {
        assert_eq!(escaped("${A} {{ b }}", Place::Text), "$${A} {{ \"{{\" }} b }}");
        assert_eq!(escaped("${A} {{ b }}", Place::Body), "$${A} {{ b }}");
    }
}
