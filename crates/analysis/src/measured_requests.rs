//! The measured requests of a case in columns: what summaries and verdicts are computed from.

use crate::columns::{OutcomeRow, TaggedOutcome};
use crate::output_lengths;
use crate::request_row::{RequestRow, meets_all};
use llmscen_core::check::{RequestLimit, Subject, parse_turns};
use llmscen_core::finish_reason;
use llmscen_core::metric::{Metric, Scope};
use llmscen_core::mix::is_in_group;
use llmscen_core::outcome::Outcome;
use llmscen_core::requested_length::RequestedLength;
use std::collections::{BTreeMap, HashSet};
use std::ops::Range;
use std::sync::Arc;

/// One vector per field, in the order of the requests.
#[derive(Clone, Debug, Default)]
pub struct MeasuredRequests {
    rounds: Vec<u32>,
    sessions: Vec<u64>,
    turns: Vec<u32>,
    begins_session: Vec<bool>,
    groups: Words,
    models: Words,
    endpoints: Words,
    kept_headers: Words,
    finish_reasons: Words,
    /// 0 for an unknown one.
    prompt_hashes: Vec<u64>,
    ok: Vec<bool>,
    left: Vec<bool>,
    reasoning_alone: Vec<bool>,
    parts: Vec<u32>,
    scheduled_s: Vec<f64>,
    busy_ms: Vec<f64>,
    /// A column per metric, in the order of [`Metric::ALL`]. NaN is null; an empty column has nulls alone.
    metrics: Vec<Vec<f64>>,
    gaps: Lists,
}

/// Nullable texts with few different values.
#[derive(Clone, Debug, Default)]
struct Words {
    /// Empty as long as all rows have the first word.
    codes: Vec<u32>,
    rows: usize,
    words: Vec<Option<Arc<str>>>,
    code_of: BTreeMap<Option<Arc<str>>, u32>,
}

impl Words {
    fn push(&mut self, word: Option<&str>) {
        let last = self.codes.last().copied().unwrap_or(0);
        let is_last = self.word(last) == Some(word);
        let code = if is_last { last } else { self.code(word) };
        if code > 0 || !self.codes.is_empty() {
            self.codes.resize(self.rows, 0);
            self.codes.push(code);
        }
        self.rows += 1;
    }

    fn word(&self, code: u32) -> Option<Option<&str>> {
        self.words.get(code as usize).map(Option::as_deref)
    }

    fn code(&mut self, word: Option<&str>) -> u32 {
        let word: Option<Arc<str>> = word.map(Arc::from);
        let new = self.words.len() as u32;
        *self.code_of.entry(word).or_insert_with_key(|word| {
            self.words.push(word.clone());
            new
        })
    }

    fn get(&self, row: usize) -> Option<&str> {
        self.word(self.codes.get(row).copied().unwrap_or(0))?
    }
}

/// Lists of numbers, all in one buffer.
#[derive(Clone, Debug, Default)]
struct Lists {
    /// End of each list in `numbers`.
    ends: Vec<usize>,
    numbers: Vec<f64>,
}

impl Lists {
    fn push(&mut self, list: impl Iterator<Item = f64>) {
        self.numbers.extend(list);
        self.ends.push(self.numbers.len());
    }

    fn range(&self, row: usize) -> Range<usize> {
        let from = row.checked_sub(1).and_then(|row| self.ends.get(row));
        from.copied().unwrap_or(0)..self.ends.get(row).copied().unwrap_or(0)
    }

    fn get(&self, row: usize) -> &[f64] {
        self.numbers.get(self.range(row)).unwrap_or_default()
    }

    fn get_mut(&mut self, row: usize) -> &mut [f64] {
        let range = self.range(row);
        self.numbers.get_mut(range).unwrap_or_default()
    }
}

