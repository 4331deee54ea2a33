//! What kinds of synthetic prompts share: random lengths and a shared prefix.

use super::Setting;
use super::error::PromptError;
use crate::token::{Slot, TokenError, Tokenizer};
use llmscen_core::distribution::Weighted;
use llmscen_core::quantity::Quantity;
use llmscen_core::request::sample_length;
use llmscen_core::seed::Seed;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::Map;

/// Random generators that are tried per prompt, because some lengths are hard to reach with some vocabularies.
pub const GENERATORS: u64 = 4;
/// Draws of a length outside the bounds before the nearest bound is used, and draws that are tried for the note.
pub const REDRAWS: usize = 1000;

/// A distribution of prompt lengths with bounds. A length outside the bounds is drawn again.
#[derive(Debug)]
pub struct Lengths {
    tokens: Quantity,
    /// Prompt and output lengths that are drawn together, instead of `tokens`.
    pairs: Option<Weighted<(u64, u64)>>,
    /// Tokens in front of the prompt, of each session its own.
    context: Option<Quantity>,
    low: u64,
    high: u64,
    /// Special tokens and tokens of the shared prefix. A length must exceed them.
    shared: u64,
}

/// The lengths of one prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DrawnLengths {
    /// Tokens of the prompt.
    pub tokens: u64,
    /// Maximum output tokens, where the dataset sets them.
    pub max_tokens: Option<u64>,
}

impl DrawnLengths {
    /// Tokens of the prompt and its output.
    pub fn size(&self) -> u64 {
        self.tokens.saturating_add(self.max_tokens.unwrap_or(0))
    }
}

impl Lengths {
    /// Lengths that include `shared` tokens. `template_tokens` are added to a length before it is compared with
    /// `prompt_tokens`.
    ///
    /// # Errors
    /// A length that cannot be drawn, is outside `prompt_tokens`, or leaves no token for the text.
    pub fn new(
        kind: &'static str,
        tokens: &Quantity,
        shared: u64,
        template_tokens: u64,
        setting: &Setting<'_>,
    ) -> Result<Lengths, PromptError> {
        let min = setting
            .spec
            .min_tokens
            .unwrap_or(0)
            .saturating_sub(template_tokens);
        let high = setting
            .spec
            .max_tokens
            .unwrap_or(u64::MAX)
            .saturating_sub(template_tokens);
        // A text may be empty only where nothing else is sent.
        let low = if shared + template_tokens == 0 {
            min
        } else {
            min.max(shared + 1)
        };
        Lengths {
            tokens: tokens.clone(),
            pairs: setting.spec.generated.pairs.clone(),
            context: setting.spec.generated.context_tokens.clone(),
            low,
            high,
            shared,
        }
        .check(kind, min)
    }

    fn check(self, kind: &'static str, min: u64) -> Result<Lengths, PromptError> {
        let error = |reason: String| Err(PromptError::Length { kind, reason });
        let is_item = |quantity: &Quantity| matches!(quantity, Quantity::Item(_));
        if is_item(&self.tokens) || self.context.as_ref().is_some_and(is_item) {
            return error(
                "this kind of dataset has no rows with a length; use a number or a distribution"
                    .into(),
            );
        }
        if min > self.high {
            return error("`prompt_tokens` has a `min` above its `max`".into());
        }
        let context = self
            .context
            .as_ref()
            .map_or(Some(0), |context| context.max());
        let longest = self.tokens.max().zip(context);
        let max = longest.map_or(self.high, |(tokens, context)| {
            tokens.saturating_add(context).min(self.high)
        });
        if max <= self.shared && self.shared > 0 {
            return error(format!(
                "{max} tokens are too few: the shared prefix and special tokens have {}",
                self.shared
            ));
        }
        if let (Some(n), None) = (self.tokens.constant(), &self.context)
            && !(self.low..=self.high).contains(&n)
        {
            return error(
                "the length is outside `prompt_tokens`, so no prompt would be left".into(),
            );
        }
        Ok(self)
    }

