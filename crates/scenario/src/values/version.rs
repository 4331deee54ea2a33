//! `auto`, `1.1`, `2`.

use crate::fault::Review;
use crate::schema_table::Leaf;
use crate::tree::Node;
use crate::values::expect;
use llmscen_core::target::HttpVersion;
use serde_json::json;

const EXPECTED: &str = "`auto`, `1.1` or `2`";

/// The version of HTTP; unquoted it is a number to YAML.
pub(crate) static VERSION: Leaf = Leaf {
    expected: EXPECTED,
    sweepable: true,
    schema: || json!({ "enum": ["auto", "1.1", "2", 1.1, 2] }),
    check: |node, review: &mut Review| {
        if version(node).is_none() {
            expect(node, EXPECTED, "`2` for HTTP/2 with prior knowledge, where there is no TLS", review);
        }
    },
};

/// The version that a node holds.
pub(crate) fn version(node: &Node) -> Option<HttpVersion> {
    match (node.number(), node.text().as_deref()) {
        (_, Some("auto")) => Some(HttpVersion::Auto),
        (Some(1.1), _) | (_, Some("1.1")) => Some(HttpVersion::Http1),
        (Some(2.0), _) | (_, Some("2")) => Some(HttpVersion::Http2),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse::parse;

    #[test]
    fn a_number_is_a_version_too() {
        let read = |text: &str| version(&parse(0, 0, text, &mut Review::default()).unwrap());
        assert_eq!(read("auto"), Some(HttpVersion::Auto));
        assert_eq!((read("1.1"), read("'1.1'")), (Some(HttpVersion::Http1), Some(HttpVersion::Http1)));
        assert_eq!((read("2"), read("2.0"), read("\"2\"")), (Some(HttpVersion::Http2), Some(HttpVersion::Http2), read("2")));
        assert_eq!((read("3"), read("1"), read("http2")), (None, None, None));
    }
}
