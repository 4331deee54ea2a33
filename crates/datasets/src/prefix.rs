//! `prefix`: groups of prompts with a shared prefix, for tests of prefix caches.
//!
//! Groups alternate: prompt i belongs to group i mod N. With `popularity` the group of each prompt is drawn instead.
//! With `order: shuffle` a bounded dataset is permuted as a whole, an unbounded one within each N prompts. The prefix
//! has the same token ids in all prompts of a group; the rest is different in every prompt. Lengths exclude the
//! system message and the chat template, as in `random`. With `cache_bust` each prompt has a different prefix of the
//! same length, so nothing is shared.

use super::error::PromptError;
use super::generated::{Sessions, system_message};
use super::message::prompt_slot;
use super::synthetic::{DrawnLengths, GENERATORS, Lengths, SharedPrefix};
use super::{Prompts, Setting};
use crate::token::{Slot, TokenError, Tokenizer};
use llmscen_core::dataset::{OnExhausted, Order, Prompt, Session};
use llmscen_core::quantity::Quantity;
use llmscen_core::seed::Seed;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution as _, Zipf};
use std::borrow::Cow;
use std::sync::{Arc, OnceLock};

/// Limit of the number of groups, whose prefixes are kept in memory.
const MAX_GROUPS: u64 = 1_000_000;

struct Prefix {
    /// By group; generated when the group is first requested.
    prefixes: Box<[OnceLock<Option<SharedPrefix>>]>,
    len: Option<u64>,
    slot: Slot,
    prefix_tokens: u64,
    /// Lengths of the text after the prefix.
    lengths: Lengths,
    /// Tokens of prefix, system message and chat template.
    base_tokens: u64,
    tokenizer: Arc<Tokenizer>,
    shuffled: bool,
    cycle: bool,
    /// Each prompt has a different prefix.
    cache_bust: bool,
    seed: Seed,
    first: u64,
    /// The distribution of the group of a prompt; None: the groups alternate.
    popularity: Option<Zipf<f64>>,
    /// The generated system message.
    system: Option<String>,
    sessions: Sessions,
}

/// The groups of the dataset.
pub struct Groups {
    pub groups: u64,
    /// Prompts per group; None: no limit.
    pub per_group: Option<u64>,
    pub prefix_tokens: u64,
    /// Exponent of the Zipf distribution of groups; None: they alternate.
    pub zipf: Option<f64>,
}

fn drawn_groups(groups: u64, exponent: f64) -> Result<Zipf<f64>, PromptError> {
    Zipf::new(groups as f64, exponent).map_err(|error| PromptError::Groups {
        reason: error.to_string(),
    })
}

/// Checks that such prompts can be generated.
pub fn open(
    groups: &Groups,
    tokens: &Quantity,
    setting: &Setting<'_>,
) -> Result<impl Prompts + use<>, PromptError> {
    let Groups {
        groups,
        per_group,
        prefix_tokens,
        zipf,
    } = *groups;
    let error = |reason: String| PromptError::Groups { reason };
    if !(1..=MAX_GROUPS).contains(&groups) || per_group == Some(0) {
        return Err(error(format!(
            "groups must be 1 to {MAX_GROUPS}, each with at least 1 prompt"
        )));
    }
    let len = per_group
        .map(|each| {
            groups
                .checked_mul(each)
                .ok_or_else(|| error("too many prompts".into()))
        })
        .transpose()?;
    let tokenizer = setting.tokenizer();
    let seed = setting.seed.child("prefix");
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
    let special = tokenizer.count_without_text(&slot) - tokenizer.count_template(&slot);
    let base_tokens = tokenizer.count_template(&slot) + prefix_tokens;
    let prefix = Prefix {
        prefixes: (0..groups).map(|_| OnceLock::new()).collect(),
        len,
        slot,
        prefix_tokens,
        lengths: Lengths::new("prefix", tokens, special, base_tokens, setting)?,
        base_tokens,
        tokenizer,
        shuffled: setting.spec.order == Order::Shuffle,
        cycle: setting.spec.on_exhausted == OnExhausted::Cycle,
        cache_bust: setting.spec.cache_bust,
        seed,
        first: setting.first,
        popularity: zipf
            .map(|exponent| drawn_groups(groups, exponent))
            .transpose()?,
        system,
        sessions: Sessions::open("prefix", setting, seed)?,
    };
    let mut rng = prefix.rng(0, 0, 0);
    let n = prefix.base_tokens + prefix.draw(setting.first, &mut rng)?.tokens;
    prefix
        .draw_prefix(prefix.seed.child("group").child(0))?
        .continue_text(&prefix.tokenizer, n, &mut rng)?;
    Ok(prefix)
}

impl Prefix {
    fn rng(&self, group: u64, member: u64, generator: u64) -> ChaCha8Rng {
        let seed = self
            .seed
            .child("suffix")
            .child(group)
            .child(member)
            .child(generator);
        ChaCha8Rng::seed_from_u64(seed.0)
    }

