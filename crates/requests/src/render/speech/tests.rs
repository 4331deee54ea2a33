use super::*;
use llmscen_core::dataset::PreviousResponse;

fn said(role: &str, content: Value) -> Value {
    json!({ "role": role, "content": content })
}

fn seen(urls: &[&str]) -> Value {
    let mut parts = vec![json!({ "type": "text", "text": "What is it?" })];
    parts.extend(
        urls.iter()
            .map(|url| json!({ "type": "image_url", "image_url": { "url": url } })),
    );
    Value::Array(parts)
}

fn say(api: Api, messages: Value) -> Value {
    let Value::Array(messages) = messages else {
        panic!("no list")
    };
    let once = spoken(api, messages);
    assert_eq!(
        spoken(api, once.clone()),
        once,
        "what is said already stays"
    );
    Value::Array(once)
}

const DATA: &str = "data:image/png;base64,iVBO";
const REMOTE: &str = "https://example.com/a.jpg";

#[test]
fn images_are_converted_to_each_protocol() {
    let asked = || json!([said("user", seen(&[DATA, REMOTE]))]);
    let content = |api| say(api, asked())[0]["content"].clone();
    for api in [Api::OpenaiChat, Api::Custom] {
        assert_eq!(say(api, asked()), asked(), "{api}");
    }
    assert_eq!(
        content(Api::Anthropic),
        json!([
            { "type": "text", "text": "What is it?" },
            { "type": "image", "source": { "type": "base64", "media_type": "image/png", "data": "iVBO" } },
            { "type": "image", "source": { "type": "url", "url": REMOTE } },
        ])
    );
    assert_eq!(
        content(Api::OpenaiResponses),
        json!([
            { "type": "input_text", "text": "What is it?" },
            { "type": "input_image", "image_url": DATA, "detail": "auto" },
            { "type": "input_image", "image_url": REMOTE, "detail": "auto" },
        ])
    );
    assert_eq!(
        content(Api::Dashscope),
        json!([{ "text": "What is it?" }, { "image": DATA }, { "image": REMOTE }])
    );
    let shown = json!([{ "role": "user", "content": "What is it?", "images": ["iVBO"] }]);
    assert_eq!(
        say(Api::Ollama, json!([said("user", seen(&[DATA]))])),
        shown
    );
}

#[test]
fn other_keys_of_a_part_stay_and_unknown_parts_are_kept() {
    let cached = json!({ "type": "text", "text": "a", "cache_control": { "type": "ephemeral" } });
    assert_eq!(
        say(Api::Anthropic, json!([said("user", json!([cached]))])),
        json!([said("user", json!([cached]))])
    );
    let fine = json!([{ "type": "image_url", "image_url": { "url": REMOTE, "detail": "low" } }]);
    let shown = json!([{ "type": "input_image", "image_url": REMOTE, "detail": "low" }]);
    assert_eq!(
        say(Api::OpenaiResponses, json!([said("user", fine)])),
        json!([said("user", shown)])
    );
    let heard = json!([said(
        "user",
        json!([{ "type": "text", "text": "a" }, { "type": "input_audio", "input_audio": {} }])
    )]);
    assert_eq!(say(Api::Ollama, heard.clone()), heard);
    let own = json!([said("assistant", json!([{ "type": "text", "text": "b" }]))]);
    assert_eq!(
        say(Api::OpenaiResponses, own),
        json!([said("assistant", json!("b"))])
    );
}

/// Two tool calls in chat format, their results, and the next question.
fn worked() -> Value {
    let call = |id: &str, arguments: Value| {
        json!({ "id": id, "type": "function",
        "function": { "name": "f", "arguments": arguments } })
    };
    json!([
        said("user", json!("go")),
        { "role": "assistant", "content": "I ask.", "tool_calls": [call("1", json!("{\"x\":1}")),
            call("2", json!(""))] },
        { "role": "tool", "tool_call_id": "1", "content": "22 C" },
        { "role": "tool", "tool_call_id": "2", "content": [{ "type": "text", "text": "ok" }] },
        said("user", json!("and now?")),
    ])
}

