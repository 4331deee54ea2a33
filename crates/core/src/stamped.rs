//! One measured request with its instants: what other tools' files tell of single requests.

use crate::metric::Metric;
use crate::outcome::FailureKind;
use crate::sample::Row;
use crate::units::Nanos;

/// One measured request with its instants, all of them counted from the start of the run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stamped {
    /// The request as statistics see it.
    pub row: Row,
    /// When it was due.
    pub intended: Nanos,
    /// When it was sent; None: never.
    pub sent: Option<Nanos>,
    /// Its first token event; None: none came, or it was not streamed.
    pub first_token: Option<Nanos>,
    /// Its last token event, likewise.
    pub last_token: Option<Nanos>,
    /// When it ended, well or not.
    pub end: Nanos,
    /// Token events.
    pub events: u64,
    /// How it failed, if so.
    pub failure: Option<FailureKind>,
    /// Words of the failure; empty where there was none.
    pub message: String,
}

impl Stamped {
    /// One metric of the request, in its unit; None where it does not exist.
    pub fn get(&self, metric: Metric) -> Option<f64> {
        self.row.values.get(&metric).copied()
    }

    /// From the sending to the last token, milliseconds; to the end where the reply was not streamed. None where it failed.
    pub fn answer_ms(&self) -> Option<f64> {
        match self.last_token.zip(self.sent).filter(|_| self.row.ok) {
            Some((last, sent)) => Some(last.since(sent).millis()),
            None => self.get(Metric::E2eService),
        }
    }

    /// What a request of this total latency, milliseconds, took for each output token after the first: (total − TTFT from
    /// the sending) / (tokens − 1). None where one of them does not exist, or there is one token.
    pub fn pace_ms(&self, total_ms: Option<f64>) -> Option<f64> {
        let steps = self.row.output_tokens.map(|tokens| tokens - 1.0).filter(|&steps| steps > 0.0)?;
        Some((total_ms? - self.get(Metric::TtftService)?) / steps)
    }
}
