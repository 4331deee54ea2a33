//! Prompts that are the rows of a file.
//!
//! The text is held once, with a span per row; a row is parsed when its turn comes. So memory stays near the file's
//! size, and asking takes no lock.

use super::cache::{self, Remote};
use super::error::PromptError;
use super::message::words;
use super::rows::Flaw;
use super::text::{self, line_at};
use super::{Progress, Prompts, Setting};
use crate::model::dataset::{OnExhausted, Order};
use crate::model::prompt::{Prompt, Session};
use crate::token::Tokenizer;
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;
use serde_json::{Value, json};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

/// How the rows of one kind are found and read.
pub struct Kind {
    /// Its name in a scenario.
    pub name: &'static str,
    /// Where the rows lie in the text.
    pub split: fn(&str) -> Result<Vec<Range<usize>>, Flaw>,
    /// One row as a prompt, or what is wrong with it.
    pub parse: fn(&str) -> Result<Prompt, String>,
    /// What a row must look like, for errors.
    pub expected: &'static str,
    /// The copy behind `path: builtin`.
    pub builtin: Option<&'static str>,
    /// The copy on a hub, for a dataset without a path.
    pub remote: Option<Remote>,
}

/// Rows between two words of progress.
const STRIDE: usize = 1000;

struct Table {
    text: String,
    rows: Vec<Range<usize>>,
    parse: fn(&str) -> Result<Prompt, String>,
    first: u64,
    cycle: bool,
    dropped: u64,
    system: Option<String>,
    tokenizer: Option<Arc<Tokenizer>>,
}

/// Reads the file of a kind, checks every row, and leaves out what cannot be sent.
pub fn open(kind: &'static Kind, setting: &Setting<'_>, notes: &mut Vec<String>) -> Result<impl Prompts + use<>, PromptError> {
    let (path, text) = locate(kind, setting, notes)?;
    let row = |line, problem| PromptError::Row { path: path.clone(), line, problem, expected: kind.expected };
    let mut rows = (kind.split)(&text).map_err(|flaw| row(flaw.line, flaw.problem))?;
    let found = rows.len();
    let keep =
        usable(kind, &text, &rows, setting).map_err(|(start, problem)| row(line_at(&text.as_bytes()[..start]), problem))?;
    let mut keep = keep.into_iter();
    rows.retain(|_| keep.next().unwrap_or(false));
    let dropped = (found - rows.len()) as u64;
    if rows.is_empty() {
        return Err(if found == 0 { PromptError::Empty { path } } else { PromptError::NoRows { path, dropped } });
    }
    if dropped > 0 {
        notes.push(format!("{dropped} of {found} dataset rows are blank or outside `prompt_tokens` and were left out"));
    }
    if setting.spec.order == Order::Shuffle {
        rows.shuffle(&mut ChaCha8Rng::seed_from_u64(setting.seed.child("order").0));
    }
    Ok(Table {
        text,
        rows,
        parse: kind.parse,
        first: setting.first,
        cycle: setting.spec.on_exhausted == OnExhausted::Cycle,
        dropped,
        system: setting.spec.system.clone(),
        tokenizer: setting.tokenizer.clone(),
    })
}

fn locate(kind: &Kind, setting: &Setting<'_>, notes: &mut Vec<String>) -> Result<(PathBuf, String), PromptError> {
    match (setting.spec.path.as_deref(), &kind.remote) {
        (Some("builtin"), _) => {
            let text = kind.builtin.ok_or(PromptError::NoBuiltin { kind: kind.name })?;
            Ok((PathBuf::from("builtin"), text.to_owned()))
        }
        (Some(path), _) => Ok((PathBuf::from(path), text::read(path.as_ref())?)),
        (None, Some(remote)) => {
            let cached = cache::obtain(remote, setting.cache, setting.progress)?;
            notes.extend(cached.note);
            Ok((cached.path.clone(), text::decode(cached.bytes, &cached.path)?))
        }
        (None, None) => Err(PromptError::NoPath { kind: kind.name }),
    }
}

/// Which rows can be sent; the error is the start of the row that has the wrong shape, and the reason.
fn usable(kind: &Kind, text: &str, rows: &[Range<usize>], setting: &Setting<'_>) -> Result<Vec<bool>, (usize, String)> {
    let filtered = setting.spec.min_tokens.or(setting.spec.max_tokens).is_some();
    let mut keep = Vec::with_capacity(rows.len());
    for (index, row) in rows.iter().enumerate() {
        if index % STRIDE == 0 {
            (setting.progress)(Progress::Rows { done: index as u64, total: rows.len() as u64 });
        }
        let prompt = (kind.parse)(&text[row.clone()]).map_err(|problem| (row.start, problem))?;
        let tokens = setting.tokenizer.as_ref().filter(|_| filtered).and_then(|tokenizer| tokenizer.count(&words(&prompt)));
        let says_something = prompt.body.is_some() || prompt.messages.is_some() || !prompt.text.trim().is_empty();
        keep.push(says_something && setting.admits(tokens));
    }
    Ok(keep)
}

