//! One row of the request table: its raw values, and the metrics derived from them.
//!
//! Every per-request metric is computed here and nowhere else: the columns of the file, summaries, verdicts and live
//! metrics call [`RequestRow::metric`].

use crate::columns::{
    ColumnBuilder, Columns, F64, F64List, IntoValue, OutcomeRow, Source, Text, U32, U64, column_of,
};
use crate::error::TableError;
use crate::schema::{self as s, Kind, OUTSIDE_STAGE, SETTLING};
use llmscen_core::check::RequestLimit;
use llmscen_core::expect::AnswerCheck;
use llmscen_core::metric::Metric;
use llmscen_core::outcome::{Anomaly, Failure, FailureKind, Phase};
use llmscen_core::report::TokenSource;
use llmscen_core::token_account::TokenAccount;
use polars::prelude::Column;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::Range;

/// A row of the frame, or an outcome; neither is copied. Timestamps are nanoseconds since the start of the case.
#[derive(Clone, Copy)]
pub(super) struct RequestRow<'a>(Source<'a>);

impl fmt::Debug for RequestRow<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "row {} (request {}, turn {}, round {})",
            self.row_index(),
            self.seq(),
            self.turn(),
            self.round()
        )
    }
}

/// Accessors of columns that every row has (absent reads as the default), or that may be null (`Option`).
macro_rules! accessors {
    ($($name:ident: $kind:ty;)*) => {
        impl RequestRow<'_> {
            $(pub(super) fn $name(&self) -> $kind { self.0.$name().into_value() })*
        }
    };
}

accessors! {
    seq: u64;
    turn: u32;
    turns: u32;
    first_turn: u32;
    round: u32;
    shard: u32;
    intended: u64;
    sent: Option<u64>;
    held_until: Option<u64>;
    first_chunk: Option<u64>;
    reasoning: Option<u32>;
    end: u64;
    items: Option<u64>;
    audio_duration: Option<u64>;
    first_audio: Option<u64>;
    playback_underruns: Option<u32>;
    playback_stalled: Option<u64>;
    reconnects: u32;
    attempts: u32;
    usage_prompt: Option<u64>;
    usage_output: Option<u64>;
    usage_reasoning: Option<u64>;
    usage_cached: Option<u64>;
    counted_prompt: Option<u64>;
    counted_output: Option<u64>;
    approximate: bool;
    cacheable: Option<u64>;
    session_duration: Option<u64>;
    server_queue: Option<u64>;
    server_load: Option<u64>;
    server_prefill: Option<u64>;
    server_decode: Option<u64>;
    server_total: Option<u64>;
    status: Option<u32>;
    max_tokens: Option<u64>;
    valid: Option<bool>;
    matches: Option<bool>;
    length_exact: Option<bool>;
    reasoning_received: Option<bool>;
    characters: Option<u64>;
    replacement_characters: Option<u64>;
    weights_counted: bool;
    prompt_hash: Option<u64>;
}

impl<'a> RequestRow<'a> {
    pub(super) fn new(columns: &'a Columns, row: usize) -> RequestRow<'a> {
        RequestRow(Source::Frame(columns, row as u32))
    }

    pub(super) fn of_outcome(outcome: &'a OutcomeRow<'a>) -> RequestRow<'a> {
        RequestRow(Source::Outcome(outcome))
    }

