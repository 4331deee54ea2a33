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
mod tests {
    use crate::tests::load_with;
    use crate::{Input, load, reload};
    use std::path::Path;

    fn secrets(sections: &str, env: &[(&str, &str)]) -> Vec<String> {
        let text = format!(
            "version: 1\nname: chat-team-blue\nload: {{concurrency: 1, requests: 1}}\n{sections}"
        );
        let loaded = load_with(&text, env, &[]);
        let plan = loaded
            .unwrap_or_else(|faults| panic!("{}", faults.render(false, 120)))
            .plan;
        assert!(
            plan.cases
                .iter()
                .all(|case| case.target.scenario_secrets == plan.secrets)
        );
        plan.secrets
            .iter()
            .map(|secret| secret.expose().to_owned())
            .collect()
    }

    #[test]
    fn variables_that_are_sent_are_secrets_and_settings_are_not() {
        let sections = "target: {url: simulator, model: \"${MODEL}\"}\ndataset: {kind: prompt, \
            text: \"say ${SAID}\"}\nrequest: {max_tokens: \"${MOST}\", extra: {a: \"${TENANT}\", \
            b: \"${SHORT}\", c: \"${WORD}\", d: \"${FLAG}\", e: \"${MODEL}\", api_key: \
            literal-1}}\n";
        let env = [
            ("MODEL", "qwen2.5-7b-instruct"),
            ("SAID", "said-secret"),
            ("TENANT", "tenant-1"),
            ("SHORT", "abc-1"),
            ("WORD", "thinking"),
            ("FLAG", "true"),
            ("MOST", "1234567"),
        ];
        assert_eq!(
            secrets(sections, &env),
            ["literal-1", "said-secret", "tenant-1"]
        );
    }

    #[test]
    fn urls_and_headers_are_secrets_unless_reports_show_the_same() {
        let sections = "target: {url: \"http://user-name:${PW}@h/v1/chat/completions?session=s-123456&v=1\", model: m, headers: {X-Team: team-blue, X-Other: team-green, Content-Type: application/json, Authorization: Bearer abcdef-1}, metrics: \"http://t0ken-of-page@h/metrics\"}\ndataset: {kind: prompt, text: x}\n";
        let base64 = ["dXNlci1uYW1lOnBhc3N3b3JkLTE=", "dDBrZW4tb2YtcGFnZQ=="];
        let mut known = vec![
            "abcdef-1",
            "Bearer abcdef-1",
            "password-1",
            "s-123456",
            "t0ken-of-page",
            "team-green",
            "user-name",
        ];
        known.extend(base64);
        known.sort_unstable();
        assert_eq!(secrets(sections, &[("PW", "password-1")]), known);
    }

    #[test]
    fn key_within_a_model_name_is_not_redacted() {
        let sections = |key: &str| {
            format!(
                "target: {{url: simulator, model: m, api_key: {key}}}\ndataset: {{kind: prompt, text: x}}\n\
                matrix: {{target.model: [llama-cpp-7b, llama-cpp-13b]}}\n"
            )
        };
        assert_eq!(secrets(&sections("llama-cpp"), &[]), [""; 0]);
        assert_eq!(secrets(&sections("llama-cpp-key"), &[]), ["llama-cpp-key"]);
    }