impl Table {
    fn finished(&self, mut prompt: Prompt) -> Prompt {
        if let Some(tokenizer) = &self.tokenizer {
            prompt.tokens = tokenizer.count(&words(&prompt));
            prompt.approximate = tokenizer.approximate();
        }
        let role = |message: &Value| message.get("role") == Some(&Value::from("system"));
        if let (Some(system), Some(messages)) = (&self.system, &mut prompt.messages)
            && !messages.iter().any(role)
        {
            messages.insert(0, json!({ "role": "system", "content": system }));
        }
        prompt
    }
}

impl Prompts for Table {
    fn session(&self, seq: u64) -> Option<Session> {
        let len = self.rows.len() as u64;
        if !self.cycle && seq >= len {
            return None;
        }
        let row = self.rows.get(((self.first % len + seq % len) % len) as usize)?;
        let prompt = (self.parse)(&self.text[row.clone()]).ok()?;
        Some(Session { turns: vec![self.finished(prompt)] })
    }

    fn len(&self) -> Option<u64> {
        Some(self.rows.len() as u64)
    }

    fn dropped(&self) -> u64 {
        self.dropped
    }
}

#[cfg(test)]
mod tests {
    use crate::model::dataset::{DatasetSpec, OnExhausted, Order, Source};
    use crate::model::seed::Seed;
    use crate::prompts::{CacheDir, Opened, Progress, PromptError, open};
    use serde_json::json;
    use std::cell::RefCell;
    use std::path::PathBuf;

    fn spec(source: Source, path: &str) -> DatasetSpec {
        DatasetSpec { path: Some(path.to_owned()), ..DatasetSpec::of(source) }
    }

    fn opened(spec: &DatasetSpec, first: u64) -> Result<Opened, PromptError> {
        open(spec, Seed(42), first, &CacheDir { dir: PathBuf::from("unused"), hub: String::new() }, &|_| ())
    }

    fn texts(spec: &DatasetSpec, first: u64, count: u64) -> Vec<Option<String>> {
        let prompts = opened(spec, first).unwrap().prompts;
        (0..count).map(|seq| prompts.session(seq).map(|session| session.turns[0].text.clone())).collect()
    }

    fn some(texts: &[&str]) -> Vec<Option<String>> {
        texts.iter().map(|text| Some((*text).to_owned())).collect()
    }

