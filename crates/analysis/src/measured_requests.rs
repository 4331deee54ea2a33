//! The measured requests of a case: a frame with one row per request, which summaries and verdicts are computed from.

use crate::columns::{
    ColumnBuilder, F64, F64List, Flag, IntoValue, OutcomeRow, TaggedOutcome, Text, U32, U64, View,
    column_of, frame_columns,
};
use crate::error::TableError;
use crate::output_lengths;
use crate::request_row::{RequestRow, meets_all};
use llmscen_core::check::{RequestLimit, Subject, parse_turns};
use llmscen_core::finish_reason;
use llmscen_core::metric::{Metric, Scope};
use llmscen_core::mix::is_in_group;
use llmscen_core::outcome::Outcome;
use llmscen_core::requested_length::RequestedLength;
use polars::prelude::{Column, DataFrame, IdxCa, NewChunkedArray, PolarsResult};
use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

macro_rules! fields {
    ($($(#[$doc:meta])* $field:ident: $kind:ident as $value:ty;)*) => {
        /// What a request has besides its metrics.
        #[derive(Clone, Copy, Debug, Default, PartialEq)]
        pub struct RequestFields<'a> {
            $($(#[$doc])* pub $field: $value,)*
        }

        frame_columns! {
            FieldBuilders, FieldViews: $($field $kind = stringify!($field);)*
        }

        impl FieldBuilders {
            fn push(&mut self, fields: RequestFields<'_>) {
                $(self.$field.push(Option::from(fields.$field));)*
            }
        }

        impl<'a> MeasuredRequest<'a> {
            #[cfg(test)]
            pub(super) fn fields(self) -> RequestFields<'a> {
                RequestFields { $($field: self.$field(),)* }
            }

            $(
                $(#[$doc])*
                pub fn $field(self) -> $value {
                    match self.0 {
                        RequestSource::Frame(columns, row) => columns.fields.$field.get(row as usize).into_value(),
                        RequestSource::Live(live) => live.fields.$field,
                    }
                }
            )*
        }
    };
}

fields! {
    /// Round of the case, from 0.
    round: U32 as u32;
    /// Number of its session.
    session: U64 as u64;
    /// Turn in the session, from 0.
    turn: U32 as u32;
    /// Whether it is the first measured turn of its session.
    begins_session: Flag as bool;
    /// Group of its prompt, where the dataset has groups.
    group: Text as Option<&'a str>;
    /// Model that it named.
    model: Text as &'a str;
    /// The URL that it was sent to, where the target has several.
    endpoint: Text as Option<&'a str>;
    /// The kept headers of its response, each as a line `name: value`.
    kept_headers: Text as Option<&'a str>;
    /// Its finish reason, as sent by the server; None where it sent none, or the request failed.
    finish_reason: Text as Option<&'a str>;
    /// Hash of its prompt, if known.
    prompt_hash: U64 as Option<u64>;
    /// Whether it succeeded.
    ok: Flag as bool;
    /// Whether its client cancelled it, as the scenario asked for: neither a success nor an error.
    left: Flag as bool;
    /// Whether its reply is reasoning without any answer.
    reasoning_alone: Flag as bool;
    /// Its part of a planned load that changes, such as a stage.
    part: U32 as u32;
    /// Scheduled send in seconds after the start of its round's window.
    scheduled_s: F64 as f64;
    /// `end` − `sent` in milliseconds, whatever the result; 0 where it was never sent.
    busy_ms: F64 as f64;
}

/// The column of the gaps between token events, in milliseconds.
const GAPS: &str = "gaps";

/// Collects requests.
pub struct RequestsBuilder {
    fields: FieldBuilders,
    /// In the order of [`Metric::ALL`].
    metrics: Vec<ColumnBuilder<F64>>,
    gaps: ColumnBuilder<F64List>,
}

impl Default for RequestsBuilder {
    fn default() -> RequestsBuilder {
        let metric = |metric: &Metric| ColumnBuilder::new(metric.column());
        RequestsBuilder {
            fields: FieldBuilders::default(),
            metrics: Metric::ALL.iter().map(metric).collect(),
            gaps: ColumnBuilder::new(GAPS),
        }
    }
}

impl fmt::Debug for RequestsBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestsBuilder").finish_non_exhaustive()
    }
}

impl RequestsBuilder {
    /// Appends a request; `gaps`: between its token events, in milliseconds.
    pub fn push(
        &mut self,
        fields: RequestFields<'_>,
        metric: impl Fn(Metric) -> Option<f64>,
        gaps: &[f64],
    ) {
        self.fields.push(fields);
        for (column, &name) in self.metrics.iter_mut().zip(Metric::ALL) {
            column.push(metric(name));
        }
        self.gaps.push(gaps);
    }

    /// Appends a row of the request table with the metrics that `counts` keeps, at its scheduled send in seconds and
    /// in its part of the planned load.
    pub(super) fn push_row(
        &mut self,
        row: &RequestRow<'_>,
        place: (f64, u32),
        counts: impl Fn(Metric) -> bool,
    ) {
        let value = |metric: Metric| value_of(row, metric).filter(|_| counts(metric));
        self.push(fields_of(row, place), value, &gaps_of(row));
    }

    /// Allocates memory for this number of gaps.
    pub(super) fn expect_gaps(&mut self, gaps: usize) {
        self.gaps.expect(gaps);
    }

    /// The requests in the order in which they were pushed.
    ///
    /// # Errors
    /// A frame could not be built.
    pub fn finish(self) -> Result<MeasuredRequests, TableError> {
        let metrics = self.metrics.into_iter().filter(ColumnBuilder::has_values);
        let columns: Vec<Column> = metrics
            .map(ColumnBuilder::finish)
            .chain([self.gaps.finish()])
            .collect();
        Ok(MeasuredRequests::of(
            self.fields.finish()?.hstack(&columns)?,
        )?)
    }
}

/// The values of the frame by row.
#[derive(Clone, Debug, Default)]
struct RequestColumns {
    fields: FieldViews,
    /// In the order of [`Metric::ALL`].
    metrics: Vec<View<F64>>,
    gaps: View<F64List>,
}

impl RequestColumns {
    fn of(frame: &DataFrame) -> PolarsResult<RequestColumns> {
        let mut metrics = vec![View::default(); Metric::ALL.len()];
        for (view, metric) in metrics.iter_mut().zip(Metric::ALL) {
            if let Some(index) = frame.get_column_index(metric.column()) {
                *view = View::of(&frame[index])?;
            }
        }
        Ok(RequestColumns {
            fields: FieldViews::of(frame)?,
            metrics,
            gaps: View::of(frame.column(GAPS)?)?,
        })
    }
}

fn fields_of<'a>(row: &RequestRow<'a>, (scheduled_s, part): (f64, u32)) -> RequestFields<'a> {
    RequestFields {
        round: row.round(),
        session: row.seq(),
        turn: row.turn(),
        begins_session: row.begins_session(),
        group: row.group(),
        model: row.model(),
        endpoint: row.endpoint(),
        kept_headers: row.kept_headers(),
        finish_reason: row.finish_reason(),
        prompt_hash: row.prompt_hash().filter(|hash| *hash != 0),
        ok: row.ok(),
        left: row.left(),
        reasoning_alone: row.is_reasoning_alone(),
        part,
        scheduled_s,
        busy_ms: row.busy_ms(),
    }
}

