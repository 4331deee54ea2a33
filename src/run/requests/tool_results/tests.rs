use super::*;

fn call(id: &str, name: &str) -> Value {
    json!({ "id": id, "type": "function", "function": { "name": name, "arguments": "{}" } })
}

fn calls(calls: &[Value]) -> Value {
    json!({ "role": "assistant", "content": null, "tool_calls": calls })
}

fn result(id: &str, content: &str) -> Value {
    json!({ "role": "tool", "tool_call_id": id, "content": content })
}

fn user(content: &str) -> Value {
    json!({ "role": "user", "content": content })
}

fn counts(recorded: u64, without_call: u64, unanswered: u64) -> ToolResults {
    ToolResults {
        recorded,
        without_call,
        unanswered,
    }
}

fn answer(reply: &Value, recorded: &[Value], added: &[Value]) -> AnsweredCalls {
    answer_calls(2, Some(reply), recorded, added.to_vec(), false)
}

#[test]
fn results_answer_the_live_calls_by_name_and_then_by_order() {
    let recorded = [calls(&[
        call("r1", "weather"),
        call("r2", "time"),
        call("r3", "weather"),
        call("r4", "news"),
    ])];
    let live = calls(&[
        call("l1", "search"),
        call("l2", "weather"),
        call("l3", "weather"),
        call("l4", "time"),
    ]);
    let added = [
        result("r1", "rain"),
        result("r2", "noon"),
        result("r3", "sun"),
        result("r4", "none"),
        user("and?"),
    ];
    let answered = answer(&live, &recorded, &added);
    assert_eq!(
        answered.added,
        [
            result("l2", "rain"),
            result("l4", "noon"),
            result("l3", "sun"),
            result("l1", "none"),
            user("and?")
        ]
    );
    assert_eq!(
        (answered.reply, answered.inserted.len(), answered.counts),
        (None, 0, counts(4, 0, 0))
    );
}

#[test]
fn a_result_without_a_live_call_brings_its_recorded_call() {
    let recorded = [calls(&[call("r1", "weather"), call("r2", "time")])];
    let added = [result("r1", "rain"), result("r2", "noon")];
    let one = calls(&[call("l1", "time")]);
    let answered = answer(&one, &recorded, &added);
    let reply = calls(&[call("l1", "time"), call("call00201", "weather")]);
    assert_eq!(answered.reply, Some(reply));
    assert_eq!(
        answered.added,
        [result("call00201", "rain"), result("l1", "noon")]
    );
    assert_eq!(answered.counts, counts(2, 1, 0));

    let text = json!({ "role": "assistant", "content": "It rains." });
    let answered = answer(&text, &recorded, &added);
    let both = [call("call00201", "weather"), call("call00202", "time")];
    assert_eq!(
        answered.reply,
        Some(json!({ "role": "assistant", "content": "It rains.", "tool_calls": both }))
    );
    assert_eq!(answered.counts, counts(2, 2, 0));

    // The server stores the reply, so the calls are a message of their own.
    let answered = answer_calls(2, Some(&text), &recorded, added.to_vec(), true);
    assert_eq!(
        (answered.reply, answered.inserted),
        (None, vec![calls(&both)])
    );
}

#[test]
fn a_result_without_any_call_gets_a_new_one() {
    let empty = json!({ "role": "assistant", "content": "" });
    let named = json!({ "role": "function", "name": "weather", "content": "rain" });
    let bare = json!({ "role": "tool", "content": "noon" });
    let answered = answer(&empty, &[], &[named, bare]);
    let reply = calls(&[call("call00201", "weather"), call("call00202", "tool")]);
    assert_eq!(answered.reply, Some(reply));
    let named = json!({ "role": "tool", "name": "weather", "content": "rain", "tool_call_id": "call00201" });
    assert_eq!(answered.added, [named, result("call00202", "noon")]);
    let old = json!({ "role": "assistant", "content": null, "function_call": { "name": "time",
        "arguments": "{\"a\":1}" } });
    let named = json!({ "role": "function", "name": "time", "content": "noon" });
    let answered = answer(&empty, &[old], &[named]);
    let mut timed = call("call00201", "time");
    timed["function"]["arguments"] = "{\"a\":1}".into();
    assert_eq!(answered.reply, Some(calls(&[timed])));
}

