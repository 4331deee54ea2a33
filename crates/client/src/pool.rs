//! The connections of one lane to one target.
//!
//! ```text
//! HTTP/1.1   a request has a connection to itself and gives it back; the most recently used goes out first
//! HTTP/2     requests share a connection, up to what the server allows and STREAMS; then another one is opened
//! ```
//! While a connection is being opened that several may share, those that it will have room for wait for it.

use crate::connect::{Dialer, OpenConnection, REMEDY};
use crate::counters::Gauges;
use crate::http::late;
use crate::http1::{Connection, Scratch};
use crate::pool::lease::{Carrier, Shared, Wire};
use crate::stalls::{Overrun, overrun};
pub use lease::{Broken, Lease, STREAMS};
use llmscen_core::outcome::{Failure, FailureKind};
use llmscen_core::target::Pool as Policy;
use llmscen_core::units::Nanos;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Notify;
use tokio::task::spawn_local;

mod lease;

/// After so long without a request an idle connection is closed: a load that has fallen must not hold the server's sockets.
/// Longer than the pause between two bursts of most loads, so that these find their connections open.
const UNUSED: Nanos = Nanos::from_millis(60_000);

/// All connections of a lane to a target.
pub struct Pool {
    /// HTTP/1.1: those that wait for their next request, the most recently used at the back.
    idle: RefCell<VecDeque<Lease>>,
    /// HTTP/2: all that are open.
    shared: RefCell<Vec<Rc<Shared>>>,
    traffic: Rc<Traffic>,
    dialer: Dialer,
    policy: Policy,
    connect_timeout: Nanos,
    gauges: Arc<Gauges>,
    ahead: Ahead,
    /// HTTP/1.1: what all connections read into.
    scratch: Scratch,
}

/// What goes on around the connections of a pool.
struct Traffic {
    /// Connections being opened, those among them whose server has not told its limit yet.
    opening: Cell<usize>,
    /// Requests that wait for one of these.
    waiting: Cell<usize>,
    /// Requests that a connection is expected to take.
    usual: Cell<usize>,
    /// Connections opened so far.
    opened: Cell<u64>,
    /// There is a new connection, or room on one, or one has failed.
    changed: Notify,
}

/// Counts one more for as long as it lives.
struct Count<'a>(&'a Cell<usize>);

impl<'a> Count<'a> {
    fn of(count: &'a Cell<usize>) -> Count<'a> {
        count.set(count.get() + 1);
        Count(count)
    }
}

impl Drop for Count<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get().saturating_sub(1));
    }
}

/// A connection is being opened for as long as it lives; its end is told to those that wait.
struct Opening(Rc<Traffic>);

impl Opening {
    fn of(traffic: &Rc<Traffic>) -> Opening {
        traffic.opening.set(traffic.opening.get() + 1);
        Opening(traffic.clone())
    }
}

impl Drop for Opening {
    fn drop(&mut self) {
        self.0.opening.set(self.0.opening.get().saturating_sub(1));
        self.0.changed.notify_waiters();
    }
}

impl Pool {
    /// An empty pool.
    pub fn new(dialer: Dialer, policy: Policy, connect_timeout: Nanos, gauges: Arc<Gauges>) -> Pool {
        let traffic = Traffic {
            opening: Cell::new(0),
            waiting: Cell::new(0),
            usual: Cell::new(STREAMS),
            opened: Cell::new(0),
            changed: Notify::new(),
        };
        let (idle, shared, ahead, scratch) = Default::default();
        Pool { idle, shared, traffic: Rc::new(traffic), dialer, policy, connect_timeout, gauges, ahead, scratch }
    }

    /// Leave to send a request, on a connection that is open or on a new one. Must be called on a lane: a connection
    /// becomes a task of its own there.
    pub async fn lease(&self) -> Result<Lease, Failure> {
        self.in_time(self.find(None)).await
    }

    /// The same, but on a connection that was opened after this call: those that stand may all be stale.
    pub async fn lease_fresh(&self) -> Result<Lease, Failure> {
        self.in_time(self.find(Some(self.traffic.opened.get()))).await
    }

