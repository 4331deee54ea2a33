//! A model in this process.

pub mod ask;
pub mod error;
pub mod host;
#[cfg(feature = "local")]
pub mod model;
pub mod sample;
pub mod seat;
pub mod session;
mod wanted;
pub mod works;
