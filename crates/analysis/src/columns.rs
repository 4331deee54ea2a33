//! The raw columns of a run in memory. A column of equal values is stored as one value, and a repeated text once.

use crate::schema as s;
use llmscen_core::expect::{CheckedAnswer, FailedCheck};
use llmscen_core::outcome::{Audio, Failure, Outcome};
use llmscen_core::units::Nanos;
use llmscen_parquet::{ParquetError, list_array};
use polars_arrow::array::{
    Array, BooleanArray, ListArray, MutableBinaryViewArray, PrimitiveArray, StaticArray,
    Utf8ViewArray,
};
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

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

/// A stored column.
trait RawColumn: Sized {
    /// The values of these rows, in this order.
    fn pick(&self, rows: &[u32]) -> Self;

    /// Appends the values of an array of the column's kind.
    fn extend(&mut self, read: &dyn Array);

    /// A range as an array of the column's kind.
    fn array(&self, rows: Range<usize>) -> Result<Box<dyn Array>, ParquetError>;
}

/// Nullable numbers or flags.
#[derive(Clone, Debug, Default)]
pub(super) struct Numbers<T> {
    len: usize,
    /// The value of all rows, as long as `values` is empty.
    constant: Option<T>,
    values: Vec<T>,
    /// Validity bits; empty as long as no value is null.
    valid: Vec<u64>,
}

impl<T: Copy + Default + PartialEq> Numbers<T> {
    fn push(&mut self, value: Option<T>) {
        if self.len == 0 {
            self.constant = value;
        } else if self.values.is_empty() && value != self.constant {
            self.values = vec![self.constant.unwrap_or_default(); self.len];
            self.valid = if self.constant.is_some() {
                Vec::new()
            } else {
                vec![0; self.len.div_ceil(64)]
            };
        }
        if !self.values.is_empty() {
            self.values.push(value.unwrap_or_default());
            if value.is_none() && self.valid.is_empty() {
                self.valid = vec![u64::MAX; self.len.div_ceil(64)];
            }
            if !self.valid.is_empty() {
                self.valid.resize((self.len + 1).div_ceil(64), 0);
                let bit = 1 << (self.len % 64);
                if let Some(word) = self.valid.get_mut(self.len / 64) {
                    *word = if value.is_some() {
                        *word | bit
                    } else {
                        *word & !bit
                    };
                }
            }
        }
        self.len += 1;
    }

    pub(super) fn get(&self, row: usize) -> Option<T> {
        if self.values.is_empty() {
            return self.constant.filter(|_| row < self.len);
        }
        let is_valid = self
            .valid
            .get(row / 64)
            .is_none_or(|word| word & 1 << (row % 64) != 0);
        self.values.get(row).copied().filter(|_| is_valid)
    }

    fn has_nulls(&self) -> bool {
        self.len > 0
            && if self.values.is_empty() {
                self.constant.is_none()
            } else {
                !self.valid.is_empty()
            }
    }

    fn collect(len: usize, all: impl Iterator<Item = Option<T>>) -> Numbers<T> {
        let mut numbers = Numbers::default();
        for value in all {
            numbers.push(value);
            if numbers.values.len() > 1 && numbers.values.capacity() < len {
                numbers.values.reserve_exact(len - numbers.values.len());
            }
        }
        numbers
    }
}

macro_rules! numbers {
    ($($number:ty, $array:ty;)*) => {$(
        impl RawColumn for Numbers<$number> {
            fn pick(&self, rows: &[u32]) -> Self {
                Numbers::collect(rows.len(), rows.iter().map(|row| self.get(*row as usize)))
            }

            fn extend(&mut self, read: &dyn Array) {
                let array = read.as_any().downcast_ref::<$array>();
                (0..read.len()).for_each(|row| self.push(array.and_then(|array| array.get(row))));
            }

            fn array(&self, rows: Range<usize>) -> Result<Box<dyn Array>, ParquetError> {
                Ok(rows.map(|row| self.get(row)).collect::<$array>().boxed())
            }
        }
    )*};
}

numbers! {
    u32, PrimitiveArray<u32>;
    u64, PrimitiveArray<u64>;
    bool, BooleanArray;
}

/// The texts of an array.
fn texts(array: &dyn Array) -> impl Iterator<Item = Option<&str>> {
    let texts = array.as_any().downcast_ref::<Utf8ViewArray>();
    (0..array.len()).map(move |row| texts?.get(row))
}

