//! Complete replies without content, in every protocol: with a finish reason they are good, without one they are `empty`.

use crate::Shape::{Lines, Stream, Whole};
use crate::replay::decode;
use crate::spec::end;
use crate::{Events, protocol};
use llmscen_core::api::Api;
use llmscen_core::outcome::FailureKind;
use llmscen_core::request::Extract;

#[test]
fn an_instant_stop_is_good_in_every_protocol() {
    let chat = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"\"},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";
    let message = "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"m\",\"content\":[]}}\n\n\
                   event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"}}\n\n\
                   event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n";
    let completed = r#"{"id":"r","status":"completed","output":[]}"#;
    let responses = format!("data: {{\"type\":\"response.completed\",\"response\":{completed}}}\n\n");
    let generated = r#"{"output":{"choices":[{"finish_reason":"stop","message":{"content":""}}]}}"#;
    let dashscope = format!("data: {generated}\n\n");
    let tgi = "data:{\"token\":{\"text\":\"</s>\",\"special\":true},\"generated_text\":\"\",\"details\":{\"finish_reason\":\"eos_token\"}}\n\n";
    for (api, shape, body, reason) in [
        (Api::OpenaiChat, Stream, chat, "stop"),
        (Api::OpenaiChat, Whole, r#"{"choices":[{"message":{"content":""},"finish_reason":"stop"}]}"#, "stop"),
        (
            Api::OpenaiChat,
            Whole,
            r#"{"choices":[{"message":{"content":null},"finish_reason":"content_filter"}]}"#,
            "content_filter",
        ),
        (Api::OpenaiCompletions, Whole, r#"{"choices":[{"text":"","finish_reason":"length"}]}"#, "length"),
        (Api::OpenaiResponses, Stream, &responses, "completed"),
        (Api::OpenaiResponses, Whole, completed, "completed"),
        (Api::Anthropic, Stream, message, "end_turn"),
        (Api::Anthropic, Whole, r#"{"content":[],"stop_reason":"end_turn"}"#, "end_turn"),
        (Api::Dashscope, Stream, &dashscope, "stop"),
        (Api::Dashscope, Whole, generated, "stop"),
        (Api::Ollama, Lines, r#"{"message":{"content":""},"done":true,"done_reason":"stop"}"#, "stop"),
        (Api::Ollama, Whole, r#"{"message":{"content":""},"done":true,"done_reason":"stop"}"#, "stop"),
        (Api::Tgi, Stream, tgi, "eos_token"),
        (Api::Tgi, Whole, r#"{"generated_text":"","details":{"finish_reason":"eos_token"}}"#, "eos_token"),
    ] {
        let (events, reply) = decode(api, shape, [body.as_bytes()], None);
        assert_eq!((events.content, end(&reply).as_str(), reply.silent), (0, reason, true), "{api} {body}");
    }
}

#[test]
fn without_a_reason_it_is_empty_and_what_has_content_is_not_silent() {
    for (api, shape, body) in [
        (Api::OpenaiChat, Whole, r#"{"choices":[{"message":{"content":""}}]}"#),
        (Api::OpenaiCompletions, Whole, r#"{"choices":[{"text":"","finish_reason":null}],"usage":{"completion_tokens":4}}"#),
        (Api::Anthropic, Whole, r#"{"content":[]}"#),
        (Api::Dashscope, Whole, r#"{"output":{"choices":[{"finish_reason":"null","message":{"content":""}}]}}"#),
        (Api::Ollama, Lines, r#"{"message":{"content":""},"done":true}"#),
        (Api::Ollama, Lines, r#"{"message":{"content":""},"done":true,"done_reason":"load"}"#),
        (Api::Tgi, Whole, r#"{"generated_text":""}"#),
    ] {
        let (_, reply) = decode(api, shape, [body.as_bytes()], None);
        assert_eq!(reply.end.unwrap_err().kind, FailureKind::Empty, "{api} {body}");
    }
    let said = r#"{"choices":[{"message":{"content":"a"},"finish_reason":"stop"}]}"#;
    assert!(!decode(Api::OpenaiChat, Whole, [said.as_bytes()], None).1.silent);
}

#[test]
fn a_custom_reply_is_good_with_what_its_finish_path_finds() {
    let of = |body: &str| {
        let extract = Extract { text: vec!["$.text".into()], finish: Some("$.why".into()), ..Extract::default() };
        let mut decoder = protocol(Api::Custom, Some(&extract)).unwrap().decoder(Whole, false);
        let mut events = Events::default();
        decoder.push(body.as_bytes(), &mut events);
        decoder.finish(&mut events, None).end.map(|finish| finish.reason).map_err(|failure| failure.kind)
    };
    assert_eq!(of(r#"{"text":"","why":"stop"}"#), Ok("stop".to_owned()));
    assert_eq!(of(r#"{"text":""}"#), Err(FailureKind::Empty));
}
