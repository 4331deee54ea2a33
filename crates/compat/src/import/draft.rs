//! The scenario under construction, the result for each flag, and helpers for names, URLs and lengths.

use crate::import::flags::{
    CarriedKind, CommandLine, Flag, GivenFlag, ImportError, Variable, is_secret, mask_secrets,
    mask_urls, variable,
};
use llmscen_core::escape::escape_controls;
use llmscen_scenario::document::{Span, key_position};
use serde_json::{Map, Value, json};

/// The note of a flag that had no effect in this command line.
pub(super) const NO_EFFECT: &str = "no effect with these other flags";

/// The result of a conversion.
#[derive(Clone, Debug, PartialEq)]
pub struct Imported {
    /// The scenario; comments at its top list the flags and what became of them.
    pub yaml: String,
    /// The flags in the order of the command line.
    pub accounts: Vec<Account>,
}

/// The result for one flag.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    /// The flag with its values, without secrets.
    pub flag: String,
    /// The keys of the scenario that hold its value; empty where none do.
    pub keys: Vec<String>,
    /// Why it has no counterpart, or what differs.
    pub note: Option<String>,
    /// The scenario lacks a part of the load that it describes: cases, phases, lengths, or the end.
    pub loses_load: bool,
}

impl Account {
    /// A part of the load that the scenario lacks, and why.
    pub(super) fn lost(flag: String, why: String) -> Account {
        Account {
            flag,
            keys: Vec::new(),
            note: Some(why),
            loses_load: true,
        }
    }
}

/// A scenario under construction.
pub(super) struct Draft {
    line: CommandLine,
    tree: Map<String, Value>,
    /// Keys that hold a default of the tool.
    filled: Vec<&'static str>,
    /// The nodes of a plan file that this draft is made of.
    visited: Vec<Span>,
}

impl Draft {
    pub fn new(line: CommandLine) -> Draft {
        Draft {
            line,
            tree: Map::new(),
            filled: Vec::new(),
            visited: Vec::new(),
        }
    }

    /// Records nodes of a plan file that this draft is made of.
    pub fn visit(&mut self, nodes: impl IntoIterator<Item = Span>) {
        self.visited.extend(nodes);
    }

    /// These nodes.
    pub fn visited(&self) -> impl Iterator<Item = Span> {
        self.visited.iter().copied()
    }

    fn last(&self, flag: &str) -> Option<&GivenFlag> {
        self.line
            .given
            .iter()
            .rev()
            .find(|given| given.flag.is_among(flag))
    }

    pub fn has(&self, flag: &str) -> bool {
        self.last(flag).is_some()
    }

    /// The value of a variable set in front of the command.
    pub fn variable(&self, name: &str) -> Option<&str> {
        self.line
            .variables
            .iter()
            .rev()
            .find(|variable| variable.name == name)
            .map(|variable| variable.value.as_str())
    }

    /// The last value of a flag.
    pub fn text(&self, flag: &str) -> Option<String> {
        self.last(flag)
            .and_then(|given| given.values.last())
            .cloned()
    }

    /// All values of a flag, from all its occurrences.
    pub fn texts(&self, flag: &str) -> Vec<String> {
        let occurrences = self
            .line
            .given
            .iter()
            .filter(|given| given.flag.is_among(flag));
        occurrences
            .flat_map(|given| given.values.iter().cloned())
            .collect()
    }

    /// Whether a switch is on: given without a value, or with anything but `false`.
    pub fn is_on(&self, flag: &str) -> bool {
        self.last(flag)
            .is_some_and(|given| given.values.last().is_none_or(|value| value != "false"))
    }

    /// The last value of a flag as a number.
    pub fn number(&self, flag: &str) -> Result<Option<f64>, ImportError> {
        Ok(self.numbers(flag)?.last().copied())
    }

    /// The last value of a flag as a rate; None for `inf`.
    pub fn finite(&self, flag: &str) -> Result<Option<f64>, ImportError> {
        match self.text(flag).as_deref() {
            Some("inf") => Ok(None),
            _ => self.number(flag),
        }
    }