fn value_of(row: &RequestRow<'_>, metric: Metric) -> Option<f64> {
    let is_kept = metric.per() == Scope::Request || metric.is_request_share();
    is_kept.then(|| row.metric(metric)).flatten()
}

fn gaps_of(row: &RequestRow<'_>) -> Vec<f64> {
    if row.ok() { row.gaps() } else { Vec::new() }
}

/// A frame with a column per field, and per metric that exists for any request. The requests may be some of its rows.
#[derive(Clone, Debug)]
pub struct MeasuredRequests {
    frame: DataFrame,
    columns: RequestColumns,
    /// The rows of the frame; None for all.
    rows: Option<Arc<[u32]>>,
}

impl Default for MeasuredRequests {
    fn default() -> MeasuredRequests {
        MeasuredRequests {
            frame: DataFrame::empty(),
            columns: RequestColumns::default(),
            rows: None,
        }
    }
}

impl MeasuredRequests {
    fn of(frame: DataFrame) -> PolarsResult<MeasuredRequests> {
        Ok(MeasuredRequests {
            columns: RequestColumns::of(&frame)?,
            frame,
            rows: None,
        })
    }

    /// Number of sessions that have a successful request, over all rounds.
    pub fn ok_sessions(&self) -> usize {
        let ok = self.iter().filter(|request| request.ok());
        ok.map(|request| (request.round(), request.session()))
            .collect::<HashSet<_>>()
            .len()
    }

