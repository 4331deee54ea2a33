//! The connections of one worker to one target.
//!
//! ```text
//! HTTP/1.1   a request uses a connection alone and returns it; the most recently used one is taken first
//! WebSocket  as HTTP/1.1, but the turns of a session use a connection of their own
//! HTTP/2     requests share a connection up to STREAMS and the server's limit; then another one is opened
//! ```
//! While an HTTP/2 connection is being opened, as many requests wait for it as it is expected to take.

use crate::connect::{Dialer, HTTP2_REMEDY, OpenConnection};
use crate::counters::LiveCounters;
use crate::http1::{Connection, ReadBuffer};
use crate::pool::lease::{Carrier, Http2Driver, SharedConnection};
use crate::stalls::{Overrun, overrun, timeout_failure};
use crate::websocket::{Handshake, Upgrade};
pub use lease::{ExchangeError, Lease, STREAMS};
use llmscen_core::outcome::{Failure, FailureKind};
use llmscen_core::target::Pool as Policy;
use llmscen_core::units::Nanos;
use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Notify;
use tokio::task::spawn_local;

mod lease;

/// Idle connections are closed after this time, so that a decreasing load frees the server's sockets. It is longer
/// than the pause between bursts of most loads, so that these reuse their connections.
const IDLE_TIMEOUT: Nanos = Nanos::from_millis(60_000);

/// All connections of a worker to a target.
pub struct Pool {
    /// HTTP/1.1: idle connections, the most recently used at the back.
    idle: RefCell<VecDeque<Lease>>,
    /// WebSocket: idle connections of sessions.
    of_sessions: RefCell<HashMap<u64, Vec<Lease>>>,
    websocket: Option<WebSocketPolicy>,
    /// HTTP/2: all open connections.
    shared: RefCell<Vec<Rc<SharedConnection>>>,
    state: Rc<PoolState>,
    dialer: Dialer,
    policy: Policy,
    connect_timeout: Nanos,
    gauges: Arc<LiveCounters>,
    preconnects: Preconnects,
    /// HTTP/1.1: the read buffer of all connections.
    buffer: ReadBuffer,
}

/// How WebSockets are opened and used.
pub(super) struct WebSocketPolicy {
    pub upgrade: Upgrade,
    /// The server keeps the conversation with the connection, so no other session may use it.
    pub keeps_conversation: bool,
}

/// The turn that needs a WebSocket.
#[derive(Clone, Copy, Debug)]
pub struct SessionTurn {
    /// Number of the session.
    pub session: u64,
    /// It is the first turn of the session that is sent.
    pub begins: bool,
}

/// Counts around the connections of a pool.
struct PoolState {
    /// Connections being opened, including HTTP/2 ones whose settings have not arrived.
    opening: Cell<usize>,
    /// Requests that wait for one of these.
    waiting: Cell<usize>,
    /// Requests that a connection is expected to take.
    expected_streams: Cell<usize>,
    /// Connections opened so far.
    opened: Cell<u64>,
    /// A connection was opened, has a free stream, or failed.
    changed: Rc<Notify>,
}

/// Increments a count while it exists.
struct CountGuard<'a>(&'a Cell<usize>);

impl<'a> CountGuard<'a> {
    fn new(count: &'a Cell<usize>) -> CountGuard<'a> {
        count.set(count.get() + 1);
        CountGuard(count)
    }
}

impl Drop for CountGuard<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get().saturating_sub(1));
    }
}

/// Exists while a connection is being opened, and wakes waiting requests at its end.
struct OpeningGuard(Rc<PoolState>);

impl OpeningGuard {
    fn new(state: &Rc<PoolState>) -> OpeningGuard {
        state.opening.set(state.opening.get() + 1);
        OpeningGuard(state.clone())
    }
}

impl Drop for OpeningGuard {
    fn drop(&mut self) {
        self.0.opening.set(self.0.opening.get().saturating_sub(1));
        self.0.changed.notify_waiters();
    }
}

