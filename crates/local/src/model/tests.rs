mod agree;
mod batch;
mod files;
mod rows;

use super::*;
use crate::generation_params::{Ended, Sampling, Told};

/// A clock that is a tick later at each reading.
fn ticking() -> impl Fn() -> Nanos {
    let now = std::cell::Cell::new(0);
    move || {
        now.set(now.get() + 1);
        Nanos(now.get())
    }
}

fn local() -> Local {
    Local { threads: Some(1), ..Local::default() }
}

fn tiny() -> Model {
    Model::load("random:tiny", &local(), Seed(7)).unwrap().0
}

fn work(model: &mut Model, asks: &[Ask]) -> Vec<Told> {
    model.work(asks, &ticking(), &|_| true).unwrap().rows
}

/// A prompt of so many tokens, another for each seed.
fn prompt(tokens: u32, seed: u32) -> Vec<u32> {
    (0..tokens).map(|at| (at * 7919 + seed * 104_729 + 13) % 8192).collect()
}

fn greedy(prompt: Vec<u32>, max_tokens: u64) -> Ask {
    Ask { prompt, max_tokens, ..Ask::default() }
}
