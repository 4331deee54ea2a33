//! The tables of checked answers.

use crate::format::percent;
use crate::table::{Cell, Column, Columns, Emphasis, Table};
use llmscen_core::metric::Metric;
use llmscen_core::report::{
    AnswerShare, AnswersReport, CaseReport, FailedAnswer, FailedCheckCount,
};

/// With more failed answers, a case only shows the first ones; results.json has all that are stored.
const SHOWN_ANSWERS: usize = 5;
/// Length of the beginning of an answer, characters.
const SHOWN_CHARS: usize = 160;

fn checked<'a>(
    cases: impl Iterator<Item = (usize, &'a CaseReport)>,
) -> impl Iterator<Item = (usize, &'a CaseReport, &'a AnswersReport)> {
    cases.filter_map(|(index, case)| Some((index, case, case.answers.as_ref()?)))
}

/// The share as a label: `Valid`.
fn label(metric: Metric) -> &'static str {
    match metric {
        Metric::ValidRate => "Valid",
        Metric::MatchRate => "Match the truth",
        _ => "Exact length",
    }
}

/// A row for each share of each case with checked answers.
pub(crate) fn shares<'a>(cases: impl Iterator<Item = (usize, &'a CaseReport)>) -> Table {
    let shares = checked(cases).flat_map(|(index, case, answers)| {
        let shares = answers.shares.iter();
        shares.map(move |share| (index, case, share))
    });
    Columns::<(usize, &CaseReport, &AnswerShare)>::new()
        .add_case(Column::text().documents("Case"))
        .add(Column::text().documents("Answers"), |(.., share)| {
            Cell::prose(label(share.metric))
        })
        .add(Column::number().documents("Share"), |(.., share)| {
            let part = share.passed as f64 / share.checked.max(1) as f64;
            let figure = Cell::figure(percent(part), part).with_stat(share.metric.column(), "");
            match share.passed < share.checked {
                true => figure.emphasized(Emphasis::Fail),
                false => figure,
            }
        })
        .add(Column::number().documents("Passed"), |(.., share)| {
            Cell::count(share.passed)
        })
        .add(Column::number().documents("Checked"), |(.., share)| {
            Cell::count(share.checked)
        })
        .table_by_case(shares)
}

/// A row for each check that failed in each case.
pub(crate) fn failed_checks<'a>(cases: impl Iterator<Item = (usize, &'a CaseReport)>) -> Table {
    let failed = checked(cases).flat_map(|(index, case, answers)| {
        let failed = answers.failed_checks.iter();
        failed.map(move |failed| (index, case, failed))
    });
    Columns::<(usize, &CaseReport, &FailedCheckCount)>::new()
        .add_case(Column::text().documents("Case"))
        .add(
            Column::text().documents("First failed check"),
            |(.., failed)| Cell::code(failed.check.name()).emphasized(Emphasis::Fail),
        )
        .add(Column::number().documents("Count"), |(.., failed)| {
            Cell::count(failed.count)
        })
        .add(Column::text().documents("First reason"), |(.., failed)| {
            Cell::code(&failed.reason)
        })
        .table_by_case(failed)
}

/// The first failed answers of each case whose text is stored.
pub(crate) fn failed_answers<'a>(cases: impl Iterator<Item = (usize, &'a CaseReport)>) -> Table {
    let failed = checked(cases).flat_map(|(index, case, answers)| {
        let failed = answers.failed_answers.iter().take(SHOWN_ANSWERS);
        failed.map(move |answer| (index, case, answer))
    });
    let text = |head: &str| Column::text().documents(head);
    let number = |head: &str| Column::number().documents(head);
    Columns::<(usize, &CaseReport, &FailedAnswer)>::new()
        .add_case(text("Case"))
        .add(number("Round"), |(.., answer)| {
            Cell::count(u64::from(answer.round))
        })
        .add(number("Request"), |(.., answer)| Cell::count(answer.seq))
        .add(number("Turn"), |(.., answer)| {
            Cell::count(u64::from(answer.turn))
        })
        .add(text("First failed check"), |(.., answer)| {
            Cell::code(answer.check.name())
        })
        .add(text("Reason"), |(.., answer)| Cell::code(&answer.reason))
        .add(text("Answer"), |(.., answer)| {
            Cell::code(&beginning(&answer.text))
        })
        .table_by_case(failed)
}

/// The beginning of a text in one line.
fn beginning(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(SHOWN_CHARS) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{case, report_of};
    use llmscen_core::expect::AnswerCheck;
    use llmscen_core::report::{AnswerShare, FailedAnswer, FailedCheckCount, Report, RunVerdict};

    fn report() -> Report {
        let mut checked = case(4);
        checked.answers = Some(AnswersReport {
            shares: vec![AnswerShare {
                metric: Metric::MatchRate,
                passed: 198,
                checked: 200,
            }],
            failed_checks: vec![FailedCheckCount {
                check: AnswerCheck::Contains,
                count: 2,
                reason: "expected \"a|b\", not \"<c>".into(),
            }],
            failed_answers: vec![FailedAnswer {
                round: 0,
                seq: 7,
                turn: 0,
                group: None,
                check: AnswerCheck::Contains,
                reason: "expected".into(),
                text: format!("<c>\n{}", "the ".repeat(100)),
            }],
        });
        report_of(vec![checked, case(8)], RunVerdict::Pass, 0)
    }

    #[test]
    fn every_report_has_the_shares_and_the_failed_answers() {
        let markdown = crate::markdown(&report(), &[]).unwrap();
        let from = markdown.find("## Answers").unwrap();
        let section = &markdown[from..];
        let to = section[3..].find("\n## ").unwrap() + 3;
        insta::assert_snapshot!(&section[..to]);
        let html = crate::html(&report(), "").unwrap();
        assert!(html.contains("id=\"answers\"") && html.contains("&lt;c&gt; the the"));
        let json: serde_json::Value =
            serde_json::from_str(&crate::json(&report()).unwrap()).unwrap();
        let schema = serde_json::from_str(crate::results_schema()).unwrap();
        let validator = jsonschema::draft202012::new(&schema).unwrap();
        assert!(
            validator.is_valid(&json),
            "{:?}",
            validator.iter_errors(&json).next()
        );
        let text = json["cases"][0]["answers"]["failed_answers"][0]["text"]
            .as_str()
            .unwrap();
        assert_eq!(text.len(), 404, "results.json has the whole text");
        assert!(json["cases"][1].get("answers").is_none());
    }
}
