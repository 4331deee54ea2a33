//! What a worker sends its calls to.

use llmscen_client::http::{Finished, Http};
use llmscen_core::call::Call;
use llmscen_core::outcome::{Failure, Phase};
use llmscen_core::units::Nanos;
use llmscen_local::adapter::Adapter;

/// A server, or a model in this process.
pub enum Engine {
    /// Spoken to over HTTP.
    Http(Box<Http>),
    /// Worked on by a thread of this process.
    Local(Adapter),
}

impl Engine {
    /// Begins to open so many connections for what comes; a model in this process needs none.
    pub fn open_ahead(&self, connections: u64) {
        if let Engine::Http(http) = self {
            http.open_ahead(connections);
        }
    }

    /// Opens one connection and closes it, to see whether the target is there; a model in this process always is.
    ///
    /// # Errors
    /// Why it cannot be reached.
    pub async fn reach(&self) -> Result<(), Failure> {
        match self {
            Engine::Http(http) => http.reach().await,
            Engine::Local(_) => Ok(()),
        }
    }

    /// Sends a call and waits for its end. Never an error: what goes wrong is in the outcome.
    ///
    /// `cancelled` resolves when the call must be given up.
    pub async fn call(&self, call: Call, intended: Nanos, phase: Phase, cancelled: impl Future<Output = ()>) -> Finished {
        match self {
            Engine::Http(http) => http.call(call, intended, phase, cancelled).await,
            Engine::Local(seat) => seat.call(call, intended, phase, cancelled).await,
        }
    }
}
