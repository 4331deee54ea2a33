//! The request of a case as the scenario describes it, and one request that is ready to be sent.

use crate::dataset::TurnDependencies;
use crate::distribution::Distribution;
use crate::expect::{Expect, Truths};
use crate::outcome::{Audio, Counted, FailureKind, Outcome, Phase};
use crate::quantity::Quantity;
use crate::units::Nanos;
use rand::Rng;
use serde_json::{Map, Value};

/// How responses of `api: custom` are read: RFC 9535 JSONPaths into each event of a stream, or into the response
/// document.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Extract {
    /// Framing of the body; None: by its `content-type`.
    pub framing: Option<Framing>,
    /// Generated text; all selected texts are concatenated.
    pub text: Vec<String>,
    /// Index of the choice that the texts belong to; None: a single choice.
    pub choice: Option<String>,
    /// Token counts.
    pub usage: ExtractUsage,
    /// Finish reason. A stream without end marker is complete only with a reason for every choice.
    pub finish: Option<String>,
    /// Response id.
    pub id: Option<String>,
    /// An error under a success status.
    pub error: Option<String>,
    /// End marker of a stream; None: the end of the body.
    pub done: Option<Done>,
}

/// How a body is framed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// Server-sent events.
    Sse,
    /// One JSON document per line.
    Ndjson,
    /// One JSON document.
    Json,
    /// The bytes of audio.
    Audio {
        /// Bytes per second of samples without a header; None: the body is not such samples, or their rate is not
        /// known.
        samples_rate: Option<u32>,
    },
}

/// JSONPaths of token counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExtractUsage {
    /// Tokens of the prompt.
    pub prompt: Option<String>,
    /// Tokens generated.
    pub output: Option<String>,
    /// Reasoning tokens among them.
    pub reasoning: Option<String>,
    /// Prompt tokens from the prefix cache.
    pub cached: Option<String>,
}

/// The end marker of a stream.
#[derive(Clone, Debug, PartialEq)]
pub enum Done {
    /// An event whose data is this text, such as `[DONE]`.
    Data(String),
    /// An event of this name (`event:` of server-sent events).
    Event(String),
    /// An event in which this JSONPath selects this value; without a value, anything except null and false.
    Value {
        /// The JSONPath.
        path: String,
        /// The value.
        equals: Option<Value>,
    },
}

/// The markers of reasoning in the text of an answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ReasoningMarkers {
    /// Those of known models.
    #[default]
    Auto,
    /// None: the whole text is the answer.
    None,
    /// The opening and the closing one.
    Pair([String; 2]),
}

/// Which failures are retried, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Retry {
    /// HTTP statuses that are retried.
    pub statuses: Vec<u16>,
    /// Failure kinds that are retried.
    pub kinds: Vec<FailureKind>,
    /// Respect the `Retry-After` header of the response.
    pub honor: bool,
    /// Maximum number of retries.
    pub max: u32,
    /// Wait before the first retry; doubles with every further one.
    pub wait: Nanos,
}

/// Client cancellation: users who leave before the response is complete.
#[derive(Clone, Debug, PartialEq)]
pub struct Cancel {
    /// Share of cancelled requests, 0..=1.
    pub share: f64,
    /// When requests are cancelled.
    pub when: CancelWhen,
}

/// When requests are cancelled by the client.
#[derive(Clone, Debug, PartialEq)]
pub enum CancelWhen {
    /// After this time since sending.
    After(Distribution),
    /// After this number of token events.
    Tokens(Quantity),
}

/// When one request is cancelled by the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientCancel {
    /// After this time since sending.
    After(Nanos),
    /// After this number of token events.
    Tokens(u64),
}

