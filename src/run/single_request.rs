//! One request of a case, sent by the engine that a round uses, and kept as a whole.

use crate::run::collector::tally::IGNORED;
use crate::run::error::RunError;
use crate::run::execution::Context;
use crate::run::execution::local_model::{LocalModels, local_session, open_engine};
use crate::run::execution::managed_server::ManagedServers;
use crate::run::execution::stop::{Level, Stop};
use crate::run::outputs::hints;
use crate::run::prepare::{DatasetCache, PreparedCase};
use crate::run::requests::row_usage::RowUsage;
use crate::run::requests::traffic_class::strided_prompts;
use crate::run::requests::{RequestGenerator, first_call};
use crate::run::round::{route_of_round, start_simulator};
use crate::run::worker::engine::Engine;
use crate::store::RunDir;
use llmscen_client::body_capture::{Copied, Copies, Heads};
use llmscen_client::clock::Clock;
use llmscen_client::exchange::shown_location;
use llmscen_client::http::{Finished, Setting};
use llmscen_client::redact::{redactor_on, shown_headers};
use llmscen_client::retry::Manners;
use llmscen_client::route::Route;
use llmscen_core::call::Call;
use llmscen_core::outcome::{FailureKind, Outcome, Phase};
use llmscen_core::plan::{Case, Plan};
use llmscen_core::redact::Redactor;
use llmscen_core::report::FailureExample;
use llmscen_core::target::Place;
use llmscen_core::units::Nanos;
use llmscen_protocols::Message;
use std::sync::Arc;
use std::time::Instant;
use tokio::task::LocalSet;

/// A request that was sent and what came back, secrets removed.
#[derive(Debug)]
pub struct SingleRequest {
    /// Where it was sent; None for a model in this process.
    pub url: Option<String>,
    /// The headers that were sent.
    pub headers: Vec<(String, String)>,
    /// The body that was sent.
    pub body: String,
    /// The head of the reply, if one came.
    pub reply: Option<ReplyHead>,
    /// The body of the reply.
    pub content: Content,
    /// Its stamps, counts and end.
    pub outcome: Outcome,
    /// The generated text of all choices.
    pub text: Option<String>,
    /// The reply of the first choice.
    pub message: Option<Message>,
    /// Output tokens that the scenario's tokenizer counts in the text.
    pub counted: Option<u64>,
    /// What to do about its failure, or what to know of its reply.
    pub hint: Option<String>,
}

/// The head of a reply.
#[derive(Debug)]
pub struct ReplyHead {
    /// `HTTP/1.1 200 OK`.
    pub status: String,
    /// Its headers.
    pub headers: Vec<(String, String)>,
}

/// The body of a reply.
#[derive(Debug, PartialEq)]
pub enum Content {
    /// A document.
    Document(String),
    /// The events of a stream as they came, each with its time after the send.
    Events(Vec<(Nanos, String)>),
}

/// Sends the first request of a case: the first turn where that is a session. It is neither retried nor cancelled early.
/// Files of a managed server go to `folder`.
///
/// # Errors
/// It cannot be made, or its server or model cannot be had. A request that failed is none.
pub fn send_one(plan: &Plan, index: usize, folder: &RunDir, context: &Context) -> Result<SingleRequest, RunError> {
    let case = plan.cases.get(index).ok_or(RunError::NothingToSend)?;
    let prepared = DatasetCache::default().prepared((index, case), plan, context)?;
    let seed = plan.seed.child(case.id.as_str()).child(0u64);
    let prompts = strided_prompts(&prepared.classes, &RowUsage::default().strides(case, &prepared));
    let call = first_call(RequestGenerator::new(case, &prepared, &prompts, seed), &context.stop)?;
    let mut servers = ManagedServers::default();
    let sent = servers.of((case, 0), &prepared, folder, context).and_then(|_| {
        let simulator = start_simulator(case, seed)?;
        let route = route_of_round(prepared.route.as_ref(), simulator.as_ref(), case)?;
        let manners = Manners { retry: Vec::new(), seed, stem: format!("{}-0", prepared.stem) };
        send(plan, case, (&prepared, route.as_ref()), Call { leave: None, ..call }, manners, context)
    });
    servers.stop(&context.stop);
    sent
}

fn send(
    plan: &Plan,
    case: &Case,
    (prepared, route): (&PreparedCase, Option<&Route>),
    call: Call,
    manners: Manners,
    context: &Context,
) -> Result<SingleRequest, RunError> {
    let mut models = LocalModels::default();
    let host = models.ready(&case.target, plan.seed, context)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(RunError::Thread)?;
    let entry = call.entry;
    let finished = LocalSet::new().block_on(&runtime, async {
        let clock = Clock::starting(Instant::now());
        // A batch that waits for more requests than this one would wait forever.
        let alone = Stop::default();
        alone.press();
        let over = [alone, context.stop.clone(), Stop::default()];
        let own = host.map(|host| (host, Arc::new(local_session(case, clock, None, over))));
        let (protocol, gauges) = (prepared.protocol.clone(), Arc::default());
        let setting = Setting { clock, gauges, protocol, keep_text: true, keep_bodies: true, manners };
        let engine = open_engine(&case.target, (route, own), setting)?;
        let cancelled = context.stop.reached(Level::Drain);
        let finished = engine.call(call, Nanos::ZERO, Phase::Measured, cancelled).await;
        let served = match &engine {
            Engine::Http(http) if finished.outcome.status == Some(404) => http.served_models().await,
            _ => None,
        };
        Ok::<_, RunError>((finished, served))
    });
    // A name that is still being resolved must not be waited for.
    runtime.shutdown_background();
    let (finished, served) = finished?;
    let tokenizer = prepared.classes.get(entry).and_then(|class| class.tokenizer.as_ref());
    let counted = tokenizer.zip(finished.text.as_ref()).and_then(|(tokenizer, text)| tokenizer.count(text));
    let hint = hint(case, &finished.outcome, served);
    Ok(SingleRequest { counted, hint, ..shown(case, route, finished) })
}

