//! What the requests of a round come to, as far as the run itself needs it: the requests themselves are in the journal.

use crate::run::fail_fast::FailFast;
use crate::run::replies::Replies;
use llmscen_core::outcome::{FailureKind, Outcome, Phase};
use llmscen_core::units::Nanos;

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

#[cfg(test)]
mod tests {
    use super::*;
    use llmscen_client::http::dropped;
    use llmscen_core::call::Call;
    use llmscen_core::outcome::Failure;

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
}
