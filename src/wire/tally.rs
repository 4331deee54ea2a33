//! What the chunks of one response add up to.

use crate::model::outcome::{Failure, FailureKind, Finish, ServerTimes, Usage};
use crate::wire::assembly::{Assembly, nothing, unreadable};
use crate::wire::chunk::{Choice, Chunk, text_of};
use crate::wire::error::words_of;
use crate::wire::sse::Event;
use crate::wire::usage::{latest, together, usage_of};
use crate::wire::{Events, Reply};

/// Finish reasons by which vLLM and SGLang say that the generation was given up, not that it is complete.
pub const GIVEN_UP: [&str; 2] = ["abort", "error"];

/// One of `n` answers.
#[derive(Debug, Default)]
struct Answer {
    index: u32,
    reason: Option<String>,
    usage: Usage,
    text: String,
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
}

impl Tally {
    /// Nothing yet.
    pub fn new(keep_text: bool) -> Tally {
        Tally { keep_text, ..Tally::default() }
    }

    /// Adds the JSON of one event or of a whole reply, and says whether it holds generated content.
    ///
    /// # Errors
    /// `stream_error` with the server's words where it reports an error; `decode` where this is not the protocol's JSON.
    pub fn add_json(&mut self, json: &[u8]) -> Result<bool, Failure> {
        match (serde_json::from_slice::<Chunk>(json), std::str::from_utf8(json)) {
            (Ok(chunk), _) => self.add(&chunk, json),
            (Err(error), Ok(_)) => Err(unreadable(&error, json)),
            // The standard reads a stream as UTF-8 with replacement characters.
            (Err(_), Err(_)) => {
                let text = String::from_utf8_lossy(json);
                let chunk = serde_json::from_str::<Chunk>(&text).map_err(|error| unreadable(&error, json))?;
                self.add(&chunk, json)
            }
        }
    }

    fn add(&mut self, chunk: &Chunk, json: &[u8]) -> Result<bool, Failure> {
        if self.id.is_none() {
            self.id = chunk.id.map(|raw| text_of(raw).into_owned()).filter(|id| !id.is_empty());
        }
        let mut content = false;
        for choice in chunk.choices.iter().flat_map(|choices| choices.iter()) {
            content |= self.add_choice(choice);
        }
        self.content |= content;
        self.add_usage(chunk);
        match chunk.error.is_some() || chunk.object.is_some_and(|object| object.get() == r#""error""#) {
            true => Err(Failure::new(FailureKind::StreamError, words_of(json))),
            false => Ok(content),
        }
    }

    fn add_choice(&mut self, choice: &Choice) -> bool {
        let keep_text = self.keep_text;
        let answer = self.answer(choice.index.unwrap_or(0));
        if answer.reason.is_none() {
            answer.reason = choice.finish_reason.map(|raw| text_of(raw).into_owned()).filter(|reason| !reason.is_empty());
        }
        let mut content = false;
        for raw in choice.texts() {
            content = true;
            if keep_text {
                answer.text.push_str(&text_of(raw));
            }
        }
        content
    }

    /// The answer with this number. Answers stay in the order of their numbers.
    fn answer(&mut self, index: u32) -> &mut Answer {
        let place = self.answers.partition_point(|answer| answer.index < index);
        if self.answers.get(place).is_none_or(|answer| answer.index != index) {
            self.answers.insert(place, Answer { index, ..Answer::default() });
        }
        &mut self.answers[place]
    }

    /// Usage beside exactly one choice is that choice's running count; any other is a count of the request.
    fn add_usage(&mut self, chunk: &Chunk) {
        let Some(usage) = chunk.usage.map(usage_of) else {
            return;
        };
        let mut choices = chunk.choices.iter().flat_map(|choices| choices.iter());
        if let (Some(choice), None) = (choices.next(), choices.next()) {
            let answer = self.answer(choice.index.unwrap_or(0));
            answer.usage = latest(answer.usage, usage);
            return;
        }
        self.reports += 1;
        self.total = latest(self.total, usage);
        self.sum = together(self.sum, usage);
    }

    /// The counts of the whole request.
    ///
    /// vLLM sends one total after the last choice; llama-server sends one count a choice, each in an event of its own, and
    /// beside the last text of each choice in text completions.
    fn usage(&self) -> Usage {
        let of_choices = self.answers.iter().map(|answer| answer.usage).fold(Usage::default(), together);
        match self.reports {
            0 => of_choices,
            reports if reports > 1 && reports == self.answers.len() => latest(of_choices, self.sum),
            _ => latest(of_choices, self.total),
        }
    }
}

