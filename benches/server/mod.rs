//! A server that does nothing but write ready-made events to its sockets: one thread, one epoll, no parser worth the name.

pub mod reply;

use reply::{Order, Reply};
use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::fd::OwnedFd;
use rustix::time::{ClockId, Timespec, clock_gettime};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::rc::Rc;

/// Stands for the listener among the connections.
const LISTENER: u64 = u64::MAX;

/// Nanoseconds on the system's monotonic clock, the same for all processes.
pub fn monotonic() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

struct Connection {
    socket: TcpStream,
    /// The beginning of a request's head.
    head: Vec<u8>,
    /// What was asked for, while bytes of the request's body are missing.
    asked: Option<(Rc<Reply>, usize)>,
    sending: Option<Sending>,
}

struct Sending {
    reply: Rc<Reply>,
    /// The bytes of a reply that is the request's own.
    own: Option<Vec<u8>>,
    at: u64,
    /// Bytes that may be written by now, and events in them.
    allowed: u64,
    events: u64,
    due: u64,
}

/// What a step of writing came to.
enum Step {
    Over,
    More,
    Wait,
}

struct Server {
    epoll: OwnedFd,
    listener: TcpListener,
    connections: Vec<Option<Connection>>,
    free: Vec<usize>,
    replies: HashMap<Order, Rc<Reply>>,
    /// Connections that can write more at once.
    ready: VecDeque<usize>,
    timers: BinaryHeap<Reverse<(u64, usize)>>,
    scratch: Vec<u8>,
}

/// Serves for ever.
pub fn serve(listener: TcpListener) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let epoll = epoll::create(CreateFlags::CLOEXEC)?;
    epoll::add(
        &epoll,
        &listener,
        EventData::new_u64(LISTENER),
        EventFlags::IN,
    )?;
    let server = Server {
        epoll,
        listener,
        connections: Vec::new(),
        free: Vec::new(),
        replies: HashMap::new(),
        ready: VecDeque::new(),
        timers: BinaryHeap::new(),
        scratch: vec![0; 256 << 10],
    };
    server.run()
}

impl Server {
    fn run(mut self) -> io::Result<()> {
        let mut events = Vec::with_capacity(1024);
        loop {
            let wait = self.wait();
            match epoll::wait(&self.epoll, spare_capacity(&mut events), wait.as_ref()) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            for event in events.drain(..) {
                match event.data.u64() {
                    LISTENER => self.accept()?,
                    index => self.serve(index as usize, event.flags),
                }
            }
            self.tick();
            for _ in 0..self.ready.len().min(64) {
                if let Some(index) = self.ready.pop_front() {
                    self.write(index);
                }
            }
        }
    }

    /// How long there is nothing to do but for new bytes.
    fn wait(&self) -> Option<Timespec> {
        let left = match (self.ready.is_empty(), self.timers.peek()) {
            (false, _) => 0,
            (true, Some(Reverse((due, _)))) => due.saturating_sub(monotonic()),
            (true, None) => return None,
        };
        Some(Timespec {
            tv_sec: (left / 1_000_000_000) as i64,
            tv_nsec: (left % 1_000_000_000) as i64,
        })
    }

    fn accept(&mut self) -> io::Result<()> {
        loop {
            let socket = match self.listener.accept() {
                Ok((socket, _)) => socket,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            };
            socket.set_nonblocking(true)?;
            socket.set_nodelay(true)?;
            let index = self.free.pop().unwrap_or_else(|| {
                self.connections.push(None);
                self.connections.len() - 1
            });
            epoll::add(
                &self.epoll,
                &socket,
                EventData::new_u64(index as u64),
                EventFlags::IN | EventFlags::OUT | EventFlags::ET,
            )?;
            self.connections[index] = Some(Connection {
                socket,
                head: Vec::new(),
                asked: None,
                sending: None,
            });
        }
    }

    fn serve(&mut self, index: usize, flags: EventFlags) {
        if flags.intersects(EventFlags::IN | EventFlags::HUP | EventFlags::ERR) && !self.read(index)
        {
            self.connections[index] = None;
            return self.free.push(index);
        }
        if flags.contains(EventFlags::OUT)
            && self.connections[index]
                .as_ref()
                .is_some_and(|one| one.sending.is_some())
        {
            self.write(index);
        }
    }

