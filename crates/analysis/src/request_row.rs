//! One row of the request table: its raw facts, and the metrics that follow from them.
//!
//! Every per-request metric is computed here and nowhere else: columns of the file, summaries, verdicts and live figures call
//! [`RequestRow::metric`].

use crate::columns::Columns;
use crate::error::FrameError;
use crate::measured_requests::meets_limit;
use crate::schema::{self as s, Kind};
use crate::settle::SETTLING;
use crate::table::{BESIDE, Table, phase_word};
use llmscen_core::check::RequestLimit;
use llmscen_core::metric::Metric;
use llmscen_core::outcome::{FailureKind, Phase};
use llmscen_core::report::TokenSource;
use polars::prelude::*;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

/// The raw facts of one request, read where they lie: a copy of all of them would be far larger. Stamps are nanoseconds since the
/// start of the case.
#[derive(Clone, Copy)]
pub(super) struct RequestRow<'a> {
    columns: &'a Columns,
    row: u32,
}

impl fmt::Debug for RequestRow<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "row {} (request {}, turn {}, round {})", self.row, self.seq(), self.turn(), self.round())
    }
}

/// Facts that every row has, or those that may be absent.
macro_rules! facts {
    ($($(#[$doc:meta])* $name:ident: $kind:ty;)*) => {
        impl RequestRow<'_> {
            $($(#[$doc])* pub(super) fn $name(&self) -> $kind { self.columns.$name.get(self.row as usize).into_fact() })*
        }
    };
}

trait IntoFact<T> {
    fn into_fact(self) -> T;
}

impl<T: Default> IntoFact<T> for Option<T> {
    fn into_fact(self) -> T {
        self.unwrap_or_default()
    }
}

impl<T> IntoFact<Option<T>> for Option<T> {
    fn into_fact(self) -> Option<T> {
        self
    }
}

facts! {
    seq: u64;
    turn: u32;
    turns: u32;
    round: u32;
    intended: u64;
    sent: Option<u64>;
    first_chunk: Option<u64>;
    reasoning: Option<u32>;
    end: u64;
    items: Option<u64>;
    reconnects: u32;
    attempts: u32;
    usage_prompt: Option<u64>;
    usage_output: Option<u64>;
    usage_reasoning: Option<u64>;
    usage_cached: Option<u64>;
    counted_prompt: Option<u64>;
    counted_output: Option<u64>;
    approximate: bool;
    server_queue: Option<u64>;
    server_load: Option<u64>;
    server_prefill: Option<u64>;
    server_decode: Option<u64>;
    server_total: Option<u64>;
    status: Option<u32>;
}

impl<'a> RequestRow<'a> {
    /// A row of these columns.
    pub(super) fn at(columns: &'a Columns, row: usize) -> RequestRow<'a> {
        RequestRow { columns, row: row as u32 }
    }

    fn place(&self) -> usize {
        self.row as usize
    }

    pub(super) fn group(&self) -> Option<&'a Arc<str>> {
        self.columns.group.get(self.place())
    }

    pub(super) fn model(&self) -> &'a str {
        self.columns.model.get(self.place()).map_or("", |model| model)
    }

    fn phase(&self) -> &'a str {
        self.columns.phase.get(self.place()).map_or("", |word| word)
    }

    pub(super) fn measured(&self) -> bool {
        self.phase() == phase_word(Phase::Measured)
    }

    /// Whether it is of the start of an open loop, which is not measured.
    pub(super) fn settling(&self) -> bool {
        self.phase() == SETTLING
    }

    /// Whether it is measured, or would be if it were not of the start.
    pub(super) fn counted(&self) -> bool {
        self.measured() || self.settling()
    }

    /// Its place in the table.
    pub(super) fn row_index(&self) -> u32 {
        self.row
    }

    /// Whether it belongs to the case. Others are kept to count what was in flight.
    pub(super) fn own(&self) -> bool {
        self.phase() != BESIDE
    }

    fn streamed(&self) -> bool {
        self.columns.streamed.get(self.place()).unwrap_or_default()
    }

    /// Token events; none for a response that was not streamed, whatever it was stamped with.
    pub(super) fn events(&self) -> &'a [u64] {
        if self.streamed() { self.columns.events.get(self.place()) } else { &[] }
    }

    /// The choice of each of them; empty where all belong to the first.
    pub(super) fn choices(&self) -> &'a [u32] {
        if self.streamed() { self.columns.choices.get(self.place()) } else { &[] }
    }

    /// The tokens in each of them; empty where the server did not tell.
    pub(super) fn weights(&self) -> &'a [u32] {
        if self.streamed() { self.columns.weights.get(self.place()) } else { &[] }
    }

    /// The first stamp that a token event left, and the last, whether the response was streamed or not.
    pub(super) fn first_and_last_stamp(&self) -> [Option<u64>; 2] {
        let stamps = self.columns.events.get(self.place());
        [stamps.first().copied(), stamps.last().copied()]
    }

    /// None: it succeeded.
    pub(super) fn failure(&self) -> Option<FailureKind> {
        self.columns.outcome.get(self.place()).and_then(|word| FailureKind::parse(word))
    }

    pub(super) fn ok(&self) -> bool {
        self.columns.outcome.get(self.place()).is_some_and(|word| &**word == OK)
    }

    /// Whether its user left, as the scenario says.
    pub(super) fn left(&self) -> bool {
        self.failure() == Some(FailureKind::Abandoned)
    }

    pub(super) fn message(&self) -> &'a str {
        self.columns.message.get(self.place()).map_or("", |word| word)
    }

    pub(super) fn at_place(&self) -> &'a str {
        self.columns.at.get(self.place()).map_or("", |word| word)
    }
}

