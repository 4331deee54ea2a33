//! One sequence in the batch: how far it is, and what it holds of the KV cache.

use crate::engine::Emission;
use llmscen_core::units::Nanos;

/// A sequence whose prompt and emitted tokens must all be in the KV cache before it gives the next one.
///
/// The last token it emits is never put into the cache. After a preemption `computed` starts again from zero while
/// `emitted` stays, so that what was emitted is prefilled and not emitted again.
#[derive(Clone, Debug)]
pub(super) struct Sequence {
    pub(super) id: u64,
    pub(super) arrived: Nanos,
    pub(super) prompt: u64,
    pub(super) computed: u64,
    pub(super) blocks: u64,
    /// Tokens of the prompt that others have computed: whole blocks, fewer than the prompt.
    pub(super) cached: u64,
    /// Hashes of the prompt's full blocks, until the prompt is computed.
    pub(super) hashes: Vec<u64>,
    output: u64,
    emitted: u64,
    planned: u64,
}

impl Sequence {
    pub(super) fn new(id: u64, prompt: u64, output: u64, arrived: Nanos) -> Sequence {
        let (cached, hashes) = (0, Vec::new());
        Sequence { id, arrived, prompt, output, cached, hashes, computed: 0, blocks: 0, emitted: 0, planned: 0 }
    }

    /// Tokens of its context: those that the next token is computed from.
    pub(super) fn tokens(&self) -> u64 {
        self.prompt + self.emitted
    }

    /// Whether only its newest token is still to be computed.
    pub(super) fn decoding(&self) -> bool {
        self.emitted > 0 && self.computed + 1 == self.tokens()
    }

    /// Blocks at the moment of its last token.
    pub(super) fn most_blocks(&self, block: u64) -> u64 {
        self.prompt.saturating_add(self.output - 1).div_ceil(block)
    }

    /// Blocks that it lacks for `tokens` more.
    pub(super) fn more_blocks(&self, tokens: u64, block: u64) -> u64 {
        (self.computed + tokens).div_ceil(block).saturating_sub(self.blocks)
    }

    /// Tokens that still fit in the blocks it holds.
    pub(super) fn slack(&self, block: u64) -> u64 {
        self.blocks * block - self.computed
    }

    /// Takes the blocks for `tokens` of the coming step and returns how many they were.
    pub(super) fn plan(&mut self, tokens: u64, block: u64) -> u64 {
        let more = self.more_blocks(tokens, block);
        self.blocks += more;
        self.planned = tokens;
        more
    }

    /// Starts with what others have computed, and returns how many blocks that takes.
    pub(super) fn reuse(&mut self, block: u64) -> u64 {
        self.computed = self.cached;
        self.blocks = self.cached / block;
        self.blocks
    }

    /// Loses its blocks and all that was computed.
    pub(super) fn preempt(&mut self) {
        self.computed = 0;
        self.blocks = 0;
        self.planned = 0;
    }

    /// Ends the step; a sequence whose whole context is now computed gives a token.
    pub(super) fn advance(&mut self) -> Option<Emission> {
        let took_part = self.planned > 0;
        self.computed += std::mem::take(&mut self.planned);
        if !took_part || self.computed < self.tokens() {
            return None;
        }
        let index = self.emitted;
        self.emitted += 1;
        Some(Emission { id: self.id, index, last: self.emitted == self.output })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_preempted_sequence_computes_again_and_emits_only_the_next_token() {
        let mut sequence = Sequence::new(7, 5, 3, Nanos::ZERO);
        assert_eq!(sequence.plan(5, 4), 2);
        assert_eq!(sequence.advance(), Some(Emission { id: 7, index: 0, last: false }));
        assert!(sequence.decoding());
        sequence.preempt();
        assert!(!sequence.decoding());
        assert_eq!((sequence.tokens(), sequence.more_blocks(6, 4)), (6, 2));
        sequence.plan(6, 4);
        assert_eq!(sequence.advance(), Some(Emission { id: 7, index: 1, last: false }));
    }

    #[test]
    fn the_last_token_needs_no_block() {
        assert_eq!(Sequence::new(0, 4, 1, Nanos::ZERO).most_blocks(4), 1);
        assert_eq!(Sequence::new(0, 4, 2, Nanos::ZERO).most_blocks(4), 2);
    }
}