    pub(super) fn group(&self) -> Option<&'a str> {
        self.0.group()
    }

    pub(super) fn model(&self) -> &'a str {
        self.0.model().unwrap_or_default()
    }

    pub(super) fn endpoint(&self) -> Option<&'a str> {
        self.0.endpoint()
    }

    /// Whether it is the first measured turn of its session.
    pub(super) fn begins_session(&self) -> bool {
        self.turn() == self.first_turn()
    }

    pub(super) fn kept_headers(&self) -> Option<&'a str> {
        self.0.kept_headers()
    }

    /// Why a successful response ended, as sent by the server; None where it sent no reason.
    pub(super) fn finish_reason(&self) -> Option<&'a str> {
        self.0
            .finish()
            .filter(|reason| !reason.is_empty() && self.ok())
    }

    fn phase(&self) -> &'a str {
        self.0.phase().unwrap_or_default()
    }

    pub(super) fn measured(&self) -> bool {
        self.phase() == Phase::Measured.name()
    }

    /// Whether it only kept the server loaded until the last measured request had ended.
    pub(super) fn cools_down(&self) -> bool {
        self.phase() == Phase::Cooldown.name()
    }

    /// Whether it belongs to the start of an open loop, which is not measured.
    pub(super) fn settling(&self) -> bool {
        self.phase() == SETTLING
    }

    /// Whether it is measured, or belongs to the start of an open loop.
    pub(super) fn measured_or_settling(&self) -> bool {
        self.measured() || self.settling()
    }

    /// Its index in the table.
    pub(super) fn row_index(&self) -> u32 {
        match self.0 {
            Source::Frame(_, row) => row,
            Source::Outcome(_) => 0,
        }
    }

    /// Whether it belongs to the case. Rows of a stage's neighbors are kept to count requests in flight.
    pub(super) fn is_of_case(&self) -> bool {
        self.phase() != OUTSIDE_STAGE
    }

    fn streamed(&self) -> bool {
        self.0.streamed().unwrap_or_default()
    }

    /// Timestamps of the token events; none for a response that was not streamed, whatever was recorded.
    pub(super) fn events(&self) -> &'a [u64] {
        if self.streamed() {
            self.0.events()
        } else {
            &[]
        }
    }

    /// The choice of each token event; empty where all belong to the first.
    pub(super) fn choices(&self) -> &'a [u32] {
        if self.streamed() {
            self.0.choices()
        } else {
            &[]
        }
    }

    /// The tokens of each token event; empty where the server did not report them. The first one may have hidden
    /// reasoning in it, the others are tokens that arrived.
    fn weights(&self) -> &'a [u32] {
        let weights = match self.streamed() {
            true => self.0.weights(),
            false => &[],
        };
        let after_first: u64 = weights
            .iter()
            .skip(1)
            .map(|weight| u64::from(*weight))
            .sum();
        match self
            .output_tokens()
            .is_some_and(|tokens| after_first <= tokens)
        {
            true => weights,
            false => &[],
        }
    }

    /// Timestamps of the first and the last token event, whether the response was streamed or not.
    fn first_and_last_token(&self) -> [Option<u64>; 2] {
        let events = self.0.events();
        [events.first().copied(), events.last().copied()]
    }

    /// None where it succeeded.
    pub(super) fn failure(&self) -> Option<FailureKind> {
        self.0.outcome().and_then(FailureKind::parse)
    }

    pub(super) fn ok(&self) -> bool {
        self.0.outcome() == Some(OK)
    }

    /// Whether the client cancelled it because the scenario asked for it.
    pub(super) fn left(&self) -> bool {
        self.failure() == Some(FailureKind::Abandoned)
    }

    pub(super) fn message(&self) -> &'a str {
        self.0.message().unwrap_or_default()
    }

    /// Whether this machine had no file or port for its connection.
    pub(super) fn lacked_file(&self) -> bool {
        self.failure() == Some(FailureKind::Connect) && Failure::states_own_shortage(self.message())
    }

    /// The answer to a request that succeeded, if a check failed.
    pub(super) fn failed_answer(&self) -> Option<FailedAnswer<'a>> {
        let check = self.0.failed_check()?;
        Some(FailedAnswer {
            check: AnswerCheck::parse(check)?,
            reason: self.0.failed_reason().unwrap_or_default(),
            text: self.0.failed_answer(),
        })
    }

    pub(super) fn failed_at(&self) -> &'a str {
        self.0.at().unwrap_or_default()
    }
}

/// The value of the `outcome` column of a request that succeeded.
const OK: &str = "ok";

