//! The HTTP client of one target on one worker: each call becomes an outcome.

use crate::ClientError;
use crate::aws::body_sha256;
use crate::body_capture::{CapturedExchange, CapturedHeads};
use crate::clock::Clock;
use crate::connect::Dialer;
use crate::counters::LiveCounters;
use crate::exchange::{AttemptTrace, Exchange, ResponseHeaders, TargetContext};
use crate::headers::{RequestHeaders, RequestTarget};
use crate::http1::ReadStatus;
use crate::pool::{Pool, SessionTurn, WebSocketPolicy};
use crate::redact::target_redactor;
use crate::retry::RequestPolicy;
use crate::route::Route;
use crate::stalls::{Stalls, overrun, timeout_failure};
use crate::websocket::Upgrade;
use bytes::Bytes;
use http::header::{ACCEPT_ENCODING, CONTENT_TYPE};
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode, Uri};
use llmscen_core::expect::Truths;
use llmscen_core::outcome::{Failure, FailureKind, Finish, Outcome, Phase};
use llmscen_core::redact::Redactor;
use llmscen_core::request::{ClientCancel, PreparedRequest};
use llmscen_core::target::Target;
use llmscen_core::units::Nanos;
use llmscen_protocols::{DecodeOptions, Message, Protocol, correct_counts};
use serde_json::Value;
use std::ops::Range;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

/// Options of a client besides its target.
#[derive(Clone)]
pub struct HttpOptions {
    /// The case's clock.
    pub clock: Clock,
    /// The worker's counters for the live display.
    pub counters: Arc<LiveCounters>,
    /// The API.
    pub protocol: Arc<dyn Protocol>,
    /// How responses are decoded; texts are kept to count their tokens, to check them, or for the next turn.
    pub decode_options: DecodeOptions,
    /// Keep the bodies of requests and responses.
    pub keep_bodies: bool,
    /// Request ids and retries.
    pub policy: RequestPolicy,
}

/// A completed call.
#[derive(Debug)]
pub struct CompletedCall {
    /// The facts of the call.
    pub outcome: Outcome,
    /// The generated text, if texts are kept.
    pub text: Option<String>,
    /// The bytes of each token event in the text; empty if they are not known.
    pub event_texts: Vec<Range<u32>>,
    /// The reply for the next turn of a conversation, if texts are kept.
    pub message: Option<Message>,
    /// The header with the token of the session for its next turn, if the response had one.
    pub session_token: Option<(String, String)>,
    /// The exchange, if bodies are kept and the call was sent.
    pub captured: Option<Box<CapturedExchange>>,
    /// The truths of the answer, if it is to be checked.
    pub truths: Option<Box<Truths>>,
}

impl CompletedCall {
    /// An outcome without text or bodies.
    pub fn bare(outcome: Outcome) -> CompletedCall {
        CompletedCall {
            outcome,
            text: None,
            event_texts: Vec::new(),
            message: None,
            session_token: None,
            captured: None,
            truths: None,
        }
    }
}

/// A call that is over, before its outcome is built: the next request of its user need not wait for that.
pub struct EndedCall {
    call: PreparedRequest,
    phase: Phase,
    /// The request body, if bodies are kept.
    request: Option<Bytes>,
    /// Bytes of the request body.
    bytes_out: u64,
    trace: AttemptTrace,
    /// The finish, or the failure with its final text.
    end: Result<Finish, Failure>,
}

impl EndedCall {
    /// Whether the response was complete.
    pub fn is_ok(&self) -> bool {
        self.end.is_ok()
    }

    /// When the user could have sent the next request: the timestamp of the last read, of a connection that is kept.
    pub fn over_at(&self) -> Nanos {
        self.trace
            .kept_at
            .unwrap_or_default()
            .max(self.trace.timeline.end)
    }
}

/// The HTTP client of one target on one worker.
pub struct HttpClient {
    target: TargetContext,
    manners: RequestPolicy,
    request_id: Option<HeaderName>,
    session_id: Option<HeaderName>,
    /// The request header of session tokens.
    token_header: Option<String>,
    redactor: Redactor,
    /// Requests are messages on WebSockets.
    websocket: bool,
    /// The name of the URL in outcomes; None for the only URL of a target.
    endpoint: Option<Arc<str>>,
    /// The proxy in front of the target, for messages.
    proxy: Option<String>,
}

