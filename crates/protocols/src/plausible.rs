//! Which counts of a server can be true of one request: a count that its bytes cannot hold is not used.

use llmscen_core::outcome::{Outcome, ServerTimes, Usage};
use llmscen_core::units::Nanos;
use std::collections::BTreeSet;

/// Tokens beyond `max_tokens` that engines count in good faith: an eighth, and some stop and template tokens.
const BESIDE: (u64, u64) = (8, 64);
/// Tokens in one event of a stream at most: servers that ignore `max_tokens` merge a few, as with speculative decoding.
const MERGED: u64 = 8;
/// Tokens that a byte of a body stands for at most, and tokens without any text: special ones are not sent.
const PER_BYTE: u64 = 4;
const SILENT: u64 = 1024;
/// Bytes that a compressed byte can come to: deflate's greatest ratio.
const UNPACKED: u64 = 1032;
/// Reasoning that is billed and not sent: the largest budgets of the providers.
const HIDDEN: u64 = 1 << 17;
/// Prompt tokens beside those of the body's bytes: a template, a system prompt of the server's own, images and video by URL.
const BEHIND: u64 = 10_000_000;
/// What a server may report beyond the time that the request took: clocks differ.
const CLOCKS: Nanos = Nanos::from_millis(1000);

/// What is used in place of output tokens.
const COUNTED: &str = "they are counted by the tokenizer or by content events instead";

/// Takes out of an outcome the counts and times that cannot be true, and says what the server reported, where there are any.
/// `packed`: the body was compressed.
pub fn without_absurd(outcome: &mut Outcome, packed: bool) -> Option<String> {
    let found = [absurd_output(outcome, packed), absurd_prompt(outcome), absurd_times(outcome)];
    found.into_iter().flatten().next()
}

fn absurd_output(outcome: &mut Outcome, packed: bool) -> Option<String> {
    let Usage { output, reasoning, .. } = outcome.usage;
    let weighed: u64 = outcome.timeline.weights.iter().map(|weight| u64::from(*weight)).sum();
    let greatest = output.max(Some(weighed));
    let received = outcome.bytes_in.saturating_mul(if packed { UNPACKED } else { 1 });
    let events = outcome.timeline.tokens.len() as u64;
    let shown = greatest?.saturating_sub(reasoning.filter(|tokens| *tokens <= HIDDEN).unwrap_or(0));
    let most = match outcome.max_tokens {
        // A server that ignores `max_tokens` may merge many tokens into an event: text has about four bytes a token.
        Some(_) if outcome.streamed && events > 0 => events.saturating_mul(MERGED).max(received / 4),
        Some(_) => received,
        // Gateways drop the details that say how many of them are hidden reasoning.
        None => received.saturating_mul(PER_BYTE).saturating_add(SILENT + HIDDEN),
    };
    let asked = |choices: u64| {
        let tokens = outcome.max_tokens?.saturating_mul(choices);
        Some(tokens.saturating_add(tokens / BESIDE.0).saturating_add(BESIDE.1))
    };
    let hidden = reasoning.is_some_and(|tokens| tokens > HIDDEN && Some(tokens) > asked(1));
    if !hidden && (shown <= most || asked(1).is_some_and(|asked| shown <= asked) || asked(choices(outcome)) >= Some(shown)) {
        return None;
    }
    let why = match outcome.max_tokens {
        Some(max_tokens) => format!("with max_tokens {max_tokens}"),
        None => format!("whose reply has {} bytes", outcome.bytes_in),
    };
    let reported = greatest.max(reasoning).unwrap_or(0);
    (outcome.usage.output, outcome.usage.reasoning, outcome.timeline.weights) = (None, None, Vec::new());
    Some(format!("the server reported {reported} output tokens for a request {why}; {COUNTED}"))
}

/// The choices that a reply had.
fn choices(outcome: &Outcome) -> u64 {
    outcome.timeline.choices.iter().collect::<BTreeSet<_>>().len().max(1) as u64
}

fn absurd_prompt(outcome: &mut Outcome) -> Option<String> {
    let most = outcome.bytes_out.saturating_mul(PER_BYTE).saturating_add(BEHIND);
    let Usage { prompt, cached, .. } = outcome.usage;
    let (prompt, sent) = (prompt.filter(|tokens| *tokens <= most), outcome.bytes_out);
    if prompt != outcome.usage.prompt {
        let reported = std::mem::replace(&mut outcome.usage.prompt, prompt).unwrap_or(0);
        outcome.usage.cached = None;
        return Some(format!("the server reported {reported} prompt tokens for a request of {sent} bytes"));
    }
    let cached = cached.filter(|tokens| *tokens > prompt.unwrap_or(most))?;
    outcome.usage.cached = None;
    let of = prompt.map_or_else(|| format!("a request of {sent} bytes"), |prompt| format!("a prompt of {prompt} tokens"));
    Some(format!("the server reported {cached} cached tokens for {of}"))
}

