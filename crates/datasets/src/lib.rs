//! Datasets: prompts by index.
//!
//! A dataset is opened once per case, and gives its sessions by number, to any thread: the same seed and number give the
//! same prompt, in whatever order they are requested. A kind is one file and one line in [`open`].
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::panic))]
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod cache;
mod conversations;
mod embeddings;
mod error;
mod fetch;
mod file;
mod images;
mod message;
mod model_hub;
mod prefix;
mod random;
mod rerank;
mod rows;
mod speed;
mod synthetic;
#[cfg(test)]
mod testing;
mod text;
pub mod token;
mod trace;
mod transforms;

pub use cache::{CacheDir, DEFAULT_HUB, HUB_VARIABLE};
pub use error::PromptError;
pub use fetch::FetchError;
pub use message::tokens_of;
pub use model_hub::model as hub_model;
pub use trace::{Log, log as trace_log};

use crate::token::Tokenizer;
use llmscen_core::dataset::{DatasetSpec, Source};
use llmscen_core::prompt::Session;
use llmscen_core::seed::Seed;
use llmscen_core::units::Nanos;
use std::sync::Arc;
use std::time::Duration;

/// Prompts by index. Equal calls give equal sessions.
pub trait Prompts: Send + Sync {
    /// The session of request `seq` of the case; waits where the data is still being read. None: the data is exhausted
    /// (`on_exhausted: stop` or `fail`), or the rest cannot be read (see [`Prompts::fault`]).
    fn session(&self, seq: u64) -> Option<Session>;

    /// Sessions before they repeat; None where there is no end, or as long as it has not been reached. A small file is
    /// known to its end when it is opened, a large one when its last row has been looked at.
    fn len(&self) -> Option<u64>;

    /// Whether [`Prompts::session`] would answer at once; waits for that, at most for `most`.
    fn ready(&self, _seq: u64, _most: Duration) -> bool {
        true
    }

    /// Why the data cannot be read on, where it cannot: sessions up to there are to be had, later ones are None.
    fn fault(&self) -> Option<Arc<PromptError>> {
        None
    }

    /// Notes for the report on rows that were left out, up to the last requested session.
    fn problems(&self) -> Vec<String> {
        Vec::new()
    }

    /// Whether no row is usable; an opened dataset never is.
    fn is_empty(&self) -> bool {
        self.len() == Some(0)
    }

    /// Sessions before a prompt is sent again, where that is another number than [`Prompts::len`].
    fn distinct(&self) -> Option<u64> {
        self.len()
    }

    /// Rows left out before the last requested session: blank, outside `prompt_tokens`, or not what the kind reads.
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
    /// Rows being read and, with `prompt_tokens`, counted.
    Rows {
        /// Rows that were looked at.
        done: u64,
        /// Rows in all, once the file has been gone through.
        total: Option<u64>,
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
    /// What `cache_bust` draws from.
    bust: Seed,
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
        admits(self.spec, tokens)
    }
}

/// As [`Setting::admits`], for the threads that read ahead.
fn admits(spec: &DatasetSpec, tokens: Option<u64>) -> bool {
    let (low, high) = (spec.min_tokens, spec.max_tokens);
    if low.is_none() && high.is_none() {
        return true;
    }
    tokens.is_some_and(|n| low.is_none_or(|low| n >= low) && high.is_none_or(|high| n <= high))
}

/// Opens a dataset. Item `first` comes first, so that the cases of a sweep do not repeat each other's prompts; paths are
/// taken unchanged, relative ones from the working folder.
///
/// # Errors
/// A file that is missing, empty, of the wrong format, or not UTF-8 near its beginning; a dataset of which no row is usable;
/// a tokenizer that cannot be read; a download that fails. What is wrong later in a file shows when it is reached.
pub fn open(
    spec: &DatasetSpec,
    seed: Seed,
    first: u64,
    cache: &CacheDir,
    progress: &dyn Fn(Progress),
) -> Result<Opened, PromptError> {
    let mut notes = Vec::new();
    let tokenizer = tokenizer(spec, cache, progress, &mut notes)?;
    let bust = spec.cache_seed.filter(|_| spec.cache_bust).unwrap_or(seed).child("dataset");
    // Of rows of a file only the words in front are new in each run: the same questions are comparable.
    let seed = match spec.source {
        Source::Random { .. } | Source::Prefix { .. } | Source::SpeedBenchmark { .. } => bust,
        _ => seed.child("dataset"),
    };
    let setting = Setting { spec, seed, bust, first, tokenizer: tokenizer.clone(), cache, progress };
    let prompts: Box<dyn Prompts> = match &spec.source {
        Source::Prompt(text) => Box::new(text::open_prompt(text, &setting)?),
        Source::Random { tokens, shared_prefix } => Box::new(random::open(tokens, *shared_prefix, &setting, &mut notes)?),
        Source::Prefix { groups, per_group, prefix_tokens, tokens } => {
            Box::new(prefix::open((*groups, *per_group), *prefix_tokens, tokens, &setting)?)
        }
        Source::SpeedBenchmark { long } => Box::new(speed::open(*long, &setting)?),
        Source::Images(images) => Box::new(images::open(images, &setting, &mut notes)?),
        Source::Trace(trace) => Box::new(trace::open(trace, &setting, &mut notes)?),
        Source::LineByLine => Box::new(file::open(&text::LINE_BY_LINE, &setting, &mut notes)?),
        Source::Openqa => Box::new(file::open(&rows::OPENQA, &setting, &mut notes)?),
        Source::Longalpaca => Box::new(file::open(&rows::LONGALPACA, &setting, &mut notes)?),
        Source::Rows => Box::new(file::open(&rows::ROWS, &setting, &mut notes)?),
        Source::Command(command) => Box::new(file::open_command(&rows::ROWS, command, &setting)?),
        Source::Messages => Box::new(file::open(&conversations::MESSAGES, &setting, &mut notes)?),
        Source::Sharegpt => Box::new(file::open(&conversations::SHAREGPT, &setting, &mut notes)?),
        Source::Rerank { .. } => Box::new(file::open(&rerank::KIND, &setting, &mut notes)?),
        Source::Embeddings { batch } => Box::new(embeddings::open(*batch, &setting, &mut notes)?),
    };
    let prompts = transforms::cache_busted(prompts, &setting, &mut notes);
    let prompts = transforms::shaped(prompts, &setting)?;
    Ok(Opened { prompts, tokenizer, notes })
}

fn tokenizer(
    spec: &DatasetSpec,
    cache: &CacheDir,
    progress: &dyn Fn(Progress),
    notes: &mut Vec<String>,
) -> Result<Option<Arc<Tokenizer>>, PromptError> {
    // The model with random weights has no other tokenizer than this one.
    if spec.tokenizer.as_deref() == Some("random:tiny") {
        return Ok(Some(Arc::new(Tokenizer::builtin().of_the_model())));
    }
    if let Some(name) = spec.tokenizer.as_deref().filter(|name| *name != "builtin") {
        let tokenizer = model_hub::tokenizer(name, cache, progress, notes)?;
        // Without a chat template the contents of messages are plain text.
        let templated = spec.templated && tokenizer.chat_template().is_some();
        return Ok(Some(Arc::new(if templated { tokenizer } else { tokenizer.for_plain_text() })));
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
