//! Renders the later turns of sessions on a separate thread, each from the replies to the turns that it awaits.

use crate::run::error::RunError;
use crate::run::requests::client_cancel::draw_client_cancel;
use crate::run::requests::conversation::{Conversation, TurnReply};
use crate::run::requests::tool_results::ToolResults;
use crate::run::requests::traffic_class::{ClassSource, RequestPosition, TrafficClass, build_call};
use crate::run::stop::Stop;
use async_channel::{Receiver, Sender, unbounded};
use llmscen_core::dataset::{Prompt, Session, Turns};
use llmscen_core::request::{PreparedRequest, sample_length};
use llmscen_core::schedule::delays::sample_think_time;
use llmscen_core::seed::Seed;
use llmscen_core::units::Nanos;
use llmscen_datasets::tokens_of;
use llmscen_telemetry::process::lower_thread_priority;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use tokio::sync::oneshot;

/// A request for a turn of a session.
pub struct TurnRequest {
    /// Position of the turn.
    pub position: RequestPosition,
    /// The conversation of the session.
    pub conversation: SharedConversation,
    /// Turns that have ended since the last request for a turn of this session, with their replies.
    pub ended: Vec<TurnReply>,
    /// Receives the turn, or why it cannot be rendered.
    pub rendered: oneshot::Sender<Result<RenderedTurn, String>>,
}

/// The conversation of a session; None before its second turn. Only the turn renderer uses it. The worker keeps it as
/// long as the session is in progress.
pub type SharedConversation = Arc<Mutex<Option<Conversation>>>;

/// A rendered later turn.
pub struct RenderedTurn {
    /// The request.
    pub call: PreparedRequest,
    /// Time from the end of the last turn that it awaits to its send time.
    pub wait: Nanos,
}

/// The turns of a session that are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TurnRange {
    /// The first measured turn. The turns before it are history.
    pub first: u32,
    /// Number of turns, those before `first` included.
    pub turns: u32,
}

/// The first turn of a session that is sent: the turn before the first measured one fills the prefix cache.
fn first_sent(first_measured: u32) -> u32 {
    first_measured.saturating_sub(1)
}

impl TurnRange {
    /// Draws where a session begins, from the seed of its class and its number.
    pub fn draw(session: &Session, turns: Option<&Turns>, seed: Seed, number: u64) -> TurnRange {
        let limit = turns.and_then(|turns| turns.max).unwrap_or(u32::MAX).max(1);
        let count = session.count().min(limit);
        let begin = turns.and_then(|turns| turns.begin).map_or(0, |begin| {
            let seed = seed.child("begin").child(number);
            let share = ChaCha8Rng::seed_from_u64(seed.0).random_range(begin.low..=begin.high);
            // At least the last turn is measured.
            ((f64::from(count) * share) as u32).min(count.saturating_sub(1))
        });
        TurnRange {
            first: begin,
            turns: count,
        }
    }

    /// The first turn that is sent.
    pub fn first_sent(&self) -> u32 {
        first_sent(self.first)
    }
}

/// The conversation of a session whose first turn has been sent, or is rendered next.
fn begin(
    source: &ClassSource,
    session: Session,
    position: RequestPosition,
) -> Result<Conversation, RunError> {
    let case = &source.class.case;
    // A whole prompt has no history.
    let is_whole = session.later.as_ref().is_some_and(|later| !later.continues);
    let oldest = if is_whole { position.turn } else { 0 };
    let mut conversation = Conversation::new(session, case.target.api, case.dataset.turns.as_ref());
    for turn in oldest..=position.turn {
        add_prompt(
            source,
            &mut conversation,
            RequestPosition { turn, ..position },
        )?;
    }
    conversation.skip_to(position.turn);
    Ok(conversation)
}

/// Adds the prompt of a turn that the dataset writes when it is due.
fn add_prompt(
    source: &ClassSource,
    conversation: &mut Conversation,
    position: RequestPosition,
) -> Result<(), RunError> {
    if conversation.awaits_prompt(position.turn) {
        let written = source.prompts.turn(position.number, position.turn);
        let prompt = written.map_err(|error| RunError::Data(Arc::new(error)))?;
        let prompt = prompt.ok_or(RunError::Session { seq: position.seq })?;
        conversation.add_prompt(position.turn, prompt);
    }
    Ok(())
}

/// The first request of a session that begins at a later turn.
pub fn render_begin(
    source: &ClassSource,
    session: Session,
    position: RequestPosition,
) -> Result<Option<Prompt>, RunError> {
    let mut conversation = begin(source, session, position)?;
    let prompt = render_prompt(source, &mut conversation, position)?;
    Ok(prompt.map(|mut prompt| {
        // The prefix cache needs the prompt only. A server refuses a minimum above the maximum.
        prompt.max_tokens = Some(1);
        let minimum = "min_tokens";
        let of_case = &source.class.case.request.sampling;
        if prompt.sampling.contains_key(minimum) || of_case.contains_key(minimum) {
            prompt.sampling.insert(minimum.to_owned(), 1.into());
        }
        prompt
    }))
}

/// The prompt of a turn, with the history and its length.
fn render_prompt(
    source: &ClassSource,
    conversation: &mut Conversation,
    position: RequestPosition,
) -> Result<Option<Prompt>, RunError> {
    let class = &source.class;
    let of_session = conversation.history_tokens(position.turn, class.tokenizer.as_deref());
    let continues = conversation.continued(position.turn).is_some();
    let Some(mut prompt) = conversation.render(position.turn)? else {
        return Ok(None);
    };
    set_lengths(source, &mut prompt, position, continues);
    conversation.set_tokens(position.turn, prompt.tokens);
    prompt.cacheable_tokens = class.cacheable_tokens(prompt.cacheable_tokens, of_session);
    Ok(Some(prompt))
}

