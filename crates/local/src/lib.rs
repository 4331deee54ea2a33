//! Models that run in this process (`api: local`).
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::panic)
)]
#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod adapter;
pub mod error;
pub mod generation_params;
pub mod host;
#[cfg(feature = "local")]
pub mod model;
pub mod sample;
