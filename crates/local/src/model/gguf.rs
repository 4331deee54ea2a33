//! What the metadata of a GGUF file tell.

use crate::error::LocalError;
use crate::model::config::{Bias, Config, family, scaling_reason, window_reason};
use crate::model::first_line;
use crate::model::linear::{Matrix, Recoded};
use crate::model::rope::Scaling;
use crate::model::weights::{LoadTally, Weights, timed};
use candle_core::quantized::gguf_file::{Content, Value};
use candle_core::quantized::{GgmlDType, QTensor};
use candle_core::{DType, Device, Tensor};
use llmscen_datasets::token::{Embedded, TemplateSource, TokenError, Tokenizer};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};

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
    pub fn open<'a>(path: &'a Path, tally: &mut LoadTally) -> Result<Header<'a>, LocalError> {
        timed(&mut tally.read, || {
            let file = File::open(path).map_err(|source| LocalError::Read { path: path.to_owned(), source })?;
            let mut file = BufReader::new(file);
            let malformed = |error| LocalError::Malformed {
                path: path.to_owned(),
                reason: format!("it is not a GGUF file: {}", crate::model::first_line(&error)),
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
            pre_tokenizer: self.text("tokenizer.ggml.pre").unwrap_or_default(),
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

/// The weights of a file. States are computed in 32 bits.
pub struct Gguf {
    path: PathBuf,
    file: BufReader<File>,
    content: Content,
    device: Device,
    /// Numbers of each kind of block.
    kinds: BTreeMap<String, u64>,
    /// What it took.
    pub tally: LoadTally,
}

/// The parts of a layer, as each format names them.
const PARTS: [(&str, &str); 11] = [
    ("input_layernorm", "attn_norm"),
    ("post_attention_layernorm", "ffn_norm"),
    ("self_attn.q_proj", "attn_q"),
    ("self_attn.k_proj", "attn_k"),
    ("self_attn.v_proj", "attn_v"),
    ("self_attn.o_proj", "attn_output"),
    ("self_attn.q_norm", "attn_q_norm"),
    ("self_attn.k_norm", "attn_k_norm"),
    ("mlp.gate_proj", "ffn_gate"),
    ("mlp.up_proj", "ffn_up"),
    ("mlp.down_proj", "ffn_down"),
];

/// What GGUF calls a tensor.
fn translated(name: &str) -> String {
    let (stem, end) = name.rsplit_once('.').unwrap_or((name, ""));
    let stem = match stem {
        "model.embed_tokens" => "token_embd".to_owned(),
        "model.norm" => "output_norm".to_owned(),
        "lm_head" => "output".to_owned(),
        layered => {
            let parted = layered.strip_prefix("model.layers.").and_then(|rest| rest.split_once('.'));
            let found = parted.and_then(|(at, part)| Some((at, PARTS.iter().find(|(theirs, _)| *theirs == part)?.1)));
            found.map_or_else(|| layered.to_owned(), |(at, own)| format!("blk.{at}.{own}"))
        }
    };
    format!("{stem}.{end}")
}

impl Gguf {
    /// A file whose header was read.
    pub fn new(path: &Path, file: BufReader<File>, content: Content, device: Device, tally: LoadTally) -> Gguf {
        Gguf { path: path.to_owned(), file, content, device, kinds: BTreeMap::new(), tally }
    }

    /// The kind of block that most of its numbers are in.
    pub fn kind(&self) -> String {
        let most = self.kinds.iter().max_by_key(|(_, count)| **count);
        most.map_or_else(String::new, |(kind, _)| kind.clone())
    }

    /// A tensor as it lies in the file; None where there is none of that name.
    fn raw(&mut self, name: &str, shape: &[usize]) -> Result<QTensor, LocalError> {
        let wrong =
            |reason: String| LocalError::Malformed { path: self.path.clone(), reason: format!("the tensor `{name}` {reason}") };
        let Some(info) = self.content.tensor_infos.get(name) else { return Err(wrong("is missing".into())) };
        if info.shape.dims() != shape {
            return Err(wrong(format!("is {:?} where the metadata ask for {shape:?}", info.shape.dims())));
        }
        let (content, file, device) = (&self.content, &mut self.file, &self.device);
        let read = timed(&mut self.tally.read, || content.tensor(file, name, device));
        let tensor = read.map_err(|error| wrong(format!("cannot be read: {}", first_line(&error))))?;
        *self.kinds.entry(kind(tensor.dtype())).or_default() += tensor.shape().elem_count() as u64;
        Ok(tensor)
    }

    /// The same as plain numbers of 32 bits.
    fn plain(&mut self, tensor: &QTensor) -> Result<Tensor, LocalError> {
        let device = self.device.clone();
        let tensor = timed(&mut self.tally.convert, || tensor.dequantize(&device))?;
        Ok(self.tally.placed(&tensor, DType::F32, &device)?)
    }
}

fn kind(dtype: GgmlDType) -> String {
    format!("{dtype:?}").to_lowercase().replace('k', "_k")
}

impl Weights for Gguf {
    fn matrix(&mut self, name: &str, shape: &[usize; 2]) -> Result<Matrix, LocalError> {
        let tensor = self.raw(&translated(&format!("{name}.weight")), shape)?;
        if matches!(tensor.dtype(), GgmlDType::F32 | GgmlDType::F16 | GgmlDType::BF16) {
            return Ok(Matrix::Dense(self.plain(&tensor)?));
        }
        self.tally.parameters += tensor.shape().elem_count() as u64;
        let recoded = timed(&mut self.tally.convert, || Recoded::new(tensor))?;
        self.tally.bytes += recoded.bytes();
        Ok(Matrix::Quantised(recoded))
    }

    fn vector(&mut self, name: &str, width: usize) -> Result<Tensor, LocalError> {
        let tensor = self.raw(&translated(name), &[width])?;
        self.plain(&tensor)
    }

    fn computes(&self) -> (DType, Device) {
        (DType::F32, self.device.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_format_has_its_names() {
        let names = ["model.embed_tokens.weight", "lm_head.weight", "model.norm.weight", "model.layers.3.mlp.up_proj.weight"];
        assert_eq!(names.map(translated), ["token_embd.weight", "output.weight", "output_norm.weight", "blk.3.ffn_up.weight"]);
        assert_eq!(translated("model.layers.11.self_attn.k_proj.bias"), "blk.11.attn_k.bias");
    }

    #[test]
    fn kinds_are_named_as_their_makers_do() {
        assert_eq!([GgmlDType::Q4K, GgmlDType::Q8_0, GgmlDType::F16].map(kind), ["q4_k", "q8_0", "f16"]);
    }
}
