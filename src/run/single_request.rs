//! Sends one request of a case through the engine of a round, and returns all of request and response.

use crate::run::api_keys::obtain_key;
use crate::run::collector::tally::STREAM_IGNORED;
use crate::run::context::Context;
use crate::run::error::RunError;
use crate::run::outputs::hints;
use crate::run::prepare::DatasetCache;
use crate::run::requests::row_usage::RowUsage;
use crate::run::requests::traffic_class::strided_prompts;
use crate::run::requests::{RequestGenerator, render_first};
use crate::run::resources::local_model::{LocalModels, ModelSession};
use crate::run::resources::managed_server::ManagedServers;
use crate::run::round::{routes_of_round, start_simulator};
use crate::run::stop::{Level, Stop};
use crate::run::worker::engine::Engine;
use crate::store::RunDir;
use llmscen_client::body_capture::{CapturedBody, CapturedExchange, CapturedHeads};
use llmscen_client::clock::Clock;
use llmscen_client::exchange::redact_location;
use llmscen_client::http::{CompletedCall, HttpOptions};
use llmscen_client::redact::{redact_headers, target_redactor};
use llmscen_client::retry::RequestPolicy;
use llmscen_client::route::Route;
use llmscen_core::outcome::{FailureKind, Outcome, Phase};
use llmscen_core::plan::{Case, Plan};
use llmscen_core::report::FailureExample;
use llmscen_core::request::PreparedRequest;
use llmscen_core::schedule::shard::Shard;
use llmscen_core::units::Nanos;
use llmscen_local::host::Host;
use llmscen_protocols::{DecodeOptions, Message};
use llmscen_requests::render::describe_form;
use std::sync::Arc;
use std::time::Instant;
use tokio::task::LocalSet;

/// A sent request and its response, without secrets.
#[derive(Debug)]
pub struct SingleRequest {
    /// Method: that of the handshake for a WebSocket.
    pub method: &'static str,
    /// URL; None for a local model.
    pub url: Option<String>,
    /// Request headers.
    pub headers: Vec<(String, String)>,
    /// Request body.
    pub body: String,
    /// Head of the response, if there was one.
    pub reply: Option<ReplyHead>,
    /// Body of the response.
    pub content: Content,
    /// Timestamps, counts and result.
    pub outcome: Outcome,
    /// Generated text of all choices.
    pub text: Option<String>,
    /// The reply of the first choice.
    pub message: Option<Message>,
    /// Output tokens counted by the tokenizer of the scenario.
    pub counted: Option<u64>,
    /// How to fix a failure, or a note on the response.
    pub hint: Option<String>,
}

/// The head of a response.
#[derive(Debug)]
pub struct ReplyHead {
    /// `HTTP/1.1 200 OK`.
    pub status: String,
    /// Headers.
    pub headers: Vec<(String, String)>,
}

/// The body of a response.
#[derive(Debug, PartialEq)]
pub enum Content {
    /// A document.
    Document(String),
    /// The events of a stream, each with its time after the send.
    Events(Vec<(Nanos, String)>),
}

/// Sends the first request of a case, or the first turn of its first session. It is not retried and not cancelled by
/// the client. `folder`: for the files of a managed server.
///
/// # Errors
/// The request cannot be rendered, or its server or model does not start. A failed request is not an error.
pub fn send_one(
    plan: &Plan,
    index: usize,
    folder: &RunDir,
    context: &Context,
) -> Result<SingleRequest, RunError> {
    let case = plan.cases.get(index).ok_or(RunError::NothingToSend)?;
    let prepared = DatasetCache::default().prepare_case(index, case, plan, context)?;
    let seed = plan.seed.child(case.id.as_str()).child(0u64);
    let prompts = strided_prompts(
        &prepared.classes,
        &RowUsage::default().strides(case, &prepared),
    );
    let call = render_first(
        &mut RequestGenerator::new(case, &prepared, &prompts, seed, Shard::default()),
        &context.stop,
    )?;
    let call = PreparedRequest {
        cancel: None,
        ..call
    };
    let (entry, endpoint) = (call.entry, call.endpoint);
    obtain_key(&case.target, context)?;
    let mut servers = ManagedServers::default();
    let sent = servers
        .start_for_round(case, 0, &prepared, folder, context)
        .and_then(|_| {
            let simulator = start_simulator(case, seed)?;
            let routes = routes_of_round(&prepared.routes, simulator.as_ref(), case)?;
            let model = LocalModels::default().load(&case.target, plan.seed, context)?;
            let setting = HttpOptions {
                clock: Clock::new(Instant::now()),
                counters: Arc::default(),
                protocol: prepared.protocol.clone(),
                decode_options: DecodeOptions {
                    keep_text: true,
                    markers: prepared.markers.clone(),
                },
                keep_bodies: true,
                policy: RequestPolicy {
                    retry: Vec::new(),
                    seed,
                    id_prefix: format!("{}-0", prepared.stem),
                },
            };
            let (finished, served) = send(case, &routes, model, call, setting, &context.stop)?;
            let tokenizer = prepared
                .classes
                .get(entry)
                .and_then(|class| class.tokenizer.as_ref());
            let counted = tokenizer
                .zip(finished.text.as_ref())
                .and_then(|(tokenizer, text)| tokenizer.count(text));
            let hint = hint(case, endpoint, &finished.outcome, served);
            Ok(SingleRequest {
                counted,
                hint,
                ..describe(case, &routes, endpoint, finished)
            })
        });
    servers.stop(&context.stop);
    sent
}

