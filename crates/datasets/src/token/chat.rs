//! Chat templates, which convert messages to the text that a model reads.
//!
//! A template is Jinja in the dialect of Hugging Face's `apply_chat_template`, rendered with `add_generation_prompt`:
//! with trimmed blocks, `break` and `continue`, methods of Python's `str` and `dict`, `raise_exception`,
//! `strftime_now`, and `tojson` in the format of Python. The time of `strftime_now` is always 26 July 2024, 00:00, so
//! that messages have the same count on every day; the dates of a server have as many digits.

use llmscen_core::bounds::{self, Template};
use minijinja::value::{Kwargs, Serde};
use minijinja::{Error, ErrorKind, Value as Jinja, syntax::SyntaxConfig};
use serde::Serialize;
use serde_json::ser::{Formatter, PrettyFormatter, Serializer};
use serde_json::{Map, Value, json};
use std::io::{self, Write};

/// Special tokens of a tokenizer_config.json that a template may use.
const SPECIAL_TOKENS: [&str; 7] = [
    "bos_token",
    "eos_token",
    "unk_token",
    "pad_token",
    "sep_token",
    "cls_token",
    "mask_token",
];

/// A compiled chat template.
#[derive(Debug)]
pub struct ChatTemplate {
    template: Template,
    /// The template iterates over the parts of a content, as those of multimodal models do; otherwise contents are
    /// plain text.
    uses_parts: bool,
}

impl ChatTemplate {
    /// Compiles a template. `config` is the tokenizer_config.json, for the special tokens.
    ///
    /// # Errors
    /// The message of the template engine.
    pub fn new(source: &str, config: &Map<String, Value>) -> Result<ChatTemplate, String> {
        let source = replace_generation_tags(source);
        bounds::check_depth(&source).map_err(|(at, message)| {
            let line = source[..at.start].matches('\n').count() + 1;
            format!("{message} (line {line})")
        })?;
        let uses_parts = loops_over_content(&source);
        let mut environment = bounds::environment();
        let mut syntax = SyntaxConfig::builder();
        syntax.trim_blocks(true).lstrip_blocks(true);
        environment.set_syntax(syntax.build().map_err(|error| error.to_string())?);
        environment
            .set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
        environment.add_filter("tojson", tojson);
        environment.add_function("strftime_now", |format: String| strftime(&format));
        environment.add_function(
            "raise_exception",
            |message: String| -> Result<Jinja, Error> {
                Err(Error::new(ErrorKind::InvalidOperation, message))
            },
        );
        for name in SPECIAL_TOKENS {
            let given = config.get(name);
            if let Some(token) =
                given.and_then(|value| value.get("content").unwrap_or(value).as_str())
            {
                environment.add_global(name, token.to_owned());
            }
        }
        Ok(ChatTemplate {
            template: Template::new(environment, source).map_err(|error| describe(&error))?,
            uses_parts,
        })
    }

    /// The text that the model reads before its reply. `tools` are those of the request.
    ///
    /// # Errors
    /// The message of the template, which may reject roles or their order.
    pub fn render(&self, messages: &[Value], tools: Option<&Value>) -> Result<String, String> {
        let messages: Vec<Value> = messages
            .iter()
            .map(|message| self.normalize(message))
            .collect();
        let context = json!({ "messages": messages, "tools": tools, "documents": null, "add_generation_prompt": true });
        let text = self.template.render(Jinja::from(Serde(&context)));
        text.map_err(|error| describe(&error))
    }

    /// A message as servers pass it to the template: its content in the form that the template reads, the arguments
    /// of tool calls parsed.
    fn normalize(&self, message: &Value) -> Value {
        let mut message = message.clone();
        let text = text_of(&message);
        let Some(fields) = message.as_object_mut() else {
            return message;
        };
        match fields.get("content") {
            Some(Value::Array(_)) if self.uses_parts => {}
            _ if self.uses_parts && text.is_empty() => {
                _ = fields.insert("content".into(), json!([]))
            }
            _ if self.uses_parts => {
                _ = fields.insert("content".into(), json!([{ "type": "text", "text": text }]))
            }
            Some(Value::String(_)) => {}
            _ => _ = fields.insert("content".into(), json!(text)),
        }
        for call in fields
            .get_mut("tool_calls")
            .and_then(Value::as_array_mut)
            .into_iter()
            .flatten()
        {
            if let Some(arguments) = call.pointer_mut("/function/arguments")
                && let Some(parsed) = arguments
                    .as_str()
                    .and_then(|text| serde_json::from_str(text).ok())
            {
                *arguments = parsed;
            }
        }
        message
    }
}

/// The text of a message: its content, or its text parts, one per line.
pub fn text_of(message: &Value) -> String {
    match message.get("content") {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(parts)) => parts
            .iter()
            .filter_map(|part| part.get("text")?.as_str())
            .collect::<Vec<_>>()
            .join("\n"),
        _ => String::new(),
    }
}

/// The message and the line, without the excerpt.
fn describe(error: &Error) -> String {
    let detail = error
        .detail()
        .map_or_else(|| error.kind().to_string(), str::to_owned);
    match error.line() {
        Some(line) => format!("{detail} (line {line})"),
        None => detail,
    }
}

