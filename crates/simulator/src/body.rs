//! The bytes of one response: a stream of events, or a single document at its end.

use crate::apis::{ChoiceText, Part, Piece, Reply, Times};
use crate::chaos::Strike;
use crate::generation::Generation;
use crate::prompt::Prompt;
use crate::{http, websocket};
use llmscen_core::seed::Seed;
use llmscen_core::simulator::Faults;

/// The state of a response. Without clock and socket: it appends bytes to a buffer.
#[derive(Debug)]
pub(super) struct Body {
    generation: Generation,
    id: String,
    reply: Box<dyn Reply>,
    /// Tokens per event, events per write, and events between comments (0 for no comments).
    per_event: u64,
    per_write: u32,
    per_comment: u64,
    /// Seed of the text.
    seed: Seed,
    choices: Vec<Choice>,
    times: Times,
    /// Tokens received from the engine.
    made: u64,
    /// Tokens that are not in an event yet.
    pending: u64,
    /// Events of text so far.
    events: u64,
    /// Events rendered since the last write.
    unsent: u32,
    close: bool,
}

/// One choice of the response.
#[derive(Debug, Default)]
struct Choice {
    made: u64,
    pending: u64,
    /// Text that is not in an event yet; without streaming, all text of the current part.
    text: String,
    thoughts: String,
}

impl Body {
    /// A new response; `seed` is for its text, `close` closes the connection after it.
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

