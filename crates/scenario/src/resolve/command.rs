//! The command of a server and its arguments: a secret that stands in them is written by name.

use super::Writer;
use crate::schema_table::Leaf;
use crate::secret::{Place, behind_flags, by_name, escaped, looks_secret, written_part};
use crate::sections::server::{ARGUMENT, COMMAND, command};
use crate::tree::{Data, Node, Part};
use llmscen_core::url_secrets::is_secret_name;
use serde_json::Value;

/// Whether values of that kind are words of a command.
pub(super) fn holds(leaf: &'static Leaf) -> bool {
    std::ptr::eq(leaf, &COMMAND) || std::ptr::eq(leaf, &ARGUMENT)
}

/// The secrets of a target wherever they stand in it, the longest first.
pub(super) fn known(root: &Node) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    let mut take = |node: &Node| match &node.data {
        Data::List(items) => all.extend(items.iter().filter_map(|item| Some(item.text()?.into_owned()))),
        _ => all.extend(node.text().map(|text| text.into_owned())),
    };
    root.entry_at("target.api_key").iter().for_each(|entry| take(&entry.value));
    for path in ["target.headers", "target.server.env", "target.server.args"] {
        let entries = root.entry_at(path).map(|entry| entry.value.entries()).unwrap_or_default();
        entries.iter().filter(|own| is_secret_name(&own.key)).for_each(|own| take(&own.value));
    }
    let words = root.entry_at("target.server.command").and_then(|entry| command(&entry.value)).unwrap_or_default();
    all.extend(behind_flags(&words).into_iter().map(|(_, value)| value));
    // Of `Bearer sk-1` the last word is one too.
    all.extend(all.clone().iter().filter_map(|value| Some(value.rsplit_once(' ')?.1.to_owned())));
    all.retain(|value| looks_secret(value));
    all.sort_by(|a, b| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
    all.dedup();
    all
}

impl Writer<'_> {
    /// Words, or one of them, that stand at the key `name`.
    pub(super) fn words(&mut self, node: &Node, name: &str) -> Value {
        match &node.data {
            Data::List(items) => Value::Array(items.iter().map(|item| self.words(item, name)).collect()),
            Data::Text(_) if is_secret_name(name) => self.secret(node, name),
            Data::Int(_) | Data::Float(_) if is_secret_name(name) && looks_secret(&node.json().to_string()) => {
                self.secret(node, name)
            }
            _ => self.veiled_words(node, name),
        }
    }

    fn veiled_words(&mut self, node: &Node, name: &str) -> Value {
        let text = node.text().map(|text| text.into_owned()).unwrap_or_default();
        let own = if name == "command" { command(node).unwrap_or_default() } else { Vec::new() };
        let mut secrets: Vec<String> = behind_flags(&own).into_iter().map(|(_, value)| value).collect();
        let spelled_otherwise = secrets.iter().any(|secret| !text.contains(secret.as_str()));
        secrets.extend(self.known.iter().filter(|secret| text.contains(secret.as_str())).cloned());
        secrets.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
        secrets.dedup();
        if secrets.is_empty() {
            return self.free(node, Place::Text);
        }
        let whole = [Part::Literal(text)];
        let parts = node.parts.as_deref().unwrap_or(&whole);
        let within = |secret: &String, part: &Part| match part {
            Part::Literal(text) => text.contains(secret.as_str()),
            Part::Env { value, .. } => value.contains(secret.as_str()),
            Part::Ref(_) => false,
        };
        if spelled_otherwise || secrets.iter().any(|secret| !parts.iter().any(|part| within(secret, part))) {
            return Value::from(self.name(node, name));
        }
        let literal = |part: &Part| matches!(part, Part::Literal(_));
        let mut names: Vec<(String, String)> = Vec::new();
        for secret in &secrets {
            let covered = names.iter().any(|(longer, _)| longer.contains(secret.as_str()));
            if !covered && parts.iter().any(|part| literal(part) && within(secret, part)) {
                let variable = self.name(node, name);
                names.push((secret.clone(), variable));
            }
        }
        let one = |part: &Part| match part {
            Part::Literal(text) => hide(text, &names),
            Part::Env { .. } if secrets.iter().any(|secret| within(secret, part)) => by_name(part),
            part => written_part(part, Place::Text),
        };
        Value::from(parts.iter().map(one).collect::<String>())
    }
}

