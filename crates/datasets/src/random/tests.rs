use super::*;
use crate::message::tokens_of;
use crate::token::trained::{CHATS, Chat};
use crate::{CacheDir, Opened, open as open_any};
use llmscen_core::dataset::{DatasetSpec, Source};
use serde_json::json;
use std::collections::HashSet;

fn opened(
    tokens: Quantity,
    bounds: (Option<u64>, Option<u64>),
    first: u64,
) -> Result<Opened, PromptError> {
    let (min_tokens, max_tokens) = bounds;
    let spec = DatasetSpec {
        min_tokens,
        max_tokens,
        ..DatasetSpec::new(Source::Random {
            tokens,
            shared_prefix: 0,
        })
    };
    open_any(
        &spec,
        Seed(1),
        first,
        &CacheDir {
            dir: "unused".into(),
            hub: String::new(),
            ..CacheDir::default()
        },
        &|_| (),
    )
}

fn prompt(opened: &Opened, seq: u64) -> Prompt {
    opened.prompts.session(seq).unwrap().turns.remove(0)
}

#[test]
fn prompts_are_unique_exact_and_the_same_in_any_order() {
    let opened = opened(Quantity::fixed(48), (None, None), 0).unwrap();
    let backwards: Vec<Prompt> = (0..100).rev().map(|seq| prompt(&opened, seq)).collect();
    let forwards: Vec<Prompt> = (0..100).map(|seq| prompt(&opened, seq)).collect();
    assert!(forwards.iter().eq(backwards.iter().rev()));
    let different: HashSet<&str> = forwards.iter().map(|prompt| prompt.text.as_str()).collect();
    assert_eq!(different.len(), 100);
    let builtin = Tokenizer::builtin();
    assert!(
        forwards
            .iter()
            .all(|prompt| builtin.count(&prompt.text) == Some(48) && prompt.tokens == Some(48))
    );
    assert!(forwards[0].approximate && opened.notes[0].contains("approximate"));
}

#[test]
fn prompts_share_no_beginning_that_a_prefix_cache_could_use() {
    let opened = opened(Quantity::fixed(16), (None, None), 0).unwrap();
    let heads: HashSet<String> = (0..50)
        .map(|seq| {
            prompt(&opened, seq)
                .text
                .split(' ')
                .take(3)
                .collect::<Vec<_>>()
                .join(" ")
        })
        .collect();
    assert_eq!(heads.len(), 50);
}

#[test]
fn the_next_case_continues_where_the_last_one_ended() {
    let (one, two) = (
        opened(Quantity::fixed(8), (None, None), 0).unwrap(),
        opened(Quantity::fixed(8), (None, None), 10).unwrap(),
    );
    assert_eq!(prompt(&one, 13), prompt(&two, 3));
}

#[test]
fn lengths_outside_prompt_tokens_are_drawn_again() {
    let opened = opened(Quantity::uniform(1, 40), (Some(10), Some(12)), 0).unwrap();
    let lengths: HashSet<u64> = (0..60)
        .map(|seq| prompt(&opened, seq).tokens.unwrap())
        .collect();
    assert_eq!(lengths, HashSet::from([10, 11, 12]));
}

#[test]
fn impossible_lengths_are_errors_before_the_run() {
    let item = Quantity::Item("n".into());
    for (tokens, bounds, reason) in [
        (item, (None, None), "this kind of dataset has no rows"),
        (Quantity::fixed(9), (None, Some(8)), "the length is outside"),
        (
            Quantity::uniform(4, 6),
            (Some(9), Some(8)),
            "`prompt_tokens` has a `min` above",
        ),
    ] {
        let error = opened(tokens, bounds, 0).unwrap_err().to_string();
        assert!(
            error.starts_with(&format!("`tokens` of a random dataset: {reason}")),
            "{error}"
        );
    }
}