/// What the report of a run would say of this outcome; `served`: the models that the target lists.
fn hint(case: &Case, outcome: &Outcome, served: Option<Vec<String>>) -> Option<String> {
    let failure = match &outcome.end {
        Ok(_) => {
            let ignored = case.request.stream && !outcome.streamed && case.target.api.generates();
            return ignored.then(|| format!("note: {IGNORED}"));
        }
        Err(failure) => failure,
    };
    let Place::Url(url) = &case.target.place else { return None };
    if failure.kind == FailureKind::Connect && case.target.server.is_none() {
        return Some("help: start the server, or fix `target.url`".to_owned());
    }
    let served = served.map(|names| (Redactor::of(&case.target).clean(url), names)).into_iter().collect();
    let (message, at) = (failure.message.clone(), failure.at.clone());
    hints::hint(&FailureExample { kind: failure.kind, count: 1, status: outcome.status, message, at }, case, &served)
}

/// What may be shown of a finished call.
fn shown(case: &Case, route: Option<&Route>, finished: Finished) -> SingleRequest {
    let Finished { outcome, text, message, copy } = finished;
    let redactor = route.map_or_else(|| Redactor::of(&case.target), |route| redactor_on(&case.target, route));
    let Copies { request, own, heads, response } = copy.map_or_else(Copies::default, |copy| *copy);
    let redactor = redactor.and(&own);
    let named = case.target.headers.iter().map(|(name, _)| name.as_str());
    let named = named.chain(own.iter().map(|(name, _)| name.as_str()));
    let (headers, reply) = match heads {
        Some(Heads { sent, reply }) => {
            let reply = reply.map(|(version, status, headers)| {
                let mut headers = shown_headers(&redactor, &headers, std::iter::empty());
                let location = headers.iter_mut().find(|(name, _)| name == "location");
                location.into_iter().for_each(|(_, value)| *value = shown_location(value));
                ReplyHead { status: format!("{version:?} {status}"), headers }
            });
            (shown_headers(&redactor, &sent, named), reply)
        }
        None => (Vec::new(), None),
    };
    let sent = outcome.timeline.last_sent.or(outcome.timeline.sent).unwrap_or_default();
    let kind = reply.as_ref().and_then(|head| head.headers.iter().find(|(name, _)| name == "content-type"));
    let framing = if kind.is_some_and(|(_, kind)| kind.contains("event-stream")) { Framing::Sse } else { Framing::Lines };
    // What is not decoded as a stream has no reads of its own.
    let streamed = outcome.streamed && !response.reads.is_empty();
    let content = match streamed {
        true => Content::Events(events(&response, framing, sent, |text| redactor.clean(text))),
        false => Content::Document(redactor.clean(&String::from_utf8_lossy(&response.bytes))),
    };
    let url = route.map(|route| Redactor::of(&case.target).clean(&route.uri.to_string()));
    let body = redactor.clean(&String::from_utf8_lossy(&request));
    let text = text.map(|text| redactor.clean(&text));
    let message = message.map(|message| Message {
        content: redactor.clean(&message.content),
        reasoning: redactor.clean(&message.reasoning),
        ..message
    });
    SingleRequest { url, headers, body, reply, content, outcome, text, message, counted: None, hint: None }
}

/// How the events of a stream are separated.
#[derive(Clone, Copy)]
enum Framing {
    /// By blank lines.
    Sse,
    /// Each is a line.
    Lines,
}

/// The events of a stream as they came, each with the time of the read that completed it.
fn events(response: &Copied, framing: Framing, sent: Nanos, clean: impl Fn(&str) -> String) -> Vec<(Nanos, String)> {
    let text = &response.bytes;
    let at = |end: usize| response.reads.iter().find(|(_, bytes)| *bytes >= end).map_or(Nanos::ZERO, |(at, _)| at.since(sent));
    let (mut events, mut start, mut line) = (Vec::new(), 0, 0);
    for end in memchr::memchr_iter(b'\n', text).map(|at| at + 1).chain([text.len()]) {
        let blank = text[line..end].trim_ascii().is_empty();
        line = end;
        if blank || matches!(framing, Framing::Lines) || end == text.len() {
            let event = String::from_utf8_lossy(&text[start..end]);
            if !event.trim().is_empty() {
                events.push((at(end), clean(event.trim_end_matches(['\r', '\n']))));
            }
            start = end;
        }
    }
    events
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_have_the_time_of_the_read_that_completed_them() {
        let mut copied = Copied::default();
        let ms = Nanos::from_millis;
        for (at, piece) in [(12, "event: a\nda"), (15, "ta: 1\r\n\r\n: ping\n\ndata"), (20, ": sk-123"), (21, "\n")] {
            copied.add(piece.as_bytes());
            copied.mark(ms(at));
        }
        let clean = |text: &str| text.replace("sk-123", "[redacted]");
        let seen = events(&copied, Framing::Sse, ms(10), clean);
        let known = [(5, "event: a\ndata: 1"), (5, ": ping"), (11, "data: [redacted]")];
        assert_eq!(seen, known.map(|(at, text)| (ms(at), text.to_owned())));
        let lines: Vec<String> = events(&copied, Framing::Lines, ms(10), clean).into_iter().map(|(_, text)| text).collect();
        assert_eq!(lines, ["event: a", "data: 1", ": ping", "data: [redacted]"]);
    }
}
