//! What a request of a case says, before its prompt is placed in it.

use crate::dataset::Wait;
use crate::outcome::FailureKind;
use crate::units::Nanos;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// A length in tokens that may differ from request to request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Quantity {
    /// The same for every request.
    Fixed(u64),
    /// Every whole number from `low` to `high`, both included, equally likely.
    Uniform {
        /// The least.
        low: u64,
        /// The most.
        high: u64,
    },
    /// Normal, rounded, never below 1.
    Normal {
        /// Its mean, in tokens.
        mean: f64,
        /// Its standard deviation, in tokens.
        sd: f64,
    },
    /// Lognormal with this mean and standard deviation of the lengths themselves, rounded, never below 1.
    Lognormal {
        /// Mean of the lengths, in tokens.
        mean: f64,
        /// Standard deviation of the lengths, in tokens.
        sd: f64,
    },
    /// A field of the dataset's item, such as `output_tokens`.
    Item(String),
}

/// Which of a response's values are what: RFC 9535 JSONPaths into each event of a stream, or into the whole response.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Extract {
    /// How the body is framed; None: as its `content-type` says.
    pub framing: Option<Framing>,
    /// Generated text; all texts that are selected count.
    pub text: Vec<String>,
    /// Number of the choice that the texts belong to; without it all belong to one.
    pub choice: Option<String>,
    /// Token counts.
    pub usage: ExtractUsage,
    /// Why it ended. A stream without its end marker is complete only with a reason for every choice.
    pub finish: Option<String>,
    /// Id of the response.
    pub id: Option<String>,
    /// An error under a good status.
    pub error: Option<String>,
    /// The end marker of a stream; None: the end of the body.
    pub done: Option<Done>,
}

/// How a body is framed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// Server-sent events.
    Sse,
    /// A JSON document a line.
    Ndjson,
    /// One JSON document.
    Json,
}

/// JSONPaths of token counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExtractUsage {
    /// Tokens of the prompt.
    pub prompt: Option<String>,
    /// Tokens generated.
    pub output: Option<String>,
    /// Reasoning tokens among them.
    pub reasoning: Option<String>,
    /// Prompt tokens from the cache.
    pub cached: Option<String>,
}

/// The end marker of a stream.
#[derive(Clone, Debug, PartialEq)]
pub enum Done {
    /// An event whose data is this text, such as `[DONE]`.
    Data(String),
    /// An event of this name (`event:` of server-sent events).
    Event(String),
    /// An event in which this JSONPath selects this value; without a value, anything but null and false.
    Value {
        /// The JSONPath.
        path: String,
        /// The value.
        equals: Option<Value>,
    },
}

/// What is tried once more, and when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Retry {
    /// The statuses that are tried again.
    pub statuses: Vec<u16>,
    /// The kinds of failure that are.
    pub kinds: Vec<FailureKind>,
    /// Wait as long as the response's `Retry-After` says, where it says so.
    pub honor: bool,
    /// Maximum number of attempts after the first.
    pub max: u32,
    /// The wait before the second attempt; it doubles with every further one.
    pub wait: Nanos,
}

/// Users who leave before the answer is complete.
#[derive(Clone, Debug, PartialEq)]
pub struct Cancel {
    /// Their share of the requests, 0..=1.
    pub share: f64,
    /// When they leave.
    pub when: Departure,
}

/// When users leave.
#[derive(Clone, Debug, PartialEq)]
pub enum Departure {
    /// So long after the request was sent.
    After(Wait),
    /// After so many token events.
    Tokens(Quantity),
}

/// When the user of one request leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leave {
    /// So long after it was sent.
    After(Nanos),
    /// After so many token events.
    Tokens(u64),
}

/// The request of a case: a template, and the fields that fill in what the template leaves out.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RequestSpec {
    /// The template as JSON, `%m`, `%p` and `{{ … }}` still in its string leaves. None: the protocol's own body.
    pub template: Option<Value>,
    /// Ask for a stream.
    pub stream: bool,
    /// Output tokens allowed.
    pub max_tokens: Option<Quantity>,
    /// `temperature`, `stop`, `ignore_eos` and the like, by their JSON name, in order.
    pub sampling: Map<String, Value>,
    /// Merged into the body last, over everything.
    pub extra: Map<String, Value>,
    /// `api: custom`: how its responses are read.
    pub extract: Option<Extract>,
    /// What is tried once more; None: nothing.
    pub retry: Option<Retry>,
    /// Users who leave; None: no user does.
    pub cancel: Option<Cancel>,
}
