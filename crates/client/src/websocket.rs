//! WebSocket (RFC 6455) on one connection: opens it, sends the messages of a request, and reads those of its response.
//!
//! A connection carries one response at a time. The handshake is an exchange of `http1`; the frames are tungstenite's.

use crate::ClientError;
use crate::connect::Transport;
use crate::headers::{RequestHeaders, RequestTarget};
use crate::http1::{Connection, Http1Error};
use bytes::{Buf, Bytes};
use futures_util::{Sink, Stream};
use http::header::{
    ACCEPT, ACCEPT_ENCODING, CONNECTION, CONTENT_TYPE, HeaderMap, HeaderValue,
    SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_VERSION, UPGRADE,
};
use http::{Request, Response, StatusCode, Version};
use llmscen_core::api::SPEECH_RATE;
use llmscen_core::outcome::{Failure, FailureKind};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker, ready};
use std::time::{Duration, Instant};
use thiserror::Error;
use tokio::task::{JoinHandle, spawn_local};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::error::{CapacityError, ProtocolError};
use tokio_tungstenite::tungstenite::handshake::client::generate_key;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Error, Message, Utf8Bytes};

/// Maximum size of a message, bytes: that of an event of a stream.
const MAX_MESSAGE: usize = 8 << 20;
/// Bytes per socket read. Each connection has a buffer of this size.
const READ_SIZE: usize = 16 << 10;

/// Why an exchange of messages broke.
#[derive(Debug, Error)]
pub enum WebSocketError {
    /// The server sent a close frame.
    #[error("the server closed the WebSocket{}", describe_close(.0.as_ref()))]
    Closed(Option<CloseFrame>),
    /// The connection ended without a close frame.
    #[error("connection closed without a close frame")]
    Ended,
    /// The connection failed.
    #[error("connection error: {0}")]
    Io(io::Error),
    /// The bytes are not messages.
    #[error("{0}")]
    Malformed(String),
    /// A server that detects the end of speech itself answers before all audio is sent.
    #[error("set `session.audio.input.turn_detection` to null")]
    EarlyResponse,
}

/// The code and the reason of a close frame.
fn describe_close(frame: Option<&CloseFrame>) -> String {
    match frame {
        Some(frame) if frame.reason.is_empty() => format!(" with code {}", frame.code),
        Some(frame) => format!(" with code {}: {}", frame.code, frame.reason),
        None => String::new(),
    }
}

impl From<Error> for WebSocketError {
    fn from(error: Error) -> WebSocketError {
        match error {
            Error::ConnectionClosed
            | Error::AlreadyClosed
            | Error::Protocol(
                ProtocolError::ResetWithoutClosingHandshake | ProtocolError::SendAfterClosing,
            ) => WebSocketError::Ended,
            Error::Io(error) => WebSocketError::Io(error),
            Error::Capacity(CapacityError::MessageTooLong { .. }) => WebSocketError::Malformed(
                format!("a message is larger than {} MiB", MAX_MESSAGE >> 20),
            ),
            other => WebSocketError::Malformed(other.to_string()),
        }
    }
}

/// How connections become WebSockets.
pub(super) struct Upgrade {
    pub headers: Rc<RequestHeaders>,
    pub request_target: Rc<RequestTarget>,
}

/// The answer to a handshake.
pub(super) enum Handshake {
    Accepted(WebSocket),
    /// The response of a server that opens no WebSocket; its body follows on the connection.
    Refused(Connection, Response<()>),
}

