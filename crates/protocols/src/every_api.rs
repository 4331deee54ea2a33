//! Rules that hold for every API: replies without content, and the boundary between reasoning and answer.

use crate::replay::decode;
use crate::spec::end;
use crate::{DecodeOptions, Events, protocol};
use llmscen_core::api::Api;
use llmscen_core::outcome::FailureKind;
use llmscen_core::request::Framing::{Json, Ndjson, Sse};
use llmscen_core::request::{Extract, RequestSpec};

#[test]
fn an_instant_stop_is_good_in_every_protocol() {
    let chat = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"\"},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";
    let message = "event: message_start\ndata: \
                   {\"type\":\"message_start\",\"message\":{\"id\":\"m\",\"content\":[]}}\n\nevent: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"}}\n\nevent: message_stop\ndata: {\"type\":\"message_stop\"}\n\n";
    let completed = r#"{"id":"r","status":"completed","output":[]}"#;
    let responses =
        format!("data: {{\"type\":\"response.completed\",\"response\":{completed}}}\n\n");
    let generated = r#"{"output":{"choices":[{"finish_reason":"stop","message":{"content":""}}]}}"#;
    let dashscope = format!("data: {generated}\n\n");
    let tgi = "data:{\"token\":{\"text\":\"</s>\",\"special\":true},\"generated_text\":\"\",\"details\":{\"finish_reason\":\"eos_token\"}}\n\n";
    for (api, shape, body, reason) in [
        (Api::OpenaiChat, Sse, chat, "stop"),
        (
            Api::OpenaiChat,
            Json,
            r#"{"choices":[{"message":{"content":""},"finish_reason":"stop"}]}"#,
            "stop",
        ),
        (
            Api::OpenaiChat,
            Json,
            r#"{"choices":[{"message":{"content":null},"finish_reason":"content_filter"}]}"#,
            "content_filter",
        ),
        (
            Api::OpenaiCompletions,
            Json,
            r#"{"choices":[{"text":"","finish_reason":"length"}]}"#,
            "length",
        ),
        (Api::OpenaiResponses, Sse, &responses, "completed"),
        (Api::OpenaiResponses, Json, completed, "completed"),
        (Api::Anthropic, Sse, message, "end_turn"),
        (
            Api::Anthropic,
            Json,
            r#"{"content":[],"stop_reason":"end_turn"}"#,
            "end_turn",
        ),
        (Api::Dashscope, Sse, &dashscope, "stop"),
        (Api::Dashscope, Json, generated, "stop"),
        (
            Api::Ollama,
            Ndjson,
            r#"{"message":{"content":""},"done":true,"done_reason":"stop"}"#,
            "stop",
        ),
        (
            Api::Ollama,
            Json,
            r#"{"message":{"content":""},"done":true,"done_reason":"stop"}"#,
            "stop",
        ),
        (Api::Tgi, Sse, tgi, "eos_token"),
        (
            Api::Tgi,
            Json,
            r#"{"generated_text":"","details":{"finish_reason":"eos_token"}}"#,
            "eos_token",
        ),
    ] {
        let (events, reply) = decode(api, shape, [body.as_bytes()], None);
        assert_eq!(
            (events.content, end(&reply).as_str(), reply.silent),
            (0, reason, true),
            "{api} {body}"
        );
    }
}

