//! The source of token counts, and notes about token counts and gaps.

use crate::reply_account::{account, account_notes, ok_rows};
use crate::request_row::RequestRow;
use crate::round::{Round, rounds};
use crate::sending::sessions_of;
use crate::table::Table;
use crate::{CaseFacts, Sample, output_lengths};
use llmscen_core::load::{Shape, Warmup};
use llmscen_core::metric::Metric;
use llmscen_core::plan::Case;
use llmscen_core::report::{PromptLengths, TokenSource};
use llmscen_core::stats::quantile::select_quantile;

/// Relative difference of two counts above which a note is shown.
const MAX_DIFFERENCE: f64 = 0.02;
/// Share of token events in the same read as their predecessor above which a note is shown.
const MAX_SAME_READ: f64 = 0.01;
/// Share of U+FFFD among the characters above which a note is shown.
const MAX_REPLACED: f64 = 0.01;
/// Mean tokens per token event above which a note is shown.
const MAX_TOKENS_PER_EVENT: f64 = 1.05;

/// The source of a case's output token counts: the least reliable one among its ok requests. None without counts.
pub fn token_source(table: &Table, case: &str) -> Option<TokenSource> {
    least_reliable_source(&ok_rows(table, case))
}

/// Prompt lengths of a case as requested and as counted by the server. None where no ok request has both counts.
pub fn prompt_lengths(table: &Table, case: &str) -> Option<PromptLengths> {
    compare_prompt_lengths(&ok_rows(table, case))
}