/// Checks the texts of the columns `case_id`, `phase` and `outcome` that were read from a file.
/// `before`: the rows of the file before the column.
pub(super) fn check_words(column: &Column, before: usize) -> Result<(), TableError> {
    let phases = [
        Phase::Measured.name(),
        Phase::Warmup.name(),
        Phase::Cooldown.name(),
        OUTSIDE_STAGE,
        SETTLING,
    ];
    let is_known: &dyn Fn(&str) -> bool = match column.name().as_str() {
        s::CASE_ID => &|_| true,
        s::PHASE => &|word| phases.contains(&word),
        s::OUTCOME => &|word| word == OK || FailureKind::parse(word).is_some(),
        _ => return Ok(()),
    };
    let words = column.str()?;
    match words.iter().position(|word| !word.is_some_and(is_known)) {
        None => Ok(()),
        Some(row) => Err(TableError::Word {
            column: column.name().to_string(),
            row: before + row,
            found: words.get(row).unwrap_or_default().into(),
        }),
    }
}

/// The output tokens of each token event of a reply; together they are the tokens that arrived.
#[derive(Clone, Copy, Debug)]
pub(super) struct EventTokens<'a> {
    /// The running counts of the server or the counts of the tokenizer; empty without them.
    weights: &'a [u32],
    /// The tokens of an event per weight, or per event without weights.
    share: f64,
    /// The difference of the tokens that arrived and of the running counts. Hidden reasoning is in the count of the
    /// first event, and tokens without text after the last event are in no count.
    difference: f64,
    last: usize,
}

impl EventTokens<'_> {
    /// The tokens of a range of events.
    pub(super) fn sum(&self, events: Range<usize>) -> f64 {
        let known = self.weights.get(events.clone()).unwrap_or_default();
        if self.weights.is_empty() {
            return events.len() as f64 * self.share;
        }
        let corrected = if self.difference < 0.0 { 0 } else { self.last };
        let rest = if events.contains(&corrected) {
            self.difference
        } else {
            0.0
        };
        known.iter().copied().map(f64::from).sum::<f64>() * self.share + rest
    }
}

/// An answer with a check that failed.
pub(super) struct FailedAnswer<'a> {
    pub(super) check: AnswerCheck,
    pub(super) reason: &'a str,
    /// None where it is not stored.
    pub(super) text: Option<&'a str>,
}

/// A flag as 1 or 0.
fn flag(flag: Option<bool>) -> Option<f64> {
    flag.map(|flag| f64::from(u8::from(flag)))
}

// Metrics, as docs/reference/metrics.md defines them.

/// From `earlier` to `later` in milliseconds.
fn ms(earlier: u64, later: u64) -> f64 {
    later.saturating_sub(earlier) as f64 / 1e6
}

