//! Why no engine can be made for a target.

use crate::tls::TlsError;
use thiserror::Error;

/// Why a target cannot be spoken to at all.
#[derive(Debug, Error)]
pub enum EngineError {
    /// The URL is not one.
    #[error("the target's url `{url}` cannot be used: {reason}")]
    Url {
        /// The URL.
        url: String,
        /// Why.
        reason: String,
    },
    /// A header cannot be sent. Its value is not shown: it may be a secret.
    #[error("the header `{0}` cannot be sent: its name or value holds characters that HTTP forbids")]
    Header(String),
    /// TLS settings.
    #[error(transparent)]
    Tls(#[from] TlsError),
}
