use super::*;
use llmscen_core::plan::Plan;
use llmscen_scenario::{Input, load};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::path::Path;

fn plan(yaml: &str) -> Plan {
    let input = Input {
        path: Path::new("t.yaml"),
        text: Some(yaml.to_owned()),
        env: &BTreeMap::new(),
        set: &[],
    };
    load(&input)
        .unwrap_or_else(|faults| panic!("{}", faults.render(false, 100)))
        .plan
}

const CHAT: &str = r#"{"model": "{{ model }}", "messages": "{{ messages }}", "stream": true, "stream_options": {"include_usage": true}}"#;

fn render(request: &str, prompt: &Prompt) -> Result<Rendered, RenderError> {
    let yaml = format!(
        "version: 1\nname: t\ntarget: {{url: simulator, model: m}}\ndataset: {{kind: openqa, \
        system: Be terse.}}\nload: {{concurrency: 1, requests: 1}}\nrequest: {request}\n"
    );
    let protocol: Value = serde_json::from_str(CHAT).unwrap();
    Renderer::new(&plan(&yaml).cases[0], |_| protocol.clone())?.body(prompt, 3, Seed(42))
}

fn body(request: &str, prompt: &Prompt) -> Value {
    serde_json::from_slice(&render(request, prompt).unwrap().bytes).unwrap()
}

fn prompt(text: &str) -> Prompt {
    Prompt {
        text: text.to_owned(),
        ..Prompt::default()
    }
}

#[test]
fn default_body_is_that_of_the_protocol() {
    let messages =
        json!([{ "role": "system", "content": "Be terse." }, { "role": "user", "content": "hi" }]);
    let usage = json!({ "include_usage": true });
    assert_eq!(
        body("{max_tokens: 5, temperature: 0, stop: [a]}", &prompt("hi")),
        json!({ "model": "m", "messages": messages, "stream": true, "stream_options": usage,
            "max_tokens": 5, "temperature": 0, "stop": ["a"] })
    );
    assert_eq!(
        body("{stream: false}", &prompt("hi")),
        json!({ "model": "m", "messages": messages, "stream": false })
    );
}

#[test]
fn template_overrides_fields_and_extra_overrides_both() {
    let request = r#"{max_tokens: 5, temperature: 0.5, template: {model: "%m", prompt: "Q: %p", temperature: 1, options: {a: 1, b: "{{ seq }}"}, n: "{{ case.max_tokens }}"},
        extra: {options: {a: null, c: "{{ item.lang }}"}, n: null, stream_options: null}}"#;
    let prompt = Prompt {
        fields: serde_json::from_str(r#"{"lang": "de"}"#).unwrap(),
        ..prompt("x")
    };
    let expected = json!({ "model": "m", "prompt": "Q: x", "temperature": 1, "options": { "b": 3,
        "c": "de" }, "stream": true, "max_tokens": 5 });
    assert_eq!(body(request, &prompt), expected);
}

#[test]
fn rendered_facts_are_read_from_the_body() {
    let rendered = render(
        r#"{template: {model: fixed, prompt: "%p", stream: false, max_completion_tokens: 9}, max_tokens: 5}"#,
        &prompt("x"),
    )
    .unwrap();
    assert_eq!(
        (
            rendered.model.as_str(),
            rendered.streamed,
            rendered.max_tokens
        ),
        ("fixed", false, Some(9))
    );
    let body: Value = serde_json::from_slice(&rendered.bytes).unwrap();
    assert_eq!(body.get("max_tokens"), None);
}