/// A column of texts.
pub(super) fn text_array<'a>(texts: impl Iterator<Item = Option<&'a str>>) -> Box<dyn Array> {
    let array: MutableBinaryViewArray<str> = texts.collect();
    Utf8ViewArray::from(array).boxed()
}

/// Nullable texts with few different values, stored as codes.
#[derive(Clone, Debug, Default)]
pub(super) struct Dictionary {
    codes: Numbers<u32>,
    words: Vec<Arc<str>>,
    code_of: HashMap<Arc<str>, u32>,
}

impl Dictionary {
    pub(super) fn push(&mut self, word: Option<&str>) {
        let code = word.map(|word| self.code(word));
        self.codes.push(code);
    }

    /// The code of a word, which is added where it is new.
    pub(super) fn code(&mut self, word: &str) -> u32 {
        if let Some(code) = self.code_of.get(word) {
            return *code;
        }
        let (code, word) = (self.words.len() as u32, Arc::<str>::from(word));
        self.words.push(word.clone());
        self.code_of.insert(word, code);
        code
    }

    pub(super) fn get(&self, row: usize) -> Option<&Arc<str>> {
        self.words.get(self.codes.get(row)? as usize)
    }

    /// The code in a row.
    pub(super) fn code_at(&self, row: usize) -> Option<u32> {
        self.codes.get(row)
    }

    /// The code of a word that the column contains.
    pub(super) fn find_code(&self, word: &str) -> Option<u32> {
        self.code_of.get(word).copied()
    }

    /// The first row that is null or has an invalid word.
    pub(super) fn first_invalid(&self, is_valid: impl Fn(&str) -> bool) -> Option<usize> {
        let valid: Vec<bool> = self.words.iter().map(|word| is_valid(word)).collect();
        let invalid = |row: &usize| {
            self.codes
                .get(*row)
                .is_none_or(|code| !valid.get(code as usize).is_some_and(|valid| *valid))
        };
        // Most columns need no scan of their rows.
        let any = self.codes.has_nulls() || valid.contains(&false);
        if any {
            (0..self.codes.len).find(invalid)
        } else {
            None
        }
    }
}

impl<'a> FromIterator<Option<&'a str>> for Dictionary {
    fn from_iter<I: IntoIterator<Item = Option<&'a str>>>(all: I) -> Dictionary {
        let mut dictionary = Dictionary::default();
        all.into_iter().for_each(|word| dictionary.push(word));
        dictionary
    }
}

impl RawColumn for Dictionary {
    fn pick(&self, rows: &[u32]) -> Dictionary {
        Dictionary {
            codes: self.codes.pick(rows),
            words: self.words.clone(),
            code_of: self.code_of.clone(),
        }
    }

    fn extend(&mut self, read: &dyn Array) {
        texts(read).for_each(|word| self.push(word));
    }

    fn array(&self, rows: Range<usize>) -> Result<Box<dyn Array>, ParquetError> {
        Ok(text_array(
            rows.map(|row| self.get(row).map(|word| &**word)),
        ))
    }
}

/// Nullable texts that are nearly all different.
#[derive(Clone, Debug, Default)]
pub(super) struct Texts {
    valid: Numbers<bool>,
    bytes: Lists<u8>,
}

impl Texts {
    fn push(&mut self, text: Option<&str>) {
        self.valid.push(Some(text.is_some()));
        self.bytes.push(text.unwrap_or_default().bytes());
    }

    pub(super) fn get(&self, row: usize) -> Option<&str> {
        self.valid.get(row).filter(|valid| *valid)?;
        std::str::from_utf8(self.bytes.get(row)).ok()
    }
}

impl RawColumn for Texts {
    fn pick(&self, rows: &[u32]) -> Texts {
        Texts {
            valid: self.valid.pick(rows),
            bytes: self.bytes.pick(rows),
        }
    }

    fn extend(&mut self, read: &dyn Array) {
        texts(read).for_each(|text| self.push(text));
    }

    fn array(&self, rows: Range<usize>) -> Result<Box<dyn Array>, ParquetError> {
        Ok(text_array(rows.map(|row| self.get(row))))
    }
}

/// Lists of numbers, all in one buffer.
#[derive(Clone, Debug, Default)]
pub(super) struct Lists<T> {
    len: usize,
    /// End of each list in `values`; empty as long as all lists are empty.
    ends: Vec<u64>,
    values: Vec<T>,
}

