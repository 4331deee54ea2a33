//! The settings of a resolved plan as flat paths, to compare runs; and the paths that `--set` accepts.

use crate::patches;
use crate::resolve::hex_digest;
use crate::schema_table::{Block, Kind};
use crate::sections::scenario::SCENARIO;
use crate::suggest::nearest;
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

/// Dotted path → value as text, of a resolved plan. Files are reduced to their names, because checkouts differ; long texts to a
/// digest.
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
    if PLACES.contains(&patches::path_in_patch(path)) {
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

/// A setting of the scenario.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// Dotted path.
    pub path: String,
    /// Whether its value is a secret.
    pub secret: bool,
}

/// Words of other tools, and the setting that they mean.
const SYNONYMS: [(&str, &str); 42] = [
    ("backend", "target.api"),
    ("base_url", "target.url"),
    ("endpoint", "target.url"),
    ("host", "target.url"),
    ("urls", "target.url"),
    ("models", "target.model"),
    ("model_name", "target.model"),
    ("served_model_name", "target.model"),
    ("token", "target.api_key"),
    ("timeout", "target.timeouts.total"),
    ("request_timeout", "target.timeouts.total"),
    ("qps", "load.rate"),
    ("rps", "load.rate"),
    ("request_rate", "load.rate"),
    ("burstiness", "load.arrivals"),
    ("arrival_pattern", "load.arrivals"),
    ("vus", "load.concurrency"),
    ("users", "load.concurrency"),
    ("num_users", "load.concurrency"),
    ("parallel", "load.concurrency"),
    ("max_concurrency", "load.concurrency"),
    ("num_prompts", "load.requests"),
    ("num_requests", "load.requests"),
    ("request_count", "load.requests"),
    ("max_requests", "load.requests"),
    ("iterations", "load.requests"),
    ("max_seconds", "load.duration"),
    ("ramp_up", "load.stages"),
    ("rampup", "load.stages"),
    ("isl", "dataset.tokens"),
    ("input_len", "dataset.tokens"),
    ("input_tokens", "dataset.tokens"),
    ("random_input_len", "dataset.tokens"),
    ("num_turns", "dataset.turns.count"),
    ("osl", "request.max_tokens"),
    ("output_len", "request.max_tokens"),
    ("output_tokens", "request.max_tokens"),
    ("random_output_len", "request.max_tokens"),
    ("max_new_tokens", "request.max_tokens"),
    ("max_completion_tokens", "request.max_tokens"),
    ("streaming", "request.stream"),
    ("goodput", "slo"),
];

/// The path of the setting that another tool has under this name.
pub(crate) fn synonym(name: &str) -> Option<&'static str> {
    let name = name.to_lowercase().replace('-', "_");
    let found = SYNONYMS.iter().find(|(word, _)| *word == name);
    found.map(|(_, path)| *path)
}

/// The setting whose path, or its last segment, is `name`; the one with the shortest path first; `-` and `_` are equal. With
/// `fuzzy` also a similar one.
pub fn setting_named(name: &str, fuzzy: bool) -> Option<Setting> {
    let name = name.to_lowercase().replace('-', "_");
    let mut settings = Vec::new();
    collect(&SCENARIO, "", &mut settings);
    settings.sort_by_key(|setting| setting.path.matches('.').count());
    let last = |setting: &Setting| {
        setting
            .path
            .rsplit('.')
            .next()
            .unwrap_or_default()
            .to_owned()
    };
    let exact = settings
        .iter()
        .position(|setting| setting.path == name || last(setting) == name);
    let position = exact.or_else(|| {
        let names: Vec<String> = settings.iter().map(last).collect();
        let meant = nearest(&name, names.iter().map(String::as_str)).filter(|_| fuzzy)?;
        // `--gpu-memory-utilization` only starts like `gpu`.
        if strsim::damerau_levenshtein(&name, meant) > (name.len() / 3).max(1) {
            return None;
        }
        names.iter().position(|name| name == meant)
    });
    position.map(|index| settings.swap_remove(index))
}

fn collect(table: &'static Block, prefix: &str, found: &mut Vec<Setting>) {
    for field in table.fields {
        let path = format!("{prefix}{}", field.name);
        match &field.kind {
            Kind::Block(inner) | Kind::OneOrMore(inner) => {
                collect(inner, &format!("{path}."), found)
            }
            Kind::Planned => {}
            kind => found.push(Setting {
                path,
                secret: matches!(kind, Kind::Secret | Kind::SecretOr(_)),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_synonym_means_a_setting_and_is_none() {
        for (word, path) in SYNONYMS {
            assert!(
                crate::reference::field_help(path).is_some(),
                "{word}: {path}"
            );
            let parent = path.rsplit_once('.').map_or("", |(parent, _)| parent);
            let same = format!("{parent}.{word}");
            assert!(crate::reference::field_help(&same).is_none(), "{word}");
        }
        assert_eq!(synonym("Max-Concurrency"), Some("load.concurrency"));
    }

    #[test]
    fn settings_are_flat_and_independent_of_the_checkout() {
        let plan = format!(
            "name: x\nseed: 7\ntarget: {{url: 'http://h', model: m, simulator: {{alpha: 2ms}}}}\ndataset: {{kind: openqa, path: /home/a/qa.jsonl}}\nrequest: {{template: {{prompt: {}}}, stop: [a, b]}}\nmix: [{{name: a, weight: 2}}]\nslo: []\n",
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

    fn path(name: &str) -> Option<String> {
        setting_named(name, true).map(|setting| setting.path)
    }

    #[test]
    fn flags_of_other_tools_have_a_path() {
        for (flag, expected) in [
            ("concurrency", "load.concurrency"),
            ("rate", "load.rate"),
            ("requests", "load.requests"),
            ("duration", "load.duration"),
            ("model", "target.model"),
            ("url", "target.url"),
            ("api-key", "target.api_key"),
            ("max-tokens", "request.max_tokens"),
            ("temperature", "request.temperature"),
            ("seed", "seed"),
            ("rounds", "rounds"),
            ("concurency", "load.concurrency"),
            ("dataset.text", "dataset.text"),
            ("request.max-tokens", "request.max_tokens"),
        ] {
            assert_eq!(path(flag).as_deref(), Some(expected), "{flag}");
        }
        assert_eq!(
            [path("frobnicate"), path("gpu-memory-utilization")],
            [None, None]
        );
        assert_eq!(setting_named("concurency", false), None);
        assert!(setting_named("api_key", false).unwrap().secret);
    }
}
