//! Changes to the prompts of a dataset: a unique string before each (`cache_bust`), and a given length (`shape`).

use super::error::PromptError;
use super::message::{prepend, prompt_slot, replace_last_user, replaceable_text, tokens_of};
use super::{Prompts, Setting, file};
use crate::token::{Text, TokenError, Tokenizer};
use llmscen_core::dataset::{Prompt, Session, ShapeMode, Source, TextShape};
use llmscen_core::quantity::Quantity;
use llmscen_core::request::sample_length;
use llmscen_core::seed::Seed;
use llmscen_core::units::Nanos;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::sync::Arc;
use std::time::Duration;

/// A change of prompts. Equal prompts and indices give equal results.
trait Transform: Send + Sync {
    /// Changes turn `turn` of the session with this index in the dataset.
    fn apply(&self, prompt: &mut Prompt, turn: u32, index: u64);
}

/// `request.prompt: token_ids`: the ids of each text, with the special tokens that the server would add.
struct TokenIds(Arc<Tokenizer>);

impl Transform for TokenIds {
    fn apply(&self, prompt: &mut Prompt, _turn: u32, _index: u64) {
        if prompt.token_ids.is_none() {
            prompt.token_ids = self.0.encode_prompt(&prompt.text);
            prompt.tokens = prompt.token_ids.as_ref().map(|ids| ids.len() as u64);
        }
    }
}

/// Adds the token ids of prompts, where they are sent instead of the text.
pub fn add_token_ids(inner: Box<dyn Prompts>, setting: &Setting<'_>) -> Box<dyn Prompts> {
    if !setting.spec.token_ids {
        return inner;
    }
    Box::new(Transformed {
        inner,
        transform: TokenIds(setting.tokenizer()),
        first: setting.first,
    })
}

/// A dataset with transformed sessions.
struct Transformed<T> {
    inner: Box<dyn Prompts>,
    transform: T,
    /// Index of the first session.
    first: u64,
}

impl<T: Transform> Prompts for Transformed<T> {
    fn session(&self, seq: u64) -> Option<Session> {
        let mut session = self.inner.session(seq)?;
        for (turn, prompt) in (0..).zip(&mut session.turns) {
            self.transform
                .apply(prompt, turn, self.first.wrapping_add(seq));
        }
        Some(session)
    }

    fn turn(&self, seq: u64, turn: u32) -> Result<Option<Prompt>, PromptError> {
        let mut prompt = self.inner.turn(seq, turn)?;
        if let Some(prompt) = &mut prompt {
            self.transform
                .apply(prompt, turn, self.first.wrapping_add(seq));
        }
        Ok(prompt)
    }

    fn len(&self) -> Option<u64> {
        self.inner.len()
    }

    fn dropped(&self) -> u64 {
        self.inner.dropped()
    }

    fn ready(&self, seq: u64, timeout: Duration) -> bool {
        self.inner.ready(seq, timeout)
    }

    fn fault(&self) -> Option<Arc<PromptError>> {
        self.inner.fault()
    }

    fn problems(&self) -> Vec<String> {
        self.inner.problems()
    }

    fn arrivals(&self) -> Option<Arc<[Nanos]>> {
        self.inner.arrivals()
    }
}

/// `cache_bust`: a unique string before each prompt, so that prefix caches do not match.
///
/// It depends on `cache_seed` and the index of the session in the plan, and precedes everything that the model reads,
/// also the system message. Turns that continue the history of another one need none. Synthetic prompts get none:
/// those with a shared prefix get a different one per prompt, so their lengths stay exact, and the others are unique
/// already.
struct CacheBust {
    system: Option<String>,
    tokenizer: Option<Arc<Tokenizer>>,
    seed: Seed,
}

/// Adds `cache_bust`, where the dataset has it.
pub fn add_cache_bust(
    inner: Box<dyn Prompts>,
    setting: &Setting<'_>,
    notes: &mut Vec<String>,
) -> Box<dyn Prompts> {
    if !setting.spec.cache_bust {
        return inner;
    }
    match setting.spec.source {
        Source::Prefix { .. }
        | Source::Random {
            shared_prefix: 1.., ..
        } => return inner,
        Source::Random { .. } | Source::SpeedBenchmark { .. }
            if setting.spec.cache_seed.is_some() =>
        {
            return inner;
        }
        Source::Random { .. } | Source::SpeedBenchmark { .. } => {
            notes.push(
                "`cache_bust` has no effect: the prompts are random and share no prefix".into(),
            );
            return inner;
        }
        _ => {}
    }
    let transform = CacheBust {
        system: setting.spec.system.clone(),
        tokenizer: setting.tokenizer.clone(),
        seed: setting.cache_bust_seed.child("bust"),
    };
    Box::new(Transformed {
        inner,
        transform,
        first: setting.first,
    })
}