impl HttpClient {
    /// A client for `target`; it opens connections when needed.
    pub fn new(
        target: &Target,
        route: &Route,
        setting: HttpOptions,
    ) -> Result<HttpClient, ClientError> {
        let request_target = Rc::new(RequestTarget::new(target, route));
        let headers = RequestHeaders::new(target, route, &request_target, &setting.protocol)?;
        let headers = Rc::new(headers);
        let websocket = target.websocket.then(|| WebSocketPolicy {
            upgrade: Upgrade {
                headers: headers.clone(),
                request_target: request_target.clone(),
            },
            keeps_conversation: target.api.keeps_conversation(),
        });
        let dialer = Dialer::new(route.clone(), target.http_version(), setting.clock);
        let header_name =
            |name: &String| name.parse().map_err(|_| ClientError::Header(name.clone()));
        let token = target.session_token.as_ref();
        let context = TargetContext {
            protocol: setting.protocol,
            request_target,
            headers,
            pool: Rc::new(Pool::new(
                dialer,
                target.pool,
                websocket,
                target.timeouts.connect,
                setting.counters.clone(),
            )),
            timeouts: target.timeouts,
            clock: setting.clock,
            gauges: setting.counters,
            decode_options: setting.decode_options,
            keep_bodies: setting.keep_bodies,
            response_headers: ResponseHeaders {
                keep: target
                    .keep_headers
                    .iter()
                    .map(header_name)
                    .collect::<Result<_, _>>()?,
                token: token.map(|token| header_name(&token.from)).transpose()?,
            },
        };
        let redactor = target_redactor(target, std::slice::from_ref(route));
        Ok(HttpClient {
            target: context,
            manners: setting.policy,
            request_id: target.request_id.as_ref().map(header_name).transpose()?,
            session_id: target.session_id.as_ref().map(header_name).transpose()?,
            token_header: token.map(|token| token.to.clone()),
            // As in the plan, which limits and reports compare it with: it has no secret of the URL.
            endpoint: route.endpoint.clone(),
            redactor,
            websocket: target.websocket,
            proxy: route.proxy.as_ref().map(ToString::to_string),
        })
    }

    /// Opens and closes one connection, to check that the target is reachable with the HTTP version.
    pub async fn reach(&self) -> Result<(), Failure> {
        self.target
            .pool
            .check_reachable()
            .await
            .map_err(|failure| self.name_proxy(failure))
    }

    /// The names of the served models without secrets; `None` if the target does not list them.
    pub async fn served_models(&self) -> Option<Vec<String>> {
        let list = get_json(&self.target, models_path).await?;
        Some(
            model_names(&list)?
                .iter()
                .map(|name| self.redactor.redact_truncated(name))
                .collect(),
        )
    }

    /// What the server says about itself, without secrets: its models, who owns them, and its version.
    pub async fn identify(&self) -> ServerIdentity {
        let clean = |text: &str| self.redactor.redact_truncated(text);
        let list = get_json(&self.target, models_path).await;
        let owner = list.as_ref().and_then(|list| {
            let first = list.get("data")?.as_array()?.first()?;
            first.get("owned_by")?.as_str().map(clean)
        });
        // vLLM and SGLang answer the first path, Ollama the second.
        let mut version = None;
        for path in ["/version", "/api/version"] {
            if version.is_none() {
                let page = get_json(&self.target, |_| path.to_owned()).await;
                version = page.and_then(|page| page.get("version")?.as_str().map(clean));
            }
        }
        let names = list.as_ref().and_then(model_names);
        ServerIdentity {
            models: names.map(|names| names.iter().map(|name| clean(name)).collect()),
            owner,
            version,
        }
    }

    /// Releases the connections of a session that is over.
    pub fn end_session(&self, session: u64) {
        self.target.pool.end_session(session);
    }

    /// Starts to open connections for later requests; must be called on a worker thread.
    pub fn open_ahead(&self, connections: u64) {
        self.target.pool.open_ahead(connections);
    }

    /// Sends a call and waits for its end. A failure is part of the outcome.
    ///
    /// The call ends early when `cancelled` resolves.
    pub async fn call(
        &self,
        call: PreparedRequest,
        intended: Nanos,
        phase: Phase,
        cancelled: impl Future<Output = ()>,
    ) -> CompletedCall {
        let ended = self.exchange(call, intended, phase, cancelled).await;
        self.complete(ended)
    }

