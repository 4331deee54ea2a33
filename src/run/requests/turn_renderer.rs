//! Renders the later turns of sessions on a thread of its own: a reply comes in, the next request goes out.

use crate::run::error::RunError;
use crate::run::execution::stop::Stop;
use crate::run::requests::client_cancel::draw_client_cancel;
use crate::run::requests::conversation::Conversation;
use crate::run::requests::traffic_class::TrafficClass;
use crate::run::requests::{RequestPosition, call};
use async_channel::{Receiver, Sender, unbounded};
use llmscen_core::call::Call;
use llmscen_core::dataset::Turns;
use llmscen_core::prompt::{Prompt, Session};
use llmscen_core::schedule::wait::wait;
use llmscen_core::seed::Seed;
use llmscen_core::stats::length_distribution::draw;
use llmscen_core::units::Nanos;
use llmscen_datasets::{Prompts, tokens_of};
use llmscen_protocols::Message;
use llmscen_telemetry::process::stand_behind;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use std::sync::Arc;
use std::thread::JoinHandle;
use tokio::sync::oneshot;

/// A turn is over; what is the next one?
pub struct TurnRequest {
    /// The next turn's place.
    pub place: RequestPosition,
    /// The conversation so far; None after the first turn.
    pub conversation: Option<Box<Conversation>>,
    /// The reply that came.
    pub reply: Message,
    /// Where the next turn goes; an error in words means that it cannot be made.
    pub answer: oneshot::Sender<Result<RenderedTurn, String>>,
}

/// A later turn, ready to be sent.
pub struct RenderedTurn {
    /// The request.
    pub call: Call,
    /// Time after the end of the turn before at which it is due.
    pub wait: Nanos,
    /// The conversation, for the turn after it.
    pub conversation: Box<Conversation>,
}

/// Where the later turns of a traffic class come from.
pub struct TurnSource {
    class: Arc<TrafficClass>,
    prompts: Arc<dyn Prompts>,
    seed: Seed,
}

/// How many of a session's turns are played.
pub fn turn_count(session: &Session, turns: Option<&Turns>) -> u32 {
    let most = turns.and_then(|turns| turns.max).unwrap_or(u32::MAX).max(1);
    u32::try_from(session.turns.len()).unwrap_or(u32::MAX).min(most)
}

impl TurnSource {
    /// The source of one round of a class, from the prompts of its first turns and the seed of the round.
    pub fn new(class: Arc<TrafficClass>, prompts: Arc<dyn Prompts>, round: Seed) -> TurnSource {
        TurnSource { seed: class.seed(round), class, prompts }
    }

    fn next(
        &self,
        place: RequestPosition,
        conversation: Option<Box<Conversation>>,
        reply: &Message,
    ) -> Result<RenderedTurn, RunError> {
        let changed = RunError::Session { seq: place.seq };
        let (case, turns) = (&self.class.case, self.class.case.dataset.turns.as_ref());
        let begun =
            || self.prompts.session(place.number).and_then(|session| Conversation::begin(session, case.target.api)).map(Box::new);
        let Some(mut conversation) = conversation.or_else(begun) else { return Err(changed) };
        let mut prompt = conversation.next(reply, turns.is_some_and(|turns| turns.keep_reasoning)).ok_or(changed)?;
        self.measure(&mut prompt, place);
        prompt.group = self.class.group(prompt.group);
        let think = || turns?.think_time.map(|own| wait(own, self.seed, place.number, place.turn));
        let wait = prompt.wait.or_else(think).unwrap_or_default();
        let rendered = self.class.renderer.body(&prompt, place.number, self.seed)?;
        let leave = draw_client_cancel(case.request.cancel.as_ref(), self.seed, place, &prompt.fields);
        Ok(RenderedTurn { call: call(prompt, place, rendered, None, leave), wait, conversation })
    }

    /// Lengths are each turn's own: the tokens of its whole prompt, and a `max_tokens` drawn for it alone.
    fn measure(&self, prompt: &mut Prompt, place: RequestPosition) {
        let (case, tokenizer) = (&self.class.case, &self.class.tokenizer);
        prompt.tokens = tokenizer.as_ref().and_then(|own| tokens_of(prompt, own, case.dataset.system.as_deref()));
        prompt.approximate = tokenizer.as_ref().is_some_and(|tokenizer| tokenizer.approximate());
        if let (Some(quantity), None) = (&case.request.max_tokens, prompt.max_tokens) {
            let seed = self.seed.child("max_tokens").child(place.number).child(u64::from(place.turn));
            prompt.max_tokens = draw(quantity, &prompt.fields, &mut ChaCha8Rng::seed_from_u64(seed.0)).filter(|n| *n >= 1);
        }
    }
}

/// The running thread.
pub struct TurnRenderer {
    /// Where workers ask.
    pub turn_requests: Sender<TurnRequest>,
    thread: JoinHandle<Result<(), RunError>>,
}

