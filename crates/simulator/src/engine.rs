//! The step model: which tokens one step of the batch takes, how long it lasts, and which sequences emit at its end.
//!
//! A state machine without clock and I/O. [`Engine::begin`] plans a step and says when it ends; [`Engine::complete`]
//! applies it. In between, sequences may be submitted (they wait for the next step) and cancelled.

use llmscen_core::seed::Seed;
use llmscen_core::simulator::Simulator;
use llmscen_core::units::Nanos;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, LogNormal};
use std::collections::VecDeque;
use std::collections::{BTreeMap, HashMap};

/// A request that could never run, even alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the request needs {needs} KV blocks of {block_tokens} tokens and there are {has}: generation for fewer tokens or raise `kv_blocks`"
)]
pub struct TooLong {
    /// Blocks that prompt and output need together.
    pub needs: u64,
    /// Blocks that exist.
    pub has: u64,
    /// Tokens in one block.
    pub block_tokens: u64,
}

/// What a sequence is to do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Job {
    /// Its id; no two sequences have the same at once.
    pub id: u64,
    /// Tokens of its prompt, taken as at least 1.
    pub prompt: u64,
    /// Tokens that it gives, taken as at least 1.
    pub output: u64,
    /// A hash of each full block of the prompt, over the block and all before it; empty where nothing is to be shared.
    pub blocks: Vec<u64>,
}

/// One token that a sequence gave at the end of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Emission {
    /// The sequence.
    pub id: u64,
    /// The token's index in the sequence's output, from 0.
    pub index: u64,
    /// Whether it is the sequence's last token.
    pub last: bool,
}

/// What the engine holds now, and what it has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Occupancy {
    /// Sequences that hold KV blocks.
    pub running: u64,
    /// Sequences that wait for their first or next turn.
    pub waiting: u64,
    /// KV blocks in use.
    pub blocks: u64,
    /// Preemptions so far.
    pub preemptions: u64,
    /// Prompt tokens of the sequences that have had their first token; a recomputed prompt counts once.
    pub prompt_tokens: u64,
    /// Tokens emitted so far.
    pub generation_tokens: u64,
}

/// The work of one step: the terms of its duration.
#[derive(Clone, Copy, Debug, Default)]
struct Work {
    budget: u64,
    prefill: u64,
    decoding: u64,
    context: u64,
}

/// The batch and its queue.
///
/// Sequences are admitted in order of arrival and only the newest is preempted, so that `running` followed by `waiting` is
/// always in order of arrival, and only the newest running sequence can have an unfinished prefill. The oldest one can
/// therefore always go on: each step makes progress.
#[derive(Debug)]
pub struct Engine {
    config: Simulator,
    rng: ChaCha8Rng,
    jitter: Option<LogNormal<f64>>,
    waiting: VecDeque<Sequence>,
    running: Vec<Sequence>,
    total: Occupancy,
    prefixes: PrefixCache,
}

impl Engine {
    /// An idle engine. Jitter is drawn from `seed`; one that is not a positive number means none.
    pub fn new(config: &Simulator, seed: Seed) -> Engine {
        Engine {
            config: config.clone(),
            rng: ChaCha8Rng::seed_from_u64(seed.child("steps").0),
            jitter: unit_lognormal(config.jitter),
            waiting: VecDeque::new(),
            running: Vec::new(),
            total: Occupancy::default(),
            prefixes: PrefixCache::new(config.kv_blocks),
        }
    }

    /// Puts a sequence whose prompt is like no other at the end of the queue; see [`Engine::take`].
    pub fn submit(&mut self, id: u64, prompt: u64, output: u64, now: Nanos) -> Result<(), TooLong> {
        self.take(Job { id, prompt, output, blocks: Vec::new() }, now).map(drop)
    }

    /// Puts a sequence at the end of the queue; `now` must not decrease. Returns how many tokens of its prompt cost no
    /// prefill: those of the first blocks that a prompt computed before now had too, but never the prompt's last token.
    pub fn take(&mut self, job: Job, now: Nanos) -> Result<u64, TooLong> {
        let (prompt, block) = (job.prompt.max(1), self.block());
        let mut sequence = Sequence::new(job.id, prompt, job.output.max(1), now + self.config.admission);
        let (needs, has) = (sequence.most_blocks(block), u64::from(self.config.kv_blocks));
        if needs > has {
            return Err(TooLong { needs, has, block_tokens: block });
        }
        let usable = job.blocks.len().min(((prompt - 1) / block) as usize);
        sequence.cached = self.prefixes.hits(&job.blocks[..usable]) as u64 * block;
        sequence.hashes = job.blocks;
        let cached = sequence.cached;
        self.waiting.push_back(sequence);
        Ok(cached)
    }

    /// Forgets a sequence and frees its blocks; nothing happens where there is none of that id.
    pub fn cancel(&mut self, id: u64) {
        self.waiting.retain(|sequence| sequence.id != id);
        let Some(at) = self.running.iter().position(|sequence| sequence.id == id) else { return };
        self.total.blocks -= self.running.remove(at).blocks;
    }

