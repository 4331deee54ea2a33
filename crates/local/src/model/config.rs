//! The configuration of a model.

use crate::error::LocalError;
use serde_json::{Map, Value};
use std::path::{Path, PathBuf};

/// The supported families, as named in config.json and GGUF files.
const FAMILIES: [&str; 4] = ["llama", "mistral", "qwen2", "qwen3"];

/// The projections that have a bias.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bias {
    /// Queries, keys and values.
    pub qkv: bool,
    /// Output of the attention.
    pub out: bool,
    /// The feed-forward network.
    pub mlp: bool,
}

/// The scaling of the rotary frequencies for a longer context.
#[derive(Clone, Debug, PartialEq)]
pub enum Scaling {
    None,
    /// All frequencies are divided.
    Linear {
        /// Divisor.
        factor: f64,
    },
    /// As in Llama 3.1: long waves are divided, short ones unchanged, those between are interpolated.
    Llama3 {
        /// Divisor of long waves.
        factor: f64,
        /// Waves longer than `original / low` are long.
        low: f64,
        /// Waves shorter than `original / high` are short.
        high: f64,
        /// Original context length.
        original: f64,
    },
    /// A divisor per frequency, from a GGUF file.
    PerFrequency(Vec<f32>),
}

/// A decoder of the Llama family.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    pub architecture: &'static str,
    /// Size of the vocabulary.
    pub vocabulary: usize,
    /// Width of a state.
    pub hidden: usize,
    /// Width inside the feed-forward network.
    pub intermediate: usize,
    /// Layers.
    pub layers: usize,
    /// Query heads.
    pub heads: usize,
    /// Key-value heads, each shared by `heads / kv_heads` query heads.
    pub kv_heads: usize,
    /// Width of a head.
    pub head_dim: usize,
    /// Added to the mean square of a norm.
    pub eps: f64,
    /// Base of the rotary frequencies.
    pub theta: f64,
    /// Scaling of the frequencies for a longer context.
    pub scaling: Scaling,
    /// Context length.
    pub limit: usize,
    /// The output head uses the embedding weights.
    pub tied: bool,
    pub bias: Bias,
    /// Queries and keys are normalized per head.
    pub qk_norm: bool,
    /// Dtype of the configuration.
    pub dtype: Option<String>,
    /// Tokens that end a text.
    pub eos: Vec<u32>,
}

/// The supported family with this name.
pub fn family(path: &Path, name: &str) -> Result<&'static str, LocalError> {
    let unknown = || LocalError::Architecture {
        path: path.to_owned(),
        architecture: name.to_owned(),
    };
    FAMILIES
        .into_iter()
        .find(|known| *known == name)
        .ok_or_else(unknown)
}

impl Config {
    /// Reads a config.json.
    ///
    /// # Errors
    /// A key is missing or has an unsupported value.
    pub fn read(path: &Path, text: &str) -> Result<Config, LocalError> {
        let malformed = |error: serde_json::Error| LocalError::Malformed {
            path: path.to_owned(),
            reason: error.to_string(),
        };
        let keys = Keys {
            path: path.to_owned(),
            map: serde_json::from_str(text).map_err(malformed)?,
        };
        let architecture = family(path, keys.text("model_type")?.as_str())?;
        if keys.get("quantization_config").is_some() {
            return Err(keys.key_error(
                "quantization_config",
                "is not supported; use weights of 16 or 32 bits, or a GGUF file",
            ));
        }
        if keys.text("hidden_act")? != "silu" {
            return Err(keys.key_error(
                "hidden_act",
                "is not `silu`; other activations are not supported",
            ));
        }
        let hidden = keys.count("hidden_size")?;
        let heads = keys.count("num_attention_heads")?;
        let attention = keys.flag("attention_bias");
        let bias = match architecture {
            "qwen2" => Bias {
                qkv: true,
                ..Bias::default()
            },
            "mistral" => Bias::default(),
            _ => Bias {
                qkv: attention,
                out: attention,
                mlp: keys.flag("mlp_bias"),
            },
        };
        let (theta, scaling) = keys.rope()?;
        let config = Config {
            architecture,
            vocabulary: keys.count("vocab_size")?,
            hidden,
            intermediate: keys.count("intermediate_size")?,
            layers: keys.count("num_hidden_layers")?,
            heads,
            kv_heads: keys.count_or("num_key_value_heads", heads)?,
            head_dim: keys.count_or("head_dim", hidden / heads)?,
            eps: keys.number("rms_norm_eps")?,
            theta,
            scaling,
            limit: keys.limit(architecture)?,
            tied: keys.flag("tie_word_embeddings"),
            bias,
            qk_norm: architecture == "qwen3",
            dtype: keys
                .get("dtype")
                .or(keys.get("torch_dtype"))
                .and_then(Value::as_str)
                .map(str::to_owned),
            eos: parse_ids(keys.get("eos_token_id")),
        };
        config.validate(path)
    }

