use super::*;
use crate::run::stop::Level;
use llmscen_core::dataset::BeginAt;
use llmscen_core::endpoint::EndpointSelector;
use llmscen_core::plan::Plan;
use llmscen_datasets::Prompts;
use llmscen_requests::render::Renderer;
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
    let prompts: Arc<dyn Prompts> = Arc::new(Same(vec![turn; turns].into()));
    let class = TrafficClass {
        answers: None,
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
            true,
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
        true,
    );
    assert_eq!(
        fixed.max_tokens,
        Some(7),
        "the dataset overrides the scenario"
    );
}

#[test]
fn sessions_are_limited_by_the_scenario_and_begin_where_it_says() {
    let session = Session::from(vec![Prompt::default(); 8]);
    let draw = |turns: Option<Turns>, number| {
        let range = TurnRange::draw(&session, turns.as_ref(), Seed(1), number);
        (range.first_sent(), range.first, range.turns)
    };
    let limited = |max| {
        Some(Turns {
            max: Some(max),
            ..Turns::default()
        })
    };
    assert_eq!(draw(None, 0), (0, 0, 8));
    assert_eq!(
        [0, 2, 9].map(|max| draw(limited(max), 0)),
        [(0, 0, 1), (0, 0, 2), (0, 0, 8)]
    );
    let begun = |low, high, number| {
        let turns = Turns {
            begin: Some(BeginAt { low, high }),
            ..Turns::default()
        };
        draw(Some(turns), number)
    };
    // The turn before the first measured one fills the prefix cache.
    assert_eq!(begun(0.5, 0.5, 0), (3, 4, 8));
    assert_eq!(begun(0.0, 0.0, 0), (0, 0, 8));
    assert_eq!(begun(1.0, 1.0, 0), (6, 7, 8));
    let firsts: HashSet<u32> = (0..200).map(|number| begun(0.25, 0.75, number).1).collect();
    assert_eq!(firsts, (2..=5).collect());
    assert_eq!(begun(0.25, 0.75, 7), begun(0.25, 0.75, 7));
}

#[test]
fn a_turn_that_cannot_be_rendered_halts_the_round_and_is_its_error() {
    let halt = Stop::default();
    let (failing, mut failed) = oneshot::channel();
    let conversations = [(); 2].map(|()| SharedConversation::default());
    let turn_renderer =
        TurnRenderer::start(vec![source("{ max_tokens: 5 }", 2)], halt.clone()).unwrap();
    let position = |seq| RequestPosition {
        seq,
        turn: 1,
        turns: 2,
        number: seq,
        ..RequestPosition::default()
    };
    let request = |rendered, seq| TurnRequest {
        position: position(seq),
        conversation: conversations[(seq == 99) as usize].clone(),
        ended: vec![TurnReply::default()],
        rendered,
    };
    turn_renderer
        .turn_requests
        .send_blocking(request(failing, 100))
        .unwrap();
    // The receiver of this turn is closed, so the turn is not rendered.
    let (left, _) = oneshot::channel();
    turn_renderer
        .turn_requests
        .send_blocking(request(left, 99))
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
    assert!(conversations[1].lock().unwrap().is_none());
}
