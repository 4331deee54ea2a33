//! The tables of replies: what they consist of, their lengths and their finish reasons.

use crate::format::{number, percent};
use crate::table::{Cell, Column, Columns, Emphasis, Table};
use llmscen_core::report::{CaseReport, FinishReasonCount, OutputLengths, TokenSource};

/// Output lengths as requested and as received, of each case whose requests ask for a length.
pub(crate) fn output_lengths<'a>(cases: impl Iterator<Item = (usize, &'a CaseReport)>) -> Table {
    type Lengths<'a> = (usize, &'a CaseReport, OutputLengths);
    let known = cases.filter_map(|(index, case)| Some((index, case, case.output_lengths?)));
    let of = |stat: &'static str, cell: fn(&OutputLengths) -> Cell| {
        move |(.., lengths): &Lengths<'_>| cell(lengths).with_stat("output_lengths", stat)
    };
    let shown = |head: &str| Column::number().documents(head);
    Columns::<Lengths<'_>>::new()
        .add_case(Column::text().documents("Case"))
        .add(shown("Replies"), of("n", |lengths| Cell::count(lengths.n)))
        .add(
            shown("Tokens requested, mean"),
            of("requested_mean", |lengths| {
                let minimum = if lengths.is_minimum { "≥ " } else { "" };
                let mean = lengths.requested_mean;
                Cell::figure(format!("{minimum}{}", number(mean)), mean)
            }),
        )
        .add(
            shown("Tokens received, mean"),
            of("received_mean", |lengths| {
                Cell::number(Some(lengths.received_mean))
            }),
        )
        .add(
            shown("Shorter replies"),
            of("shorter", |lengths| {
                Cell::count(lengths.shorter).emphasized(match lengths.shorter {
                    0 => Emphasis::None,
                    _ => Emphasis::Fail,
                })
            }),
        )
        .add(
            shown("Share"),
            of("share", |lengths| {
                let share = lengths.shorter as f64 / lengths.n.max(1) as f64;
                Cell::figure(percent(share), share)
            }),
        )
        .table_by_case(known)
}

/// A row for each finish reason of each case.
pub(crate) fn finish_reasons<'a>(cases: impl Iterator<Item = (usize, &'a CaseReport)>) -> Table {
    type Reason<'a> = (usize, &'a CaseReport, &'a FinishReasonCount);
    let reasons = cases.flat_map(|(index, case)| {
        let reasons = case.finish_reasons.iter();
        reasons.map(move |it| (index, case, it))
    });
    Columns::<Reason<'_>>::new()
        .add_case(Column::text().documents("Case"))
        .add(
            Column::text().documents("Finish reason"),
            |(.., it)| match it.reason.as_str() {
                "" => Cell::prose("none"),
                reason => Cell::code(reason),
            },
        )
        .add(Column::number().documents("Replies"), |(.., it)| {
            Cell::count(it.count).with_stat("finish_reasons", &it.reason)
        })
        .add(Column::number().documents("Share"), |(_, case, it)| {
            let all: u64 = case.finish_reasons.iter().map(|it| it.count).sum();
            let share = it.count as f64 / all.max(1) as f64;
            Cell::figure(percent(share), share).with_stat("finish_shares", &it.reason)
        })
        .table_by_case(reasons)
}

/// What some replies of a case consist of: their name, their number, and the largest reported count, each with its key.
type ReplyLine<'a> = (
    usize,
    &'a CaseReport,
    (String, (String, u64), Option<(String, u64)>),
);

