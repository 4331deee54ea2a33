//! The bytes of one answer, token by token: as a stream of events, or whole at its end.

use crate::apis::{ChoiceText, Part, Piece, Reply, Times};
use crate::chaos::Strike;
use crate::generation::Generation;
use crate::http;
use llmscen_core::seed::Seed;
use llmscen_core::simulator::Faults;

/// An answer in the making. It knows no clock and no socket: bytes are appended to a buffer that others send.
#[derive(Debug)]
pub(super) struct Body {
    generation: Generation,
    id: String,
    reply: Box<dyn Reply>,
    /// Tokens in one event, events in one write, and events between comments, 0 for no comments.
    per_event: u64,
    per_write: u32,
    per_comment: u64,
    /// Of the text.
    seed: Seed,
    choices: Vec<Choice>,
    times: Times,
    /// Tokens taken from the engine.
    made: u64,
    /// Tokens that are in no event yet.
    pending: u64,
    /// Events of text so far.
    events: u64,
    /// Events formed since the last write.
    unsent: u32,
    close: bool,
}

/// One choice of the answer.
#[derive(Debug, Default)]
struct Choice {
    made: u64,
    pending: u64,
    /// Text that is in no event yet; of a whole answer its part so far.
    text: String,
    thoughts: String,
}

impl Body {
    /// An empty answer; `seed` is that of its text, and `close` says that the connection ends with it.
    pub(super) fn new(
        (generation, reply): (Generation, Box<dyn Reply>),
        id: &str,
        faults: &Faults,
        seed: Seed,
        close: bool,
    ) -> Body {
        Body {
            choices: (0..generation.choices).map(|_| Choice::default()).collect(),
            generation,
            id: id.to_owned(),
            reply,
            per_event: u64::from(faults.tokens_per_chunk),
            per_write: faults.coalesce.max(1),
            per_comment: u64::from(faults.comment_every),
            seed,
            times: Times::default(),
            made: 0,
            pending: 0,
            events: 0,
            unsent: 0,
            close,
        }
    }

    /// What a stream sends as soon as the request is accepted; nothing for a whole answer.
    pub(super) fn open(&mut self, to: &mut Vec<u8>) {
        if self.generation.stream {
            let framing = http::Framing::Chunked;
            http::head(to, 200, self.reply.content_type(), &framing, (Some(&self.id), self.close));
            self.reply.open(to, &self.generation);
        }
    }

    /// Adds the next token of a choice, and with the last one of all what ends the answer.
    pub(super) fn token(&mut self, choice: usize, to: &mut Vec<u8>) {
        let Some(own) = self.choices.get_mut(choice) else { return };
        own.text.push_str(word(self.seed, choice, own.made));
        own.made += 1;
        own.pending += 1;
        self.made += 1;
        self.pending += 1;
        let turns = own.made == self.generation.reasoning;
        let due = own.pending >= self.per_event || turns || own.made == self.generation.output;
        match self.generation.stream {
            true if due => self.event(choice, to),
            false if turns => own.thoughts = std::mem::take(&mut own.text),
            _ => {}
        }
        if self.complete() {
            self.finish(to);
        }
    }

    /// Notes when the engine gave a token.
    pub(super) fn stamp(&mut self, times: Times) {
        self.times = times;
    }

    /// Breaks the answer off before its next token.
    pub(super) fn cut(&mut self, strike: Strike, to: &mut Vec<u8>) {
        let about = (Some(self.id.as_str()), self.close);
        match (self.generation.stream, strike) {
            (false, Strike::StreamError) => http::json(to, 200, &self.reply.broken(&self.generation), about),
            (false, _) => {
                let body = self.full_answer();
                http::head(to, 200, http::JSON, &http::Framing::Length(body.len()), about);
                to.extend_from_slice(&body.as_bytes()[..body.len() / 2]);
            }
            (true, _) => {
                for choice in 0..self.choices.len() {
                    if self.choices[choice].pending > 0 {
                        self.event(choice, to);
                    }
                }
                if strike == Strike::StreamError {
                    self.reply.fail(to, &self.generation);
                }
                if matches!(strike, Strike::StreamError | Strike::Truncate) {
                    http::last_chunk(to);
                }
            }
        }
    }

    /// Tokens made so far.
    pub(super) fn made(&self) -> u64 {
        self.made
    }

    /// Tokens that are in the bytes formed so far.
    pub(super) fn formed(&self) -> u64 {
        self.made - self.pending
    }

    /// Whether the last token was made.
    pub(super) fn complete(&self) -> bool {
        self.made == self.generation.total()
    }

    /// Whether enough events are formed for a write; forgets them if so.
    pub(super) fn due(&mut self) -> bool {
        let due = self.unsent >= self.per_write || self.complete();
        self.unsent = if due { 0 } else { self.unsent };
        due
    }

    /// What was requested.
    pub(super) fn generation(&self) -> &Generation {
        &self.generation
    }

    /// Whether the connection ends with the answer.
    pub(super) fn closes(&self) -> bool {
        self.close
    }

    /// Forms the event of all text of a choice that is in none yet. It is never of two parts.
    fn event(&mut self, choice: usize, to: &mut Vec<u8>) {
        self.events += 1;
        if self.per_comment > 0 && self.events.is_multiple_of(self.per_comment) {
            self.reply.comment(to);
        }
        let Some(own) = self.choices.get_mut(choice) else { return };
        let (before, made, reasoning) = (own.made - own.pending, own.made, self.generation.reasoning);
        let last = made == self.generation.output;
        let piece = Piece {
            choice,
            part: if made <= reasoning { Part::Reasoning } else { Part::Content },
            text: &own.text,
            made,
            first: before == 0,
            opens: before == 0 || before == reasoning,
            closes: made == reasoning || last,
            last,
        };
        self.reply.text(to, &self.generation, &piece);
        self.pending -= own.pending;
        own.pending = 0;
        own.text.clear();
        self.unsent += 1;
    }

    fn finish(&mut self, to: &mut Vec<u8>) {
        if self.generation.stream {
            self.reply.finish(to, &self.generation, self.times);
            http::last_chunk(to);
            return;
        }
        self.pending = 0;
        http::json(to, 200, &self.full_answer(), (Some(&self.id), self.close));
    }

    fn full_answer(&self) -> String {
        let text = |choice: &Choice| ChoiceText { thoughts: choice.thoughts.clone(), text: choice.text.clone() };
        let choices: Vec<ChoiceText> = self.choices.iter().map(text).collect();
        self.reply.full_answer(&self.generation, &choices, self.times)
    }
}

const WORDS: [&str; 32] = [
    " the", " of", " and", " to", " in", " is", " that", " it", " was", " for", " on", " are", " with", " as", " at", " be",
    " this", " from", " or", " had", " by", " not", " word", " but", " what", " some", " we", " can", " out", " other", " all",
    " when",
];

/// Token `index` of a choice of the answer whose seed this is: one short word with a space in front.
pub(super) fn word(answer: Seed, choice: usize, index: u64) -> &'static str {
    let branch = index ^ ((choice as u64) << 56);
    WORDS[(answer.child(branch).0 % WORDS.len() as u64) as usize]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_depend_on_answer_choice_and_index() {
        let text = |seed, choice| (0..50).map(|index| word(Seed(seed), choice, index)).collect::<String>();
        assert_eq!(text(1, 0), text(1, 0));
        assert_ne!(text(1, 0), text(2, 0));
        assert_ne!(text(1, 0), text(1, 1));
    }
}