    #[test]
    fn swept_secrets_are_not_in_case_ids() {
        let text = "version: 1\nname: t\ntarget: {url: simulator, model: m}\ndataset: {kind: prompt, text: x}\n\
            load: {concurrency: 1, requests: 1}\nmatrix: {request.extra.t: [\"${A}\", plain], \
            target.url: [\"http://u:first-1@h/v1/chat/completions\", \"http://u:second-1@h/v1/chat/completions\"]}\n";
        let ids = |text: &str| {
            let env = [("A", "value-a-1")]
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .into();
            let input = Input {
                path: Path::new("t.yaml"),
                text: Some(text.to_owned()),
                env: &env,
                set: &[],
            };
            let loaded = if text.contains("LLMSCEN_SECRET") {
                reload(&input)
            } else {
                load(&input)
            };
            let plan = loaded
                .unwrap_or_else(|faults| panic!("{}", faults.render(false, 120)))
                .plan;
            (
                plan.cases
                    .into_iter()
                    .map(|case| case.id)
                    .collect::<Vec<_>>(),
                plan.resolved,
            )
        };
        let (known, resolved) = ids(text);
        assert_eq!(known.len(), 4);
        assert!(
            known[0].starts_with("t=${A},url=http://u:[redacted]@h/v1/chat/completions"),
            "{known:?}"
        );
        for secret in ["value-a", "first-1", "second-1"] {
            assert!(
                !resolved.contains(secret) && !known.iter().any(|id| id.contains(secret)),
                "{secret}: {known:?} {resolved}"
            );
        }
        assert_eq!(
            ids(&resolved).0,
            known,
            "the stored plan has the same cases"
        );
    }
    /// Ids of the cases, the stored plan and its id.
    fn read(text: &str, env: &[(&str, &str)], stored: bool) -> (Vec<String>, String, String) {
        let env = env
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        let input = Input {
            path: Path::new("t.yaml"),
            text: Some(text.to_owned()),
            env: &env,
            set: &[],
        };
        let loaded = if stored { reload(&input) } else { load(&input) };
        let plan = loaded
            .unwrap_or_else(|faults| panic!("{}", faults.render(false, 120)))
            .plan;
        (
            plan.cases.into_iter().map(|case| case.id).collect(),
            plan.resolved,
            plan.id,
        )
    }

    const HEAD: &str = "version: 1\nname: t\nload: {concurrency: 1, requests: 1}\n";

    #[test]
    fn stored_plan_does_not_depend_on_current_variables() {
        for sections in [
            "target: {url: simulator, model: m}\ndataset: {kind: prompt, text: x}\nmatrix: \
            {request.extra.tenant: [\"${K2}\", b]}\n",
            "target: {url: simulator, model: m}\ndataset: {kind: prompt, text: \"say ${K2} to me\"}\n",
            "vars: {key: \"${K2}\"}\ntarget: {url: simulator, model: m}\ndataset: {kind: prompt, \
            text: \"{{ vars.key }}\"}\n",
            "target: {url: \"http://h/v1/chat/completions?session=${K2}\", model: m}\ndataset: \
            {kind: prompt, text: x}\n",
        ] {
            let known = read(&format!("{HEAD}{sections}"), &[("K2", "tenant-01")], false);
            assert!(
                !known.1.contains("tenant-01") && known.1.contains("${K2}"),
                "{}",
                known.1
            );
            for now in [
                &[][..],
                &[("K2", "x")],
                &[("K2", "tenant-02")],
                &[("K2", "12345678")],
            ] {
                assert_eq!(read(&known.1, now, true), known, "{now:?}");
            }
        }
    }

    #[test]
    fn swept_secrets_are_not_shown() {
        let sections = "target: {url: simulator, model: m}\ndataset: {kind: prompt, text: x}\n\
            matrix: {request.extra.password: [planted-pw-1, planted-pw-2, 12345678]}\n";
        let known = read(&format!("{HEAD}{sections}"), &[], false);
        assert_eq!(
            known.0,
            ["", "#2", "#3"].map(|end| format!("password=[redacted]{end}"))
        );
        assert!(
            !["planted-pw", "12345678"]
                .iter()
                .any(|secret| known.1.contains(secret)),
            "{}",
            known.1
        );
        assert_eq!(read(&known.1, &[], true), known);
        assert_eq!(
            secrets(sections, &[]),
            ["12345678", "planted-pw-1", "planted-pw-2"]
        );
    }

    #[test]
    fn versions_in_headers_are_not_secrets() {
        let sections = "target: {url: simulator, model: m, headers: \
        {anthropic-version: \"2023-06-01\", X-Title: gpt-4o-mini bench}}\ndataset: {kind: prompt, \
        text: x}\n";
        assert!(secrets(sections, &[]).is_empty());
    }
}
