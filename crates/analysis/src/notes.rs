//! Where token counts come from, and what a reader must know about them and about the gaps.

use crate::CaseFacts;
use crate::request_row::RequestRow;
use crate::sending;
use crate::table::Table;
use llmscen_core::plan::Case;
use llmscen_core::report::{PromptLengths, TokenSource};

/// Disagreement of two counts from which on it is said.
const DISAGREEMENT: f64 = 0.02;
/// Share of token events that came together with the one before them from which on it is said.
const TOGETHER: f64 = 0.01;
/// Mean tokens of a token event from which on it is said.
const SEVERAL: f64 = 1.05;

/// The source of a case's output token counts: the weakest among its ok requests. None without one, or without counts.
pub fn token_source(table: &Table, case: &str) -> Option<TokenSource> {
    weakest(&succeeded(table, case))
}

/// Prompt lengths of a case as requested and as counted by the server. None where no ok request has both counts.
pub fn prompt_lengths(table: &Table, case: &str) -> Option<PromptLengths> {
    lengths(&succeeded(table, case))
}

fn lengths(ok: &[RequestRow<'_>]) -> Option<PromptLengths> {
    let both: Vec<(u64, u64)> = ok.iter().filter_map(|row| row.counted_prompt().zip(row.usage_prompt())).collect();
    let n = both.len() as u64;
    let mean = |of: fn(&(u64, u64)) -> u64| both.iter().map(|pair| of(pair) as f64).sum::<f64>() / n as f64;
    (n > 0).then(|| PromptLengths {
        n,
        requested_mean: mean(|pair| pair.0),
        reported_mean: mean(|pair| pair.1),
        approximate: ok.iter().any(|row| row.approximate()),
    })
}

/// What must be said about the counts and gaps of a case, a sentence each.
pub fn notes(table: &Table, facts: &CaseFacts<'_>) -> Vec<String> {
    let ok = succeeded(table, &facts.case.id);
    let drain = sending::drain(table, facts);
    let counts = [lower_bound(&ok), no_prompt_counts(&ok), approximate(&ok), disagreement(&ok), other_lengths(&ok)];
    let events = [together(&ok), several(&ok), fewer_choices(&ok, facts.case)];
    drain.into_iter().chain(counts.into_iter().chain(events).flatten()).collect()
}

fn succeeded<'a>(table: &'a Table, case: &str) -> Vec<RequestRow<'a>> {
    table.rows_of_case(case).into_iter().filter(|row| row.measured() && row.ok()).collect()
}

