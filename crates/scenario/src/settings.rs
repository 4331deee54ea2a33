//! The settings of a resolved plan as flat paths, to compare runs.

use crate::patch_names;
use crate::resolve::hex_digest;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;

/// Sections that influence the results.
const SECTIONS: [&str; 8] = [
    "seed",
    "target",
    "request",
    "dataset",
    "mix",
    "load",
    "variants",
    "workloads",
];
/// Paths of the target that only say where it is and how it is reached.
const PLACES: [&str; 8] = [
    "target.url",
    "target.api_key",
    "target.aws",
    "target.headers",
    "target.timeouts",
    "target.tls",
    "target.hardware.gpu",
    "target.simulator.seed",
];
/// Longest text that is kept, in bytes.
const LONG: usize = 80;

/// Dotted path → value as text, of a resolved plan. Files are reduced to their names, because checkouts differ; long
/// texts to a digest.
pub fn settings(resolved: &str) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let Ok(plan) = serde_yaml::from_str::<Value>(resolved) else {
        return found;
    };
    for section in SECTIONS {
        if let Some(value) = plan.get(section) {
            flatten(section, value, &mut found);
        }
    }
    found
}

fn flatten(path: &str, value: &Value, found: &mut BTreeMap<String, String>) {
    if PLACES.contains(&patch_names::path_in_patch(path)) {
        return;
    }
    let text = match value {
        Value::Object(map) => {
            return map
                .iter()
                .for_each(|(key, value)| flatten(&format!("{path}.{key}"), value, found));
        }
        Value::Array(items) if items.iter().any(Value::is_object) => {
            return items
                .iter()
                .enumerate()
                .for_each(|(index, item)| flatten(&format!("{path}.{index}"), item, found));
        }
        Value::String(text) if text.starts_with('/') => Path::new(text)
            .file_name()
            .map_or_else(|| text.clone(), |name| name.to_string_lossy().into_owned()),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let short = |text: String| {
        if text.len() > LONG {
            format!("sha256:{}", hex_digest(&text, 6))
        } else {
            text
        }
    };
    found.insert(path.to_owned(), short(text));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_flat_and_independent_of_the_checkout() {
        let plan = format!(
            "name: x\nseed: 7\ntarget: {{url: 'http://h', model: m, simulator: {{alpha: \
            2ms}}}}\ndataset: {{kind: openqa, path: /home/a/qa.jsonl}}\nrequest: {{template: \
            {{prompt: {}}}, stop: [a, b]}}\nmix: [{{name: a, weight: 2}}]\nslo: []\n",
            "long ".repeat(40)
        );
        let found = settings(&plan);
        let pairs: Vec<(&str, &str)> = found
            .iter()
            .map(|(path, value)| (path.as_str(), value.as_str()))
            .collect();
        let digest = found["request.template.prompt"].as_str();
        assert!(
            digest.starts_with("sha256:") && digest.len() == 19,
            "{digest}"
        );
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
