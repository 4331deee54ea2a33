//! Counts over the requests of a round that the run itself needs. The requests are in the journal.

use crate::run::fail_fast::FailFast;
use llmscen_core::outcome::{FailureKind, Outcome, Phase};
use llmscen_core::units::Nanos;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Counts over the requests of one round.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// First requests of sessions: twice the number of the session, plus one if it was sent.
    begun: Vec<u64>,
    /// Number of the last request or session of the cool-down.
    pub last_cooldown: Option<u64>,
    /// Scheduled send time of the first measured request.
    pub measured_from: Option<Nanos>,
    /// Time of the first token of the round, and send time of its request.
    first_answer: Option<(Nanos, Nanos)>,
    /// Whether a response had status 404.
    pub not_found: bool,
    /// Whether there was any response.
    pub answered: bool,
    /// The highest-numbered request that did not reach the server, and why.
    unreached: Option<((u64, u32), String)>,
    /// Replies without stream or without content.
    pub replies: Replies,
    /// The fail-fast check of the case.
    pub fail_fast: FailFast,
}

impl Tally {
    /// `fail_fast`: the state of the check after the earlier rounds of the case.
    pub fn new(fail_fast: FailFast) -> Tally {
        Tally {
            fail_fast,
            ..Tally::default()
        }
    }

    /// Counts a finished request.
    pub fn count(&mut self, outcome: &Outcome) {
        let timeline = &outcome.timeline;
        if outcome.phase == Phase::Cooldown {
            self.last_cooldown = self.last_cooldown.max(Some(outcome.seq));
        } else if outcome.begins_session() {
            self.begun
                .push(outcome.seq << 1 | u64::from(timeline.sent.is_some()));
        }
        if outcome.phase == Phase::Measured {
            self.measured_from = Some(
                self.measured_from
                    .map_or(timeline.intended, |first| first.min(timeline.intended)),
            );
        }
        if let Some(answer) = timeline.tokens.first().copied().zip(timeline.sent) {
            self.first_answer = Some(self.first_answer.map_or(answer, |first| first.min(answer)));
        }
        self.not_found |= outcome.status == Some(404);
        self.answered |= outcome.status.is_some();
        let position = (outcome.seq, outcome.turn);
        let connect_kinds = [
            FailureKind::Connect,
            FailureKind::Tls,
            FailureKind::TimeoutConnect,
        ];
        if let Some(failure) = outcome
            .end
            .as_ref()
            .err()
            .filter(|failure| connect_kinds.contains(&failure.kind))
            && !self.answered
            && self
                .unreached
                .as_ref()
                .is_none_or(|(last, _)| *last < position)
        {
            self.unreached = Some((position, failure.message.clone()));
        }
        self.replies.count(outcome);
        self.fail_fast.record(outcome);
    }

    /// The sessions that started before the cool-down: number of each, and whether it was sent.
    pub fn begun(&self) -> Vec<(u64, bool)> {
        let mut begun: Vec<(u64, bool)> = self
            .begun
            .iter()
            .map(|session| (session >> 1, session & 1 == 1))
            .collect();
        begun.sort_unstable();
        begun
    }

    /// Number of sessions that were sent.
    pub fn sent(&self) -> u64 {
        self.begun
            .iter()
            .filter(|session| *session & 1 == 1)
            .count() as u64
    }

    /// Time from send to first token of the request with the first response.
    pub fn first_answer(&self) -> Option<Nanos> {
        self.first_answer.map(|(token, sent)| token.since(sent))
    }

    /// Adds what another shard found. `answered`: whether it got any response.
    pub fn add_shard(&mut self, replies: &Replies, not_found: bool, answered: bool) {
        self.replies.add(replies);
        self.not_found |= not_found;
        self.answered |= answered;
    }

    /// Why no request got a response; None if one did, or none was sent.
    pub fn unanswered(&self) -> Option<String> {
        self.unreached
            .as_ref()
            .filter(|_| !self.answered)
            .map(|(_, why)| why.clone())
    }
}

/// The note on replies that were not streamed although the request asked for a stream.
pub const STREAM_IGNORED: &str =
    "the server ignored stream: true; TTFT, ITL and TPOT are unavailable";

/// Successful replies of one round or of several.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Replies {
    /// Streamed replies.
    streamed: u64,
    /// Replies that were not streamed although the request asked for a stream.
    pub unstreamed: u64,
    /// Measured replies without content, by finish reason.
    empty: BTreeMap<String, u64>,
}

impl Replies {
    /// Counts a finished request.
    pub fn count(&mut self, outcome: &Outcome) {
        let Ok(finish) = &outcome.end else { return };
        self.streamed += u64::from(outcome.streamed);
        if outcome.phase == Phase::Measured && is_empty(outcome) {
            *self.empty.entry(finish.reason.clone()).or_default() += 1;
        }
    }

    /// Adds the replies of another round.
    pub fn add(&mut self, other: &Replies) {
        self.streamed += other.streamed;
        self.unstreamed += other.unstreamed;
        other
            .empty
            .iter()
            .for_each(|(reason, count)| *self.empty.entry(reason.clone()).or_default() += count);
    }

    /// Notes for the report.
    pub fn notes(&self) -> Vec<String> {
        let empty = self.empty.iter().map(|(reason, count)| {
            let replies = if *count == 1 {
                "1 reply".to_owned()
            } else {
                format!("{count} replies")
            };
            format!("{replies} had no content (finish reason: {reason})")
        });
        note_ignored_stream(self.unstreamed, self.streamed)
            .into_iter()
            .chain(empty)
            .collect()
    }
}

