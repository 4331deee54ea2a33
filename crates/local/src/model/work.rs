//! Batches: the prompts first, then a token for each row at a time.
//!
//! Prompts of different lengths are padded on their right: row `i` of `P` tokens has columns `0..P` of the cache, the columns
//! up to the longest prompt are never looked at, and its tokens go to the columns behind, while their rotary positions run on
//! from `P`. A row that ended stays in the batch, uncounted, until all have.

use crate::error::LocalError;
use crate::generation_params::{Ended, GenerationParams, RowOutput};
use crate::model::cache::Cache;
use crate::model::network::{Network, Place};
use crate::model::rope::Rope;
use crate::sample;
use candle_core::{Device, Result, Tensor};
use llmscen_core::units::Nanos;
use llmscen_datasets::token::{IncrementalDecoder, Tokenizer};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use rayon::prelude::*;
use std::collections::BTreeSet;

/// Numbers that a piece of the prompts may need at once for its scores or its feed-forward network: longer prompts are worked
/// on in pieces.
const AT_ONCE: usize = 1 << 26;
/// Positions that a piece has at least.
const PIECE: usize = 16;

/// A batch in work.
pub struct Batch<'a, 'b> {
    /// The model.
    pub network: &'a Network,
    /// Its positions, far enough for all.
    pub rope: &'a Rope,
    /// Its keys and values.
    pub cache: &'a mut Cache,
    /// Width of the feed-forward network.
    pub intermediate: usize,
    /// Its rows.
    pub rows: &'a mut [Row<'b>],
    /// Whether somebody waits for a row.
    pub alive: &'a (dyn Fn(usize) -> bool + Sync),
    /// Tokens of the longest prompt.
    pub longest: usize,
    /// Columns behind the prompts that are hidden from each row, in front of its own tokens; None where no prompt is padded.
    pub hidden: Option<Tensor>,
    /// Tokens that each row has.
    pub done: usize,
}

/// The mask that hides the padding of each row from all that is generated: rows × 1 × 1 × 1 × `columns`.
pub fn hidden(lengths: &[usize], columns: usize, device: &Device) -> Result<Option<Tensor>> {
    let longest = lengths.iter().copied().max().unwrap_or(0);
    if lengths.iter().all(|length| *length == longest) {
        return Ok(None);
    }
    let of = |length: usize| (0..columns).map(move |at| if (length..longest).contains(&at) { f32::NEG_INFINITY } else { 0.0 });
    let values: Vec<f32> = lengths.iter().flat_map(|length| of(*length)).collect();
    Tensor::from_vec(values, (lengths.len(), 1, 1, 1, columns), device).map(Some)
}

/// The mask of a piece of the prompts: each position sees itself and those before.
fn causal(start: usize, positions: usize, device: &Device) -> Result<Option<Tensor>> {
    if positions == 1 {
        return Ok(None);
    }
    let seen = start + positions;
    let row = |own: usize| (0..seen).map(move |at| if at > start + own { f32::NEG_INFINITY } else { 0.0 });
    let values: Vec<f32> = (0..positions).flat_map(row).collect();
    Tensor::from_vec(values, (positions, seen), device).map(Some)
}

impl Batch<'_, '_> {
    /// Whether anybody waits for what is computed.
    fn wanted(&self) -> bool {
        self.rows.iter().enumerate().any(|(number, row)| row.goes_on() && (self.alive)(number))
    }

