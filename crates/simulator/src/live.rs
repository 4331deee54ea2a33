//! One request in flight: tokens come from the engine, bytes go to the socket, faults come between.

use crate::apis::Times;
use crate::body::Body;
use crate::chaos::{Fate, Strike};
use crate::generation::Generation;
use crate::socket::Socket;
use crate::truth::{End, Entry, Write};
use llmscen_core::units::Nanos;
use std::collections::VecDeque;
use std::rc::Rc;
use tokio::sync::oneshot;

/// What becomes of the connection after an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum After {
    /// It takes the next request.
    Keep,
    /// It ends.
    Close,
    /// It is reset.
    Reset,
}

/// The state of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// It waits for tokens, or for its gate.
    Wait,
    /// A stall begins: the gate is shut and has to be opened later.
    Stall,
    /// It is over.
    Over(After),
}

/// A request that the engine serves.
///
/// While the gate is shut (slow headers, a stall) tokens are only counted; when it opens they all go through at once.
#[derive(Debug)]
pub(super) struct Live {
    pub(super) received_at: Nanos,
    /// When the newest token of each choice was there, by the engine's time.
    newest: Vec<Option<Nanos>>,
    /// When the first token of all was there, by the engine's time.
    first: Option<Nanos>,
    body: Body,
    socket: Rc<Socket>,
    entry: Entry,
    fate: Fate,
    /// Tokens that the engine gave.
    ready: u64,
    /// The choices of those that have not gone through yet, in order.
    queue: VecDeque<usize>,
    shut: bool,
    /// Bytes formed and not sent.
    out: Vec<u8>,
    /// Tokens that were sent.
    sent: u64,
    /// The choice of the newest token that went through.
    choice: usize,
    over: oneshot::Sender<After>,
}

impl Live {
    /// A request whose gate is shut.
    pub(super) fn new(body: Body, fate: Fate, (socket, entry): (Rc<Socket>, Entry), over: oneshot::Sender<After>) -> Live {
        let received_at = entry.lock().received_at;
        let newest = vec![None; body.generation().choices as usize];
        let (first, queue, out) = (None, VecDeque::new(), Vec::new());
        Live { received_at, newest, first, body, socket, entry, fate, ready: 0, queue, shut: true, out, sent: 0, choice: 0, over }
    }

    /// Opens the gate: sends the head of a stream the first time, and what was held back.
    pub(super) fn open(&mut self) -> Turn {
        self.shut = false;
        if self.entry.lock().headers_at.is_none() {
            self.body.open(&mut self.out);
            self.flush(None);
        }
        self.pump()
    }

    /// Takes one more token of a choice from the engine, given at `at`. Returns when the one before it was there too; None
    /// where it is the first of its choice.
    pub(super) fn token(&mut self, choice: usize, at: Nanos) -> (Turn, Option<Nanos>) {
        let before = self.newest.get_mut(choice).and_then(|newest| newest.replace(at));
        let first = *self.first.get_or_insert(at);
        self.body.stamp(Times { received: self.received_at, first, newest: at });
        self.ready += 1;
        self.queue.push_back(choice);
        (self.pump(), before)
    }

    /// Whether the engine has given all tokens.
    pub(super) fn served(&self) -> bool {
        self.ready == self.generation().total()
    }

    /// What was requested.
    pub(super) fn generation(&self) -> &Generation {
        self.body.generation()
    }

    /// Tells the connection that the answer is over.
    pub(super) fn leave(self, after: After) {
        // The connection may be gone, and then there is no receiver.
        let _ = self.over.send(after);
    }

    /// Notes that the client left.
    pub(super) fn abandon(&self, at: Nanos) {
        self.entry.end(End::Disconnected, at);
    }

    fn pump(&mut self) -> Turn {
        let mut due = false;
        while !self.shut && !self.queue.is_empty() {
            if let Some(strike) = self.fate.strike.take_if(|_| self.body.made() == self.fate.after) {
                return self.strike(strike);
            }
            let Some(choice) = self.queue.pop_front() else { break };
            self.body.token(choice, &mut self.out);
            self.choice = choice;
            due |= self.body.due();
        }
        if !self.body.complete() {
            if due {
                self.flush(None);
            }
            return Turn::Wait;
        }
        self.flush(Some(End::Done));
        Turn::Over(if self.body.closes() { After::Close } else { After::Keep })
    }

    fn strike(&mut self, strike: Strike) -> Turn {
        if strike == Strike::Stall {
            self.flush(None);
            self.shut = true;
            return Turn::Stall;
        }
        self.body.cut(strike, &mut self.out);
        let (end, after) = match strike {
            Strike::Reset => (End::Reset, After::Reset),
            Strike::Truncate if self.body.generation().stream => (End::Truncated, After::Keep),
            Strike::Truncate => (End::Truncated, After::Close),
            _ => (End::StreamError, After::Keep),
        };
        self.flush(Some(end));
        Turn::Over(if after == After::Keep && self.body.closes() { After::Close } else { after })
    }

    /// Sends what is formed, in one write, and notes it down under the record's lock.
    fn flush(&mut self, end: Option<End>) {
        let mut record = self.entry.lock();
        if !self.out.is_empty() {
            let sent = self.socket.send(&self.out);
            self.out.clear();
            record.headers_at.get_or_insert(sent.at);
            record.blocked += u64::from(sent.blocked);
            if self.body.formed() > self.sent {
                self.sent = self.body.formed();
                record.writes.push(Write { at: sent.at, done: sent.done, tokens: self.sent, choice: self.choice as u32 });
            }
            record.end_at = end.map(|_| sent.at);
        }
        record.end = end;
    }
}
