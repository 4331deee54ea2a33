//! Runs the engine in virtual time: arrivals in, times of all tokens out. Deterministic for a seed.

use crate::engine::Engine;
use llmscen_core::seed::Seed;
use llmscen_core::simulator::Simulator;
use llmscen_core::units::Nanos;

/// A request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// Arrival time.
    pub at: Nanos,
    /// Prompt tokens, at least 1.
    pub prompt: u64,
    /// Output tokens, at least 1.
    pub output: u64,
}

/// The result of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Served {
    /// Arrival time.
    pub arrived: Nanos,
    /// Time of each token: the end of its step. Empty if the request was rejected because it does not fit into the KV
    /// cache.
    pub tokens: Vec<Nanos>,
}

impl Served {
    /// Time of the first token; None if rejected.
    pub fn first_token(&self) -> Option<Nanos> {
        self.tokens.first().copied()
    }

    /// Time of the last token; None if rejected.
    pub fn finished(&self) -> Option<Nanos> {
        self.tokens.last().copied()
    }
}

/// Serves all arrivals, given in any order, and returns one [`Served`] for each in the same order.
pub fn run(config: &Simulator, seed: Seed, arrivals: &[Arrival]) -> Vec<Served> {
    let mut engine = Engine::new(config, seed);
    let mut served: Vec<Served> = arrivals
        .iter()
        .map(|each| Served {
            arrived: each.at,
            tokens: Vec::new(),
        })
        .collect();
    let mut order: Vec<usize> = (0..arrivals.len()).collect();
    order.sort_by_key(|&index| arrivals[index].at);
    let mut order = order.into_iter().peekable();
    let mut submit_until = |engine: &mut Engine, now: Nanos| {
        while let Some(index) = order.next_if(|&index| arrivals[index].at <= now) {
            let Arrival { at, prompt, output } = arrivals[index];
            // A rejected sequence has no tokens.
            let _ = engine.submit(index as u64, prompt, output, at);
        }
        order.peek().map(|&index| arrivals[index].at)
    };
    let (mut now, mut emitted) = (Nanos::ZERO, Vec::new());
    loop {
        let next = submit_until(&mut engine, now);
        match (engine.begin(now), next) {
            (Some(end), _) => {
                submit_until(&mut engine, end);
                engine.complete(&mut emitted);
                emitted
                    .drain(..)
                    .for_each(|token| served[token.id as usize].tokens.push(end));
                now = end;
            }
            (None, Some(at)) => now = at,
            (None, None) => return served,
        }
    }
}
