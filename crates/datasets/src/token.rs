//! Tokenizers: token counts, and text of an exact length. Only this module uses the `tokenizers` crate.

mod chat;
mod config;
mod embedded;
mod error;
mod fit;
mod length_fit;
mod pre_tokenizer;
mod template_offset;
#[cfg(test)]
pub(crate) mod trained;
mod words;

pub use chat::{ChatTemplate, text_of};
pub use embedded::{Embedded, TemplateSource};
pub use error::TokenError;
pub use length_fit::Text;
pub use template_offset::{MARK, Slot};

use llmscen_core::bounds;
use serde_json::{Map, Value, json};
use std::ops::Range;
use std::path::Path;
use std::sync::OnceLock;
use tokenizers::models::bpe::{BPE, Merges, Vocab};
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::{PostProcessor, PostProcessorWrapper};

/// A tokenizer, which can be shared between threads.
#[derive(Debug)]
pub struct Tokenizer {
    inner: tokenizers::Tokenizer,
    chat: Option<ChatTemplate>,
    approximate: bool,
    /// Special tokens that the server adds to a prompt: `<s>`, or `[CLS]` and `[SEP]` for plain text, none for
    /// messages.
    prompt_special: u64,
    /// Special tokens that the server adds to plain text.
    plain_text_special: u64,
    /// The tokens of random text; computed at the first use, because that decodes the whole vocabulary.
    pool: OnceLock<fit::Pool>,
    /// The words of long random text; None where long text must be tokenized.
    words: OnceLock<Option<words::Words>>,
}

/// The text with which the special tokens around a text are found.
const TEXT: &str = "a";
/// What decoders emit for an incomplete character.
const INCOMPLETE: char = '\u{fffd}';
/// Scripts and symbols that a vocabulary without unknown token and byte fallback cannot encode.
const PROBE: &str = "The quick brown fox. naïve 中文 \u{10400} \u{12000} 🙂";

impl Tokenizer {
    /// Reads a tokenizer.json or the folder of one, and the chat template next to it: chat_template.jinja, or
    /// `chat_template` in tokenizer_config.json (`default` of several named ones).
    ///
    /// # Errors
    /// A file is missing or invalid, the template does not compile, or the vocabulary cannot encode every text.
    pub fn load(path: &Path) -> Result<Tokenizer, TokenError> {
        let file = if path.is_dir() {
            path.join(config::TOKENIZER)
        } else {
            path.to_owned()
        };
        if path.is_dir() && !file.exists() {
            return Err(TokenError::NotThere {
                path: path.to_owned(),
            });
        }
        let bytes = bounds::read(&file, bounds::TOKENIZER).map_err(|source| TokenError::Read {
            path: file.clone(),
            source,
        })?;
        let fields = config::read_config(&file)?;
        let tokenizer = Tokenizer::parse(&file, &bytes)?;
        let bos = config::bos_token(&fields).and_then(|name| tokenizer.inner.token_to_id(name));
        let tokenizer =
            tokenizer.with_bos(fields.get("add_bos_token").and_then(Value::as_bool), bos);
        Ok(Tokenizer {
            chat: config::read_chat_template(&file)?.map(|(template, _)| template),
            ..tokenizer
        })
    }

    /// The built-in tokenizer: a byte-level BPE of 8192 tokens for English text. Its counts are approximate for all
    /// models.
    pub fn builtin() -> Tokenizer {
        Tokenizer::wrap(builtin_tokenizer(), true)
    }

    fn wrap(mut inner: tokenizers::Tokenizer, approximate: bool) -> Tokenizer {
        // Many files contain the truncation and padding of a training run, with which every count would be 512.
        inner.with_padding(None);
        if inner.get_truncation().is_some() {
            // Removing the truncation cannot fail.
            let _ = inner.with_truncation(None);
        }
        let plain_text_special = inner
            .get_post_processor()
            .map_or(0, |processor| processor.added_tokens(false) as u64);
        Tokenizer {
            inner,
            chat: None,
            approximate,
            prompt_special: 0,
            plain_text_special,
            pool: OnceLock::new(),
            words: OnceLock::new(),
        }
    }

    /// The tokenizer for prompts that are not sent as messages: without chat template, and with the special tokens
    /// that a server adds to plain text.
    pub fn for_plain_text(self) -> Tokenizer {
        Tokenizer {
            chat: None,
            prompt_special: self.plain_text_special,
            ..self
        }
    }

