//! A model in this process.

pub mod ask;
pub mod error;
#[cfg(feature = "local")]
pub mod model;
pub mod sample;
