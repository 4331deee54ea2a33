//! What each API reads from a request, and what it rejects.

use super::*;
use crate::generation::{Fields, Finish};
use crate::http::Request;
use crate::stored::StoredResponses;
use llmscen_core::seed::Seed;
use llmscen_core::simulator::{Faults, Simulator};
use serde_json::Value;

const CHAT: &str = "/v1/chat/completions";

fn reasoning(reasoning_tokens: u32) -> Faults {
    Faults {
        reasoning_tokens,
        ..Faults::default()
    }
}

fn read_with(path: &str, body: &str, headers: &[(&str, &str)]) -> Result<Generation, Refusal> {
    read_under(
        &Simulator {
            faults: reasoning(3),
            ..Simulator::default()
        },
        path,
        body,
        headers,
    )
}

fn read_under(
    config: &Simulator,
    path: &str,
    body: &str,
    headers: &[(&str, &str)],
) -> Result<Generation, Refusal> {
    let (protocol, path) = protocol_for(path).unwrap();
    let headers = headers
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect();
    let request = Request {
        method: "POST".into(),
        path: path.into(),
        close: false,
        headers,
        websocket: false,
        conversation: Default::default(),
        body: Vec::new(),
    };
    let body: Value = serde_json::from_str(body).unwrap();
    let body = Fields::new(body.as_object().unwrap());
    let call = Call {
        path,
        request: &request,
        body,
        file: None,
        id: "x",
        config,
        stored: &StoredResponses::default(),
        seed: Seed(1),
    };
    protocol.read(&call).map(|(generation, _)| generation)
}

fn read(path: &str, body: &str) -> Result<Generation, Refusal> {
    read_with(path, body, &[])
}

