//! The stored columns of the request table: how an outcome becomes a row, and how the values of a row are read.

use crate::schema as s;
use llmscen_core::expect::{CheckedAnswer, FailedCheck};
use llmscen_core::outcome::{Audio, Failure, Outcome};
use llmscen_core::units::Nanos;
use polars::error::PolarsError;
use polars::frame::column::ScalarColumn;
use polars::prelude::{
    BooleanChunkedBuilder, BooleanType, ChunkedArray, ChunkedBuilder, Column, DataFrame, DataType,
    Float64Type, IntoSeries, ListBuilderTrait, ListPrimitiveChunkedBuilder, ListType, PlSmallStr,
    PolarsDataType, PolarsNumericType, PolarsResult, PrimitiveChunkedBuilder, Series, StaticArray,
    StringChunkedBuilder, StringType, UInt32Type, UInt64Type,
};
use std::fmt;

/// An outcome with its case, round and shard.
#[derive(Clone, Copy, Debug)]
pub struct TaggedOutcome<'a> {
    /// Case id.
    pub case: &'a str,
    /// Round of the case, from 0.
    pub round: u32,
    /// Shard that sent it, from 0.
    pub shard: u32,
    /// The outcome.
    pub outcome: &'a Outcome,
}

/// An outcome in the types of the columns.
#[derive(Debug)]
pub(super) struct OutcomeRow<'a> {
    case: &'a str,
    round: u32,
    shard: u32,
    outcome: &'a Outcome,
    events: Vec<u64>,
    /// Separated by spaces.
    anomalies: Option<String>,
}

impl<'a> From<&TaggedOutcome<'a>> for OutcomeRow<'a> {
    fn from(tagged: &TaggedOutcome<'a>) -> OutcomeRow<'a> {
        let outcome = tagged.outcome;
        let tokens = outcome.timeline.tokens.iter();
        let anomalies: Vec<String> = outcome
            .reply
            .anomalies
            .iter()
            .map(ToString::to_string)
            .collect();
        OutcomeRow {
            case: tagged.case,
            round: tagged.round,
            shard: tagged.shard,
            outcome,
            events: tokens.map(|stamp| stamp.0).collect(),
            anomalies: (!anomalies.is_empty()).then(|| anomalies.join(" ")),
        }
    }
}

// Types of columns.

/// How the values of a column are stored and read.
pub(super) trait ColumnType {
    /// The value of a row. The default stands for null.
    type Value<'a>: Default;
    /// A value that is kept.
    type Kept: Clone + fmt::Debug;
    /// Collects values.
    type Builder;
    /// The values in memory.
    type Array: Clone + fmt::Debug;

