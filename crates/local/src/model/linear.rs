//! Products with weights.

use candle_core::quantized::{GgmlDType, QStorage, QTensor};
use candle_core::{D, DType, Device, Result, Tensor};
use std::borrow::Cow;
use std::sync::Arc;

/// A matrix of weights, a row for each output.
#[derive(Clone, Debug)]
pub enum Matrix {
    /// In the numbers that the model computes in.
    Dense(Tensor),
    /// In blocks of few bits.
    Quantised(Recoded),
}

impl Matrix {
    /// The rows of these tokens.
    pub fn rows(&self, ids: &Tensor) -> Result<Tensor> {
        match self {
            Matrix::Dense(weight) => weight.index_select(ids, 0),
            Matrix::Quantised(own) => own.rows(ids),
        }
    }
}

/// `x W^T + b`.
#[derive(Debug)]
pub enum Linear {
    /// With plain weights, which are held as they are multiplied: transposed, without a copy.
    Dense {
        /// The weights, a column for each output.
        weight: Tensor,
        /// What is added.
        bias: Option<Tensor>,
    },
    /// With quantised ones.
    Quantised {
        /// The weights.
        weight: Recoded,
        /// What is added.
        bias: Option<Tensor>,
    },
}

impl Linear {
    /// The product with a matrix.
    pub fn new(matrix: Matrix, bias: Option<Tensor>) -> Result<Linear> {
        Ok(match matrix {
            Matrix::Dense(weight) => Linear::Dense { weight: weight.t()?, bias },
            Matrix::Quantised(weight) => Linear::Quantised { weight, bias },
        })
    }

    /// Of each row of `x`.
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let (product, bias) = match self {
            Linear::Dense { weight, bias } => (x.matmul(weight)?, bias),
            Linear::Quantised { weight, bias } => (weight.product(x)?, bias),
        };
        match bias {
            Some(bias) => product.broadcast_add(bias),
            None => Ok(product),
        }
    }
}

/// Root mean square normalisation (Zhang and Sennrich 2019).
#[derive(Debug)]
pub struct Norm {
    /// A weight for each column.
    pub weight: Tensor,
    /// Added to the mean square.
    pub eps: f32,
}

impl Norm {
    /// Of each row of `x`.
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        candle_nn::ops::rms_norm(x, &self.weight, self.eps)
    }
}

/// Numbers of a block.
const BLOCK: usize = 32;
/// Bytes of a number of 16 bits.
const HALF: usize = 2;
/// Bytes of the low four bits of a block, and of its fifth bits.
const LOW: usize = BLOCK / 2;
const FIFTH: usize = 4;

/// A quantised matrix, a row for each output.
#[derive(Clone, Debug)]
pub struct Recoded {
    weight: Arc<QTensor>,
    /// What is added to each number of a block: outputs × blocks.
    offsets: Option<Tensor>,
}

impl Recoded {
    /// The weights of a tensor, in a form that is fast where it lies.
    pub fn new(tensor: QTensor) -> Result<Recoded> {
        let of = if tensor.device().is_cpu() { tensor.dtype() } else { GgmlDType::Q4_0 };
        let (weight, offsets) = match of {
            GgmlDType::Q4_1 => recode(&tensor, GgmlDType::Q4_0, Form { offset: Some(8.0), fifth: false })?,
            GgmlDType::Q5_0 => recode(&tensor, GgmlDType::Q8_0, Form { offset: None, fifth: true })?,
            GgmlDType::Q5_1 => recode(&tensor, GgmlDType::Q8_0, Form { offset: Some(16.0), fifth: true })?,
            _ => (tensor, None),
        };
        Ok(Recoded { weight: Arc::new(weight), offsets })
    }

    /// The rows of these tokens.
    pub fn rows(&self, ids: &Tensor) -> Result<Tensor> {
        let rows = self.weight.embedding(ids)?;
        let Some(offsets) = &self.offsets else { return Ok(rows) };
        let (count, width) = rows.dims2()?;
        let offsets = offsets.index_select(ids, 0)?.unsqueeze(D::Minus1)?;
        rows.reshape((count, width / BLOCK, BLOCK))?.broadcast_add(&offsets)?.reshape((count, width))
    }

    /// The product of each row of `x` with it.
    pub fn product(&self, x: &Tensor) -> Result<Tensor> {
        let product = x.apply_op1_no_bwd(self.weight.as_ref())?;
        let Some(offsets) = &self.offsets else { return Ok(product) };
        let (count, width) = x.dims2()?;
        let sums = x.reshape((count, width / BLOCK, BLOCK))?.sum(D::Minus1)?;
        product + sums.matmul(&offsets.t()?)?
    }

    /// Bytes that it takes.
    pub fn bytes(&self) -> u64 {
        let offsets = self.offsets.as_ref().map_or(0, |offsets| offsets.elem_count() * offsets.dtype().size_in_bytes());
        (self.weight.storage_size_in_bytes() + offsets) as u64
    }
}

/// What a block holds besides its scale and the low four bits of its numbers.
#[derive(Clone, Copy)]
struct Form {
    /// A minimum, to which so many scales are added to become the offset.
    offset: Option<f64>,
    /// A fifth bit of each number.
    fifth: bool,
}

