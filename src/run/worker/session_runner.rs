//! Runs the sessions of a worker: turns in order, each with the replies before it.
//!
//! ```text
//! turn 0 ── sent … end ── reply ─► turn renderer ─► turn 1 rendered    a slot of the closed loop or of max_in_flight is in
//!                          └────── think time ──────┴─ sent … end      use from the first turn to the last
//! ```
//! Turns that are not sent, because an earlier one failed or sending ended, are recorded as `dropped`: each session has one outcome
//! per turn.

use crate::run::execution::stop::Level;
use crate::run::requests::conversation::Conversation;
use crate::run::requests::traffic_class::RequestPosition;
use crate::run::requests::turn_renderer::{RenderedTurn, TurnRequest};
use crate::run::worker::timer::{Deadlines, Timer};
use crate::run::worker::{ScheduledRequest, Worker};
use async_channel::Sender;
use llmscen_client::http::{CompletedCall, dropped_outcome};
use llmscen_core::outcome::{FailureKind, Phase};
use llmscen_core::request::PreparedRequest;
use llmscen_core::units::Nanos;
use llmscen_protocols::Message;
use std::cell::Cell;
use std::io;
use tokio::sync::{oneshot, watch};

/// Runs sessions of several turns on one worker.
pub struct SessionRunner {
    turn_requests: Sender<TurnRequest>,
    /// Ends of think times.
    think_times: Deadlines,
    /// End of sending.
    end_timer: Timer,
    /// True once no further turn may be sent.
    over: watch::Sender<bool>,
    last_sent: Cell<Nanos>,
}

impl SessionRunner {
    /// Later turns are rendered by the receiver of `turn_requests`. Must be called on the thread of the worker.
    ///
    /// # Errors
    /// The system provides no timer.
    pub fn new(turn_requests: Sender<TurnRequest>) -> io::Result<SessionRunner> {
        Ok(SessionRunner {
            turn_requests,
            think_times: Deadlines::new(Timer::new()?),
            end_timer: Timer::new()?,
            over: watch::Sender::new(false),
            last_sent: Cell::default(),
        })
    }

    /// Send time of the last turn so far.
    pub fn last_sent(&self) -> Nanos {
        self.last_sent.get()
    }

    /// Requests the next turn from the thread of the turn renderer.
    fn request_turn(
        &self,
        position: RequestPosition,
        conversation: Option<Box<Conversation>>,
        reply: Message,
    ) -> oneshot::Receiver<Result<RenderedTurn, String>> {
        let (rendered, receiver) = oneshot::channel();
        // The queue is unbounded. If the renderer has ended, the receiver reports it.
        let _ = self.turn_requests.try_send(TurnRequest {
            position,
            conversation,
            reply,
            rendered,
        });
        receiver
    }

    async fn is_over(&self) {
        // The sender lives in self, so the wait cannot fail.
        let _ = self.over.subscribe().wait_for(|over| *over).await;
    }

    /// Wakes sessions at the ends of their think times, until sending ends; then ends every session.
    pub async fn watch_for_end(&self, worker: &Worker) {
        tokio::select! {
            () = worker.shared.stop.reached(Level::Drain) => {}
            () = worker.shared.halt.reached(Level::Drain) => {}
            () = worker.sending_end(&self.end_timer) => {}
            () = self.think_times.wake_due() => {}
        }
        self.over.send_replace(true);
    }

