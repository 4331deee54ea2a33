//! One target over HTTP: the call that becomes an outcome, whatever happens.

use crate::body_capture::{Copies, Heads};
use crate::clock::Clock;
use crate::connect::Dialer;
use crate::counters::Gauges;
use crate::error::EngineError;
use crate::exchange::{AttemptTrace, Exchange, TargetContext, unsent};
use crate::headers::{Address, Headers};
use crate::http1::ReadStatus;
use crate::pool::Pool;
use crate::redact::redactor_on;
use crate::retry::{Failed, Manners};
use crate::route::Route;
use crate::stalls::{Overrun, Stalls, overrun};
use bytes::Bytes;
use http::header::{ACCEPT_ENCODING, CONTENT_TYPE};
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, HeaderValue, Request, StatusCode, Uri};
use llmscen_core::call::Call;
use llmscen_core::outcome::{Failure, FailureKind, Finish, Outcome, Phase};
use llmscen_core::redact::Redactor;
use llmscen_core::request::Leave;
use llmscen_core::target::Target;
use llmscen_core::units::Nanos;
use llmscen_protocols::{Message, Protocol, discard_implausible};
use serde_json::Value;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What an engine is given besides its target.
pub struct Setting {
    /// The case's clock.
    pub clock: Clock,
    /// Where the lane's running totals go.
    pub gauges: Arc<Gauges>,
    /// What is spoken.
    pub protocol: Arc<dyn Protocol>,
    /// Keep the generated text, for a tokenizer to count.
    pub keep_text: bool,
    /// Keep the bodies of requests and responses.
    pub keep_bodies: bool,
    /// What requests do besides being sent.
    pub manners: Manners,
}

/// A finished call, and the text it generated where that was asked for.
#[derive(Debug)]
pub struct Finished {
    /// What happened.
    pub outcome: Outcome,
    /// The generated text.
    pub text: Option<String>,
    /// The reply as it is fed back in the next turn, where text is kept.
    pub message: Option<Message>,
    /// The bodies as they went over the wire, where they are kept and the call was sent.
    pub copy: Option<Box<Copies>>,
}

impl Finished {
    /// An outcome and nothing beside it.
    pub fn bare(outcome: Outcome) -> Finished {
        Finished { outcome, text: None, message: None, copy: None }
    }
}

/// One target, spoken to from one lane.
pub struct Http {
    target: TargetContext,
    manners: Manners,
    request_id: Option<HeaderName>,
    redactor: Redactor,
    /// The proxy in front of the target, in words.
    proxy: Option<String>,
}

impl Http {
    /// An engine for `target` at the end of `route`, with no connection yet.
    pub fn new(target: &Target, route: &Route, setting: Setting) -> Result<Http, EngineError> {
        let address = Address::new(route, target.version);
        let headers = Headers::new(target, route, &address, setting.protocol.as_ref())?;
        let dialer = Dialer::new(route.clone(), target.version, setting.clock);
        let context = TargetContext {
            protocol: setting.protocol,
            address,
            headers,
            pool: Rc::new(Pool::new(dialer, target.pool, target.timeouts.connect, setting.gauges.clone())),
            timeouts: target.timeouts,
            clock: setting.clock,
            gauges: setting.gauges,
            keep_text: setting.keep_text,
            keep_bodies: setting.keep_bodies,
        };
        let own = |name: &String| name.parse().map_err(|_| EngineError::Header(name.clone()));
        let request_id = target.request_id.as_ref().map(own).transpose()?;
        let (redactor, proxy) = (redactor_on(target, route), route.proxy.as_ref().map(ToString::to_string));
        Ok(Http { target: context, manners: setting.manners, request_id, redactor, proxy })
    }

    /// Opens one connection and closes it: whether the target is there and speaks the version of HTTP, and what was tried
    /// where it is not.
    pub async fn reach(&self) -> Result<(), Failure> {
        self.target.pool.reach().await.map_err(|failure| self.proxied(failure))
    }