    /// The requests that `is_kept` selects.
    pub(super) fn select(&self, is_kept: impl Fn(MeasuredRequest<'_>) -> bool) -> MeasuredRequests {
        let kept = self.iter().filter(|request| is_kept(*request));
        let rows = kept.filter_map(MeasuredRequest::row).collect();
        MeasuredRequests {
            rows: Some(rows),
            ..self.clone()
        }
    }

    /// Number of requests.
    pub fn len(&self) -> usize {
        self.rows
            .as_ref()
            .map_or(self.frame.height(), |rows| rows.len())
    }

    /// Whether there is no request.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The requests in their order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = MeasuredRequest<'_>> + Clone {
        (0..self.len()).map(|place| {
            let row = self
                .rows
                .as_ref()
                .map_or(Some(place as u32), |rows| rows.get(place).copied());
            MeasuredRequest(RequestSource::Frame(&self.columns, row.unwrap_or(u32::MAX)))
        })
    }

    /// The values of a metric that exist, over all requests.
    pub fn values(&self, metric: Metric) -> impl Iterator<Item = f64> {
        self.iter().filter_map(move |request| request.value(metric))
    }

    /// Whether the metric exists for any row of the frame.
    pub(super) fn has_values(&self, metric: Metric) -> bool {
        let name = metric.column();
        self.frame.get_column_index(name).is_some()
    }

    /// The requests as a frame of their own.
    fn frame(&self) -> PolarsResult<DataFrame> {
        match &self.rows {
            None => Ok(self.frame.clone()),
            Some(rows) => self.frame.take(&IdxCa::from_slice("row".into(), rows)),
        }
    }

    /// The same requests with other columns.
    pub(super) fn with_columns(
        &self,
        columns: impl IntoIterator<Item = Column>,
    ) -> PolarsResult<MeasuredRequests> {
        if self.is_empty() {
            return Ok(MeasuredRequests::default());
        }
        let mut frame = self.frame()?;
        for column in columns {
            frame.with_column(column)?;
        }
        MeasuredRequests::of(frame)
    }

    /// The column of a metric with other values, by place and request.
    pub(super) fn metric_column(
        &self,
        metric: Metric,
        value: impl Fn(usize, MeasuredRequest<'_>) -> Option<f64>,
    ) -> Column {
        let values = self
            .iter()
            .enumerate()
            .map(|(place, request)| value(place, request));
        column_of::<F64>(metric.column(), values)
    }

    /// The column of successes with other values, by place and request.
    pub(super) fn ok_column(&self, ok: impl Fn(usize, MeasuredRequest<'_>) -> bool) -> Column {
        let values = self
            .iter()
            .enumerate()
            .map(|(place, request)| ok(place, request));
        column_of::<Flag>("ok", values.map(Some))
    }

    /// The column of gaps, those of each request changed by its place.
    pub(super) fn gaps_column(&self, change: impl Fn(usize, &mut [f64])) -> Column {
        let mut column = ColumnBuilder::<F64List>::new(GAPS);
        column.expect(self.iter().map(|request| request.gaps().len()).sum());
        let mut gaps = Vec::new();
        for (place, request) in self.iter().enumerate() {
            gaps.clear();
            gaps.extend_from_slice(request.gaps());
            change(place, &mut gaps);
            column.push(&gaps);
        }
        column.finish()
    }
}

/// One request.
#[derive(Clone, Copy)]
pub struct MeasuredRequest<'a>(RequestSource<'a>);

#[derive(Clone, Copy)]
enum RequestSource<'a> {
    /// A row of the frame.
    Frame(&'a RequestColumns, u32),
    /// A request of a case that still runs.
    Live(&'a LiveRequest<'a>),
}

impl fmt::Debug for MeasuredRequest<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "request {}, turn {}, round {}",
            self.session(),
            self.turn(),
            self.round()
        )
    }
}

struct LiveRequest<'a> {
    fields: RequestFields<'a>,
    row: RequestRow<'a>,
    gaps: Vec<f64>,
    requested: Option<RequestedLength>,
}