impl Upgrade {
    /// Asks for a WebSocket on a new connection.
    ///
    /// # Errors
    /// No response, or not one to this handshake.
    pub async fn run(&self, mut connection: Connection) -> Result<Handshake, Failure> {
        let key = generate_key();
        let request = self
            .request(&key)
            .map_err(crate::ClientError::into_failure)?;
        let sent = request.headers().clone();
        let response = connection
            .upgrade(request)
            .await
            .map_err(|error| handshake_failure(&error))?;
        if response.status() != StatusCode::SWITCHING_PROTOCOLS {
            return Ok(Handshake::Refused(connection, response));
        }
        let accept = response.headers().get(SEC_WEBSOCKET_ACCEPT);
        if accept.is_none_or(|accept| accept != derive_accept_key(key.as_bytes()).as_str()) {
            let why = "the server accepted another WebSocket: its `sec-websocket-accept` does not \
            belong to this handshake";
            return Err(Failure::new(FailureKind::Decode, why).at("connecting"));
        }
        let (transport, early) = connection.into_parts();
        let config = WebSocketConfig::default()
            .read_buffer_size(READ_SIZE)
            .max_message_size(Some(MAX_MESSAGE))
            .max_frame_size(Some(MAX_MESSAGE));
        let frames =
            WebSocketStream::from_partially_read(transport, early, Role::Client, Some(config));
        Ok(Handshake::Accepted(WebSocket {
            frames: Rc::new(RefCell::new(frames.await)),
            sent,
            response,
            early: VecDeque::new(),
            idle: None,
        }))
    }

    fn request(&self, key: &str) -> Result<Request<Bytes>, ClientError> {
        let mut headers = self.headers.for_request(true, &[], false)?;
        for name in [ACCEPT, ACCEPT_ENCODING, CONTENT_TYPE] {
            headers.remove(name);
        }
        headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
        headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
        headers.insert(SEC_WEBSOCKET_VERSION, HeaderValue::from_static("13"));
        let key = HeaderValue::from_str(key)
            .map_err(|_| ClientError::Header(SEC_WEBSOCKET_KEY.to_string()))?;
        headers.insert(SEC_WEBSOCKET_KEY, key);
        let mut request = Request::new(Bytes::new());
        *request.headers_mut() = headers;
        self.request_target.apply(&mut request, Version::HTTP_11)?;
        Ok(request)
    }
}

/// The failure of a handshake without a response.
fn handshake_failure(error: &Http1Error) -> Failure {
    let (kind, why) = match error {
        Http1Error::Malformed(_) | Http1Error::Framing(_) => {
            (FailureKind::Decode, "not an HTTP response")
        }
        Http1Error::Closed | Http1Error::Io(_) => (
            FailureKind::Connect,
            "the server closed the connection before it responded",
        ),
    };
    Failure::new(kind, format!("{why}: {error}")).at("WebSocket handshake")
}

type Frames = Rc<RefCell<WebSocketStream<Box<dyn Transport>>>>;

/// An open WebSocket.
pub(super) struct WebSocket {
    frames: Frames,
    /// The headers of the handshake.
    pub sent: HeaderMap,
    /// The answer to the handshake.
    pub response: Response<()>,
    /// Messages that arrived while the request was sent, and the first one after it.
    early: VecDeque<Message>,
    /// Reads while no request uses the connection.
    idle: Option<AbortOnDrop>,
}

