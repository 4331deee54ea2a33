//! Names, confidence levels, stop sequences, image sizes.

use crate::fault::{Mistake, Review};
use crate::schema_table::Leaf;
use crate::tree::{Data, Node};
use crate::values::number::percent;
use crate::values::{expect, expect_some};
use llmscen_core::check::Confidence;
use llmscen_core::request::ReasoningMarkers;
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

pub(crate) static CONFIDENCE: Leaf = Leaf {
    expected: LEVEL_EXPECTED,
    sweepable: false,
    schema: || {
        json!({ "anyOf": [{ "const": "point" }, { "type": "number", "exclusiveMinimum": 0.5,
        "exclusiveMaximum": 1 }, { "type": "string", "pattern": "^[0-9.]+%$" }] })
    },
    check: |node, review| expect_some(confidence(node), node, LEVEL_EXPECTED, "", review),
};

pub(crate) static TEXTS: Leaf = Leaf {
    expected: "text or a list of texts",
    sweepable: true,
    schema: || json!({ "type": ["string", "array"], "items": { "type": "string" } }),
    check: |node, review| {
        let fits = node.text().is_some()
            || (matches!(node.data, Data::List(_))
                && node.items().iter().all(|item| item.text().is_some()));
        if !fits {
            expect(node, "text or a list of texts", "", review);
        }
    },
};

pub(crate) static FLAG_OR_COUNT: Leaf = Leaf {
    expected: "`true`, `false` or a whole number",
    sweepable: true,
    schema: || json!({ "type": ["boolean", "integer"], "minimum": 0 }),
    check: |node, review| {
        if !matches!(node.data, Data::Bool(_) | Data::Int(0..)) {
            expect(
                node,
                "`true`, `false` or a whole number, 0 or more",
                "",
                review,
            );
        }
    },
};

const MARKERS_EXPECTED: &str = "`auto`, `none`, or the opening and the closing marker";

/// The markers of reasoning in an answer.
pub(crate) static MARKERS: Leaf = Leaf {
    expected: MARKERS_EXPECTED,
    sweepable: false,
    schema: || {
        json!({ "anyOf": [{ "enum": ["auto", "none"] }, { "type": "array",
        "items": { "type": "string", "minLength": 1 }, "minItems": 2, "maxItems": 2 }] })
    },
    check: |node, review| {
        let example = " Write them as a list: `[\"<think>\", \"</think>\"]`.";
        expect_some(markers(node), node, MARKERS_EXPECTED, example, review);
    },
};

pub(crate) fn markers(node: &Node) -> Option<ReasoningMarkers> {
    match (node.text().as_deref(), node.items()) {
        (Some("auto"), _) => Some(ReasoningMarkers::Auto),
        (Some("none"), _) => Some(ReasoningMarkers::None),
        (None, [open, close]) => {
            let pair = [open.text()?.into_owned(), close.text()?.into_owned()];
            let is_pair = pair.iter().all(|marker| !marker.is_empty()) && pair[0] != pair[1];
            is_pair.then_some(ReasoningMarkers::Pair(pair))
        }
        _ => None,
    }
}

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
        let plain = text
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
        plain && !text.is_empty() && !text.starts_with('-')
    };
    match node.text() {
        Some(text) if fits(&text) => {}
        Some(text) => {
            let slug: String = text
                .to_lowercase()
                .chars()
                .map(|c| if c.is_ascii_alphanumeric() { c } else { '-' })
                .collect();
            let mistake = Mistake::new(
                node.at,
                format!("`{}` must be {NAME_EXPECTED}", review.key),
                "not a valid folder name",
            );
            let slug = slug.trim_matches('-');
            review.push(if slug.is_empty() {
                mistake
            } else {
                mistake.help(format!("Write `{slug}`."))
            });
        }
        None => expect(node, NAME_EXPECTED, "`nightly-chat`", review),
    }
}

const EXPECTED: &str = "one or more sizes in pixels, each side from 1 to 16384";

