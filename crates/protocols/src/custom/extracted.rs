//! What the paths select in the messages of one response.

use crate::accumulator::{Accumulator, ContentKind, MAX_CHOICES};
use crate::custom::paths::{End, Path, Paths};
use crate::custom::tree::{IN_EVENT, IN_WHOLE, tree};
use crate::decoder::Assembly;
use crate::error::words_of;
use crate::framing::Event;
use crate::{Events, Reply};
use llmscen_core::outcome::{Failure, FailureKind, Finish, Usage};
use serde_json::Value;
use std::borrow::Cow;
use std::sync::Arc;

/// What the messages of one response add up to.
pub struct Extracted {
    paths: Arc<Paths>,
    accumulator: Accumulator,
    done: bool,
}

/// The numbers of the choices in one event, each with the place where it stands, in the order of these.
struct Choices(Vec<(String, u32)>);

impl Choices {
    /// The choice that the value at this place belongs to: the one whose number stands nearest to it.
    fn of(&self, place: &str) -> u32 {
        let shared = |(own, _): &(String, u32)| place.bytes().zip(own.bytes()).take_while(|(one, other)| one == other).count();
        // What shares the longest beginning stands beside the place in the order, and the first that shares it counts.
        let at = self.0.partition_point(|(own, _)| own.as_str() < place);
        let beside = self.0.get(at.saturating_sub(1)..).unwrap_or_default().iter().take(2);
        let longest = beside.map(shared).max().unwrap_or(0);
        let beginning = place.as_bytes().get(..longest).unwrap_or_default();
        let first = self.0.partition_point(|(own, _)| own.as_bytes() < beginning);
        self.0.get(first).map_or(0, |(_, choice)| *choice)
    }
}

impl Extracted {
    /// Nothing yet.
    pub fn new(paths: Arc<Paths>, keep_text: bool) -> Extracted {
        Extracted { paths, accumulator: Accumulator::new(keep_text), done: false }
    }

    fn add(&mut self, value: &Value) -> Result<(), Failure> {
        let paths = Arc::clone(&self.paths);
        let choices = self.choices(&paths, value)?;
        if let Some(id) = paths.id.as_ref().and_then(|path| path.first(value)) {
            self.accumulator.set_id_text(&said(id));
        }
        for node in paths.text.iter().flat_map(|path| path.select(value)) {
            let text = said(node.val);
            if !text.is_empty() {
                let choice = choices.of(&node.path);
                self.accumulator.mark(choice, ContentKind::Answer)?;
                self.accumulator.keep(choice, ContentKind::Answer, &text)?;
            }
        }
        for node in paths.finish.iter().flat_map(|path| path.select(value)).filter(|node| says_yes(node.val)) {
            self.accumulator.choice(choices.of(&node.path))?.set_finish_reason(&said(node.val));
        }
        let only = match (&paths.choice, choices.0.as_slice()) {
            (None, _) => Some(0),
            (_, [(_, choice)]) => Some(*choice),
            _ => None,
        };
        self.accumulator.add_usage(only, usage(&paths.usage, value))?;
        if let Some(End::Value(path, equals)) = &paths.done {
            self.done |=
                path.select(value).iter().any(|node| equals.as_ref().map_or(says_yes(node.val), |wanted| wanted == node.val));
        }
        match paths.error.as_ref().and_then(|path| path.select(value).into_iter().find(|node| is_error(node.val))) {
            Some(node) => Err(Failure::new(FailureKind::StreamError, words_of(node.val.to_string().as_bytes()))),
            None => Ok(()),
        }
    }

    fn choices(&mut self, paths: &Paths, value: &Value) -> Result<Choices, Failure> {
        let nodes = paths.choice.as_ref().map(|path| path.select(value)).unwrap_or_default();
        if nodes.len() > MAX_CHOICES {
            return Err(Failure::new(FailureKind::Decode, format!("more than {MAX_CHOICES} choices in one response")));
        }
        let mut numbered: Vec<_> = nodes.into_iter().map(|node| (node.path, number_of(node.val))).collect();
        numbered.sort_unstable();
        numbered.iter().try_for_each(|(_, choice)| self.accumulator.choice(*choice).map(drop))?;
        Ok(Choices(numbered))
    }
}

/// A choice's number; anything else is the first one.
fn number_of(value: &Value) -> u32 {
    let number = value.as_u64().or_else(|| value.as_str()?.parse().ok());
    number.and_then(|number| u32::try_from(number).ok()).unwrap_or(0)
}

/// A value as text: a string as it is, anything else as JSON; null and what holds nothing is empty.
fn said(value: &Value) -> Cow<'_, str> {
    match value {
        Value::String(text) => Cow::Borrowed(text),
        Value::Null => Cow::Borrowed(""),
        Value::Array(values) if values.is_empty() => Cow::Borrowed(""),
        Value::Object(fields) if fields.is_empty() => Cow::Borrowed(""),
        other => Cow::Owned(other.to_string()),
    }
}

fn says_yes(value: &Value) -> bool {
    !matches!(value, Value::Null | Value::Bool(false))
}

/// Servers fill the place of an error with null, false or an empty text while there is none.
fn is_error(value: &Value) -> bool {
    says_yes(value) && !said(value).is_empty()
}

fn usage([prompt, output, reasoning, cached]: &[Option<Path>; 4], value: &Value) -> Usage {
    let count = |path: &Option<Path>| path.as_ref()?.select(value).into_iter().find_map(|node| node.val.as_u64());
    Usage { prompt: count(prompt), output: count(output), reasoning: count(reasoning), cached: count(cached) }
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
        // The data of an end marker may be no JSON.
        let added = match tree(event.data, IN_EVENT) {
            Ok(value) => self.add(&value),
            Err(_) if marker => Ok(()),
            Err(failure) => Err(failure),
        };
        self.accumulator.emit_pending(events);
        self.done |= marker;
        events.done = self.done;
        added
    }

    fn bare(&mut self, name: &[u8], events: &mut Events) {
        self.done |= matches!(&self.paths.done, Some(End::Event(end)) if end == name);
        events.done = self.done;
    }

    fn whole(&mut self, body: &[u8]) -> Result<(), Failure> {
        self.add(&tree(body, IN_WHOLE)?)
    }

    /// A stream is complete with its end marker, or with a reason for every choice; where the scenario names neither, with
    /// the end of the body.
    fn ending(&self, streamed: bool) -> Result<Finish, Failure> {
        if !streamed || self.done {
            return self.accumulator.ending();
        }
        match self.paths.finish {
            Some(_) => self.accumulator.ending_with_reasons(),
            None if self.paths.done.is_some() => {
                Err(Failure::new(FailureKind::Truncated, "the stream ended without its end marker"))
            }
            None => self.accumulator.ending(),
        }
    }

    fn weights(&self) -> Vec<u32> {
        self.accumulator.weights()
    }

    fn reply(self, end: Result<Finish, Failure>) -> Reply {
        self.accumulator.into_reply(end, |_| None)
    }
}