impl Transform for CacheBust {
    fn apply(&self, prompt: &mut Prompt, turn: u32, index: u64) {
        if prompt.continued_turn(turn).is_some() {
            return;
        }
        let words = format!("{:016x}", self.seed.child(index).0);
        let system = self.system.as_deref();
        let messages = prompt.messages.as_ref().map_or(0, Vec::len);
        prepend(prompt, &words, system);
        // A system message may be added in front.
        let added = prompt.messages.as_ref().map_or(0, Vec::len) - messages;
        let slots = prompt.links.iter_mut().flat_map(|links| &mut links.replies);
        slots.for_each(|slot| slot.message += added);
        prompt.tokens = self
            .tokenizer
            .as_ref()
            .and_then(|tokenizer| tokens_of(prompt, tokenizer, system));
        prompt.cacheable_tokens = prompt.cacheable_tokens.map(|_| 0);
    }
}

/// `shape`: prompts with a given length.
///
/// The last user message of the first turn is cut or continued until the model reads exactly the given number of
/// tokens, with system message, chat template and `cache_bust`. Later turns keep their lengths. A text that is too
/// short is continued with itself or, from a random offset, with the text of `fill_from`. A prompt with images, or
/// whose row has no length, stays unchanged.
struct Shape {
    tokens: Quantity,
    mode: ShapeMode,
    fill: Option<String>,
    system: Option<String>,
    tokenizer: Arc<Tokenizer>,
    seed: Seed,
}

/// Adds `shape`, where the dataset has it.
///
/// # Errors
/// `fill_from` cannot be read, or the first prompt cannot have its length.
pub fn add_shape(
    inner: Box<dyn Prompts>,
    setting: &Setting<'_>,
) -> Result<Box<dyn Prompts>, PromptError> {
    let Some(TextShape {
        tokens,
        mode,
        fill_from,
    }) = &setting.spec.shape
    else {
        return Ok(inner);
    };
    let fill = fill_from
        .as_deref()
        .map(|path| file::read_text(path.as_ref()))
        .transpose()?;
    let shape = Shape {
        tokens: tokens.clone(),
        mode: *mode,
        fill,
        system: setting.spec.system.clone(),
        tokenizer: setting.tokenizer(),
        seed: setting.seed.child("shape"),
    };
    if let Some(mut session) = inner.session(0)
        && let Some(prompt) = session.turns.first_mut()
    {
        shape.fit(prompt, setting.first)?;
    }
    Ok(Box::new(Transformed {
        inner,
        transform: shape,
        first: setting.first,
    }))
}

impl Shape {
    fn fit(&self, prompt: &mut Prompt, index: u64) -> Result<(), TokenError> {
        let mut rng = ChaCha8Rng::seed_from_u64(self.seed.child(index).0);
        let Some(n) = sample_length(&self.tokens, &prompt.fields, &mut rng) else {
            return Ok(());
        };
        let Some(text) = replaceable_text(prompt) else {
            return Ok(());
        };
        let slot = prompt_slot(prompt, &self.tokenizer, self.system.as_deref())?;
        let fitted = match self.mode {
            ShapeMode::Cap => self.tokenizer.truncate_text(n, &slot, &text)?,
            ShapeMode::Exact => {
                let (more, from) = match &self.fill {
                    Some(fill) => (fill.as_str(), rng.random_range(0..fill.len().max(1))),
                    None => (text.as_str(), 0),
                };
                self.tokenizer.fit_text(
                    n,
                    &slot,
                    Text {
                        text: &text,
                        more,
                        from,
                    },
                    &mut rng,
                )?
            }
        };
        replace_last_user(prompt, &fitted);
        Ok(())
    }
}

