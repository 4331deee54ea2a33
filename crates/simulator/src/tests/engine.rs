//! The engine: invariants for any load, and queues with known results.

use crate::engine::{Emission, Engine, TooLong};
use crate::virtual_time::{Arrival, Served, run};
use llmscen_core::seed::Seed;
use llmscen_core::simulator::Simulator;
use llmscen_core::units::Nanos;
use proptest::prelude::*;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, Exp, Geometric};
use std::collections::BTreeMap;

fn exact() -> Simulator {
    let (alpha, beta, gamma, delta) = (Nanos(1_000), Nanos(10), Nanos(100), Nanos(1));
    Simulator {
        alpha,
        beta,
        gamma,
        delta,
        max_batched_tokens: 8,
        max_num_seqs: 2,
        kv_blocks: 16,
        block_tokens: 4,
        ..Simulator::default()
    }
}

fn emission(id: u64, index: u64, last: bool) -> Emission {
    Emission { id, index, last }
}

#[test]
fn a_step_decodes_first_and_prefills_with_what_is_left() {
    let mut engine = Engine::new(&exact(), Seed(1));
    let step = |engine: &mut Engine, from| {
        let mut emitted = Vec::new();
        let end = engine.begin(from);
        engine.complete(&mut emitted);
        (end, emitted)
    };
    engine.submit(0, 6, 3, Nanos(500)).unwrap();
    // Six tokens of prefill, from the arrival on: 500 + 1000 + 6 × 10.
    assert_eq!(
        step(&mut engine, Nanos::ZERO),
        (Some(Nanos(1_560)), vec![emission(0, 0, false)])
    );
    engine.submit(1, 10, 1, Nanos(1_560)).unwrap();
    engine.submit(2, 1, 1, Nanos(1_560)).unwrap();
    // One decode over 7 tokens of context, and 7 of the 10 prompt tokens: 1000 + 7 × 10 + 100 + 7 × 1.
    assert_eq!(
        step(&mut engine, Nanos(1_560)),
        (Some(Nanos(2_737)), vec![emission(0, 1, false)])
    );
    // The other three; the third sequence has to wait, for two run at once.
    assert_eq!(
        step(&mut engine, Nanos(2_737)),
        (
            Some(Nanos(3_875)),
            vec![emission(0, 2, true), emission(1, 0, true)]
        )
    );
    assert_eq!(engine.occupancy().waiting, 1);
    assert_eq!(
        step(&mut engine, Nanos(3_875)),
        (Some(Nanos(4_885)), vec![emission(2, 0, true)])
    );
    assert_eq!(step(&mut engine, Nanos(4_885)), (None, vec![]));
    let total = engine.occupancy();
    assert_eq!(
        (
            total.prompt_tokens,
            total.generation_tokens,
            total.blocks,
            total.running
        ),
        (17, 5, 0, 0)
    );
}

#[test]
fn a_full_cache_preempts_the_newest_which_emits_nothing_twice() {
    let config = Simulator {
        kv_blocks: 4,
        ..exact()
    };
    let arrivals = [
        Arrival {
            at: Nanos(0),
            prompt: 4,
            output: 9,
        },
        Arrival {
            at: Nanos(0),
            prompt: 4,
            output: 9,
        },
    ];
    let mut engine = Engine::new(&config, Seed(1));
    let mut emitted = Vec::new();
    engine.submit(0, 4, 9, Nanos(0)).unwrap();
    engine.submit(1, 4, 9, Nanos(0)).unwrap();
    while engine.begin(Nanos(0)).is_some() {
        engine.complete(&mut emitted);
    }
    assert_eq!(engine.occupancy().preemptions, 1);
    assert_eq!(
        emitted
            .iter()
            .filter(|token| token.id == 1)
            .map(|token| token.index)
            .collect::<Vec<_>>(),
        (0..9).collect::<Vec<_>>()
    );
    let served = run(&config, Seed(1), &arrivals);
    assert!(served[0].finished() < served[1].finished());
}