    /// A note for the report on lengths of the distribution that no prompt can have.
    pub fn note(&self, seed: Seed) -> Option<String> {
        let mut rng = ChaCha8Rng::seed_from_u64(seed.child("note").0);
        let mut too_short = |_| self.sample(&mut rng).tokens <= self.shared;
        let shared = self.shared;
        (shared > 0 && (0..REDRAWS).any(&mut too_short)).then(|| {
            format!(
                "prompt lengths of up to {shared} tokens are drawn again: the shared prefix \
            and special tokens have {shared}"
            )
        })
    }

    /// Lengths inside the bounds.
    pub fn draw(&self, rng: &mut impl Rng) -> DrawnLengths {
        let mut drawn = self.sample(rng);
        for _ in 1..REDRAWS {
            if (self.low..=self.high).contains(&drawn.tokens) {
                break;
            }
            drawn = self.sample(rng);
        }
        DrawnLengths {
            tokens: drawn.tokens.clamp(self.low, self.high.max(self.low)),
            ..drawn
        }
    }

    fn sample(&self, rng: &mut impl Rng) -> DrawnLengths {
        let length = |quantity: &Quantity, rng: &mut _| {
            sample_length(quantity, &Map::new(), rng).unwrap_or(self.low)
        };
        let (tokens, max_tokens) = match &self.pairs {
            Some(pairs) => {
                let (input, output) = *pairs.draw(rng);
                (input, Some(output))
            }
            None => (length(&self.tokens, rng), None),
        };
        let context = self
            .context
            .as_ref()
            .map_or(0, |context| length(context, rng));
        DrawnLengths {
            tokens: tokens.saturating_add(context),
            max_tokens,
        }
    }
}

/// Tokens of the text after a prefix that is tested.
const TRIAL: u64 = 8;

/// A shared beginning of the user's text, and the place after it.
#[derive(Clone, Debug)]
pub struct SharedPrefix {
    /// Empty: nothing is shared.
    text: String,
    slot: Slot,
    /// Tokens of everything except the text after the prefix.
    count: u64,
}

impl SharedPrefix {
    /// A random prefix of `tokens` tokens whose ids do not depend on the text after it.
    ///
    /// # Errors
    /// No such text was found.
    pub fn draw(
        tokenizer: &Tokenizer,
        slot: &Slot,
        tokens: u64,
        seed: Seed,
    ) -> Result<SharedPrefix, TokenError> {
        let base = tokenizer.count_without_text(slot);
        if tokens == 0 {
            return Ok(SharedPrefix {
                text: String::new(),
                slot: slot.clone(),
                count: base,
            });
        }
        let front = slot.front();
        let length = tokenizer.count_without_text(&front) + tokens;
        let mut last_error = TokenError::NoFit {
            wanted: length,
            nearest: 0,
        };
        for generator in 0..GENERATORS {
            let mut rng = ChaCha8Rng::seed_from_u64(seed.child(generator).0);
            let text = match tokenizer.random_text(length, &front, &mut rng) {
                Ok(text) => text,
                Err(error) => {
                    last_error = error;
                    continue;
                }
            };
            let Some(slot) = tokenizer.behind(slot, &text) else {
                continue;
            };
            let prefix = SharedPrefix {
                text,
                slot,
                count: base + tokens,
            };
            match prefix.continue_text(tokenizer, prefix.count + TRIAL, &mut rng) {
                Ok(_) => return Ok(prefix),
                Err(error) => last_error = error,
            }
        }
        Err(last_error)
    }

    /// Tokens of everything that the model reads except the text after the prefix.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// A text that begins with the prefix, with which the model reads exactly `n` tokens in total.
    ///
    /// # Errors
    /// No such text was found.
    pub fn continue_text(
        &self,
        tokenizer: &Tokenizer,
        n: u64,
        rng: &mut impl Rng,
    ) -> Result<String, TokenError> {
        let rest = tokenizer.random_text(n, &self.slot, rng)?;
        Ok(if self.text.is_empty() {
            rest
        } else {
            format!("{} {rest}", self.text)
        })
    }
}
