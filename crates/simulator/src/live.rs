//! One request in flight: receives tokens from the engine, injects faults, and writes bytes to the socket.

use crate::apis::Times;
use crate::body::Body;
use crate::chaos::{Fate, Strike};
use crate::generation::Generation;
use crate::prompt::Prompt;
use crate::socket::Socket;
use crate::truth::{End, Entry, Write};
use llmscen_core::units::Nanos;
use std::collections::VecDeque;
use std::rc::Rc;
use tokio::sync::oneshot;

/// What happens to the connection after a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum After {
    /// It is kept for the next request.
    Keep,
    /// It is closed.
    Close,
    /// It is reset.
    Reset,
}

/// The state of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// It waits for tokens, or is blocked.
    Wait,
    /// A stall begins: output is blocked and must be unblocked later.
    Stall,
    /// It is over.
    Over(After),
}

/// A request in flight.
///
/// While output is blocked (slow headers, a stall), tokens are queued; they are sent together when it is unblocked.
#[derive(Debug)]
pub(super) struct Live {
    pub(super) received_at: Nanos,
    /// Engine time of the newest token of each choice.
    newest: Vec<Option<Nanos>>,
    /// Engine time of the first token.
    first: Option<Nanos>,
    body: Body,
    socket: Rc<Socket>,
    entry: Entry,
    fate: Fate,
    /// Number of tokens received from the engine.
    ready: u64,
    /// The choices of queued tokens, in order.
    queue: VecDeque<usize>,
    blocked: bool,
    /// Bytes rendered and not sent.
    out: Vec<u8>,
    /// Number of tokens sent.
    sent: u64,
    /// The choice of the newest token that was rendered.
    choice: usize,
    over: oneshot::Sender<After>,
}

impl Live {
    /// A new request with blocked output.
    pub(super) fn new(
        body: Body,
        fate: Fate,
        (socket, entry): (Rc<Socket>, Entry),
        over: oneshot::Sender<After>,
    ) -> Live {
        let received_at = entry.lock().received_at;
        let newest = vec![None; body.generation().choices as usize];
        let (first, queue, out) = (None, VecDeque::new(), Vec::new());
        Live {
            received_at,
            newest,
            first,
            body,
            socket,
            entry,
            fate,
            ready: 0,
            queue,
            blocked: true,
            out,
            sent: 0,
            choice: 0,
            over,
        }
    }

    /// Unblocks output: sends the head of a stream the first time, and queued tokens.
    pub(super) fn open(&mut self) -> Turn {
        self.blocked = false;
        if self.entry.lock().headers_at.is_none() {
            self.body.open(&mut self.out);
            self.flush(None);
        }
        self.pump()
    }

    /// Adds a token of a choice, emitted at `at`. Also returns the time of the previous token of the choice, if any.
    pub(super) fn token(&mut self, choice: usize, at: Nanos) -> (Turn, Option<Nanos>) {
        let before = self
            .newest
            .get_mut(choice)
            .and_then(|newest| newest.replace(at));
        let first = *self.first.get_or_insert(at);
        self.body.stamp(Times {
            received: self.received_at,
            first,
            newest: at,
        });
        self.ready += 1;
        self.queue.push_back(choice);
        (self.pump(), before)
    }

    /// Whether the engine has emitted all tokens.
    pub(super) fn served(&self) -> bool {
        self.ready == self.generation().total()
    }

    /// The request.
    pub(super) fn generation(&self) -> &Generation {
        self.body.generation()
    }

    /// The id of the response and its prompt, followed by its answer. None: it is not stored, or not complete.
    pub(super) fn stored_conversation(&self) -> Option<(&str, Prompt)> {
        let stored = self.generation().stored && self.body.complete();
        stored.then(|| self.body.conversation())
    }

    /// Notifies the connection of the end of the response.
    pub(super) fn leave(self, after: After) {
        // There is no receiver if the connection was closed.
        let _ = self.over.send(after);
    }

    /// Records that the client disconnected.
    pub(super) fn abandon(&self, at: Nanos) {
        self.entry.end(End::Disconnected, at);
    }

    fn pump(&mut self) -> Turn {
        let mut due = false;
        while !self.blocked && !self.queue.is_empty() {
            if let Some(strike) = self
                .fate
                .strike
                .take_if(|_| self.body.made() == self.fate.after)
            {
                return self.strike(strike);
            }
            let Some(choice) = self.queue.pop_front() else {
                break;
            };
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
        Turn::Over(if self.body.closes() {
            After::Close
        } else {
            After::Keep
        })
    }

    fn strike(&mut self, strike: Strike) -> Turn {
        if strike == Strike::Stall {
            self.flush(None);
            self.blocked = true;
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
        Turn::Over(if after == After::Keep && self.body.closes() {
            After::Close
        } else {
            after
        })
    }

    /// Sends the rendered bytes in one write, and logs it under the lock of the record.
    fn flush(&mut self, end: Option<End>) {
        let mut record = self.entry.lock();
        if !self.out.is_empty() {
            let sent = self.socket.send(&self.out);
            self.out.clear();
            record.headers_at.get_or_insert(sent.at);
            record.blocked += u64::from(sent.blocked);
            if self.body.formed() > self.sent {
                self.sent = self.body.formed();
                record.writes.push(Write {
                    at: sent.at,
                    done: sent.done,
                    tokens: self.sent,
                    choice: self.choice as u32,
                });
            }
            record.end_at = end.map(|_| sent.at);
        }
        record.end = end;
    }
}