    /// All values of a flag as numbers, which commas may separate.
    pub fn numbers(&self, flag: &str) -> Result<Vec<f64>, ImportError> {
        let texts = self.texts(flag);
        let words = texts
            .iter()
            .flat_map(|text| text.split(','))
            .map(str::trim)
            .filter(|word| !word.is_empty());
        words
            .map(|word| {
                word.parse()
                    .ok()
                    .filter(|value: &f64| value.is_finite())
                    .ok_or_else(|| self.invalid(flag, word, "a number"))
            })
            .collect()
    }

    pub fn json(&self, flag: &str) -> Result<Option<Value>, ImportError> {
        let parse = |text: String| {
            serde_json::from_str(&text).map_err(|_| self.invalid(flag, &text, "JSON"))
        };
        self.text(flag).map(parse).transpose()
    }

    /// The error of an invalid value.
    pub fn invalid(&self, flag: &str, value: &str, expected: &'static str) -> ImportError {
        let written = self.last(flag).map_or(flag, |given| given.written.as_str());
        ImportError::Value {
            flag: written.to_owned(),
            value: value.to_owned(),
            expected,
        }
    }

    /// Sets a key; `/` separates the keys of a path. Variables and templates in texts are escaped.
    pub fn set(&mut self, path: &str, value: impl Into<Value>) {
        set(&mut self.tree, path, escaped(value.into()));
    }

    /// Sets a key to a text with a variable, which is not escaped.
    pub fn set_variable(&mut self, path: &str, text: &str) {
        set(&mut self.tree, path, Value::from(text));
    }

    /// Sets a key to the tool's default, which the head lists, unless the flag was given.
    pub fn set_default(&mut self, flag: &str, path: &'static str, value: impl Into<Value>) {
        if !self.has(flag) {
            self.set(path, value);
            self.filled.push(path);
        }
    }

    /// Sets a key to a value with variables, which are not escaped.
    pub fn set_unescaped(&mut self, path: &str, value: Value) {
        set(&mut self.tree, path, value);
    }

    pub fn get(&self, path: &str) -> Option<&Value> {
        let mut keys = path.split('/');
        let first = self.tree.get(keys.next()?)?;
        keys.try_fold(first, |value, key| value.get(key))
    }

    /// Removes a section.
    pub fn take(&mut self, section: &str) -> Option<Value> {
        self.tree.shift_remove(section)
    }

    /// Removes a key of a section that a flag set.
    pub fn withdraw(&mut self, flag: &str, section: &str, key: &str) {
        if let Some(Value::Object(fields)) = self.tree.get_mut(section) {
            fields.shift_remove(key);
        }
        let path = format!("{section}.{key}");
        let given = self.line.given.iter_mut();
        given
            .filter(|given| given.flag.is_among(flag))
            .for_each(|given| given.keys.retain(|key| *key != path));
    }

    /// Texts to embed, which `dataset.shape` gives their lengths.
    pub fn embedded_texts(&mut self, flag: &str) {
        self.carry_value(flag, "dataset/kind", "embeddings");
        self.set("dataset/path", "builtin");
        self.set("dataset/shape/mode", "exact");
        self.note(flag, "texts of the dataset instead of random tokens");
    }

    /// Prompts that share a prefix: one prefix for all, or one per group.
    pub fn shared_prefix(&mut self, groups: f64, prefix: f64, tokens: Value) {
        if groups > 1.0 {
            self.set("dataset/kind", "prefix");
            self.set("dataset/groups", number(groups));
            self.set("dataset/prefix_tokens", number(prefix));
        } else {
            self.set("dataset/shared_prefix", number(prefix));
            self.set("dataset/tokens", tokens);
        }
    }

    /// Adds an objective.
    pub fn add_limit(&mut self, expr: String) {
        self.objective(Value::from(expr));
    }

    /// Adds an objective that is judged by its point estimate, as the tool does.
    pub fn add_point_limit(&mut self, expr: String) {
        self.objective(json!({ "expr": expr, "confidence": "point" }));
    }

    fn objective(&mut self, item: Value) {
        if let Value::Array(list) = self.tree.entry("slo").or_insert_with(|| json!([])) {
            list.push(item);
        }
    }

    /// Records that these keys hold what the flags (separated by spaces) set; a `/` in a key is shown as a dot.
    pub fn account(&mut self, flags: &str, keys: &[&str]) {
        for given in self
            .line
            .given
            .iter_mut()
            .filter(|given| given.flag.is_among(flags))
        {
            let new = keys
                .iter()
                .map(|key| key.replace('/', "."))
                .filter(|key| !given.keys.contains(key))
                .collect::<Vec<_>>();
            given.keys.extend(new);
        }
    }

