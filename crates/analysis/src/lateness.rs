//! By how much the load generator's own stalls and delays may have shifted the values of a case, request by request.
//!
//! A timestamp that a worker thread took right after a stall is late by the length of the stall at most, and never early. So
//! each value lies between two others, which are taken here; docs/metrics.md, section 5, has the table.

use crate::CaseFacts;
use crate::measured_requests::{MeasuredRequest, MeasuredRequests};
use crate::request_row::RequestRow;
use crate::sample::Sample;
use crate::scalars::{error_rate, mean_user_tps};
use crate::table::Table;
use llmscen_core::manifest::{Stall, Vitals};
use llmscen_core::metric::Metric;
use llmscen_core::outcome::{Failure, FailureKind};
use llmscen_core::units::Nanos;
use std::collections::BTreeMap;

/// How long after a stall, and the work that was waiting, a timestamp may still be late by it, nanoseconds.
const AFTER: u64 = 1_000_000;
/// The least that is left of a latency, milliseconds: speeds are its inverse.
const LEAST: f64 = 1e-3;

/// What the load generator did to a case, where it did anything.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Lateness {
    rows: BTreeMap<(u32, u64, u32), Late>,
}

/// What one request may be late by, in milliseconds.
#[derive(Clone, Debug, Default, PartialEq)]
struct Late {
    /// Its timestamps.
    first: f64,
    answer: f64,
    chunk: f64,
    end: f64,
    sent: f64,
    /// How much later it was sent than scheduled.
    delay: f64,
    /// Its first and its last tokens, per step between tokens.
    pace: (f64, f64),
    /// Gaps by their place: by how much the earlier token may be late, and the later one.
    gaps: Vec<(u32, f64, f64)>,
    /// It failed by the load generator, or so near to a stall that this may be why.
    own_failure: bool,
}

impl Late {
    fn is_none(&self) -> bool {
        *self == Late::default()
    }
}

/// Which stalls and send delays count.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Accepted {
    /// Stalls of at most this length do not.
    pub stall: Nanos,
    /// No send delay does.
    pub delays: bool,
    /// No timestamp is late: whoever took it is not a worker thread.
    pub stamps: bool,
}

/// What the load generator did to the measured requests of a case; None where it did nothing.
pub fn lateness(table: &Table, facts: &CaseFacts<'_>, accepted: Accepted) -> Option<Lateness> {
    let own = |part: &llmscen_core::manifest::Part| {
        let vitals = part.vitals.as_ref().filter(|_| part.case == facts.case.id && !accepted.stamps)?;
        Some((part.round, Stalls::of(vitals, accepted.stall.0)))
    };
    let stalls: BTreeMap<u32, Stalls> = facts.parts.iter().filter_map(own).collect();
    let none = Stalls::default();
    let mut rows = BTreeMap::new();
    for row in table.rows_of_case(&facts.case.id).iter().filter(|row| row.measured()) {
        let late = late(row, stalls.get(&row.round()).unwrap_or(&none), accepted);
        if !late.is_none() {
            rows.insert((row.round(), row.seq(), row.turn()), late);
        }
    }
    (!rows.is_empty()).then_some(Lateness { rows })
}

/// The stalls of a round, in the order of their ends. Which worker took a timestamp is not known: it may have been any.
#[derive(Debug, Default)]
struct Stalls {
    stalls: Vec<Stall>,
    /// The longest time that one of them was at work before its end, and after it.
    busy: u64,
    after: u64,
}

impl Stalls {
    fn of(vitals: &Vitals, accepted: u64) -> Stalls {
        let workers = vitals.stalls.iter().flatten();
        let counts = |stall: &Stall| stall.to.saturating_sub(stall.from) > accepted;
        let mut stalls: Vec<Stall> = workers.flat_map(|worker| &worker.longest).copied().filter(counts).collect();
        stalls.sort_by_key(|stall| stall.to);
        let most = |value: fn(&Stall) -> u64| stalls.iter().map(value).max().unwrap_or(0);
        let (busy, after) = (most(|stall| stall.busy), most(|stall| stall.after) + AFTER);
        Stalls { stalls, busy, after }
    }

    /// By how much a timestamp may be late, milliseconds.
    fn at(&self, stamp: u64) -> f64 {
        let from = self.stalls.partition_point(|stall| stall.to + self.after < stamp);
        let near = self.stalls.iter().skip(from).take_while(|stall| stall.to.saturating_sub(self.busy) <= stamp);
        let span = |stall: &Stall| stall.to.saturating_sub(stall.busy)..=stall.to + stall.after + AFTER;
        let within = near.filter(|stall| span(stall).contains(&stamp) && stall.from < stamp);
        within.map(|stall| stamp.min(stall.to) - stall.from).max().unwrap_or(0) as f64 / 1e6
    }
}

fn late(row: &RequestRow<'_>, stalls: &Stalls, accepted: Accepted) -> Late {
    let at = |stamp: Option<u64>| stamp.map_or(0.0, |stamp| stalls.at(stamp));
    let delay = row.metric(Metric::ScheduleLag).filter(|_| !accepted.delays).unwrap_or(0.0);
    let mut late = Late { delay, ..Late::default() };
    if !stalls.stalls.is_empty() {
        (late.first, late.chunk, late.end) = (at(row.first_token()), at(row.first_chunk()), stalls.at(row.end()));
        late.answer = at(row.first_answer());
        late.sent = at(row.sent());
        late.pace = pace(row, stalls);
        late.gaps = gaps(row, stalls);
    }
    late.own_failure = row.failure().is_some_and(|kind| match kind {
        FailureKind::ToolStall => true,
        FailureKind::Connect => [Failure::NO_FILES, Failure::NO_PORTS].iter().any(|own| row.message().contains(own)),
        FailureKind::TimeoutConnect | FailureKind::TimeoutRead | FailureKind::TimeoutTotal => late.end > 0.0,
        _ => false,
    });
    late
}

