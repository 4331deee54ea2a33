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
