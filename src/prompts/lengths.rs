//! Lengths of synthetic prompts.

use super::Setting;
use super::error::PromptError;
use crate::model::request::Quantity;
use crate::model::seed::Seed;
use crate::stats::quantity::draw;
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
    /// Tokens that stand already, of which a length must be more.
    alone: u64,
}

impl Lengths {
    /// Lengths of whole prompts, in which `alone` tokens stand already.
    ///
    /// # Errors
    /// A length that cannot be drawn, lies outside `prompt_tokens`, or leaves no token for the prompt's own text.
    pub fn new(kind: &'static str, tokens: &Quantity, alone: u64, setting: &Setting<'_>) -> Result<Lengths, PromptError> {
        let (min, high) = bounds(setting);
        // Where nothing stands around it, a prompt may be empty.
        let low = if alone == 0 { min } else { min.max(alone + 1) };
        let lengths = Lengths { tokens: tokens.clone(), low, high, alone };
        lengths.checked(kind, min)
    }

    /// Lengths of what is behind `alone` tokens; `prompt_tokens` bounds both together.
    ///
    /// # Errors
    /// As [`Lengths::new`].
    pub fn behind(kind: &'static str, tokens: &Quantity, alone: u64, setting: &Setting<'_>) -> Result<Lengths, PromptError> {
        let (min, high) = bounds(setting);
        let (min, high) = (min.saturating_sub(alone), high.saturating_sub(alone));
        let lengths = Lengths { tokens: tokens.clone(), low: min.max(1), high, alone: 0 };
        lengths.checked(kind, min)
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
        if most <= self.alone && self.alone > 0 {
            let alone = self.alone;
            return wrong(format!(
                "{most} tokens are too few: system message, chat template and shared prefix alone are {alone}"
            ));
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
        let short = |_| draw(&self.tokens, &Map::new(), &mut rng).is_some_and(|n| n <= self.alone);
        (self.alone > 0 && (0..REDRAWS).any(short)).then(|| {
            format!(
                "prompt lengths of {} tokens and fewer are drawn again: system message, chat template and shared prefix \
                 alone are as many",
                self.alone
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