    /// As [`HttpClient::call`], without the work that can wait: [`HttpClient::complete`] does it.
    pub async fn exchange(
        &self,
        mut call: PreparedRequest,
        intended: Nanos,
        phase: Phase,
        cancelled: impl Future<Output = ()>,
    ) -> EndedCall {
        let mut trace = AttemptTrace::default();
        trace.timeline.intended = intended;
        if self.target.headers.signs() && call.body_sha256.is_none() {
            call.body_sha256 = Some(body_sha256(&call.body));
        }
        let headers = match self.attempt_headers(&call, &mut trace) {
            Ok(headers) => headers,
            Err(error) => {
                trace.timeline.end = self.target.clock.now();
                return EndedCall {
                    call,
                    phase,
                    request: None,
                    bytes_out: 0,
                    trace,
                    end: Err(error.into_failure()),
                };
            }
        };
        let bytes_out = call.body.len() as u64;
        self.target.gauges.start(bytes_out);
        trace.timeline.sent = Some(self.target.clock.now());
        let body: Bytes = std::mem::take(&mut call.body).into();
        let request = self.target.keep_bodies.then(|| body.clone());
        let stop = pin!(call_deadline(
            &self.target.gauges.stalls,
            self.target.timeouts.total,
            call.cancel,
            cancelled
        ));
        let end = self
            .send_with_retries(&call, headers, body, &mut trace, stop)
            .await;
        self.target.gauges.finish();
        if end.is_ok() && call.streamed && trace.streamed == Some(false) {
            self.target.gauges.count_unstreamed();
        }
        let known_end = trace.end.filter(|_| end.is_ok());
        trace.timeline.end = known_end.unwrap_or_else(|| self.target.clock.now());
        EndedCall {
            call,
            phase,
            request,
            bytes_out,
            trace,
            end,
        }
    }

    /// Builds the outcome of a call.
    pub fn complete(&self, ended: EndedCall) -> CompletedCall {
        let EndedCall {
            mut call,
            phase,
            request,
            bytes_out,
            mut trace,
            end,
        } = ended;
        let truths = call.truths.take().map(|mut truths| {
            truths.headers.clone_from(&call.headers);
            truths
        });
        let redact = |finish: Finish| Finish {
            reason: self.redactor.redact(finish.reason),
        };
        let outcome = Outcome {
            bytes_out,
            end: end
                .map(redact)
                .map_err(|failure| self.complete_failure(failure, &trace, &call.headers)),
            ..call.outcome(phase)
        };
        let response = std::mem::take(&mut trace.response);
        let heads = trace.heads.take();
        let copy = request.map(|request| {
            Box::new(CapturedExchange {
                request,
                call_headers: call.headers,
                heads,
                response,
            })
        });
        let compressed = trace.compressed;
        let mut finished = self.fill_outcome(outcome, trace);
        correct_counts(&mut finished.outcome, compressed);
        CompletedCall {
            captured: copy,
            truths,
            ..finished
        }
    }

    /// Sends a call until it succeeds, may not be retried, or `stop` resolves.
    async fn send_with_retries(
        &self,
        call: &PreparedRequest,
        mut headers: HeaderMap,
        body: Bytes,
        trace: &mut AttemptTrace,
        mut stop: Pin<&mut impl Future<Output = Failure>>,
    ) -> Result<Finish, Failure> {
        let token_limit = call.cancel.and_then(|leave| {
            if let ClientCancel::Tokens(limit) = leave {
                Some(limit)
            } else {
                None
            }
        });
        let began = Instant::now();
        let limit = Duration::from(self.target.timeouts.total);
        loop {
            trace.heads = self.target.keep_bodies.then(|| {
                Box::new(CapturedHeads {
                    sent: headers.clone(),
                    reply: None,
                })
            });
            trace.attempts += 1;
            let key = self.target.headers.key_number();
            let mut exchange = Exchange {
                target: &self.target,
                trace,
                token_limit,
                event_limit: call.event_limit(),
                playback: call
                    .audio
                    .flatten()
                    .filter(|_| self.websocket)
                    .unwrap_or_default(),
                turn: (self.websocket && call.turns > 1).then_some(SessionTurn {
                    session: call.seq,
                    begins: call.turn == call.first_turn.saturating_sub(1),
                }),
            };
            let failure = match exchange
                .run(headers, body.clone(), call.streamed, stop.as_mut())
                .await
            {
                Ok(finish) => return Ok(finish),
                Err(failure) => failure,
            };
            if self.is_refused(trace.status) {
                self.target.headers.refuse_key(key);
            }
            let delay = match trace.may_have_content(&failure) {
                true => None,
                false => self.manners.retry_delay(
                    call,
                    trace.attempts,
                    trace.status,
                    failure.kind,
                    trace.retry_after,
                ),
            };
            // A delay beyond the end of the request is not waited for: the answer of the server is its outcome.
            let is_in_time =
                |delay: &Nanos| began.elapsed().saturating_add((*delay).into()) < limit;
            let Some(delay) = delay.filter(is_in_time) else {
                return Err(failure);
            };
            tokio::select! {
                biased;
                stopped = stop.as_mut() => {
                    let why = format!("{} while waiting to retry after: {}", stopped.message, failure.message);
                    return Err(Failure::new(stopped.kind, why));
                }
                () = tokio::time::sleep(delay.into()) => {}
            }
            headers = self
                .attempt_headers(call, trace)
                .map_err(ClientError::into_failure)?;
            trace.begin_retry(self.target.clock.now());
        }
    }

