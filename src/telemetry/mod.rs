//! Floor 2. What this machine is, and what this process takes of it; what is sampled beside the requests.

pub mod gpu;
pub mod host;
pub mod machine;
mod pace;
mod proc;
pub mod process;
pub mod sampler;
pub mod source;
pub mod tool;
pub mod tree;
