//! The codings of a response's content (RFC 9110, section 8.4), undone while its bytes arrive.
//!
//! What can be read of a frame is handed on at once, so that an event has the stamp of the socket read that brought it.

mod deflate;
mod zstd;

#[cfg(test)]
mod tests;

use crate::content_encoding::deflate::Deflate;
use crate::content_encoding::zstd::Zstd;
use http::HeaderMap;
use http::header::CONTENT_ENCODING;
use llmscen_core::outcome::{Failure, FailureKind};
use llmscen_core::target::Compression;

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
