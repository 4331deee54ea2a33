//! The thread that a model lives on: it is loaded there, works on one batch after another, and goes with its last handle.
//!
//! ```text
//! lane ── Job ──► gather ──► prompts to tokens ──► work (prefill, steps) ──► answers, in one go
//!                 up to `batch`, or a round of a static load
//! ```

mod batch;

use super::batch_model::{Resident, Works};
use super::error::LocalError;
use super::generation_request::Wanted;
use super::session::{Gather, Session};
use batch::work_on;
use llmscen_core::local::Loaded;
use llmscen_core::outcome::Failure;
use llmscen_core::units::Nanos;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// While a round gathers, whether it is over is looked at this often.
const LOOK: Duration = Duration::from_millis(10);
/// A round of a static load that does not become complete is worked on as it is after so long a silence.
const SILENCE: Duration = Duration::from_secs(2);
/// Requests that are sent at the same instant come one after the other: so long is waited for the next one of them.
const TOGETHER: Duration = Duration::from_millis(2);

/// A request for the model.
pub struct Job {
    /// The round that it belongs to.
    pub session: Arc<Session>,
    /// Its number.
    pub seq: u64,
    /// Its turn, from 0.
    pub turn: u32,
    /// The part of the dataset that it belongs to.
    pub group: Option<String>,
    /// Whether it is measured.
    pub measured: bool,
    /// What is asked; what of it cannot be understood, in words.
    pub wanted: Result<Wanted, String>,
    /// After so many tokens its user leaves.
    pub enough: Option<u64>,
    /// True once nobody waits for it any more.
    pub left: Arc<AtomicBool>,
    /// Where its answer goes.
    pub answer: oneshot::Sender<Result<Answer, Failure>>,
}

impl Job {
    fn has_left(&self) -> bool {
        self.left.load(Ordering::Relaxed)
    }
}

/// What the model made of a request.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// Tokens of the prompt.
    pub prompt: Vec<u32>,
    /// When its batch began.
    pub began: Nanos,
    /// When the prompts of the batch were done.
    pub prefilled: Nanos,
    /// Its tokens.
    pub tokens: Vec<u32>,
    /// When each was there.
    pub stamps: Vec<Nanos>,
    /// Its text.
    pub text: String,
    /// `stop`, or `length`.
    pub reason: &'static str,
}

/// A model that is loaded, and its thread. The thread ends when the handle goes and its batch is done.
pub struct Host {
    jobs: Option<Sender<Job>>,
    thread: Option<JoinHandle<()>>,
    /// Jobs that the thread has not done with.
    open: Arc<AtomicUsize>,
    /// What it told of its loading.
    pub loaded: Loaded,
}

/// A model that is being loaded.
pub struct Loading {
    loaded: Receiver<Result<Loaded, LocalError>>,
    jobs: Sender<Job>,
    thread: JoinHandle<()>,
    open: Arc<AtomicUsize>,
}

impl Loading {
    /// Begins to load a model on a thread of its own. `memory` tells what this process takes.
    ///
    /// # Errors
    /// The system gives no thread.
    pub fn start<W: Works>(
        load: impl FnOnce() -> Result<(W, Loaded), LocalError> + Send + 'static,
        memory: Resident,
    ) -> std::io::Result<Loading> {
        let ((jobs, waiting), (told, loaded)) = (mpsc::channel(), mpsc::channel());
        let open = Arc::<AtomicUsize>::default();
        let done = open.clone();
        let thread = std::thread::Builder::new().name("model".into()).spawn(move || match load() {
            Err(error) => _ = told.send(Err(error)),
            Ok((model, loaded)) => {
                if told.send(Ok(loaded)).is_ok() {
                    serve(model, &waiting, &done, memory);
                }
            }
        })?;
        Ok(Loading { loaded, jobs, thread, open })
    }

    /// Waits for the model, for so long at the most; the loading itself where it needs longer.
    ///
    /// # Errors
    /// It cannot be loaded. None of [`LocalError`]: its thread ended without a word.
    pub fn wait(self, most: Duration) -> Result<Result<Host, Loading>, Option<LocalError>> {
        match self.loaded.recv_timeout(most) {
            Ok(Ok(loaded)) => Ok(Ok(Host { jobs: Some(self.jobs), thread: Some(self.thread), open: self.open, loaded })),
            Ok(Err(error)) => Err(Some(error)),
            Err(RecvTimeoutError::Timeout) => Ok(Err(self)),
            Err(RecvTimeoutError::Disconnected) => Err(None),
        }
    }
}

impl Host {
    /// Hands over a request. False where the thread is gone.
    pub fn give(&self, job: Job) -> bool {
        self.open.fetch_add(1, Ordering::AcqRel);
        self.jobs.as_ref().is_some_and(|jobs| jobs.send(job).is_ok())
    }

    /// Whether its thread has done with all that was handed over, what nobody waits for any more among it; or is gone.
    pub fn idle(&self) -> bool {
        self.open.load(Ordering::Acquire) == 0 || self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Lets the model go and waits until its memory is free.
    pub fn free(mut self) {
        drop(self.jobs.take());
        if let Some(thread) = self.thread.take() {
            // Had it panicked, its requests have failed with it.
            let _ = thread.join();
        }
    }
}

fn serve(mut model: impl Works, waiting: &Receiver<Job>, open: &AtomicUsize, memory: Resident) {
    let mut next = None;
    while let Some(first) = next.take().or_else(|| waiting.recv().ok()) {
        let (batch, other) = gather(first, waiting);
        next = other;
        let many = batch.len();
        work_on(&mut model, batch, memory);
        open.fetch_sub(many, Ordering::AcqRel);
    }
}

/// The requests that are worked on together with the first, and one of another round that came meanwhile.
fn gather(first: Job, waiting: &Receiver<Job>) -> (Vec<Job>, Option<Job>) {
    let session = first.session.clone();
    let most = session.gather.most();
    let mut batch = vec![first];
    let mut last = Instant::now();
    while batch.len() < most {
        match waiting.recv_timeout(if matches!(session.gather, Gather::Full(_)) { LOOK } else { TOGETHER }) {
            Ok(job) if Arc::ptr_eq(&job.session, &session) => {
                batch.push(job);
                last = Instant::now();
            }
            Ok(other) => return (batch, Some(other)),
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => {
                let full = matches!(session.gather, Gather::Full(_));
                if !full || last.elapsed() >= SILENCE || (session.over)() || batch.iter().all(Job::has_left) {
                    break;
                }
            }
        }
    }
    (batch, None)
}

#[cfg(test)]
mod tests;
