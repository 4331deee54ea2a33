//! A decoder of the Llama family, on candle's operations.
//!
//! The only module that uses candle.

mod cache;
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
use crate::generation_params::{BatchOutput, GenerationParams};
use cache::Cache;
use llmscen_core::local::{Loaded, Local};
use llmscen_core::seed::Seed;
use llmscen_core::units::Nanos;
use llmscen_datasets::token::{TokenError, Tokenizer};
use network::Network;
use rayon::ThreadPool;
use rope::Rope;
use work::{Batch, Row};

/// Tokens that are provided for where a row may end at any of them.
const AHEAD: usize = 256;

/// A model that is loaded.
#[derive(Debug)]
pub struct Model {
    network: Network,
    rope: Rope,
    /// Of the last batch: the next one takes it where it fits.
    cache: Option<Cache>,
    tokenizer: Tokenizer,
    eos: Vec<u32>,
    limit: usize,
    vocabulary: usize,
    intermediate: usize,
    /// Its own threads, as many as it was told.
    pool: ThreadPool,
}

impl From<candle_core::Error> for LocalError {
    fn from(error: candle_core::Error) -> LocalError {
        LocalError::Compute { reason: first_line(&error) }
    }
}

/// The library's words, without the backtrace that it puts under them where RUST_BACKTRACE is set.
fn first_line(error: &candle_core::Error) -> String {
    error.to_string().lines().find(|line| !line.trim().is_empty()).unwrap_or_default().trim().to_owned()
}

impl Model {
    /// Loads a model: a Hugging Face folder, a .gguf file, or `random:tiny`, whose weights are drawn from `seed`.
    ///
    /// # Errors
    /// Names the file and what is wrong with it, or the device that cannot be had.
    pub fn load(name: &str, spec: &Local, seed: Seed) -> Result<(Model, Loaded), LocalError> {
        load::load(name, spec, seed)
    }

    /// The tokens of a text; where `special`, with the special ones around it, and never with two BOS tokens.
    ///
    /// # Errors
    /// The tokenizer refuses the text.
    pub fn encode(&self, text: &str, special: bool) -> Result<Vec<u32>, LocalError> {
        let refused = || TokenError::Refused { reason: "it cannot tokenize the text".into() };
        let ids = if special { self.tokenizer.encode_prompt(text) } else { self.tokenizer.encode(text, false) };
        Ok(ids.ok_or_else(refused)?)
    }

    /// The prompt text of a conversation, an array of messages, by the model's chat template, which brings its own special
    /// tokens; None where the model has none.
    ///
    /// # Errors
    /// The template refuses the messages.
    pub fn chat(&self, messages: &serde_json::Value) -> Result<Option<String>, LocalError> {
        if self.tokenizer.chat_template().is_none() {
            return Ok(None);
        }
        let messages = messages.as_array().map(Vec::as_slice).unwrap_or_default();
        Ok(Some(self.tokenizer.chat(messages, None)?))
    }

    /// The tokens that a prompt and its reply may have together.
    pub fn limit(&self) -> u64 {
        self.limit as u64
    }

    /// The width of its logits.
    pub fn vocabulary(&self) -> usize {
        self.vocabulary
    }

