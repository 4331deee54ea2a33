//! Shares, quantities with a unit, seeds.

use crate::schema_table::Leaf;
use crate::tree::{Data, Node};
use crate::values::{expect, expect_some, object_schema};
use serde_json::json;
use std::collections::BTreeSet;
use std::hash::{BuildHasher, Hasher, RandomState};

pub(crate) static SHARE: Leaf = Leaf {
    expected: "a share such as `98%` or 0.98",
    sweepable: true,
    schema: || {
        json!({ "type": ["number", "string"], "minimum": 0, "maximum": 1,
        "pattern": r"^\s*[0-9]*\.?[0-9]+\s*%$" })
    },
    check: |node, review| {
        expect_some(
            share(node),
            node,
            "a share from 0% to 100%",
            "`98%` or 0.98",
            review,
        )
    },
};

/// A share from 0 to 1.
pub(crate) fn share(node: &Node) -> Option<f64> {
    let value = match node.number() {
        Some(number) => number,
        None => percent(node.text()?.trim().strip_suffix('%')?.trim())?,
    };
    (0.0..=1.0).contains(&value).then_some(value)
}

const SHARE_RANGE_EXPECTED: &str = "a share such as `50%`, or `{ uniform: [25%, 75%] }`";

/// A share, or a range of shares.
pub(crate) static SHARE_RANGE: Leaf = Leaf {
    expected: SHARE_RANGE_EXPECTED,
    sweepable: true,
    schema: || {
        let share = (SHARE.schema)();
        let uniform =
            json!({ "uniform": { "type": "array", "items": share, "minItems": 2, "maxItems": 2 } });
        json!({ "oneOf": [share, object_schema(uniform, &["uniform"])] })
    },
    check: |node, review| {
        let examples = "shares are from 0% to 100%, the lower one first";
        expect_some(
            share_range(node),
            node,
            SHARE_RANGE_EXPECTED,
            examples,
            review,
        );
    },
};

/// The lower and the upper bound of a range of shares; both are the share where it is one.
pub(crate) fn share_range(node: &Node) -> Option<(f64, f64)> {
    if let Some(only) = share(node) {
        return Some((only, only));
    }
    let [only] = node.entries() else { return None };
    let [low, high] = only.value.items() else {
        return None;
    };
    let (low, high) = (share(low)?, share(high)?);
    (only.key == "uniform" && low <= high).then_some((low, high))
}

/// A percentage as a share. The decimal point is shifted in the text, so that `7` is 0.07 and not 7 / 100 rounded
/// twice.
pub(crate) fn percent(text: &str) -> Option<f64> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let plain = digits.starts_with(|c: char| c.is_ascii_digit() || c == '.')
        && !digits.contains(['e', 'E']);
    plain.then(|| format!("{text}e-2").parse().ok()).flatten()
}

const PARAMETER_UNITS: [(&str, f64); 5] =
    [("K", 1e3), ("M", 1e6), ("B", 1e9), ("G", 1e9), ("T", 1e12)];
