//! Small notations: the scenario's name, a confidence, the stop sequences.

use crate::fault::{Mistake, Review};
use crate::schema_table::Leaf;
use crate::tree::{Data, Node};
use crate::values::expect;
use crate::values::share::percent;
use llmscen_core::check::Confidence;
use serde_json::json;

const NAME_EXPECTED: &str = "a name of `a` to `z`, `0` to `9` and `-`";
const LEVEL_EXPECTED: &str = "`point`, or a level between 0.5 and 1 such as 0.95";

/// A name that is safe in paths.
pub(crate) static NAME: Leaf = Leaf {
    expected: NAME_EXPECTED,
    sweepable: false,
    schema: || json!({ "type": "string", "pattern": "^[a-z0-9][a-z0-9-]*$" }),
    check: check_name,
};

/// How sure a ruling must be.
pub(crate) static CONFIDENCE: Leaf = Leaf {
    expected: LEVEL_EXPECTED,
    sweepable: false,
    schema: || json!({ "anyOf": [{ "const": "point" }, { "type": "number", "exclusiveMinimum": 0.5, "exclusiveMaximum": 1 }, { "type": "string", "pattern": "^[0-9.]+%$" }] }),
    check: |node, review| {
        if confidence(node).is_none() {
            expect(node, LEVEL_EXPECTED, "", review);
        }
    },
};

/// Text or a list of texts.
pub(crate) static TEXTS: Leaf = Leaf {
    expected: "text or a list of texts",
    sweepable: true,
    schema: || json!({ "type": ["string", "array"], "items": { "type": "string" } }),
    check: |node, review| {
        let fits = node.text().is_some()
            || (matches!(node.data, Data::List(_)) && node.items().iter().all(|item| item.text().is_some()));
        if !fits {
            expect(node, "text or a list of texts", "", review);
        }
    },
};

/// `true`, `false` or a count.
pub(crate) static FLAG_OR_COUNT: Leaf = Leaf {
    expected: "`true`, `false` or a whole number",
    sweepable: true,
    schema: || json!({ "type": ["boolean", "integer"], "minimum": 0 }),
    check: |node, review| {
        if !matches!(node.data, Data::Bool(_) | Data::Int(0..)) {
            expect(node, "`true`, `false` or a whole number, 0 or more", "", review);
        }
    },
};

/// The confidence that a node holds.
pub(crate) fn confidence(node: &Node) -> Option<Confidence> {
    let level = match (node.number(), node.text()) {
        (Some(level), _) => level,
        (None, Some(text)) if text == "point" => return Some(Confidence::Point),
        (None, text) => percent(text?.strip_suffix('%')?)?,
    };
    (level > 0.5 && level < 1.0).then_some(Confidence::Level(level))
}

fn check_name(node: &Node, review: &mut Review) {
    let fits = |text: &str| {
        let plain = text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
        plain && !text.is_empty() && !text.starts_with('-')
    };
    match node.text() {
        Some(text) if fits(&text) => {}
        Some(text) => {
            let slug: String = text.to_lowercase().chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
            let mistake = Mistake::new(node.at, format!("`{}` must be {NAME_EXPECTED}", review.key), "does not fit a folder");
            let slug = slug.trim_matches('-');
            review.push(if slug.is_empty() { mistake } else { mistake.help(format!("Write `{slug}`.")) });
        }
        None => expect(node, NAME_EXPECTED, "`nightly-chat`", review),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse::parse;

    #[test]
    fn confidences_lie_between_a_half_and_one() {
        let read = |text: &str| confidence(&parse(0, 0, text, &mut Review::default()).unwrap());
        assert_eq!(read("point"), Some(Confidence::Point));
        assert_eq!(read("0.99"), Some(Confidence::Level(0.99)));
        assert_eq!(read("95%"), Some(Confidence::Level(0.95)));
        for bad in ["0.5", "1", "95", "sure", "[]"] {
            assert_eq!(read(bad), None, "{bad}");
        }
    }
}
