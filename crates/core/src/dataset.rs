//! Where prompts come from, and what a dataset yields: prompts grouped into sessions.

use crate::request::Quantity;
use crate::seed::Seed;
use crate::target::Secret;
use crate::units::Nanos;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The source of the prompts.
#[derive(Clone, Debug, PartialEq)]
pub enum Source {
    /// One prompt for every request.
    Prompt(String),
    /// A text file, a prompt a line: plain text, a JSON array (messages) or a JSON object (a whole body).
    LineByLine,
    /// JSONL or a JSON list with a `question` per row.
    Openqa,
    /// A JSON list or JSONL with an `instruction` per row.
    Longalpaca,
    /// Rows of any table, by [`DatasetSpec::columns`].
    Rows,
    /// Rows that a command prints, a JSON object a line, by [`DatasetSpec::columns`].
    Command(CommandSpec),
    /// OpenAI message lists, JSONL.
    Messages,
    /// ShareGPT conversations, of both common shapes.
    Sharegpt,
    /// Tokens drawn at random, unique per request.
    Random {
        /// Length of the user's text as a prompt of its own, prefix included.
        tokens: Quantity,
        /// Tokens at the beginning of the user's text that all prompts share.
        shared_prefix: u64,
    },
    /// Groups of prompts that share a beginning.
    Prefix {
        /// Groups.
        groups: u64,
        /// Prompts of a group; None: without end.
        per_group: Option<u64>,
        /// Tokens of the shared beginning.
        prefix_tokens: u64,
        /// Tokens of the rest, each its own.
        tokens: Quantity,
    },
    /// The prompt lengths by which model cards state speeds, one after the other.
    SpeedBenchmark {
        /// 63488 and 129024 tokens instead of 96 to 30720.
        long: bool,
    },
    /// Requests logged elsewhere: lengths, or whole bodies, and the instants they arrived.
    Trace(TraceSpec),
    /// Texts to embed.
    Embeddings {
        /// Texts in one request.
        batch: u64,
    },
    /// A query and documents to rank.
    Rerank {
        /// Documents in one request; None: as many as the row has.
        documents: Option<u64>,
    },
    /// Pictures beside a text.
    Images(ImagesSpec),
}

/// A command that prints rows.
#[derive(Clone, Debug, PartialEq)]
pub struct CommandSpec {
    /// The program and its arguments; no shell reads them.
    pub words: Vec<String>,
    /// Its working folder.
    pub cwd: String,
    /// Environment variables over those of this process.
    pub env: Vec<(String, String)>,
    /// How long it may take until its first row.
    pub timeout: Nanos,
    /// What must not be shown of its words and its output, the longest first.
    pub secrets: Vec<Secret>,
}

impl CommandSpec {
    /// A text without the secrets.
    pub fn clean(&self, text: &str) -> String {
        self.secrets.iter().fold(text.to_owned(), |text, secret| text.replace(secret.expose(), "[redacted]"))
    }

    /// The words as a shell reads them, without the secrets.
    pub fn shown(&self) -> String {
        let word = |word: &String| {
            let clean = self.clean(word);
            if clean == *word { shell_words::quote(word).into_owned() } else { clean }
        };
        self.words.iter().map(word).collect::<Vec<_>>().join(" ")
    }
}

/// How the columns of a trace are named.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Layout {
    /// By the columns that are there.
    #[default]
    Auto,
    /// JSONL: `timestamp` (ms), `input_length`, `output_length`, `hash_ids` of 512-token blocks.
    Mooncake,
    /// CSV: `TIMESTAMP`, `ContextTokens`, `GeneratedTokens`.
    Azure,
    /// CSV: `Timestamp` (s), `Session ID`, `Model`, `Request tokens`, `Response tokens`.
    Burstgpt,
    /// JSONL: `timestamp`, `body`, `headers`.
    Workload,
}

/// A log of requests.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TraceSpec {
    /// Its columns.
    pub layout: Layout,
    /// Only what arrived so long after the first request, or later; time zero moves there.
    pub start: Option<Nanos>,
    /// Only what arrived before this.
    pub end: Option<Nanos>,
    /// Models of the log by the names that requests shall use.
    pub model_mapping: BTreeMap<String, String>,
    /// Ask for exactly the logged output: `max_tokens`, `min_tokens` and `ignore_eos`.
    pub match_output_length: bool,
}

/// Pictures.
#[derive(Clone, Debug, PartialEq)]
pub struct ImagesSpec {
    /// Width and height in pixels of generated pictures, requests taking them in turn; empty: those of the folder in `path`.
    pub sizes: Vec<(u32, u32)>,
    /// Pictures in one request.
    pub count: u64,
    /// The text beside them.
    pub text: String,
}

/// How a text is brought to a length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ShapeMode {
    /// Cut or continued to exactly that length.
    Exact,
    /// Cut where it is longer.
    Cap,
}

/// The length that texts are brought to.
#[derive(Clone, Debug, PartialEq)]
pub struct TextShape {
    /// Tokens, chat template included where the tokenizer has one.
    pub tokens: Quantity,
    /// How.
    pub mode: ShapeMode,
    /// A text that continues what is too short; None: the row's own text again.
    pub fill_from: Option<String>,
}