/// Whether the reply had no content. A reply that is not streamed has no token events, but its text is counted.
fn is_empty(outcome: &Outcome) -> bool {
    let no_text = outcome.streamed || outcome.counted.output == Some(0);
    outcome.timeline.tokens.is_empty() && no_text
}

fn note_ignored_stream(unstreamed: u64, streamed: u64) -> Option<String> {
    match (unstreamed, streamed) {
        (0, _) => None,
        (_, 0) => Some(STREAM_IGNORED.to_owned()),
        (some, _) => Some(format!(
            "the server ignored stream: true in {some} of {} replies; TTFT, ITL and TPOT are unavailable for these",
            some + streamed
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use llmscen_client::http::dropped_outcome;
    use llmscen_core::outcome::{Counted, Failure, FailureKind, Finish};
    use llmscen_core::request::PreparedRequest;
    use llmscen_core::units::Nanos;

    fn ended(seq: u64, turn: u32, status: Option<u16>, kind: FailureKind) -> Outcome {
        let call = PreparedRequest {
            seq,
            turn,
            ..PreparedRequest::default()
        };
        let mut outcome = dropped_outcome(&call, Phase::Measured, Nanos(100 + seq), "");
        outcome.timeline.intended = Nanos(100 - seq);
        (outcome.status, outcome.end) = (status, Err(Failure::new(kind, format!("refused {seq}"))));
        outcome
    }

    #[test]
    fn the_counts_do_not_depend_on_the_order_of_the_ends() {
        let refused = |seq| ended(seq, 0, None, FailureKind::Connect);
        let mut sent = ended(3, 0, None, FailureKind::Truncated);
        (sent.timeline.sent, sent.timeline.tokens) =
            (Some(Nanos(200)), vec![Nanos(250), Nanos(260)]);
        let mut outcomes = [
            refused(5),
            sent,
            refused(4),
            ended(4, 1, None, FailureKind::Dropped),
        ];
        for _ in 0..2 {
            let mut tally = Tally::default();
            outcomes.iter().for_each(|outcome| tally.count(outcome));
            assert_eq!(tally.begun(), [(3, true), (4, false), (5, false)]);
            assert_eq!(
                (tally.measured_from, tally.first_answer()),
                (Some(Nanos(95)), Some(Nanos(50)))
            );
            assert_eq!(
                (tally.unanswered().as_deref(), tally.not_found),
                (Some("refused 5"), false)
            );
            outcomes.reverse();
        }
        let mut answered = Tally::default();
        [refused(1), ended(2, 0, Some(404), FailureKind::Http4xx)]
            .iter()
            .for_each(|outcome| answered.count(outcome));
        assert_eq!((answered.unanswered(), answered.not_found), (None, true));
    }

    fn reply(streamed: bool, tokens: usize, reason: &str) -> Outcome {
        let end = Ok(Finish {
            reason: reason.into(),
        });
        let mut outcome = Outcome {
            streamed,
            end,
            ..PreparedRequest::default().outcome(Phase::Measured)
        };
        outcome.timeline.tokens = vec![Nanos(1); tokens];
        outcome
    }

    fn count(outcomes: Vec<Outcome>) -> Replies {
        let mut rounds = [Replies::default(), Replies::default()];
        outcomes
            .iter()
            .enumerate()
            .for_each(|(index, outcome)| rounds[index % 2].count(outcome));
        let [mut one, other] = rounds;
        one.add(&other);
        one
    }

    fn notes(replies: &Replies, unstreamed: u64) -> Vec<String> {
        Replies {
            unstreamed,
            ..replies.clone()
        }
        .notes()
    }

    #[test]
    fn replies_without_content_are_counted_over_all_cases_by_their_reason() {
        let unstreamed = Outcome {
            counted: Counted {
                output: Some(0),
                ..Counted::default()
            },
            ..reply(false, 0, "stop")
        };
        let warm = Outcome {
            phase: Phase::Warmup,
            ..reply(true, 0, "stop")
        };
        let end = Err(Failure::new(FailureKind::Empty, ""));
        let failed = Outcome {
            end,
            ..reply(true, 0, "")
        };
        let all = vec![
            reply(true, 0, "stop"),
            reply(true, 0, "stop"),
            unstreamed,
            reply(true, 0, "length"),
            reply(true, 1, "stop"),
            reply(false, 0, "stop"),
            warm,
            failed,
        ];
        assert_eq!(
            notes(&count(all), 0),
            [
                "1 reply had no content (finish reason: length)",
                "3 replies had no content (finish reason: stop)"
            ]
        );
        assert_eq!(notes(&count(vec![reply(true, 1, "stop")]), 0), [""; 0]);
    }

    #[test]
    fn a_stream_that_was_ignored_is_noted_once() {
        let unstreamed = || count(vec![reply(false, 0, "stop"), reply(false, 0, "stop")]);
        assert_eq!(
            notes(&unstreamed(), 2),
            ["the server ignored stream: true; TTFT, ITL and TPOT are unavailable"]
        );
        let mixed = count(vec![
            reply(false, 0, "stop"),
            reply(true, 3, "stop"),
            reply(true, 3, "stop"),
        ]);
        let note = "the server ignored stream: true in 1 of 3 replies; TTFT, ITL and TPOT are unavailable for these";
        assert_eq!(notes(&mixed, 1), [note]);
        assert_eq!(
            notes(&unstreamed(), 0),
            [""; 0],
            "the requests asked for no stream"
        );
    }
}
