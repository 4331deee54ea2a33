use super::*;
use crate::message::tokens_of;
use crate::token::trained::CHATS;
use crate::{CacheDir, Opened, open as open_any};
use llmscen_core::dataset::{DatasetSpec, Source};
use std::collections::HashSet;

fn opened(spec: &DatasetSpec, first: u64) -> Result<Opened, PromptError> {
    open_any(spec, Seed(1), first, &CacheDir { dir: "unused".into(), hub: String::new() }, &|_| ())
}

fn prompt(opened: &Opened, seq: u64) -> Prompt {
    opened.prompts.session(seq).unwrap().turns.remove(0)
}

#[test]
fn each_length_in_turn_is_exact_and_begins_with_words_of_its_own() {
    for (chat, kind) in CHATS.iter().zip(["byte-level", "unigram", "wordpiece"]) {
        let folder = chat.folder(kind);
        let tokenizer = Some(folder.path().display().to_string());
        let system = Some("You are terse.".to_owned());
        let spec =
            DatasetSpec { tokenizer, system, max_tokens: Some(2048), ..DatasetSpec::of(Source::SpeedBenchmark { long: false }) };
        let opened = opened(&spec, 0).unwrap();
        let tokenizer = opened.tokenizer.clone().unwrap();
        let mut heads = HashSet::new();
        for seq in 0..8 {
            let prompt = prompt(&opened, seq);
            let n = [96, 2048][seq as usize % 2];
            assert_eq!(prompt.tokens, Some(n));
            assert_eq!(tokens_of(&prompt, &tokenizer, spec.system.as_deref()), Some(n), "{} {kind}", chat.name);
            heads.insert(prompt.text.split(' ').take(3).collect::<Vec<_>>().join(" "));
        }
        assert_eq!(heads.len(), 8);
    }
}

#[test]
fn all_lengths_of_both_kinds_are_exact() {
    let builtin = Tokenizer::builtin();
    for (long, lengths) in [(false, SHORT.as_slice()), (true, LONG.as_slice())] {
        let opened = opened(&DatasetSpec::of(Source::SpeedBenchmark { long }), 0).unwrap();
        for (seq, n) in (0..).zip(lengths) {
            let prompt = prompt(&opened, seq);
            assert_eq!((prompt.tokens, builtin.count(&prompt.text)), (Some(*n), Some(*n)));
            assert_eq!((prompt.max_tokens, prompt.group.as_deref()), (Some(2048), Some(n.to_string().as_str())));
            assert_eq!(Value::Object(prompt.sampling), json!({ "min_tokens": 2048, "ignore_eos": true }));
        }
        assert_eq!(opened.prompts.len(), None);
    }
}

#[test]
fn prompts_are_the_same_whoever_asks_and_in_whatever_order() {
    let spec = DatasetSpec { max_tokens: Some(6144), ..DatasetSpec::of(Source::SpeedBenchmark { long: false }) };
    let (one, two) = (opened(&spec, 0).unwrap(), opened(&spec, 3).unwrap());
    assert_eq!(prompt(&one, 4), prompt(&two, 1));
    assert_ne!(prompt(&one, 1).text, prompt(&one, 4).text);
    let none = DatasetSpec { max_tokens: Some(9), ..spec };
    let error = opened(&none, 0).unwrap_err().to_string();
    assert!(error.ends_with("none of [96, 2048, 6144, 14336, 30720] lies inside `prompt_tokens`"), "{error}");
}
