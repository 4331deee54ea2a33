//! Replies whose lengths have a heavy tail. A few of them have most of the tokens, and while one is generated, every
//! request of its batch has longer gaps. A run with few of the longest replies has shorter gaps than the server in
//! the long run, and nothing in the run shows it.

use crate::judge::assessment::Assessment;
use crate::judge::counted::stricter;
use crate::sample::Sample;
use llmscen_core::check::{Check, Confidence, Ruling, Subject};
use llmscen_core::metric::{Metric, Stat};

/// Below this tail index the variance is infinite, and means converge slowly.
const FINITE_VARIANCE: f64 = 2.0;
/// The part of the longest replies that the index is estimated from, and the least number of them and of their
/// different lengths.
const LONGEST_PART: usize = 10;
const LEAST: usize = 20;
const LEAST_LENGTHS: usize = 10;
/// A limit on gaps must be kept with this margin.
const MARGIN: f64 = 1.1;

/// The verdict on a ceiling of gaps, or INCONCLUSIVE if it passes by less than [`MARGIN`] while lengths have a heavy
/// tail. `judge`: the verdict with another limit.
pub(super) fn with_margin(
    check: &Check,
    sample: &Sample,
    judged: Assessment,
    judge: impl Fn(&Check) -> Assessment,
) -> Assessment {
    let of_gaps = matches!(
        &check.subject,
        Subject::Metric {
            metric: Metric::Itl,
            stat: Some(Stat::Quantile(_) | Stat::Mean),
            ..
        }
    );
    let has_level = matches!(check.confidence, Confidence::Level(_));
    if !of_gaps || !has_level || !check.op.is_ceiling() || judged.ruling != Ruling::Pass {
        return judged;
    }
    let lengths: Vec<f64> = sample.requests.values(Metric::OutputTokens).collect();
    let Some(index) = tail_index(lengths).filter(|index| *index < FINITE_VARIANCE) else {
        return judged;
    };
    let strict = Check {
        limit: stricter(check.op, check.limit, MARGIN),
        ..check.clone()
    };
    if judge(&strict).ruling == Ruling::Pass {
        return judged;
    }
    judged.undecided(format!(
        "the lengths of the replies have a heavy tail (index {index:.1}): while a longer reply \
         than those of this run is generated, gaps are longer. It passes at 10 % below the limit"
    ))
}

/// The exponent of the Pareto distribution that the longest lengths have: Hill, "A simple general approach to
/// inference about the tail of a distribution", Annals of Statistics 3 (1975). None with few replies, or few
/// different lengths: a length that `max_tokens` or the dataset sets is no tail.
fn tail_index(mut lengths: Vec<f64>) -> Option<f64> {
    lengths.sort_by(|a, b| b.total_cmp(a));
    let longest = &lengths[..lengths.len() / LONGEST_PART];
    let different = longest.chunk_by(|a, b| a == b).count();
    if longest.len() < LEAST || different < LEAST_LENGTHS {
        return None;
    }
    let least = lengths.get(longest.len()).filter(|least| **least > 0.0)?;
    let sum: f64 = longest.iter().map(|length| (length / least).ln()).sum();
    (sum > 0.0).then(|| longest.len() as f64 / sum)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::TestRequest;
    use crate::judge::fixture::{check, sample};
    use crate::judge::rule::{Conditions, LoadKind, rule};
    use llmscen_core::check::{Op, Verdict};

    /// Quantiles of a Pareto distribution, the longest first.
    fn pareto(exponent: f64) -> impl Iterator<Item = f64> {
        (1..=1000).map(move |rank| 20.0 * (f64::from(rank) / 1000.0).powf(-1.0 / exponent))
    }

    #[test]
    fn the_index_of_a_pareto_distribution_is_its_exponent() {
        for exponent in [1.2, 1.5, 3.0] {
            let index = tail_index(pareto(exponent).collect()).unwrap();
            assert!((index / exponent - 1.0).abs() < 0.05, "{exponent}: {index}");
        }
        assert_eq!(tail_index(vec![64.0; 1000]), None, "equal lengths");
        assert_eq!(tail_index(pareto(1.5).take(150).collect()), None, "few");
        let two = [vec![64.0; 950], vec![2048.0; 50]].concat();
        assert_eq!(tail_index(two), None, "two lengths of the dataset");
    }

    #[test]
    fn a_limit_on_gaps_is_kept_with_a_margin_where_lengths_have_a_heavy_tail() {
        let judged = |exponent: f64, limit: f64| -> Verdict {
            // In an order that has no trend.
            let lengths: Vec<f64> = pareto(exponent).collect();
            let row = |k: usize| TestRequest {
                ok: true,
                scheduled_s: k as f64,
                values: vec![(Metric::OutputTokens, lengths[k * 397 % lengths.len()])],
                gaps: (0..20)
                    .map(|gap| 95.0 + (k * 7 + gap) as f64 % 11.0)
                    .collect(),
                ..TestRequest::default()
            };
            let sample = sample((0..lengths.len()).map(row).collect());
            let check = check(Metric::Itl, Some(Stat::Quantile(0.5)), Op::Less, limit);
            rule(
                &check,
                &sample,
                &Conditions::of(&sample, LoadKind::FixedUsers),
            )
        };
        let close = judged(1.5, 103.0);
        assert_eq!(close.ruling, Ruling::Inconclusive);
        assert!(close.note.unwrap().contains("heavy tail (index 1.5)"));
        assert_eq!(judged(1.5, 130.0).ruling, Ruling::Pass);
        assert_eq!(judged(3.0, 103.0).ruling, Ruling::Pass);
        assert_eq!(judged(1.5, 90.0).ruling, Ruling::Fail);
    }
}