/// Sends the request. Returns its result and, after a 404, the models that the server lists.
fn send(
    case: &Case,
    routes: &[Route],
    model: Option<Arc<Host>>,
    call: PreparedRequest,
    setting: HttpOptions,
    stop: &Stop,
) -> Result<(CompletedCall, Option<Vec<String>>), RunError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(RunError::Thread)?;
    let sent = LocalSet::new().block_on(&runtime, async {
        // Pressed, so that the batch does not wait for more requests.
        let exhausted = Stop::default();
        exhausted.press();
        let switches = [exhausted, stop.clone(), Stop::default()];
        let local = model.map(|host| ModelSession::new(host, case, setting.clock, None, switches));
        let engine = Engine::open(&case.target, routes, local, setting)?;
        let cancelled = stop.reached(Level::Drain);
        let endpoint = call.endpoint;
        let finished = engine
            .call(call, Nanos::ZERO, Phase::Measured, cancelled)
            .await
            .complete();
        let served = match &engine {
            Engine::Http(clients) if finished.outcome.status == Some(404) => {
                match clients.get(endpoint) {
                    Some(http) => http.served_models().await,
                    None => None,
                }
            }
            _ => None,
        };
        Ok::<_, RunError>((finished, served))
    });
    // A host name may still be resolving; do not wait for it.
    runtime.shutdown_background();
    sent
}

/// The hint of a report for this outcome of the URL `endpoint`; `served`: the models that it lists.
fn hint(
    case: &Case,
    endpoint: usize,
    outcome: &Outcome,
    served: Option<Vec<String>>,
) -> Option<String> {
    let failure = match &outcome.end {
        Ok(_) => {
            let ignored = case.request.stream && !outcome.streamed && case.target.api.generates();
            return ignored.then(|| format!("note: {STREAM_IGNORED}"));
        }
        Err(failure) => failure,
    };
    let url = case.target.urls().nth(endpoint)?;
    if failure.kind == FailureKind::Connect && case.target.server.is_none() {
        return Some("help: start the server, or fix `target.url`".to_owned());
    }
    let served = served
        .map(|names| (case.target.redactor().redact_truncated(url), names))
        .into_iter()
        .collect();
    let example = FailureExample {
        kind: failure.kind,
        count: 1,
        status: outcome.status,
        message: failure.message.clone(),
        at: failure.at.clone(),
    };
    hints::hint(&example, case, &served)
}

/// The request to the URL `endpoint` and its response, without secrets.
fn describe(
    case: &Case,
    routes: &[Route],
    endpoint: usize,
    finished: CompletedCall,
) -> SingleRequest {
    let CompletedCall {
        outcome,
        text,
        event_texts: _,
        message,
        captured: copy,
        truths: _,
        session_token: _,
    } = finished;
    let redactor = target_redactor(&case.target, routes);
    let CapturedExchange {
        request,
        call_headers: request_headers,
        heads,
        response,
    } = copy.map_or_else(CapturedExchange::default, |copy| *copy);
    let redactor = redactor.with_headers(&request_headers);
    let named = case.target.headers.iter().map(|(name, _)| name.as_str());
    let named = named.chain(request_headers.iter().map(|(name, _)| name.as_str()));
    let (headers, reply) = match heads.map(|heads| *heads) {
        Some(CapturedHeads { sent, reply }) => {
            let reply = reply.map(|(version, status, headers)| {
                let mut headers = redact_headers(&redactor, &headers, std::iter::empty());
                let location = headers.iter_mut().find(|(name, _)| name == "location");
                location
                    .into_iter()
                    .for_each(|(_, value)| *value = redact_location(value));
                ReplyHead {
                    status: format!("{version:?} {status}"),
                    headers,
                }
            });
            (redact_headers(&redactor, &sent, named), reply)
        }
        None => (Vec::new(), None),
    };
    let sent_at = outcome
        .timeline
        .last_sent
        .or(outcome.timeline.sent)
        .unwrap_or_default();
    let content_type = reply
        .as_ref()
        .and_then(|head| head.headers.iter().find(|(name, _)| name == "content-type"));
    let framing = if content_type.is_some_and(|(_, value)| value.contains("event-stream")) {
        Framing::Sse
    } else {
        Framing::Lines
    };
    // Without decoded events there are no read times.
    let streamed = outcome.streamed && !response.reads.is_empty();
    let content = match streamed {
        true => Content::Events(split_events(&response, framing, sent_at, |text| {
            redactor.redact_truncated(text)
        })),
        // Events have their audio as text.
        false
            if outcome
                .audio
                .as_ref()
                .is_some_and(|audio| audio.first.is_some()) =>
        {
            Content::Document(format!("({} bytes of audio)", outcome.bytes_in))
        }
        false => {
            Content::Document(redactor.redact_truncated(&String::from_utf8_lossy(&response.bytes)))
        }
    };
    let url = routes.get(endpoint).map(|route| {
        case.target
            .redactor()
            .redact_truncated(&route.uri.to_string())
    });
    let content_type = request_headers
        .iter()
        .find(|(name, _)| name == "content-type");
    let form = content_type.and_then(|(_, value)| describe_form(value, &request));
    let body = form.unwrap_or_else(|| String::from_utf8_lossy(&request).into_owned());
    let body = redactor.redact_truncated(&body);
    let text = text.map(|text| redactor.redact_truncated(&text));
    let message = message.map(|message| Message {
        content: redactor.redact_truncated(&message.content),
        reasoning: redactor.redact_truncated(&message.reasoning),
        ..message
    });
    SingleRequest {
        method: if case.target.websocket { "GET" } else { "POST" },
        url,
        headers,
        body,
        reply,
        content,
        outcome,
        text,
        message,
        counted: None,
        hint: None,
    }
}

