//! Text of the lengths that a log gives, in blocks where it says which prompts began alike.

use crate::model::seed::Seed;
use crate::token::{TokenError, Tokenizer};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Tokens of a block.
pub const BLOCK: u64 = 512;
/// Blocks that are kept for prompts to come, about 3 KB each.
const KEPT: usize = 8192;
/// Corrections of a length.
const TRIES: usize = 6;
/// Generators tried for one text, and tokens that it may fall short where no text of its length is found.
const GENERATORS: u64 = 4;
const SHORT: u64 = 8;
/// What stands before a block while it is measured: behind another word a word may take other tokens than at the start.
const ANCHOR: &str = "the";

/// Makes text of given lengths.
pub struct Words {
    /// Counts.
    pub tokenizer: Arc<Tokenizer>,
    kept: Mutex<HashMap<(Seed, bool), Arc<str>>>,
}

impl Words {
    /// Words that this tokenizer counts.
    pub fn new(tokenizer: Arc<Tokenizer>) -> Words {
        Words { tokenizer, kept: Mutex::default() }
    }

    /// Text of exactly `n` tokens.
    ///
    /// # Errors
    /// No such text was found.
    pub fn plain(&self, n: u64, seed: Seed) -> Result<String, TokenError> {
        let attempt = |generator| self.tokenizer.exactly(n, &mut ChaCha8Rng::seed_from_u64(seed.child(generator).0));
        (1..GENERATORS).find_map(|generator| attempt(generator).ok()).map_or_else(|| attempt(0), Ok)
    }

    /// Text of `n` tokens whose blocks follow the ids: equal ids under an equal `blocks` seed are equal text. What has no id
    /// follows the `own` seed. Where no text of that length turns up it is a few tokens shorter; None: not even that.
    pub fn of(&self, n: u64, ids: &[u64], (blocks, own): (Seed, Seed)) -> Option<String> {
        let id = |index: usize| ids.get(index).map_or(own, |id| blocks.child(*id));
        let full = usize::try_from(n.saturating_sub(1) / BLOCK).ok()?.min(ids.len());
        let mut head: Vec<Arc<str>> = (0..full).map_while(|index| self.block(id(index), index == 0)).collect();
        while !head.is_empty() {
            // The last block is cut to what is left; so is the one before where there is no room for it.
            let rest = n.saturating_sub(head.len() as u64 * BLOCK);
            if let Some(text) = self.fit(&head.join(" "), n, rest, id(head.len())) {
                return Some(text);
            }
            head.pop();
        }
        (0..SHORT.min(n)).find_map(|short| self.plain(n - short, id(0)).ok())
    }

    /// A block, measured behind another word unless it is the first.
    fn block(&self, seed: Seed, first: bool) -> Option<Arc<str>> {
        let kept = || self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(block) = kept().get(&(seed, first)) {
            return Some(block.clone());
        }
        let text = if first { self.plain(BLOCK, seed).ok()? } else { self.behind(seed)? };
        let block: Arc<str> = text.into();
        let mut kept = kept();
        if kept.len() >= KEPT {
            kept.clear();
        }
        kept.insert((seed, first), block.clone());
        Some(block)
    }

    fn behind(&self, seed: Seed) -> Option<String> {
        let anchor = self.tokenizer.count(ANCHOR)?;
        let text = self.fit(ANCHOR, anchor + BLOCK, BLOCK, seed);
        match text {
            Some(text) => text.get(ANCHOR.len() + 1..).map(str::to_owned),
            None => self.plain(BLOCK, seed).ok(),
        }
    }

    /// `head` and about `rest` tokens more, which together have exactly `n`.
    fn fit(&self, head: &str, n: u64, mut rest: u64, seed: Seed) -> Option<String> {
        for _ in 0..TRIES {
            let tail = self.plain(Some(rest).filter(|rest| *rest > 0)?, seed).ok()?;
            let text = format!("{head} {tail}");
            let seen = self.tokenizer.count(&text)?;
            if seen == n {
                return Some(text);
            }
            rest = (rest + n).checked_sub(seen)?;
        }
        None
    }
}