    fn builder(name: &str) -> Self::Builder;
    /// Allocates memory for this number of items of lists.
    fn reserve(builder: &mut Self::Builder, items: usize);
    fn append(builder: &mut Self::Builder, value: Self::Value<'_>);
    fn finish(builder: Self::Builder) -> Series;
    fn array(series: &Series) -> PolarsResult<Self::Array>;
    /// The value of a row; null for a row outside of the array.
    fn get(array: &Self::Array, row: usize) -> Self::Value<'_>;
    fn keep(value: Self::Value<'_>) -> Self::Kept;
    fn lend(kept: &Self::Kept) -> Self::Value<'_>;
    fn is_equal(kept: &Self::Kept, value: &Self::Value<'_>) -> bool;
}

/// The one array of a column. Its values are read in a fifth of the time that `ChunkedArray::get` takes.
fn only_array<T: PolarsDataType>(column: &ChunkedArray<T>) -> PolarsResult<T::Array> {
    let column = column.rechunk();
    let array = column.downcast_iter().next().cloned();
    array.ok_or_else(|| PolarsError::NoData("a column without an array".into()))
}

macro_rules! scalars {
    ($($name:ident: $value:ty, $kept:ty, $data:ty, $builder:ty, $values:ident;)*) => {$(
        #[derive(Clone, Debug)]
        pub(super) struct $name;

        impl ColumnType for $name {
            type Value<'a> = Option<$value>;
            type Kept = Option<$kept>;
            type Builder = $builder;
            type Array = <$data as PolarsDataType>::Array;

            fn builder(name: &str) -> $builder {
                <$builder>::new(name.into(), 0)
            }

            fn reserve(_: &mut $builder, _: usize) {}

            fn append(builder: &mut $builder, value: Self::Value<'_>) {
                builder.append_option(value);
            }

            fn finish(builder: $builder) -> Series {
                builder.finish().into_series()
            }

            fn array(series: &Series) -> PolarsResult<Self::Array> {
                only_array(series.$values()?)
            }

            #[inline]
            fn get(array: &Self::Array, row: usize) -> Self::Value<'_> {
                StaticArray::get(array, row)
            }

            fn keep(value: Self::Value<'_>) -> Self::Kept {
                value.map(<$kept>::from)
            }

            fn lend(kept: &Self::Kept) -> Self::Value<'_> {
                scalars!(@lend $values, kept)
            }

            fn is_equal(kept: &Self::Kept, value: &Self::Value<'_>) -> bool {
                scalars!(@equal $values, Self::lend(kept), *value)
            }
        }
    )*};
    (@lend str, $kept:ident) => { $kept.as_deref() };
    (@lend $values:ident, $kept:ident) => { *$kept };
    // 0.0 and -0.0 differ, and NaN equals itself.
    (@equal f64, $a:expr, $b:expr) => { $a.map(f64::to_bits) == $b.map(f64::to_bits) };
    (@equal $values:ident, $a:expr, $b:expr) => { $a == $b };
}

scalars! {
    U32: u32, u32, UInt32Type, PrimitiveChunkedBuilder<UInt32Type>, u32;
    U64: u64, u64, UInt64Type, PrimitiveChunkedBuilder<UInt64Type>, u64;
    F64: f64, f64, Float64Type, PrimitiveChunkedBuilder<Float64Type>, f64;
    Flag: bool, bool, BooleanType, BooleanChunkedBuilder, bool;
    Text: &'a str, String, StringType, StringChunkedBuilder, str;
}

macro_rules! lists {
    ($($name:ident: $item:ty, $data:ty, $kind:ident, $items:ident, $empty:ident;)*) => {$(
        #[derive(Clone, Debug)]
        pub(super) struct $name;

        impl ColumnType for $name {
            type Value<'a> = &'a [$item];
            type Kept = Vec<$item>;
            type Builder = ListPrimitiveChunkedBuilder<$data>;
            /// The lists, and the items of all lists.
            type Array = (<ListType as PolarsDataType>::Array, <$data as PolarsDataType>::Array);

            fn builder(name: &str) -> Self::Builder {
                ListPrimitiveChunkedBuilder::new(name.into(), 0, 0, DataType::$kind)
            }

            fn reserve(builder: &mut Self::Builder, items: usize) {
                builder.builder.mut_values().reserve(items);
            }

            fn append(builder: &mut Self::Builder, items: &[$item]) {
                match items {
                    [] => $empty(builder),
                    items => builder.append_slice(items),
                }
            }

            fn finish(mut builder: Self::Builder) -> Series {
                builder.finish().into_series()
            }

            fn array(series: &Series) -> PolarsResult<Self::Array> {
                let lists = series.list()?.rechunk();
                let items = lists.get_inner();
                match items.null_count() {
                    0 => Ok((only_array(&lists)?, only_array(items.$items()?)?)),
                    _ => Err(PolarsError::NoData("a null within a list".into())),
                }
            }

            #[inline]
            fn get((lists, items): &Self::Array, row: usize) -> &[$item] {
                if row >= lists.offsets().len_proxy() {
                    return &[];
                }
                // The offsets of an array are within its items, and those of a null list are equal.
                let (from, to) = lists.offsets().start_end(row);
                items.values().as_slice().get(from..to).unwrap_or_default()
            }

            fn keep(value: &[$item]) -> Vec<$item> {
                value.to_vec()
            }

            fn lend(kept: &Vec<$item>) -> &[$item] {
                kept
            }

            fn is_equal(kept: &Vec<$item>, value: &&[$item]) -> bool {
                kept == value
            }
        }
    )*};
}

/// An empty list of a raw column.
fn empty_list<T: PolarsNumericType>(builder: &mut ListPrimitiveChunkedBuilder<T>) {
    builder.append_slice(&[]);
}

/// An empty list of a derived column.
fn null_list<T: PolarsNumericType>(builder: &mut ListPrimitiveChunkedBuilder<T>) {
    builder.append_null();
}

lists! {
    U32List: u32, UInt32Type, UInt32, u32, empty_list;
    U64List: u64, UInt64Type, UInt64, u64, empty_list;
    F64List: f64, Float64Type, Float64, f64, null_list;
}

/// Collects the values of a column. As long as all are equal, one value and the number of rows are stored.
pub(super) struct ColumnBuilder<T: ColumnType> {
    name: PlSmallStr,
    rows: usize,
    first: Option<T::Kept>,
    builder: Option<T::Builder>,
    /// Items of lists that will be appended.
    expected: usize,
}

impl<T: ColumnType> ColumnBuilder<T> {
    pub(super) fn new(name: &str) -> ColumnBuilder<T> {
        ColumnBuilder {
            name: name.into(),
            rows: 0,
            first: None,
            builder: None,
            expected: 0,
        }
    }

