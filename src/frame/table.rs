//! The rows of a run, one per request.

use crate::frame::error::FrameError;
use crate::frame::schema as s;
use crate::frame::{derive, facts};
use crate::model::outcome::{Failure, Outcome, Phase};
use crate::model::telemetry::Recorded;
use crate::model::units::Nanos;
use polars::prelude::*;
use std::collections::HashMap;

/// An outcome and where it belongs.
#[derive(Clone, Copy, Debug)]
pub struct Tagged<'a> {
    /// Case id.
    pub case: &'a str,
    /// Round of the case, from 0.
    pub round: u32,
    /// Shard that sent it, from 0.
    pub shard: u32,
    /// What happened.
    pub outcome: &'a Outcome,
}

/// The rows of a run, warm-up among them and marked: the raw facts of every request, and what follows from them.
#[derive(Clone, Debug)]
pub struct Table(pub(super) DataFrame, Vec<Recorded>);

impl Table {
    /// A table of these outcomes, sorted by case in order of first appearance, round and number.
    ///
    /// # Errors
    /// Only where the table engine refuses, out of memory for one.
    pub fn build<'a>(rows: impl IntoIterator<Item = Tagged<'a>>) -> Result<Table, FrameError> {
        let rows = sorted(rows.into_iter().collect());
        let raw = DataFrame::new(rows.len(), raw_columns(&rows))?;
        let derived = derive::columns(&facts::all(&raw)?);
        Ok(Table(s::checked(&raw.hstack(&derived)?)?, Vec::new()))
    }

    /// A table of these rows, with nothing beside them.
    pub(super) fn of(rows: DataFrame) -> Table {
        Table(rows, Vec::new())
    }

    /// The same, and what was read beside its requests.
    pub fn beside(self, recorded: Vec<Recorded>) -> Table {
        Table(self.0, recorded)
    }

    /// What was read beside its requests, round by round.
    pub fn recorded(&self) -> &[Recorded] {
        &self.1
    }

    /// Number of rows, warm-up included.
    pub fn len(&self) -> usize {
        self.0.height()
    }

    /// Whether there is no row.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

