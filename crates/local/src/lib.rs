//! A model in this process.
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::panic))]
#![deny(clippy::print_stdout, clippy::print_stderr)]

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
