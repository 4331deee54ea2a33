//! Tokenizers that lie inside a GGUF file: byte-level BPE as a vocabulary, merges and the name of a way to split text.

use super::chat::ChatTemplate;
use super::{TokenError, Tokenizer};
use serde_json::{Map, Value, json};
use std::path::Path;

/// What a GGUF file tells of its tokenizer.
#[derive(Clone, Debug, Default)]
pub struct Embedded {
    /// Its kind: `gpt2` is byte-level BPE, the only one that is built.
    pub kind: String,
    /// How text is split before: `qwen2`, `llama-bpe`, `gpt-2`.
    pub split: String,
    /// Tokens, by id.
    pub tokens: Vec<String>,
    /// What each token is: 3 a control token, 4 one that was added.
    pub types: Vec<u64>,
    /// Pairs that are merged, a blank between, best first.
    pub merges: Vec<String>,
    /// The token that begins a text.
    pub bos: Option<u32>,
    /// The token that ends one.
    pub eos: Option<u32>,
    /// Whether plain text gets the first of them; None: not told.
    pub adds_bos: Option<bool>,
    /// The chat template.
    pub template: Option<String>,
}

/// As the tokenizer.json files of these models have them.
const QWEN: &str =
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const LLAMA: &str =
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// A control token; one that was added by hand.
const CONTROL: u64 = 3;
const ADDED: u64 = 4;

impl Embedded {
    /// The same as the contents of a tokenizer.json.
    fn json(&self) -> Result<Value, String> {
        if self.kind != "gpt2" {
            return Err(format!("it is of the kind `{}`, and only `gpt2` (byte-level BPE) is built from such a file", self.kind));
        }
        let bytes =
            |regex: bool| json!({ "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": regex });
        let split = |regex: &str| {
            let first = json!({ "type": "Split", "pattern": { "Regex": regex }, "behavior": "Isolated", "invert": false });
            json!({ "type": "Sequence", "pretokenizers": [first, bytes(false)] })
        };
        let (normalizer, pre) = match self.split.as_str() {
            "qwen2" => (json!({ "type": "NFC" }), split(QWEN)),
            "llama-bpe" => (Value::Null, split(LLAMA)),
            "gpt-2" => (Value::Null, bytes(true)),
            other => return Err(format!("it splits text as `{other}`; `qwen2`, `llama-bpe` and `gpt-2` are known")),
        };
        let merges: Option<Vec<(&str, &str)>> = self.merges.iter().map(|merge| merge.split_once(' ')).collect();
        let merges = merges.ok_or("a merge is not two tokens with a blank between")?;
        let vocab: Map<String, Value> = self.tokens.iter().zip(0u32..).map(|(token, id)| (token.clone(), id.into())).collect();
        let kinds = self.types.iter().copied().chain(std::iter::repeat(0));
        let apart = self.tokens.iter().zip(kinds).zip(0u32..).filter(|((_, kind), _)| matches!(*kind, CONTROL | ADDED));
        let added: Vec<Value> = apart
            .map(|((token, kind), id)| {
                json!({ "id": id, "content": token, "special": kind == CONTROL, "single_word": false, "lstrip": false,
                    "rstrip": false, "normalized": false })
            })
            .collect();
        Ok(json!({
            "version": "1.0", "truncation": null, "padding": null, "added_tokens": added, "normalizer": normalizer,
            "pre_tokenizer": pre, "post_processor": self.around(), "decoder": bytes(true),
            "model": { "type": "BPE", "vocab": vocab, "merges": merges, "ignore_merges": self.split == "llama-bpe" },
        }))
    }

    /// What puts the first token before plain text.
    fn around(&self) -> Value {
        let name = self.bos.and_then(|id| Some((id, self.tokens.get(id as usize)?)));
        match name.filter(|_| self.adds_bos.unwrap_or(self.split == "llama-bpe")) {
            None => Value::Null,
            Some((id, name)) => {
                let (first, text) =
                    (json!({ "SpecialToken": { "id": name, "type_id": 0 } }), json!({ "Sequence": { "id": "A", "type_id": 0 } }));
                let second = json!({ "Sequence": { "id": "B", "type_id": 0 } });
                json!({ "type": "TemplateProcessing", "single": [first, text], "pair": [first, text, second],
                    "special_tokens": { name: { "id": name, "ids": [id], "tokens": [name] } } })
            }
        }
    }