impl Pool {
    /// An empty pool.
    pub(super) fn new(
        dialer: Dialer,
        policy: Policy,
        websocket: Option<WebSocketPolicy>,
        connect_timeout: Nanos,
        gauges: Arc<LiveCounters>,
    ) -> Pool {
        let state = PoolState {
            opening: Cell::new(0),
            waiting: Cell::new(0),
            expected_streams: Cell::new(STREAMS),
            opened: Cell::new(0),
            changed: Rc::default(),
        };
        Pool {
            idle: RefCell::default(),
            of_sessions: RefCell::default(),
            websocket,
            shared: RefCell::default(),
            state: Rc::new(state),
            dialer,
            policy,
            connect_timeout,
            gauges,
            preconnects: Preconnects::default(),
            buffer: ReadBuffer::default(),
        }
    }

    /// A lease on a connection that is open already; None if the request needs a new one.
    ///
    /// # Errors
    /// The server keeps the conversation of the session with a connection that is closed.
    pub fn lease_open(&self, turn: Option<SessionTurn>) -> Result<Option<Lease>, Failure> {
        let Some(SessionTurn { session, begins }) = turn else {
            return Ok(self.lease_idle());
        };
        if let Some(lease) = self.find_of_session(session) {
            return Ok(Some(lease));
        }
        if !begins && self.keeps_conversation() {
            let why =
                "the server closed the connection of the session, and with it the conversation";
            return Err(Failure::new(FailureKind::Connect, why).at("before sending"));
        }
        Ok(self.lease_idle())
    }

    fn lease_idle(&self) -> Option<Lease> {
        (self.policy != Policy::PerRequest)
            .then(|| self.find_open(None))
            .flatten()
    }

    /// Whether a connection must not be replaced during a session.
    pub fn keeps_conversation(&self) -> bool {
        let websocket = self.websocket.as_ref();
        websocket.is_some_and(|websocket| websocket.keeps_conversation)
    }

    fn find_of_session(&self, session: u64) -> Option<Lease> {
        let mut of_sessions = self.of_sessions.borrow_mut();
        let leases = of_sessions.get_mut(&session)?;
        std::iter::from_fn(|| leases.pop()).find_map(|mut lease| lease.is_open().then_some(lease))
    }

    /// Releases the connections of a session that is over.
    pub fn end_session(&self, session: u64) {
        let released = self.of_sessions.borrow_mut().remove(&session);
        for lease in released.into_iter().flatten() {
            self.give_back(lease, None);
        }
    }

    /// A lease on a new connection for a request over HTTP.
    pub async fn lease_http(&self) -> Result<Lease, Failure> {
        match self.websocket {
            Some(_) => self.with_connect_timeout(self.open_http()).await,
            None => self.lease_fresh().await,
        }
    }

    /// A lease on an open or a new connection. Must be called on a worker thread, where an HTTP/2 connection spawns a
    /// task.
    pub async fn lease(&self) -> Result<Lease, Failure> {
        self.with_connect_timeout(self.acquire(None)).await
    }

    /// As [`Pool::lease`], on a connection opened after this call: the existing ones may all be stale.
    pub async fn lease_fresh(&self) -> Result<Lease, Failure> {
        self.with_connect_timeout(self.acquire(Some(self.state.opened.get())))
            .await
    }

    /// Opens a new connection; if HTTP/2 is expected, also waits for the settings of the server.
    pub async fn check_reachable(&self) -> Result<(), Failure> {
        let check = async {
            match self.open_http().await?.confirm_version().await {
                true => Ok(()),
                false => Err(no_h2("the connection ended without its settings").at("connecting")),
            }
        };
        self.with_connect_timeout(check).await
    }

    /// See [`Dialer::explain_failure`].
    pub async fn explain_failure(&self, failure: Failure) -> Failure {
        self.dialer.explain_failure(failure).await
    }

    /// Takes a connection back for the next request, or for the next turn of `session`, if it can be reused.
    pub fn give_back(&self, mut lease: Lease, session: Option<u64>) {
        if self.policy != Policy::PerRequest && lease.is_free() {
            lease.reused = true;
            if let Some(session) = session {
                lease.start_idle();
                let mut of_sessions = self.of_sessions.borrow_mut();
                return of_sessions.entry(session).or_default().push(lease);
            }
            if self.keeps_conversation() {
                return;
            }
            lease.start_idle();
            let now = lease.socket_read.latest();
            self.idle.borrow_mut().push_back(lease);
            self.close_idle(now);
        }
    }

