//! URLs, models with weights, HTTP versions, causes of a retry.

use crate::fault::{Mistake, Review};
use crate::schema_table::Leaf;
use crate::suggest::{list, meant_or, nearest};
use crate::tree::{Data, Node, Span};
use crate::values::{expect_some, object_schema};
use llmscen_core::endpoint::{UrlParts, host_and_port};
use llmscen_core::outcome::FailureKind;
use llmscen_core::target::{HttpVersion, ModelShare};
use serde_json::json;

/// The authority and the path of a URL; both are empty without a scheme that can be sent to.
pub(crate) fn split_url(url: &str) -> (&str, &str) {
    let parts = UrlParts::of(url);
    let is_known = ["http://", "https://", "ws://", "wss://"]
        .iter()
        .any(|scheme| url.starts_with(scheme));
    match is_known {
        true => (parts.authority, parts.path),
        false => ("", ""),
    }
}

/// Whether a URL is that of a WebSocket.
pub(crate) fn is_websocket_url(url: &str) -> bool {
    url.starts_with("ws://") || url.starts_with("wss://")
}

/// A URL in a form in which equal URLs are equal: with a lower-case host, with the port, and without credentials.
pub(crate) fn comparable_url(url: &str) -> String {
    let scheme = url.split("://").next().unwrap_or_default();
    let (_, path) = split_url(url);
    format!("{scheme}://{}{path}", host_and_port(url))
}

/// Why a text is not the URL of a server.
pub(crate) fn url_error(url: &str) -> Option<&'static str> {
    let (host, _) = split_url(url);
    let port = UrlParts::of(url).port.filter(|_| !host.is_empty());
    if port.is_some_and(|port| !port.parse::<u16>().is_ok_and(|port| port > 0)) {
        return Some("a port is a number from 1 to 65535");
    }
    let none = host.is_empty() || host.starts_with(':') || url.contains(char::is_whitespace);
    none.then_some("expected `http://…`, `https://…` or `simulator`")
}

const EXAMPLES: &str = "`qwen2.5`, `[base, lora-a]` or `{ base: 3, lora-a: 1 }`";

pub(crate) static MODELS: Leaf = Leaf {
    expected: "one or more model names",
    sweepable: true,
    schema: models_schema,
    check: |node, review| {
        expect_some(
            models(node),
            node,
            "one or more different model names, with weights above 0",
            EXAMPLES,
            review,
        );
    },
};

/// The models with their weights; never empty.
pub(crate) fn models(node: &Node) -> Option<Vec<ModelShare>> {
    let shares = match &node.data {
        Data::List(items) => items
            .iter()
            .map(model_shares)
            .collect::<Option<Vec<_>>>()?
            .concat(),
        _ => model_shares(node)?,
    };
    let unique = shares
        .iter()
        .enumerate()
        .all(|(index, share)| shares[..index].iter().all(|other| other.name != share.name));
    (unique && !shares.is_empty() && shares.iter().all(|share| !share.name.is_empty()))
        .then_some(shares)
}

fn model_shares(node: &Node) -> Option<Vec<ModelShare>> {
    if let Some(name) = node.text() {
        return Some(vec![ModelShare {
            name: name.into_owned(),
            weight: 1.0,
        }]);
    }
    if let Some(name) = node.get("name").and_then(Node::text) {
        let weight = node.get("weight").map_or(Some(1.0), weight)?;
        let known = node
            .entries()
            .iter()
            .all(|entry| ["name", "weight"].contains(&entry.key.as_str()));
        return known.then(|| {
            vec![ModelShare {
                name: name.into_owned(),
                weight,
            }]
        });
    }
    let shares = node.entries().iter().map(|e| {
        weight(&e.value).map(|weight| ModelShare {
            name: e.key.clone(),
            weight,
        })
    });
    shares
        .collect::<Option<Vec<_>>>()
        .filter(|shares| !shares.is_empty())
}

