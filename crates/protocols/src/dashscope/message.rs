//! The JSON of DashScope: one event of a stream, or one reply.

use crate::raw_json::{OneOrMany, Raw, decode_failure};
use llmscen_core::outcome::Failure;
use serde::Deserialize;
use serde_json::value::RawValue;

/// One event, or one reply.
#[derive(Deserialize)]
pub struct Packet<'a> {
    /// Generated content.
    #[serde(borrow)]
    pub output: Option<Output<'a>>,
    /// Token counts.
    #[serde(borrow)]
    pub usage: Raw<'a>,
    /// Response id.
    #[serde(borrow)]
    pub request_id: Raw<'a>,
    /// An error code, if not empty; its text is in `message`.
    #[serde(borrow)]
    pub code: Raw<'a>,
}

/// Generated content: choices, or one text with `result_format: text`.
#[derive(Deserialize)]
pub struct Output<'a> {
    /// The choices.
    #[serde(borrow)]
    pub choices: Option<OneOrMany<Choice<'a>>>,
    /// The text.
    #[serde(borrow)]
    pub text: Raw<'a>,
    /// Finish reason of the text.
    #[serde(borrow)]
    pub finish_reason: Raw<'a>,
}

/// One of `n` choices.
#[derive(Deserialize)]
pub struct Choice<'a> {
    /// Index; absent with a single choice.
    pub index: Option<u32>,
    /// The message.
    #[serde(borrow)]
    pub message: Option<Message<'a>>,
    /// Finish reason.
    #[serde(borrow)]
    pub finish_reason: Raw<'a>,
}

/// The message of a choice.
#[derive(Deserialize)]
pub struct Message<'a> {
    /// A text, or a list of parts.
    #[serde(borrow)]
    pub content: Raw<'a>,
    /// Reasoning before the answer.
    #[serde(borrow)]
    pub reasoning_content: Raw<'a>,
    /// Tool calls, or parts of them.
    #[serde(borrow)]
    pub tool_calls: Option<OneOrMany<Call<'a>>>,
}

impl<'a> Message<'a> {
    /// The parts of a content list, as sent by vision models.
    ///
    /// # Errors `decode`: the list has elements of another type.
    pub fn parts(&self) -> Result<Option<OneOrMany<Piece<'a>>>, Failure> {
        let Some(list) = self
            .content
            .map(RawValue::get)
            .filter(|json| json.starts_with('['))
        else {
            return Ok(None);
        };
        serde_json::from_str(list)
            .map(Some)
            .map_err(|error| decode_failure(&error, list.as_bytes()))
    }
}

/// A part of a content list.
#[derive(Deserialize)]
pub struct Piece<'a> {
    /// The text, if it is a text part.
    #[serde(borrow)]
    pub text: Raw<'a>,
}

/// A tool call, or a part of one.
#[derive(Deserialize)]
pub struct Call<'a> {
    /// Index.
    pub index: Option<u32>,
    /// Call id.
    #[serde(borrow)]
    pub id: Raw<'a>,
    /// The called function.
    #[serde(borrow)]
    pub function: Option<Function<'a>>,
}

/// The function of a tool call.
#[derive(Clone, Copy, Default, Deserialize)]
pub struct Function<'a> {
    /// Name.
    #[serde(borrow)]
    pub name: Raw<'a>,
    /// Arguments as JSON, in parts if streamed.
    #[serde(borrow)]
    pub arguments: Raw<'a>,
}
