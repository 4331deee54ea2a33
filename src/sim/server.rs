//! The heart of the server: requests in flight, and the loop that gives them tokens at the engine's times.

use crate::model::seed::Seed;
use crate::model::simulator::Simulator;
use crate::model::units::Nanos;
use crate::sim::ask::{Api, Ask, Refusal};
use crate::sim::body::Body;
use crate::sim::chaos::{Strike, fate};
use crate::sim::clock::{Clock, Timer};
use crate::sim::engine::Engine;
use crate::sim::http::Request;
use crate::sim::live::{After, Live, Turn};
use crate::sim::metrics::Meters;
use crate::sim::socket::Socket;
use crate::sim::truth::{Entry, Truth};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::io;
use std::rc::Rc;
use tokio::sync::{Notify, oneshot};

/// State of one server; it lives on one thread.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) config: Simulator,
    pub(super) clock: Clock,
    seed: Seed,
    truth: Truth,
    engine: RefCell<Engine>,
    live: RefCell<HashMap<u64, Live>>,
    meters: RefCell<Meters>,
    /// Number of the next request.
    next: Cell<u64>,
    /// Something was submitted.
    work: Notify,
}

/// A request that will be answered with an error.
#[derive(Debug)]
pub(super) struct Refused {
    pub(super) id: String,
    pub(super) entry: Entry,
    pub(super) refusal: Refusal,
}

impl Server {
    pub(super) fn new(config: &Simulator, seed: Seed, truth: &Truth) -> Server {
        Server {
            config: config.clone(),
            clock: Clock::since(truth.origin()),
            seed,
            truth: truth.clone(),
            engine: RefCell::new(Engine::new(config, seed.child("engine"))),
            live: RefCell::default(),
            meters: RefCell::default(),
            next: Cell::new(0),
            work: Notify::new(),
        }
    }

    /// The step loop. While there is work each step begins where the one before it ideally ended, so that the lateness of
    /// one timer never shifts the next.
    pub(super) async fn steps(self: &Rc<Self>, timer: Timer) -> io::Error {
        let (mut from, mut emitted) = (Nanos::ZERO, Vec::new());
        loop {
            let begun = self.engine.borrow_mut().begin(from);
            let Some(end) = begun else {
                self.work.notified().await;
                continue;
            };
            if let Err(error) = timer.until(end).await {
                return error;
            }
            self.engine.borrow_mut().complete(&mut emitted);
            for token in emitted.drain(..) {
                self.give(token.id, end);
            }
            from = end;
        }
    }

    /// Takes in a generation request. Its number, and the receiver that hears of its end; or how to refuse it.
    pub(super) fn accept(
        self: &Rc<Self>,
        api: Api,
        request: &Request,
        socket: &Rc<Socket>,
    ) -> Result<(u64, oneshot::Receiver<After>), Box<Refused>> {
        let received_at = self.clock.now();
        let number = self.next.replace(self.next.get() + 1);
        let id = api.id(number);
        let entry = self.truth.open(number, &id, api.path(), received_at);
        let refuse = |refusal| Box::new(Refused { id: id.clone(), entry: entry.clone(), refusal });
        let faults = &self.config.faults;
        let ask = Ask::read(api, &request.body, u64::from(self.config.default_output_tokens)).map_err(refuse)?;
        let fate = fate(faults, self.seed, number, ask.output);
        if fate.strike == Some(Strike::Error) {
            return Err(refuse(Refusal::new(faults.error_status, "the simulator failed this request on purpose")));
        }
        let submitted = self.engine.borrow_mut().submit(number, ask.prompt, ask.output, received_at);
        submitted.map_err(|too_long| refuse(Refusal::new(400, too_long.to_string())))?;
        let (over, ended) = oneshot::channel();
        let body = Body::new(ask, &id, faults, (self.seed.child("text"), number), request.close);
        self.live.borrow_mut().insert(number, Live::new(body, fate, (socket.clone(), entry.clone()), over));
        self.open_after(number, faults.slow_headers);
        self.work.notify_one();
        Ok((number, ended))
    }

    /// The client of a request is gone.
    pub(super) fn cancel(&self, number: u64) {
        self.engine.borrow_mut().cancel(number);
        if let Some(live) = self.live.borrow_mut().remove(&number) {
            live.abandon(self.clock.now());
        }
    }

    /// The `/metrics` page.
    pub(super) fn metrics(&self) -> String {
        self.meters.borrow().page(self.engine.borrow().occupancy(), self.config.kv_blocks)
    }

    /// Gives a request the token that the engine emitted for it at `at`.
    fn give(self: &Rc<Self>, number: u64, at: Nanos) {
        let turn = {
            let mut all = self.live.borrow_mut();
            let Some(live) = all.get_mut(&number) else { return };
            let turn = live.token();
            let mut meters = self.meters.borrow_mut();
            meters.token(at, live.newest.unwrap_or(live.received_at), live.newest.is_none());
            live.newest = Some(at);
            if live.served() {
                meters.served(at.since(live.received_at), live.finish());
            }
            turn
        };
        self.settle(number, turn);
    }

    fn settle(self: &Rc<Self>, number: u64, turn: Turn) {
        match turn {
            Turn::Wait => {}
            Turn::Stall => self.open_after(number, self.config.faults.stall_for),
            Turn::Over(after) => {
                let Some(live) = self.live.borrow_mut().remove(&number) else { return };
                if !live.served() {
                    self.engine.borrow_mut().cancel(number);
                }
                live.leave(after);
            }
        }
    }

    /// Opens a request's gate after a while, or now.
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
