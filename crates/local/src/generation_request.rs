//! What a rendered body asks of a model in this process.

use super::batch_model::Works;
use super::error::LocalError;
use super::generation_params::{Ask, Sampling};
use llmscen_datasets::token::text_of;
use serde_json::Value;

/// A body, read.
#[derive(Clone, Debug, PartialEq)]
pub struct Wanted {
    said: Said,
    max_tokens: Option<u64>,
    sampling: Sampling,
    /// The reply has its length, whatever the model says.
    pub ignore_eos: bool,
    stop: Vec<String>,
}

/// What the model is to go on from.
#[derive(Clone, Debug, PartialEq)]
enum Said {
    /// A conversation, which the chat template makes a text of.
    Messages(Value),
    /// A text as it stands.
    Text(String),
}

impl Wanted {
    /// Reads a body. `seed` is that of the draws where the body names none.
    ///
    /// # Errors
    /// What of it cannot be understood, in words.
    pub fn read(body: &[u8], seed: u64) -> Result<Wanted, String> {
        let body: Value = serde_json::from_slice(body).map_err(|error| format!("the body is no JSON: {error}"))?;
        let said = match (body.get("messages"), body.get("prompt")) {
            (Some(messages @ Value::Array(_)), _) => Said::Messages(messages.clone()),
            (_, Some(Value::String(text))) => Said::Text(text.clone()),
            _ => return Err("the body has neither a list of `messages` nor a text as `prompt`".into()),
        };
        if let Said::Messages(messages) = &said
            && !messages.as_array().into_iter().flatten().all(is_words)
        {
            return Err("a local model reads text alone, and there is something else in the messages".into());
        }
        let number = |key: &str| body.get(key).and_then(Value::as_f64).map(|value| value as f32);
        let plain = Sampling::default();
        let drawn = body.get("seed").and_then(|seed| seed.as_i64().map(|seed| seed as u64).or(seed.as_u64()));
        Ok(Wanted {
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
            said,
        })
    }

    /// The tokens of the prompt: the chat template applied where the model has one, which brings its own special tokens; else the
    /// contents, a line each, as datasets count them, with the special tokens that the model's files ask for.
    ///
    /// # Errors
    /// The template or the tokenizer refuses it.
    pub fn prompt(&self, model: &impl Works) -> Result<Vec<u32>, LocalError> {
        match &self.said {
            Said::Text(text) => model.plain_tokens(text),
            Said::Messages(messages) => match model.chat(messages)? {
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
    pub fn ask(&self, prompt: Vec<u32>, most: u64, enough: Option<u64>, logits: bool) -> Ask {
        let max_tokens = self.max_tokens.unwrap_or(most).min(most).min(enough.unwrap_or(u64::MAX)).max(1);
        Ask { prompt, max_tokens, sampling: self.sampling, ignore_eos: self.ignore_eos, stop: self.stop.clone(), logits }
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

    fn read(body: Value) -> Result<Wanted, String> {
        Wanted::read(body.to_string().as_bytes(), 9)
    }

    #[test]
    fn every_field_of_a_request_reaches_the_model() {
        let body = json!({ "messages": [{ "role": "user", "content": "a" }], "max_tokens": 7, "temperature": 0.5, "top_p": 0.25,
            "top_k": 4, "min_p": 0.125, "repetition_penalty": 1.5, "seed": 3, "stop": ["x", "y"], "ignore_eos": true });
        let ask = read(body).unwrap().ask(vec![1, 2], 100, None, true);
        let sampling = Sampling { repetition_penalty: 1.5, temperature: 0.5, top_k: 4, top_p: 0.25, min_p: 0.125, seed: 3 };
        let stop = vec!["x".to_owned(), "y".into()];
        assert_eq!(ask, Ask { prompt: vec![1, 2], max_tokens: 7, sampling, ignore_eos: true, stop, logits: true });
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
        assert!(Wanted::read(b"{", 0).unwrap_err().starts_with("the body is no JSON"));
    }
}
