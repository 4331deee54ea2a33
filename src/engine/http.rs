//! One target over HTTP: the call that becomes an outcome, whatever happens.

use crate::engine::address::Address;
use crate::engine::clock::Clock;
use crate::engine::dial::Dialer;
use crate::engine::error::EngineError;
use crate::engine::exchange::{Exchange, Line, Trace, unsent};
use crate::engine::gauges::Gauges;
use crate::engine::headers::Headers;
use crate::engine::pool::Pool;
use crate::engine::redact::Redactor;
use crate::engine::route::Route;
use crate::model::call::Call;
use crate::model::outcome::{Failure, FailureKind, Outcome, Phase};
use crate::model::target::Target;
use crate::model::units::Nanos;
use crate::wire::{Message, Protocol};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

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
}

/// One target, spoken to from one lane.
pub struct Http {
    line: Line,
    redactor: Redactor,
}

impl Http {
    /// An engine for `target` at the end of `route`, with no connection yet.
    pub fn new(target: &Target, route: &Route, setting: Setting) -> Result<Http, EngineError> {
        let address = Address::new(route, target.version);
        let headers = Headers::new(target, route, &address, setting.protocol.as_ref())?;
        let dialer = Dialer::new(route.clone(), target.version, setting.clock);
        let line = Line {
            protocol: setting.protocol,
            address,
            headers,
            pool: Rc::new(Pool::new(dialer, target.pool, target.timeouts.connect)),
            timeouts: target.timeouts,
            clock: setting.clock,
            gauges: setting.gauges,
            keep_text: setting.keep_text,
        };
        Ok(Http { line, redactor: Redactor::on(target, route) })
    }

    /// Opens one connection and closes it: whether the target is there and speaks the version of HTTP, and what was tried
    /// where it is not.
    pub async fn reach(&self) -> Result<(), Failure> {
        self.line.pool.reach().await
    }

    /// Sends a call and waits for its end. Never an error: what goes wrong is in the outcome.
    ///
    /// `cancelled` resolves when the call must be given up.
    pub async fn call(&self, call: Call, intended: Nanos, phase: Phase, cancelled: impl Future<Output = ()>) -> Finished {
        let headers = match self.line.headers.of(call.streamed, &call.headers) {
            Ok(headers) => headers,
            Err(error) => return self.never_sent(&call, intended, phase, unsent(error)),
        };
        let mut trace = Trace::default();
        trace.timeline.intended = intended;
        self.line.gauges.start(call.body.len() as u64);
        let mut outcome = call.outcome(phase);
        trace.timeline.sent = Some(self.line.clock.now());
        let mut exchange = Exchange { line: &self.line, trace: &mut trace };
        let stop = pin!(given_up(self.line.timeouts.total, cancelled));
        let end = exchange.run(headers, call.body.into(), call.streamed, stop).await;
        self.line.gauges.finish();
        outcome.end = end.map_err(|failure| self.placed(failure, &trace, &call.headers));
        let known_end = trace.end.filter(|_| outcome.end.is_ok());
        trace.timeline.end = known_end.unwrap_or_else(|| self.line.clock.now());
        self.fill(outcome, trace)
    }

    /// A call that cannot be written down: the fault is its own data's, and nothing of it left.
    fn never_sent(&self, call: &Call, intended: Nanos, phase: Phase, failure: Failure) -> Finished {
        let mut outcome = Outcome { end: Err(failure), bytes_out: 0, ..call.outcome(phase) };
        outcome.timeline.intended = intended;
        outcome.timeline.end = self.line.clock.now();
        Finished { outcome, text: None, message: None }
    }

    fn fill(&self, mut outcome: Outcome, trace: Trace) -> Finished {
        outcome.status = trace.status;
        outcome.reads = trace.reads;
        outcome.bytes_in = trace.bytes_in;
        outcome.reconnects = trace.reconnects;
        outcome.usage = trace.usage;
        outcome.server = trace.server;
        // A reply may name fewer than were asked about: the best three of a hundred documents.
        outcome.items = trace.items.map(|seen| outcome.items.unwrap_or(seen));
        outcome.response_id = trace.response_id;
        outcome.streamed = trace.streamed.unwrap_or(outcome.streamed);
        outcome.timeline = trace.timeline;
        Finished { outcome, text: trace.text, message: trace.message }
    }

    /// A failure with its place in the stream, and without the secrets of the target and of the call's `own` headers.
    fn placed(&self, failure: Failure, trace: &Trace, own: &[(String, String)]) -> Failure {
        let redactor = self.redactor.and(own);
        let at = match (failure.at.is_empty(), trace.timeline.tokens.len(), trace.timeline.headers) {
            (false, ..) => failure.at,
            (_, 0, None) => "before the headers".into(),
            (_, 0, Some(_)) => "before the first token".into(),
            (_, n, _) => format!("after {n} token events"),
        };
        Failure::new(failure.kind, redactor.clean(&failure.message)).at(redactor.clean(&at))
    }
}

/// Resolves, with the reason, when a call must end though its response does not: `limit` from now, or when it is cancelled.
fn given_up(limit: Nanos, cancelled: impl Future<Output = ()>) -> impl Future<Output = Failure> {
    let deadline = tokio::time::sleep(limit.into());
    async move {
        tokio::select! {
            biased;
            () = cancelled => Failure::new(FailureKind::Cancelled, "given up: the run was over"),
            () = deadline => Failure::new(FailureKind::TimeoutTotal, format!("not done within {:?}", Duration::from(limit))),
        }
    }
}

/// The outcome of an arrival that found no room: it was never sent.
pub fn dropped(call: &Call, phase: Phase, at: Nanos, why: &str) -> Outcome {
    let mut outcome = Outcome { end: Err(Failure::new(FailureKind::Dropped, why)), bytes_out: 0, ..call.outcome(phase) };
    outcome.timeline.intended = at;
    outcome.timeline.end = at;
    outcome
}