/// What a request has besides its metrics.
#[derive(Clone, Copy, Debug, Default)]
pub struct RequestFields<'a> {
    /// Round of the case, from 0.
    pub round: u32,
    /// Number of its session.
    pub session: u64,
    /// Turn in the session, from 0.
    pub turn: u32,
    /// It is the first measured turn of its session.
    pub begins_session: bool,
    /// Group of its prompt, where the dataset has groups.
    pub group: Option<&'a str>,
    /// Model that it named.
    pub model: &'a str,
    /// The URL that it was sent to, where the target has several.
    pub endpoint: Option<&'a str>,
    /// The kept headers of its response, each as a line `name: value`.
    pub kept_headers: Option<&'a str>,
    /// Its finish reason, as sent by the server.
    pub finish_reason: Option<&'a str>,
    /// Hash of its prompt.
    pub prompt_hash: Option<u64>,
    /// It succeeded.
    pub ok: bool,
    /// Its client cancelled it, as the scenario asked for: neither a success nor an error.
    pub left: bool,
    /// Its reply is reasoning without any answer.
    pub reasoning_alone: bool,
    /// Its part of a planned load that changes, such as a stage.
    pub part: u32,
    /// Scheduled send in seconds after the start of its round's window.
    pub scheduled_s: f64,
    /// `end` − `sent` in milliseconds, whatever the result; 0 where it was never sent.
    pub busy_ms: f64,
}

impl MeasuredRequests {
    /// Number of sessions that have a successful request, over all rounds.
    pub fn ok_sessions(&self) -> usize {
        let requests = self.rounds.iter().zip(&self.sessions).zip(&self.ok);
        let of_ok = requests.filter(|(_, ok)| **ok).map(|(session, _)| session);
        of_ok.collect::<HashSet<_>>().len()
    }

    /// Appends a request; `gaps`: between its token events, in milliseconds.
    pub fn push(
        &mut self,
        fields: RequestFields<'_>,
        metric: impl Fn(Metric) -> Option<f64>,
        gaps: impl IntoIterator<Item = f64>,
    ) {
        self.metrics.resize(Metric::ALL.len(), Vec::new());
        for (column, &name) in self.metrics.iter_mut().zip(Metric::ALL) {
            match metric(name) {
                None if column.is_empty() => {}
                value => {
                    column.reserve_exact(self.ok.capacity().saturating_sub(column.len()));
                    column.resize(self.ok.len(), f64::NAN);
                    column.push(value.unwrap_or(f64::NAN));
                }
            }
        }
        self.rounds.push(fields.round);
        self.sessions.push(fields.session);
        self.turns.push(fields.turn);
        self.begins_session.push(fields.begins_session);
        self.groups.push(fields.group);
        self.models.push(Some(fields.model));
        self.endpoints.push(fields.endpoint);
        self.kept_headers.push(fields.kept_headers);
        self.finish_reasons.push(fields.finish_reason);
        self.prompt_hashes.push(fields.prompt_hash.unwrap_or(0));
        self.ok.push(fields.ok);
        self.left.push(fields.left);
        self.reasoning_alone.push(fields.reasoning_alone);
        self.parts.push(fields.part);
        self.scheduled_s.push(fields.scheduled_s);
        self.busy_ms.push(fields.busy_ms);
        self.gaps.push(gaps.into_iter());
    }

    /// Appends a row of the request table with the metrics that `counts` keeps, at its scheduled send in seconds and in its part of the
    /// planned load.
    pub(super) fn push_row(
        &mut self,
        row: &RequestRow<'_>,
        (scheduled_s, part): (f64, u32),
        counts: impl Fn(Metric) -> bool,
    ) {
        let fields = RequestFields {
            round: row.round(),
            session: row.seq(),
            turn: row.turn(),
            begins_session: row.begins_session(),
            group: row.group(),
            model: row.model(),
            endpoint: row.endpoint(),
            kept_headers: row.kept_headers(),
            finish_reason: row.finish_reason(),
            prompt_hash: row.prompt_hash(),
            ok: row.ok(),
            left: row.left(),
            reasoning_alone: row.is_reasoning_alone(),
            part,
            scheduled_s,
            busy_ms: row.busy_ms(),
        };
        let gaps = if row.ok() { row.gaps() } else { Vec::new() };
        let is_kept = |metric: Metric| {
            (metric.per() == Scope::Request || metric.is_request_share()) && counts(metric)
        };
        let value = |metric: Metric| is_kept(metric).then(|| row.metric(metric)).flatten();
        self.push(fields, value, gaps);
    }

    /// The one request of this outcome, while its case still runs. `requested`: the output length that it asks for.
    pub fn of_outcome(
        outcome: &Outcome,
        round: u32,
        requested: Option<RequestedLength>,
    ) -> MeasuredRequests {
        let row = OutcomeRow::from(&TaggedOutcome {
            case: "",
            round,
            shard: 0,
            outcome,
        });
        let row = RequestRow::of_outcome(&row);
        let mut requests = MeasuredRequests::default();
        requests.push_row(&row, (0.0, 0), |metric| {
            output_lengths::applies(metric, &row, requested)
        });
        requests
    }