/// What replies consist of, of each case whose replies are not all counted by the server and as the API describes.
pub(crate) fn reply_accounts<'a>(cases: impl Iterator<Item = (usize, &'a CaseReport)>) -> Table {
    let rows = cases
        .filter(|(_, case)| !case.account.is_plain())
        .flat_map(|(index, case)| {
            let account = &case.account;
            let by_source = account.sources.iter().map(|(source, count)| {
                let (name, key) = match source {
                    TokenSource::Usage => ("output tokens reported by the server", "usage"),
                    TokenSource::Tokenizer => {
                        ("output tokens counted by the tokenizer", "tokenizer")
                    }
                    TokenSource::Events => ("output tokens counted by events", "events"),
                };
                (name.to_owned(), (format!("sources/{key}"), *count), None)
            });
            let kinds = [
                (
                    "with hidden reasoning; its tokens",
                    ("replies_with_hidden", account.replies_with_hidden),
                    Some(("hidden_tokens", account.hidden_tokens)),
                ),
                (
                    "of reasoning alone",
                    ("reasoning_alone", account.reasoning_alone),
                    None,
                ),
                ("in one read", ("one_read", account.one_read), None),
                (
                    "with more events than tokens in the text",
                    ("more_events_than_tokens", account.more_events_than_tokens),
                    None,
                ),
            ];
            let kinds = kinds.into_iter().map(|(name, (key, count), tokens)| {
                let tokens = tokens.map(|(key, tokens)| (key.to_owned(), tokens));
                (name.to_owned(), (key.to_owned(), count), tokens)
            });
            let anomalies = account.anomalies.iter().map(|(kind, count)| {
                let name = kind.name();
                let largest = (format!("anomalies/{name}/largest"), count.largest);
                let replies = (format!("anomalies/{name}/replies"), count.replies);
                let largest = Some(largest).filter(|(_, largest)| *largest > 0);
                (name.replace('_', " "), replies, largest)
            });
            let lines = by_source.chain(kinds.filter(|(_, (_, count), _)| *count > 0));
            let lines: Vec<_> = lines.chain(anomalies).collect();
            let of_case = move |line| (index, case, line);
            lines.into_iter().map(of_case)
        });
    // The keys are paths in `replies` of results.json.
    let counted = |(key, count): &(String, u64)| Cell::count(*count).with_stat("replies", key);
    Columns::<ReplyLine<'_>>::new()
        .add_case(Column::text().documents("Case"))
        .add(Column::text().documents("Replies"), |(.., (name, ..))| {
            Cell::prose(name)
        })
        .add(
            Column::number().documents("Count"),
            |(.., (_, count, _))| counted(count),
        )
        .add(
            Column::number().documents("Reported, up to"),
            |(.., (.., largest))| largest.as_ref().map_or_else(|| Cell::prose(""), counted),
        )
        .table_by_case(rows)
}

#[cfg(test)]
mod tests {
    use crate::fixture::{case, report_of};
    use llmscen_core::report::{FinishReasonCount, OutputLengths, RunVerdict};

    #[test]
    fn every_report_has_the_lengths_and_the_finish_reasons() {
        let mut short = case(4);
        short.output_lengths = Some(OutputLengths {
            n: 100,
            requested_mean: 64.0,
            received_mean: 8.8,
            is_minimum: true,
            shorter: 92,
        });
        let count = |reason: &str, count| FinishReasonCount {
            reason: reason.into(),
            count,
        };
        short.finish_reasons = vec![count("a|b", 92), count("", 8)];
        let report = report_of(vec![short, case(8)], RunVerdict::Pass, 0);
        let markdown = crate::markdown(&report, &[]).unwrap();
        let from = markdown.find("## Replies").unwrap();
        let section = &markdown[from..];
        let to = section[3..].find("\n## ").unwrap() + 3;
        insta::assert_snapshot!(&section[..to]);
        let html = crate::html(&report, "").unwrap();
        assert!(html.contains("id=\"replies\"") && html.contains("a|b"));
        let json: serde_json::Value = serde_json::from_str(&crate::json(&report).unwrap()).unwrap();
        let first = &json["cases"][0];
        assert_eq!(first["output_lengths"]["shorter"], 92);
        assert_eq!(first["finish_reasons"][1]["count"], 8);
        assert_eq!(json["cases"][1]["output_lengths"], serde_json::Value::Null);
    }
}
