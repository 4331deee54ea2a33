//! Secrets in URLs, and names that indicate secrets.

use crate::redact::{is_distinct, percent_decoded};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use std::ops::Range;

/// Byte ranges of secrets in a URL: password, user name, and query values, except values that are short or plain words.
/// `api-version` is not a secret.
pub fn secret_ranges(url: &str) -> Vec<Range<usize>> {
    let start = url.find("://").map_or(0, |at| at + 3);
    let end = url[start..]
        .find(['/', '?', '#'])
        .map_or(url.len(), |at| start + at);
    let mut ranges = Vec::new();
    if let Some(at) = url[start..end].rfind('@').map(|at| start + at) {
        let colon = url[start..at].find(':').map_or(at, |colon| start + colon);
        // A user name without a password is a token.
        if colon + 1 >= at || needs_placeholder(&url[start..colon]) {
            ranges.push(start..colon);
        }
        ranges.push((colon + 1).min(at)..at);
    }
    let query = url[end..].find('?').map_or(url.len(), |at| end + at + 1);
    let close = url[query..].find('#').map_or(url.len(), |at| query + at);
    let mut at = query;
    for pair in url[query..close].split('&') {
        let secret = |(name, value): &(&str, &str)| {
            is_secret_name(name) || (*name != "api-version" && needs_placeholder(value))
        };
        if let Some((name, value)) = pair.split_once('=').filter(secret) {
            ranges.push(at + name.len() + 1..at + name.len() + 1 + value.len());
        }
        at += pair.len() + 1;
    }
    ranges.retain(|range| !range.is_empty());
    ranges
}

/// The secrets of a URL, verbatim and as encoded by basic authentication.
pub fn secrets_in_url(url: &str) -> Vec<String> {
    let mut found: Vec<String> = secret_ranges(url)
        .into_iter()
        .map(|range| url[range].to_owned())
        .collect();
    let start = url.find("://").map_or(0, |at| at + 3);
    let end = url[start..]
        .find(['/', '?', '#'])
        .map_or(url.len(), |at| start + at);
    if let Some((user, _)) = url[start..end].rsplit_once('@') {
        let plain = percent_decoded(user).unwrap_or_else(|| user.to_owned());
        found.push(STANDARD.encode(plain));
    }
    found
}

/// Whether the text is exactly one URL.
pub fn is_url(text: &str) -> bool {
    let scheme = text
        .split_once("://")
        .map(|(scheme, _)| scheme)
        .filter(|scheme| !scheme.is_empty());
    scheme.is_some_and(|scheme| {
        scheme
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || c == '+')
    }) && !text.contains(char::is_whitespace)
}

/// The URL with secrets replaced by `[redacted]`.
pub fn redact_url(url: &str) -> String {
    secret_ranges(url)
        .into_iter()
        .rev()
        .fold(url.to_owned(), |mut shown, range| {
            shown.replace_range(range, "[redacted]");
            shown
        })
}

/// Whether the value of a variable is shown as `${NAME}`: it is distinct, or itself such a placeholder of a stored
/// plan.
pub fn needs_placeholder(value: &str) -> bool {
    is_distinct(value) || value.contains("${")
}

/// Whether the name indicates a secret: `X-Api-Key` and `HF_TOKEN` are, `MAX_TOKENS` is not.
pub fn is_secret_name(name: &str) -> bool {
    const ENDS: [&str; 10] = [
        "authorization",
        "auth",
        "key",
        "token",
        "secret",
        "password",
        "passwd",
        "cookie",
        "credentials",
        "signature",
    ];
    let name = name.to_lowercase();
    name.split(|c: char| !c.is_ascii_alphanumeric())
        .any(|segment| ENDS.iter().any(|end| segment.ends_with(end)))
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
            (
                "https://h/v1?session=a1b2c3d4&alt=sse&stream=true&api-version=2024-05-01#key=x",
                vec!["a1b2c3d4"],
            ),
        ] {
            let found: Vec<&str> = secret_ranges(url)
                .into_iter()
                .map(|range| &url[range])
                .collect();
            assert_eq!(found, secrets, "{url}");
        }
    }

    #[test]
    fn url_secrets_include_the_basic_authentication_encoding() {
        assert_eq!(
            secrets_in_url("http://Aladdin:open%20sesame@h/v1"),
            ["open%20sesame", "QWxhZGRpbjpvcGVuIHNlc2FtZQ=="]
        );
        assert!(secrets_in_url("http://h/v1?v=1").is_empty());
    }

    #[test]
    fn names_that_indicate_secrets() {
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
}
