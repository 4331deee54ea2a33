//! The resolved plan: what was run, as a scenario that runs it again. Every default stands there, every variable is replaced,
//! files are named by absolute paths; what must stay secret is `${NAME}`.

mod command;

use crate::fault::Review;
use crate::origins::USUAL_HEADERS;
use crate::schema_table::{Block, Kind};
use crate::secret::{Place, by_name, escaped, from_env, is_hidden, keeps_name, named, written, written_part};
use crate::sections::{local, request::last};
use crate::tree::{Data, Node, Part, joined};
use crate::yaml;
use llmscen_core::redact::is_distinct;
use llmscen_core::url_secrets::{hidden, is_secret_name, is_url, is_veiled};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};
use std::ops::Range;

/// Writes a tree; counts the secrets that had no name of their own.
struct Writer<'r> {
    review: &'r mut Review,
    unnamed: usize,
    /// Models may be files.
    local: bool,
    /// Secrets that may stand in a command.
    known: Vec<String>,
}

/// Whether the value of a header is a secret, whatever the header is called.
fn is_secret_header(name: &str, value: &Node) -> bool {
    !USUAL_HEADERS.contains(&name.to_lowercase().as_str()) && value.text().is_some_and(|text| is_distinct(&text))
}

/// The resolved plan of a scenario that is sound.
pub(crate) fn resolve(root: &Node, table: &'static Block, review: &mut Review) -> String {
    let mut writer = Writer { review, unnamed: 0, local: local::meant(root), known: command::known(root) };
    let value = Value::Object(writer.block(root, table));
    yaml::write(&value)
}