    pub(super) fn push(&mut self, value: T::Value<'_>) {
        match (&mut self.builder, &self.first) {
            (Some(builder), _) => T::append(builder, value),
            (None, None) => self.first = Some(T::keep(value)),
            (None, Some(first)) if T::is_equal(first, &value) => (),
            (None, Some(first)) => {
                let mut builder = T::builder(&self.name);
                T::reserve(&mut builder, self.expected);
                (0..self.rows).for_each(|_| T::append(&mut builder, T::lend(first)));
                T::append(&mut builder, value);
                self.builder = Some(builder);
            }
        }
        self.rows += 1;
    }

    /// Whether any value is other than null.
    pub(super) fn has_values(&self) -> bool {
        let is_null = |first| T::is_equal(first, &T::Value::default());
        self.builder.is_some() || self.first.as_ref().is_some_and(|first| !is_null(first))
    }

    /// Allocates memory for this number of items of lists.
    pub(super) fn expect(&mut self, items: usize) {
        self.expected = items;
        self.builder
            .iter_mut()
            .for_each(|builder| T::reserve(builder, items));
    }

    fn extend(&mut self, column: &Column) -> PolarsResult<()> {
        let values = View::<T>::of(column)?;
        (0..column.len()).for_each(|row| self.push(values.get(row)));
        Ok(())
    }

    pub(super) fn finish(self) -> Column {
        let first = self.first.iter().map(T::lend);
        match self.builder {
            Some(builder) => T::finish(builder).into(),
            None => {
                let mut builder = T::builder(&self.name);
                first.for_each(|value| T::append(&mut builder, value));
                ScalarColumn::from_single_value_series(T::finish(builder), self.rows).into()
            }
        }
    }
}

/// A column of these values.
pub(super) fn column_of<'a, T: ColumnType>(
    name: &str,
    values: impl IntoIterator<Item = T::Value<'a>>,
) -> Column {
    let mut column = ColumnBuilder::<T>::new(name);
    values.into_iter().for_each(|value| column.push(value));
    column.finish()
}

/// A column of the frame whose values are read by row.
#[derive(Clone, Debug)]
pub(super) struct View<T: ColumnType> {
    rows: usize,
    values: ViewValues<T>,
}

