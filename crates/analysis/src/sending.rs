//! The throughput windows, what arrived in them, and the offered and achieved rates.
//!
//! ```text
//! first send   first success           sending stops     last end
//!     |  start      |<---- throughputs ---->|    drain      |
//! ```
//! During the drain fewer and fewer requests are in flight, and before the first success none can have ended: both
//! would make a throughput depend on the length of the run. Where the time between is too short for that, the whole
//! round counts.

use crate::CaseFacts;
use crate::in_flight::InFlight;
use crate::measured_requests::Tags;
use crate::request_row::RequestRow;
use crate::round::Round;
use llmscen_core::check::RequestLimit;
use llmscen_core::load::Shape;
use llmscen_core::manifest::Part;
use llmscen_core::metric::Metric;
use llmscen_core::mix::is_in_group;
use llmscen_core::plan::Case;
use llmscen_core::stats::long_run::BINS;
use llmscen_core::stats::moments::mean;
use llmscen_core::units::Nanos;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

/// Mean durations that a window must hold, so that its ends do not decide the throughput.
const MIN_DURATIONS: f64 = 3.0;
/// How far a throughput may exceed what Little's law allows, because the requests that end in a window are a sample.
const LITTLE_TOLERANCE: f64 = 1.05;

/// What ends in a throughput window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// One request.
    Request,
    /// All turns of a conversation.
    Session,
}

/// The windows of the rounds of a case that throughputs are over.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ThroughputWindow {
    /// Nanoseconds of each round, by round number. The start is exclusive, since what arrives then was generated
    /// earlier; the end is inclusive. None for a round without one.
    spans: Vec<Option<Range<u64>>>,
    /// Length of each round's window in seconds, by round number; 0 for a round without one.
    pub seconds: Vec<f64>,
    /// Seconds from the ends of the windows to the last ends of their rounds.
    pub(super) drain: f64,
    /// Why the spans are the whole rounds, start and drain included; None where they are the windows of steady sending.
    pub whole: Option<WholeReason>,
}

/// Why there is no window of steady sending.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum WholeReason {
    /// It holds fewer than three mean durations.
    TooShort {
        /// What the throughputs count.
        unit: Unit,
        /// Mean length over the rounds in seconds.
        seconds: f64,
        /// Mean duration in seconds, of the class of requests or sessions with the longest.
        duration: f64,
    },
    /// Throughput × mean duration would be above the greatest number in flight, against Little's law.
    AboveLittle,
}

impl ThroughputWindow {
    /// Windows of steady sending of known lengths in seconds, by round number.
    pub fn of_lengths(seconds: Vec<f64>) -> ThroughputWindow {
        ThroughputWindow {
            seconds,
            ..ThroughputWindow::default()
        }
    }

    pub(super) fn of(
        rounds: &[Round<'_, '_>],
        facts: &CaseFacts<'_>,
        unit: Unit,
    ) -> ThroughputWindow {
        let flights: Vec<Vec<Flight<'_>>> = rounds
            .iter()
            .map(|round| flights(round, facts, unit))
            .collect();
        let steady: Vec<Option<Range<u64>>> = rounds
            .iter()
            .zip(&flights)
            .map(|(round, flights)| steady_window(round, flights, facts))
            .collect();
        let measured = rounds.iter().zip(flights).zip(&steady);
        let measured = measured.filter(|((round, _), _)| round.window.is_some());
        let measured: Vec<_> = measured
            .map(|((_, flights), span)| (span, flights))
            .collect();
        let whole = whole_reason(&measured, facts, unit);
        let mut window = ThroughputWindow {
            whole,
            ..ThroughputWindow::default()
        };
        let last = rounds.last().map_or(0, |round| round.number() as usize + 1);
        window.spans.resize(last, None);
        window.drain = rounds
            .iter()
            .zip(&steady)
            .filter_map(|(round, span)| Some(round.window?.1.saturating_sub(span.as_ref()?.end)))
            .map(|nanos| nanos as f64 / 1e9)
            .sum();
        for (round, steady) in rounds.iter().zip(steady) {
            let all = || round.window.map(|(first, last)| first..last);
            let span = if whole.is_some() { all() } else { steady };
            if let Some(known) = window.spans.get_mut(round.number() as usize) {
                *known = span.filter(|span| !span.is_empty());
            }
        }
        let seconds = |span: &Option<Range<u64>>| {
            span.as_ref()
                .map_or(0.0, |span| (span.end - span.start) as f64 / 1e9)
        };
        window.seconds = window.spans.iter().map(seconds).collect();
        window
    }