/// The request of a case: a template, and fields that complete it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RequestSpec {
    /// The template as JSON, with `%m`, `%p` and `{{ … }}` unexpanded in its strings. None: the default body of the
    /// API.
    pub template: Option<Value>,
    /// Request a stream.
    pub stream: bool,
    /// Maximum output tokens.
    pub max_tokens: Option<Quantity>,
    /// Sampling parameters such as `temperature`, `stop`, `ignore_eos`, by JSON name, in order.
    pub sampling: Map<String, Value>,
    /// Merged into the body last, overriding everything.
    pub extra: Map<String, Value>,
    /// `api: custom`: how responses are read.
    pub extract: Option<Extract>,
    /// How reasoning in the text of an answer is recognized.
    pub markers: ReasoningMarkers,
    /// Retries; None: no retries.
    pub retry: Option<Retry>,
    /// Client cancellation; None: no cancellation.
    pub cancel: Option<Cancel>,
    /// What answers are checked for; None: they are not checked.
    pub expect: Option<Expect>,
}

impl RequestSpec {
    /// A field of the body, at any depth: of `extra`, else of the template, else of the other settings.
    pub fn body_field(&self, name: &str) -> Option<&Value> {
        find_field(&self.extra, name)
            .or_else(|| find_field(self.template.as_ref()?.as_object()?, name))
            .or_else(|| self.sampling.get(name))
    }

    /// The number of choices that a request asks for.
    pub fn choices(&self) -> Option<u64> {
        self.body_field("n")?.as_u64()
    }
}

fn find_field<'a>(fields: &'a Map<String, Value>, name: &str) -> Option<&'a Value> {
    fields.get(name).or_else(|| {
        let inner = fields.values().filter_map(Value::as_object);
        inner.into_iter().find_map(|inner| find_field(inner, name))
    })
}

/// A rendered request, ready to be sent at its scheduled time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PreparedRequest {
    /// Request number in the case, warm-up included.
    pub seq: u64,
    /// Turn in the session, from 0.
    pub turn: u32,
    /// Number of turns in the session.
    pub turns: u32,
    /// It is a turn of a session, also if the session has no other.
    pub is_session: bool,
    /// The first measured turn of the session. A turn before it only fills the prefix cache.
    pub first_turn: u32,
    /// The first turn of a session whose turns are not in a line: the turns that each awaits.
    pub dependencies: Option<TurnDependencies>,
    /// Index of its traffic class in the mix.
    pub entry: usize,
    /// Number of the request or session within its traffic class; equals `seq` without a mix.
    pub number: u64,
    /// The group within the dataset or mix, if there are several.
    pub group: Option<String>,
    /// Additional headers; override those of the target.
    pub headers: Vec<(String, String)>,
    /// The headers have an API key of the scenario, which replaces that of the target.
    pub own_key: bool,
    /// Open loop: scheduled send time and phase. None in a closed loop, where both are known only when a user becomes
    /// free.
    pub due: Option<(Nanos, Phase)>,
    /// The requested model.
    pub model: String,
    /// The serialized body.
    pub body: Vec<u8>,
    /// Equal for equal prompts.
    pub prompt_hash: Option<u64>,
    /// SHA-256 of the body in hexadecimal, if the request is signed.
    pub body_sha256: Option<String>,
    /// Whether the body requests a stream.
    pub streamed: bool,
    /// The requested `max_tokens`.
    pub max_tokens: Option<u64>,
    /// The number of choices that the body asks for; None: one.
    pub choices: Option<u64>,
    /// Number of documents to rank.
    pub items: Option<u64>,
    /// The request has audio, of this duration if it is known.
    pub audio: Option<Option<Nanos>>,
    /// Prompt tokens by the local tokenizer.
    pub prompt_tokens: Option<u64>,
    /// Tokens at the start of the prompt that earlier requests contain, by the local tokenizer.
    pub cacheable_tokens: Option<u64>,
    /// The counts are by the built-in approximate tokenizer.
    pub approximate: bool,
    /// When the client cancels it; None: never.
    pub cancel: Option<ClientCancel>,
    /// Index of the URL of the target that it is sent to.
    pub endpoint: usize,
    /// When `max_in_flight` let it pass, if that holds requests: its scheduled time if it was not held.
    pub held_until: Option<Nanos>,
    /// The truths of its answer; None: it is not checked.
    pub truths: Option<Box<Truths>>,
}

