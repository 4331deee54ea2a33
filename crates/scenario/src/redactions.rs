//! The secrets of a scenario, which are redacted from all output.

use crate::patch_names::PATCHES;
use crate::schema_table::Kind;
use crate::secrets::{USUAL_HEADERS, behind_flags, is_hidden};
use crate::sections::scenario::SCENARIO;
use crate::sweep;
use crate::tree::{Node, Part, last_segment};
use crate::values::command::command;
use llmscen_core::plan::Plan;
use llmscen_core::redact::{Secret, is_distinct};
use llmscen_core::url_secrets::{
    is_secret_name, is_url, redact_url, secret_ranges, secrets_in_url,
};
use std::collections::{BTreeMap, BTreeSet};

/// The use of a value, which decides whether it may be a secret.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Origin {
    /// An API key, a token or a header.
    Secret,
    /// Sent to the server: values of variables in it may be secrets.
    Sent,
    /// A setting that reports show.
    Setting,
}

impl Origin {
    pub fn at_path(path: &str) -> Origin {
        let last = last_segment(path);
        let own_path = path
            .strip_prefix("mix.")
            .and_then(|rest| rest.split_once('.'))
            .map_or(path, |(_, rest)| rest);
        match SCENARIO
            .kind_at(path)
            .or_else(|| SCENARIO.kind_at(own_path))
        {
            Some(Kind::Secret) if USUAL_HEADERS.contains(&last.to_lowercase().as_str()) => {
                Origin::Setting
            }
            // A server's variable such as `VLLM_ATTENTION_BACKEND` is a setting, but variables in its value may be
            // secrets.
            Some(Kind::Secret) if own_path.contains(".env.") && !is_secret_name(last) => {
                Origin::Sent
            }
            Some(Kind::Secret | Kind::SecretOr(_)) => Origin::Secret,
            Some(Kind::Json | Kind::Template) => Origin::Sent,
            _ if own_path.starts_with("request.template")
                || own_path.starts_with("request.extra") =>
            {
                Origin::Sent
            }
            _ if ["text", "system"].contains(&last) => Origin::Sent,
            _ => Origin::Setting,
        }
    }
}

/// Candidates found in a scenario.
#[derive(Default)]
struct Found {
    /// Secrets in any case.
    certain: BTreeSet<String>,
    /// Secrets unless a setting that reports show has the same text.
    likely: BTreeSet<String>,
    /// Settings that reports show.
    shown: Vec<String>,
}

/// The secrets of a scenario that are distinct enough to be redacted from any text.
pub(crate) fn secrets(root: &Node, plan: &Plan, env: &BTreeMap<String, String>) -> Vec<Secret> {
    let mut found = Found::default();
    found.walk(root, "");
    for (name, value) in env {
        match name.to_lowercase().as_str() {
            "http_proxy" | "https_proxy" | "all_proxy" | "llmscen_hub" => found.url(value),
            "hf_token" | "wandb_api_key" | "mlflow_tracking_token" | "mlflow_tracking_password" => {
                found.certain.insert(value.clone());
            }
            // Hooks and the commands of datasets have all variables, and may print them.
            name if name.rsplit('_').next().is_some_and(is_secret_name) => {
                found.likely.insert(value.clone());
            }
            _ => {}
        }
    }
    found
        .shown
        .extend(plan.cases.iter().map(|case| case.id.clone()));
    let models: BTreeSet<&str> = plan
        .cases
        .iter()
        .flat_map(|case| case.target.models.iter().map(|model| model.name.as_str()))
        .collect();
    // Reports need the names of models, so a secret that is part of one cannot be redacted.
    found
        .certain
        .retain(|text| !models.iter().any(|model| model.contains(text.as_str())));
    found.shown.extend(models.into_iter().map(str::to_owned));
    // A preset may add a URL.
    let pages = plan
        .cases
        .iter()
        .flat_map(|case| &case.target.metrics)
        .map(|source| source.scrape.url.as_str());
    let urls = plan.cases.iter().flat_map(|case| case.target.urls());
    pages.chain(urls).for_each(|url| found.url(url));
    let Found {
        certain,
        likely,
        shown,
    } = found;
    let innocent = |text: &String| shown.iter().any(|setting| setting.contains(text.as_str()));
    let all = certain
        .into_iter()
        .chain(likely.into_iter().filter(|text| !innocent(text)));
    // A stored plan has `${NAME}` for variables that are not set.
    let mut all: Vec<Secret> = all
        .filter(|text| is_distinct(text) && !text.contains("${"))
        .map(Secret::new)
        .collect();
    all.sort();
    all.dedup();
    all
}

