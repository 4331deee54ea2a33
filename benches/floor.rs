//! The least that a client can do: send the same requests, read the same sockets, count the ends of events.

use crate::server::reply::Reply;
use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};

/// What was counted.
#[derive(Default)]
pub struct Counted {
    /// Requests that were answered in full.
    pub requests: u64,
    /// Ends of events: those with tokens, and the two at the end of each response.
    pub ends: u64,
}

struct Stream {
    socket: TcpStream,
    sent: usize,
    /// Bytes of the response that are here.
    got: u64,
    /// The last byte was a line feed.
    after_lf: bool,
}

/// Keeps `streams` requests in flight until `requests` are answered.
pub fn run(
    addr: SocketAddr,
    reply: &Reply,
    body: &[u8],
    streams: usize,
    requests: u64,
) -> io::Result<Counted> {
    let head = format!(
        "POST {} HTTP/1.1\r\nhost: {addr}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        reply.order.path(),
        body.len()
    );
    let request = [head.as_bytes(), body].concat();
    let epoll = epoll::create(CreateFlags::CLOEXEC)?;
    let (mut counted, mut begun) = (Counted::default(), 0);
    let mut open = Vec::with_capacity(streams);
    for index in 0..streams.min(requests as usize) {
        let socket = TcpStream::connect(addr)?;
        socket.set_nodelay(true)?;
        socket.set_nonblocking(true)?;
        epoll::add(
            &epoll,
            &socket,
            EventData::new_u64(index as u64),
            EventFlags::IN | EventFlags::OUT | EventFlags::ET,
        )?;
        let mut stream = Stream {
            socket,
            sent: 0,
            got: 0,
            after_lf: false,
        };
        begun += 1;
        stream.send(&request)?;
        open.push(stream);
    }
    let mut scratch = vec![0; 256 << 10];
    let mut events = Vec::with_capacity(1024);
    let finder = memchr::memmem::Finder::new(b"\n\n");
    while counted.requests < requests {
        match epoll::wait(&epoll, spare_capacity(&mut events), None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        for event in events.drain(..) {
            let stream = &mut open[event.data.u64() as usize];
            stream.send(&request)?;
            while let Some(read) = stream.read(&mut scratch)? {
                counted.ends += stream.count(&scratch[..read], &finder);
                if stream.got == reply.len() {
                    counted.requests += 1;
                    if begun < requests {
                        begun += 1;
                        (stream.sent, stream.got) = (0, 0);
                        stream.send(&request)?;
                    }
                }
                if read < scratch.len() {
                    break;
                }
            }
        }
    }
    Ok(counted)
}

impl Stream {
    fn send(&mut self, request: &[u8]) -> io::Result<()> {
        while self.sent < request.len() {
            match self.socket.write(&request[self.sent..]) {
                Ok(written) => self.sent += written,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn read(&mut self, scratch: &mut [u8]) -> io::Result<Option<usize>> {
        match self.socket.read(scratch) {
            Ok(0) => Err(ErrorKind::UnexpectedEof.into()),
            Ok(read) => {
                self.got += read as u64;
                Ok(Some(read))
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn count(&mut self, bytes: &[u8], finder: &memchr::memmem::Finder<'_>) -> u64 {
        let split = u64::from(self.after_lf && bytes[0] == b'\n');
        self.after_lf = bytes[bytes.len() - 1] == b'\n';
        split + finder.find_iter(bytes).count() as u64
    }
}
