//! The commands of a tool, and the parser of its flags.

use crate::import::draft::Draft;
use crate::import::{ImportError, Tool};
use crate::suggest::nearest;
use llmscen_core::url_secrets::secret_ranges;
use serde_json::Value;

pub(super) struct Command {
    /// Spellings of its name without the tool's, longest first. A script may have a folder in front.
    pub names: &'static [&'static [&'static str]],
    /// Names of positional arguments.
    pub positional: &'static [&'static str],
    pub flags: &'static [&'static [FlagGroup]],
    pub translate: fn(&mut Draft) -> Result<(), ImportError>,
}

impl Command {
    /// A command without positional arguments.
    pub const fn new(
        names: &'static [&'static [&'static str]],
        flags: &'static [&'static [FlagGroup]],
        translate: fn(&mut Draft) -> Result<(), ImportError>,
    ) -> Command {
        Command { names, positional: &[], flags, translate }
    }

    pub fn flags(&self) -> impl Iterator<Item = Flag> {
        self.flags.iter().flat_map(|groups| groups.iter()).flat_map(|group| group.flags())
    }
}

/// A command line split into its parts.
pub(super) struct Invocation {
    /// Variables set in front of the command.
    pub variables: Vec<(String, String)>,
    pub command: &'static Command,
    pub args: Vec<String>,
}

