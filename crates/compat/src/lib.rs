//! Other tools, in and out: [`import`] converts their command lines and plan files to scenarios, [`export`] writes
//! results in their file formats.
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::panic)
)]
#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod export;
pub mod import;
