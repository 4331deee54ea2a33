//! Batches: prefill of all prompts, then one token per row and step.
//!
//! Prompts of different lengths are padded on the right: row `i` of `P` tokens has columns `0..P` of the cache, the
//! columns up to the longest prompt are masked, and its generated tokens have the columns after that, while their
//! rotary positions continue from `P`. A row that ended stays in the batch until all have ended.

use crate::error::LocalError;
use crate::generation_params::{Ended, GenerationParams, RowOutput};
use crate::model::network::{Cache, Network, PiecePosition};
use crate::model::rope::Rope;
use crate::sample;
use candle_core::{Device, Result, Tensor};
use llmscen_core::units::Nanos;
use llmscen_datasets::token::{IncrementalDecoder, Tokenizer};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use rayon::prelude::*;
use std::collections::BTreeSet;

/// Limit of the numbers in the scores or the feed-forward network of a piece of the prompts; longer prompts are split.
const PIECE_NUMBERS: usize = 1 << 26;
/// Least number of positions of a piece.
const MIN_PIECE: usize = 16;

/// A batch that is being computed.
pub struct Batch<'a, 'b> {
    pub network: &'a Network,
    /// Covers all positions of the batch.
    pub rope: &'a Rope,
    pub cache: &'a mut Cache,
    /// Width of the feed-forward network.
    pub intermediate: usize,
    pub rows: &'a mut [Row<'b>],
    /// Whether a row is not cancelled.
    pub alive: &'a (dyn Fn(usize) -> bool + Sync),
    /// Tokens of the longest prompt.
    pub longest: usize,
    /// Masks the padding of each row; None where no prompt is padded.
    pub padding_mask: Option<Tensor>,
    /// Number of generated tokens per row.
    pub done: usize,
}

/// The mask of the padding of each row: rows × 1 × 1 × 1 × `columns`.
pub fn padding_mask(lengths: &[usize], columns: usize, device: &Device) -> Result<Option<Tensor>> {
    let longest = lengths.iter().copied().max().unwrap_or(0);
    if lengths.iter().all(|length| *length == longest) {
        return Ok(None);
    }
    let row = |length: usize| {
        (0..columns).map(move |at| {
            if (length..longest).contains(&at) {
                f32::NEG_INFINITY
            } else {
                0.0
            }
        })
    };
    let values: Vec<f32> = lengths.iter().flat_map(|length| row(*length)).collect();
    Tensor::from_vec(values, (lengths.len(), 1, 1, 1, columns), device).map(Some)
}

/// The causal mask of a piece of the prompts.
fn causal_mask(start: usize, positions: usize, device: &Device) -> Result<Option<Tensor>> {
    if positions == 1 {
        return Ok(None);
    }
    let columns = start + positions;
    let row = |position: usize| {
        (0..columns).map(move |at| {
            if at > start + position {
                f32::NEG_INFINITY
            } else {
                0.0
            }
        })
    };
    let values: Vec<f32> = (0..positions).flat_map(row).collect();
    Tensor::from_vec(values, (positions, columns), device).map(Some)
}

impl Batch<'_, '_> {
    /// Whether any active row is not cancelled.
    fn is_needed(&self) -> bool {
        self.rows
            .iter()
            .enumerate()
            .any(|(number, row)| row.is_active() && (self.alive)(number))
    }

    /// Computes the prompts and samples the first token of each row. False where it was cancelled.
    pub fn prefill(&mut self) -> std::result::Result<bool, LocalError> {
        let lengths: Vec<usize> = self
            .rows
            .iter()
            .map(|row| row.params.prompt.len())
            .collect();
        let numbers = lengths.len()
            * self
                .network
                .numbers_per_position(self.longest, self.intermediate);
        let piece = (PIECE_NUMBERS / numbers.max(1))
            .max(MIN_PIECE)
            .min(self.longest);
        let mut order = Vec::new();
        let mut states = Vec::new();
        for start in (0..self.longest).step_by(piece) {
            let positions = piece.min(self.longest - start);
            let ids = self.piece_ids(start, positions);
            let place = self.piece(start, positions)?;
            let Some(state) = self
                .network
                .forward(&ids, &place, self.cache, || self.is_needed())?
            else {
                return Ok(false);
            };
            // The rows whose prompt ends in this piece, with the index of their last token.
            let ends = (0u32..)
                .zip(&lengths)
                .filter(|(_, length)| (start..start + positions).contains(&(**length - 1)));
            let ends: Vec<(u32, u32)> = ends
                .map(|(row, length)| (row, row * positions as u32 + (length - 1 - start) as u32))
                .collect();
            if !ends.is_empty() {
                let (rows, indices): (Vec<u32>, Vec<u32>) = ends.into_iter().unzip();
                states.push(state.index_select(&Tensor::new(indices, &self.network.device)?, 0)?);
                order.extend(rows);
            }
        }
        let states = Tensor::cat(&states, 0)?;
        let states = if order.is_sorted() {
            states
        } else {
            states.index_select(&self.inverse(&order)?, 0)?
        };
        self.sample(&self.network.logits(&states)?)?;
        Ok(true)
    }

