//! A generation request, independent of the API.
//!
//! Fields of the body are read one by one; errors name the dotted path of the field.

use crate::answer;
use crate::http::Request;
use crate::prompt::Prompt;
use crate::stored::StoredResponses;
use llmscen_core::seed::Seed;
use llmscen_core::simulator::Simulator;
use serde_json::{Map, Value};
use std::fmt::Display;

/// Maximum number of choices.
pub(super) const MOST_CHOICES: u64 = 16;

/// Finish reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Finish {
    /// The answer ended, or the request set no limit and the default length was reached.
    Stop,
    /// The limit of the request was reached.
    Length,
}

impl Finish {
    /// The finish reason in OpenAI's APIs and others.
    pub(super) fn word(self) -> &'static str {
        match self {
            Finish::Stop => "stop",
            Finish::Length => "length",
        }
    }
}

/// A valid request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Generation {
    /// The requested model as a JSON string with quotes; `"sim"` if none.
    pub(super) model: String,
    pub(super) stream: bool,
    /// The events of the stream are messages on a WebSocket.
    pub(super) websocket: bool,
    /// Report usage.
    pub(super) usage: bool,
    pub(super) prompt: Prompt,
    /// Cached prompt tokens, set after submission to the engine; None without a prefix cache.
    pub(super) cached: Option<u64>,
    /// Output tokens per choice: the limit of the request or the default, or fewer if the answer ends before.
    pub(super) output: u64,
    pub(super) finish: Finish,
    /// Number of choices, each a sequence of the engine.
    pub(super) choices: u64,
    /// Reasoning tokens before the content of each choice.
    pub(super) reasoning: u64,
    /// The tokens of the content, escaped for a JSON string; None, and behind them: random words.
    pub(super) answer: Option<Vec<String>>,
    /// Embeddings or scores instead of text: the single token marks the end of the prefill.
    pub(super) pooled: bool,
    /// The response is stored, so that a later one can continue it.
    pub(super) stored: bool,
    /// The engine that generates it, set after submission; None where there is only one.
    pub(super) replica: Option<usize>,
}

impl Generation {
    /// Number of tokens over all choices.
    pub(super) fn total(&self) -> u64 {
        self.output.saturating_mul(self.choices)
    }

    /// Number of reasoning tokens over all choices.
    pub(super) fn thoughts(&self) -> u64 {
        self.reasoning.saturating_mul(self.choices)
    }
}

/// The inputs for reading a request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Call<'c> {
    /// The request path, one of the API's.
    pub(super) path: &'static str,
    pub(super) request: &'c Request,
    pub(super) body: Fields<'c>,
    /// The uploaded file of a form.
    pub(super) file: Option<&'c [u8]>,
    /// Response id.
    pub(super) id: &'c str,
    pub(super) config: &'c Simulator,
    /// The prompts of stored responses, their answers included.
    pub(super) stored: &'c StoredResponses,
    /// Seed of everything random in the response.
    pub(super) seed: Seed,
}

impl<'c> Call<'c> {
    /// An empty prompt.
    pub(super) fn prompt(&self) -> Prompt {
        Prompt::new(self.config.prefix_cache || self.config.answers.is_some())
    }

    /// Adds the `messages` of `fields` to the prompt.
    pub(super) fn messages(&self, prompt: &mut Prompt, fields: Fields<'c>) -> Result<(), Refusal> {
        let wrong = || {
            fields.wrong(
                "messages",
                "must hold objects with a `role` and a `content` of text or parts",
            )
        };
        fields
            .list("messages", "message")?
            .iter()
            .try_for_each(|message| prompt.message(message).ok_or_else(wrong))
    }

    /// The generation by fields that most APIs share: `model`, `stream`. Usage is reported unless a fault disables
    /// it. `limit` is the limit of output tokens.
    pub(super) fn generation(
        &self,
        prompt: Prompt,
        limit: Option<u64>,
    ) -> Result<Generation, Refusal> {
        let (most, finish) = match limit {
            Some(limit) => (limit, Finish::Length),
            None => (
                u64::from(self.config.default_output_tokens).max(1),
                Finish::Stop,
            ),
        };
        let reasoning = u64::from(self.config.faults.reasoning_tokens).min(most);
        let tokens = |answers| answer::tokens(answers, &prompt, most - reasoning, self.seed);
        let answer = self.config.answers.as_ref().and_then(tokens);
        let output = match &answer {
            Some(tokens) => most.min(reasoning + tokens.len() as u64),
            None => most,
        };
        let finish = if output < most { Finish::Stop } else { finish };
        Ok(Generation {
            model: serde_json::Value::from(self.body.text("model")?.unwrap_or("sim")).to_string(),
            stream: self.request.websocket || self.body.flag("stream", false)?,
            websocket: self.request.websocket,
            usage: !self.config.faults.no_usage,
            prompt,
            cached: None,
            output,
            finish,
            choices: 1,
            reasoning,
            answer,
            pooled: false,
            stored: false,
            replica: None,
        })
    }

    /// The generation of embeddings or scores.
    pub(super) fn pooled(&self, prompt: Prompt) -> Result<Generation, Refusal> {
        let generation = self.generation(prompt, None)?;
        Ok(Generation {
            stream: false,
            output: 1,
            reasoning: 0,
            pooled: true,
            ..generation
        })
    }
}

