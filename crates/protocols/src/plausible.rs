//! Plausibility of reported counts: a token count that the transferred bytes cannot contain is discarded.

use llmscen_core::outcome::{Outcome, ServerTimes, Usage};
use llmscen_core::units::Nanos;
use std::collections::BTreeSet;

/// Tolerated tokens beyond `max_tokens`: an eighth (divisor), plus some stop and template tokens.
const EXTRA_DIVISOR: u64 = 8;
const EXTRA_TOKENS: u64 = 64;
/// Maximum tokens per stream event: servers merge a few, for example with speculative decoding.
const MAX_TOKENS_PER_EVENT: u64 = 8;
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

/// What replaces the reported output tokens.
const COUNTED: &str = "they are counted by the tokenizer or by content events instead";

/// Removes implausible counts and times from an outcome; returns a note on what the server reported, if any. `packed`: the body
/// was compressed.
pub fn discard_implausible(outcome: &mut Outcome, packed: bool) -> Option<String> {
    let found = [
        implausible_output(outcome, packed),
        implausible_prompt(outcome),
        implausible_times(outcome),
    ];
    found.into_iter().flatten().next()
}

fn implausible_output(outcome: &mut Outcome, packed: bool) -> Option<String> {
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
    let why = match outcome.max_tokens {
        Some(max_tokens) => format!("with max_tokens {max_tokens}"),
        None => format!("whose reply has {} bytes", outcome.bytes_in),
    };
    let reported = greatest.max(reasoning).unwrap_or(0);
    (
        outcome.usage.output,
        outcome.usage.reasoning,
        outcome.timeline.weights,
    ) = (None, None, Vec::new());
    Some(format!(
        "the server reported {reported} output tokens for a request {why}; {COUNTED}"
    ))
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

fn implausible_prompt(outcome: &mut Outcome) -> Option<String> {
    let most = outcome
        .bytes_out
        .saturating_mul(TOKENS_PER_BYTE)
        .saturating_add(MAX_PROMPT_OUTSIDE_BODY);
    let Usage { prompt, cached, .. } = outcome.usage;
    let (prompt, sent) = (prompt.filter(|tokens| *tokens <= most), outcome.bytes_out);
    if prompt != outcome.usage.prompt {
        let reported = std::mem::replace(&mut outcome.usage.prompt, prompt).unwrap_or(0);
        outcome.usage.cached = None;
        return Some(format!(
            "the server reported {reported} prompt tokens for a request of {sent} bytes"
        ));
    }
    let cached = cached.filter(|tokens| *tokens > prompt.unwrap_or(most))?;
    outcome.usage.cached = None;
    let subject = prompt.map_or_else(
        || format!("a request of {sent} bytes"),
        |prompt| format!("a prompt of {prompt} tokens"),
    );
    Some(format!(
        "the server reported {cached} cached tokens for {subject}"
    ))
}

fn implausible_times(outcome: &mut Outcome) -> Option<String> {
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
    let (reported, took) = (longest.secs(), took.secs());
    Some(format!(
        "the server reported a duration of {reported:.3} s for a request that took {took:.3} s"
    ))
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

    fn judged(mut outcome: Outcome) -> (Usage, Option<String>) {
        let note = discard_implausible(&mut outcome, false);
        (outcome.usage, note)
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
            assert_eq!(judged(outcome), (usage, None));
        }
    }

    #[test]
    fn counts_beyond_max_tokens_or_the_bytes_are_not() {
        for (max_tokens, output, why) in [
            (Some(16), u64::MAX, "with max_tokens 16"),
            (Some(16), 1_000_000_000_000_000_000, "with max_tokens 16"),
            (Some(16), 900, "with max_tokens 16"),
            (None, u64::MAX, "whose reply has 1000 bytes"),
            (None, 200_000, "whose reply has 1000 bytes"),
        ] {
            let (usage, note) = judged(five(max_tokens, output));
            assert_eq!((usage.prompt, usage.output), (Some(20), None));
            assert_eq!(
                note.unwrap(),
                format!(
                    "the server reported {output} output tokens for a request {why}; {COUNTED}"
                )
            );
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
        assert!(
            discard_implausible(&mut all, false).is_some_and(|note| note.contains("output tokens"))
        );
        assert_eq!(
            (all.usage, all.server),
            (Usage::default(), ServerTimes::default()),
            "the first one found is not the only one"
        );
        let mut running = five(Some(16), 5);
        (running.usage.output, running.timeline.weights) = (None, vec![1, 1, 1, 1, u32::MAX]);
        let note = discard_implausible(&mut running, false).unwrap();
        assert!(
            note.starts_with("the server reported 4294967299 output tokens"),
            "{note}"
        );
        assert!(running.timeline.weights.is_empty());
    }

    #[test]
    fn implausible_prompts_caches_and_times_are_removed() {
        let of = |prompt, cached| {
            let mut outcome = five(None, 5);
            (outcome.usage.prompt, outcome.usage.cached) = (prompt, cached);
            let (usage, note) = judged(outcome);
            (usage.prompt, usage.cached, note.unwrap())
        };
        let max = u64::MAX;
        let note = |text: &str| text.to_owned();
        assert_eq!(
            of(Some(max), Some(max)),
            (
                None,
                None,
                note(
                    "the server reported 18446744073709551615 prompt tokens for a request of 100 bytes"
                )
            )
        );
        assert_eq!(
            of(Some(20), Some(21)),
            (
                Some(20),
                None,
                note("the server reported 21 cached tokens for a prompt of 20 tokens")
            )
        );
        assert_eq!(of(None, Some(max)).1, None);
        let mut slow = five(None, 5);
        slow.timeline.end = Nanos::from_millis(2000);
        slow.server.total = Some(Nanos::from_millis(4900));
        assert_eq!(discard_implausible(&mut slow, false), None);
        slow.server.load = Some(Nanos(u64::MAX));
        let why =
            "the server reported a duration of 18446744073.710 s for a request that took 2.000 s";
        assert_eq!(discard_implausible(&mut slow, false).as_deref(), Some(why));
        assert_eq!(slow.server, ServerTimes::default());
    }
}
