//! `random`: text of an exact length, drawn anew for every request.
//!
//! The length is that of the user's text as a prompt of its own, shared prefix included, as the load generators of vLLM and
//! others count it; a system message and the chat template come on top. With `cache_bust` each prompt has a prefix of its
//! own, of the same length.

use super::error::PromptError;
use super::message::slot_of;
use super::synthetic::{Lengths, SharedPrefix};
use super::{Prompts, Setting};
use crate::token::{Slot, Tokenizer};
use llmscen_core::prompt::{Prompt, Session};
use llmscen_core::request::Quantity;
use llmscen_core::seed::Seed;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use std::borrow::Cow;
use std::sync::Arc;

/// Generators tried for one prompt: some lengths of some vocabularies are hard to hit.
pub const GENERATORS: u64 = 4;

struct Random {
    lengths: Lengths,
    /// Tokens of the system message and the chat template.
    around: u64,
    prefix: SharedPrefix,
    slot: Slot,
    shared_prefix: u64,
    /// Each prompt has a beginning of its own.
    bust: bool,
    tokenizer: Arc<Tokenizer>,
    seed: Seed,
    first: u64,
}

/// Checks that lengths can be drawn and text of such a length be made.
pub fn open(
    tokens: &Quantity,
    shared_prefix: u64,
    setting: &Setting<'_>,
    notes: &mut Vec<String>,
) -> Result<impl Prompts + use<>, PromptError> {
    let tokenizer = setting.tokenizer();
    let slot = slot_of(&Prompt::default(), &tokenizer, setting.spec.system.as_deref())?;
    let seed = setting.seed.child("random");
    let prefix = SharedPrefix::draw(&tokenizer, &slot, shared_prefix, seed.child("prefix"))?;
    let around = tokenizer.around(&slot);
    let lengths = Lengths::new("random", tokens, (prefix.alone() - around, around), setting)?;
    notes.extend(lengths.note(seed));
    let bust = setting.spec.cache_bust && shared_prefix > 0;
    let random = Random { lengths, around, prefix, slot, shared_prefix, bust, tokenizer, seed, first: setting.first };
    let mut rng = random.rng(setting.first, 0);
    let n = around + random.lengths.draw(&mut rng);
    random.prefix.continued(&random.tokenizer, n, &mut rng)?;
    Ok(random)
}

impl Random {
    fn rng(&self, index: u64, generator: u64) -> ChaCha8Rng {
        ChaCha8Rng::seed_from_u64(self.seed.child(index).child(generator).0)
    }

    /// The beginning of a prompt: that of all, or its own.
    fn shared_prefix(&self, index: u64) -> Option<Cow<'_, SharedPrefix>> {
        if !self.bust {
            return Some(Cow::Borrowed(&self.prefix));
        }
        let seed = self.seed.child("bust").child(index);
        SharedPrefix::draw(&self.tokenizer, &self.slot, self.shared_prefix, seed).ok().map(Cow::Owned)
    }
}

impl Prompts for Random {
    fn session(&self, seq: u64) -> Option<Session> {
        let index = self.first.wrapping_add(seq);
        let n = self.around + self.lengths.draw(&mut self.rng(index, 0));
        let prefix = self.shared_prefix(index)?;
        let draw = |generator| prefix.continued(&self.tokenizer, n, &mut self.rng(index, generator)).ok();
        let text = (1..=GENERATORS).find_map(draw)?;
        let prompt = Prompt { text, tokens: Some(n), approximate: self.tokenizer.approximate(), ..Prompt::default() };
        Some(Session { turns: vec![prompt] })
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
