//! The answers of one response: texts, finish reasons and counts, choice by choice.

use crate::assembly::complete;
use crate::chunk::{Raw, text_of};
use crate::tally::GIVEN_UP;
use crate::usage::{latest, together};
use crate::{Events, Message, Reply};
use llmscen_core::outcome::{Failure, FailureKind, Finish, ServerTimes, Usage};
use serde_json::Value;
use serde_json::value::RawValue;

/// Choices that are told apart; a server that numbers on and on must not fill the memory.
pub const CHOICES: usize = 1024;

/// What kind of text a text is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// In front of the answer.
    Reasoning,
    /// The answer.
    Content,
    /// Name and arguments of tool calls.
    Call,
}

#[derive(Debug, Default)]
struct Answer {
    index: u32,
    reason: Option<String>,
    usage: Usage,
    message: Message,
    calls: String,
    /// What content of it the event that is being read holds; [`Part::Reasoning`] where it holds nothing else.
    fresh: Option<Part>,
    /// Its tokens so far, and those when content last arrived.
    running: u64,
    counted: u64,
}

/// What the messages of one response say of its answers.
#[derive(Debug, Default)]
pub struct Answers {
    keep_text: bool,
    id: Option<String>,
    answers: Vec<Answer>,
    content: bool,
    /// An event had content and no running count that told its tokens.
    untold: bool,
    /// Reports of usage that belong to no single choice: how many, the latest, and their sum.
    reports: usize,
    total: Usage,
    sum: Usage,
    server: ServerTimes,
}

impl Answers {
    /// Nothing yet.
    pub fn new(keep_text: bool) -> Answers {
        Answers { keep_text, ..Answers::default() }
    }

    /// Whether texts are kept.
    pub fn keeps_text(&self) -> bool {
        self.keep_text
    }

    /// The response's id; the first one that is not empty stays.
    pub fn id(&mut self, id: &str) {
        if self.id.is_none() && !id.is_empty() {
            self.id = Some(id.to_owned());
        }
    }

    /// The server's own times.
    pub fn server(&mut self, times: ServerTimes) {
        self.server = times;
    }

    /// The answer with this number. Answers stay in the order of their numbers.
    fn answer(&mut self, index: u32) -> Result<&mut Answer, Failure> {
        let place = self.answers.partition_point(|answer| answer.index < index);
        if self.answers.get(place).is_none_or(|answer| answer.index != index) {
            if self.answers.len() == CHOICES {
                return Err(Failure::new(FailureKind::Decode, format!("more than {CHOICES} choices in one response")));
            }
            self.answers.insert(place, Answer { index, ..Answer::default() });
        }
        Ok(&mut self.answers[place])
    }

    /// There is a choice of this number.
    ///
    /// # Errors
    /// `decode`: there are too many. The same holds for everything else that names a choice.
    pub fn touch(&mut self, choice: u32) -> Result<(), Failure> {
        self.answer(choice).map(drop)
    }

    /// Content of this choice arrived.
    pub fn mark(&mut self, choice: u32, part: Part) -> Result<(), Failure> {
        let fresh = &mut self.answer(choice)?.fresh;
        *fresh = fresh.filter(|seen| *seen != Part::Reasoning).or(Some(part));
        self.content = true;
        Ok(())
    }

    /// Keeps a text that was marked.
    pub fn keep(&mut self, choice: u32, part: Part, text: &str) -> Result<(), Failure> {
        if self.keep_text {
            let answer = self.answer(choice)?;
            match part {
                Part::Reasoning => answer.message.reasoning.push_str(text),
                Part::Content => answer.message.content.push_str(text),
                Part::Call => answer.calls.push_str(text),
            }
        }
        Ok(())
    }

    /// Marks and keeps a JSON string that is not empty; anything else is no text. It is decoded only if it is kept.
    pub fn text(&mut self, choice: u32, part: Part, raw: Raw<'_>) -> Result<(), Failure> {
        let Some(raw) = raw.filter(|raw| is_text(raw)) else {
            return Ok(());
        };
        self.mark(choice, part)?;
        match self.keep_text {
            true => self.keep(choice, part, &text_of(raw)),
            false => Ok(()),
        }
    }

    /// The tool calls of the first choice, whole.
    pub fn calls(&mut self, calls: Vec<Value>) {
        if let Some(first) = self.answers.first_mut().filter(|_| !calls.is_empty()) {
            first.message.tool_calls = Value::Array(calls);
        }
    }

    /// Why a choice ended; empty: it has not. The first reason stays.
    pub fn reason(&mut self, choice: u32, reason: &str) -> Result<(), Failure> {
        let answer = self.answer(choice)?;
        if answer.reason.is_none() && !reason.is_empty() {
            answer.reason = Some(reason.to_owned());
        }
        Ok(())
    }

    /// Counts beside a single choice are its running counts; any others are counts of the request.
    pub fn usage(&mut self, choice: Option<u32>, usage: Usage) -> Result<(), Failure> {
        if usage == Usage::default() {
            return Ok(());
        }
        let Some(choice) = choice else {
            self.reports += 1;
            self.total = latest(self.total, usage);
            self.sum = together(self.sum, usage);
            return Ok(());
        };
        let answer = self.answer(choice)?;
        answer.usage = latest(answer.usage, usage);
        answer.running = usage.output.unwrap_or(answer.running);
        Ok(())
    }

