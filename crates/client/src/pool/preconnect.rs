//! Connections that are opened before they are needed.
//!
//! ```text
//! left ──► being opened (ABREAST at a time) ──► idle
//!   └──────────── coming ─────────────┘   a request that finds none idle waits for one that is coming, where not all of
//!                                         them are waited for; else, and where one fails, it opens its own
//! ```

use crate::pool::{Count, Pool};
use llmscen_core::target::Pool as Policy;
use std::cell::Cell;
use std::rc::Rc;
use tokio::sync::Notify;
use tokio::task::spawn_local;

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
