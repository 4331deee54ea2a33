//! The rows of a table as borrowed facts: what every figure is computed from.

use crate::frame::error::FrameError;
use crate::frame::excerpt::BESIDE;
use crate::frame::schema as s;
use crate::frame::table::{Table, phase_word};
use crate::model::outcome::{FailureKind, Phase};
use polars::prelude::*;

type Arrow<T> = <T as PolarsDataType>::Array;

/// The raw facts of one request. Stamps are nanoseconds since the start of the case.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fact<'a> {
    pub seq: u64,
    pub turn: u32,
    pub turns: u32,
    pub group: Option<&'a str>,
    pub round: u32,
    pub measured: bool,
    /// Whether it belongs to the case, or only stands beside its rows for what was in flight.
    pub own: bool,
    pub model: &'a str,
    pub intended: u64,
    pub sent: Option<u64>,
    pub first_chunk: Option<u64>,
    pub end: u64,
    /// Token events; none for a response that was not streamed, whatever it was stamped with.
    pub events: &'a [u64],
    /// The choice of each of them; empty where all belong to the first.
    pub choices: &'a [u32],
    /// The tokens in each of them; empty where the server did not tell.
    pub weights: &'a [u32],
    pub items: Option<u64>,
    /// What the server says of itself: queue, load, prefill, decode, total, in nanoseconds.
    pub server: [Option<u64>; 5],
    pub reconnects: u32,
    pub attempts: u32,
    pub usage: Tokens,
    pub counted: Tokens,
    pub approximate: bool,
    /// None: it succeeded.
    pub failure: Option<FailureKind>,
    pub status: Option<u32>,
    pub message: &'a str,
    pub at: &'a str,
}

/// Token counts of one source.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tokens {
    pub prompt: Option<u64>,
    pub output: Option<u64>,
    pub reasoning: Option<u64>,
    pub cached: Option<u64>,
}

impl Fact<'_> {
    pub(super) fn ok(&self) -> bool {
        self.failure.is_none()
    }

    /// Whether its user left, as the scenario says.
    pub(super) fn left(&self) -> bool {
        self.failure == Some(FailureKind::Abandoned)
    }
}

/// Every row of a frame.
pub(super) fn all(frame: &DataFrame) -> Result<Vec<Fact<'_>>, FrameError> {
    let reader = Reader::new(frame)?;
    (0..frame.height()).map(|row| reader.fact(row)).collect()
}

/// The rows of one case, in the order of (round, seq, turn).
pub(super) fn of<'a>(table: &'a Table, case: &str) -> Result<Vec<Fact<'a>>, FrameError> {
    let (ids, reader) = (table.0.column(s::CASE_ID)?.str()?, Reader::new(&table.0)?);
    let rows = (0..table.len()).filter(|&row| ids.get(row) == Some(case));
    let mut facts: Vec<Fact<'a>> = rows.map(|row| reader.fact(row)).collect::<Result<_, _>>()?;
    facts.sort_by_key(|fact| (fact.round, fact.seq, fact.turn));
    Ok(facts)
}

