//! By how much stalls and send delays of the load generator may have shifted the values of each request.
//!
//! A timestamp of bytes that arrived in a stall, or that were read right after it, is late by at most the time since
//! the stall began, and never early. So each value has a range, which is computed here;
//! docs/explanation/self-audit.md has the table.

use crate::CaseFacts;
use crate::error::TableError;
use crate::measured_requests::{MeasuredRequest, MeasuredRequests};
use crate::request_row::RequestRow;
use crate::sample::Sample;
use crate::scalars::{mean_user_tps, request_share};
use crate::table::Table;
use llmscen_core::manifest::{Part, Stall, Vitals};
use llmscen_core::metric::{Metric, Sensitivity};
use llmscen_core::outcome::FailureKind;
use llmscen_core::stats::moments::mean;
use llmscen_core::units::{Nanos, Unit};
use polars::prelude::Column;
use std::collections::BTreeMap;

/// The latencies that a request has if it succeeds.
const OF_SUCCESS: [Metric; 6] = [
    Metric::Ttft,
    Metric::TtftService,
    Metric::Ttfc,
    Metric::Tpot,
    Metric::E2e,
    Metric::E2eService,
];
/// How long after a stall, and the work that waited for it, a timestamp may still be late, in nanoseconds.
const AFTER_STALL: u64 = 1_000_000;
/// Minimum of a shortened latency in milliseconds, since rates are its inverse.
const MIN_LATENCY: f64 = 1e-3;

/// The lateness of the requests of a case that have any.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Lateness {
    /// By round, session and turn, in this order.
    requests: Vec<((u32, u64, u32), RequestLateness)>,
}

/// By how much the timestamps of a request may be late, in milliseconds.
#[derive(Clone, Debug, Default, PartialEq)]
struct RequestLateness {
    stamps: StampLateness,
    /// By index of the gap: its earlier and its later token.
    gaps: Vec<(u32, f64, f64)>,
    /// The load generator made the request fail, or a stall at its end may have.
    own_failure: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct StampLateness {
    first_token: f64,
    first_answer: f64,
    first_chunk: f64,
    end: f64,
    sent: f64,
    /// Send delay: actual minus scheduled send time.
    delay: f64,
    /// First and last tokens, per step between tokens.
    tpot: (f64, f64),
}

impl RequestLateness {
    fn is_none(&self) -> bool {
        *self == RequestLateness::default()
    }
}

/// Which stalls and send delays count.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Accepted {
    /// Stalls of at most this length do not count.
    pub stall: Nanos,
    /// Send delays of at most this do not count.
    pub delay: Nanos,
    /// No timestamp is late, since no worker thread took it.
    pub timestamps: bool,
}

/// The lateness of the measured requests of a case; None where no request has any.
pub fn measure_lateness(
    table: &Table,
    facts: &CaseFacts<'_>,
    accepted: Accepted,
) -> Option<Lateness> {
    // Stalls of a shard delay only its own requests.
    let of_part = |part: &Part| {
        let collect =
            |vitals: &Option<Vitals>| Some(Stalls::collect(vitals.as_ref()?, accepted.stall.0));
        let of_all = collect(&part.vitals)
            .filter(|_| part.shards.is_empty())
            .map(|stalls| ((part.round, None), stalls));
        let of_shards = part
            .shards
            .iter()
            .filter_map(|shard| Some(((part.round, Some(shard.index)), collect(&shard.vitals)?)));
        of_all.into_iter().chain(of_shards).collect::<Vec<_>>()
    };
    let stalls: BTreeMap<(u32, Option<u32>), Stalls> = facts
        .parts
        .iter()
        .filter(|part| part.case == facts.case.id && !accepted.timestamps)
        .flat_map(of_part)
        .collect();
    let none = Stalls::default();
    let mut rows = Vec::new();
    for row in table
        .rows_of_case(&facts.case.id)
        .iter()
        .filter(|row| row.measured())
    {
        let stalls = [Some(row.shard()), None]
            .into_iter()
            .find_map(|shard| stalls.get(&(row.round(), shard)));
        let late = row_lateness(row, stalls.unwrap_or(&none), accepted);
        if !late.is_none() {
            rows.push(((row.round(), row.seq(), row.turn()), late));
        }
    }
    (!rows.is_empty()).then_some(Lateness { requests: rows })
}

/// The stalls of all workers of a process in a round, ordered by end: which worker took a timestamp is unknown.
#[derive(Debug, Default)]
struct Stalls {
    stalls: Vec<Stall>,
    /// The longest stall.
    longest: u64,
    /// The longest time after the end of a stall in which timestamps may be late.
    after: u64,
}

