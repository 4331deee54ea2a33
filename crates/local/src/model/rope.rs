//! Rotary positions (Su et al. 2021, "RoFormer").

use crate::model::config::Config;
use candle_core::{Device, Result, Tensor};

/// What became of the frequencies for a longer context.
#[derive(Clone, Debug, PartialEq)]
pub enum Scaling {
    /// Nothing.
    None,
    /// All divided.
    Linear {
        /// By this.
        factor: f64,
    },
    /// Those of Llama 3.1: long waves divided, short ones left, those between in proportion.
    Llama3 {
        /// By which long waves are divided.
        factor: f64,
        /// Waves longer than `original / low` are long.
        low: f64,
        /// Those shorter than `original / high` are short.
        high: f64,
        /// Positions of the context before.
        original: f64,
    },
    /// Each divided by its own, as GGUF files bring them.
    Each(Vec<f32>),
}

/// Sines and cosines of the first positions, of all the heads' frequencies, in 32 bits.
#[derive(Debug)]
pub struct Rope {
    frequencies: Vec<f32>,
    positions: usize,
    cos: Tensor,
    sin: Tensor,
}

/// The steps in which the table grows.
const BLOCK: usize = 1024;

impl Rope {
    /// The frequencies of a model, with a table that is empty.
    pub fn new(config: &Config, device: &Device) -> Result<Rope> {
        let frequencies = frequencies(config);
        let empty = Tensor::zeros((0, frequencies.len()), candle_core::DType::F32, device)?;
        Ok(Rope { frequencies, positions: 0, cos: empty.clone(), sin: empty })
    }

    /// Makes the table that long at least.
    pub fn reach(&mut self, positions: usize, dtype: candle_core::DType, device: &Device) -> Result<()> {
        if positions <= self.positions {
            return Ok(());
        }
        let positions = positions.next_multiple_of(BLOCK);
        // The product is rounded to 32 bits, as the models were trained with.
        let angles = (0..positions).flat_map(|at| self.frequencies.iter().map(move |each| f64::from(at as f32 * each)));
        let (cos, sin): (Vec<f32>, Vec<f32>) = angles.map(|angle| (angle.cos() as f32, angle.sin() as f32)).unzip();
        let table = |values: Vec<f32>| {
            Tensor::from_vec(values, (positions, self.frequencies.len()), &Device::Cpu)?.to_dtype(dtype)?.to_device(device)
        };
        (self.cos, self.sin) = (table(cos)?, table(sin)?);
        self.positions = positions;
        Ok(())
    }

    /// The cosines and sines of `count` positions from `start` on, the same for all rows.
    pub fn run(&self, start: usize, count: usize) -> Result<(Tensor, Tensor)> {
        Ok((self.cos.narrow(0, start, count)?, self.sin.narrow(0, start, count)?))
    }

    /// Those of one position of each row.
    pub fn each(&self, positions: &[u32], device: &Device) -> Result<(Tensor, Tensor)> {
        let at = Tensor::new(positions, device)?;
        Ok((self.cos.index_select(&at, 0)?.unsqueeze(1)?, self.sin.index_select(&at, 0)?.unsqueeze(1)?))
    }
}

/// Radians that each pair of a head turns per position.
fn frequencies(config: &Config) -> Vec<f32> {
    let pairs = config.head_dim / 2;
    let plain = (0..pairs).map(|pair| config.theta.powf(-(2.0 * pair as f64) / config.head_dim as f64));
    match &config.scaling {
        Scaling::None => plain.map(|each| each as f32).collect(),
        Scaling::Linear { factor } => plain.map(|each| (each / factor) as f32).collect(),
        Scaling::Each(factors) => plain.zip(factors).map(|(each, factor)| (each / f64::from(*factor)) as f32).collect(),
        Scaling::Llama3 { factor, low, high, original } => {
            let scaled = |each: f64| {
                let turns = original * each / std::f64::consts::TAU;
                let share = ((turns - low) / (high - low)).clamp(0.0, 1.0);
                (1.0 - share) * each / factor + share * each
            };
            plain.map(|each| scaled(each) as f32).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::config;

    fn config(scaling: Scaling) -> Config {
        Config { head_dim: 8, theta: 10_000.0, scaling, ..config::tiny(10) }
    }

    #[test]
    fn frequencies_fall_by_the_base() {
        assert_eq!(frequencies(&config(Scaling::None)), [1.0, 0.1, 0.01, 0.001]);
        assert_eq!(frequencies(&config(Scaling::Linear { factor: 4.0 })), [0.25, 0.025, 0.0025, 0.00025]);
        assert_eq!(frequencies(&config(Scaling::Each(vec![1.0, 2.0, 4.0, 8.0]))), [1.0, 0.05, 0.0025, 0.000_125]);
    }

    #[test]
    fn llama_3_divides_long_waves_only() {
        // Waves of 6.28, 62.8, 628 and 6283 positions; short up to 64 / 4, long from 640 / 1.
        let scaling = Scaling::Llama3 { factor: 8.0, low: 1.0, high: 40.0, original: 640.0 };
        let [short, between, almost, long] = frequencies(&config(scaling))[..] else { panic!() };
        assert_eq!((short, long), (1.0, 0.000_125));
        // 640 * 0.1 / TAU = 10.186 turns: 9.186 / 39 of the way to short.
        assert!((between - (0.1 * (0.764_46 / 8.0 + 0.235_54))).abs() < 1e-6, "{between}");
        // 1.0186 turns: 0.0186 / 39.
        assert!((almost - (0.01 * (0.999_523 / 8.0 + 0.000_477))).abs() < 1e-7, "{almost}");
    }

    #[test]
    fn the_table_holds_each_position() {
        let mut rope = Rope::new(&config(Scaling::None), &Device::Cpu).unwrap();
        rope.reach(3, candle_core::DType::F32, &Device::Cpu).unwrap();
        let (cos, _) = rope.run(2, 1).unwrap();
        assert_eq!(cos.to_vec2::<f32>().unwrap()[0][0], 2f64.cos() as f32);
        let (_, sin) = rope.each(&[0, 5], &Device::Cpu).unwrap();
        assert_eq!(sin.dims(), [2, 1, 4]);
        assert_eq!(sin.to_vec3::<f32>().unwrap()[1][0][1], f64::from(5.0f32 * 0.1).sin() as f32);
    }
}
