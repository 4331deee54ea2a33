//! The decoder (layers of attention and feed-forward networks) and its KV cache.

use crate::error::LocalError;
use crate::model::config::Config;
use crate::model::linear::{Linear, Matrix, Norm};
use crate::model::weights::Weights;
use candle_core::{DType, Device, Result, Tensor};
use candle_nn::rotary_emb::{rope, rope_i};

/// The positions of a piece of a batch.
#[derive(Debug)]
pub struct PiecePosition {
    /// Rows.
    pub rows: usize,
    /// Positions per row.
    pub positions: usize,
    /// Column of the first position in the cache.
    pub start: usize,
    /// Cosines and sines of the positions.
    pub rope: (Tensor, Tensor),
    /// Added to the scores, in f32: minus infinity for masked positions.
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
    /// The two numbers of a rotated pair are neighbors, not half a head apart.
    interleaved: bool,
    /// Compute dtype.
    pub dtype: DType,
    pub device: Device,
}

impl Network {
    /// Loads the weights. `interleaved`: as in GGUF files of Llama models.
    pub fn load(
        config: &Config,
        weights: &mut dyn Weights,
        interleaved: bool,
    ) -> std::result::Result<Network, LocalError> {
        let embedding =
            weights.matrix("model.embed_tokens", &[config.vocabulary, config.hidden])?;
        let layers = (0..config.layers)
            .map(|at| Layer::load(config, weights, at))
            .collect::<std::result::Result<_, _>>()?;
        let norm = norm(config, weights, "model.norm", config.hidden)?;
        let matrix = match config.tied {
            true => embedding.clone(),
            false => weights.matrix("lm_head", &[config.vocabulary, config.hidden])?,
        };
        let (dtype, device) = weights.target();
        Ok(Network {
            embedding,
            layers,
            norm,
            head: Linear::new(matrix, None)?,
            heads: config.heads,
            kv_heads: config.kv_heads,
            head_dim: config.head_dim,
            interleaved,
            dtype,
            device,
        })
    }

    /// Description of the attention kernel, for the report.
    pub fn attention(&self) -> String {
        format!(
            "matmul + softmax (softmax in f32, keys and values in {}), no flash attention",
            self.dtype.as_str()
        )
    }

    /// The dimensions of its cache.
    pub fn width(&self) -> Width {
        Width {
            layers: self.layers.len(),
            heads: self.kv_heads,
            head_dim: self.head_dim,
        }
    }

    /// Largest number of values per position in attention with `columns` columns and in the feed-forward network.
    pub fn numbers_per_position(&self, columns: usize, intermediate: usize) -> usize {
        (self.heads * columns).max(intermediate)
    }

    /// The states of all positions of a piece, (rows × positions) × hidden. `is_needed` is called before each layer;
    /// None where it returns false.
    pub fn forward(
        &self,
        ids: &[u32],
        place: &PiecePosition,
        cache: &Cache,
        is_needed: impl Fn() -> bool,
    ) -> Result<Option<Tensor>> {
        let mut x = self.embedding.rows(&Tensor::new(ids, &self.device)?)?;
        for (at, layer) in self.layers.iter().enumerate() {
            if !is_needed() {
                return Ok(None);
            }
            let attended = self.attend(layer, at, &layer.before.forward(&x)?, place, cache)?;
            x = (x + attended)?;
            let inner = layer.between.forward(&x)?;
            let gated = (layer.gate.forward(&inner)?.silu()? * layer.up.forward(&inner)?)?;
            x = (x + layer.down.forward(&gated)?)?;
        }
        Ok(Some(x))
    }

    /// The logits of states, in f32.
    pub fn logits(&self, states: &Tensor) -> Result<Tensor> {
        self.head
            .forward(&self.norm.forward(states)?)?
            .to_dtype(DType::F32)
    }

