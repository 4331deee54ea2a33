//! Plausibility of reported counts: a token count that cannot be true is corrected or discarded, and noted in the
//! outcome.

use llmscen_core::outcome::{Anomaly, AnomalyKind, Outcome, ServerTimes, Usage};
use llmscen_core::request::MAX_EVENTS_PER_TOKEN;
use llmscen_core::units::Nanos;
use std::collections::BTreeSet;

/// Tolerated tokens beyond `max_tokens`: an eighth (divisor), plus some stop and template tokens.
const EXTRA_DIVISOR: u64 = 8;
const EXTRA_TOKENS: u64 = 64;
/// Maximum tokens per stream event: servers merge a few, for example with speculative decoding.
const MAX_TOKENS_PER_EVENT: u64 = 8;
/// Token events beyond [`MAX_EVENTS_PER_TOKEN`]; maximum characters per token, and beyond.
const EXTRA_EVENTS: u64 = 64;
const MAX_CHARACTERS_PER_TOKEN: u64 = 64;
const EXTRA_CHARACTERS: u64 = 1024;
/// Maximum tokens per body byte, and maximum tokens without text (special tokens are not sent).
const TOKENS_PER_BYTE: u64 = 4;
const TOKENS_WITHOUT_TEXT: u64 = 1024;
/// Maximum decompressed bytes per compressed byte: the maximum ratio of deflate.
const MAX_COMPRESSION_RATIO: u64 = 1032;
/// Maximum reasoning tokens that are billed but not sent: the largest budgets of providers.
const MAX_HIDDEN_REASONING: u64 = 1 << 17;
/// Maximum prompt tokens that are not in the body: chat template, system prompt of the server, images and video by URL.
const MAX_PROMPT_OUTSIDE_BODY: u64 = 10_000_000;
/// Tolerance for times reported by the server.
const CLOCK_TOLERANCE: Nanos = Nanos::from_millis(1000);

/// Corrects counts and times of an outcome that cannot be true, and adds each to its anomalies. `packed`: the body
/// was compressed.
pub fn correct_counts(outcome: &mut Outcome, packed: bool) {
    let found = [
        zero_output(outcome),
        zero_prompt(outcome),
        implausible_output(outcome, packed),
        too_few_tokens(outcome),
        implausible_prompt(outcome),
        reasoning_above_output(outcome),
        implausible_times(outcome),
    ];
    outcome.reply.anomalies.extend(found.into_iter().flatten());
}

/// Whether the reply has text, streamed or not.
fn has_text(outcome: &Outcome) -> bool {
    !outcome.timeline.tokens.is_empty() || outcome.reply.characters > 0
}

fn zero_output(outcome: &mut Outcome) -> Option<Anomaly> {
    if outcome.usage.output != Some(0) || !has_text(outcome) {
        return None;
    }
    (outcome.usage.output, outcome.usage.reasoning) = (None, None);
    Some(Anomaly::bare(AnomalyKind::ZeroOutput))
}

fn zero_prompt(outcome: &mut Outcome) -> Option<Anomaly> {
    let has_results = outcome.end.is_ok() && outcome.items.is_some_and(|items| items > 0);
    if outcome.usage.prompt != Some(0) || !(has_results || has_text(outcome)) {
        return None;
    }
    outcome.usage.prompt = None;
    Some(Anomaly::bare(AnomalyKind::ZeroPrompt))
}

fn reasoning_above_output(outcome: &mut Outcome) -> Option<Anomaly> {
    let (output, reasoning) = (outcome.usage.output, outcome.usage.reasoning?);
    // Without an output count there is nothing that they are a part of.
    if reasoning <= output.unwrap_or(0) {
        return None;
    }
    outcome.usage.reasoning = output;
    Some(Anomaly {
        kind: AnomalyKind::ReasoningAboveOutput,
        reported: reasoning,
    })
}