#[test]
fn without_a_reason_it_is_empty_and_what_has_content_is_not_silent() {
    for (api, shape, body) in [
        (
            Api::OpenaiChat,
            Json,
            r#"{"choices":[{"message":{"content":""}}]}"#,
        ),
        (
            Api::OpenaiCompletions,
            Json,
            r#"{"choices":[{"text":"","finish_reason":null}],"usage":{"completion_tokens":4}}"#,
        ),
        (Api::Anthropic, Json, r#"{"content":[]}"#),
        (
            Api::Dashscope,
            Json,
            r#"{"output":{"choices":[{"finish_reason":"null","message":{"content":""}}]}}"#,
        ),
        (
            Api::Ollama,
            Ndjson,
            r#"{"message":{"content":""},"done":true}"#,
        ),
        (
            Api::Ollama,
            Ndjson,
            r#"{"message":{"content":""},"done":true,"done_reason":"load"}"#,
        ),
        (Api::Tgi, Json, r#"{"generated_text":""}"#),
    ] {
        let (_, reply) = decode(api, shape, [body.as_bytes()], None);
        assert_eq!(
            reply.end.unwrap_err().kind,
            FailureKind::Empty,
            "{api} {body}"
        );
    }
    let said = r#"{"choices":[{"message":{"content":"a"},"finish_reason":"stop"}]}"#;
    assert!(
        !decode(Api::OpenaiChat, Json, [said.as_bytes()], None)
            .1
            .silent
    );
}

#[test]
fn a_custom_reply_is_good_with_what_its_finish_path_finds() {
    let of = |body: &str| {
        let extract = Extract {
            text: vec!["$.text".into()],
            finish: Some("$.why".into()),
            ..Extract::default()
        };
        let request = RequestSpec {
            extract: Some(extract),
            ..RequestSpec::default()
        };
        let mut decoder = protocol(Api::Custom, Some(&request))
            .unwrap()
            .decoder(Json, &DecodeOptions::default());
        let mut events = Events::default();
        decoder.push(body.as_bytes(), &mut events);
        decoder
            .finish(&mut events, None)
            .end
            .map(|finish| finish.reason)
            .map_err(|failure| failure.kind)
    };
    assert_eq!(of(r#"{"text":"","why":"stop"}"#), Ok("stop".to_owned()));
    assert_eq!(of(r#"{"text":""}"#), Err(FailureKind::Empty));
}

/// Events as one body of server-sent events.
fn events(all: &[&str]) -> String {
    all.iter()
        .map(|event| format!("data: {event}\n\n"))
        .collect()
}

#[test]
fn the_events_before_the_answer_are_counted_in_every_protocol() {
    let thought = r#"{"choices":[{"index":0,"delta":{"reasoning_content":"a"}}]}"#;
    let other = r#"{"choices":[{"index":0,"delta":{"reasoning":"b"}}]}"#;
    let answer = r#"{"choices":[{"index":0,"delta":{"content":"c"}}]}"#;
    let both = r#"{"choices":[{"index":0,"delta":{"reasoning_content":"a","content":"c"}}]}"#;
    let call =
        r#"{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"name":"f"}}]}}]}"#;
    let chat = |all: &[&str]| events(all);
    let anthropic = events(&[
        r#"{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"a"}}"#,
        r#"{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"b"}}"#,
        r#"{"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"c"}}"#,
    ]);
    let responses = events(&[
        r#"{"type":"response.reasoning_text.delta","output_index":0,"delta":"a"}"#,
        r#"{"type":"response.reasoning_summary_text.delta","output_index":0,"delta":"b"}"#,
        r#"{"type":"response.output_text.delta","output_index":1,"delta":"c"}"#,
    ]);
    let dashscope = events(&[
        r#"{"output":{"choices":[{"message":{"reasoning_content":"a","content":""}}]}}"#,
        r#"{"output":{"choices":[{"message":{"reasoning_content":"b","content":""}}]}}"#,
        r#"{"output":{"choices":[{"message":{"reasoning_content":"","content":"c"}}]}}"#,
    ]);
    let ollama = "{\"message\":{\"thinking\":\"a\"}}\n{\"message\":{\"thinking\":\"b\"}}\n{\"message\":{\"content\":\"c\"}}\n";
    for (api, shape, body, known) in [
        (
            Api::OpenaiChat,
            Sse,
            chat(&[thought, other, answer, thought]),
            (4, 2),
        ),
        // The second event is like the first, and takes the short way.
        (
            Api::OpenaiChat,
            Sse,
            chat(&[thought, thought, call]),
            (3, 2),
        ),
        (Api::OpenaiChat, Sse, chat(&[both, thought]), (2, 0)),
        (Api::OpenaiChat, Sse, chat(&[thought, thought]), (2, 2)),
        (Api::OpenaiChat, Sse, chat(&[answer, answer]), (2, 0)),
        (Api::Anthropic, Sse, anthropic, (3, 2)),
        (Api::OpenaiResponses, Sse, responses, (3, 2)),
        (Api::Dashscope, Sse, dashscope, (3, 2)),
        (Api::Ollama, Ndjson, ollama.to_owned(), (3, 2)),
    ] {
        let (seen, _) = decode(api, shape, [body.as_bytes()], None);
        assert_eq!((seen.content, seen.reasoning), known, "{api} {body}");
    }
}
