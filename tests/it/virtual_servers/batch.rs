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
    /// Users with sessions of up to [`TURNS`] turns: each prompt repeats the session so far.
    Sessions(usize),
    /// Poisson arrivals per second, starting with an empty server.
    Open(f64),
    /// As many arrivals per second on average, at twice the rate or not at all, both for [`PHASE_S`] on average.
    OnOff(f64),
}

impl Load {
    /// Users of a closed loop.
    pub fn users(self) -> Option<usize> {
        match self {
            Load::Closed(users) | Load::Sessions(users) => Some(users),
            Load::Open(_) | Load::OnOff(_) => None,
        }
    }
}

/// How a server or its requests differ from the plain ones.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Variant {
    Plain,
    /// Requests start with room for their prompt alone. If the room is used up, the last one that started loses its context, and
    /// computes it again later.
    Preempting,
    /// A step gives a request 1 to 4 tokens.
    Speculative,
    /// Every other arrival, at random, is served by another server that needs [`SLOWER`] times as long.
    Replicas,
    /// Output lengths by Pareto.
    Pareto,
    /// Each prompt begins with one of [`PREFIXES`], which the server reads once.
    ColdCache,
}

/// Which requests of a closed loop are measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Ends {
    /// Users are busy before and after the measurement.
    Cut,
    /// The first requests of the users are warm-up, and the last ones drain.
    Drain,
    /// All requests, from the first ones, which the users send at once. Other sessions follow the measured ones.
    Fresh,
}

/// A server and its load.
#[derive(Clone, Copy, Debug)]
pub struct Batch {
    pub load: Load,
    /// Tokens of context that all running requests have room for.
    pub room: u32,
    /// The start and the end of a closed loop.
    pub ends: Ends,
    /// How far the speed of the server wanders: standard deviation of its logarithm.
    pub wander: f64,
    pub variant: Variant,
    /// Share of its time that a user of a closed loop waits before it sends, as after each of its replies.
    pub idle: f64,
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
/// Turns of the longest session, and mean seconds of a phase of [`Load::OnOff`].
const TURNS: u32 = 8;
const PHASE_S: f64 = 2.0;
/// Steps of the second replica, relative to those of the first.
const SLOWER: f64 = 1.5;
/// Chance that a speculated token is accepted, if those before it are.
const ACCEPTED: f64 = 0.7;
const SPECULATED: u32 = 3;
/// Prefixes of [`Variant::ColdCache`], and tokens of each.
const PREFIXES: usize = 60;
const PREFIX: u32 = 3000;
/// Least output tokens and exponent of [`Variant::Pareto`].
const PARETO: (f64, f64) = (20.0, 1.5);

struct Job {
    place: usize,
    /// Prompt tokens that are not read yet, and output tokens that are not written.
    unread: u32,
    unwritten: u32,
    context: u32,
    last_ms: f64,
    shard: usize,
    turns_left: u32,
}

/// What a user sends next.
#[derive(Clone, Copy, Default)]
struct Turn {
    shard: usize,
    /// Tokens of the session so far, and turns that follow.
    history: u32,
    turns_left: u32,
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
    variant: Variant,
    sessions: bool,
    /// Whether each prefix was read.
    prefixes: [bool; PREFIXES],
}

impl State {
    fn send(&mut self, at_ms: f64, turn: Turn) {
        self.shards.push(turn.shard);
        let begins = self.sessions && turn.history == 0;
        let turns_left = if begins {
            self.rng.random_range(0..TURNS)
        } else {
            turn.turns_left
        };
        let text = if self.sessions { 100.0 } else { 300.0 };
        let prompt = turn.history + tokens(&mut self.rng, (text, 0.8), (16.0, 4000.0));
        let output = match self.variant {
            Variant::Pareto => {
                let (least, exponent) = PARETO;
                let share: f64 = self.rng.random_range(1e-9..1.0);
                (least * share.powf(-1.0 / exponent)).min(2000.0) as u32
            }
            _ => tokens(&mut self.rng, (40.0, 0.7), (1.0, 400.0)),
        };
        let is_unread = self.variant == Variant::ColdCache && {
            let prefix = self.rng.random_range(0..PREFIXES);
            !std::mem::replace(&mut self.prefixes[prefix], true)
        };
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
            unread: prompt + if is_unread { PREFIX } else { 0 },
            unwritten: output,
            context: match self.variant {
                Variant::Preempting => prompt,
                _ => prompt + output,
            },
            last_ms: at_ms,
            shard: turn.shard,
            turns_left,
        });
    }

    /// Tokens that a request gets in one step.
    fn accepted(&mut self) -> u32 {
        if self.variant != Variant::Speculative {
            return 1;
        }
        let accepted = (0..SPECULATED).take_while(|_| self.rng.random_bool(ACCEPTED));
        1 + accepted.count() as u32
    }

    /// Takes the context of the requests that started last, until the others fit.
    fn preempt(&mut self, room: u32) {
        while self.used > room && self.running.len() > 1 {
            let Some(job) = self.running.pop() else {
                return;
            };
            self.used -= job.context;
            self.waiting.push_front(Job {
                unread: job.context,
                ..job
            });
        }
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
    if let (Variant::Replicas, Load::Open(rate)) = (server.variant, server.load) {
        let half = Batch {
            load: Load::Open(rate / 2.0),
            variant: Variant::Plain,
            ..*server
        };
        let mut served = serve_alone(&half, 1, n, (seed, 1.0));
        served.extend(serve_alone(&half, 1, n, (!seed, SLOWER)));
        served.sort_by(|a, b| a.scheduled_s.total_cmp(&b.scheduled_s));
        served.truncate(2 * n);
        let cooldown = served.iter_mut().skip(n);
        cooldown.for_each(|row| row.measured = false);
        return served;
    }
    serve_alone(server, shards, n, (seed, 1.0))
}