struct Reader<'a> {
    seq: &'a UInt64Chunked,
    turn: [&'a UInt32Chunked; 2],
    group: &'a StringChunked,
    round: &'a UInt32Chunked,
    phase: &'a StringChunked,
    model: &'a StringChunked,
    streamed: &'a BooleanChunked,
    intended: &'a UInt64Chunked,
    sent: &'a UInt64Chunked,
    first_chunk: &'a UInt64Chunked,
    end: &'a UInt64Chunked,
    events: Lists<'a, UInt64Type>,
    choices: Lists<'a, UInt32Type>,
    weights: Lists<'a, UInt32Type>,
    items: &'a UInt64Chunked,
    server: [&'a UInt64Chunked; 5],
    reconnects: &'a UInt32Chunked,
    attempts: &'a UInt32Chunked,
    usage: [&'a UInt64Chunked; 4],
    counted: [&'a UInt64Chunked; 2],
    approximate: &'a BooleanChunked,
    outcome: &'a StringChunked,
    status: &'a UInt32Chunked,
    message: &'a StringChunked,
    at: &'a StringChunked,
}

impl<'a> Reader<'a> {
    fn new(frame: &'a DataFrame) -> Result<Reader<'a>, FrameError> {
        let long = |name: &str| frame.column(name).and_then(Column::u64);
        let int = |name: &str| frame.column(name).and_then(Column::u32);
        let text = |name: &str| frame.column(name).and_then(Column::str);
        let flag = |name: &str| frame.column(name).and_then(Column::bool);
        Ok(Reader {
            seq: long(s::SEQ)?,
            turn: [int(s::TURN)?, int(s::TURNS)?],
            group: text(s::GROUP)?,
            round: int(s::ROUND)?,
            phase: text(s::PHASE)?,
            model: text(s::MODEL)?,
            streamed: flag(s::STREAMED)?,
            intended: long(s::INTENDED)?,
            sent: long(s::SENT)?,
            first_chunk: long(s::FIRST_CHUNK)?,
            end: long(s::END)?,
            events: Lists::new(frame.column(s::TOKEN_EVENTS)?.list()?),
            choices: Lists::new(frame.column(s::TOKEN_CHOICES)?.list()?),
            weights: Lists::new(frame.column(s::TOKEN_WEIGHTS)?.list()?),
            items: long(s::ITEM_COUNT)?,
            server: [
                long(s::SERVER_QUEUE)?,
                long(s::SERVER_LOAD)?,
                long(s::SERVER_PREFILL)?,
                long(s::SERVER_DECODE)?,
                long(s::SERVER_TOTAL)?,
            ],
            reconnects: int(s::RECONNECTS)?,
            attempts: int(s::ATTEMPTS)?,
            usage: [long(s::USAGE_PROMPT)?, long(s::USAGE_OUTPUT)?, long(s::USAGE_REASONING)?, long(s::USAGE_CACHED)?],
            counted: [long(s::COUNTED_PROMPT)?, long(s::COUNTED_OUTPUT)?],
            approximate: flag(s::COUNTED_APPROXIMATE)?,
            outcome: text(s::OUTCOME)?,
            status: int(s::STATUS)?,
            message: text(s::ERROR)?,
            at: text(s::ERROR_AT)?,
        })
    }

    fn fact(&self, row: usize) -> Result<Fact<'a>, FrameError> {
        let streamed = self.streamed.get(row).unwrap_or_default();
        let [prompt, output, reasoning, cached] = self.usage.map(|column| column.get(row));
        let [counted_prompt, counted_output] = self.counted.map(|column| column.get(row));
        Ok(Fact {
            seq: self.seq.get(row).unwrap_or_default(),
            turn: self.turn[0].get(row).unwrap_or_default(),
            turns: self.turn[1].get(row).unwrap_or_default(),
            group: self.group.get(row),
            round: self.round.get(row).unwrap_or_default(),
            measured: self.measured(row)?,
            own: self.phase.get(row) != Some(BESIDE),
            model: self.model.get(row).unwrap_or_default(),
            intended: self.intended.get(row).unwrap_or_default(),
            sent: self.sent.get(row),
            first_chunk: self.first_chunk.get(row),
            end: self.end.get(row).unwrap_or_default(),
            events: if streamed { self.events.get(row) } else { &[] },
            choices: if streamed { self.choices.get(row) } else { &[] },
            weights: if streamed { self.weights.get(row) } else { &[] },
            items: self.items.get(row),
            server: self.server.map(|column| column.get(row)),
            reconnects: self.reconnects.get(row).unwrap_or_default(),
            attempts: self.attempts.get(row).unwrap_or_default(),
            usage: Tokens { prompt, output, reasoning, cached },
            counted: Tokens { prompt: counted_prompt, output: counted_output, ..Tokens::default() },
            approximate: self.approximate.get(row).unwrap_or_default(),
            failure: self.failure(row)?,
            status: self.status.get(row),
            message: self.message.get(row).unwrap_or_default(),
            at: self.at.get(row).unwrap_or_default(),
        })
    }

    fn measured(&self, row: usize) -> Result<bool, FrameError> {
        match self.phase.get(row).unwrap_or_default() {
            word if word == phase_word(Phase::Measured) => Ok(true),
            word if word == phase_word(Phase::Warmup) || word == BESIDE => Ok(false),
            word => Err(FrameError::Word { column: s::PHASE, row, found: word.into() }),
        }
    }

    fn failure(&self, row: usize) -> Result<Option<FailureKind>, FrameError> {
        match self.outcome.get(row).unwrap_or_default() {
            "ok" => Ok(None),
            word => match FailureKind::parse(word) {
                Some(kind) => Ok(Some(kind)),
                None => Err(FrameError::Word { column: s::OUTCOME, row, found: word.into() }),
            },
        }
    }
}

/// What is kept of each token event, as slices of one buffer: millions of them are not worth a vector a row.
pub(super) struct Lists<'a, P: PolarsNumericType> {
    bounds: &'a [i64],
    values: &'a [P::Native],
}

impl<'a, P: PolarsNumericType> Lists<'a, P> {
    /// Of a list column in one chunk, as `build` and `read_parquet` leave it.
    pub(super) fn new(lists: &'a ListChunked) -> Lists<'a, P> {
        let chunk = lists.downcast_iter().next();
        let values = chunk.and_then(|chunk| chunk.values().as_any().downcast_ref::<Arrow<P>>());
        Lists {
            bounds: chunk.map_or(&[], |chunk| chunk.offsets().as_slice()),
            values: values.map_or(&[], |values| values.values().as_slice()),
        }
    }

    pub(super) fn get(&self, row: usize) -> &'a [P::Native] {
        let bound = |at: usize| self.bounds.get(at).and_then(|&bound| usize::try_from(bound).ok());
        bound(row).zip(bound(row + 1)).and_then(|(from, to)| self.values.get(from..to)).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::fixture::{failed, outcome, stream, table};
    use crate::model::outcome::Outcome;

    #[test]
    fn facts_are_what_was_put_in() {
        let rows = [outcome(0), stream(1, 100, &[150, 150, 170]), failed(2, FailureKind::Truncated)];
        let table = table("a", &rows);
        let facts = of(&table, "a").unwrap();
        assert_eq!(facts[1].events, [150_000_000, 150_000_000, 170_000_000]);
        assert_eq!((facts[0].events, facts[0].ok()), (&[] as &[u64], true));
        assert_eq!((facts[2].failure, facts[2].message, facts[2].at), (Some(FailureKind::Truncated), "no luck", "after headers"));
        assert!(of(&table, "b").unwrap().is_empty());
    }

    #[test]
    fn an_unknown_word_is_named_with_its_row() {
        let rows: Vec<Outcome> = (0..2).map(outcome).collect();
        let mut table = table("a", &rows);
        table.0.with_column(StringChunked::from_slice(s::OUTCOME.into(), &["ok", "fine"]).into_column()).unwrap();
        let error = of(&table, "a").unwrap_err().to_string();
        assert_eq!(error, "row 1 of column `outcome` holds `fine`, which is not one of its words");
    }
}