    /// Checks that the sizes are consistent.
    pub fn validate(self, path: &Path) -> Result<Config, LocalError> {
        let error = |key: &str, reason: String| {
            Err(LocalError::Key {
                path: path.to_owned(),
                key: key.to_owned(),
                reason,
            })
        };
        if !self.heads.is_multiple_of(self.kv_heads) {
            let reason = format!(
                "is {}, which does not divide the {} query heads",
                self.kv_heads, self.heads
            );
            return error("num_key_value_heads", reason);
        }
        if !self.head_dim.is_multiple_of(2) {
            return error(
                "head_dim",
                format!(
                    "is {}, and rotary positions need an even width",
                    self.head_dim
                ),
            );
        }
        Ok(self)
    }
}

/// The token ids of a value: one, or a list.
pub fn parse_ids(value: Option<&Value>) -> Vec<u32> {
    let parse = |value: &Value| value.as_u64().and_then(|id| u32::try_from(id).ok());
    match value {
        Some(Value::Array(all)) => all.iter().filter_map(parse).collect(),
        Some(value) => parse(value).into_iter().collect(),
        None => Vec::new(),
    }
}

struct Keys {
    path: PathBuf,
    map: Map<String, Value>,
}

impl Keys {
    /// None where it is null.
    fn get(&self, key: &str) -> Option<&Value> {
        self.map.get(key).filter(|value| !value.is_null())
    }

    fn key_error(&self, key: &str, reason: &str) -> LocalError {
        LocalError::Key {
            path: self.path.clone(),
            key: key.to_owned(),
            reason: reason.to_owned(),
        }
    }

    fn text(&self, key: &str) -> Result<String, LocalError> {
        let text = self.get(key).and_then(Value::as_str).map(str::to_owned);
        text.ok_or_else(|| self.key_error(key, "is missing, or not a text"))
    }

    fn number(&self, key: &str) -> Result<f64, LocalError> {
        self.get(key)
            .and_then(Value::as_f64)
            .ok_or_else(|| self.key_error(key, "is missing, or not a number"))
    }

    fn count(&self, key: &str) -> Result<usize, LocalError> {
        let count = self
            .get(key)
            .and_then(Value::as_u64)
            .and_then(|count| usize::try_from(count).ok());
        count
            .filter(|count| *count > 0)
            .ok_or_else(|| self.key_error(key, "is missing, or not a whole number above 0"))
    }

    fn count_or(&self, key: &str, default: usize) -> Result<usize, LocalError> {
        if self.get(key).is_none() {
            Ok(default)
        } else {
            self.count(key)
        }
    }

    fn flag(&self, key: &str) -> bool {
        self.get(key).and_then(Value::as_bool).unwrap_or(false)
    }

