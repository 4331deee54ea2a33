//! A TCP socket that reports when the kernel received the bytes of a read. A process that is busy, or that the
//! scheduler stopped, reads bytes late; the kernel's timestamp is not later for that.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// A transport that may know when bytes arrived.
pub trait Arrival {
    /// When the kernel received the last bytes of the latest read, since the Unix epoch.
    fn arrival(&self) -> Option<Duration> {
        None
    }

    /// Whether segments arrived out of order since the last call. If an earlier segment was lost, the last bytes of a
    /// read arrived before the first ones, and the bytes could only be read after the retransmission.
    fn was_reordered(&mut self) -> bool {
        false
    }
}

impl<T> Arrival for tokio_rustls::client::TlsStream<T> {}

/// A socket whose reads have timestamps of the kernel, where the system supports them (Linux).
pub struct ArrivalSocket {
    socket: TcpStream,
    arrival: Option<Duration>,
    /// Segments that arrived out of order, as far as known.
    #[cfg(target_os = "linux")]
    out_of_order: u32,
}

impl Arrival for ArrivalSocket {
    fn arrival(&self) -> Option<Duration> {
        self.arrival
    }

    #[cfg(target_os = "linux")]
    fn was_reordered(&mut self) -> bool {
        let known = kernel::count_out_of_order(&self.socket);
        let before = std::mem::replace(&mut self.out_of_order, known.unwrap_or_default());
        known != Some(before)
    }
}

impl ArrivalSocket {
    /// Enables the timestamps. Without them, reads have no arrival.
    pub fn new(socket: TcpStream) -> ArrivalSocket {
        #[cfg(target_os = "linux")]
        let _ = nix::sys::socket::setsockopt(
            &socket,
            nix::sys::socket::sockopt::ReceiveTimestampns,
            &true,
        );
        ArrivalSocket {
            socket,
            arrival: None,
            #[cfg(target_os = "linux")]
            out_of_order: 0,
        }
    }
}

#[cfg(target_os = "linux")]
impl AsyncRead for ArrivalSocket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let ArrivalSocket {
            socket, arrival, ..
        } = &mut *self;
        loop {
            std::task::ready!(socket.poll_read_ready(cx))?;
            let bytes = buf.initialize_unfilled();
            let room = bytes.len();
            let mut received = None;
            let result = socket.try_io(tokio::io::Interest::READABLE, || {
                let (length, at) = kernel::receive(socket, bytes)?;
                received = Some((length, at));
                // A short read leaves the socket empty. As "would block", it lets the next read wait without a system
                // call.
                match length {
                    length if 0 < length && length < room => Err(io::ErrorKind::WouldBlock.into()),
                    _ => Ok(()),
                }
            });
            if let Some((length, at)) = received {
                buf.advance(length);
                *arrival = at;
                return Poll::Ready(Ok(()));
            }
            match result {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                result => return Poll::Ready(result),
            }
        }
    }
}

#[cfg(target_os = "linux")]
mod kernel {
    use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg};
    use std::io::{self, IoSliceMut};
    use std::os::fd::AsRawFd;
    use std::time::Duration;
    use tokio::net::TcpStream;

    /// Room for one control message with a `timespec`, aligned as a message header.
    #[repr(align(8))]
    struct Control([u8; 64]);

    /// Reads once. Returns the number of bytes, and when the kernel received the last of them.
    pub(super) fn receive(
        socket: &TcpStream,
        bytes: &mut [u8],
    ) -> io::Result<(usize, Option<Duration>)> {
        let mut control = Control([0; 64]);
        let mut parts = [IoSliceMut::new(bytes)];
        let received = recvmsg::<()>(
            socket.as_raw_fd(),
            &mut parts,
            Some(&mut control.0),
            MsgFlags::empty(),
        )?;
        let timestamp = |message| match message {
            ControlMessageOwned::ScmTimestampns(at) => Some(Duration::from(at)),
            _ => None,
        };
        // The bytes are read already, so no error of a message may lose them.
        let at = received
            .cmsgs()
            .ok()
            .and_then(|mut all| all.find_map(timestamp));
        Ok((received.bytes, at.filter(|_| received.bytes > 0)))
    }

    /// `tcpi_rcv_ooopack` of `struct tcp_info` (linux/tcp.h), and the length of the structure up to it, in units of 4
    /// bytes.
    const OUT_OF_ORDER: usize = 224 / 4;

    /// Segments that arrived out of order so far; None before Linux 5.4.
    pub(super) fn count_out_of_order(socket: &TcpStream) -> Option<u32> {
        let mut info = [0_u32; OUT_OF_ORDER + 1];
        let mut length = size_of_val(&info) as libc::socklen_t;
        // SAFETY: the kernel writes at most `length` bytes, which `info` has.
        #[expect(unsafe_code, reason = "no library has this field")]
        let result = unsafe {
            libc::getsockopt(
                socket.as_raw_fd(),
                libc::IPPROTO_TCP,
                libc::TCP_INFO,
                info.as_mut_ptr().cast(),
                &raw mut length,
            )
        };
        let complete = result == 0 && length as usize == size_of_val(&info);
        complete.then_some(info[OUT_OF_ORDER])
    }
}

