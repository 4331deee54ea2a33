//! Renders the later turns of sessions on a separate thread, each from the reply to the turn before.

use crate::run::error::RunError;
use crate::run::execution::stop::Stop;
use crate::run::requests::client_cancel::draw_client_cancel;
use crate::run::requests::conversation::Conversation;
use crate::run::requests::traffic_class::{ClassSource, RequestPosition, TrafficClass, build_call};
use async_channel::{Receiver, Sender, unbounded};
use llmscen_core::dataset::Turns;
use llmscen_core::dataset::{Prompt, Session};
use llmscen_core::request::PreparedRequest;
use llmscen_core::request::sample_length;
use llmscen_core::schedule::delays::sample_think_time;
use llmscen_core::units::Nanos;
use llmscen_datasets::tokens_of;
use llmscen_protocols::Message;
use llmscen_telemetry::process::lower_thread_priority;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use std::sync::Arc;
use std::thread::JoinHandle;
use tokio::sync::oneshot;

/// A request for the next turn of a session.
pub struct TurnRequest {
    /// Position of the next turn.
    pub position: RequestPosition,
    /// The conversation so far; None after the first turn.
    pub conversation: Option<Box<Conversation>>,
    /// The reply to the turn before.
    pub reply: Message,
    /// Receives the next turn, or why it cannot be rendered.
    pub rendered: oneshot::Sender<Result<RenderedTurn, String>>,
}

/// A rendered later turn.
pub struct RenderedTurn {
    /// The request.
    pub call: PreparedRequest,
    /// Think time: from the end of the turn before to the send time.
    pub wait: Nanos,
    /// The conversation, for the turn after it.
    pub conversation: Box<Conversation>,
}

/// How many turns of a session are sent.
pub fn turn_count(session: &Session, turns: Option<&Turns>) -> u32 {
    let limit = turns.and_then(|turns| turns.max).unwrap_or(u32::MAX).max(1);
    u32::try_from(session.turns.len())
        .unwrap_or(u32::MAX)
        .min(limit)
}

fn render_turn(
    source: &ClassSource,
    position: RequestPosition,
    conversation: Option<Box<Conversation>>,
    reply: &Message,
) -> Result<RenderedTurn, RunError> {
    let ClassSource {
        class,
        prompts,
        seed,
        endpoints,
    } = source;
    let changed = || RunError::Session { seq: position.seq };
    let mut conversation = match conversation {
        Some(conversation) => conversation,
        None => {
            let session = prompts.session(position.number).ok_or_else(changed)?;
            Box::new(Conversation::begin(session, class.case.target.api).ok_or_else(changed)?)
        }
    };
    if let Some(upcoming) = conversation.upcoming() {
        prompts
            .write_turn(position.number, position.turn, upcoming)
            .map_err(|error| RunError::Data(Arc::new(error)))?;
    }
    let turns = class.case.dataset.turns.as_ref();
    let keep_reasoning = turns.is_some_and(|turns| turns.keep_reasoning);
    let mut prompt = conversation
        .next(reply, keep_reasoning)
        .ok_or_else(changed)?;
    set_lengths(source, &mut prompt, position);
    prompt.group = class.group(prompt.group);
    let think_time = || {
        turns?
            .think_time
            .as_ref()
            .map(|time| sample_think_time(time, *seed, position.number, position.turn))
    };
    let wait = prompt.wait.or_else(think_time).unwrap_or_default();
    let rendered = class.renderer.body(&prompt, position.number, *seed)?;
    let leave = draw_client_cancel(
        class.case.request.cancel.as_ref(),
        *seed,
        position,
        &prompt.fields,
    );
    Ok(RenderedTurn {
        call: build_call(class, prompt, position, rendered, endpoints, None, leave),
        wait,
        conversation,
    })
}