#[test]
fn tool_calls_and_results_are_converted_to_each_protocol() {
    let used = |id: &str, input: Value| json!({ "type": "tool_use", "id": id, "name": "f", "input": input });
    let gave = |id: &str, content: Value| json!({ "type": "tool_result", "tool_use_id": id, "content": content });
    assert_eq!(
        say(Api::Anthropic, worked()),
        json!([
            said("user", json!("go")),
            said(
                "assistant",
                json!([{ "type": "text", "text": "I ask." }, used("1", json!({ "x": 1 })), used("2", json!({}))])
            ),
            said(
                "user",
                json!([
                    gave("1", json!("22 C")),
                    gave("2", json!([{ "type": "text", "text": "ok" }]))
                ])
            ),
            said("user", json!("and now?")),
        ])
    );
    let call = |id: &str, arguments: &str| {
        json!({ "type": "function_call", "call_id": id, "name": "f",
        "arguments": arguments })
    };
    assert_eq!(
        say(Api::OpenaiResponses, worked()),
        json!([
            said("user", json!("go")),
            said("assistant", json!("I ask.")),
            call("1", "{\"x\":1}"),
            call("2", ""),
            { "type": "function_call_output", "call_id": "1", "output": "22 C" },
            { "type": "function_call_output", "call_id": "2", "output": [{ "type": "input_text", "text": "ok" }] },
            said("user", json!("and now?")),
        ])
    );
    for api in [Api::OpenaiChat, Api::Dashscope, Api::Custom] {
        let told = if api == Api::Dashscope {
            json!([{ "text": "ok" }])
        } else {
            worked()[3]["content"].clone()
        };
        let mut expected = worked();
        expected[3]["content"] = told;
        assert_eq!(say(api, worked()), expected, "{api}");
    }
    let ollama = say(Api::Ollama, worked());
    assert_eq!(
        ollama[1]["tool_calls"][0]["function"]["arguments"],
        json!({ "x": 1 })
    );
    assert_eq!(
        (
            &ollama[1]["tool_calls"][1]["function"]["arguments"],
            &ollama[3]["content"]
        ),
        (&json!({}), &json!("ok"))
    );
    let names = [&ollama[2], &ollama[3]].map(|result| &result["tool_name"]);
    assert_eq!(names, ["f", "f"]);
    let named = json!([{ "role": "tool", "name": "g", "content": "22 C" }]);
    assert_eq!(say(Api::Ollama, named)[0]["tool_name"], "g");
}

#[test]
fn arguments_that_are_not_a_mapping_are_wrapped() {
    let call =
        json!({ "id": "c", "type": "function", "function": { "name": "f", "arguments": "{bad" } });
    let messages = json!([{ "role": "assistant", "content": null, "tool_calls": [call] }]);
    assert_eq!(
        say(Api::Anthropic, messages)[0]["content"][0]["input"],
        json!({ "arguments": "{bad" })
    );
}

#[test]
fn reasoning_is_sent_only_where_the_protocol_accepts_it() {
    let reply =
        json!({ "role": "assistant", "content": "a", "reasoning_content": "hm", "refusal": null });
    let of = |api| say(api, json!([reply]))[0].clone();
    assert_eq!(of(Api::Anthropic), said("assistant", json!("a")));
    assert_eq!(of(Api::OpenaiResponses), said("assistant", json!("a")));
    assert_eq!(of(Api::OpenaiChat)["reasoning_content"], "hm");
    assert_eq!(
        (
            &of(Api::Ollama)["thinking"],
            of(Api::Ollama).get("reasoning_content")
        ),
        (&json!("hm"), None)
    );
}

#[test]
fn tool_calls_of_a_reply_keep_their_format() {
    let reply =
        |call: &Value| json!({ "role": "assistant", "content": null, "tool_calls": [call] });
    let result = json!({ "role": "tool", "tool_call_id": "c", "content": "22 C" });
    let used = json!({ "type": "tool_use", "id": "c", "name": "f", "input": {} });
    let gave = json!([{ "type": "tool_result", "tool_use_id": "c", "content": "22 C" }]);
    let expected = json!([said("assistant", json!([used])), said("user", gave)]);
    assert_eq!(say(Api::Anthropic, json!([reply(&used), result])), expected);
    for (kind, output) in [
        ("function_call", "function_call_output"),
        ("custom_tool_call", "custom_tool_call_output"),
    ] {
        let call = json!({ "type": kind, "call_id": "c", "name": "f" });
        let expected = json!([call, { "type": output, "call_id": "c", "output": "22 C" }]);
        assert_eq!(
            say(Api::OpenaiResponses, json!([reply(&call), result])),
            expected
        );
    }
}

#[test]
fn a_stored_history_is_not_sent() {
    let call = json!({ "type": "custom_tool_call", "call_id": "c", "name": "f" });
    let result = json!({ "role": "tool", "tool_call_id": "c", "content": "22 C" });
    let messages = [
        said("user", json!("q")),
        json!({ "role": "assistant", "content": null, "tool_calls": [call] }),
        result,
    ];
    let prompt = Prompt {
        messages: Some(messages.to_vec()),
        previous_response: Some(PreviousResponse {
            id: "r".into(),
            messages: 2,
        }),
        ..Prompt::default()
    };
    let dialog = Dialog::new(&prompt, Some("Be kind."), Api::OpenaiResponses);
    let output = json!([{ "type": "custom_tool_call_output", "call_id": "c", "output": "22 C" }]);
    assert_eq!(
        (dialog.messages(), dialog.others()),
        (output.clone(), output)
    );
    // The server does not store `instructions`.
    assert_eq!(dialog.system(), json!("Be kind."));
}

