use super::*;
use llmscen_core::dataset::ReplySlot;

fn user_turn(text: &str) -> Prompt {
    Prompt {
        text: text.into(),
        ..Prompt::default()
    }
}

fn reply(content: &str) -> Message {
    Message {
        content: content.into(),
        reasoning: "hm".into(),
        tool_calls: Value::Null,
    }
}

fn ended_turn(turn: u32, message: &Message) -> TurnReply {
    TurnReply {
        turn,
        message: message.clone(),
        response_id: None,
    }
}

fn messages(prompt: Option<Prompt>) -> Value {
    prompt.unwrap().messages.unwrap().into()
}

/// The conversation of a session after its first turn was rendered.
fn begun(turns: Vec<Prompt>, api: Api, settings: Turns) -> Conversation {
    let mut conversation = Conversation::new(turns.into(), api, Some(&settings));
    conversation.skip_first();
    conversation
}

/// Ends a turn with a reply and renders another one.
fn next(conversation: &mut Conversation, ended: (u32, &Message), turn: u32) -> Option<Prompt> {
    conversation.end_turn(&ended_turn(ended.0, ended.1), None);
    conversation.render(turn).unwrap()
}

fn user(text: &str) -> Value {
    json!({ "role": "user", "content": text })
}

fn assistant(text: &str) -> Value {
    json!({ "role": "assistant", "content": text })
}

#[test]
fn a_turn_has_all_messages_before_it() {
    let tool = json!({ "role": "tool", "tool_call_id": "1", "content": "22 C" });
    let third = Prompt {
        messages: Some(vec![tool.clone()]),
        ..Prompt::default()
    };
    let keep_reasoning = Turns {
        keep_reasoning: true,
        ..Turns::default()
    };
    let mut conversation = begun(
        vec![user_turn("a"), user_turn("b"), third],
        Api::OpenaiChat,
        keep_reasoning,
    );
    let one = json!({ "role": "assistant", "content": "1 \"é\"\n", "reasoning_content": "hm" });
    assert_eq!(
        messages(next(&mut conversation, (0, &reply("1 \"é\"\n")), 1)),
        json!([user("a"), one, user("b")])
    );
    let calls =
        json!([{ "id": "1", "type": "function", "function": { "name": "f", "arguments": "{}" } }]);
    let two = Message {
        tool_calls: calls.clone(),
        ..reply("")
    };
    let assistant = json!({ "role": "assistant", "content": null, "reasoning_content": "hm", "tool_calls": calls });
    assert_eq!(
        messages(next(&mut conversation, (1, &two), 2)),
        json!([user("a"), one, user("b"), assistant, tool])
    );
    assert_eq!(next(&mut conversation, (2, &reply("")), 3), None);
}

#[test]
fn a_protocol_without_messages_gets_the_conversation_as_one_text() {
    for api in [Api::OpenaiCompletions, Api::Tgi] {
        let turns = vec![user_turn("a"), user_turn("b"), user_turn("c")];
        let mut conversation = begun(turns, api, Turns::default());
        let second = next(&mut conversation, (0, &reply("1")), 1).unwrap();
        assert_eq!((second.text.as_str(), second.messages), ("a\n1\nb", None));
        let third = next(&mut conversation, (1, &reply("2")), 2).unwrap();
        assert_eq!(third.text, "a\n1\nb\n2\nc");
    }
}

