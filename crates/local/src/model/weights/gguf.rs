//! Weights of a GGUF file, quantised or not.

use super::{Tally, Weights, timed};
use crate::error::LocalError;
use crate::model::first_line;
use crate::model::linear::Matrix;
use crate::model::recode::Recoded;
use candle_core::quantized::gguf_file::Content;
use candle_core::quantized::{GgmlDType, QTensor};
use candle_core::{DType, Device, Tensor};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};

/// The weights of a file. States are computed in 32 bits.
pub struct Gguf {
    path: PathBuf,
    file: BufReader<File>,
    content: Content,
    device: Device,
    /// Numbers of each kind of block.
    kinds: BTreeMap<String, u64>,
    /// What it took.
    pub tally: Tally,
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
    pub fn new(path: &Path, file: BufReader<File>, content: Content, device: Device, tally: Tally) -> Gguf {
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
