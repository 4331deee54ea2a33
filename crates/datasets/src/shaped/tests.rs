use super::*;
use crate::token::trained::CHATS;
use crate::{CacheDir, Opened, open as open_any};
use llmscen_core::dataset::{DatasetSpec, Source};
use serde_json::json;
use std::collections::HashSet;

fn opened(spec: &DatasetSpec, first: u64) -> Result<Opened, PromptError> {
    open_any(spec, Seed(1), first, &CacheDir { dir: "unused".into(), hub: String::new() }, &|_| ())
}

fn prompt(opened: &Opened, seq: u64) -> Prompt {
    opened.prompts.session(seq).unwrap().turns.remove(0)
}

fn shape(tokens: Quantity, mode: ShapeMode) -> Option<TextShape> {
    Some(TextShape { tokens, mode, fill_from: None })
}

fn file(text: &str) -> (tempfile::TempDir, String) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("data.txt");
    std::fs::write(&path, text).unwrap();
    (dir, path.display().to_string())
}

#[test]
fn every_row_has_its_length_after_the_chat_template() {
    let list = json!([{ "role": "user", "content": "What is this?" }, { "role": "assistant", "content": "A test." }, { "role": "user", "content": "And that?" }]);
    let body = json!({ "model": "m", "messages": [{ "role": "user", "content": "Who goes there?" }] });
    let (_dir, path) = file(&format!("Why is the sky blue?\n{list}\n{body}\n{}\n", "The sea is wide. ".repeat(60)));
    for chat in &CHATS {
        for kind in ["byte-level", "bpe", "unigram", "wordpiece"] {
            let folder = chat.folder(kind);
            let spec = DatasetSpec {
                path: Some(path.clone()),
                tokenizer: Some(folder.path().display().to_string()),
                system: Some("You are terse.".into()),
                shape: shape(Quantity::Uniform { low: 150, high: 260 }, ShapeMode::Exact),
                ..DatasetSpec::of(Source::LineByLine)
            };
            let opened = opened(&spec, 0).unwrap();
            let tokenizer = opened.tokenizer.clone().unwrap();
            let mut lengths = HashSet::new();
            for seq in 0..12 {
                let prompt = prompt(&opened, seq);
                assert_eq!(tokens_of(&prompt, &tokenizer, spec.system.as_deref()), prompt.tokens);
                assert!((150..=260).contains(&prompt.tokens.unwrap()), "{} {kind}: {:?}", chat.name, prompt.tokens);
                lengths.insert(prompt.tokens);
            }
            assert!(lengths.len() > 6);
            let talk = prompt(&opened, 1);
            let messages = talk.messages.unwrap();
            assert_eq!(messages[messages.len() - 2]["content"], "A test.");
            assert!(messages[messages.len() - 1]["content"].as_str().unwrap().starts_with("And that?\nAnd that?"));
            assert_eq!(messages[messages.len() - 1]["content"], talk.text);
            let body = prompt(&opened, 2);
            assert_eq!(body.body.unwrap()["messages"][0]["content"], body.text);
        }
    }
}

#[test]
fn a_cap_leaves_short_rows_alone() {
    let (_dir, path) = file("the sky is blue\nthe sky is blue and the sea is blue\n");
    let shape = shape(Quantity::Fixed(6), ShapeMode::Cap);
    let spec = DatasetSpec { path: Some(path), shape, ..DatasetSpec::of(Source::LineByLine) };
    let opened = opened(&spec, 0).unwrap();
    let seen = [0, 1].map(|seq| prompt(&opened, seq));
    assert_eq!(seen.each_ref().map(|prompt| prompt.text.as_str()), ["the sky is blue", "the sky is blue and the"]);
    assert_eq!(seen.map(|prompt| (prompt.tokens, prompt.approximate)), [(Some(4), true), (Some(6), true)]);
}

#[test]
fn what_is_short_goes_on_with_the_text_of_a_file_from_a_place_of_its_own() {
    let prose: String = (0..400).map(|n| format!("w{n} ")).collect();
    let ((_dir, path), (_fill_dir, fill)) = (file("a\na\na\na\n"), file(&prose));
    let shape = Some(TextShape { tokens: Quantity::Fixed(30), mode: ShapeMode::Exact, fill_from: Some(fill) });
    let spec = DatasetSpec { path: Some(path), shape, ..DatasetSpec::of(Source::LineByLine) };
    let one = opened(&spec, 0).unwrap();
    let texts: HashSet<String> = (0..4).map(|seq| prompt(&one, seq).text).collect();
    assert!(texts.len() == 4 && texts.iter().all(|text| text.starts_with("a\nw")), "{texts:?}");
    assert_eq!(prompt(&one, 3), prompt(&opened(&spec, 3).unwrap(), 0));
    let gone = TextShape { fill_from: Some("/nowhere/x.txt".into()), ..spec.shape.clone().unwrap() };
    assert!(matches!(opened(&DatasetSpec { shape: Some(gone), ..spec }, 0), Err(PromptError::Read { .. })));
}

#[test]
fn a_length_comes_from_the_row_and_a_row_without_one_stays_as_it_is() {
    let (_dir, path) = file("{\"question\": \"Why is it so?\", \"n\": 12}\n{\"question\": \"Why is it so?\"}\n");
    let shape = shape(Quantity::Item("n".into()), ShapeMode::Exact);
    let spec = DatasetSpec { path: Some(path), shape, ..DatasetSpec::of(Source::Openqa) };
    let opened = opened(&spec, 0).unwrap();
    assert_eq!((prompt(&opened, 0).tokens, prompt(&opened, 1).text.as_str()), (Some(12), "Why is it so?"));
}

#[test]
fn a_length_that_cannot_be_is_an_error_before_the_run() {
    let folder = CHATS[0].folder("byte-level");
    let spec = DatasetSpec {
        tokenizer: Some(folder.path().display().to_string()),
        shape: shape(Quantity::Fixed(5), ShapeMode::Exact),
        ..DatasetSpec::of(Source::Prompt("the sky is blue".into()))
    };
    let error = opened(&spec, 0).unwrap_err().to_string();
    assert!(error.starts_with("no text of exactly 5 tokens was found"), "{error}");
}
