//! An HTTP/2 server that follows a script.

use bytes::Bytes;
use h2::Reason;
use h2::server::{Builder, SendResponse};
use http::{HeaderMap, Request, Response};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Notify;
use tokio::task::LocalSet;
use tokio_rustls::TlsAcceptor;

/// Reaction of the server to a request.
#[derive(Clone)]
pub enum Act {
    /// The head of a good response, with a `content-encoding`.
    Head(&'static str),
    /// A frame of the body.
    Data(Vec<u8>),
    /// A pause in milliseconds.
    Wait(u64),
    /// Ends the body.
    End,
    /// Resets the stream.
    Reset(Reason),
    /// Closes the connection without a word.
    HangUp,
    /// Takes no new streams on this connection, and closes it when the open ones are done.
    GoAway,
}

/// Observations of the server.
#[derive(Default)]
pub struct Seen {
    pub connections: AtomicUsize,
    pub closed: AtomicUsize,
    pub requests: AtomicUsize,
    /// The most requests at a time on one connection.
    pub most: AtomicUsize,
    /// URI and headers of each request.
    pub heads: Mutex<Vec<(String, HeaderMap)>>,
    /// What each body could carry before this side let more come.
    pub windows: Mutex<Vec<usize>>,
}

impl Seen {
    pub fn count(&self) -> (usize, usize) {
        (
            self.connections.load(Ordering::SeqCst),
            self.requests.load(Ordering::SeqCst),
        )
    }

    /// Requests to this path: without those that ask which engine the server is.
    pub fn requests_to(&self, path: &str) -> usize {
        let heads = self.heads.lock().unwrap();
        heads.iter().filter(|(uri, _)| uri.ends_with(path)).count()
    }
}

pub struct Server {
    pub addr: SocketAddr,
    pub seen: Arc<Seen>,
}

type Script = dyn Fn(usize) -> Vec<Act> + Send + Sync;

impl Server {
    /// A server that allows `streams` per connection and handles its n-th request by `script(n)`.
    pub fn start(
        streams: u32,
        tls: Option<Arc<rustls::ServerConfig>>,
        script: impl Fn(usize) -> Vec<Act> + Send + Sync + 'static,
    ) -> Server {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let server = Server {
            addr: listener.local_addr().unwrap(),
            seen: Arc::default(),
        };
        let (seen, script): (_, Arc<Script>) = (server.seen.clone(), Arc::new(script));
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            LocalSet::new().block_on(&runtime, async move {
                let listener = tokio::net::TcpListener::from_std(listener).unwrap();
                while let Ok((socket, _)) = listener.accept().await {
                    socket.set_nodelay(true).unwrap();
                    seen.connections.fetch_add(1, Ordering::SeqCst);
                    let (seen, script, tls) = (seen.clone(), script.clone(), tls.clone());
                    tokio::task::spawn_local(async move {
                        match tls {
                            None => serve(socket, streams, seen.clone(), script).await,
                            Some(tls) => match TlsAcceptor::from(tls).accept(socket).await {
                                Ok(session) => serve(session, streams, seen.clone(), script).await,
                                Err(_) => None,
                            },
                        };
                        seen.closed.fetch_add(1, Ordering::SeqCst);
                    });
                }
            });
        });
        server
    }

    pub fn url(&self) -> String {
        format!("http://{}/v1/chat/completions", self.addr)
    }
}

/// Serves one connection; `None` if it failed, which is not an error of the server.
async fn serve<T: AsyncRead + AsyncWrite + Unpin>(
    io: T,
    streams: u32,
    seen: Arc<Seen>,
    script: Arc<Script>,
) -> Option<()> {
    let mut builder = Builder::new();
    builder
        .max_concurrent_streams(streams)
        .max_send_buffer_size(64 << 20);
    let mut connection = builder.handshake::<_, Bytes>(io).await.ok()?;
    let (hang_up, go_away, open) = (
        Rc::new(Notify::new()),
        Rc::new(Notify::new()),
        Rc::new(AtomicUsize::new(0)),
    );
    loop {
        let (request, respond) = tokio::select! {
            () = hang_up.notified() => return None,
            () = go_away.notified() => {
                connection.graceful_shutdown();
                continue;
            }
            accepted = connection.accept() => accepted?.ok()?,
        };
        let number = seen.requests.fetch_add(1, Ordering::SeqCst);
        seen.most
            .fetch_max(open.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        seen.heads
            .lock()
            .unwrap()
            .push((request.uri().to_string(), request.headers().clone()));
        let (acts, seen, open, signals) = (
            script(number),
            seen.clone(),
            open.clone(),
            (hang_up.clone(), go_away.clone()),
        );
        tokio::task::spawn_local(async move {
            let _ = perform(request, respond, acts, &seen, signals).await;
            open.fetch_sub(1, Ordering::SeqCst);
        });
    }
}

async fn perform(
    request: Request<h2::RecvStream>,
    mut respond: SendResponse<Bytes>,
    acts: Vec<Act>,
    seen: &Seen,
    (hang_up, go_away): (Rc<Notify>, Rc<Notify>),
) -> Result<(), h2::Error> {
    let mut body = request.into_body();
    while let Some(data) = body.data().await {
        body.flow_control().release_capacity(data?.len())?;
    }
    let mut stream = None;
    for act in acts {
        match (act, stream.as_mut()) {
            (Act::Head(coding), _) => {
                let mut head = Response::builder().header("content-type", "text/event-stream");
                if !coding.is_empty() {
                    head = head.header("content-encoding", coding);
                }
                let mut sending = respond.send_response(head.body(()).unwrap(), false)?;
                sending.reserve_capacity(1 << 30);
                seen.windows.lock().unwrap().push(sending.capacity());
                sending.reserve_capacity(0);
                stream = Some(sending);
            }
            (Act::Data(data), Some(stream)) => stream.send_data(data.into(), false)?,
            (Act::End, Some(stream)) => stream.send_data(Bytes::new(), true)?,
            (Act::Reset(reason), Some(stream)) => stream.send_reset(reason),
            (Act::Reset(reason), None) => respond.send_reset(reason),
            (Act::Wait(ms), _) => tokio::time::sleep(Duration::from_millis(ms)).await,
            (Act::HangUp, _) => {
                hang_up.notify_one();
                // Not even a reset.
                std::future::pending().await
            }
            (Act::GoAway, _) => go_away.notify_one(),
            (Act::Data(_) | Act::End, None) => panic!("a body needs a head"),
        }
    }
    Ok(())
}

/// One event of a stream.
pub fn event(data: &str) -> Act {
    Act::Data(format!("data: {data}\n\n").into_bytes())
}
