//! `api: custom`: any API with JSON messages. The scenario's template is the request, its JSONPaths decode the
//! response.

use crate::accumulator::{Accumulator, MAX_CHOICES};
use crate::decoder::{Assembly, decoder_for};
use crate::error::error_text;
use crate::framing::Event;
use crate::raw_json::is_error_json;
use crate::{DecodeOptions, Decoder, Events, Protocol, Reply, framing_of_content_type};
use llmscen_core::outcome::{Failure, FailureKind, Finish, Usage};
use llmscen_core::request::{Extract, Framing};
use paths::{End, MAX_DOCUMENT_VALUES, MAX_EVENT_VALUES, Path, Paths, parse_tree};
use serde_json::{Value, json};
use std::borrow::Cow;
use std::sync::Arc;

mod paths;

/// The compiled `request.extract`.
pub struct Custom {
    framing: Option<Framing>,
    paths: Arc<Paths>,
}

impl Custom {
    /// Compiles the paths.
    ///
    /// # Errors A path is invalid: its key, the path, and the reason.
    pub fn new(extract: Option<&Extract>) -> Result<Custom, String> {
        let extract = extract.ok_or("`api: custom` needs `request.extract` to decode responses")?;
        Ok(Custom {
            framing: extract.framing,
            paths: Arc::new(Paths::new(extract)?),
        })
    }
}

/// Whether this is a JSONPath (RFC 9535).
///
/// # Errors The path is invalid: the reason and the position.
pub fn check_path(path: &str) -> Result<(), String> {
    Path::new(path).map(drop)
}

impl Protocol for Custom {
    /// Empty: a custom request needs a template.
    fn body(&self, _stream: bool) -> Value {
        json!({})
    }

    fn framing(&self, content_type: Option<&str>, asked_stream: bool) -> Result<Framing, Failure> {
        match self.framing {
            Some(framing) => Ok(framing),
            None => framing_of_content_type(content_type, asked_stream),
        }
    }

    fn has_fixed_framing(&self) -> bool {
        self.framing.is_some()
    }

    fn decoder(&self, shape: Framing, options: &DecodeOptions) -> Box<dyn Decoder> {
        let extracted = Extracted::new(Arc::clone(&self.paths), options);
        decoder_for(shape, extracted)
    }
}

#[cfg(test)]
mod tests;

/// The state of one response.
pub struct Extracted {
    paths: Arc<Paths>,
    accumulator: Accumulator,
    done: bool,
}

/// The choice indices in one event, each with its JSON path, sorted by path.
struct Choices(Vec<(String, u32)>);

impl Choices {
    /// The choice that the value at this path belongs to: the one whose index has the longest common path prefix.
    fn find(&self, path: &str) -> u32 {
        let shared = |(other, _): &(String, u32)| {
            path.bytes()
                .zip(other.bytes())
                .take_while(|(a, b)| a == b)
                .count()
        };
        // The longest common prefix is with a neighbour in sorted order; the first entry with that prefix is the
        // result.
        let at = self.0.partition_point(|(other, _)| other.as_str() < path);
        let beside = self
            .0
            .get(at.saturating_sub(1)..)
            .unwrap_or_default()
            .iter()
            .take(2);
        let longest = beside.map(shared).max().unwrap_or(0);
        let beginning = path.as_bytes().get(..longest).unwrap_or_default();
        let first = self
            .0
            .partition_point(|(other, _)| other.as_bytes() < beginning);
        self.0.get(first).map_or(0, |(_, choice)| *choice)
    }
}

impl Extracted {
    /// The state of a new response.
    pub fn new(paths: Arc<Paths>, options: &DecodeOptions) -> Extracted {
        Extracted {
            paths,
            accumulator: Accumulator::new(options),
            done: false,
        }
    }

    fn add(&mut self, value: &Value) -> Result<(), Failure> {
        let paths = Arc::clone(&self.paths);
        let choices = self.choices(&paths, value)?;
        if let Some(id) = paths.id.as_ref().and_then(|path| path.first(value)) {
            self.accumulator.set_id_text(&value_text(id));
        }
        for (path, kind) in &paths.text {
            for node in path.select(value) {
                let text = value_text(node.val);
                self.accumulator
                    .add_str(choices.find(&node.path), *kind, &text)?;
            }
        }
        for node in paths
            .finish
            .iter()
            .flat_map(|path| path.select(value))
            .filter(|node| is_set(node.val))
        {
            self.accumulator
                .choice(choices.find(&node.path))?
                .set_finish_reason(&value_text(node.val));
        }
        let only = match (&paths.choice, choices.0.as_slice()) {
            (None, _) => Some(0),
            (_, [(_, choice)]) => Some(*choice),
            _ => None,
        };
        self.accumulator
            .add_usage(only, usage(&paths.usage, value))?;
        if let Some(End::Value(path, equals)) = &paths.done {
            self.done |= path.select(value).iter().any(|node| {
                equals
                    .as_ref()
                    .map_or(is_set(node.val), |wanted| wanted == node.val)
            });
        }
        match paths.error.as_ref().and_then(|path| {
            path.select(value)
                .into_iter()
                .find(|node| is_error_json(&node.val.to_string()))
        }) {
            Some(node) => Err(Failure::new(
                FailureKind::StreamError,
                error_text(node.val.to_string().as_bytes()),
            )),
            None => Ok(()),
        }
    }

