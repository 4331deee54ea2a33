//! The request of a case as the scenario describes it, and one request that is ready to be sent.

use crate::dataset::Wait;
use crate::outcome::{Counted, FailureKind, Outcome, Phase};
use crate::units::Nanos;
use rand::{Rng, RngExt};
use rand_distr::{Distribution, LogNormal, Normal};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// A length in tokens that may differ from request to request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Quantity {
    /// The same for every request.
    Fixed(u64),
    /// Every whole number from `low` to `high`, both included, equally likely.
    Uniform {
        /// The least.
        low: u64,
        /// The most.
        high: u64,
    },
    /// Normal, rounded, never below 1.
    Normal {
        /// Its mean, in tokens.
        mean: f64,
        /// Its standard deviation, in tokens.
        sd: f64,
    },
    /// Lognormal with this mean and standard deviation of the lengths themselves, rounded, never below 1.
    Lognormal {
        /// Mean of the lengths, in tokens.
        mean: f64,
        /// Standard deviation of the lengths, in tokens.
        sd: f64,
    },
    /// A field of the dataset's item, such as `output_tokens`.
    Item(String),
}

/// Which of a response's values are what: RFC 9535 JSONPaths into each event of a stream, or into the whole response.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Extract {
    /// How the body is framed; None: as its `content-type` says.
    pub framing: Option<Framing>,
    /// Generated text; all texts that are selected count.
    pub text: Vec<String>,
    /// Number of the choice that the texts belong to; without it all belong to one.
    pub choice: Option<String>,
    /// Token counts.
    pub usage: ExtractUsage,
    /// Why it ended. A stream without its end marker is complete only with a reason for every choice.
    pub finish: Option<String>,
    /// Id of the response.
    pub id: Option<String>,
    /// An error under a good status.
    pub error: Option<String>,
    /// The end marker of a stream; None: the end of the body.
    pub done: Option<Done>,
}

/// How a body is framed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// Server-sent events.
    Sse,
    /// A JSON document a line.
    Ndjson,
    /// One JSON document.
    Json,
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
    /// Prompt tokens from the cache.
    pub cached: Option<String>,
}

/// The end marker of a stream.
#[derive(Clone, Debug, PartialEq)]
pub enum Done {
    /// An event whose data is this text, such as `[DONE]`.
    Data(String),
    /// An event of this name (`event:` of server-sent events).
    Event(String),
    /// An event in which this JSONPath selects this value; without a value, anything but null and false.
    Value {
        /// The JSONPath.
        path: String,
        /// The value.
        equals: Option<Value>,
    },
}

/// What is tried once more, and when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Retry {
    /// The statuses that are tried again.
    pub statuses: Vec<u16>,
    /// The kinds of failure that are.
    pub kinds: Vec<FailureKind>,
    /// Wait as long as the response's `Retry-After` says, where it says so.
    pub honor: bool,
    /// Maximum number of attempts after the first.
    pub max: u32,
    /// The wait before the second attempt; it doubles with every further one.
    pub wait: Nanos,
}

/// Users who leave before the answer is complete.
#[derive(Clone, Debug, PartialEq)]
pub struct Cancel {
    /// Their share of the requests, 0..=1.
    pub share: f64,
    /// When they leave.
    pub when: Departure,
}

/// When users leave.
#[derive(Clone, Debug, PartialEq)]
pub enum Departure {
    /// So long after the request was sent.
    After(Wait),
    /// After so many token events.
    Tokens(Quantity),
}

/// When the user of one request leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leave {
    /// So long after it was sent.
    After(Nanos),
    /// After so many token events.
    Tokens(u64),
}

/// The request of a case: a template, and the fields that fill in what the template leaves out.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RequestSpec {
    /// The template as JSON, `%m`, `%p` and `{{ … }}` still in its string leaves. None: the protocol's own body.
    pub template: Option<Value>,
    /// Ask for a stream.
    pub stream: bool,
    /// Output tokens allowed.
    pub max_tokens: Option<Quantity>,
    /// `temperature`, `stop`, `ignore_eos` and the like, by their JSON name, in order.
    pub sampling: Map<String, Value>,
    /// Merged into the body last, over everything.
    pub extra: Map<String, Value>,
    /// `api: custom`: how its responses are read.
    pub extract: Option<Extract>,
    /// What is tried once more; None: nothing.
    pub retry: Option<Retry>,
    /// Users who leave; None: no user does.
    pub cancel: Option<Cancel>,
}

/// A request that waits for its instant.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Call {
    /// Its number in the case, warm-up included.
    pub seq: u64,
    /// Its turn in the session, from 0.
    pub turn: u32,
    /// Turns of the session.
    pub turns: u32,
    /// Its entry of the case's mix, from 0.
    pub entry: usize,
    /// Its number, or its session's, among those of its entry; without a mix that is `seq`.
    pub number: u64,
    /// The part of the dataset that it belongs to, where the data tells parts apart.
    pub group: Option<String>,
    /// Headers of its own, over those of the target.
    pub headers: Vec<(String, String)>,
    /// Open loop: when it must leave, and the phase it belongs to. None in a closed loop, where both are known only
    /// when a slot becomes free.
    pub due: Option<(Nanos, Phase)>,
    /// The model it names.
    pub model: String,
    /// The serialised body.
    pub body: Vec<u8>,
    /// Whether the body asks for a stream.
    pub streamed: bool,
    /// The `max_tokens` it asks for.
    pub max_tokens: Option<u64>,
    /// Documents in it that are to be ranked.
    pub items: Option<u64>,
    /// Prompt tokens as counted here.
    pub prompt_tokens: Option<u64>,
    /// That count was made with a stand-in tokenizer.
    pub approximate: bool,
    /// When its user leaves; None: not before the end.
    pub leave: Option<Leave>,
}

