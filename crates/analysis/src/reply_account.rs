//! What the replies of a case consist of: the sources of their counts, hidden reasoning, and what was not as the API
//! describes it.

use crate::request_row::RequestRow;
use crate::table::Table;
use llmscen_core::outcome::AnomalyKind;
use llmscen_core::report::{AnomalyCount, ReplyAccount, TokenSource};
use std::collections::BTreeMap;

/// The account of the measured replies of a case that succeeded.
pub fn reply_account(table: &Table, case: &str) -> ReplyAccount {
    account(&ok_rows(table, case))
}

/// The measured requests of a case that succeeded.
pub(super) fn ok_rows<'a>(table: &'a Table, case: &str) -> Vec<RequestRow<'a>> {
    table
        .rows_of_case(case)
        .into_iter()
        .filter(|row| row.measured() && row.ok())
        .collect()
}

pub(super) fn account(ok: &[RequestRow<'_>]) -> ReplyAccount {
    let mut account = ReplyAccount {
        replies: ok.len() as u64,
        ..ReplyAccount::default()
    };
    for row in ok {
        if let Some(source) = row.token_source() {
            *account.sources.entry(source).or_default() += 1;
        }
        let hidden = row.token_account().hidden().unwrap_or(0);
        account.hidden_tokens = account.hidden_tokens.saturating_add(hidden);
        account.replies_with_hidden += u64::from(hidden > 0);
        account.reasoning_alone += u64::from(row.is_reasoning_alone());
        account.one_read += u64::from(row.arrived_at_once());
        // The tokenizer finds less in the text than events arrived: blank or split text.
        let has_more_events = row.token_source() == Some(TokenSource::Events)
            && row.token_account().counted.is_some();
        account.more_events_than_tokens += u64::from(has_more_events);
        for anomaly in row.anomalies() {
            let count = account.anomalies.entry(anomaly.kind).or_default();
            count.replies += 1;
            count.largest = count.largest.max(anomaly.reported);
        }
    }
    account
}

/// The sentences about the account of a case.
pub(super) fn account_notes(account: &ReplyAccount) -> Vec<String> {
    let of = |count: u64| format!("{count} of {} replies", account.replies);
    let mut notes = Vec::new();
    if account.replies_with_hidden > 0 {
        notes.push(format!(
            "In {} the server reports reasoning tokens that it did not send: {} in all. \
             `output_tokens`, `tpot` and `output_tps` count the tokens that arrived; \
             `billed_tokens`, `billed_tps` and costs count all.",
            of(account.replies_with_hidden),
            account.hidden_tokens
        ));
    }
    if account.reasoning_alone > 0 {
        notes.push(format!(
            "{} are reasoning alone, without any answer. `max_tokens` may end them early. An objective on \
             `time_to_first_answer` is decided only where they cannot change the verdict.",
            of(account.reasoning_alone)
        ));
    }
    if account.more_events_than_tokens > 0 {
        notes.push(format!(
            "In {} the text has fewer tokens than token events arrived, such as blank text. The events count.",
            of(account.more_events_than_tokens)
        ));
    }
    if account.one_read > 0 {
        notes.push(format!(
            "{} arrived in a single read: a proxy may buffer the stream. `e2e` and throughputs \
             can be measured; `ttft` is the time of the whole reply, and `itl` and `tpot` do not \
             exist.",
            of(account.one_read)
        ));
    }
    notes.extend(anomaly_notes(&account.anomalies));
    notes
}

fn anomaly_notes(anomalies: &BTreeMap<AnomalyKind, AnomalyCount>) -> impl Iterator<Item = String> {
    anomalies.iter().map(|(kind, count)| {
        let replies = match count.replies {
            1 => "1 reply".to_owned(),
            n => format!("{n} replies"),
        };
        let largest = count.largest;
        match kind {
            AnomalyKind::ZeroOutput => format!(
                "In {replies} the server reported 0 output tokens beside text. The tokenizer or \
                token events count instead."
            ),
            AnomalyKind::ZeroPrompt => format!(
                "In {replies} the server reported 0 prompt tokens beside output. The tokenizer \
                counts instead, if there is one."
            ),
            AnomalyKind::ReasoningAboveOutput => format!(
                "In {replies} the server reported more reasoning tokens than output tokens, up to \
                 {largest}. At most the output tokens count as reasoning."
            ),
            AnomalyKind::ImpossibleOutput => format!(
                "In {replies} the server reported more output tokens than the request allows or \
                 the reply can contain, or fewer than its text needs, up to {largest}. The \
                 tokenizer or token events count instead."
            ),
            AnomalyKind::ImpossiblePrompt => format!(
                "In {replies} the server reported more prompt tokens than the request can \
                contain, up to {largest}. They are not used."
            ),
            AnomalyKind::CachedAbovePrompt => format!(
                "In {replies} the server reported more cached tokens than prompt tokens, up to \
                {largest}. They are not used."
            ),
            AnomalyKind::ImpossibleTimes => format!(
                "In {replies} the server reported times longer than the request took, up to {:.3} \
                s. They are not used.",
                largest as f64 / 1e9
            ),
            AnomalyKind::InvalidCount => {
                format!("In {replies} the server reported a negative count. It is not used.")
            }
            AnomalyKind::RepeatedMessage => format!(
                "In {replies} a final event repeated the whole text. It is not a token event, and \
                its text counts once."
            ),
            AnomalyKind::ContentType => format!(
                "{replies} had no `content-type`, or one that does not fit the body. The first \
                bytes of the body decided how it was read."
            ),
            AnomalyKind::ReasoningMarkers => format!(
                "In {replies} reasoning was in the text of the answer, between markers. It counts as reasoning \
                 (`request.reasoning.markers`)."
            ),
            AnomalyKind::FallingOutput => format!(
                "In {replies} the running count of output tokens fell, from up to {largest}. The \
                tokenizer or token events count instead."
            ),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{outcome, stream, table};
    use llmscen_core::outcome::{Anomaly, Outcome, Usage};

    fn of(rows: &[Outcome]) -> ReplyAccount {
        reply_account(&table("a", rows), "a")
    }

    fn notes(rows: &[Outcome]) -> Vec<String> {
        account_notes(&of(rows))
    }

    #[test]
    fn replies_are_counted_by_the_source_of_their_count() {
        let bare = Outcome {
            usage: Usage::default(),
            ..stream(1, 0, &[10, 20])
        };
        let account = of(&[outcome(0), bare]);
        assert_eq!(
            account.sources,
            BTreeMap::from([(TokenSource::Usage, 1), (TokenSource::Events, 1)])
        );
        assert_eq!((account.replies, account.is_plain()), (2, false));
        assert!(of(&[outcome(0)]).is_plain());
        assert_eq!(notes(&[outcome(0)]), [""; 0]);
    }

    #[test]
    fn hidden_tokens_and_replies_of_reasoning_alone_are_counted() {
        let mut hidden = stream(0, 0, &[10, 20]);
        (hidden.usage.output, hidden.usage.reasoning) = (Some(1002), Some(1000));
        let mut alone = stream(1, 0, &[10, 20]);
        alone.timeline.reasoning = 2;
        alone.reply.reasoning_received = true;
        let account = of(&[hidden, alone]);
        assert_eq!(
            (
                account.hidden_tokens,
                account.replies_with_hidden,
                account.reasoning_alone
            ),
            (1000, 1, 1)
        );
    }

    #[test]
    fn each_anomaly_has_a_note_with_its_largest_value() {
        for kind in AnomalyKind::ALL {
            let mut first = outcome(0);
            first.reply.anomalies = vec![Anomaly {
                kind,
                reported: 2_000_000_000,
            }];
            let mut second = outcome(1);
            second.reply.anomalies = vec![Anomaly::bare(kind)];
            let count = AnomalyCount {
                replies: 2,
                largest: 2_000_000_000,
            };
            let rows = [first, second];
            assert_eq!(of(&rows).anomalies, BTreeMap::from([(kind, count)]));
            assert!(notes(&rows)[0].contains("2 replies"), "{:?}", notes(&rows));
        }
        let mut slow = outcome(0);
        slow.reply.anomalies = vec![Anomaly {
            kind: AnomalyKind::ImpossibleTimes,
            reported: 2_000_000_000,
        }];
        assert_eq!(
            notes(&[slow]),
            [
                "In 1 reply the server reported times longer than the request took, up to 2.000 s. They are not used."
            ]
        );
    }

    #[test]
    fn a_buffered_reply_has_neither_itl_nor_tpot() {
        let buffered = Outcome {
            usage: Usage {
                output: Some(40),
                ..Usage::default()
            },
            ..stream(0, 0, &[500])
        };
        assert!(notes(&[buffered])[0].starts_with("1 of 1 replies arrived in a single read"));
        assert_eq!(
            notes(&[stream(0, 0, &[10])]),
            [""; 0],
            "one token has no pace"
        );
    }
}