fn chat(fields: &str) -> Result<Generation, Refusal> {
    read(
        CHAT,
        &format!(r#"{{"messages":[{{"role":"user","content":"12345"}}]{fields}}}"#),
    )
}

fn tokens(path: &str, body: &str) -> Result<u64, String> {
    read(path, body)
        .map(|generation| generation.prompt.tokens())
        .map_err(|refusal| refusal.param.unwrap())
}

#[test]
fn every_path_has_one_protocol() {
    let all: Vec<&str> = paths().collect();
    let mut distinct = all.clone();
    distinct.sort_unstable();
    distinct.dedup();
    assert_eq!((distinct.len(), all.len()), (17, 17));
    assert!(
        all.iter()
            .all(|path| protocol_for(path).unwrap().1 == *path)
    );
    assert!(protocol_for("/v1/chat/completions/").is_none() && protocol_for("/v1/chat").is_none());
}

#[test]
fn lengths_follow_the_limits() {
    let length = |fields: &str| {
        chat(fields)
            .map(|generation| (generation.output, generation.finish))
            .map_err(|refusal| refusal.param.unwrap())
    };
    assert_eq!(length(""), Ok((64, Finish::Stop)));
    assert_eq!(length(r#","min_tokens":90"#), Ok((90, Finish::Stop)));
    assert_eq!(
        length(r#","max_tokens":7,"stop":["x"],"ignore_eos":true,"tools":[{}]"#),
        Ok((7, Finish::Length))
    );
    assert_eq!(
        length(r#","max_tokens":7,"max_completion_tokens":3"#),
        Ok((3, Finish::Length))
    );
    assert_eq!(length(r#","max_tokens":0"#), Err("max_tokens".into()));
    assert_eq!(length(r#","max_tokens":-1"#), Err("max_tokens".into()));
    assert_eq!(
        length(r#","max_tokens":3,"min_tokens":4"#),
        Err("min_tokens".into())
    );
    assert_eq!(chat(r#","max_tokens":2"#).unwrap().reasoning, 2);
    let longer = Simulator {
        default_output_tokens: 1,
        faults: reasoning(3),
        ..Simulator::default()
    };
    let body = r#"{"messages":[{"role":"user","content":"x"}],"min_tokens":9}"#;
    assert_eq!(
        read_under(&longer, CHAT, body, &[])
            .map(|generation| (generation.output, generation.reasoning)),
        Ok((9, 3))
    );
    let dashscope = r#"{"input":{"prompt":"x"},"parameters":{"max_tokens":5}}"#;
    let limited = [
        ("/v1/responses", r#"{"input":"x","max_output_tokens":5}"#, 3),
        (
            "/v1/messages",
            r#"{"messages":[{"role":"user","content":"x"}],"max_tokens":5}"#,
            3,
        ),
        (
            "/api/v1/services/aigc/text-generation/generation",
            dashscope,
            3,
        ),
        (
            "/api/chat",
            r#"{"messages":[{"role":"user","content":"x"}],"options":{"num_predict":5}}"#,
            3,
        ),
        (
            "/generate",
            r#"{"inputs":"x","parameters":{"max_new_tokens":5}}"#,
            0,
        ),
        ("/v1/completions", r#"{"prompt":"x","max_tokens":5}"#, 0),
    ];
    for (path, body, reasoning) in limited {
        let generation = read(path, body).unwrap();
        assert_eq!(
            (
                generation.output,
                generation.finish,
                generation.reasoning,
                generation.choices
            ),
            (5, Finish::Length, reasoning, 1),
            "{path}"
        );
    }
    let endless = read(
        "/api/generate",
        r#"{"prompt":"x","options":{"num_predict":-1}}"#,
    )
    .unwrap();
    assert_eq!((endless.output, endless.finish), (64, Finish::Stop));
}

#[test]
fn prompts_count_by_bytes_ids_and_media() {
    let completion =
        |prompt: &str| tokens("/v1/completions", &format!(r#"{{"prompt":{prompt}}}"#)).ok();
    let prompts = [
        r#""""#,
        r#""123456789""#,
        "[5,6,7]",
        "[[5,6]]",
        r#"["1234"]"#,
        r#"["a","b"]"#,
        "[]",
        "3",
        "null",
    ];
    let counts = [
        Some(1),
        Some(3),
        Some(3),
        Some(2),
        Some(1),
        None,
        None,
        None,
        None,
    ];
    assert_eq!(prompts.map(completion), counts);
    let responses = |input: &str| {
        tokens(
            "/v1/responses",
            &format!(r#"{{"instructions":"1234","input":{input}}}"#),
        )
        .ok()
    };
    let items = r#"[{"role":"user","content":[{"type":"input_text","text":"1234"},{"type":"input_image","image_url":"x"}]},
        {"type":"function_call_output","call_id":"c","output":"12345678"}]"#;
    assert_eq!(
        [r#""12345678""#, items, "[]", "[3]", "5"].map(responses),
        [Some(3), Some(260), None, None, None]
    );
    let system = r#"{"max_tokens":1,"system":[{"type":"text","text":"1234"}],"messages":[{"role":"user","content":"1234"}]}"#;
    assert_eq!(tokens("/v1/messages", system), Ok(2));
    assert_eq!(
        tokens(
            "/api/generate",
            r#"{"system":"1234","prompt":"5","images":["x"]}"#
        ),
        Ok(258)
    );
    assert_eq!(
        tokens(
            "/api/v1/services/aigc/text-generation/generation",
            r#"{"input":{}}"#
        ),
        Err("input.messages".into())
    );
}

#[test]
fn pooled_requests_count_every_input_and_pair() {
    let embeddings =
        |input: &str| tokens("/v1/embeddings", &format!(r#"{{"input":{input}}}"#)).ok();
    let inputs = [
        r#""12345""#,
        r#"["12345","1",""]"#,
        "[1,2,3]",
        "[[1,2],[3]]",
        r#"["a",[1]]"#,
        "[]",
        "[[]]",
        r#"["a",3]"#,
        "{}",
    ];
    let counts = [
        Some(2),
        Some(4),
        Some(3),
        Some(3),
        Some(2),
        None,
        None,
        None,
        None,
    ];
    assert_eq!(inputs.map(embeddings), counts);
    let rerank = |fields: &str| tokens("/rerank", &format!(r#"{{"query":"1234"{fields}}}"#));
    assert_eq!(rerank(r#","documents":["1234",{"text":"12345"}]"#), Ok(5));
    assert_eq!(rerank(r#","documents":[]"#), Err("documents".into()));
    assert_eq!(rerank(r#","documents":[5]"#), Err("documents".into()));
    let generation = read(
        "/v1/embeddings",
        r#"{"input":"x","stream":true,"max_tokens":9}"#,
    )
    .unwrap();
    assert_eq!(
        (
            generation.pooled,
            generation.stream,
            generation.output,
            generation.reasoning
        ),
        (true, false, 1, 0)
    );
}

#[test]
fn each_api_decides_whether_to_stream() {
    let messages = r#""messages":[{"role":"user","content":"x"}]"#;
    let ollama = |fields: &str| {
        read("/api/chat", &format!("{{{messages}{fields}}}"))
            .unwrap()
            .stream
    };
    assert_eq!(
        ["", r#","stream":true"#, r#","stream":false"#].map(ollama),
        [true, true, false]
    );
    let tgi = |path| read(path, r#"{"inputs":"x"}"#).unwrap().stream;
    assert_eq!([tgi("/generate_stream"), tgi("/generate")], [true, false]);
    let path = "/api/v1/services/aigc/text-generation/generation";
    let dashscope = |headers: &[(&str, &str)]| {
        read_with(path, r#"{"input":{"prompt":"x"}}"#, headers)
            .unwrap()
            .stream
    };
    let both = ("accept", "text/event-stream, application/json");
    assert!(!dashscope(&[]) && !dashscope(&[both]));
    assert!(
        dashscope(&[both, ("x-dashscope-sse", "enable")])
            && dashscope(&[("accept", "text/event-stream")])
    );
    assert!(!dashscope(&[
        ("accept", "text/event-stream"),
        ("x-dashscope-sse", "disable")
    ]));
}

#[test]
fn wrong_fields_are_refused_by_name() {
    let cases = [
        (
            r#","stream":"yes""#,
            "stream",
            "`stream` must be true or false, not \"yes\"",
        ),
        (r#","n":17"#, "n", "`n` must be from 1 to 16, not 17"),
        (r#","n":0"#, "n", "`n` must be from 1 to 16, not 0"),
        (r#","model":4"#, "model", "`model` must be text, not 4"),
        (
            r#","stream_options":true"#,
            "stream_options",
            "`stream_options` must be an object",
        ),
        (
            r#","messages":[]"#,
            "messages",
            "`messages` must be a list of at least one message",
        ),
        (
            r#","messages":["hi"]"#,
            "messages",
            "`messages` must hold objects with a `role` and a `content` of text or parts",
        ),
    ];
    for (fields, param, message) in cases {
        assert_eq!(
            chat(fields),
            Err(Refusal {
                status: 400,
                message: message.into(),
                param: Some(param.into()),
                code: None,
            })
        );
    }
    let refused = [
        (
            "/v1/messages",
            r#"{"messages":[{"role":"user","content":"x"}]}"#,
            400,
            "`max_tokens` is missing",
        ),
        (
            "/generate",
            r#"{"parameters":{}}"#,
            422,
            "`inputs` is missing",
        ),
        (
            "/api/generate",
            r#"{"options":{"num_predict":0},"prompt":"x"}"#,
            400,
            "`options.num_predict` must be at least 1",
        ),
        (
            "/v1/embeddings",
            r#"{"input":"x","dimensions":0}"#,
            400,
            "`dimensions` must be from 1 to 16384",
        ),
        (
            "/v1/embeddings",
            r#"{"input":"x","encoding_format":"hex"}"#,
            400,
            "`encoding_format` must be `float` or `base64`",
        ),
        (
            "/v2/rerank",
            r#"{"documents":["x"]}"#,
            400,
            "`query` is missing",
        ),
    ];
    for (path, body, status, message) in refused {
        let refusal = read(path, body).unwrap_err();
        assert_eq!(
            (refusal.status, refusal.message.as_str()),
            (status, message)
        );
    }
}

#[test]
fn errors_have_the_shape_of_their_protocol() {
    let refusal = Refusal {
        status: 400,
        message: "say \"please\"".into(),
        param: Some("n".into()),
        code: None,
    };
    let error = |path: &str| {
        serde_json::from_str::<Value>(&protocol_for(path).unwrap().0.error(&refusal, Some("id-1")))
            .unwrap()
    };
    let message = "say \"please\"";
    let openai = serde_json::json!({ "error": { "message": message, "type": "invalid_request_error",
        "param": "n", "code": 400 } });
    for path in [
        CHAT,
        "/v1/completions",
        "/v1/responses",
        "/v1/embeddings",
        "/v2/rerank",
    ] {
        assert_eq!(error(path), openai);
    }
    let anthropic = serde_json::json!({
        "type": "error", "error": { "type": "invalid_request_error", "message": message }, "request_id": "id-1",
    });
    assert_eq!(error("/v1/messages"), anthropic);
    let dashscope =
        serde_json::json!({ "code": "InvalidParameter", "message": message, "request_id": "id-1" });
    assert_eq!(
        error("/api/v1/services/aigc/text-generation/generation"),
        dashscope
    );
    assert_eq!(
        error("/api/generate"),
        serde_json::json!({ "error": message })
    );
    assert_eq!(
        error("/generate"),
        serde_json::json!({ "error": message, "error_type": "validation" })
    );
}
