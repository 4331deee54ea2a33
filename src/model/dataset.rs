//! Where prompts come from.

use crate::model::request::Quantity;
use serde::{Deserialize, Serialize};

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
    /// Tokens drawn at random, unique per request.
    Random {
        /// Prompt length.
        tokens: Quantity,
    },
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
    /// End the case there as an error.
    Error,
}

/// The prompts of a case.
#[derive(Clone, Debug, PartialEq)]
pub struct DatasetSpec {
    /// Kind, with what belongs to it alone.
    pub source: Source,
    /// The file; None: the copy that ships with the tool, or a download where the kind has one.
    pub path: Option<String>,
    /// A tokenizer.json, or the folder that holds one.
    pub tokenizer: Option<String>,
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
}
