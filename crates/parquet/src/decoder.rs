//! Damaged files: the decoder panics on some, and those panics are errors here.

use polars::prelude::PolarsError;
use std::any::Any;
use std::cell::Cell;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Once;
use std::sync::atomic::{AtomicUsize, Ordering};
use thiserror::Error;

thread_local! {
    /// Whether this thread decodes.
    static DECODES: Cell<bool> = const { Cell::new(false) };
}
/// Threads that decode. Their helpers are threads of the table engine.
static DECODING: AtomicUsize = AtomicUsize::new(0);
const HELPER: &str = "polars";

/// What a decoder said when it panicked: the input is damaged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecoderPanic(pub String);

/// Runs a decoder on what may be damaged.
///
/// # Errors
/// Those of the decoder, and its panic, of which nothing is printed.
pub fn decode<T, E: From<DecoderPanic>>(decoder: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            if !is_decoder() {
                before(panic);
            }
        }));
    });
    let outer = DECODES.replace(true);
    DECODING.fetch_add(1, Ordering::SeqCst);
    let decoded = panic::catch_unwind(AssertUnwindSafe(decoder));
    DECODING.fetch_sub(1, Ordering::SeqCst);
    DECODES.set(outer);
    decoded.unwrap_or_else(|panic| Err(DecoderPanic(words(&*panic)).into()))
}

fn is_decoder() -> bool {
    let helps = || std::thread::current().name().is_some_and(|name| name.starts_with(HELPER));
    DECODES.try_with(Cell::get).unwrap_or(false) || DECODING.load(Ordering::SeqCst) > 0 && helps()
}

/// The first line of what a panic said.
fn words(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
    text.and_then(|text| text.lines().next()).unwrap_or("no reason was given").to_owned()
}

/// A Parquet file that could not be read.
#[derive(Debug, Error)]
pub enum ParquetError {
    /// The input could not be read.
    #[error("the table could not be read: {0}")]
    Read(#[from] std::io::Error),
    /// The decoder failed on what the file holds.
    #[error("the file is damaged: the Parquet decoder failed ({0})")]
    Damaged(String),
    /// The decoder refused.
    #[error("the table could not be processed: {0}")]
    Decoder(String),
}

impl From<DecoderPanic> for ParquetError {
    fn from(panic: DecoderPanic) -> ParquetError {
        ParquetError::Damaged(panic.0)
    }
}

impl From<PolarsError> for ParquetError {
    fn from(error: PolarsError) -> ParquetError {
        ParquetError::Decoder(error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_of_the_decoder_is_an_error_and_others_stay_panics() {
        assert_eq!(decode(|| Ok::<_, DecoderPanic>(1)).unwrap(), 1);
        let error = decode(|| -> Result<(), DecoderPanic> { panic!("index {} is out of range\nat some place", 7) }).unwrap_err();
        assert_eq!(error, DecoderPanic("index 7 is out of range".into()));
        let nested = decode(|| {
            let inner = decode(|| -> Result<(), DecoderPanic> { panic!("inner") });
            assert!(inner.is_err() && is_decoder());
            Ok::<_, DecoderPanic>(())
        });
        assert!(nested.is_ok() && !is_decoder());
    }
}
