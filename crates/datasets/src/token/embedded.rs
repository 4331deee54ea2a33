//! Tokenizers in GGUF files: byte-level BPE as a vocabulary, merges and the name of a pre-tokenizer.

use super::chat::ChatTemplate;
use super::config::{TOKENIZER, read_chat_template};
use super::pre_tokenizer::{self, PreTokenizer};
use super::{TokenError, Tokenizer};
use serde_json::{Map, Value, json};
use std::path::{Path, PathBuf};

/// The tokenizer data of a GGUF file.
#[derive(Clone, Debug, Default)]
pub struct Embedded {
    /// Kind of the tokenizer; only `gpt2` (byte-level BPE) is supported.
    pub kind: String,
    /// Name of the pre-tokenizer, such as `qwen2`, `llama-bpe` or `gpt-2`.
    pub pre_tokenizer: String,
    /// Tokens, by id.
    pub tokens: Vec<String>,
    /// Type of each token: 3 is a control token, 4 a user-defined one.
    pub types: Vec<u64>,
    /// Merged pairs, separated by a blank, best first.
    pub merges: Vec<String>,
    /// The token at the beginning of a text.
    pub bos: Option<u32>,
    /// The token at the end of a text.
    pub eos: Option<u32>,
    /// Whether plain text begins with the BOS token; None: not in the file.
    pub adds_bos: Option<bool>,
    /// The chat template.
    pub template: Option<String>,
}

/// Token types.
const CONTROL: u64 = 3;
const USER_DEFINED: u64 = 4;

impl Embedded {
    /// The content of an equivalent tokenizer.json.
    fn to_json(&self) -> Result<Value, String> {
        if self.kind != "gpt2" {
            return Err(format!(
                "its kind is `{}`; only `gpt2` (byte-level BPE) is supported",
                self.kind
            ));
        }
        let pre = self.find_pre_tokenizer()?;
        let bytes = json!({ "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false,
            "use_regex": false });
        let split = |regex: &&str| {
            json!({ "type": "Split", "pattern": { "Regex": regex },
            "behavior": "Isolated", "invert": false })
        };
        let pieces: Vec<Value> = pre
            .patterns
            .iter()
            .map(split)
            .chain([bytes.clone()])
            .collect();
        let normalizer = if pre.composed {
            json!({ "type": "NFC" })
        } else {
            Value::Null
        };
        let merges: Option<Vec<(&str, &str)>> = self
            .merges
            .iter()
            .map(|merge| merge.split_once(' '))
            .collect();
        let merges = merges.ok_or("a merge is not two tokens separated by a blank")?;
        let vocab: Map<String, Value> = self
            .tokens
            .iter()
            .zip(0u32..)
            .map(|(token, id)| (token.clone(), id.into()))
            .collect();
        let kinds = self.types.iter().copied().chain(std::iter::repeat(0));
        let special = self
            .tokens
            .iter()
            .zip(kinds)
            .zip(0u32..)
            .filter(|((_, kind), _)| matches!(*kind, CONTROL | USER_DEFINED));
        let added: Vec<Value> = special
            .map(|((token, kind), id)| {
                json!({ "id": id, "content": token, "special": kind == CONTROL, "single_word": false, "lstrip": false,
                    "rstrip": false, "normalized": false })
            })
            .collect();
        Ok(json!({
            "version": "1.0", "truncation": null, "padding": null, "added_tokens": added, "normalizer": normalizer,
            "pre_tokenizer": { "type": "Sequence", "pretokenizers": pieces }, "post_processor": null, "decoder": bytes,
            "model": { "type": "BPE", "vocab": vocab, "merges": merges, "ignore_merges": pre.ignore_merges },
        }))
    }

    fn find_pre_tokenizer(&self) -> Result<&'static PreTokenizer, String> {
        let supported = || format!("supported are {}", pre_tokenizer::names().join(", "));
        match self.pre_tokenizer.as_str() {
            "" => Err(format!(
                "the file does not name its pre-tokenizer; {}",
                supported()
            )),
            name => pre_tokenizer::find(name).ok_or_else(|| {
                format!(
                    "the pre-tokenizer `{name}` is not supported; {}",
                    supported()
                )
            }),
        }
    }

    /// The special tokens that the chat template may use, by name.
    fn special_tokens(&self) -> Map<String, Value> {
        let names = [("bos_token", self.bos), ("eos_token", self.eos)];
        let known = names.into_iter().filter_map(|(name, id)| {
            Some((
                name.to_owned(),
                self.tokens.get(id? as usize)?.clone().into(),
            ))
        });
        known.collect()
    }
}

impl Tokenizer {
    /// The tokenizer of the GGUF file `path`, and where its chat template comes from.
    ///
    /// The tokenizer in the file is used if its kind is supported, otherwise a tokenizer.json next to the file. The
    /// chat template in the file is used if it has one, otherwise the template next to it. The file also defines
    /// whether plain text begins with the BOS token.
    ///
    /// # Errors
    /// [`TokenError::Embedded`] where its kind is not supported and there is no tokenizer.json next to it,
    /// [`TokenError::Template`] for its chat template.
    pub fn embedded(
        path: &Path,
        data: &Embedded,
    ) -> Result<(Tokenizer, TemplateSource), TokenError> {
        let tokenizer_json = path.with_file_name(TOKENIZER);
        let (tokenizer, adds_bos) = match data.to_json() {
            Ok(json) => {
                let default =
                    pre_tokenizer::find(&data.pre_tokenizer).is_some_and(|pre| pre.adds_bos);
                (
                    Tokenizer::parse(path, json.to_string().as_bytes())?,
                    Some(data.adds_bos.unwrap_or(default)),
                )
            }
            Err(_) if tokenizer_json.exists() => (Tokenizer::load(&tokenizer_json)?, data.adds_bos),
            Err(reason) => {
                return Err(TokenError::Embedded {
                    path: path.to_owned(),
                    reason,
                });
            }
        };
        let (chat, source) = match &data.template {
            Some(source) => {
                let refused = |reason| TokenError::Template {
                    path: path.to_owned(),
                    reason,
                };
                (
                    Some(ChatTemplate::new(source, &data.special_tokens()).map_err(refused)?),
                    TemplateSource::Gguf,
                )
            }
            None => match read_chat_template(&tokenizer_json)? {
                Some((template, file)) => (Some(template), TemplateSource::File(file)),
                None => (None, TemplateSource::None),
            },
        };
        Ok((
            Tokenizer {
                chat,
                ..tokenizer.with_bos(adds_bos, data.bos)
            },
            source,
        ))
    }
}

/// The source of a chat template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TemplateSource {
    /// The metadata of the GGUF file.
    Gguf,
    /// This file.
    File(PathBuf),
    /// No chat template.
    None,
}

#[cfg(test)]
mod tests;
