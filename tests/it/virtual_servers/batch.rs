//! A server with continuous batching, chunked prefill and a token limit, in virtual time.
//!
//! A step gives every running request its next token and fills the rest of its budget with prompts, in order of arrival. Its
//! duration grows with its tokens, so concurrent requests are correlated, as on a real server.

use super::Served;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, Exp1, StandardNormal};
use std::collections::VecDeque;

/// Who sends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Load {
    /// Users, each of which sends its next request when the previous one ends.
    Closed(usize),
    /// Poisson arrivals per second, starting with an empty server.
    Open(f64),
}

/// A server and its load.
#[derive(Clone, Copy, Debug)]
pub struct Batch {
    pub load: Load,
    /// Tokens of context that all running requests have room for.
    pub room: u32,
    /// Users are busy before and after the measurement; otherwise their first requests are warm-up and the last ones drain.
    pub steady: bool,
    /// How far the speed of the server wanders: standard deviation of its logarithm.
    pub wander: f64,
}

/// Tokens of one step.
const BUDGET: u32 = 512;
/// Running requests.
const SEATS: usize = 64;
/// Milliseconds of a step, of each sequence and each prompt token in it, and of each token of context.
const STEP: f64 = 8.0;
const SEQUENCE: f64 = 0.05;
const PROMPT: f64 = 0.04;
const CONTEXT: f64 = 1e-4;
/// Requests per user before and after the measurement.
const STEADY: usize = 5;
/// Spread of a step, and correlation length of the speed in steps.
const JITTER: f64 = 0.05;
const MEMORY: f64 = 500.0;

struct Job {
    place: usize,
    /// Prompt tokens that are not read yet, and output tokens that are not written.
    unread: u32,
    unwritten: u32,
    context: u32,
    last_ms: f64,
    shard: usize,
}

fn tokens(rng: &mut ChaCha8Rng, (median, spread): (f64, f64), (least, most): (f64, f64)) -> u32 {
    let z: f64 = StandardNormal.sample(rng);
    (median * (spread * z).exp()).round().clamp(least, most) as u32
}

struct State {
    rng: ChaCha8Rng,
    waiting: VecDeque<Job>,
    running: Vec<Job>,
    used: u32,
    served: Vec<Served>,
    /// The shard of each served request.
    shards: Vec<usize>,
}

impl State {
    fn send(&mut self, at_ms: f64, shard: usize) {
        self.shards.push(shard);
        let prompt = tokens(&mut self.rng, (300.0, 0.8), (16.0, 4000.0));
        let output = tokens(&mut self.rng, (40.0, 0.7), (1.0, 400.0));
        let place = self.served.len();
        self.served.push(Served {
            scheduled_s: at_ms / 1e3,
            prompt,
            tokens: output,
            ok: true,
            ..Served::default()
        });
        self.waiting.push_back(Job {
            place,
            unread: prompt,
            unwritten: output,
            context: prompt + output,
            last_ms: at_ms,
            shard,
        });
    }

    /// What one step reads and writes: its length without chance, and which requests get a token.
    fn step(&mut self, room: u32, tokened: &mut Vec<usize>) -> f64 {
        tokened.clear();
        tokened.extend((0..self.running.len()).filter(|&own| self.running[own].unread == 0));
        let writes = tokened.len();
        let mut budget = BUDGET.saturating_sub(writes as u32);
        let mut read = 0;
        let mut own = 0;
        while budget > 0 {
            if own == self.running.len() {
                let fits = self.running.len() < SEATS;
                match self.waiting.front().filter(|next| {
                    fits && (self.used + next.context <= room || self.running.is_empty())
                }) {
                    Some(next) => self.used += next.context,
                    None => break,
                }
                self.running.extend(self.waiting.pop_front());
            }
            let job = &mut self.running[own];
            if job.unread > 0 {
                let part = job.unread.min(budget);
                (job.unread, budget, read) = (job.unread - part, budget - part, read + part);
                if job.unread == 0 {
                    tokened.push(own);
                }
            }
            own += 1;
        }
        STEP + SEQUENCE * tokened.len() as f64
            + PROMPT * f64::from(read)
            + CONTEXT * f64::from(self.used)
    }
}

