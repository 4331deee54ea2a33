//! The capacity search on the virtual-time simulator: a closed loop and the limit `e2e.p90 < 150ms`.

use crate::engine::Engine;
use llmscen_core::schedule::search::{PASSES, Search};
use llmscen_core::search::{Evidence, Goal, Probed, SearchSpec};
use llmscen_core::seed::Seed;
use llmscen_core::simulator::Simulator;
use llmscen_core::stats::design::flag_dependence;
use llmscen_core::stats::quantile_bound::chance;
use llmscen_core::stats::sequential::AlphaSpending;
use llmscen_core::units::Nanos;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

const LIMIT: f64 = 150.0;
const TAIL: f64 = 0.1;
/// The sample of the search, and the sample that plain bisection needs for the same precision.
const SAMPLE: u64 = 400;
const PLAIN: u64 = 1600;

/// The server with closed-loop users in virtual time.
struct Users {
    engine: Engine,
    rng: ChaCha8Rng,
    sent: Vec<Nanos>,
    now: Nanos,
}

impl Users {
    fn new(users: u64, seed: u64) -> Users {
        let server = Simulator {
            jitter: 0.2,
            ..Simulator::default()
        };
        let engine = Engine::new(&server, Seed(seed));
        let mut own = Users {
            engine,
            rng: ChaCha8Rng::seed_from_u64(seed),
            sent: Vec::new(),
            now: Nanos::ZERO,
        };
        (0..users).for_each(|_| own.send());
        own
    }

    fn send(&mut self) {
        let output = self.rng.random_range(8..=16);
        self.engine
            .submit(self.sent.len() as u64, 32, output, self.now)
            .unwrap();
        self.sent.push(self.now);
    }

    /// Latencies of the requests that end in the next step, in milliseconds.
    fn step(&mut self) -> Vec<f64> {
        let mut emitted = Vec::new();
        self.now = self.engine.begin(self.now).unwrap();
        self.engine.complete(&mut emitted);
        let ended: Vec<u64> = emitted
            .iter()
            .filter(|token| token.last)
            .map(|token| token.id)
            .collect();
        ended.iter().for_each(|_| self.send());
        ended
            .iter()
            .map(|id| (self.now.0 - self.sent[*id as usize].0) as f64 / 1e6)
            .collect()
    }
}

/// A sample after a warm-up of one request per user, up to the first look at which `enough` is true; and its cost in
/// requests.
fn sample(
    users: f64,
    requests: u64,
    seed: u64,
    mut enough: impl FnMut(u64, u64) -> bool,
) -> (Vec<bool>, u64) {
    let mut server = Users::new(users as u64, seed);
    let (mut warm, mut flags, mut over) = (0, Vec::new(), 0);
    loop {
        for wait in server.step() {
            if warm < users as u64 {
                warm += 1;
                continue;
            }
            flags.push(wait >= LIMIT);
            over += u64::from(wait >= LIMIT);
            if flags.len() as u64 == requests || enough(flags.len() as u64, over) {
                let cost = warm + flags.len() as u64;
                return (flags, cost);
            }
        }
    }
}

fn share(flags: &[bool]) -> f64 {
    flags.iter().filter(|over| **over).count() as f64 / flags.len() as f64
}

/// The number of users, between two integers, at which a tenth of the requests exceeds the limit.
fn knee() -> f64 {
    let (mut low, mut high) = (1.0, 256.0);
    while high - low > 1.0 {
        let middle = ((low + high) / 2.0f64).floor();
        if share(&sample(middle, 40_000, 99, |_, _| false).0) <= TAIL {
            low = middle
        } else {
            high = middle
        }
    }
    low
}

/// One probe with futility stop: its result, and its cost in requests.
fn probe(load: f64, part: f64, seed: u64) -> (Evidence, u64) {
    let mut looks = AlphaSpending::new(0.01);
    let requests = (SAMPLE as f64 * part) as u64;
    let (flags, cost) = sample(load, requests, seed, |n, over| {
        looks.is_refuted(n, over, TAIL)
    });
    let n = flags.len() as f64 / flag_dependence(&flags).times();
    (
        Evidence {
            pass_probability: chance(n, share(&flags) * n, TAIL),
            requests: flags.len() as u64,
            goodput: (0.0, 0.0),
        },
        cost,
    )
}

/// Plain bisection: double until a probe fails, then halve the interval, one sample per probe.
fn plain(spec: &SearchSpec, seed: u64, requests: u64) -> (f64, u64) {
    let mut cost = 0;
    let mut passes = |load: f64| {
        let (flags, own) = sample(load, requests, seed * 1000 + cost, |_, _| false);
        cost += own;
        share(&flags) <= TAIL
    };
    let (mut low, mut high) = (spec.start, spec.start * 2.0);
    while passes(high) {
        (low, high) = (high, high * 2.0);
    }
    while high / low > 1.0 + spec.precision && high - low > 1.0 {
        let middle = (low * high).sqrt().round();
        if passes(middle) {
            low = middle
        } else {
            high = middle
        }
    }
    (low, cost)
}

#[expect(
    clippy::print_stdout,
    reason = "both counts are what the test is about"
)]
#[test]
fn the_answer_is_within_the_precision_and_costs_less_than_doubling_and_halving() {
    let spec = SearchSpec {
        vary: "load.concurrency".to_owned(),
        low: 1.0,
        high: 1024.0,
        start: 4.0,
        integer: true,
        precision: 0.05,
        confirm: 2,
        goal: Goal::Slo,
        drain: Nanos::ZERO,
    };
    let (knee, grid) = (knee(), spec.grid());
    let near = |answer: f64| (answer / knee - 1.0).abs() <= spec.precision;
    let (mut hits, mut shown, mut cost, mut contrary, mut covered) = (0, 0, 0, 0, 0);
    let (mut plain_hits, mut plain_cost) = (0, 0);
    for seed in 0..100u64 {
        let mut search = Search::new(&spec, &grid);
        while let Some(next) = search.next() {
            let (evidence, requests) = probe(
                next.load,
                next.length,
                seed * 1000 + search.probes().len() as u64,
            );
            search.record_probe(next.index, evidence);
            cost += requests;
        }
        let found = search.finding();
        hits += u32::from(found.answer.is_some_and(near));
        let passed = |probe: &Probed| {
            Some(probe.load) == found.answer && probe.evidence.pass_probability >= PASSES
        };
        shown += u32::from(search.probes().iter().any(passed));
        covered +=
            u32::from(found.interval.0.is_some_and(|low| low <= knee) && knee <= found.interval.1);
        contrary += u32::from(!found.monotone());
        let (answer, requests) = plain(&spec, seed, PLAIN);
        plain_hits += u32::from(near(answer));
        plain_cost += requests;
    }
    println!(
        "edge at {knee} users; search: {hits} of 100 within 5 %, a probe of {shown} answers \
        passed, {covered} intervals hold it, {cost} requests"
    );
    println!(
        "doubling and halving at the same precision: {plain_hits} of 100 within 5 %, {plain_cost} requests"
    );
    // An answer of the plain way may be a load of which no probe passed significantly.
    assert!(
        hits >= 95 && hits + 2 >= plain_hits && shown == 100,
        "{hits} of 100, {shown} passed, {plain_hits} the plain way"
    );
    assert!(
        cost < plain_cost,
        "{cost} requests, {plain_cost} the plain way"
    );
    assert!(covered >= 90, "{covered} of 100");
    assert!(contrary <= 2, "{contrary} of 100");
}
