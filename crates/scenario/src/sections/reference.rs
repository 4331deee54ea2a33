//! `reference`: values in the scenario that limits are relative to.

use crate::check::{parse_subject, parse_value};
use crate::fault::{Mistake, Review};
use crate::schema_table::Leaf;
use crate::suggest::{list, meant_or, nearest};
use crate::tree::{Data, Entry, Node, Span};
use crate::values::expect;
use llmscen_core::check::relative::ReferenceValue;
use llmscen_core::check::{Check, Confidence, Subject};
use llmscen_core::label::Labels;
use llmscen_core::plan::Case;
use llmscen_core::stats::distributions::score;
use std::collections::BTreeSet;

const EXPECTED: &str = "a table such as `{ output_tps: { \"load.concurrency=1\": 420 } }`";
/// Keys of a value with its uncertainty.
const PARTS: [&str; 4] = ["value", "low", "high", "sd"];

pub(crate) static REFERENCE: Leaf = Leaf {
    expected: EXPECTED,
    sweepable: false,
    schema: || serde_json::json!({ "type": "object" }),
    check,
};

/// A value with its uncertainty.
struct Stated {
    value: f64,
    ends: Option<(f64, f64)>,
    sd: Option<f64>,
}

fn check(node: &Node, review: &mut Review) {
    if !matches!(node.data, Data::Map(_)) {
        return expect(node, EXPECTED, "", review);
    }
    for entry in node.entries() {
        match parse_subject(&entry.key) {
            Ok(subject) => check_values(&entry.value, &subject, review),
            Err(error) => {
                review.push(error.into_mistake(entry.key_at));
            }
        }
    }
}

fn check_values(node: &Node, subject: &Subject, review: &mut Review) {
    if node.is_open() {
        return;
    }
    if !has_cases(node) {
        read_value(node, subject, review);
        return;
    }
    for entry in node.entries() {
        if parse_labels(&entry.key).is_none() {
            let mistake = Mistake::new(
                entry.key_at,
                format!("`{}` is not a case", entry.key),
                "expected `path=value`",
            );
            review.push(mistake.help(
                "Cases are identified by their matrix \
                values: \"load.concurrency=16,request.max_tokens=128\".",
            ));
        }
        read_value(&entry.value, subject, review);
    }
}

/// Whether it has a value per case.
fn has_cases(node: &Node) -> bool {
    matches!(node.data, Data::Map(_))
        && node
            .entries()
            .iter()
            .all(|entry| !PARTS.contains(&entry.key.as_str()))
}

fn read_value(node: &Node, subject: &Subject, review: &mut Review) -> Option<Stated> {
    if !matches!(node.data, Data::Map(_)) {
        return Some(Stated {
            value: read_number(node, subject, review)?,
            ends: None,
            sd: None,
        });
    }
    if let Some(unknown) = node
        .entries()
        .iter()
        .find(|entry| !PARTS.contains(&entry.key.as_str()))
    {
        let label = meant_or(nearest(&unknown.key, PARTS), "does not exist");
        let mistake = Mistake::new(
            unknown.key_at,
            format!("unknown key `{}`", unknown.key),
            label,
        );
        review.push(mistake.help("A value has `value`, and `low` and `high`, or `sd`."));
        return None;
    }
    let mut part = |key: &str| {
        node.get(key)
            .map(|part_node| read_number(part_node, subject, review))
    };
    let value = part("value");
    let low = part("low");
    let high = part("high");
    let sd = part("sd");
    let wrong = match (value, low, high, sd) {
        (Some(Some(value)), Some(Some(low)), Some(Some(high)), None)
            if low <= value && value <= high =>
        {
            return Some(Stated {
                value,
                ends: Some((low, high)),
                sd: None,
            });
        }
        (Some(Some(value)), None, None, sd) if sd.is_none_or(|sd| sd.is_some()) => {
            return Some(Stated {
                value,
                ends: None,
                sd: sd.flatten(),
            });
        }
        (Some(None), ..) | (_, Some(None), ..) | (_, _, Some(None), _) | (.., Some(None)) => {
            return None;
        }
        (None, ..) => "`value` is missing",
        (_, Some(_), Some(_), None) => "`value` must be between `low` and `high`",
        (_, Some(_), Some(_), Some(_)) => "either `low` and `high`, or `sd`",
        _ => "`low` and `high` must be used together, and without `sd`",
    };
    review.push(
        Mistake::new(node.at, "an uncertain reference is incomplete", wrong)
            .help("For example { value: 420, low: 410, high: 430 }, or { value: 420, sd: 5 }."),
    );
    None
}

fn read_number(node: &Node, subject: &Subject, review: &mut Review) -> Option<f64> {
    let text = match &node.data {
        Data::Text(text) => text.clone(),
        Data::Int(_) | Data::Float(_) => node.json().to_string(),
        _ => {
            let mistake = Mistake::new(
                node.at,
                "a reference must be a number",
                format!("this is {}", node.noun()),
            );
            review.push(mistake.help(format!(
                "With a unit, if it is a time or a share: {EXPECTED}."
            )));
            return None;
        }
    };
    match parse_value(&text, subject) {
        Ok(value) => Some(value),
        Err(error) => {
            let at = review.sources.part(node, &text, error.range.clone());
            review.push(error.into_mistake(at));
            None
        }
    }
}