/// Passes a request of a case that still runs to `read`. `requested`: the output length that it asks for.
pub fn with_live_request<T>(
    outcome: &Outcome,
    round: u32,
    requested: Option<RequestedLength>,
    read: impl FnOnce(MeasuredRequest<'_>) -> T,
) -> T {
    let row = OutcomeRow::from(&TaggedOutcome {
        case: "",
        round,
        shard: 0,
        outcome,
    });
    let row = RequestRow::of_outcome(&row);
    read(MeasuredRequest(RequestSource::Live(&LiveRequest {
        fields: fields_of(&row, (0.0, 0)),
        gaps: gaps_of(&row),
        row,
        requested,
    })))
}

impl<'a> MeasuredRequest<'a> {
    fn row(self) -> Option<u32> {
        match self.0 {
            RequestSource::Frame(_, row) => Some(row),
            RequestSource::Live(_) => None,
        }
    }

    /// The value of a per-request metric, where it exists.
    pub fn value(self, metric: Metric) -> Option<f64> {
        match self.0 {
            RequestSource::Frame(columns, row) => {
                columns.metrics.get(metric as usize)?.get(row as usize)
            }
            RequestSource::Live(live) => {
                let applies = output_lengths::applies(metric, &live.row, live.requested);
                value_of(&live.row, metric).filter(|_| applies)
            }
        }
    }

    /// Gaps between its token events, in milliseconds.
    pub fn gaps(self) -> &'a [f64] {
        match self.0 {
            RequestSource::Frame(columns, row) => columns.gaps.get(row as usize),
            RequestSource::Live(live) => &live.gaps,
        }
    }

    /// What it adds to the distribution of a metric: its gaps, or its one value, or nothing.
    pub(super) fn samples(self, metric: Metric) -> Samples<'a> {
        match metric.per() {
            _ if !self.counts(metric) => Samples::default(),
            Scope::Gap => Samples {
                gaps: self.gaps(),
                value: None,
            },
            Scope::Request | Scope::Case => Samples {
                gaps: &[],
                value: self.value(metric),
            },
        }
    }

    /// Whether `load.max_in_flight` held it until sending ended.
    pub(super) fn was_held_to_the_end(self) -> bool {
        !self.ok()
            && self.busy_ms() == 0.0
            && self.value(Metric::HeldTime).is_some_and(|held| held > 0.0)
    }

    /// Whether its value of this metric belongs to the distribution: it succeeded, or its client cancelled it after the
    /// metric was measured.
    pub(super) fn counts(self, metric: Metric) -> bool {
        const BEFORE_CANCELLATION: [Metric; 5] = [
            Metric::Ttft,
            Metric::TtftService,
            Metric::TtftFirstTurn,
            Metric::TtftLaterTurns,
            Metric::TtftPerPromptToken,
        ];
        self.ok() || self.left() && BEFORE_CANCELLATION.contains(&metric)
    }

    /// Whether it counts towards a share of the requests: it failed, or its answer passed. None where the client
    /// cancelled it, and where its answer was not checked.
    pub(super) fn is_hit(self, share: Metric) -> Option<bool> {
        match share {
            _ if self.left() => None,
            Metric::ErrorRate => Some(!self.ok()),
            share => self.value(share).map(|passed| passed == 1.0),
        }
    }

    /// Whether it counts towards the share that a check is about. None where the share does not apply to it, and for
    /// a check about no share.
    pub(super) fn is_hit_of(self, subject: &Subject) -> Option<bool> {
        match subject {
            Subject::Goodput(limits) => self.meets(limits).filter(|_| !self.left()),
            Subject::Finish { reason, .. } => self.ok().then(|| {
                self.finish_reason()
                    .is_some_and(|sent| finish_reason::matches(reason, sent))
            }),
            Subject::Metric {
                metric, stat: None, ..
            } => self.is_hit(*metric),
            Subject::Metric { .. } | Subject::Signal { .. } | Subject::PageMetric(_) => None,
        }
    }

    /// What it adds to a throughput: 1 to requests, its tokens to token rates, nothing where it failed. None where
    /// its tokens are unknown, and for every other metric.
    pub(super) fn credit(self, throughput: Metric) -> Option<f64> {
        let output_tokens = self.value(Metric::OutputTokens);
        let input_tokens = self.value(Metric::PromptTokens);
        let billed = self.value(Metric::BilledTokens).or(output_tokens);
        // As in the window, a total counts what is known of either.
        let total = |output: Option<f64>| match (input_tokens, output) {
            (None, None) => None,
            (input, output) => Some(input.unwrap_or(0.0) + output.unwrap_or(0.0)),
        };
        let amount = match throughput.undivided() {
            Metric::RequestThroughput => Some(1.0),
            Metric::InputTps => input_tokens,
            Metric::OutputTps => output_tokens,
            Metric::ItemThroughput => self.value(Metric::Items),
            Metric::Rtfx => self.value(Metric::AudioDuration),
            Metric::TotalTps => total(output_tokens),
            Metric::BilledTps => billed,
            Metric::BilledTotalTps => total(billed),
            _ => return None,
        };
        if self.ok() { amount } else { Some(0.0) }
    }

    /// Output tokens per second from the scheduled send to the end. None where either is unknown.
    pub(super) fn user_tps(self) -> Option<f64> {
        let wait = self
            .value(Metric::E2e)
            .filter(|&wait| wait > 0.0 && self.ok())?;
        self.value(Metric::OutputTokens)
            .map(|tokens| tokens * 1e3 / wait)
    }

    /// Whether it is ok and meets every limit; None where that is not measured, see [`meets_all`].
    pub(super) fn meets(self, limits: &[RequestLimit]) -> Option<bool> {
        if self.ok() {
            meets_all(limits, |metric| self.value(metric), self.gaps())
        } else {
            Some(false)
        }
    }

    pub(super) fn tags(self) -> Tags<'a> {
        Tags {
            round: self.round(),
            turn: self.turn(),
            group: self.group(),
            model: self.model(),
            endpoint: self.endpoint(),
            kept_headers: self.kept_headers(),
        }
    }
}