    /// The names of the models that the target serves, secrets removed; None where it does not list them.
    pub async fn served_models(&self) -> Option<Vec<String>> {
        let names = served_models(&self.target).await?;
        Some(names.iter().map(|name| self.redactor.clean(name)).collect())
    }

    /// Begins to open so many connections for what comes; must be called on a lane.
    pub fn open_ahead(&self, connections: u64) {
        self.target.pool.open_ahead(connections);
    }

    /// Sends a call and waits for its end. Never an error: what goes wrong is in the outcome.
    ///
    /// `cancelled` resolves when the call must be given up.
    pub async fn call(&self, mut call: Call, intended: Nanos, phase: Phase, cancelled: impl Future<Output = ()>) -> Finished {
        let headers = match self.target.headers.of(call.streamed, &call.headers) {
            Ok(headers) => headers,
            Err(error) => return self.never_sent(&call, intended, phase, unsent(error)),
        };
        let mut trace = AttemptTrace::default();
        trace.timeline.intended = intended;
        self.target.gauges.start(call.body.len() as u64);
        let mut outcome = call.outcome(phase);
        trace.timeline.sent = Some(self.target.clock.now());
        let body: Bytes = std::mem::take(&mut call.body).into();
        let request = self.target.keep_bodies.then(|| body.clone());
        let stop = pin!(given_up(&self.target.gauges.stalls, self.target.timeouts.total, call.leave, cancelled));
        let end = self.attempts(&call, headers, body, &mut trace, stop).await;
        self.target.gauges.finish();
        if end.is_ok() && call.streamed && trace.streamed == Some(false) {
            self.target.gauges.ignore_stream();
        }
        let finish = |finish: Finish| Finish { reason: self.redactor.strike(finish.reason) };
        outcome.end = end.map(finish).map_err(|failure| self.placed(failure, &trace, &call.headers));
        let known_end = trace.end.filter(|_| outcome.end.is_ok());
        trace.timeline.end = known_end.unwrap_or_else(|| self.target.clock.now());
        let (response, heads) = (std::mem::take(&mut trace.copied), trace.heads.take());
        let copy = request.map(|request| Box::new(Copies { request, own: call.headers, heads, response }));
        let packed = trace.packed;
        let mut finished = self.fill(outcome, trace);
        if let Some(example) = discard_implausible(&mut finished.outcome, packed) {
            self.target.gauges.disbelieve(example);
        }
        Finished { copy, ..finished }
    }

    /// Tries a call until it succeeds, is not to be tried again, or `stop` resolves.
    async fn attempts(
        &self,
        call: &Call,
        mut headers: HeaderMap,
        body: Bytes,
        trace: &mut AttemptTrace,
        mut stop: Pin<&mut impl Future<Output = Failure>>,
    ) -> Result<Finish, Failure> {
        let enough = call.leave.and_then(|leave| if let Leave::Tokens(enough) = leave { Some(enough) } else { None });
        loop {
            self.name(&mut headers, call, trace);
            trace.heads = self.target.keep_bodies.then(|| Heads { sent: headers.clone(), reply: None });
            trace.attempts += 1;
            let mut exchange = Exchange { target: &self.target, trace, enough };
            let failure = match exchange.run(headers, body.clone(), call.streamed, stop.as_mut()).await {
                Ok(finish) => return Ok(finish),
                Err(failure) => failure,
            };
            let failed = Failed { failure: &failure, retry_after: trace.retry_after };
            let pause = self.manners.pause(call, trace.attempts, trace.status, &failed).filter(|_| !trace.answered(&failure));
            let Some(pause) = pause else { return Err(failure) };
            tokio::select! {
                biased;
                cut = stop.as_mut() => return Err(between(cut, &failure)),
                () = tokio::time::sleep(pause.into()) => {}
            }
            headers = self.target.headers.of(call.streamed, &call.headers).map_err(unsent)?;
            trace.again(self.target.clock.now());
        }
    }

    /// Gives the attempt that comes an id of its own, where the target wants one.
    fn name(&self, headers: &mut HeaderMap, call: &Call, trace: &mut AttemptTrace) {
        let Some(header) = &self.request_id else { return };
        let id = self.manners.id(call, trace.attempts);
        if let Ok(value) = HeaderValue::from_str(&id) {
            headers.insert(header, value);
            trace.request_id = Some(id);
        }
    }

