//! Checks answers against `request.expect`. The checks are compiled once, with the plan; none needs the network, and
//! the time of each grows linearly with the answer.

use jsonschema::error::ValidationErrorKind;
use jsonschema::{PatternOptions, ReferencingError, Validator};
use llmscen_core::expect::{AnswerCheck, CheckedAnswer, Expect, FailedCheck, Truths, repetition};
use regex::{Regex, RegexBuilder};
use serde_json::Value;
use std::collections::HashMap;
use whatlang::Lang;

/// Maximum size of a compiled regular expression, bytes.
pub const MAX_REGEX: usize = 1 << 20;

/// The language is detected by the beginning of the answer, up to this many characters: its cost is high, and more
/// text does not make it more certain.
const DETECTED_CHARS: usize = 1000;

/// Codes of ISO 639-1 and the languages that can be detected.
pub const LANGUAGES: [(&str, Lang); 70] = [
    ("af", Lang::Afr),
    ("ak", Lang::Aka),
    ("am", Lang::Amh),
    ("ar", Lang::Ara),
    ("az", Lang::Aze),
    ("be", Lang::Bel),
    ("bg", Lang::Bul),
    ("bn", Lang::Ben),
    ("ca", Lang::Cat),
    ("cs", Lang::Ces),
    ("cy", Lang::Cym),
    ("da", Lang::Dan),
    ("de", Lang::Deu),
    ("el", Lang::Ell),
    ("en", Lang::Eng),
    ("eo", Lang::Epo),
    ("es", Lang::Spa),
    ("et", Lang::Est),
    ("fa", Lang::Pes),
    ("fi", Lang::Fin),
    ("fr", Lang::Fra),
    ("gu", Lang::Guj),
    ("he", Lang::Heb),
    ("hi", Lang::Hin),
    ("hr", Lang::Hrv),
    ("hu", Lang::Hun),
    ("hy", Lang::Hye),
    ("id", Lang::Ind),
    ("it", Lang::Ita),
    ("ja", Lang::Jpn),
    ("jv", Lang::Jav),
    ("ka", Lang::Kat),
    ("km", Lang::Khm),
    ("kn", Lang::Kan),
    ("ko", Lang::Kor),
    ("la", Lang::Lat),
    ("lt", Lang::Lit),
    ("lv", Lang::Lav),
    ("mk", Lang::Mkd),
    ("ml", Lang::Mal),
    ("mr", Lang::Mar),
    ("my", Lang::Mya),
    ("nb", Lang::Nob),
    ("ne", Lang::Nep),
    ("nl", Lang::Nld),
    ("or", Lang::Ori),
    ("pa", Lang::Pan),
    ("pl", Lang::Pol),
    ("pt", Lang::Por),
    ("ro", Lang::Ron),
    ("ru", Lang::Rus),
    ("si", Lang::Sin),
    ("sk", Lang::Slk),
    ("sl", Lang::Slv),
    ("sn", Lang::Sna),
    ("sr", Lang::Srp),
    ("sv", Lang::Swe),
    ("ta", Lang::Tam),
    ("te", Lang::Tel),
    ("th", Lang::Tha),
    ("tk", Lang::Tuk),
    ("tl", Lang::Tgl),
    ("tr", Lang::Tur),
    ("uk", Lang::Ukr),
    ("ur", Lang::Urd),
    ("uz", Lang::Uzb),
    ("vi", Lang::Vie),
    ("yi", Lang::Yid),
    ("zh", Lang::Cmn),
    ("zu", Lang::Zul),
];

fn language(code: &str) -> Option<Lang> {
    let known = LANGUAGES.iter().find(|(known, _)| *known == code);
    known.map(|(_, language)| *language)
}

/// Why the checks cannot be compiled.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`expect.{check}` cannot be compiled: {reason}")]
pub struct CompileError {
    /// The check.
    pub check: AnswerCheck,
    /// The cause.
    pub reason: String,
}

