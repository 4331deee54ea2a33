//! Floor 2. Sends calls and stamps what comes back.
//!
//! The timed path stands on hyper's connection, not on a client with a pool of its own: only there can the instant of
//! each socket read be seen, before any parsing.

mod address;
pub mod clock;
mod coding;
pub mod dial;
pub mod error;
pub mod exchange;
pub mod gauges;
mod headers;
pub mod http;
pub mod manners;
pub mod pool;
pub mod proxy;
pub mod redact;
pub mod route;
pub mod stamp;
pub mod tls;