impl Found {
    fn walk(&mut self, node: &Node, path: &str) {
        let matrix = sweep::MATRICES.contains(&path) || path.starts_with("matrix#");
        for entry in node
            .entries()
            .iter()
            .filter(|entry| !(path.is_empty() && entry.key == "vars"))
        {
            let inner = match path {
                "" => entry.key.clone(),
                _ if matrix && sweep::WORDS.contains(&entry.key.as_str()) => {
                    format!("matrix#{}", entry.key)
                }
                _ if matrix => entry.key.clone(),
                // A patch has the paths of the scenario.
                _ if PATCHES.iter().any(|kind| kind.section == path) => String::new(),
                _ => format!("{path}.{}", entry.key),
            };
            match is_hidden(last_segment(&entry.key), &entry.value) {
                true => self.secret(&entry.value),
                false => self.walk(&entry.value, &inner),
            }
        }
        for (index, item) in node.items().iter().enumerate() {
            let inner = if path == "mix" {
                format!("mix.{index}")
            } else {
                path.to_owned()
            };
            match is_hidden(last_segment(path), item) {
                true => self.secret(item),
                false => self.walk(item, &inner),
            }
        }
        if node.text().is_some() {
            self.leaf(node, path);
        }
        if path.ends_with("command") {
            let words = command(node).unwrap_or_default();
            self.certain
                .extend(behind_flags(&words).into_iter().map(|(_, value)| value));
        }
    }

    fn leaf(&mut self, node: &Node, path: &str) {
        let text = node.string().unwrap_or_default();
        let origin = Origin::at_path(path);
        let named = |part: &Part| matches!(part, Part::Env { name, .. } if is_secret_name(name));
        let parts = node.parts.as_deref().unwrap_or_default();
        for part in parts {
            let Part::Env { name, value } = part else {
                continue;
            };
            match origin {
                _ if is_secret_name(name) => _ = self.certain.insert(value.clone()),
                Origin::Secret => _ = self.certain.insert(value.clone()),
                Origin::Sent => _ = self.likely.insert(value.clone()),
                Origin::Setting => {}
            }
        }
        match origin {
            Origin::Secret => {
                let all = if is_secret_name(last_segment(path)) {
                    &mut self.certain
                } else {
                    &mut self.likely
                };
                all.extend(text.rsplit_once(' ').map(|(_, last)| last.to_owned()));
                all.insert(text);
            }
            _ if is_url(&text) => self.url(&text),
            Origin::Setting if !parts.iter().any(named) => self.shown.push(text),
            Origin::Setting | Origin::Sent => {}
        }
    }

    fn secret(&mut self, node: &Node) {
        let text = node.string();
        self.certain.extend(
            text.iter()
                .filter_map(|text| Some(text.rsplit_once(' ')?.1.to_owned())),
        );
        self.certain.extend(text);
        self.certain
            .extend(node.integer().map(|number| number.to_string()));
    }

    fn url(&mut self, url: &str) {
        let all = secret_ranges(url)
            .into_iter()
            .map(|range| (range.start, &url[range]));
        let query = url.find('?').unwrap_or(url.len());
        for (start, value) in all {
            let name = url[..start].rsplit(['?', '&']).next().unwrap_or_default();
            let certain = start < query || is_secret_name(name.trim_end_matches('='));
            if certain {
                &mut self.certain
            } else {
                &mut self.likely
            }
            .insert(value.to_owned());
        }
        self.certain.extend(
            secrets_in_url(url)
                .into_iter()
                .filter(|secret| !url.contains(secret.as_str())),
        );
        self.shown.push(redact_url(url));
    }
}

#[cfg(test)]
mod tests;
