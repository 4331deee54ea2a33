//! What the metadata of a GGUF file tell.

use super::config::{Bias, Config, family};
use super::rope::Scaling;
use super::unsupported::{scaling_reason, window_reason};
use super::weights::{Tally, timed};
use crate::error::LocalError;
use candle_core::Device;
use candle_core::quantized::gguf_file::{Content, Value};
use llmscen_datasets::token::{Embedded, TemplateSource, TokenError, Tokenizer};
use std::fs::File;
use std::io::BufReader;
use std::path::Path;

/// A file whose header was read.
pub struct Header<'a> {
    path: &'a Path,
    /// The rest of it.
    pub file: BufReader<File>,
    /// Metadata, and where the tensors lie.
    pub content: Content,
}

impl Header<'_> {
    /// Opens a file.
    ///
    /// # Errors
    /// It is not there, or not GGUF.
    pub fn open<'a>(path: &'a Path, tally: &mut Tally) -> Result<Header<'a>, LocalError> {
        timed(&mut tally.read, || {
            let file = File::open(path).map_err(|source| LocalError::Read { path: path.to_owned(), source })?;
            let mut file = BufReader::new(file);
            let malformed = |error| LocalError::Malformed {
                path: path.to_owned(),
                reason: format!("it is not a GGUF file: {}", super::first_line(&error)),
            };
            let content = Content::read(&mut file).map_err(malformed)?;
            Ok(Header { path, file, content })
        })
    }

    fn wrong(&self, key: &str, reason: &str) -> LocalError {
        LocalError::Key { path: self.path.to_owned(), key: key.to_owned(), reason: reason.to_owned() }
    }

    fn get(&self, key: &str) -> Option<&Value> {
        self.content.metadata.get(key)
    }

    fn text(&self, key: &str) -> Option<String> {
        self.get(key)?.to_string().ok().cloned()
    }

    fn whole(&self, key: &str) -> Option<u64> {
        self.get(key).and_then(whole)
    }

    fn count(&self, key: &str) -> Result<usize, LocalError> {
        let count = self.whole(key).and_then(|count| usize::try_from(count).ok()).filter(|count| *count > 0);
        count.ok_or_else(|| self.wrong(key, "is missing, or not a whole number above 0"))
    }

    fn number(&self, key: &str) -> Option<f64> {
        let value = self.get(key)?;
        value.to_f32().map(f64::from).or_else(|_| value.to_f64()).ok()
    }

    fn has(&self, tensor: &str) -> bool {
        self.content.tensor_infos.contains_key(tensor)
    }

    fn list<T>(&self, key: &str, one: impl Fn(&Value) -> Option<T>) -> Vec<T> {
        self.get(key).and_then(|value| value.to_vec().ok()).into_iter().flatten().filter_map(one).collect()
    }

    fn token(&self, key: &str) -> Option<u32> {
        self.whole(key).and_then(|id| u32::try_from(id).ok())
    }

    /// The model's sizes and choices.
    ///
    /// # Errors
    /// Another architecture, or a key that is missing.
    pub fn config(&mut self) -> Result<Config, LocalError> {
        let named = self.text("general.architecture").ok_or_else(|| self.wrong("general.architecture", "is missing"))?;
        let architecture = family(self.path, &named)?;
        let key = |end: &str| format!("{architecture}.{end}");
        let context = self.count(&key("context_length"))?;
        let window = key("attention.sliding_window");
        if let Some(tokens) = self.whole(&window)
            && let Some(reason) = window_reason(tokens, context as u64)
        {
            return Err(self.wrong(&window, &reason));
        }
        let scaling = self.scaling(&key("rope.scaling"))?;
        let (hidden, heads) = (self.count(&key("embedding_length"))?, self.count(&key("attention.head_count"))?);
        let optional = |end: &str, other: usize| if self.get(&key(end)).is_some() { self.count(&key(end)) } else { Ok(other) };
        let eps = key("attention.layer_norm_rms_epsilon");
        let embedding = self.content.tensor_infos.get("token_embd.weight").and_then(|info| info.shape.dims().first().copied());
        let config = Config {
            architecture,
            vocabulary: embedding.ok_or_else(|| self.wrong("token_embd.weight", "is missing"))?,
            hidden,
            intermediate: self.count(&key("feed_forward_length"))?,
            layers: self.count(&key("block_count"))?,
            heads,
            kv_heads: optional("attention.head_count_kv", heads)?,
            head_dim: optional("attention.key_length", hidden / heads)?,
            eps: self.number(&eps).ok_or_else(|| self.wrong(&eps, "is missing, or not a number"))?,
            theta: self.number(&key("rope.freq_base")).unwrap_or(10_000.0),
            scaling,
            limit: context,
            tied: !self.has("output.weight"),
            bias: Bias {
                qkv: self.has("blk.0.attn_q.bias"),
                out: self.has("blk.0.attn_output.bias"),
                mlp: self.has("blk.0.ffn_up.bias"),
            },
            qk_norm: self.has("blk.0.attn_q_norm.weight"),
            dtype: None,
            eos: ["eos", "eot", "eom"].iter().filter_map(|name| self.token(&format!("tokenizer.ggml.{name}_token_id"))).collect(),
        };
        let config = match self.factors()? {
            Some(factors) => Config { scaling: Scaling::Each(factors), ..config },
            None => config,
        };
        config.checked(self.path)
    }

    fn scaling(&self, stem: &str) -> Result<Scaling, LocalError> {
        let key = format!("{stem}.type");
        match self.text(&key).as_deref() {
            None | Some("none") => Ok(Scaling::None),
            Some("linear") => {
                let factor =
                    self.number(&format!("{stem}.factor")).ok_or_else(|| self.wrong(&format!("{stem}.factor"), "is missing"))?;
                Ok(Scaling::Linear { factor })
            }
            Some(other) => Err(self.wrong(&key, &scaling_reason(other, "`none` and `linear`"))),
        }
    }

    /// What the file says that each rotary frequency is divided by.
    fn factors(&mut self) -> Result<Option<Vec<f32>>, LocalError> {
        if !self.has("rope_freqs.weight") {
            return Ok(None);
        }
        let read = self.content.tensor(&mut self.file, "rope_freqs.weight", &Device::Cpu);
        Ok(Some(read.and_then(|tensor| tensor.dequantize(&Device::Cpu)?.flatten_all()?.to_vec1())?))
    }

    /// Its tokenizer, and where the chat template comes from.
    ///
    /// # Errors
    /// As [`Tokenizer::embedded`].
    pub fn tokenizer(&self) -> Result<(Tokenizer, TemplateSource), TokenError> {
        let text = |value: &Value| value.to_string().ok().cloned();
        let told = Embedded {
            kind: self.text("tokenizer.ggml.model").unwrap_or_default(),
            split: self.text("tokenizer.ggml.pre").unwrap_or_default(),
            tokens: self.list("tokenizer.ggml.tokens", text),
            types: self.list("tokenizer.ggml.token_type", whole),
            merges: self.list("tokenizer.ggml.merges", text),
            bos: self.token("tokenizer.ggml.bos_token_id"),
            eos: self.token("tokenizer.ggml.eos_token_id"),
            adds_bos: self.get("tokenizer.ggml.add_bos_token").and_then(|value| value.to_bool().ok()),
            template: self.text("tokenizer.chat_template"),
        };
        Tokenizer::embedded(self.path, &told)
    }
}

fn whole(value: &Value) -> Option<u64> {
    value.to_u64().ok().or_else(|| match value {
        Value::I8(each) => u64::try_from(*each).ok(),
        Value::I16(each) => u64::try_from(*each).ok(),
        Value::I32(each) => u64::try_from(*each).ok(),
        Value::I64(each) => u64::try_from(*each).ok(),
        _ => None,
    })
}