#[test]
fn what_can_never_fit_is_rejected_and_a_cancelled_sequence_gives_its_blocks_back() {
    let mut engine = Engine::new(&exact(), Seed(1));
    let refused = TooLong {
        needs: 17,
        has: 16,
        block_tokens: 4,
    };
    assert_eq!(engine.submit(0, 60, 6, Nanos(0)), Err(refused));
    assert_eq!(
        engine
            .submit(0, u64::MAX, u64::MAX, Nanos(0))
            .unwrap_err()
            .has,
        16
    );
    engine.submit(1, 60, 5, Nanos(0)).unwrap();
    engine.begin(Nanos(0)).unwrap();
    assert_eq!(engine.occupancy().blocks, 2);
    engine.cancel(1);
    engine.complete(&mut Vec::new());
    assert_eq!(
        (
            engine.occupancy().blocks,
            engine.occupancy().running,
            engine.begin(Nanos(0))
        ),
        (0, 0, None)
    );
}

#[test]
fn admission_delays_the_first_token_and_no_other() {
    let config = Simulator {
        admission: Nanos(90),
        alpha: Nanos(10),
        beta: Nanos(0),
        gamma: Nanos(0),
        delta: Nanos(0),
        ..exact()
    };
    let arrivals = [
        Arrival {
            at: Nanos(0),
            prompt: 1,
            output: 3,
        },
        Arrival {
            at: Nanos(5),
            prompt: 1,
            output: 2,
        },
    ];
    let served = run(&config, Seed(1), &arrivals);
    assert_eq!(served[0].tokens, [Nanos(100), Nanos(110), Nanos(120)]);
    assert_eq!(
        served[1].tokens,
        [Nanos(110), Nanos(120)],
        "due at 95, it joins the step that begins at 100"
    );
}

#[test]
fn jitter_has_mean_one_and_the_asked_spread() {
    let config = Simulator {
        alpha: Nanos(1_000_000),
        beta: Nanos(0),
        gamma: Nanos(0),
        delta: Nanos(0),
        jitter: 0.2,
        ..exact()
    };
    let ends = &run(
        &Simulator {
            kv_blocks: 10_000,
            ..config
        },
        Seed(3),
        &[Arrival {
            at: Nanos(0),
            prompt: 1,
            output: 20_001,
        }],
    )[0]
    .tokens;
    let gaps: Vec<f64> = ends
        .windows(2)
        .map(|pair| pair[1].since(pair[0]).millis())
        .collect();
    let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
    let sd = (gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64).sqrt();
    assert!((mean - 1.0).abs() < 0.005, "{mean}");
    assert!((sd - 0.2).abs() < 0.005, "{sd}");
}

proptest! {
    #[test]
    fn blocks_are_bounded_and_every_token_comes_exactly_once(
        (kv_blocks, block_tokens, max_num_seqs, max_batched_tokens) in (1..12u32, 1..5u32, 1..6u32, 1..20u32),
        requests in prop::collection::vec((1..30u64, 1..12u64), 1..24),
        cancelled in prop::collection::vec(0..24u64, 0..4),
    ) {
        let config = Simulator { kv_blocks, block_tokens, max_num_seqs, max_batched_tokens, ..exact() };
        let mut engine = Engine::new(&config, Seed(9));
        let mut wanted = BTreeMap::new();
        for (id, &(prompt, output)) in (0..).zip(&requests) {
            if engine.submit(id, prompt, output, Nanos(0)).is_ok() {
                wanted.insert(id, output);
            }
        }
        let mut cancelled = cancelled.into_iter();
        let (mut now, mut seen) = (Nanos(0), BTreeMap::<u64, u64>::new());
        while let Some(end) = engine.begin(now) {
            prop_assert!(end > now);
            prop_assert!(engine.occupancy().blocks <= u64::from(kv_blocks));
            prop_assert!(engine.occupancy().running <= u64::from(max_num_seqs));
            let mut emitted = Vec::new();
            engine.complete(&mut emitted);
            for token in emitted {
                let count = seen.entry(token.id).or_default();
                prop_assert_eq!(token.index, *count);
                *count += 1;
                prop_assert_eq!(token.last, Some(&*count) == wanted.get(&token.id));
            }
            if let Some(id) = cancelled.next() {
                engine.cancel(id);
                wanted.insert(id, seen.get(&id).copied().unwrap_or(0));
            }
            now = end;
        }
        wanted.retain(|_, output| *output > 0);
        prop_assert_eq!(seen, wanted);
        prop_assert_eq!(engine.occupancy().blocks, 0);
    }

    #[test]
    fn virtual_time_repeats_and_never_answers_before_the_question(
        requests in prop::collection::vec((1..40u64, 1..8u64, 0..20_000u64), 1..20), seed in any::<u64>(),
    ) {
        let config = Simulator { jitter: 0.3, ..exact() };
        let arrivals: Vec<Arrival> = requests.iter().map(|&(prompt, output, at)| Arrival { at: Nanos(at),
            prompt, output }).collect();
        let served = run(&config, Seed(seed), &arrivals);
        prop_assert_eq!(&served, &run(&config, Seed(seed), &arrivals));
        for (each, arrival) in served.iter().zip(&arrivals) {
            prop_assert_eq!(each.tokens.len() as u64, arrival.output);
            prop_assert!(each.tokens[0] > arrival.at && each.tokens.is_sorted());
        }
    }
}