/// A rejected request: error status and message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) status: u16,
    pub(super) message: String,
    /// Dotted path of the invalid field.
    pub(super) param: Option<String>,
    /// Error code, if it is not the status.
    pub(super) code: Option<&'static str>,
}

impl Refusal {
    pub(super) fn new(status: u16, message: impl Into<String>) -> Refusal {
        Refusal {
            status,
            message: message.into(),
            param: None,
            code: None,
        }
    }

    /// The error of an injected fault inside a response.
    pub(super) fn broken() -> Refusal {
        Refusal::new(500, "the simulator broke this response on purpose")
    }
}

/// A JSON object in the body, or the body. `null` fields count as absent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fields<'b> {
    /// None if the object is absent.
    map: Option<&'b Map<String, Value>>,
    /// Name of the object, empty for the body.
    name: &'static str,
}

impl<'b> Fields<'b> {
    /// The fields of the body.
    pub(super) fn new(body: &'b Map<String, Value>) -> Fields<'b> {
        Fields {
            map: Some(body),
            name: "",
        }
    }

    /// A field's value.
    pub(super) fn get(self, name: &str) -> Option<&'b Value> {
        self.map?.get(name).filter(|value| !value.is_null())
    }

    /// The value of a required field.
    pub(super) fn need(self, name: &str) -> Result<&'b Value, Refusal> {
        self.get(name).ok_or_else(|| self.wrong(name, "is missing"))
    }

    /// An error for a field; `why` follows its name.
    pub(super) fn wrong(self, name: &str, why: impl Display) -> Refusal {
        let path = if self.name.is_empty() {
            name.to_owned()
        } else {
            format!("{}.{name}", self.name)
        };
        Refusal {
            status: 400,
            message: format!("`{path}` {why}"),
            param: Some(path),
            code: None,
        }
    }

    /// An object inside this one.
    pub(super) fn object(self, name: &'static str) -> Result<Fields<'b>, Refusal> {
        match self.get(name) {
            None => Ok(Fields { map: None, name }),
            Some(Value::Object(map)) => Ok(Fields {
                map: Some(map),
                name,
            }),
            Some(_) => Err(self.wrong(name, "must be an object")),
        }
    }

    /// A non-negative integer field.
    pub(super) fn count(self, name: &str) -> Result<Option<u64>, Refusal> {
        self.typed(name, Value::as_u64, "a whole number")
    }

    /// A boolean field; `default` if absent.
    pub(super) fn flag(self, name: &str, default: bool) -> Result<bool, Refusal> {
        Ok(self
            .typed(name, Value::as_bool, "true or false")?
            .unwrap_or(default))
    }

    /// A string field.
    pub(super) fn text(self, name: &str) -> Result<Option<&'b str>, Refusal> {
        self.typed(name, Value::as_str, "text")
    }

    /// A required non-empty list; `what` names its elements.
    pub(super) fn list(self, name: &str, what: &str) -> Result<&'b [Value], Refusal> {
        match self.need(name)? {
            Value::Array(list) if !list.is_empty() => Ok(list),
            _ => Err(self.wrong(name, format_args!("must be a list of at least one {what}"))),
        }
    }

    /// A limit of output tokens, at least 1.
    pub(super) fn limit(self, name: &str) -> Result<Option<u64>, Refusal> {
        match self.count(name)? {
            Some(0) => Err(self.wrong(name, "must be at least 1")),
            limit => Ok(limit),
        }
    }

    fn typed<T>(
        self,
        name: &str,
        read: impl Fn(&'b Value) -> Option<T>,
        what: &str,
    ) -> Result<Option<T>, Refusal> {
        let Some(value) = self.get(name) else {
            return Ok(None);
        };
        read(value)
            .map(Some)
            .ok_or_else(|| self.wrong(name, format_args!("must be {what}, not {value}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn wrong_fields_are_named_by_their_path() {
        let body = json!({ "a": { "n": -1, "s": "x", "none": null }, "l": [], "f": 1 });
        let body = Fields::new(body.as_object().unwrap());
        let inner = body.object("a").unwrap();
        let refused = |refusal: Refusal| (refusal.message, refusal.param.unwrap());
        assert_eq!(
            refused(inner.count("n").unwrap_err()),
            ("`a.n` must be a whole number, not -1".into(), "a.n".into())
        );
        assert_eq!(
            refused(body.flag("f", true).unwrap_err()).0,
            "`f` must be true or false, not 1"
        );
        assert_eq!(
            refused(body.list("l", "item").unwrap_err()).0,
            "`l` must be a list of at least one item"
        );
        assert_eq!(
            refused(body.object("f").unwrap_err()).0,
            "`f` must be an object"
        );
        assert_eq!(refused(body.need("x").unwrap_err()).0, "`x` is missing");
        assert_eq!(
            (
                inner.text("s"),
                inner.text("none"),
                inner.flag("none", true)
            ),
            (Ok(Some("x")), Ok(None), Ok(true))
        );
        assert_eq!(body.object("absent").unwrap().count("n"), Ok(None));
    }
}
