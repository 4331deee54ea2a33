//! Where prompts come from, and what a dataset yields: prompts grouped into sessions.

use crate::distribution::{Distribution, Weighted};
use crate::quantity::Quantity;
use crate::redact::Secret;
use crate::remote_data::RemoteData;
use crate::seed::Seed;
use crate::units::Nanos;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The kind of dataset.
#[derive(Clone, Debug, PartialEq)]
pub enum Source {
    /// One prompt for every request.
    Prompt(String),
    /// A text file with one prompt per line: plain text, a JSON array (messages) or a JSON object (a request body).
    LineByLine,
    /// JSONL or a JSON list with a `question` per row.
    Openqa,
    /// A JSON list or JSONL with an `instruction` per row.
    Longalpaca,
    /// Rows of any table, by [`DatasetSpec::columns`].
    Rows,
    /// Rows that a command prints, one JSON object per line, by [`DatasetSpec::columns`].
    Command(CommandSpec),
    /// OpenAI message lists, JSONL.
    Messages,
    /// ShareGPT conversations, in both common layouts.
    Sharegpt,
    /// Random tokens, unique per request.
    Random {
        /// Length of the user message in tokens, prefix included.
        tokens: Quantity,
        /// Tokens of the prefix that all prompts share.
        shared_prefix: u64,
    },
    /// Groups of prompts with a shared prefix.
    Prefix {
        /// Number of groups.
        groups: u64,
        /// Prompts per group; None: unlimited.
        per_group: Option<u64>,
        /// Tokens of the shared prefix.
        prefix_tokens: u64,
        /// Tokens after the prefix, unique per prompt.
        tokens: Quantity,
        /// Exponent of the Zipf distribution from which the group of a prompt is drawn; None: the groups alternate.
        zipf: Option<f64>,
    },
    /// The prompt lengths for which model cards state speeds, in turn.
    SpeedBenchmark {
        /// 63488 and 129024 tokens instead of 96 to 30720.
        long: bool,
    },
    /// A request log: lengths or request bodies, and arrival times.
    Trace(TraceSpec),
    /// Texts to embed.
    Embeddings {
        /// Texts in one request.
        batch: u64,
    },
    /// A query with documents to rank.
    Rerank {
        /// Documents in one request; None: all of the row.
        documents: Option<u64>,
    },
    /// Images with a text.
    Images(ImagesSpec),
    /// Audio, with a text where the API takes messages.
    Audio(AudioSpec),
    /// Videos with a text.
    Video(VideoSpec),
}

/// A command that prints rows.
#[derive(Clone, Debug, PartialEq)]
pub struct CommandSpec {
    /// The program and its arguments, run without a shell.
    pub argv: Vec<String>,
    /// Working folder.
    pub cwd: String,
    /// Additional environment variables.
    pub env: Vec<(String, String)>,
    /// Timeout for the first row.
    pub timeout: Nanos,
    /// Secrets in the command and its output, longest first.
    pub secrets: Vec<Secret>,
}

impl CommandSpec {
    /// Removes the secrets from a text.
    pub fn redact(&self, text: &str) -> String {
        self.secrets.iter().fold(text.to_owned(), |text, secret| {
            text.replace(secret.expose(), "[redacted]")
        })
    }

    /// The command in shell syntax, without the secrets.
    pub fn display(&self) -> String {
        let word = |word: &String| {
            let clean = self.redact(word);
            if clean == *word {
                shell_words::quote(word).into_owned()
            } else {
                clean
            }
        };
        self.argv.iter().map(word).collect::<Vec<_>>().join(" ")
    }
}