impl Assembly for Tally {
    /// `transformers serve` never sends `[DONE]`, so a body that came to its end with a finish reason for every choice is
    /// complete without it. `[DONE]` without these reasons is not.
    fn event(&mut self, event: Event<'_>, events: &mut Events) -> Result<(), Failure> {
        if event.data == b"[DONE]" {
            events.done = true;
        } else if self.add_json(event.data)? {
            events.token(0);
        }
        Ok(())
    }

    fn whole(&mut self, body: &[u8]) -> Result<(), Failure> {
        self.add_json(body).map(drop)
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
        match self.content {
            true => Ok(Finish { reason: reasons.next().unwrap_or_default().to_owned() }),
            false => Err(nothing()),
        }
    }

    fn reply(self, end: Result<Finish, Failure>) -> Reply {
        let usage = self.usage();
        let text = self.keep_text.then(|| self.answers.iter().map(|answer| answer.text.as_str()).collect());
        Reply { end, usage, id: self.id, text, message: None, server: ServerTimes::default(), items: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(events: &[&str]) -> Tally {
        let mut tally = Tally::new(true);
        for event in events {
            tally.add_json(event.as_bytes()).unwrap();
        }
        tally
    }

    fn output(events: &[&str]) -> Option<u64> {
        tally(events).usage().output
    }

    #[test]
    fn usage_is_the_last_one_or_the_sum_of_one_a_choice() {
        let one = r#"{"choices":[{"index":0}],"usage":{"completion_tokens":3}}"#;
        let two = r#"{"choices":[{"index":1}],"usage":{"completion_tokens":4}}"#;
        let more = r#"{"choices":[{"index":1}],"usage":{"completion_tokens":5}}"#;
        let alone = r#"{"choices":[],"usage":{"completion_tokens":7}}"#;
        assert_eq!(output(&[one]), Some(3));
        assert_eq!(output(&[one, alone]), Some(7));
        assert_eq!(output(&[one, alone, alone]), Some(7), "the same total twice");
        assert_eq!(output(&[one, two, more]), Some(8), "one running count a choice");
        assert_eq!(output(&[one, two, alone]), Some(7), "running counts, then the total");
        assert_eq!(output(&[one, two, alone, alone]), Some(14), "one count a choice");
        assert_eq!(output(&[r#"{"choices":[{"index":0},{"index":1}],"usage":{"completion_tokens":9}}"#]), Some(9));
        assert_eq!(output(&[r#"{"choices":[{"index":0}],"usage":null}"#]), None);
    }

    #[test]
    fn text_is_kept_choice_by_choice() {
        let reply = tally(&[
            r#"{"id":"","choices":[{"index":1,"delta":{"content":"x"}}]}"#,
            r#"{"id":"r","choices":[{"index":0,"delta":{"content":"a"}}]}"#,
            r#"{"id":"s","choices":[{"index":1,"delta":{"content":"y"}}]}"#,
            r#"{"id":"r","choices":[{"index":0,"delta":{"content":"b"}}]}"#,
        ]);
        let reply = reply.reply(Ok(Finish::default()));
        assert_eq!((reply.text.as_deref(), reply.id.as_deref()), (Some("abxy"), Some("r")));
    }

    #[test]
    fn every_choice_needs_a_reason_that_is_none_of_giving_up() {
        let kind = |events: &[&str]| tally(events).ending(true).map(|finish| finish.reason).map_err(|failure| failure.kind);
        let open = r#"{"choices":[{"index":1,"text":"a","finish_reason":""}]}"#;
        let stop = r#"{"choices":[{"index":0,"text":"a","finish_reason":"stop"}]}"#;
        let length = r#"{"choices":[{"index":1,"text":"","finish_reason":"length"}]}"#;
        let abort = r#"{"choices":[{"index":1,"text":"","finish_reason":"abort"}]}"#;
        assert_eq!(kind(&[stop, open]), Err(FailureKind::Truncated));
        assert_eq!(kind(&[open, length, stop]), Ok("stop".to_owned()));
        assert_eq!(kind(&[stop, abort]), Err(FailureKind::StreamError));
        assert_eq!(kind(&[length]), Err(FailureKind::Empty));
    }

    #[test]
    fn bytes_that_are_no_utf8_are_replaced() {
        let mut tally = Tally::new(true);
        assert_eq!(tally.add_json(b"{\"choices\":[{\"text\":\"a\xFFb\"}]}"), Ok(true));
        assert_eq!(tally.reply(Ok(Finish::default())).text.as_deref(), Some("a\u{FFFD}b"));
    }
}