fn weight(node: &Node) -> Option<f64> {
    node.number()
        .filter(|weight| *weight > 0.0 && weight.is_finite())
}

fn models_schema() -> serde_json::Value {
    let weight = json!({ "type": "number", "exclusiveMinimum": 0 });
    let weights = json!({ "type": "object", "minProperties": 1,
        "additionalProperties": { "type": ["number", "string"] } });
    let named = object_schema(
        json!({ "name": { "type": "string" }, "weight": weight }),
        &["name"],
    );
    json!({ "anyOf": [{ "type": "string" }, weights, { "type": "array", "minItems": 1,
        "items": { "anyOf": [{ "type": "string" }, named, weights] } }] })
}

const EXPECTED: &str = "`auto`, `1.1` or `2`";

/// The version of HTTP, which is a number in YAML without quotes.
pub(crate) static VERSION: Leaf = Leaf {
    expected: EXPECTED,
    sweepable: true,
    schema: || json!({ "enum": ["auto", "1.1", "2", 1.1, 2] }),
    check: |node, review| {
        let examples = "`2` for HTTP/2 with prior knowledge, without TLS";
        expect_some(version(node), node, EXPECTED, examples, review);
    },
};

pub(crate) fn version(node: &Node) -> Option<HttpVersion> {
    match (node.number(), node.text().as_deref()) {
        (_, Some("auto")) => Some(HttpVersion::Auto),
        (Some(1.1), _) | (_, Some("1.1")) => Some(HttpVersion::Http1),
        (Some(2.0), _) | (_, Some("2")) => Some(HttpVersion::Http2),
        _ => None,
    }
}

/// Failures that can be retried; a cancelled request cannot.
const KINDS: [FailureKind; 12] = [
    FailureKind::Connect,
    FailureKind::Tls,
    FailureKind::TimeoutConnect,
    FailureKind::TimeoutRead,
    FailureKind::Http3xx,
    FailureKind::Http4xx,
    FailureKind::Http429,
    FailureKind::Http5xx,
    FailureKind::StreamError,
    FailureKind::Truncated,
    FailureKind::Decode,
    FailureKind::Empty,
];

pub(crate) static CAUSES: Leaf = Leaf {
    expected: "statuses from 300 to 599 and kinds of failure",
    sweepable: false,
    schema: causes_schema,
    check: check_causes,
};

enum Cause {
    Status(u16),
    Kind(FailureKind),
}

/// The statuses and failures; never empty.
pub(crate) fn causes(node: &Node) -> Option<(Vec<u16>, Vec<FailureKind>)> {
    let mut statuses = Vec::new();
    let mut kinds = Vec::new();
    for item in cause_items(node) {
        match cause(item)? {
            Cause::Status(status) => statuses.push(status),
            Cause::Kind(kind) => kinds.push(kind),
        }
    }
    (!statuses.is_empty() || !kinds.is_empty()).then_some((statuses, kinds))
}

fn cause_items(node: &Node) -> &[Node] {
    if matches!(node.data, Data::List(_)) {
        node.items()
    } else {
        std::slice::from_ref(node)
    }
}

fn cause(node: &Node) -> Option<Cause> {
    if let Data::Int(status) = node.data {
        return u16::try_from(status)
            .ok()
            .filter(|status| (300..600).contains(status))
            .map(Cause::Status);
    }
    let kind = FailureKind::parse(&node.text()?)?;
    KINDS.contains(&kind).then_some(Cause::Kind(kind))
}

fn check_causes(node: &Node, review: &mut Review) {
    let help = || {
        format!(
            "Statuses from 300 to 599, and {}.",
            list(KINDS.map(FailureKind::name), "and")
        )
    };
    if cause_items(node).is_empty() {
        review
            .push(Mistake::new(node.at, "`on` is empty", "nothing would be retried").help(help()));
    }
    for item in cause_items(node)
        .iter()
        .filter(|item| cause(item).is_none())
    {
        let word = item.text().unwrap_or_default();
        let meant = nearest(&word, KINDS.map(FailureKind::name));
        let label = meant_or(meant, "is neither");
        let is_failure = FailureKind::parse(&word).is_some();
        let label = if is_failure {
            "cancelled by the client".to_owned()
        } else {
            label
        };
        review.push(
            Mistake::new(
                item.at,
                "this is not a status or failure that can be retried",
                label,
            )
            .help(help()),
        );
    }
}