    /// The index of each row in `order`.
    fn inverse(&self, order: &[u32]) -> Result<Tensor> {
        let mut indices: Vec<(u32, u32)> = order.iter().copied().zip(0..).collect();
        indices.sort_unstable();
        Tensor::new(
            indices
                .into_iter()
                .map(|(_, index)| index)
                .collect::<Vec<u32>>(),
            &self.network.device,
        )
    }

    /// Computes the last token of each row and samples the next one. False where it was cancelled.
    pub fn step(&mut self) -> std::result::Result<bool, LocalError> {
        let column = self.longest + self.done - 1;
        self.cache.extend_to(column + 1)?;
        let device = &self.network.device;
        let (rope, mask) = match &self.padding_mask {
            None => (self.rope.range(column, 1)?, None),
            Some(mask) => {
                let positions: Vec<u32> = self
                    .rows
                    .iter()
                    .map(|row| (row.params.prompt.len() + self.done - 1) as u32)
                    .collect();
                (
                    self.rope.at_positions(&positions, device)?,
                    Some(mask.narrow(4, 0, column + 1)?),
                )
            }
        };
        let place = PiecePosition {
            rows: self.rows.len(),
            positions: 1,
            start: column,
            rope,
            mask,
        };
        let ids: Vec<u32> = self.rows.iter().map(Row::last).collect();
        let Some(state) = self
            .network
            .forward(&ids, &place, self.cache, || self.is_needed())?
        else {
            return Ok(false);
        };
        self.sample(&self.network.logits(&state)?)?;
        Ok(true)
    }

    /// The tokens of a piece of the prompts, padded with zeros.
    fn piece_ids(&self, start: usize, positions: usize) -> Vec<u32> {
        let row_ids = |row: &Row| {
            let ids = row.params.prompt.iter().skip(start).copied();
            ids.chain(std::iter::repeat(0))
                .take(positions)
                .collect::<Vec<u32>>()
        };
        self.rows.iter().flat_map(row_ids).collect()
    }

    fn piece(&self, start: usize, positions: usize) -> Result<PiecePosition> {
        let mask = causal_mask(start, positions, &self.network.device)?;
        Ok(PiecePosition {
            rows: self.rows.len(),
            positions,
            start,
            rope: self.rope.range(start, positions)?,
            mask,
        })
    }

    /// Samples a token for each row.
    fn sample(&mut self, logits: &Tensor) -> std::result::Result<(), LocalError> {
        self.network.device.synchronize()?;
        let width = logits.dim(1)?;
        let mut values = logits.flatten_all()?.to_vec1::<f32>()?;
        match &mut *self.rows {
            [row] => row.sample(&mut values),
            rows => rows
                .par_iter_mut()
                .zip(values.par_chunks_mut(width))
                .for_each(|(row, logits)| row.sample(logits)),
        }
        self.done += 1;
        Ok(())
    }
}

/// A row of a batch with its output so far.
#[derive(Debug)]
pub struct Row<'a> {
    /// What is asked.
    pub params: &'a GenerationParams,
    rng: ChaCha8Rng,
    /// Tokens of prompt and reply, for the repetition penalty.
    previous: BTreeSet<u32>,
    tokens: Vec<u32>,
    stamps: Vec<Nanos>,
    /// Logits of all steps, allocated and written beforehand, so that no step waits for memory.
    logits: Option<Vec<f32>>,
    decoder: IncrementalDecoder,
    /// The text before the stop text.
    cut: Option<String>,
    ended: Option<Ended>,
}

