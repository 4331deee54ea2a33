//! `98%` or 0.98.

use crate::fault::Review;
use crate::schema_table::Leaf;
use crate::tree::Node;
use crate::values::expect;
use serde_json::json;

/// A share of one.
pub(crate) static SHARE: Leaf = Leaf { expected: "a share such as `98%` or 0.98", sweepable: true, schema, check };

/// The share that a node holds, 0..=1.
pub(crate) fn share(node: &Node) -> Option<f64> {
    let value = match node.number() {
        Some(number) => number,
        None => percent(node.text()?.trim().strip_suffix('%')?.trim())?,
    };
    (0.0..=1.0).contains(&value).then_some(value)
}

/// A number of hundredths. The decimal point is moved in the text, so that `7` gives 0.07 and not 7 / 100 rounded twice.
pub(crate) fn percent(text: &str) -> Option<f64> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let plain = digits.starts_with(|c: char| c.is_ascii_digit() || c == '.') && !digits.contains(['e', 'E']);
    plain.then(|| format!("{text}e-2").parse().ok()).flatten()
}

fn check(node: &Node, review: &mut Review) {
    if share(node).is_none() {
        expect(node, "a share from 0% to 100%", "`98%` or 0.98", review);
    }
}

fn schema() -> serde_json::Value {
    json!({ "type": ["number", "string"], "minimum": 0, "maximum": 1, "pattern": r"^\s*[0-9]*\.?[0-9]+\s*%$" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percents_are_exact() {
        for (text, share) in
            [("7", Some(0.07)), ("99.9", Some(0.999)), ("-1", Some(-0.01)), ("1e3", None), ("x", None), ("inf", None)]
        {
            assert_eq!(percent(text), share, "{text}");
        }
    }
}
