//! What the chunks of one response add up to.

use crate::answers::is_text;
use crate::assembly::{Assembly, complete, unreadable};
use crate::chunk::{Choice, Chunk, Part, Raw, ToolCall, text_of};
use crate::delta_fast_path::{Alike, is_plain, string};
use crate::error::words_of;
use crate::incremental_usage::Running;
use crate::message_text::{Call, Said};
use crate::one_or_many::Few;
use crate::sse::Event;
use crate::timings::{longest, timings_of};
use crate::usage::{latest, most, together, usage_of};
use crate::{Events, Reply};
use llmscen_core::outcome::{Failure, FailureKind, Finish, ServerTimes, Usage};
use serde_json::value::RawValue;
use serde_json::{Value, json};

/// Finish reasons by which vLLM and SGLang say that the generation was given up, not that it is complete.
pub const GIVEN_UP: [&str; 2] = ["abort", "error"];
/// The most choices of one response, eight times what OpenAI allows: a server that numbers on must not fill the memory.
const CHOICES: usize = 1024;

/// One of `n` answers.
#[derive(Debug, Default)]
struct Answer {
    index: u32,
    reason: Option<String>,
    usage: Usage,
    said: Said,
}

/// What the chunks of one response add up to.
#[derive(Debug, Default)]
pub struct Tally {
    keep_text: bool,
    id: Option<String>,
    answers: Vec<Answer>,
    content: bool,
    /// Reports of usage that belong to no single choice: how many, the latest, and their sum.
    reports: usize,
    total: Usage,
    sum: Usage,
    running: Running,
    server: ServerTimes,
    /// The latest event that was a text and nothing else, and what its text was.
    alike: Alike,
    text: Option<(u32, Part)>,
}

impl Tally {
    /// Nothing yet.
    pub fn new(keep_text: bool) -> Tally {
        Tally { keep_text, ..Tally::default() }
    }

    /// Adds the JSON of one event or of a whole reply, and to `events` each choice that it has generated content of.
    ///
    /// # Errors
    /// `stream_error` with the server's words where it reports an error; `decode` where this is not the protocol's JSON.
    pub fn add_json(&mut self, json: &[u8], events: &mut Events) -> Result<(), Failure> {
        if self.add_alike(json, events) {
            return Ok(());
        }
        match (serde_json::from_slice::<Chunk>(json), std::str::from_utf8(json)) {
            (Ok(chunk), _) => {
                let added = self.add(&chunk, json, events);
                self.learn(&chunk, json, added.is_ok());
                added
            }
            (Err(error), Ok(_)) => Err(unreadable(&error, json)),
            // The standard reads a stream as UTF-8 with replacement characters.
            (Err(_), Err(_)) => {
                let text = String::from_utf8_lossy(json);
                let chunk = serde_json::from_str::<Chunk>(&text).map_err(|error| unreadable(&error, json))?;
                self.add(&chunk, json, events)
            }
        }
    }

    /// Adds an event that differs from an earlier one in its text alone; false where it is not known to be one.
    fn add_alike(&mut self, json: &[u8], events: &mut Events) -> bool {
        let (Some((choice, part)), Some(text)) = (self.text, self.alike.inside(json)) else { return false };
        if self.keep_text || !is_plain(text) {
            let (keeps, Some(raw)) = (self.keep_text, string(text)) else { return false };
            match self.answer(choice) {
                Ok(answer) if keeps => keep(&mut answer.said, part, raw),
                _ => {}
            }
        }
        self.running.content(choice, None);
        match part {
            Part::Reasoning => events.reasoning_token(choice),
            _ => events.token(choice),
        }
        true
    }

    /// Takes an event as the pattern of those that follow, where it is the text of one choice and nothing else.
    fn learn(&mut self, chunk: &Chunk, json: &[u8], good: bool) {
        let mut choices = chunk.choices.iter().flat_map(Few::iter);
        let alone =
            choices.next().filter(|_| choices.next().is_none() && good && chunk.usage.is_none() && chunk.timings.is_none());
        let pattern = alone.filter(|choice| choice.finish_reason.is_none()).and_then(|choice| {
            let mut parts = choice.parts();
            let (part, raw) = parts.next().filter(|_| parts.next().is_none())?;
            let told = matches!(part, Part::Content | Part::Reasoning) && is_text(raw) && !choice.has_calls();
            told.then(|| (number_of(choice), part, raw))
        });
        match pattern {
            Some((choice, part, raw)) => {
                self.text = Some((choice, part));
                self.alike.learn(json, raw);
            }
            None => self.alike.forget(),
        }
    }