    /// Records a difference, or why the flags (separated by spaces) have no counterpart.
    pub fn note(&mut self, flags: &str, note: impl Into<String>) {
        let note = note.into();
        for given in self
            .line
            .given
            .iter_mut()
            .filter(|given| given.flag.is_among(flags))
        {
            given.note = Some(match given.note.take() {
                Some(earlier) if earlier != note => format!("{earlier}; {note}"),
                _ => note.clone(),
            });
        }
    }

    /// Records why the scenario lacks a part of the load that the flags (separated by spaces) describe.
    pub fn lose(&mut self, flags: &str, note: impl Into<String>) {
        self.note(flags, note);
        for given in self
            .line
            .given
            .iter_mut()
            .filter(|given| given.flag.is_among(flags))
        {
            given.loses_load = true;
        }
    }

    /// Sets the keys of the flags whose values become those of keys.
    pub fn carry_flags(&mut self) -> Result<(), ImportError> {
        // The last one of two flags of one key wins, whatever their order on the command line.
        let mut flags: Vec<&'static Flag> =
            self.line.given.iter().map(|given| given.flag).collect();
        flags.sort_by_key(|flag| flag.position);
        flags.dedup_by_key(|flag| flag.position);
        for flag in flags {
            let (Some(carried), Some(name)) = (&flag.carried, flag.names().next()) else {
                continue;
            };
            let path = &carried.key.replace('.', "/");
            match &carried.kind {
                CarriedKind::Text => self.carry(name, path),
                CarriedKind::Number => self.carry_number(name, path)?,
                CarriedKind::Seconds => self.carry_seconds(name, path)?,
                CarriedKind::List => self.carry_value(name, path, self.texts(name)),
                CarriedKind::Switch(value) => self.carry_value(name, path, value.clone()),
                CarriedKind::Secret => self.api_key(name),
                CarriedKind::Headers => self.headers(name)?,
            }
        }
        Ok(())
    }

    /// Sets a key to a value that comes from a flag, and records it.
    pub fn carry_value(&mut self, flag: &str, path: &str, value: impl Into<Value>) {
        self.set(path, value);
        self.account(flag, &[path]);
    }

    /// Sets a key to a value that comes from a flag, or to the tool's default.
    pub fn carry_or_default(&mut self, flag: &str, path: &'static str, value: impl Into<Value>) {
        if !self.has(flag) {
            self.filled.push(path);
        }
        self.carry_value(flag, path, value);
    }

    /// Limits the requests in flight of an open loop to the number of a flag, where that was given.
    pub fn carry_cap(&mut self, flag: &str) -> Result<(), ImportError> {
        match self.numbers(flag)?.as_slice() {
            [] => {}
            [most] => {
                let most = json!({ "of": number(*most), "then": "hold" });
                self.carry_value(flag, "load/max_in_flight", most);
            }
            _ => self.lose(
                flag,
                "several limits beside a rate: one scenario for each `load.max_in_flight`",
            ),
        }
        Ok(())
    }

    /// Sets a key to `value` where a switch was given.
    pub fn carry_switch(&mut self, flag: &str, path: &str, value: impl Into<Value>) {
        if self.has(flag) {
            self.carry_value(flag, path, value);
        }
    }

    /// Sets a key to the text of a flag, where that was given.
    pub fn carry(&mut self, flag: &str, path: &str) {
        if let Some(text) = self.text(flag) {
            self.carry_value(flag, path, text);
        }
    }

    /// Sets a key to the number of a flag, where that was given.
    pub fn carry_number(&mut self, flag: &str, path: &str) -> Result<(), ImportError> {
        if let Some(value) = self.number(flag)? {
            self.carry_value(flag, path, number(value));
        }
        Ok(())
    }

    /// [`Draft::carry_number`] for pairs of a flag and a key.
    pub fn carry_numbers(&mut self, pairs: &[(&str, &str)]) -> Result<(), ImportError> {
        pairs
            .iter()
            .try_for_each(|(flag, path)| self.carry_number(flag, path))
    }

    /// Sets a key to the number of a flag, or to the tool's default.
    pub fn carry_number_or(
        &mut self,
        flag: &str,
        path: &'static str,
        default: f64,
    ) -> Result<(), ImportError> {
        self.set_default(flag, path, number(default));
        self.carry_number(flag, path)
    }

