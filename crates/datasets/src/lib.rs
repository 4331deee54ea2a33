//! Datasets: prompts by index.
//!
//! A dataset is opened once per case and returns its sessions by number, on any thread. The same seed and number give
//! the same prompt, in whatever order they are requested. A kind of dataset is a module and a line in [`open`].
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::panic)
)]
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod audio;
mod audio_format;
mod cache;
mod conversations;
mod embeddings;
mod error;
mod fetch;
mod file;
mod generated;
mod graph;
mod hub_data;
mod images;
mod media;
mod message;
mod model_hub;
mod prefix;
mod random;
mod remote_data;
mod remote_files;
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
mod video;

pub use cache::{CacheDir, DEFAULT_HUB};
pub use error::PromptError;
pub use fetch::{FetchError, HUB_VARIABLE};
pub use message::tokens_of;
pub use model_hub::model as hub_model;
pub use remote_data::pin as pin_data;
pub use trace::{Log, read_log as trace_log};

use crate::prefix::Groups;
use crate::token::Tokenizer;
use llmscen_core::dataset::{DatasetSpec, Prompt, Session, Source};
use llmscen_core::seed::Seed;
use llmscen_core::units::Nanos;
use std::sync::Arc;
use std::time::Duration;

/// Prompts by index. Equal calls give equal sessions.
pub trait Prompts: Send + Sync {
    /// The session of request `seq` of the case; waits for data that is still being read. None: the data is exhausted
    /// (`on_exhausted: stop` or `fail`), or the rest cannot be read (see [`Prompts::fault`]).
    fn session(&self, seq: u64) -> Option<Session>;

    /// Turn `turn` of session `seq`, from 1, where [`Session::later`] is set; None: there is no such turn.
    ///
    /// # Errors
    /// The text cannot be generated.
    fn turn(&self, _seq: u64, _turn: u32) -> Result<Option<Prompt>, PromptError> {
        Ok(None)
    }

    /// Whether [`Prompts::session`] is known to be None because the data is exhausted. Reads no data.
    fn has_ended(&self, _seq: u64) -> bool {
        false
    }

    /// Number of sessions before they repeat; None where they never do, or until the end of the file has been read.
    fn len(&self) -> Option<u64>;

    /// Waits up to `timeout` until [`Prompts::session`] would return at once; whether it would.
    fn ready(&self, _seq: u64, _timeout: Duration) -> bool {
        true
    }

    /// Why the rest of the data cannot be read. Earlier sessions are available, later ones are None.
    fn fault(&self) -> Option<Arc<PromptError>> {
        None
    }

    /// Notes for plan and report on the rows: which were left out, up to the last requested session, and how they are
    /// read.
    fn problems(&self) -> Vec<String> {
        Vec::new()
    }

    /// Whether no row is usable; an opened dataset never is.
    fn is_empty(&self) -> bool {
        self.len() == Some(0)
    }

    /// Number of sessions before a prompt is repeated.
    fn distinct(&self) -> Option<u64> {
        self.len()
    }

    /// Number of rows left out before the last requested session: blank, outside `prompt_tokens`, or invalid.
    fn dropped(&self) -> u64;

    /// Arrival times of the sessions since the first one, in order, where the data has them.
    fn arrivals(&self) -> Option<Arc<[Nanos]>> {
        None
    }
}

/// Progress of a long step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// A download.
    Download {
        /// Bytes received.
        bytes: u64,
        /// Total bytes, where known.
        total: Option<u64>,
    },
    /// Reading of rows.
    Rows {
        /// Rows parsed.
        done: u64,
        /// Total rows, where known.
        total: Option<u64>,
    },
}

/// An opened dataset.
pub struct Opened {
    /// The prompts.
    pub prompts: Box<dyn Prompts>,
    /// The tokenizer of the scenario, or the built-in one where it has none and one is needed.
    pub tokenizer: Option<Arc<Tokenizer>>,
    /// Notes for the report.
    pub notes: Vec<String>,
}

impl std::fmt::Debug for Opened {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "Opened {{ len: {:?}, dropped: {}, notes: {:?} }}",
            self.prompts.len(),
            self.prompts.dropped(),
            self.notes
        )
    }
}

/// What a kind of dataset is opened with.
struct Setting<'a> {
    spec: &'a DatasetSpec,
    seed: Seed,
    /// The seed of `cache_bust`.
    cache_bust_seed: Seed,
    first: u64,
    tokenizer: Option<Arc<Tokenizer>>,
    cache: &'a CacheDir,
    progress: &'a dyn Fn(Progress),
}

