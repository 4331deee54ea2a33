//! Runs the sessions of a worker: each turn after the turns that it awaits, with the replies of its history.
//!
//! ```text
//! turn 0 ── sent … end ── reply ─► turn renderer ─► turn 1 rendered    a slot of the closed loop or of max_in_flight is in
//!                          └────── think time ──────┴─ sent … end      use from the first turn to the last
//! ```
//! Turns that do not await each other run at the same time. Turns that are not sent, because a turn that they await
//! failed or sending ended, are recorded as `dropped`: each session has one outcome per turn.

use crate::run::requests::conversation::TurnReply;
use crate::run::requests::traffic_class::RequestPosition;
use crate::run::requests::turn_renderer::{RenderedTurn, SharedConversation, TurnRequest};
use crate::run::stop::Level;
use crate::run::worker::timer::{Deadlines, Timer};
use crate::run::worker::{ScheduledRequest, Worker};
use async_channel::Sender;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use llmscen_client::http::{CompletedCall, dropped_outcome};
use llmscen_core::dataset::TurnDependencies;
use llmscen_core::outcome::{Failure, FailureKind, Phase};
use llmscen_core::request::PreparedRequest;
use llmscen_core::units::Nanos;
use llmscen_protocols::Message;
use std::cell::Cell;
use std::io;
use std::ops::Range;
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

    /// Send time of the last turn so far, that of the cool-down aside.
    pub fn last_sent(&self) -> Nanos {
        self.last_sent.get()
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
            () = worker.shared.turns_sent.reached(Level::Drain) => {}
            () = worker.sending_end(&self.end_timer) => {}
            () = self.think_times.wake_due() => {}
            () = worker.limit_idle_time() => {}
        }
        self.over.send_replace(true);
    }

    /// Runs a session. Returns the outcomes that are not delivered yet: of its last turn, and of the turns that were
    /// not sent.
    pub async fn run_session(&self, worker: &Worker, first: ScheduledRequest) -> Outcomes {
        let ScheduledRequest {
            mut call,
            intended,
            phase,
            ..
        } = first;
        let dependencies = call.dependencies.take();
        let mut session = SessionProgress::new(&call, dependencies, phase);
        let phase = call.phase_in(phase);
        let mut steps = FuturesUnordered::new();
        steps.push(self.take_step(
            worker,
            Step::Send {
                call: Box::new(call),
                intended,
                phase,
            },
        ));
        let mut undelivered = Outcomes::default();
        while let Some(done) = steps.next().await {
            let Some(ended) = done else { continue };
            let (outcomes, ready) = session.end_turn(ended);
            // Requested before the delivery, so that both happen at the same time.
            for next in ready {
                let step = self.request_turn(&mut session, next);
                steps.push(self.take_step(worker, step));
            }
            if session.is_over() {
                undelivered = outcomes;
                continue;
            }
            steps.push(self.take_step(worker, Step::Deliver(outcomes)));
        }
        worker.engine.end_session(session.first.seq);
        undelivered
    }

    /// Requests a turn from the thread of the turn renderer.
    fn request_turn(&self, session: &mut SessionProgress, next: ReadyTurn) -> Step {
        let (rendered, receiver) = oneshot::channel();
        // The queue is unbounded. If the renderer has ended, the receiver reports it.
        let _ = self.turn_requests.try_send(TurnRequest {
            position: RequestPosition {
                turn: next.turn,
                ..session.first
            },
            conversation: session.conversation.clone(),
            ended: std::mem::take(&mut session.replies),
            rendered,
        });
        Step::Await {
            next,
            rendered: receiver,
            phase: session.phase,
            token: session.token.clone(),
        }
    }

    /// Takes a step of a session. None: it ends no turn.
    async fn take_step(&self, worker: &Worker, step: Step) -> Option<EndedTurn> {
        let (call, intended, phase) = match step {
            Step::Deliver(outcomes) => {
                worker.deliver_all(outcomes).await;
                return None;
            }
            Step::Send {
                call,
                intended,
                phase,
            } => (*call, intended, phase),
            Step::Await {
                next,
                rendered,
                phase,
                token,
            } => match self.await_turn(worker, rendered, next.since, phase).await {
                Ok((mut call, due)) => {
                    call.headers.extend(token);
                    (call, due, phase)
                }
                Err(why) => {
                    return Some(EndedTurn {
                        turn: next.turn,
                        at: next.since,
                        result: Err(why),
                    });
                }
            },
        };
        let turn = call.turn;
        if !worker.admit_turn(phase) {
            return Some(EndedTurn {
                turn,
                at: worker.shared.clock.now(),
                result: Err(NotSent::NotDue),
            });
        }
        let finished = worker.call(call, intended, phase).await.complete();
        let timeline = &finished.outcome.timeline;
        if phase != Phase::Cooldown {
            self.last_sent
                .set(self.last_sent.get().max(timeline.sent.unwrap_or_default()));
        }
        Some(EndedTurn {
            turn,
            at: timeline.end,
            result: Ok(Box::new(finished)),
        })
    }

    /// A turn once it is due, and when that was. `since`: the end of the last turn that it awaits.
    async fn await_turn(
        &self,
        worker: &Worker,
        rendered: oneshot::Receiver<Result<RenderedTurn, String>>,
        since: Nanos,
        phase: Phase,
    ) -> Result<(PreparedRequest, Nanos), NotSent> {
        let due = async {
            let turn = rendered
                .await
                .unwrap_or_else(|_| Err("the turn renderer has ended".into()));
            let RenderedTurn { call, wait } = turn.map_err(|error| {
                NotSent::Failed(format!("skipped: the turn cannot be rendered: {error}"))
            })?;
            let due = since + wait;
            let due = match &worker.shared.idle_limit {
                Some(limit) => limit.wait(due, &self.think_times).await,
                None => {
                    let instant = worker.shared.clock.instant(due);
                    self.think_times.until(instant).await;
                    due
                }
            };
            Ok((call, due))
        };
        tokio::select! {
            biased;
            () = self.is_over() => Err(NotSent::NotDue),
            () = worker.shared.cooldown.is_over(), if phase == Phase::Cooldown => Err(NotSent::NotDue),
            due = due => due,
        }
    }
}

