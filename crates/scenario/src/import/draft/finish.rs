//! The finished scenario: secrets as variables, the account of the flags, the text.

use super::{Draft, UNTOLD, set};
use crate::import::line::{Given, Variable, hidden_in_url, masked, variable};
use crate::import::text::head;
use crate::import::{Account, ImportError, Imported, Tool};
use serde_json::{Map, Value};

/// Sections in the order in which a reader wants them.
const ORDER: [&str; 14] = [
    "version",
    "name",
    "description",
    "seed",
    "target",
    "request",
    "dataset",
    "load",
    "matrix",
    "rounds",
    "pause",
    "search",
    "slo",
    "report",
];

impl Draft {
    /// What became of each flag.
    pub fn accounts(&self) -> Vec<Account> {
        let account = |given: &Given| Account {
            flag: given.shown(),
            keys: given.keys.clone(),
            note: given.note.clone().or_else(|| given.keys.is_empty().then(|| UNTOLD.to_owned())),
        };
        let assigned = |own: &Variable| Account { flag: own.shown(), keys: own.keys.clone(), note: own.note.clone() };
        self.line.variables.iter().map(assigned).chain(self.line.given.iter().map(account)).collect()
    }

    /// The variables in front of the command: those of a server that the run starts, the key of one that runs already.
    fn place_variables(&mut self) {
        let managed = self.get("target/server").is_some();
        for at in 0..self.line.variables.len() {
            let Some(own) = self.line.variables.get(at).cloned() else { continue };
            let held = if own.is_secret() { format!("${{{}}}", own.name) } else { own.value.replace("${", "$${") };
            let path = match own.name.as_str() {
                _ if managed => Some(format!("target/server/env/{}", own.name)),
                "OPENAI_API_KEY" => Some("target/api_key".to_owned()),
                _ => None,
            };
            if let Some(path) = &path {
                set(&mut self.tree, path, Value::from(held));
            }
            if let Some(own) = self.line.variables.get_mut(at) {
                own.note = match &path {
                    Some(_) if own.is_secret() => Some(format!("the value is not written down: set {}", own.name)),
                    Some(_) => None,
                    None => Some("set it for llmscen, if llmscen reads it".to_owned()),
                };
                own.keys = path.map(|path| path.replace('/', ".")).into_iter().collect();
            }
        }
    }

    /// The defaults of the tool that the scenario has, as `key value`.
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

    /// Variables in place of what a URL or the body's own fields hold of secrets.
    fn hide_secrets(&mut self) {
        if let Some(url) = self.get("target/url").and_then(Value::as_str).map(|url| hidden_in_url(url, "${TARGET_SECRET}")) {
            self.refer("target/url", &url);
        }
        if let Some(extra) = self.get("request/extra").cloned() {
            self.refer_value("request/extra", masked(extra, &mut |key| format!("${{{}}}", variable(key))));
        }
    }

    /// The scenario as text, the account at its head.
    pub fn finish(mut self, tool: Tool) -> Result<Imported, ImportError> {
        self.hide_secrets();
        self.place_variables();
        let accounts = self.accounts();
        let head = head(tool, &accounts, &self.defaults());
        let mut ordered = Map::new();
        for key in ORDER {
            if let Some(value) = self.tree.shift_remove(key) {
                ordered.insert(key.to_owned(), value);
            }
        }
        ordered.append(&mut self.tree);
        let body = serde_yaml::to_string(&ordered).map_err(|error| ImportError::Write(error.to_string()))?;
        Ok(Imported { yaml: format!("{head}{body}"), accounts })
    }
}