impl Call {
    /// The outcome of this call of which nothing has happened yet.
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
            counted: Counted { prompt: self.prompt_tokens, output: None, approximate: self.approximate },
            server: Default::default(),
            items: self.items,
            max_tokens: self.max_tokens,
            response_id: None,
            request_id: None,
            end: Ok(Default::default()),
        }
    }
}

/// Draws a length in tokens. `fields` is the dataset's row, for [`Quantity::Item`].
///
/// None where the row has no such number, or the distribution does not exist (a negative or non-finite deviation, a
/// lognormal mean that is not positive, an empty range).
pub fn draw(quantity: &Quantity, fields: &Map<String, Value>, rng: &mut impl Rng) -> Option<u64> {
    match *quantity {
        Quantity::Fixed(n) => Some(n),
        Quantity::Uniform { low, high } => (low <= high).then(|| rng.random_range(low..=high)),
        Quantity::Normal { mean, sd } => Some(whole(Normal::new(mean, sd).ok()?.sample(rng))),
        Quantity::Lognormal { mean, sd } => Some(whole(lognormal(mean, sd)?.sample(rng))),
        Quantity::Item(ref name) => match fields.get(name)? {
            Value::Number(n) => n.as_u64().or_else(|| n.as_f64().filter(|n| *n >= 0.0).map(|n| n.round() as u64)),
            _ => None,
        },
    }
}

/// Rounded, never below one token.
fn whole(length: f64) -> u64 {
    length.round().max(1.0) as u64
}

/// From the mean m and deviation s of the lengths themselves: σ² = ln(1 + s²/m²), µ = ln m − σ²/2
/// (Johnson, Kotz and Balakrishnan, "Continuous Univariate Distributions", vol. 1, ch. 14, solved for µ and σ).
fn lognormal(mean: f64, sd: f64) -> Option<LogNormal<f64>> {
    let variance = (1.0 + (sd / mean).powi(2)).ln();
    (mean > 0.0 && sd >= 0.0).then(|| LogNormal::new(mean.ln() - variance / 2.0, variance.sqrt()).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use rand_chacha::ChaCha8Rng;

    fn many(quantity: Quantity) -> Vec<f64> {
        let mut rng = ChaCha8Rng::seed_from_u64(7);
        (0..20_000).map(|_| draw(&quantity, &Map::new(), &mut rng).unwrap() as f64).collect()
    }

    fn moments(values: &[f64]) -> (f64, f64) {
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        (mean, (values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / values.len() as f64).sqrt())
    }

    #[test]
    fn the_draws_have_the_mean_and_deviation_that_were_asked_for() {
        for quantity in [Quantity::Normal { mean: 500.0, sd: 50.0 }, Quantity::Lognormal { mean: 500.0, sd: 50.0 }] {
            let (mean, sd) = moments(&many(quantity.clone()));
            assert!((mean - 500.0).abs() < 2.0 && (sd - 50.0).abs() < 1.5, "{quantity:?}: {mean} ± {sd}");
        }
    }

    #[test]
    fn a_uniform_length_takes_both_ends() {
        let values = many(Quantity::Uniform { low: 3, high: 5 });
        for end in [3.0, 4.0, 5.0] {
            let share = values.iter().filter(|v| **v == end).count() as f64 / values.len() as f64;
            assert!((share - 1.0 / 3.0).abs() < 0.02, "{end}: {share}");
        }
    }

    #[test]
    fn lengths_never_fall_below_one_token() {
        assert_eq!(many(Quantity::Normal { mean: 1.0, sd: 20.0 }).into_iter().fold(f64::MAX, f64::min), 1.0);
    }

    #[test]
    fn a_length_comes_from_the_row_or_does_not_exist() {
        let row = serde_json::json!({ "output_tokens": 12, "half": 2.5, "text": "9", "minus": -1 });
        let fields = row.as_object().unwrap();
        let of = |name: &str| draw(&Quantity::Item(name.into()), fields, &mut ChaCha8Rng::seed_from_u64(1));
        assert_eq!(["output_tokens", "half", "text", "minus", "gone"].map(of), [Some(12), Some(3), None, None, None]);
    }

    #[test]
    fn impossible_distributions_draw_nothing() {
        let impossible = [
            Quantity::Uniform { low: 5, high: 3 },
            Quantity::Normal { mean: 5.0, sd: f64::NAN },
            Quantity::Lognormal { mean: 0.0, sd: 1.0 },
            Quantity::Lognormal { mean: 5.0, sd: -1.0 },
        ];
        for quantity in impossible {
            assert_eq!(draw(&quantity, &Map::new(), &mut ChaCha8Rng::seed_from_u64(1)), None, "{quantity:?}");
        }
    }
}
