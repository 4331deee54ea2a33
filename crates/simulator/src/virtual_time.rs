//! The step engine run without a clock: arrivals in, times of all tokens out. Same seed, same result.

use crate::engine::Engine;
use llmscen_core::seed::Seed;
use llmscen_core::simulator::Simulator;
use llmscen_core::units::Nanos;

/// A request that arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// When.
    pub at: Nanos,
    /// Tokens of its prompt, at least 1.
    pub prompt: u64,
    /// Tokens of its output, at least 1.
    pub output: u64,
}

/// What became of an arrival.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Served {
    /// When it arrived.
    pub arrived: Nanos,
    /// The end of each step that gave it a token. Empty: it was rejected, for it could never fit.
    pub tokens: Vec<Nanos>,
}

impl Served {
    /// When its first token was there; None where it was rejected.
    pub fn first_token(&self) -> Option<Nanos> {
        self.tokens.first().copied()
    }

    /// When its last token was there; None where it was rejected.
    pub fn finished(&self) -> Option<Nanos> {
        self.tokens.last().copied()
    }
}

/// Serves all arrivals, in whatever order they are given, and returns one [`Served`] for each in that same order.
pub fn run(config: &Simulator, seed: Seed, arrivals: &[Arrival]) -> Vec<Served> {
    let mut engine = Engine::new(config, seed);
    let mut served: Vec<Served> = arrivals.iter().map(|each| Served { arrived: each.at, tokens: Vec::new() }).collect();
    let mut order: Vec<usize> = (0..arrivals.len()).collect();
    order.sort_by_key(|&index| arrivals[index].at);
    let mut order = order.into_iter().peekable();
    let mut submit_until = |engine: &mut Engine, now: Nanos| {
        while let Some(index) = order.next_if(|&index| arrivals[index].at <= now) {
            let Arrival { at, prompt, output } = arrivals[index];
            // A sequence that can never fit is left without tokens, which is what says that it was rejected.
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
                emitted.drain(..).for_each(|token| served[token.id as usize].tokens.push(end));
                now = end;
            }
            (None, Some(at)) => now = at,
            (None, None) => return served,
        }
    }
}
