//! Floor 2. Tokenizers: counting, and text of an exact length.
//!
//! This is the door to the `tokenizers` crate: nothing else imports it.

mod bos;
mod builtin;
mod chat;
mod config;
mod embedded;
mod error;
mod fit;
mod length_fit;
mod pre_tokenizer;
mod template_offset;
mod text;
#[cfg(test)]
pub(crate) mod trained;

pub use chat::{ChatTemplate, text_of};
pub use embedded::{Embedded, TemplateSource};
pub use error::TokenError;
pub use length_fit::Text;
pub use template_offset::{MARK, Slot};
pub use text::Growing;

use llmscen_core::bounds;
use serde_json::Value;
use std::path::Path;
use std::sync::OnceLock;
use tokenizers::PostProcessor;

/// A tokenizer, shared freely between threads.
#[derive(Debug)]
pub struct Tokenizer {
    inner: tokenizers::Tokenizer,
    chat: Option<ChatTemplate>,
    approximate: bool,
    /// Special tokens that the server puts around a prompt of plain text: `<s>`, or `[CLS]` and `[SEP]`.
    around: u64,
    /// Special tokens that a server puts around plain text, whether or not prompts are sent as that.
    special: u64,
    /// What random text is drawn from; made on first use, for it walks the whole vocabulary.
    pool: OnceLock<fit::Pool>,
}

/// Scripts and symbols that a vocabulary without an unknown token or byte fallback trips over.
const PROBE: &str = "The quick brown fox. naïve 中文 \u{10400} \u{12000} 🙂";

impl Tokenizer {
    /// Reads a tokenizer.json, or the folder that holds one, and the chat template that lies beside it:
    /// chat_template.jinja, or `chat_template` in tokenizer_config.json (of several named ones, `default`).
    ///
    /// # Errors
    /// Names the file and the reason: not there, unreadable, not what its name says, a template that does not compile,
    /// or a vocabulary that cannot tokenize every text.
    pub fn load(path: &Path) -> Result<Tokenizer, TokenError> {
        let file = if path.is_dir() { path.join(config::TOKENIZER) } else { path.to_owned() };
        if path.is_dir() && !file.exists() {
            return Err(TokenError::NotThere { path: path.to_owned() });
        }
        let bytes = bounds::read(&file, bounds::TOKENIZER).map_err(|source| TokenError::Read { path: file.clone(), source })?;
        let fields = config::fields(&file)?;
        let tokenizer = Tokenizer::parsed(&file, &bytes)?;
        let bos = config::bos(&fields).and_then(|name| tokenizer.inner.token_to_id(name));
        let tokenizer = tokenizer.with_bos(fields.get("add_bos_token").and_then(Value::as_bool), bos);
        Ok(Tokenizer { chat: config::chat_template(&file)?.map(|(template, _)| template), ..tokenizer })
    }

    /// The stand-in that ships with the project: a byte-level BPE of 8192 tokens for English text. Its counts are
    /// approximate for any other model.
    pub fn builtin() -> Tokenizer {
        Tokenizer::over(builtin::tokenizer(), true)
    }

    fn over(mut inner: tokenizers::Tokenizer, approximate: bool) -> Tokenizer {
        // Many files carry the truncation and padding of a training run: counts would stop at 512, or never fall below.
        inner.with_padding(None);
        if inner.get_truncation().is_some() {
            // Clearing cannot fail; only a stride that does not fit a length can.
            let _ = inner.with_truncation(None);
        }
        let special = inner.get_post_processor().map_or(0, |processor| processor.added_tokens(false) as u64);
        Tokenizer { inner, chat: None, approximate, around: 0, special, pool: OnceLock::new() }
    }

    /// The same for prompts that are not sent as messages: without its chat template, and with the special tokens that a
    /// server adds to plain text.
    pub fn for_plain_text(self) -> Tokenizer {
        Tokenizer { chat: None, around: self.special, ..self }
    }

    /// The same as the own tokenizer of a model: its counts are exact.
    pub fn of_the_model(self) -> Tokenizer {
        Tokenizer { approximate: false, ..self }
    }

    /// The chat template, where the tokenizer came with one.
    pub fn chat_template(&self) -> Option<&ChatTemplate> {
        self.chat.as_ref()
    }

    /// Tokens of `text`, special tokens not added. None where the tokenizer refuses the text, which [`Tokenizer::load`]
    /// makes unlikely by a probe.
    pub fn count(&self, text: &str) -> Option<u64> {
        self.inner.encode_fast(text, false).ok().map(|encoding| encoding.len() as u64)
    }

    /// Tokens of a prompt: of `text`, and the special ones that a server puts around it.
    pub fn count_prompt(&self, text: &str) -> Option<u64> {
        self.count(text).map(|tokens| tokens + self.around)
    }

    /// Tokens of a conversation as the model reads it: the chat template applied, which brings its own special tokens.
    /// Without a template, of the contents, a line each. None where the template or the tokenizer refuses it.
    pub fn count_messages(&self, messages: &[Value]) -> Option<u64> {
        self.count_prompt(&self.chat(messages, None).ok()?)
    }

    /// What the model reads for these messages and the request's `tools`; without a template the contents, a line each.
    ///
    /// # Errors
    /// [`TokenError::Refused`] with the template's words.
    pub fn chat(&self, messages: &[Value], tools: Option<&Value>) -> Result<String, TokenError> {
        match &self.chat {
            Some(template) => template.render(messages, tools).map_err(|reason| TokenError::Refused { reason }),
            None => Ok(messages.iter().map(text_of).collect::<Vec<_>>().join("\n")),
        }
    }

    /// Whether this is the stand-in and not the model's own tokenizer.
    pub fn approximate(&self) -> bool {
        self.approximate
    }
}

#[cfg(test)]
mod tests {
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
        assert!(text(dir.path()).starts_with(&format!("{} holds no tokenizer.json", dir.path().display())));
        assert!(text(&file).starts_with(&format!("{} is not a tokenizer.json: ", file.display())));
        let gone = dir.path().join("gone.json");
        assert!(text(&gone).starts_with(&format!("cannot read the tokenizer {}: No such file", gone.display())));
    }

    #[test]
    fn a_vocabulary_with_holes_is_refused_at_load() {
        let (_dir, file) = saved("tokenizer.json", &word_level("[MISSING]", "null"));
        assert!(matches!(Tokenizer::load(&file), Err(TokenError::Partial { .. })));
    }
}
