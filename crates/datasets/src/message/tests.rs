use super::*;
use crate::token::trained::{CHATML, MISTRAL};
use std::sync::Arc;

fn list(value: Value) -> Vec<Value> {
    value.as_array().cloned().unwrap()
}

#[test]
fn the_prompt_is_the_last_user_message() {
    let parts = json!([{ "type": "text", "text": "a" }, { "type": "image_url" }, { "type": "text", "text": "b" }]);
    let list = json!([{ "role": "system", "content": "s" }, { "role": "user", "content": parts }, { "role": "assistant", "content": null }]);
    let messages = list.as_array().unwrap().clone();
    assert_eq!(last_user(&messages), "a\nb");
    assert_eq!(last_user(&messages[..1]), "");
}

#[test]
fn a_prompt_is_counted_as_the_model_reads_it() {
    let tokenizer = CHATML.over("byte-level");
    let of = |prompt: &Prompt, system| tokens_of(prompt, &tokenizer, system);
    let both = list(json!([{ "role": "system", "content": "s" }, { "role": "user", "content": "u" }]));
    let text = Prompt { text: "u".into(), ..Prompt::default() };
    let whole = tokenizer.count_messages(&both);
    assert_eq!((of(&text, Some("s")), of(&text, None)), (whole, tokenizer.count_messages(&both[1..])));
    let own = Prompt { messages: Some(both.clone()), ..Prompt::default() };
    assert_eq!(of(&own, Some("another")), whole, "the data's own system message stays");
    let later = Prompt { system: Some("s".into()), ..text.clone() };
    assert_eq!(of(&later, Some("another")), whole);
    let body = |value: Value| Prompt { body: value.as_object().cloned(), ..Prompt::default() };
    assert_eq!(of(&body(json!({ "messages": both })), Some("x")), whole);
    assert_eq!(of(&body(json!({ "input": { "messages": both } })), None), whole);
    assert_eq!(of(&body(json!({ "prompt": "u and u" })), None), tokenizer.count("u and u"));
    assert_eq!(of(&body(json!({ "other": 1 })), None), None, "nothing is known, so nothing is told");
    let builtin = Tokenizer::builtin();
    assert_eq!(tokens_of(&text, &builtin, Some("s")), builtin.count("s\nu"));
}

#[test]
fn pictures_and_refused_messages_are_not_counted() {
    let picture = list(json!([{ "role": "user", "content": [{ "type": "text", "text": "a" }, { "type": "image_url" }] }]));
    let prompt = Prompt { messages: Some(picture), ..Prompt::default() };
    assert_eq!((tokens_of(&prompt, &Tokenizer::builtin(), None), shapeable(&prompt)), (None, None));
    let twice = list(json!([{ "role": "user", "content": "a" }, { "role": "user", "content": "b" }]));
    let prompt = Prompt { messages: Some(twice), ..Prompt::default() };
    assert_eq!(tokens_of(&prompt, &MISTRAL.over("byte-level"), None), None);
}

#[test]
fn many_threads_count_with_one_tokenizer() {
    let tokenizer = Arc::new(CHATML.over("byte-level"));
    let count = |tokenizer: &Tokenizer, n: u64| {
        let prompt = Prompt { text: format!("the sky is blue {n}"), ..Prompt::default() };
        tokens_of(&prompt, tokenizer, Some("Be terse."))
    };
    let alone: Vec<Option<u64>> = (0..200).map(|n| count(&tokenizer, n)).collect();
    let work = |_| {
        let tokenizer = tokenizer.clone();
        std::thread::spawn(move || (0..200).map(|n| count(&tokenizer, n)).collect::<Vec<_>>())
    };
    let threads: Vec<_> = (0..4).map(work).collect();
    assert!(threads.into_iter().all(|thread| thread.join().unwrap() == alone));
}

#[test]
fn another_text_goes_where_the_last_one_stood() {
    let both = list(
        json!([{ "role": "user", "content": "a" }, { "role": "assistant", "content": "b" }, { "role": "user", "content": "c" }]),
    );
    let mut prompt = Prompt { text: "c".into(), messages: Some(both), ..Prompt::default() };
    replace_last_user(&mut prompt, "new");
    let messages = prompt.messages.unwrap();
    assert_eq!((prompt.text.as_str(), &messages[0]["content"], &messages[2]["content"]), ("new", &json!("a"), &json!("new")));
    let mut body = Prompt { text: "c".into(), body: json!({ "prompt": "c" }).as_object().cloned(), ..Prompt::default() };
    replace_last_user(&mut body, "new");
    assert_eq!((body.text.as_str(), &body.body.unwrap()["prompt"]), ("new", &json!("new")));
}