/// The units of memory, in bytes.
pub(crate) const SIZE_UNITS: [(&str, f64); 9] = [
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
const FLOPS_UNITS: [(&str, f64); 4] = [
    ("GFLOPS", 1e9),
    ("TFLOPS", 1e12),
    ("PFLOPS", 1e15),
    ("FLOPS", 1.0),
];

pub(crate) static PARAMETERS: Leaf = Leaf {
    expected: "a number of parameters such as `8B`",
    sweepable: true,
    schema: || unit_schema("[KMBGT]"),
    check: |node, review| {
        expect_some(
            parameters(node),
            node,
            "a number of parameters above 0",
            "`8B` or 8.03e9",
            review,
        )
    },
};

pub(crate) static SIZE: Leaf = Leaf {
    expected: "a size such as `16 GiB`",
    sweepable: true,
    schema: || unit_schema("([KMGT]i?)?B"),
    check: |node, review| {
        expect_some(
            size(node),
            node,
            "a number of bytes above 0",
            "`16 GB`, `14.9 GiB` or 1.6e10",
            review,
        )
    },
};

pub(crate) static FLOPS: Leaf = Leaf {
    expected: "operations per second such as `989 TFLOPS`",
    sweepable: true,
    schema: || unit_schema("[GTP]?FLOPS"),
    check: |node, review| {
        expect_some(
            flops(node),
            node,
            "operations per second above 0",
            "`989 TFLOPS` or 989e12",
            review,
        )
    },
};

pub(crate) static BANDWIDTH: Leaf = Leaf {
    expected: "a bandwidth such as `3.35 TB/s`",
    sweepable: true,
    schema: || unit_schema("([KMGT]i?)?B/s"),
    check: |node, review| {
        expect_some(
            bandwidth(node),
            node,
            "bytes per second above 0",
            "`3.35 TB/s` or 3.35e12",
            review,
        )
    },
};

pub(crate) fn parameters(node: &Node) -> Option<f64> {
    number_with_unit(node, |word| factor(&PARAMETER_UNITS, word))
}

pub(crate) fn size(node: &Node) -> Option<f64> {
    number_with_unit(node, |word| factor(&SIZE_UNITS, word))
}

pub(crate) fn flops(node: &Node) -> Option<f64> {
    number_with_unit(node, |word| factor(&FLOPS_UNITS, word))
}

pub(crate) fn bandwidth(node: &Node) -> Option<f64> {
    number_with_unit(node, |word| factor(&SIZE_UNITS, word.strip_suffix("/s")?))
}

pub(crate) fn factor(units: &[(&str, f64)], word: &str) -> Option<f64> {
    units
        .iter()
        .find(|(name, _)| *name == word)
        .map(|(_, factor)| *factor)
}

fn number_with_unit(node: &Node, factor: impl Fn(&str) -> Option<f64>) -> Option<f64> {
    match node.number() {
        Some(number) => Some(number).filter(|value| *value > 0.0 && value.is_finite()),
        None => parse_with_unit(&node.text()?, factor),
    }
}

fn parse_with_unit(text: &str, factor: impl Fn(&str) -> Option<f64>) -> Option<f64> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.')?;
    let (number, unit) = text.split_at(end);
    let value = number.parse::<f64>().ok()? * factor(unit.trim())?;
    (value > 0.0 && value.is_finite()).then_some(value)
}

/// Bytes in a size such as `16 GB` or `500MiB`; None without a number above 0 and a unit.
pub fn parse_size(text: &str) -> Option<u64> {
    parse_with_unit(text, |word| factor(&SIZE_UNITS, word)).map(|bytes| bytes as u64)
}

fn unit_schema(unit: &str) -> serde_json::Value {
    json!({ "type": ["number", "string"], "exclusiveMinimum": 0, "pattern": format!(r"^[0-9]*\.?[0-9]+\s*{unit}$") })
}

const SEED_EXPECTED: &str = "a whole number from 0 to 9223372036854775807, or `run`";
/// The word for a new seed in each run.
const RUN: &str = "run";
/// Drawn seeds are below this: short, but unlikely to repeat.
const DRAWN: u64 = 1_000_000_000_000;

pub(crate) static SEED: Leaf = Leaf {
    expected: SEED_EXPECTED,
    sweepable: false,
    schema: || json!({ "anyOf": [{ "type": "integer", "minimum": 0, "maximum": i64::MAX }, { "const": RUN }] }),
    check: |node, review| {
        if seed(node).is_none() && !is_run(node) {
            expect(node, SEED_EXPECTED, "", review);
        }
    },
};

/// The seed; None for `run`.
pub(crate) fn seed(node: &Node) -> Option<u64> {
    u64::try_from(node.integer()?).ok()
}

fn is_run(node: &Node) -> bool {
    node.text().is_some_and(|text| text == RUN)
}

