//! WebSocket (RFC 6455) on a connection of the simulator. Frames are written as bytes, because the truth log needs
//! the time of each write; what the client sends is read by tungstenite.

use crate::http::Request;
use std::io::{self, Read, Write};
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig, WebSocketContext};
use tokio_tungstenite::tungstenite::{Error, Message};

/// First bytes of complete frames (section 5.2).
const TEXT: u8 = 0x81;
const CLOSE: u8 = 0x88;
const PING: u8 = 0x89;

/// Codes of close frames (section 7.4.1).
pub(super) const INTERNAL_ERROR: u16 = 1011;

/// Maximum size of a message of the client, bytes.
const MAX_MESSAGE: usize = 64 << 20;
/// Bytes that are parsed at a time.
const READ_SIZE: usize = 16 << 10;

/// Whether a request asks for a WebSocket.
pub(super) fn is_upgrade(request: &Request) -> bool {
    let asks = |value: &str| value.eq_ignore_ascii_case("websocket");
    request.method == "GET" && request.header("upgrade").is_some_and(asks)
}

/// The response that opens a WebSocket. None: the request has no key, or another version.
pub(super) fn accept(request: &Request) -> Option<Vec<u8>> {
    request
        .header("sec-websocket-version")
        .filter(|version| *version == "13")?;
    let accept = derive_accept_key(request.header("sec-websocket-key")?.as_bytes());
    let head = format!(
        "HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: \
        Upgrade\r\nsec-websocket-accept: {accept}\r\n\r\n"
    );
    Some(head.into_bytes())
}

/// Appends a text message with the concatenated pieces.
pub(super) fn message(to: &mut Vec<u8>, pieces: &[&str]) {
    let length: usize = pieces.iter().map(|piece| piece.len()).sum();
    to.push(TEXT);
    match (u16::try_from(length), length) {
        (_, 0..126) => to.push(length as u8),
        (Ok(length), _) => {
            to.push(126);
            to.extend_from_slice(&length.to_be_bytes());
        }
        (Err(_), _) => {
            to.push(127);
            to.extend_from_slice(&(length as u64).to_be_bytes());
        }
    }
    pieces
        .iter()
        .for_each(|piece| to.extend_from_slice(piece.as_bytes()));
}

/// Appends a ping, which clients must answer.
pub(super) fn ping(to: &mut Vec<u8>) {
    to.extend_from_slice(&[PING, 0]);
}

/// Appends a close frame.
pub(super) fn close(to: &mut Vec<u8>, code: u16) {
    to.extend_from_slice(&[CLOSE, 2]);
    to.extend_from_slice(&code.to_be_bytes());
}

/// What the client sent.
pub(super) enum Received {
    /// A message.
    Message(Vec<u8>),
    /// More bytes are needed.
    Incomplete,
    /// A close frame, or bytes that are no frames: the connection ends after what was answered.
    End,
}

/// Reads the frames of a client.
pub(super) struct Reader(WebSocketContext);

impl Reader {
    pub(super) fn new() -> Reader {
        let config = WebSocketConfig::default()
            .read_buffer_size(READ_SIZE)
            .max_message_size(Some(MAX_MESSAGE))
            .max_frame_size(Some(MAX_MESSAGE));
        Reader(WebSocketContext::new(Role::Server, Some(config)))
    }

    /// Takes bytes of the client from `input`, and appends answers to pings and to a close frame to `out`.
    pub(super) fn read(&mut self, input: &mut Vec<u8>, out: &mut Vec<u8>) -> Received {
        let mut pipe = Pipe { input, out };
        loop {
            return match self.0.read(&mut pipe) {
                Ok(Message::Text(text)) => Received::Message(text.as_bytes().to_vec()),
                Ok(Message::Binary(bytes)) => Received::Message(bytes.to_vec()),
                Ok(_) => continue,
                Err(Error::Io(error)) if error.kind() == io::ErrorKind::WouldBlock => {
                    Received::Incomplete
                }
                Err(_) => Received::End,
            };
        }
    }
}

/// Received bytes and bytes to send, as a stream.
struct Pipe<'a> {
    input: &'a mut Vec<u8>,
    out: &'a mut Vec<u8>,
}

impl Read for Pipe<'_> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        if self.input.is_empty() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let length = self.input.len().min(to.len());
        to[..length].copy_from_slice(&self.input[..length]);
        self.input.drain(..length);
        Ok(length)
    }
}

impl Write for Pipe<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.out.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_has_the_shortest_length_that_fits() {
        let head = |length: usize| {
            let mut bytes = Vec::new();
            message(&mut bytes, &["x", &"y".repeat(length - 1)]);
            assert!(bytes.ends_with(&[b'y'; 9]));
            bytes[..bytes.len() - length].to_vec()
        };
        assert_eq!(head(125), [0x81, 125]);
        assert_eq!(head(126), [0x81, 126, 0, 126]);
        assert_eq!(head(65_536), [0x81, 127, 0, 0, 0, 0, 0, 1, 0, 0]);
    }
}
