//! The decoder: layers of attention and of feed-forward networks.

use crate::error::LocalError;
use crate::model::cache::{Cache, Width};
use crate::model::config::Config;
use crate::model::linear::{Linear, Matrix, Norm};
use crate::model::weights::Weights;
use candle_core::{DType, Device, Result, Tensor};
use candle_nn::rotary_emb::{rope, rope_i};

/// Where a piece of a batch stands.
#[derive(Debug)]
pub struct Place {
    /// Rows.
    pub rows: usize,
    /// Positions of each.
    pub positions: usize,
    /// The column of the cache that the first of them goes to.
    pub start: usize,
    /// Cosines and sines of their positions.
    pub rope: (Tensor, Tensor),
    /// Added to the scores, in 32 bits: minus infinity where one does not look.
    pub mask: Option<Tensor>,
}

#[derive(Debug)]
struct Layer {
    before: Norm,
    q: Linear,
    k: Linear,
    v: Linear,
    norms: Option<(Norm, Norm)>,
    out: Linear,
    between: Norm,
    gate: Linear,
    up: Linear,
    down: Linear,
}

/// The decoder.
#[derive(Debug)]
pub struct Network {
    embedding: Matrix,
    layers: Vec<Layer>,
    norm: Norm,
    head: Linear,
    heads: usize,
    kv_heads: usize,
    head_dim: usize,
    /// The pairs of a head that turn together are neighbours, not half a head apart.
    neighbours: bool,
    /// In which numbers it computes.
    pub dtype: DType,
    /// On what it runs.
    pub device: Device,
}

impl Network {
    /// Takes its weights. `neighbours` as GGUF files have the pairs of a Llama's heads.
    pub fn load(config: &Config, weights: &mut dyn Weights, neighbours: bool) -> std::result::Result<Network, LocalError> {
        let embedding = weights.matrix("model.embed_tokens", &[config.vocabulary, config.hidden])?;
        let layers = (0..config.layers).map(|at| Layer::load(config, weights, at)).collect::<std::result::Result<_, _>>()?;
        let norm = norm(config, weights, "model.norm", config.hidden)?;
        let matrix = match config.tied {
            true => embedding.clone(),
            false => weights.matrix("lm_head", &[config.vocabulary, config.hidden])?,
        };
        let (dtype, device) = weights.computes();
        Ok(Network {
            embedding,
            layers,
            norm,
            head: Linear::new(matrix, None)?,
            heads: config.heads,
            kv_heads: config.kv_heads,
            head_dim: config.head_dim,
            neighbours,
            dtype,
            device,
        })
    }

    /// How attention is computed, in words.
    pub fn attention(&self) -> String {
        format!("matmul + softmax (softmax in f32, keys and values in {}), no flash attention", self.dtype.as_str())
    }

    /// What its cache is made of.
    pub fn width(&self) -> Width {
        Width { layers: self.layers.len(), heads: self.kv_heads, head_dim: self.head_dim }
    }

    /// Numbers of a position that attention and the feed-forward network hold at once at the most, given what it looks back on.
    pub fn breadth(&self, seen: usize, intermediate: usize) -> usize {
        (self.heads * seen).max(intermediate)
    }

    /// The states of all positions of a piece, rows × positions by hidden, from their tokens in that order. `wanted` is asked
    /// before each layer: None where it says no.
    pub fn forward(&self, ids: &[u32], place: &Place, cache: &Cache, wanted: impl Fn() -> bool) -> Result<Option<Tensor>> {
        let mut x = self.embedding.rows(&Tensor::new(ids, &self.device)?)?;
        for (at, layer) in self.layers.iter().enumerate() {
            if !wanted() {
                return Ok(None);
            }
            let seen = self.attend(layer, at, &layer.before.forward(&x)?, place, cache)?;
            x = (x + seen)?;
            let inner = layer.between.forward(&x)?;
            let gated = (layer.gate.forward(&inner)?.silu()? * layer.up.forward(&inner)?)?;
            x = (x + layer.down.forward(&gated)?)?;
        }
        Ok(Some(x))
    }

    /// The logits of states, in 32 bits.
    pub fn logits(&self, states: &Tensor) -> Result<Tensor> {
        self.head.forward(&self.norm.forward(states)?)?.to_dtype(DType::F32)
    }