    fn span(&self, round: &Round<'_, '_>) -> Option<&Range<u64>> {
        self.spans.get(round.number() as usize)?.as_ref()
    }

    /// Length of all rounds in seconds.
    pub(super) fn total(&self) -> f64 {
        self.seconds.iter().sum()
    }
}

/// A request, or a session, from its send to its last end.
struct Flight<'a> {
    from: u64,
    to: u64,
    ok: bool,
    measured: bool,
    group: Option<&'a str>,
}

fn flights<'f>(round: &Round<'_, 'f>, facts: &CaseFacts<'_>, unit: Unit) -> Vec<Flight<'f>> {
    let of_rows = |rows: &'f [RequestRow<'_>]| {
        let first = rows.first()?;
        Some(Flight {
            from: rows.iter().filter_map(|row| row.sent()).min()?,
            to: rows.iter().map(|row| row.end()).max()?,
            ok: match unit {
                Unit::Request => first.ok(),
                Unit::Session => is_complete(rows, facts),
            },
            measured: first.measured(),
            group: first.group(),
        })
    };
    match unit {
        Unit::Request => round.rows.chunks(1).filter_map(of_rows).collect(),
        Unit::Session => sessions_of(round).filter_map(of_rows).collect(),
    }
}

/// The rows of each session of a round.
pub(super) fn sessions_of<'a, 'f>(
    round: &Round<'a, 'f>,
) -> impl Iterator<Item = &'f [RequestRow<'a>]> {
    round.rows.chunk_by(|a, b| a.seq() == b.seq())
}

/// Whether a request is a turn of a session, of which it may be the only turn.
pub(super) fn is_session(row: &RequestRow<'_>, case: &Case) -> bool {
    let group = row.group();
    case.dataset_for_group(group).is_session(row.turns())
}

