//! What the server sends: made once, written as often as asked for.

use std::io::IoSlice;

/// Bytes of ready frames in one piece: what a write takes at a time.
const BLOCK: usize = 128 << 10;
/// Digits of the instant in a stamped reply.
pub const DIGITS: usize = 20;

const HEAD: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n";
const BEFORE: &str = "data: {\"id\":\"chatcmpl-00000000000000000000\",\"object\":\"chat.completion.chunk\",\"created\":1700000000,\
    \"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"";
const AFTER: &str = "\"},\"logprobs\":null,\"finish_reason\":null}]}\n\n";
const LAST: &str = "data: {\"id\":\"chatcmpl-00000000000000000000\",\"object\":\"chat.completion.chunk\",\"created\":1700000000,\
    \"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":{},\"logprobs\":null,\"finish_reason\":\"stop\"}]}\n\n";
const DONE: &str = "data: [DONE]\n\n";

/// What a request asks for, in its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Order {
    /// Token events.
    pub events: u64,
    /// Microseconds between them; 0: as fast as the socket takes them.
    pub gap_us: u64,
    /// Bytes of one event.
    pub size: usize,
    /// The id of the reply is the instant at which it is handed to the socket.
    pub stamped: bool,
}

impl Order {
    /// The path of a URL that asks for this.
    pub fn path(&self) -> String {
        format!(
            "/{}/{}/{}/{}/chat",
            self.events,
            self.gap_us,
            self.size,
            u8::from(self.stamped)
        )
    }

    /// What such a path asks for.
    pub fn parse(path: &str) -> Option<Order> {
        let mut parts = path.split('/').skip(1).map(|part| part.parse::<u64>().ok());
        let mut next = || parts.next().flatten();
        Some(Order {
            events: next()?,
            gap_us: next()?,
            size: next()? as usize,
            stamped: next()? == 1,
        })
    }
}

/// A response in pieces: head, equal frames over and over, tail.
pub struct Reply {
    pub order: Order,
    head: Vec<u8>,
    block: Vec<u8>,
    frame: usize,
    tail: Vec<u8>,
}

impl Reply {
    pub fn new(order: Order) -> Reply {
        let fill = order.size.saturating_sub(BEFORE.len() + AFTER.len()).max(1);
        let frame = chunk(&format!("{BEFORE}{}{AFTER}", "x".repeat(fill)));
        let block = frame.repeat((BLOCK / frame.len()).max(1));
        let tail = [chunk(LAST), chunk(DONE), b"0\r\n\r\n".to_vec()].concat();
        Reply {
            order,
            head: HEAD.as_bytes().to_vec(),
            block,
            frame: frame.len(),
            tail,
        }
    }

    fn frames(&self) -> u64 {
        self.order.events * self.frame as u64
    }

    /// Bytes of the whole response.
    pub fn len(&self) -> u64 {
        self.head.len() as u64 + self.frames() + self.tail.len() as u64
    }

    /// Bytes up to the end of so many events; the last one takes the tail with it.
    pub fn until(&self, events: u64) -> u64 {
        if events >= self.order.events {
            self.len()
        } else {
            self.head.len() as u64 + events * self.frame as u64
        }
    }

    /// The bytes from `at` to `end`, as far as one write should take them.
    pub fn pieces(&self, at: u64, end: u64) -> [IoSlice<'_>; 3] {
        let (head, frames) = (self.head.len() as u64, self.frames());
        let part = |piece: &'static [u8]| IoSlice::new(piece);
        let mut pieces = [part(b""), part(b""), part(b"")];
        let mut at = at;
        if at < head {
            pieces[0] = IoSlice::new(&self.head[at as usize..end.min(head) as usize]);
            at = end.min(head);
        }
        if at >= head && at < head + frames && at < end {
            let inside = (at - head) % self.frame as u64;
            let left = end.min(head + frames) - at;
            let stop = (inside + left).min(self.block.len() as u64);
            pieces[1] = IoSlice::new(&self.block[inside as usize..stop as usize]);
            at += stop - inside;
        }
        if at >= head + frames && at < end {
            pieces[2] = IoSlice::new(
                &self.tail[(at - head - frames) as usize..(end - head - frames) as usize],
            );
        }
        pieces
    }

    /// The whole response with this instant, nanoseconds, as its id.
    pub fn stamped(&self, at: u64) -> Vec<u8> {
        let frames = self.block[..self.frame].repeat(self.order.events as usize);
        let mut bytes = [&self.head[..], &frames, &self.tail].concat();
        let place = bytes
            .windows(9)
            .position(|part| part == b"chatcmpl-")
            .map(|place| place + 9);
        if let Some(place) = place {
            bytes[place..place + DIGITS].copy_from_slice(format!("{at:020}").as_bytes());
        }
        bytes
    }
}

/// One event as a chunk of its own, as servers send it.
fn chunk(event: &str) -> Vec<u8> {
    format!("{:x}\r\n{event}\r\n", event.len()).into_bytes()
}
