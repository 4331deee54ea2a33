//! `target.transport`: whether requests are messages on WebSockets, and the settings that cannot work then.

use crate::draft::Draft;
use crate::fault::{Mistake, Review};
use crate::tree::{Entry, Node, Span};
use crate::values::target::{is_websocket_url, models, version};
use llmscen_core::api::Api;
use llmscen_core::target::HttpVersion;

/// The URL of the handshake, which is an HTTP request: `https://…` for `wss://…`.
pub(super) fn http_url(url: String) -> String {
    match url.strip_prefix("ws") {
        Some(rest) if is_websocket_url(&url) => format!("http{rest}"),
        _ => url,
    }
}

/// The URLs with the model, which Realtime has in the query.
pub(super) fn with_model(draft: &Draft<'_>, api: Api, urls: Vec<String>) -> Vec<String> {
    let model = draft.get("target.model").and_then(models);
    let Some([model]) = model.as_deref().filter(|_| api == Api::OpenaiRealtime) else {
        return urls;
    };
    let name: String = model.name.bytes().map(escape).collect();
    let with_model = |url: String| {
        let (path, query) = url.split_once('?').unwrap_or((&url, ""));
        let has_model = query.split('&').any(|field| field.starts_with("model="));
        match (has_model, query.is_empty()) {
            (true, _) => url,
            (false, true) => format!("{path}?model={name}"),
            (false, false) => format!("{path}?{query}&model={name}"),
        }
    };
    urls.into_iter().map(with_model).collect()
}

/// A byte of a value in a query (RFC 3986, section 2.1).
fn escape(byte: u8) -> String {
    if byte.is_ascii_alphanumeric() || b"-._~/:".contains(&byte) {
        char::from(byte).to_string()
    } else {
        format!("%{byte:02X}")
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
    let by_api = || {
        draft
            .get("target.api")
            .filter(|_| api == Api::OpenaiRealtime)
    };
    let implied = url
        .map(|url| (url.at, "this URL is opened as a WebSocket"))
        .or_else(|| Some((by_api()?.at, "this protocol is sent over WebSocket")));
    let because = match (transport, implied) {
        (Some(entry), Some((at, reason))) if chosen.as_deref() == Some("http") => {
            let mistake = Mistake::new(
                entry.value.at,
                "`transport: http` for a WebSocket",
                "is not used",
            );
            review.push(mistake.also(at, reason).help("Remove it."));
            return true;
        }
        (Some(entry), _) if chosen.as_deref() == Some("websocket") => {
            (entry.value.at, "requests are messages on a WebSocket")
        }
        (_, Some(implied)) => implied,
        _ => return false,
    };
    if !api.has_websocket() {
        let message = format!("`api: {api}` is not sent over WebSocket");
        let mistake = Mistake::new(because.0, message, because.1);
        review.push(mistake.help(
            "Write `api: openai-responses` or `api: openai-realtime`, or use \
        a URL with `http://` or `https://`.",
        ));
        return true;
    }
    check_settings(draft, because, review);
    if api.keeps_conversation() {
        check_conversation(draft, because, review);
    }
    true
}

fn check_settings(draft: &Draft<'_>, because: (Span, &'static str), review: &mut Review) {
    let mut refuse = |at: Span, name: &str, label: &str, help: &str| {
        let mistake = Mistake::new(at, format!("`{name}` does not work over WebSocket"), label);
        review.push(mistake.also(because.0, because.1).help(help));
    };
    const REMOVE: &str = "Remove it: a WebSocket has the headers of `target.headers` and \
    `api_key`, once, when it is opened.";
    for (path, why) in NOT_OVER_WEBSOCKET {
        let entry = draft.written(path);
        let is_none = |entry: &&Entry| entry.value.text().as_deref() == Some("none");
        if let Some(entry) = entry.filter(|entry| !is_none(entry)) {
            refuse(entry.key_at, &entry.key, why, REMOVE);
        }
    }
    if let Some(entry) = draft.written("target.http.version")
        && version(&entry.value) == Some(HttpVersion::Http2)
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

/// Reports what cannot work where the server keeps the conversation with the connection.
fn check_conversation(draft: &Draft<'_>, because: (Span, &'static str), review: &mut Review) {
    let mut refuse = |at: Span, name: &str, label: &str, help: &str| {
        let message = format!("`{name}` does not work with `openai-realtime`");
        let mistake = Mistake::new(at, message, label);
        review.push(mistake.also(because.0, because.1).help(help));
    };
    let kept = "the server has only the messages of the connection";
    if let Some(begin) = draft.written("dataset.turns.begin") {
        refuse(begin.key_at, "begin", kept, "Remove it.");
    }
    if let Some(replies) = draft.written("dataset.turns.replies")
        && draft.text("dataset.turns.replies").as_deref() == Some("recorded")
    {
        refuse(
            replies.value.at,
            "replies: recorded",
            kept,
            "Write `replies: live`.",
        );
    }
    if let Some(limit) = draft.written("dataset.turns.at_limit")
        && draft.text("dataset.turns.at_limit").as_deref() == Some("truncate")
    {
        let why = "the server keeps all turns of the connection";
        refuse(
            limit.value.at,
            "at_limit: truncate",
            why,
            "Write `at_limit: end`.",
        );
    }
    for side in ["input", "output"] {
        for place in ["extra", "template"] {
            let path = format!("request.{place}.session.audio.{side}.format.type");
            let format = draft.get(&path);
            if let Some(format) = format.filter(|node| node.text().as_deref() != Some("audio/pcm"))
            {
                let why = "llmscen sends and measures audio/pcm at 24 kHz";
                refuse(format.at, "format", why, "Write `type: audio/pcm`.");
            }
        }
    }
    if let Some(pool) = draft.written("target.http.pool")
        && draft.text("target.http.pool").as_deref() == Some("per-request")
    {
        let why = "the turns of a session use one connection";
        refuse(pool.value.at, "pool: per-request", why, "Remove it.");
    }
    if let Some(model) = draft.get("target.model")
        && models(model).is_some_and(|models| models.len() > 1)
    {
        let help = "Write a case per model with `matrix`.";
        refuse(
            model.at,
            "several models",
            "the URL of a connection names one",
            help,
        );
    }
}
