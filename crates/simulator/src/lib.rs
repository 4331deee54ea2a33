//! The built-in simulator: an LLM server that logs the times of its own writes, for comparison with the client's
//! measurements.
//!
//! Path of a request: [`serve`] listens; `connection` reads the request with `http` and finds its API in `apis`,
//! which turns it into a `generation`. `server` submits that to the [`engine`] and passes each token, when its step
//! ends, to the request's `live` state, which renders bytes with `body` and the API's reply, injects faults of
//! `chaos`, writes to the `socket` and logs the time in the [`truth`] log. The simulator shares no code with the
//! client, so that errors cannot cancel out.
//! [`virtual_time`] runs the engine without a clock.
//!
//! A prompt has one token per 4 bytes of text, one per token id, and 256 per image or audio; tool definitions are not
//! counted. Each generated token is one short word.
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::panic)
)]
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod answer;
mod apis;
mod body;
mod chaos;
mod clock;
mod connection;
pub mod engine;
mod form;
mod generation;
mod http;
mod live;
mod metrics;
mod prompt;
pub mod serve;
mod server;
mod socket;
mod stored;
#[cfg(test)]
mod tests;
pub mod truth;
pub mod virtual_time;
mod websocket;

pub use serve::{Running, SimError, start};
pub use truth::Truth;