impl<'a> Row<'a> {
    /// `limit` and `vocabulary` are those of the model.
    pub fn new(params: &'a GenerationParams, limit: usize, vocabulary: usize) -> Row<'a> {
        let room = limit.saturating_sub(params.prompt.len());
        let steps = usize::try_from(params.max_tokens).map_or(room, |most| most.min(room));
        let has_penalty = params.sampling.repetition_penalty != 1.0;
        Row {
            params,
            rng: ChaCha8Rng::seed_from_u64(params.sampling.seed),
            previous: params
                .prompt
                .iter()
                .filter(|_| has_penalty)
                .copied()
                .collect(),
            tokens: Vec::new(),
            stamps: Vec::new(),
            logits: params.logits.then(|| vec![f32::NAN; steps * vocabulary]),
            decoder: IncrementalDecoder::default(),
            cut: None,
            ended: None,
        }
    }

    /// Whether it has not ended.
    pub fn is_active(&self) -> bool {
        self.ended.is_none()
    }

    pub fn cancel(&mut self) {
        self.ended = Some(Ended::Cancelled);
    }

    /// Its last token, of the prompt before the first generated one.
    pub fn last(&self) -> u32 {
        self.tokens
            .last()
            .or(self.params.prompt.last())
            .copied()
            .unwrap_or(0)
    }

    /// Samples its next token if it is active. Overwrites the logits.
    pub fn sample(&mut self, logits: &mut [f32]) {
        if !self.is_active() {
            return;
        }
        let from = self.tokens.len() * logits.len();
        if let Some(recorded) = self
            .logits
            .as_mut()
            .and_then(|all| all.get_mut(from..from + logits.len()))
        {
            recorded.copy_from_slice(logits);
        }
        let sampling = &self.params.sampling;
        let token = sample::sample_token(logits, sampling, &self.previous, &mut self.rng);
        if sampling.repetition_penalty != 1.0 {
            self.previous.insert(token);
        }
        self.tokens.push(token);
    }

    /// Records the time of the sampled token, and ends the row if it was the last.
    pub fn record_token(&mut self, stamp: Nanos, tokenizer: &Tokenizer, eos: &[u32], limit: usize) {
        if !self.is_active() {
            return;
        }
        self.stamps.push(stamp);
        let token = self.last();
        if !self.params.ignore_eos && eos.contains(&token) {
            self.ended = Some(Ended::Stop);
            self.cut = Some(
                tokenizer
                    .decode(self.tokens.split_last().map_or(&[], |(_, before)| before))
                    .unwrap_or_default(),
            );
        } else if !self.params.stop.is_empty() && self.finds_stop(tokenizer, token) {
            self.ended = Some(Ended::Stop);
        } else if self.tokens.len() as u64 >= self.params.max_tokens
            || self.params.prompt.len() + self.tokens.len() >= limit
        {
            self.ended = Some(Ended::Length);
        }
    }

    /// Whether the text contains a stop text, which may begin before this token.
    fn finds_stop(&mut self, tokenizer: &Tokenizer, token: u32) -> bool {
        let added = self.decoder.push(tokenizer, token);
        let text = self.decoder.text();
        let longest = self.params.stop.iter().map(String::len).max().unwrap_or(0);
        let from = text.floor_char_boundary((text.len() - added).saturating_sub(longest));
        let stops = self.params.stop.iter().filter(|stop| !stop.is_empty());
        let first = stops
            .filter_map(|stop| text.get(from..)?.find(stop.as_str()))
            .min();
        self.cut = first
            .and_then(|at| text.get(..from + at))
            .map(str::to_owned);
        self.cut.is_some()
    }

    pub fn into_output(self, tokenizer: &Tokenizer, vocabulary: usize) -> RowOutput {
        let text = self
            .cut
            .or_else(|| tokenizer.decode(&self.tokens))
            .unwrap_or_default();
        let ended = self.ended.unwrap_or(Ended::Cancelled);
        let mut logits = self.logits;
        logits
            .iter_mut()
            .for_each(|all| all.truncate(self.tokens.len() * vocabulary));
        RowOutput {
            tokens: self.tokens,
            text,
            stamps: self.stamps,
            ended,
            logits,
        }
    }
}
