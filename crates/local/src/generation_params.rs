//! What a model is asked, and what it tells.

use crate::batch_model::BatchModel;
use crate::error::LocalError;
use llmscen_core::units::Nanos;
use llmscen_datasets::token::text_of;
use serde_json::Value;

/// Bytes of memory that the logits of a batch may take, where they are kept.
pub const LOGITS_AT_ONCE: u64 = 1 << 30;

/// How the next token is chosen. The filters apply in the order in which they stand here; a temperature of 0 takes the most
/// likely token, whatever they say.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampling {
    /// Divides the logits of tokens that stand in the prompt or were generated where they are positive, multiplies them where
    /// they are negative (Keskar et al. 2019, section 4.1); 1: nothing.
    pub repetition_penalty: f32,
    /// Divides the logits; 0: greedy.
    pub temperature: f32,
    /// The most likely so many tokens; 0: all.
    pub top_k: u32,
    /// The fewest most likely tokens whose probabilities sum to this; 1: all (Holtzman et al. 2020).
    pub top_p: f32,
    /// Tokens at least so likely, as a share of the most likely one; 0: all (Nguyen et al. 2024).
    pub min_p: f32,
    /// Of the draws.
    pub seed: u64,
}

impl Default for Sampling {
    fn default() -> Sampling {
        Sampling { repetition_penalty: 1.0, temperature: 0.0, top_k: 0, top_p: 1.0, min_p: 0.0, seed: 0 }
    }
}

/// One row of a batch.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GenerationParams {
    /// The prompt; never empty.
    pub prompt: Vec<u32>,
    /// Tokens generated at the most; at least 1.
    pub max_tokens: u64,
    /// How each is chosen.
    pub sampling: Sampling,
    /// The end-of-text token does not end it.
    pub ignore_eos: bool,
    /// Texts that end it; what is told ends before them.
    pub stop: Vec<String>,
    /// Keep the logits of every step.
    pub logits: bool,
}

/// Why a row ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// It has its `max_tokens`, or the model has no room for more.
    Length,
    /// The end-of-text token, or a stop text.
    Stop,
    /// It was given up by whom asked.
    GivenUp,
}

/// What became of a row.
#[derive(Clone, Debug, PartialEq)]
pub struct RowOutput {
    /// Its tokens, an end-of-text token among them.
    pub tokens: Vec<u32>,
    /// Its text, without what stopped it.
    pub text: String,
    /// When each token was there, the device waited for. The first is the end of the prefill.
    pub stamps: Vec<Nanos>,
    /// Why it ended.
    pub ended: Ended,
    /// The logits of each step before any filter, one row of the vocabulary's width after another, where they were kept.
    pub logits: Option<Vec<f32>>,
}

/// What became of a batch.
#[derive(Clone, Debug, PartialEq)]
pub struct BatchOutput {
    /// Its rows, in the order in which they were asked.
    pub rows: Vec<RowOutput>,
    /// When it began, when its prefill was done, and when each later step was, on the clock that was given.
    pub began: Nanos,
    /// The end of the prefill.
    pub prefilled: Nanos,
    /// The ends of the steps after it, in order.
    pub steps: Vec<Nanos>,
    /// The length that prompts were padded to.
    pub padded_to: u64,
}

/// A body, read.
#[derive(Clone, Debug, PartialEq)]
pub struct GenerationRequest {
    prompt: PromptSource,
    max_tokens: Option<u64>,
    sampling: Sampling,
    /// The reply has its length, whatever the model says.
    pub ignore_eos: bool,
    stop: Vec<String>,
}

/// What the model is to go on from.
#[derive(Clone, Debug, PartialEq)]
enum PromptSource {
    /// A conversation, which the chat template makes a text of.
    Messages(Value),
    /// A text as it stands.
    Text(String),
}

impl GenerationRequest {
    /// Reads a body. `seed` is that of the draws where the body names none.
    ///
    /// # Errors
    /// What of it cannot be understood, in words.
    pub fn parse(body: &[u8], seed: u64) -> Result<GenerationRequest, String> {
        let body: Value = serde_json::from_slice(body).map_err(|error| format!("the body is no JSON: {error}"))?;
        let prompt = match (body.get("messages"), body.get("prompt")) {
            (Some(messages @ Value::Array(_)), _) => PromptSource::Messages(messages.clone()),
            (_, Some(Value::String(text))) => PromptSource::Text(text.clone()),
            _ => return Err("the body has neither a list of `messages` nor a text as `prompt`".into()),
        };
        if let PromptSource::Messages(messages) = &prompt
            && !messages.as_array().into_iter().flatten().all(is_words)
        {
            return Err("a local model reads text alone, and there is something else in the messages".into());
        }
        let number = |key: &str| body.get(key).and_then(Value::as_f64).map(|value| value as f32);
        let plain = Sampling::default();
        let drawn = body.get("seed").and_then(|seed| seed.as_i64().map(|seed| seed as u64).or(seed.as_u64()));
        Ok(GenerationRequest {
            max_tokens: body.get("max_tokens").and_then(Value::as_u64),
            sampling: Sampling {
                repetition_penalty: number("repetition_penalty").unwrap_or(plain.repetition_penalty),
                temperature: number("temperature").unwrap_or(plain.temperature),
                // -1 is how servers say all.
                top_k: body.get("top_k").and_then(Value::as_u64).and_then(|k| u32::try_from(k).ok()).unwrap_or(plain.top_k),
                top_p: number("top_p").unwrap_or(plain.top_p),
                min_p: number("min_p").unwrap_or(plain.min_p),
                seed: drawn.unwrap_or(seed),
            },
            ignore_eos: body.get("ignore_eos") == Some(&Value::Bool(true)),
            stop: texts(body.get("stop")),
            prompt,
        })
    }

