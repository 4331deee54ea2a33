//! Content codings of a response (RFC 9110, section 8.4), decoded while its bytes arrive.
//!
//! Whatever can be decoded of a read is passed on at once, so that an event has the timestamp of its own socket read.

use flate2::{Decompress, FlushDecompress, Status};
use http::HeaderMap;
use http::header::CONTENT_ENCODING;
use llmscen_core::outcome::{Failure, FailureKind};
use llmscen_core::target::Compression;
use zstd::stream::raw::{DParameter, Decoder, InBuffer, Operation, OutBuffer};

#[cfg(test)]
mod tests;

/// Output bytes of one decoding step: a read is never decompressed into memory at once.
const OUTPUT_CHUNK: usize = 32 << 10;
/// Nested codings that are accepted; only an attacker sends more.
const MAX_CODINGS: usize = 4;
/// Output bytes of one coding per response: tens of times the longest response with all its log probabilities.
/// Without this limit, a few compressed megabytes could keep a worker busy for minutes.
const MAX_OUTPUT: u64 = 1 << 30;

/// A coding, decoded step by step.
trait Coding {
    /// Name in `content-encoding`.
    fn name(&self) -> &'static str;

    /// Decodes bytes from the front of `input` into `output`. Bytes written before an error are valid.
    fn step(&mut self, input: &[u8], output: &mut [u8]) -> (Progress, Result<(), String>);

    /// Whether the data may end here.
    fn complete(&self) -> bool;
}

/// Bytes that a step read and wrote.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Progress {
    read: usize,
    written: usize,
}

/// Decodes the content of one response.
#[derive(Default)]
pub(super) struct ContentDecoder {
    stages: Vec<Stage>,
}

struct Stage {
    coding: Box<dyn Coding>,
    output: Box<[u8]>,
    /// Output bytes left of its limit.
    budget: u64,
}

impl ContentDecoder {
    /// A decoder of the codings that `headers` name.
    ///
    /// # Errors
    /// `decode` for an unsupported coding.
    pub fn from_headers(headers: &HeaderMap) -> Result<ContentDecoder, Failure> {
        let lines = headers.get_all(CONTENT_ENCODING).iter();
        let text: Vec<String> = lines
            .map(|line| String::from_utf8_lossy(line.as_bytes()).to_ascii_lowercase())
            .collect();
        let names = text.iter().flat_map(|line| line.split(',')).map(str::trim);
        let names: Vec<&str> = names
            .filter(|name| !name.is_empty() && *name != "identity")
            .collect();
        if names.len() > MAX_CODINGS {
            return Err(Failure::new(
                FailureKind::Decode,
                format!("the response is compressed {} times", names.len()),
            ));
        }
        // The header lists codings in the order in which they were applied.
        let stages = names
            .into_iter()
            .rev()
            .map(Stage::new)
            .collect::<Result<_, _>>()?;
        Ok(ContentDecoder { stages })
    }

    /// Whether the content has no coding.
    pub fn is_plain(&self) -> bool {
        self.stages.is_empty()
    }

    /// Decodes `bytes` and passes the content to `sink`, in slices.
    ///
    /// # Errors
    /// `decode` for corrupt data. Everything before the fault was passed on.
    pub fn push(&mut self, bytes: &[u8], sink: &mut dyn FnMut(&[u8])) -> Result<(), Failure> {
        decode(&mut self.stages, bytes, sink)
    }

    /// Whether the body may end here.
    ///
    /// # Errors
    /// `truncated` if compressed data is incomplete.
    pub fn finish(&self) -> Result<(), Failure> {
        match self.stages.iter().find(|stage| !stage.coding.complete()) {
            Some(stage) => Err(Failure::new(
                FailureKind::Truncated,
                format!(
                    "the body ended in the middle of its {} data",
                    stage.coding.name()
                ),
            )),
            None => Ok(()),
        }
    }
}

impl Stage {
    fn new(name: &str) -> Result<Stage, Failure> {
        let coding: Box<dyn Coding> = match name {
            "gzip" | "x-gzip" => Box::new(Deflate::new(Format::Gzip)),
            "deflate" => Box::new(Deflate::new(Format::Deflate)),
            "zstd" => Box::new(Zstd::new().map_err(|why| corrupt("zstd", &why))?),
            other => {
                let why = format!(
                    "the response is compressed with `{other}`; only gzip, deflate and zstd are supported"
                );
                return Err(Failure::new(FailureKind::Decode, why));
            }
        };
        Ok(Stage {
            coding,
            output: vec![0; OUTPUT_CHUNK].into_boxed_slice(),
            budget: MAX_OUTPUT,
        })
    }
}

fn decode(
    stages: &mut [Stage],
    mut bytes: &[u8],
    sink: &mut dyn FnMut(&[u8]),
) -> Result<(), Failure> {
    let Some((stage, inner)) = stages.split_first_mut() else {
        sink(bytes);
        return Ok(());
    };
    loop {
        let (step, result) = stage.coding.step(bytes, &mut stage.output);
        let budget = stage.budget.checked_sub(step.written as u64);
        if step.written > 0 {
            decode(inner, &stage.output[..step.written], sink)?;
        }
        let name = stage.coding.name();
        result.map_err(|why| corrupt(name, &why))?;
        stage.budget = budget.ok_or_else(|| {
            let why = format!(
                "the {name} data decompresses to more than {} GiB",
                MAX_OUTPUT >> 30
            );
            Failure::new(FailureKind::Decode, why)
        })?;
        bytes = &bytes[step.read..];
        let full = step.written == stage.output.len();
        if bytes.is_empty() && !full {
            return Ok(());
        }
        if step == Progress::default() {
            return Err(corrupt(name, "no progress"));
        }
    }
}

