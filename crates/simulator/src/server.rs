//! The server state: requests in flight, and the loop that passes them tokens at the engine's times.

use crate::apis::{Protocol, Reply};
use crate::body::Body;
use crate::chaos::{Strike, fate};
use crate::clock::{Clock, Timer};
use crate::engine::{Engine, Job, Occupancy, TooLong};
use crate::form::{self, Form};
use crate::generation::{Call, Fields, Generation, MOST_CHOICES, Refusal};
use crate::http::{self, Request};
use crate::live::{After, Live, Turn};
use crate::metrics::Meters;
use crate::socket::Socket;
use crate::stored::StoredResponses;
use crate::truth::{Entry, Truth};
use llmscen_core::seed::Seed;
use llmscen_core::simulator::Simulator;
use llmscen_core::units::Nanos;
use serde_json::Value;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::io;
use std::rc::Rc;
use tokio::sync::{Notify, oneshot};

/// The state of one server, used by a single thread.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) config: Simulator,
    pub(super) clock: Clock,
    seed: Seed,
    truth: Truth,
    replicas: Vec<Replica>,
    live: RefCell<HashMap<u64, Live>>,
    meters: RefCell<Meters>,
    stored: RefCell<StoredResponses>,
    /// Number of the next request.
    next: Cell<u64>,
}

/// One engine, and the notification that a request was submitted to it.
#[derive(Debug)]
struct Replica {
    engine: RefCell<Engine>,
    work: Notify,
}

/// A request that is rejected with an error.
#[derive(Debug)]
pub(super) struct Refused {
    pub(super) id: String,
    pub(super) entry: Entry,
    pub(super) status: u16,
    pub(super) body: String,
}

impl Server {
    pub(super) fn new(config: &Simulator, seed: Seed, truth: &Truth) -> Server {
        Server {
            config: config.clone(),
            clock: Clock::since(truth.origin()),
            seed,
            truth: truth.clone(),
            replicas: (0..config.replicas.max(1))
                .map(|replica| {
                    let seed = seed.child("engine");
                    // The first one is the same for any number of them.
                    let seed = match replica {
                        0 => seed,
                        replica => seed.child(u64::from(replica)),
                    };
                    Replica {
                        engine: RefCell::new(Engine::new(config, seed)),
                        work: Notify::new(),
                    }
                })
                .collect(),
            live: RefCell::default(),
            meters: RefCell::default(),
            stored: RefCell::default(),
            next: Cell::new(0),
        }
    }

    /// The step loops of all replicas. Returns the error of a timer.
    pub(super) async fn steps(self: &Rc<Self>) -> io::Error {
        let mut others = tokio::task::JoinSet::new();
        for replica in 1..self.replicas.len() {
            let server = self.clone();
            others.spawn_local(async move { server.steps_of(replica).await });
        }
        tokio::select! {
            error = self.steps_of(0) => error,
            Some(ended) = others.join_next() => ended.unwrap_or_else(io::Error::other),
        }
    }

    /// The step loop of a replica. While there is work, each step begins at the planned end of the previous one, so
    /// that timer delays do not accumulate.
    async fn steps_of(self: &Rc<Self>, replica: usize) -> io::Error {
        let timer = match Timer::new(self.clock) {
            Ok(timer) => timer,
            Err(error) => return error,
        };
        let Replica { engine, work } = &self.replicas[replica];
        let (mut from, mut emitted) = (Nanos::ZERO, Vec::new());
        loop {
            let begun = engine.borrow_mut().begin(from);
            let Some(end) = begun else {
                work.notified().await;
                continue;
            };
            if let Err(error) = timer.until(end).await {
                return error;
            }
            engine.borrow_mut().complete(&mut emitted);
            for token in emitted.drain(..) {
                self.emit_token(token.id, end);
            }
            from = end;
        }
    }

    /// Accepts a request. Returns its number and a receiver for its end, or the rejection.
    pub(super) fn accept(
        self: &Rc<Self>,
        (protocol, path): (&'static dyn Protocol, &'static str),
        request: &Request,
        socket: &Rc<Socket>,
    ) -> Result<(u64, oneshot::Receiver<After>), Box<Refused>> {
        let received_at = self.clock.now();
        let number = self.next.replace(self.next.get() + 1);
        let id = protocol.id(number);
        let entry = self.truth.open(
            (number, &id),
            request.header("x-request-id"),
            path,
            received_at,
        );
        let refuse = |refusal: Refusal| {
            let (status, body) = (refusal.status, protocol.error(&refusal, Some(&id)));
            Box::new(Refused {
                id: id.clone(),
                entry: entry.clone(),
                status,
                body,
            })
        };
        let faults = &self.config.faults;
        let seed = self.seed.child("text").child(number);
        let (mut generation, reply) = self
            .read((protocol, path), request, &id, seed)
            .map_err(refuse)?;
        let fate = fate(faults, self.seed, number, generation.total());
        if fate.strike == Some(Strike::Error) {
            return Err(refuse(Refusal::new(
                faults.error_status,
                "the simulator failed this request on purpose",
            )));
        }
        let replica = self.select_replica(number, request);
        generation.replica = (self.replicas.len() > 1).then_some(replica);
        let submitted = self.submit(number, &mut generation, received_at);
        submitted.map_err(|too_long| refuse(Refusal::new(400, too_long.to_string())))?;
        let (over, ended) = oneshot::channel();
        let body = Body::new((generation, reply), &id, faults, seed, request.close);
        self.live.borrow_mut().insert(
            number,
            Live::new(body, fate, (socket.clone(), entry.clone()), over),
        );
        self.open_after(number, faults.slow_headers);
        self.replicas[replica].work.notify_one();
        Ok((number, ended))
    }

