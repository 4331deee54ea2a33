//! Output lengths: those that requests ask for, those of the replies, and why the replies ended.

use crate::CaseFacts;
use crate::reply_account::ok_rows;
use crate::request_row::RequestRow;
use crate::table::Table;
use llmscen_core::finish_reason;
use llmscen_core::metric::Metric;
use llmscen_core::plan::Case;
use llmscen_core::report::{FinishReasonCount, OutputLengths};
use llmscen_core::requested_length::RequestedLength;
use std::cmp::Reverse;

/// A reply that ends at less than this share of `max_tokens` ended well before it.
const WELL_BEFORE: f64 = 0.95;
/// Finish reasons that a note names.
const NAMED_REASONS: usize = 3;

/// Whether a metric is defined for a request: `length_exact` needs a request that asks for a length.
pub(super) fn applies(
    metric: Metric,
    row: &RequestRow<'_>,
    requested: Option<RequestedLength>,
) -> bool {
    metric != Metric::LengthExact
        || row.length_exact().is_some()
        || requested == Some(RequestedLength::Exact)
}

/// The output length that a request of a case asks for.
pub(super) fn requested(row: &RequestRow<'_>, case: &Case) -> Option<RequestedLength> {
    case.requested_length(row.group())
}

/// A reply to a request that asks for a length.
struct Reply<'a> {
    requested: u64,
    received: u64,
    is_minimum: bool,
    reason: &'a str,
    is_short: bool,
}

impl<'a> Reply<'a> {
    /// None where the request asks for no length, or the length of the reply is not known.
    fn new(row: &RequestRow<'a>, case: &Case) -> Option<Reply<'a>> {
        let length = requested(row, case)?;
        let requested = match length {
            RequestedLength::Exact => row.max_tokens()?,
            RequestedLength::AtLeast(least) => least,
        };
        let exact = row.exact_output_tokens();
        let received = exact.or_else(|| row.output_tokens())?;
        let reason = row.finish_reason().unwrap_or_default();
        // An estimated count may be too low, but then the reply ends at the limit.
        let is_certain = exact.is_some() || !finish_reason::matches(finish_reason::LENGTH, reason);
        Some(Reply {
            requested,
            received,
            is_minimum: length != RequestedLength::Exact,
            reason,
            is_short: received < requested && is_certain,
        })
    }
}

fn replies<'a>(ok: &[RequestRow<'a>], case: &Case) -> Vec<Reply<'a>> {
    ok.iter().filter_map(|row| Reply::new(row, case)).collect()
}

fn mean(values: impl Iterator<Item = u64>, n: usize) -> f64 {
    values.map(|value| value as f64).sum::<f64>() / n.max(1) as f64
}

/// The output lengths of a case as requested and as received. None where no request with a known length asks for one.
pub fn output_lengths(table: &Table, facts: &CaseFacts<'_>) -> Option<OutputLengths> {
    summarize(&replies(&ok_rows(table, &facts.case.id), facts.case))
}

fn summarize(replies: &[Reply<'_>]) -> Option<OutputLengths> {
    let n = replies.len();
    (n > 0).then(|| OutputLengths {
        n: n as u64,
        requested_mean: mean(replies.iter().map(|reply| reply.requested), n),
        received_mean: mean(replies.iter().map(|reply| reply.received), n),
        is_minimum: replies.iter().any(|reply| reply.is_minimum),
        shorter: replies.iter().filter(|reply| reply.is_short).count() as u64,
    })
}

/// How many replies of a case ended for each reason, as the server sent it; most frequent first. Empty where it sent
/// none.
pub fn finish_reasons(table: &Table, case: &str) -> Vec<FinishReasonCount> {
    let rows = ok_rows(table, case);
    let counts = count_reasons(
        rows.iter()
            .map(|row| row.finish_reason().unwrap_or_default()),
    );
    let is_known = counts.iter().any(|count| !count.reason.is_empty());
    if is_known { counts } else { Vec::new() }
}

fn count_reasons<'a>(reasons: impl Iterator<Item = &'a str>) -> Vec<FinishReasonCount> {
    let mut counts: Vec<FinishReasonCount> = Vec::new();
    for reason in reasons {
        match counts.iter_mut().find(|count| count.reason == reason) {
            Some(count) => count.count += 1,
            None => counts.push(FinishReasonCount {
                reason: reason.to_owned(),
                count: 1,
            }),
        }
    }
    counts.sort_by(|a, b| (Reverse(a.count), &a.reason).cmp(&(Reverse(b.count), &b.reason)));
    counts
}

/// Replies that are shorter than requested.
pub(super) fn short_replies(ok: &[RequestRow<'_>], case: &Case) -> Option<String> {
    let replies = replies(ok, case);
    let short: Vec<&Reply<'_>> = replies.iter().filter(|reply| reply.is_short).collect();
    summarize(&replies).filter(OutputLengths::are_ignored)?;
    let received = mean(short.iter().map(|reply| reply.received), short.len());
    let requested = mean(short.iter().map(|reply| reply.requested), short.len());
    let reasons = count_reasons(short.iter().map(|reply| reply.reason));
    let named = reasons
        .iter()
        .take(NAMED_REASONS)
        .map(|count| match count.reason.as_str() {
            "" => format!("none ({})", count.count),
            reason => format!("`{reason}` ({})", count.count),
        });
    let named: Vec<String> = named.collect();
    let is_early =
        |reply: &&Reply<'_>| !finish_reason::matches(finish_reason::LENGTH, reply.reason);
    let key = match case.request.body_field("ignore_eos").is_some() {
        false if short.iter().any(|reply| reply.is_minimum) => "min_tokens",
        _ => "ignore_eos",
    };
    let why = match short.iter().any(is_early) {
        true => format!(" The server may ignore `{key}`."),
        false => String::new(),
    };
    Some(format!(
        "{} of {} replies have fewer output tokens than requested: {received:.1} of \
        {requested:.1} on average. Their finish reasons are {}.{why}",
        short.len(),
        replies.len(),
        named.join(", ")
    ))
}

/// Replies that ended for their length although they are much shorter than `max_tokens`.
pub(super) fn cut_replies(ok: &[RequestRow<'_>]) -> Option<String> {
    let ended = |row: &RequestRow<'_>| {
        let reason = row.finish_reason()?;
        let lengths = (row.exact_output_tokens()?, row.max_tokens()?);
        finish_reason::matches(finish_reason::LENGTH, reason).then_some(lengths)
    };
    // Some servers do not count the last token.
    let is_cut = |(received, limit): &(u64, u64)| {
        received.saturating_add(1) < *limit && (*received as f64) < WELL_BEFORE * *limit as f64
    };
    let cut: Vec<(u64, u64)> = ok.iter().filter_map(ended).filter(is_cut).collect();
    let received = mean(cut.iter().map(|lengths| lengths.0), cut.len());
    let limit = mean(cut.iter().map(|lengths| lengths.1), cut.len());
    (!cut.is_empty()).then(|| {
        format!(
            "{} of {} replies ended for their length well before `max_tokens`: at {received:.1} \
             of {limit:.1} tokens on average. The server has another limit, such as its context \
             length.",
            cut.len(),
            ok.len()
        )
    })
}

#[cfg(test)]
mod tests;