impl<'a> RequestRow<'a> {
    /// The value of a per-request metric; None where it does not exist for this request.
    pub(super) fn metric(&self, metric: Metric) -> Option<f64> {
        let span = |from: Option<u64>, to: Option<u64>| Some(ms(from?, to?));
        let over = |above: Option<f64>, below: Option<f64>| {
            Some(above? / below.filter(|&below| below > 0.0)?)
        };
        let count = |tokens: Option<u64>| tokens.map(|tokens| tokens as f64);
        let seconds = |ms: Option<f64>| Some(ms? / 1e3);
        let intended = Some(self.intended());
        let end = self.ok().then(|| self.end());
        match metric {
            Metric::Ttft => span(intended, self.first_token()),
            Metric::TtftService => span(self.sent(), self.first_token()),
            Metric::TimeToFirstAnswer => span(intended, self.first_answer()),
            Metric::ReasoningTime => self.reasoning_time(),
            Metric::Ttfc => span(self.sent(), self.first_chunk()),
            Metric::TokensPerEvent => over(
                count(self.output_tokens()),
                Some(self.events().len() as f64),
            ),
            Metric::EventsPerReply => {
                count(Some(self.events().len() as u64).filter(|events| *events > 0 && self.ok()))
            }
            Metric::Tpot => self.tpot(),
            Metric::Ntpot => over(self.metric(Metric::E2e), count(self.output_tokens())),
            Metric::E2e => span(intended, end),
            Metric::E2eService => span(self.sent(), end),
            Metric::HeldTime => span(intended, self.held_until()),
            // The server, not the load generator, makes a held request wait.
            Metric::ScheduleLag => span(self.held_until().or(intended), self.sent()),
            Metric::PromptTokens => count(self.prompt_tokens()),
            Metric::OutputTokens => count(self.output_tokens()),
            Metric::BilledTokens => count(self.billed_tokens()),
            Metric::ReasoningTokens => count(self.usage_reasoning()),
            Metric::HiddenTokens => count(self.token_account().hidden()),
            Metric::CountMismatch => self
                .token_account()
                .mismatch()
                .filter(|_| !self.approximate()),
            Metric::ReplacementShare => over(
                count(self.replacement_characters()),
                count(self.characters()),
            ),
            Metric::CachedTokens => count(self.usage_cached()),
            Metric::CacheableTokens => count(self.cacheable_tokens()),
            Metric::PrefillTps => over(
                count(self.prompt_tokens()),
                self.metric(Metric::TtftService),
            )
            .map(|per_ms| per_ms * 1e3),
            Metric::DecodeTps => over(Some(1e3), self.tpot()),
            Metric::OutputTpsPerRequest => {
                over(count(self.output_tokens()), self.metric(Metric::E2e))
                    .map(|per_ms| per_ms * 1e3)
            }
            Metric::TotalTpsPerRequest => {
                let both = self
                    .prompt_tokens()
                    .zip(self.output_tokens())
                    .map(|(prompt, output)| prompt.saturating_add(output));
                over(count(both), self.metric(Metric::E2e)).map(|per_ms| per_ms * 1e3)
            }
            Metric::TtftFirstTurn => self
                .metric(Metric::Ttft)
                .filter(|_| self.turns() > 1 && self.turn() == 0),
            Metric::TtftLaterTurns => self.metric(Metric::Ttft).filter(|_| self.turn() > 0),
            Metric::SessionDuration => self.session_duration().map(|span| ms(0, span)),
            Metric::Items => count(self.items().filter(|_| self.ok())),
            Metric::AudioDuration => self.audio_seconds(),
            Metric::Rtf => over(seconds(self.metric(Metric::E2e)), self.audio_seconds()),
            Metric::RtfxPerRequest => over(self.audio_seconds(), seconds(self.metric(Metric::E2e))),
            Metric::Ttfa => span(intended, self.first_audio().filter(|_| self.ok())),
            Metric::Underruns => self
                .playback_underruns()
                .filter(|_| self.ok())
                .map(f64::from),
            Metric::UnderrunTime => self
                .playback_stalled()
                .filter(|_| self.ok())
                .map(|stalled| ms(0, stalled)),
            Metric::ServerQueue => self.server_queue().map(|span| ms(0, span)),
            Metric::ServerLoad => self.server_load().map(|span| ms(0, span)),
            Metric::ServerPrefill => self.server_prefill().map(|span| ms(0, span)),
            Metric::ServerDecode => self.server_decode().map(|span| ms(0, span)),
            Metric::ServerTotal => self.server_total().map(|span| ms(0, span)),
            Metric::TtftPerPromptToken => {
                over(self.metric(Metric::Ttft), count(self.prompt_tokens()))
            }
            Metric::ValidRate => flag(self.valid()),
            Metric::MatchRate => flag(self.matches()),
            Metric::LengthExact => flag(self.length_exact().or_else(|| self.has_max_tokens())),
            _ => None,
        }
    }

    /// The tokens that count against `max_tokens`, hidden reasoning among them; None where they are only estimated.
    pub(super) fn exact_output_tokens(&self) -> Option<u64> {
        let counted = || self.counted_output().filter(|_| !self.approximate());
        self.usage_output().or_else(counted).filter(|_| self.ok())
    }

