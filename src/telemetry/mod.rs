//! Floor 2. What this machine is, and what this process takes of it; what is sampled beside the requests.

pub mod dcgm;
pub mod machine;
pub mod process;
pub mod prometheus;
pub mod source;
