use super::*;
use llmscen_core::expect::{ToolCall, Truth};
use serde_json::json;

/// The result of an answer without tool calls.
fn check(expect: Expect, row: Value, text: &str) -> CheckedAnswer {
    check_calls(expect, row, text, &Value::Null)
}

fn check_calls(expect: Expect, row: Value, text: &str, calls: &Value) -> CheckedAnswer {
    let truths = expect.truths(row.as_object().unwrap()).unwrap();
    let answer = Answer {
        text,
        tool_calls: calls,
        tokens: Some(7),
        max_tokens: Some(8),
    };
    AnswerChecker::new(&expect).unwrap().check(answer, &truths)
}

fn reason(checked: &CheckedAnswer) -> String {
    let failed = checked.failed.as_ref();
    failed.map_or(String::new(), |failed| {
        format!("{}: {}", failed.check, failed.reason)
    })
}

#[test]
fn an_answer_is_valid_json_for_its_schema() {
    let schema = json!({
        "type": "object",
        "required": ["n"],
        "properties": { "n": { "type": "integer" }, "s": { "pattern": "^[a-z]+$" } }
    });
    let of = |text: &str| {
        let expect = Expect {
            json_schema: Some(schema.clone()),
            ..Expect::default()
        };
        let checked = check(expect, json!({}), text);
        assert_eq!((checked.matches, checked.length_exact), (None, None));
        (checked.valid.unwrap(), reason(&checked))
    };
    assert_eq!(of("\n {\"n\": 1, \"s\": \"abc\"} "), (true, String::new()));
    assert_eq!(
        of("{\"n\": \"1\"}"),
        (
            false,
            "json_schema: /n: value is not of type \"integer\"".into()
        )
    );
    assert_eq!(
        of("{}"),
        (
            false,
            "json_schema: the answer: \"n\" is a required property".into()
        )
    );
    assert!(!of("{\"n\": 1, \"s\": \"A\"}").0);
    assert!(
        of("```json\n{\"n\": 1}\n```")
            .1
            .starts_with("json_schema: not JSON: ")
    );
}

#[test]
fn a_schema_with_a_remote_reference_or_a_large_pattern_does_not_compile() {
    let compile = |schema: Value| compile_schema(&schema).err();
    assert!(compile(json!({ "$ref": "https://example.com/a.json" })).is_some());
    assert!(compile(json!({ "$ref": "file:///etc/passwd" })).is_some());
    assert!(compile(json!({ "type": 7 })).is_some());
    assert!(compile(json!({ "pattern": "(\\w{200}){200}" })).is_some());
    assert!(
        compile(json!({ "$ref": "#/$defs/a", "$defs": { "a": { "type": "string" } } })).is_none()
    );
}

#[test]
fn a_schema_that_refers_to_itself_without_descending_does_not_compile() {
    let circle = |schema: Value| compile_schema(&schema).is_err_and(|why| why.contains("circle"));
    assert!(circle(json!({ "$ref": "#" })));
    let defs = |a: Value, b: Value| json!({ "$ref": "#/$defs/a", "$defs": { "a": a, "b": b } });
    assert!(circle(defs(
        json!({ "$ref": "#/$defs/b" }),
        json!({ "anyOf": [{ "type": "null" }, { "$ref": "#/$defs/a" }] }),
    )));
    assert!(circle(
        json!({ "properties": { "a~b/c": { "not": { "$ref": "#/properties/a~0b~1c" } } } })
    ));
    // A tree refers to itself below its own children, and two references may have one aim.
    assert!(!circle(
        json!({ "properties": { "child": { "$ref": "#" } }, "items": { "$ref": "#" } })
    ));
    let both = json!({ "allOf": [{ "$ref": "#/$defs/b" }, { "$ref": "#/$defs/b" }] });
    assert!(!circle(defs(both, json!({ "type": "object" }))));
    // What only looks like a reference.
    assert!(!circle(json!({ "const": { "$ref": "#/const" } })));
}

#[test]
fn a_regex_matches_somewhere_and_has_a_limited_size() {
    let of = |text: &str| {
        let expect = Expect {
            regex: Some("^[A-Z]\\w+ \\d$".into()),
            ..Expect::default()
        };
        check(expect, json!({}), text)
    };
    assert_eq!(of("Room 7").valid, Some(true));
    assert_eq!(reason(&of("room 7")), "regex: no match");
    assert!(compile_regex("(\\w{200}){200}").is_err());
}

