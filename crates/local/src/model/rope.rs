//! Rotary positions (Su et al. 2021, "RoFormer").

use crate::model::config::{Config, Scaling};
use candle_core::{Device, Result, Tensor};

/// Table of the cosines and sines of positions.
#[derive(Debug)]
pub struct Rope {
    frequencies: Vec<f32>,
    positions: usize,
    cos: Tensor,
    sin: Tensor,
}

/// Positions by which the table grows.
const BLOCK: usize = 1024;

impl Rope {
    /// An empty table for a model.
    pub fn new(config: &Config, device: &Device) -> Result<Rope> {
        let frequencies = frequencies(config);
        let empty = Tensor::zeros((0, frequencies.len()), candle_core::DType::F32, device)?;
        Ok(Rope {
            frequencies,
            positions: 0,
            cos: empty.clone(),
            sin: empty,
        })
    }

    /// Grows the table to at least `positions`.
    pub fn extend_to(
        &mut self,
        positions: usize,
        dtype: candle_core::DType,
        device: &Device,
    ) -> Result<()> {
        if positions <= self.positions {
            return Ok(());
        }
        let positions = positions.next_multiple_of(BLOCK);
        // The product is rounded to f32, as in training.
        let angles = (0..positions).flat_map(|at| {
            self.frequencies
                .iter()
                .map(move |each| f64::from(at as f32 * each))
        });
        let (cos, sin): (Vec<f32>, Vec<f32>) = angles
            .map(|angle| (angle.cos() as f32, angle.sin() as f32))
            .unzip();
        let table = |values: Vec<f32>| {
            Tensor::from_vec(values, (positions, self.frequencies.len()), &Device::Cpu)?
                .to_dtype(dtype)?
                .to_device(device)
        };
        self.cos = table(cos)?;
        self.sin = table(sin)?;
        self.positions = positions;
        Ok(())
    }

    /// Cosines and sines of `count` positions from `start`, for all rows.
    pub fn range(&self, start: usize, count: usize) -> Result<(Tensor, Tensor)> {
        Ok((
            self.cos.narrow(0, start, count)?,
            self.sin.narrow(0, start, count)?,
        ))
    }

    /// Cosines and sines of one position per row.
    pub fn at_positions(&self, positions: &[u32], device: &Device) -> Result<(Tensor, Tensor)> {
        let at = Tensor::new(positions, device)?;
        Ok((
            self.cos.index_select(&at, 0)?.unsqueeze(1)?,
            self.sin.index_select(&at, 0)?.unsqueeze(1)?,
        ))
    }
}

/// Rotation of each pair of a head, in radians per position.
fn frequencies(config: &Config) -> Vec<f32> {
    let pairs = config.head_dim / 2;
    let plain = (0..pairs).map(|pair| {
        config
            .theta
            .powf(-(2.0 * pair as f64) / config.head_dim as f64)
    });
    match &config.scaling {
        Scaling::None => plain.map(|each| each as f32).collect(),
        Scaling::Linear { factor } => plain.map(|each| (each / factor) as f32).collect(),
        Scaling::PerFrequency(factors) => plain
            .zip(factors)
            .map(|(each, factor)| (each / f64::from(*factor)) as f32)
            .collect(),
        Scaling::Llama3 {
            factor,
            low,
            high,
            original,
        } => {
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
        Config {
            head_dim: 8,
            theta: 10_000.0,
            scaling,
            ..config::tiny(10)
        }
    }

    #[test]
    fn frequencies_fall_by_the_base() {
        assert_eq!(frequencies(&config(Scaling::None)), [1.0, 0.1, 0.01, 0.001]);
        assert_eq!(
            frequencies(&config(Scaling::Linear { factor: 4.0 })),
            [0.25, 0.025, 0.0025, 0.00025]
        );
        assert_eq!(
            frequencies(&config(Scaling::PerFrequency(vec![1.0, 2.0, 4.0, 8.0]))),
            [1.0, 0.05, 0.0025, 0.000_125]
        );
    }

    #[test]
    fn llama_3_divides_long_waves_only() {
        // Waves of 6.28, 62.8, 628 and 6283 positions; short up to 64 / 4, long from 640 / 1.
        let scaling = Scaling::Llama3 {
            factor: 8.0,
            low: 1.0,
            high: 40.0,
            original: 640.0,
        };
        let [short, between, almost, long] = frequencies(&config(scaling))[..] else {
            panic!()
        };
        assert_eq!((short, long), (1.0, 0.000_125));
        // 640 * 0.1 / TAU = 10.186 turns: 9.186 / 39 of the way to short.
        assert!(
            (between - (0.1 * (0.764_46 / 8.0 + 0.235_54))).abs() < 1e-6,
            "{between}"
        );
        // 1.0186 turns: 0.0186 / 39.
        assert!(
            (almost - (0.01 * (0.999_523 / 8.0 + 0.000_477))).abs() < 1e-7,
            "{almost}"
        );
    }

    #[test]
    fn the_table_has_each_position() {
        let mut rope = Rope::new(&config(Scaling::None), &Device::Cpu).unwrap();
        rope.extend_to(3, candle_core::DType::F32, &Device::Cpu)
            .unwrap();
        let (cos, _) = rope.range(2, 1).unwrap();
        assert_eq!(cos.to_vec2::<f32>().unwrap()[0][0], 2f64.cos() as f32);
        let (_, sin) = rope.at_positions(&[0, 5], &Device::Cpu).unwrap();
        assert_eq!(sin.dims(), [2, 1, 4]);
        assert_eq!(
            sin.to_vec3::<f32>().unwrap()[1][0][1],
            f64::from(5.0f32 * 0.1).sin() as f32
        );
    }
}
