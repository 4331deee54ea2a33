//! Limits relative to another case of the same run: the value of that case, and what decides the comparison.

use crate::judge::figure::figure;
use crate::sample::Sample;
use llmscen_core::check::relative::{ReferenceValue, Replicates, Spread};
use llmscen_core::check::{Check, Confidence};
use llmscen_core::stats::comparison::{Group, difference};

/// Minimum number of pairs of rounds that decide a comparison.
const MIN_PAIRS: usize = 5;
/// Minimum number of rounds per case, each on a separate start of the server, that decide a comparison.
const MIN_STARTS: usize = 3;

/// How the rounds of two cases are related.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RoundDesign {
    /// The rounds alternate, so that each pair saw the same state of the machine.
    Alternating,
    /// Each round is on a separate start of its server.
    Restarted,
    /// The rounds repeat the luck of one start; the requests decide.
    Pooled,
}

/// The sample of a case, and those of its rounds in their order.
#[derive(Clone, Copy, Debug)]
pub struct CaseSamples<'a> {
    /// All measured requests.
    pub all: &'a Sample,
    /// The requests of each round; None for a round that did not run.
    pub rounds: &'a [Option<Sample>],
}

/// The value of the other case for a check with `factor` times that value, with bounds at its confidence, and the
/// variation that decides: of the ratio of each pair of alternating rounds (paired Student's t), of rounds on
/// restarted servers (Welch), on logarithms where all values are positive and no shares; of the requests otherwise.
/// None without data.
pub fn value_of_other_case(
    check: &Check,
    factor: f64,
    (own, other): (CaseSamples<'_>, CaseSamples<'_>),
    design: RoundDesign,
) -> Option<ReferenceValue> {
    let subject = check
        .relative
        .as_ref()
        .and_then(|relative| relative.case.as_ref())
        .and_then(|case| case.subject.clone());
    let other_check = Check {
        subject: subject.unwrap_or_else(|| check.subject.clone()),
        ..check.clone()
    };
    let level = match check.confidence {
        Confidence::Level(level) => Some(level),
        Confidence::Point => None,
    };
    let levels: Vec<f64> = level.into_iter().collect();
    let pooled = figure(&other_check, other.all, &levels)?;
    let known = pooled.reference_value(level.map(|_| 0));
    let value =
        |check: &Check, round: &Option<Sample>| Some(figure(check, round.as_ref()?, &[])?.value);
    let own: Vec<Option<f64>> = own.rounds.iter().map(|round| value(check, round)).collect();
    let other = other.rounds.iter().map(|round| value(&other_check, round));
    let other: Vec<Option<f64>> = other.collect();
    let values = || own.iter().chain(&other).flatten();
    let share = check.subject.is_share();
    if !share && values().any(|value| *value <= 0.0) {
        return Some(known);
    }
    let scale = |value: f64, factor: f64| if share { value * factor } else { value.ln() };
    // For shares the bounds are those of own − factor · other.
    let own = own.into_iter().map(|value| Some(scale(value?, 1.0)));
    let other = other.into_iter().map(|value| Some(scale(value?, factor)));
    let spread = level.and_then(|level| {
        let (of, runs, half_width) = match design {
            RoundDesign::Pooled => return None,
            RoundDesign::Alternating => {
                let pairs = own
                    .zip(other)
                    .filter_map(|(own, other)| Some(own? - other?));
                let pairs: Vec<f64> = pairs.collect();
                let group = Group::from_values(&pairs).filter(|group| group.n >= MIN_PAIRS)?;
                let (low, high) = group.ends(level)?;
                (Replicates::Pairs, group.n, (high - low) / 2.0)
            }
            RoundDesign::Restarted => {
                let own = Group::from_values(&own.flatten().collect::<Vec<f64>>())?;
                let other = Group::from_values(&other.flatten().collect::<Vec<f64>>())?;
                let least = own.n.min(other.n);
                let change = difference(own, other, level, 0.0).filter(|_| least >= MIN_STARTS)?;
                (Replicates::Rounds, least, (change.high - change.low) / 2.0)
            }
        };
        let reach = if share {
            half_width / factor.max(1.0)
        } else {
            half_width
        };
        Some(Spread {
            runs: runs as u32,
            reach,
            of,
        })
    });
    Some(ReferenceValue { spread, ..known })
}

#[cfg(test)]
mod tests;
