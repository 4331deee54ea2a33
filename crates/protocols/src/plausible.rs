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
mod tests {
    use super::*;
    use llmscen_core::outcome::Phase;
    use llmscen_core::request::PreparedRequest;

    /// A stream of five events in 1000 bytes.
    fn five(max_tokens: Option<u64>, output: u64) -> Outcome {
        let mut outcome = PreparedRequest {
            max_tokens,
            streamed: true,
            body: vec![b'x'; 100],
            ..PreparedRequest::default()
        }
        .outcome(Phase::Measured);
        outcome.timeline.tokens = vec![Nanos(1); 5];
        outcome.bytes_in = 1000;
        outcome.usage = Usage {
            prompt: Some(20),
            output: Some(output),
            ..Usage::default()
        };
        outcome
    }

    /// The usage after the correction, and the anomalies.
    fn judged(mut outcome: Outcome) -> (Usage, String) {
        let found = correct(&mut outcome);
        (outcome.usage, found)
    }

    fn correct(outcome: &mut Outcome) -> String {
        correct_counts(outcome, false);
        let found = std::mem::take(&mut outcome.reply.anomalies);
        let found: Vec<String> = found.iter().map(ToString::to_string).collect();
        found.join(" ")
    }

    #[test]
    fn counts_that_can_be_true_are_used() {
        let reasoned = |max, output, reasoning| {
            let mut outcome = five(max, output);
            outcome.usage.reasoning = Some(reasoning);
            outcome
        };
        let mut ignored = five(Some(16), 700);
        ignored.timeline.tokens = vec![Nanos(1); 690];
        let mut whole = five(Some(16), 900);
        (whole.streamed, whole.timeline.tokens) = (false, Vec::new());
        let mut several = five(Some(1000), 3900);
        several.timeline.choices = vec![0, 1, 2, 3, 0];
        let cached = {
            let mut outcome = five(Some(16), 5);
            outcome.usage.cached = Some(20);
            outcome
        };
        let known = [
            five(Some(16), 16),
            five(Some(16), 20),
            five(None, 5),
            five(None, 900),
            five(None, 6000),
            reasoned(Some(1000), 1000, 995),
            reasoned(None, 60_000, 59_990),
            ignored,
            whole,
            several,
            cached,
        ];
        for outcome in known {
            let usage = outcome.usage;
            assert_eq!(judged(outcome), (usage, String::new()));
        }
    }

    #[test]
    fn counts_that_are_too_small_for_the_reply_are_not() {
        let of = |output, events, characters| {
            let mut outcome = five(None, output);
            outcome.timeline.tokens = vec![Nanos(1); events];
            outcome.reply.characters = characters;
            judged(outcome)
        };
        for (output, events, characters) in [(1, 80, 80), (1, 1, 1188), (100, 1000, 6000)] {
            let (usage, found) = of(output, events, characters);
            assert_eq!((usage.output, found), (Some(output), String::new()));
        }
        for (output, events, characters) in [(1, 1000, 4000), (1, 1, 1189), (9, 500, 500)] {
            let (usage, found) = of(output, events, characters);
            assert_eq!(
                (usage.output, found),
                (None, format!("impossible_output={output}"))
            );
        }
    }

    #[test]
    fn counts_beyond_max_tokens_or_the_bytes_are_not() {
        for (max_tokens, output) in [
            (Some(16), u64::MAX),
            (Some(16), 1_000_000_000_000_000_000),
            (Some(16), 900),
            (None, u64::MAX),
            (None, 200_000),
        ] {
            let (usage, found) = judged(five(max_tokens, output));
            assert_eq!((usage.prompt, usage.output), (Some(20), None));
            assert_eq!(found, format!("impossible_output={output}"));
        }
        let mut reasoned = five(Some(16), u64::MAX);
        reasoned.usage.reasoning = Some(u64::MAX - 5);
        assert_eq!(
            judged(reasoned).0,
            Usage {
                prompt: Some(20),
                ..Usage::default()
            }
        );
        let mut all = five(Some(16), u64::MAX);
        (all.usage.prompt, all.usage.cached, all.server.total) =
            (Some(u64::MAX), Some(u64::MAX), Some(Nanos(u64::MAX)));
        let max = u64::MAX;
        assert_eq!(
            correct(&mut all),
            format!("impossible_output={max} impossible_prompt={max} impossible_times={max}")
        );
        assert_eq!(
            (all.usage, all.server),
            (Usage::default(), ServerTimes::default())
        );
        let mut running = five(Some(16), 5);
        (running.usage.output, running.timeline.weights) = (None, vec![1, 1, 1, 1, u32::MAX]);
        assert_eq!(correct(&mut running), "impossible_output=4294967299");
        assert!(running.timeline.weights.is_empty());
    }

    #[test]
    fn more_reasoning_than_output_is_all_of_it() {
        let mut outcome = five(None, 23_870);
        outcome.bytes_in = 100_000;
        outcome.usage.reasoning = Some(23_871);
        let (usage, found) = judged(outcome);
        assert_eq!(
            (usage.output, usage.reasoning),
            (Some(23_870), Some(23_870))
        );
        assert_eq!(found, "reasoning_above_output=23871");
        let mut alone = five(None, 0);
        (alone.usage.output, alone.usage.reasoning) = (None, Some(7));
        let (usage, found) = judged(alone);
        assert_eq!((usage.output, usage.reasoning), (None, None));
        assert_eq!(found, "reasoning_above_output=7");
    }

    #[test]
    fn zeros_beside_content_are_not_used() {
        let mut zeros = five(None, 0);
        (zeros.usage.prompt, zeros.usage.reasoning) = (Some(0), Some(0));
        assert_eq!(
            judged(zeros.clone()),
            (Usage::default(), "zero_output zero_prompt".into())
        );
        zeros.usage.output = Some(5);
        assert_eq!(judged(zeros.clone()).1, "zero_prompt");
        zeros.usage.prompt = Some(20);
        zeros.usage.output = Some(0);
        zeros.timeline.tokens.clear();
        let usage = zeros.usage;
        assert_eq!(
            judged(zeros.clone()),
            (usage, String::new()),
            "an empty reply"
        );
        zeros.reply.characters = 3;
        assert_eq!(
            judged(zeros).1,
            "zero_output",
            "a reply that is not streamed"
        );
        let mut embedding = five(None, 0);
        embedding.timeline.tokens.clear();
        (embedding.items, embedding.usage.prompt) = (Some(3), Some(0));
        assert_eq!(judged(embedding).1, "zero_prompt");
    }

    #[test]
    fn implausible_prompts_caches_and_times_are_removed() {
        let of = |prompt, cached| {
            let mut outcome = five(None, 5);
            (outcome.usage.prompt, outcome.usage.cached) = (prompt, cached);
            let (usage, found) = judged(outcome);
            (usage.prompt, usage.cached, found)
        };
        let max = u64::MAX;
        assert_eq!(
            of(Some(max), Some(max)),
            (None, None, format!("impossible_prompt={max}"))
        );
        assert_eq!(
            of(Some(20), Some(21)),
            (Some(20), None, "cached_above_prompt=21".into())
        );
        assert_eq!(of(None, Some(max)).1, None);
        let mut slow = five(None, 5);
        slow.timeline.end = Nanos::from_millis(2000);
        slow.server.total = Some(Nanos::from_millis(4900));
        assert_eq!(correct(&mut slow), "");
        slow.server.load = Some(Nanos(u64::MAX));
        assert_eq!(correct(&mut slow), format!("impossible_times={max}"));
        assert_eq!(slow.server, ServerTimes::default());
    }
}
