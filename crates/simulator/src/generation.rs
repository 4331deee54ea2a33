//! What a client requests, whatever the protocol.
//!
//! Fields of its body are read one by one, and what is wrong is refused by its dotted path.

use crate::http::Request;
use crate::prompt::Prompt;
use llmscen_core::seed::Seed;
use llmscen_core::simulator::Simulator;
use serde_json::{Map, Value};
use std::fmt::Display;

/// Most choices of one answer.
pub(super) const MOST_CHOICES: u64 = 16;

/// Why an answer ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Finish {
    /// It set no limit, and the simulator's default length was reached.
    Stop,
    /// It set the limit, which is always used up.
    Length,
}

impl Finish {
    /// The word of OpenAI's protocols, and of those that took it from there.
    pub(super) fn word(self) -> &'static str {
        match self {
            Finish::Stop => "stop",
            Finish::Length => "length",
        }
    }
}

/// A request that can be served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Generation {
    /// The model it names, as a JSON string with its quotes; `"sim"` where it names none.
    pub(super) model: String,
    pub(super) stream: bool,
    /// The answer is to carry its usage.
    pub(super) usage: bool,
    pub(super) prompt: Prompt,
    /// Prompt tokens that cost no prefill, known when the engine has taken it; None without a prefix cache.
    pub(super) cached: Option<u64>,
    /// Output tokens of each choice: the limit that it sets, which is always used up, or else the simulator's default.
    pub(super) output: u64,
    pub(super) finish: Finish,
    /// Sequences that the engine makes of it.
    pub(super) choices: u64,
    /// Tokens of reasoning in front of each choice.
    pub(super) reasoning: u64,
    /// It requests numbers, not text: its one token only marks that the prompt is computed.
    pub(super) pooled: bool,
}

impl Generation {
    /// Tokens that the engine gives for it, over all choices.
    pub(super) fn total(&self) -> u64 {
        self.output.saturating_mul(self.choices)
    }

    /// Tokens of reasoning over all choices.
    pub(super) fn thoughts(&self) -> u64 {
        self.reasoning.saturating_mul(self.choices)
    }
}

/// A request as a protocol reads it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Call<'c> {
    /// The path that it was posted to, one of the protocol's.
    pub(super) path: &'static str,
    pub(super) request: &'c Request,
    pub(super) body: Fields<'c>,
    /// The id of its answer.
    pub(super) id: &'c str,
    pub(super) config: &'c Simulator,
    /// Of all that is drawn for its answer.
    pub(super) seed: Seed,
}

impl<'c> Call<'c> {
    /// An empty prompt.
    pub(super) fn prompt(&self) -> Prompt {
        Prompt::new(self.config.prefix_cache)
    }

    /// The messages of `fields`, under the name `messages`, counted.
    pub(super) fn messages(&self, prompt: &mut Prompt, fields: Fields<'c>) -> Result<(), Refusal> {
        let wrong = || fields.wrong("messages", "must hold objects with a `role` and a `content` of text or parts");
        fields.list("messages", "message")?.iter().try_for_each(|message| prompt.message(message).ok_or_else(wrong))
    }

    /// What is requested, by the fields that most protocols share: `model`, `stream`. Usage is reported unless a fault
    /// forbids it. `limit` is the limit of output tokens.
    pub(super) fn generation(&self, prompt: Prompt, limit: Option<u64>) -> Result<Generation, Refusal> {
        let (output, finish) = match limit {
            Some(limit) => (limit, Finish::Length),
            None => (u64::from(self.config.default_output_tokens).max(1), Finish::Stop),
        };
        Ok(Generation {
            model: serde_json::Value::from(self.body.text("model")?.unwrap_or("sim")).to_string(),
            stream: self.body.flag("stream", false)?,
            usage: !self.config.faults.no_usage,
            prompt,
            cached: None,
            output,
            finish,
            choices: 1,
            reasoning: u64::from(self.config.faults.reasoning_tokens).min(output),
            pooled: false,
        })
    }