impl Transform for Shape {
    fn apply(&self, prompt: &mut Prompt, turn: u32, index: u64) {
        if turn > 0 {
            return;
        }
        // A prompt that cannot have the length keeps its text.
        let _ = self.fit(prompt, index);
        prompt.tokens = tokens_of(prompt, &self.tokenizer, self.system.as_deref());
        prompt.approximate = self.tokenizer.approximate();
    }
}

#[cfg(test)]
mod cache_bust_tests {
    use super::*;
    use crate::message::request_messages;
    use crate::{CacheDir, Opened, open as open_any};
    use llmscen_core::dataset::{DatasetSpec, Prompt};
    use llmscen_core::quantity::Quantity;
    use serde_json::{Value, json};
    use std::collections::HashSet;

    fn opened(spec: &DatasetSpec, first: u64) -> Opened {
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
        .unwrap()
    }

    fn prompt(opened: &Opened, seq: u64) -> Prompt {
        opened.prompts.session(seq).unwrap().turns.remove(0)
    }

    fn dataset(text: &str) -> DatasetSpec {
        let tokenizer = Some("builtin".to_owned());
        DatasetSpec {
            cache_bust: true,
            tokenizer,
            ..DatasetSpec::new(Source::Prompt(text.to_owned()))
        }
    }

    #[test]
    fn the_words_are_those_of_the_session_and_are_counted() {
        let (one, two) = (opened(&dataset("Why?"), 0), opened(&dataset("Why?"), 2));
        let texts: Vec<String> = (0..50).map(|seq| prompt(&one, seq).text).collect();
        assert!(
            texts
                .iter()
                .all(|text| text.len() == 16 + 5 && text.ends_with("\nWhy?"))
        );
        assert_eq!(
            texts
                .iter()
                .map(|text| &text[..16])
                .collect::<HashSet<_>>()
                .len(),
            50
        );
        assert_eq!(
            (prompt(&one, 5), prompt(&one, 7)),
            (prompt(&two, 3), prompt(&two, 5))
        );
        let first = prompt(&one, 0);
        assert_eq!(first.tokens, Tokenizer::builtin().count(&first.text));
    }

    #[test]
    fn the_words_stand_in_front_of_whatever_the_model_reads_first() {
        let system = DatasetSpec {
            system: Some("Terse.".into()),
            ..dataset("Why?")
        };
        let with_system = prompt(&opened(&system, 0), 0);
        let words = with_system.text[..16].to_owned();
        let messages = request_messages(&with_system, Some("Terse.")).unwrap();
        let list = json!([{ "role": "system", "content": format!("{words}\nTerse.") }, { "role": "user",
            "content": "Why?" }]);
        assert_eq!(Value::Array(messages), list);

        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("rows.txt");
        let own = r#"[{"role":"user","content":[{"type":"text","text":"a"}]},{"role":"assistant","content":"b"},{"role":"user","content":"c"}]"#;
        std::fs::write(
            &path,
            format!(
                "{own}\n{}\n{}\n",
                r#"{"messages":[{"role":"user","content":"d"}]}"#, r#"{"prompt":"e"}"#
            ),
        )
        .unwrap();
        let rows = DatasetSpec {
            path: Some(path.display().to_string()),
            ..DatasetSpec {
                source: Source::LineByLine,
                ..dataset("")
            }
        };
        let opened = opened(&rows, 0);
        let [list, body, plain] = [0, 1, 2].map(|seq| prompt(&opened, seq));
        let of = |index: u64| {
            format!(
                "{:016x}",
                Seed(1).child("dataset").child("bust").child(index).0
            )
        };
        assert_eq!(
            list.messages.unwrap()[0]["content"],
            json!([{ "type": "text", "text": of(0) }, { "type": "text", "text": "a" }])
        );
        assert_eq!(
            body.body.unwrap()["messages"][0]["content"],
            format!("{}\nd", of(1))
        );
        assert_eq!(plain.body.unwrap()["prompt"], format!("{}\ne", of(2)));
    }