/// What a request adds to the distribution of a metric.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Samples<'a> {
    gaps: &'a [f64],
    value: Option<f64>,
}

impl<'a> Samples<'a> {
    pub(super) fn of_value(value: f64) -> Samples<'a> {
        Samples {
            gaps: &[],
            value: Some(value),
        }
    }

    pub(super) fn iter(self) -> impl Iterator<Item = f64> + Clone + use<'a> {
        self.gaps.iter().copied().chain(self.value)
    }

    pub(super) fn mean(self) -> Option<f64> {
        (!self.is_empty()).then(|| self.iter().sum::<f64>() / self.len() as f64)
    }

    pub(super) fn len(self) -> usize {
        self.gaps.len() + usize::from(self.value.is_some())
    }

    pub(super) fn is_empty(self) -> bool {
        self.len() == 0
    }
}

/// What a check can select requests by.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tags<'a> {
    pub round: u32,
    pub turn: u32,
    pub group: Option<&'a str>,
    pub model: &'a str,
    pub endpoint: Option<&'a str>,
    pub kept_headers: Option<&'a str>,
}

/// The value of a header among lines `name: value`.
pub(super) fn header_value<'a>(lines: &'a str, name: &str) -> Option<&'a str> {
    let value = |line: &'a str| {
        let (header, value) = line.split_once(": ")?;
        header.eq_ignore_ascii_case(name).then_some(value)
    };
    lines.lines().find_map(value)
}

