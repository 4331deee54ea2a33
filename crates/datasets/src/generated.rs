//! Generated conversations: the lengths of their turns, and the texts of later turns.
//!
//! A session is planned as lengths alone. The text of a turn is generated when the turn is rendered, from the seed, the number of the
//! session and the turn, so that the memory does not grow with the length of sessions.

use super::Setting;
use super::error::PromptError;
use super::synthetic::{DrawnLengths, GENERATORS, Lengths, REDRAWS, SharedPrefix};
use crate::token::{TokenError, Tokenizer};
use llmscen_core::dataset::{AtLimit, ContextLimit, GeneratedSessions, Prompt, Session};
use llmscen_core::distribution::Weighted;
use llmscen_core::request::{Quantity, sample_length};
use llmscen_core::seed::Seed;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use serde_json::Map;
use std::sync::Arc;

/// A system message of exactly `tokens` tokens; None for 0.
///
/// # Errors
/// No such text was found.
pub fn system_message(
    tokens: u64,
    tokenizer: &Tokenizer,
    seed: Seed,
) -> Result<Option<String>, TokenError> {
    if tokens == 0 {
        return Ok(None);
    }
    let slot = tokenizer.plain_text_slot();
    let special = tokenizer.count_without_text(&slot);
    let mut found = Err(TokenError::NoFit {
        wanted: tokens,
        nearest: 0,
    });
    for generator in 0..GENERATORS {
        let mut rng = ChaCha8Rng::seed_from_u64(seed.child(generator).0);
        found = tokenizer.random_text(special + tokens, &slot, &mut rng);
        if found.is_ok() {
            break;
        }
    }
    found.map(Some)
}

/// The conversations of a dataset.
pub struct Conversations {
    kind: &'static str,
    sessions: GeneratedSessions,
    pairs: Option<Weighted<(u64, u64)>>,
    tokenizer: Arc<Tokenizer>,
    /// The place of a user's text without a shared prefix.
    plain: SharedPrefix,
    /// Tokens of the template around each message pair, without a system message.
    turn_tokens: u64,
    seed: Seed,
}

impl Conversations {
    /// The conversations of the dataset; None for single requests.
    ///
    /// # Errors
    /// A length that only rows have.
    pub fn open(
        kind: &'static str,
        setting: &Setting<'_>,
        seed: Seed,
    ) -> Result<Option<Conversations>, PromptError> {
        let Some(sessions) = setting.spec.generated.sessions.clone() else {
            return Ok(None);
        };
        let quantities = [
            Some(&sessions.count),
            Some(&sessions.tokens),
            sessions.max_tokens.as_ref(),
        ];
        if quantities
            .into_iter()
            .flatten()
            .any(|quantity| matches!(quantity, Quantity::Item(_)))
        {
            return Err(PromptError::Length {
                kind,
                reason:
                    "this kind of dataset has no rows with a length; use a number or a distribution"
                        .into(),
            });
        }
        let tokenizer = setting.tokenizer();
        let plain = super::message::prompt_slot(&Prompt::default(), &tokenizer, None)?;
        let turn_tokens = tokenizer.count_template(&plain);
        Ok(Some(Conversations {
            kind,
            sessions,
            pairs: setting.spec.generated.pairs.clone(),
            plain: SharedPrefix::draw(&tokenizer, &plain, 0, seed)?,
            tokenizer,
            turn_tokens,
            seed: seed.child("turns"),
        }))
    }

    /// Lengths of a first turn within the context limit. `base`: tokens of system message, template and a prefix that the lengths do not
    /// include.
    ///
    /// # Errors
    /// No length within the limit was drawn.
    pub fn draw_first(
        &self,
        lengths: &Lengths,
        base: u64,
        index: u64,
        rng: &mut ChaCha8Rng,
    ) -> Result<DrawnLengths, PromptError> {
        let mut outputs = self.rng(index, 0);
        let first = || {
            let mut drawn = lengths.draw(rng);
            drawn.max_tokens = drawn.max_tokens.or_else(|| self.output(&mut outputs));
            drawn
        };
        self.draw_within(base, first)
    }

