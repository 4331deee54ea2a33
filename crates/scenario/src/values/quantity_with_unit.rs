//! Large amounts: `8B` parameters, `16 GiB`, `989 TFLOPS`, `3.35 TB/s`; or plain numbers.

use crate::fault::Review;
use crate::schema_table::Leaf;
use crate::tree::Node;
use crate::values::expect;
use serde_json::json;

const PARAMETER_UNITS: [(&str, f64); 5] = [("K", 1e3), ("M", 1e6), ("B", 1e9), ("G", 1e9), ("T", 1e12)];
const SIZE_UNITS: [(&str, f64); 9] = [
    ("B", 1.0),
    ("KB", 1e3),
    ("MB", 1e6),
    ("GB", 1e9),
    ("TB", 1e12),
    ("KiB", 1024.0),
    ("MiB", 1_048_576.0),
    ("GiB", 1_073_741_824.0),
    ("TiB", 1_099_511_627_776.0),
];
const FLOPS_UNITS: [(&str, f64); 4] = [("GFLOPS", 1e9), ("TFLOPS", 1e12), ("PFLOPS", 1e15), ("FLOPS", 1.0)];

const PARAMETERS_FORM: &str = "a number of parameters above 0";
const SIZE_FORM: &str = "a number of bytes above 0";
const FLOPS_FORM: &str = "operations per second above 0";
const BANDWIDTH_FORM: &str = "bytes per second above 0";

/// A number of parameters.
pub(crate) static PARAMETERS: Leaf = Leaf {
    expected: "a number of parameters such as `8B`",
    sweepable: true,
    schema: || schema("[KMBGT]"),
    check: |node, review| check(node, parameters, (PARAMETERS_FORM, "`8B` or 8.03e9"), review),
};

/// A number of bytes.
pub(crate) static SIZE: Leaf = Leaf {
    expected: "a size such as `16 GiB`",
    sweepable: true,
    schema: || schema("([KMGT]i?)?B"),
    check: |node, review| check(node, size, (SIZE_FORM, "`16 GB`, `14.9 GiB` or 1.6e10"), review),
};

/// Floating-point operations per second.
pub(crate) static FLOPS: Leaf = Leaf {
    expected: "operations per second such as `989 TFLOPS`",
    sweepable: true,
    schema: || schema("[GTP]?FLOPS"),
    check: |node, review| check(node, flops, (FLOPS_FORM, "`989 TFLOPS` or 989e12"), review),
};

/// Bytes per second.
pub(crate) static BANDWIDTH: Leaf = Leaf {
    expected: "a bandwidth such as `3.35 TB/s`",
    sweepable: true,
    schema: || schema("([KMGT]i?)?B/s"),
    check: |node, review| check(node, bandwidth, (BANDWIDTH_FORM, "`3.35 TB/s` or 3.35e12"), review),
};

/// The number of parameters that a node holds.
pub(crate) fn parameters(node: &Node) -> Option<f64> {
    amount(node, |word| factor(&PARAMETER_UNITS, word))
}

/// The bytes that a node holds.
pub(crate) fn size(node: &Node) -> Option<f64> {
    amount(node, |word| factor(&SIZE_UNITS, word))
}

/// The operations per second that a node holds.
pub(crate) fn flops(node: &Node) -> Option<f64> {
    amount(node, |word| factor(&FLOPS_UNITS, word))
}

/// The bytes per second that a node holds.
pub(crate) fn bandwidth(node: &Node) -> Option<f64> {
    amount(node, |word| factor(&SIZE_UNITS, word.strip_suffix("/s")?))
}

fn factor(units: &[(&str, f64)], word: &str) -> Option<f64> {
    units.iter().find(|(name, _)| *name == word).map(|(_, factor)| *factor)
}

fn amount(node: &Node, factor: impl Fn(&str) -> Option<f64>) -> Option<f64> {
    let value = match node.number() {
        Some(number) => number,
        None => {
            let text = node.text()?;
            let end = text.find(|c: char| !c.is_ascii_digit() && c != '.')?;
            let (number, unit) = text.split_at(end);
            number.parse::<f64>().ok()? * factor(unit.trim())?
        }
    };
    (value > 0.0 && value.is_finite()).then_some(value)
}

fn check(node: &Node, read: fn(&Node) -> Option<f64>, (form, examples): (&str, &str), review: &mut Review) {
    if read(node).is_none() {
        expect(node, form, examples, review);
    }
}

fn schema(unit: &str) -> serde_json::Value {
    json!({ "type": ["number", "string"], "exclusiveMinimum": 0, "pattern": format!(r"^[0-9]*\.?[0-9]+\s*{unit}$") })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse::parse;

    fn read(text: &str, own: fn(&Node) -> Option<f64>) -> Option<f64> {
        let mut review = Review::default();
        let file = review.sources.add("t", text, Default::default());
        own(&parse(file, 0, text, &mut review).unwrap())
    }

    #[test]
    fn amounts_are_read_with_their_units_and_without() {
        for (text, own, value) in [
            ("8B", parameters as fn(&Node) -> Option<f64>, Some(8e9)),
            ("70.6 B", parameters, Some(70.6e9)),
            ("8030000000", parameters, Some(8.03e9)),
            ("8.03e9", parameters, Some(8.03e9)),
            ("16 GiB", size, Some(16.0 * 1_073_741_824.0)),
            ("131072", size, Some(131_072.0)),
            ("128KiB", size, Some(131_072.0)),
            ("989 TFLOPS", flops, Some(989e12)),
            ("3.35TB/s", bandwidth, Some(3.35e12)),
            ("3.35TB", bandwidth, None),
            ("16 GiB/s", size, None),
            ("8 gb", size, None),
            ("0", parameters, None),
            ("-1", parameters, None),
            ("many", flops, None),
        ] {
            assert_eq!(read(text, own), value, "{text}");
        }
    }
}
