//! What is asked: one item of a dataset, ready to be placed in a request.

use serde_json::{Map, Value};

/// One turn's input.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Prompt {
    /// The prompt as text: `%p`. For a message list, the text of its last user message.
    pub text: String,
    /// The message list, where the data gives one; otherwise it is made from `text` and the system message.
    pub messages: Option<Vec<Value>>,
    /// A whole request body, where the data gives one; it takes the template's place.
    pub body: Option<Map<String, Value>>,
    /// The dataset's row by column, for `{{ item.x }}`.
    pub fields: Map<String, Value>,
    /// Prompt tokens as counted here, chat template left out.
    pub tokens: Option<u64>,
    /// The count was made with a stand-in tokenizer.
    pub approximate: bool,
}

/// A user's visit: its turns in order. A dataset without conversations has one turn a session.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Session {
    /// The turns.
    pub turns: Vec<Prompt>,
}