    /// Whether this status says that the server refused the key. AWS reports expired credentials as 403.
    fn is_refused(&self, status: Option<u16>) -> bool {
        status == Some(StatusCode::UNAUTHORIZED.as_u16())
            || status == Some(StatusCode::FORBIDDEN.as_u16()) && self.target.headers.signs()
    }

    /// The headers of the next attempt, with its signature and its id.
    fn attempt_headers(
        &self,
        call: &PreparedRequest,
        trace: &mut AttemptTrace,
    ) -> Result<HeaderMap, ClientError> {
        let shared = &self.target.headers;
        if let Some((name, _)) = call.headers.first().filter(|_| self.websocket) {
            return Err(ClientError::OpenedBefore(name.clone()));
        }
        let mut headers = shared.for_request(call.streamed, &call.headers, call.own_key)?;
        shared.sign_call(&mut headers, call.body_sha256.as_deref(), SystemTime::now())?;
        self.set_request_id(&mut headers, call, trace);
        self.set_session_id(&mut headers, call);
        Ok(headers)
    }

    /// Sets the id of the next attempt, if the target has a header for it.
    fn set_request_id(
        &self,
        headers: &mut HeaderMap,
        call: &PreparedRequest,
        trace: &mut AttemptTrace,
    ) {
        let Some(header) = &self.request_id else {
            return;
        };
        let id = self.manners.request_id(call, trace.attempts);
        if let Ok(value) = HeaderValue::from_str(&id) {
            headers.insert(header, value);
            trace.request_id = Some(id);
        }
    }

    /// Sets the id of the session, which is the same for all of its turns and attempts.
    fn set_session_id(&self, headers: &mut HeaderMap, call: &PreparedRequest) {
        if let Some(header) = &self.session_id
            && let Ok(value) = HeaderValue::from_str(&self.manners.session_id(call))
        {
            headers.insert(header, value);
        }
    }

    fn fill_outcome(&self, mut outcome: Outcome, trace: AttemptTrace) -> CompletedCall {
        outcome.status = trace.status;
        outcome.reads = trace.reads;
        outcome.bytes_in = trace.bytes_in;
        outcome.reconnects = trace.reconnects;
        outcome.attempts = trace.attempts;
        outcome.endpoint = self.endpoint.clone().filter(|_| trace.attempts > 0);
        let reply = trace.reply.map(|reply| *reply).unwrap_or_default();
        outcome.usage = reply.usage;
        if trace.empty {
            // An empty text has no token in any tokenizer.
            outcome.counted.output = Some(0);
        }
        outcome.server = reply.server;
        outcome.reply = reply.facts;
        // The number in the request counts: a reply may list fewer, such as the best three of a hundred documents.
        outcome.items = reply.items.map(|listed| outcome.items.unwrap_or(listed));
        if let Some(audio) = trace.audio {
            outcome.audio = Some(Box::new(audio.into_audio()));
        }
        outcome.response_id = reply.id.map(|id| self.redactor.redact(id));
        outcome.request_id = trace.request_id;
        outcome.kept_headers = trace
            .kept_headers
            .map(|lines| self.redactor.redact(lines).into());
        outcome.streamed = trace.streamed.unwrap_or(outcome.streamed);
        outcome.timeline = trace.timeline;
        CompletedCall {
            text: reply.text,
            event_texts: reply.event_texts,
            message: reply.message,
            session_token: self.token_header.clone().zip(trace.session_token),
            ..CompletedCall::bare(outcome)
        }
    }

