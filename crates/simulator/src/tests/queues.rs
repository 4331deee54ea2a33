//! Queues whose mean wait has a known answer, served in virtual time.

use crate::virtual_time::{Arrival, Served, run};
use llmscen_core::seed::Seed;
use llmscen_core::simulator::Simulator;
use llmscen_core::units::Nanos;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, Exp, Geometric};

/// A step that lasts `alpha` whatever it does.
fn constant(alpha: Nanos, servers: u32) -> Simulator {
    let nothing = Nanos::ZERO;
    Simulator {
        alpha,
        beta: nothing,
        gamma: nothing,
        delta: nothing,
        max_num_seqs: servers,
        kv_blocks: 1 << 20,
        ..Simulator::default()
    }
}

/// Poisson arrivals at `rate` per second with one prompt token each; `output` draws the length.
fn poisson(n: usize, rate: f64, seed: u64, mut output: impl FnMut(&mut ChaCha8Rng) -> u64) -> Vec<Arrival> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let gap = Exp::new(rate).unwrap();
    let mut at = 0.0;
    let mut next = || {
        at += gap.sample(&mut rng);
        Arrival { at: Nanos::from_secs_f64(at), prompt: 1, output: output(&mut rng) }
    };
    (0..n).map(|_| next()).collect()
}

/// Mean time between arrival and the start of the first step, which ends with the first token.
fn mean_wait(served: &[Served], step: Nanos) -> f64 {
    let waits = served.iter().map(|each| each.first_token().unwrap().since(each.arrived + step).secs());
    waits.sum::<f64>() / served.len() as f64
}

/// Mean wait in M/D/1: ρ / (2μ(1 − ρ)) (Pollaczek and Khinchine).
#[test]
fn one_sequence_at_a_time_waits_as_in_an_m_d_1_queue() {
    let step = Nanos::from_millis(10);
    for (load, seed) in [(0.5, 11), (0.7, 12)] {
        let served = run(&constant(step, 1), Seed(1), &poisson(200_000, load / step.secs(), seed, |_| 1));
        let expected = load * step.secs() / (2.0 * (1.0 - load));
        let ratio = mean_wait(&served, step) / expected;
        assert!((ratio - 1.0).abs() < 0.02, "load {load}: {ratio} times the mean wait of theory");
    }
}

/// The probability that all of `servers` are busy under `offered` Erlang (Erlang's C formula, 1917).
fn erlang_c(servers: u32, offered: f64) -> f64 {
    let blocked = (1..=servers).fold(1.0, |b, k| offered * b / (f64::from(k) + offered * b));
    let load = offered / f64::from(servers);
    blocked / (1.0 - load * (1.0 - blocked))
}

/// Output lengths are geometric in steps that are short against their mean, which is an exponential service time but for
/// one part in 100. Mean wait in M/M/c: C(c, a) / (cμ − λ).
#[test]
fn c_sequences_at_a_time_wait_as_erlang_says() {
    let (step, mean_steps) = (Nanos::from_millis(10), 100.0);
    let lengths = Geometric::new(1.0 / mean_steps).unwrap();
    let service = step.secs() * mean_steps;
    for (servers, load, seed) in [(4, 0.7, 21), (2, 0.6, 22)] {
        let offered = f64::from(servers) * load;
        let arrivals = poisson(60_000, offered / service, seed, |rng| 1 + lengths.sample(rng));
        let expected = erlang_c(servers, offered) * service / (f64::from(servers) * (1.0 - load));
        let ratio = mean_wait(&run(&constant(step, servers), Seed(1), &arrivals), step) / expected;
        assert!((ratio - 1.0).abs() < 0.04, "{servers} servers at {load}: {ratio} times the mean wait of theory");
    }
}

#[test]
fn erlang_c_of_the_textbook() {
    // Two servers at 1 Erlang: 1/3. One server: the load itself.
    assert!((erlang_c(2, 1.0) - 1.0 / 3.0).abs() < 1e-12);
    assert!((erlang_c(1, 0.6) - 0.6).abs() < 1e-12);
}
