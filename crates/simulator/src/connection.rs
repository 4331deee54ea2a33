//! One client connection: reads its requests in sequence and responds by path.

use crate::apis::{self, Protocol, Step};
use crate::generation::Refusal;
use crate::http::{self, Framing, Request, Unread};
use crate::live::After;
use crate::server::{Refused, Server};
use crate::socket::Socket;
use crate::truth::End;
use crate::websocket::{self, Received};
use llmscen_core::units::Nanos;
use serde_json::Value;
use std::rc::Rc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::sync::oneshot;

/// Maximum bytes of the next request that are read during a response.
const MAX_READ_AHEAD: usize = 64 << 10;
/// How long a client may continue to send a rejected request before the connection is reset.
const LINGER: Duration = Duration::from_secs(2);

/// Serves a connection until either side ends it.
pub(super) async fn serve(server: Rc<Server>, stream: TcpStream) {
    let mut connection = Connection {
        socket: Rc::new(Socket::new(
            stream,
            server.clock,
            server.config.faults.split,
        )),
        buffer: Vec::new(),
        server,
    };
    let after = loop {
        let after = match http::read(&connection.socket, &mut connection.buffer).await {
            Ok(request) => connection.answer(request).await,
            Err(Unread::Disconnected) => return,
            Err(Unread::Refused(status, message)) => {
                let mut out = Vec::new();
                http::json(
                    &mut out,
                    status,
                    &apis::plain_error(&Refusal::new(status, message)),
                    (None, true),
                );
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
    /// Bytes that were read and not used yet.
    buffer: Vec<u8>,
}

impl Connection {
    async fn answer(&mut self, request: Request) -> After {
        if websocket::is_upgrade(&request)
            && let Some(target) = apis::protocol_for(&request.path)
            && target.0.has_websocket()
        {
            return self.serve_websocket(target, request).await;
        }
        if let (Some(target), "POST") = (apis::protocol_for(&request.path), request.method.as_str())
        {
            return self.generate(target, &request).await;
        }
        self.socket.send(&self.respond(&request));
        self.finish_response(request.close).await
    }

    /// The response to every request other than a generation.
    fn respond(&self, request: &Request) -> Vec<u8> {
        let (mut out, about) = (Vec::new(), (None, request.close));
        match (request.method.as_str(), request.path.as_str()) {
            ("GET", "/v1/models") => http::json(&mut out, 200, &apis::models(), about),
            ("GET", "/health") => {
                http::head(&mut out, 200, "text/plain", &Framing::Length(0), about)
            }
            ("GET", "/metrics") => {
                let page = self.server.metrics();
                http::head(
                    &mut out,
                    200,
                    "text/plain; version=0.0.4; charset=utf-8",
                    &Framing::Length(page.len()),
                    about,
                );
                out.extend_from_slice(page.as_bytes());
            }
            ("POST", RESET_CACHE) => {
                self.server.reset_prefix_cache();
                http::head(&mut out, 200, "text/plain", &Framing::Length(0), about)
            }
            ("POST", START_PROFILE) => {
                self.server.start_profile();
                http::head(&mut out, 200, "text/plain", &Framing::Length(0), about)
            }
            ("POST", STOP_PROFILE) => {
                self.server.stop_profile();
                http::head(&mut out, 200, "text/plain", &Framing::Length(0), about)
            }
            (method, path) => {
                let refusal = unknown_endpoint(method, path);
                let error = match apis::protocol_for(path) {
                    Some((protocol, _)) => protocol.error(&refusal, None),
                    None => apis::plain_error(&refusal),
                };
                http::json(&mut out, refusal.status, &error, about);
            }
        }
        out
    }

    async fn generate(
        &mut self,
        target: (&'static dyn Protocol, &'static str),
        request: &Request,
    ) -> After {
        match self.server.accept(target, request, &self.socket) {
            Ok((number, ended)) => self.await_end(number, ended).await,
            Err(refused) => self.refuse(*refused, request.close).await,
        }
    }

    /// Waits for the end of a response, or of the client.
    async fn await_end(&mut self, number: u64, mut ended: oneshot::Receiver<After>) -> After {
        loop {
            let may_read = self.buffer.len() < MAX_READ_AHEAD;
            tokio::select! {
                biased;
                after = &mut ended => return self.finish_writes(after.unwrap_or(After::Close)).await,
                _ = self.socket.tend() => return self.cancel(number),
                read = self.socket.read(&mut self.buffer), if may_read => {
                    if !read.is_ok_and(|bytes| bytes > 0) {
                        return self.cancel(number);
                    }
                }
            }
        }
    }

    /// Opens a WebSocket and answers its messages in sequence.
    async fn serve_websocket(
        &mut self,
        target: (&'static dyn Protocol, &'static str),
        handshake: Request,
    ) -> After {
        let Some(accept) = websocket::accept(&handshake) else {
            let refusal = Refusal::new(400, "the request opens no WebSocket of version 13");
            let mut out = Vec::new();
            http::json(&mut out, 400, &target.0.error(&refusal, None), (None, true));
            self.socket.send(&out);
            return self.finish_response(true).await;
        };
        self.socket.send(&accept);
        let mut reader = websocket::Reader::new();
        let mut session = target.0.session();
        let mut request = Request {
            websocket: true,
            ..handshake
        };
        if let Some(session) = &session {
            request.conversation = session.conversation.clone();
            self.send_events(&[session.created()]);
        }
        loop {
            let Some(message) = self.read_message(&mut reader).await else {
                return self.finish_response(true).await;
            };
            request.body = match session.as_mut().map(|session| session.take(&message)) {
                None => message,
                Some(Step::Respond(body)) => body,
                Some(Step::Events(events)) => {
                    self.send_events(&events);
                    continue;
                }
            };
            let after = match self.server.accept(target, &request, &self.socket) {
                Ok((number, ended)) => self.await_end(number, ended).await,
                Err(refused) => self.refuse_message(*refused).await,
            };
            if after != After::Keep {
                return after;
            }
        }
    }

    fn send_events(&self, events: &[Value]) {
        let mut out = Vec::new();
        for event in events {
            websocket::message(&mut out, &[&event.to_string()]);
        }
        if !out.is_empty() {
            self.socket.send(&out);
        }
    }

    /// The next message of the client; None at the end of its messages.
    async fn read_message(&mut self, reader: &mut websocket::Reader) -> Option<Vec<u8>> {
        loop {
            let mut out = Vec::new();
            let received = reader.read(&mut self.buffer, &mut out);
            if !out.is_empty() {
                self.socket.send(&out);
            }
            match received {
                Received::Message(message) => return Some(message),
                Received::End => return None,
                Received::Incomplete => {
                    let read = self.socket.read(&mut self.buffer).await;
                    read.ok().filter(|bytes| *bytes > 0)?;
                }
            }
        }
    }

    async fn refuse_message(&self, refused: Refused) -> After {
        let Refused {
            entry,
            status,
            body,
            ..
        } = refused;
        let error = body.trim_start_matches('{');
        let lead = format!("{{\"type\":\"error\",\"status\":{status},");
        let mut out = Vec::new();
        websocket::message(&mut out, &[&lead, error]);
        {
            let mut record = entry.lock();
            let sent = self.socket.send(&out);
            (record.headers_at, record.end_at) = (Some(sent.at), Some(sent.at));
            record.end = Some(End::Status(status));
        }
        self.finish_response(false).await
    }

    async fn refuse(&mut self, refused: Refused, close: bool) -> After {
        let Refused {
            id,
            entry,
            status,
            body,
        } = refused;
        let pause = self.server.config.faults.slow_headers;
        if pause > Nanos::ZERO {
            tokio::time::sleep(pause.into()).await;
        }
        let mut out = Vec::new();
        http::json(&mut out, status, &body, (Some(id.as_str()), close));
        {
            let mut record = entry.lock();
            let sent = self.socket.send(&out);
            (record.headers_at, record.end_at) = (Some(sent.at), Some(sent.at));
            record.end = Some(End::Status(status));
        }
        self.finish_response(close).await
    }

    fn cancel(&self, number: u64) -> After {
        self.server.cancel(number);
        After::Close
    }

    async fn finish_response(&self, close: bool) -> After {
        self.finish_writes(if close { After::Close } else { After::Keep })
            .await
    }

    /// Writes the remaining bytes.
    async fn finish_writes(&self, after: After) -> After {
        match self.socket.drain().await {
            Ok(()) => after,
            Err(_) => After::Close,
        }
    }

    /// Closes the connection so that the client can read everything that was sent, or resets it.
    async fn end(mut self, after: After) {
        if after == After::Reset {
            // If this fails, the client gets a normal close in mid-response, which is a failure too.
            let _ = self.socket.reset();
            return;
        }
        if self.socket.drain().await.is_err() {
            return;
        }
        let Some(socket) = Rc::get_mut(&mut self.socket) else {
            return;
        };
        if socket.shutdown().await.is_err() {
            return;
        }
        // Closing with unread bytes resets the connection, and the client could lose the response.
        let rest = async {
            while socket
                .read(&mut self.buffer)
                .await
                .is_ok_and(|bytes| bytes > 0)
            {
                self.buffer.clear();
            }
        };
        let _ = tokio::time::timeout(LINGER, rest).await;
    }
}

/// Endpoint that empties the prefix cache, as in vLLM.
const RESET_CACHE: &str = "/reset_prefix_cache";

/// Endpoints of the profiler, as in vLLM. The simulator only counts what a profile would contain.
const START_PROFILE: &str = "/start_profile";
const STOP_PROFILE: &str = "/stop_profile";

/// Endpoints for GET.
const PAGES: [&str; 3] = ["/v1/models", "/health", "/metrics"];

/// The error for a request to an unknown endpoint, with a list of the endpoints.
fn unknown_endpoint(method: &str, path: &str) -> Refusal {
    let method = method.chars().take(32).collect::<String>();
    let known = format!(
        "POST {}; GET {}",
        apis::paths().collect::<Vec<_>>().join(", "),
        PAGES.join(", ")
    );
    let (status, why) = match apis::protocol_for(path) {
        Some((protocol, _)) if protocol.session().is_some() => {
            (426, format!("{path} takes a WebSocket"))
        }
        Some(_) => (405, format!("{path} takes POST, not {method}")),
        None if PAGES.contains(&path) => (405, format!("{path} takes GET, not {method}")),
        None => (
            404,
            format!("there is no {}", path.chars().take(200).collect::<String>()),
        ),
    };
    Refusal::new(status, format!("{why}; the endpoints are {known}"))
}
