//! The thread that a model lives on: it is loaded there, works on one batch after another, and goes with its last handle.
//!
//! ```text
//! lane ── Job ──► gather ──► prompts to tokens ──► work (prefill, steps) ──► answers, in one go
//!                 up to `batch`, or a round of a static load
//! ```

use crate::batch_model::{BatchModel, Resident};
use crate::error::LocalError;
use crate::generation_params::{BatchOutput, Ended, GenerationParams, GenerationRequest, LOGITS_AT_ONCE, RowOutput};
use crate::session::{Gather, Logits, Session};
use llmscen_core::local::{Batch, Loaded};
use llmscen_core::outcome::{Failure, FailureKind};
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
    pub wanted: Result<GenerationRequest, String>,
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
    pub fn start<W: BatchModel>(
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

fn serve(mut model: impl BatchModel, waiting: &Receiver<Job>, open: &AtomicUsize, memory: Resident) {
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

/// BatchModel on these requests together, to the end of the last of them. `memory` tells what this process takes.
pub(super) fn work_on(model: &mut impl BatchModel, jobs: Vec<Job>, memory: Resident) {
    let Some(session) = jobs.first().map(|job| job.session.clone()) else { return };
    let mut rows: Vec<(Job, GenerationParams)> = Vec::with_capacity(jobs.len());
    // Nobody waits for the answer of one who has left: it is dropped with the job.
    for job in jobs.into_iter().filter(|job| !job.has_left()) {
        match asked(model, &job, session.keep.is_some()) {
            Ok(ask) => rows.push((job, ask)),
            Err(failure) => _ = job.answer.send(Err(failure)),
        }
    }
    if rows.is_empty() {
        return;
    }
    let (jobs, asks): (Vec<Job>, Vec<GenerationParams>) = rows.into_iter().unzip();
    if let Some(failure) = too_much(&asks, model.vocabulary() as u64) {
        for job in jobs {
            let _ = job.answer.send(Err(failure.clone()));
        }
        return;
    }
    let left: Vec<_> = jobs.iter().map(|job| Arc::clone(&job.left)).collect();
    let alive = |row: usize| left.get(row).is_some_and(|left| !left.load(std::sync::atomic::Ordering::Relaxed));
    let reserved = memory.reserved;
    let (worked, memory) = memory.during(|| model.work(&asks, &|| session.clock.now(), &alive));
    match worked {
        Ok(worked) => {
            let (device_memory, memory_reserved) = (model.device_memory(), reserved());
            // What was given up before its first token has no times.
            if worked.rows.iter().any(|row| !row.tokens.is_empty()) {
                session.add(Batch { memory, memory_reserved, device_memory, ..batch(&jobs, &asks, &worked) });
            }
            answer(jobs, &asks, worked, (model.limit(), model.vocabulary()));
        }
        Err(error) => {
            for job in jobs {
                let _ = job.answer.send(Err(failed(&error)));
            }
        }
    }
}

/// Why the logits of a batch cannot be kept; None where they can.
pub(super) fn too_much(asks: &[GenerationParams], vocabulary: u64) -> Option<Failure> {
    let steps = asks.iter().filter(|ask| ask.logits).fold(0u64, |steps, ask| steps.saturating_add(ask.max_tokens));
    let bytes = steps.saturating_mul(vocabulary).saturating_mul(4);
    let why = || {
        format!(
            "the logits of its batch need {bytes} bytes of memory ({steps} tokens of {vocabulary} numbers), and {LOGITS_AT_ONCE} is the \
             most: ask for fewer `max_tokens`, or for smaller batches"
        )
    };
    (bytes > LOGITS_AT_ONCE).then(|| Failure::new(FailureKind::StreamError, why()).at("before the first token"))
}

/// What is asked as a row.
fn asked(model: &impl BatchModel, job: &Job, logits: bool) -> Result<GenerationParams, Failure> {
    let unread = |why: &String| Failure::new(FailureKind::Decode, why).at("before the first token");
    let wanted = job.wanted.as_ref().map_err(unread)?;
    let prompt = wanted.prompt(model).map_err(|error| failed(&error))?;
    let (tokens, limit) = (prompt.len() as u64, model.limit());
    let refused = |why: String| Failure::new(FailureKind::StreamError, why).at("before the first token");
    let vocabulary = model.vocabulary();
    if let Some(id) = prompt.iter().find(|id| **id as usize >= vocabulary) {
        return Err(refused(format!(
            "the prompt has the token {id}, and the model knows {vocabulary}: the tokenizer is another one's"
        )));
    }
    match limit.saturating_sub(tokens) {
        _ if tokens == 0 => Err(refused("the prompt has no tokens".into())),
        0 => Err(refused(format!("the prompt has {tokens} tokens, and the model has room for {limit} with its reply"))),
        room => match wanted.beyond(room, job.enough) {
            Some(most) if wanted.ignore_eos => Err(refused(format!(
                "the prompt has {tokens} tokens and the reply is to have {most}, with `ignore_eos`; the model has room for {limit} in all"
            ))),
            _ => Ok(wanted.ask(prompt, room, job.enough, logits)),
        },
    }
}

fn failed(error: &LocalError) -> Failure {
    Failure::new(FailureKind::StreamError, error.to_string())
}

fn batch(jobs: &[Job], asks: &[GenerationParams], worked: &BatchOutput) -> Batch {
    let group = jobs.first().and_then(|first| first.group.clone());
    let ends = worked.steps.iter();
    let starts = std::iter::once(&worked.prefilled).chain(&worked.steps);
    Batch {
        number: 0,
        seqs: jobs.iter().map(|job| job.seq).collect(),
        measured: jobs.iter().all(|job| job.measured),
        group: group.filter(|group| jobs.iter().all(|job| job.group.as_ref() == Some(group))),
        began: worked.began,
        prompt_tokens: asks.iter().map(|ask| ask.prompt.len() as u64).sum(),
        padded_to: worked.padded_to,
        output_tokens: worked.rows.iter().map(|row| row.tokens.len() as u64).sum(),
        prefill: worked.prefilled.since(worked.began),
        steps: ends.zip(starts).map(|(end, start)| end.since(*start)).collect(),
        memory: 0,
        memory_reserved: None,
        device_memory: None,
    }
}

fn answer(jobs: Vec<Job>, asks: &[GenerationParams], worked: BatchOutput, (limit, vocabulary): (u64, usize)) {
    let BatchOutput { rows, began, prefilled, .. } = worked;
    // Nobody waits for a row without a token: it was given up before its prompt was done.
    for ((job, ask), row) in jobs.into_iter().zip(asks).zip(rows).filter(|(_, row)| !row.tokens.is_empty()) {
        let RowOutput { tokens, text, stamps, ended, logits } = row;
        if let (Some(keep), Some(values)) = (&job.session.keep, &logits) {
            keep(&Logits { seq: job.seq, turn: job.turn, values, vocabulary });
        }
        let room = limit.saturating_sub(ask.prompt.len() as u64);
        let beyond = job.wanted.as_ref().is_ok_and(|wanted| wanted.beyond(room, job.enough).is_some());
        if beyond && ended == Ended::Length {
            job.session.add_cut();
        }
        let reason = if ended == Ended::Stop { "stop" } else { "length" };
        let answer = Answer { prompt: ask.prompt.clone(), began, prefilled, tokens, stamps, text, reason };
        let _ = job.answer.send(Ok(answer));
    }
}

#[cfg(test)]
mod tests;
