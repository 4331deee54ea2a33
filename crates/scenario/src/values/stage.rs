//! What a stage holds: `8/s`, `1/s -> 20/s`, `{ sine: … }`; or `16` users, `4 -> 64`.

use crate::fault::{Mistake, Review};
use crate::schema_table::Leaf;
use crate::tree::Node;
use crate::validate::found;
use crate::values::duration::duration;
use crate::values::expect;
use crate::values::rate::per_second;
use llmscen_core::stage::Course;
use serde_json::json;

const RATES: &str = "a rate such as `8/s`, a ramp such as `1/s -> 20/s`, or `{ sine: { mean, amplitude, period } }`";
const USERS: &str = "a number of users such as `16`, or a ramp such as `4 -> 64`";

/// Users at the most.
const MOST: u32 = 1_000_000;

/// The rate of a stage.
pub(crate) static STAGE_RATE: Leaf = Leaf { expected: RATES, sweepable: false, schema: rate_schema, check: check_rate };

/// The users of a stage.
pub(crate) static STAGE_USERS: Leaf = Leaf { expected: USERS, sweepable: false, schema: users_schema, check: check_users };

/// The course that a node holds; rates may be zero.
pub(crate) fn course(node: &Node) -> Option<Course> {
    if let Some(sine) = node.get("sine").filter(|_| node.entries().len() == 1) {
        let rate = |key| sine.get(key)?.text().and_then(|text| per_second(&text));
        let (mean, amplitude) = (rate("mean")?, rate("amplitude")?);
        let period = sine.get("period").and_then(duration).filter(|period| period.0 > 0)?;
        let sound = sine.entries().len() == 3 && mean > 0.0 && amplitude <= mean;
        return sound.then_some(Course::Sine { mean, amplitude, period });
    }
    let text = node.text()?;
    Some(match text.split_once("->") {
        None => Course::Flat(per_second(&text)?),
        Some((from, to)) => Course::Ramp { from: per_second(from)?, to: per_second(to)? },
    })
}

/// The users that a node holds, at the beginning and at the end of a stage.
pub(crate) fn users(node: &Node) -> Option<(u32, u32)> {
    let count = |number: i64| u32::try_from(number).ok().filter(|users| *users <= MOST);
    if let Some(number) = node.whole() {
        return count(number).map(|users| (users, users));
    }
    let text = node.text()?;
    let (from, to) = text.split_once("->")?;
    let end = |text: &str| text.trim().parse().ok().and_then(count);
    end(from).zip(end(to))
}

fn check_rate(node: &Node, review: &mut Review) {
    if course(node).is_some() {
        return;
    }
    let sine = node.get("sine").filter(|sine| !sine.entries().is_empty());
    let mistake = Mistake::new(node.at, "the `rate` of a stage cannot be this", found(node, "a rate"));
    review.push(match (sine, node.text()) {
        (Some(_), _) => mistake.help(
            "A wave is `{ sine: { mean: 10/s, amplitude: 5/s, period: 30s } }`; its mean is above 0 and its amplitude at most the mean, for no rate is below 0.",
        ),
        (None, Some(text)) if text.trim() == "burst" => {
            mistake.help("A burst has no length: it is a load of its own, `load: { rate: burst, requests: 100 }`.")
        }
        (None, Some(text)) if text.contains('-') => {
            mistake.help("A ramp goes from one rate to another, neither of them below 0: `1/s -> 20/s`.")
        }
        _ => mistake.help(format!("It must be {RATES}. Say per what: `8/s`, `480/m`; 0 is a pause.")),
    });
}

fn check_users(node: &Node, review: &mut Review) {
    if users(node).is_none() {
        expect(node, USERS, "`4 -> 64`; no number is below 0, and 0 is a pause", review);
    }
}

fn rate_schema() -> serde_json::Value {
    let one = r"\s*[0-9.]+\s*/\s*[smh]\s*";
    let rate = json!({ "type": "string", "pattern": format!("^{one}$") });
    let sine = json!({
        "type": "object",
        "properties": {
            "mean": rate,
            "amplitude": rate,
            "period": { "type": "string", "pattern": r"^\s*([0-9]*\.?[0-9]+(ns|us|µs|ms|s|m|h)\s*)+$" },
        },
        "required": ["mean", "amplitude", "period"],
        "additionalProperties": false,
    });
    json!({ "oneOf": [
        { "type": "string", "pattern": format!("^{one}(->{one})?$") },
        { "type": "object", "properties": { "sine": sine }, "required": ["sine"], "additionalProperties": false },
    ] })
}

fn users_schema() -> serde_json::Value {
    json!({ "type": ["integer", "string"], "minimum": 0, "pattern": r"^\s*[0-9]+\s*->\s*[0-9]+\s*$" })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::defaults::value;
    use crate::tree::Span;
    use llmscen_core::units::Nanos;

    fn node(yaml: &str) -> Node {
        value(yaml, Span { file: 0, start: 0, end: 0 })
    }

    #[test]
    fn a_course_is_flat_or_a_ramp_or_a_wave() {
        let sine = |mean, amplitude, secs: u64| Course::Sine { mean, amplitude, period: Nanos::from_millis(secs * 1000) };
        for (written, known) in [
            ("8/s", Some(Course::Flat(8.0))),
            ("0/s", Some(Course::Flat(0.0))),
            ("1/s -> 20/s", Some(Course::Ramp { from: 1.0, to: 20.0 })),
            ("60/m->0/s", Some(Course::Ramp { from: 1.0, to: 0.0 })),
            ("{ sine: { mean: 10/s, amplitude: 10/s, period: 30s } }", Some(sine(10.0, 10.0, 30))),
            ("{ sine: { mean: 10/s, amplitude: 11/s, period: 30s } }", None),
            ("{ sine: { mean: 10/s, amplitude: 5/s } }", None),
            ("{ sine: { mean: 10/s, amplitude: 5/s, period: 30s, phase: 1 } }", None),
            ("1/s -> -20/s", None),
            ("burst", None),
            ("8", None),
        ] {
            assert_eq!(course(&node(written)), known, "{written}");
        }
    }

    #[test]
    fn users_stand_still_or_ramp() {
        let seen = ["16", "0", "4 -> 64", "64->0", "-4", "4 -> -1", "1.5", "4 -> ", "1000001"].map(|text| users(&node(text)));
        assert_eq!(seen, [Some((16, 16)), Some((0, 0)), Some((4, 64)), Some((64, 0)), None, None, None, None, None]);
    }
}
