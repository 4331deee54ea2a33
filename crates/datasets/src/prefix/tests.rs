use super::*;
use crate::message::tokens_of;
use crate::testing::written;
use crate::token::trained::CHATS;
use crate::{CacheDir, Opened, open as open_any};
use llmscen_core::dataset::{AtLimit, ContextLimit, DatasetSpec, GeneratedSessions, Source, Turns};
use serde_json::json;
use std::collections::{BTreeMap, HashSet};

fn source(
    groups: u64,
    per_group: Option<u64>,
    prefix_tokens: u64,
    tokens: Quantity,
) -> DatasetSpec {
    DatasetSpec::new(Source::Prefix {
        groups,
        per_group,
        prefix_tokens,
        tokens,
        zipf: None,
    })
}

fn opened(spec: &DatasetSpec, first: u64) -> Result<Opened, PromptError> {
    open_any(
        spec,
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

fn groups(opened: &Opened, count: u64) -> Vec<String> {
    (0..count)
        .map(|seq| prompt(opened, seq).group.unwrap())
        .collect()
}

#[test]
fn groups_share_their_beginning_in_tokens_and_nothing_else() {
    for (chat, kind) in CHATS
        .iter()
        .flat_map(|chat| ["byte-level", "unigram", "wordpiece"].map(|kind| (chat, kind)))
    {
        let folder = chat.folder(kind);
        let tokenizer = Some(folder.path().display().to_string());
        let spec = DatasetSpec {
            tokenizer,
            ..source(3, None, 300, Quantity::fixed(20))
        };
        let opened = opened(&spec, 0).unwrap();
        let tokenizer = opened.tokenizer.clone().unwrap();
        let slot = prompt_slot(&Prompt::default(), &tokenizer, None).unwrap();
        let (head, around) = (
            tokenizer.count_without_text(&slot.front()) as usize,
            tokenizer.count_template(&slot),
        );
        let mut ids: BTreeMap<String, Vec<Vec<u32>>> = BTreeMap::new();
        for seq in 0..12 {
            let prompt = prompt(&opened, seq);
            assert_eq!(
                tokens_of(&prompt, &tokenizer, None),
                Some(around + 320),
                "{} {kind}",
                chat.name
            );
            assert_eq!(prompt.tokens, Some(around + 320));
            let whole = tokenizer
                .chat(&[json!({ "role": "user", "content": prompt.text })], None)
                .unwrap();
            ids.entry(prompt.group.unwrap())
                .or_default()
                .push(tokenizer.ids(&whole).unwrap());
        }
        assert_eq!(
            ids.keys().collect::<Vec<_>>(),
            ["prefix-0", "prefix-1", "prefix-2"]
        );
        let prefixes: HashSet<&[u32]> = ids.values().map(|group| &group[0][..head + 300]).collect();
        assert_eq!(prefixes.len(), 3);
        for group in ids.values() {
            assert!(
                group
                    .iter()
                    .all(|each| each.starts_with(&group[0][..head + 300])),
                "{} {kind}",
                chat.name
            );
            let rests: HashSet<&[u32]> = group.iter().map(|each| &each[head + 300..]).collect();
            assert_eq!(rests.len(), 4);
        }
    }
}

#[test]
fn a_truncated_context_loses_the_prefix_with_the_first_turn() {
    let mut spec = source(1, None, 50, Quantity::fixed(10));
    spec.turns = Some(Turns::default());
    spec.generated.sessions = Some(GeneratedSessions {
        count: Quantity::fixed(3),
        tokens: Quantity::fixed(10),
        max_tokens: Some(Quantity::fixed(10)),
        limit: Some(ContextLimit {
            tokens: 75,
            at_limit: AtLimit::Truncate,
        }),
    });
    // 50 + 10 + 10 tokens; the second turn has no room beside the first, the third has room beside the second.
    let session = written(opened(&spec, 0).unwrap().prompts.as_ref(), 0);
    let oldest: Vec<u32> = session.turns.iter().map(|turn| turn.history_from).collect();
    assert_eq!(oldest, [0, 1, 1]);
}

#[test]
fn groups_alternate_until_the_end() {
    let spec = source(2, Some(2), 8, Quantity::uniform(4, 9));
    let bounded = opened(&spec, 0).unwrap();
    assert_eq!(
        groups(&bounded, 4),
        ["prefix-0", "prefix-1", "prefix-0", "prefix-1"]
    );
    assert_eq!(
        (bounded.prompts.len(), prompt(&bounded, 5)),
        (Some(4), prompt(&bounded, 1))
    );
    assert_eq!(prompt(&opened(&spec, 3).unwrap(), 0), prompt(&bounded, 3));
    let stop = DatasetSpec {
        on_exhausted: OnExhausted::Stop,
        ..spec
    };
    let stop = opened(&stop, 1).unwrap();
    assert!(stop.prompts.session(3).is_some() && stop.prompts.session(4).is_none());
    assert_eq!(
        opened(&source(2, None, 8, Quantity::fixed(4)), 0)
            .unwrap()
            .prompts
            .len(),
        None
    );
}

#[test]
fn a_shuffle_takes_every_prompt_once() {
    let texts = |spec: &DatasetSpec| -> Vec<String> {
        let opened = opened(spec, 0).unwrap();
        (0..24).map(|seq| prompt(&opened, seq).text).collect()
    };
    let mut spec = source(4, Some(6), 8, Quantity::fixed(4));
    let straight = texts(&spec);
    spec.order = Order::Shuffle;
    let mixed = texts(&spec);
    assert_eq!(mixed, texts(&spec));
    assert_ne!(mixed, straight);
    assert_eq!(
        mixed.into_iter().collect::<HashSet<_>>(),
        straight.into_iter().collect()
    );
    let endless = opened(
        &DatasetSpec {
            order: Order::Shuffle,
            ..source(4, None, 8, Quantity::fixed(4))
        },
        0,
    )
    .unwrap();
    let turns = groups(&endless, 40);
    assert!(
        turns
            .chunks(4)
            .all(|turn| turn.iter().collect::<HashSet<_>>().len() == 4)
    );
    assert!(turns.chunks(4).any(|turn| turn != &turns[..4]));
}

#[test]
fn with_cache_bust_prompts_share_nothing_and_have_the_same_length() {
    let folder = CHATS[0].folder("byte-level");
    let tokenizer = Some(folder.path().display().to_string());
    let spec = DatasetSpec {
        tokenizer,
        ..source(2, Some(3), 40, Quantity::fixed(20))
    };
    let busted = DatasetSpec {
        cache_bust: true,
        ..spec.clone()
    };
    let (plain, own, later) = (
        opened(&spec, 0).unwrap(),
        opened(&busted, 0).unwrap(),
        opened(&busted, 4).unwrap(),
    );
    let tokenizer = own.tokenizer.clone().unwrap();
    let slot = prompt_slot(&Prompt::default(), &tokenizer, None).unwrap();
    let head = tokenizer.count_without_text(&slot.front()) as usize;
    let mut beginnings = HashSet::new();
    // Two rounds: a dataset that starts again does not repeat its beginnings.
    for seq in 0..12 {
        let prompt = prompt(&own, seq);
        assert_eq!(
            tokens_of(&prompt, &tokenizer, None),
            Some(tokenizer.count_template(&slot) + 60)
        );
        assert_eq!(prompt.tokens, Some(tokenizer.count_template(&slot) + 60));
        let whole = tokenizer
            .chat(&[json!({ "role": "user", "content": prompt.text })], None)
            .unwrap();
        beginnings.insert(tokenizer.ids(&whole).unwrap()[head..head + 8].to_vec());
    }
    assert_eq!(beginnings.len(), 12);
    assert_eq!(
        (
            own.prompts.len(),
            own.prompts.distinct(),
            plain.prompts.distinct()
        ),
        (Some(6), None, Some(6))
    );
    assert_eq!(groups(&own, 4), groups(&plain, 4));
    assert_eq!(prompt(&own, 5), prompt(&later, 1));
    assert!(
        own.notes.iter().all(|note| !note.contains("cache_bust")),
        "{:?}",
        own.notes
    );
}

#[test]
fn what_cannot_be_made_is_refused() {
    let tell = |spec: &DatasetSpec| opened(spec, 0).unwrap_err().to_string();
    assert_eq!(
        tell(&source(0, None, 8, Quantity::fixed(4))),
        "`prefix`: groups must be 1 to 1000000, each with at least 1 prompt"
    );
    assert_eq!(
        tell(&source(2, Some(u64::MAX), 8, Quantity::fixed(4))),
        "`prefix`: too many prompts"
    );
    let short = DatasetSpec {
        max_tokens: Some(10),
        ..source(2, None, 8, Quantity::fixed(4))
    };
    assert!(
        tell(&short)
            .starts_with("`tokens` of a prefix dataset: the length is outside `prompt_tokens`")
    );
}

#[test]
fn every_place_is_taken_once_and_the_seed_decides() {
    for len in [1u64, 2, 3, 4, 5, 16, 17, 1000] {
        let order = |seed| {
            (0..len)
                .map(|index| permute(index, len, Seed(seed)))
                .collect::<Vec<_>>()
        };
        let mut sorted = order(1);
        sorted.sort_unstable();
        assert!(sorted.into_iter().eq(0..len), "{len}");
        assert_eq!(order(1), order(1));
        assert!(len < 1000 || order(1) != order(2));
    }
    let fixed = (0..1000u64)
        .filter(|&index| permute(index, 1000, Seed(1)) == index)
        .count();
    assert!(fixed < 10, "{fixed} of 1000 stay where they are");
    assert!(permute(u64::MAX, u64::MAX, Seed(1)) < u64::MAX);
}