impl Stalls {
    fn collect(vitals: &Vitals, accepted: u64) -> Stalls {
        let workers = vitals.stalls.iter().flatten();
        let length = |stall: &Stall| stall.to.saturating_sub(stall.from);
        let mut stalls: Vec<Stall> = workers
            .flat_map(|worker| &worker.longest)
            .copied()
            .filter(|stall| length(stall) > accepted)
            .collect();
        stalls.sort_by_key(|stall| stall.to);
        let max = |value: fn(&Stall) -> u64| stalls.iter().map(value).max().unwrap_or(0);
        let (longest, after) = (max(length), max(|stall| stall.after) + AFTER_STALL);
        Stalls {
            stalls,
            longest,
            after,
        }
    }

    /// By how much a timestamp may be late, in milliseconds. Bytes that arrive in a stall are read together after it,
    /// and have the timestamp of the last of them: in the stall if the kernel took the timestamp, else after it.
    fn at(&self, timestamp: u64) -> f64 {
        let from = self
            .stalls
            .partition_point(|stall| stall.to + self.after < timestamp);
        let near = self
            .stalls
            .iter()
            .skip(from)
            .take_while(|stall| stall.to.saturating_sub(self.longest) < timestamp);
        let within = near.filter(|stall| {
            stall.from < timestamp && timestamp <= stall.to + stall.after + AFTER_STALL
        });
        within
            .map(|stall| timestamp.min(stall.to) - stall.from)
            .max()
            .unwrap_or(0) as f64
            / 1e6
    }
}

fn row_lateness(row: &RequestRow<'_>, stalls: &Stalls, accepted: Accepted) -> RequestLateness {
    let at = |timestamp: Option<u64>| timestamp.map_or(0.0, |timestamp| stalls.at(timestamp));
    let delay = row
        .metric(Metric::ScheduleLag)
        .filter(|delay| *delay > accepted.delay.millis())
        .unwrap_or(0.0);
    let mut late = RequestLateness::default();
    late.stamps.delay = delay;
    if !stalls.stalls.is_empty() {
        late.stamps.first_token = at(row.first_token());
        late.stamps.first_chunk = at(row.first_chunk());
        late.stamps.end = stalls.at(row.end());
        late.stamps.first_answer = at(row.first_answer());
        late.stamps.sent = at(row.sent());
        late.stamps.tpot = tpot_lateness(row, stalls);
        late.gaps = gap_lateness(row, stalls);
    }
    late.own_failure = row.failure().is_some_and(|kind| match kind {
        FailureKind::ToolStall => true,
        FailureKind::Connect => row.lacked_file(),
        FailureKind::TimeoutConnect | FailureKind::TimeoutRead | FailureKind::TimeoutTotal => {
            late.stamps.end > 0.0
        }
        _ => false,
    });
    late
}

fn tpot_lateness(row: &RequestRow<'_>, stalls: &Stalls) -> (f64, f64) {
    let spans = row.choice_spans();
    let steps = row.decoded_tokens().unwrap_or(0);
    let sum = |stamp: fn(&(u64, u64)) -> u64| {
        spans.iter().map(|span| stalls.at(stamp(span))).sum::<f64>() / steps as f64
    };
    if steps > 0 {
        (sum(|span| span.0), sum(|span| span.1))
    } else {
        (0.0, 0.0)
    }
}

/// In the order of [`RequestRow::gaps`].
fn gap_lateness(row: &RequestRow<'_>, stalls: &Stalls) -> Vec<(u32, f64, f64)> {
    if !row.ok() {
        return Vec::new();
    }
    let mut latest: BTreeMap<u32, f64> = BTreeMap::new();
    let mut gaps = Vec::new();
    let mut gap = 0;
    for (index, &event) in row.events().iter().enumerate() {
        let now = stalls.at(event);
        let choice = row.choices().get(index).copied().unwrap_or(0);
        if let Some(before) = latest.insert(choice, now) {
            if before > 0.0 || now > 0.0 {
                gaps.push((gap, before, now));
            }
            gap += 1;
        }
    }
    gaps
}

/// The end of its range that every value takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The slowest server that the measurement allows.
    Slow,
    /// The fastest one.
    Fast,
}

impl Lateness {
    fn find(&self, key: (u32, u64, u32)) -> Option<&RequestLateness> {
        let found = self
            .requests
            .binary_search_by_key(&key, |(key, _)| *key)
            .ok()?;
        self.requests.get(found).map(|(_, late)| late)
    }