/// The first 16 hex digits of a text's SHA-256.
pub(crate) fn digest(text: &str) -> String {
    let hash = Sha256::digest(text.as_bytes());
    hash.iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

impl Writer<'_> {
    fn block(&mut self, node: &Node, table: &'static Block) -> Map<String, Value> {
        let mut mapping = Map::new();
        for field in table.fields.iter().filter(|field| !["extends", "vars"].contains(&field.name)) {
            if let Some(entry) = node.entry_at(field.name) {
                let value = self.value(&entry.value, &field.kind, field.name);
                mapping.insert(field.name.to_owned(), value);
            }
        }
        mapping
    }

    /// Keys in place of another block's: a `null` takes one away.
    fn over(&mut self, node: &Node, table: &'static Block) -> Map<String, Value> {
        let mut mapping = self.block(node, table);
        let nothing = node.entries().iter().filter(|entry| entry.value.is_null());
        mapping.extend(nothing.map(|entry| (entry.key.clone(), Value::Null)));
        mapping
    }

    fn value(&mut self, node: &Node, kind: &'static Kind, name: &str) -> Value {
        match kind {
            Kind::Text if name == "url" => self.address(node),
            Kind::Text | Kind::File | Kind::Hub | Kind::Leaf(_)
                if name != "text" && node.text().is_some_and(|text| is_url(&text)) =>
            {
                self.address(node)
            }
            Kind::Block(table) => Value::Object(self.block(node, table)),
            Kind::Over(table) => Value::Object(self.over(node, table)),
            Kind::List(kind) => Value::Array(node.items().iter().map(|item| self.value(item, kind, name)).collect()),
            Kind::Map(kind) => self.map(node, kind, name),
            Kind::Matrix => self.matrix(node),
            Kind::File => self.file(node),
            Kind::Hub => self.hub(node),
            Kind::Secret => self.secret(node, name),
            Kind::Leaf(leaf) if command::holds(leaf) => self.words(node, name),
            Kind::Leaf(_) if name == "model" && self.local => self.model(node),
            Kind::Text if name == "system" => self.by_reference(node),
            Kind::Text if name == "text" => self.prompt(node),
            Kind::Text => self.text(node),
            Kind::Json | Kind::Template => self.free(node, Place::Body),
            _ => self.free(node, Place::Text),
        }
    }

    /// Values of free keys: headers, bodies. What a key calls a secret is one.
    fn map(&mut self, node: &Node, kind: &'static Kind, name: &str) -> Value {
        let entry = |writer: &mut Self, key: &str, value: &Node| match kind {
            Kind::Secret if !(is_secret_name(key) || from_env(value) || name == "headers" && is_secret_header(key, value)) => {
                writer.text(value)
            }
            Kind::Json if is_hidden(key, value) => writer.secret(value, key),
            kind => writer.value(value, kind, key),
        };
        let pairs = node.entries().iter().map(|own| (own.key.clone(), entry(self, &own.key, &own.value)));
        Value::Object(pairs.collect())
    }

    fn matrix(&mut self, node: &Node) -> Value {
        let pairs = node.entries().iter().map(|own| {
            let value = match (own.key.as_str(), &own.value.data) {
                ("zip", Data::Map(_)) => self.matrix(&own.value),
                ("zip" | "include" | "exclude", Data::List(rows)) => {
                    Value::Array(rows.iter().map(|row| self.matrix(row)).collect())
                }
                (path, Data::List(items)) => Value::Array(items.iter().map(|item| self.swept(item, path)).collect()),
                (path, _) => self.swept(&own.value, path),
            };
            (own.key.clone(), value)
        });
        Value::Object(pairs.collect())
    }

    fn swept(&mut self, node: &Node, path: &str) -> Value {
        match crate::sections::scenario::SCENARIO.kind_at(path) {
            _ if is_hidden(last(path), node) => self.secret(node, last(path)),
            Some(Kind::Template) => self.file(node),
            Some(kind) => self.value(node, kind, last(path)),
            None => self.free(node, Place::Text),
        }
    }

    fn free(&mut self, node: &Node, place: Place) -> Value {
        match &node.data {
            Data::Null => Value::Null,
            Data::Bool(value) => Value::from(*value),
            Data::Int(value) if !keeps_name(node, place) => Value::from(*value),
            Data::Float(value) if !keeps_name(node, place) => Value::from(*value),
            Data::List(items) => Value::Array(items.iter().map(|item| self.free(item, place)).collect()),
            Data::Map(entries) => {
                let pairs = entries.iter().map(|own| {
                    let value = if is_hidden(&own.key, &own.value) {
                        self.secret(&own.value, &own.key)
                    } else {
                        self.free(&own.value, place)
                    };
                    (own.key.clone(), value)
                });
                Value::Object(pairs.collect())
            }
            _ => Value::from(written(node, place)),
        }
    }

    fn text(&mut self, node: &Node) -> Value {
        Value::from(written(node, Place::Text))
    }

    fn file(&mut self, node: &Node) -> Value {
        let found = node.text().and_then(|named| self.review.sources.find(node.at.file, &named));
        found.map_or_else(|| self.text(node), |path| Value::from(escaped(&path.display().to_string(), Place::Text)))
    }

    fn model(&mut self, node: &Node) -> Value {
        let found = node.text().and_then(|named| local::found(node.at.file, &named, self.review));
        found.map_or_else(|| self.free(node, Place::Text), |path| Value::from(escaped(&path, Place::Text)))
    }

    fn hub(&mut self, node: &Node) -> Value {
        let found = node.text().and_then(|named| self.review.sources.find_or_hub(node.at.file, &named));
        found.map_or_else(|| self.text(node), |name| Value::from(escaped(&name, Place::Text)))
    }

    fn prompt(&mut self, node: &Node) -> Value {
        let found = node.text().and_then(|text| self.review.sources.find(node.at.file, text.strip_prefix('@')?));
        found.map_or_else(|| self.by_reference(node), |path| Value::from(escaped(&format!("@{}", path.display()), Place::Text)))
    }

    /// A text that is sent to the server: distinct values of variables are written by name, whatever those are called.
    fn by_reference(&mut self, node: &Node) -> Value {
        let Some(parts) = &node.parts else { return self.text(node) };
        let one = |part: &Part| match part {
            Part::Env { value, .. } if is_veiled(value) => by_name(part),
            part => written_part(part, Place::Text),
        };
        Value::from(parts.iter().map(one).collect::<String>())
    }

    /// A secret by its variable's name; one that stands in the file itself gets a name, for the plan must not repeat it.
    fn secret(&mut self, node: &Node, name: &str) -> Value {
        if let Some(text) = node.parts.as_deref().and_then(named) {
            return Value::from(text);
        }
        let variable = self.name(node, name);
        Value::from(variable)
    }

    fn name(&mut self, node: &Node, name: &str) -> String {
        self.unnamed += 1;
        let variable = format!("LLMSCEN_SECRET_{}", self.unnamed);
        let what = match name == "url" || is_secret_name(name) {
            true => format!("`{name}` holds a secret in plain text"),
            false => format!("the value of `{name}` may be a secret and is not stored"),
        };
        self.review.warn(node.at, format!("{what}; the stored plan calls it ${{{variable}}}"));
        format!("${{{variable}}}")
    }

    /// A URL with the password before `@`, and parameters such as `key=`, hidden.
    fn address(&mut self, node: &Node) -> Value {
        let Some(text) = node.text() else { return self.free(node, Place::Text) };
        let hidden = hidden(&text);
        let whole = [Part::Literal(text.to_string())];
        let mut shown = String::new();
        let mut start = 0;
        for part in node.parts.as_deref().unwrap_or(&whole) {
            let length = joined(std::slice::from_ref(part)).len();
            let own = start..start + length;
            start += length;
            let touches = hidden.iter().any(|range| range.start < own.end && own.start < range.end);
            shown += &match part {
                Part::Env { .. } if touches => by_name(part),
                Part::Literal(text) if touches => self.veiled(node, (text, own.start), &hidden),
                part => written_part(part, Place::Text),
            };
        }
        Value::from(shown)
    }

    /// A stretch of a URL that begins at byte `start` of it, with a name in place of what must be hidden.
    fn veiled(&mut self, node: &Node, (text, start): (&str, usize), hidden: &[Range<usize>]) -> String {
        let mut shown = String::new();
        let mut done = 0;
        for range in hidden.iter().filter(|range| range.start < start + text.len() && start < range.end) {
            let (from, to) = (range.start.saturating_sub(start), (range.end - start).min(text.len()));
            shown += &escaped(&text[done..from], Place::Text);
            shown += &self.name(node, "url");
            done = to;
        }
        shown + &escaped(&text[done..], Place::Text)
    }
}