fn causes_schema() -> serde_json::Value {
    let one = json!({ "anyOf": [{ "type": "integer", "minimum": 300, "maximum": 599 },
        { "enum": KINDS.map(FailureKind::name) }] });
    json!({ "anyOf": [one, { "type": "array", "minItems": 1, "items": one }] })
}

/// The name of the built-in server, as a URL and as a protocol.
pub(crate) const SIMULATOR: &str = "simulator";

/// The path after `simulator`, empty without one. None for other URLs.
pub(crate) fn simulator_path(url: &str) -> Option<&str> {
    url.strip_prefix(SIMULATOR)
        .filter(|path| path.is_empty() || path.starts_with('/'))
}

/// Reports an invalid header name.
pub(crate) fn check_header_name(name: &str, at: Span, review: &mut Review) {
    let token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
    if name.is_empty() || !name.bytes().all(token) {
        review.push(Mistake::new(
            at,
            format!("`{name}` is not a header name"),
            "has characters that HTTP does not allow",
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse::parse;

    fn read(text: &str) -> Option<Vec<(String, f64)>> {
        let node = parse(0, 0, text, &mut Review::default()).unwrap();
        models(&node).map(|shares| {
            shares
                .into_iter()
                .map(|share| (share.name, share.weight))
                .collect()
        })
    }

    #[test]
    fn every_notation_of_models_is_parsed() {
        let pair = |a: f64, b: f64| Some(vec![("a".to_owned(), a), ("b".to_owned(), b)]);
        assert_eq!(read("a"), Some(vec![("a".to_owned(), 1.0)]));
        assert_eq!(read("[a, b]"), pair(1.0, 1.0));
        assert_eq!(read("{a: 3, b: 1}"), pair(3.0, 1.0));
        assert_eq!(read("[{a: 3}, {name: b, weight: 0.5}]"), pair(3.0, 0.5));
        for bad in [
            "[]",
            "{a: 0}",
            "{a: -1}",
            "[a, a]",
            "[{name: a, wait: 1}]",
            "7",
            "{}",
        ] {
            assert_eq!(read(bad), None, "{bad}");
        }
    }

    #[test]
    fn version_may_be_a_number() {
        let read = |text: &str| version(&parse(0, 0, text, &mut Review::default()).unwrap());
        assert_eq!(read("auto"), Some(HttpVersion::Auto));
        assert_eq!(
            (read("1.1"), read("'1.1'")),
            (Some(HttpVersion::Http1), Some(HttpVersion::Http1))
        );
        assert_eq!(
            (read("2"), read("2.0"), read("\"2\"")),
            (
                Some(HttpVersion::Http2),
                Some(HttpVersion::Http2),
                read("2")
            )
        );
        assert_eq!((read("3"), read("1"), read("http2")), (None, None, None));
    }

    #[test]
    fn statuses_and_failures_are_separated() {
        let read = |text: &str| causes(&parse(0, 0, text, &mut Review::default()).unwrap());
        assert_eq!(
            read("[429, 503, connect]"),
            Some((vec![429, 503], vec![FailureKind::Connect]))
        );
        assert_eq!(read("http_5xx"), Some((vec![], vec![FailureKind::Http5xx])));
        assert_eq!(read("503"), Some((vec![503], vec![])));
        for bad in [
            "[]",
            "200",
            "600",
            "[429, cancelled]",
            "timeout_total",
            "abandoned",
            "dropped",
            "x",
            "{a: 1}",
            "1.5",
        ] {
            assert_eq!(read(bad), None, "{bad}");
        }
    }
}
