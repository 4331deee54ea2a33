//! A local model as its host sees it: its functions, its input and its output.

use crate::error::LocalError;
use llmscen_core::units::Nanos;
use llmscen_datasets::token::text_of;
use serde_json::Value;

/// Limit of the memory of the logits of a batch, in bytes.
pub const LOGITS_AT_ONCE: u64 = 1 << 30;

/// How the next token is sampled. The filters are applied in the order of the fields; a temperature of 0 selects the
/// most likely token.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampling {
    /// Divides positive and multiplies negative logits of tokens in the prompt or the reply (Keskar et al. 2019,
    /// section 4.1); 1: no penalty.
    pub repetition_penalty: f32,
    /// Divides the logits; 0: greedy.
    pub temperature: f32,
    /// Number of most likely tokens; 0: all.
    pub top_k: u32,
    /// Least sum of probabilities of the most likely tokens; 1: all (Holtzman et al. 2020).
    pub top_p: f32,
    /// Least probability as a share of the most likely token; 0: all (Nguyen et al. 2024).
    pub min_p: f32,
    /// Seed of the random numbers.
    pub seed: u64,
}

impl Default for Sampling {
    fn default() -> Sampling {
        Sampling {
            repetition_penalty: 1.0,
            temperature: 0.0,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            seed: 0,
        }
    }
}

/// One row of a batch.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GenerationParams {
    /// The prompt; never empty.
    pub prompt: Vec<u32>,
    /// Limit of the generated tokens; at least 1.
    pub max_tokens: u64,
    /// How tokens are sampled.
    pub sampling: Sampling,
    /// Continue after the end-of-text token.
    pub ignore_eos: bool,
    /// Texts that end the reply and are not part of it.
    pub stop: Vec<String>,
    /// Record the logits of every step.
    pub logits: bool,
}

/// Why a row ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// At `max_tokens` or the limit of the model.
    Length,
    /// The end-of-text token, or a stop text.
    Stop,
    /// Cancelled by the client.
    Cancelled,
}

/// The output of a row.
#[derive(Clone, Debug, PartialEq)]
pub struct RowOutput {
    /// Generated tokens, including an end-of-text token.
    pub tokens: Vec<u32>,
    /// Generated text, without the stop text.
    pub text: String,
    /// Time of each token, after the device has finished. The first one is the end of the prefill.
    pub stamps: Vec<Nanos>,
    /// Why it ended.
    pub ended: Ended,
    /// The logits of all steps before any filter, where they are recorded.
    pub logits: Option<Vec<f32>>,
}

/// The output of a batch.
#[derive(Clone, Debug, PartialEq)]
pub struct BatchOutput {
    /// The rows in the order of the requests.
    pub rows: Vec<RowOutput>,
    /// Start of the batch.
    pub began: Nanos,
    /// End of the prefill.
    pub prefilled: Nanos,
    /// End of each step after the prefill.
    pub steps: Vec<Nanos>,
    /// Padded length of the prompts.
    pub padded_to: u64,
}

/// A model that computes batches.
pub trait BatchModel {
    /// The tokens of a rendered chat template, without special tokens.
    ///
    /// # Errors
    /// The tokenizer rejects the text.
    fn tokens(&self, text: &str) -> Result<Vec<u32>, LocalError>;

    /// The tokens of a plain text, with the special tokens of the model.
    ///
    /// # Errors
    /// The tokenizer rejects the text.
    fn plain_tokens(&self, text: &str) -> Result<Vec<u32>, LocalError>;

    /// A conversation rendered with the chat template of the model; None where it has none.
    ///
    /// # Errors
    /// The template rejects the messages.
    fn chat(&self, messages: &Value) -> Result<Option<String>, LocalError>;

    /// Limit of the tokens of a prompt with its reply.
    fn limit(&self) -> u64;

    /// Size of the vocabulary.
    fn vocabulary(&self) -> usize;

