use super::*;
use crate::testing::{all, file, opened, spec, talks};
use llmscen_core::dataset::{
    BeginAt, DatasetSpec, Replies, ReplySlot, SentHistory, Source, TurnLinks, Turns,
};

fn read(list: &Value) -> Vec<Message> {
    list.as_array()
        .unwrap()
        .iter()
        .map(|message| Message::new(message).unwrap())
        .collect()
}

fn contents(turns: &[Turn]) -> Vec<Vec<&str>> {
    turns
        .iter()
        .map(|turn| {
            turn.messages
                .iter()
                .map(|message| message["content"].as_str().unwrap())
                .collect()
        })
        .collect()
}

fn tool_talk() -> Value {
    json!([
        { "role": "system", "content": "s" },
        { "role": "user", "content": "q1", "max_tokens": 5 },
        { "role": "assistant", "content": "a1" },
        { "role": "assistant", "content": "a1, more" },
        { "role": "tool", "content": "t1", "tool_call_id": "x", "wait": "1.5s" },
        { "role": "tool", "content": "t2", "delay": 9 },
        { "role": "assistant", "content": "a2" },
        { "role": "user", "content": "q2", "delay": 2, "system": "s2", "output_tokens": "7" },
        { "role": "system", "content": "late" },
    ])
}

#[test]
fn a_turn_has_the_messages_between_two_replies() {
    let turns = split(read(&tool_talk()));
    assert_eq!(
        contents(&turns),
        [vec!["s", "q1"], vec!["t1", "t2"], vec!["q2", "late"]]
    );
    let replies: Vec<Vec<String>> = turns
        .iter()
        .map(|turn| turn.reply.iter().map(text_of).collect())
        .collect();
    assert_eq!(replies, [vec!["a1", "a1, more"], vec!["a2"], vec![]]);
    assert_eq!(
        turns[1].messages[0],
        json!({ "role": "tool", "content": "t1", "tool_call_id": "x" })
    );
    let prompts: Vec<Prompt> = turns.into_iter().map(Turn::prompt).collect();
    assert_eq!(
        prompts
            .iter()
            .map(|prompt| prompt.text.as_str())
            .collect::<Vec<_>>(),
        ["q1", "", "q2"]
    );
    assert_eq!(
        prompts
            .iter()
            .map(|prompt| prompt.max_tokens)
            .collect::<Vec<_>>(),
        [Some(5), None, Some(7)]
    );
    let waits: Vec<Option<f64>> = prompts
        .iter()
        .map(|prompt| prompt.wait.map(Nanos::secs))
        .collect();
    assert_eq!(waits, [None, Some(1.5), Some(2.0)]);
    assert_eq!(prompts[2].system.as_deref(), Some("s2"));
}

#[test]
fn messages_before_the_first_question_and_after_the_last_turn_make_no_turn() {
    let list = json!([
        { "role": "assistant", "content": "Hello." },
        { "role": "user", "content": "q" },
        { "role": "assistant", "content": "a" },
        { "role": "system", "content": "late" },
    ]);
    assert_eq!(contents(&split(read(&list))), [["Hello.", "q"]]);
    assert_eq!(
        split(read(&json!([{ "role": "assistant", "content": "x" }]))),
        []
    );
}

#[test]
fn as_one_request_a_conversation_ends_with_its_last_question() {
    let turn = as_one_turn(read(&tool_talk())).unwrap();
    assert_eq!(turn.messages.last().unwrap()["content"], "q2");
    assert_eq!(
        (
            turn.messages.len(),
            turn.settings.wait,
            turn.settings.max_tokens
        ),
        (8, Some(Nanos::from_millis(2000)), Some(7))
    );
    assert_eq!(
        as_one_turn(read(&json!([{ "role": "system", "content": "x" }]))),
        None
    );
}

#[test]
fn invalid_messages_are_errors() {
    let error = |message: Value| Message::new(&message).unwrap_err();
    assert_eq!(
        error(json!({ "content": "x" })),
        "a message without a `role`"
    );
    assert_eq!(
        error(json!({ "role": "user", "wait": "soon" })),
        "`wait` of a message is not a time such as `2s`, or seconds"
    );
    assert_eq!(
        error(json!({ "role": "user", "max_tokens": 1.5 })),
        "`max_tokens` of a message is not a whole number"
    );
}