/// The word of a request that succeeded.
const OK: &str = "ok";

impl Table {
    /// A range of the rows.
    pub(super) fn rows(&self, range: Range<usize>) -> Vec<RequestRow<'_>> {
        range.map(|row| RequestRow::at(&self.columns, row)).collect()
    }

    /// The rows of one case, in the order of (round, seq, turn).
    pub(super) fn rows_of_case(&self, id: &str) -> Vec<RequestRow<'_>> {
        self.rows(self.case_range(id))
    }
}

/// Checks the words of columns that were read from a file.
pub(super) fn check_words(columns: &Columns) -> Result<(), FrameError> {
    let known = [phase_word(Phase::Measured), phase_word(Phase::Warmup), BESIDE, SETTLING];
    let phase = columns.phase.misfit(|word| known.contains(&word)).map(|row| (s::PHASE, row, columns.phase.get(row)));
    let outcome = || columns.outcome.misfit(|word| word == OK || FailureKind::parse(word).is_some());
    let misfit = phase.or_else(|| outcome().map(|row| (s::OUTCOME, row, columns.outcome.get(row))));
    match misfit {
        None => Ok(()),
        Some((column, row, found)) => Err(FrameError::Word { column, row, found: found.map_or("", |word| word).into() }),
    }
}

// Metrics: the table of `docs/metrics.md`, section 2, as code.

/// From `earlier` to `later` in milliseconds.
fn ms(earlier: u64, later: u64) -> f64 {
    later.saturating_sub(earlier) as f64 / 1e6
}