/// What a session does next. Steps of one session run at the same time.
enum Step {
    /// Sends the first turn.
    Send {
        call: Box<PreparedRequest>,
        intended: Nanos,
        phase: Phase,
    },
    /// Sends a later turn when it is due.
    Await {
        next: ReadyTurn,
        rendered: oneshot::Receiver<Result<RenderedTurn, String>>,
        phase: Phase,
        /// The header that sends the token of the session back.
        token: Option<(String, String)>,
    },
    /// Passes outcomes to the collector.
    Deliver(Outcomes),
}

/// A turn that awaits no other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ReadyTurn {
    turn: u32,
    /// The end of the last turn that it awaited.
    since: Nanos,
}

/// A turn that has ended, or that is not sent.
struct EndedTurn {
    turn: u32,
    at: Nanos,
    result: Result<Box<CompletedCall>, NotSent>,
}

/// Why a turn is not sent.
enum NotSent {
    /// Sending ended before it was due. As an arrival that was not due, the turn is not scheduled, so it has no
    /// outcome.
    NotDue,
    /// It failed for this reason.
    Failed(String),
}

/// Which turns of a session have ended, and which may be sent.
struct SessionProgress {
    /// Position of the first turn.
    first: RequestPosition,
    phase: Phase,
    turns: TurnGraph,
    unsent: UnsentTurns,
    conversation: SharedConversation,
    /// Replies that the turn renderer does not have yet.
    replies: Vec<TurnReply>,
    /// The latest token of a response, with the name of the header that sends it back.
    token: Option<(String, String)>,
    /// From the first send of a measured turn to the last end so far.
    span: Option<(Nanos, Nanos)>,
    failed: bool,
}

impl SessionProgress {
    fn new(
        first: &PreparedRequest,
        dependencies: Option<TurnDependencies>,
        phase: Phase,
    ) -> SessionProgress {
        SessionProgress {
            first: RequestPosition {
                seq: first.seq,
                turn: first.turn,
                turns: first.turns,
                first_turn: first.first_turn,
                entry: first.entry,
                number: first.number,
            },
            phase,
            turns: TurnGraph::new(first.turns, first.turn, dependencies),
            unsent: UnsentTurns::new(first, phase),
            conversation: SharedConversation::default(),
            replies: Vec::new(),
            token: None,
            span: None,
            failed: false,
        }
    }

    fn is_over(&self) -> bool {
        self.turns.is_over()
    }

