//! What command lines have in common: names, URLs, lengths.

use super::{Account, Tool, number};
use serde_json::{Value, json};

/// A scenario's name made of any text; `fallback` where nothing of it fits.
pub(super) fn name(text: &str, fallback: &str) -> String {
    let kept: String = text.to_lowercase().chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
    let words: Vec<&str> = kept.split('-').filter(|word| !word.is_empty()).collect();
    if words.is_empty() { fallback.to_owned() } else { words.join("-") }
}

/// The path of a URL without its query, and without a slash at its end.
pub(super) fn path(url: &str) -> &str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let path = rest.find('/').map_or("", |at| &rest[at..]);
    path.split(['?', '#']).next().unwrap_or_default().trim_end_matches('/')
}

/// A URL with a scheme: `http` where it has none.
pub(super) fn with_scheme(url: &str) -> String {
    if url.contains("://") { url.to_owned() } else { format!("http://{url}") }
}

/// Base URL and endpoint as one.
pub(super) fn join(base: &str, endpoint: &str) -> String {
    format!("{}/{}", with_scheme(base).trim_end_matches('/'), endpoint.trim_start_matches('/'))
}

/// A length between `least` and `most`: a number where they are equal, else uniform.
pub(super) fn between(least: f64, most: f64) -> Value {
    if least >= most { number(most) } else { json!({ "uniform": [number(least), number(most)] }) }
}

/// A length about `mean` with a standard deviation; the number itself without one.
pub(super) fn about(mean: f64, sd: f64) -> Value {
    if sd > 0.0 { json!({ "normal": { "mean": number(mean), "sd": number(sd) } }) } else { number(mean) }
}

/// The URL of a request by the protocol, if the path does not already end like one.
pub(super) fn endpoint(url: &str, wanted: &str, known: &[&str]) -> String {
    let url = with_scheme(url);
    if known.iter().any(|own| path(&url).ends_with(own)) { url } else { join(&url, wanted) }
}

/// The protocol that a path of an OpenAI-like server speaks.
pub(super) fn api_of(url: &str) -> &'static str {
    let path = path(url);
    match () {
        () if path.ends_with("/chat/completions") => "openai-chat",
        () if path.ends_with("/completions") => "openai-completions",
        () if path.ends_with("/responses") => "openai-responses",
        () if path.ends_with("/embeddings") => "openai-embeddings",
        () if path.ends_with("/rerank") || path.ends_with("/reranks") => "rerank",
        () if path.ends_with("/messages") => "anthropic",
        () => "openai-chat",
    }
}

/// A duration as a scenario writes it.
pub(super) fn seconds(value: f64) -> Value {
    let text = if value.fract() == 0.0 { format!("{value:.0}s") } else { format!("{}ms", value * 1e3) };
    Value::from(text)
}

/// A rate as a scenario writes it.
pub(super) fn per_second(value: f64) -> Value {
    Value::from(format!("{value}/s"))
}

/// The command line, what became of it and the tool's defaults, as comments.
pub(super) fn head(tool: Tool, accounts: &[Account], defaults: &[String]) -> String {
    let mut head = format!("# From a command line of {}. What became of each flag:\n", tool.name());
    let width = accounts.iter().map(|account| account.flag.chars().count()).max().unwrap_or(0).min(44);
    for Account { flag, keys, note } in accounts {
        let said = match (keys.is_empty(), note) {
            (false, None) => keys.join(", "),
            (false, Some(note)) => format!("{} ({note})", keys.join(", ")),
            (true, note) => format!("not carried over: {}", note.as_deref().unwrap_or_default()),
        };
        head.push_str(&format!("#   {flag:width$}  {said}\n"));
    }
    if !defaults.is_empty() {
        head.push_str(&format!("# Defaults of {} {}:\n", tool.name(), tool.version()));
        defaults.iter().for_each(|default| head.push_str(&format!("#   {default}\n")));
    }
    head
}
