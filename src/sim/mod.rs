//! Floor 2. The built-in server: an independent witness that logs its own writes.
//!
//! A request's way: [`serve`] listens, `connection` reads it with `http` and `ask`, `server` submits it to the [`engine`]
//! and gives each token, when its step ends, to the request's `live`, which forms bytes with `body` and `reply`, lets
//! `chaos` strike, writes to the `socket` and notes the time in the [`truth`]. It shares no code with the client's side, so
//! that no mistake of one can cancel a mistake of the other. [`virtual_time`] is the engine alone, without a clock.

mod ask;
mod body;
mod chaos;
mod clock;
mod connection;
pub mod engine;
mod http;
mod live;
mod metrics;
mod reply;
mod sequence;
pub mod serve;
mod server;
mod socket;
#[cfg(test)]
mod tests;
pub mod truth;
pub mod virtual_time;

pub use serve::{Running, SimError, start};
pub use truth::Truth;