    /// The tokenizer of a model that uses exactly this one.
    pub fn into_exact(self) -> Tokenizer {
        Tokenizer {
            approximate: false,
            ..self
        }
    }

    /// The chat template, where the tokenizer has one.
    pub fn chat_template(&self) -> Option<&ChatTemplate> {
        self.chat.as_ref()
    }

    /// Number of tokens of `text` without special tokens. None where the tokenizer rejects the text.
    pub fn count(&self, text: &str) -> Option<u64> {
        self.inner
            .encode_fast(text, false)
            .ok()
            .map(|encoding| encoding.len() as u64)
    }

    /// Number of tokens of `text` and in each of these byte ranges of it, without special tokens: a token is in the
    /// range that has its last byte. None where the tokenizer rejects the text.
    pub fn count_ranges(&self, text: &str, ranges: &[Range<u32>]) -> Option<(u64, Vec<u32>)> {
        let encoding = self.inner.encode(text, false).ok()?;
        let mut ends: Vec<usize> = encoding
            .get_offsets()
            .iter()
            .map(|(from, to)| to.max(&(from + 1)) - 1)
            .collect();
        ends.sort_unstable();
        let until = |byte: u32| ends.partition_point(|end| *end < byte as usize);
        let count = |range: &Range<u32>| until(range.end).saturating_sub(until(range.start));
        let counts = ranges.iter().map(|range| count(range) as u32).collect();
        Some((ends.len() as u64, counts))
    }

    /// Number of tokens of a prompt, with the special tokens that a server adds.
    pub fn count_prompt(&self, text: &str) -> Option<u64> {
        self.count(text).map(|tokens| tokens + self.prompt_special)
    }

    /// Number of tokens of a conversation as the model reads it (see [`Tokenizer::chat`]). None where the template or
    /// the tokenizer rejects it.
    pub fn count_messages(&self, messages: &[Value]) -> Option<u64> {
        self.count_prompt(&self.chat(messages, None).ok()?)
    }

    /// Renders messages and the `tools` of a request with the chat template; without a template, joins the contents
    /// with line breaks.
    ///
    /// # Errors
    /// [`TokenError::Refused`] with the message of the template.
    pub fn chat(&self, messages: &[Value], tools: Option<&Value>) -> Result<String, TokenError> {
        match &self.chat {
            Some(template) => template
                .render(messages, tools)
                .map_err(|reason| TokenError::Refused { reason }),
            None => Ok(messages.iter().map(text_of).collect::<Vec<_>>().join("\n")),
        }
    }

    /// Whether counts are approximate, because this is not the tokenizer of the model.
    pub fn approximate(&self) -> bool {
        self.approximate
    }

    /// The ids of a text, with the special tokens of plain text if `special`. None where the tokenizer rejects it.
    pub fn encode(&self, text: &str, special: bool) -> Option<Vec<u32>> {
        self.inner
            .encode_fast(text, special)
            .ok()
            .map(|encoding| encoding.get_ids().to_vec())
    }

    /// The text of tokens without special ones. None where the tokenizer rejects them.
    pub fn decode(&self, ids: &[u32]) -> Option<String> {
        self.inner.decode(ids, true).ok()
    }

    /// Size of the vocabulary.
    pub fn vocabulary(&self) -> usize {
        self.inner.get_vocab_size(true)
    }

    /// Parses a tokenizer.json, without chat template. `path` is used in errors.
    pub(super) fn parse(path: &Path, bytes: &[u8]) -> Result<Tokenizer, TokenError> {
        let malformed = |reason| TokenError::Malformed {
            path: path.to_owned(),
            what: config::TOKENIZER,
            reason,
        };
        let inner = tokenizers::Tokenizer::from_bytes(bytes)
            .map_err(|error| malformed(error.to_string()))?;
        match inner.encode_fast(PROBE, false) {
            Ok(_) => Ok(Tokenizer::wrap(inner, false)),
            Err(error) => Err(TokenError::Partial {
                path: path.to_owned(),
                reason: error.to_string(),
            }),
        }
    }

