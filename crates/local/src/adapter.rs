//! The engine of a worker for a local model: a call becomes a job of the thread of the model, and its answer an
//! outcome.

use crate::generation_params::GenerationRequest;
use crate::host::{Answer, Host, Job, Session};
use bytes::Bytes;
use llmscen_client::body_capture::{CapturedBody, CapturedExchange};
use llmscen_client::counters::LiveCounters;
use llmscen_client::http::{CompletedCall, call_deadline};
use llmscen_core::outcome::{Failure, FailureKind, Finish, Outcome, Phase, ServerTimes, Usage};
use llmscen_core::request::{ClientCancel, PreparedRequest};
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

/// After the end of the run, wait this long for the tokens of a request; a step of a large model may take longer.
const END_TIMEOUT: Duration = Duration::from_secs(1);

/// A local model, as one worker calls it.
pub struct Adapter {
    /// The thread of the model.
    pub host: Arc<Host>,
    /// The round.
    pub session: Arc<Session>,
    /// The live counters of the worker.
    pub gauges: Arc<LiveCounters>,
    /// `timeouts.total`.
    pub total: Nanos,
    /// Seed of requests without a `seed`.
    pub seed: Seed,
    /// Keep the generated text.
    pub keep_text: bool,
    /// Keep the bodies.
    pub keep_bodies: bool,
}

/// How the wait for an answer ended.
enum WaitResult {
    /// With the answer; None: the thread of the model stopped.
    Answered(Option<Result<Answer, Failure>>),
    /// The client cancelled at this time, with the answer so far.
    Cancelled(Failure, Nanos, Option<Answer>),
}

impl Adapter {
    /// Sends a call to the thread of the model and waits for its end. Failures are part of the outcome.
    ///
    /// `cancelled` resolves when the call must be cancelled.
    pub async fn call(
        &self,
        mut call: PreparedRequest,
        intended: Nanos,
        phase: Phase,
        cancelled: impl Future<Output = ()>,
    ) -> CompletedCall {
        let seed = self
            .seed
            .child("sampling")
            .child(call.seq)
            .child(u64::from(call.turn))
            .0;
        // Parsed before the timestamp, so that parsing is not measured.
        let request = GenerationRequest::parse(&call.body, seed);
        let mut outcome = call.outcome(phase);
        outcome.timeline.intended = intended;
        self.gauges.start(call.body.len() as u64);
        let sent = self.session.clock.now();
        outcome.timeline.sent = Some(sent);
        outcome.attempts = 1;
        let waited = self.wait(&call, phase, request, cancelled).await;
        self.gauges.finish();
        let leave_after = leave_after_tokens(&call);
        let (answer, end) = match waited {
            WaitResult::Answered(Some(Ok(answer))) => {
                let end = answer.stamps.last().copied().unwrap_or(answer.prefilled);
                let left = leave_after.is_some_and(|limit| answer.tokens.len() as u64 >= limit);
                outcome.end = if left {
                    Err(left_failure(answer.tokens.len()))
                } else {
                    Ok(Finish {
                        reason: answer.reason.into(),
                    })
                };
                (Some(answer), end)
            }
            WaitResult::Answered(other) => {
                let stopped = || {
                    Failure::new(
                        FailureKind::StreamError,
                        "the thread of the model stopped unexpectedly",
                    )
                };
                outcome.end = Err(other.and_then(Result::err).unwrap_or_else(stopped));
                (None, self.session.clock.now())
            }
            WaitResult::Cancelled(failure, at, answer) => {
                let tokens = answer.as_ref().map_or(0, |answer| {
                    answer.stamps.iter().filter(|stamp| **stamp <= at).count()
                });
                outcome.end = Err(failure.at(if tokens == 0 {
                    "before the first token".into()
                } else {
                    after_tokens(tokens)
                }));
                (answer, at)
            }
        };
        outcome.timeline.end = end;
        let body = Bytes::from(std::mem::take(&mut call.body));
        CompletedCall {
            truths: call.truths,
            ..self.finish(outcome, answer, body)
        }
    }