const EXAMPLES: &str = "`512x512`, or `[512x512, [640, 480]]`";

/// The longest side: a square image of it fits the memory.
const MOST: u32 = 16_384;

const ITEM_EXPECTED: &str = "a column of the row after `item.`";

pub(crate) static ITEM: Leaf = Leaf {
    expected: ITEM_EXPECTED,
    sweepable: true,
    schema: || json!({ "type": "string", "pattern": "^item\\..+" }),
    check: |node, review| expect_some(item(node), node, ITEM_EXPECTED, "`item.category`", review),
};

/// The column in `item.COLUMN`.
pub(crate) fn item(node: &Node) -> Option<String> {
    let text = node.text()?;
    let column = text.trim().strip_prefix("item.")?;
    (!column.is_empty()).then(|| column.to_owned())
}

pub(crate) static SIZES: Leaf = Leaf {
    expected: EXPECTED,
    sweepable: true,
    schema,
    check: |node, review: &mut Review| {
        let items = node.items();
        let wrong = items
            .iter()
            .find(|item| size(item).is_none())
            .filter(|_| items.iter().any(|item| size(item).is_some()));
        if let Some(wrong) = wrong {
            expect(
                wrong,
                "a size in pixels, each side from 1 to 16384",
                EXAMPLES,
                review,
            );
        } else if sizes(node).is_none() {
            expect(node, EXPECTED, EXAMPLES, review);
        }
    },
};

/// Width and height of each size; never empty.
pub(crate) fn sizes(node: &Node) -> Option<Vec<(u32, u32)>> {
    match &node.data {
        Data::List(items) if !items.is_empty() => items.iter().map(size).collect(),
        _ => size(node).map(|size| vec![size]),
    }
}

fn size(node: &Node) -> Option<(u32, u32)> {
    let sides = match (node.text(), node.items()) {
        (Some(text), _) => {
            let (width, height) = text.split_once('x')?;
            (width.trim().parse().ok()?, height.trim().parse().ok()?)
        }
        (None, [width, height]) => (
            u32::try_from(width.integer()?).ok()?,
            u32::try_from(height.integer()?).ok()?,
        ),
        _ => return None,
    };
    let fits = |side: u32| (1..=MOST).contains(&side);
    (fits(sides.0) && fits(sides.1)).then_some(sides)
}

fn schema() -> serde_json::Value {
    let text = json!({ "type": "string", "pattern": r"^\s*[1-9][0-9]*\s*x\s*[1-9][0-9]*\s*$" });
    let side = json!({ "type": "integer", "minimum": 1, "maximum": MOST });
    let pair = json!({ "type": "array", "items": side, "minItems": 2, "maxItems": 2 });
    json!({ "anyOf": [text, { "type": "array", "minItems": 1, "items": { "anyOf": [text, pair] } }] })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse::parse;

    #[test]
    fn confidence_levels_are_between_a_half_and_one() {
        let read = |text: &str| confidence(&parse(0, 0, text, &mut Review::default()).unwrap());
        assert_eq!(read("point"), Some(Confidence::Point));
        assert_eq!(read("0.99"), Some(Confidence::Level(0.99)));
        assert_eq!(read("95%"), Some(Confidence::Level(0.95)));
        for bad in ["0.5", "1", "95", "sure", "[]"] {
            assert_eq!(read(bad), None, "{bad}");
        }
    }

    #[test]
    fn both_notations_are_parsed() {
        let read = |text: &str| sizes(&parse(0, 0, text, &mut Review::default()).unwrap());
        assert_eq!(read("512x256"), Some(vec![(512, 256)]));
        assert_eq!(
            read("[512x512, [640, 480]]"),
            Some(vec![(512, 512), (640, 480)])
        );
        for bad in [
            "[]",
            "512",
            "0x5",
            "5x16385",
            "[512, 512]",
            "[[1, 2, 3]]",
            "big",
            "{}",
        ] {
            assert_eq!(read(bad), None, "{bad}");
        }
    }
}