    fn about(&self) -> http::About<'_> {
        http::About {
            id: Some(&self.id),
            close: self.close,
            replica: self.generation.replica,
        }
    }

    /// Renders what a stream sends when the request is accepted; nothing without streaming.
    pub(super) fn open(&mut self, to: &mut Vec<u8>) {
        if self.generation.stream {
            if !self.generation.websocket {
                let framing = http::Framing::Chunked;
                http::head(to, 200, self.reply.content_type(), &framing, self.about());
            }
            self.reply.open(to, &self.generation);
        }
    }

    /// Adds the next token of a choice; after the last token, also the end of the response.
    pub(super) fn token(&mut self, choice: usize, to: &mut Vec<u8>) {
        let Some(state) = self.choices.get_mut(choice) else {
            return;
        };
        let text = text_of(&self.generation, self.seed, choice, state.made);
        state.text.push_str(text);
        state.made += 1;
        state.pending += 1;
        self.made += 1;
        self.pending += 1;
        let turns = state.made == self.generation.reasoning;
        let due = state.pending >= self.per_event || turns || state.made == self.generation.output;
        match self.generation.stream {
            true if due => self.event(choice, to),
            false if turns => state.thoughts = std::mem::take(&mut state.text),
            _ => {}
        }
        if self.complete() {
            self.finish(to);
        }
    }

    /// The id of the response and its prompt, followed by its answer.
    pub(super) fn conversation(&self) -> (&str, Prompt) {
        let generation = &self.generation;
        let mut prompt = generation.prompt.clone();
        let answer: String = (generation.reasoning..generation.output)
            .map(|index| text_of(generation, self.seed, 0, index))
            .collect();
        // The text is escaped for JSON.
        let answer: Option<String> = serde_json::from_str(&format!("\"{answer}\"")).ok();
        prompt.text(&answer.unwrap_or_default());
        (&self.id, prompt)
    }

    /// Records the times of the newest token.
    pub(super) fn stamp(&mut self, times: Times) {
        self.times = times;
    }

    /// Ends the response before its next token, by a fault.
    pub(super) fn cut(&mut self, strike: Strike, to: &mut Vec<u8>) {
        let about = http::About {
            id: Some(&self.id),
            close: self.close,
            replica: self.generation.replica,
        };
        match (self.generation.stream, strike) {
            (false, Strike::StreamError) => {
                http::json(to, 200, &self.reply.broken(&self.generation), about)
            }
            (false, _) => {
                let body = self.full_answer();
                http::head(
                    to,
                    200,
                    http::JSON,
                    &http::Framing::Length(body.len()),
                    about,
                );
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
                if self.generation.websocket {
                    if strike == Strike::Truncate {
                        websocket::close(to, websocket::INTERNAL_ERROR);
                        self.close = true;
                    }
                } else if matches!(strike, Strike::StreamError | Strike::Truncate) {
                    http::last_chunk(to);
                }
            }
        }
    }

    /// Number of tokens so far.
    pub(super) fn made(&self) -> u64 {
        self.made
    }

    /// Number of tokens in the bytes rendered so far.
    pub(super) fn formed(&self) -> u64 {
        self.made - self.pending
    }

    /// Whether all tokens were added.
    pub(super) fn complete(&self) -> bool {
        self.made == self.generation.total()
    }

    /// Whether there are enough events for a write; resets their count if so.
    pub(super) fn due(&mut self) -> bool {
        let due = self.unsent >= self.per_write || self.complete();
        self.unsent = if due { 0 } else { self.unsent };
        due
    }

    /// The request.
    pub(super) fn generation(&self) -> &Generation {
        &self.generation
    }

    /// Whether the connection is closed after the response.
    pub(super) fn closes(&self) -> bool {
        self.close
    }

    /// Renders an event with the pending text of a choice, which belongs to one part.
    fn event(&mut self, choice: usize, to: &mut Vec<u8>) {
        self.events += 1;
        if self.per_comment > 0 && self.events.is_multiple_of(self.per_comment) {
            self.reply.comment(to);
        }
        let Some(state) = self.choices.get_mut(choice) else {
            return;
        };
        let (before, made, reasoning) = (
            state.made - state.pending,
            state.made,
            self.generation.reasoning,
        );
        let last = made == self.generation.output;
        let piece = Piece {
            choice,
            part: if made <= reasoning {
                Part::Reasoning
            } else {
                Part::Content
            },
            text: &state.text,
            made,
            first: before == 0,
            opens: before == 0 || before == reasoning,
            closes: made == reasoning || last,
            last,
        };
        self.reply.text(to, &self.generation, &piece);
        self.pending -= state.pending;
        state.pending = 0;
        state.text.clear();
        self.unsent += 1;
    }

    fn finish(&mut self, to: &mut Vec<u8>) {
        if self.generation.stream {
            self.reply.finish(to, &self.generation, self.times);
            if !self.generation.websocket {
                http::last_chunk(to);
            }
            return;
        }
        self.pending = 0;
        http::json(to, 200, &self.full_answer(), self.about());
    }

    fn full_answer(&self) -> String {
        let text = |choice: &Choice| ChoiceText {
            thoughts: choice.thoughts.clone(),
            text: choice.text.clone(),
        };
        let choices: Vec<ChoiceText> = self.choices.iter().map(text).collect();
        self.reply
            .full_answer(&self.generation, &choices, self.times)
    }
}

/// The text of token `index` of a choice.
fn text_of(generation: &Generation, seed: Seed, choice: usize, index: u64) -> &str {
    let answered = index.checked_sub(generation.reasoning);
    answered
        .zip(generation.answer.as_ref())
        .and_then(|(index, answer)| answer.get(index as usize))
        .map_or_else(|| word(seed, choice, index), String::as_str)
}

const WORDS: [&str; 32] = [
    " the", " of", " and", " to", " in", " is", " that", " it", " was", " for", " on", " are",
    " with", " as", " at", " be", " this", " from", " or", " had", " by", " not", " word", " but",
    " what", " some", " we", " can", " out", " other", " all", " when",
];

/// Token `index` of a choice: one short word after a space. `answer` is the seed of the response.
pub(super) fn word(answer: Seed, choice: usize, index: u64) -> &'static str {
    let branch = index ^ ((choice as u64) << 56);
    WORDS[(answer.child(branch).0 % WORDS.len() as u64) as usize]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_depend_on_answer_choice_and_index() {
        let text = |seed, choice| {
            (0..50)
                .map(|index| word(Seed(seed), choice, index))
                .collect::<String>()
        };
        assert_eq!(text(1, 0), text(1, 0));
        assert_ne!(text(1, 0), text(2, 0));
        assert_ne!(text(1, 0), text(1, 1));
    }
}