    /// The context length. A sliding window is an error: Mistral uses it if it is set, Qwen if it is also enabled.
    fn limit(&self, architecture: &str) -> Result<usize, LocalError> {
        let limit = self.count("max_position_embeddings")?;
        let slides = match architecture {
            "mistral" => true,
            "qwen2" | "qwen3" => self.flag("use_sliding_window"),
            _ => false,
        };
        let window = self
            .get("sliding_window")
            .and_then(Value::as_u64)
            .filter(|_| slides);
        match window.and_then(|window| window_reason(window, limit as u64)) {
            Some(reason) => Err(self.key_error("sliding_window", &reason)),
            None => Ok(limit),
        }
    }

    /// The base and the scaling, as older files (`rope_theta`, `rope_scaling`) or newer ones (`rope_parameters`) have
    /// them.
    fn rope(&self) -> Result<(f64, Scaling), LocalError> {
        let (name, object) = match self.get("rope_parameters") {
            Some(value) => ("rope_parameters", Some(value)),
            None => ("rope_scaling", self.get("rope_scaling")),
        };
        let Some(object) = object else {
            return Ok((self.theta(None), Scaling::None));
        };
        let map = object
            .as_object()
            .cloned()
            .ok_or_else(|| self.key_error(name, "is not a map"))?;
        let rope = Keys {
            path: self.path.clone(),
            map,
        };
        let kind = rope
            .get("rope_type")
            .or(rope.get("type"))
            .and_then(Value::as_str)
            .unwrap_or("default");
        let scaling = match kind {
            "default" => Scaling::None,
            "linear" => Scaling::Linear {
                factor: rope.number("factor")?,
            },
            "llama3" => Scaling::Llama3 {
                factor: rope.number("factor")?,
                low: rope.number("low_freq_factor")?,
                high: rope.number("high_freq_factor")?,
                original: rope.number("original_max_position_embeddings")?,
            },
            other => {
                return Err(self.key_error(
                    name,
                    &scaling_reason(other, "`default`, `linear` and `llama3`"),
                ));
            }
        };
        Ok((self.theta(rope.get("rope_theta")), scaling))
    }

    fn theta(&self, newer: Option<&Value>) -> f64 {
        newer
            .or(self.get("rope_theta"))
            .and_then(Value::as_f64)
            .unwrap_or(10_000.0)
    }
}

/// Why a sliding window is refused, in a sentence that begins with its key; None where it covers all positions.
/// Attention is computed over the whole context alone.
pub fn window_reason(window: u64, positions: u64) -> Option<String> {
    (window > 0 && window < positions).then(|| {
        format!(
            "is {window} of {positions} positions, and attention in a sliding window is not \
             supported; use a model without one, or measure a server"
        )
    })
}

/// Why a scaling of the rotary positions is refused, in a sentence that begins with its key.
pub fn scaling_reason(kind: &str, supported: &str) -> String {
    format!(
        "is `{kind}`, and this scaling of rotary positions is not supported; supported are \
        {supported}; measure a server instead"
    )
}

/// What `random:` models begin with.
pub const PREFIX: &str = "random:";

