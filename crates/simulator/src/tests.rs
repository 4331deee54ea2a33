//! Tests of several modules together: laws of the engine, queues with known answers, and the server over real sockets.

mod answers;
pub(crate) mod client;
mod engine;
mod faults;
mod http;
mod pooled;
mod search;
mod sharing;
mod timing;