fn talk() -> Value {
    json!([
        { "role": "system", "content": "s" },
        { "role": "user", "content": "q1" },
        { "role": "assistant", "content": "a1" },
        { "role": "user", "content": "q2", "wait": 2, "max_tokens": 9 },
        { "role": "assistant", "content": "a2" },
    ])
}

#[test]
fn without_turns_a_row_is_one_request_up_to_its_last_question() {
    let row = json!({ "messages": talk(), "tools": [{ "type": "function" }], "id": 7 });
    let (_dir, path) = file("a.jsonl", row.to_string());
    let prompt = all(&spec(Source::Messages, &path)).remove(0).remove(0);
    let mut known = talk().as_array().unwrap()[..4].to_vec();
    known[3] = json!({ "role": "user", "content": "q2" });
    assert_eq!(
        (
            prompt.text.as_str(),
            prompt.messages.unwrap(),
            prompt.max_tokens
        ),
        ("q2", known, Some(9))
    );
    assert_eq!(
        Value::Object(prompt.sampling),
        json!({ "tools": [{ "type": "function" }] })
    );
    assert_eq!(
        (&prompt.fields["id"], &prompt.fields["messages"]),
        (&json!(7), &talk())
    );
}

#[test]
fn with_turns_a_row_is_a_conversation_without_its_replies() {
    let row = json!({ "messages": talk(), "max_tokens": 5, "tools": [{ "type": "function" }] });
    let (_dir, path) = file("a.jsonl", format!("{row}\n{}\n", talk()));
    let mut spec = talks(Source::Messages, &path);
    let turns = all(&spec).remove(0);
    let lists: Vec<Value> = turns
        .iter()
        .map(|turn| turn.messages.clone().unwrap().into())
        .collect();
    assert_eq!(
        lists,
        [
            json!([talk()[0], talk()[1]]),
            json!([{ "role": "user", "content": "q2" }])
        ]
    );
    assert_eq!(
        turns.iter().map(|turn| turn.max_tokens).collect::<Vec<_>>(),
        [Some(5), Some(9)]
    );
    assert_eq!(
        turns
            .iter()
            .map(|turn| turn.wait.map(|wait| wait.secs()))
            .collect::<Vec<_>>(),
        [None, Some(2.0)]
    );
    assert!(turns.iter().all(|turn| turn.sampling.contains_key("tools")));
    assert_eq!(all(&spec)[1].len(), 2, "a bare list is a row too");
    spec.turns = Some(Turns {
        max: Some(1),
        ..Turns::default()
    });
    assert_eq!(all(&spec).iter().map(Vec::len).collect::<Vec<_>>(), [1, 1]);
}

/// The error of a row that is not sent.
fn problem(turns: Turns, row: &Value) -> String {
    let (_dir, path) = file("a.jsonl", row.to_string());
    let spec = DatasetSpec {
        strict: true,
        turns: Some(turns),
        ..spec(Source::Messages, &path)
    };
    let error = opened(&spec).unwrap_err().to_string();
    let (_, problem) = error.split_once(":1: ").unwrap();
    problem.split("; expected rows").next().unwrap().to_owned()
}

#[test]
fn a_list_of_turns_is_a_graph() {
    let row = json!({ "model": "m", "turns": [
        { "id": "plan", "messages": [{ "role": "user", "content": "Plan." }] },
        { "id": 1, "continues": null, "after": "plan", "system": "Search.",
            "messages": [{ "role": "user", "content": "Find." }] },
        { "continues": "plan", "after": [1], "wait": "2s", "max_tokens": 9,
          "messages": [{ "role": "tool", "tool_call_id": "x", "reply_of": 1 }, { "role": "assistant",
              "content": "Done." }] },
    ] });
    let (_dir, path) = file("a.jsonl", row.to_string());
    let turns = all(&talks(Source::Messages, &path)).remove(0);
    let links: Vec<TurnLinks> = turns
        .iter()
        .map(|turn| (**turn.links.as_ref().unwrap()).clone())
        .collect();
    let slot = ReplySlot {
        message: 0,
        turn: 1,
    };
    let known = [
        (None, vec![], vec![]),
        (None, vec![0], vec![]),
        (Some(0), vec![1], vec![slot]),
    ];
    let known = known.map(|(continues, after, replies)| TurnLinks {
        continues,
        after,
        replies,
    });
    assert_eq!(links, known);
    let [plan, search, merge] = &turns[..] else {
        panic!("three turns")
    };
    assert_eq!(plan.text, "Plan.");
    assert_eq!(search.system.as_deref(), Some("Search."));
    assert_eq!(
        json!(merge.messages),
        json!([{ "role": "tool", "tool_call_id": "x" }])
    );
    assert_eq!(
        merge.recorded_reply,
        [json!({ "role": "assistant", "content": "Done." })]
    );
    assert_eq!(
        (merge.wait, merge.max_tokens),
        (Some(Nanos::from_millis(2000)), Some(9))
    );
    assert_eq!(
        Value::Object((*merge.fields).clone()),
        json!({ "model": "m" })
    );
}