    /// Closes connections that were idle for [`IDLE_TIMEOUT`] at `now`, in a separate task: no request waits for the
    /// system calls.
    fn close_idle(&self, now: Nanos) {
        let mut idle = self.idle.borrow_mut();
        let is_expired = |lease: &Lease| now.since(lease.socket_read.latest()) > IDLE_TIMEOUT;
        if !idle.front().is_some_and(is_expired) {
            return;
        }
        let count = idle.partition_point(is_expired);
        let expired: Vec<Lease> = idle.drain(..count).collect();
        spawn_local(async move {
            for lease in expired {
                drop(lease);
                tokio::task::yield_now().await;
            }
        });
    }

    async fn with_connect_timeout<T>(
        &self,
        step: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, Failure> {
        let limit = Duration::from(self.connect_timeout);
        let began = Instant::now();
        let timed_out = |overrun: Overrun| {
            let why = format!(
                "no connection within {limit:?}{}",
                self.dialer.timeout_hint()
            );
            timeout_failure(overrun, FailureKind::TimeoutConnect, &why).at("connecting")
        };
        tokio::select! {
            biased;
            done = step => done,
            overrun = overrun(&self.gauges.stalls, limit, || began) => Err(timed_out(overrun)),
        }
    }

    /// With `since`, only a connection with this number or a later one.
    async fn acquire(&self, since: Option<u64>) -> Result<Lease, Failure> {
        if self.policy == Policy::PerRequest {
            return Box::pin(self.open()).await;
        }
        loop {
            let change = self.state.changed.notified();
            if let Some(lease) = self.find_open(since) {
                return Ok(lease);
            }
            if since.is_none() && self.preconnects.wait().await {
                continue;
            }
            let coming = self
                .state
                .opening
                .get()
                .saturating_mul(self.state.expected_streams.get());
            if !self.dialer.may_share() || coming <= self.state.waiting.get() {
                // Boxed: this future is rare and large, and would enlarge every waiting call.
                let lease = Box::pin(self.open()).await?;
                if let Carrier::Http2 { slot, .. } = &lease.carrier {
                    self.shared.borrow_mut().push(slot.connection.clone());
                }
                return Ok(lease);
            }
            let _waiting = CountGuard::new(&self.state.waiting);
            change.await;
        }
    }

    /// A lease on an open connection with a free stream, or an idle one.
    fn find_open(&self, since: Option<u64>) -> Option<Lease> {
        let mut shared = self.shared.borrow_mut();
        shared.retain(|connection| !connection.is_closed());
        let is_new_enough = |connection: &&Rc<SharedConnection>| {
            since.is_none_or(|since| connection.number >= since)
        };
        let mut candidates = shared.iter().filter(is_new_enough);
        if let Some(connection) =
            candidates.find(|connection| connection.streams.get() < connection.driver.limit())
        {
            return Some(Lease::http2(connection, &self.state.changed, true));
        }
        if since.is_some() {
            return None;
        }
        let mut idle = self.idle.borrow_mut();
        std::iter::from_fn(|| idle.pop_back())
            .find_map(|mut lease| lease.is_open().then_some(lease))
    }

    /// A new connection that only this lease uses.
    async fn open(&self) -> Result<Lease, Failure> {
        let lease = self.open_http().await?;
        let Some(websocket) = &self.websocket else {
            return Ok(lease);
        };
        let Carrier::Http1(connection) = lease.carrier else {
            return Ok(lease);
        };
        let carrier = match websocket.upgrade.run(connection).await? {
            Handshake::Accepted(socket) => Carrier::WebSocket(Box::new(socket)),
            Handshake::Refused(connection, response) => {
                Carrier::Refused(Box::new((connection, response)))
            }
        };
        Ok(Lease { carrier, ..lease })
    }

    async fn open_http(&self) -> Result<Lease, Failure> {
        let opening = OpeningGuard::new(&self.state);
        let open = self.dialer.dial().await?;
        let number = self.state.opened.get();
        self.state.opened.set(number + 1);
        if open.h2 {
            return self.open_shared(open, number, opening).await;
        }
        let OpenConnection {
            transport,
            socket_read,
            data_read,
            ..
        } = open;
        let carrier = Carrier::Http1(Connection::new(transport, self.buffer.clone()));
        Ok(Lease {
            carrier,
            socket_read,
            data_read,
            reused: false,
        })
    }

    /// The first request is sent at once, as in every client; others wait for the settings of the server.
    async fn open_shared(
        &self,
        open: OpenConnection,
        number: u64,
        opening: OpeningGuard,
    ) -> Result<Lease, Failure> {
        let state = self.state.clone();
        let on_settings = move |driver: &Http2Driver| {
            if driver.has_settings() {
                state.expected_streams.set(driver.limit().max(1));
            }
            drop(opening);
        };
        let connection = SharedConnection::start(open, number, on_settings).await;
        let connection = connection.map_err(|error| {
            Failure::new(FailureKind::Connect, error.to_string()).at("connecting")
        })?;
        Ok(Lease::http2(
            &Rc::new(connection),
            &self.state.changed,
            false,
        ))
    }

    /// Starts to open `count` connections, if requests use connections alone and these are kept. Failures are not
    /// reported here: the request that needs the connection reports its own.
    pub fn open_ahead(self: &Rc<Self>, count: u64) {
        if self.policy != Policy::KeepAlive || self.dialer.may_share() {
            return;
        }
        self.preconnects.queued.set(count);
        self.preconnects.coming.set(count as usize);
        for _ in 0..count.min(PARALLEL_PRECONNECTS) {
            let pool = self.clone();
            spawn_local(async move { while pool.preconnect().await {} });
        }
    }

    /// Opens the next queued connection; false if none is left or it failed.
    async fn preconnect(&self) -> bool {
        let Some(queued) = self.preconnects.queued.get().checked_sub(1) else {
            return false;
        };
        self.preconnects.queued.set(queued);
        let opened = self.with_connect_timeout(Box::pin(self.open())).await;
        // Not `give_back`: nothing was sent on it, so it does not count as reused.
        // A refusal is for the request that needs the connection.
        let opened = opened.ok().filter(|lease| !lease.is_refused());
        let opened = opened
            .map(|mut lease| {
                lease.start_idle();
                self.idle.borrow_mut().push_back(lease);
            })
            .is_some();
        self.preconnects.finish(1);
        if !opened {
            self.preconnects
                .finish(self.preconnects.queued.take() as usize);
            self.preconnects.changed.notify_waiters();
        }
        opened
    }
}

/// The failure of a connection without HTTP/2 settings from the server.
pub(super) fn no_h2(why: &str) -> Failure {
    Failure::new(
        FailureKind::Connect,
        format!("the server does not seem to support HTTP/2 ({why}); {HTTP2_REMEDY}"),
    )
}

/// Connections that a worker opens in parallel: the accept queue of a server is short.
const PARALLEL_PRECONNECTS: u64 = 128;

/// Connections that are opened before their requests.
#[derive(Default)]
struct Preconnects {
    /// Not started yet.
    queued: Cell<u64>,
    /// Not open yet.
    coming: Cell<usize>,
    /// Requests that wait for one of these.
    waiting: Cell<usize>,
    /// One was opened or failed.
    changed: Notify,
}

impl Preconnects {
    fn finish(&self, count: usize) {
        self.coming.set(self.coming.get().saturating_sub(count));
        self.changed.notify_one();
    }