    /// Names of the tokens that the chat template may speak of.
    fn named(&self) -> Map<String, Value> {
        let names = [("bos_token", self.bos), ("eos_token", self.eos)];
        let known =
            names.into_iter().filter_map(|(name, id)| Some((name.to_owned(), self.tokens.get(id? as usize)?.clone().into())));
        known.collect()
    }
}

impl Tokenizer {
    /// The tokenizer of the GGUF file `path`.
    ///
    /// # Errors
    /// [`TokenError::Embedded`] where it is of a kind that is not built, [`TokenError::Template`] for its chat template.
    pub fn embedded(path: &Path, told: &Embedded) -> Result<Tokenizer, TokenError> {
        let json = told.json().map_err(|reason| TokenError::Embedded { path: path.to_owned(), reason })?;
        let tokenizer = Tokenizer::parsed(path, json.to_string().as_bytes())?;
        let template = told.template.as_ref().map(|source| ChatTemplate::new(source, &told.named())).transpose();
        let chat = template.map_err(|reason| TokenError::Template { path: path.to_owned(), reason })?;
        Ok(Tokenizer { chat, ..tokenizer })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The stand-in as a GGUF file would bring it, with two tokens more.
    fn told(split: &str) -> Embedded {
        let inner = super::super::builtin::tokenizer();
        let whole: Value = serde_json::from_str(&inner.to_string(false).unwrap()).unwrap();
        let merges = whole["model"]["merges"].as_array().unwrap();
        let merges = merges.iter().map(|pair| format!("{} {}", pair[0].as_str().unwrap(), pair[1].as_str().unwrap())).collect();
        let mut tokens: Vec<String> = (0..8192).map(|id| inner.id_to_token(id).unwrap()).collect();
        tokens.extend(["<s>".to_owned(), "<end>".to_owned()]);
        let types = (0..8194).map(|id| if id < 8192 { 1 } else { 3 }).collect();
        let template =
            Some("{{ bos_token }}{% for message in messages %}{{ message.content }}{{ eos_token }}{% endfor %}".into());
        let (bos, eos) = (Some(8192), Some(8193));
        Embedded { kind: "gpt2".into(), split: split.into(), tokens, types, merges, bos, eos, adds_bos: None, template }
    }

    #[test]
    fn it_reads_as_the_file_that_it_was_made_of() {
        let path = Path::new("m.gguf");
        let (gpt, builtin) = (Tokenizer::embedded(path, &told("gpt-2")).unwrap(), Tokenizer::builtin());
        let text = "What would you cook in 1984,  on a rainy\n evening? naïve 中文 🙂";
        assert_eq!(gpt.encode(text, true), builtin.encode(text, true));
        assert_eq!(gpt.decode(&gpt.encode(text, false).unwrap()).unwrap(), text);
        let hi = builtin.encode("hi", false).unwrap();
        assert_eq!(gpt.encode("<s>hi<end>", true).unwrap(), [&[8192], &hi[..], &[8193]].concat());
        assert_eq!(gpt.decode(&[&[8192], &hi[..], &[8193]].concat()).unwrap(), "hi");
        let chat = gpt.chat(&[json!({ "role": "user", "content": "hi" })], None).unwrap();
        assert_eq!(chat, "<s>hi<end>");
    }

    #[test]
    fn families_split_numbers_each_in_its_way() {
        let count = |split: &str| Tokenizer::embedded(Path::new("m.gguf"), &told(split)).unwrap().encode("1984", true).unwrap();
        let builtin = Tokenizer::builtin();
        let ids = |parts: &[&str]| parts.iter().flat_map(|part| builtin.encode(part, false).unwrap()).collect::<Vec<_>>();
        assert_eq!(count("qwen2"), ids(&["1", "9", "8", "4"]));
        assert_eq!(count("llama-bpe"), [vec![8192], ids(&["198", "4"])].concat());
    }

    #[test]
    fn other_kinds_are_refused_with_what_to_do() {
        let text = |told: &Embedded| Tokenizer::embedded(Path::new("m.gguf"), told).unwrap_err().to_string();
        let piece = Embedded { kind: "llama".into(), ..told("gpt-2") };
        assert_eq!(
            text(&piece),
            "the tokenizer inside m.gguf cannot be used: it is of the kind `llama`, and only `gpt2` (byte-level BPE) is built from \
             such a file; put the model's tokenizer.json beside it"
        );
        assert!(text(&told("tekken")).contains("it splits text as `tekken`; `qwen2`, `llama-bpe` and `gpt-2` are known"));
    }
}
