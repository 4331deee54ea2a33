//! Virtual servers whose long-run truth is known, to see how often a verdict is wrong. `cargo bench --bench verdicts` prints the
//! table of `docs/explanation/error-rates.md` by them.
#![allow(
    dead_code,
    unused_imports,
    reason = "the bench and the tests use different parts"
)]

mod batch;
mod objective;
mod queue;
mod series;
pub mod table;
mod truths;

use batch::{Batch, Ends, Load, Variant};
use llmscen_analysis::judge::LoadKind;
use llmscen_analysis::{
    Amounts, Flow, RequestFields, RequestsBuilder, Sample, ThroughputWindow, truncation,
};
use llmscen_core::metric::Metric;
use llmscen_core::stats::long_run::BINS;
pub use objective::{Objective, objectives};
use queue::Queue;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use series::Series;
use std::collections::BTreeMap;
pub use truths::TRUTHS;

/// One request that was served.
#[derive(Clone, Debug, Default)]
pub struct Served {
    pub scheduled_s: f64,
    pub ttft_ms: f64,
    pub e2e_ms: f64,
    pub ok: bool,
    /// Neither warm-up nor sent to keep the users busy.
    pub measured: bool,
    pub prompt: u32,
    pub tokens: u32,
    pub gaps: Vec<f64>,
}

/// What serves.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    Batch(Batch),
    Queue(Queue),
    Series(Series),
}

/// A server with its load.
#[derive(Clone, Copy, Debug)]
pub struct Server {
    pub name: &'static str,
    pub kind: Kind,
    /// What no rule on a run of hundreds of requests can see: a queue that remembers for longer, or another load at both ends.
    pub saturated: bool,
    /// Processes that send the load.
    pub shards: usize,
}

const fn closed(name: &'static str, users: usize, room: u32, wander: f64) -> Server {
    Server {
        name,
        kind: Kind::Batch(Batch {
            load: Load::Closed(users),
            room,
            ends: Ends::Cut,
            wander,
            variant: Variant::Plain,
            idle: 0.0,
        }),
        saturated: false,
        shards: 1,
    }
}

const fn open(name: &'static str, rate: f64, saturated: bool) -> Server {
    Server {
        name,
        kind: Kind::Batch(Batch {
            load: Load::Open(rate),
            room: ROOM,
            ends: Ends::Cut,
            wander: 0.0,
            variant: Variant::Plain,
            idle: 0.0,
        }),
        saturated,
        shards: 1,
    }
}

const fn queue(name: &'static str, servers: usize, busy: f64, saturated: bool) -> Server {
    Server {
        name,
        kind: Kind::Queue(Queue { servers, busy }),
        saturated,
        shards: 1,
    }
}

const fn series(name: &'static str, rho: f64) -> Server {
    Server {
        name,
        kind: Kind::Series(Series { rho }),
        saturated: false,
        shards: 1,
    }
}

/// A server or a load of another kind.
const fn varied(name: &'static str, load: Load, room: u32, variant: Variant) -> Server {
    Server {
        name,
        kind: Kind::Batch(Batch {
            load,
            room,
            ends: Ends::Cut,
            wander: 0.0,
            variant,
            idle: 0.0,
        }),
        saturated: false,
        shards: 1,
    }
}

/// A run that is measured from its first request. Its truth is that of the same users without a start.
const fn fresh(name: &'static str, load: Load, variant: Variant) -> Server {
    Server {
        name,
        kind: Kind::Batch(Batch {
            load,
            room: ROOM,
            ends: Ends::Fresh,
            wander: 0.0,
            variant,
            idle: 0.0,
        }),
        saturated: true,
        shards: 1,
    }
}

/// Room for more than all seats need, and for about half of them.
const ROOM: u32 = 200_000;
const LITTLE: u32 = 12_000;

/// All servers of the table.
pub const SERVERS: [Server; 29] = [
    series("independent", 0.0),
    series("AR(1), 0.5", 0.5),
    series("AR(1), 0.9", 0.9),
    closed("closed, 4 users", 4, ROOM, 0.0),
    closed("closed, 16 users", 16, ROOM, 0.0),
    closed("closed, 64 users", 64, ROOM, 0.0),
    closed("closed, 48 users, little KV cache", 48, LITTLE, 0.0),
    closed("closed, 16 users, drift", 16, ROOM, 0.1),
    Server {
        name: "closed, 64 users, start and drain",
        kind: Kind::Batch(UNSTEADY),
        saturated: true,
        shards: 1,
    },
    open("open, 40 %", OPEN * 0.4, false),
    open("open, 60 %", OPEN * 0.6, false),
    open("open, 75 %", OPEN * 0.75, false),
    queue("M/G/1, 50 %", 1, 0.5, false),
    queue("M/G/8, 70 %", 8, 0.7, false),
    open("open, 90 %", OPEN * 0.9, true),
    queue("M/G/1, 80 %", 1, 0.8, true),
    queue("M/G/8, 90 %", 8, 0.9, true),
    varied(
        "preemption, 32 users",
        Load::Closed(32),
        LITTLE,
        Variant::Preempting,
    ),
    varied(
        "speculation, 16 users",
        Load::Closed(16),
        ROOM,
        Variant::Speculative,
    ),
    varied(
        "Pareto lengths, 16 users",
        Load::Closed(16),
        ROOM,
        Variant::Pareto,
    ),
    varied(
        "growing sessions, 16 users",
        Load::Sessions(16),
        ROOM,
        Variant::Plain,
    ),
    varied(
        "two replicas, open",
        Load::Open(OPEN * 0.8),
        ROOM,
        Variant::Replicas,
    ),
    varied(
        "on/off arrivals, 40 %",
        Load::OnOff(OPEN * 0.4),
        ROOM,
        Variant::Plain,
    ),
    fresh("fresh, 16 users", Load::Closed(16), Variant::Plain),
    fresh("fresh, 64 users", Load::Closed(64), Variant::Plain),
    fresh(
        "fresh, 16 users, cold cache",
        Load::Closed(16),
        Variant::ColdCache,
    ),
    fresh(
        "fresh, growing sessions, 16 users",
        Load::Sessions(16),
        Variant::Plain,
    ),
    open("overload, 105 %", OPEN * 1.05, true),
    open("overload, 120 %", OPEN * 1.2, true),
];