    /// Waits for a change if a connection is coming for which no other request waits; otherwise returns false at once.
    async fn wait(&self) -> bool {
        if self.coming.get() <= self.waiting.get() {
            return false;
        }
        let _waiting = CountGuard::new(&self.waiting);
        self.changed.notified().await;
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

    /// A server that counts open connections.
    fn counting_server() -> (String, Arc<AtomicUsize>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/v1", listener.local_addr().unwrap());
        let open = Arc::new(AtomicUsize::new(0));
        let count = open.clone();
        std::thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                count.fetch_add(1, Ordering::SeqCst);
                let count = count.clone();
                std::thread::spawn(move || {
                    let mut bytes = [0; 4096];
                    while stream.read(&mut bytes).is_ok_and(|read| read > 0) {
                        stream
                            .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
                            .unwrap();
                    }
                    count.fetch_sub(1, Ordering::SeqCst);
                });
            }
        });
        (url, open)
    }

    #[test]
    fn connections_that_a_lower_load_does_not_need_are_closed() {
        let (url, open) = counting_server();
        let open_count = async |expected: usize| {
            let until = Instant::now() + Duration::from_secs(60);
            while open.load(Ordering::SeqCst) != expected && Instant::now() < until {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            open.load(Ordering::SeqCst)
        };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        tokio::task::LocalSet::new().block_on(&runtime, async {
            let route = Route::new(&url, &Default::default(), &Default::default()).unwrap();
            // The burst is at time zero of a clock that started longer ago than the idle timeout.
            let past = Instant::now()
                .checked_sub(Duration::from_nanos(IDLE_TIMEOUT.0) + Duration::from_secs(5))
                .unwrap();
            let dialer = Dialer::new(route, HttpVersion::Http1, Clock::new(past));
            let pool = Pool::new(
                dialer,
                Policy::KeepAlive,
                None,
                Nanos::from_millis(60_000),
                Arc::default(),
            );
            let mut burst = Vec::new();
            for _ in 0..50 {
                burst.push(pool.lease().await.unwrap());
            }
            burst
                .into_iter()
                .for_each(|lease| pool.give_back(lease, None));
            assert_eq!(open_count(50).await, 50);
            let mut few = Vec::new();
            for _ in 0..4 {
                let mut lease = pool.lease().await.unwrap();
                lease
                    .send(Request::post("/v1").body(Bytes::new()).unwrap(), || {})
                    .await
                    .unwrap();
                few.push(lease);
            }
            few.into_iter()
                .for_each(|lease| pool.give_back(lease, None));
            assert_eq!((open_count(4).await, pool.idle.borrow().len()), (4, 4));
        });
    }
}