    /// The tokens of a choice so far, where they are not part of its usage.
    pub fn running(&mut self, choice: u32, tokens: u64) -> Result<(), Failure> {
        self.answer(choice)?.running = tokens;
        Ok(())
    }

    /// The event is read: each choice with new content counts, with its tokens where a running count has told them all.
    pub fn arrived(&mut self, events: &mut Events) {
        for answer in &mut self.answers {
            match answer.fresh.take() {
                None => continue,
                Some(Part::Reasoning) => events.reasoning_token(answer.index),
                Some(Part::Content | Part::Call) => events.token(answer.index),
            }
            let tokens = answer.running.checked_sub(answer.counted).and_then(|tokens| u32::try_from(tokens).ok());
            match tokens.filter(|tokens| *tokens > 0 && !self.untold) {
                Some(tokens) => events.weights.push(tokens),
                None => {
                    self.untold = true;
                    events.weights = Vec::new();
                }
            }
            answer.counted = answer.running;
        }
    }

    /// Whether there was no choice at all.
    pub fn is_empty(&self) -> bool {
        self.answers.is_empty()
    }

    /// A choice that has no finish reason.
    pub fn unfinished(&self) -> Option<u32> {
        self.answers.iter().find(|answer| answer.reason.is_none()).map(|answer| answer.index)
    }

    /// How a response ended that has all that its protocol demands of a complete one.
    ///
    /// # Errors
    /// `stream_error` where the server gave up, `empty` where there is neither content nor a finish reason.
    pub fn ending(&self) -> Result<Finish, Failure> {
        let mut reasons = self.answers.iter().filter_map(|answer| answer.reason.as_deref());
        if let Some(reason) = reasons.clone().find(|reason| GIVEN_UP.contains(reason)) {
            return Err(Failure::new(FailureKind::StreamError, format!("the server finished with `{reason}`")));
        }
        complete(reasons.next(), self.content)
    }

    /// The counts of the whole request: one total, or one count a choice, in events of their own or beside its texts.
    fn counts(&self) -> Usage {
        let of_choices = self.answers.iter().map(|answer| answer.usage).fold(Usage::default(), together);
        match self.reports {
            0 => of_choices,
            reports if reports > 1 && reports == self.answers.len() => latest(of_choices, self.sum),
            _ => latest(of_choices, self.total),
        }
    }

    /// The reply, with this end.
    pub fn reply(self, end: Result<Finish, Failure>) -> Reply {
        let (usage, silent) = (self.counts(), !self.content);
        let texts = self.answers.iter().flat_map(|answer| [&answer.message.reasoning, &answer.message.content, &answer.calls]);
        let text = self.keep_text.then(|| texts.map(String::as_str).collect());
        let first = self.answers.into_iter().next().map(|answer| answer.message);
        let message = self.keep_text.then(|| first.unwrap_or_default());
        Reply { end, usage, id: self.id, text, message, server: self.server, items: None, silent }
    }
}

/// A JSON string that is not empty.
pub fn is_text(raw: &RawValue) -> bool {
    raw.get().starts_with('"') && raw.get().len() > 2
}

/// A whole number; anything else is absent.
pub fn number(raw: Raw<'_>) -> Option<u64> {
    raw?.get().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Events with content of choice 0 and this running count.
    fn weights(counts: &[Option<u64>]) -> Vec<u32> {
        let (mut answers, mut events) = (Answers::new(false), Events::default());
        for count in counts {
            answers.mark(0, Part::Content).unwrap();
            answers.usage(Some(0), Usage { output: *count, ..Usage::default() }).unwrap();
            answers.arrived(&mut events);
        }
        assert_eq!(events.content as usize, counts.len());
        events.weights
    }

    #[test]
    fn tokens_of_an_event_are_told_by_running_counts_or_not_at_all() {
        assert_eq!(weights(&[Some(1), Some(4), Some(5)]), [1, 3, 1]);
        assert_eq!(weights(&[Some(1), None, Some(5)]), [0u32; 0]);
        assert_eq!(weights(&[Some(1), Some(1)]), [0u32; 0]);
        assert_eq!(weights(&[Some(2), Some(1)]), [0u32; 0]);
        assert_eq!(weights(&[None]), [0u32; 0]);
    }

    #[test]
    fn choices_are_bounded() {
        let mut answers = Answers::new(false);
        (0..1024).for_each(|choice| answers.touch(choice).unwrap());
        assert!(answers.touch(3).is_ok());
        assert_eq!(answers.touch(1024).unwrap_err().message, "more than 1024 choices in one response");
    }

    #[test]
    fn the_text_is_that_of_all_choices_and_the_message_that_of_the_first() {
        let mut answers = Answers::new(true);
        for (choice, part, text) in
            [(1, Part::Content, "x"), (0, Part::Content, "b"), (0, Part::Reasoning, "a"), (0, Part::Call, "f")]
        {
            answers.keep(choice, part, text).unwrap();
        }
        let reply = answers.reply(Ok(Finish::default()));
        assert_eq!(reply.text.as_deref(), Some("abfx"));
        let message = Message { content: "b".into(), reasoning: "a".into(), tool_calls: Value::Null };
        assert_eq!(reply.message, Some(message));
    }
}