    fn file(text: &str) -> (tempfile::TempDir, String) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("data.txt");
        std::fs::write(&path, text).unwrap();
        (dir, path.display().to_string())
    }

    #[test]
    fn rows_cycle_from_the_first_item_that_is_asked_for() {
        let (_dir, path) = file("a\nb\n\nc\n");
        let mut spec = spec(Source::LineByLine, &path);
        assert_eq!(texts(&spec, 0, 4), some(&["a", "b", "c", "a"]));
        assert_eq!(texts(&spec, 5, 3), some(&["c", "a", "b"]));
        assert_eq!(texts(&spec, u64::MAX, 1), some(&["a"]));
        assert_eq!(opened(&spec, 0).unwrap().prompts.len(), Some(3));
        for end in [OnExhausted::Stop, OnExhausted::Error] {
            spec.on_exhausted = end;
            assert_eq!(texts(&spec, 1, 4), [some(&["b", "c", "a"]), vec![None]].concat());
        }
    }

    #[test]
    fn a_shuffle_is_a_permutation_drawn_from_the_seed() {
        let lines: Vec<String> = (0..100).map(|n| format!("row {n}")).collect();
        let (_dir, path) = file(&lines.join("\n"));
        let shuffled = DatasetSpec { order: Order::Shuffle, ..spec(Source::LineByLine, &path) };
        let seen = texts(&shuffled, 0, 100);
        assert_eq!(seen, texts(&shuffled, 0, 100));
        let mut sorted: Vec<String> = seen.into_iter().flatten().collect();
        assert_ne!(sorted, lines);
        sorted.sort_by_key(|row| row[4..].parse::<u32>().unwrap());
        assert_eq!(sorted, lines);
    }

    #[test]
    fn rows_outside_prompt_tokens_are_dropped_and_counted() {
        let (_dir, path) = file("hi\nthe sky is blue\nthe sky is blue and the sea is blue\n");
        let mut spec = spec(Source::LineByLine, &path);
        (spec.min_tokens, spec.max_tokens) = (Some(4), Some(6));
        let Opened { prompts, tokenizer, notes } = opened(&spec, 0).unwrap();
        assert_eq!((prompts.len(), prompts.dropped()), (Some(1), 2));
        let prompt = prompts.session(0).unwrap().turns.remove(0);
        assert_eq!((prompt.tokens, prompt.approximate), (Some(4), true));
        assert!(tokenizer.unwrap().approximate());
        assert_eq!(notes[1], "2 of 3 dataset rows are blank or outside `prompt_tokens` and were left out");
        spec.min_tokens = Some(400);
        spec.max_tokens = None;
        let error = opened(&spec, 0).unwrap_err();
        assert!(matches!(error, PromptError::NoRows { dropped: 3, .. }), "{error}");
    }

    #[test]
    fn without_a_tokenizer_nothing_is_counted() {
        let (_dir, path) = file("hi");
        let Opened { prompts, tokenizer, notes } = opened(&spec(Source::LineByLine, &path), 0).unwrap();
        assert!(tokenizer.is_none() && notes.is_empty());
        assert_eq!(prompts.session(0).unwrap().turns[0].tokens, None);
    }

    #[test]
    fn a_row_of_the_wrong_shape_is_named_by_file_and_line() {
        let (_dir, path) = file("{\"question\": \"Why?\"}\n\n{\"query\": \"Why?\"}\n");
        let error = opened(&spec(Source::Openqa, &path), 0).unwrap_err().to_string();
        let rest =
            "the row has no `question` (it has: query); expected JSONL or a JSON list of rows such as `{\"question\": \"…\"}`";
        assert_eq!(error, format!("{path}:3: {rest}"));
        let (_dir, list) = file("[\n {\"instruction\": \"a\"},\n {\"instruction\": 3}\n]");
        let error = opened(&spec(Source::Longalpaca, &list), 0).unwrap_err().to_string();
        assert!(error.starts_with(&format!("{list}:3: `instruction` is not a text; expected")), "{error}");
        let (_dir, empty) = file("[]");
        assert!(matches!(opened(&spec(Source::Openqa, &empty), 0), Err(PromptError::Empty { .. })));
    }

    #[test]
    fn a_blank_question_is_dropped_and_its_row_fills_the_fields() {
        let (_dir, path) = file("[{\"question\": \" \"}, {\"question\": \"Why?\", \"topic\": \"x\"}]");
        let prompts = opened(&spec(Source::Openqa, &path), 0).unwrap().prompts;
        assert_eq!((prompts.len(), prompts.dropped()), (Some(1), 1));
        assert_eq!(prompts.session(9).unwrap().turns[0].fields["topic"], "x");
    }

    #[test]
    fn a_system_message_goes_before_a_message_list_that_has_none() {
        let own = r#"[{"role":"system","content":"own"},{"role":"user","content":"x"}]"#;
        let (_dir, path) = file(&format!("[{{\"role\":\"user\",\"content\":\"x\"}}]\n{own}"));
        let spec = DatasetSpec { system: Some("Be terse.".into()), ..spec(Source::LineByLine, &path) };
        let prompts = opened(&spec, 0).unwrap().prompts;
        let first = |seq| prompts.session(seq).unwrap().turns[0].messages.as_ref().unwrap()[0].clone();
        assert_eq!(first(0), json!({ "role": "system", "content": "Be terse." }));
        assert_eq!(first(1), json!({ "role": "system", "content": "own" }));
    }

    #[test]
    fn the_built_in_questions_are_many_and_different() {
        let prompts = opened(&spec(Source::Openqa, "builtin"), 0).unwrap().prompts;
        let different: std::collections::HashSet<String> =
            (0..209).map(|seq| prompts.session(seq).unwrap().turns[0].text.clone()).collect();
        assert_eq!((prompts.len(), prompts.dropped(), different.len()), (Some(209), 0, 209));
        let none = opened(&spec(Source::Longalpaca, "builtin"), 0).unwrap_err().to_string();
        assert_eq!(none, "no `longalpaca` data ships with this tool; `path: builtin` is for openqa");
        let pathless = DatasetSpec { path: None, ..spec(Source::LineByLine, "") };
        assert_eq!(opened(&pathless, 0).unwrap_err().to_string(), "a `line_by_line` dataset needs a `path`");
    }

    #[test]
    fn reading_rows_tells_how_far_it_is() {
        let (_dir, path) = file(&"x\n".repeat(2001));
        let told = RefCell::new(Vec::new());
        let cache = CacheDir { dir: PathBuf::new(), hub: String::new() };
        open(&spec(Source::LineByLine, &path), Seed(1), 0, &cache, &|step| told.borrow_mut().push(step)).unwrap();
        let total = 2001;
        assert_eq!(told.into_inner(), [0, 1000, 2000].map(|done| Progress::Rows { done, total }));
    }
}
