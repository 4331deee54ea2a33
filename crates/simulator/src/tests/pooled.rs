//! Embeddings and rerank, which take one prefill.

use super::client::{Answer, Client, fast, serving, simulator};
use crate::truth::End;
use crate::virtual_time::{Arrival, run};
use base64::Engine;
use llmscen_core::seed::Seed;
use llmscen_core::simulator::{Faults, Simulator};
use llmscen_core::units::Nanos;
use serde_json::{Value, json};
use std::io::ErrorKind;

fn floats(values: &Value) -> Vec<f32> {
    values
        .as_array()
        .unwrap()
        .iter()
        .map(|value| value.as_f64().unwrap() as f32)
        .collect()
}

fn embed(fields: &str) -> Answer {
    Client::connect(&simulator(Faults::default()))
        .post("/v1/embeddings", &format!(r#"{{"model":"m"{fields}}}"#))
}

#[test]
fn each_input_gets_a_vector_of_length_one() {
    let answer = embed(r#","input":["123456789","x"],"dimensions":5"#);
    assert!(
        answer.head.contains("content-type: application/json\r\n")
            && answer.head.contains("x-request-id: embd-sim-0\r\n")
    );
    let mut whole = answer.json();
    let vectors: Vec<Vec<f32>> = (0..2)
        .map(|index| floats(&whole["data"][index]["embedding"]))
        .collect();
    for (index, vector) in vectors.iter().enumerate() {
        assert_eq!(vector.len(), 5);
        assert!((vector.iter().map(|x| x * x).sum::<f32>() - 1.0).abs() < 1e-5);
        whole["data"][index]["embedding"] = Value::Null;
    }
    assert_ne!(vectors[0], vectors[1]);
    let item = |index: u64| json!({ "object": "embedding", "index": index, "embedding": null });
    let expected = json!({
        "id": "embd-sim-0", "object": "list", "created": 1_700_000_000, "model": "m", "data": [item(0), item(1)],
        "usage": { "prompt_tokens": 4, "total_tokens": 4 },
    });
    assert_eq!(whole, expected);
}

#[test]
fn base64_holds_the_same_floats() {
    let plain = floats(&embed(r#","input":[1,2,3]"#).json()["data"][0]["embedding"]);
    let packed = embed(r#","input":[1,2,3],"encoding_format":"base64""#).json();
    let bytes = base64::engine::general_purpose::STANDARD
        .decode(packed["data"][0]["embedding"].as_str().unwrap())
        .unwrap();
    let unpacked: Vec<f32> = bytes
        .chunks_exact(4)
        .map(|four| f32::from_le_bytes(four.try_into().unwrap()))
        .collect();
    assert_eq!(
        (
            plain.len(),
            &plain,
            packed["usage"]["prompt_tokens"].as_u64()
        ),
        (64, &unpacked, Some(3))
    );
}

#[test]
fn results_are_the_best_first() {
    let server = simulator(Faults::default());
    let mut client = Client::connect(&server);
    let body = r#"{"model":"m","query":"1234","documents":["a \"b\"",{"text":"12345"},"c"]"#;
    let all = client.post("/v1/rerank", &format!("{body}}}")).json();
    let scores: Vec<f64> = all["results"]
        .as_array()
        .unwrap()
        .iter()
        .map(|r| r["relevance_score"].as_f64().unwrap())
        .collect();
    assert!(
        scores.iter().rev().is_sorted() && scores.iter().all(|score| (0.0..1.0).contains(score)),
        "{scores:?}"
    );
    let mut indices: Vec<u64> = all["results"]
        .as_array()
        .unwrap()
        .iter()
        .map(|r| r["index"].as_u64().unwrap())
        .collect();
    let texts = ["a \"b\"", "12345", "c"];
    for (at, index) in indices.iter().enumerate() {
        assert_eq!(
            all["results"][at]["document"],
            json!({ "text": texts[*index as usize] })
        );
    }
    indices.sort_unstable();
    assert_eq!(indices, [0, 1, 2]);
    // Pairs of 4 + 5, 4 + 5 and 4 + 1 bytes.
    assert_eq!(
        (&all["id"], &all["model"], &all["usage"]),
        (
            &json!("rerank-sim-0"),
            &json!("m"),
            &json!({ "total_tokens": 8 })
        )
    );
    for path in ["/rerank", "/v2/rerank"] {
        let few = client
            .post(
                path,
                &format!(r#"{body},"top_n":2,"return_documents":false}}"#),
            )
            .json();
        let results = few["results"].as_array().unwrap();
        assert!(
            results.len() == 2
                && results
                    .iter()
                    .all(|result| result.get("document").is_none()),
            "{few}"
        );
    }
}

#[test]
fn they_cost_their_prefill_and_generate_nothing() {
    let config = Simulator {
        alpha: Nanos::from_millis(3),
        beta: Nanos::from_millis(1),
        ..fast()
    };
    let server = serving(&config);
    let mut client = Client::connect(&server);
    let tokens = client
        .post("/v1/embeddings", r#"{"input":["12345678","123456789012"]}"#)
        .json()["usage"]["total_tokens"]
        .as_u64();
    assert_eq!(tokens, Some(5));
    // The engine takes exactly 3 ms + 5 × 1 ms in virtual time; no write can be earlier.
    let served = run(
        &config,
        Seed(7),
        &[Arrival {
            at: Nanos::ZERO,
            prompt: 5,
            output: 1,
        }],
    );
    assert_eq!(served[0].tokens, [Nanos::from_millis(8)]);
    let record = server.truth().get(0).unwrap();
    assert_eq!(
        (record.end, record.path, record.writes.len()),
        (Some(End::Done), "/v1/embeddings", 1)
    );
    assert_eq!(
        (record.writes[0].tokens, record.headers_at),
        (1, Some(record.writes[0].at))
    );
    assert!(record.writes[0].at.since(record.received_at) >= Nanos::from_millis(8));
    let page = client.get("/metrics").body();
    for line in [
        "vllm:prompt_tokens_total{model_name=\"sim\"} 5",
        "vllm:generation_tokens_total{model_name=\"sim\"} 0",
        "vllm:time_to_first_token_seconds_count{model_name=\"sim\"} 0",
        "vllm:e2e_request_latency_seconds_sum{model_name=\"sim\"} 0.008",
    ] {
        assert!(
            page.lines().any(|own| own.starts_with(line)),
            "{line} is not in\n{page}"
        );
    }
}

#[test]
fn faults_apply_as_for_other_replies() {
    let struck = |faults: Faults| {
        let server = simulator(faults);
        let answer = Client::connect(&server).post("/v1/embeddings", r#"{"input":"x"}"#);
        let end = server.truth().get(0).unwrap().end;
        (answer.status, answer.broken, end)
    };
    let none = Faults::default;
    assert_eq!(
        struck(Faults {
            error: 1.0,
            error_status: 503,
            ..none()
        }),
        (503, None, Some(End::Status(503)))
    );
    assert_eq!(
        struck(Faults {
            stream_error: 1.0,
            ..none()
        }),
        (200, None, Some(End::StreamError))
    );
    assert_eq!(
        struck(Faults {
            reset: 1.0,
            ..none()
        }),
        (200, Some(ErrorKind::ConnectionReset), Some(End::Reset))
    );
    assert_eq!(
        struck(Faults {
            truncate: 1.0,
            ..none()
        }),
        (200, Some(ErrorKind::UnexpectedEof), Some(End::Truncated))
    );
    let stall_for = Nanos::from_millis(1);
    assert_eq!(
        struck(Faults {
            stall: 1.0,
            stall_for,
            ..none()
        }),
        (200, None, Some(End::Done))
    );
}