/// Finds the command in `[NAME=VALUE …] [python3 [-m]] [TOOL] [COMMAND] FLAGS`. A single argument with spaces is split as a
/// shell does, line continuations included.
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
    if words.first().is_some_and(|word| is_python(file_name(word))) {
        words.remove(0);
        if words.first().is_some_and(|word| word == "-m") {
            words.remove(0);
        }
    }
    if words.first().is_some_and(|word| tool.spec().programs.contains(&file_name(word))) {
        words.remove(0);
    }
    let begins = |name: &&&[&str]| {
        words.len() >= name.len()
            && words
                .iter()
                .zip(name.iter())
                .enumerate()
                .all(|(index, (word, expected))| *expected == if index == 0 { file_name(word) } else { word })
    };
    let named = tool.spec().commands.iter().find_map(|command| Some((command, command.names.iter().find(begins)?.len())));
    let (command, length) = match (named, tool.spec().commands) {
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

/// The file name of a path.
fn file_name(word: &str) -> &str {
    word.rsplit('/').next().unwrap_or(word)
}

/// The values that a flag takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Takes {
    Nothing,
    One,
    /// One value, which is a secret.
    Secret,
    /// All words up to the next flag.
    Many,
    /// None, `true` or `false`.
    Switch,
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

#[derive(Clone, Copy, Debug)]
pub(super) struct Flag {
    names: &'static str,
    pub takes: Takes,
    /// Why it has no counterpart; empty where it is translated.
    pub reason: &'static str,
}

impl Flag {
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
pub(super) struct GivenFlag {
    pub flag: Flag,
    /// As it was written.
    pub written: String,
    pub values: Vec<String>,
    /// The keys that hold its value.
    pub keys: Vec<String>,
    /// What differs, or why it has no counterpart.
    pub note: Option<String>,
}

impl GivenFlag {
    /// The flag with its values, quoted for a shell, without secrets.
    pub fn shown(&self) -> String {
        let hidden = |value: &String| if self.flag.takes == Takes::Secret { "***".to_owned() } else { quote(&mask_value(value)) };
        let written = Some(self.written.clone()).filter(|written| !written.is_empty());
        written.into_iter().chain(self.values.iter().map(hidden)).collect::<Vec<_>>().join(" ")
    }
}

/// A variable set in front of the command.
#[derive(Clone, Debug)]
pub(super) struct Variable {
    pub name: String,
    pub value: String,
    /// The keys that hold it.
    pub keys: Vec<String>,
    pub note: Option<String>,
}

impl Variable {
    pub fn is_secret(&self) -> bool {
        is_secret(&self.name) || self.name.to_lowercase().ends_with("token")
    }

    /// `NAME=VALUE` without secrets.
    pub fn shown(&self) -> String {
        let value = if self.is_secret() { "***".to_owned() } else { quote(&mask_value(&self.value)) };
        format!("{}={value}", self.name)
    }
}

/// Masks secrets in `NAME=VALUE`, in a list of these, or in a JSON object.
fn mask_value(value: &str) -> String {
    if let Ok(json @ Value::Object(_)) = serde_json::from_str(value) {
        return mask_secrets(json, &mut |_| "***".to_owned()).to_string();
    }
    if value.contains("://") {
        return mask_url(value, "***");
    }
    let part = |part: &str| match part.split_once(['=', ':']) {
        Some((name, _)) if is_secret(name) => format!("{name}=***"),
        _ => part.to_owned(),
    };
    // The value of a header may contain commas.
    match value.split_once(['=', ':']) {
        Some((name, _)) if is_secret(name) => format!("{name}=***"),
        _ => value.split(',').map(part).collect::<Vec<_>>().join(","),
    }
}

/// Whether a name is that of a secret.
pub(super) fn is_secret(name: &str) -> bool {
    let name = name.trim().to_lowercase().replace('_', "-");
    let words: Vec<&str> = name.split('-').collect();
    let token = matches!(words.as_slice(), ["token"] | [.., "x" | "auth" | "access" | "api" | "bearer", "token"]);
    token
        || words
            .iter()
            .any(|word| matches!(*word, "authorization" | "auth" | "key" | "apikey" | "secret" | "cookie" | "password"))
}

/// A URL with `instead` in place of its password and secret parameters.
pub(super) fn mask_url(url: &str, instead: &str) -> String {
    let mut ranges = secret_ranges(url);
    ranges.sort_by_key(|range| range.start);
    ranges.into_iter().rev().fold(url.to_owned(), |mut masked, range| {
        masked.replace_range(range, instead);
        masked
    })
}

/// Replaces each text whose key is that of a secret; `instead` gets the key.
pub(super) fn mask_secrets(value: Value, instead: &mut dyn FnMut(&str) -> String) -> Value {
    match value {
        Value::Object(fields) => {
            let mask = |(key, value): (String, Value)| match value {
                Value::String(_) if is_secret(&key) => (key.clone(), Value::from(instead(&key))),
                value => (key, mask_secrets(value, instead)),
            };
            Value::Object(fields.into_iter().map(mask).collect())
        }
        Value::Array(items) => items.into_iter().map(|item| mask_secrets(item, instead)).collect(),
        other => other,
    }
}

/// The environment variable for a secret of this name.
pub(super) fn variable(name: &str) -> String {
    name.to_uppercase().chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect()
}

/// Quotes a word for a shell. Line ends are escaped, because the word is written into a comment.
fn quote(word: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "-_./:=,+@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\n', "\\n").replace('\r', "\\r").replace('\'', "'\\''"))
}

#[derive(Clone, Debug)]
pub(super) struct CommandLine {
    pub variables: Vec<Variable>,
    pub given: Vec<GivenFlag>,
}

impl CommandLine {
    pub fn parse(tool: Tool, invocation: &Invocation) -> Result<CommandLine, ImportError> {
        let variable = |(name, value): &(String, String)| Variable {
            name: name.clone(),
            value: value.clone(),
            keys: Vec::new(),
            note: None,
        };
        let mut given: Vec<GivenFlag> = Vec::new();
        let mut words = invocation.args.iter().peekable();
        let mut positional = invocation.command.positional.iter();
        while let Some(word) = words.next() {
            if !is_flag(word) {
                let names = positional.next().ok_or_else(|| ImportError::Stray(word.clone()))?;
                let flag = Flag { names, takes: Takes::One, reason: "" };
                given.push(GivenFlag { flag, written: String::new(), values: vec![word.clone()], keys: Vec::new(), note: None });
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
                Takes::Switch => usize::from(words.peek().is_some_and(|next| matches!(next.as_str(), "true" | "false"))),
            };
            while values.len() < most && words.peek().is_some_and(|next| !is_flag(next)) {
                values.extend(words.next().cloned());
            }
            if values.is_empty() && !matches!(flag.takes, Takes::Nothing | Takes::Switch) {
                return Err(ImportError::Bare(written));
            }
            let note = Some(flag.reason).filter(|why| !why.is_empty()).map(str::to_owned);
            given.push(GivenFlag { flag, written, values, keys: Vec::new(), note });
        }
        Ok(CommandLine { variables: invocation.variables.iter().map(variable).collect(), given })
    }
}

/// Whether a word is a flag; `-1` and `-0.5` are numbers.
fn is_flag(word: &str) -> bool {
    word.strip_prefix('-').is_some_and(|rest| rest.starts_with(|c: char| c == '-' || c.is_alphabetic()))
}

/// Finds a flag by a spelling, or by a unique prefix where the tool accepts that.
fn find_flag(tool: Tool, command: &'static Command, written: &str) -> Result<Flag, ImportError> {
    let name_or_prefix = written.replace('_', "-");
    if let Some(found) = command.flags().find(|flag| flag.names().any(|name| name == name_or_prefix)) {
        return Ok(found);
    }
    let begins = |flag: &Flag| flag.names().any(|name| name.starts_with(&name_or_prefix));
    let mut meant = command
        .flags()
        .filter(begins)
        .filter(|_| tool.spec().abbreviates && name_or_prefix.len() > 3 && name_or_prefix.starts_with("--"));
    match (meant.next(), meant.next()) {
        (Some(only), None) => Ok(only),
        _ => Err(ImportError::Unknown {
            tool: tool.name(),
            flag: written.to_owned(),
            near: nearest(written, command.flags().flat_map(Flag::names)),
        }),
    }
}