    /// Adds the position in the stream to a failure, and removes secrets of the target and of `call_headers`.
    fn complete_failure(
        &self,
        failure: Failure,
        trace: &AttemptTrace,
        call_headers: &[(String, String)],
    ) -> Failure {
        let redactor = self.redactor.with_headers(call_headers);
        let failure = self.name_proxy(failure);
        let at = match (
            failure.at.is_empty(),
            trace.timeline.tokens.len(),
            trace.timeline.headers,
        ) {
            (false, ..) => failure.at,
            (_, 0, None) if self.websocket => "before the first message".into(),
            (_, 0, None) => "before the headers".into(),
            (_, 0, Some(_)) => "before the first token".into(),
            (_, n, _) => format!("after {n} token events"),
        };
        Failure::new(failure.kind, redactor.redact_truncated(&failure.message))
            .at(redactor.redact_truncated(&at))
    }

    /// Names the proxy in a connection failure, since the proxy may be the cause.
    fn name_proxy(&self, failure: Failure) -> Failure {
        let of_connection = matches!(
            failure.kind,
            FailureKind::Connect | FailureKind::Tls | FailureKind::TimeoutConnect
        );
        match self
            .proxy
            .as_ref()
            .filter(|proxy| of_connection && !failure.message.contains(proxy.as_str()))
        {
            Some(proxy) => Failure {
                message: format!("{} (through the proxy {proxy})", failure.message),
                ..failure
            },
            None => failure,
        }
    }
}

/// Resolves with the reason when a call must end before its response does: after `limit`, not counting stalls of the
/// worker; at the time in `leave`; or when `cancelled` resolves.
pub fn call_deadline(
    stalls: &Stalls,
    limit: Nanos,
    leave: Option<ClientCancel>,
    cancelled: impl Future<Output = ()>,
) -> impl Future<Output = Failure> {
    let began = Instant::now();
    let limit = Duration::from(limit);
    let client_cancels = async move {
        match leave {
            Some(ClientCancel::After(span)) => tokio::time::sleep(span.into()).await,
            Some(ClientCancel::Tokens(_)) | None => std::future::pending().await,
        }
    };
    async move {
        tokio::select! {
            biased;
            () = cancelled => Failure::new(FailureKind::Cancelled, "cancelled: the run ended"),
            () = client_cancels => Failure::new(FailureKind::Abandoned, "cancelled by `request.cancel.after`"),
            overrun = overrun(stalls, limit, || began) => timeout_failure(overrun,
                FailureKind::TimeoutTotal, &format!("not done within {limit:?}")),
        }
    }
}

/// The outcome of a request that was not sent, such as an arrival at `load.max_in_flight`.
pub fn dropped_outcome(call: &PreparedRequest, phase: Phase, at: Nanos, why: &str) -> Outcome {
    let mut outcome = Outcome {
        end: Err(Failure::new(FailureKind::Dropped, why)),
        bytes_out: 0,
        ..call.outcome(phase)
    };
    outcome.timeline.intended = at;
    outcome.timeline.end = at;
    outcome
}

/// Limits of `GET /v1/models`: total time, bytes of the body, number of models, characters of a name.
const MODELS_TIMEOUT: Duration = Duration::from_secs(3);
const MAX_MODELS_BODY: usize = 1 << 20;
const MAX_MODELS: usize = 50;
const MAX_MODEL_NAME: usize = 100;

/// What a server says about itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerIdentity {
    /// Names of the served models; None if it does not list them.
    pub models: Option<Vec<String>>,
    /// The owner of the first model, with many engines their name: `vllm`.
    pub owner: Option<String>,
    /// Its version.
    pub version: Option<String>,
}

/// The document at a path of the target's server, within [`MODELS_TIMEOUT`]; None if there is none. `path`: from that
/// of requests.
async fn get_json(target: &TargetContext, path: impl Fn(&str) -> String) -> Option<Value> {
    tokio::time::timeout(MODELS_TIMEOUT, fetch_json(target, path))
        .await
        .ok()?
}