#[test]
fn branches_share_the_history_before_them_and_quote_the_replies_that_they_join() {
    let linked =
        |text: &str, continues: Option<u32>, after: &[u32], replies: &[ReplySlot]| Prompt {
            messages: Some(vec![user(text)]),
            links: Some(Box::new(TurnLinks {
                continues,
                after: after.to_vec(),
                replies: replies.to_vec(),
            })),
            ..Prompt::default()
        };
    let quote = ReplySlot {
        message: 0,
        turn: 2,
    };
    let turns = vec![
        linked("plan", None, &[], &[]),
        linked("branch", Some(0), &[], &[]),
        linked("sub-agent", None, &[0], &[]),
        linked("replaced", Some(1), &[2], &[quote]),
    ];
    let mut conversation = begun(turns, Api::OpenaiChat, Turns::default());
    let plan = [user("plan"), assistant("p")];
    let branch = next(&mut conversation, (0, &reply("p")), 1);
    assert_eq!(messages(branch), json!([plan[0], plan[1], user("branch")]));
    assert_eq!(
        messages(conversation.render(2).unwrap()),
        json!([user("sub-agent")])
    );
    let shared = |turn: usize| conversation.turns[turn].history.chunks().last().unwrap();
    assert!(
        std::ptr::eq(shared(0), shared(1)),
        "a branch copies no message"
    );
    conversation.end_turn(&ended_turn(2, &reply("found")), None);
    assert_eq!(
        messages(next(&mut conversation, (1, &reply("b")), 3)),
        json!([
            plan[0],
            plan[1],
            user("branch"),
            assistant("b"),
            user("found")
        ])
    );
    conversation.end_turn(&ended_turn(3, &reply("r")), None);
    let kept = conversation.turns.iter().map(|turn| turn.history.count());
    assert_eq!(
        kept.collect::<Vec<_>>(),
        [2, 4, 0, 0],
        "what no turn continues is not kept"
    );
}

#[test]
fn turns_that_are_written_later_come_in_any_order() {
    let whole = |text: &str| Prompt {
        links: Some(Box::default()),
        ..user_turn(text)
    };
    let session = Session {
        turns: vec![whole("0")],
        later: Some(LaterTurns {
            count: 4,
            awaited: None,
            continues: false,
        }),
    };
    let mut conversation = Conversation::new(session, Api::OpenaiChat, None);
    conversation.skip_first();
    for turn in [3, 1, 2] {
        assert!(conversation.awaits_prompt(turn));
        conversation.add_prompt(turn, whole(&turn.to_string()));
        assert!(!conversation.awaits_prompt(turn));
        let sent = messages(conversation.render(turn).unwrap());
        assert_eq!(sent, json!([user(&turn.to_string())]));
    }
}

#[test]
fn recorded_replies_are_the_history_whatever_the_server_replies() {
    let call = json!({ "role": "assistant", "content": null, "tool_calls": [{ "id": "x" }] });
    let recorded = |text: &str, recorded_reply: &[Value]| Prompt {
        recorded_reply: recorded_reply.to_vec(),
        ..user_turn(text)
    };
    let turns = vec![
        recorded("a", &[assistant("ra"), call.clone()]),
        recorded("b", &[assistant("rb")]),
        recorded("c", &[]),
    ];
    let settings = Turns {
        replies: Replies::Recorded,
        ..Turns::default()
    };
    let mut conversation = begun(turns.clone(), Api::OpenaiChat, settings.clone());
    assert_eq!(
        messages(next(&mut conversation, (0, &reply("live")), 1)),
        json!([user("a"), assistant("ra"), call, user("b")])
    );
    let all = json!([
        user("a"),
        assistant("ra"),
        call,
        user("b"),
        assistant("rb"),
        user("c")
    ]);
    assert_eq!(
        messages(next(&mut conversation, (1, &reply("live")), 2)),
        all
    );
    let mut later = Conversation::new(turns.into(), Api::OpenaiChat, Some(&settings));
    later.skip_to(2);
    assert_eq!(
        messages(later.render(2).unwrap()),
        all,
        "a session that begins at its last turn"
    );
}

#[test]
fn a_truncated_turn_keeps_the_system_message_and_the_latest_turns() {
    let first = Prompt {
        system: Some("be terse".into()),
        ..user_turn("a")
    };
    let later = |text: &str, history_from| Prompt {
        history_from,
        ..user_turn(text)
    };
    let turns = vec![first, later("b", 0), later("c", 1), later("d", 3)];
    let mut conversation = begun(turns, Api::OpenaiChat, Turns::default());
    let mut turn = 0;
    let mut contents = |text: &str| {
        turn += 1;
        let all = messages(next(&mut conversation, (turn - 1, &reply(text)), turn));
        let text = |message: &Value| message["content"].as_str().unwrap().to_owned();
        all.as_array().unwrap().iter().map(text).collect::<Vec<_>>()
    };
    assert_eq!(contents("1"), ["be terse", "a", "1", "b"]);
    assert_eq!(contents("2"), ["be terse", "b", "2", "c"]);
    assert_eq!(contents("3"), ["be terse", "d"]);
}