    /// Empty columns with memory for as many requests and gaps.
    pub(super) fn with_capacity(requests: usize, gaps: usize) -> MeasuredRequests {
        MeasuredRequests {
            rounds: Vec::with_capacity(requests),
            sessions: Vec::with_capacity(requests),
            turns: Vec::with_capacity(requests),
            prompt_hashes: Vec::with_capacity(requests),
            parts: Vec::with_capacity(requests),
            ok: Vec::with_capacity(requests),
            left: Vec::with_capacity(requests),
            scheduled_s: Vec::with_capacity(requests),
            busy_ms: Vec::with_capacity(requests),
            gaps: Lists {
                ends: Vec::with_capacity(requests),
                numbers: Vec::with_capacity(gaps),
            },
            ..MeasuredRequests::default()
        }
    }

    /// The requests that `is_kept` selects.
    pub(super) fn select(
        &self,
        is_kept: impl Fn(&MeasuredRequest<'_>) -> bool,
    ) -> MeasuredRequests {
        let mut selected = MeasuredRequests::default();
        for request in self.iter().filter(is_kept) {
            let tags = request.tags();
            let fields = RequestFields {
                round: request.round(),
                session: request.session(),
                turn: request.turn(),
                begins_session: request.begins_session(),
                group: tags.group,
                model: tags.model,
                endpoint: tags.endpoint,
                kept_headers: tags.kept_headers,
                finish_reason: request.finish_reason(),
                prompt_hash: request.prompt_hash(),
                ok: request.ok(),
                left: request.left(),
                reasoning_alone: request.is_reasoning_alone(),
                part: request.part(),
                scheduled_s: request.scheduled_s(),
                busy_ms: request.busy_ms(),
            };
            let gaps = request.gaps().iter().copied();
            selected.push(fields, |metric| request.value(metric), gaps);
        }
        selected
    }

    /// Number of requests.
    pub fn len(&self) -> usize {
        self.ok.len()
    }

    /// Whether there is no request.
    pub fn is_empty(&self) -> bool {
        self.ok.is_empty()
    }

    /// The requests in their order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = MeasuredRequest<'_>> + Clone {
        (0..self.len()).map(|row| MeasuredRequest {
            requests: self,
            row,
        })
    }

    /// The values of a metric that exist, over all requests.
    pub fn values(&self, metric: Metric) -> impl Iterator<Item = f64> {
        self.column(metric)
            .iter()
            .copied()
            .filter(|value| !value.is_nan())
    }

    fn column(&self, metric: Metric) -> &[f64] {
        self.metrics.get(metric as usize).map_or(&[], Vec::as_slice)
    }

    /// Replaces a value that exists, or adds it.
    pub(super) fn set_value(&mut self, row: usize, metric: Metric, value: f64) {
        let len = self.len();
        if let Some(column) = self.metrics.get_mut(metric as usize) {
            column.resize(len, f64::NAN);
            column
                .get_mut(row)
                .into_iter()
                .for_each(|known| *known = value);
        }
    }

    /// The gaps of a request, to change them.
    pub(super) fn gaps_mut(&mut self, row: usize) -> &mut [f64] {
        self.gaps.get_mut(row)
    }

    /// Counts a failed request as a success.
    pub(super) fn set_ok(&mut self, row: usize) {
        self.ok.get_mut(row).into_iter().for_each(|ok| *ok = true);
    }
}

/// One row of the columns.
#[derive(Clone, Copy, Debug)]
pub struct MeasuredRequest<'a> {
    requests: &'a MeasuredRequests,
    row: usize,
}

fn at<T: Copy + Default>(column: &[T], row: usize) -> T {
    column.get(row).copied().unwrap_or_default()
}

impl<'a> MeasuredRequest<'a> {
    /// Round of the case, from 0.
    pub fn round(self) -> u32 {
        at(&self.requests.rounds, self.row)
    }

    /// Number of its session.
    pub(super) fn session(self) -> u64 {
        at(&self.requests.sessions, self.row)
    }

