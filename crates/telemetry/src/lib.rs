//! What this machine is, and what this process takes of it; what is sampled beside the requests.
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::panic))]
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod cpu_usage;
pub mod dcgm;
pub mod gpu;
pub mod host;
pub mod machine;
mod proc;
pub mod process;
pub mod prometheus;
pub mod sampler;
pub mod self_process;
pub mod source;
pub mod tree;
