//! Sizes of pictures: `512x512`, `[512x512, [640, 480]]`.

use crate::fault::Review;
use crate::schema_table::Leaf;
use crate::tree::{Data, Node};
use crate::values::expect;
use serde_json::json;

const EXPECTED: &str = "one or more sizes in pixels, each side from 1 to 16384";

const EXAMPLES: &str = "`512x512`, or `[512x512, [640, 480]]`";

/// The longest side: a picture of it in both directions still fits the memory.
const MOST: u32 = 16_384;

/// Sizes of pictures.
pub(crate) static SIZES: Leaf = Leaf {
    expected: EXPECTED,
    sweepable: true,
    schema,
    check: |node, review: &mut Review| {
        let items = node.items();
        let wrong = items.iter().find(|item| size(item).is_none()).filter(|_| items.iter().any(|item| size(item).is_some()));
        if let Some(wrong) = wrong {
            expect(wrong, "a size in pixels, each side from 1 to 16384", EXAMPLES, review);
        } else if sizes(node).is_none() {
            expect(node, EXPECTED, EXAMPLES, review);
        }
    },
};

/// The sizes that a node holds, width first; never none.
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
        (None, [width, height]) => (u32::try_from(width.whole()?).ok()?, u32::try_from(height.whole()?).ok()?),
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
    fn both_notations_are_read() {
        let read = |text: &str| sizes(&parse(0, 0, text, &mut Review::default()).unwrap());
        assert_eq!(read("512x256"), Some(vec![(512, 256)]));
        assert_eq!(read("[512x512, [640, 480]]"), Some(vec![(512, 512), (640, 480)]));
        for bad in ["[]", "512", "0x5", "5x16385", "[512, 512]", "[[1, 2, 3]]", "big", "{}"] {
            assert_eq!(read(bad), None, "{bad}");
        }
    }
}
