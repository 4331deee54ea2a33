//! Rates, arrival processes, and the rates and concurrencies of stages.

use crate::fault::{Mistake, Review};
use crate::schema_table::{Kind, Leaf};
use crate::tree::{Data, Entry, Node};
use crate::values::time::duration;
use crate::values::{describe_actual, expect_some, object_schema};
use llmscen_core::label;
use llmscen_core::load::{Arrival, AtLimit, MaxInFlight};
use llmscen_core::stage::RateProfile;
use serde_json::json;

const RATE_EXPECTED: &str = "a rate such as `8/s`, or `burst`";
const ARRIVALS_EXPECTED: &str = "`poisson`, `constant` or `{ gamma: burstiness }`";

/// The highest rate, in requests per second: more than a machine can send, to catch typing errors.
const MAX_RATE: f64 = 1e6;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Rate {
    PerSecond(f64),
    /// All requests at once.
    Burst,
}

pub(crate) static RATE: Leaf = Leaf {
    expected: RATE_EXPECTED,
    sweepable: true,
    schema: rate_schema,
    check: check_rate,
};

pub(crate) static ARRIVALS: Leaf = Leaf {
    expected: ARRIVALS_EXPECTED,
    sweepable: true,
    schema: || {
        let gamma = object_schema(
            json!({ "gamma": { "type": "number", "exclusiveMinimum": 0 } }),
            &["gamma"],
        );
        json!({ "oneOf": [{ "enum": ["poisson", "constant"] }, gamma] })
    },
    check: |node, review| {
        let examples = "`{ gamma: 0.5 }` for bursty arrivals; the burstiness is above 0";
        expect_some(arrivals(node), node, ARRIVALS_EXPECTED, examples, review);
    },
};

const MAX_IN_FLIGHT_EXPECTED: &str =
    "a number of requests such as `32`, or `{ of: 32, then: hold }`";

pub(crate) static MAX_IN_FLIGHT: Leaf = Leaf {
    expected: MAX_IN_FLIGHT_EXPECTED,
    sweepable: true,
    schema: || {
        let of = json!({ "type": "integer", "minimum": 1, "maximum": MAX_USERS });
        let then = json!({ "enum": ["drop", "hold"] });
        let both = object_schema(json!({ "of": of, "then": then }), &["of"]);
        json!({ "oneOf": [of, both] })
    },
    check: |node, review| {
        let examples = "`{ of: 32, then: hold }`; the number is from 1 to 1000000, and `then` is \
        `drop`, the default, or `hold`, which sends further arrivals when a request ends";
        expect_some(
            max_in_flight(node),
            node,
            MAX_IN_FLIGHT_EXPECTED,
            examples,
            review,
        );
    },
};

/// The limit of the requests in flight: `32`, or `{ of: 32, then: hold }`.
pub(crate) fn max_in_flight(node: &Node) -> Option<MaxInFlight> {
    let count = |node: &Node| {
        let number = u32::try_from(node.integer()?).ok()?;
        (1..=MAX_USERS).contains(&number).then_some(number)
    };
    if !matches!(node.data, Data::Map(_)) {
        let then = AtLimit::Drop;
        return count(node).map(|of| MaxInFlight { of, then });
    }
    let is_known = |entry: &Entry| matches!(entry.key.as_str(), "of" | "then");
    let then = match node.get("then").map(Node::text) {
        None => AtLimit::Drop,
        Some(then) => match then.as_deref() {
            Some("drop") => AtLimit::Drop,
            Some("hold") => AtLimit::Hold,
            _ => return None,
        },
    };
    let of = count(node.get("of")?)?;
    node.entries()
        .iter()
        .all(is_known)
        .then_some(MaxInFlight { of, then })
}

pub(crate) fn rate(node: &Node) -> Option<Rate> {
    let text = node.text()?;
    if text == "burst" {
        return Some(Rate::Burst);
    }
    per_second(&text)
        .filter(|rate| *rate > 0.0)
        .map(Rate::PerSecond)
}

/// A rate such as `8/s`, per second; may be zero.
pub(crate) fn per_second(text: &str) -> Option<f64> {
    label::per_second(text).filter(|rate| (0.0..=MAX_RATE).contains(rate))
}

/// Whether values of this kind are rates.
pub(crate) fn is_rate(kind: &Kind) -> bool {
    matches!(kind, Kind::Leaf(leaf) if std::ptr::eq(*leaf, &RATE))
}

