//! `prefix`: groups of prompts that share a beginning, for tests of prefix caches.
//!
//! The groups take turns: prompt i belongs to group i mod N. With `order: shuffle` a bounded dataset is permuted as a
//! whole, one without an end inside each turn of the N groups. A group's beginning has the same token ids in each of its
//! prompts; what follows it is drawn for each prompt anew. Lengths count as those of `random`: the system message and the
//! chat template come on top of beginning and rest. With `cache_bust` each prompt has a beginning of its own, of the
//! same length, so that nothing is shared.

use super::error::PromptError;
use super::lengths::Lengths;
use super::message::slot_of;
use super::permute::permuted;
use super::random::GENERATORS;
use super::shared_prefix::Lead;
use super::{Prompts, Setting};
use crate::token::{Slot, TokenError, Tokenizer};
use llmscen_core::dataset::{OnExhausted, Order};
use llmscen_core::prompt::{Prompt, Session};
use llmscen_core::request::Quantity;
use llmscen_core::seed::Seed;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use std::borrow::Cow;
use std::sync::{Arc, OnceLock};

/// Groups at the most: each keeps its beginning.
const MOST: u64 = 1_000_000;

struct Prefix {
    /// The beginnings, each drawn when its group is first asked for.
    leads: Box<[OnceLock<Option<Lead>>]>,
    len: Option<u64>,
    slot: Slot,
    prefix_tokens: u64,
    /// Of whole prompts, less what stands in each.
    lengths: Lengths,
    around: u64,
    tokenizer: Arc<Tokenizer>,
    shuffled: bool,
    cycle: bool,
    /// Each prompt has a beginning of its own.
    bust: bool,
    seed: Seed,
    first: u64,
}

/// Checks that such prompts can be made.
pub fn open(
    (groups, per_group): (u64, Option<u64>),
    prefix_tokens: u64,
    tokens: &Quantity,
    setting: &Setting<'_>,
) -> Result<impl Prompts + use<>, PromptError> {
    let wrong = |reason: String| PromptError::Groups { reason };
    if !(1..=MOST).contains(&groups) || per_group == Some(0) {
        return Err(wrong(format!("1 to {MOST} groups of at least one prompt can be made")));
    }
    let len = per_group.map(|each| groups.checked_mul(each).ok_or_else(|| wrong("too many prompts".into()))).transpose()?;
    let tokenizer = setting.tokenizer();
    let slot = slot_of(&Prompt::default(), &tokenizer, setting.spec.system.as_deref())?;
    let special = tokenizer.alone(&slot) - tokenizer.around(&slot);
    let around = tokenizer.around(&slot) + prefix_tokens;
    let prefix = Prefix {
        leads: (0..groups).map(|_| OnceLock::new()).collect(),
        len,
        slot,
        prefix_tokens,
        lengths: Lengths::new("prefix", tokens, (special, around), setting)?,
        around,
        tokenizer,
        shuffled: setting.spec.order == Order::Shuffle,
        cycle: setting.spec.on_exhausted == OnExhausted::Cycle,
        bust: setting.spec.cache_bust,
        seed: setting.seed.child("prefix"),
        first: setting.first,
    };
    let mut rng = prefix.rng(0, 0, 0);
    let n = prefix.around + prefix.lengths.draw(&mut rng);
    prefix.drawn(prefix.seed.child("group").child(0))?.continued(&prefix.tokenizer, n, &mut rng)?;
    Ok(prefix)
}

impl Prefix {
    fn rng(&self, group: u64, member: u64, generator: u64) -> ChaCha8Rng {
        let seed = self.seed.child("suffix").child(group).child(member).child(generator);
        ChaCha8Rng::seed_from_u64(seed.0)
    }

    fn drawn(&self, seed: Seed) -> Result<Lead, TokenError> {
        Lead::draw(&self.tokenizer, &self.slot, self.prefix_tokens, seed)
    }

    /// The beginning of a prompt: that of its group, or its own. A dataset that starts again does not repeat those.
    fn lead(&self, group: u64, index: u64) -> Option<Cow<'_, Lead>> {
        if self.bust {
            return self.drawn(self.seed.child("bust").child(index)).ok().map(Cow::Owned);
        }
        let seed = self.seed.child("group").child(group);
        self.leads.get(group as usize)?.get_or_init(|| self.drawn(seed).ok()).as_ref().map(Cow::Borrowed)
    }

    /// Group of a prompt, and its number there.
    fn place(&self, position: u64) -> (u64, u64) {
        let groups = self.leads.len() as u64;
        let (member, turn) = (position / groups, position % groups);
        match self.len {
            _ if !self.shuffled => (turn, member),
            Some(len) => {
                let drawn = permuted(position, len, self.seed.child("order"));
                (drawn % groups, drawn / groups)
            }
            None => (permuted(turn, groups, self.seed.child("order").child(member)), member),
        }
    }
}

impl Prompts for Prefix {
    fn session(&self, seq: u64) -> Option<Session> {
        let index = self.first.wrapping_add(seq);
        let position = match self.len {
            Some(len) if !self.cycle && seq >= len => return None,
            Some(len) => index % len,
            None => index,
        };
        let (group, member) = self.place(position);
        let lead = self.lead(group, index)?;
        let n = self.around + self.lengths.draw(&mut self.rng(group, member, 0));
        let draw = |generator| lead.continued(&self.tokenizer, n, &mut self.rng(group, member, generator)).ok();
        let prompt = Prompt {
            text: (1..=GENERATORS).find_map(draw)?,
            tokens: Some(n),
            approximate: self.tokenizer.approximate(),
            group: Some(format!("prefix-{group}")),
            ..Prompt::default()
        };
        Some(Session { turns: vec![prompt] })
    }

    fn len(&self) -> Option<u64> {
        self.len
    }

    /// Beginnings of their own never come again.
    fn distinct(&self) -> Option<u64> {
        self.len.filter(|_| !self.bust)
    }

    fn dropped(&self) -> u64 {
        0
    }
}

#[cfg(test)]
mod tests;