    /// The tokenizer with (`adds`) or without the BOS token before plain text. Unchanged where an argument is None.
    fn with_bos(mut self, adds: Option<bool>, bos: Option<u32>) -> Tokenizer {
        let (Some(adds), Some(bos)) = (adds, bos) else {
            return self;
        };
        let Some((mut before, after)) = self.special_tokens() else {
            return self;
        };
        match (adds, before.first() == Some(&bos)) {
            (true, false) => before.insert(0, bos),
            (false, true) => _ = before.remove(0),
            _ => return self,
        }
        if let Some(processor) = self.post_processor(&before, &after) {
            self.inner.with_post_processor(Some(processor));
        }
        self
    }

    /// The ids of a plain text with its special tokens. A text that begins with the BOS token gets no second one.
    /// None where the tokenizer rejects it.
    pub fn encode_prompt(&self, text: &str) -> Option<Vec<u32>> {
        let mut ids = self.encode(text, true)?;
        let twice = matches!(ids.as_slice(), [first, second, ..] if first == second);
        if twice
            && self
                .special_tokens()
                .is_some_and(|(before, _)| before.as_slice() == ids.get(..1).unwrap_or_default())
        {
            ids.remove(0);
        }
        Some(ids)
    }

    /// The special tokens before and after a plain text.
    fn special_tokens(&self) -> Option<(Vec<u32>, Vec<u32>)> {
        let whole = self.encode(TEXT, true)?;
        let plain = self.encode(TEXT, false)?;
        let at = whole
            .windows(plain.len().max(1))
            .position(|ids| ids == plain)?;
        Some((
            whole.get(..at)?.to_vec(),
            whole.get(at + plain.len()..)?.to_vec(),
        ))
    }

    fn post_processor(&self, before: &[u32], after: &[u32]) -> Option<PostProcessorWrapper> {
        let name = |id: &u32| self.inner.id_to_token(*id);
        let special = |ids: &[u32], kind: u32| {
            let piece =
                |id: &u32| Some(json!({ "SpecialToken": { "id": name(id)?, "type_id": kind } }));
            ids.iter().map(piece).collect::<Option<Vec<Value>>>()
        };
        let text = |id: &str, kind: u32| json!({ "Sequence": { "id": id, "type_id": kind } });
        let single = [special(before, 0)?, vec![text("A", 0)], special(after, 0)?].concat();
        let pair = [single.clone(), vec![text("B", 1)], special(after, 1)?].concat();
        let known = |id: &u32| {
            Some((
                name(id)?,
                json!({ "id": name(id)?, "ids": [id], "tokens": [name(id)?] }),
            ))
        };
        let tokens: Map<String, Value> = before.iter().chain(after).filter_map(known).collect();
        let template = json!({ "type": "TemplateProcessing", "single": single, "pair": pair,
            "special_tokens": tokens });
        serde_json::from_value(template).ok()
    }
}

/// The merges of the built-in tokenizer, one per line, best first. It is a byte-level BPE as in GPT-2: the vocabulary
/// is the 256 byte letters in order, then the result of each merge. It was trained with tokenizers 0.23
/// (`BpeTrainer`, 8192 tokens, no special ones) on the text of the Rust documentation (MIT OR Apache-2.0) and the
/// glosses of WordNet 3.0 (WordNet 3.0 Copyright 2006 by Princeton University; its license permits any use), without
/// lines outside Latin script.
const MERGES: &str = include_str!("token/builtin.merges");

fn builtin_tokenizer() -> tokenizers::Tokenizer {
    let merges: Merges = MERGES
        .lines()
        .filter_map(|line| line.split_once(' '))
        .map(|(a, b)| (a.into(), b.into()))
        .collect();
    let mut letters: Vec<char> = ByteLevel::alphabet().into_iter().collect();
    letters.sort_unstable();
    let tokens = letters
        .into_iter()
        .map(String::from)
        .chain(merges.iter().map(|(a, b)| format!("{a}{b}")));
    let vocab: Vocab = tokens.zip(0u32..).collect();
    let mut tokenizer = tokenizers::Tokenizer::new(BPE::new(vocab, merges));
    let bytes = ByteLevel::new(false, true, true);
    tokenizer.with_pre_tokenizer(Some(bytes));
    tokenizer.with_decoder(Some(bytes));
    tokenizer
}