/// Compiles a regular expression.
///
/// # Errors
/// A syntax error, or a size above [`MAX_REGEX`].
pub fn compile_regex(pattern: &str) -> Result<Regex, regex::Error> {
    RegexBuilder::new(pattern).size_limit(MAX_REGEX).build()
}

/// Compiles a JSON Schema. References to other documents are errors: nothing is read from the network or from files.
///
/// # Errors
/// The cause.
pub fn compile_schema(schema: &Value) -> Result<Validator, String> {
    if let Some(at) = circle(schema) {
        return Err(format!("its references go in a circle at `#{at}`"));
    }
    jsonschema::options()
        .with_pattern_options(PatternOptions::regex().size_limit(MAX_REGEX))
        .build(schema)
        .map_err(|error| match error.kind() {
            ValidationErrorKind::Referencing(ReferencingError::Unretrievable { uri, .. }) => {
                format!("it refers to another document, {uri}")
            }
            _ => match error.instance_path().as_str() {
                "" => error.to_string(),
                at => format!("{error} at {at}"),
            },
        })
}

/// The JSON Pointer of a schema that applies itself to the same value again. The validator would accept any value
/// there.
fn circle(schema: &Value) -> Option<String> {
    // Whether all that a schema applies has been followed; false: it is on the way from a start to the present one.
    let mut followed: HashMap<String, bool> = HashMap::new();
    let mut starts = vec![String::new()];
    while let Some(start) = starts.pop() {
        let mut way = vec![(start, false)];
        while let Some((place, is_left)) = way.pop() {
            match followed.get(&place) {
                _ if is_left => {
                    followed.insert(place, true);
                    continue;
                }
                Some(true) => continue,
                Some(false) => return Some(place),
                None => {}
            }
            let node = schema.pointer(&place).unwrap_or(&Value::Null);
            let applied = applied(node, &place);
            starts.extend(children(node, &place));
            followed.insert(place.clone(), false);
            way.push((place, true));
            way.extend(applied.into_iter().map(|next| (next, false)));
        }
    }
    None
}

/// The JSON Pointers of the schemas that a schema at `place` applies to its own value.
fn applied(schema: &Value, place: &str) -> Vec<String> {
    let mut applied: Vec<String> = ["not", "if", "then", "else"]
        .into_iter()
        .filter(|key| schema.get(key).is_some())
        .map(|key| format!("{place}/{key}"))
        .collect();
    for key in ["allOf", "anyOf", "oneOf"] {
        if let Some(all) = schema.get(key) {
            applied.extend(children(all, &format!("{place}/{key}")));
        }
    }
    let reference = schema.get("$ref").and_then(Value::as_str);
    applied.extend(
        reference
            .and_then(|text| text.strip_prefix('#'))
            .map(str::to_owned),
    );
    applied
}

/// The JSON Pointers of the values within a value, but for those that are data of a schema.
fn children(value: &Value, place: &str) -> Vec<String> {
    match value {
        Value::Object(entries) => entries
            .keys()
            .filter(|key| !["const", "enum", "default", "examples"].contains(&key.as_str()))
            .map(|key| format!("{place}/{}", key.replace('~', "~0").replace('/', "~1")))
            .collect(),
        Value::Array(items) => (0..items.len())
            .map(|index| format!("{place}/{index}"))
            .collect(),
        _ => Vec::new(),
    }
}

/// The answer to a request that succeeded.
#[derive(Clone, Copy, Debug)]
pub struct Answer<'a> {
    /// The text, without reasoning; of the first choice, if there are several.
    pub text: &'a str,
    /// The tool calls in the API's format; null: none.
    pub tool_calls: &'a Value,
    /// Its tokens, by the server's usage or else by the local tokenizer.
    pub tokens: Option<u64>,
    /// The requested `max_tokens`.
    pub max_tokens: Option<u64>,
}

/// The checks of a case or an entry of its mix.
#[derive(Debug)]
pub struct AnswerChecker {
    expect: Expect,
    schema: Option<Validator>,
    regex: Option<Regex>,
    language: Option<Lang>,
}