fn absurd_times(outcome: &mut Outcome) -> Option<String> {
    let began = outcome.timeline.sent.unwrap_or_default();
    let took = outcome.timeline.end.since(began);
    let most = took + took + CLOCKS;
    let ServerTimes { queue, load, prefill, decode, total } = outcome.server;
    let longest = [queue, load, prefill, decode, total].into_iter().flatten().max().filter(|span| *span > most)?;
    outcome.server = ServerTimes::default();
    let (reported, took) = (longest.secs(), took.secs());
    Some(format!("the server reported a duration of {reported:.3} s for a request that took {took:.3} s"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use llmscen_core::call::Call;
    use llmscen_core::outcome::Phase;

    /// A stream of five events in 1000 bytes.
    fn five(max_tokens: Option<u64>, output: u64) -> Outcome {
        let mut outcome = Call { max_tokens, streamed: true, body: vec![b'x'; 100], ..Call::default() }.outcome(Phase::Measured);
        outcome.timeline.tokens = vec![Nanos(1); 5];
        outcome.bytes_in = 1000;
        outcome.usage = Usage { prompt: Some(20), output: Some(output), ..Usage::default() };
        outcome
    }

    fn judged(mut outcome: Outcome) -> (Usage, Option<String>) {
        let said = without_absurd(&mut outcome, false);
        (outcome.usage, said)
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
            let (usage, said) = judged(five(max_tokens, output));
            assert_eq!((usage.prompt, usage.output), (Some(20), None));
            assert_eq!(said.unwrap(), format!("the server reported {output} output tokens for a request {why}; {COUNTED}"));
        }
        let mut reasoned = five(Some(16), u64::MAX);
        reasoned.usage.reasoning = Some(u64::MAX - 5);
        assert_eq!(judged(reasoned).0, Usage { prompt: Some(20), ..Usage::default() });
        let mut all = five(Some(16), u64::MAX);
        (all.usage.prompt, all.usage.cached, all.server.total) = (Some(u64::MAX), Some(u64::MAX), Some(Nanos(u64::MAX)));
        assert!(without_absurd(&mut all, false).is_some_and(|said| said.contains("output tokens")));
        assert_eq!(
            (all.usage, all.server),
            (Usage::default(), ServerTimes::default()),
            "the first one found is not the only one"
        );
        let mut running = five(Some(16), 5);
        (running.usage.output, running.timeline.weights) = (None, vec![1, 1, 1, 1, u32::MAX]);
        let said = without_absurd(&mut running, false).unwrap();
        assert!(said.starts_with("the server reported 4294967299 output tokens"), "{said}");
        assert!(running.timeline.weights.is_empty());
    }

    #[test]
    fn absurd_prompts_caches_and_times_are_left_out() {
        let of = |prompt, cached| {
            let mut outcome = five(None, 5);
            (outcome.usage.prompt, outcome.usage.cached) = (prompt, cached);
            let (usage, said) = judged(outcome);
            (usage.prompt, usage.cached, said.unwrap())
        };
        let max = u64::MAX;
        let said = |text: &str| text.to_owned();
        assert_eq!(
            of(Some(max), Some(max)),
            (None, None, said("the server reported 18446744073709551615 prompt tokens for a request of 100 bytes"))
        );
        assert_eq!(
            of(Some(20), Some(21)),
            (Some(20), None, said("the server reported 21 cached tokens for a prompt of 20 tokens"))
        );
        assert_eq!(of(None, Some(max)).1, None);
        let mut slow = five(None, 5);
        slow.timeline.end = Nanos::from_millis(2000);
        slow.server.total = Some(Nanos::from_millis(4900));
        assert_eq!(without_absurd(&mut slow, false), None);
        slow.server.load = Some(Nanos(u64::MAX));
        let why = "the server reported a duration of 18446744073.710 s for a request that took 2.000 s";
        assert_eq!(without_absurd(&mut slow, false).as_deref(), Some(why));
        assert_eq!(slow.server, ServerTimes::default());
    }
}
