//! What a worker sends requests to: a server or a local model.

use crate::run::error::RunError;
use crate::run::execution::local_model::ModelSession;
use llmscen_client::http::{CompletedCall, EndedCall as HttpCall, HttpClient, HttpOptions};
use llmscen_client::route::Route;
use llmscen_core::outcome::{Failure, Phase};
use llmscen_core::request::PreparedRequest;
use llmscen_core::target::Target;
use llmscen_core::units::Nanos;
use llmscen_local::adapter::Adapter;

/// The receiver of a worker's requests.
pub enum Engine {
    /// A server, over HTTP.
    Http(Box<HttpClient>),
    /// A local model, on another thread of this process.
    Local(Adapter),
}

/// A call that is over. Building its outcome can wait until the next request is sent.
#[expect(
    clippy::large_enum_variant,
    reason = "a box would be an allocation per request on the timed path"
)]
pub enum EndedCall<'a> {
    /// Of a server, with the client that builds the outcome.
    Http(&'a HttpClient, HttpCall),
    /// Of a local model, which has built the outcome.
    Local(CompletedCall),
}

impl EndedCall<'_> {
    /// When the user could send the next request, if the call succeeded.
    pub fn over_at(&self) -> Option<Nanos> {
        match self {
            EndedCall::Http(_, ended) => ended.is_ok().then(|| ended.over_at()),
            EndedCall::Local(finished) => {
                let outcome = &finished.outcome;
                outcome.end.is_ok().then_some(outcome.timeline.end)
            }
        }
    }

    /// Builds the outcome.
    pub fn complete(self) -> CompletedCall {
        match self {
            EndedCall::Http(http, ended) => http.complete(ended),
            EndedCall::Local(finished) => finished,
        }
    }
}

impl Engine {
    /// The engine of a worker: the local model, if there is one, else the server at the end of `route`.
    ///
    /// # Errors
    /// The HTTP client cannot be built.
    pub fn open(
        target: &Target,
        route: Option<&Route>,
        local: Option<ModelSession>,
        setting: HttpOptions,
    ) -> Result<Engine, RunError> {
        if let Some(local) = local {
            return Ok(Engine::Local(Adapter {
                host: local.host,
                session: local.session,
                gauges: setting.counters,
                total: target.timeouts.total,
                seed: setting.policy.seed,
                keep_text: setting.keep_text,
                keep_bodies: setting.keep_bodies,
            }));
        }
        let route = route.ok_or(RunError::NothingToSend)?;
        Ok(Engine::Http(Box::new(HttpClient::new(
            target, route, setting,
        )?)))
    }

    /// Starts to open this many connections ahead of their first use; a local model needs none.
    pub fn preconnect(&self, connections: u64) {
        if let Engine::Http(http) = self {
            http.open_ahead(connections);
        }
    }

    /// Opens one connection and closes it, to find out whether the target can be reached; a local model always can.
    ///
    /// # Errors
    /// Why it cannot be reached.
    pub async fn connect(&self) -> Result<(), Failure> {
        match self {
            Engine::Http(http) => http.reach().await,
            Engine::Local(_) => Ok(()),
        }
    }

    /// Sends a request and waits for its end. A failure is part of the outcome.
    ///
    /// `cancelled` resolves when the request must be cancelled.
    pub async fn call(
        &self,
        call: PreparedRequest,
        intended: Nanos,
        phase: Phase,
        cancelled: impl Future<Output = ()>,
    ) -> EndedCall<'_> {
        match self {
            Engine::Http(http) => {
                EndedCall::Http(http, http.exchange(call, intended, phase, cancelled).await)
            }
            Engine::Local(adapter) => {
                EndedCall::Local(adapter.call(call, intended, phase, cancelled).await)
            }
        }
    }
}