async fn fetch_json(target: &TargetContext, path: impl Fn(&str) -> String) -> Option<Value> {
    let mut lease = target.pool.lease_http().await.ok()?;
    let mut request = Request::new(Bytes::new());
    *request.headers_mut() = target.headers.for_request(false, &[], false).ok()?;
    request.headers_mut().remove(CONTENT_TYPE);
    request
        .headers_mut()
        .insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    target
        .request_target
        .apply(&mut request, lease.version())
        .ok()?;
    // Same host, and no redirects: no other host may receive the API key.
    let mut parts = request.uri().clone().into_parts();
    parts.path_and_query = Some(PathAndQuery::try_from(path(request.uri().path())).ok()?);
    let path = parts.path_and_query.as_ref().map(PathAndQuery::as_str);
    let url = target.request_target.url(path);
    *request.uri_mut() = Uri::from_parts(parts).ok()?;
    let (headers, no_body) = (request.headers_mut(), body_sha256(b""));
    target
        .headers
        .sign(
            headers,
            &Method::GET,
            &url,
            Some(&no_body),
            SystemTime::now(),
        )
        .ok()?;
    let response = lease.send(request, || {}).await.ok()?;
    if response.status() != StatusCode::OK {
        return None;
    }
    let mut body = Vec::new();
    while body.len() < MAX_MODELS_BODY
        && lease
            .read_body(&mut |bytes: &[u8]| body.extend_from_slice(bytes))
            .await
            .ok()?
            != ReadStatus::End
    {}
    serde_json::from_slice(&body).ok()
}

/// The path of the model list: `/v1/models` for `/v1/chat/completions`, with the same prefix before `/v1`.
fn models_path(path: &str) -> String {
    let root = path
        .rfind("/v1/")
        .or_else(|| path.strip_suffix("/v1").map(str::len))
        .and_then(|at| path.get(..at));
    format!("{}/v1/models", root.unwrap_or_default())
}

fn model_names(list: &Value) -> Option<Vec<String>> {
    let ids = list
        .get("data")?
        .as_array()?
        .iter()
        .filter_map(|model| model.get("id")?.as_str());
    Some(
        ids.take(MAX_MODELS)
            .map(|id| id.chars().take(MAX_MODEL_NAME).collect())
            .collect(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exchange::tests::{client_of, target};
    use llmscen_core::api_key::ApiKey;
    use llmscen_core::endpoint::{Balance, Endpoints};
    use llmscen_core::redact::Secret;
    use llmscen_core::target::TargetLocation;

    #[test]
    fn an_endpoint_has_the_name_of_the_plan_even_if_it_contains_the_key() {
        let urls = ["http://u:s3cret-1@localhost:1/?key=s3cret-2", "http://h:2/"];
        let endpoints = Endpoints::new(urls.map(str::to_owned).to_vec(), Balance::default());
        let target = Target {
            location: TargetLocation::Urls(endpoints.unwrap()),
            api_key: Some(ApiKey::Fixed(Secret::new("localhost"))),
            ..target()
        };
        let routes = Route::to_target(&target, &Default::default()).unwrap();
        let names = routes
            .iter()
            .map(|route| client_of(&target, route).endpoint.unwrap().to_string());
        let names: Vec<String> = names.collect();
        assert_eq!(names, ["localhost:1", "h:2"]);
        assert_eq!(
            names,
            target
                .endpoint_names()
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
        );
    }

    #[test]
    fn the_model_list_has_the_prefix_of_the_request_path() {
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
    fn model_names_come_from_a_model_list_only() {
        let parsed = |body: &str| model_names(&serde_json::from_str(body).ok()?);
        assert_eq!(
            parsed(r#"{"object":"list","data":[{"id":"a"},{"no":1},{"id":"b"}]}"#),
            Some(vec!["a".into(), "b".into()])
        );
        assert_eq!(
            [parsed("<html>"), parsed("[]"), parsed(r#"{"data":{}}"#)],
            [None, None, None]
        );
        assert_eq!(
            parsed(&format!(r#"{{"data":[{{"id":"{}"}}]}}"#, "x".repeat(900)))
                .map(|all| all[0].len()),
            Some(MAX_MODEL_NAME)
        );
    }
}
