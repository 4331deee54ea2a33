use super::*;
use crate::scenario::tests::plan;
use proptest::prelude::*;

const CHAT: &str =
    r#"{"model": "{{ model }}", "messages": "{{ messages }}", "stream": true, "stream_options": {"include_usage": true}}"#;

fn render(request: &str, prompt: &Prompt) -> Result<Rendered, RenderError> {
    let yaml = format!(
        "version: 1\nname: t\ntarget: {{url: simulator, model: m}}\ndataset: {{kind: openqa, system: Be terse.}}\nload: {{concurrency: 1, requests: 1}}\nrequest: {request}\n"
    );
    let protocol = serde_json::from_str(CHAT).unwrap();
    Renderer::new(&plan(&yaml).cases[0], &protocol)?.body(prompt, 3, Seed(42))
}

fn body(request: &str, prompt: &Prompt) -> Value {
    serde_json::from_slice(&render(request, prompt).unwrap().bytes).unwrap()
}

fn prompt(text: &str) -> Prompt {
    Prompt { text: text.to_owned(), ..Prompt::default() }
}

#[test]
fn without_a_template_the_protocol_speaks() {
    let messages = json!([{ "role": "system", "content": "Be terse." }, { "role": "user", "content": "hi" }]);
    let usage = json!({ "include_usage": true });
    assert_eq!(
        body("{max_tokens: 5, temperature: 0, stop: [a]}", &prompt("hi")),
        json!({ "model": "m", "messages": messages, "stream": true, "stream_options": usage, "max_tokens": 5, "temperature": 0, "stop": ["a"] })
    );
    assert_eq!(body("{stream: false}", &prompt("hi")), json!({ "model": "m", "messages": messages, "stream": false }));
}

#[test]
fn the_template_wins_over_the_fields_and_extra_over_all() {
    let request = r#"{max_tokens: 5, temperature: 0.5, template: {model: "%m", prompt: "Q: %p", temperature: 1, options: {a: 1, b: "{{ seq }}"}, n: "{{ case.max_tokens }}"},
        extra: {options: {a: null, c: "{{ item.lang }}"}, n: null, stream_options: null}}"#;
    let prompt = Prompt { fields: serde_json::from_str(r#"{"lang": "de"}"#).unwrap(), ..prompt("x") };
    let expected = json!({ "model": "m", "prompt": "Q: x", "temperature": 1, "options": { "b": 3, "c": "de" }, "stream": true, "max_tokens": 5 });
    assert_eq!(body(request, &prompt), expected);
}

#[test]
fn what_is_asked_for_is_read_from_the_body() {
    let rendered = render(
        r#"{template: {model: fixed, prompt: "%p", stream: false, max_completion_tokens: 9}, max_tokens: 5}"#,
        &prompt("x"),
    )
    .unwrap();
    assert_eq!((rendered.model.as_str(), rendered.streamed, rendered.max_tokens), ("fixed", false, Some(9)));
    let body: Value = serde_json::from_slice(&rendered.bytes).unwrap();
    assert_eq!(body.get("max_tokens"), None);
}

#[test]
fn a_body_from_the_data_takes_the_templates_place() {
    let whole = serde_json::from_str(r#"{"prompt": "{{ prompt }} %p", "max_tokens": 7}"#).unwrap();
    let prompt = Prompt { body: Some(whole), ..Prompt::default() };
    let expected = json!({ "prompt": "{{ prompt }} %p", "max_tokens": 7, "model": "m", "stream": false });
    assert_eq!(body("{stream: false, max_tokens: 5, template: {x: y}}", &prompt), expected);
}

#[test]
fn messages_of_the_data_keep_their_own_system_message() {
    let messages = vec![json!({ "role": "system", "content": "Own." }), json!({ "role": "user", "content": "hi" })];
    let prompt = Prompt { messages: Some(messages.clone()), ..Prompt::default() };
    assert_eq!(body("{stream: false}", &prompt)["messages"], Value::Array(messages));
}

#[test]
fn a_renderer_is_shared_between_threads() {
    fn shared<T: Send + Sync>() {}
    shared::<Renderer>();
}

#[test]
fn a_row_without_the_field_is_an_error() {
    let error = render("{template: {q: \"{{ item.q }}\"}}", &prompt("x")).unwrap_err();
    assert_eq!(error, RenderError::Leaf { at: "q".into(), message: "`item.q` has no value".into() });
    let error = render("{max_tokens: {from: item.n}}", &prompt("x")).unwrap_err();
    assert_eq!(error, RenderError::Length("n".into()));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_prompt_breaks_the_json(text in "\\PC{0,60}|[{}%\"'\\\\\n]{0,20}") {
        let request = r#"{template: {a: "%p", b: "x %p y", c: "{{ messages }}"}}"#;
        let body = body(request, &prompt(&text));
        prop_assert_eq!(&body["a"], &json!(text));
        prop_assert_eq!(&body["b"], &json!(format!("x {text} y")));
        prop_assert_eq!(&body["c"][1]["content"], &json!(text));
    }
}