impl Setting<'_> {
    /// The tokenizer, or the built-in one.
    fn tokenizer(&self) -> Arc<Tokenizer> {
        self.tokenizer
            .clone()
            .unwrap_or_else(|| Arc::new(Tokenizer::builtin()))
    }

    /// Whether a prompt length passes `prompt_tokens`. An unknown length does not.
    fn admits(&self, tokens: Option<u64>) -> bool {
        admits(self.spec, tokens)
    }
}

/// As [`Setting::admits`], for threads without a setting.
fn admits(spec: &DatasetSpec, tokens: Option<u64>) -> bool {
    if spec.min_tokens.is_none() && spec.max_tokens.is_none() {
        return true;
    }
    tokens.is_some_and(|n| {
        spec.min_tokens.is_none_or(|min| n >= min) && spec.max_tokens.is_none_or(|max| n <= max)
    })
}

/// Opens a dataset. Its sessions start at row `first`, so that the cases of a sweep do not repeat each other's
/// prompts. Relative paths are resolved from the working folder.
///
/// # Errors
/// The dataset or the tokenizer cannot be read or downloaded, or no row is usable. Errors later in a file are
/// reported by
/// [`Prompts::fault`].
pub fn open(
    spec: &DatasetSpec,
    seed: Seed,
    first: u64,
    cache: &CacheDir,
    progress: &dyn Fn(Progress),
) -> Result<Opened, PromptError> {
    let mut notes = Vec::new();
    let tokenizer = open_tokenizer(spec, cache, progress, &mut notes)?;
    let cache_bust_seed = spec
        .cache_seed
        .filter(|_| spec.cache_bust)
        .unwrap_or(seed)
        .child("dataset");
    // Rows of a file keep their order in every run, so that runs are comparable; only their unique strings are new.
    let seed = match spec.source {
        Source::Random { .. } | Source::Prefix { .. } | Source::SpeedBenchmark { .. } => {
            cache_bust_seed
        }
        _ => seed.child("dataset"),
    };
    let setting = Setting {
        spec,
        seed,
        cache_bust_seed,
        first,
        tokenizer: tokenizer.clone(),
        cache,
        progress,
    };
    let prompts: Box<dyn Prompts> = match &spec.source {
        Source::Prompt(text) => Box::new(text::open_prompt(text, &setting)?),
        Source::Random {
            tokens,
            shared_prefix,
        } => Box::new(random::open(tokens, *shared_prefix, &setting, &mut notes)?),
        Source::Prefix {
            groups,
            per_group,
            prefix_tokens,
            tokens,
            zipf,
        } => Box::new(prefix::open(
            &Groups {
                groups: *groups,
                per_group: *per_group,
                prefix_tokens: *prefix_tokens,
                zipf: *zipf,
            },
            tokens,
            &setting,
        )?),
        Source::SpeedBenchmark { long } => Box::new(speed::open(*long, &setting)?),
        Source::Images(images) => Box::new(images::open(images, &setting, &mut notes)?),
        Source::Audio(audio) => Box::new(audio::open(audio, &setting, &mut notes)?),
        Source::Video(video) => Box::new(video::open(video, &setting)?),
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
    let prompts = transforms::add_cache_bust(prompts, &setting, &mut notes);
    let prompts = transforms::add_shape(prompts, &setting)?;
    let prompts = transforms::add_token_ids(prompts, &setting);
    Ok(Opened {
        prompts,
        tokenizer,
        notes,
    })
}

fn open_tokenizer(
    spec: &DatasetSpec,
    cache: &CacheDir,
    progress: &dyn Fn(Progress),
    notes: &mut Vec<String>,
) -> Result<Option<Arc<Tokenizer>>, PromptError> {
    // The built-in tokenizer is the tokenizer of the model with random weights.
    if spec.tokenizer.as_deref() == Some("random:tiny") {
        return Ok(Some(Arc::new(Tokenizer::builtin().into_exact())));
    }
    if let Some(name) = spec.tokenizer.as_deref().filter(|name| *name != "builtin") {
        let tokenizer = model_hub::tokenizer(name, cache, progress, notes)?;
        let templated = spec.templated && tokenizer.chat_template().is_some();
        return Ok(Some(Arc::new(if templated {
            tokenizer
        } else {
            tokenizer.for_plain_text()
        })));
    }
    if !spec.counts_tokens() {
        return Ok(None);
    }
    notes.push(
        "prompt lengths are approximate (built-in tokenizer); set `dataset.tokenizer` to \
    the model's tokenizer"
            .into(),
    );
    Ok(Some(Arc::new(Tokenizer::builtin())))
}