/// Writes a rate as its one text, so that equal ones have equal names.
pub(crate) fn normalize_rate(node: &mut Node) {
    if let Some(Rate::PerSecond(rate)) = rate(node).filter(|_| node.parts.is_none()) {
        node.data = Data::Text(label::rate_text(rate));
    }
}

pub(crate) fn arrivals(node: &Node) -> Option<Arrival> {
    match (&node.data, node.text().as_deref()) {
        (_, Some("poisson")) => Some(Arrival::Poisson),
        (_, Some("constant")) => Some(Arrival::Constant),
        (Data::Map(entries), _) => match entries.as_slice() {
            [only] if only.key == "gamma" => {
                let burstiness = only.value.number().filter(|b| *b > 0.0 && b.is_finite())?;
                Some(Arrival::Gamma { burstiness })
            }
            _ => None,
        },
        _ => None,
    }
}

fn check_rate(node: &Node, review: &mut Review) {
    if rate(node).is_none() {
        let mistake = Mistake::new(
            node.at,
            format!("`{}` must be {RATE_EXPECTED}", review.key),
            describe_actual(node, "a rate"),
        );
        review.push(match node.number() {
            Some(number) if number > 0.0 => {
                mistake.help(format!("Add a unit: `{number}/s` or `{number}/m`."))
            }
            _ => mistake.help(format!(
                "A rate is a number above 0 per `s`, `m` or `h`, at most {MAX_RATE} per second."
            )),
        });
    }
}

fn rate_schema() -> serde_json::Value {
    json!({ "type": "string", "pattern": r"^(burst|\s*[0-9.]+\s*/\s*[smh]\s*)$" })
}

const STAGE_RATE_EXPECTED: &str = "a rate such as `8/s`, a ramp such as `1/s -> 20/s`, or `{ \
    sine: { mean, amplitude, period } }`";
const STAGE_USERS_EXPECTED: &str = "a number of users such as `16`, or a ramp such as `4 -> 64`";

const MAX_USERS: u32 = 1_000_000;

pub(crate) static STAGE_RATE: Leaf = Leaf {
    expected: STAGE_RATE_EXPECTED,
    sweepable: false,
    schema: stage_rate_schema,
    check: check_stage_rate,
};

pub(crate) static STAGE_USERS: Leaf = Leaf {
    expected: STAGE_USERS_EXPECTED,
    sweepable: false,
    schema: || json!({ "type": ["integer", "string"], "minimum": 0, "pattern": r"^\s*[0-9]+\s*->\s*[0-9]+\s*$" }),
    check: |node, review| {
        let examples = "`4 -> 64`; numbers must not be below 0, and 0 is a pause";
        expect_some(
            stage_users(node),
            node,
            STAGE_USERS_EXPECTED,
            examples,
            review,
        );
    },
};

/// The rate of a stage; may be zero.
pub(crate) fn stage_rate(node: &Node) -> Option<RateProfile> {
    if let Some(sine) = node.get("sine").filter(|_| node.entries().len() == 1) {
        let rate = |key| sine.get(key)?.text().and_then(|text| per_second(&text));
        let mean = rate("mean")?;
        let amplitude = rate("amplitude")?;
        let period = sine
            .get("period")
            .and_then(duration)
            .filter(|period| period.0 > 0)?;
        let sound = sine.entries().len() == 3 && mean > 0.0 && amplitude <= mean;
        return sound.then_some(RateProfile::Sine {
            mean,
            amplitude,
            period,
        });
    }
    let text = node.text()?;
    Some(match text.split_once("->") {
        None => RateProfile::Flat(per_second(&text)?),
        Some((from, to)) => RateProfile::Ramp {
            from: per_second(from)?,
            to: per_second(to)?,
        },
    })
}

/// The users at the start and the end of a stage.
pub(crate) fn stage_users(node: &Node) -> Option<(u32, u32)> {
    let count = |number: i64| {
        u32::try_from(number)
            .ok()
            .filter(|stage_users| *stage_users <= MAX_USERS)
    };
    if let Some(number) = node.integer() {
        return count(number).map(|stage_users| (stage_users, stage_users));
    }
    let text = node.text()?;
    let (from, to) = text.split_once("->")?;
    let end = |text: &str| text.trim().parse().ok().and_then(count);
    end(from).zip(end(to))
}