#[test]
fn a_truncated_turn_shares_the_system_message_alone() {
    let tokenizer = Tokenizer::builtin();
    for (system, shared) in [
        (Some("be terse"), tokenizer.count("be terse")),
        (None, Some(0)),
    ] {
        let first = Prompt {
            system: system.map(str::to_owned),
            ..user_turn("a")
        };
        let second = Prompt {
            history_from: 1,
            ..user_turn("b")
        };
        let mut conversation = begun(vec![first, second], Api::OpenaiChat, Turns::default());
        conversation.set_tokens(0, Some(9));
        assert_eq!(conversation.history_tokens(1, Some(&tokenizer)), shared);
        assert_eq!(
            conversation.history_tokens(0, Some(&tokenizer)),
            None,
            "rendered"
        );
    }
}

#[test]
fn a_system_message_of_the_dataset_applies_from_its_turn_on() {
    let with = |text: &str, system: Option<&str>| Prompt {
        system: system.map(str::to_owned),
        ..user_turn(text)
    };
    let turns = vec![
        with("a", Some("one")),
        user_turn("b"),
        with("c", Some("two")),
    ];
    assert_eq!(
        prepare_first_turn(turns[0].clone(), false)
            .messages
            .unwrap()[0],
        json!({ "role": "system", "content": "one" })
    );
    let mut conversation = begun(turns, Api::OpenaiChat, Turns::default());
    let system = |prompt: Option<Prompt>| {
        let all = messages(prompt);
        let count = all
            .as_array()
            .unwrap()
            .iter()
            .filter(|message| message["role"] == "system")
            .count();
        (all[0]["content"].clone(), count)
    };
    assert_eq!(
        system(next(&mut conversation, (0, &reply("x")), 1)),
        (json!("one"), 1)
    );
    assert_eq!(
        system(next(&mut conversation, (1, &reply("y")), 2)),
        (json!("two"), 1)
    );
}

#[test]
fn a_system_message_that_every_turn_repeats_is_sent_once() {
    let system = json!({ "role": "system", "content": "s" });
    let turn = Prompt {
        messages: Some(vec![system.clone(), user("u")]),
        ..Prompt::default()
    };
    let mut conversation = begun(vec![turn.clone(), turn], Api::OpenaiChat, Turns::default());
    assert_eq!(
        messages(next(&mut conversation, (0, &reply("r")), 1)),
        json!([system, user("u"), assistant("r"), user("u")])
    );
}

fn body_turn(text: &str) -> Prompt {
    let body = json!({ "top_k": 1, "messages": [user(text)] });
    Prompt {
        body: body.as_object().cloned(),
        ..Prompt::default()
    }
}

#[test]
fn complete_bodies_get_the_messages_and_the_session_keeps_its_group() {
    let first = Prompt {
        model: Some("m".into()),
        group: Some("g".into()),
        ..body_turn("a")
    };
    let mut conversation = begun(
        vec![first, body_turn("b")],
        Api::OpenaiChat,
        Turns::default(),
    );
    let next = next(&mut conversation, (0, &reply("r")), 1).unwrap();
    assert_eq!(
        next.body.as_ref().unwrap()["messages"],
        json!([user("a"), assistant("r"), user("b")])
    );
    assert_eq!(
        (next.model.as_deref(), next.group.as_deref()),
        (None, Some("g")),
        "each turn has the model that its own row has"
    );
}

#[test]
fn a_complete_body_gets_a_reply_in_the_form_of_its_protocol() {
    let used = json!({ "type": "tool_use", "id": "1", "name": "f", "input": {} });
    let called = Message {
        tool_calls: json!([used]),
        ..reply("I ask.")
    };
    let mut conversation = begun(
        ["a", "b", "c"].map(body_turn).to_vec(),
        Api::Anthropic,
        Turns::default(),
    );
    next(&mut conversation, (0, &called), 1).unwrap();
    let assistant =
        json!({ "role": "assistant", "content": [{ "type": "text", "text": "I ask." }, used] });
    let last = next(&mut conversation, (1, &reply("")), 2)
        .unwrap()
        .body
        .unwrap();
    let unanswered = json!({ "type": "tool_result", "tool_use_id": "1",
        "content": "The tool returned no result." });
    let unanswered = json!({ "role": "user", "content": [unanswered] });
    assert_eq!(
        last["messages"],
        json!([user("a"), assistant, unanswered, user("b"), user("c")]),
        "an empty reply adds no message"
    );
}
