//! The monotonic clock of a case, and timestamps of socket reads.

use crate::arrival::Arrival;
use llmscen_core::units::Nanos;
use std::cell::Cell;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
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
        self.at(Instant::now())
    }

    /// The time of `instant`; zero before the start of the case.
    fn at(&self, instant: Instant) -> Nanos {
        instant.saturating_duration_since(self.origin).into()
    }

    /// `at` as an [`Instant`], for timers.
    pub fn instant(&self, at: Nanos) -> Instant {
        self.origin + Duration::from(at)
    }
}

/// Reads of both clocks that are further apart are repeated.
const MAX_READ_TIME: Duration = Duration::from_micros(5);
/// Reads of both clocks at most.
const MAX_READS: u32 = 4;
/// If the real-time clock moved by more against the monotonic clock, it was set: adjustments of its rate change both.
const MAX_DRIFT: Duration = Duration::from_micros(50);
/// Arrivals that are longer ago are not used if segments arrived out of order.
const MAX_UNCHECKED_AGE: Duration = Duration::from_micros(100);

/// Converts timestamps of the real-time clock, which the kernel uses, to the monotonic clock.
#[derive(Clone, Copy, Debug, Default)]
struct RealTime {
    /// The latest reading of the real-time clock, since the Unix epoch, and of the monotonic clock.
    known: Option<(Duration, Instant)>,
}

impl RealTime {
    /// The monotonic time of a timestamp. None if the clocks cannot be relied on: the process was interrupted each
    /// time between their readings, or the real-time clock was set.
    fn monotonic(&mut self, timestamp: Duration) -> Option<Instant> {
        let (real, now) = (0..MAX_READS).find_map(|_| {
            let before = Instant::now();
            let real = SystemTime::now().duration_since(UNIX_EPOCH).ok()?;
            let now = Instant::now();
            (now - before <= MAX_READ_TIME).then_some((real, now))
        })?;
        self.convert(timestamp, real, now)
    }

    fn convert(&mut self, timestamp: Duration, real: Duration, now: Instant) -> Option<Instant> {
        let known = self.known.replace((real, now));
        let was_set = known.is_some_and(|(known_real, known_now)| {
            real.abs_diff(known_real + (now - known_now)) > MAX_DRIFT
        });
        let age = real.checked_sub(timestamp).filter(|_| !was_set)?;
        now.checked_sub(age)
    }
}

/// When bytes last arrived. A connection and the requests on it share one; all of them live on one worker thread.
///
/// An HTTP/1.1 body is parsed in the same poll as its read, so the timestamp is that of the read in hand. An HTTP/2
/// connection reads for all its streams: a frame that a busy worker takes late has the timestamp of a later read,
/// never of an earlier one.
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

/// A transport that timestamps its reads: with the time at which the kernel received the bytes if the transport knows
/// it, else with the time of the read. It sits below TLS, so that decryption counts as parsing.
pub struct TimestampedTransport<T> {
    inner: T,
    clock: Clock,
    real_time: RealTime,
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
                real_time: RealTime::default(),
                timestamp: timestamp.clone(),
            },
            timestamp,
        )
    }
}

impl<T: AsyncRead + Arrival + Unpin> AsyncRead for TimestampedTransport<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let result = Pin::new(&mut self.inner).poll_read(cx, buf);
        if buf.filled().len() > before {
            let now = Instant::now();
            let arrived = self.inner.arrival();
            let arrived = arrived.and_then(|at| self.real_time.monotonic(at));
            let arrived = arrived.filter(|at| {
                now.saturating_duration_since(*at) <= MAX_UNCHECKED_AGE
                    || !self.inner.was_reordered()
            });
            let at = self.clock.at(arrived.unwrap_or(now));
            let latest = self.timestamp.latest();
            self.timestamp.0.latest.set(at.max(latest));
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

    impl Arrival for tokio::io::DuplexStream {}

    #[test]
    fn timestamps_are_converted_unless_the_real_time_clock_was_set() {
        let (start, ms) = (Instant::now(), Duration::from_millis);
        let mut real_time = RealTime::default();
        let mut convert = |timestamp, real, now| {
            let at = real_time.convert(ms(timestamp), ms(real), start + ms(now))?;
            Some((at - start).as_millis())
        };
        assert_eq!(convert(900_990, 901_000, 1000), Some(990));
        assert_eq!(convert(905_000, 905_000, 5000), Some(5000));
        // One second forward, and then back.
        assert_eq!(convert(906_999, 907_000, 6000), None);
        assert_eq!(convert(907_999, 908_000, 7000), Some(6999));
        assert_eq!(convert(907_999, 908_000, 8000), None);
        // A timestamp of the future.
        assert_eq!(convert(910_000, 909_000, 9000), None);
    }

    /// A transport whose bytes arrived at a known time.
    struct Arrived {
        inner: tokio::io::DuplexStream,
        age: Duration,
        reordered: bool,
    }

    impl AsyncRead for Arrived {
        fn poll_read(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
            buf: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            Pin::new(&mut self.inner).poll_read(cx, buf)
        }
    }

    impl Arrival for Arrived {
        fn arrival(&self) -> Option<Duration> {
            Some(SystemTime::now().duration_since(UNIX_EPOCH).unwrap() - self.age)
        }

        fn was_reordered(&mut self) -> bool {
            self.reordered
        }
    }

    #[tokio::test]
    async fn after_a_lost_segment_the_timestamp_is_that_of_the_read() {
        const AGE: Duration = Duration::from_secs(5);
        for reordered in [false, true] {
            let (mut far, inner) = tokio::io::duplex(64);
            let clock = Clock::new(Instant::now() - 2 * AGE);
            let near = Arrived {
                inner,
                age: AGE,
                reordered,
            };
            let (mut near, timestamp) = TimestampedTransport::new(near, clock);
            far.write_all(b"abc").await.unwrap();
            assert_eq!(near.read(&mut [0; 8]).await.unwrap(), 3);
            let age = Duration::from(clock.now() - timestamp.latest());
            assert_eq!(age >= AGE, !reordered, "{age:?}");
        }
    }

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
