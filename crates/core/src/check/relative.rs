//! Limits relative to a value of an earlier run, of a table, or of another case.

use crate::check::Subject;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What a relative limit is a multiple of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReferenceKind {
    /// An earlier run.
    Baseline,
    /// A table in the scenario.
    Reference,
    /// Another case of the same run.
    Case,
}

impl ReferenceKind {
    /// The keyword in an SLO expression.
    pub fn name(self) -> &'static str {
        match self {
            ReferenceKind::Baseline => "baseline",
            ReferenceKind::Reference => "reference",
            ReferenceKind::Case => "case",
        }
    }
}

/// A reference value with its one-sided bounds at a check's confidence.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReferenceValue {
    /// The value, in the metric's unit.
    pub value: f64,
    /// Lower bound; None if there were too few samples.
    pub low: Option<f64>,
    /// Upper bound; None if there were too few samples.
    pub high: Option<f64>,
    /// Sample count; None if unknown.
    pub n: Option<u64>,
    /// Variation between replicates; None if there were too few.
    #[serde(default)]
    pub spread: Option<Spread>,
}

/// Variation of a value between replicates, by which a comparison is decided.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// Number of replicates.
    pub runs: u32,
    /// Half-width of the interval of the ratio at the check's confidence, on the logarithms; of the difference on the
    /// plain scale for shares. For earlier runs, the prediction interval for one more run: t·s·√(1 + 1/runs).
    pub reach: f64,
    /// What the replicates are.
    #[serde(default)]
    pub of: Replicates,
}

/// What is repeated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Replicates {
    /// Earlier runs, which one run is compared with.
    #[default]
    Runs,
    /// Rounds of two cases, each on a separate start of its server.
    Rounds,
    /// Rounds of two cases that alternate; each pair has one ratio.
    Pairs,
}

impl Replicates {
    /// The plural noun.
    pub fn noun(self) -> &'static str {
        match self {
            Replicates::Runs => "runs",
            Replicates::Rounds => "rounds",
            Replicates::Pairs => "pairs of rounds",
        }
    }
}

/// A value of the same run that a limit is a multiple of: of another case, or of other requests of the same case.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CaseReference {
    /// The swept values by which it differs from the case of the limit, as written: path → value. Empty: the same case.
    pub labels: Vec<(String, String)>,
    /// Its metric, where it is another one than that of the limit; always set for the same case.
    pub subject: Option<Subject>,
    /// Its id; empty until the cases of the plan are known.
    pub id: String,
}

impl CaseReference {
    /// Whether the value is of other requests of the same case.
    pub fn is_same_case(&self) -> bool {
        self.labels.is_empty()
    }
}

/// The right side of a limit such as `<= 1.10 * baseline`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Relative {
    /// The reference.
    pub to: ReferenceKind,
    /// The multiple, above 0.
    pub factor: f64,
    /// The reference value for the case of the check; None if it does not exist (yet).
    pub known: Option<ReferenceValue>,
    /// The other case, exactly if `to` is [`ReferenceKind::Case`].
    #[serde(default)]
    pub case: Option<CaseReference>,
    /// The answers of the earlier run, of a limit on `match_rate`; None where they are unknown.
    #[serde(skip)]
    pub answers: Option<Arc<Answers>>,
}

/// Whether the answer to each prompt was the expected one, by the hash of the prompt.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answers(pub BTreeMap<u64, bool>);

/// Answers as in a file: hashes as 16 hexadecimal digits, separated by spaces.
#[derive(Serialize, Deserialize)]
struct StoredAnswers {
    matched: String,
    missed: String,
}

impl Serialize for Answers {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let hashes = |wanted: bool| {
            let some = self.0.iter().filter(|(_, matched)| **matched == wanted);
            let texts: Vec<String> = some.map(|(hash, _)| format!("{hash:016x}")).collect();
            texts.join(" ")
        };
        let stored = StoredAnswers {
            matched: hashes(true),
            missed: hashes(false),
        };
        stored.serialize(to)
    }
}

impl<'de> Deserialize<'de> for Answers {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Answers, D::Error> {
        let stored = StoredAnswers::deserialize(from)?;
        let mut answers = BTreeMap::new();
        for (texts, matched) in [(stored.matched, true), (stored.missed, false)] {
            for text in texts.split_whitespace() {
                let hash = u64::from_str_radix(text, 16)
                    .map_err(|_| D::Error::custom(format!("`{text}` is no hash of a prompt")))?;
                answers.insert(hash, matched);
            }
        }
        Ok(Answers(answers))
    }
}

impl Relative {
    /// A multiple of an earlier run or of a table.
    pub fn new(to: ReferenceKind, factor: f64, known: Option<ReferenceValue>) -> Relative {
        Relative {
            to,
            factor,
            known,
            case: None,
            answers: None,
        }
    }

    /// The reference in the syntax of a limit: `baseline`, `case(variant=base)`, or `ttft{group=batch}.p95`.
    pub fn name(&self) -> String {
        let Some(case) = &self.case else {
            return self.to.name().to_owned();
        };
        let labels = case
            .labels
            .iter()
            .map(|(path, value)| format!("{path}={value}"));
        let labels: Vec<String> = labels.collect();
        if let Some(subject) = case.subject.as_ref().filter(|_| case.is_same_case()) {
            return subject.to_string();
        }
        let subject = case.subject.as_ref().map(|subject| format!(".{subject}"));
        format!("case({}){}", labels.join(", "), subject.unwrap_or_default())
    }

    /// Whether the reference value is of other requests of the same case.
    pub fn is_same_case(&self) -> bool {
        self.case.as_ref().is_some_and(CaseReference::is_same_case)
    }

    /// The limit as an absolute number, rounded to 13 significant digits to remove floating-point error; NaN without
    /// a reference value.
    pub fn limit(&self) -> f64 {
        let product = self
            .known
            .map_or(f64::NAN, |known| known.value * self.factor);
        format!("{product:.12e}").parse().unwrap_or(product)
    }
}
