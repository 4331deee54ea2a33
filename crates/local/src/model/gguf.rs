//! GGUF files: configuration, tokenizer and weights.

use crate::error::LocalError;
use crate::model::config::{Bias, Config, Scaling, family, scaling_reason, window_reason};
use crate::model::first_line;
use crate::model::linear::{Matrix, QuantizedMatrix};
use crate::model::weights::{LoadTally, Weights, timed};
use candle_core::quantized::gguf_file::{Content, Value};
use candle_core::quantized::{GgmlDType, QTensor};
use candle_core::{DType, Device, Tensor};
use llmscen_datasets::token::{Embedded, TemplateSource, TokenError, Tokenizer};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};

/// The header of a file.
pub struct Header<'a> {
    path: &'a Path,
    /// The file after the header.
    pub file: BufReader<File>,
    /// Metadata, and the offsets of the tensors.
    pub content: Content,
}

impl Header<'_> {
    /// Opens a file.
    ///
    /// # Errors
    /// The file cannot be read, or is not GGUF.
    pub fn open<'a>(path: &'a Path, tally: &mut LoadTally) -> Result<Header<'a>, LocalError> {
        timed(&mut tally.read, || {
            let file = File::open(path).map_err(|source| LocalError::Read {
                path: path.to_owned(),
                source,
            })?;
            let mut file = BufReader::new(file);
            let malformed = |error| LocalError::Malformed {
                path: path.to_owned(),
                reason: format!("not a GGUF file: {}", crate::model::first_line(&error)),
            };
            let content = Content::read(&mut file).map_err(malformed)?;
            Ok(Header {
                path,
                file,
                content,
            })
        })
    }

    fn key_error(&self, key: &str, reason: &str) -> LocalError {
        LocalError::Key {
            path: self.path.to_owned(),
            key: key.to_owned(),
            reason: reason.to_owned(),
        }
    }

    fn get(&self, key: &str) -> Option<&Value> {
        self.content.metadata.get(key)
    }

    fn text(&self, key: &str) -> Option<String> {
        self.get(key)?.to_string().ok().cloned()
    }

    fn integer(&self, key: &str) -> Option<u64> {
        self.get(key).and_then(to_integer)
    }

    fn count(&self, key: &str) -> Result<usize, LocalError> {
        let count = self
            .integer(key)
            .and_then(|count| usize::try_from(count).ok())
            .filter(|count| *count > 0);
        count.ok_or_else(|| self.key_error(key, "is missing, or not a whole number above 0"))
    }

    fn number(&self, key: &str) -> Option<f64> {
        let value = self.get(key)?;
        value
            .to_f32()
            .map(f64::from)
            .or_else(|_| value.to_f64())
            .ok()
    }

    fn has(&self, tensor: &str) -> bool {
        self.content.tensor_infos.contains_key(tensor)
    }

    fn list<T>(&self, key: &str, parse: impl Fn(&Value) -> Option<T>) -> Vec<T> {
        self.get(key)
            .and_then(|value| value.to_vec().ok())
            .into_iter()
            .flatten()
            .filter_map(parse)
            .collect()
    }

    fn token(&self, key: &str) -> Option<u32> {
        self.integer(key).and_then(|id| u32::try_from(id).ok())
    }

    /// The configuration of the model.
    ///
    /// # Errors
    /// The architecture is not supported, or a key is missing.
    pub fn config(&mut self) -> Result<Config, LocalError> {
        let named = self
            .text("general.architecture")
            .ok_or_else(|| self.key_error("general.architecture", "is missing"))?;
        let architecture = family(self.path, &named)?;
        let key = |end: &str| format!("{architecture}.{end}");
        let context = self.count(&key("context_length"))?;
        let window = key("attention.sliding_window");
        if let Some(tokens) = self.integer(&window)
            && let Some(reason) = window_reason(tokens, context as u64)
        {
            return Err(self.key_error(&window, &reason));
        }
        let scaling = self.scaling(&key("rope.scaling"))?;
        let hidden = self.count(&key("embedding_length"))?;
        let heads = self.count(&key("attention.head_count"))?;
        let optional = |end: &str, default: usize| {
            if self.get(&key(end)).is_some() {
                self.count(&key(end))
            } else {
                Ok(default)
            }
        };
        let eps = key("attention.layer_norm_rms_epsilon");
        let embedding = self
            .content
            .tensor_infos
            .get("token_embd.weight")
            .and_then(|info| info.shape.dims().first().copied());
        let config = Config {
            architecture,
            vocabulary: embedding
                .ok_or_else(|| self.key_error("token_embd.weight", "is missing"))?,
            hidden,
            intermediate: self.count(&key("feed_forward_length"))?,
            layers: self.count(&key("block_count"))?,
            heads,
            kv_heads: optional("attention.head_count_kv", heads)?,
            head_dim: optional("attention.key_length", hidden / heads)?,
            eps: self
                .number(&eps)
                .ok_or_else(|| self.key_error(&eps, "is missing, or not a number"))?,
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
            eos: ["eos", "eot", "eom"]
                .iter()
                .filter_map(|name| self.token(&format!("tokenizer.ggml.{name}_token_id")))
                .collect(),
        };
        let config = match self.rope_factors()? {
            Some(factors) => Config {
                scaling: Scaling::PerFrequency(factors),
                ..config
            },
            None => config,
        };
        config.validate(self.path)
    }

    fn scaling(&self, stem: &str) -> Result<Scaling, LocalError> {
        let key = format!("{stem}.type");
        match self.text(&key).as_deref() {
            None | Some("none") => Ok(Scaling::None),
            Some("linear") => {
                let factor = self
                    .number(&format!("{stem}.factor"))
                    .ok_or_else(|| self.key_error(&format!("{stem}.factor"), "is missing"))?;
                Ok(Scaling::Linear { factor })
            }
            Some(other) => Err(self.key_error(&key, &scaling_reason(other, "`none` and `linear`"))),
        }
    }

    /// The divisors of the rotary frequencies.
    fn rope_factors(&mut self) -> Result<Option<Vec<f32>>, LocalError> {
        if !self.has("rope_freqs.weight") {
            return Ok(None);
        }
        let read = self
            .content
            .tensor(&mut self.file, "rope_freqs.weight", &Device::Cpu);
        Ok(Some(read.and_then(|tensor| {
            tensor.dequantize(&Device::Cpu)?.flatten_all()?.to_vec1()
        })?))
    }

    /// The tokenizer, and the source of its chat template.
    ///
    /// # Errors
    /// As [`Tokenizer::embedded`].
    pub fn tokenizer(&self) -> Result<(Tokenizer, TemplateSource), TokenError> {
        let text = |value: &Value| value.to_string().ok().cloned();
        let data = Embedded {
            kind: self.text("tokenizer.ggml.model").unwrap_or_default(),
            pre_tokenizer: self.text("tokenizer.ggml.pre").unwrap_or_default(),
            tokens: self.list("tokenizer.ggml.tokens", text),
            types: self.list("tokenizer.ggml.token_type", to_integer),
            merges: self.list("tokenizer.ggml.merges", text),
            bos: self.token("tokenizer.ggml.bos_token_id"),
            eos: self.token("tokenizer.ggml.eos_token_id"),
            adds_bos: self
                .get("tokenizer.ggml.add_bos_token")
                .and_then(|value| value.to_bool().ok()),
            template: self.text("tokenizer.chat_template"),
        };
        Tokenizer::embedded(self.path, &data)
    }
}

