//! What is known of a dataset so far: where its rows lie, which of them are usable, and which are read ahead.
//!
//! Rows are judged by several threads in any order, and taken into account in the order of their positions, so that what
//! is known after the n-th row never depends on the threads.
//!
//! ```text
//!   position   0 ......... committed ......... next ......... rows found ... (the scan goes on)
//!              known to all  being judged       may be judged
//! ```

use super::reading::{Told, Verdict};
use super::row_splitter::Span;
use crate::error::PromptError;
use llmscen_core::prompt::Session;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Sessions that are made ready beyond the one that was asked for.
const AHEAD: u64 = 1024;
/// Positions that are being judged at the most.
const FLIGHT: usize = 1024;
/// Bytes of rows that are held ready at the most, the one that is waited for aside.
const HELD: usize = 32 << 20;
/// Rows and bytes of one job at the most.
const JOB: (usize, usize) = (64, 256 << 10);
/// Rows and bytes that are looked at before a dataset counts as opened.
const LOOK: (usize, usize) = (1000, 1 << 20);
/// Rows that do not fit are described up to this number, and counted beyond it.
pub const TOLD: usize = 3;

/// A row that can be sent.
#[derive(Clone, Copy)]
pub struct Usable {
    /// Its position.
    pub position: u32,
    /// Its tokens where it was counted; the largest number stands for none.
    tokens: u32,
}

impl Usable {
    /// Its tokens, where it was counted.
    pub fn tokens(self) -> Option<u64> {
        (self.tokens != u32::MAX).then_some(self.tokens.into())
    }
}

/// Rows for a thread to judge.
#[derive(Debug)]
pub struct Job {
    /// Position of the first one.
    pub start: usize,
    /// Where they lie.
    pub rows: Vec<Span>,
    /// Whether their sessions may be asked for soon.
    pub keep: bool,
}

/// See above.
#[derive(Default)]
pub struct State {
    starts: Vec<u64>,
    lens: Vec<u32>,
    /// How the scan ended, where it did.
    pub scanned: Option<Result<(), PromptError>>,
    /// The permutation of the rows, where there is to be one.
    pub order: Option<Vec<u32>>,
    next: usize,
    committed: usize,
    /// Bytes of the rows that are being judged, and of those that are committed.
    flying: usize,
    bytes: usize,
    /// Jobs that came back before their turn: whether their sessions are kept, and what became of their rows.
    done: BTreeMap<usize, (bool, Vec<Verdict>)>,
    usable: Vec<Usable>,
    /// Positions of rows that do not fit, and what is said of the first of them.
    misfits: Vec<u32>,
    told: Vec<String>,
    ready: BTreeMap<u64, Session>,
    held: usize,
    /// The number that was asked for last, and the lowest one that may still be asked for in order.
    wanted: u64,
    taken: u64,
    /// Positions that were looked at for what was asked for, and whether enough were for the dataset to be open.
    seen: usize,
    /// Whether enough rows were looked at for the dataset to count as opened.
    pub looked: bool,
    /// Why there is nothing more.
    pub fault: Option<Arc<PromptError>>,
    /// All rows are known.
    pub ended: bool,
    /// Nobody will ask again.
    pub closed: bool,
    /// One usable row is enough for the dataset to count as opened.
    pub eager: bool,
}

impl State {
    /// Takes in rows that the scan found.
    pub fn found(&mut self, rows: &[Span]) {
        self.starts.extend(rows.iter().map(|row| row.start));
        self.lens.extend(rows.iter().map(|row| row.len));
    }

    /// Rows found so far.
    pub fn rows(&self) -> usize {
        self.starts.len()
    }

    /// Sessions that are held, and rows found.
    #[cfg(test)]
    pub fn held(&self) -> (usize, usize) {
        (self.ready.len() + self.done.values().map(|(_, verdicts)| verdicts.len()).sum::<usize>(), self.rows())
    }

    /// Sessions known so far.
    pub fn known(&self) -> u64 {
        self.usable.len() as u64
    }

    /// Positions judged so far, and those among them that were needed for what was asked for.
    pub fn judged(&self) -> (usize, usize) {
        (self.committed, self.seen)
    }

    /// The row at a position.
    pub fn span(&self, position: usize) -> Option<Span> {
        let row = match &self.order {
            Some(order) => *order.get(position)? as usize,
            None => position,
        };
        Some(Span { start: *self.starts.get(row)?, len: *self.lens.get(row)? })
    }

    /// The row of a session.
    pub fn usable(&self, number: u64) -> Option<Usable> {
        self.usable.get(usize::try_from(number).ok()?).copied()
    }

    /// Asks for a session to be made ready.
    pub fn want(&mut self, number: u64) {
        self.wanted = number;
    }

    /// Takes a session that is ready; those before it are given up. One from before them was given up already.
    pub fn take(&mut self, number: u64) -> Option<Session> {
        if number < self.taken {
            return None;
        }
        (self.wanted, self.taken) = (number, number);
        let later = self.ready.split_off(&number);
        let given_up = std::mem::replace(&mut self.ready, later);
        let taken = self.ready.remove(&number);
        for number in given_up.into_keys().chain(taken.is_some().then_some(number)) {
            self.held = self.held.saturating_sub(self.size(number));
        }
        if let Some(usable) = self.usable(number) {
            self.seen = self.seen.max(usable.position as usize + 1);
        }
        taken
    }

    fn size(&self, number: u64) -> usize {
        self.usable(number).and_then(|usable| self.span(usable.position as usize)).map_or(0, |span| span.len as usize)
    }

