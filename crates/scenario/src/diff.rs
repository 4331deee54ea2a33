//! The differences between two resolved scenarios, field by field.

use llmscen_core::compare::Difference;
use serde_json::Value;

/// Fields that do not change the workload: names, reports, the target's address and startup, objectives, telemetry.
/// Another seed draws other requests from the same distribution.
const HARMLESS: &[&str] = &[
    "name",
    "description",
    "labels",
    "report",
    "seed",
    "cache_seed",
    "target.url",
    "target.balance",
    "target.simulator",
    "target.server",
    "target.metrics",
    "target.hardware",
    "target.gpus",
    "target.cost",
    "target.local",
    "slo",
    "slo_defaults",
    "audit",
    "telemetry",
    "baseline",
    "reference",
];
/// An SLO with this key can end a case early, so a difference in `slo` then changes the workload.
const ENDS: &str = "abort";

/// The differences between two resolved scenarios, in the order of their fields.
///
/// # Errors
/// The parser's message where one of them is not YAML.
pub fn differences(base: &str, other: &str) -> Result<Vec<Difference>, String> {
    let read = |text: &str| serde_yaml::from_str::<Value>(text).map_err(|error| error.to_string());
    let base = read(base)?;
    let other = read(other)?;
    let mut found = Vec::new();
    collect_differences(String::new(), Some(&base), Some(&other), &mut found);
    let aborts = [&base, &other].iter().any(|plan| may_abort(plan));
    for difference in &mut found {
        difference.harmless = HARMLESS
            .iter()
            .find(|field| difference.is_within(field))
            .is_some_and(|field| *field != "slo" || !aborts);
    }
    Ok(found)
}

fn may_abort(plan: &Value) -> bool {
    let limits = plan.get("slo").and_then(Value::as_array);
    limits.is_some_and(|limits| limits.iter().any(|limit| limit.get(ENDS).is_some()))
}

fn collect_differences(
    path: String,
    base: Option<&Value>,
    other: Option<&Value>,
    found: &mut Vec<Difference>,
) {
    match (base, other) {
        (Some(Value::Object(a)), Some(Value::Object(b))) => {
            let more = b.keys().filter(|key| !a.contains_key(*key));
            for key in a.keys().chain(more) {
                let path = if path.is_empty() {
                    key.clone()
                } else {
                    format!("{path}.{key}")
                };
                collect_differences(path, a.get(key), b.get(key), found);
            }
        }
        (Some(Value::Array(a)), Some(Value::Array(b))) => {
            for index in 0..a.len().max(b.len()) {
                collect_differences(
                    format!("{path}[{index}]"),
                    a.get(index),
                    b.get(index),
                    found,
                );
            }
        }
        _ if base == other => {}
        _ => {
            let [base, other] = [base, other].map(|value| value.map(display_value));
            found.push(Difference {
                path,
                base,
                other,
                harmless: false,
            });
        }
    }
}

fn display_value(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        value => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: &str = "name: a\ntarget: { url: x, model: m }\nload: { concurrency: 4 }\nslo:\n- \
    { expr: ttft.p95 < 1s }\nmatrix: { load.rate: [1, 2] }\n";

    fn of(other: &str) -> Vec<(String, Option<String>, Option<String>, bool)> {
        let found = differences(BASE, other).unwrap();
        found
            .into_iter()
            .map(|difference| {
                (
                    difference.path,
                    difference.base,
                    difference.other,
                    difference.harmless,
                )
            })
            .collect()
    }

    #[test]
    fn every_difference_is_listed_with_both_values() {
        let text = |value: &str| Some(value.to_owned());
        let other = BASE
            .replace("concurrency: 4", "concurrency: 8, requests: 9")
            .replace("[1, 2]", "[1]")
            .replace("name: a", "name: b");
        let known = [
            ("name".into(), text("a"), text("b"), true),
            ("load.concurrency".into(), text("4"), text("8"), false),
            ("load.requests".into(), None, text("9"), false),
            ("matrix.load.rate[1]".into(), text("2"), None, false),
        ];
        assert_eq!(of(&other), known);
        assert_eq!(of(BASE), []);
        assert!(differences(BASE, "a: [").is_err());
    }

    #[test]
    fn differences_in_target_and_objectives_are_harmless() {
        let harmless = |other: &str| {
            of(other)
                .into_iter()
                .map(|difference| difference.3)
                .collect::<Vec<_>>()
        };
        assert_eq!(harmless(&BASE.replace("url: x", "url: y")), [true]);
        let engine = "url: x, server: { preset: vllm, args: { dtype: half } }, metrics: { url: z \
        }, local: { batch: 2 }";
        assert_eq!(harmless(&BASE.replace("url: x", engine)), [true; 3]);
        assert_eq!(harmless(&BASE.replace("model: m", "model: n")), [false]);
        assert_eq!(harmless(&BASE.replace("1s", "2s")), [true]);
        assert_eq!(
            harmless(&BASE.replace("1s", "2s, abort: { alpha: 0.01 }")),
            [false, false]
        );
        assert_eq!(
            harmless(&BASE.replace("name: a", "names: a")),
            [true, false]
        );
    }
}