    fn add(&mut self, chunk: &Chunk, json: &[u8], events: &mut Events) -> Result<(), Failure> {
        if self.id.is_none() {
            self.id = chunk.id.map(|raw| text_of(raw).into_owned()).filter(|id| !id.is_empty());
        }
        let usage = chunk.usage.map(usage_of);
        let mut choices = chunk.choices.iter().flat_map(|choices| choices.iter());
        let (first, second) = (choices.next(), choices.next());
        let alone = first.filter(|_| second.is_none()).map(number_of);
        for choice in first.into_iter().chain(second).chain(choices) {
            if let Some(part) = self.add_choice(choice, json)? {
                let count = alone.and(usage).and_then(|usage| usage.output);
                self.running.content(number_of(choice), count);
                self.content = true;
                match part {
                    Part::Reasoning => events.reasoning_token(number_of(choice)),
                    _ => events.token(number_of(choice)),
                }
            }
        }
        if let Some(usage) = usage {
            self.add_usage(usage, alone)?;
        }
        if let Some(raw) = chunk.timings {
            self.server = longest(self.server, timings_of(raw));
        }
        match chunk.error.is_some() || chunk.object.is_some_and(|object| object.get() == r#""error""#) {
            true => Err(Failure::new(FailureKind::StreamError, words_of(json))),
            false => Ok(()),
        }
    }

    /// Which generated content the choice brings: [`Part::Reasoning`] where it brings nothing else.
    fn add_choice(&mut self, choice: &Choice, json: &[u8]) -> Result<Option<Part>, Failure> {
        let keep_text = self.keep_text;
        let answer = self.answer(number_of(choice))?;
        if answer.reason.is_none() {
            answer.reason = choice.finish_reason.map(|raw| text_of(raw).into_owned()).filter(|reason| !reason.is_empty());
        }
        let calls = choice.calls().map_err(|error| unreadable(&error, json))?;
        let calls = || calls.iter().flat_map(Few::iter);
        if keep_text {
            choice.parts().for_each(|(part, raw)| keep(&mut answer.said, part, raw));
            calls().for_each(|call| keep_call(&mut answer.said, call));
        }
        let called = calls().any(|call| call.name().or(call.input()).is_some()).then_some(Part::Function);
        let mut parts = choice.parts().map(|(part, _)| part);
        let first = parts.next();
        Ok(parts.find(|_| first == Some(Part::Reasoning)).or(called).or(first))
    }

    /// The answer with this number. Answers stay in the order of their numbers.
    fn answer(&mut self, index: u32) -> Result<&mut Answer, Failure> {
        let place = self.answers.partition_point(|answer| answer.index < index);
        if self.answers.get(place).is_none_or(|answer| answer.index != index) {
            if self.answers.len() == CHOICES {
                return Err(Failure::new(FailureKind::Decode, format!("more than {CHOICES} choices")));
            }
            self.answers.insert(place, Answer { index, ..Answer::default() });
        }
        Ok(&mut self.answers[place])
    }

    /// Usage beside exactly one choice is a running count; any other is a count of the request.
    fn add_usage(&mut self, usage: Usage, alone: Option<u32>) -> Result<(), Failure> {
        if let Some(index) = alone {
            let answer = self.answer(index)?;
            answer.usage = latest(answer.usage, usage);
            return Ok(());
        }
        self.reports += 1;
        self.total = latest(self.total, usage);
        self.sum = together(self.sum, usage);
        Ok(())
    }

    /// The counts of the whole request.
    ///
    /// vLLM sends one total after the last choice; llama-server sends one count a choice, each in an event of its own, and
    /// beside the last text of each choice in text completions.
    fn usage(&self) -> Usage {
        let join = if self.running.counts_the_request(self.total.output) { most } else { together };
        let of_choices = self.answers.iter().map(|answer| answer.usage).fold(Usage::default(), join);
        match self.reports {
            0 => of_choices,
            reports if reports > 1 && reports == self.answers.len() => latest(of_choices, self.sum),
            _ => latest(of_choices, self.total),
        }
    }
}