    #[test]
    fn a_shape_is_exact_with_the_words_and_synthetic_prompts_need_none() {
        use llmscen_core::dataset::{ShapeMode, TextShape};
        let shape = TextShape {
            tokens: Quantity::fixed(40),
            mode: ShapeMode::Exact,
            fill_from: None,
        };
        let shaped = opened(
            &DatasetSpec {
                shape: Some(shape),
                ..dataset("Why is the sky blue?")
            },
            0,
        );
        let texts: Vec<String> = (0..5).map(|seq| prompt(&shaped, seq).text).collect();
        assert!(
            texts
                .iter()
                .all(|text| Tokenizer::builtin().count(text) == Some(40))
        );
        assert_eq!(
            texts
                .iter()
                .map(|text| &text[..16])
                .collect::<HashSet<_>>()
                .len(),
            5
        );
        let random = Source::Random {
            tokens: Quantity::fixed(12),
            shared_prefix: 0,
        };
        let plain = opened(
            &DatasetSpec {
                cache_bust: false,
                source: random.clone(),
                ..dataset("")
            },
            0,
        );
        let busted = opened(
            &DatasetSpec {
                source: random,
                ..dataset("")
            },
            0,
        );
        assert_eq!(prompt(&plain, 3), prompt(&busted, 3));
        assert!(
            busted
                .notes
                .iter()
                .any(|note| note.starts_with("`cache_bust` has no effect")),
            "{:?}",
            busted.notes
        );
    }

    #[test]
    fn another_cache_seed_gives_other_words_in_front_of_the_same_text() {
        let of = |spec: &DatasetSpec, seed: u64| {
            prompt(
                &opened(
                    &DatasetSpec {
                        cache_seed: Some(Seed(seed)),
                        ..spec.clone()
                    },
                    0,
                ),
                3,
            )
            .text
        };
        let text = dataset("Why?");
        assert_eq!(of(&text, 7), of(&text, 7));
        assert!(of(&text, 7) != of(&text, 8) && of(&text, 8).ends_with("\nWhy?"));
        // Synthetic text is different in every run; without `cache_bust` it depends on the seed only.
        for source in [
            Source::Random {
                tokens: Quantity::fixed(64),
                shared_prefix: 0,
            },
            Source::Random {
                tokens: Quantity::fixed(64),
                shared_prefix: 32,
            },
            Source::Prefix {
                groups: 1,
                per_group: None,
                prefix_tokens: 32,
                tokens: Quantity::fixed(32),
                zipf: None,
            },
        ] {
            let spec = DatasetSpec {
                source,
                ..dataset("")
            };
            let (one, other) = (of(&spec, 7), of(&spec, 8));
            assert!(
                one == of(&spec, 7) && one[..8] != other[..8],
                "{one} {other}"
            );
            let plain = DatasetSpec {
                cache_bust: false,
                ..spec
            };
            assert_eq!(of(&plain, 7), of(&plain, 8));
        }
    }
}

#[cfg(test)]
mod shape_tests {
    use super::*;
    use crate::token::trained::CHATS;
    use crate::{CacheDir, Opened, open as open_any};
    use llmscen_core::dataset::{DatasetSpec, Source};
    use serde_json::json;
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

    fn shape(tokens: Quantity, mode: ShapeMode) -> Option<TextShape> {
        Some(TextShape {
            tokens,
            mode,
            fill_from: None,
        })
    }