/// Whether all turns of a session succeeded.
fn is_complete(turns: &[RequestRow<'_>], facts: &CaseFacts<'_>) -> bool {
    let is_ok = |row: &&RequestRow<'_>| row.ok() && row.turn() >= row.first_turn();
    turns.first().is_some_and(|row| {
        let expected = row.turns().saturating_sub(row.first_turn()) as usize;
        is_session(row, facts.case) && turns.iter().filter(is_ok).count() == expected
    })
}

/// Why the steady windows are none: they hold too few durations of what ends in them, or count more than can have
/// been in flight.
fn whole_reason(
    with_flights: &[(&Option<Range<u64>>, Vec<Flight<'_>>)],
    facts: &CaseFacts<'_>,
    unit: Unit,
) -> Option<WholeReason> {
    let ok = || {
        with_flights
            .iter()
            .flat_map(|(_, flights)| flights)
            .filter(|flight| flight.ok && flight.measured)
    };
    let mean_of = |class: Option<&str>| {
        let of_class = |flight: &&Flight<'_>| {
            class.is_none_or(|class| flight.group.is_some_and(|group| is_in_group(group, class)))
        };
        let spans = ok().filter(of_class);
        let durations: Vec<f64> = spans
            .map(|flight| flight.to.saturating_sub(flight.from) as f64 / 1e9)
            .collect();
        mean(&durations)
    };
    let all = mean_of(None)?;
    if is_whole_by_plan(&facts.case.load.shape) {
        return None;
    }
    let classes = facts
        .case
        .mix
        .iter()
        .filter_map(|entry| mean_of(Some(&entry.name)));
    let duration = classes.fold(all, f64::max);
    let length: f64 = with_flights
        .iter()
        .filter_map(|(span, _)| span.as_ref())
        .map(|span| (span.end - span.start) as f64 / 1e9)
        .sum();
    let seconds = length / with_flights.len() as f64;
    if seconds < MIN_DURATIONS * duration {
        return Some(WholeReason::TooShort {
            unit,
            seconds,
            duration,
        });
    }
    let in_flight = |(span, flights): &(&Option<Range<u64>>, Vec<Flight<'_>>)| {
        let window = span.as_ref().map(|span| (span.start, span.end))?;
        let spans = flights.iter().map(|flight| (flight.from, flight.to));
        Some(InFlight::of_spans(spans).max(window))
    };
    let ended = |(span, flights): &(&Option<Range<u64>>, Vec<Flight<'_>>)| {
        let is_inside = |flight: &&Flight<'_>| {
            let contains = |span: &Range<u64>| flight.to > span.start && flight.to <= span.end;
            flight.ok && span.as_ref().is_some_and(contains)
        };
        flights.iter().filter(is_inside).count()
    };
    let most = with_flights.iter().filter_map(in_flight).max()?;
    let throughput = with_flights.iter().map(ended).sum::<usize>() as f64 / length;
    (throughput * all > f64::from(most) * LITTLE_TOLERANCE).then_some(WholeReason::AboveLittle)
}

/// Whether the work of a load lasts until its last end: its requests are scheduled at once, or batch after batch.
fn is_whole_by_plan(shape: &Shape) -> bool {
    matches!(shape, Shape::Burst | Shape::Static { .. })
}

/// From the first success, or the first measured scheduled send where that is later, until sending stops. None where
/// it is empty.
fn steady_window(
    round: &Round<'_, '_>,
    flights: &[Flight<'_>],
    facts: &CaseFacts<'_>,
) -> Option<Range<u64>> {
    let (first, last) = round.window?;
    let shape = &facts.case.load.shape;
    // The first success, warm-up included. Without one the whole window counts: the throughput is 0.
    let succeeded = flights
        .iter()
        .filter(|flight| flight.ok)
        .map(|flight| flight.to);
    let start = succeeded.min().map_or(first, |end| end.max(first));
    let window = match *shape {
        _ if is_whole_by_plan(shape) => first..last,
        Shape::Closed { users } => whole_cycles(flights, start..sending_end(round, facts)?, users),
        _ => start..sending_end(round, facts)?,
    };
    (!window.is_empty()).then_some(window)
}

/// When sending stops.
pub(super) fn sending_end(round: &Round<'_, '_>, facts: &CaseFacts<'_>) -> Option<u64> {
    match facts.case.load.shape {
        Shape::Closed { .. } | Shape::Users { .. } => closed_loop_end(round, facts),
        Shape::Burst | Shape::Static { .. } => round.rows.iter().filter_map(|row| row.sent()).max(),
        Shape::Open { .. } | Shape::Replay { .. } | Shape::Rates { .. } | Shape::Classes { .. } => {
            sent_until(round, facts)
        }
    }
}

/// Cuts the window of a closed loop to whole cycles of its users. If requests are of equal length, users send in
/// waves, and a window from the begin of one wave to the middle of another would count a part of a wave too much.
fn whole_cycles(flights: &[Flight<'_>], busy: Range<u64>, users: u32) -> Range<u64> {
    let ends = flights.iter().map(|flight| flight.to);
    let mut ends: Vec<u64> = ends
        .filter(|end| *end > busy.start && *end <= busy.end)
        .collect();
    ends.sort_unstable();
    let users = users.max(1) as usize;
    let left_over = ends.len() % users;
    if ends.len() < MIN_DURATIONS as usize * users {
        return busy;
    }
    let start = left_over.checked_sub(1).and_then(|at| ends.get(at));
    start.copied().unwrap_or(busy.start)..ends.last().copied().unwrap_or(busy.end)
}

/// When a closed loop stops keeping all users busy: at the end of its duration, or when the first user has no more
/// requests.
fn closed_loop_end(round: &Round<'_, '_>, facts: &CaseFacts<'_>) -> Option<u64> {
    if let Some((_, until)) =
        by_time(round, facts).filter(|_| !round.part.is_some_and(|part| part.dataset_ended))
    {
        return Some(until);
    }
    let started = round
        .measured()
        .filter(|row| row.begins_session())
        .filter_map(|row| row.sent())
        .max()?;
    // A user is busy with a conversation until its last turn has ended.
    let ends = sessions_of(round).filter_map(|turns| {
        let sent = turns.iter().filter(|row| row.sent().is_some());
        sent.map(|row| row.end()).max()
    });
    Some(ends.filter(|end| *end > started).min().unwrap_or(started))
}

impl fmt::Display for WholeReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WholeReason::TooShort {
                unit,
                seconds,
                duration,
            } => {
                let held = (seconds / duration * 10.0).floor() / 10.0;
                let noun = match unit {
                    Unit::Request => "request",
                    Unit::Session => "session",
                };
                write!(
                    f,
                    "the whole run, start and drain included. Sending was steady for {held:.1} \
                     mean durations of a {noun}, and {MIN_DURATIONS} are required: measure for \
                     longer; users need at least {PER_USER} {noun}s each"
                )
            }
            WholeReason::AboveLittle => write!(
                f,
                "the whole run, start and drain included. While sending was steady, throughput × \
                 mean duration was above the greatest number in flight, against Little's law, so \
                 that its replies are no fair sample: measure for longer"
            ),
        }
    }
}

