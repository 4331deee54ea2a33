//! The paths that `--set` accepts, and the names that other tools have for them.

use crate::schema_table::{Block, Kind};
use crate::suggest::nearest;

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

/// The setting whose path, or its last segment, is `name`; the one with the shortest path first; `-` and `_` are
/// equal. With `fuzzy` also a similar one. `scenario`: the table of all keys.
pub(crate) fn setting_named(name: &str, fuzzy: bool, scenario: &'static Block) -> Option<Setting> {
    let name = name.to_lowercase().replace('-', "_");
    let mut settings = Vec::new();
    collect(scenario, "", &mut settings);
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
    use crate::setting_named;

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
