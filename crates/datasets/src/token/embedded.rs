//! Tokenizers inside a GGUF file: byte-level BPE as a vocabulary, merges and the name of a way to split text.

use super::chat::ChatTemplate;
use super::config::{TOKENIZER, chat_template};
use super::pre_tokenizer::{self, PreTokenizer};
use super::{TokenError, Tokenizer};
use serde_json::{Map, Value, json};
use std::path::{Path, PathBuf};

/// What a GGUF file contains of its tokenizer.
#[derive(Clone, Debug, Default)]
pub struct Embedded {
    /// Its kind: `gpt2` is byte-level BPE, the only one that is built.
    pub kind: String,
    /// Name of its pre-tokenizer: `qwen2`, `llama-bpe`, `gpt-2`.
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
    /// Whether plain text gets the first of them; None: the file does not say.
    pub adds_bos: Option<bool>,
    /// The chat template.
    pub template: Option<String>,
}

/// A control token; one that was added by hand.
const CONTROL: u64 = 3;
const ADDED: u64 = 4;

impl Embedded {
    /// The same as the contents of a tokenizer.json.
    fn json(&self) -> Result<Value, String> {
        if self.kind != "gpt2" {
            return Err(format!("it is of the kind `{}`, and only `gpt2` (byte-level BPE) is built from such a file", self.kind));
        }
        let pre = self.pre_tokenizer()?;
        let bytes = json!({ "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": false });
        let split =
            |regex: &&str| json!({ "type": "Split", "pattern": { "Regex": regex }, "behavior": "Isolated", "invert": false });
        let pieces: Vec<Value> = pre.patterns.iter().map(split).chain([bytes.clone()]).collect();
        let normalizer = if pre.composed { json!({ "type": "NFC" }) } else { Value::Null };
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
            "pre_tokenizer": { "type": "Sequence", "pretokenizers": pieces }, "post_processor": null, "decoder": bytes,
            "model": { "type": "BPE", "vocab": vocab, "merges": merges, "ignore_merges": pre.ignore_merges },
        }))
    }

    fn pre_tokenizer(&self) -> Result<&'static PreTokenizer, String> {
        let supported = || format!("supported are {}", pre_tokenizer::names().join(", "));
        match self.split.as_str() {
            "" => Err(format!("the file does not name its pre-tokenizer; {}", supported())),
            name => {
                pre_tokenizer::find(name).ok_or_else(|| format!("the pre-tokenizer `{name}` is not supported; {}", supported()))
            }
        }
    }

    /// Names of the tokens that the chat template may use.
    fn named(&self) -> Map<String, Value> {
        let names = [("bos_token", self.bos), ("eos_token", self.eos)];
        let known =
            names.into_iter().filter_map(|(name, id)| Some((name.to_owned(), self.tokens.get(id? as usize)?.clone().into())));
        known.collect()
    }
}

impl Tokenizer {
    /// The tokenizer of the GGUF file `path`, and where its chat template comes from.
    ///
    /// The tokenizer in the file is used where its kind is supported, else a tokenizer.json beside the file. The chat template
    /// in the file is used where it has one, else the template beside it. The file also says whether plain text begins with the
    /// BOS token.
    ///
    /// # Errors
    /// [`TokenError::Embedded`] where its kind is not supported and no tokenizer.json is beside it, [`TokenError::Template`] for
    /// its chat template.
    pub fn embedded(path: &Path, told: &Embedded) -> Result<(Tokenizer, TemplateSource), TokenError> {
        let beside = path.with_file_name(TOKENIZER);
        let (tokenizer, adds_bos) = match told.json() {
            Ok(json) => {
                let default = pre_tokenizer::find(&told.split).is_some_and(|pre| pre.adds_bos);
                (Tokenizer::parsed(path, json.to_string().as_bytes())?, Some(told.adds_bos.unwrap_or(default)))
            }
            Err(_) if beside.exists() => (Tokenizer::load(&beside)?, told.adds_bos),
            Err(reason) => return Err(TokenError::Embedded { path: path.to_owned(), reason }),
        };
        let (chat, source) = match &told.template {
            Some(source) => {
                let refused = |reason| TokenError::Template { path: path.to_owned(), reason };
                (Some(ChatTemplate::new(source, &told.named()).map_err(refused)?), TemplateSource::Gguf)
            }
            None => match chat_template(&beside)? {
                Some((template, file)) => (Some(template), TemplateSource::File(file)),
                None => (None, TemplateSource::None),
            },
        };
        Ok((Tokenizer { chat, ..tokenizer.with_bos(adds_bos, told.bos) }, source))
    }
}

