//! Local models (run in this process): settings, and the records of loading and of batches.

use crate::units::Nanos;
use serde::{Deserialize, Serialize};

/// The device that a local model runs on.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Device {
    /// The CPU.
    #[default]
    Cpu,
    /// An NVIDIA GPU.
    Cuda,
    /// An Apple GPU.
    Metal,
}

/// The compute dtype of a local model.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Dtype {
    /// The dtype of the model's configuration.
    #[default]
    Auto,
    /// 32 bits.
    F32,
    /// 16 bits, IEEE 754.
    F16,
    /// 16 bits with the exponent range of 32.
    Bf16,
}

/// Settings of a local model. Its source is the target's model: a Hugging Face folder or hub name, a GGUF file, or
/// `random:tiny`, whose weights are random.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Local {
    /// Device.
    pub device: Device,
    /// GPU index.
    pub index: u32,
    /// Compute dtype.
    pub dtype: Dtype,
    /// CPU threads; None: one per core.
    pub threads: Option<u32>,
    /// Maximum batch size.
    pub batch: u32,
    /// Store the logits of every step, one file per prompt.
    pub logits: bool,
}

/// The record of loading a local model.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Loaded {
    /// The model as named in the scenario.
    pub model: String,
    /// Architecture: `llama`, `qwen2`, `qwen3`.
    pub architecture: String,
    /// Number of parameters.
    pub parameters: u64,
    /// Compute dtype: `f32`, `bf16`, `q4_k`.
    pub dtype: String,
    /// Device: `cpu (2 threads)`, `cuda:0`.
    pub device: String,
    /// Time to read the files.
    pub read: Nanos,
    /// Time to convert the weights to the compute dtype.
    pub convert: Nanos,
    /// Time to move the weights to the device.
    pub place: Nanos,
    /// Bytes of the weights on the device.
    pub weight_bytes: u64,
    /// The attention implementation.
    #[serde(default)]
    pub attention: String,
    /// Notes for the report.
    #[serde(default)]
    pub notes: Vec<String>,
}

/// One batch of requests.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Batch {
    /// Batch number, from 0.
    pub number: u64,
    /// The numbers of its requests, warm-up included.
    pub seqs: Vec<u64>,
    /// Whether all its requests were measured.
    pub measured: bool,
    /// The dataset group of its requests, if all are of one.
    pub group: Option<String>,
    /// Begin, since the round's time zero.
    pub began: Nanos,
    /// Prompt tokens of all its rows.
    pub prompt_tokens: u64,
    /// Prompt tokens of the longest row, to which all rows are padded.
    pub padded_to: u64,
    /// Tokens generated.
    pub output_tokens: u64,
    /// Prefill time up to the first token of each row, device synchronized.
    pub prefill: Nanos,
    /// Time of each decode step, device synchronized.
    pub steps: Vec<Nanos>,
    /// Peak resident memory of this process during the batch, bytes; at its end if the system does not report a peak.
    pub memory: u64,
    /// Memory mapped by the allocator at its end, bytes; None if the system does not report it.
    #[serde(default)]
    pub memory_reserved: Option<u64>,
    /// Device memory in use at its end, bytes; None for a CPU, or if not reported.
    pub device_memory: Option<u64>,
}

/// The record of a local model in one round.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LocalRound {
    /// The record of loading.
    pub loaded: Loaded,
    /// The batches, in order.
    pub batches: Vec<Batch>,
    /// Replies that were truncated at the model's context length.
    #[serde(default)]
    pub cut: u64,
    /// Peak memory over the batches, bytes.
    pub memory_peak: u64,
    /// Peak device memory in use, bytes; None as in [`Batch`].
    pub device_memory_peak: Option<u64>,
}