    /// Ends a turn. Returns its outcome and those of the turns that will not be sent because of it, and the turns
    /// that are ready.
    fn end_turn(&mut self, ended: EndedTurn) -> (Outcomes, Vec<ReadyTurn>) {
        let EndedTurn { turn, at, result } = ended;
        let mut finished = match result {
            Ok(finished) => *finished,
            Err(why) => {
                self.failed = true;
                let dropped = self.turns.drop_turn(turn);
                let outcomes = match why {
                    NotSent::NotDue => Outcomes::default(),
                    NotSent::Failed(why) => self.unsent.drop_turns(dropped, at, &why),
                };
                return (outcomes, Vec::new());
            }
        };
        if let Err(failure) = &finished.outcome.end {
            self.failed = true;
            let mut dropped = self.turns.drop_turn(turn);
            dropped.next();
            let is_unsendable = failure.at == Failure::BEFORE_SENDING;
            if failure.kind == FailureKind::Cancelled && !is_unsendable {
                // Sending has ended: the turns that await this one were not due.
                return (Outcomes::from(finished), Vec::new());
            }
            let unsent = self
                .unsent
                .drop_after_failure(turn, dropped, at, failure.kind);
            return (unsent.after(finished), Vec::new());
        }
        let ready = self.turns.end_turn(turn, at);
        self.token = finished.session_token.take().or(self.token.take());
        self.replies.push(TurnReply {
            turn,
            message: reply(&mut finished),
            response_id: finished.outcome.response_id.clone(),
        });
        if let Some(sent) = finished.outcome.timeline.sent
            && turn >= self.first.first_turn
        {
            let (from, to) = self.span.unwrap_or((sent, at));
            self.span = Some((from.min(sent), to.max(at)));
        }
        if self.is_over() && !self.failed {
            finished.outcome.session_duration = self.span.map(|(from, to)| to - from);
        }
        (Outcomes::from(finished), ready)
    }
}

/// The turns of a session and what they await.
enum TurnGraph {
    /// Each turn awaits the one before it.
    Line {
        /// Number of turns that have ended, that will not be sent, or that are before the first one sent.
        over: u32,
        /// Number of turns.
        turns: u32,
    },
    Graph(LinkedTurns),
}

impl TurnGraph {
    /// `turns`: their number. Those before `first` have ended.
    fn new(turns: u32, first: u32, dependencies: Option<TurnDependencies>) -> TurnGraph {
        match dependencies {
            None => TurnGraph::Line { over: first, turns },
            Some(dependencies) => TurnGraph::Graph(LinkedTurns::new(turns, first, &dependencies)),
        }
    }

    /// Whether every turn has ended.
    fn is_over(&self) -> bool {
        match self {
            TurnGraph::Line { over, turns } => over >= turns,
            TurnGraph::Graph(graph) => graph.open == 0,
        }
    }

    /// Ends a turn. Returns the turns that awaited it last.
    fn end_turn(&mut self, turn: u32, at: Nanos) -> Vec<ReadyTurn> {
        match self {
            TurnGraph::Line { over, turns } => {
                *over = turn + 1;
                let next = (*over < *turns).then_some(ReadyTurn {
                    turn: *over,
                    since: at,
                });
                next.into_iter().collect()
            }
            TurnGraph::Graph(graph) => graph.end_turn(turn, at),
        }
    }

    /// Drops a turn and those that await it, directly or not. Returns them, that turn first.
    fn drop_turn(&mut self, turn: u32) -> DroppedTurns {
        match self {
            TurnGraph::Line { over, turns } => {
                *over = *turns;
                (turn..*turns).chain(Vec::new())
            }
            TurnGraph::Graph(graph) => (0..0).chain(graph.drop_turn(turn)),
        }
    }
}

/// Turns in a line, or of a graph.
type DroppedTurns = std::iter::Chain<Range<u32>, std::vec::IntoIter<u32>>;

/// Turns of which some await others than the one before them, and joints.
struct LinkedTurns {
    /// The turns, then the joints.
    nodes: Vec<LinkedNode>,
    /// Number of turns.
    turns: u32,
    /// The first turn that is sent.
    first: u32,
    /// Number of turns that have not ended.
    open: usize,
}

#[derive(Clone, Debug, Default)]
struct LinkedNode {
    /// The nodes that await it.
    later: Vec<u32>,
    /// Number of nodes that it awaits and that have not ended.
    awaited: u32,
    /// The end of the last of these nodes so far.
    since: Nanos,
    /// It has ended, or it will not be sent.
    over: bool,
}