#[cfg(not(target_os = "linux"))]
impl AsyncRead for ArrivalSocket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_read(cx, buf)
    }
}

impl AsyncWrite for ArrivalSocket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write_vectored(cx, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::{Clock, TimestampedTransport};
    use std::io::Write;
    use std::net::TcpListener;
    use std::time::Instant;
    use tokio::io::AsyncReadExt;

    /// A connection on loopback: its writing end, and its reading end with timestamps.
    async fn connected() -> (std::net::TcpStream, ArrivalSocket) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap())
            .await
            .unwrap();
        let (far, _) = listener.accept().unwrap();
        far.set_nodelay(true).unwrap();
        (far, ArrivalSocket::new(near))
    }

    #[tokio::test]
    async fn all_bytes_arrive_in_order_whatever_the_size_of_the_reads() {
        let (mut far, mut near) = connected().await;
        let sent: Vec<u8> = (0..3_000_000_u32)
            .map(|number| (number % 251) as u8)
            .collect();
        let writer = {
            let sent = sent.clone();
            std::thread::spawn(move || {
                for part in sent.chunks(70_001) {
                    far.write_all(part).unwrap();
                }
            })
        };
        let mut read = Vec::new();
        for size in [1, 64 << 10, 100, 4096].into_iter().cycle() {
            let mut bytes = vec![0; size];
            match near.read(&mut bytes).await.unwrap() {
                0 => break,
                length => read.extend_from_slice(&bytes[..length]),
            }
        }
        writer.join().unwrap();
        assert!(read == sent);
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn loopback_keeps_the_order_of_segments() {
        let (mut far, mut near) = connected().await;
        far.write_all(b"token").unwrap();
        assert_eq!(near.read(&mut [0; 64]).await.unwrap(), 5);
        assert_eq!(kernel::count_out_of_order(&near.socket), Some(0));
        assert!(!near.was_reordered());
        near.out_of_order = 3;
        assert_eq!([(); 2].map(|()| near.was_reordered()), [true, false]);
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn a_late_read_has_the_time_of_the_arrival() {
        const LATE: Duration = Duration::from_millis(200);
        let (mut far, mut near) = connected().await;
        let mut bytes = [0; 64];
        // The kernel takes timestamps soon after the first socket has asked for them.
        for attempt in 0.. {
            far.write_all(b"first").unwrap();
            assert_eq!(near.read(&mut bytes).await.unwrap(), 5);
            if near.arrival().is_some() {
                break;
            }
            assert!(attempt < 1000, "the kernel takes no timestamps");
            std::thread::sleep(Duration::from_millis(1));
        }
        let clock = Clock::new(Instant::now());
        let (mut near, timestamp) = TimestampedTransport::new(near, clock);
        let before = clock.now();
        far.write_all(b"token").unwrap();
        let written = clock.now();
        std::thread::sleep(LATE);
        assert_eq!(near.read(&mut bytes).await.unwrap(), 5);
        let (at, read) = (timestamp.latest(), clock.now());
        assert!(
            before <= at && at < written + (LATE / 2).into(),
            "{before:?} {at:?} {written:?}"
        );
        assert!(read >= at + (LATE / 2).into());
        drop(far);
        assert_eq!(near.read(&mut bytes).await.unwrap(), 0);
        assert_eq!(timestamp.latest(), at);
    }
}