    /// Turn in its session, from 0.
    pub fn turn(self) -> u32 {
        at(&self.requests.turns, self.row)
    }

    /// Whether it is the first measured turn of its session.
    pub fn begins_session(self) -> bool {
        at(&self.requests.begins_session, self.row)
    }

    /// Group of its prompt, where the dataset has groups.
    pub fn group(self) -> Option<&'a str> {
        self.requests.groups.get(self.row)
    }

    /// The URL that it was sent to, where the target has several.
    pub fn endpoint(self) -> Option<&'a str> {
        self.requests.endpoints.get(self.row)
    }

    /// The kept headers of its response, each as a line `name: value`.
    pub fn kept_headers(self) -> Option<&'a str> {
        self.requests.kept_headers.get(self.row)
    }

    /// Its finish reason, as sent by the server; None where it sent none, or the request failed.
    pub fn finish_reason(self) -> Option<&'a str> {
        self.requests.finish_reasons.get(self.row)
    }

    /// Its part of a planned load that changes.
    pub(super) fn part(self) -> u32 {
        self.requests.parts.get(self.row).copied().unwrap_or(0)
    }

    /// Hash of its prompt, if known.
    pub fn prompt_hash(self) -> Option<u64> {
        let hash = self.requests.prompt_hashes.get(self.row).copied();
        hash.filter(|hash| *hash != 0)
    }

    /// Whether it succeeded.
    pub fn ok(self) -> bool {
        at(&self.requests.ok, self.row)
    }

    /// Whether its client cancelled it, as the scenario asked for: neither a success nor an error.
    pub fn left(self) -> bool {
        at(&self.requests.left, self.row)
    }

    /// Whether its reply is reasoning without any answer.
    pub(super) fn is_reasoning_alone(self) -> bool {
        at(&self.requests.reasoning_alone, self.row)
    }

    /// Scheduled send in seconds after the start of its round's window.
    pub(super) fn scheduled_s(self) -> f64 {
        at(&self.requests.scheduled_s, self.row)
    }

    /// `end` − `sent` in milliseconds, whatever the result; 0 where it was never sent.
    pub fn busy_ms(self) -> f64 {
        at(&self.requests.busy_ms, self.row)
    }

    /// Whether `load.max_in_flight` held it until sending ended.
    pub(super) fn was_held_to_the_end(self) -> bool {
        !self.ok()
            && self.busy_ms() == 0.0
            && self.value(Metric::HeldTime).is_some_and(|held| held > 0.0)
    }

    /// The value of a per-request metric, where it exists.
    pub fn value(self, metric: Metric) -> Option<f64> {
        self.requests
            .column(metric)
            .get(self.row)
            .copied()
            .filter(|value| !value.is_nan())
    }

    /// Gaps between its token events, in milliseconds.
    pub fn gaps(self) -> &'a [f64] {
        self.requests.gaps.get(self.row)
    }

    /// What it adds to the distribution of a metric: its gaps, or its one value, or nothing.
    pub(super) fn samples(self, metric: Metric) -> &'a [f64] {
        match metric.per() {
            _ if !self.counts(metric) => &[],
            Scope::Gap => self.gaps(),
            Scope::Request | Scope::Case => {
                let value = self
                    .requests
                    .column(metric)
                    .get(self.row..=self.row)
                    .unwrap_or_default();
                if value.iter().any(|value| value.is_nan()) {
                    &[]
                } else {
                    value
                }
            }
        }
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

    /// Whether it counts towards a share of the requests: it failed, or its answer passed. None where the client cancelled it, and
    /// where its answer was not checked.
    pub(super) fn is_hit(self, share: Metric) -> Option<bool> {
        match share {
            _ if self.left() => None,
            Metric::ErrorRate => Some(!self.ok()),
            share => self.value(share).map(|passed| passed == 1.0),
        }
    }

    /// Whether it counts towards the share that a check is about. None where the share does not apply to it, and for a check about
    /// no share.
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

    /// What it adds to a throughput: 1 to requests, its tokens to token rates, nothing where it failed. None where its tokens
    /// are unknown, and for every other metric.
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
        let model = self.requests.models.get(self.row).unwrap_or_default();
        Tags {
            round: self.round(),
            turn: self.turn(),
            group: self.group(),
            model,
            endpoint: self.endpoint(),
            kept_headers: self.kept_headers(),
        }
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