impl LinkedTurns {
    fn new(turns: u32, first: u32, dependencies: &TurnDependencies) -> LinkedTurns {
        let count = (turns as usize).max(dependencies.len());
        let mut nodes = vec![LinkedNode::default(); count];
        for (node, awaited) in (0u32..).zip(dependencies.iter()) {
            for &before in awaited.iter().filter(|before| **before >= first) {
                if let Some(before) = nodes.get_mut(before as usize) {
                    before.later.push(node);
                    nodes[node as usize].awaited += 1;
                }
            }
        }
        for node in nodes.iter_mut().take(first as usize) {
            node.over = true;
        }
        let mut graph = LinkedTurns {
            nodes,
            turns,
            first,
            open: turns.saturating_sub(first) as usize,
        };
        // Joints of turns before the first one sent.
        for joint in turns..count as u32 {
            let node = &graph.nodes[joint as usize];
            if node.awaited == 0 && !node.over {
                graph.end_node(joint, Nanos::ZERO);
            }
        }
        graph
    }

    fn end_turn(&mut self, turn: u32, at: Nanos) -> Vec<ReadyTurn> {
        let mut ready = Vec::new();
        if turn == self.first {
            // After the first turn, every turn can be sent that only awaits turns before it.
            let is_free = |node: &LinkedNode| node.awaited == 0 && !node.over;
            let later = turn + 1..self.turns;
            ready.extend(later.filter(|later| is_free(&self.nodes[*later as usize])));
            for later in &ready {
                self.nodes[*later as usize].since = at;
            }
        }
        ready.extend(self.end_node(turn, at));
        ready.sort_unstable();
        let since = |turn: u32| self.nodes[turn as usize].since;
        ready
            .into_iter()
            .map(|turn| ReadyTurn {
                turn,
                since: since(turn),
            })
            .collect()
    }

    /// Ends a node and the joints that awaited it last. Returns the turns that await nothing any more.
    fn end_node(&mut self, node: u32, at: Nanos) -> Vec<u32> {
        let mut ready = Vec::new();
        let mut ended = vec![(node, at)];
        while let Some((node, at)) = ended.pop() {
            self.close(node);
            let Some(own) = self.nodes.get_mut(node as usize) else {
                continue;
            };
            for later in std::mem::take(&mut own.later) {
                let state = &mut self.nodes[later as usize];
                state.awaited = state.awaited.saturating_sub(1);
                state.since = state.since.max(at);
                if state.awaited > 0 || state.over {
                    continue;
                }
                match later < self.turns {
                    true => ready.push(later),
                    false => ended.push((later, state.since)),
                }
            }
        }
        ready
    }

    fn drop_turn(&mut self, turn: u32) -> Vec<u32> {
        let mut dropped = vec![turn];
        // If the first turn fails, so does the session.
        let mut open: Vec<u32> = match turn == self.first {
            true => (turn + 1..self.nodes.len() as u32).collect(),
            false => self.take_later(turn),
        };
        self.close(turn);
        while let Some(later) = open.pop() {
            if self.close(later) {
                open.extend(self.take_later(later));
                dropped.extend(Some(later).filter(|later| *later < self.turns));
            }
        }
        dropped.sort_unstable();
        dropped
    }

    fn take_later(&mut self, node: u32) -> Vec<u32> {
        let node = self.nodes.get_mut(node as usize);
        node.map_or_else(Vec::new, |node| std::mem::take(&mut node.later))
    }

    /// Whether the node was open.
    fn close(&mut self, node: u32) -> bool {
        let Some(state) = self.nodes.get_mut(node as usize) else {
            return false;
        };
        let was_open = !std::mem::replace(&mut state.over, true);
        self.open -= usize::from(was_open && node < self.turns);
        was_open
    }
}

/// The outcome of a turn, and those of the turns that will not be sent because of it. Each is made when it is taken:
/// a session may have very many turns.
#[derive(Default)]
pub struct Outcomes {
    first: Option<Box<CompletedCall>>,
    unsent: Option<Box<Unsent>>,
}

/// Turns that will not be sent.
struct Unsent {
    turns: DroppedTurns,
    /// The outcome of each, apart from its number.
    call: PreparedRequest,
    phase: Phase,
    at: Nanos,
    why: String,
    /// The kind of the failure, where it is not that of a dropped request.
    kind: Option<FailureKind>,
}

