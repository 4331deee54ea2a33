//! A model in this process: where it comes from, how it runs, and what it reported of itself.

use crate::units::Nanos;
use serde::{Deserialize, Serialize};

/// On what a model runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Device {
    /// The processor.
    #[default]
    Cpu,
    /// An NVIDIA GPU.
    Cuda,
    /// An Apple GPU.
    Metal,
}

/// In which numbers a model computes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Dtype {
    /// Those that its configuration names.
    #[default]
    Auto,
    /// 32 bits.
    F32,
    /// 16 bits, as IEEE 754 has them.
    F16,
    /// 16 bits with the exponent of 32.
    Bf16,
}

/// How a model runs in this process. Where it comes from is the target's model: a Hugging Face folder or its name on the hub, a GGUF file, or
/// `random:tiny`, whose weights are drawn from the seed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Local {
    /// On what.
    pub device: Device,
    /// Which of several GPUs.
    pub index: u32,
    /// In which numbers.
    pub dtype: Dtype,
    /// Threads of the processor; None: one for each core.
    pub threads: Option<u32>,
    /// Maximum number of requests that are worked on together.
    pub batch: u32,
    /// Logits of every step are kept, a file for each prompt.
    pub logits: bool,
}

/// What a model reported of its loading.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Loaded {
    /// Where it came from, as the scenario names it.
    pub model: String,
    /// Its architecture: `llama`, `qwen2`, `qwen3`.
    pub architecture: String,
    /// Its parameters.
    pub parameters: u64,
    /// What it computes in: `f32`, `bf16`, `q4_k`.
    pub dtype: String,
    /// On what it runs: `cpu (2 threads)`, `cuda:0`.
    pub device: String,
    /// Reading its files.
    pub read: Nanos,
    /// Making its numbers those that it computes in.
    pub convert: Nanos,
    /// Bringing them where it runs.
    pub place: Nanos,
    /// Bytes of its weights there.
    pub weight_bytes: u64,
    /// How attention is computed.
    #[serde(default)]
    pub attention: String,
    /// What a reader of the report must know.
    #[serde(default)]
    pub notes: Vec<String>,
}

/// One batch that was worked on together.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Batch {
    /// Its number, from 0.
    pub number: u64,
    /// The requests in it, by number, those of the warm-up among them.
    pub seqs: Vec<u64>,
    /// Whether its requests were measured; false where one of them was not.
    pub measured: bool,
    /// The part of the dataset that its requests belong to, where it is one.
    pub group: Option<String>,
    /// When it began, after the part's time zero.
    pub began: Nanos,
    /// Prompt tokens of all its rows, and of the longest.
    pub prompt_tokens: u64,
    /// Of the longest row: padding makes every row as long.
    pub padded_to: u64,
    /// Tokens that its rows generated.
    pub output_tokens: u64,
    /// Working on the prompts, up to the first token of each row, the device waited for.
    pub prefill: Nanos,
    /// Each later step, the device waited for.
    pub steps: Vec<Nanos>,
    /// Resident memory of this process at its highest while it was worked on, or where the system does not report that, when it
    /// ended, bytes.
    pub memory: u64,
    /// Memory that the allocator had mapped for this process when it ended, bytes; None where the system does not report it.
    #[serde(default)]
    pub memory_reserved: Option<u64>,
    /// Memory of the device in use when it ended, bytes; None where the device is the processor, or does not report it.
    pub device_memory: Option<u64>,
}

/// What a model in this process did in one round.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LocalPart {
    /// Its loading.
    pub loaded: Loaded,
    /// Its batches, in order.
    pub batches: Vec<Batch>,
    /// Replies that were cut at the model's limit of tokens.
    #[serde(default)]
    pub cut: u64,
    /// The highest of its batches' memory, bytes.
    pub memory_peak: u64,
    /// Memory of the device in use at its highest, bytes; None as above.
    pub device_memory_peak: Option<u64>,
}