#[test]
fn every_live_call_has_a_result_before_the_next_question() {
    let live = calls(&[call("l1", "weather"), call("l2", "time")]);
    let answered = answer(&live, &[], &[user("thanks")]);
    assert_eq!(
        answered.inserted,
        [result("l1", NO_RESULT), result("l2", NO_RESULT)]
    );
    assert_eq!(
        (answered.added, answered.counts),
        (vec![user("thanks")], counts(0, 0, 2))
    );
    let recorded = [calls(&[call("r1", "time")])];
    let answered = answer(&live, &recorded, &[user("thanks"), result("r1", "noon")]);
    assert_eq!(answered.inserted, [result("l1", NO_RESULT)]);
    assert_eq!(
        answered.added,
        [result("l2", "noon"), user("thanks")],
        "a result follows its call"
    );
    assert_eq!(answered.counts, counts(1, 0, 1));
}

#[test]
fn a_live_call_without_an_id_gets_one() {
    let live = json!({ "role": "assistant", "content": "",
        "tool_calls": [{ "function": { "name": "time", "arguments": {} } }] });
    let recorded = [calls(&[call("r1", "time")])];
    let answered = answer(&live, &recorded, &[result("r1", "noon")]);
    assert_eq!(answered.added, [result("call00201", "noon")]);
    assert_eq!(answered.reply.unwrap()["tool_calls"][0]["id"], "call00201");
}

#[test]
fn arguments_that_were_cut_off_are_wrapped() {
    let mut live = call("l1", "time");
    live["function"]["arguments"] = "{\"a".into();
    let recorded = [calls(&[call("r1", "time")])];
    let answered = answer(&calls(&[live.clone()]), &recorded, &[result("r1", "noon")]);
    live["function"]["arguments"] = r#"{"arguments":"{\"a"}"#.into();
    assert_eq!(answered.reply, Some(calls(&[live])));
}

#[test]
fn calls_and_results_may_have_the_form_of_another_protocol() {
    let used =
        |id: &str, name: &str| json!({ "type": "tool_use", "id": id, "name": name, "input": {} });
    let blocks = |blocks: Value| json!({ "role": "assistant", "content": blocks });
    let gave = |id: &str| json!({ "type": "tool_result", "tool_use_id": id, "content": "noon" });
    let recorded = [blocks(json!([used("r1", "time"), used("r2", "news")]))];
    let text = json!({ "type": "text", "text": "and?" });
    let added = json!({ "role": "user", "content": [gave("r1"), gave("r2"), text] });
    let live = blocks(json!([used("l1", "news")]));
    let answered = answer(&live, &recorded, &[added]);
    assert_eq!(
        answered.added,
        [json!({ "role": "user", "content": [gave("call00201"), gave("l1"), text] })]
    );
    assert_eq!(
        answered.reply.unwrap()["tool_calls"],
        json!([used("call00201", "time")])
    );
    let item =
        json!({ "type": "function_call", "call_id": "l1", "name": "time", "arguments": "{}" });
    let recorded = [calls(&[call("r1", "time")])];
    let answered = answer(&calls(&[item]), &recorded, &[result("r1", "noon")]);
    assert_eq!(
        (answered.added, answered.reply),
        (vec![result("l1", "noon")], None)
    );
}

#[test]
fn results_of_replies_among_the_messages_stay() {
    let own = [
        calls(&[call("own", "time")]),
        result("own", "noon"),
        user("and?"),
    ];
    let text = json!({ "role": "assistant", "content": "Hi." });
    let answered = answer(&text, &[], &own);
    assert_eq!(
        (answered.added, answered.counts),
        (own.to_vec(), counts(0, 0, 0))
    );
}

#[test]
fn the_counts_of_a_case_are_a_note() {
    let mut all = counts(40, 12, 0);
    assert_eq!(
        all.note("c").unwrap(),
        "case `c`: 12 of 40 tool results had no live call: they were sent with their recorded \
        calls, added to the live replies"
    );
    all.add(counts(0, 0, 1));
    let note = all.note("c").unwrap();
    assert!(
        note.ends_with(
            "; 1 live tool call had no recorded result: `The tool returned no result.` was sent"
        ),
        "{note}"
    );
    assert_eq!(counts(40, 0, 0).note("c"), None);
}