impl From<CompletedCall> for Outcomes {
    fn from(first: CompletedCall) -> Outcomes {
        Outcomes::default().after(first)
    }
}

impl Outcomes {
    /// The same after another outcome.
    pub fn after(self, first: CompletedCall) -> Outcomes {
        Outcomes {
            first: Some(Box::new(first)),
            ..self
        }
    }

    /// Sets the kind of the failures of the turns that are not sent.
    pub fn set_kind(&mut self, kind: FailureKind) {
        if let Some(Err(failure)) = self.first.as_mut().map(|first| &mut first.outcome.end) {
            failure.kind = kind;
        }
        if let Some(unsent) = &mut self.unsent {
            unsent.kind = Some(kind);
        }
    }

    /// The first one.
    pub fn first(&self) -> Option<&CompletedCall> {
        self.first.as_deref()
    }
}

impl Iterator for Outcomes {
    type Item = CompletedCall;

    fn next(&mut self) -> Option<CompletedCall> {
        if let Some(first) = self.first.take() {
            return Some(*first);
        }
        let unsent = self.unsent.as_mut()?;
        unsent.call.turn = unsent.turns.next()?;
        let mut outcome = dropped_outcome(&unsent.call, unsent.phase, unsent.at, &unsent.why);
        if let (Err(failure), Some(kind)) = (&mut outcome.end, unsent.kind) {
            failure.kind = kind;
        }
        Some(CompletedCall::bare(outcome))
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
            turn: first.turn,
            turns: first.turns,
            first_turn: first.first_turn,
            streamed: first.streamed,
            model: first.model.clone(),
            group: first.group.clone(),
            ..PreparedRequest::default()
        };
        UnsentTurns { call, phase }
    }

    /// The outcomes of the turns after the first, which are dropped at `at`.
    pub fn drop_later(&self, at: Nanos, why: &str) -> Outcomes {
        let later = self.call.turn + 1..self.call.turns;
        self.drop_turns(later.chain(Vec::new()), at, why)
    }

    fn drop_turns(&self, turns: DroppedTurns, at: Nanos, why: &str) -> Outcomes {
        Outcomes {
            first: None,
            unsent: Some(Box::new(Unsent {
                turns,
                call: self.call.clone(),
                phase: self.phase,
                at,
                why: why.to_owned(),
                kind: None,
            })),
        }
    }

    /// The same after `failed`, which these turns await. If its user left, so have the users of these turns.
    fn drop_after_failure(
        &self,
        failed: u32,
        turns: DroppedTurns,
        at: Nanos,
        kind: FailureKind,
    ) -> Outcomes {
        if kind != FailureKind::Abandoned {
            let why = format!("skipped: turn {failed} of the session (0-based) failed ({kind})");
            return self.drop_turns(turns, at, &why);
        }
        let why = format!("skipped: the user left at turn {failed} (0-based)");
        let mut left = self.drop_turns(turns, at, &why);
        left.set_kind(FailureKind::Abandoned);
        left
    }
}