fn chatting(
    chat: &Chat,
    kind: &str,
    tokens: Quantity,
    shared_prefix: u64,
) -> (tempfile::TempDir, DatasetSpec) {
    let folder = chat.folder(kind);
    let tokenizer = Some(folder.path().display().to_string());
    let system = Some("You are terse.".to_owned());
    (
        folder,
        DatasetSpec {
            tokenizer,
            system,
            ..DatasetSpec::new(Source::Random {
                tokens,
                shared_prefix,
            })
        },
    )
}

fn open_spec(spec: &DatasetSpec) -> Result<Opened, PromptError> {
    open_any(
        spec,
        Seed(1),
        0,
        &CacheDir {
            dir: "unused".into(),
            hub: String::new(),
            ..CacheDir::default()
        },
        &|_| (),
    )
}

#[test]
fn the_length_is_that_of_the_text_and_the_template_comes_on_top() {
    for chat in &CHATS {
        for kind in ["byte-level", "unigram", "wordpiece", "bpe"] {
            let (_folder, spec) = chatting(chat, kind, Quantity::uniform(180, 220), 50);
            let opened = open_spec(&spec).unwrap();
            let tokenizer = opened.tokenizer.clone().unwrap();
            let slot = prompt_slot(&Prompt::default(), &tokenizer, spec.system.as_deref()).unwrap();
            let prompts: Vec<Prompt> = (0..20).map(|seq| prompt(&opened, seq)).collect();
            let read = |prompt: &Prompt| {
                let messages = json!([{ "role": "system", "content": "You are terse." },
                    { "role": "user", "content": prompt.text }]);
                tokenizer
                    .ids(&tokenizer.chat(messages.as_array().unwrap(), None).unwrap())
                    .unwrap()
            };
            let ids: Vec<Vec<u32>> = prompts.iter().map(read).collect();
            for (prompt, ids) in prompts.iter().zip(&ids) {
                assert_eq!(
                    prompt.tokens,
                    Some(ids.len() as u64),
                    "{} {kind}",
                    chat.name
                );
                let around = tokenizer.count_template(&slot);
                assert!(
                    around > 0 && (180 + around..=220 + around).contains(&(ids.len() as u64)),
                    "{} {kind}",
                    chat.name
                );
                assert_eq!(
                    tokens_of(prompt, &tokenizer, spec.system.as_deref()),
                    prompt.tokens
                );
            }
            let shared = ids[1..]
                .iter()
                .map(|each| each.iter().zip(&ids[0]).take_while(|(a, b)| a == b).count())
                .min();
            let wanted = tokenizer.count_without_text(&slot.front()) as usize + 50;
            assert!(
                (wanted..wanted + 3).contains(&shared.unwrap()),
                "{} {kind}: {shared:?} of {wanted}",
                chat.name
            );
            assert!(ids.iter().map(Vec::len).collect::<HashSet<_>>().len() > 8);
            assert_eq!(
                prompts
                    .iter()
                    .map(|prompt| &prompt.text)
                    .collect::<HashSet<_>>()
                    .len(),
                20
            );
        }
    }
}

#[test]
fn busted_prompts_have_a_prefix_each_and_the_lengths_they_had() {
    let (_folder, spec) = chatting(&CHATS[0], "byte-level", Quantity::uniform(180, 220), 50);
    let busted = DatasetSpec {
        cache_bust: true,
        ..spec.clone()
    };
    let (plain, own) = (open_spec(&spec).unwrap(), open_spec(&busted).unwrap());
    let tokenizer = own.tokenizer.clone().unwrap();
    let prompts: Vec<Prompt> = (0..20).map(|seq| prompt(&own, seq)).collect();
    for (seq, own) in prompts.iter().enumerate() {
        assert_eq!(own.tokens, prompt(&plain, seq as u64).tokens);
        assert_eq!(
            tokens_of(own, &tokenizer, spec.system.as_deref()),
            own.tokens
        );
    }
    let heads = |prompts: &[Prompt]| {
        prompts
            .iter()
            .map(|own| own.text[..16].to_owned())
            .collect::<HashSet<_>>()
            .len()
    };
    let plain: Vec<Prompt> = (0..20).map(|seq| prompt(&plain, seq)).collect();
    assert_eq!((heads(&prompts), heads(&plain)), (20, 1));
}