fn render_turn(
    source: &ClassSource,
    position: RequestPosition,
    conversation: &mut Option<Conversation>,
    ended: &[TurnReply],
) -> Result<RenderedTurn, RunError> {
    let ClassSource {
        class,
        prompts,
        seed,
        endpoints,
    } = source;
    let changed = || RunError::Session { seq: position.seq };
    let conversation = match conversation {
        Some(conversation) => conversation,
        None => {
            let session = prompts.session(position.number).ok_or_else(changed)?;
            let first = RequestPosition {
                turn: first_sent(position.first_turn),
                ..position
            };
            let opened = conversation.insert(begin(source, session, first)?);
            // The request of the first turn was rendered before. Here its messages become part of the history.
            if first.turn == 0 {
                opened.skip_first();
            } else {
                render_prompt(source, opened, first)?;
            }
            opened
        }
    };
    for reply in ended {
        conversation.end_turn(reply, class.tokenizer.as_deref());
    }
    add_prompt(source, conversation, position)?;
    let mut prompt = render_prompt(source, conversation, position)?.ok_or_else(changed)?;
    prompt.group = class.group(prompt.group);
    let turns = class.case.dataset.turns.as_ref();
    let think_time = || {
        turns?
            .think_time
            .as_ref()
            .map(|time| sample_think_time(time, *seed, position.number, position.turn))
    };
    let wait = prompt.wait.or_else(think_time).unwrap_or_default();
    let max_idle = turns.and_then(|turns| turns.max_idle);
    let rendered = class.renderer.body(&prompt, position.number, *seed)?;
    let leave = draw_client_cancel(
        class.case.request.cancel.as_ref(),
        *seed,
        position,
        &prompt.fields,
    );
    Ok(RenderedTurn {
        call: build_call(class, prompt, position, rendered, endpoints, None, leave),
        wait: max_idle.map_or(wait, |most| wait.min(most)),
    })
}

/// Sets the lengths of a turn: the tokens of the whole conversation, and a `max_tokens` drawn for this turn alone.
/// `continues`: the dataset has the tokens of a message alone, otherwise those of a whole prompt.
fn set_lengths(
    source: &ClassSource,
    prompt: &mut Prompt,
    position: RequestPosition,
    continues: bool,
) {
    let TrafficClass {
        case, tokenizer, ..
    } = &*source.class;
    if tokenizer.is_some() || continues {
        prompt.tokens = tokenizer
            .as_ref()
            .and_then(|tokenizer| tokens_of(prompt, tokenizer, case.dataset.system.as_deref()));
        prompt.approximate = tokenizer
            .as_ref()
            .is_some_and(|tokenizer| tokenizer.approximate());
    }
    if let (Some(quantity), None) = (&case.request.max_tokens, prompt.max_tokens) {
        let seed = source
            .seed
            .child("max_tokens")
            .child(position.number)
            .child(u64::from(position.turn));
        prompt.max_tokens = sample_length(
            quantity,
            &prompt.fields,
            &mut ChaCha8Rng::seed_from_u64(seed.0),
        )
        .filter(|n| *n >= 1);
    }
}

/// The thread that renders later turns.
pub struct TurnRenderer {
    /// Channel to the thread.
    pub turn_requests: Sender<TurnRequest>,
    thread: JoinHandle<Result<ToolResults, RunError>>,
}

impl TurnRenderer {
    /// Starts the thread, with the source of each class. A turn that cannot be rendered presses `halt`.
    pub fn start(sources: Vec<ClassSource>, halt: Stop) -> Result<TurnRenderer, RunError> {
        let (turn_requests, queue) = unbounded();
        let thread = std::thread::Builder::new()
            .name("turns".into())
            .spawn(move || {
                lower_thread_priority();
                render_turns(&sources, &queue, &halt)
            });
        Ok(TurnRenderer {
            turn_requests,
            thread: thread.map_err(RunError::Thread)?,
        })
    }

    /// Waits until the thread ends, which it does once the last worker has ended. Returns the tool results of the
    /// rendered turns. An error is that of the first turn that could not be rendered.
    pub fn finish(self) -> Result<ToolResults, RunError> {
        drop(self.turn_requests);
        self.thread
            .join()
            .map_err(|_| RunError::Panicked("turns"))?
    }
}

fn render_turns(
    sources: &[ClassSource],
    queue: &Receiver<TurnRequest>,
    halt: &Stop,
) -> Result<ToolResults, RunError> {
    let mut first_fault = None;
    let mut tool_results = ToolResults::default();
    while let Ok(TurnRequest {
        position,
        conversation,
        ended,
        rendered,
    }) = queue.recv_blocking()
    {
        // At the end of a round the worker has left the sessions whose turns still wait here.
        if rendered.is_closed() {
            continue;
        }
        let source = sources
            .get(position.entry)
            .ok_or(RunError::Session { seq: position.seq });
        let turn = source
            .and_then(|source| {
                let mut conversation = conversation.lock().unwrap_or_else(PoisonError::into_inner);
                let turn = render_turn(source, position, &mut conversation, &ended)?;
                if let Some(conversation) = conversation.as_mut() {
                    tool_results.add(conversation.take_tool_results());
                }
                Ok(turn)
            })
            .map_err(|error| {
                let message = error.to_string();
                // A response of the server without an id ends its session only.
                if !matches!(error, RunError::NoResponseId { .. }) {
                    halt.press();
                    first_fault.get_or_insert(error);
                }
                message
            });
        // The worker may have left the session meanwhile.
        let _ = rendered.send(turn);
    }
    first_fault.map_or(Ok(tool_results), Err)
}

#[cfg(test)]
mod tests;
