//! A decoder of the Llama family, computed with candle. Only this module uses candle.

mod config;
mod gguf;
mod linear;
mod load;
mod network;
mod rope;
mod safetensors;
mod weights;
mod work;

pub use load::check;

use crate::error::LocalError;
use crate::generation_params::{BatchModel, BatchOutput, GenerationParams};
use llmscen_core::local::{Loaded, Local};
use llmscen_core::seed::Seed;
use llmscen_core::units::Nanos;
use llmscen_datasets::token::{TokenError, Tokenizer};
use network::{Cache, Network};
use rayon::ThreadPool;
use rope::Rope;
use serde_json::Value;
use work::{Batch, Row};

/// Tokens for which the cache is allocated at first, where rows may end early.
const AHEAD: usize = 256;

/// A loaded model.
#[derive(Debug)]
pub struct Model {
    network: Network,
    rope: Rope,
    /// The cache of the last batch, which the next one reuses if it fits.
    cache: Option<Cache>,
    tokenizer: Tokenizer,
    eos: Vec<u32>,
    limit: usize,
    vocabulary: usize,
    intermediate: usize,
    /// The threads of the CPU.
    pool: ThreadPool,
}

impl From<candle_core::Error> for LocalError {
    fn from(error: candle_core::Error) -> LocalError {
        LocalError::Compute {
            reason: first_line(&error),
        }
    }
}

/// The error of the library without its backtrace.
fn first_line(error: &candle_core::Error) -> String {
    error
        .to_string()
        .lines()
        .find(|line| !line.trim().is_empty())
        .unwrap_or_default()
        .trim()
        .to_owned()
}

impl Model {
    /// Loads a model: a Hugging Face folder, a .gguf file, or `random:tiny`, whose weights are drawn from `seed`.
    ///
    /// # Errors
    /// A file is invalid, or the device is not available.
    pub fn load(name: &str, spec: &Local, seed: Seed) -> Result<(Model, Loaded), LocalError> {
        load::load(name, spec, seed)
    }

    /// The tokens of a text, if `special` with the special tokens of plain text, but never with two BOS tokens.
    ///
    /// # Errors
    /// The tokenizer rejects the text.
    pub fn encode(&self, text: &str, special: bool) -> Result<Vec<u32>, LocalError> {
        let refused = || TokenError::Refused {
            reason: "it cannot tokenize the text".into(),
        };
        let ids = if special {
            self.tokenizer.encode_prompt(text)
        } else {
            self.tokenizer.encode(text, false)
        };
        Ok(ids.ok_or_else(refused)?)
    }

    /// The prompt text of a conversation, an array of messages, by the model's chat template, which brings its own
    /// special tokens; None where the model has none.
    ///
    /// # Errors
    /// The template rejects the messages.
    pub fn chat(&self, messages: &Value) -> Result<Option<String>, LocalError> {
        if self.tokenizer.chat_template().is_none() {
            return Ok(None);
        }
        let messages = messages.as_array().map(Vec::as_slice).unwrap_or_default();
        Ok(Some(self.tokenizer.chat(messages, None)?))
    }

    /// Limit of the tokens of a prompt with its reply.
    pub fn limit(&self) -> u64 {
        self.limit as u64
    }

    /// Size of the vocabulary.
    pub fn vocabulary(&self) -> usize {
        self.vocabulary
    }

    /// Computes a batch. `clock` is read after the device has finished. `alive` is called for each active row before
    /// each step; false cancels the row. It is also called between pieces of the prefill and layers, where computing
    /// stops if all rows are cancelled. Rows that ended stay in the batch until all have ended.
    ///
    /// # Errors
    /// A prompt is empty or too long, or the device failed.
    pub fn work(
        &mut self,
        params: &[GenerationParams],
        clock: &dyn Fn() -> Nanos,
        alive: &(dyn Fn(usize) -> bool + Sync),
    ) -> Result<BatchOutput, LocalError> {
        self.check(params)?;
        let vocabulary = self.vocabulary;
        let mut rows: Vec<Row> = params
            .iter()
            .map(|params| Row::new(params, self.limit, vocabulary))
            .collect();
        let began = clock();
        let lengths: Vec<usize> = params.iter().map(|params| params.prompt.len()).collect();
        let longest = lengths.iter().copied().max().unwrap_or(0);
        let mut ends = Vec::new();
        if cancel_and_check(&mut rows, alive) {
            let columns = self.prepare(params, longest)?;
            let Model {
                network,
                rope,
                cache: Some(cache),
                tokenizer,
                eos,
                limit,
                intermediate,
                pool,
                ..
            } = self
            else {
                return Err(LocalError::Compute {
                    reason: "it has no cache of keys and values".into(),
                });
            };
            let padding_mask = work::padding_mask(&lengths, columns, &network.device)?;
            let mut batch = Batch {
                network,
                rope,
                cache,
                intermediate: *intermediate,
                rows: &mut rows,
                alive,
                longest,
                padding_mask,
                done: 0,
            };
            loop {
                let completed = pool.install(|| {
                    if batch.done == 0 {
                        batch.prefill()
                    } else {
                        batch.step()
                    }
                })?;
                if !completed {
                    batch
                        .rows
                        .iter_mut()
                        .filter(|row| row.is_active())
                        .for_each(Row::cancel);
                    break;
                }
                let now = clock();
                ends.push(now);
                batch
                    .rows
                    .iter_mut()
                    .for_each(|row| row.record_token(now, tokenizer, eos, *limit));
                if !cancel_and_check(batch.rows, alive) {
                    break;
                }
            }
        }
        let rows = rows
            .into_iter()
            .map(|row| row.into_output(&self.tokenizer, vocabulary))
            .collect();
        let mut ends = ends.into_iter();
        let prefilled = ends.next().unwrap_or(began);
        Ok(BatchOutput {
            rows,
            began,
            prefilled,
            steps: ends.collect(),
            padded_to: longest as u64,
        })
    }

