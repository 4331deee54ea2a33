//! Where a lane sits with a model in this process: a call becomes a job of the model's thread, and its answer an outcome.

use crate::generation_params::GenerationRequest;
use crate::host::{Answer, Host, Job};
use crate::session::Session;
use bytes::Bytes;
use llmscen_client::body_capture::{Copied, Copies};
use llmscen_client::counters::Gauges;
use llmscen_client::http::{Finished, given_up};
use llmscen_core::call::Call;
use llmscen_core::outcome::{Failure, FailureKind, Finish, Outcome, Phase, ServerTimes, Usage};
use llmscen_core::request::Leave;
use llmscen_core::seed::Seed;
use llmscen_core::units::Nanos;
use llmscen_protocols::Message;
use serde_json::json;
use std::future::pending;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::oneshot;

/// When the run is over, so long is waited for the tokens that a request had: a step of a large model may take longer.
const PATIENCE: Duration = Duration::from_secs(1);

/// A model in this process, as one lane calls it.
pub struct Adapter {
    /// The model.
    pub host: Arc<Host>,
    /// The round.
    pub session: Arc<Session>,
    /// Where the lane's running totals go.
    pub gauges: Arc<Gauges>,
    /// `timeouts.total`.
    pub total: Nanos,
    /// Of the draws of requests that name no seed.
    pub seed: Seed,
    /// Keep the generated text.
    pub keep_text: bool,
    /// Keep the bodies.
    pub keep_bodies: bool,
}

/// How the wait for an answer ended.
enum Waited {
    /// With the answer; None: the model's thread is gone.
    Answered(Option<Result<Answer, Failure>>),
    /// This side gave up, at this instant; what there was by then comes with it.
    GivenUp(Failure, Nanos, Option<Answer>),
}

impl Adapter {
    /// Hands a call over and waits for its end. Never an error: what goes wrong is in the outcome.
    ///
    /// `cancelled` resolves when the call must be given up.
    pub async fn call(&self, mut call: Call, intended: Nanos, phase: Phase, cancelled: impl Future<Output = ()>) -> Finished {
        let seed = self.seed.child("sampling").child(call.seq).child(u64::from(call.turn)).0;
        // Read before the stamp: what a request says is known before it leaves.
        let wanted = GenerationRequest::parse(&call.body, seed);
        let mut outcome = call.outcome(phase);
        outcome.timeline.intended = intended;
        self.gauges.start(call.body.len() as u64);
        let sent = self.session.clock.now();
        outcome.timeline.sent = Some(sent);
        outcome.attempts = 1;
        let waited = self.wait(&call, phase, wanted, cancelled).await;
        self.gauges.finish();
        let enough = enough(&call);
        let (answer, end) = match waited {
            Waited::Answered(Some(Ok(answer))) => {
                let end = answer.stamps.last().copied().unwrap_or(answer.prefilled);
                let left = enough.is_some_and(|enough| answer.tokens.len() as u64 >= enough);
                outcome.end =
                    if left { Err(left_after(answer.tokens.len())) } else { Ok(Finish { reason: answer.reason.into() }) };
                (Some(answer), end)
            }
            Waited::Answered(other) => {
                let gone = || Failure::new(FailureKind::StreamError, "the model's thread ended unexpectedly");
                outcome.end = Err(other.and_then(Result::err).unwrap_or_else(gone));
                (None, self.session.clock.now())
            }
            Waited::GivenUp(failure, at, answer) => {
                let tokens = answer.as_ref().map_or(0, |answer| answer.stamps.iter().filter(|stamp| **stamp <= at).count());
                outcome.end = Err(failure.at(if tokens == 0 { "before the first token".into() } else { after(tokens) }));
                (answer, at)
            }
        };
        outcome.timeline.end = end;
        let body = Bytes::from(std::mem::take(&mut call.body));
        self.finish(outcome, answer, body)
    }

