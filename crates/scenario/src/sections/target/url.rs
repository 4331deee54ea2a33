//! `target.url`: completes a base URL with the path of the protocol.

use crate::fault::Review;
use crate::tree::{Data, Node, Part};
use crate::values::target::{split_url, url_error};
use llmscen_core::api::Api;
use llmscen_core::url_secrets::redact_url;
use std::collections::BTreeSet;

const AXES: [&str; 3] = ["target.url", "target.api", "request.stream"];

/// The base path of a protocol's clients; empty: the host alone.
fn base(api: Api) -> &'static str {
    match api {
        Api::Dashscope => "/api/v1",
        Api::Ollama => "/api",
        Api::Tgi | Api::Custom | Api::Local => "",
        _ => "/v1",
    }
}

/// How many bytes of a base URL stay, and what follows them: the rest of the protocol's path, and the query. None for
/// a URL with another path.
fn rest(url: &str, api: Api, stream: bool) -> Option<(usize, String)> {
    let usual = api.path(stream);
    let base = base(api);
    let (_, behind) = split_url(url);
    let (path, query) = behind.split_at(behind.find(['?', '#']).unwrap_or(behind.len()));
    let bare = path.trim_end_matches('/');
    let missing = match bare {
        "" => usual,
        _ if !base.is_empty() && bare.ends_with(base) => usual.strip_prefix(base)?,
        _ => return None,
    };
    (!missing.is_empty() && url_error(url).is_none()).then(|| {
        (
            url.len() - behind.len() + bare.len(),
            format!("{missing}{query}"),
        )
    })
}

/// The complete URL of a base URL.
pub(super) fn completed(url: &str, api: Api, stream: bool) -> Option<String> {
    rest(url, api, stream).map(|(kept, rest)| format!("{}{rest}", &url[..kept]))
}

/// The path of Text Generation Inference depends on `stream`, in which mix entries may differ.
pub(super) fn is_fixed(api: Api, root: &Node) -> bool {
    api != Api::Tgi || root.get("mix").is_none()
}

pub(super) fn note(url: &str) -> String {
    format!("target.url completed to {}", redact_url(url))
}

/// Completes the URL in the tree, so that the resolved plan has it. If a matrix sets one of its inputs, each case
/// completes its own.
pub(crate) fn complete(root: &mut Node, swept: &BTreeSet<String>, review: &mut Review) {
    let Some(entry) = root
        .entry_at(AXES[0])
        .filter(|_| AXES.iter().all(|path| !swept.contains(*path)))
        .cloned()
    else {
        return;
    };
    let api = root
        .get("target.api")
        .and_then(Node::text)
        .and_then(|name| Api::parse(&name));
    let stream = !matches!(
        root.get("request.stream").map(|node| &node.data),
        Some(Data::Bool(false))
    );
    let Some(api) = api.filter(|api| is_fixed(*api, root)) else {
        return;
    };
    let complete = |node: &Node, review: &mut Review| {
        let complete = complete_node(node, api, stream)?;
        review.note(node.at, note(&complete.text()?));
        Some(complete)
    };
    let value = match &entry.value.data {
        Data::List(items) => {
            let complete = |item: &Node| complete(item, review).unwrap_or_else(|| item.clone());
            let items = items.iter().map(complete).collect();
            Some(Node {
                data: Data::List(items),
                ..entry.value
            })
        }
        _ => complete(&entry.value, review),
    };
    if let Some(value) = value {
        root.set(AXES[0], entry.key_at, value);
    }
}

/// The complete URL of a base URL. None where nothing is missing, or where a variable's value would have to be cut:
/// each case does that.
fn complete_node(node: &Node, api: Api, stream: bool) -> Option<Node> {
    let url = node.text()?;
    let (kept, rest) = rest(&url, api, stream)?;
    let parts = match node.parts.as_deref() {
        Some(parts) => Some(spliced(parts, url.len() - kept, &rest)?.into()),
        None => None,
    };
    Some(Node {
        data: Data::Text(format!("{}{rest}", &url[..kept])),
        parts,
        ..node.clone()
    })
}

/// Replaces the last `cut` bytes of the parts by `rest`. None where they are not literal.
fn spliced(parts: &[Part], cut: usize, rest: &str) -> Option<Vec<Part>> {
    let mut parts = parts.to_vec();
    match parts.last_mut() {
        Some(Part::Literal(text)) if text.len() >= cut => {
            text.truncate(text.len() - cut);
            text.push_str(rest);
        }
        _ if cut == 0 => parts.push(Part::Literal(rest.to_owned())),
        _ => return None,
    }
    Some(parts)
}

#[cfg(test)]
mod tests;
