//! The model of a batching engine: which tokens each step processes, how long it takes, and which sequences emit a
//! token.
//!
//! A state machine without clock and I/O. [`Engine::begin`] plans a step and returns its end; [`Engine::complete`]
//! applies it. In between, sequences may be submitted (for the next step) and cancelled.

use llmscen_core::seed::Seed;
use llmscen_core::simulator::Simulator;
use llmscen_core::units::Nanos;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, LogNormal};
use std::collections::{BTreeMap, HashMap, VecDeque};

/// A request that does not fit into the KV cache, even alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the request needs {needs} KV blocks of {block_tokens} tokens and there are {has}: request \
    fewer tokens or raise `kv_blocks`"
)]
pub struct TooLong {
    /// Blocks needed for prompt and output.
    pub needs: u64,
    /// Number of blocks.
    pub has: u64,
    /// Tokens per block.
    pub block_tokens: u64,
}

/// A sequence to process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Job {
    /// Id, unique among current sequences.
    pub id: u64,
    /// Prompt tokens; 0 counts as 1.
    pub prompt: u64,
    /// Output tokens; 0 counts as 1.
    pub output: u64,
    /// A hash of each full block of the prompt including all previous blocks; empty without sharing.
    pub blocks: Vec<u64>,
}

/// One token emitted by a sequence at the end of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Emission {
    /// The sequence.
    pub id: u64,
    /// The token's index in the sequence's output, from 0.
    pub index: u64,
    /// Whether it is the sequence's last token.
    pub last: bool,
}

/// The current state of the engine, and its counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Occupancy {
    /// Sequences with KV blocks.
    pub running: u64,
    /// Sequences in the queue.
    pub waiting: u64,
    /// KV blocks in use.
    pub blocks: u64,
    /// Number of preemptions.
    pub preemptions: u64,
    /// Prompt tokens of sequences that have emitted a token; recomputed prompts count once.
    pub prompt_tokens: u64,
    /// Number of emitted tokens.
    pub generation_tokens: u64,
}

impl Occupancy {
    /// The sum over two engines.
    pub(super) fn add(self, other: Occupancy) -> Occupancy {
        Occupancy {
            running: self.running + other.running,
            waiting: self.waiting + other.waiting,
            blocks: self.blocks + other.blocks,
            preemptions: self.preemptions + other.preemptions,
            prompt_tokens: self.prompt_tokens + other.prompt_tokens,
            generation_tokens: self.generation_tokens + other.generation_tokens,
        }
    }
}

/// The work of one step, which determines its duration.
#[derive(Clone, Copy, Debug, Default)]
struct Work {
    budget: u64,
    prefill: u64,
    decoding: u64,
    context: u64,
}

