//! The measured requests of a case with timestamps since the start of the run, for the export formats of other tools.

use crate::CaseFacts;
use crate::request_row::RequestRow;
use crate::round::cancelled_by_stop;
use crate::table::Table;
use llmscen_core::check::RequestLimit;
use llmscen_core::metric::Metric;
use llmscen_core::outcome::FailureKind;
use llmscen_core::units::Nanos;

/// One measured request; its timestamps count from the start of the run.
#[derive(Clone, Copy, Debug)]
pub struct TimedRequest<'a> {
    row: RequestRow<'a>,
    /// Start of its round's clock, in nanoseconds after the start of the run.
    origin_ns: u64,
}

/// The requests of [`crate::sample_case()`], ordered by (round, seq, turn).
pub fn timed_requests<'a>(table: &'a Table, facts: &CaseFacts<'_>) -> Vec<TimedRequest<'a>> {
    let measured = |row: &RequestRow<'_>| row.measured() && !cancelled_by_stop(row, facts);
    let timed = |row: RequestRow<'a>| {
        let part = facts
            .parts
            .iter()
            .find(|part| part.case == facts.case.id && part.round == row.round());
        TimedRequest {
            row,
            origin_ns: part.map_or(0, |part| part.origin_ns),
        }
    };
    table
        .rows_of_case(&facts.case.id)
        .into_iter()
        .filter(measured)
        .map(timed)
        .collect()
}

impl<'a> TimedRequest<'a> {
    fn since_start(&self, timestamp: u64) -> Nanos {
        Nanos(self.origin_ns + timestamp)
    }

    /// Round of the case, from 0.
    pub fn round(&self) -> u32 {
        self.row.round()
    }

    /// Number of its session.
    pub fn seq(&self) -> u64 {
        self.row.seq()
    }

    /// Turn in the session, from 0.
    pub fn turn(&self) -> u32 {
        self.row.turn()
    }

    /// Turns of its session.
    pub fn turns(&self) -> u32 {
        self.row.turns()
    }

    /// Whether it succeeded.
    pub fn ok(&self) -> bool {
        self.row.ok()
    }

    /// Scheduled send.
    pub fn intended(&self) -> Nanos {
        self.since_start(self.row.intended())
    }

    /// Send time; None where it was never sent.
    pub fn sent(&self) -> Option<Nanos> {
        self.row.sent().map(|timestamp| self.since_start(timestamp))
    }

    /// First token event; None without one, or where the reply was not streamed.
    pub fn first_token(&self) -> Option<Nanos> {
        self.row
            .events()
            .first()
            .map(|timestamp| self.since_start(*timestamp))
    }

    /// Last token event, as [`TimedRequest::first_token`].
    pub fn last_token(&self) -> Option<Nanos> {
        self.row
            .events()
            .last()
            .map(|timestamp| self.since_start(*timestamp))
    }

    /// End of the request, failed or not.
    pub fn end(&self) -> Nanos {
        self.since_start(self.row.end())
    }

    /// Number of token events.
    pub fn events(&self) -> u64 {
        self.row.events().len() as u64
    }

    /// Kind of failure; None where it succeeded.
    pub fn failure(&self) -> Option<FailureKind> {
        self.row.failure()
    }

    /// Message of the failure; empty where it succeeded.
    pub fn message(&self) -> &'a str {
        self.row.message()
    }

    /// Value of a metric in its unit; None where it does not exist.
    pub fn get(&self, metric: Metric) -> Option<f64> {
        self.row.metric(metric)
    }

    /// Prompt tokens, where known.
    pub fn prompt_tokens(&self) -> Option<f64> {
        self.get(Metric::PromptTokens)
    }

    /// Output tokens as other tools count them, hidden reasoning among them; None where unknown.
    pub fn output_tokens(&self) -> Option<f64> {
        self.get(Metric::BilledTokens)
    }

    /// Gaps between its token events, in milliseconds; none where it failed.
    pub fn gaps(&self) -> Vec<f64> {
        if self.ok() {
            self.row.gaps()
        } else {
            Vec::new()
        }
    }

    /// Whether it is ok and exceeds no limit. Other tools count a reply without a pace as good.
    pub fn exceeds_none(&self, limits: &[RequestLimit]) -> bool {
        self.row.meets(limits) != Some(false)
    }

    /// From the send to the last token in milliseconds, or to the end of a reply that was not streamed. None where it
    /// failed.
    pub fn answer_ms(&self) -> Option<f64> {
        match self.last_token().zip(self.sent()).filter(|_| self.ok()) {
            Some((last, sent)) => Some(last.since(sent).millis()),
            None => self.get(Metric::E2eService),
        }
    }

    /// Time per output token after the first of a request with this total latency, in milliseconds: (total − service
    /// TTFT) / (tokens − 1). None where a value does not exist, or there is one token.
    pub fn pace_ms(&self, total_ms: Option<f64>) -> Option<f64> {
        let steps = self
            .output_tokens()
            .map(|tokens| tokens - 1.0)
            .filter(|&steps| steps > 0.0)?;
        Some((total_ms? - self.get(Metric::TtftService)?) / steps)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{case, failed, outcome, stream, table, warmup};
    use llmscen_core::load::Shape;
    use llmscen_core::manifest::Part;

    #[test]
    fn timestamps_count_from_the_start_of_the_run() {
        let rows = [
            warmup(outcome(0)),
            stream(1, 100, &[150, 170, 200]),
            outcome(2),
            failed(3, FailureKind::Dropped),
        ];
        let parts = [Part {
            case: "a".into(),
            origin_ns: 5_000_000_000,
            ..Part::default()
        }];
        let case = case(Shape::Closed { users: 1 });
        let table = table("a", &rows);
        let seen = timed_requests(
            &table,
            &CaseFacts {
                case: &case,
                parts: &parts,
                until: None,
            },
        );
        let ms = |millis| Some(Nanos::from_millis(millis));
        assert_eq!(
            seen.iter().map(|row| row.sent()).collect::<Vec<_>>(),
            [ms(5100), ms(5202), None]
        );
        assert_eq!(
            (seen[0].first_token(), seen[0].last_token(), seen[0].end()),
            (ms(5150), ms(5200), Nanos::from_millis(5200))
        );
        assert_eq!(
            (
                seen[0].events(),
                seen[0].answer_ms(),
                seen[0].pace_ms(seen[0].answer_ms())
            ),
            (3, Some(100.0), Some(25.0))
        );
        assert_eq!(
            (
                seen[1].first_token(),
                seen[1].answer_ms(),
                seen[1].pace_ms(Some(80.0))
            ),
            (None, Some(80.0), None)
        );
        assert_eq!(
            (seen[2].failure(), seen[2].message()),
            (Some(FailureKind::Dropped), "no luck")
        );
        assert_eq!(seen[2].get(Metric::E2eService), None);
    }
}