    fn attend(
        &self,
        layer: &Layer,
        at: usize,
        x: &Tensor,
        place: &PiecePosition,
        cache: &Cache,
    ) -> Result<Tensor> {
        let PiecePosition {
            rows, positions, ..
        } = *place;
        let (q_norm, k_norm) = layer.norms.as_ref().map(|(q, k)| (q, k)).unzip();
        let q = self.rotate(
            self.split_heads(layer.q.forward(x)?, self.heads, q_norm, place)?,
            place,
        )?;
        let k = self.rotate(
            self.split_heads(layer.k.forward(x)?, self.kv_heads, k_norm, place)?,
            place,
        )?;
        let v = self.split_heads(layer.v.forward(x)?, self.kv_heads, None, place)?;
        let (k, v) = cache.set(at, place.start, &k, &v)?;
        // The query heads that share keys are rows of one product, so keys and values are not repeated.
        let group = self.heads / self.kv_heads;
        let q = q.affine((self.head_dim as f64).powf(-0.5), 0.0)?;
        let q = q.reshape((rows, self.kv_heads, group * positions, self.head_dim))?;
        let mut scores = q.matmul(&k.t()?)?.to_dtype(DType::F32)?;
        if let Some(mask) = &place.mask {
            let shape = scores.shape().clone();
            let columns = place.start + positions;
            let by_head = scores.reshape((rows, self.kv_heads, group, positions, columns))?;
            scores = by_head.broadcast_add(mask)?.reshape(shape)?;
        }
        let shares = candle_nn::ops::softmax_last_dim(&scores)?.to_dtype(self.dtype)?;
        let y = shares
            .matmul(&v)?
            .reshape((rows, self.heads, positions, self.head_dim))?;
        let y = if positions == 1 {
            y
        } else {
            y.transpose(1, 2)?
        };
        layer
            .out
            .forward(&y.reshape((rows * positions, self.heads * self.head_dim))?)
    }

    /// Splits into rows × heads × positions × head width, with the norm of each head.
    fn split_heads(
        &self,
        x: Tensor,
        heads: usize,
        norm: Option<&Norm>,
        place: &PiecePosition,
    ) -> Result<Tensor> {
        let x = match norm {
            Some(norm) => {
                norm.forward(&x.reshape((place.rows * place.positions * heads, self.head_dim))?)?
            }
            None => x,
        };
        if place.positions == 1 {
            return x.reshape((place.rows, heads, 1, self.head_dim));
        }
        x.reshape((place.rows, place.positions, heads, self.head_dim))?
            .transpose(1, 2)?
            .contiguous()
    }

    fn rotate(&self, x: Tensor, place: &PiecePosition) -> Result<Tensor> {
        let (cos, sin) = &place.rope;
        if self.interleaved {
            rope_i(&x, cos, sin)
        } else {
            rope(&x, cos, sin)
        }
    }
}

impl Layer {
    fn load(
        config: &Config,
        weights: &mut dyn Weights,
        at: usize,
    ) -> std::result::Result<Layer, LocalError> {
        let (hidden, inner) = (config.hidden, config.intermediate);
        let (q_width, kv_width) = (
            config.heads * config.head_dim,
            config.kv_heads * config.head_dim,
        );
        let name = |part: &str| format!("model.layers.{at}.{part}");
        let before = norm(config, weights, &name("input_layernorm"), hidden)?;
        let mut linear = |part: &str, outputs: usize, inputs: usize, biased: bool| {
            let matrix = weights.matrix(&name(part), &[outputs, inputs])?;
            let bias = if biased {
                Some(weights.vector(&format!("{}.bias", name(part)), outputs)?)
            } else {
                None
            };
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
        Ok(Layer {
            before,
            q,
            k,
            v,
            norms,
            out,
            between,
            gate,
            up,
            down,
        })
    }
}

fn norm(
    config: &Config,
    weights: &mut dyn Weights,
    name: &str,
    width: usize,
) -> std::result::Result<Norm, LocalError> {
    Ok(Norm {
        weight: weights.vector(&format!("{name}.weight"), width)?,
        eps: config.eps as f32,
    })
}

/// Positions by which the cache grows.
const BLOCK: usize = 256;

/// The dimensions of a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Width {
    /// Layers.
    pub layers: usize,
    /// Number of key-value heads.
    pub heads: usize,
    /// Width of a head.
    pub head_dim: usize,
}

