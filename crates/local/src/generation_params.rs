//! What a model is asked, and what it tells.

use llmscen_core::units::Nanos;

/// Bytes of memory that the logits of a batch may take, where they are kept.
pub const LOGITS_AT_ONCE: u64 = 1 << 30;

/// How the next token is chosen. The filters apply in the order in which they stand here; a temperature of 0 takes the most
/// likely token, whatever they say.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampling {
    /// Divides the logits of tokens that stand in the prompt or were generated where they are positive, multiplies them where
    /// they are negative (Keskar et al. 2019, section 4.1); 1: nothing.
    pub repetition_penalty: f32,
    /// Divides the logits; 0: greedy.
    pub temperature: f32,
    /// The most likely so many tokens; 0: all.
    pub top_k: u32,
    /// The fewest most likely tokens whose probabilities sum to this; 1: all (Holtzman et al. 2020).
    pub top_p: f32,
    /// Tokens at least so likely, as a share of the most likely one; 0: all (Nguyen et al. 2024).
    pub min_p: f32,
    /// Of the draws.
    pub seed: u64,
}

impl Default for Sampling {
    fn default() -> Sampling {
        Sampling { repetition_penalty: 1.0, temperature: 0.0, top_k: 0, top_p: 1.0, min_p: 0.0, seed: 0 }
    }
}

/// One row of a batch.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Ask {
    /// The prompt; never empty.
    pub prompt: Vec<u32>,
    /// Tokens generated at the most; at least 1.
    pub max_tokens: u64,
    /// How each is chosen.
    pub sampling: Sampling,
    /// The end-of-text token does not end it.
    pub ignore_eos: bool,
    /// Texts that end it; what is told ends before them.
    pub stop: Vec<String>,
    /// Keep the logits of every step.
    pub logits: bool,
}

/// Why a row ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// It has its `max_tokens`, or the model has no room for more.
    Length,
    /// The end-of-text token, or a stop text.
    Stop,
    /// It was given up by whom asked.
    GivenUp,
}

/// What became of a row.
#[derive(Clone, Debug, PartialEq)]
pub struct Told {
    /// Its tokens, an end-of-text token among them.
    pub tokens: Vec<u32>,
    /// Its text, without what stopped it.
    pub text: String,
    /// When each token was there, the device waited for. The first is the end of the prefill.
    pub stamps: Vec<Nanos>,
    /// Why it ended.
    pub ended: Ended,
    /// The logits of each step before any filter, one row of the vocabulary's width after another, where they were kept.
    pub logits: Option<Vec<f32>>,
}

/// What became of a batch.
#[derive(Clone, Debug, PartialEq)]
pub struct Worked {
    /// Its rows, in the order in which they were asked.
    pub rows: Vec<Told>,
    /// When it began, when its prefill was done, and when each later step was, on the clock that was given.
    pub began: Nanos,
    /// The end of the prefill.
    pub prefilled: Nanos,
    /// The ends of the steps after it, in order.
    pub steps: Vec<Nanos>,
    /// The length that prompts were padded to.
    pub padded_to: u64,
}