/// The reply as a message of the conversation. Without a decoded message, the text is its content. The message of an
/// answer that is to be checked is copied.
fn reply(finished: &mut CompletedCall) -> Message {
    if let (Some(message), Some(_)) = (&finished.message, &finished.truths) {
        return message.clone();
    }
    let text = || Message {
        content: finished.text.clone().unwrap_or_default(),
        ..Message::default()
    };
    finished.message.take().unwrap_or_else(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// For each turn, the turns that it awaits: the first awaits none, each other one at least one before it.
    fn graphs() -> impl Strategy<Value = Vec<Vec<u32>>> {
        let awaited = |turn: u32| {
            let all: Vec<u32> = (0..turn).collect();
            proptest::sample::subsequence(all, turn.min(1) as usize..=turn.min(3) as usize)
        };
        (1..12u32).prop_flat_map(move |turns| (0..turns).map(awaited).collect::<Vec<_>>())
    }

    fn dependencies(graph: &[Vec<u32>]) -> TurnDependencies {
        graph.iter().map(|turns| turns.clone().into()).collect()
    }

    /// When a turn was ready and when it ended; None: it was never ready.
    type Times = Vec<Option<(Nanos, Nanos)>>;

    /// Plays a graph in virtual time: each turn takes its duration. The turns of `failing` fail.
    fn play(
        graph: &mut TurnGraph,
        first: u32,
        durations: &[u64],
        failing: &[bool],
    ) -> (Times, Vec<u32>) {
        let mut times: Times = vec![None; durations.len()];
        let mut dropped = Vec::new();
        let mut running = vec![ReadyTurn {
            turn: first,
            since: Nanos::ZERO,
        }];
        while let Some(next) = running
            .iter()
            .enumerate()
            .min_by_key(|(_, ready)| ready.since.0 + durations[ready.turn as usize])
            .map(|(index, _)| index)
        {
            let ReadyTurn { turn, since } = running.swap_remove(next);
            let end = since + Nanos(durations[turn as usize]);
            assert_eq!(
                times[turn as usize].replace((since, end)),
                None,
                "sent once"
            );
            if failing[turn as usize] {
                let all = graph.drop_turn(turn);
                dropped.extend(all.filter(|later| *later != turn));
            } else {
                running.extend(graph.end_turn(turn, end));
            }
        }
        (times, dropped)
    }

    proptest! {
        #[test]
        fn a_turn_is_ready_at_the_end_of_the_last_turn_that_it_awaits(
            graph in graphs(),
            durations in proptest::collection::vec(0..50u64, 12),
            failing in proptest::collection::vec(proptest::bool::weighted(0.1), 12),
            first in 0..12u32,
        ) {
            let first = first.min(graph.len() as u32 - 1);
            let mut turns = TurnGraph::new(graph.len() as u32, first, Some(dependencies(&graph)));
            let (times, dropped) = play(&mut turns, first, &durations[..graph.len()], &failing);
            prop_assert!(turns.is_over(), "every turn ends or is dropped");
            let end_of = |turn: u32| times[turn as usize].map_or(Nanos::ZERO, |(_, end)| end);
            for turn in first..graph.len() as u32 {
                let awaited = || graph[turn as usize].iter().filter(|before| **before >= first);
                let fails = |before: &&u32| failing[**before as usize] || dropped.contains(before);
                let must_drop = awaited().any(|before| fails(&before)) || turn > first && failing[first as usize];
                prop_assert_eq!(dropped.contains(&turn), must_drop);
                prop_assert_eq!(times[turn as usize].is_none(), must_drop);
                if let Some((ready, _)) = times[turn as usize] {
                    let last = awaited().map(|before| end_of(*before)).max();
                    let at_begin = if turn == first { Nanos::ZERO } else { end_of(first) };
                    prop_assert_eq!(ready, last.unwrap_or(at_begin));
                }
            }
            prop_assert!(times[..first as usize].iter().all(Option::is_none));
        }

        #[test]
        fn a_joint_stands_for_the_turns_that_it_awaits(
            graph in graphs(),
            durations in proptest::collection::vec(0..50u64, 12),
            failing in proptest::collection::vec(proptest::bool::weighted(0.1), 12),
            first in 0..12u32,
        ) {
            let turns = graph.len() as u32;
            let first = first.min(turns - 1);
            // The turns await joints, and every second joint awaits another one.
            let mut joined: Vec<Vec<u32>> = graph.iter().map(|_| Vec::new()).collect();
            for (turn, awaited) in graph.iter().enumerate().filter(|(_, awaited)| !awaited.is_empty()) {
                joined.push(awaited.clone());
                if turn % 2 == 0 {
                    joined.push(vec![joined.len() as u32 - 1]);
                }
                joined[turn] = vec![joined.len() as u32 - 1];
            }
            let of = |graph: &[Vec<u32>]| {
                let mut linked = TurnGraph::new(turns, first, Some(dependencies(graph)));
                let (times, mut dropped) = play(&mut linked, first, &durations[..turns as usize], &failing);
                dropped.sort_unstable();
                (times, dropped, linked.is_over())
            };
            prop_assert_eq!(of(&joined), of(&graph));
        }

        #[test]
        fn a_conversation_is_a_graph_in_a_line(
            durations in proptest::collection::vec(0..50u64, 1..9),
            failing in proptest::collection::vec(proptest::bool::weighted(0.1), 9),
        ) {
            let turns = durations.len() as u32;
            let line: Vec<Vec<u32>> = (0..turns).map(|turn| turn.checked_sub(1).into_iter().collect()).collect();
            let mut linear = TurnGraph::new(turns, 0, None);
            let mut graph = TurnGraph::new(turns, 0, Some(dependencies(&line)));
            prop_assert_eq!(play(&mut linear, 0, &durations, &failing), play(&mut graph, 0, &durations, &failing));
        }
    }
}