    /// Opens a connection of its own, and waits until the server has shown that it speaks HTTP/2 where that is expected.
    pub async fn reach(&self) -> Result<(), Failure> {
        let reached = async {
            match self.open().await?.proof().await {
                true => Ok(()),
                false => Err(no_h2("the connection ended without its settings").at("connecting")),
            }
        };
        self.in_time(reached).await
    }

    /// The failure of a request that got no HTTP back, with what is known of the server.
    pub async fn named(&self, failure: Failure) -> Failure {
        self.dialer.named(failure).await
    }

    /// Takes a connection back for the next request, where connections are kept and this one is still open.
    pub fn give_back(&self, mut lease: Lease) {
        if self.policy != Policy::PerRequest && lease.is_free() {
            lease.reused = true;
            let now = lease.stamp.latest();
            self.idle.borrow_mut().push_back(lease);
            self.close_unused(now);
        }
    }

    /// Closes the connections that no request has needed for [`UNUSED`] before `now`. A task of its own does it: no request
    /// waits for the system calls.
    fn close_unused(&self, now: Nanos) {
        let mut idle = self.idle.borrow_mut();
        let old = |lease: &Lease| now.since(lease.stamp.latest()) > UNUSED;
        if !idle.front().is_some_and(old) {
            return;
        }
        let kept = idle.partition_point(old);
        let unused: Vec<Lease> = idle.drain(..kept).collect();
        tokio::task::spawn_local(async move {
            for lease in unused {
                drop(lease);
                tokio::task::yield_now().await;
            }
        });
    }

    async fn in_time<T>(&self, step: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
        let (limit, began) = (Duration::from(self.connect_timeout), Instant::now());
        let late = |overrun: Overrun| {
            let why = format!("no connection within {limit:?}{}", self.dialer.doubt());
            late(overrun, FailureKind::TimeoutConnect, &why).at("connecting")
        };
        tokio::select! {
            biased;
            done = step => done,
            overrun = overrun(&self.gauges.stalls, limit, || began) => Err(late(overrun)),
        }
    }

    async fn find(&self, since: Option<u64>) -> Result<Lease, Failure> {
        if self.policy == Policy::PerRequest {
            return Box::pin(self.open()).await;
        }
        loop {
            let change = self.traffic.changed.notified();
            if let Some(lease) = self.standing(since) {
                return Ok(lease);
            }
            if since.is_none() && self.ahead.wait().await {
                continue;
            }
            let coming = self.traffic.opening.get().saturating_mul(self.traffic.usual.get());
            if !self.dialer.may_share() || coming <= self.traffic.waiting.get() {
                // What opens a connection is large, and rare: a call that waits for its tokens must not carry it along.
                let lease = Box::pin(self.open()).await?;
                if let Carrier::Stream(_, place, _) = &lease.carrier {
                    self.shared.borrow_mut().push(place.shared.clone());
                }
                return Ok(lease);
            }
            let _waits = Count::of(&self.traffic.waiting);
            change.await;
        }
    }

    /// A connection with room that is open already; with `since`, only one of that number or a later one.
    fn standing(&self, since: Option<u64>) -> Option<Lease> {
        let mut shared = self.shared.borrow_mut();
        shared.retain(|one| !one.is_over());
        let new_enough = |one: &&Rc<Shared>| since.is_none_or(|since| one.number >= since);
        if let Some(one) = shared.iter().filter(new_enough).find(|one| one.streams.get() < one.wire.limit()) {
            return Some(Lease::stream(one, &self.traffic, true));
        }
        if since.is_some() {
            return None;
        }
        let mut idle = self.idle.borrow_mut();
        std::iter::from_fn(|| idle.pop_back()).find_map(|mut lease| lease.is_open().then_some(lease))
    }

    /// A new connection, which no other request knows of.
    async fn open(&self) -> Result<Lease, Failure> {
        let opening = Opening::of(&self.traffic);
        let line = self.dialer.dial().await?;
        let number = self.traffic.opened.get();
        self.traffic.opened.set(number + 1);
        match line.h2 {
            true => self.open_shared(line, number, opening).await,
            false => {
                let OpenConnection { transport, stamp, heard, .. } = line;
                Ok(Lease::whole(Connection::new(transport, self.scratch.clone()), stamp, heard))
            }
        }
    }