/// Sets the lengths of a turn: the tokens of the whole conversation, and a `max_tokens` drawn for this turn alone.
fn set_lengths(source: &ClassSource, prompt: &mut Prompt, position: RequestPosition) {
    let TrafficClass {
        case, tokenizer, ..
    } = &*source.class;
    prompt.tokens = tokenizer
        .as_ref()
        .and_then(|tokenizer| tokens_of(prompt, tokenizer, case.dataset.system.as_deref()));
    prompt.approximate = tokenizer
        .as_ref()
        .is_some_and(|tokenizer| tokenizer.approximate());
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
    thread: JoinHandle<Result<(), RunError>>,
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

    /// Waits until the thread ends, which it does once the last worker has ended. An error is that of the first turn that could
    /// not be rendered.
    pub fn finish(self) -> Result<(), RunError> {
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
) -> Result<(), RunError> {
    let mut first_fault = Ok(());
    while let Ok(TurnRequest {
        position,
        conversation,
        reply,
        rendered,
    }) = queue.recv_blocking()
    {
        let source = sources
            .get(position.entry)
            .ok_or(RunError::Session { seq: position.seq });
        let turn = source
            .and_then(|source| render_turn(source, position, conversation, &reply))
            .map_err(|error| {
                halt.press();
                let message = error.to_string();
                if first_fault.is_ok() {
                    first_fault = Err(error);
                }
                message
            });
        // The worker may have ended the session meanwhile.
        let _ = rendered.send(turn);
    }
    first_fault
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::execution::stop::Level;
    use llmscen_core::endpoint::EndpointSelector;
    use llmscen_core::plan::Plan;
    use llmscen_core::seed::Seed;
    use llmscen_datasets::Prompts;
    use llmscen_scenario::render::Renderer;
    use llmscen_scenario::{Input, load};
    use serde_json::json;
    use std::collections::{BTreeMap, HashSet};
    use std::path::Path;

    struct Same(Session);

    impl Prompts for Same {
        fn session(&self, seq: u64) -> Option<Session> {
            (seq < 100).then(|| self.0.clone())
        }

        fn len(&self) -> Option<u64> {
            Some(100)
        }

        fn dropped(&self) -> u64 {
            0
        }
    }

    fn plan(request: &str) -> Plan {
        let text = format!(
            "version: 1\nname: x\ntarget: {{ url: simulator }}\ndataset: {{ kind: prompt, text: x }}\n\
             load: {{ concurrency: 1, requests: 1 }}\nrequest: {request}\n"
        );
        load(&Input {
            path: Path::new("x.yaml"),
            text: Some(text),
            env: &BTreeMap::new(),
            set: &[],
        })
        .unwrap()
        .plan
    }

    fn source(request: &str, turns: usize) -> ClassSource {
        let mut case = plan(request).cases.remove(0);
        case.dataset.turns = Some(Turns::default());
        let body = json!({ "model": "{{ model }}", "messages": "{{ messages }}" });
        let renderer = Arc::new(Renderer::new(&case, |_| body.clone()).unwrap());
        let turn = Prompt {
            text: "hi".into(),
            ..Prompt::default()
        };
        let prompts: Arc<dyn Prompts> = Arc::new(Same(Session {
            turns: vec![turn; turns],
        }));
        let class = TrafficClass {
            entry: None,
            case,
            prompts: prompts.clone(),
            tokenizer: None,
            renderer,
        };
        ClassSource {
            class: Arc::new(class),
            prompts,
            seed: Seed(1),
            endpoints: EndpointSelector::new(None, Seed(1)),
        }
    }

    #[test]
    fn every_turn_draws_its_length() {
        let source = source("{ max_tokens: { uniform: [1, 1000000] } }", 3);
        let drawn = |number, turn| {
            let mut prompt = Prompt {
                tokens: Some(9),
                ..Prompt::default()
            };
            set_lengths(
                &source,
                &mut prompt,
                RequestPosition {
                    number,
                    turn,
                    turns: 3,
                    ..RequestPosition::default()
                },
            );
            assert_eq!(
                prompt.tokens, None,
                "the tokens of a turn are not those of the conversation"
            );
            prompt.max_tokens.unwrap()
        };
        let lengths: HashSet<u64> = (0..10)
            .flat_map(|seq| [drawn(seq, 1), drawn(seq, 2)])
            .collect();
        assert_eq!((lengths.len(), drawn(3, 2)), (20, drawn(3, 2)));
        let mut fixed = Prompt {
            max_tokens: Some(7),
            ..Prompt::default()
        };
        set_lengths(
            &source,
            &mut fixed,
            RequestPosition {
                turn: 1,
                turns: 3,
                ..RequestPosition::default()
            },
        );
        assert_eq!(
            fixed.max_tokens,
            Some(7),
            "the dataset overrides the scenario"
        );
    }

    #[test]
    fn turns_are_limited_by_the_scenario() {
        let session = Session {
            turns: vec![Prompt::default(); 5],
        };
        let cut = |max| {
            turn_count(
                &session,
                Some(&Turns {
                    max,
                    ..Turns::default()
                }),
            )
        };
        assert_eq!(
            (
                turn_count(&session, None),
                cut(None),
                cut(Some(2)),
                cut(Some(9)),
                cut(Some(0))
            ),
            (5, 5, 2, 5, 1)
        );
    }

    #[test]
    fn a_turn_that_cannot_be_rendered_halts_the_round_and_is_its_error() {
        let halt = Stop::default();
        let (failing, mut failed) = oneshot::channel();
        let turn_renderer =
            TurnRenderer::start(vec![source("{ max_tokens: 5 }", 2)], halt.clone()).unwrap();
        let position = |seq| RequestPosition {
            seq,
            turn: 1,
            turns: 2,
            entry: 0,
            number: seq,
        };
        let request = |rendered, seq| TurnRequest {
            position: position(seq),
            conversation: None,
            reply: Message::default(),
            rendered,
        };
        turn_renderer
            .turn_requests
            .send_blocking(request(failing, 100))
            .unwrap();
        let (good, mut rendered) = oneshot::channel();
        turn_renderer
            .turn_requests
            .send_blocking(request(good, 1))
            .unwrap();
        assert!(matches!(
            turn_renderer.finish(),
            Err(RunError::Session { seq: 100 })
        ));
        assert!(
            failed
                .try_recv()
                .unwrap()
                .is_err_and(|message| message.contains("session 100"))
        );
        assert!(
            rendered.try_recv().unwrap().is_ok(),
            "other turns are still rendered"
        );
        assert_eq!(halt.level(), Level::Drain);
    }
}
