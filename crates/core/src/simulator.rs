//! The built-in server: a batching engine whose step time is a formula, and the faults it commits on a seed.

use crate::units::Nanos;
use serde::{Deserialize, Serialize};

/// A batching engine in numbers. One step lasts
/// `alpha + beta × prefill tokens + gamma × decoding sequences + delta × context tokens`, times a jitter.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Simulator {
    /// Between a request's arrival and its place in the queue: tokenisation and the like.
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
    /// Maximum number of tokens that one step takes, decodes counted first.
    pub max_batched_tokens: u32,
    /// Maximum number of sequences that run at once.
    pub max_num_seqs: u32,
    /// KV cache blocks in all.
    pub kv_blocks: u32,
    /// Tokens that one KV block holds.
    pub block_tokens: u32,
    /// Output tokens where the request sets no `max_tokens`.
    pub default_output_tokens: u32,
    /// Faults.
    pub faults: Faults,
    /// Full blocks of a prompt that one before it had too cost no prefill, and the usage reports how many tokens they were.
    /// The least recently used of more than `kv_blocks` are forgotten.
    pub prefix_cache: bool,
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
            faults: Faults::default(),
            prefix_cache: false,
        }
    }
}

/// Faults, each with the share (0..=1) of requests that it strikes, drawn from the seed and the request's number.
/// At most one of the failing ones strikes a request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Faults {
    /// Answer with `error_status` and a JSON error body.
    pub error: f64,
    /// The status of `error`.
    pub error_status: u16,
    /// Reset the connection in mid-stream.
    pub reset: f64,
    /// Fall silent in mid-stream for `stall_for`.
    pub stall: f64,
    /// Length of a stall.
    pub stall_for: Nanos,
    /// End the body early, without finish reason and end marker.
    pub truncate: f64,
    /// An error event under HTTP 200 in mid-stream.
    pub stream_error: f64,
    /// Delay of the status line and headers.
    pub slow_headers: Nanos,
    /// Bytes after which each write is cut in two, 0 for never.
    pub split: u32,
    /// Writes held back and sent as one, 1 for none.
    pub coalesce: u32,
    /// Tokens in one event.
    pub tokens_per_chunk: u32,
    /// Send a first chunk that carries the role alone.
    pub role_chunk: bool,
    /// Never send usage, even when requested.
    pub no_usage: bool,
    /// Tokens of reasoning text in front of the content.
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
