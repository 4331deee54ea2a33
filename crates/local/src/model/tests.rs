mod files;
mod rows;

use super::*;
use crate::generation_params::{Ended, RowOutput, Sampling};

/// A clock that is a tick later at each reading.
fn ticking() -> impl Fn() -> Nanos {
    let now = std::cell::Cell::new(0);
    move || {
        now.set(now.get() + 1);
        Nanos(now.get())
    }
}

fn local() -> Local {
    Local {
        threads: Some(1),
        ..Local::default()
    }
}

fn tiny() -> Model {
    Model::load("random:tiny", &local(), Seed(7)).unwrap().0
}

fn work(model: &mut Model, params: &[GenerationParams]) -> Vec<RowOutput> {
    model.work(params, &ticking(), &|_| true).unwrap().rows
}

/// A prompt of so many tokens, another for each seed.
fn prompt(tokens: u32, seed: u32) -> Vec<u32> {
    (0..tokens)
        .map(|at| (at * 7919 + seed * 104_729 + 13) % 8192)
        .collect()
}

fn greedy(prompt: Vec<u32>, max_tokens: u64) -> GenerationParams {
    GenerationParams {
        prompt,
        max_tokens,
        ..GenerationParams::default()
    }
}

mod agree {
    use super::*;
    use serde_json::Value;
    use std::path::PathBuf;

    /// Of the largest logit of a step.
    const TOLERANCE: f32 = 1e-4;

    /// The folders with a reference: those of the repository, or those that `TINY_MODELS` names.
    fn folders() -> Vec<PathBuf> {
        let own = || concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/local").to_owned();
        let all =
            std::fs::read_dir(std::env::var("TINY_MODELS").unwrap_or_else(|_| own())).unwrap();
        let mut all: Vec<PathBuf> = all
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.join("expected.json").exists())
            .collect();
        all.sort();
        all
    }

    fn ids(value: &Value) -> Vec<u32> {
        value
            .as_array()
            .unwrap()
            .iter()
            .map(|id| id.as_u64().unwrap() as u32)
            .collect()
    }

    #[test]
    fn it_agrees_with_transformers() {
        let folders = folders();
        assert_eq!(folders.len(), 3);
        for folder in folders {
            let text = std::fs::read_to_string(folder.join("expected.json")).unwrap();
            let expected: Value = serde_json::from_str(&text).unwrap();
            let (mut model, loaded) =
                Model::load(folder.to_str().unwrap(), &local(), Seed(0)).unwrap();
            let prompt = model
                .encode(expected["prompt"].as_str().unwrap(), true)
                .unwrap();
            assert_eq!(prompt, ids(&expected["ids"]));
            assert_eq!(
                model.chat(&expected["messages"]).unwrap().as_deref(),
                expected["chat"].as_str()
            );
            let tokens = ids(&expected["tokens"]);
            let params = GenerationParams {
                ignore_eos: true,
                logits: true,
                ..greedy(prompt, tokens.len() as u64)
            };
            let output = work(&mut model, &[params]).remove(0);
            assert_eq!(output.tokens, tokens, "{}", loaded.architecture);
            assert_eq!(Some(output.text.as_str()), expected["text"].as_str());
            let logits = output.logits.unwrap();
            let mut worst = 0f32;
            for (step, truth) in expected["logits"].as_object().unwrap() {
                let at = step.parse::<usize>().unwrap() * model.vocabulary();
                let truth: Vec<f32> = truth
                    .as_array()
                    .unwrap()
                    .iter()
                    .map(|logit| logit.as_f64().unwrap() as f32)
                    .collect();
                let own = &logits[at..at + truth.len()];
                let largest = truth.iter().fold(0f32, |most, logit| most.max(logit.abs()));
                let off = own
                    .iter()
                    .zip(&truth)
                    .fold(0f32, |most, (own, truth)| most.max((own - truth).abs()));
                worst = worst.max(off / largest);
            }
            assert!(worst < TOLERANCE, "{}: {worst:e}", loaded.architecture);
        }
    }
}

mod batch {
    use super::*;

