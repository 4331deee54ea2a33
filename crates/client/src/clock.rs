//! The monotonic clock of a case, and timestamps of socket reads.

use llmscen_core::units::Nanos;
use std::cell::Cell;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

/// Nanoseconds since the start of the case.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    origin: Instant,
}

impl Clock {
    /// A clock whose zero is `origin`.
    pub fn new(origin: Instant) -> Clock {
        Clock { origin }
    }

    /// The current time.
    pub fn now(&self) -> Nanos {
        self.origin.elapsed().into()
    }

    /// `at` as an [`Instant`], for timers.
    pub fn instant(&self, at: Nanos) -> Instant {
        self.origin + Duration::from(at)
    }
}

/// When bytes last arrived. A connection and the requests on it share one; all of them live on one worker thread.
///
/// An HTTP/1.1 body is parsed in the same poll as its read, so the timestamp is that of the read in hand. An HTTP/2
/// connection reads for all its streams: a frame that a busy worker takes late has the timestamp of a later read, never of an
/// earlier one.
#[derive(Clone, Debug, Default)]
pub struct ReadTimestamp(Rc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    latest: Cell<Nanos>,
    arrived: Notify,
}

impl ReadTimestamp {
    /// When bytes last arrived; zero before the first.
    pub fn latest(&self) -> Nanos {
        self.0.latest.get()
    }

    /// Resolves after the next read of bytes.
    pub fn arrival(&self) -> Notified<'_> {
        self.0.arrived.notified()
    }
}

/// A transport that timestamps its reads. It sits below TLS, so that decryption counts as parsing.
pub struct TimestampedTransport<T> {
    inner: T,
    clock: Clock,
    timestamp: ReadTimestamp,
}

impl<T> TimestampedTransport<T> {
    /// Wraps `inner`, and returns the timestamp that its reads update.
    pub fn new(inner: T, clock: Clock) -> (TimestampedTransport<T>, ReadTimestamp) {
        let timestamp = ReadTimestamp::default();
        (
            TimestampedTransport {
                inner,
                clock,
                timestamp: timestamp.clone(),
            },
            timestamp,
        )
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for TimestampedTransport<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let result = Pin::new(&mut self.inner).poll_read(cx, buf);
        if buf.filled().len() > before {
            self.timestamp.0.latest.set(self.clock.now());
            self.timestamp.0.arrived.notify_waiters();
        }
        result
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for TimestampedTransport<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write_vectored(cx, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    #[tokio::test]
    async fn reads_of_bytes_are_timestamped_and_the_end_of_the_stream_is_not() {
        let (mut far, near) = tokio::io::duplex(64);
        let clock = Clock::new(Instant::now());
        let (mut near, timestamp) = TimestampedTransport::new(near, clock);
        assert_eq!(timestamp.latest(), Nanos::ZERO);
        let before = clock.now();
        far.write_all(b"abc").await.unwrap();
        let mut bytes = [0; 8];
        assert_eq!(near.read(&mut bytes).await.unwrap(), 3);
        let at = timestamp.latest();
        assert!(before < at && at < clock.now());
        drop(far);
        assert_eq!(near.read(&mut bytes).await.unwrap(), 0);
        assert_eq!(timestamp.latest(), at);
    }
}
