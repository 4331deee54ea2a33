//! Sends calls and stamps what comes back.
//!
//! The timed path stands on the connection, not on a client with a pool of its own: only there can the instant of each
//! socket read be seen, before any parsing. HTTP/1.1 is spoken here (`http1`); HTTP/2 is hyper's.
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::panic))]
#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod body_capture;
pub mod clock;
pub mod connect;
mod content_encoding;
pub mod counters;
pub mod error;
pub mod exchange;
mod headers;
pub mod http;
pub mod http1;
pub mod pool;
pub mod redact;
pub mod retry;
pub mod route;
pub mod server;
pub mod stalls;
pub mod tls;
