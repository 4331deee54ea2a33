//! Random text of the lengths in a log, in blocks where the log identifies shared prefixes.
//!
//! A length includes system message and chat template, as in the log. A block is counted after the previous one, so
//! that shared prefixes have as many tokens as in the log.

use crate::error::PromptError;
use crate::message::prompt_slot;
use crate::synthetic::GENERATORS;
use crate::token::{Slot, TokenError, Tokenizer};
use llmscen_core::seed::Seed;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Bytes of the cached blocks, at most.
const CACHED_BYTES: u64 = 32 << 20;
/// Bytes of a token of text, about.
const TOKEN_BYTES: u64 = 8;
/// Bytes of a block besides its text, about: most are the place after it.
const BLOCK_BYTES: u64 = 1024;
/// Tolerance in tokens where no text of the exact length is found.
const TOLERANCE: u64 = 8;

/// Generates text of given lengths.
pub struct TraceText {
    pub tokenizer: Arc<Tokenizer>,
    /// The place of the user's text.
    slot: Slot,
    blocks: Mutex<HashMap<Seed, Option<Arc<Block>>>>,
    block_tokens: u64,
}

struct Block {
    text: String,
    /// The place after the block.
    after: Slot,
}

impl TraceText {
    /// Text for whole prompts with this system message, in blocks of `block_tokens`.
    ///
    /// # Errors
    /// The chat template rejects such messages.
    pub fn new(
        tokenizer: Arc<Tokenizer>,
        system: Option<&str>,
        block_tokens: u64,
    ) -> Result<TraceText, PromptError> {
        let slot = prompt_slot(&Default::default(), &tokenizer, system)?;
        Ok(TraceText::at(slot, tokenizer, block_tokens))
    }

    /// Text for messages that continue a conversation.
    ///
    /// # Errors
    /// The chat template rejects such messages.
    pub fn after_reply(
        tokenizer: Arc<Tokenizer>,
        block_tokens: u64,
    ) -> Result<TraceText, PromptError> {
        let slot = tokenizer.slot_after_reply()?;
        Ok(TraceText::at(slot, tokenizer, block_tokens))
    }

    fn at(slot: Slot, tokenizer: Arc<Tokenizer>, block_tokens: u64) -> TraceText {
        TraceText {
            tokenizer,
            slot,
            blocks: Mutex::default(),
            block_tokens,
        }
    }

    /// Tokens of system message and chat template.
    pub fn base_tokens(&self) -> u64 {
        self.tokenizer.count_without_text(&self.slot)
    }

    /// Tokens of the prompt of a logged length, which has text besides the template.
    pub fn planned_tokens(&self, n: u64) -> u64 {
        n.max(self.base_tokens() + 1)
    }

    /// A text with which the model reads exactly `n` tokens.
    ///
    /// # Errors
    /// No such text was found.
    pub fn generate(&self, n: u64, seed: Seed) -> Result<String, TokenError> {
        self.generate_in(&self.slot, n, seed)
    }

    /// A text with which the model reads `n` tokens, and its length. Prompts with equal leading block ids and an
    /// equal `block_seed` have equal text there; text without a block id depends on `row_seed`. Where no text of the
    /// exact length is found, the nearest length is used.
    ///
    /// # Errors
    /// No text of about this length was found.
    pub fn generate_with_blocks(
        &self,
        n: u64,
        ids: &[u64],
        block_seed: Seed,
        row_seed: Seed,
    ) -> Result<(String, u64), TokenError> {
        let n = self.planned_tokens(n);
        let seed = |index: usize| ids.get(index).map_or(row_seed, |id| block_seed.child(*id));
        let full = usize::try_from((n - 1) / self.block_tokens).unwrap_or(usize::MAX);
        let mut head: Vec<Arc<Block>> = Vec::new();
        let mut chain = block_seed;
        for id in ids.iter().take(full) {
            chain = chain.child(*id);
            let before = head.last().map_or(&self.slot, |block| &block.after);
            let Some(block) = self.block(chain, before, block_seed.child(*id)) else {
                break;
            };
            head.push(block);
        }
        while let Some(last) = head.last() {
            // The rest follows the last block. Where no such text is found, it also replaces the last block.
            if let Ok(tail) = self.generate_in(&last.after, n, seed(head.len())) {
                let parts: Vec<&str> = head
                    .iter()
                    .map(|block| block.text.as_str())
                    .chain([tail.as_str()])
                    .collect();
                let text = parts.join(" ");
                if self.tokenizer.is_of_independent_words(&text)
                    || self.tokenizer.measure(&self.slot, &text) == Some(n)
                {
                    return Ok((text, n));
                }
            }
            head.pop();
        }
        let near =
            (0..=TOLERANCE).flat_map(|difference| [n + difference, n.saturating_sub(difference)]);
        near.into_iter()
            .find_map(|n| Some((self.generate(n, seed(0)).ok()?, n)))
            .ok_or(TokenError::NoFit {
                wanted: n,
                nearest: 0,
            })
    }

    /// The last block of a chain of ids. `before` is the place after the previous block.
    fn block(&self, chain: Seed, before: &Slot, seed: Seed) -> Option<Arc<Block>> {
        let cached = || self.blocks.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(block) = cached().get(&chain) {
            return block.clone();
        }
        let front = before.front();
        // The first block includes the text before it.
        let base = if *before == self.slot {
            0
        } else {
            self.tokenizer.count_without_text(&front)
        };
        let generate = |generator| {
            let text = self
                .tokenizer
                .random_text(base + self.block_tokens, &front, &mut rng(seed, generator))
                .ok()?;
            let counted = self
                .tokenizer
                .after_words(before, &text, base + self.block_tokens);
            let after = counted.or_else(|| self.tokenizer.behind(before, &text))?;
            Some(Arc::new(Block { text, after }))
        };
        let block = (0..GENERATORS).find_map(generate);
        let mut cached = cached();
        let bytes = self.block_tokens * TOKEN_BYTES + BLOCK_BYTES;
        if cached.len() as u64 * bytes >= CACHED_BYTES {
            cached.clear();
        }
        cached.insert(chain, block.clone());
        block
    }

    fn generate_in(&self, slot: &Slot, n: u64, seed: Seed) -> Result<String, TokenError> {
        let attempt = |generator| {
            self.tokenizer
                .random_text(n, slot, &mut rng(seed, generator))
        };
        (1..GENERATORS).fold(attempt(0), |result, generator| {
            result.or_else(|_| attempt(generator))
        })
    }
}

fn rng(seed: Seed, generator: u64) -> ChaCha8Rng {
    ChaCha8Rng::seed_from_u64(seed.child(generator).0)
}