fn compare_prompt_lengths(ok: &[RequestRow<'_>]) -> Option<PromptLengths> {
    let both: Vec<(u64, u64)> = ok
        .iter()
        .filter_map(|row| row.counted_prompt().zip(row.usage_prompt()))
        .collect();
    let n = both.len() as u64;
    let mean = |count: fn(&(u64, u64)) -> u64| {
        both.iter().map(|pair| count(pair) as f64).sum::<f64>() / n as f64
    };
    (n > 0).then(|| PromptLengths {
        n,
        requested_mean: mean(|pair| pair.0),
        reported_mean: mean(|pair| pair.1),
        approximate: ok.iter().any(|row| row.approximate()),
    })
}

/// Notes about the length, the token counts and the gaps of a case.
pub fn token_notes(table: &Table, facts: &CaseFacts<'_>) -> Vec<String> {
    let ok = ok_rows(table, &facts.case.id);
    let notes = [
        short_run(&ok, facts),
        first_turns(&ok, facts),
        unsent_turns(table, facts),
        counted_events(&ok),
        missing_prompt_counts(&ok),
        approximate_counts(&ok),
        differing_counts(&ok),
        replaced_characters(&ok),
        differing_prompt_lengths(&ok),
        batched_chunks(&ok),
        several_tokens_per_event(&ok),
        missing_choices(&ok, facts.case),
        output_lengths::short_replies(&ok, facts.case),
        output_lengths::cut_replies(&ok),
    ];
    let account = account_notes(&account(&ok));
    notes.into_iter().flatten().chain(account).collect()
}

/// Long requests by which a measured time is short, as a multiple of `e2e.p95`.
const SHORT_RUN: f64 = 10.0;

/// A note for an open loop, or for sessions, whose start and end are a large part of the run.
fn short_run(ok: &[RequestRow<'_>], facts: &CaseFacts<'_>) -> Option<String> {
    let shape = &facts.case.load.shape;
    let is_open = !shape.is_closed_loop() && *shape != Shape::Burst;
    let is_long = |_: &f64| is_open || facts.case.has_conversations();
    let mut latencies: Vec<f64> = ok
        .iter()
        .filter(|row| row.measured())
        .filter_map(|row| row.metric(Metric::E2e))
        .collect();
    let p95 = select_quantile(&mut latencies, 0.95).filter(is_long)?;
    let rounds = rounds(ok, facts);
    let seconds = rounds.iter().map(Round::length).sum::<f64>() / rounds.len() as f64;
    (seconds * 1e3 < SHORT_RUN * p95).then(|| {
        format!(
            "The measured time of a round, {seconds:.1} s, is less than {SHORT_RUN} × `e2e.p95` \
             ({:.1} s): the start and the end of the load affect all values. Measure for longer.",
            p95 / 1e3
        )
    })
}

/// A note for sessions that all begin at their first turn and are measured from it.
fn first_turns(ok: &[RequestRow<'_>], facts: &CaseFacts<'_>) -> Option<String> {
    let case = facts.case;
    let begins_within = |row: &RequestRow<'_>| row.first_turn() > 0;
    let has_start = case.has_conversations() && case.load.warmup == Warmup::Requests(0);
    let sessions = ok.iter().filter(|row| row.turns() > 1).count();
    (has_start && sessions > 0 && !ok.iter().any(begins_within)).then(|| {
        "All sessions begin at their first turn, so the first requests have short histories and \
         the last ones long histories. `dataset.turns.begin` lets them begin at different turns, \
         and `load.warmup` leaves the start out."
            .to_owned()
    })
}

/// A note for sessions of which some turns were not due before sending ended. Those turns are no rows.
fn unsent_turns(table: &Table, facts: &CaseFacts<'_>) -> Option<String> {
    let rows = table.rows_of_case(&facts.case.id);
    let (mut sessions, mut cut, mut unsent) = (0, 0, 0);
    for turns in rounds(&rows, facts).iter().flat_map(sessions_of) {
        let sent = turns.iter().filter(|row| row.measured()).count() as u64;
        let Some(first) = turns.first().filter(|first| sent > 0 && first.turns() > 1) else {
            continue;
        };
        let missing =
            u64::from(first.turns().saturating_sub(first.first_turn())).saturating_sub(sent);
        sessions += 1;
        cut += u64::from(missing > 0);
        unsent += missing;
    }
    (cut > 0).then(|| {
        format!(
            "Sending ended within {cut} of {sessions} sessions, before {unsent} of their turns \
             were due. Turns that were not due are not scheduled, and count for nothing."
        )
    })
}

fn least_reliable_source(ok: &[RequestRow<'_>]) -> Option<TokenSource> {
    // An empty text needs no tokenizer.
    let counted =
        |row: &&RequestRow<'_>| row.usage_output().is_some() || row.counted_output() != Some(0);
    let has = |source| {
        ok.iter()
            .filter(|row| counted(row))
            .any(|row| row.token_source() == Some(source))
    };
    [
        TokenSource::Events,
        TokenSource::Tokenizer,
        TokenSource::Usage,
    ]
    .into_iter()
    .find(|&source| has(source))
}

fn counted_events(ok: &[RequestRow<'_>]) -> Option<String> {
    let counted = ok
        .iter()
        .filter(|row| row.token_source() == Some(TokenSource::Events))
        .filter(|row| row.counted_output().is_none())
        .count();
    let which = if counted == ok.len() {
        "all".into()
    } else {
        format!("{counted} of {}", ok.len())
    };
    (counted > 0).then(|| {
        format!(
            "Output tokens of {which} responses are counted content events (`~`), a lower bound: \
             the server reported no usable usage, and there is no tokenizer. Set \
             `dataset.tokenizer`, or let the server report usage."
        )
    })
}

fn missing_prompt_counts(ok: &[RequestRow<'_>]) -> Option<String> {
    let missing = ok
        .iter()
        .filter(|row| row.prompt_tokens().is_none())
        .count();
    (missing > 0).then(|| {
        format!(
            "Prompt tokens of {missing} of {} responses are unknown: there is neither server usage nor a tokenizer.",
            ok.len()
        )
    })
}

fn approximate_counts(ok: &[RequestRow<'_>]) -> Option<String> {
    let used = |row: &&RequestRow<'_>| {
        let output = row.usage_output().is_none() && row.counted_output().is_some();
        let prompt = row.usage_prompt().is_none() && row.counted_prompt().is_some();
        row.approximate() && (output || prompt)
    };
    ok.iter().any(|row| used(&row)).then(|| {
        "Token counts are approximate (built-in tokenizer). Set `dataset.tokenizer` to \
        the model's tokenizer."
            .into()
    })
}

/// The local tokenizer counts other output tokens than the server.
fn differing_counts(ok: &[RequestRow<'_>]) -> Option<String> {
    let both = ok
        .iter()
        .filter_map(|row| row.metric(Metric::CountMismatch));
    let (n, sum) = both.fold((0u64, 0.0), |(n, sum), mismatch| (n + 1, sum + mismatch));
    let mean = sum / n.max(1) as f64;
    (mean > MAX_DIFFERENCE).then(|| {
        let percent = mean * 100.0;
        format!(
            "Server and local tokenizer differ by {percent:.1} % in the output tokens of a reply, \
             on average over {n} replies (`count_mismatch`). Server usage is used."
        )
    })
}

/// Bytes that are no text in the replies.
fn replaced_characters(ok: &[RequestRow<'_>]) -> Option<String> {
    let (mut replaced, mut all) = (0u64, 0u64);
    for row in ok {
        replaced = replaced.saturating_add(row.replacement_characters().unwrap_or(0));
        all = all.saturating_add(row.characters().unwrap_or(0));
    }
    let share = replaced as f64 / all.max(1) as f64;
    (share > MAX_REPLACED).then(|| {
        format!(
            "{:.1} % of the characters are U+FFFD, which replaces bytes that are no text: the \
             model or its detokenizer may be broken.",
            share * 100.0
        )
    })
}

/// The prompt lengths differ from those that the scenario requests.
fn differing_prompt_lengths(ok: &[RequestRow<'_>]) -> Option<String> {
    let lengths =
        compare_prompt_lengths(ok).filter(|lengths| lengths.difference().abs() > MAX_DIFFERENCE)?;
    let percent = lengths.difference().abs() * 100.0;
    let word = if lengths.difference() > 0.0 {
        "more"
    } else {
        "fewer"
    };
    let PromptLengths {
        requested_mean,
        reported_mean,
        ..
    } = lengths;
    let why = if lengths.approximate {
        "Lengths come from the built-in approximate tokenizer; set `dataset.tokenizer` to the model's tokenizer."
    } else {
        "The server uses another tokenizer or chat template than `dataset.tokenizer`."
    };
    Some(format!(
        "The server counted {reported_mean:.1} prompt tokens per request, {percent:.1} % {word} \
        than the {requested_mean:.1} requested. {why}"
    ))
}

fn batched_chunks(ok: &[RequestRow<'_>]) -> Option<String> {
    let mut zeros = 0;
    let mut all = 0;
    let paced = ok.iter().filter(|row| !row.arrived_at_once());
    for gaps in paced.map(RequestRow::gaps) {
        zeros += gaps.iter().filter(|&&gap| gap == 0.0).count();
        all += gaps.len();
    }
    let share = zeros as f64 / all.max(1) as f64;
    (share > MAX_SAME_READ).then(|| {
        format!(
            "{:.1} % of tokens arrived in the same read as the previous token (ITL 0 ms): the \
             server or a proxy batches chunks. Use `tpot` instead of `itl` for this run.",
            share * 100.0
        )
    })
}

/// Token events of several tokens: speculative decoding, or a server that batches its stream.
fn several_tokens_per_event(ok: &[RequestRow<'_>]) -> Option<String> {
    let known = ok
        .iter()
        .filter(|row| !row.events().is_empty() && !row.arrived_at_once())
        .filter_map(|row| Some((row.output_tokens()?, row.events())));
    let (tokens, events) = known.fold((0.0, 0.0), |sum, (tokens, events)| {
        (sum.0 + tokens as f64, sum.1 + events.len() as f64)
    });
    (tokens > MAX_TOKENS_PER_EVENT * events).then(|| {
        format!(
            "Token events contain {:.2} tokens on average, so `itl` is the gap between events and \
             not the time per token. Use `tpot`.",
            tokens / events
        )
    })
}

/// Streams with fewer choices than requested.
fn missing_choices(ok: &[RequestRow<'_>], case: &Case) -> Option<String> {
    let requested = case.request.choices()?;
    let streams = || ok.iter().filter(|row| !row.events().is_empty());
    let fewer = streams()
        .filter(|row| (row.choice_spans().len() as u64) < requested)
        .count();
    (fewer > 0).then(|| {
        format!(
            "{fewer} of {} streams contained fewer choices than the {requested} of `request.n`: \
            the server may ignore `n`.",
            streams().count()
        )
    })
}

/// Share of the run above which a drain has a note.
const MAX_DRAIN: f64 = 0.01;

/// Notes about what throughputs are over: the whole rounds, or a window without a long drain.
pub fn window_notes(sample: &Sample) -> Vec<String> {
    let drain = sample.requests_window.drain;
    let share = drain / sample.windows.iter().sum::<f64>();
    let of_requests = match sample.requests_window.whole {
        Some(whole) => Some(format!("Throughputs are over {whole}.")),
        None => (share > MAX_DRAIN).then(|| {
            format!(
                "The drain took {drain:.3} s after sending stopped, {:.1} % of the run. \
                 Throughputs exclude it; the metrics `…_with_drain` include it.",
                share * 100.0
            )
        }),
    };
    let has_sessions = sample.scalars.contains_key(&Metric::SessionThroughput);
    let whole = sample.sessions_window.whole.filter(|_| has_sessions);
    let of_sessions = whole.map(|whole| format!("Sessions per hour are over {whole}."));
    of_requests.into_iter().chain(of_sessions).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{case, facts, outcome, stream, table};
    use llmscen_core::dataset::Turns;
    use llmscen_core::load::Arrival;
    use llmscen_core::outcome::{Counted, Outcome, Usage};

    fn noted(rows: &[Outcome]) -> Vec<String> {
        token_notes(&table("a", rows), &facts(&case(Shape::Burst)))
    }

    fn counted(outcome: Outcome, prompt: u64, output: u64, approximate: bool) -> Outcome {
        Outcome {
            counted: Counted {
                prompt: Some(prompt),
                output: Some(output),
                approximate,
            },
            ..outcome
        }
    }

    #[test]
    fn consistent_counts_need_no_note() {
        assert_eq!(
            noted(&[stream(0, 0, &[10, 20]), outcome(1)]),
            [] as [String; 0]
        );
        assert_eq!(
            noted(&[counted(outcome(0), 10, 4, false)]),
            [] as [String; 0]
        );
    }

    #[test]
    fn a_short_run_and_equal_starts_are_noted() {
        let of = |last: u64, shape: Shape, sessions: bool| {
            let rows: Vec<Outcome> = (0..2)
                .map(|seq| Outcome {
                    turns: 2,
                    ..stream(seq, seq * last, &[seq * last + 10, seq * last + 100])
                })
                .collect();
            let mut case = case(shape);
            case.dataset.turns = sessions.then(Turns::default);
            let table = table("a", &rows);
            let ok = ok_rows(&table, "a");
            let facts = facts(&case);
            (
                short_run(&ok, &facts).is_some(),
                first_turns(&ok, &facts).is_some(),
            )
        };
        let open = Shape::Open {
            rate: 1.0,
            arrival: Arrival::Constant,
        };
        let closed = Shape::Closed { users: 1 };
        assert_eq!(of(899, open.clone(), false), (true, false));
        assert_eq!(of(900, open, false), (false, false));
        assert_eq!(of(899, closed.clone(), true), (true, true));
        assert_eq!(of(100, closed, false), (false, false));
        assert_eq!(of(100, Shape::Burst, false), (false, false));
    }

    #[test]
    fn the_least_reliable_source_counts() {
        let bare = Outcome {
            usage: Usage::default(),
            ..stream(1, 0, &[10, 20])
        };
        let source = |rows: &[Outcome]| token_source(&table("a", rows), "a");
        // Two events, in whose text the tokenizer finds one token.
        let notes = noted(&[counted(bare.clone(), 10, 1, false)]);
        assert_eq!(
            notes,
            [
                "In 1 of 1 replies the text has fewer tokens than token events arrived, such as \
                blank text. The events count."
            ]
        );
        assert_eq!(source(&[outcome(0)]), Some(TokenSource::Usage));
        assert_eq!(
            source(&[outcome(0), counted(bare.clone(), 1, 2, false)]),
            Some(TokenSource::Tokenizer)
        );
        assert_eq!(
            source(&[outcome(0), bare.clone()]),
            Some(TokenSource::Events)
        );
        assert_eq!(source(&[]), None);
        let notes = noted(&[outcome(0), bare]);
        assert!(
            notes[0]
                .starts_with("Output tokens of 1 of 2 responses are counted content events (`~`)"),
            "{notes:?}"
        );
        assert!(
            notes[1].starts_with("Prompt tokens of 1 of 2 responses are unknown"),
            "{notes:?}"
        );
    }

    #[test]
    fn other_counts_of_the_server_are_reported_but_not_those_of_output_by_a_stand_in() {
        let rows = [
            counted(outcome(0), 12, 4, false),
            counted(outcome(1), 10, 4, false),
        ];
        let known = "The server counted 10.0 prompt tokens per request, 9.1 % fewer than the 11.0 requested. \
                     The server uses another tokenizer or chat template than `dataset.tokenizer`.";
        assert_eq!(noted(&rows), [known]);
        let lengths = prompt_lengths(&table("a", &rows), "a").unwrap();
        assert_eq!(
            (
                lengths.n,
                lengths.requested_mean,
                lengths.reported_mean,
                lengths.approximate
            ),
            (2, 11.0, 10.0, false)
        );
        assert!(
            noted(&[counted(outcome(0), 12, 9, true)])[0]
                .ends_with("set `dataset.tokenizer` to the model's tokenizer.")
        );
        assert_eq!(
            noted(&[counted(outcome(0), 10, 9, true)]),
            [] as [String; 0],
            "2 % and less are no news"
        );
        assert_eq!(
            noted(&[counted(outcome(0), 10, 5, false)])[0]
                .split(" in ")
                .next(),
            Some("Server and local tokenizer differ by 20.0 %")
        );
        let guessed = Outcome {
            usage: Usage::default(),
            ..counted(outcome(0), 12, 4, true)
        };
        assert!(noted(&[guessed])[0].starts_with("Token counts are approximate"));
    }

    #[test]
    fn a_reply_without_content_needs_no_tokenizer_and_disagrees_with_none() {
        let silent = counted(outcome(1), 10, 0, false);
        let bare = Outcome {
            usage: Usage {
                output: None,
                ..outcome(1).usage
            },
            ..silent.clone()
        };
        assert_eq!(
            token_source(&table("a", &[outcome(0), bare.clone()]), "a"),
            Some(TokenSource::Usage)
        );
        assert_eq!(noted(&[outcome(0), silent, bare]), [] as [String; 0]);
    }

    #[test]
    fn batched_chunks_are_noted() {
        assert!(
            noted(&[stream(0, 0, &[10, 10, 20, 30, 40])])[0]
                .starts_with("25.0 % of tokens arrived in the same read")
        );
    }

    #[test]
    fn events_of_several_tokens_are_noted_from_five_percent_on() {
        let of = |tokens| {
            let mut row = stream(0, 0, &(1..=100).map(|event| event * 10).collect::<Vec<_>>());
            row.usage.output = Some(tokens);
            noted(&[row])
        };
        assert_eq!(of(105), [] as [String; 0]);
        let known = "Token events contain 1.06 tokens on average, so `itl` is the gap between \
                     events and not the time per token. Use `tpot`.";
        assert_eq!(of(106), [known]);
    }

    #[test]
    fn fewer_choices_than_asked_for_are_noted() {
        let mut asked = case(Shape::Burst);
        asked.request.sampling.insert("n".into(), 3.into());
        let mut both = stream(0, 0, &[10, 20, 30]);
        both.timeline.choices = vec![0, 1, 2];
        let seen = |rows: &[Outcome]| token_notes(&table("a", rows), &facts(&asked));
        assert_eq!(seen(std::slice::from_ref(&both)), [] as [String; 0]);
        let known = "1 of 2 streams contained fewer choices than the 3 of `request.n`: the server may ignore `n`.";
        assert_eq!(seen(&[both, stream(1, 0, &[10, 20])]), [known]);
    }
}