/// Decodes token by token. Only the last tokens are decoded again: those of the last emitted text, because blanks
/// between tokens depend on their neighbors, and those of an incomplete character.
#[derive(Clone, Debug, Default)]
pub struct IncrementalDecoder {
    ids: Vec<u32>,
    /// Start of the tokens that are decoded again.
    from: usize,
    /// Number of tokens whose text was emitted.
    emitted: usize,
    text: String,
}

impl IncrementalDecoder {
    /// Adds a token; returns the number of bytes of complete characters that it added.
    pub fn push(&mut self, tokenizer: &Tokenizer, id: u32) -> usize {
        self.ids.push(id);
        let decoded = |ids: &[u32]| tokenizer.decode(ids).unwrap_or_default();
        let before = decoded(self.ids.get(self.from..self.emitted).unwrap_or_default());
        let after = decoded(self.ids.get(self.from..).unwrap_or_default());
        let Some(new) = after
            .strip_prefix(&before)
            .filter(|new| !new.is_empty() && !new.ends_with(INCOMPLETE))
        else {
            return 0;
        };
        self.text.push_str(new);
        self.from = self.emitted;
        self.emitted = self.ids.len();
        new.len()
    }

    /// The text so far.
    pub fn text(&self) -> &str {
        &self.text
    }
}

#[cfg(test)]
mod tests {
    use super::trained::{ALL, CHATML};
    use super::*;
    use std::path::PathBuf;