    fn attend(&self, layer: &Layer, at: usize, x: &Tensor, place: &Place, cache: &Cache) -> Result<Tensor> {
        let Place { rows, positions, .. } = *place;
        let (q_norm, k_norm) = layer.norms.as_ref().map(|(q, k)| (q, k)).unzip();
        let q = self.turned(self.split(layer.q.forward(x)?, self.heads, q_norm, place)?, place)?;
        let k = self.turned(self.split(layer.k.forward(x)?, self.kv_heads, k_norm, place)?, place)?;
        let v = self.split(layer.v.forward(x)?, self.kv_heads, None, place)?;
        let (k, v) = cache.put(at, place.start, &k, &v)?;
        // The query heads that share keys stand together, as more rows of one product: keys and values are not repeated.
        let group = self.heads / self.kv_heads;
        let q = q.affine((self.head_dim as f64).powf(-0.5), 0.0)?;
        let q = q.reshape((rows, self.kv_heads, group * positions, self.head_dim))?;
        let mut scores = q.matmul(&k.t()?)?.to_dtype(DType::F32)?;
        if let Some(mask) = &place.mask {
            let shape = scores.shape().clone();
            let seen = place.start + positions;
            let apart = scores.reshape((rows, self.kv_heads, group, positions, seen))?;
            scores = apart.broadcast_add(mask)?.reshape(shape)?;
        }
        let shares = candle_nn::ops::softmax_last_dim(&scores)?.to_dtype(self.dtype)?;
        let y = shares.matmul(&v)?.reshape((rows, self.heads, positions, self.head_dim))?;
        let y = if positions == 1 { y } else { y.transpose(1, 2)? };
        layer.out.forward(&y.reshape((rows * positions, self.heads * self.head_dim))?)
    }

    /// Heads apart, rows × heads × positions × width of a head, each normed where it is.
    fn split(&self, x: Tensor, heads: usize, norm: Option<&Norm>, place: &Place) -> Result<Tensor> {
        let x = match norm {
            Some(norm) => norm.forward(&x.reshape((place.rows * place.positions * heads, self.head_dim))?)?,
            None => x,
        };
        if place.positions == 1 {
            return x.reshape((place.rows, heads, 1, self.head_dim));
        }
        x.reshape((place.rows, place.positions, heads, self.head_dim))?.transpose(1, 2)?.contiguous()
    }

    fn turned(&self, x: Tensor, place: &Place) -> Result<Tensor> {
        let (cos, sin) = &place.rope;
        if self.neighbours { rope_i(&x, cos, sin) } else { rope(&x, cos, sin) }
    }
}

impl Layer {
    fn load(config: &Config, weights: &mut dyn Weights, at: usize) -> std::result::Result<Layer, LocalError> {
        let (hidden, inner) = (config.hidden, config.intermediate);
        let (q_width, kv_width) = (config.heads * config.head_dim, config.kv_heads * config.head_dim);
        let name = |part: &str| format!("model.layers.{at}.{part}");
        let before = norm(config, weights, &name("input_layernorm"), hidden)?;
        let mut linear = |part: &str, outputs: usize, inputs: usize, biased: bool| {
            let matrix = weights.matrix(&name(part), &[outputs, inputs])?;
            let bias = if biased { Some(weights.vector(&format!("{}.bias", name(part)), outputs)?) } else { None };
            Ok::<_, LocalError>(Linear::new(matrix, bias)?)
        };
        let q = linear("self_attn.q_proj", q_width, hidden, config.bias.qkv)?;
        let k = linear("self_attn.k_proj", kv_width, hidden, config.bias.qkv)?;
        let v = linear("self_attn.v_proj", kv_width, hidden, config.bias.qkv)?;
        let out = linear("self_attn.o_proj", hidden, q_width, config.bias.out)?;
        let gate = linear("mlp.gate_proj", inner, hidden, config.bias.mlp)?;
        let up = linear("mlp.up_proj", inner, hidden, config.bias.mlp)?;
        let down = linear("mlp.down_proj", hidden, inner, config.bias.mlp)?;
        let norms = match config.qk_norm {
            true => Some((
                norm(config, weights, &name("self_attn.q_norm"), config.head_dim)?,
                norm(config, weights, &name("self_attn.k_norm"), config.head_dim)?,
            )),
            false => None,
        };
        let between = norm(config, weights, &name("post_attention_layernorm"), hidden)?;
        Ok(Layer { before, q, k, v, norms, out, between, gate, up, down })
    }
}

fn norm(config: &Config, weights: &mut dyn Weights, name: &str, width: usize) -> std::result::Result<Norm, LocalError> {
    Ok(Norm { weight: weights.vector(&format!("{name}.weight"), width)?, eps: config.eps as f32 })
}
