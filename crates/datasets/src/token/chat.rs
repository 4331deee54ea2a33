//! Chat templates: what a model reads for a list of messages.
//!
//! A template is Jinja in the dialect of Hugging Face's `apply_chat_template`, rendered with `add_generation_prompt`:
//! blocks trimmed, `break` and `continue`, the methods of Python's texts and maps, `raise_exception`, `strftime_now`,
//! and `tojson` as Python writes JSON. The clock of `strftime_now` is fixed at 26 July 2024, 00:00, so that the
//! same messages have the same count on every day; the date of a server has as many digits.

use llmscen_core::bounds;
use minijinja::value::{Kwargs, Serde};
use minijinja::{Environment, Error, ErrorKind, Value as Jinja, syntax::SyntaxConfig};
use serde::Serialize;
use serde_json::ser::{Formatter, PrettyFormatter, Serializer};
use serde_json::{Map, Value, json};
use std::io::{self, Write};

/// Tokens that a tokenizer_config.json names and a template may use.
const NAMED: [&str; 7] = ["bos_token", "eos_token", "unk_token", "pad_token", "sep_token", "cls_token", "mask_token"];
/// What the template is called in errors.
const NAME: &str = "chat_template";

/// A chat template, compiled.
#[derive(Debug)]
pub struct ChatTemplate {
    environment: Environment<'static>,
    /// It walks through the parts of a content, as those of models that see do; otherwise contents are plain text.
    parts: bool,
}

impl ChatTemplate {
    /// Compiles a template. `config` is the tokenizer_config.json, for the tokens it names.
    ///
    /// # Errors
    /// What the template engine said.
    pub fn new(source: &str, config: &Map<String, Value>) -> Result<ChatTemplate, String> {
        let source = plain_tags(source);
        bounds::check_depth(&source).map_err(|(at, message)| {
            let line = source[..at.start].matches('\n').count() + 1;
            format!("{message} (line {line})")
        })?;
        let parts = walks_parts(&source);
        let mut environment = bounds::environment();
        let mut syntax = SyntaxConfig::builder();
        syntax.trim_blocks(true).lstrip_blocks(true);
        environment.set_syntax(syntax.build().map_err(|error| error.to_string())?);
        environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
        environment.add_filter("tojson", tojson);
        environment.add_function("strftime_now", |format: String| strftime(&format));
        environment.add_function("raise_exception", |message: String| -> Result<Jinja, Error> {
            Err(Error::new(ErrorKind::InvalidOperation, message))
        });
        for name in NAMED {
            let given = config.get(name);
            if let Some(token) = given.and_then(|value| value.get("content").unwrap_or(value).as_str()) {
                environment.add_global(name, token.to_owned());
            }
        }
        environment.add_template_owned(NAME, source).map_err(|error| reason(&error))?;
        Ok(ChatTemplate { environment, parts })
    }

    /// What the model reads, up to where its reply begins. `tools` are those of the request.
    ///
    /// # Errors
    /// What the template said: it may refuse roles, or their order.
    pub fn render(&self, messages: &[Value], tools: Option<&Value>) -> Result<String, String> {
        let messages: Vec<Value> = messages.iter().map(|message| self.prepared(message)).collect();
        let context = json!({ "messages": messages, "tools": tools, "documents": null, "add_generation_prompt": true });
        let template = self.environment.get_template(NAME).map_err(|error| reason(&error))?;
        bounds::render(&template, Jinja::from(Serde(&context))).map_err(|error| reason(&error))
    }

    /// A message as servers hand it to the template: its content in the one form that the template reads, the
    /// arguments of tool calls as data.
    fn prepared(&self, message: &Value) -> Value {
        let mut message = message.clone();
        let text = text_of(&message);
        let Some(fields) = message.as_object_mut() else { return message };
        match fields.get("content") {
            Some(Value::Array(_)) if self.parts => {}
            _ if self.parts && text.is_empty() => _ = fields.insert("content".into(), json!([])),
            _ if self.parts => _ = fields.insert("content".into(), json!([{ "type": "text", "text": text }])),
            Some(Value::String(_)) => {}
            _ => _ = fields.insert("content".into(), json!(text)),
        }
        for call in fields.get_mut("tool_calls").and_then(Value::as_array_mut).into_iter().flatten() {
            if let Some(arguments) = call.pointer_mut("/function/arguments")
                && let Some(parsed) = arguments.as_str().and_then(|text| serde_json::from_str(text).ok())
            {
                *arguments = parsed;
            }
        }
        message
    }
}