    /// Computes a batch to its end. `clock` is read after the device has finished. `alive` is called for each row
    /// before each step; false cancels the row. If all rows are cancelled, a step or the prefill may stop early.
    ///
    /// # Errors
    /// The device failed.
    fn work(
        &mut self,
        params: &[GenerationParams],
        clock: &dyn Fn() -> Nanos,
        alive: &(dyn Fn(usize) -> bool + Sync),
    ) -> Result<BatchOutput, LocalError>;

    /// Used memory of the device in bytes; None on the CPU, or where it is unknown.
    fn device_memory(&self) -> Option<u64>;
}

/// A parsed request body.
#[derive(Clone, Debug, PartialEq)]
pub struct GenerationRequest {
    prompt: PromptSource,
    max_tokens: Option<u64>,
    sampling: Sampling,
    /// Continue after the end-of-text token.
    pub ignore_eos: bool,
    stop: Vec<String>,
}

#[derive(Clone, Debug, PartialEq)]
enum PromptSource {
    /// A conversation, to be rendered with the chat template.
    Messages(Value),
    /// A plain text.
    Text(String),
}

impl GenerationRequest {
    /// Parses a body. `seed` is used where the body has none.
    ///
    /// # Errors
    /// Why the body is invalid.
    pub fn parse(body: &[u8], seed: u64) -> Result<GenerationRequest, String> {
        let body: Value = serde_json::from_slice(body)
            .map_err(|error| format!("the body is not JSON: {error}"))?;
        let prompt = match (body.get("messages"), body.get("prompt")) {
            (Some(messages @ Value::Array(_)), _) => PromptSource::Messages(messages.clone()),
            (_, Some(Value::String(text))) => PromptSource::Text(text.clone()),
            _ => {
                return Err(
                    "the body has neither a list of `messages` nor a text as `prompt`".into(),
                );
            }
        };
        if let PromptSource::Messages(messages) = &prompt
            && !messages.as_array().into_iter().flatten().all(is_text_only)
        {
            return Err(
                "a local model supports text input only, and the messages contain other parts"
                    .into(),
            );
        }
        let number = |key: &str| {
            body.get(key)
                .and_then(Value::as_f64)
                .map(|value| value as f32)
        };
        let default = Sampling::default();
        let body_seed = body
            .get("seed")
            .and_then(|seed| seed.as_i64().map(|seed| seed as u64).or(seed.as_u64()));
        Ok(GenerationRequest {
            max_tokens: body.get("max_tokens").and_then(Value::as_u64),
            sampling: Sampling {
                repetition_penalty: number("repetition_penalty")
                    .unwrap_or(default.repetition_penalty),
                temperature: number("temperature").unwrap_or(default.temperature),
                // -1 means all tokens.
                top_k: body
                    .get("top_k")
                    .and_then(Value::as_u64)
                    .and_then(|k| u32::try_from(k).ok())
                    .unwrap_or(default.top_k),
                top_p: number("top_p").unwrap_or(default.top_p),
                min_p: number("min_p").unwrap_or(default.min_p),
                seed: body_seed.unwrap_or(seed),
            },
            ignore_eos: body.get("ignore_eos") == Some(&Value::Bool(true)),
            stop: parse_stop(body.get("stop")),
            prompt,
        })
    }

    /// The tokens of the prompt. Messages are rendered with the chat template of the model; without one their
    /// contents are joined with line breaks, as datasets count them, and get the special tokens of plain text.
    ///
    /// # Errors
    /// The template or the tokenizer rejects it.
    pub fn prompt(&self, model: &impl BatchModel) -> Result<Vec<u32>, LocalError> {
        match &self.prompt {
            PromptSource::Text(text) => model.plain_tokens(text),
            PromptSource::Messages(messages) => match model.chat(messages)? {
                Some(text) => model.tokens(&text),
                None => {
                    let contents = messages
                        .as_array()
                        .into_iter()
                        .flatten()
                        .map(text_of)
                        .collect::<Vec<_>>();
                    model.plain_tokens(&contents.join("\n"))
                }
            },
        }
    }