    /// The tokens of the prompt: the chat template applied where the model has one, which brings its own special tokens; else the
    /// contents, a line each, as datasets count them, with the special tokens that the model's files ask for.
    ///
    /// # Errors
    /// The template or the tokenizer refuses it.
    pub fn prompt(&self, model: &impl BatchModel) -> Result<Vec<u32>, LocalError> {
        match &self.prompt {
            PromptSource::Text(text) => model.plain_tokens(text),
            PromptSource::Messages(messages) => match model.chat(messages)? {
                Some(text) => model.tokens(&text),
                None => {
                    let contents = messages.as_array().into_iter().flatten().map(text_of).collect::<Vec<_>>();
                    model.plain_tokens(&contents.join("\n"))
                }
            },
        }
    }

    /// The tokens that the reply may have, where that is more than there is room for.
    pub fn beyond(&self, room: u64, enough: Option<u64>) -> Option<u64> {
        self.max_tokens.map(|most| most.min(enough.unwrap_or(u64::MAX))).filter(|most| *most > room)
    }

    /// The row of a batch. `most`: tokens that there is room for; `enough`: after so many its user leaves.
    pub fn ask(&self, prompt: Vec<u32>, most: u64, enough: Option<u64>, logits: bool) -> GenerationParams {
        let max_tokens = self.max_tokens.unwrap_or(most).min(most).min(enough.unwrap_or(u64::MAX)).max(1);
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

fn is_words(message: &Value) -> bool {
    let parts = message.get("content").and_then(Value::as_array);
    parts.is_none_or(|parts| parts.iter().all(|part| part.get("text").is_some()))
}

fn texts(stop: Option<&Value>) -> Vec<String> {
    match stop {
        Some(Value::String(text)) => vec![text.clone()],
        Some(Value::Array(texts)) => texts.iter().filter_map(|text| text.as_str().map(str::to_owned)).collect(),
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
        let body = json!({ "messages": [{ "role": "user", "content": "a" }], "max_tokens": 7, "temperature": 0.5, "top_p": 0.25,
            "top_k": 4, "min_p": 0.125, "repetition_penalty": 1.5, "seed": 3, "stop": ["x", "y"], "ignore_eos": true });
        let ask = read(body).unwrap().ask(vec![1, 2], 100, None, true);
        let sampling = Sampling { repetition_penalty: 1.5, temperature: 0.5, top_k: 4, top_p: 0.25, min_p: 0.125, seed: 3 };
        let stop = vec!["x".to_owned(), "y".into()];
        assert_eq!(ask, GenerationParams { prompt: vec![1, 2], max_tokens: 7, sampling, ignore_eos: true, stop, logits: true });
    }

    #[test]
    fn what_is_not_said_is_greedy_and_as_long_as_there_is_room() {
        let wanted = read(json!({ "prompt": "a", "top_k": -1, "stop": "z" })).unwrap();
        let ask = wanted.ask(vec![1], 30, None, false);
        assert_eq!((ask.max_tokens, ask.stop.as_slice()), (30, &["z".to_owned()][..]));
        assert_eq!(ask.sampling, Sampling { seed: 9, ..Sampling::default() });
        assert_eq!(wanted.ask(vec![1], 30, Some(5), false).max_tokens, 5, "its user leaves then");
    }

    #[test]
    fn a_body_without_words_is_refused_in_words() {
        let picture = json!([{ "role": "user", "content": [{ "type": "image_url", "image_url": "x" }] }]);
        assert!(read(json!({ "messages": picture })).unwrap_err().starts_with("a local model reads text alone"));
        assert!(read(json!({ "input": 3 })).unwrap_err().contains("neither a list of `messages`"));
        assert!(GenerationRequest::parse(b"{", 0).unwrap_err().starts_with("the body is no JSON"));
    }
}
