//! Which rows of which data a run has used, so that no prompt is sent twice while there are others.

use crate::model::dataset::Source;
use crate::model::load::Shape;
use crate::model::outcome::Outcome;
use crate::model::plan::Case;
use crate::run::bench::Bench;
use std::mem::{Discriminant, discriminant};

/// A case whose number of prompts is not known beforehand takes so many of data without end, whatever it sends: the prompts
/// of the cases after it do not depend on how fast the server is.
const UNKNOWN_LENGTH: u64 = 1_000_003;

/// The books of a run.
#[derive(Default)]
pub struct Ledger(Vec<Account>);

/// One kind of data from one file, whatever else differs between the cases that use it.
struct Account {
    data: (Discriminant<Source>, Option<String>),
    next: u64,
    sent: u64,
    repeated: u64,
    rows: Option<u64>,
}

/// The sessions of a round that were sent, and those among them whose row the run had sent before: their index, counted from
/// the run's first row on, is beyond the data's length.
pub fn sent(first: u64, rows: Option<u64>, outcomes: &[Outcome]) -> (u64, u64) {
    let sent = || outcomes.iter().filter(|outcome| outcome.turn == 0 && outcome.timeline.sent.is_some());
    let again = |outcome: &&Outcome| rows.is_some_and(|rows| first.saturating_add(outcome.seq) >= rows);
    (sent().count() as u64, sent().filter(again).count() as u64)
}

/// Whether prompts without a known number have no end; those of a long file merely have not come to theirs yet.
fn endless(source: &Source) -> bool {
    match source {
        Source::Prompt(_) | Source::Random { .. } | Source::Prefix { .. } | Source::SpeedBenchmark { .. } => true,
        Source::Trace(_) | Source::Images(_) => true,
        Source::LineByLine | Source::Openqa | Source::Longalpaca | Source::Rows | Source::Messages | Source::Sharegpt => false,
        Source::Embeddings { .. } | Source::Rerank { .. } => false,
    }
}

impl Ledger {
    fn account(&mut self, case: &Case) -> &mut Account {
        let data = (discriminant(&case.dataset.source), case.dataset.path.clone());
        let known = self.0.iter().position(|account| account.data == data);
        let index = known.unwrap_or(self.0.len());
        if known.is_none() {
            self.0.push(Account { data, next: 0, sent: 0, repeated: 0, rows: None });
        }
        &mut self.0[index]
    }

    /// The index of the next round's first row. A replay of the data's own arrivals keeps each row with its arrival: it
    /// begins a new pass over the data.
    pub fn first(&mut self, case: &Case, bench: &Bench) -> u64 {
        let next = self.account(case).next;
        let replayed =
            bench.arrivals.as_ref().filter(|_| matches!(case.load.shape, Shape::Replay { .. }) && case.trace.is_none());
        match replayed.map_or(0, |arrivals| arrivals.len() as u64) {
            0 => next,
            rows => next.next_multiple_of(rows),
        }
    }

    /// Books a round that began at row `first`; `planned` is its number of sessions, where that was known beforehand.
    pub fn book(&mut self, case: &Case, bench: &Bench, (first, planned): (u64, Option<u64>), outcomes: &[Outcome]) {
        let rows = bench.prompts.distinct();
        let used = outcomes.iter().map(|outcome| outcome.seq + 1).max().unwrap_or(0);
        let reserved = planned.unwrap_or(if rows.is_none() && endless(&case.dataset.source) { UNKNOWN_LENGTH } else { 0 });
        let (sent, repeated) = sent(first, rows, outcomes);
        let account = self.account(case);
        account.next = first.saturating_add(used.max(reserved));
        account.sent += sent;
        account.repeated += repeated;
        account.rows = rows;
    }

    /// What a reader must know of prompts that were sent more than once.
    pub fn notes(&self) -> Vec<String> {
        let repeats = self.0.iter().filter(|account| account.repeated > 0);
        let say = |account: &Account| {
            let Account { sent, repeated, .. } = account;
            format!("{repeated} of {sent} prompts were repeats: the data has {} rows", account.rows.unwrap_or(0))
        };
        repeats.map(say).collect()
    }
}