    /// The requested length of the reply, where it exceeds `room`.
    pub fn excess_length(&self, room: u64, leave_after: Option<u64>) -> Option<u64> {
        self.max_tokens
            .map(|tokens| tokens.min(leave_after.unwrap_or(u64::MAX)))
            .filter(|tokens| *tokens > room)
    }

    /// The row of a batch. `room` is the limit of the model, `leave_after` the number of tokens after which the user
    /// leaves.
    pub fn params(
        &self,
        prompt: Vec<u32>,
        room: u64,
        leave_after: Option<u64>,
        logits: bool,
    ) -> GenerationParams {
        let max_tokens = self
            .max_tokens
            .unwrap_or(room)
            .min(room)
            .min(leave_after.unwrap_or(u64::MAX))
            .max(1);
        GenerationParams {
            prompt,
            max_tokens,
            sampling: self.sampling,
            ignore_eos: self.ignore_eos,
            stop: self.stop.clone(),
            logits,
        }
    }
}

fn is_text_only(message: &Value) -> bool {
    let parts = message.get("content").and_then(Value::as_array);
    parts.is_none_or(|parts| parts.iter().all(|part| part.get("text").is_some()))
}

fn parse_stop(stop: Option<&Value>) -> Vec<String> {
    match stop {
        Some(Value::String(text)) => vec![text.clone()],
        Some(Value::Array(texts)) => texts
            .iter()
            .filter_map(|text| text.as_str().map(str::to_owned))
            .collect(),
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(body: Value) -> Result<GenerationRequest, String> {
        GenerationRequest::parse(body.to_string().as_bytes(), 9)
    }

    #[test]
    fn every_field_of_a_request_reaches_the_model() {
        let body = json!({ "messages": [{ "role": "user", "content": "a" }], "max_tokens": 7,
            "temperature": 0.5, "top_p": 0.25,
            "top_k": 4, "min_p": 0.125, "repetition_penalty": 1.5, "seed": 3, "stop": ["x", "y"], "ignore_eos": true });
        let params = read(body).unwrap().params(vec![1, 2], 100, None, true);
        let sampling = Sampling {
            repetition_penalty: 1.5,
            temperature: 0.5,
            top_k: 4,
            top_p: 0.25,
            min_p: 0.125,
            seed: 3,
        };
        let stop = vec!["x".to_owned(), "y".into()];
        assert_eq!(
            params,
            GenerationParams {
                prompt: vec![1, 2],
                max_tokens: 7,
                sampling,
                ignore_eos: true,
                stop,
                logits: true
            }
        );
    }

    #[test]
    fn without_parameters_sampling_is_greedy_up_to_the_limit() {
        let request = read(json!({ "prompt": "a", "top_k": -1, "stop": "z" })).unwrap();
        let params = request.params(vec![1], 30, None, false);
        assert_eq!(
            (params.max_tokens, params.stop.as_slice()),
            (30, &["z".to_owned()][..])
        );
        assert_eq!(
            params.sampling,
            Sampling {
                seed: 9,
                ..Sampling::default()
            }
        );
        assert_eq!(
            request.params(vec![1], 30, Some(5), false).max_tokens,
            5,
            "its user leaves then"
        );
    }

    #[test]
    fn a_body_without_text_is_an_error() {
        let image =
            json!([{ "role": "user", "content": [{ "type": "image_url", "image_url": "x" }] }]);
        assert!(
            read(json!({ "messages": image }))
                .unwrap_err()
                .starts_with("a local model supports text input only")
        );
        assert!(
            read(json!({ "input": 3 }))
                .unwrap_err()
                .contains("neither a list of `messages`")
        );
        assert!(
            GenerationRequest::parse(b"{", 0)
                .unwrap_err()
                .starts_with("the body is not JSON")
        );
    }
}