    /// Rows of unequal length, greedy and sampled, in one batch and each by itself.
    fn same_as_alone(model: &mut Model, params: &[GenerationParams]) {
        let together = work(model, params);
        for (row, (params, together)) in params.iter().zip(together).enumerate() {
            let alone = work(model, std::slice::from_ref(params)).remove(0);
            assert_eq!(together.tokens, alone.tokens, "row {row}");
            assert_eq!((together.text, together.ended), (alone.text, alone.ended));
        }
    }

    fn sampled(prompt: Vec<u32>, seed: u64) -> GenerationParams {
        let sampling = Sampling {
            temperature: 0.8,
            top_k: 50,
            top_p: 0.95,
            min_p: 0.01,
            repetition_penalty: 1.1,
            seed,
        };
        GenerationParams {
            sampling,
            ..greedy(prompt, 24)
        }
    }

    #[test]
    fn a_row_says_what_it_says_alone() {
        let mut model = tiny();
        let lengths = [5, 37, 1, 37, 18];
        let params: Vec<GenerationParams> = lengths
            .iter()
            .zip(0..)
            .map(|(length, seed)| greedy(prompt(*length, seed), 24))
            .collect();
        same_as_alone(&mut model, &params);
        let params: Vec<GenerationParams> = lengths
            .iter()
            .zip(0..)
            .map(|(length, seed)| sampled(prompt(*length, seed), u64::from(seed)))
            .collect();
        same_as_alone(&mut model, &params);
        let even: Vec<GenerationParams> = (0..4)
            .map(|seed| sampled(prompt(9, seed), u64::from(seed)))
            .collect();
        same_as_alone(&mut model, &even);
    }

    #[test]
    fn the_seed_of_a_row_is_what_its_draws_hang_on() {
        let mut model = tiny();
        let of = |model: &mut Model, seeds: &[u64]| {
            let params: Vec<GenerationParams> = seeds
                .iter()
                .map(|seed| sampled(prompt(9, 0), *seed))
                .collect();
            work(model, &params)
                .into_iter()
                .map(|output| output.tokens)
                .collect::<Vec<_>>()
        };
        let [a, b, c] = &of(&mut model, &[1, 2, 1])[..] else {
            panic!()
        };
        assert_eq!(a, c);
        assert_ne!(a, b);
        assert_eq!(of(&mut model, &[2]), std::slice::from_ref(b));
    }

    #[test]
    fn rows_that_ended_do_not_change_the_others() {
        let mut model = tiny();
        let params = [
            greedy(prompt(12, 0), 3),
            greedy(prompt(4, 1), 30),
            greedy(prompt(7, 2), 1),
        ];
        let worked = model.work(&params, &ticking(), &|_| true).unwrap();
        let counts: Vec<usize> = worked.rows.iter().map(|row| row.tokens.len()).collect();
        assert_eq!(
            (counts, worked.steps.len(), worked.padded_to),
            (vec![3, 30, 1], 29, 12)
        );
        same_as_alone(&mut model, &params);
    }

    #[test]
    fn a_prompt_in_pieces_is_the_same_prompt() {
        let mut model = tiny();
        // Short and long rows end in different pieces, and not in the order in which they stand.
        let params: Vec<GenerationParams> = [90, 3, 41]
            .iter()
            .zip(0..)
            .map(|(length, seed)| greedy(prompt(*length, seed), 8))
            .collect();
        let whole: Vec<Vec<u32>> = work(&mut model, &params)
            .into_iter()
            .map(|output| output.tokens)
            .collect();
        let plenty = std::mem::replace(&mut model.intermediate, 1 << 24);
        assert_eq!(
            work(&mut model, &params)
                .into_iter()
                .map(|output| output.tokens)
                .collect::<Vec<_>>(),
            whole
        );
        model.intermediate = plenty;
    }

    #[test]
    fn the_room_grows_under_a_long_reply() {
        let mut model = tiny();
        let params = [greedy(prompt(250, 0), 280), greedy(prompt(200, 1), 280)];
        let grown: Vec<Vec<u32>> = work(&mut model, &params)
            .into_iter()
            .map(|output| output.tokens)
            .collect();
        let sure = params.clone().map(|params| GenerationParams {
            ignore_eos: true,
            ..params
        });
        model.cache = None;
        assert_eq!(
            work(&mut model, &sure)
                .into_iter()
                .map(|output| output.tokens)
                .collect::<Vec<_>>(),
            grown
        );
    }
}
