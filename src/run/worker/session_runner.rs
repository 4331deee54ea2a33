//! A session on a worker: its turns in order, each with the replies before it.
//!
//! ```text
//! turn 0 ── sent … end ── reply ─► turn renderer ─► turn 1, ready      a slot, or a place under max_in_flight, is held
//!                          └──────── wait ────────┴─ sent … end        from the first turn to the last
//! ```
//! Turns that cannot be sent, because one failed or because the case was over, are `dropped`: each session leaves as many
//! rows as it has turns.

use crate::run::execution::stop::Level;
use crate::run::requests::RequestPosition;
use crate::run::requests::conversation::Conversation;
use crate::run::requests::turn_renderer::{RenderedTurn, TurnRequest};
use crate::run::worker::timer::{Deadlines, Timer};
use crate::run::worker::{ScheduledRequest, Worker};
use async_channel::Sender;
use llmscen_client::http::{Finished, dropped};
use llmscen_core::call::Call;
use llmscen_core::outcome::{Failure, FailureKind, Phase};
use llmscen_core::units::Nanos;
use llmscen_protocols::Message;
use std::cell::Cell;
use std::io;
use tokio::sync::{oneshot, watch};

/// What a worker needs for sessions of several turns.
pub struct SessionRunner {
    turn_requests: Sender<TurnRequest>,
    deadlines: Deadlines,
    deadline: Timer,
    /// No further turn is sent.
    over: watch::Sender<bool>,
    last_sent: Cell<Nanos>,
}

impl SessionRunner {
    /// Later turns are rendered behind `turn_requests`. Must be made on the worker itself.
    ///
    /// # Errors
    /// The system gives no timer.
    pub fn new(turn_requests: Sender<TurnRequest>) -> io::Result<SessionRunner> {
        Ok(SessionRunner {
            turn_requests,
            deadlines: Deadlines::new(Timer::new()?),
            deadline: Timer::new()?,
            over: watch::Sender::new(false),
            last_sent: Cell::default(),
        })
    }

    /// When the last turn so far was sent.
    pub fn last_sent(&self) -> Nanos {
        self.last_sent.get()
    }

    /// Asks for the next turn, which is made elsewhere.
    fn ask(&self, place: RequestPosition, conversation: Option<Box<Conversation>>, reply: Message) -> Answer {
        let (answer, answered) = oneshot::channel();
        // A thread that is gone answers nothing, whether it can still be asked or not; the queue has no bound.
        let _ = self.turn_requests.try_send(TurnRequest { place, conversation, reply, answer });
        answered
    }

    async fn over(&self) {
        // The sender lives in self, so the wait cannot fail.
        let _ = self.over.subscribe().wait_for(|over| *over).await;
    }

    /// Wakes think times until no further turn is sent, and then tells every session.
    pub async fn watch_for_end(&self, worker: &Worker) {
        tokio::select! {
            () = worker.stop.reached(Level::Drain) => {}
            () = worker.halt.reached(Level::Drain) => {}
            () = worker.deadline(&self.deadline) => {}
            () = self.deadlines.wake_due() => {}
        }
        self.over.send_replace(true);
    }

    /// Runs a session. What comes back is still to be delivered: its last outcome, and the turns that were not sent.
    pub async fn run_session(&self, worker: &Worker, first: ScheduledRequest) -> Vec<Finished> {
        let ScheduledRequest { mut call, mut intended, phase, .. } = first;
        let (session, turns) = (Unsent::of(&call, phase), call.turns);
        let mut conversation = None;
        loop {
            let place = RequestPosition { seq: call.seq, turn: call.turn + 1, turns, entry: call.entry, number: call.number };
            let mut finished = worker.engine.call(call, intended, phase, worker.given_up()).await;
            let timeline = &finished.outcome.timeline;
            self.last_sent.set(self.last_sent.get().max(timeline.sent.unwrap_or_default()));
            let end = timeline.end;
            if place.turn >= turns {
                return vec![finished];
            }
            if let Err(Failure { kind: FailureKind::Abandoned, .. }) = &finished.outcome.end {
                let why = format!("not sent: its user left in turn {} of the session, counted from 0", place.turn - 1);
                let rest = drop_unsent_turns(&session, place.turn, end, &why).into_iter().map(abandoned);
                return std::iter::once(finished).chain(rest).collect();
            }
            if let Err(failure) = &finished.outcome.end {
                let why = format!("not sent: turn {} of its session, counted from 0, failed ({})", place.turn - 1, failure.kind);
                let mut left = vec![finished];
                left.extend(drop_unsent_turns(&session, place.turn, end, &why));
                return left;
            }
            // Asked first: the next turn is made while this one is delivered.
            let answered = self.ask(place, conversation.take(), reply(&mut finished));
            worker.deliver(finished).await;
            match self.next_turn(worker, answered, end).await {
                Ok(next) => (call, intended, conversation) = (next.call, end + next.wait, Some(next.conversation)),
                Err(why) => return drop_unsent_turns(&session, place.turn, end, &why),
            }
        }
    }

    /// The next turn when its instant has come; an error says why there is none.
    async fn next_turn(&self, worker: &Worker, answered: Answer, end: Nanos) -> Result<RenderedTurn, String> {
        let ready = async {
            let next = answered.await.unwrap_or_else(|_| Err("the thread that makes turns is gone".into()));
            let next = next.map_err(|error| format!("not sent: the turn cannot be made: {error}"))?;
            self.deadlines.until(worker.clock.instant(end + next.wait)).await;
            Ok(next)
        };
        tokio::select! {
            biased;
            () = self.over() => Err("not sent: sending was over before this turn of the session".into()),
            ready = ready => ready,
        }
    }
}

/// Where a later turn comes in.
type Answer = oneshot::Receiver<Result<RenderedTurn, String>>;

/// The rows of a session's turns from `from` on, none of which is sent.
pub fn drop_unsent_turns(first: &Unsent, from: u32, at: Nanos, why: &str) -> Vec<Finished> {
    let row = |turn| {
        let call = Call { turn, ..first.call.clone() };
        Finished::bare(dropped(&call, first.phase, at, why))
    };
    (from..first.call.turns).map(row).collect()
}

/// A turn that was not sent because its user had left before: no error of anyone.
fn abandoned(mut row: Finished) -> Finished {
    if let Err(failure) = &mut row.outcome.end {
        failure.kind = FailureKind::Abandoned;
    }
    row
}

/// What the rows of unsent turns share with the first one.
pub struct Unsent {
    call: Call,
    phase: Phase,
}

impl Unsent {
    /// The session of this first turn.
    pub fn of(first: &Call, phase: Phase) -> Unsent {
        let (model, group) = (first.model.clone(), first.group.clone());
        let call = Call { seq: first.seq, turns: first.turns, streamed: first.streamed, model, group, ..Call::default() };
        Unsent { call, phase }
    }
}

/// The reply as it is fed back. Text that is kept without a message of its own is its content.
fn reply(finished: &mut Finished) -> Message {
    let text = || Message { content: finished.text.clone().unwrap_or_default(), ..Message::default() };
    finished.message.take().unwrap_or_else(text)
}