/// Requests or sessions per user from which the ends of a run matter little.
pub const PER_USER: u64 = 10;

/// What arrived in the throughput window of one round, of the requests that share all tags. Warm-up requests are
/// included: they load the server like any other request.
#[derive(Clone, Debug, Default)]
pub struct Flow {
    /// Round of the case, from 0.
    pub round: u32,
    /// Turn in the session, from 0.
    pub turn: u32,
    /// Group of the prompt, where the dataset has groups.
    pub group: Option<Arc<str>>,
    /// Model.
    pub model: Arc<str>,
    /// The URL that they were sent to, where the target has several.
    pub endpoint: Option<Arc<str>>,
    /// The kept headers of their responses.
    pub kept_headers: Option<Arc<str>>,
    /// By the bins that a window is divided into; those in which nothing arrived are absent.
    pub bins: BTreeMap<u16, Amounts>,
}

impl Flow {
    pub(super) fn tags(&self) -> Tags<'_> {
        Tags {
            round: self.round,
            turn: self.turn,
            group: self.group.as_deref(),
            model: &self.model,
            endpoint: self.endpoint.as_deref(),
            kept_headers: self.kept_headers.as_deref(),
        }
    }
}

/// What arrived in one bin of a round's window.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Amounts {
    /// Requests that ended, whatever the result.
    pub ended: f64,
    /// Requests that succeeded.
    pub requests: f64,
    /// Their inputs or results.
    pub items: f64,
    /// Their seconds of audio.
    pub audio: f64,
    /// Output tokens.
    pub output: f64,
    /// Prompt tokens.
    pub input: f64,
    /// Billed output tokens.
    pub billed: f64,
    /// Requests that meet the limits of the first goodput check.
    pub good: f64,
    /// Complete sessions that ended, by the bins of their own window.
    pub sessions: f64,
}

impl Amounts {
    /// Adds the amounts of another bin.
    pub fn add(&mut self, other: Amounts) {
        self.ended += other.ended;
        self.requests += other.requests;
        self.items += other.items;
        self.audio += other.audio;
        self.output += other.output;
        self.input += other.input;
        self.billed += other.billed;
        self.good += other.good;
        self.sessions += other.sessions;
    }

