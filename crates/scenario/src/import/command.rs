//! A tool's commands, which of them a command line starts, and its flags with their values.

use crate::import::draft::Draft;
use crate::import::{ImportError, Tool};
use crate::suggest::near;
use llmscen_core::url_secrets::hidden;
use serde_json::Value;

/// One command of a tool.
pub(super) struct Command {
    /// Spellings of its name after the tool's own, longer ones first. A script may have a folder in front.
    pub names: &'static [&'static [&'static str]],
    /// Values without a flag, in their order.
    pub positional: &'static [&'static str],
    /// Its flags.
    pub flags: &'static [&'static [FlagGroup]],
    /// Puts the scenario together.
    pub translate: fn(&mut Draft) -> Result<(), ImportError>,
}

impl Command {
    /// Its flags.
    pub fn flags(&self) -> impl Iterator<Item = Flag> {
        self.flags.iter().flat_map(|groups| groups.iter()).flat_map(|group| group.flags())
    }
}

/// A command line in its parts.
pub(super) struct Invocation {
    /// The variables set in front of the command, in their order.
    pub variables: Vec<(String, String)>,
    /// The command.
    pub command: &'static Command,
    /// What follows it.
    pub args: Vec<String>,
}

/// Finds the command: `[NAME=VALUE …] [python3 [-m]] [TOOL] [COMMAND] FLAGS`. One word with spaces is split as a shell does, line
/// continuations included.
pub(super) fn recognize(tool: Tool, args: &[String]) -> Result<Invocation, ImportError> {
    let mut words = match args {
        [one] if one.contains(char::is_whitespace) => shell_words::split(one).map_err(|_| ImportError::Quote)?,
        _ => args.to_vec(),
    };
    let mut variables = Vec::new();
    while let Some((name, value)) = words.first().and_then(|word| assignment(word)) {
        variables.push((name.to_owned(), value.to_owned()));
        words.remove(0);
    }
    if words.first().is_some_and(|word| is_python(last(word))) {
        words.remove(0);
        if words.first().is_some_and(|word| word == "-m") {
            words.remove(0);
        }
    }
    if words.first().is_some_and(|word| tool.programs().contains(&last(word))) {
        words.remove(0);
    }
    let begins = |name: &&&[&str]| {
        words.len() >= name.len()
            && words
                .iter()
                .zip(name.iter())
                .enumerate()
                .all(|(place, (word, own))| *own == if place == 0 { last(word) } else { word })
    };
    let named = tool.commands().iter().find_map(|command| Some((command, command.names.iter().find(begins)?.len())));
    let (command, length) = match (named, tool.commands()) {
        (Some(found), _) => found,
        (None, [only]) => (only, 0),
        (None, _) => return Err(ImportError::Command { tool: tool.name(), known: tool.usage() }),
    };
    words.drain(..length);
    Ok(Invocation { variables, command, args: words })
}

/// `NAME=VALUE` in front of a command.
fn assignment(word: &str) -> Option<(&str, &str)> {
    let (name, value) = word.split_once('=')?;
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
    (!name.is_empty() && name.chars().all(plain) && !name.starts_with(|c: char| c.is_ascii_digit())).then_some((name, value))
}

fn is_python(word: &str) -> bool {
    word.strip_prefix("python").is_some_and(|version| version.chars().all(|c| c.is_ascii_digit() || c == '.'))
}

/// The last part of a path.
fn last(word: &str) -> &str {
    word.rsplit('/').next().unwrap_or(word)
}

/// What follows a flag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Takes {
    /// Nothing.
    Nothing,
    /// One value.
    One,
    /// One value that nobody may see.
    Secret,
    /// Values up to the next flag.
    Many,
    /// Nothing, or a word of truth: `--streaming`, `--streaming true`.
    Truth,
}

/// Flags of a tool, separated by spaces.
#[derive(Clone, Copy, Debug)]
pub(super) struct FlagGroup {
    names: &'static str,
    takes: Takes,
    reason: &'static str,
}

/// Flags that are translated. The spellings of one flag are separated by `|`; translations use the first.
pub(super) const fn translated(takes: Takes, names: &'static str) -> FlagGroup {
    FlagGroup { names, takes, reason: "" }
}

