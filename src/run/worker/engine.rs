//! What a worker sends requests to: a server or a local model.

use crate::run::error::RunError;
use crate::run::resources::local_model::ModelSession;
use llmscen_client::http::{CompletedCall, EndedCall as HttpCall, HttpClient, HttpOptions};
use llmscen_client::route::Route;
use llmscen_core::outcome::Phase;
use llmscen_core::request::PreparedRequest;
use llmscen_core::target::Target;
use llmscen_core::units::Nanos;
use llmscen_local::adapter::Adapter;
use std::time::Duration;

/// The receiver of a worker's requests.
pub enum Engine {
    /// Servers, over HTTP: a client for each URL of the target, at least one.
    Http(Box<[HttpClient]>),
    /// A local model, on another thread of this process.
    Local(Adapter),
}

/// A call that is over. Building its outcome can wait until the next request is sent.
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
    /// The engine of a worker: the local model, if there is one, else the servers at the ends of `routes`.
    ///
    /// # Errors
    /// The HTTP client cannot be built.
    pub fn open(
        target: &Target,
        routes: &[Route],
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
                keep_text: setting.decode_options.keep_text,
                keep_bodies: setting.keep_bodies,
            }));
        }
        if routes.is_empty() {
            return Err(RunError::NothingToSend);
        }
        let clients = routes
            .iter()
            .map(|route| HttpClient::new(target, route, setting.clone()));
        Ok(Engine::Http(clients.collect::<Result<_, _>>()?))
    }

    /// Starts to open this many connections to each URL ahead of their first use; a local model needs none.
    pub fn preconnect(&self, connections: &[u64]) {
        if let Engine::Http(clients) = self {
            for (http, connections) in clients.iter().zip(connections) {
                http.open_ahead(*connections);
            }
        }
    }

    /// Releases the connections of a session that is over.
    pub fn end_session(&self, session: u64) {
        if let Engine::Http(clients) = self {
            clients.iter().for_each(|http| http.end_session(session));
        }
    }

    /// Why none of the URLs accepts a connection within `timeout`; None if one does. A local model always does.
    pub async fn why_unreachable(&self, timeout: Duration) -> Option<String> {
        let Engine::Http(clients) = self else {
            return None;
        };
        let mut why = None;
        for http in clients {
            match tokio::time::timeout(timeout, http.reach()).await {
                Ok(Ok(())) => return None,
                Ok(Err(failure)) if failure.is_own_shortage() => return None,
                Ok(Err(failure)) => why = Some(failure.message),
                Err(_) => why = Some("no connection in time".to_owned()),
            }
        }
        why
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
            Engine::Http(clients) => {
                let http = &clients[call.endpoint % clients.len()];
                EndedCall::Http(http, http.exchange(call, intended, phase, cancelled).await)
            }
            Engine::Local(adapter) => {
                EndedCall::Local(adapter.call(call, intended, phase, cancelled).await)
            }
        }
    }
}
