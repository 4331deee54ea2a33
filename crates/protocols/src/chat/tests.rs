use super::*;
use crate::Message;
use crate::accumulator::MAX_CHOICES;
use llmscen_core::outcome::ServerTimes;
use llmscen_core::units::Nanos;

fn add(messages: &mut ChatMessages, events: &[&str]) -> Events {
    let mut seen = Events::default();
    events
        .iter()
        .for_each(|event| messages.add_json(event.as_bytes(), &mut seen).unwrap());
    seen
}

fn options(keep_text: bool) -> DecodeOptions {
    DecodeOptions {
        keep_text,
        ..DecodeOptions::default()
    }
}

fn weights(messages: &ChatMessages) -> Vec<u32> {
    let mut events = Events::default();
    messages.close(&mut events);
    events.weights
}

fn messages(events: &[&str]) -> ChatMessages {
    let mut messages = ChatMessages::new(&options(true));
    add(&mut messages, events);
    messages
}

fn reply(events: &[&str]) -> Reply {
    messages(events).reply(Ok(Finish::default()))
}

fn output(events: &[&str]) -> Option<u64> {
    messages(events).accumulator.usage().output
}

#[test]
fn usage_is_the_last_one_or_the_sum_of_one_a_choice() {
    let one = r#"{"choices":[{"index":0}],"usage":{"completion_tokens":3}}"#;
    let two = r#"{"choices":[{"index":1}],"usage":{"completion_tokens":4}}"#;
    let more = r#"{"choices":[{"index":1}],"usage":{"completion_tokens":5}}"#;
    let alone = r#"{"choices":[],"usage":{"completion_tokens":7}}"#;
    assert_eq!(output(&[one]), Some(3));
    assert_eq!(output(&[one, alone]), Some(7));
    assert_eq!(
        output(&[one, alone, alone]),
        Some(7),
        "the same total twice"
    );
    assert_eq!(
        output(&[one, two, more]),
        Some(8),
        "one running count a choice"
    );
    assert_eq!(
        output(&[one, two, alone]),
        Some(7),
        "running counts, then the total"
    );
    assert_eq!(
        output(&[one, two, alone, alone]),
        Some(14),
        "one count a choice"
    );
    assert_eq!(
        output(&[r#"{"choices":[{"index":0},{"index":1}],"usage":{"completion_tokens":9}}"#]),
        Some(9)
    );
    assert_eq!(output(&[r#"{"choices":[{"index":0}],"usage":null}"#]), None);
}

#[test]
fn every_choice_with_content_is_an_event_of_its_own() {
    let mut messages = ChatMessages::new(&options(false));
    let seen = add(
        &mut messages,
        &[
            r#"{"choices":[{"index":0,"delta":{"content":"a"}}]}"#,
            r#"{"choices":[{"index":1,"delta":{"content":"b"}},{"index":0,"delta":{"content":"c"}}]}"#,
            r#"{"choices":[{"index":0,"delta":{}},{"index":1,"delta":{"reasoning":"d"}},{"index":2,"delta":{"content":""}}]}"#,
            r#"{"choices":[{"index":2,"text":"e"}]}"#,
        ],
    );
    assert_eq!(
        (seen.content, seen.choices, weights(&messages)),
        (5, vec![0, 0, 1, 1, 2], vec![])
    );
}

#[test]
fn running_counts_weigh_the_events_whoever_they_count() {
    let event = |index: u32, count: u32| {
        format!(
            r#"{{"choices":[{{"index":{index},"text":"a"}}],"usage":{{"completion_tokens":{count}}}}}"#
        )
    };
    let read = |counts: &[(u32, u32)], last: &str| {
        let mut events: Vec<String> = counts
            .iter()
            .map(|&(index, count)| event(index, count))
            .collect();
        events.push(last.to_owned());
        let messages = messages(&events.iter().map(String::as_str).collect::<Vec<_>>());
        (weights(&messages), messages.accumulator.usage().output)
    };
    let nothing = r#"{"choices":[]}"#;
    assert_eq!(read(&[(0, 1), (0, 4)], nothing), (vec![1, 3], Some(4)));
    assert_eq!(
        read(&[(0, 2), (1, 1), (1, 4), (0, 3)], nothing),
        (vec![2, 1, 3, 1], Some(7)),
        "of choices"
    );
    assert_eq!(
        read(&[(0, 1), (1, 3), (1, 4), (0, 6)], nothing),
        (vec![1, 2, 1, 2], Some(6)),
        "of the request"
    );
    let total = r#"{"choices":[],"usage":{"completion_tokens":10}}"#;
    assert_eq!(
        read(&[(0, 1), (1, 3), (1, 4), (0, 6)], total),
        (vec![1, 3, 1, 5], Some(10)),
        "of choices, by their sum"
    );
    assert_eq!(
        read(&[(0, 1)], r#"{"choices":[{"text":"b"}]}"#),
        (vec![], Some(1)),
        "an event without a count"
    );
    let both = r#"{"choices":[{"index":0,"text":"a"},{"index":1,"text":"b"}],"usage":{"completion_tokens":5}}"#;
    assert_eq!(read(&[(0, 1)], both).0, [0; 0], "one count for two choices");
}

#[test]
fn text_is_kept_choice_by_choice() {
    let reply = reply(&[
        r#"{"id":"","choices":[{"index":1,"delta":{"content":"x"}}]}"#,
        r#"{"id":"r","choices":[{"index":0,"delta":{"content":"a"}}]}"#,
        r#"{"id":"s","choices":[{"index":1,"delta":{"content":"y"}}]}"#,
        r#"{"id":"r","choices":[{"index":0,"delta":{"content":"b"}}]}"#,
    ]);
    assert_eq!(
        (reply.text.as_deref(), reply.id.as_deref()),
        (Some("abxy"), Some("r"))
    );
    assert_eq!(
        reply.message,
        Some(Message {
            content: "ab".into(),
            ..Message::default()
        })
    );
}

#[test]
fn reasoning_and_audio_are_distinguished_from_the_answer() {
    let reply = reply(&[
        r#"{"choices":[{"delta":{"reasoning_content":"r"}}]}"#,
        r#"{"choices":[{"delta":{"content":"a"}}]}"#,
        r#"{"choices":[{"delta":{"audio":{"id":"x","transcript":"b","data":"AAAA"}}}]}"#,
        r#"{"choices":[{"index":1,"delta":{"reasoning":"s","content":"c"}}]}"#,
    ]);
    assert_eq!(reply.text.as_deref(), Some("rabsc"));
    assert_eq!(
        reply.message,
        Some(Message {
            content: "ab".into(),
            reasoning: "r".into(),
            tool_calls: Value::Null
        })
    );
}

#[test]
fn streamed_tool_calls_equal_those_of_a_reply() {
    let calls = json!([
        { "id": "c0", "type": "function", "function": { "name": "f", "arguments": "{\"a\":1}" } },
        { "id": "c1", "type": "function", "function": { "name": "g", "arguments": "{}" } },
    ]);
    let streamed = reply(&[
        r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"c0","type":"function","function":{"name":"f","arguments":""}}]}}]}"#,
        r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{\"a\""}}]}}]}"#,
        r#"{"choices":[{"delta":{"tool_calls":[{"index":1,"id":"c1","type":"function","function":{"name":"g","arguments":"{}"}}]}}]}"#,
        r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"","function":{"name":"f","arguments":":1}"}}]}}]}"#,
    ]);
    assert_eq!(streamed.message.unwrap().tool_calls, calls);
    assert_eq!(streamed.text.as_deref(), Some("f{\"a\":1}g{}"));
    let unnumbered = reply(&[
        r#"{"choices":[{"delta":{"tool_calls":[{"id":"c0","type":"function","function":{"name":"f","arguments":"{\"a\""}}]}}]}"#,
        r#"{"choices":[{"delta":{"tool_calls":[{"function":{"arguments":":1}"}}]}}]}"#,
        r#"{"choices":[{"delta":{"tool_calls":[{"id":"c1","function":{"name":"g","arguments":"{}"}}]}}]}"#,
    ]);
    assert_eq!(unnumbered.message.unwrap().tool_calls, calls);
    let whole =
        json!({ "choices": [{ "message": { "content": null, "tool_calls": calls } }] }).to_string();
    assert_eq!(reply(&[&whole]).message.unwrap().tool_calls, calls);
    let custom = json!([{ "id": "c", "type": "custom", "custom": { "name": "f", "input": "x" } }]);
    let whole = json!({ "choices": [{ "message": { "tool_calls": custom } }] }).to_string();
    assert_eq!(reply(&[&whole]).message.unwrap().tool_calls, custom);
}

