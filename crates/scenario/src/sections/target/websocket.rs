//! `target.transport`: whether requests are messages on WebSockets, and the settings that cannot work then.

use crate::fault::{Mistake, Review};
use crate::sections::Draft;
use crate::tree::{Node, Span};
use crate::values::target::is_websocket_url;
use llmscen_core::api::Api;

/// The URL of the handshake, which is an HTTP request: `https://…` for `wss://…`.
pub(super) fn http_url(url: String) -> String {
    match url.strip_prefix("ws") {
        Some(rest) if is_websocket_url(&url) => format!("http{rest}"),
        _ => url,
    }
}

/// Settings that a WebSocket does not have: the path, and why.
const NOT_OVER_WEBSOCKET: [(&str, &str); 5] = [
    ("target.request_id", "would need a header for each request"),
    ("target.session_id", "would need a header for each session"),
    ("target.session_token", "would need a header for each turn"),
    ("target.aws", "would sign each request"),
    ("target.http.compression", "compresses responses over HTTP"),
];

/// Whether requests are messages on WebSockets. Reports settings that cannot work over them.
pub(super) fn decode(draft: &Draft<'_>, api: Api, review: &mut Review) -> bool {
    let urls = draft.get("target.url").map_or(&[][..], Node::one_or_more);
    let is_websocket = |node: &&Node| node.text().is_some_and(|url| is_websocket_url(&url));
    let url = urls.iter().find(is_websocket);
    let transport = draft.entry("target.transport");
    let chosen = draft.text("target.transport");
    let (at, reason) = match (transport, url) {
        (Some(entry), Some(url)) if chosen.as_deref() == Some("http") => {
            let mistake = Mistake::new(
                entry.value.at,
                "`transport: http` for the URL of a WebSocket",
                "is not used",
            );
            review.push(
                mistake
                    .also(url.at, "this URL is opened as a WebSocket")
                    .help("Remove `transport`, or write a URL with `http://` or `https://`."),
            );
            return true;
        }
        (Some(entry), _) if chosen.as_deref() == Some("websocket") => {
            (entry.value.at, "requests are messages on a WebSocket")
        }
        (_, Some(url)) => (url.at, "this URL is opened as a WebSocket"),
        _ => return false,
    };
    if !api.has_websocket() {
        let message = format!("`api: {api}` is not sent over WebSocket");
        let mistake = Mistake::new(at, message, reason);
        review.push(
            mistake
                .help("Write `api: openai-responses`, or use a URL with `http://` or `https://`."),
        );
        return true;
    }
    check_settings(draft, (at, reason), review);
    true
}

fn check_settings(draft: &Draft<'_>, because: (Span, &'static str), review: &mut Review) {
    let mut refuse = |at: Span, name: &str, label: &str, help: &str| {
        let mistake = Mistake::new(at, format!("`{name}` does not work over WebSocket"), label);
        review.push(mistake.also(because.0, because.1).help(help));
    };
    const REMOVE: &str = "Remove it: a WebSocket has the headers of `target.headers` and `api_key`, once, when it is opened.";
    for (path, why) in NOT_OVER_WEBSOCKET {
        let entry = draft.written(path);
        let is_none = |entry: &&crate::tree::Entry| entry.value.text().as_deref() == Some("none");
        if let Some(entry) = entry.filter(|entry| !is_none(entry)) {
            refuse(entry.key_at, &entry.key, why, REMOVE);
        }
    }
    if let Some(entry) = draft.written("target.http.version")
        && crate::values::target::version(&entry.value)
            == Some(llmscen_core::target::HttpVersion::Http2)
    {
        refuse(
            entry.value.at,
            "version: 2",
            "WebSockets are opened with HTTP/1.1",
            "Remove it.",
        );
    }
    if let Some(entry) = draft
        .written("request.stream")
        .filter(|_| draft.flag("request.stream") == Some(false))
    {
        refuse(
            entry.value.at,
            "stream: false",
            "each event is a message",
            "Remove it, or use a URL with `http://` or `https://`.",
        );
    }
    for item in draft.items_at("mix") {
        if let Some(header) = item.entries_at("headers").first() {
            refuse(
                header.key_at,
                &header.key,
                "would need a header for each request",
                REMOVE,
            );
        }
    }
    let several = draft
        .get("target.url")
        .filter(|url| url.one_or_more().len() > 1);
    if let Some(url) =
        several.filter(|_| draft.text("target.balance").as_deref() != Some("session"))
    {
        refuse(
            url.at,
            "url",
            "the turns of a session use one connection",
            "Write `balance: session`.",
        );
    }
}