    /// Whether a reply has exactly `max_tokens` tokens; None where one of the two is not known.
    fn has_max_tokens(&self) -> Option<bool> {
        Some(self.exact_output_tokens()? == self.max_tokens()?)
    }

    /// From the first reasoning token to the first token after the reasoning; None where the reasoning was not
    /// streamed.
    fn reasoning_time(&self) -> Option<f64> {
        let begin = self.events().first().copied();
        let begin = begin.filter(|_| self.reasoning().is_some_and(|events| events > 0));
        Some(ms(begin?, self.first_answer()?))
    }

    /// At most the prompt tokens: counts of parts may add up to more than the count of the whole.
    fn cacheable_tokens(&self) -> Option<u64> {
        self.cacheable()
            .zip(self.counted_prompt())
            .map(|(cacheable, prompt)| cacheable.min(prompt))
    }

    /// Seconds of audio that a successful request transcribed or generated.
    pub(super) fn audio_seconds(&self) -> Option<f64> {
        let duration = self.audio_duration().filter(|_| self.ok())?;
        Some(duration as f64 / 1e9)
    }

    /// The first token of a stream that succeeded, or that the client cancelled.
    pub(super) fn first_token(&self) -> Option<u64> {
        self.events().first().copied().filter(|_| self.is_timed())
    }

    /// Whether its tokens have latencies: those of a truncated reply are not known to be complete.
    fn is_timed(&self) -> bool {
        self.ok() || self.left()
    }

    /// The first token after the reasoning, where the server streamed or counted reasoning.
    pub(super) fn first_answer(&self) -> Option<u64> {
        let reasoning = self.reasoning()?;
        let has_reasoning =
            reasoning > 0 || self.usage_reasoning().is_some_and(|tokens| tokens > 0);
        let first = self.events().get(reasoning as usize).copied();
        first.filter(|_| has_reasoning && self.is_timed())
    }

    /// Timestamps of the first and the last token of each choice that has any, ordered by choice.
    pub(super) fn choice_spans(&self) -> Vec<(u64, u64)> {
        if self.choices().is_empty() {
            return self
                .events()
                .first()
                .copied()
                .zip(self.events().last().copied())
                .into_iter()
                .collect();
        }
        let mut spans: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
        for (index, &event) in self.events().iter().enumerate() {
            spans.entry(self.choice(index)).or_insert((event, event)).1 = event;
        }
        spans.into_values().collect()
    }

    fn choice(&self, event: usize) -> u32 {
        self.choices().get(event).copied().unwrap_or(0)
    }

    /// Time per output token over all choices, each from its first to its last token. None where the reply arrived in a
    /// single read: its TPOT was not observed, it is not 0 ms.
    fn tpot(&self) -> Option<f64> {
        let steps = self.decoded_tokens().filter(|&steps| steps > 0)?;
        let spans = self.choice_spans();
        let time: f64 = spans.iter().map(|(first, last)| ms(*first, *last)).sum();
        (time > 0.0 && self.is_timed()).then(|| time / steps as f64)
    }

    /// The tokens that arrived in the spans of the choices: those of every event but the first of its choice. By a
    /// running count of the server they are its increase in the span. Otherwise the events after the first of their
    /// choice have all tokens but those of the first ones, which the tokenizer counts, or which are one token each.
    pub(super) fn decoded_tokens(&self) -> Option<u64> {
        let weights = self.weights();
        if weights.is_empty() {
            return self
                .output_tokens()?
                .checked_sub(self.choice_spans().len() as u64);
        }
        let mut begun = BTreeSet::new();
        let (mut first, mut rest) = (0, 0);
        for (event, weight) in weights.iter().enumerate() {
            match begun.insert(self.choice(event)) {
                true => first += u64::from(*weight),
                false => rest += u64::from(*weight),
            }
        }
        match self.weights_counted() {
            true => self.output_tokens()?.checked_sub(first),
            false => Some(rest),
        }
    }

