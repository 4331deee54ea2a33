//! gzip (RFC 1952) and deflate (RFC 1950, and RFC 1951 bare, which some servers send under that name).

use crate::content_encoding::{Coding, Step};
use flate2::{Decompress, FlushDecompress, Status};

/// The window of both, as a power of two.
const WINDOW: u8 = 15;

enum Format {
    Gzip,
    Deflate,
}

/// One of the codings that are deflate inside.
pub(super) struct Deflate {
    format: Format,
    /// None: before the first byte, and between the members of a gzip body.
    inflate: Option<Decompress>,
    over: bool,
}

impl Deflate {
    pub fn gzip() -> Deflate {
        Deflate { format: Format::Gzip, inflate: None, over: false }
    }

    pub fn zlib() -> Deflate {
        Deflate { format: Format::Deflate, inflate: None, over: false }
    }
}

impl Coding for Deflate {
    fn name(&self) -> &'static str {
        match self.format {
            Format::Gzip => "gzip",
            Format::Deflate => "deflate",
        }
    }

    fn step(&mut self, input: &[u8], output: &mut [u8]) -> (Step, Result<(), String>) {
        let Some(first) = input.first().or(self.inflate.is_some().then_some(&0)) else {
            return (Step::default(), Ok(()));
        };
        if self.over {
            return (Step { read: input.len(), written: 0 }, Ok(()));
        }
        let inflate = self.inflate.get_or_insert_with(|| begin(&self.format, *first));
        let (before_in, before_out) = (inflate.total_in(), inflate.total_out());
        let status = inflate.decompress(input, output, FlushDecompress::None);
        let read = (inflate.total_in() - before_in) as usize;
        let step = Step { read, written: (inflate.total_out() - before_out) as usize };
        if matches!(status, Ok(Status::StreamEnd)) {
            self.inflate = None;
            // A gzip body may go on with another member, deflate is over.
            self.over = matches!(self.format, Format::Deflate);
        }
        (step, status.map(drop).map_err(|error| error.to_string()))
    }

    fn complete(&self) -> bool {
        self.inflate.is_none()
    }
}

fn begin(format: &Format, first: u8) -> Decompress {
    match format {
        Format::Gzip => Decompress::new_gzip(WINDOW),
        // The method in a zlib header is always 8, with a window of at most 2^(7 + 8).
        Format::Deflate => Decompress::new(first & 0x0f == 8 && first >> 4 <= 7),
    }
}
