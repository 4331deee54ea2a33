//! What this machine is, and what this process takes of it; what is sampled beside the requests.
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::panic))]
#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod dcgm;
pub mod gpu;
pub mod host;
mod proc;
pub mod process;
pub mod prometheus;
pub mod sampler;
pub mod source;
pub mod tree;