    fn shift_requests(
        &self,
        requests: &MeasuredRequests,
        end: End,
        margin_ms: f64,
    ) -> Result<MeasuredRequests, TableError> {
        let margin = RequestLateness::default();
        let find = |request: MeasuredRequest<'_>| {
            self.find((request.round(), request.session(), request.turn()))
                .or((margin_ms > 0.0).then_some(&margin))
        };
        let late: Vec<Option<&RequestLateness>> = requests.iter().map(find).collect();
        if late.iter().all(Option::is_none) {
            return Ok(requests.clone());
        }
        let late_at = |place: usize| late.get(place).copied().flatten();
        // The request might have succeeded, as fast as possible.
        let might_succeed =
            |place: usize| end == End::Fast && late_at(place).is_some_and(|late| late.own_failure);
        let value = |metric: Metric, place: usize, request: MeasuredRequest<'_>| {
            let measured = request.value(metric);
            match late_at(place) {
                Some(_) if might_succeed(place) => match OF_SUCCESS.contains(&metric) {
                    true => Some(MIN_LATENCY),
                    false => measured,
                },
                Some(late) => {
                    let stamps = late.stamps.later(margin_ms);
                    Some(stamps.value(metric, measured?, request, end))
                }
                None => measured,
            }
        };
        let might_any = late.iter().flatten().any(|late| late.own_failure) && end == End::Fast;
        let changes = |metric: &&Metric| {
            let exists = requests.has_values(**metric) || might_any && OF_SUCCESS.contains(*metric);
            exists && metric.sensitivity() != Sensitivity::Fixed
        };
        let mut columns: Vec<Column> = Metric::ALL
            .iter()
            .filter(changes)
            .map(|&metric| requests.metric_column(metric, |at, it| value(metric, at, it)))
            .collect();
        if might_any {
            columns.push(requests.ok_column(|place, request| request.ok() || might_succeed(place)));
        }
        if late.iter().flatten().any(|late| !late.gaps.is_empty()) {
            columns.push(requests.gaps_column(|place, gaps| {
                let late = late_at(place).filter(|_| !might_succeed(place));
                for (index, earlier, later) in late.iter().flat_map(|late| &late.gaps) {
                    if let Some(gap) = gaps.get_mut(*index as usize) {
                        *gap = match end {
                            End::Slow => *gap + earlier,
                            End::Fast => (*gap - later).max(0.0),
                        };
                    }
                }
            }));
        }
        Ok(requests.with_columns(columns)?)
    }

    /// The sample with every value at one end of its range. `idle`: the share of the load that was missing, by which
    /// a server may have been faster. `margin_ms`: by how much more the timestamps of every reply may be late.
    ///
    /// # Errors
    /// A frame could not be built.
    pub fn shift(
        &self,
        sample: &Sample,
        end: End,
        idle: f64,
        margin_ms: f64,
    ) -> Result<Sample, TableError> {
        let mut shifted =
            sample.with_requests(self.shift_requests(&sample.requests, end, margin_ms)?);
        if end == End::Fast {
            let speedup = 1.0 / (1.0 - idle.clamp(0.0, 0.99));
            shifted
                .windows
                .iter_mut()
                .chain(&mut shifted.requests_window.seconds)
                .chain(&mut shifted.sessions_window.seconds)
                .for_each(|window| *window /= speedup);
            for metric in Metric::WINDOWED
                .into_iter()
                .chain([Metric::OutputTpsSteady])
            {
                shifted
                    .scalars
                    .entry(metric)
                    .and_modify(|value| *value *= speedup);
            }
        }
        let requests: Vec<MeasuredRequest<'_>> = shifted.requests.iter().collect();
        let changed = [
            (
                Metric::ErrorRate,
                request_share(&requests, Metric::ErrorRate),
            ),
            (Metric::OutputTpsPerUser, mean_user_tps(&requests)),
        ];
        for (metric, value) in changed {
            if let (Some(value), Some(scalar)) = (value, shifted.scalars.get_mut(&metric)) {
                *scalar = value;
            }
        }
        Ok(shifted)
    }
}

/// Minimum share of busy time by which the effect of idle users is estimated.
const MIN_BUSY: f64 = 0.01;

/// The factor by which a closed loop is slower at most, if users that were idle for this share of their time are not.
pub fn idle_factor(idle: f64) -> f64 {
    (1.0 - idle).max(MIN_BUSY).powi(-2)
}

