//! `speed_benchmark`: the prompt lengths of the speed tables in model cards.
//!
//! The lengths alternate and include system message and chat template; 2048 tokens are generated. The text of a
//! length is generated once. Prompts of a length differ in their first words, so prefix caches do not match, and only
//! these are tokenized per prompt.

use super::error::PromptError;
use super::message::prompt_slot;
use super::synthetic::GENERATORS;
use super::{Prompts, Setting};
use crate::token::{Slot, Text, TokenError, Tokenizer};
use llmscen_core::dataset::{Prompt, Session};
use llmscen_core::seed::Seed;
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// The built-in questions, of which the text consists.
const QUESTIONS: &str = include_str!("../data/openqa.jsonl");
const SHORT: [u64; 5] = [96, 2048, 6144, 14336, 30720];
const LONG: [u64; 2] = [63488, 129_024];
/// Exact number of output tokens per request.
const OUTPUT: u64 = 2048;
/// Tokens of the words that differ between prompts.
const HEAD: u64 = 24;

/// Prompts of one length.
struct Class {
    tokens: u64,
    /// The text after the words that differ.
    body: String,
    /// The place of the words that differ.
    slot: Slot,
}

struct Speed {
    classes: Vec<Class>,
    tokenizer: Arc<Tokenizer>,
    seed: Seed,
    first: u64,
}

/// Generates the text of every length inside `prompt_tokens`.
pub fn open(long: bool, setting: &Setting<'_>) -> Result<impl Prompts + use<>, PromptError> {
    let error = |reason: String| PromptError::Length {
        kind: "speed_benchmark",
        reason,
    };
    let tokenizer = setting.tokenizer();
    let slot = prompt_slot(
        &Prompt::default(),
        &tokenizer,
        setting.spec.system.as_deref(),
    )?;
    let seed = setting.seed.child("speed");
    let base_tokens = tokenizer.count_without_text(&slot);
    let lengths: &[u64] = if long { &LONG } else { &SHORT };
    let admitted: Vec<u64> = lengths
        .iter()
        .copied()
        .filter(|n| setting.admits(Some(*n)))
        .collect();
    match admitted.first() {
        None => {
            return Err(error(format!(
                "none of {lengths:?} is inside `prompt_tokens`"
            )));
        }
        Some(shortest) if *shortest <= base_tokens => {
            return Err(error(format!(
                "{shortest} tokens are too few: system message and chat template have {base_tokens}"
            )));
        }
        Some(_) => {}
    }
    let prose = prose(seed);
    let class = |tokens| Class::generate(tokens, base_tokens, &slot, &prose, &tokenizer, seed);
    let classes = admitted
        .into_iter()
        .map(class)
        .collect::<Result<Vec<Class>, TokenError>>()?;
    Ok(Speed {
        classes,
        tokenizer,
        seed,
        first: setting.first,
    })
}

/// The questions in several orders, separated by line breaks.
fn prose(seed: Seed) -> String {
    let rows = QUESTIONS.lines();
    let row = |row: &str| {
        serde_json::from_str::<Value>(row)
            .ok()?
            .get("question")?
            .as_str()
            .map(str::to_owned)
    };
    let mut questions: Vec<String> = rows.filter_map(row).collect();
    let mut rng = ChaCha8Rng::seed_from_u64(seed.child("prose").0);
    let orders = (0..8).map(|_| {
        questions.shuffle(&mut rng);
        questions.join(" ")
    });
    orders.collect::<Vec<_>>().join("\n")
}

impl Class {
    fn generate(
        tokens: u64,
        base_tokens: u64,
        slot: &Slot,
        prose: &str,
        tokenizer: &Tokenizer,
        seed: Seed,
    ) -> Result<Class, TokenError> {
        let mut rng = ChaCha8Rng::seed_from_u64(seed.child("class").child(tokens).0);
        if tokens < base_tokens + 2 * HEAD {
            return Ok(Class {
                tokens,
                body: String::new(),
                slot: slot.clone(),
            });
        }
        let head = tokenizer.random_text(HEAD, &Slot::default(), &mut rng)? + ".";
        let text = Text {
            text: prose,
            more: prose,
            from: 0,
        };
        let body = format!(
            "\n{}",
            tokenizer.fit_text(tokens, &slot.behind(&format!("{head}\n")), text, &mut rng)?
        );
        let slot = tokenizer.ahead(slot, &head, &body, tokens);
        slot.map(|slot| Class { tokens, body, slot })
            .ok_or(TokenError::NoFit {
                wanted: tokens,
                nearest: base_tokens,
            })
    }
}