impl AnswerChecker {
    /// Compiles the checks.
    ///
    /// # Errors
    /// A check that the plan would not accept.
    pub fn new(expect: &Expect) -> Result<AnswerChecker, CompileError> {
        let error = |check, reason| CompileError { check, reason };
        let schema = expect.json_schema.as_ref().map(compile_schema).transpose();
        let regex = expect.regex.as_deref().map(compile_regex).transpose();
        let language = expect.language.as_deref().map(|code| {
            language(code)
                .ok_or_else(|| error(AnswerCheck::Language, format!("`{code}` is not supported")))
        });
        Ok(AnswerChecker {
            expect: expect.clone(),
            schema: schema.map_err(|reason| error(AnswerCheck::JsonSchema, reason))?,
            regex: regex.map_err(|reason| error(AnswerCheck::Regex, reason.to_string()))?,
            language: language.transpose()?,
        })
    }

    /// Number of failed answers, per round of a case, whose text is stored.
    pub fn keep(&self) -> u32 {
        self.expect.keep
    }

    /// Whether a check reads the answer, and not only its number of tokens.
    pub fn reads_text(&self) -> bool {
        self.expect.checks_format() || self.expect.checks_truth()
    }

    /// Checks an answer. The result has no text.
    pub fn check(&self, answer: Answer<'_>, truths: &Truths) -> CheckedAnswer {
        let mut failed = None;
        // Whether all checks of a part passed; None if none applied.
        let mut all = |results: &[(AnswerCheck, Option<Result<(), String>>)]| {
            let mut passed = None;
            for (check, result) in results {
                let Some(result) = result else { continue };
                passed = Some(passed.unwrap_or(true) && result.is_ok());
                if let (Err(reason), None) = (result, &failed) {
                    failed = Some(FailedCheck {
                        check: *check,
                        reason: reason.chars().take(FailedCheck::MAX_REASON).collect(),
                    });
                }
            }
            passed
        };
        let calls = tool_calls(answer.tool_calls);
        let truth = |texts: &Option<Vec<String>>, fits: &dyn Fn(&str) -> bool, found: &str| {
            let texts = texts.as_ref()?;
            let fits = texts.iter().any(|text| fits(text.trim()));
            Some(if fits {
                Ok(())
            } else {
                Err(differs(texts, found))
            })
        };
        let text = answer.text.trim();
        // An answer without anything in it is not one that is only too short for a check.
        let is_empty = text.is_empty() && calls.is_empty();
        let of_text = |is_checked: bool, result| match is_checked && is_empty {
            true => Some(Err("no text".to_owned())),
            false => result,
        };
        let valid = all(&[
            (AnswerCheck::JsonSchema, self.check_schema(text)),
            (AnswerCheck::Regex, self.check_regex(answer.text)),
            (AnswerCheck::ToolCall, self.check_calls(&calls)),
            (
                AnswerCheck::Repetition,
                of_text(
                    self.expect.repetition.is_some(),
                    self.check_repetition(text),
                ),
            ),
            (
                AnswerCheck::Language,
                of_text(self.language.is_some(), self.check_language(text)),
            ),
        ]);
        let tool = calls.first().map_or("no tool call", |call| call.name);
        let matches = all(&[
            (
                AnswerCheck::Equals,
                truth(&truths.equals, &|truth| text == truth, text),
            ),
            (
                AnswerCheck::Contains,
                truth(&truths.contains, &|truth| text.contains(truth), text),
            ),
            (
                AnswerCheck::ToolCall,
                truth(&truths.tool, &|truth| tool == truth, tool),
            ),
        ]);
        let length = answer
            .tokens
            .zip(answer.max_tokens)
            .filter(|_| self.expect.exact_length);
        let length = length.map(|(tokens, wanted)| {
            if tokens == wanted {
                Ok(())
            } else {
                Err(format!("{tokens} of {wanted} tokens"))
            }
        });
        let length_exact = all(&[(AnswerCheck::Length, length)]);
        CheckedAnswer {
            valid,
            matches,
            length_exact,
            failed,
            text: None,
        }
    }