/// Steps of constant length `alpha`.
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

/// Poisson arrivals at `rate` per second with one prompt token each; `output` samples the length.
fn poisson(
    n: usize,
    rate: f64,
    seed: u64,
    mut output: impl FnMut(&mut ChaCha8Rng) -> u64,
) -> Vec<Arrival> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let gap = Exp::new(rate).unwrap();
    let mut at = 0.0;
    let mut next = || {
        at += gap.sample(&mut rng);
        Arrival {
            at: Nanos::from_secs_f64(at),
            prompt: 1,
            output: output(&mut rng),
        }
    };
    (0..n).map(|_| next()).collect()
}

/// Mean time between arrival and the start of the first step, which ends with the first token.
fn mean_wait(served: &[Served], step: Nanos) -> f64 {
    let waits = served.iter().map(|each| {
        each.first_token()
            .unwrap()
            .since(each.arrived + step)
            .secs()
    });
    waits.sum::<f64>() / served.len() as f64
}

/// Mean wait in M/D/1: ρ / (2μ(1 − ρ)) (Pollaczek and Khinchine).
#[test]
fn one_sequence_at_a_time_waits_as_in_an_m_d_1_queue() {
    let step = Nanos::from_millis(10);
    for (load, seed) in [(0.5, 11), (0.7, 12)] {
        let served = run(
            &constant(step, 1),
            Seed(1),
            &poisson(200_000, load / step.secs(), seed, |_| 1),
        );
        let expected = load * step.secs() / (2.0 * (1.0 - load));
        let ratio = mean_wait(&served, step) / expected;
        assert!(
            (ratio - 1.0).abs() < 0.02,
            "load {load}: {ratio} times the mean wait of theory"
        );
    }
}

/// The probability that all of `servers` are busy under `offered` Erlang (Erlang's C formula, 1917).
fn erlang_c(servers: u32, offered: f64) -> f64 {
    let blocked = (1..=servers).fold(1.0, |b, k| offered * b / (f64::from(k) + offered * b));
    let load = offered / f64::from(servers);
    blocked / (1.0 - load * (1.0 - blocked))
}

/// Output lengths are geometric with a mean of many steps, which is an exponential service time to within 1 %. Mean
/// wait in M/M/c: C(c, a) / (cμ − λ).
#[test]
fn c_sequences_at_a_time_wait_as_erlang_says() {
    let (step, mean_steps) = (Nanos::from_millis(10), 100.0);
    let lengths = Geometric::new(1.0 / mean_steps).unwrap();
    let service = step.secs() * mean_steps;
    for (servers, load, seed) in [(4, 0.7, 21), (2, 0.6, 22)] {
        let offered = f64::from(servers) * load;
        let arrivals = poisson(60_000, offered / service, seed, |rng| {
            1 + lengths.sample(rng)
        });
        let expected = erlang_c(servers, offered) * service / (f64::from(servers) * (1.0 - load));
        let ratio = mean_wait(&run(&constant(step, servers), Seed(1), &arrivals), step) / expected;
        assert!(
            (ratio - 1.0).abs() < 0.04,
            "{servers} servers at {load}: {ratio} times the mean wait of theory"
        );
    }
}

#[test]
fn erlang_c_of_the_textbook() {
    // Two servers at 1 Erlang: 1/3. One server: the load itself.
    assert!((erlang_c(2, 1.0) - 1.0 / 3.0).abs() < 1e-12);
    assert!((erlang_c(1, 0.6) - 0.6).abs() < 1e-12);
}
