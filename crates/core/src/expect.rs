//! What answers are checked for (`request.expect`), and what the checks found.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::fmt;

/// The checks of an answer. `json_schema`, `regex`, `repetition` and `language` are about its format, `equals` and
/// `contains` about its truth, and `tool_call` about both.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Expect {
    /// The answer is JSON that is valid against this schema.
    pub json_schema: Option<Value>,
    /// A regular expression that matches somewhere in the answer.
    pub regex: Option<String>,
    /// The answer equals this text, without white space at both ends.
    pub equals: Option<Truth>,
    /// The answer contains this text.
    pub contains: Option<Truth>,
    /// The answer calls a tool.
    pub tool_call: Option<ToolCall>,
    /// The answer has exactly `max_tokens` tokens.
    pub exact_length: bool,
    /// The share of repeated word sequences is below this share; see [`repetition`].
    pub repetition: Option<f64>,
    /// ISO 639-1 code of the answer's language.
    pub language: Option<String>,
    /// Number of failed answers, per round of a case, whose text is stored.
    pub keep: u32,
}

/// A text that is compared with the answer.
#[derive(Clone, Debug, PartialEq)]
pub enum Truth {
    /// The same text for all requests.
    Text(String),
    /// A field of the dataset row: a text, a number, a boolean, or a list of them, one of which must fit.
    Item(String),
}

/// What a tool call must be.
#[derive(Clone, Debug, PartialEq)]
pub enum ToolCall {
    /// Any tool, with arguments that are a JSON object.
    WellFormed,
    /// The same, and the first call names this tool.
    Named(Truth),
}

/// The truths of one answer, each with its alternatives.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Truths {
    /// Index of the traffic class, which has the checks.
    pub class: usize,
    /// The texts that it may equal; None: no check.
    pub equals: Option<Vec<String>>,
    /// The texts of which it must contain one; None: no check.
    pub contains: Option<Vec<String>>,
    /// The tools that it may call; None: no check.
    pub tool: Option<Vec<String>>,
    /// Headers of the request. Their values are not stored if the answer repeats them.
    pub headers: Vec<(String, String)>,
}

impl Expect {
    /// Whether an answer can be invalid.
    pub fn checks_format(&self) -> bool {
        self.json_schema.is_some()
            || self.regex.is_some()
            || self.repetition.is_some()
            || self.language.is_some()
            || self.tool_call.is_some()
    }

    /// Whether an answer can differ from a truth.
    pub fn checks_truth(&self) -> bool {
        self.equals.is_some()
            || self.contains.is_some()
            || matches!(self.tool_call, Some(ToolCall::Named(_)))
    }

    /// The truths of the answer to a request with this dataset row.
    ///
    /// # Errors
    /// The check and the field that the row does not have.
    pub fn truths(&self, fields: &Map<String, Value>) -> Result<Truths, MissingTruth> {
        let of = |check: AnswerCheck, truth: Option<&Truth>| match truth {
            None => Ok(None),
            Some(Truth::Text(text)) => Ok(Some(vec![text.clone()])),
            Some(Truth::Item(field)) => texts(fields.get(field)).map(Some).ok_or_else(|| {
                let field = field.clone();
                MissingTruth { check, field }
            }),
        };
        let tool = match &self.tool_call {
            Some(ToolCall::Named(name)) => Some(name),
            Some(ToolCall::WellFormed) | None => None,
        };
        Ok(Truths {
            class: 0,
            equals: of(AnswerCheck::Equals, self.equals.as_ref())?,
            contains: of(AnswerCheck::Contains, self.contains.as_ref())?,
            tool: of(AnswerCheck::ToolCall, tool)?,
            headers: Vec::new(),
        })
    }
}

/// The texts of a field: one, or those of a list. None without any.
fn texts(value: Option<&Value>) -> Option<Vec<String>> {
    match value? {
        Value::String(text) if text.trim().is_empty() => None,
        Value::String(text) => Some(vec![text.clone()]),
        number @ (Value::Number(_) | Value::Bool(_)) => Some(vec![number.to_string()]),
        Value::Array(items) if !items.is_empty() => {
            let all = items.iter().map(|item| texts(Some(item)));
            Some(all.collect::<Option<Vec<_>>>()?.concat())
        }
        Value::Array(_) | Value::Object(_) | Value::Null => None,
    }
}

/// A dataset row without the truth of its answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the dataset's row has no text `{field}`, which `expect.{check}` reads")]
pub struct MissingTruth {
    /// The check.
    pub check: AnswerCheck,
    /// The field.
    pub field: String,
}

/// One check. The names are the keys of `request.expect`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AnswerCheck {
    /// Valid against a JSON Schema.
    JsonSchema,
    /// Matches a regular expression.
    Regex,
    /// Calls a tool.
    ToolCall,
    /// Few repetitions.
    Repetition,
    /// Has the language.
    Language,
    /// Equals a text.
    Equals,
    /// Contains a text.
    Contains,
    /// Has exactly `max_tokens` tokens.
    Length,
}

impl AnswerCheck {
    /// All checks, in the order in which they are made.
    pub const ALL: [AnswerCheck; 8] = [
        AnswerCheck::JsonSchema,
        AnswerCheck::Regex,
        AnswerCheck::ToolCall,
        AnswerCheck::Repetition,
        AnswerCheck::Language,
        AnswerCheck::Equals,
        AnswerCheck::Contains,
        AnswerCheck::Length,
    ];

