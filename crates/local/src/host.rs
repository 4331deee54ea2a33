//! The thread of a model. It loads the model, computes one batch after another, and frees the model when its last
//! handle is dropped.
//!
//! ```text
//! worker ── Job ──► gather ──► tokenize prompts ──► compute (prefill, steps) ──► answers of the batch
//!                   up to `batch`, or all requests of a static batch
//! ```

use crate::error::LocalError;
use crate::generation_params::{
    BatchModel, BatchOutput, Ended, GenerationParams, GenerationRequest, LOGITS_AT_ONCE, RowOutput,
};
use llmscen_client::clock::Clock;
use llmscen_core::local::{Batch, Loaded};
use llmscen_core::outcome::{Failure, FailureKind};
use llmscen_core::units::Nanos;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// Interval of the checks whether the round is over, while a static batch is gathered.
const POLL_INTERVAL: Duration = Duration::from_millis(10);
/// A static batch that stays incomplete for this long is computed.
const INCOMPLETE_TIMEOUT: Duration = Duration::from_secs(2);
/// Longest time between requests that are sent at the same time.
const ARRIVAL_GAP: Duration = Duration::from_millis(2);

/// Functions that return the resident memory of this process, in bytes.
#[derive(Clone, Copy, Debug)]
pub struct Resident {
    /// Resets the peak; false where the system cannot.
    pub anew: fn() -> bool,
    /// Peak since the reset.
    pub peak: fn() -> u64,
    /// Current value.
    pub now: fn() -> u64,
    /// Mapped memory of this process; None where the system does not report it.
    pub reserved: fn() -> Option<u64>,
}

impl Resident {
    /// Runs `work` and returns its result with the peak memory meanwhile, or where that is unknown with the memory
    /// after it.
    pub fn measure<T>(self, work: impl FnOnce() -> T) -> (T, u64) {
        let anew = (self.anew)();
        let done = work();
        (done, if anew { (self.peak)() } else { (self.now)() })
    }
}

/// Which requests form a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gather {
    /// Always this many: a static batch.
    Full(u32),
    /// The waiting ones, up to this many.
    Waiting(u32),
}

impl Gather {
    /// Limit of the requests of a batch; at least 1.
    pub fn limit(self) -> usize {
        match self {
            Gather::Full(limit) | Gather::Waiting(limit) => limit.max(1) as usize,
        }
    }
}

/// The logits of one request: per step a row with the size of the vocabulary.
pub struct Logits<'a> {
    /// Number of the request.
    pub seq: u64,
    /// Its turn, from 0.
    pub turn: u32,
    /// The rows of all steps.
    pub values: &'a [f32],
    /// Size of a row.
    pub vocabulary: usize,
}

/// Writes the logits of a request.
pub type Keep = Box<dyn Fn(&Logits<'_>) + Send + Sync>;

/// One round of a case, for the thread of the model.
pub struct Session {
    /// Clock of the round.
    pub clock: Clock,
    /// Which requests form a batch.
    pub gather: Gather,
    /// True when no more requests follow: an incomplete batch is computed.
    pub over: Box<dyn Fn() -> bool + Send + Sync>,
    /// Writes logits; None where they are not recorded.
    pub keep: Option<Keep>,
    batches: Mutex<Vec<Batch>>,
    /// Replies that ended at the limit of the model.
    cut: AtomicU64,
}

impl Session {
    /// A new round.
    pub fn new(
        clock: Clock,
        gather: Gather,
        over: Box<dyn Fn() -> bool + Send + Sync>,
        keep: Option<Keep>,
    ) -> Session {
        Session {
            clock,
            gather,
            over,
            keep,
            batches: Mutex::default(),
            cut: AtomicU64::new(0),
        }
    }

    /// Adds a batch with the next number.
    pub(super) fn add(&self, batch: Batch) {
        let mut batches = self.batches.lock().unwrap_or_else(PoisonError::into_inner);
        let number = batches.len() as u64;
        batches.push(Batch { number, ..batch });
    }

    /// Counts a reply that ended at the limit of the model.
    pub(super) fn add_cut(&self) {
        self.cut.fetch_add(1, Ordering::Relaxed);
    }

    /// Number of replies that ended at the limit of the model.
    pub fn cut(&self) -> u64 {
        self.cut.load(Ordering::Relaxed)
    }

    /// The batches so far.
    pub fn batches(&self) -> Vec<Batch> {
        self.batches
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

/// A request for the model.
pub struct Job {
    /// Round of the request.
    pub session: Arc<Session>,
    /// Number of the request.
    pub seq: u64,
    /// Its turn, from 0.
    pub turn: u32,
    /// Group of the dataset.
    pub group: Option<String>,
    /// Whether it is measured.
    pub measured: bool,
    /// The parsed body, or why it is invalid.
    pub request: Result<GenerationRequest, String>,
    /// Number of tokens after which the user leaves.
    pub leave_after: Option<u64>,
    /// True when the client has cancelled the request.
    pub cancelled: Arc<AtomicBool>,
    /// Receiver of the answer.
    pub answer: oneshot::Sender<Result<Answer, Failure>>,
}

impl Job {
    fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed)
    }
}

/// The reply to a request.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// Tokens of the prompt.
    pub prompt: Vec<u32>,
    /// Start of its batch.
    pub began: Nanos,
    /// End of the prefill of the batch.
    pub prefilled: Nanos,
    /// Generated tokens.
    pub tokens: Vec<u32>,
    /// Time of each token.
    pub stamps: Vec<Nanos>,
    /// Generated text.
    pub text: String,
    /// `stop`, or `length`.
    pub reason: &'static str,
}