fn weakest(ok: &[RequestRow<'_>]) -> Option<TokenSource> {
    // That a text is empty is known without a tokenizer.
    let counted = |row: &&RequestRow<'_>| row.usage_output().is_some() || row.counted_output() != Some(0);
    let has = |source| ok.iter().filter(|row| counted(row)).any(|row| row.token_source() == Some(source));
    [TokenSource::Events, TokenSource::Tokenizer, TokenSource::Usage].into_iter().find(|&source| has(source))
}

fn lower_bound(ok: &[RequestRow<'_>]) -> Option<String> {
    let counted = ok.iter().filter(|row| row.token_source() == Some(TokenSource::Events)).count();
    let whose = if counted == ok.len() { "all".into() } else { format!("{counted} of {}", ok.len()) };
    (counted > 0).then(|| {
        format!(
            "Output tokens of {whose} responses are content events counted (`~`), a lower bound: the server reported no usage \
             that could be used, and no tokenizer counted. Set `dataset.tokenizer`, or have the server report usage."
        )
    })
}

fn no_prompt_counts(ok: &[RequestRow<'_>]) -> Option<String> {
    let missing = ok.iter().filter(|row| row.prompt_tokens().is_none()).count();
    (missing > 0).then(|| {
        format!("Prompt tokens of {missing} of {} responses are unknown: neither usage nor a tokenizer gave them.", ok.len())
    })
}

fn approximate(ok: &[RequestRow<'_>]) -> Option<String> {
    let used = |row: &&RequestRow<'_>| {
        let output = row.usage_output().is_none() && row.counted_output().is_some();
        let prompt = row.usage_prompt().is_none() && row.counted_prompt().is_some();
        row.approximate() && (output || prompt)
    };
    let stand_in = ok.iter().any(|row| used(&row));
    stand_in.then(|| {
        "Token counts are approximate: the built-in tokenizer made them. Set `dataset.tokenizer` to the model's tokenizer.".into()
    })
}

/// A tokenizer of this side that counts the output otherwise than the server.
fn disagreement(ok: &[RequestRow<'_>]) -> Option<String> {
    let both = ok
        .iter()
        .filter(|row| !row.approximate())
        .filter_map(|row| row.usage_output().zip(row.counted_output().filter(|n| *n > 0)));
    let (usage, counted) =
        both.fold((0u64, 0u64), |sum, (usage, counted)| (sum.0.saturating_add(usage), sum.1.saturating_add(counted)));
    let off = (usage as f64 - counted as f64).abs() / usage.max(1) as f64;
    (off > DISAGREEMENT).then(|| {
        let percent = off * 100.0;
        format!(
            "Usage and tokenizer differ by {percent:.1} % on output tokens: {usage} reported, {counted} counted. Usage is used."
        )
    })
}

/// Prompts of another length than was asked for: the load was not the one that the scenario names.
fn other_lengths(ok: &[RequestRow<'_>]) -> Option<String> {
    let lengths = lengths(ok).filter(|lengths| lengths.difference().abs() > DISAGREEMENT)?;
    let (percent, word) = (lengths.difference().abs() * 100.0, if lengths.difference() > 0.0 { "more" } else { "fewer" });
    let PromptLengths { requested_mean, reported_mean, .. } = lengths;
    let why = if lengths.approximate {
        "Lengths come from the built-in approximate tokenizer; set `dataset.tokenizer` to the model's own."
    } else {
        "The server uses another tokenizer or chat template than `dataset.tokenizer`."
    };
    Some(format!(
        "The server counted {reported_mean:.1} prompt tokens per request, {percent:.1} % {word} than the {requested_mean:.1} requested. {why}"
    ))
}

fn together(ok: &[RequestRow<'_>]) -> Option<String> {
    let (same, followers) = ok
        .iter()
        .map(RequestRow::gaps)
        .fold((0, 0), |(same, all), gaps| (same + gaps.iter().filter(|&&gap| gap == 0.0).count(), all + gaps.len()));
    let share = same as f64 / followers.max(1) as f64;
    (share > TOGETHER).then(|| {
        format!(
            "{:.1} % of token events arrived in one socket read with the event before them, as gaps of 0 ms: something between \
             the model and this client merges chunks, so judge the pace by `tpot` and not by `itl`.",
            share * 100.0
        )
    })
}

/// Events of several tokens: with speculative decoding, or where a server batches what it streams.
fn several(ok: &[RequestRow<'_>]) -> Option<String> {
    let known = ok.iter().filter(|row| !row.events().is_empty()).filter_map(|row| Some((row.output_tokens()?, row.events())));
    let (tokens, events) = known.fold((0.0, 0.0), |sum, (tokens, events)| (sum.0 + tokens as f64, sum.1 + events.len() as f64));
    (tokens > SEVERAL * events).then(|| {
        format!(
            "Token events carried {:.2} tokens on average, so `itl` is the gap between events and not the server's time per \
             token: use `tpot`.",
            tokens / events
        )
    })
}

/// Streams with content of fewer choices than were asked for.
fn fewer_choices(ok: &[RequestRow<'_>], case: &Case) -> Option<String> {
    let asked = case.request.extra.get("n").or(case.request.sampling.get("n"))?.as_u64()?;
    let streams = || ok.iter().filter(|row| !row.events().is_empty());
    let fewer = streams().filter(|row| (row.choice_spans().len() as u64) < asked).count();
    (fewer > 0).then(|| {
        format!(
            "{fewer} of {} streams brought content of fewer choices than the {asked} that `request.n` asks for: the server may \
             ignore `n`.",
            streams().count()
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{case, facts, outcome, stream, table};
    use llmscen_core::load::Shape;
    use llmscen_core::outcome::{Counted, Outcome, Usage};

    fn said(rows: &[Outcome]) -> Vec<String> {
        notes(&table("a", rows), &facts(&case(Shape::Burst)))
    }

    fn counted(outcome: Outcome, prompt: u64, output: u64, approximate: bool) -> Outcome {
        Outcome { counted: Counted { prompt: Some(prompt), output: Some(output), approximate }, ..outcome }
    }

    #[test]
    fn counts_in_order_need_no_word() {
        assert_eq!(said(&[stream(0, 0, &[10, 20]), outcome(1)]), [] as [String; 0]);
        assert_eq!(said(&[counted(outcome(0), 10, 4, false)]), [] as [String; 0]);
    }

    #[test]
    fn the_weakest_source_names_the_case() {
        let bare = Outcome { usage: Usage::default(), ..stream(1, 0, &[10, 20]) };
        let source = |rows: &[Outcome]| token_source(&table("a", rows), "a");
        assert_eq!(source(&[outcome(0)]), Some(TokenSource::Usage));
        assert_eq!(source(&[outcome(0), counted(bare.clone(), 1, 1, false)]), Some(TokenSource::Tokenizer));
        assert_eq!(source(&[outcome(0), bare.clone()]), Some(TokenSource::Events));
        assert_eq!(source(&[]), None);
        let notes = said(&[outcome(0), bare]);
        assert!(notes[0].starts_with("Output tokens of 1 of 2 responses are content events counted (`~`)"), "{notes:?}");
        assert!(notes[1].starts_with("Prompt tokens of 1 of 2 responses are unknown"), "{notes:?}");
    }

    #[test]
    fn other_counts_of_the_server_are_reported_but_not_those_of_output_by_a_stand_in() {
        let rows = [counted(outcome(0), 12, 4, false), counted(outcome(1), 10, 4, false)];
        let known = "The server counted 10.0 prompt tokens per request, 9.1 % fewer than the 11.0 requested. \
                     The server uses another tokenizer or chat template than `dataset.tokenizer`.";
        assert_eq!(said(&rows), [known]);
        let lengths = prompt_lengths(&table("a", &rows), "a").unwrap();
        assert_eq!((lengths.n, lengths.requested_mean, lengths.reported_mean, lengths.approximate), (2, 11.0, 10.0, false));
        assert!(said(&[counted(outcome(0), 12, 9, true)])[0].ends_with("set `dataset.tokenizer` to the model's own."));
        assert_eq!(said(&[counted(outcome(0), 10, 9, true)]), [] as [String; 0], "2 % and less are no news");
        assert_eq!(
            said(&[counted(outcome(0), 10, 5, false)])[0].split(':').next(),
            Some("Usage and tokenizer differ by 25.0 % on output tokens")
        );
        let guessed = Outcome { usage: Usage::default(), ..counted(outcome(0), 12, 4, true) };
        assert!(said(&[guessed])[0].starts_with("Token counts are approximate"));
    }

    #[test]
    fn a_reply_without_content_needs_no_tokenizer_and_disagrees_with_none() {
        let silent = counted(outcome(1), 10, 0, false);
        let bare = Outcome { usage: Usage { output: None, ..outcome(1).usage }, ..silent.clone() };
        assert_eq!(token_source(&table("a", &[outcome(0), bare.clone()]), "a"), Some(TokenSource::Usage));
        assert_eq!(said(&[outcome(0), silent, bare]), [] as [String; 0]);
    }

    #[test]
    fn merged_chunks_are_seen() {
        assert!(said(&[stream(0, 0, &[10, 10, 20, 30, 40])])[0].starts_with("25.0 % of token events arrived in one socket read"));
    }

    #[test]
    fn events_of_several_tokens_are_noted_from_five_percent_on() {
        let of = |tokens| {
            let mut row = stream(0, 0, &(1..=100).map(|event| event * 10).collect::<Vec<_>>());
            row.usage.output = Some(tokens);
            said(&[row])
        };
        assert_eq!(of(105), [] as [String; 0]);
        let known = "Token events carried 1.06 tokens on average, so `itl` is the gap between events and not the server's time \
                     per token: use `tpot`.";
        assert_eq!(of(106), [known]);
    }

    #[test]
    fn fewer_choices_than_asked_for_are_noted() {
        let mut asked = case(Shape::Burst);
        asked.request.sampling.insert("n".into(), 3.into());
        let mut both = stream(0, 0, &[10, 20, 30]);
        both.timeline.choices = vec![0, 1, 2];
        let seen = |rows: &[Outcome]| notes(&table("a", rows), &facts(&asked));
        assert_eq!(seen(std::slice::from_ref(&both)), [] as [String; 0]);
        let known =
            "1 of 2 streams brought content of fewer choices than the 3 that `request.n` asks for: the server may ignore `n`.";
        assert_eq!(seen(&[both, stream(1, 0, &[10, 20])]), [known]);
    }
}
