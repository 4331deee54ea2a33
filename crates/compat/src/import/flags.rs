//! Flags: their declaration, and those of a command line, shown without secrets.

use llmscen_core::url_secrets::secret_ranges;
use serde::Deserialize;
use serde_json::Value;

/// Why a command line cannot be converted.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ImportError {
    /// The tool has no such flag.
    #[error("`{flag}` is not a flag of {tool}{}",
        .near.map(|near| format!("; did you mean `{near}`?")).unwrap_or_default())]
    Unknown {
        /// The tool.
        tool: &'static str,
        /// The flag.
        flag: String,
        /// A similar flag.
        near: Option<&'static str>,
    },
    /// A word that belongs to no flag.
    #[error("`{0}` does not belong to a flag; put a value with spaces in quotes")]
    Stray(String),
    /// A flag without its value.
    #[error("`{0}` has no value")]
    Bare(String),
    /// A value that the flag does not take.
    #[error("`{flag} {value}`: expected {expected}")]
    Value {
        /// The flag.
        flag: String,
        /// Its value.
        value: String,
        /// What it takes.
        expected: &'static str,
    },
    /// The tool has no such command.
    #[error("the command line has no command of {tool}; use one of {known}")]
    Command {
        /// The tool.
        tool: &'static str,
        /// Its commands.
        known: String,
    },
    /// An unclosed quote.
    #[error("the command line has an unclosed quote")]
    Quote,
    /// A required value is missing.
    #[error("the command line has no {0}")]
    Missing(&'static str),
    /// The scenario cannot be written as YAML.
    #[error("the scenario cannot be written: {0}")]
    Write(String),
}

/// The values that a flag takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Takes {
    #[serde(rename = "none")]
    Nothing,
    One,
    /// One value, which is a secret.
    Secret,
    /// All words up to the next flag.
    Many,
    /// None, `true` or `false`.
    Switch,
}

/// A flag whose value becomes that of a key.
#[derive(Clone, Debug)]
pub(super) struct Carried {
    /// The dotted path of the key.
    pub key: String,
    pub kind: CarriedKind,
}

/// How a value becomes that of a key.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum CarriedKind {
    Text,
    Number,
    /// A number of seconds.
    Seconds,
    /// All values.
    List,
    /// A switch that sets the key to this value.
    Switch(Value),
    /// A key of the API, which is not stored.
    Secret,
    /// `NAME:VALUE` or `NAME=VALUE`.
    Headers,
}

impl Carried {
    /// Parses a key, `{ KIND: KEY }`, or `{ switch: KEY, value: VALUE }`.
    pub fn parse(place: &Value) -> Option<Carried> {
        let (key, kind) = match place {
            Value::String(key) => (key.clone(), CarriedKind::Text),
            place => {
                let (kind, key) = place.as_object()?.iter().next()?;
                let kind = match kind.as_str() {
                    "number" => CarriedKind::Number,
                    "seconds" => CarriedKind::Seconds,
                    "list" => CarriedKind::List,
                    "switch" => {
                        CarriedKind::Switch(place.get("value").cloned().unwrap_or(true.into()))
                    }
                    "secret" => CarriedKind::Secret,
                    "headers" => CarriedKind::Headers,
                    _ => return None,
                };
                (key.as_str()?.to_owned(), kind)
            }
        };
        Some(Carried { key, kind })
    }
}

impl CarriedKind {
    pub fn takes(&self) -> Takes {
        match self {
            CarriedKind::Text | CarriedKind::Number | CarriedKind::Seconds => Takes::One,
            CarriedKind::List | CarriedKind::Headers => Takes::Many,
            CarriedKind::Switch(_) => Takes::Nothing,
            CarriedKind::Secret => Takes::Secret,
        }
    }
}

/// A flag of a command.
#[derive(Debug)]
pub(super) struct Flag {
    /// Its spellings, separated by `|`, of which translations use the first; the flags of one reason are separated by
    /// spaces.
    pub names: String,
    /// Its place among the flags of the command.
    pub position: usize,
    pub takes: Takes,
    pub carried: Option<Carried>,
    /// Why it has no counterpart; empty where it is translated.
    pub reason: String,
    /// Without it, the load is another one.
    pub loses_load: bool,
}

/// A field that no translation reads.
pub(super) static UNREAD: Flag = Flag {
    names: String::new(),
    position: usize::MAX,
    takes: Takes::One,
    carried: None,
    reason: String::new(),
    loses_load: false,
};

impl Flag {
    /// A flag that is translated.
    pub fn new(names: &str, takes: Takes) -> Flag {
        Flag {
            names: names.to_owned(),
            position: 0,
            takes,
            carried: None,
            reason: String::new(),
            loses_load: false,
        }
    }

    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.names.split([' ', '|'])
    }

    /// Whether one of `flags`, which are separated by spaces, is a spelling of it.
    pub fn is_among(&self, flags: &str) -> bool {
        self.names()
            .any(|name| flags.split_whitespace().any(|flag| flag == name))
    }
}