/// A closed loop whose start and drain are measured.
const UNSTEADY: Batch = Batch {
    load: Load::Closed(64),
    room: ROOM,
    ends: Ends::Drain,
    wander: 0.0,
    variant: Variant::Plain,
    idle: 0.0,
};

/// Throughput of the overloaded batching server per second.
const OPEN: f64 = 34.0;
/// A latency that no request reaches: in an overload a PASS at any limit is wrong.
const ANY_MS: f64 = 1e9;

impl Server {
    /// Measured requests in order of their scheduled sends; equal seeds give equal requests.
    pub fn serve(&self, n: usize, seed: u64) -> Vec<Served> {
        let mut served = match &self.kind {
            Kind::Batch(own) => batch::serve(own, self.shards, n, seed),
            Kind::Queue(own) => queue::serve(own, n, seed),
            Kind::Series(own) => series::serve(own, n, seed),
        };
        if self.shards > 1 && self.rate().is_some() {
            skew(&mut served, self.shards, seed);
        }
        served
    }

    /// The same with the load split over several shards.
    pub fn split(&self, shards: usize) -> Server {
        Server { shards, ..*self }
    }

    /// The same under another load: users, arrivals per second, or the share of the time that the servers of a queue work. A closed loop
    /// that is not `steady` has its start and its drain measured.
    pub fn at(&self, load: f64, steady: bool) -> Server {
        let kind = match self.kind {
            Kind::Batch(own) => match own.load {
                Load::Closed(_) | Load::Sessions(_) => Kind::Batch(Batch {
                    load: Load::Closed(load as usize),
                    ends: if steady { Ends::Cut } else { Ends::Drain },
                    ..own
                }),
                Load::Open(_) | Load::OnOff(_) => Kind::Batch(Batch {
                    load: Load::Open(load),
                    ..own
                }),
            },
            Kind::Queue(own) => Kind::Queue(Queue { busy: load, ..own }),
            Kind::Series(_) => self.kind,
        };
        Server { kind, ..*self }
    }

    /// The same with users of a closed loop that wait for this share of their time.
    pub fn with_idle_users(&self, idle: f64) -> Server {
        let kind = match self.kind {
            Kind::Batch(own) => Kind::Batch(Batch { idle, ..own }),
            other => other,
        };
        Server { kind, ..*self }
    }

    /// Arrivals per second of an open loop.
    pub fn rate(&self) -> Option<f64> {
        match &self.kind {
            Kind::Batch(Batch {
                load: Load::Open(rate) | Load::OnOff(rate),
                ..
            }) => Some(*rate),
            Kind::Queue(own) => Some(queue::rate(own)),
            Kind::Batch(_) | Kind::Series(_) => None,
        }
    }

    /// Whether more arrives than it serves, so that no latency has a long-run value.
    pub fn overloaded(&self) -> bool {
        matches!(self.kind, Kind::Batch(_)) && self.rate().is_some_and(|rate| rate >= OPEN)
    }

    /// The kind of its load.
    pub fn load(&self) -> LoadKind {
        match &self.kind {
            Kind::Batch(own) if own.load.users().is_some() => LoadKind::FixedUsers,
            // The product has such arrivals from a trace.
            Kind::Batch(Batch {
                load: Load::OnOff(_),
                ..
            }) => LoadKind::Other,
            Kind::Batch(_) | Kind::Queue(_) => LoadKind::Arrivals,
            Kind::Series(_) => LoadKind::Other,
        }
    }

