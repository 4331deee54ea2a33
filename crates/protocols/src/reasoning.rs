//! Where reasoning ends and the answer begins, in every protocol that tells them apart.

use crate::Shape::{Lines, Stream};
use crate::replay::decode;
use llmscen_core::api::Api;

/// Events as one body of server-sent events.
fn events(all: &[&str]) -> String {
    all.iter().map(|event| format!("data: {event}\n\n")).collect()
}

#[test]
fn the_events_before_the_answer_are_counted_in_every_protocol() {
    let thought = r#"{"choices":[{"index":0,"delta":{"reasoning_content":"a"}}]}"#;
    let other = r#"{"choices":[{"index":0,"delta":{"reasoning":"b"}}]}"#;
    let answer = r#"{"choices":[{"index":0,"delta":{"content":"c"}}]}"#;
    let both = r#"{"choices":[{"index":0,"delta":{"reasoning_content":"a","content":"c"}}]}"#;
    let call = r#"{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"name":"f"}}]}}]}"#;
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
        (Api::OpenaiChat, Stream, chat(&[thought, other, answer, thought]), (4, 2)),
        // The second event is like the first, and takes the short way.
        (Api::OpenaiChat, Stream, chat(&[thought, thought, call]), (3, 2)),
        (Api::OpenaiChat, Stream, chat(&[both, thought]), (2, 0)),
        (Api::OpenaiChat, Stream, chat(&[thought, thought]), (2, 2)),
        (Api::OpenaiChat, Stream, chat(&[answer, answer]), (2, 0)),
        (Api::Anthropic, Stream, anthropic, (3, 2)),
        (Api::OpenaiResponses, Stream, responses, (3, 2)),
        (Api::Dashscope, Stream, dashscope, (3, 2)),
        (Api::Ollama, Lines, ollama.to_owned(), (3, 2)),
    ] {
        let (seen, _) = decode(api, shape, [body.as_bytes()], None);
        assert_eq!((seen.content, seen.reasoning), known, "{api} {body}");
    }
}