    fn saved(name: &str, json: &str) -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join(name);
        std::fs::write(&file, json).unwrap();
        (dir, file)
    }

    fn word_level(unknown: &str, truncation: &str) -> String {
        format!(
            r#"{{"version":"1.0","truncation":{truncation},"padding":null,"added_tokens":[],"normalizer":null,
            "pre_tokenizer":{{"type":"Whitespace"}},"post_processor":null,"decoder":null,
            "model":{{"type":"WordLevel","vocab":{{"a":0,"b":1,"[UNK]":2}},"unk_token":"{unknown}"}}}}"#
        )
    }

    #[test]
    fn a_file_and_its_folder_are_the_same_tokenizer() {
        let (dir, file) = saved("tokenizer.json", &word_level("[UNK]", "null"));
        for path in [dir.path(), &file] {
            let tokenizer = Tokenizer::load(path).unwrap();
            assert_eq!(tokenizer.count("a b a zebra"), Some(4));
            assert!(!tokenizer.approximate());
        }
    }

    #[test]
    fn truncation_saved_in_the_file_does_not_cap_the_count() {
        let cut = r#"{"direction":"Right","max_length":2,"strategy":"LongestFirst","stride":0}"#;
        let (_dir, file) = saved("tokenizer.json", &word_level("[UNK]", cut));
        assert_eq!(Tokenizer::load(&file).unwrap().count("a b a b a"), Some(5));
    }

    #[test]
    fn errors_name_the_file_and_the_reason() {
        let (dir, file) = saved("other.json", "{}");
        let text = |path: &Path| Tokenizer::load(path).unwrap_err().to_string();
        assert!(
            text(dir.path())
                .starts_with(&format!("{} has no tokenizer.json", dir.path().display()))
        );
        assert!(text(&file).starts_with(&format!("{} is not a tokenizer.json: ", file.display())));
        let gone = dir.path().join("gone.json");
        assert!(text(&gone).starts_with(&format!(
            "cannot read the tokenizer {}: No such file",
            gone.display()
        )));
    }

    #[test]
    fn a_vocabulary_with_holes_is_refused_at_load() {
        let (_dir, file) = saved("tokenizer.json", &word_level("[MISSING]", "null"));
        assert!(matches!(
            Tokenizer::load(&file),
            Err(TokenError::Partial { .. })
        ));
    }

    #[test]
    fn it_has_8192_tokens_and_splits_as_it_was_trained_to() {
        let tokenizer = builtin_tokenizer();
        assert_eq!(tokenizer.get_vocab_size(true), 8192);
        let split = tokenizer
            .encode("What would you cook on a rainy evening?", false)
            .unwrap();
        assert_eq!(
            split.get_tokens(),
            [
                "Wh",
                "at",
                "Ġwould",
                "Ġyou",
                "Ġcook",
                "Ġon",
                "Ġa",
                "Ġra",
                "iny",
                "Ġevening",
                "?"
            ]
        );
    }

    #[test]
    fn any_text_counts_and_comes_back() {
        let tokenizer = Tokenizer::builtin();
        assert!(tokenizer.approximate());
        assert_eq!(tokenizer.count(""), Some(0));
        for text in ["naïve 中文 🙂\u{0}", " two  spaces\n\n", "don't"] {
            let ids = tokenizer.inner.encode_fast(text, false).unwrap();
            assert_eq!(tokenizer.inner.decode(ids.get_ids(), false).unwrap(), text);
        }
    }

    #[test]
    fn text_that_grows_is_the_text_of_the_whole() {
        let text = "The cook's naïve 中文 menu 🙂, two  blanks and an end.";
        for (name, tokenizer) in ALL.iter() {
            let ids = tokenizer.encode(text, false).unwrap();
            let mut growing = IncrementalDecoder::default();
            let brought: usize = ids.iter().map(|id| growing.push(tokenizer, *id)).sum();
            assert_eq!(growing.text(), tokenizer.decode(&ids).unwrap(), "{name}");
            assert_eq!(brought, growing.text().len());
        }
    }

    #[test]
    fn half_a_letter_is_not_told() {
        let builtin = Tokenizer::builtin();
        let ids = builtin.encode("🙂", false).unwrap();
        assert!(ids.len() > 1);
        let mut growing = IncrementalDecoder::default();
        let brought: Vec<usize> = ids.iter().map(|id| growing.push(&builtin, *id)).collect();
        assert_eq!(brought.iter().rev().skip(1).sum::<usize>(), 0);
        assert_eq!((brought.last(), growing.text()), (Some(&4), "🙂"));
    }

    /// Tokens of `text` by a folder whose tokenizer_config.json and post-processor are these.
    fn encoded(config: Value, processor: Value, text: &str) -> (Vec<u32>, u32) {
        let folder = CHATML.folder("byte-level");
        let path = folder.path().join("tokenizer.json");
        let mut tokenizer: Value =
            serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
        tokenizer["post_processor"] = processor;
        std::fs::write(&path, tokenizer.to_string()).unwrap();
        std::fs::write(
            folder.path().join("tokenizer_config.json"),
            config.to_string(),
        )
        .unwrap();
        let tokenizer = Tokenizer::load(folder.path()).unwrap();
        let bos = tokenizer.inner.token_to_id("<|end|>").unwrap();
        (tokenizer.encode_prompt(text).unwrap(), bos)
    }

    fn template(bos: u32) -> Value {
        json!({ "type": "TemplateProcessing",
            "single": [{ "SpecialToken": { "id": "<|end|>", "type_id": 0 } }, { "Sequence": { "id": "A",
                "type_id": 0 } }],
            "pair": [{ "Sequence": { "id": "A", "type_id": 0 } }, { "Sequence": { "id": "B", "type_id": 0 } }],
            "special_tokens": { "<|end|>": { "id": "<|end|>", "ids": [bos], "tokens": ["<|end|>"] } } })
    }

    #[test]
    fn the_configuration_decides_over_the_post_processor() {
        let config =
            |adds: Value| json!({ "add_bos_token": adds, "bos_token": { "content": "<|end|>" } });
        let (plain, bos) = encoded(config(Value::Null), Value::Null, "one two");
        let with = [vec![bos], plain.clone()].concat();
        assert_eq!(encoded(config(json!(true)), Value::Null, "one two").0, with);
        assert_eq!(
            encoded(config(Value::Null), template(bos), "one two").0,
            with,
            "what the post-processor says"
        );
        assert_eq!(
            encoded(config(json!(true)), template(bos), "one two").0,
            with,
            "not twice"
        );
        assert_eq!(
            encoded(config(json!(false)), template(bos), "one two").0,
            plain
        );
    }

    #[test]
    fn a_text_that_begins_with_bos_gets_no_second_one() {
        let config = json!({ "add_bos_token": true, "bos_token": "<|end|>" });
        let (ids, bos) = encoded(config.clone(), Value::Null, "<|end|>one");
        assert_eq!(ids.iter().filter(|id| **id == bos).count(), 1, "{ids:?}");
        let (own, _) = encoded(config, Value::Null, "<|end|><|end|>one");
        assert_eq!(
            own.iter().filter(|id| **id == bos).count(),
            2,
            "what the text itself has twice stays"
        );
    }
}