/// A text with variables in place of secrets.
fn hide(text: &str, names: &[(String, String)]) -> String {
    let Some(((secret, variable), rest)) = names.split_first() else { return escaped(text, Place::Text) };
    text.split(secret.as_str()).map(|piece| hide(piece, rest)).collect::<Vec<_>>().join(variable)
}

#[cfg(test)]
mod tests {
    use crate::{Input, Loaded, load};
    use std::collections::BTreeMap;
    use std::path::Path;

    fn read(server: &str, env: &[(&str, &str)]) -> Loaded {
        let env: BTreeMap<String, String> = env.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let text = format!(
            "version: 1\nname: t\ntarget:\n  url: http://127.0.0.1:9/v1/chat/completions\n  model: m\n  api_key: sk-target\n  \
             server: {{ ready: {{ log: up }}, {server} }}\ndataset: openqa\nload: {{concurrency: 1, requests: 1}}\n"
        );
        load(&Input { path: Path::new("t.yaml"), text: Some(text), env: &env, set: &[] }).unwrap()
    }

    #[test]
    fn no_secret_of_a_command_is_written() {
        for (server, written) in [
            ("command: s, args: {hf_token: hf_lit}", "hf_token: ${LLMSCEN_SECRET_2}"),
            ("command: s, args: {api_key: [hf_lit]}", "- ${LLMSCEN_SECRET_2}"),
            ("command: s, args: {access: sk-target}", "access: ${LLMSCEN_SECRET_2}"),
            ("command: s --api-key hf_lit --port 9", "command: s --api-key ${LLMSCEN_SECRET_2} --port 9"),
            ("command: s --api-key=hf_lit x", "command: s --api-key=${LLMSCEN_SECRET_2} x"),
            ("command: [s, --hf-token, hf_lit]", "- ${LLMSCEN_SECRET_2}"),
            ("command: [s, --hf-token=hf_lit]", "- --hf-token=${LLMSCEN_SECRET_2}"),
            ("command: [sh, -c, 'HF_TOKEN=hf_lit exec s']", "- HF_TOKEN=${LLMSCEN_SECRET_2} exec s"),
            ("command: s --key hf'_'lit", "command: ${LLMSCEN_SECRET_2}"),
            ("command: s sk-target", "command: s ${LLMSCEN_SECRET_2}"),
            ("command: \"s --key ${V}\"", "command: s --key ${V}"),
            ("command: s, args: {x: \"${V}\", key: \"${V}\"}", "x: ${V}"),
        ] {
            let loaded = read(server, &[("V", "hf_lit")]);
            let resolved = &loaded.plan.resolved;
            assert!(!["hf_lit", "sk-target", "hf'"].iter().any(|secret| resolved.contains(secret)), "{server}: {resolved}");
            assert!(resolved.contains(written), "{server}: {resolved}");
            assert_eq!(loaded.warnings.len(), 1 + usize::from(written.contains("_2")), "{server}: {:?}", loaded.warnings);
        }
    }

    #[test]
    fn what_is_no_secret_stays() {
        let loaded = read("command: \"s --max-token 4096 --use-auth-token --port 9\", args: {token_limit: 64, a: b}", &[]);
        for written in ["command: s --max-token 4096 --use-auth-token --port 9", "token_limit: 64", "a: b"] {
            assert!(loaded.plan.resolved.contains(written), "{}", loaded.plan.resolved);
        }
    }
}