impl Prompts for Speed {
    fn session(&self, seq: u64) -> Option<Session> {
        let index = self.first.wrapping_add(seq);
        let class = self
            .classes
            .get((index % self.classes.len() as u64) as usize)?;
        let rng = |generator| ChaCha8Rng::seed_from_u64(self.seed.child(index).child(generator).0);
        let draw = |generator| {
            self.tokenizer
                .random_text(class.tokens, &class.slot, &mut rng(generator))
                .ok()
        };
        let head = (0..GENERATORS).find_map(draw)?;
        let prompt = Prompt {
            text: format!("{head}{}", class.body),
            tokens: Some(class.tokens),
            approximate: self.tokenizer.approximate(),
            max_tokens: Some(OUTPUT),
            sampling: Map::from_iter([
                ("min_tokens".into(), json!(OUTPUT)),
                ("ignore_eos".into(), json!(true)),
            ]),
            group: Some(class.tokens.to_string()),
            ..Prompt::default()
        };
        Some(vec![prompt].into())
    }

    fn len(&self) -> Option<u64> {
        None
    }

    fn dropped(&self) -> u64 {
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::tokens_of;
    use crate::token::trained::CHATS;
    use crate::{CacheDir, Opened, open as open_any};
    use llmscen_core::dataset::{DatasetSpec, Source};
    use std::collections::HashSet;

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

    #[test]
    fn each_length_in_turn_is_exact_and_begins_with_words_of_its_own() {
        for (chat, kind) in CHATS.iter().zip(["byte-level", "unigram", "wordpiece"]) {
            let folder = chat.folder(kind);
            let tokenizer = Some(folder.path().display().to_string());
            let system = Some("You are terse.".to_owned());
            let spec = DatasetSpec {
                tokenizer,
                system,
                max_tokens: Some(2048),
                ..DatasetSpec::new(Source::SpeedBenchmark { long: false })
            };
            let opened = opened(&spec, 0).unwrap();
            let tokenizer = opened.tokenizer.clone().unwrap();
            let mut heads = HashSet::new();
            for seq in 0..8 {
                let prompt = prompt(&opened, seq);
                let n = [96, 2048][seq as usize % 2];
                assert_eq!(prompt.tokens, Some(n));
                assert_eq!(
                    tokens_of(&prompt, &tokenizer, spec.system.as_deref()),
                    Some(n),
                    "{} {kind}",
                    chat.name
                );
                heads.insert(prompt.text.split(' ').take(3).collect::<Vec<_>>().join(" "));
            }
            assert_eq!(heads.len(), 8);
        }
    }

    #[test]
    fn all_lengths_of_both_kinds_are_exact() {
        let builtin = Tokenizer::builtin();
        for (long, lengths) in [(false, SHORT.as_slice()), (true, LONG.as_slice())] {
            let opened = opened(&DatasetSpec::new(Source::SpeedBenchmark { long }), 0).unwrap();
            for (seq, n) in (0..).zip(lengths) {
                let prompt = prompt(&opened, seq);
                assert_eq!(
                    (prompt.tokens, builtin.count(&prompt.text)),
                    (Some(*n), Some(*n))
                );
                assert_eq!(
                    (prompt.max_tokens, prompt.group.as_deref()),
                    (Some(2048), Some(n.to_string().as_str()))
                );
                assert_eq!(
                    Value::Object(prompt.sampling),
                    json!({ "min_tokens": 2048, "ignore_eos": true })
                );
            }
            assert_eq!(opened.prompts.len(), None);
        }
    }

    #[test]
    fn prompts_are_the_same_whoever_asks_and_in_whatever_order() {
        let spec = DatasetSpec {
            max_tokens: Some(6144),
            ..DatasetSpec::new(Source::SpeedBenchmark { long: false })
        };
        let (one, two) = (opened(&spec, 0).unwrap(), opened(&spec, 3).unwrap());
        assert_eq!(prompt(&one, 4), prompt(&two, 1));
        assert_ne!(prompt(&one, 1).text, prompt(&one, 4).text);
        let none = DatasetSpec {
            max_tokens: Some(9),
            ..spec
        };
        let error = opened(&none, 0).unwrap_err().to_string();
        assert!(
            error.ends_with("none of [96, 2048, 6144, 14336, 30720] is inside `prompt_tokens`"),
            "{error}"
        );
    }
}