    /// What counts towards this throughput; 0 for every other metric.
    pub(super) fn amount(&self, throughput: Metric) -> f64 {
        match throughput.undivided() {
            Metric::RequestThroughput => self.requests,
            Metric::ItemThroughput => self.items,
            Metric::Rtfx => self.audio,
            Metric::InputTps => self.input,
            Metric::OutputTps => self.output,
            Metric::TotalTps => self.input + self.output,
            Metric::BilledTps => self.billed,
            Metric::BilledTotalTps => self.input + self.billed,
            Metric::GoodputRate => self.good,
            Metric::SessionThroughput => self.sessions,
            _ => 0.0,
        }
    }
}

/// The throughput windows of a case: that of requests and tokens, and that of sessions.
pub(super) struct Windows<'w> {
    pub requests: &'w ThroughputWindow,
    pub sessions: &'w ThroughputWindow,
}

/// What arrived in the throughput windows, by the tags of the requests. A session has the tags of its last request.
pub(super) fn flows<'a>(
    rounds: &[Round<'a, '_>],
    windows: &Windows<'_>,
    facts: &CaseFacts<'_>,
) -> Vec<Flow> {
    let checks = facts.case.checks.iter();
    let limits = checks
        .filter_map(|check| check.subject.goodput_limits())
        .next();
    let mut flows: BTreeMap<_, BTreeMap<u16, Amounts>> = BTreeMap::new();
    let mut add = |row: &RequestRow<'a>, arrived: Vec<(u16, Amounts)>| {
        if arrived.is_empty() {
            return;
        }
        let bins = flows
            .entry((
                row.round(),
                row.group(),
                row.model(),
                row.endpoint(),
                row.kept_headers(),
                row.turn(),
            ))
            .or_default();
        for (bin, amounts) in arrived {
            bins.entry(bin).or_default().add(amounts);
        }
    };
    for round in rounds {
        if let Some(window) = windows.requests.span(round) {
            // In a whole round the other phases are outside of the span.
            let counts = |row: &&RequestRow<'_>| windows.requests.whole.is_none() || row.measured();
            for row in round
                .rows
                .iter()
                .filter(|row| row.sent().is_some())
                .filter(counts)
            {
                let mut arrived = Vec::new();
                add_arrivals(row, window, limits, &mut |bin, amounts| {
                    arrived.push((bin, amounts))
                });
                add(row, arrived);
            }
        }
        if let Some(window) = windows.sessions.span(round) {
            let counts = |turns: &&[RequestRow<'_>]| {
                let is_measured = turns.first().is_some_and(|row| row.measured());
                is_complete(turns, facts) && (windows.sessions.whole.is_none() || is_measured)
            };
            for turns in sessions_of(round).filter(counts) {
                let last = turns.iter().max_by_key(|row| row.end());
                let ended = last.and_then(|row| Some((row, bin(row.end(), window)?)));
                if let Some((row, bin)) = ended {
                    let one = Amounts {
                        sessions: 1.0,
                        ..Amounts::default()
                    };
                    add(row, vec![(bin, one)]);
                }
            }
        }
    }
    let flows = flows.into_iter();
    flows
        .map(
            |((round, group, model, endpoint, kept_headers, turn), bins)| Flow {
                round,
                turn,
                group: group.map(Arc::from),
                model: model.into(),
                endpoint: endpoint.map(Arc::from),
                kept_headers: kept_headers.map(Arc::from),
                bins,
            },
        )
        .collect()
}