/// Token events of a choice that a reply may always have: more than the longest reply of any API, 128,000 tokens.
const MIN_EVENT_LIMIT: u64 = 200_000;

/// Maximum token events per token: some gateways send each character as an event.
pub const MAX_EVENTS_PER_TOKEN: u64 = 16;

impl PreparedRequest {
    /// The number of token events beyond which a reply is endless: [`MAX_EVENTS_PER_TOKEN`] for each token that it
    /// may have, and
    /// [`MIN_EVENT_LIMIT`] at least.
    pub fn event_limit(&self) -> u64 {
        let tokens = self.max_tokens.unwrap_or(0);
        let of_choice = tokens.saturating_mul(MAX_EVENTS_PER_TOKEN);
        of_choice
            .max(MIN_EVENT_LIMIT)
            .saturating_mul(self.choices.unwrap_or(1).max(1))
    }

    /// Its phase in a session of this phase.
    pub fn phase_in(&self, session: Phase) -> Phase {
        if self.turn < self.first_turn && session != Phase::Cooldown {
            Phase::Warmup
        } else {
            session
        }
    }

    /// The initial outcome, before anything has happened.
    pub fn outcome(&self, phase: Phase) -> Outcome {
        Outcome {
            seq: self.seq,
            turn: self.turn,
            turns: self.turns,
            group: self.group.clone(),
            phase,
            model: self.model.clone(),
            streamed: self.streamed,
            timeline: Default::default(),
            status: None,
            reads: 0,
            bytes_out: self.body.len() as u64,
            bytes_in: 0,
            reconnects: 0,
            attempts: 0,
            usage: Default::default(),
            counted: Counted {
                prompt: self.prompt_tokens,
                output: None,
                approximate: self.approximate,
            },
            server: Default::default(),
            items: self.items,
            max_tokens: self.max_tokens,
            response_id: None,
            request_id: None,
            end: Ok(Default::default()),
            endpoint: None,
            held_until: self.held_until,
            kept_headers: None,
            first_turn: self.first_turn,
            cacheable_tokens: self.cacheable_tokens,
            session_duration: None,
            answer: None,
            audio: self.audio.map(|duration| {
                Box::new(Audio {
                    duration,
                    ..Audio::default()
                })
            }),
            reply: Default::default(),
            prompt_hash: self.prompt_hash,
        }
    }
}

/// Samples a length in tokens. `fields` is the dataset row, for [`Quantity::Item`]. None if the row has no such number.
pub fn sample_length(
    quantity: &Quantity,
    fields: &Map<String, Value>,
    rng: &mut impl Rng,
) -> Option<u64> {
    match quantity {
        Quantity::Drawn(distribution) => Some(distribution.sample_length(rng)),
        Quantity::Item(name) => match fields.get(name)? {
            Value::Number(n) => n
                .as_u64()
                .or_else(|| n.as_f64().filter(|n| *n >= 0.0).map(|n| n.round() as u64)),
            _ => None,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use rand_chacha::ChaCha8Rng;

    #[test]
    fn a_length_comes_from_the_row_or_is_none() {
        let row = serde_json::json!({ "output_tokens": 12, "half": 2.5, "text": "9", "minus": -1 });
        let fields = row.as_object().unwrap();
        let length = |name: &str| {
            sample_length(
                &Quantity::Item(name.into()),
                fields,
                &mut ChaCha8Rng::seed_from_u64(1),
            )
        };
        assert_eq!(
            ["output_tokens", "half", "text", "minus", "gone"].map(length),
            [Some(12), Some(3), None, None, None]
        );
    }
}
