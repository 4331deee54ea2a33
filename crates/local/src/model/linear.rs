//! Matrix products with weights.

use candle_core::quantized::{GgmlDType, QStorage, QTensor};
use candle_core::{D, DType, Device, Result, Tensor};
use std::borrow::Cow;
use std::sync::Arc;

/// A matrix of weights, one row per output.
#[derive(Clone, Debug)]
pub enum Matrix {
    /// In the compute dtype.
    Dense(Tensor),
    /// In quantized blocks.
    Quantized(QuantizedMatrix),
}

impl Matrix {
    /// The rows of these tokens.
    pub fn rows(&self, ids: &Tensor) -> Result<Tensor> {
        match self {
            Matrix::Dense(weight) => weight.index_select(ids, 0),
            Matrix::Quantized(weight) => weight.rows(ids),
        }
    }
}

/// `x W^T + b`.
#[derive(Debug)]
pub enum Linear {
    /// With dense weights, transposed without a copy.
    Dense {
        /// One column per output.
        weight: Tensor,
        bias: Option<Tensor>,
    },
    /// With quantized weights.
    Quantized {
        weight: QuantizedMatrix,
        bias: Option<Tensor>,
    },
}

impl Linear {
    pub fn new(matrix: Matrix, bias: Option<Tensor>) -> Result<Linear> {
        Ok(match matrix {
            Matrix::Dense(weight) => Linear::Dense {
                weight: weight.t()?,
                bias,
            },
            Matrix::Quantized(weight) => Linear::Quantized { weight, bias },
        })
    }

    /// Of each row of `x`.
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let (product, bias) = match self {
            Linear::Dense { weight, bias } => (x.matmul(weight)?, bias),
            Linear::Quantized { weight, bias } => (weight.product(x)?, bias),
        };
        match bias {
            Some(bias) => product.broadcast_add(bias),
            None => Ok(product),
        }
    }
}

/// Root mean square normalization (Zhang and Sennrich 2019).
#[derive(Debug)]
pub struct Norm {
    /// One weight per column.
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

/// Numbers per block.
const BLOCK: usize = 32;
/// Bytes of an f16.
const HALF: usize = 2;
/// Bytes of the low four bits of a block, and of the fifth bits.
const LOW: usize = BLOCK / 2;
const FIFTH: usize = 4;

/// A quantized matrix, one row per output, in a block format with a fast kernel.
#[derive(Clone, Debug)]
pub struct QuantizedMatrix {
    weight: Arc<QTensor>,
    /// Added to each number of a block: outputs × blocks.
    offsets: Option<Tensor>,
}

impl QuantizedMatrix {
    /// Converts a tensor on the CPU where another block format is faster.
    pub fn new(tensor: QTensor) -> Result<QuantizedMatrix> {
        let dtype = if tensor.device().is_cpu() {
            tensor.dtype()
        } else {
            GgmlDType::Q4_0
        };
        let (weight, offsets) = match dtype {
            GgmlDType::Q4_1 => recode(
                &tensor,
                GgmlDType::Q4_0,
                BlockLayout {
                    offset: Some(8.0),
                    fifth: false,
                },
            )?,
            GgmlDType::Q5_0 => recode(
                &tensor,
                GgmlDType::Q8_0,
                BlockLayout {
                    offset: None,
                    fifth: true,
                },
            )?,
            GgmlDType::Q5_1 => recode(
                &tensor,
                GgmlDType::Q8_0,
                BlockLayout {
                    offset: Some(16.0),
                    fifth: true,
                },
            )?,
            _ => (tensor, None),
        };
        Ok(QuantizedMatrix {
            weight: Arc::new(weight),
            offsets,
        })
    }

    /// The rows of these tokens.
    pub fn rows(&self, ids: &Tensor) -> Result<Tensor> {
        let rows = self.weight.embedding(ids)?;
        let Some(offsets) = &self.offsets else {
            return Ok(rows);
        };
        let (count, width) = rows.dims2()?;
        let offsets = offsets.index_select(ids, 0)?.unsqueeze(D::Minus1)?;
        rows.reshape((count, width / BLOCK, BLOCK))?
            .broadcast_add(&offsets)?
            .reshape((count, width))
    }

    /// The product with each row of `x`.
    pub fn product(&self, x: &Tensor) -> Result<Tensor> {
        let product = x.apply_op1_no_bwd(self.weight.as_ref())?;
        let Some(offsets) = &self.offsets else {
            return Ok(product);
        };
        let (count, width) = x.dims2()?;
        let sums = x.reshape((count, width / BLOCK, BLOCK))?.sum(D::Minus1)?;
        product + sums.matmul(&offsets.t()?)?
    }