/// `slower`: factor of every step.
fn serve_alone(server: &Batch, shards: usize, n: usize, (seed, slower): (u64, f64)) -> Vec<Served> {
    let users = server.load.users();
    let (warm, cool) = match users {
        Some(users) => match server.ends {
            Ends::Cut => (STEADY * users, STEADY * users),
            Ends::Drain => (users, 0),
            Ends::Fresh if matches!(server.load, Load::Sessions(_)) => (0, STEADY * users),
            Ends::Fresh => (0, 0),
        },
        // More requests arrive until the last measured one has ended.
        None => (0, n),
    };
    let all = n + warm + cool;
    let shards = if users.is_some() { shards } else { 1 };
    let rng = ChaCha8Rng::seed_from_u64(seed);
    let mut own = State {
        rng,
        waiting: VecDeque::new(),
        running: Vec::new(),
        used: 0,
        served: Vec::with_capacity(all),
        shards: Vec::with_capacity(all),
        variant: server.variant,
        sessions: matches!(server.load, Load::Sessions(_)),
        prefixes: [false; PREFIXES],
    };
    let part = |total: usize, shard: usize| (shard + 1) * total / shards - shard * total / shards;
    let mut unsent: Vec<usize> = (0..shards).map(|shard| part(all, shard)).collect();
    let (mut now, mut next, mut speed, mut tokened) = (0.0f64, 0.0f64, 0.0f64, Vec::new());
    // When idle users send, and what.
    let mut idle: Vec<(f64, Turn)> = Vec::new();
    if let Some(users) = users {
        for shard in (0..users).map(|user| user % shards) {
            let turn = Turn {
                shard,
                ..Turn::default()
            };
            own.send(0.0, turn);
            unsent[shard] -= 1;
        }
    }
    // What is left of a phase with arrivals.
    let mut phase_ms = 0.0;
    loop {
        if users.is_none() {
            if own.running.is_empty() && own.waiting.is_empty() {
                now = now.max(next);
            }
            while next <= now && own.served.len() < all {
                own.send(next, Turn::default());
                let mut exponential = |mean: f64| -> f64 {
                    let drawn: f64 = Exp1.sample(&mut own.rng);
                    drawn * mean
                };
                match server.load {
                    Load::Open(rate) => next += exponential(1e3) / rate,
                    Load::OnOff(rate) => {
                        let mut gap = exponential(1e3 / (2.0 * rate));
                        while gap > phase_ms {
                            gap -= phase_ms;
                            next += phase_ms + exponential(PHASE_S * 1e3);
                            phase_ms = exponential(PHASE_S * 1e3);
                        }
                        phase_ms -= gap;
                        next += gap;
                    }
                    Load::Closed(_) | Load::Sessions(_) => {}
                }
            }
        }
        if own.running.is_empty() && own.waiting.is_empty() {
            now = now.max(idle.iter().map(|user| user.0).fold(f64::INFINITY, f64::min));
        }
        idle.retain(|&(at, turn)| {
            if at <= now {
                own.send(at, turn);
            }
            at > now
        });
        if own.running.is_empty() && own.waiting.is_empty() {
            break;
        }
        let length = slower * own.step(server.room, &mut tokened);
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
            let accepted = own.accepted();
            let job = &mut own.running[at];
            let written = accepted.min(job.unwritten);
            let row = &mut own.served[job.place];
            if job.unwritten == row.tokens {
                row.ttft_ms = now - row.scheduled_s * 1e3;
                row.gaps.reserve_exact(row.tokens as usize - 1);
            } else {
                row.gaps.push(now - job.last_ms);
            }
            (job.unwritten, job.last_ms) = (job.unwritten - written, now);
            if server.variant == Variant::Preempting {
                (job.context, own.used) = (job.context + written, own.used + written);
            }
            if job.unwritten == 0 {
                row.e2e_ms = now - row.scheduled_s * 1e3;
            }
        }
        let mut ended = Vec::new();
        let used = &mut own.used;
        own.running.retain(|job| {
            if job.unwritten == 0 {
                *used -= job.context;
                let turn = Turn {
                    shard: job.shard,
                    history: if job.turns_left > 0 { job.context } else { 0 },
                    turns_left: job.turns_left.saturating_sub(1),
                };
                ended.push((job.place, turn));
            }
            job.unwritten > 0
        });
        if server.variant == Variant::Preempting {
            own.preempt(server.room);
        }
        for (place, turn) in ended.into_iter().filter(|_| users.is_some()) {
            if unsent[turn.shard] == 0 {
                continue;
            }
            unsent[turn.shard] -= 1;
            let wait = own.served[place].e2e_ms * server.idle / (1.0 - server.idle);
            match wait > 0.0 {
                true => idle.push((now + wait, turn)),
                false => own.send(now, turn),
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