    /// Sets a key to the seconds of a flag, where that was given.
    pub fn carry_seconds(&mut self, flag: &str, path: &str) -> Result<(), ImportError> {
        if let Some(value) = self.number(flag)? {
            self.carry_value(flag, path, seconds(value));
        }
        Ok(())
    }

    /// Sets the target's key to a variable; the value is not written.
    pub fn api_key(&mut self, flag: &str) {
        if self.has(flag) {
            self.set_variable("target/api_key", "${OPENAI_API_KEY}");
            self.account(flag, &["target/api_key"]);
            self.note(flag, "the value is not stored: set OPENAI_API_KEY");
        }
    }

    /// Translates headers `NAME=VALUE` or `NAME:VALUE`.
    pub fn headers(&mut self, flag: &str) -> Result<(), ImportError> {
        for text in self.texts(flag) {
            let (name, value) = text
                .split_once([':', '='])
                .ok_or_else(|| self.invalid(flag, &text, "NAME=VALUE"))?;
            self.header(flag, name.trim(), value.trim());
        }
        Ok(())
    }

    /// Sets a header; the value of a secret one is not stored.
    pub fn header(&mut self, flag: &str, name: &str, value: &str) {
        let path = format!("target/headers/{name}");
        if is_secret(name) {
            let variable = variable(name);
            self.set_variable(&path, &format!("${{{variable}}}"));
            self.note(flag, format!("the value is not stored: set {variable}"));
        } else {
            self.set(&path, value);
        }
        self.account(flag, &[&path]);
    }

    /// Asks for replies as long as those in the rows of the dataset.
    pub fn recorded_output(&mut self) {
        self.set(
            "request/max_tokens",
            json!({ "from": "item.output_tokens" }),
        );
    }

    /// Merges the JSON object of a flag into `request.extra`.
    pub fn extra(&mut self, flag: &str) -> Result<(), ImportError> {
        let Some(value) = self.json(flag)? else {
            return Ok(());
        };
        let Value::Object(fields) = value else {
            return Err(self.invalid(flag, "", "a JSON object"));
        };
        self.merge_extra(fields);
        self.account(flag, &["request/extra"]);
        Ok(())
    }

    /// Merges fields into `request.extra`.
    pub fn merge_extra(&mut self, fields: Map<String, Value>) {
        let mut extra = match self.get("request/extra") {
            Some(Value::Object(fields)) => fields.clone(),
            _ => Map::new(),
        };
        extra.extend(fields.into_iter().map(|(key, value)| (key, escaped(value))));
        if !extra.is_empty() {
            set(&mut self.tree, "request/extra", Value::Object(extra));
        }
    }

    /// Sets one value, or an axis of the matrix for several.
    pub fn one_or_axis(&mut self, path: &str, values: Vec<Value>) {
        let axis = format!("matrix/{}", path.replace('/', "."));
        match <[Value; 1]>::try_from(values) {
            Ok([value]) => self.set(path, value),
            Err(values) if values.is_empty() => {}
            Err(mut values) => {
                values.dedup();
                // The matrix overrides this value in each case.
                self.set(path, values.first().cloned().unwrap_or_default());
                self.set(&axis, values);
            }
        }
    }

    pub fn accounts(&self) -> Vec<Account> {
        let account = |given: &GivenFlag| Account {
            flag: given.shown(),
            keys: given.keys.clone(),
            note: given
                .note
                .clone()
                .or_else(|| given.keys.is_empty().then(|| NO_EFFECT.to_owned())),
            loses_load: given.loses_load,
        };
        let assigned = |variable: &Variable| Account {
            flag: variable.shown(),
            keys: variable.keys.clone(),
            note: variable.note.clone(),
            loses_load: false,
        };
        self.line
            .variables
            .iter()
            .map(assigned)
            .chain(self.line.given.iter().map(account))
            .collect()
    }

