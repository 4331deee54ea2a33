//! Which prompt blocks the engine has computed lately: the prefix cache.

use std::collections::{BTreeMap, HashMap};

/// The least recently used blocks leave first.
#[derive(Debug, Default)]
pub(super) struct PrefixCache {
    most: usize,
    clock: u64,
    /// When each block was last used.
    used: HashMap<u64, u64>,
    /// The same, by time.
    order: BTreeMap<u64, u64>,
}

impl PrefixCache {
    /// An empty cache of at most so many blocks.
    pub(super) fn new(most: u32) -> PrefixCache {
        PrefixCache { most: most as usize, ..PrefixCache::default() }
    }

    /// How many of a prompt's first blocks it holds. They count as used now.
    pub(super) fn hits(&mut self, blocks: &[u64]) -> usize {
        let hits = blocks.iter().take_while(|block| self.used.contains_key(block)).count();
        self.touch(&blocks[..hits]);
        hits
    }

    /// Takes in the first blocks of a prompt. Of one prompt the last leave first: a prefix is of use without them.
    pub(super) fn touch(&mut self, blocks: &[u64]) {
        for &block in blocks.iter().rev() {
            self.clock += 1;
            if let Some(before) = self.used.insert(block, self.clock) {
                self.order.remove(&before);
            }
            self.order.insert(self.clock, block);
        }
        while self.used.len() > self.most {
            let Some((_, oldest)) = self.order.pop_first() else { return };
            self.used.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hits_are_a_prefix_and_the_oldest_block_leaves_first() {
        let mut cache = PrefixCache::new(4);
        cache.touch(&[1, 2, 3]);
        assert_eq!((cache.hits(&[1, 2, 9, 3]), cache.hits(&[2]), cache.hits(&[7, 1])), (2, 1, 0));
        // 3 has not been used since, so it makes room for the second of these.
        cache.touch(&[4, 5]);
        assert_eq!((cache.hits(&[1, 2, 3]), cache.hits(&[4, 5])), (2, 2));
        // Of 4 and 5, 2 and 1 the last of the older prompt leaves.
        cache.touch(&[6]);
        assert_eq!((cache.hits(&[1, 2]), cache.used.len(), cache.order.len()), (1, 4, 4));
    }
}