fn pace(row: &RequestRow<'_>, stalls: &Stalls) -> (f64, f64) {
    let spans = row.choice_spans();
    let steps = row.output_tokens().and_then(|tokens| tokens.checked_sub(spans.len() as u64)).unwrap_or(0);
    let sum = |stamp: fn(&(u64, u64)) -> u64| spans.iter().map(|span| stalls.at(stamp(span))).sum::<f64>() / steps as f64;
    if steps > 0 { (sum(|span| span.0), sum(|span| span.1)) } else { (0.0, 0.0) }
}

/// In the order of [`RequestRow::gaps`].
fn gaps(row: &RequestRow<'_>, stalls: &Stalls) -> Vec<(u32, f64, f64)> {
    if !row.ok() {
        return Vec::new();
    }
    let mut latest: BTreeMap<u32, f64> = BTreeMap::new();
    let mut late = Vec::new();
    let mut place = 0;
    for (index, &event) in row.events().iter().enumerate() {
        let now = stalls.at(event);
        let choice = row.choices().get(index).copied().unwrap_or(0);
        if let Some(before) = latest.insert(choice, now) {
            if before > 0.0 || now > 0.0 {
                late.push((place, before, now));
            }
            place += 1;
        }
    }
    late
}

/// Which end of its range every value of a case takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The server as slow as the measurement allows.
    Slow,
    /// As fast.
    Fast,
}

impl Lateness {
    /// The sample with every value at one end of its range. `idle`: the share of the offered load that was not there, by which a
    /// server may have been faster.
    pub fn shifted(&self, sample: &Sample, end: End, idle: f64) -> Sample {
        let mut shifted = sample.clone();
        for (row, request) in sample.requests.iter().enumerate() {
            if let Some(late) = self.rows.get(&(request.round(), request.session(), request.turn())) {
                late.shift(request, &mut shifted.requests, row, end);
            }
        }
        if end == End::Fast {
            let more = 1.0 / (1.0 - idle.clamp(0.0, 0.99));
            shifted.windows.iter_mut().chain(&mut shifted.sending).for_each(|window| *window /= more);
            for metric in Metric::WINDOWED.into_iter().chain([Metric::OutputTpsSteady]) {
                shifted.scalars.entry(metric).and_modify(|value| *value *= more);
            }
        }
        let requests: Vec<MeasuredRequest<'_>> = shifted.requests.iter().collect();
        let changed = [(Metric::ErrorRate, error_rate(&requests)), (Metric::OutputTpsPerUser, mean_user_tps(&requests))];
        for (metric, value) in changed {
            if let (Some(value), Some(own)) = (value, shifted.scalars.get_mut(&metric)) {
                *own = value;
            }
        }
        shifted
    }
}

impl Late {
    /// Writes the values of `request` at this end of their ranges to its row of `shifted`.
    fn shift(&self, request: MeasuredRequest<'_>, shifted: &mut MeasuredRequests, row: usize, end: End) {
        if end == End::Fast && self.own_failure {
            // The request might have succeeded, as fast as possible.
            shifted.set_ok(row);
            [Metric::Ttft, Metric::TtftService, Metric::Ttfc, Metric::Tpot, Metric::E2e, Metric::E2eService]
                .into_iter()
                .for_each(|metric| shifted.set_value(row, metric, LEAST));
            return;
        }
        for &metric in Metric::ALL {
            if let Some(value) = request.value(metric) {
                shifted.set_value(row, metric, self.value(metric, value, request, end));
            }
        }
        let gaps = shifted.gaps_mut(row);
        for (index, earlier, later) in &self.gaps {
            if let Some(gap) = gaps.get_mut(*index as usize) {
                *gap = if end == End::Slow { *gap + earlier } else { (*gap - later).max(0.0) };
            }
        }
    }

    fn value(&self, metric: Metric, own: f64, request: MeasuredRequest<'_>, end: End) -> f64 {
        let shorter = |own: f64, by: f64| own.min((own - by).max(LEAST));
        let span = |metric: Metric, own: f64| match (metric, end) {
            (Metric::Tpot, End::Slow) => own + self.pace.0,
            (Metric::Tpot, End::Fast) => shorter(own, self.pace.1),
            (_, End::Slow) => own,
            (Metric::Ttft | Metric::TtftFirstTurn | Metric::TtftLaterTurns, End::Fast) => shorter(own, self.first + self.delay),
            (Metric::TimeToFirstAnswer, End::Fast) => shorter(own, self.answer + self.delay),
            (Metric::TtftService, End::Fast) => shorter(own, self.first + self.sent),
            (Metric::Ttfc, End::Fast) => shorter(own, self.chunk + self.sent),
            (Metric::E2e, End::Fast) => shorter(own, self.end + self.delay),
            (Metric::E2eService, End::Fast) => shorter(own, self.end + self.sent),
            _ => own,
        };
        // By how much the span that a value is taken from grows.
        let grows = |of: Metric| request.value(of).filter(|own| *own > 0.0).map_or(1.0, |own| span(of, own) / own);
        match metric {
            Metric::DecodeTps => own / grows(Metric::Tpot),
            Metric::PrefillTps => own / grows(Metric::TtftService),
            Metric::OutputTpsPerRequest | Metric::TotalTpsPerRequest => own / grows(Metric::E2e),
            Metric::Ntpot => own * grows(Metric::E2e),
            Metric::TtftPerPromptToken => own * grows(Metric::Ttft),
            metric => span(metric, own),
        }
    }
}

#[cfg(test)]
mod tests;