/// The engine: batch and queue.
///
/// Sequences are admitted in order of arrival and only the newest is preempted. So `running` followed by `waiting` is
/// always in order of arrival, only the newest running sequence can have an unfinished prefill, and the oldest
/// sequence makes progress in every step.
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
    /// An idle engine. Jitter is random by `seed`; none if it is not a positive number.
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

    /// Queues a sequence with a unique prompt; see [`Engine::take`].
    pub fn submit(&mut self, id: u64, prompt: u64, output: u64, now: Nanos) -> Result<(), TooLong> {
        self.take(
            Job {
                id,
                prompt,
                output,
                blocks: Vec::new(),
            },
            now,
        )
        .map(drop)
    }

    /// Empties the prefix cache. Sequences that were queued keep their cached tokens.
    pub fn reset_prefix_cache(&mut self) {
        self.prefixes = PrefixCache {
            most: self.prefixes.most,
            ..PrefixCache::default()
        };
    }

    /// Queues a sequence; `now` must not decrease. Returns the number of cached prompt tokens: those of leading
    /// blocks of earlier prompts, without the last prompt token.
    pub fn take(&mut self, job: Job, now: Nanos) -> Result<u64, TooLong> {
        let (prompt, block) = (job.prompt.max(1), self.block());
        let mut sequence = Sequence::new(
            job.id,
            prompt,
            job.output.max(1),
            now + self.config.admission,
        );
        let (needs, has) = (
            sequence.most_blocks(block),
            u64::from(self.config.kv_blocks),
        );
        if needs > has {
            return Err(TooLong {
                needs,
                has,
                block_tokens: block,
            });
        }
        let usable = job.blocks.len().min(((prompt - 1) / block) as usize);
        sequence.cached = self.prefixes.hits(&job.blocks[..usable]) as u64 * block;
        sequence.hashes = job.blocks;
        let cached = sequence.cached;
        self.waiting.push_back(sequence);
        Ok(cached)
    }

    /// Removes a sequence and frees its blocks; ignores an unknown id.
    pub fn cancel(&mut self, id: u64) {
        self.waiting.retain(|sequence| sequence.id != id);
        let Some(at) = self.running.iter().position(|sequence| sequence.id == id) else {
            return;
        };
        self.total.blocks -= self.running.remove(at).blocks;
    }

    /// Plans the next step and returns its end; None without work.
    ///
    /// The step starts at `from`, or at the arrival of the first sequence if the engine is idle.
    pub fn begin(&mut self, from: Nanos) -> Option<Nanos> {
        let start = match (self.running.first(), self.waiting.front()) {
            (None, None) => return None,
            (None, Some(first)) => from.max(first.arrived),
            _ => from,
        };
        let mut work = Work {
            budget: u64::from(self.config.max_batched_tokens.max(1)),
            ..Work::default()
        };
        let preempted = self.plan_decodes(&mut work);
        self.plan_prefills(&mut work);
        if !preempted {
            self.admit(&mut work, start);
        }
        Some(start + self.duration(work))
    }

    /// Ends the step that [`Engine::begin`] planned and appends the emitted tokens, in order of arrival.
    pub fn complete(&mut self, emitted: &mut Vec<Emission>) {
        let total = &mut self.total;
        self.running.retain_mut(|sequence| {
            let Some(emission) = sequence.advance() else {
                return true;
            };
            self.prefixes.touch(&std::mem::take(&mut sequence.hashes));
            emitted.push(emission);
            total.generation_tokens += 1;
            total.prompt_tokens += if emission.index == 0 {
                sequence.prompt
            } else {
                0
            };
            total.blocks -= if emission.last { sequence.blocks } else { 0 };
            !emission.last
        });
    }

    /// State and counters after the last completed step.
    pub fn occupancy(&self) -> Occupancy {
        Occupancy {
            running: self.running.len() as u64,
            waiting: self.waiting.len() as u64,
            ..self.total
        }
    }

    /// Plans one token per decoding sequence, oldest first. Returns whether there was a preemption.
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

    /// Preempts the newest sequences until there is a block for one more token of the sequence at `at`. False if that
    /// sequence itself was preempted.
    fn make_room(&mut self, at: usize) -> bool {
        while self.running[at].more_blocks(1, self.block()) > self.free() {
            let Some(mut newest) = self.running.pop() else {
                return false;
            };
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

    /// Plans the next chunk of unfinished prefills, as far as budget and blocks allow.
    fn plan_prefills(&mut self, work: &mut Work) {
        for at in 0..self.running.len() {
            if !self.running[at].decoding() {
                self.plan_chunk(at, work);
            }
        }
    }

    /// Admits queued sequences at `start`, in order of arrival, while there is capacity for their cached blocks and
    /// one more block.
    fn admit(&mut self, work: &mut Work, start: Nanos) {
        let most = self.config.max_num_seqs.max(1) as usize;
        while work.budget > 0 && self.free() > 0 && self.running.len() < most {
            let (free, block) = (self.free(), self.block());
            let fits = |sequence: &mut Sequence| {
                sequence.arrived <= start && sequence.cached / block < free
            };
            let Some(mut sequence) = self.waiting.pop_front_if(fits) else {
                return;
            };
            self.total.blocks += sequence.reuse(block);
            self.running.push(sequence);
            self.plan_chunk(self.running.len() - 1, work);
        }
    }

    fn plan_chunk(&mut self, at: usize, work: &mut Work) {
        let sequence = &self.running[at];
        let room = self.free() * self.block() + sequence.slack(self.block());
        let chunk = (sequence.tokens() - sequence.computed)
            .min(work.budget)
            .min(room);
        work.prefill += chunk;
        work.budget -= chunk;
        self.plan(at, chunk);
    }

    fn plan(&mut self, at: usize, tokens: u64) {
        let block = self.block();
        self.total.blocks += self.running[at].plan(tokens, block);
    }

    fn duration(&mut self, work: Work) -> Nanos {
        let Simulator {
            alpha,
            beta,
            gamma,
            delta,
            ..
        } = self.config;
        let terms = [
            (beta, work.prefill),
            (gamma, work.decoding),
            (delta, work.context),
        ];
        let exact = terms.iter().fold(alpha, |sum, (each, count)| {
            sum + Nanos(each.0.saturating_mul(*count))
        });
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

/// A sequence. Its prompt and emitted tokens must be in the KV cache before it emits the next one.
///
/// Its last token is never added to the cache. A preemption resets `computed` but not `emitted`, so that emitted
/// tokens are prefilled and not emitted again.
#[derive(Clone, Debug)]
pub(super) struct Sequence {
    pub(super) id: u64,
    pub(super) arrived: Nanos,
    pub(super) prompt: u64,
    pub(super) computed: u64,
    pub(super) blocks: u64,
    /// Prompt tokens in the prefix cache: full blocks, fewer than the prompt.
    pub(super) cached: u64,
    /// Hashes of the full prompt blocks, until the prompt is computed.
    pub(super) hashes: Vec<u64>,
    output: u64,
    emitted: u64,
    planned: u64,
}

impl Sequence {
    pub(super) fn new(id: u64, prompt: u64, output: u64, arrived: Nanos) -> Sequence {
        let (cached, hashes) = (0, Vec::new());
        Sequence {
            id,
            arrived,
            prompt,
            output,
            cached,
            hashes,
            computed: 0,
            blocks: 0,
            emitted: 0,
            planned: 0,
        }
    }

    /// Context tokens, from which the next token is computed.
    pub(super) fn tokens(&self) -> u64 {
        self.prompt + self.emitted
    }

    /// Whether only its newest token is not computed yet.
    pub(super) fn decoding(&self) -> bool {
        self.emitted > 0 && self.computed + 1 == self.tokens()
    }

    /// Blocks needed for its last token.
    pub(super) fn most_blocks(&self, block: u64) -> u64 {
        self.prompt.saturating_add(self.output - 1).div_ceil(block)
    }

    /// Additional blocks needed for `tokens` more tokens.
    pub(super) fn more_blocks(&self, tokens: u64, block: u64) -> u64 {
        (self.computed + tokens)
            .div_ceil(block)
            .saturating_sub(self.blocks)
    }

    /// Tokens that fit into its current blocks.
    pub(super) fn slack(&self, block: u64) -> u64 {
        self.blocks * block - self.computed
    }

    /// Allocates blocks for `tokens` of the next step; returns their number.
    pub(super) fn plan(&mut self, tokens: u64, block: u64) -> u64 {
        let more = self.more_blocks(tokens, block);
        self.blocks += more;
        self.planned = tokens;
        more
    }

    /// Starts with the cached tokens; returns the number of their blocks.
    pub(super) fn reuse(&mut self, block: u64) -> u64 {
        self.computed = self.cached;
        self.blocks = self.cached / block;
        self.blocks
    }

    /// Releases its blocks and computed tokens.
    pub(super) fn preempt(&mut self) {
        self.computed = 0;
        self.blocks = 0;
        self.planned = 0;
    }

    /// Ends the step; a sequence with a fully computed context emits a token.
    pub(super) fn advance(&mut self) -> Option<Emission> {
        let took_part = self.planned > 0;
        self.computed += std::mem::take(&mut self.planned);
        if !took_part || self.computed < self.tokens() {
            return None;
        }
        let index = self.emitted;
        self.emitted += 1;
        Some(Emission {
            id: self.id,
            index,
            last: self.emitted == self.output,
        })
    }
}

/// The prefix cache: block hashes with least-recently-used eviction.
#[derive(Debug, Default)]
pub(super) struct PrefixCache {
    most: usize,
    clock: u64,
    /// Last use of each block.
    used: HashMap<u64, u64>,
    /// Blocks by last use.
    order: BTreeMap<u64, u64>,
}

impl PrefixCache {
    /// An empty cache for up to `most` blocks.
    pub(super) fn new(most: u32) -> PrefixCache {
        PrefixCache {
            most: most as usize,
            ..PrefixCache::default()
        }
    }

    /// Number of leading prompt blocks in the cache, which are marked as used.
    pub(super) fn hits(&mut self, blocks: &[u64]) -> usize {
        let hits = blocks
            .iter()
            .take_while(|block| self.used.contains_key(block))
            .count();
        self.touch(&blocks[..hits]);
        hits
    }

    /// Adds the leading blocks of a prompt. The last ones are evicted first, because a prefix is useful without them.
    pub(super) fn touch(&mut self, blocks: &[u64]) {
        for &block in blocks.iter().rev() {
            self.clock += 1;
            if let Some(before) = self.used.insert(block, self.clock) {
                self.order.remove(&before);
            }
            self.order.insert(self.clock, block);
        }
        while self.used.len() > self.most {
            let Some((_, oldest)) = self.order.pop_first() else {
                return;
            };
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
        assert_eq!(
            sequence.advance(),
            Some(Emission {
                id: 7,
                index: 0,
                last: false
            })
        );
        assert!(sequence.decoding());
        sequence.preempt();
        assert!(!sequence.decoding());
        assert_eq!((sequence.tokens(), sequence.more_blocks(6, 4)), (6, 2));
        sequence.plan(6, 4);
        assert_eq!(
            sequence.advance(),
            Some(Emission {
                id: 7,
                index: 1,
                last: false
            })
        );
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
        assert_eq!(
            (
                cache.hits(&[1, 2, 9, 3]),
                cache.hits(&[2]),
                cache.hits(&[7, 1])
            ),
            (2, 1, 0)
        );
        // 3 has not been used since, so it makes room for the second of these.
        cache.touch(&[4, 5]);
        assert_eq!((cache.hits(&[1, 2, 3]), cache.hits(&[4, 5])), (2, 2));
        // Of 4 and 5, 2 and 1 the last of the older prompt leaves.
        cache.touch(&[6]);
        assert_eq!(
            (cache.hits(&[1, 2]), cache.used.len(), cache.order.len()),
            (1, 4, 4)
        );
    }
}
