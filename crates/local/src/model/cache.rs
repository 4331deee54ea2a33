//! Keys and values of the positions that were worked on.

use candle_core::{DType, Device, Result, Tensor};

/// The steps in which the room grows, positions.
const BLOCK: usize = 256;

/// What a cache is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Width {
    /// Layers.
    pub layers: usize,
    /// Heads of keys and values.
    pub heads: usize,
    /// Numbers of a head.
    pub head_dim: usize,
}

/// Keys and values of each layer, as rows × heads × room × width of a head. New ones are set in their place; what stands is
/// copied only when the room grows.
#[derive(Debug)]
pub struct Cache {
    width: Width,
    rows: usize,
    room: usize,
    layers: Vec<(Tensor, Tensor)>,
}

impl Cache {
    /// Room for `rows` of `positions`.
    pub fn new(width: Width, rows: usize, positions: usize, dtype: DType, device: &Device) -> Result<Cache> {
        let room = positions.next_multiple_of(BLOCK);
        let empty = || Tensor::zeros((rows, width.heads, room, width.head_dim), dtype, device);
        let layers = (0..width.layers).map(|_| Ok((empty()?, empty()?))).collect::<Result<_>>()?;
        Ok(Cache { width, rows, room, layers })
    }

    /// Whether so many rows have room for so many positions.
    pub fn fits(&self, rows: usize, positions: usize) -> bool {
        self.rows == rows && self.room >= positions
    }

    /// Makes room for `positions`, by half of what there was at the least, so that copies stay few.
    pub fn reach(&mut self, positions: usize) -> Result<()> {
        if positions <= self.room {
            return Ok(());
        }
        let room = positions.max(self.room + self.room / 2).next_multiple_of(BLOCK);
        for (keys, values) in &mut self.layers {
            for each in [keys, values] {
                let wider = Tensor::zeros((self.rows, self.width.heads, room, self.width.head_dim), each.dtype(), each.device())?;
                wider.slice_set(each, 2, 0)?;
                *each = wider;
            }
        }
        self.room = room;
        Ok(())
    }

    /// Sets keys and values of a layer, rows × heads × positions × width, from position `start` on, and gives all up to
    /// their end.
    pub fn put(&self, layer: usize, start: usize, keys: &Tensor, values: &Tensor) -> Result<(Tensor, Tensor)> {
        let Some((all_keys, all_values)) = self.layers.get(layer) else { candle_core::bail!("there is no layer {layer}") };
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
    fn what_was_put_stays_when_the_room_grows() {
        let width = Width { layers: 1, heads: 2, head_dim: 2 };
        let mut cache = Cache::new(width, 2, 3, DType::F32, &Device::Cpu).unwrap();
        let some = |from: f32, positions: usize| {
            let count = (8 * positions) as f32;
            Tensor::arange(from, from + count, &Device::Cpu).unwrap().reshape((2, 2, positions, 2)).unwrap()
        };
        cache.put(0, 0, &some(0.0, 255), &some(9000.0, 255)).unwrap();
        assert!(cache.fits(2, 256) && !cache.fits(2, 257) && !cache.fits(1, 1));
        cache.reach(257).unwrap();
        assert!(cache.fits(2, 512));
        let (keys, values) = cache.put(0, 255, &some(5000.0, 2), &some(6000.0, 2)).unwrap();
        assert_eq!(keys.dims(), [2, 2, 257, 2]);
        let row =
            |tensor: &Tensor, position: usize| tensor.get(1).unwrap().get(1).unwrap().to_vec2::<f32>().unwrap()[position].clone();
        assert_eq!((row(&keys, 254), row(&keys, 256)), (vec![2038.0, 2039.0], vec![5014.0, 5015.0]));
        assert_eq!(row(&values, 0), [9000.0 + 1530.0, 9000.0 + 1531.0]);
    }
}
