//! `random`: random text of an exact length for every request.
//!
//! The length is that of the user's text with the shared prefix, without system message and chat template, as in the
//! load generators of vLLM and others. With `cache_bust` each prompt has a different prefix of the same length.

use super::error::PromptError;
use super::generated::{Sessions, system_message};
use super::message::prompt_slot;
use super::synthetic::{DrawnLengths, GENERATORS, Lengths, SharedPrefix};
use super::{Prompts, Setting};
use crate::token::{Slot, Tokenizer};
use llmscen_core::dataset::{Prompt, Session};
use llmscen_core::quantity::Quantity;
use llmscen_core::seed::Seed;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use std::borrow::Cow;
use std::sync::Arc;

struct Random {
    lengths: Lengths,
    /// Tokens of the system message and the chat template.
    template_tokens: u64,
    prefix: SharedPrefix,
    slot: Slot,
    shared_prefix: u64,
    /// Prompts are token ids: their length is exact without a search for a text.
    token_ids: bool,
    /// Each prompt has a different prefix.
    cache_bust: bool,
    tokenizer: Arc<Tokenizer>,
    seed: Seed,
    first: u64,
    /// The generated system message.
    system: Option<String>,
    sessions: Sessions,
}

/// Checks that prompts of these lengths can be generated.
pub fn open(
    tokens: &Quantity,
    shared_prefix: u64,
    setting: &Setting<'_>,
    notes: &mut Vec<String>,
) -> Result<impl Prompts + use<>, PromptError> {
    let tokenizer = setting.tokenizer();
    let seed = setting.seed.child("random");
    let system = system_message(
        setting.spec.generated.system_tokens,
        &tokenizer,
        seed.child("system"),
    )?;
    let slot = prompt_slot(
        &Prompt::default(),
        &tokenizer,
        system.as_deref().or(setting.spec.system.as_deref()),
    )?;
    let text_prefix = if setting.spec.token_ids {
        0
    } else {
        shared_prefix
    };
    let prefix = SharedPrefix::draw(&tokenizer, &slot, text_prefix, seed.child("prefix"))?;
    let template_tokens = tokenizer.count_template(&slot);
    let lengths = Lengths::new(
        "random",
        tokens,
        if setting.spec.token_ids {
            shared_prefix
        } else {
            prefix.count() - template_tokens
        },
        template_tokens,
        setting,
    )?;
    notes.extend(lengths.note(seed));
    let cache_bust = setting.spec.cache_bust && shared_prefix > 0;
    let random = Random {
        lengths,
        template_tokens,
        prefix,
        slot,
        shared_prefix,
        token_ids: setting.spec.token_ids,
        cache_bust,
        tokenizer,
        seed,
        first: setting.first,
        system,
        sessions: Sessions::open("random", setting, seed)?,
    };
    let mut rng = random.rng(setting.first, 0);
    let n = template_tokens + random.draw(setting.first, &mut rng)?.tokens;
    if random.token_ids {
        return Ok(random);
    }
    random
        .prefix
        .continue_text(&random.tokenizer, n, &mut rng)?;
    Ok(random)
}

impl Random {
    fn rng(&self, index: u64, generator: u64) -> ChaCha8Rng {
        ChaCha8Rng::seed_from_u64(self.seed.child(index).child(generator).0)
    }

    fn draw(&self, index: u64, rng: &mut ChaCha8Rng) -> Result<DrawnLengths, PromptError> {
        self.sessions
            .draw_first(&self.lengths, self.template_tokens, index, rng)
    }

    /// Random ids: those of the prefix, then those of the prompt.
    fn ids(&self, index: u64, tokens: u64) -> Vec<u32> {
        let prefix = match self.cache_bust {
            true => self.seed.child("bust").child(index),
            false => self.seed.child("prefix"),
        };
        let mut prefix = ChaCha8Rng::seed_from_u64(prefix.0);
        let shared = self.shared_prefix as usize;
        let mut ids = self.tokenizer.random_ids(shared, &mut prefix);
        let rest = (tokens as usize).saturating_sub(shared);
        ids.extend(self.tokenizer.random_ids(rest, &mut self.rng(index, 1)));
        ids
    }

    /// The prefix of a prompt: the common one, or a different one.
    fn shared_prefix(&self, index: u64) -> Option<Cow<'_, SharedPrefix>> {
        if !self.cache_bust {
            return Some(Cow::Borrowed(&self.prefix));
        }
        let seed = self.seed.child("bust").child(index);
        SharedPrefix::draw(&self.tokenizer, &self.slot, self.shared_prefix, seed)
            .ok()
            .map(Cow::Owned)
    }
}

impl Prompts for Random {
    fn session(&self, seq: u64) -> Option<Session> {
        let index = self.first.wrapping_add(seq);
        let drawn = self.draw(index, &mut self.rng(index, 0)).ok()?;
        let n = self.template_tokens + drawn.tokens;
        if self.token_ids {
            let ids = self.ids(index, n);
            let prompt = Prompt {
                text: self.tokenizer.decode(&ids).unwrap_or_default(),
                tokens: Some(ids.len() as u64),
                token_ids: Some(ids),
                max_tokens: drawn.max_tokens,
                ..Prompt::default()
            };
            return Some(vec![prompt].into());
        }
        let prefix = self.shared_prefix(index)?;
        let draw = |generator| {
            prefix
                .continue_text(&self.tokenizer, n, &mut self.rng(index, generator))
                .ok()
        };
        let text = (1..=GENERATORS).find_map(draw)?;
        let prompt = Prompt {
            text,
            tokens: Some(n),
            approximate: self.tokenizer.approximate(),
            max_tokens: drawn.max_tokens,
            system: self.system.clone(),
            ..Prompt::default()
        };
        self.sessions.session(prompt, self.template_tokens, index)
    }

    fn turn(&self, seq: u64, turn: u32) -> Result<Option<Prompt>, PromptError> {
        let index = self.first.wrapping_add(seq);
        let first = || Some(self.draw(index, &mut self.rng(index, 0)).ok()?.size());
        self.sessions.turn(index, turn, self.template_tokens, first)
    }

    fn len(&self) -> Option<u64> {
        None
    }

    fn dropped(&self) -> u64 {
        0
    }
}

#[cfg(test)]
mod tests;