    /// A call that cannot be written down: the fault is its own data's, and nothing of it left.
    fn never_sent(&self, call: &Call, intended: Nanos, phase: Phase, failure: Failure) -> Finished {
        let mut outcome = Outcome { end: Err(failure), bytes_out: 0, ..call.outcome(phase) };
        outcome.timeline.intended = intended;
        outcome.timeline.end = self.target.clock.now();
        Finished::bare(outcome)
    }

    fn fill(&self, mut outcome: Outcome, trace: AttemptTrace) -> Finished {
        outcome.status = trace.status;
        outcome.reads = trace.reads;
        outcome.bytes_in = trace.bytes_in;
        outcome.reconnects = trace.reconnects;
        outcome.attempts = trace.attempts;
        outcome.usage = trace.usage;
        if trace.silent {
            // Any tokenizer counts no token in an empty text.
            outcome.counted.output = Some(0);
        }
        outcome.server = trace.server;
        // A reply may name fewer than were asked about: the best three of a hundred documents.
        outcome.items = trace.items.map(|seen| outcome.items.unwrap_or(seen));
        outcome.response_id = trace.response_id.map(|id| self.redactor.strike(id));
        outcome.request_id = trace.request_id;
        outcome.streamed = trace.streamed.unwrap_or(outcome.streamed);
        outcome.timeline = trace.timeline;
        Finished { text: trace.text, message: trace.message, ..Finished::bare(outcome) }
    }

    /// A failure with its place in the stream, and without the secrets of the target and of the call's `own` headers.
    fn placed(&self, failure: Failure, trace: &AttemptTrace, own: &[(String, String)]) -> Failure {
        let (redactor, failure) = (self.redactor.and(own), self.proxied(failure));
        let at = match (failure.at.is_empty(), trace.timeline.tokens.len(), trace.timeline.headers) {
            (false, ..) => failure.at,
            (_, 0, None) => "before the headers".into(),
            (_, 0, Some(_)) => "before the first token".into(),
            (_, n, _) => format!("after {n} token events"),
        };
        Failure::new(failure.kind, redactor.clean(&failure.message)).at(redactor.clean(&at))
    }

    /// A failure of a connection through a proxy names it: the fault may be the proxy's.
    fn proxied(&self, failure: Failure) -> Failure {
        let of_connection = matches!(failure.kind, FailureKind::Connect | FailureKind::Tls | FailureKind::TimeoutConnect);
        match self.proxy.as_ref().filter(|proxy| of_connection && !failure.message.contains(proxy.as_str())) {
            Some(proxy) => Failure { message: format!("{} (through the proxy {proxy})", failure.message), ..failure },
            None => failure,
        }
    }
}

/// What ended the wait for another attempt, and what that wait was for.
fn between(cut: Failure, before: &Failure) -> Failure {
    Failure::new(cut.kind, format!("{}, while it waited to be tried again: {}", cut.message, before.message))
}

/// Resolves, with the reason, when a call must end though its response does not: `limit` from now, not counting the stalls of
/// this lane, when its user leaves, or when it is cancelled.
pub fn given_up(
    stalls: &Stalls,
    limit: Nanos,
    leave: Option<Leave>,
    cancelled: impl Future<Output = ()>,
) -> impl Future<Output = Failure> {
    let (began, limit) = (Instant::now(), Duration::from(limit));
    let leaves = async move {
        match leave {
            Some(Leave::After(span)) => tokio::time::sleep(span.into()).await,
            Some(Leave::Tokens(_)) | None => std::future::pending().await,
        }
    };
    async move {
        tokio::select! {
            biased;
            () = cancelled => Failure::new(FailureKind::Cancelled, "given up: the run was over"),
            () = leaves => Failure::new(FailureKind::Abandoned, "its user left: the time was up"),
            overrun = overrun(stalls, limit, || began) => late(overrun, FailureKind::TimeoutTotal, &format!("not done within {limit:?}")),
        }
    }
}