#[test]
fn sessions_are_lists_of_turns_that_add_messages() {
    let turn = |text: &str| json!({ "messages": [{ "role": "user", "content": text }] });
    let session = json!([turn("a"), turn("b")]);
    for (name, text) in [
        (
            "a.json",
            json!({ "conversations": [session, session] }).to_string(),
        ),
        (
            "a.jsonl",
            format!("{0}\n{0}\n", json!({ "conversations": session })),
        ),
    ] {
        let (_dir, path) = file(name, text);
        let sessions = all(&talks(Source::Messages, &path));
        let texts: Vec<Vec<&str>> = sessions
            .iter()
            .map(|turns| turns.iter().map(|turn| turn.text.as_str()).collect())
            .collect();
        assert_eq!(texts, [["a", "b"], ["a", "b"]], "{name}");
        assert!(sessions[0].iter().all(|turn| turn.links.is_none()));
    }
}

#[test]
fn turns_that_cannot_be_sent_are_errors_with_their_names() {
    let user = json!([{ "role": "user", "content": "q" }]);
    let error = |turn: Value| {
        let first = json!({ "id": "plan", "messages": user });
        problem(Turns::default(), &json!({ "turns": [first, turn] }))
    };
    let begin = Turns {
        begin: Some(BeginAt {
            low: 0.5,
            high: 0.5,
        }),
        ..Turns::default()
    };
    let branch = json!({ "continues": "plan", "messages": user });
    let first = json!({ "id": "plan", "messages": user });
    let graph = json!({ "turns": [first, branch, branch] });
    assert!(problem(begin, &graph).contains("`dataset.turns.begin` needs turns in a line"));
    assert_eq!(
        error(json!({ "id": "a", "contines": "plan", "messages": user })),
        "turn `a`: unknown field `contines`; did you mean `continues`?"
    );
    for endless in [json!("inf"), json!(1e300), json!("400d")] {
        assert_eq!(
            error(json!({ "id": "a", "wait": endless, "messages": user })),
            "turn `a`: `wait` of the turn is not a time such as `2s`, or seconds"
        );
    }
    assert_eq!(
        error(json!({ "id": "a", "wait": "-2s", "messages": user })),
        "turn `a`: `wait` of the turn is not a time such as `2s`, or seconds"
    );
    assert_eq!(
        error(json!({ "id": "a", "after": ["b"], "messages": user })),
        "`after` of turn `a` names no turn of the row: `b`"
    );
    assert_eq!(
        error(json!({ "messages": [{ "role": "assistant", "content": "r" }] })),
        "turn 1 (0-based): no message has the role `user` or `tool`"
    );
    assert_eq!(
        error(json!({ "messages": [user[0], { "role": "assistant", "content": "r" }, user[0]] })),
        "turn 1 (0-based): `messages` has 2 requests, with replies between them; a turn is one request"
    );
    assert_eq!(
        error(json!({ "messages": [{ "role": "tool", "content": "x", "reply_of": "plan" }] })),
        "turn 1 (0-based): a message has both `content` and `reply_of`"
    );
    assert_eq!(
        error(json!({ "id": "a" })),
        "turn 1 (0-based) has no `messages`"
    );
    let (_dir, path) = file(
        "a.jsonl",
        json!({ "turns": [{ "messages": user }] }).to_string(),
    );
    let single = opened(&DatasetSpec {
        strict: true,
        ..spec(Source::Messages, &path)
    });
    assert!(
        single
            .unwrap_err()
            .to_string()
            .contains("`turns` is a list of turns; set `dataset.turns: {}` to send them")
    );
}

