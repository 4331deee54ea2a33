//! One batch: what is asked becomes rows, the model works on them, and everybody gets his answer.

use super::{Answer, Job};
use crate::batch_model::{Resident, Works};
use crate::error::LocalError;
use crate::generation_params::{Ask, Ended, LOGITS_AT_ONCE, Told, Worked};
use crate::session::Logits;
use llmscen_core::local::Batch;
use llmscen_core::outcome::{Failure, FailureKind};
use std::sync::Arc;

/// Works on these requests together, to the end of the last of them. `memory` tells what this process takes.
pub(super) fn work_on(model: &mut impl Works, jobs: Vec<Job>, memory: Resident) {
    let Some(session) = jobs.first().map(|job| job.session.clone()) else { return };
    let mut rows: Vec<(Job, Ask)> = Vec::with_capacity(jobs.len());
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
    let (jobs, asks): (Vec<Job>, Vec<Ask>) = rows.into_iter().unzip();
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
pub(super) fn too_much(asks: &[Ask], vocabulary: u64) -> Option<Failure> {
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
fn asked(model: &impl Works, job: &Job, logits: bool) -> Result<Ask, Failure> {
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

fn batch(jobs: &[Job], asks: &[Ask], worked: &Worked) -> Batch {
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

fn answer(jobs: Vec<Job>, asks: &[Ask], worked: Worked, (limit, vocabulary): (u64, usize)) {
    let Worked { rows, began, prefilled, .. } = worked;
    // Nobody waits for a row without a token: it was given up before its prompt was done.
    for ((job, ask), row) in jobs.into_iter().zip(asks).zip(rows).filter(|(_, row)| !row.tokens.is_empty()) {
        let Told { tokens, text, stamps, ended, logits } = row;
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