#[test]
fn server_times_are_those_of_the_longest_choice() {
    let server = reply(&[
        r#"{"choices":[{"text":"a"}],"timings":{"prompt_ms":0.5,"predicted_ms":2}}"#,
        r#"{"choices":[{"text":"a"}],"timings":{"prompt_ms":0.25,"predicted_ms":3}}"#,
    ])
    .server;
    let expected = ServerTimes {
        prefill: Some(Nanos(500_000)),
        decode: Some(Nanos(3_000_000)),
        ..ServerTimes::default()
    };
    assert_eq!(server, expected);
}

#[test]
fn every_choice_needs_a_reason_that_is_none_of_giving_up() {
    let kind = |events: &[&str]| {
        messages(events)
            .ending(true)
            .map(|finish| finish.reason)
            .map_err(|failure| failure.kind)
    };
    let open = r#"{"choices":[{"index":1,"text":"a","finish_reason":""}]}"#;
    let stop = r#"{"choices":[{"index":0,"text":"a","finish_reason":"stop"}]}"#;
    let length = r#"{"choices":[{"index":1,"text":"","finish_reason":"length"}]}"#;
    let abort = r#"{"choices":[{"index":1,"text":"","finish_reason":"abort"}]}"#;
    assert_eq!(kind(&[stop, open]), Err(FailureKind::Truncated));
    assert_eq!(kind(&[open, length, stop]), Ok("stop".to_owned()));
    assert_eq!(kind(&[stop, abort]), Err(FailureKind::StreamError));
    assert_eq!(kind(&[length]), Ok("length".to_owned()));
    let with = |reason: &str| {
        format!(r#"{{"choices":[{{"index":0,"text":"a","finish_reason":{reason}}}]}}"#)
    };
    assert_eq!(
        kind(&[&with("5")]),
        Ok("5".to_owned()),
        "a number of an enum"
    );
    for reason in ["false", "0", "{}", "[]"] {
        assert_eq!(
            kind(&[&with(reason)]),
            Err(FailureKind::Truncated),
            "{reason}"
        );
    }
}

#[test]
fn too_many_choices_are_an_error() {
    let (mut messages, mut events) = (ChatMessages::new(&options(false)), Events::default());
    let mut add = |index: usize| {
        messages.add_json(
            format!(r#"{{"choices":[{{"index":{index},"text":"a"}}]}}"#).as_bytes(),
            &mut events,
        )
    };
    assert!((0..MAX_CHOICES).all(|index| add(index).is_ok()));
    assert_eq!(
        add(MAX_CHOICES).map_err(|failure| failure.message),
        Err("more than 1024 choices in one response".to_owned())
    );
    assert_eq!(
        (add(MAX_CHOICES - 1), events.content as usize),
        (Ok(()), MAX_CHOICES + 1)
    );
}

#[test]
fn bytes_that_are_no_utf8_are_replaced() {
    let (mut messages, mut events) = (ChatMessages::new(&options(true)), Events::default());
    assert_eq!(
        messages.add_json(b"{\"choices\":[{\"text\":\"a\xFFb\"}]}", &mut events),
        Ok(())
    );
    assert_eq!(events.content, 1);
    assert_eq!(
        messages.reply(Ok(Finish::default())).text.as_deref(),
        Some("a\u{FFFD}b")
    );
}

/// Events that come near each other in all the ways that could be taken for likeness.
fn keys_fit() -> impl proptest::strategy::Strategy<Value = Vec<u8>> {
    use proptest::prelude::*;
    use proptest::sample::select;
    let text = select(vec![
        "a",
        "a text of more than thirty-two bytes, plain",
        " and more",
        "<think>",
        "</think>",
        "<",
        "[THINK]",
        "",
        "\\n",
        "é",
        "\\ud83d",
        "\"",
        "x\",\"finish_reason\":\"stop",
        "\\",
        "a\",\"content\":\"b",
        "\t",
    ]);
    let shape = select(vec![
        r#"{"id":"r","choices":[{"index":0,"delta":{"content":"TEXT"},"finish_reason":null}]}"#,
        r#"{"id":"s","choices":[{"index":1,"delta":{"content":"TEXT"}}],"usage":null}"#,
        r#"{"choices":[{"delta":{"reasoning":"TEXT","content":null}}]}"#,
        r#"{"choices":[{"delta":{"reasoning_content":"TEXT","reasoning":"y"}}]}"#,
        r#"{"choices":[{"delta":{"content":["TEXT"]}}]}"#,
        r#"{"choices":[{"delta":{"content":"TEXT","tool_calls":[{"function":{"name":"f"}}]}}]}"#,
        r#"{"choices":[{"index":0,"delta":{"content":"TEXT"}}],"usage":{"completion_tokens":2}}"#,
        r#"{"choices":[{"text":"TEXT","finish_reason":"stop"}]}"#,
        r#"{"choices":[{"text":"TEXT"},{"index":1,"text":"TEXT"}]}"#,
        r#"{"error":null,"object":"TEXT","choices":[{"text":"z"}]}"#,
        r#"{"choices":[{"text":"TEXT"}]"#,
    ]);
    let lossy = prop::bool::weighted(0.1);
    (shape, text, lossy).prop_map(|(shape, text, lossy)| {
        let mut bytes = shape.replace("TEXT", text).into_bytes();
        if lossy {
            bytes.insert(bytes.len() / 2, 0xE9);
        }
        bytes
    })
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(2000))]

    #[test]
    fn the_fast_path_equals_full_decoding(
        events in proptest::collection::vec(keys_fit(), 0..30),
        keep in proptest::prelude::any::<bool>(),
    ) {
        let (mut quick, mut slow) = (ChatMessages::new(&options(keep)), ChatMessages::new(&options(keep)));
        let (mut seen, mut expected) = (Events::default(), Events::default());
        for event in &events {
            slow.pattern.forget();
            proptest::prop_assert_eq!(quick.add_json(event, &mut seen), slow.add_json(event, &mut expected));
        }
        proptest::prop_assert_eq!(seen, expected);
        proptest::prop_assert_eq!(weights(&quick), weights(&slow));
        proptest::prop_assert_eq!(quick.reply(Ok(Finish::default())), slow.reply(Ok(Finish::default())));
    }
}