#[test]
fn a_turn_cannot_replace_the_system_message_of_a_stored_history() {
    let stored = Turns {
        history: SentHistory::PreviousResponseId,
        ..Turns::default()
    };
    let turn = |system: &str, fields: Value| {
        let messages = json!([{ "role": "user", "content": "q" }]);
        let mut turn = json!({ "messages": messages, "system": system });
        turn.as_object_mut()
            .unwrap()
            .extend(fields.as_object().unwrap().clone());
        turn
    };
    let first = turn("a", json!({ "id": "plan" }));
    let sub_agent = turn("b", json!({ "continues": null, "after": ["plan"] }));
    let row = json!({ "turns": [first, sub_agent, turn("c", json!({ "continues": "plan" }))] });
    assert_eq!(
        problem(stored.clone(), &row),
        "turn 2 (0-based) replaces the system message, which `history: previous_response_id` cannot"
    );
    let (_dir, path) = file(
        "a.jsonl",
        json!({ "turns": [first, sub_agent] }).to_string(),
    );
    let spec = DatasetSpec {
        turns: Some(stored),
        ..spec(Source::Messages, &path)
    };
    assert_eq!(all(&spec)[0].len(), 2);
}

#[test]
fn recorded_replies_must_be_in_the_data() {
    let recorded = Turns {
        replies: Replies::Recorded,
        ..Turns::default()
    };
    let row = json!({ "messages": talk() });
    let (_dir, path) = file("a.jsonl", row.to_string());
    let spec = DatasetSpec {
        turns: Some(recorded.clone()),
        ..spec(Source::Messages, &path)
    };
    assert_eq!(
        all(&spec)[0][0].recorded_reply,
        [json!({ "role": "assistant", "content": "a1" })]
    );
    let user = json!({ "role": "user", "content": "q" });
    let turns = json!({ "turns": [{ "messages": [user] }, { "messages": [user] }] });
    assert_eq!(
        problem(recorded.clone(), &turns),
        "turn 0 (0-based) has no reply in the data, which `replies: recorded` sends back"
    );
    let limited = Turns {
        max: Some(1),
        ..recorded
    };
    let (_dir, path) = file("a.jsonl", turns.to_string());
    let spec = DatasetSpec {
        turns: Some(limited),
        ..spec
    };
    let spec = DatasetSpec {
        path: Some(path),
        ..spec
    };
    assert_eq!(
        all(&spec)[0].len(),
        1,
        "the reply to the last turn is not needed"
    );
}

#[test]
fn only_the_first_turn_can_be_counted() {
    let (_dir, path) = file("a.jsonl", json!({ "messages": talk() }).to_string());
    let spec = DatasetSpec {
        tokenizer: Some("builtin".into()),
        ..talks(Source::Messages, &path)
    };
    let tokens: Vec<Option<u64>> = all(&spec)[0].iter().map(|turn| turn.tokens).collect();
    assert!(
        tokens[0].is_some_and(|n| n > 1) && tokens[1].is_none(),
        "{tokens:?}"
    );
}

#[test]
fn rows_without_a_question_are_invalid() {
    let rows = [
        json!({ "messages": [{ "role": "assistant", "content": "x" }] }),
        json!({ "messages": [{ "content": "x" }] }),
        json!({ "messages": "x" }),
        json!({ "talk": [] }),
    ];
    let (_dir, path) = file(
        "a.jsonl",
        format!(
            "{}\n{}\n{}\n{}\n{}\n",
            json!(talk()),
            rows[0],
            rows[1],
            rows[2],
            rows[3]
        ),
    );
    let strict = |rows: &Value| {
        let (_dir, path) = file("a.jsonl", rows.to_string());
        let strict = DatasetSpec {
            strict: true,
            ..spec(Source::Messages, &path)
        };
        opened(&strict)
            .unwrap_err()
            .to_string()
            .replace(&path, "a.jsonl")
    };
    assert_eq!(
        opened(&spec(Source::Messages, &path))
            .unwrap()
            .prompts
            .dropped(),
        4
    );
    let problems = [
        "no message has the role `user`",
        "a message without a `role`",
        "`messages` is not a list",
    ];
    for (row, problem) in rows.iter().zip(problems) {
        assert!(
            strict(row).starts_with(&format!("a.jsonl:1: {problem}; expected")),
            "{}",
            strict(row)
        );
    }
    assert!(strict(&rows[3]).starts_with("a.jsonl:1: the row has no `messages` (fields: talk)"));
}