    /// BatchModel on the prompts and chooses the first token of each row. False where it was given up before its end.
    pub fn prefill(&mut self) -> std::result::Result<bool, LocalError> {
        let lengths: Vec<usize> = self.rows.iter().map(|row| row.ask.prompt.len()).collect();
        let breadth = lengths.len() * self.network.breadth(self.longest, self.intermediate);
        let piece = (AT_ONCE / breadth.max(1)).max(PIECE).min(self.longest);
        let (mut order, mut states) = (Vec::new(), Vec::new());
        for start in (0..self.longest).step_by(piece) {
            let positions = piece.min(self.longest - start);
            let (ids, place) = (self.ids(start, positions), self.piece(start, positions)?);
            let Some(state) = self.network.forward(&ids, &place, self.cache, || self.wanted())? else { return Ok(false) };
            // The rows whose prompt ends here, each with the place of its last token.
            let ends = (0u32..).zip(&lengths).filter(|(_, length)| (start..start + positions).contains(&(**length - 1)));
            let ends: Vec<(u32, u32)> =
                ends.map(|(row, length)| (row, row * positions as u32 + (length - 1 - start) as u32)).collect();
            if !ends.is_empty() {
                let (rows, places): (Vec<u32>, Vec<u32>) = ends.into_iter().unzip();
                states.push(state.index_select(&Tensor::new(places, &self.network.device)?, 0)?);
                order.extend(rows);
            }
        }
        let states = Tensor::cat(&states, 0)?;
        let states = if order.is_sorted() { states } else { states.index_select(&self.back(&order)?, 0)? };
        self.choose(&self.network.logits(&states)?)?;
        Ok(true)
    }

    /// Where each row stands in `order`.
    fn back(&self, order: &[u32]) -> Result<Tensor> {
        let mut places: Vec<(u32, u32)> = order.iter().copied().zip(0..).collect();
        places.sort_unstable();
        Tensor::new(places.into_iter().map(|(_, place)| place).collect::<Vec<u32>>(), &self.network.device)
    }

    /// BatchModel on the last token of each row and chooses the next. False where it was given up before its end.
    pub fn step(&mut self) -> std::result::Result<bool, LocalError> {
        let column = self.longest + self.done - 1;
        self.cache.reach(column + 1)?;
        let device = &self.network.device;
        let (rope, mask) = match &self.hidden {
            None => (self.rope.run(column, 1)?, None),
            Some(hidden) => {
                let positions: Vec<u32> = self.rows.iter().map(|row| (row.ask.prompt.len() + self.done - 1) as u32).collect();
                (self.rope.each(&positions, device)?, Some(hidden.narrow(4, 0, column + 1)?))
            }
        };
        let place = Place { rows: self.rows.len(), positions: 1, start: column, rope, mask };
        let ids: Vec<u32> = self.rows.iter().map(Row::last).collect();
        let Some(state) = self.network.forward(&ids, &place, self.cache, || self.wanted())? else { return Ok(false) };
        self.choose(&self.network.logits(&state)?)?;
        Ok(true)
    }

    /// The tokens of a piece of the prompts, row after row, zeros behind their ends.
    fn ids(&self, start: usize, positions: usize) -> Vec<u32> {
        let of = |row: &Row| {
            let own = row.ask.prompt.iter().skip(start).copied();
            own.chain(std::iter::repeat(0)).take(positions).collect::<Vec<u32>>()
        };
        self.rows.iter().flat_map(of).collect()
    }

    fn piece(&self, start: usize, positions: usize) -> Result<Place> {
        let mask = causal(start, positions, &self.network.device)?;
        Ok(Place { rows: self.rows.len(), positions, start, rope: self.rope.run(start, positions)?, mask })
    }

    /// Chooses a token for each row from its logits.
    fn choose(&mut self, logits: &Tensor) -> std::result::Result<(), LocalError> {
        self.network.device.synchronize()?;
        let width = logits.dim(1)?;
        let mut values = logits.flatten_all()?.to_vec1::<f32>()?;
        match &mut *self.rows {
            [row] => row.choose(&mut values),
            rows => rows.par_iter_mut().zip(values.par_chunks_mut(width)).for_each(|(row, logits)| row.choose(logits)),
        }
        self.done += 1;
        Ok(())
    }
}

/// What becomes of an ask.
#[derive(Debug)]
pub struct Row<'a> {
    /// What is asked.
    pub ask: &'a GenerationParams,
    rng: ChaCha8Rng,
    /// Tokens of the prompt and generated ones, where a penalty wants to know.
    seen: BTreeSet<u32>,
    tokens: Vec<u32>,
    stamps: Vec<Nanos>,
    /// Room for the logits of all its steps, written to beforehand: no step waits for memory.
    logits: Option<Vec<f32>>,
    growing: IncrementalDecoder,
    /// The text in front of what stopped it.
    cut: Option<String>,
    ended: Option<Ended>,
}