    /// Used memory of the device in bytes; None on the CPU, or where it is unknown.
    pub fn device_memory(&self) -> Option<u64> {
        load::device_memory(&self.network.device)
    }

    fn check(&self, params: &[GenerationParams]) -> Result<(), LocalError> {
        let error = |row: usize, reason: String| Err(LocalError::Ask { row, reason });
        for (row, params) in params.iter().enumerate() {
            let tokens = params.prompt.len();
            if tokens == 0 {
                return error(row, "the prompt is empty".into());
            }
            if params.max_tokens == 0 {
                return error(row, "`max_tokens` is 0".into());
            }
            if tokens >= self.limit {
                let reason = format!(
                    "the prompt has {tokens} tokens, the limit of the model is {} with the reply",
                    self.limit
                );
                return error(row, reason);
            }
            if let Some(id) = params
                .prompt
                .iter()
                .find(|id| **id as usize >= self.vocabulary)
            {
                return error(
                    row,
                    format!(
                        "the token id {id} is not below the vocabulary size {}",
                        self.vocabulary
                    ),
                );
            }
        }
        Ok(())
    }

    /// Allocates the cache of a batch; returns the largest number of its columns.
    fn prepare(
        &mut self,
        params: &[GenerationParams],
        longest: usize,
    ) -> Result<usize, LocalError> {
        let limit = self.limit;
        let most = |params: &GenerationParams| {
            usize::try_from(params.max_tokens)
                .unwrap_or(limit)
                .min(limit - params.prompt.len())
        };
        let columns = longest + params.iter().map(most).max().unwrap_or(0);
        let sure = params
            .iter()
            .filter(|params| params.ignore_eos && params.stop.is_empty())
            .map(most)
            .max()
            .unwrap_or(0);
        let room = columns.min(longest + sure.max(AHEAD));
        let Network { dtype, device, .. } = &self.network;
        self.rope.extend_to(columns, *dtype, device)?;
        if !self
            .cache
            .as_ref()
            .is_some_and(|cache| cache.fits(params.len(), room))
        {
            // The old cache is freed first, because there may not be memory for both.
            self.cache = None;
            self.cache = Some(Cache::new(
                self.network.width(),
                params.len(),
                room,
                *dtype,
                device,
            )?);
        }
        Ok(columns)
    }
}

impl BatchModel for Model {
    fn tokens(&self, text: &str) -> Result<Vec<u32>, LocalError> {
        self.encode(text, false)
    }

    fn plain_tokens(&self, text: &str) -> Result<Vec<u32>, LocalError> {
        self.encode(text, true)
    }

    fn chat(&self, messages: &Value) -> Result<Option<String>, LocalError> {
        self.chat(messages)
    }

    fn limit(&self) -> u64 {
        self.limit()
    }

    fn vocabulary(&self) -> usize {
        self.vocabulary()
    }

    fn work(
        &mut self,
        params: &[GenerationParams],
        clock: &dyn Fn() -> Nanos,
        alive: &(dyn Fn(usize) -> bool + Sync),
    ) -> Result<BatchOutput, LocalError> {
        self.work(params, clock, alive)
    }

    fn device_memory(&self) -> Option<u64> {
        self.device_memory()
    }
}

/// Cancels the rows that are not `alive`; whether any row is active.
fn cancel_and_check(rows: &mut [Row], alive: &(dyn Fn(usize) -> bool + Sync)) -> bool {
    for (number, row) in rows
        .iter_mut()
        .enumerate()
        .filter(|(_, row)| row.is_active())
    {
        if !alive(number) {
            row.cancel();
        }
    }
    rows.iter().any(Row::is_active)
}

#[cfg(test)]
mod tests;
