use super::*;
use crate::replay::decode;
use crate::{Message, laws};
use llmscen_core::api::Api;

const START: &str = "event: message_start\ndata: \
    {\"type\":\"message_start\",\"message\":{\"id\":\"m\",\"usage\":{\"input_tokens\":3,\"output_tokens\":1}}}\n\n";
const HI: &str = "event: content_block_delta\ndata: \
    {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"hi\"}}\n\n";
const REASON: &str = "event: message_delta\ndata: \
    {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"max_tokens\"},\"usage\":{\"output_tokens\":7}}\n\n";
const STOP: &str = "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n";

fn run(stream: &[&str]) -> (Events, Reply) {
    decode(
        Api::Anthropic,
        Framing::Sse,
        [stream.concat().as_bytes()],
        None,
    )
}

/// The end in one line: the finish reason, or kind, place and message.
fn end(stream: &[&str]) -> String {
    summarize(run(stream).1)
}

fn whole(body: &str) -> Reply {
    decode(Api::Anthropic, Framing::Json, [body.as_bytes()], None).1
}

fn summarize(reply: Reply) -> String {
    match reply.end {
        Ok(finish) => finish.reason,
        Err(failure) => format!("{} ({}): {}", failure.kind, failure.at, failure.message),
    }
}

#[test]
fn system_message_and_key_have_separate_fields() {
    let body = json!({ "model": "{{ model }}", "messages": "{{ dialog }}", "system": "{{ system }}", "stream": true });
    assert_eq!(Anthropic.body(true), body);
    assert_eq!(Anthropic.body(false)["stream"], false);
    let version = ("anthropic-version", "2023-06-01".to_owned());
    assert_eq!(
        Anthropic.headers(Some("k"), true),
        [("x-api-key", "k".to_owned()), version.clone()]
    );
    assert_eq!(Anthropic.headers(None, false), [version]);
}

#[test]
fn a_stream_is_complete_with_a_stop_reason_and_its_marker() {
    assert_eq!(end(&[START, HI, REASON, STOP]), "max_tokens");
    assert_eq!(
        end(&[START, HI, REASON, STOP, "event: error\ndata: late\n\n"]),
        "max_tokens"
    );
    assert_eq!(
        end(&[START, HI, REASON]),
        "truncated (after 3 events): the stream ended before `message_stop`"
    );
    assert_eq!(
        end(&[START, HI, STOP]),
        "truncated (after 3 events): the stream ended without a stop reason"
    );
    assert_eq!(
        end(&[START, REASON, STOP]),
        "max_tokens",
        "a reason without content is an instant stop"
    );
    assert_eq!(
        end(&[]),
        "truncated (after 0 events): the stream ended before `message_stop`"
    );
}

#[test]
fn an_error_in_band_is_the_reason_and_the_good_part_is_kept() {
    for error in [
        "event: error\ndata: \
        {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"Overloaded\"}}\n\n",
        "data: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"Overloaded\"}}\n\n",
    ] {
        let (events, reply) = run(&[START, HI, error, REASON, STOP]);
        assert_eq!(
            (events.content, reply.text.as_deref(), reply.id.as_deref()),
            (1, Some("hi"), Some("m"))
        );
        assert_eq!(summarize(reply), "stream_error (event 3): Overloaded");
    }
    let decode_failure =
        "decode (event 2): the JSON cannot be read (expected value at line 1 column 1): oops";
    assert_eq!(
        end(&[START, "data: oops\n\n", HI, REASON, STOP]),
        decode_failure
    );
}

