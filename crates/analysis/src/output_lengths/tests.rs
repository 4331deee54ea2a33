use super::*;
use crate::fixture::{case, facts, failed, outcome, stream, table};
use crate::token_notes;
use llmscen_core::load::Shape;
use llmscen_core::outcome::{Counted, FailureKind, Finish, Outcome, Usage};

/// A case whose requests let the model stop.
fn free() -> Case {
    case(Shape::Burst)
}

/// A case whose requests ask for exactly `max_tokens`.
fn exact() -> Case {
    let mut case = free();
    case.request
        .sampling
        .insert("ignore_eos".into(), true.into());
    case
}

/// A case whose requests ask for at least 16 tokens.
fn at_least_16() -> Case {
    let mut case = free();
    case.request.sampling.insert("min_tokens".into(), 16.into());
    case
}

/// A reply of `tokens` of 64 tokens that ended for this reason.
fn reply(seq: u64, tokens: u64, reason: &str) -> Outcome {
    let usage = Usage {
        prompt: Some(10),
        output: Some(tokens),
        ..Usage::default()
    };
    Outcome {
        usage,
        max_tokens: Some(64),
        end: Ok(Finish {
            reason: reason.into(),
        }),
        ..outcome(seq)
    }
}

/// `short` replies of 4 tokens that ended with `stop`, then full ones.
fn replies(short: u64, all: u64) -> Vec<Outcome> {
    let one = |seq| match seq < short {
        true => reply(seq, 4, "stop"),
        false => reply(seq, 64, "length"),
    };
    (0..all).map(one).collect()
}

fn notes(rows: &[Outcome], case: &Case) -> Vec<String> {
    token_notes(&table("a", rows), &facts(case))
}

fn lengths(rows: &[Outcome], case: &Case) -> Option<OutputLengths> {
    output_lengths(&table("a", rows), &facts(case))
}

#[test]
fn short_replies_are_noted_above_five_percent() {
    let exact = exact();
    assert_eq!(notes(&replies(5, 100), &exact), [] as [String; 0]);
    assert_eq!(
        notes(&replies(6, 100), &exact),
        [
            "6 of 100 replies have fewer output tokens than requested: 4.0 of 64.0 on average. \
             Their finish reasons are `stop` (6). The server may ignore `ignore_eos`."
        ]
    );
    let found = lengths(&replies(6, 100), &exact).unwrap();
    assert_eq!(
        (found.n, found.requested_mean, found.received_mean),
        (100, 64.0, 60.4)
    );
    assert_eq!((found.shorter, found.is_minimum), (6, false));
    // A model that may stop is as short as it decides.
    assert_eq!(notes(&replies(6, 100), &free()), [] as [String; 0]);
    assert_eq!(lengths(&replies(6, 100), &free()), None);
}

#[test]
fn a_minimum_is_requested_too() {
    let least = at_least_16();
    let note = notes(&replies(2, 4), &least);
    assert!(
        note[0].starts_with("2 of 4 replies have fewer output tokens than requested: 4.0 of 16.0")
            && note[0].ends_with("The server may ignore `min_tokens`."),
        "{note:?}"
    );
    assert!(lengths(&replies(2, 4), &least).unwrap().is_minimum);
    let enough = [reply(0, 16, "stop"), reply(1, 20, "stop")];
    assert_eq!(notes(&enough, &least), [] as [String; 0]);
}

#[test]
fn an_estimated_count_below_the_limit_is_short_only_where_the_reply_did_not_end_at_it() {
    let exact = exact();
    let bundled = |reason: &str| Outcome {
        usage: Usage {
            prompt: Some(10),
            ..Usage::default()
        },
        max_tokens: Some(64),
        end: Ok(Finish {
            reason: reason.into(),
        }),
        ..stream(0, 0, &[10, 20, 30, 40])
    };
    let shorter = |reason| lengths(&[bundled(reason)], &exact).map(|found| found.shorter);
    assert_eq!([shorter("stop"), shorter("length")], [Some(1), Some(0)]);
}

#[test]
fn replies_that_end_for_their_length_before_the_limit_are_noted() {
    let free = free();
    let cut = [
        reply(0, 20, "length"),
        reply(1, 64, "length"),
        reply(2, 20, "stop"),
    ];
    assert_eq!(
        notes(&cut, &free),
        [
            "1 of 3 replies ended for their length well before `max_tokens`: at 20.0 of 64.0 \
             tokens on average. The server has another limit, such as its context length."
        ]
    );
    // Servers may omit the last token, and use other words.
    assert_eq!(notes(&[reply(0, 63, "length")], &free), [] as [String; 0]);
    assert_eq!(notes(&[reply(0, 20, "MAX_TOKENS")], &free).len(), 1);
    let exact = exact();
    let both = notes(&cut[..1], &exact);
    assert_eq!(both.len(), 2, "{both:?}");
    assert!(both[0].ends_with("Their finish reasons are `length` (1)."));
}

#[test]
fn the_length_is_exact_by_the_count_that_the_limit_is_about() {
    let exact = exact();
    let hits = |rows: &[Outcome], case: &Case| {
        let (table, facts) = (table("a", rows), facts(case));
        let sample = crate::fixture::sample_case(&table, &facts);
        let hits = sample
            .requests
            .iter()
            .filter_map(|row| row.is_hit(Metric::LengthExact));
        hits.collect::<Vec<bool>>()
    };
    let counted = |approximate| Outcome {
        usage: Usage::default(),
        counted: Counted {
            prompt: Some(1),
            output: Some(64),
            approximate,
        },
        ..reply(3, 0, "length")
    };
    let rows = [
        reply(0, 64, "length"),
        reply(1, 63, "stop"),
        failed(2, FailureKind::Connect),
        counted(false),
        Outcome {
            seq: 4,
            ..counted(true)
        },
    ];
    assert_eq!(hits(&rows, &exact), [true, false, true]);
    assert_eq!(hits(&rows, &free()), [] as [bool; 0]);
    assert_eq!(hits(&rows, &at_least_16()), [] as [bool; 0]);
}

#[test]
fn replies_are_counted_by_their_finish_reason() {
    let rows = [
        reply(0, 4, "stop"),
        reply(1, 64, "length"),
        reply(2, 64, "length"),
        reply(3, 64, ""),
        failed(4, FailureKind::Connect),
    ];
    let counts: Vec<(String, u64)> = finish_reasons(&table("a", &rows), "a")
        .into_iter()
        .map(|count| (count.reason, count.count))
        .collect();
    let expected = [("length", 2), ("", 1), ("stop", 1)];
    assert_eq!(
        counts,
        expected.map(|(reason, count)| (reason.to_owned(), count))
    );
    assert_eq!(finish_reasons(&table("a", &rows[3..]), "a"), []);
}
