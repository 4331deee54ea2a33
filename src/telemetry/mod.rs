//! Floor 2. What this machine is, and what this process takes of it.

pub mod machine;
pub mod process;