/// The column layout of a trace.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Layout {
    /// Detected from the columns.
    #[default]
    Auto,
    /// JSONL: `timestamp` (ms), `input_length`, `output_length`, `hash_ids`, `session_id`, `delay` (ms).
    Mooncake,
    /// CSV: `TIMESTAMP`, `ContextTokens`, `GeneratedTokens`.
    Azure,
    /// CSV: `Timestamp` (s), `Session ID`, `Elapsed time` (s), `Model`, `Request tokens`, `Response tokens`.
    Burstgpt,
    /// CSV: `timestamp` (s), `input_tokens`, `output_tokens`.
    Servegen,
    /// JSONL: `timestamp` (s), `chat_id`, `parent_chat_id`, `input_length`, `output_length`, `hash_ids`.
    Bailian,
    /// One JSON object per session: `block_size`, `hash_id_scope`, and `requests` with `t` (s), `in`, `out`,
    /// `hash_ids`, `api_time` (s).
    Weka,
    /// JSON lines of OpenTelemetry spans with the attributes of generative AI.
    Otel,
    /// JSONL: `timestamp`, `body`, `headers`.
    Workload,
}

/// What the rows of a session in a log are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TraceRows {
    /// Each is a whole prompt, history included.
    Whole,
    /// Each has what is new since the reply before it.
    Delta,
}

/// How a request log is read.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TraceSpec {
    /// Column layout.
    pub layout: Layout,
    /// Skip requests that arrived less than this after the first one; time zero moves to this point.
    pub start: Option<Nanos>,
    /// Skip requests that arrived at or after this.
    pub end: Option<Nanos>,
    /// Model name in the log → model name in requests.
    pub model_mapping: BTreeMap<String, String>,
    /// Request exactly the logged output length: sets `max_tokens`, `min_tokens` and `ignore_eos`.
    pub match_output_length: bool,
    /// The logged output lengths are not used: `request.max_tokens` limits the replies.
    pub ignores_output: bool,
    /// Tokens of a block that has one of the `hash_ids`; None: as usual for the layout.
    pub block_tokens: Option<u64>,
    /// What the rows of a session are; None: detected.
    pub rows: Option<TraceRows>,
}

/// Images in the prompts.
#[derive(Clone, Debug, PartialEq)]
pub struct ImagesSpec {
    /// Width and height in pixels of generated images, used in turn; empty: the images of the folder `path`.
    pub sizes: Vec<(u32, u32)>,
    /// Images per request.
    pub count: u64,
    /// The text of the prompt.
    pub text: String,
}

/// Audio in the requests.
#[derive(Clone, Debug, PartialEq)]
pub struct AudioSpec {
    /// Duration of generated sound; None: the files of `path`.
    pub duration: Option<Nanos>,
    /// The text beside the audio in a message; None: the audio alone.
    pub text: Option<String>,
    /// Prompts hold samples of 16 bits, one channel, at this rate; None: whole files.
    pub samples: Option<u32>,
}

/// Videos in the prompts.
#[derive(Clone, Debug, PartialEq)]
pub struct VideoSpec {
    /// Width and height in pixels of generated videos, used in turn; empty: the files of `path`.
    pub sizes: Vec<(u32, u32)>,
    /// Duration of generated videos.
    pub duration: Nanos,
    /// The text of the prompt.
    pub text: String,
}

/// How a text is adjusted to a length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ShapeMode {
    /// Truncate or extend to exactly that length.
    Exact,
    /// Truncate longer texts.
    Cap,
}

/// The target length of texts.
#[derive(Clone, Debug, PartialEq)]
pub struct TextShape {
    /// Tokens, chat template included if the tokenizer has one.
    pub tokens: Quantity,
    /// How texts are adjusted.
    pub mode: ShapeMode,
    /// The text that extends a short one; None: the row's text is repeated.
    pub fill_from: Option<String>,
}

/// What `random` and `prefix` generate besides prompts of a length.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Generated {
    /// Prompt and output lengths that are drawn together. The source has the same prompt lengths.
    pub pairs: Option<Weighted<(u64, u64)>>,
    /// Tokens of a system message that all sessions share; 0: none.
    pub system_tokens: u64,
    /// Tokens of the first user message in front of its prompt: the documents or code that only this session has.
    pub context_tokens: Option<Quantity>,
    /// Conversations; None: single requests.
    pub sessions: Option<GeneratedSessions>,
}