/// Conversations: a session's turns follow one another, with the server's own replies between them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Turns {
    /// Between a reply and the next turn, where the data does not say.
    pub think_time: Option<Wait>,
    /// Maximum number of turns of a session.
    pub max: Option<u32>,
    /// Feed the reasoning back too.
    pub keep_reasoning: bool,
}

/// A time that may differ from turn to turn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Wait {
    /// The same always.
    Fixed(Nanos),
    /// Equally likely between both.
    Uniform(Nanos, Nanos),
    /// Exponential, of this mean.
    Exponential(Nanos),
}

/// In which order rows are taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Order {
    /// As they stand in the file.
    #[default]
    Sequential,
    /// A permutation drawn from the seed.
    Shuffle,
}

/// What happens when the rows run out before the requests do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum OnExhausted {
    /// Start again from the first row.
    #[default]
    Cycle,
    /// End the case there.
    Stop,
    /// End the run there as an error.
    Fail,
}

/// The prompts of a case.
#[derive(Clone, Debug, PartialEq)]
pub struct DatasetSpec {
    /// Kind, with what belongs to it alone.
    pub source: Source,
    /// The file; None: the copy that ships with the tool, or a download where the kind has one. Of a command, its text.
    pub path: Option<String>,
    /// A tokenizer.json, the folder that holds one, or a model's name on the hub.
    pub tokenizer: Option<String>,
    /// The prompts are sent as messages, so that the tokenizer's chat template counts.
    pub templated: bool,
    /// The request is one text: a row that holds more does not fit.
    pub one_text: bool,
    /// Rows with fewer prompt tokens are dropped and counted.
    pub min_tokens: Option<u64>,
    /// Rows with more prompt tokens are dropped and counted.
    pub max_tokens: Option<u64>,
    /// Row order.
    pub order: Order,
    /// What happens at the end of the data.
    pub on_exhausted: OnExhausted,
    /// A system message in front of each prompt.
    pub system: Option<String>,
    /// The file's own column, or dotted path, for each field that the kind reads.
    pub columns: BTreeMap<String, String>,
    /// A row that does not fit stops the run; otherwise it is reported, left out and counted.
    pub strict: bool,
    /// Put a text that is unique to the seed and the request in front of each prompt, so that no prefix cache knows it;
    /// synthetic prompts draw each a beginning of their own instead of a shared one.
    pub cache_bust: bool,
    /// What those texts and beginnings are drawn from; None: the seed of the run.
    pub cache_seed: Option<Seed>,
    /// The length that texts are brought to.
    pub shape: Option<TextShape>,
    /// The turns of conversations; None: one request a row.
    pub turns: Option<Turns>,
}

impl DatasetSpec {
    /// A dataset of this source, with every default.
    pub fn of(source: Source) -> DatasetSpec {
        DatasetSpec {
            source,
            path: None,
            tokenizer: None,
            templated: true,
            one_text: false,
            min_tokens: None,
            max_tokens: None,
            order: Order::default(),
            on_exhausted: OnExhausted::default(),
            system: None,
            columns: BTreeMap::new(),
            strict: false,
            cache_bust: false,
            cache_seed: None,
            shape: None,
            turns: None,
        }
    }
}

/// One turn's input.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Prompt {
    /// The prompt as text: `%p`. For a message list, the text of its last user message.
    pub text: String,
    /// The message list, where the data gives one; otherwise it is made from `text` and the system message. Of a later
    /// turn: the messages that follow the reply to the turn before.
    pub messages: Option<Vec<Value>>,
    /// A whole request body, where the data gives one; it takes the template's place.
    pub body: Option<Map<String, Value>>,
    /// The dataset's row by column, for `{{ item.x }}`; the turns of a session share it.
    pub fields: Arc<Map<String, Value>>,
    /// Prompt tokens as counted here, system message and the tokenizer's chat template included. None: not counted, or
    /// with pictures among them.
    pub tokens: Option<u64>,
    /// The count was made with a stand-in tokenizer.
    pub approximate: bool,
    /// Output tokens allowed, where the data says so; over `request.max_tokens`.
    pub max_tokens: Option<u64>,
    /// Fields of `request:` that the data sets, such as `min_tokens` or `ignore_eos`; over the scenario's.
    pub sampling: Map<String, Value>,
    /// The model to name, where the data says so; over `target.model`.
    pub model: Option<String>,
    /// Headers of this request alone.
    pub headers: Vec<(String, String)>,
    /// The part of the dataset that it belongs to: a length class, a group of a shared prefix.
    pub group: Option<String>,
    /// The system message from this turn on, where the data says so.
    pub system: Option<String>,
    /// Time between the end of the turn before and this one, where the data says so: think time, or a tool at work.
    pub wait: Option<Nanos>,
}

/// A user's visit: its turns in order. A dataset without conversations has one turn a session.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Session {
    /// The turns.
    pub turns: Vec<Prompt>,
}