    /// The server's count, else the local tokenizer's.
    pub(super) fn prompt_tokens(&self) -> Option<u64> {
        self.usage_prompt().or(self.counted_prompt())
    }

    /// The counts of the reply. Files of earlier versions know only of reasoning before the answer.
    pub(super) fn token_account(&self) -> TokenAccount {
        TokenAccount {
            billed: self.usage_output(),
            reasoning: self.usage_reasoning(),
            reasoning_received: self.reasoning_received().unwrap_or(false)
                || self.characters().unwrap_or(0) == 0
                    && self.reasoning().is_some_and(|events| events > 0),
            counted: self.counted_output(),
            events: self.events().len() as u64,
        }
    }

    /// The output tokens that arrived.
    pub(super) fn output_tokens(&self) -> Option<u64> {
        Some(self.token_account().visible()?.0)
    }

    /// The source of [`RequestRow::output_tokens`].
    pub(super) fn token_source(&self) -> Option<TokenSource> {
        Some(self.token_account().visible()?.1)
    }

    /// The server's count with hidden reasoning, else the tokens that arrived.
    pub(super) fn billed_tokens(&self) -> Option<u64> {
        self.usage_output().or(self.output_tokens())
    }

    /// Whether it succeeded with reasoning and without any answer.
    pub(super) fn is_reasoning_alone(&self) -> bool {
        let events = self.events().len() as u32;
        self.ok() && events > 0 && self.reasoning() == Some(events)
    }

    /// Whether it has several tokens of a choice, and all of them arrived in one read.
    pub(super) fn arrived_at_once(&self) -> bool {
        let spans = self.choice_spans();
        let has_several = self
            .output_tokens()
            .is_some_and(|tokens| tokens > spans.len() as u64);
        !spans.is_empty() && has_several && spans.iter().all(|(first, last)| first == last)
    }

    /// What was not as the API describes it.
    pub(super) fn anomalies(&self) -> impl Iterator<Item = Anomaly> + 'a {
        self.0
            .anomalies()
            .unwrap_or_default()
            .split(' ')
            .filter_map(Anomaly::parse)
    }

    /// Gaps between consecutive token events of a choice in milliseconds; 0 within one socket read.
    pub(super) fn gaps(&self) -> Vec<f64> {
        if !self.is_timed() {
            return Vec::new();
        }
        if self.choices().is_empty() {
            return self
                .events()
                .windows(2)
                .filter_map(|pair| Some(ms(*pair.first()?, *pair.last()?)))
                .collect();
        }
        let mut latest: BTreeMap<u32, u64> = BTreeMap::new();
        let timed = self.events().iter().enumerate();
        timed
            .filter_map(|(index, &event)| {
                latest
                    .insert(self.choice(index), event)
                    .map(|earlier| ms(earlier, event))
            })
            .collect()
    }

    /// The output tokens of the token events.
    pub(super) fn event_tokens(&self) -> EventTokens<'a> {
        let (tokens, weights) = (self.output_tokens().unwrap_or(0) as f64, self.weights());
        let known = weights.iter().copied().map(f64::from).sum::<f64>();
        let (share, difference) = match (weights.is_empty(), self.weights_counted()) {
            (true, _) => (tokens / self.events().len().max(1) as f64, 0.0),
            (false, true) => (tokens / known.max(1.0), 0.0),
            (false, false) => (1.0, tokens - known),
        };
        EventTokens {
            weights,
            share,
            difference,
            last: self.events().len().saturating_sub(1),
        }
    }

    /// `end` − `sent` in milliseconds; 0 where it was never sent.
    pub(super) fn busy_ms(&self) -> f64 {
        self.sent().map_or(0.0, |sent| ms(sent, self.end()))
    }

    /// Whether it is ok and meets every limit; None where that is not measured, see [`meets_all`].
    pub(super) fn meets(&self, limits: &[RequestLimit]) -> Option<bool> {
        let gaps = if limits.iter().any(|limit| limit.metric == Metric::Itl) {
            self.gaps()
        } else {
            Vec::new()
        };
        if self.ok() {
            meets_all(limits, |metric| self.metric(metric), &gaps)
        } else {
            Some(false)
        }
    }
}