#[test]
fn anthropic_omits_empty_assistant_messages() {
    let messages = json!([
        said("user", json!("a")),
        said("assistant", json!("")),
        said("user", json!("b"))
    ]);
    assert_eq!(
        say(Api::Anthropic, messages.clone()),
        json!([said("user", json!("a")), said("user", json!("b"))])
    );
    for api in [
        Api::OpenaiChat,
        Api::OpenaiResponses,
        Api::Dashscope,
        Api::Ollama,
    ] {
        assert_eq!(say(api, messages.clone()), messages, "{api}");
    }
}

#[test]
fn tools_are_converted_to_each_protocol() {
    let parameters = json!({ "type": "object", "properties": { "city": { "type": "string" } } });
    let own = json!({ "name": "f", "description": "d", "parameters": parameters });
    let chat = json!([{ "type": "function", "function": own }]);
    let say = |api, value: &Value| tools(api, "tools", value).into_owned();
    let anthropic = json!([{ "name": "f", "description": "d", "input_schema": parameters }]);
    let responses =
        json!([{ "name": "f", "description": "d", "parameters": parameters, "type": "function" }]);
    assert_eq!(
        (say(Api::Anthropic, &chat), say(Api::OpenaiResponses, &chat)),
        (anthropic.clone(), responses.clone())
    );
    assert_eq!(
        (
            say(Api::Anthropic, &anthropic),
            say(Api::OpenaiResponses, &responses)
        ),
        (anthropic, responses)
    );
    for api in [Api::OpenaiChat, Api::Dashscope, Api::Ollama] {
        assert_eq!(say(api, &chat), chat, "{api}");
    }
    let bare = json!([{ "type": "function", "function": { "name": "f" } }]);
    assert_eq!(
        say(Api::Anthropic, &bare),
        json!([{ "name": "f", "input_schema": { "type": "object" } }])
    );
}

#[test]
fn tool_choice_is_converted_to_each_protocol() {
    let say = |api, value: Value| tools(api, "tool_choice", &value).into_owned();
    let named = json!({ "type": "function", "function": { "name": "f" } });
    assert_eq!(
        say(Api::Anthropic, named.clone()),
        json!({ "type": "tool", "name": "f" })
    );
    assert_eq!(
        say(Api::OpenaiResponses, named.clone()),
        json!({ "type": "function", "name": "f" })
    );
    assert_eq!(say(Api::OpenaiChat, named.clone()), named);
    assert_eq!(
        say(Api::Anthropic, json!("required")),
        json!({ "type": "any" })
    );
    assert_eq!(
        say(Api::Anthropic, json!("auto")),
        json!({ "type": "auto" })
    );
    assert_eq!(
        say(Api::OpenaiResponses, json!("required")),
        json!("required")
    );
}

const CHAT: Api = Api::OpenaiChat;

#[test]
fn nearest_system_message_wins() {
    let texts = |prompt: &Prompt| {
        (
            Dialog::new(prompt, Some("set"), CHAT).system(),
            Dialog::new(prompt, None, CHAT).system(),
        )
    };
    let plain = Prompt {
        text: "hi".into(),
        ..Prompt::default()
    };
    assert_eq!(texts(&plain), (json!("set"), Value::Null));
    let own = vec![
        said("developer", json!([{ "type": "text", "text": "own" }])),
        said("user", json!("hi")),
    ];
    let listed = Prompt {
        messages: Some(own),
        ..Prompt::default()
    };
    assert_eq!(texts(&listed), (json!("own"), json!("own")));
    let turned = Prompt {
        system: Some("turn".into()),
        ..listed.clone()
    };
    assert_eq!(texts(&turned), (json!("turn"), json!("turn")));
    let all = json!([said("system", json!("turn")), said("user", json!("hi"))]);
    assert_eq!(
        Dialog::new(&turned, Some("set"), CHAT).messages(),
        all,
        "it takes the place of the messages' own"
    );
}

#[test]
fn dialog_has_no_system_messages() {
    let messages = vec![
        said("system", json!("a")),
        said("user", json!("b")),
        said("system", json!("c")),
    ];
    let prompt = Prompt {
        messages: Some(messages),
        ..Prompt::default()
    };
    let dialog = Dialog::new(&prompt, None, CHAT);
    assert_eq!(
        (dialog.system(), dialog.others()),
        (json!("a\n\nc"), json!([said("user", json!("b"))]))
    );
}

#[test]
fn each_protocol_gets_its_own_default_body() {
    let picture =
        json!({ "type": "image_url", "image_url": { "url": "data:image/png;base64,iVBO" } });
    let prompt = Prompt {
        messages: Some(vec![said("user", json!([picture]))]),
        ..Prompt::default()
    };
    let shown = json!({ "type": "image", "source": { "type": "base64", "media_type": "image/png", "data": "iVBO" } });
    let dialog = Dialog::new(&prompt, Some("s"), Api::Anthropic);
    assert_eq!(
        (dialog.system(), dialog.others()),
        (json!("s"), json!([said("user", json!([shown]))]))
    );
    let listed =
        json!([said("system", json!("s")), { "role": "user", "content": "", "images": ["iVBO"] }]);
    assert_eq!(
        Dialog::new(&prompt, Some("s"), Api::Ollama).messages(),
        listed
    );
}