    fn choices(&mut self, paths: &Paths, value: &Value) -> Result<Choices, Failure> {
        let nodes = paths
            .choice
            .as_ref()
            .map(|path| path.select(value))
            .unwrap_or_default();
        if nodes.len() > MAX_CHOICES {
            return Err(Failure::new(
                FailureKind::Decode,
                format!("more than {MAX_CHOICES} choices in one response"),
            ));
        }
        let mut numbered: Vec<_> = nodes
            .into_iter()
            .map(|node| (node.path, choice_index(node.val)))
            .collect();
        numbered.sort_unstable();
        numbered
            .iter()
            .try_for_each(|(_, choice)| self.accumulator.choice(*choice).map(drop))?;
        Ok(Choices(numbered))
    }
}

/// A choice index; 0 for other values.
fn choice_index(value: &Value) -> u32 {
    let number = value.as_u64().or_else(|| value.as_str()?.parse().ok());
    number
        .and_then(|number| u32::try_from(number).ok())
        .unwrap_or(0)
}

/// A value as text: a string verbatim, anything else as JSON; empty for null and empty lists and objects.
fn value_text(value: &Value) -> Cow<'_, str> {
    match value {
        Value::String(text) => Cow::Borrowed(text),
        Value::Null => Cow::Borrowed(""),
        Value::Array(values) if values.is_empty() => Cow::Borrowed(""),
        Value::Object(fields) if fields.is_empty() => Cow::Borrowed(""),
        other => Cow::Owned(other.to_string()),
    }
}

fn is_set(value: &Value) -> bool {
    !matches!(value, Value::Null | Value::Bool(false))
}

fn usage([prompt, output, reasoning, cached]: &[Option<Path>; 4], value: &Value) -> Usage {
    let count = |path: &Option<Path>| {
        path.as_ref()?
            .select(value)
            .into_iter()
            .find_map(|node| node.val.as_u64())
    };
    Usage {
        prompt: count(prompt),
        output: count(output),
        reasoning: count(reasoning),
        cached: count(cached),
    }
}

impl Assembly for Extracted {
    fn event(&mut self, event: Event<'_>, events: &mut Events) -> Result<(), Failure> {
        let marker = match &self.paths.done {
            Some(End::Data(data)) if event.data == data => {
                (self.done, events.done) = (true, true);
                return Ok(());
            }
            Some(End::Event(name)) => event.name == name,
            _ => false,
        };
        // The data of an end marker need not be JSON.
        let added = match parse_tree(event.data, MAX_EVENT_VALUES) {
            Ok(value) => self.add(&value),
            Err(_) if marker => Ok(()),
            Err(failure) => Err(failure),
        };
        self.accumulator.emit_pending(events);
        self.done |= marker;
        events.done = self.done;
        added
    }

    fn named_event(&mut self, name: &[u8], events: &mut Events) {
        self.done |= matches!(&self.paths.done, Some(End::Event(end)) if end == name);
        events.done = self.done;
    }

    fn document(&mut self, body: &[u8]) -> Result<(), Failure> {
        self.add(&parse_tree(body, MAX_DOCUMENT_VALUES)?)
    }

    /// A stream is complete with its end marker, or with a finish reason for every choice; if the scenario defines
    /// neither, with the end of the body.
    fn ending(&self, streamed: bool) -> Result<Finish, Failure> {
        if !streamed || self.done {
            return self.accumulator.ending();
        }
        match self.paths.finish {
            Some(_) => self.accumulator.ending_with_reasons(),
            None if self.paths.done.is_some() => Err(Failure::new(
                FailureKind::Truncated,
                "the stream ended without its end marker",
            )),
            None => self.accumulator.ending(),
        }
    }

    fn counted_tokens(&self) -> u64 {
        self.accumulator.counted_tokens()
    }

    fn close(&self, events: &mut Events) {
        self.accumulator.close(events);
    }

    fn reply(self, end: Result<Finish, Failure>) -> Reply {
        self.accumulator.into_reply(end, |_| None)
    }
}