/// Flags that have no counterpart, and why.
pub(super) const fn dropped(takes: Takes, names: &'static str, reason: &'static str) -> FlagGroup {
    FlagGroup { names, takes, reason }
}

impl FlagGroup {
    /// The flags of the group. Those without a counterpart are one flag with many names.
    pub fn flags(self) -> impl Iterator<Item = Flag> {
        let is_split = self.reason.is_empty();
        let names = self.names.split(move |c| is_split && c == ' ');
        names.map(move |names| Flag { names, takes: self.takes, reason: self.reason })
    }
}

/// A flag that a tool has.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flag {
    names: &'static str,
    /// What follows it.
    pub takes: Takes,
    /// Why it has no counterpart; empty where it is translated.
    pub reason: &'static str,
}

impl Flag {
    /// Its spellings.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        self.names.split([' ', '|'])
    }

    /// Whether one of `flags`, which are separated by spaces, is a spelling of it.
    pub fn is_among(self, flags: &str) -> bool {
        self.names().any(|name| flags.split(' ').any(|flag| flag == name))
    }
}

/// A flag as it was given.
#[derive(Clone, Debug)]
pub(super) struct Given {
    /// The flag.
    pub flag: Flag,
    /// As it was written.
    pub written: String,
    /// Its values.
    pub values: Vec<String>,
    /// The keys that say it now.
    pub keys: Vec<String>,
    /// What differs, or why nothing stands for it.
    pub note: Option<String>,
}

impl Given {
    /// The flag with its values as a shell would read them, secrets left out.
    pub fn shown(&self) -> String {
        let hidden =
            |value: &String| if self.flag.takes == Takes::Secret { "***".to_owned() } else { quoted(&without_secrets(value)) };
        let written = Some(self.written.clone()).filter(|written| !written.is_empty());
        written.into_iter().chain(self.values.iter().map(hidden)).collect::<Vec<_>>().join(" ")
    }
}

/// A variable set in front of the command.
#[derive(Clone, Debug)]
pub(super) struct Variable {
    /// Its name.
    pub name: String,
    /// Its value.
    pub value: String,
    /// The keys that hold it now.
    pub keys: Vec<String>,
    /// Why no key holds it.
    pub note: Option<String>,
}

impl Variable {
    /// Whether its value must not be shown.
    pub fn is_secret(&self) -> bool {
        is_secret(&self.name) || self.name.to_lowercase().ends_with("token")
    }

    /// `NAME=VALUE`, secrets left out.
    pub fn shown(&self) -> String {
        let value = if self.is_secret() { "***".to_owned() } else { quoted(&without_secrets(&self.value)) };
        format!("{}={value}", self.name)
    }
}

/// A value without what it may hold of secrets: `NAME=VALUE`, several of them, or a JSON object.
fn without_secrets(value: &str) -> String {
    if let Ok(json @ Value::Object(_)) = serde_json::from_str(value) {
        return masked(json, &mut |_| "***".to_owned()).to_string();
    }
    if value.contains("://") {
        return hidden_in_url(value, "***");
    }
    let part = |part: &str| match part.split_once(['=', ':']) {
        Some((name, _)) if is_secret(name) => format!("{name}=***"),
        _ => part.to_owned(),
    };
    // A header's value may hold commas itself.
    match value.split_once(['=', ':']) {
        Some((name, _)) if is_secret(name) => format!("{name}=***"),
        _ => value.split(',').map(part).collect::<Vec<_>>().join(","),
    }
}

/// Whether what has this name is nobody's business.
pub(super) fn is_secret(name: &str) -> bool {
    let name = name.trim().to_lowercase().replace('_', "-");
    let words: Vec<&str> = name.split('-').collect();
    let token = matches!(words.as_slice(), ["token"] | [.., "x" | "auth" | "access" | "api" | "bearer", "token"]);
    token
        || words
            .iter()
            .any(|word| matches!(*word, "authorization" | "auth" | "key" | "apikey" | "secret" | "cookie" | "password"))
}

/// A URL with `instead` wherever it holds a password or a parameter that is called a secret.
pub(super) fn hidden_in_url(url: &str, instead: &str) -> String {
    let mut ranges = hidden(url);
    ranges.sort_by_key(|range| range.start);
    ranges.into_iter().rev().fold(url.to_owned(), |mut shown, range| {
        shown.replace_range(range, instead);
        shown
    })
}

