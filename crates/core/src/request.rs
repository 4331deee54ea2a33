//! The request of a case as the scenario describes it, and one request that is ready to be sent.

use crate::outcome::{Audio, Counted, FailureKind, Outcome, Phase};
use crate::units::Nanos;
use rand::{Rng, RngExt};
use rand_distr::{Distribution, LogNormal, Normal};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// A length in tokens: constant, random, or from the dataset.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Quantity {
    /// Constant.
    Fixed(u64),
    /// Uniform over the integers from `low` to `high`, inclusive.
    Uniform {
        /// Minimum.
        low: u64,
        /// Maximum.
        high: u64,
    },
    /// Normal, rounded, never below 1.
    Normal {
        /// Mean, in tokens.
        mean: f64,
        /// Standard deviation, in tokens.
        sd: f64,
    },
    /// Lognormal with this mean and standard deviation of the lengths (not of their logarithms), rounded, never below 1.
    Lognormal {
        /// Mean of the lengths, in tokens.
        mean: f64,
        /// Standard deviation of the lengths, in tokens.
        sd: f64,
    },
    /// A field of the dataset row, such as `output_tokens`.
    Item(String),
}

/// A delay that may differ from turn to turn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Wait {
    /// Constant.
    Fixed(Nanos),
    /// Uniform between the two, inclusive.
    Uniform(Nanos, Nanos),
    /// Exponential with this mean.
    Exponential(Nanos),
}

/// How responses of `api: custom` are read: RFC 9535 JSONPaths into each event of a stream, or into the response document.
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
        /// Bytes per second of samples without a header; None: the body is not such samples, or their rate is not known.
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
    After(Wait),
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
    /// The template as JSON, with `%m`, `%p` and `{{ … }}` unexpanded in its strings. None: the default body of the API.
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
    /// Retries; None: no retries.
    pub retry: Option<Retry>,
    /// Client cancellation; None: no cancellation.
    pub cancel: Option<Cancel>,
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
    /// Index of its traffic class in the mix.
    pub entry: usize,
    /// Number of the request or session within its traffic class; equals `seq` without a mix.
    pub number: u64,
    /// The group within the dataset or mix, if there are several.
    pub group: Option<String>,
    /// Additional headers; override those of the target.
    pub headers: Vec<(String, String)>,
    /// Open loop: scheduled send time and phase. None in a closed loop, where both are known only when a user becomes free.
    pub due: Option<(Nanos, Phase)>,
    /// The requested model.
    pub model: String,
    /// The serialized body.
    pub body: Vec<u8>,
    /// SHA-256 of the body in hexadecimal, if the request is signed.
    pub body_sha256: Option<String>,
    /// Whether the body requests a stream.
    pub streamed: bool,
    /// The requested `max_tokens`.
    pub max_tokens: Option<u64>,
    /// Number of documents to rank.
    pub items: Option<u64>,
    /// The request has audio, of this duration if it is known.
    pub audio: Option<Option<Nanos>>,
    /// Prompt tokens by the local tokenizer.
    pub prompt_tokens: Option<u64>,
    /// The count is by the built-in approximate tokenizer.
    pub approximate: bool,
    /// When the client cancels it; None: never.
    pub cancel: Option<ClientCancel>,
    /// Index of the URL of the target that it is sent to.
    pub endpoint: usize,
}

impl PreparedRequest {
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
            audio: self.audio.map(|duration| {
                Box::new(Audio {
                    duration,
                    ..Audio::default()
                })
            }),
        }
    }
}

/// Samples a length in tokens. `fields` is the dataset row, for [`Quantity::Item`].
///
/// None if the row has no such number, or the distribution is undefined (a negative or non-finite deviation, a lognormal mean
/// that is not positive, an empty range).
pub fn sample_length(
    quantity: &Quantity,
    fields: &Map<String, Value>,
    rng: &mut impl Rng,
) -> Option<u64> {
    match *quantity {
        Quantity::Fixed(n) => Some(n),
        Quantity::Uniform { low, high } => (low <= high).then(|| rng.random_range(low..=high)),
        Quantity::Normal { mean, sd } => {
            Some(round_length(Normal::new(mean, sd).ok()?.sample(rng)))
        }
        Quantity::Lognormal { mean, sd } => Some(round_length(lognormal(mean, sd)?.sample(rng))),
        Quantity::Item(ref name) => match fields.get(name)? {
            Value::Number(n) => n
                .as_u64()
                .or_else(|| n.as_f64().filter(|n| *n >= 0.0).map(|n| n.round() as u64)),
            _ => None,
        },
    }
}

/// Rounds a length, to at least one token.
fn round_length(length: f64) -> u64 {
    length.round().max(1.0) as u64
}

/// The distribution from the mean m and standard deviation s of the lengths: σ² = ln(1 + s²/m²), µ = ln m − σ²/2 (Johnson, Kotz
/// and Balakrishnan, "Continuous Univariate Distributions", vol. 1, ch. 14, solved for µ and σ).
fn lognormal(mean: f64, sd: f64) -> Option<LogNormal<f64>> {
    let variance = (1.0 + (sd / mean).powi(2)).ln();
    (mean > 0.0 && sd >= 0.0)
        .then(|| LogNormal::new(mean.ln() - variance / 2.0, variance.sqrt()).ok())
        .flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use rand_chacha::ChaCha8Rng;

    fn sample_many(quantity: Quantity) -> Vec<f64> {
        let mut rng = ChaCha8Rng::seed_from_u64(7);
        (0..20_000)
            .map(|_| sample_length(&quantity, &Map::new(), &mut rng).unwrap() as f64)
            .collect()
    }

    fn moments(values: &[f64]) -> (f64, f64) {
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        (
            mean,
            (values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / values.len() as f64).sqrt(),
        )
    }

    #[test]
    fn samples_have_the_requested_mean_and_deviation() {
        for quantity in [
            Quantity::Normal {
                mean: 500.0,
                sd: 50.0,
            },
            Quantity::Lognormal {
                mean: 500.0,
                sd: 50.0,
            },
        ] {
            let (mean, sd) = moments(&sample_many(quantity.clone()));
            assert!(
                (mean - 500.0).abs() < 2.0 && (sd - 50.0).abs() < 1.5,
                "{quantity:?}: {mean} ± {sd}"
            );
        }
    }

    #[test]
    fn a_uniform_length_includes_both_ends() {
        let values = sample_many(Quantity::Uniform { low: 3, high: 5 });
        for end in [3.0, 4.0, 5.0] {
            let share = values.iter().filter(|v| **v == end).count() as f64 / values.len() as f64;
            assert!((share - 1.0 / 3.0).abs() < 0.02, "{end}: {share}");
        }
    }

    #[test]
    fn lengths_never_fall_below_one_token() {
        assert_eq!(
            sample_many(Quantity::Normal {
                mean: 1.0,
                sd: 20.0
            })
            .into_iter()
            .fold(f64::MAX, f64::min),
            1.0
        );
    }

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

    #[test]
    fn undefined_distributions_yield_none() {
        let impossible = [
            Quantity::Uniform { low: 5, high: 3 },
            Quantity::Normal {
                mean: 5.0,
                sd: f64::NAN,
            },
            Quantity::Lognormal { mean: 0.0, sd: 1.0 },
            Quantity::Lognormal {
                mean: 5.0,
                sd: -1.0,
            },
        ];
        for quantity in impossible {
            assert_eq!(
                sample_length(&quantity, &Map::new(), &mut ChaCha8Rng::seed_from_u64(1)),
                None,
                "{quantity:?}"
            );
        }
    }
}