/// Whether a request that is ok meets every limit. A value that does not exist meets none; but a streamed reply
/// without a pace (one token, or all in one event) does not measure a limit on `itl`, `tpot` or `decode_tps`: None,
/// unless it breaks another limit.
pub(super) fn meets_all(
    limits: &[RequestLimit],
    value: impl Fn(Metric) -> Option<f64>,
    gaps: &[f64],
) -> Option<bool> {
    let without_pace = || value(Metric::Ttft).is_none().then_some(false);
    let meets = |limit: &RequestLimit| match (limit.metric, value(limit.metric)) {
        (Metric::Itl, _) if gaps.is_empty() => without_pace(),
        (Metric::Itl, _) => Some(gaps.iter().all(|&gap| limit.op.holds(gap, limit.limit))),
        (Metric::Tpot | Metric::DecodeTps, None) => without_pace(),
        (_, value) => Some(value.is_some_and(|value| limit.op.holds(value, limit.limit))),
    };
    let met: Vec<Option<bool>> = limits.iter().map(meets).collect();
    match met.contains(&Some(false)) {
        true => Some(false),
        false => met.iter().all(Option::is_some).then_some(true),
    }
}

/// A derived column of these rows; None for an unknown name.
pub(super) fn derived_column(rows: &[RequestRow<'_>], name: &str) -> Option<Column> {
    let token_times = |index: usize| {
        let times = rows
            .iter()
            .map(move |row| row.first_and_last_token().get(index).copied().flatten());
        column_of::<U64>(name, times)
    };
    Some(match name {
        s::FIRST_TOKEN => token_times(0),
        s::LAST_TOKEN => token_times(1),
        s::TOKEN_SOURCE => column_of::<Text>(
            name,
            rows.iter().map(|row| row.token_source().map(source_name)),
        ),
        s::CHOICES => {
            let choices = rows.iter().map(|row| row.choice_spans().len() as u32);
            column_of::<U32>(
                name,
                choices.map(|count| Some(count).filter(|count| *count > 0)),
            )
        }
        s::CHOICE_TTFT => choice_times(rows, name, |span| span.0),
        s::CHOICE_TTLT => choice_times(rows, name, |span| span.1),
        _ => {
            let metric = Metric::ALL
                .iter()
                .copied()
                .find(|metric| metric.column() == name)?;
            let values = rows.iter().map(|row| row.metric(metric));
            match s::metric_kind(metric)? {
                Kind::F64List => lists(name, rows.iter().map(RequestRow::gaps)),
                Kind::U64 => {
                    column_of::<U64>(name, values.map(|value| value.map(|value| value as u64)))
                }
                _ => column_of::<F64>(name, values),
            }
        }
    })
}

/// Null for a request with fewer than two choices.
fn choice_times(rows: &[RequestRow<'_>], name: &str, get: fn(&(u64, u64)) -> u64) -> Column {
    let times = rows.iter().map(|row| {
        let spans = Some(row.choice_spans()).filter(|spans| spans.len() >= 2);
        let times = spans
            .iter()
            .flatten()
            .map(|span| ms(row.intended(), get(span)));
        times.collect()
    });
    lists(name, times)
}

/// Null for a row without a number.
fn lists(name: &str, rows: impl Iterator<Item = Vec<f64>>) -> Column {
    let mut column = ColumnBuilder::<F64List>::new(name);
    rows.for_each(|numbers| column.push(&numbers));
    column.finish()
}

/// The value of the `token_source` column.
pub(super) fn source_name(source: TokenSource) -> &'static str {
    match source {
        TokenSource::Usage => "usage",
        TokenSource::Tokenizer => "tokenizer",
        TokenSource::Events => "events",
    }
}

#[cfg(test)]
mod tests;