/// The sample with every latency as long as it may be if users are not idle for this share of their time, and every
/// rate of a request or user as low. A latency that contains the queue is longer by the mean time that users were
/// idle, too: if the server is full, that time becomes waiting time.
///
/// # Errors
/// A frame could not be built.
pub fn slow_down(sample: &Sample, idle: f64) -> Result<Sample, TableError> {
    let factor = idle_factor(idle);
    let ok = sample.requests.iter().filter(|request| request.ok());
    let busy: Vec<f64> = ok.map(|request| request.busy_ms()).collect();
    let wait_ms = idle / (1.0 - idle).max(MIN_BUSY) * mean(&busy).unwrap_or(0.0);
    let slower = |metric: Metric, value: f64| {
        let contains_queue = match metric.sensitivity() {
            Sensitivity::Latency | Sensitivity::Service => true,
            Sensitivity::Pace => false,
            Sensitivity::Errors
            | Sensitivity::Throughput
            | Sensitivity::Figure
            | Sensitivity::Fixed => return value,
        };
        let wait_ms = match metric.unit() {
            Unit::Millis if contains_queue => wait_ms,
            _ => 0.0,
        };
        match metric.higher_is_better() {
            true => value / factor,
            false => (value * factor).max(value + wait_ms),
        }
    };
    let changes = |metric: &&Metric| {
        use Sensitivity::{Latency, Pace, Service};
        matches!(metric.sensitivity(), Latency | Service | Pace)
            && sample.requests.has_values(**metric)
    };
    let metrics = Metric::ALL.iter().filter(changes).map(|&metric| {
        let value = |request: MeasuredRequest<'_>| Some(slower(metric, request.value(metric)?));
        sample
            .requests
            .metric_column(metric, |_, request| value(request))
    });
    let gaps = sample
        .requests
        .gaps_column(|_, gaps| gaps.iter_mut().for_each(|gap| *gap *= factor));
    let mut slowed = sample.with_requests(sample.requests.with_columns(metrics.chain([gaps]))?);
    for (metric, value) in &mut slowed.scalars {
        *value = slower(*metric, *value);
    }
    Ok(slowed)
}

impl StampLateness {
    /// The same with every timestamp of the reply later.
    fn later(self, by_ms: f64) -> StampLateness {
        StampLateness {
            first_token: self.first_token + by_ms,
            first_answer: self.first_answer + by_ms,
            first_chunk: self.first_chunk + by_ms,
            end: self.end + by_ms,
            ..self
        }
    }

    /// A value at this end of its range.
    fn value(self, metric: Metric, measured: f64, request: MeasuredRequest<'_>, end: End) -> f64 {
        let shorten = |value: f64, by: f64| value.min((value - by).max(MIN_LATENCY));
        let span = |metric: Metric, value: f64| match (metric, end) {
            (Metric::Tpot, End::Slow) => value + self.tpot.0,
            (Metric::Tpot, End::Fast) => shorten(value, self.tpot.1),
            (Metric::ReasoningTime, End::Slow) => value + self.first_token,
            (Metric::ReasoningTime, End::Fast) => shorten(value, self.first_answer),
            (_, End::Slow) => value,
            (Metric::Ttft | Metric::TtftFirstTurn | Metric::TtftLaterTurns, End::Fast) => {
                shorten(value, self.first_token + self.delay)
            }
            (Metric::TimeToFirstAnswer, End::Fast) => {
                shorten(value, self.first_answer + self.delay)
            }
            (Metric::TtftService, End::Fast) => shorten(value, self.first_token + self.sent),
            (Metric::Ttfc, End::Fast) => shorten(value, self.first_chunk + self.sent),
            (Metric::Ttfa, End::Fast) => shorten(value, self.first_chunk + self.delay),
            (Metric::E2e, End::Fast) => shorten(value, self.end + self.delay),
            (Metric::E2eService, End::Fast) => shorten(value, self.end + self.sent),
            _ => value,
        };
        // The factor by which the latency grows that a value is computed from.
        let growth = |latency: Metric| {
            request
                .value(latency)
                .filter(|value| *value > 0.0)
                .map_or(1.0, |value| span(latency, value) / value)
        };
        match metric {
            Metric::DecodeTps => measured / growth(Metric::Tpot),
            Metric::PrefillTps => measured / growth(Metric::TtftService),
            Metric::OutputTpsPerRequest | Metric::TotalTpsPerRequest => {
                measured / growth(Metric::E2e)
            }
            Metric::Ntpot | Metric::Rtf => measured * growth(Metric::E2e),
            Metric::RtfxPerRequest => measured / growth(Metric::E2e),
            Metric::TtftPerPromptToken => measured * growth(Metric::Ttft),
            metric => span(metric, measured),
        }
    }
}

#[cfg(test)]
mod tests;