    /// Somebody asked for more than there is: every row was looked at.
    pub fn see_all(&mut self) {
        self.seen = self.committed;
    }

    /// Rows for a thread, where some should be judged now.
    pub fn claim(&mut self, shuffled: bool) -> Option<Job> {
        let open = if shuffled && self.order.is_none() { 0 } else { self.rows() };
        let flight = self.next - self.committed;
        let near = self.known() + flight as u64;
        let pressing = self.known() <= self.wanted;
        let room = flight < FLIGHT && self.flying < HELD && (pressing || self.held < HELD);
        let wise = room && near < self.wanted.saturating_add(AHEAD);
        if self.next >= open || !wise || self.ended || self.fault.is_some() {
            return None;
        }
        let start = self.next;
        let (mut rows, mut bytes) = (Vec::new(), 0);
        while let Some(span) = self.span(self.next).filter(|_| self.next < open && rows.len() < JOB.0 && bytes < JOB.1) {
            bytes += span.len as usize;
            rows.push(span);
            self.next += 1;
        }
        self.flying += bytes;
        // The number of a row is at most what it would be if all before it were usable.
        Some(Job { start, keep: self.near(near + rows.len() as u64), rows })
    }

    /// Whether a session may be asked for soon: not where what was asked for lies far beyond it.
    fn near(&self, number: u64) -> bool {
        number >= self.taken && number.saturating_add(AHEAD) > self.wanted
    }

    /// Takes in what became of a job. `tell` makes an error of a position and its verdict, where that must be one or is
    /// among the first that do not fit.
    pub fn commit(&mut self, job: &Job, verdicts: Vec<Verdict>, tell: &impl Fn(&State, usize, &Verdict) -> Told) {
        self.done.insert(job.start, (job.keep, verdicts));
        while let Some((keep, verdicts)) = self.done.remove(&self.committed) {
            for verdict in verdicts {
                if self.fault.is_some() {
                    return;
                }
                self.commit_row(verdict, keep, tell);
            }
        }
    }

    fn commit_row(&mut self, verdict: Verdict, keep: bool, tell: &impl Fn(&State, usize, &Verdict) -> Told) {
        let position = self.committed;
        let size = self.span(position).map_or(0, |span| span.len as usize);
        self.flying = self.flying.saturating_sub(size);
        match tell(self, position, &verdict) {
            Told::Fault(fault) => return self.fault = Some(Arc::new(fault)),
            Told::Note(note) => self.told.push(note),
            Told::Nothing => {}
        }
        match verdict {
            Verdict::Usable(session) => {
                let tokens = session.turns.first().and_then(|prompt| prompt.tokens);
                let number = self.known();
                let tokens = tokens.and_then(|tokens| u32::try_from(tokens).ok()).unwrap_or(u32::MAX);
                self.usable.push(Usable { position: position as u32, tokens });
                // A session that nobody will take in order is read again when it is asked for.
                if keep && self.near(number) && (number >= self.wanted || self.held < HELD) {
                    self.held += size;
                    self.ready.insert(number, session);
                }
            }
            Verdict::Misfit(..) => self.misfits.push(position as u32),
            Verdict::Outside | Verdict::Garbled(_) => {}
        }
        self.committed += 1;
        self.bytes += size;
        let enough = self.eager || self.committed >= LOOK.0 || self.bytes >= LOOK.1;
        if !self.looked && !self.usable.is_empty() && enough {
            (self.looked, self.seen) = (true, self.seen.max(self.committed));
        }
    }

    /// Notices the end: every row that there is has been judged. `none` makes the error of data without a usable row.
    pub fn settle(&mut self, none: impl FnOnce(&State) -> PromptError) {
        if self.committed < self.rows() || self.ended || self.fault.is_some() {
            return;
        }
        match self.scanned.take() {
            None => {}
            Some(Err(fault)) => self.fault = Some(Arc::new(fault)),
            Some(Ok(())) if self.usable.is_empty() => self.fault = Some(Arc::new(none(self))),
            Some(Ok(())) => {
                self.ended = true;
                if !self.looked {
                    (self.looked, self.seen) = (true, self.seen.max(self.committed));
                }
            }
        }
    }

    /// Rows left out among those that were looked at, and those of them that do not fit.
    pub fn left_out(&self) -> (u64, u64) {
        let before = |position: &u32| (*position as usize) < self.seen;
        let usable = self.usable.partition_point(|row| before(&row.position));
        ((self.seen - usable) as u64, self.misfits.partition_point(before) as u64)
    }

    /// Whether the threads should be woken for more rows.
    pub fn hungry(&self) -> bool {
        !self.ended && self.fault.is_none() && self.known() < self.wanted.saturating_add(AHEAD / 2)
    }

    /// Whether more rows were found than will be asked for soon.
    pub fn sated(&self) -> bool {
        let unusable = self.committed as u64 - self.known();
        self.rows() as u64 - unusable > self.wanted.saturating_add(AHEAD)
    }

    /// What is to be said of the first row that does not fit.
    pub fn first_told(&self) -> Option<&String> {
        self.told.first()
    }

    /// Rows that do not fit so far, whether they were looked at or not.
    pub fn misfits(&self) -> usize {
        self.misfits.len()
    }

    /// What is to be said of the first rows that do not fit, as far as they were looked at.
    pub fn told(&self) -> impl Iterator<Item = &String> {
        let seen = self.left_out().1 as usize;
        self.told.iter().take(seen)
    }
}