#[derive(Clone, Debug)]
enum ViewValues<T: ColumnType> {
    /// The value of every row.
    Constant(T::Kept),
    Array(T::Array),
    /// There is no row.
    None,
}

impl<T: ColumnType> View<T> {
    pub(super) fn of(column: &Column) -> PolarsResult<View<T>> {
        let constant = column
            .as_scalar_column()
            .filter(|column| !column.is_empty());
        Ok(View {
            rows: column.len(),
            values: match constant {
                Some(column) => {
                    let one = T::array(&column.as_single_value_series())?;
                    ViewValues::Constant(T::keep(T::get(&one, 0)))
                }
                None => ViewValues::Array(T::array(column.as_materialized_series())?),
            },
        })
    }

    /// The value of a row; null for a row outside of the column.
    #[inline]
    pub(super) fn get(&self, row: usize) -> T::Value<'_> {
        match &self.values {
            ViewValues::Constant(value) if row < self.rows => T::lend(value),
            ViewValues::Array(array) => T::get(array, row),
            _ => T::Value::default(),
        }
    }
}

impl<T: ColumnType> Default for View<T> {
    fn default() -> View<T> {
        View {
            rows: 0,
            values: ViewValues::None,
        }
    }
}

/// The value of a column as an accessor returns it: null is the default, or None.
pub(super) trait IntoValue<T> {
    fn into_value(self) -> T;
}

impl<T: Default> IntoValue<T> for Option<T> {
    fn into_value(self) -> T {
        self.unwrap_or_default()
    }
}

impl<T> IntoValue<Option<T>> for Option<T> {
    fn into_value(self) -> Option<T> {
        self
    }
}

/// Named columns of a frame: a struct of their builders, and a struct of their views.
macro_rules! frame_columns {
    ($(#[$attribute:meta])* $builders:ident, $views:ident: $($field:ident $kind:ident = $name:expr;)*) => {
        $(#[$attribute])*
        #[derive(Clone, Debug, Default)]
        pub(super) struct $views {
            $(pub(super) $field: View<$kind>,)*
        }

        impl $views {
            pub(super) fn of(frame: &DataFrame) -> PolarsResult<$views> {
                Ok($views { $($field: View::of(frame.column($name)?)?,)* })
            }
        }

        pub(super) struct $builders {
            $(pub(super) $field: ColumnBuilder<$kind>,)*
        }

        impl Default for $builders {
            fn default() -> $builders {
                $builders { $($field: ColumnBuilder::new($name),)* }
            }
        }

        impl $builders {
            pub(super) fn finish(self) -> PolarsResult<DataFrame> {
                DataFrame::new_infer_height(vec![$(self.$field.finish(),)*])
            }
        }
    };
}
pub(super) use frame_columns;

// The stored columns.

macro_rules! columns {
    ($($field:ident $kind:ident = $name:path, |$row:ident| $value:expr;)*) => {
        frame_columns! {
            #[allow(dead_code, reason = "no figure is computed from some of them")]
            RowBuilder, Columns: $($field $kind = $name;)*
        }

        impl RowBuilder {
            pub(super) fn push(&mut self, row: &OutcomeRow<'_>) {
                $({ let $row = row; self.$field.push($value); })*
            }

            /// Appends rows, one column after the other.
            pub(super) fn append<E: From<PolarsError>>(
                &mut self,
                mut column: impl FnMut(&'static str, s::Kind) -> Result<Column, E>,
            ) -> Result<(), E> {
                $(self.$field.extend(&column($name, s::Kind::$kind)?)?;)*
                Ok(())
            }
        }

        /// The stored columns; the other columns of the file are derived from them.
        pub(super) const STORED: &[(&str, s::Kind)] = &[$(($name, s::Kind::$kind),)*];

        /// What the values of a request are read from.
        #[derive(Clone, Copy)]
        pub(super) enum Source<'a> {
            /// A row of the frame.
            Frame(&'a Columns, u32),
            /// An outcome of a case that still runs.
            Outcome(&'a OutcomeRow<'a>),
        }

        #[allow(dead_code, reason = "no figure is computed from some of them")]
        impl<'a> Source<'a> {
            $(pub(super) fn $field(self) -> <$kind as ColumnType>::Value<'a> {
                match self {
                    Source::Frame(columns, row) => columns.$field.get(row as usize),
                    Source::Outcome($row) => $value,
                }
            })*
        }
    };
}

fn nanos(span: Option<Nanos>) -> Option<u64> {
    span.map(|span| span.0)
}

fn audio(row: &OutcomeRow<'_>) -> Audio {
    row.outcome.audio.as_deref().copied().unwrap_or_default()
}

fn failure<'a>(row: &OutcomeRow<'a>) -> Option<&'a Failure> {
    row.outcome.end.as_ref().err()
}

