//! Where weights come from.

pub mod folder;
pub mod gguf;
pub mod random_weights;

use super::linear::Matrix;
use crate::error::LocalError;
use candle_core::{DType, Device, Tensor};
use std::time::{Duration, Instant};

/// The weights of a model under the names that Hugging Face's files give them.
pub trait Weights {
    /// The matrix `NAME.weight`, a row for each output.
    fn matrix(&mut self, name: &str, shape: &[usize; 2]) -> Result<Matrix, LocalError>;
    /// A vector, by its whole name.
    fn vector(&mut self, name: &str, width: usize) -> Result<Tensor, LocalError>;
    /// In which numbers it is computed with them, and where.
    fn computes(&self) -> (DType, Device);
}

/// What loading took so far, and what it brought.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    /// Reading files.
    pub read: Duration,
    /// Making the numbers those that are computed with.
    pub convert: Duration,
    /// Bringing them to the device.
    pub place: Duration,
    /// Numbers.
    pub parameters: u64,
    /// Their bytes on the device.
    pub bytes: u64,
}

/// Runs `work` and adds what it took.
pub fn timed<T, E>(span: &mut Duration, work: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
    let start = Instant::now();
    let done = work();
    *span += start.elapsed();
    done
}

impl Tally {
    /// Makes a tensor of the processor one of the device and counts it.
    pub fn placed(&mut self, tensor: &Tensor, dtype: DType, device: &Device) -> candle_core::Result<Tensor> {
        let tensor = timed(&mut self.convert, || tensor.to_dtype(dtype))?;
        let tensor = timed(&mut self.place, || {
            let tensor = tensor.to_device(device)?;
            device.synchronize().map(|()| tensor)
        })?;
        self.parameters += tensor.elem_count() as u64;
        self.bytes += (tensor.elem_count() * dtype.size_in_bytes()) as u64;
        Ok(tensor)
    }
}