    /// Reads all there is; false at the end of the connection.
    fn read(&mut self, index: usize) -> bool {
        loop {
            let Some(connection) = &mut self.connections[index] else {
                return true;
            };
            let read = match connection.socket.read(&mut self.scratch) {
                Ok(0) => return false,
                Ok(read) => read,
                Err(error) => return error.kind() == ErrorKind::WouldBlock,
            };
            let mut left = read;
            if connection.asked.is_none() {
                connection.head.extend_from_slice(&self.scratch[..read]);
                let Some(end) = memchr::memmem::find(&connection.head, b"\r\n\r\n") else {
                    continue;
                };
                left = connection.head.len() - end - 4;
                let head = String::from_utf8_lossy(&connection.head[..end]).to_ascii_lowercase();
                connection.head = Vec::new();
                let order = head
                    .split(' ')
                    .nth(1)
                    .and_then(Order::parse)
                    .expect("an order in the path");
                let length = head
                    .split("content-length:")
                    .nth(1)
                    .and_then(|rest| rest.lines().next());
                let body = length.map_or(0, |length| length.trim().parse().expect("a length"));
                let reply = self
                    .replies
                    .entry(order)
                    .or_insert_with(|| Rc::new(Reply::new(order)));
                connection.asked = Some((reply.clone(), body));
            }
            if let Some((reply, body)) = &mut connection.asked {
                *body -= left.min(*body);
                if *body == 0 {
                    let reply = reply.clone();
                    connection.asked = None;
                    self.begin(index, reply);
                }
            }
        }
    }

    fn begin(&mut self, index: usize, reply: Rc<Reply>) {
        let now = monotonic();
        let own = reply.order.stamped.then(|| reply.stamped(now));
        let (events, due) = match reply.order.gap_us {
            0 => (reply.order.events, 0),
            gap => (1, now + gap * 1000),
        };
        let sending = Sending {
            allowed: reply.until(events),
            own,
            at: 0,
            events,
            due,
            reply,
        };
        if let Some(connection) = &mut self.connections[index] {
            connection.sending = Some(sending);
        }
        if due > 0 {
            self.timers.push(Reverse((due, index)));
        }
        self.write(index);
    }

    /// Lets every stream go on whose gap is over.
    fn tick(&mut self) {
        let now = monotonic();
        while let Some(Reverse((due, index))) = self
            .timers
            .peek()
            .copied()
            .filter(|Reverse((due, _))| *due <= now)
        {
            self.timers.pop();
            let sending = self.connections[index]
                .as_mut()
                .and_then(|one| one.sending.as_mut());
            let Some(sending) = sending.filter(|sending| sending.due == due) else {
                continue;
            };
            sending.events += 1;
            sending.allowed = sending.reply.until(sending.events);
            if sending.events < sending.reply.order.events {
                sending.due = due + sending.reply.order.gap_us * 1000;
                self.timers.push(Reverse((sending.due, index)));
            }
            self.write(index);
        }
    }

    /// One write; what could follow at once waits its turn.
    fn write(&mut self, index: usize) {
        let Some(connection) = &mut self.connections[index] else {
            return;
        };
        match connection.write() {
            Step::Over => connection.sending = None,
            Step::More => self.ready.push_back(index),
            Step::Wait => {}
        }
    }
}

impl Connection {
    fn write(&mut self) -> Step {
        let Some(sending) = &mut self.sending else {
            return Step::Wait;
        };
        let written = match &sending.own {
            Some(own) => self
                .socket
                .write(&own[sending.at as usize..sending.allowed as usize]),
            None => self
                .socket
                .write_vectored(&sending.reply.pieces(sending.at, sending.allowed)),
        };
        match written {
            Ok(written) => sending.at += written as u64,
            Err(_) => return Step::Wait,
        }
        match sending.at {
            at if at == sending.reply.len() => Step::Over,
            at if at == sending.allowed => Step::Wait,
            _ => Step::More,
        }
    }
}