/// A Llama of 1.2 million parameters for a vocabulary of 8192.
pub fn tiny(vocabulary: usize) -> Config {
    Config {
        architecture: "llama",
        vocabulary,
        hidden: 64,
        intermediate: 192,
        layers: 2,
        heads: 4,
        kv_heads: 2,
        head_dim: 16,
        eps: 1e-5,
        theta: 10_000.0,
        scaling: Scaling::None,
        limit: 8192,
        tied: false,
        bias: Bias::default(),
        qk_norm: false,
        dtype: None,
        eos: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(changes: Value) -> Result<Config, String> {
        let mut whole = json!({
            "model_type": "llama", "hidden_act": "silu", "vocab_size": 100, "hidden_size": 64, "intermediate_size": 96,
            "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "rms_norm_eps": 1e-5,
            "max_position_embeddings": 512, "rope_theta": 5e5, "eos_token_id": [3, 4], "torch_dtype": "bfloat16",
        });
        for (key, value) in changes.as_object().unwrap() {
            whole[key] = value.clone();
        }
        Config::read(Path::new("m/config.json"), &whole.to_string())
            .map_err(|error| error.to_string())
    }

    #[test]
    fn older_and_newer_files_say_the_same() {
        let old = read(json!({})).unwrap();
        let newer = json!({ "rope_theta": null, "rope_parameters": { "rope_theta": 5e5, "rope_type": "default" },
            "torch_dtype": null, "dtype": "bfloat16" });
        assert_eq!(read(newer).unwrap(), old);
        assert_eq!(
            (
                old.head_dim,
                old.theta,
                old.eos.as_slice(),
                old.dtype.as_deref()
            ),
            (16, 5e5, &[3, 4][..], Some("bfloat16"))
        );
        let three = json!({ "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8192 });
        let scaled = read(json!({ "rope_scaling": three })).unwrap();
        assert_eq!(
            scaled.scaling,
            Scaling::Llama3 {
                factor: 8.0,
                low: 1.0,
                high: 4.0,
                original: 8192.0
            }
        );
    }

    #[test]
    fn each_family_has_its_biases_and_norms() {
        let of = |kind: &str| {
            read(json!({ "model_type": kind, "attention_bias": true })).map(|c| (c.bias, c.qk_norm))
        };
        assert_eq!(
            of("llama"),
            Ok((
                Bias {
                    qkv: true,
                    out: true,
                    mlp: false
                },
                false
            ))
        );
        assert_eq!(
            of("qwen2"),
            Ok((
                Bias {
                    qkv: true,
                    out: false,
                    mlp: false
                },
                false
            ))
        );
        assert_eq!(
            of("qwen3"),
            Ok((
                Bias {
                    qkv: true,
                    out: true,
                    mlp: false
                },
                true
            ))
        );
        assert_eq!(of("mistral"), Ok((Bias::default(), false)));
    }

    #[test]
    fn a_sliding_window_is_refused_where_it_slides() {
        let of = |kind: &str, on: bool, window: u64| {
            read(json!({ "model_type": kind, "sliding_window": window, "use_sliding_window": on }))
                .map(|config| config.limit)
        };
        let reason = "m/config.json: `sliding_window` is 128 of 512 positions, and attention in a \
                      sliding window is not supported; use a model without one, or measure a server";
        assert_eq!(
            (of("mistral", false, 128), of("qwen2", true, 128)),
            (Err(reason.into()), Err(reason.into()))
        );
        let all = [
            of("qwen2", false, 128),
            of("llama", true, 128),
            of("mistral", false, 512),
            of("qwen3", true, 4096),
        ];
        assert_eq!(
            all,
            [Ok(512), Ok(512), Ok(512), Ok(512)],
            "switched off, of another family, or as long as the context"
        );
    }

    #[test]
    fn what_is_not_computed_is_named() {
        let text = |changes: Value| read(changes).unwrap_err();
        let known = "supported are llama, mistral, qwen2 and qwen3";
        assert_eq!(
            text(json!({ "model_type": "gemma" })),
            format!("m/config.json: unsupported architecture `gemma`; {known}")
        );
        assert_eq!(
            text(json!({ "hidden_size": 0 })),
            "m/config.json: `hidden_size` is missing, or not a whole number above 0"
        );
        let yarn = "`rope_scaling` is `yarn`, and this scaling of rotary positions is not \
        supported; supported are `default`, ";
        assert!(text(json!({ "rope_scaling": { "rope_type": "yarn" } })).contains(yarn));
        assert!(
            text(json!({ "quantization_config": {} }))
                .contains("use weights of 16 or 32 bits, or a GGUF file")
        );
        assert!(
            text(json!({ "num_key_value_heads": 3 })).contains("does not divide the 4 query heads")
        );
        assert!(text(json!({ "head_dim": 15 })).contains("need an even width"));
    }
}