    fn file(text: &str) -> (tempfile::TempDir, String) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("data.txt");
        std::fs::write(&path, text).unwrap();
        (dir, path.display().to_string())
    }

    #[test]
    fn every_row_has_its_length_after_the_chat_template() {
        let list = json!([{ "role": "user", "content": "What is this?" }, { "role": "assistant",
            "content": "A test." }, { "role": "user", "content": "And that?" }]);
        let body =
            json!({ "model": "m", "messages": [{ "role": "user", "content": "Who goes there?" }] });
        let (_dir, path) = file(&format!(
            "Why is the sky blue?\n{list}\n{body}\n{}\n",
            "The sea is wide. ".repeat(60)
        ));
        for chat in &CHATS {
            for kind in ["byte-level", "bpe", "unigram", "wordpiece"] {
                let folder = chat.folder(kind);
                let spec = DatasetSpec {
                    path: Some(path.clone()),
                    tokenizer: Some(folder.path().display().to_string()),
                    system: Some("You are terse.".into()),
                    shape: shape(Quantity::uniform(150, 260), ShapeMode::Exact),
                    ..DatasetSpec::new(Source::LineByLine)
                };
                let opened = opened(&spec, 0).unwrap();
                let tokenizer = opened.tokenizer.clone().unwrap();
                let mut lengths = HashSet::new();
                for seq in 0..12 {
                    let prompt = prompt(&opened, seq);
                    assert_eq!(
                        tokens_of(&prompt, &tokenizer, spec.system.as_deref()),
                        prompt.tokens
                    );
                    assert!(
                        (150..=260).contains(&prompt.tokens.unwrap()),
                        "{} {kind}: {:?}",
                        chat.name,
                        prompt.tokens
                    );
                    lengths.insert(prompt.tokens);
                }
                assert!(lengths.len() > 6);
                let talk = prompt(&opened, 1);
                let messages = talk.messages.unwrap();
                assert_eq!(messages[messages.len() - 2]["content"], "A test.");
                assert!(
                    messages[messages.len() - 1]["content"]
                        .as_str()
                        .unwrap()
                        .starts_with("And that?\nAnd that?")
                );
                assert_eq!(messages[messages.len() - 1]["content"], talk.text);
                let body = prompt(&opened, 2);
                assert_eq!(body.body.unwrap()["messages"][0]["content"], body.text);
            }
        }
    }

    #[test]
    fn a_cap_leaves_short_rows_alone() {
        let (_dir, path) = file("the sky is blue\nthe sky is blue and the sea is blue\n");
        let shape = shape(Quantity::fixed(6), ShapeMode::Cap);
        let spec = DatasetSpec {
            path: Some(path),
            shape,
            ..DatasetSpec::new(Source::LineByLine)
        };
        let opened = opened(&spec, 0).unwrap();
        let seen = [0, 1].map(|seq| prompt(&opened, seq));
        assert_eq!(
            seen.each_ref().map(|prompt| prompt.text.as_str()),
            ["the sky is blue", "the sky is blue and the"]
        );
        assert_eq!(
            seen.map(|prompt| (prompt.tokens, prompt.approximate)),
            [(Some(4), true), (Some(6), true)]
        );
    }

    #[test]
    fn what_is_short_goes_on_with_the_text_of_a_file_from_a_place_of_its_own() {
        let prose: String = (0..400).map(|n| format!("w{n} ")).collect();
        let ((_dir, path), (_fill_dir, fill)) = (file("a\na\na\na\n"), file(&prose));
        let shape = Some(TextShape {
            tokens: Quantity::fixed(30),
            mode: ShapeMode::Exact,
            fill_from: Some(fill),
        });
        let spec = DatasetSpec {
            path: Some(path),
            shape,
            ..DatasetSpec::new(Source::LineByLine)
        };
        let one = opened(&spec, 0).unwrap();
        let texts: HashSet<String> = (0..4).map(|seq| prompt(&one, seq).text).collect();
        assert!(
            texts.len() == 4 && texts.iter().all(|text| text.starts_with("a\nw")),
            "{texts:?}"
        );
        assert_eq!(prompt(&one, 3), prompt(&opened(&spec, 3).unwrap(), 0));
        let gone = TextShape {
            fill_from: Some("/nowhere/x.txt".into()),
            ..spec.shape.clone().unwrap()
        };
        assert!(matches!(
            opened(
                &DatasetSpec {
                    shape: Some(gone),
                    ..spec
                },
                0
            ),
            Err(PromptError::Read { .. })
        ));
    }

    #[test]
    fn a_length_comes_from_the_row_and_a_row_without_one_stays_as_it_is() {
        let (_dir, path) = file(
            "{\"question\": \"Why is it so?\", \"n\": 12}\n{\"question\": \"Why is it so?\"}\n",
        );
        let shape = shape(Quantity::Item("n".into()), ShapeMode::Exact);
        let spec = DatasetSpec {
            path: Some(path),
            shape,
            ..DatasetSpec::new(Source::Openqa)
        };
        let opened = opened(&spec, 0).unwrap();
        assert_eq!(
            (prompt(&opened, 0).tokens, prompt(&opened, 1).text.as_str()),
            (Some(12), "Why is it so?")
        );
    }

    #[test]
    fn a_length_that_cannot_be_is_an_error_before_the_run() {
        let folder = CHATS[0].folder("byte-level");
        let spec = DatasetSpec {
            tokenizer: Some(folder.path().display().to_string()),
            shape: shape(Quantity::fixed(5), ShapeMode::Exact),
            ..DatasetSpec::new(Source::Prompt("the sky is blue".into()))
        };
        let error = opened(&spec, 0).unwrap_err().to_string();
        assert!(
            error.starts_with("no text of exactly 5 tokens was found"),
            "{error}"
        );
    }
}
