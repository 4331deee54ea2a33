//! The bytes of one answer, token by token: as a stream of events, or whole at its end.

use crate::model::seed::Seed;
use crate::model::simulator::Faults;
use crate::sim::ask::{Api, Ask};
use crate::sim::chaos::Strike;
use crate::sim::http;
use crate::sim::reply::{self, Frames, Part};

/// An answer in the making. It knows no time and no socket: bytes are appended to a buffer that others send.
#[derive(Debug)]
pub(super) struct Body {
    ask: Ask,
    id: String,
    faults: Faults,
    /// Seed of the text, and the answer's number.
    source: (Seed, u64),
    frames: Frames,
    /// Tokens taken from the engine.
    made: u64,
    /// Tokens that stand in `text` and in no event yet.
    pending: u64,
    text: String,
    thoughts: String,
    /// Events of text so far.
    events: u64,
    /// Events formed since the last write.
    unsent: u32,
    close: bool,
}

impl Body {
    /// An empty answer; `close` says that the connection ends with it.
    pub(super) fn new(mut ask: Ask, id: &str, faults: &Faults, source: (Seed, u64), close: bool) -> Body {
        ask.usage &= !faults.no_usage;
        let frames = Frames::new(&ask, id);
        let (id, faults) = (id.to_owned(), faults.clone());
        let (text, thoughts) = (String::new(), String::new());
        Body { ask, id, faults, source, frames, made: 0, pending: 0, text, thoughts, events: 0, unsent: 0, close }
    }

    /// What a stream sends as soon as the request is accepted; nothing for a whole answer.
    pub(super) fn open(&self, to: &mut Vec<u8>) {
        if self.ask.stream {
            let framing = http::Framing::Chunked;
            http::head(to, 200, "text/event-stream; charset=utf-8", &framing, (Some(&self.id), self.close));
            if self.ask.api == Api::Chat && self.faults.role_chunk {
                self.frames.role(to);
            }
        }
    }

    /// Adds the next token, and with the last one all that ends the answer.
    pub(super) fn token(&mut self, to: &mut Vec<u8>) {
        self.text.push_str(reply::word(self.source.0, self.source.1, self.made));
        self.made += 1;
        self.pending += 1;
        if !self.ask.stream {
            self.whole_token(to);
        } else if self.pending >= u64::from(self.faults.tokens_per_chunk) || self.made == self.reasoning() || self.complete() {
            self.event(to);
        }
        if self.ask.stream && self.complete() {
            self.finish(to);
        }
    }

    /// Breaks the answer off before its next token.
    pub(super) fn cut(&mut self, strike: Strike, to: &mut Vec<u8>) {
        match (self.ask.stream, strike) {
            (false, Strike::StreamError) => http::json(to, 200, &reply::error(&reply::broken()), (Some(&self.id), self.close)),
            (false, _) => self.half(to),
            (true, _) => {
                if self.pending > 0 {
                    self.event(to);
                }
                match strike {
                    Strike::StreamError => {
                        reply::stream_error(to);
                        reply::done(to);
                        reply::last_chunk(to);
                    }
                    Strike::Truncate => reply::last_chunk(to),
                    _ => {}
                }
            }
        }
    }

    /// Tokens made so far.
    pub(super) fn made(&self) -> u64 {
        self.made
    }

    /// Tokens that stand in the bytes formed so far.
    pub(super) fn formed(&self) -> u64 {
        self.made - self.pending
    }

    /// Whether the last token was made.
    pub(super) fn complete(&self) -> bool {
        self.made == self.ask.output
    }

    /// Whether enough events are formed for a write; forgets them if so.
    pub(super) fn due(&mut self) -> bool {
        let due = self.unsent >= self.faults.coalesce.max(1) || self.complete();
        self.unsent = if due { 0 } else { self.unsent };
        due
    }

    /// What was asked for.
    pub(super) fn ask(&self) -> &Ask {
        &self.ask
    }

    /// Whether the connection ends with the answer.
    pub(super) fn closes(&self) -> bool {
        self.close
    }

    /// Tokens of reasoning in front; completions have none.
    fn reasoning(&self) -> u64 {
        match self.ask.api {
            Api::Chat => u64::from(self.faults.reasoning_tokens).min(self.ask.output),
            Api::Completions => 0,
        }
    }

    fn event(&mut self, to: &mut Vec<u8>) {
        let part = if self.made <= self.reasoning() { Part::Reasoning } else { Part::Content };
        let role = self.events == 0 && !self.faults.role_chunk;
        self.events += 1;
        if self.faults.comment_every > 0 && self.events.is_multiple_of(u64::from(self.faults.comment_every)) {
            reply::comment(to);
        }
        self.frames.text(to, (part, &self.text), role, self.complete());
        self.text.clear();
        self.pending = 0;
        self.unsent += 1;
    }

    fn finish(&self, to: &mut Vec<u8>) {
        if self.ask.usage {
            self.frames.usage(to, &self.ask, self.reasoning());
        }
        reply::done(to);
        reply::last_chunk(to);
    }

    fn whole_token(&mut self, to: &mut Vec<u8>) {
        if self.made == self.reasoning() {
            self.thoughts = std::mem::take(&mut self.text);
        }
        if self.complete() {
            self.pending = 0;
            http::json(to, 200, &self.whole(), (Some(&self.id), self.close));
        }
    }

    /// The head of a whole answer and half of its body.
    fn half(&self, to: &mut Vec<u8>) {
        let body = self.whole();
        http::head(to, 200, http::JSON, &http::Framing::Length(body.len()), (Some(&self.id), self.close));
        to.extend_from_slice(&body.as_bytes()[..body.len() / 2]);
    }

    fn whole(&self) -> String {
        reply::whole(&self.ask, &self.id, (&self.thoughts, self.reasoning()), &self.text)
    }
}