fn number_of(choice: &Choice) -> u32 {
    choice.index.unwrap_or(0)
}

/// Keeps a text of a choice.
fn keep(said: &mut Said, part: Part, raw: &RawValue) {
    match part {
        Part::Content => said.add_content(raw),
        Part::Reasoning => said.reasoning.push_str(&text_of(raw)),
        Part::Refusal => said.refusal.push_str(&text_of(raw)),
        Part::Function => said.function.push_str(&text_of(raw)),
        Part::Sound => {}
    }
}

/// Keeps a tool call, or the part of one that is here.
fn keep_call(said: &mut Said, piece: &ToolCall) {
    let id = piece.id.map(text_of).unwrap_or_default();
    let call = said.calls.entry(piece.index.unwrap_or_else(|| unnumbered(said, &id))).or_default();
    let once = |place: &mut String, raw: Raw| {
        if let (true, Some(raw)) = (place.is_empty(), raw) {
            place.push_str(&text_of(raw));
        }
    };
    once(&mut call.id, piece.id);
    once(&mut call.kind, piece.kind);
    once(&mut call.name, piece.name());
    call.input.push_str(&piece.input().map(text_of).unwrap_or_default());
}

/// The number of a call whose server gives none: a new id begins a new call, anything else goes on with the latest.
fn unnumbered(said: &Said, id: &str) -> u32 {
    match said.latest_call() {
        Some((latest, call)) if !id.is_empty() && call.id != id => latest.saturating_add(1),
        Some((latest, _)) => latest,
        None => 0,
    }
}

/// A call as a whole reply holds it, and as it is sent back.
fn whole_call(call: Call) -> Option<Value> {
    let kind = if call.kind.is_empty() { "function" } else { &call.kind };
    let input = if kind == "custom" { "input" } else { "arguments" };
    Some(json!({ "id": call.id, "type": kind, kind: { "name": call.name, input: call.input } }))
}

impl Assembly for Tally {
    /// `transformers serve` never sends `[DONE]`, so a body that came to its end with a finish reason for every choice is
    /// complete without it. `[DONE]` without these reasons is not.
    fn event(&mut self, event: Event<'_>, events: &mut Events) -> Result<(), Failure> {
        if event.data == b"[DONE]" {
            events.done = true;
            return Ok(());
        }
        self.add_json(event.data, events)
    }

    fn whole(&mut self, body: &[u8]) -> Result<(), Failure> {
        self.add_json(body, &mut Events::default())
    }

    /// A stream must give a reason for every choice.
    fn ending(&self, streamed: bool) -> Result<Finish, Failure> {
        match (self.answers.is_empty(), streamed) {
            (true, true) => return Err(Failure::new(FailureKind::Truncated, "the stream ended before its first choice")),
            (true, false) => return Err(Failure::new(FailureKind::Decode, "the reply has no choices")),
            _ => {}
        }
        if let Some(answer) = self.answers.iter().find(|answer| streamed && answer.reason.is_none()) {
            let message = format!("the stream ended without a finish reason for choice {}", answer.index);
            return Err(Failure::new(FailureKind::Truncated, message));
        }
        let mut reasons = self.answers.iter().filter_map(|answer| answer.reason.as_deref());
        if let Some(reason) = reasons.clone().find(|reason| GIVEN_UP.contains(reason)) {
            return Err(Failure::new(FailureKind::StreamError, format!("the server finished with `{reason}`")));
        }
        complete(reasons.next(), self.content)
    }

    fn weights(&self) -> Vec<u32> {
        self.running.weights(self.total.output)
    }

    fn reply(self, end: Result<Finish, Failure>) -> Reply {
        let (usage, silent) = (self.usage(), !self.content);
        let (mut text, mut message) = (None, None);
        if self.keep_text {
            let all = text.insert(String::new());
            self.answers.iter().for_each(|answer| answer.said.tell(all));
            let first = self.answers.into_iter().next().unwrap_or_default();
            message = Some(first.said.message(whole_call));
        }
        Reply { end, usage, id: self.id, text, message, server: self.server, items: None, silent }
    }
}

#[cfg(test)]
mod tests;