impl<T: Copy> Lists<T> {
    /// Empty, with memory for as many lists and values.
    pub(super) fn with_capacity(lists: usize, values: usize) -> Lists<T> {
        Lists {
            len: 0,
            ends: Vec::with_capacity(lists),
            values: Vec::with_capacity(values),
        }
    }

    pub(super) fn push(&mut self, list: impl Iterator<Item = T>) {
        self.values.extend(list);
        if self.ends.is_empty() && !self.values.is_empty() {
            self.ends.resize(self.len, 0);
        }
        if !self.values.is_empty() {
            self.ends.push(self.values.len() as u64);
        }
        self.len += 1;
    }

    fn range(&self, row: usize) -> Range<usize> {
        let end = |row: usize| self.ends.get(row).map(|end| *end as usize);
        let from = row.checked_sub(1).map_or(Some(0), end);
        from.zip(end(row)).map_or(0..0, |(from, to)| from..to)
    }

    pub(super) fn get(&self, row: usize) -> &[T] {
        self.values.get(self.range(row)).unwrap_or_default()
    }

    pub(super) fn get_mut(&mut self, row: usize) -> &mut [T] {
        let range = self.range(row);
        self.values.get_mut(range).unwrap_or_default()
    }

    fn pick(&self, rows: &[u32]) -> Lists<T> {
        let values = rows.iter().map(|row| self.get(*row as usize).len()).sum();
        let mut lists = Lists::with_capacity(if values > 0 { rows.len() } else { 0 }, values);
        rows.iter()
            .for_each(|row| lists.push(self.get(*row as usize).iter().copied()));
        lists
    }
}

macro_rules! lists {
    ($($item:ty;)*) => {$(
        impl RawColumn for Lists<$item> {
            fn pick(&self, rows: &[u32]) -> Self {
                Lists::pick(self, rows)
            }

            fn extend(&mut self, read: &dyn Array) {
                let lists = read.as_any().downcast_ref::<ListArray<i64>>();
                let items = lists.and_then(|lists| lists.values().as_any().downcast_ref::<PrimitiveArray<$item>>());
                for row in 0..read.len() {
                    let bounds = lists.filter(|lists| lists.is_valid(row)).map(|lists| lists.offsets().start_end(row));
                    let (from, to) = bounds.unwrap_or_default();
                    self.push((from..to).filter_map(|item| items?.get(item)));
                }
            }

            fn array(&self, rows: Range<usize>) -> Result<Box<dyn Array>, ParquetError> {
                list_array(rows.len(), rows.map(|row| Some(self.get(row).iter().copied())))
            }
        }
    )*};
}

lists! {
    u32;
    u64;
}

macro_rules! columns {
    ($($field:ident $kind:ty = $name:path, |$row:ident| $value:expr;)*) => {
        /// The stored columns; the other columns of the file are derived from them.
        #[derive(Clone, Debug, Default)]
        pub(super) struct Columns {
            len: usize,
            $(pub(super) $field: $kind,)*
        }

        impl Columns {
            pub(super) fn push(&mut self, row: &TaggedOutcome<'_>) {
                $({ let $row = row; self.$field.push($value); })*
                self.len += 1;
            }

            /// These rows, in this order.
            pub(super) fn pick(&self, rows: &[u32]) -> Columns {
                Columns { len: rows.len(), $($field: self.$field.pick(rows),)* }
            }

            /// Reorders the rows, one column at a time.
            pub(super) fn reorder(&mut self, rows: &[u32]) {
                $(self.$field = self.$field.pick(rows);)*
            }

            /// Appends the values of a column that was read, which has the kind of the schema. An unknown one is skipped.
            pub(super) fn extend(&mut self, name: &str, read: &dyn Array) {
                match name {
                    $($name => self.$field.extend(read),)*
                    _ => (),
                }
            }

            /// Whether a column of the file is stored.
            pub(super) fn is_stored(name: &str) -> bool {
                matches!(name, $($name)|*)
            }

            /// A range of a stored column; None for an unknown name.
            pub(super) fn column(&self, name: &str, rows: Range<usize>) -> Result<Option<Box<dyn Array>>, ParquetError> {
                match name {
                    $($name => self.$field.array(rows).map(Some),)*
                    _ => Ok(None),
                }
            }
        }
    };
}