fn sorted(mut rows: Vec<Tagged<'_>>) -> Vec<Tagged<'_>> {
    let mut places = HashMap::new();
    for row in &rows {
        let next = places.len();
        places.entry(row.case).or_insert(next);
    }
    rows.sort_by_key(|row| (places.get(row.case).copied(), row.round, row.outcome.seq, row.outcome.turn));
    rows
}

fn raw_columns(rows: &[Tagged<'_>]) -> Vec<Column> {
    let sent = place_columns(rows).into_iter().chain(stamp_columns(rows));
    sent.chain(count_columns(rows)).chain(end_columns(rows)).collect()
}

fn place_columns(rows: &[Tagged<'_>]) -> [Column; 11] {
    [
        text(rows, s::CASE_ID, |row| Some(row.case)),
        long(rows, s::SEQ, |row| Some(row.outcome.seq)),
        int(rows, s::TURN, |row| Some(row.outcome.turn)),
        int(rows, s::TURNS, |row| Some(row.outcome.turns)),
        text(rows, s::GROUP, |row| row.outcome.group.as_deref()),
        int(rows, s::ROUND, |row| Some(row.round)),
        int(rows, s::SHARD, |row| Some(row.shard)),
        text(rows, s::PHASE, |row| Some(phase_word(row.outcome.phase))),
        int(rows, s::STATUS, |row| row.outcome.status.map(u32::from)),
        text(rows, s::MODEL, |row| Some(&row.outcome.model)),
        flag(rows, s::STREAMED, |row| row.outcome.streamed),
    ]
}

/// The word of the `phase` column.
pub(super) fn phase_word(phase: Phase) -> &'static str {
    match phase {
        Phase::Warmup => "warmup",
        Phase::Measured => "measured",
    }
}

fn stamp_columns(rows: &[Tagged<'_>]) -> [Column; 11] {
    let stamp = |name, get: fn(&Outcome) -> Option<Nanos>| long(rows, name, |row| get(row.outcome).map(|stamp| stamp.0));
    [
        stamp(s::INTENDED, |outcome| Some(outcome.timeline.intended)),
        stamp(s::SENT, |outcome| outcome.timeline.sent),
        stamp(s::LAST_SENT, |outcome| outcome.timeline.last_sent),
        stamp(s::HEADERS, |outcome| outcome.timeline.headers),
        stamp(s::FIRST_CHUNK, |outcome| outcome.timeline.first_chunk),
        stamp(s::FIRST_TOKEN, |outcome| outcome.timeline.tokens.first().copied()),
        stamp(s::LAST_TOKEN, |outcome| outcome.timeline.tokens.last().copied()),
        stamp(s::END, |outcome| Some(outcome.timeline.end)),
        token_events(rows),
        numbers_of_events(rows, s::TOKEN_CHOICES, |outcome| &outcome.timeline.choices),
        numbers_of_events(rows, s::TOKEN_WEIGHTS, |outcome| &outcome.timeline.weights),
    ]
}

fn token_events(rows: &[Tagged<'_>]) -> Column {
    let events = rows.iter().map(|row| row.outcome.timeline.tokens.len()).sum();
    let mut list = ListPrimitiveChunkedBuilder::<UInt64Type>::new(s::TOKEN_EVENTS.into(), rows.len(), events, DataType::UInt64);
    for row in rows {
        list.append_values_iter(row.outcome.timeline.tokens.iter().map(|stamp| stamp.0));
    }
    list.finish().into_column()
}

/// What is known of each token event; an empty list where nothing is.
fn numbers_of_events(rows: &[Tagged<'_>], name: &str, get: fn(&Outcome) -> &Vec<u32>) -> Column {
    let all = rows.iter().map(|row| get(row.outcome).len()).sum();
    let mut list = ListPrimitiveChunkedBuilder::<UInt32Type>::new(name.into(), rows.len(), all, DataType::UInt32);
    rows.iter().for_each(|row| list.append_slice(get(row.outcome)));
    list.finish().into_column()
}

fn count_columns(rows: &[Tagged<'_>]) -> [Column; 19] {
    let took = |name, get: fn(&Outcome) -> Option<Nanos>| long(rows, name, |row| get(row.outcome).map(|span| span.0));
    [
        int(rows, s::READS, |row| Some(row.outcome.reads)),
        long(rows, s::BYTES_IN, |row| Some(row.outcome.bytes_in)),
        long(rows, s::BYTES_OUT, |row| Some(row.outcome.bytes_out)),
        int(rows, s::RECONNECTS, |row| Some(row.outcome.reconnects)),
        int(rows, s::ATTEMPTS, |row| Some(row.outcome.attempts)),
        long(rows, s::USAGE_PROMPT, |row| row.outcome.usage.prompt),
        long(rows, s::USAGE_OUTPUT, |row| row.outcome.usage.output),
        long(rows, s::USAGE_REASONING, |row| row.outcome.usage.reasoning),
        long(rows, s::USAGE_CACHED, |row| row.outcome.usage.cached),
        long(rows, s::COUNTED_PROMPT, |row| row.outcome.counted.prompt),
        long(rows, s::COUNTED_OUTPUT, |row| row.outcome.counted.output),
        flag(rows, s::COUNTED_APPROXIMATE, |row| row.outcome.counted.approximate),
        long(rows, s::ITEM_COUNT, |row| row.outcome.items),
        took(s::SERVER_QUEUE, |outcome| outcome.server.queue),
        took(s::SERVER_LOAD, |outcome| outcome.server.load),
        took(s::SERVER_PREFILL, |outcome| outcome.server.prefill),
        took(s::SERVER_DECODE, |outcome| outcome.server.decode),
        took(s::SERVER_TOTAL, |outcome| outcome.server.total),
        long(rows, s::MAX_TOKENS, |row| row.outcome.max_tokens),
    ]
}

fn end_columns(rows: &[Tagged<'_>]) -> [Column; 6] {
    [
        text(rows, s::RESPONSE_ID, |row| row.outcome.response_id.as_deref()),
        text(rows, s::REQUEST_ID, |row| row.outcome.request_id.as_deref()),
        text(rows, s::FINISH_REASON, |row| row.outcome.end.as_ref().ok().map(|finish| finish.reason.as_str())),
        text(rows, s::OUTCOME, |row| Some(row.outcome.word())),
        text(rows, s::ERROR, |row| failure(row).map(|failure| failure.message.as_str())),
        text(rows, s::ERROR_AT, |row| failure(row).map(|failure| failure.at.as_str())),
    ]
}

fn failure<'a>(row: &Tagged<'a>) -> Option<&'a Failure> {
    row.outcome.end.as_ref().err()
}

fn text<'a>(rows: &[Tagged<'a>], name: &str, get: impl Fn(&Tagged<'a>) -> Option<&'a str>) -> Column {
    StringChunked::from_iter_options(name.into(), rows.iter().map(get)).into_column()
}

fn long<'a>(rows: &[Tagged<'a>], name: &str, get: impl Fn(&Tagged<'a>) -> Option<u64>) -> Column {
    UInt64Chunked::from_iter_options(name.into(), rows.iter().map(get)).into_column()
}

fn int<'a>(rows: &[Tagged<'a>], name: &str, get: impl Fn(&Tagged<'a>) -> Option<u32>) -> Column {
    UInt32Chunked::from_iter_options(name.into(), rows.iter().map(get)).into_column()
}

fn flag<'a>(rows: &[Tagged<'a>], name: &str, get: impl Fn(&Tagged<'a>) -> bool) -> Column {
    BooleanChunked::from_iter_values(name.into(), rows.iter().map(get)).into_column()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::fixture::{failed, outcome};
    use crate::model::outcome::FailureKind;

    fn tagged<'a>(case: &'a str, round: u32, outcome: &'a Outcome) -> Tagged<'a> {
        Tagged { case, round, shard: 0, outcome }
    }

    #[test]
    fn rows_stand_in_the_order_of_case_round_and_number() {
        let [a, b] = [outcome(1), outcome(0)];
        let rows = [tagged("z", 1, &a), tagged("a", 0, &a), tagged("z", 0, &a), tagged("z", 0, &b)];
        let table = Table::build(rows).unwrap();
        let order: Vec<_> = facts::all(&table.0).unwrap().iter().map(|fact| (fact.round, fact.seq)).collect();
        assert_eq!(order, [(0, 0), (0, 1), (1, 1), (0, 1)]);
        assert_eq!(table.0.column(s::CASE_ID).unwrap().str().unwrap().get(3), Some("a"));
    }

    #[test]
    fn a_failure_keeps_its_words() {
        let bad = failed(0, FailureKind::Http5xx);
        let table = Table::build([tagged("a", 0, &bad)]).unwrap();
        let cell = |name: &str| table.0.column(name).unwrap().str().unwrap().get(0).map(str::to_owned);
        assert_eq!((cell(s::OUTCOME).as_deref(), cell(s::ERROR).as_deref()), (Some("http_5xx"), Some("no luck")));
        assert_eq!((cell(s::ERROR_AT).as_deref(), cell(s::FINISH_REASON)), (Some("after headers"), None));
    }

    #[test]
    fn an_empty_table_is_one() {
        let table = Table::build([]).unwrap();
        assert!(table.is_empty());
        assert_eq!(table.0.width(), s::columns().count());
    }
}
