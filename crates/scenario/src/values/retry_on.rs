//! What is tried once more: `[429, 503, connect, timeout_connect]`, or one of them.

use crate::fault::{Mistake, Review};
use crate::schema_table::Leaf;
use crate::suggest::{list, near};
use crate::tree::{Data, Node};
use llmscen_core::outcome::FailureKind;
use serde_json::json;

/// The kinds of failure that can be tried again: what this side gave up itself cannot.
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

/// Statuses and kinds of failure.
pub(crate) static CAUSES: Leaf =
    Leaf { expected: "statuses from 300 to 599 and kinds of failure", sweepable: false, schema, check };

enum Cause {
    Status(u16),
    Kind(FailureKind),
}

/// The statuses and the kinds that a node holds; at least one.
pub(crate) fn causes(node: &Node) -> Option<(Vec<u16>, Vec<FailureKind>)> {
    let (mut statuses, mut kinds) = (Vec::new(), Vec::new());
    for item in items(node) {
        match cause(item)? {
            Cause::Status(status) => statuses.push(status),
            Cause::Kind(kind) => kinds.push(kind),
        }
    }
    (!statuses.is_empty() || !kinds.is_empty()).then_some((statuses, kinds))
}

fn items(node: &Node) -> &[Node] {
    if matches!(node.data, Data::List(_)) { node.items() } else { std::slice::from_ref(node) }
}

fn cause(node: &Node) -> Option<Cause> {
    if let Data::Int(status) = node.data {
        return u16::try_from(status).ok().filter(|status| (300..600).contains(status)).map(Cause::Status);
    }
    let kind = FailureKind::parse(&node.text()?)?;
    KINDS.contains(&kind).then_some(Cause::Kind(kind))
}

fn check(node: &Node, review: &mut Review) {
    let help = || format!("Statuses from 300 to 599, and {}.", list(KINDS.map(FailureKind::name), "and"));
    if items(node).is_empty() {
        review.push(Mistake::new(node.at, "`on` names nothing", "nothing would be tried again").help(help()));
    }
    for item in items(node).iter().filter(|item| cause(item).is_none()) {
        let word = item.text().unwrap_or_default();
        let meant = near(&word, KINDS.map(FailureKind::name));
        let label = meant.map_or("is neither".to_owned(), |meant| format!("did you mean `{meant}`?"));
        let own = FailureKind::parse(&word).is_some();
        let label = if own { "this side gave it up itself".to_owned() } else { label };
        review.push(Mistake::new(item.at, "this is no status or failure that can be tried again", label).help(help()));
    }
}

fn schema() -> serde_json::Value {
    let one =
        json!({ "anyOf": [{ "type": "integer", "minimum": 300, "maximum": 599 }, { "enum": KINDS.map(FailureKind::name) }] });
    json!({ "anyOf": [one, { "type": "array", "minItems": 1, "items": one }] })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse::parse;

    #[test]
    fn statuses_and_kinds_are_told_apart() {
        let read = |text: &str| causes(&parse(0, 0, text, &mut Review::default()).unwrap());
        assert_eq!(read("[429, 503, connect]"), Some((vec![429, 503], vec![FailureKind::Connect])));
        assert_eq!(read("http_5xx"), Some((vec![], vec![FailureKind::Http5xx])));
        assert_eq!(read("503"), Some((vec![503], vec![])));
        for bad in ["[]", "200", "600", "[429, cancelled]", "timeout_total", "abandoned", "dropped", "x", "{a: 1}", "1.5"] {
            assert_eq!(read(bad), None, "{bad}");
        }
    }
}