/// Generated conversations.
#[derive(Clone, Debug, PartialEq)]
pub struct GeneratedSessions {
    /// Number of turns.
    pub count: Quantity,
    /// Tokens of the user in later turns.
    pub tokens: Quantity,
    /// Output tokens per turn; None: as the request says.
    pub max_tokens: Option<Quantity>,
    /// Limit of the context.
    pub limit: Option<ContextLimit>,
}

/// The maximum context of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContextLimit {
    /// Prompt and output tokens. Earlier replies count with the length that was requested.
    pub tokens: u64,
    /// What happens before a turn that would exceed it.
    pub at_limit: AtLimit,
}

/// What happens before a turn that would exceed the context limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtLimit {
    /// The session ends.
    End,
    /// The oldest turns are removed from the conversation.
    Truncate,
}

/// Conversations: the turns of a session, with the server's replies between them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Turns {
    /// Time between a reply and the next turn, unless the data sets it.
    pub think_time: Option<Distribution>,
    /// Maximum number of turns per session.
    pub max: Option<u32>,
    /// Send the reasoning back with the reply.
    pub keep_reasoning: bool,
    /// Which replies become the history.
    pub replies: Replies,
    /// How a turn refers to the turns before it.
    pub history: SentHistory,
    /// The turn at which a session begins, as a share of its turns; None: the first.
    pub begin: Option<BeginAt>,
    /// Maximum time between the end of the awaited turns and a turn.
    pub max_idle: Option<Nanos>,
}

/// Which replies become the history of later turns.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Replies {
    /// Those of the server.
    #[default]
    Live,
    /// Those in the data, whatever the server replies.
    Recorded,
}

/// How a turn refers to the turns before it.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum SentHistory {
    /// Their messages are sent again.
    #[default]
    Resend,
    /// The id of the previous response is sent: the server has stored the messages.
    PreviousResponseId,
}

/// The turn at which sessions begin: a share of their turns, drawn uniformly per session.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BeginAt {
    /// Minimum share, 0..=1.
    pub low: f64,
    /// Maximum share, 0..=1.
    pub high: f64,
}

/// The order in which rows are used.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Order {
    /// The order of the file.
    #[default]
    Sequential,
    /// A permutation drawn from the seed.
    Shuffle,
}

/// What happens when the rows are exhausted before the load ends.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum OnExhausted {
    /// Restart at the first row.
    #[default]
    Cycle,
    /// End the case.
    Stop,
    /// End the run with an error.
    Fail,
}

/// The prompts of a case.
#[derive(Clone, Debug, PartialEq)]
pub struct DatasetSpec {
    /// Kind, with the settings of that kind.
    pub source: Source,
    /// The file; None: the bundled copy, or the kind's download. For a command, its text.
    pub path: Option<String>,
    /// The data that `path` names on the hub or by a URL.
    pub remote: Option<RemoteData>,
    /// The column, or dotted path, whose value is the group of a row.
    pub group: Option<String>,
    /// A tokenizer.json, a folder with one, or a model name on the Hugging Face hub.
    pub tokenizer: Option<String>,
    /// Prompts are sent as messages, so that token counts include the chat template.
    pub templated: bool,
    /// The API takes one text, so rows with more than one are rejected.
    pub one_text: bool,
    /// Minimum prompt tokens; shorter rows are dropped and counted.
    pub min_tokens: Option<u64>,
    /// Maximum prompt tokens; longer rows are dropped and counted.
    pub max_tokens: Option<u64>,
    /// Row order.
    pub order: Order,
    /// What happens when the rows are exhausted.
    pub on_exhausted: OnExhausted,
    /// A system message in front of each prompt.
    pub system: Option<String>,
    /// The column, or dotted path, for each field that the kind reads.
    pub columns: BTreeMap<String, String>,
    /// An invalid row stops the run; otherwise it is reported, skipped and counted.
    pub strict: bool,
    /// Prepend a text that is unique to seed and request, so that prompts miss every prefix cache; synthetic prompts
    /// get a unique prefix instead of the shared one.
    pub cache_bust: bool,
    /// Seed of those texts; None: the seed of the run.
    pub cache_seed: Option<Seed>,
    /// The target length of texts.
    pub shape: Option<TextShape>,
    /// Prompts are sent as token ids.
    pub token_ids: bool,
    /// Conversation settings; None: one request per row.
    pub turns: Option<Turns>,
    /// What `random` and `prefix` generate.
    pub generated: Generated,
}