/// The text of a message: its content, or the text parts of it, a line each.
pub fn text_of(message: &Value) -> String {
    match message.get("content") {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(parts)) => parts.iter().filter_map(|part| part.get("text")?.as_str()).collect::<Vec<_>>().join("\n"),
        _ => String::new(),
    }
}

/// The message and where in the template it is, without the excerpt.
fn reason(error: &Error) -> String {
    let detail = error.detail().map_or_else(|| error.kind().to_string(), str::to_owned);
    match error.line() {
        Some(line) => format!("{detail} (line {line})"),
        None => detail,
    }
}

/// The tags of a template, each with the text before it; None is the text after the last.
fn tags(source: &str) -> impl Iterator<Item = (&str, Option<&str>)> {
    let mut rest = Some(source);
    std::iter::from_fn(move || {
        let text = rest.take()?;
        let found = text.split_once("{%").and_then(|(before, tag)| Some((before, tag.split_once("%}")?)));
        let Some((before, (tag, after))) = found else { return Some((text, None)) };
        rest = Some(after);
        Some((before, Some(tag)))
    })
}

/// `{% generation %}` marks what was generated, for training: it renders its content, so it becomes an `if`
/// that is always true and keeps its blanks.
fn plain_tags(source: &str) -> String {
    let mut plain = String::with_capacity(source.len());
    for (before, tag) in tags(source) {
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

/// Whether there is a loop over a `content`, by which servers recognize templates that want parts.
fn walks_parts(source: &str) -> bool {
    let loops = tags(source).filter_map(|(_, tag)| tag?.trim_matches(['-', '+', ' ']).strip_prefix("for "));
    let mut over = loops.filter_map(|each| each.split_once(" in ")?.1.split([' ', '|']).find(|word| !word.is_empty()));
    over.any(|list| list.trim_end_matches(['\'', '"', ']']).ends_with("content"))
}

/// `json.dumps`, as Hugging Face calls it: nothing escaped for HTML, non-ASCII letters as they are, a blank behind `,`
/// and `:`. Takes `indent`, `sort_keys` and `ensure_ascii`.
fn tojson(Serde(mut json): Serde<Value>, options: Kwargs) -> Result<String, Error> {
    let wrong = |error: serde_json::Error| Error::new(ErrorKind::InvalidOperation, error.to_string());
    let indent: Option<usize> = options.get("indent")?;
    let ascii: Option<bool> = options.get("ensure_ascii")?;
    let sorted: Option<bool> = options.get("sort_keys")?;
    options.assert_all_used()?;
    if sorted == Some(true) {
        json.sort_all_objects();
    }
    let text = match indent {
        Some(width) => written(&json, PrettyFormatter::with_indent(" ".repeat(width).as_bytes())),
        None => written(&json, OneLine),
    };
    let text = text.map_err(wrong)?;
    Ok(if ascii == Some(true) { in_ascii(&text) } else { text })
}

fn written(json: &Value, formatter: impl Formatter) -> serde_json::Result<String> {
    let mut bytes = Vec::new();
    json.serialize(&mut Serializer::with_formatter(&mut bytes, formatter))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// A blank behind each separator.
struct OneLine;

impl Formatter for OneLine {
    fn begin_array_value<W: ?Sized + Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        if first { Ok(()) } else { writer.write_all(b", ") }
    }

    fn begin_object_key<W: ?Sized + Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        if first { Ok(()) } else { writer.write_all(b", ") }
    }

    fn begin_object_value<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        writer.write_all(b": ")
    }
}

fn in_ascii(text: &str) -> String {
    let mut ascii = String::with_capacity(text.len());
    let mut units = [0; 2];
    for letter in text.chars() {
        match letter.is_ascii() {
            true => ascii.push(letter),
            false => letter.encode_utf16(&mut units).iter().for_each(|unit| ascii.push_str(&format!("\\u{unit:04x}"))),
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