fn answer<'a>(row: &OutcomeRow<'a>) -> Option<&'a CheckedAnswer> {
    row.outcome.answer.as_deref()
}

fn failed_check<'a>(row: &OutcomeRow<'a>) -> Option<&'a FailedCheck> {
    answer(row)?.failed.as_ref()
}

fn finish_reason(outcome: &Outcome) -> Option<&str> {
    outcome
        .end
        .as_ref()
        .ok()
        .map(|finish| finish.reason.as_str())
}

columns! {
    case Text = s::CASE_ID, |row| Some(row.case);
    seq U64 = s::SEQ, |row| Some(row.outcome.seq);
    turn U32 = s::TURN, |row| Some(row.outcome.turn);
    turns U32 = s::TURNS, |row| Some(row.outcome.turns);
    first_turn U32 = s::FIRST_TURN, |row| Some(row.outcome.first_turn);
    group Text = s::GROUP, |row| row.outcome.group.as_deref();
    round U32 = s::ROUND, |row| Some(row.round);
    shard U32 = s::SHARD, |row| Some(row.shard);
    phase Text = s::PHASE, |row| Some(row.outcome.phase.name());
    status U32 = s::STATUS, |row| row.outcome.status.map(u32::from);
    model Text = s::MODEL, |row| Some(&row.outcome.model);
    endpoint Text = s::ENDPOINT, |row| row.outcome.endpoint.as_deref();
    kept_headers Text = s::KEPT_HEADERS, |row| row.outcome.kept_headers.as_deref();
    streamed Flag = s::STREAMED, |row| Some(row.outcome.streamed);
    intended U64 = s::INTENDED, |row| Some(row.outcome.timeline.intended.0);
    held_until U64 = s::HELD_UNTIL, |row| nanos(row.outcome.held_until);
    sent U64 = s::SENT, |row| nanos(row.outcome.timeline.sent);
    last_sent U64 = s::LAST_SENT, |row| nanos(row.outcome.timeline.last_sent);
    headers U64 = s::HEADERS, |row| nanos(row.outcome.timeline.headers);
    first_chunk U64 = s::FIRST_CHUNK, |row| nanos(row.outcome.timeline.first_chunk);
    end U64 = s::END, |row| Some(row.outcome.timeline.end.0);
    session_duration U64 = s::SESSION_DURATION, |row| nanos(row.outcome.session_duration);
    events U64List = s::TOKEN_EVENTS, |row| row.events.as_slice();
    choices U32List = s::TOKEN_CHOICES, |row| row.outcome.timeline.choices.as_slice();
    weights U32List = s::TOKEN_WEIGHTS, |row| row.outcome.timeline.weights.as_slice();
    reasoning U32 = s::REASONING_EVENTS, |row| Some(row.outcome.timeline.reasoning);
    reads U32 = s::READS, |row| Some(row.outcome.reads);
    bytes_in U64 = s::BYTES_IN, |row| Some(row.outcome.bytes_in);
    bytes_out U64 = s::BYTES_OUT, |row| Some(row.outcome.bytes_out);
    reconnects U32 = s::RECONNECTS, |row| Some(row.outcome.reconnects);
    attempts U32 = s::ATTEMPTS, |row| Some(row.outcome.attempts);
    usage_prompt U64 = s::USAGE_PROMPT, |row| row.outcome.usage.prompt;
    usage_output U64 = s::USAGE_OUTPUT, |row| row.outcome.usage.output;
    usage_reasoning U64 = s::USAGE_REASONING, |row| row.outcome.usage.reasoning;
    usage_cached U64 = s::USAGE_CACHED, |row| row.outcome.usage.cached;
    counted_prompt U64 = s::COUNTED_PROMPT, |row| row.outcome.counted.prompt;
    counted_output U64 = s::COUNTED_OUTPUT, |row| row.outcome.counted.output;
    approximate Flag = s::COUNTED_APPROXIMATE, |row| Some(row.outcome.counted.approximate);
    cacheable U64 = s::COUNTED_CACHEABLE, |row| row.outcome.cacheable_tokens;
    items U64 = s::ITEM_COUNT, |row| row.outcome.items;
    audio_duration U64 = s::AUDIO_DURATION, |row| nanos(audio(row).duration);
    first_audio U64 = s::FIRST_AUDIO, |row| nanos(audio(row).first);
    playback_underruns U32 = s::PLAYBACK_UNDERRUNS, |row| audio(row).playback.map(|playback| playback.underruns);
    playback_stalled U64 = s::PLAYBACK_STALLED, |row| nanos(audio(row).playback.map(|playback| playback.stalled));
    server_queue U64 = s::SERVER_QUEUE, |row| nanos(row.outcome.server.queue);
    server_load U64 = s::SERVER_LOAD, |row| nanos(row.outcome.server.load);
    server_prefill U64 = s::SERVER_PREFILL, |row| nanos(row.outcome.server.prefill);
    server_decode U64 = s::SERVER_DECODE, |row| nanos(row.outcome.server.decode);
    server_total U64 = s::SERVER_TOTAL, |row| nanos(row.outcome.server.total);
    max_tokens U64 = s::MAX_TOKENS, |row| row.outcome.max_tokens;
    response_id Text = s::RESPONSE_ID, |row| row.outcome.response_id.as_deref();
    request_id Text = s::REQUEST_ID, |row| row.outcome.request_id.as_deref();
    finish Text = s::FINISH_REASON, |row| finish_reason(row.outcome);
    outcome Text = s::OUTCOME, |row| Some(row.outcome.outcome_name());
    message Text = s::ERROR, |row| failure(row).map(|failure| failure.message.as_str());
    at Text = s::ERROR_AT, |row| failure(row).map(|failure| failure.at.as_str());
    valid Flag = s::VALID, |row| answer(row).and_then(|answer| answer.valid);
    matches Flag = s::MATCH, |row| answer(row).and_then(|answer| answer.matches);
    length_exact Flag = s::LENGTH_EXACT, |row| answer(row).and_then(|answer| answer.length_exact);
    failed_check Text = s::FAILED_CHECK, |row| failed_check(row).map(|failed| failed.check.name());
    failed_reason Text = s::FAILED_REASON, |row| failed_check(row).map(|failed| failed.reason.as_str());
    failed_answer Text = s::FAILED_ANSWER, |row| answer(row).and_then(|answer| answer.text.as_deref());
    reasoning_received Flag = s::REASONING_RECEIVED, |row| Some(row.outcome.reply.reasoning_received);
    characters U64 = s::CHARACTERS, |row| Some(row.outcome.reply.characters);
    replacement_characters U64 = s::REPLACEMENT_CHARACTERS, |row| Some(row.outcome.reply.replacement_characters);
    weights_counted Flag = s::WEIGHTS_COUNTED, |row| Some(row.outcome.reply.weights_counted);
    prompt_hash U64 = s::PROMPT_HASH, |row| row.outcome.prompt_hash;
    anomalies Text = s::ANOMALIES, |row| row.anomalies.as_deref();
}