/// Tokens count when they arrive, prompt tokens with the first output token; a reply that is not streamed counts at
/// its end.
fn add_arrivals(
    row: &RequestRow<'_>,
    window: &Range<u64>,
    goodput: Option<&[RequestLimit]>,
    add: &mut impl FnMut(u16, Amounts),
) {
    if let Some(bin) = bin(row.end(), window) {
        add(
            bin,
            Amounts {
                ended: 1.0,
                ..Amounts::default()
            },
        );
    }
    if !row.ok() {
        return;
    }
    let events = row.events();
    let output = row.output_tokens().map_or(0.0, |tokens| tokens as f64);
    let billed = row.billed_tokens().map_or(0.0, |tokens| tokens as f64);
    if let Some(bin) = bin(row.end(), window) {
        let is_good = goodput.is_some_and(|limits| row.meets(limits) == Some(true));
        add(
            bin,
            Amounts {
                requests: 1.0,
                items: row.items().map_or(0.0, |items| items as f64),
                audio: row.audio_seconds().unwrap_or(0.0),
                good: f64::from(u8::from(is_good)),
                ..Amounts::default()
            },
        );
    }
    let first = events.first().copied().unwrap_or(row.end());
    if let Some(bin) = bin(first, window) {
        let at_end = if events.is_empty() { output } else { 0.0 };
        add(
            bin,
            Amounts {
                input: row.prompt_tokens().map_or(0.0, |tokens| tokens as f64),
                output: at_end,
                // Hidden reasoning arrives with the first event.
                billed: (billed - output).max(0.0) + at_end,
                ..Amounts::default()
            },
        );
    }
    if row.output_tokens().is_none() {
        return;
    }
    let event_tokens = row.event_tokens();
    let mut from = events.partition_point(|event| *event <= window.start);
    while let Some(bin_of_event) = events.get(from).and_then(|event| bin(*event, window)) {
        let until = from
            + events
                .get(from..)
                .unwrap_or_default()
                .partition_point(|event| bin(*event, window) == Some(bin_of_event));
        let tokens = event_tokens.sum(from..until);
        add(
            bin_of_event,
            Amounts {
                output: tokens,
                billed: tokens,
                ..Amounts::default()
            },
        );
        from = until;
    }
}

/// The bin of the window that contains an instant.
fn bin(at: u64, window: &Range<u64>) -> Option<u16> {
    let is_inside = at > window.start && at <= window.end;
    let index = || {
        (u128::from(at - window.start) * BINS as u128 - 1) / u128::from(window.end - window.start)
    };
    is_inside.then(|| u16::try_from(index()).ok()).flatten()
}

// The offered rate is the plan's, the achieved rate that of the sends, each over its own duration: where sending
// falls behind, it takes longer than planned, so the achieved rate is lower.

/// A count over a duration in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Rate {
    count: f64,
    seconds: f64,
}

/// `rate_offered` of an open loop and `rate_achieved`, where they exist.
pub(super) fn rates(rounds: &[Round<'_, '_>], facts: &CaseFacts<'_>) -> BTreeMap<Metric, f64> {
    let shape = &facts.case.load.shape;
    let (offered, achieved): (Vec<_>, Vec<_>) = rounds
        .iter()
        .map(|round| rates_of_round(round, facts))
        .unzip();
    let offered =
        pool_rates(&offered).filter(|_| !shape.is_closed_loop() && *shape != Shape::Burst);
    let rates = [
        (Metric::RateOffered, offered),
        (Metric::RateAchieved, pool_rates(&achieved)),
    ];
    rates
        .into_iter()
        .filter_map(|(metric, rate)| Some((metric, rate?)))
        .collect()
}

fn pool_rates(rates: &[Rate]) -> Option<f64> {
    let seconds: f64 = rates.iter().map(|rate| rate.seconds).sum();
    (seconds > 0.0).then(|| rates.iter().map(|rate| rate.count).sum::<f64>() / seconds)
}