    /// The replica that the token of the session names, else the next one in turn.
    fn select_replica(&self, number: u64, request: &Request) -> usize {
        let count = self.replicas.len();
        let named = request.header(http::SESSION_TOKEN).and_then(|token| {
            let replica: usize = token.strip_prefix("sim-")?.parse().ok()?;
            (replica < count).then_some(replica)
        });
        named.unwrap_or((number % count as u64) as usize)
    }

    fn engine_of(&self, generation: &Generation) -> &RefCell<Engine> {
        &self.replicas[generation.replica.unwrap_or(0)].engine
    }

    fn read(
        &self,
        (protocol, path): (&'static dyn Protocol, &'static str),
        request: &Request,
        id: &str,
        seed: Seed,
    ) -> Result<(Generation, Box<dyn Reply>), Refusal> {
        let form = match form::boundary(request) {
            Some(boundary) => form::parse(&request.body, boundary)
                .ok_or_else(|| Refusal::new(400, "the form is malformed"))?,
            None => {
                let body: Value = serde_json::from_slice(&request.body)
                    .map_err(|error| Refusal::new(400, format!("the body is not JSON: {error}")))?;
                let Value::Object(fields) = body else {
                    return Err(Refusal::new(400, "the body must be a JSON object"));
                };
                Form { fields, file: None }
            }
        };
        protocol.read(&Call {
            path,
            request,
            body: Fields::new(&form.fields),
            file: form.file,
            id,
            config: &self.config,
            stored: &self.stored.borrow(),
            seed,
        })
    }

    /// Submits a sequence per choice to the engine, and records how many prompt tokens were cached.
    fn submit(&self, number: u64, generation: &mut Generation, now: Nanos) -> Result<(), TooLong> {
        let blocks = if self.config.prefix_cache {
            generation.prompt.blocks(self.config.block_tokens)
        } else {
            Vec::new()
        };
        let mut engine = self.engine_of(generation).borrow_mut();
        for choice in 0..generation.choices {
            let id = sequence(number, choice);
            let job = Job {
                id,
                prompt: generation.prompt.tokens(),
                output: generation.output,
                blocks: blocks.clone(),
            };
            let cached = engine.take(job, now)?;
            generation.cached = self.config.prefix_cache.then_some(cached);
        }
        Ok(())
    }

    /// Cancels a request whose client has disconnected.
    pub(super) fn cancel(&self, number: u64) {
        if let Some(live) = self.live.borrow_mut().remove(&number) {
            self.withdraw(number, &live);
            live.abandon(self.clock.now());
        }
    }

    /// Empties the prefix cache.
    pub(super) fn reset_prefix_cache(&self) {
        for replica in &self.replicas {
            replica.engine.borrow_mut().reset_prefix_cache();
        }
    }

    /// Begins a profile.
    pub(super) fn start_profile(&self) {
        self.meters.borrow_mut().start_profile();
    }

    /// Ends the profile.
    pub(super) fn stop_profile(&self) {
        self.meters.borrow_mut().stop_profile();
    }

    /// The text of `/metrics`.
    pub(super) fn metrics(&self) -> String {
        let all = self.replicas.iter();
        let occupancy = all
            .map(|replica| replica.engine.borrow().occupancy())
            .fold(Occupancy::default(), Occupancy::add);
        let blocks = self
            .config
            .kv_blocks
            .saturating_mul(self.config.replicas.max(1));
        self.meters.borrow().page(occupancy, blocks)
    }

    /// Passes the token that the engine emitted at `at` for a sequence to its request.
    fn emit_token(self: &Rc<Self>, id: u64, at: Nanos) {
        let (number, choice) = (id / MOST_CHOICES, id % MOST_CHOICES);
        let turn = {
            let mut requests = self.live.borrow_mut();
            let Some(live) = requests.get_mut(&number) else {
                return;
            };
            let (turn, before) = live.token(choice as usize, at);
            let mut meters = self.meters.borrow_mut();
            match live.generation().pooled {
                true => meters.pooled(),
                false => meters.token(at, before.unwrap_or(live.received_at), before.is_none()),
            }
            if live.served() {
                meters.served(at.since(live.received_at), live.generation().finish);
            }
            turn
        };
        self.settle(number, turn);
    }

    /// Cancels the sequences of a request in the engine.
    fn withdraw(&self, number: u64, live: &Live) {
        let mut engine = self.engine_of(live.generation()).borrow_mut();
        (0..live.generation().choices).for_each(|choice| engine.cancel(sequence(number, choice)));
    }

    fn settle(self: &Rc<Self>, number: u64, turn: Turn) {
        match turn {
            Turn::Wait => {}
            Turn::Stall => self.open_after(number, self.config.faults.stall_for),
            Turn::Over(after) => {
                let Some(live) = self.live.borrow_mut().remove(&number) else {
                    return;
                };
                if !live.served() {
                    self.withdraw(number, &live);
                }
                if let Some((id, prompt)) = live.stored_conversation() {
                    self.stored.borrow_mut().insert(id, prompt);
                }
                live.leave(after);
            }
        }
    }

    /// Unblocks the output of a request after a pause, or now.
    fn open_after(self: &Rc<Self>, number: u64, pause: Nanos) {
        if pause == Nanos::ZERO {
            return self.open(number);
        }
        let server = self.clone();
        tokio::task::spawn_local(async move {
            tokio::time::sleep(pause.into()).await;
            server.open(number);
        });
    }

    fn open(self: &Rc<Self>, number: u64) {
        let turn = self.live.borrow_mut().get_mut(&number).map(Live::open);
        self.settle(number, turn.unwrap_or(Turn::Wait));
    }
}

/// The engine's sequence id for a choice of a request.
fn sequence(number: u64, choice: u64) -> u64 {
    number * MOST_CHOICES + choice
}