fn implausible_output(outcome: &mut Outcome, packed: bool) -> Option<Anomaly> {
    let Usage {
        output, reasoning, ..
    } = outcome.usage;
    let weighed: u64 = outcome
        .timeline
        .weights
        .iter()
        .map(|weight| u64::from(*weight))
        .sum();
    let greatest = output.max(Some(weighed));
    let received = outcome
        .bytes_in
        .saturating_mul(if packed { MAX_COMPRESSION_RATIO } else { 1 });
    let events = outcome.timeline.tokens.len() as u64;
    let shown = greatest?.saturating_sub(
        reasoning
            .filter(|tokens| *tokens <= MAX_HIDDEN_REASONING)
            .unwrap_or(0),
    );
    let most = match outcome.max_tokens {
        // A server that ignores `max_tokens` may merge many tokens into an event; text has about four bytes per token.
        Some(_) if outcome.streamed && events > 0 => events
            .saturating_mul(MAX_TOKENS_PER_EVENT)
            .max(received / 4),
        Some(_) => received,
        // Gateways may drop the details with the number of hidden reasoning tokens.
        None => received
            .saturating_mul(TOKENS_PER_BYTE)
            .saturating_add(TOKENS_WITHOUT_TEXT + MAX_HIDDEN_REASONING),
    };
    let expected = |choices: u64| {
        let tokens = outcome.max_tokens?.saturating_mul(choices);
        Some(
            tokens
                .saturating_add(tokens / EXTRA_DIVISOR)
                .saturating_add(EXTRA_TOKENS),
        )
    };
    let hidden =
        reasoning.is_some_and(|tokens| tokens > MAX_HIDDEN_REASONING && Some(tokens) > expected(1));
    if !hidden
        && (shown <= most
            || expected(1).is_some_and(|expected| shown <= expected)
            || expected(choices(outcome)) >= Some(shown))
    {
        return None;
    }
    let reported = greatest.max(reasoning).unwrap_or(0);
    Some(discard_output(outcome, reported))
}

/// Discards the counts of output tokens.
fn discard_output(outcome: &mut Outcome, reported: u64) -> Anomaly {
    (
        outcome.usage.output,
        outcome.usage.reasoning,
        outcome.timeline.weights,
    ) = (None, None, Vec::new());
    Anomaly {
        kind: AnomalyKind::ImpossibleOutput,
        reported,
    }
}

/// A count that is too small for the events and the characters of the reply. Some gateways send each character as an
/// event, and the longest tokens are runs of spaces.
fn too_few_tokens(outcome: &mut Outcome) -> Option<Anomaly> {
    let reported = outcome.usage.output?;
    let events = outcome.timeline.tokens.len() as u64;
    let most_of = |each: u64, more: u64| reported.saturating_mul(each).saturating_add(more);
    // The reply to a completion may repeat its prompt.
    let extra = EXTRA_CHARACTERS + outcome.bytes_out;
    if events <= most_of(MAX_EVENTS_PER_TOKEN, EXTRA_EVENTS)
        && outcome.reply.characters <= most_of(MAX_CHARACTERS_PER_TOKEN, extra)
    {
        return None;
    }
    Some(discard_output(outcome, reported))
}

/// The number of choices of a reply.
fn choices(outcome: &Outcome) -> u64 {
    outcome
        .timeline
        .choices
        .iter()
        .collect::<BTreeSet<_>>()
        .len()
        .max(1) as u64
}

fn implausible_prompt(outcome: &mut Outcome) -> Option<Anomaly> {
    let most = outcome
        .bytes_out
        .saturating_mul(TOKENS_PER_BYTE)
        .saturating_add(MAX_PROMPT_OUTSIDE_BODY);
    let Usage { prompt, cached, .. } = &mut outcome.usage;
    if let Some(reported) = prompt.filter(|tokens| *tokens > most) {
        (*prompt, *cached) = (None, None);
        return Some(Anomaly {
            kind: AnomalyKind::ImpossiblePrompt,
            reported,
        });
    }
    let reported = cached.filter(|tokens| *tokens > prompt.unwrap_or(most))?;
    *cached = None;
    Some(Anomaly {
        kind: AnomalyKind::CachedAbovePrompt,
        reported,
    })
}

fn implausible_times(outcome: &mut Outcome) -> Option<Anomaly> {
    let began = outcome.timeline.sent.unwrap_or_default();
    let took = outcome.timeline.end.since(began);
    let most = took + took + CLOCK_TOLERANCE;
    let ServerTimes {
        queue,
        load,
        prefill,
        decode,
        total,
    } = outcome.server;
    let longest = [queue, load, prefill, decode, total]
        .into_iter()
        .flatten()
        .max()
        .filter(|span| *span > most)?;
    outcome.server = ServerTimes::default();
    Some(Anomaly {
        kind: AnomalyKind::ImpossibleTimes,
        reported: longest.0,
    })
}

#[cfg(test)]
mod tests;
