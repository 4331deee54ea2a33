//! Recorded tool results in live replays, against servers that refuse histories with unknown or unanswered calls.

use crate::lab::{Lab, response};
use crate::sessions::Recorder;
use serde_json::{Value, json};

/// One message of a history, in the terms of every protocol.
#[derive(Debug, PartialEq)]
enum Step {
    Text(&'static str),
    Call(String),
    Result(String),
}

const APIS: [&str; 5] = [
    "openai-chat",
    "openai-responses",
    "anthropic",
    "ollama",
    "dashscope",
];

fn word(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn list(value: &Value) -> Vec<Value> {
    value.as_array().cloned().unwrap_or_default()
}

/// The steps of a request. A call and its result have an id, or with Ollama the name of the tool.
fn steps(api: &str, body: &Value) -> Vec<Step> {
    let role = |message: &Value| match message["role"].as_str() {
        Some("user") => Step::Text("user"),
        _ => Step::Text("assistant"),
    };
    let mut steps = Vec::new();
    let messages = [
        &body["messages"],
        &body["input"],
        &body["input"]["messages"],
    ];
    for message in messages.into_iter().flat_map(list) {
        match api {
            "openai-responses" => steps.push(match message["type"].as_str() {
                Some("function_call") => Step::Call(word(&message["call_id"])),
                Some("function_call_output") => Step::Result(word(&message["call_id"])),
                _ => role(&message),
            }),
            "anthropic" => {
                let mut blocks = list(&message["content"]).into_iter().peekable();
                let results: Vec<Value> =
                    std::iter::from_fn(|| blocks.next_if(|block| block["type"] == "tool_result"))
                        .collect();
                if results.is_empty() {
                    steps.push(role(&message));
                }
                let results = results
                    .iter()
                    .map(|block| Step::Result(word(&block["tool_use_id"])));
                steps.extend(results);
                let calls = blocks.filter(|block| block["type"] == "tool_use");
                steps.extend(calls.map(|block| Step::Call(word(&block["id"]))));
            }
            "ollama" if message["role"] == "tool" => {
                steps.push(Step::Result(word(&message["tool_name"])));
            }
            _ if message["role"] == "tool" => {
                steps.push(Step::Result(word(&message["tool_call_id"])));
            }
            _ => {
                steps.push(role(&message));
                let name = |call: &Value| match api {
                    "ollama" => word(&call["function"]["name"]),
                    _ => word(&call["id"]),
                };
                let calls = list(&message["tool_calls"]);
                steps.extend(calls.iter().map(|call| Step::Call(name(call))));
            }
        }
    }
    steps
}

/// Why a server refuses a history: a result without a call of the reply before it, or a call without a result.
fn refusal(api: &str, steps: &[Step]) -> Option<String> {
    let mut open: Vec<&String> = Vec::new();
    for (index, step) in steps.iter().enumerate() {
        match step {
            Step::Call(id) => open.push(id),
            Step::Result(id) => match open.iter().position(|call| *call == id) {
                Some(at) => _ = open.remove(at),
                None => return Some(format!("unknown id `{id}`")),
            },
            Step::Text(_) if open.is_empty() => {}
            Step::Text(_) => return Some(format!("no result for `{open:?}`")),
        }
        let twice = index > 0 && steps[index - 1] == *step && *step == Step::Text("assistant");
        if twice && api != "openai-responses" {
            return Some("two assistant messages".into());
        }
    }
    (!open.is_empty()).then(|| format!("no result for `{open:?}`"))
}

/// A reply with a text and calls of tools.
fn reply(api: &str, text: &str, calls: &[(&str, &str)]) -> Vec<u8> {
    let chat = |(index, (id, name)): (usize, &(&str, &str))| json!({ "index": index, "id": id, "type": "function", "function": { "name": name, "arguments": "{}" } });
    let message = || {
        let mut message = json!({ "role": "assistant", "content": text });
        if !calls.is_empty() {
            message["tool_calls"] = calls.iter().enumerate().map(chat).collect();
        }
        message
    };
    let body = match api {
        "openai-responses" => {
            let content = json!([{ "type": "output_text", "text": text }]);
            let mut output =
                vec![json!({ "type": "message", "role": "assistant", "content": content })];
            output.extend(calls.iter().map(|(id, name)| json!({ "type": "function_call", "call_id": id, "name": name, "arguments": "{}" })));
            json!({ "id": "r", "status": "completed", "output": output })
        }
        "anthropic" => {
            let mut content = vec![json!({ "type": "text", "text": text })];
            content.extend(calls.iter().map(
                |(id, name)| json!({ "type": "tool_use", "id": id, "name": name, "input": {} }),
            ));
            json!({ "id": "r", "type": "message", "role": "assistant", "content": content, "stop_reason": "end_turn" })
        }
        "ollama" => {
            let calls = calls
                .iter()
                .map(|(_, name)| json!({ "function": { "name": name, "arguments": {} } }));
            let message = json!({ "role": "assistant", "content": text, "tool_calls": calls.collect::<Vec<_>>() });
            json!({ "model": "m", "message": message, "done": true, "done_reason": "stop" })
        }
        "dashscope" => {
            json!({ "output": { "choices": [{ "finish_reason": "stop", "message": message() }] }, "request_id": "r" })
        }
        _ => {
            json!({ "id": "r", "choices": [{ "index": 0, "message": message(), "finish_reason": "stop" }] })
        }
    };
    response("200 OK", "application/json", &body.to_string())
}

/// A server of a protocol that refuses invalid histories, and gives the n-th of these replies.
fn strict(
    api: &'static str,
    replies: &'static [&'static [(&'static str, &'static str)]],
) -> Recorder {
    Recorder::start(move |number, body| match refusal(api, &steps(api, body)) {
        Some(why) => response(
            "400 Bad Request",
            "application/json",
            &json!({ "error": { "message": why } }).to_string(),
        ),
        None => reply(api, "fine", replies[number]),
    })
}

/// A session of 4 turns: a question, two results, a question, a result.
fn recorded() -> Value {
    let said = |role: &str, content: &str| json!({ "role": role, "content": content });
    let call = |id: &str, name: &str| json!({ "id": id, "type": "function", "function": { "name": name, "arguments": "{\"a\":1}" } });
    let calls = |calls: Value| json!({ "role": "assistant", "content": null, "tool_calls": calls });
    let result =
        |id: &str, content: &str| json!({ "role": "tool", "tool_call_id": id, "content": content });
    json!([
        said("user", "q"),
        calls(json!([call("rec_a", "weather"), call("rec_b", "time")])),
        result("rec_a", "rain"),
        result("rec_b", "noon"),
        said("assistant", "done"),
        said("user", "next"),
        calls(json!([call("rec_c", "news")])),
        result("rec_c", "none"),
        said("assistant", "end"),
    ])
}

fn scenario(api: &str, url: &str, turns: &str) -> String {
    format!(
        "version: 1\nname: t\ntarget: {{ api: {api}, url: \"{url}\", model: m }}\nrequest: {{ stream: false, max_tokens: 3 }}\n\
         dataset: {{ kind: messages, path: talks.jsonl, turns: {turns} }}\n\
         load: {{ concurrency: 1, sessions: 1 }}\naudit: {{ lag_p99: 10s, stall_p99: 10s, cpu: 100%, achieved: 1% }}\n"
    )
}

/// Runs the recorded session against a strict server. Returns the bodies, and the notes on tool results.
fn replay(api: &str, server: &Recorder, turns: &str) -> (Vec<Value>, Vec<String>) {
    let lab = Lab::new();
    lab.file("talks.jsonl", recorded().to_string());
    lab.run(&scenario(api, &server.url, turns)).expect(0);
    let results = lab.results();
    assert_eq!(results["cases"][0]["counts"]["ok"], 4, "{api}: {results:#}");
    let notes = list(&results["notes"]);
    let notes = notes
        .iter()
        .map(word)
        .filter(|note| note.contains("tool"))
        .collect();
    let bodies = server.bodies.lock().unwrap().clone();
    (bodies, notes)
}

#[test]
fn recorded_results_answer_the_calls_of_the_live_replies() {
    for api in APIS {
        let server = strict(
            api,
            &[
                &[("live_1", "time"), ("live_2", "weather")],
                &[],
                &[("live_3", "other")],
                &[],
            ],
        );
        let (bodies, notes) = replay(api, &server, "{}");
        let names = ["time", "weather", "other"];
        let id = |index: usize| match api {
            "ollama" => names[index].to_owned(),
            _ => format!("live_{}", index + 1),
        };
        let mut known = vec![
            Step::Text("user"),
            Step::Text("assistant"),
            Step::Call(id(0)),
            Step::Call(id(1)),
            Step::Result(id(1)),
            Step::Result(id(0)),
        ];
        assert_eq!(steps(api, &bodies[1]), known, "{api}");
        known.extend([
            Step::Text("assistant"),
            Step::Text("user"),
            Step::Text("assistant"),
            Step::Call(id(2)),
            Step::Result(id(2)),
        ]);
        assert_eq!(steps(api, &bodies[3]), known, "{api}");
        assert!(bodies[3].to_string().contains("rain"), "{api}");
        assert_eq!(notes, [""; 0], "{api}");
    }
}

#[test]
fn results_and_calls_without_a_partner_are_sent_in_a_valid_form() {
    for api in APIS {
        // One call for two results, a call before a question, and no call for the last result.
        let server = strict(
            api,
            &[&[("live_1", "time")], &[("live_2", "stop")], &[], &[]],
        );
        let (bodies, notes) = replay(api, &server, "{}");
        let by_name = |id: &str, name: &str| match api {
            "ollama" => name.to_owned(),
            _ => id.to_owned(),
        };
        let [first, second] = [by_name("live_1", "time"), by_name("live_2", "stop")];
        let [weather, news] = [
            by_name("call00101", "weather"),
            by_name("call00301", "news"),
        ];
        let calls = vec![Step::Call(first.clone()), Step::Call(weather.clone())];
        let results = vec![Step::Result(weather), Step::Result(first)];
        let known = [
            vec![Step::Text("user"), Step::Text("assistant")],
            calls,
            results,
            vec![
                Step::Text("assistant"),
                Step::Call(second.clone()),
                Step::Result(second),
            ],
            vec![Step::Text("user"), Step::Text("assistant")],
            vec![Step::Call(news.clone()), Step::Result(news)],
        ];
        let known: Vec<Step> = known.into_iter().flatten().collect();
        assert_eq!(steps(api, &bodies[3]), known, "{api}");
        let sent = bodies[3].to_string();
        assert!(
            sent.contains("The tool returned no result."),
            "{api}: {sent}"
        );
        assert_eq!(
            notes,
            [
                "case `base`: 2 of 3 tool results had no live call: they were sent with their recorded calls, added to the live \
                 replies; 1 live tool call had no recorded result: `The tool returned no result.` was sent"
            ],
            "{api}"
        );
    }
}

#[test]
fn a_stored_history_gets_the_recorded_call_as_a_new_item() {
    let server = strict_items(&[&[("live_1", "time")], &[], &[], &[]]);
    let (bodies, notes) = replay(
        "openai-responses",
        &server,
        "{ history: previous_response_id }",
    );
    let call = |id: &str, name: &str| json!({ "type": "function_call", "call_id": id, "name": name, "arguments": "{\"a\":1}" });
    let output = |id: &str, content: &str| json!({ "type": "function_call_output", "call_id": id, "output": content });
    assert_eq!(
        bodies[1]["input"],
        json!([
            call("call00101", "weather"),
            output("call00101", "rain"),
            output("live_1", "noon")
        ])
    );
    assert_eq!(
        bodies[3]["input"],
        json!([call("call00301", "news"), output("call00301", "none")])
    );
    assert!(
        notes[0].starts_with("case `base`: 2 of 3 tool results had no live call"),
        "{notes:?}"
    );
}

/// A server of the Responses API that stores its responses, and takes any items.
fn strict_items(replies: &'static [&'static [(&'static str, &'static str)]]) -> Recorder {
    Recorder::start(move |number, _| reply("openai-responses", "fine", replies[number]))
}

#[test]
fn recorded_replies_keep_their_ids() {
    for api in APIS {
        let server = strict(api, &[&[("live_1", "time")], &[("live_2", "x")], &[], &[]]);
        let (bodies, notes) = replay(api, &server, "{ replies: recorded }");
        let sent = bodies[3].to_string();
        let id = if api == "ollama" { "weather" } else { "rec_a" };
        assert!(
            sent.contains(id) && !sent.contains("live_"),
            "{api}: {sent}"
        );
        assert_eq!(notes, [""; 0], "{api}");
    }
}

#[test]
fn a_plan_states_how_tool_results_are_sent() {
    let lab = Lab::new();
    lab.file("talks.jsonl", recorded().to_string());
    let mapping =
        "each result is sent for a call of the live reply, by the name of the tool, then by order";
    for (turns, expected) in [("{}", true), ("{ replies: recorded }", false)] {
        lab.file(
            "s.yaml",
            scenario("openai-chat", "http://127.0.0.1:9", turns),
        );
        let plan = lab.llmscen(&["plan", "s.yaml"]).expect(0);
        assert_eq!(plan.err.contains(mapping), expected, "{}", plan.err);
    }
}