impl DatasetSpec {
    /// Whether rows with this number of turns are sessions; with `turns` also those of one turn.
    pub fn is_session(&self, turns: u32) -> bool {
        turns > 1 || self.turns.is_some()
    }

    /// Whether a tokenizer counts the tokens of prompts; synthetic prompts need one.
    pub fn counts_tokens(&self) -> bool {
        let synthetic = matches!(
            self.source,
            Source::Random { .. } | Source::Prefix { .. } | Source::SpeedBenchmark { .. }
        );
        synthetic
            || self.tokenizer.is_some()
            || self.shape.is_some()
            || self.min_tokens.or(self.max_tokens).is_some()
    }

    /// A dataset of this kind with default settings.
    pub fn new(source: Source) -> DatasetSpec {
        DatasetSpec {
            source,
            path: None,
            remote: None,
            group: None,
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
            token_ids: false,
            turns: None,
            generated: Generated::default(),
        }
    }
}

/// One turn's input.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Prompt {
    /// The prompt text (`%p`). For a message list, the text of its last user message.
    pub text: String,
    /// The prompt as token ids, which are sent instead of the text.
    pub token_ids: Option<Vec<u32>>,
    /// The message list, if the data has one; otherwise it is built from `text` and the system message. For a later
    /// turn, the messages after the previous reply.
    pub messages: Option<Vec<Value>>,
    /// A complete request body, if the data has one; it replaces the template.
    pub body: Option<Map<String, Value>>,
    /// The dataset row by column, for `{{ item.x }}`; shared by the turns of a session.
    pub fields: Arc<Map<String, Value>>,
    /// The audio of the request, for an API that uploads it or has it in a message.
    pub audio: Option<AudioFile>,
    /// Prompt tokens by the local tokenizer, including system message and chat template. None: not counted, or the
    /// prompt has images.
    pub tokens: Option<u64>,
    /// Tokens at the start of the prompt that earlier requests contain, so that an unlimited prefix cache has them.
    /// None: not known.
    pub cacheable_tokens: Option<u64>,
    /// The counts are by the built-in approximate tokenizer.
    pub approximate: bool,
    /// Maximum output tokens set by the data; overrides `request.max_tokens`.
    pub max_tokens: Option<u64>,
    /// Fields of `request:` set by the data, such as `min_tokens` or `ignore_eos`; override the scenario's.
    pub sampling: Map<String, Value>,
    /// The model set by the data; overrides `target.model`.
    pub model: Option<String>,
    /// Additional headers of this request.
    pub headers: Vec<(String, String)>,
    /// The group within the dataset: a length class or a shared prefix.
    pub group: Option<String>,
    /// The system message from this turn on, if the data sets one.
    pub system: Option<String>,
    /// Time between the end of the last turn that it awaits and its send time, if the data sets it: think time, or
    /// the run time of a tool.
    pub wait: Option<Nanos>,
    /// The turns that it depends on. None: it continues the turn before it in the session.
    pub links: Option<Box<TurnLinks>>,
    /// The reply in the data: whole messages, tool calls included. Empty: the data has none.
    pub recorded_reply: Vec<Value>,
    /// The oldest turn that is still in the conversation; earlier ones are removed from it.
    pub history_from: u32,
    /// The server has the conversation up to this turn.
    pub continues: bool,
    /// The response that it continues, if the server has stored the messages up to it.
    pub previous_response: Option<PreviousResponse>,
}

