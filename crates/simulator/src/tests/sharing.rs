//! The prefix cache: prefixes of earlier prompts cost no prefill.

use super::client::{Client, fast, serving};
use crate::engine::{Engine, Job};
use llmscen_core::seed::Seed;
use llmscen_core::simulator::Simulator;
use llmscen_core::units::Nanos;
use serde_json::{Value, json};

fn config() -> Simulator {
    Simulator {
        block_tokens: 2,
        prefix_cache: true,
        ..fast()
    }
}

fn job(id: u64, prompt: u64, blocks: &[u64]) -> Job {
    Job {
        id,
        prompt,
        output: 1,
        blocks: blocks.to_vec(),
    }
}

#[test]
fn cached_blocks_cost_no_prefill_and_the_last_token_always_does() {
    let config = Simulator {
        alpha: Nanos(100),
        beta: Nanos(1),
        kv_blocks: 8,
        ..config()
    };
    let mut engine = Engine::new(&config, Seed(1));
    let mut now = Nanos::ZERO;
    let mut serve = |job: Job| {
        let cached = engine.take(job, now).unwrap();
        let end = engine.begin(now).unwrap();
        engine.complete(&mut Vec::new());
        let took = end.since(now);
        now = end;
        (cached, took.0)
    };
    assert_eq!(serve(job(0, 7, &[1, 2, 3])), (0, 107));
    assert_eq!(serve(job(1, 7, &[1, 2, 3])), (6, 101));
    assert_eq!(
        serve(job(2, 6, &[1, 2, 3])),
        (4, 102),
        "of six tokens the last two are computed: one, and its block"
    );
    assert_eq!(serve(job(3, 9, &[1, 2, 9, 8])), (4, 105));
    assert_eq!(
        serve(job(4, 9, &[7, 2, 3, 8])),
        (0, 109),
        "a prefix begins at the beginning"
    );
    assert_eq!(serve(job(5, 9, &[])), (0, 109));
    assert_eq!(engine.occupancy().blocks, 0);
}

#[test]
fn a_prompt_is_shared_once_it_is_computed_and_counts_its_blocks() {
    let config = Simulator {
        alpha: Nanos(100),
        beta: Nanos(1),
        kv_blocks: 4,
        ..config()
    };
    let mut engine = Engine::new(&config, Seed(1));
    assert_eq!(engine.take(job(0, 7, &[1, 2, 3]), Nanos::ZERO), Ok(0));
    assert_eq!(
        engine.take(job(1, 7, &[1, 2, 3]), Nanos::ZERO),
        Ok(0),
        "nothing is computed yet"
    );
    let mut now = Nanos::ZERO;
    while let Some(end) = engine.begin(now) {
        assert!(engine.occupancy().blocks <= 4);
        engine.complete(&mut Vec::new());
        now = end;
    }
    // Three shared blocks and one more: it waits until all four are free.
    engine.submit(2, 3, 3, now).unwrap();
    assert_eq!(engine.take(job(3, 7, &[1, 2, 3]), now), Ok(6));
    let mut order = Vec::new();
    while let Some(end) = engine.begin(now) {
        assert!(engine.occupancy().blocks <= 4);
        engine.complete(&mut order);
        now = end;
    }
    assert_eq!(
        order.iter().map(|token| token.id).collect::<Vec<_>>(),
        [2, 2, 2, 3]
    );
}

fn cached(usage: &Value) -> &Value {
    &usage["prompt_tokens_details"]["cached_tokens"]
}

#[test]
fn shared_prefixes_and_further_turns_are_reported() {
    let server = serving(&config());
    let mut client = Client::connect(&server);
    let mut generation = |messages: &[&str]| {
        let messages: Vec<Value> = messages
            .iter()
            .map(|text| json!({ "role": "user", "content": text }))
            .collect();
        client
            .post(
                "/v1/chat/completions",
                &json!({ "messages": messages, "max_tokens": 1 }).to_string(),
            )
            .json()["usage"]
            .clone()
    };
    let first = "1234567812345678";
    assert_eq!(cached(&generation(&[first])), 0);
    assert_eq!(cached(&generation(&[first, "reply", "and more"])), 4);
    assert_eq!(cached(&generation(&[first, "reply", "and more"])), 6);
    assert_eq!(cached(&generation(&["12345678", "other words"])), 2);
    assert_eq!(cached(&generation(&["other words"])), 0);
    let mut client = Client::connect(&server);
    let usage = |answer: Value| answer["usage"].clone();
    let messages =
        format!(r#"{{"max_tokens":1,"messages":[{{"role":"user","content":"{first}!"}}]}}"#);
    let anthropic = usage(client.post("/v1/messages", &messages).json());
    let expected = json!({ "input_tokens": 1, "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 4, "output_tokens": 1 });
    assert_eq!(anthropic, expected);
    let responses = usage(
        client
            .post("/v1/responses", &format!(r#"{{"input":"{first}!"}}"#))
            .json(),
    );
    assert_eq!(
        responses["input_tokens_details"],
        json!({ "cached_tokens": 4 })
    );
    let path = "/api/v1/services/aigc/text-generation/generation";
    let dashscope = usage(
        client
            .post(path, &format!(r#"{{"input":{{"prompt":"{first}!"}}}}"#))
            .json(),
    );
    assert_eq!(
        (cached(&dashscope), &dashscope["input_tokens"]),
        (&json!(4), &json!(5))
    );
    let ids = r#"{"prompt":[1,2,3,4,5],"max_tokens":1,"n":2}"#;
    assert_eq!(
        cached(&usage(client.post("/v1/completions", ids).json())),
        0
    );
    assert_eq!(
        cached(&usage(client.post("/v1/completions", ids).json())),
        4
    );
}
