//! What the checks of the answers of a case found.

use crate::CaseFacts;
use crate::sample::Sample;
use crate::table::Table;
use llmscen_core::expect::AnswerCheck;
use llmscen_core::metric::Metric;
use llmscen_core::report::{AnswerShare, AnswersReport, FailedAnswer, FailedCheckCount};
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// The shares of the measured answers that passed, the checks that failed, and the failed answers that are stored.
/// None where no answer was checked.
pub fn answers_report(
    table: &Table,
    facts: &CaseFacts<'_>,
    sample: &Sample,
) -> Option<AnswersReport> {
    let share = |metric: Metric| {
        let hits = || {
            sample
                .requests
                .iter()
                .filter_map(move |request| request.is_hit(metric))
        };
        AnswerShare {
            metric,
            passed: hits().filter(|hit| *hit).count() as u64,
            checked: hits().count() as u64,
        }
    };
    let shares = Metric::ANSWERS.map(share);
    let mut failed_checks: BTreeMap<AnswerCheck, FailedCheckCount> = BTreeMap::new();
    let mut failed_answers = Vec::new();
    let rows = table.rows_of_case(&facts.case.id);
    for row in rows.iter().filter(|row| row.measured()) {
        let Some(failed) = row.failed_answer() else {
            continue;
        };
        let first = || FailedCheckCount {
            check: failed.check,
            count: 0,
            reason: failed.reason.to_owned(),
        };
        failed_checks
            .entry(failed.check)
            .or_insert_with(first)
            .count += 1;
        failed_answers.extend(failed.text.map(|text| FailedAnswer {
            round: row.round(),
            seq: row.seq(),
            turn: row.turn(),
            group: row.group().map(|group| group.to_string()),
            check: failed.check,
            reason: failed.reason.to_owned(),
            text: text.to_owned(),
        }));
    }
    let mut failed_checks: Vec<FailedCheckCount> = failed_checks.into_values().collect();
    failed_checks.sort_by_key(|failed| Reverse(failed.count));
    failed_answers.sort_by_key(|answer| (answer.round, answer.seq, answer.turn));
    let shares: Vec<AnswerShare> = shares
        .into_iter()
        .filter(|share| share.checked > 0)
        .collect();
    (!shares.is_empty()).then_some(AnswersReport {
        shares,
        failed_checks,
        failed_answers,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{case, failed, outcome, table, warmup};
    use llmscen_core::expect::{CheckedAnswer, FailedCheck};
    use llmscen_core::load::Shape;
    use llmscen_core::manifest::Part;
    use llmscen_core::outcome::{FailureKind, Outcome};

    fn answered(seq: u64, failed: Option<(AnswerCheck, &str)>, text: Option<&str>) -> Outcome {
        let answer = CheckedAnswer {
            valid: Some(failed.is_none()),
            matches: None,
            length_exact: Some(true),
            failed: failed.map(|(check, reason)| FailedCheck {
                check,
                reason: reason.into(),
            }),
            text: text.map(str::to_owned),
        };
        Outcome {
            answer: Some(Box::new(answer)),
            ..outcome(seq)
        }
    }

    #[test]
    fn measured_answers_are_counted_and_the_stored_ones_listed() {
        let schema = |reason| Some((AnswerCheck::JsonSchema, reason));
        let rows = [
            answered(4, schema("a"), None),
            answered(2, Some((AnswerCheck::Regex, "no match")), Some("x")),
            answered(3, schema("b"), Some("y")),
            answered(5, None, None),
            warmup(answered(1, schema("c"), Some("z"))),
            failed(6, FailureKind::Connect),
            outcome(7),
        ];
        let (case, table) = (case(Shape::Closed { users: 1 }), table("a", &rows));
        let parts = [Part {
            case: "a".into(),
            ..Part::default()
        }];
        let facts = CaseFacts {
            case: &case,
            parts: &parts,
            until: None,
        };
        let sample = crate::fixture::sample_case(&table, &facts);
        let found = answers_report(&table, &facts, &sample).unwrap();
        let share = |metric, passed, checked| AnswerShare {
            metric,
            passed,
            checked,
        };
        assert_eq!(
            found.shares,
            [
                share(Metric::ValidRate, 1, 4),
                share(Metric::LengthExact, 4, 4)
            ]
        );
        let checks: Vec<_> = found
            .failed_checks
            .iter()
            .map(|failed| (failed.check, failed.count))
            .collect();
        assert_eq!(
            checks,
            [(AnswerCheck::JsonSchema, 2), (AnswerCheck::Regex, 1)]
        );
        let stored: Vec<_> = found
            .failed_answers
            .iter()
            .map(|answer| (answer.seq, answer.text.as_str()))
            .collect();
        assert_eq!(stored, [(2, "x"), (3, "y")]);
        let none = crate::fixture::table("a", &[outcome(0)]);
        assert_eq!(
            answers_report(&none, &facts, &crate::fixture::sample_case(&none, &facts)),
            None
        );
    }
}