/// The labels in a key such as `load.concurrency=16,request.max_tokens=128`.
fn parse_labels(key: &str) -> Option<Labels> {
    let nowhere = Span::default();
    let pair = |pair: &str| {
        let (path, value) = pair.split_once('=')?;
        let value = Node::new(nowhere, Data::plain(value.trim())).scalar()?;
        (!path.trim().is_empty()).then(|| (path.trim().to_owned(), value))
    };
    key.split(',')
        .map(pair)
        .collect::<Option<Vec<_>>>()
        .map(Labels)
}

/// Reports keys with paths that the matrix does not sweep.
pub(crate) fn check_axes(root: &Node, swept_paths: &BTreeSet<String>, review: &mut Review) {
    let tables = root
        .entries_at("reference")
        .iter()
        .filter(|entry| has_cases(&entry.value));
    for key in tables.flat_map(|table| table.value.entries()) {
        for (path, _) in parse_labels(&key.key)
            .unwrap_or_default()
            .0
            .iter()
            .filter(|(path, _)| !swept_paths.contains(path))
        {
            let label = meant_or(
                nearest(path, swept_paths.iter().map(String::as_str)),
                "is not swept",
            );
            let swept = list(swept_paths.iter().map(String::as_str), "and");
            let mistake = Mistake::new(key.key_at, format!("`{path}` is not swept"), label);
            review.push(mistake.help(format!(
                "Keys of a reference are paths of the matrix; here {swept}."
            )));
        }
    }
}

/// The reference's value for a check of a case; `place` is the span of the limit. Reports a missing value.
pub(crate) fn find_value(
    root: &Node,
    check: &Check,
    case: &Case,
    limit_at: Span,
    review: &mut Review,
) -> Option<ReferenceValue> {
    let table = root.get("reference")?;
    let name = check.subject.to_string();
    let same =
        |entry: &&Entry| parse_subject(&entry.key).is_ok_and(|subject| subject == check.subject);
    let Some(entry) = table.entries().iter().find(same) else {
        let names = || table.entries().iter().map(|entry| entry.key.as_str());
        let label = nearest(&name, names()).map_or("does not exist in it".to_owned(), |near| {
            format!("it has `{near}`")
        });
        let mistake = Mistake::new(
            limit_at,
            format!("`reference` has no `{}`", check.figure_name()),
            label,
        );
        review.push(mistake.help(format!("It has {}.", list(names(), "and"))));
        return None;
    };
    let node = if has_cases(&entry.value) {
        find_case_value(entry, case, limit_at, review)?
    } else {
        &entry.value
    };
    let stated = read_value(node, &check.subject, review)?;
    let level = if let Confidence::Level(level) = check.confidence {
        Some(level)
    } else {
        None
    };
    let (low, high) = match (stated.ends, stated.sd, level) {
        (Some(ends), ..) => ends,
        (None, Some(sd), Some(level)) => (
            (stated.value - score(level) * sd).max(0.0),
            stated.value + score(level) * sd,
        ),
        _ => (stated.value, stated.value),
    };
    Some(ReferenceValue {
        value: stated.value,
        low: Some(low),
        high: Some(high),
        n: None,
        spread: None,
    })
}

/// The value with the most labels that match the case.
fn find_case_value<'a>(
    entry: &'a Entry,
    case: &Case,
    limit_at: Span,
    review: &mut Review,
) -> Option<&'a Node> {
    let rows = entry
        .value
        .entries()
        .iter()
        .filter_map(|row| Some((parse_labels(&row.key)?, row)));
    let mut fits: Vec<_> = rows
        .filter(|(labels, _)| case.labels.covers(labels))
        .collect();
    fits.sort_by_key(|(labels, _)| std::cmp::Reverse(labels.0.len()));
    match fits.as_slice() {
        [] => {
            let message = format!(
                "`reference` has no value for `{}` in case `{}`",
                entry.key, case.id
            );
            let mistake = Mistake::new(entry.key_at, message, "has no value for this case")
                .also(limit_at, "needed by this limit");
            let pairs = case
                .labels
                .0
                .iter()
                .map(|(path, value)| format!("{path}={value}"))
                .collect::<Vec<_>>()
                .join(",");
            let help = if pairs.is_empty() {
                "A single number applies to all cases.".to_owned()
            } else {
                format!("Add \"{pairs}\": ….")
            };
            review.push(mistake.help(help));
            None
        }
        [(first, _), (second, other), ..] if first.0.len() == second.0.len() => {
            let message = format!("two values of `{}` match case `{}`", entry.key, case.id);
            let label = "this one and another one";
            review.push(
                Mistake::new(other.key_at, message, label)
                    .help("Add more matrix values of the case."),
            );
            None
        }
        [(_, row), ..] => Some(&row.value),
    }
}