    /// BatchModel on a batch. `clock` is read after the device was waited for; `alive` is asked for each row that goes on before
    /// each step, and false gives the row up; between pieces of the prompts and layers it is asked whether anybody waits still, and
    /// where nobody does, nothing more is computed. Rows that ended stay in the batch, uncounted, until all have.
    ///
    /// # Errors
    /// A prompt that is empty or too long, or a device that fails.
    pub fn work(
        &mut self,
        asks: &[GenerationParams],
        clock: &dyn Fn() -> Nanos,
        alive: &(dyn Fn(usize) -> bool + Sync),
    ) -> Result<BatchOutput, LocalError> {
        self.check(asks)?;
        let vocabulary = self.vocabulary;
        let mut rows: Vec<Row> = asks.iter().map(|ask| Row::new(ask, self.limit, vocabulary)).collect();
        let began = clock();
        let lengths: Vec<usize> = asks.iter().map(|ask| ask.prompt.len()).collect();
        let longest = lengths.iter().copied().max().unwrap_or(0);
        let mut ends = Vec::new();
        if wanted(&mut rows, alive) {
            let columns = self.prepare(asks, longest)?;
            let Model { network, rope, cache: Some(cache), tokenizer, eos, limit, intermediate, pool, .. } = self else {
                return Err(LocalError::Compute { reason: "it has no room for keys and values".into() });
            };
            let hidden = work::hidden(&lengths, columns, &network.device)?;
            let mut batch =
                Batch { network, rope, cache, intermediate: *intermediate, rows: &mut rows, alive, longest, hidden, done: 0 };
            loop {
                let whole = pool.install(|| if batch.done == 0 { batch.prefill() } else { batch.step() })?;
                if !whole {
                    batch.rows.iter_mut().filter(|row| row.goes_on()).for_each(Row::give_up);
                    break;
                }
                let now = clock();
                ends.push(now);
                batch.rows.iter_mut().for_each(|row| row.settle(now, tokenizer, eos, *limit));
                if !wanted(batch.rows, alive) {
                    break;
                }
            }
        }
        let rows = rows.into_iter().map(|row| row.told(&self.tokenizer, vocabulary)).collect();
        let mut ends = ends.into_iter();
        let prefilled = ends.next().unwrap_or(began);
        Ok(BatchOutput { rows, began, prefilled, steps: ends.collect(), padded_to: longest as u64 })
    }

    /// Bytes in use on the device; None on the CPU, or where it does not tell.
    pub fn device_memory(&self) -> Option<u64> {
        load::device_memory(&self.network.device)
    }

    fn check(&self, asks: &[GenerationParams]) -> Result<(), LocalError> {
        let wrong = |row: usize, reason: String| Err(LocalError::Ask { row, reason });
        for (row, ask) in asks.iter().enumerate() {
            let tokens = ask.prompt.len();
            if tokens == 0 {
                return wrong(row, "its prompt is empty".into());
            }
            if ask.max_tokens == 0 {
                return wrong(row, "it wants no token".into());
            }
            if tokens >= self.limit {
                let reason = format!("its prompt of {tokens} tokens leaves no room for a reply in the model's {}", self.limit);
                return wrong(row, reason);
            }
            if let Some(id) = ask.prompt.iter().find(|id| **id as usize >= self.vocabulary) {
                return wrong(row, format!("the token {id} is none of the model's {}", self.vocabulary));
            }
        }
        Ok(())
    }

    /// Makes room for a batch; says how many columns it may come to.
    fn prepare(&mut self, asks: &[GenerationParams], longest: usize) -> Result<usize, LocalError> {
        let limit = self.limit;
        let most = |ask: &GenerationParams| usize::try_from(ask.max_tokens).unwrap_or(limit).min(limit - ask.prompt.len());
        let columns = longest + asks.iter().map(most).max().unwrap_or(0);
        let sure = asks.iter().filter(|ask| ask.ignore_eos && ask.stop.is_empty()).map(most).max().unwrap_or(0);
        let room = columns.min(longest + sure.max(AHEAD));
        let Network { dtype, device, .. } = &self.network;
        self.rope.reach(columns, *dtype, device)?;
        if !self.cache.as_ref().is_some_and(|cache| cache.fits(asks.len(), room)) {
            // The old one goes first: there may not be room for both.
            self.cache = None;
            self.cache = Some(Cache::new(self.network.width(), asks.len(), room, *dtype, device)?);
        }
        Ok(columns)
    }
}

/// Gives up the rows that nobody waits for; says whether any goes on.
fn wanted(rows: &mut [Row], alive: &(dyn Fn(usize) -> bool + Sync)) -> bool {
    for (number, row) in rows.iter_mut().enumerate().filter(|(_, row)| row.goes_on()) {
        if !alive(number) {
            row.give_up();
        }
    }
    rows.iter().any(Row::goes_on)
}

#[cfg(test)]
mod tests;