#[test]
fn tokens_of_the_prompt_are_those_read_from_and_written_to_the_cache_too() {
    let usage = |counts: &str| {
        whole(&format!(
            "{{\"content\":[{{\"type\":\"text\",\"text\":\"a\"}}],\"usage\":{counts}}}"
        ))
        .usage
    };
    let of = |prompt, output, cached| Usage {
        prompt,
        output,
        reasoning: None,
        cached,
    };
    assert_eq!(
        usage(
            r#"{"input_tokens":7,"cache_creation_input_tokens":100,"cache_read_input_tokens":2000,"output_tokens":9}"#
        ),
        of(Some(2107), Some(9), Some(2000))
    );
    assert_eq!(
        usage(r#"{"input_tokens":7,"cache_read_input_tokens":null,"output_tokens":0}"#),
        of(Some(7), Some(0), None)
    );
    assert_eq!(
        usage(r#"{"cache_read_input_tokens":5}"#),
        of(None, None, Some(5))
    );
    assert_eq!(usage("null"), Usage::default());
    let counted = run(&[START, HI, REASON, STOP]).1.usage;
    assert_eq!(
        counted,
        of(Some(3), Some(7), None),
        "the last running count"
    );
    let again = REASON.replace(
        "\"output_tokens\":7",
        "\"input_tokens\":4,\"output_tokens\":8",
    );
    assert_eq!(
        run(&[START, HI, REASON, &again, STOP]).1.usage,
        of(Some(4), Some(8), None)
    );
}

#[test]
fn a_later_count_of_zero_replaces_none() {
    let zeros = REASON.replace(
        "\"output_tokens\":7",
        "\"input_tokens\":0,\"output_tokens\":0",
    );
    let usage = run(&[START, HI, REASON, &zeros, STOP]).1.usage;
    assert_eq!((usage.prompt, usage.output), (Some(3), Some(7)));
}

#[test]
fn an_output_count_that_falls_is_not_used() {
    let count = |tokens: u64| REASON.replace(":7}", &format!(":{tokens}}}"));
    let usage = |counts: [u64; 2]| {
        let [first, second] = counts.map(count);
        let reply = run(&[START, HI, &first, HI, &second, STOP]).1;
        let kinds = reply.facts.anomalies.iter().map(|anomaly| anomaly.kind);
        (reply.usage.output, kinds.collect::<Vec<_>>())
    };
    assert_eq!(usage([7, 40]), (Some(40), vec![]));
    assert_eq!(usage([40, 7]), (None, vec![AnomalyKind::FallingOutput]));
    assert_eq!(usage([40, 0]), (Some(40), vec![]), "0 after a count");
}

#[test]
fn redacted_reasoning_is_no_token_event() {
    let redacted = "data: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"redacted_thinking\",\"data\":\"x9\"}}\n\n";
    let (events, reply) = run(&[START, redacted, HI, REASON, STOP]);
    assert_eq!((events.content, events.reasoning), (1, 0));
    assert!(!reply.facts.reasoning_received);
}

#[test]
fn characters_of_calls_count() {
    let start = "data: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"tool_use\",\"id\":\"t\",\"name\":\"f\",\"input\":{}}}\n\n";
    let delta = "data: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"input_json_delta\",\"partial_json\":\"{\\\"é\\\":1}\"}}\n\n";
    let (events, reply) = run(&[START, start, delta, REASON, STOP]);
    assert_eq!((events.content, reply.facts.characters), (2, 8));
    assert_eq!(reply.text.as_deref(), Some("f{\"é\":1}"));
    let reply = whole(
        r#"{"content":[{"type":"tool_use","id":"t","name":"f","input":{"é":1}}],"stop_reason":"tool_use"}"#,
    );
    assert_eq!(reply.facts.characters, 8);
}

#[test]
fn a_message_can_be_fed_back_streamed_or_whole() {
    let weather = json!({ "type": "tool_use", "id": "toolu_01", "name": "get_weather", "input": { "city": "Paris" } });
    let now = json!({ "type": "tool_use", "id": "toolu_02", "name": "now", "input": {} });
    for (name, tool_calls) in [
        ("anthropic.tools.sse", json!([weather, now])),
        ("anthropic.tools.json", json!([weather])),
    ] {
        let message = Message {
            content: "I ask.".into(),
            reasoning: "Let me look.".into(),
            tool_calls,
        };
        assert_eq!(laws::reply(name).1.message, Some(message), "{name}");
    }
    assert_eq!(
        laws::reply("anthropic.text.sse").1.id.as_deref(),
        Some("msg_1nZd")
    );
}

#[test]
fn what_the_server_did_itself_is_neither_content_nor_fed_back() {
    let result = r#"{"type":"web_search_tool_result","tool_use_id":"s","content":[{"type":"web_search_result","title":"x"}]}"#;
    let citation =
        r#"{"type":"citations_delta","citation":{"type":"char_location","cited_text":"x"}}"#;
    let search = r#"{"type":"server_tool_use","id":"s","name":"web_search","input":{}}"#;
    let events = [
        ("content_block_start", "content_block", result),
        ("content_block_delta", "delta", citation),
    ];
    let mut stream: String = events
        .iter()
        .map(|(kind, key, value)| format!("data: {{\"type\":\"{kind}\",\"{key}\":{value}}}\n\n"))
        .collect();
    assert_eq!(run(&[&stream]).0.content, 0);
    stream.push_str(&format!(
        "data: {{\"type\":\"content_block_start\",\"index\":1,\"content_block\":{search}}}\n\n"
    ));
    let (events, reply) = run(&[&stream]);
    assert_eq!(
        (events.content, reply.text.as_deref()),
        (1, Some("web_search")),
        "the model asked for it"
    );
    assert_eq!(reply.message.unwrap().tool_calls, Value::Null);
}

#[test]
fn a_reply_needs_a_content_list() {
    assert_eq!(
        summarize(whole(
            r#"{"content":[{"type":"text","text":"a"}],"stop_reason":"end_turn"}"#
        )),
        "end_turn"
    );
    assert_eq!(
        summarize(whole(
            r#"{"content":[{"type":"text","text":""}],"stop_reason":"end_turn"}"#
        )),
        "end_turn"
    );
    assert_eq!(
        summarize(whole(r#"{"object":"list"}"#)),
        "decode (): the reply has no content"
    );
    let (_, error) = laws::reply("anthropic.error.json");
    assert_eq!(
        summarize(error),
        "stream_error (): max_tokens: Field required"
    );
}