#[cfg(test)]
mod tests {
    use crate::{Input, Loaded, load, reload};
    use std::collections::BTreeMap;
    use std::path::Path;

    fn read(target: &str, env: &[(&str, &str)]) -> Loaded {
        let env = env.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        load(&Input { path: Path::new("t.yaml"), text: Some(text(target)), env: &env, set: &[] }).unwrap()
    }

    fn text(target: &str) -> String {
        format!(
            "version: 1\nname: t\nvars: {{key: \"${{API_KEY}}\"}}\ntarget: {target}\ndataset: openqa\nload: {{concurrency: 1, requests: 1}}\n"
        )
    }

    #[test]
    fn secrets_are_written_by_name() {
        let target = "{url: \"http://u:${PW}@h/v1/chat/completions?api-key=${Q}&v=1\", model: a, api_key: \"{{ vars.key }}\", headers: {Authorization: \"Bearer ${TOK}\", X-Team: \"${TEAM}\", X-Plain: infra}}";
        let env = [("API_KEY", "sk-1"), ("PW", "p4ss"), ("Q", "q5"), ("TOK", "t0k"), ("TEAM", "blue")];
        let loaded = read(target, &env);
        for secret in ["sk-1", "p4ss", "q5", "t0k", "blue"] {
            assert!(!loaded.plan.resolved.contains(secret), "{secret} in {}", loaded.plan.resolved);
        }
        for written in [
            "http://u:${PW}@h/v1/",
            "api_key: ${API_KEY}",
            "Authorization: Bearer ${TOK}",
            "X-Team: ${TEAM}",
            "X-Plain: infra",
            "api-key=${Q}&v=1",
        ] {
            assert!(loaded.plan.resolved.contains(written), "{written} not in {}", loaded.plan.resolved);
        }
        assert!(loaded.warnings.is_empty(), "{:?}", loaded.warnings);
        let whole = read("{url: \"${LLM}\", model: a}", &[("API_KEY", ""), ("LLM", "http://t0k@h/v1/x")]);
        assert!(whole.plan.resolved.contains("url: ${LLM}"), "{}", whole.plan.resolved);
    }

