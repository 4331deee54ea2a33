//! What a client asks for, whatever the protocol.

use crate::fields::{Fields, Refusal};
use crate::http::Request;
use crate::prompt::Prompt;
use llmscen_core::seed::Seed;
use llmscen_core::simulator::Simulator;

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
pub(super) struct Ask {
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
    /// It asks for numbers, not for text: its one token only marks that the prompt is computed.
    pub(super) pooled: bool,
}

impl Ask {
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

    /// What is asked for, by the fields that most protocols share: `model`, `stream`. Usage is reported unless a fault
    /// forbids it. `limit` is the limit of output tokens.
    pub(super) fn ask(&self, prompt: Prompt, limit: Option<u64>) -> Result<Ask, Refusal> {
        let (output, finish) = match limit {
            Some(limit) => (limit, Finish::Length),
            None => (u64::from(self.config.default_output_tokens).max(1), Finish::Stop),
        };
        Ok(Ask {
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

    /// What is asked for where the answer is numbers.
    pub(super) fn pooled(&self, prompt: Prompt) -> Result<Ask, Refusal> {
        let ask = self.ask(prompt, None)?;
        Ok(Ask { stream: false, output: 1, reasoning: 0, pooled: true, ..ask })
    }
}