    fn draw_prefix(&self, seed: Seed) -> Result<SharedPrefix, TokenError> {
        SharedPrefix::draw(&self.tokenizer, &self.slot, self.prefix_tokens, seed)
    }

    /// The prefix of a prompt: that of its group, or with `cache_bust` a different one, which is not repeated when
    /// the dataset starts again.
    fn shared_prefix(&self, group: u64, index: u64) -> Option<Cow<'_, SharedPrefix>> {
        if self.cache_bust {
            return self
                .draw_prefix(self.seed.child("bust").child(index))
                .ok()
                .map(Cow::Owned);
        }
        let seed = self.seed.child("group").child(group);
        self.prefixes
            .get(group as usize)?
            .get_or_init(|| self.draw_prefix(seed).ok())
            .as_ref()
            .map(Cow::Borrowed)
    }

    fn draw(&self, index: u64, rng: &mut ChaCha8Rng) -> Result<DrawnLengths, PromptError> {
        self.sessions
            .draw_first(&self.lengths, self.base_tokens, index, rng)
    }

    /// The position of a session in a pass over the prompts.
    fn position(&self, seq: u64) -> u64 {
        let index = self.first.wrapping_add(seq);
        self.len.map_or(index, |len| index % len)
    }

    /// The group of a prompt, and its number in the group.
    fn group_member(&self, position: u64) -> (u64, u64) {
        if let Some(popularity) = &self.popularity {
            let seed = self.seed.child("popularity").child(position);
            let rank = popularity.sample(&mut ChaCha8Rng::seed_from_u64(seed.0));
            return (rank as u64 - 1, position);
        }
        let groups = self.prefixes.len() as u64;
        let member = position / groups;
        let turn = position % groups;
        match self.len {
            _ if !self.shuffled => (turn, member),
            Some(len) => {
                let drawn = permute(position, len, self.seed.child("order"));
                (drawn % groups, drawn / groups)
            }
            None => (
                permute(turn, groups, self.seed.child("order").child(member)),
                member,
            ),
        }
    }
}

impl Prompts for Prefix {
    fn session(&self, seq: u64) -> Option<Session> {
        let index = self.first.wrapping_add(seq);
        if self.len.is_some_and(|len| !self.cycle && seq >= len) {
            return None;
        }
        let (group, member) = self.group_member(self.position(seq));
        let prefix = self.shared_prefix(group, index)?;
        let drawn = self.draw(index, &mut self.rng(group, member, 0)).ok()?;
        let n = self.base_tokens + drawn.tokens;
        let draw = |generator| {
            prefix
                .continue_text(&self.tokenizer, n, &mut self.rng(group, member, generator))
                .ok()
        };
        let prompt = Prompt {
            text: (1..=GENERATORS).find_map(draw)?,
            tokens: Some(n),
            approximate: self.tokenizer.approximate(),
            group: Some(format!("prefix-{group}")),
            max_tokens: drawn.max_tokens,
            system: self.system.clone(),
            ..Prompt::default()
        };
        // The prefix is part of the first turn, and leaves the context with it.
        let template_tokens = self.base_tokens - self.prefix_tokens;
        self.sessions.session(prompt, template_tokens, index)
    }

    fn turn(&self, seq: u64, turn: u32) -> Result<Option<Prompt>, PromptError> {
        let index = self.first.wrapping_add(seq);
        let (group, member) = self.group_member(self.position(seq));
        let first = || {
            let drawn = self.draw(index, &mut self.rng(group, member, 0)).ok()?;
            Some(self.prefix_tokens.saturating_add(drawn.size()))
        };
        let template_tokens = self.base_tokens - self.prefix_tokens;
        self.sessions.turn(index, turn, template_tokens, first)
    }

    fn len(&self) -> Option<u64> {
        self.len
    }

    /// With `cache_bust` no prompt is repeated.
    fn distinct(&self) -> Option<u64> {
        self.len.filter(|_| !self.cache_bust)
    }

    fn dropped(&self) -> u64 {
        0
    }
}

/// Rounds of the Feistel network. Four make a pseudo-random permutation (Luby and Rackoff, "How to construct
/// pseudorandom permutations from pseudorandom functions", 1988).
const ROUNDS: u64 = 4;

/// The image of `index` modulo `len` in a random permutation of `0..len`; 0 where `len` is 0. It is a Feistel network
/// over the next power of four, repeated until the result is below `len` (Black and Rogaway, "Ciphers with arbitrary
/// finite domains", 2002).
fn permute(index: u64, len: u64, seed: Seed) -> u64 {
    if len < 2 {
        return 0;
    }
    let half = (u64::BITS - (len - 1).leading_zeros()).div_ceil(2);
    let mask = (1u64 << half) - 1;
    let mut at = index % len;
    loop {
        let (mut left, mut right) = (at >> half, at & mask);
        for round in 0..ROUNDS {
            (left, right) = (right, left ^ (seed.child(round).child(right).0 & mask));
        }
        at = (left << half) | right;
        if at < len {
            return at;
        }
    }
}

#[cfg(test)]
mod tests;
