//! Models without files.

use super::config::{Bias, Config};
use super::rope::Scaling;

/// What `random:` models begin with.
pub const PREFIX: &str = "random:";

/// A Llama of 1.2 million parameters for a vocabulary of 8192.
pub fn tiny(vocabulary: usize) -> Config {
    Config {
        architecture: "llama",
        vocabulary,
        hidden: 64,
        intermediate: 192,
        layers: 2,
        heads: 4,
        kv_heads: 2,
        head_dim: 16,
        eps: 1e-5,
        theta: 10_000.0,
        scaling: Scaling::None,
        limit: 8192,
        tied: false,
        bias: Bias::default(),
        qk_norm: false,
        dtype: None,
        eos: Vec::new(),
    }
}
