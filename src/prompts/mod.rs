//! Floor 2. Datasets: prompts by index.
//!
//! A dataset is opened once per case and then asked for its sessions by number, from any thread: the same seed and
//! number give the same prompt, whoever asks and in whatever order. A kind is one file and one line in [`open`].

mod bust;
mod cache;
mod edited;
mod error;
mod fetch;
mod hub;
mod images;
mod lead;
mod lengths;
mod line_by_line;
mod longalpaca;
mod message;
mod openqa;
mod permute;
mod prefix;
mod prompt;
mod random;
mod rows;
mod shaped;
mod speed;
mod table;
mod text;
mod trace;

#[cfg(test)]
mod loopback;

pub use cache::{CacheDir, DEFAULT_HUB, HUB_VARIABLE};
pub use error::PromptError;
pub use fetch::FetchError;
pub use message::tokens_of;
pub use trace::{Log, log as trace_log};

use crate::model::dataset::{DatasetSpec, Source};
use crate::model::prompt::Session;
use crate::model::seed::Seed;
use crate::model::units::Nanos;
use crate::token::Tokenizer;
use std::sync::Arc;

/// Prompts by index. Equal calls give equal sessions.
pub trait Prompts: Send + Sync {
    /// The session of request `seq` of the case; None: the data is exhausted (`on_exhausted: stop` or `error`).
    fn session(&self, seq: u64) -> Option<Session>;

    /// Usable rows; None where there is no end.
    fn len(&self) -> Option<u64>;

    /// Whether no row is usable; an opened dataset never is.
    fn is_empty(&self) -> bool {
        self.len() == Some(0)
    }

    /// Rows left out so far: blank, outside `prompt_tokens`, or not what the kind reads.
    fn dropped(&self) -> u64;

    /// The instants at which the sessions arrive, counted from the first, where the data has them; never decreasing.
    fn arrivals(&self) -> Option<Arc<[Nanos]>> {
        None
    }
}

/// How far a long step is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// A download.
    Download {
        /// Bytes that arrived.
        bytes: u64,
        /// Bytes in all, where the server said so.
        total: Option<u64>,
    },
    /// Rows being read and, where `prompt_tokens` stands, counted.
    Rows {
        /// Rows that were looked at.
        done: u64,
        /// Rows in all.
        total: u64,
    },
}

/// An opened dataset.
pub struct Opened {
    /// The prompts.
    pub prompts: Box<dyn Prompts>,
    /// The tokenizer that was named, or the stand-in where one was needed and none was named.
    pub tokenizer: Option<Arc<Tokenizer>>,
    /// What a reader of the report must know.
    pub notes: Vec<String>,
}

impl std::fmt::Debug for Opened {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Opened {{ len: {:?}, dropped: {}, notes: {:?} }}", self.prompts.len(), self.prompts.dropped(), self.notes)
    }
}

/// What the kinds need besides the spec.
struct Setting<'a> {
    spec: &'a DatasetSpec,
    seed: Seed,
    first: u64,
    tokenizer: Option<Arc<Tokenizer>>,
    cache: &'a CacheDir,
    progress: &'a dyn Fn(Progress),
}

impl Setting<'_> {
    /// The tokenizer, or the stand-in.
    fn tokenizer(&self) -> Arc<Tokenizer> {
        self.tokenizer.clone().unwrap_or_else(|| Arc::new(Tokenizer::builtin()))
    }

    /// Whether a prompt of that length passes `prompt_tokens`. One that cannot be counted does not.
    fn admits(&self, tokens: Option<u64>) -> bool {
        let (low, high) = (self.spec.min_tokens, self.spec.max_tokens);
        if low.is_none() && high.is_none() {
            return true;
        }
        tokens.is_some_and(|n| low.is_none_or(|low| n >= low) && high.is_none_or(|high| n <= high))
    }
}

/// Opens a dataset. Item `first` comes first, so that the cases of a sweep do not repeat each other's prompts; paths are
/// taken as they stand, relative ones from the working folder.
///
/// # Errors
/// A file that is missing, empty, of the wrong format or shape, or not UTF-8; a dataset of which no row is usable; a
/// tokenizer that cannot be read; a download that fails.
pub fn open(
    spec: &DatasetSpec,
    seed: Seed,
    first: u64,
    cache: &CacheDir,
    progress: &dyn Fn(Progress),
) -> Result<Opened, PromptError> {
    let mut notes = Vec::new();
    let tokenizer = tokenizer(spec, cache, progress, &mut notes)?;
    let setting = Setting { spec, seed: seed.child("dataset"), first, tokenizer: tokenizer.clone(), cache, progress };
    let prompts: Box<dyn Prompts> = match &spec.source {
        Source::Prompt(text) => Box::new(prompt::open(text, &setting)?),
        Source::Random { tokens, shared_prefix } => Box::new(random::open(tokens, *shared_prefix, &setting, &mut notes)?),
        Source::Prefix { groups, per_group, prefix_tokens, tokens } => {
            Box::new(prefix::open((*groups, *per_group), *prefix_tokens, tokens, &setting)?)
        }
        Source::SpeedBenchmark { long } => Box::new(speed::open(*long, &setting)?),
        Source::Images(images) => Box::new(images::open(images, &setting, &mut notes)?),
        Source::Trace(trace) => Box::new(trace::open(trace, &setting, &mut notes)?),
        Source::LineByLine => Box::new(table::open(&line_by_line::KIND, &setting, &mut notes)?),
        Source::Openqa => Box::new(table::open(&openqa::KIND, &setting, &mut notes)?),
        Source::Longalpaca => Box::new(table::open(&longalpaca::KIND, &setting, &mut notes)?),
        _ => return Err(PromptError::NoPath { kind: "new" }),
    };
    let prompts = bust::over(prompts, &setting, &mut notes);
    let prompts = shaped::over(prompts, &setting)?;
    Ok(Opened { prompts, tokenizer, notes })
}

fn tokenizer(
    spec: &DatasetSpec,
    cache: &CacheDir,
    progress: &dyn Fn(Progress),
    notes: &mut Vec<String>,
) -> Result<Option<Arc<Tokenizer>>, PromptError> {
    if let Some(name) = spec.tokenizer.as_deref().filter(|name| *name != "builtin") {
        let tokenizer = hub::tokenizer(name, cache, progress, notes)?;
        return Ok(Some(Arc::new(if spec.templated { tokenizer } else { tokenizer.without_template() })));
    }
    let made = matches!(spec.source, Source::Random { .. } | Source::Prefix { .. } | Source::SpeedBenchmark { .. });
    let needed = spec.tokenizer.is_some() || made || spec.shape.is_some() || spec.min_tokens.or(spec.max_tokens).is_some();
    if !needed {
        return Ok(None);
    }
    notes.push(
        "prompt lengths come from the built-in stand-in tokenizer and are approximate; `dataset.tokenizer` names the model's own"
            .into(),
    );
    Ok(Some(Arc::new(Tokenizer::builtin())))
}