/// The thread of a loaded model. It ends after the current batch when the handle is dropped.
pub struct Host {
    jobs: Option<Sender<Job>>,
    thread: Option<JoinHandle<()>>,
    /// Number of unfinished jobs.
    open: Arc<AtomicUsize>,
    /// Facts about the loading.
    pub loaded: Loaded,
}

/// The thread of a model that is being loaded.
pub struct Loading {
    loaded: Receiver<Result<Loaded, LocalError>>,
    jobs: Sender<Job>,
    thread: JoinHandle<()>,
    open: Arc<AtomicUsize>,
}

impl Loading {
    /// Starts to load a model on a new thread. `memory` returns the memory of this process.
    ///
    /// # Errors
    /// The system cannot start a thread.
    pub fn start<W: BatchModel>(
        load: impl FnOnce() -> Result<(W, Loaded), LocalError> + Send + 'static,
        memory: Resident,
    ) -> std::io::Result<Loading> {
        let (jobs, waiting) = mpsc::channel();
        let (loaded_sender, loaded) = mpsc::channel();
        let open = Arc::<AtomicUsize>::default();
        let open_jobs = open.clone();
        let thread =
            std::thread::Builder::new()
                .name("model".into())
                .spawn(move || match load() {
                    Err(error) => _ = loaded_sender.send(Err(error)),
                    Ok((model, loaded)) => {
                        if loaded_sender.send(Ok(loaded)).is_ok() {
                            serve(model, &waiting, &open_jobs, memory);
                        }
                    }
                })?;
        Ok(Loading {
            loaded,
            jobs,
            thread,
            open,
        })
    }

    /// Waits for the model; returns the loading again after the timeout.
    ///
    /// # Errors
    /// The model cannot be loaded. None: the thread panicked.
    pub fn wait(self, timeout: Duration) -> Result<Result<Host, Loading>, Option<LocalError>> {
        match self.loaded.recv_timeout(timeout) {
            Ok(Ok(loaded)) => Ok(Ok(Host {
                jobs: Some(self.jobs),
                thread: Some(self.thread),
                open: self.open,
                loaded,
            })),
            Ok(Err(error)) => Err(Some(error)),
            Err(RecvTimeoutError::Timeout) => Ok(Err(self)),
            Err(RecvTimeoutError::Disconnected) => Err(None),
        }
    }
}

impl Host {
    /// Sends a request to the thread. False where the thread has stopped.
    pub fn send(&self, job: Job) -> bool {
        self.open.fetch_add(1, Ordering::AcqRel);
        self.jobs
            .as_ref()
            .is_some_and(|jobs| jobs.send(job).is_ok())
    }