    /// What is requested where the answer is numbers.
    pub(super) fn pooled(&self, prompt: Prompt) -> Result<Generation, Refusal> {
        let generation = self.generation(prompt, None)?;
        Ok(Generation { stream: false, output: 1, reasoning: 0, pooled: true, ..generation })
    }
}

/// A request that gets an error status instead of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) status: u16,
    pub(super) message: String,
    /// The field that is wrong, as a dotted path.
    pub(super) param: Option<String>,
}

impl Refusal {
    pub(super) fn new(status: u16, message: impl Into<String>) -> Refusal {
        Refusal { status, message: message.into(), param: None }
    }

    /// The error that a struck request reports inside its answer.
    pub(super) fn broken() -> Refusal {
        Refusal::new(500, "the simulator broke this answer on purpose")
    }
}

/// A JSON object inside the body, or the body itself. A field that is `null` counts as absent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fields<'b> {
    /// None where the object is absent.
    map: Option<&'b Map<String, Value>>,
    /// The object's own name, empty for the body.
    name: &'static str,
}

impl<'b> Fields<'b> {
    /// The fields of the body.
    pub(super) fn new(body: &'b Map<String, Value>) -> Fields<'b> {
        Fields { map: Some(body), name: "" }
    }

    /// A field's value.
    pub(super) fn get(self, name: &str) -> Option<&'b Value> {
        self.map?.get(name).filter(|value| !value.is_null())
    }

    /// A field's value; its absence is refused.
    pub(super) fn need(self, name: &str) -> Result<&'b Value, Refusal> {
        self.get(name).ok_or_else(|| self.wrong(name, "is missing"))
    }

    /// Refuses a field; `why` follows its name.
    pub(super) fn wrong(self, name: &str, why: impl Display) -> Refusal {
        let path = if self.name.is_empty() { name.to_owned() } else { format!("{}.{name}", self.name) };
        Refusal { status: 400, message: format!("`{path}` {why}"), param: Some(path) }
    }

    /// An object inside this one.
    pub(super) fn object(self, name: &'static str) -> Result<Fields<'b>, Refusal> {
        match self.get(name) {
            None => Ok(Fields { map: None, name }),
            Some(Value::Object(map)) => Ok(Fields { map: Some(map), name }),
            Some(_) => Err(self.wrong(name, "must be an object")),
        }
    }

    /// A whole number, not negative.
    pub(super) fn count(self, name: &str) -> Result<Option<u64>, Refusal> {
        self.typed(name, Value::as_u64, "a whole number")
    }

    /// A flag; absent is `default`.
    pub(super) fn flag(self, name: &str, default: bool) -> Result<bool, Refusal> {
        Ok(self.typed(name, Value::as_bool, "true or false")?.unwrap_or(default))
    }

    /// A text.
    pub(super) fn text(self, name: &str) -> Result<Option<&'b str>, Refusal> {
        self.typed(name, Value::as_str, "text")
    }

    /// A list that is not empty; its absence is refused. `what` names what it holds.
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

    fn typed<T>(self, name: &str, read: impl Fn(&'b Value) -> Option<T>, what: &str) -> Result<Option<T>, Refusal> {
        let Some(value) = self.get(name) else { return Ok(None) };
        read(value).map(Some).ok_or_else(|| self.wrong(name, format_args!("must be {what}, not {value}")))
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
        assert_eq!(refused(inner.count("n").unwrap_err()), ("`a.n` must be a whole number, not -1".into(), "a.n".into()));
        assert_eq!(refused(body.flag("f", true).unwrap_err()).0, "`f` must be true or false, not 1");
        assert_eq!(refused(body.list("l", "item").unwrap_err()).0, "`l` must be a list of at least one item");
        assert_eq!(refused(body.object("f").unwrap_err()).0, "`f` must be an object");
        assert_eq!(refused(body.need("x").unwrap_err()).0, "`x` is missing");
        assert_eq!((inner.text("s"), inner.text("none"), inner.flag("none", true)), (Ok(Some("x")), Ok(None), Ok(true)));
        assert_eq!(body.object("absent").unwrap().count("n"), Ok(None));
    }
}