#[test]
fn a_truth_is_compared_without_outer_white_space() {
    let of = |contains: bool, text: &str| {
        let truth = Some(Truth::Item("answer".into()));
        let expect = Expect {
            equals: truth.clone().filter(|_| !contains),
            contains: truth.filter(|_| contains),
            ..Expect::default()
        };
        let checked = check(expect, json!({ "answer": [" Paris ", "Lutetia"] }), text);
        assert_eq!(checked.valid, None);
        (checked.matches.unwrap(), reason(&checked))
    };
    assert_eq!(of(false, "\nParis\n"), (true, String::new()));
    assert_eq!(of(false, "Lutetia"), (true, String::new()));
    let other = "equals: expected \"Paris\" or \"Lutetia\", not \"paris\"";
    assert_eq!(of(false, "paris"), (false, other.into()));
    assert_eq!(of(true, "It is Paris."), (true, String::new()));
    assert!(!of(true, "It is Rome.").0);
}

#[test]
fn a_tool_call_of_any_api_is_well_formed_or_named() {
    let of = |expected: ToolCall, calls: Value| {
        let expect = Expect {
            tool_call: Some(expected),
            ..Expect::default()
        };
        let checked = check_calls(expect, json!({}), "", &calls);
        (checked.valid, checked.matches, reason(&checked))
    };
    let any = || ToolCall::WellFormed;
    let named = || ToolCall::Named(Truth::Text("f".into()));
    for call in [
        json!({ "id": "1", "type": "function", "function": { "name": "f", "arguments": "{\"a\": 1}" } }),
        json!({ "type": "tool_use", "id": "1", "name": "f", "input": { "a": 1 } }),
        json!({ "type": "function_call", "call_id": "1", "name": "f", "arguments": "{}" }),
        json!({ "function": { "name": "f", "arguments": {} } }),
    ] {
        let calls = json!([call]);
        assert_eq!(of(any(), calls.clone()), (Some(true), None, String::new()));
        assert_eq!(of(named(), calls), (Some(true), Some(true), String::new()));
    }
    let none = (
        Some(false),
        Some(false),
        "tool_call: no tool call".to_owned(),
    );
    assert_eq!(of(named(), Value::Null), none);
    let cut = json!([{ "function": { "name": "f", "arguments": "{\"a\": " } }]);
    assert_eq!(
        of(named(), cut),
        (
            Some(false),
            Some(true),
            "tool_call: the arguments of `f` are not a JSON object".into()
        )
    );
    let other = json!([{ "function": { "name": "g", "arguments": "{}" } }]);
    assert_eq!(
        of(named(), other),
        (
            Some(true),
            Some(false),
            "tool_call: expected \"f\", not \"g\"".into()
        )
    );
}

#[test]
fn repetition_and_length_have_limits() {
    let of = |limit: f64, text: &str| {
        let expect = Expect {
            repetition: Some(limit),
            exact_length: true,
            ..Expect::default()
        };
        check(expect, json!({}), text)
    };
    let fresh = of(0.3, "a b c d e f g h");
    assert_eq!((fresh.valid, fresh.length_exact), (Some(true), Some(false)));
    assert_eq!(reason(&fresh), "length: 7 of 8 tokens");
    let repeated = of(0.3, &"the ".repeat(13));
    assert_eq!(reason(&repeated), "repetition: 90% repeated, limit 30%");
    assert_eq!(
        of(0.9, &"the ".repeat(13)).valid,
        Some(false),
        "the limit itself is too much"
    );
    assert_eq!(of(0.3, "a b c").valid, None, "too short to measure");
}

#[test]
fn the_language_is_checked_where_it_is_certain() {
    let of = |text: &str| {
        let expect = Expect {
            language: Some("en".into()),
            ..Expect::default()
        };
        check(expect, json!({}), text)
    };
    let english = "The quick brown fox jumps over the lazy dog while the children are watching from the window.";
    assert_eq!(of(english).valid, Some(true));
    let german = "Der schnelle braune Fuchs springt über den faulen Hund, während die Kinder aus dem Fenster zusehen.";
    assert_eq!(reason(&of(german)), "language: German, not English");
    assert_eq!(of("42").valid, None, "too short to detect");
    assert_eq!(reason(&of(" ")), "language: no text");
}

#[test]
fn every_language_has_one_code() {
    let mut codes: Vec<&str> = LANGUAGES.iter().map(|(code, _)| *code).collect();
    assert!(codes.is_sorted());
    codes.dedup();
    assert_eq!(codes.len(), LANGUAGES.len());
    for lang in Lang::all() {
        assert_eq!(
            LANGUAGES.iter().filter(|(_, known)| known == lang).count(),
            1,
            "{lang:?}"
        );
    }
}