fn rates_of_round(round: &Round<'_, '_>, facts: &CaseFacts<'_>) -> (Rate, Rate) {
    match facts.case.load.shape {
        Shape::Open { .. } | Shape::Replay { .. } | Shape::Rates { .. } | Shape::Classes { .. } => {
            open_loop_rates(round, facts)
        }
        Shape::Closed { .. } | Shape::Burst | Shape::Users { .. } | Shape::Static { .. } => {
            let sent = round.measured().filter(|row| row.sent().is_some()).count() as f64;
            (
                Rate::default(),
                Rate {
                    count: sent,
                    seconds: round.length(),
                },
            )
        }
    }
}

/// What arrives in an open loop is a session: its later turns follow their replies.
fn open_loop_rates(round: &Round<'_, '_>, facts: &CaseFacts<'_>) -> (Rate, Rate) {
    let Some((start, until)) = planned_span(round, facts) else {
        return Default::default();
    };
    let sent = sessions(round).filter(|row| row.sent().is_some()).count() as f64;
    let planned = sessions(round)
        .filter(|row| row.intended() <= until)
        .count();
    let taken = until.max(last_sent(round)) - start;
    let seconds = |nanos: u64| nanos as f64 / 1e9;
    (
        Rate {
            count: planned as f64,
            seconds: seconds(until - start),
        },
        Rate {
            count: sent,
            seconds: seconds(taken),
        },
    )
}

fn sessions<'a, 'f>(
    round: &Round<'a, 'f>,
) -> impl Iterator<Item = &'f RequestRow<'a>> + use<'a, 'f> {
    round.measured().filter(|row| row.begins_session())
}

fn last_sent(round: &Round<'_, '_>) -> u64 {
    sessions(round)
        .filter_map(|row| row.sent())
        .max()
        .unwrap_or_default()
}

/// When an open loop stopped sending: by its plan, or with its last request where that was late.
fn sent_until(round: &Round<'_, '_>, facts: &CaseFacts<'_>) -> Option<u64> {
    Some(planned_span(round, facts)?.1.max(last_sent(round)))
}

/// The planned start and end of sending of an open loop.
fn planned_span(round: &Round<'_, '_>, facts: &CaseFacts<'_>) -> Option<(u64, u64)> {
    let first = round.window?.0;
    let last = sessions(round).map(|row| row.intended()).max()?;
    let arrivals = sessions(round).count() as u64;
    // n arrivals span n − 1 gaps; the gap after the last one belongs to the span, too.
    let by_count =
        (last - first) as f64 / arrivals.saturating_sub(1).max(1) as f64 * arrivals as f64;
    Some(by_time(round, facts).unwrap_or((first, first + by_count.round() as u64)))
}

/// The planned start and end of a load that ends by time and not by a number of requests.
fn by_time(round: &Round<'_, '_>, facts: &CaseFacts<'_>) -> Option<(u64, u64)> {
    let load = &facts.case.load;
    let first = round.window?.0;
    let begun = round
        .part
        .map_or(first, |part| part.measured_from_ns.min(first));
    let until = facts.until.or(load.sending_end(Some(Nanos(begun))))?;
    // The discarded start precedes the first measured request, and belongs to the plan.
    let settling = round
        .rows
        .iter()
        .filter(|row| row.settling() && row.begins_session())
        .count() as u64;
    let ends_by_count = load
        .requests
        .is_some_and(|most| sessions(round).count() as u64 + settling >= most);
    let start = if settling > 0 { first } else { begun };
    (!ends_by_count).then(|| {
        (
            start,
            until
                .0
                .min(stopped_at(round).unwrap_or(u64::MAX))
                .max(start),
        )
    })
}

/// When sending was stopped before the end of its plan: what was not scheduled any more was not offered.
fn stopped_at(round: &Round<'_, '_>) -> Option<u64> {
    let stopped_early = |part: &&Part| {
        part.cut_short.is_some()
            || part.ending.is_some()
            || part.probe.is_some_and(|probe| probe.hopeless)
    };
    round.part.filter(stopped_early)?.sending_until_ns
}

#[cfg(test)]
mod tests;