    /// Runs a session. Returns the outcomes that are not delivered yet: of its last turn, and of the turns that were not sent.
    pub async fn run_session(
        &self,
        worker: &Worker,
        first: ScheduledRequest,
    ) -> Vec<CompletedCall> {
        let ScheduledRequest {
            mut call,
            mut intended,
            phase,
            ..
        } = first;
        let unsent = UnsentTurns::new(&call, phase);
        let turns = call.turns;
        let mut conversation = None;
        let mut token: Option<(String, String)> = None;
        loop {
            let next = RequestPosition {
                seq: call.seq,
                turn: call.turn + 1,
                turns,
                entry: call.entry,
                number: call.number,
            };
            let mut finished = worker
                .engine
                .call(call, intended, phase, worker.cancelled())
                .await
                .complete();
            let timeline = &finished.outcome.timeline;
            self.last_sent
                .set(self.last_sent.get().max(timeline.sent.unwrap_or_default()));
            let end = timeline.end;
            if next.turn >= turns {
                return vec![finished];
            }
            if let Err(failure) = &finished.outcome.end {
                let rest = unsent.drop_after_failure(next.turn, end, failure.kind);
                return std::iter::once(finished).chain(rest).collect();
            }
            token = finished.session_token.take().or(token);
            // Requested before the delivery, so that both happen at the same time.
            let rendered = self.request_turn(next, conversation.take(), reply(&mut finished));
            worker.deliver(finished).await;
            match self.next_turn(worker, rendered, end).await {
                Ok(turn) => {
                    call = turn.call;
                    call.headers.extend(token.clone());
                    intended = end + turn.wait;
                    conversation = Some(turn.conversation);
                }
                Err(why) => return unsent.drop_from(next.turn, end, &why),
            }
        }
    }

    /// The next turn once it is due; an error states why it is not sent.
    async fn next_turn(
        &self,
        worker: &Worker,
        rendered: oneshot::Receiver<Result<RenderedTurn, String>>,
        end: Nanos,
    ) -> Result<RenderedTurn, String> {
        let due = async {
            let turn = rendered
                .await
                .unwrap_or_else(|_| Err("the turn renderer has ended".into()));
            let turn =
                turn.map_err(|error| format!("skipped: the turn cannot be rendered: {error}"))?;
            self.think_times
                .until(worker.shared.clock.instant(end + turn.wait))
                .await;
            Ok(turn)
        };
        tokio::select! {
            biased;
            () = self.is_over() => Err("skipped: sending ended before this turn".into()),
            due = due => due,
        }
    }
}

/// What the outcomes of unsent turns share with the first turn of their session.
pub struct UnsentTurns {
    call: PreparedRequest,
    phase: Phase,
}

impl UnsentTurns {
    /// `first`: the first turn of the session.
    pub fn new(first: &PreparedRequest, phase: Phase) -> UnsentTurns {
        let call = PreparedRequest {
            seq: first.seq,
            turns: first.turns,
            streamed: first.streamed,
            model: first.model.clone(),
            group: first.group.clone(),
            ..PreparedRequest::default()
        };
        UnsentTurns { call, phase }
    }

    /// The outcomes of the turns from `turn` on, which are dropped at `at`.
    pub fn drop_from(&self, turn: u32, at: Nanos, why: &str) -> Vec<CompletedCall> {
        let drop_turn = |turn| {
            let call = PreparedRequest {
                turn,
                ..self.call.clone()
            };
            CompletedCall::bare(dropped_outcome(&call, self.phase, at, why))
        };
        (turn..self.call.turns).map(drop_turn).collect()
    }

    /// The same after the turn before `turn` failed. If its user left, so have the users of these turns.
    fn drop_after_failure(&self, turn: u32, at: Nanos, kind: FailureKind) -> Vec<CompletedCall> {
        if kind != FailureKind::Abandoned {
            return self.drop_from(
                turn,
                at,
                &format!(
                    "skipped: turn {} of the session (0-based) failed ({kind})",
                    turn - 1
                ),
            );
        }
        let mut left = self.drop_from(
            turn,
            at,
            &format!("skipped: the user left at turn {} (0-based)", turn - 1),
        );
        for finished in &mut left {
            if let Err(failure) = &mut finished.outcome.end {
                failure.kind = FailureKind::Abandoned;
            }
        }
        left
    }
}

/// The reply as a message of the conversation. Without a decoded message, the text is its content.
fn reply(finished: &mut CompletedCall) -> Message {
    let text = || Message {
        content: finished.text.clone().unwrap_or_default(),
        ..Message::default()
    };
    finished.message.take().unwrap_or_else(text)
}