/// The KV cache: keys and values of each layer, as rows × heads × capacity × head width. It is copied only when it
/// grows.
#[derive(Debug)]
pub struct Cache {
    width: Width,
    rows: usize,
    capacity: usize,
    layers: Vec<(Tensor, Tensor)>,
}

impl Cache {
    /// A cache for `rows` × `positions`.
    pub fn new(
        width: Width,
        rows: usize,
        positions: usize,
        dtype: DType,
        device: &Device,
    ) -> Result<Cache> {
        let capacity = positions.next_multiple_of(BLOCK);
        let empty = || Tensor::zeros((rows, width.heads, capacity, width.head_dim), dtype, device);
        let layers = (0..width.layers)
            .map(|_| Ok((empty()?, empty()?)))
            .collect::<Result<_>>()?;
        Ok(Cache {
            width,
            rows,
            capacity,
            layers,
        })
    }

    /// Whether a batch with these rows and positions fits.
    pub fn fits(&self, rows: usize, positions: usize) -> bool {
        self.rows == rows && self.capacity >= positions
    }

    /// Grows to `positions`, at least by half of the capacity, so that copies are rare.
    pub fn extend_to(&mut self, positions: usize) -> Result<()> {
        if positions <= self.capacity {
            return Ok(());
        }
        let capacity = positions
            .max(self.capacity + self.capacity / 2)
            .next_multiple_of(BLOCK);
        for (keys, values) in &mut self.layers {
            for each in [keys, values] {
                let wider = Tensor::zeros(
                    (self.rows, self.width.heads, capacity, self.width.head_dim),
                    each.dtype(),
                    each.device(),
                )?;
                wider.slice_set(each, 2, 0)?;
                *each = wider;
            }
        }
        self.capacity = capacity;
        Ok(())
    }

    /// Sets keys and values of a layer from position `start`, and returns all up to their end.
    pub fn set(
        &self,
        layer: usize,
        start: usize,
        keys: &Tensor,
        values: &Tensor,
    ) -> Result<(Tensor, Tensor)> {
        let Some((all_keys, all_values)) = self.layers.get(layer) else {
            candle_core::bail!("there is no layer {layer}")
        };
        all_keys.slice_set(keys, 2, start)?;
        all_values.slice_set(values, 2, start)?;
        let end = start + keys.dim(2)?;
        Ok((all_keys.narrow(2, 0, end)?, all_values.narrow(2, 0, end)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_unchanged_when_the_cache_grows() {
        let width = Width {
            layers: 1,
            heads: 2,
            head_dim: 2,
        };
        let mut cache = Cache::new(width, 2, 3, DType::F32, &Device::Cpu).unwrap();
        let some = |from: f32, positions: usize| {
            let count = (8 * positions) as f32;
            Tensor::arange(from, from + count, &Device::Cpu)
                .unwrap()
                .reshape((2, 2, positions, 2))
                .unwrap()
        };
        cache
            .set(0, 0, &some(0.0, 255), &some(9000.0, 255))
            .unwrap();
        assert!(cache.fits(2, 256) && !cache.fits(2, 257) && !cache.fits(1, 1));
        cache.extend_to(257).unwrap();
        assert!(cache.fits(2, 512));
        let (keys, values) = cache
            .set(0, 255, &some(5000.0, 2), &some(6000.0, 2))
            .unwrap();
        assert_eq!(keys.dims(), [2, 2, 257, 2]);
        let row = |tensor: &Tensor, position: usize| {
            tensor
                .get(1)
                .unwrap()
                .get(1)
                .unwrap()
                .to_vec2::<f32>()
                .unwrap()[position]
                .clone()
        };
        assert_eq!(
            (row(&keys, 254), row(&keys, 256)),
            (vec![2038.0, 2039.0], vec![5014.0, 5015.0])
        );
        assert_eq!(row(&values, 0), [9000.0 + 1530.0, 9000.0 + 1531.0]);
    }
}
