//! What prompts of a synthetic dataset share: the words around the user's text, and a beginning of that text.

use super::random::GENERATORS;
use crate::token::{Slot, TokenError, Tokenizer};
use llmscen_core::seed::Seed;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Tokens behind a prefix with which it is tried.
const TRIAL: u64 = 8;

/// A shared beginning of the user's text, and the place behind it.
#[derive(Clone, Debug)]
pub struct Lead {
    /// Empty: nothing is shared.
    text: String,
    slot: Slot,
    /// Tokens of all but the text that is yet to come.
    alone: u64,
}

impl Lead {
    /// A beginning of `tokens` tokens, drawn from `seed`, whose ids stay the same whatever follows.
    ///
    /// # Errors
    /// No such text was found.
    pub fn draw(tokenizer: &Tokenizer, slot: &Slot, tokens: u64, seed: Seed) -> Result<Lead, TokenError> {
        let around = tokenizer.alone(slot);
        if tokens == 0 {
            return Ok(Lead { text: String::new(), slot: slot.clone(), alone: around });
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
            let lead = Lead { text, slot, alone: around + tokens };
            match lead.continued(tokenizer, lead.alone + TRIAL, &mut rng) {
                Ok(_) => return Ok(lead),
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
