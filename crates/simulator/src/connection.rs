//! One client: its requests one after the other, and what each path answers.

use crate::apis::{self, Protocol};
use crate::generation::Refusal;
use crate::http::{self, Framing, Request, Unread};
use crate::live::After;
use crate::server::{Refused, Server};
use crate::socket::Socket;
use crate::truth::End;
use llmscen_core::units::Nanos;
use std::rc::Rc;
use std::time::Duration;
use tokio::net::TcpStream;

/// Bytes of a next request that are read while an answer is under way.
const AHEAD: usize = 64 << 10;
/// How long a client may go on sending what was refused, before the connection is cut under it.
const LINGER: Duration = Duration::from_secs(2);

/// Serves a connection until either side ends it.
pub(super) async fn serve(server: Rc<Server>, stream: TcpStream) {
    let mut connection =
        Connection { socket: Rc::new(Socket::new(stream, server.clock, server.config.faults.split)), buffer: Vec::new(), server };
    let after = loop {
        let after = match http::read(&connection.socket, &mut connection.buffer).await {
            Ok(request) => connection.answer(request).await,
            Err(Unread::Gone) => return,
            Err(Unread::Refused(status, message)) => {
                let mut out = Vec::new();
                http::json(&mut out, status, &apis::plain_error(&Refusal::new(status, message)), (None, true));
                connection.socket.send(&out);
                After::Close
            }
        };
        if after != After::Keep {
            break after;
        }
    };
    connection.end(after).await;
}

struct Connection {
    server: Rc<Server>,
    socket: Rc<Socket>,
    /// Read and not used yet.
    buffer: Vec<u8>,
}

impl Connection {
    async fn answer(&mut self, request: Request) -> After {
        if let (Some(target), "POST") = (apis::protocol_for(&request.path), request.method.as_str()) {
            return self.generate(target, &request).await;
        }
        self.socket.send(&self.page(&request));
        self.wind_up(request.close).await
    }

    /// The answer to everything but a generation.
    fn page(&self, request: &Request) -> Vec<u8> {
        let (mut out, about) = (Vec::new(), (None, request.close));
        match (request.method.as_str(), request.path.as_str()) {
            ("GET", "/v1/models") => http::json(&mut out, 200, &apis::models(), about),
            ("GET", "/health") => http::head(&mut out, 200, "text/plain", &Framing::Length(0), about),
            ("GET", "/metrics") => {
                let page = self.server.metrics();
                http::head(&mut out, 200, "text/plain; version=0.0.4; charset=utf-8", &Framing::Length(page.len()), about);
                out.extend_from_slice(page.as_bytes());
            }
            (method, path) => {
                let refusal = misdirected(method, path);
                let error = match apis::protocol_for(path) {
                    Some((protocol, _)) => protocol.error(&refusal, None),
                    None => apis::plain_error(&refusal),
                };
                http::json(&mut out, refusal.status, &error, about);
            }
        }
        out
    }

    async fn generate(&mut self, target: (&'static dyn Protocol, &'static str), request: &Request) -> After {
        match self.server.accept(target, request, &self.socket) {
            Ok((number, mut ended)) => loop {
                let ahead = self.buffer.len() < AHEAD;
                tokio::select! {
                    biased;
                    after = &mut ended => return self.settle(after.unwrap_or(After::Close)).await,
                    _ = self.socket.tend() => return self.gone(number),
                    read = self.socket.read(&mut self.buffer), if ahead => {
                        if !read.is_ok_and(|bytes| bytes > 0) {
                            return self.gone(number);
                        }
                    }
                }
            },
            Err(refused) => self.refuse(*refused, request.close).await,
        }
    }

    async fn refuse(&mut self, refused: Refused, close: bool) -> After {
        let Refused { id, entry, status, body } = refused;
        let pause = self.server.config.faults.slow_headers;
        if pause > Nanos::ZERO {
            tokio::time::sleep(pause.into()).await;
        }
        let mut out = Vec::new();
        http::json(&mut out, status, &body, (Some(&id), close));
        {
            let mut record = entry.lock();
            let sent = self.socket.send(&out);
            (record.headers_at, record.end_at) = (Some(sent.at), Some(sent.at));
            record.end = Some(End::Status(status));
        }
        self.wind_up(close).await
    }

    fn gone(&self, number: u64) -> After {
        self.server.cancel(number);
        After::Close
    }

    async fn wind_up(&self, close: bool) -> After {
        self.settle(if close { After::Close } else { After::Keep }).await
    }

    /// Sees the last bytes out.
    async fn settle(&self, after: After) -> After {
        match self.socket.drain().await {
            Ok(()) => after,
            Err(_) => After::Close,
        }
    }

    /// Ends the connection so that the client can read all that was sent, or resets it.
    async fn end(mut self, after: After) {
        if after == After::Reset {
            // Where this fails the client sees a plain close in mid-answer, which is a failure too.
            let _ = self.socket.reset();
            return;
        }
        if self.socket.drain().await.is_err() {
            return;
        }
        let Some(socket) = Rc::get_mut(&mut self.socket) else { return };
        if socket.shutdown().await.is_err() {
            return;
        }
        // A close with unread bytes resets the connection, and the client could lose the answer.
        let rest = async {
            while socket.read(&mut self.buffer).await.is_ok_and(|bytes| bytes > 0) {
                self.buffer.clear();
            }
        };
        let _ = tokio::time::timeout(LINGER, rest).await;
    }
}

/// Endpoints that take GET.
const PAGES: [&str; 3] = ["/v1/models", "/health", "/metrics"];

/// Why a request is for no endpoint, and which ones there are.
fn misdirected(method: &str, path: &str) -> Refusal {
    let method = method.chars().take(32).collect::<String>();
    let known = format!("POST {}; GET {}", apis::paths().collect::<Vec<_>>().join(", "), PAGES.join(", "));
    let (status, why) = match apis::protocol_for(path) {
        Some(_) => (405, format!("{path} takes POST, not {method}")),
        None if PAGES.contains(&path) => (405, format!("{path} takes GET, not {method}")),
        None => (404, format!("there is no {}", path.chars().take(200).collect::<String>())),
    };
    Refusal::new(status, format!("{why}; the endpoints are {known}"))
}
