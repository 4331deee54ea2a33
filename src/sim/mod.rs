//! Floor 2. The built-in server: an independent witness that logs its own writes.

pub mod engine;
mod sequence;
#[cfg(test)]
mod tests;
pub mod virtual_time;