    /// The sample that the product would judge a run by.
    pub fn sample(&self, mut served: Vec<Served>) -> Sample {
        if self.rate().is_some() {
            let measured = served.iter().filter(|row| row.measured);
            let latencies: Vec<f64> = measured.map(|row| row.ttft_ms).collect();
            let start = truncation(&latencies).unwrap_or(0);
            served
                .iter_mut()
                .take(start)
                .for_each(|row| row.measured = false);
        }
        let measured = || served.iter().filter(|row| row.measured);
        let first = measured()
            .map(|row| row.scheduled_s)
            .fold(f64::INFINITY, f64::min);
        let last = measured().map(|row| row.scheduled_s).fold(0.0, f64::max);
        let end = |row: &Served| row.scheduled_s + row.e2e_ms / 1e3;
        let from = served
            .iter()
            .map(end)
            .fold(f64::INFINITY, f64::min)
            .max(first);
        // A closed loop stops to keep its users busy when the first of them finds nothing more to send.
        let free = measured()
            .map(end)
            .filter(|end| *end > last && self.rate().is_none())
            .fold(f64::INFINITY, f64::min);
        let until = if free.is_finite() { free } else { last };
        let windows = vec![measured().map(end).fold(first, f64::max) - first];
        let mut sample = Sample {
            windows,
            requests_window: ThroughputWindow::of_lengths(vec![until - from]),
            ..Sample::default()
        };
        sample.flows = vec![Flow {
            bins: arrivals(&served, (from, until)),
            ..Flow::default()
        }];
        sample
            .scalars
            .extend(self.rate().map(|rate| (Metric::RateOffered, rate)));
        let mut requests = RequestsBuilder::default();
        served
            .iter()
            .filter(|served| served.measured)
            .enumerate()
            .for_each(|(session, served)| push(&mut requests, session, served));
        sample.requests = requests.finish().unwrap();
        sample
    }

    /// The long-run truth of an objective's metric.
    pub fn truth(&self, objective: &str) -> Option<f64> {
        if let Kind::Series(_) = self.kind {
            return series::truth(objective);
        }
        if self.overloaded() {
            return Some(if objective == "goodput" { 0.9 } else { ANY_MS });
        }
        let name = self.name.trim_end_matches(", start and drain");
        let name = match self.name.strip_prefix("fresh, ") {
            Some(of) if of.starts_with("growing") => of.to_owned(),
            Some(of) => format!("closed, {}", of.trim_end_matches(", cold cache")),
            None => name.to_owned(),
        };
        TRUTHS
            .iter()
            .find(|known| known.0 == name && known.1 == objective)
            .map(|known| known.2)
    }
}

/// Merges an open loop of shards, request k on shard k mod N, whose clocks are apart by at most this many seconds.
fn skew(served: &mut [Served], shards: usize, seed: u64) {
    const SKEW: f64 = 0.01;
    let mut rng = ChaCha8Rng::seed_from_u64(!seed);
    let clocks: Vec<f64> = (0..shards).map(|_| SKEW * rng.random::<f64>()).collect();
    for (row, clock) in served.iter_mut().zip(clocks.iter().cycle()) {
        row.scheduled_s += clock;
    }
    served.sort_by(|a, b| a.scheduled_s.total_cmp(&b.scheduled_s));
}

/// What arrived in each part of a window.
fn arrivals(served: &[Served], (from, until): (f64, f64)) -> BTreeMap<u16, Amounts> {
    let mut bins = BTreeMap::<u16, Amounts>::new();
    let mut put = |at: f64, amounts: Amounts| {
        if from < at && at <= until {
            let bin = ((at - from) / (until - from) * BINS as f64) as usize;
            bins.entry(bin.min(BINS - 1) as u16)
                .or_default()
                .add(amounts);
        }
    };
    for row in served.iter().filter(|row| row.ok) {
        // Of several tokens per event.
        let tokens = f64::from(row.tokens) / (row.gaps.len() + 1) as f64;
        let token = Amounts {
            output: tokens,
            ..Amounts::default()
        };
        let mut at = row.scheduled_s + row.ttft_ms / 1e3;
        put(
            at,
            Amounts {
                input: f64::from(row.prompt),
                ..token
            },
        );
        for gap in &row.gaps {
            at += gap / 1e3;
            put(at, token);
        }
        put(
            row.scheduled_s + row.e2e_ms / 1e3,
            Amounts {
                ended: 1.0,
                requests: 1.0,
                ..Amounts::default()
            },
        );
    }
    bins
}

fn push(requests: &mut RequestsBuilder, session: usize, served: &Served) {
    let Served {
        scheduled_s,
        ttft_ms,
        e2e_ms,
        ok,
        prompt,
        tokens,
        ref gaps,
        ..
    } = *served;
    let value = |metric| match metric {
        Metric::PromptTokens => Some(f64::from(prompt)),
        Metric::OutputTokens => Some(f64::from(tokens)),
        Metric::Ttft => Some(ttft_ms).filter(|_| ok),
        Metric::E2e => Some(e2e_ms).filter(|_| ok),
        Metric::Tpot => {
            Some((e2e_ms - ttft_ms) / f64::from(tokens - 1)).filter(|_| ok && tokens > 1)
        }
        _ => None,
    };
    let fields = RequestFields {
        session: session as u64,
        ok,
        scheduled_s,
        busy_ms: e2e_ms,
        ..RequestFields::default()
    };
    let gaps = if ok { gaps.as_slice() } else { &[] };
    requests.push(fields, value, gaps);
}