    /// Size in bytes.
    pub fn bytes(&self) -> u64 {
        let offsets = self.offsets.as_ref().map_or(0, |offsets| {
            offsets.elem_count() * offsets.dtype().size_in_bytes()
        });
        (self.weight.storage_size_in_bytes() + offsets) as u64
    }
}

/// The parts of a block besides its scale and the low four bits of its numbers.
#[derive(Clone, Copy)]
struct BlockLayout {
    /// The block has a minimum; the offset is the minimum plus this number of scales.
    offset: Option<f64>,
    /// The numbers have a fifth bit.
    fifth: bool,
}

fn recode(
    tensor: &QTensor,
    to: GgmlDType,
    layout: BlockLayout,
) -> Result<(QTensor, Option<Tensor>)> {
    let data = tensor.data()?;
    let head = if layout.offset.is_some() {
        2 * HALF
    } else {
        HALF
    };
    let size = head + if layout.fifth { FIFTH } else { 0 } + LOW;
    let mut blocks = Vec::new();
    let mut scales = Vec::new();
    let mut minima = Vec::new();
    for block in data.chunks_exact(size) {
        let (halves, bits) = block.split_at(head);
        let (scale, minimum) = halves.split_at(HALF);
        scales.extend_from_slice(scale);
        minima.extend_from_slice(minimum);
        blocks.extend_from_slice(scale);
        if layout.fifth {
            let (fifth, low) = bits.split_at(FIFTH);
            let fifth = fifth
                .iter()
                .rev()
                .fold(0u32, |all, byte| (all << 8) | u32::from(*byte));
            let number = |at: usize, four: u8| {
                (i32::from(four | (((fifth >> at) as u8 & 1) << 4)) - 16) as u8
            };
            blocks.extend(
                low.iter()
                    .enumerate()
                    .map(|(at, byte)| number(at, byte & 15)),
            );
            blocks.extend(
                low.iter()
                    .enumerate()
                    .map(|(at, byte)| number(at + LOW, byte >> 4)),
            );
        } else {
            blocks.extend_from_slice(bits);
        }
    }
    let weight = QTensor::new(
        QStorage::from_data(Cow::Owned(blocks), &Device::Cpu, to)?,
        tensor.shape().clone(),
    )?;
    let Some(offset) = layout.offset else {
        return Ok((weight, None));
    };
    let (outputs, inputs) = tensor.shape().dims2()?;
    let plain = |halves: &[u8]| {
        Tensor::from_raw_buffer(halves, DType::F16, &[outputs, inputs / BLOCK], &Device::Cpu)?
            .to_dtype(DType::F32)
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
        Tensor::from_vec(
            (0..outputs * inputs).map(number).collect::<Vec<_>>(),
            (outputs, inputs),
            &Device::Cpu,
        )
        .unwrap()
    }

    fn apart(a: &Tensor, b: &Tensor) -> f32 {
        let largest = b
            .abs()
            .unwrap()
            .max_all()
            .unwrap()
            .to_scalar::<f32>()
            .unwrap();
        (a - b)
            .unwrap()
            .abs()
            .unwrap()
            .max_all()
            .unwrap()
            .to_scalar::<f32>()
            .unwrap()
            / largest
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
            let recoded = QuantizedMatrix::new(tensor).unwrap();
            assert_eq!(recoded.weight.dtype(), to, "{from:?}");
            let rows = recoded.rows(&ids).unwrap();
            assert!(
                apart(&rows, &truth.index_select(&ids, 0).unwrap()) < 1e-6,
                "{from:?}"
            );
            let x = matrix(3, 96).affine(0.5, 0.1).unwrap();
            let product = recoded.product(&x).unwrap();
            // The library rounds the input to 8 bits.
            assert!(
                apart(&product, &x.matmul(&truth.t().unwrap()).unwrap()) < 0.01,
                "{from:?}"
            );
        }
    }

    #[test]
    #[ignore = "prints times"]
    #[expect(clippy::print_stdout, reason = "the times are its result")]
    fn times() {
        let x = matrix(1, 2048);
        for kind in [
            GgmlDType::Q4_0,
            GgmlDType::Q4_1,
            GgmlDType::Q5_0,
            GgmlDType::Q5_1,
            GgmlDType::Q8_0,
            GgmlDType::Q4K,
            GgmlDType::Q6K,
        ] {
            let tensor = || QTensor::quantize(&matrix(2048, 2048), kind).unwrap();
            let plain = QuantizedMatrix {
                weight: Arc::new(tensor()),
                offsets: None,
            };
            let fast = QuantizedMatrix::new(tensor()).unwrap();
            let time = |own: &QuantizedMatrix| {
                let best = (0..20).map(|_| {
                    let began = std::time::Instant::now();
                    (0..5).for_each(|_| _ = own.product(&x).unwrap());
                    began.elapsed().as_micros() / 5
                });
                best.min().unwrap()
            };
            println!(
                "{kind:?}: library {} us, here {} us",
                time(&plain),
                time(&fast)
            );
        }
    }
}