/// Separator of the events of a stream.
#[derive(Clone, Copy)]
enum Framing {
    /// Blank lines.
    Sse,
    /// Line ends.
    Lines,
}

/// The events of a stream, each with the time of the read that completed it.
fn split_events(
    response: &CapturedBody,
    framing: Framing,
    sent: Nanos,
    clean: impl Fn(&str) -> String,
) -> Vec<(Nanos, String)> {
    let text = &response.bytes;
    let at = |end: usize| {
        response
            .reads
            .iter()
            .find(|(_, bytes)| *bytes >= end)
            .map_or(Nanos::ZERO, |(at, _)| at.since(sent))
    };
    let mut events = Vec::new();
    let mut event_start = 0;
    let mut line_start = 0;
    for end in memchr::memchr_iter(b'\n', text)
        .map(|at| at + 1)
        .chain([text.len()])
    {
        let blank = text[line_start..end].trim_ascii().is_empty();
        line_start = end;
        if blank || matches!(framing, Framing::Lines) || end == text.len() {
            let event = String::from_utf8_lossy(&text[event_start..end]);
            if !event.trim().is_empty() {
                events.push((at(end), clean(event.trim_end_matches(['\r', '\n']))));
            }
            event_start = end;
        }
    }
    events
}

#[cfg(test)]
mod tests {
    use super::*;
    use llmscen_scenario::Input;
    use std::collections::BTreeMap;
    use std::path::Path;

    #[test]
    fn the_url_is_the_one_that_the_request_was_sent_to() {
        let env = BTreeMap::new();
        let text = "version: 1\nname: t\ntarget: { url: ['http://a:1/v1/chat/completions', \
                    'http://b:2/v1/chat/completions'], model: m }\ndataset: { kind: prompt, text: \
                    x }\nload: { concurrency: 1, requests: 1 }\n";
        let input = Input {
            path: Path::new("t.yaml"),
            text: Some(text.to_owned()),
            env: &env,
            set: &[],
        };
        let plan = llmscen_scenario::load(&input)
            .unwrap_or_else(|faults| panic!("{}", faults.render(false, 120)))
            .plan;
        let case = &plan.cases[0];
        let routes = Route::to_target(&case.target, &env).unwrap();
        let urls = [0, 1].map(|endpoint| {
            let finished = CompletedCall::bare(PreparedRequest::default().outcome(Phase::Measured));
            describe(case, &routes, endpoint, finished).url
        });
        assert_eq!(
            urls.map(Option::unwrap),
            [
                "http://a:1/v1/chat/completions",
                "http://b:2/v1/chat/completions"
            ]
        );
    }

    #[test]
    fn events_have_the_time_of_the_read_that_completed_them() {
        let mut copied = CapturedBody::default();
        let ms = Nanos::from_millis;
        for (at, piece) in [
            (12, "event: a\nda"),
            (15, "ta: 1\r\n\r\n: ping\n\ndata"),
            (20, ": sk-123"),
            (21, "\n"),
        ] {
            copied.add(piece.as_bytes());
            copied.mark(ms(at));
        }
        let clean = |text: &str| text.replace("sk-123", "[redacted]");
        let timed = split_events(&copied, Framing::Sse, ms(10), clean);
        let known = [
            (5, "event: a\ndata: 1"),
            (5, ": ping"),
            (11, "data: [redacted]"),
        ];
        assert_eq!(timed, known.map(|(at, text)| (ms(at), text.to_owned())));
        let lines: Vec<String> = split_events(&copied, Framing::Lines, ms(10), clean)
            .into_iter()
            .map(|(_, text)| text)
            .collect();
        assert_eq!(lines, ["event: a", "data: 1", ": ping", "data: [redacted]"]);
    }
}
