//! What a reader must know of replies that succeeded without what was asked for.

use llmscen_client::counters::Absurd;
use llmscen_core::outcome::{Outcome, Phase};
use std::collections::BTreeMap;

/// The note about replies that were not streamed although a stream was asked for.
pub const IGNORED: &str = "the server ignored stream: true; TTFT, ITL and TPOT are unavailable";

/// Replies that succeeded, of one round or of several.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Replies {
    /// Those that were streamed.
    streamed: u64,
    /// Those that were not, although a stream was asked for.
    pub unstreamed: u64,
    /// Measured ones without content, by their finish reason.
    silent: BTreeMap<String, u64>,
}

impl Replies {
    /// Counts a request that is over.
    pub fn count(&mut self, outcome: &Outcome) {
        let Ok(finish) = &outcome.end else { return };
        self.streamed += u64::from(outcome.streamed);
        if outcome.phase == Phase::Measured && is_silent(outcome) {
            *self.silent.entry(finish.reason.clone()).or_default() += 1;
        }
    }

    /// Adds those of another round.
    pub fn add(&mut self, other: &Replies) {
        self.streamed += other.streamed;
        self.unstreamed += other.unstreamed;
        other.silent.iter().for_each(|(reason, count)| *self.silent.entry(reason.clone()).or_default() += count);
    }

    /// What a reader must know of them.
    pub fn notes(&self) -> Vec<String> {
        let without = self.silent.iter().map(|(reason, count)| {
            let replies = if *count == 1 { "1 reply".to_owned() } else { format!("{count} replies") };
            format!("{replies} had no content (finish reason: {reason})")
        });
        ignored(self.unstreamed, self.streamed).into_iter().chain(without).collect()
    }
}

/// The notes about counts of servers that cannot be true, one for each case.
pub fn absurd(cases: &BTreeMap<String, Absurd>) -> Vec<String> {
    let note = |(case, Absurd { replies, example }): (&String, &Absurd)| {
        let replies = if *replies == 1 { "1 reply".to_owned() } else { format!("{replies} replies") };
        format!("case `{case}`: {example}. Impossible counts or times in {replies} are not used.")
    };
    cases.iter().map(note).collect()
}

/// Whether the reply had no content: what is not streamed has no token events, but a count of its text.
fn is_silent(outcome: &Outcome) -> bool {
    let empty = outcome.streamed || outcome.counted.output == Some(0);
    outcome.timeline.tokens.is_empty() && empty
}

fn ignored(unstreamed: u64, streamed: u64) -> Option<String> {
    match (unstreamed, streamed) {
        (0, _) => None,
        (_, 0) => Some(IGNORED.to_owned()),
        (some, _) => Some(format!(
            "the server ignored stream: true in {some} of {} replies; TTFT, ITL and TPOT are unavailable for these",
            some + streamed
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use llmscen_core::call::Call;
    use llmscen_core::outcome::{Counted, Failure, FailureKind, Finish};
    use llmscen_core::units::Nanos;

    fn reply(streamed: bool, tokens: usize, reason: &str) -> Outcome {
        let end = Ok(Finish { reason: reason.into() });
        let mut outcome = Outcome { streamed, end, ..Call::default().outcome(Phase::Measured) };
        outcome.timeline.tokens = vec![Nanos(1); tokens];
        outcome
    }

    fn rows(outcomes: Vec<Outcome>) -> Replies {
        let mut rounds = [Replies::default(), Replies::default()];
        outcomes.iter().enumerate().for_each(|(place, outcome)| rounds[place % 2].count(outcome));
        let [mut one, other] = rounds;
        one.add(&other);
        one
    }

    fn notes(replies: &Replies, unstreamed: u64) -> Vec<String> {
        Replies { unstreamed, ..replies.clone() }.notes()
    }

    #[test]
    fn replies_without_content_are_counted_over_all_cases_by_their_reason() {
        let whole = Outcome { counted: Counted { output: Some(0), ..Counted::default() }, ..reply(false, 0, "stop") };
        let warm = Outcome { phase: Phase::Warmup, ..reply(true, 0, "stop") };
        let end = Err(Failure::new(FailureKind::Empty, ""));
        let failed = Outcome { end, ..reply(true, 0, "") };
        let all = vec![
            reply(true, 0, "stop"),
            reply(true, 0, "stop"),
            whole,
            reply(true, 0, "length"),
            reply(true, 1, "stop"),
            reply(false, 0, "stop"),
            warm,
            failed,
        ];
        assert_eq!(
            notes(&rows(all), 0),
            ["1 reply had no content (finish reason: length)", "3 replies had no content (finish reason: stop)"]
        );
        assert_eq!(notes(&rows(vec![reply(true, 1, "stop")]), 0), [""; 0]);
    }

    #[test]
    fn impossible_counts_are_noted_once_for_each_case() {
        let of = |replies, example: &str| Some(Absurd { replies, example: example.to_owned() });
        let joined = Absurd::joined(Absurd::joined(None, of(1, "one")), of(2, "two"));
        let cases = [("a".to_owned(), joined.unwrap()), ("b".to_owned(), of(1, "three").unwrap())];
        assert_eq!(
            absurd(&cases.into()),
            [
                "case `a`: one. Impossible counts or times in 3 replies are not used.",
                "case `b`: three. Impossible counts or times in 1 reply are not used."
            ]
        );
    }

    #[test]
    fn a_stream_that_was_ignored_is_noted_once() {
        let whole = || rows(vec![reply(false, 0, "stop"), reply(false, 0, "stop")]);
        assert_eq!(notes(&whole(), 2), ["the server ignored stream: true; TTFT, ITL and TPOT are unavailable"]);
        let mixed = rows(vec![reply(false, 0, "stop"), reply(true, 3, "stop"), reply(true, 3, "stop")]);
        let told = "the server ignored stream: true in 1 of 3 replies; TTFT, ITL and TPOT are unavailable for these";
        assert_eq!(notes(&mixed, 1), [told]);
        assert_eq!(notes(&whole(), 0), [""; 0], "no stream was asked for");
    }
}