fn nanos(span: Option<Nanos>) -> Option<u64> {
    span.map(|span| span.0)
}

fn audio(row: &TaggedOutcome<'_>) -> Audio {
    row.outcome.audio.as_deref().copied().unwrap_or_default()
}

fn failure<'a>(row: &TaggedOutcome<'a>) -> Option<&'a Failure> {
    row.outcome.end.as_ref().err()
}

fn answer<'a>(row: &TaggedOutcome<'a>) -> Option<&'a CheckedAnswer> {
    row.outcome.answer.as_deref()
}

fn failed_check<'a>(row: &TaggedOutcome<'a>) -> Option<&'a FailedCheck> {
    answer(row)?.failed.as_ref()
}

/// The anomalies of a reply, separated by spaces.
fn anomalies(outcome: &Outcome) -> Option<String> {
    let texts: Vec<String> = outcome
        .reply
        .anomalies
        .iter()
        .map(ToString::to_string)
        .collect();
    (!texts.is_empty()).then(|| texts.join(" "))
}

fn finish_reason(outcome: &Outcome) -> Option<&str> {
    outcome
        .end
        .as_ref()
        .ok()
        .map(|finish| finish.reason.as_str())
}

columns! {
    case Dictionary = s::CASE_ID, |row| Some(row.case);
    seq Numbers<u64> = s::SEQ, |row| Some(row.outcome.seq);
    turn Numbers<u32> = s::TURN, |row| Some(row.outcome.turn);
    turns Numbers<u32> = s::TURNS, |row| Some(row.outcome.turns);
    first_turn Numbers<u32> = s::FIRST_TURN, |row| Some(row.outcome.first_turn);
    group Dictionary = s::GROUP, |row| row.outcome.group.as_deref();
    round Numbers<u32> = s::ROUND, |row| Some(row.round);
    shard Numbers<u32> = s::SHARD, |row| Some(row.shard);
    phase Dictionary = s::PHASE, |row| Some(row.outcome.phase.name());
    status Numbers<u32> = s::STATUS, |row| row.outcome.status.map(u32::from);
    model Dictionary = s::MODEL, |row| Some(&row.outcome.model);
    endpoint Dictionary = s::ENDPOINT, |row| row.outcome.endpoint.as_deref();
    kept_headers Dictionary = s::KEPT_HEADERS, |row| row.outcome.kept_headers.as_deref();
    streamed Numbers<bool> = s::STREAMED, |row| Some(row.outcome.streamed);
    intended Numbers<u64> = s::INTENDED, |row| Some(row.outcome.timeline.intended.0);
    held_until Numbers<u64> = s::HELD_UNTIL, |row| nanos(row.outcome.held_until);
    sent Numbers<u64> = s::SENT, |row| nanos(row.outcome.timeline.sent);
    last_sent Numbers<u64> = s::LAST_SENT, |row| nanos(row.outcome.timeline.last_sent);
    headers Numbers<u64> = s::HEADERS, |row| nanos(row.outcome.timeline.headers);
    first_chunk Numbers<u64> = s::FIRST_CHUNK, |row| nanos(row.outcome.timeline.first_chunk);
    end Numbers<u64> = s::END, |row| Some(row.outcome.timeline.end.0);
    session_duration Numbers<u64> = s::SESSION_DURATION, |row| nanos(row.outcome.session_duration);
    events Lists<u64> = s::TOKEN_EVENTS, |row| row.outcome.timeline.tokens.iter().map(|stamp| stamp.0);
    choices Lists<u32> = s::TOKEN_CHOICES, |row| row.outcome.timeline.choices.iter().copied();
    weights Lists<u32> = s::TOKEN_WEIGHTS, |row| row.outcome.timeline.weights.iter().copied();
    reasoning Numbers<u32> = s::REASONING_EVENTS, |row| Some(row.outcome.timeline.reasoning);
    reads Numbers<u32> = s::READS, |row| Some(row.outcome.reads);
    bytes_in Numbers<u64> = s::BYTES_IN, |row| Some(row.outcome.bytes_in);
    bytes_out Numbers<u64> = s::BYTES_OUT, |row| Some(row.outcome.bytes_out);
    reconnects Numbers<u32> = s::RECONNECTS, |row| Some(row.outcome.reconnects);
    attempts Numbers<u32> = s::ATTEMPTS, |row| Some(row.outcome.attempts);
    usage_prompt Numbers<u64> = s::USAGE_PROMPT, |row| row.outcome.usage.prompt;
    usage_output Numbers<u64> = s::USAGE_OUTPUT, |row| row.outcome.usage.output;
    usage_reasoning Numbers<u64> = s::USAGE_REASONING, |row| row.outcome.usage.reasoning;
    usage_cached Numbers<u64> = s::USAGE_CACHED, |row| row.outcome.usage.cached;
    counted_prompt Numbers<u64> = s::COUNTED_PROMPT, |row| row.outcome.counted.prompt;
    counted_output Numbers<u64> = s::COUNTED_OUTPUT, |row| row.outcome.counted.output;
    approximate Numbers<bool> = s::COUNTED_APPROXIMATE, |row| Some(row.outcome.counted.approximate);
    cacheable Numbers<u64> = s::COUNTED_CACHEABLE, |row| row.outcome.cacheable_tokens;
    items Numbers<u64> = s::ITEM_COUNT, |row| row.outcome.items;
    audio_duration Numbers<u64> = s::AUDIO_DURATION, |row| nanos(audio(row).duration);
    first_audio Numbers<u64> = s::FIRST_AUDIO, |row| nanos(audio(row).first);
    playback_underruns Numbers<u32> = s::PLAYBACK_UNDERRUNS, |row| audio(row).playback.map(|playback| playback.underruns);
    playback_stalled Numbers<u64> = s::PLAYBACK_STALLED, |row| nanos(audio(row).playback.map(|playback| playback.stalled));
    server_queue Numbers<u64> = s::SERVER_QUEUE, |row| nanos(row.outcome.server.queue);
    server_load Numbers<u64> = s::SERVER_LOAD, |row| nanos(row.outcome.server.load);
    server_prefill Numbers<u64> = s::SERVER_PREFILL, |row| nanos(row.outcome.server.prefill);
    server_decode Numbers<u64> = s::SERVER_DECODE, |row| nanos(row.outcome.server.decode);
    server_total Numbers<u64> = s::SERVER_TOTAL, |row| nanos(row.outcome.server.total);
    max_tokens Numbers<u64> = s::MAX_TOKENS, |row| row.outcome.max_tokens;
    response_id Texts = s::RESPONSE_ID, |row| row.outcome.response_id.as_deref();
    request_id Texts = s::REQUEST_ID, |row| row.outcome.request_id.as_deref();
    finish Dictionary = s::FINISH_REASON, |row| finish_reason(row.outcome);
    outcome Dictionary = s::OUTCOME, |row| Some(row.outcome.outcome_name());
    message Dictionary = s::ERROR, |row| failure(row).map(|failure| failure.message.as_str());
    at Dictionary = s::ERROR_AT, |row| failure(row).map(|failure| failure.at.as_str());
    valid Numbers<bool> = s::VALID, |row| answer(row).and_then(|answer| answer.valid);
    matches Numbers<bool> = s::MATCH, |row| answer(row).and_then(|answer| answer.matches);
    length_exact Numbers<bool> = s::LENGTH_EXACT, |row| answer(row).and_then(|answer| answer.length_exact);
    failed_check Dictionary = s::FAILED_CHECK, |row| failed_check(row).map(|failed| failed.check.name());
    failed_reason Texts = s::FAILED_REASON, |row| failed_check(row).map(|failed| failed.reason.as_str());
    failed_answer Texts = s::FAILED_ANSWER, |row| answer(row).and_then(|answer| answer.text.as_deref());
    reasoning_received Numbers<bool> = s::REASONING_RECEIVED, |row| Some(row.outcome.reply.reasoning_received);
    characters Numbers<u64> = s::CHARACTERS, |row| Some(row.outcome.reply.characters);
    replacement_characters Numbers<u64> = s::REPLACEMENT_CHARACTERS, |row| Some(row.outcome.reply.replacement_characters);
    weights_counted Numbers<bool> = s::WEIGHTS_COUNTED, |row| Some(row.outcome.reply.weights_counted);
    prompt_hash Numbers<u64> = s::PROMPT_HASH, |row| row.outcome.prompt_hash;
    anomalies Texts = s::ANOMALIES, |row| anomalies(row.outcome).as_deref();
}

impl Columns {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Counts rows whose columns were extended one by one.
    pub(super) fn grow(&mut self, rows: usize) {
        self.len += rows;
    }
}
