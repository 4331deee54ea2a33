use super::*;
use crate::message::assembled;
use crate::{CacheDir, Opened, open as open_any};
use llmscen_core::dataset::DatasetSpec;
use llmscen_core::prompt::Prompt;
use llmscen_core::request::Quantity;
use serde_json::{Value, json};
use std::collections::HashSet;

fn opened(spec: &DatasetSpec, first: u64) -> Opened {
    open_any(spec, Seed(1), first, &CacheDir { dir: "unused".into(), hub: String::new() }, &|_| ()).unwrap()
}

fn prompt(opened: &Opened, seq: u64) -> Prompt {
    opened.prompts.session(seq).unwrap().turns.remove(0)
}

fn asked(text: &str) -> DatasetSpec {
    let tokenizer = Some("builtin".to_owned());
    DatasetSpec { cache_bust: true, tokenizer, ..DatasetSpec::of(Source::Prompt(text.to_owned())) }
}

#[test]
fn the_words_are_those_of_the_session_and_are_counted() {
    let (one, two) = (opened(&asked("Why?"), 0), opened(&asked("Why?"), 2));
    let texts: Vec<String> = (0..50).map(|seq| prompt(&one, seq).text).collect();
    assert!(texts.iter().all(|text| text.len() == 16 + 5 && text.ends_with("\nWhy?")));
    assert_eq!(texts.iter().map(|text| &text[..16]).collect::<HashSet<_>>().len(), 50);
    assert_eq!((prompt(&one, 5), prompt(&one, 7)), (prompt(&two, 3), prompt(&two, 5)));
    let first = prompt(&one, 0);
    assert_eq!(first.tokens, Tokenizer::builtin().count(&first.text));
}

#[test]
fn the_words_stand_in_front_of_whatever_the_model_reads_first() {
    let system = DatasetSpec { system: Some("Terse.".into()), ..asked("Why?") };
    let with_system = prompt(&opened(&system, 0), 0);
    let words = with_system.text[..16].to_owned();
    let messages = assembled(&with_system, Some("Terse.")).unwrap();
    let list = json!([{ "role": "system", "content": format!("{words}\nTerse.") }, { "role": "user", "content": "Why?" }]);
    assert_eq!(Value::Array(messages), list);

    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("rows.txt");
    let own = r#"[{"role":"user","content":[{"type":"text","text":"a"}]},{"role":"assistant","content":"b"},{"role":"user","content":"c"}]"#;
    std::fs::write(&path, format!("{own}\n{}\n{}\n", r#"{"messages":[{"role":"user","content":"d"}]}"#, r#"{"prompt":"e"}"#))
        .unwrap();
    let rows = DatasetSpec { path: Some(path.display().to_string()), ..DatasetSpec { source: Source::LineByLine, ..asked("") } };
    let opened = opened(&rows, 0);
    let [list, body, plain] = [0, 1, 2].map(|seq| prompt(&opened, seq));
    let of = |index: u64| format!("{:016x}", Seed(1).child("dataset").child("bust").child(index).0);
    assert_eq!(list.messages.unwrap()[0]["content"], json!([{ "type": "text", "text": of(0) }, { "type": "text", "text": "a" }]));
    assert_eq!(body.body.unwrap()["messages"][0]["content"], format!("{}\nd", of(1)));
    assert_eq!(plain.body.unwrap()["prompt"], format!("{}\ne", of(2)));
}

#[test]
fn a_shape_is_exact_with_the_words_and_synthetic_prompts_need_none() {
    use llmscen_core::dataset::{ShapeMode, TextShape};
    let shape = TextShape { tokens: Quantity::Fixed(40), mode: ShapeMode::Exact, fill_from: None };
    let shaped = opened(&DatasetSpec { shape: Some(shape), ..asked("Why is the sky blue?") }, 0);
    let texts: Vec<String> = (0..5).map(|seq| prompt(&shaped, seq).text).collect();
    assert!(texts.iter().all(|text| Tokenizer::builtin().count(text) == Some(40)));
    assert_eq!(texts.iter().map(|text| &text[..16]).collect::<HashSet<_>>().len(), 5);
    let random = Source::Random { tokens: Quantity::Fixed(12), shared_prefix: 0 };
    let plain = opened(&DatasetSpec { cache_bust: false, source: random.clone(), ..asked("") }, 0);
    let busted = opened(&DatasetSpec { source: random, ..asked("") }, 0);
    assert_eq!(prompt(&plain, 3), prompt(&busted, 3));
    assert!(busted.notes.iter().any(|note| note.starts_with("`cache_bust` changes nothing here")), "{:?}", busted.notes);
}

#[test]
fn another_cache_seed_gives_other_words_in_front_of_the_same_text() {
    let of =
        |spec: &DatasetSpec, seed: u64| prompt(&opened(&DatasetSpec { cache_seed: Some(Seed(seed)), ..spec.clone() }, 0), 3).text;
    let text = asked("Why?");
    assert_eq!(of(&text, 7), of(&text, 7));
    assert!(of(&text, 7) != of(&text, 8) && of(&text, 8).ends_with("\nWhy?"));
    // Text that is drawn is drawn anew as a whole, whether it shares a beginning or not; without `cache_bust` it is the seed's.
    for source in [
        Source::Random { tokens: Quantity::Fixed(64), shared_prefix: 0 },
        Source::Random { tokens: Quantity::Fixed(64), shared_prefix: 32 },
        Source::Prefix { groups: 1, per_group: None, prefix_tokens: 32, tokens: Quantity::Fixed(32) },
    ] {
        let spec = DatasetSpec { source, ..asked("") };
        let (one, other) = (of(&spec, 7), of(&spec, 8));
        assert!(one == of(&spec, 7) && one[..8] != other[..8], "{one} {other}");
        let plain = DatasetSpec { cache_bust: false, ..spec };
        assert_eq!(of(&plain, 7), of(&plain, 8));
    }
}
