//! The HTTP client of the timed path, and the servers that a run manages.
//!
//! It works on connections instead of a client library's pool, because only there can each socket read be timestamped
//! before any parsing. HTTP/1.1 is implemented here (`http1`); HTTP/2 is hyper's; the frames of WebSockets are
//! tungstenite's.
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::panic)
)]
#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod arrival;
mod audio;
pub mod aws;
pub mod body_capture;
pub mod clock;
pub mod connect;
mod content_encoding;
pub mod counters;
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
mod websocket;

pub use headers::API_KEY_HEADERS;

use crate::tls::TlsError;
use llmscen_core::outcome::{Failure, FailureKind};
use thiserror::Error;

/// Why no client can be created for a target.
#[derive(Debug, Error)]
pub enum ClientError {
    /// `target.url` is invalid.
    #[error("the target's url `{url}` cannot be used: {reason}")]
    Url {
        /// The URL.
        url: String,
        /// Why.
        reason: String,
    },
    /// A header that HTTP forbids. Its value is not shown, since it may be a secret.
    #[error(
        "the header `{0}` cannot be sent: its name or value contains characters that HTTP forbids"
    )]
    Header(String),
    /// A header of one request: the headers of a WebSocket are sent when it is opened.
    #[error("the header `{0}` cannot be sent: a WebSocket has headers only when it is opened")]
    OpenedBefore(String),
    /// A request that cannot be signed.
    #[error("the request cannot be signed: {0}")]
    Signature(String),
    /// Invalid TLS settings.
    #[error(transparent)]
    Tls(#[from] TlsError),
}

impl ClientError {
    /// The failure of a request that cannot be sent.
    pub(crate) fn into_failure(self) -> Failure {
        Failure::new(FailureKind::Cancelled, self.to_string()).at(Failure::BEFORE_SENDING)
    }
}