    /// Plans the next step and returns when it ends; None where there is nothing to do.
    ///
    /// It starts at `from`, or at the arrival of the first sequence where the engine stood idle until then.
    pub fn begin(&mut self, from: Nanos) -> Option<Nanos> {
        let start = match (self.running.first(), self.waiting.front()) {
            (None, None) => return None,
            (None, Some(first)) => from.max(first.arrived),
            _ => from,
        };
        let mut work = Work { budget: u64::from(self.config.max_batched_tokens.max(1)), ..Work::default() };
        let preempted = self.plan_decodes(&mut work);
        self.plan_prefills(&mut work);
        if !preempted {
            self.admit(&mut work, start);
        }
        Some(start + self.duration(work))
    }

    /// Ends the step that [`Engine::begin`] planned and appends what it emitted, in order of arrival.
    pub fn complete(&mut self, emitted: &mut Vec<Emission>) {
        let total = &mut self.total;
        self.running.retain_mut(|sequence| {
            let Some(emission) = sequence.advance() else { return true };
            self.prefixes.touch(&std::mem::take(&mut sequence.hashes));
            emitted.push(emission);
            total.generation_tokens += 1;
            total.prompt_tokens += if emission.index == 0 { sequence.prompt } else { 0 };
            total.blocks -= if emission.last { sequence.blocks } else { 0 };
            !emission.last
        });
    }

    /// What it holds and has done, as of the last completed step.
    pub fn occupancy(&self) -> Occupancy {
        Occupancy { running: self.running.len() as u64, waiting: self.waiting.len() as u64, ..self.total }
    }

    /// One token for each sequence that decodes, oldest first. True where the newest had to make room.
    fn plan_decodes(&mut self, work: &mut Work) -> bool {
        let before = self.total.preemptions;
        let mut at = 0;
        while at < self.running.len() && work.budget > 0 {
            if self.running[at].decoding() && self.make_room(at) {
                work.decoding += 1;
                work.context += self.running[at].tokens();
                work.budget -= 1;
                self.plan(at, 1);
            }
            at += 1;
        }
        self.total.preemptions > before
    }

    /// Preempts from the newest down until one more token of the sequence at `at` has its block. False where the
    /// sequence itself was the newest, and is gone.
    fn make_room(&mut self, at: usize) -> bool {
        while self.running[at].more_blocks(1, self.block()) > self.free() {
            let Some(mut newest) = self.running.pop() else { return false };
            self.total.blocks -= newest.blocks;
            self.total.preemptions += 1;
            newest.preempt();
            self.waiting.push_front(newest);
            if self.running.len() <= at {
                return false;
            }
        }
        true
    }

    /// The next chunk of the prefills that are under way, as far as budget and blocks reach.
    fn plan_prefills(&mut self, work: &mut Work) {
        for at in 0..self.running.len() {
            if !self.running[at].decoding() {
                self.plan_chunk(at, work);
            }
        }
    }

    /// New sequences in the queue at `start`, in order of arrival, while there is capacity of every kind: for what
    /// they find computed, and for a block more.
    fn admit(&mut self, work: &mut Work, start: Nanos) {
        let most = self.config.max_num_seqs.max(1) as usize;
        while work.budget > 0 && self.free() > 0 && self.running.len() < most {
            let (free, block) = (self.free(), self.block());
            let fits = |sequence: &mut Sequence| sequence.arrived <= start && sequence.cached / block < free;
            let Some(mut sequence) = self.waiting.pop_front_if(fits) else { return };
            self.total.blocks += sequence.reuse(block);
            self.running.push(sequence);
            self.plan_chunk(self.running.len() - 1, work);
        }
    }

    fn plan_chunk(&mut self, at: usize, work: &mut Work) {
        let sequence = &self.running[at];
        let room = self.free() * self.block() + sequence.slack(self.block());
        let chunk = (sequence.tokens() - sequence.computed).min(work.budget).min(room);
        work.prefill += chunk;
        work.budget -= chunk;
        self.plan(at, chunk);
    }

    fn plan(&mut self, at: usize, tokens: u64) {
        let block = self.block();
        self.total.blocks += self.running[at].plan(tokens, block);
    }

    fn duration(&mut self, work: Work) -> Nanos {
        let Simulator { alpha, beta, gamma, delta, .. } = self.config;
        let terms = [(beta, work.prefill), (gamma, work.decoding), (delta, work.context)];
        let exact = terms.iter().fold(alpha, |sum, (each, count)| sum + Nanos(each.0.saturating_mul(*count)));
        match self.jitter {
            Some(factor) => Nanos((exact.0 as f64 * factor.sample(&mut self.rng)).round() as u64),
            None => exact,
        }
    }

    fn block(&self) -> u64 {
        u64::from(self.config.block_tokens.max(1))
    }

    fn free(&self) -> u64 {
        u64::from(self.config.kv_blocks) - self.total.blocks
    }
}

/// A lognormal of mean 1 and standard deviation `sd`: σ² = ln(1 + sd²), μ = −σ²/2 (Johnson, Kotz and Balakrishnan,
/// "Continuous Univariate Distributions" 1, chapter 14).
fn unit_lognormal(sd: f64) -> Option<LogNormal<f64>> {
    if !sd.is_finite() || sd <= 0.0 {
        return None;
    }
    let variance = (sd * sd).ln_1p();
    LogNormal::new(-variance / 2.0, variance.sqrt()).ok()
}

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