fn check_stage_rate(node: &Node, review: &mut Review) {
    if stage_rate(node).is_some() {
        return;
    }
    let sine = node.get("sine").filter(|sine| !sine.entries().is_empty());
    let mistake = Mistake::new(
        node.at,
        "invalid `rate` of a stage",
        describe_actual(node, "a rate"),
    );
    review.push(match (sine, node.text()) {
        (Some(_), _) => mistake.help(
            "A wave is `{ sine: { mean: 10/s, amplitude: 5/s, period: 30s } }`; its mean must be \
            above 0, and its amplitude at most the mean, because rates cannot be negative.",
        ),
        (None, Some(text)) if text.trim() == "burst" => mistake.help(
            "A burst has no length, so it cannot be a stage: `load: { \
            rate: burst, requests: 100 }`.",
        ),
        (None, Some(text)) if text.contains('-') => mistake.help(
            "A ramp changes from one rate to another, both at least 0: \
            `1/s -> 20/s`.",
        ),
        _ => mistake.help(format!(
            "It must be {STAGE_RATE_EXPECTED}. Add a unit: \
        `8/s`, `480/m`; 0 is a pause."
        )),
    });
}

fn stage_rate_schema() -> serde_json::Value {
    let one = r"\s*[0-9.]+\s*/\s*[smh]\s*";
    let rate = json!({ "type": "string", "pattern": format!("^{one}$") });
    let period =
        json!({ "type": "string", "pattern": r"^\s*([0-9]*\.?[0-9]+(ns|us|µs|ms|s|m|h)\s*)+$" });
    let keys = json!({ "mean": rate, "amplitude": rate, "period": period });
    let sine = object_schema(keys, &["mean", "amplitude", "period"]);
    let ramp = json!({ "type": "string", "pattern": format!("^{one}(->{one})?$") });
    json!({ "oneOf": [ramp, object_schema(json!({ "sine": sine }), &["sine"])] })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::defaults::value;
    use crate::tree::Span;
    use llmscen_core::units::Nanos;

    fn text(text: &str) -> Node {
        Node::new(Span::default(), Data::Text(text.into()))
    }

    #[test]
    fn rates_are_per_second() {
        for (written, value) in [
            ("8/s", Some(Rate::PerSecond(8.0))),
            ("480/m", Some(Rate::PerSecond(8.0))),
            ("0.5 / s", Some(Rate::PerSecond(0.5))),
            ("burst", Some(Rate::Burst)),
            ("1000000/s", Some(Rate::PerSecond(1e6))),
            ("1000001/s", None),
            ("1e12/s", None),
            ("8", None),
            ("0/s", None),
            ("-1/s", None),
            ("inf/s", None),
            ("8/d", None),
        ] {
            assert_eq!(rate(&text(written)), value, "{written}");
        }
    }

    fn node(yaml: &str) -> Node {
        value(yaml, Span::default())
    }

    #[test]
    fn stage_rate_is_constant_ramp_or_wave() {
        let sine = |mean, amplitude, secs: u64| RateProfile::Sine {
            mean,
            amplitude,
            period: Nanos::from_millis(secs * 1000),
        };
        for (written, known) in [
            ("8/s", Some(RateProfile::Flat(8.0))),
            ("0/s", Some(RateProfile::Flat(0.0))),
            (
                "1/s -> 20/s",
                Some(RateProfile::Ramp {
                    from: 1.0,
                    to: 20.0,
                }),
            ),
            ("60/m->0/s", Some(RateProfile::Ramp { from: 1.0, to: 0.0 })),
            (
                "{ sine: { mean: 10/s, amplitude: 10/s, period: 30s } }",
                Some(sine(10.0, 10.0, 30)),
            ),
            (
                "{ sine: { mean: 10/s, amplitude: 11/s, period: 30s } }",
                None,
            ),
            ("{ sine: { mean: 10/s, amplitude: 5/s } }", None),
            (
                "{ sine: { mean: 10/s, amplitude: 5/s, period: 30s, phase: 1 } }",
                None,
            ),
            ("1/s -> -20/s", None),
            ("burst", None),
            ("8", None),
        ] {
            assert_eq!(stage_rate(&node(written)), known, "{written}");
        }
    }

    #[test]
    fn stage_users_are_constant_or_a_ramp() {
        let parsed = [
            "16", "0", "4 -> 64", "64->0", "-4", "4 -> -1", "1.5", "4 -> ", "1000001",
        ]
        .map(|text| stage_users(&node(text)));
        assert_eq!(
            parsed,
            [
                Some((16, 16)),
                Some((0, 0)),
                Some((4, 64)),
                Some((64, 0)),
                None,
                None,
                None,
                None,
                None
            ]
        );
    }
}