/// Where a chat template comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TemplateSource {
    /// The metadata of the GGUF file.
    Gguf,
    /// This file.
    File(PathBuf),
    /// There is none.
    None,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The stand-in as a GGUF file would contain it, with two tokens more.
    fn told(split: &str) -> Embedded {
        let inner = super::super::builtin_tokenizer();
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
        let (gpt, builtin) = (Tokenizer::embedded(path, &told("gpt-2")).unwrap().0, Tokenizer::builtin());
        let text = "What would you cook in 1984,  on a rainy\n evening? naïve 中文 🙂";
        assert_eq!(gpt.encode(text, true), builtin.encode(text, true));
        assert_eq!(gpt.decode(&gpt.encode(text, false).unwrap()).unwrap(), text);
        let hi = builtin.encode("hi", false).unwrap();
        assert_eq!(gpt.encode("<s>hi<end>", true).unwrap(), [&[8192], &hi[..], &[8193]].concat());
        assert_eq!(gpt.decode(&[&[8192], &hi[..], &[8193]].concat()).unwrap(), "hi");
        let chat = gpt.chat(&[json!({ "role": "user", "content": "hi" })], None).unwrap();
        assert_eq!(chat, "<s>hi<end>");
    }

    fn encoded(split: &str, text: &str) -> Vec<u32> {
        Tokenizer::embedded(Path::new("m.gguf"), &told(split)).unwrap().0.encode(text, true).unwrap()
    }

    /// The pieces, each tokenized alone.
    fn ids(pieces: &[&str]) -> Vec<u32> {
        let builtin = Tokenizer::builtin();
        pieces.iter().flat_map(|piece| builtin.encode(piece, false).unwrap()).collect()
    }

    #[test]
    fn families_split_numbers_each_in_its_way() {
        assert_eq!(encoded("qwen2", "1984"), ids(&["1", "9", "8", "4"]));
        assert_eq!(encoded("smollm", "in 1984"), ids(&["in", " ", "1", "9", "8", "4"]));
        assert_eq!(encoded("llama-bpe", "1984"), [vec![8192], ids(&["198", "4"])].concat());
        assert_eq!(encoded("tekken", "1984"), [vec![8192], ids(&["1", "9", "8", "4"])].concat());
        assert_eq!(encoded("deepseek-llm", "1984"), ids(&["1984"]));
        assert_eq!(encoded("dbrx", "1984"), ids(&["198", "4"]), "no BOS unless the file asks for one");
    }

    #[test]
    fn every_pre_tokenizer_keeps_the_text() {
        let text = "I'LL cook 12345 naïve  中文 かな 가나 dishes…\n\n\tfn main() { x+=1; } // ¡no! 🙂  \r\n end ";
        let mut seen: Vec<&[&str]> = Vec::new();
        for name in pre_tokenizer::names() {
            let patterns = pre_tokenizer::find(name).unwrap().patterns;
            if seen.contains(&patterns) {
                continue;
            }
            seen.push(patterns);
            let tokenizer = Tokenizer::embedded(Path::new("m.gguf"), &told(name)).unwrap().0;
            assert_eq!(tokenizer.decode(&tokenizer.encode(text, true).unwrap()).unwrap(), text, "{name}");
        }
        assert!(pre_tokenizer::names().windows(2).all(|pair| pair[0] < pair[1]), "each name is there once");
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
        let unknown = text(&told("afmoe"));
        assert!(unknown.contains("the pre-tokenizer `afmoe` is not supported; supported are a.x-4.0, bailingmoe, "), "{unknown}");
        assert!(unknown.ends_with("; put the model's tokenizer.json beside it"), "{unknown}");
        assert!(text(&told("")).contains("the file does not name its pre-tokenizer"));
    }

    #[test]
    fn the_template_of_the_file_wins_over_the_one_beside_it() {
        let folder = super::super::trained::CHATML.folder("byte-level");
        let path = folder.path().join("m.gguf");
        let message = [json!({ "role": "user", "content": "hi" })];
        let unknown = Embedded { split: "afmoe".into(), ..told("afmoe") };
        let (own, source) = Tokenizer::embedded(&path, &unknown).unwrap();
        assert_eq!((own.chat(&message, None).unwrap().as_str(), source), ("<s>hi<end>", TemplateSource::Gguf));
        let without = Embedded { template: None, ..unknown };
        let (beside, source) = Tokenizer::embedded(&path, &without).unwrap();
        assert!(beside.chat(&message, None).unwrap().contains("<|im_start|>user"), "{:?}", beside.chat(&message, None));
        assert_eq!(source, TemplateSource::File(folder.path().join("tokenizer_config.json")));
        let alone = Tokenizer::embedded(Path::new("m.gguf"), &Embedded { template: None, ..told("gpt-2") }).unwrap();
        assert!(alone.0.chat_template().is_none() && alone.1 == TemplateSource::None);
    }

    #[test]
    fn the_file_says_whether_plain_text_begins_with_bos() {
        let with = |adds_bos: Option<bool>, split: &str| {
            let told = Embedded { adds_bos, ..told(split) };
            Tokenizer::embedded(Path::new("m.gguf"), &told).unwrap().0.encode("hi", true).unwrap()
        };
        let hi = ids(&["hi"]);
        let bos = [vec![8192], hi.clone()].concat();
        assert_eq!((with(None, "gpt-2"), with(Some(true), "gpt-2")), (hi.clone(), bos.clone()));
        assert_eq!((with(None, "llama-bpe"), with(Some(false), "llama-bpe")), (bos, hi));
    }
}
