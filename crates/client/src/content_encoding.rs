//! The codings of a response's content (RFC 9110, section 8.4), undone while its bytes arrive.
//!
//! What can be read of a frame is handed on at once, so that an event has the stamp of the socket read that brought it.

use flate2::{Decompress, FlushDecompress, Status};
use http::HeaderMap;
use http::header::CONTENT_ENCODING;
use llmscen_core::outcome::{Failure, FailureKind};
use llmscen_core::target::Compression;
use zstd::stream::raw::{DParameter, Decoder, InBuffer, Operation, OutBuffer};

#[cfg(test)]
mod tests;

/// Bytes that one step of a coding yields at the most: a frame is never unpacked into memory as a whole.
const STEP: usize = 32 << 10;
/// Codings one inside the other; more of them serve nobody but an attacker.
const DEEPEST: usize = 4;
/// Bytes that a coding yields over a whole response, at the most: tens of times the longest answer with all its log
/// probabilities. Without it, a few megabytes could keep a lane busy for minutes.
const YIELD: u64 = 1 << 30;

/// One coding, undone step by step.
trait Coding {
    /// Its name in `content-encoding`.
    fn name(&self) -> &'static str;

    /// Takes bytes from the front of `input` and writes what they come to. What was written before an error counts.
    fn step(&mut self, input: &[u8], output: &mut [u8]) -> (Step, Result<(), String>);

    /// Whether nothing has begun that lacks its end.
    fn complete(&self) -> bool;
}

/// How far a step came, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Step {
    read: usize,
    written: usize,
}

/// Undoes the codings of one response.
#[derive(Default)]
pub(super) struct Unpacker {
    stages: Vec<Stage>,
}

struct Stage {
    coding: Box<dyn Coding>,
    output: Box<[u8]>,
    /// Bytes that it may still yield.
    left: u64,
}

impl Unpacker {
    /// What undoes the codings that these headers name; nothing, where they name none.
    ///
    /// # Errors
    /// `decode` for a coding that is not known here.
    pub fn of(headers: &HeaderMap) -> Result<Unpacker, Failure> {
        let lines = headers.get_all(CONTENT_ENCODING).iter();
        let text: Vec<String> = lines.map(|line| String::from_utf8_lossy(line.as_bytes()).to_ascii_lowercase()).collect();
        let names = text.iter().flat_map(|line| line.split(',')).map(str::trim);
        let names: Vec<&str> = names.filter(|name| !name.is_empty() && *name != "identity").collect();
        if names.len() > DEEPEST {
            return Err(Failure::new(FailureKind::Decode, format!("the response is compressed {} times over", names.len())));
        }
        // They stand in the order in which they were applied.
        let stages = names.into_iter().rev().map(Stage::named).collect::<Result<_, _>>()?;
        Ok(Unpacker { stages })
    }

    /// Whether there is nothing to undo.
    pub fn is_plain(&self) -> bool {
        self.stages.is_empty()
    }

    /// Undoes the codings of these bytes and hands what they come to on, in slices.
    ///
    /// # Errors
    /// `decode` where the bytes are no such coding. Everything before the fault was handed on.
    pub fn push(&mut self, bytes: &[u8], sink: &mut dyn FnMut(&[u8])) -> Result<(), Failure> {
        pass(&mut self.stages, bytes, sink)
    }

    /// Whether the body may end here.
    ///
    /// # Errors
    /// `truncated` where a coding lacks its end.
    pub fn finish(&self) -> Result<(), Failure> {
        match self.stages.iter().find(|stage| !stage.coding.complete()) {
            Some(stage) => Err(Failure::new(
                FailureKind::Truncated,
                format!("the body ended in the middle of its {} data", stage.coding.name()),
            )),
            None => Ok(()),
        }
    }
}

impl Stage {
    fn named(name: &str) -> Result<Stage, Failure> {
        let coding: Box<dyn Coding> = match name {
            "gzip" | "x-gzip" => Box::new(Deflate::gzip()),
            "deflate" => Box::new(Deflate::zlib()),
            "zstd" => Box::new(Zstd::new().map_err(|why| broken("zstd", &why))?),
            other => {
                let why = format!("the response is compressed with `{other}`; only gzip, deflate and zstd are read");
                return Err(Failure::new(FailureKind::Decode, why));
            }
        };
        Ok(Stage { coding, output: vec![0; STEP].into_boxed_slice(), left: YIELD })
    }
}

fn pass(stages: &mut [Stage], mut bytes: &[u8], sink: &mut dyn FnMut(&[u8])) -> Result<(), Failure> {
    let Some((stage, inner)) = stages.split_first_mut() else {
        sink(bytes);
        return Ok(());
    };
    loop {
        let (step, verdict) = stage.coding.step(bytes, &mut stage.output);
        let spent = stage.left.checked_sub(step.written as u64);
        if step.written > 0 {
            pass(inner, &stage.output[..step.written], sink)?;
        }
        let name = stage.coding.name();
        verdict.map_err(|why| broken(name, &why))?;
        stage.left = spent.ok_or_else(|| {
            let why = format!("the {name} data comes to more than {} GiB", YIELD >> 30);
            Failure::new(FailureKind::Decode, why)
        })?;
        bytes = &bytes[step.read..];
        let full = step.written == stage.output.len();
        if bytes.is_empty() && !full {
            return Ok(());
        }
        if step == Step::default() {
            return Err(broken(name, "it does not go on"));
        }
    }
}

fn broken(name: &str, why: &str) -> Failure {
    Failure::new(FailureKind::Decode, format!("the {name} data cannot be read: {why}"))
}

/// The `accept-encoding` of every request. Without one, RFC 9110 (section 12.5.3) lets a server choose any coding; so
/// that none is used where none is wanted, `identity` is said.
pub(super) fn accepted(compression: Compression) -> &'static str {
    match compression {
        Compression::None => "identity",
        Compression::Gzip => "gzip",
        Compression::Zstd => "zstd",
        Compression::Any => "zstd, gzip",
    }
}

/// The window of both, as a power of two.
const DEFLATE_WINDOW: u8 = 15;

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
        Format::Gzip => Decompress::new_gzip(DEFLATE_WINDOW),
        // The method in a zlib header is always 8, with a window of at most 2^(7 + 8).
        Format::Deflate => Decompress::new(first & 0x0f == 8 && first >> 4 <= 7),
    }
}

/// The largest window that a server may ask for, as a power of two: 8 MiB (RFC 9659).
const ZSTD_WINDOW: u32 = 23;

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
            decoder.set_parameter(DParameter::WindowLogMax(ZSTD_WINDOW))?;
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