    /// Translates variables in front of the command: the environment of a managed server, or the API key.
    fn place_variables(&mut self) {
        let managed = self.get("target/server").is_some();
        for at in 0..self.line.variables.len() {
            let Some(assigned) = self.line.variables.get(at).cloned() else {
                continue;
            };
            let value = if assigned.is_secret() {
                format!("${{{}}}", assigned.name)
            } else {
                assigned.value.replace("${", "$${")
            };
            let path = match assigned.name.as_str() {
                _ if managed => Some(format!("target/server/env/{}", assigned.name)),
                "OPENAI_API_KEY" => Some("target/api_key".to_owned()),
                _ => None,
            };
            if let Some(path) = &path {
                set(&mut self.tree, path, Value::from(value));
            }
            if let Some(assigned) = self.line.variables.get_mut(at) {
                assigned.note = match &path {
                    Some(_) if assigned.is_secret() => {
                        Some(format!("the value is not stored: set {}", assigned.name))
                    }
                    Some(_) => None,
                    None => Some("set it for llmscen if llmscen should use it".to_owned()),
                };
                assigned.keys = path
                    .map(|path| path.replace('/', "."))
                    .into_iter()
                    .collect();
            }
        }
    }

    /// The defaults of the tool in the scenario, as `key value`.
    fn defaults(&self) -> Vec<String> {
        let shown = |path: &&'static str| {
            let text = match self.get(path)? {
                Value::String(text) => text.clone(),
                other => other.to_string(),
            };
            Some(format!("{} {text}", path.replace('/', ".")))
        };
        self.filled.iter().filter_map(shown).collect()
    }

    /// Replaces secrets in the URL and in `request.extra` by variables.
    fn hide_secrets(&mut self) {
        for path in ["target/url", "target/metrics"] {
            if let Some(value) = self.get(path).cloned() {
                self.set_unescaped(path, mask_urls(value, "${TARGET_SECRET}"));
            }
        }
        if let Some(extra) = self.get("request/extra").cloned() {
            self.set_unescaped(
                "request/extra",
                mask_secrets(extra, &mut |key| format!("${{{}}}", variable(key))),
            );
        }
    }

    /// Sets what every scenario needs, and hides secrets.
    pub fn complete(mut self) -> Converted {
        self.set("version", 1);
        if self.get("target/model").is_none() {
            // The tools use the server's first model; a repeatable plan names it.
            self.set_variable("target/model", "${LLM_MODEL}");
        }
        self.hide_secrets();
        self.place_variables();
        Converted {
            accounts: self.accounts(),
            defaults: self.defaults(),
            tree: self.tree,
        }
    }
}

/// A translated scenario.
pub(super) struct Converted {
    pub tree: Map<String, Value>,
    pub accounts: Vec<Account>,
    /// The defaults of the tool in the scenario, as `key value`.
    pub defaults: Vec<String>,
}

/// The scenario with `head` as comments at its top, with its keys in the order of the reference.
pub(super) fn write(head: &str, tree: Map<String, Value>) -> Result<String, ImportError> {
    fn sorted(tree: Map<String, Value>, prefix: &str) -> Map<String, Value> {
        let path = |key: &str| format!("{prefix}{key}");
        let mut entries: Vec<(String, Value)> = tree.into_iter().collect();
        entries.sort_by_key(|(key, _)| key_position(&path(key)).unwrap_or(usize::MAX));
        let inner = |(key, value): (String, Value)| {
            let value = match value {
                Value::Object(fields) => Value::Object(sorted(fields, &format!("{}.", path(&key)))),
                other => other,
            };
            (key, value)
        };
        entries.into_iter().map(inner).collect()
    }
    let body = serde_yaml::to_string(&sorted(tree, ""))
        .map_err(|error| ImportError::Write(error.to_string()))?;
    Ok(format!("{head}{body}"))
}

pub(super) fn set(tree: &mut Map<String, Value>, path: &str, value: Value) {
    match path.split_once('/') {
        None => {
            tree.insert(path.to_owned(), value);
        }
        Some((key, rest)) => {
            let inner = tree.entry(key).or_insert_with(|| json!({}));
            if !inner.is_object() {
                *inner = json!({});
            }
            if let Value::Object(inner) = inner {
                set(inner, rest, value);
            }
        }
    }
}

/// Escapes `${…}` and `{{ … }}` in all texts of a value.
fn escaped(value: Value) -> Value {
    match value {
        Value::String(text) => Value::from(text.replace("${", "$${").replace("{{", "{{ '{{' }}")),
        Value::Array(items) => items.into_iter().map(escaped).collect(),
        Value::Object(fields) => Value::Object(
            fields
                .into_iter()
                .map(|(key, value)| (key, escaped(value)))
                .collect(),
        ),
        other => other,
    }
}