#[cfg(test)]
mod preconnect_tests {
    use crate::exchange::tests::client;
    use llmscen_core::outcome::{FailureKind, Phase};
    use llmscen_core::request::PreparedRequest;
    use llmscen_core::units::Nanos;
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Arc, Barrier};

    const ANSWER: &str = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 64\r\n\r\n\
        {\"id\":\"r\",\"choices\":[{\"index\":0,\"message\":{\"content\":\"hello\"}}]}";

    fn run_on_worker(work: impl Future<Output = ()>) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        tokio::task::LocalSet::new().block_on(&runtime, work);
    }

    #[test]
    fn requests_use_preconnected_connections_before_they_open_new_ones() {
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
        run_on_worker(async {
            let http = client(&url);
            http.open_ahead(3);
            while opened.load(Ordering::SeqCst) < 3 {
                tokio::task::yield_now().await;
            }
            let call = |seq| {
                http.call(
                    PreparedRequest {
                        seq,
                        ..PreparedRequest::default()
                    },
                    Nanos::ZERO,
                    Phase::Measured,
                    std::future::pending(),
                )
            };
            let (a, b, c, d) = tokio::join!(call(0), call(1), call(2), call(3));
            for finished in [a, b, c, d] {
                assert_eq!(
                    finished.outcome.end.map(|_| finished.outcome.reconnects),
                    Ok(0)
                );
            }
            assert_eq!(opened.load(Ordering::SeqCst), 4);
        });
    }

    #[test]
    fn a_failed_preconnect_is_reported_by_the_request() {
        let port = TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap()
            .port();
        run_on_worker(async {
            let http = client(&format!("http://127.0.0.1:{port}/v1"));
            http.open_ahead(300);
            let finished = http
                .call(
                    PreparedRequest::default(),
                    Nanos::ZERO,
                    Phase::Measured,
                    std::future::pending(),
                )
                .await;
            assert_eq!(
                finished.outcome.end.map_err(|failure| failure.kind),
                Err(FailureKind::Connect)
            );
        });
    }
}