fn recode(tensor: &QTensor, to: GgmlDType, form: Form) -> Result<(QTensor, Option<Tensor>)> {
    let data = tensor.data()?;
    let head = if form.offset.is_some() { 2 * HALF } else { HALF };
    let size = head + if form.fifth { FIFTH } else { 0 } + LOW;
    let (mut blocks, mut scales, mut minima) = (Vec::new(), Vec::new(), Vec::new());
    for block in data.chunks_exact(size) {
        let (halves, bits) = block.split_at(head);
        let (scale, minimum) = halves.split_at(HALF);
        scales.extend_from_slice(scale);
        minima.extend_from_slice(minimum);
        blocks.extend_from_slice(scale);
        if form.fifth {
            let (fifth, low) = bits.split_at(FIFTH);
            let fifth = fifth.iter().rev().fold(0u32, |all, byte| (all << 8) | u32::from(*byte));
            let number = |at: usize, four: u8| (i32::from(four | (((fifth >> at) as u8 & 1) << 4)) - 16) as u8;
            blocks.extend(low.iter().enumerate().map(|(at, byte)| number(at, byte & 15)));
            blocks.extend(low.iter().enumerate().map(|(at, byte)| number(at + LOW, byte >> 4)));
        } else {
            blocks.extend_from_slice(bits);
        }
    }
    let weight = QTensor::new(QStorage::from_data(Cow::Owned(blocks), &Device::Cpu, to)?, tensor.shape().clone())?;
    let Some(offset) = form.offset else { return Ok((weight, None)) };
    let (outputs, inputs) = tensor.shape().dims2()?;
    let plain = |halves: &[u8]| {
        Tensor::from_raw_buffer(halves, DType::F16, &[outputs, inputs / BLOCK], &Device::Cpu)?.to_dtype(DType::F32)
    };
    let offsets = (plain(&minima)? + plain(&scales)?.affine(offset, 0.0)?)?;
    Ok((weight, Some(offsets)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers without a pattern, most of them above 0, so that minima are not symmetric.
    fn matrix(outputs: usize, inputs: usize) -> Tensor {
        let number = |at: usize| ((at * 7919 + 13) % 1009) as f32 / 500.0 - 0.7;
        Tensor::from_vec((0..outputs * inputs).map(number).collect::<Vec<_>>(), (outputs, inputs), &Device::Cpu).unwrap()
    }

    fn apart(a: &Tensor, b: &Tensor) -> f32 {
        let largest = b.abs().unwrap().max_all().unwrap().to_scalar::<f32>().unwrap();
        (a - b).unwrap().abs().unwrap().max_all().unwrap().to_scalar::<f32>().unwrap() / largest
    }

    #[test]
    fn weights_are_the_same_numbers_in_another_form() {
        let ids = Tensor::new(&[0u32, 5, 2, 11], &Device::Cpu).unwrap();
        for (from, to) in [
            (GgmlDType::Q4_1, GgmlDType::Q4_0),
            (GgmlDType::Q5_0, GgmlDType::Q8_0),
            (GgmlDType::Q5_1, GgmlDType::Q8_0),
            (GgmlDType::Q4_0, GgmlDType::Q4_0),
            (GgmlDType::Q8_0, GgmlDType::Q8_0),
        ] {
            let tensor = QTensor::quantize(&matrix(12, 96), from).unwrap();
            let truth = tensor.dequantize(&Device::Cpu).unwrap();
            let recoded = Recoded::new(tensor).unwrap();
            assert_eq!(recoded.weight.dtype(), to, "{from:?}");
            let rows = recoded.rows(&ids).unwrap();
            assert!(apart(&rows, &truth.index_select(&ids, 0).unwrap()) < 1e-6, "{from:?}");
            let x = matrix(3, 96).affine(0.5, 0.1).unwrap();
            let product = recoded.product(&x).unwrap();
            // The library rounds the input to 8 bits.
            assert!(apart(&product, &x.matmul(&truth.t().unwrap()).unwrap()) < 0.01, "{from:?}");
        }
    }

    #[test]
    #[ignore = "prints times"]
    #[expect(clippy::print_stdout, reason = "the times are its result")]
    fn times() {
        let x = matrix(1, 2048);
        for kind in
            [GgmlDType::Q4_0, GgmlDType::Q4_1, GgmlDType::Q5_0, GgmlDType::Q5_1, GgmlDType::Q8_0, GgmlDType::Q4K, GgmlDType::Q6K]
        {
            let tensor = || QTensor::quantize(&matrix(2048, 2048), kind).unwrap();
            let plain = Recoded { weight: Arc::new(tensor()), offsets: None };
            let fast = Recoded::new(tensor()).unwrap();
            let time = |own: &Recoded| {
                let best = (0..20).map(|_| {
                    let began = std::time::Instant::now();
                    (0..5).for_each(|_| _ = own.product(&x).unwrap());
                    began.elapsed().as_micros() / 5
                });
                best.min().unwrap()
            };
            println!("{kind:?}: library {} us, here {} us", time(&plain), time(&fast));
        }
    }
}
