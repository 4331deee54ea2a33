//! What a resolved plan says about target, requests, data and load, flat: what two runs must have in common to be compared.

use serde_json::Value;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::path::Path;

/// The sections that make the numbers.
const SECTIONS: [&str; 6] = ["seed", "target", "request", "dataset", "mix", "load"];
/// Of the target: where it is and how it is reached, but not what it is.
const PLACES: [&str; 6] =
    ["target.url", "target.api_key", "target.headers", "target.timeouts", "target.tls", "target.simulator.seed"];
/// The longest text that is kept as it is.
const LONG: usize = 80;

/// Dotted path → value as text, of a resolved plan. Files go by their last name, for checkouts differ; long texts by a digest.
pub fn settings(resolved: &str) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let Ok(plan) = serde_yaml::from_str::<Value>(resolved) else { return found };
    for section in SECTIONS {
        if let Some(value) = plan.get(section) {
            flatten(section, value, &mut found);
        }
    }
    found
}

fn flatten(path: &str, value: &Value, found: &mut BTreeMap<String, String>) {
    if PLACES.contains(&path) {
        return;
    }
    let text = match value {
        Value::Object(map) => return map.iter().for_each(|(key, value)| flatten(&format!("{path}.{key}"), value, found)),
        Value::Array(items) if items.iter().any(Value::is_object) => {
            return items.iter().enumerate().for_each(|(index, item)| flatten(&format!("{path}.{index}"), item, found));
        }
        Value::String(text) if text.starts_with('/') => {
            Path::new(text).file_name().map_or_else(|| text.clone(), |name| name.to_string_lossy().into_owned())
        }
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let short = |text: String| {
        let digest: String = Sha256::digest(text.as_bytes()).iter().take(6).map(|byte| format!("{byte:02x}")).collect();
        if text.len() > LONG { format!("sha256:{digest}") } else { text }
    };
    found.insert(path.to_owned(), short(text));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_is_flat_and_knows_no_checkout() {
        let plan = format!(
            "name: x\nseed: 7\ntarget: {{url: 'http://h', model: m, simulator: {{alpha: 2ms}}}}\ndataset: {{kind: openqa, path: /home/a/qa.jsonl}}\nrequest: {{template: {{prompt: {}}}, stop: [a, b]}}\nmix: [{{name: a, weight: 2}}]\nslo: []\n",
            "long ".repeat(40)
        );
        let found = settings(&plan);
        let pairs: Vec<(&str, &str)> = found.iter().map(|(path, value)| (path.as_str(), value.as_str())).collect();
        let digest = found["request.template.prompt"].as_str();
        assert!(digest.starts_with("sha256:") && digest.len() == 19, "{digest}");
        assert_eq!(
            pairs,
            [
                ("dataset.kind", "openqa"),
                ("dataset.path", "qa.jsonl"),
                ("mix.0.name", "a"),
                ("mix.0.weight", "2"),
                ("request.stop", "[\"a\",\"b\"]"),
                ("request.template.prompt", digest),
                ("seed", "7"),
                ("target.model", "m"),
                ("target.simulator.alpha", "2ms"),
            ]
        );
    }
}
