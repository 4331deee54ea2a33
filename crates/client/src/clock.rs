//! The one monotonic clock of a case.

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
    pub fn starting(origin: Instant) -> Clock {
        Clock { origin }
    }

    /// The present instant.
    pub fn now(&self) -> Nanos {
        self.origin.elapsed().into()
    }

    /// The instant `at` on the system's monotonic clock, for timers.
    pub fn instant(&self, at: Nanos) -> Instant {
        self.origin + Duration::from(at)
    }
}

/// Shared by a connection and the requests on it; all live on one lane.
///
/// Of HTTP/1.1, hyper hands on one body frame and reads again only when that frame was taken, so the latest stamp is
/// always that of the read which completed the frame in hand. An HTTP/2 connection reads for all of its requests: a frame
/// that a busy lane takes late has the stamp of a later read, never of an earlier one.
#[derive(Clone, Debug, Default)]
pub struct Stamp(Rc<Reads>);

#[derive(Debug, Default)]
struct Reads {
    latest: Cell<Nanos>,
    arrived: Notify,
}

impl Stamp {
    /// When bytes last arrived; zero before the first.
    pub fn latest(&self) -> Nanos {
        self.0.latest.get()
    }

    /// Resolves after the next read of bytes.
    pub fn arrival(&self) -> Notified<'_> {
        self.0.arrived.notified()
    }
}

/// A transport whose reads leave a stamp. It sits under TLS, so that decryption counts as parsing.
pub struct Stamped<T> {
    inner: T,
    clock: Clock,
    stamp: Stamp,
}

impl<T> Stamped<T> {
    /// Wraps a transport; the second part tells of its reads.
    pub fn new(inner: T, clock: Clock) -> (Stamped<T>, Stamp) {
        let stamp = Stamp::default();
        (Stamped { inner, clock, stamp: stamp.clone() }, stamp)
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Stamped<T> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let result = Pin::new(&mut self.inner).poll_read(cx, buf);
        if buf.filled().len() > before {
            self.stamp.0.latest.set(self.clock.now());
            self.stamp.0.arrived.notify_waiters();
        }
        result
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Stamped<T> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }

    fn poll_write_vectored(mut self: Pin<&mut Self>, cx: &mut Context<'_>, parts: &[io::IoSlice<'_>]) -> Poll<io::Result<usize>> {
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
    async fn reads_of_bytes_leave_a_stamp_and_the_end_does_not() {
        let (mut far, near) = tokio::io::duplex(64);
        let clock = Clock::starting(Instant::now());
        let (mut near, stamp) = Stamped::new(near, clock);
        assert_eq!(stamp.latest(), Nanos::ZERO);
        let before = clock.now();
        far.write_all(b"abc").await.unwrap();
        let mut bytes = [0; 8];
        assert_eq!(near.read(&mut bytes).await.unwrap(), 3);
        let at = stamp.latest();
        assert!(before < at && at < clock.now());
        drop(far);
        assert_eq!(near.read(&mut bytes).await.unwrap(), 0);
        assert_eq!(stamp.latest(), at);
    }
}
