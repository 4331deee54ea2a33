use super::*;
use crate::DecodeOptions;
use crate::replay::decode;
use llmscen_core::api::Api;

fn run(body: &str, broken: Option<Failure>) -> Reply {
    let (events, reply) = decode(
        Api::OpenaiCompletions,
        Framing::Json,
        [body.as_bytes()],
        broken,
    );
    assert_eq!(events, Events::default());
    reply
}

fn end(body: &str) -> String {
    match run(body, None).end {
        Ok(finish) => finish.reason,
        Err(failure) => format!("{}: {}", failure.kind, failure.message),
    }
}

#[test]
fn a_reply_needs_choices_and_content_but_no_reason() {
    assert_eq!(
        end(r#"{"choices":[{"text":"a","finish_reason":"stop"}]}"#),
        "stop"
    );
    assert_eq!(end(r#"{"choices":[{"text":"a"}]}"#), "");
    assert_eq!(end(r#"{"choices":[]}"#), "decode: the reply has no choices");
    assert_eq!(
        end(r#"{"object":"list"}"#),
        "decode: the reply has no choices"
    );
    assert_eq!(end(r#"{"error":{"message":"no"}}"#), "stream_error: no");
    assert_eq!(
        end(""),
        "decode: the JSON cannot be read (EOF while parsing a value at line 1 column 0): "
    );
    assert_eq!(
        end("<html>"),
        "decode: the JSON cannot be read (expected value at line 1 column 1): <html>"
    );
}

#[test]
fn counted_tokens_without_text_and_reason_are_empty_and_the_counts_are_kept() {
    let reply = run(
        r#"{"choices":[{"text":""}],"usage":{"completion_tokens":4}}"#,
        None,
    );
    assert_eq!(reply.end.unwrap_err().kind, FailureKind::Empty);
    assert_eq!(reply.usage.output, Some(4));
}

#[test]
fn a_broken_body_is_not_read() {
    let reset = Failure::new(FailureKind::Truncated, "reset");
    assert_eq!(
        run(r#"{"choices":[{"text":"a"}]}"#, Some(reset.clone())).end,
        Err(reset)
    );
}

#[test]
fn a_body_past_the_bound_is_dropped() {
    let mut whole = Box::new(Unary::with_limit(
        3 << 20,
        crate::chat::ChatMessages::new(&DecodeOptions::default()),
    ));
    let mut events = Events::default();
    whole.push(&[b' '; 2 << 20], &mut events);
    whole.push(&[b' '; 2 << 20], &mut events);
    assert_eq!(whole.body.capacity(), 0);
    assert_eq!(
        whole.finish(&mut events, None).end.unwrap_err().message,
        "the body is larger than 3 MiB"
    );
}