/// The measured requests, in the order of their sending. A closed loop is split by user: each shard sends its part of the requests,
/// and measures after its part of the warm-up.
pub fn serve(server: &Batch, shards: usize, n: usize, seed: u64) -> Vec<Served> {
    let (warm, cool) = match server.load {
        Load::Closed(users) if server.steady => (STEADY * users, STEADY * users),
        Load::Closed(users) => (users, 0),
        Load::Open(_) => (0, 0),
    };
    let all = n + warm + cool;
    let shards = match server.load {
        Load::Closed(_) => shards,
        Load::Open(_) => 1,
    };
    let rng = ChaCha8Rng::seed_from_u64(seed);
    let mut own = State {
        rng,
        waiting: VecDeque::new(),
        running: Vec::new(),
        used: 0,
        served: Vec::with_capacity(all),
        shards: Vec::with_capacity(all),
    };
    let part = |total: usize, shard: usize| (shard + 1) * total / shards - shard * total / shards;
    let mut unsent: Vec<usize> = (0..shards).map(|shard| part(all, shard)).collect();
    let (mut now, mut next, mut speed, mut tokened) = (0.0f64, 0.0f64, 0.0f64, Vec::new());
    if let Load::Closed(users) = server.load {
        for shard in (0..users).map(|user| user % shards) {
            own.send(0.0, shard);
            unsent[shard] -= 1;
        }
    }
    loop {
        if let Load::Open(rate) = server.load {
            if own.running.is_empty() && own.waiting.is_empty() {
                now = now.max(next);
            }
            while next <= now && own.served.len() < all {
                own.send(next, 0);
                let gap: f64 = Exp1.sample(&mut own.rng);
                next += gap * 1e3 / rate;
            }
        }
        if own.running.is_empty() && own.waiting.is_empty() {
            break;
        }
        let length = own.step(server.room, &mut tokened);
        let z: f64 = StandardNormal.sample(&mut own.rng);
        if server.wander > 0.0 {
            let keep = 1.0 - 1.0 / MEMORY;
            let fresh: f64 = StandardNormal.sample(&mut own.rng);
            speed = keep * speed + (1.0 - keep * keep).sqrt() * server.wander * fresh;
        }
        // Now and then the host is elsewhere.
        let pause = if own.rng.random_range(0..400) == 0 {
            30.0
        } else {
            0.0
        };
        now += length * (JITTER * z + speed).exp() + pause;
        for &at in tokened.iter() {
            let job = &mut own.running[at];
            let row = &mut own.served[job.place];
            if job.unwritten == row.tokens {
                row.ttft_ms = now - row.scheduled_s * 1e3;
                row.gaps.reserve_exact(row.tokens as usize - 1);
            } else {
                row.gaps.push(now - job.last_ms);
            }
            (job.unwritten, job.last_ms) = (job.unwritten - 1, now);
            if job.unwritten == 0 {
                row.e2e_ms = now - row.scheduled_s * 1e3;
            }
        }
        let mut ended = Vec::new();
        let used = &mut own.used;
        own.running.retain(|job| {
            if job.unwritten == 0 {
                *used -= job.context;
                ended.push(job.shard);
            }
            job.unwritten > 0
        });
        if let Load::Closed(_) = server.load {
            for shard in ended {
                if unsent[shard] > 0 {
                    own.send(now, shard);
                    unsent[shard] -= 1;
                }
            }
        }
    }
    let mut sent = vec![0; shards];
    for (row, &shard) in own.served.iter_mut().zip(&own.shards) {
        let first = part(warm, shard);
        row.measured = (first..first + part(n, shard)).contains(&sent[shard]);
        sent[shard] += 1;
    }
    own.served
}