fn to_integer(value: &Value) -> Option<u64> {
    value.to_u64().ok().or_else(|| match value {
        Value::I8(each) => u64::try_from(*each).ok(),
        Value::I16(each) => u64::try_from(*each).ok(),
        Value::I32(each) => u64::try_from(*each).ok(),
        Value::I64(each) => u64::try_from(*each).ok(),
        _ => None,
    })
}

/// The weights of a file, computed in f32.
pub struct Gguf {
    path: PathBuf,
    file: BufReader<File>,
    content: Content,
    device: Device,
    /// Number of parameters by block format.
    formats: BTreeMap<String, u64>,
    pub tally: LoadTally,
}

/// The names of the parts of a layer in Hugging Face and GGUF files.
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

/// The GGUF name of a tensor.
fn gguf_name(name: &str) -> String {
    let (stem, end) = name.rsplit_once('.').unwrap_or((name, ""));
    let stem = match stem {
        "model.embed_tokens" => "token_embd".to_owned(),
        "model.norm" => "output_norm".to_owned(),
        "lm_head" => "output".to_owned(),
        layered => {
            let layer_part = layered
                .strip_prefix("model.layers.")
                .and_then(|rest| rest.split_once('.'));
            let found = layer_part.and_then(|(layer, part)| {
                Some((layer, PARTS.iter().find(|(name, _)| *name == part)?.1))
            });
            found.map_or_else(
                || layered.to_owned(),
                |(layer, name)| format!("blk.{layer}.{name}"),
            )
        }
    };
    format!("{stem}.{end}")
}