    /// Whether the thread has finished all jobs, also cancelled ones, or has stopped.
    pub fn is_idle(&self) -> bool {
        self.open.load(Ordering::Acquire) == 0
            || self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Drops the model and waits until its memory is free.
    pub fn free(mut self) {
        drop(self.jobs.take());
        if let Some(thread) = self.thread.take() {
            // If it panicked, its requests have failed.
            let _ = thread.join();
        }
    }
}

fn serve(
    mut model: impl BatchModel,
    waiting: &Receiver<Job>,
    open: &AtomicUsize,
    memory: Resident,
) {
    let mut next = None;
    while let Some(first) = next.take().or_else(|| waiting.recv().ok()) {
        let (batch, other) = gather(first, waiting);
        next = other;
        let count = batch.len();
        compute_batch(&mut model, batch, memory);
        open.fetch_sub(count, Ordering::AcqRel);
    }
}

/// The batch of the first request, and a request of another round that arrived meanwhile.
fn gather(first: Job, waiting: &Receiver<Job>) -> (Vec<Job>, Option<Job>) {
    let session = first.session.clone();
    let limit = session.gather.limit();
    let mut batch = vec![first];
    let mut last = Instant::now();
    while batch.len() < limit {
        match waiting.recv_timeout(if matches!(session.gather, Gather::Full(_)) {
            POLL_INTERVAL
        } else {
            ARRIVAL_GAP
        }) {
            Ok(job) if Arc::ptr_eq(&job.session, &session) => {
                batch.push(job);
                last = Instant::now();
            }
            Ok(other) => return (batch, Some(other)),
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => {
                let full = matches!(session.gather, Gather::Full(_));
                if !full
                    || last.elapsed() >= INCOMPLETE_TIMEOUT
                    || (session.over)()
                    || batch.iter().all(Job::is_cancelled)
                {
                    break;
                }
            }
        }
    }
    (batch, None)
}

/// Computes a batch and sends the answers. `memory` returns the memory of this process.
fn compute_batch(model: &mut impl BatchModel, jobs: Vec<Job>, memory: Resident) {
    let Some(session) = jobs.first().map(|job| job.session.clone()) else {
        return;
    };
    let mut rows: Vec<(Job, GenerationParams)> = Vec::with_capacity(jobs.len());
    // Cancelled requests need no answer.
    for job in jobs.into_iter().filter(|job| !job.is_cancelled()) {
        match prepare_request(model, &job, session.keep.is_some()) {
            Ok(params) => rows.push((job, params)),
            Err(failure) => _ = job.answer.send(Err(failure)),
        }
    }
    if rows.is_empty() {
        return;
    }
    let (jobs, params): (Vec<Job>, Vec<GenerationParams>) = rows.into_iter().unzip();
    if let Some(failure) = check_logits_memory(&params, model.vocabulary() as u64) {
        for job in jobs {
            let _ = job.answer.send(Err(failure.clone()));
        }
        return;
    }
    let cancelled: Vec<_> = jobs.iter().map(|job| Arc::clone(&job.cancelled)).collect();
    let alive = |row: usize| {
        cancelled
            .get(row)
            .is_some_and(|cancelled| !cancelled.load(Ordering::Relaxed))
    };
    let reserved = memory.reserved;
    let (worked, memory) = memory.measure(|| model.work(&params, &|| session.clock.now(), &alive));
    match worked {
        Ok(worked) => {
            let device_memory = model.device_memory();
            let memory_reserved = reserved();
            // A batch that was cancelled before its first token has no times.
            if worked.rows.iter().any(|row| !row.tokens.is_empty()) {
                session.add(Batch {
                    memory,
                    memory_reserved,
                    device_memory,
                    ..batch_facts(&jobs, &params, &worked)
                });
            }
            send_answers(jobs, &params, worked, model.limit(), model.vocabulary());
        }
        Err(error) => {
            for job in jobs {
                let _ = job.answer.send(Err(failed(&error)));
            }
        }
    }
}

/// The failure of a batch whose logits need too much memory.
fn check_logits_memory(params: &[GenerationParams], vocabulary: u64) -> Option<Failure> {
    let steps = params
        .iter()
        .filter(|params| params.logits)
        .fold(0u64, |steps, params| {
            steps.saturating_add(params.max_tokens)
        });
    let bytes = steps.saturating_mul(vocabulary).saturating_mul(4);
    let why = || {
        format!(
            "the logits of the batch need {bytes} bytes ({steps} tokens × {vocabulary} numbers), \
             limit {LOGITS_AT_ONCE} bytes; lower `max_tokens` or the batch size"
        )
    };
    (bytes > LOGITS_AT_ONCE)
        .then(|| Failure::new(FailureKind::StreamError, why()).at("before the first token"))
}

fn prepare_request(
    model: &impl BatchModel,
    job: &Job,
    logits: bool,
) -> Result<GenerationParams, Failure> {
    let invalid =
        |why: &String| Failure::new(FailureKind::Decode, why).at("before the first token");
    let request = job.request.as_ref().map_err(invalid)?;
    let prompt = request.prompt(model).map_err(|error| failed(&error))?;
    let tokens = prompt.len() as u64;
    let limit = model.limit();
    let rejected =
        |why: String| Failure::new(FailureKind::StreamError, why).at("before the first token");
    let vocabulary = model.vocabulary();
    if let Some(id) = prompt.iter().find(|id| **id as usize >= vocabulary) {
        return Err(rejected(format!(
            "the prompt has the token id {id}, the vocabulary of the model has {vocabulary} \
            tokens; use the tokenizer of the model"
        )));
    }
    match limit.saturating_sub(tokens) {
        _ if tokens == 0 => Err(rejected("the prompt has no tokens".into())),
        0 => Err(rejected(format!(
            "the prompt has {tokens} tokens, the limit of the model is {limit} with the reply"
        ))),
        room => match request.excess_length(room, job.leave_after) {
            Some(most) if request.ignore_eos => Err(rejected(format!(
                "the prompt has {tokens} tokens, the reply {most} (`ignore_eos`); the limit of \
                the model is {limit} in total"
            ))),
            _ => Ok(request.params(prompt, room, job.leave_after, logits)),
        },
    }
}

fn failed(error: &LocalError) -> Failure {
    Failure::new(FailureKind::StreamError, error.to_string())
}

fn batch_facts(jobs: &[Job], params: &[GenerationParams], worked: &BatchOutput) -> Batch {
    let group = jobs.first().and_then(|first| first.group.clone());
    let ends = worked.steps.iter();
    let starts = std::iter::once(&worked.prefilled).chain(&worked.steps);
    Batch {
        number: 0,
        seqs: jobs.iter().map(|job| job.seq).collect(),
        measured: jobs.iter().all(|job| job.measured),
        group: group.filter(|group| jobs.iter().all(|job| job.group.as_ref() == Some(group))),
        began: worked.began,
        prompt_tokens: params.iter().map(|params| params.prompt.len() as u64).sum(),
        padded_to: worked.padded_to,
        output_tokens: worked.rows.iter().map(|row| row.tokens.len() as u64).sum(),
        prefill: worked.prefilled.since(worked.began),
        steps: ends
            .zip(starts)
            .map(|(end, start)| end.since(*start))
            .collect(),
        memory: 0,
        memory_reserved: None,
        device_memory: None,
    }
}

fn send_answers(
    jobs: Vec<Job>,
    params: &[GenerationParams],
    worked: BatchOutput,
    limit: u64,
    vocabulary: usize,
) {
    let BatchOutput {
        rows,
        began,
        prefilled,
        ..
    } = worked;
    // A row without a token was cancelled before the end of the prefill.
    for ((job, params), row) in jobs
        .into_iter()
        .zip(params)
        .zip(rows)
        .filter(|(_, row)| !row.tokens.is_empty())
    {
        let RowOutput {
            tokens,
            text,
            stamps,
            ended,
            logits,
        } = row;
        if let (Some(keep), Some(values)) = (&job.session.keep, &logits) {
            keep(&Logits {
                seq: job.seq,
                turn: job.turn,
                values,
                vocabulary,
            });
        }
        let room = limit.saturating_sub(params.prompt.len() as u64);
        let exceeds_limit = job
            .request
            .as_ref()
            .is_ok_and(|request| request.excess_length(room, job.leave_after).is_some());
        if exceeds_limit && ended == Ended::Length {
            job.session.add_cut();
        }
        let reason = if ended == Ended::Stop {
            "stop"
        } else {
            "length"
        };
        let answer = Answer {
            prompt: params.prompt.clone(),
            began,
            prefilled,
            tokens,
            stamps,
            text,
            reason,
        };
        let _ = job.answer.send(Ok(answer));
    }
}

#[cfg(test)]
mod tests;
