//! Prompts: one item of a dataset, ready to be placed in a request.

use crate::units::Nanos;
use serde_json::{Map, Value};
use std::sync::Arc;

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