/// The failure of a wait that took its limit: of this kind, unless the lane itself stood still meanwhile.
pub(super) fn late(overrun: Overrun, kind: FailureKind, why: &str) -> Failure {
    match overrun {
        Overrun::Server => Failure::new(kind, why),
        Overrun::Tool => Failure::new(FailureKind::ToolStall, format!("{why}, while the load generator stalled repeatedly")),
    }
}

/// The outcome of an arrival that found no room: it was never sent.
pub fn dropped(call: &Call, phase: Phase, at: Nanos, why: &str) -> Outcome {
    let mut outcome = Outcome { end: Err(Failure::new(FailureKind::Dropped, why)), bytes_out: 0, ..call.outcome(phase) };
    outcome.timeline.intended = at;
    outcome.timeline.end = at;
    outcome
}

/// The whole exchange takes so long at most.
const PATIENCE: Duration = Duration::from_secs(3);
/// Bytes of the answer, models, and characters of a name that are taken.
const BODY: usize = 1 << 20;
const MODELS: usize = 50;
const NAME: usize = 100;

/// The names of the models that the target lists; None where it does not answer the question.
pub(super) async fn served_models(target: &TargetContext) -> Option<Vec<String>> {
    tokio::time::timeout(PATIENCE, asked(target)).await.ok()?
}

async fn asked(target: &TargetContext) -> Option<Vec<String>> {
    let mut lease = target.pool.lease_fresh().await.ok()?;
    let mut request = Request::new(Bytes::new());
    *request.headers_mut() = target.headers.of(false, &[]).ok()?;
    request.headers_mut().remove(CONTENT_TYPE);
    request.headers_mut().insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    target.address.write(&mut request, lease.version()).ok()?;
    // The host stays the target's, and a redirect is not followed: no other host may see the key.
    let mut parts = request.uri().clone().into_parts();
    parts.path_and_query = Some(PathAndQuery::try_from(models_path(request.uri().path())).ok()?);
    *request.uri_mut() = Uri::from_parts(parts).ok()?;
    let response = lease.send(request).await.ok()?;
    if response.status() != StatusCode::OK {
        return None;
    }
    let mut body = Vec::new();
    while body.len() < BODY && lease.pull(&mut |bytes: &[u8]| body.extend_from_slice(bytes)).await.ok()? != ReadStatus::End {}
    names(&body)
}

/// The list of models beside a path: `/v1/models` for `/v1/chat/completions`, with what stands before the `/v1`.
fn models_path(path: &str) -> String {
    let root = path.rfind("/v1/").or_else(|| path.strip_suffix("/v1").map(str::len)).and_then(|at| path.get(..at));
    format!("{}/v1/models", root.unwrap_or_default())
}

fn names(body: &[u8]) -> Option<Vec<String>> {
    let list: Value = serde_json::from_slice(body).ok()?;
    let ids = list.get("data")?.as_array()?.iter().filter_map(|model| model.get("id")?.as_str());
    Some(ids.take(MODELS).map(|id| id.chars().take(NAME).collect()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_beside_the_path_of_the_requests() {
        for (path, list) in [
            ("/v1/chat/completions", "/v1/models"),
            ("/openai/v1/chat/completions", "/openai/v1/models"),
            ("/v1", "/v1/models"),
            ("/api/chat", "/v1/models"),
            ("/", "/v1/models"),
        ] {
            assert_eq!(models_path(path), list, "{path}");
        }
    }

    #[test]
    fn names_come_from_the_list_and_from_nothing_else() {
        let of = |body: &str| names(body.as_bytes());
        assert_eq!(of(r#"{"object":"list","data":[{"id":"a"},{"no":1},{"id":"b"}]}"#), Some(vec!["a".into(), "b".into()]));
        assert_eq!([of("<html>"), of("[]"), of(r#"{"data":{}}"#)], [None, None, None]);
        assert_eq!(of(&format!(r#"{{"data":[{{"id":"{}"}}]}}"#, "x".repeat(900))).map(|all| all[0].len()), Some(NAME));
    }
}