#[test]
fn body_of_the_dataset_replaces_the_template() {
    let whole = serde_json::from_str(r#"{"prompt": "{{ prompt }} %p", "max_tokens": 7}"#).unwrap();
    let prompt = Prompt {
        body: Some(whole),
        ..Prompt::default()
    };
    let expected =
        json!({ "prompt": "{{ prompt }} %p", "max_tokens": 7, "model": "m", "stream": false });
    assert_eq!(
        body("{stream: false, max_tokens: 5, template: {x: y}}", &prompt),
        expected
    );
}

#[test]
fn messages_of_the_dataset_keep_their_system_message() {
    let messages = vec![
        json!({ "role": "system", "content": "Own." }),
        json!({ "role": "user", "content": "hi" }),
    ];
    let prompt = Prompt {
        messages: Some(messages.clone()),
        ..Prompt::default()
    };
    assert_eq!(
        body("{stream: false}", &prompt)["messages"],
        Value::Array(messages)
    );
}

#[test]
fn renderer_is_shared_between_threads() {
    fn shared<T: Send + Sync>() {}
    shared::<Renderer>();
}

#[test]
fn missing_row_field_is_an_error() {
    let error = render("{template: {q: \"{{ item.q }}\"}}", &prompt("x")).unwrap_err();
    assert_eq!(
        error,
        RenderError::Leaf {
            at: "q".into(),
            message: "`item.q` has no value".into()
        }
    );
    let error = render("{max_tokens: {from: item.n}}", &prompt("x")).unwrap_err();
    assert_eq!(error, RenderError::Length("n".into()));
}

/// The body of another protocol; `own` is its template.
fn spoken(api: &str, own: Value, request: &str, prompt: &Prompt) -> (Value, Rendered) {
    let path = if api == "custom" {
        "/v1/completions"
    } else {
        ""
    };
    let talks = !matches!(api, "tgi" | "custom" | "openai-embeddings" | "rerank");
    let system = if talks { ", system: Be terse." } else { "" };
    let yaml = format!(
        "version: 1\nname: t\ntarget: {{api: {api}, url: simulator{path}, model: m}}\ndataset: \
        {{kind: openqa{system}}}\nload: {{concurrency: 1, requests: 1}}\nrequest: {request}\n"
    );
    let rendered = Renderer::new(&plan(&yaml).cases[0], |_| own.clone())
        .unwrap()
        .body(prompt, 3, Seed(42))
        .unwrap();
    (serde_json::from_slice(&rendered.bytes).unwrap(), rendered)
}

#[test]
fn fields_are_placed_where_the_protocol_has_them() {
    let own = json!({ "model": "{{ model }}", "messages": "{{ messages }}", "stream": true });
    let request = "{max_tokens: 9, temperature: 0, stop: [a], repetition_penalty: 1.1}";
    let (body, rendered) = spoken("ollama", own, request, &prompt("hi"));
    let options =
        json!({ "num_predict": 9, "temperature": 0, "repeat_penalty": 1.1, "stop": ["a"] });
    assert_eq!(
        (
            &body["options"],
            &body["stream"],
            body.get("stream_options")
        ),
        (&options, &json!(true), None)
    );
    assert_eq!((rendered.max_tokens, rendered.streamed), (Some(9), true));
    let request = "{max_tokens: 9, top_k: 3, template: {inputs: '%p', parameters: {top_k: 1, details: true}}}";
    let (body, rendered) = spoken(
        "tgi",
        json!({ "inputs": "{{ prompt }}", "parameters": {} }),
        request,
        &prompt("hi"),
    );
    assert_eq!(
        body,
        json!({ "inputs": "hi", "parameters": { "top_k": 1, "details": true, "max_new_tokens": 9 } })
    );
    assert_eq!(
        (
            rendered.max_tokens,
            rendered.streamed,
            rendered.model.as_str()
        ),
        (Some(9), true, "m")
    );
}

#[test]
fn missing_values_are_omitted_from_default_bodies() {
    let own = json!({ "model": "{{ model }}", "system": "{{ system }}", "messages": "{{ dialog }}", "stream": true });
    let user = json!([{ "role": "user", "content": "hi" }]);
    let (body, _) = spoken(
        "anthropic",
        own.clone(),
        "{max_tokens: 5, stream: false}",
        &prompt("hi"),
    );
    assert_eq!(
        body,
        json!({ "model": "m", "system": "Be terse.", "messages": user, "stream": false, "max_tokens": 5 })
    );
    let silent = json!({ "role": "assistant", "content": null });
    let call = Prompt {
        messages: Some(vec![silent.clone()]),
        ..Prompt::default()
    };
    let (body, _) = spoken(
        "tgi",
        json!({ "system": "{{ system }}", "messages": "{{ dialog }}" }),
        "{}",
        &call,
    );
    assert_eq!(
        body,
        json!({ "messages": [silent] }),
        "what the data says is null stays null"
    );
    let (body, _) = spoken(
        "tgi",
        own,
        "{template: {system: '{{ system }}'}}",
        &prompt("hi"),
    );
    assert_eq!(
        body["system"],
        Value::Null,
        "so does what the template says"
    );
}

#[test]
fn dataset_overrides_the_scenario() {
    let prompt = Prompt {
        max_tokens: Some(7),
        model: Some("logged".into()),
        system: Some("Own.".into()),
        sampling: serde_json::from_value(
            json!({ "min_tokens": 7, "ignore_eos": true, "temperature": 1 }),
        )
        .unwrap(),
        ..prompt("hi")
    };
    let own = body("{max_tokens: 5, temperature: 0, top_p: 0.5}", &prompt);
    assert_eq!(
        (&own["max_tokens"], &own["model"]),
        (&json!(7), &json!("logged"))
    );
    assert_eq!(
        (
            &own["temperature"],
            &own["top_p"],
            &own["min_tokens"],
            &own["ignore_eos"]
        ),
        (&json!(1), &json!(0.5), &json!(7), &json!(true))
    );
    assert_eq!(own["messages"][0]["content"], "Own.");
    let (body, _) = spoken(
        "anthropic",
        json!({ "model": "{{ model }}", "stream": true }),
        "{max_tokens: 5}",
        &prompt,
    );
    assert_eq!(
        body,
        json!({ "model": "logged", "stream": true, "max_tokens": 7, "temperature": 1 }),
        "it has no `ignore_eos`"
    );
}

#[test]
fn custom_template_is_sent_unchanged() {
    let extract = "extract: {text: $.text}";
    let request = format!(
        "{{max_tokens: 5, template: {{q: '%p', limit: '{{{{ case.max_tokens }}}}'}}, {extract}}}"
    );
    let (body, rendered) = spoken("custom", json!({}), &request, &prompt("hi"));
    assert_eq!(body, json!({ "q": "hi", "limit": 5 }));
    assert_eq!(
        (
            rendered.max_tokens,
            rendered.streamed,
            rendered.model.as_str()
        ),
        (Some(5), true, "m")
    );
    let (_, rendered) = spoken(
        "custom",
        json!({}),
        &format!("{{template: {{q: '%p', stream: false}}, {extract}}}"),
        &prompt("hi"),
    );
    assert_eq!((rendered.max_tokens, rendered.streamed), (None, false));
    let whole = Prompt {
        body: Some(serde_json::from_value(json!({ "x": 1 })).unwrap()),
        ..Prompt::default()
    };
    let (body, _) = spoken("custom", json!({}), &request, &whole);
    assert_eq!(body, json!({ "x": 1 }));
}

#[test]
fn token_counts_are_requested_if_the_finished_body_streams() {
    let usage = json!({ "include_usage": true });
    assert_eq!(
        body("{stream: false, extra: {stream: true}}", &prompt("x"))["stream_options"],
        usage
    );
    assert_eq!(
        body("{extra: {stream: false}}", &prompt("x")).get("stream_options"),
        None
    );
    assert_eq!(
        body("{template: {stream: true, p: '%p'}}", &prompt("x"))["stream_options"],
        usage
    );
    assert_eq!(
        body("{extra: {stream_options: null}}", &prompt("x")).get("stream_options"),
        None
    );
    let both = json!({ "include_usage": true, "continuous_usage_stats": true });
    assert_eq!(
        body(
            "{extra: {stream_options: {continuous_usage_stats: true}}}",
            &prompt("x")
        )["stream_options"],
        both
    );
    let whole = Prompt {
        body: Some(serde_json::from_value(json!({ "stream": true })).unwrap()),
        ..Prompt::default()
    };
    assert_eq!(
        body("{stream: false}", &whole)["stream_options"],
        usage,
        "the data streams where the scenario does not"
    );
}

#[test]
fn row_length_overrides_the_body_of_the_row() {
    let whole =
        serde_json::from_str(r#"{"prompt": "x", "max_tokens": 7, "ignore_eos": false, "seed": 1}"#)
            .unwrap();
    let sampling = serde_json::from_value(json!({ "ignore_eos": true })).unwrap();
    let prompt = Prompt {
        body: Some(whole),
        max_tokens: Some(9),
        sampling,
        ..Prompt::default()
    };
    let expected = json!({ "prompt": "x", "max_tokens": 9, "ignore_eos": true, "seed": 1, "model": "m",
        "stream": false });
    assert_eq!(body("{stream: false, max_tokens: 5}", &prompt), expected);
    let newer = serde_json::from_value(json!({ "max_completion_tokens": 3 })).unwrap();
    let prompt = Prompt {
        body: Some(newer),
        ..prompt
    };
    let expected =
        json!({ "max_completion_tokens": 9, "ignore_eos": true, "model": "m", "stream": false });
    assert_eq!(
        body("{stream: false, max_tokens: 5}", &prompt),
        expected,
        "under the name that the body has for it"
    );
    let (custom, _) = spoken(
        "custom",
        json!({}),
        "{template: {q: '%p'}, extract: {text: $.text}}",
        &prompt,
    );
    assert_eq!(
        custom,
        json!({ "max_completion_tokens": 9, "ignore_eos": true })
    );
}

#[test]
fn tools_of_the_dataset_are_placed_where_the_protocol_has_them() {
    let chat = json!([{ "type": "function", "function": { "name": "f", "parameters": { "type": "object" } } }]);
    let sampling = serde_json::from_value(json!({ "tools": chat, "tool_choice": "auto" })).unwrap();
    let prompt = Prompt {
        sampling,
        ..prompt("x")
    };
    let of = |api: &str| {
        spoken(
            api,
            json!({ "model": "m" }),
            "{max_tokens: 5, stream: false}",
            &prompt,
        )
        .0
    };
    let schema = json!([{ "name": "f", "input_schema": { "type": "object" } }]);
    assert_eq!(
        (&of("anthropic")["tools"], &of("anthropic")["tool_choice"]),
        (&schema, &json!({ "type": "auto" }))
    );
    assert_eq!(
        (
            &of("dashscope")["parameters"]["tools"],
            &of("dashscope")["parameters"]["tool_choice"]
        ),
        (&chat, &json!("auto"))
    );
    assert_eq!(
        (&of("ollama")["tools"], of("ollama").get("tool_choice")),
        (&chat, None)
    );
    assert_eq!(of("openai-responses")["tools"][0]["name"], "f");
}

#[test]
fn documents_to_rank_are_counted() {
    let items = |api: &str, template: &str| {
        spoken(
            api,
            json!({}),
            &format!("{{template: {template}}}"),
            &prompt("x"),
        )
        .1
        .items
    };
    assert_eq!(items("rerank", "{query: q, documents: [a, b]}"), Some(2));
    assert_eq!(items("rerank", "{query: q, texts: [a, b, c]}"), Some(3));
    assert_eq!(
        items("openai-embeddings", "{input: [a, b]}"),
        None,
        "the reply tells"
    );
    assert_eq!(render("{stream: false}", &prompt("x")).unwrap().items, None);
}

#[test]
fn logprobs_are_requested_in_the_protocols_format_unless_the_body_sets_them() {
    let own = json!({ "model": "m", "input": "{{ messages }}" });
    let (body, _) = spoken(
        "openai-responses",
        own,
        "{logprobs: 3, stream: false}",
        &prompt("hi"),
    );
    assert_eq!(
        (&body["top_logprobs"], &body["include"]),
        (&json!(3), &json!(["message.output_text.logprobs"]))
    );
    let own = "{logprobs: 3, stream: false, extra: {include: [reasoning.encrypted_content]}}";
    let (body, _) = spoken(
        "openai-responses",
        json!({ "input": "%p" }),
        own,
        &prompt("hi"),
    );
    assert_eq!(
        body["include"],
        json!([
            "reasoning.encrypted_content",
            "message.output_text.logprobs"
        ])
    );
    let (body, _) = spoken(
        "tgi",
        json!({ "inputs": "%p" }),
        "{stream: false}",
        &prompt("hi"),
    );
    assert_eq!(body, json!({ "inputs": "hi" }));
    let said = self::body(
        "{logprobs: 3, stream: false, template: {p: '%p', logprobs: false}}",
        &prompt("hi"),
    );
    assert_eq!(
        said,
        json!({ "p": "hi", "logprobs": false, "stream": false }),
        "nothing for it where it is not wanted"
    );
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn prompts_cannot_break_the_json(text in "\\PC{0,60}|[{}%\"'\\\\\n]{0,20}") {
        let request = r#"{template: {a: "%p", b: "x %p y", c: "{{ messages }}"}}"#;
        let body = body(request, &prompt(&text));
        prop_assert_eq!(&body["a"], &json!(text));
        prop_assert_eq!(&body["b"], &json!(format!("x {text} y")));
        prop_assert_eq!(&body["c"][1]["content"], &json!(text));
    }
}

#[test]
fn equal_requests_have_equal_lengths() {
    let of = |seq: u64| draw_length(&Quantity::uniform(1, 9), Seed(1).child(seq), &Map::new());
    assert!(
        (0..100).all(|seq| of(seq) == of(seq) && of(seq).is_some_and(|n| (1..=9).contains(&n)))
    );
    assert!((0..100).any(|seq| of(seq) != of(0)));
}

#[test]
fn length_field_must_be_a_number() {
    let fields = serde_json::json!({ "n": 12, "text": "12" });
    let from = |name: &str| {
        draw_length(
            &Quantity::Item(name.into()),
            Seed(1),
            fields.as_object().unwrap(),
        )
    };
    assert_eq!(
        (from("n"), from("text"), from("none")),
        (Some(12), None, None)
    );
}

#[test]
fn models_are_drawn_by_weight() {
    let models = [
        ModelShare {
            name: "a".into(),
            weight: 3.0,
        },
        ModelShare {
            name: "b".into(),
            weight: 1.0,
        },
    ];
    let first = (0..10_000u64)
        .filter(|seq| draw_model(&models, Seed(1).child(*seq)) == "a")
        .count();
    assert!((7_400..7_600).contains(&first), "{first}");
    assert_eq!(draw_model(&models, Seed(5)), draw_model(&models, Seed(5)));
}
