//! A connection with synchronous writes and a backlog.

use crate::clock::Clock;
use llmscen_core::units::Nanos;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::sync::Notify;

/// The result of [`Socket::send`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Sent {
    /// Before the write call.
    pub(super) at: Nanos,
    /// After it.
    pub(super) done: Nanos,
    /// The socket was full, so that some bytes are in the backlog.
    pub(super) blocked: bool,
}

/// A TCP stream and the bytes that did not fit into it, at most those of the current response.
#[derive(Debug)]
pub(super) struct Socket {
    stream: TcpStream,
    clock: Clock,
    /// Bytes after which each write is split in two, 0 for never.
    split: usize,
    /// Pieces to be written, each with a separate write.
    backlog: RefCell<VecDeque<Vec<u8>>>,
    waiting: Notify,
}

impl Socket {
    pub(super) fn new(stream: TcpStream, clock: Clock, split: u32) -> Socket {
        Socket {
            stream,
            clock,
            split: split as usize,
            backlog: RefCell::default(),
            waiting: Notify::new(),
        }
    }

    /// Writes what the socket accepts and keeps the rest for [`Socket::tend`]. Bytes for a disconnected client are
    /// discarded; the reader of the socket detects the disconnection.
    pub(super) fn send(&self, bytes: &[u8]) -> Sent {
        let cut = if self.split == 0 {
            bytes.len()
        } else {
            self.split.min(bytes.len())
        };
        let (first, second) = bytes.split_at(cut);
        let mut backlog = self.backlog.borrow_mut();
        let at = self.clock.now();
        let written = if backlog.is_empty() {
            try_write(&self.stream, first)
        } else {
            Ok(0)
        };
        let done = self.clock.now();
        let Ok(written) = written else {
            return Sent {
                at,
                done,
                blocked: false,
            };
        };
        let rest = [&first[written..], second];
        backlog.extend(
            rest.into_iter()
                .filter(|piece| !piece.is_empty())
                .map(<[u8]>::to_vec),
        );
        if !backlog.is_empty() {
            self.waiting.notify_one();
        }
        Sent {
            at,
            done,
            blocked: written < first.len(),
        }
    }

    /// Writes the backlog whenever there is one; returns only when the client has disconnected.
    pub(super) async fn tend(&self) -> io::Error {
        loop {
            if let Err(gone) = self.drain().await {
                return gone;
            }
            self.waiting.notified().await;
        }
    }

    /// Writes the backlog, one piece per write.
    pub(super) async fn drain(&self) -> io::Result<()> {
        while !self.backlog.borrow().is_empty() {
            // The pieces of a split write must not be sent together.
            tokio::task::yield_now().await;
            self.stream.writable().await?;
            let mut backlog = self.backlog.borrow_mut();
            let Some(piece) = backlog.front_mut() else {
                break;
            };
            let written = try_write(&self.stream, piece)?;
            piece.drain(..written);
            if piece.is_empty() {
                backlog.pop_front();
            }
        }
        Ok(())
    }

    /// Appends available bytes, waiting for the first one; 0 at the end. Cancel safe.
    pub(super) async fn read(&self, buffer: &mut Vec<u8>) -> io::Result<usize> {
        loop {
            self.stream.readable().await?;
            buffer.reserve(16 << 10);
            match self.stream.try_read_buf(buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                read => return read,
            }
        }
    }

    /// Makes the following close a reset.
    pub(super) fn reset(&self) -> io::Result<()> {
        self.stream.set_zero_linger()
    }

    /// Shuts down the write half of the connection.
    pub(super) async fn shutdown(&mut self) -> io::Result<()> {
        self.stream.shutdown().await
    }
}

/// Writes what the socket accepts, possibly nothing.
fn try_write(stream: &TcpStream, bytes: &[u8]) -> io::Result<usize> {
    match stream.try_write(bytes) {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(0),
        written => written,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;
    use tokio::net::TcpListener;

    /// A socket of ours, and what is at the other end of it.
    async fn pair(split: u32) -> (Socket, Socket) {
        let clock = Clock::since(Instant::now());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let ours = TcpStream::connect(listener.local_addr().unwrap())
            .await
            .unwrap();
        let (theirs, _) = listener.accept().await.unwrap();
        (
            Socket::new(ours, clock, split),
            Socket::new(theirs, clock, 0),
        )
    }

    #[tokio::test(flavor = "current_thread")]
    async fn a_split_write_leaves_in_two_pieces_and_what_follows_keeps_its_place() {
        let (ours, theirs) = pair(3).await;
        let mut seen = Vec::new();
        let sent = ours.send(b"one two");
        assert!(!sent.blocked && sent.at <= sent.done);
        assert_eq!(
            (theirs.read(&mut seen).await.unwrap(), seen.as_slice()),
            (3, &b"one"[..])
        );
        assert!(ours.send(b" three").blocked);
        ours.drain().await.unwrap();
        while seen.len() < 13 {
            theirs.read(&mut seen).await.unwrap();
        }
        assert_eq!(seen, b"one two three");
        assert!(!ours.send(b"ok").blocked);
    }

    #[tokio::test(flavor = "current_thread")]
    async fn a_reader_learns_that_the_other_side_is_gone_and_a_writer_need_not() {
        let (ours, theirs) = pair(0).await;
        theirs.reset().unwrap();
        drop(theirs);
        assert!(ours.read(&mut Vec::new()).await.is_err());
        assert!(!ours.send(b"into the void").blocked);
        ours.drain().await.unwrap();
    }
}
