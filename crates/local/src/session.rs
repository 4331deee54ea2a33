//! One round of a case, as the thread of a model sees it.

use llmscen_client::clock::Clock;
use llmscen_core::local::Batch;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// Which requests are worked on together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gather {
    /// So many, always: a static load, whose rounds are waited for.
    Full(u32),
    /// Those that wait, so many at the most.
    Waiting(u32),
}

impl Gather {
    /// Requests of a batch at the most; at least 1.
    pub fn most(self) -> usize {
        match self {
            Gather::Full(most) | Gather::Waiting(most) => most.max(1) as usize,
        }
    }
}

/// The logits of one request: float32, a row of the vocabulary's width for each step.
pub struct Logits<'a> {
    /// The request's number.
    pub seq: u64,
    /// Its turn, from 0.
    pub turn: u32,
    /// The rows, one after another.
    pub values: &'a [f32],
    /// Their width.
    pub vocabulary: usize,
}

/// Keeps the logits of a request.
pub type Keep = Box<dyn Fn(&Logits<'_>) + Send + Sync>;

/// What a round tells the model's thread, and what that leaves.
pub struct Session {
    /// The round's clock.
    pub clock: Clock,
    /// Which requests are worked on together.
    pub gather: Gather,
    /// True once no more requests will come: then what is there is worked on.
    pub over: Box<dyn Fn() -> bool + Send + Sync>,
    /// Keeps logits; None where none are kept.
    pub keep: Option<Keep>,
    batches: Mutex<Vec<Batch>>,
    /// Replies that the model had no room to end.
    cut: AtomicU64,
}

impl Session {
    /// A round of which nothing has happened yet.
    pub fn new(clock: Clock, gather: Gather, over: Box<dyn Fn() -> bool + Send + Sync>, keep: Option<Keep>) -> Session {
        Session { clock, gather, over, keep, batches: Mutex::default(), cut: AtomicU64::new(0) }
    }

    /// Adds a batch, which gets the next number.
    pub(super) fn add(&self, batch: Batch) {
        let mut batches = self.batches.lock().unwrap_or_else(PoisonError::into_inner);
        let number = batches.len() as u64;
        batches.push(Batch { number, ..batch });
    }

    /// Counts a reply that was cut at the model's limit.
    pub(super) fn add_cut(&self) {
        self.cut.fetch_add(1, Ordering::Relaxed);
    }

    /// Replies that were cut at the model's limit so far.
    pub fn cut(&self) -> u64 {
        self.cut.load(Ordering::Relaxed)
    }

    /// Its batches so far, in order.
    pub fn batches(&self) -> Vec<Batch> {
        self.batches.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