/// A flag as it was given.
#[derive(Clone, Debug)]
pub(super) struct GivenFlag {
    pub flag: &'static Flag,
    /// As it was written.
    pub written: String,
    pub values: Vec<String>,
    /// The keys that hold its value.
    pub keys: Vec<String>,
    /// What differs, or why it has no counterpart.
    pub note: Option<String>,
    /// The scenario lacks a part of the load that it describes.
    pub loses_load: bool,
}

impl GivenFlag {
    pub fn new(flag: &'static Flag, written: String, values: Vec<String>) -> GivenFlag {
        GivenFlag {
            flag,
            written,
            values,
            keys: Vec::new(),
            note: Some(flag.reason.clone()).filter(|reason| !reason.is_empty()),
            loses_load: flag.loses_load,
        }
    }

    /// The flag with its values, quoted for a shell, without secrets.
    pub fn shown(&self) -> String {
        let hidden = |value: &String| {
            if self.flag.takes == Takes::Secret {
                "***".to_owned()
            } else {
                quote(&mask_value(value))
            }
        };
        let written = Some(self.written.clone()).filter(|written| !written.is_empty());
        written
            .into_iter()
            .chain(self.values.iter().map(hidden))
            .collect::<Vec<_>>()
            .join(" ")
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
        let value = if self.is_secret() {
            "***".to_owned()
        } else {
            quote(&mask_value(&self.value))
        };
        format!("{}={value}", self.name)
    }
}

/// Masks secrets in `NAME=VALUE`, in a list of these, or in a JSON object.
fn mask_value(value: &str) -> String {
    if let Ok(json @ Value::Object(_)) = serde_json::from_str(value) {
        return mask_secrets(json, &mut |_| "***".to_owned()).to_string();
    }
    let value = &match value.contains("://") {
        true => mask_url(value, "***"),
        false => value.to_owned(),
    };
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
    let token = matches!(
        words.as_slice(),
        ["token"] | [.., "x" | "auth" | "access" | "api" | "bearer", "token"]
    );
    token
        || words.iter().any(|word| {
            matches!(
                *word,
                "authorization" | "auth" | "key" | "apikey" | "secret" | "cookie" | "password"
            )
        })
}

/// A URL with `instead` in place of its password and secret parameters.
pub(super) fn mask_url(url: &str, instead: &str) -> String {
    let mut ranges = secret_ranges(url);
    ranges.sort_by_key(|range| range.start);
    ranges
        .into_iter()
        .rev()
        .fold(url.to_owned(), |mut masked, range| {
            masked.replace_range(range, instead);
            masked
        })
}

/// Replaces passwords and secret parameters in all URLs of a value.
pub(super) fn mask_urls(value: Value, instead: &str) -> Value {
    match value {
        Value::String(text) => Value::from(mask_url(&text, instead)),
        Value::Array(items) => items
            .into_iter()
            .map(|item| mask_urls(item, instead))
            .collect(),
        Value::Object(fields) => {
            let fields = fields.into_iter();
            Value::Object(
                fields
                    .map(|(key, value)| (key, mask_urls(value, instead)))
                    .collect(),
            )
        }
        other => other,
    }
}

/// Replaces each value whose key is that of a secret, and the secrets of URLs; `instead` gets the key.
pub(super) fn mask_secrets(value: Value, instead: &mut dyn FnMut(&str) -> String) -> Value {
    match value {
        Value::Object(fields) => {
            let mask = |(key, value): (String, Value)| match value {
                Value::String(_) | Value::Number(_) if is_secret(&key) => {
                    (key.clone(), Value::from(instead(&key)))
                }
                Value::String(text) if text.contains("://") => {
                    let masked = mask_url(&text, &instead("url_secret"));
                    (key, Value::from(masked))
                }
                value => (key, mask_secrets(value, instead)),
            };
            Value::Object(fields.into_iter().map(mask).collect())
        }
        Value::Array(items) => items
            .into_iter()
            .map(|item| mask_secrets(item, instead))
            .collect(),
        other => other,
    }
}

/// The environment variable for a secret of this name.
pub(super) fn variable(name: &str) -> String {
    name.to_uppercase()
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c } else { '_' })
        .collect()
}

/// Quotes a word for a shell. Line ends are escaped, because the word is written into a comment.
fn quote(word: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "-_./:=,+@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!(
        "'{}'",
        word.replace('\n', "\\n")
            .replace('\r', "\\r")
            .replace('\'', "'\\''")
    )
}

#[derive(Clone, Debug)]
pub(super) struct CommandLine {
    pub variables: Vec<Variable>,
    pub given: Vec<GivenFlag>,
}