    fn check_schema(&self, text: &str) -> Option<Result<(), String>> {
        let schema = self.schema.as_ref()?;
        let value: Value = match serde_json::from_str(text) {
            Ok(value) => value,
            Err(error) => return Some(Err(format!("not JSON: {error}"))),
        };
        Some(schema.validate(&value).map_err(|error| {
            let at = error.instance_path().to_string();
            let at = if at.is_empty() { "the answer" } else { &at };
            format!("{at}: {}", error.masked())
        }))
    }

    fn check_regex(&self, text: &str) -> Option<Result<(), String>> {
        let regex = self.regex.as_ref()?;
        Some(if regex.is_match(text) {
            Ok(())
        } else {
            Err("no match".to_owned())
        })
    }

    fn check_calls(&self, calls: &[Call<'_>]) -> Option<Result<(), String>> {
        self.expect.tool_call.as_ref()?;
        let malformed = calls.iter().find(|call| !call.is_well_formed());
        Some(match malformed {
            _ if calls.is_empty() => Err("no tool call".to_owned()),
            Some(call) if call.name.is_empty() => Err("a call without a name".to_owned()),
            Some(call) => Err(format!(
                "the arguments of `{}` are not a JSON object",
                call.name
            )),
            None => Ok(()),
        })
    }

    fn check_repetition(&self, text: &str) -> Option<Result<(), String>> {
        let limit = self.expect.repetition?;
        let repeated = repetition(text)?;
        let percent = |share: f64| (share * 1e3).round() / 10.0;
        Some(if repeated < limit {
            Ok(())
        } else {
            Err(format!(
                "{}% repeated, limit {}%",
                percent(repeated),
                percent(limit)
            ))
        })
    }

    /// None where the language cannot be detected reliably, as in a short answer.
    fn check_language(&self, text: &str) -> Option<Result<(), String>> {
        let wanted = self.language?;
        let end = text.char_indices().nth(DETECTED_CHARS);
        let found = whatlang::detect(end.map_or(text, |(end, _)| &text[..end]))
            .filter(|found| found.is_reliable())?
            .lang();
        Some(if found == wanted {
            Ok(())
        } else {
            Err(format!("{}, not {}", found.eng_name(), wanted.eng_name()))
        })
    }
}

/// `expected "Paris", not "London"`. The answer is last: a secret in it that is cut is only recognized at the end.
fn differs(texts: &[String], found: &str) -> String {
    let short = |text: &String| match text.trim().char_indices().nth(60) {
        Some((end, _)) => format!("\"{}…\"", &text.trim()[..end]),
        None => format!("\"{}\"", text.trim()),
    };
    let expected: Vec<String> = texts.iter().take(2).map(short).collect();
    format!("expected {}, not \"{found}\"", expected.join(" or "))
}

/// A tool call in the answer.
struct Call<'a> {
    name: &'a str,
    arguments: &'a Value,
}

impl<'a> Call<'a> {
    fn new(call: &'a Value) -> Call<'a> {
        let function = call.get("function").unwrap_or(call);
        let name = function.get("name").and_then(Value::as_str);
        let arguments = function.get("arguments").or_else(|| function.get("input"));
        Call {
            name: name.unwrap_or_default(),
            arguments: arguments.unwrap_or(&Value::Null),
        }
    }

    fn is_well_formed(&self) -> bool {
        let has_object = match self.arguments {
            Value::String(text) => serde_json::from_str::<serde_json::Map<_, Value>>(text).is_ok(),
            value => value.is_object(),
        };
        has_object && !self.name.is_empty()
    }
}

/// The calls in the format of any API: `function: { name, arguments }`, or `name` with `arguments` or `input`.
fn tool_calls(calls: &Value) -> Vec<Call<'_>> {
    let calls = calls.as_array().map_or(&[][..], Vec::as_slice);
    calls.iter().map(Call::new).collect()
}

#[cfg(test)]
mod tests;
