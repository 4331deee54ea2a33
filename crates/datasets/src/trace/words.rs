//! Text of the lengths that a log gives, in blocks where it says which prompts began alike.
//!
//! A length is all that the model reads, as the log counted it: system message and chat template are part of it. A block
//! is measured behind the one before it, so that the beginning of so many blocks has as many tokens as in the log.

use crate::error::PromptError;
use crate::message::slot_of;
use crate::random::GENERATORS;
use crate::token::{Slot, TokenError, Tokenizer};
use llmscen_core::seed::Seed;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Tokens of a block.
pub const BLOCK: u64 = 512;
/// Blocks that are kept for prompts to come, about 4 KB each.
const KEPT: usize = 8192;
/// Tokens that a text may be longer or shorter where none of its length is found.
const OFF: u64 = 8;

/// Makes text of given lengths.
pub struct Words {
    /// Counts.
    pub tokenizer: Arc<Tokenizer>,
    /// The user's text among what the model reads.
    place: Slot,
    kept: Mutex<HashMap<Seed, Option<Arc<Block>>>>,
}

/// A block, and the place behind it.
struct Block {
    text: String,
    behind: Slot,
}

impl Words {
    /// Words that this tokenizer counts, in messages with this system message.
    ///
    /// # Errors
    /// The chat template does not take such messages.
    pub fn new(tokenizer: Arc<Tokenizer>, system: Option<&str>) -> Result<Words, PromptError> {
        let place = slot_of(&Default::default(), &tokenizer, system)?;
        Ok(Words { tokenizer, place, kept: Mutex::default() })
    }

    /// Tokens of system message and chat template, beside the user's text.
    pub fn alone(&self) -> u64 {
        self.tokenizer.alone(&self.place)
    }

    /// Text with which the model reads exactly `n` tokens.
    ///
    /// # Errors
    /// No such text was found.
    pub fn plain(&self, n: u64, seed: Seed) -> Result<String, TokenError> {
        self.at(&self.place, n, seed)
    }

    /// Text with which the model reads `n` tokens, and how many those are. Its blocks follow the ids: behind equal ids, equal
    /// ids under an equal `blocks` seed are equal text; what has no id follows the `own` seed. Where no text of that length
    /// turns up the nearest that does is taken; None: there is none.
    pub fn text_of(&self, n: u64, ids: &[u64], (blocks, own): (Seed, Seed)) -> Option<(String, u64)> {
        let n = n.max(self.alone() + 1);
        let id = |index: usize| ids.get(index).map_or(own, |id| blocks.child(*id));
        let full = usize::try_from((n - 1) / BLOCK).ok()?.min(ids.len());
        let mut head: Vec<Arc<Block>> = Vec::with_capacity(full);
        let mut chain = blocks;
        for index in 0..full {
            chain = chain.child(*ids.get(index)?);
            let before = head.last().map_or(&self.place, |block| &block.behind);
            let Some(block) = self.block(chain, before, id(index)) else { break };
            head.push(block);
        }
        while let Some(last) = head.last() {
            // The last block is what is left; where that is nothing, the one before it is cut too.
            if let Ok(tail) = self.at(&last.behind, n, id(head.len())) {
                let parts: Vec<&str> = head.iter().map(|block| block.text.as_str()).chain([tail.as_str()]).collect();
                let text = parts.join(" ");
                if self.tokenizer.measure(&self.place, &text) == Some(n) {
                    return Some((text, n));
                }
            }
            head.pop();
        }
        let near = (0..=OFF).flat_map(|off| [n + off, n.saturating_sub(off)]);
        near.into_iter().find_map(|n| Some((self.plain(n, id(0)).ok()?, n)))
    }

    /// The block at the end of a chain of ids, in the place behind the one before it.
    fn block(&self, chain: Seed, before: &Slot, seed: Seed) -> Option<Arc<Block>> {
        let kept = || self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(block) = kept().get(&chain) {
            return block.clone();
        }
        let front = before.front();
        // The text in front of the first one is part of it.
        let around = if *before == self.place { 0 } else { self.tokenizer.alone(&front) };
        let make = |generator| {
            let text = self.tokenizer.exactly(around + BLOCK, &front, &mut rng(seed, generator)).ok()?;
            let behind = self.tokenizer.behind(before, &text)?;
            Some(Arc::new(Block { text, behind }))
        };
        let block = (0..GENERATORS).find_map(make);
        let mut kept = kept();
        if kept.len() >= KEPT {
            kept.clear();
        }
        kept.insert(chain, block.clone());
        block
    }

    fn at(&self, place: &Slot, n: u64, seed: Seed) -> Result<String, TokenError> {
        let attempt = |generator| self.tokenizer.exactly(n, place, &mut rng(seed, generator));
        (1..GENERATORS).fold(attempt(0), |made, generator| made.or_else(|_| attempt(generator)))
    }
}

fn rng(seed: Seed, generator: u64) -> ChaCha8Rng {
    ChaCha8Rng::seed_from_u64(seed.child(generator).0)
}