    /// The first request goes out at once, as every client does it; others wait until the server has told its limit.
    async fn open_shared(&self, line: OpenConnection, number: u64, opening: Opening) -> Result<Lease, Failure> {
        let traffic = self.traffic.clone();
        let settled = move |wire: &Wire| {
            if wire.has_settled() {
                traffic.usual.set(wire.limit().max(1));
            }
            drop(opening);
        };
        let shared = Rc::new(Shared::begin(line, number, settled).await.map_err(unopened)?);
        Ok(Lease::stream(&shared, &self.traffic, false))
    }
}

fn unopened(error: hyper::Error) -> Failure {
    Failure::new(FailureKind::Connect, error.to_string()).at("connecting")
}

/// The failure of a connection on which the server has not shown that it speaks HTTP/2.
pub(super) fn no_h2(why: &str) -> Failure {
    Failure::new(FailureKind::Connect, format!("the server does not seem to speak HTTP/2 ({why}); {REMEDY}"))
}

/// Connections of a lane that are opened at a time: a server's queue of those that it has not accepted yet is short.
const ABREAST: u64 = 128;

/// What is being opened ahead.
#[derive(Default)]
pub(super) struct Ahead {
    /// Not begun yet.
    left: Cell<u64>,
    /// Not begun, or not open yet.
    coming: Cell<usize>,
    /// Requests that wait for one of these.
    waiting: Cell<usize>,
    /// One came, or will not come.
    came: Notify,
}

impl Pool {
    /// Begins to open so many connections, where each request of the pool needs one to itself and they are kept. What
    /// fails is not told: the request that needs the connection will.
    pub fn open_ahead(self: &Rc<Self>, count: u64) {
        if self.policy != Policy::KeepAlive || self.dialer.may_share() {
            return;
        }
        self.ahead.left.set(count);
        self.ahead.coming.set(count as usize);
        for _ in 0..count.min(ABREAST) {
            let pool = self.clone();
            spawn_local(async move { while pool.one_ahead().await {} });
        }
    }

    /// Whether there was one to open, and it was opened.
    async fn one_ahead(&self) -> bool {
        let Some(left) = self.ahead.left.get().checked_sub(1) else { return false };
        self.ahead.left.set(left);
        let opened = self.in_time(Box::pin(self.open())).await;
        // Not given back: nothing was sent on it, so that it is as new as one that its request opened.
        let stands = opened.map(|lease| self.idle.borrow_mut().push_back(lease));
        self.ahead.one_less(1);
        match stands {
            Ok(()) => true,
            Err(_) => {
                self.ahead.one_less(self.ahead.left.take() as usize);
                self.ahead.came.notify_waiters();
                false
            }
        }
    }
}

impl Ahead {
    fn one_less(&self, by: usize) {
        self.coming.set(self.coming.get().saturating_sub(by));
        self.came.notify_one();
    }