#[test]
fn a_length_that_the_shared_prefix_uses_up_is_an_error_or_drawn_again() {
    let (_folder, spec) = chatting(&CHATS[0], "byte-level", Quantity::fixed(20), 20);
    let error = open_spec(&spec).unwrap_err().to_string();
    assert_eq!(
        error,
        "`tokens` of a random dataset: 20 tokens are too few: the shared prefix and special tokens have 20"
    );
    let (_folder, spec) = chatting(&CHATS[0], "byte-level", Quantity::uniform(1, 60), 20);
    let opened = open_spec(&spec).unwrap();
    assert!(
        opened.notes[0].contains("are drawn again"),
        "{:?}",
        opened.notes
    );
    let tokenizer = opened.tokenizer.clone().unwrap();
    for seq in 0..30 {
        let prompt = prompt(&opened, seq);
        assert_eq!(
            tokens_of(&prompt, &tokenizer, spec.system.as_deref()),
            prompt.tokens
        );
    }
}

#[test]
fn random_and_prefix_count_alike_with_a_template_and_without() {
    for (kind, templated) in ["byte-level", "unigram", "wordpiece", "bpe"]
        .into_iter()
        .flat_map(|kind| [(kind, true), (kind, false)])
    {
        let (_folder, random) = chatting(&CHATS[0], kind, Quantity::fixed(60), 40);
        let random = DatasetSpec {
            templated,
            system: None,
            ..random
        };
        let prefix = Source::Prefix {
            groups: 2,
            per_group: None,
            prefix_tokens: 40,
            tokens: Quantity::fixed(20),
            zipf: None,
        };
        let prefix = DatasetSpec {
            source: prefix,
            ..random.clone()
        };
        let [random, prefix] = [random, prefix].map(|spec| open_spec(&spec).unwrap());
        let tokenizer = random.tokenizer.clone().unwrap();
        let lengths = [&random, &prefix].map(|opened| {
            let prompt = prompt(opened, 0);
            assert_eq!(tokens_of(&prompt, &tokenizer, None), prompt.tokens);
            prompt.tokens.unwrap()
        });
        let around =
            tokenizer.count_template(&prompt_slot(&Prompt::default(), &tokenizer, None).unwrap());
        assert_eq!(lengths, [60 + around; 2], "{kind} {templated}");
        assert_eq!(around > 0, templated, "{kind}");
    }
}

#[test]
fn prompts_that_are_not_sent_as_messages_have_no_template() {
    let (_folder, spec) = chatting(&CHATS[0], "byte-level", Quantity::fixed(20), 0);
    let plain = DatasetSpec {
        templated: false,
        system: None,
        ..spec
    };
    let opened = open_spec(&plain).unwrap();
    let text = prompt(&opened, 0).text;
    assert_eq!(opened.tokenizer.unwrap().count(&text), Some(20));
}

#[test]
fn a_template_that_takes_no_system_message_says_so() {
    let folder = CHATS[0].folder("byte-level");
    std::fs::write(
        folder.path().join("chat_template.jinja"),
        "{{ raise_exception('no system') }}",
    )
    .unwrap();
    let tokenizer = Some(folder.path().display().to_string());
    let spec = DatasetSpec {
        tokenizer,
        ..DatasetSpec::new(Source::Random {
            tokens: Quantity::fixed(9),
            shared_prefix: 0,
        })
    };
    let error = open_spec(&spec).unwrap_err().to_string();
    assert_eq!(
        error,
        "the chat template rejects the messages: no system (line 1)"
    );
}