impl Tags<'_> {
    /// Whether every selector of a check matches. A name that is no tag is that of a kept header.
    pub(super) fn match_all(&self, selectors: &[(String, String)]) -> bool {
        selectors.iter().all(|(tag, value)| match tag.as_str() {
            "model" => self.model == value,
            "endpoint" => self.endpoint == Some(value),
            "group" => self.group.is_some_and(|group| is_in_group(group, value)),
            "turn" => {
                parse_turns(value).is_some_and(|turns| turns.contains(&self.turn.saturating_add(1)))
            }
            "round" => value.parse() == Ok(self.round),
            header => {
                let lines = self.kept_headers.unwrap_or_default();
                header_value(lines, header) == Some(value)
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::TestRequest;
    use llmscen_core::check::Op;

    fn request(ok: bool, values: &[(Metric, f64)], gaps: &[f64]) -> MeasuredRequests {
        let (values, gaps) = (values.to_vec(), gaps.to_vec());
        [TestRequest {
            ok,
            output_tokens: Some(50.0),
            values,
            gaps,
            ..TestRequest::default()
        }]
        .into_iter()
        .collect()
    }

    fn under(metric: Metric, limit: f64) -> [RequestLimit; 1] {
        [RequestLimit {
            metric,
            op: Op::Less,
            limit,
        }]
    }

    fn meets(requests: &MeasuredRequests, limits: &[RequestLimit]) -> bool {
        let [met] = requests
            .iter()
            .map(|request| request.meets(limits))
            .collect::<Vec<_>>()[..]
        else {
            panic!("one request")
        };
        met.unwrap()
    }

    #[test]
    fn a_column_has_nulls_before_its_first_value_and_after_its_last() {
        let only = |row: usize, values: &[(Metric, f64)]| TestRequest {
            gaps: vec![row as f64; row % 2],
            values: values.to_vec(),
            ..TestRequest::default()
        };
        let all = [
            &[][..],
            &[(Metric::Ttft, 1.0)],
            &[(Metric::E2e, 2.0), (Metric::Ttft, 0.0)],
            &[(Metric::E2e, 3.0)],
        ];
        let requests: MeasuredRequests = all
            .iter()
            .enumerate()
            .map(|(row, values)| only(row, values))
            .collect();
        let column = |metric| {
            requests
                .iter()
                .map(|request| request.value(metric))
                .collect::<Vec<_>>()
        };
        assert_eq!(column(Metric::Ttft), [None, Some(1.0), Some(0.0), None]);
        assert_eq!(column(Metric::E2e), [None, None, Some(2.0), Some(3.0)]);
        assert_eq!(
            (
                column(Metric::Tpot),
                requests.values(Metric::E2e).sum::<f64>()
            ),
            (vec![None; 4], 5.0)
        );
        let gaps: Vec<&[f64]> = requests.iter().map(MeasuredRequest::gaps).collect();
        assert_eq!(gaps, [&[][..], &[1.0], &[], &[3.0]]);
    }

    #[test]
    fn a_request_meets_a_limit_only_with_a_value() {
        assert!(meets(
            &request(true, &[(Metric::E2e, 4.0)], &[]),
            &under(Metric::E2e, 5.0)
        ));
        assert!(!meets(
            &request(true, &[(Metric::E2e, 5.0)], &[]),
            &under(Metric::E2e, 5.0)
        ));
        assert!(!meets(
            &request(false, &[(Metric::E2e, 4.0)], &[]),
            &under(Metric::E2e, 5.0)
        ));
        assert!(!meets(&request(true, &[], &[]), &under(Metric::E2e, 5.0)));
        assert!(meets(&request(true, &[], &[]), &[]));
    }

    #[test]
    fn every_gap_counts_and_the_pace_of_one_token_is_not_measured() {
        let one_token = request(true, &[(Metric::Ttft, 9.0)], &[]);
        let met = |limits: &[RequestLimit]| one_token.iter().next().unwrap().meets(limits);
        let pace = [Metric::Itl, Metric::Tpot, Metric::DecodeTps].map(|metric| under(metric, 5.0));
        assert_eq!(pace.each_ref().map(|limits| met(limits)), [None; 3]);
        // With another limit: broken, and met.
        let with_ttft = |limit| met(&[under(Metric::Ttft, limit), pace[1]].concat());
        assert_eq!([5.0, 10.0].map(with_ttft), [Some(false), None]);
        assert!(!meets(&request(true, &[], &[]), &under(Metric::Itl, 5.0)));
        assert!(meets(
            &request(true, &[], &[4.0, 4.9]),
            &under(Metric::Itl, 5.0)
        ));
        assert!(!meets(
            &request(true, &[], &[4.0, 5.1]),
            &under(Metric::Itl, 5.0)
        ));
    }

    #[test]
    fn a_failed_request_adds_nothing() {
        let requests = [
            request(true, &[(Metric::E2e, 2000.0)], &[]),
            request(false, &[], &[]),
        ];
        let [good, bad] = requests
            .each_ref()
            .map(|requests| requests.iter().next().unwrap());
        let credits = [good, bad].map(|request| {
            (
                request.credit(Metric::RequestThroughput),
                request.credit(Metric::OutputTps),
            )
        });
        assert_eq!(credits, [(Some(1.0), Some(50.0)), (Some(0.0), Some(0.0))]);
        assert_eq!(
            (good.credit(Metric::TotalTps), good.credit(Metric::Window)),
            (Some(50.0), None)
        );
        assert_eq!((good.user_tps(), bad.user_tps()), (Some(25.0), None));
    }
}