/// Draws the seeds that are `run` and used, so that the resolved plan repeats this run.
pub(crate) fn draw(root: &mut Node, swept: &BTreeSet<String>) {
    let entries = root.get("mix").map_or(0, |mix| mix.items().len());
    let paths = (0..entries)
        .map(|index| format!("mix.{index}.dataset.cache_bust"))
        .chain(["dataset.cache_bust".to_owned()]);
    let busts = |path: String| {
        swept.contains(&path)
            || root
                .get(&path)
                .is_some_and(|node| node.data == Data::Bool(true))
    };
    let used = if paths.into_iter().any(busts) {
        &["seed", "cache_seed"][..]
    } else {
        &["seed"]
    };
    for path in used {
        if let Some(entry) = root
            .entry_at(path)
            .filter(|entry| is_run(&entry.value))
            .cloned()
        {
            let drawn = RandomState::new().build_hasher().finish() % DRAWN;
            root.set(
                path,
                entry.key_at,
                Node::new(entry.value.at, Data::Int(drawn as i64)),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fault::Review;
    use crate::parse::parse;

    #[test]
    fn percents_are_exact() {
        for (text, share) in [
            ("7", Some(0.07)),
            ("99.9", Some(0.999)),
            ("-1", Some(-0.01)),
            ("1e3", None),
            ("x", None),
            ("inf", None),
        ] {
            assert_eq!(percent(text), share, "{text}");
        }
    }

    fn read_unit(text: &str, read: fn(&Node) -> Option<f64>) -> Option<f64> {
        let mut review = Review::default();
        let file = review.sources.add("t", text, Default::default());
        read(&parse(file, 0, text, &mut review).unwrap())
    }

    #[test]
    fn quantities_are_parsed_with_and_without_units() {
        for (text, read, value) in [
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
            assert_eq!(read_unit(text, read), value, "{text}");
        }
    }

    fn plan(dataset: &str, more: &str) -> llmscen_core::plan::Plan {
        let text = format!(
            "version: 1\nname: t\ntarget: {{ url: http://h/v1/chat/completions, \
             model: m }}\ndataset: {dataset}\nload: {{ concurrency: 1, requests: 1 \
             }}\n{more}"
        );
        crate::tests::plan(&text)
    }

    #[test]
    fn run_seed_is_drawn_once_and_stored() {
        let random = "{ kind: random, tokens: 8 }";
        let one = plan(random, "seed: run\n");
        let other = plan(random, "seed: run\n");
        assert_ne!(one.seed, other.seed);
        assert!(
            one.resolved.contains(&format!("seed: {}\n", one.seed.0))
                && !one.resolved.contains("\nseed: run"),
            "{}",
            one.resolved
        );
        assert_eq!(plan(random, "").seed.0, 42);
        assert_eq!(plan(random, "seed: 7\n").seed.0, 7);
    }

    #[test]
    fn cache_seed_is_drawn_only_if_used() {
        let bust = "{ kind: random, tokens: 8, cache_bust: true }";
        let seed =
            |dataset: &str, more: &str| plan(dataset, more).cases.remove(0).dataset.cache_seed;
        assert!(seed(bust, "").is_some() && seed(bust, "") != seed(bust, ""));
        assert_eq!(seed(bust, "cache_seed: 7\n").map(|seed| seed.0), Some(7));
        let unused = plan("{ kind: random, tokens: 8 }", "");
        assert!(
            unused.resolved.contains("cache_seed: run")
                && unused.cases[0].dataset.cache_seed.is_none(),
            "{}",
            unused.resolved
        );
        let swept = plan(
            "{ kind: random, tokens: 8 }",
            "matrix: { dataset.cache_bust: [false, true] }\n",
        );
        assert!(
            swept
                .cases
                .iter()
                .all(|case| case.dataset.cache_seed.is_some())
        );
    }
}