impl RequestRow<'_> {
    /// One per-request metric; None where it does not exist for this request.
    pub(super) fn metric(&self, metric: Metric) -> Option<f64> {
        let span = |from: Option<u64>, to: Option<u64>| Some(ms(from?, to?));
        let over = |above: Option<f64>, below: Option<f64>| Some(above? / below.filter(|&below| below > 0.0)?);
        let count = |tokens: Option<u64>| tokens.map(|tokens| tokens as f64);
        let (intended, end) = (Some(self.intended()), self.ok().then(|| self.end()));
        match metric {
            Metric::Ttft => span(intended, self.answered()),
            Metric::TtftService => span(self.sent(), self.answered()),
            Metric::TimeToFirstAnswer => span(intended, self.first_answer()),
            Metric::Ttfc => span(self.sent(), self.first_chunk()),
            Metric::TokensPerEvent => over(count(self.output_tokens()), Some(self.events().len() as f64)),
            Metric::EventsPerReply => count(Some(self.events().len() as u64).filter(|events| *events > 0 && self.ok())),
            Metric::Tpot => self.tpot(),
            Metric::Ntpot => over(self.metric(Metric::E2e), count(self.output_tokens())),
            Metric::E2e => span(intended, end),
            Metric::E2eService => span(self.sent(), end),
            Metric::ScheduleLag => span(intended, self.sent()),
            Metric::PromptTokens => count(self.prompt_tokens()),
            Metric::OutputTokens => count(self.output_tokens()),
            Metric::ReasoningTokens => count(self.usage_reasoning()),
            Metric::CachedTokens => count(self.usage_cached()),
            Metric::PrefillTps => over(count(self.prompt_tokens()), self.metric(Metric::TtftService)).map(|per_ms| per_ms * 1e3),
            Metric::DecodeTps => over(Some(1e3), self.tpot()),
            Metric::OutputTpsPerRequest => over(count(self.output_tokens()), self.metric(Metric::E2e)).map(|per_ms| per_ms * 1e3),
            Metric::TotalTpsPerRequest => {
                let both = self.prompt_tokens().zip(self.output_tokens()).map(|(prompt, output)| prompt.saturating_add(output));
                over(count(both), self.metric(Metric::E2e)).map(|per_ms| per_ms * 1e3)
            }
            Metric::TtftFirstTurn => self.metric(Metric::Ttft).filter(|_| self.turns() > 1 && self.turn() == 0),
            Metric::TtftLaterTurns => self.metric(Metric::Ttft).filter(|_| self.turn() > 0),
            Metric::Items => count(self.items().filter(|_| self.ok())),
            Metric::ServerQueue => self.server_queue().map(|span| ms(0, span)),
            Metric::ServerLoad => self.server_load().map(|span| ms(0, span)),
            Metric::ServerPrefill => self.server_prefill().map(|span| ms(0, span)),
            Metric::ServerDecode => self.server_decode().map(|span| ms(0, span)),
            Metric::ServerTotal => self.server_total().map(|span| ms(0, span)),
            Metric::TtftPerPromptToken => over(self.metric(Metric::Ttft), count(self.prompt_tokens())),
            _ => None,
        }
    }

    /// The first token of a stream that was ok, or that its user left.
    pub(super) fn answered(&self) -> Option<u64> {
        self.events().first().copied().filter(|_| self.ok() || self.left())
    }

    /// The first token that is not reasoning, where the server streamed or counted reasoning.
    pub(super) fn first_answer(&self) -> Option<u64> {
        let reasoning = self.reasoning()?;
        let reasoned = reasoning > 0 || self.usage_reasoning().is_some_and(|tokens| tokens > 0);
        let first = self.events().get(reasoning as usize).copied();
        first.filter(|_| reasoned && (self.ok() || self.left()))
    }

    /// The first and the last token of each choice that has any, in the order of their numbers.
    pub(super) fn spans(&self) -> Vec<(u64, u64)> {
        if self.choices().is_empty() {
            return self.events().first().copied().zip(self.events().last().copied()).into_iter().collect();
        }
        let mut spans: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
        for (place, &event) in self.events().iter().enumerate() {
            spans.entry(self.choice(place)).or_insert((event, event)).1 = event;
        }
        spans.into_values().collect()
    }

    fn choice(&self, event: usize) -> u32 {
        self.choices().get(event).copied().unwrap_or(0)
    }

    /// The time per output token over all choices, each from its own first to its own last token. Where a whole reply came in
    /// one read, its pace was not seen: that is no pace of 0 ms.
    fn tpot(&self) -> Option<f64> {
        let spans = self.spans();
        let steps = self.output_tokens()?.checked_sub(spans.len() as u64).filter(|&steps| steps > 0)?;
        let time: f64 = spans.iter().map(|(first, last)| ms(*first, *last)).sum();
        (time > 0.0).then(|| time / steps as f64)
    }

    /// The server's count, or else this side's.
    pub(super) fn prompt_tokens(&self) -> Option<u64> {
        self.usage_prompt().or(self.counted_prompt())
    }

    /// The server's count, or else this side's, or else the number of content events.
    pub(super) fn output_tokens(&self) -> Option<u64> {
        match self.token_source()? {
            TokenSource::Usage => self.usage_output(),
            TokenSource::Tokenizer => self.counted_output(),
            TokenSource::Events => Some(self.events().len() as u64),
        }
    }

    /// Where `output_tokens` comes from.
    pub(super) fn token_source(&self) -> Option<TokenSource> {
        match (self.usage_output(), self.counted_output()) {
            (Some(_), _) => Some(TokenSource::Usage),
            (None, Some(_)) => Some(TokenSource::Tokenizer),
            (None, None) => (!self.events().is_empty()).then_some(TokenSource::Events),
        }
    }

    /// Gaps between successive token events of one choice in milliseconds; those within one socket read are 0.
    pub(super) fn gaps(&self) -> Vec<f64> {
        if self.choices().is_empty() {
            return self.events().windows(2).filter_map(|pair| Some(ms(*pair.first()?, *pair.last()?))).collect();
        }
        let mut latest: BTreeMap<u32, u64> = BTreeMap::new();
        let timed = self.events().iter().enumerate();
        timed.filter_map(|(place, &event)| latest.insert(self.choice(place), event).map(|earlier| ms(earlier, event))).collect()
    }

    /// Output tokens that a token event stands for: as the server counted, else an equal share.
    pub(super) fn event_weight(&self, event: usize) -> f64 {
        match self.weights().get(event) {
            Some(&tokens) => f64::from(tokens),
            None => self.metric(Metric::TokensPerEvent).unwrap_or(0.0),
        }
    }

    /// Output tokens of the token events in this range.
    pub(super) fn tokens_in(&self, events: std::ops::Range<usize>) -> f64 {
        match self.weights().get(events.clone()) {
            Some(weights) if !self.weights().is_empty() => weights.iter().copied().map(f64::from).sum(),
            _ => events.len() as f64 * self.metric(Metric::TokensPerEvent).unwrap_or(0.0),
        }
    }

    /// How long it kept its user busy in milliseconds; 0 where it was never sent.
    pub(super) fn busy_ms(&self) -> f64 {
        self.sent().map_or(0.0, |sent| ms(sent, self.end()))
    }

    /// Whether it is ok and meets every limit.
    pub(super) fn meets(&self, limits: &[RequestLimit]) -> bool {
        let gaps = if limits.iter().any(|limit| limit.metric == Metric::Itl) { self.gaps() } else { Vec::new() };
        self.ok() && limits.iter().all(|limit| meets_limit(limit, |metric| self.metric(metric), &gaps))
    }
}