/// Converts a text to a scenario's name; `fallback` where no character of it is allowed.
pub(super) fn name(text: &str, fallback: &str) -> String {
    let kept: String = text
        .to_lowercase()
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c } else { '-' })
        .collect();
    let words: Vec<&str> = kept.split('-').filter(|word| !word.is_empty()).collect();
    if words.is_empty() {
        fallback.to_owned()
    } else {
        words.join("-")
    }
}

/// The path of a URL without query and final slash.
pub(super) fn path(url: &str) -> &str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let path = rest.find('/').map_or("", |at| &rest[at..]);
    path.split(['?', '#'])
        .next()
        .unwrap_or_default()
        .trim_end_matches('/')
}

/// Adds `http://` to a URL without a scheme.
pub(super) fn with_scheme(url: &str) -> String {
    if url.contains("://") {
        url.to_owned()
    } else {
        format!("http://{url}")
    }
}

/// Joins a base URL and an endpoint.
pub(super) fn join(base: &str, endpoint: &str) -> String {
    format!(
        "{}/{}",
        with_scheme(base).trim_end_matches('/'),
        endpoint.trim_start_matches('/')
    )
}

/// A length from `least` to `most`: a number where they are equal, else uniform.
pub(super) fn between(least: f64, most: f64) -> Value {
    if least >= most {
        number(most)
    } else {
        json!({ "uniform": [number(least), number(most)] })
    }
}

/// A normal distribution, or the mean without a standard deviation.
pub(super) fn about(mean: f64, sd: f64) -> Value {
    if sd > 0.0 {
        json!({ "normal": { "mean": number(mean), "sd": number(sd) } })
    } else {
        number(mean)
    }
}

/// The URL of requests: the protocol's path is added unless the URL ends with a known one.
pub(super) fn endpoint(url: &str, protocol_path: &str, known: &[&str]) -> String {
    let url = with_scheme(url);
    if known.iter().any(|end| path(&url).ends_with(end)) {
        url
    } else {
        join(&url, protocol_path)
    }
}

/// The protocol of a path of an OpenAI-compatible server.
pub(super) fn api_from_path(url: &str) -> &'static str {
    let path = path(url);
    match () {
        () if path.ends_with("/chat/completions") => "openai-chat",
        () if path.ends_with("/completions") => "openai-completions",
        () if path.ends_with("/responses") => "openai-responses",
        () if path.ends_with("/embeddings") => "openai-embeddings",
        () if path.ends_with("/rerank") || path.ends_with("/reranks") => "rerank",
        () if path.ends_with("/messages") => "anthropic",
        () => "openai-chat",
    }
}

/// A distribution within bounds; a number stays.
pub(super) fn bounded(mut length: Value, min: Option<f64>, max: Option<f64>) -> Value {
    if let Value::Object(fields) = &mut length {
        let bounds = [("min", min), ("max", max)];
        let given = bounds
            .into_iter()
            .filter_map(|(key, bound)| Some((key, bound?)));
        fields.extend(given.map(|(key, bound)| (key.to_owned(), number(bound))));
    }
    length
}

/// The length of two parts. Of two distributions, the sum has the family of the first, and the mean and the standard
/// deviation of the sum.
pub(super) fn sum(first: Value, second: &Value) -> Value {
    let add = |value: &mut Value, more: f64| {
        if let Some(own) = value.as_f64() {
            *value = number(own + more);
        }
    };
    let (mut sum, more) = match (first.as_f64(), second.as_f64()) {
        (Some(first), Some(second)) => return number(first + second),
        (Some(first), None) => (second.clone(), json!(first)),
        (None, _) => (first, second.clone()),
    };
    let ends = |value: &Value| {
        let ends = value.get("uniform").and_then(Value::as_array)?;
        Some((ends.first()?.as_f64()?, ends.get(1)?.as_f64()?))
    };
    let by = mean(&more).unwrap_or_default();
    let (low, high) = ends(&more).unwrap_or((by, by));
    if let Some(Value::Array(own)) = sum.get_mut("uniform") {
        for (end, more) in own.iter_mut().zip([low, high]) {
            add(end, more);
        }
    }
    for family in ["normal", "lognormal"] {
        let of_more = ["normal", "lognormal"]
            .iter()
            .find_map(|name| more.get(name)?.get("sd")?.as_f64());
        if let Some(own) = sum.get_mut(family) {
            add(&mut own["mean"], by);
            if let (Some(sd), Some(of_more)) = (own["sd"].as_f64(), of_more) {
                own["sd"] = number(sd.hypot(of_more).round());
            }
        }
    }
    for bound in ["min", "max"] {
        let of_more = more.as_f64().or_else(|| more.get(bound)?.as_f64());
        match (sum.get_mut(bound), of_more) {
            (Some(own), Some(of_more)) => add(own, of_more),
            (Some(_), None) => {
                if let Value::Object(fields) = &mut sum {
                    fields.shift_remove(bound);
                }
            }
            (None, _) => {}
        }
    }
    sum
}