    /// The key in `request.expect`.
    pub fn name(self) -> &'static str {
        match self {
            AnswerCheck::JsonSchema => "json_schema",
            AnswerCheck::Regex => "regex",
            AnswerCheck::ToolCall => "tool_call",
            AnswerCheck::Repetition => "repetition",
            AnswerCheck::Language => "language",
            AnswerCheck::Equals => "equals",
            AnswerCheck::Contains => "contains",
            AnswerCheck::Length => "length",
        }
    }

    /// Parses [`AnswerCheck::name`].
    pub fn parse(name: &str) -> Option<AnswerCheck> {
        AnswerCheck::ALL
            .into_iter()
            .find(|check| check.name() == name)
    }
}

impl fmt::Display for AnswerCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What the checks of one answer found. A result is None without such a check, and where the check does not apply.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckedAnswer {
    /// It passed every check of the format.
    pub valid: Option<bool>,
    /// It matches every truth.
    pub matches: Option<bool>,
    /// It has exactly `max_tokens` tokens.
    pub length_exact: Option<bool>,
    /// The first check that failed, and why: `regex: no match`; None if none failed. Secrets removed.
    pub failed: Option<FailedCheck>,
    /// The text of a failed answer, if it is stored: at most [`CheckedAnswer::MAX_TEXT`] bytes, secrets removed.
    pub text: Option<String>,
}

impl CheckedAnswer {
    /// Maximum length of a stored text, bytes.
    pub const MAX_TEXT: usize = 64 << 10;
}

/// A check that failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailedCheck {
    /// The check.
    pub check: AnswerCheck,
    /// Why, at most [`FailedCheck::MAX_REASON`] characters.
    pub reason: String,
}

impl FailedCheck {
    /// Maximum length of a reason, characters.
    pub const MAX_REASON: usize = 200;
}

/// Words of a sequence in [`repetition`].
pub const REPEATED_WORDS: usize = 4;

/// The share of the sequences of four consecutive words that occurred before in the text, 0..=1: the measure
/// seq-rep-4 of Welleck et al., "Neural Text Generation with Unlikelihood Training", ICLR 2020, `1 − distinct 4-grams
/// / 4-grams`, with words in place of tokens. Words are separated by white space. None for a text of fewer than four
/// words.
pub fn repetition(text: &str) -> Option<f64> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let sequences = words
        .len()
        .checked_sub(REPEATED_WORDS - 1)
        .filter(|n| *n > 0)?;
    let distinct: std::collections::HashSet<&[&str]> = words.windows(REPEATED_WORDS).collect();
    Some(1.0 - distinct.len() as f64 / sequences as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn repetition_is_the_share_of_sequences_that_occurred_before() {
        assert_eq!(repetition("a b c"), None);
        assert_eq!(repetition("a b c d"), Some(0.0));
        // abcd bcda cdab dabc abcd: one of five.
        assert_eq!(repetition("a b c d\na b  c d"), Some(1.0 - 4.0 / 5.0));
        assert_eq!(repetition(&"the ".repeat(13)), Some(0.9));
    }

    proptest! {
        #[test]
        fn repetition_is_that_of_a_direct_count(words in proptest::collection::vec("[ab]", 0..40)) {
            let counted = words.len().checked_sub(3).filter(|n| *n > 0).map(|n| {
                let before = (0..n).filter(|&i| (0..i).any(|j| words[j..j + 4] == words[i..i + 4]));
                before.count() as f64 / n as f64
            });
            let measured = repetition(&words.join(" "));
            prop_assert_eq!(measured.is_some(), counted.is_some());
            if let (Some(measured), Some(counted)) = (measured, counted) {
                prop_assert!((measured - counted).abs() < 1e-12);
            }
            if let Some(twice) = repetition(&[words.clone(), words.clone()].concat().join(" ")) {
                prop_assert!((0.0..1.0).contains(&twice));
                // Of 2n - 3 sequences at most n are new.
                prop_assert!(twice >= 1.0 - words.len() as f64 / (2 * words.len() - 3) as f64 - 1e-12);
            }
        }
    }

    #[test]
    fn truths_come_from_the_row() {
        let row = json!({ "answer": ["Paris", 7], "tool": "f", "none": null, "empty": [] });
        let row = row.as_object().unwrap();
        let item = |name: &str| Some(Truth::Item(name.into()));
        let expect = Expect {
            equals: item("answer"),
            contains: Some(Truth::Text("x".into())),
            tool_call: Some(ToolCall::Named(Truth::Item("tool".into()))),
            ..Expect::default()
        };
        let all = |texts: &[&str]| Some(texts.iter().map(|text| (*text).to_owned()).collect());
        let truths = Truths {
            headers: Vec::new(),
            class: 0,
            equals: all(&["Paris", "7"]),
            contains: all(&["x"]),
            tool: all(&["f"]),
        };
        assert_eq!(expect.truths(row), Ok(truths));
        for missing in ["none", "empty", "gone"] {
            let expect = Expect {
                equals: item(missing),
                ..Expect::default()
            };
            let error = expect.truths(row).unwrap_err();
            assert_eq!(
                error.to_string(),
                format!("the dataset's row has no text `{missing}`, which `expect.equals` reads")
            );
        }
    }

    #[test]
    fn names_parse_back_and_match_serde() {
        for check in AnswerCheck::ALL {
            assert_eq!(AnswerCheck::parse(check.name()), Some(check));
            assert_eq!(serde_json::to_value(check).unwrap(), check.name());
        }
    }
}
