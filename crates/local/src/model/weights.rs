//! Sources of weights.

use crate::error::LocalError;
use crate::model::linear::Matrix;
use candle_core::{DType, Device, Tensor};
use llmscen_core::seed::Seed;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::time::{Duration, Instant};

/// The weights of a model by their names in Hugging Face files.
pub trait Weights {
    /// The matrix `NAME.weight`, one row per output.
    fn matrix(&mut self, name: &str, shape: &[usize; 2]) -> Result<Matrix, LocalError>;
    /// A vector by its full name.
    fn vector(&mut self, name: &str, width: usize) -> Result<Tensor, LocalError>;
    /// Compute dtype and device.
    fn target(&self) -> (DType, Device);
}

/// Durations and sizes of the loading.
#[derive(Clone, Copy, Debug, Default)]
pub struct LoadTally {
    /// Reading files.
    pub read: Duration,
    /// Conversion to the compute dtype.
    pub convert: Duration,
    /// Copying to the device.
    pub place: Duration,
    /// Number of parameters.
    pub parameters: u64,
    /// Bytes on the device.
    pub bytes: u64,
}

/// Runs `work` and adds its duration.
pub fn timed<T, E>(span: &mut Duration, work: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
    let start = Instant::now();
    let result = work();
    *span += start.elapsed();
    result
}

impl LoadTally {
    /// Converts a CPU tensor, copies it to the device, and counts it.
    pub fn place_tensor(
        &mut self,
        tensor: &Tensor,
        dtype: DType,
        device: &Device,
    ) -> candle_core::Result<Tensor> {
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

/// Random weights, each tensor from a separate random stream.
#[derive(Debug)]
pub struct RandomWeights {
    seed: Seed,
    dtype: DType,
    device: Device,
    pub tally: LoadTally,
}

impl RandomWeights {
    pub fn new(seed: Seed, dtype: DType, device: Device) -> RandomWeights {
        RandomWeights {
            seed: seed.child("weights"),
            dtype,
            device,
            tally: LoadTally::default(),
        }
    }
}

/// Uniform numbers between -`bound` and `bound`. Only exact operations are used, so they are equal on every machine.
fn uniform_numbers(seed: Seed, count: usize, bound: f32) -> Vec<f32> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed.0);
    let mut next = || (rng.next_u32() >> 8) as f32 / (1u32 << 23) as f32 - 1.0;
    (0..count).map(|_| next() * bound).collect()
}

impl Weights for RandomWeights {
    fn matrix(&mut self, name: &str, shape: &[usize; 2]) -> Result<Matrix, LocalError> {
        // A variance of 1 / inputs preserves the magnitude of states; embeddings have no inputs.
        let inputs = if name.ends_with("embed_tokens") {
            1
        } else {
            shape[1]
        };
        let count = shape.iter().product();
        let seed = self.seed.child(name);
        let values = timed(&mut self.tally.read, || {
            Ok::<_, LocalError>(uniform_numbers(seed, count, (3.0 / inputs as f32).sqrt()))
        })?;
        let tensor = Tensor::from_vec(values, shape.as_slice(), &Device::Cpu)?;
        Ok(Matrix::Dense(self.tally.place_tensor(
            &tensor,
            self.dtype,
            &self.device,
        )?))
    }

    fn vector(&mut self, _: &str, width: usize) -> Result<Tensor, LocalError> {
        let ones = Tensor::ones(width, DType::F32, &Device::Cpu)?;
        Ok(self.tally.place_tensor(&ones, self.dtype, &self.device)?)
    }

    fn target(&self) -> (DType, Device) {
        (self.dtype, self.device.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_draws_the_same_numbers_everywhere() {
        let drawn = uniform_numbers(Seed(42).child("weights").child("lm_head"), 4096, 2.0);
        let first: Vec<u32> = drawn[..3].iter().map(|each| each.to_bits()).collect();
        assert_eq!(first, [1_053_843_624, 3_213_219_308, 3_212_802_900]);
        assert!(drawn.iter().all(|each| (-2.0..2.0).contains(each)));
        let mean: f32 = drawn.iter().sum::<f32>() / 4096.0;
        let square = drawn.iter().map(|each| each * each).sum::<f32>() / 4096.0;
        assert!(
            mean.abs() < 0.06 && (square - 4.0 / 3.0).abs() < 0.08,
            "{mean} {square}"
        );
    }
}