/// A column that follows from these rows; None where that is none of its names.
pub(super) fn derived_column(facts: &[RequestRow<'_>], name: &str) -> Option<Column> {
    let stamps = |place: usize| facts.iter().map(move |fact| fact.first_and_last_stamp().get(place).copied().flatten());
    match name {
        s::FIRST_TOKEN => Some(UInt64Chunked::from_iter_options(name.into(), stamps(0)).into_column()),
        s::LAST_TOKEN => Some(UInt64Chunked::from_iter_options(name.into(), stamps(1)).into_column()),
        s::TOKEN_SOURCE => {
            let source = facts.iter().map(|fact| fact.token_source().map(source_word));
            Some(StringChunked::from_iter_options(name.into(), source).into_column())
        }
        s::CHOICES => {
            let counts = facts.iter().map(|fact| Some(fact.spans().len() as u32).filter(|count| *count > 0));
            Some(UInt32Chunked::from_iter_options(name.into(), counts).into_column())
        }
        // When each choice began and ended, where there were several.
        s::CHOICE_TTFT => Some(choice_times(facts, name, |span| span.0)),
        s::CHOICE_TTLT => Some(choice_times(facts, name, |span| span.1)),
        _ => {
            let metric = *Metric::ALL.iter().find(|metric| metric.column() == name)?;
            metric_column(facts, metric, s::of_metric(metric)?)
        }
    }
}

fn choice_times(facts: &[RequestRow<'_>], name: &str, get: fn(&(u64, u64)) -> u64) -> Column {
    let mut list = ListPrimitiveChunkedBuilder::<Float64Type>::new(name.into(), facts.len(), 0, DataType::Float64);
    for fact in facts {
        match fact.spans() {
            spans if spans.len() < 2 => list.append_null(),
            spans => list.append_values_iter(spans.iter().map(|span| ms(fact.intended(), get(span)))),
        }
    }
    list.finish().into_column()
}

fn metric_column(facts: &[RequestRow<'_>], metric: Metric, kind: Kind) -> Option<Column> {
    let (name, values) = (PlSmallStr::from(metric.column()), facts.iter().map(|fact| fact.metric(metric)));
    match kind {
        Kind::F64 => Some(Float64Chunked::from_iter_options(name, values).into_column()),
        Kind::U64 => Some(UInt64Chunked::from_iter_options(name, values.map(|value| value.map(|v| v as u64))).into_column()),
        Kind::F64List => Some(gap_column(facts, name)),
        _ => None,
    }
}

/// The gaps of each row; null where it has none.
fn gap_column(facts: &[RequestRow<'_>], name: PlSmallStr) -> Column {
    let events = facts.iter().map(|fact| fact.events().len()).sum();
    let mut list = ListPrimitiveChunkedBuilder::<Float64Type>::new(name, facts.len(), events, DataType::Float64);
    for fact in facts {
        match fact.gaps() {
            gaps if gaps.is_empty() => list.append_null(),
            gaps => list.append_slice(&gaps),
        }
    }
    list.finish().into_column()
}

/// The word of the `token_source` column.
pub(super) fn source_word(source: TokenSource) -> &'static str {
    match source {
        TokenSource::Usage => "usage",
        TokenSource::Tokenizer => "tokenizer",
        TokenSource::Events => "events",
    }
}

#[cfg(test)]
mod tests;