impl<'a> Row<'a> {
    /// A row that has nothing yet, of a model of this limit and vocabulary.
    pub fn new(ask: &'a GenerationParams, limit: usize, vocabulary: usize) -> Row<'a> {
        let room = limit.saturating_sub(ask.prompt.len());
        let steps = usize::try_from(ask.max_tokens).map_or(room, |most| most.min(room));
        let penalised = ask.sampling.repetition_penalty != 1.0;
        Row {
            ask,
            rng: ChaCha8Rng::seed_from_u64(ask.sampling.seed),
            seen: ask.prompt.iter().filter(|_| penalised).copied().collect(),
            tokens: Vec::new(),
            stamps: Vec::new(),
            logits: ask.logits.then(|| vec![f32::NAN; steps * vocabulary]),
            growing: IncrementalDecoder::default(),
            cut: None,
            ended: None,
        }
    }

    /// Whether more tokens are wanted.
    pub fn goes_on(&self) -> bool {
        self.ended.is_none()
    }

    /// It is wanted no more.
    pub fn give_up(&mut self) {
        self.ended = Some(Ended::GivenUp);
    }

    /// Its last token, of the prompt where it has no other.
    pub fn last(&self) -> u32 {
        self.tokens.last().or(self.ask.prompt.last()).copied().unwrap_or(0)
    }

    /// Chooses its next token, where it goes on. Writes over the logits.
    pub fn choose(&mut self, logits: &mut [f32]) {
        if !self.goes_on() {
            return;
        }
        let from = self.tokens.len() * logits.len();
        if let Some(kept) = self.logits.as_mut().and_then(|all| all.get_mut(from..from + logits.len())) {
            kept.copy_from_slice(logits);
        }
        let sampling = &self.ask.sampling;
        let token = sample::choose(logits, sampling, &self.seen, &mut self.rng);
        if sampling.repetition_penalty != 1.0 {
            self.seen.insert(token);
        }
        self.tokens.push(token);
    }

    /// Stamps the token that was chosen, and ends the row where that was its last.
    pub fn settle(&mut self, stamp: Nanos, tokenizer: &Tokenizer, eos: &[u32], limit: usize) {
        if !self.goes_on() {
            return;
        }
        self.stamps.push(stamp);
        let token = self.last();
        if !self.ask.ignore_eos && eos.contains(&token) {
            self.ended = Some(Ended::Stop);
            self.cut = Some(tokenizer.decode(self.tokens.split_last().map_or(&[], |(_, before)| before)).unwrap_or_default());
        } else if !self.ask.stop.is_empty() && self.stops(tokenizer, token) {
            self.ended = Some(Ended::Stop);
        } else if self.tokens.len() as u64 >= self.ask.max_tokens || self.ask.prompt.len() + self.tokens.len() >= limit {
            self.ended = Some(Ended::Length);
        }
    }

    /// Whether the text holds a stop now; it may have begun in what was there before.
    fn stops(&mut self, tokenizer: &Tokenizer, token: u32) -> bool {
        let brought = self.growing.push(tokenizer, token);
        let text = self.growing.text();
        let longest = self.ask.stop.iter().map(String::len).max().unwrap_or(0);
        let from = text.floor_char_boundary((text.len() - brought).saturating_sub(longest));
        let stops = self.ask.stop.iter().filter(|stop| !stop.is_empty());
        let first = stops.filter_map(|stop| text.get(from..)?.find(stop.as_str())).min();
        self.cut = first.and_then(|at| text.get(..from + at)).map(str::to_owned);
        self.cut.is_some()
    }

    /// What became of it.
    pub fn told(self, tokenizer: &Tokenizer, vocabulary: usize) -> RowOutput {
        let text = self.cut.or_else(|| tokenizer.decode(&self.tokens)).unwrap_or_default();
        let ended = self.ended.unwrap_or(Ended::GivenUp);
        let mut logits = self.logits;
        logits.iter_mut().for_each(|all| all.truncate(self.tokens.len() * vocabulary));
        RowOutput { tokens: self.tokens, text, stamps: self.stamps, ended, logits }
    }
}