    /// Waits for a change, where a connection is coming that no other request waits for; else returns false at once.
    pub(super) async fn wait(&self) -> bool {
        if self.coming.get() <= self.waiting.get() {
            return false;
        }
        let _waits = Count::of(&self.waiting);
        self.came.notified().await;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;
    use crate::route::Route;
    use bytes::Bytes;
    use http::Request;
    use llmscen_core::target::HttpVersion;
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// A server that counts the connections that are open.
    fn counting() -> (String, Arc<AtomicUsize>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (url, open) = (format!("http://{}/v1", listener.local_addr().unwrap()), Arc::new(AtomicUsize::new(0)));
        let count = open.clone();
        std::thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                count.fetch_add(1, Ordering::SeqCst);
                let count = count.clone();
                std::thread::spawn(move || {
                    let mut bytes = [0; 4096];
                    while stream.read(&mut bytes).is_ok_and(|read| read > 0) {
                        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").unwrap();
                    }
                    count.fetch_sub(1, Ordering::SeqCst);
                });
            }
        });
        (url, open)
    }

    #[test]
    fn connections_that_the_load_no_longer_needs_are_closed() {
        let (url, open) = counting();
        let opened = async |count: usize| {
            let until = Instant::now() + Duration::from_secs(60);
            while open.load(Ordering::SeqCst) != count && Instant::now() < until {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            open.load(Ordering::SeqCst)
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        tokio::task::LocalSet::new().block_on(&runtime, async {
            let route = Route::new(&url, &Default::default(), &Default::default()).unwrap();
            // The burst was at time zero, longer ago than connections are kept.
            let past = Instant::now().checked_sub(Duration::from_nanos(UNUSED.0) + Duration::from_secs(5)).unwrap();
            let dialer = Dialer::new(route, HttpVersion::Http1, Clock::starting(past));
            let pool = Pool::new(dialer, Policy::KeepAlive, Nanos::from_millis(60_000), Arc::default());
            let mut burst = Vec::new();
            for _ in 0..50 {
                burst.push(pool.lease().await.unwrap());
            }
            burst.into_iter().for_each(|lease| pool.give_back(lease));
            assert_eq!(opened(50).await, 50);
            let mut few = Vec::new();
            for _ in 0..4 {
                let mut lease = pool.lease().await.unwrap();
                lease.send(Request::post("/v1").body(Bytes::new()).unwrap()).await.unwrap();
                few.push(lease);
            }
            few.into_iter().for_each(|lease| pool.give_back(lease));
            assert_eq!((opened(4).await, pool.idle.borrow().len()), (4, 4));
        });
    }
}

#[cfg(test)]
mod preconnect_tests {
    use crate::exchange::tests::engine;
    use llmscen_core::call::Call;
    use llmscen_core::outcome::{FailureKind, Phase};
    use llmscen_core::units::Nanos;
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Arc, Barrier};

    const ANSWER: &str = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 64\r\n\r\n\
        {\"id\":\"r\",\"choices\":[{\"index\":0,\"message\":{\"content\":\"hello\"}}]}";

    fn in_a_lane(work: impl Future<Output = ()>) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        tokio::task::LocalSet::new().block_on(&runtime, work);
    }

    #[test]
    fn requests_find_the_connections_that_were_opened_for_them_and_only_those_beyond_open_their_own() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/v1", listener.local_addr().unwrap());
        let (opened, together) = (Arc::new(AtomicUsize::new(0)), Arc::new(Barrier::new(4)));
        let counted = opened.clone();
        std::thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                counted.fetch_add(1, Ordering::SeqCst);
                let together = together.clone();
                std::thread::spawn(move || {
                    let mut bytes = [0; 4096];
                    while stream.read(&mut bytes).is_ok_and(|read| read > 0) {
                        // All four requests are in flight at once.
                        together.wait();
                        stream.write_all(ANSWER.as_bytes()).unwrap();
                    }
                });
            }
        });
        in_a_lane(async {
            let http = engine(&url);
            http.open_ahead(3);
            while opened.load(Ordering::SeqCst) < 3 {
                tokio::task::yield_now().await;
            }
            let call = |seq| http.call(Call { seq, ..Call::default() }, Nanos::ZERO, Phase::Measured, std::future::pending());
            let (a, b, c, d) = tokio::join!(call(0), call(1), call(2), call(3));
            for one in [a, b, c, d] {
                assert_eq!(one.outcome.end.map(|_| one.outcome.reconnects), Ok(0));
            }
            assert_eq!(opened.load(Ordering::SeqCst), 4);
        });
    }

    #[test]
    fn where_none_can_be_opened_the_request_says_why() {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        in_a_lane(async {
            let http = engine(&format!("http://127.0.0.1:{port}/v1"));
            http.open_ahead(300);
            let finished = http.call(Call::default(), Nanos::ZERO, Phase::Measured, std::future::pending()).await;
            assert_eq!(finished.outcome.end.map_err(|failure| failure.kind), Err(FailureKind::Connect));
        });
    }
}