/// A value with another text, told by its key, for each text in it that is called a secret.
pub(super) fn masked(value: Value, instead: &mut dyn FnMut(&str) -> String) -> Value {
    match value {
        Value::Object(fields) => {
            let mask = |(key, value): (String, Value)| match value {
                Value::String(_) if is_secret(&key) => (key.clone(), Value::from(instead(&key))),
                value => (key, masked(value, instead)),
            };
            Value::Object(fields.into_iter().map(mask).collect())
        }
        Value::Array(items) => items.into_iter().map(|item| masked(item, instead)).collect(),
        other => other,
    }
}

/// The variable that shall hold what has this name.
pub(super) fn variable(name: &str) -> String {
    name.to_uppercase().chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect()
}

/// A word as a shell would read it. Line ends are shown, for the word stands in a comment.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "-_./:=,+@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\n', "\\n").replace('\r', "\\r").replace('\'', "'\\''"))
}

/// A parsed command line.
#[derive(Clone, Debug)]
pub(super) struct Line {
    /// The variables in front of it.
    pub variables: Vec<Variable>,
    /// The flags in their order.
    pub given: Vec<Given>,
}

impl Line {
    /// Parses what follows the tool's own command.
    pub fn parse(tool: Tool, invocation: &Invocation) -> Result<Line, ImportError> {
        let variable = |(name, value): &(String, String)| Variable {
            name: name.clone(),
            value: value.clone(),
            keys: Vec::new(),
            note: None,
        };
        let mut given: Vec<Given> = Vec::new();
        let mut words = invocation.args.iter().peekable();
        let mut positional = invocation.command.positional.iter();
        while let Some(word) = words.next() {
            if !is_flag(word) {
                let names = positional.next().ok_or_else(|| ImportError::Stray(word.clone()))?;
                let flag = Flag { names, takes: Takes::One, reason: "" };
                given.push(Given { flag, written: String::new(), values: vec![word.clone()], keys: Vec::new(), note: None });
                continue;
            }
            let (written, inline) = match word.split_once('=').filter(|(name, _)| name.starts_with("--")) {
                Some((name, value)) => (name.to_owned(), Some(value.to_owned())),
                None => (word.clone(), None),
            };
            let flag = find_flag(tool, invocation.command, &written)?;
            let mut values: Vec<String> = inline.into_iter().collect();
            let most = match flag.takes {
                Takes::Nothing => 0,
                Takes::One | Takes::Secret => 1,
                Takes::Many => usize::MAX,
                Takes::Truth => usize::from(words.peek().is_some_and(|next| matches!(next.as_str(), "true" | "false"))),
            };
            while values.len() < most && words.peek().is_some_and(|next| !is_flag(next)) {
                values.extend(words.next().cloned());
            }
            if values.is_empty() && !matches!(flag.takes, Takes::Nothing | Takes::Truth) {
                return Err(ImportError::Bare(written));
            }
            let note = Some(flag.reason).filter(|why| !why.is_empty()).map(str::to_owned);
            given.push(Given { flag, written, values, keys: Vec::new(), note });
        }
        Ok(Line { variables: invocation.variables.iter().map(variable).collect(), given })
    }
}

/// Whether a word begins a flag: `-1` and `-0.5` are numbers.
fn is_flag(word: &str) -> bool {
    word.strip_prefix('-').is_some_and(|rest| rest.starts_with(|c: char| c == '-' || c.is_alphabetic()))
}

/// The flag of a spelling, or of the beginning of one where the tool's parser takes that.
fn find_flag(tool: Tool, command: &'static Command, written: &str) -> Result<Flag, ImportError> {
    let wanted = written.replace('_', "-");
    if let Some(found) = command.flags().find(|flag| flag.names().any(|name| name == wanted)) {
        return Ok(found);
    }
    let begins = |flag: &Flag| flag.names().any(|name| name.starts_with(&wanted));
    let mut meant = command.flags().filter(begins).filter(|_| tool.abbreviates() && wanted.len() > 3 && wanted.starts_with("--"));
    match (meant.next(), meant.next()) {
        (Some(only), None) => Ok(only),
        _ => Err(ImportError::Unknown {
            tool: tool.name(),
            flag: written.to_owned(),
            near: near(written, command.flags().flat_map(Flag::names)),
        }),
    }
}
