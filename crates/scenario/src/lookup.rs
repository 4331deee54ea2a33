//! The path of a setting by its last name: what a command line of another tool calls `--concurrency`.

use crate::schema_table::{Block, Kind};
use crate::sections::scenario::SCENARIO;
use crate::suggest::near;

/// A setting of the scenario.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// Its dotted path.
    pub path: String,
    /// Its value is a secret.
    pub secret: bool,
}

/// The setting whose path is `name` or ends with it, the shortest path first; `-` and `_` are the same. With `fuzzy` also the
/// one that is spelled nearly so.
pub fn setting_named(name: &str, fuzzy: bool) -> Option<Setting> {
    let name = name.to_lowercase().replace('-', "_");
    let mut settings = Vec::new();
    collect(&SCENARIO, "", &mut settings);
    settings.sort_by_key(|setting| setting.path.matches('.').count());
    let last = |setting: &Setting| setting.path.rsplit('.').next().unwrap_or_default().to_owned();
    let exact = settings.iter().position(|setting| setting.path == name || last(setting) == name);
    let position = exact.or_else(|| {
        let names: Vec<String> = settings.iter().map(last).collect();
        let meant = near(&name, names.iter().map(String::as_str)).filter(|_| fuzzy)?;
        // `--gpu-memory-utilization` only begins like `gpu`.
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
            Kind::Block(inner) => collect(inner, &format!("{path}."), found),
            Kind::Planned => {}
            kind => found.push(Setting { path, secret: matches!(kind, Kind::Secret) }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert_eq!([path("frobnicate"), path("gpu-memory-utilization")], [None, None]);
        assert_eq!(setting_named("concurency", false), None);
        assert!(setting_named("api_key", false).unwrap().secret);
    }
}