#[test]
fn an_event_of_the_usual_kind_is_known_by_the_one_before_it() {
    let event = |text: &str| {
        format!(
            r#"{{"id":"r","choices":[{{"index":0,"delta":{{"content":"{text}"}},"usage":null}}]}}"#
        )
    };
    let mut messages = ChatMessages::new(&options(true));
    let events = add(&mut messages, &[&event("a")]);
    assert!(messages.add_by_pattern(event("\\u00e9 b").as_bytes(), &mut events.clone()));
    assert!(!messages.add_by_pattern(event("").as_bytes(), &mut events.clone()));
    assert_eq!(
        messages.reply(Ok(Finish::default())).text.as_deref(),
        Some("aé b")
    );
}

#[test]
fn an_event_follows_the_pattern_only_where_all_but_the_text_is_equal() {
    let mut pattern = EventPattern::default();
    assert_eq!(pattern.text_in(b""), None);
    let json = br#"{"a":"x","b":1}"#;
    let fields: std::collections::HashMap<&str, &RawValue> = serde_json::from_slice(json).unwrap();
    pattern.learn(json, fields["a"]);
    assert_eq!(
        pattern.text_in(br#"{"a":"other","b":1}"#),
        Some(&b"\"other\""[..])
    );
    assert_eq!(pattern.text_in(br#"{"a":"x","b":2}"#), None);
    assert_eq!(pattern.text_in(br#"{"a":,"b":1}"#), Some(&b""[..]));
    assert_eq!(
        pattern.text_in(br#"{"a":"b":1}"#),
        None,
        "the two ends never overlap"
    );
    let elsewhere = json.to_vec();
    pattern.learn(&elsewhere, fields["a"]);
    assert_eq!(pattern.text_in(json), None, "a text from elsewhere");
}

#[test]
fn a_plain_text_is_its_own_json() {
    let is_plain = |text: &str| Accumulator::default().is_plain(text.as_bytes());
    for (text, plain) in [(" a~[", true), ("\\n", false), ("é", false), ("a<b", false)] {
        assert_eq!(is_plain(text), plain, "{text}");
    }
    assert!(!is_plain("a\x7f") && !is_plain("a\n") && !is_plain("a\",\"b"));
}

#[test]
fn a_streaming_request_asks_for_usage() {
    let body = Chat.body(true);
    assert_eq!(
        body.to_string(),
        r#"{"model":"{{ model }}","messages":"{{ messages }}","stream":true,"stream_options":{"include_usage":true}}"#
    );
    assert_eq!(
        Chat.body(false).to_string(),
        r#"{"model":"{{ model }}","messages":"{{ messages }}","stream":false}"#
    );
    assert_eq!(
        Completions.body(true).to_string(),
        r#"{"model":"{{ model }}","prompt":"{{ prompt }}","stream":true,"stream_options":{"include_usage":true}}"#
    );
    assert_eq!(
        Completions.body(false).to_string(),
        r#"{"model":"{{ model }}","prompt":"{{ prompt }}","stream":false}"#
    );
}
