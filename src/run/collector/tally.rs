//! What the requests of a round come to, as far as the run itself needs it: the requests themselves are in the journal.

use crate::run::worker::target_health::FailFast;
use llmscen_client::counters::Absurd;
use llmscen_core::outcome::{FailureKind, Outcome, Phase};
use llmscen_core::units::Nanos;
use std::collections::BTreeMap;

/// A running count over the requests of one round, in the order of their ends.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// The first requests of sessions that are over: twice their number, and one more where it was sent.
    begun: Vec<u64>,
    /// When the first measured request was due.
    pub measured_from: Option<Nanos>,
    /// The first token of the round, and when its request was sent.
    first_answer: Option<(Nanos, Nanos)>,
    /// Whether a request was answered with 404.
    pub not_found: bool,
    /// Whether a request was answered at all.
    answered: bool,
    /// The highest-numbered request that found no server, and why.
    unreached: Option<((u64, u32), String)>,
    /// Replies that lack what was asked for.
    pub replies: Replies,
    /// The watch over the first requests of the case.
    pub fail_fast: FailFast,
}

impl Tally {
    /// Begins a round of a case of whose earlier requests this is known.
    pub fn after(fail_fast: FailFast) -> Tally {
        Tally { fail_fast, ..Tally::default() }
    }

    /// Counts a request that is over.
    pub fn count(&mut self, outcome: &Outcome) {
        let line = &outcome.timeline;
        if outcome.turn == 0 {
            self.begun.push(outcome.seq << 1 | u64::from(line.sent.is_some()));
        }
        if outcome.phase == Phase::Measured {
            self.measured_from = Some(self.measured_from.map_or(line.intended, |first| first.min(line.intended)));
        }
        if let Some(answer) = line.tokens.first().copied().zip(line.sent) {
            self.first_answer = Some(self.first_answer.map_or(answer, |first| first.min(answer)));
        }
        self.not_found |= outcome.status == Some(404);
        self.answered |= outcome.status.is_some();
        let place = (outcome.seq, outcome.turn);
        let unreached = [FailureKind::Connect, FailureKind::Tls, FailureKind::TimeoutConnect];
        if let Some(failure) = outcome.end.as_ref().err().filter(|failure| unreached.contains(&failure.kind))
            && !self.answered
            && self.unreached.as_ref().is_none_or(|(last, _)| *last < place)
        {
            self.unreached = Some((place, failure.message.clone()));
        }
        self.replies.count(outcome);
        self.fail_fast.see(outcome);
    }

    /// The sessions that began, by number, and whether they were sent.
    pub fn begun(&self) -> Vec<(u64, bool)> {
        let mut begun: Vec<(u64, bool)> = self.begun.iter().map(|own| (own >> 1, own & 1 == 1)).collect();
        begun.sort_unstable();
        begun
    }

    /// From sending to first token, of the request that was answered first: what this program did between two requests is not
    /// part of it.
    pub fn first_answer(&self) -> Option<Nanos> {
        self.first_answer.map(|(token, sent)| token.since(sent))
    }

    /// Why not one request got any answer; None where one did, or none was sent.
    pub fn unanswered(&self) -> Option<String> {
        self.unreached.as_ref().filter(|_| !self.answered).map(|(_, why)| why.clone())
    }
}

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
    use llmscen_client::http::dropped;
    use llmscen_core::call::Call;
    use llmscen_core::outcome::{Counted, Failure, FailureKind, Finish};
    use llmscen_core::units::Nanos;

    fn ended(seq: u64, turn: u32, status: Option<u16>, kind: FailureKind) -> Outcome {
        let call = Call { seq, turn, ..Call::default() };
        let mut outcome = dropped(&call, Phase::Measured, Nanos(100 + seq), "");
        outcome.timeline.intended = Nanos(100 - seq);
        (outcome.status, outcome.end) = (status, Err(Failure::new(kind, format!("refused {seq}"))));
        outcome
    }

    #[test]
    fn what_a_round_comes_to_does_not_depend_on_the_order_of_the_ends() {
        let refused = |seq| ended(seq, 0, None, FailureKind::Connect);
        let mut sent = ended(3, 0, None, FailureKind::Truncated);
        (sent.timeline.sent, sent.timeline.tokens) = (Some(Nanos(200)), vec![Nanos(250), Nanos(260)]);
        let mut all = [refused(5), sent, refused(4), ended(4, 1, None, FailureKind::Dropped)];
        for _ in 0..2 {
            let mut tally = Tally::default();
            all.iter().for_each(|outcome| tally.count(outcome));
            assert_eq!(tally.begun(), [(3, true), (4, false), (5, false)]);
            assert_eq!((tally.measured_from, tally.first_answer()), (Some(Nanos(95)), Some(Nanos(50))));
            assert_eq!((tally.unanswered().as_deref(), tally.not_found), (Some("refused 5"), false));
            all.reverse();
        }
        let mut answered = Tally::default();
        [refused(1), ended(2, 0, Some(404), FailureKind::Http4xx)].iter().for_each(|outcome| answered.count(outcome));
        assert_eq!((answered.unanswered(), answered.not_found), (None, true));
    }

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