fn shapes() -> [Value; 3] {
    let named = json!([
        { "from": "system", "value": "s" },
        { "from": "human", "value": " q1 " },
        { "from": "gpt", "value": "the sky is blue" },
        { "from": "human", "value": "q2", "wait": "250ms", "max_tokens": 3, "weight": 0 },
        { "from": "gpt", "value": "the sky" },
    ]);
    let roles = json!([
        { "role": "user", "content": "q1" },
        { "role": "assistant", "content": "the sky is blue" },
        { "role": "tool", "content": "42", "tool_call_id": "x" },
    ]);
    [
        json!({ "conversations": named, "id": "a" }),
        json!({ "items": roles }),
        roles,
    ]
}

fn sharegpt_file() -> (tempfile::TempDir, String) {
    file("a.json", json!(shapes()).to_string())
}

#[test]
fn without_turns_a_row_is_its_first_question_with_the_length_of_the_reply() {
    let (_dir, path) = sharegpt_file();
    let counted = DatasetSpec {
        tokenizer: Some("builtin".into()),
        ..spec(Source::Sharegpt, &path)
    };
    let prompts: Vec<Prompt> = all(&counted)
        .into_iter()
        .map(|mut turns| turns.remove(0))
        .collect();
    assert_eq!(
        prompts
            .iter()
            .map(|prompt| prompt.text.as_str())
            .collect::<Vec<_>>(),
        [" q1 ", "q1", "q1"]
    );
    let with_system =
        json!([{ "role": "system", "content": "s" }, { "role": "user", "content": " q1 " }]);
    assert_eq!(json!(prompts[0].messages), with_system);
    assert_eq!((&prompts[1].messages, &prompts[2].messages), (&None, &None));
    assert!(
        prompts
            .iter()
            .all(|prompt| prompt.fields["output_tokens"] == 4 && prompt.max_tokens.is_none())
    );
    assert_eq!(prompts[0].fields["id"], "a");
    let plain = all(&spec(Source::Sharegpt, &path));
    assert!(
        !plain[1][0].fields.contains_key("output_tokens"),
        "nothing counts without a tokenizer"
    );
}

#[test]
fn with_turns_a_sharegpt_row_is_a_conversation() {
    let (_dir, path) = sharegpt_file();
    let sessions = all(&DatasetSpec {
        tokenizer: Some("builtin".into()),
        ..talks(Source::Sharegpt, &path)
    });
    assert_eq!(sessions.iter().map(Vec::len).collect::<Vec<_>>(), [2, 2, 2]);
    let [first, second] = &sessions[0][..] else {
        panic!("two turns")
    };
    assert_eq!(
        json!(second.messages),
        json!([{ "role": "user", "content": "q2" }])
    );
    assert_eq!(
        (second.max_tokens, second.wait.map(|wait| wait.millis())),
        (Some(3), Some(250.0))
    );
    assert_eq!(
        (
            &first.fields["output_tokens"],
            &second.fields["output_tokens"]
        ),
        (&json!(4), &json!(2))
    );
    assert_eq!(
        json!(sessions[2][1].messages),
        json!([{ "role": "tool", "content": "42", "tool_call_id": "x" }])
    );
}

#[test]
fn rows_without_a_conversation_are_invalid() {
    let rows = [
        (
            json!({ "conversations": [{ "from": "gpt", "value": "x" }] }),
            "the conversation has no message of a human",
        ),
        (
            json!({ "conversations": [{ "from": "cat", "value": "x" }] }),
            "unknown speaker \"cat\" (known: human, gpt, system, tool)",
        ),
        (
            json!({ "conversations": [{ "value": "x" }] }),
            "an entry of the conversation has neither `from` nor `role`",
        ),
        (
            json!({ "conversations": ["x"] }),
            "an entry of the conversation is not a JSON object",
        ),
        (
            json!({ "talk": [] }),
            "the row has no `conversations` or `items` or `messages`",
        ),
    ];
    for (row, problem) in rows {
        let (_dir, path) = file("a.jsonl", row.to_string());
        let error = opened(&DatasetSpec {
            strict: true,
            ..spec(Source::Sharegpt, &path)
        })
        .unwrap_err()
        .to_string();
        assert!(error.contains(&format!(":1: {problem}")), "{error}");
    }
}
