//! Where weights come from.

use crate::error::LocalError;
use crate::model::linear::Matrix;
use candle_core::{DType, Device, Tensor};
use llmscen_core::seed::Seed;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
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
pub struct LoadTally {
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

impl LoadTally {
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

/// Weights that are drawn, each tensor from a stream of its own.
#[derive(Debug)]
pub struct RandomWeights {
    seed: Seed,
    dtype: DType,
    device: Device,
    /// What it took.
    pub tally: LoadTally,
}

impl RandomWeights {
    /// Those of a seed.
    pub fn new(seed: Seed, dtype: DType, device: Device) -> RandomWeights {
        RandomWeights { seed: seed.child("weights"), dtype, device, tally: LoadTally::default() }
    }
}

/// Numbers between -`bound` and `bound`, all as likely. Only sums and products of exact numbers, so that they are the same on
/// every machine.
fn numbers(seed: Seed, count: usize, bound: f32) -> Vec<f32> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed.0);
    let mut next = || (rng.next_u32() >> 8) as f32 / (1u32 << 23) as f32 - 1.0;
    (0..count).map(|_| next() * bound).collect()
}

impl Weights for RandomWeights {
    fn matrix(&mut self, name: &str, shape: &[usize; 2]) -> Result<Matrix, LocalError> {
        // A variance of one over the inputs keeps states as large as they are; embeddings have no inputs.
        let inputs = if name.ends_with("embed_tokens") { 1 } else { shape[1] };
        let count = shape.iter().product();
        let seed = self.seed.child(name);
        let values = timed(&mut self.tally.read, || Ok::<_, LocalError>(numbers(seed, count, (3.0 / inputs as f32).sqrt())))?;
        let tensor = Tensor::from_vec(values, shape.as_slice(), &Device::Cpu)?;
        Ok(Matrix::Dense(self.tally.placed(&tensor, self.dtype, &self.device)?))
    }

    fn vector(&mut self, _: &str, width: usize) -> Result<Tensor, LocalError> {
        let ones = Tensor::ones(width, DType::F32, &Device::Cpu)?;
        Ok(self.tally.placed(&ones, self.dtype, &self.device)?)
    }

    fn computes(&self) -> (DType, Device) {
        (self.dtype, self.device.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_draws_the_same_numbers_everywhere() {
        let drawn = numbers(Seed(42).child("weights").child("lm_head"), 4096, 2.0);
        let first: Vec<u32> = drawn[..3].iter().map(|each| each.to_bits()).collect();
        assert_eq!(first, [1_053_843_624, 3_213_219_308, 3_212_802_900]);
        assert!(drawn.iter().all(|each| (-2.0..2.0).contains(each)));
        let mean: f32 = drawn.iter().sum::<f32>() / 4096.0;
        let square = drawn.iter().map(|each| each * each).sum::<f32>() / 4096.0;
        assert!(mean.abs() < 0.06 && (square - 4.0 / 3.0).abs() < 0.08, "{mean} {square}");
    }
}