/// The tags of a template, each with the text before it. The last item is the text after the last tag.
fn split_tags(source: &str) -> impl Iterator<Item = (&str, Option<&str>)> {
    let mut rest = Some(source);
    std::iter::from_fn(move || {
        let text = rest.take()?;
        let found = text
            .split_once("{%")
            .and_then(|(before, tag)| Some((before, tag.split_once("%}")?)));
        let Some((before, (tag, after))) = found else {
            return Some((text, None));
        };
        rest = Some(after);
        Some((before, Some(tag)))
    })
}

/// Replaces `{% generation %}`, which marks generated text for training and renders its content, by an `if` that is
/// always true.
fn replace_generation_tags(source: &str) -> String {
    let mut plain = String::with_capacity(source.len());
    for (before, tag) in split_tags(source) {
        plain.push_str(before);
        if let Some(tag) = tag {
            let tag = match tag.trim_matches(['-', '+', ' ']) {
                "generation" => tag.replace("generation", "if true"),
                "endgeneration" => tag.replace("endgeneration", "endif"),
                _ => tag.to_owned(),
            };
            plain.extend(["{%", tag.as_str(), "%}"]);
        }
    }
    plain
}

/// Whether there is a loop over `content`, by which servers recognize templates that need parts.
fn loops_over_content(source: &str) -> bool {
    let loops = split_tags(source)
        .filter_map(|(_, tag)| tag?.trim_matches(['-', '+', ' ']).strip_prefix("for "));
    let mut over = loops.filter_map(|each| {
        each.split_once(" in ")?
            .1
            .split([' ', '|'])
            .find(|word| !word.is_empty())
    });
    over.any(|list| list.trim_end_matches(['\'', '"', ']']).ends_with("content"))
}

/// `json.dumps` with the defaults of Hugging Face: no HTML escapes, no ASCII escapes, a blank after `,` and `:`.
/// Supports `indent`, `sort_keys` and `ensure_ascii`.
fn tojson(Serde(mut json): Serde<Value>, options: Kwargs) -> Result<String, Error> {
    let invalid =
        |error: serde_json::Error| Error::new(ErrorKind::InvalidOperation, error.to_string());
    let indent: Option<usize> = options.get("indent")?;
    let ascii: Option<bool> = options.get("ensure_ascii")?;
    let sorted: Option<bool> = options.get("sort_keys")?;
    options.assert_all_used()?;
    if sorted == Some(true) {
        json.sort_all_objects();
    }
    let text = match indent {
        Some(width) => write_json(
            &json,
            PrettyFormatter::with_indent(" ".repeat(width).as_bytes()),
        ),
        None => write_json(&json, PythonSpacing),
    };
    let text = text.map_err(invalid)?;
    Ok(if ascii == Some(true) {
        escape_non_ascii(&text)
    } else {
        text
    })
}

fn write_json(json: &Value, formatter: impl Formatter) -> serde_json::Result<String> {
    let mut bytes = Vec::new();
    json.serialize(&mut Serializer::with_formatter(&mut bytes, formatter))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// A blank after each separator.
struct PythonSpacing;

impl Formatter for PythonSpacing {
    fn begin_array_value<W: ?Sized + Write>(
        &mut self,
        writer: &mut W,
        first: bool,
    ) -> io::Result<()> {
        if first {
            Ok(())
        } else {
            writer.write_all(b", ")
        }
    }

    fn begin_object_key<W: ?Sized + Write>(
        &mut self,
        writer: &mut W,
        first: bool,
    ) -> io::Result<()> {
        if first {
            Ok(())
        } else {
            writer.write_all(b", ")
        }
    }

    fn begin_object_value<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        writer.write_all(b": ")
    }
}

fn escape_non_ascii(text: &str) -> String {
    let mut ascii = String::with_capacity(text.len());
    let mut units = [0; 2];
    for letter in text.chars() {
        match letter.is_ascii() {
            true => ascii.push(letter),
            false => letter
                .encode_utf16(&mut units)
                .iter()
                .for_each(|unit| ascii.push_str(&format!("\\u{unit:04x}"))),
        }
    }
    ascii
}

/// `strftime` of Friday, 26 July 2024, 00:00:00. A directive that is not known stays as it is.
fn strftime(format: &str) -> String {
    let mut out = String::new();
    let mut letters = format.chars();
    while let Some(letter) = letters.next() {
        if letter != '%' {
            out.push(letter);
            continue;
        }
        let (mut directive, mut padded) = (letters.next(), true);
        if directive == Some('-') {
            (directive, padded) = (letters.next(), false);
        }
        let word = match directive {
            Some('d' | 'e') => "26",
            Some('b' | 'h') => "Jul",
            Some('B') => "July",
            Some('m') => {
                if padded {
                    "07"
                } else {
                    "7"
                }
            }
            Some('Y') => "2024",
            Some('y') => "24",
            Some('a') => "Fri",
            Some('A') => "Friday",
            Some('j') => "208",
            Some('H' | 'M' | 'S') => {
                if padded {
                    "00"
                } else {
                    "0"
                }
            }
            Some('I') => "12",
            Some('p') => "AM",
            Some('F') => "2024-07-26",
            Some('T') => "00:00:00",
            Some('%') => "%",
            Some(other) => {
                out.push('%');
                out.push(other);
                continue;
            }
            None => "%",
        };
        out.push_str(word);
    }
    out
}

#[cfg(test)]
mod tests;
