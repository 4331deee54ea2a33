//! What synthetic prompts have in common: lengths that are drawn, and a shared beginning.

use super::Setting;
use super::error::PromptError;
use super::random::GENERATORS;
use crate::token::{Slot, TokenError, Tokenizer};
use llmscen_core::request::Quantity;
use llmscen_core::seed::Seed;
use llmscen_core::stats::length_distribution::draw;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::Map;

/// Draws of a length that cannot be before it is moved to the nearest that can, and draws that are tried for the note.
const REDRAWS: usize = 1000;

fn bounds(setting: &Setting<'_>) -> (u64, u64) {
    (setting.spec.min_tokens.unwrap_or(0), setting.spec.max_tokens.unwrap_or(u64::MAX))
}

/// A length and the bounds that it stays inside of: one outside is drawn again.
#[derive(Debug)]
pub struct Lengths {
    tokens: Quantity,
    low: u64,
    high: u64,
    /// Special tokens and those of the shared prefix, of which a length must be more.
    shared: u64,
}

impl Lengths {
    /// Lengths in which `shared` tokens are taken already, and which have `around` tokens around them that `prompt_tokens` bounds too.
    ///
    /// # Errors
    /// A length that cannot be drawn, is outside `prompt_tokens`, or leaves no token for the prompt's own text.
    pub fn new(
        kind: &'static str,
        tokens: &Quantity,
        (shared, around): (u64, u64),
        setting: &Setting<'_>,
    ) -> Result<Lengths, PromptError> {
        let (min, high) = bounds(setting);
        let (min, high) = (min.saturating_sub(around), high.saturating_sub(around));
        // Only a text alone may be empty.
        let low = if shared + around == 0 { min } else { min.max(shared + 1) };
        Lengths { tokens: tokens.clone(), low, high, shared }.checked(kind, min)
    }

    fn checked(self, kind: &'static str, min: u64) -> Result<Lengths, PromptError> {
        let wrong = |reason: String| Err(PromptError::Length { kind, reason });
        if matches!(self.tokens, Quantity::Item(_)) {
            return wrong("there are no rows that a length could be taken from; give a number or a distribution".into());
        }
        if min > self.high {
            return wrong("`prompt_tokens` has a `min` above its `max`".into());
        }
        if draw(&self.tokens, &Map::new(), &mut ChaCha8Rng::seed_from_u64(0)).is_none() {
            return wrong("the distribution does not exist".into());
        }
        let most = match self.tokens {
            Quantity::Fixed(n) | Quantity::Uniform { high: n, .. } => n.min(self.high),
            _ => self.high,
        };
        if most <= self.shared && self.shared > 0 {
            return wrong(format!("{most} tokens are too few: the shared prefix and special tokens alone are {}", self.shared));
        }
        if let Quantity::Fixed(n) = self.tokens
            && !(self.low..=self.high).contains(&n)
        {
            return wrong("the length lies outside `prompt_tokens`, so that nothing would be left".into());
        }
        Ok(self)
    }

    /// What a reader of the report must know of lengths that the distribution has and no prompt can.
    pub fn note(&self, seed: Seed) -> Option<String> {
        let mut rng = ChaCha8Rng::seed_from_u64(seed.child("note").0);
        let short = |_| draw(&self.tokens, &Map::new(), &mut rng).is_some_and(|n| n <= self.shared);
        let shared = self.shared;
        (shared > 0 && (0..REDRAWS).any(short)).then(|| {
            format!(
                "prompt lengths of {shared} tokens and fewer are drawn again: the shared prefix and special tokens are as many"
            )
        })
    }

    /// A length inside the bounds.
    pub fn draw(&self, rng: &mut impl Rng) -> u64 {
        let mut n = self.low;
        for _ in 0..REDRAWS {
            n = draw(&self.tokens, &Map::new(), rng).unwrap_or(self.low);
            if (self.low..=self.high).contains(&n) {
                break;
            }
        }
        n.clamp(self.low, self.high.max(self.low))
    }
}

/// Tokens behind a prefix with which it is tried.
const TRIAL: u64 = 8;

/// A shared beginning of the user's text, and the place behind it.
#[derive(Clone, Debug)]
pub struct SharedPrefix {
    /// Empty: nothing is shared.
    text: String,
    slot: Slot,
    /// Tokens of all but the text that is yet to come.
    alone: u64,
}

impl SharedPrefix {
    /// A beginning of `tokens` tokens, drawn from `seed`, whose ids stay the same whatever follows.
    ///
    /// # Errors
    /// No such text was found.
    pub fn draw(tokenizer: &Tokenizer, slot: &Slot, tokens: u64, seed: Seed) -> Result<SharedPrefix, TokenError> {
        let around = tokenizer.alone(slot);
        if tokens == 0 {
            return Ok(SharedPrefix { text: String::new(), slot: slot.clone(), alone: around });
        }
        let front = slot.front();
        let length = tokenizer.alone(&front) + tokens;
        let mut refused = TokenError::NoFit { wanted: length, nearest: 0 };
        for generator in 0..GENERATORS {
            let mut rng = ChaCha8Rng::seed_from_u64(seed.child(generator).0);
            let text = match tokenizer.exactly(length, &front, &mut rng) {
                Ok(text) => text,
                Err(error) => {
                    refused = error;
                    continue;
                }
            };
            let Some(slot) = tokenizer.behind(slot, &text) else { continue };
            let prefix = SharedPrefix { text, slot, alone: around + tokens };
            match prefix.continued(tokenizer, prefix.alone + TRIAL, &mut rng) {
                Ok(_) => return Ok(prefix),
                Err(error) => refused = error,
            }
        }
        Err(refused)
    }

    /// Tokens of all that the model reads but the text that is yet to come.
    pub fn alone(&self) -> u64 {
        self.alone
    }

    /// The user's text, this beginning included, with which the model reads exactly `n` tokens in all.
    ///
    /// # Errors
    /// No such text was found.
    pub fn continued(&self, tokenizer: &Tokenizer, n: u64, rng: &mut impl Rng) -> Result<String, TokenError> {
        let rest = tokenizer.exactly(n, &self.slot, rng)?;
        Ok(if self.text.is_empty() { rest } else { format!("{} {rest}", self.text) })
    }
}
