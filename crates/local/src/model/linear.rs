//! Products with weights.

use super::recode::Recoded;
use candle_core::{Result, Tensor};

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
