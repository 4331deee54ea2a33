//! zstd (RFC 8878).

use crate::content_encoding::{Coding, Step};
use zstd::stream::raw::{DParameter, Decoder, InBuffer, Operation, OutBuffer};

/// The largest window that a server may ask for, as a power of two: 8 MiB (RFC 9659).
const WINDOW: u32 = 23;

/// Bytes of the header in front of each block.
const HEADER: usize = 3;

/// The zstd coding.
pub(super) struct Zstd {
    decoder: Decoder<'static>,
    /// Bytes up to the end of the block in hand and of the header after it; 0 between frames.
    missing: usize,
}

impl Zstd {
    /// # Errors
    /// No memory.
    pub fn new() -> Result<Zstd, String> {
        let begin = || {
            let mut decoder = Decoder::new()?;
            decoder.set_parameter(DParameter::WindowLogMax(WINDOW))?;
            Ok(decoder)
        };
        let decoder = begin().map_err(|error: std::io::Error| error.to_string())?;
        Ok(Zstd { decoder, missing: 0 })
    }
}

impl Coding for Zstd {
    fn name(&self) -> &'static str {
        "zstd"
    }

    fn step(&mut self, input: &[u8], output: &mut [u8]) -> (Step, Result<(), String>) {
        if input.is_empty() && self.missing == 0 {
            return (Step::default(), Ok(()));
        }
        // Block by block: of a call that fails, the blocks before the broken one would be lost.
        let end = if self.missing > HEADER { self.missing - HEADER } else { self.missing.max(1) };
        let block = &input[..input.len().min(end)];
        let (mut from, mut to) = (InBuffer::around(block), OutBuffer::around(output));
        let left = self.decoder.run(&mut from, &mut to);
        let step = Step { read: from.pos(), written: to.pos() };
        if let Ok(left) = left {
            self.missing = left;
        }
        (step, left.map(drop).map_err(|error| error.to_string()))
    }

    fn complete(&self) -> bool {
        self.missing == 0
    }
}
