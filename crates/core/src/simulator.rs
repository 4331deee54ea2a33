//! Settings of the built-in simulator: a batching engine with a formula for its step time, and random faults.

use crate::units::Nanos;
use serde::{Deserialize, Serialize};

/// Parameters of the batching engine. One step lasts `alpha + beta × prefill tokens + gamma × decoding sequences +
/// delta × context tokens`, times a random jitter.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Simulator {
    /// Time between the arrival of a request and its queueing, such as tokenization.
    pub admission: Nanos,
    /// Step time that does not depend on the batch.
    pub alpha: Nanos,
    /// Added per prefill token of the step.
    pub beta: Nanos,
    /// Added per decoding sequence of the step.
    pub gamma: Nanos,
    /// Added per token of context held by the step's decoding sequences.
    pub delta: Nanos,
    /// Relative standard deviation of the step time: a lognormal factor of mean 1.
    pub jitter: f64,
    /// Maximum number of tokens per step, decodes first.
    pub max_batched_tokens: u32,
    /// Maximum number of concurrent sequences.
    pub max_num_seqs: u32,
    /// Number of KV cache blocks.
    pub kv_blocks: u32,
    /// Tokens per KV cache block.
    pub block_tokens: u32,
    /// Output tokens of a request without `max_tokens`.
    pub default_output_tokens: u32,
    /// Number of engines behind one address; each response of several names its engine in `x-inference-pod` and
    /// `x-session-token`.
    pub replicas: u32,
    /// Faults.
    pub faults: Faults,
    /// Prefix cache: full prompt blocks that an earlier prompt had too cost no prefill and are reported as cached
    /// tokens. Up to `kv_blocks` blocks are kept, least recently used evicted first.
    pub prefix_cache: bool,
    /// Which answers are generated; None: random words up to the limit of the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answers: Option<Answers>,
}

/// Which answers are generated.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Answers {
    /// The text of a right answer.
    pub kind: AnswerKind,
    /// Share of wrong answers, 0..=1, sampled from the seed and the request number. A wrong answer repeats one word,
    /// and is one token shorter than the right one.
    pub wrong: f64,
}

/// The text of a right answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AnswerKind {
    /// Random words up to the limit of the request.
    Words,
    /// The text of the last message, a token per word, cut at the limit of the request.
    Echo,
    /// A JSON object whose `answer` is the text of the last message, cut at the limit of the request.
    Json,
}

impl Default for Simulator {
    fn default() -> Simulator {
        Simulator {
            admission: Nanos::ZERO,
            alpha: Nanos(4_000_000),
            beta: Nanos(20_000),
            gamma: Nanos(50_000),
            delta: Nanos(10),
            jitter: 0.0,
            max_batched_tokens: 2048,
            max_num_seqs: 256,
            kv_blocks: 8192,
            block_tokens: 16,
            default_output_tokens: 64,
            replicas: 1,
            faults: Faults::default(),
            prefix_cache: false,
            answers: None,
        }
    }
}

/// Injected faults. Shares (0..=1) are of requests, sampled from the seed and the request number. A request gets at
/// most one fault that makes it fail.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Faults {
    /// Share of requests answered with `error_status` and a JSON error body.
    pub error: f64,
    /// The status of `error`.
    pub error_status: u16,
    /// Share of connections reset in mid-stream.
    pub reset: f64,
    /// Share of responses that stall in mid-stream for `stall_for`.
    pub stall: f64,
    /// Length of a stall.
    pub stall_for: Nanos,
    /// Share of bodies that end early, without finish reason and end marker.
    pub truncate: f64,
    /// Share of responses with an error event under HTTP 200 in mid-stream.
    pub stream_error: f64,
    /// Delay of the status line and headers.
    pub slow_headers: Nanos,
    /// Bytes after which each write is split in two, 0 for never.
    pub split: u32,
    /// Number of writes that are sent as one, 1 for no coalescing.
    pub coalesce: u32,
    /// Tokens per event.
    pub tokens_per_chunk: u32,
    /// Send a first chunk with the role only.
    pub role_chunk: bool,
    /// Never send usage, even when requested.
    pub no_usage: bool,
    /// Reasoning tokens before the content.
    pub reasoning_tokens: u32,
    /// A `: keep-alive` comment before every n-th event, 0 for never.
    pub comment_every: u32,
}

impl Default for Faults {
    fn default() -> Faults {
        Faults {
            error: 0.0,
            error_status: 500,
            reset: 0.0,
            stall: 0.0,
            stall_for: Nanos(5_000_000_000),
            truncate: 0.0,
            stream_error: 0.0,
            slow_headers: Nanos::ZERO,
            split: 0,
            coalesce: 1,
            tokens_per_chunk: 1,
            role_chunk: true,
            no_usage: false,
            reasoning_tokens: 0,
            comment_every: 0,
        }
    }
}