    async fn wait(
        &self,
        call: &Call,
        phase: Phase,
        wanted: Result<GenerationRequest, String>,
        cancelled: impl Future<Output = ()>,
    ) -> Waited {
        let (answer, mut reply) = oneshot::channel();
        let left = Arc::new(AtomicBool::new(false));
        let job = Job {
            session: self.session.clone(),
            seq: call.seq,
            turn: call.turn,
            group: call.group.clone(),
            measured: phase == Phase::Measured,
            wanted,
            enough: enough(call),
            left: left.clone(),
            answer,
        };
        if !self.host.give(job) {
            return Waited::Answered(None);
        }
        let mut cancelled = pin!(cancelled);
        let cut = tokio::select! {
            biased;
            told = &mut reply => return Waited::Answered(told.ok()),
            () = cancelled.as_mut() => None,
            cut = given_up(&self.gauges.stalls, self.total, call.leave, pending()) => Some(cut),
        };
        let at = self.session.clock.now();
        left.store(true, Ordering::Relaxed);
        let over = async {
            if cut.is_some() {
                cancelled.await;
            }
            tokio::time::sleep(PATIENCE).await;
        };
        // Its batch goes on without it, and tells of it in the end.
        let told = tokio::select! {
            biased;
            told = &mut reply => told.ok().and_then(Result::ok),
            () = over => None,
        };
        let over = || Failure::new(FailureKind::Cancelled, "cancelled: the run ended");
        Waited::GivenUp(cut.unwrap_or_else(over), at, told)
    }

    fn finish(&self, mut outcome: Outcome, answer: Option<Answer>, body: Bytes) -> Finished {
        let own = Vec::new();
        let Some(answer) = answer else {
            let copy =
                self.keep_bodies.then(|| Box::new(Copies { request: body, own, heads: None, response: Copied::default() }));
            return Finished { copy, ..Finished::bare(outcome) };
        };
        let end = outcome.timeline.end;
        let shown = answer.stamps.iter().take_while(|stamp| **stamp <= end).count();
        outcome.usage = Usage { prompt: Some(answer.prompt.len() as u64), output: Some(shown as u64), ..Usage::default() };
        outcome.server = times(&outcome, &answer);
        outcome.timeline.first_chunk = answer.stamps.first().copied().filter(|first| *first <= end);
        outcome.bytes_in = answer.text.len() as u64;
        outcome.reads = shown as u32;
        self.gauges.receive(outcome.bytes_in, shown as u64);
        let copy = self.keep_bodies.then(|| Box::new(Copies { request: body, own, heads: None, response: response(&answer) }));
        outcome.timeline.tokens = answer.stamps;
        outcome.timeline.tokens.truncate(shown);
        let message = self.keep_text.then(|| Message { content: answer.text.clone(), ..Message::default() });
        Finished { text: self.keep_text.then_some(answer.text), message, copy, ..Finished::bare(outcome) }
    }
}

/// After so many tokens the user of a call leaves.
fn enough(call: &Call) -> Option<u64> {
    call.leave.and_then(|leave| if let Leave::Tokens(enough) = leave { Some(enough) } else { None })
}

fn left_after(tokens: usize) -> Failure {
    Failure::new(FailureKind::Abandoned, format!("cancelled by `request.cancel.tokens` after {tokens} token events")).at(after(tokens))
}

fn after(tokens: usize) -> String {
    format!("after {tokens} token events")
}

/// The model's own times, as far as the request was there for them.
fn times(outcome: &Outcome, answer: &Answer) -> ServerTimes {
    let (sent, end) = (outcome.timeline.sent.unwrap_or_default(), outcome.timeline.end);
    let span = |from: Nanos, to: Nanos| (to <= end && from <= to).then(|| to.since(from));
    ServerTimes {
        queue: span(sent, answer.began),
        load: None,
        prefill: span(answer.began, answer.prefilled),
        decode: span(answer.prefilled, end),
        total: span(sent, end),
    }
}

/// What is kept as the body that came.
fn response(answer: &Answer) -> Copied {
    let usage = json!({ "prompt_tokens": answer.prompt.len(), "completion_tokens": answer.tokens.len() });
    let body = json!({
        "text": answer.text,
        "tokens": answer.tokens,
        "finish_reason": answer.reason,
        "prompt_token_ids": answer.prompt,
        "usage": usage,
    });
    let mut copied = Copied::default();
    copied.add(body.to_string().as_bytes());
    copied
}
