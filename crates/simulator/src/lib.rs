//! The built-in server: an independent witness that logs its own writes.
//!
//! A request's way: [`serve`] listens, `connection` reads it with `http` and finds its protocol in `apis`, which turns it
//! into a `generation`. `server` submits that to the [`engine`] and gives each token, when its step ends, to the request's `live`,
//! which forms bytes with `body` and the protocol's reply, lets `chaos` strike, writes to the `socket` and notes the time in
//! the [`truth`]. It shares no code with the client's side, so that no mistake of one can cancel a mistake of the other.
//! [`virtual_time`] is the engine alone, without a clock.
//!
//! By its own rule a prompt has a token for every 4 bytes of text or 1 token id, and 256 for an image or a sound; tool
//! definitions count nothing. Each generated token is one short word.
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::panic))]
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod apis;
mod body;
mod chaos;
mod clock;
mod connection;
pub mod engine;
mod generation;
mod http;
mod live;
mod metrics;
mod prompt;
pub mod serve;
mod server;
mod socket;
#[cfg(test)]
mod tests;
pub mod truth;
pub mod virtual_time;

pub use serve::{Running, SimError, start};
pub use truth::Truth;