impl Gguf {
    /// The weights of a file whose header was read.
    pub fn new(
        path: &Path,
        file: BufReader<File>,
        content: Content,
        device: Device,
        tally: LoadTally,
    ) -> Gguf {
        Gguf {
            path: path.to_owned(),
            file,
            content,
            device,
            formats: BTreeMap::new(),
            tally,
        }
    }

    /// The block format of most parameters.
    pub fn main_format(&self) -> String {
        let most = self.formats.iter().max_by_key(|(_, count)| **count);
        most.map_or_else(String::new, |(format, _)| format.clone())
    }

    /// A tensor in the format of the file.
    fn read_tensor(&mut self, name: &str, shape: &[usize]) -> Result<QTensor, LocalError> {
        let error = |reason: String| LocalError::Malformed {
            path: self.path.clone(),
            reason: format!("the tensor `{name}` {reason}"),
        };
        let Some(info) = self.content.tensor_infos.get(name) else {
            return Err(error("is missing".into()));
        };
        if info.shape.dims() != shape {
            return Err(error(format!(
                "is {:?} but the metadata require {shape:?}",
                info.shape.dims()
            )));
        }
        let (content, file, device) = (&self.content, &mut self.file, &self.device);
        let read = timed(&mut self.tally.read, || content.tensor(file, name, device));
        let tensor = read
            .map_err(|read_error| error(format!("cannot be read: {}", first_line(&read_error))))?;
        *self.formats.entry(format_name(tensor.dtype())).or_default() +=
            tensor.shape().elem_count() as u64;
        Ok(tensor)
    }

    /// Converts a tensor to f32.
    fn dequantize(&mut self, tensor: &QTensor) -> Result<Tensor, LocalError> {
        let device = self.device.clone();
        let tensor = timed(&mut self.tally.convert, || tensor.dequantize(&device))?;
        Ok(self.tally.place_tensor(&tensor, DType::F32, &device)?)
    }
}

fn format_name(dtype: GgmlDType) -> String {
    format!("{dtype:?}").to_lowercase().replace('k', "_k")
}

impl Weights for Gguf {
    fn matrix(&mut self, name: &str, shape: &[usize; 2]) -> Result<Matrix, LocalError> {
        let tensor = self.read_tensor(&gguf_name(&format!("{name}.weight")), shape)?;
        if matches!(
            tensor.dtype(),
            GgmlDType::F32 | GgmlDType::F16 | GgmlDType::BF16
        ) {
            return Ok(Matrix::Dense(self.dequantize(&tensor)?));
        }
        self.tally.parameters += tensor.shape().elem_count() as u64;
        let matrix = timed(&mut self.tally.convert, || QuantizedMatrix::new(tensor))?;
        self.tally.bytes += matrix.bytes();
        Ok(Matrix::Quantized(matrix))
    }

    fn vector(&mut self, name: &str, width: usize) -> Result<Tensor, LocalError> {
        let tensor = self.read_tensor(&gguf_name(name), &[width])?;
        self.dequantize(&tensor)
    }

    fn target(&self) -> (DType, Device) {
        (DType::F32, self.device.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_format_has_its_names() {
        let names = [
            "model.embed_tokens.weight",
            "lm_head.weight",
            "model.norm.weight",
            "model.layers.3.mlp.up_proj.weight",
        ];
        assert_eq!(
            names.map(gguf_name),
            [
                "token_embd.weight",
                "output.weight",
                "output_norm.weight",
                "blk.3.ffn_up.weight"
            ]
        );
        assert_eq!(
            gguf_name("model.layers.11.self_attn.k_proj.bias"),
            "blk.11.attn_k.bias"
        );
    }

    #[test]
    fn formats_have_their_usual_names() {
        assert_eq!(
            [GgmlDType::Q4K, GgmlDType::Q8_0, GgmlDType::F16].map(format_name),
            ["q4_k", "q8_0", "f16"]
        );
    }
}