fn corrupt(name: &str, why: &str) -> Failure {
    Failure::new(
        FailureKind::Decode,
        format!("the {name} data cannot be read: {why}"),
    )
}

/// The `accept-encoding` of every request. Without the header, a server may choose any coding (RFC 9110, section
/// 12.5.3), so `identity` requests none.
pub(super) fn accept_encoding(compression: Compression) -> &'static str {
    match compression {
        Compression::None => "identity",
        Compression::Gzip => "gzip",
        Compression::Zstd => "zstd",
        Compression::Any => "zstd, gzip",
    }
}

/// Window size of gzip and deflate, as a power of two.
const DEFLATE_WINDOW: u8 = 15;

enum Format {
    Gzip,
    Deflate,
}

/// gzip or deflate.
struct Deflate {
    format: Format,
    /// `None` before the first byte, and between the members of a gzip body.
    inflate: Option<Decompress>,
    /// The data has ended; what follows is ignored.
    finished: bool,
}

impl Deflate {
    fn new(format: Format) -> Deflate {
        Deflate {
            format,
            inflate: None,
            finished: false,
        }
    }
}

impl Coding for Deflate {
    fn name(&self) -> &'static str {
        match self.format {
            Format::Gzip => "gzip",
            Format::Deflate => "deflate",
        }
    }

    fn step(&mut self, input: &[u8], output: &mut [u8]) -> (Progress, Result<(), String>) {
        let Some(first) = input.first().or(self.inflate.is_some().then_some(&0)) else {
            return (Progress::default(), Ok(()));
        };
        if self.finished {
            return (
                Progress {
                    read: input.len(),
                    written: 0,
                },
                Ok(()),
            );
        }
        let inflate = self
            .inflate
            .get_or_insert_with(|| new_inflate(&self.format, *first));
        let (before_in, before_out) = (inflate.total_in(), inflate.total_out());
        let status = inflate.decompress(input, output, FlushDecompress::None);
        let read = (inflate.total_in() - before_in) as usize;
        let step = Progress {
            read,
            written: (inflate.total_out() - before_out) as usize,
        };
        if matches!(status, Ok(Status::StreamEnd)) {
            self.inflate = None;
            // A gzip body may contain another member.
            self.finished = matches!(self.format, Format::Deflate);
        }
        (step, status.map(drop).map_err(|error| error.to_string()))
    }

    fn complete(&self) -> bool {
        self.inflate.is_none()
    }
}

fn new_inflate(format: &Format, first: u8) -> Decompress {
    match format {
        Format::Gzip => Decompress::new_gzip(DEFLATE_WINDOW),
        // "deflate" means zlib, but some servers send raw deflate. A zlib header has method 8 and a window of at most
        // 2^(7 + 8).
        Format::Deflate => Decompress::new(first & 0x0f == 8 && first >> 4 <= 7),
    }
}

/// Largest window of zstd content, as a power of two: 8 MiB (RFC 9659).
const ZSTD_WINDOW: u32 = 23;

/// Size of a zstd block header in bytes.
const BLOCK_HEADER: usize = 3;

struct Zstd {
    decoder: Decoder<'static>,
    /// Bytes to the end of the current block and of the next block's header; 0 between frames.
    missing: usize,
}

impl Zstd {
    fn new() -> Result<Zstd, String> {
        let create = || {
            let mut decoder = Decoder::new()?;
            decoder.set_parameter(DParameter::WindowLogMax(ZSTD_WINDOW))?;
            Ok(decoder)
        };
        let decoder = create().map_err(|error: std::io::Error| error.to_string())?;
        Ok(Zstd {
            decoder,
            missing: 0,
        })
    }
}

impl Coding for Zstd {
    fn name(&self) -> &'static str {
        "zstd"
    }

    fn step(&mut self, input: &[u8], output: &mut [u8]) -> (Progress, Result<(), String>) {
        if input.is_empty() && self.missing == 0 {
            return (Progress::default(), Ok(()));
        }
        // Block by block, since a call that fails loses the blocks before the corrupt one.
        let end = if self.missing > BLOCK_HEADER {
            self.missing - BLOCK_HEADER
        } else {
            self.missing.max(1)
        };
        let block = &input[..input.len().min(end)];
        let mut source = InBuffer::around(block);
        let mut target = OutBuffer::around(output);
        let missing = self.decoder.run(&mut source, &mut target);
        let step = Progress {
            read: source.pos(),
            written: target.pos(),
        };
        if let Ok(missing) = missing {
            self.missing = missing;
        }
        (step, missing.map(drop).map_err(|error| error.to_string()))
    }

    fn complete(&self) -> bool {
        self.missing == 0
    }
}
