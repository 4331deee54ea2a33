//! What a request of a case says, before its prompt is placed in it.

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

/// The request of a case: a template, and the fields that fill in what the template leaves out.
#[derive(Clone, Debug, PartialEq)]
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
}