struct AbortOnDrop(JoinHandle<()>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl WebSocket {
    /// Sends each line of `body` as a text message, and waits for the first message of the response. `on_write` is
    /// called just before the first byte is written.
    ///
    /// # Errors
    /// No response, or not a message.
    pub async fn send(
        &mut self,
        mut body: Bytes,
        on_write: impl FnOnce(),
    ) -> Result<(), WebSocketError> {
        self.idle = None;
        self.early.clear();
        on_write();
        let began = Instant::now();
        let mut played = Duration::ZERO;
        while !body.is_empty() {
            let end = memchr::memchr(b'\n', &body);
            let line = body.split_to(end.unwrap_or(body.len()));
            if end.is_some() {
                body.advance(1);
            }
            if played > Duration::ZERO {
                self.wait_until(began + played).await?;
            }
            played += audio_duration(&line);
            let text = Utf8Bytes::try_from(line)
                .map_err(|error| WebSocketError::Malformed(error.to_string()))?;
            poll_fn(|cx| self.with_frames(|frames| frames.poll_ready(cx))).await?;
            self.with_frames(|frames| frames.start_send(Message::Text(text)))?;
            if played > Duration::ZERO {
                poll_fn(|cx| self.with_frames(|frames| frames.poll_flush(cx))).await?;
            }
        }
        poll_fn(|cx| self.with_frames(|frames| frames.poll_flush(cx))).await?;
        if self.early.is_empty() {
            let first = self.next().await?;
            self.early.push_back(first);
        }
        Ok(())
    }

    /// Waits for the time of the next piece of audio. Pings are answered meanwhile, and messages are kept.
    async fn wait_until(&mut self, at: Instant) -> Result<(), WebSocketError> {
        let timer = tokio::time::sleep_until(at.into());
        tokio::pin!(timer);
        loop {
            let message = tokio::select! {
                biased;
                () = &mut timer => return Ok(()),
                message = self.next() => message?,
            };
            let text = message.to_text().unwrap_or_default();
            if text.contains("\"response.created\"") {
                return Err(WebSocketError::EarlyResponse);
            }
            self.early.push_back(message);
        }
    }

    /// Passes the next message to `sink`. Cancelling loses no message.
    ///
    /// # Errors
    /// The connection ended, or the bytes are not a message.
    pub async fn read(&mut self, sink: &mut dyn FnMut(&[u8])) -> Result<(), WebSocketError> {
        let message = match self.early.pop_front() {
            Some(first) => first,
            None => self.next().await?,
        };
        match &message {
            Message::Text(text) => sink(text.as_bytes()),
            Message::Binary(bytes) => sink(bytes),
            _ => {}
        }
        Ok(())
    }

    /// The next message with data. Pings are answered.
    async fn next(&mut self) -> Result<Message, WebSocketError> {
        poll_fn(|cx| poll_message(&self.frames, cx)).await
    }

    /// Answers pings until the next request: a server closes connections that do not. Messages that belong to no
    /// response are dropped.
    pub fn start_idle(&mut self) {
        let frames = self.frames.clone();
        let task = async move { while poll_fn(|cx| poll_message(&frames, cx)).await.is_ok() {} };
        self.idle = Some(AbortOnDrop(spawn_local(task)));
    }

    /// Whether an idle connection is still open.
    pub fn is_open(&mut self) -> bool {
        self.idle = None;
        let mut cx = Context::from_waker(Waker::noop());
        loop {
            match poll_message(&self.frames, &mut cx) {
                Poll::Pending => return true,
                Poll::Ready(Ok(_)) => {}
                Poll::Ready(Err(_)) => return false,
            }
        }
    }

    fn with_frames<T>(
        &self,
        act: impl FnOnce(Pin<&mut WebSocketStream<Box<dyn Transport>>>) -> T,
    ) -> T {
        act(Pin::new(&mut *self.frames.borrow_mut()))
    }
}

impl Drop for WebSocket {
    /// Sends a close frame if the socket accepts it at once.
    fn drop(&mut self) {
        let mut cx = Context::from_waker(Waker::noop());
        let _ = self.with_frames(|frames| frames.poll_close(&mut cx));
    }
}

/// How an event with audio begins.
const AUDIO: &[u8] = br#"{"type":"input_audio_buffer.append","audio":""#;

/// The duration of the audio in an event of Realtime; zero for other events. 4 letters of base64 are 3 bytes.
fn audio_duration(line: &[u8]) -> Duration {
    let Some(data) = line.strip_prefix(AUDIO) else {
        return Duration::ZERO;
    };
    let letters = memchr::memchr2(b'"', b'=', data).unwrap_or(data.len()) as u64;
    let samples = letters * 3 / 4 / 2;
    Duration::from_nanos(samples * 1_000_000_000 / u64::from(SPEECH_RATE))
}

fn poll_message(frames: &Frames, cx: &mut Context<'_>) -> Poll<Result<Message, WebSocketError>> {
    let mut frames = frames.borrow_mut();
    loop {
        return Poll::Ready(match ready!(Pin::new(&mut *frames).poll_next(cx)) {
            Some(Ok(message @ (Message::Text(_) | Message::Binary(_)))) => Ok(message),
            Some(Ok(Message::Close(frame))) => Err(WebSocketError::Closed(frame)),
            Some(Ok(_)) => continue,
            Some(Err(error)) => Err(error.into()),
            None => Err(WebSocketError::Ended),
        });
    }
}