    async fn wait(
        &self,
        call: &PreparedRequest,
        phase: Phase,
        request: Result<GenerationRequest, String>,
        cancelled: impl Future<Output = ()>,
    ) -> WaitResult {
        let (answer, mut reply) = oneshot::channel();
        let cancelled_flag = Arc::new(AtomicBool::new(false));
        let job = Job {
            session: self.session.clone(),
            seq: call.seq,
            turn: call.turn,
            group: call.group.clone(),
            measured: phase == Phase::Measured,
            request,
            leave_after: leave_after_tokens(call),
            cancelled: cancelled_flag.clone(),
            answer,
        };
        if !self.host.send(job) {
            return WaitResult::Answered(None);
        }
        let mut cancelled = pin!(cancelled);
        let cut = tokio::select! {
            biased;
            received = &mut reply => return WaitResult::Answered(received.ok()),
            () = cancelled.as_mut() => None,
            cut = call_deadline(&self.gauges.stalls, self.total, call.cancel, pending()) => Some(cut),
        };
        let at = self.session.clock.now();
        cancelled_flag.store(true, Ordering::Relaxed);
        let over = async {
            if cut.is_some() {
                cancelled.await;
            }
            tokio::time::sleep(END_TIMEOUT).await;
        };
        // The batch continues, and its end includes the tokens of this request.
        let partial = tokio::select! {
            biased;
            received = &mut reply => received.ok().and_then(Result::ok),
            () = over => None,
        };
        let over = || Failure::new(FailureKind::Cancelled, "cancelled: the run ended");
        WaitResult::Cancelled(cut.unwrap_or_else(over), at, partial)
    }

    fn finish(&self, mut outcome: Outcome, answer: Option<Answer>, body: Bytes) -> CompletedCall {
        let headers = Vec::new();
        let Some(answer) = answer else {
            let copy = self.keep_bodies.then(|| {
                Box::new(CapturedExchange {
                    request: body,
                    call_headers: headers,
                    heads: None,
                    response: CapturedBody::default(),
                })
            });
            return CompletedCall {
                captured: copy,
                ..CompletedCall::bare(outcome)
            };
        };
        let end = outcome.timeline.end;
        let token_count = answer
            .stamps
            .iter()
            .take_while(|stamp| **stamp <= end)
            .count();
        outcome.usage = Usage {
            prompt: Some(answer.prompt.len() as u64),
            output: Some(token_count as u64),
            ..Usage::default()
        };
        outcome.server = server_times(&outcome, &answer);
        outcome.timeline.first_chunk = answer.stamps.first().copied().filter(|first| *first <= end);
        outcome.bytes_in = answer.text.len() as u64;
        outcome.reads = token_count as u32;
        self.gauges.receive(outcome.bytes_in, token_count as u64);
        let copy = self.keep_bodies.then(|| {
            Box::new(CapturedExchange {
                request: body,
                call_headers: headers,
                heads: None,
                response: response_body(&answer),
            })
        });
        outcome.timeline.tokens = answer.stamps;
        outcome.timeline.tokens.truncate(token_count);
        let message = self.keep_text.then(|| Message {
            content: answer.text.clone(),
            ..Message::default()
        });
        CompletedCall {
            text: self.keep_text.then_some(answer.text),
            message,
            captured: copy,
            ..CompletedCall::bare(outcome)
        }
    }
}

/// The number of tokens after which the user of a call leaves.
fn leave_after_tokens(call: &PreparedRequest) -> Option<u64> {
    call.cancel.and_then(|leave| {
        if let ClientCancel::Tokens(limit) = leave {
            Some(limit)
        } else {
            None
        }
    })
}

fn left_failure(tokens: usize) -> Failure {
    Failure::new(
        FailureKind::Abandoned,
        format!("cancelled by `request.cancel.tokens` after {tokens} token events"),
    )
    .at(after_tokens(tokens))
}

fn after_tokens(tokens: usize) -> String {
    format!("after {tokens} token events")
}

/// The times in the model until the end of the request.
fn server_times(outcome: &Outcome, answer: &Answer) -> ServerTimes {
    let sent = outcome.timeline.sent.unwrap_or_default();
    let end = outcome.timeline.end;
    let span = |from: Nanos, to: Nanos| (to <= end && from <= to).then(|| to.since(from));
    ServerTimes {
        queue: span(sent, answer.began),
        load: None,
        prefill: span(answer.began, answer.prefilled),
        decode: span(answer.prefilled, end),
        total: span(sent, end),
    }
}

/// The response body that is recorded.
fn response_body(answer: &Answer) -> CapturedBody {
    let usage =
        json!({ "prompt_tokens": answer.prompt.len(), "completion_tokens": answer.tokens.len() });
    let body = json!({
        "text": answer.text,
        "tokens": answer.tokens,
        "finish_reason": answer.reason,
        "prompt_token_ids": answer.prompt,
        "usage": usage,
    });
    let mut copied = CapturedBody::default();
    copied.add(body.to_string().as_bytes());
    copied
}