    /// Draws until the lengths fit beside `base` tokens.
    fn draw_within(
        &self,
        base: u64,
        mut draw: impl FnMut() -> DrawnLengths,
    ) -> Result<DrawnLengths, PromptError> {
        let limit = self.sessions.limit.map_or(u64::MAX, |limit| limit.tokens);
        let fits = |drawn: &DrawnLengths| base.saturating_add(size(drawn)) <= limit;
        (0..REDRAWS)
            .map(|_| draw())
            .find(fits)
            .ok_or_else(|| PromptError::Length {
                kind: self.kind,
                reason: format!(
                    "no turn fits into `turns.context_limit` ({limit} tokens): {base} are used by system message and template, and \
                     {REDRAWS} drawn lengths exceed the rest"
                ),
            })
    }

    fn rng(&self, index: u64, turn: u64) -> ChaCha8Rng {
        ChaCha8Rng::seed_from_u64(self.seed.child(index).child(turn).0)
    }

    fn output(&self, rng: &mut ChaCha8Rng) -> Option<u64> {
        let quantity = self.sessions.max_tokens.as_ref()?;
        sample_length(quantity, &Map::new(), rng)
    }

    fn draw_later(&self, rng: &mut ChaCha8Rng) -> DrawnLengths {
        match &self.pairs {
            Some(pairs) => {
                let (tokens, output) = *pairs.draw(rng);
                DrawnLengths {
                    tokens,
                    max_tokens: Some(output),
                }
            }
            None => DrawnLengths {
                tokens: sample_length(&self.sessions.tokens, &Map::new(), rng).unwrap_or(1),
                max_tokens: self.output(rng),
            },
        }
    }

    /// The session with this first turn. Later turns have lengths, and no text yet. None if a turn does not fit into the limit.
    pub fn session(&self, first: Prompt, base: u64, index: u64) -> Option<Session> {
        let mut counts = ChaCha8Rng::seed_from_u64(self.seed.child(index).child("count").0);
        let count = sample_length(&self.sessions.count, &Map::new(), &mut counts).unwrap_or(1);
        let drawn = DrawnLengths {
            tokens: first.tokens.unwrap_or_default().saturating_sub(base),
            max_tokens: first.max_tokens,
        };
        let mut sizes = vec![size(&drawn)];
        let mut oldest = 0;
        let mut turns = vec![first];
        for turn in 1..count {
            let mut rng = self.rng(index, turn);
            // The size of a message pair includes the template around it.
            let around = base.saturating_add(self.turn_tokens);
            let drawn = self
                .draw_within(around, || self.draw_later(&mut rng))
                .ok()?;
            sizes.push(size(&drawn).saturating_add(self.turn_tokens));
            if let Some(ContextLimit { tokens, at_limit }) = self.sessions.limit {
                let used = |oldest: usize| base + sizes[oldest..].iter().sum::<u64>();
                if used(oldest) > tokens && at_limit == AtLimit::End {
                    break;
                }
                while used(oldest) > tokens && oldest + 1 < sizes.len() {
                    oldest += 1;
                }
            }
            turns.push(Prompt {
                tokens: Some(drawn.tokens),
                max_tokens: drawn.max_tokens,
                history_from: oldest as u32,
                ..Prompt::default()
            });
        }
        Some(Session { turns })
    }

    /// Writes the text of a later turn, with the tokens that [`Conversations::session`] planned.
    ///
    /// # Errors
    /// No such text was found.
    pub fn write_turn(&self, index: u64, turn: u32, prompt: &mut Prompt) -> Result<(), TokenError> {
        let total = self.plain.count() + prompt.tokens.unwrap_or(1);
        let seed = self.seed.child(index).child(u64::from(turn)).child("text");
        let mut last_error = TokenError::NoFit {
            wanted: total,
            nearest: 0,
        };
        for generator in 0..GENERATORS {
            let mut rng = ChaCha8Rng::seed_from_u64(seed.child(generator).0);
            match self.plain.continue_text(&self.tokenizer, total, &mut rng) {
                Ok(text) => {
                    prompt.text = text;
                    return Ok(());
                }
                Err(error) => last_error = error,
            }
        }
        Err(last_error)
    }
}

fn size(drawn: &DrawnLengths) -> u64 {
    drawn.tokens.saturating_add(drawn.max_tokens.unwrap_or(0))
}
