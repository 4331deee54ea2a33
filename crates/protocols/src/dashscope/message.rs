//! The JSON of DashScope: one event of a stream, or one whole reply.

use crate::raw_json::{OneOrMany, Raw, number, unreadable};
use llmscen_core::outcome::{Failure, Usage};
use serde::Deserialize;
use serde_json::value::RawValue;

/// One event, or one whole reply.
#[derive(Deserialize)]
pub struct Packet<'a> {
    /// What was generated.
    #[serde(borrow)]
    pub output: Option<Output<'a>>,
    /// Token counts.
    #[serde(borrow)]
    pub usage: Raw<'a>,
    /// The response's id.
    #[serde(borrow)]
    pub request_id: Raw<'a>,
    /// An error, where it is not empty; its words are in `message`.
    #[serde(borrow)]
    pub code: Raw<'a>,
}

/// What was generated: choices, or one text with `result_format: text`.
#[derive(Deserialize)]
pub struct Output<'a> {
    /// The choices.
    #[serde(borrow)]
    pub choices: Option<OneOrMany<Choice<'a>>>,
    /// The one text.
    #[serde(borrow)]
    pub text: Raw<'a>,
    /// Why the text ended.
    #[serde(borrow)]
    pub finish_reason: Raw<'a>,
}

/// One of `n` answers.
#[derive(Deserialize)]
pub struct Choice<'a> {
    /// Its number; absent where there is one.
    pub index: Option<u32>,
    /// What it says.
    #[serde(borrow)]
    pub message: Option<Message<'a>>,
    /// Why it ended.
    #[serde(borrow)]
    pub finish_reason: Raw<'a>,
}

/// What an answer says.
#[derive(Deserialize)]
pub struct Message<'a> {
    /// A text, or a list of parts.
    #[serde(borrow)]
    pub content: Raw<'a>,
    /// The reasoning in front of it.
    #[serde(borrow)]
    pub reasoning_content: Raw<'a>,
    /// Tool calls, or pieces of them.
    #[serde(borrow)]
    pub tool_calls: Option<OneOrMany<Call<'a>>>,
}

impl<'a> Message<'a> {
    /// The parts of a content that is a list, as models that see pictures answer.
    ///
    /// # Errors
    /// `decode`: the list holds something else.
    pub fn parts(&self) -> Result<Option<OneOrMany<Piece<'a>>>, Failure> {
        let Some(list) = self.content.map(RawValue::get).filter(|json| json.starts_with('[')) else {
            return Ok(None);
        };
        serde_json::from_str(list).map(Some).map_err(|error| unreadable(&error, list.as_bytes()))
    }
}

/// A part of a content: a text, or something else.
#[derive(Deserialize)]
pub struct Piece<'a> {
    /// The text.
    #[serde(borrow)]
    pub text: Raw<'a>,
}

/// A tool call, or a piece of one.
#[derive(Deserialize)]
pub struct Call<'a> {
    /// Its number.
    pub index: Option<u32>,
    /// Its id.
    #[serde(borrow)]
    pub id: Raw<'a>,
    /// What is called.
    #[serde(borrow)]
    pub function: Option<Function<'a>>,
}

/// What a tool call calls.
#[derive(Clone, Copy, Default, Deserialize)]
pub struct Function<'a> {
    /// Its name.
    #[serde(borrow)]
    pub name: Raw<'a>,
    /// Its arguments as JSON, a piece of them where they are streamed.
    #[serde(borrow)]
    pub arguments: Raw<'a>,
}

#[derive(Deserialize)]
struct Counts<'a> {
    #[serde(borrow)]
    input_tokens: Raw<'a>,
    #[serde(borrow)]
    output_tokens: Raw<'a>,
    #[serde(borrow)]
    prompt_tokens_details: Option<Details<'a>>,
    #[serde(borrow)]
    output_tokens_details: Option<Details<'a>>,
}

#[derive(Deserialize)]
struct Details<'a> {
    #[serde(borrow)]
    cached_tokens: Raw<'a>,
    #[serde(borrow)]
    reasoning_tokens: Raw<'a>,
}

/// Reads a `usage` object. What is missing, null or no whole number is absent: bad counts never fail a good response.
pub fn usage_of(raw: &RawValue) -> Usage {
    let Ok(counts) = serde_json::from_str::<Counts>(raw.get()) else {
        return Usage::default();
    };
    Usage {
        prompt: number(counts.input_tokens),
        output: number(counts.output_tokens),
        reasoning: counts.output_tokens_details.and_then(|details| number(details.reasoning_tokens)),
        cached: counts.prompt_tokens_details.and_then(|details| number(details.cached_tokens)),
    }
}
