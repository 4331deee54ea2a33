//! The engine's laws, for any configuration and any traffic.

use crate::engine::{Emission, Engine, TooLong};
use crate::virtual_time::{Arrival, run};
use llmscen_core::seed::Seed;
use llmscen_core::simulator::Simulator;
use llmscen_core::units::Nanos;
use proptest::prelude::*;
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
    assert_eq!(step(&mut engine, Nanos::ZERO), (Some(Nanos(1_560)), vec![emission(0, 0, false)]));
    engine.submit(1, 10, 1, Nanos(1_560)).unwrap();
    engine.submit(2, 1, 1, Nanos(1_560)).unwrap();
    // One decode over 7 tokens of context, and 7 of the 10 prompt tokens: 1000 + 7 × 10 + 100 + 7 × 1.
    assert_eq!(step(&mut engine, Nanos(1_560)), (Some(Nanos(2_737)), vec![emission(0, 1, false)]));
    // The other three; the third sequence has to wait, for two run at once.
    assert_eq!(step(&mut engine, Nanos(2_737)), (Some(Nanos(3_875)), vec![emission(0, 2, true), emission(1, 0, true)]));
    assert_eq!(engine.occupancy().waiting, 1);
    assert_eq!(step(&mut engine, Nanos(3_875)), (Some(Nanos(4_885)), vec![emission(2, 0, true)]));
    assert_eq!(step(&mut engine, Nanos(4_885)), (None, vec![]));
    let total = engine.occupancy();
    assert_eq!((total.prompt_tokens, total.generation_tokens, total.blocks, total.running), (17, 5, 0, 0));
}

#[test]
fn a_full_cache_preempts_the_newest_which_emits_nothing_twice() {
    let config = Simulator { kv_blocks: 4, ..exact() };
    let arrivals = [Arrival { at: Nanos(0), prompt: 4, output: 9 }, Arrival { at: Nanos(0), prompt: 4, output: 9 }];
    let mut engine = Engine::new(&config, Seed(1));
    let mut emitted = Vec::new();
    engine.submit(0, 4, 9, Nanos(0)).unwrap();
    engine.submit(1, 4, 9, Nanos(0)).unwrap();
    while engine.begin(Nanos(0)).is_some() {
        engine.complete(&mut emitted);
    }
    assert_eq!(engine.occupancy().preemptions, 1);
    assert_eq!(
        emitted.iter().filter(|token| token.id == 1).map(|token| token.index).collect::<Vec<_>>(),
        (0..9).collect::<Vec<_>>()
    );
    let served = run(&config, Seed(1), &arrivals);
    assert!(served[0].finished() < served[1].finished());
}

#[test]
fn what_can_never_fit_is_rejected_and_a_cancelled_sequence_gives_its_blocks_back() {
    let mut engine = Engine::new(&exact(), Seed(1));
    let refused = TooLong { needs: 17, has: 16, block_tokens: 4 };
    assert_eq!(engine.submit(0, 60, 6, Nanos(0)), Err(refused));
    assert_eq!(engine.submit(0, u64::MAX, u64::MAX, Nanos(0)).unwrap_err().has, 16);
    engine.submit(1, 60, 5, Nanos(0)).unwrap();
    engine.begin(Nanos(0)).unwrap();
    assert_eq!(engine.occupancy().blocks, 2);
    engine.cancel(1);
    engine.complete(&mut Vec::new());
    assert_eq!((engine.occupancy().blocks, engine.occupancy().running, engine.begin(Nanos(0))), (0, 0, None));
}

#[test]
fn admission_delays_the_first_token_and_no_other() {
    let config =
        Simulator { admission: Nanos(90), alpha: Nanos(10), beta: Nanos(0), gamma: Nanos(0), delta: Nanos(0), ..exact() };
    let arrivals = [Arrival { at: Nanos(0), prompt: 1, output: 3 }, Arrival { at: Nanos(5), prompt: 1, output: 2 }];
    let served = run(&config, Seed(1), &arrivals);
    assert_eq!(served[0].tokens, [Nanos(100), Nanos(110), Nanos(120)]);
    assert_eq!(served[1].tokens, [Nanos(110), Nanos(120)], "due at 95, it joins the step that begins at 100");
}

#[test]
fn jitter_has_mean_one_and_the_asked_spread() {
    let config = Simulator { alpha: Nanos(1_000_000), beta: Nanos(0), gamma: Nanos(0), delta: Nanos(0), jitter: 0.2, ..exact() };
    let ends = &run(&Simulator { kv_blocks: 10_000, ..config }, Seed(3), &[Arrival { at: Nanos(0), prompt: 1, output: 20_001 }])
        [0]
    .tokens;
    let gaps: Vec<f64> = ends.windows(2).map(|pair| pair[1].since(pair[0]).millis()).collect();
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
        let arrivals: Vec<Arrival> = requests.iter().map(|&(prompt, output, at)| Arrival { at: Nanos(at), prompt, output }).collect();
        let served = run(&config, Seed(seed), &arrivals);
        prop_assert_eq!(&served, &run(&config, Seed(seed), &arrivals));
        for (each, arrival) in served.iter().zip(&arrivals) {
            prop_assert_eq!(each.tokens.len() as u64, arrival.output);
            prop_assert!(each.tokens[0] > arrival.at && each.tokens.is_sorted());
        }
    }
}