/// A response that a turn continues.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PreviousResponse {
    /// Its id.
    pub id: String,
    /// How many of the messages of the prompt the server has stored; only those after them are sent.
    pub messages: usize,
}

/// An audio file.
#[derive(Clone, Debug, PartialEq)]
pub struct AudioFile {
    /// File name.
    pub name: String,
    /// Media type, such as `audio/wav`.
    pub media: &'static str,
    /// Its bytes; empty where the messages of the prompt hold them.
    pub bytes: Arc<Vec<u8>>,
    /// Duration; None: its format does not reveal it.
    pub duration: Option<Nanos>,
}

/// The turns of a session that a turn depends on, by their index in the session. Each is less than the index of the
/// turn, so that a graph of turns has no cycle.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TurnLinks {
    /// The turn whose history and reply it continues. None: it begins a history of its own, such as that of a
    /// sub-agent.
    pub continues: Option<u32>,
    /// Further turns whose end it awaits.
    pub after: Vec<u32>,
    /// Replies of awaited turns that become contents of its messages.
    pub replies: Vec<ReplySlot>,
}

/// A message whose content is the reply of another turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplySlot {
    /// Index of the message in [`Prompt::messages`].
    pub message: usize,
    /// Index of the turn.
    pub turn: u32,
}

/// A session: a graph of turns, in an order in which each comes after those that it depends on. Only the first turn
/// depends on none. The simplest case is a conversation, in which each turn continues the one before it. A dataset
/// without conversations has one turn per session.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Session {
    /// The turns, or the first one where the dataset writes each later turn when it is due.
    pub turns: Vec<Prompt>,
    /// The turns that the dataset writes later.
    pub later: Option<LaterTurns>,
}

/// The turns of a session after the first, which the dataset writes one by one.
#[derive(Clone, Debug, PartialEq)]
pub struct LaterTurns {
    /// Number of turns of the session, the first one included.
    pub count: u32,
    /// The turns that each turn awaits; None: the turn before it.
    pub awaited: Option<TurnDependencies>,
    /// Each turn continues the history of the turn before it. Otherwise each has a history of its own.
    pub continues: bool,
}

impl Prompt {
    /// The turn whose history and reply this prompt continues, as turn `index` of its session.
    pub fn continued_turn(&self, index: u32) -> Option<u32> {
        match self.links.as_deref() {
            Some(links) => links.continues,
            None => index.checked_sub(1),
        }
    }
}

impl From<Vec<Prompt>> for Session {
    /// A session whose turns are all known.
    fn from(turns: Vec<Prompt>) -> Session {
        Session { turns, later: None }
    }
}

impl Session {
    /// Number of turns.
    pub fn count(&self) -> u32 {
        let known = u32::try_from(self.turns.len()).unwrap_or(u32::MAX);
        self.later.as_ref().map_or(known, |later| later.count)
    }

    /// The turns that each turn awaits. None for a conversation, whose turns await the one before.
    pub fn dependencies(&self) -> Option<TurnDependencies> {
        if let Some(later) = &self.later {
            return later.awaited.clone();
        }
        if self.turns.iter().all(|turn| turn.links.is_none()) {
            return None;
        }
        let awaited = (0..).zip(&self.turns).map(|(index, turn)| {
            let after = turn
                .links
                .iter()
                .flat_map(|links| links.after.iter().copied());
            let continued = turn.continued_turn(index);
            continued.into_iter().chain(after).collect()
        });
        Some(awaited.collect())
    }
}

/// For each turn of a session, and then for each joint, the turns and joints whose end it awaits. A joint is not
/// sent: it ends when all that it awaits has ended. Turns that await the same many others await a joint of these
/// instead, so that a session of n turns has O(n) links.
pub type TurnDependencies = Arc<[Box<[u32]>]>;