/// The mean of a length, where it is plain.
fn mean(length: &Value) -> Option<f64> {
    let drawn = |family: &str| length.get(family)?.get("mean")?.as_f64();
    let ends = length.get("uniform").and_then(Value::as_array);
    let ends: Option<Vec<f64>> = ends.map(|ends| ends.iter().filter_map(Value::as_f64).collect());
    let middle = ends
        .filter(|ends| ends.len() == 2)
        .map(|ends| (ends[0] + ends[1]) / 2.0);
    length
        .as_f64()
        .or(middle)
        .or(drawn("normal"))
        .or(drawn("lognormal"))
}

/// Writes whole numbers without a fraction: `64`, not `64.0`.
pub(super) fn number(value: f64) -> Value {
    if value.fract() == 0.0 && value.abs() < 9e15 {
        Value::from(value as i64)
    } else {
        Value::from(value)
    }
}

/// A duration in scenario notation.
pub(super) fn seconds(value: f64) -> Value {
    let text = if value.fract() == 0.0 {
        format!("{value:.0}s")
    } else {
        format!("{}ms", value * 1e3)
    };
    Value::from(text)
}

/// A distribution of seconds, as one of durations.
pub(super) fn in_seconds(value: Value) -> Value {
    match value {
        Value::Number(number) => seconds(number.as_f64().unwrap_or_default()),
        Value::Array(items) => items.into_iter().map(in_seconds).collect(),
        Value::Object(fields) => {
            let fields = fields.into_iter();
            Value::Object(
                fields
                    .map(|(key, value)| (key, in_seconds(value)))
                    .collect(),
            )
        }
        other => other,
    }
}

/// A rate in scenario notation.
pub(super) fn per_second(value: f64) -> Value {
    Value::from(format!("{value}/s"))
}

/// The comments at the top of a scenario.
pub(super) struct Head<'a> {
    /// What was converted: `a command line of vllm`.
    pub source: &'a str,
    /// What the accounts are about: `flag` or `field`.
    pub unit: &'a str,
    /// The tool with its release, for its defaults.
    pub release: &'a str,
    pub accounts: &'a [Account],
    pub defaults: &'a [String],
}

/// Adds a comment. A line break in it would end the comment, and a terminal acts on other control characters.
fn push_line(head: &mut String, text: &str) {
    let line = escape_controls(text, false).replace('\n', "\\n");
    head.extend(["#   ", &line, "\n"]);
}

impl Head<'_> {
    /// The flags or fields, what became of them, and the tool's defaults.
    pub fn text(&self) -> String {
        let mut head = format!(
            "# Converted from {}. Result per {}:\n",
            self.source, self.unit
        );
        let shown = |account: &Account| escape_controls(&account.flag, false).into_owned();
        let width = self
            .accounts
            .iter()
            .map(|account| shown(account).chars().count())
            .max()
            .unwrap_or(0)
            .min(44);
        for account in self.accounts {
            let Account { keys, note, .. } = account;
            let flag = shown(account);
            let result = match (keys.is_empty(), note) {
                (false, None) => keys.join(", "),
                (false, Some(note)) => format!("{} ({note})", keys.join(", ")),
                (true, note) => {
                    format!("not carried over: {}", note.as_deref().unwrap_or_default())
                }
            };
            push_line(&mut head, &format!("{flag:width$}  {result}"));
        }
        if !self.defaults.is_empty() {
            head.push_str(&format!("# Defaults of {}:\n", self.release));
            for default in self.defaults {
                push_line(&mut head, default);
            }
        }
        head
    }
}