    #[test]
    fn a_secret_in_plain_text_gets_a_name_and_a_warning() {
        let loaded = read(
            "{url: \"http://u:p4ss@h/v1/chat/completions\", model: a, api_key: sk-1, headers: {X-Api-Key: k3y}}",
            &[("API_KEY", "")],
        );
        let resolved = &loaded.plan.resolved;
        assert!(!["sk-1", "k3y", "p4ss"].iter().any(|secret| resolved.contains(secret)), "{resolved}");
        assert!(resolved.contains("url: http://u:${LLMSCEN_SECRET_1}@h/v1/chat/completions"), "{resolved}");
        assert!(
            resolved.contains("api_key: ${LLMSCEN_SECRET_2}") && resolved.contains("X-Api-Key: ${LLMSCEN_SECRET_3}"),
            "{resolved}"
        );
        let warnings: Vec<_> = loaded.warnings.iter().map(|warning| (warning.line, warning.message.as_str())).collect();
        assert_eq!(warnings[1], (4, "`api_key` holds a secret in plain text; the stored plan calls it ${LLMSCEN_SECRET_2}"));
        let env: BTreeMap<String, String> = [("1", "p4ss"), ("2", "sk-1"), ("3", "k3y")]
            .iter()
            .map(|(n, v)| (format!("LLMSCEN_SECRET_{n}"), v.to_string()))
            .collect();
        let again = load(&Input { path: Path::new("p.yaml"), text: Some(resolved.clone()), env: &env, set: &[] }).unwrap();
        assert_eq!(again.plan, loaded.plan);
    }

    #[test]
    fn a_stored_plan_is_read_without_its_secrets_and_files() {
        let folder = tempfile::tempdir().unwrap();
        let ca = folder.path().join("ca.pem");
        std::fs::write(&ca, "x").unwrap();
        let target =
            format!("{{url: \"https://h/v1/chat/completions\", model: a, api_key: \"${{K}}\", tls: {{ca: {}}}}}", ca.display());
        let plan = read(&target, &[("API_KEY", ""), ("K", "sk-1")]).plan;
        drop(folder);
        let input = Input { path: Path::new("p.yaml"), text: Some(plan.resolved.clone()), env: &BTreeMap::new(), set: &[] };
        assert_eq!(load(&input).unwrap_err().len(), 2);
        let again = reload(&input).unwrap().plan;
        assert_eq!((again.id, again.resolved), (plan.id, plan.resolved));
    }

    #[test]
    fn keys_that_only_sound_like_secrets_are_written_as_they_are() {
        let text = text("{url: simulator}") + "request: {max_tokens: 5, extra: {max_completion_tokens: 7, api_key: abc}}\n";
        let loaded = load(&Input { path: Path::new("t.yaml"), text: Some(text), env: &BTreeMap::new(), set: &[] }).unwrap();
        assert!(
            loaded.plan.resolved.contains("max_completion_tokens: 7") && !loaded.plan.resolved.contains("abc"),
            "{}",
            loaded.plan.resolved
        );
    }
    #[test]
    fn a_header_that_may_be_a_secret_is_said_to_be_left_out() {
        let loaded = read("{url: simulator, headers: {X-Team: team-blue, X-Key: key-of-mine}}", &[("API_KEY", "")]);
        let said: Vec<&str> = loaded.warnings.iter().map(|warning| warning.message.as_str()).collect();
        assert_eq!(
            said,
            [
                "the value of `X-Team` may be a secret and is not stored; the stored plan calls it ${LLMSCEN_SECRET_1}",
                "`X-Key` holds a secret in plain text; the stored plan calls it ${LLMSCEN_SECRET_2}",
            ]
        );
    }
}