impl TurnRenderer {
    /// Starts it, with the source of each class. Where a turn cannot be made `halt` is pressed: the round is given up, and kept.
    pub fn start(sources: Vec<TurnSource>, halt: Stop) -> Result<TurnRenderer, RunError> {
        let (turn_requests, queue) = unbounded();
        let thread = std::thread::Builder::new().name("turns".into()).spawn(move || {
            stand_behind();
            write(&sources, &queue, &halt)
        });
        Ok(TurnRenderer { turn_requests, thread: thread.map_err(RunError::Thread)? })
    }

    /// Waits for its end, which comes when no worker can ask any more; an error is the first turn that could not be made.
    pub fn finish(self) -> Result<(), RunError> {
        drop(self.turn_requests);
        self.thread.join().map_err(|_| RunError::Panicked("turns"))?
    }
}

fn write(sources: &[TurnSource], queue: &Receiver<TurnRequest>, halt: &Stop) -> Result<(), RunError> {
    let mut fault = Ok(());
    while let Ok(TurnRequest { place, conversation, reply, answer }) = queue.recv_blocking() {
        let source = sources.get(place.entry).ok_or(RunError::Session { seq: place.seq });
        let next = source.and_then(|source| source.next(place, conversation, &reply));
        // A worker that has given the session up does not listen.
        let _ = answer.send(next.map_err(|error| {
            halt.press();
            let words = error.to_string();
            fault = std::mem::replace(&mut fault, Ok(())).and(Err(error));
            words
        }));
    }
    fault
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::execution::stop::Level;
    use llmscen_core::plan::Plan;
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
        load(&Input { path: Path::new("x.yaml"), text: Some(text), env: &BTreeMap::new(), set: &[] }).unwrap().plan
    }

    fn source(request: &str, turns: usize) -> TurnSource {
        let mut case = plan(request).cases.remove(0);
        case.dataset.turns = Some(Turns::default());
        let body = json!({ "model": "{{ model }}", "messages": "{{ messages }}" });
        let renderer = Arc::new(Renderer::new(&case, |_| body.clone()).unwrap());
        let turn = Prompt { text: "hi".into(), ..Prompt::default() };
        let prompts: Arc<dyn Prompts> = Arc::new(Same(Session { turns: vec![turn; turns] }));
        let class = TrafficClass { entry: None, case, prompts: prompts.clone(), tokenizer: None, renderer };
        TurnSource::new(Arc::new(class), prompts, Seed(1))
    }

    #[test]
    fn every_turn_draws_a_length_of_its_own() {
        let source = source("{ max_tokens: { uniform: [1, 1000000] } }", 3);
        let drawn = |number, turn| {
            let mut prompt = Prompt { tokens: Some(9), ..Prompt::default() };
            source.measure(&mut prompt, RequestPosition { number, turn, turns: 3, ..RequestPosition::default() });
            assert_eq!(prompt.tokens, None, "a turn's own words are not its whole prompt");
            prompt.max_tokens.unwrap()
        };
        let all: HashSet<u64> = (0..10).flat_map(|seq| [drawn(seq, 1), drawn(seq, 2)]).collect();
        assert_eq!((all.len(), drawn(3, 2)), (20, drawn(3, 2)));
        let mut own = Prompt { max_tokens: Some(7), ..Prompt::default() };
        source.measure(&mut own, RequestPosition { turn: 1, turns: 3, ..RequestPosition::default() });
        assert_eq!(own.max_tokens, Some(7), "the data goes before the scenario");
    }

    #[test]
    fn turns_are_cut_where_the_scenario_says_so() {
        let session = Session { turns: vec![Prompt::default(); 5] };
        let cut = |max| turn_count(&session, Some(&Turns { max, ..Turns::default() }));
        assert_eq!((turn_count(&session, None), cut(None), cut(Some(2)), cut(Some(9)), cut(Some(0))), (5, 5, 2, 5, 1));
    }

    #[test]
    fn a_turn_that_cannot_be_made_halts_the_round_and_ends_as_its_error() {
        let (halt, (answer, mut answered)) = (Stop::default(), oneshot::channel());
        let turn_renderer = TurnRenderer::start(vec![source("{ max_tokens: 5 }", 2)], halt.clone()).unwrap();
        let place = |seq| RequestPosition { seq, turn: 1, turns: 2, entry: 0, number: seq };
        let ask = |answer, seq| TurnRequest { place: place(seq), conversation: None, reply: Message::default(), answer };
        turn_renderer.turn_requests.send_blocking(ask(answer, 100)).unwrap();
        let (good, mut made) = oneshot::channel();
        turn_renderer.turn_requests.send_blocking(ask(good, 1)).unwrap();
        assert!(matches!(turn_renderer.finish(), Err(RunError::Session { seq: 100 })));
        assert!(answered.try_recv().unwrap().is_err_and(|words| words.contains("session 100")));
        assert!(made.try_recv().unwrap().is_ok(), "those that can be made still are");
        assert_eq!(halt.level(), Level::Drain);
    }
}
